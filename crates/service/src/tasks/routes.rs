//! Routes of tasks: submission, looking after, ending.

use serde_json::{Value, json};
use uuid::Uuid;
use whimbrel_engine::task::Status;

use super::document;
use super::query::task_query;
use super::submission::{self, Invalid};
use super::submit::LONGEST_LIFE;
use crate::auth::tokens::later;
use crate::auth::{Actor, UserCall};
use crate::http::{Accepted, Answer, ApiError, Done, Json, Large, Page, Route};
use crate::store::{Changed, random_uuid};
use crate::task::{Condition, Held, Task};
use crate::{Service, clock};

/// Tasks of one page, and events.
const MOST_LISTED: usize = 1000;

/// Files of one page of a report.
const MOST_FILES: u32 = 1000;

/// The routes.
pub fn routes() -> Vec<Route> {
    vec![
        Route::get("/v0.10/submission_id", "get_submission_id", submission_id),
        Route::post("/v0.10/transfer", "submit_transfer", transfer),
        Route::post("/v0.10/delete", "submit_delete", delete),
        Route::get("/v0.10/task_list", "task_list", list),
        Route::get("/v0.10/task/{task}", "get_task", show),
        Route::put("/v0.10/task/{task}", "update_task", update),
        Route::post("/v0.10/task/{task}/cancel", "cancel_task", cancel),
        Route::post("/v0.10/task/{task}/remove", "remove_task", remove),
        Route::get("/v0.10/task/{task}/event_list", "task_event_list", events),
        Route::get("/v0.10/task/{task}/successful_transfers", "task_successful_transfers", successful),
        Route::get("/v0.10/task/{task}/skipped_errors", "task_skipped_errors", skipped),
        Route::get("/v0.10/task/{task}/pause_info", "task_pause_info", pause_info),
        Route::post("/v2/whimbrel/plan/transfer", "plan_transfer", super::plan::transfer),
        Route::post("/v2/whimbrel/plan/delete", "plan_delete", super::plan::delete),
        Route::get("/v2/whimbrel/tasks/{task}/progress", "task_progress", super::progress::progress),
        Route::get("/v2/whimbrel/tasks/{task}/log", "task_log", super::log::log),
        Route::get("/v2/whimbrel/tasks/{task}/rate", "task_rate", super::pace::rate),
    ]
}

impl From<Invalid> for ApiError {
    fn from(invalid: Invalid) -> Self {
        Self { code: invalid.code.into(), ..Self::bad_request(invalid.message) }
    }
}

async fn submission_id(_: UserCall) -> Result<Answer<Value>, ApiError> {
    // Nothing is remembered of it: ids that were never given out are taken, too.
    Ok(Answer(json!({"DATA_TYPE": "submission_id", "value": random_uuid()?})))
}

async fn transfer(call: UserCall<Large>) -> Result<Accepted<Value>, ApiError> {
    let draft = submission::read_transfer(&call.body.0)?;
    let submitted = call.service.submit(&call.caller, &draft, None).await?;
    answer("transfer", &call.place.request.to_string(), &draft, submitted)
}

async fn delete(call: UserCall<Large>) -> Result<Accepted<Value>, ApiError> {
    let draft = submission::read_delete(&call.body.0)?;
    let submitted = call.service.submit(&call.caller, &draft, None).await?;
    answer("delete", &call.place.request.to_string(), &draft, submitted)
}

fn answer(
    what: &str,
    request: &str,
    draft: &submission::Draft,
    submitted: crate::task::Submitted,
) -> Result<Accepted<Value>, ApiError> {
    if let crate::task::Submitted::Conflict(task) = submitted {
        let error = ApiError::conflict(format!("A {what} with identical paths has not yet completed: task {task}"));
        return Err(error.with("task_id", json!(task)));
    }
    document::submitted(what, submitted, draft.submission, request)
        .map(Answer)
        .ok_or_else(|| ApiError::internal("a submission is neither new nor repeated nor a conflict"))
}

