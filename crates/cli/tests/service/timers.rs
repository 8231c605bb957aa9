//! Timers of the public client, with their effect on the servers' disks.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};
use whimbrel_engine::listing::Timestamp;
use whimbrel_service::clock;

use super::field::Field;

/// Time for something that a timer does by itself.
const PATIENCE: Duration = Duration::from_secs(120);

/// Asks until the answer is as wanted.
#[track_caller]
fn until(what: &str, mut ask: impl FnMut() -> Value, wanted: impl Fn(&Value) -> bool) -> Value {
    let end = Instant::now() + PATIENCE;
    loop {
        let answer = ask();
        if wanted(&answer) {
            return answer;
        }
        assert!(Instant::now() < end, "{what} did not come: {answer:#}");
    }
}

/// A time so many seconds from now, as the client takes it.
fn in_seconds(seconds: i64) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs().cast_signed();
    clock::iso(Timestamp::from_secs(now + seconds))
}

/// The task of a timer's newest run.
fn newest(shown: &Value) -> &Value {
    &shown["results"]["data"][0]["data"]
}

#[test]
fn a_timer_copies_again_and_again_and_outlives_a_killed_service() {
    let Some(mut field) = Field::new() else { return };
    field.alpha().write("box/a", "1");
    // It began 45 s ago: it runs now, and again in 15 s.
    let (start, from, to) = (in_seconds(-45), field.alpha().at("/box"), field.beta().at("/box"));
    let rest = ["--start", &start, "--interval", "60s", "--stop-after-runs", "2", "--sync-level", "mtime"];
    let made =
        field.json(&[&["timer", "create", "transfer", "-r", "--name", "nightly", &from, &to], &rest[..]].concat());
    let timer = made["job_id"].as_str().unwrap_or_else(|| panic!("{made:#}")).to_owned();
    assert_eq!((&made["name"], &made["schedule"]["interval_seconds"]), (&json!("nightly"), &json!(60)));
    let show = |field: &Field| field.json(&["timer", "show", &timer]);
    let done = |runs: u64| move |shown: &Value| shown["n_runs"] == runs && newest(shown)["status"] == "SUCCEEDED";
    let shown = until("the first run", || show(&field), done(1));
    assert_eq!(field.beta().read("box/a"), b"1");
    assert_eq!(newest(&shown)["details"]["label"], "nightly, run 1", "{shown:#}");

    field.restart();
    field.alpha().write("box/b", "2");
    let shown = until("the second run", || show(&field), done(2));
    assert_eq!(field.beta().read("box/b"), b"2");
    assert_eq!((&shown["status"], &shown["n_errors"]), (&json!("ended"), &json!(0)));
    assert!(field.globus(&["timer", "show", &timer]).contains("This timer is no longer active"));
    let listed = field.globus(&["timer", "list"]);
    assert!(listed.contains("nightly") && listed.contains(&timer), "{listed}");
    assert_eq!(field.json(&["task", "list"])["DATA"].as_array().unwrap().len(), 2);
}

#[test]
fn timers_are_paused_resumed_and_deleted() {
    let Some(field) = Field::new() else { return };
    let (from, to) = (field.alpha().at("/one"), field.beta().at("/one"));
    let create = ["timer", "create", "transfer", "--name", "later", "--start", "2099-01-01", "--stop-after-runs", "1"];
    let made = field.globus(&[&create[..], &[&from, &to]].concat());
    assert!(made.contains("once at 2099-01-01") && made.contains("later"), "{made}");
    let jobs = field.json(&["timer", "list"]);
    let timer = jobs[0]["job_id"].as_str().or(jobs["jobs"][0]["job_id"].as_str()).unwrap().to_owned();
    assert!(field.globus(&["timer", "show", &timer]).contains("Awaiting the next run"));
    field.globus(&["timer", "pause", &timer]);
    assert!(field.globus(&["timer", "show", &timer]).contains("Paused, awaiting user action"));
    assert_eq!(field.json(&["timer", "show", &timer])["inactive_reason"]["cause"], "user");
    field.globus(&["timer", "resume", &timer]);
    assert!(field.globus(&["timer", "show", &timer]).contains("Awaiting the next run"));
    assert!(field.globus(&["timer", "delete", &timer]).contains("later"));
    let (_, error) = field.globus_ends(1, &["timer", "show", &timer]);
    assert!(error.contains("You have no timer"), "{error}");

    let nowhere = "00000000-0000-4000-8000-000000000000:/x";
    field.globus_ends(1, &[&create[..], &[&from, nowhere]].concat());
    let often = ["timer", "create", "transfer", "--interval", "5s", &from, &to];
    let (_, error) = field.globus_ends(1, &often);
    assert!(error.contains("from 60 to"), "{error}");
}

/// A source that is gone fails the run's task; the timer goes on, and shows what became of it.
#[test]
fn a_run_that_fails_is_shown_with_its_timer() {
    let Some(field) = Field::new() else { return };
    let (from, to) = (field.alpha().at("/missing"), field.beta().at("/missing"));
    let made = field.json(&["timer", "create", "transfer", "--interval", "1d", "--label", "mine", &from, &to]);
    let timer = made["job_id"].as_str().unwrap().to_owned();
    let show = || field.json(&["timer", "show", &timer]);
    let shown = until("the failure", show, |shown| newest(shown)["status"] == "FAILED");
    assert_eq!(newest(&shown)["details"]["fatal_error"]["code"], "FILE_NOT_FOUND", "{shown:#}");
    assert_eq!((&shown["status"], &newest(&shown)["details"]["label"]), (&json!("active"), &json!("mine")));
}
