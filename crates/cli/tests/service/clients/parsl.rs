//! Parsl, a workflow system: it logs in as its users do, and its files go through the service.

use std::path::Path;

use serde_json::{Value, json};
use whimbrel_testkit::peers::Tool;

use super::browser::Anna;
use crate::field::{Field, WHIMBREL, peer};

/// What Parsl has built in: the id under which Globus knows it, and the page that shows its users their codes.
const ID: &str = "8b8060fd-610e-4a74-885e-1051c71ad473";
const CODE_PAGE: &str = "https://auth.globus.org/v2/web/auth-code";

#[test]
fn a_workflow_moves_its_files_through_the_service() {
    let Some(login) = peer("parsl", "parsl-globus-auth") else { return };
    let Some(field) = Field::new() else { return };
    let (alpha, beta) = (field.alpha(), field.beta());
    alpha.write("input/numbers.txt", "1\n20\n300\n");
    alpha.write("input/words.txt", "whimbrels whistle\n");
    // What both the servers' account and the workflow write to.
    beta.write("work/.keep", "");

    let administrator = |arguments: &[&str]| {
        let home = field.place("administrator");
        let tool = Tool::new(WHIMBREL).args(arguments).env("HOME", &home).env("XDG_CONFIG_HOME", home.join(".config"));
        tool.run_ok().stdout_text()
    };
    let place = |name: &str| field.place(name).display().to_string();
    let (client, authorities) = (place("service/administrator.json"), place("service/certificate.pem"));
    administrator(&["login", &field.url, "--client", &client, "--authorities", &authorities]);
    let made = administrator(&["user", "client", "Parsl", "--public", "--id", ID, "--back", CODE_PAGE]);
    assert_eq!(made.trim(), ID);
    let anna = Anna::new(&field);
    assert!(anna.log_in(&login, &[]).contains("Authorization complete"));
    let tokens: Value = serde_json::from_slice(&std::fs::read(anna.home.join(".parsl/.globus.json")).unwrap()).unwrap();
    assert!(tokens["transfer.api.globus.org"]["refresh_token"].is_string(), "{tokens}");

    let programs = login.parent().unwrap();
    let path = format!("{}:{}", programs.display(), std::env::var("PATH").unwrap_or_default());
    let workflow = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/service/clients/workflow.py");
    let tool = anna.tool(Tool::new(programs.join("python")).arg(workflow).arg(&beta.root)).env("PATH", path);
    let tool = tool.env("ALPHA", &alpha.collection).env("BETA", &beta.collection);
    let run = tool.run().expect("python runs");
    assert_eq!(run.code(), Some(0), "{}\n{}", run.stdout_text(), run.stderr_text());
    let told: Value = serde_json::from_str(run.stdout_text().lines().last().unwrap()).unwrap();
    assert_eq!(told["sum"], 321, "{told:#}");
    assert_eq!(told["missing"], "DependencyError", "what is not there stops the step that needs it");
    assert_eq!(beta.read("results/deep/sum.txt"), b"the sum is 321\n");
    assert_eq!(alpha.read("output/loud.txt"), b"WHIMBRELS WHISTLE\n");
    assert!(!alpha.path("output/never.txt").exists());

    // They were tasks in the name of who ran the workflow, as another client of hers sees them.
    let globus = peer("globus-cli", "globus").expect("the field has it");
    anna.log_in(&globus, &["login", "--no-local-server"]);
    let listed = anna.tool(Tool::new(&globus).args(["task", "list", "--format", "json"])).run_ok().stdout_text();
    let listed: Value = serde_json::from_str(&listed).unwrap();
    let mut seen: Vec<_> = listed["DATA"]
        .as_array()
        .unwrap()
        .iter()
        .map(|task| {
            assert_eq!(task["owner_id"], anna.id.as_str());
            let fatal = &task["fatal_error"]["code"];
            json!([
                task["source_endpoint_display_name"],
                task["destination_endpoint_display_name"],
                task["status"],
                fatal
            ])
        })
        .collect();
    seen.sort_by_key(ToString::to_string);
    let wanted = json!([
        ["alpha data", "beta data", "FAILED", "FILE_NOT_FOUND"],
        ["alpha data", "beta data", "SUCCEEDED", null],
        ["alpha data", "beta data", "SUCCEEDED", null],
        ["beta data", "alpha data", "SUCCEEDED", null],
        ["beta data", "beta data", "SUCCEEDED", null]
    ]);
    assert_eq!(Value::from(seen), wanted);
}
