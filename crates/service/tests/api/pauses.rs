//! Pause rules: what they hold waits, and goes on when they are gone.

use serde_json::{Value, json};
use uuid::Uuid;
use whimbrel_engine::dispatch::Order;

use crate::bench::{Bench, Somebody};
use crate::collections::{Site, id, site};
use crate::rights::{begin, delete, is_stop, poll, poll_ending, stopped};

async fn pause(bench: &Bench, site: &Site, wish: Value) -> String {
    let made = bench.post("/v0.10/endpoint_manager/pause_rule", &site.ada.token, wish).await.good();
    format!("/v0.10/endpoint_manager/pause_rule/{}", made["id"].as_str().unwrap())
}

async fn shown(bench: &Bench, who: &Somebody, task: Uuid) -> Value {
    bench.get(&format!("/v0.10/task/{task}"), &who.token).await.good()
}

#[tokio::test]
async fn a_running_task_stops_for_a_rule_and_goes_on_without_it() {
    let bench = Bench::new().await;
    let site = site(&bench).await;
    let task = delete(&bench, &site.bob, site.mapped, "/x").await;
    let lease = begin(&bench).await.lease;
    let rule = pause(&bench, &site, json!({"endpoint_id": site.endpoint, "message": "Maintenance"})).await;
    assert!(is_stop(&poll(&bench, 0, &[lease]).await, lease));
    let waiting = shown(&bench, &site.bob, task).await;
    assert_eq!((&waiting["is_paused"], &waiting["status"]), (&json!(true), &json!("ACTIVE")), "{waiting}");
    assert_eq!(waiting["nice_status"], "PAUSED");
    let info = bench.get(&format!("/v0.10/task/{task}/pause_info"), &site.bob.token).await.good();
    assert_eq!(info["pause_rules"][0]["message"], "Maintenance", "{info}");
    stopped(&bench, lease).await;

    bench.put(&rule, &site.ada.token, json!({"pause_task_delete": false})).await.good();
    assert_eq!(shown(&bench, &site.bob, task).await["is_paused"], json!(false));
    bench.put(&rule, &site.ada.token, json!({"pause_task_delete": true})).await.good();
    assert_eq!(shown(&bench, &site.bob, task).await["is_paused"], json!(true));
    bench.delete(&rule, &site.ada.token).await.good();
    assert_eq!(begin(&bench).await.lease.task, task);
    let events = bench.get(&format!("/v0.10/task/{task}/event_list?limit=100"), &site.bob.token).await.good();
    let codes: Vec<_> = events["DATA"].as_array().unwrap().iter().map(|event| event["code"].clone()).collect();
    assert_eq!(codes, ["UNPAUSED", "PAUSED", "UNPAUSED", "PAUSED"].map(|code| json!(code)));
}

#[tokio::test]
async fn who_ends_work_already_is_not_told_again_and_waits_for_news() {
    let bench = Bench::new().await;
    let site = site(&bench).await;
    let task = delete(&bench, &site.bob, site.mapped, "/x").await;
    let lease = begin(&bench).await.lease;
    let now = whimbrel_engine::listing::Timestamp::from_secs(0);
    bench.service.store.pause(task, "by hand", now).await.unwrap();
    assert!(is_stop(&poll(&bench, 1, &[lease]).await, lease));
    // Nothing is to be said until another task comes.
    let held = [lease];
    let waiting = poll_ending(&bench, 1, &held, &held);
    let (orders, other) = tokio::join!(waiting, delete(&bench, &site.ada, site.mapped, "/y"));
    assert!(matches!(&orders[..], [Order::Run(assignment)] if assignment.lease.task == other), "{orders:?}");
}

