//! Two services over one PostgreSQL, behind one address: either may die at any time.

use std::io;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
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
    /// Each connection goes to the next one.
    turns: Arc<AtomicBool>,
}

impl Balancer {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let replicas: Arc<Mutex<Vec<SocketAddr>>> = Arc::default();
        let (known, turns) = (replicas.clone(), Arc::<AtomicBool>::default());
        let take_turns = turns.clone();
        // It ends with the test program.
        thread::spawn(move || {
            for (number, client) in listener.incoming().enumerate() {
                let mut replicas = known.lock().unwrap().clone();
                if take_turns.load(Ordering::SeqCst) {
                    let count = replicas.len();
                    replicas.rotate_left(number % count);
                }
                let server = replicas.iter().find_map(|replica| TcpStream::connect(replica).ok());
                if let (Ok(client), Some(server)) = (client, server) {
                    pass(&client, &server);
                    pass(&server, &client);
                }
            }
        });
        Self { address, replicas, turns }
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

/// A laptop waits at one replica and is wanted at the other, the only one that carries out tasks; then that is the only one left.
#[test]
fn a_server_that_takes_no_connections_is_met_at_whichever_replica_it_waits() {
    let Some(postgres) = Postgres::start() else { return };
    let (balancer, database) = (Balancer::start(), postgres.database("fleet"));
    let Some(mut field) = Field::replicated(&database, &balancer.url()) else { return };
    balancer.knows(&[&field.service]);
    field.alpha = Some(field.site("alpha"));
    field.alpha().write("from/one", "1");
    let mut second = field.replica_with("second", &database, &["--no-orchestrator"]);
    balancer.knows(&[&second]);
    field.beta = Some(field.outbound_site("beta"));
    assert_eq!(field.globus(&["ls", &field.beta().at("/")]).trim_end(), "", "asked at the replica where it waits");

    balancer.knows(&[&field.service]);
    field.carry_out(&["transfer", "-r", &field.alpha().at("/from"), &field.beta().at("/there")]);
    assert_eq!(field.beta().read("there/one"), b"1");
    assert_eq!(field.globus(&["ls", &field.beta().at("/there")]).trim_end(), "one");

    second.kill();
    field.carry_out(&["transfer", &field.beta().at("/there/one"), &field.alpha().at("/back")]);
    assert_eq!(field.alpha().read("back"), b"1");
}

/// An orchestrator elsewhere, whose questions and answers arrive at any replica, as those of users do.
#[test]
fn what_users_ask_one_replica_is_answered_by_way_of_another() {
    let Some(postgres) = Postgres::start() else { return };
    let (balancer, database) = (Balancer::start(), postgres.database("fleet"));
    let Some(mut field) = Field::replicated_with(&database, &balancer.url(), &["--no-orchestrator"]) else { return };
    balancer.knows(&[&field.service]);
    let second = field.replica_with("second", &database, &["--no-orchestrator"]);
    field.alpha = Some(field.site("alpha"));
    field.alpha().write("here/one", "1");
    balancer.knows(&[&field.service, &second]);
    balancer.turns.store(true, Ordering::SeqCst);
    let client = field.orchestrator_client("mover");
    let _orchestrator = field.orchestrator("mover", &client);
    // Each command makes a connection of its own.
    for number in 0..8 {
        assert_eq!(field.globus(&["ls", &field.alpha().at("/here")]).trim_end(), "one", "question {number}");
    }
    field.globus(&["mkdir", &field.alpha().at("/made")]);
    assert!(field.alpha().path("made").is_dir());
}
