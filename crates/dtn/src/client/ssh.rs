//! Servers that ssh starts (`sshftp://`): the control connection runs over the input and output of the user's own ssh.
//!
//! ssh asks for passwords and unknown host keys on the terminal itself; what it says besides is kept for messages.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream as Socket;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use bytes::BytesMut;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use tokio::io::AsyncReadExt as _;
use tokio::net::UnixStream;
use tokio::sync::Semaphore;
use tokio::time::timeout;
use whimbrel_engine::{Fault, FaultCode, Side};
use whimbrel_sys::poll::{self, PollFd, PollFlags};
use whimbrel_sys::retry;

use super::target::{AddressFamily, SessionOptions, Target};
use crate::ssh;

const OP: &str = "start a server by ssh";

/// What stands before the addresses in the first line that the other host prints.
const PREFACE: &str = "whimbrel-ssh";

/// Longest text in front of that line, bytes: what shells print at login.
const MOST_NOISE: usize = 64 << 10;

/// What ssh and the server said last and is kept, bytes.
const KEPT: usize = 4 << 10;

/// How long ssh may take to end when its output has ended.
const END: Duration = Duration::from_secs(5);

/// How long what it said last may take after its end.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// Questions on a terminal come one after the other.
static ON_TERMINAL: Semaphore = Semaphore::const_new(1);

/// Fewer than an sshd lets in at once that have not logged in yet (MaxStartups 10:30:100).
static UNATTENDED: Semaphore = Semaphore::const_new(4);

/// What the login shell of the other host, whichever that is, is told to run: a line with the addresses, then a server. What the user
/// there, or the host's administrator, has set up for sshftp comes first: it knows about ports and interfaces. No single quotes, back
/// slashes or exclamation marks: shells read them differently.
const REMOTE: &str = "for server in \"$HOME/.globus/sshftp\" /etc/grid-security/sshftp; do \
    if test -x \"$server\"; then exec \"$server\"; fi; done; \
    PATH=\"$PATH:/usr/local/bin:$HOME/.local/bin:$HOME/.cargo/bin\"; export PATH; \
    if command -v whimbrel >/dev/null 2>&1; then exec whimbrel dtn --stdio; fi; \
    echo whimbrel-ssh none; exit 127";

/// A running ssh; dropping it ends it.
#[derive(Debug)]
pub(super) struct Ssh {
    child: Child,
    said: Said,
    /// Ends with what it says.
    silence: Option<Receiver<()>>,
    host: String,
}

/// The end of what a program says on its standard error.
#[derive(Debug, Clone, Default)]
struct Said(Arc<Mutex<Vec<u8>>>);

/// A server that ssh has started.
pub(super) struct Started {
    /// To the server.
    pub(super) stream: UnixStream,
    /// Between them.
    pub(super) ssh: Ssh,
    /// What the server has said already.
    pub(super) input: BytesMut,
    /// Its address, and ours on the way there.
    pub(super) ends: (SocketAddr, SocketAddr),
}

/// Starts ssh and waits until the other host has answered.
///
/// # Errors
/// What ssh says: `PeerIdentity` for a host key that is not the known one, `LoginFailed`, `PeerIncompatible` where there is no server
/// to start, the usual ones of connections.
pub(super) async fn start(target: &Target, options: &SessionOptions) -> Result<Started, Fault> {
    let attended = is_attended();
    let turn = if attended { &ON_TERMINAL } else { &UNATTENDED }.acquire().await;
    let failed = |error| Fault::from_io(error, OP).side(Side::Us);
    let (ours, theirs) = Socket::pair().map_err(failed)?;
    let mut ssh = Ssh::spawn(command(target, options, attended)?, theirs, target)?;
    ours.set_nonblocking(true).map_err(failed)?;
    let mut stream = UnixStream::from_std(ours).map_err(failed)?;
    let mut input = BytesMut::with_capacity(8 << 10);
    let found = timeout(options.reply_timeout, preface(&mut stream, &mut input)).await;
    drop(turn);
    let told = match found {
        Ok(Ok(Preface::Found(told))) => told,
        Ok(Ok(Preface::NoServer)) => return Err(no_server(target)),
        Ok(Ok(Preface::Incomplete) | Err(_)) => {
            let lost = Fault::new(FaultCode::ConnectionLost, OP).side(Side::Network).subject(target.to_string());
            return Err(ssh.explain(lost.detail("the other host ended the connection")).await);
        }
        Err(_) => {
            let silent = Fault::new(FaultCode::TimedOut, OP).side(Side::Network).subject(target.to_string());
            return Err(silent.detail(format!("no answer in {} s", options.reply_timeout.as_secs())));
        }
    };
    let ends = ends(told, target, options).await?;
    Ok(Started { stream, ssh, input, ends })
}

