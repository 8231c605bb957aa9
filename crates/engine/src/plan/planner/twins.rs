//! Names that one file may have at once: file systems exist that tell neither case nor forms of letters apart.

use std::collections::HashSet;

use unicode_normalization::UnicodeNormalization;
use xxhash_rust::xxh3::xxh3_64;

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

/// The name without what file systems are known to disregard: case, the form of Unicode letters (also the compatible forms),
/// dots and blanks at its end. Of a name that is not UTF-8, the case of ASCII letters.
fn folded(name: &[u8]) -> Vec<u8> {
    let Ok(text) = std::str::from_utf8(name) else { return name.to_ascii_lowercase() };
    let text = text.trim_end_matches(['.', ' ']);
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
}
