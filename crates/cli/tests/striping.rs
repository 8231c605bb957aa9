//! One file moved by many hosts at once: front ends with two and three data nodes each, of either kind, with client,
//! source and destination far apart; each node's own link counts what it moved.

mod support;

use std::path::{Path, PathBuf};
use std::time::Duration;

use support::WHIMBREL;
use support::cluster::{Cluster, Ground, Kind};
use whimbrel_testkit::dataset::{self, Compare};
use whimbrel_testkit::lab::Link;
use whimbrel_testkit::peers::{self, Run, Tool, file_url};

const FILE_BYTES: u64 = 24 << 20;

/// Where files are moved and the movers counted.
struct Field(Ground);

/// One end of a copy: what is said of it to a client, and the hosts whose links its bytes cross.
struct End<'a> {
    url: String,
    hosts: &'a [&'a str],
    is_real: bool,
}

impl<'a> End<'a> {
    /// Something on the nodes of a cluster, or at a front without nodes.
    fn of(cluster: (&Cluster, &'a [&'a str]), name: &str) -> Self {
        Self { url: cluster.0.url(name), hosts: cluster.1, is_real: cluster.0.is_real() }
    }
}

impl Field {
    fn new() -> Option<Field> {
        Ground::new(Link::new().rtt(Duration::from_millis(2)), 3, FILE_BYTES).map(Field)
    }

    /// Runs a copy from one cluster's nodes to the other's and checks who carried the bytes.
    #[track_caller]
    fn copy(&self, tool: Tool, source: (&Cluster, &[&str]), destination: (&Cluster, &[&str])) {
        self.moves(tool, FILE_BYTES, &End::of(source, "from"), &End::of(destination, "to"));
        Compare::contents().assert_same(&self.0.path("from"), &self.0.path("to"));
        std::fs::remove_dir_all(self.0.path("to")).or_else(|_| std::fs::remove_file(self.0.path("to"))).expect("made");
    }

