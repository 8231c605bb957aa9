//! Endpoints, collections, rules, roles, bookmarks and pause rules.

use serde_json::{Value, json};
use uuid::Uuid;
use whimbrel_engine::dispatch::Server;
use whimbrel_service::auth::scope::manage_collections;
use whimbrel_service::auth::secrets::random_id;
use whimbrel_service::endpoints::Want;
use whimbrel_service::store::Batch;

use crate::bench::{Bench, Somebody};

/// A deployment of Ada's with a mapped collection, and a guest collection of hers.
pub struct Site {
    pub ada: Somebody,
    pub bob: Somebody,
    pub endpoint: Uuid,
    pub mapped: Uuid,
    pub guest: Uuid,
}

pub async fn site(bench: &Bench) -> Site {
    let (ada, bob) = (bench.user("ada").await, bench.user("bob").await);
    let servers = vec![Server::at("whimbrel://dtn.example.org:2811", None)];
    let endpoint = bench.service.add_endpoint(ada.id, "Lab", servers).await.unwrap().id;
    let mapped = bench.service.add_mapped(endpoint, ada.id, "Lab files", "/srv/data").await.unwrap().id;
    let body = json!({"DATA_TYPE": "shared_endpoint", "host_endpoint": mapped, "host_path": "/shared/", "display_name": "Ada's"});
    let made = bench.post("/v0.10/shared_endpoint", &ada.token, body).await;
    assert_eq!(made.status, 201, "{made:?}");
    let guest = id(&made.json()["id"]);
    Site { ada, bob, endpoint, mapped, guest }
}

pub fn id(value: &Value) -> Uuid {
    value.as_str().unwrap().parse().unwrap()
}

async fn may(bench: &Bench, who: &Somebody, collection: Uuid, path: &str, want: Want) -> bool {
    let actor = bench.service.actor(&who.token).await.unwrap().unwrap();
    let usable = bench.service.usable(collection, &actor).await;
    usable.is_ok_and(|usable| usable.permit(path, want).is_ok())
}

#[tokio::test]
async fn documents_say_what_the_command_line_goes_by() {
    let bench = Bench::new().await;
    let site = site(&bench).await;
    let show = async |id: Uuid| bench.get(&format!("/v0.10/endpoint/{id}"), &site.ada.token).await.good();
    let endpoint = show(site.endpoint).await;
    assert_eq!((&endpoint["entity_type"], &endpoint["non_functional"]), (&json!("GCSv5_endpoint"), &json!(true)));
    assert_eq!((&endpoint["owner_id"], &endpoint["is_globus_connect"]), (&json!(site.endpoint), &json!(false)));
    assert_eq!(endpoint["DATA"][0]["hostname"], "dtn.example.org");
    assert_eq!(endpoint["DATA"][0]["port"], 2811);
    let guest = show(site.guest).await;
    assert_eq!((&guest["entity_type"], &guest["owner_id"]), (&json!("GCSv5_guest_collection"), &json!(site.endpoint)));
    assert_eq!((&guest["mapped_collection_id"], &guest["host_path"]), (&json!(site.mapped), &json!("/shared/")));
    assert_eq!((&guest["my_effective_roles"], &guest["acl_editable"]), (&json!(["administrator"]), &json!(true)));
    let collection = bench.service.collection(site.guest).await.unwrap().record;
    let location = bench.service.location(&collection).await.unwrap();
    assert_eq!((location.base.as_str(), location.endpoint), ("/srv/data/shared", site.endpoint));
    assert_eq!((location.servers.len(), location.sharer), (1, Some(site.ada.id)));
}

