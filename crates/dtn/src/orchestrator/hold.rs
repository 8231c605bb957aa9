//! The right to work on a task, and questions to the service.

use std::os::unix::net::UnixStream;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::sleep;
use uuid::Uuid;
use whimbrel_engine::dispatch::{Lease, Request, Response};
use whimbrel_engine::{Fault, FaultCode, Side};

use crate::client::meeting::MeetingPlace;

/// Longest wait between two attempts to ask.
const LONGEST: Duration = Duration::from_secs(10);

/// What is asked, with where its answer goes.
#[derive(Debug)]
pub(super) enum Asked {
    /// A question.
    Question(Request, oneshot::Sender<Result<Response, Fault>>),
    /// A connection that a server has made.
    Meeting(Uuid, oneshot::Sender<Result<UnixStream, Fault>>),
}

/// How things stand with a lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Standing {
    /// It is ours.
    Held,
    /// It is ours, and work on it is to end.
    Stopping,
    /// It is another's: nothing more may be done or said.
    Lost,
}

/// A lease that is worked on; all copies are of one.
#[derive(Debug, Clone)]
pub(super) struct Hold {
    pub(super) lease: Lease,
    standing: Arc<watch::Sender<Standing>>,
    /// Most bytes per second of the task.
    rate: Arc<watch::Sender<Option<u64>>>,
}

impl Hold {
    /// A lease that was just granted, with most bytes per second.
    pub(super) fn new(lease: Lease, rate: Option<u64>) -> Self {
        Self { lease, standing: Arc::new(watch::channel(Standing::Held).0), rate: Arc::new(watch::channel(rate).0) }
    }

    /// Most bytes per second from now on.
    pub(super) fn set_rate(&self, most: Option<u64>) {
        self.rate.send_if_modified(|now| std::mem::replace(now, most) != most);
    }

    /// Most bytes per second, and when that changes.
    pub(super) fn rate(&self) -> watch::Receiver<Option<u64>> {
        self.rate.subscribe()
    }

    /// It stands so from now on, unless it stands worse already.
    pub(super) fn set(&self, standing: Standing) {
        self.standing.send_if_modified(|now| {
            let worse = standing > *now;
            *now = standing.max(*now);
            worse
        });
    }

    /// How it stands.
    pub(super) fn standing(&self) -> Standing {
        *self.standing.borrow()
    }

    /// Waits until it stands no better than this.
    pub(super) async fn until(&self, standing: Standing) {
        let mut changes = self.standing.subscribe();
        // The sender is ours.
        let _ = changes.wait_for(|now| *now >= standing).await;
    }
}

/// The lease was lost: whoever meets this stops without a word.
#[derive(Debug)]
pub(super) struct Lost;

fn gone() -> Fault {
    Fault::new(FaultCode::Cancelled, "ask the service").side(Side::Us)
}

/// Where questions go: the task that talks to the service.
#[derive(Debug, Clone)]
pub(super) struct Line {
    asks: mpsc::UnboundedSender<Asked>,
    first_wait: Duration,
}

impl MeetingPlace for Line {
    fn meet(&self, server: Uuid) -> Pin<Box<dyn Future<Output = Result<UnixStream, Fault>> + Send + '_>> {
        Box::pin(async move {
            let (sender, answer) = oneshot::channel();
            self.asks.send(Asked::Meeting(server, sender)).map_err(|_| gone())?;
            answer.await.map_err(|_| gone())?
        })
    }
}

impl Line {
    /// A line to whoever takes the questions.
    pub(super) fn new(asks: mpsc::UnboundedSender<Asked>, first_wait: Duration) -> Self {
        Self { asks, first_wait }
    }

    /// Asks once.
    pub(super) async fn ask(&self, request: Request) -> Result<Response, Fault> {
        let (sender, answer) = oneshot::channel();
        self.asks.send(Asked::Question(request, sender)).map_err(|_| gone())?;
        answer.await.map_err(|_| gone())?
    }

    /// Asks about a task until there is an answer, or the lease is lost.
    pub(super) async fn insist(&self, hold: &Hold, request: Request) -> Result<Response, Lost> {
        let mut wait = self.first_wait;
        loop {
            let answer = tokio::select! {
                biased;
                () = hold.until(Standing::Lost) => return Err(Lost),
                answer = self.ask(request.clone()) => answer,
            };
            match answer {
                Ok(Response::LeaseLost { lease }) if lease == hold.lease => {
                    hold.set(Standing::Lost);
                    return Err(Lost);
                }
                Ok(response) => return Ok(response),
                Err(fault) => tracing::warn!(%fault, task = %hold.lease.task, "the service does not answer"),
            }
            tokio::select! {
                () = hold.until(Standing::Lost) => return Err(Lost),
                () = sleep(wait) => wait = (wait * 2).min(LONGEST),
            }
        }
    }
}
