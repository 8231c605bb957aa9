use super::*;

/// Bytes that differ from place to place.
fn sample(len: usize, seed: u32) -> Vec<u8> {
    (0..len as u32).map(|i| (i.wrapping_add(seed).wrapping_mul(2_654_435_761) >> 21) as u8).collect()
}

fn reference(data: &[u8]) -> [u8; 16] {
    use ::md5::Digest as _;
    ::md5::Md5::digest(data).into()
}

fn digests(kernel: Kernel, data: &[&[u8]]) -> Vec<[u8; 16]> {
    let mut streams = vec![Md5::new(); data.len()];
    kernel.update(&mut streams, data);
    streams.into_iter().map(Md5::finish).collect()
}

fn hex(digest: [u8; 16]) -> String {
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn published_vectors_hold_in_every_lane() {
    // RFC 1321 §A.5
    let vectors: [(&str, &str); 7] = [
        ("", "d41d8cd98f00b204e9800998ecf8427e"),
        ("a", "0cc175b9c0f1b6a831c399e269772661"),
        ("abc", "900150983cd24fb0d6963f7d28e17f72"),
        ("message digest", "f96b697d7cb7938d525a2f31aaf161d0"),
        ("abcdefghijklmnopqrstuvwxyz", "c3fcd3d76192e4007dfb496cca67e13b"),
        ("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789", "d174ab98d277d9f5a5611c2c9f419d9f"),
        (
            "12345678901234567890123456789012345678901234567890123456789012345678901234567890",
            "57edf4a22be3c955ac49da2e2107b67a",
        ),
    ];
    for kernel in Kernel::available() {
        for (text, expected) in vectors {
            for digest in digests(kernel, &[text.as_bytes(); MAX_LANES + 1]) {
                assert_eq!(hex(digest), expected, "{kernel:?} of {text:?}");
            }
        }
    }
}

#[test]
fn every_short_length_is_right_in_every_lane() {
    let data = sample(300 + MAX_LANES, 1);
    for kernel in Kernel::available() {
        for len in 0..300 {
            let lanes: Vec<&[u8]> = (0..MAX_LANES).map(|lane| &data[lane..lane + len]).collect();
            for (lane, digest) in digests(kernel, &lanes).into_iter().enumerate() {
                assert_eq!(digest, reference(lanes[lane]), "{kernel:?}, {len} bytes in lane {lane}");
            }
        }
    }
}

#[test]
fn any_number_of_streams_of_unequal_lengths_is_right() {
    let data = sample(6000, 2);
    for kernel in Kernel::available() {
        for count in 0..=2 * MAX_LANES + 3 {
            let lanes: Vec<&[u8]> = (0..count).map(|lane| &data[lane..lane * 977 % 5000 + lane]).collect();
            for (lane, digest) in digests(kernel, &lanes).into_iter().enumerate() {
                assert_eq!(digest, reference(lanes[lane]), "{kernel:?}, lane {lane} of {count}");
            }
        }
    }
}

#[test]
fn streams_fed_in_pieces_hash_like_the_whole() {
    let mut state = 1_u32;
    let mut next = |limit: usize| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) as usize % limit
    };
    let wholes: Vec<Vec<u8>> = (0..MAX_LANES).map(|lane| sample(20_000 + next(5000), lane as u32)).collect();
    for kernel in Kernel::available() {
        let mut streams = vec![Md5::new(); MAX_LANES];
        let mut rest: Vec<&[u8]> = wholes.iter().map(Vec::as_slice).collect();
        while rest.iter().any(|rest| !rest.is_empty()) {
            let mut pieces: Vec<&[u8]> = Vec::new();
            for rest in &mut rest {
                let limit = [1, 64, 200, 3000][next(4)];
                let (piece, after) = rest.split_at(next(limit + 1).min(rest.len()));
                pieces.push(piece);
                *rest = after;
            }
            kernel.update(&mut streams, &pieces);
        }
        for (stream, whole) in streams.into_iter().zip(&wholes) {
            assert_eq!(stream.bytes(), whole.len() as u64);
            assert_eq!(stream.finish(), reference(whole), "{kernel:?}");
        }
    }
}

#[test]
fn the_length_counts_beyond_32_bits() {
    // 2^32 bits and a little: the length's second word is part of the digest.
    let block = sample(1 << 20, 3);
    let (mut stream, mut other) = (Md5::new(), ::md5::Md5::default());
    for _ in 0..513 {
        stream.update(&block);
        ::md5::Digest::update(&mut other, &block);
    }
    assert_eq!(stream.finish(), <[u8; 16]>::from(::md5::Digest::finalize(other)));
}

#[test]
fn the_best_kernel_comes_first_and_the_portable_one_always() {
    let names: Vec<&str> = Kernel::available().map(Kernel::name).collect();
    assert_eq!(names.first().copied(), Some(Kernel::best().name()));
    assert_eq!(names.last().copied(), Some("portable"));
}

#[test]
#[should_panic = "a piece for every stream"]
fn a_stream_without_a_piece_is_a_mistake() {
    update(&mut [Md5::new(), Md5::new()], &[b"only one"]);
}
