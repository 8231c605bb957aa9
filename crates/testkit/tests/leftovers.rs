//! What a killed test run leaves behind is ended by the next one; what a killed measurement started ends with it.

use std::process::Command;
use std::time::{Duration, Instant};
use std::{env, fs};

use whimbrel_testkit::lab::{Lab, Link};
use whimbrel_testkit::peers::{Daemon, Tool};
use whimbrel_testkit::tmpfs::Tmpfs;
use whimbrel_testkit::{leftovers, require_root};

const VICTIM: &str = "WHIMBREL_TEST_VICTIM";

/// Starts a program on a host of a laboratory, mounts a file system, tells about both, and dies without a drop.
fn die() -> ! {
    let tmpfs = Tmpfs::mount(1 << 20).expect("mounted");
    let lab = Lab::builder().host("a").host("b").link("a", "b", Link::new()).build().expect("laboratory");
    let mut command = Command::new("sh");
    command.args(["-c", "echo ready; exec cat /dev/zero > /dev/null"]);
    lab.host("a").adopt(&mut command);
    let ready = |line: &str| (line == "ready").then_some(());
    let (daemon, ()) = Daemon::start(command, Duration::from_secs(10), ready).expect("started");
    println!("\nleft {} {}", daemon.id(), tmpfs.path().display());
    rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL).expect("killed");
    unreachable!("a process does not survive SIGKILL");
}

fn runs(id: &str) -> bool {
    fs::read_to_string(format!("/proc/{id}/stat")).is_ok_and(|stat| !stat.contains(") Z "))
}

fn is_mounted(path: &str) -> bool {
    fs::read_to_string("/proc/self/mountinfo").expect("mounts").contains(path)
}

/// Has the test of this name die in a process of its own; the process and the mount that it started, and what it said.
fn killed(name: &str) -> (String, String, String) {
    let victim = Tool::new(env::current_exe().expect("own name")).args(["--exact", name, "--nocapture"]);
    let run = victim.env(VICTIM, "1").run().expect("started");
    let said = run.stdout_text();
    let words: Vec<&str> = said.lines().find_map(|line| line.strip_prefix("left ")).expect(&said).split(' ').collect();
    let [process, mount] = words[..] else { panic!("{run}") };
    (process.into(), mount.into(), run.to_string())
}

fn assert_ends(process: &str) {
    let start = Instant::now();
    while runs(process) && start.elapsed() < Duration::from_secs(10) {
        std::thread::yield_now();
    }
    assert!(!runs(process), "the process still runs");
}

#[test]
fn a_killed_run_leaves_nothing_after_the_next_one() {
    if !require_root() {
        return;
    }
    if env::var_os(VICTIM).is_some() {
        die();
    }
    let (process, mount, said) = killed("a_killed_run_leaves_nothing_after_the_next_one");
    assert!(runs(&process) && is_mounted(&mount), "nothing to clean up: {said}");
    leftovers::sweep();
    assert_ends(&process);
    assert!(!is_mounted(&mount) && fs::metadata(&mount).is_err(), "the file system is still there");
}

#[test]
fn a_killed_measurement_takes_with_it_what_it_started_and_mounted() {
    if !require_root() {
        return;
    }
    if env::var_os(VICTIM).is_some() {
        leftovers::end_with_us();
        die();
    }
    let (process, mount, said) = killed("a_killed_measurement_takes_with_it_what_it_started_and_mounted");
    assert!(!is_mounted(&mount), "others see what it mounted: {said}");
    assert_ends(&process);
    // The other test may have removed it.
    let left = fs::read_dir(&mount).map_or(0, Iterator::count);
    assert_eq!(left, 0, "more than an empty directory is left: {said}");
    let _ = fs::remove_dir(&mount);
}
