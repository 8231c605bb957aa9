//! Random transfer documents: valid ones become tasks, with one thing wrong they are refused, and nobody does the same twice at once.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};
use uuid::Uuid;
use whimbrel_testkit::rng::Rng;

use crate::bench::Bench;
use crate::collections::{Site, site};

/// Documents with one thing wrong.
const WRONG: u64 = 1500;
/// Steps of submitting and ending.
const STEPS: u64 = 1500;

fn pick<T: Clone>(rng: &mut Rng, of: &[T]) -> T {
    of[rng.below(of.len() as u64) as usize].clone()
}

fn uuid(rng: &mut Rng) -> Uuid {
    Uuid::from_u64_pair(rng.next_u64(), rng.next_u64())
}

/// A document that everybody would take.
fn valid(rng: &mut Rng, site: &Site) -> Value {
    let item = |rng: &mut Rng, number: u64| {
        let mut item = json!({
            "DATA_TYPE": "transfer_item",
            "source_path": pick(rng, &["/a", "~/a b", "c/ö/", "/d/../e"]),
            "destination_path": format!("/to/{number}{}", pick(rng, &["", "/x", " 🐦"])),
        });
        match rng.below(5) {
            0 => item["recursive"] = json!(true),
            1 => item["recursive"] = json!(false),
            2 => item["DATA_TYPE"] = json!("transfer_symlink_item"),
            3 => {
                item["external_checksum"] = json!("0123456789abcdef0123456789ABCDEF");
                item["checksum_algorithm"] = pick(rng, &[json!("MD5"), json!("md5"), Value::Null]);
            }
            _ => {}
        }
        item
    };
    let rule = |rng: &mut Rng| {
        json!({"DATA_TYPE": "filter_rule", "method": pick(rng, &["include", "exclude"]), "name": pick(rng, &["*", "[!a-c]?", "ö["]),
               "type": pick(rng, &[json!("file"), json!("dir"), Value::Null])})
    };
    let rules = [rule(rng), rule(rng)];
    let mut document = json!({
        "DATA_TYPE": "transfer",
        "submission_id": uuid(rng),
        "source_endpoint": site.mapped,
        "destination_endpoint": pick(rng, &[site.mapped, site.guest]),
        "DATA": (0..1 + rng.below(4)).map(|number| item(rng, number)).collect::<Vec<_>>(),
    });
    for (name, value) in [
        ("label", pick(rng, &[json!("x".repeat(128)), json!("ö b"), json!(""), Value::Null])),
        ("sync_level", pick(rng, &[json!(0), json!(3), Value::Null])),
        ("recursive_symlinks", pick(rng, &[json!("ignore"), json!("keep"), json!("copy"), Value::Null])),
        ("filter_rules", pick(rng, &[json!(rules[..1]), json!(rules), json!([]), Value::Null])),
        ("verify_checksum", json!(true)),
        ("preserve_timestamp", json!(rng.below(2) == 0)),
        ("skip_source_errors", json!(rng.below(2) == 0)),
        ("deadline", pick(rng, &[json!("2099-01-01"), json!("2099-01-01 00:00:00"), Value::Null])),
        ("perf_cc", pick(rng, &[json!(4), Value::Null])),
        ("notify_on_failed", pick(rng, &[json!(false), Value::Null])),
        ("unheard_of", json!({"x": [1]})),
    ] {
        if rng.below(2) == 0 {
            document[name] = value;
        }
    }
    document
}

