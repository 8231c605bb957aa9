//! Servers that join an endpoint and tell of themselves.

use serde_json::{Value, json};
use uuid::Uuid;
use whimbrel_service::auth::scope::{Scope as _, TransferAll};

use crate::bench::Bench;
use crate::collections::site;
use crate::rights::{begin, claims, stopped, transfer};

fn told(address: &str) -> Value {
    let pin = format!("sha256:{}", "ab".repeat(32));
    json!({"addresses": [address], "pin": pin, "version": "1", "name": "dtn1", "load": 0.5})
}

const PLACE: &str = "/v2/whimbrel/servers";

#[tokio::test]
async fn a_token_lets_as_many_servers_join_as_it_is_for() {
    let bench = Bench::new().await;
    let site = site(&bench).await;
    let token = bench.service.join_token(site.endpoint, 1, 3600).await.unwrap();
    let refused = bench.post(PLACE, &token, json!({"addresses": ["http://somewhere"]})).await;
    assert_eq!(refused.status, 400, "{refused:?}");
    let joined = bench.post(PLACE, &token, told("whimbrel://dtn1.example.org:2811")).await;
    assert_eq!(joined.status, 201, "{joined:?}");
    assert_eq!(joined.json()["audience"], json!(site.endpoint));
    let again = bench.post(PLACE, &token, told("whimbrel://dtn2.example.org:2811")).await;
    assert_eq!(again.status, 401, "{again:?}");
    assert_eq!(bench.service.ready_servers(site.endpoint).await.unwrap().len(), 1);

    let late = bench.service.join_token(site.endpoint, 5, 3600).await.unwrap();
    bench.clock.advance(3601);
    assert_eq!(bench.post(PLACE, &late, told("whimbrel://dtn2.example.org:2811")).await.status, 401);
    // Nobody has heard of the first one for an hour.
    assert!(bench.service.ready_servers(site.endpoint).await.unwrap().is_empty());
}

#[tokio::test]
async fn a_server_tells_of_itself_only_and_gets_no_work_when_it_drains_or_is_silent() {
    let bench = Bench::new().await;
    let site = site(&bench).await;
    let token = bench.service.join_token(site.endpoint, 2, 3600).await.unwrap();
    let mut members = Vec::new();
    for name in ["dtn1", "dtn2"] {
        let made = bench.post(PLACE, &token, told(&format!("whimbrel://{name}:2811"))).await.json();
        let text = |field: &str| made[field].as_str().unwrap().to_owned();
        members.push((format!("{PLACE}/{}/beat", text("server_id")), text("secret")));
    }
    let [(first, secret), (second, _)] = &members[..] else { panic!("two have joined") };
    assert_eq!(bench.post(second, secret, told("whimbrel://evil:2811")).await.status, 403);
    assert_eq!(bench.post(first, &token, told("whimbrel://evil:2811")).await.status, 401);
    assert_eq!(bench.post(first, &site.ada.token, told("whimbrel://evil:2811")).await.status, 401);

    let ready = async || {
        let servers = bench.service.ready_servers(site.endpoint).await.unwrap();
        servers.into_iter().map(|server| server.url).collect::<Vec<_>>()
    };
    assert_eq!(ready().await.len(), 2);
    let mut draining = told("whimbrel://dtn1:2811");
    draining["draining"] = json!(true);
    assert_eq!(bench.post(first, secret, draining).await.status, 200);
    assert_eq!(ready().await, ["whimbrel://dtn2:2811"]);
    bench.clock.advance(36);
    assert!(ready().await.is_empty());
    assert_eq!(bench.post(first, secret, told("whimbrel://dtn1:2812")).await.status, 200);
    assert_eq!(ready().await, ["whimbrel://dtn1:2812"]);
}

/// What a server tells that takes no connections.
fn outbound(name: &str) -> Value {
    json!({"addresses": [], "pin": format!("sha256:{}", "ab".repeat(32)), "name": name, "outbound": true})
}