#[tokio::test]
async fn a_private_collection_is_hidden_until_something_of_it_is_given() {
    let bench = Bench::new().await;
    let site = site(&bench).await;
    let path = format!("/v0.10/endpoint/{}", site.guest);
    let hidden = bench.get(&path, &site.bob.token).await;
    assert_eq!((hidden.status, hidden.code().as_str()), (404, "EndpointNotFound"));
    assert!(!may(&bench, &site.bob, site.guest, "/x", Want::Read).await);

    let rule = json!({"DATA_TYPE": "access", "principal_type": "identity", "principal": site.bob.id, "path": "/x/", "permissions": "r"});
    let made = bench.post(&format!("{path}/access"), &site.ada.token, rule.clone()).await;
    assert_eq!((made.status, made.code().as_str()), (201, "Created"), "{made:?}");
    let rule_id = id(&made.json()["access_id"]);
    assert_eq!(bench.get(&path, &site.bob.token).await.status, 200);
    assert!(may(&bench, &site.bob, site.guest, "/x/y", Want::Read).await);
    assert!(!may(&bench, &site.bob, site.guest, "/x/y", Want::Write).await);
    assert!(!may(&bench, &site.bob, site.guest, "/y", Want::Read).await);
    // Bob sees the collection, and manages nothing of it.
    assert_eq!(bench.get(&format!("{path}/access_list"), &site.bob.token).await.status, 403);
    assert_eq!(bench.delete(&path, &site.bob.token).await.status, 403);

    assert_eq!(bench.post(&format!("{path}/access"), &site.ada.token, rule).await.status, 409);
    let change = json!({"DATA_TYPE": "access", "permissions": "rw"});
    bench.put(&format!("{path}/access/{rule_id}"), &site.ada.token, change).await.good();
    assert!(may(&bench, &site.bob, site.guest, "/x/y", Want::Write).await);
    let list = bench.get(&format!("{path}/access_list"), &site.ada.token).await.good();
    assert_eq!((&list["DATA"][0]["principal"], &list["DATA"][0]["permissions"]), (&json!(site.bob.id), &json!("rw")));
    bench.delete(&format!("{path}/access/{rule_id}"), &site.ada.token).await.good();
    assert_eq!(bench.get(&path, &site.bob.token).await.status, 404);
}

#[tokio::test]
async fn who_runs_the_deployment_does_not_read_in_its_users_names() {
    let bench = Bench::new().await;
    let site = site(&bench).await;
    let body = json!({"host_endpoint": site.mapped, "host_path": "/bobs/", "display_name": "Bob's"});
    let guest = id(&bench.post("/v0.10/shared_endpoint", &site.bob.token, body).await.good()["id"]);
    let admin = bench.service.bootstrap_client("root", true).await.unwrap();
    let token = bench.token(&admin, "urn:globus:auth:scope:transfer.api.globus.org:all").await;
    let root = Somebody { id: admin.client.id, token, client: admin };
    for somebody in [&site.ada, &root] {
        assert_eq!(bench.get(&format!("/v0.10/endpoint/{guest}/role_list"), &somebody.token).await.status, 200);
        assert!(!may(&bench, somebody, guest, "/x", Want::Read).await);
    }
    assert!(may(&bench, &site.bob, guest, "/x", Want::Write).await);
}

/// A guest collection of Bob's on Ada's deployment, where Carol has a role; and an administrator of the service.
async fn bobs(bench: &Bench, site: &Site, role: &str) -> (Uuid, Somebody, Somebody) {
    let body = json!({"host_endpoint": site.mapped, "host_path": "/bobs/", "display_name": "Bob's"});
    let guest = id(&bench.post("/v0.10/shared_endpoint", &site.bob.token, body).await.good()["id"]);
    let carol = bench.user("carol").await;
    let given = json!({"principal_type": "identity", "principal": carol.id, "role": role});
    bench.post(&format!("/v0.10/endpoint/{}/role", site.endpoint), &site.ada.token, given).await.good();
    let admin = bench.service.bootstrap_client("root", true).await.unwrap();
    let token = bench.token(&admin, "urn:globus:auth:scope:transfer.api.globus.org:all").await;
    (guest, carol, Somebody { id: admin.client.id, token, client: admin })
}

