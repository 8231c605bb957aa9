//! One file moved by many hosts at once: front ends with two and three data nodes each, of either kind, with client,
//! source and destination far apart; each node's own link counts what it moved.

mod support;

use std::path::{Path, PathBuf};
use std::time::Duration;

use support::WHIMBREL;
use support::cluster::{Cluster, Ground, Kind};
use whimbrel_testkit::dataset::{self, Compare};
use whimbrel_testkit::lab::Link;
use whimbrel_testkit::peers::{self, Run, Tool};

const FILE_BYTES: u64 = 24 << 20;

/// Where files are moved and the movers counted.
struct Field(Ground);

impl Field {
    fn new() -> Option<Field> {
        Ground::new(Link::new().rtt(Duration::from_millis(2)), 3, FILE_BYTES).map(Field)
    }

    /// Runs a copy from one cluster's nodes to the other's and checks who carried the bytes.
    #[track_caller]
    fn copy(&self, tool: Tool, source: (&Cluster, &[&str]), destination: (&Cluster, &[&str])) {
        let before = self.moved_by(source.1, destination.1);
        let run = tool.on(self.0.lab.host("client")).arg(source.0.url("from")).arg(destination.0.url("to"));
        let run = run.run_ok();
        Compare::contents().assert_same(&self.0.path("from"), &self.0.path("to"));
        let after = self.moved_by(source.1, destination.1);
        let moved = |part: fn(&Moved) -> &Vec<u64>| -> Vec<u64> {
            part(&before).iter().zip(part(&after)).map(|(before, after)| after - before).collect()
        };
        let (sent, received, others) = (moved(|m| &m.sent), moved(|m| &m.received), moved(|m| &m.others));
        println!("{}: sent {sent:?}, received {received:?}, others {others:?}, {:?}", run.command, run.wall);
        let (senders, receivers) = (sent.len(), received.len());
        // A real front end gives each of its nodes whole addresses, so with fewer addresses some stay idle; and a real
        // server without nodes sends everything to one of the addresses.
        let idle_senders = if source.0.is_real() { senders.saturating_sub(receivers) } else { 0 };
        let idle_receivers = if source.0.is_real() && senders == 1 { receivers - 1 } else { 0 };
        // Our nodes send evenly whatever the numbers of either side.
        let sent_at_least = if source.0.is_real() { 0.5 } else { 0.9 };
        assert_shares(&sent, idle_senders, sent_at_least, &run);
        assert_shares(&received, idle_receivers, 0.5, &run);
        assert!(others.iter().all(|&bytes| bytes < FILE_BYTES / 50), "{others:?} went around the nodes\n{run}");
        std::fs::remove_dir_all(self.0.path("to")).or_else(|_| std::fs::remove_file(self.0.path("to"))).expect("made");
    }

    fn moved_by(&self, senders: &[&str], receivers: &[&str]) -> Moved {
        let bytes = |from: &str, to: &str| self.0.lab.direction(from, to).counters().delivered_bytes;
        let others =
            ["client", "src", "dst"].into_iter().filter(|host| !senders.contains(host) && !receivers.contains(host));
        Moved {
            sent: senders.iter().map(|node| bytes(node, "router")).collect(),
            received: receivers.iter().map(|node| bytes("router", node)).collect(),
            others: others.map(|host| bytes(host, "router") + bytes("router", host)).collect(),
        }
    }
}

/// What crossed the links of some hosts.
struct Moved {
    sent: Vec<u64>,
    received: Vec<u64>,
    others: Vec<u64>,
}

/// Panics unless all but `idle` of the nodes moved at least `part` of an even share, and all together not much more than
/// the file.
#[track_caller]
fn assert_shares(bytes: &[u64], idle: usize, part: f64, run: &Run) {
    let least = (FILE_BYTES as f64 / bytes.len() as f64 * part) as u64;
    let busy = bytes.iter().filter(|&&bytes| bytes >= least).count();
    let sum: u64 = bytes.iter().sum();
    assert!(busy + idle >= bytes.len(), "{bytes:?} of {FILE_BYTES}\n{run}");
    assert!((FILE_BYTES..FILE_BYTES + FILE_BYTES / 20).contains(&sum), "{bytes:?} of {FILE_BYTES}\n{run}");
}

fn url_copy() -> Option<Tool> {
    peers::url_copy().map(|copy| copy.arg("-stripe"))
}

fn cp() -> Tool {
    Tool::new(WHIMBREL).args(["cp", "--stripe"])
}

