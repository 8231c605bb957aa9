//! What a killed test run leaves behind is ended by the next one.

use std::process::Command;
use std::time::{Duration, Instant};
use std::{env, fs};

use whimbrel_testkit::lab::{Lab, Link};
use whimbrel_testkit::peers::{Daemon, Tool};
use whimbrel_testkit::tmpfs::Tmpfs;
use whimbrel_testkit::{leftovers, require_root};

const NAME: &str = "a_killed_run_leaves_nothing_after_the_next_one";
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

#[test]
fn a_killed_run_leaves_nothing_after_the_next_one() {
    if !require_root() {
        return;
    }
    if env::var_os(VICTIM).is_some() {
        die();
    }
    let victim = Tool::new(env::current_exe().expect("own name")).args(["--exact", NAME, "--nocapture"]);
    let run = victim.env(VICTIM, "1").run().expect("started");
    let said = run.stdout_text();
    let words: Vec<&str> = said.lines().find_map(|line| line.strip_prefix("left ")).expect(&said).split(' ').collect();
    let [process, mount] = words[..] else { panic!("{run}") };
    assert!(runs(process) && is_mounted(mount), "nothing to clean up: {run}");
    leftovers::sweep();
    let start = Instant::now();
    while runs(process) && start.elapsed() < Duration::from_secs(10) {
        std::thread::yield_now();
    }
    assert!(!runs(process), "the process still runs");
    assert!(!is_mounted(mount) && fs::metadata(mount).is_err(), "the file system is still there");
}