#[tokio::test]
async fn who_runs_the_deployment_lets_nobody_into_what_its_users_share() {
    let bench = Bench::new().await;
    let site = site(&bench).await;
    let (guest, carol, root) = bobs(&bench, &site, "access_manager").await;
    let path = format!("/v0.10/endpoint/{guest}");
    let rule = |who: &Somebody, permissions: &str| json!({"principal_type": "identity", "principal": who.id, "path": "/", "permissions": permissions});
    let role = |who: &Somebody| json!({"principal_type": "identity", "principal": who.id, "role": "administrator"});
    for somebody in [&site.ada, &carol, &root] {
        let token = &somebody.token;
        assert_eq!(bench.post(&format!("{path}/access"), token, rule(somebody, "r")).await.status, 403);
        assert_eq!(bench.post(&format!("{path}/role"), token, role(somebody)).await.status, 403);
        assert!(!may(&bench, somebody, guest, "/x", Want::Read).await);
        assert_eq!(bench.get(&path, token).await.good()["acl_editable"], false);

        // What Bob gives, they see and take away, and cannot widen.
        let made = bench.post(&format!("{path}/access"), &site.bob.token, rule(somebody, "r")).await.good();
        let place = format!("{path}/access/{}", made["access_id"].as_str().unwrap());
        assert_eq!(bench.get(&place, token).await.good()["permissions"], "r");
        assert_eq!(bench.put(&place, token, json!({"permissions": "rw"})).await.status, 403);
        assert!(!may(&bench, somebody, guest, "/x", Want::Write).await);
        bench.delete(&place, token).await.good();
    }
    let given = bench.post(&format!("{path}/role"), &site.bob.token, role(&carol)).await.good();
    let place = format!("{path}/role/{}", given["id"].as_str().unwrap());
    // Carol has the role at the collection itself now.
    bench.post(&format!("{path}/access"), &carol.token, rule(&site.ada, "r")).await.good();
    bench.delete(&place, &site.ada.token).await.good();
    assert_eq!(bench.post(&format!("{path}/access"), &carol.token, rule(&carol, "r")).await.status, 403);
    bench.delete(&path, &site.ada.token).await.good();
}

#[tokio::test]
async fn who_runs_the_deployment_tightens_what_its_users_share_and_loosens_nothing() {
    let bench = Bench::new().await;
    let site = site(&bench).await;
    let (guest, carol, root) = bobs(&bench, &site, "administrator").await;
    let path = format!("/v0.10/endpoint/{guest}");
    let tight = json!({"disable_anonymous_writes": true, "force_encryption": true, "force_verify": true});
    let loose = [
        json!({"disable_anonymous_writes": false}),
        json!({"force_encryption": false}),
        json!({"force_verify": false, "disable_verify": true, "display_name": "Mine"}),
    ];
    for somebody in [&site.ada, &carol, &root] {
        bench.put(&path, &somebody.token, tight.clone()).await.good();
        for wish in &loose {
            let refused = bench.put(&path, &somebody.token, wish.clone()).await;
            assert_eq!(refused.status, 403, "{wish}");
        }
        bench.put(&path, &somebody.token, json!({"description": "Ends in May"})).await.good();
        let shown = bench.get(&path, &site.bob.token).await.good();
        assert!(
            ["disable_anonymous_writes", "force_encryption", "force_verify"].iter().all(|field| shown[field] == true)
        );
        assert_eq!((&shown["display_name"], &shown["description"]), (&json!("Bob's"), &json!("Ends in May")));
    }
    // Whoever shares does, and who runs the deployment at what is its own.
    bench.put(&path, &site.bob.token, loose[0].clone()).await.good();
    let mapped = format!("/v0.10/endpoint/{}", site.mapped);
    for wish in [&tight, &loose[0]] {
        bench.put(&mapped, &site.ada.token, wish.clone()).await.good();
    }
}

