//! Stock `globus-gridftp-server` hosts as endpoints of the managed service, two at each end, driven by the public client.
#![allow(clippy::unwrap_used, reason = "a test that fails ends here")]

#[allow(dead_code, reason = "our own servers are not used here")]
#[path = "../service/field.rs"]
mod field;
#[allow(dead_code, reason = "some of it is for other tests")]
#[path = "../managed/seat.rs"]
mod seat;

mod credentials;
mod grid;

use std::fs;

use serde_json::json;
use whimbrel_testkit::dataset;

use grid::Stock;

const MIB: u64 = 1 << 20;

#[test]
fn a_large_file_is_chunked_over_all_four_hosts_and_verified() {
    let Some(stock) = Stock::new() else { return };
    let [left, right] = &stock.sides;
    stock.register();
    let bytes = 192 * MIB;
    dataset::random_file(&left.path("big"), bytes, 7).unwrap();
    let task = stock.field.carry_out(&["transfer", &left.at("/big"), &right.at("/big")]);
    assert_eq!((&task["bytes_transferred"], &task["bytes_checksummed"]), (&json!(bytes), &json!(bytes)), "{task:#}");
    assert!(fs::read(left.path("big")).unwrap() == fs::read(right.path("big")).unwrap());
    assert_eq!(right.names(""), ["big"]);
    for (side, kind) in [(left, "ERET"), (right, "ESTO")] {
        let carried = side.carried(kind, bytes);
        assert!(carried.iter().all(|bytes| *bytes >= MIB), "{kind}: {carried:?}");
    }

    // What cannot be promised is said, to programs and to people.
    assert_eq!(task["not_promised"], json!(["durability"]));
    let id = task["task_id"].as_str().unwrap();
    let events = stock.field.json(&["task", "event-list", id]);
    let told = events["DATA"].as_array().unwrap().iter().find(|event| event["code"] == "NOT_DURABLE");
    assert!(told.is_some_and(|event| event["is_error"] == false), "{events:#}");
    let shown = stock.seat().says(&["task", "show", id]);
    assert!(shown.contains("not promised") && shown.contains("durability"), "{shown}");
}

#[test]
fn files_and_trees_are_listed_copied_and_deleted() {
    let Some(stock) = Stock::new() else { return };
    let [left, right] = &stock.sides;
    stock.register();
    let field = &stock.field;
    for number in 0..300 {
        left.write(&format!("tree/d{}/f{number}", number % 7), format!("file {number}\n"));
    }
    left.write("tree/empty/deeper/x", "");
    assert_eq!(field.globus(&["ls", &left.at("/tree/empty")]), "deeper/\n");
    assert!(field.globus(&["stat", &left.at("/tree/d1/f1")]).contains("Size:          7"));
    let task = field.carry_out(&["transfer", "-r", &left.at("/tree"), &right.at("/copy")]);
    assert_eq!((&task["files_transferred"], &task["faults"]), (&json!(301), &json!(0)), "{task:#}");
    assert_eq!(task["bytes_checksummed"], task["bytes_transferred"]);
    for number in 0..300 {
        let copy = fs::read_to_string(right.path(&format!("copy/d{}/f{number}", number % 7))).unwrap();
        assert_eq!(copy, format!("file {number}\n"));
    }
    assert!(right.path("copy/empty/deeper/x").exists());

    field.globus(&["mkdir", &right.at("/new")]);
    field.globus(&["rename", &right.collection, "/copy/d1/f1", "/new/f1"]);
    assert_eq!(right.names("new"), ["f1"]);
    field.globus_ends(1, &["rename", &right.collection, "/copy/d1/f8", "/new/f1"]);
    left.write("tree/d2/f2", "changed\n");
    let task = field.carry_out(&["transfer", "-r", "-s", "checksum", &left.at("/tree"), &right.at("/copy")]);
    assert_eq!(task["files_transferred"], json!(2), "{task:#}");
    assert_eq!(fs::read(right.path("copy/d2/f2")).unwrap(), b"changed\n");
    let task = field.carry_out(&["delete", "-r", &right.at("/copy")]);
    assert_eq!(task["type"], "DELETE");
    assert!(!right.path("copy").exists() && left.path("tree").exists());
}

#[test]
fn a_task_ends_verified_although_one_of_four_hosts_dies_meanwhile() {
    let Some(mut stock) = Stock::new() else { return };
    stock.register();
    let bytes = 512 * MIB;
    dataset::random_file(&stock.sides[0].path("big"), bytes, 8).unwrap();
    let [left, right] = &stock.sides;
    let task = stock.field.submit(&["transfer", &left.at("/big"), &right.at("/big")]);
    grid::until("a part of the file", || right.stored() > 32 * MIB);
    let dead = stock.sides[1].servers.remove(0);
    drop(dead);
    let [left, right] = &stock.sides;
    assert!(!right.path("big").exists(), "the host died too late to be missed");
    stock.field.globus(&["task", "wait", &task, "--timeout", "170", "--polling-interval", "1"]);
    let shown = stock.field.json(&["task", "show", &task]);
    assert_eq!((&shown["status"], &shown["bytes_checksummed"]), (&json!("SUCCEEDED"), &json!(bytes)), "{shown:#}");
    assert!(fs::read(left.path("big")).unwrap() == fs::read(right.path("big")).unwrap());
    assert_eq!(right.names(""), ["big"]);
}
