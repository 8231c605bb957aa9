//! Where servers that take no connections are met: they make some, which wait here until orchestrators take them.
//!
//! What waits says a byte now and then, and answers it. One that is taken is told so and has to say the same: then it is a control
//! connection, from the server's greeting on.

use std::collections::HashMap;
use std::io;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::http::StatusCode;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::sync::{Notify, oneshot};
use tokio::time::{Instant, interval, timeout};
use uuid::Uuid;
use whimbrel_engine::dispatch::waiting::{PROTOCOL, STILL, TAKEN};
use whimbrel_web::{Line, Offer};

use super::{Joined, itself};
use crate::Service;
use crate::auth::Orchestrator;
use crate::http::{ApiError, Call, Switching};
use crate::replicas::Fellow;

/// Connections of a server that wait at the most.
const MOST_WAITING: usize = 16;

/// How long things may take.
#[derive(Debug, Clone, Copy)]
struct Times {
    /// Between two signs that keep a connection open in what it passes.
    sign: Duration,
    /// After so long without a word a connection is gone.
    silence: Duration,
    /// For the answer of one that is taken.
    answer: Duration,
    /// For somebody who waits for a connection.
    patience: Duration,
}

impl Default for Times {
    fn default() -> Self {
        let [sign, silence, answer, patience] = [15, 45, 5, 15].map(Duration::from_secs);
        Self { sign, silence, answer, patience }
    }
}

/// Where a connection goes that is taken.
type Taker = oneshot::Sender<Line>;

/// Connections that wait, by server.
#[derive(Debug, Default)]
pub struct Rendezvous {
    places: Mutex<HashMap<Uuid, Arc<Place>>>,
    times: Times,
}

/// Those of one server.
#[derive(Debug, Default)]
struct Place {
    waiting: Mutex<Vec<oneshot::Sender<Taker>>>,
    news: Notify,
}

impl Place {
    /// Announces one more; `None`: there are enough.
    fn enter(&self) -> Option<oneshot::Receiver<Taker>> {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.retain(|one| !one.is_closed());
        let (sender, taken) = oneshot::channel();
        (waiting.len() < MOST_WAITING).then(|| waiting.push(sender))?;
        drop(waiting);
        self.news.notify_waiters();
        Some(taken)
    }

    /// The one that came last: it lives most probably.
    fn last(&self) -> Option<oneshot::Sender<Taker>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).pop()
    }

    /// One that waits already; `None`: none does.
    async fn take_waiting(&self) -> Option<Line> {
        while let Some(waiting) = self.last() {
            let (taker, line) = oneshot::channel();
            // What has gone meanwhile, or does not answer, sends none.
            if waiting.send(taker).is_ok()
                && let Ok(line) = line.await
            {
                return Some(line);
            }
        }
        None
    }

    async fn take(&self) -> Line {
        loop {
            let mut news = pin!(self.news.notified());
            news.as_mut().enable();
            if let Some(line) = self.take_waiting().await {
                return line;
            }
            news.await;
        }
    }
}

impl Rendezvous {
    fn place(&self, server: Uuid) -> Arc<Place> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner).entry(server).or_default().clone()
    }

    /// A connection of a server, the next one if none waits, or what `elsewhere` gives before; `None`: nothing comes in time.
    async fn take(&self, server: Uuid, elsewhere: impl Future<Output = Line>) -> Option<Line> {
        let place = self.place(server);
        let any = async {
            if let Some(line) = place.take_waiting().await {
                return line;
            }
            tokio::select! {
                line = place.take() => line,
                line = elsewhere => line,
            }
        };
        timeout(self.times.patience, any).await.ok()
    }

    /// Keeps a connection until it is taken or ends.
    async fn keep(&self, server: Uuid, mut line: Line) -> io::Result<()> {
        let Some(taken) = self.place(server).enter() else { return Ok(()) };
        let taker = wait(&mut line, taken, self.times).await?;
        line.write_all(&[TAKEN]).await?;
        let answered = timeout(self.times.answer, async {
            // What it said before it heard of its luck comes first.
            while line.read_u8().await? != TAKEN {}
            io::Result::Ok(())
        });
        answered.await??;
        // Who asked may have gone.
        let _gone = taker.send(line);
        Ok(())
    }
}

