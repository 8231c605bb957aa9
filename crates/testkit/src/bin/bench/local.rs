//! Loopback: memory to memory, file to file, lots of small files.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use whimbrel_testkit::dataset;
use whimbrel_testkit::peers::Tool;
use whimbrel_testkit::tmpfs::Tmpfs;

use crate::case::{Case, Contender, Sample};
use crate::options::{Options, Section};
use crate::room::Room;
use crate::servers::{Pair, Programs, succeed};
use crate::versus::Versus;
use crate::{Measured, Outcome, checksums};

const GIB: u64 = 1 << 30;
const MIB: u64 = 1 << 20;
/// Size of each of the small files.
const SMALL_BYTES: usize = 10 << 10;

/// Both sides' servers on this host.
struct Sides<'a> {
    programs: &'a Programs,
    own: Pair,
    real: Pair,
}

/// Measures a section other than the wide area.
pub fn measure(options: &Options, programs: &Programs, done: &mut Measured) -> Outcome<()> {
    let sides = Sides { programs, own: Pair::own(programs, None)?, real: Pair::real(None)? };
    match done.section {
        Section::Small => small(options, &sides, done),
        Section::File => file(options, &sides, done),
        _ => memory(options, &sides, done),
    }
}

/// Devices, and a hot file to a device.
fn memory(options: &Options, sides: &Sides<'_>, done: &mut Measured) -> Outcome<()> {
    let (zero, null) = (Path::new("/dev/zero"), Path::new("/dev/null"));
    let bytes = options.size(8 * GIB, GIB);
    let plain = sides.memory_case("/dev/zero to /dev/null".into(), bytes, zero, null, true);
    done.add(plain, options.rounds);
    let bytes = options.size(2 * GIB, 256 * MIB);
    let room = Tmpfs::mount_huge(bytes + 512 * MIB)?;
    let hot = room.path().join("hot");
    dataset::random_file(&hot, bytes, 1)?;
    done.add(sides.memory_case("hot tmpfs file to /dev/null".into(), bytes, &hot, null, false), options.rounds);
    Ok(())
}

/// One file, both ends in memory: moved, and moved and proven.
fn file(options: &Options, sides: &Sides<'_>, done: &mut Measured) -> Outcome<()> {
    let bytes = options.size(4 * GIB, 512 * MIB);
    let room = &Room::for_file(bytes)?;
    let (from, to) = (room.file("from"), room.file("to"));
    dataset::random_file(&from, bytes, 2)?;
    let (from, to) = (from.as_path(), to.as_path());
    let own = |name, flags: &'static [&'static str]| sides.own_copy(name, flags, from, to, move || room.without(to));
    let guc = sides.guc(&["-fast"], from, to, move || room.without(to));
    let contenders = vec![
        own("whimbrel", &["--no-verify"]),
        guc,
        sides.floor(&["--source", text(from), "--sink", text(to)], move || room.without(to)),
    ];
    let comparisons = vec![Versus::new("whimbrel", "guc -fast"), Versus::new("whimbrel", "floor").at_cpu(1.3)];
    done.add(Case { name: "unverified".into(), bytes, files: 1, contenders, comparisons }, options.rounds);
    let contenders = vec![
        own("whimbrel, verified", &["--verify=require"]),
        own("whimbrel, MD5", &["--verify=require", "--checksum=md5"]),
        own("whimbrel, unverified", &["--no-verify"]),
        sides.guc_then_md5(from, to, move || room.without(to)),
    ];
    let (peer, plain) = ("guc -fast, CKSM MD5", "whimbrel, unverified");
    let comparisons = vec![
        Versus::new("whimbrel, verified", peer).as_fast(3.0),
        Versus::new("whimbrel, MD5", peer).as_fast(2.2),
        Versus::new("whimbrel, verified", plain).adding(0.50),
        Versus::new("whimbrel, MD5", plain).adding(0.95),
    ];
    done.add(Case { name: "verified".into(), bytes, files: 1, contenders, comparisons }, options.rounds);
    Ok(())
}

/// A tree of small files.
fn small(options: &Options, sides: &Sides<'_>, done: &mut Measured) -> Outcome<()> {
    let room = &Room::for_small_files()?;
    let files = options.size(10_000, 1000);
    let (from, to) = (room.file("from"), room.file("to"));
    fs::create_dir(&from)?;
    dataset::many_files(&from, files, SMALL_BYTES, 3)?;
    // With a slash at its end, it is the content of a directory for one client, the directory for the other.
    let (from, to) = (from.join(""), to.join(""));
    let (from, to) = (from.as_path(), to.as_path());
    let own = |name, flags: &'static [&'static str]| sides.own_copy(name, flags, from, to, move || room.emptied(to));
    let contenders = vec![
        own("whimbrel", &["-r", "--no-verify"]),
        own("whimbrel, verified", &["-r", "--verify=require"]),
        sides.guc(&["-fast", "-pp", "-cc", "8", "-r"], from, to, move || room.emptied(to)),
        Contender {
            name: "cp -r (no network)",
            command: "cp -r".into(),
            servers: vec![],
            run: Box::new(move || {
                room.emptied(to)?;
                let run = succeed(Tool::new("cp").arg("-r").arg(from).arg(to))?;
                Ok(Sample { wall: run.wall, cpu: run.cpu, trips: None })
            }),
        },
    ];
    let peer = "guc -fast -pp -cc 8 -r";
    let comparisons =
        vec![Versus::new("whimbrel", peer).as_fast(4.0), Versus::new("whimbrel, verified", peer).as_fast(3.0)];
    let bytes = u64::from(files) * SMALL_BYTES as u64;
    let name = format!("{files} files of 10 KiB");
    done.add(Case { name, bytes, files: files.into(), contenders, comparisons }, options.rounds);
    Ok(())
}

