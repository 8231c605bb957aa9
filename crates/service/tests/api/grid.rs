//! Stock servers: proxies that users register for them, and tasks that wait for one.

use serde_json::{Value, json};
use uuid::Uuid;
use whimbrel_engine::dispatch::{Assignment, Credential, End, Lease, Order, Report, Request, Response, Server};
use whimbrel_engine::{Fault, FaultCode, Side};
use whimbrel_service::grid::GridCredential;
use whimbrel_service::store::Record;
use whimbrel_testkit::pki::{Member, Pki};
use whimbrel_trust::clock;
use whimbrel_trust::gsi::{Delegate, deposit};
use whimbrel_trust::make::Life;

use crate::bench::{Bench, NOW, Somebody};
use crate::collections::id;

/// A service with two endpoints of stock servers, and a grid that they belong to.
pub struct Grid {
    pub bench: Bench,
    pki: Pki,
    alice: Member,
    pub ada: Somebody,
    pub endpoints: [Uuid; 2],
    collections: [Uuid; 2],
}

impl Grid {
    pub async fn new() -> Self {
        let bench = Bench::new().await;
        // Certificates live by the real clock.
        bench.clock.advance(clock::now().secs - NOW);
        let ada = bench.user("ada").await;
        let (mut endpoints, mut collections) = ([Uuid::nil(); 2], [Uuid::nil(); 2]);
        for (number, name) in ["Left", "Right"].into_iter().enumerate() {
            let servers = [1, 2].map(|host| Server::at(format!("gsiftp://{name}{host}.example.org"), None));
            endpoints[number] = bench.service.add_endpoint(ada.id, name, servers.to_vec()).await.unwrap().id;
            let made = bench.service.add_mapped(endpoints[number], ada.id, &format!("{name} data"), "/srv").await;
            collections[number] = made.unwrap().id;
        }
        let pki = Pki::new().unwrap();
        let alice = pki.person("alice").unwrap();
        Self { bench, pki, alice, ada, endpoints, collections }
    }

    /// The answer of somebody of the grid to a request that the service makes of a user.
    async fn answer(&self, user: &Somebody, place: Uuid, own: &Member, seconds: i64) -> Value {
        let path = format!("/v2/whimbrel/endpoints/{place}/credential/request");
        let made = self.bench.post(&path, &user.token, json!({})).await.good();
        assert!(!made.to_string().contains("PRIVATE"), "{made}");
        let life = Life::of(clock::now(), self.offset() + seconds);
        let request = made["request"].as_str().unwrap();
        json!({"chain": deposit::answer(request, &own.own, Delegate::Limited, life).unwrap()})
    }

    /// Seconds by which the service's clock was moved on.
    fn offset(&self) -> i64 {
        use whimbrel_service::clock::Clock as _;
        self.bench.clock.now().secs - clock::now().secs
    }

    pub async fn register(&self, place: Uuid, seconds: i64) -> Value {
        let answer = self.answer(&self.ada, place, &self.alice, seconds).await;
        self.bench.put(&format!("/v2/whimbrel/endpoints/{place}/credential"), &self.ada.token, answer).await.good()
    }

    async fn submit(&self, copy: &str) -> Uuid {
        let submission = self.bench.get("/v0.10/submission_id", &self.ada.token).await.good()["value"].clone();
        let item = json!({"DATA_TYPE": "transfer_item", "source_path": "/a", "destination_path": copy});
        let document = json!({"DATA_TYPE": "transfer", "submission_id": submission, "DATA": [item],
                              "source_endpoint": self.collections[0], "destination_endpoint": self.collections[1]});
        id(&self.bench.post("/v0.10/transfer", &self.ada.token, document).await.good()["task_id"])
    }

    async fn shown(&self, task: Uuid) -> Value {
        self.bench.get(&format!("/v0.10/task/{task}"), &self.ada.token).await.good()
    }

