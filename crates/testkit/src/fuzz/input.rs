//! Bytes read as choices.

/// Takes numbers from the front of the input; after its end every number is 0.
pub(super) struct Input<'a> {
    rest: &'a [u8],
}

impl<'a> Input<'a> {
    pub(super) fn new(data: &'a [u8]) -> Self {
        Self { rest: data }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    pub(super) fn byte(&mut self) -> u8 {
        match self.rest.split_first() {
            Some((&byte, rest)) => {
                self.rest = rest;
                byte
            }
            None => 0,
        }
    }

    pub(super) fn flag(&mut self) -> bool {
        self.byte() & 1 == 1
    }

    /// A number of any size: mostly small ones, powers of two and their neighbours, and whatever the bytes say.
    pub(super) fn number(&mut self) -> u64 {
        match self.byte() {
            n @ 0..=127 => u64::from(n),
            128..=159 => u64::from(self.byte()) << 8 | u64::from(self.byte()),
            160..=191 => 1 << (self.byte() & 63),
            192..=223 => (1_u64 << (self.byte() & 63)).wrapping_sub(1 + u64::from(self.byte() & 3)),
            _ => (0..8).fold(0, |n, _| n << 8 | u64::from(self.byte())),
        }
    }

    pub(super) fn take(&mut self, len: usize) -> &'a [u8] {
        let (taken, rest) = self.rest.split_at(len.min(self.rest.len()));
        self.rest = rest;
        taken
    }
}

/// Cuts `data` into pieces of 1 to 16 bytes, the sizes chosen by the bytes themselves, so that the same input always
/// gives the same pieces.
pub(super) fn pieces(data: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = data;
    let mut state = data.len() as u32;
    std::iter::from_fn(move || {
        state = state.wrapping_mul(1_664_525).wrapping_add(u32::from(*rest.first()?) + 1_013_904_223);
        let (piece, after) = rest.split_at(((state >> 24) as usize % 16 + 1).min(rest.len()));
        rest = after;
        Some(piece)
    })
}
