//! Lists of pairs: `SRC DST` on each line, quoted where names hold spaces.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, BufRead, BufReader};

use tokio::sync::mpsc::Sender;
use whimbrel_dtn::client::lines;
use whimbrel_dtn::client::options::Place;
use whimbrel_engine::{Fault, FaultCode, Side};

use crate::place;

const READ: &str = "read the list";

/// A list that can be read.
pub struct List {
    name: String,
    input: Box<dyn BufRead + Send>,
}

impl List {
    /// Opens a file; `-` is standard input.
    ///
    /// # Errors
    /// It cannot be opened, in words for the user.
    pub fn open(file: &OsStr) -> Result<Self, String> {
        let name = file.to_string_lossy().into_owned();
        if file == "-" {
            return Ok(Self { name, input: Box::new(BufReader::new(io::stdin())) });
        }
        let opened = File::open(file).map_err(|error| format!("--list {name}: {error}"))?;
        Ok(Self { name, input: Box::new(BufReader::new(opened)) })
    }

    /// Reads pairs on a thread of its own, because a pipe may be slow; the first bad line ends the list.
    pub fn read_in_background(
        self,
        pairs: Sender<Result<(Place, Place), Fault>>,
        mut log_in: impl FnMut(&mut Place, &mut Place) -> Result<(), Fault> + Send + 'static,
    ) {
        let Self { name, input } = self;
        std::thread::spawn(move || {
            for (number, line) in input.split(b'\n').enumerate() {
                let read = line.map_err(|error| Fault::from_io(error, READ));
                let parsed = read.and_then(|line| {
                    parse_line(&line).map_err(|text| Fault::new(FaultCode::InvalidArgument, READ).detail(text))
                });
                let complete = |pair: Option<(Place, Place)>| match pair {
                    Some((mut source, mut destination)) => {
                        log_in(&mut source, &mut destination).map(|()| Some((source, destination)))
                    }
                    None => Ok(None),
                };
                let pair = parsed.and_then(complete).map_err(|fault| at(fault, &name, number + 1));
                let Some(pair) = pair.transpose() else { continue };
                let last = pair.is_err();
                // The copy may have ended early; nobody needs the rest then.
                if pairs.blocking_send(pair).is_err() || last {
                    return;
                }
            }
        });
    }
}

/// A fault with the line that it is about, counted from 1: nothing behind it is read.
fn at(fault: Fault, list: &str, line: usize) -> Fault {
    let about = [fault.subject.as_str(), fault.detail.as_str()].into_iter().filter(|text| !text.is_empty());
    let about = about.collect::<Vec<_>>().join(": ");
    let detail = format!("{about}; nothing behind line {line} was read");
    fault.subject(format!("{list}:{line}")).detail(detail).side(Side::Us)
}

/// `None` for empty lines and comments.
fn parse_line(line: &[u8]) -> Result<Option<(Place, Place)>, String> {
    let Some([source, destination]) = lines::pair(line)? else { return Ok(None) };
    let read = |word: Vec<u8>| place::parse(&word).map_err(|error| error.to_string());
    Ok(Some((read(source)?, read(destination)?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_are_skipped_and_single_words_refused() {
        assert_eq!(parse_line(b"  # x y"), Ok(None));
        assert_eq!(parse_line(b""), Ok(None));
        assert!(parse_line(b"only").is_err());
        let (source, destination) = parse_line(b"h:/a /b\r").unwrap().unwrap();
        assert_eq!((&source.path[..], &destination.path[..]), (&b"/a"[..], &b"/b"[..]));
        assert!(source.target.is_some() && destination.target.is_none());
    }
}
