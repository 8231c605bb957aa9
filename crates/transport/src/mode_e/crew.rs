//! What the threads of one transfer share: the first fault, the signal to stop, the bytes moved.

use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::{self, Scope, ScopedJoinHandle};
use std::time::{Duration, Instant};

use std::os::fd::AsFd;
use whimbrel_engine::{Fault, FaultCode, Side};
use whimbrel_sys::poll::{self, PollFd, PollFlags, Wake};

use crate::flow::{Flow, StallWatch};

/// Shared by all threads of one transfer.
pub(super) struct Crew<'a> {
    pub(super) flow: Flow<'a>,
    op: &'static str,
    stopped: AtomicBool,
    /// Wakes the others; made when there are any, for a small file is over before that would pay.
    wake: OnceLock<Wake>,
    fault: Mutex<Option<Fault>>,
    /// Payload bytes moved, part-blocks included: what stalls are judged by.
    moved: AtomicU64,
}

impl<'a> Crew<'a> {
    pub(super) fn new(flow: Flow<'a>, op: &'static str) -> Self {
        Self {
            flow,
            op,
            stopped: AtomicBool::new(false),
            wake: OnceLock::new(),
            fault: Mutex::new(None),
            moved: AtomicU64::new(0),
        }
    }

    /// Prepares for a second thread; call it before one is started.
    pub(super) fn grow(&self) -> Result<(), Fault> {
        if self.wake.get().is_none() {
            let wake = Wake::new().map_err(|error| Fault::from_io(error, self.op).side(Side::Us))?;
            // Only the first thread grows the crew: nobody can have been quicker.
            let _ = self.wake.set(wake);
        }
        Ok(())
    }

    pub(super) fn op(&self) -> &'static str {
        self.op
    }

    pub(super) fn moved(&self) -> u64 {
        self.moved.load(Ordering::Relaxed)
    }

    pub(super) fn add_moved(&self, bytes: usize) {
        self.moved.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Ends the work of all threads.
    pub(super) fn stop(&self) {
        self.stopped.store(true, Ordering::Release);
        if let Some(wake) = self.wake.get() {
            wake.signal();
        }
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Acquire)
    }

    /// Keeps the first fault (later ones are its consequences) and stops everybody.
    pub(super) fn fail(&self, fault: Fault) {
        let mut first = self.fault.lock().unwrap_or_else(PoisonError::into_inner);
        first.get_or_insert(fault);
        drop(first);
        self.stop();
    }

    pub(super) fn take_fault(&self) -> Option<Fault> {
        self.fault.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// The fault of a thread that died.
    pub(super) fn panicked(&self) -> Fault {
        Fault::new(FaultCode::Internal, self.op).side(Side::Us).detail("a worker thread panicked")
    }

    pub(super) fn stall_watch(&self) -> StallWatch {
        StallWatch::new(self.flow.stall, Instant::now(), self.moved())
    }

    /// Polls `fds` besides the two signals; returns what each is ready for.
    pub(super) fn poll(
        &self,
        fds: &[(BorrowedFd<'_>, PollFlags)],
        timeout: Option<Duration>,
    ) -> Result<Vec<PollFlags>, Fault> {
        let mut all = Vec::with_capacity(fds.len() + 2);
        for &(fd, flags) in fds {
            all.push(PollFd::from_borrowed_fd(fd, flags));
        }
        all.push(PollFd::new(self.flow.cancel, PollFlags::IN));
        if let Some(wake) = self.wake.get() {
            all.push(PollFd::from_borrowed_fd(wake.as_fd(), PollFlags::IN));
        }
        poll::wait(&mut all, timeout).map_err(|error| Fault::from_io(error, self.op))?;
        self.flow.cancel.check(self.op)?;
        Ok(all[..fds.len()].iter().map(PollFd::revents).collect())
    }

    /// Pays for `bytes` and waits; returns early when the crew is stopped.
    pub(super) fn pay(&self, bytes: usize, stall: &mut StallWatch) -> Result<(), Fault> {
        let Some(rate) = self.flow.rate else {
            return Ok(());
        };
        let start = Instant::now();
        let until = start + rate.pay(bytes as u64, start);
        loop {
            let now = Instant::now();
            if now >= until || self.is_stopped() {
                stall.excuse(now - start);
                return Ok(());
            }
            self.poll(&[], Some(until - now))?;
        }
    }
}

/// Starts a thread that does `work` with `load`; gives the load back when the system has no thread.
pub(super) fn start<'scope, T: Send + 'scope>(
    scope: &'scope Scope<'scope, '_>,
    load: T,
    work: impl FnOnce(T) + Send + 'scope,
) -> Result<ScopedJoinHandle<'scope, ()>, T> {
    let load = Arc::new(Mutex::new(Some(load)));
    let take = |load: &Mutex<Option<T>>| load.lock().unwrap_or_else(PoisonError::into_inner).take();
    let theirs = load.clone();
    let started = builder().spawn_scoped(scope, move || work(take(&theirs).expect("taken back when none started")));
    started.map_err(|error| {
        tracing::warn!(%error, "no thread to be had: going on with fewer");
        take(&load).expect("taken by a started thread only")
    })
}

#[cfg(not(test))]
fn builder() -> thread::Builder {
    thread::Builder::new()
}

#[cfg(test)]
thread_local! {
    /// How many threads this one may still start.
    pub(super) static THREADS_LEFT: std::cell::Cell<usize> = const { std::cell::Cell::new(usize::MAX) };
}

/// A thread whose stack no address space holds cannot be had.
#[cfg(test)]
fn builder() -> thread::Builder {
    let left = THREADS_LEFT.get();
    THREADS_LEFT.set(left.saturating_sub(1));
    let builder = thread::Builder::new();
    if left == 0 { builder.stack_size(1 << 60) } else { builder }
}