async fn list(call: UserCall) -> Result<Answer<Value>, ApiError> {
    let mut query = task_query(&call.query)?;
    let page = Page::of(&call.query, 10, MOST_LISTED)?;
    query.owner = Some(call.caller.identity);
    (query.offset, query.limit) = (page.offset as u64, u32::try_from(page.limit).unwrap_or(u32::MAX));
    let (tasks, total) = call.service.store.tasks(&query).await?;
    let now = call.service.clock.now();
    let data: Vec<_> = tasks.iter().map(|task| document::task(task, now)).collect();
    Ok(Answer(json!({"DATA_TYPE": "task_list", "length": data.len(), "limit": page.limit, "offset": page.offset,
                     "total": total, "DATA": data})))
}

async fn show(call: UserCall) -> Result<Answer<Value>, ApiError> {
    let task = own(&call.service, &call.caller, call.path.id("task", "TaskNotFound")?).await?;
    Ok(Answer(document::task(&task, call.service.clock.now())))
}

/// The task, if it is the caller's.
pub(super) async fn own(service: &Service, caller: &Actor, id: Uuid) -> Result<Task, ApiError> {
    let task = service.store.task(id).await?;
    match task {
        Some(task) if task.wanted.owner == caller.identity || caller.admin => Ok(task),
        Some(_) => Err(ApiError::denied("The task is another user's")),
        None => Err(no_task(id)),
    }
}

/// There is none, or nobody may know.
pub(super) fn no_task(id: Uuid) -> ApiError {
    ApiError::not_found("TaskNotFound", format!("There is no task {id}"))
}

async fn update(call: UserCall<Json<Value>>) -> Result<Answer<Done>, ApiError> {
    let id = call.path.id("task", "TaskNotFound")?;
    let task = own(&call.service, &call.caller, id).await?;
    let text = |name: &str| match call.body.0.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.clone())),
        Some(other) => Err(ApiError::bad_request(format!("{name} is a text, not {other}"))),
    };
    let (label, deadline) = (submission::label(text("label")?)?, submission::deadline(text("deadline")?.as_deref())?);
    if deadline.is_some_and(|deadline| deadline <= call.service.clock.now()) {
        return Err(ApiError::bad_request("The deadline has passed already; `task cancel` ends a task now"));
    }
    let deadline = deadline.map(|deadline| deadline.min(later(task.requested, LONGEST_LIFE)));
    let entry = call.service.entry(call.caller.identity, "task.update", id);
    let entry = entry.detail(json!({"label": label, "deadline": deadline.map(clock::iso)}));
    match call.service.store.update_task(id, None, label, deadline, Some(entry)).await? {
        Changed::Done => Ok(Answer(Done::new(&call.place, "Updated", "The task has been updated"))),
        Changed::Over => Err(ApiError::conflict("The task is over, and never changes again")),
        Changed::NotFound => Err(no_task(id)),
    }
}

async fn cancel(call: UserCall) -> Result<Answer<Done>, ApiError> {
    let id = call.path.id("task", "TaskNotFound")?;
    own(&call.service, &call.caller, id).await?;
    let now = call.service.clock.now();
    let changed = call.service.store.cancel(id, call.caller.identity, "", now).await?;
    call.service.desk.ring();
    match changed {
        Changed::Done => Ok(Answer(Done::new(&call.place, "Canceled", "The task has been cancelled successfully."))),
        Changed::Over => Ok(Answer(Done::new(
            &call.place,
            "TaskComplete",
            "The task completed before the cancel request was processed.",
        ))),
        Changed::NotFound => Err(no_task(id)),
    }
}

/// Nothing of a task is forgotten on request: it is somebody's record of what happened.
async fn remove(call: UserCall) -> Result<Answer<Done>, ApiError> {
    own(&call.service, &call.caller, call.path.id("task", "TaskNotFound")?).await?;
    Err(ApiError::new(
        axum::http::StatusCode::CONFLICT,
        "NotSupported",
        "Tasks are kept as a record; they are removed when their time of keeping is over",
    ))
}

async fn events(call: UserCall) -> Result<Answer<Value>, ApiError> {
    let id = call.path.id("task", "TaskNotFound")?;
    own(&call.service, &call.caller, id).await?;
    events_of(&call, id).await
}

