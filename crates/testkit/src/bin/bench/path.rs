//! A long path as users meet it: one proven file without any option, and many small ones.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use whimbrel_testkit::dataset;
use whimbrel_testkit::lab::{Lab, Link};
use whimbrel_testkit::peers::{self, Daemon, Tool};
use whimbrel_testkit::tmpfs::Tmpfs;

use crate::case::{Case, Contender, Sample};
use crate::options::Options;
use crate::servers::{Pair, Programs, succeed};
use crate::{Measured, Outcome};

const MIB: u64 = 1 << 20;
const LONG: Duration = Duration::from_millis(75);
const RATE_MBIT: u64 = 1000;
const RARE_LOSS: f64 = 1e-4;
const IPERF3_PORT: &str = "5201";
const START_LIMIT: Duration = Duration::from_secs(20);
const RUN_LIMIT: Duration = Duration::from_secs(300);

/// Names of the contenders that give the best of the network itself.
const STREAMS: [(&str, &str); 3] = [("iperf3 -P 1", "1"), ("iperf3 -P 4", "4"), ("iperf3 -P 8", "8")];

/// Measures every path, each in a laboratory of its own.
pub fn measure(options: &Options, programs: &Programs, done: &mut Measured) -> Outcome<()> {
    for loss in [0.0, RARE_LOSS] {
        for control in ["cubic", "bbr"] {
            let lab = Lab::triangle(Link::new().rtt(LONG).rate_mbit(RATE_MBIT).loss(loss))?;
            lab.set_congestion_control_everywhere(control)?;
            let loss = if loss == 0.0 { "no loss".into() } else { format!("loss {loss:e}") };
            one_file(format!("proven file, {loss}, {control}"), &lab, programs, options, done)?;
        }
    }
    let lab = Lab::triangle(Link::new().rtt(LONG).rate_mbit(RATE_MBIT))?;
    small_files(&lab, programs, options, done)
}

/// One file, proven, with no options; the link's own time and iperf3 beside it.
fn one_file(name: String, lab: &Lab, programs: &Programs, options: &Options, done: &mut Measured) -> Outcome<()> {
    let bytes = options.size(1024 * MIB, 128 * MIB);
    let room = Tmpfs::mount_huge(bytes * 2 + 512 * MIB)?;
    let (from, to) = (room.path().join("from"), room.path().join("to"));
    dataset::random_file(&from, bytes, 7)?;
    let (from, to) = (from.as_path(), to.as_path());
    let own = Pair::own(programs, Some((lab.host("src"), lab.host("dst"))))?;
    let server = iperf3_server(lab)?;
    let copy = || {
        remove(to)?;
        let urls = [own.source.url(from), own.destination.url(to)];
        own.time(programs.cp().arg("--verify=require").args(urls).on(lab.host("client")))
    };
    let link = Duration::from_secs_f64(bytes as f64 * 8.0 / (RATE_MBIT as f64 * 1e6));
    let mut contenders = vec![
        Contender {
            name: "whimbrel",
            command: "whimbrel cp, from process start to proven".into(),
            servers: own.ids(),
            run: Box::new(copy),
        },
        Contender {
            name: "link",
            command: "bytes by the link's rate: no headers, no round trip".into(),
            servers: vec![],
            run: Box::new(move || Ok(Sample { wall: link, ..Sample::default() })),
        },
    ];
    for (name, streams) in STREAMS {
        contenders.push(iperf3(lab, &server, name, streams, bytes)?);
    }
    let comparisons =
        ["link"].into_iter().chain(STREAMS.map(|(name, _)| name)).map(|peer| ("whimbrel", peer)).collect();
    done.add(Case { name, bytes, files: 1, contenders, comparisons }, options.rounds);
    Ok(())
}

