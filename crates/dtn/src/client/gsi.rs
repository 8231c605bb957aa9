//! A login with certificates, from the client's side: AUTH GSSAPI, its tokens, and the lines that are wrapped behind them.

use std::sync::Arc;
use std::time::Instant;

use whimbrel_engine::{Fault, FaultCode, Side};
use whimbrel_proto::client::secure::Exchange;
use whimbrel_proto::protect::{CommandSealer, ProtectError, ReplyOpener};
use whimbrel_proto::reply::{MAX_REPLY_LINE, Reply};
use whimbrel_trust::clock::now;
use whimbrel_trust::fault::to_the_minute;
use whimbrel_trust::gsi::host::Names;
use whimbrel_trust::gsi::initiator::Initiated;
use whimbrel_trust::gsi::{Delegate, Expected, GsiInitiator, GsiJudge, Trusted};
use whimbrel_trust::tls::{ClientTls, TlsMachine};
use whimbrel_trust::{Peer, TrustFault};

use super::grid::{Credential, Grid};
use super::reply;
use super::target::Target;

pub(super) const OP: &str = "log in with a certificate";

/// Longest life of what is handed on, seconds; a proxy does not outlive what signs it.
const HANDED_ON: i64 = 7 * 24 * 3600;

/// A login that is under way.
pub(super) struct GsiLogin {
    initiator: GsiInitiator,
    credential: Arc<Credential>,
    host: String,
    /// Where trusted authorities are, for people.
    authorities: String,
}

impl std::fmt::Debug for GsiLogin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "GsiLogin({:?} at {})", self.credential, self.host)
    }
}

impl GsiLogin {
    /// Reads what it takes and makes the first token.
    pub(super) fn begin(grid: &Grid, target: &Target) -> Result<(Self, Vec<u8>), Fault> {
        let credential = grid.credential(target.credential.as_deref())?;
        let store = grid.authorities()?;
        let expected = match &target.subject {
            Some(subject) => Expected::Subject(subject.clone()),
            None => Expected::Host(target.host.clone(), Names::Common),
        };
        let authorities = store.current(Instant::now()).place();
        let judge = GsiJudge::new(Trusted::Directory(store), expected);
        let begun = ClientTls::new(Arc::new(judge), Some(&credential.own)).and_then(|config| {
            // What Globus' client hands on if it is not told otherwise.
            let mut initiator = GsiInitiator::new(&config, &target.host, credential.own.clone(), Delegate::Limited)?;
            let token = initiator.start()?;
            Ok((initiator, token))
        });
        let (initiator, token) = begun.map_err(|fault| fault.into_fault(OP, Side::Us).subject(&target.host))?;
        Ok((Self { initiator, credential, host: target.host.clone(), authorities }, token))
    }

    /// Takes a reply to a token; the next token, or `None` once the server is content.
    pub(super) fn step(&mut self, reply: &Reply) -> Result<Option<Vec<u8>>, Fault> {
        match Exchange::of(reply) {
            Ok(Exchange::GoesOn(token)) => match self.initiator.step(&token, now(), HANDED_ON) {
                Ok(Initiated::Continue(token) | Initiated::Last(token)) => Ok(Some(token)),
                Err(fault) => Err(self.not_believed(fault)),
            },
            Ok(Exchange::Over(_)) => Ok(None),
            Ok(Exchange::Refused) => Err(self.refused(reply)),
            Err(error) => {
                let fault = Fault::new(FaultCode::PeerMisbehaved, OP).side(Side::Peer).subject(&self.host);
                Err(fault.detail(format!("its token cannot be read: {error}")))
            }
        }
    }

    /// What tells the server why it is not believed.
    pub(super) fn alert(&mut self) -> Option<Vec<u8>> {
        self.initiator.alert()
    }

    /// What protects the lines from now on.
    pub(super) fn finish(self) -> Result<Wrapped, Fault> {
        let tls = self.initiator.into_tls();
        let Some(host) = tls.peer() else {
            let fault = Fault::new(FaultCode::PeerMisbehaved, OP).side(Side::Peer).subject(&self.host);
            return Err(fault.detail("it was content before the exchange of tokens was over"));
        };
        let lines = (CommandSealer::default(), ReplyOpener::new(MAX_REPLY_LINE));
        Ok(Wrapped { tls, lines, credential: self.credential, host, authorities: self.authorities })
    }

    /// We do not believe the server, or it ended the handshake.
    fn not_believed(&self, fault: TrustFault) -> Fault {
        use FaultCode as F;
        let about = fault.subject.clone();
        match (fault.code, about.is_empty()) {
            // An alert names nobody: it is about what we showed.
            (F::CredentialMissing | F::CredentialRejected | F::CredentialExpired | F::NotAuthorized, true) => {
                let detail = format!("{}: {}", self.host, fault.detail);
                self.credential.refused(fault.code, detail).into_fault(OP, Side::Us)
            }
            (F::PeerIdentity, false) => {
                let fault = fault.into_fault(OP, Side::Peer);
                let detail = format!("{}; if it is right all the same, say --subject '{about}'", fault.detail);
                fault.detail(detail)
            }
            (_, true) => fault.into_fault(OP, Side::Peer).subject(&self.host),
            (_, false) => fault.into_fault(OP, Side::Peer),
        }
    }

    /// The server does not take our certificate.
    fn refused(&self, reply: &Reply) -> Fault {
        let said = reply::text(reply);
        let code = match said.to_ascii_lowercase() {
            text if text.contains("expired") => FaultCode::CredentialExpired,
            _ => FaultCode::CredentialRejected,
        };
        let detail = format!("{} refused it: {} {said}", self.host, reply.code);
        self.credential.refused(code, detail).into_fault(OP, Side::Us)
    }
}

/// A control connection whose lines are wrapped.
pub(super) struct Wrapped {
    tls: TlsMachine,
    lines: (CommandSealer, ReplyOpener),
    /// What we showed.
    pub(super) credential: Arc<Credential>,
    /// Who the server is.
    pub(super) host: Peer,
    authorities: String,
}

impl std::fmt::Debug for Wrapped {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Wrapped({:?})", self.host)
    }
}

impl Wrapped {
    /// Opens what came from the server and appends the lines in it.
    pub(super) fn open(&mut self, wire: &[u8], lines: &mut Vec<u8>) -> Result<(), Fault> {
        let opened = self.lines.1.feed(&mut self.tls, wire, lines);
        opened.map_err(|error| match error {
            ProtectError::Fault(fault) => fault.into_fault(OP, Side::Peer).subject(&self.host.subject),
            other => {
                let fault = Fault::new(FaultCode::PeerMisbehaved, OP).side(Side::Peer).subject(&self.host.subject);
                fault.detail(other.to_string())
            }
        })
    }

    /// Lines as they go to the server.
    pub(super) fn seal(&mut self, lines: &[u8]) -> Result<Vec<u8>, Fault> {
        let mut wire = Vec::new();
        let sealed = self.lines.0.feed(&mut self.tls, lines, &mut wire);
        sealed.map_err(|fault| fault.into_fault(OP, Side::Us).subject(&self.host.subject))?;
        Ok(wire)
    }

    /// How lines are protected, whom we are known as, and why the host is believed.
    pub(super) fn protection(&self) -> String {
        format!(
            "GSI, {}; the host is {}, good until {}, vouched for by an authority in {}",
            self.tls.suite(),
            self.host.subject,
            to_the_minute(self.host.until),
            self.authorities
        )
    }
}
