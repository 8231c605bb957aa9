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
/// Time is at most the product of both lengths, whatever the pattern.
pub fn fits(pattern: &[u8], name: &[u8], syntax: Syntax) -> bool {
    let (mut p, mut n) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while n < name.len() {
        if pattern.get(p) == Some(&b'*') {
            p += 1;
            star = Some((p, n));
        } else if let Some(next) = fits_one(pattern, p, name[n], syntax) {
            p = next;
            n += 1;
        } else if let Some((after, from)) = star {
            // Only the last star needs to give way: an earlier one took the shortest match.
            p = after;
            n = from + 1;
            star = Some((after, n));
        } else {
            return false;
        }
    }
    pattern[p..].iter().all(|&b| b == b'*')
}

/// Matches one byte against the element at `p`; the index after the element.
fn fits_one(pattern: &[u8], p: usize, byte: u8, syntax: Syntax) -> Option<usize> {
    match *pattern.get(p)? {
        b'?' => Some(p + 1),
        b'[' => match bracket(&pattern[p + 1..], byte, syntax) {
            Some((true, length)) => Some(p + 1 + length),
            Some((false, _)) => None,
            None => (byte == b'[').then_some(p + 1),
        },
        b'\\' if syntax == Syntax::Shell && p + 1 < pattern.len() => (pattern[p + 1] == byte).then_some(p + 2),
        literal => (literal == byte).then_some(p + 1),
    }
}

/// Whether `byte` is in the bracket expression that starts here, and the length of the expression
/// with its `]`; `None` when it is never closed and so is no expression.
fn bracket(pattern: &[u8], byte: u8, syntax: Syntax) -> Option<(bool, usize)> {
    let negated = match pattern.first() {
        Some(b'!') => true,
        Some(b'^') => syntax == Syntax::Shell,
        _ => false,
    };
    let first = usize::from(negated);
    let mut at = first;
    let mut found = false;
    loop {
        let low = *pattern.get(at)?;
        if low == b']' && at > first {
            return Some((found != negated, at + 1));
        }
        match (pattern.get(at + 1), pattern.get(at + 2)) {
            (Some(b'-'), Some(&high)) if high != b']' => {
                found |= (low..=high).contains(&byte);
                at += 3;
            }
            _ => {
                found |= low == byte;
                at += 1;
            }
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
}
