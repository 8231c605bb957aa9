//! What a task rests on: whoever may not do any more what they submitted is not carried on.

use base64ct::{Base64UrlUnpadded, Encoding};
use serde_json::{Value, json};
use uuid::Uuid;
use whimbrel_engine::dispatch::{Assignment, Credential, End, Lease, Order, Report, Request, Response, Work};
use whimbrel_service::task::Task;

use crate::bench::{Bench, Somebody};
use crate::collections::{Site, id, site};

const ORCHESTRATOR: Uuid = Uuid::from_u128(77);

/// What an orchestrator is given to do; there must be something.
pub async fn poll(bench: &Bench, free: u32, running: &[Lease]) -> Vec<Order> {
    poll_ending(bench, free, running, &[]).await
}

/// The same for one that ends some of its work already.
pub async fn poll_ending(bench: &Bench, free: u32, running: &[Lease], ending: &[Lease]) -> Vec<Order> {
    let (running, ending) = (running.to_vec(), ending.to_vec());
    let request = Request::Poll { orchestrator: ORCHESTRATOR, free, running, ending };
    match bench.service.dispatch(request).await.unwrap() {
        Response::Orders { orders } => orders,
        other => panic!("{other:?}"),
    }
}

pub async fn begin(bench: &Bench) -> Assignment {
    match poll(bench, 1, &[]).await.pop() {
        Some(Order::Run(assignment)) => *assignment,
        other => panic!("{other:?}"),
    }
}

/// Work on it has ended as ordered.
pub async fn stopped(bench: &Bench, lease: Lease) {
    let (changes, occurrences) = (Vec::new(), Vec::new());
    let report = Report { lease, sequence: 1, changes, occurrences, gauge: None, end: Some(End::Stopped) };
    bench.service.dispatch(Request::Report(Box::new(report))).await.unwrap();
}

pub fn is_stop(orders: &[Order], lease: Lease) -> bool {
    matches!(orders, [Order::Stop { lease: stopped }] if *stopped == lease)
}

/// The claims of a site's token.
pub fn claims(credential: &Credential) -> Value {
    let Credential::Token { token } = credential else { panic!("{credential:?}") };
    let part = token.split('.').nth(1).unwrap();
    serde_json::from_slice(&Base64UrlUnpadded::decode_vec(part).unwrap()).unwrap()
}

pub async fn give(bench: &Bench, site: &Site, who: &Somebody, path: &str, permissions: &str) -> Uuid {
    let rule = json!({"principal_type": "identity", "principal": who.id, "path": path, "permissions": permissions});
    let place = format!("/v0.10/endpoint/{}/access", site.guest);
    id(&bench.post(&place, &site.ada.token, rule).await.good()["access_id"])
}

pub async fn change(bench: &Bench, site: &Site, collection: Uuid, change: Value) {
    bench.put(&format!("/v0.10/endpoint/{collection}"), &site.ada.token, change).await.good();
}

pub async fn delete(bench: &Bench, who: &Somebody, collection: Uuid, path: &str) -> Uuid {
    let task = json!({"DATA_TYPE": "delete", "endpoint": collection, "submission_id": Uuid::from_u128(u128::from(who.id.as_u128() as u64) << 64 | path.len() as u128 | 0x4000_0000_0000_0000),
                      "recursive": true, "DATA": [{"DATA_TYPE": "delete_item", "path": path}]});
    id(&bench.post("/v0.10/delete", &who.token, task).await.good()["task_id"])
}

pub fn transfer(from: (Uuid, &str), to: (Uuid, &str)) -> Value {
    json!({"DATA_TYPE": "transfer", "source_endpoint": from.0, "destination_endpoint": to.0,
           "submission_id": Uuid::from_u128(0x5),
           "DATA": [{"DATA_TYPE": "transfer_item", "source_path": from.1, "destination_path": to.1}]})
}

pub async fn task(bench: &Bench, id: Uuid) -> Task {
    bench.service.store.task(id).await.unwrap().unwrap()
}

/// Takes what can be taken, of which only Ada's own task can go on.
async fn only_adas_goes_on(bench: &Bench, site: &Site) {
    let other = delete(bench, &site.ada, site.mapped, "/elsewhere").await;
    let orders = poll(bench, 9, &[]).await;
    assert!(matches!(&orders[..], [Order::Run(assignment)] if assignment.lease.task == other), "{orders:?}");
}