    async fn waits(&self, task: Uuid) -> Value {
        loop {
            let shown = self.shown(task).await;
            if shown["status"] == "INACTIVE" {
                return shown;
            }
            tokio::task::yield_now().await;
        }
    }

    async fn poll(&self, running: Vec<Lease>) -> Vec<Order> {
        let free = if running.is_empty() { 3 } else { 0 };
        let poll = Request::Poll { orchestrator: Uuid::from_u128(5), free, running, ending: Vec::new() };
        let Response::Orders { orders } = self.bench.service.dispatch(poll).await.unwrap() else { panic!("orders") };
        orders
    }

    async fn run(&self) -> Assignment {
        let orders = self.poll(Vec::new()).await;
        let [Order::Run(assignment)] = &orders[..] else { panic!("one task: {orders:?}") };
        (**assignment).clone()
    }

    async fn ended(&self, lease: Lease, end: End) {
        let (changes, occurrences) = (Vec::new(), Vec::new());
        let report = Report { lease, sequence: 1, changes, occurrences, gauge: None, end: Some(end) };
        let taken = self.bench.service.dispatch(Request::Report(Box::new(report))).await.unwrap();
        assert!(matches!(taken, Response::Taken));
    }
}

#[tokio::test]
async fn a_proxy_is_registered_by_its_owner_and_its_key_told_to_nobody() {
    let grid = Grid::new().await;
    let (bench, ada, bob) = (&grid.bench, &grid.ada, grid.bench.user("bob").await);
    let path = format!("/v2/whimbrel/endpoints/{}/credential", grid.collections[0]);
    let missing = bench.get(&path, &ada.token).await;
    assert_eq!((missing.status, missing.code().as_str()), (404, "CredentialNotFound"), "{missing:?}");
    assert!(missing.text.contains("whimbrel endpoint credential 'Left data'"), "{missing:?}");
    let early = bench.put(&path, &ada.token, json!({"chain": "x"})).await;
    assert_eq!(early.status, 409, "{early:?}");

    let answer = grid.answer(ada, grid.collections[0], &grid.alice, 3600).await;
    // Asked again, it is the same key; and to Bob it is worth nothing.
    grid.answer(&bob, grid.endpoints[0], &grid.alice, 3600).await;
    let stolen = bench.put(&path, &bob.token, answer.clone()).await;
    assert!(stolen.status == 400 && stolen.text.contains("another key"), "{stolen:?}");
    for chain in ["", "x", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"] {
        assert_eq!(bench.put(&path, &ada.token, json!({"chain": chain})).await.status, 400, "{chain}");
    }
    let long = grid.answer(ada, grid.collections[0], &grid.alice, 30 * 24 * 3600).await;
    let made = bench.put(&path, &ada.token, answer).await.good();
    assert_eq!((&made["subject"], &made["kind"]), (&json!("/O=Grid/CN=alice"), &json!("limited proxy")));
    assert_eq!(bench.put(&path, &ada.token, long).await.status, 409, "an answer is taken once");

    let kept = bench.service.grid_credential(grid.endpoints[0], ada.id).await.unwrap().unwrap().record;
    assert!(!kept.sealed.windows(7).any(|part| part == b"PRIVATE") && !format!("{kept:?}").contains("sealed"));
    let pem = bench.service.store.unseal(GridCredential::KIND, &kept.id(), &kept.sealed).unwrap();
    assert!(pem.windows(7).any(|part| part == b"PRIVATE"));
    let shown = bench.get(&path, &ada.token).await;
    assert!(!shown.text.contains("PRIVATE") && shown.good()["expires_in"].as_i64().unwrap() > 3000, "{shown:?}");
    assert_eq!(bench.get(&path, &bob.token).await.status, 404);
    assert_eq!(bench.delete(&path, &bob.token).await.status, 404);
    let document = async |who: &Somebody| {
        let path = format!("/v0.10/endpoint/{}", grid.collections[0]);
        bench.get(&path, &who.token).await.good()["activated"].clone()
    };
    assert_eq!((document(ada).await, document(&bob).await), (json!(true), json!(false)));
    bench.delete(&path, &ada.token).await.good();
    assert_eq!(bench.get(&path, &ada.token).await.status, 404);
    assert!(grid.pki.certificates().is_dir());
}

