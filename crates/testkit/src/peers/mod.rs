//! The real programs of the field as opponents: servers to talk to and clients to be talked to by.
//!
//! Everything here skips on a machine without the program and fails where skipping is not allowed (see
//! [`crate::must_not_skip`]):
//!
//! ```no_run
//! use whimbrel_testkit::peers::{self, GridftpServer};
//!
//! let (Some(server), Some(copy)) = (GridftpServer::builder(), peers::url_copy()) else { return };
//! let server = server.start().expect("the server starts");
//! let run = copy.arg(server.url("/etc/hostname")).arg("file:///tmp/hostname").run_ok();
//! println!("took {:?}", run.wall);
//! ```

mod daemon;
mod gridftp;
mod kdc;
mod postgres;
mod sshd;
mod tool;

use std::env;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

pub use daemon::Daemon;
pub use gridftp::{GridftpServer, GridftpServerBuilder};
pub use kdc::{Kdc, REALM};
pub use postgres::Postgres;
pub use sshd::Sshd;
pub use tool::{Run, Tool};

use crate::error::{Attempt, Result};
use crate::must_not_skip;

/// Where a program is; without it, prints that the calling test is skipped, or panics when it must not be.
#[track_caller]
pub fn require(program: &str) -> Option<PathBuf> {
    let found = find(program);
    if found.is_none() {
        missing(program);
    }
    found
}

/// Where a program is on the search path; system directories count although users do not search them.
pub fn find(program: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let system = ["/usr/local/sbin", "/usr/sbin", "/sbin"].map(PathBuf::from);
    env::split_paths(&path).chain(system).map(|directory| directory.join(program)).find(|path| is_program(path))
}

/// `globus-url-copy`.
#[track_caller]
pub fn url_copy() -> Option<Tool> {
    require("globus-url-copy").map(Tool::new)
}

/// `curl`, quiet but for errors, and failing when the server does.
#[track_caller]
pub fn curl() -> Option<Tool> {
    require("curl").map(|program| Tool::new(program).args(["--silent", "--show-error", "--fail", "--disable"]))
}

/// `lftp` running `commands`, without the user's settings; it fails at the first command that does.
#[track_caller]
pub fn lftp(commands: &str) -> Option<Tool> {
    let script = format!("set cmd:fail-exit true; {commands}");
    require("lftp").map(|program| Tool::new(program).args(["--norc", "-c"]).arg(script))
}

/// A Python script; `ftplib` is part of Python.
#[track_caller]
pub fn python(script: &str) -> Option<Tool> {
    require("python3").map(|program| Tool::new(program).arg("-c").arg(script))
}

/// A Python script that can `import gfal2`, with whichever interpreter the bindings are installed for.
#[track_caller]
pub fn gfal2(script: &str) -> Option<Tool> {
    let candidates = [Some(PathBuf::from("/usr/bin/python3")), find("python3")];
    let has_bindings =
        |program: &PathBuf| Tool::new(program).args(["-c", "import gfal2"]).run().is_ok_and(|run| run.success());
    let found = candidates.into_iter().flatten().find(has_bindings);
    if found.is_none() {
        missing("python3 with gfal2");
    }
    found.map(|program| Tool::new(program).arg("-c").arg(script))
}

/// A temporary directory that every user may write to, because servers started by root act as somebody else.
pub fn public_dir() -> Result<TempDir> {
    let what = || "making a public directory".to_owned();
    let directory = tempfile::Builder::new().prefix("whimbrel-").tempdir().attempt(what)?;
    fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o777)).attempt(what)?;
    Ok(directory)
}

/// `path` as the path of a URL: everything but unreserved characters (RFC 3986 §2.3) and slashes percent-encoded.
pub fn url_path(path: impl AsRef<OsStr>) -> String {
    let mut encoded = String::new();
    for byte in path.as_ref().as_bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'/' => {
                encoded.push(char::from(*byte))
            }
            _ => encoded.push_str(&format!("%{byte:02X}")),
        }
    }
    encoded
}

/// A `file://` URL.
pub fn file_url(path: impl AsRef<OsStr>) -> String {
    format!("file://{}", url_path(path))
}

#[track_caller]
fn missing(program: &str) {
    assert!(!must_not_skip(), "{program} is not installed, and skipping is not allowed here");
    println!("skipped: {program} is not installed");
}

fn is_program(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|metadata| metadata.is_file() && metadata.permissions().mode() & 0o111 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_found_and_their_absence_is_noticed() {
        assert!(find("sh").is_some_and(|path| path.is_absolute()));
        assert_eq!(find("no-such-program-anywhere"), None);
        let caught = std::panic::catch_unwind(|| require("no-such-program-anywhere"));
        assert_eq!(caught.is_err(), must_not_skip(), "absence fails exactly where skipping is not allowed");
    }

    #[test]
    fn any_file_name_makes_a_url() {
        assert_eq!(url_path("/d/plain-name_1.txt~"), "/d/plain-name_1.txt~");
        assert_eq!(url_path(OsStr::from_bytes(b"/a b/\xff%")), "/a%20b/%FF%25");
        assert_eq!(file_url("/a"), "file:///a");
    }

    #[test]
    fn a_public_directory_is_writable_by_all() {
        let directory = public_dir().expect("made");
        let mode = fs::metadata(directory.path()).expect("stat").permissions().mode();
        assert_eq!(mode & 0o777, 0o777);
    }
}
