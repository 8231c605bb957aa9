//! Pause rules: what is not to go on at a collection for now, and why.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use uuid::Uuid;
use whimbrel_engine::task::Status;

use super::records::{Collection, PauseRule, Pauses, RoleName};
use crate::Service;
use crate::auth::secrets::random_id;
use crate::auth::{Actor, ByUser};
use crate::clock;
use crate::http::{Answer, ApiError, Call, Created, Done, Json};
use crate::store::{Batch, TaskQuery, Versioned};
use crate::task::{Task, TaskWork, Wanted};

/// Longest message, characters.
const LONGEST: usize = 512;

/// A rule as those see it whose tasks wait.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct PauseRuleDocument {
    #[serde(rename = "DATA_TYPE")]
    data_type: &'static str,
    id: Uuid,
    message: String,
    endpoint_id: Uuid,
    endpoint_display_name: String,
    identity_id: Option<Uuid>,
    start_time: String,
    modified_time: String,
    #[serde(flatten)]
    pauses: Pauses,
    /// For those who manage it only.
    #[serde(skip_serializing_if = "Option::is_none")]
    editable: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    created_by_host_manager: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    modified_by_id: Option<Uuid>,
}

/// Rules.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub(super) struct PauseRuleList {
    #[serde(rename = "DATA_TYPE")]
    data_type: &'static str,
    length: usize,
    #[serde(rename = "DATA")]
    data: Vec<PauseRuleDocument>,
}

/// What is done at a collection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Doing {
    /// Something is looked at.
    List,
    /// A directory is made.
    MakeDirectory,
    /// A link is made.
    Symlink,
    /// Something gets another name.
    Rename,
    /// A task deletes.
    Delete,
    /// A task copies from there.
    Read,
    /// A task copies to there.
    Write,
}

impl Pauses {
    /// Whether this waits.
    pub fn hold(self, what: Doing) -> bool {
        match what {
            Doing::List => self.pause_ls,
            Doing::MakeDirectory => self.pause_mkdir,
            Doing::Symlink => self.pause_symlink,
            Doing::Rename => self.pause_rename,
            Doing::Delete => self.pause_task_delete,
            Doing::Read => self.pause_task_transfer_read,
            Doing::Write => self.pause_task_transfer_write,
        }
    }
}

/// What a task does at its source, and at its destination.
fn doings(wanted: &Wanted) -> Vec<(Uuid, Doing)> {
    let source = wanted.source.collection;
    let mut doings = match &wanted.work {
        TaskWork::Delete(_) => vec![(source, Doing::Delete)],
        TaskWork::Transfer(options) if options.move_source => vec![(source, Doing::Read), (source, Doing::Delete)],
        TaskWork::Transfer(_) => vec![(source, Doing::Read)],
    };
    doings.extend(wanted.destination.as_ref().map(|end| (end.collection, Doing::Write)));
    doings
}

impl Service {
    /// The rules for which a task waits, or would.
    ///
    /// # Errors
    /// 503 without the store.
    pub async fn task_pauses(&self, task: &Task) -> Result<Vec<PauseRule>, ApiError> {
        self.pauses_of(&task.wanted).await
    }

    /// The same for a task that nobody has submitted yet.
    ///
    /// # Errors
    /// 503 without the store.
    pub async fn pauses_of(&self, wanted: &Wanted) -> Result<Vec<PauseRule>, ApiError> {
        let mut rules: Vec<PauseRule> = Vec::new();
        for (collection, doing) in doings(wanted) {
            let Some(found) = self.store.get::<Collection>(&collection.to_string()).await? else { continue };
            for rule in self.effective_pauses(&found.record, wanted.owner).await? {
                if rule.pauses.hold(doing) && !rules.iter().any(|known| known.id == rule.id) {
                    rules.push(rule);
                }
            }
        }
        Ok(rules)
    }

    /// Refuses what waits for a pause rule.
    ///
    /// # Errors
    /// 409 with the rule's words, 503 without the store.
    pub async fn not_paused(&self, collection: &Collection, identity: Uuid, what: Doing) -> Result<(), ApiError> {
        let rules = self.effective_pauses(collection, identity).await?;
        let Some(rule) = rules.iter().find(|rule| rule.pauses.hold(what)) else { return Ok(()) };
        let message = format!("{} is paused: {}", collection.about.display_name, rule.message);
        Err(ApiError::new(axum::http::StatusCode::CONFLICT, "OperationPaused", message))
    }

    /// Lets a task wait while a rule holds for it, and go on when none does any more.
    ///
    /// # Errors
    /// 503 without the store.
    pub async fn heed_pauses_of(&self, task: &Task) -> Result<(), ApiError> {
        let now = self.clock.now();
        match self.task_pauses(task).await?.first() {
            Some(rule) => self.store.pause_by_rule(task.id, &rule.message, now).await?,
            None => self.store.resume_by_rule(task.id, now).await?,
        };
        Ok(())
    }

