//! Ten thousand tasks at once: what a user waits for a listing meanwhile, with orchestrators that only say that they move files.
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Body;
use axum::http::Request;
use axum::http::header::{AUTHORIZATION, CONTENT_TYPE};
use base64ct::{Base64, Encoding};
use http_body_util::BodyExt;
use serde_json::{Value, json};
use tokio::sync::Notify;
use tower_service::Service as _;
use uuid::Uuid;
use whimbrel_engine::dispatch::{self, Change, Lease, Order, Report, Response, Server, Subject};
use whimbrel_engine::progress::{FileSum, Verification};
use whimbrel_engine::task::ItemKind;
use whimbrel_service::clock::SystemClock;
use whimbrel_service::store::{SealKey, Store};
use whimbrel_service::{Config, Service};
use whimbrel_testkit::peers::Postgres;

/// How much there is of everything.
#[derive(Debug, Clone, Copy)]
struct Size {
    users: u32,
    tasks_of_user: u32,
    orchestrators: u32,
    /// Tasks that each carries out at once.
    slots: u32,
    /// Readers without a pause; each asks as another user each time.
    readers: u32,
    reads: u64,
}

const SMALL: Size = Size { users: 10, tasks_of_user: 8, orchestrators: 2, slots: 20, readers: 2, reads: 60 };
const LARGE: Size = Size { users: 200, tasks_of_user: 50, orchestrators: 4, slots: 150, readers: 4, reads: 4000 };

/// Longest wait of 99 of 100 readers.
const GATE: Duration = Duration::from_millis(50);

struct User {
    token: String,
    tasks: Vec<String>,
}

struct Load {
    service: Arc<Service>,
    router: Router,
    users: Vec<User>,
    /// Files that orchestrators have reported and the service has taken.
    reported: AtomicU64,
    /// The first report was taken.
    begun: Notify,
    over: AtomicBool,
}

/// Waits, sorted.
struct Waits(Vec<Duration>);

impl Waits {
    fn of(mut waits: Vec<Duration>) -> Self {
        waits.sort_unstable();
        Self(waits)
    }

    /// The longest wait of so many in a thousand.
    fn at(&self, thousandths: usize) -> Duration {
        self.0.get((self.0.len() * thousandths / 1000).min(self.0.len().saturating_sub(1))).copied().unwrap_or_default()
    }
}

impl fmt::Display for Waits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = |thousandths| self.at(thousandths).as_secs_f64() * 1e3;
        write!(f, "{} waits: median {:.1} ms, p99 {:.1} ms, longest {:.1} ms", self.0.len(), ms(500), ms(990), ms(1000))
    }
}

impl Load {
    async fn new(store: Store, size: Size) -> Self {
        let config = Config { url: "https://transfer.example.org".into(), domain: "example.org".into() };
        let service = Arc::new(Service::new(config, Arc::new(SystemClock), store));
        let mut load = Self {
            router: service.router(),
            service,
            users: Vec::new(),
            reported: AtomicU64::new(0),
            begun: Notify::new(),
            over: AtomicBool::new(false),
        };
        let mut collections = None;
        for number in 0..size.users {
            let made = load.service.bootstrap_client(&format!("user{number}"), false).await.unwrap();
            let pair = format!("{}:{}", made.client.id, made.secret.as_deref().unwrap());
            let basic = format!("Basic {}", Base64::encode_string(pair.as_bytes()));
            let form = "grant_type=client_credentials&scope=urn:globus:auth:scope:transfer.api.globus.org:all";
            let request = Request::post("/v2/oauth2/token").header(AUTHORIZATION, basic);
            let request = request.header(CONTENT_TYPE, "application/x-www-form-urlencoded").body(Body::from(form));
            let token = load.send(request.unwrap()).await["access_token"].as_str().unwrap().to_owned();
            if collections.is_none() {
                collections = Some(load.collections(made.client.id).await);
            }
            let (source, destination) = collections.unwrap();
            let mut tasks = Vec::new();
            for task in 0..size.tasks_of_user {
                tasks.push(load.submit(&token, source, destination, task).await);
            }
            load.users.push(User { token, tasks });
        }
        load
    }

    async fn collections(&self, owner: Uuid) -> (Uuid, Uuid) {
        let servers = vec![Server::at("whimbrel://dtn.example.org:2811", None)];
        let endpoint = self.service.add_endpoint(owner, "Lab", servers).await.unwrap().id;
        let from = self.service.add_mapped(endpoint, owner, "Instrument", "/raw").await.unwrap().id;
        (from, self.service.add_mapped(endpoint, owner, "Archive", "/archive").await.unwrap().id)
    }

