//! Kernels for x86-64: AVX2, and AVX-512, whose instructions rotate a word and mix three at once.

use std::arch::asm;
use std::arch::x86_64::*;

use super::rounds::{Pair, States, WIDEST, Words, run};

/// Eight lanes in the registers of AVX2.
#[derive(Clone, Copy)]
struct Avx2(__m256i);

/// Eight lanes in the same registers, with the instructions of AVX-512F and VL.
#[derive(Clone, Copy)]
struct Avx512(__m256i);

/// Sixteen lanes in the registers of AVX-512F.
#[derive(Clone, Copy)]
struct Avx512Wide(__m512i);

/// What differs between the kinds of vector only by the width in the names.
macro_rules! plain_methods {
    ($lanes:literal, $set1:ident, $load:ident, $store:ident, $add:ident, $settled:ident) => {
        const LANES: usize = $lanes;

        #[inline(always)]
        unsafe fn load(from: &[u32]) -> Self {
            assert!(from.len() >= $lanes);
            // SAFETY: so many numbers are readable; the caller promised the processor.
            unsafe { Self($load(from.as_ptr().cast())) }
        }

        #[inline(always)]
        fn store(self, to: &mut [u32]) {
            assert!(to.len() >= $lanes);
            // SAFETY: so many numbers are writable; a value of this kind exists only where its instructions do.
            unsafe { $store(to.as_mut_ptr().cast(), self.0) }
        }

        #[inline(always)]
        fn splat(self, word: u32) -> Self {
            // SAFETY: a value of this kind exists only where its instructions do.
            unsafe { Self($set1(word.cast_signed())) }
        }

        #[inline(always)]
        fn settled(self) -> Self {
            // SAFETY: as in `splat`.
            unsafe { Self($settled(self.0)) }
        }

        #[inline(always)]
        fn add(self, other: Self) -> Self {
            // SAFETY: as in `splat`.
            unsafe { Self($add(self.0, other.0)) }
        }
    };
}

/// Rotation and mixing by one instruction each.
macro_rules! ternary_methods {
    ($rotate:ident, $ternary:ident) => {
        #[inline(always)]
        fn rotate<const LEFT: i32, const RIGHT: i32>(self) -> Self {
            // SAFETY: a value of this kind exists only where its instructions do.
            unsafe { Self($rotate::<LEFT>(self.0)) }
        }

        #[inline(always)]
        fn add_f(self, b: Self, c: Self, d: Self) -> Self {
            // SAFETY: as in `rotate`.
            self.add(unsafe { Self($ternary::<TABLE_F>(b.0, c.0, d.0)) })
        }

        #[inline(always)]
        fn add_g(self, b: Self, c: Self, d: Self) -> Self {
            // SAFETY: as in `rotate`.
            self.add(unsafe { Self($ternary::<TABLE_G>(b.0, c.0, d.0)) })
        }

        #[inline(always)]
        fn add_h(self, b: Self, c: Self, d: Self) -> Self {
            // SAFETY: as in `rotate`.
            self.add(unsafe { Self($ternary::<TABLE_H>(b.0, c.0, d.0)) })
        }

        #[inline(always)]
        fn add_i(self, b: Self, c: Self, d: Self) -> Self {
            // SAFETY: as in `rotate`.
            self.add(unsafe { Self($ternary::<TABLE_I>(b.0, c.0, d.0)) })
        }
    };
}

/// Each of 16 vectors as a value of `$kind`; `map` would go through memory.
macro_rules! each {
    ($kind:ident, $vectors:expr) => {
        each!($kind, $vectors, a b c d e f g h i j k l m n o p)
    };
    ($kind:ident, $vectors:expr, $($word:ident)*) => {{
        let [$($word),*] = $vectors;
        [$($kind($word)),*]
    }};
}

