//! Log lines on standard error: one event, one line, whatever strangers put into it.

use std::io::{self, StderrLock, Write};
use std::os::fd::AsFd as _;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// What a pipe takes at once when it takes anything (pipe(7), `PIPE_BUF`), bytes.
const AT_ONCE: usize = 4096;

/// How long a server waits for a reader that has fallen behind: 0.2 s; not at all while lines are being lost.
const PATIENCE: Timespec = Timespec { tv_sec: 0, tv_nsec: 200_000_000 };
const NONE: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };

/// Lines that were lost since one was written.
static LOST: AtomicU64 = AtomicU64::new(0);

/// Standard error that shows control characters instead of obeying them: a name with a line end in it must not become a
/// line of its own, nor one with an escape sequence change what a terminal shows.
pub struct Plain {
    /// Colours of the formatter's own are let through.
    pub colours: bool,
    /// Who writes waits for as long as nobody reads. Servers do not: a terminal that is held (Ctrl-S) or a log service that hangs would hold up
    /// everybody.
    pub waits: bool,
}

impl Write for Plain {
    /// Takes an event whole, as the formatter gives it. One that cannot be written is lost: who read them may be gone (a log
    /// service that has crashed, a terminal that was closed), and transfers go on.
    fn write(&mut self, event: &[u8]) -> io::Result<usize> {
        let (line, mut out) = (shown(event, self.colours), io::stderr().lock());
        let _ = match self.waits {
            true => out.write_all(line.as_bytes()),
            false => write_or_lose(&mut out, line.as_bytes()),
        };
        Ok(event.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Writes a line if somebody reads; how many were lost is said in front of the next one.
fn write_or_lose(out: &mut StderrLock<'_>, line: &[u8]) -> io::Result<()> {
    let lost = LOST.load(Ordering::Relaxed);
    if !takes(out, if lost == 0 { &PATIENCE } else { &NONE }) {
        LOST.fetch_add(1, Ordering::Relaxed);
        return Ok(());
    }
    if lost > 0 {
        LOST.store(0, Ordering::Relaxed);
        writeln!(out, "({lost} lines are missing here: nobody read them)")?;
    }
    for part in line.chunks(AT_ONCE) {
        if !takes(out, &PATIENCE) {
            return Ok(());
        }
        out.write_all(part)?;
    }
    Ok(())
}

/// Whether it takes something within a time. What cannot be asked is written to.
fn takes(out: &StderrLock<'_>, patience: &Timespec) -> bool {
    poll(&mut [PollFd::from_borrowed_fd(out.as_fd(), PollFlags::OUT)], Some(patience)).map_or(true, |ready| ready > 0)
}

fn shown(event: &[u8], colours: bool) -> String {
    let text = String::from_utf8_lossy(event);
    let (line, end) = text.strip_suffix('\n').map_or((&*text, ""), |line| (line, "\n"));
    let mut shown = String::with_capacity(text.len());
    let mut rest = line;
    while let Some(next) = rest.chars().next() {
        let colour = if colours { colour(rest) } else { 0 };
        if colour > 0 {
            shown.push_str(&rest[..colour]);
            rest = &rest[colour..];
            continue;
        }
        match is_unsafe(next) {
            true => shown.extend(next.escape_default()),
            false => shown.push(next),
        }
        rest = &rest[next.len_utf8()..];
    }
    shown + end
}

/// Length of the sequence at the beginning that only changes colours, bytes; 0: there is none.
fn colour(text: &str) -> usize {
    let Some(body) = text.strip_prefix("\u{1b}[") else { return 0 };
    let length = body.bytes().take_while(|byte| byte.is_ascii_digit() || *byte == b';').count();
    if body.as_bytes().get(length) == Some(&b'm') { length + 3 } else { 0 }
}

/// Control characters, and those that turn the direction of writing (Unicode bidirectional controls).
fn is_unsafe(c: char) -> bool {
    c.is_control() || matches!(c, '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_one_line_and_commands_no_terminal() {
        let evil = "INFO user=a\nINFO forged\r\x1b[2J\x07\u{9b}31m\u{202e}\u{2028}b\n";
        let told = "INFO user=a\\nINFO forged\\r\\u{1b}[2J\\u{7}\\u{9b}31m\\u{202e}\\u{2028}b\n";
        assert_eq!(shown(evil.as_bytes(), false), told);
        assert_eq!(shown(evil.as_bytes(), true), told);
    }

    #[test]
    fn text_of_all_languages_and_the_formatters_own_colours_stay() {
        assert_eq!(shown("Grüße an 東京\n".as_bytes(), false), "Grüße an 東京\n");
        let coloured = "\x1b[32m INFO\x1b[0m listening\n";
        assert_eq!(shown(coloured.as_bytes(), true), coloured);
        assert_eq!(shown(coloured.as_bytes(), false), "\\u{1b}[32m INFO\\u{1b}[0m listening\n");
    }

    #[test]
    fn what_is_no_text_is_shown_as_such() {
        assert_eq!(shown(b"a\xff\xfeb\n", false), "a\u{fffd}\u{fffd}b\n");
    }
}
