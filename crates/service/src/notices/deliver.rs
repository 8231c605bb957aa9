//! Tells what is to be told, and tries again what failed.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinSet;
use uuid::Uuid;

use super::records::{Channel, DUE, Delivery, Event, Notice, Webhook};
use super::{Settings, mail, webhook};
use crate::Service;
use crate::auth::records::Identity;
use crate::auth::tokens::later;
use crate::http::ApiError;
use crate::store::{Batch, StoreError, Versioned, time_key};
use crate::task::Task;

/// How often what is to be told is looked for.
const LOOK: Duration = Duration::from_secs(1);
/// Notices that are told at once.
const AT_ONCE: usize = 16;
/// Of one owner: a place that does not answer holds up its owner's own only.
const OF_OWNER: usize = 2;
/// Notices that are looked at in one go.
const PAGE: u32 = 200;
/// Seconds for which whoever tells has a notice for itself: longer than all its ways together take.
const CLAIM: i64 = 300;
/// Seconds until the second try; doubled each time.
const AGAIN: i64 = 30;
/// Longest of these, seconds.
const AGAIN_MOST: i64 = 3600;
/// Seconds after which a notice that reached nobody is given up: a day.
const LIFE: i64 = 24 * 3600;

impl Service {
    /// Tells owners what became of their tasks, until `stop` is `true` or its sender gone. What runs then is not waited for: it
    /// is told after the next start.
    pub async fn tell_owners(self: &Arc<Self>, mut stop: watch::Receiver<bool>) {
        let mut telling = Telling::default();
        loop {
            if let Err(error) = telling.begin(self).await {
                tracing::warn!("nobody is told of their tasks: {error}");
            }
            tokio::select! {
                _ = stop.wait_for(|stop| *stop) => return,
                Some(ended) = telling.running.join_next() => telling.ended(ended.ok()),
                () = tokio::time::sleep(LOOK) => {}
            }
        }
    }

    /// Tells everything whose time has come, and waits for it; how much it was.
    ///
    /// # Errors
    /// 503 without the store.
    pub async fn tell_due(self: &Arc<Self>) -> Result<usize, ApiError> {
        let mut telling = Telling::default();
        let mut count = 0;
        loop {
            count += telling.begin(self).await?;
            let Some(ended) = telling.running.join_next().await else { return Ok(count) };
            telling.ended(ended.ok());
        }
    }
}

/// What is being told.
#[derive(Default)]
struct Telling {
    running: JoinSet<Uuid>,
    of_owner: HashMap<Uuid, usize>,
}

impl Telling {
    /// Begins as much as may be told at once; how much it was.
    async fn begin(&mut self, service: &Arc<Service>) -> Result<usize, ApiError> {
        let mut begun = 0;
        if self.running.len() >= AT_ONCE {
            return Ok(begun);
        }
        let now = service.clock.now();
        for mut notice in service.store.find_until::<Notice>(DUE, &time_key(now), PAGE).await? {
            let owner = notice.record.owner;
            if self.running.len() >= AT_ONCE || self.of_owner.get(&owner).is_some_and(|&count| count >= OF_OWNER) {
                continue;
            }
            notice.record.due = later(now, CLAIM);
            match service.store.apply(Batch::new().update(&notice)).await {
                Ok(()) => {}
                // Another replica tells it.
                Err(StoreError::Conflict(_)) => continue,
                Err(error) => return Err(error.into()),
            }
            *self.of_owner.entry(owner).or_default() += 1;
            begun += 1;
            let service = service.clone();
            self.running.spawn(async move {
                let task = notice.record.task;
                if let Err(error) = service.tell(notice.record).await {
                    tracing::warn!(%task, "what became of a task is told later: {error}");
                }
                owner
            });
        }
        Ok(begun)
    }

    fn ended(&mut self, owner: Option<Uuid>) {
        let Some(owner) = owner else { return };
        if let Some(count) = self.of_owner.get_mut(&owner) {
            *count -= 1;
            if *count == 0 {
                self.of_owner.remove(&owner);
            }
        }
    }
}

