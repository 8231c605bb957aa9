//! `whimbrel endpoint credential`: proxies with which the managed service logs in at stock servers.

use std::path::PathBuf;

use clap::Args;
use serde_json::{Value, json};
use whimbrel_engine::summary::exit;
use whimbrel_engine::{Fault, Side};
use whimbrel_trust::clock::now;
use whimbrel_trust::credential;
use whimbrel_trust::gsi::{Delegate, deposit};
use whimbrel_trust::make::Life;
use whimbrel_trust::places::Places;
use whimbrel_trust::{OwnChain, TrustFault};

use super::super::cert::{environment, signer, uid};
use crate::login::pass_phrase;
use crate::managed::names::Kind;
use crate::managed::refusal::Trouble;
use crate::managed::{Session, need, show, text};
use crate::output::Output;

/// Register a proxy of your certificate, with which your tasks log in at an endpoint's stock servers
///
/// The service makes a key and asks; the proxy is signed here, with your proxy or certificate. No private key leaves its host. It may move
/// data and start no jobs, and is kept encrypted, for you and this endpoint only, until it ends. Tasks that waited for it go on.
#[derive(Debug, Args)]
#[command(after_help = "EXAMPLES\n  \
    With the proxy or certificate that is here:  whimbrel endpoint credential 'Cluster data'\n  \
    For three days, with another certificate:    whimbrel endpoint credential 'Cluster data' --hours 72 --cert usercert.pem\n  \
    What is registered, and until when:          whimbrel endpoint credential 'Cluster data' --show")]
pub struct CredentialArgs {
    /// The endpoint's name or id, or that of a collection on it
    #[arg(value_name = "ENDPOINT")]
    endpoint: String,
    /// How long it is good, hours; never longer than what signs it
    #[arg(long, value_name = "N", default_value_t = 24, value_parser = clap::value_parser!(u32).range(1..=168))]
    hours: u32,
    /// File of the certificate, or of a proxy [default: the usual places, as for gsiftp://]
    #[arg(long, value_name = "FILE")]
    cert: Option<PathBuf>,
    /// File of its key [default: userkey.pem beside usercert.pem, else the file itself]
    #[arg(long, value_name = "FILE", requires = "cert")]
    key: Option<PathBuf>,
    /// With all your rights, for servers that take no limited proxies
    #[arg(long)]
    full: bool,
    /// Tell what is registered
    #[arg(long, conflicts_with_all = ["hours", "cert", "key", "full", "remove"])]
    show: bool,
    /// Take it away; tasks that need one wait for another
    #[arg(long, conflicts_with_all = ["hours", "cert", "key", "full"])]
    remove: bool,
}

/// Registers, shows or removes a credential.
pub async fn credential(session: &mut Session, args: &CredentialArgs, output: &mut Output) -> Result<u8, Trouble> {
    let id = session.id_of(&args.endpoint, Kind::Any).await?;
    let path = format!("/v2/whimbrel/endpoints/{id}/credential");
    if args.remove {
        let answer = session.delete(&path).await?;
        output.outcome(&json!({"event": "credential_removed", "id": id}), text(&answer, "message"));
        return Ok(exit::OK);
    }
    let told = if args.show { session.get(&path).await? } else { register(session, args, &path).await? };
    tell(&told, if args.show { "credential" } else { "credential_registered" }, output);
    Ok(exit::OK)
}

/// The service asks, and gets a proxy for its key.
async fn register(session: &mut Session, args: &CredentialArgs, path: &str) -> Result<Value, Trouble> {
    let own = own(args).map_err(told)?;
    let asked = session.post(&format!("{path}/request"), &json!({})).await?;
    let delegate = if args.full { Delegate::Full } else { Delegate::Limited };
    let life = Life::of(now(), i64::from(args.hours) * 3600);
    let chain = deposit::answer(need(&asked, "request")?, &own, delegate, life).map_err(told)?;
    session.put(path, &json!({"chain": chain})).await
}

/// What signs: the named certificate, else the usual one, proxy before certificate.
fn own(args: &CredentialArgs) -> Result<OwnChain, TrustFault> {
    if args.cert.is_some() {
        return signer(args.cert.clone(), args.key.clone());
    }
    let places = Places::new(&environment, uid());
    Ok(credential::person(&places, now(), &|file| pass_phrase(file).map(Into::into))?.own)
}

fn told(fault: TrustFault) -> Trouble {
    let fault: Fault = fault.into_fault("sign a proxy for the service", Side::Us);
    fault.into()
}

fn tell(document: &Value, name: &str, output: &mut Output) {
    let mut event = document.clone();
    event["event"] = json!(name);
    let ended = if document["expires_in"] == 0 { " (it has ended)" } else { "" };
    let facts = [
        ("what", text(document, "kind").to_owned()),
        ("good until", format!("{}{ended}", show::time(document, "expire_time"))),
        ("registered", show::time(document, "registered_time")),
    ];
    output.result(&event, &show::facts(text(document, "subject"), &facts));
}
