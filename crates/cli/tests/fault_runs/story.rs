//! What happens in a run, drawn from its seed.

use std::time::Duration;

use whimbrel_testkit::relay::Moment;
use whimbrel_testkit::rng::Rng;

/// Which ends are servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ends {
    ThirdParty,
    FromServer,
    ToServer,
}

/// An end of the copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    Source,
    Destination,
}

/// Something that goes wrong.
#[derive(Clone, Debug, PartialEq)]
pub enum Trouble {
    /// The client is killed.
    KillClient,
    /// A server of an end is killed; it comes back at once on the same port, or only for the next run.
    KillServer { end: End, which: usize, comes_back: bool },
    /// The destination's host loses its power: with its servers goes whatever was not synced, data and names. All come back
    /// at once, or only for the next run.
    PowerLoss { comes_back: bool },
    /// Nothing passes for this long; then everything goes on, or every connection is reset. Some are longer than
    /// servers, or clients, wait.
    Cut { lasts: Duration, reset: bool },
    /// One bit of the data with this number is inverted on the way.
    FlipOnTheWay { byte: u64, bit: u8 },
    /// One bit of the destination's file is inverted after it was written and before it is read back.
    FlipStored,
    /// One bit of the source is inverted, and its time stays as it was.
    FlipSource { at: u64 },
    /// The source becomes another file of the same length.
    RewriteSource,
    /// The source is cut to this length; it comes back, time and all, for the next run, or stays so.
    TruncateSource { to: u64, comes_back: bool },
    /// A connection carries so many bytes at a time, with pauses, for a while.
    Trickle { piece: usize, every: Duration, bytes: u64 },
}

/// What surrounds the file.
#[derive(Clone, Copy, Debug)]
pub struct Tree {
    /// Small files in several directories, some empty.
    pub files: u64,
    /// Files that are there are left alone if their checksums agree (`--sync checksum`).
    pub sync: bool,
}

/// One run and what happens in it.
#[derive(Clone, Debug)]
pub struct Story {
    pub seed: u64,
    pub ends: Ends,
    /// Servers of each end that has any.
    pub sources: usize,
    pub destinations: usize,
    pub size: u64,
    pub chunk: u64,
    pub sessions: u32,
    pub channels: u32,
    pub checksum: &'static str,
    pub attempts: u32,
    /// A file of other content is already there.
    pub replaces: bool,
    /// The destination's file system holds nine tenths of the file.
    pub full: bool,
    /// The next run starts at once, while servers may still be busy with the first one.
    pub at_once: bool,
    /// An end whose servers are `globus-gridftp-server`.
    pub stock: Option<End>,
    /// The file is part of a tree.
    pub tree: Option<Tree>,
    /// Seconds without progress after which our servers call a transfer stalled, if not the usual time.
    pub stall: Option<u64>,
    pub troubles: Vec<(Moment, Trouble)>,
}

/// Seeds from here on are the nightly ones: what happens in them may take minutes.
pub const NIGHTLY: u64 = 1000;

const CHECKSUMS: [&str; 5] = ["md5", "crc32c", "xxh3-128", "blake3", "sha256"];

