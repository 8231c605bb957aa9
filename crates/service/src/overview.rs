//! What administrators look at first: how the service, its servers and its tasks are.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;
use uuid::Uuid;
use whimbrel_engine::listing::Timestamp;
use whimbrel_engine::task::Status;

use crate::Service;
use crate::auth::Admin;
use crate::auth::identities::Names;
use crate::auth::scope::TransferAll;
use crate::clock::iso;
use crate::endpoints::records::{Collection, EntityType};
use crate::http::{Answer, ApiError, Call, Route};
use crate::notices::records::Notice;
use crate::replicas::Replica;
use crate::servers::Server;

use crate::store::{Order, Record as _, TaskQuery};
use crate::task::{Condition, Task};
use crate::tasks::document;

/// Most tasks that are shown of a kind.
const SHOWN: usize = 50;

/// Tasks that are looked through for those in trouble: those with the most faults come first.
const LOOKED_THROUGH: u32 = 500;

/// The routes.
pub fn routes() -> Vec<Route> {
    vec![Route::get("/v2/whimbrel/overview", "overview", overview)]
}

/// How everything is.
#[derive(Debug, Serialize, JsonSchema)]
struct Overview {
    time: String,
    version: &'static str,
    url: String,
    /// Replicas over the same database, this one included; none with SQLite.
    replicas: Vec<ReplicaDocument>,
    tasks: TaskCounts,
    /// Ends of tasks that their owners have not been told yet.
    notices_waiting: u64,
    /// What the newest recount of this process found.
    recount: Option<RecountDocument>,
    endpoints: Vec<EndpointDocument>,
    /// Who has tasks that run.
    owners: Vec<OwnerDocument>,
    /// Tasks that run, the fastest first, at most 50.
    running: Vec<Value>,
    /// Tasks that something is in the way of, those with the most faults first, at most 50.
    troubled: Vec<Value>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct ReplicaDocument {
    url: String,
    seen: String,
    is_there: bool,
}

#[derive(Debug, Serialize, JsonSchema)]
struct TaskCounts {
    /// Unfinished ones that an orchestrator has.
    running: u64,
    /// Those that wait for their turn, or to be tried again.
    waiting: u64,
    paused: u64,
    /// Those that wait for a credential.
    inactive: u64,
    /// Those that are tried again after something went wrong; they are among the waiting or running, too.
    troubled: u64,
    oldest_waiting_seconds: i64,
    /// Of all that run.
    bytes_per_second: u64,
    /// Within the last 24 hours.
    succeeded: u64,
    failed: u64,
    cancelled: u64,
}

#[derive(Debug, Serialize, JsonSchema)]
struct RecountDocument {
    time: String,
    tasks: u64,
    /// Tasks whose counters were not what their items add up to: any is a bug, or damage.
    wrong: usize,
}

#[derive(Debug, Serialize, JsonSchema)]
struct EndpointDocument {
    id: Uuid,
    name: String,
    servers: Vec<ServerDocument>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct ServerDocument {
    id: Uuid,
    name: String,
    url: Option<String>,
    version: String,
    /// Work may begin there.
    is_ready: bool,
    draining: bool,
    /// Runnable tasks of its host, averaged over a minute; null: it does not tell.
    load: Option<f64>,
    seen: String,
    outbound: bool,
    relay: bool,
}

#[derive(Debug, Serialize, JsonSchema)]
struct OwnerDocument {
    id: Uuid,
    username: String,
    running: u64,
    bytes_per_second: u64,
}

fn rate(task: &Task) -> f64 {
    task.gauge.as_ref().map_or(0.0, |gauge| gauge.rate)
}

impl ServerDocument {
    fn new(server: Server, now: Timestamp) -> Self {
        Self {
            id: server.id,
            url: server.url(),
            is_ready: server.is_ready(now),
            version: server.version,
            draining: server.draining,
            load: server.load,
            seen: iso(server.seen),
            outbound: server.outbound,
            relay: server.relay,
            name: server.name,
        }
    }
}

/// `GET /v2/whimbrel/overview`.
async fn overview(call: Call<Admin<TransferAll>>) -> Result<Answer<Overview>, ApiError> {
    let service = &call.service;
    let now = service.clock.now();
    let names = &mut Names::default();
    let mut running = service.store.running().await?;
    running.sort_by(|a, b| rate(b).total_cmp(&rate(a)));
    Ok(Answer(Overview {
        time: iso(now),
        version: env!("CARGO_PKG_VERSION"),
        url: service.issuer().to_owned(),
        replicas: service.replica_documents(now).await?,
        tasks: service.counts(now).await?,
        notices_waiting: service.store.count_records(Notice::KIND).await?,
        recount: service.house.newest().map(|newest| RecountDocument {
            time: iso(newest.time),
            tasks: newest.tasks,
            wrong: newest.wrong.len(),
        }),
        endpoints: service.endpoint_documents(now).await?,
        owners: owners(service, names, &running).await?,
        troubled: shown(service, names, &service.troubled().await?, now).await?,
        running: shown(service, names, &running, now).await?,
    }))
}

impl Service {
    async fn counts(&self, now: Timestamp) -> Result<TaskCounts, ApiError> {
        let census = self.census(now).await?;
        Ok(TaskCounts {
            running: census.running,
            waiting: census.waiting,
            paused: census.paused,
            inactive: census.inactive,
            troubled: census.troubled,
            oldest_waiting_seconds: census.oldest_waiting_seconds(now),
            bytes_per_second: census.rate as u64,
            succeeded: census.succeeded,
            failed: census.failed_uncancelled(),
            cancelled: census.cancelled,
        })
    }

