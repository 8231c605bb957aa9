//! The process that fetches keys, taken over.

use std::fs;
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::path::Path;
use std::process::Command;

use whimbrel_dtn::confine::{self, Needs, Sandbox};

use crate::{Findings, GROUND, PEER, findings_of, ground, is_refused, report, typing, word};

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
    report(&attempts_of_fetcher(Path::new(&ground), &peer));
}

#[test]
fn who_takes_the_fetcher_of_keys_over_finds_no_files_and_starts_nothing() {
    let ground = ground();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let peer = listener.local_addr().unwrap().to_string();
    let findings = findings_of("fetcher::fetcher", ground.path(), &peer);
    let (work, harm): (Vec<_>, Vec<_>) = findings.iter().partition(|(_, outcome)| *outcome == "ok");
    let expected = ["ask about a name", "connect", "read the addresses of hosts"];
    assert!(work.iter().map(|(what, _)| what.as_str()).eq(expected), "{findings:#?}");
    assert!(harm.iter().all(|(_, outcome)| is_refused(outcome)), "{findings:#?}");
    assert_eq!((harm.len(), ground.path().join("planted").exists()), (12, false));
}
