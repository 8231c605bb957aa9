use serde_json::{Value, json};
use uuid::Uuid;
use whimbrel_engine::plan::SyncLevel;
use whimbrel_engine::task::{Symlinks, TransferOptions};

use super::submission::*;
use crate::task::TaskWork;

const A: Uuid = Uuid::from_u128(0xa);
const B: Uuid = Uuid::from_u128(0xb);

fn document(change: &Value) -> Value {
    let mut document = json!({
        "DATA_TYPE": "transfer",
        "source_endpoint": A, "destination_endpoint": B, "submission_id": Uuid::from_u128(1),
        "DATA": [{"DATA_TYPE": "transfer_item", "source_path": "~/a", "destination_path": "/b"}],
        "something_new": {"x": 1},
    });
    for (name, value) in change.as_object().unwrap() {
        document[name] = value.clone();
    }
    document
}

fn options(change: &Value) -> Result<TransferOptions, Invalid> {
    read_transfer(&document(change)).map(|draft| match draft.work {
        TaskWork::Transfer(options) => *options,
        TaskWork::Delete(_) => panic!("it is a transfer"),
    })
}

fn ground(base: &str) -> Ground {
    Ground { base: base.into(), default_directory: "/home".into(), storage: vec!["one".into()] }
}

#[test]
fn what_is_absent_has_the_default_of_the_api() {
    let draft = read_transfer(&document(&json!({}))).unwrap();
    assert_eq!(options(&json!({})).unwrap(), TransferOptions::default());
    assert!(draft.notify.succeeded && draft.notify.failed && draft.notify.inactive);
    assert_eq!((draft.label, draft.deadline, draft.source_local_user), (None, None, None));
}

#[test]
fn each_option_is_taken() {
    let all = json!({
        "sync_level": 2, "verify_checksum": true, "preserve_timestamp": true, "encrypt_data": true,
        "skip_source_errors": true, "fail_on_quota_errors": true, "delete_destination_extra": true,
        "recursive_symlinks": "keep", "delete_source": true, "preserve_mode": true, "perf_cc": 3, "perf_udt": false,
        "filter_rules": [{"DATA_TYPE": "filter_rule", "method": "exclude", "type": "dir", "name": ".git"},
                         {"method": "include", "name": "*"}],
    });
    let read = options(&all).unwrap();
    assert_eq!((read.sync, read.symlinks), (SyncLevel::Mtime, Symlinks::Keep));
    assert!(read.verify && read.preserve_times && read.preserve_modes && read.encrypt && read.move_source);
    assert!(read.skip_source_errors && read.fail_on_quota_errors && read.delete_extra);
    assert_eq!((read.filter.0.len(), read.perf.concurrency), (2, Some(3)));
}

#[test]
fn what_cannot_be_verified_fails_only_where_that_is_asked_for() {
    assert!(!options(&json!({"verify_checksum": true})).unwrap().verify_required);
    let asked = json!({"verify_checksum": true, "whimbrel_verify_required": true});
    assert!(options(&asked).unwrap().verify_required);
    let invalid = options(&json!({"whimbrel_verify_required": true})).unwrap_err();
    assert!(invalid.message.contains("verify_checksum"), "{invalid:?}");
}

