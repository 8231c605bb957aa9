//! The 17-byte header of a MODE E block (GFD.20 §3.4).

/// Bytes of a header on the wire.
pub(super) const HEADER_LEN: usize = 17;

/// Descriptor bit: the offset field is EODC, the number of EODs the receiver will see.
pub(super) const EOF: u8 = 0x40;
/// Descriptor bit: the last block of this transfer on this connection.
pub(super) const EOD: u8 = 0x08;
/// Descriptor bit: the sender closes after this block.
pub(super) const CLOSE: u8 = 0x04;

/// One block header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) descriptor: u8,
    pub(super) count: u64,
    pub(super) offset: u64,
}

impl Header {
    pub(super) fn encode(self) -> [u8; HEADER_LEN] {
        let mut wire = [0; HEADER_LEN];
        wire[0] = self.descriptor;
        wire[1..9].copy_from_slice(&self.count.to_be_bytes());
        wire[9..].copy_from_slice(&self.offset.to_be_bytes());
        wire
    }

    pub(super) fn decode(wire: &[u8; HEADER_LEN]) -> Self {
        let number = |at: usize| {
            let bytes = wire[at..at + 8].try_into().expect("eight bytes");
            u64::from_be_bytes(bytes)
        };
        Self { descriptor: wire[0], count: number(1), offset: number(9) }
    }

    pub(super) fn has(self, bit: u8) -> bool {
        self.descriptor & bit != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_the_captured_bytes_of_the_stock_server() {
        let data = Header { descriptor: 0, count: 6, offset: 0 };
        assert_eq!(data.encode(), [0, 0, 0, 0, 0, 0, 0, 0, 6, 0, 0, 0, 0, 0, 0, 0, 0]);
        let end = Header { descriptor: EOF | EOD, count: 0, offset: 2 };
        assert_eq!(end.encode(), [0x48, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2]);
    }

    #[test]
    fn decode_is_the_inverse_of_encode() {
        let header = Header { descriptor: CLOSE, count: u64::MAX - 5, offset: 0x0102_0304_0506_0708 };
        assert_eq!(Header::decode(&header.encode()), header);
        assert!(header.has(CLOSE) && !header.has(EOD));
    }
}
