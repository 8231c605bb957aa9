//! Rate rules: who may make them, and what they leave to tasks that run.

use serde_json::{Value, json};
use uuid::Uuid;
use whimbrel_engine::dispatch::{Lease, Order};
use whimbrel_service::clock::Clock as _;

use crate::bench::{Bench, Got};
use crate::collections::{Site, id, site};
use crate::rights::{begin, poll, task, transfer};

const RULES: &str = "/v2/whimbrel/rate_rules";

/// A second place with collections, to copy to.
async fn elsewhere(bench: &Bench, site: &Site) -> Uuid {
    let endpoint = bench.service.add_endpoint(site.ada.id, "Other", vec![]).await.unwrap().id;
    let server = whimbrel_engine::dispatch::Server::at("whimbrel://other", None);
    bench.service.set_servers(endpoint, vec![server]).await.unwrap();
    bench.service.add_mapped(endpoint, site.ada.id, "Other files", "/").await.unwrap().id
}

async fn submit(bench: &Bench, site: &Site, to: Uuid, number: u128, max_rate: Option<u64>) {
    let path = format!("/copy{number}");
    let mut body = transfer((site.mapped, "/a"), (to, &path));
    (body["submission_id"], body["max_rate"]) = (json!(Uuid::from_u128(number)), json!(max_rate));
    bench.post("/v0.10/transfer", &site.ada.token, body).await.good();
}

async fn rule(bench: &Bench, token: &str, wish: Value) -> Got {
    bench.post(RULES, token, wish).await
}

/// What an orchestrator is told of its tasks' rates, in their order, when it takes another task.
async fn told(bench: &Bench, running: &[Lease]) -> (Vec<Option<u64>>, Lease, Option<u64>) {
    let (mut rates, mut taken) = (vec![None; running.len()], None);
    for order in poll(bench, 1, running).await {
        match order {
            Order::Rate { lease, most } => {
                rates[running.iter().position(|known| *known == lease).unwrap()] = most;
            }
            Order::Run(assignment) => taken = Some((assignment.lease, assignment.max_rate)),
            other => panic!("{other:?}"),
        }
    }
    let (lease, rate) = taken.unwrap();
    (rates, lease, rate)
}

#[tokio::test]
async fn tasks_that_run_share_what_rules_leave_them() {
    let bench = Bench::new().await;
    let site = site(&bench).await;
    let to = elsewhere(&bench, &site).await;
    submit(&bench, &site, to, 1, None).await;
    let free = begin(&bench).await;
    assert_eq!(free.max_rate, None);

    let made = rule(&bench, &site.ada.token, json!({"endpoint_id": site.endpoint, "max_rate": 900})).await.good();
    submit(&bench, &site, to, 2, Some(100)).await;
    let (rates, second, rate) = told(&bench, &[free.lease]).await;
    assert_eq!((rates, rate), (vec![Some(800)], Some(100)), "what its owner does not want is the others'");

    submit(&bench, &site, to, 3, None).await;
    let (rates, third, rate) = told(&bench, &[free.lease, second]).await;
    assert_eq!((rates, rate), (vec![Some(400), Some(100)], Some(400)));

    // Its owner sees what holds a task back; nothing does where they wish no more.
    let pace = async |task| bench.get(&format!("/v2/whimbrel/tasks/{task}/rate"), &site.ada.token).await.good();
    let held = json!([{"rate_rule_id": made["id"], "endpoint_id": null, "message": made["message"], "max_rate": 900, "tasks": 3}]);
    assert_eq!(pace(free.lease.task).await, json!({"max_rate": 400, "held_by": held}));
    assert_eq!(pace(second.task).await, json!({"max_rate": 100, "held_by": []}));
    let others = bench.get(&format!("/v2/whimbrel/tasks/{}/rate", second.task), &site.bob.token).await;
    assert_eq!(others.status, 403);

    let place = format!("{RULES}/{}", made["id"].as_str().unwrap());
    bench.delete(&place, &site.ada.token).await.good();
    // Nothing is said about a task that ends.
    let lost = Lease { epoch: third.epoch + 1, ..third };
    let orders = poll(&bench, 0, &[free.lease, lost]).await;
    let [Order::Stop { lease: stopped }, Order::Rate { lease, most: None }] = orders[..] else { panic!("{orders:?}") };
    assert_eq!((stopped, lease), (lost, free.lease));
}

