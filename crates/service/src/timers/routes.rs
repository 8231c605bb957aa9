//! Routes of timers.

use axum::http::{Method, StatusCode};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use super::input::{JobWish, NewTimer, TimerWish, name_of, of_run};
use super::records::{Reason, State, Timer, TimerBody};
use super::{document, schedule::Schedule};
use crate::auth::scope::{Scope as _, TRANSFER, TimersAll, TransferAll};
use crate::auth::secrets::random_id;
use crate::auth::{Actor, User};
use crate::http::{Answer, ApiError, Call, Created, Json, Route};
use crate::store::{Batch, Versioned};
use crate::tasks::submission;

/// Timers of one owner at the most that have not ended.
const MOST: usize = 200;

/// Largest document, bytes: some ten thousand items.
const MOST_BODY: usize = 4 << 20;

/// The routes.
pub fn routes() -> Vec<Route> {
    vec![
        Route::post("/v2/timer", "timer_create", create),
        Route::get("/jobs/", "timer_list", list),
        Route::post("/jobs/", "timer_create_job", create_job),
        Route::get("/jobs/{timer}", "timer_show", show),
        Route::new(Method::PATCH, "/jobs/{timer}", "timer_update", update),
        Route::delete("/jobs/{timer}", "timer_delete", delete),
        Route::post("/jobs/{timer}/pause", "timer_pause", pause),
        Route::post("/jobs/{timer}/resume", "timer_resume", resume),
    ]
}

type TimerCall<I = ()> = Call<User<TimersAll>, I>;

async fn create(call: TimerCall<Json<TimerWish, MOST_BODY>>) -> Result<Created<Value>, ApiError> {
    let new = call.body.0.clone().read(call.service.clock.now())?;
    let (timer, body) = add(&call, new).await?;
    Ok(Answer(json!({"timer": document::made(&timer, &body)})))
}

async fn create_job(call: TimerCall<Json<JobWish, MOST_BODY>>) -> Result<Created<Value>, ApiError> {
    let new = call.body.0.clone().read(call.service.clock.now())?;
    let (timer, _) = add(&call, new).await?;
    Ok(Answer(document::job(&timer, false)))
}

/// Keeps a timer whose runs would be taken now.
async fn add<I>(call: &TimerCall<I>, new: NewTimer) -> Result<(Timer, Value), ApiError> {
    let (service, caller) = (&call.service, &call.caller);
    let draft = submission::read_transfer(&of_run(&new.document, random_id()?, "timer"))?;
    service.submission_of(&for_transfers(caller), &draft).await?;
    let own = service.all_by_key::<Timer>("owner", &caller.identity.to_string()).await?;
    if own.iter().filter(|found| found.record.state != State::Ended).count() >= MOST {
        let message = format!("You have {MOST} timers; delete one that you do not need");
        return Err(ApiError::new(StatusCode::CONFLICT, "LimitExceeded", message));
    }
    let now = service.clock.now();
    let next = new.schedule.first(now).ok_or_else(|| ApiError::bad_request("The timer would never run"))?;
    let timer = Timer {
        id: random_id()?,
        owner: caller.identity,
        client: caller.client,
        name: new.name,
        schedule: new.schedule,
        submitted: now,
        state: State::Waiting { next, trouble: None },
        runs: 0,
        errors: 0,
        left_out: 0,
        newest: Vec::new(),
    };
    let body = TimerBody { timer: timer.id, document: new.document };
    let entry = service.entry(caller.identity, "timer.create", timer.id);
    service.store.apply(Batch::new().insert(&timer).insert(&body).audit(entry)).await?;
    Ok((timer, body.document))
}

/// Who calls, as they submit transfers: a token for timers says that they may be submitted for them.
fn for_transfers(caller: &Actor) -> Actor {
    Actor { scopes: vec![TransferAll::NAME.to_owned()], resource_server: TRANSFER.to_owned(), ..caller.clone() }
}

async fn list(call: TimerCall) -> Result<Answer<Value>, ApiError> {
    let found = call.service.all_by_key::<Timer>("owner", &call.caller.identity.to_string()).await?;
    let mut timers: Vec<_> = found.into_iter().map(|found| found.record).collect();
    timers.sort_by_key(|timer| (timer.submitted, timer.id));
    if call.query.get("order").is_some_and(|order| order.to_ascii_lowercase().ends_with(" desc")) {
        timers.reverse();
    }
    let mut jobs = Vec::new();
    for timer in &timers {
        jobs.push(document::job(timer, call.service.is_under_way(timer).await?));
    }
    Ok(Answer(json!({"jobs": jobs})))
}

