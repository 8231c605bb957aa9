//! Who looks after a collection sees the tasks at it, and may end or pause them; nobody else.

use serde_json::{Value, json};
use uuid::Uuid;
use whimbrel_engine::dispatch::{Occurrence, Report, Request};
use whimbrel_engine::{Fault, FaultCode};

use crate::bench::{Bench, Somebody};
use crate::collections::{Site, id, site};
use crate::rights::{self, begin, delete, is_stop, poll};

const MANAGER: &str = "/v0.10/endpoint_manager";

async fn listed(bench: &Bench, who: &Somebody, filter: &str) -> Vec<Uuid> {
    let listed = bench.get(&format!("{MANAGER}/task_list?{filter}"), &who.token).await.good();
    assert_eq!((&listed["DATA_TYPE"], &listed["has_next_page"]), (&json!("task_list"), &json!(false)));
    listed["DATA"].as_array().unwrap().iter().map(|task| id(&task["task_id"])).collect()
}

async fn give(bench: &Bench, site: &Site, who: &Somebody, role: &str) {
    give_at(bench, site, site.mapped, who, role).await;
}

async fn give_at(bench: &Bench, site: &Site, collection: Uuid, who: &Somebody, role: &str) {
    let role = json!({"principal_type": "identity", "principal": who.id, "role": role});
    bench.post(&format!("/v0.10/endpoint/{collection}/role"), &site.ada.token, role).await.good();
}

async fn shown(bench: &Bench, who: &Somebody, task: Uuid) -> Value {
    bench.get(&format!("/v0.10/task/{task}"), &who.token).await.good()
}

fn named(tasks: &[Uuid]) -> Value {
    json!({"message": "The disks are full", "task_id_list": tasks})
}

#[tokio::test]
async fn tasks_are_seen_by_those_who_look_after_their_collections() {
    let bench = Bench::new().await;
    let site = site(&bench).await;
    let carol = bench.user("carol").await;
    let task = delete(&bench, &site.bob, site.mapped, "/x").await;
    let active = "filter_status=ACTIVE,INACTIVE";
    assert_eq!(listed(&bench, &site.ada, active).await, [task]);
    // Submitting a task makes nobody a monitor of it.
    assert!(listed(&bench, &site.bob, active).await.is_empty() && listed(&bench, &carol, active).await.is_empty());
    assert_eq!(bench.get(&format!("{MANAGER}/task/{task}"), &carol.token).await.code(), "TaskNotFound");

    give(&bench, &site, &carol, "activity_monitor").await;
    let at = format!("filter_endpoint={}", site.mapped);
    for filter in [
        active.to_owned(),
        at.clone(),
        format!("{at}&filter_endpoint_use=source&filter_owner_id={}", site.bob.id),
        format!("filter_task_id={task},{}", Uuid::nil()),
        format!("{at}&filter_is_paused=0&filter_min_faults=0"),
    ] {
        assert_eq!(listed(&bench, &carol, &filter).await, [task], "{filter}");
    }
    for filter in [
        format!("{at}&filter_endpoint_use=destination"),
        format!("{at}&filter_owner_id={}", carol.id),
        format!("{at}&filter_completion_time=2026-01-01,"),
        format!("{at}&filter_local_user=root"),
        format!("{at}&last_key=1.{task}"),
        "filter_status=INACTIVE".to_owned(),
    ] {
        assert!(listed(&bench, &carol, &filter).await.is_empty(), "{filter}");
    }
    for part in ["", "/event_list", "/skipped_errors", "/pause_info"] {
        bench.get(&format!("{MANAGER}/task/{task}{part}"), &carol.token).await.good();
    }
    let whose = bench.get(&format!("{MANAGER}/task/{task}"), &carol.token).await.good();
    assert_eq!(whose["owner_id"], json!(site.bob.id));
    for (filter, status) in [
        ("", 400),
        ("filter_status=SUCCEEDED", 400),
        ("filter_status=GONE", 400),
        ("filter_task_id=7", 400),
        (&*format!("{at}&filter_endpoint_use=both"), 400),
        (&*format!("{at}&filter_completion_time=soon"), 400),
        (&*format!("{at}&last_key=1"), 400),
        (&*format!("filter_endpoint={}", Uuid::nil()), 404),
    ] {
        let got = bench.get(&format!("{MANAGER}/task_list?{filter}"), &carol.token).await;
        assert_eq!(got.status, status, "{filter}: {got:?}");
    }
}

