//! Timers: what they submit, when, in whose name, and what stops them.

use axum::http::Method;
use serde_json::{Value, json};
use uuid::Uuid;
use whimbrel_engine::listing::Timestamp;
use whimbrel_service::auth::records::Identity;
use whimbrel_service::auth::scope::{Scope, TimersAll};
use whimbrel_service::clock::iso;
use whimbrel_service::store::Batch;
use whimbrel_service::timers::records::{State, Timer};

use crate::bench::{Bench, NOW, Somebody};
use crate::collections::{Site, id, site};

/// Someone's timers, as they look after them.
struct Timers<'a> {
    bench: &'a Bench,
    owner: &'a Somebody,
    token: String,
}

impl<'a> Timers<'a> {
    async fn of(bench: &'a Bench, owner: &'a Somebody) -> Self {
        let token = bench.token(&owner.client, TimersAll::NAME).await;
        Self { bench, owner, token }
    }

    async fn make(&self, schedule: Value, body: Value) -> Uuid {
        let document =
            json!({"timer": {"timer_type": "transfer", "name": "nightly", "schedule": schedule, "body": body}});
        let made = self.bench.post("/v2/timer", &self.token, document).await;
        assert_eq!(made.status, 201, "{made:?}");
        id(&made.json()["timer"]["job_id"])
    }

    async fn show(&self, timer: Uuid) -> Value {
        self.bench.get(&format!("/jobs/{timer}"), &self.token).await.good()
    }

    async fn command(&self, timer: Uuid, command: &str) -> u16 {
        self.bench
            .post(&format!("/jobs/{timer}/{command}"), &self.token, json!({"update_credentials": false}))
            .await
            .status
    }

    /// The owner's tasks, oldest first.
    async fn tasks(&self) -> Vec<Value> {
        let path = "/v0.10/task_list?limit=100&orderby=request_time%20ASC";
        let listed = self.bench.get(path, &self.bench.token(&self.owner.client, SCOPE).await).await.good();
        listed["DATA"].as_array().unwrap().clone()
    }

    /// Ends all of the owner's tasks.
    async fn end_tasks(&self) {
        let token = self.bench.token(&self.owner.client, SCOPE).await;
        for task in self.tasks().await {
            let path = format!("/v0.10/task/{}/cancel", task["task_id"].as_str().unwrap());
            self.bench.post(&path, &token, json!({})).await.good();
        }
    }
}

const SCOPE: &str = "urn:globus:auth:scope:transfer.api.globus.org:all";

fn body(from: Uuid, to: Uuid) -> Value {
    json!({"DATA_TYPE": "transfer", "source_endpoint": from, "destination_endpoint": to, "verify_checksum": true,
           "DATA": [{"DATA_TYPE": "transfer_item", "source_path": "/from/", "destination_path": "/to/", "recursive": true}]})
}

fn hourly(end: Value) -> Value {
    json!({"type": "recurring", "interval_seconds": 3600, "end": end})
}

#[tokio::test]
async fn each_time_is_one_task_however_many_look_and_none_overlaps() {
    let bench = Bench::new().await;
    let site = site(&bench).await;
    let timers = Timers::of(&bench, &site.ada).await;
    let timer =
        timers.make(hourly(json!({"condition": "iterations", "count": 3})), body(site.mapped, site.mapped)).await;
    let (here, there) = (&bench.service, bench.replica().service);
    let both = async || {
        let (one, other) = tokio::join!(here.run_timers(), there.run_timers());
        one.unwrap() + other.unwrap()
    };
    assert!(both().await >= 1);
    assert_eq!(both().await, 0);
    let tasks = timers.tasks().await;
    assert_eq!((tasks.len(), &tasks[0]["label"]), (1, &json!("nightly, run 1")));
    let shown = timers.show(timer).await;
    assert_eq!((&shown["n_runs"], &shown["status"], &shown["interval"]), (&json!(1), &json!("active"), &json!(3600)));
    assert_eq!(shown["activity"]["code"], "run_in_progress");
    assert_eq!(shown["results"]["data"][0]["data"]["action_id"], tasks[0]["task_id"]);

    // The first one is not over when the second time comes.
    bench.clock.advance(3600);
    both().await;
    assert_eq!(timers.tasks().await.len(), 1);
    assert_eq!(timers.show(timer).await["n_left_out"], 1);
    timers.end_tasks().await;
    // Three times pass while the service is away: they are made up for by one.
    bench.clock.advance(3 * 3600 + 5);
    both().await;
    assert_eq!(timers.tasks().await.len(), 2);
    timers.end_tasks().await;
    bench.clock.advance(3600);
    both().await;
    timers.end_tasks().await;
    let shown = timers.show(timer).await;
    assert_eq!((&shown["n_runs"], &shown["status"], &shown["activity"]), (&json!(3), &json!("ended"), &Value::Null));
    bench.clock.advance(24 * 3600);
    assert_eq!((both().await, timers.tasks().await.len()), (0, 3));
}

