//! Who one is: with a client, with a browser, at a host that is known by its key.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;

use serde_json::{Value, json};

use whimbrel_testkit::issuer::{Issuer, Registered, SigningKey};
use whimbrel_testkit::peers::Tool;
use whimbrel_testkit::pki::Pki;

use super::field::{Field, WHIMBREL};
use super::seat::Seat;

#[test]
fn a_client_logs_in_and_out_and_what_is_missing_is_said() {
    let field = Field::plain();
    let seat = Seat::new(&field, "somebody");
    let (_, error) = seat.ends(6, &["task", "list"]);
    assert!(error.contains("you are not logged in") && error.contains("whimbrel login"), "{error}");
    let failed = seat.events(6, &["whoami"]);
    assert_eq!((&failed[0]["event"], &failed[0]["refused"]["code"]), (&json!("failed"), &json!("NotLoggedIn")));

    let client = field.place("service/administrator.json").display().to_string();
    let authorities = field.place("service/certificate.pem").display().to_string();
    let known: Value = serde_json::from_slice(&fs::read(&client).unwrap()).unwrap();
    let wrong = json!({"client_id": known["client_id"], "client_secret": "ws_guessed"}).to_string();
    let wrong = field.secret("wrong.json", &wrong).display().to_string();
    let by_it = ["login", &field.url, "--client", &wrong, "--authorities", &authorities];
    let (_, error) = seat.ends(6, &by_it);
    assert!(!error.contains("others may read it"), "{error}");
    fs::set_permissions(&wrong, Permissions::from_mode(0o640)).unwrap();
    let (_, error) = seat.ends(6, &by_it);
    assert!(error.contains("others may read it"), "{error}");
    seat.ends(2, &["login"]);
    seat.ends(1, &["login", &field.url, "--client", &client, "--authorities", "/nowhere.pem"]);
    seat.ends(7, &["login", "https://127.0.0.1:1", "--client", &client]);

    let (_, said) = seat.ends(0, &["login", &field.url, "--client", &client, "--authorities", &authorities]);
    assert!(said.contains(&format!("logged in at {} as", field.url)), "{said}");
    let file = seat.home.join(".config/whimbrel/logins.json");
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    assert!(seat.says(&["whoami"]).contains("@clients."));
    assert_eq!(seat.events(0, &["whoami"])[0]["service"], json!(field.url));
    let (_, error) = seat.ends(6, &["whoami", "--service", "https://elsewhere.example.org"]);
    assert!(error.contains("elsewhere.example.org"), "{error}");

    fs::set_permissions(&file, Permissions::from_mode(0o644)).unwrap();
    let (_, error) = seat.ends(6, &["whoami"]);
    assert!(error.contains("others may read it"), "{error}");
    fs::set_permissions(&file, Permissions::from_mode(0o600)).unwrap();

    let (_, said) = seat.ends(0, &["logout"]);
    assert!(said.contains("logged out"), "{said}");
    assert!(!fs::read_to_string(&file).unwrap().contains("ws_"));
    seat.ends(6, &["whoami"]);
}

#[test]
fn a_host_that_nobody_vouches_for_is_known_by_its_key() {
    let field = Field::plain();
    let seat = Seat::new(&field, "somebody");
    let client = field.place("service/administrator.json").display().to_string();
    let (_, said) = seat.ends(0, &["login", &field.url, "--client", &client]);
    assert!(said.contains("known by its key"), "{said}");
    seat.says(&["whoami"]);
    let known = seat.home.join(".config/whimbrel/known_hosts");
    let line = fs::read_to_string(&known).unwrap();
    let (host, key) = line.trim_end().split_once(' ').unwrap();
    let (last, other) = key.split_at(key.len() - 1);
    let other = if other == "0" { "1" } else { "0" };
    fs::write(&known, format!("{host} {last}{other}\n")).unwrap();
    let (_, error) = seat.ends(6, &["whoami"]);
    assert!(error.contains("somebody may be in between"), "{error}");
    fs::write(&known, "").unwrap();
    seat.ends(6, &["whoami"]);
}

