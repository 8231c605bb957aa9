//! One attempt in the air: what was asked of the two ends for it, and what came back.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::time::Duration;

use whimbrel_engine::auto;
use whimbrel_engine::listing::ObjectKind;
use whimbrel_engine::progress::{ReadBack, Verification};
use whimbrel_engine::transfer::{Job, Opening, Work};
use whimbrel_engine::{Fault, FaultCode, RangeSet, Side};
use whimbrel_proto::leaf;
use whimbrel_proto::op::{
    Leaf, LeafSpec, Mode, Notice, Op, OpId, Outcome, ReadFrom, ReceiveSpec, SendSpec, StorageFacts, WriteKind,
};

use super::checksum::SharedChecksum;
use super::chunk::{self, OpenFile, Unfinished};
use super::end::End;
use super::facts;
use super::pair::Role;
use super::whole::Whole;
use super::worker::Pack;

/// Interval of progress and restart markers.
const MARKERS: Duration = Duration::from_secs(1);

/// Interval of signs of life while a server computes a checksum.
const HASH_MARKERS: Duration = Duration::from_secs(10);

/// What an operation is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// An end is told where to connect.
    Connect,
    /// The source sends.
    Send,
    /// The destination stores.
    Store,
    /// The source computes its checksum.
    SourceSum,
    /// The destination computes its checksum.
    DestinationSum,
    /// A directory, link or attribute is made.
    Make,
    /// The unfinished copy of a chunked file is made or found.
    Open,
    /// What has the final name now.
    Target,
    /// How much of a temporary file an earlier run left.
    Found,
    /// The digest of one leaf, offsets in the file; at the end that is asked.
    Leaf {
        /// First byte.
        start: u64,
        /// Behind the last byte.
        end: u64,
    },
    /// A digest of the whole file at the destination; which of those wanted.
    FileSum(usize),
    /// The source's version, behind the reading of a part of it.
    Version,
    /// The destination is told what is proven.
    Keep,
    /// A chunked file gets its name, or one that was stored under a temporary one.
    Commit,
    /// The same, asked for along with what proves its last part; if that is refused, it is asked for again.
    CommitAhead,
    /// Which leaves of the source are holes.
    Extents,
    /// The destination is told to make them holes, too.
    KeepHoles,
}

impl Part {
    /// Whether it belongs to the transfer itself.
    pub fn moves_data(self) -> bool {
        matches!(self, Self::Connect | Self::Send | Self::Store)
    }
}

/// One operation for an attempt.
#[derive(Debug, Clone)]
pub struct Order {
    /// At which end.
    pub role: Role,
    /// What for.
    pub part: Part,
    /// The operation.
    pub op: Op,
}

/// How an attempt is to be carried out.
#[derive(Debug, Clone)]
pub struct Manner {
    /// Framing of the data connection.
    pub mode: Mode,
    /// How to prove the copy; `Err`: why not.
    pub proof: Result<Proof, Verification>,
    /// Whether the destination sets the time itself when told before the transfer.
    pub time_with_store: bool,
    /// Whether the destination is to read back past its memory.
    pub past_memory: bool,
    /// What the destination must find before it gives the file its name.
    pub announced: Option<(String, String)>,
    /// Where the bytes go until the whole file is proven, when not straight to the final name.
    pub temporary: Option<Vec<u8>>,
    /// Whether anything may have the final name already.
    pub may_exist: bool,
    /// Whether the source's checksum comes first, so that the destination is told it with the store and names nothing else.
    pub source_first: bool,
    /// Whether both ends can leave holes out, which takes digests in both replies.
    pub holes: bool,
}

/// How a copy is proven.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Proof {
    /// The algorithm.
    pub checksum: SharedChecksum,
    /// Whether both ends tell digests in the replies of the transfer itself; otherwise they are asked afterwards (CKSM).
    pub in_reply: bool,
}

