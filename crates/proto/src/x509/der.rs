//! A reader of DER (X.690 §10): definite lengths in their shortest form, tags of one byte, each value within what holds it.
//!
//! A reader walks one level. Whoever enters a level makes a reader for it, so depth is the caller's code and never the input's.

use super::oid::Oid;
use crate::timeval::Timestamp;

/// Why bytes are not what they should be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum DerError {
    /// A value reaches beyond what holds it, or something is missing.
    #[error("it ends too early")]
    Truncated,
    /// A tag of more than one byte, an indefinite length, or a length in a longer form than needed.
    #[error("it is not in the one form that signatures allow (DER)")]
    Form,
    /// Another tag than the one that belongs here.
    #[error("tag {found:#04x} stands where {wanted:#04x} belongs")]
    Tag {
        /// The tag that belongs here.
        wanted: u8,
        /// The tag that is there.
        found: u8,
    },
    /// Something follows the last thing that belongs here.
    #[error("there is something behind its end")]
    Trailing,
    /// A value that its type or its place does not allow.
    #[error("the {0} is not one")]
    Value(&'static str),
    /// More parts than anybody needs.
    #[error("it has too many {0}")]
    TooMany(&'static str),
    /// Something that may stand once stands twice.
    #[error("the {0} stands twice")]
    Twice(&'static str),
}

/// Tags that certificates use (X.680 §8.4).
pub mod tag {
    /// BOOLEAN.
    pub const BOOLEAN: u8 = 0x01;
    /// INTEGER.
    pub const INTEGER: u8 = 0x02;
    /// BIT STRING.
    pub const BIT_STRING: u8 = 0x03;
    /// OCTET STRING.
    pub const OCTET_STRING: u8 = 0x04;
    /// NULL.
    pub const NULL: u8 = 0x05;
    /// OBJECT IDENTIFIER.
    pub const OID: u8 = 0x06;
    /// UTF8String.
    pub const UTF8_STRING: u8 = 0x0c;
    /// SEQUENCE.
    pub const SEQUENCE: u8 = 0x30;
    /// SET.
    pub const SET: u8 = 0x31;
    /// NumericString.
    pub const NUMERIC_STRING: u8 = 0x12;
    /// PrintableString.
    pub const PRINTABLE_STRING: u8 = 0x13;
    /// TeletexString.
    pub const T61_STRING: u8 = 0x14;
    /// IA5String.
    pub const IA5_STRING: u8 = 0x16;
    /// UTCTime.
    pub const UTC_TIME: u8 = 0x17;
    /// GeneralizedTime.
    pub const GENERALIZED_TIME: u8 = 0x18;
    /// VisibleString.
    pub const VISIBLE_STRING: u8 = 0x1a;
    /// GeneralString.
    pub const GENERAL_STRING: u8 = 0x1b;
    /// UniversalString.
    pub const UNIVERSAL_STRING: u8 = 0x1c;
    /// BMPString.
    pub const BMP_STRING: u8 = 0x1e;

    /// A constructed context tag, `[number]`.
    pub const fn context(number: u8) -> u8 {
        0xa0 | number
    }

    /// A primitive context tag, `[number] IMPLICIT` of a string.
    pub const fn implicit(number: u8) -> u8 {
        0x80 | number
    }
}

/// One value with its tag.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Item<'a> {
    /// The tag's byte.
    pub tag: u8,
    /// The content.
    pub value: &'a [u8],
    /// Tag, length and content.
    pub whole: &'a [u8],
}

/// Values one after the other.
#[derive(Debug, Clone)]
pub struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    /// A reader of everything in `bytes`.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// True if nothing is left.
    pub fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// What is left.
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// What is left, which counts as read.
    pub fn take_rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.rest)
    }

    /// The next value, whatever it is.
    pub fn item(&mut self) -> Result<Item<'a>, DerError> {
        let (&tag, behind) = self.rest.split_first().ok_or(DerError::Truncated)?;
        if tag & 0x1f == 0x1f {
            return Err(DerError::Form);
        }
        let (length, head) = length(behind)?;
        let end = head.checked_add(length).ok_or(DerError::Truncated)?;
        let value = behind.get(head..end).ok_or(DerError::Truncated)?;
        let (whole, rest) = self.rest.split_at(1 + end);
        self.rest = rest;
        Ok(Item { tag, value, whole })
    }

    /// The next value, which must have this tag.
    pub fn expect(&mut self, wanted: u8) -> Result<Item<'a>, DerError> {
        let item = self.item()?;
        if item.tag == wanted { Ok(item) } else { Err(DerError::Tag { wanted, found: item.tag }) }
    }

    /// The next value if it has this tag.
    pub fn optional(&mut self, wanted: u8) -> Result<Option<Item<'a>>, DerError> {
        if self.rest.first() == Some(&wanted) { self.item().map(Some) } else { Ok(None) }
    }

    /// A reader of the next value, a SEQUENCE.
    pub fn sequence(&mut self) -> Result<Reader<'a>, DerError> {
        Ok(self.expect(tag::SEQUENCE)?.inside())
    }

    /// The next value, an object identifier.
    pub fn oid(&mut self) -> Result<Oid<'a>, DerError> {
        Oid::new(self.expect(tag::OID)?.value)
    }

    /// The next value if it is a BOOLEAN, else `false`, which is the default of every BOOLEAN in certificates.
    ///
    /// A default that is written out breaks X.690 §11.5, but is common.
    pub fn flag(&mut self) -> Result<bool, DerError> {
        match self.optional(tag::BOOLEAN)?.map(|item| item.value) {
            None | Some([0]) => Ok(false),
            Some([0xff]) => Ok(true),
            Some(_) => Err(DerError::Value("truth value")),
        }
    }

    /// Checks that nothing is left.
    pub fn end(&self) -> Result<(), DerError> {
        if self.rest.is_empty() { Ok(()) } else { Err(DerError::Trailing) }
    }
}

