//! What cases share: the data to move, a place for it, servers of both kinds.

use std::ffi::OsStr;
use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;
use std::time::{Duration, SystemTime};

use tempfile::TempDir;
use whimbrel_testkit::dataset::{self, Compare};
use whimbrel_testkit::peers::{self, Daemon, GridftpServer, Run, Tool, public_dir, url_path};

pub use whimbrel_testkit::must_not_skip;
pub use whimbrel_testkit::peers::file_url;

use crate::case::{Case, Program};
use crate::protection::Site;

/// The program under test.
pub const WHIMBREL: &str = env!("CARGO_BIN_EXE_whimbrel");
/// Bytes of the file that most cases move.
pub const TEN: u64 = 10_000_000;
/// Bytes of the large file.
pub const LARGE: u64 = 1_000_000_000;
const START_LIMIT: Duration = Duration::from_secs(20);
/// Time for a program to move the large file.
const LIMIT: Duration = Duration::from_secs(120);

/// A size to move, by its name in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Size {
    Zero,
    One,
    Ten,
    Large,
}

impl Size {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Zero, Self::One, Self::Ten, Self::Large];

    /// Its name in the table.
    pub fn name(self) -> &'static str {
        match self {
            Self::Zero => "0 B",
            Self::One => "1 B",
            Self::Ten => "10 MB",
            Self::Large => "1 GB",
        }
    }

    fn bytes(self) -> u64 {
        match self {
            Self::Zero => 0,
            Self::One => 1,
            Self::Ten => TEN,
            Self::Large => LARGE,
        }
    }
}

/// The data of a run, made when first used and never written to again.
pub struct Context {
    directory: TempDir,
    large: LazyLock<PathBuf, Box<dyn FnOnce() -> PathBuf + Send>>,
}

impl Context {
    /// Makes everything but the large file.
    pub fn new() -> Self {
        let directory = public_dir().expect("a directory");
        let root = directory.path().to_owned();
        for size in [Size::Zero, Size::One, Size::Ten] {
            make(&root, size);
        }
        let tree = root.join("tree");
        fs::create_dir_all(tree.join("deep/er")).unwrap();
        fs::create_dir(tree.join("other")).unwrap();
        fs::write(tree.join("zero"), b"").unwrap();
        fs::write(tree.join("one"), b"1").unwrap();
        fs::write(tree.join("two words"), b"a space in the name").unwrap();
        for number in 0..40 {
            let file = tree.join(format!("deep/file-{number:02}"));
            dataset::random_file(&file, number * 997, number).expect("a file");
        }
        dataset::random_file(&tree.join("deep/er/big"), 3_000_001, 99).expect("a file");
        fs::write(tree.join("other/last"), b"last").unwrap();
        Self { directory, large: LazyLock::new(Box::new(move || make(&root, Size::Large))) }
    }

    /// The file of a size.
    pub fn file(&self, size: Size) -> PathBuf {
        match size {
            Size::Large => self.large.clone(),
            _ => self.directory.path().join(file_name(size)),
        }
    }

    /// A tree of 46 files without empty directories, which `globus-url-copy` leaves out.
    pub fn tree(&self) -> PathBuf {
        self.directory.path().join("tree")
    }
}

fn file_name(size: Size) -> String {
    format!("file-{}", size.bytes())
}

fn make(root: &Path, size: Size) -> PathBuf {
    let path = root.join(file_name(size));
    dataset::random_file(&path, size.bytes(), size.bytes() + 1).expect("a file");
    path
}

/// The program that is missing for a case, if any.
pub fn is_here(case: &Case) -> Option<&'static str> {
    let server = case.needs_server.then_some("globus-gridftp-server");
    let client = match case.program {
        Program::UrlCopy => Some("globus-url-copy"),
        Program::Whimbrel => None,
        Program::Curl => Some("curl"),
        Program::Lftp => Some("lftp"),
        Program::Ftplib | Program::Gfal2 => Some("python3"),
    };
    let missing = server.into_iter().chain(client).find(|program| peers::find(program).is_none());
    missing.or_else(|| (case.program == Program::Gfal2 && !has_gfal2()).then_some("python3-gfal2"))
}

fn has_gfal2() -> bool {
    static FOUND: LazyLock<bool> = LazyLock::new(|| {
        let candidates = [Some(PathBuf::from("/usr/bin/python3")), peers::find("python3")];
        let imports = |python: PathBuf| Tool::new(python).args(["-c", "import gfal2"]).run();
        candidates.into_iter().flatten().any(|python| imports(python).is_ok_and(|run| run.success()))
    });
    *FOUND
}

/// Which program serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Ours,
    Theirs,
}

/// A server with all of this host below it.
pub struct Server {
    address: SocketAddr,
    process: Process,
}

enum Process {
    Ours(Daemon),
    Theirs(GridftpServer),
    /// Of either kind, started by an sshd for each login.
    Shell,
}

impl Server {
    /// Starts one on 127.0.0.1.
    pub fn start(kind: Kind) -> Self {
        if let Site::Ssh(shells) = Site::now() {
            return Self { address: shells.address(kind), process: Process::Shell };
        }
        match kind {
            Kind::Ours => Self::ours(&[]),
            Kind::Theirs => {
                let server = GridftpServer::builder().expect("its presence was checked");
                let server = match Site::now() {
                    Site::Gsi(grid) => server.gsi(&grid.pki, &grid.host, &grid.gridmap),
                    _ => server,
                };
                let server = server.start().expect("it starts");
                Self { address: server.addr(), process: Process::Theirs(server) }
            }
        }
    }