#[tokio::test]
async fn rules_are_for_their_hours_their_places_and_their_people() {
    let bench = Bench::new().await;
    let site = site(&bench).await;
    let to = elsewhere(&bench, &site).await;
    submit(&bench, &site, to, 1, None).await;
    let task = task(&bench, begin(&bench).await.lease.task).await;
    let now = bench.clock.now().secs.rem_euclid(86_400) / 60;
    let time = |minutes: i64| format!("{:02}:{:02}", minutes.rem_euclid(1440) / 60, minutes.rem_euclid(60));
    let (past, coming) = (time(now - 60), time(now + 60));
    for (wish, rate) in [
        (json!({"endpoint_id": site.mapped, "max_rate": 7, "hours": {"from": past, "to": coming}}), Some(7)),
        (json!({"endpoint_id": site.mapped, "max_rate": 7, "hours": {"from": coming, "to": past}}), None),
        (json!({"endpoint_id": to, "max_rate": 8}), Some(8)),
        (json!({"endpoint_id": site.guest, "max_rate": 9}), None),
        (json!({"endpoint_id": site.mapped, "max_rate": 10, "identity_id": site.bob.id}), None),
        (json!({"endpoint_id": site.mapped, "max_rate": 11, "identity_id": site.ada.id}), Some(11)),
    ] {
        let made = rule(&bench, &site.ada.token, wish.clone()).await.good();
        assert_eq!(made["in_force"], json!(wish["hours"]["from"] != json!(coming)), "{made}");
        assert_eq!(bench.service.rates_of(std::slice::from_ref(&task)).await.unwrap(), [rate], "{wish}");
        let place = format!("{RULES}/{}", made["id"].as_str().unwrap());
        bench.delete(&place, &site.ada.token).await.good();
    }
}

#[tokio::test]
async fn who_does_not_manage_a_place_makes_no_rule_for_it() {
    let bench = Bench::new().await;
    let site = site(&bench).await;
    let here = json!({"endpoint_id": site.mapped, "max_rate": 5});
    assert_eq!(rule(&bench, &site.bob.token, here.clone()).await.status, 403);
    assert_eq!(rule(&bench, &site.ada.token, json!({"max_rate": 5})).await.status, 403, "all of the service");
    let made = rule(&bench, &site.ada.token, here).await.good();
    let place = format!("{RULES}/{}", id(&made["id"]));
    for bad in [
        json!({"endpoint_id": site.mapped, "max_rate": 0}),
        json!({"endpoint_id": site.mapped}),
        json!({"endpoint_id": site.mapped, "max_rate": 5, "hours": {"from": "8", "to": "9"}}),
        json!({"endpoint_id": site.mapped, "max_rate": 5, "message": "x".repeat(513)}),
        json!({"endpoint_id": site.mapped, "max_rate": 5, "rate": 5}),
    ] {
        assert_eq!(rule(&bench, &site.ada.token, bad.clone()).await.status, 400, "{bad}");
        assert_eq!(bench.put(&place, &site.ada.token, bad.clone()).await.status, 400, "{bad}");
    }
    let wish = json!({"endpoint_id": site.guest, "max_rate": 6, "message": "Nights are free"});
    let changed = bench.put(&place, &site.ada.token, wish).await.good();
    assert_eq!((&changed["max_rate"], &changed["endpoint_id"]), (&json!(6), &json!(site.guest)));
    assert_eq!(bench.get(RULES, &site.bob.token).await.good()["rate_rules"], json!([]));
    assert_eq!(bench.get(RULES, &site.ada.token).await.good()["rate_rules"], json!([changed]));
}

#[tokio::test]
async fn nobody_uses_up_all_rules_and_none_outlives_its_place() {
    let bench = Bench::new().await;
    let site = site(&bench).await;
    let here = json!({"endpoint_id": site.guest, "max_rate": 5});
    for _ in 0..50 {
        rule(&bench, &site.ada.token, here.clone()).await.good();
    }
    assert_eq!(rule(&bench, &site.ada.token, here).await.status, 400);
    bench.delete(&format!("/v0.10/endpoint/{}", site.guest), &site.ada.token).await.good();
    assert_eq!(bench.get(RULES, &site.ada.token).await.good()["rate_rules"], json!([]));
    let made = rule(&bench, &site.ada.token, json!({"endpoint_id": site.mapped, "max_rate": 5})).await.good();
    assert_eq!(bench.get(RULES, &site.ada.token).await.good()["rate_rules"], json!([made]));
}
