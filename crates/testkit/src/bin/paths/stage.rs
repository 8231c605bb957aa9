//! One path built: its hosts and links, its servers, its data, and what was made slow on purpose.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use rustix::fs::{Advice, fadvise, syncfs};
use serde_json::Value;
use whimbrel_testkit::awake::Awake;
use whimbrel_testkit::dataset::{self, Shape};
use whimbrel_testkit::lab::{Host, Lab, Link};
use whimbrel_testkit::peers::{Daemon, Tool, url_path};
use whimbrel_testkit::slow_disk::SlowDisk;
use whimbrel_testkit::starved::Starved;
use whimbrel_testkit::tmpfs::Tmpfs;

use crate::Outcome;
use crate::draw::{Client, Draw, Ends, Files, Limit};
use crate::setting::CONTROLS;

/// Time until a server must be ready.
const START_LIMIT: Duration = Duration::from_secs(20);
/// Room beside the data.
const SPARE: u64 = 256 << 20;
/// Between the client and the end that it is next to.
const NEAR: Duration = Duration::from_millis(1);
/// The hosts at the two ends of the path.
const BORDERS: [&str; 2] = ["left", "right"];

/// A built path; dropping it ends everything.
pub struct Stage {
    draw: Draw,
    whimbrel: PathBuf,
    // In the order in which they must go: nothing may use what is unmounted.
    _awake: Option<Awake>,
    _starved: Option<Starved>,
    servers: [Vec<Server>; 2],
    places: [Place; 2],
    lab: Lab,
}

struct Server {
    _daemon: Daemon,
    address: String,
}

/// Where the data of one end are.
enum Place {
    Memory(Tmpfs),
    Disk(SlowDisk),
}

/// What one run of the command came to.
#[derive(Clone, Debug)]
pub struct Sample {
    /// From its start to its end; `None` when it was ended because others were much faster.
    pub wall: Option<Duration>,
    /// What it said of itself at the end.
    pub explained: Value,
}

impl Place {
    fn path(&self) -> &Path {
        match self {
            Place::Memory(memory) => memory.path(),
            Place::Disk(disk) => disk.path(),
        }
    }
}

impl Stage {
    /// Builds it. Errors: the laboratory, a disk or a server cannot be had.
    pub fn build(draw: &Draw, whimbrel: &Path) -> Outcome<Stage> {
        let lab = laboratory(draw)?;
        // All are to be had on every path, whichever it begins with.
        for control in CONTROLS.into_iter().chain([draw.congestion]) {
            lab.set_congestion_control_everywhere(control)?;
        }
        let places = [place(draw, Limit::SourceStorage)?, place(draw, Limit::DestinationStorage)?];
        fill(&places[0].path().join("from"), draw)?;
        let starved = draw.limit.is_a_processor().then(|| starved(draw.amount)).transpose()?;
        // With a processor idle for 98 % the machine would be slower than any that has no more to spare.
        let awake = draw.limit.is_a_processor().then(|| Awake::reading(&places[0].path().join("from"))).transpose()?;
        let start = |hosts: Vec<&Host>, starves: Limit, sync: bool| -> Outcome<Vec<Server>> {
            let starved = starved.as_ref().filter(|_| draw.limit == starves);
            hosts.into_iter().map(|host| Server::start(whimbrel, host, starved, sync)).collect()
        };
        let sources = start(hosts(&lab, draw, "src", 3), Limit::SourceProcessor, false)?;
        // What is only in memory would not be bound by the disk.
        let sync = draw.limit == Limit::DestinationStorage;
        let destinations = start(hosts(&lab, draw, "dst", 5), Limit::DestinationProcessor, sync)?;
        let servers = [sources, destinations];
        Ok(Stage {
            draw: draw.clone(),
            whimbrel: whimbrel.into(),
            _awake: awake.flatten(),
            _starved: starved,
            servers,
            places,
            lab,
        })
    }

    /// Copies everything with these options; given up after `limit`.
    pub fn run(&self, flags: &[String], limit: Duration) -> Outcome<Sample> {
        let (from, to) = (self.places[0].path().join("from"), self.places[1].path().join("to"));
        self.forget(&from, &to)?;
        let client = self.lab.host("client");
        let mut tool = Tool::new(&self.whimbrel).args(["--json", "cp", "--explain", "--verify=require"]);
        if self.draw.files != Files::One {
            tool = tool.arg("-r");
        }
        let folder = |path: &Path| if self.draw.files == Files::One { path.to_owned() } else { path.join("") };
        let urls = [url(&self.servers[0], &folder(&from)), url(&self.servers[1], &folder(&to))];
        let (stop, stopped) = channel::<()>();
        let run = thread::scope(|scope| {
            scope.spawn(move || self.halve(&stopped));
            let run = tool.args(flags).args(urls).on(client).limit(limit).run();
            drop(stop);
            run
        })?;
        if run.status.is_none() {
            return Ok(Sample { wall: None, explained: Value::Null });
        }
        if !run.success() {
            return Err(run.to_string().into());
        }
        let text = run.stdout_text();
        let mut events = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let explained = events.rfind(|event| event["event"] == "explained").unwrap_or(Value::Null);
        Ok(Sample { wall: Some(run.wall), explained })
    }

    /// Halves the rate in the middle of a run, until the run ends.
    fn halve(&self, stopped: &std::sync::mpsc::Receiver<()>) {
        if !self.draw.halved {
            return;
        }
        let rate = self.draw.rate_mbit * 1_000_000;
        let whole = Duration::from_secs_f64(self.draw.bytes as f64 * 8.0 / (0.75 * rate as f64));
        let link = self.lab.link(BORDERS[0], BORDERS[1]);
        if stopped.recv_timeout(whole / 2 + self.draw.rtt * 5) == Err(RecvTimeoutError::Timeout) {
            link.set_rate(rate / 2);
            let _ = stopped.recv();
        }
        link.set_rate(rate);
    }

