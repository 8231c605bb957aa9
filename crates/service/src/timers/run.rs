//! Submits what timers are for when their time has come.
//!
//! A run's submission id follows from its timer and its time. So it becomes one task however often it is tried: by a replica beside
//! this one, or after a crash between the submission and the note of it.

use uuid::Uuid;
use whimbrel_engine::listing::Timestamp;

use super::input::of_run;
use super::records::{DUE, Reason, Run, State, Timer, TimerBody, Trouble};
use crate::Service;
use crate::auth::Actor;
use crate::auth::records::Identity;
use crate::auth::scope::{Scope as _, TRANSFER, TransferAll};
use crate::auth::secrets::id_bytes;
use crate::auth::tokens::later;
use crate::http::ApiError;
use crate::store::{Batch, StoreError, Versioned, time_key};
use crate::task::Submitted;
use crate::tasks::submission;

/// Timers that are looked into in one go.
const AT_ONCE: u32 = 200;

/// Seconds until a submission is tried again that could not be made; doubled each time.
const AGAIN: i64 = 10;
/// Longest of these, seconds.
const AGAIN_MOST: i64 = 600;

/// Tries to note what became of a run beside changes of others.
const TRIES: u32 = 10;

/// Longest label of a task, characters.
const LONGEST_LABEL: usize = 128;

/// What became of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Outcome {
    /// It is a task.
    Task(Uuid),
    /// The one before is not over.
    LeftOut,
    /// Not now; it is tried again.
    Trouble(String),
    /// Not at all.
    Stop(Reason),
}

impl Service {
    /// Runs the timers whose time has come; how many there were.
    ///
    /// # Errors
    /// 503 without the store. What is wrong with one timer is noted with it, and keeps no other from running.
    pub async fn run_timers(&self) -> Result<usize, ApiError> {
        let due = self.store.find_until::<Timer>(DUE, &time_key(self.clock.now()), AT_ONCE).await?;
        let count = due.len();
        for timer in due {
            let id = timer.record.id;
            if let Err(error) = self.run_timer(timer).await {
                tracing::warn!(timer = %id, "a timer's run is not noted, and tried again: {error}");
            }
        }
        Ok(count)
    }

    async fn run_timer(&self, timer: Versioned<Timer>) -> Result<(), ApiError> {
        let State::Waiting { next: due, .. } = timer.record.state else { return Ok(()) };
        let outcome = match self.submit_run(&timer.record, due).await {
            Ok(outcome) => outcome,
            Err(error) => refused(error),
        };
        self.settle(timer, due, outcome).await
    }

    /// Submits a run in its owner's name, with the rights that they have now.
    async fn submit_run(&self, timer: &Timer, due: Timestamp) -> Result<Outcome, ApiError> {
        if self.is_under_way(timer).await? {
            return Ok(left_out(timer, self.clock.now(), "the run before is not over".to_owned()));
        }
        let Some(owner) = self.acting_for(timer.owner, timer.client).await? else {
            return Err(ApiError::denied("The timer's owner may not log in any more"));
        };
        let body = self.store.get::<TimerBody>(&timer.id.to_string()).await?;
        let body = body.ok_or_else(|| ApiError::internal(format!("timer {} has no body", timer.id)))?;
        let document = of_run(&body.record.document, submission_of(timer.id, due), &label_of(timer));
        let draft = submission::read_transfer(&document)?;
        Ok(match self.submit(&owner, &draft, Some(("timer", timer.id))).await? {
            Submitted::New(task) | Submitted::Repeated(task) => Outcome::Task(task),
            Submitted::Conflict(task) => {
                let why = format!("a transfer of the same paths is not over: task {task}");
                left_out(timer, self.clock.now(), why)
            }
        })
    }

    /// Whether the newest run's task is not over.
    pub(super) async fn is_under_way(&self, timer: &Timer) -> Result<bool, ApiError> {
        let Some(run) = timer.last() else { return Ok(false) };
        Ok(self.store.task(run.task).await?.is_some_and(|task| !task.status.is_final()))
    }

