//! Whether a source still is what was copied, which is asked before it is deleted.

use whimbrel_engine::listing::{Object, ObjectKind, Timestamp, file_number};
use whimbrel_engine::{Fault, FaultCode};
use whimbrel_proto::op::{Op, Outcome};

use crate::client::end::described;

/// What is asked about a source next, and what was copied.
#[derive(Debug)]
pub(super) struct Look {
    copied: Object,
    /// What has its copy's name.
    copy: Option<Object>,
    question: Question,
}

#[derive(Debug, Clone, Copy)]
enum Question {
    Facts,
    /// Servers without MLST are asked for these two.
    Size,
    Time,
}

/// What a look has shown.
#[derive(Debug)]
pub(super) enum Seen {
    Same,
    Changed,
    Gone,
    /// It is its own copy: two names, or two servers, lead to one file.
    Copy,
    /// Something else has to be asked.
    Unclear(Box<Look>),
}

impl Look {
    /// At a file, with what is known of the one that was copied.
    pub(super) fn at_file(size: Option<u64>, modified: Option<Timestamp>) -> Self {
        let copied = Object { size, modified, ..Object::bare("", ObjectKind::File) };
        Self { copied, copy: None, question: Question::Facts }
    }

    /// At a link, with what the one that was copied says.
    pub(super) fn at_link(target: Vec<u8>) -> Self {
        Self { copied: Object::symlink("", target), copy: None, question: Question::Facts }
    }

    /// The same, and what has its copy's name, which it must not be itself.
    pub(super) fn with_copy(self, copy: Option<Object>) -> Self {
        Self { copy, ..self }
    }

    /// What is asked.
    pub(super) fn op(&self, path: &[u8]) -> Op {
        match self.question {
            Question::Facts => Op::Facts { path: path.to_vec(), facts: None },
            Question::Size => Op::Size(path.to_vec()),
            Question::Time => Op::Modified(path.to_vec()),
        }
    }

    /// What the answer shows.
    ///
    /// # Errors
    /// Nothing can be told of it now.
    pub(super) fn seen(&self, path: &[u8], answer: Result<Outcome, Fault>) -> Result<Seen, Fault> {
        let is_link = matches!(self.copied.kind, ObjectKind::Symlink { .. });
        let now = match (self.question, answer) {
            (Question::Facts, Err(fault)) if fault.code == FaultCode::NotSupported => {
                return Ok(if is_link { Seen::Same } else { self.then(Question::Size) });
            }
            (Question::Facts, answer) => match described(answer, path, is_link)? {
                Some(now) => now,
                // Some say so of a link to nothing.
                None => return Ok(if is_link { Seen::Same } else { Seen::Gone }),
            },
            (Question::Size, Ok(Outcome::Size(size))) => Object::file("", size),
            (Question::Time, Ok(Outcome::Modified(secs, nanos))) => {
                Object::bare("", ObjectKind::File).modified(Timestamp { secs, nanos })
            }
            (_, Err(fault)) if fault.is_temporary() => return Err(fault),
            // FTP has one code for everything that is wrong with a file: its deletion will tell.
            (_, _) => Object::bare("", ObjectKind::File),
        };
        Ok(match self.question {
            _ if !same(&self.copied, &now) => Seen::Changed,
            _ if self.copy.as_ref().is_some_and(|copy| is_one_file(copy, &now)) => Seen::Copy,
            Question::Size => self.then(Question::Time),
            Question::Facts | Question::Time => Seen::Same,
        })
    }

    fn then(&self, question: Question) -> Seen {
        Seen::Unclear(Box::new(Self { copied: self.copied.clone(), copy: self.copy.clone(), question }))
    }
}

/// What is not known differs in nothing.
fn same(copied: &Object, now: &Object) -> bool {
    if let ObjectKind::Symlink { target: copied } = &copied.kind {
        return matches!(&now.kind, ObjectKind::Symlink { target } if target == copied);
    }
    copied.size.zip(now.size).is_none_or(|(copied, now)| copied == now)
        && copied.modified.zip(now.modified).is_none_or(|(copied, now)| copied == now)
}