/// Truth tables of the mixing functions, for inputs b, c and d whose columns are 0xf0, 0xcc and 0xaa.
const TABLE_F: i32 = (0xf0 & 0xcc) | (!0xf0 & 0xaa);
const TABLE_G: i32 = (0xf0 & 0xaa) | (0xcc & !0xaa);
const TABLE_H: i32 = 0xf0 ^ 0xcc ^ 0xaa;
const TABLE_I: i32 = (0xcc ^ (0xf0 | !0xaa)) & 0xff;

impl Words for Avx2 {
    plain_methods!(8, _mm256_set1_epi32, _mm256_loadu_si256, _mm256_storeu_si256, _mm256_add_epi32, settled256);

    #[inline(always)]
    unsafe fn block(lanes: &[*const u8]) -> [Self; 16] {
        // SAFETY: the caller's promise of the processor and of 64 bytes at each address.
        each!(Avx2, unsafe { block8(lanes) })
    }

    #[inline(always)]
    fn rotate<const LEFT: i32, const RIGHT: i32>(self) -> Self {
        // SAFETY: a value of this kind exists only where its instructions do.
        unsafe { Self(_mm256_or_si256(_mm256_slli_epi32::<LEFT>(self.0), _mm256_srli_epi32::<RIGHT>(self.0))) }
    }

    #[inline(always)]
    fn add_f(self, b: Self, c: Self, d: Self) -> Self {
        // SAFETY: as in `rotate`.
        self.add(unsafe { Self(_mm256_xor_si256(_mm256_and_si256(_mm256_xor_si256(c.0, d.0), b.0), d.0)) })
    }

    #[inline(always)]
    fn add_g(self, b: Self, c: Self, d: Self) -> Self {
        // The two halves have no bit in common, so that they can be added; the second alone waits for b.
        // SAFETY: as in `rotate`.
        let (early, late) = unsafe { (Self(_mm256_andnot_si256(d.0, c.0)), Self(_mm256_and_si256(b.0, d.0))) };
        self.add(early).settled().add(late)
    }

    #[inline(always)]
    fn add_h(self, b: Self, c: Self, d: Self) -> Self {
        // SAFETY: as in `rotate`.
        self.add(unsafe { Self(_mm256_xor_si256(_mm256_xor_si256(c.0, d.0), b.0)) })
    }

    #[inline(always)]
    fn add_i(self, b: Self, c: Self, d: Self) -> Self {
        let ones = self.splat(u32::MAX);
        // SAFETY: as in `rotate`.
        self.add(unsafe { Self(_mm256_xor_si256(_mm256_or_si256(_mm256_xor_si256(d.0, ones.0), b.0), c.0)) })
    }
}

impl Words for Avx512 {
    plain_methods!(8, _mm256_set1_epi32, _mm256_loadu_si256, _mm256_storeu_si256, _mm256_add_epi32, settled256);
    ternary_methods!(_mm256_rol_epi32, _mm256_ternarylogic_epi32);

    #[inline(always)]
    unsafe fn block(lanes: &[*const u8]) -> [Self; 16] {
        // SAFETY: the caller's promise of the processor and of 64 bytes at each address.
        each!(Avx512, unsafe { block8(lanes) })
    }
}

impl Words for Avx512Wide {
    plain_methods!(16, _mm512_set1_epi32, _mm512_loadu_si512, _mm512_storeu_si512, _mm512_add_epi32, settled512);
    ternary_methods!(_mm512_rol_epi32, _mm512_ternarylogic_epi32);

    #[inline(always)]
    unsafe fn block(lanes: &[*const u8]) -> [Self; 16] {
        // SAFETY: the caller's promise of the processor and of 64 bytes at each address.
        unsafe {
            let (low, high) = (block8(lanes), block8(&lanes[8..]));
            let mut words = [Self(_mm512_setzero_si512()); 16];
            for (word, (low, high)) in words.iter_mut().zip(low.into_iter().zip(high)) {
                *word = Self(_mm512_inserti64x4::<1>(_mm512_castsi256_si512(low), high));
            }
            words
        }
    }
}

