//! Digests: several streams at once, in pieces of any lengths, against another implementation.

use md5::Digest as _;
use whimbrel_sys::md5lanes::{Kernel, MAX_LANES, Md5};

use super::input::Input;

/// Most streams, more than one kernel takes at once.
const MOST_STREAMS: usize = MAX_LANES + 4;

/// Bytes that pieces are cut from.
const POOL: usize = 2048;

/// MD5 in lanes: whatever the kernel, the number of streams and the cuts, each stream has its own digest.
pub fn md5_lanes(data: &[u8]) {
    let mut input = Input::new(data);
    let count = usize::from(input.byte()) % (MOST_STREAMS + 1);
    let pool = pool(input.byte());
    let mut kernels: Vec<(Kernel, Vec<Md5>)> =
        Kernel::available().map(|kernel| (kernel, vec![Md5::new(); count])).collect();
    assert_eq!(kernels.first().map(|(kernel, _)| kernel.name()), Some(Kernel::best().name()));
    let mut expected = vec![(md5::Md5::new(), 0); count];
    while !input.is_empty() {
        let pieces = pieces(&mut input, &pool, count);
        for (kernel, streams) in &mut kernels {
            kernel.update(streams, &pieces);
        }
        for ((reference, bytes), piece) in expected.iter_mut().zip(&pieces) {
            reference.update(piece);
            *bytes += piece.len() as u64;
        }
        if input.flag() && count > 0 {
            let lane = usize::from(input.byte()) % count;
            let (reference, bytes) = std::mem::take(&mut expected[lane]);
            check(&mut kernels, lane, reference, bytes);
        }
    }
    for (lane, (reference, bytes)) in expected.into_iter().enumerate() {
        check(&mut kernels, lane, reference, bytes);
    }
}

/// Ends a stream, which then begins again.
fn check(kernels: &mut [(Kernel, Vec<Md5>)], lane: usize, reference: md5::Md5, bytes: u64) {
    let expected: [u8; 16] = reference.finalize().into();
    for (kernel, streams) in kernels {
        let stream = std::mem::take(&mut streams[lane]);
        assert_eq!(stream.bytes(), bytes, "{kernel:?}, lane {lane}");
        assert_eq!(stream.finish(), expected, "{kernel:?}, lane {lane} of {bytes} bytes");
    }
}

/// A piece for each stream: all of one length, or of any.
fn pieces<'a>(input: &mut Input, pool: &'a [u8], count: usize) -> Vec<&'a [u8]> {
    let common = input.flag().then(|| len(input));
    (0..count)
        .map(|_| {
            let (start, len) = (usize::from(input.byte()), common.unwrap_or_else(|| len(input)));
            &pool[start..start + len]
        })
        .collect()
}

fn len(input: &mut Input) -> usize {
    (input.number() % (POOL as u64 - 255)) as usize
}

fn pool(seed: u8) -> Vec<u8> {
    (0..POOL as u32).map(|i| ((i + u32::from(seed)).wrapping_mul(2_654_435_761) >> 21) as u8).collect()
}
