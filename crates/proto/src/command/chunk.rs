//! SITE LEAVES, SITE CHUNK and ESTO C: files moved in chunks and proven leaf by leaf (our own extension).

use std::ops::Range;

use serde::{Deserialize, Serialize};

use super::args::{CommandError, ascii, first_word, path, splitn, syntax, time, unsigned};
use super::encode::must;
use super::{EncodeError, Esto, Site, WirePath};
use crate::holes;
use crate::leaf::{self, LeafError};
use crate::op::{ChunkedFile, Leaf, LeafSpec};
use crate::timeval::Timestamp;

/// A SITE CHUNK command.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Chunk {
    /// `OPEN size modify leaf-size algorithm path`; `-` for an unknown time.
    Open(ChunkedFile),
    /// `KEEP session start-end:hex[,...] path`.
    Keep {
        /// As the reply to OPEN gave it.
        session: Vec<u8>,
        /// At least one, at most [`leaf::MAX_KEPT`], ascending.
        leaves: Vec<Leaf>,
        /// Final name.
        path: WirePath,
    },
    /// `HOLES session start-end[,...] path`.
    Holes {
        /// As the reply to OPEN gave it.
        session: Vec<u8>,
        /// At least one, at most [`leaf::MAX_KEPT`], ascending.
        holes: Vec<Range<u64>>,
        /// Final name.
        path: WirePath,
    },
    /// `COMMIT session path`.
    Commit {
        /// As the reply to OPEN gave it.
        session: Vec<u8>,
        /// Final name.
        path: WirePath,
    },
    /// `DROP session path`.
    Drop {
        /// As the reply to OPEN gave it.
        session: Vec<u8>,
        /// Final name.
        path: WirePath,
    },
}

const SITE: &str = "SITE";
const LEAF_SIZE: &str = "a leaf is a power of two of bytes from 4096 to 1073741824";

fn refused(verb: &'static str) -> impl Fn(LeafError) -> CommandError {
    move |error| syntax(verb, error.reason())
}

/// `size algorithm [HOLES] [VOUCHED]`, or `0` for none.
pub(super) fn leaves(rest: Option<&[u8]>) -> Result<Site, CommandError> {
    let (size, algorithm) = first_word(rest.unwrap_or(b"").trim_ascii());
    match (unsigned(SITE, size)?, algorithm) {
        (0, None) => Ok(Site::Leaves(None)),
        (0, Some(_)) => Err(syntax(SITE, "LEAVES 0 takes no algorithm")),
        (_, None) => Err(syntax(SITE, "an algorithm is missing")),
        (size, Some(rest)) => {
            let (algorithm, options) = first_word(rest.trim_ascii());
            let mut spec = spec(size, algorithm)?;
            for option in options.unwrap_or(b"").split(u8::is_ascii_whitespace).filter(|word| !word.is_empty()) {
                match option.to_ascii_uppercase().as_slice() {
                    b"HOLES" => spec.holes = true,
                    b"VOUCHED" => spec.vouched = true,
                    _ => return Err(syntax(SITE, "LEAVES knows the options HOLES and VOUCHED")),
                }
            }
            Ok(Site::Leaves(Some(spec)))
        }
    }
}

fn spec(size: u64, algorithm: &[u8]) -> Result<LeafSpec, CommandError> {
    if !leaf::is_size(size) {
        return Err(syntax(SITE, LEAF_SIZE));
    }
    let algorithm = ascii(SITE, algorithm.trim_ascii())?.to_ascii_uppercase();
    if algorithm.is_empty() {
        return Err(syntax(SITE, "an algorithm is missing"));
    }
    Ok(LeafSpec { size, algorithm, holes: false, vouched: false })
}

/// What follows `SITE CHUNK `.
pub(super) fn parse(rest: Option<&[u8]>) -> Result<Site, CommandError> {
    let (word, rest) = first_word(rest.unwrap_or(b"").trim_ascii_start());
    let chunk = match word.to_ascii_uppercase().as_slice() {
        b"OPEN" => open(rest),
        b"KEEP" => keep(rest),
        b"HOLES" => holes_of(rest),
        b"COMMIT" => session_and_path(rest).map(|(session, path)| Chunk::Commit { session, path }),
        b"DROP" => session_and_path(rest).map(|(session, path)| Chunk::Drop { session, path }),
        _ => Err(syntax(SITE, "CHUNK is OPEN, KEEP, HOLES, COMMIT or DROP")),
    };
    chunk.map(Site::Chunk)
}

