//! Power cuts and kills at every step of two hosts that write one file.
//!
//! Each seed is a life: files are opened, written (sometimes wrongly, also where they are proven), proven, kept, committed and
//! dropped in random order, sessions are given up while they write, and the power goes at random steps; what was not synced survives or not,
//! page by page and name by name. The verdict compares bytes with the source. Which sync guards what is shown by leaving each out.

use std::collections::BTreeSet;
use std::ops::Range;
use std::time::Duration;

use whimbrel_connector::memory::{Memory, Safeguard};
use whimbrel_connector::{Connector, Follow, StoragePath};
use whimbrel_proto::op::LeafSpec;

use super::*;

/// No multiple of a page: leaves share pages.
const LEAF: u64 = 3000;
const STEPS: usize = 80;

struct Random(u64);

impl Random {
    /// SplitMix64.
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }
}

#[test]
fn the_digest_of_a_file_is_composed_of_proven_leaves_where_they_tell_it() {
    let data: Vec<u8> = (0..10_000u32).map(|i| ((i * i) >> 3) as u8).collect();
    for (known, asked, leaf) in [
        (Algorithm::Crc32c, Algorithm::Crc32c, 3000),
        (Algorithm::Blake3Tree, Algorithm::Blake3, 4096),
        (Algorithm::Sha256, Algorithm::Sha256, 16_384),
    ] {
        let size = data.len() as u64;
        let header = journal::Header { size, modified: None, leaf, algorithm: known.name().to_owned() };
        let one = |range: Range<u64>| {
            let mut hasher = digest::Hasher::for_leaf(known, range.start, leaf);
            hasher.update(&data[range.start as usize..range.end as usize]);
            journal::Leaf { range, digest: hasher.finish().as_bytes().to_vec() }
        };
        let leaves = whimbrel_proto::leaf::cut(&(0..size), leaf).map(one).collect();
        let mut trusted = Trusted { header: Some(header), leaves, ..Trusted::default() };
        assert_eq!(composed(&trusted, asked), Some(asked.digest(&data)), "{known}");
        assert_eq!(composed(&trusted, Algorithm::Md5), None);
        trusted.leaves.pop();
        assert_eq!(composed(&trusted, asked), None, "one is missing");
    }
}

/// A host's data process.
struct Host {
    files: Files,
    writing: Writing,
}

impl Host {
    fn new() -> Self {
        // The test would wait for itself.
        Self { files: Files::default(), writing: Writing::new(Duration::ZERO) }
    }
}

/// A session that was given up while it wrote: its bytes may come as long as it has its part.
struct Late {
    index: u64,
    writer: Arc<dyn WriteAt>,
    _part: Part,
}

struct World {
    random: Random,
    storage: Memory,
    hosts: [Host; 2],
    /// Of the hosts, the one that writes; both do all else.
    writes: usize,
    /// Number of the client's login.
    login: u64,
    late: Option<Late>,
    /// What such sessions have begun, and nobody since they are over: no proof counts there.
    doubtful: BTreeSet<u64>,
    /// What was told to be proven, answered or not.
    told: BTreeSet<u64>,
    /// What the present login has begun.
    mine: BTreeSet<u64>,
    version: u32,
    source: Vec<u8>,
    session: Option<Vec<u8>>,
    writer: Option<Arc<dyn WriteAt>>,
    /// Answered as kept, and not given up since.
    kept: BTreeSet<u64>,
    /// Not to be sent again.
    proven: BTreeSet<u64>,
    /// What was answered as committed last, or was there after a power cut.
    committed: Option<Vec<u8>>,
    /// What commits without an answer may have committed since.
    attempted: Vec<Vec<u8>>,
    /// Session of the commit that had no answer, to ask again.
    unanswered: Option<Vec<u8>>,
}

fn digest(data: &[u8]) -> String {
    Algorithm::Crc32c.digest(data).to_string()
}

fn path() -> StoragePath {
    resolve(b"/copy").unwrap()
}