    /// Somebody as they are now, for whom a program of theirs submits; `None`: there is no such identity any more, or it may not log in.
    pub(crate) async fn acting_for(&self, identity: Uuid, client: Uuid) -> Result<Option<Actor>, ApiError> {
        // In others' names it goes on where it has taken itself away.
        let own_name = identity == client;
        if own_name && self.client(&client.to_string()).await?.is_none_or(|client| !client.acts_for(identity)) {
            return Ok(None);
        }
        let identity = self.store.get::<Identity>(&identity.to_string()).await?.map(|found| found.record);
        let now = self.clock.now();
        Ok(identity.filter(|identity| !identity.disabled).map(|identity| Actor {
            identity: identity.id,
            username: identity.username,
            client,
            scopes: vec![TransferAll::NAME.to_owned()],
            resource_server: TRANSFER.to_owned(),
            admin: identity.admin,
            orchestrator: false,
            expires: later(now, AGAIN_MOST),
        }))
    }

    /// Notes what became of a run, also where its owner changed the timer meanwhile.
    async fn settle(&self, timer: Versioned<Timer>, due: Timestamp, outcome: Outcome) -> Result<(), ApiError> {
        let id = timer.record.id.to_string();
        let mut found = Some(timer);
        for _ in 0..TRIES {
            let Some(mut timer) = found else { return Ok(()) };
            if !note(&mut timer.record, due, &outcome, self.clock.now()) {
                return Ok(());
            }
            match self.store.apply(Batch::new().update(&timer)).await {
                Err(StoreError::Conflict(_)) => found = self.store.get(&id).await?,
                other => return Ok(other?),
            }
        }
        Err(ApiError::unavailable("the timer changes all the time"))
    }
}

/// What becomes of a run that something else is in the way of: the last time of all is not left out, but waits.
fn left_out(timer: &Timer, now: Timestamp, why: String) -> Outcome {
    if timer.schedule.next(now, timer.runs).is_none() { Outcome::Trouble(why) } else { Outcome::LeftOut }
}

/// What a refusal means for a timer.
fn refused(error: ApiError) -> Outcome {
    if error.status.is_server_error() || error.status == axum::http::StatusCode::TOO_MANY_REQUESTS {
        return Outcome::Trouble(error.message);
    }
    let scopes = error.more.get("required_scopes").and_then(|scopes| serde_json::from_value(scopes.clone()).ok());
    Outcome::Stop(match scopes {
        Some(scopes) if error.code == "ConsentRequired" => Reason::Consent { message: error.message, scopes },
        _ => Reason::Refused { code: error.code.into_owned(), message: error.message },
    })
}

/// Changes a timer by what became of its run; whether it did.
fn note(timer: &mut Timer, due: Timestamp, outcome: &Outcome, now: Timestamp) -> bool {
    if timer.newest.iter().any(|run| run.due == due) {
        return false;
    }
    let (waits, times) = match &timer.state {
        State::Waiting { next, trouble } => (*next == due, trouble.as_ref().map_or(0, |trouble| trouble.times)),
        State::Stopped { .. } | State::Ended => (false, 0),
    };
    match outcome {
        Outcome::Task(task) => timer.remember(Run { due, at: now, task: *task }),
        // Its owner paused or resumed it meanwhile: only what was done counts.
        _ if !waits => return false,
        Outcome::LeftOut => timer.left_out += 1,
        Outcome::Trouble(_) | Outcome::Stop(_) => timer.errors += 1,
    }
    if !waits {
        return true;
    }
    timer.state = match outcome {
        Outcome::Task(_) | Outcome::LeftOut => match timer.schedule.next(now, timer.runs) {
            Some(next) => State::Waiting { next, trouble: None },
            None => State::Ended,
        },
        Outcome::Trouble(message) => {
            let wait = AGAIN.saturating_mul(1 << times.min(10)).min(AGAIN_MOST);
            let trouble = Trouble { times: times + 1, again: later(now, wait), message: message.clone() };
            State::Waiting { next: due, trouble: Some(trouble) }
        }
        Outcome::Stop(reason) => State::Stopped { reason: reason.clone(), since: now },
    };
    true
}

/// The submission id of a run: the same for the same timer and time, for everybody, and not to be guessed without the timer's id.
fn submission_of(timer: Uuid, due: Timestamp) -> Uuid {
    let parts = [b"whimbrel timer run", &timer.as_bytes()[..], &due.secs.to_be_bytes()];
    uuid::Builder::from_random_bytes(id_bytes(parts)).into_uuid()
}