fn open(rest: Option<&[u8]>) -> Result<Chunk, CommandError> {
    let [size, modify, leaf_size, algorithm, name] = splitn(SITE, rest)?;
    let size = unsigned(SITE, size)?;
    let modified = match modify {
        b"-" => None,
        text => Some(time(SITE, text)?).map(|time| (time.secs, time.nanos)),
    };
    let leaves = spec(unsigned(SITE, leaf_size)?, algorithm)?;
    if size.div_ceil(leaves.size) > leaf::MAX_LEAVES as u64 {
        return Err(syntax(SITE, "the leaves are too small: a file has at most 65536"));
    }
    Ok(Chunk::Open(ChunkedFile { path: path(SITE, Some(name))?, size, modified, leaves }))
}

fn keep(rest: Option<&[u8]>) -> Result<Chunk, CommandError> {
    let [session, list, name] = splitn(SITE, rest)?;
    Ok(Chunk::Keep {
        session: leaf::parse_session(session).map_err(refused(SITE))?,
        leaves: leaf::parse_list(list).map_err(refused(SITE))?,
        path: path(SITE, Some(name))?,
    })
}

fn holes_of(rest: Option<&[u8]>) -> Result<Chunk, CommandError> {
    let [session, list, name] = splitn(SITE, rest)?;
    Ok(Chunk::Holes {
        session: leaf::parse_session(session).map_err(refused(SITE))?,
        holes: holes::parse_list(list)
            .map_err(|_| syntax(SITE, "holes are start-end, ascending, with commas between"))?,
        path: path(SITE, Some(name))?,
    })
}

/// `leaf-size path` of SITE EXTENTS.
pub(super) fn extents(rest: Option<&[u8]>) -> Result<Site, CommandError> {
    let [size, name] = splitn(SITE, rest)?;
    let leaf = unsigned(SITE, size)?;
    if !leaf::is_size(leaf) {
        return Err(syntax(SITE, LEAF_SIZE));
    }
    Ok(Site::Extents { leaf, path: path(SITE, Some(name))? })
}

/// The text after `SITE `.
pub(super) fn format_extents(leaf: u64, name: &[u8]) -> Result<Vec<u8>, EncodeError> {
    if !leaf::is_size(leaf) {
        return Err(EncodeError::Inexpressible);
    }
    must(&format!("EXTENTS {leaf}"), name)
}

fn session_and_path(rest: Option<&[u8]>) -> Result<(Vec<u8>, WirePath), CommandError> {
    let [session, name] = splitn(SITE, rest)?;
    Ok((leaf::parse_session(session).map_err(refused(SITE))?, path(SITE, Some(name))?))
}

/// `session,offset path` of ESTO C.
pub(super) fn esto(args: &[u8]) -> Result<Esto, CommandError> {
    const VERB: &str = "ESTO";
    let [place, name] = splitn(VERB, Some(args))?;
    let comma = place.iter().position(|&b| b == b',').ok_or(syntax(VERB, "the form is C session,offset path"))?;
    Ok(Esto::Chunk {
        session: leaf::parse_session(&place[..comma]).map_err(refused(VERB))?,
        offset: unsigned(VERB, &place[comma + 1..])?,
        path: path(VERB, Some(name))?,
    })
}

/// The text after `SITE `.
pub(super) fn format_leaves(spec: Option<&LeafSpec>) -> Result<Vec<u8>, EncodeError> {
    let Some(spec) = spec else { return Ok(b"LEAVES 0".to_vec()) };
    check_spec(spec)?;
    let option = |is_on: bool, word: &'static str| if is_on { word } else { "" };
    let (holes, vouched) = (option(spec.holes, " HOLES"), option(spec.vouched, " VOUCHED"));
    Ok(format!("LEAVES {} {}{holes}{vouched}", spec.size, spec.algorithm).into_bytes())
}

/// The text after `SITE `.
pub(super) fn format(chunk: &Chunk) -> Result<Vec<u8>, EncodeError> {
    let (words, name) = match chunk {
        Chunk::Open(file) => (open_words(file)?, &file.path),
        Chunk::Keep { session, leaves, path } => {
            leaf::check_list(leaves).map_err(|_| EncodeError::Inexpressible)?;
            (format!("KEEP {} {}", digits(session)?, leaf::format_list(leaves)), path)
        }
        Chunk::Holes { session, holes, path } => {
            holes::check_list(holes).map_err(|_| EncodeError::Inexpressible)?;
            (format!("HOLES {} {}", digits(session)?, holes::format_list(holes)), path)
        }
        Chunk::Commit { session, path } => (format!("COMMIT {}", digits(session)?), path),
        Chunk::Drop { session, path } => (format!("DROP {}", digits(session)?), path),
    };
    must(&format!("CHUNK {words}"), name)
}