/// A page of a task's events.
pub(super) async fn events_of(call: &UserCall, id: Uuid) -> Result<Answer<Value>, ApiError> {
    let page = Page::of(&call.query, 10, MOST_LISTED)?;
    let filter = crate::http::Filter::of(&call.query, &["is_error"])?;
    let named = filter.0.first().and_then(|terms| terms.first()).map(|term| term.names("1") || term.names("true"));
    // Managers name it so.
    let wanted = named.or(call.query.flag("filter_is_error")?);
    let limit = u32::try_from(page.limit).unwrap_or(u32::MAX);
    let (events, total) = call.service.store.events(id, wanted, page.offset as u64, limit).await?;
    let data: Vec<_> = events.iter().map(document::event).collect();
    Ok(Answer(json!({"DATA_TYPE": "event_list", "length": data.len(), "limit": page.limit, "offset": page.offset,
                     "total": total, "DATA": data})))
}

/// The mark behind which a page begins: opaque to clients.
fn marker(call: &UserCall) -> Result<u64, ApiError> {
    Ok(call.query.value("marker")?.unwrap_or(0))
}

/// A page of files with the mark of the next one, if there may be one.
fn files(kind: &str, marker: u64, data: Vec<Value>, last: Option<u64>) -> Answer<Value> {
    let is_full = data.len() == MOST_FILES as usize;
    let next = last.filter(|_| is_full).map(|mark| mark.to_string());
    Answer(json!({"DATA_TYPE": kind, "marker": marker.to_string(), "next_marker": next, "DATA": data}))
}

async fn successful(call: UserCall) -> Result<Answer<Value>, ApiError> {
    let task = own(&call.service, &call.caller, call.path.id("task", "TaskNotFound")?).await?;
    successful_of(&call, &task).await
}

/// A page of a task's copied files.
pub(super) async fn successful_of(call: &UserCall, task: &Task) -> Result<Answer<Value>, ApiError> {
    if task.wanted.destination.is_none() {
        return Err(ApiError::bad_request("Only transfers have a list of successful transfers"));
    }
    let marker = marker(call)?;
    let copied = call.service.store.copied(task.id, marker, MOST_FILES).await?;
    let data = copied.iter().map(|file| document::successful_transfer(task, file)).collect();
    Ok(files("successful_transfers", marker, data, copied.last().map(|file| file.mark)))
}

async fn skipped(call: UserCall) -> Result<Answer<Value>, ApiError> {
    let task = own(&call.service, &call.caller, call.path.id("task", "TaskNotFound")?).await?;
    skipped_of(&call, &task).await
}

/// A page of what a task has left out.
pub(super) async fn skipped_of(call: &UserCall, task: &Task) -> Result<Answer<Value>, ApiError> {
    let marker = marker(call)?;
    let left_out = call.service.store.left_out(task.id, marker, MOST_FILES).await?;
    let data = left_out.iter().map(|file| document::skipped_error(task, file)).collect();
    Ok(files("skipped_errors", marker, data, left_out.last().map(|file| file.mark)))
}

async fn pause_info(call: UserCall) -> Result<Answer<Value>, ApiError> {
    let task = own(&call.service, &call.caller, call.path.id("task", "TaskNotFound")?).await?;
    pause_info_of(&call, &task).await
}

/// For what a task waits.
pub(super) async fn pause_info_of(call: &UserCall, task: &Task) -> Result<Answer<Value>, ApiError> {
    let held = match (&task.condition, task.status) {
        (Condition::Paused { held, .. }, Status::Active) => held.clone(),
        _ => Held::default(),
    };
    let mut rules = Vec::new();
    if !task.status.is_final() {
        for rule in call.service.task_pauses(task).await? {
            rules.push(call.service.pause_document(&rule, false).await?);
        }
    }
    Ok(Answer(json!({"DATA_TYPE": "pause_info_limited", "pause_rules": rules, "source_pause_message": held.source,
                     "destination_pause_message": held.destination, "source_pause_message_share": null,
                     "destination_pause_message_share": null, "time": clock::iso(call.service.clock.now())})))
}
