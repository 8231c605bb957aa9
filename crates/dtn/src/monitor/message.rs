//! What the front and the monitor say to each other, one message a packet, with descriptors beside some.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use whimbrel_engine::Fault;
use whimbrel_engine::guard::{DoorLimits, LineLimits};
use whimbrel_proto::server::PolicyRule;
use whimbrel_proto::token::judge::Issuer;

use crate::confine::Sandbox;
use crate::front::access::Access;
use crate::front::certificate::CertificateFiles;
use crate::front::kerberos::KerberosSettings;
use crate::mover::message::{DataPeers, DataSettings};

/// Names a question; chosen by the front.
pub type Ticket = u32;

/// Names an account that a login was mapped to; given out by the monitor, good as long as the front lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct AccountId(pub u32);

/// From the front to the monitor.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToMonitor {
    /// Connections are served from now on.
    Ready,
    /// Which account handles what anonymous users do?
    Anonymous {
        /// Echoed in [`FromMonitor::Mapped`].
        ticket: Ticket,
    },
    /// Who is this password user?
    Password {
        /// Echoed in [`FromMonitor::Entry`].
        ticket: Ticket,
        /// Name as given at login.
        user: String,
    },
    /// Which account may somebody use who proved to be this?
    Claim {
        /// Echoed in [`FromMonitor::Mapped`].
        ticket: Ticket,
        /// What was proven.
        claim: Box<Claim>,
        /// The account asked for; `None`: the usual one.
        wanted: Option<String>,
    },
    /// Fetch the keys of an issuer of tokens.
    Keys {
        /// Echoed in [`FromMonitor::Keys`].
        ticket: Ticket,
        /// Its place in [`FrontSettings::tokens`].
        issuer: usize,
    },
    /// Start a data process for an account that was given out before.
    Open {
        /// Echoed in [`FromMonitor::Opened`].
        ticket: Ticket,
        /// From [`FromMonitor::Mapped`] or [`FromMonitor::Entry`].
        account: AccountId,
    },
}

/// From the monitor to the front.
#[derive(Debug, Serialize, Deserialize)]
pub enum FromMonitor {
    /// First message. Beside it: the listening sockets for control connections, for those inside TLS, for data nodes and metrics, and the channel
    /// of connections that this server makes, in this order.
    Hello(Box<FrontSettings>),
    /// Answer to [`ToMonitor::Anonymous`] and [`ToMonitor::Claim`]: `None` if nobody is let in for that.
    Mapped {
        /// Of the question.
        ticket: Ticket,
        /// The account.
        account: Result<Option<MappedAccount>, Fault>,
    },
    /// Answer to [`ToMonitor::Password`]: `None` for an unknown user.
    Entry {
        /// Of the question.
        ticket: Ticket,
        /// The user, whose password the front verifies.
        entry: Result<PasswordEntry, Fault>,
    },
    /// Answer to [`ToMonitor::Keys`].
    Keys {
        /// Of the question.
        ticket: Ticket,
        /// What the process that fetched them said, for [`crate::keys::read`].
        answer: Result<Vec<u8>, Fault>,
    },
    /// Answer to [`ToMonitor::Open`]. Beside it, unless it failed: the stream to the new data process.
    Opened {
        /// Of the question.
        ticket: Ticket,
        /// Why there is none.
        result: Result<(), Fault>,
    },
    /// Take nothing new, finish what runs, and end.
    Drain,
}

/// Who somebody proved to be, other than by a password.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Claim {
    /// By a certificate.
    Certificate {
        /// Its subject in one-line form, `/O=Grid/CN=alice`.
        subject: String,
        /// Attributes of virtual organizations, such as `/atlas/Role=production`.
        vo: Vec<String>,
    },
    /// By a token.
    Token {
        /// Who issued it.
        issuer: String,
        /// Whom it speaks of.
        subject: String,
        /// Groups of the subject, where they count.
        groups: Vec<String>,
        /// Its other claims that are text.
        claims: Vec<(String, String)>,
    },
    /// By Kerberos: `name@REALM`.
    Principal(String),
}

impl Claim {
    /// The name for logs and replies.
    pub fn name(&self) -> &str {
        match self {
            Self::Certificate { subject, .. } | Self::Token { subject, .. } | Self::Principal(subject) => subject,
        }
    }
}

