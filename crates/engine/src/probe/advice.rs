//! What to change, from what was measured and what the hosts say of themselves.

use super::{Advice, Facts, Host, Measured, Part, Report, share_of_processors};
use crate::units::ByteCount;

/// Loss from which cubic and reno lose rate that BBR keeps.
const LOSS_THAT_COSTS: f64 = 5e-5;
/// Part of the sending time from which a limit counts.
const LIMIT_THAT_COSTS: f64 = 0.2;
/// Open files below which a server runs out of them.
const FEW_FILES: u64 = 4096;
/// Bytes below which a file system has no room for a serious copy.
const LITTLE_ROOM: u64 = 10 << 30;
/// Largest packet of an Ethernet without jumbo frames.
const ETHERNET: u64 = 1500;
/// Round trips below this are too short for windows and restarts to matter, microseconds.
const SHORT: u64 = 5000;
/// Bytes per second that a path is taken to carry where nothing more is known: 1 Gbit/s.
const ASSUMED: f64 = 125e6;

/// All advice, the most important first.
pub(super) fn of(report: &Report) -> Vec<Advice> {
    let mut all = Vec::new();
    if let Some(network) = report.measured(Part::Network) {
        windows(report, network, &mut all);
        loss(report, network, &mut all);
        packets(network, &mut all);
    }
    for (end, host) in [("source", &report.source), ("destination", &report.destination)] {
        switched_off(end, &host.facts, rtt(report), &mut all);
        limits(end, &host.facts, &mut all);
    }
    storage(report, &mut all);
    all
}

fn advice(end: &'static str, problem: String, change: impl Into<String>) -> Advice {
    Advice { end, problem, change: change.into() }
}

fn number(facts: &Facts, name: &str) -> Option<u64> {
    Measured::number(facts, name)
}

/// The largest of the three numbers of `tcp_rmem` and `tcp_wmem`.
fn largest(facts: &Facts, name: &str) -> Option<u64> {
    facts.get(name)?.split(' ').nth(2)?.parse().ok()
}

fn rtt(report: &Report) -> u64 {
    let facts = report.measured(Part::Network).map(|network| &network.source);
    facts.and_then(|facts| number(facts, "min_rtt_micros").or(number(facts, "rtt_micros"))).unwrap_or(0)
}

/// Bytes per second that the path should carry: the slower interface, or more than was measured.
fn target(report: &Report, network: &Measured) -> f64 {
    let speed = |host: &Host| interface_speeds(&host.facts).max();
    let link = [speed(&report.source), speed(&report.destination)].into_iter().flatten().min();
    link.map_or(ASSUMED, |megabits| megabits as f64 * 125_000.0).max(network.rate)
}

/// Megabits per second.
fn interface_speeds(facts: &Facts) -> impl Iterator<Item = u64> {
    let text = facts.get("interfaces").map_or("", String::as_str);
    text.split(", ").filter_map(|one| one.split(" speed ").nth(1)?.parse().ok())
}

/// Buffers that keep one channel below the path's rate, and those that were seen to limit.
fn windows(report: &Report, network: &Measured, all: &mut Vec<Advice>) {
    let rtt = rtt(report);
    if rtt < SHORT {
        return;
    }
    let product = target(report, network) * rtt as f64 / 1e6;
    // Half of a buffer is the kernel's own.
    let wanted = ((2.0 * product) as u64).next_power_of_two().clamp(16 << 20, 2 << 30);
    let part = |name: &str| {
        let busy = number(&network.source, "busy_micros").filter(|busy| *busy > 0)?;
        Some(number(&network.source, name)? as f64 / busy as f64)
    };
    let cases = [
        ("destination", &report.destination, "net.ipv4.tcp_rmem", "4096 131072", "receive window", "window_micros"),
        ("source", &report.source, "net.ipv4.tcp_wmem", "4096 65536", "send buffer", "buffer_micros"),
    ];
    for (end, host, name, smaller, what, seen) in cases {
        let limited = part(seen).unwrap_or(0.0);
        let most = largest(&host.facts, &format!("sysctl.{name}"));
        let small = most.is_some_and(|most| most < wanted);
        if !small && limited < LIMIT_THAT_COSTS {
            continue;
        }
        let mut problem = format!(
            "the largest {what} is {}; one data channel needs about {} for this path ({} ms away)",
            most.map_or("not known".to_owned(), |most| ByteCount(most).to_string()),
            ByteCount(wanted),
            rtt / 1000,
        );
        if limited >= LIMIT_THAT_COSTS {
            problem += &format!(". It held the sender {:.0} % of the time", limited * 100.0);
        }
        all.push(advice(end, problem, format!("sysctl -w {name}=\"{smaller} {wanted}\"")));
    }
}