#[tokio::test]
async fn a_new_task_waits_for_a_rule_that_is_about_it_and_no_other_does() {
    let bench = Bench::new().await;
    let site = site(&bench).await;
    let wish = json!({"endpoint_id": site.mapped, "message": "Not you", "identity_id": site.bob.id});
    let rule = pause(&bench, &site, wish).await;
    let bobs = delete(&bench, &site.bob, site.mapped, "/x").await;
    let adas = delete(&bench, &site.ada, site.mapped, "/xy").await;
    assert_eq!(shown(&bench, &site.bob, bobs).await["is_paused"], json!(true));
    let orders = poll(&bench, 9, &[]).await;
    assert!(matches!(&orders[..], [Order::Run(assignment)] if assignment.lease.task == adas), "{orders:?}");
    // What somebody has paused themselves does not go on because a rule is gone.
    let now = whimbrel_engine::listing::Timestamp::from_secs(0);
    bench.service.store.pause(bobs, "by hand", now).await.unwrap();
    bench.delete(&rule, &site.ada.token).await.good();
    bench.service.heed_pauses_of_waiting().await.unwrap();
    assert_eq!(shown(&bench, &site.bob, bobs).await["is_paused"], json!(true));
    bench.service.store.resume(bobs, now).await.unwrap();
    assert_eq!(begin(&bench).await.lease.task, bobs);
}

#[tokio::test]
async fn operations_are_refused_with_the_rules_words() {
    let bench = Bench::new().await;
    let site = site(&bench).await;
    pause(&bench, &site, json!({"endpoint_id": site.mapped, "message": "Maintenance"})).await;
    for collection in [site.mapped, site.guest] {
        let place = format!("/v0.10/operation/endpoint/{collection}");
        for got in [
            bench.get(&format!("{place}/ls"), &site.ada.token).await,
            bench.get(&format!("{place}/stat?path=/x"), &site.ada.token).await,
            bench.post(&format!("{place}/mkdir"), &site.ada.token, json!({"path": "/d"})).await,
            bench.post(&format!("{place}/rename"), &site.ada.token, json!({"old_path": "/a", "new_path": "/b"})).await,
            bench
                .post(&format!("{place}/symlink"), &site.ada.token, json!({"path": "/a", "symlink_target": "b"}))
                .await,
        ] {
            assert_eq!((got.status, got.code().as_str()), (409, "OperationPaused"), "{got:?}");
            assert!(got.text.contains("Maintenance"));
        }
    }
}

#[tokio::test]
async fn a_collection_that_asks_for_consent_gets_it_with_a_token_request() {
    let bench = Bench::new().await;
    let site = site(&bench).await;
    let place = format!("/v0.10/endpoint/{}", site.mapped);
    bench.put(&place, &site.ada.token, json!({"data_access": true})).await.good();
    let submission = json!({"DATA_TYPE": "delete", "endpoint": site.mapped, "submission_id": Uuid::from_u128(4),
                            "DATA": [{"DATA_TYPE": "delete_item", "path": "/x"}]});
    let refused = bench.post("/v0.10/delete", &site.bob.token, submission.clone()).await;
    assert_eq!((refused.status, refused.code().as_str()), (403, "ConsentRequired"), "{refused:?}");
    let wanted = refused.json()["required_scopes"][0].as_str().unwrap().to_owned();
    assert!(wanted.ends_with(&format!("[*https://auth.globus.org/scopes/{}/data_access]", site.mapped)), "{wanted}");
    let ls = bench.get(&format!("/v0.10/operation/endpoint/{}/ls", site.mapped), &site.bob.token).await;
    assert_eq!(ls.code(), "ConsentRequired");
    bench.token(&site.bob.client, &wanted).await;
    // The token from before does: the consent is the client's, for its user.
    id(&bench.post("/v0.10/delete", &site.bob.token, submission).await.good()["task_id"]);
    let guest = json!({"DATA_TYPE": "delete", "endpoint": site.guest, "submission_id": Uuid::from_u128(5),
                       "DATA": [{"DATA_TYPE": "delete_item", "path": "/x"}]});
    bench.post("/v0.10/delete", &site.ada.token, guest).await.good();
}