/// What is known of the holes of a file that is opened for chunks.
#[derive(Debug, Default)]
pub struct HolesFound {
    /// Runs of whole leaves that are holes at the source, and its bytes of data.
    pub source: Option<(Vec<Range<u64>>, u64)>,
    /// What an earlier run has made holes at the destination.
    pub kept: RangeSet,
    /// What the destination was told to make holes now.
    pub told: RangeSet,
    /// Why the destination cannot keep them.
    pub refused: Option<String>,
    /// What the destination's storage says of itself.
    pub storage: StorageFacts,
}

impl HolesFound {
    /// The holes that the destination has not made yet.
    pub fn to_tell(&self) -> RangeSet {
        let mut rest = RangeSet::new();
        for hole in self.source.iter().flat_map(|(holes, _)| holes) {
            rest.union_with(&self.kept.missing(hole.clone()));
        }
        rest
    }

    /// As the transfer machine is told; `capable`: both ends leave holes out.
    pub fn opening(&self, size: u64, capable: bool) -> Opening {
        let bytes = self.source.as_ref().map_or(0, |(_, data)| size.saturating_sub(*data));
        let mut holes = self.kept.clone();
        if self.refused.is_none() {
            holes.union_with(&self.told);
        }
        let keeps = capable && self.refused.is_none();
        let (kept, filled) = if keeps { (bytes, 0) } else { (0, bytes) };
        Opening { holes, kept, filled, stripe: self.storage.stripe }
    }
}

/// One attempt in the air.
#[derive(Debug)]
pub struct Flight {
    /// The order.
    pub job: Job,
    /// Its proof, or why there is none.
    pub proof: Result<Proof, Verification>,
    /// How it goes on once the source's checksum is known.
    pub told_first: Option<Box<Manner>>,
    /// Whether bytes of another file would get no name, and be noticed, if they were taken for this one's.
    pub is_safe: bool,
    /// The directory that was to be made was there.
    pub existed: bool,
    /// A device, a pipe or a link has the final name: it is written to, and no file takes its place.
    pub is_written_to: bool,
    /// It is no link, and does not give back what was written.
    pub is_device: bool,
    /// The files that move together with it, and what is told of them all.
    pub pack: Option<Pack>,
    /// The file it is a part of, when it moves in chunks.
    pub file: Option<OpenFile>,
    /// What opening found, with what is proven there.
    pub opened: Option<(Unfinished, RangeSet)>,
    /// What opening found about holes.
    pub holes: HolesFound,
    /// Bytes of a temporary file that an earlier run left, until they are examined.
    pub found: Option<u64>,
    /// What an earlier run's sidecar says the source has, by where it begins; not yet believed.
    pub claims: BTreeMap<u64, Leaf>,
    /// The checksum that examines what an earlier run left.
    pub examining: Option<SharedChecksum>,
    /// Whether there is one.
    pub has_sidecar: bool,
    /// Whether the file was asked to be renamed before, and the answer was lost.
    pub renamed_before: bool,
    /// Whether what has the final name is being compared with what was proven.
    pub checks_named: bool,
    /// Whether an earlier run's sidecar is being read.
    pub is_reading: bool,
    /// Operations that are to be submitted as others are answered: a server takes only so many ahead.
    pub to_ask: VecDeque<Order>,
    /// What the comparison of a part's leaves said, once it was made.
    pub compared: Option<chunk::Compared>,
    /// Whether the file got its name ahead, once that is answered.
    pub named: Option<bool>,
    /// Operations not answered yet.
    pub waiting: Vec<(Role, OpId, Part)>,
    /// First thing that went wrong, a refusal before a broken connection.
    pub failure: Option<(Part, Fault)>,
    /// The destination opened the file.
    pub store_opened: bool,
    /// The destination refused to store.
    pub store_refused: bool,
    /// The store was confirmed.
    pub stored: bool,
    /// Attributes were asked for after the store.
    pub attributes_sent: bool,
    /// The time was given with the store.
    pub time_with_store: bool,
    /// Data were seen moving.
    pub started: bool,
    /// The digests of the whole file that are wanted.
    pub whole: Option<Box<Whole>>,
    /// Payload bytes moved by this attempt.
    pub moved: u64,
    /// Ranges that arrived, offsets in the file.
    pub received: RangeSet,
    /// Where the destination says it read what it proved; the outer `None`: it was not asked.
    read_from: Option<Option<ReadFrom>>,
    /// What earlier runs proved of a file that was opened.
    pub earlier: Vec<Leaf>,
    source_sum: Option<String>,
    destination_sum: Option<String>,
    /// Why an end computes no checksum after all.
    no_sums: Option<String>,
    /// The destination stores nothing but what has the source's checksum.
    vouched: bool,
    source_leaves: Vec<Leaf>,
    destination_leaves: Vec<Leaf>,
    stripes: Vec<u64>,
    /// Added to the offsets of range markers.
    shift: u64,
}

