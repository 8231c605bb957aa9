//! How a job is carried out between two ends: mode, proof, names and times.

use whimbrel_engine::FaultCode;
use whimbrel_engine::auto;
use whimbrel_engine::progress::Verification;
use whimbrel_engine::transfer::{Job, Work};
use whimbrel_engine::{Fault, Retry, Side};
use whimbrel_proto::leaf;
use whimbrel_proto::op::Mode;

use crate::client::checksum::SharedChecksum;
use crate::client::end::End;
use crate::client::flight::{self, Given, Manner, Named, Proof};
use crate::client::options::Verify;
use crate::client::pair::Pair;
use crate::client::shared::Shared;
use crate::client::temporary;
use crate::client::whole::Whole;

/// How a file is moved in chunks; `None`: these ends, or the user's wishes, do not allow it.
pub(super) fn chunked_manner(pair: &Pair, shared: &Shared, job: &Job) -> Option<Manner> {
    let options = &shared.options;
    // Only what moves data needs the mode: a file whose parts are all there can still be committed.
    let mode_fits = job.work == Work::Commit || pair.mode() == Mode::Extended;
    let named_at_once = !pair.destination.has("CHUNK") && !is_compared_first(&named(pair, shared, job));
    if shared.is_device_item(&job.item) || !mode_fits || named_at_once {
        return None;
    }
    let unproven = options.verify == Verify::Never;
    if unproven && !keeps_unproven(&pair.destination) {
        return None;
    }
    let checksum = match shared.open_file(job.attempt.item) {
        Some(file) => file.checksum,
        None if unproven => None,
        None => Some(proving(pair, shared, job, shared.whole(&job.item).as_ref(), true)?),
    };
    let proof = checksum.map(|checksum| Proof { checksum, in_reply: true }).ok_or(Verification::NotAsked);
    let past_memory = options.verify == Verify::Disk;
    let named = Named::BY_DESTINATION;
    let (mode, given, measured) = (Mode::Extended, Given::default(), false);
    // Its leaves are compared before it has its name.
    let (holes, vouched) = (false, false);
    Some(Manner { mode, proof, given, past_memory, durable: options.durable, named, holes, vouched, measured })
}

/// Whether parts of a file can be kept that nothing was proven of: by a server of ours that says so, by this host, and under
/// a temporary name anywhere.
fn keeps_unproven(destination: &End) -> bool {
    let End::Remote(remote) = destination else { return true };
    let words = remote.features.params("CHUNK");
    words.is_none_or(|words| words.split_ascii_whitespace().any(|word| word.eq_ignore_ascii_case(leaf::NONE)))
}

/// The checksum that examines what an earlier run left under a temporary name, whether or not the copy is proven.
pub(super) fn examining(pair: &Pair, shared: &Shared, proof: Option<&SharedChecksum>) -> Option<SharedChecksum> {
    proof.cloned().or_else(|| pair.checksum(shared.options.checksum.as_deref()))
}

/// The checksum that proves a copy: the one that also gives a digest the user wants, if he named none.
fn proving(pair: &Pair, shared: &Shared, job: &Job, whole: Option<&Whole>, in_reply: bool) -> Option<SharedChecksum> {
    let named = shared.options.checksum.as_deref();
    let leaf = match job.work {
        _ if !in_reply => None,
        Work::Open { leaf } => Some(leaf),
        _ => Some(auto::LEAF),
    };
    let cheap = whole.filter(|_| named.is_none()).and_then(|whole| whole.cheapest(job.item.size, leaf));
    cheap.and_then(|algorithm| pair.checksum_of_leaves(algorithm)).or_else(|| pair.checksum(named))
}

/// Why a file need not be moved at all: its digest can never be what it must be, or never be known.
pub(super) fn hopeless(job: &Job, whole: Option<&Whole>, pair: &Pair, shared: &Shared) -> Option<Fault> {
    if matches!(job.work, Work::Copy | Work::Open { .. })
        && shared.options.verify.is_required()
        && shared.is_unlisted(&job.item)
    {
        let fault = Fault::new(FaultCode::Unverified, "check the whole file").on_path(&job.item.source);
        return Some(fault.side(Side::Us).detail("the list of expected checksums does not name it"));
    }
    // The temporary name of another file, which would be taken for it.
    if matches!(job.work, Work::Copy | Work::Open { .. })
        && temporary::is_temporary_name(&job.item.destination)
        && !pair.destination.has("CHUNK")
    {
        let fault = Fault::new(FaultCode::InvalidPath, "copy").on_path(&job.item.destination).side(Side::Us);
        return Some(fault.detail("at servers of other kinds, unfinished copies have names of this form"));
    }
    let fault = whole?.unsupported(&pair.destination)?;
    Some(fault.on_path(&job.item.destination))
}

