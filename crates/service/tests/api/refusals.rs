//! The whole table of routes from the outside: nobody gets in without what the route asks for.

use axum::http::Method;
use serde_json::{Value, json};
use uuid::Uuid;
use whimbrel_service::Service;
use whimbrel_service::auth::scope::{GroupsAll, Orchestrate, Scope, TimersAll, TransferAll};
use whimbrel_service::http::{Access, Route};

use crate::bench::{Bench, Got};
use crate::collections::{Site, id, site};

/// Routes that everybody may call: each has a reason.
const OPEN: &[&str] = &[
    // What is public about the issuer.
    "openid_configuration",
    "jwks",
    // Where people log in.
    "oauth2_authorize",
    "oauth2_login",
    "oauth2_provider",
    "oauth2_code",
    // They ask for a client, a code or a token in their forms.
    "oauth2_token",
    "oauth2_revoke",
    "oauth2_validate",
    // Makes clients that are good for logins of users only, few for a network.
    "client_from_template",
];

/// Things of Ada's that nobody else may know of.
struct Things {
    site: Site,
    rule: Uuid,
    role: Uuid,
    bookmark: Uuid,
    pause: Uuid,
    rate: Uuid,
    task: Uuid,
    timer: Uuid,
    group: Uuid,
    webhook: Uuid,
    matrix: Uuid,
}

impl Things {
    async fn new(bench: &Bench) -> Self {
        let site = site(bench).await;
        let (token, guest) = (&site.ada.token, format!("/v0.10/endpoint/{}", site.guest));
        let rule = json!({"principal_type": "identity", "principal": site.ada.id, "path": "/x/", "permissions": "r"});
        let rule = id(&bench.post(&format!("{guest}/access"), token, rule).await.good()["access_id"]);
        let role = json!({"principal_type": "identity", "principal": site.ada.id, "role": "activity_monitor"});
        let role = id(&bench.post(&format!("{guest}/role"), token, role).await.good()["id"]);
        let bookmark = json!({"endpoint_id": site.mapped, "path": "/", "name": "b"});
        let bookmark = id(&bench.post("/v0.10/bookmark", token, bookmark).await.good()["id"]);
        let pause = json!({"endpoint_id": site.guest, "message": "m"});
        let pause = id(&bench.post("/v0.10/endpoint_manager/pause_rule", token, pause).await.good()["id"]);
        let rate = json!({"endpoint_id": site.guest, "max_rate": 5});
        let rate = id(&bench.post("/v2/whimbrel/rate_rules", token, rate).await.good()["id"]);
        let submission = Uuid::from_u128(0x40_0080_0000_0000_0000_0001);
        let task = json!({"DATA_TYPE": "delete", "endpoint": site.guest, "submission_id": submission, "DATA": [{"DATA_TYPE": "delete_item", "path": "/x"}]});
        let task = id(&bench.post("/v0.10/delete", token, task).await.good()["task_id"]);
        let body = json!({"source_endpoint": site.mapped, "destination_endpoint": site.mapped,
                          "DATA": [{"source_path": "/a", "destination_path": "/b"}]});
        let timer = json!({"timer": {"schedule": {"type": "once", "datetime": "2099-01-01"}, "body": body}});
        let timers = bench.token(&site.ada.client, TimersAll::NAME).await;
        let timer = id(&bench.post("/v2/timer", &timers, timer).await.good()["timer"]["job_id"]);
        let groups = bench.token(&site.ada.client, GroupsAll::NAME).await;
        let group = id(&bench.post("/v2/groups", &groups, json!({"name": "g"})).await.good()["id"]);
        let webhook = bench.post("/v2/whimbrel/webhooks", token, json!({"url": "https://example.org/x"})).await.good();
        let webhook = id(&webhook["id"]);
        let ends: Vec<_> = [site.mapped, site.guest].map(|id| json!({"collection_id": id, "dataset": "/probe"})).into();
        let matrix = json!({"name": "m", "interval_seconds": 3600, "ends": ends});
        let matrix = id(&bench.post("/v2/whimbrel/matrices", token, matrix).await.good()["id"]);
        Self { site, rule, role, bookmark, pause, rate, task, timer, group, webhook, matrix }
    }

