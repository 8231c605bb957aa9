//! The places, files, servers and relays of one run, and what troubles do to them.

use std::collections::{HashMap, HashSet, VecDeque};
use std::fs;
use std::ops::Range;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use tempfile::TempDir;
use whimbrel_dtn::client::temporary::Part;
use whimbrel_engine::journal::{self, Trusted};
use whimbrel_testkit::cpu;
use whimbrel_testkit::dataset;
use whimbrel_testkit::peers::{public_dir, url_path};
use whimbrel_testkit::relay::Way;
use whimbrel_testkit::rng::Rng;
use whimbrel_testkit::stored::{Disk, flip_bit};
use whimbrel_testkit::tmpfs::Tmpfs;

use crate::seat::{Seat, Setting};
use crate::story::{End, Ends, Story, Trouble};

/// Looks for a stored byte that may be damaged.
const LOOKS: u32 = 50;

/// Bytes of the destination's disk.
const DISK: u64 = 128 << 20;

/// The program under test.
pub const WHIMBREL: &str = env!("CARGO_BIN_EXE_whimbrel");
/// Time for anything here to happen on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(60);

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
    /// Where copies lie of which a loss of power is to leave no more than was synced.
    disk: Option<Disk>,
    /// What the relays have in common.
    pub way: Way,
    cast: Mutex<Cast>,
    client_known: Condvar,
    modified: SystemTime,
    rewrites: AtomicU16,
    versions: AtomicU16,
    /// How often the destination's host was started anew.
    starts: AtomicU16,
    /// The other files of the tree, from its root.
    around: Vec<PathBuf>,
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
        let disk = story.loses_power().then(|| Disk::mount(DISK)).flatten();
        // Without the bit that keeps others from renaming.
        small.iter().for_each(|small| open_to_all(small.path()));
        disk.iter().for_each(|disk| open_to_all(disk.path()));
        let from = directory.path().join("from");
        if story.tree.is_some() {
            fs::create_dir(from.join("tree")).expect("made");
        }
        let source = from.join(file_name(story));
        dataset::random_file(&source, story.size, story.seed + 1).expect("made");
        let around = surroundings(story, &from.join("tree"));
        fs::copy(&source, directory.path().join("original")).expect("copied");
        let modified = fs::metadata(&source).and_then(|meta| meta.modified()).expect("a time");
        let way = Way::new();
        let mut cast = Cast::default();
        let config = story.stall.map(|seconds| {
            let path = directory.path().join("dtn.toml");
            fs::write(&path, format!("stall_timeout = {seconds}\n")).expect("written");
            path
        });
        let start = disk.as_ref().map(|disk| [start_of_host(directory.path()), disk.path().to_owned()]);
        start.iter().for_each(|[start, _]| fs::write(start, "the first").expect("written"));
        let seat = |end| match story.stock {
            Some(stock) if stock == end => Seat::stock(&way),
            _ => {
                let start = start.clone().filter(|_| end == End::Destination);
                Some(Seat::ours(&way, &Setting { config: config.clone(), start }))
            }
        };
        cast.source.extend((0..story.sources).filter_map(|_| seat(End::Source)));
        cast.destination.extend((0..story.destinations).filter_map(|_| seat(End::Destination)));
        let stage = Stage {
            story: story.clone(),
            directory,
            small,
            disk,
            way,
            cast: Mutex::new(cast),
            client_known: Condvar::new(),
            modified,
            rewrites: AtomicU16::new(0),
            versions: AtomicU16::new(0),
            starts: AtomicU16::new(0),
            around,
        };
        if story.tree.is_some() && story.replaces {
            fs::create_dir(stage.copies().join("tree")).expect("made");
            open_to_all(&stage.copies().join("tree"));
        }
        if story.replaces {
            fs::write(stage.copy(), OLD).expect("written");
            open_to_all(&stage.copy());
        }
        stage.disk.iter().for_each(|disk| disk.settle().expect("synced"));
        Arc::new(stage)
    }

    fn cast(&self) -> MutexGuard<'_, Cast> {
        self.cast.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The source.
    pub fn source(&self) -> PathBuf {
        self.directory.path().join("from").join(file_name(&self.story))
    }

    /// The other files: where they are, and where their copies are to be.
    pub fn around(&self) -> impl Iterator<Item = (PathBuf, PathBuf)> + '_ {
        let (from, into) = (self.directory.path().join("from/tree"), self.copies().join("tree"));
        self.around.iter().map(move |name| (from.join(name), into.join(name)))
    }

    /// What the source held first.
    pub fn original(&self) -> PathBuf {
        self.directory.path().join("original")
    }

    /// The directory that is copied into.
    pub fn copies(&self) -> PathBuf {
        let elsewhere = self.small.as_ref().map(Tmpfs::path).or(self.disk.as_ref().map(Disk::path));
        elsewhere.map_or_else(|| self.directory.path().join("to"), Path::to_owned)
    }

    /// All that the source has been; of a bit that flips without a trace nobody can know.
    pub fn versions(&self) -> Vec<PathBuf> {
        let count = self.versions.load(Ordering::Relaxed);
        let earlier = (0..count).map(|number| self.directory.path().join(format!("version-{number}")));
        earlier.chain([self.original(), self.source()]).collect()
    }

    /// Notes what the source is now.
    fn note_version(&self) {
        let number = self.versions.fetch_add(1, Ordering::Relaxed);
        fs::copy(self.source(), self.directory.path().join(format!("version-{number}"))).expect("copied");
    }

    /// The copy.
    pub fn copy(&self) -> PathBuf {
        self.copies().join(file_name(&self.story))
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
        match self.story.tree {
            None => [place(&cast.source, &self.source()), place(&cast.destination, &self.copy())],
            // Into a directory that is there, so that the next run means the same.
            Some(_) => [
                place(&cast.source, &self.directory.path().join("from/tree")),
                place(&cast.destination, &self.copies()) + "/",
            ],
        }
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
        source.iter_mut().chain(destination).for_each(Seat::raise);
    }

    /// Does what a trouble says.
    pub fn suffer(&self, trouble: &Trouble) {
        self.way.note(format!("{trouble:?}"));
        match trouble {
            Trouble::KillClient => self.kill_client(),
            Trouble::KillServer { end, which, comes_back } => {
                let mut cast = self.cast();
                let seat = &mut Self::seats(&mut cast, *end)[*which];
                seat.kill();
                if *comes_back {
                    seat.raise();
                }
            }
            Trouble::PowerLoss { comes_back } => self.lose_power(*comes_back),
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
                let time = fs::metadata(self.source()).and_then(|meta| meta.modified()).expect("a time");
                // A file that was cut meanwhile has no such byte.
                flip_bit(&self.source(), *at).expect("flipped");
                open(&self.source()).set_modified(time).expect("a time");
                self.note_version();
            }
            Trouble::RewriteSource => {
                let rewrites = u64::from(self.rewrites.fetch_add(1, Ordering::Relaxed));
                let other = self.directory.path().join(format!("other-{rewrites}"));
                dataset::random_file(&other, self.story.size, self.story.seed + 2 + rewrites).expect("made");
                // Of the same size and in the same second as a rule: only the fraction of the time tells them apart.
                // The stock server tells no fractions.
                let tick = if self.story.stock == Some(End::Source) { 2_000_000 } else { 1 };
                let later = Duration::from_micros(10 + (rewrites + 1) * tick);
                open(&other).set_modified(self.modified + later).expect("a time");
                fs::rename(&other, self.source()).expect("renamed");
                self.note_version();
            }
            Trouble::TruncateSource { to, .. } => open(&self.source()).set_len(*to).expect("cut"),
            Trouble::Trickle { piece, every, bytes } => self.way.trickle(*piece, *every, *bytes),
        }
    }

    /// Ends the destination's servers and with them what they had not synced. Where no file system of its own could be had, they
    /// are only killed.
    pub fn lose_power(&self, comes_back: bool) {
        let mut cast = self.cast();
        let ids: Vec<u32> = cast.destination.iter().filter_map(Seat::id).collect();
        // Nobody may see storage fail before the end.
        stop(&ids);
        self.disk.iter().for_each(|disk| disk.cut().expect("the file system is cut off"));
        cast.destination.iter_mut().for_each(Seat::kill);
        self.disk.iter().for_each(|disk| disk.come_back(PATIENCE).expect("mounted again"));
        let starts = self.starts.fetch_add(1, Ordering::Relaxed);
        fs::write(start_of_host(self.directory.path()), format!("start {starts}")).expect("written");
        if comes_back {
            cast.destination.iter_mut().for_each(Seat::raise);
        }
    }

    /// Ends all troubles: what was broken works, what comes back is back.
    pub fn heal(&self) {
        self.way.heal();
        self.raise();
        for (_, trouble) in &self.story.troubles {
            if matches!(trouble, Trouble::TruncateSource { comes_back: true, .. }) {
                fs::copy(self.original(), self.source()).expect("copied");
                open(&self.source()).set_modified(self.modified).expect("a time");
            }
        }
        if let Some(small) = &self.small {
            let size = format!("remount,size={}", self.story.size * 4);
            let status = Command::new("mount").args(["-o", &size]).arg(small.path()).status();
            assert!(status.expect("mount runs").success());
        }
    }

    /// While the receiver stands still: damages a byte of a part of which more is to come, so that nothing of it can
    /// have been read back yet.
    fn flip_stored(&self) {
        // On a busy machine what has passed the relay takes a while to be stored.
        for _ in 0..LOOKS {
            if self.flip_while_still() || self.hidden().is_none() {
                break;
            }
            std::thread::park_timeout(Duration::from_millis(2));
        }
    }

    fn flip_while_still(&self) -> bool {
        // Held to the end: no other trouble lets the receiver go on meanwhile, or starts one that nobody stops.
        let cast = self.cast();
        let receiver: Vec<u32> = match (self.story.ends, cast.client) {
            (Ends::FromServer, Client::Runs(id)) => vec![id],
            (Ends::FromServer, _) => Vec::new(),
            _ => cast.destination.iter().filter_map(Seat::id).collect(),
        };
        let stopped = stop(&receiver);
        let found = self.hidden().zip(self.unread_leaf());
        if let Some((hidden, at)) = &found {
            flip_bit(hidden, *at).expect("flipped");
            self.way.note(format!("stored byte {at} was damaged"));
        }
        signal("CONT", &stopped);
        found.is_some()
    }

    /// The unfinished file: with our servers, or with the stock one.
    pub fn hidden(&self) -> Option<PathBuf> {
        let by_run = |name: &str| whimbrel_dtn::client::temporary::Name::parse(name.as_bytes());
        let elsewhere = |name: &str| by_run(name).is_some_and(|name| name.part == Part::Bytes && name.stem == b".file");
        let unfinished = |name: &str| name == ".file.whimbrel-part" || elsewhere(name);
        self.hidden_names()
            .into_iter()
            .find(|path| path.file_name().and_then(|name| name.to_str()).is_some_and(unfinished))
    }

    /// Hidden files among the copies.
    pub fn hidden_names(&self) -> Vec<PathBuf> {
        let mut directories = VecDeque::from([self.copies()]);
        let mut found = Vec::new();
        while let Some(directory) = directories.pop_front() {
            // Others rename and remove meanwhile.
            for path in fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.path()) {
                if path.is_dir() {
                    directories.push_back(path);
                } else if path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b".")) {
                    found.push(path);
                }
            }
        }
        found
    }

    /// Bytes of a leaf.
    pub fn leaf(&self) -> u64 {
        (self.story.chunk / 8).next_power_of_two().max(4096)
    }

    /// The first byte of a leaf that is stored and belongs only to parts of which something is still missing; of a
    /// source that changes nobody can say.
    fn unread_leaf(&self) -> Option<u64> {
        if self.story.changes_source() {
            return None;
        }
        let (stored, wanted) = (fs::read(self.hidden()?).ok()?, fs::read(self.source()).ok()?);
        let (leaf, size) = (self.leaf(), self.story.size);
        let end = |start: u64| (start + leaf).min(size);
        let is_there = |start: u64| {
            let range = start as usize..end(start) as usize;
            stored.get(range.clone()) == Some(&wanted[range])
        };
        // What differs may have been damaged and read back; only what nobody has written is certain: zeros.
        let is_missing = |start: u64| {
            let tail = (end(start) - 1024.min(end(start) - start)) as usize..end(start) as usize;
            stored.get(tail).is_none_or(|tail| tail.iter().all(|&byte| byte == 0))
        };
        let comes = |part: &Range<u64>| part.clone().step_by(leaf as usize).any(is_missing);
        let parts = parts(&self.way.said());
        let unread = |start: u64| {
            let mut of = parts.iter().filter(|part| part.contains(&start)).peekable();
            of.peek().is_some() && of.all(comes)
        };
        (0..size).step_by(leaf as usize).find(|&start| is_there(start) && unread(start))
    }

    /// What the journal beside the unfinished file says.
    pub fn journal(&self) -> Option<Trusted> {
        let names = self.hidden_names();
        let mut journals = names.iter().filter(|path| is_journal(path));
        Some(journal::decode(&fs::read(journals.next()?).ok()?))
    }

    /// Starts every server anew: none is busy with an earlier run, and none has counted anything.
    pub fn restart(&self) {
        let mut cast = self.cast();
        let Cast { source, destination, .. } = &mut *cast;
        source.iter_mut().chain(destination).for_each(Seat::kill);
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
        cast.source.iter().chain(&cast.destination).map(|seat| seat.value(metric)).sum()
    }

    /// Whether anybody has logged in at the destination's servers since they were started.
    pub fn is_met(&self) -> bool {
        self.cast().destination.iter().filter_map(Seat::log).any(|log| log.contains("logged in"))
    }

    /// What the servers have logged.
    pub fn logs(&self) -> String {
        let cast = self.cast();
        cast.source.iter().chain(&cast.destination).filter_map(Seat::log).collect()
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        self.way.end();
    }
}