/// The same by the manager of an endpoint.
#[tokio::test]
async fn a_manager_opens_nothing_of_what_users_share() {
    let bench = Bench::new().await;
    let site = site(&bench).await;
    let (guest, carol, root) = bobs(&bench, &site, "administrator").await;
    let joins = format!("/v2/whimbrel/endpoints/{}/join_tokens", site.endpoint);
    let join = bench.post(&joins, &root.token, json!({})).await.good();
    let told = json!({"addresses": ["whimbrel://dtn1.example.org:2811"], "pin": format!("sha256:{}", "ab".repeat(32))});
    let server = bench.post("/v2/whimbrel/servers", join["token"].as_str().unwrap(), told).await.good();
    let place = format!("/v2/whimbrel/servers/{}/manage", server["server_id"].as_str().unwrap());
    let ask = async |who: &Somebody, method: &str, path: &str, body: Value| {
        let token = bench.token(&who.client, &manage_collections(site.endpoint)).await;
        let wish = json!({"token": token, "method": method, "path": path, "body": body});
        bench.post(&place, server["secret"].as_str().unwrap(), wish).await.good()
    };
    let role = json!({"collection": guest, "principal": format!("urn:globus:auth:identity:{}", carol.id), "role": "administrator"});
    for somebody in [&site.ada, &carol] {
        assert_eq!(ask(somebody, "POST", "/roles", role.clone()).await["refused"]["status"], 403);
    }
    let at = format!("/collections/{guest}");
    let https = |wanted: bool| json!({"enable_https": wanted});
    for somebody in [&site.ada, &carol] {
        assert_eq!(ask(somebody, "PATCH", &at, https(false)).await["granted"]["code"], "success");
        assert_eq!(ask(somebody, "PATCH", &at, https(true)).await["refused"]["status"], 403);
    }
    assert_eq!(ask(&site.bob, "PATCH", &at, https(true)).await["granted"]["code"], "success");
    let given = ask(&site.bob, "POST", "/roles", role).await;
    let role = format!("/roles/{}", given["granted"]["data"][0]["id"].as_str().unwrap());
    assert_eq!(ask(&site.ada, "DELETE", &role, Value::Null).await["granted"]["code"], "success");
}

#[tokio::test]
async fn the_end_of_a_rule_goes_by_null_and_by_nothing_else() {
    let bench = Bench::new().await;
    let site = site(&bench).await;
    let rule = json!({"principal_type": "identity", "principal": site.bob.id, "path": "/", "permissions": "r",
                      "expiration_date": "2031-01-01T00:00:00Z"});
    let path = format!("/v0.10/endpoint/{}/access", site.guest);
    let made = bench.post(&path, &site.ada.token, rule).await.good();
    let place = format!("{path}/{}", made["access_id"].as_str().unwrap());
    let end = async || bench.get(&place, &site.ada.token).await.good()["expiration_date"].clone();
    let first = end().await;
    assert!(first.is_string(), "{first}");
    for wrong in [json!(7), json!(false), json!({}), json!("tomorrow")] {
        let got = bench.put(&place, &site.ada.token, json!({"expiration_date": wrong})).await;
        assert_eq!((got.status, end().await), (400, first.clone()), "{wrong}");
    }
    bench.put(&place, &site.ada.token, json!({"permissions": "rw"})).await.good();
    assert_eq!(end().await, first);
    bench.put(&place, &site.ada.token, json!({"expiration_date": null})).await.good();
    assert_eq!(end().await, Value::Null);
}

#[tokio::test]
async fn guests_do_not_choose_among_the_sharers_accounts() {
    let bench = Bench::new().await;
    let site = site(&bench).await;
    let rule = json!({"principal_type": "identity", "principal": site.bob.id, "path": "/", "permissions": "rw"});
    bench.post(&format!("/v0.10/endpoint/{}/access", site.guest), &site.ada.token, rule).await.good();
    let transfer = |ends: Value| {
        let item = json!({"DATA_TYPE": "transfer_item", "source_path": "/a", "destination_path": "/b"});
        let mut document = json!({"DATA_TYPE": "transfer", "submission_id": random_id().unwrap(), "DATA": [item],
                                  "source_endpoint": site.guest, "destination_endpoint": site.guest});
        document.as_object_mut().unwrap().extend(ends.as_object().unwrap().clone());
        document
    };
    for somebody in [&site.bob, &site.ada] {
        let operation = format!("/v0.10/operation/endpoint/{}", site.guest);
        let refused = [
            bench.get(&format!("{operation}/ls?path=/&local_user=labadmin"), &somebody.token).await,
            bench.get(&format!("{operation}/stat?path=/&local_user=labadmin"), &somebody.token).await,
            bench.post(&format!("{operation}/mkdir"), &somebody.token, json!({"path": "/x/", "local_user": "labadmin"})).await,
            bench.post("/v0.10/transfer", &somebody.token, transfer(json!({"source_local_user": "labadmin"}))).await,
            bench.post("/v0.10/transfer", &somebody.token, transfer(json!({"destination_local_user": "labadmin"}))).await,
            bench.post("/v0.10/delete", &somebody.token, json!({
                "DATA_TYPE": "delete", "submission_id": random_id().unwrap(), "endpoint": site.guest, "local_user": "labadmin",
                "DATA": [{"DATA_TYPE": "delete_item", "path": "/x"}],
            })).await,
        ];
        for answer in refused {
            assert_eq!((answer.status, answer.code().as_str()), (400, "ClientError.BadRequest"), "{answer:?}");
            assert!(format!("{answer:?}").contains("without a local user"), "{answer:?}");
        }
        bench.post("/v0.10/transfer", &somebody.token, transfer(json!({}))).await.good();
    }
}

