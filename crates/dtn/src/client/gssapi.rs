//! A login over AUTH GSSAPI, with certificates or with Kerberos: its tokens, and the lines that are wrapped behind it.

use std::sync::Arc;

use whimbrel_engine::{Fault, FaultCode, Side};
use whimbrel_proto::client::secure::Exchange;
use whimbrel_proto::protect::{CommandSealer, ProtectError, ReplyOpener};
use whimbrel_proto::reply::{MAX_REPLY_LINE, Reply};
use whimbrel_trust::krb5::{self, Ticket};
use whimbrel_trust::wrap::Wrap;

use super::grid::Credential;
use super::gsi::GsiLogin;
use super::kerberos::KerberosLogin;
use super::reply;
use super::target::{SessionOptions, Target};

const OP: &str = "protect the control connection";

/// A login that is under way.
#[derive(Debug)]
pub(super) enum Login {
    /// With certificates.
    Gsi(Box<GsiLogin>),
    /// With Kerberos.
    Kerberos(Box<KerberosLogin>),
}

/// What we have shown.
#[derive(Debug)]
pub(super) enum Proof {
    /// A certificate or proxy, and whether anything of it was handed on.
    Certificate(Arc<Credential>, bool),
    /// A ticket.
    Ticket(Ticket),
}

impl Login {
    /// Reads what it takes and makes the first token: with a certificate, and with a ticket for who asks for that, or has no certificate and
    /// named none.
    pub(super) async fn begin(target: &Target, options: &SessionOptions) -> Result<(Self, Vec<u8>), Fault> {
        let gsi = match target.kerberos {
            true => None,
            false => Some(GsiLogin::begin(&options.trust.grid, target, options.delegate.most())),
        };
        let missing = match gsi {
            Some(Ok((login, token))) => return Ok((Self::Gsi(Box::new(login)), token)),
            // What the user named is shown or the login fails: nothing takes its place.
            Some(Err(fault)) if fault.code == FaultCode::CredentialMissing && target.credential.is_none() => {
                Some(fault)
            }
            Some(Err(fault)) => return Err(or_by_ticket(fault, target)),
            None => None,
        };
        match (KerberosLogin::begin(target).await, missing) {
            (Ok((login, token)), missing) => {
                let login = login.in_place_of(missing.map(|fault| fault.detail));
                Ok((Self::Kerberos(Box::new(login)), token))
            }
            (Err(fault), None) => Err(fault),
            // On a host without Kerberos nobody has to hear of it.
            (Err(fault), Some(missing)) if fault.code == FaultCode::NotSupported => Err(missing),
            (Err(fault), Some(missing)) => {
                let detail = format!("{}. Nor does Kerberos let you in: {}", missing.detail, fault.detail);
                Err(missing.detail(detail))
            }
        }
    }

    /// The proofs that it is about, for people.
    pub(super) fn word(&self) -> &'static str {
        match self {
            Self::Gsi(_) => "certificates",
            Self::Kerberos(_) => "Kerberos",
        }
    }

    /// What is being done.
    pub(super) fn op(&self) -> &'static str {
        match self {
            Self::Gsi(_) => super::gsi::OP,
            Self::Kerberos(_) => super::kerberos::OP,
        }
    }

    /// Takes a reply to a token; the next token, or `None` once the server is content.
    pub(super) fn step(&mut self, reply: &Reply, target: &Target) -> Result<Option<Vec<u8>>, Fault> {
        let exchange = Exchange::of(reply).map_err(|error| {
            let fault = Fault::new(FaultCode::PeerMisbehaved, self.op()).side(Side::Peer).subject(&target.host);
            fault.detail(format!("its token cannot be read: {error}"))
        })?;
        match (self, exchange) {
            (Self::Gsi(login), Exchange::GoesOn(token)) => login.step(&token).map(Some),
            (Self::Kerberos(login), Exchange::GoesOn(token)) => login.step(&token).map(Some),
            (Self::Gsi(_), Exchange::Over(_)) => Ok(None),
            (Self::Kerberos(login), Exchange::Over(token)) => login.last(token.as_deref()).map(|()| None),
            (Self::Gsi(login), Exchange::Refused) => Err(or_by_ticket(login.refused(&said(reply)), target)),
            (Self::Kerberos(login), Exchange::Refused) => Err(login.refused(&said(reply))),
        }
    }

    /// Hands on nothing.
    pub(super) fn hand_on_nothing(&mut self) {
        if let Self::Gsi(login) = self {
            login.hand_on_nothing();
        }
    }

    /// What tells the server why it is not believed.
    pub(super) fn alert(&mut self) -> Option<Vec<u8>> {
        match self {
            Self::Gsi(login) => login.alert(),
            Self::Kerberos(_) => None,
        }
    }

    /// What protects the lines from now on.
    pub(super) fn finish(self) -> Result<Wrapped, Fault> {
        match self {
            Self::Gsi(login) => login.finish(),
            Self::Kerberos(login) => login.finish(),
        }
    }
}

