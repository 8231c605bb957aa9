//! Timers as the API's documents show them: the newer one of their making, and the older one of their looking after.

use serde_json::{Value, json};
use whimbrel_engine::listing::Timestamp;

use super::records::{Reason, State, Timer};
use super::schedule::{End, Schedule};
use crate::auth::scope::{Scope as _, TimersAll};
use crate::clock::iso;
use crate::task::Task;

/// What the public clients know transfers by; it is never asked.
const CALLBACK: &str = "https://actions.automate.globus.org/transfer/transfer/run";

/// The document of `POST /v2/timer`.
pub fn made(timer: &Timer, body: &Value) -> Value {
    json!({
        "job_id": timer.id,
        "name": timer.name,
        "timer_type": "transfer",
        "status": status(timer),
        "submitted_at": iso(timer.submitted),
        "last_ran_at": timer.last().map(|run| iso(run.at)),
        "next_run": next_run(timer),
        "schedule": schedule(&timer.schedule),
        "number_of_runs": timer.runs,
        "number_of_errors": timer.errors,
        "inactive_reason": inactive_reason(timer),
        "body": body,
    })
}

/// The document of `/jobs/`: `under_way` says whether the newest run's task is not over.
pub fn job(timer: &Timer, under_way: bool) -> Value {
    let (interval, stop_after) = match timer.schedule {
        Schedule::Once { .. } => (None, json!({"date": null, "n_runs": 1})),
        Schedule::Recurring { interval, end, .. } => match end {
            End::Never => (Some(interval), Value::Null),
            End::Runs { count } => (Some(interval), json!({"date": null, "n_runs": count})),
            End::Time { at } => (Some(interval), json!({"date": iso(at), "n_runs": null})),
        },
    };
    json!({
        "job_id": timer.id,
        "name": timer.name,
        "timer_type": "transfer",
        "callback_url": CALLBACK,
        "scope": null,
        "status": status(timer),
        "activity": activity(timer, under_way),
        "submitted_at": iso(timer.submitted),
        "start": iso(timer.schedule.start()),
        "interval": interval,
        "stop_after": stop_after,
        "schedule": schedule(&timer.schedule),
        "last_ran_at": timer.last().map(|run| iso(run.at)),
        "next_run": next_run(timer),
        "n_runs": timer.runs,
        "n_errors": timer.errors,
        "n_left_out": timer.left_out,
        "inactive_reason": inactive_reason(timer),
        "last_error": trouble(timer),
        "results": {"data": [], "page_next": null},
    })
}

/// The entry of a run in `results`, newest first; `None`: its task is forgotten.
pub fn result(timer: &Timer, place: usize, task: Option<&Task>, now: Timestamp) -> Value {
    let run = &timer.newest[place];
    let details = task.map(|task| crate::tasks::document::task(task, now));
    let status = details.as_ref().map(|details| details["status"].clone());
    json!({
        "ran_at": iso(run.at),
        "status": 202,
        "errors": null,
        "data": {"action_id": run.task, "start_time": iso(run.at), "status": status, "details": details},
    })
}

fn status(timer: &Timer) -> &'static str {
    match timer.state {
        State::Waiting { .. } => "active",
        State::Stopped { .. } => "inactive",
        State::Ended => "ended",
    }
}

fn next_run(timer: &Timer) -> Option<String> {
    match timer.state {
        State::Waiting { next, .. } => Some(iso(next)),
        State::Stopped { .. } | State::Ended => None,
    }
}

fn schedule(schedule: &Schedule) -> Value {
    match *schedule {
        Schedule::Once { at } => json!({"type": "once", "datetime": iso(at)}),
        Schedule::Recurring { start, interval, end } => json!({
            "type": "recurring",
            "start": iso(start),
            "interval_seconds": interval,
            "end": match end {
                End::Never => Value::Null,
                End::Runs { count } => json!({"condition": "iterations", "count": count}),
                End::Time { at } => json!({"condition": "time", "datetime": iso(at)}),
            },
        }),
    }
}

/// What a timer does now; `null`: nothing ever again.
fn activity(timer: &Timer, under_way: bool) -> Value {
    let last = timer.last().filter(|_| under_way).map(|run| iso(run.at));
    match (&timer.state, last) {
        (State::Stopped { .. }, _) => json!({"code": "paused", "start_timestamp": null}),
        (State::Waiting { next, trouble: Some(_) }, _) => json!({"code": "retrying", "start_timestamp": iso(*next)}),
        (_, Some(started)) => json!({"code": "run_in_progress", "start_timestamp": started}),
        (State::Waiting { .. }, None) => json!({"code": "awaiting_next_run", "start_timestamp": null}),
        (State::Ended, None) => Value::Null,
    }
}

/// Why a timer does nothing: as the public clients read it where they know the cause, else with a cause of our own.
fn inactive_reason(timer: &Timer) -> Value {
    let State::Stopped { reason, since } = &timer.state else { return Value::Null };
    let mut told = match reason {
        Reason::User => json!({"cause": "user", "detail": null}),
        Reason::Consent { message, scopes } => {
            let root = format!("{}[", TimersAll::NAME);
            let wanted = |scope: &String| match scope.starts_with(&root) {
                true => scope.clone(),
                false => format!("{root}{scope}]"),
            };
            let scopes: Vec<_> = scopes.iter().map(wanted).collect();
            let parameters = json!({"session_message": message, "required_scopes": scopes});
            json!({"cause": "globus_auth_requirements",
                   "detail": {"code": "ConsentRequired", "authorization_parameters": parameters}})
        }
        Reason::Refused { code, message } => {
            json!({"cause": "submission_refused", "detail": {"code": code, "message": message}})
        }
    };
    told["since"] = json!(iso(*since));
    told
}

fn trouble(timer: &Timer) -> Value {
    match &timer.state {
        State::Waiting { trouble: Some(trouble), .. } => {
            json!({"message": trouble.message, "times": trouble.times, "next_attempt": iso(trouble.again)})
        }
        _ => Value::Null,
    }
}
