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

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn one_may_do_it_to_oneself() {
        let (socket, _other) = UnixStream::pair().expect("two sockets");
        for meddling in Meddling::ALL {
            meddling.attempt(std::process::id(), &socket).expect("allowed");
        }
    }
}
