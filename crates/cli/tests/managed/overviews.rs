//! What those see who run a service or a place, and what they do with tasks of others.

use serde_json::json;

use super::endpoints::site;
use super::field::Field;
use super::logins::{anna, log_in_by_browser};
use super::seat::Seat;

#[test]
fn who_runs_a_place_sees_its_tasks_and_ends_them() {
    let field = Field::plain();
    let (anna, _) = anna(&field);
    log_in_by_browser(&anna);
    let seat = Seat::administrator(&field);
    let one = site(&seat, "one");
    seat.says(&["endpoint", "create", "Empty site"]);
    ["run/a", "run/b", "run/c"].iter().for_each(|name| one.write(name, "x".repeat(1 << 20)));

    // So slow that it runs until it is ended.
    seat.says(&["rule", "slow", "1"]);
    let task = anna.says(&["task", "submit", "-r", "one data:/run", "one data:/copy"]);
    let is_shown = |page: &str| page.contains("fastest tasks") && page.contains(&task);
    let page = seat.until(&["overview"], is_shown);
    for words in ["1 running", "there  one site", "none   Empty site", "anna@example.org  1 running"] {
        assert!(page.contains(words), "{words}\n{page}");
    }
    let overview = &seat.events(0, &["overview"])[0];
    assert_eq!(
        (&overview["event"], &overview["owners"][0]["username"]),
        (&json!("overview"), &json!("anna@example.org"))
    );
    assert_eq!(overview["replicas"], json!([]));
    let listed = seat.says(&["task", "list", "--at", "one data", "--status", "active"]);
    assert!(listed.starts_with(&task) && listed.lines().count() == 1, "{listed}");
    assert_eq!(seat.says(&["task", "list"]), "", "it is not the administrator's");

    seat.ends(0, &["task", "pause", &task, "--message", "The robot is being repaired"]);
    anna.until(&["task", "show", &task], |shown| shown.contains("The robot is being repaired"));
    seat.ends(0, &["task", "resume", &task]);
    anna.until(&["task", "show", &task], |shown| !shown.contains("The robot is being repaired"));
    seat.ends(0, &["task", "cancel", &task, "--message", "Please not today"]);
    anna.ends(130, &["task", "wait", &task]);
    seat.until(&["overview"], |page| page.contains("0 running") && page.contains("1 cancelled"));

    for refused in [
        &["overview"][..],
        &["task", "list", "--at", "one data"],
        &["task", "pause", &task, "--message", "mine"],
        &["rule", "slow", "5", "--at", "one data"],
    ] {
        let (_, error) = anna.ends_any(&[1, 6], refused);
        assert!(!error.is_empty(), "{refused:?}");
    }
}
