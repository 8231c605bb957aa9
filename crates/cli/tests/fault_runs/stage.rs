//! The places, files, servers and relays of one run, and what troubles do to them.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::{FileExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use tempfile::TempDir;
use whimbrel_engine::journal::{self, Trusted};
use whimbrel_testkit::cpu;
use whimbrel_testkit::dataset;
use whimbrel_testkit::peers::{Daemon, public_dir, url_path};
use whimbrel_testkit::relay::{Relay, Way};
use whimbrel_testkit::tmpfs::Tmpfs;

use crate::story::{End, Ends, Story, Trouble};

/// The program under test.
pub const WHIMBREL: &str = env!("CARGO_BIN_EXE_whimbrel");
/// Time for anything here to happen on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// One server with the relay before it.
struct Seat {
    relay: Relay,
    address: SocketAddr,
    running: Option<(Daemon, SocketAddr)>,
}

/// The program that copies.
#[derive(Clone, Copy, Default, PartialEq)]
enum Client {
    #[default]
    NotYet,
    Runs(u32),
    Over,
}

/// What can be killed.
#[derive(Default)]
struct Cast {
    source: Vec<Seat>,
    destination: Vec<Seat>,
    client: Client,
}

/// The place of one run.
pub struct Stage {
    story: Story,
    directory: TempDir,
    small: Option<Tmpfs>,
    /// What the relays have in common.
    pub way: Way,
    cast: Mutex<Cast>,
    client_known: Condvar,
    modified: SystemTime,
    rewrites: AtomicU16,
}

impl Stage {
    /// Makes files and servers.
    pub fn set(story: &Story) -> Arc<Stage> {
        let directory = public_dir().expect("a directory");
        for name in ["from", "to"] {
            fs::create_dir(directory.path().join(name)).expect("made");
            open_to_all(&directory.path().join(name));
        }
        // Room for the journal, and for a file that is replaced.
        let had = if story.replaces { OLD.len() as u64 + (64 << 10) } else { 0 };
        let small = story.full.then(|| Tmpfs::mount(story.size / 10 * 9 + had).expect("mounted"));
        // Without the bit that keeps others from renaming.
        small.iter().for_each(|small| open_to_all(small.path()));
        let source = directory.path().join("from/file");
        dataset::random_file(&source, story.size, story.seed + 1).expect("made");
        fs::copy(&source, directory.path().join("original")).expect("copied");
        let modified = fs::metadata(&source).and_then(|meta| meta.modified()).expect("a time");
        let way = Way::new();
        let mut cast = Cast::default();
        cast.source.extend((0..story.sources).map(|_| seat(&way)));
        cast.destination.extend((0..story.destinations).map(|_| seat(&way)));
        let stage = Stage {
            story: story.clone(),
            directory,
            small,
            way,
            cast: Mutex::new(cast),
            client_known: Condvar::new(),
            modified,
            rewrites: AtomicU16::new(0),
        };
        if story.replaces {
            fs::write(stage.copy(), OLD).expect("written");
            open_to_all(&stage.copy());
        }
        Arc::new(stage)
    }

    fn cast(&self) -> MutexGuard<'_, Cast> {
        self.cast.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The source.
    pub fn source(&self) -> PathBuf {
        self.directory.path().join("from/file")
    }

    /// What the source held first.
    pub fn original(&self) -> PathBuf {
        self.directory.path().join("original")
    }

    /// The directory of the copy.
    pub fn into(&self) -> PathBuf {
        self.small.as_ref().map_or_else(|| self.directory.path().join("to"), |small| small.path().to_owned())
    }

    /// The original with the bit inverted that a trouble inverts, once it has.
    pub fn flipped(&self) -> PathBuf {
        self.directory.path().join("flipped")
    }

    /// The copy.
    pub fn copy(&self) -> PathBuf {
        self.into().join("file")
    }

    /// Both places as arguments.
    pub fn places(&self) -> [String; 2] {
        let cast = self.cast();
        let place = |seats: &[Seat], path: &Path| match seats {
            [] => path.to_string_lossy().into_owned(),
            seats => {
                let hosts: Vec<String> = seats.iter().map(|seat| seat.relay.addr().to_string()).collect();
                format!("ftp://{}{}", hosts.join(","), url_path(path))
            }
        };
        [place(&cast.source, &self.source()), place(&cast.destination, &self.copy())]
    }

    /// The client runs, and can be killed; `None`: it has ended.
    pub fn client_runs(&self, id: Option<u32>) {
        self.cast().client = id.map_or(Client::Over, Client::Runs);
        self.client_known.notify_all();
    }

    fn kill_client(&self) {
        let wait = |cast: &mut Cast| cast.client == Client::NotYet;
        let known = self.client_known.wait_while(self.cast(), wait).unwrap_or_else(PoisonError::into_inner);
        if let Client::Runs(id) = known.client {
            signal("KILL", &cpu::tree(&[id]));
        }
    }

    fn seats(cast: &mut Cast, end: End) -> &mut Vec<Seat> {
        match end {
            End::Source => &mut cast.source,
            End::Destination => &mut cast.destination,
        }
    }

