//! How fast tasks may go that run.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use uuid::Uuid;

use crate::Service;
use crate::endpoints::rates::shares::{Bound, shares, tight};
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

/// Why a bound is there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Why {
    /// A rate rule, and its words for people.
    Rule(Uuid, String),
    /// What this collection allows one owner.
    Collection(Uuid),
}

/// One of the bounds on a task's rate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Brake {
    /// Why it is there.
    pub why: Why,
    /// Bytes per second of all tasks it is for, together.
    pub most: u64,
    /// How many tasks those are now.
    pub tasks: usize,
}

/// How fast a task may go, and why no faster.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Pace {
    /// Bytes per second; `None`: as fast as it can.
    pub rate: Option<u64>,
    /// The bounds that hold it back; none where its owner wishes no more.
    pub brakes: Vec<Brake>,
}

/// What the tasks that run now share.
struct Sharing {
    running: Vec<Task>,
    bounds: Vec<Bound>,
    /// Why each bound is there.
    whys: Vec<Why>,
    /// What each task gets.
    given: Vec<Option<u64>>,
}

impl Service {
    /// Bytes per second of each of these tasks, which run: rules and stock servers' collections bound several together. `None`: no
    /// bound.
    ///
    /// # Errors
    /// 503 without the store.
    pub async fn rates_of(&self, tasks: &[Task]) -> Result<Vec<Option<u64>>, ApiError> {
        let Some(sharing) = self.sharing(tasks).await? else { return Ok(vec![None; tasks.len()]) };
        let place = |task: &Task| sharing.running.iter().position(|known| known.id == task.id);
        Ok(tasks.iter().map(|task| place(task).and_then(|at| sharing.given[at])).collect())
    }

    /// How fast a task that runs may go, and why no faster.
    ///
    /// # Errors
    /// 503 without the store.
    pub async fn pace_of(&self, task: &Task) -> Result<Pace, ApiError> {
        let none = Pace { rate: wish(task), brakes: Vec::new() };
        let Some(sharing) = self.sharing(std::slice::from_ref(task)).await? else { return Ok(none) };
        let Sharing { running, bounds, whys, given } = sharing;
        let Some(at) = running.iter().position(|known| known.id == task.id) else { return Ok(none) };
        let brake = |at: usize| Brake { why: whys[at].clone(), most: bounds[at].most, tasks: bounds[at].of.len() };
        let held = wish(task).is_none_or(|wish| given[at].is_some_and(|given| given < wish));
        let brakes = if held { tight(at, &given, &bounds) } else { Vec::new() };
        Ok(Pace { rate: given[at].or(none.rate), brakes: brakes.into_iter().map(brake).collect() })
    }

    /// `None`: nothing bounds any of these tasks.
    async fn sharing(&self, tasks: &[Task]) -> Result<Option<Sharing>, ApiError> {
        let rules: Vec<RateRule> = self.all().await?.into_iter().map(|found| found.record).collect();
        let is_copy = |task: &Task| matches!(task.wanted.work, TaskWork::Transfer(_));
        let may_be_bound =
            |task: &Task| is_copy(task) && (!rules.is_empty() || ends(task).any(|end| end.logins.is_stock()));
        if !tasks.iter().any(may_be_bound) {
            return Ok(None);
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
        let (bounds, whys): (Vec<_>, Vec<_>) = self.bounds(&running, &rules, &known).into_iter().unzip();
        let wished: Vec<_> = running.iter().map(wish).collect();
        let given = shares(&wished, &bounds);
        Ok(Some(Sharing { running, bounds, whys, given }))
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

    fn bounds(&self, running: &[Task], rules: &[RateRule], known: &HashMap<Uuid, End>) -> Vec<(Bound, Why)> {
        let now = self.clock.now();
        let which = |fits: &dyn Fn(&Task) -> bool| -> Vec<usize> {
            (0..running.len()).filter(|&at| fits(&running[at])).collect()
        };
        let by_rule = rules.iter().map(|rule| {
            let places = |task: &Task| -> Vec<Uuid> {
                ends(task).filter_map(|end| known.get(&end.collection)).flat_map(|end| end.places.clone()).collect()
            };
            let of = which(&|task| rule.holds(task.wanted.owner, &places(task), now));
            (Bound { most: rule.max_rate, of }, Why::Rule(rule.id, rule.message.clone()))
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
            (Bound { most, of: which(&theirs) }, Why::Collection(place))
        });
        by_rule.chain(by_owner).collect()
    }
}