fn open_words(file: &ChunkedFile) -> Result<String, EncodeError> {
    check_spec(&file.leaves)?;
    if file.size.div_ceil(file.leaves.size) > leaf::MAX_LEAVES as u64 {
        return Err(EncodeError::Inexpressible);
    }
    let modify = file.modified.map_or_else(|| "-".to_owned(), |(secs, nanos)| Timestamp { secs, nanos }.to_string());
    Ok(format!("OPEN {} {modify} {} {}", file.size, file.leaves.size, file.leaves.algorithm))
}

/// The text after `ESTO `.
pub(super) fn format_esto(session: &[u8], offset: u64, name: &[u8]) -> Result<Vec<u8>, EncodeError> {
    must(&format!("C {},{offset}", digits(session)?), name)
}

fn check_spec(spec: &LeafSpec) -> Result<(), EncodeError> {
    let word = !spec.algorithm.is_empty() && spec.algorithm.bytes().all(|b| b.is_ascii_graphic());
    if word && leaf::is_size(spec.size) { Ok(()) } else { Err(EncodeError::Inexpressible) }
}

fn digits(session: &[u8]) -> Result<String, EncodeError> {
    let fits = (1..=leaf::MAX_SESSION).contains(&session.len());
    if fits { Ok(leaf::hex(session)) } else { Err(EncodeError::Inexpressible) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::command::Command;

    fn parse(line: &str) -> Result<Command, CommandError> {
        Command::parse(line.as_bytes())
    }

    fn encoded(command: &Command) -> Result<String, EncodeError> {
        let mut out = Vec::new();
        command.encode(&mut out).map(|()| String::from_utf8(out).unwrap())
    }

    fn md5(size: u64) -> LeafSpec {
        LeafSpec { size, algorithm: "MD5".into(), holes: false, vouched: false }
    }

    fn file(size: u64, modified: Option<(i64, u32)>) -> ChunkedFile {
        ChunkedFile { path: b"/a b".to_vec(), size, modified, leaves: md5(4096) }
    }

    #[test]
    fn lines_are_read_as_they_are_written() {
        let leaf = |range, digest: &str| Leaf { range, digest: digest.into() };
        let (session, path) = (vec![0x0f, 0xa0], b"/a b".to_vec());
        let keep = vec![leaf(0..4096, "ab"), leaf(8192..9000, "cd")];
        let both = |chunk| Command::Site(Site::Chunk(chunk));
        for (command, line) in [
            (Command::Site(Site::Leaves(Some(md5(16 << 20)))), "SITE LEAVES 16777216 MD5"),
            (Command::Site(Site::Leaves(None)), "SITE LEAVES 0"),
            (Command::Site(Site::ReadBack { disk: true }), "SITE READBACK DISK"),
            (Command::Site(Site::ReadBack { disk: false }), "SITE READBACK MEMORY"),
            (both(Chunk::Open(file(9, None))), "SITE CHUNK OPEN 9 - 4096 MD5 /a b"),
            (
                both(Chunk::Open(file(0, Some((1_795_226_514, 500_000_000))))),
                "SITE CHUNK OPEN 0 20261121020154.5 4096 MD5 /a b",
            ),
            (
                both(Chunk::Keep { session: session.clone(), leaves: keep, path: path.clone() }),
                "SITE CHUNK KEEP 0fa0 0-4096:ab,8192-9000:cd /a b",
            ),
            (Command::Site(Site::Leaves(Some(LeafSpec { holes: true, ..md5(4096) }))), "SITE LEAVES 4096 MD5 HOLES"),
            (
                Command::Site(Site::Leaves(Some(LeafSpec { vouched: true, ..md5(4096) }))),
                "SITE LEAVES 4096 MD5 VOUCHED",
            ),
            (
                Command::Site(Site::Leaves(Some(LeafSpec { holes: true, vouched: true, ..md5(4096) }))),
                "SITE LEAVES 4096 MD5 HOLES VOUCHED",
            ),
            (Command::Site(Site::Extents { leaf: 4096, path: path.clone() }), "SITE EXTENTS 4096 /a b"),
            (
                both(Chunk::Holes { session: session.clone(), holes: vec![0..8192, 12288..20480], path: path.clone() }),
                "SITE CHUNK HOLES 0fa0 0-8192,12288-20480 /a b",
            ),
            (both(Chunk::Commit { session: session.clone(), path: path.clone() }), "SITE CHUNK COMMIT 0fa0 /a b"),
            (both(Chunk::Drop { session: session.clone(), path: path.clone() }), "SITE CHUNK DROP 0fa0 /a b"),
            (Command::Esto(Esto::Chunk { session, offset: 4096, path }), "ESTO C 0fa0,4096 /a b"),
        ] {
            assert_eq!(encoded(&command), Ok(format!("{line}\r\n")));
            assert_eq!(parse(line), Ok(command), "{line}");
        }
        assert_eq!(parse("site leaves  4096  md5 "), parse("SITE LEAVES 4096 MD5"));
        assert_eq!(parse("site chunk commit 00 /a"), parse("SITE CHUNK COMMIT 00 /a"));
    }

    #[test]
    fn what_is_wrong_is_said() {
        for (line, why) in [
            ("SITE LEAVES", "a number"),
            ("SITE LEAVES x MD5", "a number"),
            ("SITE LEAVES 4096", "an algorithm is missing"),
            ("SITE LEAVES 4096  ", "an algorithm is missing"),
            ("SITE LEAVES 0 MD5", "LEAVES 0"),
            ("SITE LEAVES 2048 MD5", "power of two"),
            ("SITE LEAVES 5000 MD5", "power of two"),
            ("SITE LEAVES 2147483648 MD5", "power of two"),
            ("SITE LEAVES 4096 MD5 x", "options HOLES"),
            ("SITE LEAVES 4096 MD5 HOLES x", "options HOLES"),
            ("SITE LEAVES 4096 M\u{e9}5", "not plain text"),
            ("SITE EXTENTS 4096", "an argument is missing"),
            ("SITE EXTENTS 5000 /a", "power of two"),
            ("SITE CHUNK HOLES 00 5-5 /a", "holes are"),
            ("SITE CHUNK HOLES 00 5 /a", "holes are"),
            ("SITE CHUNK HOLES 00 0-5,4-8 /a", "holes are"),
            ("SITE CHUNK HOLES 0 0-5 /a", "a session is"),
            ("SITE CHUNK HOLES 00 0-5", "an argument is missing"),
            ("SITE READBACK", "DISK or MEMORY"),
            ("SITE READBACK DISKS", "DISK or MEMORY"),
            ("SITE CHUNK", "CHUNK is OPEN"),
            ("SITE CHUNK SHUT 00 /a", "CHUNK is OPEN"),
            ("SITE CHUNK OPEN 5 - 4096 MD5", "an argument is missing"),
            ("SITE CHUNK OPEN x - 4096 MD5 /a", "a number"),
            ("SITE CHUNK OPEN 5 2026 4096 MD5 /a", "YYYYMMDDHHMMSS"),
            ("SITE CHUNK OPEN 5 - 4095 MD5 /a", "power of two"),
            ("SITE CHUNK OPEN 268435457 - 4096 MD5 /a", "at most 65536"),
            ("SITE CHUNK KEEP 0 0-5:ab /a", "a session is"),
            ("SITE CHUNK KEEP 00 0-5:a /a", "a digest is"),
            ("SITE CHUNK KEEP 00 0-5:ab,4-6:ab /a", "overlap"),
            ("SITE CHUNK KEEP 00 5-5:ab /a", "no bytes"),
            ("SITE CHUNK KEEP 00 0-5:ab", "an argument is missing"),
            ("SITE CHUNK COMMIT 0G /a", "a session is"),
            ("SITE CHUNK COMMIT 00", "an argument is missing"),
            ("SITE CHUNK DROP 00 ", "an argument is missing"),
            ("ESTO C 00 /a", "C session,offset"),
            ("ESTO C ,5 /a", "a session is"),
            ("ESTO C 00, /a", "a number"),
            ("ESTO C 00,-1 /a", "a number"),
            ("ESTO C 00,5", "an argument is missing"),
        ] {
            let error = parse(line).expect_err(line);
            assert_eq!(error.code(), 501, "{line}");
            assert!(error.to_string().contains(why), "{line}: {error}");
        }
        assert!(parse("SITE CHUNK OPEN 268435456 - 4096 MD5 /a").is_ok());
    }

    #[test]
    fn more_leaves_than_a_command_may_have_are_refused() {
        let list: Vec<String> = (0..=leaf::MAX_KEPT).map(|i| format!("{i}-{}:ab", i + 1)).collect();
        let error = parse(&format!("SITE CHUNK KEEP 00 {} /a", list.join(","))).unwrap_err();
        assert!(error.code() == 501 && error.to_string().contains("too many"), "{error}");
        assert!(parse(&format!("SITE CHUNK KEEP 00 {} /a", list[1..].join(","))).is_ok());
    }

    #[test]
    fn what_could_not_be_read_is_not_written() {
        let (path, leaves) = (b"/a".to_vec(), vec![Leaf { range: 5..6, digest: "ab".into() }]);
        let holes = |holes| Site::Chunk(Chunk::Holes { session: vec![0], holes, path: b"/a".to_vec() });
        let keep = |session: Vec<u8>, leaves| Site::Chunk(Chunk::Keep { session, leaves, path: b"/a".to_vec() });
        for site in [
            Site::Leaves(Some(md5(0))),
            Site::Leaves(Some(LeafSpec { size: 4096, algorithm: "A B".into(), holes: false, vouched: false })),
            Site::Chunk(Chunk::Open(file((1 << 28) + 1, None))),
            Site::Chunk(Chunk::Open(ChunkedFile { path: Vec::new(), ..file(1, None) })),
            Site::Chunk(Chunk::Commit { session: Vec::new(), path: path.clone() }),
            Site::Chunk(Chunk::Drop { session: vec![0; leaf::MAX_SESSION + 1], path }),
            Site::Extents { leaf: 5000, path: b"/a".to_vec() },
            Site::Extents { leaf: 4096, path: Vec::new() },
            holes(Vec::new()),
            holes(vec![0..5, 4..8]),
            keep(vec![0], Vec::new()),
            keep(Vec::new(), leaves.clone()),
            keep(vec![0], [leaves.clone(), leaves].concat()),
        ] {
            assert_eq!(encoded(&Command::Site(site.clone())), Err(EncodeError::Inexpressible), "{site:?}");
        }
        let split = Site::Chunk(Chunk::Commit { session: vec![0], path: b"/a\r\nDELE b".to_vec() });
        assert_eq!(encoded(&Command::Site(split)), Err(EncodeError::LineBreak));
    }

    fn name() -> impl Strategy<Value = WirePath> {
        let byte = any::<u8>().prop_filter("bytes that end a line", |b| !matches!(b, b'\r' | b'\n' | 0));
        proptest::collection::vec(byte, 1..30)
    }

    proptest! {
        #[test]
        fn any_chunk_command_survives_the_wire(
            session in proptest::collection::vec(any::<u8>(), 1..40),
            path in name(),
            offset in any::<u64>(),
            shift in 12u32..=30,
            time in proptest::option::of((0i64..200_000_000_000, 0u32..1_000_000_000)),
            algorithm in "[A-Z0-9-]{1,10}",
            pick in 0usize..8,
        ) {
            let (holes, vouched) = (pick == 0 && offset % 2 == 0, pick == 0 && offset % 3 == 0);
                let leaves = LeafSpec { size: 1 << shift, algorithm, holes, vouched };
            let kept = vec![Leaf { range: offset / 2..offset / 2 + 1, digest: "00ff".into() }];
            let command = match pick {
                0 => Command::Site(Site::Leaves(Some(leaves))),
                1 => Command::Site(Site::Chunk(Chunk::Open(ChunkedFile { path, size: offset % (1 << 28), modified: time, leaves }))),
                2 => Command::Site(Site::Chunk(Chunk::Keep { session, leaves: kept, path })),
                3 => Command::Site(Site::Chunk(Chunk::Commit { session, path })),
                4 => Command::Site(Site::Chunk(Chunk::Drop { session, path })),
                5 => Command::Site(Site::Extents { leaf: leaves.size, path }),
                6 => Command::Site(Site::Chunk(Chunk::Holes {
                    session,
                    holes: std::iter::once(offset / 2..offset / 2 + 1).collect(),
                    path,
                })),
                _ => Command::Esto(Esto::Chunk { session, offset, path }),
            };
            let mut out = Vec::new();
            command.encode(&mut out).unwrap();
            prop_assert_eq!(Command::parse(out.strip_suffix(b"\r\n").unwrap()), Ok(command));
        }

        #[test]
        fn any_tail_is_read_or_refused(word in 0usize..9, bytes in proptest::collection::vec(any::<u8>(), 0..60)) {
            const WORDS: [&str; 9] = ["SITE LEAVES", "SITE EXTENTS", "SITE CHUNK HOLES 00", "SITE CHUNK", "SITE CHUNK OPEN", "SITE CHUNK KEEP 00", "SITE CHUNK COMMIT", "SITE CHUNK DROP", "ESTO C"];
            let line = [WORDS[word].as_bytes(), b" ", &bytes].concat();
            if let Ok(command) = Command::parse(&line) {
                prop_assert!(matches!(command, Command::Site(_) | Command::Esto(_)));
            }
        }
    }
}
