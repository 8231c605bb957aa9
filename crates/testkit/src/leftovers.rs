//! Ends what a killed test run left behind: its processes and its mounts.
//!
//! Every process started through this crate carries its owner, a process id with its start time and the namespace that the id
//! is of, in its environment, and every mount in its directory's name. Whatever names an owner that no longer lives is ended;
//! nothing else is, and nothing of another namespace, whose processes have other ids here or none.
//!
//! Programs that measure leave less behind to begin with: see [`end_with_us`].

use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use whimbrel_sys::lifetime::{die_with_starter, own_mounts};

use crate::cpu;

/// The environment variable that names the owner of a process.
pub const OWNER_VARIABLE: &str = "WHIMBREL_TESTKIT_OWNER";
/// How the directories of this crate's mounts begin, before the owner.
pub(crate) const MOUNT_PREFIX: &str = "whimbrel-tmpfs-";

/// Where groups of starved processes are.
pub(crate) const GROUPS: &str = "/sys/fs/cgroup/cpu";
/// How the names of this crate's groups begin, before the owner.
pub(crate) const GROUP_PREFIX: &str = "whimbrel-";

/// Whether what is started ends with the thread that starts it.
static ENDS_WITH_US: AtomicBool = AtomicBool::new(false);

/// Lets nothing that this program starts or mounts outlive it, however it ends. To be called before it has any other thread;
/// programs are to be started from threads that live as long as they are needed.
///
/// Without privileges mounts cannot be had, and need not go.
pub fn end_with_us() {
    ENDS_WITH_US.store(true, Ordering::Relaxed);
    if rustix::process::geteuid().is_root()
        && let Err(error) = own_mounts()
    {
        eprintln!("mounts of this run will be seen by others, and stay if it is killed: {error}");
    }
}

/// Marks what `command` will start, and all its descendants, as this process's. A second time changes nothing.
pub fn mark(command: &mut Command) {
    command.env(OWNER_VARIABLE, owner());
    if ENDS_WITH_US.load(Ordering::Relaxed) {
        die_with_starter(command);
    }
}

/// This process as an owner: its id, its start time and its namespace of ids, which together are never used twice while a
/// machine runs.
pub(crate) fn owner() -> String {
    let id = std::process::id();
    format!("{id}.{}.{}", cpu::start_time(id).unwrap_or(0), namespace())
}

/// The number of the namespace that ids of processes are of; 0: nobody says.
fn namespace() -> u64 {
    fs::metadata("/proc/self/ns/pid").map_or(0, |namespace| namespace.ino())
}

/// Ends the leftovers of dead owners; does its work once per process.
pub fn sweep() {
    static SWEPT: Once = Once::new();
    SWEPT.call_once(sweep_now);
}

fn sweep_now() {
    for id in cpu::all_processes() {
        end_if_orphan(id);
    }
    let dead = |mount: &PathBuf| owner_in_name(mount, MOUNT_PREFIX).is_some_and(|owner| !lives(&owner));
    for mount in mounts().into_iter().filter(dead) {
        unmount(&mount);
    }
    for (directory, prefix) in [(std::env::temp_dir(), MOUNT_PREFIX), (GROUPS.into(), GROUP_PREFIX)] {
        remove_empty(&directory, prefix);
    }
}

/// Removes directories of dead owners: what is left of a mount that nobody sees any more, or of a group whose processes ended.
fn remove_empty(directory: &Path, prefix: &str) {
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        if owner_in_name(&entry.path(), prefix).is_some_and(|owner| !lives(&owner)) {
            // One that is not empty is somebody's.
            let _ = fs::remove_dir(entry.path());
        }
    }
}

/// Detaches a file system and removes the directory under it.
pub(crate) fn unmount(at: &Path) {
    // Failure leaves a mount that the next sweep tries again.
    let _ = Command::new("umount").arg("--lazy").arg(at).output();
    let _ = fs::remove_dir(at);
}

fn end_if_orphan(id: u32) {
    if owner_of_process(id).is_none_or(|owner| lives(&owner)) {
        return;
    }
    let Some(pid) = i32::try_from(id).ok().and_then(Pid::from_raw) else { return };
    let Ok(process) = pidfd_open(pid, PidfdFlags::empty()) else { return };
    // The descriptor pins the process; only what is still an orphan behind it may be ended.
    if owner_of_process(id).is_some_and(|owner| !lives(&owner)) {
        let _ = pidfd_send_signal(&process, Signal::KILL);
    }
}

