//! What people and programs are told of tasks: events, logs, mails, webhooks, metrics; and what is done once a night.

use std::sync::{Arc, Mutex};

use axum::Router;
use axum::http::HeaderMap;
use axum::routing::post;
use http_body_util::BodyExt as _;
use serde_json::{Value, json};
use sqlx::{Connection as _, SqliteConnection};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpListener;
use tokio::sync::watch;
use uuid::Uuid;
use whimbrel_engine::dispatch::{Change, End, Lease, Report, Subject};
use whimbrel_engine::fault::FaultCode;
use whimbrel_engine::listing::Timestamp;
use whimbrel_engine::progress::Verification;
use whimbrel_engine::task::ItemKind;
use whimbrel_engine::{Fault, Side};
use whimbrel_service::auth::records::Identity;
use whimbrel_service::auth::scope::{Monitor, Scope, TransferAll};
use whimbrel_service::auth::secrets::random_id;
use whimbrel_service::clock::SetClock;
use whimbrel_service::house::Keeping;
use whimbrel_service::notices::{MailServer, Settings};
use whimbrel_service::store::{AuditQuery, Batch, Store};
use whimbrel_web::{Limits, Listen, Security, Server};

use crate::bench::{Bench, NOW, Somebody};
use crate::collections::{id, site};

/// A task of somebody's that an orchestrator has.
struct Running<'a> {
    bench: &'a Bench,
    task: Uuid,
    lease: Lease,
}

impl<'a> Running<'a> {
    async fn of(bench: &'a Bench, who: &Somebody, collection: Uuid, notify: &str) -> Self {
        let item = json!({"DATA_TYPE": "transfer_item", "source_path": "/from/", "destination_path": "/to/"});
        let body = json!({"DATA_TYPE": "transfer", "submission_id": random_id().unwrap(), "source_endpoint": collection,
            "destination_endpoint": collection, "label": "\u{fc}ber night", "DATA": [item],
            "notify_on_succeeded": notify.contains('s'), "notify_on_failed": notify.contains('f')});
        // Tests last longer than tokens.
        let token = bench.token(&who.client, TransferAll::NAME).await;
        let task = id(&bench.post("/v0.10/transfer", &token, body).await.good()["task_id"]);
        let now = bench.service.clock.now();
        let leased = bench.service.store.lease(Uuid::from_u128(9), now, 100, 100).await.unwrap();
        let lease = leased.into_iter().map(|(_, lease)| lease).find(|lease| lease.task == task).unwrap();
        Self { bench, task, lease }
    }

    async fn report(&self, sequence: u64, changes: Vec<Change>, end: Option<End>) {
        let report = Report { lease: self.lease, sequence, changes, occurrences: Vec::new(), gauge: None, end };
        self.bench.service.store.report(report, self.bench.service.clock.now()).await.unwrap();
    }

    async fn finish(&self) {
        self.report(1, Vec::new(), Some(End::Finished)).await;
    }
}

fn file(name: &str) -> Subject {
    let path = |top: &str| format!("/srv/data/{top}/{name}").into_bytes();
    Subject { kind: ItemKind::File, source: path("from"), destination: path("to"), extra: false }
}

fn missing() -> Fault {
    Fault::new(FaultCode::NotFound, "open").side(Side::Source).subject("/from/b")
}

#[tokio::test]
async fn progress_comes_as_events_until_the_end() {
    let bench = Bench::new().await;
    let site = site(&bench).await;
    let running = Running::of(&bench, &site.ada, site.mapped, "").await;
    let path = format!("/v2/whimbrel/tasks/{}/progress", running.task);
    let mut body = bench.open(&path, &site.ada.token).await;
    let mut next = async || {
        let frame = body.frame().await?.unwrap().into_data().unwrap();
        let text = String::from_utf8(frame.to_vec()).unwrap();
        let (event, data) = text.split_once("\nretry: 2000\ndata: ").unwrap();
        let data: Value = serde_json::from_str(data.trim_end()).unwrap();
        Some((event.to_owned(), data))
    };
    let (event, data) = next().await.unwrap();
    assert_eq!((event.as_str(), &data["status"], &data["files"]), ("event: progress", &json!("ACTIVE"), &json!(0)));
    running.report(1, vec![Change::Found { subject: file("a"), size: Some(5) }], None).await;
    let (event, data) = next().await.unwrap();
    assert_eq!((event.as_str(), &data["files"], &data["subtasks_pending"]), ("event: progress", &json!(1), &json!(1)));
    bench.service.store.cancel(running.task, site.ada.id, "", bench.service.clock.now()).await.unwrap();
    let (event, data) = next().await.unwrap();
    assert_eq!((event.as_str(), &data["status"]), ("event: end", &json!("FAILED")));
    assert!(next().await.is_none());
    assert_eq!(bench.get(&path, &site.bob.token).await.status, 403);
}