/// A length and the bytes it took (X.690 §10.1).
fn length(bytes: &[u8]) -> Result<(usize, usize), DerError> {
    let first = usize::from(*bytes.first().ok_or(DerError::Truncated)?);
    if first < 0x80 {
        return Ok((first, 1));
    }
    let count = first & 0x7f;
    // Four bytes are four gigabytes: longer forms could only lie.
    if count == 0 || count > 4 {
        return Err(DerError::Form);
    }
    let digits = bytes.get(1..1 + count).ok_or(DerError::Truncated)?;
    let length = digits.iter().fold(0usize, |length, &digit| length << 8 | usize::from(digit));
    let shortest = if count == 1 { length >= 0x80 } else { digits[0] != 0 };
    if shortest { Ok((length, 1 + count)) } else { Err(DerError::Form) }
}

impl<'a> Item<'a> {
    /// A reader of what this holds.
    pub fn inside(&self) -> Reader<'a> {
        Reader::new(self.value)
    }

    /// The bytes of an INTEGER in their shortest form (X.690 §8.3.2).
    pub fn integer(&self) -> Result<&'a [u8], DerError> {
        match self.value {
            [] => Err(DerError::Value("number")),
            [0x00, next, ..] if next & 0x80 == 0 => Err(DerError::Value("number")),
            [0xff, next, ..] if next & 0x80 != 0 => Err(DerError::Value("number")),
            bytes => Ok(bytes),
        }
    }

    /// An INTEGER that is not negative; one of more than 32 bits counts as the greatest.
    pub fn count(&self) -> Result<u32, DerError> {
        let bytes = self.integer()?;
        if bytes[0] & 0x80 != 0 {
            return Err(DerError::Value("count"));
        }
        let bytes = bytes.strip_prefix(&[0]).filter(|rest| !rest.is_empty()).unwrap_or(bytes);
        if bytes.len() > 4 {
            return Ok(u32::MAX);
        }
        Ok(bytes.iter().fold(0, |count, &byte| count << 8 | u32::from(byte)))
    }

    /// The bytes of a BIT STRING and how many bits of the last one do not count (X.690 §8.6).
    pub fn bits(&self) -> Result<(&'a [u8], u8), DerError> {
        let (&unused, bytes) = self.value.split_first().ok_or(DerError::Value("bit string"))?;
        let padding = match bytes.last() {
            Some(last) if unused < 8 => last & ((1u16 << unused) - 1) as u8,
            None if unused == 0 => 0,
            _ => return Err(DerError::Value("bit string")),
        };
        // X.690 §11.2.1: bits that do not count are zero.
        if padding == 0 { Ok((bytes, unused)) } else { Err(DerError::Value("bit string")) }
    }

    /// The bytes of a BIT STRING of whole bytes: a signature, a key.
    pub fn whole_bits(&self) -> Result<&'a [u8], DerError> {
        match self.bits()? {
            (bytes, 0) => Ok(bytes),
            _ => Err(DerError::Value("bit string")),
        }
    }

    /// A UTCTime or GeneralizedTime in the forms of RFC 5280 §4.1.2.5: with seconds, without a fraction, in UTC.
    pub fn time(&self) -> Result<Timestamp, DerError> {
        let digits = self.value.strip_suffix(b"Z").ok_or(DerError::Value("time"))?;
        let parsed = match (self.tag, digits.len()) {
            (tag::UTC_TIME, 12) => {
                // RFC 5280 §4.1.2.5.1: 50 to 99 are the years 1950 to 1999.
                let century: &[u8] = if digits[0] >= b'5' { b"19" } else { b"20" };
                Timestamp::parse(&[century, digits].concat())
            }
            (tag::GENERALIZED_TIME, 14) => Timestamp::parse(digits),
            _ => return Err(DerError::Value("time")),
        };
        parsed.map_err(|_| DerError::Value("time"))
    }
}