#[tokio::test]
async fn a_guest_gets_a_token_for_what_the_rules_give_in_the_name_of_who_shares() {
    let bench = Bench::new().await;
    let site = site(&bench).await;
    give(&bench, &site, &site.bob, "/in/", "rw").await;
    give(&bench, &site, &site.bob, "/in/kept/", "r").await;
    give(&bench, &site, &site.bob, "/out/", "r").await;
    delete(&bench, &site.bob, site.guest, "/in/x").await;
    let claims = claims(&begin(&bench).await.source.credential);
    let below = "/srv/data/shared";
    let expected = format!(
        "storage.read:{below}/in storage.modify:{below}/in whimbrel.read_only:{below}/in/kept storage.read:{below}/out \
         whimbrel.guest"
    );
    assert_eq!((&claims["scope"], &claims["sub"]), (&json!(expected), &json!(site.ada.id)), "{claims}");
}

#[tokio::test]
async fn a_rule_that_is_taken_away_ends_the_task() {
    let bench = Bench::new().await;
    let site = site(&bench).await;
    let rule = give(&bench, &site, &site.bob, "/in/", "rw").await;
    let submitted = delete(&bench, &site.bob, site.guest, "/in/x").await;
    let lease = begin(&bench).await.lease;
    bench.delete(&format!("/v0.10/endpoint/{}/access/{rule}", site.guest), &site.ada.token).await.good();
    assert!(is_stop(&poll(&bench, 0, &[lease]).await, lease));
    stopped(&bench, lease).await;
    only_adas_goes_on(&bench, &site).await;
    let task = task(&bench, submitted).await;
    assert_eq!(task.fatal.as_ref().map(|fatal| fatal.code.as_str()), Some("ACL_CHANGED"), "{task:?}");
    let events = bench.get(&format!("/v0.10/task/{submitted}/event_list"), &site.bob.token).await.good();
    assert_eq!((&events["DATA"][0]["code"], &events["DATA"][0]["is_error"]), (&json!("ACL_CHANGED"), &json!(true)));
}

#[tokio::test]
async fn a_task_goes_on_with_what_is_left_of_its_owners_rights() {
    let bench = Bench::new().await;
    let site = site(&bench).await;
    give(&bench, &site, &site.bob, "/in/", "rw").await;
    delete(&bench, &site.bob, site.guest, "/in/x").await;
    let lease = begin(&bench).await.lease;
    give(&bench, &site, &site.bob, "/in/y/", "r").await;
    assert!(is_stop(&poll(&bench, 0, &[lease]).await, lease));
    stopped(&bench, lease).await;
    let again = begin(&bench).await;
    let scope = claims(&again.source.credential)["scope"].as_str().unwrap().to_owned();
    let kept = "whimbrel.read_only:/srv/data/shared/in/y whimbrel.guest";
    assert!(again.lease.epoch == 2 && scope.ends_with(kept), "{scope}");
}

#[tokio::test]
async fn a_path_that_is_its_owners_no_more_ends_the_task() {
    let bench = Bench::new().await;
    let site = site(&bench).await;
    give(&bench, &site, &site.bob, "/in/", "rw").await;
    let submitted = delete(&bench, &site.bob, site.guest, "/in/x").await;
    give(&bench, &site, &site.bob, "/in/x/", "r").await;
    only_adas_goes_on(&bench, &site).await;
    let fatal = task(&bench, submitted).await.fatal.unwrap();
    assert!(fatal.code == "ACL_CHANGED" && fatal.description.contains("/in/x"), "{fatal:?}");
}

#[tokio::test]
async fn a_guest_collection_lives_by_who_shares_it() {
    let bench = Bench::new().await;
    let site = site(&bench).await;
    let root = bench.service.bootstrap_client("root", true).await.unwrap();
    let token = bench.token(&root, "urn:globus:auth:scope:transfer.api.globus.org:all").await;
    let place = format!("/v2/whimbrel/identities/{}", site.ada.id);
    give(&bench, &site, &site.bob, "/", "rw").await;
    let submitted = delete(&bench, &site.bob, site.guest, "/x").await;
    let lease = begin(&bench).await.lease;
    let closed = bench.put(&place, &token, json!({"disabled": true})).await.good();
    assert_eq!(closed["status"], "closed");
    assert_eq!(bench.get("/v0.10/task_list", &site.ada.token).await.status, 401, "her logins end");
    assert!(is_stop(&poll(&bench, 0, &[lease]).await, lease));
    let refused = bench.get(&format!("/v0.10/operation/endpoint/{}/ls", site.guest), &site.bob.token).await;
    assert_eq!((refused.status, refused.text.contains("who shares it is closed")), (403, true), "{refused:?}");
    stopped(&bench, lease).await;

    let own = json!({"disabled": true});
    let own = bench.put(&format!("/v2/whimbrel/identities/{}", root.client.id), &token, own).await;
    assert_eq!(own.status, 400, "nobody locks themselves out");
    bench.put(&place, &token, json!({"disabled": false})).await.good();
    assert_eq!(begin(&bench).await.lease.task, submitted);
}

