//! A request to stop that every blocking wait obeys at once.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use whimbrel_engine::{Fault, FaultCode, Side};
use whimbrel_sys::poll::{self, PollFd, PollFlags, Wake};

/// Shared by the one who may stop a transfer and everything that works on it.
///
/// Clones are the same token. Once cancelled it stays so.
#[derive(Debug, Clone)]
pub struct Cancel {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    cancelled: AtomicBool,
    wake: Wake,
}

impl Cancel {
    /// A fresh token; fails with `TooManyOpen` when the process has no descriptor left.
    pub fn new() -> Result<Self, Fault> {
        let wake = Wake::new().map_err(|error| Fault::from_io(error, "prepare transfer"))?;
        Ok(Self { inner: Arc::new(Inner { cancelled: AtomicBool::new(false), wake }) })
    }

    /// Stops everything that works under this token, waiting or not.
    pub fn cancel(&self) {
        self.inner.cancelled.store(true, Ordering::Release);
        self.inner.wake.signal();
    }

    /// Whether [`Cancel::cancel`] was called.
    pub fn is_cancelled(&self) -> bool {
        self.inner.cancelled.load(Ordering::Acquire)
    }

    /// `Cancelled` once cancelled, naming the operation it stopped.
    pub fn check(&self, op: &str) -> Result<(), Fault> {
        if self.is_cancelled() {
            return Err(Fault::new(FaultCode::Cancelled, op));
        }
        Ok(())
    }

    /// Sleeps until `deadline`, or fails at once with `Cancelled`.
    pub fn sleep_until(&self, deadline: Instant, op: &str) -> Result<(), Fault> {
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return self.check(op);
            }
            self.wait(&mut [], Some(left), op)?;
        }
    }

    /// Waits until one of `fds` is ready (`true`), `timeout` passes (`false`), or cancellation.
    pub fn wait_for(
        &self,
        fd: BorrowedFd<'_>,
        flags: PollFlags,
        timeout: Option<Duration>,
        op: &str,
    ) -> Result<bool, Fault> {
        let mut extra = [PollFd::from_borrowed_fd(fd, flags)];
        self.wait(&mut extra, timeout, op)
    }

    /// As [`Cancel::wait_for`] for any of several descriptors.
    pub fn wait_for_any(
        &self,
        fds: &[(BorrowedFd<'_>, PollFlags)],
        timeout: Option<Duration>,
        op: &str,
    ) -> Result<bool, Fault> {
        let mut all: Vec<_> = fds.iter().map(|&(fd, flags)| PollFd::from_borrowed_fd(fd, flags)).collect();
        self.wait(&mut all, timeout, op)
    }

    fn wait(&self, fds: &mut [PollFd<'_>], timeout: Option<Duration>, op: &str) -> Result<bool, Fault> {
        let mut all = vec![PollFd::new(&self.inner.wake, PollFlags::IN)];
        all.extend(fds.iter().cloned());
        let ready = poll::wait(&mut all, timeout).map_err(|error| Fault::from_io(error, op))?;
        self.check(op)?;
        Ok(ready > 0)
    }
}

impl AsFd for Cancel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.inner.wake.as_fd()
    }
}

/// As `fault`, a wait in vain that names the last one who came and was turned away.
pub(crate) fn after_refusal(fault: Fault, refusal: Option<&str>) -> Fault {
    match refusal {
        Some(refusal) if fault.code == FaultCode::TimedOut => {
            let detail = format!("{}; the last that came was turned away: {refusal}", fault.detail);
            fault.detail(detail)
        }
        _ => fault,
    }
}

/// A fault of waiting in vain.
pub(crate) fn timed_out(op: &str, after: Duration) -> Fault {
    Fault::new(FaultCode::TimedOut, op)
        .side(Side::Network)
        .detail(format!("nothing within {:.1} s", after.as_secs_f64()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sleeper_is_woken_by_cancellation() {
        let cancel = Cancel::new().expect("cancel");
        let other = cancel.clone();
        let far = Instant::now() + Duration::from_secs(3600);
        let sleeper = std::thread::spawn(move || other.sleep_until(far, "wait"));
        cancel.cancel();
        let fault = sleeper.join().expect("no panic").expect_err("cancelled");
        assert_eq!(fault.code, FaultCode::Cancelled);
        assert_eq!(fault.op, "wait");
    }

    #[test]
    fn sleep_ends_at_its_deadline_when_nobody_cancels() {
        let cancel = Cancel::new().expect("cancel");
        let soon = Instant::now() + Duration::from_millis(5);
        cancel.sleep_until(soon, "wait").expect("not cancelled");
        assert!(Instant::now() >= soon);
        assert!(cancel.check("wait").is_ok());
    }
}
