//! Matrices: every pair is measured in its turn, in its owner's name, and told as a table.

use serde_json::{Value, json};
use uuid::Uuid;
use whimbrel_engine::dispatch::{Change, End, Lease, Order, Report, Request, Response, Subject, WorkItem};
use whimbrel_engine::progress::Verification;
use whimbrel_engine::task::ItemKind;

use crate::bench::Bench;
use crate::collections::{Site, id, site};

const PATH: &str = "/v2/whimbrel/matrices";
const HOUR: i64 = 3600;

fn wish(site: &Site) -> Value {
    json!({"name": "Every hour", "interval_seconds": HOUR, "ends": [
        {"collection_id": site.mapped, "dataset": "/probe/", "copies": "/copies"},
        {"collection_id": site.guest, "dataset": "/probe.bin"},
    ]})
}

/// Lets an orchestrator take what there is to do.
async fn taken(bench: &Bench) -> Vec<(Lease, Vec<WorkItem>)> {
    let request = Request::Poll { orchestrator: Uuid::from_u128(9), free: 9, running: Vec::new(), ending: Vec::new() };
    let Response::Orders { orders } = bench.service.dispatch(request).await.unwrap() else { panic!("orders") };
    let mut taken = Vec::new();
    for order in orders {
        let Order::Run(assignment) = order else { panic!("{order:?}") };
        let request = Request::Items { lease: assignment.lease, after: 0 };
        let Response::Items { items } = bench.service.dispatch(request).await.unwrap() else { panic!("items") };
        taken.push((assignment.lease, items));
    }
    taken
}

/// Lets a task succeed, having moved so much; the next look is at it.
async fn succeed(bench: &Bench, lease: Lease, bytes: u64) {
    bench.clock.advance(2);
    let subject = Subject { kind: ItemKind::File, source: b"/a".to_vec(), destination: b"/b".to_vec(), extra: false };
    let changes = vec![Change::Done { subject, bytes, verification: Verification::NotAsked }];
    let report = Report { lease, sequence: 1, changes, occurrences: Vec::new(), gauge: None, end: Some(End::Finished) };
    let answer = bench.service.dispatch(Request::Report(Box::new(report))).await.unwrap();
    assert!(matches!(answer, Response::Taken), "{answer:?}");
}

#[tokio::test]
async fn pairs_are_measured_one_after_the_other_and_again_with_the_next_round() {
    let bench = Bench::new().await;
    let site = site(&bench).await;
    let made = bench.post(PATH, &site.ada.token, wish(&site)).await;
    assert_eq!(made.status, 201, "{made:?}");
    let path = format!("{PATH}/{}", id(&made.json()["id"]));
    let show = || async { bench.get(&path, &site.ada.token).await.good() };
    let begun = bench.service.clock.now().secs;
    let replica = bench.replica();
    for (round, bytes) in [(1, [6_000_000, 9_000_000]), (2, [40_000_000, 1_000_000])] {
        for (pair, bytes) in bytes.into_iter().enumerate() {
            // However many look, it is one task.
            bench.service.run_matrices().await.unwrap();
            replica.service.run_matrices().await.unwrap();
            bench.service.run_matrices().await.unwrap();
            let tasks = taken(&bench).await;
            let [(lease, items)] = &tasks[..] else { panic!("one task: {tasks:?}") };
            assert_eq!(items[0].recursive, Some(pair == 0), "{items:?}");
            assert_eq!(show().await["task_id"], json!(lease.task));
            succeed(&bench, *lease, bytes).await;
            bench.service.run_matrices().await.unwrap();
            let told = show().await;
            let cell = &told["cells"][pair];
            let micros = (cell["measurements"][0]["seconds"].as_f64().unwrap() * 1e6).round() as u64;
            assert_eq!(cell["bytes_per_second"], json!(bytes * 1_000_000 / micros), "{told:#}");
            assert_eq!(cell["measurements"][0]["bytes"], json!(bytes), "{told:#}");
            assert_eq!(cell["measurements"].as_array().unwrap().len(), round, "{told:#}");
            assert_eq!((&cell["source"], &cell["destination"]), (&json!(pair), &json!(1 - pair)));
        }
        let told = show().await;
        assert_eq!((&told["rounds"], &told["state"]), (&json!(round), &json!("waiting")), "{told:#}");
        bench.service.run_matrices().await.unwrap();
        assert!(taken(&bench).await.is_empty(), "nothing before the next round");
        bench.clock.advance(begun + round as i64 * HOUR - bench.service.clock.now().secs);
    }
    let cell = &show().await["cells"][0];
    let measured = cell["measurements"].as_array().unwrap();
    let best = measured.iter().map(|one| one["bytes_per_second"].as_u64().unwrap()).max();
    assert_eq!((cell["best"].as_u64(), cell["median"].as_u64()), (best, best), "{cell:#}");
}

