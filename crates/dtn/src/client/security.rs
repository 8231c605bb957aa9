//! How control connections are protected, and whom a client believes.

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use whimbrel_engine::{Fault, FaultCode, Side};
use whimbrel_trust::TrustFault;
use whimbrel_trust::pins::{HostName, KeyJudge, PinJudge, PinVerdict, Pins};
use whimbrel_trust::roots::{HostJudge, SystemRoots};
use whimbrel_trust::tls::{ClientTls, Progress, TlsMachine};

use super::grid::Grid;
use super::shown::Shown;
use super::target::Target;

/// How a control connection begins.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum Security {
    /// In clear, and it stays so.
    #[default]
    Clear,
    /// In clear, then AUTH TLS (RFC 4217); a server that refuses gets no password.
    Tls,
    /// With TLS before the greeting.
    ImplicitTls,
    /// In clear, then AUTH GSSAPI with certificates or Kerberos; all lines are wrapped then.
    Gsi,
    /// Inside ssh, which starts the server.
    Ssh,
}

const OP: &str = "protect the control connection";

/// Whom a client believes.
#[derive(Clone)]
pub struct Trust {
    pins: Option<Pins>,
    roots: Arc<OnceLock<Option<SystemRoots>>>,
    /// What is shown to grid servers, and whom they are believed by.
    pub(super) grid: Grid,
    /// What logins over TLS show.
    pub(super) shown: Shown,
}

impl std::fmt::Debug for Trust {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Trust({:?})", self.pins.as_ref().map(Pins::path))
    }
}

impl Default for Trust {
    /// The system's authorities, and the known hosts of this account.
    fn default() -> Self {
        Self {
            pins: known_hosts().map(Pins::new),
            roots: Arc::default(),
            grid: Grid::default(),
            shown: Shown::default(),
        }
    }
}

/// `whimbrel/known_hosts` in the directory for settings.
fn known_hosts() -> Option<PathBuf> {
    let set = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let base = set("XDG_CONFIG_HOME").filter(|path| path.is_absolute());
    let base = base.or_else(|| set("HOME").map(|home| home.join(".config")))?;
    Some(base.join("whimbrel/known_hosts"))
}

impl Trust {
    /// With known hosts in another file.
    pub fn with_known_hosts(path: PathBuf) -> Self {
        Self { pins: Some(Pins::new(path)), ..Self::default() }
    }

    /// Asks for the pass phrase of a private key's file in this way; `None`: nobody can be asked.
    pub fn asking(self, ask: impl Fn(&Path) -> Option<String> + Send + Sync + 'static) -> Self {
        Self { grid: Grid::asking(Arc::new(ask)), ..self }
    }

    /// Shows the access token in this file wherever a login is inside TLS and has no password.
    pub fn with_token_file(self, file: PathBuf) -> Self {
        Self { shown: Shown::token_file(file), ..self }
    }

    /// Shows what the user named, and nothing that merely lies here.
    pub(crate) fn named_only(&self) -> Self {
        Self { shown: self.shown.named_only(), ..self.clone() }
    }

    /// TLS towards one server, which gets our certificate if it asks for one.
    pub(super) fn towards(&self, target: &Target) -> Result<Handshake, Fault> {
        let (host, port) = (target.host.as_str(), target.port);
        let own = self.shown.certificate(&self.grid, target)?;
        let own = own.as_deref().map(|own| &own.own);
        if !target.keys.is_empty() {
            let tls = ClientTls::new(Arc::new(KeyJudge::new(target.keys.clone(), host)), own);
            let tls = tls.and_then(|config| TlsMachine::client(&config, host)).map_err(|fault| told(fault, host))?;
            return Ok(Handshake { tls, remembered: None, host: host.to_owned() });
        }
        let name = HostName::new(host, port);
        let (Some(name), Some(pins)) = (name, self.pins.clone()) else {
            let fault = Fault::new(FaultCode::CredentialMissing, OP).side(Side::Us).subject(host);
            return Err(fault.detail("there is no place for known hosts: set HOME or XDG_CONFIG_HOME"));
        };
        let roots = self.roots.get_or_init(|| SystemRoots::load().ok()).clone();
        let judge = Arc::new(HostJudge::new(roots, host, PinJudge::new(pins.clone(), name.clone(), true)));
        let tls = ClientTls::new(judge.clone(), own).and_then(|config| TlsMachine::client(&config, host));
        let tls = tls.map_err(|fault| told(fault, host))?;
        Ok(Handshake { tls, remembered: Some(Remembered { judge, pins, name }), host: host.to_owned() })
    }
}

/// TLS that is under way, with what is to be remembered when it stands.
pub(super) struct Handshake {
    tls: TlsMachine,
    /// `None`: it was known by its key before.
    remembered: Option<Remembered>,
    host: String,
}

/// What is to be remembered of a host.
struct Remembered {
    judge: Arc<HostJudge>,
    pins: Pins,
    name: HostName,
}

impl std::fmt::Debug for Handshake {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Handshake({})", self.host)
    }
}

impl Handshake {
    /// Takes bytes of the server; true when the handshake is through.
    pub(super) fn advance(&mut self, bytes: &[u8]) -> Result<bool, Fault> {
        self.tls.feed(bytes);
        let progress = self.tls.drive().map_err(|fault| told(fault, &self.host))?;
        Ok(progress == Progress::Established)
    }

    /// Bytes for the server, alerts included.
    pub(super) fn transmit(&mut self) -> Option<Vec<u8>> {
        self.tls.transmit()
    }

    /// TLS as it stands, and why the host is believed; a new host's key is remembered, and said.
    pub(super) fn finish(self) -> Result<(TlsMachine, String), Fault> {
        let Some(Remembered { judge, pins, name }) = self.remembered else {
            return Ok((self.tls, "known by its key, which the service was told".to_owned()));
        };
        let why = match judge.pins.found() {
            Some((key, _)) => format!("known by its key {key}"),
            None => "vouched for by an authority that this system trusts".to_owned(),
        };
        if let Some((key, PinVerdict::First)) = judge.pins.found() {
            let verdict = pins.remember(&name, &key).map_err(|fault| told(fault, &self.host))?;
            if let PinVerdict::Changed { .. } = verdict {
                // Another program has met another key just now.
                let fault = TrustFault::new(FaultCode::PeerIdentity, "its key has changed since a moment ago");
                return Err(told(fault, &self.host));
            }
            let path = pins.path().display();
            tracing::warn!("first visit to {name}: its key is {key}, remembered in {path}");
        }
        Ok((self.tls, why))
    }
}

/// A fault of TLS with the host it is about.
pub(super) fn told(fault: TrustFault, host: &str) -> Fault {
    let fault = fault.into_fault(OP, Side::Peer);
    if fault.subject.is_empty() { fault.subject(host) } else { fault }
}
