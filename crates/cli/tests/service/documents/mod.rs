//! Random transfer documents, posted to a live service: what they do to disks and what is told of them, against a model that is simple
//! enough to be right.

mod draw;
mod limits;
mod model;
mod tree;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};
use std::{env, fs, thread};

use serde_json::{Value, json};

use whimbrel_engine::listing::Timestamp;
use whimbrel_service::clock;

use super::field::Field;
use draw::{Case, digest};
use model::{Model, Pair};
use tree::{Node, Tree, harvest, open_up, parent, plant};

/// Longest time for all documents.
const PATIENCE: Duration = Duration::from_secs(240);
/// Says which seeds are tried instead: `17` or `1000..2000`.
const SEEDS: &str = "WHIMBREL_DOCUMENT_SEEDS";

/// A service with two sites, and its administrator.
struct Bench {
    field: Field,
    token: String,
    /// Far away, as the command line writes it.
    deadline: String,
}

/// A document that was submitted.
struct Submitted {
    seed: u64,
    case: Case,
    document: Value,
    task: String,
}

impl Bench {
    fn new() -> Self {
        let mut field = Field::plain();
        field.alpha = Some(field.site("alpha"));
        field.beta = Some(field.site("beta"));
        let token = field.token();
        let deadline = Timestamp::from_secs(clock::now().secs + 30 * 24 * 3600);
        let deadline = clock::iso(deadline)[..19].replace('T', " ");
        Self { field, token, deadline }
    }

    #[track_caller]
    fn ask(&self, path: &str, document: Option<&Value>) -> Value {
        self.field.ask_with(&self.token, path, document).unwrap_or_else(|error| panic!("{path}: {error}"))
    }

    fn plant(&self, seed: u64) -> Submitted {
        let case = Case::of(seed);
        let directory = format!("case {seed}");
        let sites = [self.field.alpha(), self.field.beta()];
        plant(&sites[0].path(&directory), &case.source, None);
        plant(&sites[1].path(&directory), &case.destination, account());
        let [from, to] = sites.map(|site| site.collection.as_str());
        let place = format!("/{directory}");
        let document = case.document(seed, (from, &place), (to, &place), &self.deadline);
        Submitted { seed, case, document, task: String::new() }
    }

    fn submit(&self, mut document: Value) -> Value {
        document["submission_id"] = self.ask("/v0.10/submission_id", None)["value"].clone();
        self.ask("/v0.10/transfer", Some(&document))
    }

    fn end_of(&self, task: &str, until: Instant) -> Value {
        loop {
            let shown = self.ask(&format!("/v0.10/task/{task}"), None);
            if shown["status"] != "ACTIVE" {
                return shown;
            }
            assert!(Instant::now() < until, "it does not end: {shown:#}, {:#}", self.events(task));
            thread::park_timeout(Duration::from_millis(20));
        }
    }

    fn events(&self, task: &str) -> Value {
        self.ask(&format!("/v0.10/task/{task}/event_list?limit=1000"), None)
    }

    /// All entries of a list with markers.
    fn listed(&self, task: &str, list: &str) -> Vec<Value> {
        let (mut all, mut marker) = (Vec::new(), String::new());
        loop {
            let page = self.ask(&format!("/v0.10/task/{task}/{list}{marker}"), None);
            all.extend(page["DATA"].as_array().unwrap_or_else(|| panic!("{page}")).iter().cloned());
            match &page["next_marker"] {
                Value::Null => return all,
                next => marker = format!("?marker={}", next.as_str().unwrap()),
            }
        }
    }

    /// Compares everything that can be seen of a task with its model.
    fn check(&self, submitted: &Submitted, until: Instant) {
        let Submitted { seed, case, document, task } = submitted;
        let shown = self.end_of(task, until);
        let model = Model::of(&case.options, &case.items, &case.source, &case.destination);
        let directory = format!("case {seed}");
        open_up(&self.field.alpha().path(&directory), &case.source);
        let mut found = Tree::new();
        harvest(&self.field.beta().path(&directory), "", &mut found);
        assert_echo(document, &shown);
        if model.is_over {
            return assert_over(case, &model, &shown, &found);
        }
        assert_end(&model, &shown);
        assert_trees(&found, &model.destination);
        assert_counters(case, &model, &shown);
        self.assert_listings(task, case, &model, &format!("/{directory}"));
        assert_events(&model, &shown, &self.events(task));
    }

