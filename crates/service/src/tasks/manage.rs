//! Tasks as those see and end them who look after their collections: activity monitors and activity managers.

use axum::http::StatusCode;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use uuid::Uuid;
use whimbrel_engine::listing::Timestamp;
use whimbrel_engine::task::Status;

use super::document;
use super::routes::{events_of, no_task, pause_info_of, skipped_of, successful_of};
use crate::Service;
use crate::auth::secrets::random_id;
use crate::auth::{Actor, UserCall};
use crate::clock;
use crate::endpoints::records::{Collection, RoleName};
use crate::http::{Answer, ApiError, Done, Json, Query, Route};
use crate::store::{Batch, Order, Record, TaskPlace, TaskQuery, time_key};
use crate::task::{Cancelled, Ends, Task};

/// Tasks of a page, and tasks that are named in one request.
const PAGE: u32 = 100;
const MOST_NAMED: usize = 100;
/// Longest message, characters.
const LONGEST: usize = 512;
/// Seconds for which the end of tasks can be asked for: a day.
const REMEMBERED: i64 = 24 * 3600;

/// The routes.
pub fn routes() -> Vec<Route> {
    vec![
        Route::get("/v0.10/endpoint_manager/task_list", "manager_task_list", list),
        Route::get("/v0.10/endpoint_manager/task/{task}", "manager_get_task", show),
        Route::get("/v0.10/endpoint_manager/task/{task}/event_list", "manager_task_events", events),
        Route::get("/v0.10/endpoint_manager/task/{task}/successful_transfers", "manager_task_successful", successful),
        Route::get("/v0.10/endpoint_manager/task/{task}/skipped_errors", "manager_task_skipped", skipped),
        Route::get("/v0.10/endpoint_manager/task/{task}/pause_info", "manager_task_pause_info", pause_info),
        Route::post("/v0.10/endpoint_manager/admin_cancel", "manager_cancel", cancel),
        Route::get("/v0.10/endpoint_manager/admin_cancel/{cancel}", "manager_cancel_status", cancel_status),
        Route::post("/v0.10/endpoint_manager/admin_pause", "manager_pause", pause),
        Route::post("/v0.10/endpoint_manager/admin_resume", "manager_resume", resume),
    ]
}

impl Service {
    /// The ends of a task at which somebody has a role.
    async fn looked_after(&self, caller: &Actor, task: &Task, role: RoleName) -> Result<Ends, ApiError> {
        let source = self.has_role(caller, task.wanted.source.collection, role).await?;
        let destination = match &task.wanted.destination {
            Some(end) => self.has_role(caller, end.collection, role).await?,
            None => false,
        };
        Ok(Ends { source, destination })
    }

    async fn has_role(&self, caller: &Actor, collection: Uuid, role: RoleName) -> Result<bool, ApiError> {
        let Some(found) = self.store.get::<Collection>(&collection.to_string()).await? else { return Ok(caller.admin) };
        Ok(self.standing(caller, &found.record).await?.may_as(role))
    }

    /// Forgets for which tasks managers have asked, a day later.
    ///
    /// # Errors
    /// 503 without the store.
    pub async fn forget_cancellations(&self) -> Result<(), ApiError> {
        let ended = time_key(Timestamp::from_secs(self.clock.now().secs.saturating_sub(REMEMBERED)));
        for found in self.store.find_until::<Cancellation>("at", &ended, PAGE).await? {
            self.store.apply(Batch::new().delete(&found)).await?;
        }
        Ok(())
    }
}

/// The task of the path, if the caller monitors one of its ends.
async fn monitored(call: &UserCall) -> Result<Task, ApiError> {
    let id = call.path.id("task", "TaskNotFound")?;
    let task = call.service.store.task(id).await?.ok_or_else(|| no_task(id))?;
    let ends = call.service.looked_after(&call.caller, &task, RoleName::ActivityMonitor).await?;
    // Who looks after neither end may not know that there is one.
    ends.name().map(|_| task).ok_or_else(|| no_task(id))
}

async fn list(call: UserCall) -> Result<Answer<Value>, ApiError> {
    let (service, caller, query) = (&call.service, &call.caller, &call.query);
    let mut wanted = task_query(query)?;
    let side = Side::of(query)?;
    let named = query.value::<Uuid>("filter_endpoint")?;
    let is_current = !wanted.statuses.is_empty() && wanted.statuses.iter().all(|status| !status.is_final());
    if !is_current && wanted.ids.is_empty() && named.is_none() {
        let message = "Without `filter_task_id` or `filter_endpoint` only tasks are listed that are not over: \
                       filter_status=ACTIVE,INACTIVE";
        return Err(ApiError::bad_request(message));
    }
    let collections = match named {
        Some(id) => {
            let (_, standing) = service.visible(caller, id).await?;
            standing.need(RoleName::ActivityMonitor)?;
            vec![id]
        }
        None => monitored_collections(service, caller).await?,
    };
    let key = query.filled("last_key");
    let wrong = |key| ApiError::bad_request(format!("`last_key` cannot be {key:?}"));
    wanted.behind = key.map(|key| TaskPlace::of_key(key, true).ok_or_else(|| wrong(key))).transpose()?;
    if collections.is_empty() {
        return Ok(Answer(page(Vec::new(), None, false)));
    }
    wanted.collections.clone_from(&collections);
    wanted.limit = PAGE;
    wanted.order = vec![(Order::RequestTime, true), (Order::Id, false)];
    let (tasks, total) = service.store.tasks(&wanted).await?;
    let has_next = total > tasks.len() as u64;
    let last = tasks.last().map(|last| TaskPlace::of(last, true));
    let user = query.filled("filter_local_user");
    let now = service.clock.now();
    let fits = |task: &&Task| side.fits(task, &collections) && user.is_none_or(|user| works_as(task, user));
    let data = tasks.iter().filter(fits).map(|task| document::task(task, now)).collect();
    Ok(Answer(page(data, last, has_next)))
}

