//! Ways to signal another process that look like work on one's own threads and descriptors: what confined processes are refused, and the
//! tests that find out whether they are.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// Such a way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Meddling {
    /// tgkill(2) of another process's thread.
    Thread,
    /// fcntl(2) F_SETOWN: signals of a descriptor go to another process.
    Owner,
    /// ioctl(2) FIOSETOWN: the same for a socket, and by the kernel's own test of rights.
    SocketOwner,
}

/// The first argument of fcntl(2) that gives a descriptor's signals to somebody, 32 bits of it: F_SETOWN and F_SETOWN_EX.
pub const OWNER_COMMANDS: [u32; 2] = [libc::F_SETOWN as u32, 15];

/// The requests of ioctl(2) that do: FIOSETOWN and SIOCSPGRP (asm-generic/sockios.h).
pub const OWNER_REQUESTS: [u32; 2] = [0x8901, 0x8902];

impl Meddling {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Thread, Self::Owner, Self::SocketOwner];

    /// Asks whether the process of this number could be signalled (signal 0), or makes it the owner of a descriptor.
    pub fn attempt(self, process: u32, descriptor: impl AsFd) -> io::Result<()> {
        let (process, descriptor) = (process as libc::pid_t, descriptor.as_fd().as_raw_fd());
        let made = match self {
            // SAFETY: tgkill takes three numbers; signal 0 is sent to nobody.
            Self::Thread => unsafe { libc::syscall(libc::SYS_tgkill, process, process, 0) },
            // SAFETY: the descriptor is borrowed for the call; the third argument is a number.
            Self::Owner => unsafe { libc::fcntl(descriptor, libc::F_SETOWN, process) }.into(),
            Self::SocketOwner => {
                let (request, owner) = (OWNER_REQUESTS[0] as libc::Ioctl, &raw const process);
                // SAFETY: as above; the request reads the number behind the pointer, which lives as long as the call.
                unsafe { libc::ioctl(descriptor, request, owner) }.into()
            }
        };
        if made < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }
}

/// Takes a process under control as a debugger does (ptrace(2), PTRACE_SEIZE), and lets it go again.
///
/// The process must be a child of the calling thread's, or one that the kernel lets it trace; afterwards it runs as before.
pub fn trace(process: u32) -> io::Result<()> {
    let process = process as libc::pid_t;
    let none = std::ptr::null_mut::<libc::c_void>();
    let ask = |request: libc::c_uint| {
        // SAFETY: these requests take a process and two numbers, which are zero; no memory of ours is read or written.
        let made = unsafe { libc::ptrace(request, process, none, none) };
        if made < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    };
    ask(libc::PTRACE_SEIZE)?;
    // Only one that has stopped can be let go.
    ask(libc::PTRACE_INTERRUPT)?;
    // SAFETY: nothing is written where the pointer to the status is null.
    if unsafe { libc::waitpid(process, std::ptr::null_mut(), libc::__WALL) } < 0 {
        return Err(io::Error::last_os_error());
    }
    ask(libc::PTRACE_DETACH)
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::os::unix::net::UnixStream;
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn one_may_do_it_to_oneself() {
        let (socket, _other) = UnixStream::pair().expect("two sockets");
        for meddling in Meddling::ALL {
            meddling.attempt(std::process::id(), &socket).expect("allowed");
        }
    }

    #[test]
    fn a_child_that_was_traced_goes_on() {
        let mut child = Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("a child");
        let mut byte = [0];
        for _ in 0..2 {
            child.stdin.as_mut().expect("piped").write_all(b"!").expect("it reads");
            child.stdout.as_mut().expect("piped").read_exact(&mut byte).expect("it answers");
            trace(child.id()).expect("one may trace one's children");
        }
        drop(child.stdin.take());
        assert!(child.wait().expect("it ends").success());
        assert!(trace(child.id()).is_err(), "it is gone");
    }
}
