//! An OpenID provider that others wrote (oidc-provider-mock, on Authlib): somebody of a university logs in there.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::json;
use tempfile::TempDir;
use whimbrel_testkit::peers::{Daemon, curl, public_dir};
use whimbrel_testkit::pki::Pki;

use super::field::{Field, peer};
use super::seat::{Seat, told};

/// The provider, and whom it knows.
struct University {
    directory: TempDir,
    url: String,
    _daemon: Daemon,
}

impl University {
    /// `None`: it is not installed here.
    fn start() -> Option<Self> {
        let python = peer("openid", "python")?;
        let directory = public_dir().unwrap();
        let pki = Pki::new().unwrap();
        let host = pki.host(&["localhost", "127.0.0.1"]).unwrap();
        fs::write(directory.path().join("authority.pem"), pki.authority().certificate.to_pem().unwrap()).unwrap();
        let mut command = Command::new(python);
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/managed/university.py");
        // One file holds both.
        command.args(["-W", "ignore"]).arg(script).arg(&host.file).arg(&host.file);
        let listening = |line: &str| line.strip_prefix("listening on ").map(str::to_owned);
        let (daemon, url) = Daemon::start(command, Duration::from_secs(60), listening).unwrap();
        Some(Self { directory, url, _daemon: daemon })
    }

    fn authority(&self) -> PathBuf {
        self.directory.path().join("authority.pem")
    }

    /// Makes somebody known, with these claims.
    fn admit(&self, subject: &str, claims: &serde_json::Value) {
        let url = format!("{}/users/{subject}", self.url);
        let tool = curl().expect("the suite has it").arg("--cacert").arg(self.authority());
        tool.args(["-X", "PUT", "-H", "Content-Type: application/json", "-d", &claims.to_string(), &url]).run_ok();
    }

    /// A service whose people may come from there.
    fn served(&self) -> Field {
        let secret = self.directory.path().join("secret");
        fs::write(&secret, "s3cret\n").unwrap();
        fs::set_permissions(&secret, Permissions::from_mode(0o600)).unwrap();
        let (secret, authority) = (secret.display().to_string(), self.authority().display().to_string());
        let mut options = vec!["--oidc-issuer", &self.url, "--oidc-client", "whimbrel", "--oidc-secret", &secret];
        options.extend(["--oidc-authorities", &authority, "--oidc-domain", "uni.example"]);
        options.extend(["--oidc-claim", "preferred_username", "--oidc-label", "Example University"]);
        Field::serving_with(&options)
    }
}

/// A browser as its user works it: presses the university's button, and fills in what the university asks.
const BROWSER: &str = r#"#!/bin/sh
jar=$(mktemp)
browse() { curl -sS --cacert "$CERTIFICATE" -b "$jar" -c "$jar" -L "$@"; }
ticket=$(browse "$1" | sed -n 's/.*name="ticket" value="\([^"]*\)"><input type="hidden" name="by" value="provider".*/\1/p')
there=$(browse -o "$SEEN" -w '%{url_effective}' -d by=provider --data-urlencode "ticket=$ticket" "$1")
browse -d "$ANSWER" "$there" > "$SEEN"
rm -f "$jar"
"#;

/// Logs in by the university, with this answer to its form, and expects this exit code; gives what the command said.
#[track_caller]
fn log_in(seat: &Seat<'_>, university: &University, answer: &str, code: i32) -> String {
    let place = |name: &str| seat.field.place(name);
    let (browser, both) = (place("browser"), place("both.pem"));
    fs::write(&browser, BROWSER).unwrap();
    fs::set_permissions(&browser, Permissions::from_mode(0o755)).unwrap();
    let own = place("service/certificate.pem");
    fs::write(&both, [fs::read(&own).unwrap(), fs::read(university.authority()).unwrap()].concat()).unwrap();
    let arguments = ["login", &seat.field.url, "--authorities", &own.display().to_string()];
    let command = seat.command(&arguments).env("BROWSER", browser).env("CERTIFICATE", both);
    let run = command.env("SEEN", seat.home.join("seen")).env("ANSWER", answer).run().unwrap();
    told(code, &run, &arguments).1
}

#[test]
fn somebody_of_a_university_with_another_makers_provider_logs_in() {
    let Some(university) = University::start() else { return };
    let field = university.served();
    university.admit("1-2-3", &json!({"preferred_username": "grace", "name": "Grace", "email": "grace@uni.example"}));
    let grace = Seat::new(&field, "grace");
    let said = log_in(&grace, &university, "sub=1-2-3", 0);
    assert!(said.contains("as grace@uni.example"), "{said}");
    let who = grace.says(&["whoami"]);
    assert!(who.starts_with("grace@uni.example"), "{who}");
    assert_eq!(grace.says(&["task", "list"]), "");
    assert!(Seat::administrator(&field).says(&["user", "show", "grace@uni.example"]).contains("Grace"));

    // Whom she is known as follows from her number there, not from what she is called now.
    university.admit("1-2-3", &json!({"preferred_username": "hopper", "name": "Grace"}));
    grace.ends(0, &["logout"]);
    assert!(log_in(&grace, &university, "sub=1-2-3", 0).contains("as grace@uni.example"));

    // Somebody else of her name, and somebody without a name.
    university.admit("4-5-6", &json!({"preferred_username": "grace"}));
    university.admit("7-8-9", &json!({"name": "Nobody"}));
    let other = Seat::new(&field, "other");
    for (answer, why) in [("sub=4-5-6", "somebody else's name here already"), ("sub=7-8-9", "does not tell your name")]
    {
        let said = log_in(&other, &university, answer, 6);
        assert!(said.contains(why), "{answer}: {said}");
        other.ends(6, &["whoami"]);
    }
}
