//! Kerberos logins: tokens in, tokens out, and in the end the client's principal; and lines wrapped behind them.
//!
//! The counterpart of [`crate::gsi`] for the same commands (AUTH GSSAPI). The library of MIT Kerberos does the work, if it is installed
//! ([`whimbrel_sys::gssapi`]).

use std::fmt;
use std::sync::Arc;

use whimbrel_engine::fault::FaultCode;
use whimbrel_proto::protect::Seal;
use whimbrel_proto::timeval::Timestamp;
use whimbrel_sys::gssapi::{Context, Credential, Ends, GssError, Gssapi, Progress};
use whimbrel_sys::tickets::{Tickets, tickets};

use crate::clock::now;
use crate::fault::{TrustFault, to_the_minute};

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
        /// The end of its ticket, and as much later as the library lets clocks differ (`clockskew`): until then it takes the ticket.
        until: Timestamp,
        /// The last token, for the client; `None`: it needs none.
        token: Option<Vec<u8>>,
    },
}

/// The client's side of one login, with the tickets of this account.
#[derive(Debug)]
pub struct KerberosInitiator {
    api: Gssapi,
    context: Context,
    host: String,
    /// The service at that host that is asked for.
    service: String,
    over: bool,
}

/// Services whose keys a host's FTP server may have, the first one first: that of the host, as GridFTP servers and ours have it, and that of
/// FTP's own (practice of clients of RFC 2228).
const SERVICES: [&str; 2] = ["host", "ftp"];

/// A ticket that a login was made with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ticket {
    /// Whose it is, `ada@GRID.ORG`.
    pub principal: String,
    /// For which server, `host/dtn.example.org@GRID.ORG`.
    pub service: String,
    /// Where it lies, `FILE:/tmp/krb5cc_1000`; empty where the library does not tell.
    pub place: String,
    /// The end of its life.
    pub until: Timestamp,
}

/// Whose, where, until when.
impl fmt::Display for Ticket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { principal, place, until, .. } = self;
        let place = if place.is_empty() { String::new() } else { format!(" in {place}") };
        write!(f, "{principal}, Kerberos ticket{place}, good until {}", to_the_minute(*until))
    }
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
        let Some(principal) = done else { return Ok(Accepted::Continue(token)) };
        let until = end_of(&self.context).map_err(|error| refused(&error))?.1;
        let token = Some(token).filter(|token| !token.is_empty());
        Ok(Accepted::Established { principal: principal.ok_or_else(out_of_turn)?, until, token })
    }

    /// What wraps the lines that follow.
    pub fn into_seal(self) -> KerberosSeal {
        KerberosSeal(self.context)
    }
}

impl KerberosInitiator {
    /// A login at a host.
    ///
    /// # Errors
    /// `NotSupported` without the library.
    pub fn new(host: &str) -> Result<Self, TrustFault> {
        let api = library()?;
        Ok(Self { api, context: api.context(), host: host.to_owned(), service: String::new(), over: false })
    }

    /// The first token. Blocks while the realm's KDC is asked for a ticket for the host, unless there is one already.
    ///
    /// # Errors
    /// `CredentialMissing` or `CredentialExpired` without a ticket that is good, `PeerIdentity` for a host that the realm does not know,
    /// `HostUnreachable` where no KDC answers.
    pub fn start(&mut self) -> Result<Vec<u8>, TrustFault> {
        for service in SERVICES {
            self.context = self.api.context();
            self.service = format!("{service}@{}", self.host);
            match self.context.initiate(&self.service, None) {
                Ok(Progress { token, done: None }) => return Ok(token),
                Ok(_) => return Err(out_of_turn()),
                Err(error) if error.minor == UNKNOWN_SERVER => {}
                Err(error) => return Err(insufficient(&error)),
            }
        }
        let services = SERVICES.map(|service| format!("{service}/{}", self.host)).join(" or ");
        let detail = format!(
            "Kerberos knows no {services}: use the full name of the host; if it is right, its administrator has to make a key for it"
        );
        Err(TrustFault::new(FaultCode::PeerIdentity, detail).about(self.host.clone()))
    }

    /// Takes a token of the server.
    pub fn step(&mut self, token: &[u8]) -> Result<Initiated, TrustFault> {
        if self.over {
            return Err(out_of_turn());
        }
        let progress = self.context.initiate(&self.service, Some(token));
        let Progress { token, done } = progress.map_err(|error| refused(&error).about(self.host.clone()))?;
        self.over = done.is_some();
        let some = Some(token).filter(|token| !token.is_empty());
        match self.over {
            true => Ok(Initiated::Last(some)),
            false => some.map(Initiated::Continue).ok_or_else(out_of_turn),
        }
    }