/// Whether two descriptions are of one file, as far as servers tell.
fn is_one_file(one: &Object, other: &Object) -> bool {
    let uniques = one.unique.as_deref().zip(other.unique.as_deref());
    uniques.is_some_and(|(one, other)| file_number(one) == file_number(other))
        && (one.size, one.modified) == (other.size, other.modified)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(line: &str) -> Result<Outcome, Fault> {
        Ok(Outcome::Line(line.as_bytes().to_vec()))
    }

    fn fault(code: FaultCode) -> Result<Outcome, Fault> {
        Err(Fault::new(code, "test"))
    }

    fn look() -> Look {
        Look::at_file(Some(3), Some(Timestamp::from_secs(1_700_000_000)))
    }

    #[test]
    fn a_file_goes_only_while_it_is_what_was_copied() {
        let seen = |answer| look().seen(b"/f", answer);
        assert!(matches!(seen(facts("type=file;size=3;modify=20231114221320; /f")), Ok(Seen::Same)));
        assert!(matches!(seen(facts("type=file;size=4;modify=20231114221320; /f")), Ok(Seen::Changed)));
        assert!(matches!(seen(facts("type=file;size=3;modify=20231114221321; /f")), Ok(Seen::Changed)));
        assert!(matches!(seen(fault(FaultCode::NotFound)), Ok(Seen::Gone)));
        assert!(seen(fault(FaultCode::StorageBusy)).is_err());
    }

    #[test]
    fn a_file_that_is_its_own_copy_stays() {
        let seen = |copy: &str, now: &str| {
            let copy = described(facts(copy), b"/copy", false).unwrap();
            look().with_copy(copy).seen(b"/f", facts(now))
        };
        let file = |unique: &str, time: &str| format!("type=file;size=3;modify={time};unique={unique}; /f");
        let (then, later) = ("20231114221320", "20231114221321");
        assert!(matches!(seen(&file("fe00-9", then), &file("fe00-9", then)), Ok(Seen::Copy)));
        assert!(matches!(seen(&file("2d-9", then), &file("fe00-9", then)), Ok(Seen::Copy)), "seen from another host");
        assert!(matches!(seen(&file("fe00-8", then), &file("fe00-9", then)), Ok(Seen::Same)));
        assert!(matches!(seen(&file("fe00-9", later), &file("fe00-9", then)), Ok(Seen::Same)), "another file system");
        assert!(
            matches!(seen("type=file;size=3; /f", "type=file;size=3; /f"), Ok(Seen::Same)),
            "servers that do not tell"
        );
    }

    #[test]
    fn servers_without_mlst_are_asked_for_size_and_time() {
        let then = |look: Look, answer| match look.seen(b"/f", answer) {
            Ok(Seen::Unclear(next)) => *next,
            other => panic!("{other:?}"),
        };
        let by_size = || then(look(), fault(FaultCode::NotSupported));
        assert!(matches!(by_size().seen(b"/f", Ok(Outcome::Size(4))), Ok(Seen::Changed)));
        let by_time = || then(by_size(), Ok(Outcome::Size(3)));
        assert!(matches!(by_time().seen(b"/f", Ok(Outcome::Modified(1_700_000_000, 0))), Ok(Seen::Same)));
        assert!(matches!(by_time().seen(b"/f", Ok(Outcome::Modified(1_700_000_001, 0))), Ok(Seen::Changed)));
        assert!(matches!(by_time().seen(b"/f", fault(FaultCode::PeerRefused)), Ok(Seen::Same)));
    }

    #[test]
    fn a_link_goes_only_while_it_says_the_same() {
        let seen = |answer| Look::at_link(b"there".to_vec()).seen(b"/l", answer);
        assert!(matches!(seen(facts("type=file;unix.slink=there; /l")), Ok(Seen::Same)));
        assert!(matches!(seen(facts("type=file;unix.slink=elsewhere; /l")), Ok(Seen::Changed)));
        assert!(matches!(seen(facts("type=file;size=3; /l")), Ok(Seen::Changed)));
        assert!(matches!(seen(fault(FaultCode::NotFound)), Ok(Seen::Same)));
    }
}
