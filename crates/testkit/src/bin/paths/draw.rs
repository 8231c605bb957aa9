//! A path with its ends and data, drawn by seed: what can be wrong with it is known, because it was put there.

use std::fmt;
use std::time::Duration;

use whimbrel_testkit::rng::Rng;

/// Most of a path with loss: its packets cross one by one, which costs the machine's processors.
const MOST_LOSSY_MBIT: f64 = 800.0;
/// Most of a path between many hosts: every packet crosses three links.
const MOST_CLUSTER_MBIT: f64 = 300.0;
/// Most of a path for a tree: many small files cost the machine's processors more than their bytes.
const MOST_TREE_MBIT: f64 = 300.0;
/// Least of a path whose storage or processors are slower than it.
const LEAST_SPARE_MBIT: f64 = 200.0;
/// What a server moves for each hundredth of a processor, about, bytes per second: a source, which reads, hashes and sends;
/// a destination, which writes and reads back besides; of a tree, whose small files cost both more than their bytes.
const SENT_PER_PERCENT: f64 = 35e6;
const STORED_PER_PERCENT: f64 = 14e6;
const OF_A_TREE_PER_PERCENT: [f64; 2] = [14e6, 6e6];
/// Least share of a processor, percent, at a source and at a destination: of large files, and of a tree. A share comes in slices of
/// 50 ms, and between two of them other machines empty the caches: with 1 ms of 50 a copy of 8 MiB takes 1.3 to 13 ms of
/// processor time, median 2.8, with 4 of 50 it takes 0.6 to 3.3, median 1.0, and undivided 0.6 to 1.1.
const LEAST_SHARE: [f64; 2] = [2.0, 4.0];
const LEAST_SHARE_OF_A_TREE: [f64; 2] = [3.0, 6.0];
/// Least to move, bytes.
const LEAST_BYTES: f64 = 32e6;

/// What is the slowest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// The path, by its rate or its losses.
    Network,
    /// The source's disk.
    SourceStorage,
    /// The destination's disk.
    DestinationStorage,
    /// The source's processor.
    SourceProcessor,
    /// The destination's processor.
    DestinationProcessor,
}

impl Limit {
    /// Whether it is the processors of an end.
    pub fn is_a_processor(self) -> bool {
        matches!(self, Limit::SourceProcessor | Limit::DestinationProcessor)
    }
}

/// The machines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ends {
    /// One server at each end.
    Pair,
    /// Three servers to five, each behind a link of its own speed.
    Cluster,
}

/// What is moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Files {
    /// One file.
    One,
    /// A few files of equal size in a folder.
    Few(u32),
    /// Many folders with files of very unequal sizes, shaped like the tree of the Petascale DTN project.
    Tree,
}

/// Where the command runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Client {
    /// Next to the source.
    NearSource,
    /// Next to the destination.
    NearDestination,
}

/// One path.
#[derive(Clone, Debug, PartialEq)]
pub struct Draw {
    pub number: u32,
    /// Of its losses and its data.
    pub seed: u64,
    pub limit: Limit,
    pub ends: Ends,
    pub files: Files,
    pub client: Client,
    pub rtt: Duration,
    pub rate_mbit: u64,
    pub loss: f64,
    /// Whether the rate is halved midway.
    pub halved: bool,
    /// Congestion control that the hosts have by themselves; both others are allowed.
    pub congestion: &'static str,
    /// What the slow disk does, bytes per second; the part of a processor that there is, percent; else 0.
    pub amount: u64,
    /// Link rates of three sources and five destinations as parts of the path's.
    pub speeds: [f64; 8],
    pub bytes: u64,
}

/// Of twenty paths, how many are like that.
const KINDS: [(u32, Limit, Ends, bool); 9] = [
    (4, Limit::Network, Ends::Pair, false),
    (3, Limit::Network, Ends::Pair, true),
    (2, Limit::Network, Ends::Cluster, false),
    (1, Limit::Network, Ends::Cluster, true),
    (3, Limit::SourceStorage, Ends::Pair, false),
    (3, Limit::DestinationStorage, Ends::Pair, false),
    (2, Limit::SourceProcessor, Ends::Pair, false),
    (1, Limit::DestinationProcessor, Ends::Pair, false),
    (1, Limit::DestinationProcessor, Ends::Pair, false),
];

