//! `whimbrel probe` over paths of the laboratory: the network is the bottleneck, and the right settings are advised.

mod support;

use std::time::Duration;

use serde_json::Value;
use support::dtn::Dtn;
use whimbrel_testkit::lab::{Lab, Link};
use whimbrel_testkit::peers::public_dir;
use whimbrel_testkit::require_root;

fn probe(lab: &Lab, more: &[&str]) -> Value {
    probe_between(lab, ["src", "dst"], more)
}

fn probe_between(lab: &Lab, [source, destination]: [&str; 2], more: &[&str]) -> Value {
    let directory = public_dir().expect("a directory");
    let serve = |host: &str| Dtn::on(lab.host(host)).anonymous().root(directory.path()).start();
    let (source, destination) = (serve(source), serve(destination));
    let mut command = lab.host("client").command(support::WHIMBREL);
    command.args(["--json", "probe", &source.url("/"), &destination.url("/"), "--time", "3", "--size", "256M"]);
    let output = command.args(more).output().expect("the program runs");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text}\n{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_str(text.lines().last().expect("a report")).expect("JSON")
}

fn advice(report: &Value) -> Vec<&str> {
    let all = report["advice"].as_array().expect("advice");
    all.iter().map(|one| one["change"].as_str().expect("a change")).collect()
}

#[test]
fn a_slow_path_is_named_with_its_round_trip_and_small_windows_are_answered() {
    if !require_root() {
        return;
    }
    let lab = Lab::triangle(Link::new().rtt(Duration::from_millis(40)).rate_mbit(100)).expect("laboratory");
    lab.set_congestion_control_everywhere("cubic").expect("cubic");
    for host in ["src", "dst"] {
        lab.host(host).set_sysctl("net.ipv4.tcp_rmem", "4096 65536 131072").expect("set");
    }
    let report = probe(&lab, &["-p", "1"]);
    assert_eq!(report["verdict"]["part"], "network", "{report}");
    let network = &report["measurements"][0];
    // 128 KiB of buffer each 40 ms, half of it the kernel's: far less than the link's 12.5 MB/s.
    assert!(network["rate"].as_f64().is_some_and(|rate| rate < 8e6), "{network}");
    let rtt: u64 = network["source"]["min_rtt_micros"].as_str().and_then(|text| text.parse().ok()).expect("a time");
    assert!((39_000..80_000).contains(&rtt), "{rtt}");
    assert!(
        advice(&report).iter().any(|line| line.starts_with("sysctl -w net.ipv4.tcp_rmem=\"4096 131072 ")),
        "{report}"
    );
}

#[test]
fn loss_under_cubic_is_answered_with_bbr_which_is_faster_when_measured() {
    if !require_root() {
        return;
    }
    let link = Link::new().rtt(Duration::from_millis(40)).rate_mbit(200).loss(0.02);
    let lab = Lab::triangle(link).expect("laboratory");
    lab.set_congestion_control_everywhere("bbr").expect("bbr is allowed");
    lab.set_congestion_control_everywhere("cubic").expect("cubic");
    let cubic = probe(&lab, &[]);
    assert_eq!(cubic["measurements"][0]["source"]["congestion"], "cubic");
    assert!(advice(&cubic).iter().any(|line| line.contains("--congestion bbr")), "{cubic}");
    let bbr = probe(&lab, &["--congestion", "bbr"]);
    assert_eq!(bbr["measurements"][0]["source"]["congestion"], "bbr");
    let rate = |report: &Value| report["measurements"][0]["rate"].as_f64().expect("a rate");
    assert!(rate(&bbr) > 1.3 * rate(&cubic), "{} and {}", rate(&bbr), rate(&cubic));
}

#[test]
fn the_hosts_own_congestion_control_is_for_far_peers_where_it_paces() {
    if !require_root() {
        return;
    }
    let lab = Lab::triangle(Link::new().rtt(Duration::from_millis(40)).rate_mbit(200)).expect("laboratory");
    lab.set_congestion_control_everywhere("bbr").expect("bbr is allowed");
    let used = |report: &Value| report["measurements"][0]["source"]["congestion"].clone();
    assert_eq!(used(&probe(&lab, &[])), "bbr");
    assert_eq!(used(&probe_between(&lab, ["src", "src"], &[])), "cubic");
    assert_eq!(used(&probe_between(&lab, ["src", "src"], &["--congestion", "bbr"])), "bbr", "what is asked for holds");
}
