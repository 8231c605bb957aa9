//! A queue that knows how many bytes wait in it. Who sends never waits, so that nobody can wait for each other, and is refused where too many wait.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::{mpsc, watch};

/// What one entry costs besides what its sender says, bytes: entries without content are not free.
const ENTRY: usize = 256;

/// Why an entry was not taken; it is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// As much waits as may.
    #[error("too much waits already")]
    Full,
    /// Nobody takes anything any more.
    #[error("nobody takes it any more")]
    Gone,
}

#[derive(Debug)]
struct State {
    /// Bytes of entries that were not taken yet.
    waiting: AtomicUsize,
    most: usize,
    /// Whether an entry was ever refused as too much.
    overrun: watch::Sender<bool>,
}

/// Where entries go in.
#[derive(Debug)]
pub struct Sender<T> {
    entries: mpsc::UnboundedSender<(T, usize)>,
    state: Arc<State>,
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Self {
        Self { entries: self.entries.clone(), state: self.state.clone() }
    }
}

/// A sender that does not keep the queue open.
#[derive(Debug)]
pub struct WeakSender<T> {
    entries: mpsc::WeakUnboundedSender<(T, usize)>,
    state: Arc<State>,
}

/// Where entries come out.
#[derive(Debug)]
pub struct Receiver<T> {
    entries: mpsc::UnboundedReceiver<(T, usize)>,
    state: Arc<State>,
}

/// A queue in which at most `most` bytes wait.
pub fn bounded<T>(most: usize) -> (Sender<T>, Receiver<T>) {
    let (sender, receiver) = mpsc::unbounded_channel();
    let state = Arc::new(State { waiting: AtomicUsize::new(0), most, overrun: watch::Sender::new(false) });
    (Sender { entries: sender, state: state.clone() }, Receiver { entries: receiver, state })
}

impl<T> Sender<T> {
    /// Adds an entry of so many bytes, if there is room.
    pub fn send(&self, entry: T, bytes: usize) -> Result<(), Refused> {
        let cost = bytes.saturating_add(ENTRY);
        let fits = |waiting: usize| waiting.checked_add(cost).filter(|sum| *sum <= self.state.most);
        if self.state.waiting.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits).is_err() {
            self.state.overrun.send_replace(true);
            return Err(Refused::Full);
        }
        self.entries.send((entry, cost)).map_err(|_| Refused::Gone)
    }

    /// Adds an entry even where there is no room: for what ends something, of which there is no more than was let in before.
    pub fn send_anyway(&self, entry: T, bytes: usize) -> Result<(), Refused> {
        let cost = bytes.saturating_add(ENTRY);
        self.state.waiting.fetch_add(cost, Ordering::Relaxed);
        self.entries.send((entry, cost)).map_err(|_| Refused::Gone)
    }

    /// Adds to the queue only as long as others keep it open.
    pub fn downgrade(&self) -> WeakSender<T> {
        WeakSender { entries: self.entries.downgrade(), state: self.state.clone() }
    }
}

impl<T> WeakSender<T> {
    /// The sender, while there is another one.
    pub fn upgrade(&self) -> Option<Sender<T>> {
        Some(Sender { entries: self.entries.upgrade()?, state: self.state.clone() })
    }
}

impl<T> Receiver<T> {
    /// The next entry; `None` when there is none and nobody can send one any more. Cancel safe.
    pub async fn recv(&mut self) -> Option<T> {
        let (entry, cost) = self.entries.recv().await?;
        self.release(cost);
        Some(entry)
    }

    /// The next entry, if it is there.
    pub fn try_recv(&mut self) -> Option<T> {
        let (entry, cost) = self.entries.try_recv().ok()?;
        self.release(cost);
        Some(entry)
    }

    /// Resolves as soon as an entry was refused as too much; never where that does not happen. Cancel safe.
    pub async fn overrun(&self) {
        let mut overrun = self.state.overrun.subscribe();
        // The state holds the other end.
        let _held = overrun.wait_for(|overrun| *overrun).await;
    }

    /// Whether an entry was refused as too much.
    pub fn is_overrun(&self) -> bool {
        *self.state.overrun.borrow()
    }

    fn release(&self, cost: usize) {
        self.state.waiting.fetch_sub(cost, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_is_too_much_is_refused_and_what_was_taken_makes_room() {
        let (sender, mut receiver) = bounded(3 * (ENTRY + 100));
        for number in 0..3 {
            assert_eq!(sender.send(number, 100), Ok(()));
        }
        assert!(!receiver.is_overrun());
        assert_eq!(sender.send(3, 0), Err(Refused::Full));
        assert!(receiver.is_overrun());
        receiver.overrun().await;
        // What ends something is always told.
        assert_eq!(sender.send_anyway(4, 0), Ok(()));
        assert_eq!((receiver.recv().await, receiver.try_recv()), (Some(0), Some(1)));
        assert_eq!(sender.send(5, 100), Ok(()));
        assert_eq!(sender.send(6, usize::MAX), Err(Refused::Full));
        assert_eq!((receiver.try_recv(), receiver.try_recv(), receiver.try_recv()), (Some(2), Some(4), Some(5)));
        assert_eq!((receiver.try_recv(), receiver.state.waiting.load(Ordering::Relaxed)), (None, 0));
        let weak = sender.downgrade();
        drop(sender);
        assert!(weak.upgrade().is_none() && receiver.recv().await.is_none());
        let (sender, receiver) = bounded::<u8>(1000);
        drop(receiver);
        assert_eq!(sender.send(0, 0), Err(Refused::Gone));
    }
}