/// A browser as its user works it: opens the page, types name and password, and goes where it is sent.
const BROWSER: &str = r#"#!/bin/sh
jar=$(mktemp)
page=$(curl -sS --cacert "$CERTIFICATE" -c "$jar" "$1")
ticket=$(printf %s "$page" | sed -n 's/.*name="ticket" value="\([^"]*\)".*/\1/p')
curl -sS --cacert "$CERTIFICATE" -b "$jar" -L --data-urlencode "ticket=$ticket" \
  --data-urlencode username=anna@example.org --data-urlencode password=s3cret "$1" > "$SEEN"
rm -f "$jar"
"#;

/// Makes anna known, and gives her a seat with a browser.
pub fn anna(field: &Field) -> (Seat<'_>, String) {
    let administrator = Seat::administrator(field);
    let id = administrator.with_input("s3cret\n", &["user", "create", "anna@example.org", "--name", "Anna"]);
    assert!(administrator.says(&["user", "show", "anna@example.org"]).contains("Anna"));
    let seat = Seat::new(field, "anna");
    let browser = field.place("browser");
    fs::write(&browser, BROWSER).unwrap();
    fs::set_permissions(&browser, Permissions::from_mode(0o755)).unwrap();
    (seat, id.trim_end().to_owned())
}

pub fn log_in_by_browser(seat: &Seat<'_>) {
    let authorities = seat.field.place("service/certificate.pem").display().to_string();
    let arguments = ["login", &seat.field.url, "--authorities", &authorities];
    let command = seat.command(&arguments).env("BROWSER", seat.field.place("browser"));
    let run = command.env("CERTIFICATE", &authorities).env("SEEN", seat.home.join("seen")).run().unwrap();
    let (_, said) = super::seat::told(0, &run, &arguments);
    assert!(said.contains("as anna@example.org"), "{said}");
}

#[test]
fn a_person_logs_in_with_a_browser_and_the_login_renews_itself() {
    let field = Field::plain();
    let (seat, id) = anna(&field);
    log_in_by_browser(&seat);
    let who = seat.says(&["whoami"]);
    assert!(who.starts_with("anna@example.org") && who.contains(&id), "{who}");
    assert_eq!(seat.says(&["task", "list"]), "");

    // Tokens whose time is over, and tokens that the service does not know any more, are renewed.
    let file = seat.home.join(".config/whimbrel/logins.json");
    for (field, value) in [("ends", json!(0)), ("access", json!("wa_forgotten"))] {
        let mut kept: Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
        for token in kept["logins"][0]["tokens"].as_object_mut().unwrap().values_mut() {
            token[field] = value.clone();
        }
        fs::write(&file, kept.to_string()).unwrap();
        seat.says(&["task", "list"]);
        seat.says(&["whoami"]);
        let now: Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
        assert_ne!(now["logins"][0]["tokens"], kept["logins"][0]["tokens"], "{field}");
    }

    let copy = fs::read(&file).unwrap();
    seat.ends(0, &["logout"]);
    fs::write(&file, copy).unwrap();
    let (_, error) = seat.ends(6, &["whoami"]);
    assert!(error.contains("not good any more") && error.contains("whimbrel login"), "{error}");
    log_in_by_browser(&seat);
    seat.says(&["whoami"]);
}

#[test]
fn without_a_browser_a_code_is_copied_and_a_wrong_one_is_refused() {
    let field = Field::plain();
    let (seat, _) = anna(&field);
    let authorities = field.place("service/certificate.pem").display().to_string();
    let arguments = ["login", &field.url, "--authorities", &authorities, "--no-browser"];
    let run = seat.command(&arguments).input("wc_wrong\n").run().unwrap();
    let (_, said) = super::seat::told(2, &run, &arguments);
    assert!(said.contains("/v2/oauth2/authorize?") && said.contains("The code is unknown"), "{said}");
    seat.ends(6, &["whoami"]);
}

