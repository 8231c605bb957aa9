//! Proxies are registered with our command; a task waits for one and goes on with another.

use serde_json::{Value, json};
use whimbrel_trust::clock::now;
use whimbrel_trust::gsi::{Delegate, deposit};
use whimbrel_trust::make::Life;

use super::grid::{Stock, until};

/// Files that take longer than the last seconds of a proxy.
const FILES: usize = 5000;

#[test]
fn a_proxy_is_registered_shown_and_removed() {
    let Some(stock) = Stock::new() else { return };
    let seat = stock.seat();
    let (_, error) = seat.ends(1, &["endpoint", "credential", "left data", "--show"]);
    assert!(error.contains("whimbrel endpoint credential 'left data'"), "{error}");
    let (_, error) = stock.field.globus_ends(1, &["ls", &stock.sides[0].at("/")]);
    assert!(error.contains("LoginFailed") && error.contains("whimbrel endpoint credential 'left data'"), "{error}");
    // Without any certificate the message says where it was looked for.
    let (_, error) = seat.ends(6, &["endpoint", "credential", "left data"]);
    assert!(error.contains("looked for"), "{error}");

    let made = stock.registers(&["--json", "endpoint", "credential", "left data", "--hours", "2"]);
    let made: Value = serde_json::from_str(made.trim()).unwrap();
    assert_eq!((&made["event"], &made["subject"]), (&json!("credential_registered"), &json!("/O=Grid/CN=alice")));
    assert_eq!(made["kind"], "limited proxy");
    // The proxy that signed it is good for an hour only.
    assert!((3000..3601).contains(&made["expires_in"].as_i64().unwrap()), "{made}");
    let shown = seat.says(&["endpoint", "credential", "left site", "--show"]);
    assert!(shown.starts_with("/O=Grid/CN=alice") && shown.contains("good until"), "{shown}");
    assert!(seat.says(&["endpoint", "show", "left data"]).contains("my proxy"));
    assert_eq!(stock.field.globus(&["ls", &stock.sides[0].at("/")]), "\n");
    seat.ends(0, &["endpoint", "credential", "left data", "--remove"]);
    stock.field.globus_ends(1, &["ls", &stock.sides[0].at("/")]);
    let (_, error) = seat.ends(1, &["endpoint", "share", "left data:/", "shared"]);
    assert!(error.contains("stock servers"), "{error}");
    // Neither the service's log nor its files hold a key of a proxy.
    assert!(!stock.kept().windows(11).any(|part| part == b"PRIVATE KEY"));
}

/// Registers a proxy that is good for so many seconds; where it is asked about.
#[track_caller]
fn registered(stock: &Stock, collection: &str, seconds: i64) -> String {
    let path = format!("/v2/whimbrel/endpoints/{collection}/credential");
    let asked = stock.field.ask(&format!("{path}/request"), &json!({}));
    let request = asked["request"].as_str().unwrap_or_else(|| panic!("{asked}"));
    let chain = deposit::answer(request, &stock.alice.own, Delegate::Limited, Life::of(now(), seconds)).unwrap();
    let made = stock.field.tell("PUT", &path, &json!({"chain": chain}));
    assert_eq!(made["subject"], "/O=Grid/CN=alice", "{made}");
    path
}

/// What a server says of an expired proxy is about no file: none fails for it.
#[test]
fn a_proxy_that_ends_while_its_task_runs_fails_no_file() {
    let Some(stock) = Stock::new() else { return };
    stock.register();
    let [left, right] = &stock.sides;
    for number in 0..FILES {
        left.write(&format!("tree/d{}/f{number}", number % 5), format!("file {number}\n"));
    }
    let token = stock.field.token();
    let shown = |path: &str| stock.field.ask_with(&token, path, None).unwrap();
    // So slow that the proxy ends first, however fast the machine is.
    let slow = stock.field.ask("/v2/whimbrel/rate_rules", &json!({"endpoint_id": right.collection, "max_rate": 500}));
    let path = registered(&stock, &right.collection, 4);
    until("the last seconds of the proxy", || shown(&path)["expires_in"].as_i64().unwrap() <= 2);
    let task = stock.field.submit(&["transfer", "-r", &left.at("/tree"), &right.at("/copy")]);
    let place = format!("/v0.10/task/{task}");
    until("a task that waits", || shown(&place)["status"] != "ACTIVE");
    let waiting = shown(&place);
    assert_eq!(waiting["status"], "INACTIVE", "{waiting:#}");
    let details = waiting["nice_status_details"].as_str().unwrap();
    assert!(details.contains("whimbrel endpoint credential 'right data'") && !details.contains("/proc"), "{details}");
    assert_eq!(waiting["subtasks_failed"], 0, "{waiting:#}");
    assert_ne!(waiting["files_transferred"], FILES, "it ended too early to be missed");
    stock.field.tell("DELETE", &format!("/v2/whimbrel/rate_rules/{}", slow["id"].as_str().unwrap()), &json!({}));
    stock.registers(&["endpoint", "credential", "right data"]);
    stock.field.globus(&["task", "wait", &task, "--timeout", "120", "--polling-interval", "1"]);
    let shown = shown(&place);
    assert_eq!((&shown["status"], &shown["files_transferred"]), (&json!("SUCCEEDED"), &json!(FILES)), "{shown:#}");
    assert_eq!(shown["bytes_checksummed"], shown["bytes_transferred"]);
    for number in 0..FILES {
        let copy = std::fs::read_to_string(right.path(&format!("copy/d{}/f{number}", number % 5))).unwrap();
        assert_eq!(copy, format!("file {number}\n"));
    }
}

#[test]
fn a_task_pauses_while_its_owners_proxy_is_over_and_goes_on_with_another() {
    let Some(stock) = Stock::new() else { return };
    stock.register();
    let [left, right] = &stock.sides;
    left.write("one", "1");
    stock.field.carry_out(&["transfer", &left.at("/one"), &right.at("/one")]);

    let path = registered(&stock, &left.collection, 2);
    let token = stock.field.token();
    let shown = |path: &str| stock.field.ask_with(&token, path, None).unwrap();
    until("the end of the proxy", || shown(&path)["expires_in"] == 0);
    left.write("two", "22");
    // What is there of the proxy is of no use any more, so the task waits.
    let task = stock.field.submit(&["transfer", &left.at("/two"), &right.at("/two")]);
    let place = format!("/v0.10/task/{task}");
    until("a task that waits", || shown(&place)["status"] == "INACTIVE");
    let waiting = shown(&place);
    assert_eq!((&waiting["nice_status"], &waiting["is_ok"]), (&json!("AUTH"), &json!(false)), "{waiting:#}");
    let details = waiting["nice_status_details"].as_str().unwrap();
    let (_, command) = details.split_once("to register another: whimbrel ").unwrap_or_else(|| panic!("{details}"));
    let name = command.split('\'').nth(1).unwrap();
    assert_eq!(name, "left data");
    assert!(!right.path("two").exists());
    stock.registers(&["endpoint", "credential", name]);
    stock.field.globus(&["task", "wait", &task, "--timeout", "60", "--polling-interval", "1"]);
    assert_eq!(std::fs::read(right.path("two")).unwrap(), b"22");
    let events = stock.field.json(&["task", "event-list", &task]);
    let codes: Vec<_> = events["DATA"].as_array().unwrap().iter().map(|event| event["code"].clone()).collect();
    assert!(codes.contains(&json!("AUTH")) && codes.contains(&json!("UNPAUSED")), "{codes:?}");
}