#[tokio::test]
async fn the_last_time_of_all_waits_for_the_run_before() {
    let bench = Bench::new().await;
    let site = site(&bench).await;
    let timers = Timers::of(&bench, &site.ada).await;
    let end = json!({"condition": "time", "datetime": iso(Timestamp::from_secs(NOW + 3600))});
    let timer = timers.make(hourly(end), body(site.mapped, site.mapped)).await;
    bench.service.run_timers().await.unwrap();
    bench.clock.advance(3600);
    bench.service.run_timers().await.unwrap();
    let shown = timers.show(timer).await;
    assert_eq!((&shown["status"], &shown["n_left_out"], &shown["n_runs"]), (&json!("active"), &json!(0), &json!(1)));
    timers.end_tasks().await;
    bench.clock.advance(60);
    bench.service.run_timers().await.unwrap();
    let shown = timers.show(timer).await;
    assert_eq!((&shown["status"], &shown["n_runs"], timers.tasks().await.len()), (&json!("ended"), &json!(2), 2));
}

#[tokio::test]
async fn a_crash_between_a_submission_and_its_note_makes_no_second_task() {
    let bench = Bench::new().await;
    let site = site(&bench).await;
    let timers = Timers::of(&bench, &site.ada).await;
    let timer = timers.make(json!({"type": "once"}), body(site.mapped, site.mapped)).await;
    bench.service.run_timers().await.unwrap();
    // As the store is when nothing was noted.
    let mut found = bench.service.store.get::<Timer>(&timer.to_string()).await.unwrap().unwrap();
    assert_eq!(found.record.state, State::Ended);
    let next = found.record.newest[0].due;
    (found.record.state, found.record.runs) = (State::Waiting { next, trouble: None }, 0);
    found.record.newest.clear();
    bench.service.store.apply(Batch::new().update(&found)).await.unwrap();
    assert_eq!(timers.tasks().await.len(), 1);
    timers.end_tasks().await;
    bench.service.run_timers().await.unwrap();
    assert_eq!(timers.tasks().await.len(), 1);
    assert_eq!(timers.show(timer).await["n_runs"], 1);
}