fn owner_of_process(id: u32) -> Option<String> {
    let environment = fs::read(format!("/proc/{id}/environ")).ok()?;
    let mut variables = environment.split(|byte| *byte == 0);
    let value = variables.find_map(|variable| variable.strip_prefix(OWNER_VARIABLE.as_bytes())?.strip_prefix(b"="))?;
    String::from_utf8(value.to_vec()).ok()
}

fn owner_in_name(path: &Path, prefix: &str) -> Option<String> {
    let name = path.file_name()?.to_str()?.strip_prefix(prefix)?;
    Some(name.split('-').next()?.into())
}

/// Anything that does not read as an owner counts as alive: it is not ours to end.
fn lives(owner: &str) -> bool {
    let mut parts = owner.split('.');
    let mut next = || parts.next()?.parse::<u64>().ok();
    let (Some(id), Some(start), Some(of)) = (next(), next(), next()) else { return true };
    of != namespace() || u32::try_from(id).is_ok_and(|id| cpu::start_time(id) == Some(start))
}

fn mounts() -> Vec<PathBuf> {
    let table = fs::read("/proc/self/mountinfo").unwrap_or_default();
    let points = table.split(|byte| *byte == b'\n').filter_map(|line| line.split(|byte| *byte == b' ').nth(4));
    points.map(|point| PathBuf::from(OsString::from_vec(point.to_vec()))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::ExitStatusExt;
    use std::process::Stdio;

    /// The id is this process's, but with another start time it is another, dead process.
    fn dead_owner() -> String {
        format!("{}.1.{}", std::process::id(), namespace())
    }

    fn sleeper(owner: &str) -> std::process::Child {
        // `cat` waits for its standard input to close, which it never does here.
        let child = Command::new("cat").env(OWNER_VARIABLE, owner).stdin(Stdio::piped()).spawn().expect("cat");
        // The kernel shows the environment of a new program a moment after its start.
        while owner_of_process(child.id()).is_none() {
            std::thread::yield_now();
        }
        child
    }

    #[test]
    fn an_orphan_is_ended_and_a_living_owners_process_is_not() {
        let (mut orphan, mut ours) = (sleeper(&dead_owner()), sleeper(&owner()));
        end_if_orphan(orphan.id());
        end_if_orphan(ours.id());
        assert_eq!(orphan.wait().expect("ended").signal(), Some(9));
        assert!(ours.try_wait().expect("state").is_none(), "a process of this run was ended");
        drop(ours.stdin.take());
        assert!(ours.wait().expect("ended").success());
    }

    #[test]
    fn empty_directories_of_dead_owners_go_and_all_others_stay() {
        let place = tempfile::tempdir().expect("directory");
        let make = |owner: &str, inside: bool| {
            let path = place.path().join(format!("{MOUNT_PREFIX}{owner}-0"));
            fs::create_dir_all(if inside { path.join("file") } else { path.clone() }).expect("made");
            path
        };
        let (dead, ours) = (make(&dead_owner(), false), make(&owner(), false));
        let (full, other) =
            (make(&format!("{}.2.{}", std::process::id(), namespace()), true), make("of somebody", false));
        remove_empty(place.path(), MOUNT_PREFIX);
        assert_eq!([dead, ours, full, other].map(|path| path.exists()), [false, true, true, true]);
    }

    #[test]
    fn only_a_well_formed_dead_owner_counts_as_dead() {
        assert!(lives(&owner()));
        assert!(!lives(&dead_owner()));
        assert!(lives("not an owner"));
        let elsewhere = format!("{}.1.{}", std::process::id(), namespace() + 1);
        assert!(lives(&elsewhere), "nobody here knows it");
        let owner_of = |path: &str| owner_in_name(Path::new(path), MOUNT_PREFIX);
        assert_eq!(owner_of("/tmp/whimbrel-tmpfs-12.34.56-0"), Some("12.34.56".into()));
        assert_eq!(owner_of("/tmp/other"), None);
    }
}