/// Until somebody takes it.
async fn wait(line: &mut Line, mut taken: oneshot::Receiver<Taker>, times: Times) -> io::Result<Taker> {
    let (mut signs, mut heard) = (interval(times.sign), Instant::now());
    loop {
        tokio::select! {
            taker = &mut taken => return taker.map_err(io::Error::other),
            read = line.read_u8() => match read? {
                STILL => heard = Instant::now(),
                _ => return Err(io::ErrorKind::InvalidData.into()),
            },
            _ = signs.tick() => {
                if heard.elapsed() > times.silence {
                    return Err(io::ErrorKind::TimedOut.into());
                }
                line.write_all(&[STILL]).await?;
            }
        }
    }
}

fn offered<R: crate::http::Rule>(call: &Call<R>) -> Result<Offer, ApiError> {
    let offer = call.knock.offer.clone().filter(|offer| offer.is_for(PROTOCOL));
    offer.ok_or_else(|| {
        let message = format!("The request has to offer to go on as {PROTOCOL} (Upgrade)");
        ApiError::new(StatusCode::UPGRADE_REQUIRED, "UpgradeRequired", message)
    })
}

/// `GET /v2/whimbrel/servers/{server}/wait`: a connection that the server makes, for somebody who wants to reach it.
pub(super) async fn leave(call: Call<Joined>) -> Result<Switching, ApiError> {
    itself(&call)?;
    let (offer, server) = (offered(&call)?, call.caller.record.id);
    if !call.caller.record.outbound {
        return Err(ApiError::conflict("The server has told that it takes connections"));
    }
    tokio::spawn(async move {
        let kept = async { call.service.rendezvous.keep(server, offer.line().await?).await };
        if let Err(error) = kept.await {
            tracing::debug!(%server, %error, "a connection that waited has ended");
        }
    });
    Ok(Switching(PROTOCOL))
}

/// `GET /v2/whimbrel/dispatch/servers/{server}`: such a connection, for an orchestrator on another host.
pub(super) async fn take(call: Call<Orchestrator>) -> Result<Switching, ApiError> {
    let offer = offered(&call)?;
    let server = call.path.id("server", "ServerNotFound")?;
    let there = call.service.meet(server).await?;
    hand_on(server, offer, there)
}

/// `GET /v2/whimbrel/replicas/servers/{server}`: such a connection, for another replica, if one waits here.
pub(super) async fn lend(call: Call<Fellow>) -> Result<Switching, ApiError> {
    let offer = offered(&call)?;
    let server = call.path.id("server", "ServerNotFound")?;
    let there = call.service.rendezvous.place(server).take_waiting().await;
    hand_on(server, offer, there)
}

/// Carries what is said on a connection to who has asked for it.
fn hand_on(server: Uuid, offer: Offer, there: Option<Line>) -> Result<Switching, ApiError> {
    let mut there = there.ok_or_else(|| ApiError::unavailable("The data transfer node has not connected"))?;
    tokio::spawn(async move {
        let carried = async { tokio::io::copy_bidirectional(&mut offer.line().await?, &mut there).await };
        if let Err(error) = carried.await {
            tracing::debug!(%server, %error, "a control connection by way of this service has ended");
        }
    });
    Ok(Switching(PROTOCOL))
}

