//! The servers of a run, ours or the stock one, each behind its relay.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU16, Ordering};

use whimbrel_testkit::metrics;
use whimbrel_testkit::peers::{Daemon, GridftpServer};
use whimbrel_testkit::relay::{Relay, Way};

use crate::stage::{PATIENCE, WHIMBREL};

/// One server with the relay before it.
pub struct Seat {
    pub relay: Relay,
    kind: Kind,
    running: Option<Running>,
}

/// How it is started, again and again.
enum Kind {
    /// Ours, always at the same address.
    Ours { address: SocketAddr, setting: Setting },
    /// `globus-gridftp-server`, at any port.
    Stock,
}

/// What a server of ours finds around it.
#[derive(Clone, Default)]
pub struct Setting {
    /// Its configuration.
    pub config: Option<PathBuf>,
    /// What it reads as the identity of its host's start, and where its disk is mounted.
    pub start: Option<[PathBuf; 2]>,
}

/// Puts a file over the kernel's identity of the host's start, for one program, which sees no other disks of tests: who loses
/// its power is to be used by nobody else.
const STARTED: [&str; 4] = [
    "--mount",
    "sh",
    "-c",
    "mount --bind \"$0\" /proc/sys/kernel/random/boot_id; own=$1; shift
while read -r _ at _; do case $at in \"$own\") ;; *-disk-*) umount -l \"$at\" ;; esac; done < /proc/self/mounts
exec \"$@\"",
];

enum Running {
    /// With the address of its metrics.
    Ours(Daemon, SocketAddr),
    Stock(GridftpServer),
}

impl Seat {
    /// A running server of ours.
    pub fn ours(way: &Way, setting: &Setting) -> Seat {
        // An address of its own: a port that is free for a moment cannot be taken by somebody's outgoing connection.
        static COUNT: AtomicU16 = AtomicU16::new(1);
        let [high, low] = COUNT.fetch_add(1, Ordering::Relaxed).to_be_bytes();
        let ours = 64 + (std::process::id() % 128) as u8;
        let (daemon, metrics) = start(SocketAddr::from(([127, ours, high, low], 0)), setting);
        let log = daemon.log();
        let said = log.lines().find_map(|line| line.strip_prefix("listening on ftp://"));
        let address = said.and_then(|said| said.trim_end_matches('/').parse().ok()).expect("it says where it listens");
        let relay = Relay::before(address, way).expect("a relay");
        let kind = Kind::Ours { address, setting: setting.clone() };
        Seat { relay, kind, running: Some(Running::Ours(daemon, metrics)) }
    }

    /// A running stock server; `None` where there is none.
    pub fn stock(way: &Way) -> Option<Seat> {
        let server = GridftpServer::builder()?.start().expect("the stock server starts");
        let relay = Relay::before(server.addr(), way).expect("a relay");
        Some(Seat { relay, kind: Kind::Stock, running: Some(Running::Stock(server)) })
    }

    /// Starts it if it does not run.
    pub fn raise(&mut self) {
        if self.running.is_some() {
            return;
        }
        self.running = Some(match &self.kind {
            Kind::Ours { address, setting } => {
                let (daemon, metrics) = start(*address, setting);
                Running::Ours(daemon, metrics)
            }
            Kind::Stock => {
                let server = GridftpServer::builder().expect("it was there").start().expect("the stock server starts");
                self.relay.retarget(server.addr());
                Running::Stock(server)
            }
        });
    }

    /// Kills it.
    pub fn kill(&mut self) {
        self.running = None;
    }

    /// Its process, if it runs.
    pub fn id(&self) -> Option<u32> {
        Some(match self.running.as_ref()? {
            Running::Ours(daemon, _) => daemon.id(),
            Running::Stock(server) => server.front().id(),
        })
    }

    /// One of its counters; the stock server has none.
    pub fn value(&self, metric: &str) -> u64 {
        match &self.running {
            Some(Running::Ours(_, address)) => metrics::value(&metrics::page(*address), metric),
            _ => 0,
        }
    }

    /// What it has logged.
    pub fn log(&self) -> Option<String> {
        let (command, log) = match self.running.as_ref()? {
            Running::Ours(daemon, _) => (daemon.command().to_owned(), daemon.log()),
            Running::Stock(server) => (server.front().command().to_owned(), server.front().log()),
        };
        Some(format!("--- {command}\n{log}\n"))
    }
}

fn start(address: SocketAddr, setting: &Setting) -> (Daemon, SocketAddr) {
    let mut command = match &setting.start {
        Some([start, disk]) => {
            let mut command = Command::new("unshare");
            command.args(STARTED).args([start.as_path(), disk, Path::new(WHIMBREL)]);
            command
        }
        None => Command::new(WHIMBREL),
    };
    command.args(["dtn", "--anonymous", "--root", "/", "--listen", &address.to_string(), "--metrics", "127.0.0.1:0"]);
    if let Some(config) = &setting.config {
        command.arg("--config").arg(config);
    }
    Daemon::start(command, PATIENCE, metrics::announced).expect("the server starts")
}
