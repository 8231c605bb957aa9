//! Listings: LIST, NLST, MLSD, MLSR over the data connection; MLST, MLSC, STAT over the control connection.

use bytes::{BufMut, BytesMut};

use super::answer::{Answer, put_line};
use super::data;
use super::failure;
use super::session::Session;
use super::step::{Step, Task};
use super::transfer::Transfer;
use crate::op::{ListForm, ListSpec, Notice, Op, Outcome};

/// LIST, NLST (RFC 959 §4.1.3), MLSD (RFC 3659 §7), MLSR (GCT practice).
pub(super) fn over_data(session: &mut Session, form: ListForm, path: Option<&[u8]>, flags: Vec<u8>) -> Step {
    let spec = spec(session, form, path, flags);
    data::begin(session, Transfer::listing(spec))
}

/// MLSC (GCT practice): `250-Contents of P`, or parts as `150-` replies before it.
pub(super) fn contents(session: &Session, path: Option<&[u8]>) -> Step {
    let op = Op::Listing(spec(session, ListForm::Facts, path, Vec::new()));
    let shown = shown_path(session, path);
    Step::run(op, Task::Contents(Contents { path: shown, held: None }))
}

/// STAT with a path: LIST over the control connection (RFC 959 §4.1.3).
pub(super) fn status_of(session: &Session, path: &[u8]) -> Step {
    let op = Op::Listing(spec(session, ListForm::Long, Some(path), Vec::new()));
    Step::run(op, Task::StatusOf(StatusOf { path: path.to_vec(), begun: false }))
}

/// MLST (RFC 3659 §7): exactly one middle line, a leading space, facts, a space, the path as given.
pub(super) fn facts(session: &Session, path: Option<&[u8]>) -> Step {
    let op = Op::Facts { path: session.resolve_or_cwd(path), facts: session.facts.clone() };
    Step::run(op, Task::Facts { path: shown_path(session, path) })
}

/// The MLST line; the name after the facts becomes the path the client gave.
pub(super) fn finish_facts(path: &[u8], outcome: Outcome) -> Step {
    Step::Answer(match outcome {
        Outcome::Line(line) => {
            let mut text = facts_of(&line).to_vec();
            text.push(b' ');
            text.extend_from_slice(path);
            Answer::listing(250, [b"status of ", path].concat(), "End.").with(text)
        }
        other => failure::unexpected(other),
    })
}

/// Facts end at the first `;` before a space; without facts the line begins with the space (RFC 3659 §7.2).
fn facts_of(line: &[u8]) -> &[u8] {
    if line.first() == Some(&b' ') {
        return &[];
    }
    line.windows(2).position(|pair| pair == b"; ").map_or(line, |end| &line[..=end])
}

fn shown_path(session: &Session, path: Option<&[u8]>) -> Vec<u8> {
    path.filter(|path| !path.is_empty()).map_or_else(|| session.cwd.clone(), <[u8]>::to_vec)
}

fn spec(session: &Session, form: ListForm, path: Option<&[u8]>, flags: Vec<u8>) -> ListSpec {
    ListSpec {
        path: session.resolve_or_cwd(path),
        written: directory_of(path.unwrap_or_default()).to_vec(),
        form,
        facts: session.facts.clone(),
        flags,
        continue_on_error: session.recursion.continue_on_error,
        follow_links: session.recursion.follow_links,
    }
}

/// Up to and with the last `/`.
fn directory_of(path: &[u8]) -> &[u8] {
    path.iter().rposition(|&byte| byte == b'/').map_or(&[], |slash| &path[..=slash])
}

/// An MLSC under way: the latest part is held back until it is known whether it is the last.
#[derive(Debug)]
pub(super) struct Contents {
    path: Vec<u8>,
    held: Option<Vec<u8>>,
}

impl Contents {
    /// Sends the part before this one as `150-`.
    pub(super) fn notice(&mut self, notice: Notice, out: &mut BytesMut) {
        let Notice::Lines(lines) = notice else { return };
        if let Some(before) = self.held.replace(lines) {
            self.put(150, &before, out);
        }
    }

    /// The last part as `250-`, or the failure.
    pub(super) fn finish(self, outcome: Outcome) -> Step {
        Step::Answer(match outcome {
            Outcome::Failed(failure) => failure::answer(&failure),
            _ => self.held.iter().flat_map(|lines| split_lines(lines)).fold(self.head(250), Answer::with),
        })
    }

    fn head(&self, code: u16) -> Answer {
        Answer::listing(code, [b"Contents of ", self.path.as_slice()].concat(), "End.")
    }

    fn put(&self, code: u16, lines: &[u8], out: &mut BytesMut) {
        split_lines(lines).fold(self.head(code), Answer::with).write(out);
    }
}

/// A STAT of a path under way: lines go out as they come.
#[derive(Debug)]
pub(super) struct StatusOf {
    path: Vec<u8>,
    begun: bool,
}

impl StatusOf {
    /// Sends the lines.
    pub(super) fn notice(&mut self, notice: Notice, out: &mut BytesMut) {
        let Notice::Lines(lines) = notice else { return };
        if !std::mem::replace(&mut self.begun, true) {
            out.put_slice(b"213-");
            put_line(&[b"status of ", self.path.as_slice()].concat(), out);
        }
        for line in split_lines(&lines) {
            out.put_u8(b' ');
            put_line(line, out);
        }
    }

    /// True if the first line is sent.
    pub(super) fn has_begun(&self) -> bool {
        self.begun
    }

    /// `213 End.`; a failure after the first line can only be told in the text, for the code is fixed by then.
    pub(super) fn finish(self, outcome: Outcome) -> Step {
        Step::Answer(match outcome {
            Outcome::Failed(failure) if self.begun => Answer::line(213, format!("Incomplete: {}", failure.text)),
            Outcome::Failed(failure) => failure::answer(&failure),
            _ if self.begun => Answer::line(213, "End."),
            _ => Answer::listing(213, [b"status of ", self.path.as_slice()].concat(), "End."),
        })
    }
}

/// The lines of a notice without their CRLF.
fn split_lines(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = text;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let end = rest.windows(2).position(|pair| pair == b"\r\n");
        let (line, after) = end.map_or((rest, rest.len()), |end| (&rest[..end], end + 2));
        rest = &rest[after..];
        Some(line)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_split_at_crlf_only() {
        let lines: Vec<&[u8]> = split_lines(b"a\nb\r\n\r\nc").collect();
        assert_eq!(lines, [b"a\nb".as_slice(), b"", b"c"]);
        assert_eq!(split_lines(b"").count(), 0);
    }

    #[test]
    fn facts_end_before_the_name_whatever_it_holds() {
        assert_eq!(facts_of(b"Type=file;UNIX.owner=a b; /a; b"), b"Type=file;UNIX.owner=a b;");
        assert_eq!(facts_of(b" /a; b"), b"");
        assert_eq!(facts_of(b"Type=file;"), b"Type=file;");
    }
}
