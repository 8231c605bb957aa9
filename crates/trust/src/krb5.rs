//! Kerberos logins: tokens in, tokens out, and in the end the client's principal; and lines wrapped behind them.
//!
//! The counterpart of [`crate::gsi`] for the same commands (AUTH GSSAPI). The library of MIT Kerberos does the work, if it is installed
//! ([`whimbrel_sys::gssapi`]).

use std::sync::Arc;

use whimbrel_engine::fault::FaultCode;
use whimbrel_proto::protect::Seal;
use whimbrel_sys::gssapi::{Context, Credential, GssError, Gssapi, Progress};

use crate::fault::TrustFault;

/// The keys of a server, from its keytab.
#[derive(Clone, Debug)]
pub struct ServerKeys {
    api: Gssapi,
    credential: Arc<Credential>,
}

/// The server's side of one login.
#[derive(Debug)]
pub struct KerberosAcceptor {
    keys: ServerKeys,
    context: Context,
    over: bool,
}

/// What a client's token led to.
#[derive(Debug, PartialEq, Eq)]
pub enum Accepted {
    /// Send this and wait for the next token.
    Continue(Vec<u8>),
    /// The client is known.
    Established {
        /// Its principal, `ada@GRID.ORG`.
        principal: String,
        /// The last token, for the client; `None`: it needs none.
        token: Option<Vec<u8>>,
    },
}

/// The client's side of one login, with the tickets of this account.
#[derive(Debug)]
pub struct KerberosInitiator {
    context: Context,
    service: String,
    over: bool,
}

/// What a server's token led to.
#[derive(Debug, PartialEq, Eq)]
pub enum Initiated {
    /// Send this and wait for the next token.
    Continue(Vec<u8>),
    /// Send this, if there is anything; the server has proven who it is.
    Last(Option<Vec<u8>>),
}

/// Wraps the lines behind a login.
#[derive(Debug)]
pub struct KerberosSeal(Context);

/// Tells Kerberos' first token from that of GSI: it is framed as RFC 2743 §3.1 says, while GSI's is a TLS record.
pub fn is_first_token(token: &[u8]) -> bool {
    token.first() == Some(&0x60)
}

impl ServerKeys {
    /// Reads a keytab, `FILE:/etc/krb5.keytab`, whose services clients may ask for.
    ///
    /// # Errors
    /// `NotSupported` without the library, `CredentialMissing` without usable keys.
    pub fn read(keytab: &str) -> Result<Self, TrustFault> {
        let api = library()?;
        let credential = api
            .acceptor(keytab)
            .map_err(|error| TrustFault::new(FaultCode::CredentialMissing, error.text).about(keytab.to_owned()))?;
        Ok(Self { api, credential: Arc::new(credential) })
    }
}

impl KerberosAcceptor {
    /// A login that begins.
    pub fn new(keys: &ServerKeys) -> Self {
        Self { keys: keys.clone(), context: keys.api.context(), over: false }
    }

    /// Takes a token of the client.
    pub fn step(&mut self, token: &[u8]) -> Result<Accepted, TrustFault> {
        if self.over {
            return Err(out_of_turn());
        }
        let Progress { token, done } = self.context.accept(&self.keys.credential, token).map_err(|e| refused(&e))?;
        self.over = done.is_some();
        Ok(match done {
            Some(principal) => {
                let token = Some(token).filter(|token| !token.is_empty());
                Accepted::Established { principal: principal.ok_or_else(out_of_turn)?, token }
            }
            None => Accepted::Continue(token),
        })
    }

    /// What wraps the lines that follow.
    pub fn into_seal(self) -> KerberosSeal {
        KerberosSeal(self.context)
    }
}

impl KerberosInitiator {
    /// A login at a host: its service is `host`, as with ssh and with the grid's own hosts.
    ///
    /// # Errors
    /// `NotSupported` without the library.
    pub fn new(host: &str) -> Result<Self, TrustFault> {
        Ok(Self { context: library()?.context(), service: format!("host@{host}"), over: false })
    }

