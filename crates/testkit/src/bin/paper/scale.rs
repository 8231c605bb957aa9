//! From the paper's sizes to the laboratory's.

use std::time::Duration;

/// Movers of a facility: data transfer nodes with one session each. The paper has 64 sessions.
pub const MOVERS: u64 = 8;
/// Sessions of the paper.
const PAPER_MOVERS: u64 = 64;
/// Bytes that every task of the paper moves.
const PAPER_BYTES: u64 = 500_000_000_000;
/// Smallest chunk that the client takes, bytes.
const LEAST_CHUNK: u64 = 64 << 10;

/// Storage reads so many times as fast as it writes. Without chunks the paper's single file took 500 GB at 1.98 Gbit/s,
/// 2020 s, of which 773 s went into its proof: moved in 1247 s, read back in 773 s.
pub const READ_BY_WRITE: f64 = 1247.0 / 773.0;

/// Round trips are a tenth of those between the paper's facilities; times as a whole shrink more (see the page).
pub const ROUND_TRIPS: [(&str, &str, Duration); 3] = [
    ("A", "N", Duration::from_micros(5_000)),
    ("A", "O", Duration::from_micros(2_500)),
    ("N", "O", Duration::from_micros(6_500)),
];
/// Between the client, which is the service of the paper, and each facility.
pub const CLIENT_ROUND_TRIP: Duration = Duration::from_millis(4);
/// Of each link: twice what all movers of the fastest facility store together.
pub const LINK_MBIT: u64 = 2000;

/// How much smaller everything is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Scale {
    /// Bytes that every task moves.
    pub bytes: u64,
    /// Bytes of the file whose chunks go over 1 to 4 pairs.
    pub scaling_bytes: u64,
}

impl Scale {
    /// 1:4000.
    pub const FULL: Scale = Scale { bytes: 125_000_000, scaling_bytes: 480_000_000 };
    /// 1:16,000.
    pub const QUICK: Scale = Scale { bytes: 31_250_000, scaling_bytes: 120_000_000 };

    /// Bytes of each of `files`.
    pub fn file(self, files: u32) -> u64 {
        self.bytes / u64::from(files)
    }

    /// Bytes of what is a chunk of so many MB in the paper: each mover gets as many as there.
    pub fn chunk(self, paper_mb: u64) -> u64 {
        let bytes = paper_mb * 1_000_000 * (self.bytes / 1000) / (PAPER_BYTES / 1000) * (PAPER_MOVERS / MOVERS);
        bytes.max(LEAST_CHUNK)
    }

    /// By how much bytes are fewer.
    pub fn divisor(self) -> u64 {
        PAPER_BYTES / self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_mover_gets_as_many_chunks_as_in_the_paper() {
        let scale = Scale::FULL;
        assert_eq!((scale.chunk(50), scale.chunk(500), scale.chunk(5000)), (100_000, 1_000_000, 10_000_000));
        assert_eq!(scale.bytes / scale.chunk(500) / MOVERS, PAPER_BYTES / 500_000_000 / PAPER_MOVERS);
        assert_eq!((scale.file(500), scale.divisor(), Scale::QUICK.divisor()), (250_000, 4000, 16_000));
        assert_eq!(Scale::QUICK.chunk(50), LEAST_CHUNK);
    }
}
