//! Names that one file may have at once: file systems exist that tell neither case nor forms of letters apart.

use std::collections::{HashMap, HashSet};

use unicode_normalization::UnicodeNormalization;
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

/// Names, of which it is asked only whether there is one like another. Eight bytes each: what is unlike all of them may, once in a
/// great while, be called like one.
#[derive(Debug, Default)]
pub(super) struct Names(HashSet<u64>);

impl Names {
    /// Remembers a name.
    pub(super) fn insert(&mut self, name: &[u8]) {
        self.0.insert(xxh3_64(&folded(name)));
    }

    /// Whether a file system may take `name` for one of them.
    pub(super) fn may_have(&self, name: &[u8]) -> bool {
        !self.0.is_empty() && self.0.contains(&xxh3_64(&folded(name)))
    }
}

/// Most names of which the places are remembered; of what comes behind them nobody knows what it is like.
const MOST: usize = 1 << 20;

/// Most names that are remembered as like the first of them.
const MOST_ALIKE: usize = 32;

/// Names of entries that were met, of which it is asked which are like another: some 20 bytes each and the name.
#[derive(Debug, Default)]
pub(super) struct Met {
    first: HashMap<u64, Spot>,
    /// Those that are like others before them, which are few.
    later: HashMap<u64, Vec<(Vec<u8>, bool)>>,
    /// The bytes of the first ones.
    names: Vec<u8>,
}

/// Where the bytes of a name are, and whether the destination shows it.
#[derive(Debug, Clone, Copy)]
struct Spot {
    start: u32,
    length: u16,
    shown: bool,
}

impl Met {
    /// Remembers a name in a directory; those before it that a file system may take it for. Of two names that the destination
    /// shows it is known that it tells them apart.
    pub(super) fn meet(&mut self, directory: &[u8], name: &[u8], shown: bool) -> Vec<Vec<u8>> {
        let place = xxh3_64_with_seed(&folded(name), xxh3_64(directory));
        let Some(spot) = self.first.get(&place) else {
            self.remember(place, name, shown);
            return Vec::new();
        };
        let first = &self.names[spot.start as usize..][..usize::from(spot.length)];
        let later = self.later.entry(place).or_default();
        let others = later.iter().map(|(other, shown)| (other.as_slice(), *shown));
        let others = [(first, spot.shown)].into_iter().chain(others);
        let alike = others.filter(|(other, also)| *other != name && !(shown && *also));
        let alike = alike.map(|(other, _)| other.to_vec()).collect();
        if later.len() < MOST_ALIKE && first != name && later.iter().all(|(other, _)| other != name) {
            later.push((name.to_vec(), shown));
        }
        alike
    }

    fn remember(&mut self, place: u64, name: &[u8], shown: bool) {
        let (start, length) = (u32::try_from(self.names.len()), u16::try_from(name.len()));
        if let (Ok(start), Ok(length)) = (start, length)
            && self.first.len() < MOST
        {
            self.names.extend_from_slice(name);
            self.first.insert(place, Spot { start, length, shown });
        }
    }
}

/// The name without what file systems are known to disregard: case, the form of Unicode letters (also the compatible forms),
/// dots and blanks at its end. Of a name that is not UTF-8, the case of ASCII letters.
fn folded(name: &[u8]) -> Vec<u8> {
    let Ok(text) = std::str::from_utf8(name) else { return name.to_ascii_lowercase() };
    let text = text.trim_end_matches(['.', ' ']);
    if text.is_ascii() {
        return text.to_ascii_lowercase().into_bytes();
    }
    // Upper case first: some letters have one that is two letters, or is shared with others ("ß" and "SS", "ς" and "σ").
    let upper: String = text.nfkd().flat_map(char::to_uppercase).collect();
    upper.chars().flat_map(char::to_lowercase).nfkd().collect::<String>().into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_alike_that_a_file_system_may_take_for_one() {
        let alike = [
            ("README", "readme"),
            ("Stra\u{df}e", "STRASSE"),
            ("caf\u{e9}", "CAFE\u{301}"),
            ("\u{3a3}\u{3b1}\u{3c2}", "\u{3c3}\u{3b1}\u{3c3}"),
            ("\u{212b}", "\u{e5}"),
            ("\u{fb01}le", "file"),
            ("run.", "run"),
        ];
        for (one, other) in alike {
            let mut names = Names::default();
            names.insert(one.as_bytes());
            assert!(names.may_have(other.as_bytes()), "{one} {other}");
        }
        let mut names = Names::default();
        for name in [&b"a"[..], b"caf\xe9-A", b".hidden"] {
            names.insert(name);
        }
        assert!(names.may_have(b"CAF\xe9-a"));
        for other in [&b"b"[..], b"caf\xe8-a", b"hidden", b"aa", b""] {
            assert!(!names.may_have(other), "{other:?}");
        }
        assert!(!Names::default().may_have(b""));
    }

    #[test]
    fn a_name_is_told_with_those_before_it_that_it_may_be_taken_for() {
        let mut met = Met::default();
        let none: [&[u8]; 0] = [];
        assert_eq!(met.meet(b"/d", b"README", false), none);
        assert_eq!(met.meet(b"/d", b"other", false), none);
        assert_eq!(met.meet(b"/e", b"readme", false), none, "of another directory");
        assert_eq!(met.meet(b"/d", b"readme", true), [b"README"]);
        assert_eq!(met.meet(b"/d", b"ReadMe", true), [b"README"], "the destination shows both of the others");
        assert_eq!(met.meet(b"/d", b"README", false), [&b"readme"[..], b"ReadMe"], "not itself");
    }
}
