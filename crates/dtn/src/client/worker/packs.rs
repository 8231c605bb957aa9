//! Small files that move together, between ends of our own: one transfer and one reply for many.

use whimbrel_engine::progress::Verification;
use whimbrel_engine::transfer::{Input, Job, Work};
use whimbrel_engine::{Fault, FaultCode, RangeSet, Side};
use whimbrel_proto::op::{Failure, Mode, Op, OpId, PackResult, PackSpec, PackedFile};
use whimbrel_proto::pack;

use super::Worker;
use super::manner::manner;
use crate::client::flight::{Flight, Manner, Order, Proof, Purpose, Step};
use crate::client::local::fault;
use crate::client::options::{Sums, Verify};
use crate::client::pair::{Pair, Role};
use crate::client::shared::Shared;

/// Files up to this size are packed, bytes: for larger ones a command each costs little.
const SMALL: u64 = 64 << 10;

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

/// What the job adds to a pack; `None`: it moves alone.
fn packed(job: &Job, shared: &Shared) -> Option<PackedFile> {
    let item = &job.item;
    let plain = job.work == Work::Copy && item.range.is_none() && job.received.is_empty();
    let size = item.size.filter(|size| (1..=SMALL).contains(size))?;
    // A pack tells no digests but its own: what the user expects of a file could not be compared.
    if !plain || shared.is_device(item.root) || shared.expected(item).is_some() {
        return None;
    }
    let modified = item.attributes.modified.map(|time| (time.secs, time.nanos));
    Some(PackedFile { path: item.destination.clone(), size, modified, mode: item.attributes.mode })
}

impl Worker {
    /// The waiting jobs that can move together with this one; `None`: it moves alone.
    pub(super) fn companions(&mut self, first: &Job) -> Option<Gathered> {
        let (route, pair) = self.pair.as_ref()?;
        if self.careful > 0 || self.unpacked || !may_pack(pair, &self.shared) {
            return None;
        }
        let (mut bytes, mut list) = (0, 0);
        let (mut others, mut files) = (Vec::new(), Vec::new());
        let mut fits = |job: &Job| {
            let Some(file) = packed(job, &self.shared) else { return false };
            bytes += file.size;
            // The source's path may be the longer one.
            list += pack::entry_len(&file).max(pack::entry_len(&as_sent(job, &file)));
            let fits = bytes <= pack::MAX_BYTES && list <= pack::MAX_LIST_BYTES;
            if fits {
                files.push(file);
            }
            fits
        };
        if !fits(first) {
            return None;
        }
        while others.len() + 1 < pack::MAX_FILES
            && let Some(next) = self.backlog.front()
            && self.shared.route(next.item.root) == *route
            && fits(next)
        {
            others.extend(self.backlog.pop_front());
        }
        (!others.is_empty()).then_some(Gathered { others, files })
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
