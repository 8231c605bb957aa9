//! The rounds of MD5 over any kind of word: one number, or a vector with one number for each lane.

/// Bytes that one application of the rounds takes from each lane.
pub(super) const BLOCK: usize = 64;

/// Lanes of the widest kernel.
pub(super) const WIDEST: usize = 16;

/// State before the first block (RFC 1321 §3.3).
pub(super) const INITIAL: [u32; 4] = [0x6745_2301, 0xefcd_ab89, 0x98ba_dcfe, 0x1032_5476];

/// Floor of 2^32 times the sine of 1 to 64 (RFC 1321 §3.4).
const SINES: [u32; 64] = [
    0xd76a_a478,
    0xe8c7_b756,
    0x2420_70db,
    0xc1bd_ceee,
    0xf57c_0faf,
    0x4787_c62a,
    0xa830_4613,
    0xfd46_9501,
    0x6980_98d8,
    0x8b44_f7af,
    0xffff_5bb1,
    0x895c_d7be,
    0x6b90_1122,
    0xfd98_7193,
    0xa679_438e,
    0x49b4_0821,
    0xf61e_2562,
    0xc040_b340,
    0x265e_5a51,
    0xe9b6_c7aa,
    0xd62f_105d,
    0x0244_1453,
    0xd8a1_e681,
    0xe7d3_fbc8,
    0x21e1_cde6,
    0xc337_07d6,
    0xf4d5_0d87,
    0x455a_14ed,
    0xa9e3_e905,
    0xfcef_a3f8,
    0x676f_02d9,
    0x8d2a_4c8a,
    0xfffa_3942,
    0x8771_f681,
    0x6d9d_6122,
    0xfde5_380c,
    0xa4be_ea44,
    0x4bde_cfa9,
    0xf6bb_4b60,
    0xbebf_bc70,
    0x289b_7ec6,
    0xeaa1_27fa,
    0xd4ef_3085,
    0x0488_1d05,
    0xd9d4_d039,
    0xe6db_99e5,
    0x1fa2_7cf8,
    0xc4ac_5665,
    0xf429_2244,
    0x432a_ff97,
    0xab94_23a7,
    0xfc93_a039,
    0x655b_59c3,
    0x8f0c_cc92,
    0xffef_f47d,
    0x8584_5dd1,
    0x6fa8_7e4f,
    0xfe2c_e6e0,
    0xa301_4314,
    0x4e08_11a1,
    0xf753_7e82,
    0xbd3a_f235,
    0x2ad7_d2bb,
    0xeb86_d391,
];

/// States of several messages: `[word][lane]`, the words in the order a, b, c, d.
pub(super) type States = [[u32; WIDEST]; 4];

/// One word of each lane, added and mixed side by side.
///
/// A value proves that the processor has the instructions of its kind: only the unsafe functions make one from nothing.
pub(super) trait Words: Copy {
    /// Numbers side by side.
    const LANES: usize;

    /// The first `LANES` numbers of `from`.
    ///
    /// # Safety
    /// The processor must have the instructions of this kind.
    unsafe fn load(from: &[u32]) -> Self;

    /// The 16 words of the block at each of the first `LANES` addresses.
    ///
    /// # Safety
    /// As [`load`](Self::load), and 64 bytes must be readable at each address.
    unsafe fn block(lanes: &[*const u8]) -> [Self; 16];

    /// Writes the first `LANES` numbers of `to`.
    fn store(self, to: &mut [u32]);

    /// The same number in every lane.
    fn splat(self, word: u32) -> Self;

    /// The same value, of unknown origin to the compiler, which therefore cannot regroup a sum across it.
    fn settled(self) -> Self;

    /// Sum modulo 2^32.
    fn add(self, other: Self) -> Self;

    /// Rotation to the left by `LEFT` bits; `RIGHT` is 32 - `LEFT`.
    fn rotate<const LEFT: i32, const RIGHT: i32>(self) -> Self;

    /// `self` + (b and c, or not b and d).
    fn add_f(self, b: Self, c: Self, d: Self) -> Self;

    /// `self` + (b and d, or c and not d).
    fn add_g(self, b: Self, c: Self, d: Self) -> Self;

