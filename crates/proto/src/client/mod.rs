//! The client's side of a control connection: commands out, replies matched to them in order.

mod machine;
pub mod secure;
mod session;

#[cfg(test)]
mod tests;

use std::time::Duration;

pub use machine::{ClientControl, SendError, TokenError};
pub use session::SessionState;

use crate::command::Command;
use crate::marker::{Marker, MarkerError};
use crate::reply::{Reply, ReplyError};

/// Names one command of one connection; grows by one from command to command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token(pub u64);

/// How a connection is used.
#[derive(Debug, Clone)]
pub struct ClientConfig {
    /// Commands in flight at once, at least 1, which is lock-step; 200 by default, as the reference server drops a connection at 500.
    pub window: usize,
    /// Send commands ahead of the greeting too; false by default, as RFC 959 §5.4 has a client wait for it.
    pub ahead: bool,
    /// Longest silence before the greeting; 60 s by default. Any byte from the server starts it anew.
    pub greeting_timeout: Duration,
    /// Longest silence while a reply is due; 600 s by default. Any byte from the server starts it anew.
    pub stall_timeout: Duration,
}

impl Default for ClientConfig {
    fn default() -> Self {
        Self {
            window: 200,
            ahead: false,
            greeting_timeout: Duration::from_secs(60),
            stall_timeout: Duration::from_secs(600),
        }
    }
}

/// A command and how it is treated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Order {
    /// The command.
    pub command: Command,
    /// Nothing goes out before its final reply; if that is negative, the rest of what was sent along with it never does.
    pub gate: bool,
    /// The middle lines of its positive reply come as [`ClientEvent::Lines`] while they arrive: a listing may be longer than memory.
    pub stream: bool,
}

impl Order {
    /// An order that lets others pass and has a short reply.
    pub fn new(command: Command) -> Self {
        Self { command, gate: false, stream: false }
    }
}

/// What a client learns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClientEvent {
    /// The server's first reply, a 2yz.
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
    /// Middle lines of a reply that is streamed, at least one; its final reply comes without them.
    Lines {
        /// The command.
        token: Token,
        /// Without line ends.
        lines: Vec<Vec<u8>>,
    },
    /// The command's final reply: 2yz to 6yz. Behind the 234 to AUTH and the 235 to ADAT the machine stands still: what
    /// [`ClientControl::handle_bytes`] did not take belongs to TLS or is wrapped, and nothing goes out before [`ClientControl::secured`].
    Completed {
        /// The command.
        token: Token,
        /// The reply.
        reply: Reply,
    },
    /// The gate in front of the command was refused: it was not sent and never will be.
    Withheld {
        /// The command.
        token: Token,
    },
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
    /// A final reply that nothing was sent for.
    #[error("the server sent a reply that no command asked for: {} {}", .0.code, .0.display_text())]
    Unsolicited(Reply),
    /// The stream of replies cannot be followed.
    #[error("the server does not speak FTP: {0}")]
    Reply(#[from] ReplyError),
}
