//! Commands of the public client, each with its effect on the servers' disks or as a second look shows it.

use std::fs;

use serde_json::{Value, json};

use super::field::Field;

#[test]
fn who_one_is_and_what_there_is() {
    let Some(field) = Field::new() else { return };
    assert!(field.globus(&["whoami"]).contains("@clients."));
    let me = field.json(&["whoami"]);
    let id = me["sub"].as_str().unwrap_or_else(|| panic!("{me}")).to_owned();
    assert_eq!(field.json(&["get-identities", &id])["identities"][0]["id"], id.as_str());
    assert!(field.globus(&["get-identities", "nobody@example.org"]).contains("NO_SUCH_IDENTITY"));

    let found = field.json(&["endpoint", "search", "alpha"]);
    let names: Vec<_> = found["DATA"].as_array().unwrap().iter().map(|one| one["display_name"].clone()).collect();
    assert!(names.contains(&json!("alpha data")) && !names.contains(&json!("beta data")), "{names:?}");
    assert!(field.globus(&["endpoint", "search", "nothing-like-that"]).lines().count() <= 2);
    assert!(field.globus(&["endpoint", "show", &field.alpha().endpoint]).contains("alpha endpoint"));
    let (_, error) = field.globus_ends(3, &["endpoint", "show", &field.alpha().collection]);
    assert!(error.contains("collection"), "{error}");
    field.globus_ends(1, &["endpoint", "show", "00000000-0000-4000-8000-000000000000"]);
}

#[test]
fn files_are_listed_and_changed_one_by_one() {
    let Some(field) = Field::new() else { return };
    let alpha = field.alpha();
    alpha.write("dir/a.txt", "12345");
    alpha.write("dir/b.dat", "1");
    alpha.write("dir/sub/deep.txt", "x");
    alpha.write("dir/.hidden", "");
    alpha.write("na me+%25&é", "odd");

    assert_eq!(field.globus(&["ls", &alpha.at("/dir")]), "a.txt\nb.dat\nsub/\n");
    assert!(field.globus(&["ls", "-a", &alpha.at("/dir")]).contains(".hidden"));
    assert!(field.globus(&["ls", &alpha.at("/")]).contains("na me+%25&é"));
    let long = field.globus(&["ls", "-l", &alpha.at("/dir/")]);
    assert!(long.contains("a.txt") && long.contains(" 5 "), "{long}");
    assert_eq!(field.globus(&["ls", "--filter", "~*.txt", &alpha.at("/dir")]), "a.txt\n");
    assert_eq!(field.globus(&["ls", "--orderby", "name:DESC", &alpha.at("/dir")]), "sub/\nb.dat\na.txt\n");
    assert!(field.globus(&["ls", "-r", &alpha.at("/dir")]).contains("sub/deep.txt"));
    let (_, error) = field.globus_ends(1, &["ls", &alpha.at("/nowhere")]);
    assert!(error.contains("ClientError.NotFound"), "{error}");
    let (_, error) = field.globus_ends(1, &["ls", &alpha.at("/../etc")]);
    assert!(error.contains("leads out"), "{error}");

    assert!(field.globus(&["stat", &alpha.at("/dir/a.txt")]).contains("Size:          5"));
    assert!(field.globus(&["stat", &alpha.at("/nowhere")]).contains("Nothing found"));
    field.globus(&["mkdir", &alpha.at("/dir/new")]);
    assert!(alpha.path("dir/new").is_dir());
    let (_, error) = field.globus_ends(1, &["mkdir", &alpha.at("/dir/new")]);
    assert!(error.contains("ExternalError.MkdirFailed.Exists"), "{error}");
    field.globus(&["rename", &alpha.collection, "/dir/b.dat", "/dir/new/c.dat"]);
    assert!(!alpha.path("dir/b.dat").exists() && alpha.read("dir/new/c.dat") == b"1");
    field.globus_ends(1, &["rename", &alpha.collection, "/dir/a.txt", "/dir/new/c.dat"]);
    assert_eq!(alpha.read("dir/new/c.dat"), b"1");
}

