//! Base64 as ADAT, ENC, 63x replies and DCSC carry it: the standard alphabet, padded, in one line (RFC 2228 §9, RFC 4648 §4).
//!
//! What may hold a private key is coded in constant time; what is sealed, fast.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use base64ct::{Base64, Encoding};

/// Why text is no token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Base64Error {
    /// A character, a length or padding that no encoder writes.
    #[error("the text is not base64")]
    Malformed,
    /// More bytes than the caller takes.
    #[error("the text stands for more than {limit} bytes")]
    TooLong {
        /// The most that the caller takes, bytes.
        limit: usize,
    },
}

/// The text of `bytes`, in constant time.
pub fn encode(bytes: &[u8]) -> String {
    Base64::encode_string(bytes)
}

/// Appends the text of bytes that are sealed.
pub fn encode_into(bytes: &[u8], out: &mut Vec<u8>) {
    let start = out.len();
    out.resize(start + encoded_len(bytes.len()), 0);
    STANDARD.encode_slice(bytes, &mut out[start..]).expect("the room is that of the text");
}

/// The bytes of `text`, `limit` at most, in constant time; nothing is decoded of a text that stands for more.
///
/// # Errors
/// [`Base64Error`]; also for what decoders differ about: characters outside the alphabet, missing padding, bits behind the end.
pub fn decode(text: &[u8], limit: usize) -> Result<Vec<u8>, Base64Error> {
    check_length(text, limit)?;
    let text = std::str::from_utf8(text).map_err(|_| Base64Error::Malformed)?;
    Base64::decode_vec(text).map_err(|_| Base64Error::Malformed)
}

/// The same of a text whose bytes are sealed.
///
/// # Errors
/// As [`decode`].
pub fn decode_sealed(text: &[u8], limit: usize) -> Result<Vec<u8>, Base64Error> {
    check_length(text, limit)?;
    STANDARD.decode(text).map_err(|_| Base64Error::Malformed)
}

fn check_length(text: &[u8], limit: usize) -> Result<(), Base64Error> {
    let padding = text.iter().rev().take(2).take_while(|&&b| b == b'=').count();
    match (text.len() / 4).saturating_mul(3).saturating_sub(padding) > limit {
        true => Err(Base64Error::TooLong { limit }),
        false => Ok(()),
    }
}

/// Characters that `bytes` bytes take.
pub(crate) const fn encoded_len(bytes: usize) -> usize {
    bytes.div_ceil(3).saturating_mul(4)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    // RFC 4648 §10.
    #[test]
    fn texts_are_those_of_rfc_4648() {
        for (bytes, text) in
            [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foob", "Zm9vYg=="), ("fooba", "Zm9vYmE=")]
        {
            assert_eq!(encode(bytes.as_bytes()), text);
            assert_eq!(decode(text.as_bytes(), 5), Ok(bytes.as_bytes().to_vec()));
            assert_eq!(decode_sealed(text.as_bytes(), 5), Ok(bytes.as_bytes().to_vec()));
        }
        assert_eq!(encode(&[0xfb, 0xff]), "+/8=");
    }

    #[test]
    fn what_no_encoder_writes_is_refused() {
        for text in [
            "Zg",
            "Zg=",
            "Zh==",
            "Zm9=",
            "Z",
            "====",
            "=",
            "Zm 9v",
            "Zm9v\n",
            "Zm9v====",
            "-_8=",
            "Zg==Zg==",
            "\u{e9}===",
        ] {
            assert_eq!(decode(text.as_bytes(), 100), Err(Base64Error::Malformed), "{text}");
            assert_eq!(decode_sealed(text.as_bytes(), 100), Err(Base64Error::Malformed), "{text}");
        }
        assert_eq!(decode(b"\xff\xff\xff\xff", 100), Err(Base64Error::Malformed));
        assert_eq!(decode_sealed(b"\xff\xff\xff\xff", 100), Err(Base64Error::Malformed));
    }

    #[test]
    fn the_bound_is_on_the_bytes_and_exact() {
        for size in 0..20 {
            let text = encode(&vec![7; size]);
            assert_eq!(decode(text.as_bytes(), size), Ok(vec![7; size]));
            if size > 0 {
                let too_long = Err(Base64Error::TooLong { limit: size - 1 });
                assert_eq!(decode(text.as_bytes(), size - 1), too_long);
                assert_eq!(decode_sealed(text.as_bytes(), size - 1), too_long);
            }
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_again(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let mut text = Vec::new();
            encode_into(&bytes, &mut text);
            prop_assert_eq!(encode(&bytes).into_bytes(), text.clone());
            prop_assert_eq!(decode_sealed(&text, bytes.len()), Ok(bytes.clone()));
            prop_assert_eq!(text.len(), encoded_len(bytes.len()));
            prop_assert_eq!(decode(&text, bytes.len()), Ok(bytes));
        }

        #[test]
        fn one_text_stands_for_one_token(text in "[A-Za-z0-9+/=]{0,16}") {
            prop_assert_eq!(decode(text.as_bytes(), 100), decode_sealed(text.as_bytes(), 100));
            if let Ok(bytes) = decode(text.as_bytes(), 100) {
                prop_assert_eq!(encode(&bytes), text);
            }
        }
    }
}