    fn assert_listings(&self, task: &str, case: &Case, model: &Model, directory: &str) {
        let inside = |path: &Value| {
            path.as_str()
                .and_then(|path| path.strip_prefix(directory)?.strip_prefix('/'))
                .unwrap_or_else(|| panic!("{path}"))
                .to_owned()
        };
        let pair = |entry: &Value| (inside(&entry["source_path"]), inside(&entry["destination_path"]));
        let copied = self.listed(task, "successful_transfers");
        let sizes: BTreeMap<Pair, u64> =
            copied.iter().map(|entry| (pair(entry), entry["size"].as_u64().unwrap())).collect();
        let expected = model.copied.iter().map(|(pair, content)| (pair.clone(), content.len() as u64)).collect();
        assert_eq!((sizes, copied.len()), (expected, model.copied.len()), "successful_transfers");
        for entry in &copied {
            let (pair, content) = (pair(entry), &model.copied[&pair(entry)]);
            // Of other files only parts have digests.
            let must = case.options.verify
                && case.items.iter().any(|item| item.checksum.is_some() && item.destination == pair.1);
            match (entry["checksum_algorithm"].as_str(), entry["checksum"].as_str()) {
                (Some(algorithm), Some(checksum)) => assert_eq!(checksum, digest(algorithm, content), "{entry:#}"),
                _ => assert!(!must, "{entry:#}"),
            }
        }
        let left_out: BTreeMap<_, _> = self
            .listed(task, "skipped_errors")
            .iter()
            .map(|entry| {
                let code = entry["error_code"].as_str().unwrap().to_owned();
                (pair(entry), (code, entry["is_directory"].as_bool().unwrap()))
            })
            .collect();
        let expected = model
            .left_out
            .iter()
            .map(|(pair, (code, is_directory))| (pair.clone(), ((*code).to_owned(), *is_directory)));
        assert_eq!(left_out, expected.collect(), "skipped_errors");
    }
}

/// What the task says that was asked for is what was asked for.
#[track_caller]
fn assert_echo(document: &Value, shown: &Value) {
    let default = |name: &str| match name {
        "sync_level" | "label" | "filter_rules" => Value::Null,
        "recursive_symlinks" => json!("ignore"),
        _ => json!(false),
    };
    for name in [
        "sync_level",
        "verify_checksum",
        "preserve_timestamp",
        "encrypt_data",
        "skip_source_errors",
        "fail_on_quota_errors",
        "delete_destination_extra",
        "recursive_symlinks",
        "label",
    ] {
        let asked = document.get(name).cloned().unwrap_or_else(|| default(name));
        assert_eq!(shown[name], asked, "{name}");
    }
    let rules = |value: &Value| -> Vec<_> {
        let rules = value.as_array().cloned().unwrap_or_default();
        rules.iter().map(|rule| ["method", "type", "name"].map(|field| rule[field].clone())).collect()
    };
    assert_eq!(rules(&shown["filter_rules"]), rules(&document["filter_rules"]));
    assert_eq!(shown["source_endpoint_id"], document["source_endpoint"]);
    assert_eq!(shown["destination_endpoint_id"], document["destination_endpoint"]);
    if let Some(asked) = document["deadline"].as_str() {
        assert_eq!(shown["deadline"], format!("{}+00:00", asked.replace(' ', "T")));
    }
    assert!(shown["completion_time"].is_string() && shown["is_ok"].is_null() && shown["is_paused"] == false);
}

#[track_caller]
fn assert_end(model: &Model, shown: &Value) {
    match model.failed.is_empty() {
        true => assert_eq!((&shown["status"], &shown["fatal_error"]), (&json!("SUCCEEDED"), &Value::Null)),
        false => {
            assert_eq!(shown["status"], "FAILED");
            let code = shown["fatal_error"]["code"].as_str().unwrap();
            assert!(model.failed.contains(&code), "{code} is none of {:?}", model.failed);
        }
    }
}

#[track_caller]
fn assert_trees(found: &Tree, expected: &Tree) {
    let paths: BTreeSet<_> = found.keys().chain(expected.keys()).collect();
    let of = |path: &String| (path.clone(), (found.get(path).cloned(), expected.get(path).cloned()));
    let differing: BTreeMap<_, (Option<Node>, Option<Node>)> =
        paths.into_iter().filter(|path| found.get(*path) != expected.get(*path)).map(of).collect();
    assert!(differing.is_empty(), "found and expected: {differing:#?}");
}

#[track_caller]
fn assert_counters(case: &Case, model: &Model, shown: &Value) {
    let bytes: usize = model.copied.values().map(Vec::len).sum();
    let total = model.succeeded + model.left_out.len() + model.failed.len();
    for (name, expected) in [
        ("files", model.files),
        ("directories", model.directories),
        ("symlinks", model.symlinks),
        ("files_transferred", model.copied.len()),
        ("files_skipped", model.up_to_date),
        ("bytes_transferred", bytes),
        ("subtasks_total", total),
        ("subtasks_succeeded", model.succeeded),
        ("subtasks_skipped_errors", model.left_out.len()),
        ("subtasks_failed", model.failed.len()),
        ("subtasks_pending", 0),
        ("subtasks_retrying", 0),
        ("subtasks_canceled", 0),
        ("subtasks_expired", 0),
        ("faults", usize::from(!model.failed.is_empty())),
    ] {
        assert_eq!(shown[name], expected, "{name}");
    }
    if case.options.verify {
        assert_eq!(shown["bytes_checksummed"], bytes, "bytes_checksummed");
    }
}