    /// `self` + (b xor c xor d).
    fn add_h(self, b: Self, c: Self, d: Self) -> Self;

    /// `self` + (c xor (b or not d)).
    fn add_i(self, b: Self, c: Self, d: Self) -> Self;
}

/// Applies the four rounds to one block of each lane (RFC 1321 §3.4).
#[inline(always)]
fn compress<W: Words>(state: [W; 4], words: &[W; 16]) -> [W; 4] {
    let [mut a, mut b, mut c, mut d] = state;
    macro_rules! step {
        ($add:ident, $a:ident, $b:ident, $c:ident, $d:ident, $word:expr, $sine:expr, $left:literal) => {
            // Only `b` waits for the step before: what is known without it is added first.
            let early = $a.add(words[$word]).add($a.splat(SINES[$sine])).settled();
            $a = early.$add($b, $c, $d).rotate::<$left, { 32 - $left }>().add($b);
        };
    }
    // Sixteen steps: the first sine, the first word and how far apart the next ones are, and the rotations.
    macro_rules! round {
        ($add:ident, $sine:literal, $word:literal, $stride:literal, $rotations:tt) => {
            round!($add, $sine, $word, $stride, $rotations, 0);
            round!($add, $sine, $word, $stride, $rotations, 4);
            round!($add, $sine, $word, $stride, $rotations, 8);
            round!($add, $sine, $word, $stride, $rotations, 12);
        };
        ($add:ident, $sine:literal, $word:literal, $stride:literal, [$r0:literal $r1:literal $r2:literal $r3:literal], $at:literal) => {
            step!($add, a, b, c, d, ($word + $stride * $at) % 16, $sine + $at, $r0);
            step!($add, d, a, b, c, ($word + $stride * ($at + 1)) % 16, $sine + $at + 1, $r1);
            step!($add, c, d, a, b, ($word + $stride * ($at + 2)) % 16, $sine + $at + 2, $r2);
            step!($add, b, c, d, a, ($word + $stride * ($at + 3)) % 16, $sine + $at + 3, $r3);
        };
    }
    round!(add_f, 0, 0, 1, [7 12 17 22]);
    round!(add_g, 16, 1, 5, [5 9 14 20]);
    round!(add_h, 32, 5, 3, [4 11 16 23]);
    round!(add_i, 48, 0, 7, [6 10 15 21]);
    [state[0].add(a), state[1].add(b), state[2].add(c), state[3].add(d)]
}

/// Takes `blocks` blocks from each of the first `W::LANES` lanes into their states.
///
/// # Safety
/// The processor must have the instructions of `W`; `blocks` times 64 bytes must be readable at each of these addresses.
#[inline(always)]
pub(super) unsafe fn run<W: Words>(states: &mut States, lanes: &[*const u8; WIDEST], blocks: usize) {
    let [a, b, c, d] = &*states;
    // SAFETY: the caller's promise about the processor.
    let mut state: [W; 4] = unsafe { [W::load(a), W::load(b), W::load(c), W::load(d)] };
    let mut lanes = *lanes;
    for _ in 0..blocks {
        // SAFETY: the caller's promise about the processor, and that this block of every lane is readable.
        let words = unsafe { W::block(&lanes[..W::LANES]) };
        state = compress(state, &words);
        lanes.iter_mut().take(W::LANES).for_each(|lane| *lane = lane.wrapping_add(BLOCK));
    }
    states.iter_mut().zip(state).for_each(|(row, words)| words.store(row));
}

/// Two groups of lanes in turn: while a step of one waits for its result, that of the other is computed.
#[derive(Clone, Copy)]
pub(super) struct Pair<W>(W, W);

impl<W: Words> Words for Pair<W> {
    const LANES: usize = W::LANES * 2;

    #[inline(always)]
    unsafe fn load(from: &[u32]) -> Self {
        // SAFETY: the caller's promise, handed on.
        unsafe { Self(W::load(from), W::load(&from[W::LANES..])) }
    }