/// Writes a value: `tag`, the length of all `parts` together, and the parts.
pub fn encode(tag: u8, parts: &[&[u8]]) -> Vec<u8> {
    let length: usize = parts.iter().map(|part| part.len()).sum();
    let digits = (length as u64).to_be_bytes();
    let digits = &digits[digits.iter().take_while(|&&digit| digit == 0).count()..];
    let mut out = Vec::with_capacity(length + 6);
    out.push(tag);
    match length {
        0..0x80 => out.push(length as u8),
        _ => {
            out.push(0x80 | digits.len() as u8);
            out.extend_from_slice(digits);
        }
    }
    parts.iter().for_each(|part| out.extend_from_slice(part));
    out
}

/// Writes an INTEGER that is not negative.
pub fn encode_count(count: u32) -> Vec<u8> {
    let bytes = u64::from(count).to_be_bytes();
    let zeros = bytes.iter().take_while(|&&byte| byte == 0).count().min(7);
    // A leading zero keeps the sign.
    let start = if bytes[zeros] & 0x80 == 0 { zeros } else { zeros - 1 };
    encode(tag::INTEGER, &[&bytes[start..]])
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn item(bytes: &[u8]) -> Item<'_> {
        Reader::new(bytes).item().unwrap()
    }

    #[test]
    fn lengths_have_one_form() {
        for (bytes, error) in [
            (&[][..], DerError::Truncated),
            (&[0x30], DerError::Truncated),
            (&[0x30, 0x01], DerError::Truncated),
            (&[0x30, 0x80, 0, 0], DerError::Form),
            (&[0x30, 0x81, 0x7f], DerError::Form),
            (&[0x30, 0x81], DerError::Truncated),
            (&[0x30, 0x82, 0x00, 0xff], DerError::Form),
            (&[0x30, 0x84, 0xff, 0xff, 0xff, 0xff], DerError::Truncated),
            (&[0x30, 0x85, 1, 0, 0, 0, 0], DerError::Form),
            (&[0xbf, 0x81, 0x01, 0x00], DerError::Form),
        ] {
            assert_eq!(Reader::new(bytes).item(), Err(error), "{bytes:x?}");
        }
        let long = encode(tag::OCTET_STRING, &[&[7; 200]]);
        assert_eq!((item(&long).value.len(), item(&long).whole.len()), (200, 203));
    }

    #[test]
    fn readers_walk_one_level() {
        let inner = encode(tag::SEQUENCE, &[&encode_count(5), &encode(tag::BOOLEAN, &[&[0xff]])]);
        let outer = encode(tag::SEQUENCE, &[&inner, &encode(tag::NULL, &[])]);
        let mut reader = Reader::new(&outer);
        let mut level = reader.sequence().unwrap();
        assert!(reader.is_empty() && reader.end().is_ok());
        let mut deeper = level.sequence().unwrap();
        assert_eq!(level.rest(), [5, 0]);
        assert_eq!(deeper.expect(tag::INTEGER).unwrap().count(), Ok(5));
        assert_eq!(deeper.end(), Err(DerError::Trailing));
        assert_eq!(deeper.optional(tag::NULL), Ok(None));
        assert_eq!((deeper.flag(), deeper.flag()), (Ok(true), Ok(false)));
        assert_eq!(level.oid(), Err(DerError::Tag { wanted: tag::OID, found: tag::NULL }));
    }

    #[test]
    fn truth_is_all_ones() {
        assert_eq!(Reader::new(&[1, 1, 0]).flag(), Ok(false));
        assert_eq!(Reader::new(&[1, 1, 1]).flag(), Err(DerError::Value("truth value")));
        assert_eq!(Reader::new(&[1, 2, 0, 0]).flag(), Err(DerError::Value("truth value")));
    }

    #[test]
    fn numbers_are_short_and_counts_are_not_negative() {
        for (bytes, count) in [
            (&[2, 1, 0][..], Ok(0)),
            (&[2, 1, 0x7f], Ok(127)),
            (&[2, 2, 0, 0x80], Ok(128)),
            (&[2, 5, 0, 0xff, 0xff, 0xff, 0xff], Ok(u32::MAX)),
            (&[2, 6, 1, 0, 0, 0, 0, 0], Ok(u32::MAX)),
            (&[2, 1, 0x80], Err(DerError::Value("count"))),
            (&[2, 0], Err(DerError::Value("number"))),
            (&[2, 2, 0, 0x7f], Err(DerError::Value("number"))),
            (&[2, 2, 0xff, 0x80], Err(DerError::Value("number"))),
        ] {
            assert_eq!(item(bytes).count(), count, "{bytes:x?}");
        }
    }

    #[test]
    fn bit_strings_have_clean_ends() {
        assert_eq!(item(&[3, 2, 5, 0xa0]).bits(), Ok((&[0xa0][..], 5)));
        assert_eq!(item(&[3, 1, 0]).whole_bits(), Ok(&[][..]));
        for bad in [&[3, 0][..], &[3, 1, 1], &[3, 2, 8, 0], &[3, 2, 5, 0xa1]] {
            assert_eq!(item(bad).bits(), Err(DerError::Value("bit string")), "{bad:x?}");
        }
        assert_eq!(item(&[3, 2, 5, 0xa0]).whole_bits(), Err(DerError::Value("bit string")));
    }

    #[test]
    fn times_have_seconds_and_are_utc() {
        let time = |tag: u8, text: &str| item(&encode(tag, &[text.as_bytes()])).time().map(|time| time.to_wire());
        assert_eq!(time(tag::UTC_TIME, "491231235959Z").unwrap(), "20491231235959");
        assert_eq!(time(tag::UTC_TIME, "500101000000Z").unwrap(), "19500101000000");
        assert_eq!(time(tag::GENERALIZED_TIME, "99991231235959Z").unwrap(), "99991231235959");
        for (tag, bad) in [
            (tag::UTC_TIME, "4912312359Z"),
            (tag::UTC_TIME, "491231235959+0100"),
            (tag::UTC_TIME, "20491231235959Z"),
            (tag::UTC_TIME, "491331235959Z"),
            (tag::UTC_TIME, "4912312359.9Z"),
            (tag::GENERALIZED_TIME, "20491231235959"),
            (tag::GENERALIZED_TIME, "491231235959Z"),
            (tag::INTEGER, "20491231235959Z"),
        ] {
            assert_eq!(time(tag, bad), Err(DerError::Value("time")), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(tag in 0u8..0x1f, parts in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..150), 0..4)) {
            let parts: Vec<&[u8]> = parts.iter().map(Vec::as_slice).collect();
            let bytes = encode(tag, &parts);
            let mut reader = Reader::new(&bytes);
            let item = reader.item().unwrap();
            prop_assert_eq!(item.tag, tag);
            prop_assert_eq!(item.value, parts.concat());
            prop_assert!(reader.is_empty());
        }

        #[test]
        fn counts_survive(count in any::<u32>()) {
            prop_assert_eq!(item(&encode_count(count)).count(), Ok(count));
        }
    }
}