#[tokio::test]
async fn a_manager_ends_tasks_and_their_owners_are_told_why() {
    let bench = Bench::new().await;
    let site = site(&bench).await;
    let carol = bench.user("carol").await;
    give(&bench, &site, &carol, "activity_monitor").await;
    let (first, second) =
        (delete(&bench, &site.bob, site.mapped, "/x").await, delete(&bench, &site.bob, site.mapped, "/y").await);
    let path = format!("{MANAGER}/admin_cancel");
    assert_eq!(bench.post(&path, &carol.token, named(&[first])).await.status, 403, "monitors only look");
    assert_eq!(bench.post(&path, &site.bob.token, named(&[first])).await.status, 404, "owners cancel as owners");
    give(&bench, &site, &carol, "activity_manager").await;
    // One that is not theirs: nothing is done.
    let refused = bench.post(&path, &carol.token, named(&[first, Uuid::nil()])).await;
    assert_eq!((refused.status, shown(&bench, &site.bob, first).await["status"].clone()), (404, json!("ACTIVE")));
    for bad in [named(&[]), json!({"task_id_list": [first]}), named(&[first; 101]), json!({"message": "x"})] {
        assert_eq!(bench.post(&path, &carol.token, bad).await.status, 400);
    }
    let lease = begin(&bench).await.lease;
    let done = bench.post(&path, &carol.token, named(&[first, second])).await.good();
    assert_eq!(done["done"], json!(true));
    assert!(is_stop(&poll(&bench, 0, &[lease]).await, lease));
    for task in [first, second] {
        let told = shown(&bench, &site.bob, task).await;
        assert_eq!((&told["status"], &told["canceled_by_admin"]), (&json!("FAILED"), &json!("SOURCE")), "{told:#}");
        assert_eq!(told["canceled_by_admin_message"], "The disks are full");
    }
    let status = format!("{path}/{}", id(&done["id"]));
    assert_eq!(bench.get(&status, &carol.token).await.good()["done"], json!(true));
    assert_eq!(bench.get(&status, &site.ada.token).await.status, 404, "who asks is who cancelled");
    bench.clock.advance(2 * 24 * 3600);
    bench.service.forget_cancellations().await.unwrap();
    let token = bench.token(&carol.client, "urn:globus:auth:scope:transfer.api.globus.org:all").await;
    assert_eq!(bench.get(&status, &token).await.status, 404, "a day later it is forgotten");
}

#[tokio::test]
async fn a_manager_lets_tasks_wait_and_go_on() {
    let bench = Bench::new().await;
    let site = site(&bench).await;
    let task = delete(&bench, &site.bob, site.mapped, "/x").await;
    let lease = begin(&bench).await.lease;
    bench.post(&format!("{MANAGER}/admin_pause"), &site.ada.token, named(&[task])).await.good();
    assert!(is_stop(&poll(&bench, 0, &[lease]).await, lease));
    let told = shown(&bench, &site.bob, task).await;
    assert_eq!((&told["is_paused"], &told["status"]), (&json!(true), &json!("ACTIVE")), "{told:#}");
    let info = bench.get(&format!("/v0.10/task/{task}/pause_info"), &site.bob.token).await.good();
    assert_eq!(info["source_pause_message"], "The disks are full", "{info:#}");
    crate::rights::stopped(&bench, lease).await;
    let resume = json!({"task_id_list": [task]});
    let path = format!("{MANAGER}/admin_resume");
    assert_eq!(bench.post(&path, &site.bob.token, resume.clone()).await.status, 404);
    bench.post(&path, &site.ada.token, resume).await.good();
    assert_eq!(begin(&bench).await.lease.task, task);
}