fn no_server(target: &Target) -> Fault {
    let fault = Fault::new(FaultCode::PeerIncompatible, OP).side(Side::Peer).subject(target.to_string());
    fault.detail(
        "the login works, but that host has no server to start: neither ~/.globus/sshftp nor /etc/grid-security/sshftp \
         nor whimbrel; with whimbrel installed there, `whimbrel dtn --install-sshftp` makes one of them",
    )
}

/// Whether ssh can ask somebody.
fn is_attended() -> bool {
    let terminal = std::fs::OpenOptions::new().read(true).write(true).open("/dev/tty").is_ok();
    terminal || std::env::var_os("SSH_ASKPASS").is_some()
}

/// The user's own ssh with its configuration, keys and agent, less what would disturb a stream of bytes (as scp does).
fn command(target: &Target, options: &SessionOptions, attended: bool) -> Result<Command, Fault> {
    let program = std::env::var("WHIMBREL_SSH").ok().filter(|program| !program.trim().is_empty());
    let program = program.unwrap_or_else(|| "ssh".to_owned());
    let mut words = program.split_whitespace();
    let mut command = Command::new(words.next().unwrap_or("ssh"));
    command.args(words).args(["-x", "-T", "-oClearAllForwardings=yes", "-oPermitLocalCommand=no"]);
    command.args(["-oRemoteCommand=none", "-oRequestTTY=no"]);
    command.arg(format!("-oConnectTimeout={}", options.connect_timeout.as_secs().max(1)));
    if !attended {
        command.arg("-oBatchMode=yes");
    }
    match options.family {
        AddressFamily::Any => {}
        AddressFamily::V4 => drop(command.arg("-4")),
        AddressFamily::V6 => drop(command.arg("-6")),
    }
    if target.port != 0 {
        command.arg("-p").arg(target.port.to_string());
    }
    if let Some(user) = &target.user {
        command.arg("-l").arg(plain_user(user)?);
    }
    command.arg("--").arg(&target.host).arg(remote_command());
    Ok(command)
}

/// A name that neither ssh nor commands in its configuration can take for something else.
fn plain_user(user: &str) -> Result<&str, Fault> {
    let odd = |c: char| c.is_whitespace() || c.is_control() || "'`\"$\\;&<>|(){}!".contains(c);
    // A domain stands before a back slash: `SITE\ada`.
    let is_plain = !user.is_empty() && !user.starts_with('-') && !user.replacen('\\', "", 1).contains(odd);
    match is_plain {
        true => Ok(user),
        false => Err(Fault::new(FaultCode::InvalidArgument, OP).subject(user).detail("this is no user name for ssh")),
    }
}

fn remote_command() -> String {
    let set = |name| std::env::var(name).ok().filter(|value| !value.trim().is_empty());
    let server = match set("WHIMBREL_REMOTE_SSHFTP").or_else(|| set("GLOBUS_REMOTE_SSHFTP")) {
        Some(command) => command,
        None => format!("exec sh -c '{REMOTE}'"),
    };
    // Every shell has this much in common.
    format!("sh -c 'echo \"{PREFACE} $SSH_CONNECTION\"'; {server}")
}

