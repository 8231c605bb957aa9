//! How long a copy's proof takes once its last byte is there: from a trace of the packets of a long path.

mod support;

use std::process::Command;
use std::time::Duration;

use support::dtn::Dtn;
use support::{WHIMBREL, pattern};
use whimbrel_testkit::lab::{Fate, Lab, Link, Trace};
use whimbrel_testkit::require_root;
use whimbrel_testkit::tmpfs::Tmpfs;

/// Between the last byte at the destination and the reply that tells the last leaves' digests.
const MOST: Duration = Duration::from_millis(250);

/// From the arrival of the last data at the destination to the reply with the digests of what was read back, as it leaves.
fn proof_after_data(trace: &Trace) -> Duration {
    let data = trace.clone().between("src", "dst").with_payload();
    let arrived = data.records().iter().filter_map(|record| match record.fate {
        Fate::Arrived(at) if record.to == "dst" => Some(at),
        _ => None,
    });
    let arrived = arrived.max().expect("data went from src to dst");
    let replies = trace.records().iter().filter(|record| record.from == "dst" && record.to == "client");
    let proven = replies.filter(|record| record.says(b"226-Transfer Complete.")).map(|record| record.entered);
    let proven = proven.max().expect("a reply tells of leaves");
    assert!(proven > arrived, "the proof left at {proven:?}, data came until {arrived:?}");
    proven - arrived
}

fn copy(lab: &Lab, checksum: &str) -> Duration {
    let directory = Tmpfs::mount(600 << 20).expect("a tmpfs");
    let (from, to) = (directory.path().join("from"), directory.path().join("to"));
    std::fs::write(&from, pattern(256 << 20)).expect("written");
    let serve = |host: &str| Dtn::on(lab.host(host)).anonymous().start();
    let (source, destination) = (serve("src"), serve("dst"));
    lab.start_trace();
    let mut command: Command = lab.host("client").command(WHIMBREL);
    command.args(["cp", "--verify=require", "--checksum", checksum]).args([source.url(&from), destination.url(&to)]);
    let output = command.output().expect("it runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    proof_after_data(&lab.trace())
}

#[test]
fn the_last_leaf_is_proven_a_quarter_of_a_second_after_the_last_byte_arrived() {
    if !require_root() {
        return;
    }
    let lab = Lab::triangle(Link::new().rtt(Duration::from_millis(75)).rate_mbit(1000)).expect("laboratory");
    for checksum in ["xxh3", "md5"] {
        let took = copy(&lab, checksum);
        println!("{checksum}: {:.0} ms after the last byte", took.as_secs_f64() * 1e3);
        assert!(took <= MOST, "{checksum}: {took:?}");
    }
}
