//! The way from nothing to a shared directory, as an administrator and their users go it.

use serde_json::json;

use super::field::{Field, Site};
use super::seat::Seat;

/// An endpoint with a collection and a server, all made with our commands.
#[track_caller]
pub fn site(seat: &Seat<'_>, name: &str) -> Site {
    use std::os::unix::fs::PermissionsExt as _;
    let endpoint = seat.says(&["endpoint", "create", &format!("{name} site")]);
    let collection = seat.says(&["endpoint", "collection", &format!("{name} site"), &format!("{name} data"), "/"]);
    let token = seat.says(&["endpoint", "join-token", &endpoint, "--for", "1h"]);
    let root = seat.field.place(name);
    std::fs::create_dir(&root).unwrap();
    std::fs::set_permissions(&root, std::fs::Permissions::from_mode(0o777)).unwrap();
    let server = seat.field.server(name, &root, &token);
    Site { endpoint, collection, root, server }
}

#[test]
fn an_endpoint_is_made_looked_at_changed_and_taken_away() {
    let field = Field::plain();
    let seat = Seat::administrator(&field);
    let cluster = site(&seat, "cluster");
    assert!(seat.says(&["endpoint", "servers", "cluster site"]).starts_with("there  whimbrel://127.0.0.1:"));

    let listed = seat.says(&["endpoint", "list", "cluster"]);
    assert_eq!(listed.lines().count(), 2, "{listed}");
    assert!(listed.contains("cluster data") && listed.contains(&cluster.collection), "{listed}");
    assert_eq!(seat.says(&["endpoint", "list", "nothing", "like", "that"]), "");
    assert_eq!(seat.events(0, &["endpoint", "list", "--mine"]).len(), 2);
    let (_, error) = seat.ends(1, &["endpoint", "show", "no such"]);
    assert!(error.contains("whimbrel endpoint list"), "{error}");
    let shown = seat.says(&["endpoint", "show", "cluster data"]);
    assert!(shown.contains(&cluster.collection) && shown.contains("cluster site"), "{shown}");

    let change = ["endpoint", "update", "cluster data", "--description", "of run 7", "--force-encryption", "true"];
    seat.ends(0, &change);
    let shown = seat.says(&["endpoint", "show", &cluster.collection]);
    assert!(shown.contains("of run 7") && shown.contains("always encrypted"), "{shown}");
    seat.ends(2, &["endpoint", "update", "cluster data"]);
    seat.ends(2, &["endpoint", "join-token", "cluster site", "--for", "99d"]);
    seat.ends(1, &["endpoint", "collection", "cluster data", "inside"]);

    let (_, error) = seat.ends(1, &["endpoint", "delete", "cluster site"]);
    assert!(error.contains("Collections depend on it"), "{error}");
    seat.ends(0, &["endpoint", "delete", "cluster data"]);
    seat.ends(0, &["endpoint", "delete", "cluster site"]);
    assert_eq!(seat.says(&["endpoint", "list"]), "");
}

#[test]
fn names_that_several_have_are_not_guessed() {
    let field = Field::plain();
    let seat = Seat::administrator(&field);
    let first = seat.says(&["endpoint", "create", "Twice"]);
    let second = seat.says(&["endpoint", "create", "Twice"]);
    let (_, error) = seat.ends(2, &["endpoint", "show", "Twice"]);
    assert!(error.contains(&first) && error.contains(&second), "{error}");
    seat.says(&["endpoint", "show", &first]);
}

#[test]
fn files_of_a_collection_are_looked_at_and_changed() {
    let field = Field::plain();
    let seat = Seat::administrator(&field);
    let cluster = site(&seat, "cluster");
    cluster.write("run 7/a.txt", "12345");
    cluster.write("run 7/.hidden", "");
    assert_eq!(seat.says(&["endpoint", "ls", "cluster data:/run 7"]), "a.txt");
    assert_eq!(seat.says(&["endpoint", "ls", "-a", "cluster data:/run 7"]), ".hidden\na.txt");
    assert!(seat.says(&["endpoint", "ls", "-l", "cluster data:"]).ends_with("run 7/"));
    assert!(seat.says(&["endpoint", "stat", "cluster data:/run 7/a.txt"]).contains("size      5"));
    let (_, error) = seat.ends(1, &["endpoint", "ls", "cluster data:/nowhere"]);
    assert!(error.contains("cure"), "{error}");
    seat.ends(0, &["endpoint", "mkdir", "cluster data:/new"]);
    assert!(cluster.path("new").is_dir());
    seat.ends(5, &["endpoint", "mkdir", "cluster data:/new"]);
    seat.ends(0, &["endpoint", "mv", "cluster data:/run 7/a.txt", "/new/b.txt"]);
    assert_eq!(cluster.read("new/b.txt"), b"12345");
    seat.ends(2, &["endpoint", "ls", "/a/local/path"]);
    let entries = seat.events(0, &["endpoint", "ls", "cluster data:/new"]);
    assert_eq!((&entries[0]["event"], &entries[0]["name"]), (&json!("entry"), &json!("b.txt")));
}