impl Ssh {
    fn spawn(mut command: Command, both: Socket, target: &Target) -> Result<Self, Fault> {
        let program = command.get_program().to_string_lossy().into_owned();
        let failed = |error| Fault::from_io(error, OP).subject(&program).side(Side::Us);
        let output = both.try_clone().map_err(failed)?;
        command.stdin(Stdio::from(OwnedFd::from(both))).stdout(Stdio::from(OwnedFd::from(output)));
        let mut child = command.stderr(Stdio::piped()).spawn().map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => Fault::new(FaultCode::NotSupported, OP)
                .subject(&program)
                .side(Side::Us)
                .detail("there is no such program on this host: install OpenSSH's client, or name one in WHIMBREL_SSH"),
            _ => failed(error),
        })?;
        let (said, host) = (Said::default(), target.to_string());
        let silence = child.stderr.take().map(|stderr| said.clone().listen(stderr, host.clone()));
        Ok(Self { child, said, silence, host })
    }

    /// The host, for people.
    pub(super) fn host(&self) -> &str {
        &self.host
    }

    /// Why there is no login: what ssh or the server's shell says, if this fault came of their end.
    pub(super) async fn explain(&mut self, fault: Fault) -> Fault {
        if fault.code != FaultCode::ConnectionLost {
            return fault;
        }
        let status = self.ended().await;
        let said = self.said.text();
        let Some(code) = cause(status.and_then(|status| status.code()), &said) else { return fault };
        let said = if said.is_empty() { "ssh ended without a word".to_owned() } else { said };
        let side = match code {
            FaultCode::HostNotFound | FaultCode::ConnectionLost | FaultCode::HostUnreachable => Side::Network,
            FaultCode::ConnectionRefused | FaultCode::TimedOut => Side::Network,
            FaultCode::InvalidArgument => Side::Us,
            _ => Side::Peer,
        };
        Fault::new(code, fault.op).side(side).subject(self.host.clone()).detail(said)
    }

    /// Waits for its end, but not for ever.
    async fn ended(&mut self) -> Option<ExitStatus> {
        let pid = Pid::from_child(&self.child);
        if let Ok(handle) = pidfd_open(pid, PidfdFlags::empty()) {
            let silence = self.silence.take();
            let wait = move || {
                let ended = poll::wait(&mut [PollFd::new(&handle, PollFlags::IN)], Some(END));
                // What it said last comes at once, or never.
                silence.map(|silence| silence.recv_timeout(LAST_WORDS));
                ended
            };
            // Where it cannot be waited for, what is known now has to do.
            let _ready = tokio::task::spawn_blocking(wait).await;
        }
        self.child.try_wait().ok().flatten()
    }
}

