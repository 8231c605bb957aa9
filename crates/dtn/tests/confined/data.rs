//! A data process that was taken over: its own work goes on, and what else it tries is refused.

use std::fs;
use std::io;
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::Command;

use whimbrel_dtn::confine::{self, Calls, Held, Needs, Sandbox};
use whimbrel_dtn::mover::message::DataSettings;

use crate::{
    ACCOUNT, Findings, GROUND, become_account, findings_of, ground, ground_of_another, is_refused, mover_support,
    named, report, typing, word,
};

/// What listens on this host, as the message bus of an account does: everybody may connect.
fn service(ground: &Path) -> UnixListener {
    let place = ground.join("service");
    let listening = UnixListener::bind(&place).unwrap();
    rustix::fs::chmod(&place, rustix::fs::Mode::from_raw_mode(0o777)).unwrap();
    listening
}

/// Of a host whose names of accounts are in files.
fn needs(root: &Path, read_only: bool) -> Needs {
    Needs { calls: Calls::Data, ..Needs::data(&settings(root, read_only)) }
}

fn settings(root: &Path, read_only: bool) -> DataSettings {
    let authorities = root.parent().map(|ground| ground.join("certificates").as_os_str().as_bytes().to_vec());
    DataSettings { read_only, authorities, sandbox: Sandbox::Require, ..mover_support::settings(root) }
}

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
const HARM: usize = 21;

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
    note("connect to a local service", word(UnixStream::connect(ground.join("service"))));
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

#[test]
#[ignore = "runs inside of another test"]
fn attacker() {
    let Some(ground) = std::env::var_os(GROUND) else { return };
    let ground = Path::new(&ground);
    let held = confine::enter(&needs(&ground.join("own"), false), Sandbox::Require).unwrap().unwrap();
    assert_eq!((held.files, held.calls), (Held::Full, Held::Full));
    report(&attempts(ground));
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
        ("connect to a local service", word(UnixStream::connect(ground.join("service")))),
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
    let held = confine::enter(&needs(&ground.join("own"), false), Sandbox::Require).unwrap().unwrap();
    assert_eq!((held.files, held.calls), (Held::Full, Held::Full));
    let findings = named("bare", bare).chain(named("confined", attempts(ground))).collect();
    report(&findings);
}

#[test]
fn who_takes_a_mapped_users_process_over_is_stopped_by_permissions_and_then_by_the_sandbox() {
    let Some(ground) = ground_of_another() else { return };
    std::os::unix::fs::chown(ground.path().join("own"), Some(ACCOUNT), Some(ACCOUNT)).unwrap();
    let _service = service(ground.path());
    let findings = findings_of("data::mapped_attacker", ground.path(), "");
    let (work, harm): (Vec<_>, Vec<_>) = findings.iter().partition(|(_, outcome)| *outcome == "ok");
    let work_of = |of: &str| work.iter().filter(|(what, _)| what.starts_with(of)).count();
    assert_eq!((work_of("bare: "), work_of("confined: ")), (3, WORK.len()), "{findings:#?}");
    assert!(harm.iter().all(|(_, outcome)| is_refused(outcome)), "{findings:#?}");
    assert_eq!(harm.len(), 9 + HARM);
    assert!(findings.contains_key("confined: execute a shell"), "{findings:#?}");
    assert_eq!(fs::read_to_string(ground.path().join("secret")).unwrap(), "another user's");
}

#[test]
fn who_takes_a_data_process_over_gets_no_further_than_its_directory() {
    let ground = ground();
    let _service = service(ground.path());
    let findings = findings_of("data::attacker", ground.path(), "");
    let (work, harm): (Vec<_>, Vec<_>) = findings.iter().partition(|(_, outcome)| *outcome == "ok");
    assert!(work.iter().map(|(what, _)| what.as_str()).eq(WORK), "{findings:#?}");
    assert!(harm.iter().all(|(_, outcome)| is_refused(outcome)), "{findings:#?}");
    assert_eq!(harm.len(), HARM);
    assert_eq!(fs::read_to_string(ground.path().join("secret")).unwrap(), "another user's");
    assert!(!ground.path().join("planted").exists());
}

/// Of the attempts above, those that the reach of the tree decides.
fn attempts_below_everything(ground: &Path, read_only: bool) -> Findings {
    become_account();
    let held = confine::enter(&needs(Path::new("/"), read_only), Sandbox::Require).unwrap().unwrap();
    assert_eq!((held.files, held.calls), (Held::Full, Held::Full));
    attempts(ground)
}

#[test]
#[ignore = "runs inside of another test"]
fn attacker_below_everything() {
    let Some(ground) = std::env::var_os(GROUND) else { return };
    report(&attempts_below_everything(Path::new(&ground), false));
}

#[test]
#[ignore = "runs inside of another test"]
fn reader_below_everything() {
    let Some(ground) = std::env::var_os(GROUND) else { return };
    report(&attempts_below_everything(Path::new(&ground), true));
}

#[test]
fn a_process_that_serves_everything_executes_nothing_of_it_and_changes_nothing_that_is_only_to_be_read() {
    let Some(ground) = ground_of_another() else { return };
    let _service = service(ground.path());
    let own = ground.path().join("own");
    std::os::unix::fs::chown(&own, Some(ACCOUNT), Some(ACCOUNT)).unwrap();
    let of = |test: &str| findings_of(test, ground.path(), "");
    let changing = of("data::attacker_below_everything");
    let done = |findings: &Findings, what: &str| match findings[what].as_str() {
        "ok" => true,
        outcome => {
            assert!(is_refused(outcome), "{what}: {outcome}");
            false
        }
    };
    for what in WORK {
        assert!(done(&changing, what), "{what}: {changing:#?}");
    }
    // Permissions say the rest.
    let refused = ["execute a shell", "execute what it stored", "read another file", "make a file outside"];
    for what in refused.into_iter().chain(["connect to a local service"]) {
        assert!(!done(&changing, what), "{what}: {changing:#?}");
    }
    assert!(done(&changing, "list what is outside"));
    fs::write(own.join("new"), "text").unwrap();
    let reading = of("data::reader_below_everything");
    for what in ["read own file", "list what is outside", "listen"] {
        assert!(done(&reading, what), "{what}: {reading:#?}");
    }
    for what in ["write own file", "rename across directories", "execute a shell", "execute what it stored"] {
        assert!(!done(&reading, what), "{what}: {reading:#?}");
    }
    assert_eq!(fs::read_to_string(own.join("new")).unwrap(), "text");
}

#[test]
fn a_read_only_tree_cannot_be_changed_from_inside() {
    let needs = Needs::data(&settings(Path::new("/data"), true));
    assert!(needs.read.iter().any(|path| path == Path::new("/data")));
    assert!(!needs.write.iter().any(|path| path == Path::new("/data")));
}