fn said(reply: &Reply) -> String {
    format!("{} {}", reply.code, reply::text(reply))
}

/// A certificate that leads nowhere does not keep anybody from using the ticket that he has; which it is to be, he decides.
fn or_by_ticket(fault: Fault, target: &Target) -> Fault {
    use FaultCode as F;
    let of_ours = matches!(fault.code, F::CredentialExpired | F::CredentialRejected);
    match krb5::usable().filter(|_| of_ours && target.credential.is_none()) {
        Some(ticket) => {
            let detail =
                format!("{}. There is a Kerberos ticket of {ticket}: --kerberos logs in with it", fault.detail);
            fault.detail(detail)
        }
        None => fault,
    }
}

/// A control connection whose lines are wrapped.
#[derive(Debug)]
pub(super) struct Wrapped {
    wrap: Wrap,
    lines: (CommandSealer, ReplyOpener),
    /// What we showed.
    pub(super) proof: Proof,
    /// Who the server is: a certificate's subject, or a principal.
    host: String,
    /// How lines are protected, and why the host is believed.
    pub(super) protection: String,
}

impl Wrapped {
    /// Lines behind a login that is through.
    pub(super) fn new(wrap: Wrap, proof: Proof, host: String, protection: String) -> Self {
        Self { wrap, lines: (CommandSealer::default(), ReplyOpener::new(MAX_REPLY_LINE)), proof, host, protection }
    }

    /// Opens what came from the server and appends the lines in it.
    pub(super) fn open(&mut self, wire: &[u8], lines: &mut Vec<u8>) -> Result<(), Fault> {
        let opened = self.lines.1.feed(&mut self.wrap, wire, lines);
        opened.map_err(|error| match error {
            ProtectError::Fault(fault) => fault.into_fault(OP, Side::Peer).subject(&self.host),
            other => {
                let fault = Fault::new(FaultCode::PeerMisbehaved, OP).side(Side::Peer).subject(&self.host);
                fault.detail(other.to_string())
            }
        })
    }

    /// Lines as they go to the server.
    pub(super) fn seal(&mut self, lines: &[u8]) -> Result<Vec<u8>, Fault> {
        let mut wire = Vec::new();
        let sealed = self.lines.0.feed(&mut self.wrap, lines, &mut wire);
        sealed.map_err(|fault| fault.into_fault(OP, Side::Us).subject(&self.host))?;
        Ok(wire)
    }

    /// The certificate that was shown, if one was.
    pub(super) fn credential(&self) -> Option<&Arc<Credential>> {
        match &self.proof {
            Proof::Certificate(credential, _) => Some(credential),
            Proof::Ticket(_) => None,
        }
    }

    /// Whether the server was handed on a proxy of the certificate.
    pub(super) fn handed_on(&self) -> bool {
        matches!(self.proof, Proof::Certificate(_, true))
    }

    /// The ticket that was shown, if one was.
    pub(super) fn ticket(&self) -> Option<&Ticket> {
        match &self.proof {
            Proof::Certificate(..) => None,
            Proof::Ticket(ticket) => Some(ticket),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;
    use crate::client::target::CredentialFiles;

    #[tokio::test]
    async fn a_credential_that_was_named_and_is_not_there_is_the_fault() {
        let folder = tempfile::tempdir().unwrap();
        let (there, missing) = (folder.path().join("cert.pem"), folder.path().join("missing.pem"));
        std::fs::write(&there, "x").unwrap();
        let named = |certificate: &PathBuf, key: &PathBuf| {
            let files = CredentialFiles { certificate: certificate.clone(), key: key.clone() };
            Target { credential: Some(Box::new(files)), ..Target::anonymous("h", 1) }
        };
        for target in [named(&missing, &missing), named(&there, &missing)] {
            let fault = Login::begin(&target, &SessionOptions::default()).await.map(|_| ()).unwrap_err();
            assert_eq!((fault.code, fault.side), (FaultCode::CredentialMissing, Some(Side::Us)), "{fault}");
            assert!(fault.to_string().contains("missing.pem"), "{fault}");
        }
    }
}