#[tokio::test]
async fn wrong_rules_are_refused() {
    let bench = Bench::new().await;
    let site = site(&bench).await;
    let ask = async |collection: Uuid, change: Value| {
        let mut rule = json!({"principal_type": "identity", "principal": site.bob.id, "path": "/", "permissions": "r"});
        for (name, value) in change.as_object().unwrap() {
            rule[name] = value.clone();
        }
        let got = bench.post(&format!("/v0.10/endpoint/{collection}/access"), &site.ada.token, rule).await;
        (got.status, got.code())
    };
    let bad = (400, "ClientError.BadRequest".to_owned());
    for change in [
        json!({"path": "x/"}),
        json!({"path": "/x"}),
        json!({"path": "/../"}),
        json!({"path": "/~/"}),
        json!({"permissions": "w"}),
        json!({"principal_type": "everybody"}),
        json!({"principal": "bob"}),
        json!({"expiration_date": "tomorrow"}),
        json!({"expiration_date": "2001-01-01"}),
    ] {
        assert_eq!(ask(site.guest, change.clone()).await, bad, "{change}");
    }
    assert_eq!(ask(site.mapped, json!({})).await, bad, "mapped collections have no rules");
    assert_eq!(ask(site.guest, json!({"principal": Uuid::from_u128(3)})).await, (404, "UserNotFound".to_owned()));
    let update = json!({"disable_anonymous_writes": true});
    bench.put(&format!("/v0.10/endpoint/{}", site.guest), &site.ada.token, update).await.good();
    let anonymous = json!({"principal_type": "anonymous", "principal": "", "permissions": "rw"});
    assert_eq!(ask(site.guest, anonymous).await, (403, "PermissionDenied".to_owned()));
}

#[tokio::test]
async fn what_a_collection_forbids_holds_for_the_guest_collections_that_are_made_of_it() {
    let bench = Bench::new().await;
    let site = site(&bench).await;
    let rule = json!({"principal_type": "anonymous", "principal": "", "permissions": "rw", "path": "/"});
    let path = format!("/v0.10/endpoint/{}/access", site.guest);
    let made = bench.post(&path, &site.ada.token, rule).await.good();
    let anybody = async || bench.service.usable_by_anybody(site.guest).await.unwrap();
    assert!(anybody().await.permit("/x", Want::Write).is_ok());
    assert!(!anybody().await.collection.policy.no_https);

    let mut host = bench.service.collection(site.mapped).await.unwrap();
    (host.record.policy.disable_anonymous_writes, host.record.policy.no_https) = (true, true);
    bench.service.store.apply(Batch::new().update(&host)).await.unwrap();
    let bound = anybody().await;
    assert!(bound.permit("/x", Want::Read).is_ok() && bound.permit("/x", Want::Write).is_err());
    assert!(bound.collection.policy.no_https, "its servers ask here");
    let place = format!("{path}/{}", made["access_id"].as_str().unwrap());
    assert_eq!(bench.put(&place, &site.ada.token, json!({"permissions": "rw"})).await.status, 403);
}