#[tokio::test]
async fn stock_servers_are_an_endpoint_of_their_own_and_share_nothing() {
    let grid = Grid::new().await;
    let bench = &grid.bench;
    let share = json!({"host_endpoint": grid.collections[0], "host_path": "/x/", "display_name": "Shared"});
    let refused = bench.post("/v0.10/shared_endpoint", &grid.ada.token, share).await;
    assert!(refused.status == 409 && refused.text.contains("stock servers"), "{refused:?}");
    let token = bench.service.join_token(grid.endpoints[0], 1, 3600).await.unwrap();
    let told = json!({"addresses": ["whimbrel://dtn.example.org:1"]});
    assert_eq!(bench.post("/v2/whimbrel/servers", &token, told).await.status, 409);
    let admin = bench.service.bootstrap_client("root", true).await.unwrap();
    let root = bench.token(&admin, "urn:globus:auth:scope:transfer.api.globus.org:all").await;
    let path = format!("/v2/whimbrel/endpoints/{}/servers", grid.endpoints[0]);
    for (url, status) in [("ftp://third.example.org", 409), ("gsiftp://third.example.org", 201), ("sshftp://x", 400)] {
        assert_eq!(bench.post(&path, &root, json!({"url": url})).await.status, status, "{url}");
    }
    let mixed = json!({"display_name": "Mixed", "servers": ["gsiftp://a", "whimbrel://b"]});
    assert_eq!(bench.post("/v2/whimbrel/endpoints", &root, mixed).await.status, 409);
    // Servers for anybody ask for nothing.
    let open = json!({"display_name": "Open", "servers": ["ftp://a"]});
    let open = id(&bench.post("/v2/whimbrel/endpoints", &root, open).await.good()["id"]);
    let path = format!("/v2/whimbrel/endpoints/{open}/credential/request");
    assert_eq!(bench.post(&path, &root, json!({})).await.status, 409);
}

#[tokio::test]
async fn a_task_waits_for_a_credential_and_goes_on_with_another() {
    let grid = Grid::new().await;
    let task = grid.submit("/b").await;
    grid.register(grid.collections[1], 7200).await;
    let (first, waited) = tokio::join!(grid.run(), async {
        let shown = grid.waits(task).await;
        grid.register(grid.collections[0], 3600).await;
        shown
    });
    assert_eq!(waited["nice_status"], "NO_CREDENTIALS", "{waited:#}");
    let details = waited["nice_status_details"].as_str().unwrap();
    assert!(details.contains("whimbrel endpoint credential 'Left data'"), "{details}");
    for site in [&first.source, first.destination.as_ref().unwrap()] {
        let Credential::Proxy { pem } = &site.credential else { panic!("{site:?}") };
        assert!(pem.contains("PRIVATE KEY") && !format!("{site:?}").contains("PRIVATE") && site.servers.len() == 2);
    }
    assert_eq!(grid.shown(task).await["not_promised"], json!(["durability"]));
    let events = grid.bench.get(&format!("/v0.10/task/{task}/event_list"), &grid.ada.token).await.good();
    for code in ["NO_CREDENTIALS", "UNPAUSED", "NOT_DURABLE"] {
        let has = |event: &&Value| event["code"] == code;
        assert!(events["DATA"].as_array().unwrap().iter().any(|event| has(&event)), "{code}: {events:#}");
    }

    // Its end comes while the task runs.
    grid.bench.clock.advance(3700);
    let orders = grid.poll(vec![first.lease]).await;
    assert!(matches!(&orders[..], [Order::Stop { lease }] if *lease == first.lease), "{orders:?}");
    grid.ended(first.lease, End::Stopped).await;
    let (second, waited) = tokio::join!(grid.run(), async {
        let shown = grid.waits(task).await;
        grid.register(grid.endpoints[0], 3600).await;
        shown
    });
    assert_eq!(waited["nice_status"], "AUTH", "{waited:#}");
    assert!(waited["nice_status_details"].as_str().unwrap().contains("has ended at"), "{waited:#}");
    assert!(second.lease.epoch > first.lease.epoch && second.source.credential != first.source.credential);
}

