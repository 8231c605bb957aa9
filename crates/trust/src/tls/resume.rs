//! Control connections that continue the TLS session of an earlier one, and so need no certificate.
//!
//! Tickets of TLS 1.3 only: in TLS 1.2 a resumed session keeps its secrets, and data connections would fit both.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use openssl::ssl::{Ssl, SslContext, SslRef, SslSession, SslVersion};
use whimbrel_sys::sessions::{KeptSession, TICKET_NAME};
use whimbrel_sys::ssl::TICKET_KEYS;

use super::context::{Clients, Slot, TicketKeys, Tickets, server, slot, with_slot};
use super::machine::{TlsMachine, internal};
use crate::fault::TrustFault;
use crate::peer::OwnChain;

/// Most sessions with one server that a client keeps: whatever is offered beyond takes the place of the oldest.
const MOST_KEPT: usize = 16;

/// How long after the end of a connection its session may be resumed: who lists a tree leaves before the files are moved.
const REMEMBERED: Duration = Duration::from_secs(300);

/// Most connections that have ended whose sessions may be resumed.
const MOST_ENDED: usize = 256;

type Name = [u8; TICKET_NAME];

/// A server of control connections.
///
/// Each seals its tickets with keys of its own, so that data connections belong to the one whose session they resume. Further
/// control connections may resume it, too, while it stands and for five minutes more.
pub struct ControlTls {
    context: SslContext,
    standing: Arc<Standing>,
}

/// The keys of connections that stand or have just ended, by the names that tickets tell.
#[derive(Default)]
struct Standing(Mutex<Known>);

#[derive(Default)]
struct Known {
    keys: HashMap<Name, (TicketKeys, Option<Instant>)>,
    /// Those that have ended, the first one in front.
    ended: VecDeque<(Name, Instant)>,
}

/// A connection whose session others may resume; dropping it ends that after a while.
pub struct Stands {
    name: Name,
    standing: Arc<Standing>,
}

impl ControlTls {
    /// A server that shows a certificate.
    pub fn new(own: &OwnChain, clients: &Clients) -> Result<Self, TrustFault> {
        let standing = Arc::<Standing>::default();
        let known = standing.clone();
        let source = move |ssl: &SslRef, shown: Option<&Name>, into: &mut [u8; TICKET_KEYS]| match shown {
            None => give(slot(ssl).and_then(|slot| slot.keys.as_ref()), into),
            Some(name) => ssl.version2() == Some(SslVersion::TLS1_3) && give(known.lock().find(name), into),
        };
        let context = server(own, clients, Tickets::Own(Arc::new(source))).map_err(|error| internal(&error))?;
        Ok(Self { context, standing })
    }

    /// The TLS object of a new connection, and the keys of its tickets.
    pub fn connection(&self) -> Result<(Ssl, TicketKeys), TrustFault> {
        let keys = TicketKeys::new()?;
        let slot = Slot { keys: Some(keys.clone()), ..Slot::default() };
        let ssl = with_slot(&self.context, slot).map_err(|error| internal(&error))?;
        Ok((ssl, keys))
    }

    /// Lets the session of a connection be resumed by others; `None` where its client showed a certificate: a ticket does not tell
    /// what was judged then.
    pub fn stands(&self, machine: &TlsMachine, keys: &TicketKeys) -> Option<Stands> {
        if machine.ssl().peer_certificate().is_some() {
            return None;
        }
        let name = name(keys)?;
        self.standing.lock().keys.insert(name, (keys.clone(), None));
        Some(Stands { name, standing: self.standing.clone() })
    }
}

impl Standing {
    fn lock(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Known {
    fn find(&self, name: &Name) -> Option<&TicketKeys> {
        let (keys, ended) = self.keys.get(name)?;
        ended.is_none_or(|at| at.elapsed() < REMEMBERED).then_some(keys)
    }

    fn end(&mut self, name: Name, now: Instant) {
        if let Some((_, ended)) = self.keys.get_mut(&name) {
            *ended = Some(now);
            self.ended.push_back((name, now));
        }
        let over = |at: Instant| now.saturating_duration_since(at) >= REMEMBERED;
        while self.ended.len() > MOST_ENDED || self.ended.front().is_some_and(|(_, at)| over(*at)) {
            let Some((oldest, _)) = self.ended.pop_front() else { break };
            self.keys.remove(&oldest);
        }
    }
}

impl Drop for Stands {
    fn drop(&mut self) {
        self.standing.lock().end(self.name, Instant::now());
    }
}

fn name(keys: &TicketKeys) -> Option<Name> {
    keys.as_bytes().first_chunk().copied()
}

fn give(keys: Option<&TicketKeys>, into: &mut [u8; TICKET_KEYS]) -> bool {
    if let Some(keys) = keys {
        into.copy_from_slice(keys.as_bytes());
    }
    keys.is_some()
}

/// Sessions with one server, for its client: each is continued once (RFC 8446 appendix C.4).
#[derive(Debug, Default)]
pub struct Sessions(Mutex<VecDeque<KeptSession>>);

impl Sessions {
    /// The newest.
    pub fn take(&self) -> Option<KeptSession> {
        self.lock().pop_back()
    }

    /// Forgets them all.
    pub fn clear(&self) {
        self.lock().clear();
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.lock().len()
    }

    pub(super) fn keep(&self, ssl: &SslRef, session: SslSession) {
        if ssl.version2() != Some(SslVersion::TLS1_3) {
            return;
        }
        let mut kept = self.lock();
        if kept.len() == MOST_KEPT {
            kept.pop_front();
        }
        kept.push_back(KeptSession::new(ssl, session));
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<KeptSession>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_known_while_their_connection_stands_and_a_while_longer() {
        let (mut known, now) = (Known::default(), Instant::now());
        let name = |number: usize| [number as u8, (number >> 8) as u8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        let stands = |known: &mut Known, number| {
            known.keys.insert(name(number), (TicketKeys::new().unwrap(), None));
        };
        stands(&mut known, 1);
        stands(&mut known, 2);
        known.end(name(1), now);
        assert!(known.find(&name(1)).is_some() && known.find(&name(2)).is_some() && known.find(&name(3)).is_none());
        known.end(name(2), now + REMEMBERED);
        assert!(known.find(&name(1)).is_none() && known.find(&name(2)).is_some());
        for number in 10..10 + 2 * MOST_ENDED {
            stands(&mut known, number);
            known.end(name(number), now + REMEMBERED);
        }
        assert_eq!((known.keys.len(), known.ended.len()), (MOST_ENDED, MOST_ENDED));
        assert!(known.find(&name(2)).is_none(), "the oldest went first");
        known.end(name(2), now);
        assert_eq!(known.ended.len(), MOST_ENDED, "nobody ends twice");
    }
}