/// Loss, and a congestion control that takes it for congestion.
fn loss(report: &Report, network: &Measured, all: &mut Vec<Advice>) {
    let sent = number(&network.source, "sent").filter(|sent| *sent > 0);
    let (Some(sent), Some(resent)) = (sent, number(&network.source, "resent")) else { return };
    let share = resent as f64 / sent as f64;
    let used = network.source.get("congestion").map_or("", String::as_str);
    if share < LOSS_THAT_COSTS || used.starts_with("bbr") || rtt(report) < SHORT {
        return;
    }
    let problem = format!(
        "{:.3} % of the bytes were lost and sent again, and {used} slows down at every loss; BBR does not",
        share * 100.0
    );
    let facts = &report.source.facts;
    let has = |name: &str| facts.get(name).is_some_and(|names| names.split(' ').any(|name| name == "bbr"));
    let change = if has("sysctl.net.ipv4.tcp_allowed_congestion_control") {
        "nothing on the host: `whimbrel cp` chooses BBR by itself, or at once with --congestion bbr"
    } else if has("sysctl.net.ipv4.tcp_available_congestion_control") {
        "sysctl -w net.ipv4.tcp_allowed_congestion_control=\"reno cubic bbr\""
    } else {
        "modprobe tcp_bbr && sysctl -w net.ipv4.tcp_allowed_congestion_control=\"reno cubic bbr\""
    };
    all.push(advice("source", problem, change));
    let qdisc = facts.get("sysctl.net.core.default_qdisc").map_or("", String::as_str);
    if !qdisc.is_empty() && !qdisc.starts_with("fq") {
        let problem = format!("packets leave through {qdisc}, which does not space them; BBR sends evenly with fq");
        all.push(advice("source", problem, "sysctl -w net.core.default_qdisc=fq"));
    }
}

/// Packets smaller than the interfaces could send.
fn packets(network: &Measured, all: &mut Vec<Advice>) {
    let Some(mtu) = number(&network.source, "mtu").filter(|mtu| *mtu > 0 && *mtu < ETHERNET) else { return };
    let problem = format!("the path takes packets of {mtu} bytes only, less than an Ethernet's {ETHERNET}");
    all.push(advice("path", problem, "look for a tunnel on the path: its MTU is lower than that of the interfaces"));
}

/// Settings that somebody turned off or left as they were.
fn switched_off(end: &'static str, facts: &Facts, rtt: u64, all: &mut Vec<Advice>) {
    let is = |name: &str, value: &str| facts.get(&format!("sysctl.{name}")).is_some_and(|is| is == value);
    for (name, what) in [
        ("net.ipv4.tcp_window_scaling", "windows above 64 KB are switched off"),
        ("net.ipv4.tcp_sack", "selective acknowledgement is switched off: every loss costs a round trip"),
        ("net.ipv4.tcp_moderate_rcvbuf", "receive windows do not grow by themselves"),
    ] {
        if is(name, "0") {
            all.push(advice(end, what.to_owned(), format!("sysctl -w {name}=1")));
        }
    }
    if rtt >= SHORT && is("net.ipv4.tcp_slow_start_after_idle", "1") {
        let problem = "a connection that was idle for a moment starts slowly again".to_owned();
        all.push(advice(end, problem, "sysctl -w net.ipv4.tcp_slow_start_after_idle=0"));
    }
    let jumbo = facts.get("interfaces").is_some_and(|text| {
        let sizes =
            text.split(", ").filter_map(|one| one.split(" mtu ").nth(1)?.split(' ').next()?.parse::<u64>().ok());
        sizes.max().is_some_and(|mtu| mtu > ETHERNET)
    });
    if jumbo && is("net.ipv4.tcp_mtu_probing", "0") {
        let problem =
            "an interface has large packets, and connections hang where the path does not take them".to_owned();
        all.push(advice(end, problem, "sysctl -w net.ipv4.tcp_mtu_probing=1"));
    }
}