#[test]
fn files_are_copied_as_asked() {
    let Some(field) = Field::new() else { return };
    let (alpha, beta) = (field.alpha(), field.beta());
    alpha.write("one.txt", "hello\n");
    alpha.write("tree/a", "a");
    alpha.write("tree/sub/b", vec![7; 300_000]);
    alpha.write("tree/c.tmp", "left out");

    let task = field.carry_out(&["transfer", &alpha.at("/one.txt"), &beta.at("/in/one.txt")]);
    assert_eq!(beta.read("in/one.txt"), b"hello\n");
    assert_eq!(
        (&task["files_transferred"], &task["bytes_transferred"], &task["bytes_checksummed"]),
        (&json!(1), &json!(6), &json!(6))
    );

    field.carry_out(&["transfer", "-r", &alpha.at("/tree/sub"), &beta.at("/quite/new/sub/")]);
    assert_eq!(beta.read("quite/new/sub/b"), vec![7; 300_000]);

    let (from, to) = (alpha.at("/tree"), beta.at("/tree"));
    let task = field.carry_out(&["transfer", "-r", &from, &to, "--exclude", "*.tmp", "--label", "a tree"]);
    assert_eq!((beta.read("tree/a"), beta.read("tree/sub/b")), (b"a".to_vec(), vec![7; 300_000]));
    assert!(!beta.path("tree/c.tmp").exists());
    assert_eq!((&task["files"], &task["directories"], &task["label"]), (&json!(2), &json!(2), &json!("a tree")));

    for level in ["exists", "size", "mtime", "checksum"] {
        let task = field.carry_out(&["transfer", "-r", &from, &to, "--exclude", "*.tmp", "-s", level]);
        assert_eq!((&task["files_transferred"], &task["files_skipped"]), (&json!(0), &json!(2)), "{level}: {task:#}");
    }
    fs::write(beta.path("tree/a"), "b").unwrap();
    let task = field.carry_out(&["transfer", "-r", &from, &to, "--exclude", "*.tmp", "-s", "checksum"]);
    assert_eq!((&task["files_transferred"], beta.read("tree/a")), (&json!(1), b"a".to_vec()));

    beta.write("tree/extra", "not at the source");
    field.carry_out(&["transfer", "-r", &from, &to, "--delete-destination-extra", "-s", "size"]);
    assert!(!beta.path("tree/extra").exists() && beta.path("tree/c.tmp").exists());

    let batch = field.command(&["transfer", "--batch", "-", &alpha.at("/"), &beta.at("/batch/")]);
    let run = batch.input("one.txt first\n--recursive tree second # a comment\n").run().unwrap();
    assert_eq!(run.code(), Some(0), "{}", run.stderr_text());
    let submitted = run.stdout_text();
    let task = submitted.split("Task ID:").nth(1).unwrap().trim().to_owned();
    field.globus(&["task", "wait", &task, "--timeout", "60", "--polling-interval", "1"]);
    assert_eq!((beta.read("batch/first"), beta.read("batch/second/a")), (b"hello\n".to_vec(), b"a".to_vec()));
}

#[test]
fn checksums_of_users_are_proven_or_fail_the_task() {
    let Some(field) = Field::new() else { return };
    let (alpha, beta) = (field.alpha(), field.beta());
    alpha.write("one.txt", "hello\n");
    let (from, to) = (alpha.at("/one.txt"), beta.at("/one.txt"));
    let right = "b1946ac92492d2347c6235b4d2611184";
    field.carry_out(&["transfer", &from, &to, "--external-checksum", right, "--checksum-algorithm", "MD5"]);
    assert_eq!(beta.read("one.txt"), b"hello\n");
    let wrong = "0".repeat(32);
    let task = field.submit(&["transfer", &from, &beta.at("/two.txt"), "--external-checksum", &wrong]);
    field.globus_ends(1, &["task", "wait", &task, "--timeout", "60", "--polling-interval", "1"]);
    let shown = field.json(&["task", "show", &task]);
    assert_eq!(shown["status"], "FAILED");
    assert_eq!(shown["fatal_error"]["code"], "EXTERNAL_CHECKSUM_MISMATCH", "{shown:#}");
    assert!(!beta.path("two.txt").exists());
    field.globus_ends(1, &["transfer", &from, &to, "--external-checksum", "12"]);
}

#[test]
fn tasks_are_looked_after() {
    let Some(field) = Field::new() else { return };
    let (alpha, beta) = (field.alpha(), field.beta());
    alpha.write("one.txt", "hello\n");
    let (from, to) = (alpha.at("/one.txt"), beta.at("/one.txt"));

    let submission = field.globus(&["task", "generate-submission-id"]).trim().to_owned();
    let first = field.submit(&["transfer", &from, &to, "--submission-id", &submission]);
    let again = field.submit(&["transfer", &from, &to, "--submission-id", &submission]);
    assert_eq!(first, again);
    field.globus(&["task", "wait", &first, "--timeout", "60", "--polling-interval", "1"]);

    assert!(field.globus(&["task", "list"]).contains(&first));
    let listed = field.json(&["task", "list", "--filter-status", "SUCCEEDED", "--filter-type", "TRANSFER"]);
    assert_eq!(listed["DATA"].as_array().unwrap().len(), 1);
    assert_eq!(field.json(&["task", "list", "--filter-status", "FAILED"])["DATA"], json!([]));
    let copied = field.json(&["task", "show", "-t", &first]);
    assert_eq!(copied["DATA"][0]["destination_path"], "/one.txt", "{copied}");
    let events = field.json(&["task", "event-list", &first]);
    let codes: Vec<_> = events["DATA"].as_array().unwrap().iter().map(|event| event["code"].clone()).collect();
    assert_eq!(codes, [json!("SUCCEEDED"), json!("STARTED")]);
    field.globus(&["task", "pause-info", &first]);
    field.globus_ends(1, &["task", "update", &first, "--label", "too late"]);

    // A source that is missing fails its task at once, and says why.
    let task = field.submit(&["transfer", &alpha.at("/missing"), &beta.at("/missing")]);
    field.globus_ends(1, &["task", "wait", &task, "--timeout", "60", "--polling-interval", "1"]);
    let shown = field.json(&["task", "show", &task]);
    assert_eq!(shown["fatal_error"]["code"], "FILE_NOT_FOUND", "{shown:#}");
    let faults = field.json(&["task", "event-list", "--filter-errors", &task]);
    assert!(faults["DATA"].as_array().unwrap().iter().all(|event| event["is_error"] == true));

    let skipping = ["transfer", "--skip-source-errors", &alpha.at("/missing"), &beta.at("/missing")];
    let task = field.carry_out(&skipping);
    let id = task["task_id"].as_str().unwrap();
    let skipped = field.json(&["task", "show", "--skipped-errors", id]);
    assert_eq!(skipped["DATA"][0]["error_code"], "FILE_NOT_FOUND", "{skipped:#}");
}

