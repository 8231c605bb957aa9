//! The managed service that this server belongs to.

use std::path::PathBuf;

use serde::Deserialize;
use whimbrel_engine::{Fault, FaultCode};
use whimbrel_proto::token::http::HttpsUrl;

/// A managed service that this server registers with, and whose users it lets in.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct JoinConfig {
    /// Where it is, an `https` URL.
    pub service: String,
    /// File of the token with which this server registers the first time; afterwards it is not needed any more.
    pub token_file: Option<PathBuf>,
    /// That token itself, from the command line only.
    #[serde(skip)]
    pub token: Option<String>,
    /// PEM file of the authorities that vouch for the service's host. Default: those of the system.
    pub authorities: Option<PathBuf>,
    /// URLs under which the service and other servers reach this one, `whimbrel://HOST:PORT`. Default: this host's name, or the
    /// address it listens at, with the ports it listens at.
    pub addresses: Vec<String>,
    /// Directory of what this server keeps: its place in the service, and a certificate of its own where `[tls]` names none.
    /// Default: `/var/lib/whimbrel`, or `~/.local/state/whimbrel` where root has not started it.
    pub state: Option<PathBuf>,
    /// Accounts of everybody whom the service sends, the first is the usual one. Default: those that `mapping` gives; without it
    /// one's own. Root has to say one of both.
    pub accounts: Vec<String>,
    /// Where files of its collections are had over HTTPS, and the collections managed: `HOST:PORT`. Default: nowhere.
    pub https: Option<String>,
    /// Make connections and take none: for hosts behind address translation or a firewall, and laptops. Default: no.
    pub outbound: bool,
    /// URL under which that is reached, `https://HOST[:PORT]`. Default: this host's name, or the address it listens at.
    pub https_url: Option<String>,
    /// `HOST:PORT` at which data connections of servers are joined that take none, so that they exchange files by way of this one.
    /// Default: nowhere.
    pub relay: Option<String>,
}

/// Longest URL of this server, bytes.
const LONGEST_ADDRESS: usize = 512;

impl JoinConfig {
    /// Where the service is.
    ///
    /// # Errors
    /// `InvalidArgument`: it is no such URL, or one of this server's own is none.
    pub fn place(&self) -> Result<HttpsUrl, Fault> {
        let bad = |subject: &str, detail: &str| {
            Fault::new(FaultCode::InvalidArgument, "configure").subject(subject).detail(detail)
        };
        let is_address = |url: &&String| {
            let known = ["whimbrel://", "ftps://"].iter().any(|scheme| url.starts_with(scheme));
            known && url.len() <= LONGEST_ADDRESS && url.bytes().all(|byte| byte.is_ascii_graphic())
        };
        if let Some(address) = self.addresses.iter().find(|url| !is_address(url)) {
            return Err(bad(address, "addresses are URLs as in whimbrel://dtn.example.org:2811"));
        }
        let is_base =
            |url: &String| HttpsUrl::parse(url).is_some_and(|place| place.path() == "/" && !url.ends_with('/'));
        if let Some(url) = self.https_url.as_ref().filter(|url| !is_base(url) || url.len() > LONGEST_ADDRESS) {
            return Err(bad(url, "https_url is a URL without a path, as in https://dtn.example.org"));
        }
        let place = HttpsUrl::parse(self.service.trim_end_matches('/'));
        place.ok_or_else(|| bad(&self.service, "the service is named by a URL as in https://transfer.example.org"))
    }
}
