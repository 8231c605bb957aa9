//! Records in what is appended to and may be torn: kind, length, body, CRC32C of these.

mod crc;

use crc::crc32c;

/// Kind and length in front of a body.
const FRONT: usize = 3;
/// The CRC behind it.
const BACK: usize = 4;

/// Appends a record; a body of more than 65535 bytes is the caller's fault.
pub(crate) fn append(kind: u8, body: &[u8], bytes: &mut Vec<u8>) {
    let start = bytes.len();
    let len = u16::try_from(body.len()).expect("what is recorded has bounds");
    bytes.push(kind);
    bytes.extend_from_slice(&len.to_le_bytes());
    bytes.extend_from_slice(body);
    let crc = crc32c(&bytes[start..]);
    bytes.extend_from_slice(&crc.to_le_bytes());
}

/// The first record: its kind and body, and what follows it; `None` if it is torn or was changed.
pub(crate) fn next(bytes: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (front, rest) = bytes.split_first_chunk::<FRONT>()?;
    let len = usize::from(u16::from_le_bytes([front[1], front[2]]));
    let (body, rest) = rest.split_at_checked(len)?;
    let (crc, rest) = rest.split_first_chunk::<BACK>()?;
    let right = crc32c(&bytes[..FRONT + len]) == u32::from_le_bytes(*crc);
    right.then_some((front[0], body, rest))
}