/// The path of that number: any twenty in a row have every kind in it, in an order that follows from the seed. What moves in
/// `seconds` are its data; it has `most` megabits per second at most, unless a processor's share asks for more.
pub fn draw(seed: u64, number: u32, seconds: f64, most_mbit: f64) -> Draw {
    let (limit, ends, halved) = kind(seed, number);
    let mut rng = Rng::new(seed ^ (u64::from(number) + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let rtt = Duration::from_secs_f64(spread(&mut rng, 0.001, 0.3));
    let wanted = spread(&mut rng, 50.0, 2000.0);
    let loss = if rng.unit() < 0.4 { 0.0 } else { spread(&mut rng, 1e-5, 1e-3) };
    let files = match rng.below(10) {
        0..4 => Files::One,
        4..7 => Files::Few(2 + rng.below(5) as u32),
        _ => Files::Tree,
    };
    let client = if rng.below(2) == 0 { Client::NearSource } else { Client::NearDestination };
    let congestion = if rng.unit() < 0.6 { "cubic" } else { "bbr" };
    let spare = limit != Limit::Network;
    let loss = if spare { 0.0 } else { loss };
    let most = match ends {
        Ends::Cluster => MOST_CLUSTER_MBIT,
        Ends::Pair if files == Files::Tree => MOST_TREE_MBIT,
        Ends::Pair if loss > 0.0 => MOST_LOSSY_MBIT,
        Ends::Pair => 2000.0,
    };
    let most = most.min(most_mbit);
    let rate_mbit = wanted.min(most).max(if spare { LEAST_SPARE_MBIT } else { 0.0 }).round() as u64;
    let link = rate_mbit as f64 * 1e6 / 8.0;
    let part = 0.2 + 0.2 * rng.unit();
    let (amount, capacity) = match limit {
        Limit::Network if halved => (0, link * 0.75),
        Limit::Network => (0, link),
        Limit::SourceStorage | Limit::DestinationStorage => ((link * part) as u64, link * part),
        Limit::SourceProcessor | Limit::DestinationProcessor => {
            let (each, least) = match files {
                Files::Tree => (OF_A_TREE_PER_PERCENT, LEAST_SHARE_OF_A_TREE),
                Files::One | Files::Few(_) => ([SENT_PER_PERCENT, STORED_PER_PERCENT], LEAST_SHARE),
            };
            let end = usize::from(limit == Limit::DestinationProcessor);
            let (each, least) = (each[end], least[end]);
            let percent = (link * part / each).round().max(least);
            (percent as u64, percent * each)
        }
    };
    // A processor's smallest share moves more than a slow link does.
    let rate_mbit = if limit.is_a_processor() { rate_mbit.max((capacity * 2.5 * 8e-6) as u64) } else { rate_mbit };
    let bytes = (capacity * seconds).max(LEAST_BYTES) as u64;
    Draw {
        number,
        seed: rng.next_u64(),
        limit,
        ends,
        files,
        client,
        rtt,
        rate_mbit,
        loss,
        halved,
        congestion,
        amount,
        speeds: speeds(&mut rng),
        bytes,
    }
}

fn kind(seed: u64, number: u32) -> (Limit, Ends, bool) {
    let mut kinds: Vec<(Limit, Ends, bool)> = Vec::new();
    for (count, limit, ends, halved) in KINDS {
        kinds.extend((0..count).map(|_| (limit, ends, halved)));
    }
    let mut rng = Rng::new(seed.wrapping_add(u64::from(number) / kinds.len() as u64));
    rng.shuffle(&mut kinds);
    kinds[number as usize % kinds.len()]
}

/// A value whose logarithm is uniform.
fn spread(rng: &mut Rng, least: f64, most: f64) -> f64 {
    least * (most / least).powf(rng.unit())
}

/// Three to five unequal links that together carry more than the path.
fn speeds(rng: &mut Rng) -> [f64; 8] {
    let mut speeds = [0.3, 0.5, 0.8, 0.12, 0.2, 0.3, 0.4, 0.6];
    let (sources, destinations) = speeds.split_at_mut(3);
    for side in [sources, destinations] {
        rng.shuffle(side);
    }
    speeds
}

impl Draw {
    /// Names of the bottleneck that are right.
    pub fn right_names(&self) -> &'static [&'static str] {
        match self.limit {
            Limit::Network => &["network"],
            Limit::SourceStorage => &["source_read"],
            Limit::DestinationStorage => &["destination_write"],
            Limit::SourceProcessor => &["source_processor", "source_hashing"],
            Limit::DestinationProcessor => &["destination_processor", "destination_hashing"],
        }
    }

    /// Bytes of the largest file, about.
    pub fn largest(&self) -> u64 {
        match self.files {
            Files::One => self.bytes,
            Files::Few(count) => self.bytes / u64::from(count),
            Files::Tree => self.tree_largest(),
        }
    }

    /// The largest size of a tree whose files are halved by chance, so that together they have these bytes.
    pub fn tree_largest(&self) -> u64 {
        // The mean of the halvings makes a file of one in 24.
        self.bytes * 24 / TREE_FILES
    }
}

/// 211 directories with 9 files each.
pub const TREE_FILES: u64 = 9 * 211;

impl fmt::Display for Draw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let limit = match self.limit {
            Limit::Network => "network".into(),
            Limit::SourceStorage => format!("source disk {:.0} MB/s", self.amount as f64 / 1e6),
            Limit::DestinationStorage => format!("destination disk {:.0} MB/s", self.amount as f64 / 1e6),
            Limit::SourceProcessor => format!("source processor {} %", self.amount),
            Limit::DestinationProcessor => format!("destination processor {} %", self.amount),
        };
        let ends = if self.ends == Ends::Cluster { ", 3 servers to 5" } else { "" };
        let halved = if self.halved { " halved midway" } else { "" };
        let files = match self.files {
            Files::One => "1 file".into(),
            Files::Few(count) => format!("{count} files"),
            Files::Tree => "tree".into(),
        };
        let loss = if self.loss > 0.0 { format!("loss {:.0e}", self.loss) } else { "no loss".into() };
        let (rtt, rate) = (self.rtt.as_secs_f64() * 1e3, self.rate_mbit);
        let client = if self.client == Client::NearSource { "source" } else { "destination" };
        write!(
            f,
            "{rtt:.0} ms, {rate} Mbit/s{halved}, {loss}, {}{ends}; {limit}; {files} of {:.0} MB; client near the {client}",
            self.congestion,
            self.bytes as f64 / 1e6,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_draws_the_same_path_alone_or_among_others() {
        let all: Vec<Draw> = (0..20).map(|number| draw(7, number, 8.0, 2000.0)).collect();
        assert_eq!(draw(7, 13, 8.0, 2000.0), all[13]);
        assert_ne!(draw(8, 13, 8.0, 2000.0), all[13]);
    }

    #[test]
    fn twenty_paths_have_every_kind_and_stay_in_bounds() {
        for seed in 0..50 {
            let all: Vec<Draw> = (0..20).map(|number| draw(seed, number, 8.0, 2000.0)).collect();
            for (count, limit, ends, halved) in &KINDS[..7] {
                let like = |one: &&Draw| (one.limit, one.ends, one.halved) == (*limit, *ends, *halved);
                assert_eq!(all.iter().filter(like).count(), *count as usize, "{limit:?} {ends:?} {halved}");
            }
            for one in &all {
                assert!((0.001..=0.3).contains(&one.rtt.as_secs_f64()), "{one}");
                assert!((50..=2000).contains(&one.rate_mbit) && one.loss <= 1e-3, "{one}");
                assert!(one.bytes >= 32_000_000 && one.bytes <= 2_100_000_000, "{one}");
                assert!(one.limit == Limit::Network || one.amount > 0, "{one}");
            }
        }
    }
}
