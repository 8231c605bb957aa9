//! A data process that was taken over: what it tries from inside is refused, and its own work is not.

#![allow(missing_docs, clippy::unwrap_used)]

mod mover_support;

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Write as _};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;
use std::process::Command;

use whimbrel_dtn::confine::{self, Held, Needs, Sandbox};
use whimbrel_dtn::mover::message::DataSettings;
use whimbrel_sys::terminal::Request;

/// Where the test that is the attacker finds its directory; without it that test does nothing.
const GROUND: &str = "WHIMBREL_ATTACK_GROUND";

fn settings(root: &Path, read_only: bool) -> DataSettings {
    let authorities = root.parent().map(|ground| ground.join("certificates").as_os_str().as_bytes().to_vec());
    DataSettings { read_only, authorities, sandbox: Sandbox::Require, ..mover_support::settings(root) }
}

/// Where the fetcher's peer listens.
const PEER: &str = "WHIMBREL_ATTACK_PEER";

/// What a data process that was taken over still can.
const WORK: [&str; 13] = [
    "accounts by name",
    "connect",
    "list authorities",
    "listen",
    "make directory",
    "read an authority",
    "read an authority by a link",
    "read own file",
    "remove",
    "rename across directories",
    "start thread",
    "what the host is like",
    "write own file",
];

/// How many of the other attempts there are.
const HARM: usize = 20;

/// What each attempt came to: `ok`, or the name of the error.
type Findings = BTreeMap<String, String>;

fn word<T>(result: io::Result<T>) -> String {
    match result {
        Ok(_) => "ok".to_owned(),
        Err(error) => error.raw_os_error().map_or_else(|| error.to_string(), |number| format!("errno {number}")),
    }
}

/// Everything that is tried; `ground` holds the served directory `own` and, beside it, a file that is not served.
fn attempts(ground: &Path) -> Findings {
    let own = ground.join("own");
    let mut findings = Findings::new();
    let mut note = |what: &str, outcome: String| {
        findings.insert(what.to_owned(), outcome);
    };
    // Its work.
    note("write own file", word(fs::write(own.join("new"), "text")));
    note("read own file", word(fs::read(own.join("new"))));
    note("make directory", word(fs::create_dir(own.join("dir"))));
    note("rename across directories", word(fs::rename(own.join("new"), own.join("dir/new"))));
    note("remove", word(fs::remove_file(own.join("dir/new"))));
    note("start thread", word(std::thread::Builder::new().spawn(|| 7).map(|thread| thread.join().unwrap())));
    let listener = TcpListener::bind("127.0.0.1:0");
    note(
        "connect",
        word(
            listener
                .as_ref()
                .map_err(|_| io::ErrorKind::Other.into())
                .and_then(|l| TcpStream::connect(l.local_addr()?)),
        ),
    );
    note("listen", word(listener));
    note("accounts by name", word(whimbrel_sys::names::user_name(1)));
    let certificates = ground.join("certificates");
    note("list authorities", word(fs::read_dir(&certificates)));
    note("read an authority", word(fs::read(certificates.join("00000000.0"))));
    note("read an authority by a link", word(fs::read(certificates.join("00000001.0"))));
    note("what the host is like", word(fs::read_to_string("/proc/sys/net/ipv4/tcp_rmem")));
    // What it was taken over for.
    note("add an authority", word(fs::write(certificates.join("00000002.0"), "x")));
    note("change an authority", word(fs::OpenOptions::new().append(true).open(certificates.join("00000001.0"))));
    note("read what is beside a linked authority", word(fs::read(ground.join("elsewhere/private"))));
    note("read another file", word(fs::read(ground.join("secret"))));
    note("read another file by a link", word(fs::read(own.join("way-out"))));
    note("write another file", word(fs::OpenOptions::new().append(true).open(ground.join("secret"))));
    note("make a file outside", word(fs::write(ground.join("planted"), "x")));
    note("list what is outside", word(fs::read_dir(ground)));
    note("execute a shell", word(Command::new("/bin/sh").args(["-c", "true"]).status()));
    note("execute what it stored", word(Command::new(own.join("program")).status()));
    let raw = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::from(3), Some(socket2::Protocol::ICMPV4));
    note("open a raw socket", word(raw));
    let packet = socket2::Socket::new(socket2::Domain::from(17), socket2::Type::from(3), None);
    note("open a packet socket", word(packet));
    note("send datagrams", word(UdpSocket::bind("127.0.0.1:0")));
    note(
        "read its starter's memory",
        word(fs::File::open(format!("/proc/{}/mem", rustix::process::getppid().unwrap().as_raw_nonzero()))),
    );
    note(
        "signal its starter",
        word(rustix::process::test_kill_process(rustix::process::getppid().unwrap()).map_err(Into::into)),
    );
    note("become root", word(rustix::thread::set_thread_uid(rustix::process::Uid::ROOT).map_err(Into::into)));
    for (what, outcome) in typing() {
        note(&what, outcome);
    }
    note(
        "mount",
        word(
            rustix::mount::mount("none", own.join("dir"), "tmpfs", rustix::mount::MountFlags::empty(), None)
                .map_err(Into::into),
        ),
    );
    findings
}

