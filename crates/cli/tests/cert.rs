//! `whimbrel cert`: what it makes is taken by the real programs, and what it shows is true.

mod support;

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use support::{expect, whimbrel};
use whimbrel_testkit::peers::{self, GridftpServer, Run, Tool, file_url, public_dir};

/// A site in a directory of its own, made by the program as an administrator would.
struct Site {
    directory: tempfile::TempDir,
}

impl Site {
    fn new() -> Self {
        let site = Self { directory: public_dir().expect("a directory") };
        site.make(&["ca"]);
        site
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join("grid").join(name)
    }

    fn tool(&self, arguments: &[&str]) -> Tool {
        let certificates = self.path("certificates");
        whimbrel(["cert"]).args(arguments).arg("--dir").arg(self.path("")).env("X509_CERT_DIR", certificates)
    }

    #[track_caller]
    fn make(&self, arguments: &[&str]) -> Run {
        self.tool(arguments).run_ok()
    }

    /// Other commands, which know no directory.
    fn run(&self, arguments: &[&str]) -> Tool {
        whimbrel(["cert"]).args(arguments).env("X509_CERT_DIR", self.path("certificates"))
    }

    /// A program of the grid as the person `alice`, with this proxy.
    fn as_alice(&self, tool: Tool, proxy: &Path) -> Tool {
        tool.env("X509_CERT_DIR", self.path("certificates"))
            .env("X509_USER_CERT", self.path("users/alice/usercert.pem"))
            .env("X509_USER_KEY", self.path("users/alice/userkey.pem"))
            .env("X509_USER_PROXY", proxy)
    }
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).expect("there").permissions().mode() & 0o777
}

#[test]
fn the_real_programs_take_what_it_makes() {
    let programs = ["grid-proxy-init", "grid-proxy-info"].map(peers::require);
    let (Some(server), Some(copy)) = (GridftpServer::builder(), peers::url_copy()) else { return };
    let [Some(init), Some(info)] = programs else { return };
    let site = Site::new();
    site.make(&["host", "localhost", "127.0.0.1"]);
    let account = match rustix::process::geteuid().is_root() {
        true => "nobody".to_owned(),
        false => Tool::new("id").arg("-un").run_ok().stdout_text().trim().to_owned(),
    };
    site.make(&["user", "alice", "--account", &account]);
    assert_eq!([mode(&site.path("hostkey.pem")), mode(&site.path("users/alice/userkey.pem"))], [0o600; 2]);
    let server = server
        .env("X509_CERT_DIR", site.path("certificates"))
        .env("X509_USER_CERT", site.path("hostcert.pem"))
        .env("X509_USER_KEY", site.path("hostkey.pem"))
        .env("GRIDMAP", site.path("grid-mapfile"));
    let server = server.start().expect("it starts with this host's certificate");
    let theirs = site.path("theirs");
    site.as_alice(Tool::new(init), &theirs).args(["-q", "-verify"]).run_ok();
    let ours = site.path("ours");
    let certificate = site.path("users/alice/usercert.pem").display().to_string();
    site.run(&["proxy", "--cert", &certificate, "--out", &ours.display().to_string()]).run_ok();
    let from = site.path("from");
    fs::write(&from, "of a grid").expect("written");
    for (proxy, name) in [(&theirs, "a"), (&ours, "b")] {
        let told = site.as_alice(Tool::new(&info), proxy).args(["-identity", "-type"]).run_ok().stdout_text();
        assert!(told.contains("/O=Grid/CN=alice") && told.contains("RFC 3820"), "{told}");
        let url = format!("gsiftp://localhost:{}{}", server.addr().port(), peers::url_path(&from));
        let to = site.path(name);
        site.as_alice(copy_again(&copy), proxy).arg(url).arg(file_url(&to)).run_ok();
        assert_eq!(fs::read(&to).expect("copied"), b"of a grid");
        let shown = site.run(&["show", &proxy.display().to_string()]).run_ok().stdout_text();
        assert!(shown.contains("believed: it speaks for /O=Grid/CN=alice until"), "{shown}");
    }
}

/// Tools are used up by a run.
fn copy_again(_copy: &Tool) -> Tool {
    peers::url_copy().expect("it was there a moment ago")
}

#[test]
fn nothing_that_is_there_is_replaced() {
    let site = Site::new();
    let again = site.tool(&["ca", "--subject", "/O=Grid/CN=Other"]).run_failing();
    assert!(again.stderr_text().contains("nothing is overwritten"), "{again}");
    site.make(&["user", "alice"]);
    let key = fs::read(site.path("users/alice/userkey.pem")).expect("made");
    site.tool(&["user", "alice"]).run_failing();
    assert_eq!(fs::read(site.path("users/alice/userkey.pem")).expect("made"), key);
    let certificate = site.path("users/alice/usercert.pem").display().to_string();
    let out = site.path("proxy").display().to_string();
    site.run(&["proxy", "--cert", &certificate, "--out", &out]).run_ok();
    let first = fs::read(&out).expect("made");
    site.run(&["proxy", "--cert", &certificate, "--out", &out]).run_failing();
    assert_eq!(fs::read(&out).expect("made"), first);
    site.run(&["proxy", "--cert", &certificate, "--out", &out, "--force", "--limited"]).run_ok();
    let shown = site.run(&["show", &out]).run_ok().stdout_text();
    assert!(shown.contains("limited: it moves data"), "{shown}");
}

#[test]
fn a_file_is_explained_with_its_verdict() {
    let site = Site::new();
    site.make(&["host", "dtn.example.org"]);
    let certificate = site.path("hostcert.pem").display().to_string();
    let run = site.run(&["show", "--json", &certificate]).run_ok();
    let told: serde_json::Value = serde_json::from_str(&run.stdout_text()).expect("JSON");
    assert_eq!(told["believed"], true, "{told}");
    let part = &told["parts"][0];
    assert_eq!((&part["subject"], &part["kind"]), (&"/O=Grid/CN=dtn.example.org".into(), &"host".into()), "{told}");
    assert_eq!(part["names"][0], "dtn.example.org");
    let stranger = Site::new();
    let run = stranger.run(&["show", &certificate]).run_failing();
    assert_eq!(run.code(), Some(6), "{run}");
    assert!(run.stdout_text().contains("not believed"), "{run}");
    std::fs::write(site.path("notes"), "no certificate").expect("written");
    let run = site.run(&["show", &site.path("notes").display().to_string()]).run_failing();
    assert_eq!(run.code(), Some(6), "{run}");
    let missing = expect(3, ["cert", "show", "/no/such/file"]);
    assert!(missing.stderr_text().contains("no such file"), "{missing}");
    let proxy = site.run(&["proxy", "--cert", &certificate, "--out", &site.path("p").display().to_string()]).run_ok();
    assert_eq!(mode(&site.path("p")), 0o600, "{proxy}");
}
