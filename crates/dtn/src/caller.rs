//! The process that makes connections for a server that takes none, and leaves them with the service until they are wanted.
//!
//! It has the server's secret at the service, and no files. Of what is inside of a connection that is taken it understands nothing: the
//! front gets one end of a socket pair, and bytes are carried to and fro.

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::Path;
use std::process::Child;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};
use whimbrel_engine::dispatch::waiting::{PROTOCOL, STILL, TAKEN};
use whimbrel_engine::{Fault, FaultCode, Side};
use whimbrel_proto::server::Secret;
use whimbrel_web::Line;
use whimbrel_web::client::Client;

use crate::confine::{self, Needs, Sandbox};
use crate::front::process::drain_on_signal;
use crate::helper::Helper;
use crate::monitor::keeper::Account;
use crate::packets::Channel;

const OP: &str = "connect to the service";

const HELPER: Helper = Helper { command: "dtn-caller", op: OP };

/// Connections that wait.
const WAITING: usize = 4;

/// Pause before another connection, doubled while none comes about.
const FIRST_PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// A connection that held so long was a good one.
const GOOD: Duration = Duration::from_secs(10);

/// Time for a connection to wait at the service.
const LIMIT: Duration = Duration::from_secs(30);

/// After so long without a word a connection is gone; the service says one every 15 s.
const SILENCE: Duration = Duration::from_secs(60);

/// Longest refusal, bytes.
const MOST_ANSWER: usize = 64 << 10;

/// To the front. A packet is never empty: that would be the end.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Called {
    /// A connection was taken; beside it, our end of a socket pair.
    Taken,
}

/// What the process is told.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Settings {
    /// The service: its URL.
    pub(crate) service: String,
    /// PEM text of those who vouch for it; `None`: those of the system.
    pub(crate) authorities: Option<Vec<u8>>,
    /// This server's number there.
    pub(crate) server: String,
    /// What proves that it is this server.
    pub(crate) secret: Secret,
    /// How far it is confined.
    pub(crate) sandbox: Sandbox,
}

/// Starts the process, which gets the channel to the front as its standard output.
pub(crate) fn start(
    program: &Path,
    channel: &Channel,
    account: Option<Account>,
    settings: &Settings,
) -> Result<Child, Fault> {
    HELPER.start(program, channel, account, settings)
}

/// Makes connections with the settings on standard input, for the front at the channel that is standard output, to the end of the drain.
///
/// # Errors
/// They are none, or this process cannot be confined.
pub fn serve_standard_input() -> Result<(), Fault> {
    let (settings, channel): (Settings, OwnedFd) = HELPER.told()?;
    confine::enter(&Needs::fetch(), settings.sandbox)?;
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|error| HELPER.failed(error))?;
    let result = runtime.block_on(serve(&settings, Channel::from(channel)));
    runtime.shutdown_background();
    result
}

async fn serve(settings: &Settings, front: Channel) -> Result<(), Fault> {
    let (drain, mut draining) = watch::channel(false);
    drain_on_signal(drain)?;
    let caller = Arc::new(Caller::new(settings, front)?);
    let places = Arc::new(Semaphore::new(WAITING));
    let draining_too = draining.clone();
    let mut lines = JoinSet::new();
    loop {
        tokio::select! {
            place = places.clone().acquire_owned() => {
                let place = place.expect("nobody closes it");
                lines.spawn(caller.clone().line(place, draining_too.clone()));
            }
            Some(_ended) = lines.join_next() => {}
            _ = draining.wait_for(|drain| *drain) => break,
        }
    }
    // Those that wait end; what is used goes on to its end.
    while lines.join_next().await.is_some() {}
    Ok(())
}

struct Caller {
    client: Client,
    path: String,
    secret: String,
    front: Channel,
}

impl Caller {
    fn new(settings: &Settings, front: Channel) -> Result<Self, Fault> {
        Ok(Self {
            client: HELPER.client(&settings.service, settings.authorities.as_deref(), MOST_ANSWER)?,
            path: format!("/v2/whimbrel/servers/{}/wait", settings.server),
            secret: String::from_utf8_lossy(&settings.secret.0).into_owned(),
            front,
        })
    }

    /// One connection after the other, until one is taken, whose place another may have then.
    async fn line(self: Arc<Self>, place: OwnedSemaphorePermit, mut drain: watch::Receiver<bool>) {
        let (mut pause, mut in_trouble) = (FIRST_PAUSE, false);
        loop {
            let began = Instant::now();
            let waited = tokio::select! {
                waited = self.wait() => waited,
                _ = drain.wait_for(|drain| *drain) => return,
            };
            match waited {
                Ok(line) => {
                    drop(place);
                    return self.carry(line).await;
                }
                Err(fault) if began.elapsed() > GOOD => {
                    tracing::debug!(%fault, "a connection that waited is gone");
                    (pause, in_trouble) = (FIRST_PAUSE, false);
                }
                // A time of trouble is spoken of once.
                Err(fault) if !in_trouble => {
                    tracing::warn!(%fault, "no connection waits at the service");
                    in_trouble = true;
                }
                Err(_) => {}
            }
            tokio::select! {
                () = sleep(pause) => pause = (pause * 2).min(LONGEST_PAUSE),
                _ = drain.wait_for(|drain| *drain) => return,
            }
        }
    }

    /// Leaves a connection with the service until it is taken.
    async fn wait(&self) -> Result<Line, Fault> {
        let late = |_| Err(lost("no connection in time"));
        let asked = timeout(LIMIT, self.client.upgrade(&self.path, Some(&self.secret), PROTOCOL));
        let mut line = asked.await.unwrap_or_else(late)?.map_err(|answer| {
            let detail = format!("the service answered {} to a connection that was to wait", answer.status);
            Fault::new(FaultCode::ServerBusy, OP).side(Side::Service).detail(detail)
        })?;
        let broken = |error: io::Error| lost(&error.to_string());
        loop {
            let said = timeout(SILENCE, line.read_u8()).await.map_err(|_| lost("the service is silent"))?;
            let said = said.map_err(broken)?;
            if said != STILL && said != TAKEN {
                return Err(Fault::new(FaultCode::PeerMisbehaved, OP).side(Side::Service));
            }
            line.write_all(&[said]).await.map_err(broken)?;
            line.flush().await.map_err(broken)?;
            if said == TAKEN {
                return Ok(line);
            }
        }
    }

    /// Hands the front what is inside, and carries it.
    async fn carry(&self, line: Line) {
        let handed = || {
            let (theirs, carrying) = line.paired()?;
            self.front.send(&Called::Taken, &[theirs.as_fd()])?;
            io::Result::Ok(carrying)
        };
        let carrying = match handed() {
            Ok(carrying) => carrying,
            Err(error) => return tracing::warn!(%error, "the front takes no connection"),
        };
        if let Err(error) = carrying.await {
            tracing::debug!(%error, "a control connection by way of the service has broken");
        }
    }
}

fn lost(detail: &str) -> Fault {
    Fault::new(FaultCode::ConnectionLost, OP).side(Side::Network).detail(detail)
}
