//! How control connections are protected, and whom a client believes.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use openssl::hash::MessageDigest;
use whimbrel_engine::{Fault, FaultCode, Side};
use whimbrel_trust::pins::{Fingerprint, HostName, KeyJudge, PinJudge, PinVerdict, Pins};
use whimbrel_trust::roots::{HostJudge, SystemRoots};
use whimbrel_trust::tls::{ClientTls, Progress, Sessions, TlsMachine};
use whimbrel_trust::{OwnChain, PeerJudge, TrustFault};

use super::grid::Grid;
use super::shown::Shown;
use super::target::{Address, Target};

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
    /// What its logins over TLS have in common.
    earlier: Arc<Mutex<Earlier>>,
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
            earlier: Arc::default(),
            grid: Grid::default(),
            shown: Shown::default(),
        }
    }
}

/// The SHA-256 of the certificate that a login shows if it is asked to.
type OwnPrint = Option<Vec<u8>>;

/// A server, what it is shown, and the keys that it has to have; without any, authorities and known hosts decide.
type Whom = (Address, OwnPrint, Vec<Fingerprint>);

/// TLS of earlier logins.
#[derive(Default)]
struct Earlier {
    contexts: HashMap<OwnPrint, ClientTls>,
    believed: HashMap<Whom, Arc<Believed>>,
}

/// A server that proved who it is, the sessions that continue that proof, and why it is believed.
struct Believed {
    key: Fingerprint,
    sessions: Arc<Sessions>,
    why: String,
}

impl Earlier {
    fn context(&mut self, own: Option<&OwnChain>) -> Result<(ClientTls, OwnPrint), TrustFault> {
        let digest = |own: &OwnChain| own.certificate.digest(MessageDigest::sha256()).map(|digest| digest.to_vec());
        let internal = |error: openssl::error::ErrorStack| TrustFault::new(FaultCode::Internal, error.to_string());
        let print = own.map(digest).transpose().map_err(internal)?;
        if let Some(tls) = self.contexts.get(&print) {
            return Ok((tls.clone(), print));
        }
        let tls = ClientTls::of_many(own)?;
        self.contexts.insert(print.clone(), tls.clone());
        Ok((tls, print))
    }
}

/// `whimbrel/known_hosts` in the directory for settings.
pub fn known_hosts() -> Option<PathBuf> {
    Some(settings()?.join("known_hosts"))
}

/// `whimbrel` in the directory for settings: `~/.config` (XDG_CONFIG_HOME wins); `None`: nobody has said where home is.
pub fn settings() -> Option<PathBuf> {
    let set = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let base = set("XDG_CONFIG_HOME").filter(|path| path.is_absolute());
    let base = base.or_else(|| set("HOME").map(|home| home.join(".config")))?;
    Some(base.join("whimbrel"))
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
        let host = target.host.as_str();
        let own = self.shown.certificate(&self.grid, target)?;
        let own = own.as_deref().map(|own| &own.own);
        let remembered = if target.keys.is_empty() { Some(self.remembered(target)?) } else { None };
        let judge: Arc<dyn PeerJudge> = match &remembered {
            Some(remembered) => remembered.judge.clone(),
            None => Arc::new(KeyJudge::new(target.keys.clone(), host)),
        };
        let mut earlier = self.earlier.lock().unwrap_or_else(PoisonError::into_inner);
        let (context, print) = earlier.context(own).map_err(|fault| told(fault, host))?;
        let whom = (target.address(), print, target.keys.clone());
        let believed = earlier.believed.get(&whom).cloned();
        drop(earlier);
        let session = believed.as_ref().and_then(|believed| believed.sessions.take());
        let tls = context.connection_to(host, judge, session.as_ref());
        let tls = tls.and_then(|tls| TlsMachine::over(tls, false)).map_err(|fault| told(fault, host))?;
        let believed = believed.filter(|_| session.is_some());
        Ok(Handshake { tls, remembered, host: host.to_owned(), whom, believed, earlier: self.earlier.clone() })
    }

    /// Whether a host has had TLS before. What cannot be read may say so.
    pub(super) fn has_met(&self, target: &Target) -> bool {
        let name = HostName::new(&target.host, target.port);
        name.zip(self.pins.as_ref()).is_some_and(|(name, pins)| pins.knows(&name).unwrap_or(true))
    }

    /// What is known of a host, and will be.
    fn remembered(&self, target: &Target) -> Result<Remembered, Fault> {
        let name = HostName::new(&target.host, target.port);
        let (Some(name), Some(pins)) = (name, self.pins.clone()) else {
            let fault = Fault::new(FaultCode::CredentialMissing, OP).side(Side::Us).subject(&target.host);
            return Err(fault.detail("there is no place for known hosts: set HOME or XDG_CONFIG_HOME"));
        };
        let pinned = PinJudge::new(pins.clone(), name.clone(), true);
        let judge = Arc::new(HostJudge::new(SystemRoots::shared, &target.host, pinned));
        Ok(Remembered { judge, pins, name })
    }
}