#[tokio::test]
async fn a_bound_on_stock_servers_is_kept_by_who_drives_them_for_all_tasks_of_one_owner_together() {
    let grid = Grid::new().await;
    grid.register(grid.collections[0], 7200).await;
    grid.register(grid.collections[1], 7200).await;
    let place = format!("/v0.10/endpoint/{}", grid.endpoints[1]);
    grid.bench.put(&place, &grid.ada.token, json!({"max_rate": 5000})).await.good();
    grid.submit("/b").await;
    let first = grid.run().await;
    assert_eq!(first.max_rate, Some(5000));
    grid.submit("/c").await;
    assert_eq!(grid.run().await.max_rate, Some(2500));
}

#[tokio::test]
async fn a_renewed_credential_is_used_before_the_former_ends_and_one_that_a_server_refuses_is_not_tried_again() {
    let grid = Grid::new().await;
    for place in grid.collections {
        grid.register(place, 3600).await;
    }
    let task = grid.submit("/b").await;
    let first = grid.run().await;
    grid.register(grid.collections[1], 3600).await;
    let orders = grid.poll(vec![first.lease]).await;
    assert!(matches!(&orders[..], [Order::Stop { .. }]), "{orders:?}");
    grid.ended(first.lease, End::Stopped).await;
    let second = grid.run().await;
    assert_eq!(second.source.credential, first.source.credential);
    assert_ne!(second.destination, first.destination);

    let fault = Fault::new(FaultCode::LoginFailed, "log in").side(Side::Peer).detail("no line in the grid-mapfile");
    grid.ended(second.lease, End::NeedsCredential { fault }).await;
    let waited = grid.waits(task).await;
    let details = waited["nice_status_details"].as_str().unwrap();
    assert!(details.contains("grid-mapfile") && details.contains("endpoint credential 'Right data'"), "{details}");
    grid.bench.service.heed_credentials(None).await.unwrap();
    assert_eq!(grid.shown(task).await["status"], "INACTIVE");
    grid.register(grid.collections[1], 3600).await;
    assert_eq!(grid.shown(task).await["status"], "ACTIVE");
    assert_eq!(grid.run().await.lease.epoch, second.lease.epoch + 1);
    // Taken away while the task runs.
    let third = Lease { task, epoch: second.lease.epoch + 1 };
    grid.bench
        .delete(&format!("/v2/whimbrel/endpoints/{}/credential", grid.endpoints[0]), &grid.ada.token)
        .await
        .good();
    let orders = grid.poll(vec![third]).await;
    assert!(matches!(&orders[..], [Order::Stop { .. }]), "{orders:?}");
}

#[tokio::test]
async fn what_ended_long_ago_is_forgotten() {
    let grid = Grid::new().await;
    grid.register(grid.collections[0], 3600).await;
    grid.answer(&grid.ada, grid.collections[1], &grid.alice, 60).await;
    let kept = async || grid.bench.service.store.count_records("grid_credential").await.unwrap();
    grid.bench.clock.advance(2 * 3600);
    grid.bench.service.forget_credentials().await.unwrap();
    assert_eq!(
        (kept().await, grid.bench.service.store.count_records("grid_credential_request").await.unwrap()),
        (1, 0)
    );
    grid.bench.clock.advance(7 * 24 * 3600);
    grid.bench.service.forget_credentials().await.unwrap();
    assert_eq!(kept().await, 0);
}