    /// Runs a copy of so many bytes and checks who carried them.
    #[track_caller]
    fn moves(&self, tool: Tool, size: u64, source: &End<'_>, destination: &End<'_>) {
        let before = self.moved_by(source.hosts, destination.hosts);
        let run = tool.on(self.0.lab.host("client")).arg(&source.url).arg(&destination.url);
        let run = run.run_ok();
        let after = self.moved_by(source.hosts, destination.hosts);
        let moved = |part: fn(&Moved) -> &Vec<u64>| -> Vec<u64> {
            part(&before).iter().zip(part(&after)).map(|(before, after)| after - before).collect()
        };
        let (sent, received, others) = (moved(|m| &m.sent), moved(|m| &m.received), moved(|m| &m.others));
        println!("{}: sent {sent:?}, received {received:?}, others {others:?}, {:?}", run.command, run.wall);
        let (senders, receivers) = (sent.len(), received.len());
        // A real front end gives each of its nodes whole addresses, so with fewer addresses some stay idle; a real client's
        // own address is one node's work; and a real program without nodes sends everything to one of the addresses.
        let whole_addresses = source.is_real || destination.is_real && receivers == 1;
        let idle_senders = if whole_addresses { senders.saturating_sub(receivers) } else { 0 };
        let idle_receivers = if source.is_real && senders == 1 { receivers - 1 } else { 0 };
        // Our nodes send a file evenly whatever the numbers of either side; of trees, small files go whole.
        let sent_at_least = if whole_addresses || size != FILE_BYTES { 0.5 } else { 0.9 };
        assert_shares(&sent, size, idle_senders, sent_at_least, &run);
        assert_shares(&received, size, idle_receivers, 0.5, &run);
        assert!(others.iter().all(|&bytes| bytes < size / 50), "{others:?} went around the nodes\n{run}");
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

/// Panics unless all but `idle` of the nodes moved at least `part` of an even share of `size`, and all together not much
/// more than that.
#[track_caller]
fn assert_shares(bytes: &[u64], size: u64, idle: usize, part: f64, run: &Run) {
    let least = (size as f64 / bytes.len() as f64 * part) as u64;
    let busy = bytes.iter().filter(|&&bytes| bytes >= least).count();
    let sum: u64 = bytes.iter().sum();
    assert!(busy + idle >= bytes.len(), "{bytes:?} of {size}\n{run}");
    assert!((size..size + size / 20).contains(&sum), "{bytes:?} of {size}\n{run}");
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

/// The real server in both roles, driven by our client.
#[test]
fn real_nodes_send_to_real_nodes() {
    let Some(field) = Field::new() else { return };
    let (sources, sinks) = (["s1", "s2", "s3"], ["d1", "d2", "d3"]);
    for (senders, receivers) in [(&sources[..2], &sinks[..]), (&sources[..], &sinks[..2])] {
        let Some(source) = Cluster::start(&field.0, Kind::Real, "src", senders) else { return };
        let Some(destination) = Cluster::start(&field.0, Kind::Real, "dst", receivers) else { return };
        for options in [&[][..], &["-p", "2"]] {
            field.copy(cp().args(options), (&source, senders), (&destination, receivers));
        }
    }
}

/// Between the client's own host, which is one of many senders or receivers, and nodes.
#[test]
fn files_of_the_clients_host_go_to_and_come_from_all_nodes() {
    let Some(field) = Field::new() else { return };
    let (from, to) = (field.0.path("from"), field.0.path("to"));
    let nodes = ["s1", "s2", "s3"];
    for (kind, count) in [(Kind::Real, 2), (Kind::Real, 3), (Kind::Own, 2), (Kind::Own, 3)] {
        let nodes = &nodes[..count];
        let Some(cluster) = Cluster::start(&field.0, kind, "src", nodes) else { return };
        let fast = || url_copy().map(|tool| tool.arg("-fast"));
        let tools: [(bool, &dyn Fn() -> Option<Tool>); 3] = [(true, &url_copy), (true, &fast), (false, &|| Some(cp()))];
        for (is_real, tool) in tools {
            // A file here is to it what a server without nodes has.
            let here = |path: &Path| End {
                url: if is_real { file_url(path) } else { path.to_string_lossy().into_owned() },
                hosts: &["client"],
                is_real,
            };
            let there = |name| End::of((&cluster, nodes), name);
            for (source, destination) in [(there("from"), here(&to)), (here(&from), there("to"))] {
                let Some(tool) = tool() else { return };
                field.moves(tool, FILE_BYTES, &source, &destination);
                Compare::contents().assert_same(&from, &to);
                std::fs::remove_file(&to).expect("made");
            }
        }
    }
}

#[test]
fn layouts_channels_and_trees_are_striped_in_either_role() {
    let Some(field) = Field::new() else { return };
    let (sources, sinks) = (["s1", "s2", "s3"], ["d1", "d2", "d3"]);
    let pairs = [(Kind::Real, Kind::Own), (Kind::Own, Kind::Real), (Kind::Own, Kind::Own)];
    let numbers = [(&sources[..2], &sinks[..]), (&sources[..], &sinks[..2])];
    for ((from, to), (senders, receivers)) in pairs.into_iter().flat_map(|pair| numbers.map(|number| (pair, number))) {
        let Some(source) = Cluster::start(&field.0, from, "src", senders) else { return };
        let Some(destination) = Cluster::start(&field.0, to, "dst", receivers) else { return };
        let manners: [&[&str]; 6] = [
            &["-fast"],
            &["-fast", "-p", "3"],
            &["-sbs", "65536"],
            &["-sbs", "0"],
            &["-fast", "-p", "2", "-sbs", "65536"],
            &["-fast", "-p", "2", "-sbs", "0"],
        ];
        for manner in manners {
            let Some(tool) = url_copy() else { return };
            field.copy(tool.args(manner), (&source, senders), (&destination, receivers));
        }
        field.copy(cp().args(["-p", "3"]), (&source, senders), (&destination, receivers));
    }
}

#[test]
fn a_tree_goes_over_all_nodes() {
    let Some(field) = Field::new() else { return };
    let (senders, receivers) = (["s1", "s2", "s3"], ["d1", "d2"]);
    let tree = field.0.path("tree");
    dataset::many_files(&tree_in(&tree), 30, 50_000, 3).expect("made");
    dataset::random_file(&tree.join("large"), 24_000_001, 4).expect("made");
    let tree_bytes = 30 * 50_000 + 24_000_001;
    std::fs::write(tree.join("empty"), b"").expect("made");
    for (from, to) in [(Kind::Real, Kind::Own), (Kind::Own, Kind::Real), (Kind::Own, Kind::Own)] {
        let Some(source) = Cluster::start(&field.0, from, "src", &senders) else { return };
        let Some(destination) = Cluster::start(&field.0, to, "dst", &receivers) else { return };
        let Some(url_copy) = url_copy() else { return };
        let source = End::of((&source, &senders), "tree/");
        let sink = |name| End::of((&destination, &receivers), name);
        field.moves(url_copy.args(["-r", "-cd", "-fast"]), tree_bytes, &source, &sink("by-copy/"));
        field.moves(cp().arg("-r"), tree_bytes, &source, &sink("by-cp"));
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