    /// The first token.
    ///
    /// # Errors
    /// `CredentialMissing` or `CredentialExpired` without a ticket that is good.
    pub fn start(&mut self) -> Result<Vec<u8>, TrustFault> {
        let progress = self.advance(None)?;
        if progress.done.is_some() { Err(out_of_turn()) } else { Ok(progress.token) }
    }

    /// Takes a token of the server.
    pub fn step(&mut self, token: &[u8]) -> Result<Initiated, TrustFault> {
        if self.over {
            return Err(out_of_turn());
        }
        let Progress { token, done } = self.advance(Some(token))?;
        self.over = done.is_some();
        let some = Some(token).filter(|token| !token.is_empty());
        match self.over {
            true => Ok(Initiated::Last(some)),
            false => some.map(Initiated::Continue).ok_or_else(out_of_turn),
        }
    }

    fn advance(&mut self, token: Option<&[u8]>) -> Result<Progress, TrustFault> {
        let progress = self.context.initiate(&self.service, token);
        progress.map_err(|error| refused(&error).about(self.service.clone()))
    }

    /// What wraps the lines that follow.
    pub fn into_seal(self) -> KerberosSeal {
        KerberosSeal(self.context)
    }
}

impl Seal for KerberosSeal {
    type Fault = TrustFault;

    fn seal(&mut self, plain: &[u8]) -> Result<Vec<u8>, TrustFault> {
        self.0.wrap(plain).map_err(|error| broken(&error.text))
    }

    fn open(&mut self, token: &[u8], into: &mut Vec<u8>) -> Result<(), TrustFault> {
        let (plain, encrypted) = self.0.unwrap(token).map_err(|error| broken(&error.text))?;
        if !encrypted {
            return Err(broken("a protected line is not encrypted"));
        }
        if plain.is_empty() {
            return Err(broken("a protected line has no message"));
        }
        into.extend_from_slice(&plain);
        Ok(())
    }

    fn hides(&self) -> bool {
        true
    }
}

fn library() -> Result<Gssapi, TrustFault> {
    Gssapi::load().map_err(|error| {
        let detail = format!("there is no Kerberos here: {error} (Debian: libgssapi-krb5-2, Red Hat: krb5-libs)");
        TrustFault::new(FaultCode::NotSupported, detail)
    })
}

/// A login that failed, by the routine error of RFC 2744 §3.9.1 and the errors of Kerberos (RFC 4120 §7.5.9) in it.
fn refused(error: &GssError) -> TrustFault {
    /// KRB_AP_ERR_TKT_EXPIRED, and KDC_ERR_NAME_EXP, counted from the library's base.
    const BASE: u32 = (-1_765_328_384_i32) as u32;
    const EXPIRED: [u32; 2] = [BASE + 32, BASE + 1];
    /// GSS_S_NO_CRED, GSS_S_CREDENTIALS_EXPIRED, GSS_S_CONTEXT_EXPIRED.
    const NO_CRED: u32 = 7;
    const OUTLIVED: [u32; 2] = [11, 12];
    let routine = error.major >> 16 & 0xff;
    let code = match routine {
        _ if EXPIRED.contains(&error.minor) || OUTLIVED.contains(&routine) => FaultCode::CredentialExpired,
        NO_CRED => FaultCode::CredentialMissing,
        _ => FaultCode::CredentialRejected,
    };
    let cure = if code == FaultCode::CredentialRejected { "" } else { " (`kinit` gets a ticket, `klist` shows them)" };
    TrustFault::new(code, format!("Kerberos: {}{cure}", error.text))
}

fn broken(why: &str) -> TrustFault {
    TrustFault::new(FaultCode::EncryptionFailed, why)
}

fn out_of_turn() -> TrustFault {
    broken("the other side does not keep to the exchange of tokens")
}
