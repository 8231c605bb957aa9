//! A login with certificates, from the client's side.

use std::sync::Arc;
use std::time::Instant;

use whimbrel_engine::{Fault, FaultCode, Side};
use whimbrel_trust::TrustFault;
use whimbrel_trust::clock::now;
use whimbrel_trust::fault::to_the_minute;
use whimbrel_trust::gsi::host::Names;
use whimbrel_trust::gsi::initiator::Initiated;
use whimbrel_trust::gsi::{Delegate, Expected, GsiInitiator, GsiJudge, Trusted};
use whimbrel_trust::tls::ClientTls;
use whimbrel_trust::wrap::Wrap;

use super::grid::{Credential, Grid};
use super::gssapi::{Proof, Wrapped};
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
    pub(super) fn begin(grid: &Grid, target: &Target, delegate: Delegate) -> Result<(Self, Vec<u8>), Fault> {
        let credential = grid.credential(target.credential.as_deref())?;
        let store = grid.authorities()?;
        let expected = match &target.subject {
            Some(subject) => Expected::Subject(subject.clone()),
            None => Expected::Host(target.host.clone(), Names::Common),
        };
        let authorities = store.current(Instant::now()).place();
        let judge = GsiJudge::new(Trusted::Directory(store), expected);
        let begun = ClientTls::new(Arc::new(judge), Some(&credential.own)).and_then(|config| {
            let mut initiator = GsiInitiator::new(&config, &target.host, credential.own.clone(), delegate)?;
            let token = initiator.start()?;
            Ok((initiator, token))
        });
        let (initiator, token) = begun.map_err(|fault| fault.into_fault(OP, Side::Us).subject(&target.host))?;
        Ok((Self { initiator, credential, host: target.host.clone(), authorities }, token))
    }

    /// Takes a token of the server; the next one.
    pub(super) fn step(&mut self, token: &[u8]) -> Result<Vec<u8>, Fault> {
        match self.initiator.step(token, now(), HANDED_ON) {
            Ok(Initiated::Continue(token) | Initiated::Last(token)) => Ok(token),
            Err(fault) => Err(self.not_believed(fault)),
        }
    }

    /// Hands on nothing.
    pub(super) fn hand_on_nothing(&mut self) {
        self.initiator.hand_on_nothing();
    }

    /// What tells the server why it is not believed.
    pub(super) fn alert(&mut self) -> Option<Vec<u8>> {
        self.initiator.alert()
    }

    /// What protects the lines from now on.
    pub(super) fn finish(self) -> Result<Wrapped, Fault> {
        let handed_on = self.initiator.hands_on();
        let tls = self.initiator.into_tls();
        let Some(host) = tls.peer() else {
            let fault = Fault::new(FaultCode::PeerMisbehaved, OP).side(Side::Peer).subject(&self.host);
            return Err(fault.detail("it was content before the exchange of tokens was over"));
        };
        let protection = format!(
            "GSI, {}; the host is {}, good until {}, vouched for by an authority in {}",
            tls.suite(),
            host.subject,
            to_the_minute(host.until),
            self.authorities
        );
        Ok(Wrapped::new(
            Wrap::Tls(Box::new(tls)),
            Proof::Certificate(self.credential, handed_on),
            host.subject,
            protection,
        ))
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
    pub(super) fn refused(&self, said: &str) -> Fault {
        let code = match said.to_ascii_lowercase() {
            text if text.contains("expired") => FaultCode::CredentialExpired,
            _ => FaultCode::CredentialRejected,
        };
        self.credential.refused(code, format!("{} refused it: {said}", self.host)).into_fault(OP, Side::Us)
    }
}