    async fn submit(&self, token: &str, source: Uuid, destination: Uuid, number: u32) -> String {
        let submission = self.get("/v0.10/submission_id", token).await["value"].clone();
        let item = json!({
            "DATA_TYPE": "transfer_item", "source_path": format!("/run{number}/"),
            "destination_path": format!("/run{number}/"), "recursive": true,
        });
        let document = json!({
            "DATA_TYPE": "transfer", "submission_id": submission, "label": format!("run {number}"),
            "source_endpoint": source, "destination_endpoint": destination, "verify_checksum": true, "DATA": [item],
        });
        let request = Request::post("/v0.10/transfer").header(AUTHORIZATION, format!("Bearer {token}"));
        let request = request.header(CONTENT_TYPE, "application/json").body(Body::from(document.to_string()));
        let submitted = self.send(request.unwrap()).await;
        submitted["task_id"].as_str().unwrap_or_else(|| panic!("{submitted}")).to_owned()
    }

    async fn get(&self, path: &str, token: &str) -> Value {
        let request = Request::get(path).header(AUTHORIZATION, format!("Bearer {token}"));
        self.send(request.body(Body::empty()).unwrap()).await
    }

    async fn send(&self, request: Request<Body>) -> Value {
        let response = self.router.clone().call(request).await.unwrap();
        let status = response.status();
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
        assert!(status.is_success(), "{status} {bytes:?}");
        serde_json::from_slice(&bytes).unwrap()
    }

    /// Polls, as orchestrators do; how long it took until there was something to begin.
    async fn poll(self: Arc<Self>, name: Uuid, slots: u32, held: Arc<Mutex<Vec<Held>>>) -> Vec<Duration> {
        let mut waits = Vec::new();
        while !self.over.load(Ordering::Relaxed) {
            let running: Vec<_> = held.lock().unwrap().iter().map(|(lease, _)| *lease).collect();
            let begun = Instant::now();
            let ask = dispatch::Request::Poll {
                orchestrator: name,
                free: slots - running.len() as u32,
                running,
                ending: Vec::new(),
            };
            let Response::Orders { orders } = self.service.dispatch(ask).await.unwrap() else { panic!("orders") };
            let begin = orders.into_iter().filter_map(|order| match order {
                Order::Run(assignment) => Some((assignment.lease, 0)),
                _ => None,
            });
            let before = held.lock().unwrap().len();
            held.lock().unwrap().extend(begin);
            if held.lock().unwrap().len() > before {
                waits.push(begun.elapsed());
            }
        }
        waits
    }

    /// Reports twenty files a second of each task that is held; how long each report took.
    async fn report(self: Arc<Self>, held: Arc<Mutex<Vec<Held>>>) -> Vec<Duration> {
        let mut waits = Vec::new();
        while !self.over.load(Ordering::Relaxed) {
            let round = Instant::now();
            let mut place = 0;
            while let Some((lease, sequence)) = next(&held, &mut place) {
                let begun = Instant::now();
                let ask = dispatch::Request::Report(Box::new(report(lease, sequence)));
                let answer = self.service.dispatch(ask).await.unwrap();
                assert!(matches!(answer, Response::Taken), "{answer:?}");
                self.reported.fetch_add(FILES_IN_REPORT, Ordering::Relaxed);
                self.begun.notify_one();
                waits.push(begun.elapsed());
                if self.over.load(Ordering::Relaxed) {
                    break;
                }
            }
            tokio::time::sleep_until((round + Duration::from_secs(1)).into()).await;
        }
        waits
    }

    /// Reads as a user who looks at one thing after the other; how long each answer took.
    async fn read(self: Arc<Self>, seed: usize, reads: u64) -> Vec<Duration> {
        let mut waits = Vec::new();
        for number in 0..reads as usize {
            let user = &self.users[(seed * 7919 + number * 31) % self.users.len()];
            let task = &user.tasks[number % user.tasks.len()];
            let path = match number % 4 {
                0 => "/v0.10/task_list?limit=50&filter=status:ACTIVE&orderby=request_time+DESC".to_owned(),
                1 => format!("/v0.10/task/{task}"),
                2 => format!("/v0.10/task/{task}/event_list"),
                _ => format!("/v0.10/task/{task}/successful_transfers"),
            };
            let begun = Instant::now();
            let answer = self.get(&path, &user.token).await;
            waits.push(begun.elapsed());
            if number % 4 == 0 {
                assert_eq!(answer["DATA"].as_array().unwrap().len(), user.tasks.len().min(50), "all are active");
            }
        }
        waits
    }
}

