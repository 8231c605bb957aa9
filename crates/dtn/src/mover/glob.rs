//! Shell patterns for the last component of LIST and NLST arguments.

/// Whether `text` holds a character that makes it a pattern.
pub fn is_pattern(text: &[u8]) -> bool {
    text.iter().any(|b| matches!(b, b'*' | b'?' | b'['))
}

/// Whether `name` matches `pattern`: `*`, `?`, `[a-z]`, `[!a]`, and `\` before a literal.
///
/// As in a shell a leading dot is only matched by a dot. Time is at most the product of both
/// lengths, whatever the pattern.
pub fn matches(pattern: &[u8], name: &[u8]) -> bool {
    if name.first() == Some(&b'.') && pattern.first() != Some(&b'.') {
        return false;
    }
    let (mut p, mut n) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while n < name.len() {
        if pattern.get(p) == Some(&b'*') {
            p += 1;
            star = Some((p, n));
        } else if let Some(next) = match_one(pattern, p, name[n]) {
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
fn match_one(pattern: &[u8], p: usize, byte: u8) -> Option<usize> {
    match *pattern.get(p)? {
        b'?' => Some(p + 1),
        b'[' => match bracket(&pattern[p + 1..], byte) {
            Some((true, length)) => Some(p + 1 + length),
            Some((false, _)) => None,
            None => (byte == b'[').then_some(p + 1),
        },
        b'\\' if p + 1 < pattern.len() => (pattern[p + 1] == byte).then_some(p + 2),
        literal => (literal == byte).then_some(p + 1),
    }
}

/// Whether `byte` is in the bracket expression that starts here, and the length of the expression
/// with its `]`; `None` when it is never closed and so is no expression.
fn bracket(pattern: &[u8], byte: u8) -> Option<(bool, usize)> {
    let negated = matches!(pattern.first(), Some(b'!' | b'^'));
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
    fn patterns_match_as_in_a_shell() {
        for (pattern, name, expected) in [
            ("*", "abc", true),
            ("*", ".abc", false),
            (".*", ".abc", true),
            ("a*c", "abbc", true),
            ("a*c", "abbd", false),
            ("?b?", "abc", true),
            ("?b?", "abcd", false),
            ("[a-c]x", "bx", true),
            ("[!a-c]x", "bx", false),
            ("[]x]", "]", true),
            ("[ab", "[ab", true),
            ("\\*", "*", true),
            ("\\*", "a", false),
            ("*.dat*", "run.1.dat.gz", true),
            ("", "", true),
            ("**", "", true),
        ] {
            assert_eq!(matches(pattern.as_bytes(), name.as_bytes()), expected, "{pattern} {name}");
        }
    }

    #[test]
    fn many_stars_do_not_explode() {
        let pattern = b"*a".repeat(60);
        assert!(!matches(&pattern, &b"a".repeat(4000).repeat(1)[..59]));
        let mut name = b"a".repeat(4000);
        name.push(b'b');
        assert!(!matches(&pattern, &name));
    }
}
