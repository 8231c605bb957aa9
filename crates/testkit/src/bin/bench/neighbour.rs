//! What a copy leaves to a stranger's connection on the same path.
//!
//! One plain connection (iperf3, one stream) is timed alone, then beside one or four streams of another iperf3, beside
//! us with no options and beside the peers: a row's time is what the stranger needs for the same bytes.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use whimbrel_testkit::dataset;
use whimbrel_testkit::lab::{Lab, Link};
use whimbrel_testkit::peers::{self, Daemon, Tool};
use whimbrel_testkit::tmpfs::Tmpfs;

use crate::case::{Case, Contender, Sample};
use crate::options::Options;
use crate::servers::{Pair, Programs, succeed};
use crate::versus::Versus;
use crate::wan::{START_LIMIT, iperf3_server, received_in};
use crate::{Measured, Outcome};

const MIB: u64 = 1 << 20;
/// The path: what it carries is far below what this machine can.
const RTT: Duration = Duration::from_millis(40);
const RATE_MBIT: u64 = 200;
/// Ports of the stranger's server and of the other's.
const STRANGER: &str = "5201";
const OTHER: &str = "5202";
/// How long the stranger is watched: one that comes late needs half of it to grow to what it will have.
const WATCHED: Duration = Duration::from_secs(30);
/// What whoever is beside it has moved before, at least: it begins no more, and has found out what it needs.
const SETTLED: u64 = 400 * MIB;
/// Time that it may take for that, and for the stranger to be done.
const LIMIT: Duration = Duration::from_secs(90);
/// What the stranger's time is told for.
const BYTES: u64 = 100 * MIB;

/// The laboratory and who is in it.
struct Street<'a> {
    lab: &'a Lab,
    watched: Duration,
    settled: u64,
}

/// Measures under the congestion control that most hosts have.
pub fn measure(options: &Options, programs: &Programs, done: &mut Measured) -> Outcome<()> {
    let lab = Lab::triangle(Link::new().rtt(RTT).rate_mbit(RATE_MBIT))?;
    lab.set_congestion_control_everywhere("cubic")?;
    // Twice what the path carries while somebody looks.
    let watched = options.size(WATCHED, WATCHED / 5);
    let settled = options.size(SETTLED, SETTLED / 4);
    let bytes = settled + 2 * (RATE_MBIT * 1_000_000 / 8) * watched.as_secs();
    let room = Tmpfs::mount_huge(bytes * 3)?;
    let (from, to) = (room.path().join("from"), room.path().join("to"));
    dataset::random_file(&from, bytes, 11)?;
    let hosts = Some((lab.host("src"), lab.host("dst")));
    let (own, real) = (Pair::own(programs, hosts)?, Pair::real(hosts)?);
    let _server = iperf3_server(lab.host("dst"), STRANGER)?;
    let other = iperf3_server(lab.host("dst"), OTHER)?;
    let street = Street { lab: &lab, watched, settled };
    let client = |program: &Path, arguments: &[&str], pair: &Pair| {
        let mut command = lab.host("client").command(program);
        command.args(arguments).args([pair.source.url(&from), pair.destination.url(&to)]);
        command
    };
    let streams = |count: &str| {
        let mut command = lab.host("src").command(peers::find("iperf3").ok_or("iperf3 is not installed")?);
        let address = lab.host("dst").addr().to_string();
        command.args(["-c", &address, "-p", OTHER, "-P", count, "-t", "600", "--forceflush"]);
        Outcome::Ok(command)
    };
    let whimbrel = || client(&programs.whimbrel, &["cp", "--json"], &own);
    let guc = || client(&programs.url_copy, &["-fast", "-p", "4", "-dbg"], &real);
    let contender = |name, command: &str, servers, run| Contender { name, command: command.into(), servers, run };
    let contenders = vec![
        contender("alone", "nothing", vec![], Box::new(|| street.stranger())),
        contender("beside iperf3", "iperf3", vec![other.id()], Box::new(|| street.beside(streams("1")?, &to))),
        contender(
            "beside iperf3 -P 4",
            "iperf3 -P 4",
            vec![other.id()],
            Box::new(|| street.beside(streams("4")?, &to)),
        ),
        contender("beside whimbrel", "whimbrel cp", own.ids(), Box::new(|| street.beside(whimbrel(), &to))),
        contender("beside guc -p 4", "globus-url-copy -fast -p 4", real.ids(), Box::new(|| street.beside(guc(), &to))),
    ];
    let comparisons = ["beside iperf3", "beside iperf3 -P 4", "beside guc -p 4"];
    let comparisons = comparisons.map(|peer| Versus::new("beside whimbrel", peer)).to_vec();
    let name = "40 ms, 200 Mbit/s, cubic".into();
    done.add(Case { name, bytes: BYTES, files: 1, contenders, comparisons }, options.rounds);
    Ok(())
}

impl Street<'_> {
    /// The stranger's connection, while this runs.
    fn beside(&self, command: Command, to: &Path) -> Outcome<Sample> {
        let carried = || self.lab.direction("src", "dst").counters().delivered_bytes;
        let before = carried();
        let (running, ()) = Daemon::start(command, START_LIMIT, |_| Some(()))?;
        let late = Instant::now() + LIMIT;
        while carried() < before + self.settled {
            if Instant::now() > late {
                return Err(format!("moves nothing: {}", running.log()).into());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        let sample = self.stranger();
        running.kill();
        for left in fs::read_dir(to.parent().ok_or("a path in a directory")?)? {
            let left = left?.path();
            if !left.ends_with("from") {
                fs::remove_file(left)?;
            }
        }
        sample
    }

    /// The time of the stranger's bytes, by the rate at which its server receives.
    fn stranger(&self) -> Outcome<Sample> {
        let program = peers::find("iperf3").ok_or("iperf3 is not installed")?;
        let (address, seconds) = (self.lab.host("dst").addr().to_string(), self.watched.as_secs().to_string());
        let arguments = ["-c", &address, "-p", STRANGER, "-J", "-t", &seconds];
        let run = succeed(Tool::new(&program).args(arguments).on(self.lab.host("src")).limit(LIMIT))?;
        Ok(Sample { wall: received_in(&run, BYTES)?, cpu: run.cpu, trips: None })
    }
}