#[tokio::test]
async fn a_server_that_takes_no_connections_has_a_name_and_waits_for_itself_only() {
    let bench = Bench::new().await;
    let site = site(&bench).await;
    let token = bench.service.join_token(site.endpoint, 3, 3600).await.unwrap();
    let mut both = outbound("laptop");
    both["addresses"] = json!(["whimbrel://laptop:2811"]);
    for wrong in [both, json!({"addresses": []})] {
        assert_eq!(bench.post(PLACE, &token, wrong).await.status, 400);
    }
    let mut joined = Vec::new();
    for told in [outbound("Ada's laptop.local"), outbound("Ada's laptop.local"), told("whimbrel://dtn:2811")] {
        let made = bench.post(PLACE, &token, told).await.json();
        joined.push(["server_id", "secret"].map(|field| made[field].as_str().unwrap().to_owned()));
    }
    let servers = bench.service.ready_servers(site.endpoint).await.unwrap();
    let [first, second, third] = &joined[..] else { panic!("three have joined") };
    let named = |id: &str| servers.iter().find(|server| server.rendezvous.is_some_and(|known| known.to_string() == id));
    let urls = [&first[0], &second[0]].map(|id| named(id).unwrap().url.clone());
    assert_ne!(urls[0], urls[1]);
    assert!(urls.iter().all(|url| url.starts_with("whimbrel://Adaslaptop-")), "{urls:?}");
    assert!(named(&third[0]).is_none() && servers.len() == 3);

    let wait = async |id: &str, secret: &str| bench.get(&format!("{PLACE}/{id}/wait"), secret).await.status;
    assert_eq!(wait(&first[0], &first[1]).await, 426);
    assert_eq!(wait(&second[0], &first[1]).await, 403);
}

#[tokio::test]
async fn the_setup_key_of_ones_own_machine_lets_it_join_once() {
    let bench = Bench::new().await;
    let site = site(&bench).await;
    let wish = json!({"DATA_TYPE": "endpoint", "display_name": "laptop", "is_globus_connect": true});
    let made = bench.post("/v0.10/endpoint", &site.ada.token, wish).await.good();
    let key = made["globus_connect_setup_key"].as_str().unwrap();
    let joined = bench.post(PLACE, key, outbound("laptop")).await;
    assert_eq!((joined.status, &joined.json()["audience"]), (201, &made["id"]), "{joined:?}");
    assert_eq!(bench.post(PLACE, key, outbound("laptop")).await.status, 401);
    let shown = bench.get(&format!("/v0.10/endpoint/{}", made["id"].as_str().unwrap()), &site.ada.token).await.json();
    assert_eq!((&shown["gcp_connected"], &shown["DATA"][0]["outbound"]), (&json!(true), &json!(true)), "{shown:#}");
}

/// What a server tells that joins connections of others.
fn relay(address: &str, load: f64) -> Value {
    let mut told = told(address);
    (told["relay"], told["load"]) = (json!(true), json!(load));
    told
}

#[tokio::test]
async fn tasks_between_servers_that_take_no_connections_are_told_of_relays() {
    let bench = Bench::new().await;
    let site = site(&bench).await;
    let token = bench.service.join_token(site.endpoint, 9, 3600).await.unwrap();
    let mut both = outbound("laptop");
    both["relay"] = json!(true);
    assert_eq!(bench.post(PLACE, &token, both).await.status, 400);
    let join = async |told: Value| {
        let made = bench.post(PLACE, &token, told).await.json();
        let text = |field: &str| made[field].as_str().unwrap_or_else(|| panic!("{made}")).to_owned();
        (format!("{PLACE}/{}/beat", text("server_id")), text("secret"))
    };
    let busy = join(relay("whimbrel://busy:1", 2.0)).await;
    let idle = join(relay("whimbrel://idle:1", 0.5)).await;
    let task = transfer((site.mapped, "/a"), (site.mapped, "/b"));
    bench.post("/v0.10/transfer", &site.ada.token, task).await.good();
    let direct = begin(&bench).await;
    assert!(direct.relays.is_empty(), "its servers take connections");
    stopped(&bench, direct.lease).await;

    let laptop = join(outbound("laptop")).await;
    let hosts = |relays: &[whimbrel_engine::dispatch::Site]| {
        relays.iter().map(|relay| relay.servers[0].url.clone()).collect::<Vec<_>>()
    };
    let told = begin(&bench).await;
    assert_eq!(hosts(&told.relays), ["whimbrel://idle:1", "whimbrel://busy:1"]);
    assert!(told.relays[0].servers[0].pin.is_some());
    let shown = claims(&told.relays[0].credential);
    let expected = json!(["whimbrel.relay", site.endpoint, site.ada.id]);
    assert_eq!(json!([shown["scope"], shown["aud"], shown["sub"]]), expected, "it opens no file");
    stopped(&bench, told.lease).await;

    // One that is silent may come back, and is tried last; one that does so no more is forgotten.
    bench.clock.advance(40);
    assert_eq!(bench.post(&laptop.0, &laptop.1, outbound("laptop")).await.status, 200);
    assert_eq!(bench.post(&busy.0, &busy.1, relay("whimbrel://busy:2", 9.0)).await.status, 200);
    let told = begin(&bench).await;
    assert_eq!(hosts(&told.relays), ["whimbrel://busy:2", "whimbrel://idle:1"]);
    stopped(&bench, told.lease).await;
    assert_eq!(bench.post(&idle.0, &idle.1, self::told("whimbrel://idle:1")).await.status, 200);
    assert_eq!(hosts(&begin(&bench).await.relays), ["whimbrel://busy:2"]);
}