    async fn replica_documents(&self, now: Timestamp) -> Result<Vec<ReplicaDocument>, ApiError> {
        let document = |replica: Replica| ReplicaDocument {
            is_there: replica.is_there(now),
            seen: iso(replica.seen),
            url: replica.url,
        };
        Ok(self.all_replicas().await?.into_iter().map(document).collect())
    }

    /// Everything that has servers; computers of users only while theirs are there.
    async fn endpoint_documents(&self, now: Timestamp) -> Result<Vec<EndpointDocument>, ApiError> {
        let mut servers: BTreeMap<Uuid, Vec<Server>> = BTreeMap::new();
        for server in self.all::<Server>().await? {
            servers.entry(server.record.endpoint).or_default().push(server.record);
        }
        let mut endpoints = Vec::new();
        for found in
            self.all::<Collection>().await?.into_iter().map(|found| found.record).filter(|found| !found.deleted)
        {
            let mut own = servers.remove(&found.id).unwrap_or_default();
            let is_deployment = found.kind == EntityType::Endpoint;
            if !is_deployment && !own.iter().any(|server| server.is_ready(now)) {
                continue;
            }
            own.sort_by(|a, b| a.name.cmp(&b.name).then(a.id.cmp(&b.id)));
            let servers = own.into_iter().map(|server| ServerDocument::new(server, now)).collect();
            endpoints.push(EndpointDocument { id: found.id, name: found.about.display_name, servers });
        }
        endpoints.sort_by(|a, b| a.name.cmp(&b.name).then(a.id.cmp(&b.id)));
        Ok(endpoints)
    }

    async fn troubled(&self) -> Result<Vec<Task>, ApiError> {
        let statuses = vec![Status::Active, Status::Inactive];
        let order = vec![(Order::Faults, true), (Order::RequestTime, false)];
        let (mut tasks, _) =
            self.store.tasks(&TaskQuery { statuses, order, limit: LOOKED_THROUGH, ..TaskQuery::default() }).await?;
        tasks.retain(|task| matches!(task.condition, Condition::Troubled { .. }));
        Ok(tasks)
    }
}

/// The first tasks as the API shows them, with their owner's name.
async fn shown(service: &Service, names: &mut Names, tasks: &[Task], now: Timestamp) -> Result<Vec<Value>, ApiError> {
    let mut shown = Vec::new();
    for task in tasks.iter().take(SHOWN) {
        let mut document = document::task(task, now);
        document["owner_string"] = Value::from(called(service, names, task.wanted.owner).await?);
        document["bytes_per_second"] = Value::from(rate(task) as u64);
        shown.push(document);
    }
    Ok(shown)
}

async fn owners(service: &Service, names: &mut Names, running: &[Task]) -> Result<Vec<OwnerDocument>, ApiError> {
    let mut known: BTreeMap<Uuid, (u64, f64)> = BTreeMap::new();
    for task in running {
        let (count, sum) = known.entry(task.wanted.owner).or_default();
        (*count, *sum) = (*count + 1, *sum + rate(task));
    }
    let mut owners = Vec::new();
    for (id, (running, sum)) in known {
        let username = called(service, names, id).await?;
        owners.push(OwnerDocument { id, username, running, bytes_per_second: sum as u64 });
    }
    owners.sort_by(|a, b| b.bytes_per_second.cmp(&a.bytes_per_second).then(a.username.cmp(&b.username)));
    Ok(owners)
}

/// Somebody's name, or their id if they are gone.
async fn called(service: &Service, names: &mut Names, id: Uuid) -> Result<String, ApiError> {
    Ok(names.of(service, id).await?.unwrap_or_else(|| id.to_string()))
}
