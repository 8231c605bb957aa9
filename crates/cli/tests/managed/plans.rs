//! What a task would do is told before it runs, and then it does exactly that.

use serde_json::{Value, json};

use super::endpoints::site;
use super::field::{Field, Site};
use super::seat::Seat;

/// The plan of a command, and the task after it.
fn planned_and_done(seat: &Seat<'_>, command: &[&str]) -> (Value, Value) {
    let plan = seat.events(0, &[command, &["--dry-run"]].concat()).pop().unwrap();
    assert_eq!((&plan["event"], &plan["is_complete"]), (&json!("plan"), &json!(true)), "{plan:#}");
    let task = seat.says(&[command, &["--wait"]].concat());
    let task = seat.events(0, &["task", "show", &task]).pop().unwrap();
    assert_eq!(task["status"], "SUCCEEDED", "{task:#}");
    (plan, task)
}

/// Panics unless these numbers of a plan are those of its task.
#[track_caller]
fn assert_same(plan: &Value, task: &Value, numbers: &[(&str, &str, u64)]) {
    for (foretold, came, expected) in numbers {
        let context = format!("{foretold}, {came}: {plan:#} {task:#}");
        assert_eq!((&plan[foretold], &task[came]), (&json!(expected), &json!(expected)), "{context}");
    }
}

fn run(alpha: &Site, beta: &Site) {
    for number in 0..20 {
        alpha.write(&format!("run7/f{number:02}"), format!("file {number:02}\n"));
    }
    alpha.write("run7/deep/x.h5", "x");
    alpha.write("run7/y.tmp", "left out");
    for number in 0..5 {
        beta.write(&format!("run7/f{number:02}"), format!("file {number:02}\n"));
    }
    beta.write("run7/gone/z", "z");
}

#[test]
fn a_task_does_what_its_plan_says() {
    let field = Field::plain();
    let seat = Seat::administrator(&field);
    let (alpha, beta) = (site(&seat, "alpha"), site(&seat, "beta"));
    run(&alpha, &beta);
    let command = [
        "task",
        "submit",
        "-r",
        "--sync",
        "size",
        "--delete-extra",
        "--exclude",
        "*.tmp",
        "alpha data:/run7",
        "beta data:/run7",
    ];
    let (plan, task) = planned_and_done(&seat, &command);
    let numbers = [
        ("files", "files", 21),
        ("directories", "directories", 2),
        ("files_to_transfer", "files_transferred", 16),
        ("bytes_to_transfer", "bytes_transferred", 15 * 8 + 1),
        ("files_skipped", "files_skipped", 5),
    ];
    assert_same(&plan, &task, &numbers);
    let extra = ["extra_files_to_delete", "extra_directories_to_delete", "filtered", "failing", "directories_to_make"];
    assert_eq!(extra.map(|name| plan[name].clone()), [1, 1, 1, 0, 1].map(Value::from), "{plan:#}");
    assert!(!beta.path("run7/gone").exists() && !beta.path("run7/y.tmp").exists());
    let begun = seat.events(0, &["task", "events", task["task_id"].as_str().unwrap()]);
    let begun = begun.iter().find(|event| event["code"] == "STARTED").unwrap();
    let begun: Value = serde_json::from_str(begun["details"].as_str().unwrap()).unwrap();
    let choice = |name: &str| {
        plan["choices"].as_array().unwrap().iter().find(|line| line["choice"] == name).unwrap()["value"].clone()
    };
    assert_eq!((choice("sessions"), choice("channels")), (begun["concurrency"].clone(), begun["parallelism"].clone()));

    let (plan, task) =
        planned_and_done(&seat, &["task", "delete", "-r", "beta data:/run7/f0*", "beta data:/run7/deep"]);
    assert_eq!((&plan["files"], &plan["directories"]), (&json!(11), &json!(1)), "{plan:#}");
    assert_eq!(task["subtasks_succeeded"], 12, "{task:#}");
    assert!(!beta.path("run7/f00").exists() && beta.path("run7/f10").exists());
}

#[test]
fn looking_changes_nothing_and_tells_what_is_in_the_way() {
    let field = Field::plain();
    let seat = Seat::administrator(&field);
    let (mut alpha, beta) = (site(&seat, "alpha"), site(&seat, "beta"));
    run(&alpha, &beta);
    let (said, _) = seat.ends(0, &["cp", "--managed", "-r", "--dry-run", "alpha data:/run7", "beta data:/"]);
    for part in [
        "mkdir    /run7/deep",
        "copy     /run7/f19 -> /run7/f19 (8 B)",
        "would copy alpha data -> beta data",
        "22 files, 169 B",
        "warning: Files of the same names at the destination would be replaced",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
    let (said, _) = seat.ends(1, &["task", "submit", "--dry-run", "alpha data:/none", "beta data:/in/"]);
    assert!(said.contains("refuse   /none: ") && said.contains("would copy the rest, and fail"), "{said}");
    assert!(!beta.path("run7/f19").exists() && !beta.path("in").exists());
    assert_eq!(seat.says(&["task", "list"]), "");

    alpha.server.kill();
    let (_, error) = seat.ends(7, &["task", "submit", "-r", "--dry-run", "alpha data:/run7", "beta data:/new"]);
    assert!(error.contains("cure"), "{error}");
    seat.ends(2, &["cp", "--managed", "--dry-run", "--no-wait", "alpha data:/run7", "beta data:/new"]);
    seat.ends(2, &["task", "submit", "--dry-run", "--wait", "alpha data:/run7", "beta data:/new"]);
}
