//! What users ask of transfers, as the client machinery takes it.

use whimbrel_engine::dispatch::WorkItem;
use whimbrel_engine::plan::{Links, PlanOptions, Preserve, SyncLevel};
use whimbrel_engine::task::{Symlinks, TransferOptions};
use whimbrel_engine::tune::Setting;
use whimbrel_engine::{Fault, FaultCode, Side};

use super::Limits;
use super::site::{self, Reach};
use crate::client::expect::{Expected, algorithm};
use crate::client::options::{CopyOptions, Demand, FoundFile, Verify};
use crate::client::shared::Route;

/// Most data channels and small files in flight that users may ask for.
const MOST_CHANNELS: u32 = 64;
const MOST_PIPELINED: u32 = 60;

/// What a task is called, and how much of the ends it may have.
#[derive(Debug, Clone, Copy)]
pub(super) struct Manner<'a> {
    pub(super) label: &'a str,
    pub(super) max_concurrency: Option<u32>,
}

/// An item as the client machinery takes it. One that cannot be understood is a fault of its own.
pub(super) fn found(from: &Reach, to: &Reach, item: WorkItem) -> Result<FoundFile, Fault> {
    let (source, destination) = (from.place(&item.source), to.place(&item.destination));
    let expected = item.checksum.as_ref().map(|checksum| {
        let known = algorithm(&checksum.algorithm);
        known.and_then(|known| Expected::new(known, &checksum.digest)).map_err(|error| {
            let fault = Fault::new(FaultCode::InvalidArgument, "read the expected checksum");
            fault.on_path(&item.source).side(Side::Service).detail(error.to_string())
        })
    });
    let (expected, found) = match expected.transpose() {
        // A move would delete what it has just written, a mirror its own source.
        Ok(_) if from.overlaps(&item.source, to, &item.destination) => {
            let fault = Fault::new(FaultCode::InvalidArgument, "copy").on_path(&item.source).side(Side::Service);
            (None, Err(fault.detail("source and destination are the same, or one is in the other")))
        }
        Ok(expected) => (expected, Ok(None)),
        Err(fault) => (None, Err(fault)),
    };
    let links = if item.symlink { Links::Copy } else { Links::Follow };
    // A checksum is of a file.
    let recursive = if expected.is_some() { Some(false) } else { item.recursive };
    let demand = Demand { recursive, links: Some(links), expected, ..Demand::default() };
    Ok(FoundFile { source, destination, found, demand })
}

/// How directories are read, at either end.
pub(super) fn plan(options: &TransferOptions) -> PlanOptions {
    PlanOptions {
        // What an earlier run has moved is told by size and time.
        sync: if options.follow.is_some() { SyncLevel::Mtime } else { options.sync },
        recursive: true,
        links: match options.symlinks {
            Symlinks::Ignore => Links::Skip,
            Symlinks::Keep => Links::Copy,
            Symlinks::Copy => Links::Follow,
        },
        avoids_links: options.symlinks == Symlinks::Keep,
        preserve: Preserve { times: options.preserve_times, modes: options.preserve_modes },
        filter: options.filter.clone(),
        ..PlanOptions::default()
    }
}

/// How files are copied from the first place to the second.
pub(super) fn copy(
    limits: &Limits,
    manner: Manner<'_>,
    options: &TransferOptions,
    [source, destination]: [&Reach; 2],
) -> CopyOptions {
    let perf = options.perf;
    let most = |hint: Option<u32>, most: u32| hint.map_or(Setting::Auto, |hint| Setting::Fixed(hint.clamp(1, most)));
    let sessions = [perf.concurrency, manner.max_concurrency].into_iter().flatten().min();
    CopyOptions {
        most_sessions: sessions.map(|most| most.max(1)),
        between: Some(Route { source: Some(source.target.clone()), destination: Some(destination.target.clone()) }),
        parallelism: most(perf.parallelism, MOST_CHANNELS),
        pipeline: most(perf.pipelining, MOST_PIPELINED),
        verify: proof(options),
        durable: is_durable(options),
        encrypt: options.encrypt,
        ..usual(limits, manner.label, plan(options))
    }
}

/// How copies are proven: what is not is not deleted, nor taken where a collection demands it.
fn proof(options: &TransferOptions) -> Verify {
    match (options.move_source || options.verify_required, options.verify) {
        (true, _) => Verify::Require,
        (false, true) => Verify::WhenPossible,
        (false, false) => Verify::Never,
    }
}

/// Whether each file must survive a crash of its host before it counts as stored: where its source is deleted then, and where a later run would
/// leave alone what a crash has left of it, because something has its name.
pub(super) fn is_durable(options: &TransferOptions) -> bool {
    options.move_source || options.sync == SyncLevel::Exists
}

/// What every use of the client machinery for a task has in common.
pub(super) fn usual(limits: &Limits, label: &str, plan: PlanOptions) -> CopyOptions {
    CopyOptions {
        retry: limits.retry.clone(),
        progress: limits.gauge,
        session: site::session(label),
        local: limits.local.clone(),
        ..CopyOptions::of(plan)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_are_proven_and_durable_where_something_relies_on_it() {
        for move_source in [false, true] {
            let wanted = TransferOptions { move_source, verify: false, ..TransferOptions::default() };
            let verify = if move_source { Verify::Require } else { Verify::Never };
            assert_eq!((proof(&wanted), is_durable(&wanted)), (verify, move_source));
        }
        let demanded = TransferOptions { verify: true, verify_required: true, ..TransferOptions::default() };
        assert_eq!((proof(&demanded), is_durable(&demanded)), (Verify::Require, false));
        let by_name = TransferOptions { sync: SyncLevel::Exists, ..TransferOptions::default() };
        assert!(is_durable(&by_name), "a later run asks for nothing but the name");
    }
}
