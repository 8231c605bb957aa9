//! A data node: dials its front, proves itself, and hands the stream to a data process.

use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tokio::time::Instant;
use whimbrel_engine::{Fault, FaultCode, Side};

use super::config::DtnConfig;
use super::nodes::{NodeSecret, prove_to_front};
use crate::keepalive;
use crate::monitor::keeper::{account, is_root};

const FIRST_PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// Serves a front for as long as `drain` is false, joining again whenever the stream is lost.
pub async fn serve_front(config: &DtnConfig, program: &Path, mut drain: watch::Receiver<bool>) -> Result<(), Fault> {
    let front = config.data_node_of.clone().unwrap_or_default();
    let missing = || Fault::new(FaultCode::InvalidArgument, "configure").detail("a data node needs --node-secret FILE");
    let secret = NodeSecret::from_file(config.node_secret.as_deref().ok_or_else(missing)?)?;
    let overrides = serde_json::to_string(&config.node_overrides()?).expect("plain values serialise");
    let mut pause = FIRST_PAUSE;
    loop {
        let joined = tokio::select! {
            joined = join(&front, &secret) => joined,
            _ = drain.wait_for(|drain| *drain) => return Ok(()),
        };
        match joined {
            Ok(stream) => {
                pause = FIRST_PAUSE;
                println!("joined {front}");
                let child = start(config, program, &overrides, stream)?;
                if wait(child, &mut drain, config.drain_timeout.map(Duration::from_secs)).await? {
                    return Ok(());
                }
                tracing::warn!(front, "the front is gone; joining again");
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

async fn join(front: &str, secret: &NodeSecret) -> Result<TcpStream, Fault> {
    let failed = |error| Fault::from_io(error, "connect to front").side(Side::Network);
    let mut stream = TcpStream::connect(front).await.map_err(failed)?;
    keepalive::set(&stream, keepalive::NODE).map_err(failed)?;
    prove_to_front(&mut stream, secret).await?;
    Ok(stream)
}

fn start(config: &DtnConfig, program: &Path, overrides: &str, stream: TcpStream) -> Result<Child, Fault> {
    let failed = |error| Fault::from_io(error, "start data process").side(Side::Us);
    let stream = stream.into_std().map_err(failed)?;
    stream.set_nonblocking(false).map_err(failed)?;
    let mut command = Command::new(program);
    command.args(["data-process", "--overrides", overrides]);
    command.stdin(Stdio::from(OwnedFd::from(stream))).stdout(Stdio::null()).process_group(0);
    if is_root() {
        let account = account(config.anonymous_user.as_deref().unwrap_or("nobody"))?;
        command.uid(account.uid).gid(account.gid);
    }
    command.spawn().map_err(failed)
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
