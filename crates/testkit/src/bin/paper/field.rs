//! The laboratory: a client and three facilities of data transfer nodes with slow storage, and the files.

use std::collections::BTreeMap;
use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use whimbrel_testkit::dataset::{self, Compare};
use whimbrel_testkit::lab::{Host, Lab, Link};
use whimbrel_testkit::measure::Copies;
use whimbrel_testkit::peers::{Daemon, Tool, url_path};
use whimbrel_testkit::tmpfs::Tmpfs;

use crate::Outcome;
use crate::scale::{CLIENT_ROUND_TRIP, LINK_MBIT, READ_BY_WRITE, ROUND_TRIPS};

/// Time until a server must be ready.
const START_LIMIT: Duration = Duration::from_secs(20);
/// Time that one copy may take; slower is a failure to measure.
const RUN_LIMIT: Duration = Duration::from_secs(180);

/// The storage of one data transfer node.
#[derive(Debug, Clone, Copy)]
pub struct Storage {
    /// Bytes per second stored.
    pub write: u64,
    /// Whether reading back takes time.
    pub proof: bool,
}

/// An endpoint: data transfer nodes that share their files.
pub struct Site {
    addresses: Vec<SocketAddr>,
    _running: Vec<Daemon>,
}

impl Site {
    /// So many nodes with storage of their own rate.
    pub fn start(programs: &Copies, host: &Host, nodes: u64, storage: Storage) -> Outcome<Site> {
        let mut site = Site { addresses: Vec::new(), _running: Vec::new() };
        for _ in 0..nodes {
            let mut command = Command::new(programs.path("slow-dtn"));
            let read = (storage.write as f64 * READ_BY_WRITE) as u64;
            command.arg(format!("{}:0", host.addr()));
            command.env("SLOW_WRITE", storage.write.to_string()).env("SLOW_READ", read.to_string());
            if !storage.proof {
                command.env("SLOW_PROOF", "free");
            }
            host.adopt(&mut command);
            let ready = |line: &str| line.strip_prefix("listening on ftp://")?.trim_end_matches('/').parse().ok();
            let (daemon, address) = Daemon::start(command, START_LIMIT, ready)?;
            site.addresses.push(address);
            site._running.push(daemon);
        }
        Ok(site)
    }

    /// The URL of an absolute path on its first `nodes` nodes.
    fn url(&self, nodes: usize, path: &Path) -> String {
        let names: Vec<String> = self.addresses.iter().take(nodes).map(SocketAddr::to_string).collect();
        format!("ftp://{}{}", names.join(","), url_path(path))
    }
}

/// Client, facilities and files.
pub struct Field {
    pub programs: Copies,
    pub lab: Lab,
    room: Tmpfs,
    sets: BTreeMap<u32, PathBuf>,
}

/// One copy to be done.
pub struct Copy<'a> {
    pub from: &'a Site,
    pub to: &'a Site,
    /// Nodes of each that are used, one session each.
    pub nodes: u64,
    /// Number of files.
    pub files: u32,
    /// Options of `cp`.
    pub flags: Vec<String>,
}

impl Field {
    /// The network and an empty memory file system for `bytes`.
    pub fn new(bytes: u64) -> Outcome<Field> {
        let link = |rtt| Link::new().rtt(rtt).rate_mbit(LINK_MBIT);
        let mut builder = Lab::builder().host("client").host("A").host("N").host("O");
        for (a, b, rtt) in ROUND_TRIPS {
            builder = builder.link(a, b, link(rtt));
        }
        let lab = builder.mesh(link(CLIENT_ROUND_TRIP)).build()?;
        lab.set_congestion_control_everywhere("cubic")?;
        Ok(Field {
            programs: Copies::of_beside(&["whimbrel", "slow-dtn"])?,
            lab,
            room: Tmpfs::mount(bytes * 2 + (64 << 20))?,
            sets: BTreeMap::new(),
        })
    }

    /// Makes the data set of so many files, `bytes` each.
    pub fn add_files(&mut self, files: u32, bytes: u64) -> Outcome<()> {
        let directory = self.room.path().join(format!("from-{files}"));
        fs::create_dir(&directory)?;
        for number in 0..files {
            dataset::random_file(&directory.join(format!("file-{number:03}")), bytes, u64::from(number) + 1)?;
        }
        self.sets.insert(files, directory);
        Ok(())
    }

    /// Copies and tells the seconds from the start of the command to its end; `check` compares every byte then.
    pub fn copy(&self, copy: &Copy<'_>, check: bool) -> Outcome<f64> {
        let from = self.sets.get(&copy.files).ok_or("these files were not made")?;
        let directory = from.file_name().ok_or("a data set has a name")?;
        let to = self.room.path().join("to");
        fs::create_dir(&to)?;
        fs::set_permissions(&to, fs::Permissions::from_mode(0o777))?;
        let nodes = copy.nodes as usize;
        let urls = [copy.from.url(nodes, &from.join("")), copy.to.url(nodes, &to.join(""))];
        let tool = Tool::new(self.programs.path("whimbrel")).args(["cp", "--quiet", "-r", "--congestion", "cubic"]);
        let tool = tool.args(["--concurrency", &copy.nodes.to_string()]).args(&copy.flags).args(urls);
        let run = tool.limit(RUN_LIMIT).on(self.lab.host("client")).run()?;
        let same =
            if check && run.success() { Some(Compare::contents().run(from, &to.join(directory))?) } else { None };
        fs::remove_dir_all(&to)?;
        match same {
            _ if !run.success() => Err(run.to_string().into()),
            Some(differences) if !differences.is_empty() => Err(format!("the copy is wrong: {differences}").into()),
            _ => Ok(run.wall.as_secs_f64()),
        }
    }
}