#[test]
fn a_directory_is_shared_and_taken_back() {
    let field = Field::plain();
    let seat = Seat::administrator(&field);
    let cluster = site(&seat, "cluster");
    cluster.write("run7/a.txt", "12345");
    let file = field.place("colleague.json");
    let make = ["user", "client", "a colleague's program", "--file", file.to_str().unwrap()];
    assert_eq!(seat.says(&make), "");
    // It is told once: neither is a file that is there overwritten, nor a client made whose secret goes nowhere.
    let (_, error) = seat.ends(1, &make);
    assert!(error.contains("exists"), "{error}");
    let guest = Seat::new(&field, "guest");
    let authorities = field.place("service/certificate.pem").display().to_string();
    guest.ends(0, &["login", &field.url, "--client", &file.display().to_string(), "--authorities", &authorities]);
    let who = guest.events(0, &["whoami"])[0]["preferred_username"].as_str().unwrap().to_owned();

    seat.says(&["endpoint", "share", "cluster data:/run7", "Run 7"]);
    guest.ends(1, &["endpoint", "ls", "Run 7:/"]);
    let rule = seat.says(&["endpoint", "permit", "Run 7:/", "--user", &who]);
    assert_eq!(guest.says(&["endpoint", "ls", "Run 7:/"]), "a.txt");
    guest.ends(6, &["endpoint", "mkdir", "Run 7:/new"]);
    let permissions = seat.says(&["endpoint", "permissions", "Run 7"]);
    assert!(permissions.contains(&rule) && permissions.contains("read") && permissions.contains(&who), "{permissions}");
    assert!(guest.says(&["endpoint", "list", "--shared"]).contains("Run 7"));
    guest.ends(6, &["endpoint", "create", "not mine to make"]);
    seat.ends(0, &["endpoint", "forbid", "Run 7", &rule]);
    guest.ends(1, &["endpoint", "ls", "Run 7:/"]);
    seat.ends(1, &["endpoint", "permit", "Run 7:/", "--user", "nobody@elsewhere.example.org"]);
    seat.ends(2, &["endpoint", "permit", "Run 7:/"]);
}

#[test]
fn who_runs_a_place_slows_its_tasks_down_lets_them_wait_and_lets_them_go() {
    let field = Field::plain();
    let seat = Seat::administrator(&field);
    let (one, two) = (site(&seat, "one"), site(&seat, "two"));
    assert_eq!(seat.says(&["rule", "list"]), "");
    let names = ["run/a", "run/b", "run/c"];
    names.iter().for_each(|name| one.write(name, "x".repeat(1 << 20)));

    // Slow enough to be seen while it runs, however long looking takes.
    let slow = ["rule", "slow", "1", "--at", "two data", "--message", "Somebody else's beam time"];
    let slow = seat.says(&slow);
    let task = seat.says(&["task", "submit", "-r", "one data:/run", "two data:/run"]);
    let shown = seat.until(&["task", "show", &task], |shown| shown.contains("slowed"));
    assert!(shown.contains("by rule: Somebody else's beam time"), "{shown}");
    let held = &seat.events(0, &["task", "show", &task])[0]["rate"]["held_by"][0];
    assert_eq!((&held["rate_rule_id"], &held["tasks"]), (&json!(slow), &json!(1)));

    let hours = ["--from", "08:00", "--to", "18:00", "--days", "mon-fri", "--utc-offset", "-08:00"];
    let everywhere = seat.says(&[&["rule", "slow", "1.5GB"][..], &hours].concat());
    let pause =
        ["rule", "pause", "--at", "two site", "--only", "write", "--only", "delete", "The robot is being repaired"];
    let pause = seat.says(&pause);
    let listed = seat.says(&["rule", "list"]);
    for words in [
        [&slow, "slow", "two data", "1 B/s", "Somebody else's beam time"],
        [&everywhere, "slow", "everywhere", "1.50 GB/s", "mon,tue,wed,thu,fri 08:00-18:00 UTC-08:00"],
        [&pause, "pause", "two site", "write, delete", "The robot is being repaired"],
    ] {
        let line = listed.lines().find(|line| line.starts_with(words[0])).unwrap_or_default();
        assert!(words.iter().all(|word| line.contains(*word)), "{words:?}: {listed}");
    }
    let events = seat.events(0, &["rule", "list"]);
    assert_eq!(events.iter().filter(|event| event["kind"] == "slow").count(), 2, "{events:?}");
    seat.until(&["task", "show", &task], |shown| shown.contains("The robot is being repaired"));

    seat.ends(0, &["rule", "lift", &pause, &slow, &everywhere]);
    assert_eq!(seat.says(&["rule", "list"]), "");
    seat.ends(0, &["task", "wait", &task]);
    assert!(names.iter().all(|name| two.read(name).len() == 1 << 20));

    seat.ends(1, &["rule", "lift", &pause]);
    seat.ends(2, &["rule", "slow", "1G", "--from", "08:00"]);
    seat.ends(2, &["rule", "slow", "1G", "--from", "08:00", "--to", "18:00", "--days", "never"]);
    seat.ends(2, &["rule", "slow", "1G", "--from", "8", "--to", "18:00"]);
    seat.ends(2, &["rule", "slow", "0", "--at", "two data"]);
    seat.ends(2, &["rule", "pause", "no place named"]);
}