/// What is there before a copy that replaces it.
pub const OLD: &[u8] = b"what was there before";

/// Where the file is, from the directory that is copied from or into.
fn file_name(story: &Story) -> &'static str {
    if story.tree.is_some() { "tree/file" } else { "file" }
}

/// Makes the other files of a tree; their names from its root.
fn surroundings(story: &Story, root: &Path) -> Vec<PathBuf> {
    let Some(tree) = story.tree else { return Vec::new() };
    let mut rng = Rng::new(story.seed + 3);
    for directory in ["a", "b", "b/c", "b/empty"] {
        fs::create_dir(root.join(directory)).expect("made");
    }
    let make = |number: u64| {
        let name = PathBuf::from(["a", "b", "b/c"][(number % 3) as usize]).join(format!("f{number}"));
        // Empty ones, some that go in packs, some that do not.
        let bytes = match rng.below(8) {
            0 => 0,
            1 => rng.below(200 << 10),
            _ => 1 + rng.below(16 << 10),
        };
        dataset::random_file(&root.join(&name), bytes, rng.next_u64()).expect("made");
        name
    };
    (0..tree.files).map(make).collect()
}

/// What clients have asked to be moved in parts of the file: by the source's commands, or by those of the destination.
fn parts(said: &[(u64, String)]) -> Vec<Range<u64>> {
    let mut announced = HashMap::new();
    let mut parts = Vec::new();
    for (connection, line) in said {
        let words: Vec<&str> = line.split([' ', ',']).collect();
        let number = |at: usize| words.get(at).and_then(|word| word.parse::<u64>().ok());
        let (start, length) = match words[..] {
            ["ALLO", ..] => {
                announced.extend(number(1).map(|length| (connection, length)));
                continue;
            }
            ["ERET", "P", ..] => (number(2), number(3)),
            ["ESTO", "C", ..] => (number(3), announced.get(connection).copied()),
            _ => continue,
        };
        parts.extend(start.zip(length).map(|(start, length)| start..start + length));
    }
    parts
}