    /// Starts every server that does not run.
    pub fn raise(&self) {
        let mut cast = self.cast();
        let Cast { source, destination, .. } = &mut *cast;
        for seat in source.iter_mut().chain(destination).filter(|seat| seat.running.is_none()) {
            seat.running = Some(start(seat.address));
        }
    }

    /// Does what a trouble says.
    pub fn suffer(&self, trouble: &Trouble) {
        self.way.note(format!("{trouble:?}"));
        match trouble {
            Trouble::KillClient => self.kill_client(),
            Trouble::KillServer { end, which, comes_back } => {
                let mut cast = self.cast();
                let seat = &mut Self::seats(&mut cast, *end)[*which];
                drop(seat.running.take());
                if *comes_back {
                    seat.running = Some(start(seat.address));
                }
            }
            Trouble::Cut { lasts, reset } => {
                self.way.close();
                std::thread::sleep(*lasts);
                if *reset {
                    self.way.reset_all();
                }
                self.way.open();
            }
            Trouble::FlipOnTheWay { .. } => {}
            Trouble::FlipStored => self.flip_stored(),
            Trouble::FlipSource { at } => {
                let flipped = self.flipped();
                fs::copy(self.original(), &flipped).expect("copied");
                flip(&flipped, *at);
                flip(&self.source(), *at);
                self.restore_time();
            }
            Trouble::RewriteSource => {
                let rewrites = u64::from(self.rewrites.fetch_add(1, Ordering::Relaxed));
                let other = self.directory.path().join(format!("other-{rewrites}"));
                dataset::random_file(&other, self.story.size, self.story.seed + 2 + rewrites).expect("made");
                // Of the same size and in the same second as a rule: only the fraction of the time tells them apart.
                open(&other).set_modified(self.modified + Duration::from_micros(10 + rewrites)).expect("a time");
                fs::rename(&other, self.source()).expect("renamed");
            }
            Trouble::TruncateSource { to, .. } => open(&self.source()).set_len(*to).expect("cut"),
            Trouble::Trickle { piece, every, bytes } => self.way.trickle(*piece, *every, *bytes),
        }
    }

    fn restore_time(&self) {
        open(&self.source()).set_modified(self.modified).expect("a time");
    }

    /// Ends all troubles: what was broken works, what comes back is back.
    pub fn heal(&self) {
        self.way.heal();
        self.raise();
        for (_, trouble) in &self.story.troubles {
            if matches!(trouble, Trouble::TruncateSource { comes_back: true, .. }) {
                fs::copy(self.original(), self.source()).expect("copied");
                self.restore_time();
            }
        }
        if let Some(small) = &self.small {
            let size = format!("remount,size={}", self.story.size * 4);
            let status = Command::new("mount").args(["-o", &size]).arg(small.path()).status();
            assert!(status.expect("mount runs").success());
        }
    }

    /// While the receiver stands still: damages a byte of a leaf of which more is to come, so that it cannot have been
    /// read back yet.
    fn flip_stored(&self) {
        let ids: Vec<u32> = {
            let cast = self.cast();
            match self.story.ends {
                Ends::FromServer => match cast.client {
                    Client::Runs(id) => vec![id],
                    _ => Vec::new(),
                },
                _ => cast.destination.iter().filter_map(|seat| Some(seat.running.as_ref()?.0.id())).collect(),
            }
        };
        let tree = cpu::tree(&ids);
        signal("STOP", &tree);
        let stopped = Instant::now() + PATIENCE;
        while !tree.iter().all(|&id| stands_still(id)) {
            assert!(Instant::now() < stopped, "the receiver does not stand still");
            std::thread::yield_now();
        }
        if let Some(at) = self.partial_leaf() {
            flip(&self.hidden().expect("it was just read"), at);
            self.way.note(format!("stored byte {at} was damaged"));
        }
        signal("CONT", &tree);
    }

    fn hidden(&self) -> Option<PathBuf> {
        self.hidden_names().into_iter().find(|path| path.to_string_lossy().ends_with("-part"))
    }

