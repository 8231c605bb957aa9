//! Names of unfinished copies at servers that keep none: hidden, beside the final name, one for each run.
//!
//! `.NAME.whimbrel-RUN` is a file that moves as a whole, `.NAME.whimbrel-RUN-VERSION` one that moves in chunks. Beside the
//! latter are `...-kept`, what is proven of it, and `...-live`, a directory that its run makes again and again.

use whimbrel_engine::listing::{Timestamp, split};
use whimbrel_engine::plan::Item;
use whimbrel_transport::digest::Algorithm;

use super::run::{RUN_DIGITS, RunId, is_lower_hex};

/// Between the final name and the run's.
const WORD: &[u8] = b".whimbrel-";

/// Hexadecimal digits of a version.
const VERSION_DIGITS: usize = 16;

/// Behind the name of what is proven.
const KEPT: &[u8] = b"-kept";

/// Behind the name of the sign of life.
const LIVE: &[u8] = b"-live";

/// Longest name, bytes, that keeps below the limit of file systems (255) with what is added to it.
const LONGEST_NAME: usize = 255 - (1 + WORD.len() + RUN_DIGITS + 1 + VERSION_DIGITS + KEPT.len());

/// Which version of which source: only what is of the same one is gone on with.
pub type Version = [u8; VERSION_DIGITS];

/// The version of an item's source, as it was listed.
pub fn version(item: &Item) -> Version {
    version_of(&item.source, item.size, item.modified)
}

fn version_of(source: &[u8], size: Option<u64>, modified: Option<Timestamp>) -> Version {
    let time = modified.map(|time| (time.secs, time.nanos));
    let facts = format!("{size:?} {time:?} ");
    let digest = Algorithm::Xxh3_128.digest(&[facts.as_bytes(), source].concat()).to_string();
    let mut version = [0; VERSION_DIGITS];
    version.copy_from_slice(&digest.as_bytes()[..VERSION_DIGITS]);
    version
}

/// The name of a file that moves as a whole, until it has its own.
pub fn of_whole(path: &[u8], run: RunId) -> Vec<u8> {
    let (directory, stem) = stem(path);
    [directory, &stem, WORD, run.to_string().as_bytes()].concat()
}

/// The same of a file that moves in chunks.
pub fn of_chunks(path: &[u8], run: RunId, version: &Version) -> Vec<u8> {
    [&of_whole(path, run)[..], b"-", version].concat()
}

/// The name beside that of an unfinished copy that has what is proven of it.
pub fn kept(name: &[u8]) -> Vec<u8> {
    [name, KEPT].concat()
}

/// The name beside that of an unfinished copy that tells that its run is at work.
pub fn live(name: &[u8]) -> Vec<u8> {
    [name, LIVE].concat()
}

/// The directory beside a path in which it is tried what names its file system tells apart.
pub fn trial(path: &[u8], run: RunId) -> Vec<u8> {
    [directory_of(path), WORD, run.to_string().as_bytes(), b"-names"].concat()
}

/// The directory of a path, with the slash at its end.
pub fn directory_of(path: &[u8]) -> &[u8] {
    split(path).0
}

/// The directory of a path, with the slash at its end, and what the names of its unfinished copies begin with.
pub fn stem(path: &[u8]) -> (&[u8], Vec<u8>) {
    let (directory, name) = split(path);
    if name.len() <= LONGEST_NAME {
        return (directory, [b".", name].concat());
    }
    // Long ones keep a beginning and what tells them apart.
    let digest = Algorithm::Xxh3_128.digest(name).to_string();
    (directory, [b".", &name[..LONGEST_NAME - 40], b".", digest.as_bytes()].concat())
}

/// What a name of this form is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// The bytes of a file.
    Bytes,
    /// What is proven of it.
    Kept,
    /// Its run's sign of life.
    Live,
}

/// What the name of an unfinished copy tells.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Name {
    /// What it begins with ([`stem`]).
    pub stem: Vec<u8>,
    /// Whose it is.
    pub run: RunId,
    /// The version of the source, where it moves in chunks.
    pub version: Option<Version>,
    /// What has the name.
    pub part: Part,
}

