//! The emulated wide area: a long path with and without loss, and the round trips of a tiny copy.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use whimbrel_testkit::cpu::Meter;
use whimbrel_testkit::lab::{Fate, Host, Lab, Link};
use whimbrel_testkit::peers::{self, Daemon, Tool};

use crate::case::{Case, Contender, Sample};
use crate::control::{self, Allowed};
use crate::options::Options;
use crate::servers::{Pair, Programs, succeed};
use crate::versus::Versus;
use crate::{Measured, Outcome};

const MIB: u64 = 1 << 20;
/// The GridCopy paper's longest path.
pub const LONG: Duration = Duration::from_millis(75);
pub const RATE_MBIT: u64 = 1000;
/// Loss of a good path, per packet and direction.
const RARE_LOSS: f64 = 1e-4;
/// The path on which round trips are counted.
const FAR: Duration = Duration::from_millis(200);
pub const IPERF3_PORT: &str = "5201";
pub const START_LIMIT: Duration = Duration::from_secs(20);
const RUN_LIMIT: Duration = Duration::from_secs(300);

const GUC: [(&str, &[&str]); 3] =
    [("guc -fast", &["-fast"]), ("guc -fast -p 4", &["-fast", "-p", "4"]), ("guc -fast -p 16", &["-fast", "-p", "16"])];

/// Measures every path, each in a laboratory of its own.
pub fn measure(options: &Options, programs: &Programs, done: &mut Measured) -> Outcome<()> {
    let bytes = options.size(512 * MIB, 64 * MIB);
    each_long_path(|path| throughput(path, bytes, programs, options, done))?;
    let lab = Lab::triangle(Link::new().rtt(FAR))?;
    for (client, where_) in [("client", "200 ms from both servers"), ("src", "beside the source")] {
        tiny(where_, lab.host(client), &lab, programs, options, done)?;
    }
    Ok(())
}

/// A long path that is measured.
pub struct LongPath<'a> {
    pub lab: &'a Lab,
    /// Its conditions in words.
    pub conditions: String,
    /// What data connections may use, where that is not left to the programs.
    controls: Option<[&'static str; 2]>,
}

impl LongPath<'_> {
    /// Does something, of which the source's data connections must have used what they may.
    pub fn proven<T>(&self, work: impl FnOnce() -> Outcome<T>) -> Outcome<T> {
        let Some(allowed) = self.controls else { return work() };
        let (result, seen) = control::watched(self.lab.host("src"), work)?;
        match seen.is_empty() || seen.iter().any(|name| !allowed.contains(&name.as_str())) {
            true => Err(format!("ss -ti has seen {seen:?} where only {allowed:?} were to run").into()),
            false => Ok(result),
        }
    }
}

/// The long path with and without loss, under each congestion control, in a laboratory of its own.
///
/// Where it is cubic, no program without rights can choose anything but cubic and reno.
pub fn each_long_path(mut measure: impl FnMut(&LongPath<'_>) -> Outcome<()>) -> Outcome<()> {
    for loss in [0.0, RARE_LOSS] {
        for control in ["cubic", "bbr"] {
            let lab = Lab::triangle(Link::new().rtt(LONG).rate_mbit(RATE_MBIT).loss(loss))?;
            lab.set_congestion_control_everywhere(control)?;
            let controls = (control == "cubic").then_some(["reno", "cubic"]);
            let _only = controls.map(|names| Allowed::only(&names.join(" "))).transpose()?;
            let loss = if loss == 0.0 { "no loss".into() } else { format!("loss {loss:e}") };
            measure(&LongPath { lab: &lab, conditions: format!("{loss}, {control}"), controls })?;
        }
    }
    Ok(())
}

/// Memory to memory over one path.
fn throughput(
    path: &LongPath<'_>,
    bytes: u64,
    programs: &Programs,
    options: &Options,
    done: &mut Measured,
) -> Outcome<()> {
    let lab = path.lab;
    let hosts = Some((lab.host("src"), lab.host("dst")));
    let (own, real) = (Pair::own(programs, hosts)?, Pair::real(hosts)?);
    let stream_server = iperf3_server(lab.host("dst"), IPERF3_PORT)?;
    let urls = |pair: &Pair| [pair.source.url("/dev/zero"), pair.destination.url("/dev/null")];
    let client = lab.host("client");
    let copy = || {
        let flags = ["--no-verify".into(), format!("--length={bytes}")];
        path.proven(|| own.time(programs.cp().args(flags).args(urls(&own)).on(client)))
    };
    let mut contenders = vec![Contender {
        name: "whimbrel",
        command: "whimbrel cp --no-verify".into(),
        servers: own.ids(),
        run: Box::new(copy),
    }];
    for (name, flags) in GUC {
        let (real, bytes) = (&real, bytes.to_string());
        let run = move || real.time(programs.guc().args(flags).args(["-len", &bytes]).args(urls(real)).on(client));
        let command = format!("globus-url-copy {}", flags.join(" "));
        contenders.push(Contender { name, command, servers: real.ids(), run: Box::new(run) });
    }
    contenders.push(iperf3(lab, &stream_server, "iperf3", "1", bytes)?);
    let peers = GUC.map(|(name, _)| name).into_iter().chain(["iperf3"]);
    let comparisons = peers.map(|peer| Versus::new("whimbrel", peer)).collect();
    let name = format!("75 ms, 1 Gbit/s, {}", path.conditions);
    done.add(Case { name, bytes, files: 1, contenders, comparisons }, options.rounds);
    Ok(())
}

/// A server for one client at a time.
pub fn iperf3_server(host: &Host, port: &str) -> Outcome<Daemon> {
    let mut command = Command::new(peers::find("iperf3").ok_or("iperf3 is not installed")?);
    command.args(["-s", "--forceflush", "-p", port]);
    host.adopt(&mut command);
    let ready = |line: &str| line.starts_with("Server listening").then_some(());
    Ok(Daemon::start(command, START_LIMIT, ready)?.0)
}

/// Streams of iperf3, by its own figures: the transfer alone, without its start.
pub fn iperf3<'a>(
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
        let meter = Meter::start(&[server.id()]);
        let run = succeed(Tool::new(&program).args(arguments).on(lab.host("src")).limit(RUN_LIMIT))?;
        Ok(Sample { wall: received_in(&run, bytes)?, cpu: run.cpu + meter.spent(), trips: None })
    };
    let command = format!("iperf3 -P {streams}, without its set-up");
    Ok(Contender { name, command, servers: vec![server.id()], run: Box::new(run) })
}

