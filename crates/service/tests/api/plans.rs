//! What a task would do: who may ask, what an orchestrator is asked, and what is told.

use serde_json::{Value, json};
use uuid::Uuid;
use whimbrel_engine::dispatch::{
    Credential, Draft, Operation, OperationKind, OperationResult, Order, Request, Response, Work,
};
use whimbrel_engine::plan::{Cut, Forecast, Step, StepKind, Things};
use whimbrel_engine::task::ItemKind;
use whimbrel_engine::{Fault, FaultCode};

use crate::bench::{Bench, Got};
use crate::collections::{Site, site};

const PLAN: &str = "/v2/whimbrel/plan/transfer?limit=7";

/// The next operation that an orchestrator is given.
async fn operation(bench: &Bench) -> Operation {
    let poll = Request::Poll { orchestrator: Uuid::from_u128(3), free: 0, running: Vec::new(), ending: Vec::new() };
    loop {
        let Response::Orders { orders } = bench.service.dispatch(poll.clone()).await.unwrap() else { panic!("orders") };
        match orders.into_iter().next() {
            Some(Order::Operate(operation)) => return *operation,
            Some(other) => panic!("nothing is to run: {other:?}"),
            None => {}
        }
    }
}

/// Asks for a plan while an orchestrator answers so; what was asked of it, and what was told.
async fn foreseen(bench: &Bench, token: &str, document: &Value, answer: Result<Forecast, Fault>) -> (Operation, Got) {
    let path = format!("/v2/whimbrel/plan/{}?limit=7", document["DATA_TYPE"].as_str().unwrap());
    let orchestrator = async {
        let operation = operation(bench).await;
        let result = answer.map(|forecast| OperationResult::Foreseen(Box::new(forecast)));
        let answer = Request::Answer { operation: operation.id, result };
        bench.service.dispatch(answer).await.unwrap();
        operation
    };
    tokio::join!(orchestrator, bench.post(&path, token, document.clone()))
}

fn document(site: &Site) -> Value {
    json!({
        "DATA_TYPE": "transfer", "submission_id": Uuid::from_u128(7), "source_endpoint": site.mapped,
        "destination_endpoint": site.guest, "sync_level": 1, "label": "run 7",
        "DATA": [{"DATA_TYPE": "transfer_item", "source_path": "/a", "destination_path": "/to/a", "recursive": true}],
    })
}

fn draft(operation: &Operation) -> &Draft {
    let OperationKind::Foresee(draft) = &operation.kind else { panic!("{operation:?}") };
    draft
}

/// The words of a token's scope (RFC 7519: the second of three parts, in base64url).
fn scope(credential: &Credential) -> String {
    use base64ct::{Base64UrlUnpadded, Encoding as _};
    let Credential::Token { token } = credential else { panic!("{credential:?}") };
    let claims = Base64UrlUnpadded::decode_vec(token.split('.').nth(1).unwrap()).unwrap();
    serde_json::from_slice::<Value>(&claims).unwrap()["scope"].as_str().unwrap().to_owned()
}

fn codes(plan: &Value) -> Vec<&str> {
    plan["warnings"].as_array().unwrap().iter().map(|warning| warning["code"].as_str().unwrap()).collect()
}

async fn tasks(bench: &Bench, site: &Site) -> Value {
    bench.get("/v0.10/task_list", &site.ada.token).await.good()["total"].clone()
}

