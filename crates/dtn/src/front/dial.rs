//! A data node: dials its front, proves itself, and hands what is inside of the stream to a data process.

use std::io::{self, Write as _};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use tokio::net::{TcpStream, UnixStream};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tokio::time::Instant;
use whimbrel_engine::{Fault, FaultCode, Side};
use whimbrel_trust::tls::TlsMachine;

use super::config::DtnConfig;
use super::nodes::NodeSecret;
use super::sealed;
use crate::keepalive;
use crate::monitor::keeper::{account, is_root};
use crate::mover::message::NodeOverrides;

const FIRST_PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// How long a front may take to hear what an ended data process has said.
const LAST_WORDS: Duration = Duration::from_secs(5);

/// Serves a front for as long as `drain` is false, joining again whenever the stream is lost.
pub async fn serve_front(config: &DtnConfig, program: &Path, mut drain: watch::Receiver<bool>) -> Result<(), Fault> {
    let front = config.data_node_of.clone().unwrap_or_default();
    let missing = || Fault::new(FaultCode::InvalidArgument, "configure").detail("a data node needs --node-secret FILE");
    let secret = NodeSecret::from_file(config.node_secret.as_deref().ok_or_else(missing)?)?;
    let overrides = config.node_overrides()?;
    if config.metrics.is_some() {
        let fault = Fault::new(FaultCode::InvalidArgument, "configure").subject("metrics");
        return Err(fault.detail("a data node has no metrics of its own: the front's are about all of its nodes"));
    }
    // What cannot be written down is known before anybody is served.
    config.log_paths().open()?;
    let (mut pause, mut has_served) = (FIRST_PAUSE, false);
    loop {
        let joined = tokio::select! {
            joined = join(&front, &secret) => joined,
            _ = drain.wait_for(|drain| *drain) => return Ok(()),
        };
        match joined {
            Ok((stream, tls)) => {
                pause = FIRST_PAUSE;
                // Who started it may have stopped reading, which is no reason not to serve.
                if let Err(error) = writeln!(io::stdout(), "joined {front}") {
                    tracing::warn!(%error, front, "joined; standard output cannot be written");
                }
                let link_ip = stream.local_addr().ok().map(|address| address.ip().to_canonical());
                match start(config, program, &NodeOverrides { link_ip, ..overrides.clone() }) {
                    Ok((child, clear)) => {
                        has_served = true;
                        let carried = tokio::spawn(sealed::carry(stream, clear, tls));
                        let drained = wait(child, &mut drain, config.drain_timeout.map(Duration::from_secs)).await;
                        // What it said last is still on its way.
                        let _carried = tokio::time::timeout(LAST_WORDS, carried).await;
                        if drained? {
                            return Ok(());
                        }
                        tracing::warn!(front, "the front is gone; joining again");
                    }
                    // It could before: what the host lacks now may come back.
                    Err(fault) if has_served => tracing::warn!(%fault, front, "cannot serve"),
                    Err(fault) => return Err(fault),
                }
            }
            Err(fault) if fault.code == FaultCode::LoginFailed => return Err(fault.subject(front)),
            Err(fault) => tracing::warn!(%fault, front, "cannot join"),
        }
        tokio::select! {
            () = tokio::time::sleep(pause) => pause = (pause * 2).min(LONGEST_PAUSE),
            _ = drain.wait_for(|drain| *drain) => return Ok(()),
        }
    }
}

async fn join(front: &str, secret: &NodeSecret) -> Result<(TcpStream, TlsMachine), Fault> {
    let failed = |error| Fault::from_io(error, "connect to front").side(Side::Network);
    let mut stream = TcpStream::connect(front).await.map_err(failed)?;
    keepalive::set(&stream, keepalive::NODE).map_err(failed)?;
    let tls = sealed::join_front(&mut stream, secret).await?;
    Ok((stream, tls))
}

/// A data process, which never sees the secret, and our end of its stream.
fn start(config: &DtnConfig, program: &Path, overrides: &NodeOverrides) -> Result<(Child, UnixStream), Fault> {
    let failed = |error| Fault::from_io(error, "start data process").side(Side::Us);
    let overrides = serde_json::to_string(overrides).expect("plain values serialise");
    let (ours, theirs) = std::os::unix::net::UnixStream::pair().map_err(failed)?;
    ours.set_nonblocking(true).map_err(failed)?;
    let ours = UnixStream::from_std(ours).map_err(failed)?;
    let mut command = Command::new(program);
    command.args(["data-process", "--overrides", &overrides]);
    command.stdin(Stdio::from(OwnedFd::from(theirs)));
    command.stdout(config.log_paths().open_or_say().into_stdio().map_err(failed)?);
    whimbrel_sys::lifetime::own_session(&mut command);
    if is_root() {
        let account = account(config.anonymous_user.as_deref().unwrap_or("nobody"))?;
        let groups = whimbrel_sys::accounts::groups_of(&account.name, account.gid).map_err(failed)?;
        whimbrel_sys::accounts::become_account(&mut command, account.uid, account.gid, groups);
    }
    Ok((command.spawn().map_err(failed)?, ours))
}

/// Waits for the data process; true when it ended because of a drain.
///
/// Asked to leave, it finishes what it runs; after `patience` (`None`: however long that takes) it is ended, and the
/// front, which learns of the loss at once, has clients restart what it had not stored.
async fn wait(mut child: Child, drain: &mut watch::Receiver<bool>, patience: Option<Duration>) -> Result<bool, Fault> {
    let failed = |error| Fault::from_io(error, "wait for data process");
    let mut children = signal(SignalKind::child()).map_err(failed)?;
    let mut until: Option<Instant> = None;
    let mut asked = false;
    loop {
        if child.try_wait().map_err(failed)?.is_some() {
            return Ok(*drain.borrow());
        }
        tokio::select! {
            _ = children.recv() => {}
            _ = drain.wait_for(|drain| *drain), if !asked => {
                asked = true;
                until = patience.map(|patience| Instant::now() + patience);
                ask_to_leave(&child)?;
            }
            () = async { tokio::time::sleep_until(until.expect("guarded")).await }, if until.is_some() => {
                tracing::warn!("the drain's time is up; running transfers are cut");
                child.kill().map_err(failed)?;
                child.wait().map_err(failed)?;
                return Ok(true);
            }
        }
    }
}

fn ask_to_leave(child: &Child) -> Result<(), Fault> {
    let id = rustix::process::Pid::from_child(child);
    rustix::process::kill_process(id, rustix::process::Signal::TERM)
        .map_err(|error| Fault::from_io(error.into(), "ask data process to leave"))
}
