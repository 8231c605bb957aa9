//! Lists of pairs: `SRC DST` on each line, quoted where names hold spaces.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, BufRead, BufReader};

use tokio::sync::mpsc::Sender;
use whimbrel_dtn::client::lines;
use whimbrel_dtn::client::options::Place;
use whimbrel_engine::{Fault, FaultCode, Side};

use crate::place;

/// Reads pairs on a thread of its own, because a pipe may be slow; the first bad line ends the list.
pub fn read_in_background(
    file: OsString,
    pairs: Sender<Result<(Place, Place), Fault>>,
    mut log_in: impl FnMut(&mut Place, &mut Place) -> Result<(), Fault> + Send + 'static,
) -> Result<(), Fault> {
    let name = file.to_string_lossy().into_owned();
    let input: Box<dyn BufRead + Send> = if file == "-" {
        Box::new(BufReader::new(io::stdin()))
    } else {
        let opened = File::open(&file);
        Box::new(BufReader::new(
            opened.map_err(|error| Fault::from_io(error, "open list").subject(&name).side(Side::Source))?,
        ))
    };
    std::thread::spawn(move || {
        for (number, line) in input.split(b'\n').enumerate() {
            let mut pair = line.map_err(|error| Fault::from_io(error, "read list").subject(&name)).and_then(|line| {
                parse_line(&line).map_err(|text| {
                    Fault::new(FaultCode::InvalidArgument, "read list")
                        .subject(format!("{name}:{}", number + 1))
                        .detail(text)
                })
            });
            if let Ok(Some((source, destination))) = &mut pair
                && let Err(fault) = log_in(source, destination)
            {
                pair = Err(fault);
            }
            let Some(pair) = pair.transpose() else { continue };
            let last = pair.is_err();
            // The copy may have ended early; nobody needs the rest then.
            if pairs.blocking_send(pair).is_err() || last {
                return;
            }
        }
    });
    Ok(())
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