fn page(data: Vec<Value>, last: Option<TaskPlace>, has_next: bool) -> Value {
    json!({"DATA_TYPE": "task_list", "length": data.len(), "limit": PAGE, "has_next_page": has_next,
           "last_key": last.map(TaskPlace::key).unwrap_or_default(), "DATA": data})
}

fn works_as(task: &Task, user: &str) -> bool {
    let ends = std::iter::once(&task.wanted.source).chain(&task.wanted.destination);
    ends.into_iter().any(|end| end.local_user.as_deref() == Some(user))
}

async fn monitored_collections(service: &Service, caller: &Actor) -> Result<Vec<Uuid>, ApiError> {
    let who = service.who(caller.identity).await?;
    let mut ids = Vec::new();
    for collection in service.all::<Collection>().await? {
        if service.standing_as(&who, caller.admin, &collection.record).await?.may_as(RoleName::ActivityMonitor) {
            ids.push(collection.record.id);
        }
    }
    Ok(ids)
}

/// At which end of a task a collection has to be.
enum Side {
    Any,
    Source,
    Destination,
}

impl Side {
    fn of(query: &Query) -> Result<Self, ApiError> {
        match query.filled("filter_endpoint_use") {
            None => Ok(Self::Any),
            Some("source") => Ok(Self::Source),
            Some("destination") => Ok(Self::Destination),
            Some(_) => Err(ApiError::bad_request("`filter_endpoint_use` is source or destination")),
        }
    }

    fn fits(&self, task: &Task, collections: &[Uuid]) -> bool {
        let destination = || task.wanted.destination.as_ref().is_some_and(|end| collections.contains(&end.collection));
        match self {
            Self::Any => true,
            Self::Source => collections.contains(&task.wanted.source.collection),
            Self::Destination => destination(),
        }
    }
}

/// Which tasks a request of a manager asks for.
fn task_query(query: &Query) -> Result<TaskQuery, ApiError> {
    let wrong = |name: &str, value: &str| ApiError::bad_request(format!("`{name}` cannot be {value:?}"));
    let statuses = query.list("filter_status");
    let statuses =
        statuses.map(|text| Status::parse(&text.to_ascii_uppercase()).ok_or_else(|| wrong("filter_status", text)));
    let ids = query.list("filter_task_id").map(|text| text.parse().map_err(|_| wrong("filter_task_id", text)));
    let ids = ids.collect::<Result<Vec<Uuid>, _>>()?;
    if ids.len() > MOST_NAMED {
        return Err(ApiError::bad_request(format!("`filter_task_id` names at most {MOST_NAMED} tasks")));
    }
    let times: Vec<_> = query.get("filter_completion_time").unwrap_or_default().split(',').collect();
    let time = |place: usize| match times.get(place).copied().filter(|text| !text.is_empty()) {
        None => Ok(None),
        Some(text) => clock::parse(text).map(Some).ok_or_else(|| wrong("filter_completion_time", text)),
    };
    Ok(TaskQuery {
        statuses: statuses.collect::<Result<_, _>>()?,
        ids,
        owner: query.value("filter_owner_id")?,
        paused: query.filled("filter_is_paused").map(|text| ["1", "true", "True"].contains(&text)),
        min_faults: query.value("filter_min_faults")?.unwrap_or(0),
        completed: (time(0)?, time(1)?),
        ..TaskQuery::default()
    })
}

async fn show(call: UserCall) -> Result<Answer<Value>, ApiError> {
    let task = monitored(&call).await?;
    Ok(Answer(document::task(&task, call.service.clock.now())))
}

async fn events(call: UserCall) -> Result<Answer<Value>, ApiError> {
    let task = monitored(&call).await?;
    events_of(&call, task.id).await
}

async fn successful(call: UserCall) -> Result<Answer<Value>, ApiError> {
    let task = monitored(&call).await?;
    successful_of(&call, &task).await
}

async fn skipped(call: UserCall) -> Result<Answer<Value>, ApiError> {
    let task = monitored(&call).await?;
    skipped_of(&call, &task).await
}

async fn pause_info(call: UserCall) -> Result<Answer<Value>, ApiError> {
    let task = monitored(&call).await?;
    pause_info_of(&call, &task).await
}