#[tokio::test]
async fn roles_let_others_manage() {
    let bench = Bench::new().await;
    let site = site(&bench).await;
    let path = format!("/v0.10/endpoint/{}", site.guest);
    let role =
        json!({"DATA_TYPE": "role", "principal_type": "identity", "principal": site.bob.id, "role": "access_manager"});
    let given = bench.post(&format!("{path}/role"), &site.ada.token, role.clone()).await;
    assert_eq!(given.status, 201);
    assert_eq!(bench.post(&format!("{path}/role"), &site.ada.token, role).await.status, 409);
    assert_eq!(bench.get(&format!("{path}/access_list"), &site.bob.token).await.status, 200);
    assert_eq!(bench.get(&format!("{path}/role_list"), &site.bob.token).await.status, 403);
    let list = bench.get(&format!("{path}/role_list"), &site.ada.token).await.good();
    assert_eq!(
        (&list["DATA"][0]["principal"], &list["DATA"][1]["role"]),
        (&json!(site.ada.id), &json!("access_manager"))
    );
    let role_path = format!("{path}/role/{}", given.json()["id"].as_str().unwrap());
    assert_eq!(bench.get(&role_path, &site.ada.token).await.good()["principal"], json!(site.bob.id));
    bench.delete(&role_path, &site.ada.token).await.good();
    assert_eq!(bench.get(&path, &site.bob.token).await.status, 404);
}

#[tokio::test]
async fn collections_are_found_by_words_and_scopes() {
    let bench = Bench::new().await;
    let site = site(&bench).await;
    let names = async |who: &Somebody, query: &str| {
        let found = bench.get(&format!("/v0.10/endpoint_search?{query}"), &who.token).await.good();
        let names: Vec<_> = found["DATA"]
            .as_array()
            .unwrap()
            .iter()
            .map(|one| one["display_name"].as_str().unwrap().to_owned())
            .collect();
        (names.join(","), found["has_next_page"].as_bool().unwrap())
    };
    let all = |text: &str| (text.to_owned(), false);
    assert_eq!(names(&site.ada, "filter_scope=all&limit=100").await, all("Ada's,Lab,Lab files"));
    assert_eq!(names(&site.bob, "filter_scope=all").await, all("Lab,Lab files"));
    assert_eq!(names(&site.ada, "filter_fulltext=LAB+file").await, all("Lab files"));
    assert_eq!(names(&site.ada, "limit=2").await, ("Ada's,Lab".to_owned(), true));
    assert_eq!(names(&site.ada, "limit=2&offset=2").await, all("Lab files"));
    assert_eq!(names(&site.ada, "filter_non_functional=false").await, all("Ada's,Lab files"));
    assert_eq!(names(&site.ada, "filter_scope=shared-by-me").await, all("Ada's"));
    assert_eq!(names(&site.bob, "filter_scope=my-endpoints").await, all(""));
    assert_eq!(names(&site.ada, "filter_entity_type=GCSv5_mapped_collection").await, all("Lab files"));
    assert_eq!(names(&site.ada, &format!("filter_owner_id={}", site.bob.id)).await, all(""));
    let rule = json!({"principal_type": "all_authenticated_users", "principal": "", "path": "/", "permissions": "r"});
    bench.post(&format!("/v0.10/endpoint/{}/access", site.guest), &site.ada.token, rule).await.good();
    assert_eq!(names(&site.bob, "filter_scope=shared-with-me").await, all("Ada's"));
    assert_eq!(bench.get("/v0.10/endpoint_search?filter_scope=mine", &site.ada.token).await.status, 400);
}