#[tokio::test]
async fn what_is_refused_is_told_and_holds_up_no_other_pair() {
    let bench = Bench::new().await;
    let site = site(&bench).await;
    let made = id(&bench.post(PATH, &site.ada.token, wish(&site)).await.good()["id"]);
    let path = format!("{PATH}/{made}");
    bench.delete(&format!("/v0.10/endpoint/{}", site.guest), &site.ada.token).await.good();
    for _ in 0..4 {
        bench.service.run_matrices().await.unwrap();
        bench.clock.advance(1);
    }
    let told = bench.get(&path, &site.ada.token).await.good();
    for cell in told["cells"].as_array().unwrap() {
        let fault = cell["measurements"][0]["fault"].as_str().unwrap();
        assert!(fault.contains("deleted") && cell["bytes_per_second"].is_null(), "{told:#}");
    }
    assert_eq!((&told["rounds"], &told["ends"][1]["display_name"]), (&json!(1), &Value::Null), "{told:#}");

    // An account that is closed measures nothing any more.
    let boss = bench.service.bootstrap_client("boss", true).await.unwrap();
    let boss = bench.token(&boss, "urn:globus:auth:scope:transfer.api.globus.org:all").await;
    let account = format!("/v2/whimbrel/identities/{}", site.ada.id);
    bench.clock.advance(HOUR);
    bench.put(&account, &boss, json!({"disabled": true})).await.good();
    bench.service.run_matrices().await.unwrap();
    bench.put(&account, &boss, json!({"disabled": false})).await.good();
    let token = bench.token(&site.ada.client, "urn:globus:auth:scope:transfer.api.globus.org:all").await;
    assert_eq!(bench.get(&path, &token).await.good()["state"], "stopped");
    bench.delete(&path, &token).await.good();
    assert_eq!(bench.get(&path, &token).await.code(), "MatrixNotFound");
}

#[tokio::test]
async fn wishes_that_cannot_be_meant_are_refused() {
    let bench = Bench::new().await;
    let site = site(&bench).await;
    let with = |field: &str, value: Value| {
        let mut wish = wish(&site);
        wish[field] = value;
        wish
    };
    let mapped = json!({"collection_id": site.mapped, "dataset": "/probe/"});
    for (wish, why) in [
        (with("name", json!(" ")), "name"),
        (with("interval_seconds", json!(5)), "interval_seconds"),
        (with("ends", json!([mapped])), "ends"),
        (with("ends", json!([mapped, mapped])), "twice"),
        (with("ends", json!([mapped, {"collection_id": site.guest, "dataset": "/p/", "copies": "/p/c/"}])), "lies in"),
        (with("rounds", json!(1)), "rounds"),
    ] {
        let refused = bench.post(PATH, &site.ada.token, wish).await;
        assert!(refused.status == 400 && refused.json()["message"].as_str().unwrap().contains(why), "{refused:?}");
    }
    // Whoever may not use a collection does not measure it.
    assert_eq!(bench.post(PATH, &site.bob.token, wish(&site)).await.code(), "EndpointNotFound");
}
