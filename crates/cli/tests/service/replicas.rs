//! Two services over one PostgreSQL, behind one address: either may die at any time.

use std::io;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

use serde_json::{Value, json};
use whimbrel_testkit::peers::Postgres;

use super::field::{Field, Running};

const TASKS: usize = 4;
const FILES: usize = 150;

/// What stands before the replicas: each connection goes to the first that takes it.
struct Balancer {
    address: SocketAddr,
    replicas: Arc<Mutex<Vec<SocketAddr>>>,
}

impl Balancer {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let replicas: Arc<Mutex<Vec<SocketAddr>>> = Arc::default();
        let known = replicas.clone();
        // It ends with the test program.
        thread::spawn(move || {
            for client in listener.incoming() {
                let replicas = known.lock().unwrap().clone();
                let server = replicas.iter().find_map(|replica| TcpStream::connect(replica).ok());
                if let (Ok(client), Some(server)) = (client, server) {
                    pass(&client, &server);
                    pass(&server, &client);
                }
            }
        });
        Self { address, replicas }
    }

    fn url(&self) -> String {
        format!("https://{}", self.address)
    }

    fn knows(&self, replicas: &[&Running]) {
        *self.replicas.lock().unwrap() = replicas.iter().map(|replica| address(replica)).collect();
    }
}

/// Copies one direction until its end, on a thread of its own.
fn pass(from: &TcpStream, to: &TcpStream) {
    let (mut from, mut to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
    thread::spawn(move || {
        // A replica that is killed resets its connections.
        let _copied = io::copy(&mut from, &mut to);
        let _closed = (to.shutdown(Shutdown::Write), from.shutdown(Shutdown::Read));
    });
}

/// Where a replica itself listens.
fn address(replica: &Running) -> SocketAddr {
    let said = replica.said.last().unwrap();
    let here = said.split_once("(here: ").and_then(|(_, rest)| rest.strip_suffix(')'));
    here.and_then(|here| here.parse().ok()).unwrap_or_else(|| panic!("{said}"))
}

fn submit(field: &Field, round: &str) -> Vec<String> {
    let (alpha, beta) = (field.alpha(), field.beta());
    let submit = |number| field.submit(&["transfer", "-r", &alpha.at("/many"), &beta.at(&format!("/{round}{number}"))]);
    (0..TASKS).map(submit).collect()
}

/// Waits until some file of a task is there.
fn wait_for_progress(field: &Field, token: &str, tasks: &[String]) {
    let moved = |task: &String| {
        let shown = field.ask_with(token, &format!("/v0.10/task/{task}"), None).unwrap();
        shown["files_transferred"].as_u64() > Some(0)
    };
    while !tasks.iter().any(moved) {
        thread::yield_now();
    }
}

#[track_caller]
fn assert_all_done(field: &Field, round: &str, tasks: &[String]) {
    for (number, task) in tasks.iter().enumerate() {
        field.globus(&["task", "wait", task, "--timeout", "150", "--polling-interval", "1"]);
        let shown = field.json(&["task", "show", task]);
        assert_eq!((&shown["status"], &shown["files"]), (&json!("SUCCEEDED"), &json!(FILES)), "{shown:#}");
        for file in 0..FILES {
            assert_eq!(field.beta().read(&format!("{round}{number}/f{file}")), format!("file {file}").into_bytes());
        }
    }
}

#[test]
fn tasks_of_a_replica_that_dies_are_finished_by_the_other() {
    let Some(postgres) = Postgres::start() else { return };
    let (balancer, database) = (Balancer::start(), postgres.database("fleet"));
    let Some(mut field) = Field::replicated(&database, &balancer.url()) else { return };
    balancer.knows(&[&field.service]);
    let mut second = field.replica("second", &database);
    field.alpha = Some(field.site("alpha"));
    // What one replica writes the other reads: the address of the second server is told to it alone.
    balancer.knows(&[&second, &field.service]);
    field.beta = Some(field.site("beta"));
    for file in 0..FILES {
        field.alpha().write(&format!("many/f{file}"), format!("file {file}"));
    }
    let token = field.token();

    let tasks = submit(&field, "first");
    wait_for_progress(&field, &token, &tasks);
    second.kill();
    assert_all_done(&field, "first", &tasks);

    second = field.replica("second", &database);
    balancer.knows(&[&second, &field.service]);
    let tasks = submit(&field, "second");
    wait_for_progress(&field, &token, &tasks);
    field.service.kill();
    assert_all_done(&field, "second", &tasks);

    let listed: Value = field.ask_with(&token, "/v0.10/task_list?limit=100", None).unwrap();
    assert_eq!(listed["DATA"].as_array().unwrap().len(), 2 * TASKS);
}
