//! Groups: who is in them, who says so, and what is given to them.

use serde_json::{Value, json};
use uuid::Uuid;
use whimbrel_service::auth::scope::{GroupsAll, Scope};

use crate::bench::{Bench, Somebody};
use crate::collections::{id, site};
use crate::rights::{begin, delete, is_stop, poll};

struct Groups<'a> {
    bench: &'a Bench,
    tokens: Vec<(Uuid, String)>,
}

impl Groups<'_> {
    async fn token(&mut self, who: &Somebody) -> String {
        if let Some((_, token)) = self.tokens.iter().find(|(id, _)| *id == who.id) {
            return token.clone();
        }
        let token = self.bench.token(&who.client, GroupsAll::NAME).await;
        self.tokens.push((who.id, token.clone()));
        token
    }

    async fn act(&mut self, group: Uuid, by: &Somebody, action: &str, target: &Somebody) -> Value {
        let token = self.token(by).await;
        let body = json!({action: [{"identity_id": target.id, "role": "member"}]});
        self.bench.post(&format!("/v2/groups/{group}"), &token, body).await.json()
    }
}

#[tokio::test]
async fn what_is_given_to_a_group_is_its_members_as_long_as_they_are() {
    let bench = Bench::new().await;
    let site = site(&bench).await;
    let mut groups = Groups { bench: &bench, tokens: Vec::new() };
    let (adas, bobs) = (groups.token(&site.ada).await, groups.token(&site.bob).await);
    let made = bench.post("/v2/groups", &adas, json!({"name": "team", "description": null, "parent_id": null})).await;
    let group = id(&made.good()["id"]);
    let place = format!("/v2/groups/{group}");
    assert_eq!(bench.get(&place, &bobs).await.status, 404, "nobody has told him of it");
    let rule = json!({"principal_type": "group", "principal": group, "path": "/", "permissions": "rw"});
    bench.post(&format!("/v0.10/endpoint/{}/access", site.guest), &site.ada.token, rule).await.good();
    let guest = format!("/v0.10/endpoint/{}", site.guest);

    let invited = groups.act(group, &site.ada, "invite", &site.bob).await;
    assert_eq!(invited["invite"][0]["status"], "invited", "{invited}");
    assert_eq!(bench.get(&guest, &site.bob.token).await.status, 404, "an invitation gives nothing");
    assert_eq!(bench.get("/v2/groups/my_groups", &bobs).await.good(), json!([]));
    let wrong = groups.act(group, &site.bob, "approve", &site.bob).await;
    assert!(wrong.get("approve").is_none() && wrong["errors"]["approve"][0]["code"] == "FORBIDDEN", "{wrong}");
    groups.act(group, &site.bob, "accept", &site.bob).await;
    assert_eq!(bench.get("/v2/groups/my_groups", &bobs).await.good()[0]["my_memberships"][0]["role"], "member");
    assert_eq!(bench.get(&guest, &site.bob.token).await.status, 200);
    assert_eq!(bench.get(&format!("{place}?include=memberships"), &bobs).await.status, 403);
    let all = bench.get(&format!("{place}?include=memberships,my_memberships"), &adas).await.good();
    assert_eq!((all["memberships"].as_array().unwrap().len(), &all["my_memberships"][0]["role"]), (2, &json!("admin")));

    delete(&bench, &site.bob, site.guest, "/x").await;
    let lease = begin(&bench).await.lease;
    groups.act(group, &site.ada, "remove", &site.bob).await;
    assert!(is_stop(&poll(&bench, 0, &[lease]).await, lease));
    assert_eq!(bench.get(&guest, &site.bob.token).await.status, 404);
    assert_eq!(bench.delete(&place, &bobs).await.status, 404);
    let last = groups.act(group, &site.ada, "leave", &site.ada).await;
    assert_eq!(last["errors"]["leave"][0]["code"], "LAST_ADMIN", "{last}");
    bench.delete(&place, &adas).await.good();
    assert_eq!(bench.get(&place, &adas).await.status, 404);
}

#[tokio::test]
async fn groups_say_who_may_find_them_and_ask_for_them() {
    let bench = Bench::new().await;
    let site = site(&bench).await;
    let mut groups = Groups { bench: &bench, tokens: Vec::new() };
    let (adas, bobs) = (groups.token(&site.ada).await, groups.token(&site.bob).await);
    for name in ["", "two\nlines", &"x".repeat(200)] {
        assert_eq!(bench.post("/v2/groups", &adas, json!({"name": name})).await.status, 400);
    }
    let group = id(&bench.post("/v2/groups", &adas, json!({"name": "open"})).await.good()["id"]);
    let place = format!("/v2/groups/{group}");
    let mut policies = bench.get(&format!("{place}/policies"), &adas).await.good();
    assert_eq!((&policies["group_visibility"], &policies["join_requests"]), (&json!("private"), &json!(false)));
    (policies["group_visibility"], policies["join_requests"]) = (json!("authenticated"), json!(true));
    bench.put(&format!("{place}/policies"), &adas, policies.clone()).await.good();
    assert_eq!(bench.get(&place, &bobs).await.good()["name"], "open");
    assert_eq!(bench.put(&format!("{place}/policies"), &bobs, policies).await.status, 403);
    assert_eq!(bench.put(&place, &bobs, json!({"name": "mine"})).await.status, 403);
    let asked = groups.act(group, &site.bob, "request_join", &site.bob).await;
    assert_eq!(asked["request_join"][0]["status"], "pending", "{asked}");
    let approved = groups.act(group, &site.ada, "approve", &site.bob).await;
    assert_eq!(approved["approve"][0]["status"], "active", "{approved}");
    assert_eq!(bench.put(&place, &adas, json!({"name": "other"})).await.good()["name"], "other");
    assert_eq!(bench.post(&place, &adas, json!({"adopt": []})).await.status, 400);
}