impl Service {
    /// Tells a notice to all who have not heard it.
    async fn tell(&self, mut notice: Notice) -> Result<(), ApiError> {
        let id = notice.id.to_string();
        let known = (self.notifier.settings(), self.store.task(notice.task).await?, Event::of(notice.status));
        let (Some(settings), Some(task), Some(event)) = known else {
            return Ok(self.store.apply(Batch::new().delete_id::<Notice>(id)).await?);
        };
        let ways = match notice.left.take() {
            Some(left) => left,
            None => self.ways(settings, &task, event).await?,
        };
        let mut left = Vec::new();
        for way in ways {
            if let Err(error) = self.try_way(settings, &notice, &task, &way).await {
                tracing::info!(task = %task.id, ?way, "the task's owner was not told: {error}");
                left.push(way);
            }
        }
        let now = self.clock.now();
        if left.is_empty() || now.secs - notice.time.secs >= LIFE {
            return Ok(self.store.apply(Batch::new().delete_id::<Notice>(id)).await?);
        }
        let Some(mut stored) = self.store.get::<Notice>(&id).await? else { return Ok(()) };
        stored.record.tries = notice.tries + 1;
        let wait = AGAIN.saturating_mul(1 << notice.tries.min(10)).min(AGAIN_MOST);
        (stored.record.due, stored.record.left) = (later(now, wait), Some(left));
        Ok(self.store.apply(Batch::new().update(&stored)).await?)
    }

    /// All ways to a task's owner for an event.
    async fn ways(&self, settings: &Settings, task: &Task, event: Event) -> Result<Vec<Channel>, ApiError> {
        let owner = task.wanted.owner;
        let mut ways = Vec::new();
        if settings.mail.is_some() && self.mail_of(owner).await?.is_some() {
            ways.push(Channel::Mail);
        }
        let webhooks = self.all_by_key::<Webhook>("owner", &owner.to_string()).await?;
        let wanted = webhooks.into_iter().filter(|found| found.record.events.contains(&event));
        ways.extend(wanted.map(|found| Channel::Webhook { id: found.record.id }));
        Ok(ways)
    }

    /// Where somebody wants mail; `None`: nowhere, or they may not log in any more.
    async fn mail_of(&self, identity: Uuid) -> Result<Option<String>, ApiError> {
        let found = self.store.get::<Identity>(&identity.to_string()).await?.map(|found| found.record);
        Ok(found
            .filter(|identity| !identity.disabled)
            .and_then(|identity| identity.email)
            .filter(|to| mail::is_address(to)))
    }

    async fn try_way(&self, settings: &Settings, notice: &Notice, task: &Task, way: &Channel) -> Result<(), ApiError> {
        match (way, &settings.mail) {
            (Channel::Mail, Some(server)) => {
                // Who has no address any more is not told.
                let Some(to) = self.mail_of(notice.owner).await? else { return Ok(()) };
                let letter = mail::letter(server, &to, notice, task, &self.config.url);
                mail::send(server, &settings.roots, &to, &letter).await.map_err(unavailable)
            }
            (Channel::Mail, None) => Ok(()),
            (Channel::Webhook { id }, _) => {
                let Some(webhook) = self.store.get::<Webhook>(&id.to_string()).await? else { return Ok(()) };
                let secret = self.webhook_secret(&webhook.record)?;
                let message = webhook::message(notice, task, self.clock.now());
                let told = webhook::post(settings, &webhook.record, &secret, message).await;
                self.note_delivery(webhook, told.as_ref().err().map(ToString::to_string)).await;
                told.map_err(unavailable)
            }
        }
    }

    /// Notes with a webhook what came of a try; for its owner to see, and no loss where it fails.
    async fn note_delivery(&self, mut webhook: Versioned<Webhook>, error: Option<String>) {
        webhook.record.newest = Some(Delivery { time: self.clock.now(), error });
        if let Err(error) = self.store.apply(Batch::new().update(&webhook)).await {
            tracing::debug!(webhook = %webhook.record.id, "what came of a try is not noted: {error}");
        }
    }
}

fn unavailable(fault: whimbrel_engine::Fault) -> ApiError {
    ApiError::unavailable(fault.to_string())
}