impl Drop for Ssh {
    fn drop(&mut self) {
        if let Ok(None) = self.child.try_wait() {
            // It may end by itself in between, which is as good.
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

impl Said {
    /// Reads to the end, on a thread of its own: a connection that other ssh processes share may keep it open for hours.
    fn listen(self, mut from: impl io::Read + Send + 'static, host: String) -> Receiver<()> {
        let (end, silence) = mpsc::channel();
        let listen = move || {
            let _end: Sender<()> = end;
            let mut part = [0; 1024];
            while let Ok(count @ 1..) = retry::read(&mut from, &mut part) {
                tracing::debug!(host, said = %String::from_utf8_lossy(&part[..count]).trim_end(), "ssh");
                self.add(&part[..count]);
            }
        };
        // Without it messages are poorer, nothing else.
        let _ = thread::Builder::new().name("ssh-errors".to_owned()).stack_size(64 << 10).spawn(listen);
        silence
    }

    fn add(&self, bytes: &[u8]) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.extend_from_slice(bytes);
        let surplus = kept.len().saturating_sub(KEPT);
        kept.drain(..surplus);
    }

    /// Its lines as one, without what cannot be shown.
    fn text(&self) -> String {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let text = String::from_utf8_lossy(&kept);
        let lines = text
            .lines()
            .map(|line| line.replace(char::is_control, ""))
            .map(|line| line.trim_matches([' ', '@']).to_owned());
        let lines: Vec<String> = lines.filter(|line| line.contains(char::is_alphanumeric)).collect();
        lines.join("; ")
    }
}

/// What the end of ssh means; `None`: nothing that it says.
fn cause(status: Option<i32>, said: &str) -> Option<FaultCode> {
    let says = |texts: &[&str]| texts.iter().any(|text| said.contains(text));
    Some(match status {
        Some(126 | 127) => FaultCode::PeerIncompatible,
        Some(255) if says(&["Host key verification failed", "HOST IDENTIFICATION HAS CHANGED"]) => {
            FaultCode::PeerIdentity
        }
        Some(255) if says(&["Permission denied", "Too many authentication failures", "authentication methods"]) => {
            FaultCode::LoginFailed
        }
        Some(255) if says(&["Could not resolve hostname"]) => FaultCode::HostNotFound,
        Some(255) if says(&["Connection refused"]) => FaultCode::ConnectionRefused,
        Some(255) if says(&["timed out"]) => FaultCode::TimedOut,
        Some(255) if says(&["No route to host", "unreachable"]) => FaultCode::HostUnreachable,
        Some(255) if says(&["Bad configuration option", "no such identity", "Bad owner or permissions"]) => {
            FaultCode::InvalidArgument
        }
        Some(255) => FaultCode::ConnectionLost,
        // The server, or the shell that should have started it.
        Some(_) if !said.is_empty() => FaultCode::PeerRefused,
        _ => return None,
    })
}

/// What the other host has printed before its server speaks.
#[derive(Debug, PartialEq, Eq)]
enum Preface {
    /// The addresses that it told, if it did: some hosts run one program whatever is asked for. The server's first reply follows.
    Found(Option<(SocketAddr, SocketAddr)>),
    /// There is no server there.
    NoServer,
    /// The end came first.
    Incomplete,
}

async fn preface(stream: &mut UnixStream, input: &mut BytesMut) -> io::Result<Preface> {
    let mut told = None;
    let mut noise = 0;
    loop {
        let before = input.len();
        if let Some(preface) = find_preface(input, &mut told) {
            return Ok(preface);
        }
        noise += before - input.len();
        if noise + input.len() > MOST_NOISE || stream.read_buf(input).await? == 0 {
            return Ok(Preface::Incomplete);
        }
    }
}

/// Takes whole lines in front of the server's first reply; `None`: more has to come.
fn find_preface(input: &mut BytesMut, told: &mut Option<(SocketAddr, SocketAddr)>) -> Option<Preface> {
    loop {
        let digits = input.iter().take_while(|byte| byte.is_ascii_digit()).count();
        if digits == 3 && matches!(input.get(3), Some(b' ' | b'-')) {
            return Some(Preface::Found(*told));
        }
        let end = input.iter().position(|&byte| byte == b'\n')?;
        let line = input.split_to(end + 1);
        let line = String::from_utf8_lossy(&line);
        match line.trim_end().strip_prefix(PREFACE).map(str::trim_start) {
            Some("none") => return Some(Preface::NoServer),
            Some(addresses) => *told = ssh::connection(addresses),
            None => tracing::debug!(%line, "in front of the server"),
        }
    }
}

/// Addresses of server and client: as the server's side sees its own, and as this host reaches it.
async fn ends(
    told: Option<(SocketAddr, SocketAddr)>,
    target: &Target,
    options: &SessionOptions,
) -> Result<(SocketAddr, SocketAddr), Fault> {
    if let Some((client, server)) = told {
        return Ok((server, way_to(server).unwrap_or(client)));
    }
    let port = if target.port == 0 { 22 } else { target.port };
    let known = Target { port, ..target.clone() };
    let server = super::channel::resolve(&known, options.family).await?.into_iter().next();
    let server = server.ok_or_else(|| Fault::new(FaultCode::HostNotFound, OP).subject(&target.host))?;
    let here = way_to(server).map_err(|error| Fault::from_io(error, OP).side(Side::Network))?;
    Ok((server, here))
}

/// The address of this host from where another one is reached; nothing is sent.
fn way_to(server: SocketAddr) -> io::Result<SocketAddr> {
    let any: SocketAddr = if server.is_ipv4() { ([0, 0, 0, 0], 0).into() } else { ([0u16; 8], 0).into() };
    let socket = UdpSocket::bind(any)?;
    socket.connect(server)?;
    socket.local_addr()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> (Option<Preface>, String) {
        let (mut input, mut told) = (BytesMut::from(text.as_bytes()), None);
        let found = find_preface(&mut input, &mut told);
        (found, String::from_utf8_lossy(&input).into_owned())
    }

    fn addresses() -> Option<(SocketAddr, SocketAddr)> {
        Some(("192.0.2.1:5".parse().unwrap(), "192.0.2.2:22".parse().unwrap()))
    }

    #[test]
    fn the_addresses_come_in_front_of_the_greeting_and_shells_may_print_what_they_like() {
        let told = "whimbrel-ssh 192.0.2.1 5 192.0.2.2 22\n220-hello\r\n220 x\r\n";
        let greeting = "220-hello\r\n220 x\r\n".to_owned();
        assert_eq!(found(told), (Some(Preface::Found(addresses())), greeting.clone()));
        let noise = format!("Welcome!\n\n12 jobs\r\n{told}");
        assert_eq!(found(&noise), (Some(Preface::Found(addresses())), greeting.clone()));
        assert_eq!(found(&greeting), (Some(Preface::Found(None)), greeting.clone()), "a forced command");
        assert_eq!(found(&format!("whimbrel-ssh \n{greeting}")), (Some(Preface::Found(None)), greeting));
        assert_eq!(found("whimbrel-ssh 192.0.2.1 5 192.0.2.2 22\n22"), (None, "22".to_owned()));
        assert_eq!(found("noise\nwhimbrel-ssh x\nwhimbrel-ssh none\n").0, Some(Preface::NoServer));
    }

    #[test]
    fn what_ssh_says_decides_about_the_fault() {
        let code = |status, said| cause(Some(status), said);
        assert_eq!(code(255, "Host key verification failed."), Some(FaultCode::PeerIdentity));
        assert_eq!(code(255, "ada@h: Permission denied (publickey)."), Some(FaultCode::LoginFailed));
        assert_eq!(code(255, "ssh: Could not resolve hostname h: x"), Some(FaultCode::HostNotFound));
        assert_eq!(code(255, "ssh: connect to host h port 2: Connection refused"), Some(FaultCode::ConnectionRefused));
        assert_eq!(code(255, ""), Some(FaultCode::ConnectionLost));
        assert_eq!(code(127, "sh: 1: x: not found"), Some(FaultCode::PeerIncompatible));
        assert_eq!(code(2, "whimbrel dtn: data is never handled as root"), Some(FaultCode::PeerRefused));
        assert_eq!(code(0, ""), None);
        assert_eq!(cause(None, "anything"), None, "it still runs");
    }

    #[test]
    fn what_was_said_is_kept_short_and_free_of_control_characters() {
        let said = Said::default();
        said.add(b"@@@@@@\n  one\x1b[31m\r\n\n two\n");
        assert_eq!(said.text(), "one[31m; two");
        said.add(&[b'x'; 2 * KEPT]);
        assert_eq!(said.text(), "x".repeat(KEPT));
    }

    #[test]
    fn names_that_ssh_could_misunderstand_are_refused() {
        for user in ["ada", "ada.b", "ada@SITE.ORG", "SITE\\ada"] {
            assert!(plain_user(user).is_ok(), "{user}");
        }
        for user in ["", "-oProxyCommand=x", "a b", "a;b", "$(x)", "a`b", "a\\b\\c", "a'b"] {
            assert!(plain_user(user).is_err(), "{user}");
        }
    }

    #[test]
    fn the_remote_command_means_the_same_to_every_shell() {
        assert!(!REMOTE.contains(['\'', '\\', '!', '\n']), "{REMOTE}");
        let run = |shell: &str| {
            let home = tempfile::tempdir().unwrap();
            let mut command = Command::new(shell);
            command
                .env("HOME", home.path())
                .env("SSH_CONNECTION", "192.0.2.1 5 192.0.2.2 22")
                .env("PATH", "/usr/bin:/bin");
            command.arg("-c").arg(format!("sh -c 'echo \"{PREFACE} $SSH_CONNECTION\"'; exec sh -c '{REMOTE}'"));
            String::from_utf8(command.output().unwrap().stdout).unwrap()
        };
        let told = run("sh");
        assert!(told.starts_with("whimbrel-ssh 192.0.2.1 5 192.0.2.2 22\n"), "{told}");
        assert_eq!(run("bash"), told);
    }
}