    /// What the login was made with, once it is over.
    ///
    /// # Errors
    /// `CredentialExpired` if it has ended: KDCs and servers allow for clocks that differ, some minutes. `EncryptionFailed` before.
    pub fn ticket(&self) -> Result<Ticket, TrustFault> {
        if !self.over {
            return Err(out_of_turn());
        }
        let (ends, until) = end_of(&self.context).map_err(|error| insufficient(&error))?;
        let ours = |found: &Tickets| found.principal.as_ref() == Some(&ends.client);
        let place = tickets().ok().filter(ours).map(|found| found.place).unwrap_or_default();
        Ok(Ticket { principal: ends.client, service: ends.server, place, until })
    }

    /// What wraps the lines that follow.
    ///
    /// # Errors
    /// `EncryptionFailed` before the exchange is over.
    pub fn into_seal(self) -> Result<KerberosSeal, TrustFault> {
        if self.over { Ok(KerberosSeal(self.context)) } else { Err(out_of_turn()) }
    }
}

/// Whom an exchange that is over was between, and until when it holds.
fn end_of(context: &Context) -> Result<(Ends, Timestamp), GssError> {
    let ends = context.ends()?;
    let until = Timestamp::from_secs(now().secs.saturating_add(ends.seconds.into()));
    Ok((ends, until))
}

/// Whose ticket would be shown, and where it lies; `None` where there is none that is good.
pub fn usable() -> Option<String> {
    let found = tickets().ok()?;
    let is_good = found.until.is_some_and(|until| until > now().secs);
    found.principal.filter(|_| is_good).map(|principal| format!("{principal} in {}", found.place))
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

/// The library's numbers of RFC 4120 §7.5.9 (KDC_ERR, KRB_AP_ERR), and those of its own.
const BASE: u32 = (-1_765_328_384_i32) as u32;
const UNKNOWN_SERVER: u32 = BASE + 7;
/// KRB_AP_ERR_TKT_EXPIRED, KDC_ERR_NAME_EXP.
const EXPIRED: [u32; 2] = [BASE + 32, BASE + 1];
/// KRB_AP_ERR_SKEW.
const CLOCK: u32 = BASE + 37;
/// KRB5_KDC_UNREACH, KRB5_REALM_CANT_RESOLVE, KRB5_REALM_UNKNOWN.
const UNREACHABLE: [u32; 3] = [BASE + 156, BASE + 220, BASE + 154];

/// A login that failed, by the routine error of RFC 2744 §3.9.1 and the errors of Kerberos in it.
fn refused(error: &GssError) -> TrustFault {
    TrustFault::new(code_of(error), format!("Kerberos: {}", error.text))
}

fn code_of(error: &GssError) -> FaultCode {
    /// GSS_S_NO_CRED, GSS_S_CREDENTIALS_EXPIRED, GSS_S_CONTEXT_EXPIRED.
    const NO_CRED: u32 = 7;
    const OUTLIVED: [u32; 2] = [11, 12];
    let routine = error.major >> 16 & 0xff;
    match routine {
        _ if EXPIRED.contains(&error.minor) || OUTLIVED.contains(&routine) => FaultCode::CredentialExpired,
        _ if UNREACHABLE.contains(&error.minor) => FaultCode::HostUnreachable,
        NO_CRED => FaultCode::CredentialMissing,
        _ => FaultCode::CredentialRejected,
    }
}

/// A login that the tickets of this account do not do for: which ticket, until when it was good, and what to do.
fn insufficient(error: &GssError) -> TrustFault {
    let found = tickets().ok();
    let (whose, place, until) = match &found {
        Some(Tickets { place, principal, until }) => (principal.clone().unwrap_or_default(), place.as_str(), *until),
        None => (String::new(), "the usual place", None),
    };
    let code = match code_of(error) {
        // The library says of both that there is no credential.
        FaultCode::CredentialMissing if until.is_some_and(|end| end <= now().secs) => FaultCode::CredentialExpired,
        code => code,
    };
    let fault = |detail: String| TrustFault::new(code, detail).about(whose);
    match (code, until) {
        (FaultCode::CredentialExpired, Some(end)) => {
            fault(format!("the Kerberos ticket in {place} has ended: `kinit` gets a new one"))
                .until(Timestamp::from_secs(end))
        }
        (FaultCode::CredentialMissing, None) => {
            fault(format!("there is no Kerberos ticket in {place}: `kinit` gets one"))
        }
        (FaultCode::HostUnreachable, _) => fault(format!(
            "Kerberos: {}: is the network there, and does /etc/krb5.conf name the realm's KDC?",
            error.text
        )),
        _ if error.minor == CLOCK => fault(format!("Kerberos: {}: set the clock of this host", error.text)),
        _ => fault(format!("Kerberos: {} (`klist` shows tickets, `kinit` gets one)", error.text)),
    }
}

fn broken(why: &str) -> TrustFault {
    TrustFault::new(FaultCode::EncryptionFailed, why)
}

fn out_of_turn() -> TrustFault {
    broken("the other side does not keep to the exchange of tokens")
}
