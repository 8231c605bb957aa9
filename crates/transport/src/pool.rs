//! The capped pool of payload buffers: when it is empty, whoever wants more waits.
//!
//! What payload takes of a data process's memory are the pool's caps, whatever its peers do. Besides, a transfer keeps at
//! most 17 MiB of ranges that it has received ([`crate::progress::MOST_RANGES`]; one for each connection where the sender
//! takes the file in order), some KiB and up to 64 KiB read ahead for each of its connections, and the digests of its leaves;
//! storage keeps what it must.
//!
//! Senders, receivers and those who only hash draw on separate caps, so that a process that is both ends of a transfer cannot
//! block itself, and nobody who waits for no peer waits for a buffer that one keeps: a sender keeps its block until its peer
//! takes it.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use whimbrel_engine::{Fault, FaultCode, Side};
use whimbrel_sys::pages::Pages;
use whimbrel_sys::poll::{PollFlags, Wake};

use crate::cancel::Cancel;

/// Whose cap a buffer counts against.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    /// Bytes on their way from storage to the network.
    Send,
    /// Bytes on their way from the network to storage.
    Receive,
    /// Stored bytes that are hashed and go nowhere; nobody waits for a peer who holds one.
    Hash,
}

/// Size and caps of a [`Pool`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PoolLimits {
    /// Bytes in one buffer, at least 4 KiB; default 256 KiB.
    pub buffer_size: usize,
    /// Most buffers in use for sending, at least 1; default 128.
    pub send: usize,
    /// Most buffers in use for receiving, at least 1; default 128.
    pub receive: usize,
    /// Most buffers in use for hashing alone, at least 1; default 16.
    pub hash: usize,
    /// Idle buffers kept while none is in use; the rest goes back to the system. Default 8.
    pub low_water: usize,
    /// Idle buffers kept while others are in use, at least `low_water`. Default 32: what two sessions that walk eight
    /// leaves with two threads each take and give back all the time, for fresh pages cost as much as the copy into them.
    pub high_water: usize,
}

impl Default for PoolLimits {
    fn default() -> Self {
        Self { buffer_size: 256 * 1024, send: 128, receive: 128, hash: 16, low_water: 8, high_water: 32 }
    }
}

/// Counters of a [`Pool`], for metrics and tests.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PoolStats {
    /// Buffers in use for sending.
    pub send: usize,
    /// Buffers in use for receiving.
    pub receive: usize,
    /// Buffers kept for the next user.
    pub idle: usize,
    /// Most buffers ever in use at once.
    pub peak: usize,
    /// How often somebody had to wait for a buffer.
    pub waits: u64,
}

/// The buffers of one data process. Clones are the same pool.
#[derive(Clone)]
pub struct Pool {
    inner: Arc<Inner>,
}

struct Inner {
    limits: PoolLimits,
    state: Mutex<State>,
    /// Counts releases for waiters of each class; only raised while somebody waits.
    wakes: [Wake; 3],
}

#[derive(Default)]
struct State {
    idle: Vec<Pages>,
    in_use: [usize; 3],
    waiters: [usize; 3],
    peak: usize,
    waits: u64,
}

impl Class {
    fn index(self) -> usize {
        match self {
            Class::Send => 0,
            Class::Receive => 1,
            Class::Hash => 2,
        }
    }
}

impl Pool {
    /// An empty pool; buffers are made when first needed.
    pub fn new(limits: PoolLimits) -> Result<Self, Fault> {
        let limits = PoolLimits {
            buffer_size: limits.buffer_size.max(4096),
            send: limits.send.max(1),
            receive: limits.receive.max(1),
            hash: limits.hash.max(1),
            high_water: limits.high_water.max(limits.low_water),
            ..limits
        };
        let wake = || Wake::counting().map_err(|error| Fault::from_io(error, "prepare buffers"));
        Ok(Self { inner: Arc::new(Inner { limits, state: Mutex::default(), wakes: [wake()?, wake()?, wake()?] }) })
    }

    /// Size of every buffer, in bytes.
    pub fn buffer_size(&self) -> usize {
        self.inner.limits.buffer_size
    }

    /// A buffer, after waiting for one if the cap is reached.
    ///
    /// Fails with `Cancelled`, or with `OutOfMemory` when the system has none left. Danger: a
    /// thread that holds a buffer of this class must use [`Pool::try_acquire`], or it may wait for
    /// itself.
    pub fn acquire(&self, class: Class, cancel: &Cancel) -> Result<Buffer, Fault> {
        const OP: &str = "wait for a buffer";
        loop {
            cancel.check(OP)?;
            if let Some(buffer) = self.take(class, true)? {
                return Ok(buffer);
            }
            let wake = &self.inner.wakes[class.index()];
            let woken = cancel.wait_for(wake.as_fd(), PollFlags::IN, None, OP);
            wake.clear();
            self.lock().waiters[class.index()] -= 1;
            woken?;
        }
    }

    /// A buffer if the cap allows one now.
    pub fn try_acquire(&self, class: Class) -> Result<Option<Buffer>, Fault> {
        self.take(class, false)
    }

    /// Counters as of now.
    pub fn stats(&self) -> PoolStats {
        let state = self.lock();
        PoolStats {
            send: state.in_use[0],
            receive: state.in_use[1],
            idle: state.idle.len(),
            peak: state.peak,
            waits: state.waits,
        }
    }

