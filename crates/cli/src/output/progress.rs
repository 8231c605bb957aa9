//! The progress line.

use std::time::Duration;

use whimbrel_engine::progress::Snapshot;
use whimbrel_engine::units::{ByteCount, ByteRate, HumanDuration};

/// One line: totals that are never more than known, the rate over a window, time to go.
pub fn line(snapshot: &Snapshot) -> String {
    let plus = if snapshot.listing_complete && snapshot.unknown_sizes == 0 { "" } else { "+" };
    let mut line = format!(
        "{}/{}{plus} files, {}/{}{plus}",
        snapshot.files_done,
        snapshot.files_total,
        ByteCount(snapshot.bytes_done),
        ByteCount(snapshot.bytes_total),
    );
    if let Some(percent) = snapshot.percent {
        line += &format!(" {percent:.0}%");
    }
    line += &format!(", {}", ByteRate(snapshot.rate));
    if let Some(eta) = snapshot.eta.filter(|eta| eta.is_finite() && *eta >= 0.0) {
        line += &format!(", {} to go", HumanDuration(Duration::from_secs_f64(eta.min(1e9))));
    }
    if snapshot.failed > 0 {
        line += &format!(", {} failed", snapshot.failed);
    }
    line
}

/// The line of a run that follows a directory, while more may come.
pub fn following(snapshot: &Snapshot) -> String {
    let waiting = snapshot.files_total.saturating_sub(snapshot.files_done + snapshot.files_failed);
    let mut line = format!(
        "watching, {} files so far, {}, {}",
        snapshot.files_done,
        ByteCount(snapshot.bytes_done),
        ByteRate(snapshot.rate),
    );
    if waiting > 0 {
        line += &format!(", {waiting} on the way");
    }
    if snapshot.failed > 0 {
        line += &format!(", {} failed", snapshot.failed);
    }
    line
}