/// A tree of small files over the same path.
fn small_files(lab: &Lab, programs: &Programs, options: &Options, done: &mut Measured) -> Outcome<()> {
    let room = Tmpfs::mount(1024 * MIB)?;
    let files = options.size(10_000, 500);
    let (from, to) = (room.path().join("from"), room.path().join("to"));
    fs::create_dir(&from)?;
    dataset::many_files(&from, files, 10 << 10, 3)?;
    let (from, to) = (from.join(""), to.join(""));
    let (from, to) = (from.as_path(), to.as_path());
    let hosts = Some((lab.host("src"), lab.host("dst")));
    let (own, real) = (Pair::own(programs, hosts)?, Pair::real(hosts)?);
    let urls = |pair: &Pair| [pair.source.url(from), pair.destination.url(to)];
    let client = lab.host("client");
    let ours = |flag: &'static str| {
        let (own, urls) = (&own, &urls);
        move || {
            empty(to)?;
            own.time(programs.cp().args(["-r", flag]).args(urls(own)).on(client))
        }
    };
    let theirs = || {
        empty(to)?;
        real.time(programs.guc().args(["-fast", "-pp", "-cc", "8", "-r"]).args(urls(&real)).on(client))
    };
    let contender = |name, command: &str, servers, run| Contender { name, command: command.into(), servers, run };
    let peer = "guc -fast -pp -cc 8 -r";
    let contenders = vec![
        contender("whimbrel", "whimbrel cp -r --no-verify", own.ids(), Box::new(ours("--no-verify"))),
        contender(
            "whimbrel, verified",
            "whimbrel cp -r --verify=require",
            own.ids(),
            Box::new(ours("--verify=require")),
        ),
        contender(peer, "globus-url-copy -fast -pp -cc 8 -r", real.ids(), Box::new(theirs)),
    ];
    let comparisons = vec![("whimbrel", peer), ("whimbrel, verified", peer)];
    let bytes = u64::from(files) * (10 << 10);
    let name = format!("{files} files of 10 KiB, no loss, cubic");
    done.add(Case { name, bytes, files: files.into(), contenders, comparisons }, options.rounds);
    Ok(())
}

fn iperf3_server(lab: &Lab) -> Outcome<Daemon> {
    let host = lab.host("dst");
    let mut command = Command::new(peers::find("iperf3").ok_or("iperf3 is not installed")?);
    command.args(["-s", "--forceflush", "-p", IPERF3_PORT]);
    host.adopt(&mut command);
    let ready = |line: &str| line.starts_with("Server listening").then_some(());
    Ok(Daemon::start(command, START_LIMIT, ready)?.0)
}

/// iperf3 by its own figures: the transfer alone, without its start.
fn iperf3<'a>(
    lab: &'a Lab,
    server: &'a Daemon,
    name: &'static str,
    streams: &'static str,
    bytes: u64,
) -> Outcome<Contender<'a>> {
    let program = peers::find("iperf3").ok_or("iperf3 is not installed")?;
    let run = move || {
        let address = lab.host("dst").addr().to_string();
        let arguments = ["-c", &address, "-p", IPERF3_PORT, "-J", "-P", streams, "-n", &bytes.to_string()];
        let run = succeed(Tool::new(&program).args(arguments).on(lab.host("src")).limit(RUN_LIMIT))?;
        let said: serde_json::Value = serde_json::from_slice(&run.stdout)?;
        let rate = said["end"]["sum_received"]["bits_per_second"].as_f64().ok_or("iperf3 reports no rate")?;
        Ok(Sample { wall: Duration::from_secs_f64(bytes as f64 * 8.0 / rate), cpu: run.cpu, trips: None })
    };
    let command = format!("iperf3 -P {streams} -n, without its set-up");
    Ok(Contender { name, command, servers: vec![server.id()], run: Box::new(run) })
}

fn remove(path: &Path) -> Outcome<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error.into()),
        _ => Ok(()),
    }
}

/// Makes an empty directory that `nobody` may write to.
fn empty(path: &Path) -> Outcome<()> {
    if path.exists() {
        fs::remove_dir_all(path)?;
    }
    fs::create_dir(path)?;
    Ok(fs::set_permissions(path, fs::Permissions::from_mode(0o777))?)
}