/// Copies with both clients from two nodes to three and from three to two.
fn between_two_and_three_nodes(from: Kind, to: Kind) {
    let Some(field) = Field::new() else { return };
    let (sources, sinks) = (["s1", "s2", "s3"], ["d1", "d2", "d3"]);
    for (senders, receivers) in [(&sources[..2], &sinks[..]), (&sources[..], &sinks[..2])] {
        let Some(source) = Cluster::start(&field.0, from, "src", senders) else { return };
        let Some(destination) = Cluster::start(&field.0, to, "dst", receivers) else { return };
        let Some(url_copy) = url_copy() else { return };
        for tool in [url_copy, cp()] {
            field.copy(tool, (&source, senders), (&destination, receivers));
        }
    }
}

#[test]
fn real_nodes_send_to_our_nodes() {
    between_two_and_three_nodes(Kind::Real, Kind::Own);
}

#[test]
fn our_nodes_send_to_real_nodes() {
    between_two_and_three_nodes(Kind::Own, Kind::Real);
}

#[test]
fn our_nodes_send_to_our_nodes() {
    between_two_and_three_nodes(Kind::Own, Kind::Own);
}

#[test]
fn layouts_channels_and_trees_are_striped_in_either_role() {
    let Some(field) = Field::new() else { return };
    let (senders, receivers) = (["s1", "s2"], ["d1", "d2", "d3"]);
    for (from, to) in [(Kind::Real, Kind::Own), (Kind::Own, Kind::Real), (Kind::Own, Kind::Own)] {
        let Some(source) = Cluster::start(&field.0, from, "src", &senders) else { return };
        let Some(destination) = Cluster::start(&field.0, to, "dst", &receivers) else { return };
        let manners: [&[&str]; 4] =
            [&["-fast", "-p", "3"], &["-sbs", "65536"], &["-sbs", "0"], &["-fast", "-p", "2", "-sbs", "0"]];
        for manner in manners {
            let Some(tool) = url_copy() else { return };
            field.copy(tool.args(manner), (&source, &senders), (&destination, &receivers));
        }
        field.copy(cp().args(["-p", "3"]), (&source, &senders), (&destination, &receivers));
    }
}

#[test]
fn a_tree_goes_over_all_nodes() {
    let Some(field) = Field::new() else { return };
    let (senders, receivers) = (["s1", "s2", "s3"], ["d1", "d2"]);
    let tree = field.0.path("tree");
    dataset::many_files(&tree_in(&tree), 30, 50_000, 3).expect("made");
    dataset::random_file(&tree.join("large"), 5_000_001, 4).expect("made");
    std::fs::write(tree.join("empty"), b"").expect("made");
    for (from, to) in [(Kind::Real, Kind::Own), (Kind::Own, Kind::Real), (Kind::Own, Kind::Own)] {
        let Some(source) = Cluster::start(&field.0, from, "src", &senders) else { return };
        let Some(destination) = Cluster::start(&field.0, to, "dst", &receivers) else { return };
        let Some(url_copy) = url_copy() else { return };
        let (source, sink) = (source.url("tree/"), |name: &str| destination.url(name));
        let client = field.0.lab.host("client");
        url_copy.on(client).args(["-r", "-cd", "-fast"]).arg(&source).arg(sink("by-copy/")).run_ok();
        cp().on(client).arg("-r").arg(&source).arg(sink("by-cp")).run_ok();
        for copy in ["by-copy", "by-cp"] {
            Compare::contents().assert_same(&tree, &field.0.path(copy));
            std::fs::remove_dir_all(field.0.path(copy)).expect("made");
        }
    }
}

fn tree_in(tree: &Path) -> PathBuf {
    std::fs::create_dir(tree).expect("made");
    tree.to_path_buf()
}

#[test]
fn a_plain_server_sends_to_all_nodes_and_takes_from_a_striped_one() {
    let Some(field) = Field::new() else { return };
    let nodes = ["s1", "s2", "s3"];
    for (striped, plain) in [(Kind::Real, Kind::Own), (Kind::Own, Kind::Real), (Kind::Own, Kind::Own)] {
        let Some(striped) = Cluster::start(&field.0, striped, "src", &nodes) else { return };
        let Some(plain) = Cluster::start(&field.0, plain, "dst", &[]) else { return };
        for tool in [url_copy().map(|tool| tool.args(["-p", "2"])), Some(cp())].into_iter().flatten() {
            field.copy(tool, (&plain, &["dst"]), (&striped, &nodes));
        }
        // One address to connect to is one node's work.
        for tool in [url_copy(), Some(cp())].into_iter().flatten() {
            let run = tool.on(field.0.lab.host("client")).arg(striped.url("from")).arg(plain.url("to")).run_ok();
            Compare::contents().assert_same(&field.0.path("from"), &field.0.path("to"));
            std::fs::remove_file(field.0.path("to")).unwrap_or_else(|error| panic!("{error}\n{run}"));
        }
    }
}
