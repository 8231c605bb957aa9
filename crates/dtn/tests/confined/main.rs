//! Processes of a server that were taken over: what they try from inside is refused, and their own work is not.
//!
//! Each attacker is a test of this program that another one starts as a process of its own, for confinement is for good.

#![allow(missing_docs, clippy::unwrap_used)]

mod data;
mod fetcher;
mod front;
#[path = "../mover_support/mod.rs"]
mod mover_support;

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;
use std::process::Command;

use whimbrel_sys::terminal::Request;

/// Where the test that is the attacker finds its directory; without it that test does nothing.
const GROUND: &str = "WHIMBREL_ATTACK_GROUND";

/// Where an attacker's peer listens.
const PEER: &str = "WHIMBREL_ATTACK_PEER";

/// An account that is not root's and owns nothing: that of the front or of a mapped user, here `nobody`.
const ACCOUNT: u32 = 65_534;

/// This thread, and those that it starts, have the rights of that account from now on, as a data process has from its beginning.
fn become_account() {
    let (user, group) = (rustix::process::Uid::from_raw(ACCOUNT), rustix::process::Gid::from_raw(ACCOUNT));
    rustix::thread::set_thread_groups(&[]).unwrap();
    rustix::thread::set_thread_res_gid(group, group, group).unwrap();
    rustix::thread::set_thread_res_uid(user, user, user).unwrap();
}

/// What each attempt came to: `ok`, or the name of the error.
type Findings = BTreeMap<String, String>;

fn word<T>(result: io::Result<T>) -> String {
    match result {
        Ok(_) => "ok".to_owned(),
        Err(error) => error.raw_os_error().map_or_else(|| error.to_string(), |number| format!("errno {number}")),
    }
}

/// EPERM of seccomp or EACCES of Landlock and of permissions: refused, not failed by chance.
fn is_refused(outcome: &str) -> bool {
    ["errno 1", "errno 13"].contains(&outcome)
}

/// Findings with the circumstances that they were made in.
fn named(of: &str, findings: Findings) -> impl Iterator<Item = (String, String)> {
    findings.into_iter().map(move |(what, came)| (format!("{of}: {what}"), came))
}

/// Tells the starter what was found, past the test harness, which may hold back what is printed.
fn report(findings: &Findings) {
    let findings = serde_json::to_string(findings).unwrap();
    io::stderr().write_all(format!("FINDINGS {findings}\n").as_bytes()).unwrap();
}

/// What is asked of a terminal in the name of who sits there. Standard input is none here, which the kernel says (ENOTTY) where nobody refuses before it.
fn typing() -> impl Iterator<Item = (String, String)> {
    Request::ALL.into_iter().map(|request| (format!("terminal: {request:?}"), word(request.make(io::stdin()))))
}

/// What one of the tests above found when it ran as a process of its own.
fn findings_of(test: &str, ground: &Path, peer: &str) -> Findings {
    let run = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--ignored", "--nocapture", "--test-threads", "1"])
        .envs([(GROUND, ground.as_os_str()), (PEER, peer.as_ref())])
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&run.stderr).into_owned();
    let findings = text.lines().find_map(|line| line.strip_prefix("FINDINGS ")).unwrap_or_else(|| panic!("{text}"));
    serde_json::from_str(findings).unwrap()
}

fn ground() -> tempfile::TempDir {
    let ground = tempfile::tempdir().unwrap();
    let own = ground.path().join("own");
    fs::create_dir(&own).unwrap();
    fs::write(ground.path().join("secret"), "another user's").unwrap();
    symlink("../secret", own.join("way-out")).unwrap();
    let (certificates, elsewhere) = (ground.path().join("certificates"), ground.path().join("elsewhere"));
    for directory in [&certificates, &elsewhere] {
        fs::create_dir(directory).unwrap();
    }
    for file in [certificates.join("00000000.0"), elsewhere.join("ca.pem"), elsewhere.join("private")] {
        fs::write(file, "PEM").unwrap();
    }
    symlink("../elsewhere/ca.pem", certificates.join("00000001.0")).unwrap();
    fs::write(own.join("program"), "#!/bin/sh\n").unwrap();
    fs::set_permissions(own.join("program"), fs::Permissions::from_mode(0o755)).unwrap();
    ground
}

/// The same with a file and a directory of another account; `None` where nobody can become another one.
fn ground_of_another() -> Option<tempfile::TempDir> {
    if !rustix::process::geteuid().is_root() {
        assert!(std::env::var_os("CI").is_none(), "CI must run as root");
        println!("skipped: only root becomes another account");
        return None;
    }
    let ground = ground();
    let open = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    open(ground.path(), 0o755);
    open(&ground.path().join("secret"), 0o600);
    fs::create_dir(ground.path().join("closed")).unwrap();
    open(&ground.path().join("closed"), 0o700);
    Some(ground)
}