impl Flight {
    /// An attempt before its operations are submitted.
    pub fn new(job: Job, manner: &Manner) -> Self {
        let shift = window(&job).map_or(0, |range| range.start);
        let noticed = (manner.temporary.is_some() || chunk::is_step(&job)) && manner.proof.is_ok();
        let is_safe = manner.source_first || manner.announced.is_some() || noticed;
        Self {
            received: job.received.clone(),
            job,
            proof: manner.proof.clone(),
            told_first: manner.source_first.then(|| Box::new(Manner { source_first: false, ..manner.clone() })),
            is_safe,
            existed: false,
            is_written_to: false,
            is_device: false,
            pack: None,
            file: None,
            opened: None,
            holes: HolesFound::default(),
            found: None,
            claims: BTreeMap::new(),
            examining: None,
            has_sidecar: false,
            renamed_before: false,
            checks_named: false,
            is_reading: false,
            to_ask: VecDeque::new(),
            compared: None,
            named: None,
            waiting: Vec::new(),
            failure: None,
            store_opened: false,
            store_refused: false,
            stored: false,
            attributes_sent: false,
            time_with_store: manner.time_with_store,
            started: false,
            whole: None,
            read_from: manner.past_memory.then_some(None),
            earlier: Vec::new(),
            moved: 0,
            source_sum: None,
            destination_sum: None,
            no_sums: None,
            vouched: false,
            source_leaves: Vec::new(),
            destination_leaves: Vec::new(),
            stripes: Vec::new(),
            shift,
        }
    }