/// Tasks, and words for their owners.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
struct Named {
    message: Option<String>,
    task_id_list: Vec<Uuid>,
}

/// The tasks of a request with the ends that the caller manages: all of them, or nothing is done.
async fn managed(call: &UserCall<Json<Named>>) -> Result<Vec<(Uuid, Ends)>, ApiError> {
    let named = &call.body.0.task_id_list;
    if named.is_empty() || named.len() > MOST_NAMED {
        return Err(ApiError::bad_request(format!("`task_id_list` names 1 to {MOST_NAMED} tasks")));
    }
    let mut tasks = Vec::new();
    for &id in named {
        let task = call.service.store.task(id).await?.ok_or_else(|| no_task(id))?;
        let ends = call.service.looked_after(&call.caller, &task, RoleName::ActivityManager).await?;
        match ends.name() {
            Some(_) => tasks.push((id, ends)),
            None if call
                .service
                .looked_after(&call.caller, &task, RoleName::ActivityMonitor)
                .await?
                .name()
                .is_some() =>
            {
                return Err(ApiError::denied(format!("You may look at the task {id}, and not change it")));
            }
            None => return Err(no_task(id)),
        }
    }
    Ok(tasks)
}

/// What is said to the owners: they are not to wonder.
fn words(call: &UserCall<Json<Named>>) -> Result<&str, ApiError> {
    let message = call.body.0.message.as_deref().unwrap_or_default().trim();
    if message.is_empty() || message.chars().count() > LONGEST {
        return Err(ApiError::bad_request(format!("`message` tells the owners why, in 1 to {LONGEST} characters")));
    }
    Ok(message)
}

/// Tasks that a manager has ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Cancellation {
    id: Uuid,
    by: Uuid,
    at: Timestamp,
    tasks: Vec<Uuid>,
}

impl Record for Cancellation {
    const KIND: &'static str = "cancellation";

    fn id(&self) -> String {
        self.id.to_string()
    }

    fn keys(&self) -> Vec<(&'static str, String)> {
        vec![("at", time_key(self.at))]
    }
}

async fn cancel(call: UserCall<Json<Named>>) -> Result<Answer<Value>, ApiError> {
    let (service, by, now) = (&call.service, call.caller.identity, call.service.clock.now());
    let message = words(&call)?.to_owned();
    let tasks = managed(&call).await?;
    let made = Cancellation { id: random_id()?, by, at: now, tasks: tasks.iter().map(|(id, _)| *id).collect() };
    service.store.apply(Batch::new().insert(&made)).await?;
    for (task, ends) in tasks {
        let cancelled = Cancelled { by, message: message.clone(), manager_of: ends.name().map(str::to_owned) };
        service.store.cancel_as(task, cancelled, now).await?;
    }
    service.desk.ring();
    Ok(Answer(json!({"DATA_TYPE": "admin_cancel", "id": made.id, "done": true})))
}

async fn cancel_status(call: UserCall) -> Result<Answer<Value>, ApiError> {
    let id = call.path.id("cancel", "NotFound")?;
    let found = call.service.store.get::<Cancellation>(&id.to_string()).await?.map(|found| found.record);
    let found = found.filter(|found| found.by == call.caller.identity);
    let found = found
        .ok_or_else(|| ApiError::new(StatusCode::NOT_FOUND, "NotFound", "You have cancelled nothing of that id"))?;
    let mut done = true;
    for task in found.tasks {
        done &= call.service.store.task(task).await?.is_none_or(|task| task.status.is_final());
    }
    Ok(Answer(json!({"DATA_TYPE": "admin_cancel", "id": id, "done": done})))
}

async fn pause(call: UserCall<Json<Named>>) -> Result<Answer<Done>, ApiError> {
    let (service, now) = (&call.service, call.service.clock.now());
    let message = words(&call)?;
    let tasks = managed(&call).await?;
    for (task, ends) in tasks {
        let entry = service.entry(call.caller.identity, "task.pause", task);
        let entry = entry.detail(json!({"message": message, "manager_of": ends.name()}));
        service.store.pause_by(task, ends, message, Some(entry), now).await?;
    }
    service.desk.ring();
    Ok(Answer(Done::new(&call.place, "PauseAccepted", "The tasks wait; what they do ends in an orderly way")))
}

async fn resume(call: UserCall<Json<Named>>) -> Result<Answer<Done>, ApiError> {
    let (service, now) = (&call.service, call.service.clock.now());
    let (tasks, mut waiting) = (managed(&call).await?, 0_usize);
    for (task, ends) in tasks {
        let entry = service.entry(call.caller.identity, "task.resume", task);
        let entry = entry.detail(json!({"manager_of": ends.name()}));
        let (_, goes_on) = service.store.resume_by(task, ends, Some(entry), now).await?;
        waiting += usize::from(!goes_on);
    }
    service.desk.ring();
    let message = match waiting {
        0 => "The tasks go on, unless a pause rule holds them".to_owned(),
        waiting => format!("{waiting} of the tasks wait on: managers of their other collection hold them"),
    };
    Ok(Answer(Done::new(&call.place, "ResumeAccepted", message)))
}