/// What a run's task is called where its user has not said it: `NAME, run N`.
fn label_of(timer: &Timer) -> String {
    let number = format!(", run {}", timer.runs + 1);
    let room = LONGEST_LABEL - number.chars().count();
    let name: String = timer.name.chars().take(room).collect();
    format!("{}{number}", name.trim_end())
}

#[cfg(test)]
mod tests {
    use super::super::schedule::{End, Schedule};
    use super::*;

    fn at(secs: i64) -> Timestamp {
        Timestamp::from_secs(secs)
    }

    fn timer() -> Timer {
        Timer {
            id: Uuid::from_u128(1),
            owner: Uuid::from_u128(2),
            client: Uuid::from_u128(3),
            name: "n".repeat(200),
            schedule: Schedule::Recurring { start: at(100), interval: 60, end: End::Runs { count: 20 } },
            submitted: at(0),
            state: State::Waiting { next: at(100), trouble: None },
            runs: 0,
            errors: 0,
            left_out: 0,
            newest: Vec::new(),
        }
    }

    #[test]
    fn a_run_is_noted_once_and_the_newest_are_remembered() {
        let mut timer = timer();
        for run in 0..15_i64 {
            let due = at(100 + 60 * run);
            assert!(note(&mut timer, due, &Outcome::Task(Uuid::nil()), due));
            assert!(!note(&mut timer, due, &Outcome::Task(Uuid::nil()), due));
        }
        assert_eq!((timer.runs, timer.newest.len(), timer.newest[0].due), (15, 10, at(400)));
        assert_eq!(timer.due(), Some(at(1000)));
    }

    #[test]
    fn trouble_is_tried_again_later_and_later_and_forgotten_with_success() {
        let mut timer = timer();
        let mut now = at(100);
        for wait in [10, 20, 40, 80, 160, 320, 600, 600] {
            note(&mut timer, at(100), &Outcome::Trouble("no database".into()), now);
            assert_eq!(timer.due(), Some(later(now, wait)));
            now = later(now, wait);
        }
        note(&mut timer, at(100), &Outcome::Task(Uuid::nil()), now);
        let next = timer.schedule.next(now, 1).unwrap();
        assert_eq!(timer.state, State::Waiting { next, trouble: None });
        assert_eq!((timer.runs, timer.errors), (1, 8));
    }

    #[test]
    fn who_paused_meanwhile_keeps_the_pause_and_the_run() {
        let mut timer = timer();
        let paused = State::Stopped { reason: Reason::User, since: at(101) };
        timer.state = paused.clone();
        assert!(note(&mut timer, at(100), &Outcome::Task(Uuid::nil()), at(102)));
        assert_eq!((timer.runs, &timer.state), (1, &paused));
        assert!(!note(&mut timer, at(160), &Outcome::LeftOut, at(162)));
    }

    #[test]
    fn refusals_stop_a_timer_and_trouble_does_not() {
        let consent = ApiError::consent_required("consent", &["a".to_owned()]);
        let wanted = Reason::Consent { message: "consent".into(), scopes: vec!["a".into()] };
        assert_eq!(refused(consent), Outcome::Stop(wanted));
        assert!(matches!(refused(ApiError::denied("no")), Outcome::Stop(Reason::Refused { .. })));
        assert!(matches!(refused(ApiError::unavailable("later")), Outcome::Trouble(_)));
        assert!(matches!(refused(ApiError::too_many(1, "later")), Outcome::Trouble(_)));
    }

    #[test]
    fn runs_have_their_own_submissions_and_labels_that_fit() {
        let ids = [(1, 100), (1, 160), (2, 100)].map(|(timer, due)| submission_of(Uuid::from_u128(timer), at(due)));
        assert!(ids[0] != ids[1] && ids[0] != ids[2]);
        assert_eq!(ids[0], submission_of(Uuid::from_u128(1), at(100)));
        let label = label_of(&timer());
        assert!(label.chars().count() == LONGEST_LABEL && label.ends_with("n, run 1"), "{label}");
    }
}
