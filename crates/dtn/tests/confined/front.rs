//! A front that was taken over: the process that parses what strangers say and holds the host's key.

use std::fs;
use std::io::{self, Read as _, Write as _};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use rustix::process::{PidfdFlags, PidfdGetfdFlags, Resource, Rlimit};
use whimbrel_dtn::confine::{self, Held, Needs, Sandbox};
use whimbrel_dtn::front::DtnConfig;
use whimbrel_dtn::monitor::front_settings;
use whimbrel_sys::meddling::{self, Meddling};

use crate::{
    ACCOUNT, Findings, GROUND, PEER, become_account, findings_of, ground_of_another, is_refused, named, report, typing,
    word,
};

/// What a front that was taken over still can.
const WORK: [&str; 5] = [
    "draw random bytes",
    "serve a connection to the socket that it was given",
    "settings of the kernel's network",
    "start thread",
    "talk to itself",
];

/// What is refused already because the account may not, bare of a sandbox.
const NOT_PERMITTED: [&str; 9] = [
    "become root",
    "change another user's file",
    "list another user's directory",
    "open a packet socket",
    "open a raw socket",
    "read another user's file",
    "read another user's file by a link",
    "read its starter's memory",
    "signal its starter",
];

/// What only the sandbox refuses: other processes of the account (guests' files are served by one of the same account where there is no
/// account `whimbrel`), what everybody may read, the network, programs.
const CONFINED: [&str; 18] = [
    "connect",
    "connect to a local service",
    "execute a shell",
    "list processes",
    "listen",
    "listen as a local service",
    "make a file",
    "read a public file",
    "read the list of accounts",
    "send datagrams",
    "twin: limit",
    "twin: read its memory",
    "twin: signal",
    "twin: signal: Owner",
    "twin: signal: SocketOwner",
    "twin: signal: Thread",
    "twin: take a descriptor",
    "twin: trace",
];

/// Another process of the same account, as the data process of guests is; it ends with its standard input.
struct Twin(Child);

impl Twin {
    fn start() -> Self {
        let mut child = Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        // Once it answers it is the program, which shows its memory to its account, and no copy of this one.
        child.stdin.as_mut().unwrap().write_all(b"!").unwrap();
        child.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
        Self(child)
    }

    /// What the account may do to it; `socket` is one of the attacker's own.
    fn attempts(&self, socket: &TcpListener, note: &mut dyn FnMut(&str, String)) {
        let id = self.0.id();
        let pid = rustix::process::Pid::from_child(&self.0);
        note("twin: read its memory", word(fs::File::open(format!("/proc/{id}/mem"))));
        note("twin: trace", word(meddling::trace(id)));
        note("twin: signal", word(rustix::process::test_kill_process(pid).map_err(io::Error::from)));
        for meddling in Meddling::ALL {
            note(&format!("twin: signal: {meddling:?}"), word(meddling.attempt(id, socket)));
        }
        let limit = Rlimit { current: Some(1 << 20), maximum: Some(1 << 20) };
        let limited = rustix::process::prlimit(Some(pid), Resource::Fsize, limit);
        note("twin: limit", word(limited.map_err(io::Error::from)));
        let taken = rustix::process::pidfd_open(pid, PidfdFlags::empty())
            .and_then(|process| rustix::process::pidfd_getfd(process, 0, PidfdGetfdFlags::empty()));
        note("twin: take a descriptor", word(taken.map_err(io::Error::from)));
    }
}