impl World {
    fn new(seed: u64, without: Option<Safeguard>) -> Self {
        let storage = Memory::with_power_cuts();
        if let Some(safeguard) = without {
            storage.leave_out(safeguard);
        }
        let mut world = Self {
            random: Random(seed),
            storage,
            hosts: [Host::new(), Host::new()],
            writes: (seed % 2) as usize,
            login: 1,
            late: None,
            doubtful: BTreeSet::new(),
            mine: BTreeSet::new(),
            told: BTreeSet::new(),
            version: 0,
            source: Vec::new(),
            session: None,
            writer: None,
            kept: BTreeSet::new(),
            proven: BTreeSet::new(),
            committed: None,
            attempted: Vec::new(),
            unanswered: None,
        };
        world.new_source();
        world
    }

    fn new_source(&mut self) {
        self.version += 1;
        let size = self.random.below(4 * LEAF) as usize;
        self.source = (0..size).map(|_| self.random.next() as u8).collect();
        (self.session, self.writer, self.unanswered, self.late) = (None, None, None, None);
        self.forget_proofs();
    }

    fn forget_proofs(&mut self) {
        self.kept.clear();
        self.proven.clear();
        self.doubtful.clear();
        self.told.clear();
        self.mine.clear();
    }

    fn log_in(&mut self) {
        self.login += 1;
        self.mine.clear();
    }

    fn run(&mut self, op: &Op) -> Result<Outcome, Problem> {
        let host = self.random.below(2) as usize;
        self.on(host, |storage| storage.run(op).expect("an operation of this module"))
    }