/// The same value, of unknown origin to the compiler.
#[inline]
#[target_feature(enable = "avx")]
fn settled256(mut words: __m256i) -> __m256i {
    // SAFETY: no instruction at all, only a register.
    unsafe { asm!("/* {0} */", inout(ymm_reg) words, options(pure, nomem, nostack, preserves_flags)) };
    words
}

/// As [`settled256`].
#[inline]
#[target_feature(enable = "avx512f")]
fn settled512(mut words: __m512i) -> __m512i {
    // SAFETY: no instruction at all, only a register.
    unsafe { asm!("/* {0} */", inout(zmm_reg) words, options(pure, nomem, nostack, preserves_flags)) };
    words
}

/// All 16 words of the block at each of 8 addresses.
///
/// # Safety
/// 64 bytes must be readable at each address.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn block8(lanes: &[*const u8]) -> [__m256i; 16] {
    // SAFETY: quarters 0 to 3 make the 64 bytes that the caller promised.
    let quarters = unsafe { (turned(lanes, 0), turned(lanes, 1), turned(lanes, 2), turned(lanes, 3)) };
    let ([a, b, c, d], [e, f, g, h], [i, j, k, l], [m, n, o, p]) = quarters;
    [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p]
}

/// Four words of the block at each of 8 addresses, turned so that each vector holds one word of all lanes.
///
/// # Safety
/// The given quarter of 64 bytes must be readable at each address.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn turned(lanes: &[*const u8], quarter: usize) -> [__m256i; 4] {
    // Lanes 0-3 come into the lower and 4-7 into the upper half of a register as they are loaded, which leaves
    // only exchanges inside the halves.
    let row = |lane: usize| {
        // SAFETY: the caller's promise of these 16 bytes.
        unsafe {
            let (low, high) = (lanes[lane].add(quarter * 16), lanes[lane + 4].add(quarter * 16));
            let low = _mm256_castsi128_si256(_mm_loadu_si128(low.cast()));
            _mm256_inserti128_si256::<1>(low, _mm_loadu_si128(high.cast()))
        }
    };
    let (r0, r1, r2, r3) = (row(0), row(1), row(2), row(3));
    let (low01, low23) = (_mm256_unpacklo_epi32(r0, r1), _mm256_unpacklo_epi32(r2, r3));
    let (high01, high23) = (_mm256_unpackhi_epi32(r0, r1), _mm256_unpackhi_epi32(r2, r3));
    [
        _mm256_unpacklo_epi64(low01, low23),
        _mm256_unpackhi_epi64(low01, low23),
        _mm256_unpacklo_epi64(high01, high23),
        _mm256_unpackhi_epi64(high01, high23),
    ]
}

/// A kernel as a function; the rounds are compiled once for each, with its instructions.
macro_rules! kernel {
    ($(#[$doc:meta])* $name:ident, $features:literal, $words:ty) => {
        $(#[$doc])*
        ///
        /// # Safety
        /// As [`run`].
        #[target_feature(enable = $features)]
        pub(super) unsafe fn $name(states: &mut States, lanes: &[*const u8; WIDEST], blocks: usize) {
            // SAFETY: the caller's promise, and the features above.
            unsafe { run::<$words>(states, lanes, blocks) }
        }
    };
}

kernel!(
    /// Eight lanes; needs AVX2.
    avx2_8, "avx2", Avx2
);
kernel!(
    /// Sixteen lanes; needs AVX2.
    avx2_16, "avx2", Pair<Avx2>
);
kernel!(
    /// Eight lanes; needs AVX-512F and VL.
    avx512_8, "avx2,avx512f,avx512vl", Avx512
);
kernel!(
    /// Sixteen lanes; needs AVX-512F and VL.
    avx512_16, "avx2,avx512f,avx512vl", Avx512Wide
);
