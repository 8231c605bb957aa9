//! A directory shared with somebody whose rights are those of its rules and no others, seen on disk.

use std::os::unix::fs::symlink;

use serde_json::json;

use super::field::{Field, Person};

/// Waits for a task of somebody's and expects it to fail; gives the code of what failed it.
#[track_caller]
fn failed(field: &Field, who: &Person, task: &str) -> String {
    let wait = ["task", "wait", task, "--timeout", "90", "--polling-interval", "1"];
    field.refused(who, &wait);
    let shown = field.json_as(who, &["task", "show", task]);
    assert_eq!(shown["status"], "FAILED", "{shown:#}");
    shown["fatal_error"]["code"].as_str().unwrap().to_owned()
}

#[track_caller]
fn submit(field: &Field, who: &Person, arguments: &[&str]) -> String {
    field.json_as(who, arguments)["task_id"].as_str().expect("there is a task").to_owned()
}

#[track_caller]
fn carry_out(field: &Field, who: &Person, arguments: &[&str]) {
    let task = submit(field, who, arguments);
    field.globus_as(who, &["task", "wait", &task, "--timeout", "60", "--polling-interval", "1"]);
}

/// A guest collection of somebody's.
#[track_caller]
fn share(field: &Field, who: &Person, name: &str, host: &str) -> String {
    field.json_as(who, &["gcp", "create", "guest", name, host])["id"].as_str().expect("it was made").to_owned()
}

/// Gives something to somebody; the rule's id.
#[track_caller]
fn permit(field: &Field, by: &Person, place: &str, to: &[&str], permissions: &str) -> String {
    let arguments = [&["endpoint", "permission", "create", place, "--permissions", permissions], to].concat();
    field.json_as(by, &arguments)["access_id"].as_str().expect("it was made").to_owned()
}

#[test]
fn what_is_shared_is_what_the_rules_say() {
    let Some(field) = Field::new() else { return };
    let (alpha, beta) = (field.alpha(), field.beta());
    let (carol, bob) = (field.person("carol"), field.person("bob"));
    alpha.write("team/in/a", "from bob's reach");
    alpha.write("team/out/b", "not given");
    alpha.write("secret", "not shared");
    beta.write("one", "1");
    symlink("../../secret", alpha.path("team/in/way-out")).unwrap();
    symlink("../out", alpha.path("team/in/way-over")).unwrap();

    let guest = share(&field, &carol, "Carol's team", &alpha.at("/team/"));
    let at = |path: &str| format!("{guest}:{path}");
    assert_eq!(field.globus_as(&carol, &["ls", &at("/")]), "in/\nout/\n");
    assert!(field.refused(&bob, &["ls", &at("/")]).contains("EndpointNotFound"), "nobody has told him of it");

    let rule = permit(&field, &carol, &at("/in/"), &["--identity", &bob.id], "r");
    assert!(field.globus_as(&carol, &["endpoint", "permission", "list", &guest]).contains("/in/"));
    assert!(field.globus_as(&carol, &["endpoint", "permission", "show", &guest, &rule]).contains("r"));
    assert!(field.globus_as(&bob, &["ls", &at("/in/")]).contains("a\n"));
    for path in ["/", "/out/", "/in/way-out", "/in/way-over/"] {
        let error = field.refused(&bob, &["ls", &at(path)]);
        assert!(error.contains("PermissionDenied"), "{path}: {error}");
    }
    assert!(field.refused(&bob, &["mkdir", &at("/in/new")]).contains("PermissionDenied"));
    assert!(!alpha.path("team/in/new").exists());
    carry_out(&field, &bob, &["transfer", &at("/in/a"), &beta.at("/from-bob")]);
    assert_eq!(beta.read("from-bob"), b"from bob's reach");
    for path in ["/in/way-out", "/in/way-over/b"] {
        let task = submit(&field, &bob, &["transfer", &at(path), &beta.at("/stolen")]);
        let code = failed(&field, &bob, &task);
        // What a link leads to outside is not told to be there.
        assert!(["PERMISSION_DENIED", "FILE_NOT_FOUND"].contains(&code.as_str()), "{path}: {code}");
        assert!(!beta.path("stolen").exists(), "{path}");
    }
    assert!(field.refused(&bob, &["transfer", &beta.at("/one"), &at("/in/one")]).contains("PermissionDenied"));

    field.globus_as(&carol, &["endpoint", "permission", "update", &guest, &rule, "--permissions", "rw"]);
    carry_out(&field, &bob, &["transfer", &beta.at("/one"), &at("/in/one")]);
    field.globus_as(&bob, &["mkdir", &at("/in/new")]);
    assert!(alpha.read("team/in/one") == b"1" && alpha.path("team/in/new").is_dir());
    assert!(field.refused(&bob, &["delete", "-r", &at("/out")]).contains("PermissionDenied"));
    let task = submit(&field, &bob, &["transfer", &beta.at("/one"), &at("/in/way-over/one")]);
    failed(&field, &bob, &task);
    assert!(!alpha.path("team/out/one").exists());

    field.globus_as(&carol, &["endpoint", "permission", "delete", &guest, &rule]);
    assert!(field.refused(&bob, &["ls", &at("/in/")]).contains("EndpointNotFound"));
}