impl Story {
    /// The story of a seed.
    pub fn of(seed: u64) -> Story {
        let mut rng = Rng::new(seed);
        let ends = [Ends::ThirdParty, Ends::ThirdParty, Ends::FromServer, Ends::ToServer][rng.below(4) as usize];
        let size = (6 << 20) + rng.below(14 << 20);
        let mut story = Story {
            seed,
            ends,
            sources: if ends == Ends::ToServer { 0 } else { 1 + rng.below(2) as usize },
            destinations: if ends == Ends::FromServer { 0 } else { 1 + rng.below(2) as usize },
            size,
            chunk: (128 << 10) << rng.below(4),
            sessions: 1 + rng.below(4) as u32,
            channels: 1 + rng.below(3) as u32,
            checksum: CHECKSUMS[rng.below(5) as usize],
            attempts: 2 + rng.below(3) as u32,
            replaces: rng.below(4) == 0,
            full: rng.below(8) == 0,
            at_once: rng.below(2) == 0,
            stock: None,
            tree: None,
            stall: None,
            troubles: Vec::new(),
        };
        let count = if story.full { rng.below(2) } else { 1 + rng.below(3) };
        if rng.below(6) == 0 {
            story.keep_killing(&mut rng);
        }
        for _ in 0..count {
            let trouble = story.trouble(&mut rng);
            let flips = |trouble: &Trouble| matches!(trouble, Trouble::FlipSource { .. });
            if flips(&trouble) && story.troubles.iter().any(|(_, trouble)| flips(trouble)) {
                continue;
            }
            let moment = story.moment(&trouble, &mut rng);
            story.troubles.push((moment, trouble));
        }
        // Numbers of their own, so that what is drawn above stays what it is.
        story.surround(&mut Rng::new(!seed));
        story
    }

    /// Draws what the file is surrounded by: a tree, servers of another kind, peers that are silent or slow for long.
    fn surround(&mut self, rng: &mut Rng) {
        if rng.below(4) == 0 {
            self.tree = Some(Tree { files: 8 + rng.below(32), sync: rng.below(2) == 0 });
        }
        // Only between servers do data of the stock one pass the relays: its MODE E senders connect to a client.
        if rng.below(4) == 0 && self.ends == Ends::ThirdParty {
            self.stock([End::Source, End::Destination][rng.below(2) as usize], rng);
        }
        let nightly = self.seed >= NIGHTLY;
        let at = Moment::Bytes(rng.below(self.size));
        match rng.below(32) {
            // Longer than a client waits.
            0 if nightly => self.cut(at, 65, rng),
            // Longer than our servers wait.
            0..3 => {
                self.stall = Some(2);
                self.cut(at, 4, rng);
            }
            3 if nightly => self.starve(at),
            _ => {}
        }
        // A full disk, and what the stock server keeps, are other stories.
        if rng.below(4) == 0 && self.destinations > 0 && !self.full && self.stock != Some(End::Destination) {
            self.lose_power(rng);
        }
    }

    /// The power goes once or a few times, among data or around the commands that promise something.
    fn lose_power(&mut self, rng: &mut Rng) {
        for _ in 0..=rng.below(3) {
            let trouble = Trouble::PowerLoss { comes_back: rng.below(4) > 0 };
            let moment = self.moment(&trouble, rng);
            self.troubles.push((moment, trouble));
        }
    }

    /// The stock server does not promise all that ours does; this is what is left out, and nothing else.
    fn stock(&mut self, end: End, rng: &mut Rng) {
        self.stock = Some(end);
        // It has neither CRC32C nor XXH3 nor BLAKE3.
        self.checksum = ["md5", "sha256"][rng.below(2) as usize];
        if end == End::Destination {
            for (moment, _) in &mut self.troubles {
                stand_in(moment);
            }
        }
    }

    fn cut(&mut self, at: Moment, seconds: u64, rng: &mut Rng) {
        self.troubles.push((at, Trouble::Cut { lasts: Duration::from_secs(seconds), reset: rng.below(2) == 0 }));
    }

    /// Each connection carries 50 bytes a second, until it has lasted longer than a client puts up with.
    fn starve(&mut self, at: Moment) {
        let connections = u64::from(self.sessions * self.channels);
        let (every, bytes) = (Duration::from_millis(20), connections * 50 * 70);
        self.troubles.push((at, Trouble::Trickle { piece: 1, every, bytes }));
    }

    /// A server that dies again and again.
    fn keep_killing(&mut self, rng: &mut Rng) {
        let ends = [(End::Source, self.sources), (End::Destination, self.destinations)];
        let (end, servers) = ends[rng.below(2) as usize];
        if servers == 0 {
            return;
        }
        let times = 3 + rng.below(4);
        for time in 1..=times {
            let which = rng.below(servers as u64) as usize;
            let moment = Moment::Bytes(self.size / (times + 1) * time);
            self.troubles.push((moment, Trouble::KillServer { end, which, comes_back: true }));
        }
    }

