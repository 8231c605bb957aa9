//! Keys agreed beforehand, for data channels of our own pairs.

use zeroize::Zeroizing;

/// Bytes of an agreed key.
pub const AGREED_KEY: usize = 32;

/// The key of the data connections of one handle, from the one-time nonce that its control channels carried.
///
/// It is as secret as the channels that carried the nonce: use it only where both were protected.
pub fn from_nonce(nonce: &[u8; 16]) -> Zeroizing<[u8; AGREED_KEY]> {
    Zeroizing::new(blake3::derive_key("whimbrel data channel 1", nonce))
}