    /// Takes an answer; the operation is no longer waited for.
    pub fn answer(&mut self, role: Role, part: Part, result: Result<Outcome, Fault>) {
        self.store_refused |=
            part == Part::Store && result.as_ref().err().is_some_and(|fault| fault.side == Some(Side::Destination));
        match (part, result) {
            (Part::Store | Part::Send, Ok(outcome)) => {
                self.stored |= part == Part::Store;
                if part == Part::Store && self.vouched {
                    self.destination_sum.clone_from(&self.source_sum);
                }
                self.told(role, outcome);
            }
            (Part::Leaf { start, end }, Ok(Outcome::Checksum(digest))) => {
                if role == Role::Source && self.claims.get(&start).is_some_and(|claim| claim.digest != digest) {
                    self.doubt_claims();
                }
                self.leaves(role).push(Leaf { range: start..end, digest });
            }
            (Part::CommitAhead, result) => self.named = Some(result.is_ok()),
            (Part::Target, Ok(Outcome::Line(line))) => {
                let kind = facts::described(&line, true).map(|object| object.kind);
                self.is_device = matches!(kind, Some(ObjectKind::Other));
                self.is_written_to = self.is_device || matches!(kind, Some(ObjectKind::Symlink { .. }));
            }
            // Nothing has that name, or the server does not describe files.
            (Part::Target, Err(fault)) if !fault.is_temporary() => {}
            (Part::Found, Ok(Outcome::Size(size))) => self.found = Some(size),
            // Nothing is there, or nothing that could be trusted.
            (Part::Found, Err(fault)) if !fault.is_temporary() => {}
            (Part::Leaf { .. }, Err(_)) if matches!(self.job.work, Work::Open { .. }) => {}
            (Part::Open, Ok(outcome)) => {
                if let Some((place, leaves, holes, storage)) = chunk::opened(outcome) {
                    self.opened = Some((place, leaves.iter().map(|leaf| leaf.range.clone()).collect()));
                    self.earlier = leaves;
                    self.holes.kept = holes;
                    self.holes.storage = storage;
                }
            }
            (Part::Extents, Ok(Outcome::Extents { holes, data })) => self.holes.source = Some((holes, data)),
            // A source that cannot tell is moved as it reads; what is wrong with it, its reading will say.
            (Part::Extents, Err(fault)) if !fault.is_temporary() => {}
            (Part::KeepHoles, Err(fault)) if fault.code == FaultCode::NotSupported => {
                self.holes.refused = Some(fault.detail);
            }
            (Part::Version, Ok(Outcome::Line(line))) => self.check_version(&line),
            // A server that does not describe files.
            (Part::Version, Err(fault)) if fault.code == FaultCode::NotSupported => {}
            (Part::FileSum(index), Ok(Outcome::Checksum(sum))) => {
                if let Some(whole) = &mut self.whole {
                    whole.take(index, sum);
                }
            }
            (Part::SourceSum | Part::DestinationSum, Err(fault))
                if fault.code == FaultCode::NotSupported && self.job.work == Work::Copy =>
            {
                self.no_sums = Some(fault.detail);
            }
            (Part::SourceSum, Ok(Outcome::Checksum(sum))) => self.source_sum = Some(sum),
            (Part::DestinationSum, Ok(Outcome::Checksum(sum))) => self.destination_sum = Some(sum),
            (Part::Make, Err(fault))
                if fault.code == FaultCode::AlreadyExists && self.job.work == Work::MakeDirectory =>
            {
                self.existed = true;
            }
            (_, Ok(_)) => {}
            // The end of a transfer that was stopped because the other end had failed.
            (_, Err(fault)) if fault.code == FaultCode::Cancelled && self.failure.is_some() => {}
            (part, Err(fault)) => self.fail(part, fault),
        }
    }

    /// What the final reply of a transfer tells.
    fn told(&mut self, role: Role, outcome: Outcome) {
        match (outcome, &mut self.pack) {
            (Outcome::Transferred { leaves, read_from, .. }, _) => {
                if let (Role::Destination, Some(told)) = (role, &mut self.read_from) {
                    *told = read_from;
                }
                self.leaves(role).extend(leaves);
            }
            (Outcome::Packed(fates), Some(pack)) => match role {
                Role::Source => pack.sent = fates,
                Role::Destination => pack.stored = fates,
            },
            _ => {}
        }
    }

    fn leaves(&mut self, role: Role) -> &mut Vec<Leaf> {
        match role {
            Role::Source => &mut self.source_leaves,
            Role::Destination => &mut self.destination_leaves,
        }
    }

    /// Whether the source is still what was listed: chunks of two versions make no file.
    fn check_version(&mut self, line: &[u8]) {
        let item = &self.job.item;
        let Some(object) = facts::described(line, false) else { return };
        let same_size = object.size == item.size || object.size.is_none();
        let same_time = object.modified == item.modified || object.modified.is_none() || item.modified.is_none();
        if !(same_size && same_time) {
            let fault = Fault::new(FaultCode::SourceChanged, "read").on_path(&item.source).side(Side::Source);
            self.fail(Part::Version, fault);
        }
    }

    /// Whether what has the final name is all that was proven.
    pub fn is_named(&self) -> bool {
        let Some(file) = &self.file else { return false };
        let proven = file.proven.borrow();
        let same = |leaf: &Leaf| proven.get(&leaf.range.start).is_some_and(|known| known.digest == leaf.digest);
        self.found.is_some()
            && self.found == self.job.item.size
            && self.destination_leaves.len() == proven.len()
            && self.destination_leaves.iter().all(same)
    }

    /// Whether nothing is waited for any more.
    pub fn is_answered(&self) -> bool {
        self.waiting.is_empty() && self.to_ask.is_empty() && !self.is_reading
    }