impl Sides<'_> {
    /// Us, the peer and the floor, to a device.
    fn memory_case<'a>(&'a self, name: String, bytes: u64, from: &'a Path, to: &'a Path, device: bool) -> Case<'a> {
        let length: &[String] = if device { &[bytes.to_string()] } else { &[] };
        let urls = move |pair: &Pair| [pair.source.url(from), pair.destination.url(to)];
        let own_arguments: Vec<String> = length.iter().map(|bytes| format!("--length={bytes}")).collect();
        let guc_arguments: Vec<String> = length.iter().flat_map(|bytes| ["-len".into(), bytes.clone()]).collect();
        let floor = match device {
            true => self.floor(&["--bytes", &bytes.to_string()], || Ok(())),
            false => self.floor(&["--source", text(from)], || Ok(())),
        };
        let own = Contender {
            name: "whimbrel",
            command: "whimbrel cp --no-verify".into(),
            servers: self.own.ids(),
            run: Box::new(move || {
                self.own.time(self.programs.cp().arg("--no-verify").args(&own_arguments).args(urls(&self.own)))
            }),
        };
        let guc = |name, flags: &'static [&'static str]| {
            let lengths = guc_arguments.clone();
            Contender {
                name,
                command: format!("globus-url-copy {}", flags.join(" ")),
                servers: self.real.ids(),
                run: Box::new(move || {
                    self.real.time(self.programs.guc().args(flags).args(&lengths).args(urls(&self.real)))
                }),
            }
        };
        // More channels than two are slower still.
        let peers = [guc("guc -fast", &["-fast"]), guc("guc -fast -p 2", &["-fast", "-p", "2"])];
        let asked = peers.iter().map(|peer| Versus::new("whimbrel", peer.name).as_fast(1.2).at_cpu(1.0));
        let comparisons = asked.chain([Versus::new("whimbrel", "floor")]).collect();
        let contenders = [own].into_iter().chain(peers).chain([floor]).collect();
        Case { name, bytes, files: 1, contenders, comparisons }
    }

    fn own_copy<'a>(
        &'a self,
        name: &'static str,
        flags: &'static [&'static str],
        from: &'a Path,
        to: &'a Path,
        prepare: impl Fn() -> Outcome<()> + 'a,
    ) -> Contender<'a> {
        // A source that ends with a slash goes into the destination under its own name, as with scp.
        let client = move || self.programs.cp().args(flags);
        copy_between(name, format!("whimbrel cp {}", flags.join(" ")), &self.own, client, (from, to), prepare)
    }

    fn guc<'a>(
        &'a self,
        flags: &'static [&'static str],
        from: &'a Path,
        to: &'a Path,
        prepare: impl Fn() -> Outcome<()> + 'a,
    ) -> Contender<'a> {
        let name = if flags.len() == 1 { "guc -fast" } else { "guc -fast -pp -cc 8 -r" };
        let client = move || self.programs.guc().args(flags);
        copy_between(name, format!("globus-url-copy {}", flags.join(" ")), &self.real, client, (from, to), prepare)
    }

    /// The peers' client proves nothing: checksums at both ends follow the copy.
    fn guc_then_md5<'a>(
        &'a self,
        from: &'a Path,
        to: &'a Path,
        prepare: impl Fn() -> Outcome<()> + 'a,
    ) -> Contender<'a> {
        let run = move || {
            prepare()?;
            let urls = [self.real.source.url(from), self.real.destination.url(to)];
            let client = self.programs.guc().arg("-fast").args(urls);
            self.real.time_with(client, || checksums::md5_at_both_ends(&self.real, from, to))
        };
        let command = "globus-url-copy -fast, then CKSM MD5 at both ends at once".into();
        Contender { name: "guc -fast, CKSM MD5", command, servers: self.real.ids(), run: Box::new(run) }
    }

    fn floor<'a>(&'a self, arguments: &[&str], prepare: impl Fn() -> Outcome<()> + 'a) -> Contender<'a> {
        let arguments: Vec<String> = arguments.iter().map(|argument| (*argument).to_owned()).collect();
        let run = move || {
            prepare()?;
            floor_sample(&self.programs.floor, &arguments)
        };
        let command = "sendfile, recv, pwrite: one stream, no protocol".into();
        Contender { name: "floor", command, servers: vec![], run: Box::new(run) }
    }
}

/// A client that copies from one server of a pair to the other.
fn copy_between<'a>(
    name: &'static str,
    command: String,
    pair: &'a Pair,
    client: impl Fn() -> Tool + 'a,
    (from, to): (&'a Path, &'a Path),
    prepare: impl Fn() -> Outcome<()> + 'a,
) -> Contender<'a> {
    let run = move || {
        prepare()?;
        pair.time(client().args([pair.source.url(from), pair.destination.url(to)]))
    };
    Contender { name, command, servers: pair.ids(), run: Box::new(run) }
}

/// The floor program reports the transfer alone, without the start of its processes.
fn floor_sample(program: &PathBuf, arguments: &[String]) -> Outcome<Sample> {
    let said: serde_json::Value = serde_json::from_slice(&succeed(Tool::new(program).args(arguments))?.stdout)?;
    let seconds = |name: &str| said[name].as_f64().map(Duration::from_secs_f64).ok_or("the floor program's line");
    Ok(Sample { wall: seconds("seconds")?, cpu: seconds("cpu_seconds")?, trips: None })
}

fn text(path: &Path) -> &str {
    path.to_str().expect("the names of temporary files are text")
}
