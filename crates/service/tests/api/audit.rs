//! Who did what: every route that changes something is done here, and found in the audit log.

use std::collections::BTreeSet;

use axum::body::Body;
use axum::http::Method;
use axum::http::Request as HttpRequest;
use axum::http::header::{CONTENT_TYPE, COOKIE};
use serde_json::{Value, json};
use uuid::Uuid;
use whimbrel_engine::dispatch::{OperationResult, Order, Request, Response};
use whimbrel_engine::{Fault, FaultCode};
use whimbrel_service::Service;
use whimbrel_service::auth::scope::{GroupsAll, Scope, TimersAll, TransferAll, manage_collections};

use crate::bench::{Bench, Got, Somebody};
use crate::collections::{Site, id, site};
use crate::grid::Grid;
use crate::logins::{VERIFIER, client, exchange, log_in, opened, path};

const AUDIT: &str = "/v2/whimbrel/audit";

/// Routes of which nothing is kept: each has a reason.
const SILENT: &[&str] = &[
    // They tell, and change nothing.
    "oauth2_introspect",
    "oauth2_validate",
    "plan_transfer",
    "plan_delete",
    "recount",
    // It refuses always.
    "remove_task",
    // A key waits for an answer; nothing is given before that.
    "credential_request",
    // What servers, orchestrators and replicas tell of their work: tasks have logs of their own, and what users asked for is kept where
    // they asked.
    "server_beat",
    "dispatch",
    "replica_operate",
    "replica_answer",
    // Once for each file that somebody opens: the servers' own logs have it.
    "server_access",
    // One's own notes, which give nothing to anybody.
    "bookmark_create",
    "bookmark_update",
    "bookmark_delete",
];

/// Goes through the table of routes.
struct Walk<'a> {
    bench: &'a Bench,
    reader: String,
    mark: u64,
    done: BTreeSet<&'static str>,
    /// What must not stand in the log.
    secrets: Vec<String>,
}

impl<'a> Walk<'a> {
    async fn new(bench: &'a Bench) -> Self {
        let reader = bench.service.bootstrap_client("reader", true).await.unwrap();
        let reader = bench.token(&reader, TransferAll::NAME).await;
        Self { bench, reader, mark: 0, done: BTreeSet::new(), secrets: Vec::new() }
    }

    /// What was kept since the last look, but for the look.
    async fn news(&mut self) -> Vec<Value> {
        let news = lines(self.bench, &self.reader, &format!("after={}", self.mark)).await;
        self.mark = news.last().unwrap()["mark"].as_u64().unwrap();
        news.into_iter().filter(|entry| entry["action"] != "audit.read").collect()
    }

    /// Does what a route is for, with `parts` in its path's places, and finds in the log that `by` did `action`.
    async fn act(
        &mut self,
        name: &'static str,
        parts: &[&str],
        token: &str,
        body: Value,
        (by, action): (Uuid, &str),
    ) -> Value {
        let route = Service::routes().into_iter().find(|route| route.name == name).unwrap();
        let mut place = route.path.to_owned();
        for part in parts {
            let (begin, end) = (place.find('{').unwrap(), place.find('}').unwrap());
            place.replace_range(begin..=end, part);
        }
        let body = (route.method != Method::DELETE).then_some(body);
        self.news().await;
        let got = self.bench.ask(route.method.clone(), &place, Some(token), body).await;
        let answer = got.good();
        self.found(name, &by.to_string(), action).await;
        answer
    }

    /// Finds in the log that `by` did `action` by way of a route.
    async fn found(&mut self, name: &'static str, by: &str, action: &str) -> Value {
        let news = self.news().await;
        let entry = news.iter().find(|entry| entry["action"] == action && entry["actor"] == by);
        let entry = entry.unwrap_or_else(|| panic!("{name}: no {action} by {by} in {news:#?}")).clone();
        self.done.insert(name);
        entry
    }
}