/// What is asked of a terminal in the name of who sits there. Standard input is none here, which the kernel says (ENOTTY) where nobody refuses before it.
fn typing() -> impl Iterator<Item = (String, String)> {
    Request::ALL.into_iter().map(|request| (format!("terminal: {request:?}"), word(request.make(io::stdin()))))
}

#[test]
#[ignore = "runs inside of another test"]
fn attacker() {
    let Some(ground) = std::env::var_os(GROUND) else { return };
    let ground = Path::new(&ground);
    let needs = Needs::data(&settings(&ground.join("own"), false));
    let held = confine::enter(&needs, Sandbox::Require).unwrap().unwrap();
    assert_eq!((held.files, held.calls), (Held::Full, Held::Full));
    let findings = serde_json::to_string(&attempts(ground)).unwrap();
    // Past the test harness, which may hold back what is printed.
    io::stderr().write_all(format!("FINDINGS {findings}\n").as_bytes()).unwrap();
}

/// An account that is not root's and owns nothing: that of a mapped user, here `nobody`.
const ACCOUNT: u32 = 65_534;

/// This thread, and those that it starts, have the rights of that account from now on, as a data process has from its beginning.
fn become_account() {
    let (user, group) = (rustix::process::Uid::from_raw(ACCOUNT), rustix::process::Gid::from_raw(ACCOUNT));
    rustix::thread::set_thread_groups(&[]).unwrap();
    rustix::thread::set_thread_res_gid(group, group, group).unwrap();
    rustix::thread::set_thread_res_uid(user, user, user).unwrap();
}

/// What a mapped user's process may try that is none of its business, without a sandbox.
fn attempts_by_account(ground: &Path) -> Findings {
    let (own, secret) = (ground.join("own"), ground.join("secret"));
    let raw = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::from(3), Some(socket2::Protocol::ICMPV4));
    let starter = rustix::process::getppid().unwrap();
    [
        ("write own file", word(fs::write(own.join("mine"), "text"))),
        ("read own file", word(fs::read(own.join("mine")))),
        ("read another user's file", word(fs::read(&secret))),
        ("read another user's file by a link", word(fs::read(own.join("way-out")))),
        ("change another user's file", word(fs::OpenOptions::new().append(true).open(&secret))),
        ("remove another user's file", word(fs::remove_file(&secret))),
        ("list another user's directory", word(fs::read_dir(ground.join("closed")))),
        ("open a raw socket", word(raw)),
        ("read its starter's memory", word(fs::File::open(format!("/proc/{}/mem", starter.as_raw_nonzero())))),
        ("signal its starter", word(rustix::process::test_kill_process(starter).map_err(Into::into))),
        ("become root", word(rustix::thread::set_thread_uid(rustix::process::Uid::ROOT).map_err(Into::into))),
    ]
    .map(|(what, outcome)| (what.to_owned(), outcome))
    .into()
}

#[test]
#[ignore = "runs inside of another test"]
fn mapped_attacker() {
    let Some(ground) = std::env::var_os(GROUND) else { return };
    let ground = Path::new(&ground);
    become_account();
    let bare = attempts_by_account(ground);
    let held = confine::enter(&Needs::data(&settings(&ground.join("own"), false)), Sandbox::Require).unwrap().unwrap();
    assert_eq!((held.files, held.calls), (Held::Full, Held::Full));
    let named = |of: &str, findings: Findings| {
        findings.into_iter().map(move |(what, came)| (format!("{of}: {what}"), came)).collect::<Vec<_>>()
    };
    let findings: Findings = named("bare", bare).into_iter().chain(named("confined", attempts(ground))).collect();
    let findings = serde_json::to_string(&findings).unwrap();
    io::stderr().write_all(format!("FINDINGS {findings}\n").as_bytes()).unwrap();
}