    /// The same for all tasks that are not over at a collection, and at those that are on or in it.
    async fn heed_pauses(&self, collection: Uuid) -> Result<(), ApiError> {
        let mut collections = vec![collection];
        for key in ["endpoint", "host"] {
            let below = self.all_by_key::<Collection>(key, &collection.to_string()).await?;
            collections.extend(below.into_iter().map(|found| found.record.id));
        }
        self.heed_pauses_where(TaskQuery { collections, ..TaskQuery::default() }).await
    }

    /// The same for all tasks that wait: of rules that were taken away by a replica that died over it, nobody else is told.
    ///
    /// # Errors
    /// 503 without the store.
    pub async fn heed_pauses_of_waiting(&self) -> Result<(), ApiError> {
        self.heed_pauses_where(TaskQuery { paused: Some(true), ..TaskQuery::default() }).await
    }

    async fn heed_pauses_where(&self, query: TaskQuery) -> Result<(), ApiError> {
        let statuses = vec![Status::Active, Status::Inactive];
        let waiting = self.store.all_tasks(TaskQuery { statuses, ..query }).await?;
        for task in &waiting {
            self.heed_pauses_of(task).await?;
        }
        self.desk.ring();
        Ok(())
    }

    /// The document of a pause rule; with who made it for those who manage it.
    ///
    /// # Errors
    /// 503 without the store.
    pub async fn pause_document(&self, rule: &PauseRule, managing: bool) -> Result<PauseRuleDocument, ApiError> {
        let found = self.store.get::<Collection>(&rule.collection.to_string()).await?;
        Ok(PauseRuleDocument {
            data_type: if managing { "pause_rule" } else { "pause_rule_limited" },
            id: rule.id,
            message: rule.message.clone(),
            endpoint_id: rule.collection,
            endpoint_display_name: found.map_or_else(String::new, |found| found.record.about.display_name),
            identity_id: rule.identity,
            start_time: clock::iso(rule.started),
            modified_time: clock::iso(rule.modified),
            pauses: rule.pauses,
            editable: managing.then_some(true),
            created_by_host_manager: managing.then_some(false),
            modified_by_id: managing.then_some(rule.made_by),
        })
    }

    /// A collection whose tasks somebody manages.
    async fn paused_by(&self, actor: &Actor, collection: Uuid) -> Result<Collection, ApiError> {
        let (found, standing) = self.visible(actor, collection).await?;
        standing.need(RoleName::ActivityManager)?;
        Ok(found.record)
    }
}

/// `GET /endpoint/{id}/my_effective_pause_rule_list`.
pub(super) async fn effective(call: Call<ByUser>) -> Result<Answer<PauseRuleList>, ApiError> {
    let id = call.path.id("id", "EndpointNotFound")?;
    let (found, _) = call.service.visible(&call.caller, id).await?;
    let rules = call.service.effective_pauses(&found.record, call.caller.identity).await?;
    rule_list(&call.service, &rules, false).await
}

async fn rule_list(service: &Service, rules: &[PauseRule], managing: bool) -> Result<Answer<PauseRuleList>, ApiError> {
    let mut data = Vec::new();
    for rule in rules {
        data.push(service.pause_document(rule, managing).await?);
    }
    Ok(Answer(PauseRuleList { data_type: "pause_rule_list", length: data.len(), data }))
}

/// `GET /endpoint_manager/pause_rule_list`: those of collections whose tasks the caller manages.
pub(super) async fn list(call: Call<ByUser>) -> Result<Answer<PauseRuleList>, ApiError> {
    let service = &call.service;
    let wanted: Option<Uuid> = call.query.value("filter_endpoint")?;
    let mut rules = Vec::new();
    for rule in service.all::<PauseRule>().await?.into_iter().map(|found| found.record) {
        let fits = wanted.is_none_or(|wanted| wanted == rule.collection);
        if fits && service.paused_by(&call.caller, rule.collection).await.is_ok() {
            rules.push(rule);
        }
    }
    rule_list(service, &rules, true).await
}

/// A rule that is to be, or what is to change of one.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
pub(super) struct PauseWish {
    endpoint_id: Option<Uuid>,
    message: Option<String>,
    identity_id: Option<Uuid>,
    #[serde(flatten)]
    pauses: PauseSwitches,
}

#[derive(Debug, Clone, Copy, Default, Deserialize, JsonSchema)]
#[serde(default)]
struct PauseSwitches {
    pause_ls: Option<bool>,
    pause_mkdir: Option<bool>,
    pause_symlink: Option<bool>,
    pause_rename: Option<bool>,
    pause_task_delete: Option<bool>,
    pause_task_transfer_write: Option<bool>,
    pause_task_transfer_read: Option<bool>,
}

