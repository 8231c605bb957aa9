//! Waiting for a signal in a thread of its own, for processes without an event loop.

use std::io;
use std::mem::MaybeUninit;

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

#[cfg(test)]
mod tests {
    use super::*;

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
}