#[test]
fn who_takes_a_mapped_users_process_over_is_stopped_by_permissions_and_then_by_the_sandbox() {
    if !rustix::process::geteuid().is_root() {
        assert!(std::env::var_os("CI").is_none(), "CI must run as root");
        return println!("skipped: only root becomes another account");
    }
    let ground = ground();
    let open = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    open(ground.path(), 0o755);
    open(&ground.path().join("secret"), 0o600);
    fs::create_dir(ground.path().join("closed")).unwrap();
    open(&ground.path().join("closed"), 0o700);
    std::os::unix::fs::chown(ground.path().join("own"), Some(ACCOUNT), Some(ACCOUNT)).unwrap();
    let findings = findings_of("mapped_attacker", ground.path(), "");
    let (work, harm): (Vec<_>, Vec<_>) = findings.iter().partition(|(_, outcome)| *outcome == "ok");
    let work_of = |of: &str| work.iter().filter(|(what, _)| what.starts_with(of)).count();
    assert_eq!((work_of("bare: "), work_of("confined: ")), (2, WORK.len()), "{findings:#?}");
    assert!(harm.iter().all(|(_, outcome)| ["errno 1", "errno 13"].contains(&outcome.as_str())), "{findings:#?}");
    assert_eq!(harm.len(), 9 + HARM);
    assert!(findings.contains_key("confined: execute a shell"), "{findings:#?}");
    assert_eq!(fs::read_to_string(ground.path().join("secret")).unwrap(), "another user's");
}

/// What the process that fetches keys may try: connections are its work, and nothing else.
fn attempts_of_fetcher(ground: &Path, peer: &str) -> Findings {
    let raw = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::from(3), Some(socket2::Protocol::ICMPV4));
    let starter = rustix::process::getppid().unwrap();
    [
        ("connect", word(TcpStream::connect(peer))),
        ("ask about a name", word(UdpSocket::bind("127.0.0.1:0"))),
        ("read the addresses of hosts", word(fs::read("/etc/hosts"))),
        ("listen", word(TcpListener::bind("127.0.0.1:0"))),
        ("read a file", word(fs::read(ground.join("secret")))),
        ("list a directory", word(fs::read_dir(ground))),
        ("make a file", word(fs::write(ground.join("planted"), "x"))),
        ("change names of hosts", word(fs::OpenOptions::new().append(true).open("/etc/hosts"))),
        ("execute a shell", word(Command::new("/bin/sh").args(["-c", "true"]).status())),
        ("open a raw socket", word(raw)),
        ("signal its starter", word(rustix::process::test_kill_process(starter).map_err(Into::into))),
        ("become root", word(rustix::thread::set_thread_uid(rustix::process::Uid::ROOT).map_err(Into::into))),
    ]
    .map(|(what, outcome)| (what.to_owned(), outcome))
    .into_iter()
    .chain(typing())
    .collect()
}

#[test]
#[ignore = "runs inside of another test"]
fn fetcher() {
    let (Some(ground), Ok(peer)) = (std::env::var_os(GROUND), std::env::var(PEER)) else { return };
    confine::enter(&Needs::fetch(), Sandbox::Require).unwrap();
    let findings = serde_json::to_string(&attempts_of_fetcher(Path::new(&ground), &peer)).unwrap();
    io::stderr().write_all(format!("FINDINGS {findings}\n").as_bytes()).unwrap();
}

#[test]
fn who_takes_the_fetcher_of_keys_over_finds_no_files_and_starts_nothing() {
    let ground = ground();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let peer = listener.local_addr().unwrap().to_string();
    let findings = findings_of("fetcher", ground.path(), &peer);
    let (work, harm): (Vec<_>, Vec<_>) = findings.iter().partition(|(_, outcome)| *outcome == "ok");
    let expected = ["ask about a name", "connect", "read the addresses of hosts"];
    assert!(work.iter().map(|(what, _)| what.as_str()).eq(expected), "{findings:#?}");
    assert!(harm.iter().all(|(_, outcome)| ["errno 1", "errno 13"].contains(&outcome.as_str())), "{findings:#?}");
    assert_eq!((harm.len(), ground.path().join("planted").exists()), (12, false));
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

#[test]
fn who_takes_a_data_process_over_gets_no_further_than_its_directory() {
    let ground = ground();
    let findings = findings_of("attacker", ground.path(), "");
    let (work, harm): (Vec<_>, Vec<_>) = findings.iter().partition(|(_, outcome)| *outcome == "ok");
    assert!(work.iter().map(|(what, _)| what.as_str()).eq(WORK), "{findings:#?}");
    // EPERM of seccomp or EACCES of Landlock: refused, not failed by chance.
    assert!(harm.iter().all(|(_, outcome)| ["errno 1", "errno 13"].contains(&outcome.as_str())), "{findings:#?}");
    assert_eq!(harm.len(), HARM);
    assert_eq!(fs::read_to_string(ground.path().join("secret")).unwrap(), "another user's");
    assert!(!ground.path().join("planted").exists());
}

#[test]
fn a_read_only_tree_cannot_be_changed_from_inside() {
    let needs = Needs::data(&settings(Path::new("/data"), true));
    assert!(needs.read.iter().any(|path| path == Path::new("/data")));
    assert!(!needs.write.iter().any(|path| path == Path::new("/data")));
}
