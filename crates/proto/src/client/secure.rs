//! Orders that protect a connection and its data connections, and what replies to them say.

use super::{Order, SessionState};
use crate::command::{Command, Dcau, Dcsc, Protection, Secret};
use crate::protect::base64::{self, Base64Error};
use crate::reply::Reply;

/// Longest token of a server, bytes: a chain of certificates and what TLS puts around it.
pub const MAX_TOKEN: usize = 256 << 10;

/// AUTH TLS (RFC 4217 §4). What is given behind it waits for [`ClientControl::secured`](super::ClientControl::secured); a refusal
/// withholds what was given along with it.
pub fn auth_tls() -> Order {
    gate(Command::Auth(b"TLS".to_vec()))
}

/// AUTH GSSAPI and the first token, which go out together: that saves a round trip, and servers take it. What is given behind them waits for
/// [`ClientControl::secured`](super::ClientControl::secured).
pub fn auth_gssapi(token: &[u8]) -> [Order; 2] {
    [Order::new(Command::Auth(b"GSSAPI".to_vec())), gate(adat(token))]
}

/// ADAT with a token.
pub(super) fn adat(token: &[u8]) -> Command {
    Command::Adat(Secret(base64::encode(token).into_bytes()))
}

fn gate(command: Command) -> Order {
    Order { gate: true, ..Order::new(command) }
}

/// What a reply to ADAT says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Exchange {
    /// 335: the server's token; answer with [`ClientControl::adat`](super::ClientControl::adat).
    GoesOn(Vec<u8>),
    /// 235, with a last token or without: everything behind it is wrapped.
    Over(Option<Vec<u8>>),
    /// Anything else.
    Refused,
}

impl Exchange {
    /// Reads a final reply to ADAT; the text is `ADAT=<base64>` (RFC 2228 §5.4), anything else stands for no token.
    ///
    /// # Errors
    /// [`Base64Error`] if there is a token that cannot be read.
    pub fn of(reply: &Reply) -> Result<Self, Base64Error> {
        let text = reply.last_text().strip_prefix(b"ADAT=");
        let token = text.map(|text| base64::decode(text.trim_ascii(), MAX_TOKEN)).transpose()?;
        Ok(match reply.code {
            335 => Self::GoesOn(token.unwrap_or_default()),
            235 => Self::Over(token),
            _ => Self::Refused,
        })
    }
}

/// What the next data handles are to be protected with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DataProtection {
    /// Credential of data connections; `None`: leave it as it is.
    pub credential: Option<Dcsc>,
    /// Who must be at the other end; `None`: leave it as it is, for servers that know no DCAU.
    pub peer: Option<Dcau>,
    /// Clear or not.
    pub level: Protection,
}

impl DataProtection {
    /// The commands that are missing, in the order in which servers want them. They go out together, and the last one is a gate: what is given
    /// along with them must not run if it is refused. A refusal of one in front of it is for the caller to see.
    ///
    /// Each of them closes the data handle on the server.
    pub fn orders(&self, session: &SessionState) -> Vec<Order> {
        let level = Command::Prot(self.level);
        // RFC 4217 §8: PBSZ before PROT, with 0 where TLS bounds its records itself.
        let size = Command::Pbsz(0);
        let size = (session.needs(&level) && session.needs(&size)).then_some(size);
        let credential = self.credential.clone().map(Command::Dcsc);
        let peer = self.peer.clone().map(Command::Dcau);
        let needed = |command: &Command| session.needs(command);
        let commands = [credential, peer, size, Some(level)].into_iter().flatten().filter(needed);
        let mut orders: Vec<Order> = commands.map(Order::new).collect();
        if let Some(last) = orders.last_mut() {
            last.gate = true;
        }
        orders
    }
}