fn limits(end: &'static str, facts: &Facts, all: &mut Vec<Advice>) {
    if let Some((share, cores)) = share_of_processors(facts) {
        let problem = format!("a control group leaves the server {share} of {cores} processors");
        let change = "a larger CPUQuota in the server's systemd unit, or a larger limit of its container";
        all.push(advice(end, problem, change));
    }
    if let Some(files) = number(facts, "limit.open_files").filter(|files| *files < FEW_FILES) {
        let problem = format!("the server may have only {files} files and connections open at once");
        all.push(advice(end, problem, "LimitNOFILE=65536 in the server's systemd unit, or `ulimit -n 65536`"));
    }
}

/// What storage is, where it bounds the path or has no room.
fn storage(report: &Report, all: &mut Vec<Advice>) {
    let part = report.verdict.as_ref().map(|verdict| (verdict.part, verdict.margin.unwrap_or(1.0)));
    for (end, host, bounding) in
        [("source", &report.source, Part::SourceRead), ("destination", &report.destination, Part::DestinationWrite)]
    {
        let kind = host.facts.get("fs.kind").map_or("the storage", String::as_str);
        if let Some((_, margin)) = part.filter(|(part, margin)| *part == bounding && *margin >= 1.2) {
            let doing = if bounding == Part::SourceRead { "reads" } else { "writes" };
            let problem = format!("{kind} {doing} {margin:.1} times slower than anything else on this path works");
            let change = match kind {
                "lustre" => "stripe the directory over more servers: lfs setstripe -c -1 DIRECTORY",
                "nfs" => "mount with nconnect=8 and rsize/wsize=1048576, or run the server where the storage is",
                _ => "faster storage, more disks in parallel, or more data nodes that share it (--node-listen)",
            };
            all.push(advice(end, problem, change));
        }
        let room = number(&host.facts, "fs.free").filter(|free| end == "destination" && *free < LITTLE_ROOM);
        if let Some(free) = room.filter(|_| host.facts.contains_key("fs.total")) {
            all.push(advice(end, format!("only {} are free", ByteCount(free)), "make room before a large copy"));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::Measurement;
    use super::super::tests::{facts, measurement};
    use super::*;

    fn far(source: &[(&str, &str)], destination: &[(&str, &str)], network: &[(&str, &str)]) -> Vec<Advice> {
        let host = |pairs| Host { facts: facts(pairs), ..Host::default() };
        let measured = Measured::new(50_000_000, Duration::from_secs(1), facts(network), Facts::new());
        let network = Measurement { part: Part::Network, measured: Some(measured), note: None };
        Report::conclude(host(source), host(destination), vec![network]).advice
    }

    const FAR: [(&str, &str); 2] = [("min_rtt_micros", "75000"), ("rtt_micros", "76000")];

    #[test]
    fn small_windows_are_answered_with_the_line_to_type() {
        let rmem = ("sysctl.net.ipv4.tcp_rmem", "4096 131072 6291456");
        let all = far(&[], &[rmem], &FAR);
        assert_eq!(all.len(), 1, "{all:?}");
        assert_eq!(
            (all[0].end, all[0].change.as_str()),
            ("destination", "sysctl -w net.ipv4.tcp_rmem=\"4096 131072 33554432\"")
        );
        assert!(all[0].problem.contains("6.29 MB") && all[0].problem.contains("75 ms"), "{}", all[0].problem);
        assert!(far(&[], &[rmem], &[("min_rtt_micros", "200")]).is_empty(), "near");
        assert!(far(&[], &[("sysctl.net.ipv4.tcp_rmem", "4096 131072 67108864")], &FAR).is_empty(), "large enough");
        let speed = ("interfaces", "eth0 mtu 1500 speed 100000");
        let all = far(&[speed], &[rmem, speed], &FAR);
        assert!(all[0].change.contains("2147483648"), "{all:?}");
    }

    #[test]
    fn a_limit_that_was_seen_is_told_with_its_share() {
        let seen = [FAR[0], ("busy_micros", "1000000"), ("buffer_micros", "700000")];
        let all = far(&[], &[], &seen);
        assert!(all[0].end == "source" && all[0].problem.contains("70 %"), "{all:?}");
        assert!(all[0].change.starts_with("sysctl -w net.ipv4.tcp_wmem="), "{all:?}");
    }

    #[test]
    fn loss_leads_to_bbr_by_the_shortest_way() {
        let lossy = [FAR[0], ("sent", "1000000"), ("resent", "1000"), ("congestion", "cubic")];
        let change = |source: &[(&str, &str)]| far(source, &[], &lossy)[0].change.clone();
        let allowed = ("sysctl.net.ipv4.tcp_allowed_congestion_control", "reno cubic bbr");
        let available = ("sysctl.net.ipv4.tcp_available_congestion_control", "reno cubic bbr");
        assert!(change(&[allowed]).contains("--congestion bbr"));
        assert!(change(&[available]).starts_with("sysctl -w net.ipv4.tcp_allowed"));
        assert!(change(&[]).starts_with("modprobe tcp_bbr"));
        let qdisc = ("sysctl.net.core.default_qdisc", "pfifo_fast");
        assert_eq!(far(&[allowed, qdisc], &[], &lossy)[1].change, "sysctl -w net.core.default_qdisc=fq");
        let bbr = [FAR[0], ("sent", "1000000"), ("resent", "1000"), ("congestion", "bbr")];
        assert!(far(&[allowed, qdisc], &[], &bbr).is_empty());
    }

    #[test]
    fn settings_that_cost_are_found_on_both_hosts() {
        let bad = [
            ("sysctl.net.ipv4.tcp_sack", "0"),
            ("limit.open_files", "1024"),
            ("host.cores", "2"),
            ("host.processors", "0.50"),
            ("sysctl.net.ipv4.tcp_slow_start_after_idle", "1"),
            ("sysctl.net.ipv4.tcp_mtu_probing", "0"),
            ("interfaces", "eth0 mtu 9000"),
        ];
        let all = far(&bad, &bad, &FAR);
        for end in ["source", "destination"] {
            let changes: Vec<_> = all.iter().filter(|one| one.end == end).map(|one| one.change.as_str()).collect();
            assert_eq!(changes.len(), 5, "{all:?}");
            assert!(all.iter().any(|one| one.end == end && one.problem.contains("0.5 of 2 processors")), "{all:?}");
            assert_eq!(changes[0], "sysctl -w net.ipv4.tcp_sack=1");
        }
        assert_eq!(far(&[], &[], &[FAR[0], ("mtu", "1280")])[0].end, "path");
        assert!(far(&[("host.cores", "2"), ("host.processors", "2.00")], &[], &FAR).is_empty(), "all of them");
    }

    #[test]
    fn storage_that_bounds_is_answered_by_its_kind() {
        let host = |kind| Host { facts: facts(&[("fs.kind", kind)]), ..Host::default() };
        let parts = [(Part::Network, 900.0), (Part::SourceRead, 800.0), (Part::DestinationWrite, 100.0)];
        let all = parts.into_iter().map(|(part, rate)| measurement(part, rate)).collect();
        let report = Report::conclude(host("xfs"), host("lustre"), all);
        assert_eq!((report.advice.len(), report.advice[0].end), (1, "destination"));
        assert!(report.advice[0].change.contains("lfs setstripe"), "{:?}", report.advice);
    }
}