    /// The path of a route, about Ada's things.
    fn path(&self, route: &Route) -> String {
        let id = match route.path {
            path if path.contains("/bookmark/") => self.bookmark,
            path if path.contains("/pause_rule/") => self.pause,
            path if path.contains("/groups/") => self.group,
            path if path.contains("/endpoint/") || path.contains("/endpoints/") => self.site.guest,
            path if path.contains("/identities/") || path.contains("/clients/") => self.site.ada.id,
            path if path.contains("{id}") => panic!("tell this test what {path} is about"),
            _ => Uuid::nil(),
        };
        let (task, timer, webhook) = (self.task, self.timer, self.webhook);
        let parts = [
            ("{id}", id),
            ("{rule}", self.rule),
            ("{rate_rule}", self.rate),
            ("{role}", self.role),
            ("{task}", task),
            ("{timer}", timer),
            ("{webhook}", webhook),
            ("{matrix}", self.matrix),
            ("{cancel}", Uuid::nil()),
        ];
        let path = parts.iter().fold(route.path.to_owned(), |path, (part, id)| path.replace(part, &id.to_string()));
        let path = path.replace("{server}", "1");
        assert!(!path.contains('{'), "tell this test what {path} is about");
        path
    }

    /// A document that the route would take.
    fn body(&self, route: &Route) -> Option<Value> {
        match (&route.method, route.path.rsplit('/').next().unwrap()) {
            (&Method::GET | &Method::DELETE, _) => None,
            (&Method::PATCH, _) => Some(json!({"name": "d"})),
            (_, "access") => {
                Some(json!({"principal_type": "anonymous", "principal": "", "path": "/", "permissions": "r"}))
            }
            (_, "role") => {
                let principal = self.site.bob.id;
                Some(json!({"principal_type": "identity", "principal": principal, "role": "administrator"}))
            }
            (_, "shared_endpoint") => {
                Some(json!({"host_endpoint": self.site.mapped, "host_path": "/", "display_name": "d"}))
            }
            (_, "collections") => Some(json!({"display_name": "d", "base_path": "/"})),
            (_, "identities") => Some(json!({"username": "x@example.org"})),
            (_, "clients") => Some(json!({"name": "n"})),
            (_, "subscription") => Some(json!({"subscription_id": null})),
            (_, "subscription_admin_verified") => Some(json!({"subscription_admin_verified": true})),
            (_, "bookmark") => Some(json!({"endpoint_id": self.site.mapped, "path": "/", "name": "other"})),
            (_, "mkdir") => Some(json!({"path": "/d"})),
            (_, "rename") => Some(json!({"old_path": "/a", "new_path": "/b"})),
            (_, "symlink") => Some(json!({"path": "/l", "symlink_target": "/a"})),
            (_, "servers") => Some(json!({"url": "ftp://dtn.example.org"})),
            (_, "credential") => Some(json!({"chain": "x"})),
            (_, "admin_cancel" | "admin_pause" | "admin_resume") => {
                Some(json!({"message": "m", "task_id_list": [self.task]}))
            }
            _ if route.path.contains("/rate_rules") => Some(json!({"endpoint_id": self.site.guest, "max_rate": 6})),
            (_, "pause_rule") => Some(json!({"endpoint_id": self.site.guest, "message": "m"})),
            _ if route.name == "group_membership_actions" => {
                Some(json!({"add": [{"identity_id": self.site.bob.id, "role": "admin"}]}))
            }
            _ if route.path.contains("/v2/whimbrel/identities/") => Some(json!({"disabled": true})),
            _ => Some(json!({"display_name": "d", "name": "d", "message": "m"})),
        }
    }
}

/// Whether a path names somebody's thing.
fn is_about_something(route: &Route) -> bool {
    ["{id}", "{task}", "{timer}", "{webhook}", "{matrix}", "{cancel}", "/admin_"]
        .iter()
        .any(|part| route.path.contains(part))
}

#[tokio::test]
async fn only_known_routes_are_open() {
    let open: Vec<_> =
        Service::routes().into_iter().filter(|route| route.access == Access::Anyone).map(|route| route.name).collect();
    assert_eq!(open, OPEN);
}