    /// Has each run find the same: nothing at the destination, nothing of the source in memory if it is on a disk.
    fn forget(&self, from: &Path, to: &Path) -> Outcome<()> {
        if to.is_dir() {
            fs::remove_dir_all(to)?;
        } else if to.exists() {
            fs::remove_file(to)?;
        }
        if self.draw.files != Files::One {
            fs::create_dir(to)?;
            open_to_all(to)?;
        }
        if let Place::Disk(_) = &self.places[0] {
            drop_from_memory(from)?;
        }
        if let Place::Disk(disk) = &self.places[1] {
            syncfs(File::open(disk.path())?)?;
        }
        Ok(())
    }
}

impl Server {
    fn start(whimbrel: &Path, host: &Host, starved: Option<&Starved>, sync: bool) -> Outcome<Server> {
        let mut command = starved.map_or_else(|| Command::new(whimbrel), |starved| starved.command(whimbrel));
        command.args(["dtn", "--listen", &format!("{}:0", host.addr()), "--root", "/", "--anonymous"]);
        if sync {
            command.arg("--sync-writes");
        }
        host.adopt(&mut command);
        let ready = |line: &str| Some(line.strip_prefix("listening on ftp://")?.trim_end_matches('/').to_owned());
        let (daemon, address) = Daemon::start(command, START_LIMIT, ready)?;
        Ok(Server { _daemon: daemon, address })
    }
}

/// The URL of a path on an endpoint of these servers.
fn url(servers: &[Server], path: &Path) -> String {
    let all: Vec<&str> = servers.iter().map(|server| server.address.as_str()).collect();
    format!("ftp://{}{}", all.join(","), url_path(path))
}

/// The client next to an end, the ends' servers, and the path between the borders of the two ends.
fn laboratory(draw: &Draw) -> Outcome<Lab> {
    let path = Link::new().rtt(draw.rtt).rate_mbit(draw.rate_mbit).loss(draw.loss).seed(draw.seed);
    let [left, right] = BORDERS;
    let near = if draw.client == Client::NearSource { left } else { right };
    let mut lab = Lab::builder().host("client").host(left).host(right).link(left, right, path);
    lab = lab.link("client", near, Link::new().rtt(NEAR));
    if draw.ends == Ends::Cluster {
        for (number, speed) in draw.speeds.iter().enumerate() {
            let (name, border) =
                if number < 3 { (format!("src{number}"), left) } else { (format!("dst{}", number - 3), right) };
            let rate = (draw.rate_mbit as f64 * 1e6 * speed) as u64;
            lab = lab.host(&name).link(&name, border, Link::new().rate(rate));
        }
    }
    Ok(lab.build()?)
}

/// The hosts of one end's servers.
fn hosts<'a>(lab: &'a Lab, draw: &Draw, end: &str, count: usize) -> Vec<&'a Host> {
    match draw.ends {
        Ends::Pair if end == "src" => vec![lab.host(BORDERS[0])],
        Ends::Pair => vec![lab.host(BORDERS[1])],
        Ends::Cluster => (0..count).map(|number| lab.host(&format!("{end}{number}"))).collect(),
    }
}

/// Memory, or a slow disk where that is what limits.
fn place(draw: &Draw, slow: Limit) -> Outcome<Place> {
    let bytes = draw.bytes + draw.bytes / 4 + SPARE;
    if draw.limit != slow {
        return Ok(Place::Memory(Tmpfs::mount(bytes)?));
    }
    let (read, write) = if slow == Limit::SourceStorage { (draw.amount, 0) } else { (0, draw.amount) };
    let disk = SlowDisk::mount(bytes, read, write)?;
    Ok(Place::Disk(disk.ok_or("the kernel cannot slow a disk down")?))
}

/// Makes the data.
fn fill(from: &Path, draw: &Draw) -> Outcome<()> {
    match draw.files {
        Files::One => dataset::random_file(from, draw.bytes, draw.seed)?,
        Files::Few(count) => {
            fs::create_dir(from)?;
            for number in 0..count {
                let seed = draw.seed + u64::from(number);
                dataset::random_file(&from.join(format!("file{number}")), draw.bytes / u64::from(count), seed)?;
            }
        }
        Files::Tree => {
            fs::create_dir(from)?;
            let shape = Shape { largest_bytes: draw.tree_largest(), ..Shape::PETASCALE };
            dataset::deep_tree(from, shape, draw.seed)?;
        }
    }
    Ok(())
}

fn starved(percent: u64) -> Outcome<Starved> {
    let starved = Starved::new(u32::try_from(percent).unwrap_or(u32::MAX))?;
    Ok(starved.ok_or("the kernel cannot limit processor time")?)
}

fn open_to_all(path: &Path) -> Outcome<()> {
    use std::os::unix::fs::PermissionsExt as _;
    Ok(fs::set_permissions(path, fs::Permissions::from_mode(0o777))?)
}

/// Drops the pages of a file, or of all files of a tree, once they are on their disk.
fn drop_from_memory(path: &Path) -> Outcome<()> {
    if path.is_dir() {
        for entry in fs::read_dir(path)? {
            drop_from_memory(&entry?.path())?;
        }
        return Ok(());
    }
    let file = File::open(path)?;
    file.sync_data()?;
    Ok(fadvise(&file, 0, None, Advice::DontNeed)?)
}
