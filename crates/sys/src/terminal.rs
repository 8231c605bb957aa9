//! Requests to a terminal that act for whoever sits at it: what confined processes are refused, and the tests that find out whether they are.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// Such a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Request {
    /// TIOCSTI: a byte as if it had been typed.
    Type,
    /// TIOCLINUX: pastes what is selected on a console of the kernel.
    Paste,
    /// TIOCSCTTY: becomes the controlling terminal.
    Control,
}

impl Request {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Type, Self::Paste, Self::Control];

    /// Its number, the second argument of ioctl(2), of which the kernel looks at 32 bits.
    pub fn number(self) -> u32 {
        let number = match self {
            Self::Type => libc::TIOCSTI,
            Self::Paste => libc::TIOCLINUX,
            Self::Control => libc::TIOCSCTTY,
        };
        number as u32
    }

    /// Makes it of what should be a terminal; `ENOTTY` if it is none.
    pub fn make(self, terminal: impl AsFd) -> io::Result<()> {
        // The byte that is typed, or the selection that is pasted (TIOCL_PASTESEL).
        let mut byte: libc::c_char = match self {
            Self::Type => b'#' as libc::c_char,
            Self::Paste | Self::Control => 3,
        };
        let descriptor = terminal.as_fd().as_raw_fd();
        // SAFETY: the descriptor is borrowed for the call. TIOCSTI and this subcode of TIOCLINUX read the one byte behind the pointer, which lives as long as
        // the call; TIOCSCTTY takes the pointer for a number and reads nothing.
        let made = unsafe { libc::ioctl(descriptor, self.number() as libc::Ioctl, &raw mut byte) };
        if made < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_terminal_takes_no_request() {
        let file = std::fs::File::open("/dev/null").expect("it is everywhere");
        for request in Request::ALL {
            assert_eq!(request.make(&file).expect_err("refused").raw_os_error(), Some(libc::ENOTTY), "{request:?}");
        }
    }
}
