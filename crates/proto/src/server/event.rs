//! What the machine tells its driver, and what it is told about logins.

pub use crate::command::Secret;
use crate::op::{Op, OpId};

/// Something for the driver to do or to record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ServerEvent {
    /// Check these credentials, then call [`ServerControl::login`](super::ServerControl::login).
    Login {
        /// User name as sent.
        user: Vec<u8>,
        /// What proves it.
        proof: Proof,
    },
    /// The 234 is taken and TLS begins: what comes next is a handshake, and so are bytes that were not taken, which nobody but
    /// an attacker sends ahead. Answer with [`ServerControl::secured`](super::ServerControl::secured), or close.
    StartTls,
    /// A token of AUTH GSSAPI; answer with [`ServerControl::token`](super::ServerControl::token).
    Token(Secret),
    /// Carry out an operation; answer with notices and one outcome. Several may be outstanding: they begin in order. One
    /// may tell of itself, or end, before the outcome of the one in front of it; that is kept until its turn.
    Run {
        /// Its name, for notices and outcome.
        id: OpId,
        /// What to do.
        op: Op,
    },
    /// Stop an operation early; its outcome is still expected, unless [`ServerEvent::Closed`] follows.
    Abort {
        /// The operation.
        id: OpId,
    },
    /// The client named itself or its task.
    Label(Label),
    /// A command got its final reply; for logs.
    Answered {
        /// The verb in upper case, without arguments; empty if the line had none.
        verb: String,
        /// The last operation the command ran.
        op: Option<OpId>,
        /// Reply code.
        code: u16,
    },
    /// Nothing more will be sent: close the stream and let go of the data side. Comes last.
    Closed(CloseReason),
}

/// What a login is judged by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Proof {
    /// A password as sent.
    Password(Secret),
    /// The certificate, principal or ssh account that the driver knows of.
    Peer,
}

/// What a handshake told about the other end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PeerView {
    /// Subject of its certificate, or its principal; shown by STAT.
    pub subject: String,
    /// It may log in without a password.
    pub suffices: bool,
    /// It has a grid certificate, so that data connections can prove to be its own (DCAU A).
    pub gsi: bool,
}

/// What became of a token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TokenOutcome {
    /// The exchange goes on with this token (335).
    Continue(Vec<u8>),
    /// It is over (235): the reply is the last line in clear.
    Established {
        /// The last token, if there is one.
        token: Option<Vec<u8>>,
        /// Who it is.
        peer: PeerView,
    },
    /// It failed (530); AUTH may begin another one.
    Refused {
        /// Why, for people.
        lines: Vec<String>,
    },
}

/// A label for log lines, as sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Label {
    /// SITE CLIENTINFO: `key=value;` pairs.
    ClientInfo(Vec<u8>),
    /// SITE TASKID.
    TaskId(Vec<u8>),
}

/// Why a control connection ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CloseReason {
    /// QUIT.
    Quit,
    /// The client closed.
    Eof,
    /// No login in time.
    LoginTimeout,
    /// No command in time.
    IdleTimeout,
    /// Too many failed logins.
    LoginFailures,
    /// Too many waiting commands.
    PipelineFull,
    /// The server is shutting down.
    Drained,
    /// The driver could not serve the login.
    Unavailable,
    /// The credential of the login has expired.
    Expired,
}

/// What the driver found about a login.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LoginOutcome {
    /// Let in.
    Accepted {
        /// Local name, shown in 230 and by SITE WHOAMI.
        user: String,
        /// Absolute home directory as the client sees it: the first working directory and `~`.
        home: Vec<u8>,
    },
    /// Wrong name or password (530); asked at USER about a certificate: a password is needed (331).
    Denied,
    /// Not let in, for reasons that may be told (530).
    Refused(Vec<String>),
    /// Nobody can log in now (421); the connection closes.
    Unavailable(String),
}