    /// Names in the destination's directory besides the file.
    pub fn hidden_names(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.into()).expect("listed");
        entries.map(|entry| entry.expect("an entry").path()).filter(|path| *path != self.copy()).collect()
    }

    /// The first byte of a leaf that has begun to arrive and is not complete.
    fn partial_leaf(&self) -> Option<u64> {
        let (stored, wanted) = (fs::read(self.hidden()?).ok()?, fs::read(self.source()).ok()?);
        let leaf = (self.story.chunk / 8).next_power_of_two().max(4096) as usize;
        let complete = |range: std::ops::Range<usize>| stored.get(range.clone()) == wanted.get(range);
        let mut leaves = (0..wanted.len()).step_by(leaf);
        let partial = |start: &usize| {
            let end = (start + leaf).min(wanted.len());
            complete(*start..start + 1024.min(end - start)) && end - start > 8192 && {
                let tail = end - 1024..end;
                stored.get(tail).is_none_or(|tail| tail.iter().all(|&byte| byte == 0))
            }
        };
        leaves.find(partial).map(|start| start as u64)
    }

    /// What the journal beside the unfinished file says.
    pub fn journal(&self) -> Option<Trusted> {
        let names = self.hidden_names();
        let mut journals = names.iter().filter(|path| path.to_string_lossy().contains("-journal-"));
        Some(journal::decode(&fs::read(journals.next()?).ok()?))
    }

    /// Starts every server anew: none is busy with an earlier run, and none has counted anything.
    pub fn restart(&self) {
        let mut cast = self.cast();
        let Cast { source, destination, .. } = &mut *cast;
        source.iter_mut().chain(destination).for_each(|seat| drop(seat.running.take()));
        drop(cast);
        self.raise();
    }

    /// Payload that the servers of one end have moved since they started.
    pub fn moved(&self) -> u64 {
        match self.story.ends {
            Ends::FromServer => self.sum("sent_bytes_total"),
            _ => self.sum("received_bytes_total"),
        }
    }

    /// Waits until the servers have counted so much, which they do now and then, and not more.
    pub fn wait_for_moved(&self, wanted: u64) {
        let deadline = Instant::now() + PATIENCE / 6;
        while self.moved() != wanted {
            assert!(Instant::now() < deadline, "{} bytes were moved instead of {wanted}", self.moved());
            std::thread::park_timeout(Duration::from_millis(5));
        }
    }

    fn sum(&self, metric: &str) -> u64 {
        let cast = self.cast();
        let running = cast.source.iter().chain(&cast.destination).filter_map(|seat| seat.running.as_ref());
        running.map(|(_, metrics)| value(*metrics, metric)).sum()
    }

    /// What the servers have logged.
    pub fn logs(&self) -> String {
        let cast = self.cast();
        let running = cast.source.iter().chain(&cast.destination).filter_map(|seat| seat.running.as_ref());
        running.map(|(daemon, _)| format!("--- {}\n{}\n", daemon.command(), daemon.log())).collect()
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        self.way.end();
    }
}

/// What is there before a copy that replaces it.
pub const OLD: &[u8] = b"what was there before";

fn seat(way: &Way) -> Seat {
    let (daemon, metrics, address) = start_anywhere();
    Seat { relay: Relay::before(address, way).expect("a relay"), address, running: Some((daemon, metrics)) }
}

fn start_anywhere() -> (Daemon, SocketAddr, SocketAddr) {
    // An address of its own: a port that is free for a moment cannot be taken by somebody's outgoing connection.
    static COUNT: AtomicU16 = AtomicU16::new(1);
    let [high, low] = COUNT.fetch_add(1, Ordering::Relaxed).to_be_bytes();
    let ours = 64 + (std::process::id() % 128) as u8;
    let (daemon, metrics) = start(SocketAddr::from(([127, ours, high, low], 0)));
    let log = daemon.log();
    let said = log.lines().find_map(|line| line.strip_prefix("listening on ftp://"));
    let address = said.and_then(|said| said.trim_end_matches('/').parse().ok()).expect("it says where it listens");
    (daemon, metrics, address)
}

fn start(address: SocketAddr) -> (Daemon, SocketAddr) {
    let mut command = Command::new(WHIMBREL);
    command.args(["dtn", "--anonymous", "--root", "/", "--listen", &address.to_string(), "--metrics", "127.0.0.1:0"]);
    let metrics = |line: &str| line.strip_prefix("metrics at http://")?.strip_suffix("/metrics")?.parse().ok();
    Daemon::start(command, PATIENCE, metrics).expect("the server starts")
}

fn value(metrics: SocketAddr, name: &str) -> u64 {
    let mut stream = TcpStream::connect(metrics).expect("metrics are served");
    stream.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").expect("the request is taken");
    let mut page = String::new();
    stream.read_to_string(&mut page).expect("the page is text");
    let line = page.lines().find_map(|line| line.strip_prefix(&format!("whimbrel_{name} ")));
    line.and_then(|value| value.parse().ok()).unwrap_or_else(|| panic!("no metric {name} in\n{page}"))
}

/// Servers act as somebody else.
fn open_to_all(path: &Path) {
    fs::set_permissions(path, fs::Permissions::from_mode(0o777)).expect("allowed");
}

fn open(path: &Path) -> fs::File {
    fs::File::options().read(true).write(true).open(path).expect("opened")
}

fn flip(path: &Path, at: u64) {
    let file = open(path);
    let mut byte = [0];
    // A file that was cut meanwhile has no such byte.
    if file.read_exact_at(&mut byte, at).is_ok() {
        file.write_all_at(&[byte[0] ^ 1], at).expect("written");
    }
}

fn signal(name: &str, ids: &[u32]) {
    let ids = ids.iter().map(u32::to_string);
    // Those that have ended already need none.
    let _ = Command::new("kill").arg(format!("-{name}")).args(ids).output();
}

/// Whether every thread of a process is stopped, or it is gone.
fn stands_still(id: u32) -> bool {
    let Ok(threads) = fs::read_dir(format!("/proc/{id}/task")) else { return true };
    threads.flatten().all(|thread| {
        let stat = fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
        stat.rsplit_once(") ").is_none_or(|(_, rest)| rest.starts_with(['T', 'Z', 'X']))
    })
}
