//! Tasks from their submission to their end, each with its effect on the servers' disks.

use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use super::endpoints::site;
use super::field::{Field, WHIMBREL};
use super::seat::Seat;

#[test]
fn a_folder_is_copied_while_nobody_watches_and_told_of_afterwards() {
    let field = Field::plain();
    let seat = Seat::administrator(&field);
    let (alpha, beta) = (site(&seat, "alpha"), site(&seat, "beta"));
    for number in 0..20 {
        alpha.write(&format!("run7/f{number:02}"), format!("file {number}\n"));
    }
    alpha.write("run7/x.tmp", "left out");

    let planned = ["task", "submit", "-r", "--print-document", "alpha data:/run7", "beta data:/in/"];
    let document: Value = serde_json::from_str(&seat.says(&planned)).unwrap();
    assert_eq!(document["DATA"][0]["destination_path"], "/in/run7");
    assert_eq!(seat.says(&["task", "list"]), "");

    let arguments =
        ["task", "submit", "-r", "alpha data:/run7", "beta data:/in/", "--exclude", "*.tmp", "--label", "run seven"];
    let task = seat.says(&arguments);
    let (_, said) = seat.ends(0, &["task", "wait", &task]);
    assert!(said.contains("succeeded") && said.contains("20 of 20 files copied"), "{said}");
    assert_eq!(beta.read("in/run7/f07"), b"file 7\n");
    assert!(!beta.path("in/run7/x.tmp").exists());

    let shown = seat.says(&["task", "show", &task]);
    assert!(
        shown.contains("SUCCEEDED") && shown.contains("run seven") && shown.contains("alpha data -> beta data"),
        "{shown}"
    );
    let listed = seat.says(&["task", "list", "--label", "seven", "--status", "succeeded"]);
    assert!(listed.starts_with(&task) && listed.lines().count() == 1, "{listed}");
    assert_eq!(seat.says(&["task", "list", "--status", "failed"]), "");
    let log = seat.says(&["task", "log", &task]);
    assert!(log.lines().any(|line| line == "/run7/f07 -> /in/run7/f07  copied, 7 B, verified"), "{log}");
    let items = seat.events(0, &["task", "log", &task]);
    assert_eq!(items.iter().filter(|item| item["type"] == "file" && item["state"] == "succeeded").count(), 20, "{log}");
    assert_eq!(seat.says(&["task", "log", "--failed", &task]), "");
    let events = seat.says(&["task", "events", &task]);
    assert!(events.lines().next().unwrap().contains("STARTED") && events.contains("SUCCEEDED"), "{events}");

    let again = seat.says(&[
        "task",
        "submit",
        "-r",
        "--sync",
        "size",
        "--wait",
        "alpha data:/run7",
        "beta data:/in/run7",
        "--exclude",
        "*.tmp",
    ]);
    let again = &seat.events(0, &["task", "show", &again])[0];
    assert_eq!((&again["files_skipped"], &again["files_transferred"]), (&json!(20), &json!(0)), "{again:#}");

    let deleted = seat.says(&["task", "delete", "-r", "beta data:/in/run7", "--wait"]);
    assert!(!beta.path("in/run7").exists() && beta.path("in").exists());
    assert!(seat.says(&["task", "show", &deleted]).contains("delete at beta data"));
    assert!(seat.says(&["task", "log", &deleted]).contains("/in/run7/f07  removed"));
}

#[test]
fn many_places_and_lists_go_in_one_task() {
    let field = Field::plain();
    let seat = Seat::administrator(&field);
    let (alpha, beta) = (site(&seat, "alpha"), site(&seat, "beta"));
    alpha.write("one", "1");
    alpha.write("two two", "2");
    alpha.write("dir/three", "3");
    seat.ends(0, &["task", "submit", "--wait", "alpha data:/one", "alpha data:/two two", "beta data:/several"]);
    assert_eq!((beta.read("several/one"), beta.read("several/two two")), (b"1".to_vec(), b"2".to_vec()));

    let list = "# pairs\n\"alpha data:/two two\" \"beta data:/listed/2\"\n\"alpha data:/one\" \"beta data:/listed/\"\n";
    seat.with_input(list, &["task", "submit", "--wait", "--list", "-"]);
    assert_eq!((beta.read("listed/2"), beta.read("listed/one")), (b"2".to_vec(), b"1".to_vec()));

    seat.ends(2, &["task", "submit", "alpha data:/one", "beta data:/x", "beta data:/y"]);
    seat.ends(2, &["task", "submit", "alpha data:/one"]);
    seat.ends(2, &["task", "submit", "/local/file", "beta data:/x"]);
    seat.ends(1, &["task", "submit", "nowhere:/one", "beta data:/x"]);
    let right = "alpha data:/one";
    let one = "sha256:6b86b273ff34fce19d6b804eff5a3f5747ada4eaa22f1d49c01e52ddb7875b4b";
    seat.ends(0, &["task", "submit", "--wait", right, "beta data:/proven", "--expect", one]);
    let wrong = one.replace("6b86", "0000");
    seat.ends(1, &["task", "submit", "--wait", right, "beta data:/wrong", "--expect", &wrong]);
    assert!(beta.path("proven").exists() && !beta.path("wrong").exists());
}

