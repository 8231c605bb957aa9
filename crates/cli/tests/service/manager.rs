//! The manager of an endpoint's collections at its servers, as the public command and SDK use it.

use serde_json::{Value, json};
use whimbrel_testkit::peers::Tool;

use super::field::{Field, peer};

fn id(made: &Value) -> String {
    made["id"].as_str().unwrap_or_else(|| panic!("{made:#}")).to_owned()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_else(|| panic!("{value:#}"))
}

#[test]
fn endpoints_are_shown_and_changed() {
    let Some(field) = Field::new() else { return };
    let endpoint = &field.alpha().endpoint;
    assert!(field.globus(&["gcs", "endpoint", "show", endpoint]).contains("alpha endpoint"));
    field.globus(&["gcs", "endpoint", "update", endpoint, "--description", "of the laboratory", "--keywords", "a,b"]);
    let shown = field.json(&["gcs", "endpoint", "show", endpoint]);
    assert_eq!(
        (&shown["description"], &shown["keywords"]),
        (&json!("of the laboratory"), &json!(["a", "b"])),
        "{shown:#}"
    );
    assert!(field.globus(&["endpoint", "show", endpoint]).contains("of the laboratory"), "the service knows it, too");
    let subscription = "11111111-2222-4333-8444-555555555555";
    field.globus(&["gcs", "endpoint", "set-subscription-id", endpoint, subscription]);
    assert_eq!(field.json(&["gcs", "endpoint", "show", endpoint])["subscription_id"], subscription);
    let (_, error) = field.globus_ends(1, &["gcs", "endpoint", "update", endpoint, "--allow-udt", "true"]);
    assert!(error.contains("configuration"), "{error}");

    let me = id_of_me(&field);
    let made = field.json(&["gcs", "endpoint", "role", "create", endpoint, "activity_monitor", &me]);
    let role = id(&made);
    assert!(field.globus(&["gcs", "endpoint", "role", "list", endpoint, "--all-roles"]).contains("activity_monitor"));
    assert!(field.globus(&["gcs", "endpoint", "role", "show", endpoint, &role]).contains("activity_monitor"));
    field.globus(&["gcs", "endpoint", "role", "delete", endpoint, &role]);
    assert!(!field.globus(&["gcs", "endpoint", "role", "list", endpoint, "--all-roles"]).contains("activity_monitor"));
}

fn id_of_me(field: &Field) -> String {
    text(&field.json(&["whoami"])["sub"]).to_owned()
}

#[test]
fn mapped_collections_are_made_changed_and_taken_away() {
    let Some(field) = Field::new() else { return };
    let alpha = field.alpha();
    alpha.write("part/inside", "1");
    let endpoint = &alpha.endpoint;
    let gateways = field.globus(&["gcs", "storage-gateway", "list", endpoint]);
    assert!(gateways.contains("Storage of alpha endpoint"), "{gateways}");

    let made =
        field.json(&["gcs", "collection", "create", "mapped", endpoint, "a part", "--base-path", "/part/", "--public"]);
    let part = id(&made);
    assert_eq!(field.globus(&["ls", &format!("{part}:/")]), "inside\n");
    let listed = field.globus(&["gcs", "collection", "list", endpoint]);
    assert!(listed.contains("a part") && listed.contains("alpha data"), "{listed}");
    let shown = field.globus(&["gcs", "collection", "show", &part]);
    assert!(shown.contains("a part") && shown.contains(&format!("/{part}")) && shown.contains("POSIX"), "{shown}");
    let ours = field.json(&["gcs", "collection", "list", endpoint, "--filter", "guest-collections"]);
    assert_eq!(ours["DATA"], json!([]));

    field.globus(&["gcs", "collection", "update", &part, "--display-name", "another name", "--disable-https"]);
    let shown = field.json(&["gcs", "collection", "show", &part]);
    assert_eq!(
        (&shown["display_name"], &shown["enable_https"], &shown["https_url"]),
        (&json!("another name"), &json!(false), &json!(null))
    );
    assert_eq!(field.json(&["api", "transfer", "GET", &format!("/endpoint/{part}")])["https_server"], json!(null));
    // What nobody would carry out is not promised.
    let restricted = ["gcs", "collection", "update", &part, "--sharing-user-allow", "somebody"];
    let (_, error) = field.globus_ends(1, &restricted);
    assert!(error.contains("sharing_users_allow"), "{error}");

    let me = id_of_me(&field);
    let role = json!({
        "DATA_TYPE": "role#1.0.0", "collection": part, "role": "access_manager",
        "principal": format!("urn:globus:auth:identity:{me}"),
    });
    let role = field.json(&["api", "gcs", endpoint, "POST", "/roles", "--body", &role.to_string()]);
    let role = id(&role["data"][0]);
    assert!(field.globus(&["gcs", "collection", "role", "list", &part, "--all-roles"]).contains("access_manager"));
    field.globus(&["gcs", "collection", "role", "delete", &part, &role]);
    field.globus(&["gcs", "collection", "delete", &part]);
    assert!(!field.globus(&["gcs", "collection", "list", endpoint]).contains("another name"));
    field.globus_ends(1, &["ls", &format!("{part}:/")]);
    assert!(alpha.path("part/inside").exists(), "files stay");
}