    fn on<T>(&self, host: usize, work: impl FnOnce(Storage<'_>) -> T) -> T {
        let (connector, Host { files, writing }, cancel) = (&self.storage, &self.hosts[host], Cancel::new().unwrap());
        work(Storage { connector, files, writing, writer: Writer(self.login), cancel: &cancel })
    }

    /// Begins to write a leaf; fails when the power goes.
    fn begin(&mut self, index: u64) -> Option<Part> {
        let (session, range) = (self.session.clone()?, self.range(index));
        let part = self.on(self.writes, |storage| {
            let file = storage.open(b"/copy", &session).ok()?;
            storage.write(&file, slice::from_ref(&range)).ok()
        })?;
        if self.late.as_ref().is_none_or(|late| late.index != index) {
            self.doubtful.remove(&index);
        }
        self.mine.insert(index);
        Some(part)
    }

    fn leaves(&self) -> u64 {
        (self.source.len() as u64).div_ceil(LEAF)
    }

    fn range(&self, index: u64) -> Range<u64> {
        index * LEAF..((index + 1) * LEAF).min(self.source.len() as u64)
    }

    fn of_source(&self, index: u64) -> Vec<u8> {
        let range = self.range(index);
        self.source[range.start as usize..range.end as usize].to_vec()
    }

    fn read_back(&self, index: u64) -> Vec<u8> {
        let range = self.range(index);
        let mut data = vec![0; (range.end - range.start) as usize];
        let count = self.writer.as_ref().map_or(0, |writer| writer.read_back(range.start, &mut data).unwrap_or(0));
        data.truncate(count);
        data
    }

    fn final_content(&self) -> Option<Vec<u8>> {
        let size = self.storage.stat(&path(), Follow::Yes).ok()?.size;
        let mut data = vec![0; size as usize];
        self.storage.open_read(&path(), None).ok()?.read_at(0, &mut data).ok()?;
        Some(data)
    }

    fn open(&mut self) -> Result<(), String> {
        let leaves = LeafSpec { size: LEAF, algorithm: "CRC32C".to_owned(), holes: false, vouched: false };
        let modified = Some((i64::from(self.version), 0));
        let file = ChunkedFile { path: b"/copy".to_vec(), size: self.source.len() as u64, modified, leaves };
        let Ok(Outcome::Chunked { session, verified, .. }) = self.run(&Op::OpenChunked(file)) else {
            return if self.storage.is_down() { Ok(()) } else { Err("cannot be opened".to_owned()) };
        };
        let begun = decode(b"/copy", &session).unwrap().session(&self.storage, b"/copy").unwrap();
        self.writer = Some(self.storage.join(&begun).map_err(|fault| fault.to_string())?);
        self.session = Some(session);
        self.proven = verified.iter().map(|leaf| leaf.range.start / LEAF).collect();
        for leaf in &verified {
            let index = leaf.range.start / LEAF;
            let right = self.of_source(index);
            if leaf.range != self.range(index) || leaf.digest != digest(&right) || self.read_back(index) != right {
                return Err(format!("leaf {index} is called proven and differs"));
            }
        }
        match self.kept.iter().find(|index| !self.proven.contains(index)) {
            Some(index) => Err(format!("leaf {index} was kept and is not proven any more")),
            None => Ok(()),
        }
    }

    /// The right bytes, wrong ones, the right ones in part, or more than there are.
    fn write(&mut self) {
        let (Some(writer), true) = (self.writer.clone(), self.leaves() > 0) else { return };
        let index = self.random.below(self.leaves());
        if self.proven.contains(&index) {
            if self.random.below(4) > 0 {
                return;
            }
            // The answer to its proof was lost: it is put back, and the source may be another file by now.
            self.kept.remove(&index);
            self.proven.remove(&index);
        }
        let Some(_part) = self.begin(index) else { return };
        let mut data = self.of_source(index);
        match self.random.below(8) {
            0 => data[0] ^= 1,
            1 => data.truncate(data.len() / 2),
            // Beyond the end of the last leaf the commit has to cut.
            2 if index + 1 == self.leaves() => data.extend([7; 100]),
            _ => {}
        }
        // Fails when the power goes.
        let _ = writer.write_at(self.range(index).start, &data);
    }

    /// The client gives its session up while it writes.
    fn give_up(&mut self) {
        let (Some(writer), true, true) = (self.writer.clone(), self.leaves() > 0, self.late.is_none()) else { return };
        let index = self.random.below(self.leaves());
        if self.proven.contains(&index) {
            return;
        }
        let Some(_part) = self.begin(index) else { return };
        self.late = Some(Late { index, writer, _part });
        self.doubtful.insert(index);
        self.log_in();
    }

    /// The last bytes of a session that was given up, or none.
    fn come_late(&mut self) {
        let Some(Late { index, writer, _part }) = self.late.take() else { return };
        let mut data = self.of_source(index);
        data[0] ^= 1;
        if self.random.below(2) == 0 {
            // Fails when the power goes, and where the file has its name.
            let _ = writer.write_at(self.range(index).start, &data);
        }
    }

    /// What a mover and a client do together: sync, read back, compare, keep.
    fn prove(&mut self) {
        let (Some(writer), Some(session), true) = (self.writer.clone(), self.session.clone(), self.leaves() > 0) else {
            return;
        };
        let index = self.random.below(self.leaves());
        if writer.sync().is_err() || self.read_back(index) != self.of_source(index) {
            return;
        }
        self.told.insert(index);
        let leaf = Leaf { range: self.range(index), digest: digest(&self.of_source(index)) };
        if self.run(&Op::KeepLeaves { path: b"/copy".to_vec(), session, leaves: vec![leaf] }).is_ok() {
            if !self.doubtful.contains(&index) && self.mine.contains(&index) {
                self.kept.insert(index);
            }
            self.proven.insert(index);
        }
    }

    fn commit(&mut self) -> Result<(), String> {
        let Some(session) = self.session.clone() else { return Ok(()) };
        let whole = self.proven.len() as u64 == self.leaves();
        // What was written again since may hold the same.
        let told = self.told.union(&self.proven).count() as u64 == self.leaves();
        if told {
            self.attempted.push(self.source.clone());
        }
        match self.run(&Op::CommitChunked {
            path: b"/copy".to_vec(),
            session: session.clone(),
            modified: None,
            mode: None,
            expected: None,
        }) {
            Ok(_) if !told => Err("committed though not all was proven".to_owned()),
            Ok(_) => self.is_committed(),
            Err(Problem::Unproven(_)) if !whole => Ok(()),
            Err(Problem::Fault(fault))
                if fault.code == FaultCode::StorageBusy && (!self.doubtful.is_empty() || !whole) =>
            {
                // What has been begun again, or was perhaps written late, is moved again.
                (self.session, self.writer) = (None, None);
                Ok(())
            }
            Err(_) if self.storage.is_down() => {
                self.unanswered = told.then_some(session);
                Ok(())
            }
            Err(problem) => Err(format!("cannot be committed: {problem:?}")),
        }
    }

    fn is_committed(&mut self) -> Result<(), String> {
        self.committed = Some(self.source.clone());
        self.attempted.clear();
        self.check()?;
        self.new_source();
        // The next thing anybody does may make it durable: often the power goes before.
        if self.random.below(2) == 0 { self.come_back() } else { Ok(()) }
    }

    /// What a client may do that had no answer; it may find the work done.
    fn commit_again(&mut self) -> Result<(), String> {
        match self.unanswered.take() {
            Some(session) if self.random.below(2) == 0 => {
                let (path, modified, mode, expected) = (b"/copy".to_vec(), None, None, None);
                let again = Op::CommitChunked { path, session, modified, mode, expected };
                if self.run(&again).is_ok() { self.is_committed() } else { Ok(()) }
            }
            _ => Ok(()),
        }
    }

    fn discard(&mut self) {
        let Some(session) = self.session.take() else { return };
        self.writer = None;
        self.forget_proofs();
        let _ = self.run(&Op::DropChunked { path: b"/copy".to_vec(), session });
    }

    /// All programs are gone, and what was not durable may be.
    fn come_back(&mut self) -> Result<(), String> {
        (self.session, self.writer, self.late) = (None, None, None);
        self.hosts = [Host::new(), Host::new()];
        self.log_in();
        let random = &mut self.random;
        let killed = random.below(4) == 0;
        match random.below(3) {
            _ if killed => self.storage.restart(),
            0 => self.storage.crash(&mut |_| 0),
            _ => self.storage.crash(&mut |n| random.below(n)),
        }
        self.check()?;
        if !killed {
            // What is there now is on the disk.
            self.committed = self.final_content();
            self.attempted.clear();
        }
        Ok(())
    }

    /// The final name is absent or complete, and what was answered stays.
    fn check(&mut self) -> Result<(), String> {
        let found = self.final_content();
        if found.as_ref() == Some(&self.source) {
            // Its answer was lost, perhaps; the proofs went with the commit.
            self.forget_proofs();
        }
        let unanswered = found.as_ref().is_some_and(|found| self.attempted.contains(found));
        match found {
            found if found == self.committed || unanswered => Ok(()),
            Some(_) => Err("the final name has bytes of no source".to_owned()),
            None => Err("a committed file is gone".to_owned()),
        }
    }

    fn live(&mut self) -> Result<(), String> {
        for _ in 0..STEPS {
            match self.random.below(40) {
                0..4 => self.open()?,
                4..16 => self.write(),
                16..30 => self.prove(),
                30..34 => self.commit()?,
                34 => self.discard(),
                35 => self.new_source(),
                36 => self.give_up(),
                37 => self.come_late(),
                _ => self.storage.cut_power_after(self.random.below(8)),
            }
            if self.storage.is_down() {
                self.come_back()?;
                self.commit_again()?;
            }
        }
        Ok(())
    }
}

fn life(seed: u64, without: Option<Safeguard>) -> Result<(), String> {
    World::new(seed, without).live()
}

#[test]
fn no_power_cut_makes_a_wrong_file_or_loses_a_proof() {
    for seed in 0..1000 {
        life(seed, None).unwrap_or_else(|wrong| panic!("seed {seed}: {wrong}"));
    }
}

#[test]
fn every_sync_and_its_order_is_needed() {
    for safeguard in Safeguard::ALL {
        let noticed = (0..4000).find_map(|seed| life(seed, Some(safeguard)).err());
        assert!(noticed.is_some(), "nothing is lost without {safeguard:?}");
    }
}