    /// A sidecar is about another source that has the same size and time: the source is asked for all of it.
    fn doubt_claims(&mut self) {
        tracing::warn!("what is kept beside the unfinished file is about another source");
        let claims = std::mem::take(&mut self.claims);
        if let Some(checksum) = &self.examining {
            self.to_ask.extend(chunk::ask_source(&self.job, checksum, &claims));
        }
    }

    /// Trusts the examined leaves of a temporary file that agree.
    pub fn trust_agreeing(&mut self) {
        if let Some((_, verified)) = &mut self.opened {
            self.source_leaves.extend(std::mem::take(&mut self.claims).into_values());
            let agreeing = chunk::agreeing(&self.source_leaves, &self.destination_leaves);
            let same = |leaf: &&Leaf| agreeing.covers(leaf.range.clone());
            self.earlier.extend(self.destination_leaves.iter().filter(same).cloned());
            verified.union_with(&agreeing);
        }
    }

    /// The operations that move a file whose source's checksum has come; `None`: it did not, or nobody waited for it.
    pub fn go_ahead(&mut self) -> Option<Vec<Order>> {
        let sum = self.source_sum.clone()?;
        let mut manner = self.told_first.take()?;
        self.vouched = true;
        if let Ok(proof) = &manner.proof {
            manner.announced = Some((proof.checksum.destination.clone(), sum));
        }
        // The destination compares by itself.
        Some(copy_orders(&self.job, &manner).into_iter().filter(|order| order.part.moves_data()).collect())
    }

    /// The operations of the next step of a whole file that is moved and, if that is `required`, proven; `None`: there is
    /// none.
    pub fn next_step(&mut self, destination: &End, required: bool) -> Option<Result<Vec<Order>, Fault>> {
        let required = required || self.is_wanted();
        let proven = match (&self.job.work, self.verdict()) {
            (Work::Copy, Ok(Verification::Verified { .. })) => true,
            (Work::Copy, Ok(_)) => !required,
            (Work::Copy, Err(_)) => false,
            _ => true,
        };
        let whole = self.whole.as_deref_mut().filter(|_| proven && !self.is_written_to)?;
        if let Ok(Proof { checksum, in_reply }) = &self.proof {
            match &self.file {
                Some(file) => {
                    whole.take_leaves(checksum, file.proven.borrow().values(), self.job.item.size, file.leaf);
                }
                None if *in_reply => {
                    let (size, leaf) = (self.job.item.size, leaf_of_whole(self.job.item.size));
                    whole.take_leaves(checksum, self.destination_leaves.iter(), size, leaf);
                }
                None => whole.take_proof(checksum, self.destination_sum.as_ref()),
            }
        }
        whole.next(&self.job, destination)
    }

    /// Whether a digest of the whole file is wanted, without which it is no copy.
    pub fn is_wanted(&self) -> bool {
        self.whole.as_ref().is_some_and(|whole| whole.is_wanted())
    }

    /// The temporary name that the bytes of a whole file go to.
    pub fn temporary(&self) -> Option<&[u8]> {
        self.whole.as_ref().filter(|_| self.file.is_none())?.readable.as_deref()
    }

    /// The same of any file: of one in chunks, if its destination keeps no unfinished files.
    pub fn unfinished_name(&self) -> Option<&[u8]> {
        self.file.as_ref().map_or_else(|| self.temporary(), OpenFile::temporary)
    }

    /// Where the bytes go: the final name, or a temporary one.
    pub fn target(&self) -> &[u8] {
        self.temporary().unwrap_or(&self.job.item.destination)
    }

    /// As it is told in the end: the algorithm, where the destination read, the digests of the whole file.
    fn verified_by(&self, checksum: &SharedChecksum) -> Verification {
        let told = |from: Option<ReadFrom>| match from {
            Some(ReadFrom::Disk) => ReadBack::Disk,
            Some(ReadFrom::Memory) => ReadBack::Memory,
            Some(ReadFrom::OnlyMemory) => ReadBack::MemoryOnly,
            None => ReadBack::Unknown,
        };
        let mut read_back = self.read_from.map(told);
        if self.job.work == Work::Commit {
            // This step reads nothing: its chunks have told, those of earlier runs cannot.
            let earlier = self.file.as_ref().is_some_and(|file| file.earlier);
            read_back = read_back.and(earlier.then_some(ReadBack::Earlier));
        }
        let sums = self.whole.as_ref().map(|whole| whole.told()).unwrap_or_default();
        Verification::Verified { algorithm: checksum.display(), read_back, sums }
    }