#[test]
fn guests_are_made_with_a_credential_of_who_shares() {
    let Some(field) = Field::new() else { return };
    let alpha = field.alpha();
    alpha.write("part/shared/file", "shared");
    let (endpoint, me) = (&alpha.endpoint, id_of_me(&field));
    let wish = ["gcs", "collection", "create", "mapped", endpoint, "a part", "--base-path", "/part/"];
    let closed = id(&field.json(&wish));
    let (_, error) = field.globus_ends(1, &["gcs", "collection", "create", "guest", &closed, "/shared/", "a guest"]);
    assert!(error.contains("does not allow guest collections"), "{error}");
    field.globus(&["gcs", "collection", "update", &closed, "--allow-guest-collections"]);
    let guest = field.json(&["gcs", "collection", "create", "guest", &closed, "/shared/", "a guest"]);
    let guest = id(&guest);
    assert_eq!(field.globus(&["ls", &format!("{guest}:/")]), "file\n");
    let of_it = field.json(&["gcs", "collection", "list", endpoint, "--mapped-collection-id", &closed]);
    assert_eq!((of_it["DATA"].as_array().unwrap().len(), &of_it["DATA"][0]["id"]), (1, &json!(guest)));

    // The account is a choice of who has several.
    let gateway = field.json(&["gcs", "storage-gateway", "list", endpoint]);
    let gateway = text(&gateway["data"][0]["id"]).to_owned();
    let account = rustix::process::geteuid().is_root().then_some("nobody");
    let Some(account) = account else { return };
    let made = field.json(&["gcs", "user-credential", "create", "posix", endpoint, &gateway, &me, account]);
    let credential = id(&made);
    assert!(field.globus(&["gcs", "user-credential", "list", endpoint]).contains(account));
    assert!(field.globus(&["gcs", "user-credential", "show", endpoint, &credential]).contains(account));
    let secret = ["gcs", "user-credential", "create", "s3", endpoint, &gateway, &me, "x", "key", "secret"];
    let (_, error) = field.globus_ends(1, &secret);
    assert!(error.contains("takes no secrets"), "{error}");
    field.globus(&["gcs", "collection", "create", "guest", &closed, "/shared/", "another guest"]);
    field.globus(&["gcs", "user-credential", "delete", endpoint, &credential]);
    assert!(!field.globus(&["gcs", "user-credential", "list", endpoint]).contains(account));
}

const PROGRAM: &str = r#"
import json, os, sys
import globus_sdk

endpoint, address = sys.argv[1:3]
auth = globus_sdk.ConfidentialAppAuthClient(os.environ["GLOBUS_CLI_CLIENT_ID"], os.environ["GLOBUS_CLI_CLIENT_SECRET"])
scopes = globus_sdk.scopes.GCSEndpointScopes(endpoint)
authorizer = globus_sdk.ClientCredentialsAuthorizer(auth, scopes.manage_collections)
client = globus_sdk.GCSClient(address, authorizer=authorizer)
told = {"info": client.get_gcs_info()["endpoint_id"], "gateways": len(list(client.get_storage_gateway_list()))}
gateway = next(iter(client.get_storage_gateway_list()))["id"]
made = [client.create_collection(globus_sdk.MappedCollectionDocument(
    display_name=f"page {number}", storage_gateway_id=gateway, collection_base_path="/", public=False))["id"]
    for number in range(3)]
told["paged"] = sorted(one["display_name"] for one in client.paginated.get_collection_list(page_size=2).items())
refused = []
for call in [lambda: client.get_collection("00000000-0000-4000-8000-000000000000"),
             lambda: client.create_storage_gateway({"DATA_TYPE": "storage_gateway#1.0.0", "display_name": "x"}),
             lambda: client.update_collection(made[0], {"collection_base_path": "/etc"}),
             lambda: globus_sdk.GCSClient(address, authorizer=globus_sdk.AccessTokenAuthorizer("rubbish")).get_collection(made[0])]:
    try:
        call()
    except globus_sdk.GCSAPIError as error:
        refused.append([error.http_status, error.code])
told["refused"] = refused
print(json.dumps(told))
"#;

#[test]
fn the_public_sdk_pages_and_reads_refusals() {
    let Some(field) = Field::new() else { return };
    let Some(python) = peer("globusfs", "python") else { return };
    let endpoint = &field.alpha().endpoint;
    let shown = field.json(&["api", "transfer", "GET", &format!("/endpoint/{endpoint}")]);
    let tool = Tool::new(python).args(["-c", PROGRAM, endpoint, text(&shown["gcs_manager_url"])]);
    let run = field.environment(tool).run().expect("python runs");
    assert_eq!(run.code(), Some(0), "{}\n{}", run.stdout_text(), run.stderr_text());
    let told: Value = serde_json::from_str(run.stdout_text().lines().last().unwrap()).unwrap();
    assert_eq!((&told["info"], &told["gateways"]), (&json!(endpoint), &json!(1)));
    assert_eq!(told["paged"], json!(["alpha data", "page 0", "page 1", "page 2"]));
    let refused = json!([
        [404, "not_found"],
        [422, "unprocessable_entity"],
        [422, "unprocessable_entity"],
        [401, "unauthorized"]
    ]);
    assert_eq!(told["refused"], refused);
}