#[test]
fn a_right_that_is_taken_back_ends_what_waits_for_a_server() {
    let Some(mut field) = Field::new() else { return };
    field.alpha().write("team/a", "a");
    let (carol, bob) = (field.person("carol"), field.person("bob"));
    let guest = share(&field, &carol, "Carol's team", &field.alpha().at("/team/"));
    let rule = permit(&field, &carol, &format!("{guest}:/"), &["--identity", &bob.id], "r");
    let mut beta = field.beta.take().unwrap();
    beta.server.kill();
    let task = submit(&field, &bob, &["transfer", &format!("{guest}:/a"), &beta.at("/a")]);
    field.globus_as(&carol, &["endpoint", "permission", "delete", &guest, &rule]);
    assert_eq!(failed(&field, &bob, &task), "ACL_CHANGED");
    let events = field.json_as(&bob, &["task", "event-list", &task]);
    assert_eq!(events["DATA"][0]["code"], "ACL_CHANGED", "{events:#}");
}

#[test]
fn a_guest_collection_dies_with_its_sharers_account() {
    let Some(field) = Field::new() else { return };
    field.alpha().write("team/a", "a");
    let (carol, bob) = (field.person("carol"), field.person("bob"));
    let guest = share(&field, &carol, "Carol's team", &field.alpha().at("/team/"));
    permit(&field, &carol, &format!("{guest}:/"), &["--all-authenticated"], "rw");
    let ls = ["ls", &format!("{guest}:/")];
    assert_eq!(field.globus_as(&bob, &ls), "a\n");
    let place = format!("/v2/whimbrel/identities/{}", carol.id);
    assert_eq!(field.tell("PUT", &place, &json!({"disabled": true}))["status"], "closed");
    assert!(field.refused(&bob, &ls).contains("not shared any more"));
    let error = field.refused(&bob, &["transfer", &format!("{guest}:/a"), &field.beta().at("/a")]);
    assert!(error.contains("not shared any more"), "{error}");
    field.refused(&carol, &["ls", &field.alpha().at("/")]);
    field.tell("PUT", &place, &json!({"disabled": false}));
    assert_eq!(field.globus_as(&bob, &ls), "a\n");
}

#[test]
fn roles_let_others_manage_a_guest_collection() {
    let Some(field) = Field::new() else { return };
    field.alpha().write("team/a", "a");
    let (carol, bob, dave) = (field.person("carol"), field.person("bob"), field.person("dave"));
    let guest = share(&field, &carol, "Carol's team", &field.alpha().at("/team/"));
    let role = ["endpoint", "role", "create", "--identity", &bob.id, "--role", "access_manager", &guest];
    let role = field.json_as(&carol, &role)["id"].as_str().unwrap().to_owned();
    permit(&field, &bob, &format!("{guest}:/"), &["--identity", &dave.id], "r");
    assert_eq!(field.globus_as(&dave, &["ls", &format!("{guest}:/")]), "a\n");
    assert!(field.refused(&bob, &["ls", &format!("{guest}:/")]).contains("PermissionDenied"), "he manages only");
    field.globus_as(&carol, &["endpoint", "role", "delete", &guest, &role]);
    field.refused(&bob, &["endpoint", "permission", "list", &guest]);
    let own = field.json_as(&carol, &["endpoint", "my-shared-endpoint-list", &field.alpha().collection]);
    assert_eq!(own["DATA"][0]["id"], guest.as_str(), "{own:#}");
    field.globus_as(&carol, &["api", "transfer", "DELETE", &format!("/endpoint/{guest}")]);
    let error = field.refused(&dave, &["ls", &format!("{guest}:/")]);
    assert!(error.contains("EndpointDeleted"), "{error}");
}

#[test]
fn what_is_given_to_a_group_is_its_members() {
    let Some(field) = Field::new() else { return };
    field.alpha().write("team/a", "a");
    let (carol, bob, dave) = (field.person("carol"), field.person("bob"), field.person("dave"));
    let guest = share(&field, &carol, "Carol's team", &field.alpha().at("/team/"));
    let ls = ["ls", &format!("{guest}:/")];
    let made = field.json_as(&carol, &["group", "create", "team", "--description", "Carol's people"]);
    let group = made["id"].as_str().unwrap_or_else(|| panic!("{made}"));
    permit(&field, &carol, &format!("{guest}:/"), &["--group", group], "r");

    field.refused(&bob, &["group", "show", group]);
    field.globus_as(&carol, &["group", "member", "add", group, &bob.id]);
    assert_eq!(field.globus_as(&bob, &ls), "a\n");
    assert!(field.globus_as(&bob, &["group", "list"]).contains("team"));
    assert!(field.globus_as(&bob, &["group", "show", group]).contains("Carol's people"));
    field.globus_as(&bob, &["group", "leave", group]);
    field.refused(&bob, &ls);

    field.globus_as(&carol, &["group", "member", "invite", group, &dave.id, "--role", "manager"]);
    field.refused(&dave, &ls);
    assert!(field.globus_as(&dave, &["group", "invite", "accept", group]).contains(&dave.id));
    assert_eq!(field.globus_as(&dave, &ls), "a\n");
    field.globus_as(&carol, &["group", "member", "invite", group, &bob.id]);
    field.globus_as(&bob, &["group", "invite", "decline", group]);

    field.globus_as(&carol, &["group", "set-policies", group, "--visibility", "authenticated", "--join-requests"]);
    field.globus_as(&bob, &["group", "join", group, "--request"]);
    assert!(field.globus_as(&dave, &["group", "member", "list", group]).contains("pending"));
    field.globus_as(&dave, &["group", "member", "approve", group, &bob.id]);
    assert_eq!(field.globus_as(&bob, &ls), "a\n");
    field.globus_as(&dave, &["group", "member", "remove", group, &bob.id]);
    field.globus_as(&bob, &["group", "join", group, "--request"]);
    field.globus_as(&dave, &["group", "member", "reject", group, &bob.id]);
    field.refused(&bob, &ls);

    field.globus_as(&carol, &["group", "update", group, "--name", "crew"]);
    assert!(field.globus_as(&dave, &["group", "list"]).contains("crew"));
    field.globus_as(&carol, &["group", "delete", group]);
    field.refused(&dave, &ls);
}

