//! Orchestrators on other hosts: all they have is a client's secret and the service's address.

use axum::http::Method;
use serde_json::{Value, json};
use uuid::Uuid;
use whimbrel_engine::dispatch::{Change, End, Lease, Order, Report, Request, Response, Site, Subject};
use whimbrel_engine::progress::Verification;
use whimbrel_engine::task::ItemKind;
use whimbrel_service::auth::scope::{Orchestrate, Scope, TransferAll};

use crate::bench::Bench;
use crate::collections::site;
use crate::rights::{begin, claims, poll, transfer};

const DISPATCH: &str = "/v2/whimbrel/dispatch";

async fn ask(bench: &Bench, token: &str, request: &Request) -> Response {
    let answer = bench.post(DISPATCH, token, serde_json::to_value(request).unwrap()).await.good();
    serde_json::from_value(answer).unwrap()
}

#[tokio::test]
async fn a_task_is_carried_out_over_https() {
    let bench = Bench::new().await;
    let site = site(&bench).await;
    let boss = bench.service.bootstrap_client("boss", true).await.unwrap();
    let boss = bench.token(&boss, TransferAll::NAME).await;
    let made = bench.post("/v2/whimbrel/orchestrators", &boss, json!({"name": "mover"})).await;
    assert_eq!(made.status, 201, "{made:?}");
    let made = made.json();
    let text = |field: &str| made[field].as_str().unwrap().to_owned();
    let form = [
        ("grant_type", "client_credentials"),
        ("client_id", &text("client_id")),
        ("client_secret", &text("client_secret")),
        ("scope", Orchestrate::NAME),
    ];
    let token = bench.form("/v2/oauth2/token", None, &form).await.good()["access_token"].as_str().unwrap().to_owned();

    let submission: Value = bench.get("/v0.10/submission_id", &site.ada.token).await.good()["value"].clone();
    let item = json!({"DATA_TYPE": "transfer_item", "source_path": "/a", "destination_path": "/b", "recursive": false});
    let document = json!({
        "DATA_TYPE": "transfer", "submission_id": submission, "source_endpoint": site.mapped,
        "destination_endpoint": site.guest, "DATA": [item],
    });
    let task = bench.post("/v0.10/transfer", &site.ada.token, document).await.good()["task_id"].clone();

    let name = Uuid::from_u128(5);
    assert!(matches!(ask(&bench, &token, &Request::Begin { orchestrator: name }).await, Response::Taken));
    let poll = Request::Poll { orchestrator: name, free: 3, running: Vec::new(), ending: Vec::new() };
    let Response::Orders { orders } = ask(&bench, &token, &poll).await else { panic!("orders") };
    let [Order::Run(assignment)] = &orders[..] else { panic!("one task: {orders:?}") };
    let lease = assignment.lease;
    assert_eq!(json!(lease.task), task);
    let subject =
        Subject { kind: ItemKind::File, source: b"/srv/data/a".to_vec(), destination: b"/b".to_vec(), extra: false };
    let changes = vec![Change::Done { subject, bytes: 7, verification: Verification::NotAsked }];
    let report = Report { lease, sequence: 1, changes, occurrences: Vec::new(), gauge: None, end: Some(End::Finished) };
    assert!(matches!(ask(&bench, &token, &Request::Report(Box::new(report))).await, Response::Taken));
    let shown = bench.get(&format!("/v0.10/task/{}", lease.task), &site.ada.token).await.good();
    assert_eq!((&shown["status"], &shown["bytes_transferred"]), (&json!("SUCCEEDED"), &json!(7)));

    for nonsense in [json!({}), json!({"ask": "everything"}), json!({"ask": "poll", "free": -1}), json!([])] {
        assert_eq!(bench.post(DISPATCH, &token, nonsense).await.status, 400);
    }
    let forbidden = bench.ask(Method::POST, DISPATCH, Some(&boss), Some(json!({}))).await;
    assert_eq!(forbidden.status, 403, "{forbidden:?}");
}

#[tokio::test]
async fn a_task_that_goes_on_is_given_fresh_tokens_long_before_the_former_ones_end() {
    let bench = Bench::new().await;
    let site = site(&bench).await;
    let body = transfer((site.mapped, "/a"), (site.guest, "/b"));
    bench.post("/v0.10/transfer", &site.ada.token, body).await.good();
    let assignment = begin(&bench).await;
    let lease = assignment.lease;
    let ends = |site: &Site| claims(&site.credential)["exp"].as_i64().unwrap();
    let renewed = async || {
        // A poll that has something to say is answered at once.
        let lost = Lease { epoch: lease.epoch + 1, ..lease };
        poll(&bench, 0, &[lease, lost]).await.into_iter().find_map(|order| match order {
            Order::Sites { lease: of, source, destination } => Some((of, source, destination.unwrap())),
            _ => None,
        })
    };
    let first = ends(&assignment.source);
    assert!(renewed().await.is_none(), "they are new");
    bench.clock.advance(3600);
    let (of, source, destination) = renewed().await.expect("fresh tokens");
    assert_eq!(of, lease);
    assert_eq!([ends(&source), ends(&destination)], [first + 3600; 2]);
    assert!(renewed().await.is_none(), "once");
}
