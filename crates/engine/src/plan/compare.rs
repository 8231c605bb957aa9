//! Whether a file at the destination still needs its copy.

use std::time::Duration;

use super::{PlanOptions, SkipReason, SyncLevel};
use crate::fault::FaultCode;
use crate::listing::{Object, ObjectKind, Timestamp};

/// What the comparison of listings says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    Copy,
    CompareChecksum,
    Skip(SkipReason),
    Refuse(FaultCode),
}

/// Compares a source file with what has its name at the destination.
pub(super) fn file(source: &Object, existing: Option<&Object>, options: &PlanOptions) -> Verdict {
    let Some(existing) = existing else {
        return Verdict::Copy;
    };
    if existing.kind == ObjectKind::Directory {
        return Verdict::Refuse(FaultCode::IsADirectory);
    }
    match options.sync {
        SyncLevel::None => Verdict::Copy,
        SyncLevel::Exists => Verdict::Skip(SkipReason::Exists),
        // A link's or a device's size and time say nothing about contents.
        _ if existing.kind != ObjectKind::File => Verdict::Copy,
        _ if source.size.is_none() || source.size != existing.size => Verdict::Copy,
        SyncLevel::Size => Verdict::Skip(SkipReason::SameSize),
        SyncLevel::Mtime => match (source.modified, existing.modified) {
            (Some(source), Some(existing)) if !newer(source, existing, options.mtime_tolerance) => {
                Verdict::Skip(SkipReason::SameSizeAndNotNewer)
            }
            _ => Verdict::Copy,
        },
        SyncLevel::Checksum if source.size == Some(0) => Verdict::Skip(SkipReason::SameChecksum),
        SyncLevel::Checksum => Verdict::CompareChecksum,
    }
}

/// Compares a source link, copied as a link, with what has its name at the destination.
pub(super) fn link(target: &[u8], existing: Option<&Object>, options: &PlanOptions) -> Verdict {
    match existing.map(|object| &object.kind) {
        None => Verdict::Copy,
        Some(ObjectKind::Directory) => Verdict::Refuse(FaultCode::IsADirectory),
        Some(_) if options.sync == SyncLevel::None => Verdict::Copy,
        Some(_) if options.sync == SyncLevel::Exists => Verdict::Skip(SkipReason::LinkExists),
        Some(ObjectKind::Symlink { target: old }) if old == target && !old.is_empty() => {
            Verdict::Skip(SkipReason::SameLink)
        }
        Some(_) => Verdict::Copy,
    }
}

/// Whether `a` is later than `b` by more than `tolerance`; whole seconds when either side knows no fractions.
fn newer(a: Timestamp, b: Timestamp, tolerance: Duration) -> bool {
    let nanos = |t: Timestamp| i128::from(t.secs) * 1_000_000_000 + i128::from(t.nanos);
    let (a, b) = if a.nanos == 0 || b.nanos == 0 {
        (Timestamp::from_secs(a.secs), Timestamp::from_secs(b.secs))
    } else {
        (a, b)
    };
    nanos(a) > nanos(b) + tolerance.as_nanos() as i128
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(sync: SyncLevel) -> PlanOptions {
        PlanOptions { sync, ..PlanOptions::default() }
    }

    fn at(secs: i64, nanos: u32) -> Timestamp {
        Timestamp { secs, nanos }
    }

    #[test]
    fn each_level_asks_for_more_than_the_one_before() {
        let source = Object::file("f", 5).modified(at(10, 0));
        let old = Object::file("f", 5).modified(at(9, 0));
        let new = Object::file("f", 5).modified(at(11, 0));
        let short = Object::file("f", 4).modified(at(11, 0));
        let verdict = |sync, existing| file(&source, Some(existing), &options(sync));
        use SkipReason::*;
        use Verdict::*;
        assert_eq!(verdict(SyncLevel::None, &new), Copy);
        assert_eq!(verdict(SyncLevel::Exists, &short), Skip(Exists));
        assert_eq!(verdict(SyncLevel::Size, &short), Copy);
        assert_eq!(verdict(SyncLevel::Size, &old), Skip(SameSize));
        assert_eq!(verdict(SyncLevel::Mtime, &old), Copy);
        assert_eq!(verdict(SyncLevel::Mtime, &new), Skip(SameSizeAndNotNewer));
        assert_eq!(verdict(SyncLevel::Mtime, &short), Copy);
        assert_eq!(verdict(SyncLevel::Checksum, &short), Copy);
        assert_eq!(verdict(SyncLevel::Checksum, &new), CompareChecksum);
    }

    #[test]
    fn what_a_server_does_not_tell_is_copied() {
        let untold = Object::bare("f", ObjectKind::File);
        assert_eq!(file(&untold, Some(&untold), &options(SyncLevel::Size)), Verdict::Copy);
        let sized = Object::file("f", 1);
        assert_eq!(file(&sized, Some(&sized), &options(SyncLevel::Mtime)), Verdict::Copy);
    }

    #[test]
    fn fractions_count_only_when_both_sides_know_them() {
        assert!(!newer(at(10, 700_000_000), at(10, 0), Duration::ZERO));
        assert!(newer(at(10, 700_000_000), at(10, 600_000_000), Duration::ZERO));
        assert!(newer(at(11, 0), at(10, 900_000_000), Duration::ZERO));
        assert!(!newer(at(11, 0), at(9, 0), Duration::from_secs(2)));
    }

    #[test]
    fn a_file_never_replaces_a_directory() {
        let directory = Object::directory("f");
        let verdict = file(&Object::file("f", 1), Some(&directory), &options(SyncLevel::Size));
        assert_eq!(verdict, Verdict::Refuse(FaultCode::IsADirectory));
    }
}