#[tokio::test]
async fn a_closed_account_ends_its_tasks() {
    let bench = Bench::new().await;
    let site = site(&bench).await;
    let submitted = delete(&bench, &site.bob, site.mapped, "/x").await;
    bench.service.set_disabled(site.bob.id, true, site.ada.id).await.unwrap();
    only_adas_goes_on(&bench, &site).await;
    assert_eq!(task(&bench, submitted).await.fatal.unwrap().code, "ACL_CHANGED");
}

#[tokio::test]
async fn who_may_not_use_the_host_any_more_shares_nothing() {
    let bench = Bench::new().await;
    let site = site(&bench).await;
    let body = json!({"host_endpoint": site.mapped, "host_path": "/bobs/", "display_name": "Bob's"});
    let guest = id(&bench.post("/v0.10/shared_endpoint", &site.bob.token, body).await.good()["id"]);
    delete(&bench, &site.bob, guest, "/x").await;
    let lease = begin(&bench).await.lease;
    // Nobody has told Bob of it any more.
    change(&bench, &site, site.mapped, json!({"public": false})).await;
    assert!(is_stop(&poll(&bench, 0, &[lease]).await, lease));
}

#[tokio::test]
async fn collections_demand_encryption_and_verification() {
    let bench = Bench::new().await;
    let site = site(&bench).await;
    let endpoint = bench.service.add_endpoint(site.ada.id, "Other", vec![]).await.unwrap().id;
    let other = bench.service.add_mapped(endpoint, site.ada.id, "Other files", "/").await.unwrap().id;
    change(&bench, &site, site.mapped, json!({"force_encryption": true, "max_concurrency": 3, "max_rate": 1000})).await;
    change(&bench, &site, site.guest, json!({"force_verify": true})).await;
    let server = whimbrel_engine::dispatch::Server::at("whimbrel://other", None);
    bench.service.set_servers(endpoint, vec![server]).await.unwrap();
    let body = transfer((site.guest, "/a"), (other, "/a"));
    let submitted = id(&bench.post("/v0.10/transfer", &site.ada.token, body).await.good()["task_id"]);
    let shown = bench.get(&format!("/v0.10/task/{submitted}"), &site.ada.token).await.good();
    assert_eq!((&shown["encrypt_data"], &shown["verify_checksum"]), (&json!(true), &json!(true)));
    let assignment = begin(&bench).await;
    let Work::Transfer(options) = &assignment.work else { panic!("{assignment:?}") };
    assert!(
        options.encrypt && options.verify && options.verify_required && assignment.max_concurrency == Some(3),
        "{assignment:?}"
    );

    let rates = [Some(&assignment.source), assignment.destination.as_ref()]
        .map(|site| claims(&site.unwrap().credential)["whimbrel.rate"].clone());
    assert_eq!(rates, [json!("1000"), Value::Null]);

    // What is demanded later holds from then on.
    change(&bench, &site, other, json!({"max_concurrency": 2})).await;
    assert!(is_stop(&poll(&bench, 0, &[assignment.lease]).await, assignment.lease));

    change(&bench, &site, other, json!({"disable_verify": true})).await;
    let mut body = transfer((site.guest, "/b"), (other, "/b"));
    body["submission_id"] = json!(Uuid::from_u128(6));
    let refused = bench.post("/v0.10/transfer", &site.ada.token, body.clone()).await;
    assert_eq!((refused.status, refused.text.contains("verified")), (409, true), "{refused:?}");
    body["source_endpoint"] = json!(site.mapped);
    body["verify_checksum"] = json!(true);
    let submitted = id(&bench.post("/v0.10/transfer", &site.ada.token, body.clone()).await.good()["task_id"]);
    let shown = bench.get(&format!("/v0.10/task/{submitted}"), &site.ada.token).await.good();
    assert_eq!(shown["verify_checksum"], json!(false));
    (body["submission_id"], body["delete_source"]) = (json!(Uuid::from_u128(7)), json!(true));
    assert_eq!(bench.post("/v0.10/transfer", &site.ada.token, body).await.status, 409, "nothing is deleted unproven");
}

#[tokio::test]
async fn two_collections_of_one_storage_are_not_copied_into_each_other() {
    let bench = Bench::new().await;
    let site = site(&bench).await;
    let deep = bench.service.add_mapped(site.endpoint, site.ada.id, "Deep", "/srv").await.unwrap().id;
    for (from, to) in [
        ((site.guest, "/a"), (site.mapped, "/shared/a")),
        ((site.mapped, "/"), (site.guest, "/copy")),
        ((deep, "/data/"), (site.guest, "/copy")),
    ] {
        let refused = bench.post("/v0.10/transfer", &site.ada.token, transfer(from, to)).await;
        assert_eq!(refused.status, 400, "{from:?} {to:?} {refused:?}");
    }
    let fine = transfer((site.guest, "/a"), (site.mapped, "/shared2/a"));
    bench.post("/v0.10/transfer", &site.ada.token, fine).await.good();
}
