//! Waiting for signals: in a thread of its own, or as a descriptor to poll.

use std::fmt;
use std::io;
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd};

/// A signal that is blocked, and therefore waits until [`Blocked::wait`] takes it.
#[derive(Debug, Clone, Copy)]
pub struct Blocked {
    signal: libc::c_int,
}

/// Blocks SIGTERM in this thread and in all that it starts from now on; call it before any other thread runs, which the
/// signal would otherwise end with the process.
pub fn block_terminate() -> io::Result<Blocked> {
    block(libc::SIGTERM)
}

fn set_of(signal: libc::c_int) -> libc::sigset_t {
    let mut set = MaybeUninit::uninit();
    // SAFETY: `sigemptyset` fills in the whole set, and `sigaddset` changes the set it has filled in; both fail only for
    // numbers that are no signals, which leaves the set empty.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        libc::sigaddset(set.as_mut_ptr(), signal);
        set.assume_init()
    }
}

fn block(signal: libc::c_int) -> io::Result<Blocked> {
    let set = set_of(signal);
    // SAFETY: `set` is an initialised set that the call only reads; no old mask is asked for.
    match unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &set, std::ptr::null_mut()) } {
        0 => Ok(Blocked { signal }),
        errno => Err(io::Error::from_raw_os_error(errno)),
    }
}

impl Blocked {
    /// Waits for the signal and takes it; for ever, if it never comes.
    pub fn wait(self) -> io::Result<()> {
        let set = set_of(self.signal);
        let mut taken = 0;
        // SAFETY: `set` is an initialised set that the call only reads, `taken` an integer that it writes.
        match unsafe { libc::sigwait(&set, &mut taken) } {
            0 => Ok(()),
            errno => Err(io::Error::from_raw_os_error(errno)),
        }
    }
}

/// A signal that asks for something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signal {
    /// SIGTERM or SIGINT: end gently.
    Terminate,
    /// SIGHUP: read the files again.
    Reload,
    /// SIGCHLD: a child has ended.
    Child,
}

/// Signals as a descriptor that becomes readable.
#[derive(Debug)]
pub struct SignalQueue(OwnedFd);

impl SignalQueue {
    /// Blocks SIGTERM, SIGINT, SIGHUP and SIGCHLD in this thread and queues them from now on; call it before any other
    /// thread runs. Programs started with [`std::process::Command`] get them unblocked.
    pub fn new() -> io::Result<Self> {
        let mut set = set_of(libc::SIGTERM);
        for signal in [libc::SIGINT, libc::SIGHUP, libc::SIGCHLD] {
            // SAFETY: `set` is an initialised set, the number that of a signal.
            unsafe { libc::sigaddset(&mut set, signal) };
        }
        // SAFETY: `set` is an initialised set that the call only reads; no old mask is asked for.
        match unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &set, std::ptr::null_mut()) } {
            0 => {}
            errno => return Err(io::Error::from_raw_os_error(errno)),
        }
        // SAFETY: `set` is an initialised set that the call only reads; a new descriptor is asked for.
        let fd = unsafe { libc::signalfd(-1, &set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the call has just made it, and nothing else owns it.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// The next signal; `None` when there is none now.
    pub fn next(&self) -> io::Result<Option<Signal>> {
        loop {
            let mut record = [0; size_of::<libc::signalfd_siginfo>()];
            match rustix::io::read(&self.0, &mut record) {
                Ok(_) => {}
                Err(rustix::io::Errno::AGAIN) => return Ok(None),
                Err(rustix::io::Errno::INTR) => continue,
                Err(error) => return Err(error.into()),
            }
            // The number of the signal comes first (signalfd(2)).
            let number = u32::from_ne_bytes([record[0], record[1], record[2], record[3]]);
            match i32::try_from(number) {
                Ok(libc::SIGTERM | libc::SIGINT) => return Ok(Some(Signal::Terminate)),
                Ok(libc::SIGHUP) => return Ok(Some(Signal::Reload)),
                Ok(libc::SIGCHLD) => return Ok(Some(Signal::Child)),
                _ => {}
            }
        }
    }
}

impl AsFd for SignalQueue {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Signals that would end the process (SIGTERM, SIGINT, SIGHUP, SIGQUIT), held back from this thread until this goes: the descriptor is readable
/// when one has come, which then has its effect.
#[derive(Debug)]
pub struct Held {
    queue: OwnedFd,
    _mask: Mask,
}

impl Held {
    /// Holds them back from now on. Other threads are not kept from them.
    pub fn new() -> io::Result<Self> {
        let mut set = set_of(libc::SIGTERM);
        for signal in [libc::SIGINT, libc::SIGHUP, libc::SIGQUIT] {
            // SAFETY: `set` is an initialised set, the number that of a signal.
            unsafe { libc::sigaddset(&mut set, signal) };
        }
        let mask = Mask::with(&set)?;
        // SAFETY: `set` is an initialised set that the call only reads; a new descriptor is asked for.
        let fd = unsafe { libc::signalfd(-1, &set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the call has just made it, and nothing else owns it.
        Ok(Self { queue: unsafe { OwnedFd::from_raw_fd(fd) }, _mask: mask })
    }
}

impl AsFd for Held {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.queue.as_fd()
    }
}

/// More blocked signals of this thread; those before come back when it goes. It stays in its thread.
struct Mask {
    before: libc::sigset_t,
    of_thread: PhantomData<*const ()>,
}

impl Mask {
    fn with(set: &libc::sigset_t) -> io::Result<Self> {
        let mut before = MaybeUninit::uninit();
        // SAFETY: `set` is an initialised set that the call only reads; it fills in the whole of `before` when it succeeds.
        match unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, set, before.as_mut_ptr()) } {
            // SAFETY: the call has succeeded.
            0 => Ok(Self { before: unsafe { before.assume_init() }, of_thread: PhantomData }),
            errno => Err(io::Error::from_raw_os_error(errno)),
        }
    }
}

impl fmt::Debug for Mask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mask").finish_non_exhaustive()
    }
}

