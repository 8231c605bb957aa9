//! A server whose system calls on names and files are written down (`strace`).

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use whimbrel_testkit::peers::{Daemon, require};

use super::dtn::PATIENCE;
use super::{Field, WHIMBREL};

const CALLS: &str =
    "trace=openat,write,pwrite64,pread64,fchmod,fchmodat,chmod,fdatasync,fsync,renameat,renameat2,linkat,unlinkat";

/// A call about a name in the directory of the copies; `.` is that directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Call {
    Write(String),
    Read(String),
    Sync(String),
    Rename(String, String),
    /// A file without a name gets one.
    Link(String, String),
    Unlink(String),
    /// A file is made with a mode; `.` is one without a name.
    Make(String, String),
    /// The mode of an open file.
    Mode(String, String),
    /// That of whatever has a name.
    ModeOfName,
}

/// A server whose calls are written down.
pub struct Traced {
    server: Daemon,
    /// Where it is.
    pub url: String,
    trace: PathBuf,
}

impl Traced {
    /// `None` without `strace`.
    pub fn start(field: &Field, options: &[&str]) -> Option<Traced> {
        let trace = field.path("trace");
        let mut command = Command::new(require("strace")?);
        command.args(["-f", "-y", "-s", "0", "-e", CALLS, "-o"]).arg(&trace).arg(WHIMBREL);
        command.args(["dtn", "--listen", "127.0.0.1:0", "--root", "/", "--anonymous"]).args(options);
        let listens = |line: &str| Some(line.strip_prefix("listening on ")?.trim_end_matches('/').to_owned());
        let (server, url) = Daemon::start(command, PATIENCE * 2, listens).expect("the server starts");
        Some(Traced { server, url, trace })
    }

    /// Ends the server; its calls about what is in `directory`, in order.
    pub fn calls(self, directory: &Path) -> Vec<Call> {
        drop(self.server);
        calls(&fs::read_to_string(&self.trace).unwrap(), directory)
    }
}

/// What `strace -f -y` wrote; calls that other threads interrupted count when they ended, failed ones do not count.
pub fn calls(trace: &str, directory: &Path) -> Vec<Call> {
    let mut begun: HashMap<&str, &str> = HashMap::new();
    let mut calls = Vec::new();
    for line in trace.lines() {
        let Some((thread, text)) = line.split_once(' ') else { continue };
        let text = text.trim_start();
        if let Some(start) = text.strip_suffix("<unfinished ...>") {
            begun.insert(thread, start);
        } else if !text.contains(" = -1 ") {
            let whole = if text.starts_with("<... ") { begun.remove(thread).unwrap_or_default() } else { text };
            calls.extend(call(whole, &directory.to_string_lossy()));
        }
    }
    calls
}

fn call(text: &str, directory: &str) -> Option<Call> {
    let (name, arguments) = text.split_once('(')?;
    if matches!(name, "fchmodat" | "chmod") {
        return Some(Call::ModeOfName);
    }
    // The path of the first descriptor.
    let path = arguments.split_once('<')?.1.split_once('>')?.0;
    let inside = path.strip_prefix(directory)?;
    let file = inside.strip_prefix('/').filter(|file| !file.contains('/')).map(str::to_owned);
    let mut quoted = arguments.split('"').skip(1).step_by(2).map(str::to_owned);
    match name {
        "write" | "pwrite64" => Some(Call::Write(file?)),
        "pread64" => Some(Call::Read(file?)),
        "fdatasync" | "fsync" => Some(Call::Sync(if inside.is_empty() { ".".to_owned() } else { file? })),
        "renameat" | "renameat2" => Some(Call::Rename(quoted.next()?, quoted.next()?)),
        // As strace shows it: `#INODE (deleted)` in the directory it was made in.
        "linkat" => Some(Call::Link(file?, quoted.nth(1)?)),
        "unlinkat" => Some(Call::Unlink(quoted.next()?)),
        "fchmod" => Some(Call::Mode(file?, last_argument(arguments)?)),
        "openat" if arguments.contains("O_CREAT") || arguments.contains("O_TMPFILE") => {
            Some(Call::Make(quoted.next()?, last_argument(arguments)?))
        }
        _ => None,
    }
}

fn last_argument(arguments: &str) -> Option<String> {
    Some(arguments.rsplit_once(')')?.0.rsplit_once(", ")?.1.to_owned())
}