impl PauseSwitches {
    /// What is not said stays.
    fn over(self, before: Pauses) -> Pauses {
        Pauses {
            pause_ls: self.pause_ls.unwrap_or(before.pause_ls),
            pause_mkdir: self.pause_mkdir.unwrap_or(before.pause_mkdir),
            pause_symlink: self.pause_symlink.unwrap_or(before.pause_symlink),
            pause_rename: self.pause_rename.unwrap_or(before.pause_rename),
            pause_task_delete: self.pause_task_delete.unwrap_or(before.pause_task_delete),
            pause_task_transfer_write: self.pause_task_transfer_write.unwrap_or(before.pause_task_transfer_write),
            pause_task_transfer_read: self.pause_task_transfer_read.unwrap_or(before.pause_task_transfer_read),
        }
    }
}

/// Where nothing is said, everything is paused.
const ALL: Pauses = Pauses {
    pause_ls: true,
    pause_mkdir: true,
    pause_symlink: true,
    pause_rename: true,
    pause_task_delete: true,
    pause_task_transfer_write: true,
    pause_task_transfer_read: true,
};

fn message_of(message: &str) -> Result<String, ApiError> {
    if message.trim().is_empty() || message.chars().count() > LONGEST {
        return Err(ApiError::bad_request(format!("A pause rule has a message of at most {LONGEST} characters")));
    }
    Ok(message.to_owned())
}

/// `POST /endpoint_manager/pause_rule`.
pub(super) async fn create(call: Call<ByUser, Json<PauseWish>>) -> Result<Created<PauseRuleDocument>, ApiError> {
    let (service, wish) = (&call.service, &call.body.0);
    let collection = wish.endpoint_id.ok_or_else(|| ApiError::bad_request("A pause rule needs `endpoint_id`"))?;
    let collection = service.paused_by(&call.caller, collection).await?;
    let now = service.clock.now();
    let rule = PauseRule {
        id: random_id()?,
        collection: collection.id,
        message: message_of(wish.message.as_deref().unwrap_or_default())?,
        identity: wish.identity_id,
        pauses: wish.pauses.over(ALL),
        made_by: call.caller.identity,
        started: now,
        modified: now,
    };
    let entry = service.entry(call.caller.identity, "pause_rule.create", collection.id).detail(told(&rule));
    service.store.apply(Batch::new().insert(&rule).audit(entry)).await?;
    service.heed_pauses(rule.collection).await?;
    service.pause_document(&rule, true).await.map(Answer)
}

/// A rule, for the audit log.
fn told(rule: &PauseRule) -> Value {
    json!({"rule": rule.id, "message": rule.message, "identity": rule.identity, "pauses": rule.pauses})
}

async fn managed<I>(call: &Call<ByUser, I>) -> Result<Versioned<PauseRule>, ApiError> {
    let id = call.path.id("id", "PauseRuleNotFound")?;
    let missing = || ApiError::not_found("PauseRuleNotFound", format!("There is no pause rule {id}"));
    let found = call.service.store.get::<PauseRule>(&id.to_string()).await?.ok_or_else(missing)?;
    call.service.paused_by(&call.caller, found.record.collection).await?;
    Ok(found)
}

/// `GET /endpoint_manager/pause_rule/{id}`.
pub(super) async fn show(call: Call<ByUser>) -> Result<Answer<PauseRuleDocument>, ApiError> {
    let found = managed(&call).await?;
    call.service.pause_document(&found.record, true).await.map(Answer)
}

/// `PUT /endpoint_manager/pause_rule/{id}`.
pub(super) async fn update(call: Call<ByUser, Json<PauseWish>>) -> Result<Answer<PauseRuleDocument>, ApiError> {
    let mut found = managed(&call).await?;
    if let Some(message) = &call.body.0.message {
        found.record.message = message_of(message)?;
    }
    found.record.pauses = call.body.0.pauses.over(found.record.pauses);
    (found.record.modified, found.record.made_by) = (call.service.clock.now(), call.caller.identity);
    let entry = call.service.entry(call.caller.identity, "pause_rule.update", found.record.collection);
    let entry = entry.detail(told(&found.record));
    call.service.store.apply(Batch::new().update(&found).audit(entry)).await?;
    call.service.heed_pauses(found.record.collection).await?;
    call.service.pause_document(&found.record, true).await.map(Answer)
}

/// `DELETE /endpoint_manager/pause_rule/{id}`.
pub(super) async fn delete(call: Call<ByUser>) -> Result<Answer<Done>, ApiError> {
    let found = managed(&call).await?;
    let entry = call.service.entry(call.caller.identity, "pause_rule.delete", found.record.collection);
    let entry = entry.detail(told(&found.record));
    call.service.store.apply(Batch::new().delete(&found).audit(entry)).await?;
    call.service.heed_pauses(found.record.collection).await?;
    Ok(Answer(Done::new(&call.place, "Deleted", "Pause rule deleted successfully")))
}
