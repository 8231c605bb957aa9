//! How byte paths appear in JSON: a string when they are UTF-8, else an array of byte values.
//!
//! For use as `#[serde(with = "whimbrel_engine::listing::path_text")]`; binary formats carry the
//! bytes as they are. Both directions are lossless.

use std::fmt;

use serde::de::{SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Writes `path`.
pub fn serialize<S: Serializer>(path: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
    match std::str::from_utf8(path) {
        Ok(text) if serializer.is_human_readable() => serializer.serialize_str(text),
        _ => path.serialize(serializer),
    }
}

/// Reads a path as [`serialize`] writes it.
pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
    if deserializer.is_human_readable() {
        deserializer.deserialize_any(PathVisitor)
    } else {
        Vec::deserialize(deserializer)
    }
}

struct PathVisitor;

impl<'de> Visitor<'de> for PathVisitor {
    type Value = Vec<u8>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string or an array of byte values")
    }

    fn visit_str<E>(self, text: &str) -> Result<Vec<u8>, E> {
        Ok(text.as_bytes().to_vec())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut bytes: A) -> Result<Vec<u8>, A::Error> {
        let mut path = Vec::new();
        while let Some(byte) = bytes.next_element()? {
            path.push(byte);
        }
        Ok(path)
    }
}