const FILES_IN_REPORT: u64 = 20;

/// A task that is carried out, with the number of its last report.
type Held = (Lease, u64);

/// The next task to report of, and the report's number.
fn next(held: &Mutex<Vec<Held>>, place: &mut usize) -> Option<Held> {
    let mut held = held.lock().unwrap();
    let (lease, sequence) = held.get_mut(*place)?;
    *place += 1;
    *sequence += 1;
    Some((*lease, *sequence))
}

fn report(lease: Lease, sequence: u64) -> Report {
    let changes = (0..FILES_IN_REPORT).map(|file| {
        let path = format!("run/{sequence}/{file}").into_bytes();
        let subject = Subject { kind: ItemKind::File, source: path.clone(), destination: path, extra: false };
        let sum = FileSum { algorithm: "md5".into(), digest: format!("{sequence:032x}"), expected: false };
        let verification = Verification::Verified { algorithm: "md5".into(), read_back: None, sums: vec![sum] };
        Change::Done { subject, bytes: 1000, verification }
    });
    let (changes, occurrences) = (changes.collect(), Vec::new());
    Report { lease, sequence, changes, occurrences, gauge: None, end: None }
}

async fn gathered(tasks: Vec<tokio::task::JoinHandle<Vec<Duration>>>) -> Waits {
    let mut waits = Vec::new();
    for task in tasks {
        waits.extend(task.await.unwrap());
    }
    Waits::of(waits)
}

async fn measure(name: &str, store: Store, size: Size) -> Waits {
    let begun = Instant::now();
    let load = Arc::new(Load::new(store, size).await);
    let tasks = size.users * size.tasks_of_user;
    println!("{name}: {tasks} tasks submitted in {:.1} s", begun.elapsed().as_secs_f64());
    let [mut pollers, mut reporters] = [Vec::new(), Vec::new()];
    for number in 0..size.orchestrators {
        let (name, held) = (Uuid::from_u128(u128::from(number)), Arc::<Mutex<Vec<Held>>>::default());
        pollers.push(tokio::spawn(load.clone().poll(name, size.slots, held.clone())));
        reporters.push(tokio::spawn(load.clone().report(held)));
    }
    // Readers come when work is under way.
    load.begun.notified().await;
    let begun = Instant::now();
    let readers = (0..size.readers)
        .map(|number| tokio::spawn(load.clone().read(number as usize, size.reads / u64::from(size.readers))));
    let waits = gathered(readers.collect()).await;
    let seconds = begun.elapsed().as_secs_f64();
    load.over.store(true, Ordering::Relaxed);
    let [polls, reports] = [gathered(pollers).await, gathered(reporters).await];
    let files = load.reported.load(Ordering::Relaxed);
    let mut counted = 0;
    for user in &load.users {
        for task in &user.tasks {
            let id = task.parse().unwrap();
            let kept = load.service.store.task(id).await.unwrap().unwrap();
            assert_eq!(load.service.store.recount(id).await.unwrap(), kept.counters);
            counted += kept.counters.succeeded;
        }
    }
    assert_eq!(counted, files, "what was taken is on record");
    println!("{name}: API reads: {waits}");
    println!("{name}: polls that found tasks: {polls}; reports: {reports}");
    println!("{name}: {files} files put on record in {seconds:.1} s");
    waits
}

async fn on_both(size: Size) -> Vec<(&'static str, Waits)> {
    let directory = tempfile::tempdir().unwrap();
    let sqlite = Store::open(&format!("sqlite:{}", directory.path().join("db").display())).await.unwrap();
    let mut measured = vec![("SQLite", measure("SQLite", sqlite, size).await)];
    if let Some(postgres) = Postgres::start() {
        let key = SealKey::parse(&"5a".repeat(32)).unwrap();
        let store = Store::open_with(&postgres.database("load"), key).await.unwrap();
        measured.push(("PostgreSQL", measure("PostgreSQL", store, size).await));
    }
    measured
}

#[tokio::test(flavor = "multi_thread")]
async fn under_load_every_reader_sees_all_tasks_and_every_report_is_on_record() {
    on_both(SMALL).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "nightly"]
async fn ten_thousand_tasks_keep_no_reader_waiting() {
    for (name, waits) in on_both(LARGE).await {
        assert!(cfg!(debug_assertions) || waits.at(990) < GATE, "{name}: {waits}");
    }
}