impl Drop for Mask {
    fn drop(&mut self) {
        // SAFETY: `before` is an initialised set that the call only reads; no old mask is asked for.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &self.before, std::ptr::null_mut()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn held_signals_are_announced_and_the_mask_is_as_before_when_they_are_let_go() {
        let test = || {
            let is_blocked = |signal| {
                let mut set = MaybeUninit::uninit();
                // SAFETY: nothing is changed; the call fills in the whole set, which the next one reads.
                unsafe {
                    assert_eq!(libc::pthread_sigmask(libc::SIG_BLOCK, std::ptr::null(), set.as_mut_ptr()), 0);
                    libc::sigismember(&set.assume_init(), signal) == 1
                }
            };
            let held = Held::new().expect("held");
            assert!(is_blocked(libc::SIGTERM) && is_blocked(libc::SIGINT));
            // SAFETY: the call has no pointers; the signal goes to this thread, which has it blocked.
            assert_eq!(unsafe { libc::pthread_kill(libc::pthread_self(), libc::SIGHUP) }, 0);
            let mut record = [0; size_of::<libc::signalfd_siginfo>()];
            // Taken, so that it does not end this test when it is let go.
            assert_eq!(rustix::io::read(&held, &mut record), Ok(record.len()));
            drop(held);
            assert!(!is_blocked(libc::SIGTERM) && !is_blocked(libc::SIGINT));
        };
        std::thread::spawn(test).join().expect("it lives");
    }

    #[test]
    fn a_blocked_signal_waits_to_be_taken_and_ends_nothing() {
        let test = || {
            let blocked = block(libc::SIGUSR2).expect("blocked");
            // SAFETY: the call has no pointers; the signal goes to this thread, which has it blocked.
            assert_eq!(unsafe { libc::pthread_kill(libc::pthread_self(), libc::SIGUSR2) }, 0);
            blocked.wait().expect("taken");
        };
        // A thread of its own: the mask ends with it.
        std::thread::spawn(test).join().expect("it lives");
    }

    #[test]
    fn queued_signals_are_told_apart() {
        let test = || {
            let queue = SignalQueue::new().expect("queue");
            assert_eq!(queue.next().expect("none yet"), None);
            for (number, signal) in [(libc::SIGHUP, Signal::Reload), (libc::SIGTERM, Signal::Terminate)] {
                // SAFETY: the call has no pointers; the signal goes to this thread, which has it blocked.
                assert_eq!(unsafe { libc::pthread_kill(libc::pthread_self(), number) }, 0);
                assert_eq!(queue.next().expect("one"), Some(signal));
            }
            assert_eq!(queue.next().expect("no more"), None);
        };
        std::thread::spawn(test).join().expect("it lives");
    }
}
