//! How fast tasks may go that run.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use uuid::Uuid;

use crate::Service;
use crate::endpoints::rates::shares::{Bound, shares};
use crate::endpoints::rates::{RateRule, places};
use crate::http::ApiError;
use crate::task::{Task, TaskEnd, TaskWork};

/// What the collection at an end of a task says.
#[derive(Debug, Clone, Default)]
struct End {
    /// Where rules for it may stand.
    places: Vec<Uuid>,
    /// Bytes per second of one owner's tasks together, where the servers themselves do not see to that.
    of_owner: Option<u64>,
}

fn ends(task: &Task) -> impl Iterator<Item = &TaskEnd> {
    std::iter::once(&task.wanted.source).chain(&task.wanted.destination)
}

fn wish(task: &Task) -> Option<u64> {
    match &task.wanted.work {
        TaskWork::Transfer(options) => options.max_rate,
        TaskWork::Delete(_) => None,
    }
}

impl Service {
    /// Bytes per second of each of these tasks, which run: rules and stock servers' collections bound several together. `None`: no
    /// bound.
    ///
    /// # Errors
    /// 503 without the store.
    pub async fn rates_of(&self, tasks: &[Task]) -> Result<Vec<Option<u64>>, ApiError> {
        let rules: Vec<RateRule> = self.all().await?.into_iter().map(|found| found.record).collect();
        let is_copy = |task: &Task| matches!(task.wanted.work, TaskWork::Transfer(_));
        let may_be_bound =
            |task: &Task| is_copy(task) && (!rules.is_empty() || ends(task).any(|end| end.logins.is_stock()));
        if !tasks.iter().any(may_be_bound) {
            return Ok(vec![None; tasks.len()]);
        }
        let mut running = self.store.running().await?;
        // What was given out a moment ago, or ended since, counts all the same.
        let missing = |task: &&Task| !running.iter().any(|known| known.id == task.id);
        let more: Vec<Task> = tasks.iter().filter(missing).cloned().collect();
        running.extend(more);
        running.retain(is_copy);
        let mut known = HashMap::new();
        for end in running.iter().flat_map(ends) {
            if let Entry::Vacant(place) = known.entry(end.collection) {
                place.insert(self.end_of(end).await?);
            }
        }
        let bounds = self.bounds(&running, &rules, &known);
        let wished: Vec<_> = running.iter().map(wish).collect();
        let given = shares(&wished, &bounds);
        let share = |task: &Task| running.iter().position(|known| known.id == task.id).and_then(|at| given[at]);
        Ok(tasks.iter().map(share).collect())
    }

    /// A collection that is gone bounds nothing: the task ends by that.
    async fn end_of(&self, end: &TaskEnd) -> Result<End, ApiError> {
        let collection = match self.collection(end.collection).await {
            Ok(found) => found.record,
            Err(error) if error.status.is_server_error() => return Err(error),
            Err(_) => return Ok(End::default()),
        };
        let of_owner = match end.logins.is_stock() {
            true => self.location(&collection).await.ok().and_then(|location| location.limits.rate),
            false => None,
        };
        Ok(End { places: places(&collection), of_owner })
    }

    fn bounds(&self, running: &[Task], rules: &[RateRule], known: &HashMap<Uuid, End>) -> Vec<Bound> {
        let now = self.clock.now();
        let which = |fits: &dyn Fn(&Task) -> bool| -> Vec<usize> {
            (0..running.len()).filter(|&at| fits(&running[at])).collect()
        };
        let by_rule = rules.iter().map(|rule| {
            let places = |task: &Task| -> Vec<Uuid> {
                ends(task).filter_map(|end| known.get(&end.collection)).flat_map(|end| end.places.clone()).collect()
            };
            Bound { most: rule.max_rate, of: which(&|task| rule.holds(task.wanted.owner, &places(task), now)) }
        });
        let mut by_owner: HashMap<(Uuid, Uuid), u64> = HashMap::new();
        for task in running {
            for end in ends(task) {
                if let Some(most) = known.get(&end.collection).and_then(|end| end.of_owner) {
                    by_owner.insert((task.wanted.owner, end.collection), most);
                }
            }
        }
        let by_owner = by_owner.into_iter().map(|((owner, place), most)| {
            let theirs = |task: &Task| task.wanted.owner == owner && ends(task).any(|end| end.collection == place);
            Bound { most, of: which(&theirs) }
        });
        by_rule.chain(by_owner).collect()
    }
}