#[tokio::test]
async fn the_log_has_a_line_for_every_item_that_is_done() {
    let bench = Bench::new().await;
    let site = site(&bench).await;
    let running = Running::of(&bench, &site.ada, site.mapped, "").await;
    let done = |name: &str| Change::Done { subject: file(name), bytes: 5, verification: Verification::NotAsked };
    running.report(1, vec![done("a"), Change::Failed { subject: file("b"), fault: missing() }], None).await;
    let many = (0..1500).map(|number| done(&format!("f{number}"))).collect();
    running.report(2, many, None).await;
    let path = format!("/v2/whimbrel/tasks/{}/log", running.task);
    let lines = |text: &str| -> Vec<Value> { text.lines().map(|line| serde_json::from_str(line).unwrap()).collect() };
    let all = lines(&bench.get(&path, &site.ada.token).await.text);
    assert_eq!(all.len(), 1502);
    assert_eq!((&all[0]["source_path"], &all[0]["state"]), (&json!("/from/a"), &json!("succeeded")));
    assert_eq!((&all[1]["error_code"], &all[1]["state"]), (&json!("FILE_NOT_FOUND"), &json!("failed")));
    let rest = lines(&bench.get(&format!("{path}?after=1501"), &site.ada.token).await.text);
    assert_eq!((rest.len(), &rest[0]["destination_path"]), (1, &json!("/to/f1499")));
}

/// A place that takes webhooks: what it was shown and told, and an address.
async fn place(status: u16) -> (Arc<Mutex<Vec<(String, Value)>>>, String, watch::Sender<bool>) {
    let heard: Arc<Mutex<Vec<(String, Value)>>> = Arc::default();
    let ears = heard.clone();
    let hear = move |headers: HeaderMap, body: String| async move {
        let token = headers["authorization"].to_str().unwrap().to_owned();
        ears.lock().unwrap().push((token, serde_json::from_str(&body).unwrap()));
        axum::http::StatusCode::from_u16(status).unwrap()
    };
    let address = "127.0.0.1:0".parse().unwrap();
    let listen = Listen { address, security: Security::Loopback, limits: Limits::default() };
    let server = Server::bind(listen).await.unwrap();
    let url = format!("http://127.0.0.1:{}/told?of=tasks", server.address().port());
    let (stop, stopped) = watch::channel(false);
    tokio::spawn(server.serve(Router::new().route("/told", post(hear)), stopped));
    (heard, url, stop)
}

#[tokio::test]
async fn webhooks_are_told_what_their_owners_want_to_hear() {
    let bench = Bench::new().await;
    let site = site(&bench).await;
    let (heard, url, _stop) = place(200).await;
    let hooks = "/v2/whimbrel/webhooks";
    let made = bench.post(hooks, &site.ada.token, json!({"url": url, "events": ["succeeded"]})).await.good();
    let secret = made["secret"].as_str().unwrap();
    Running::of(&bench, &site.ada, site.mapped, "sf").await.finish().await;
    let failing = Running::of(&bench, &site.ada, site.mapped, "sf").await;
    failing.report(1, Vec::new(), Some(End::Impossible { fault: missing() })).await;
    // Not wanted by its submission.
    Running::of(&bench, &site.ada, site.mapped, "f").await.finish().await;
    assert_eq!(bench.service.tell_due().await, Ok(2));
    {
        let heard = heard.lock().unwrap();
        assert_eq!(heard.len(), 1, "{heard:?}");
        assert_eq!(heard[0].0, format!("Bearer {secret}"));
        assert_eq!(
            (&heard[0].1["event"], &heard[0].1["task"]["status"]),
            (&json!("task.succeeded"), &json!("SUCCEEDED"))
        );
    }
    assert_eq!(bench.service.tell_due().await, Ok(0));
    let listed = bench.get(hooks, &site.ada.token).await.good();
    assert_eq!(listed["webhooks"][0]["last_error"], Value::Null);
    assert!(listed["webhooks"][0]["last_tried"].is_string() && listed["webhooks"][0].get("secret").is_none());
    bench.delete(&format!("{hooks}/{}", made["id"].as_str().unwrap()), &site.ada.token).await.good();
    Running::of(&bench, &site.ada, site.mapped, "s").await.finish().await;
    bench.service.tell_due().await.unwrap();
    assert_eq!(heard.lock().unwrap().len(), 1);
}