#[test]
fn a_directory_is_followed_where_nothing_else_is_asked_for() {
    let follow = options(&json!({"whimbrel_follow": {"until": "DONE"}})).unwrap().follow.unwrap();
    assert_eq!(
        (follow.until.as_deref(), follow.settled_after_seconds, follow.include_hidden),
        (Some("DONE"), 10, false)
    );
    let follow = json!({"settled_after_seconds": 30, "include_hidden": true});
    let read =
        options(&json!({"whimbrel_follow": follow, "verify_checksum": true, "preserve_timestamp": true})).unwrap();
    assert_eq!(read.follow.unwrap().settled_after_seconds, 30);
    let item = json!({"source_path": "/a", "destination_path": "/b"});
    for (name, value) in [
        ("whimbrel_follow", json!({"until": "a/b"})),
        ("whimbrel_follow", json!({"until": ""})),
        ("whimbrel_follow", json!({"until": ".."})),
        ("whimbrel_follow", json!({"settled_after_seconds": 0})),
        ("whimbrel_follow", json!({"settled_after_seconds": 86_401})),
        ("whimbrel_follow", json!(true)),
        ("sync_level", json!(1)),
        ("delete_destination_extra", json!(true)),
        ("skip_source_errors", json!(true)),
        ("filter_rules", json!([{"method": "exclude", "name": "x"}])),
        ("DATA", json!([item, {"source_path": "/c", "destination_path": "/d"}])),
        ("DATA", json!([{"source_path": "/a", "destination_path": "/b", "recursive": false}])),
    ] {
        let mut change = json!({"whimbrel_follow": {"until": "DONE"}});
        change[name] = value;
        let invalid = options(&change).unwrap_err();
        assert!(
            invalid.message.contains("whimbrel_follow") || invalid.message.contains("transfer"),
            "{change}: {invalid:?}"
        );
    }
}

#[test]
fn what_cannot_be_meant_is_refused_with_its_place() {
    let item = |more: Value| {
        let mut item = json!({"source_path": "/a", "destination_path": "/b"});
        item.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        json!({"DATA": [item]})
    };
    for (change, said) in [
        (json!({"DATA": []}), "nothing to do"),
        (json!({"DATA_TYPE": "delete"}), "DATA_TYPE"),
        (json!({"sync_level": 4}), "sync_level"),
        (json!({"submission_id": "x"}), "UUID"),
        (json!({"label": " x"}), "label"),
        (json!({"label": "x\ny"}), "label"),
        (json!({"label": "x".repeat(129)}), "label"),
        (json!({"deadline": "soon"}), "deadline"),
        (json!({"source_local_user": "a/b"}), "local user"),
        (json!({"delete_source": true}), "verify_checksum"),
        (json!({"filter_rules": [{"method": "exclude", "name": "a/b"}]}), "filter rule"),
        (json!({"filter_rules": [{"method": "prune", "name": "a"}]}), "prune"),
        (json!({"DATA": [{"source_path": "/a"}]}), "DATA[0]: missing field `destination_path`"),
        (item(json!({"DATA_TYPE": "x"})), "DATA[0]"),
        (item(json!({"external_checksum": "12"})), "32 hexadecimal"),
        (item(json!({"external_checksum": "0".repeat(32), "recursive": true})), "for a file"),
        (item(json!({"external_checksum": "0".repeat(32), "checksum_algorithm": "xor"})), "not known"),
    ] {
        let refused = read_transfer(&document(&change)).unwrap_err();
        assert!(refused.message.contains(said), "{change}: {}", refused.message);
    }
    let empty = read_transfer(&document(&json!({"DATA": []}))).unwrap_err();
    assert_eq!(empty.code, "ClientError.BadRequest.NoTransferItems");
}

#[test]
fn items_are_placed_on_their_servers() {
    let sha256 = "AB".repeat(32);
    let data = json!({"DATA": [
        {"source_path": "~/a", "destination_path": "/b/../c"},
        {"source_path": "/d/", "destination_path": "e/", "recursive": true},
        {"source_path": "f", "destination_path": "/f", "external_checksum": sha256, "checksum_algorithm": "SHA-256"},
    ]});
    let placed = read_transfer(&document(&data)).unwrap().place(&ground("/s/"), Some(&ground("/"))).unwrap();
    let text = |path: &[u8]| String::from_utf8(path.to_vec()).unwrap();
    let pairs: Vec<_> = placed.items.iter().map(|item| (text(&item.source), text(&item.destination))).collect();
    let expected = [("/s/home/a", "/c"), ("/s/d/", "/home/e/"), ("/s/home/f", "/f")];
    assert_eq!(pairs, expected.map(|(source, destination)| (source.to_owned(), destination.to_owned())));
    assert_eq!(placed.items.iter().map(|item| item.recursive).collect::<Vec<_>>(), [None, Some(true), Some(false)]);
    assert_eq!(placed.items[2].checksum.as_ref().unwrap().digest, "ab".repeat(32));
    assert_eq!(placed.destinations, ["/c", "/home/e/", "/f"]);
}