impl Name {
    /// Reads the last component of a path; `None`: it has not this form.
    pub fn parse(name: &[u8]) -> Option<Self> {
        let at = name.windows(WORD.len()).rposition(|window| window == WORD)?;
        let stem = name[..at].to_vec();
        let rest = &name[at + WORD.len()..];
        let (rest, part) = match (rest.strip_suffix(KEPT), rest.strip_suffix(LIVE)) {
            (Some(rest), _) => (rest, Part::Kept),
            (_, Some(rest)) => (rest, Part::Live),
            _ => (rest, Part::Bytes),
        };
        let (run, version) = rest.split_at_checked(RUN_DIGITS)?;
        let version = match version {
            [] => None,
            [b'-', digits @ ..] => Some(Version::try_from(digits).ok()?),
            _ => return None,
        };
        let of_form = stem.len() > 1 && stem.starts_with(b".") && (part == Part::Bytes || version.is_some());
        let run = RunId::parse(run).filter(|_| of_form)?;
        version.as_ref().is_none_or(|version| is_lower_hex(version)).then_some(Self { stem, run, version, part })
    }
}

/// Whether a path has the form of an unfinished copy's name, whose place it must not take.
pub fn is_temporary_name(path: &[u8]) -> bool {
    Name::parse(split(path).1).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn a_version() -> Version {
        version_of(b"/s/f", Some(5), Some(Timestamp { secs: 7, nanos: 8 }))
    }

    fn last(path: &[u8]) -> &[u8] {
        split(path).1
    }

    #[test]
    fn the_unfinished_name_is_hidden_beside_the_final_one_and_one_for_each_run() {
        let run = RunId::fresh();
        let name = of_whole(b"/a/b", run);
        assert_eq!(name, format!("/a/.b.whimbrel-{run}").as_bytes());
        assert_ne!(of_whole(b"/a/b", RunId::fresh()), name);
        assert!(of_chunks(b"/a/b", run, &a_version()).starts_with(&name));
    }

    #[test]
    fn names_fit_and_long_ones_are_told_apart() {
        let run = RunId::fresh();
        let long = [b"/d/".as_slice(), &[b'x'; 255]].concat();
        let name = kept(&of_chunks(&long, run, &a_version()));
        assert!(name.len() <= 3 + 255, "{}", name.len());
        let longest = [b"/d/".as_slice(), &[b'x'; LONGEST_NAME]].concat();
        assert_eq!(live(&of_chunks(&longest, run, &a_version())).len(), 3 + 255);
        let other = [b"/d/".as_slice(), &[b'x'; 254], b"y"].concat();
        assert_ne!(of_whole(&long, run), of_whole(&other, run));
        assert_eq!(Name::parse(last(&of_whole(&long, run))).unwrap().stem, stem(&long).1);
    }

    #[test]
    fn what_is_in_a_name_is_read_back() {
        let (run, version) = (RunId::fresh(), a_version());
        let whole = Name { stem: b".b".to_vec(), run, version: None, part: Part::Bytes };
        assert_eq!(Name::parse(last(&of_whole(b"/a/b", run))), Some(whole));
        let chunks = of_chunks(b"/a/b", run, &version);
        let of = |part| Some(Name { stem: b".b".to_vec(), run, version: Some(version), part });
        assert_eq!(Name::parse(last(&chunks)), of(Part::Bytes));
        assert_eq!(Name::parse(last(&kept(&chunks))), of(Part::Kept));
        assert_eq!(Name::parse(last(&live(&chunks))), of(Part::Live));
        // Of a file whose own name has the form.
        let inner = of_whole(&of_whole(b"/a/b", run), run);
        assert_eq!(Name::parse(last(&inner)).unwrap().stem, [b".", last(&of_whole(b"/a/b", run))].concat());
    }

    #[test]
    fn a_users_own_names_have_not_the_form() {
        let run = RunId::fresh();
        for name in [
            "file".to_owned(),
            ".file.whimbrel".to_owned(),
            ".file.whimbrel-part".to_owned(),
            format!("file.whimbrel-{run}"),
            format!("..whimbrel-{run}x"),
            format!(".whimbrel-{run}"),
            format!(".f.whimbrel-{run}-kept"),
            format!(".f.whimbrel-{run}-0123456789ABCDEF"),
        ] {
            assert_eq!(Name::parse(name.as_bytes()), None, "{name}");
        }
        assert!(is_temporary_name(&of_whole(b"/a/b", run)) && !is_temporary_name(b"/a/.b.whimbrel"));
    }

    #[test]
    fn a_version_is_that_of_one_source() {
        let time = Some(Timestamp { secs: 7, nanos: 8 });
        let others = [
            version_of(b"/s/g", Some(5), time),
            version_of(b"/s/f", Some(6), time),
            version_of(b"/s/f", Some(5), None),
        ];
        assert!(others.iter().all(|other| *other != a_version()));
    }
}
