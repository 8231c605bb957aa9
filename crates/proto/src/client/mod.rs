//! The client's side of a control connection: commands out, replies matched to them in order.

mod machine;
mod session;

#[cfg(test)]
mod tests;

use std::time::Duration;

pub use machine::{ClientControl, SendError};
pub use session::{DataHandleEffect, SessionState, data_handle_effect};

use crate::marker::{Marker, MarkerError};
use crate::reply::{Reply, ReplyError};

/// Names one command of one connection; grows, never repeats.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token(pub u64);

/// Limits of one connection.
#[derive(Debug, Clone)]
pub struct ClientConfig {
    /// Commands in flight at once, at least 1; 200 by default, as the reference server drops a connection at 500.
    pub window: usize,
    /// Longest wait for the greeting; 60 s by default.
    pub greeting_timeout: Duration,
    /// Longest silence while a reply is due; 600 s by default. Any byte from the server starts it anew.
    pub stall_timeout: Duration,
    /// After this long without traffic in either direction [`ClientEvent::Idle`] is due, for a NOOP or a goodbye; `None`: never.
    pub idle_after: Option<Duration>,
}

impl Default for ClientConfig {
    fn default() -> Self {
        Self {
            window: 200,
            greeting_timeout: Duration::from_secs(60),
            stall_timeout: Duration::from_secs(600),
            idle_after: None,
        }
    }
}

/// What a client learns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClientEvent {
    /// The server's first reply; commands go out after a 220.
    Greeting(Reply),
    /// A 1yz reply: the command goes on (RFC 959 §4.2.1).
    Preliminary {
        /// The command.
        token: Token,
        /// The reply.
        reply: Reply,
    },
    /// A 111, 112 or 113.
    Marker {
        /// The command.
        token: Token,
        /// The marker, or that it was malformed; the command goes on either way.
        marker: Result<Marker, MarkerError>,
    },
    /// The command's final reply: 2yz to 6yz.
    Completed {
        /// The command.
        token: Token,
        /// The reply.
        reply: Reply,
    },
    /// Nothing happened for [`ClientConfig::idle_after`].
    Idle,
    /// The connection is over. Comes once and last; the tokens got no final reply, in the order in which they were given.
    Failed {
        /// Why.
        error: ProtocolError,
        /// Commands that may or may not have been carried out.
        unanswered: Vec<Token>,
        /// Commands that never left this machine and can be repeated elsewhere without harm.
        unsent: Vec<Token>,
    },
}

/// Why a connection is over.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProtocolError {
    /// The server refused the connection in its greeting.
    #[error("the server refuses the connection: {} {}", .0.code, .0.display_text())]
    Refused(Reply),
    /// 421 (RFC 959 §4.2.1: "This may be a reply to any command if the service knows it must shut down").
    #[error("the server closes the connection: {} {}", .0.code, .0.display_text())]
    ServiceClosing(Reply),
    /// The server closed its side while replies were due.
    #[error("the server closed the connection before it answered")]
    Eof,
    /// The server closed its side with nothing due: the normal end.
    #[error("the connection ended")]
    Ended,
    /// No greeting in time.
    #[error("the server sent no greeting in time")]
    GreetingTimeout,
    /// No byte in time while a reply was due.
    #[error("the server stopped answering")]
    StallTimeout,
    /// A reply that nothing was sent for.
    #[error("the server sent a reply that no command asked for: {} {}", .0.code, .0.display_text())]
    Unsolicited(Reply),
    /// The stream of replies cannot be followed.
    #[error("the server does not speak FTP: {0}")]
    Reply(#[from] ReplyError),
}
