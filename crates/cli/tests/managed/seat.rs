//! A user's place: a home of their own, from which commands are given.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use serde_json::Value;
use whimbrel_testkit::peers::{Run, Tool};

use super::field::{Field, WHIMBREL};

/// Somebody at a computer.
pub struct Seat<'a> {
    /// The service and its servers.
    pub field: &'a Field,
    /// Their home.
    pub home: PathBuf,
}

impl<'a> Seat<'a> {
    /// Somebody at home; at their first time they have never been here.
    pub fn new(field: &'a Field, name: &str) -> Self {
        let home = field.place(&format!("home-{name}"));
        std::fs::create_dir_all(&home).unwrap();
        Self { field, home }
    }

    /// The administrator, logged in.
    #[track_caller]
    pub fn administrator(field: &'a Field) -> Self {
        let seat = Self::new(field, "administrator");
        let (client, authorities) = (seat.text("service/administrator.json"), seat.text("service/certificate.pem"));
        seat.ends(0, &["login", &field.url, "--client", &client, "--authorities", &authorities]);
        seat
    }

    fn text(&self, name: &str) -> String {
        self.field.place(name).display().to_string()
    }

    /// The command with these arguments.
    pub fn command(&self, arguments: &[&str]) -> Tool {
        let tool = Tool::new(WHIMBREL).args(arguments).limit(Duration::from_secs(120));
        ["SSH_CONNECTION", "DISPLAY", "WAYLAND_DISPLAY", "BROWSER", "WHIMBREL_SERVICE"]
            .into_iter()
            .fold(tool, |tool, name| tool.env(name, ""))
            .env("HOME", &self.home)
            .env("XDG_CONFIG_HOME", self.home.join(".config"))
    }

    /// Runs the command and expects this exit code; gives what it printed and what it said.
    #[track_caller]
    pub fn ends(&self, code: i32, arguments: &[&str]) -> (String, String) {
        told(code, &self.command(arguments).run().expect("it runs"), arguments)
    }

    /// The same with one of several exit codes.
    #[track_caller]
    pub fn ends_any(&self, codes: &[i32], arguments: &[&str]) -> (String, String) {
        let run = self.command(arguments).run().expect("it runs");
        let code = run.code().filter(|code| codes.contains(code)).unwrap_or(codes[0]);
        told(code, &run, arguments)
    }

    /// Runs the command with something on its standard input, and expects it to succeed.
    #[track_caller]
    pub fn with_input(&self, input: &str, arguments: &[&str]) -> String {
        told(0, &self.command(arguments).input(input).run().expect("it runs"), arguments).0
    }

    /// Runs the command and expects it to succeed; gives what it printed, without the end of the line.
    #[track_caller]
    pub fn says(&self, arguments: &[&str]) -> String {
        self.ends(0, arguments).0.trim_end().to_owned()
    }

    /// Runs the command until what it prints is as wanted, and gives that.
    #[track_caller]
    pub fn until(&self, arguments: &[&str], wanted: impl Fn(&str) -> bool) -> String {
        let deadline = Instant::now() + Duration::from_secs(120);
        loop {
            let said = self.says(arguments);
            if wanted(&said) {
                return said;
            }
            assert!(Instant::now() < deadline, "whimbrel {arguments:?} still says:\n{said}");
        }
    }

    /// The events that the command prints with `--json`.
    #[track_caller]
    pub fn events(&self, code: i32, arguments: &[&str]) -> Vec<Value> {
        let (output, _) = self.ends(code, &[&["--json"], arguments].concat());
        let read = |line: &str| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
        output.lines().map(read).collect()
    }
}

#[track_caller]
pub fn told(code: i32, run: &Run, arguments: &[&str]) -> (String, String) {
    let (output, error) = (run.stdout_text(), run.stderr_text());
    assert_eq!(run.code(), Some(code), "whimbrel {arguments:?}\nstdout:\n{output}\nstderr:\n{error}");
    (output, error)
}