#[tokio::test]
async fn endpoints_are_made_changed_and_deleted() {
    let bench = Bench::new().await;
    let site = site(&bench).await;
    let body = json!({"DATA_TYPE": "endpoint", "is_globus_connect": true, "display_name": "Laptop", "public": false});
    let made = bench.post("/v0.10/endpoint", &site.bob.token, body).await;
    assert_eq!(made.status, 201);
    assert!(made.json()["globus_connect_setup_key"].as_str().unwrap().len() > 40);
    let path = format!("/v0.10/endpoint/{}", made.json()["id"].as_str().unwrap());
    let change = json!({"description": "mine", "keywords": "a, b", "default_directory": "/home/bob", "info_link": "https://x.org"});
    bench.put(&path, &site.bob.token, change).await.good();
    let shown = bench.get(&path, &site.bob.token).await.good();
    assert_eq!((&shown["description"], &shown["keywords"]), (&json!("mine"), &json!("a, b")));
    assert_eq!((&shown["default_directory"], &shown["is_globus_connect"]), (&json!("/home/bob/"), &json!(true)));
    bench.put(&path, &site.bob.token, json!({"description": null})).await.good();
    assert_eq!(bench.get(&path, &site.bob.token).await.good()["description"], Value::Null);
    for change in [json!({"display_name": " "}), json!({"info_link": "javascript:x"}), json!({"network_use": "much"})] {
        assert_eq!(bench.put(&path, &site.bob.token, change).await.status, 400);
    }
    assert_eq!(bench.post("/v0.10/endpoint", &site.bob.token, json!({"display_name": "Lab 2"})).await.status, 403);

    let host = format!("/v0.10/endpoint/{}", site.mapped);
    assert_eq!(bench.delete(&host, &site.ada.token).await.status, 409);
    bench.delete(&format!("/v0.10/endpoint/{}", site.guest), &site.ada.token).await.good();
    bench.delete(&host, &site.ada.token).await.good();
    let gone = bench.get(&host, &site.ada.token).await;
    assert_eq!((gone.status, gone.code().as_str()), (404, "EndpointDeleted"));
}

#[tokio::test]
async fn bookmarks_are_everybodys_own() {
    let bench = Bench::new().await;
    let site = site(&bench).await;
    let body = json!({"endpoint_id": site.mapped, "path": "/d", "name": "data"});
    let made = bench.post("/v0.10/bookmark", &site.ada.token, body.clone()).await.good();
    assert_eq!(made["path"], "/d/");
    assert_eq!(bench.post("/v0.10/bookmark", &site.ada.token, body.clone()).await.status, 409);
    assert_eq!(bench.post("/v0.10/bookmark", &site.bob.token, body).await.status, 201);
    let hidden = json!({"endpoint_id": site.guest, "path": "/", "name": "x"});
    assert_eq!(bench.post("/v0.10/bookmark", &site.bob.token, hidden).await.status, 404);
    let path = format!("/v0.10/bookmark/{}", made["id"].as_str().unwrap());
    assert_eq!(bench.put(&path, &site.ada.token, json!({"name": "better"})).await.good()["name"], "better");
    let foreign = bench.get(&path, &site.bob.token).await;
    assert_eq!((foreign.status, foreign.code().as_str()), (404, "BookmarkNotFound"));
    assert_eq!(bench.get("/v0.10/bookmark_list", &site.ada.token).await.good()["DATA"].as_array().unwrap().len(), 1);
    bench.delete(&path, &site.ada.token).await.good();
    assert_eq!(bench.get(&path, &site.ada.token).await.status, 404);
}

#[tokio::test]
async fn a_pause_rule_of_a_deployment_holds_for_its_collections() {
    let bench = Bench::new().await;
    let site = site(&bench).await;
    let body = json!({"endpoint_id": site.endpoint, "message": "Maintenance", "pause_ls": false});
    let made = bench.post("/v0.10/endpoint_manager/pause_rule", &site.ada.token, body.clone()).await.good();
    assert_eq!((&made["pause_ls"], &made["pause_task_delete"]), (&json!(false), &json!(true)));
    assert_eq!(bench.post("/v0.10/endpoint_manager/pause_rule", &site.bob.token, body).await.status, 403);
    let seen = bench
        .get(&format!("/v0.10/endpoint/{}/my_effective_pause_rule_list", site.mapped), &site.bob.token)
        .await
        .good();
    assert_eq!(seen["DATA"][0]["message"], "Maintenance");
    assert!(seen["DATA"][0].get("modified_by_id").is_none());
    let path = format!("/v0.10/endpoint_manager/pause_rule/{}", made["id"].as_str().unwrap());
    assert_eq!(bench.put(&path, &site.ada.token, json!({"message": "Longer"})).await.good()["message"], "Longer");
    assert_eq!(bench.get("/v0.10/endpoint_manager/pause_rule_list", &site.bob.token).await.good()["length"], 0);
    bench.delete(&path, &site.ada.token).await.good();
    assert_eq!(bench.get("/v0.10/endpoint_manager/pause_rule_list", &site.ada.token).await.good()["length"], 0);
}
