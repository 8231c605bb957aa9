//! What wraps the lines of a control connection behind AUTH GSSAPI (RFC 2228 §3): the context of one mechanism.

use whimbrel_proto::protect::Seal;

use crate::fault::TrustFault;
use crate::krb5::KerberosSeal;
use crate::tls::TlsMachine;

/// The context of one mechanism.
#[derive(Debug)]
pub enum Wrap {
    /// GSI.
    Tls(Box<TlsMachine>),
    /// Kerberos.
    Kerberos(KerberosSeal),
}

impl Seal for Wrap {
    type Fault = TrustFault;

    fn seal(&mut self, plain: &[u8]) -> Result<Vec<u8>, TrustFault> {
        match self {
            Self::Tls(tls) => tls.seal(plain),
            Self::Kerberos(seal) => seal.seal(plain),
        }
    }

    fn open(&mut self, token: &[u8], into: &mut Vec<u8>) -> Result<(), TrustFault> {
        match self {
            Self::Tls(tls) => tls.open(token, into),
            Self::Kerberos(seal) => seal.open(token, into),
        }
    }

    fn hides(&self) -> bool {
        match self {
            Self::Tls(tls) => tls.hides(),
            Self::Kerberos(seal) => seal.hides(),
        }
    }
}