    fn trouble(&self, rng: &mut Rng) -> Trouble {
        loop {
            let server = |rng: &mut Rng, end, servers: usize| {
                let comes_back = rng.below(4) > 0;
                Trouble::KillServer { end, which: rng.below(servers as u64) as usize, comes_back }
            };
            return match rng.below(12) {
                0 | 1 => Trouble::KillClient,
                2 | 3 if self.sources > 0 => server(rng, End::Source, self.sources),
                4 | 5 if self.destinations > 0 => server(rng, End::Destination, self.destinations),
                6 => Trouble::Cut { lasts: Duration::from_millis(100 + rng.below(900)), reset: rng.below(2) == 0 },
                7 => {
                    // A quarter of them in the framing that every connection begins with.
                    let among = if rng.below(4) == 0 { 100 } else { self.size };
                    Trouble::FlipOnTheWay { byte: rng.below(among), bit: rng.below(8) as u8 }
                }
                8 => Trouble::FlipStored,
                9 if rng.below(2) == 0 => Trouble::FlipSource { at: rng.below(self.size) },
                9 => Trouble::RewriteSource,
                10 => Trouble::TruncateSource { to: rng.below(self.size), comes_back: rng.below(2) == 0 },
                11 => Trouble::Trickle {
                    piece: 512 << rng.below(3),
                    every: Duration::from_millis(2),
                    bytes: (32 + rng.below(64)) << 10,
                },
                _ => continue,
            };
        }
    }

    /// Mostly somewhere in the data; sometimes around a command, which only relays before servers see.
    fn moment(&self, trouble: &Trouble, rng: &mut Rng) -> Moment {
        let at = Moment::Bytes(rng.below(self.size));
        let around_commands = matches!(
            trouble,
            Trouble::KillClient | Trouble::KillServer { .. } | Trouble::PowerLoss { .. } | Trouble::Cut { .. }
        );
        if !around_commands || rng.below(3) > 0 {
            return at;
        }
        let nth = 1 + rng.below(3) as u32;
        match (rng.below(6), self.destinations > 0) {
            (0, true) => Moment::Command("SITE CHUNK KEEP", nth),
            (1, true) => Moment::Answer("SITE CHUNK KEEP", nth),
            (2, true) => Moment::Command("SITE CHUNK COMMIT", 1),
            (3, true) => Moment::Answer("SITE CHUNK COMMIT", 1),
            (4, true) => Moment::Command("SITE CHUNK OPEN", 1),
            (5, true) => Moment::Answer("SITE CHUNK OPEN", 1),
            _ => at,
        }
    }

    /// Something in it lasts minutes.
    pub fn is_long(&self) -> bool {
        let long = |trouble: &Trouble| match trouble {
            Trouble::Cut { lasts, .. } => lasts.as_secs() > 10,
            Trouble::Trickle { piece, .. } => *piece == 1,
            _ => false,
        };
        self.troubles.iter().any(|(_, trouble)| long(trouble))
    }

    /// The destination's host loses its power in it.
    pub fn loses_power(&self) -> bool {
        self.troubles.iter().any(|(_, trouble)| matches!(trouble, Trouble::PowerLoss { .. }))
    }

    /// What the source holds in the end is not what it held first.
    pub fn changes_source(&self) -> bool {
        let changes = |trouble: &Trouble| {
            matches!(trouble, Trouble::FlipSource { .. } | Trouble::RewriteSource | Trouble::TruncateSource { .. })
        };
        self.troubles.iter().any(|(_, trouble)| changes(trouble))
    }
}

/// Commands that only our servers have, and what a client says in their stead.
fn stand_in(moment: &mut Moment) {
    if let Moment::Command(word, _) | Moment::Answer(word, _) = moment {
        *word = match *word {
            "SITE CHUNK OPEN" => "SIZE",
            "SITE CHUNK KEEP" => "CKSM",
            _ => "RNTO",
        };
    }
}