/// Whoever connects a machine of their own neither stands between others nor sends the service about in its network.
#[tokio::test]
async fn ones_own_machine_tells_no_addresses() {
    let bench = Bench::new().await;
    let site = site(&bench).await;
    let wish = json!({"DATA_TYPE": "endpoint", "display_name": "laptop", "is_globus_connect": true});
    let made = bench.post("/v0.10/endpoint", &site.ada.token, wish).await.good();
    let key = made["globus_connect_setup_key"].as_str().unwrap();
    for told in [relay("whimbrel://laptop:1", 0.0), told("whimbrel://127.0.0.1:25")] {
        let refused = bench.post(PLACE, key, told).await;
        assert!(refused.status == 400 && format!("{refused:?}").contains("--outbound"), "{refused:?}");
    }
    let joined = bench.post(PLACE, key, outbound("laptop")).await.good();
    let text = |field: &str| joined[field].as_str().unwrap().to_owned();
    let beat = format!("{PLACE}/{}/beat", text("server_id"));
    assert_eq!(bench.post(&beat, &text("secret"), told("whimbrel://127.0.0.1:25")).await.status, 400);
    assert_eq!(bench.post(&beat, &text("secret"), outbound("laptop")).await.status, 200);
    assert!(bench.service.relay_servers().await.unwrap().is_empty());
    let token = bench.service.join_token(site.endpoint, 1, 3600).await.unwrap();
    assert_eq!(bench.post(PLACE, &token, relay("whimbrel://dtn:1", 0.0)).await.status, 201);
    assert_eq!(bench.service.relay_servers().await.unwrap().len(), 1);
}

#[tokio::test]
async fn administrators_take_servers_away_and_those_that_are_silent_for_long_are_forgotten() {
    let bench = Bench::new().await;
    let site = site(&bench).await;
    let boss = bench.service.bootstrap_client("boss", true).await.unwrap();
    let boss = bench.token(&boss, TransferAll::NAME).await;
    let token = bench.service.join_token(site.endpoint, 3, 3600).await.unwrap();
    let mut joined = Vec::new();
    for name in ["dtn1", "dtn2", "dtn3"] {
        let made = bench.post(PLACE, &token, told(&format!("whimbrel://{name}:2811"))).await.json();
        joined.push(["server_id", "secret"].map(|field| made[field].as_str().unwrap().to_owned()));
    }
    let named = json!({"url": "whimbrel://named:2811"});
    bench.post(&format!("/v2/whimbrel/endpoints/{}/servers", site.endpoint), &boss, named).await.good();
    let left = async || {
        let list = bench.get(&format!("/v0.10/endpoint/{}/server_list", site.endpoint), &boss).await.good();
        let of = |server: &Value| server["server_id"].as_str().map(|_| server["hostname"].as_str().unwrap().to_owned());
        let mut names: Vec<_> = list["DATA"].as_array().unwrap().iter().filter_map(of).collect();
        names.sort();
        names
    };
    assert_eq!(left().await, ["dtn1", "dtn2", "dtn3", "named"]);

    let place = |endpoint: Uuid| format!("/v2/whimbrel/endpoints/{endpoint}/servers/{}", joined[0][0]);
    assert_eq!(bench.delete(&place(site.endpoint), &site.ada.token).await.status, 403);
    assert_eq!(bench.delete(&place(site.mapped), &boss).await.status, 404);
    bench.delete(&place(site.endpoint), &boss).await.good();
    assert_eq!(bench.delete(&place(site.endpoint), &boss).await.status, 404);
    assert_eq!(left().await, ["dtn2", "dtn3", "named"]);
    let beat = async |server: &[String; 2]| {
        bench.post(&format!("{PLACE}/{}/beat", server[0]), &server[1], told("whimbrel://dtn2:2811")).await.status
    };
    assert_eq!(beat(&joined[0]).await, 401);

    bench.clock.advance(20 * 24 * 3600);
    assert_eq!(beat(&joined[1]).await, 200);
    bench.clock.advance(11 * 24 * 3600);
    bench.service.nightly().await.unwrap();
    let servers = bench.service.servers(site.endpoint).await.unwrap();
    let mut names: Vec<_> = servers.iter().map(|server| server.addresses[0].as_str()).collect();
    names.sort_unstable();
    assert_eq!(names, ["whimbrel://dtn2:2811", "whimbrel://named:2811"]);
}