/// The time of so many bytes at the rate at which iperf3's server says (`-J`) that it received.
pub fn received_in(run: &peers::Run, bytes: u64) -> Outcome<Duration> {
    let said: serde_json::Value = serde_json::from_slice(&run.stdout)?;
    let rate = said["end"]["sum_received"]["bits_per_second"].as_f64().ok_or("iperf3 reports no rate")?;
    Ok(Duration::from_secs_f64(bytes as f64 * 8.0 / rate.max(1.0)))
}

/// A copy of one byte: round trips are all it costs.
fn tiny(
    where_: &str,
    client: &Host,
    lab: &Lab,
    programs: &Programs,
    options: &Options,
    done: &mut Measured,
) -> Outcome<()> {
    let hosts = Some((lab.host("src"), lab.host("dst")));
    let (own, real) = (Pair::own(programs, hosts)?, Pair::real(hosts)?);
    let room = peers::public_dir()?;
    let (from, to) = (room.path().join("one"), room.path().join("copy"));
    fs::write(&from, b"1")?;
    let (from, to) = (from.as_path(), to.as_path());
    let copy = |pair: &Pair, tool: Tool| traced(lab, pair, tool.args(urls(pair, from, to)).on(client), to);
    let contenders = vec![
        Contender {
            name: "whimbrel",
            command: "whimbrel cp, verified".into(),
            servers: own.ids(),
            run: Box::new(|| copy(&own, programs.cp())),
        },
        Contender {
            name: "guc -fast",
            command: "globus-url-copy -fast, not verified".into(),
            servers: real.ids(),
            run: Box::new(|| copy(&real, programs.guc().arg("-fast"))),
        },
    ];
    let comparisons = vec![Versus::new("whimbrel", "guc -fast")];
    let name = format!("1 byte, 200 ms, client {where_}");
    done.add(Case { name, bytes: 1, files: 1, contenders, comparisons }, options.rounds);
    Ok(())
}

fn urls(pair: &Pair, from: &Path, to: &Path) -> [String; 2] {
    [pair.source.url(from), pair.destination.url(to)]
}

/// Runs a client with every packet recorded, and counts the round trips until its exit.
fn traced(lab: &Lab, pair: &Pair, client: Tool, to: &Path) -> Outcome<Sample> {
    if to.exists() {
        fs::remove_file(to)?;
    }
    lab.start_trace();
    let (start, began) = (lab.now(), Instant::now());
    let sample = pair.time(client)?;
    let exit = start + began.elapsed();
    if fs::read(to)? != b"1" {
        return Err("the byte has not arrived".into());
    }
    let seen = lab.trace().keep(|record| matches!(record.fate, Fate::Arrived(at) if at <= exit));
    Ok(Sample { trips: Some(seen.round_trips(FAR)), ..sample })
}