#[tokio::test]
async fn a_webhook_that_fails_is_tried_again_for_a_day_and_its_owner_sees_why() {
    let bench = Bench::new().await;
    let site = site(&bench).await;
    let (heard, url, _stop) = place(500).await;
    bench.post("/v2/whimbrel/webhooks", &site.ada.token, json!({"url": url})).await.good();
    Running::of(&bench, &site.ada, site.mapped, "s").await.finish().await;
    bench.service.tell_due().await.unwrap();
    assert_eq!(bench.service.tell_due().await, Ok(0));
    let listed = bench.get("/v2/whimbrel/webhooks", &site.ada.token).await.good();
    assert!(listed["webhooks"][0]["last_error"].as_str().unwrap().contains("500"), "{listed}");
    bench.clock.advance(30);
    assert_eq!(bench.service.tell_due().await, Ok(1));
    bench.clock.advance(24 * 3600);
    assert_eq!(bench.service.tell_due().await, Ok(1));
    bench.clock.advance(24 * 3600);
    assert_eq!((bench.service.tell_due().await, heard.lock().unwrap().len()), (Ok(0), 3));
}

#[tokio::test]
async fn webhooks_lead_to_public_places_only() {
    let bench = Bench::new().await;
    let somebody = bench.user("somebody").await;
    for url in
        ["http://example.org/", "ftp://127.0.0.1/", "https://", "https://a@b/", "https://a/ b", "x", "https://a/#b"]
    {
        let got = bench.post("/v2/whimbrel/webhooks", &somebody.token, json!({"url": url})).await;
        assert_eq!(got.status, 400, "{url}: {got:?}");
    }
    let site = site(&bench).await;
    let ada = site.ada;
    // A name that leads to this host is found out when it is asked.
    let (heard, url, _stop) = place(200).await;
    let url = url.replace("127.0.0.1", "localhost");
    bench.post("/v2/whimbrel/webhooks", &ada.token, json!({"url": url})).await.good();
    Running::of(&bench, &ada, site.mapped, "s").await.finish().await;
    bench.service.tell_due().await.unwrap();
    assert!(heard.lock().unwrap().is_empty());
    let listed = bench.get("/v2/whimbrel/webhooks", &ada.token).await.good();
    assert!(listed["webhooks"][0]["last_error"].as_str().unwrap().contains("public network"), "{listed}");
}

/// A mail server that takes letters: what was said to it, and its URL.
async fn mail_server(offers: &'static str) -> (Arc<Mutex<Vec<String>>>, String) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("smtp://127.0.0.1:{}", listener.local_addr().unwrap().port());
    let heard: Arc<Mutex<Vec<String>>> = Arc::default();
    let ears = heard.clone();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let (read, mut write) = stream.into_split();
            let mut lines = BufReader::new(read).lines();
            write.write_all(b"220 mail ready\r\n").await.unwrap();
            let mut in_letter = false;
            while let Ok(Some(line)) = lines.next_line().await {
                let answer = match (in_letter, line.as_str()) {
                    (true, ".") => "250 taken\r\n".to_owned(),
                    (true, _) => String::new(),
                    (false, "DATA") => "354 go on\r\n".to_owned(),
                    (false, line) if line.starts_with("EHLO") => format!("250-mail\r\n250 {offers}\r\n"),
                    (false, "QUIT") => "221 bye\r\n".to_owned(),
                    (false, _) => "250 ok\r\n".to_owned(),
                };
                in_letter = line == "DATA" || (in_letter && line != ".");
                ears.lock().unwrap().push(line);
                write.write_all(answer.as_bytes()).await.unwrap();
            }
        }
    });
    (heard, url)
}