/// Whether it is the journal of the large file.
pub fn is_journal(path: &Path) -> bool {
    path.to_string_lossy().contains("/.file.whimbrel-journal-")
}

/// Where servers of the destination read which start of their host it is.
fn start_of_host(directory: &Path) -> PathBuf {
    directory.join("start")
}

/// Servers act as somebody else.
fn open_to_all(path: &Path) {
    fs::set_permissions(path, fs::Permissions::from_mode(0o777)).expect("allowed");
}

fn open(path: &Path) -> fs::File {
    fs::File::options().read(true).write(true).open(path).expect("opened")
}

fn signal(name: &str, ids: &[u32]) {
    let ids = ids.iter().map(u32::to_string);
    // Those that have ended already need none.
    let _ = Command::new("kill").arg(format!("-{name}")).args(ids).output();
}

/// Stops processes with all that they have started and start meanwhile, and waits until they stand still; who they are.
fn stop(roots: &[u32]) -> Vec<u32> {
    let mut stopped = HashSet::new();
    let latest = Instant::now() + PATIENCE;
    loop {
        let tree = cpu::tree(roots);
        let new: Vec<u32> = tree.iter().copied().filter(|id| stopped.insert(*id)).collect();
        if !new.is_empty() {
            signal("STOP", &new);
        } else if tree.iter().all(|&id| stands_still(id)) {
            return stopped.into_iter().collect();
        }
        let states = || tree.iter().map(|&id| (id, cpu::thread_states(id))).collect::<Vec<_>>();
        assert!(Instant::now() < latest, "the receiver does not stand still: {:?}", states());
        std::thread::yield_now();
    }
}

/// Whether no thread of a process that was told to stop does anything more outside the kernel, or it is gone.
///
/// One that waits within the kernel (`D`) stops on its way out: for a disk, or for a child that it starts and that was
/// stopped before it ran its program, and so longer than anybody waits. In a process of several threads it is told
/// so by the first that stops.
fn stands_still(id: u32) -> bool {
    let states = cpu::thread_states(id);
    let told = states.contains('T') || states.len() == 1;
    states.chars().all(|state| matches!(state, 'T' | 'Z' | 'X') || told && state == 'D')
}
