//! A line that is typed at the terminal and not shown.

use std::fs::File;
use std::io::{self, ErrorKind, Read as _, Write as _};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::termios::{LocalModes, OptionalActions, SpecialCodeIndex, Termios, tcgetattr, tcsetattr};
use whimbrel_sys::signals::Held;

/// Longest line, bytes.
const LONGEST: usize = 4096;

/// The key that erases a character on terminals which send no DEL.
const BACKSPACE: u8 = 8;

/// Asks at the terminal; the terminal is as it was when this returns, or when a signal ends the process.
///
/// # Errors
/// There is no terminal, or it is gone. `Interrupted`: the user has typed Ctrl-C, or a signal came, which has its effect on return.
pub fn ask(question: &str) -> io::Result<String> {
    let terminal = File::options().read(true).write(true).open("/dev/tty")?;
    let signals = Held::new()?;
    let hidden = Hidden::begin(&terminal)?;
    (&terminal).write_all(question.as_bytes())?;
    let line = read_line(&hidden, &signals);
    drop(hidden);
    // The end of the line was not shown either.
    let _ = (&terminal).write_all(b"\n");
    line
}

/// A terminal that shows nothing and makes no signals of keys, until this goes.
struct Hidden<'a> {
    terminal: &'a File,
    before: Termios,
}

impl<'a> Hidden<'a> {
    fn begin(terminal: &'a File) -> io::Result<Self> {
        let before = tcgetattr(terminal)?;
        let mut settings = before.clone();
        let modes = LocalModes::ECHO | LocalModes::ECHONL | LocalModes::ICANON | LocalModes::ISIG | LocalModes::IEXTEN;
        settings.local_modes.remove(modes);
        settings.special_codes[SpecialCodeIndex::VMIN] = 1;
        settings.special_codes[SpecialCodeIndex::VTIME] = 0;
        tcsetattr(terminal, OptionalActions::Drain, &settings)?;
        Ok(Self { terminal, before })
    }

    fn key(&self, index: SpecialCodeIndex) -> u8 {
        self.before.special_codes[index]
    }
}

impl Drop for Hidden<'_> {
    fn drop(&mut self) {
        // A terminal that is gone needs no settings.
        let _ = tcsetattr(self.terminal, OptionalActions::Drain, &self.before);
    }
}

fn read_line(hidden: &Hidden<'_>, signals: &Held) -> io::Result<String> {
    let mut line = Vec::new();
    loop {
        let byte = next(hidden.terminal, signals)?;
        match byte {
            b'\n' | b'\r' => break,
            _ if byte == hidden.key(SpecialCodeIndex::VINTR) || byte == hidden.key(SpecialCodeIndex::VQUIT) => {
                return Err(ErrorKind::Interrupted.into());
            }
            _ if byte == hidden.key(SpecialCodeIndex::VEOF) && line.is_empty() => {
                return Err(ErrorKind::UnexpectedEof.into());
            }
            _ if byte == hidden.key(SpecialCodeIndex::VEOF) => break,
            _ if byte == hidden.key(SpecialCodeIndex::VERASE) || byte == BACKSPACE => erase(&mut line),
            _ if byte == hidden.key(SpecialCodeIndex::VKILL) => line.clear(),
            _ if line.len() < LONGEST => line.push(byte),
            _ => {}
        }
    }
    String::from_utf8(line).map_err(|_| io::Error::new(ErrorKind::InvalidData, "what was typed is not UTF-8"))
}

/// The next byte that is typed; `Interrupted` when a signal comes first.
fn next(mut terminal: &File, signals: &Held) -> io::Result<u8> {
    loop {
        let mut both = [PollFd::new(&signals, PollFlags::IN), PollFd::new(&terminal, PollFlags::IN)];
        match poll(&mut both, None) {
            Ok(_) if both[0].revents().is_empty() => {}
            Ok(_) => return Err(ErrorKind::Interrupted.into()),
            Err(rustix::io::Errno::INTR) => continue,
            Err(error) => return Err(error.into()),
        }
        let mut byte = [0];
        match terminal.read(&mut byte) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(_) => return Ok(byte[0]),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// Takes away the last character, all bytes of it.
fn erase(line: &mut Vec<u8>) {
    while line.pop().is_some_and(|byte| byte & 0xc0 == 0x80) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_character_of_several_bytes_is_erased_at_once() {
        let mut line = "pä".as_bytes().to_vec();
        erase(&mut line);
        assert_eq!(line, b"p");
        (0..2).for_each(|_| erase(&mut line));
        assert!(line.is_empty());
    }
}
