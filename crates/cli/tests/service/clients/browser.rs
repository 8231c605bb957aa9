//! Programs that ask their user to log in with a browser, and to copy the code back: a user who does so.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use serde_json::json;
use whimbrel_testkit::peers::Tool;

use crate::field::Field;

/// Her name.
pub const ANNA: &str = "anna@example.org";
const PASSWORD: &str = "s3cret";

/// Somebody with a password, and a home of her own.
pub struct Anna<'a> {
    field: &'a Field,
    /// Her number.
    pub id: String,
    /// Her home.
    pub home: PathBuf,
}

impl<'a> Anna<'a> {
    /// Makes her known.
    #[track_caller]
    pub fn new(field: &'a Field) -> Self {
        let made = field.ask("/v2/api/identities", &json!({"username": ANNA, "name": "Anna", "password": PASSWORD}));
        let id = made["id"].as_str().unwrap_or_else(|| panic!("{made}")).to_owned();
        let home = field.place("anna");
        std::fs::create_dir(&home).unwrap();
        Self { field, id, home }
    }

    /// A program that she runs.
    pub fn tool(&self, tool: Tool) -> Tool {
        let variables = self.variables();
        variables.into_iter().fold(tool, |tool, (name, value)| tool.env(&name, value)).env("HOME", &self.home)
    }

    /// She is no client, but logs in.
    fn variables(&self) -> Vec<(String, String)> {
        let variables = self.field.variables();
        variables.into_iter().filter(|(name, _)| !name.starts_with("GLOBUS_CLI_CLIENT_")).collect()
    }

    /// Runs a program that prints where to log in and reads the code; gives what it printed.
    #[track_caller]
    pub fn log_in(&self, program: &PathBuf, arguments: &[&str]) -> String {
        let mut command = Command::new(program);
        command.args(arguments).envs(self.variables()).env("HOME", &self.home).env("PYTHONUNBUFFERED", "1");
        // A terminal of another host: no browser is opened.
        command.env("SSH_CONNECTION", "192.0.2.1 1 192.0.2.2 22");
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("it starts");
        let mut output = BufReader::new(child.stdout.take().expect("it is piped"));
        let page = format!("{}/v2/oauth2/authorize?", self.field.url);
        let mut said = String::new();
        let link = loop {
            let mut line = String::new();
            assert_ne!(output.read_line(&mut line).unwrap(), 0, "it named no page to log in; it said {said}");
            said += &line;
            if let Some(link) = line.split_whitespace().find(|word| word.starts_with(&page)) {
                break link.to_owned();
            }
        };
        writeln!(child.stdin.take().expect("it is piped"), "{}", self.code(&link)).unwrap();
        output.read_to_string(&mut said).unwrap();
        let ended = child.wait_with_output().unwrap();
        assert!(ended.status.success(), "{said}\n{}", String::from_utf8_lossy(&ended.stderr));
        said
    }

    /// Opens the page, types name and password, and reads the code from where that leads, which is still at the service.
    #[track_caller]
    fn code(&self, page: &str) -> String {
        let between = |text: &str, before: &str| {
            let found = text.split_once(before).and_then(|(_, rest)| rest.split_once('"'));
            found.unwrap_or_else(|| panic!("{before} is not in {text}")).0.to_owned()
        };
        let ticket = format!("ticket={}", between(&self.curl(&[], page), "name=\"ticket\" value=\""));
        let (name, password) = (format!("username={ANNA}"), format!("password={PASSWORD}"));
        let form = ["-L", "--data-urlencode", &ticket, "--data-urlencode", &name, "--data-urlencode", &password];
        between(&self.curl(&[&form[..], &["-w", "%{url_effective}"]].concat(), page), "readonly size=\"60\" value=\"")
    }

    #[track_caller]
    fn curl(&self, arguments: &[&str], page: &str) -> String {
        let jar = self.field.place("jar");
        let tool = Tool::new("curl").arg("-sS").arg("--cacert").arg(self.field.place("service/certificate.pem"));
        let run = tool.arg("-b").arg(&jar).arg("-c").arg(&jar).args(arguments).arg(page).run().expect("curl runs");
        assert_eq!(run.code(), Some(0), "{page}: {}", run.stderr_text());
        run.stdout_text()
    }
}