/// Whether a destination's refusal may be about the temporary name, so that the final one is worth trying.
pub(super) fn refuses_name(fault: &Fault) -> bool {
    let about_more = matches!(
        fault.code,
        FaultCode::NoSpace
            | FaultCode::QuotaExceeded
            | FaultCode::FileTooLarge
            | FaultCode::ReadOnly
            | FaultCode::NotFound
            | FaultCode::NotADirectory
            | FaultCode::IsADirectory
            | FaultCode::DirectoryNotEmpty
            | FaultCode::NotAsExpected
    );
    fault.side == Some(Side::Destination) && !fault.is_temporary() && !about_more
}

/// Whether what is a hole at the source can become one at the destination without being moved.
pub(super) fn leaves_holes_out(pair: &Pair) -> bool {
    pair.source.has("HOLES") && pair.destination.has("HOLES")
}

/// How a job is carried out, with the digests of the whole file that it goes with.
pub(super) fn manner(pair: &Pair, shared: &Shared, job: &Job, mut whole: Option<Whole>) -> (Manner, Option<Whole>) {
    let options = &shared.options;
    // What earlier attempts brought has no digest in this one's replies.
    // The nodes of a striped server know only their own blocks.
    let entire = job.received.is_empty() && !options.stripe && flight::is_told_in_reply(job.item.size);
    let in_reply = entire && pair.source.has("LEAVES") && pair.destination.has("LEAVES");
    let proof = proof(pair, shared, job, whole.as_ref(), in_reply);
    let given = Given::to(&pair.destination);
    let named = match job.work {
        Work::Copy => named(pair, shared, job),
        _ => Named::BY_DESTINATION,
    };
    let named = match named {
        Named::Later { temporary, may_exist } => {
            let naming = flight::naming_orders(job, &temporary, given);
            whole.get_or_insert_with(Whole::unwanted).name_later(naming);
            Named::Later { temporary, may_exist }
        }
        by_destination => {
            let expected = whole.as_mut().filter(|whole| whole.is_expected() && pair.destination.has("CHUNK"));
            match expected.and_then(|whole| whole.announce(&pair.destination)) {
                None if by_destination == Named::SourceFirst && proof.is_ok() => Named::SourceFirst,
                announced => Named::ByDestination { announced },
            }
        }
    };
    let holes = in_reply && leaves_holes_out(pair);
    let mode = pair.wire.map_or(Mode::Extended, |wire| wire.mode);
    let vouched = in_reply && mode == Mode::Extended && pair.source.has("VOUCH") && pair.destination.has("VOUCH");
    let past_memory = options.verify == Verify::Disk && job.work == Work::Copy;
    // A checksum that is asked for behind the storing in place proves nothing of a source that was written over. A device has
    // no length.
    let by_length = proof.is_err() || (!pair.destination.has("CHUNK") && !is_compared_first(&named));
    let measured = job.work == Work::Copy && by_length && !shared.is_device_item(&job.item);
    (Manner { mode, proof, given, past_memory, durable: options.durable, named, holes, vouched, measured }, whole)
}

/// How a job is proven; `in_reply`: both ends tell digests in the replies of the transfer.
fn proof(
    pair: &Pair,
    shared: &Shared,
    job: &Job,
    whole: Option<&Whole>,
    in_reply: bool,
) -> Result<Proof, Verification> {
    let wanted = shared.options.checksum.as_deref();
    let proof = |checksum| Proof { checksum, in_reply };
    if job.work == Work::Compare {
        return pair.checksum(wanted).map(proof).ok_or(Verification::NotAsked);
    }
    if shared.options.verify == Verify::Never {
        return Err(Verification::NotAsked);
    }
    let unverified = |reason| Verification::Unverified { reason };
    if shared.is_device_item(&job.item) {
        return Err(unverified("a device cannot be read back".to_owned()));
    }
    let checksum = proving(pair, shared, job, whole, in_reply);
    checksum.map(proof).ok_or_else(|| unverified(no_common_checksum(pair, wanted)))
}

