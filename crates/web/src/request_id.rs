//! What an answer, its log lines and a user's question about it have in common.

use std::fmt;

use openssl::rand::rand_bytes;

/// Letters and digits of an id: none that looks like another.
const LETTERS: &[u8; 32] = b"abcdefghjkmnpqrstuvwxyz23456789_";

/// Nine characters that tell a request from others; unguessable, but no secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RequestId([u8; 9]);

impl RequestId {
    /// A new one.
    pub fn random() -> Self {
        let mut bytes = [0; 9];
        // Without randomness ids are alike, which harms nobody but who reads logs.
        let _filled = rand_bytes(&mut bytes);
        Self(bytes.map(|byte| LETTERS[usize::from(byte % 32)]))
    }

    /// Its text.
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).expect("its letters are ASCII")
    }
}

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_has_nine_characters_of_the_alphabet_and_no_two_are_alike() {
        let ids: std::collections::HashSet<_> = (0..1000).map(|_| RequestId::random()).collect();
        assert_eq!(ids.len(), 1000);
        assert!(ids.iter().all(|id| id.as_str().len() == 9 && id.as_str().bytes().all(|byte| LETTERS.contains(&byte))));
    }
}
