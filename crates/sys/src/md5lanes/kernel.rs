//! Kernels: which there are, and how streams of unequal lengths share one.

#[cfg(target_arch = "x86_64")]
use std::arch::is_x86_feature_detected;
use std::fmt;

use super::rounds::{BLOCK, Pair, States, WIDEST, run};
#[cfg(target_arch = "x86_64")]
use super::x86;
use super::{MAX_LANES, Md5};

/// Takes whole blocks of several lanes into their states.
///
/// # Safety
/// The processor must have its instructions; so many blocks of 64 bytes must be readable at each lane's address, of as
/// many lanes as the function is wide.
type Step = unsafe fn(states: &mut States, lanes: &[*const u8; WIDEST], blocks: usize);

/// A way to advance several streams, for one kind of processor.
#[derive(Clone, Copy)]
pub struct Kernel {
    name: &'static str,
    /// For 3 to 8 and for 9 to 16 lanes. They are here only if the processor has their instructions.
    wide: Option<(Step, Step)>,
}

impl Kernel {
    /// Two streams at a time in plain registers; runs everywhere.
    pub const PORTABLE: Self = Self { name: "portable", wide: None };

    /// Every kernel that this processor can run, the fastest first.
    pub fn available() -> impl Iterator<Item = Self> {
        #[cfg(target_arch = "x86_64")]
        let kernels = {
            let avx2 = is_x86_feature_detected!("avx2");
            let avx512 = avx2 && is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512vl");
            let avx512 = avx512.then_some(Self { name: "avx512", wide: Some((x86::avx512_8, x86::avx512_16)) });
            let avx2 = avx2.then_some(Self { name: "avx2", wide: Some((x86::avx2_8, x86::avx2_16)) });
            [avx512, avx2, Some(Self::PORTABLE)]
        };
        #[cfg(not(target_arch = "x86_64"))]
        let kernels = [Some(Self::PORTABLE)];
        kernels.into_iter().flatten()
    }

    /// The fastest kernel that this processor can run.
    pub fn best() -> Self {
        Self::available().next().unwrap_or(Self::PORTABLE)
    }

    /// Its name: `avx512`, `avx2` or `portable`.
    pub fn name(self) -> &'static str {
        self.name
    }

    /// Hashes the next bytes of several streams, `data[i]` for `streams[i]`.
    ///
    /// The two slices must be of one length, else it panics.
    pub fn update(self, streams: &mut [Md5], data: &[&[u8]]) {
        assert_eq!(streams.len(), data.len(), "a piece for every stream");
        for (streams, data) in streams.chunks_mut(MAX_LANES).zip(data.chunks(MAX_LANES)) {
            self.update_group(streams, data);
        }
    }

    /// As [`update`](Self::update), for at most `MAX_LANES` streams.
    fn update_group(self, streams: &mut [Md5], data: &[&[u8]]) {
        let mut rest: [&[u8]; MAX_LANES] = [&[]; MAX_LANES];
        for ((rest, stream), data) in rest.iter_mut().zip(&mut *streams).zip(data) {
            *rest = stream.fill_tail(data);
        }
        while self.advance(streams, &mut rest) {}
        for (stream, rest) in streams.iter_mut().zip(rest) {
            stream.keep_tail(rest);
        }
    }

    /// Advances every stream that has a whole block, by as many blocks as the shortest of them; false if none has.
    fn advance(self, streams: &mut [Md5], rest: &mut [&[u8]; MAX_LANES]) -> bool {
        let mut busy = [0; MAX_LANES];
        let mut count = 0;
        for lane in (0..streams.len()).filter(|&lane| rest[lane].len() >= BLOCK) {
            busy[count] = lane;
            count += 1;
        }
        let busy = &busy[..count];
        let Some(blocks) = busy.iter().map(|&lane| rest[lane].len() / BLOCK).min() else {
            return false;
        };
        let (step, width) = self.step_for(count);
        for group in busy.chunks(width) {
            advance_group(step, group, streams, rest, blocks);
        }
        true
    }

    /// The fastest function for so many lanes, and its width.
    ///
    /// A vector takes its time for all its lanes, used or not: a block of 8 lanes takes that of 1.2 (AVX2) or 1.0
    /// (AVX-512) blocks of a pair, and a block of 16 lanes that of 1.4 or 1.2 blocks of 8.
    fn step_for(self, lanes: usize) -> (Step, usize) {
        match (lanes, self.wide) {
            (..=1, _) => (run::<u32>, 1),
            (2, _) | (_, None) => (run::<Pair<u32>>, 2),
            (..=8, Some((eight, _))) => (eight, 8),
            (_, Some((_, sixteen))) => (sixteen, 16),
        }
    }
}

impl fmt::Debug for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

/// Advances the streams of `group` by `blocks` blocks; the group is not larger than the width of `step`.
fn advance_group(step: Step, group: &[usize], streams: &mut [Md5], rest: &mut [&[u8]; MAX_LANES], blocks: usize) {
    let mut states: States = [[0; WIDEST]; 4];
    // Lanes without a stream repeat the first one's bytes, and their results are dropped.
    let mut lanes = [rest[group[0]].as_ptr(); WIDEST];
    for (column, &lane) in group.iter().enumerate() {
        let (taken, after) = rest[lane].split_at(blocks * BLOCK);
        lanes[column] = taken.as_ptr();
        rest[lane] = after;
        states.iter_mut().zip(streams[lane].state).for_each(|(row, word)| row[column] = word);
    }
    // SAFETY: every address is that of a slice of `blocks` blocks, just split off; `step` is here only if the processor
    // has its instructions.
    unsafe { step(&mut states, &lanes, blocks) };
    for (column, &lane) in group.iter().enumerate() {
        streams[lane].state = states.map(|row| row[column]);
        streams[lane].len += (blocks * BLOCK) as u64;
    }
}

/// Takes one block into a state.
pub(super) fn one_block(state: &mut [u32; 4], block: &[u8; BLOCK]) {
    let mut states = state.map(|word| [word; WIDEST]);
    // SAFETY: one lane of one block, in plain registers.
    unsafe { run::<u32>(&mut states, &[block.as_ptr(); WIDEST], 1) };
    *state = states.map(|row| row[0]);
}