    /// Compares the leaves of a part, once everything about it is answered.
    pub fn compare(&mut self) {
        let (Some(part), Some(file)) = (chunk::part(&self.job), &self.file) else { return };
        if file.checksum.is_none() {
            self.compared = Some(chunk::Compared::arrived(part, file.leaf));
            return;
        }
        match chunk::compare(part, file.leaf, &self.source_leaves, &self.destination_leaves) {
            Ok(compared) => self.compared = Some(compared),
            Err(fault) => self.fail(Part::Version, fault),
        }
    }

    /// Records what went wrong: the end that refused tells more than the connection that broke for it.
    pub fn fail(&mut self, part: Part, fault: Fault) {
        let told_more =
            |earlier: &(Part, Fault)| earlier.1.side == Some(Side::Network) && fault.side != Some(Side::Network);
        // Checksums of a transfer that failed prove nothing, their refusals neither.
        let transfer = part.moves_data();
        if self.failure.as_ref().is_none_or(|earlier| transfer && told_more(earlier)) {
            self.failure = Some((part, fault));
        }
    }

    /// Whether the transfer itself failed: the data connections can no longer be trusted.
    pub fn transfer_failed(&self) -> bool {
        self.failure.as_ref().is_some_and(|(part, _)| part.moves_data())
    }

    /// Whether the transfer's own operations are still open.
    pub fn transfer_open(&self) -> bool {
        self.waiting.iter().any(|(_, _, part)| part.moves_data())
    }

    /// Takes news; says whether progress is worth reporting.
    pub fn notice(&mut self, part: Part, notice: &Notice) -> bool {
        self.store_opened |= part == Part::Store;
        match notice {
            Notice::Opened { .. } => return false,
            Notice::Performance { stripe, bytes, .. } if part == Part::Store || self.stripes.is_empty() => {
                let at = usize::from(*stripe);
                if self.stripes.len() <= at {
                    self.stripes.resize(at + 1, 0);
                }
                self.stripes[at] = self.stripes[at].max(*bytes);
                self.moved = self.moved.max(self.stripes.iter().sum());
            }
            // Parts of chunked files are proven or moved again, never resumed.
            Notice::Ranges(_) if self.file.is_some() => {}
            Notice::Ranges(ranges) => {
                for range in ranges {
                    self.received.insert(range.start.saturating_add(self.shift)..range.end.saturating_add(self.shift));
                }
                self.moved = self.moved.max(self.received.len().saturating_sub(self.job.received.len()));
            }
            _ => {}
        }
        true
    }

    /// Whether the copy is proven, once everything is answered.
    pub fn verdict(&self) -> Result<Verification, Fault> {
        let proof = match &self.proof {
            Ok(proof) => proof,
            Err(why) => return Ok(why.clone()),
        };
        let algorithm = proof.checksum.display();
        let differ = |text: String| {
            Fault::new(FaultCode::ChecksumMismatch, "verify")
                .on_path(&self.job.item.destination)
                .side(Side::Destination)
                .detail(format!("{algorithm} at the source {text}"))
        };
        if proof.in_reply {
            return match self.leaves_agree() {
                Ok(true) => Ok(self.verified_by(&proof.checksum)),
                Ok(false) => Ok(Verification::Unverified { reason: "digests were not delivered".to_owned() }),
                Err(text) => Err(differ(text)),
            };
        }
        match (&self.source_sum, &self.destination_sum) {
            (Some(source), Some(destination)) if source == destination => Ok(self.verified_by(&proof.checksum)),
            (Some(source), Some(destination)) => Err(differ(format!("{source}, at the destination {destination}"))),
            _ => {
                let reason = self.no_sums.as_ref().map(|detail| format!("no checksum: {detail}"));
                let reason = reason.unwrap_or_else(|| "a checksum was not delivered".to_owned());
                Ok(Verification::Unverified { reason })
            }
        }
    }

