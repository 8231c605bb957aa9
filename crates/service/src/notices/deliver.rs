//! Tells what is to be told, and tries again what failed.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::{Id, JoinError, JoinSet};
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
/// Notices that are read at once.
const PAGE: u32 = 200;
/// Pages that are looked at in one go; the next one goes on behind them.
const PAGES: usize = 5;
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
                Some(ended) = telling.running.join_next_with_id() => telling.ended(ended),
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
            let Some(ended) = telling.running.join_next_with_id().await else { return Ok(count) };
            telling.ended(ended);
        }
    }
}

/// What is being told.
#[derive(Default)]
struct Telling {
    running: JoinSet<()>,
    /// Whose each is.
    owners: HashMap<Id, Uuid>,
    of_owner: HashMap<Uuid, usize>,
    /// Time and id of the notice that was looked at last, while others follow: they are not to wait for those that one owner has
    /// before them.
    after: Option<(String, String)>,
}

impl Telling {
    /// Begins as much as may be told at once, of as much as is looked at in one go; how much it was.
    async fn begin(&mut self, service: &Arc<Service>) -> Result<usize, ApiError> {
        let until = time_key(service.clock.now());
        let (mut begun, mut from_first) = (0, self.after.is_none());
        for _ in 0..PAGES {
            if self.running.len() >= AT_ONCE {
                break;
            }
            let after = self.after.clone();
            let place = after.as_ref().map_or(("", ""), |(due, id)| (due, id));
            let page = service.store.find_between::<Notice>(DUE, place, &until, PAGE).await?;
            let full = page.len() == PAGE as usize;
            begun += self.begin_of(service, page).await?;
            if full || self.running.len() >= AT_ONCE {
                continue;
            }
            // That was the last one; those before the place where this began come now.
            self.after = None;
            if from_first {
                break;
            }
            from_first = true;
        }
        Ok(begun)
    }

    /// Begins as much of a page as may be told at once; how much it was.
    async fn begin_of(&mut self, service: &Arc<Service>, page: Vec<Versioned<Notice>>) -> Result<usize, ApiError> {
        let mut begun = 0;
        for mut notice in page {
            if self.running.len() >= AT_ONCE {
                break;
            }
            let owner = notice.record.owner;
            self.after = Some((time_key(notice.record.due), notice.record.id.to_string()));
            if self.of_owner.get(&owner).is_some_and(|&count| count >= OF_OWNER) {
                continue;
            }
            notice.record.due = later(service.clock.now(), CLAIM);
            match service.store.apply(Batch::new().update(&notice)).await {
                Ok(()) => {}
                // Another replica tells it.
                Err(StoreError::Conflict(_)) => continue,
                Err(error) => return Err(error.into()),
            }
            *self.of_owner.entry(owner).or_default() += 1;
            begun += 1;
            let service = service.clone();
            let told = self.running.spawn(async move {
                let task = notice.record.task;
                if let Err(error) = service.tell(notice.record).await {
                    tracing::warn!(%task, "what became of a task is told later: {error}");
                }
            });
            self.owners.insert(told.id(), owner);
        }
        Ok(begun)
    }

    fn ended(&mut self, ended: Result<(Id, ()), JoinError>) {
        let id = ended.map(|(id, ())| id).unwrap_or_else(|error| {
            tracing::error!(%error, "a notice ended by itself");
            error.id()
        });
        let Some(owner) = self.owners.remove(&id) else { return };
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

#[cfg(test)]
mod tests {
    use whimbrel_engine::listing::Timestamp;
    use whimbrel_engine::task::Status;

    use super::*;
    use crate::Config;
    use crate::clock::SetClock;
    use crate::store::Store;

    const ADA: Uuid = Uuid::from_u128(1);
    const BOB: Uuid = Uuid::from_u128(2);

    /// So many notices of Ada's, and after them one of Bob's; none of a task that is known, so that telling them ends at once.
    async fn waiting(of_ada: i64) -> Arc<Service> {
        let config = Config { url: "https://transfer.example.org".to_owned(), domain: "example.org".to_owned() };
        let clock = Arc::new(SetClock::at(10_000));
        let service = Service::new(config, clock, Store::open("sqlite::memory:").await.unwrap());
        let mut batch = Batch::new();
        for number in 0..=of_ada {
            let (time, owner) = (Timestamp::from_secs(number), if number == of_ada { BOB } else { ADA });
            let id = Uuid::from_u128(number.unsigned_abs().into());
            let (task, status, left) = (Uuid::nil(), Status::Succeeded, None);
            batch = batch.insert(&Notice { id, task, owner, status, time, due: time, tries: 0, left });
        }
        service.store.apply(batch).await.unwrap();
        Arc::new(service)
    }

    /// Where two of Ada's are under way.
    fn busy() -> Telling {
        Telling { of_owner: HashMap::from([(ADA, OF_OWNER)]), ..Telling::default() }
    }

    #[tokio::test]
    async fn an_owner_with_many_due_holds_nobody_else_up() {
        let service = waiting(450).await;
        assert_eq!(busy().begin(&service).await, Ok(1));
    }

    #[tokio::test]
    async fn as_much_is_looked_at_in_one_go_as_is_bounded_and_the_rest_in_the_next() {
        let service = waiting(i64::from(PAGE) * i64::try_from(PAGES).unwrap()).await;
        let mut telling = busy();
        assert_eq!(telling.begin(&service).await, Ok(0));
        assert_eq!(telling.begin(&service).await, Ok(1));
        // Those before the place where the next go begins are not forgotten.
        telling.of_owner.clear();
        assert_eq!(telling.begin(&service).await, Ok(OF_OWNER));
        assert_eq!(service.tell_due().await, Ok(998));
    }
}