#[track_caller]
fn assert_events(model: &Model, shown: &Value, events: &Value) {
    let listed = events["DATA"].as_array().unwrap();
    assert_eq!((&events["total"], &events["length"]), (&json!(listed.len()), &json!(listed.len())));
    let codes: Vec<&str> = listed.iter().map(|event| event["code"].as_str().unwrap()).collect();
    let count = |code: &str| codes.iter().filter(|one| **one == code).count();
    let end = shown["fatal_error"]["code"].as_str().unwrap_or("SUCCEEDED");
    assert_eq!(codes[0], end, "the newest comes first: {codes:?}");
    assert!(model.copied.is_empty() || count("STARTED") > 0, "{codes:?}");
    assert_eq!(count("SKIPPED_ERRORS"), usize::from(!model.left_out.is_empty()), "{codes:?}");
    let kept: BTreeSet<_> = listed
        .iter()
        .filter(|event| event["code"] == "DELETE_DESTINATION_EXTRA_SKIPPED")
        .map(|event| event["details"].to_string())
        .collect();
    assert_eq!(kept.len(), model.kept, "{events:#}");
    let faults = listed.iter().filter(|event| event["is_error"] == true).count();
    assert_eq!(shown["faults"], faults, "{events:#}");
}

/// A file was not what the user says: everything else is either done or as it was, and that file is as it was.
#[track_caller]
fn assert_over(case: &Case, model: &Model, shown: &Value, found: &Tree) {
    assert_eq!(
        (&shown["status"], &shown["fatal_error"]["code"]),
        (&json!("FAILED"), &json!("EXTERNAL_CHECKSUM_MISMATCH"))
    );
    let wrong = case.items.iter().filter(|item| item.checksum.as_ref().is_some_and(|(_, _, right)| !right));
    for item in wrong {
        assert_eq!(found.get(&item.destination), case.destination.get(&item.destination), "{item:?}");
    }
    for path in found.keys().chain(case.destination.keys()) {
        let is_made = found.get(path) == Some(&tree::DIRECTORY)
            && model.destination.keys().any(|copy| parent(copy).starts_with(path.as_str()));
        let is = found.get(path);
        assert!(is_made || is == case.destination.get(path) || is == model.destination.get(path), "{path}: {is:?}");
    }
    assert!(shown["subtasks_failed"].as_u64() >= Some(1), "{shown:#}");
    let parts = ["pending", "retrying", "succeeded", "expired", "canceled", "failed", "skipped_errors"];
    let sum: u64 = parts.iter().map(|part| shown[format!("subtasks_{part}")].as_u64().unwrap()).sum();
    assert_eq!(shown["subtasks_total"], sum, "{shown:#}");
}

/// Whose account the servers use, where they do not use that of the test.
fn account() -> Option<u32> {
    let accounts = fs::read_to_string("/etc/passwd").unwrap();
    let nobody = accounts.lines().find_map(|line| line.strip_prefix("nobody:"))?.split(':').nth(1)?.parse().ok()?;
    rustix::process::geteuid().is_root().then_some(nobody)
}

fn seeds(usual: Range<u64>) -> Range<u64> {
    let Ok(wanted) = env::var(SEEDS) else { return usual };
    let number = |text: &str| text.parse().unwrap_or_else(|_| panic!("{SEEDS} is a number, or two as in 10..20"));
    wanted.split_once("..").map_or_else(|| number(&wanted)..number(&wanted) + 1, |(from, to)| number(from)..number(to))
}

fn try_documents(seeds: Range<u64>, patience: Duration) {
    let bench = Bench::new();
    let until = Instant::now() + patience;
    let mut failed = Vec::new();
    // A few at a time, so that tasks wait for each other and a broken one is told of soon.
    for seeds in seeds.collect::<Vec<_>>().chunks(30) {
        let submit = |seed: &u64| {
            let mut planted = bench.plant(*seed);
            let answer = bench.submit(planted.document.clone());
            assert_eq!(answer["code"], "Accepted", "{answer:#}: seed {seed}, {:#}", planted.document);
            planted.task = answer["task_id"].as_str().unwrap().to_owned();
            planted
        };
        for submitted in seeds.iter().map(submit).collect::<Vec<_>>() {
            if catch_unwind(AssertUnwindSafe(|| bench.check(&submitted, until))).is_err() {
                let Submitted { seed, case, document, task } = &submitted;
                let shown = bench.ask(&format!("/v0.10/task/{task}"), None);
                println!(
                    "seed {seed} failed ({SEEDS}={seed} tries it alone): {document:#}\n{case:#?}\n{shown:#}\n{:#}",
                    bench.events(task)
                );
                failed.push(*seed);
            }
        }
    }
    assert!(failed.is_empty(), "documents of these seeds did something else than the model: {failed:?}");
}

#[test]
fn random_documents_do_what_their_options_say() {
    try_documents(seeds(0..60), PATIENCE);
}

#[test]
#[ignore = "nightly"]
fn many_random_documents_do_what_their_options_say() {
    try_documents(seeds(1000..2500), 10 * PATIENCE);
}