#[tokio::test]
async fn no_two_routes_have_one_name_or_place() {
    let routes = Service::routes();
    let names: std::collections::BTreeSet<_> = routes.iter().map(|route| route.name).collect();
    let places: std::collections::BTreeSet<_> =
        routes.iter().map(|route| (route.path, route.method.as_str())).collect();
    assert_eq!((names.len(), places.len()), (routes.len(), routes.len()));
}

#[tokio::test]
async fn every_route_refuses_who_does_not_show_what_it_asks_for() {
    let bench = Bench::new().await;
    let things = Things::new(&bench).await;
    let ada = &things.site.ada.client;
    let mover = bench.service.bootstrap_orchestrator("mover").await.unwrap();
    let all = format!("openid urn:globus:auth:scope:auth.globus.org:view_identity_set {}", TransferAll::NAME);
    let (expired, revoked) = (bench.token(ada, &all).await, bench.token(ada, &all).await);
    bench.form("/v2/oauth2/token/revoke", Some(ada), &[("token", &revoked)]).await.good();
    bench.clock.advance(48 * 3600);
    // A scope of a resource server that no route belongs to.
    let elsewhere = bench.token(ada, "urn:globus:auth:scope:search.api.globus.org:all").await;
    let (transfer, orchestrate) =
        (bench.token(ada, TransferAll::NAME).await, bench.token(&mover, Orchestrate::NAME).await);
    let for_dtn = bench
        .service
        .dtn_token(things.site.endpoint, things.site.ada.id, "storage.modify:/", None, 3600)
        .await
        .unwrap();

    for route in Service::routes() {
        let (path, body) = (things.path(&route), things.body(&route));
        let ask =
            async |token: Option<&str>| -> Got { bench.ask(route.method.clone(), &path, token, body.clone()).await };
        let (forbidden, name): (Vec<&str>, _) = match route.access {
            Access::Anyone => continue,
            Access::Client | Access::Server | Access::Replica => (Vec::new(), route.name),
            Access::Scope(_) | Access::ScopeOrClient(_) | Access::Admin(_) => {
                (vec![&elsewhere, &orchestrate], route.name)
            }
            Access::Orchestrator => (vec![&elsewhere, &transfer], route.name),
            Access::Monitor => (vec![&elsewhere, &transfer, &orchestrate], route.name),
        };
        assert_eq!(ask(None).await.status, 401, "{name} without a token");
        for token in ["", "garbage", "wa_garbage", &expired, &revoked, &for_dtn] {
            assert_eq!(ask(Some(token)).await.status, 401, "{name} with {token:?}");
        }
        for token in forbidden {
            assert_eq!(ask(Some(token)).await.status, 403, "{name} with a token for something else");
        }
        if matches!(route.access, Access::Admin(_)) {
            assert_eq!(ask(Some(&transfer)).await.status, 403, "{name} by a user");
        }
        if matches!(route.access, Access::Client | Access::Server | Access::Replica) {
            for token in [&transfer, &orchestrate, &elsewhere] {
                assert_eq!(ask(Some(token)).await.status, 401, "{name} by somebody else");
            }
        }
    }
}

#[tokio::test]
async fn what_is_somebodys_is_refused_to_others() {
    let bench = Bench::new().await;
    let things = Things::new(&bench).await;
    let mut asked = 0;
    for route in Service::routes().into_iter().filter(is_about_something) {
        let scope = match route.access {
            Access::Scope(scope) | Access::ScopeOrClient(scope) => scope,
            Access::Client => {
                let deleted = bench.ask(route.method.clone(), &things.path(&route), None, None).await;
                assert_eq!(deleted.status, 401, "{}", route.name);
                continue;
            }
            Access::Anyone | Access::Admin(_) | Access::Orchestrator | Access::Monitor => continue,
            Access::Server | Access::Replica => continue,
        };
        let token = bench.token(&things.site.bob.client, scope).await;
        let got = bench.ask(route.method.clone(), &things.path(&route), Some(&token), things.body(&route)).await;
        assert!([403, 404].contains(&got.status), "{} answers {got:?}", route.name);
        asked += 1;
    }
    assert!(asked > 40, "{asked}");
    // Nothing has changed, and it is all there for Ada.
    let rules =
        bench.get(&format!("/v0.10/endpoint/{}/access_list", things.site.guest), &things.site.ada.token).await.good();
    assert_eq!(rules["length"], 1);
}
