//! Kills at every step of a task: the service before each sync of its database, servers before each call that makes something durable.
//!
//! The kernel counts the calls, not a clock: `strace` kills at the n-th, and n grows until nobody dies any more.

use std::cell::RefCell;
use std::fs;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use whimbrel_testkit::peers::require;

use super::field::{Field, Site};

/// Files of the tree.
const FILES: usize = 12;
/// Longest time for one task, with all that happens to it.
const PATIENCE: Duration = Duration::from_secs(120);

/// Waits for something that may take a new start of the service.
#[track_caller]
fn until<T>(what: &str, mut attempt: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = attempt() {
            return found;
        }
        assert!(Instant::now() < deadline, "{what} did not come");
        std::thread::park_timeout(Duration::from_millis(20));
    }
}

/// A service that comes back each time it dies, and what is asked of it until it answers.
struct Stubborn {
    field: RefCell<Field>,
    token: String,
    deaths: RefCell<u32>,
}

impl Stubborn {
    fn ask(&self, path: &str, document: Option<&Value>) -> Value {
        until(path, || {
            if self.field.borrow_mut().service.has_ended() {
                *self.deaths.borrow_mut() += 1;
                self.field.borrow_mut().restart();
            }
            self.field.borrow().ask_with(&self.token, path, document).ok()
        })
    }

    /// Submits, as often as it takes, what the document says with one submission id.
    fn submit(&self, mut document: Value) -> String {
        document["submission_id"] = self.ask("/v0.10/submission_id", None)["value"].clone();
        document["DATA_TYPE"] = json!("transfer");
        let submitted = self.ask("/v0.10/transfer", Some(&document));
        submitted["task_id"].as_str().unwrap_or_else(|| panic!("{submitted}")).to_owned()
    }

    /// Waits for the end of a task; its document.
    fn end_of(&self, task: &str) -> Value {
        until("the end of the task", || {
            let shown = self.ask(&format!("/v0.10/task/{task}"), None);
            (shown["status"] != "ACTIVE").then_some(shown)
        })
    }
}

fn fill(site: &Site) {
    for number in 0..FILES {
        site.write(&format!("tree/d{}/f{number}", number % 3), vec![number as u8; 10_000 * number]);
    }
}

/// The copy is whole, nothing else lies there, and every file counts once.
#[track_caller]
fn assert_whole(shown: &Value, site: &Site, copy: &str, when: &str) {
    assert_eq!(
        (&shown["status"], &shown["files_transferred"]),
        (&json!("SUCCEEDED"), &json!(FILES)),
        "{when}: {shown:#}"
    );
    let bytes: usize = (0..FILES).map(|number| 10_000 * number).sum();
    assert_eq!(shown["bytes_transferred"], bytes, "{when}: {shown:#}");
    let mut found = 0;
    for directory in 0..3 {
        for entry in fs::read_dir(site.path(&format!("{copy}/d{directory}"))).unwrap() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            let number: usize = name[1..].parse().unwrap_or_else(|_| panic!("{when}: {name} was left behind"));
            let read = site.read(&format!("{copy}/d{directory}/{name}"));
            assert_eq!(read, vec![number as u8; 10_000 * number], "{when}: {name}");
            found += 1;
        }
    }
    assert_eq!(found, FILES, "{when}");
}

fn transfer(field: &Field, copy: &str) -> Value {
    json!({
        "source_endpoint": field.alpha().collection, "destination_endpoint": field.beta().collection, "verify_checksum": true,
        "label": copy, "DATA": [{
            "DATA_TYPE": "transfer_item", "source_path": "/tree/", "destination_path": format!("/{copy}/"), "recursive": true,
        }],
    })
}

/// Each commit of the database is a step: what was acknowledged stays, what was not is done again, and neither twice.
#[test]
fn a_service_killed_before_any_of_its_syncs_loses_and_repeats_nothing() {
    if require("strace").is_none() {
        return;
    }
    let Some(field) = Field::new() else { return };
    fill(field.alpha());
    let token = field.token();
    let stubborn = Stubborn { field: RefCell::new(field), token, deaths: RefCell::new(0) };
    let mut tasks = Vec::new();
    for sync in 1.. {
        let started = stubborn.field.borrow_mut().restart_doomed(sync);
        if !started {
            *stubborn.deaths.borrow_mut() += 1;
            stubborn.field.borrow_mut().restart();
        }
        let before = *stubborn.deaths.borrow();
        let copy = format!("copy{sync}");
        let document = transfer(&stubborn.field.borrow(), &copy);
        let task = stubborn.submit(document);
        let shown = stubborn.end_of(&task);
        assert_whole(&shown, stubborn.field.borrow().beta(), &copy, &format!("killed before sync {sync}"));
        tasks.push(task);
        if started && *stubborn.deaths.borrow() == before && !stubborn.field.borrow_mut().service.has_ended() {
            break;
        }
    }
    let listed = stubborn.ask("/v0.10/task_list?limit=100", None);
    let listed: Vec<_> =
        listed["DATA"].as_array().unwrap().iter().map(|task| task["task_id"].as_str().unwrap()).collect();
    tasks.reverse();
    assert_eq!(listed, tasks, "each submission is one task");
    println!("{} kills of the service", stubborn.deaths.borrow());
    assert!(*stubborn.deaths.borrow() >= 4, "submission, lease, report and end are syncs of their own");
}

/// One of the server's processes dies before a file is durable, before it has its name, and so on; then it is started again.
fn kill_servers(field: &mut Field, calls: impl Iterator<Item = u32>) {
    let token = field.token();
    for call in calls {
        let (root, copy) = (field.beta().root.clone(), format!("copy{call}"));
        field.beta.as_mut().unwrap().server.kill();
        let doomed = field.doomed_server("beta", &root, call);
        let mut is_doomed = doomed.is_some();
        let server = doomed.unwrap_or_else(|| field.server("beta", &root, "used-up"));
        field.beta.as_mut().unwrap().server = server;
        let mut document = transfer(field, &copy);
        document["DATA_TYPE"] = json!("transfer");
        document["submission_id"] = field.ask_with(&token, "/v0.10/submission_id", None).unwrap()["value"].clone();
        let submitted = field.ask_with(&token, "/v0.10/transfer", Some(&document)).unwrap();
        let task = submitted["task_id"].as_str().unwrap_or_else(|| panic!("{submitted}")).to_owned();
        let shown = until("the end of the task", || {
            // The tracer counts for each process anew: the next one would die as well.
            if is_doomed && field.doom_has_come() {
                is_doomed = false;
                field.beta.as_mut().unwrap().server.kill();
                field.beta.as_mut().unwrap().server = field.server("beta", &root, "used-up");
            }
            let shown = field.ask_with(&token, &format!("/v0.10/task/{task}"), None).unwrap();
            (shown["status"] != "ACTIVE").then_some(shown)
        });
        assert_whole(&shown, field.beta(), &copy, &format!("a server killed before call {call}"));
        if is_doomed && !field.doom_has_come() {
            println!("no process makes {call} calls");
            return;
        }
    }
}

#[test]
fn a_server_killed_before_a_file_is_durable_or_has_its_name_loses_nothing() {
    if require("strace").is_none() {
        return;
    }
    let Some(mut field) = Field::new() else { return };
    fill(field.alpha());
    kill_servers(&mut field, [1, 2, 3, 6].into_iter());
}

#[test]
#[ignore = "nightly"]
fn a_server_killed_before_any_call_loses_nothing() {
    if require("strace").is_none() {
        return;
    }
    let Some(mut field) = Field::new() else { return };
    fill(field.alpha());
    kill_servers(&mut field, 1..200);
}