    #[inline(always)]
    unsafe fn block(lanes: &[*const u8]) -> [Self; 16] {
        // SAFETY: the caller's promise, handed on.
        let (first, second) = unsafe { (W::block(&lanes[..W::LANES]), W::block(&lanes[W::LANES..])) };
        let mut words = [Self(first[0], second[0]); 16];
        words
            .iter_mut()
            .zip(first.into_iter().zip(second))
            .for_each(|(word, (first, second))| *word = Self(first, second));
        words
    }

    #[inline(always)]
    fn store(self, to: &mut [u32]) {
        self.0.store(to);
        self.1.store(&mut to[W::LANES..]);
    }

    #[inline(always)]
    fn splat(self, word: u32) -> Self {
        Self(self.0.splat(word), self.1.splat(word))
    }

    #[inline(always)]
    fn settled(self) -> Self {
        Self(self.0.settled(), self.1.settled())
    }

    #[inline(always)]
    fn add(self, other: Self) -> Self {
        Self(self.0.add(other.0), self.1.add(other.1))
    }

    #[inline(always)]
    fn rotate<const LEFT: i32, const RIGHT: i32>(self) -> Self {
        Self(self.0.rotate::<LEFT, RIGHT>(), self.1.rotate::<LEFT, RIGHT>())
    }

    #[inline(always)]
    fn add_f(self, b: Self, c: Self, d: Self) -> Self {
        Self(self.0.add_f(b.0, c.0, d.0), self.1.add_f(b.1, c.1, d.1))
    }

    #[inline(always)]
    fn add_g(self, b: Self, c: Self, d: Self) -> Self {
        Self(self.0.add_g(b.0, c.0, d.0), self.1.add_g(b.1, c.1, d.1))
    }

    #[inline(always)]
    fn add_h(self, b: Self, c: Self, d: Self) -> Self {
        Self(self.0.add_h(b.0, c.0, d.0), self.1.add_h(b.1, c.1, d.1))
    }

    #[inline(always)]
    fn add_i(self, b: Self, c: Self, d: Self) -> Self {
        Self(self.0.add_i(b.0, c.0, d.0), self.1.add_i(b.1, c.1, d.1))
    }
}

/// One lane, in a plain register.
impl Words for u32 {
    const LANES: usize = 1;

    #[inline(always)]
    unsafe fn load(from: &[u32]) -> Self {
        from[0]
    }

    #[inline(always)]
    unsafe fn block(lanes: &[*const u8]) -> [Self; 16] {
        // SAFETY: the caller promised 64 readable bytes; the type asks for no alignment.
        let block: [[u8; 4]; 16] = unsafe { lanes[0].cast::<[[u8; 4]; 16]>().read() };
        block.map(u32::from_le_bytes)
    }

    #[inline(always)]
    fn store(self, to: &mut [u32]) {
        to[0] = self;
    }

    #[inline(always)]
    fn splat(self, word: u32) -> Self {
        word
    }

    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    fn settled(mut self) -> Self {
        // SAFETY: no instruction at all, only a register.
        unsafe { std::arch::asm!("/* {0:e} */", inout(reg) self, options(pure, nomem, nostack, preserves_flags)) };
        self
    }

    #[cfg(not(target_arch = "x86_64"))]
    #[inline(always)]
    fn settled(self) -> Self {
        self
    }

    #[inline(always)]
    fn add(self, other: Self) -> Self {
        self.wrapping_add(other)
    }

    #[inline(always)]
    fn rotate<const LEFT: i32, const RIGHT: i32>(self) -> Self {
        self.rotate_left(LEFT.cast_unsigned())
    }

    #[inline(always)]
    fn add_f(self, b: Self, c: Self, d: Self) -> Self {
        self.add(((c ^ d) & b) ^ d)
    }

    #[inline(always)]
    fn add_g(self, b: Self, c: Self, d: Self) -> Self {
        // The two halves have no bit in common, so that they can be added; the second alone waits for b.
        self.add(c & !d).settled().add(b & d)
    }

    #[inline(always)]
    fn add_h(self, b: Self, c: Self, d: Self) -> Self {
        self.add(c ^ d ^ b)
    }

    #[inline(always)]
    fn add_i(self, b: Self, c: Self, d: Self) -> Self {
        self.add((b | !d) ^ c)
    }
}