#[tokio::test]
async fn a_manager_of_one_end_does_not_resume_what_one_of_the_other_has_paused() {
    let bench = Bench::new().await;
    let site = site(&bench).await;
    let other = bench.service.add_mapped(site.endpoint, site.ada.id, "Archive", "/srv/archive").await.unwrap().id;
    let (carol, dan) = (bench.user("carol").await, bench.user("dan").await);
    give(&bench, &site, &carol, "activity_manager").await;
    give_at(&bench, &site, other, &dan, "activity_manager").await;
    let wanted = rights::transfer((site.mapped, "/x"), (other, "/x"));
    let task = id(&bench.post("/v0.10/transfer", &site.ada.token, wanted).await.good()["task_id"]);
    let (pause, resume) = (format!("{MANAGER}/admin_pause"), format!("{MANAGER}/admin_resume"));
    let words = async |end: &str| {
        let info = bench.get(&format!("/v0.10/task/{task}/pause_info"), &site.ada.token).await.good();
        info[format!("{end}_pause_message")].clone()
    };
    bench.post(&pause, &carol.token, named(&[task])).await.good();
    let archive = json!({"message": "The tapes are full", "task_id_list": [task]});
    bench.post(&pause, &dan.token, archive.clone()).await.good();
    assert_eq!(
        (words("source").await, words("destination").await),
        (json!("The disks are full"), json!("The tapes are full"))
    );

    let told = bench.post(&resume, &dan.token, json!({"task_id_list": [task]})).await.good();
    assert!(told["message"].as_str().unwrap().contains("wait on"), "{told:#}");
    let waits = shown(&bench, &site.ada, task).await;
    assert_eq!((&waits["is_paused"], &waits["nice_status_details"]), (&json!(true), &json!("The disks are full")));
    assert_eq!((words("source").await, words("destination").await), (json!("The disks are full"), Value::Null));

    bench.post(&resume, &carol.token, json!({"task_id_list": [task]})).await.good();
    assert_eq!(shown(&bench, &site.ada, task).await["is_paused"], json!(false));
    // Who looks after both ends speaks for both.
    for who in [&carol, &dan] {
        bench.post(&pause, &who.token, archive.clone()).await.good();
    }
    bench.post(&resume, &site.ada.token, json!({"task_id_list": [task]})).await.good();
    assert_eq!(shown(&bench, &site.ada, task).await["is_paused"], json!(false));
}

#[tokio::test]
async fn events_are_faults_or_not_by_the_name_that_managers_give_it_too() {
    let bench = Bench::new().await;
    let site = site(&bench).await;
    let task = delete(&bench, &site.ada, site.mapped, "/x").await;
    let lease = begin(&bench).await.lease;
    let fault = Fault::new(FaultCode::TimedOut, "delete");
    let occurrences = vec![
        Occurrence::Started { concurrency: 1, parallelism: 1, pipelining: 1 },
        Occurrence::Faulted { fault, path: b"/x".to_vec(), retry_in: Some(1.0) },
    ];
    let report = Report { lease, sequence: 1, changes: Vec::new(), occurrences, gauge: None, end: None };
    bench.service.dispatch(Request::Report(Box::new(report))).await.unwrap();
    let codes = async |path: String| {
        let list = bench.get(&path, &site.ada.token).await.good();
        let events = list["DATA"].as_array().unwrap().iter();
        events.map(|event| event["code"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    for place in [format!("{MANAGER}/task/{task}/event_list"), format!("/v0.10/task/{task}/event_list")] {
        assert_eq!(codes(format!("{place}?filter_is_error=1")).await, ["TIMEOUT"]);
        assert_eq!(codes(format!("{place}?filter_is_error=0")).await, ["STARTED"]);
        assert_eq!(codes(format!("{place}?filter=is_error:1")).await, ["TIMEOUT"]);
        assert_eq!(codes(format!("{place}?filter=")).await, ["TIMEOUT", "STARTED"]);
    }
}

#[tokio::test]
async fn a_deadline_is_as_late_as_that_of_a_submission_at_most() {
    let bench = Bench::new().await;
    let site = site(&bench).await;
    let task = delete(&bench, &site.ada, site.mapped, "/x").await;
    bench.put(&format!("/v0.10/task/{task}"), &site.ada.token, json!({"deadline": "2999-01-01"})).await.good();
    let kept = rights::task(&bench, task).await;
    assert_eq!(kept.wanted.deadline.secs - kept.requested.secs, 92 * 24 * 3600);
}

#[tokio::test]
async fn each_end_of_a_task_is_a_filter_of_its_own() {
    let bench = Bench::new().await;
    let site = site(&bench).await;
    let body = rights::transfer((site.mapped, "/a"), (site.guest, "/b"));
    let task = id(&bench.post("/v0.10/transfer", &site.ada.token, body).await.good()["task_id"]);
    let found = async |source: Uuid, destination: Uuid| {
        let filter = format!("filter=source_endpoint_id:{source}/destination_endpoint_id:{destination}");
        let list = bench.get(&format!("/v0.10/task_list?{filter}"), &site.ada.token).await.good();
        list["DATA"].as_array().unwrap().iter().map(|task| id(&task["task_id"])).collect::<Vec<_>>()
    };
    assert_eq!(found(site.mapped, site.guest).await, [task]);
    assert!(found(site.guest, site.mapped).await.is_empty());
    assert!(found(site.mapped, site.mapped).await.is_empty());
}
