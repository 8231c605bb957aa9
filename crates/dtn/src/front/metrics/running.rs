//! Series of the transfers that run now, one by one.
//!
//! They come when a transfer has run for a second and vanish with it. A transfer is named by a number, never by its
//! file: names are many, long and not for everybody who may read metrics.

use std::fmt::Write as _;
use std::sync::Arc;

use crate::mover::message::{RunningChannel, RunningTransfer, Transfers, Way};

/// Most transfers on a page, of all data processes.
const MAX_TRANSFERS: usize = 256;

/// Most data channels on a page.
const MAX_CHANNELS: usize = 1024;

/// A transfer with its labels, which need no escape: digits and constants.
struct Shown<'a> {
    labels: String,
    transfer: &'a RunningTransfer,
}

/// Appends the series of all transfers; each data process comes with a number that tells it from the others.
pub(super) fn render(processes: &[(u64, Arc<Transfers>)], text: &mut String) {
    let all = processes.iter().flat_map(|(process, transfers)| transfers.running.iter().map(move |one| (process, one)));
    let count = all.clone().count();
    let shown: Vec<Shown<'_>> = all.take(MAX_TRANSFERS).map(|(process, transfer)| show(*process, transfer)).collect();
    let channels: Vec<_> =
        shown.iter().flat_map(|one| one.transfer.channels.iter().map(move |channel| (one, channel))).collect();
    let (on_page, beyond) = channels.split_at(channels.len().min(MAX_CHANNELS));
    let sum = |of: fn(&Transfers) -> u32| processes.iter().map(|(_, all)| u64::from(of(all))).sum::<u64>();
    let left_out = (count - shown.len()) as u64 + sum(|all| all.left_out);
    let channels_left_out = beyond.len() as u64 + sum(|all| all.channels_left_out);
    transfer_series(&shown, text);
    channel_series(on_page, text);
    series(text, "transfers_left_out", "Transfers running that have no series here.", [("", left_out)]);
    series(text, "transfer_channels_left_out", "Data channels that have no series here.", [("", channels_left_out)]);
}

fn show(process: u64, transfer: &RunningTransfer) -> Shown<'_> {
    let direction = match transfer.way {
        Way::In => "in",
        Way::Out => "out",
    };
    Shown { labels: format!("transfer=\"{process}-{}\",direction=\"{direction}\"", transfer.id), transfer }
}