#[test]
fn a_task_that_waits_can_be_changed_and_cancelled() {
    let Some(mut field) = Field::new() else { return };
    field.alpha().write("one.txt", "hello\n");
    let mut beta = field.beta.take().unwrap();
    beta.server.kill();
    let (from, to) = (field.alpha().at("/one.txt"), beta.at("/one.txt"));
    let task = field.submit(&["transfer", &from, &to, "--deadline", "2099-01-01", "--label", "first"]);
    field.globus(&["task", "update", &task, "--label", "second"]);
    let (_, error) = field.globus_ends(1, &["transfer", &from, &to]);
    assert!(error.contains("Conflict") && error.contains(&task), "{error}");
    field.globus_ends(1, &["task", "wait", &task, "--timeout", "1", "--polling-interval", "1"]);
    field.globus(&["task", "cancel", &task]);
    let shown = field.json(&["task", "show", &task]);
    assert_eq!((&shown["status"], &shown["label"]), (&json!("FAILED"), &json!("second")));
    assert_eq!(shown["fatal_error"]["code"], "CANCELED");
    let other = field.submit(&["transfer", &from, &to]);
    field.globus(&["task", "cancel", "--all"]);
    assert_eq!(field.json(&["task", "show", &other])["status"], "FAILED");
}

#[test]
fn files_are_deleted_as_asked() {
    let Some(field) = Field::new() else { return };
    let alpha = field.alpha();
    for name in ["d/a.tmp", "d/b.tmp", "d/keep", "e/x", "f"] {
        alpha.write(name, "x");
    }
    field.carry_out(&["delete", "--enable-globs", &alpha.at("/d/*.tmp")]);
    assert!(!alpha.path("d/a.tmp").exists() && !alpha.path("d/b.tmp").exists() && alpha.path("d/keep").exists());
    let task = field.submit(&["delete", &alpha.at("/e")]);
    field.globus_ends(1, &["task", "wait", &task, "--timeout", "60", "--polling-interval", "1"]);
    assert!(alpha.path("e/x").exists(), "a directory is not deleted without --recursive");
    field.carry_out(&["delete", "-r", &alpha.at("/e")]);
    assert!(!alpha.path("e").exists());
    field.globus(&["rm", "--timeout", "60", &alpha.at("/f")]);
    assert!(!alpha.path("f").exists());
    field.carry_out(&["delete", "--ignore-missing", &alpha.at("/f")]);
    field.globus_ends(1, &["delete", "-r", &alpha.at("/")]);
    assert!(alpha.path("d/keep").exists());
}

#[test]
fn bookmarks_and_roles_are_kept() {
    let Some(field) = Field::new() else { return };
    let alpha = field.alpha();
    let made: Value = field.json(&["bookmark", "create", &alpha.at("/x/"), "mark"]);
    let id = made["id"].as_str().unwrap();
    assert!(field.globus(&["bookmark", "list"]).contains("mark"));
    assert!(field.globus(&["bookmark", "show", "mark"]).contains("/x/"));
    field.globus(&["bookmark", "rename", "mark", "other"]);
    field.globus_ends(1, &["bookmark", "show", "mark"]);
    field.globus(&["bookmark", "delete", id]);
    assert!(!field.globus(&["bookmark", "list"]).contains("other"));

    let me = field.json(&["whoami"])["sub"].as_str().unwrap().to_owned();
    let role =
        field.json(&["endpoint", "role", "create", "--identity", &me, "--role", "activity_monitor", &alpha.endpoint]);
    let role = role["id"].as_str().unwrap().to_owned();
    assert!(field.globus(&["endpoint", "role", "list", &alpha.endpoint]).contains("activity_monitor"));
    field.globus(&["endpoint", "role", "show", &alpha.endpoint, &role]);
    field.globus(&["endpoint", "role", "delete", &alpha.endpoint, &role]);
    assert!(!field.globus(&["endpoint", "role", "list", &alpha.endpoint]).contains("activity_monitor"));
}