#[tokio::test]
async fn an_orchestrator_looks_with_tokens_that_read_only_and_no_task_comes_of_it() {
    let bench = Bench::new().await;
    let site = site(&bench).await;
    let step = Step {
        step: StepKind::Fail,
        kind: ItemKind::File,
        source: b"/srv/data/a/x".to_vec(),
        destination: b"/srv/data/shared/to/a/x".to_vec(),
        size: Some(5),
        reason: "it is closed".into(),
        fault: Some(FaultCode::PermissionDenied),
    };
    let forecast = Forecast {
        cut: Some(Cut::Time),
        found: Things { files: 9, directories: 2, symlinks: 1 },
        files_to_copy: 4,
        bytes_to_copy: 400,
        files_up_to_date: 5,
        filtered: 3,
        failing: 1,
        steps: vec![step],
        ..Forecast::default()
    };
    let (asked, told) = foreseen(&bench, &site.ada.token, &document(&site), Ok(forecast)).await;
    let draft = draft(&asked);
    assert_eq!((asked.site.collection, draft.label.as_str(), draft.bounds.steps), (site.mapped, "run 7", 7));
    assert!(draft.bounds.entries <= 1_000_000 && draft.bounds.seconds < 60 && !draft.more, "{draft:?}");
    let [item] = &draft.items[..] else { panic!("{draft:?}") };
    assert_eq!((&item.source[..], &item.destination[..]), (&b"/srv/data/a"[..], &b"/srv/data/shared/to/a"[..]));
    assert!(matches!(draft.work, Work::Transfer(_)));
    for credential in [&asked.site.credential, &draft.destination.as_ref().unwrap().credential] {
        let scope = scope(credential);
        assert!(scope.contains("storage.read") && !scope.contains("storage.modify"), "{scope}");
    }

    let plan = told.good();
    for (name, value) in [
        ("DATA_TYPE", json!("task_plan")),
        ("type", json!("TRANSFER")),
        ("is_complete", json!(false)),
        ("files", json!(9)),
        ("files_to_transfer", json!(4)),
        ("bytes_to_transfer", json!(400)),
        ("files_skipped", json!(5)),
        ("filtered", json!(3)),
        ("destination_endpoint_id", json!(site.guest)),
    ] {
        assert_eq!(plan[name], value, "{name}: {plan:#}");
    }
    let shown = &plan["DATA"][0];
    assert_eq!((&shown["source_path"], &shown["destination_path"]), (&json!("/a/x"), &json!("/to/a/x")));
    assert_eq!((&shown["step"], &shown["error_code"]), (&json!("fail"), &json!("PERMISSION_DENIED")));
    assert_eq!(codes(&plan), ["AT_LEAST", "FAILING", "NOT_VERIFIED", "ROOM_NOT_KNOWN"]);
    assert_eq!(tasks(&bench, &site).await, 0);

    let deletion = json!({"DATA_TYPE": "delete", "submission_id": Uuid::from_u128(8), "endpoint": site.guest, "recursive": true,
                          "DATA": [{"DATA_TYPE": "delete_item", "path": "/x"}]});
    let forecast = Forecast { found: Things { files: 3, ..Things::default() }, ..Forecast::default() };
    let (asked, told) = foreseen(&bench, &site.ada.token, &deletion, Ok(forecast)).await;
    assert!(!scope(&asked.site.credential).contains("storage.modify"));
    let plan = told.good();
    assert_eq!((&plan["type"], &plan["files"], &plan["is_complete"]), (&json!("DELETE"), &json!(3), &json!(true)));
    assert_eq!((codes(&plan).len(), tasks(&bench, &site).await), (0, json!(0)));
}