fn transfer_series(shown: &[Shown<'_>], text: &mut String) {
    let of = |value: fn(&RunningTransfer) -> u64| {
        shown.iter().map(move |one| (format!("{{{}}}", one.labels), value(one.transfer)))
    };
    let kinds = shown.iter().map(|one| (format!("{{{},command=\"{}\"}}", one.labels, one.transfer.kind), 1));
    let expected = shown.iter().filter_map(|one| Some((format!("{{{}}}", one.labels), one.transfer.expected?)));
    series(text, "transfer_info", "The command of a transfer under way.", kinds);
    series(text, "transfer_bytes", "Bytes of a transfer moved so far.", of(|one| one.bytes));
    series(text, "transfer_expected_bytes", "Bytes of a transfer to move in all, where known.", expected);
    series(text, "transfer_bytes_per_second", "Bytes of a transfer moved a second of late.", of(|one| one.rate));
    series(text, "transfer_channels", "Data channels of a transfer.", of(|one| one.channels.len() as u64));
}

fn channel_series(shown: &[(&Shown<'_>, &RunningChannel)], text: &mut String) {
    let labels = |one: &Shown<'_>, channel: &RunningChannel| format!("{},channel=\"{}\"", one.labels, channel.index);
    let of = |value: fn(&RunningChannel) -> u64| {
        shown.iter().map(move |(one, channel)| (format!("{{{}}}", labels(one, channel)), value(channel)))
    };
    let rtts = shown.iter().map(|(one, channel)| (labels(one, channel), f64::from(channel.rtt_us) / 1e6));
    let rtts = rtts.map(|(labels, seconds)| (format!("{{{labels}}}"), seconds));
    let peers = shown.iter().filter_map(|(one, channel)| {
        let peer = channel.peer?;
        Some((format!("{{{},peer=\"{peer}\"}}", labels(one, channel)), 1))
    });
    series(text, "transfer_channel_info", "The other end of a data channel.", peers);
    series(text, "transfer_channel_bytes", "Bytes a channel carried for its transfer.", of(|one| one.bytes));
    series(text, "transfer_channel_rtt_seconds", "Smoothed round-trip time of a data channel.", rtts);
    let resent = "Segments a data channel sent again since it was opened.";
    series(text, "transfer_channel_retransmitted_segments", resent, of(|one| one.retransmits));
    series(text, "transfer_channel_congestion_window_bytes", "Congestion window of a channel.", of(|one| one.window));
}

/// One gauge with all its series; a name without any is left out.
fn series<L: AsRef<str>, V: std::fmt::Display>(
    text: &mut String,
    name: &str,
    help: &str,
    values: impl IntoIterator<Item = (L, V)>,
) {
    let mut values = values.into_iter().peekable();
    if values.peek().is_none() {
        return;
    }
    // Writing to a String cannot fail.
    let _ = write!(text, "# HELP whimbrel_{name} {help}\n# TYPE whimbrel_{name} gauge\n");
    for (labels, value) in values {
        let _ = writeln!(text, "whimbrel_{name}{} {value}", labels.as_ref());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn channel(index: u32) -> RunningChannel {
        let peer = Some(std::net::SocketAddr::from(([192, 0, 2, 7], 5000)));
        RunningChannel { index, peer, bytes: 70, rtt_us: 15_000, retransmits: 2, window: 14_480 }
    }

    fn transfer(id: u64, channels: u32) -> RunningTransfer {
        let channels = (0..channels).map(channel).collect();
        let kind = "RETR".to_owned();
        RunningTransfer { id, way: Way::Out, kind, bytes: 64, expected: Some(100), rate: 32, channels }
    }

    fn page(processes: Vec<Transfers>) -> String {
        let processes: Vec<_> = processes.into_iter().map(Arc::new).enumerate().map(|(n, t)| (n as u64, t)).collect();
        let mut text = String::new();
        render(&processes, &mut text);
        text
    }

    #[test]
    fn a_transfer_and_its_channels_are_shown_under_a_number() {
        let text =
            page(vec![Transfers::default(), Transfers { running: vec![transfer(9, 2)], ..Transfers::default() }]);
        for line in [
            "whimbrel_transfer_info{transfer=\"1-9\",direction=\"out\",command=\"RETR\"} 1",
            "whimbrel_transfer_bytes{transfer=\"1-9\",direction=\"out\"} 64",
            "whimbrel_transfer_expected_bytes{transfer=\"1-9\",direction=\"out\"} 100",
            "whimbrel_transfer_bytes_per_second{transfer=\"1-9\",direction=\"out\"} 32",
            "whimbrel_transfer_channels{transfer=\"1-9\",direction=\"out\"} 2",
            "whimbrel_transfer_channel_info{transfer=\"1-9\",direction=\"out\",channel=\"0\",peer=\"192.0.2.7:5000\"} 1",
            "whimbrel_transfer_channel_bytes{transfer=\"1-9\",direction=\"out\",channel=\"1\"} 70",
            "whimbrel_transfer_channel_rtt_seconds{transfer=\"1-9\",direction=\"out\",channel=\"1\"} 0.015",
            "whimbrel_transfer_channel_retransmitted_segments{transfer=\"1-9\",direction=\"out\",channel=\"1\"} 2",
            "whimbrel_transfer_channel_congestion_window_bytes{transfer=\"1-9\",direction=\"out\",channel=\"1\"} 14480",
            "whimbrel_transfers_left_out 0",
        ] {
            assert!(text.lines().any(|found| found == line), "no {line} in\n{text}");
        }
        assert_eq!(text.matches("# HELP").count(), text.matches("# TYPE").count());
    }

    #[test]
    fn the_page_has_a_limit_and_counts_what_it_leaves_out() {
        let many = |n: u64| Transfers {
            running: (0..n).map(|id| transfer(id, 8)).collect(),
            left_out: 3,
            channels_left_out: 5,
        };
        let text = page(vec![many(200), many(200)]);
        let count = |name: &str| text.lines().filter(|line| line.starts_with(&format!("whimbrel_{name}{{"))).count();
        assert_eq!((count("transfer_bytes"), count("transfer_channel_bytes")), (256, 1024));
        assert!(text.contains("\nwhimbrel_transfers_left_out 150\n"), "{text}");
        assert!(text.contains("\nwhimbrel_transfer_channels_left_out 1034\n"), "{text}");
    }

    #[test]
    fn a_page_without_transfers_has_none_of_their_series() {
        assert_eq!(page(vec![Transfers::default()]).matches("# TYPE").count(), 2);
    }
}
