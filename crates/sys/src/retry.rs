//! Reading that goes on when it was interrupted.

use std::io::{self, ErrorKind, Read};

/// Reads once, anew whenever that was interrupted; 0 means the end, or no room in `buffer`.
///
/// A read with a time-out (SO_RCVTIMEO) is interrupted by a stop, too, even where no signal is handled (signal(7)): after Ctrl-Z, after a
/// suspended machine or container wakes up, or when a debugger lets go. The time-out counts from there again.
pub fn read(source: &mut (impl Read + ?Sized), buffer: &mut [u8]) -> io::Result<usize> {
    loop {
        match source.read(buffer) {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Answers with what it is told, the last first.
    struct Told(Vec<io::Result<usize>>);

    impl Read for Told {
        fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
            self.0.pop().expect("nobody reads on after an answer")
        }
    }

    #[test]
    fn only_an_interruption_is_no_answer() {
        let interrupted = || Err(ErrorKind::Interrupted.into());
        let read = |last| super::read(&mut Told(vec![last, interrupted(), interrupted()]), &mut [0; 9]);
        assert_eq!(read(Ok(7)).expect("bytes"), 7);
        assert_eq!(read(Ok(0)).expect("the end"), 0);
        assert_eq!(read(Err(ErrorKind::WouldBlock.into())).expect_err("nothing in time").kind(), ErrorKind::WouldBlock);
    }
}
