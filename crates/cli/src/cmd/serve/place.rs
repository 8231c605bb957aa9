//! What the service keeps in its directory: the database, a certificate, the administrator's secret.

use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};

use uuid::Uuid;
use whimbrel_engine::{Fault, Side};
use whimbrel_service::Service;
use whimbrel_trust::credential;
use whimbrel_trust::kept::Kept;
use whimbrel_trust::make::{self, HostName};
use whimbrel_trust::peer::OwnChain;
use whimbrel_trust::pins::Fingerprint;
use whimbrel_trust::tls::{Clients, ServerTls, TicketKeys};

use super::OP;
use crate::output::lines;

/// Seconds for which a certificate made here is good; clients are given it itself.
const LIFE: i64 = 5 * 365 * 24 * 3600;

/// The service's directory: nobody else reads it.
pub struct StatePlace(Kept);

impl StatePlace {
    /// The directory, made if it is not there.
    pub fn at(named: Option<&Path>) -> Result<Self, Fault> {
        let uid = rustix::process::geteuid().as_raw();
        let directory =
            named.map(Path::to_owned).or_else(|| Kept::usual("whimbrel-service", uid)).ok_or_else(|| {
                super::failed("there is no place for what the service keeps: give --state DIR, or set HOME")
            })?;
        Kept::at(&directory).map(Self).map_err(|error| of_file(error, &directory))
    }

    /// The usual database.
    pub fn database(&self) -> String {
        format!("sqlite:{}", self.0.path("service.db").display())
    }

    /// The file of the key that secrets in a PostgreSQL database are sealed with; the same for all replicas.
    pub fn seal_key(&self) -> PathBuf {
        self.0.path("seal.key")
    }

    /// What the orchestrator of this process goes by, the same each time it is started from this directory.
    pub fn orchestrator(&self) -> Result<Uuid, Fault> {
        kept_name(&self.0)
    }

    /// TLS with the administrator's certificate, or with one made here, and the fingerprint of its key.
    pub fn tls(
        &self,
        named: Option<(&Path, &Path)>,
        url: Option<&str>,
        host: &str,
    ) -> Result<(ServerTls, Fingerprint), Fault> {
        let own = match named {
            Some((certificate, key)) => read_chain(&[certificate, key])?,
            None => self.own_certificate(url, host)?,
        };
        let tickets = TicketKeys::new().and_then(|keys| ServerTls::new(&own, &Clients::Unasked, Some(&keys)));
        let tls = tickets.map_err(|fault| fault.into_fault(OP, Side::Us))?;
        let pin = Fingerprint::of(&own.certificate).map_err(|error| super::failed(error.to_string()))?;
        Ok((tls, pin))
    }

    /// The certificate made at the first start, in `certificate.pem` for clients to trust, with its key in `key.pem`.
    fn own_certificate(&self, url: Option<&str>, host: &str) -> Result<OwnChain, Fault> {
        let (certificate, key) = (self.0.path("certificate.pem"), self.0.path("key.pem"));
        if !certificate.exists() || !key.exists() {
            let own = make::own_host("/CN=whimbrel transfer service", names(url, host), LIFE);
            let own = own.map_err(|fault| fault.into_fault(OP, Side::Us))?;
            let pem = own.certificate.to_pem().map_err(|error| super::failed(error.to_string()))?;
            let key_pem = make::key_pem(&own.key).map_err(|error| super::failed(error.to_string()))?;
            self.write("key.pem", &key_pem, 0o600)?;
            self.write("certificate.pem", &pem, 0o644)?;
        }
        read_chain(&[&certificate, &key])
    }

    /// At the first start: a client for the administrator, in `administrator.json`.
    pub async fn make_administrator(&self, service: &Service) -> Result<(), Fault> {
        let refused = |error: whimbrel_service::http::ApiError| super::failed(error.to_string());
        if !service.is_new().await.map_err(refused)? {
            return Ok(());
        }
        let made = service.bootstrap_client("administrator", true).await.map_err(refused)?;
        let secret = made.secret.unwrap_or_default();
        let text = format!("{{\"client_id\": \"{}\", \"client_secret\": \"{secret}\"}}\n", made.client.id);
        self.write("administrator.json", text.as_bytes(), 0o600)?;
        let path = self.0.path("administrator.json");
        lines::line(&format!("the administrator's client and its secret are in {}", path.display()));
        Ok(())
    }

    fn write(&self, name: &str, bytes: &[u8], mode: u32) -> Result<(), Fault> {
        self.0.write(name, bytes, mode).map_err(|error| of_file(error, &self.0.path(name)))
    }
}

/// What an orchestrator goes by, made at its first start: one that is started again goes on with its tasks at once.
pub fn kept_name(place: &Kept) -> Result<Uuid, Fault> {
    const NAME: &str = "orchestrator";
    let path = place.path(NAME);
    match fs::read_to_string(&path) {
        Ok(text) => text.trim().parse().map_err(|_| {
            super::failed(format!("{} is damaged: delete it; running tasks then rest a moment", path.display()))
        }),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            let made = whimbrel_service::store::random_uuid().map_err(Fault::from)?;
            place.write(NAME, format!("{made}\n").as_bytes(), 0o600).map_err(|error| of_file(error, &path))?;
            Ok(made)
        }
        Err(error) => Err(of_file(error, &path)),
    }
}

fn of_file(error: std::io::Error, path: &Path) -> Fault {
    Fault::from_io(error, OP).side(Side::Us).subject(path.display().to_string())
}

fn read_chain(files: &[&Path]) -> Result<OwnChain, Fault> {
    let mut pem = Vec::new();
    for file in files {
        pem.extend(fs::read(file).map_err(|error| of_file(error, file))?);
        pem.push(b'\n');
    }
    credential::from_pem(&pem).map_err(|fault| fault.about(files[0].display().to_string()).into_fault(OP, Side::Us))
}

/// What the service may be called: its URL's host, this host's name, and this host to itself.
fn names(url: Option<&str>, host: &str) -> Vec<HostName> {
    let of_url = url.and_then(|url| url.split_once("://")).map(|(_, rest)| rest);
    let of_url = of_url.and_then(|rest| rest.split(['/', ':']).next()).filter(|name| !name.is_empty());
    let mut names: Vec<_> = ["localhost", host].into_iter().chain(of_url).map(name).collect();
    names.extend(["127.0.0.1", "::1"].map(name));
    names.dedup();
    names
}

fn name(text: &str) -> HostName {
    text.parse::<IpAddr>().map_or_else(|_| HostName::Dns(text.to_owned()), HostName::Address)
}

/// This host's name; `localhost` where it has none.
pub fn host_name() -> String {
    let uname = rustix::system::uname();
    let name = String::from_utf8_lossy(uname.nodename().to_bytes()).to_ascii_lowercase();
    if name.is_empty() { "localhost".into() } else { name }
}

/// The URL of a listening address.
pub fn url(address: SocketAddr, host: &str) -> String {
    match address.ip().is_unspecified() {
        true => format!("https://{host}:{}", address.port()),
        false => format!("https://{address}"),
    }
}
