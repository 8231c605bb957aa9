//! A service, and a grid with two stock endpoints of two hosts each.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use whimbrel_testkit::peers::{GridftpServer, Tool};
use whimbrel_testkit::pki::{Member, Pki};

use super::field::Field;
use super::seat::{Seat, told};

/// Longest wait for anything.
const PATIENCE: Duration = Duration::from_secs(60);

/// Waits for a condition.
#[track_caller]
pub fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < deadline, "{what} did not come");
        std::thread::park_timeout(Duration::from_millis(2));
    }
}

/// The grid with its service.
pub struct Stock {
    pub field: Field,
    pub alice: Member,
    /// Where from, and where to.
    pub sides: [Side; 2],
    pki: Pki,
    proxy: Member,
}

/// An endpoint of two hosts that share a directory.
pub struct Side {
    /// Its collection's id.
    pub collection: String,
    /// The hosts; dropped, one dies with its sessions.
    pub servers: Vec<GridftpServer>,
    directory: PathBuf,
    logs: Vec<PathBuf>,
}

impl Stock {
    /// `None` where the stock server or the public client is missing.
    #[track_caller]
    pub fn new() -> Option<Self> {
        GridftpServer::builder()?;
        let pki = Pki::new().unwrap();
        let alice = pki.person("alice").unwrap();
        let proxy = pki.usual_proxy(&alice, "proxy").unwrap();
        let field = Field::surrounded(&[("X509_CERT_DIR", &pki.certificates())])?;
        let seat = Seat::administrator(&field);
        let sides = ["left", "right"].map(|name| Side::start(&seat, &pki, name));
        Some(Self { field, alice, sides, pki, proxy })
    }

    /// The administrator, who is Alice in the grid.
    pub fn seat(&self) -> Seat<'_> {
        Seat { field: &self.field, home: self.field.place("home-administrator") }
    }

    /// Runs our command where Alice's proxy is.
    #[track_caller]
    pub fn registers(&self, arguments: &[&str]) -> String {
        let run = self.seat().command(arguments).as_member(&self.pki, &self.proxy).run().unwrap();
        told(0, &run, arguments).0
    }

    /// Registers a proxy for both ends.
    #[track_caller]
    pub fn register(&self) {
        for name in ["left data", "right data"] {
            self.registers(&["endpoint", "credential", name]);
        }
    }

    /// Everything that the service keeps, but its own certificate's key.
    pub fn kept(&self) -> Vec<u8> {
        let files = fs::read_dir(self.field.place("service")).unwrap().map(|entry| entry.unwrap().path());
        let files = files.filter(|path| path.is_file() && path.file_name().is_some_and(|name| name != "key.pem"));
        files.flat_map(|path| fs::read(path).unwrap()).collect()
    }
}

/// The account that stock servers may become.
fn account() -> String {
    match rustix::process::geteuid().is_root() {
        true => "nobody".to_owned(),
        false => Tool::new("id").arg("-un").run_ok().stdout_text().trim().to_owned(),
    }
}

impl Side {
    fn start(seat: &Seat<'_>, pki: &Pki, name: &str) -> Self {
        let directory = seat.field.place(name);
        open_directory(&directory);
        let host = pki.host(&["localhost", "127.0.0.1"]).unwrap();
        let gridmap = pki.gridmap(&[("alice", &account())]).unwrap();
        let logs = [1, 2].map(|number| seat.field.place(&format!("{name}{number}.log"))).to_vec();
        let start = |log: &PathBuf| {
            let server = GridftpServer::builder().unwrap().gsi(pki, &host, &gridmap);
            server.arg("-log-transfer").arg(log).start().unwrap()
        };
        let servers: Vec<_> = logs.iter().map(start).collect();
        let urls: Vec<_> =
            servers.iter().map(|server| format!("gsiftp://localhost:{}", server.addr().port())).collect();
        let site = format!("{name} site");
        seat.says(&["endpoint", "create", &site, "--server", &urls[0], "--server", &urls[1]]);
        let (data, place) = (format!("{name} data"), directory.display().to_string());
        let collection = seat.says(&["endpoint", "collection", &site, &data, &place]);
        Self { collection, servers, directory, logs }
    }

    /// `COLLECTION:PATH`.
    pub fn at(&self, path: &str) -> String {
        format!("{}:{path}", self.collection)
    }

    /// A path on this host.
    pub fn path(&self, path: &str) -> PathBuf {
        self.directory.join(path)
    }

    /// Writes a file, with the directories it lies in.
    pub fn write(&self, path: &str, content: impl AsRef<[u8]>) {
        let path = self.path(path);
        for above in path.parent().unwrap().ancestors().take_while(|above| above.starts_with(&self.directory)) {
            fs::create_dir_all(above).unwrap();
            open_directory(above);
        }
        fs::write(path, content).unwrap();
    }

    /// What is in a directory.
    pub fn names(&self, path: &str) -> Vec<String> {
        let entries = fs::read_dir(self.path(path)).unwrap();
        let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    /// Bytes on the disk of what is in it, under whatever names.
    pub fn stored(&self) -> u64 {
        let entries = fs::read_dir(&self.directory).unwrap();
        entries.filter_map(|entry| entry.ok()?.metadata().ok()).map(|found| found.blocks() * 512).sum()
    }

    /// Bytes that each host has moved by its own account (`ERET`, `ESTO`: parts of files), once all of these are in.
    #[track_caller]
    pub fn carried(&self, kind: &str, all: u64) -> Vec<u64> {
        let mut carried = Vec::new();
        until("the servers' own account of their transfers", || {
            carried = self.logs.iter().map(|log| moved(log, kind)).collect();
            carried.iter().sum::<u64>() >= all
        });
        carried
    }
}

/// Sum of the bytes of transfers in a log of the stock server.
fn moved(log: &Path, kind: &str) -> u64 {
    let text = fs::read_to_string(log).unwrap_or_default();
    let field = |line: &str, name: &str| {
        line.split_whitespace().find_map(|word| word.strip_prefix(name).map(str::to_owned)).unwrap_or_default()
    };
    let of_kind = text.lines().filter(|line| field(line, "TYPE=") == kind);
    of_kind.map(|line| field(line, "NBYTES=").parse::<u64>().unwrap_or(0)).sum()
}

fn open_directory(path: &Path) {
    fs::create_dir_all(path).unwrap();
    fs::set_permissions(path, Permissions::from_mode(0o777)).unwrap();
}