/// Everything that is tried; `ground` holds what is others', `listening` is a socket as the front is given them.
fn attempts(ground: &Path, peer: &str, listening: &TcpListener, twin: &Twin) -> Findings {
    let mut findings = Findings::new();
    let mut note = |what: &str, outcome: String| {
        findings.insert(what.to_owned(), outcome);
    };
    // Its work. Somebody has called already.
    let served = listening.accept().and_then(|(mut caller, _)| caller.write_all(b"220 Hello.\r\n"));
    note("serve a connection to the socket that it was given", word(served));
    note("settings of the kernel's network", word(fs::read("/proc/sys/net/core/somaxconn")));
    note("draw random bytes", word(fs::File::open("/dev/urandom").and_then(|mut dev| dev.read_exact(&mut [0; 8]))));
    note("start thread", word(std::thread::Builder::new().spawn(|| 7).map(|thread| thread.join().unwrap())));
    note("talk to itself", word(UnixStream::pair()));
    // What it was taken over for: files.
    let (secret, own) = (ground.join("secret"), ground.join("own"));
    note("read another user's file", word(fs::read(&secret)));
    note("read another user's file by a link", word(fs::read(own.join("way-out"))));
    note("change another user's file", word(fs::OpenOptions::new().append(true).open(&secret)));
    note("list another user's directory", word(fs::read_dir(ground.join("closed"))));
    note("read a public file", word(fs::read(own.join("program"))));
    note("read the list of accounts", word(fs::read("/etc/passwd")));
    note("list processes", word(fs::read_dir("/proc")));
    note("make a file", word(fs::write(own.join("planted"), "x")));
    // The network.
    note("connect", word(TcpStream::connect(peer)));
    note("listen", word(TcpListener::bind("127.0.0.1:0")));
    note("send datagrams", word(UdpSocket::bind("127.0.0.1:0")));
    note("connect to a local service", word(UnixStream::connect(ground.join("service"))));
    note("listen as a local service", word(UnixListener::bind(own.join("service"))));
    let raw = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::from(3), Some(socket2::Protocol::ICMPV4));
    note("open a raw socket", word(raw));
    let packet = socket2::Socket::new(socket2::Domain::from(17), socket2::Type::from(3), None);
    note("open a packet socket", word(packet));
    // Programs, processes, rights.
    note("execute a shell", word(Command::new("/bin/sh").args(["-c", "true"]).status()));
    let starter = rustix::process::getppid().unwrap();
    note("read its starter's memory", word(fs::File::open(format!("/proc/{}/mem", starter.as_raw_nonzero()))));
    note("signal its starter", word(rustix::process::test_kill_process(starter).map_err(io::Error::from)));
    note("become root", word(rustix::thread::set_thread_uid(rustix::process::Uid::ROOT).map_err(io::Error::from)));
    twin.attempts(listening, &mut note);
    findings
}

/// Whoever may connect to it is answered by the kernel.
fn called() -> (TcpListener, TcpStream) {
    let listening = TcpListener::bind("127.0.0.1:0").unwrap();
    let caller = TcpStream::connect(listening.local_addr().unwrap()).unwrap();
    (listening, caller)
}

#[test]
#[ignore = "runs inside of another test"]
fn attacker() {
    let (Some(ground), Ok(peer)) = (std::env::var_os(GROUND), std::env::var(PEER)) else { return };
    let ground = Path::new(&ground);
    become_account();
    let twin = Twin::start();
    let (listening, _caller) = called();
    let bare = attempts(ground, &peer, &listening, &twin);
    for made in ["planted", "service"] {
        fs::remove_file(ground.join("own").join(made)).unwrap();
    }
    let (listening, _caller) = called();
    let config = DtnConfig { anonymous: true, root: Some(ground.join("own")), ..DtnConfig::default() };
    confine::keep_secrets().unwrap();
    let held = confine::enter(&Needs::front(&front_settings(&config).unwrap()), Sandbox::Require).unwrap().unwrap();
    assert_eq!((held.files, held.calls), (Held::Full, Held::Full));
    let inside = attempts(ground, &peer, &listening, &twin).into_iter().chain(typing()).collect();
    report(&named("bare", bare).chain(named("confined", inside)).collect());
}

#[test]
fn who_takes_the_front_over_is_stopped_by_permissions_and_then_by_the_sandbox() {
    let Some(ground) = ground_of_another() else { return };
    std::os::unix::fs::chown(ground.path().join("own"), Some(ACCOUNT), Some(ACCOUNT)).unwrap();
    let service = UnixListener::bind(ground.path().join("service")).unwrap();
    rustix::fs::chmod(ground.path().join("service"), rustix::fs::Mode::from_raw_mode(0o777)).unwrap();
    let peer = TcpListener::bind("127.0.0.1:0").unwrap();
    let findings = findings_of("front::attacker", ground.path(), &peer.local_addr().unwrap().to_string());
    let of = |circumstances: &str, wanted: &dyn Fn(&str) -> bool| -> Vec<String> {
        let inside = findings.iter().filter_map(|(what, outcome)| Some((what.strip_prefix(circumstances)?, outcome)));
        inside.filter(|(_, outcome)| wanted(outcome)).map(|(what, _)| what.to_owned()).collect()
    };
    let mut can: Vec<&str> = WORK.into_iter().chain(CONFINED).collect();
    can.sort_unstable();
    assert_eq!(of("bare: ", &is_refused), NOT_PERMITTED, "{findings:#?}");
    assert_eq!(of("bare: ", &|word| word == "ok"), can, "{findings:#?}");
    let refused = of("confined: ", &is_refused);
    assert_eq!(of("confined: ", &|word| word == "ok"), WORK, "{findings:#?}");
    assert_eq!(refused.len(), NOT_PERMITTED.len() + CONFINED.len() + 3, "{findings:#?}");
    assert_eq!(refused.len() + WORK.len(), of("confined: ", &|_| true).len(), "{findings:#?}");
    assert_eq!(fs::read_to_string(ground.path().join("secret")).unwrap(), "another user's");
    assert!(!ground.path().join("own/planted").exists());
    drop(service);
}