/// Lines of the log.
async fn lines(bench: &Bench, token: &str, query: &str) -> Vec<Value> {
    let got = bench.get(&format!("{AUDIT}?{query}"), token).await;
    assert_eq!(got.status, 200, "{got:?}");
    got.text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Everything that users do with what they own, or manage.
async fn owners(walk: &mut Walk<'_>, site: &Site) {
    let (ada, bob) = (&site.ada, site.bob.id);
    let (token, guest) = (ada.token.as_str(), site.guest.to_string());
    let by = |action| (ada.id, action);
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let laptop = json!({"display_name": "Laptop", "is_globus_connect": true});
    let laptop = walk.act("endpoint_create", &[], token, laptop, by("collection.create")).await;
    walk.secrets.push(text(&laptop["globus_connect_setup_key"]));
    let shared = json!({"host_endpoint": site.mapped, "host_path": "/x/", "display_name": "d"});
    let shared = walk.act("shared_endpoint_create", &[], token, shared, by("collection.create")).await;
    walk.act("endpoint_delete", &[&text(&shared["id"])], token, json!({}), by("collection.delete")).await;
    walk.act("endpoint_update", &[&guest], token, json!({"description": "d"}), by("collection.update")).await;
    let (none, yes) = (json!({"subscription_id": null}), json!({"subscription_admin_verified": true}));
    walk.act("endpoint_subscription", &[&guest], token, none, by("collection.update")).await;
    walk.act("endpoint_verified", &[&guest], token, yes, by("collection.update")).await;
    let endpoint = site.endpoint.to_string();
    let mapped = json!({"display_name": "m", "base_path": "/m"});
    walk.act("mapped_collection_create", &[&endpoint], token, mapped, by("collection.create")).await;

    let rule = json!({"principal_type": "identity", "principal": bob, "path": "/x/", "permissions": "r"});
    let rule = text(&walk.act("access_create", &[&guest], token, rule, by("access.create")).await["access_id"]);
    let wider = json!({"permissions": "rw"});
    walk.act("access_update", &[&guest, &rule], token, wider, by("access.update")).await;
    walk.act("access_delete", &[&guest, &rule], token, json!({}), by("access.delete")).await;
    let role = json!({"principal_type": "identity", "principal": bob, "role": "activity_monitor"});
    let role = text(&walk.act("role_create", &[&guest], token, role, by("role.create")).await["id"]);
    walk.act("role_delete", &[&guest, &role], token, json!({}), by("role.delete")).await;
    let pause = json!({"endpoint_id": guest, "message": "m", "identity_id": bob});
    let pause = text(&walk.act("pause_rule_create", &[], token, pause, by("pause_rule.create")).await["id"]);
    walk.act("pause_rule_update", &[&pause], token, json!({"message": "n"}), by("pause_rule.update")).await;
    walk.act("pause_rule_delete", &[&pause], token, json!({}), by("pause_rule.delete")).await;
    let rate = json!({"endpoint_id": guest, "max_rate": 5});
    let made = walk.act("rate_rule_create", &[], token, rate.clone(), by("rate_rule.create")).await;
    let rule = text(&made["id"]);
    walk.act("rate_rule_update", &[&rule], token, rate, by("rate_rule.update")).await;
    walk.act("rate_rule_delete", &[&rule], token, json!({}), by("rate_rule.delete")).await;
    let hook = json!({"url": "https://example.org/x"});
    let hook = walk.act("webhook_create", &[], token, hook, by("webhook.create")).await;
    walk.secrets.push(text(&hook["secret"]));
    walk.act("webhook_delete", &[&text(&hook["id"])], token, json!({}), by("webhook.delete")).await;
    let ends: Vec<_> = [site.mapped, site.guest].map(|id| json!({"collection_id": id, "dataset": "/probe"})).into();
    let matrix = json!({"name": "m", "interval_seconds": 3600, "ends": ends});
    let matrix = text(&walk.act("matrix_create", &[], token, matrix, by("matrix.create")).await["id"]);
    walk.act("matrix_delete", &[&matrix], token, json!({}), by("matrix.delete")).await;
}

async fn groups_and_timers(walk: &mut Walk<'_>, site: &Site) {
    let (bench, ada) = (walk.bench, &site.ada);
    let by = |action| (ada.id, action);
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let token = bench.token(&ada.client, GroupsAll::NAME).await;
    let group = text(&walk.act("group_create", &[], &token, json!({"name": "g"}), by("group.create")).await["id"]);
    walk.act("group_update", &[&group], &token, json!({"name": "h"}), by("group.update")).await;
    let add = json!({"add": [{"identity_id": site.bob.id}]});
    walk.act("group_membership_actions", &[&group], &token, add, by("group.members")).await;
    let policies = bench.get(&format!("/v2/groups/{group}/policies"), &token).await.good();
    walk.act("group_set_policies", &[&group], &token, policies, by("group.policies")).await;
    walk.act("group_delete", &[&group], &token, json!({}), by("group.delete")).await;

    let token = bench.token(&ada.client, TimersAll::NAME).await;
    let body = json!({"source_endpoint": site.mapped, "destination_endpoint": site.mapped,
                      "DATA": [{"source_path": "/a", "destination_path": "/b"}]});
    let timer = json!({"timer": {"schedule": {"type": "once", "datetime": "2099-01-01"}, "body": body}});
    let timer = walk.act("timer_create", &[], &token, timer, by("timer.create")).await;
    let timer = text(&timer["timer"]["job_id"]);
    walk.act("timer_update", &[&timer], &token, json!({"name": "t"}), by("timer.update")).await;
    walk.act("timer_pause", &[&timer], &token, json!({}), by("timer.pause")).await;
    walk.act("timer_resume", &[&timer], &token, json!({}), by("timer.resume")).await;
    walk.act("timer_delete", &[&timer], &token, json!({}), by("timer.delete")).await;
    let job = json!({"name": "j", "start": "2099-01-01T00:00:00", "interval": null,
                     "callback_url": "https://transfer.api.globus.org/v0.10/transfer", "callback_body": {"body": body}});
    walk.act("timer_create_job", &[], &token, job, by("timer.create")).await;
}

async fn tasks(walk: &mut Walk<'_>, site: &Site) {
    let (ada, bob) = (&site.ada, &site.bob);
    let item = json!({"source_path": "/a", "destination_path": "/b"});
    let copy = json!({"DATA_TYPE": "transfer", "submission_id": Uuid::from_u128(0x40_0080_0000_0000_0000_0001_u128),
                      "source_endpoint": site.mapped, "destination_endpoint": site.mapped, "DATA": [item]});
    let copy = walk.act("submit_transfer", &[], &bob.token, copy, (bob.id, "task.submit")).await["task_id"].clone();
    let copy = copy.as_str().unwrap();
    walk.act("update_task", &[copy], &bob.token, json!({"label": "x"}), (bob.id, "task.update")).await;
    let named = json!({"message": "m", "task_id_list": [copy]});
    walk.act("manager_pause", &[], &ada.token, named.clone(), (ada.id, "task.pause")).await;
    walk.act("manager_resume", &[], &ada.token, named.clone(), (ada.id, "task.resume")).await;
    walk.act("manager_cancel", &[], &ada.token, named, (ada.id, "task.cancel")).await;
    let delete = json!({"DATA_TYPE": "delete", "endpoint": site.mapped, "DATA": [{"path": "/x"}],
                        "submission_id": Uuid::from_u128(0x40_0080_0000_0000_0000_0002_u128)});
    let gone = walk.act("submit_delete", &[], &bob.token, delete, (bob.id, "task.submit")).await["task_id"].clone();
    walk.act("cancel_task", &[gone.as_str().unwrap()], &bob.token, json!({}), (bob.id, "task.cancel")).await;
}

/// Answers the next operation as an orchestrator does.
async fn operated(bench: &Bench, result: Result<OperationResult, Fault>) {
    let poll = Request::Poll { orchestrator: Uuid::from_u128(3), free: 0, running: Vec::new(), ending: Vec::new() };
    loop {
        let Response::Orders { orders } = bench.service.dispatch(poll.clone()).await.unwrap() else { panic!("orders") };
        if let Some(Order::Operate(operation)) = orders.into_iter().next() {
            let answer = Request::Answer { operation: operation.id, result };
            bench.service.dispatch(answer).await.unwrap();
            return;
        }
    }
}

async fn operations(walk: &mut Walk<'_>, site: &Site) {
    let (bench, ada, place) = (walk.bench, &site.ada, site.mapped.to_string());
    let rename = json!({"old_path": "/a", "new_path": "/b"});
    let link = json!({"path": "/l", "symlink_target": "/a"});
    for (name, body, action) in [
        ("operation_mkdir", json!({"path": "/d"}), "file.mkdir"),
        ("operation_rename", rename, "file.rename"),
        ("operation_symlink", link, "file.symlink"),
    ] {
        let place = [place.as_str()];
        let acting = walk.act(name, &place, &ada.token, body, (ada.id, action));
        tokio::join!(acting, operated(bench, Ok(OperationResult::Done)));
    }
    // What came of it is told, too.
    let path = format!("/v0.10/operation/endpoint/{place}/mkdir");
    let refused = Fault::new(FaultCode::PermissionDenied, "mkdir");
    let (got, ()) = tokio::join!(bench.post(&path, &ada.token, json!({"path": "/e"})), operated(bench, Err(refused)));
    assert_eq!(got.status, 403, "{got:?}");
    let kept = walk.found("operation_mkdir", &ada.id.to_string(), "file.mkdir").await;
    assert_eq!(kept["subject"], json!(site.mapped));
    assert_eq!(kept["detail"], json!({"path": "/e", "outcome": FaultCode::PermissionDenied.name()}));
}

async fn administrators(walk: &mut Walk<'_>, site: &Site) -> String {
    let bench = walk.bench;
    let boss = bench.service.bootstrap_client("boss", true).await.unwrap();
    let (token, boss) = (bench.token(&boss, TransferAll::NAME).await, boss.client.id);
    let by = |action| (boss, action);
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let grace = json!({"username": "grace@example.org", "password": "hunter2 and more"});
    walk.secrets.push("hunter2".to_owned());
    let grace = text(&walk.act("identity_add", &[], &token, grace, by("identity.create")).await["id"]);
    walk.act("identity_change", &[&grace], &token, json!({"disabled": true}), by("identity.close")).await;
    let made = walk.act("client_add", &[], &token, json!({"name": "n"}), by("client.create")).await;
    walk.secrets.push(text(&made["included"]["client_credential"]["secret"]));
    let mover = walk.act("orchestrator", &[], &token, json!({"name": "mover"}), by("client.create")).await;
    walk.secrets.push(text(&mover["client_secret"]));
    let wish = json!({"display_name": "d", "owner": site.ada.id});
    walk.act("deployment_create", &[], &token, wish, by("collection.create")).await;
    let endpoint = site.endpoint.to_string();
    let named = json!({"url": "whimbrel://dtn9.example.org:2811"});
    let made = walk.act("server_name", &[&endpoint], &token, named, by("server.name")).await;
    walk.act("server_remove", &[&endpoint, &text(&made["id"])], &token, json!({}), by("server.remove")).await;
    let join = walk.act("join_token", &[&endpoint], &token, json!({}), by("join_token.create")).await;
    let join = text(&join["token"]);
    walk.secrets.push(join.clone());
    join
}

async fn servers(walk: &mut Walk<'_>, site: &Site, ticket: &str) {
    let bench = walk.bench;
    let told = json!({"addresses": ["whimbrel://dtn1.example.org:2811"], "pin": format!("sha256:{}", "ab".repeat(32))});
    let joined = bench.post("/v2/whimbrel/servers", ticket, told).await.good();
    let text = |name: &str| joined[name].as_str().unwrap().to_owned();
    let (server, secret) = (text("server_id"), text("secret"));
    walk.found("server_join", &server, "server.join").await;
    walk.secrets.push(secret.clone());
    let ada = bench.token(&site.ada.client, &manage_collections(site.endpoint)).await;
    let path = format!("/collections/{}", site.guest);
    let wish = json!({"token": ada, "method": "PATCH", "path": path, "body": {"description": "by its manager"}});
    walk.act("server_manage", &[&server], &secret, wish, (site.ada.id, "collection.update")).await;
    walk.secrets.push(ada);
}

async fn programs(walk: &mut Walk<'_>) {
    let bench = walk.bench;
    let ada = bench.service.bootstrap_person("ada@example.org", "s3cret", false).await.unwrap();
    let made = client(bench, false).await;
    let (page, id) = (path(&made, &[]), made.client.id.to_string());
    let (cookie, ticket) = opened(bench, &page).await;
    walk.news().await;
    assert_eq!(log_in(bench, &page, &cookie, &ticket, "wr0ng").await.status, 403);
    let kept = walk.found("oauth2_login", "nobody", "login.refused").await;
    assert_eq!((&kept["subject"], &kept["detail"]["by"]), (&json!(ada.id), &json!("password")));
    let back = log_in(bench, &page, &cookie, &ticket, "s3cret").await.location.unwrap();
    let kept = walk.found("oauth2_login", &ada.id.to_string(), "login").await;
    assert_eq!((&kept["subject"], &kept["actor_name"]), (&json!(id), &json!("ada@example.org")));
    let code = form_urlencoded::parse(back.split_once('?').unwrap().1.as_bytes()).next().unwrap().1.into_owned();
    let tokens = exchange(bench, &made, &code, VERIFIER).await.good();
    walk.found("oauth2_token", &ada.id.to_string(), "token.grant").await;
    let access = tokens["access_token"].as_str().unwrap().to_owned();
    bench.form("/v2/oauth2/token/revoke", None, &[("token", &access)]).await.good();
    walk.found("oauth2_revoke", &ada.id.to_string(), "token.revoke").await;
    let refresh = tokens["refresh_token"].as_str().unwrap().to_owned();
    walk.secrets.extend([code, access, refresh, "s3cret".to_owned(), "wr0ng".to_owned()]);

    let wish = json!({"client": {"template_id": "95fdeba8-fac2-42bd-a357-e068d82ff78e", "name": "laptop"}});
    let own = bench.ask(Method::POST, "/v2/api/clients", None, Some(wish)).await.good();
    walk.found("client_from_template", "nobody", "client.create").await;
    let credential = &own["included"]["client_credential"];
    let (id, secret) = (credential["client"].as_str().unwrap(), credential["secret"].as_str().unwrap());
    for (secret, status) in [("ws_guess", 401), (secret, 200)] {
        assert_eq!(by_client(bench, id, secret).await.status, status);
    }
    let news = walk.news().await;
    assert!(news.iter().any(|entry| entry["action"] == "client.refused" && entry["subject"] == id), "{news:#?}");
    let removed = news.iter().find(|entry| entry["action"] == "client.remove");
    assert!(removed.is_some_and(|entry| entry["actor"] == id), "{news:#?}");
    walk.done.insert("client_remove");
    walk.secrets.extend([secret.to_owned(), "ws_guess".to_owned()]);
}

/// A client takes itself away.
async fn by_client(bench: &Bench, id: &str, secret: &str) -> Got {
    use base64ct::{Base64, Encoding as _};
    let basic = Base64::encode_string(format!("{id}:{secret}").as_bytes());
    let request = HttpRequest::builder().method(Method::DELETE).uri(format!("/v2/api/clients/{id}"));
    let request = request.header("authorization", format!("Basic {basic}")).header(COOKIE, "");
    bench.send(request.header(CONTENT_TYPE, "application/json").body(Body::empty()).unwrap()).await
}

#[tokio::test]
async fn whatever_is_changed_is_kept_and_nothing_secret_with_it() {
    let bench = Bench::new().await;
    let site = site(&bench).await;
    let mut walk = Walk::new(&bench).await;
    operations(&mut walk, &site).await;
    owners(&mut walk, &site).await;
    groups_and_timers(&mut walk, &site).await;
    tasks(&mut walk, &site).await;
    let ticket = administrators(&mut walk, &site).await;
    servers(&mut walk, &site, &ticket).await;
    programs(&mut walk).await;
    let (mut done, secrets) = (walk.done, walk.secrets);
    let all = bench.get(AUDIT, &walk.reader).await.text;
    for secret in secrets.iter().chain([&site.ada.token, &walk.reader]) {
        assert!(secret.len() > 4 && !all.contains(secret.as_str()), "{secret}");
    }

    let grid = Grid::new().await;
    let mut walk = Walk::new(&grid.bench).await;
    grid.register(grid.endpoints[0], 3600).await;
    walk.found("credential_register", &grid.ada.id.to_string(), "grid_credential.register").await;
    let (place, by) = (grid.endpoints[0].to_string(), (grid.ada.id, "grid_credential.delete"));
    walk.act("credential_delete", &[&place], &grid.ada.token, json!({}), by).await;
    done.extend(&walk.done);

    let changing: BTreeSet<_> =
        Service::routes().into_iter().filter(|route| route.method != Method::GET).map(|route| route.name).collect();
    let silent: BTreeSet<_> = SILENT.iter().copied().collect();
    assert!(done.is_disjoint(&silent), "they are kept: take them off the list");
    let missing: Vec<_> = changing.difference(&done).filter(|name| !silent.contains(*name)).collect();
    assert!(missing.is_empty(), "neither done here nor excepted for a reason: {missing:?}");
    assert!(silent.is_subset(&changing), "not in the table any more");
}

#[tokio::test]
async fn the_log_is_read_by_administrators_in_parts_that_fit_together() {
    let bench = Bench::new().await;
    let site = site(&bench).await;
    let walk = Walk::new(&bench).await;
    let (reader, Somebody { token: ada, .. }) = (&walk.reader, &site.ada);
    assert_eq!(bench.get(AUDIT, ada).await.status, 403);
    bench.clock.advance(3600);
    let role = json!({"principal_type": "identity", "principal": site.bob.id, "role": "activity_monitor"});
    let role = id(&bench.post(&format!("/v0.10/endpoint/{}/role", site.guest), ada, role).await.good()["id"]);
    bench.delete(&format!("/v0.10/endpoint/{}/role/{role}", site.guest), ada).await.good();

    let whole = lines(&bench, reader, "").await;
    let (mut parts, mut mark): (Vec<Value>, u64) = (Vec::new(), 0);
    while parts.len() < whole.len() {
        let part = lines(&bench, reader, &format!("limit=3&after={mark}")).await;
        mark = part.last().unwrap()["mark"].as_u64().unwrap();
        parts.extend(part);
    }
    assert_eq!(parts[..whole.len()], whole);
    assert_eq!(whole.last().unwrap()["action"], "audit.read", "who reads is told of, too");
    let told = async |query: String| {
        let entries = lines(&bench, reader, &query).await;
        entries.iter().map(|entry| entry["action"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(told("action=role.".to_owned()).await, ["role.create", "role.delete"]);
    assert_eq!(told("action=role.delete".to_owned()).await, ["role.delete"]);
    assert_eq!(told(format!("actor={}&since=2026-11-18T12:00:00Z", site.bob.id)).await, [""; 0]);
    let since = whole.iter().find(|entry| entry["action"] == "role.create").unwrap()["time"].as_str().unwrap();
    let since: String = form_urlencoded::byte_serialize(since.as_bytes()).collect();
    let later = told(format!("actor={}&since={since}", site.ada.id)).await;
    assert_eq!(later, ["role.create", "role.delete"]);
    let before = told(format!("until={since}")).await;
    assert!(before.contains(&"collection.create".to_owned()) && !before.contains(&"role.create".to_owned()));
    assert_eq!(told("newest=1&limit=2&action=role.".to_owned()).await, ["role.create", "role.delete"]);
    for bad in ["since=soon", "limit=0", "action=x%25", "after=x"] {
        let got = bench.get(&format!("{AUDIT}?{bad}"), reader).await;
        assert_eq!((got.status, got.code().as_str()), (400, "ClientError.BadRequest"), "{bad}");
    }
}