    /// Whether the digests in both replies cover the file and agree; `Err`: how the first ones differ.
    fn leaves_agree(&self) -> Result<bool, String> {
        let (source, destination) = (&self.source_leaves, &self.destination_leaves);
        for (sent, stored) in source.iter().zip(destination) {
            if sent != stored {
                let at = |leaf: &Leaf| format!("{} of bytes {} to {}", leaf.digest, leaf.range.start, leaf.range.end);
                return Err(format!("{}, at the destination {}", at(sent), at(stored)));
            }
        }
        let bytes = |leaves: &[Leaf]| leaves.last().map_or(0, |last| last.range.end);
        if source.len() != destination.len() {
            return Err(format!("is of {} bytes, at the destination of {}", bytes(source), bytes(destination)));
        }
        // Only an empty file has no leaves.
        Ok(!source.is_empty() || self.job.item.size == Some(0))
    }

    /// What proves a file that moved in chunks.
    pub fn proven(&self) -> Verification {
        match &self.proof {
            Ok(proof) => self.verified_by(&proof.checksum),
            Err(why) => why.clone(),
        }
    }

    /// Whether both checksums came and agree.
    pub fn sums_agree(&self) -> bool {
        self.source_sum.is_some() && self.source_sum == self.destination_sum
    }
}

/// The part of the file this attempt is about; `None`: all of it.
///
/// With a range of a file, what an earlier attempt brought in one piece from its start is left out.
pub fn window(job: &Job) -> Option<Range<u64>> {
    let range = job.item.range.clone()?;
    let missing = job.received.missing(range.clone());
    let start = missing.as_slice().first().map_or(range.start, |first| first.start);
    Some(start..range.end)
}

/// The operations that carry out a job, in the order in which they must be given to their ends.
pub fn orders(job: &Job, manner: &Manner) -> Vec<Order> {
    debug_assert!(!chunk::is_step(job), "made by chunk.rs");
    let item = &job.item;
    let make = |op| vec![Order { role: Role::Destination, part: Part::Make, op }];
    match &job.work {
        Work::Copy => copy_orders(job, manner),
        Work::Compare => sum_orders(job, manner),
        Work::MakeDirectory => make(Op::MakeDirectory(item.destination.clone())),
        Work::Symlink { target } => make(Op::Symlink { target: target.clone(), link: item.destination.clone() }),
        Work::SetAttributes => attribute_orders(job, &item.destination, false),
        Work::Open { .. } | Work::Chunk { .. } | Work::Commit => Vec::new(),
    }
}

/// Bytes of a leaf of a file that moves as a whole.
fn leaf_of_whole(size: Option<u64>) -> u64 {
    leaf::size_for(size.unwrap_or(0), auto::LEAF).unwrap_or(leaf::MAX_SIZE)
}