    fn take(&self, class: Class, will_wait: bool) -> Result<Option<Buffer>, Fault> {
        let (index, limits) = (class.index(), &self.inner.limits);
        let cap = [limits.send, limits.receive, limits.hash][index];
        let mut state = self.lock();
        if state.in_use[index] >= cap {
            if will_wait {
                state.waiters[index] += 1;
                state.waits += 1;
            }
            return Ok(None);
        }
        state.in_use[index] += 1;
        state.peak = state.peak.max(state.in_use.iter().sum());
        let idle = state.idle.pop();
        drop(state);
        let buffer = |pages| Buffer { pages: Some(pages), class, pool: self.clone() };
        match idle.map_or_else(|| Pages::new(limits.buffer_size), Ok) {
            Ok(pages) => Ok(Some(buffer(pages))),
            Err(error) => {
                self.give_back(class, None);
                let fault = Fault::new(FaultCode::OutOfMemory, "make a buffer").side(Side::Us);
                Err(fault.detail(error.to_string()))
            }
        }
    }

    fn give_back(&self, class: Class, pages: Option<Pages>) {
        let index = class.index();
        let mut state = self.lock();
        state.in_use[index] -= 1;
        let PoolLimits { low_water, high_water, .. } = self.inner.limits;
        let kept = if state.in_use == [0; 3] { low_water } else { high_water };
        state.idle.extend(pages);
        let kept = kept.min(state.idle.len());
        let surplus = state.idle.split_off(kept);
        let waited_for = state.waiters[index] > 0;
        drop(state);
        if waited_for {
            self.inner.wakes[index].signal();
        }
        // Unmapped here, outside the lock.
        drop(surplus);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Counters are consistent at every point where a panic could happen.
        self.inner.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool").field("limits", &self.inner.limits).field("stats", &self.stats()).finish()
    }
}

/// One page-aligned buffer; dropping it gives it back. Its old content is arbitrary.
pub struct Buffer {
    /// `None` only inside `drop`.
    pages: Option<Pages>,
    class: Class,
    pool: Pool,
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.pages.as_ref().expect("present until dropped")
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        self.pages.as_mut().expect("present until dropped")
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        self.pool.give_back(self.class, self.pages.take());
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Buffer({:?}, {} bytes)", self.class, self.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;
    use std::thread;

    fn pool(send: usize, receive: usize, low_water: usize) -> Pool {
        let limits = PoolLimits { buffer_size: 4096, send, receive, hash: 1, low_water, high_water: 2 * low_water };
        Pool::new(limits).expect("pool")
    }

    #[test]
    fn the_cap_holds_and_a_release_wakes_the_waiter() {
        let pool = pool(1, 1, 4);
        let cancel = Cancel::new().expect("cancel");
        let held = pool.acquire(Class::Send, &cancel).expect("first");
        assert!(pool.try_acquire(Class::Send).expect("no fault").is_none());
        let (done, waiting) = (mpsc::channel(), pool.clone());
        let waiter = thread::spawn(move || {
            let buffer = waiting.acquire(Class::Send, &cancel);
            done.0.send(buffer.is_ok()).expect("receiver lives");
        });
        while pool.stats().waits == 0 {
            thread::yield_now();
        }
        assert!(done.1.try_recv().is_err(), "must wait for the held buffer");
        drop(held);
        assert!(done.1.recv().expect("answer"));
        waiter.join().expect("no panic");
        assert_eq!(pool.stats().send, 0);
    }

    #[test]
    fn receivers_and_those_who_hash_are_served_while_senders_hold_everything() {
        let pool = pool(1, 1, 4);
        let cancel = Cancel::new().expect("cancel");
        let _send = pool.acquire(Class::Send, &cancel).expect("send");
        let _receive = pool.try_acquire(Class::Receive).expect("no fault").expect("there is room");
        assert!(pool.try_acquire(Class::Hash).expect("no fault").is_some());
    }

    #[test]
    fn a_waiter_obeys_cancellation() {
        let pool = pool(1, 1, 4);
        let cancel = Cancel::new().expect("cancel");
        let _held = pool.acquire(Class::Send, &cancel).expect("first");
        let (waiting, token) = (pool.clone(), cancel.clone());
        let waiter = thread::spawn(move || waiting.acquire(Class::Send, &token).map(drop));
        cancel.cancel();
        let fault = waiter.join().expect("no panic").expect_err("cancelled");
        assert_eq!(fault.code, FaultCode::Cancelled);
    }

    #[test]
    fn more_idle_buffers_are_kept_while_others_are_in_use_and_the_rest_goes_back_to_the_system() {
        let pool = pool(8, 8, 2);
        let mut held: Vec<_> = (0..8).map(|_| pool.try_acquire(Class::Send).expect("no fault")).collect();
        assert!(held.iter().all(Option::is_some));
        held.truncate(1);
        assert_eq!((pool.stats().idle, pool.stats().send), (4, 1));
        drop(held);
        let stats = pool.stats();
        assert_eq!((stats.idle, stats.send, stats.peak), (2, 0, 8));
    }

    #[test]
    fn many_threads_share_few_buffers_without_losing_a_wakeup() {
        let pool = pool(2, 1, 1);
        let cancel = Cancel::new().expect("cancel");
        thread::scope(|scope| {
            for _ in 0..6 {
                scope.spawn(|| {
                    for _ in 0..500 {
                        let mut buffer = pool.acquire(Class::Send, &cancel).expect("buffer");
                        buffer[0] = 1;
                        thread::yield_now();
                    }
                });
            }
        });
        let stats = pool.stats();
        assert!(stats.peak <= 2 && stats.send == 0, "{stats:?}");
    }
}
