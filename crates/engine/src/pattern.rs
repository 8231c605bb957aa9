//! Patterns for names: `*`, `?` and sets in brackets.

/// What else a pattern may hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Syntax {
    /// Nothing: as in the Transfer API's filters.
    Plain,
    /// `\` before a literal, and `^` as well as `!` for what a set does not hold: as in a shell.
    Shell,
}

/// Whether `name` fits `pattern` whole: `*`, `?`, `[abc]`, `[a-z]`, `[!a]`; a bracket that is never closed is a bracket.
///
/// What stands for one character stands for one of UTF-8, or for a byte that is none of it. Time is at most the product of
/// both lengths, whatever the pattern.
pub fn fits(pattern: &[u8], name: &[u8], syntax: Syntax) -> bool {
    let (mut p, mut n) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while let Some((letter, length)) = letter(&name[n..]) {
        if pattern.get(p) == Some(&b'*') {
            p += 1;
            star = Some((p, n));
        } else if let Some(next) = fits_one(pattern, p, letter, syntax) {
            p = next;
            n += length;
        } else if let Some((after, from)) = star {
            // Only the last star needs to give way: an earlier one took the shortest match.
            p = after;
            n = from + self::letter(&name[from..]).map_or(1, |(_, length)| length);
            star = Some((after, n));
        } else {
            return false;
        }
    }
    pattern[p..].iter().all(|&b| b == b'*')
}

/// The character that a text begins with, and its bytes; bytes that are no UTF-8 are characters behind all others.
fn letter(text: &[u8]) -> Option<(u32, usize)> {
    let &first = text.first()?;
    if first.is_ascii() {
        return Some((first.into(), 1));
    }
    let whole = (2..=4).find_map(|length| std::str::from_utf8(text.get(..length)?).ok()?.chars().next());
    Some(whole.map_or((u32::from(char::MAX) + u32::from(first), 1), |whole| (whole.into(), whole.len_utf8())))
}

/// Matches one character against the element at `p`; the index after the element.
fn fits_one(pattern: &[u8], p: usize, wanted: u32, syntax: Syntax) -> Option<usize> {
    let (found, length) = letter(pattern.get(p..)?)?;
    match pattern[p] {
        b'?' => Some(p + 1),
        b'[' => match bracket(&pattern[p + 1..], wanted, syntax) {
            Some((true, length)) => Some(p + 1 + length),
            Some((false, _)) => None,
            None => (wanted == found).then_some(p + 1),
        },
        b'\\' if syntax == Syntax::Shell && p + 1 < pattern.len() => {
            let (literal, length) = letter(&pattern[p + 1..])?;
            (literal == wanted).then_some(p + 1 + length)
        }
        _ => (found == wanted).then_some(p + length),
    }
}

/// Whether a character is in the bracket expression that starts here, and the length of the expression
/// with its `]`; `None` when it is never closed and so is no expression.
fn bracket(pattern: &[u8], wanted: u32, syntax: Syntax) -> Option<(bool, usize)> {
    let negated = match pattern.first() {
        Some(b'!') => true,
        Some(b'^') => syntax == Syntax::Shell,
        _ => false,
    };
    let first = usize::from(negated);
    let mut at = first;
    let mut found = false;
    loop {
        let (low, length) = letter(pattern.get(at..)?)?;
        if low == u32::from(b']') && at > first {
            return Some((found != negated, at + 1));
        }
        at += length;
        let high = match pattern.get(at..) {
            Some([b'-', rest @ ..]) if rest.first() != Some(&b']') => letter(rest),
            _ => None,
        };
        match high {
            Some((high, length)) => {
                found |= (low..=high).contains(&wanted);
                at += 1 + length;
            }
            None => found |= low == wanted,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_and_carets_are_the_shells() {
        for (pattern, name, plain, shell) in [
            ("\\*", "*", false, true),
            ("\\*", "\\x", true, false),
            ("[^a]", "^", true, true),
            ("[^a]", "b", false, true),
        ] {
            let fits = |syntax| fits(pattern.as_bytes(), name.as_bytes(), syntax);
            assert_eq!((fits(Syntax::Plain), fits(Syntax::Shell)), (plain, shell), "{pattern} {name}");
        }
    }

    #[test]
    fn a_character_is_one_whatever_its_bytes() {
        let fits = |pattern: &str, name: &[u8]| fits(pattern.as_bytes(), name, Syntax::Plain);
        for (pattern, name, expected) in [
            ("?", "ö", true),
            ("??", "ö", false),
            ("a?c", "a🐦c", true),
            ("[öü]x", "üx", true),
            ("[!ö]", "ü", true),
            ("[!ö]", "ö", false),
            ("[à-ý]", "ö", true),
            ("[à-ý]", "z", false),
            ("*ö?", "öüöx", true),
            ("*[ö]", "aöö", true),
            ("ö", "ü", false),
        ] {
            assert_eq!(fits(pattern, name.as_bytes()), expected, "{pattern} {name}");
        }
        // Half a character is one of its own.
        assert!(fits("?b", b"\xc3b") && fits("*?", b"\xf0\x9f") && !fits("?", b"\xf0\x9f") && !fits("[ö]", b"\xc3"));
    }
}