/// A service that sends mail, and a user with an address.
async fn with_mail(url: &str) -> (Bench, Somebody, Uuid) {
    let mail = Some(MailServer::parse(url, "transfers@example.org").unwrap());
    let bench = Bench::telling(Settings { mail, ..Settings::trusting(None).unwrap() }).await;
    let site = site(&bench).await;
    let mut ada = bench.service.store.get::<Identity>(&site.ada.id.to_string()).await.unwrap().unwrap();
    ada.record.email = Some("ada@example.org".to_owned());
    bench.service.store.apply(Batch::new().update(&ada)).await.unwrap();
    (bench, site.ada, site.mapped)
}

#[tokio::test]
async fn owners_get_a_mail_about_the_end_of_their_task() {
    let (heard, url) = mail_server("8BITMIME").await;
    let (bench, ada, mapped) = with_mail(&url).await;
    let running = Running::of(&bench, &ada, mapped, "f").await;
    running.report(1, Vec::new(), Some(End::Impossible { fault: missing() })).await;
    assert_eq!(bench.service.tell_due().await, Ok(1));
    let heard = heard.lock().unwrap().clone();
    for line in ["MAIL FROM:<transfers@example.org>", "RCPT TO:<ada@example.org>", "To: ada@example.org", "."] {
        assert!(heard.iter().any(|heard| heard == line), "{line}: {heard:#?}");
    }
    // The letter's body stands between its first empty line and the dot.
    let body: String =
        heard.iter().skip_while(|line| !line.is_empty()).take_while(|line| *line != ".").cloned().collect();
    let body = String::from_utf8(<base64ct::Base64 as base64ct::Encoding>::decode_vec(&body).unwrap()).unwrap();
    assert!(body.contains("FAILED") && body.contains("FILE_NOT_FOUND") && body.contains("\u{fc}ber night"), "{body}");
    assert!(heard.iter().any(|line| line.starts_with("Subject: =?utf-8?B?")), "{heard:#?}");
    assert_eq!(bench.service.tell_due().await, Ok(0));
}

#[tokio::test]
async fn nothing_is_said_in_clear_where_tls_is_to_be() {
    let (heard, url) = mail_server("8BITMIME").await;
    let (bench, ada, mapped) = with_mail(&url.replace("smtp:", "smtp+starttls:")).await;
    Running::of(&bench, &ada, mapped, "s").await.finish().await;
    assert_eq!(bench.service.tell_due().await, Ok(1));
    assert_eq!(*heard.lock().unwrap(), ["EHLO whimbrel"]);
    // It is tried again later.
    bench.clock.advance(30);
    assert_eq!(bench.service.tell_due().await, Ok(1));
}

#[tokio::test]
async fn metrics_are_for_monitors_and_administrators() {
    let bench = Bench::new().await;
    let site = site(&bench).await;
    let _running = Running::of(&bench, &site.ada, site.mapped, "").await;
    let admin = bench.service.bootstrap_client("root", true).await.unwrap();
    let root = bench.token(&admin, "urn:globus:auth:scope:transfer.api.globus.org:all").await;
    let made = bench.post("/v2/whimbrel/clients", &root, json!({"name": "prometheus", "monitor": true})).await.good();
    let made = &made["included"]["client_credential"];
    let (id, secret) = (made["client"].as_str().unwrap(), made["secret"].as_str().unwrap());
    let fields =
        |scope| [("grant_type", "client_credentials"), ("client_id", id), ("client_secret", secret), ("scope", scope)];
    let token = bench.form("/v2/oauth2/token", None, &fields(Monitor::NAME)).await.good();
    let token = token["access_token"].as_str().unwrap();
    let other = fields("urn:globus:auth:scope:transfer.api.globus.org:all");
    assert_eq!(bench.form("/v2/oauth2/token", None, &other).await.status, 400);
    assert_eq!(bench.credentials(&site.ada.client, Monitor::NAME).await.status, 400);
    bench.service.recount_tasks().await.unwrap();
    for token in [token, &root] {
        let page = bench.get("/metrics", token).await;
        assert_eq!(page.status, 200);
        for line in [
            "whimbrel_tasks{state=\"running\"} 1",
            "whimbrel_recount_wrong_tasks 0",
            "whimbrel_requests_total{route=\"submit_transfer\",status=\"202\"} 1",
            "whimbrel_request_seconds_bucket{route=\"submit_transfer\",le=\"+Inf\"} 1",
        ] {
            assert!(page.text.lines().any(|found| found == line), "{line} is not in\n{}", page.text);
        }
    }
    assert_eq!(bench.get("/v0.10/task_list", token).await.status, 403);
}

