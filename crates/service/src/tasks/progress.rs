//! A task's progress as it happens: server-sent events, for programs and pages that would ask again and again.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use serde_json::{Value, json};
use tokio::sync::mpsc::Sender;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::{Instant, sleep};
use uuid::Uuid;
use whimbrel_engine::listing::Timestamp;

use super::document;
use super::routes::own;
use crate::Service;
use crate::auth::{ByUser, UserCall};
use crate::http::{ApiError, Events, Knock, Rule as _};
use crate::task::Task;

/// How often the task is looked at.
const LOOK: Duration = Duration::from_secs(1);
/// After so long without news a comment says that the connection holds.
const SILENCE: Duration = Duration::from_secs(15);
/// How long a token is believed that was found good.
const BELIEF: Duration = Duration::from_secs(5);
/// Most answers that go on for long.
const MOST: usize = 1000;

/// Answers that go on for long: how many, and when they end.
pub struct Streams {
    places: Arc<Semaphore>,
    ended: watch::Sender<bool>,
}

impl Default for Streams {
    fn default() -> Self {
        Self { places: Arc::new(Semaphore::new(MOST)), ended: watch::Sender::new(false) }
    }
}

impl Streams {
    /// Ends them all: the service stops, and clients come again later.
    pub fn end(&self) {
        self.ended.send_replace(true);
    }

    /// A place for one more.
    ///
    /// # Errors
    /// 503: there are too many.
    pub fn enter(&self) -> Result<OwnedSemaphorePermit, ApiError> {
        let full = |_| ApiError::unavailable("Too many follow the progress of tasks at this moment; try again later");
        self.places.clone().try_acquire_owned().map_err(full)
    }
}

/// `GET /v2/whimbrel/tasks/{task}/progress`: an event `progress` with the task's document whenever it has changed, and at
/// last an event `end`.
pub(super) async fn progress(call: UserCall) -> Result<Events, ApiError> {
    let task = own(&call.service, &call.caller, call.path.id("task", "TaskNotFound")?).await?;
    let place = call.service.streams.enter()?;
    let (sender, body) = whimbrel_web::stream();
    let teller = Teller { service: call.service, knock: call.knock, task: task.id, sender };
    tokio::spawn(async move {
        teller.tell().await;
        drop(place);
    });
    Ok(Events(body))
}

struct Teller {
    service: Arc<Service>,
    knock: Knock,
    task: Uuid,
    sender: Sender<Bytes>,
}

impl Teller {
    async fn tell(self) {
        let mut ended = self.service.streams.ended.subscribe();
        let mut told = String::new();
        let (mut spoke, mut judged) = (Instant::now(), Instant::now());
        loop {
            // Without the store there is no news; the client comes again.
            let Ok(Some(task)) = self.service.store.task(self.task).await else { return };
            let now = signature(&task);
            if now != told {
                if self.sender.send(event(&task, self.service.clock.now())).await.is_err() {
                    return;
                }
                (told, spoke) = (now, Instant::now());
            } else if spoke.elapsed() >= SILENCE {
                if self.sender.send(Bytes::from_static(b":\n\n")).await.is_err() {
                    return;
                }
                spoke = Instant::now();
            }
            if task.status.is_final() || (judged.elapsed() >= BELIEF && !self.is_welcome().await) {
                return;
            }
            if judged.elapsed() >= BELIEF {
                judged = Instant::now();
            }
            tokio::select! {
                () = sleep(LOOK) => {}
                () = self.sender.closed() => return,
                _ = ended.wait_for(|ended| *ended) => return,
            }
        }
    }

    /// Whether the caller's token still opens the task.
    async fn is_welcome(&self) -> bool {
        let Ok(caller) = ByUser::admit(&self.service, &self.knock).await else { return false };
        own(&self.service, &caller, self.task).await.is_ok()
    }
}

/// What a change is seen by: all that is told, without what only time changes.
fn signature(task: &Task) -> String {
    let situation = (&task.condition, &task.counters, &task.gauge, &task.wanted.label, task.not_before);
    // Nothing in it can fail to be written.
    serde_json::to_string(&(task.status, situation, task.faults, task.wanted.deadline)).unwrap_or_default()
}

/// The event of how a task stands.
fn event(task: &Task, now: Timestamp) -> Bytes {
    let name = if task.status.is_final() { "end" } else { "progress" };
    // A line that ends the data would end the event: JSON text has none.
    Bytes::from(format!("event: {name}\nretry: 2000\ndata: {}\n\n", document(task, now)))
}

/// The task's document with how fast it goes.
fn document(task: &Task, now: Timestamp) -> Value {
    let mut document = document::task(task, now);
    let gauge = task.gauge.filter(|_| !task.status.is_final());
    document["bytes_in_flight"] = json!(gauge.map_or(0, |gauge| gauge.bytes_in_flight));
    document["bytes_per_second"] = json!(gauge.map_or(0.0, |gauge| gauge.rate.round()));
    document
}
