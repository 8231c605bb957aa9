//! Servers that join an endpoint and tell of themselves.

use serde_json::{Value, json};

use crate::bench::Bench;
use crate::collections::site;

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