/// TLS that is under way, with what is to be remembered when it stands.
pub(super) struct Handshake {
    tls: TlsMachine,
    /// `None`: it was known by its key before.
    remembered: Option<Remembered>,
    host: String,
    whom: Whom,
    /// Who is believed if the session that is offered goes on.
    believed: Option<Arc<Believed>>,
    earlier: Arc<Mutex<Earlier>>,
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
        let progress = self.tls.drive().map_err(|fault| {
            // Should a server stumble over its own tickets, the next login does without.
            self.believed.iter().for_each(|believed| believed.sessions.clear());
            told(fault, &self.host)
        })?;
        Ok(progress == Progress::Established)
    }

    /// Bytes for the server, alerts included.
    pub(super) fn transmit(&mut self) -> Option<Vec<u8>> {
        self.tls.transmit()
    }

    /// TLS as it stands, and why the host is believed; a new host's key is remembered, and said.
    ///
    /// Only who has proven who it is gives sessions that are continued; who continues one is who gave it.
    pub(super) fn finish(self) -> Result<(TlsMachine, String), Fault> {
        let offered = self.believed.is_some();
        let believed = match self.believed.clone().filter(|_| self.tls.resumed()) {
            Some(believed) => believed,
            None => self.newly_believed()?,
        };
        let resumed = self.tls.resumed();
        tracing::debug!(host = self.host, offered, resumed, left = believed.sessions.count(), "TLS stands");
        self.tls.keep_sessions(believed.sessions.clone());
        Ok((self.tls, believed.why.clone()))
    }

    /// The host after a full handshake. Logins that began at the same time put their sessions together.
    fn newly_believed(&self) -> Result<Arc<Believed>, Fault> {
        let Some(peer) = self.tls.peer() else {
            let fault = TrustFault::new(FaultCode::PeerIdentity, "it continues a session that was not offered");
            return Err(told(fault, &self.host));
        };
        let key = Fingerprint::of(&peer.leaf)
            .map_err(|error| told(TrustFault::new(FaultCode::CredentialRejected, error.to_string()), &self.host))?;
        let why = self.judged()?;
        let mut earlier = self.earlier.lock().unwrap_or_else(PoisonError::into_inner);
        let known = earlier.believed.get(&self.whom).filter(|known| known.key == key);
        let believed = match known {
            Some(known) => known.clone(),
            None => Arc::new(Believed { key, sessions: Arc::default(), why }),
        };
        earlier.believed.insert(self.whom.clone(), believed.clone());
        Ok(believed)
    }

    /// Why the host is believed after a full handshake.
    fn judged(&self) -> Result<String, Fault> {
        let Some(Remembered { judge, pins, name }) = &self.remembered else {
            return Ok("known by its key, which the service was told".to_owned());
        };
        let Some((key, verdict)) = judge.pins.found() else {
            // Its key may be another one tomorrow, but TLS it will have. It is believed whether that can be written or not.
            if let Err(fault) = pins.remember_vouched(name) {
                tracing::warn!(%fault, "it cannot be remembered that {name} has TLS");
            }
            return Ok("vouched for by an authority that this system trusts".to_owned());
        };
        if verdict == PinVerdict::First {
            let verdict = pins.remember(name, &key).map_err(|fault| told(fault, &self.host))?;
            if let PinVerdict::Changed { .. } | PinVerdict::Vouched { .. } = verdict {
                // Another program has met another key just now.
                let fault = TrustFault::new(FaultCode::PeerIdentity, "its key has changed since a moment ago");
                return Err(told(fault, &self.host));
            }
            let path = pins.path().display();
            tracing::warn!("first visit to {name}: its key is {key}, remembered in {path}");
        }
        Ok(format!("known by its key {key}"))
    }
}

/// A fault of TLS with the host it is about.
pub(super) fn told(fault: TrustFault, host: &str) -> Fault {
    let fault = fault.into_fault(OP, Side::Peer);
    if fault.subject.is_empty() { fault.subject(host) } else { fault }
}
