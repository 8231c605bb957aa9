//! Orchestrators on other hosts: all they have is a client's secret and the service's address.

use std::thread;

use serde_json::json;

use super::field::Field;

const FILES: usize = 60;
/// Bytes of a file; all of them take six seconds at [`RATE`].
const LENGTH: usize = 100_000;
/// Bytes a second.
const RATE: usize = 1_000_000;

fn field() -> Option<Field> {
    let mut field = Field::alone()?;
    field.restart_with(&["--no-orchestrator"]);
    field.alpha = Some(field.site("alpha"));
    field.beta = Some(field.site("beta"));
    Some(field)
}

fn content(file: usize) -> Vec<u8> {
    vec![file as u8; LENGTH]
}

#[test]
fn tasks_of_an_orchestrator_that_dies_are_finished_by_another() {
    let Some(mut field) = field() else { return };
    let client = field.orchestrator_client("movers");
    for file in 0..FILES {
        field.alpha().write(&format!("many/f{file}"), content(file));
    }
    // It is not over before its orchestrator is.
    let place = format!("/v0.10/endpoint/{}", field.beta().collection);
    field.tell("PUT", &place, &json!({"max_rate": RATE}));
    let task = field.submit(&["transfer", "-r", &field.alpha().at("/many"), &field.beta().at("/copy")]);
    let mut first = field.orchestrator("first", &client);
    let token = field.token();
    let moved = || field.ask_with(&token, &format!("/v0.10/task/{task}"), None).unwrap()["files_transferred"].as_u64();
    while moved() < Some(1) {
        thread::yield_now();
    }
    first.kill();
    assert_eq!(field.json(&["task", "show", &task])["status"], "ACTIVE");
    // A service that comes back is asked on.
    let _second = field.orchestrator("second", &client);
    field.restart_with(&["--no-orchestrator"]);
    field.globus(&["task", "wait", &task, "--timeout", "120", "--polling-interval", "1"]);
    let shown = field.json(&["task", "show", &task]);
    assert_eq!((&shown["status"], &shown["files"]), (&json!("SUCCEEDED"), &json!(FILES)), "{shown:#}");
    for file in 0..FILES {
        assert_eq!(field.beta().read(&format!("copy/f{file}")), content(file));
    }
    // What is asked of the service at once goes the same way.
    let listed = field.globus(&["ls", &field.beta().at("/copy")]);
    assert_eq!(listed.lines().count(), FILES, "{listed}");
}

#[test]
fn who_may_not_orchestrate_is_told_so_at_once() {
    let Some(field) = field() else { return };
    let client = field.orchestrator_client("movers");
    let wrong = std::fs::read_to_string(&client).unwrap().replace("\"client_secret\":\"", "\"client_secret\":\"x");
    let someone = field.person("someone");
    let person = json!({"client_id": someone.id, "client_secret": someone.secret()}).to_string();
    let (person, strange) = (field.secret("person.json", &person), field.secret("strange.json", &wrong));
    for (file, why) in [(strange, "whimbrel login"), (person, "scope"), (field.place("none.json"), "none.json")] {
        let ended = field.orchestrating("first", &file).output().expect("the program starts");
        let said = String::from_utf8_lossy(&ended.stderr).into_owned();
        assert!(ended.status.code().is_some_and(|code| code != 0) && ended.stdout.is_empty(), "{said}");
        assert!(said.contains(why), "{said}");
    }
}
