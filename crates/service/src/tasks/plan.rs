//! What a task would do, told without a task: the same document, the same refusals, and nothing is changed.
//!
//! An orchestrator lists what the task would list, up to a bound, with tokens that read only.

mod document;

use std::collections::HashMap;
use std::sync::Mutex;

use serde_json::Value;
use uuid::Uuid;
use whimbrel_engine::Fault;
use whimbrel_engine::dispatch::{self, Bounds, OperationKind, OperationResult, WorkItem};
use whimbrel_engine::plan::Forecast;

use super::submission::{self, Draft};
use super::submit::Prepared;
use crate::Service;
use crate::auth::rules::Actor;
use crate::auth::{ByUser, UserCall};
use crate::endpoints::{Doing, Want};
use crate::files::routes::refused;
use crate::http::{Answer, ApiError, Call, Large, Page};
use crate::task::TaskWork;

/// Files, directories and links that are counted.
const MOST_ENTRIES: u64 = 100_000;

/// Seconds for which is counted: users wait for the answer.
const LONGEST: u32 = 20;

/// Steps that are told where nobody asks for more, and the most that are.
const STEPS: usize = 100;
const MOST_STEPS: usize = 1000;

/// Items of a submission that are looked at: so many, with no more bytes in their paths.
const MOST_ITEMS: usize = 10_000;
const MOST_BYTES: usize = 4 << 20;

/// Plans of one user at once.
const AT_ONCE: u32 = 2;

/// Seconds after which somebody with too many may ask again.
const LATER: u32 = 5;

/// Who has looked at what tasks would do, at this moment.
#[derive(Debug, Default)]
pub struct Plans(Mutex<HashMap<Uuid, u32>>);

/// A plan that is being made.
struct Making<'a> {
    plans: &'a Plans,
    identity: Uuid,
}

impl Plans {
    fn enter(&self, identity: Uuid) -> Result<Making<'_>, ApiError> {
        let mut plans = self.0.lock().expect("nothing panics with it");
        let making = plans.entry(identity).or_default();
        if *making >= AT_ONCE {
            let message = format!("{AT_ONCE} plans of yours are being made; ask again when one of them is there");
            return Err(ApiError::too_many(LATER, message));
        }
        *making += 1;
        Ok(Making { plans: self, identity })
    }
}

impl Drop for Making<'_> {
    fn drop(&mut self) {
        let mut plans = self.plans.0.lock().expect("nothing panics with it");
        if let Some(making) = plans.get_mut(&self.identity) {
            *making -= 1;
            if *making == 0 {
                plans.remove(&self.identity);
            }
        }
    }
}

/// `POST /v2/whimbrel/plan/transfer`: what a `transfer` document would do.
pub(super) async fn transfer(call: UserCall<Large>) -> Result<Answer<Value>, ApiError> {
    let draft = submission::read_transfer(&call.body.0)?;
    planned(&call, &draft).await
}

/// `POST /v2/whimbrel/plan/delete`: what a `delete` document would do.
pub(super) async fn delete(call: UserCall<Large>) -> Result<Answer<Value>, ApiError> {
    let draft = submission::read_delete(&call.body.0)?;
    planned(&call, &draft).await
}

async fn planned<I>(call: &Call<ByUser, I>, draft: &Draft) -> Result<Answer<Value>, ApiError> {
    let (service, caller) = (&call.service, &call.caller);
    let steps = Page::of(&call.query, STEPS, MOST_STEPS)?.limit;
    let prepared = service.prepared(caller, draft).await?;
    let wanted = &prepared.submission.wanted;
    let known = service.store.in_the_way(wanted).await?;
    let pauses = service.pauses_of(wanted).await?;
    let _making = service.plans.enter(caller.identity)?;
    let forecast = service.foresee(caller, &prepared, steps).await?;
    let warnings = document::Warnings { known, pauses: &pauses };
    Ok(Answer(document::plan(wanted, &forecast, &warnings)))
}

impl Service {
    /// Has an orchestrator look at what a task would do.
    async fn foresee(&self, caller: &Actor, prepared: &Prepared, steps: usize) -> Result<Forecast, ApiError> {
        let Prepared { submission, source, destination, limits } = prepared;
        let wanted = &submission.wanted;
        for usable in std::iter::once(source).chain(destination) {
            self.not_paused(&usable.collection, caller.identity, Doing::List).await?;
        }
        let failed = |fault: &Fault| refused(fault, "PlanFailed", "ClientError.NotFound");
        let site = async |usable, local_user: Option<&String>| {
            let reached = self.site(usable, caller.identity, local_user.map(String::as_str), Want::Read).await;
            reached.map_err(|fault| failed(&fault))
        };
        let from = site(source, wanted.source.local_user.as_ref()).await?;
        let to = match (destination, &wanted.destination) {
            (Some(usable), Some(end)) => Some(site(usable, end.local_user.as_ref()).await?),
            _ => None,
        };
        let items = first(&submission.items);
        let draft = dispatch::Draft {
            work: match &wanted.work {
                TaskWork::Transfer(options) => dispatch::Work::Transfer(options.clone()),
                TaskWork::Delete(options) => dispatch::Work::Delete(*options),
            },
            destination: to,
            items: items.to_vec(),
            more: items.len() < submission.items.len(),
            label: wanted.label.clone().unwrap_or_default(),
            max_concurrency: limits.concurrency,
            bounds: Bounds { entries: MOST_ENTRIES, seconds: LONGEST, steps: u32::try_from(steps).unwrap_or(u32::MAX) },
        };
        match self.operate(from, OperationKind::Foresee(Box::new(draft))).await {
            Ok(OperationResult::Foreseen(forecast)) => Ok(*forecast),
            Ok(_) => Err(ApiError::internal("a plan was asked for, and something else came")),
            Err(fault) => Err(failed(&fault)),
        }
    }
}

/// The first items, no more than a message may hold.
fn first(items: &[WorkItem]) -> &[WorkItem] {
    let mut bytes = 0;
    let fits = |item: &&WorkItem| {
        bytes += item.source.len() + item.destination.len();
        bytes <= MOST_BYTES
    };
    let count = items.iter().take(MOST_ITEMS).take_while(fits).count();
    &items[..count]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_user_has_few_plans_made_at_once() {
        let plans = Plans::default();
        let (ada, bob) = (Uuid::from_u128(1), Uuid::from_u128(2));
        let first = plans.enter(ada).ok();
        let _second = plans.enter(ada).ok();
        assert_eq!(plans.enter(ada).err().map(|error| error.status.as_u16()), Some(429));
        assert!(plans.enter(bob).is_ok());
        drop(first);
        assert!(plans.enter(ada).is_ok());
        assert_eq!(plans.0.lock().unwrap().len(), 1, "who has none is forgotten");
    }

    #[test]
    fn a_long_list_of_items_is_looked_at_in_part() {
        let item = |bytes: usize| WorkItem {
            number: 1,
            source: vec![b'x'; bytes],
            destination: Vec::new(),
            recursive: None,
            symlink: false,
            checksum: None,
        };
        assert_eq!(first(&vec![item(1); MOST_ITEMS + 1]).len(), MOST_ITEMS);
        assert_eq!(first(&vec![item(4000); 2000]).len(), MOST_BYTES / 4000);
        assert_eq!(first(&[item(1), item(1)]).len(), 2);
    }
}