#[test]
fn failures_say_what_and_why_and_exit_codes_tell_them_apart() {
    let field = Field::plain();
    let seat = Seat::administrator(&field);
    let (alpha, mut beta) = (site(&seat, "alpha"), site(&seat, "beta"));
    alpha.write("one", "1");
    let (task, said) = seat.ends(1, &["task", "submit", "--wait", "alpha data:/none", "beta data:/x"]);
    assert!(said.contains("failed") && said.contains("FILE_NOT_FOUND") && said.contains("task events"), "{said}");
    assert!(seat.says(&["task", "events", "--errors", task.trim_end()]).contains("FILE_NOT_FOUND"));
    assert!(seat.says(&["task", "log", "--failed", task.trim_end()]).contains("failed: FILE_NOT_FOUND"));
    assert_eq!(seat.events(1, &["task", "wait", task.trim_end()]).last().unwrap()["exit_code"], 1);

    // A task whose server is away waits for it, until somebody ends it or its deadline passes.
    beta.server.kill();
    let waiting = seat.says(&["task", "submit", "alpha data:/one", "beta data:/x"]);
    let (_, said) = seat.ends(8, &["task", "wait", &waiting, "--timeout", "0"]);
    assert!(said.contains("the task goes on"), "{said}");
    let (_, error) = seat.ends(1, &["task", "submit", "alpha data:/one", "beta data:/x"]);
    assert!(error.contains(&waiting) && error.contains("task cancel"), "{error}");
    seat.ends(0, &["task", "update", &waiting, "--label", "in vain"]);
    seat.ends(2, &["task", "update", &waiting]);
    assert!(seat.says(&["task", "list", "--status", "active"]).contains("\"in vain\""));
    seat.ends(0, &["task", "cancel", "--all"]);
    seat.ends(130, &["task", "wait", &waiting]);
    assert!(seat.says(&["task", "list"]).contains("cancelled"));
    seat.ends(1, &["task", "update", &waiting, "--label", "too late"]);

    seat.ends(1, &["task", "show", "00000000-0000-4000-8000-000000000000"]);
    seat.ends(2, &["task", "show", "../endpoint"]);
    let failed = seat.events(2, &["task", "submit", "alpha data:/one", "beta data:/x", "--deadline", "soon"]);
    assert!(failed[0]["refused"]["message"].as_str().unwrap().contains("deadline"), "{failed:?}");
}

#[test]
fn who_waits_is_told_the_end_though_the_service_was_killed() {
    let mut field = Field::plain();
    let (alpha, beta, wait, task);
    {
        let seat = Seat::administrator(&field);
        (alpha, beta) = (site(&seat, "alpha"), site(&seat, "beta"));
        for number in 0..300 {
            alpha.write(&format!("many/f{number:03}"), format!("file {number}\n"));
        }
        task = seat.says(&["task", "submit", "-r", "alpha data:/many", "beta data:/many"]);
        wait = seat.command(&["task", "wait", &task]);
    }
    let waiting = std::thread::spawn(move || wait.run().unwrap());
    field.restart();
    let run = waiting.join().unwrap();
    assert_eq!(run.code(), Some(0), "{}", run.stderr_text());
    assert_eq!(beta.read("many/f299"), b"file 299\n");
    drop((alpha, task));
}

#[test]
fn an_interrupt_ends_the_waiting_and_not_the_task() {
    let field = Field::plain();
    let seat = Seat::administrator(&field);
    let (alpha, mut beta) = (site(&seat, "alpha"), site(&seat, "beta"));
    alpha.write("one", "1");
    beta.server.kill();
    let task = seat.says(&["task", "submit", "alpha data:/one", "beta data:/x"]);
    let mut command = Command::new(WHIMBREL);
    command.args(["--json", "task", "wait", &task]).env("HOME", &seat.home).env_remove("WHIMBREL_SERVICE");
    let mut waiting = command.env("XDG_CONFIG_HOME", seat.home.join(".config")).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(waiting.stdout.take().unwrap()).lines();
    assert!(lines.next().unwrap().unwrap().contains("\"progress\""));
    rustix::process::kill_process(rustix::process::Pid::from_child(&waiting), rustix::process::Signal::INT).unwrap();
    let last = lines.last().unwrap().unwrap();
    assert!(last.contains("\"interrupted\""), "{last}");
    assert_eq!(waiting.wait().unwrap().code(), Some(130));
    assert!(seat.says(&["task", "show", &task]).contains("ACTIVE"));
}
