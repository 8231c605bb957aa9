//! Waiting for descriptors, and a descriptor that wakes a waiter.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, Timespec, eventfd};
pub use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;

/// Waits until a descriptor is ready or `timeout` has passed (`None`: for ever); 0 means time-out.
///
/// Interrupted waits go on with the time that is left.
pub fn wait(fds: &mut [PollFd<'_>], timeout: Option<Duration>) -> io::Result<usize> {
    let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
    let mut left = timeout;
    loop {
        // A wait too long for the kernel's clock is as good as for ever.
        let timespec = left.and_then(|left| Timespec::try_from(left).ok());
        match rustix::event::poll(fds, timespec.as_ref()) {
            Err(Errno::INTR) => {
                left = deadline.map(|at| at.saturating_duration_since(Instant::now()));
            }
            result => return Ok(result?),
        }
    }
}

/// A flag other threads can wait for with [`wait`]: readable once signalled.
#[derive(Debug)]
pub struct Wake {
    fd: OwnedFd,
}

impl Wake {
    /// A signal that stays on until [`Wake::clear`].
    pub fn new() -> io::Result<Self> {
        Self::with_flags(EventfdFlags::empty())
    }

    /// A counter of signals: each [`Wake::clear`] takes one.
    pub fn counting() -> io::Result<Self> {
        Self::with_flags(EventfdFlags::SEMAPHORE)
    }

    fn with_flags(flags: EventfdFlags) -> io::Result<Self> {
        let flags = flags | EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        Ok(Self { fd: eventfd(0, flags)? })
    }

    /// Makes the descriptor readable.
    pub fn signal(&self) {
        // The only failure is a counter at its maximum, which is readable already.
        let _ = rustix::io::write(&self.fd, &1u64.to_ne_bytes());
    }

    /// Takes the signal (or one of them); harmless when there is none.
    pub fn clear(&self) {
        let _ = rustix::io::read(&self.fd, &mut [0u8; 8]);
    }
}

impl AsFd for Wake {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_ready(wake: &Wake) -> bool {
        let mut fds = [PollFd::new(wake, PollFlags::IN)];
        wait(&mut fds, Some(Duration::ZERO)).expect("poll") == 1
    }

    #[test]
    fn a_signal_stays_until_it_is_cleared() {
        let wake = Wake::new().expect("eventfd");
        assert!(!is_ready(&wake));
        wake.signal();
        wake.signal();
        assert!(is_ready(&wake));
        wake.clear();
        assert!(!is_ready(&wake));
    }

    #[test]
    fn a_counting_signal_serves_as_many_waiters_as_it_was_raised() {
        let wake = Wake::counting().expect("eventfd");
        wake.signal();
        wake.signal();
        wake.clear();
        assert!(is_ready(&wake));
        wake.clear();
        assert!(!is_ready(&wake));
    }

    #[test]
    fn a_wait_that_is_too_long_to_count_is_still_woken() {
        let wake = Wake::new().expect("eventfd");
        wake.signal();
        let mut fds = [PollFd::new(&wake, PollFlags::IN)];
        assert_eq!(wait(&mut fds, Some(Duration::MAX)).expect("poll"), 1);
    }
}