#[test]
fn paths_that_cannot_be_are_refused() {
    let refused = |data: Value, destination: Uuid| {
        let document = document(&json!({"DATA": data, "destination_endpoint": destination}));
        read_transfer(&document).unwrap().place(&ground("/"), Some(&ground("/"))).unwrap_err().message
    };
    let item = |source: &str, destination: &str| json!({"source_path": source, "destination_path": destination});
    assert!(refused(json!([item("/../a", "/b")]), B).contains("leads out"));
    assert!(refused(json!([item("/a", "/b"), item("/c", "/b/")]), B).contains("named twice"));
    assert!(refused(json!([item("/a", "/a/")]), A).contains("both source and destination"));
    assert!(refused(json!([item("/a", "/a/b")]), A).contains("into itself"));
    assert!(refused(json!([item("/a\u{0}", "/b")]), B).contains("character"));
    let copied = document(&json!({"DATA": [item("/a", "/ab")], "destination_endpoint": A}));
    assert!(read_transfer(&copied).unwrap().place(&ground("/"), Some(&ground("/"))).is_ok());
}

#[test]
fn a_mirror_has_its_destination_for_itself() {
    let place = |delete: bool, destinations: [&str; 2]| {
        let item = |number: usize| json!({"source_path": format!("/{number}"), "destination_path": destinations[number], "recursive": true});
        let data = json!({"DATA": [item(0), item(1)], "delete_destination_extra": delete});
        read_transfer(&document(&data)).unwrap().place(&ground("/"), Some(&ground("/")))
    };
    for nested in [["/backup/", "/backup/x/b/"], ["/backup/x/b", "/backup"], ["/", "/a"]] {
        let refused = place(true, nested).unwrap_err().message;
        assert!(refused.contains("delete_destination_extra"), "{refused}");
        assert!(place(false, nested).is_ok(), "{nested:?}");
    }
    assert!(place(true, ["/backup", "/backup2/x"]).is_ok());
}

#[test]
fn deletions_are_read_and_never_of_the_root() {
    let document = |path: &str| {
        json!({"DATA_TYPE": "delete", "endpoint": A, "submission_id": B, "recursive": true, "interpret_globs": true,
               "DATA": [{"DATA_TYPE": "delete_item", "path": path}]})
    };
    let placed = read_delete(&document("/x/*.tmp")).unwrap().place(&ground("/s"), None).unwrap();
    assert_eq!(placed.items[0].source, b"/s/x/*.tmp");
    assert!(placed.items[0].destination.is_empty() && placed.destinations.is_empty());
    for root in ["/", "/a/..", "/./"] {
        let refused = read_delete(&document(root)).unwrap().place(&ground("/s"), None).unwrap_err();
        assert!(refused.message.contains("collection itself"), "{root}");
    }
}

#[test]
fn the_fingerprint_tells_paths_and_ends_apart() {
    let of = |change: Value| {
        read_transfer(&document(&change)).unwrap().place(&ground("/"), Some(&ground("/"))).unwrap().fingerprint
    };
    assert_eq!(of(json!({})), of(json!({"label": "x", "submission_id": Uuid::from_u128(9)})));
    assert_ne!(of(json!({})), of(json!({"source_endpoint": Uuid::from_u128(3)})));
    let item =
        |source: &str, destination: &str| json!({"DATA": [{"source_path": source, "destination_path": destination}]});
    assert_ne!(of(item("/a", "/b/c")), of(item("/a/b", "/c")));
    assert_eq!(of(item("/a/", "/b")), of(item("//a", "/b/")));
    let items = |items: [[&str; 2]; 2]| {
        let items = items.map(|[source, destination]| json!({"source_path": source, "destination_path": destination}));
        json!({"DATA": items})
    };
    assert_eq!(of(items([["/a", "/b"], ["/a/", "/c"]])), of(items([["/a", "/c/"], ["/a/", "/b"]])), "in any order");
    assert_ne!(of(items([["/a", "/b"], ["/c", "/d"]])), of(items([["/a", "/d"], ["/c", "/b"]])));
}
