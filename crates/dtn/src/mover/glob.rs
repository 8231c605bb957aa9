//! Shell patterns for the last component of LIST and NLST arguments.

use whimbrel_engine::pattern::{self, Syntax};

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
    pattern::fits(pattern, name, Syntax::Shell)
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