#[tokio::test]
async fn what_would_be_in_the_tasks_way_is_told() {
    let bench = Bench::new().await;
    let site = site(&bench).await;
    let token = &site.ada.token;
    let submitted = bench.post("/v0.10/transfer", token, document(&site)).await.good()["task_id"].clone();
    let (_, same) = foreseen(&bench, token, &document(&site), Ok(Forecast::default())).await;
    let warning = same.good()["warnings"][0].clone();
    assert_eq!(warning["code"], "DUPLICATE");
    assert!(warning["message"].as_str().unwrap().contains(submitted.as_str().unwrap()), "{warning}");
    let mut other = document(&site);
    other["submission_id"] = json!(Uuid::from_u128(9));
    let (_, conflict) = foreseen(&bench, token, &other, Ok(Forecast::default())).await;
    assert_eq!(codes(&conflict.good()), ["CONFLICT"]);
    bench.post(&format!("/v0.10/task/{}/cancel", submitted.as_str().unwrap()), token, json!({})).await.good();
    let (_, free) = foreseen(&bench, token, &other, Ok(Forecast::default())).await;
    assert!(codes(&free.good()).is_empty());

    let rule = json!({"endpoint_id": site.guest, "message": "tapes are changed", "pause_task_transfer_write": true,
                      "pause_ls": false});
    let rules = "/v0.10/endpoint_manager/pause_rule";
    bench.post(rules, token, rule).await.good();
    let (_, paused) = foreseen(&bench, token, &other, Ok(Forecast::default())).await;
    let warning = paused.good()["warnings"][0].clone();
    assert_eq!(warning["code"], "PAUSED");
    assert!(warning["message"].as_str().unwrap().ends_with("tapes are changed"), "{warning}");
    // Where nothing may be listed, nothing can be foretold.
    let rule = json!({"endpoint_id": site.guest, "message": "no looking", "pause_ls": true});
    bench.post(rules, token, rule).await.good();
    let refused = bench.post(PLAN, token, other).await;
    assert_eq!((refused.status, refused.code().as_str()), (409, "OperationPaused"), "{refused:?}");
}

#[tokio::test]
async fn who_may_not_submit_a_document_may_not_have_it_planned() {
    let bench = Bench::new().await;
    let site = site(&bench).await;
    let both = async |document: &Value| {
        let submitted = bench.post("/v0.10/transfer", &site.bob.token, document.clone()).await;
        let planned = bench.post(PLAN, &site.bob.token, document.clone()).await;
        let told = |got: &Got| (got.status, got.code(), got.json()["message"].clone());
        assert_eq!(told(&planned), told(&submitted));
        planned.status
    };
    assert_eq!(both(&document(&site)).await, 404, "a collection that Bob may not know of");
    let access = format!("/v0.10/endpoint/{}/access", site.guest);
    let rule = |path: &str, permissions: &str| json!({"DATA_TYPE": "access", "principal_type": "identity", "principal": site.bob.id, "path": path, "permissions": permissions});
    bench.post(&access, &site.ada.token, rule("/to/", "r")).await.good();
    assert_eq!(both(&document(&site)).await, 403, "a place that Bob may only read");
    bench.post(&access, &site.ada.token, rule("/in/", "rw")).await.good();
    let mut document = document(&site);
    document["DATA"][0]["destination_path"] = json!("/in/a");
    let (asked, told) = foreseen(&bench, &site.bob.token, &document, Ok(Forecast::default())).await;
    told.good();
    let scope = scope(&draft(&asked).destination.as_ref().unwrap().credential);
    assert!(scope.contains("/in") && !scope.contains("storage.modify"), "{scope}");
}

#[tokio::test]
async fn what_an_orchestrator_cannot_tell_is_an_error_as_of_listings() {
    let bench = Bench::new().await;
    let site = site(&bench).await;
    for (fault, status, code) in [
        (FaultCode::LoginFailed, 502, "ExternalError.PlanFailed.LoginFailed"),
        (FaultCode::ConnectionRefused, 503, "ServiceUnavailable"),
        (FaultCode::NotSupported, 409, "NotSupported"),
    ] {
        let fault = Err(Fault::new(fault, "plan a task"));
        let (_, got) = foreseen(&bench, &site.ada.token, &document(&site), fault).await;
        assert_eq!((got.status, got.code().as_str()), (status, code), "{got:?}");
    }
    let refused = bench.post("/v2/whimbrel/plan/delete", &site.ada.token, document(&site)).await;
    assert_eq!(refused.status, 400, "a document of another kind");
    let refused = bench.post("/v2/whimbrel/plan/transfer?limit=x", &site.ada.token, document(&site)).await;
    assert_eq!(refused.status, 400);
}