#[test]
fn a_paused_collection_lets_tasks_wait_and_a_careful_one_asks_for_consent() {
    let Some(field) = Field::new() else { return };
    let (alpha, beta) = (field.alpha(), field.beta());
    alpha.write("a", "a");
    let bob = field.person("bob");
    let rule = json!({"endpoint_id": beta.endpoint, "message": "New disks", "pause_ls": false}).to_string();
    let made = field.json(&["api", "transfer", "POST", "/endpoint_manager/pause_rule", "--body", &rule]);
    let rule = format!("/endpoint_manager/pause_rule/{}", made["id"].as_str().unwrap_or_else(|| panic!("{made}")));
    let task = submit(&field, &bob, &["transfer", &alpha.at("/a"), &beta.at("/a")]);
    assert!(field.globus_as(&bob, &["task", "pause-info", &task]).contains("New disks"));
    assert_eq!(field.json_as(&bob, &["task", "show", &task])["is_paused"], true);
    let error = field.refused(&bob, &["mkdir", &beta.at("/d")]);
    assert!(error.contains("OperationPaused") && error.contains("New disks"), "{error}");
    field.globus_as(&bob, &["ls", &beta.at("/")]);
    assert!(!beta.path("a").exists() && !beta.path("d").exists());
    field.globus(&["api", "transfer", "DELETE", &rule]);
    field.globus_as(&bob, &["task", "wait", &task, "--timeout", "60", "--polling-interval", "1"]);
    assert_eq!(beta.read("a"), b"a");

    let place = format!("/v0.10/endpoint/{}", alpha.collection);
    field.tell("PUT", &place, &json!({"data_access": true}));
    let refused = field.ask(
        "/v0.10/transfer",
        &json!({
            "DATA_TYPE": "transfer", "source_endpoint": alpha.collection, "destination_endpoint": beta.collection,
            "submission_id": "00000000-0000-4000-8000-000000000001",
            "DATA": [{"DATA_TYPE": "transfer_item", "source_path": "/a", "destination_path": "/b"}],
        }),
    );
    assert_eq!(refused["code"], "ConsentRequired", "{refused}");
    carry_out(&field, &bob, &["transfer", &alpha.at("/a"), &beta.at("/b")]);
    assert_eq!(beta.read("b"), b"a");
}

#[test]
fn a_collection_is_no_faster_than_it_is_to_be() {
    let Some(field) = Field::new() else { return };
    let (alpha, beta) = (field.alpha(), field.beta());
    alpha.write("big", vec![7; 10_000_000]);
    field.tell("PUT", &format!("/v0.10/endpoint/{}", beta.collection), &json!({"max_rate": 2_000_000}));
    let task = field.carry_out(&["transfer", &alpha.at("/big"), &beta.at("/big")]);
    let rate = task["effective_bytes_per_second"].as_u64().unwrap();
    assert!(rate < 3_000_000 && beta.read("big").len() == 10_000_000, "{task:#}");
}

#[test]
fn a_rate_rule_slows_down_the_tasks_that_it_is_about() {
    let Some(field) = Field::new() else { return };
    let (alpha, beta) = (field.alpha(), field.beta());
    for number in 0..20 {
        alpha.write(&format!("many/{number}"), "x".repeat(1_000_000));
    }
    let rule = field.ask("/v2/whimbrel/rate_rules", &json!({"endpoint_id": alpha.collection, "max_rate": 2_000_000}));
    assert_eq!(rule["in_force"], true, "{rule}");
    let task = field.carry_out(&["transfer", "-r", &alpha.at("/many"), &beta.at("/many")]);
    let rate = task["effective_bytes_per_second"].as_u64().unwrap();
    // The bytes that may be owed when the last file begins are not waited for, and times are told in whole seconds.
    assert!(rate < 3_000_000 && beta.read("many/19").len() == 1_000_000, "{task:#}");
}