#[tokio::test]
async fn a_timer_stops_with_its_owners_rights_and_says_why() {
    let bench = Bench::new().await;
    let site = site(&bench).await;
    let access = format!("/v0.10/endpoint/{}/access", site.guest);
    let rule = json!({"principal_type": "identity", "principal": site.bob.id, "path": "/", "permissions": "rw"});
    let given = bench.post(&access, &site.ada.token, rule.clone()).await.good();
    let timers = Timers::of(&bench, &site.bob).await;
    let timer = timers.make(hourly(Value::Null), body(site.guest, site.guest)).await;
    bench.service.run_timers().await.unwrap();
    timers.end_tasks().await;
    let path = format!("{access}/{}", given["access_id"].as_str().unwrap());
    bench.delete(&path, &site.ada.token).await.good();
    bench.clock.advance(3600);
    bench.service.run_timers().await.unwrap();
    let shown = timers.show(timer).await;
    assert_eq!((&shown["status"], &shown["n_errors"], &shown["n_runs"]), (&json!("inactive"), &json!(1), &json!(1)));
    assert_eq!(shown["inactive_reason"]["cause"], "submission_refused", "{shown}");
    assert_eq!(shown["inactive_reason"]["detail"]["code"], "EndpointNotFound", "{shown}");
    assert_eq!(shown["next_run"], Value::Null);

    bench.post(&access, &site.ada.token, rule).await.good();
    assert_eq!(timers.command(timer, "resume").await, 200);
    bench.clock.advance(3600);
    bench.service.run_timers().await.unwrap();
    assert_eq!(timers.show(timer).await["n_runs"], 2);
    timers.end_tasks().await;

    let mut bob = bench.service.store.get::<Identity>(&site.bob.id.to_string()).await.unwrap().unwrap();
    bob.record.disabled = true;
    bench.service.store.apply(Batch::new().update(&bob)).await.unwrap();
    bench.clock.advance(3600);
    bench.service.run_timers().await.unwrap();
    let found = bench.service.store.get::<Timer>(&timer.to_string()).await.unwrap().unwrap().record;
    assert!(matches!(found.state, State::Stopped { .. }) && found.runs == 2, "{found:?}");
}

#[tokio::test]
async fn owners_pause_resume_rename_and_delete_their_timers() {
    let bench = Bench::new().await;
    let Site { ada, mapped, .. } = site(&bench).await;
    let timers = Timers::of(&bench, &ada).await;
    let timer = timers.make(hourly(Value::Null), body(mapped, mapped)).await;
    let shown = timers.show(timer).await;
    assert_eq!((&shown["activity"]["code"], &shown["stop_after"]), (&json!("awaiting_next_run"), &Value::Null));
    assert_eq!(shown["callback_body"]["body"]["source_endpoint"], json!(mapped));
    assert_eq!(timers.command(timer, "pause").await, 200);
    let shown = timers.show(timer).await;
    assert_eq!((&shown["status"], &shown["inactive_reason"]["cause"]), (&json!("inactive"), &json!("user")));
    bench.clock.advance(7200);
    assert_eq!(bench.service.run_timers().await, Ok(0));
    assert_eq!(timers.command(timer, "resume").await, 200);
    let next = timers.show(timer).await["next_run"].as_str().unwrap().to_owned();
    assert_eq!(whimbrel_service::clock::parse(&next).unwrap().secs, NOW + 3 * 3600);

    let path = format!("/jobs/{timer}");
    let renamed = bench.ask(Method::PATCH, &path, Some(&timers.token), Some(json!({"name": "weekly"}))).await.good();
    assert_eq!(renamed["name"], "weekly");
    let other = bench.ask(Method::PATCH, &path, Some(&timers.token), Some(json!({"interval": 60}))).await;
    assert_eq!(other.status, 400);
    let listed = bench.get("/jobs/?order=submitted_at%20asc", &timers.token).await.good();
    assert_eq!((listed["jobs"].as_array().unwrap().len(), &listed["jobs"][0]["name"]), (1, &json!("weekly")));
    bench.delete(&path, &timers.token).await.good();
    assert_eq!(bench.get(&path, &timers.token).await.status, 404);
    bench.clock.advance(24 * 3600);
    assert_eq!(bench.service.run_timers().await, Ok(0));
}

#[tokio::test]
async fn what_would_be_refused_later_is_refused_at_once() {
    let bench = Bench::new().await;
    let site = site(&bench).await;
    let timers = Timers::of(&bench, &site.bob).await;
    let ask = async |body: Value| {
        let document = json!({"timer": {"schedule": {"type": "once"}, "body": body}});
        bench.post("/v2/timer", &timers.token, document).await.status
    };
    assert_eq!(ask(body(site.guest, site.mapped)).await, 404);
    assert_eq!(ask(json!({"DATA_TYPE": "transfer"})).await, 400);
    assert_eq!(ask(json!([])).await, 400);
    let nothing = json!({"source_endpoint": site.mapped, "destination_endpoint": site.mapped, "DATA": []});
    assert_eq!(ask(nothing).await, 400);
    assert_eq!(bench.get("/jobs/", &timers.token).await.good(), json!({"jobs": []}));
}
