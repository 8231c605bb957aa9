//! Small files that move together, between ends of our own: one transfer and one reply for many.

use whimbrel_engine::progress::Verification;
use whimbrel_engine::transfer::{Input, Job, Work};
use whimbrel_engine::{Fault, FaultCode, RangeSet, Side};
use whimbrel_proto::op::{Failure, Mode, Op, OpId, PackResult, PackSpec, PackedFile};
use whimbrel_proto::pack;

use super::Worker;
use super::connections::moves_data;
use super::manner::manner;
use crate::client::flight::{Flight, Manner, Order, Proof, Purpose, Step};
use crate::client::local::fault;
use crate::client::options::{Sums, Verify};
use crate::client::pair::{Pair, Role};
use crate::client::shared::Shared;

/// Files up to this size are packed, bytes: for larger ones a command each costs little.
const SMALL: u64 = 64 << 10;

/// How many times as many files as wait for company are in the air.
const SEVERAL: usize = 4;

/// What came back about the files of a pack.
#[derive(Debug, Default)]
pub struct Pack {
    /// The files behind the first one, which is the flight's own.
    pub others: Vec<Job>,
    /// From the source.
    pub sent: Vec<PackResult>,
    /// From the destination.
    pub stored: Vec<PackResult>,
}

/// Small files that will move together.
pub(super) struct Gathered {
    /// Those behind the first one.
    pub others: Vec<Job>,
    /// All of them, as they are to be stored.
    files: Vec<PackedFile>,
}

/// Whether files may be packed between these ends.
fn may_pack(pair: &Pair, shared: &Shared) -> bool {
    let options = &shared.options;
    // A pack is read back as it is, and tells no other digests.
    if options.verify == Verify::Disk || options.sums != Sums::default() || options.stripe {
        return false;
    }
    let both = |feature| pair.source.has(feature) && pair.destination.has(feature);
    let proven = options.verify == Verify::Never || both("LEAVES");
    proven && both("PACK") && pair.mode() == Mode::Extended
}

/// Whether the job is one that moves with others.
fn is_small(job: &Job, shared: &Shared) -> bool {
    let item = &job.item;
    let plain = job.work == Work::Copy && item.range.is_none() && job.received.is_empty();
    let size = item.size.is_some_and(|size| (1..=SMALL).contains(&size));
    // A pack tells no digests but its own: what the user expects of a file could not be compared.
    plain && size && !shared.is_device(item.root) && shared.expected(item).is_none()
}

/// As it is to be stored.
fn packed(job: &Job) -> PackedFile {
    let item = &job.item;
    let modified = item.attributes.modified.map(|time| (time.secs, time.nanos));
    let size = item.size.unwrap_or_default();
    PackedFile { path: item.destination.clone(), size, modified, mode: item.attributes.mode }
}

/// A pack as it grows.
#[derive(Default)]
struct Growing {
    files: Vec<PackedFile>,
    bytes: u64,
    /// Of its list, as the source or the destination is told, whichever is longer.
    list: usize,
}

impl Growing {
    /// Takes a small file; `false`: there is no room for it.
    fn takes(&mut self, job: &Job) -> bool {
        let file = packed(job);
        let bytes = self.bytes + file.size;
        let list = self.list + pack::entry_len(&file).max(pack::entry_len(&as_sent(job, &file)));
        let fits = bytes <= pack::MAX_BYTES && list <= pack::MAX_LIST_BYTES && self.files.len() < pack::MAX_FILES;
        if fits {
            (self.bytes, self.list) = (bytes, list);
            self.files.push(file);
        }
        fits
    }
}

impl Worker {
    /// Which of the waiting jobs is next: the first, or the first that is not small where small ones wait for company.
    pub(super) fn next(&self) -> Option<usize> {
        let waits = self.wait_for_company();
        self.backlog.iter().position(|job| !waits || !self.is_packable(job))
    }

    /// Whether the job can move with others over the ends that are open.
    fn is_packable(&self, job: &Job) -> bool {
        self.pair.as_ref().is_some_and(|(route, _)| self.shared.route(job.item.root) == *route)
            && is_small(job, &self.shared)
    }

    fn packs(&self) -> bool {
        let may = |(_, pair): &(_, Pair)| may_pack(pair, &self.shared);
        self.careful == 0 && !self.unpacked && self.pair.as_ref().is_some_and(may)
    }

    /// Whether small files wait for more of them: where files of all sizes are mixed they come one by one, as larger ones end, and
    /// each that moves alone costs both ends what a pack does. They wait as long as what is in the air is several times as many, and
    /// so is not over before they follow, and are not yet enough for a pack.
    fn wait_for_company(&self) -> bool {
        if !self.packs() {
            return false;
        }
        let in_air = self.flights.iter().map(files).sum::<usize>();
        if in_air < SEVERAL {
            return false;
        }
        let (mut count, mut bytes) = (0, 0);
        for job in self.backlog.iter().filter(|job| self.is_packable(job)) {
            (count, bytes) = (count + 1, bytes + job.item.size.unwrap_or_default());
            if count >= pack::MAX_FILES || bytes >= pack::MAX_BYTES {
                return false;
            }
        }
        count < in_air / SEVERAL
    }

    /// The waiting jobs that can move together with this one; `None`: it moves alone.
    pub(super) fn companions(&mut self, first: &Job) -> Option<Gathered> {
        let mut pack = Growing::default();
        if !self.packs() || !self.is_packable(first) || !pack.takes(first) {
            return None;
        }
        let (mut others, mut passed_over) = (Vec::new(), Vec::new());
        while let Some(job) = self.backlog.pop_front() {
            if !self.is_packable(&job) {
                passed_over.push(job);
            } else if pack.takes(&job) {
                others.push(job);
            } else {
                passed_over.push(job);
                break;
            }
        }
        for job in passed_over.into_iter().rev() {
            self.backlog.push_front(job);
        }
        (!others.is_empty()).then_some(Gathered { others, files: pack.files })
    }

