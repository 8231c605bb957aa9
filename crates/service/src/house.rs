//! What is done once a night: old tasks and silent servers are forgotten, and tasks are counted anew, to prove what was counted as it happened.

use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::sync::watch;
use whimbrel_engine::listing::Timestamp;

use crate::Service;
use crate::auth::Admin;
use crate::auth::scope::TransferAll;
use crate::auth::tokens::later;
use crate::http::{Answer, ApiError, Call, Route};
use crate::store::{AuditEntry, Batch, Census, Miscount, Record, StoreError, Versioned};
use crate::timers::records::{State, Timer, TimerBody};

/// Seconds.
const DAY: i64 = 24 * 3600;

/// How often it is looked whether a night has come.
const LOOK: Duration = Duration::from_secs(60);

/// After so long a service that runs has heard every server that lives; they tell of themselves every few seconds.
const HEARD_AFTER: Duration = Duration::from_secs(3600);

/// Tasks that are looked up in one go.
const PAGE: u32 = 500;

/// Seconds before now from which tasks that are over are counted anew: a day, and what a night may be late.
const RECOUNTED: i64 = 2 * DAY;

/// The routes.
pub fn routes() -> Vec<Route> {
    vec![Route::post("/v2/whimbrel/recount", "recount", recount)]
}

/// How long what is over is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Keeping {
    /// Tasks that are over, and timers that have ended: days; `None`: for ever.
    pub tasks: Option<u32>,
    /// Entries of the audit log: days; `None`: for ever.
    pub audit: Option<u32>,
}

/// What the service knows of its housekeeping.
#[derive(Default)]
pub struct House {
    keeping: OnceLock<Keeping>,
    newest: Mutex<Option<Recount>>,
}

impl House {
    /// Says how long what is over is kept; the first word counts. Without one everything is kept.
    pub fn keep(&self, keeping: Keeping) {
        // What was said first stays.
        let _first = self.keeping.set(keeping);
    }

    /// The newest recount of this process.
    pub fn newest(&self) -> Option<Recount> {
        self.newest.lock().expect("nothing panics with it").clone()
    }
}

/// What a recount found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recount {
    /// When.
    pub time: Timestamp,
    /// How many tasks were counted.
    pub tasks: u64,
    /// Those whose counters were wrong.
    pub wrong: Vec<Miscount>,
}

/// The newest night that was begun, so that one replica does its work.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Night {
    /// Days since 1970.
    day: i64,
}

impl Record for Night {
    const KIND: &'static str = "night";

    fn id(&self) -> String {
        "newest".to_owned()
    }
}

impl Service {
    /// How many tasks there are and how they fare, those included that were over within the last day.
    ///
    /// # Errors
    /// 503 without the store.
    pub(crate) async fn census(&self, now: Timestamp) -> Result<Census, ApiError> {
        Ok(self.store.census(later(now, -DAY)).await?)
    }

    /// Does what is to be done once a night (UTC), until `stop` is `true` or its sender gone.
    pub async fn keep_house(self: &Arc<Self>, mut stop: watch::Receiver<bool>) {
        let began = Instant::now();
        loop {
            let nightly = async {
                match self.begin_night().await {
                    // Servers that live have been heard by then, also where the service itself was off for long.
                    Ok(true) => self.tidy(began.elapsed() >= HEARD_AFTER).await,
                    other => other.map(drop),
                }
            };
            tokio::select! {
                _ = stop.wait_for(|stop| *stop) => return,
                done = nightly => if let Err(error) = done {
                    tracing::warn!("what is done once a night is not done: {error}");
                },
            }
            if tokio::time::timeout(LOOK, stop.wait_for(|stop| *stop)).await.is_ok() {
                return;
            }
        }
    }

