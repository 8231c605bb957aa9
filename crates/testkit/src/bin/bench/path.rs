//! A long path as users meet it: one proven file without any option, and many small ones, with logins in clear and over TLS.

use std::fs;
use std::path::Path;
use std::time::Duration;

use tempfile::TempDir;
use whimbrel_testkit::dataset;
use whimbrel_testkit::lab::{Lab, Link};
use whimbrel_testkit::peers::Tool;
use whimbrel_testkit::pki::Pki;
use whimbrel_testkit::tmpfs::Tmpfs;

use crate::case::{Case, Contender, LINK, Sample};
use crate::logins::WITHIN;
use crate::options::Options;
use crate::room::{empty, remove};
use crate::servers::{Pair, Programs, Server, open_over_tls};
use crate::versus::Versus;
use crate::wan::{IPERF3_PORT, LONG, LongPath, RATE_MBIT, each_long_path, iperf3, iperf3_server};
use crate::{Measured, Outcome};

const MIB: u64 = 1 << 20;

/// Names of the contenders that give the best of the network itself.
const STREAMS: [(&str, &str); 3] = [("iperf3 -P 1", "1"), ("iperf3 -P 4", "4"), ("iperf3 -P 8", "8")];

/// Our servers with logins over TLS.
const SAFE: &str = "whimbrel, TLS login";

/// Our servers on hosts of a laboratory, with logins over TLS.
struct Safe {
    pair: Pair,
    /// What our client knows of them.
    settings: TempDir,
    _authority: Pki,
}

impl Safe {
    fn start(programs: &Programs, lab: &Lab) -> Outcome<Self> {
        let (authority, settings) = (Pki::new()?, tempfile::tempdir()?);
        let config = settings.path().join("dtn.toml");
        fs::write(&config, open_over_tls(&authority.host(&["dtn.example.org"])?))?;
        let server = |name| Server::configured(programs, Some(lab.host(name)), &config);
        Ok(Self { pair: Pair { source: server("src")?, destination: server("dst")? }, settings, _authority: authority })
    }

    /// Our client, which has met them.
    fn cp(&self, programs: &Programs, flags: &[&str], from: &Path, to: &Path) -> Tool {
        let urls = [self.pair.source.url(from), self.pair.destination.url(to)];
        let cp = programs.cp().env("XDG_CONFIG_HOME", self.settings.path()).args(flags);
        cp.args(urls.map(|url| url.replacen("ftp", "whimbrel", 1)))
    }
}

/// Measures every path, each in a laboratory of its own.
pub fn measure(options: &Options, programs: &Programs, done: &mut Measured) -> Outcome<()> {
    each_long_path(|path| one_file(path, programs, options, done))?;
    let lab = Lab::triangle(Link::new().rtt(LONG).rate_mbit(RATE_MBIT))?;
    small_files(&lab, programs, options, done)
}

/// One file, proven, with no options; the link's own time and iperf3 beside it.
fn one_file(path: &LongPath<'_>, programs: &Programs, options: &Options, done: &mut Measured) -> Outcome<()> {
    let (lab, name) = (path.lab, format!("proven file, {}", path.conditions));
    let bytes = options.size(1024 * MIB, 128 * MIB);
    let room = Tmpfs::mount_huge(bytes * 2 + 512 * MIB)?;
    let (from, to) = (room.path().join("from"), room.path().join("to"));
    dataset::random_file(&from, bytes, 7)?;
    let (from, to) = (from.as_path(), to.as_path());
    let own = Pair::own(programs, Some((lab.host("src"), lab.host("dst"))))?;
    let safe = Safe::start(programs, lab)?;
    let server = iperf3_server(lab.host("dst"), IPERF3_PORT)?;
    let copy = || {
        remove(to)?;
        let urls = [own.source.url(from), own.destination.url(to)];
        path.proven(|| own.time(programs.cp().arg("--verify=require").args(urls).on(lab.host("client"))))
    };
    let copy_safely = || {
        remove(to)?;
        let client = safe.cp(programs, &["--verify=require"], from, to).on(lab.host("client"));
        path.proven(|| safe.pair.time(client))
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
            name: SAFE,
            command: "the same with logins over TLS".into(),
            servers: safe.pair.ids(),
            run: Box::new(copy_safely),
        },
        Contender {
            name: LINK,
            command: "bytes by the link's rate: no headers, no round trip".into(),
            servers: vec![],
            run: Box::new(move || Ok(Sample { wall: link, ..Sample::default() })),
        },
    ];
    for (name, streams) in STREAMS {
        contenders.push(iperf3(lab, &server, name, streams, bytes)?);
    }
    let streams = STREAMS.map(|(name, _)| Versus::new("whimbrel", name).as_fast(0.95));
    let safely = [Versus::new(SAFE, LINK).as_fast(0.90 * WITHIN), Versus::new(SAFE, "whimbrel").as_fast(WITHIN)];
    let link = [Versus::new("whimbrel", LINK).as_fast(0.90)];
    let comparisons = link.into_iter().chain(streams).chain(safely).collect();
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
    let (own, real, safe) = (Pair::own(programs, hosts)?, Pair::real(hosts)?, Safe::start(programs, lab)?);
    let urls = |pair: &Pair| [pair.source.url(from), pair.destination.url(to)];
    let client = lab.host("client");
    let ours = |flag: &'static str| {
        let (own, urls) = (&own, &urls);
        move || {
            empty(to)?;
            own.time(programs.cp().args(["-r", flag]).args(urls(own)).on(client))
        }
    };
    let safely = || {
        empty(to)?;
        safe.pair.time(safe.cp(programs, &["-r", "--verify=require"], from, to).on(client))
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
        contender(SAFE, "whimbrel cp -r --verify=require", safe.pair.ids(), Box::new(safely)),
        contender(peer, "globus-url-copy -fast -pp -cc 8 -r", real.ids(), Box::new(theirs)),
    ];
    let mut comparisons = ["whimbrel", "whimbrel, verified"].map(|ours| Versus::new(ours, peer).as_fast(5.0)).to_vec();
    comparisons.push(Versus::new(SAFE, peer).as_fast(5.0 * WITHIN));
    // Some round trips of logins weigh as much as a thousand of these files: that is shown, and the figure has to hold.
    comparisons.push(Versus::new(SAFE, "whimbrel, verified"));
    let bytes = u64::from(files) * (10 << 10);
    let name = format!("{files} files of 10 KiB, no loss, cubic");
    done.add(Case { name, bytes, files: files.into(), contenders, comparisons }, options.rounds);
    Ok(())
}