    /// Moves files together.
    pub(super) fn start_pack(&mut self, first: Job, gathered: Gathered, connecting: Option<(Role, OpId)>) {
        let Some((_, pair)) = &mut self.pair else { return };
        let (manner, _) = manner(pair, &self.shared, &first, None);
        let Gathered { others, files } = gathered;
        let orders = orders(&first, &others, files, &manner);
        let step = Step::Pack(Pack { others, ..Pack::default() });
        let flight = Flight::new(first, &manner, step);
        self.submit(flight, connecting, orders);
    }

    /// Both ends have told what became of every file.
    pub(super) fn land_pack(&mut self, flight: Flight) {
        let Step::Pack(pack) = flight.step else { return };
        let jobs = std::iter::once(flight.job).chain(pack.others);
        let proof = flight.evidence.proof;
        let mut fates = pack.sent.into_iter().zip(pack.stored);
        for job in jobs {
            let verdict = fates.next().map_or_else(|| Err(untold(&job)), |fate| verdict(&job, fate, &proof));
            self.finish_copy(&job, verdict, 0, false, None);
        }
    }

    /// The transfer of a pack failed: none of its files is known to have come.
    pub(super) fn fail_pack(&mut self, job: Job, pack: Pack, fault: &Fault) {
        let jobs = std::iter::once(job).chain(pack.others);
        // What one end cannot do with many files it may do with each.
        if matches!(fault.code, FaultCode::NotSupported | FaultCode::InvalidArgument) {
            tracing::info!(%fault, "small files move one by one");
            self.unpacked = true;
            self.backlog.extend(jobs);
            return;
        }
        for job in jobs {
            let (attempt, fault) = (job.attempt, fault.clone());
            self.late.push(Input::ItemFailed { attempt, fault, received: RangeSet::new() });
        }
    }
}

/// The same file at the source, whose times and modes are nobody's to set.
fn as_sent(job: &Job, file: &PackedFile) -> PackedFile {
    PackedFile { path: job.item.source.clone(), size: file.size, modified: None, mode: None }
}

/// How many it moves.
fn files(flight: &Flight) -> usize {
    match &flight.step {
        Step::Pack(pack) => pack.others.len() + 1,
        _ => usize::from(moves_data(&flight.job)),
    }
}

fn orders(first: &Job, others: &[Job], stored: Vec<PackedFile>, manner: &Manner) -> Vec<Order> {
    let jobs = std::iter::once(first).chain(others);
    let sent = jobs.zip(&stored).map(|(job, file)| as_sent(job, file)).collect();
    let proof = manner.proof.as_ref().ok();
    let vouched = manner.vouched;
    let spec = |files, algorithm: Option<&String>, durable| PackSpec {
        files,
        algorithm: algorithm.cloned(),
        durable,
        vouched,
    };
    let receive = Op::ReceivePack(spec(stored, proof.map(|proof| &proof.checksum.destination), manner.durable));
    let send = Op::SendPack(spec(sent, proof.map(|proof| &proof.checksum.source), false));
    vec![Order::destination(Purpose::Store, receive), Order::source(Purpose::Send, send)]
}

fn untold(job: &Job) -> Fault {
    let fault = Fault::new(FaultCode::PeerMisbehaved, "move small files").on_path(&job.item.destination);
    fault.side(Side::Peer).detail("an end did not tell what became of the file")
}

/// Whether a file of a pack came through, and whether it is proven.
fn verdict(
    job: &Job,
    fate: (PackResult, PackResult),
    proof: &Result<Proof, Verification>,
) -> Result<Verification, Fault> {
    let failed = |failure: Failure, path: &[u8], side| fault(failure).on_path(path).side(side);
    let (sent, stored) = match fate {
        (Err(failure), _) => return Err(failed(failure, &job.item.source, Side::Source)),
        (_, Err(failure)) => return Err(failed(failure, &job.item.destination, Side::Destination)),
        (Ok(sent), Ok(stored)) => (sent, stored),
    };
    let proof = match proof {
        Ok(proof) => proof,
        Err(why) => return Ok(why.clone()),
    };
    let algorithm = proof.checksum.display();
    match (sent, stored) {
        (Some(sent), Some(stored)) if sent == stored => Ok(Verification::by(algorithm)),
        (Some(sent), Some(stored)) => Err(Fault::new(FaultCode::ChecksumMismatch, "verify")
            .on_path(&job.item.destination)
            .side(Side::Destination)
            .detail(format!("{algorithm} at the source {sent}, at the destination {stored}"))),
        _ => Ok(Verification::Unverified { reason: "digests were not delivered".to_owned() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::flight::fixtures::{checksum, job};

    #[test]
    fn a_packed_file_is_proven_only_by_equal_digests_of_both_ends() {
        let proof = Ok(Proof { checksum: checksum(), in_reply: true });
        let told = |digest: &str| Ok(Some(digest.to_owned()));
        let of = |sent, stored| verdict(&job(Work::Copy), (sent, stored), &proof);
        assert!(matches!(of(told("aa"), told("aa")), Ok(Verification::Verified { .. })));
        let fault = of(told("aa"), told("ab")).unwrap_err();
        assert_eq!((fault.code, fault.side), (FaultCode::ChecksumMismatch, Some(Side::Destination)));
        assert!(matches!(of(told("aa"), Ok(None)), Ok(Verification::Unverified { .. })));
    }
}
