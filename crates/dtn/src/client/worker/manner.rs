//! How a job is carried out between two ends: mode, proof, names and times.

use whimbrel_engine::FaultCode;
use whimbrel_engine::progress::Verification;
use whimbrel_engine::transfer::{Job, Work};
use whimbrel_engine::{Fault, Retry, Side};
use whimbrel_proto::op::{Mode, Op};

use crate::client::checksum::SharedChecksum;
use crate::client::chunk;
use crate::client::end::End;
use crate::client::flight::{self, Manner, Order, Part, Proof};
use crate::client::options::Verify;
use crate::client::pair::{Pair, Role};
use crate::client::shared::Shared;
use crate::client::whole::Whole;

/// How a file is moved in chunks; `None`: these ends, or the user's wishes, do not allow it.
pub(super) fn chunked_manner(pair: &Pair, shared: &Shared, job: &Job) -> Option<Manner> {
    let options = &shared.options;
    // Only what moves data needs the mode: a file whose parts are all there can still be committed.
    let mode_fits = job.work == Work::Commit || pair.mode() == Mode::Extended;
    if options.verify == Verify::Never || shared.is_device(job.item.root) || !mode_fits {
        return None;
    }
    let checksum = match shared.open_file(job.attempt.item) {
        Some(file) => file.checksum,
        None => proving(pair, shared, job, shared.whole(&job.item).as_ref(), true)?,
    };
    let proof = Ok(Proof { checksum, in_reply: true });
    let past_memory = options.verify == Verify::Disk;
    let (announced, temporary) = (None, None);
    Some(Manner {
        mode: Mode::Extended,
        proof,
        time_with_store: false,
        past_memory,
        announced,
        temporary,
        holes: false,
    })
}

/// The checksum that proves a copy: the one that also gives a digest the user wants, if he named none.
fn proving(pair: &Pair, shared: &Shared, job: &Job, whole: Option<&Whole>, in_reply: bool) -> Option<SharedChecksum> {
    let named = shared.options.checksum.as_deref();
    let cheap = whole.filter(|_| named.is_none()).and_then(|whole| whole.cheapest(job.item.size, in_reply));
    cheap.and_then(|name| pair.checksum(Some(name))).or_else(|| pair.checksum(named))
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
    let fault = whole?.unsupported(&pair.destination)?;
    Some(fault.on_path(&job.item.destination))
}

/// Whether what is a hole at the source can become one at the destination without being moved.
pub(super) fn leaves_holes_out(pair: &Pair) -> bool {
    pair.source.has("HOLES") && pair.destination.has("HOLES")
}

/// How a job is carried out, with the digests of the whole file that it goes with.
pub(super) fn manner(pair: &Pair, shared: &Shared, job: &Job, whole: Option<Whole>) -> (Manner, Option<Whole>) {
    let options = &shared.options;
    // What earlier attempts brought has no digest in this one's replies.
    // The nodes of a striped server know only their own blocks.
    let entire = job.received.is_empty() && !options.stripe;
    let in_reply = entire && pair.source.has("LEAVES") && pair.destination.has("LEAVES");
    let proof = |checksum| Proof { checksum, in_reply };
    let proof = if job.work == Work::Compare {
        pair.checksum(options.checksum.as_deref()).map(proof).ok_or(Verification::NotAsked)
    } else if options.verify == Verify::Never {
        Err(Verification::NotAsked)
    } else if shared.is_device(job.item.root) {
        Err(Verification::Unverified { reason: "a device cannot be read back".to_owned() })
    } else {
        proving(pair, shared, job, whole.as_ref(), in_reply)
            .map(proof)
            .ok_or_else(|| Verification::Unverified { reason: no_common_checksum(pair, options.checksum.as_deref()) })
    };
    let time_with_store = match &pair.destination {
        End::Remote(remote) => remote.features.has("STORATTR"),
        End::Local(_) => true,
    };
    let holes = in_reply && leaves_holes_out(pair);
    let mode = pair.wire.map_or(Mode::Extended, |wire| wire.mode);
    let past_memory = options.verify == Verify::Disk && job.work == Work::Copy;
    let mut whole = whole;
    let (mut announced, mut temporary) = (None, None);
    if let Some(whole) = whole.as_mut().filter(|whole| whole.is_expected()) {
        if pair.destination.has("CHUNK") {
            announced = whole.announce(&pair.destination);
        } else {
            let name = chunk::temporary_name(&job.item.destination);
            let rename = Op::Rename { from: name.clone(), to: job.item.destination.clone() };
            whole.naming.push(Order { role: Role::Destination, part: Part::Commit, op: rename });
            whole
                .naming
                .extend(flight::attribute_orders(job, time_with_store && job.item.attributes.modified.is_some()));
            whole.readable = Some(name.clone());
            temporary = Some(name);
        }
    }
    (Manner { mode, proof, time_with_store, past_memory, announced, temporary, holes }, whole)
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
