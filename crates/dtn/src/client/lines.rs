//! Lines of lists that a user writes: words, quoted where they hold blanks.

/// Source and destination of a line of `cp --list`; `None` for empty lines and comments.
///
/// # Errors
/// What is wrong with the line.
pub fn pair(line: &[u8]) -> Result<Option<[Vec<u8>; 2]>, String> {
    let line = line.trim_ascii();
    if line.is_empty() || line.starts_with(b"#") {
        return Ok(None);
    }
    <[Vec<u8>; 2]>::try_from(words(line)?).map(Some).map_err(|words| {
        let count = words.len();
        format!("a line holds a source and a destination, this one holds {count} words; quote names with spaces")
    })
}

/// Words separated by blanks; double quotes keep blanks, a backslash inside them keeps the next byte.
///
/// # Errors
/// A quote that is not closed.
pub fn words(line: &[u8]) -> Result<Vec<Vec<u8>>, String> {
    let mut words = Vec::new();
    let mut rest = line.trim_ascii_start();
    while !rest.is_empty() {
        let mut word = Vec::new();
        if let Some(mut quoted) = rest.strip_prefix(b"\"") {
            loop {
                match quoted {
                    [] => return Err("a closing quote is missing".to_owned()),
                    [b'"', after @ ..] => {
                        rest = after;
                        break;
                    }
                    [b'\\', byte, after @ ..] | [byte, after @ ..] => {
                        word.push(*byte);
                        quoted = after;
                    }
                }
            }
        } else {
            let end = rest.iter().position(u8::is_ascii_whitespace).unwrap_or(rest.len());
            word.extend_from_slice(&rest[..end]);
            rest = &rest[end..];
        }
        words.push(word);
        rest = rest.trim_ascii_start();
    }
    Ok(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_may_be_quoted_and_hold_any_bytes() {
        let read = |text: &[u8]| words(text).unwrap();
        assert_eq!(read(b"a  b"), [b"a", b"b"]);
        assert_eq!(read(br#""a b" "c\"d""#), [&b"a b"[..], b"c\"d"]);
        assert_eq!(read(b"\xff \xfe"), [b"\xff", b"\xfe"]);
        assert!(words(b"\"open").is_err());
    }

    #[test]
    fn a_line_is_a_pair_or_nothing() {
        assert_eq!(pair(b" # a b c"), Ok(None));
        assert_eq!(pair(b"a \"b c\"\r"), Ok(Some([b"a".to_vec(), b"b c".to_vec()])));
        assert!(pair(b"a b c").is_err_and(|why| why.contains("3 words")));
    }
}