/// The same for somebody who presses the button of a university, where nothing is asked: they are logged in there already.
const GUEST: &str = r#"#!/bin/sh
jar=$(mktemp)
page=$(curl -sS --cacert "$CERTIFICATE" -c "$jar" "$1")
ticket=$(printf %s "$page" | sed -n 's/.*name="ticket" value="\([^"]*\)"><input type="hidden" name="by" value="provider".*/\1/p')
curl -sS --cacert "$CERTIFICATE" -b "$jar" -c "$jar" -L -d by=provider --data-urlencode "ticket=$ticket" "$1" > "$SEEN"
rm -f "$jar"
"#;

#[test]
fn somebody_of_a_university_logs_in_there() {
    let key = SigningKey::rs256("one").unwrap();
    let issuer = Issuer::start(&Pki::new().unwrap(), &[&key]).unwrap();
    let place = whimbrel_testkit::peers::public_dir().unwrap();
    let secret = place.path().join("secret");
    fs::write(&secret, "s3cret\n").unwrap();
    let (shown, authority) = (secret.display().to_string(), issuer.authority().display().to_string());
    let url = issuer.url();
    let options = [
        "--oidc-issuer",
        &url,
        "--oidc-client",
        "whimbrel",
        "--oidc-secret",
        &shown,
        "--oidc-authorities",
        &authority,
        "--oidc-domain",
        "uni.example",
        "--oidc-claim",
        "preferred_username",
        "--oidc-label",
        "Example University",
    ];
    // Secrets that others may read, and names that would be ours, are refused before anything begins.
    for (mode, options, why) in [
        (0o644, options.to_vec(), "may be read by others"),
        (0o600, [&options[..], &["--domain", "Uni.example"]].concat(), "another than the domain"),
        (0o600, [&["--oidc-issuer", "http://x"][..], &options[2..]].concat(), "https://"),
    ] {
        fs::set_permissions(&secret, Permissions::from_mode(mode)).unwrap();
        let state = place.path().join("none").display().to_string();
        let run = Tool::new(WHIMBREL)
            .args(["serve", "--state", &state, "--listen", "127.0.0.1:0"])
            .args(options)
            .run()
            .unwrap();
        assert!(run.code() == Some(2) && run.stderr_text().contains(why), "{why}: {run}");
    }

    let field = Field::serving_with(&options);
    let redirect = format!("{}/v2/oauth2/provider", field.url);
    let registered = Registered { id: "whimbrel".into(), secret: "s3cret".into(), redirect, by_form: false };
    issuer.register(registered, key);
    issuer.settle(json!({"sub": "1-2-3", "preferred_username": "grace", "name": "Grace"}));
    let browser = field.place("browser");
    fs::write(&browser, GUEST).unwrap();
    fs::set_permissions(&browser, Permissions::from_mode(0o755)).unwrap();
    let seat = Seat::new(&field, "grace");
    let authorities = field.place("service/certificate.pem").display().to_string();
    let both = field.place("both.pem");
    fs::write(&both, [fs::read(&authorities).unwrap(), fs::read(&authority).unwrap()].concat()).unwrap();
    let arguments = ["login", &field.url, "--authorities", &authorities];
    let command = seat.command(&arguments).env("BROWSER", browser);
    let run = command.env("CERTIFICATE", both).env("SEEN", seat.home.join("seen")).run().unwrap();
    let (_, said) = super::seat::told(0, &run, &arguments);
    assert!(said.contains("as grace@uni.example"), "{said}");
    assert!(seat.says(&["whoami"]).starts_with("grace@uni.example"));
    assert!(Seat::administrator(&field).says(&["user", "show", "grace@uni.example"]).contains("Grace"));
}