/// A timer of the caller's.
async fn own<I>(call: &TimerCall<I>) -> Result<Versioned<Timer>, ApiError> {
    let id = call.path.id("timer", "TimerNotFound")?;
    let found = call.service.store.get::<Timer>(&id.to_string()).await?;
    let found = found.filter(|timer| timer.record.owner == call.caller.identity);
    found.ok_or_else(|| ApiError::not_found("TimerNotFound", format!("You have no timer {id}")))
}

/// The document of one timer, with its newest runs.
async fn whole<I>(call: &TimerCall<I>, timer: &Timer) -> Result<Value, ApiError> {
    let now = call.service.clock.now();
    let mut told = document::job(timer, call.service.is_under_way(timer).await?);
    let mut results = Vec::new();
    for place in (0..timer.newest.len()).rev() {
        let task = call.service.store.task(timer.newest[place].task).await?;
        results.push(document::result(timer, place, task.as_ref(), now));
    }
    told["results"]["data"] = Value::Array(results);
    Ok(told)
}

async fn show(call: TimerCall) -> Result<Answer<Value>, ApiError> {
    let timer = own(&call).await?.record;
    let mut told = whole(&call, &timer).await?;
    if let Some(body) = call.service.store.get::<TimerBody>(&timer.id.to_string()).await? {
        told["callback_body"] = json!({"body": body.record.document});
    }
    Ok(Answer(told))
}

/// What can change of a timer; for another schedule or other files one makes another timer.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct JobChange {
    name: String,
}

async fn update(call: TimerCall<Json<JobChange>>) -> Result<Answer<Value>, ApiError> {
    let mut found = own(&call).await?;
    found.record.name = name_of(Some(call.body.0.name.clone()))?;
    let entry = call.service.entry(call.caller.identity, "timer.update", found.record.id);
    let entry = entry.detail(json!({"name": found.record.name}));
    call.service.store.apply(Batch::new().update(&found).audit(entry)).await?;
    whole(&call, &found.record).await.map(Answer)
}

async fn delete(call: TimerCall) -> Result<Answer<Value>, ApiError> {
    let found = own(&call).await?;
    let told = document::job(&found.record, call.service.is_under_way(&found.record).await?);
    let id = found.record.id;
    let entry = call.service.entry(call.caller.identity, "timer.delete", id);
    let batch = Batch::new().delete_id::<Timer>(id).delete_id::<TimerBody>(id).audit(entry);
    call.service.store.apply(batch).await?;
    Ok(Answer(told))
}

/// Ends runs that are to come; one that is under way goes on.
async fn pause(call: TimerCall) -> Result<Answer<Value>, ApiError> {
    let mut found = own(&call).await?;
    let id = found.record.id;
    match found.record.state {
        State::Ended => return Err(ApiError::conflict("The timer has ended, and never runs again")),
        State::Stopped { .. } => {}
        State::Waiting { .. } => {
            found.record.state = State::Stopped { reason: Reason::User, since: call.service.clock.now() };
            let entry = call.service.entry(call.caller.identity, "timer.pause", id);
            call.service.store.apply(Batch::new().update(&found).audit(entry)).await?;
        }
    }
    Ok(Answer(json!({"message": format!("Successfully paused job {id}.")})))
}

/// Lets it wait for its next time; of one that runs once that is at once, if it has passed.
async fn resume(call: TimerCall) -> Result<Answer<Value>, ApiError> {
    let mut found = own(&call).await?;
    let (timer, now) = (&mut found.record, call.service.clock.now());
    match timer.state {
        State::Ended => return Err(ApiError::conflict("The timer has ended, and never runs again")),
        State::Waiting { .. } => {}
        State::Stopped { .. } => {
            let next = match timer.schedule {
                Schedule::Once { at } if timer.runs == 0 => Some(at),
                _ => timer.schedule.next(now, timer.runs),
            };
            timer.state = next.map_or(State::Ended, |next| State::Waiting { next, trouble: None });
            // From now on it runs with what its owner lets this program do.
            timer.client = call.caller.client;
            let entry = call.service.entry(call.caller.identity, "timer.resume", timer.id);
            call.service.store.apply(Batch::new().update(&found).audit(entry)).await?;
        }
    }
    Ok(Answer(json!({"message": format!("Successfully resumed job {}.", found.record.id)})))
}