/// When a whole file gets its name, as far as its ends and the user decide that.
fn named(pair: &Pair, shared: &Shared, job: &Job) -> Named {
    let item = &job.item;
    // A part of a file goes into the file that is there, and a device is no file that could be replaced.
    if item.range.is_some() || shared.is_device_item(item) {
        return Named::BY_DESTINATION;
    }
    if !pair.destination.has("CHUNK") {
        let expected = shared.expected(item).is_some();
        let allowed = expected || shared.takes_temporary(&shared.route(item.root), &item.destination);
        let later = || Named::Later {
            temporary: shared.temporary_of_whole(item),
            may_exist: !shared.is_in_new_directory(item),
        };
        return if allowed { later() } else { Named::BY_DESTINATION };
    }
    // However long it takes: nothing may have its name before it is proven. Ends of ours tell digests of what they move, and so not of
    // what an earlier attempt brought: a bit may have flipped on its way, and a crash may have left zeros.
    let tells_all = pair.source.has("DCNONCE") && job.received.is_empty();
    if !tells_all && shared.sums_first(&shared.route(item.root)) {
        return Named::SourceFirst;
    }
    Named::BY_DESTINATION
}

/// Whether a file that is named so is compared before it has its name.
fn is_compared_first(named: &Named) -> bool {
    !matches!(named, Named::ByDestination { .. })
}

/// Whether a whole file, or a part of one, is written where it is to stay: what is there is emptied or written over.
pub(super) fn writes_in_place(pair: &Pair, shared: &Shared, job: &Job) -> bool {
    job.work == Work::Copy && !pair.destination.has("CHUNK") && !is_compared_first(&named(pair, shared, job))
}

/// Whether a file can be asked for behind others at a source of another kind: behind one that it refuses it sends the next
/// over the same connections, where the destination takes it for the refused one. That must be noticed, and have no name.
pub(super) fn is_safe(pair: &Pair, shared: &Shared, job: &Job) -> bool {
    let provable = shared.options.verify != Verify::Never
        && !shared.is_device_item(&job.item)
        && pair.checksum(shared.options.checksum.as_deref()).is_some();
    match job.work {
        Work::Copy => provable && is_compared_first(&named(pair, shared, job)),
        // What is misplaced in a chunked file is found by its leaves.
        Work::Chunk { .. } => provable,
        _ => true,
    }
}

fn no_common_checksum(pair: &Pair, wanted: Option<&str>) -> String {
    let list = |end: &End| match end.checksums() {
        names if names.is_empty() => "none".to_owned(),
        names => names.join(", "),
    };
    let wanted = wanted.map(|name| format!(" {name}")).unwrap_or_default();
    format!(
        "no common checksum{wanted}: the source offers {}, the destination {}",
        list(&pair.source),
        list(&pair.destination)
    )
}

/// The fault of a copy that must be proven and cannot be.
pub(super) fn unverified(job: &Job, manner: &Manner) -> Fault {
    let reason = match &manner.proof {
        Err(Verification::Unverified { reason }) => reason.clone(),
        _ => String::new(),
    };
    Fault::new(FaultCode::Unverified, "verify")
        .on_path(&job.item.source)
        .side(Side::Peer)
        .retry(Retry::Permanent)
        .detail(reason)
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use whimbrel_engine::RangeSet;
    use whimbrel_engine::plan::PlanOptions;

    use super::*;
    use crate::client::flight::fixtures::job;
    use crate::client::local::{LocalData, LocalOptions};
    use crate::client::options::CopyOptions;
    use crate::client::pair::DataWish;

    fn shared(verify: Verify) -> Shared {
        Shared::new(CopyOptions { verify, ..CopyOptions::of(PlanOptions::default()) }, DataWish::plain(), Rc::default())
    }

    #[tokio::test]
    async fn between_our_own_ends_what_goes_on_with_an_earlier_attempt_is_compared_before_it_has_its_name() {
        let data = LocalData::start(&LocalOptions::default()).await.expect("this host moves data");
        let end = || End::Local(data.attach(None, None).expect("it has just been started"));
        let pair = Pair::new(end(), end());
        let of = |shared: &Shared, job: &Job| manner(&pair, shared, job, None).0;
        let (first, mut again) = (job(Work::Copy), job(Work::Copy));
        again.received = RangeSet::from(0..10);
        let proven = shared(Verify::WhenPossible);
        let whole = of(&proven, &first);
        assert!(whole.vouched && whole.named == Named::BY_DESTINATION, "its sender vouches for all of it");
        let rest = of(&proven, &again);
        assert!(rest.proof.is_ok() && !rest.vouched);
        assert_eq!(rest.named, Named::SourceFirst);
        // Nothing is known of what came, and nobody asked.
        assert_eq!(of(&shared(Verify::Never), &again).named, Named::BY_DESTINATION);
        // It was asked for in vain.
        proven.refuse_sums(&proven.route(again.item.root));
        assert_eq!(of(&proven, &again).named, Named::BY_DESTINATION);
    }
}
