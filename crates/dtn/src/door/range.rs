//! Which bytes of a file are asked for (RFC 9110 §14).

use std::ops::Range;

/// The part of a file that an answer has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Part {
    /// All of it (200).
    Whole,
    /// These bytes (206).
    Bytes(Range<u64>),
    /// None that the file has (416).
    Beyond,
}

impl Part {
    /// What a Range field asks for of so many bytes. What is no range of bytes, and several ranges at once, count as no field
    /// (RFC 9110 §14.2 lets a server ignore it).
    pub fn of(field: Option<&str>, size: u64) -> Self {
        let Some(spec) = field.and_then(|field| field.trim().strip_prefix("bytes=")) else { return Self::Whole };
        let Some((first, last)) = spec.trim().split_once('-') else { return Self::Whole };
        match (number(first), number(last)) {
            // The last so many bytes.
            (Number::None, Number::Of(0)) => Self::Beyond,
            (Number::None, Number::Of(count)) => Self::between(size.saturating_sub(count), size, size),
            (Number::Of(first), Number::None) => Self::between(first, size, size),
            (Number::Of(first), Number::Of(last)) if first <= last => {
                Self::between(first, last.saturating_add(1).min(size), size)
            }
            _ => Self::Whole,
        }
    }

    fn between(first: u64, end: u64, size: u64) -> Self {
        if first < size { Self::Bytes(first..end) } else { Self::Beyond }
    }
}

enum Number {
    None,
    Of(u64),
    Wrong,
}

fn number(digits: &str) -> Number {
    match digits {
        "" => Number::None,
        _ if !digits.bytes().all(|byte| byte.is_ascii_digit()) => Number::Wrong,
        // Larger than any file.
        _ => Number::Of(digits.parse().unwrap_or(u64::MAX)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_cut_at_the_end_of_the_file() {
        let part = |field| Part::of(Some(field), 100);
        assert_eq!(part("bytes=10-13"), Part::Bytes(10..14));
        assert_eq!(part("bytes=0-"), Part::Bytes(0..100));
        assert_eq!(part("bytes=90-1000"), Part::Bytes(90..100));
        assert_eq!(part("bytes=-8"), Part::Bytes(92..100));
        assert_eq!(part("bytes=-800"), Part::Bytes(0..100));
        assert_eq!(part("bytes=99-99"), Part::Bytes(99..100));
        for beyond in ["bytes=100-", "bytes=100-200", "bytes=-0", "bytes=99999999999999999999999-"] {
            assert_eq!(part(beyond), Part::Beyond, "{beyond}");
        }
        assert_eq!(Part::of(Some("bytes=0-"), 0), Part::Beyond);
    }

    #[test]
    fn what_is_no_single_range_is_as_if_it_were_not_there() {
        for field in
            ["bytes=5-2", "bytes=a-b", "bytes=1-2,4-5", "lines=1-2", "bytes", "bytes=", "bytes=-", "bytes=+1-2"]
        {
            assert_eq!(Part::of(Some(field), 100), Part::Whole, "{field}");
        }
        assert_eq!(Part::of(None, 100), Part::Whole);
    }
}
