//! How fast a task may go now, and what holds it back.

use schemars::JsonSchema;
use serde::Serialize;
use uuid::Uuid;
use whimbrel_engine::task::Status;

use super::routes::own;
use crate::auth::UserCall;
use crate::http::{Answer, ApiError};
use crate::reach::rates::{Brake, Pace, Why};

/// How fast a task may go now.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub(super) struct TaskRate {
    /// Bytes per second; null: as fast as it can.
    max_rate: Option<u64>,
    /// What holds it back; empty where its owner wishes no more.
    held_by: Vec<BrakeDocument>,
}

/// A bound that several tasks share.
#[derive(Debug, Clone, Serialize, JsonSchema)]
struct BrakeDocument {
    /// The rate rule; null: the collection bounds each of its users.
    rate_rule_id: Option<Uuid>,
    /// The collection that bounds each of its users; null: it is a rate rule.
    endpoint_id: Option<Uuid>,
    /// The rule's words for people.
    message: String,
    /// Bytes per second of all these tasks together.
    max_rate: u64,
    /// How many tasks share it now.
    tasks: usize,
}

impl BrakeDocument {
    fn new(brake: Brake) -> Self {
        let (rate_rule_id, endpoint_id, message) = match brake.why {
            Why::Rule(id, message) => (Some(id), None, message),
            Why::Collection(id) => (None, Some(id), String::new()),
        };
        Self { rate_rule_id, endpoint_id, message, max_rate: brake.most, tasks: brake.tasks }
    }
}

/// `GET /v2/whimbrel/tasks/{task}/rate`: nothing holds back what does not run.
pub(super) async fn rate(call: UserCall) -> Result<Answer<TaskRate>, ApiError> {
    let task = own(&call.service, &call.caller, call.path.id("task", "TaskNotFound")?).await?;
    let pace = match task.status {
        Status::Active => call.service.pace_of(&task).await?,
        _ => Pace::default(),
    };
    let held_by = pace.brakes.into_iter().map(BrakeDocument::new).collect();
    Ok(Answer(TaskRate { max_rate: pace.rate, held_by }))
}
