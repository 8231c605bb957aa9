//! A login with a Kerberos ticket, from the client's side.

use whimbrel_engine::{Fault, FaultCode, Side};
use whimbrel_trust::TrustFault;
use whimbrel_trust::fault::to_the_minute;
use whimbrel_trust::krb5::{Initiated, KerberosInitiator};
use whimbrel_trust::wrap::Wrap;

use super::gssapi::{Proof, Wrapped};
use super::target::Target;

pub(super) const OP: &str = "log in with Kerberos";

/// A login that is under way.
#[derive(Debug)]
pub(super) struct KerberosLogin {
    initiator: KerberosInitiator,
    host: String,
    /// Nothing more is to be said to the server, nor heard.
    through: bool,
    /// Why no certificate is shown, where none was found.
    certificate: Option<String>,
}

impl KerberosLogin {
    /// Gets a ticket for the host and makes the first token.
    pub(super) async fn begin(target: &Target) -> Result<(Self, Vec<u8>), Fault> {
        let host = target.host.clone();
        // The library waits for the KDC.
        let begun = tokio::task::spawn_blocking(move || {
            let mut initiator = KerberosInitiator::new(&host)?;
            let token = initiator.start()?;
            Ok((initiator, token))
        });
        let begun = begun.await.unwrap_or_else(|error| Err(TrustFault::new(FaultCode::Internal, error.to_string())));
        let (initiator, token) = begun.map_err(|fault| {
            let side = match fault.code {
                FaultCode::PeerIdentity => Side::Peer,
                FaultCode::HostUnreachable => Side::Network,
                _ => Side::Us,
            };
            fault.into_fault(OP, side)
        })?;
        Ok((Self { initiator, host: target.host.clone(), through: false, certificate: None }, token))
    }

    /// Remembers why no certificate is shown.
    pub(super) fn in_place_of(self, certificate: Option<String>) -> Self {
        Self { certificate, ..self }
    }

    /// Takes a token of the server that waits for another one.
    pub(super) fn step(&mut self, token: &[u8]) -> Result<Vec<u8>, Fault> {
        match self.advance(token)? {
            Initiated::Continue(token) | Initiated::Last(Some(token)) => Ok(token),
            Initiated::Last(None) => Err(self.misbehaved("it waits for a token when the exchange is over")),
        }
    }

    /// Takes what came with the server's consent; a server that has not proven who it is has no business to consent.
    pub(super) fn last(&mut self, token: Option<&[u8]>) -> Result<(), Fault> {
        if let Some(token) = token
            && let Initiated::Continue(_) | Initiated::Last(Some(_)) = self.advance(token)?
        {
            return Err(self.misbehaved("it was content before the exchange of tokens was over"));
        }
        match self.through {
            true => Ok(()),
            false => Err(self.misbehaved("it was content before it had proven who it is")),
        }
    }

    fn advance(&mut self, token: &[u8]) -> Result<Initiated, Fault> {
        let initiated = self.initiator.step(token).map_err(|fault| fault.into_fault(OP, Side::Peer))?;
        self.through = matches!(initiated, Initiated::Last(_));
        Ok(initiated)
    }

    fn misbehaved(&self, why: &str) -> Fault {
        Fault::new(FaultCode::PeerMisbehaved, OP).side(Side::Peer).subject(&self.host).detail(why)
    }

    /// What protects the lines from now on.
    pub(super) fn finish(self) -> Result<Wrapped, Fault> {
        let ticket = self.initiator.ticket().map_err(|fault| fault.into_fault(OP, Side::Us))?;
        let seal = self.initiator.into_seal().map_err(|fault| fault.into_fault(OP, Side::Peer).subject(&self.host))?;
        let service = ticket.service.clone();
        let until = to_the_minute(ticket.until);
        let protection = format!("Kerberos; the host is {service}, vouched for by its realm until {until}");
        Ok(Wrapped::new(Wrap::Kerberos(seal), Proof::Ticket(ticket), service, protection))
    }

    /// The server does not take our ticket.
    pub(super) fn refused(&self, said: &str) -> Fault {
        let code = match said.to_ascii_lowercase() {
            text if text.contains("no logins with kerberos") => FaultCode::PeerIncompatible,
            text if text.contains("expired") => FaultCode::CredentialExpired,
            _ => FaultCode::CredentialRejected,
        };
        let side = if code == FaultCode::PeerIncompatible { Side::Peer } else { Side::Us };
        let certificate = self.certificate.as_ref().map(|why| format!(". No certificate was shown: {why}"));
        let detail = format!("the server does not take the Kerberos ticket: {said}{}", certificate.unwrap_or_default());
        Fault::new(code, OP).side(side).subject(&self.host).detail(detail)
    }
}
