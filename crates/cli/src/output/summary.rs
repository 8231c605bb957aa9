//! The last lines of a run, and what is said of failures.

use std::time::Duration;

use whimbrel_engine::plan::quote_path;
use whimbrel_engine::summary::{Failure, Summary};
use whimbrel_engine::units::{ByteCount, ByteRate, HumanDuration};
use whimbrel_engine::{Fault, FaultCode};

use super::side_name;
use crate::place;

/// One line; `odd` is how many of what was skipped are no regular files.
pub(super) fn summary_text(summary: &Summary, odd: u64) -> String {
    let took = HumanDuration(Duration::from_secs_f64(summary.elapsed.max(0.0)));
    let mut text = format!("{} files, {} in {took}", summary.files, ByteCount(summary.bytes));
    if summary.bytes > 0 {
        text += &format!(" ({})", ByteRate(summary.rate));
    }
    for (count, what) in [
        (summary.verified, "verified"),
        (summary.read_from_disk, "read back from the disk"),
        (summary.unverified, "not verified"),
        (summary.skipped.saturating_sub(odd), "left as they were"),
        (odd.min(summary.skipped), "skipped (no regular file)"),
        (summary.unfinished, "left unfinished"),
        (summary.directories, "directories made"),
        (summary.symlinks, "links made"),
        (summary.retries, "attempts repeated"),
        (summary.failed, "FAILED"),
    ] {
        if count > 0 {
            text += &format!(", {count} {what}");
        }
    }
    if summary.bytes_holes > 0 {
        let data = summary.bytes.saturating_sub(summary.bytes_holes).saturating_sub(summary.bytes_resumed);
        let holes = ByteCount(summary.bytes_holes);
        text += &format!("; {} of data moved, the other {holes} are holes, kept as holes", ByteCount(data));
    }
    if summary.bytes_filled > 0 {
        let holes = ByteCount(summary.bytes_filled);
        text += &format!("; {holes} of holes were sent and stored as zeros, because one end cannot leave them out");
    }
    text
}

/// What is to be done about a run that was ended early.
pub(super) fn end_text(summary: &Summary, followed: bool) -> &'static str {
    match (summary.cancelled, followed) {
        (false, _) => "",
        (true, false) => "; cancelled: the same command goes on where it ended",
        (true, true) => "; ended early: the same command with --sync size leaves alone what has arrived",
    }
}

/// The failures, each with how many are left out that lie below it and failed for its reason: none if all are to be told.
pub(super) fn told_once(failures: &[Failure], all: bool) -> Vec<(&Failure, u64)> {
    let mut told: Vec<(&Failure, u64)> = Vec::new();
    for failure in failures {
        match told.iter_mut().find(|(above, _)| !all && is_below(failure, above)) {
            Some((_, below)) => *below += 1,
            None => told.push((failure, 0)),
        }
    }
    told
}

/// Whether it lies below another failure, and failed because of a directory above it, as that one says.
fn is_below(failure: &Failure, above: &Failure) -> bool {
    let lies_below =
        |directory: &[u8]| failure.destination.strip_prefix(directory).is_some_and(|rest| rest.starts_with(b"/"));
    failure.fault.code == above.fault.code
        && lies_below(&above.destination)
        && lies_below(failure.fault.subject.as_bytes())
}

pub(super) fn failure_text(failure: &Failure) -> String {
    let side = failure.fault.side.map_or("unknown side", side_name);
    format!(
        "failed: {} -> {}\n  {side}: {}\n  cause: {}\n  cure:  {}",
        quote_path(&failure.source),
        quote_path(&failure.destination),
        failure.fault,
        failure.cause,
        failure.cure
    )
}

/// How a port is written, where a place with digits behind its host is not there.
pub(super) fn hint(fault: &Fault) -> Option<String> {
    use FaultCode::{ConnectionRefused, HostUnreachable, NotFound, TimedOut};
    let absent = matches!(fault.code, ConnectionRefused | HostUnreachable | NotFound | TimedOut);
    let url = place::perhaps_meant().filter(|_| absent)?;
    Some(format!("  hint:  what stands behind HOST: is a path; for a port write {url}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use whimbrel_engine::plan::ItemId;

    fn failure(destination: &str, subject: &str) -> Failure {
        Failure {
            item: ItemId(1),
            source: b"/s".to_vec(),
            destination: destination.into(),
            fault: Fault::new(FaultCode::PermissionDenied, "make directory").subject(subject),
            cause: String::new(),
            cure: String::new(),
        }
    }

    #[test]
    fn what_failed_only_because_its_directory_did_is_counted_and_not_told() {
        let failures = [
            failure("/to/d", "/to/d"),
            failure("/to/d/a", "/to/d"),
            failure("/to/d/deep", "/to/d"),
            failure("/to/d/deep/b", "/to/d/deep"),
            failure("/to/d/c", "/to/d/c"),
            failure("/to/dd", "/to/d"),
        ];
        let told = |all| {
            let told = told_once(&failures, all);
            told.iter()
                .map(|(one, below)| (String::from_utf8_lossy(&one.destination).into_owned(), *below))
                .collect::<Vec<_>>()
        };
        let once = [("/to/d", 3), ("/to/d/c", 0), ("/to/dd", 0)];
        assert_eq!(told(false), once.map(|(path, below)| (path.to_owned(), below)));
        assert_eq!(told(true).len(), failures.len());
    }
}