/// How a document is refused: status and code.
type Refusal = (u16, &'static str);

const BAD: Refusal = (400, "ClientError.BadRequest");
const EMPTY: Refusal = (400, "ClientError.BadRequest.NoTransferItems");
const UNKNOWN: Refusal = (404, "EndpointNotFound");

/// Does one thing wrong.
fn spoil(rng: &mut Rng, document: &mut Value, site: &Site) -> Refusal {
    match rng.below(5) {
        0 => {
            let (name, value, refusal) = spoilt_field(rng, site);
            document[name] = value;
            refusal
        }
        1 => {
            let name = pick(rng, &["source_endpoint", "destination_endpoint", "submission_id", "DATA"]);
            document.as_object_mut().unwrap().remove(name);
            if name == "DATA" { EMPTY } else { BAD }
        }
        2 => spoilt_rules(rng, document),
        _ => spoilt_item(rng, document),
    }
}

fn spoilt_field(rng: &mut Rng, site: &Site) -> (&'static str, Value, Refusal) {
    let elsewhere = uuid(rng);
    let of = |names: &[&'static str], rng: &mut Rng| pick(rng, names);
    let ends = ["source_endpoint", "destination_endpoint"];
    let flags = [
        "verify_checksum",
        "preserve_timestamp",
        "encrypt_data",
        "skip_source_errors",
        "fail_on_quota_errors",
        "delete_destination_extra",
        "notify_on_succeeded",
        "notify_on_failed",
        "notify_on_inactive",
        "store_base_path_info",
    ];
    match rng.below(13) {
        0 => (of(&flags, rng), pick(rng, &[json!("true"), json!(1), json!([true]), json!({})]), BAD),
        1 => ("sync_level", pick(rng, &[json!(4), json!(-1), json!(300), json!("3"), json!(1.5), json!(true)]), BAD),
        2 => {
            let labels = [
                json!("x".repeat(129)),
                json!(" x"),
                json!("x "),
                json!("x\ny"),
                json!("\u{7}"),
                json!(7),
                json!(["x"]),
            ];
            ("label", pick(rng, &labels), BAD)
        }
        3 => {
            let times = [
                json!("soon"),
                json!("2020-01-01"),
                json!("2099-13-01"),
                json!(1_900_000_000),
                json!("2099-01-01 25:00:00"),
            ];
            ("deadline", pick(rng, &times), BAD)
        }
        4 => ("recursive_symlinks", pick(rng, &[json!("follow"), json!("COPY"), json!(""), json!(true)]), BAD),
        5 => (of(&ends, rng), pick(rng, &[json!("x"), json!(1), Value::Null, json!([])]), BAD),
        6 => (of(&ends, rng), json!(elsewhere), UNKNOWN),
        7 => ("submission_id", pick(rng, &[json!("x"), json!(1), Value::Null, json!("1-2-3")]), BAD),
        8 => ("DATA_TYPE", pick(rng, &[json!("delete"), json!("Transfer"), json!(1)]), BAD),
        9 => pick(
            rng,
            &[
                ("DATA", json!([]), EMPTY),
                ("DATA", json!({}), BAD),
                ("DATA", json!("x"), BAD),
                ("DATA", Value::Null, BAD),
            ],
        ),
        10 => (
            of(&["perf_cc", "perf_p", "perf_pp"], rng),
            pick(rng, &[json!(-1), json!("4"), json!(1.5), json!(1u64 << 40)]),
            BAD,
        ),
        11 => ("max_rate", pick(rng, &[json!(-1), json!("4"), json!(1.5), json!(0)]), BAD),
        // An endpoint has no files; its collections have.
        _ => (of(&ends, rng), json!(site.endpoint), (400, "")),
    }
}

fn spoilt_rules(rng: &mut Rng, document: &mut Value) -> Refusal {
    let rule = |name: &str, value: Value| {
        let mut rule = json!({"DATA_TYPE": "filter_rule", "method": "exclude", "name": "*.tmp"});
        rule[name] = value;
        json!([{"method": "include", "name": "x"}, rule])
    };
    document["filter_rules"] = match rng.below(7) {
        0 => rule("method", pick(rng, &[json!("prune"), json!(""), json!(1), Value::Null])),
        1 => rule("type", pick(rng, &[json!("link"), json!("directory"), json!(1)])),
        2 => rule("name", pick(rng, &[json!(""), json!("a/b"), json!("x".repeat(257)), json!(1), Value::Null])),
        3 => rule("DATA_TYPE", json!("transfer_item")),
        4 => pick(rng, &[json!("*.tmp"), json!({}), json!(["*.tmp"]), json!([null])]),
        5 => json!([["exclude", null, "*.tmp"]]),
        _ => json!(vec![json!({"method": "exclude", "name": "x"}); 1001]),
    };
    BAD
}

fn spoilt_item(rng: &mut Rng, document: &mut Value) -> Refusal {
    let same_place = document["source_endpoint"].clone();
    let items = document["DATA"].as_array_mut().unwrap();
    let at = rng.below(items.len() as u64) as usize;
    let path = pick(rng, &["source_path", "destination_path"]);
    match rng.below(11) {
        0 => drop(items[at].as_object_mut().unwrap().remove(path)),
        1 => items[at][path] = pick(rng, &[json!(1), Value::Null, json!(["/a"]), json!({})]),
        2 => items[at][path] = pick(rng, &[json!("/.."), json!("/a/../../a"), json!("~/../../../..")]),
        3 => {
            items[at][path] = pick(
                rng,
                &[json!("/a\u{0}"), json!("/a\nDELE b"), json!("/a\r"), json!("/".to_owned() + &"x/".repeat(2100))],
            )
        }
        4 => items[at]["DATA_TYPE"] = pick(rng, &[json!("item"), json!("delete_item"), json!("transfer")]),
        5 => items[at]["recursive"] = pick(rng, &[json!("true"), json!(1), json!([])]),
        6 => {
            let item = json!({"source_path": "/a", "destination_path": "/to/c", "recursive": true, "external_checksum": "0".repeat(32)});
            items[at] = item;
        }
        7 => {
            let algorithm = pick(rng, &[json!("md6"), json!("md5 "), json!(""), json!(5)]);
            items[at] = json!({"source_path": "/a", "destination_path": "/to/c", "external_checksum": "0".repeat(32), "checksum_algorithm": algorithm});
        }
        8 => {
            let digest = pick(rng, &[json!("0".repeat(31)), json!("g".repeat(32)), json!(""), json!(0)]);
            items[at] = json!({"source_path": "/a", "destination_path": "/to/c", "external_checksum": digest});
        }
        9 => {
            // The same place by another name.
            let mut twin = items[at].clone();
            let place = twin["destination_path"].as_str().unwrap();
            twin["destination_path"] = json!(match rng.below(3) {
                0 => format!("{place}/"),
                1 => format!("/.{place}"),
                _ => format!("/x/..{place}"),
            });
            items.push(twin);
        }
        _ => {
            let inside = pick(rng, &["/own", "/own/", "/own/deeper/x", "/x/../own/y"]);
            items[at] = json!({"source_path": "/own", "destination_path": inside, "recursive": true});
            if rng.below(2) == 0 {
                items[at] = json!({"source_path": ["/own"], "destination_path": inside});
            }
            document["destination_endpoint"] = same_place;
        }
    }
    if rng.below(40) == 0 {
        document["DATA"][at] =
            pick(rng, &[json!("/a"), json!(["/a", "/to/c", null, null, null]), Value::Null, json!(1)]);
    }
    BAD
}

async fn tasks(bench: &Bench, site: &Site) -> u64 {
    bench.get("/v0.10/task_list?limit=1", &site.ada.token).await.good()["total"].as_u64().unwrap()
}

#[tokio::test]
async fn a_document_with_one_thing_wrong_is_refused_and_no_task_comes_of_it() {
    let bench = Bench::new().await;
    let site = site(&bench).await;
    for seed in 0..WRONG {
        let rng = &mut Rng::new(seed);
        let good = valid(rng, &site);
        let mut wrong = good.clone();
        let (status, code) = spoil(rng, &mut wrong, &site);
        let context = format!("seed {seed}: {wrong:#}");
        let planned = bench.post("/v2/whimbrel/plan/transfer", &site.ada.token, wrong.clone()).await;
        let got = bench.post("/v0.10/transfer", &site.ada.token, wrong).await;
        let refused = got.json();
        assert_eq!((planned.status, planned.code()), (got.status, got.code()), "{planned:?} {context}");
        assert_eq!(planned.json()["message"], refused["message"], "{context}");
        assert!(got.status == status || code.is_empty() && (400..500).contains(&got.status), "{got:?} {context}");
        assert!(code.is_empty() || refused["code"] == code, "{got:?} {context}");
        let told = ["code", "message", "request_id", "resource"].map(|name| refused[name].as_str().unwrap_or_default());
        assert!(told.iter().all(|text| !text.is_empty()) && told[3] == "/transfer", "{got:?} {context}");
        // One for each seed before.
        assert_eq!(tasks(&bench, &site).await, seed, "{context}");

        // Whatever was refused: it was not the rest of the document. Its id is not used up.
        let context = format!("seed {seed}: {good:#}");
        let got = bench.post("/v0.10/transfer", &site.ada.token, good).await;
        assert_eq!((got.status, got.code().as_str()), (202, "Accepted"), "{got:?} {context}");
        let task = got.json()["task_id"].as_str().unwrap().to_owned();
        bench.post(&format!("/v0.10/task/{task}/cancel"), &site.ada.token, json!({})).await.good();
    }
}

/// What documents are about: their ends, and pairs of paths.
type Paths = (Uuid, Uuid, BTreeSet<(u64, u64)>);

/// Few paths, so that documents often name the same ones.
fn paths(rng: &mut Rng, site: &Site) -> Paths {
    let ends = [site.mapped, site.guest];
    let destinations = (0..4).filter(|_| rng.below(2) == 0).collect::<Vec<_>>();
    let pairs: BTreeSet<_> = destinations.iter().map(|destination| (rng.below(2), *destination)).collect();
    let pairs = if pairs.is_empty() { BTreeSet::from([(0, 0)]) } else { pairs };
    (pick(rng, &ends), pick(rng, &ends), pairs)
}

/// A document about them: in any order, written in any way, with any options.
fn about(rng: &mut Rng, (source, destination, pairs): &Paths) -> Value {
    let mut items: Vec<_> = pairs
        .iter()
        .map(|(from, to)| {
            let slash = pick(rng, &["", "/"]);
            let mut item = json!({
                "source_path": format!("{}from/{from}{slash}", pick(rng, &["/", "//", "/./", "/x/../"])),
                "destination_path": format!("{}to/{to}{slash}", pick(rng, &["/", "//", "/./", "/x/../"])),
            });
            if rng.below(2) == 0 {
                item["recursive"] = json!(true);
            }
            item
        })
        .collect();
    for at in (1..items.len()).rev() {
        items.swap(at, rng.below(at as u64 + 1) as usize);
    }
    json!({"DATA_TYPE": "transfer", "submission_id": uuid(rng), "source_endpoint": source, "destination_endpoint": destination,
           "label": format!("{}", rng.below(9)), "sync_level": rng.below(4), "DATA": items})
}

#[tokio::test]
async fn a_document_conflicts_with_an_unfinished_task_of_the_same_paths_and_with_no_other() {
    let bench = Bench::new().await;
    let site = site(&bench).await;
    let rng = &mut Rng::new(5);
    let mut unfinished: BTreeMap<Paths, String> = BTreeMap::new();
    let mut known: Vec<(Value, String)> = Vec::new();
    let (mut conflicts, mut news) = (0, 0);
    for step in 0..STEPS {
        if rng.below(4) == 0 && !unfinished.is_empty() {
            let paths = pick(rng, &unfinished.keys().cloned().collect::<Vec<_>>());
            let task = unfinished.remove(&paths).unwrap();
            bench.post(&format!("/v0.10/task/{task}/cancel"), &site.ada.token, json!({})).await.good();
            continue;
        }
        if rng.below(10) == 0 && !known.is_empty() {
            // Whatever became of it: the same submission is the same task.
            let (document, task) = pick(rng, &known);
            let got = bench.post("/v0.10/transfer", &site.ada.token, document).await.good();
            assert_eq!((&got["code"], &got["task_id"]), (&json!("Duplicate"), &json!(task)), "step {step}");
            continue;
        }
        let paths = if rng.below(2) == 0 && !unfinished.is_empty() {
            let mut paths = pick(rng, &unfinished.keys().cloned().collect::<Vec<_>>());
            if rng.below(2) == 0 {
                // One item more, or one less, or another.
                let item = (rng.below(2), rng.below(4));
                if !paths.2.remove(&item) || paths.2.is_empty() {
                    paths.2.retain(|(_, to)| *to != item.1);
                    paths.2.insert(item);
                }
            }
            paths
        } else {
            paths(rng, &site)
        };
        let document = about(rng, &paths);
        let got = bench.post("/v0.10/transfer", &site.ada.token, document.clone()).await;
        let context = format!("step {step}: {document:#}");
        match unfinished.get(&paths) {
            Some(task) => {
                conflicts += 1;
                assert_eq!((got.status, got.code().as_str()), (409, "Conflict"), "{got:?} {context}");
                assert_eq!(got.json()["task_id"], json!(task), "{context}");
            }
            None => {
                news += 1;
                assert_eq!((got.status, got.code().as_str()), (202, "Accepted"), "{got:?} {context}");
                let task = got.json()["task_id"].as_str().unwrap().to_owned();
                known.push((document, task.clone()));
                unfinished.insert(paths, task);
            }
        }
    }
    assert!(conflicts > 100 && news > 100, "{conflicts} conflicts, {news} new tasks");
    // Somebody else may do the same.
    let guest = about(rng, &(site.mapped, site.mapped, BTreeSet::from([(0, 1)])));
    let mut same = guest.clone();
    same["submission_id"] = json!(uuid(rng));
    bench.post("/v0.10/transfer", &site.bob.token, guest).await.good();
    let got = bench.post("/v0.10/transfer", &site.bob.token, same).await;
    assert_eq!(got.code(), "Conflict");
}