#[tokio::test]
async fn a_wrong_counter_is_found_by_the_recount() {
    let directory = tempfile::tempdir().unwrap();
    let url = format!("sqlite:{}", directory.path().join("store.db").display());
    let bench = Bench::with(Arc::new(SetClock::at(NOW)), Store::open(&url).await.unwrap());
    let site = site(&bench).await;
    let running = Running::of(&bench, &site.ada, site.mapped, "").await;
    let done = |name: &str| Change::Done { subject: file(name), bytes: 5, verification: Verification::NotAsked };
    running.report(1, vec![done("a"), done("b"), Change::Found { subject: file("c"), size: None }], None).await;
    let recount = bench.service.recount_tasks().await.unwrap();
    assert_eq!((recount.tasks, recount.wrong.len()), (1, 0));
    let admin = bench.service.bootstrap_client("root", true).await.unwrap();
    let root = bench.token(&admin, "urn:globus:auth:scope:transfer.api.globus.org:all").await;
    let told = bench.post("/v2/whimbrel/recount", &root, json!({})).await.good();
    assert_eq!(told, json!({"tasks": 1, "wrong": []}));
    // A task that ends with items left undone adds up, too.
    bench.service.store.cancel(running.task, site.ada.id, "", bench.service.clock.now()).await.unwrap();
    assert_eq!(bench.service.recount_tasks().await.unwrap().wrong, []);

    let mut damage = SqliteConnection::connect(&url).await.unwrap();
    let sql = "UPDATE tasks SET counters = REPLACE(counters, '\"succeeded\":2', '\"succeeded\":3')";
    assert_eq!(sqlx::query(sql).execute(&mut damage).await.unwrap().rows_affected(), 1);
    let wrong = bench.service.recount_tasks().await.unwrap().wrong;
    assert_eq!(
        (wrong.len(), wrong[0].task, wrong[0].stored.succeeded, wrong[0].counted.succeeded),
        (1, running.task, 3, 2)
    );
    let subject = Some(running.task.to_string());
    let told = bench.service.store.audit(&AuditQuery { subject, ..AuditQuery::default() }, 10).await.unwrap();
    assert!(told.iter().any(|entry| entry.action == "task.miscount"), "{told:?}");
}

#[tokio::test]
async fn what_is_old_is_forgotten_and_nothing_else() {
    let bench = Bench::new().await;
    let site = site(&bench).await;
    bench.service.house.keep(Keeping { tasks: Some(90), audit: Some(400) });
    let old = Running::of(&bench, &site.ada, site.mapped, "").await;
    let done = |name: String| Change::Done { subject: file(&name), bytes: 5, verification: Verification::NotAsked };
    old.report(1, (0..6000).map(|number| done(number.to_string())).collect(), Some(End::Finished)).await;
    bench.clock.advance(60 * 24 * 3600);
    let young = Running::of(&bench, &site.ada, site.mapped, "").await;
    young.finish().await;
    let open = Running::of(&bench, &site.ada, site.mapped, "").await;
    bench.clock.advance(31 * 24 * 3600);
    bench.service.nightly().await.unwrap();
    let store = &bench.service.store;
    assert!(store.task(old.task).await.unwrap().is_none());
    assert_eq!(store.log(old.task, 0, 10).await.unwrap().len(), 0);
    assert!(store.task(young.task).await.unwrap().is_some() && store.task(open.task).await.unwrap().is_some());
    let entries = async || store.audit(&AuditQuery::default(), 1000).await.unwrap();
    assert!(entries().await.iter().any(|entry| entry.time < Timestamp::from_secs(NOW + 1)));
    bench.clock.advance(400 * 24 * 3600);
    bench.service.nightly().await.unwrap();
    assert!(entries().await.iter().all(|entry| entry.time > Timestamp::from_secs(NOW + 24 * 3600)));
    assert!(store.task(young.task).await.unwrap().is_none() && store.task(open.task).await.unwrap().is_some());
}