impl Service {
    /// A connection to a server that takes none; `None`: it has made none in time.
    ///
    /// # Errors
    /// 404 for a server that is not known or takes connections, 503 without the store.
    pub async fn meet(&self, server: Uuid) -> Result<Option<Line>, ApiError> {
        let known = self.store.get::<super::Server>(&server.to_string()).await?;
        if !known.is_some_and(|known| known.record.outbound) {
            return Err(ApiError::not_found("ServerNotFound", format!("No server {server} connects to this service")));
        }
        Ok(self.rendezvous.take(server, self.meet_elsewhere(server)).await)
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use tokio::io::DuplexStream;

    use super::*;

    /// One whose longest time is this.
    fn hasty(longest: Duration) -> Arc<Rendezvous> {
        let times = Times { sign: longest / 4, silence: longest, answer: longest, patience: longest };
        Arc::new(Rendezvous { times, ..Rendezvous::default() })
    }

    const SERVER: Uuid = Uuid::from_u128(7);

    /// A connection that waits, and the server's end of it.
    fn waiting(rendezvous: &Arc<Rendezvous>) -> (DuplexStream, tokio::task::JoinHandle<io::Result<()>>) {
        let (ours, theirs) = tokio::io::duplex(64);
        let rendezvous = rendezvous.clone();
        (theirs, tokio::spawn(async move { rendezvous.keep(SERVER, Line::new(ours)).await }))
    }

    #[tokio::test]
    async fn what_is_taken_is_a_stream_from_the_servers_first_word_on() {
        let rendezvous = Arc::new(Rendezvous::default());
        let (mut server, kept) = waiting(&rendezvous);
        let serving = tokio::spawn(async move {
            // It may be taken before the first sign.
            while server.read_u8().await.unwrap() != TAKEN {
                server.write_all(&[STILL]).await.unwrap();
            }
            server.write_all(b"!220 hello").await.unwrap();
            server
        });
        let mut line = rendezvous.take(SERVER, pending()).await.unwrap();
        let mut greeting = [0; 9];
        line.read_exact(&mut greeting).await.unwrap();
        assert_eq!(&greeting, b"220 hello");
        kept.await.unwrap().unwrap();
        drop(serving.await.unwrap());
    }

    #[tokio::test]
    async fn what_is_gone_is_passed_over_and_nobody_waits_for_ever() {
        let rendezvous = hasty(Duration::from_millis(200));
        let (mut living, _) = waiting(&rendezvous);
        assert_eq!(living.read_u8().await.unwrap(), STILL);
        let (mut silent, kept) = waiting(&rendezvous);
        assert_eq!(silent.read_u8().await.unwrap(), STILL);
        drop(silent);
        let serving = tokio::spawn(async move {
            let mut said = STILL;
            while said != TAKEN {
                living.write_all(&[said]).await.unwrap();
                said = living.read_u8().await.unwrap();
            }
            living.write_all(&[TAKEN]).await.unwrap();
            living
        });
        assert!(rendezvous.take(SERVER, pending()).await.is_some());
        assert!(kept.await.unwrap().is_err());
        drop(serving.await.unwrap());
        assert!(rendezvous.take(SERVER, pending()).await.is_none());
    }

    #[tokio::test]
    async fn what_waits_elsewhere_is_taken_where_nothing_waits_here() {
        let rendezvous = hasty(Duration::from_secs(60));
        let (ours, mut theirs) = tokio::io::duplex(64);
        let mut line = rendezvous.take(SERVER, async { Line::new(ours) }).await.unwrap();
        theirs.write_all(b"220").await.unwrap();
        let mut greeting = [0; 3];
        line.read_exact(&mut greeting).await.unwrap();
        assert_eq!(&greeting, b"220");
    }

    #[tokio::test]
    async fn silence_ends_a_connection_and_there_is_no_room_for_endlessly_many() {
        let rendezvous = hasty(Duration::from_millis(200));
        let all: Vec<_> = (0..=MOST_WAITING).map(|_| waiting(&rendezvous)).collect();
        let mut ends = Vec::new();
        for (server, kept) in all {
            ends.push(kept.await.unwrap());
            drop(server);
        }
        assert_eq!(ends.iter().filter(|end| end.is_ok()).count(), 1, "one too many is let go at once");
        assert!(ends.iter().flat_map(|end| end.as_ref().err()).all(|error| error.kind() == io::ErrorKind::TimedOut));
    }
}
