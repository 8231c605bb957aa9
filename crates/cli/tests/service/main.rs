//! The managed service with real servers, as the public `globus` command sees it, unmodified.
#![allow(clippy::unwrap_used, reason = "a test that fails ends here")]

mod clients;
mod crash;
mod cut;
mod documents;
mod door;
mod elsewhere;
mod field;
mod manager;
mod news;
mod outbound;
mod replicas;
mod script;
mod sharing;
mod timers;
mod tour;

use serde_json::json;

use field::Field;

/// A task that the service forgot, or did twice, would be a task lost: it is killed while the task runs.
#[test]
fn a_task_outlives_a_killed_service() {
    let Some(mut field) = Field::new() else { return };
    for number in 0..300 {
        field.alpha().write(&format!("many/f{number:03}"), format!("file {number}\n"));
    }
    let task = field.submit(&["transfer", "--recursive", &field.alpha().at("/many"), &field.beta().at("/many")]);
    field.restart();
    field.globus(&["task", "wait", &task, "--timeout", "120", "--polling-interval", "1"]);
    let shown = field.json(&["task", "show", &task]);
    assert_eq!((&shown["status"], &shown["files"]), (&json!("SUCCEEDED"), &json!(300)), "{shown:#}");
    for number in 0..300 {
        assert_eq!(field.beta().read(&format!("many/f{number:03}")), format!("file {number}\n").into_bytes());
    }
}

/// A server that comes back is known by what it kept; meanwhile tasks wait for it and say so.
#[test]
fn a_server_that_comes_back_goes_on_without_a_token() {
    let Some(mut field) = Field::new() else { return };
    field.alpha().write("one", "1");
    let mut beta = field.beta.take().unwrap();
    beta.server.kill();
    let task = field.submit(&["transfer", &field.alpha().at("/one"), &beta.at("/one")]);
    beta.server = field.server("beta", &beta.root, "used-up-long-ago");
    field.globus(&["task", "wait", &task, "--timeout", "120", "--polling-interval", "1"]);
    assert_eq!(beta.read("one"), b"1");
}
