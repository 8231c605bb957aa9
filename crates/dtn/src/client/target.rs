//! Which server, as whom.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use whimbrel_trust::gsi::Delegate;
use whimbrel_trust::pins::Fingerprint;

use super::meeting::Meeting;
use super::security::{Security, Trust};
use super::shown::Token;

/// The port of GridFTP servers.
pub const GRIDFTP_PORT: u16 = 2811;

/// Where a program opens its own files without a name again, in memory as they are.
pub(crate) const IN_MEMORY: &str = "/proc/self/fd/";

/// A password; `Debug` hides it.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Password(pub String);

impl fmt::Debug for Password {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Password(..)")
    }
}

/// Host, without brackets, and TCP port of a control connection.
pub type Address = (String, u16);

/// A server and a login there; equal targets may share sessions.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Target {
    /// Name or address, without brackets.
    pub host: String,
    /// TCP port of the control connection; 0 over ssh: as its configuration says.
    pub port: u16,
    /// Further DTNs of the same endpoint: the same storage, the same logins.
    pub others: Vec<Address>,
    /// Login name; `None` logs in as `anonymous`.
    pub user: Option<String>,
    /// Its password.
    pub password: Option<Password>,
    /// How the control connection is protected.
    pub security: Security,
    /// Subject that a grid server's certificate must have, in one-line form; `None`: it must name the host.
    pub subject: Option<String>,
    /// The credential that is shown; `None`: the usual one, where one is needed or asked for.
    pub credential: Option<Box<CredentialFiles>>,
    /// Log in over GSSAPI with a Kerberos ticket, also where there is a certificate.
    pub kerberos: bool,
    /// The access token that is shown, over TLS only; `None`: the usual one.
    pub token: Option<Token>,
    /// Keys of its servers: when there are any, who shows one over TLS is believed, and nobody else.
    pub keys: Vec<Fingerprint>,
    /// Those of its servers that take no connections, and who keeps some that they made.
    pub meeting: Option<Meeting>,
}

/// A certificate, perhaps with those above it, and its private key; both may be in one file, as of a proxy.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct CredentialFiles {
    /// The file of the certificate.
    pub certificate: PathBuf,
    /// The file of its key.
    pub key: PathBuf,
}

impl Target {
    /// An anonymous login.
    pub fn anonymous(host: impl Into<String>, port: u16) -> Self {
        Self {
            host: host.into(),
            port,
            others: Vec::new(),
            user: None,
            password: None,
            security: Security::Clear,
            subject: None,
            credential: None,
            kerberos: false,
            token: None,
            keys: Vec::new(),
            meeting: None,
        }
    }

    /// The first DTN.
    pub fn address(&self) -> Address {
        (self.host.clone(), self.port)
    }

    /// Every DTN of the endpoint, in the order in which they were named.
    pub fn addresses(&self) -> impl Iterator<Item = Address> + '_ {
        std::iter::once(self.address()).chain(self.others.iter().cloned())
    }

    /// One DTN of the endpoint alone, with the same login.
    pub fn at(&self, (host, port): Address) -> Self {
        Self { host, port, others: Vec::new(), ..self.clone() }
    }
}

/// `host:port`, or `host` where ssh knows the port, with brackets around an IPv6 address, for each DTN; never the password.
impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, (host, port)) in self.addresses().enumerate() {
            let comma = if i > 0 { "," } else { "" };
            let (open, close) = if host.contains(':') { ("[", "]") } else { ("", "") };
            write!(f, "{comma}{open}{host}{close}")?;
            if port != 0 {
                write!(f, ":{port}")?;
            }
        }
        Ok(())
    }
}

/// Which address families may be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum AddressFamily {
    /// Whatever the name resolves to, in the resolver's order.
    #[default]
    Any,
    /// IPv4 only.
    V4,
    /// IPv6 only.
    V6,
}

/// What of a user's rights servers are handed on in logins with certificates.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum HandOn {
    /// A limited proxy, as Globus' client does it, where data connections have to show one; nothing to servers of our own, which prove
    /// them with nonces. It would cost a round trip and a fifth of a second of a processor.
    #[default]
    AsNeeded,
    /// This, whoever it is.
    Always(Delegate),
}

impl HandOn {
    /// The most that a login may come to.
    pub fn most(self) -> Delegate {
        match self {
            Self::AsNeeded => Delegate::Limited,
            Self::Always(what) => what,
        }
    }
}

/// How control connections are made and used.
#[derive(Debug, Clone)]
pub struct SessionOptions {
    /// Longest wait for one TCP connection; default 20 s.
    pub connect_timeout: Duration,
    /// Longest silence while a reply is due to a command that moves no data; default 120 s.
    pub reply_timeout: Duration,
    /// Address families; default any.
    pub family: AddressFamily,
    /// Send commands ahead of replies where a refusal is harmless; default true.
    pub pipelined: bool,
    /// What the user calls the task, for servers' logs and rules (SITE TASKID); default none.
    pub label: Option<String>,
    /// Value for SITE CLIENTINFO's `appver`.
    pub version: String,
    /// Print each line of the dialogue to standard error, passwords hidden; default false.
    pub trace: bool,
    /// Ask grid servers to guard data against change (PROT S) where data are to be encrypted (PROT P); default false.
    pub guarded: bool,
    /// What is handed on in logins with certificates; default what is needed.
    pub delegate: HandOn,
    /// Whom to believe where connections are protected.
    pub trust: Trust,
}

impl Default for SessionOptions {
    fn default() -> Self {
        Self {
            connect_timeout: Duration::from_secs(20),
            reply_timeout: Duration::from_secs(120),
            family: AddressFamily::Any,
            pipelined: true,
            label: None,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            trace: false,
            guarded: false,
            delegate: HandOn::AsNeeded,
            trust: Trust::default(),
        }
    }
}
