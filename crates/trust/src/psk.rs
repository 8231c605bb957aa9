//! Keys agreed beforehand, for data channels of our own pairs.

use openssl::sha::Sha256;
use zeroize::Zeroizing;

/// Bytes of an agreed key.
pub const AGREED_KEY: usize = 32;

/// The key of the data connections of one handle, from the one-time nonce that its control channels carried.
///
/// It is as secret as the channels that carried the nonce: use it only where both were protected.
pub fn from_nonce(nonce: &[u8; 16]) -> Zeroizing<[u8; AGREED_KEY]> {
    Zeroizing::new(blake3::derive_key("whimbrel data channel 1", nonce))
}

/// What a relay joins the connections of one handle by: it leads back neither to the nonce nor to the key.
pub fn relay_token(nonce: &[u8; 16]) -> [u8; 32] {
    let mut digest = Sha256::new();
    digest.update(b"whimbrel relay");
    digest.update(nonce);
    digest.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_relays_token_is_of_the_nonce_and_not_the_key() {
        let hex: String = relay_token(&[0; 16]).iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, "a305fea6ebb90fbcc561d62f21c0af02a5ff6ac061a9cea42edfbf1e8c64a3b4");
        assert_ne!(relay_token(&[0; 16]), relay_token(&[1; 16]));
        assert_ne!(relay_token(&[0; 16]), *from_nonce(&[0; 16]));
    }
}