/// An account that a login may use.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MappedAccount {
    /// For [`ToMonitor::Open`].
    pub id: AccountId,
    /// For logs.
    pub name: String,
    /// Its number: data nodes are for logins that lead to the account that they have.
    pub uid: u32,
    /// Home directory as clients see it; it need not be there. `/` where the account has none below the root.
    pub home: Vec<u8>,
    /// Names of its groups where rules or limits ask for them, else none; `None`: they cannot be told now.
    pub groups: Option<Vec<String>>,
}

/// What the users file says of a name.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PasswordEntry {
    /// Argon2 hash in PHC string form; without an account one of nobody's, which takes as long to verify.
    pub hash: String,
    /// What handles the user's data; `None`: this is no user here.
    pub account: Option<MappedAccount>,
}

impl std::fmt::Debug for PasswordEntry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "PasswordEntry({:?})", self.account)
    }
}

/// What the front needs for logins with grid certificates.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GsiSettings {
    /// What it shows.
    pub certificate: CertificateFiles,
    /// Directory of trusted authorities, raw bytes; the one thing that a front reads by itself, again when it changes.
    pub authorities: Vec<u8>,
    /// Directory of virtual organizations whose attributes count, raw bytes.
    pub vomsdir: Vec<u8>,
}

/// Who vouches for clients that show a certificate over TLS.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum ClientAuthorities {
    /// Those of [`GsiSettings`]: proxies are accepted, and attributes of virtual organizations count.
    Grid,
    /// These, PEM text.
    Pem(Vec<u8>),
}

/// What the front needs to know of the administrator's configuration: no files.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FrontSettings {
    /// This host, for the greeting.
    pub host: String,
    /// Processors that transfers on this host may use.
    pub processors: f64,
    /// Text sent in the greeting.
    pub banner: Option<String>,
    /// Anybody may log in without a password.
    pub anonymous: bool,
    /// There are users with passwords.
    pub passwords: bool,
    /// What TLS shows; `None`: there is no TLS.
    pub certificate: Option<CertificateFiles>,
    /// What logins with grid certificates need; `None`: there are none.
    pub gsi: Option<GsiSettings>,
    /// Authorities of clients that show a certificate over TLS; `None`: they are not asked for one.
    pub clients: Option<ClientAuthorities>,
    /// Issuers whose tokens log in over TLS.
    pub tokens: Vec<Issuer>,
    /// What logins with Kerberos need; `None`: there are none.
    pub kerberos: Option<KerberosSettings>,
    /// Passwords are taken over connections in clear.
    pub clear_text_passwords: bool,
    /// Data connections in clear are refused.
    pub encrypt_data: bool,
    /// Every change is refused.
    pub read_only: bool,
    /// GET and PUT are announced.
    pub announce_get_put: bool,
    /// Clients may have storage and network measured.
    pub probe: bool,
    /// Address told to peers for data connections.
    pub data_address: Option<IpAddr>,
    /// What logins may do.
    pub access: Access,
    /// Who may be the other end of data connections that prove nothing.
    pub data_peers: DataPeers,
    /// Longest idle time of a control connection.
    pub idle_timeout: Duration,
    /// Longest time of a login.
    pub login_timeout: Duration,
    /// Longest wait for running transfers when draining; `None`: no limit.
    pub drain_timeout: Option<Duration>,
    /// Control connections at once.
    pub max_connections: usize,
    /// Of these, how many of whom.
    pub doors: DoorLimits,
    /// How fast command lines have to come.
    pub lines: LineLimits,
    /// How clients are to move large files.
    pub rules: Vec<PolicyRule>,
    /// How far the front is confined.
    pub sandbox: Sandbox,
    /// What data processes obey.
    pub data: DataSettings,
    /// Key that data nodes prove to know.
    pub node_key: Option<[u8; 32]>,
    /// Control listeners among the descriptors.
    pub control: usize,
    /// Of those where TLS comes before the greeting.
    pub tls: usize,
    /// Whether a listener for data nodes is among them.
    pub nodes: bool,
    /// Whether a listener for metrics is.
    pub metrics: bool,
    /// Control connections come through a channel, which follows them; no data connections are taken.
    pub outbound: bool,
    /// Where data connections of others are joined: what users announce goes through a channel, which is the last descriptor.
    pub relay: Option<SocketAddr>,
    /// The only descriptor is a control connection, and its end is the front's.
    pub one: bool,
}