    /// Whether a night has come that nobody else has begun.
    async fn begin_night(&self) -> Result<bool, ApiError> {
        let night = Night { day: self.clock.now().secs.div_euclid(DAY) };
        let batch = match self.store.get::<Night>(&night.id()).await? {
            // One far ahead was noted by a clock that was wrong.
            Some(found) if (night.day..=night.day + 1).contains(&found.record.day) => return Ok(false),
            Some(found) => Batch::new().update(&Versioned { record: night, version: found.version }),
            // The first day has no night before it.
            None => {
                let first = self.store.apply(Batch::new().insert(&night)).await;
                return if matches!(first, Err(StoreError::Conflict(_))) {
                    Ok(false)
                } else {
                    Ok(first.map(|()| false)?)
                };
            }
        };
        match self.store.apply(batch).await {
            Ok(()) => Ok(true),
            Err(StoreError::Conflict(_)) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Counts tasks anew, and forgets what is old and who is gone.
    ///
    /// # Errors
    /// 503 without the store; what was done by then stays so.
    pub async fn nightly(&self) -> Result<(), ApiError> {
        self.tidy(true).await
    }

    /// The same; `all_were_heard`: whoever was not heard is silent.
    async fn tidy(&self, all_were_heard: bool) -> Result<(), ApiError> {
        self.recount_tasks().await?;
        if all_were_heard {
            let servers = self.forget_servers().await?;
            tracing::info!(servers, "servers that were silent for long are forgotten");
        }
        let Some(keeping) = self.house.keeping.get() else { return Ok(()) };
        let now = self.clock.now();
        let before = |days: u32| later(now, -DAY * i64::from(days));
        if let Some(days) = keeping.tasks {
            let mut count = 0_u64;
            while self.store.forget_task(before(days)).await? {
                count += 1;
            }
            let timers = self.forget_timers(before(days)).await?;
            tracing::info!(tasks = count, timers, days, "what was over for so long is forgotten");
        }
        if let Some(days) = keeping.audit {
            let count = self.store.forget_audit(before(days)).await?;
            tracing::info!(entries = count, days, "entries of the audit log that were so old are forgotten");
        }
        Ok(())
    }

    /// Forgets timers that have ended, and whose last run was before a time; how many.
    async fn forget_timers(&self, before: Timestamp) -> Result<usize, ApiError> {
        let is_old =
            |timer: &Timer| timer.state == State::Ended && timer.last().map_or(timer.submitted, |run| run.at) < before;
        let old: Vec<_> = self.all::<Timer>().await?.into_iter().filter(|found| is_old(&found.record)).collect();
        for timer in &old {
            let id = timer.record.id.to_string();
            let batch = Batch::new().delete_id::<Timer>(id.clone()).delete_id::<TimerBody>(id);
            self.store.apply(batch).await?;
        }
        Ok(old.len())
    }

    /// Counts the items of all tasks that are not over, or were not two days ago; what is wrong is logged, and kept in the audit log.
    ///
    /// # Errors
    /// 503 without the store.
    pub async fn recount_tasks(&self) -> Result<Recount, ApiError> {
        let time = self.clock.now();
        let (mut after, mut recount) = (0, Recount { time, tasks: 0, wrong: Vec::new() });
        loop {
            let page = self.store.tasks_since(later(time, -RECOUNTED), after, PAGE).await?;
            let Some((last, _)) = page.last() else { break };
            after = *last;
            for (_, task) in page {
                recount.tasks += 1;
                if let Some(wrong) = self.store.miscount(task).await? {
                    self.tell_miscount(&wrong).await?;
                    recount.wrong.push(wrong);
                }
            }
        }
        *self.house.newest.lock().expect("nothing panics with it") = Some(recount.clone());
        Ok(recount)
    }

    async fn tell_miscount(&self, wrong: &Miscount) -> Result<(), ApiError> {
        tracing::error!(task = %wrong.task, stored = ?wrong.stored, counted = ?wrong.counted, "a task's counters are wrong");
        let detail = json!({"stored": wrong.stored, "counted": wrong.counted});
        let entry =
            AuditEntry::new(self.clock.now(), "service", "task.miscount", wrong.task.to_string()).detail(detail);
        Ok(self.store.apply(Batch::new().audit(entry)).await?)
    }
}

/// `POST /v2/whimbrel/recount`, for administrators: what is done each night, now.
async fn recount(call: Call<Admin<TransferAll>>) -> Result<Answer<Value>, ApiError> {
    let recount = call.service.recount_tasks().await?;
    let told = |wrong: &Miscount| json!({"task_id": wrong.task, "stored": wrong.stored, "counted": wrong.counted});
    let wrong: Vec<_> = recount.wrong.iter().map(told).collect();
    Ok(Answer(json!({"tasks": recount.tasks, "wrong": wrong})))
}
