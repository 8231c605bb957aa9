//! A server for hostile guests, and a bystander who must not notice them.

use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use tempfile::TempDir;
use whimbrel_testkit::peers::{Tool, public_dir};

use super::control::{Control, Reply};
use super::dtn::{Dtn, until};
use super::{WHIMBREL, expect, names, pattern};

/// A server with `file`, `shut/secret` and an empty `free` in its root, and `outside/secret` beside it.
pub struct Scene {
    directory: TempDir,
    /// The server.
    pub server: Dtn,
}

impl Scene {
    /// A server that anybody may use, with these lines of configuration.
    pub fn open(config: &str) -> Scene {
        Scene::start(config, true)
    }

    /// A server for `ada`, whose password is `right`.
    pub fn closed(config: &str) -> Scene {
        Scene::start(config, false)
    }

    fn start(config: &str, anonymous: bool) -> Scene {
        let directory = public_dir().expect("directory");
        for name in ["root", "root/shut", "root/free", "outside"] {
            let path = directory.path().join(name);
            std::fs::create_dir(&path).expect("made");
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o777)).expect("set");
        }
        let put = |name: &str, bytes: &[u8]| std::fs::write(directory.path().join(name), bytes).expect("made");
        put("root/file", &pattern(300_000));
        put("root/shut/secret", b"nobody's business");
        put("outside/secret", b"nobody's business");
        put("config.toml", config.as_bytes());
        let config = directory.path().join("config.toml");
        let builder = Dtn::builder().root(&directory.path().join("root")).arg("--config").arg(config);
        let server = match anonymous {
            true => builder.anonymous().start(),
            false => {
                let hash = Tool::new(WHIMBREL).args(["dtn", "--hash-password"]).input("right").run_ok().stdout_text();
                put("users", format!("ada:{hash}").as_bytes());
                builder.arg("--users").arg(directory.path().join("users")).arg("--clear-text-passwords").start()
            }
        };
        Scene { directory, server }
    }

    /// Where control connections go.
    pub fn addr(&self) -> SocketAddr {
        self.server.addr()
    }

    /// Something in its directory: the root is `root`.
    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Its directory and the server, each to end by itself.
    pub fn into_parts(self) -> (TempDir, Dtn) {
        (self.directory, self.server)
    }

    /// Logs `ada` in; the last reply.
    pub fn login(&self, password: &str) -> (Control, Reply) {
        let mut control = Control::open(self.addr());
        assert_eq!(control.ask("USER ada").code, 331);
        let reply = control.ask(&format!("PASS {password}"));
        (control, reply)
    }

    /// A bystander's copies, up and down, go well.
    #[track_caller]
    pub fn assert_serves_others(&self) {
        let (file, back) = (self.path("root/file"), self.path("back"));
        expect(0, ["cp".as_ref(), file.as_os_str(), self.server.url("/free/bystander").as_ref()]);
        expect(0, ["cp".as_ref(), self.server.url("/free/bystander").as_ref(), back.as_os_str()]);
        assert!(std::fs::read(back).expect("copied") == pattern(300_000));
    }

    /// Nothing was written beside the root.
    #[track_caller]
    pub fn assert_contained(&self) {
        assert_eq!(names(&self.path("outside")), ["secret"]);
        assert_eq!(std::fs::read_to_string(self.path("outside/secret")).expect("there"), "nobody's business");
    }

    /// Nothing was made, changed or removed in the root, but what bystanders put there.
    #[track_caller]
    pub fn assert_untouched(&self) {
        assert_eq!(names(&self.path("root")), ["file", "free", "shut"]);
        assert!(std::fs::read(self.path("root/file")).expect("there") == pattern(300_000));
        assert_eq!(names(&self.path("root/shut")), ["secret"]);
        assert_eq!(std::fs::read_to_string(self.path("root/shut/secret")).expect("there"), "nobody's business");
        let free: Vec<_> = names(&self.path("root/free")).into_iter().filter(|name| name != "bystander").collect();
        assert!(free.is_empty(), "{free:?}");
        self.assert_contained();
    }

    /// Waits until nothing moves any more.
    #[track_caller]
    pub fn assert_calms_down(&self) {
        until("the end of all transfers", || self.server.metric("transfers_running") == 0);
        until("the end of all data channels", || self.server.metric("data_channels") == 0);
    }

    /// The log commands no terminal, and every line of it was begun by the server.
    #[track_caller]
    pub fn assert_log_is_plain(&self) {
        let log = self.server.log();
        let bad = |c: char| c != '\n' && (c.is_control() || ('\u{202a}'..='\u{202e}').contains(&c));
        assert!(!log.contains(bad), "{log:?}");
        let begun = |line: &str| {
            let word = |at: usize| line.split_whitespace().nth(at);
            let dated = word(0).is_some_and(|time| time.ends_with('Z') && time.contains('T'));
            dated && word(1).is_some_and(|level| ["ERROR", "WARN", "INFO", "DEBUG"].contains(&level))
        };
        let said = ["listening on ", "metrics at ", "data nodes join at "];
        let strange = log.lines().find(|line| !begun(line) && !said.iter().any(|start| line.starts_with(start)));
        assert_eq!(strange, None, "{log}");
    }
}

/// Configuration of a server with TLS and grid logins, whose authorities vouch for clients in TLS as well.
pub fn grid_config(host: &Path, authorities: &Path, gridmap: &Path) -> String {
    format!(
        "[tls]\ncertificate = {host:?}\nkey = {host:?}\nclients = \"gsi\"\n\
         [gsi]\ncertificate = {host:?}\nauthorities = {authorities:?}\ngridmap = {gridmap:?}\n"
    )
}