    /// Starts ours on 127.0.0.1 with options of its own.
    pub fn ours(arguments: &[&str]) -> Self {
        Self::ours_at("127.0.0.1:0", arguments)
    }

    /// Starts ours on an address.
    pub fn ours_at(listen: &str, arguments: &[&str]) -> Self {
        let mut command = Command::new(WHIMBREL);
        command.args(["dtn", "--listen", listen, "--root", "/"]).args(arguments);
        Site::now().let_in(&mut command);
        for name in ["GLOBUS_TCP_PORT_RANGE", "GLOBUS_TCP_SOURCE_RANGE", "GLOBUS_HOSTNAME"] {
            command.env_remove(name);
        }
        let ready = |line: &str| line.strip_prefix("listening on ftp://")?.trim_end_matches('/').parse().ok();
        let (daemon, address) = Daemon::start(command, START_LIMIT, ready).expect("our server starts");
        Self { address, process: Process::Ours(daemon) }
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The URL of an absolute path.
    pub fn url(&self, path: impl AsRef<OsStr>) -> String {
        url_at(self.address, path)
    }

    /// The same for programs that have protection as an option and not as a scheme.
    pub fn ftp_url(&self, path: impl AsRef<OsStr>) -> String {
        format!("ftp://{}{}", self.address, url_path(path))
    }

    /// The URL of a directory, with the slash at its end that some programs insist on.
    pub fn directory_url(&self, path: impl AsRef<OsStr>) -> String {
        self.url(path) + "/"
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if std::thread::panicking() && std::env::var_os("WHIMBREL_SHOW_SERVERS").is_some() {
            match &self.process {
                Process::Ours(daemon) => println!("our server said:\n{}", daemon.log()),
                Process::Theirs(server) => println!("their server said:\n{}", server.front().log()),
                Process::Shell => {}
            }
        }
    }
}

/// The URL of an absolute path on a server somewhere.
pub fn url_at(address: SocketAddr, path: impl AsRef<OsStr>) -> String {
    Site::now().url(address, path)
}

/// A directory that everybody may write to.
pub struct Place {
    directory: TempDir,
}

impl Place {
    /// An empty one.
    pub fn new() -> Self {
        Self { directory: public_dir().expect("a directory") }
    }

    /// A path in it.
    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// A directory in it that everybody may write to.
    pub fn directory(&self, name: &str) -> PathBuf {
        let path = self.path(name);
        fs::create_dir_all(&path).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o777)).unwrap();
        path
    }

    /// A copy of a file that everybody may write to.
    pub fn copy_of(&self, file: &Path, name: impl AsRef<Path>) -> PathBuf {
        let path = self.directory.path().join(name);
        fs::copy(file, &path).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).unwrap();
        path
    }
}

/// Two directories that differ in one way for each level of synchronisation.
pub struct Stale {
    /// The source.
    pub from: PathBuf,
    /// The destination.
    pub to: PathBuf,
}

impl Stale {
    /// Makes them: a file that is missing, one of other size, one older at the destination, one of the same size and
    /// newer at the destination, and one that is the same. The destination is the directory of that name.
    pub fn new(place: &Place, to: &str) -> Self {
        let (from, to) = (place.directory("from"), place.directory(to));
        let time = |seconds| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
        let files = [("same", "abc", 3), ("size", "abcd", 3), ("older", "abd", 1), ("content", "abe", 3)];
        for (name, content, written) in files {
            fs::write(from.join(name), "abc").unwrap();
            set_time(&from.join(name), time(1_000_000_000));
            let file = place.copy_of(&from.join(name), to.join(name));
            fs::write(&file, content).unwrap();
            set_time(&file, time(500_000_000 * written));
        }
        fs::write(from.join("missing"), "m").unwrap();
        Self { from, to }
    }

    /// Which have arrived: the missing, the one of other size, the older one, the one of other content.
    pub fn copied(&self) -> [bool; 4] {
        assert_eq!(fs::read(self.to.join("same")).unwrap(), b"abc");
        let read = |directory: &Path, name: &str| fs::read(directory.join(name)).ok();
        ["missing", "size", "older", "content"].map(|name| read(&self.from, name) == read(&self.to, name))
    }
}

fn set_time(file: &Path, time: SystemTime) {
    fs::File::options().write(true).open(file).unwrap().set_modified(time).unwrap();
}

/// `globus-url-copy`.
pub fn url_copy() -> Tool {
    let tool = match Site::now() {
        Site::Ssh(shells) => shells.url_copy(),
        site => site.known(peers::url_copy().expect("its presence was checked")),
    };
    tool.limit(LIMIT)
}

/// `whimbrel cp` with arguments.
pub fn whimbrel_cp<A: AsRef<OsStr>>(arguments: impl IntoIterator<Item = A>) -> Tool {
    let tool = Tool::new(WHIMBREL).arg("cp");
    let tool = match Site::now() {
        Site::Tls(secure) => secure.whimbrel(tool).arg("--encrypt"),
        Site::Ssh(shells) => shells.whimbrel(tool),
        site => site.known(tool),
    };
    tool.args(arguments).limit(LIMIT)
}

/// Panics unless both files, or trees, hold the same.
#[track_caller]
pub fn assert_same(expected: &Path, actual: &Path) {
    Compare::contents().assert_same(expected, actual);
}

/// Runs a tool and, when it succeeds, compares.
#[track_caller]
pub fn copies(tool: Tool, expected: &Path, actual: &Path) -> Run {
    let run = tool.run_ok();
    let differences = Compare::contents().run(expected, actual).unwrap_or_else(|error| panic!("{error}\n{run}"));
    assert!(differences.is_empty(), "{differences}\n{run}");
    run
}