fn copy_orders(job: &Job, manner: &Manner) -> Vec<Order> {
    if manner.source_first {
        return sum_orders(job, manner).into_iter().filter(|order| order.role == Role::Source).collect();
    }
    let item = &job.item;
    let in_reply = |spelling: fn(&SharedChecksum) -> &String| match &manner.proof {
        Ok(proof) if proof.in_reply => {
            let size = leaf_of_whole(item.size);
            Some(LeafSpec { size, algorithm: spelling(&proof.checksum).clone(), holes: manner.holes })
        }
        _ => None,
    };
    let window = window(job);
    let done = match manner.mode {
        _ if window.is_some() => Vec::new(),
        Mode::Extended => job.received.as_slice().to_vec(),
        // A stream can only go on where an unbroken beginning ends (RFC 959 §3.5).
        Mode::Stream => job.received.as_slice().iter().filter(|range| range.start == 0).cloned().collect(),
    };
    let length = window.as_ref().filter(|range| range.end != u64::MAX).map(|range| range.end - range.start);
    let send = SendSpec {
        offset: window.as_ref().map_or(0, |range| range.start),
        length,
        done: done.clone(),
        leaves: in_reply(|shared| &shared.source),
        ..SendSpec::of(item.source.as_slice())
    };
    let write = match &window {
        Some(range) => WriteKind::Adjusted { offset: range.start },
        None if done.is_empty() => WriteKind::Replace,
        None => WriteKind::Restart { done },
    };
    let target = manner.temporary.as_ref().unwrap_or(&item.destination);
    let receive = ReceiveSpec {
        write,
        expected_size: if window.is_some() { length } else { item.size },
        expected_checksum: manner.announced.clone(),
        modified: item.attributes.modified.filter(|_| manner.time_with_store).map(|time| (time.secs, time.nanos)),
        performance_interval: Some(MARKERS),
        range_interval: Some(MARKERS),
        leaves: in_reply(|shared| &shared.destination),
        past_memory: manner.past_memory,
        ..ReceiveSpec::of(target.as_slice())
    };
    let asked = manner.temporary.as_ref().filter(|_| manner.may_exist);
    let mut orders: Vec<Order> = asked.map(|_| target_order(job)).into_iter().collect();
    orders.push(Order { role: Role::Destination, part: Part::Store, op: Op::Receive(receive) });
    orders.push(Order { role: Role::Source, part: Part::Send, op: Op::Send(send) });
    orders.extend(sum_orders(job, manner));
    orders
}

/// Asks what has the final name, which a rename would replace whatever it is.
pub fn target_order(job: &Job) -> Order {
    let op = Op::Facts { path: job.item.destination.clone(), facts: None };
    Order { role: Role::Destination, part: Part::Target, op }
}

/// How often a server that hashes a file of this size is to say so; `None` for one that is done before anybody wonders.
pub fn hash_markers(size: Option<u64>) -> Option<Duration> {
    size.is_none_or(|size| size > 1 << 28).then_some(HASH_MARKERS)
}

fn sum_orders(job: &Job, manner: &Manner) -> Vec<Order> {
    let shared = match &manner.proof {
        Ok(Proof { checksum, in_reply }) if !in_reply || job.work == Work::Compare => checksum,
        _ => return Vec::new(),
    };
    let item = &job.item;
    let target = manner.temporary.as_ref().unwrap_or(&item.destination);
    let (offset, length) = match &item.range {
        Some(range) => (range.start, (range.end != u64::MAX).then(|| range.end - range.start)),
        None => (0, None),
    };
    // A big file keeps a server silent for long.
    let marker_interval = hash_markers(item.size);
    let sum = |algorithm: &str, path: &[u8]| Op::Checksum {
        algorithm: algorithm.to_owned(),
        offset,
        length,
        path: path.to_vec(),
        marker_interval,
    };
    vec![
        Order { role: Role::Destination, part: Part::DestinationSum, op: sum(&shared.destination, target) },
        Order { role: Role::Source, part: Part::SourceSum, op: sum(&shared.source, &item.source) },
    ]
}

/// The operations that give a proven file its attributes and then, in the same flight, its name: whoever sees the name
/// sees them, too.
pub fn naming_orders(job: &Job, temporary: &[u8], time_is_set: bool) -> Vec<Order> {
    let mut orders = attribute_orders(job, temporary, time_is_set);
    let op = Op::Rename { from: temporary.to_vec(), to: job.item.destination.clone() };
    orders.push(Order { role: Role::Destination, part: Part::Commit, op });
    orders
}

/// Mode, then time: setting the mode of some storage changes the time.
pub fn attribute_orders(job: &Job, path: &[u8], time_is_set: bool) -> Vec<Order> {
    let item = &job.item;
    let mode = item.attributes.mode.map(|mode| Op::SetMode { path: path.to_vec(), mode });
    let time = item.attributes.modified.filter(|_| !time_is_set).map(|time| Op::SetModified {
        path: path.to_vec(),
        seconds: time.secs,
        nanoseconds: time.nanos,
    });
    let order = |op| Order { role: Role::Destination, part: Part::Make, op };
    mode.into_iter().chain(time).map(order).collect()
}
