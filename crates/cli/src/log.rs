//! Log lines on standard error: one event, one line, whatever strangers put into it.

use std::io::{self, Write};

/// Standard error that shows control characters instead of obeying them: a name with a line end in it must not become a
/// line of its own, nor one with an escape sequence change what a terminal shows.
pub struct Plain {
    /// Colours of the formatter's own are let through.
    pub colours: bool,
}

impl Write for Plain {
    /// Takes an event whole, as the formatter gives it. One that cannot be written is lost: who read them may be gone (a log
    /// service that has crashed, a terminal that was closed), and transfers go on.
    fn write(&mut self, event: &[u8]) -> io::Result<usize> {
        let _ = io::stderr().lock().write_all(shown(event, self.colours).as_bytes());
        Ok(event.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
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
