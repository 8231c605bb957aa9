//! Tasks that cannot end in time: a quota is used up, a deadline passes. What has its final name is whole, whatever happens.

use std::collections::BTreeMap;
use std::fs;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use whimbrel_engine::listing::Timestamp;
use whimbrel_service::clock;
use whimbrel_testkit::rng::Rng;

use super::tree::chance;
use super::{Bench, PATIENCE};

/// Files by name.
type Files = BTreeMap<String, Vec<u8>>;

/// What a task copies, and how far it may come.
struct Burden {
    seed: u64,
    files: Files,
    document: Value,
}

impl Burden {
    /// Files of at most `largest` bytes in a directory of their own at the source.
    fn plant(bench: &Bench, seed: u64, largest: u64) -> Self {
        let rng = &mut Rng::new(seed);
        let files: Files = (0..4 + rng.below(12))
            .map(|number| {
                let mut content = vec![0; rng.below(largest) as usize];
                rng.fill(&mut content);
                (format!("f{number}"), content)
            })
            .collect();
        files.iter().for_each(|(name, content)| bench.field.alpha().write(&format!("{seed}/{name}"), content));
        let document = json!({
            "DATA_TYPE": "transfer", "verify_checksum": chance(rng, 2),
            "source_endpoint": bench.field.alpha().collection, "destination_endpoint": bench.field.beta().collection,
            "DATA": [{"DATA_TYPE": "transfer_item", "source_path": format!("/{seed}/"), "destination_path": format!("/{seed}"), "recursive": true}],
        });
        Self { seed, files, document }
    }

    /// Adds a file of so many bytes.
    fn enlarge(&mut self, bench: &Bench, bytes: usize) {
        let content = vec![7; bytes];
        bench.field.alpha().write(&format!("{}/large", self.seed), &content);
        self.files.insert("large".into(), content);
    }

    fn bytes(&self) -> u64 {
        self.files.values().map(|content| content.len() as u64).sum()
    }

    /// What has its final name at the destination; all of it must be whole.
    #[track_caller]
    fn arrived(&self, bench: &Bench) -> Files {
        let Ok(entries) = fs::read_dir(bench.field.beta().path(&self.seed.to_string())) else { return Files::new() };
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let arrived: Files = names
            .filter(|name| self.files.contains_key(name))
            .map(|name| {
                let content = bench.field.beta().read(&format!("{}/{name}", self.seed));
                assert!(content == self.files[&name], "seed {}: {name} is there, and not whole", self.seed);
                (name, content)
            })
            .collect();
        arrived
    }

    /// What is on the disk is what the task says it has copied, and the rest is counted as `rest`.
    #[track_caller]
    fn assert_told(&self, bench: &Bench, shown: &Value, rest: &str) {
        let task = shown["task_id"].as_str().unwrap();
        let arrived = self.arrived(bench);
        let told: BTreeMap<_, _> = bench
            .listed(task, "successful_transfers")
            .iter()
            .map(|entry| {
                (
                    super::tree::name(entry["destination_path"].as_str().unwrap()).to_owned(),
                    entry["size"].as_u64().unwrap(),
                )
            })
            .collect();
        // A file may have got its name as the end came, before that was told.
        let context = format!("seed {}: {shown:#} {:#}", self.seed, bench.events(task));
        for (name, size) in &told {
            assert_eq!(arrived.get(name).map(|content| content.len() as u64), Some(*size), "{name}, {context}");
        }
        let number = |name: &str| shown[name].as_u64().unwrap();
        assert_eq!(number("files_transferred"), told.len() as u64, "{context}");
        assert_eq!(number("bytes_transferred"), told.values().sum::<u64>(), "{context}");
        let parts = ["pending", "retrying", "succeeded", "expired", "canceled", "failed", "skipped_errors"];
        let sum: u64 = parts.iter().map(|part| number(&format!("subtasks_{part}"))).sum();
        assert_eq!(number("subtasks_total"), sum, "{context}");
        assert!(number(rest) > 0, "{context}");
        let left = ["subtasks_pending", "subtasks_retrying"].map(number);
        assert!(shown["status"] == "ACTIVE" || left == [0, 0], "{context}");
    }

    /// Everything is there, and counted once.
    #[track_caller]
    fn assert_whole(&self, bench: &Bench, shown: &Value) {
        let context = format!("seed {}: {shown:#}", self.seed);
        assert_eq!((&shown["status"], &shown["files"]), (&json!("SUCCEEDED"), &json!(self.files.len())), "{context}");
        assert!(self.arrived(bench) == self.files, "{context}");
        let left: Vec<_> = fs::read_dir(bench.field.beta().path(&self.seed.to_string()))
            .unwrap()
            .map(|entry| entry.unwrap().file_name())
            .collect();
        assert_eq!(left.len(), self.files.len(), "{left:?} {context}");
    }
}

impl Bench {
    /// Starts the destination's server anew, with other limits.
    fn limit(&mut self, limits: &str) {
        self.field.limits = format!("[limits]\n{limits}\n");
        self.field.beta.as_mut().unwrap().server.kill();
        let root = self.field.beta().root.clone();
        self.field.beta.as_mut().unwrap().server = self.field.server("beta", &root, "used-up");
    }

    #[track_caller]
    fn accepted(&self, document: &Value) -> String {
        let answer = self.submit(document.clone());
        assert_eq!(answer["code"], "Accepted", "{answer:#}");
        answer["task_id"].as_str().unwrap().to_owned()
    }

    /// Waits until a task is as wanted.
    #[track_caller]
    fn until(&self, task: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        let end = Instant::now() + PATIENCE;
        loop {
            let shown = self.ask(&format!("/v0.10/task/{task}"), None);
            if wanted(&shown) {
                return shown;
            }
            assert!(Instant::now() < end, "{shown:#} {:#}", self.events(task));
            std::thread::park_timeout(Duration::from_millis(20));
        }
    }

    /// The codes of a task's events, newest first.
    fn codes(&self, task: &str) -> Vec<String> {
        let events = self.events(task);
        events["DATA"].as_array().unwrap().iter().map(|event| event["code"].as_str().unwrap().to_owned()).collect()
    }
}

/// So many seconds from now.
fn soon(seconds: i64) -> Value {
    json!(clock::iso(Timestamp::from_secs(clock::now().secs + seconds)))
}

#[test]
fn a_used_up_quota_ends_a_task_or_lets_it_wait_as_its_owner_wants() {
    let mut bench = Bench::new();
    for seed in 0..6 {
        let mut burden = Burden::plant(&bench, seed, 30_000);
        let quota = burden.bytes() * (1 + Rng::new(!seed).below(8)) / 10;
        bench.limit(&format!("quota = {quota}"));
        let is_strict = seed % 3 == 0;
        burden.document["fail_on_quota_errors"] = json!(is_strict);
        if seed % 3 == 1 {
            burden.document["deadline"] = soon(4);
        }
        let task = bench.accepted(&burden.document);
        if is_strict {
            let shown = bench.until(&task, |shown| shown["status"] != "ACTIVE");
            assert_eq!(
                (&shown["status"], &shown["fatal_error"]["code"]),
                (&json!("FAILED"), &json!("QUOTA_EXCEEDED")),
                "{shown:#}"
            );
            burden.assert_told(&bench, &shown, "subtasks_failed");
            let codes = bench.codes(&task);
            assert_eq!(codes[0], "QUOTA_EXCEEDED", "{codes:?}");
            assert!(shown["faults"].as_u64() > Some(0));
        } else {
            let is_waiting = |shown: &Value| shown["nice_status"] == "QUOTA_EXCEEDED";
            let shown = bench.until(&task, |shown| is_waiting(shown) || shown["status"] != "ACTIVE");
            assert!(is_waiting(&shown), "seed {seed}: {shown:#}");
            assert_eq!((&shown["is_ok"], &shown["is_paused"]), (&json!(false), &json!(false)));
            assert!(shown["faults"].as_u64() > Some(0));
            assert!(burden.arrived(&bench).values().map(|content| content.len() as u64).sum::<u64>() <= quota);
        }
        assert!(burden.arrived(&bench).len() < burden.files.len(), "seed {seed}: more than fits");
        match seed % 3 {
            1 => {
                let shown = bench.until(&task, |shown| shown["status"] != "ACTIVE");
                assert_eq!(
                    (&shown["status"], &shown["fatal_error"]["code"]),
                    (&json!("FAILED"), &json!("EXPIRED")),
                    "{shown:#}"
                );
                burden.assert_told(&bench, &shown, "subtasks_expired");
            }
            2 => {
                bench.limit("");
                let shown = bench.until(&task, |shown| shown["status"] != "ACTIVE");
                burden.assert_whole(&bench, &shown);
                assert_eq!(shown["bytes_transferred"], burden.bytes(), "each byte counts once: {shown:#}");
            }
            _ => {}
        }
    }
}

#[test]
fn what_is_proven_at_the_deadline_stays_and_nothing_half_written_has_a_name() {
    let mut bench = Bench::new();
    bench.limit("bandwidth = 400000");
    let expired = (100..104).map(|seed| {
        let mut burden = Burden::plant(&bench, seed, 400_000);
        // Nothing copies it in so little time.
        burden.enlarge(&bench, 8_000_000);
        let task = bench.accepted(&burden.document);
        // The same again conflicts as long as the task is not over.
        let refused = bench.submit(burden.document.clone());
        assert_eq!((&refused["code"], &refused["task_id"]), (&json!("Conflict"), &json!(task)), "{refused:#}");
        bench.ask(&format!("/v0.10/task/{task}/cancel"), Some(&json!({})));
        burden.document["deadline"] = soon(4 + (seed % 4) as i64);
        let task = bench.accepted(&burden.document);
        (burden, task)
    });
    let expired: Vec<_> = expired.collect();
    let mut some_begun = false;
    for (burden, task) in &expired {
        let shown = bench.until(task, |shown| shown["status"] != "ACTIVE");
        assert_eq!(
            (&shown["status"], &shown["fatal_error"]["code"]),
            (&json!("FAILED"), &json!("EXPIRED")),
            "{shown:#}"
        );
        // One that never had its turn has found nothing.
        let begun = shown["subtasks_total"] != 0;
        if begun {
            burden.assert_told(&bench, &shown, "subtasks_expired");
        }
        some_begun |= begun;
        assert_eq!(bench.codes(task)[0], "EXPIRED");
    }
    assert!(some_begun, "the deadlines passed before anything was done");
    // The same once more goes on with what is there, and leaves nothing behind.
    bench.limit("");
    for (burden, _) in &expired {
        let mut document = burden.document.clone();
        document["deadline"] = Value::Null;
        document["sync_level"] = json!(1);
        let task = bench.accepted(&document);
        let shown = bench.until(&task, |shown| shown["status"] != "ACTIVE");
        burden.assert_whole(&bench, &shown);
    }
}
