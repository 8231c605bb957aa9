//! `curl`, `lftp` and our own client with our server over TLS, logged in with a password.

mod support;

use std::fs;
use std::mem::MaybeUninit;
use std::path::{Path, PathBuf};

use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use support::WHIMBREL;
use support::control::Control;
use support::dtn::Dtn;
use tempfile::TempDir;
use whimbrel_testkit::peers::{Run, Tool, curl, lftp, public_dir, require};

/// More than one record and one send buffer.
const SIZE: usize = 3_000_000;

const VERSIONS: [&[&str]; 2] = [&["--tlsv1.2", "--tls-max", "1.2"], &["--tlsv1.3"]];

struct Site {
    server: Dtn,
    tls: String,
    directory: TempDir,
    _secrets: TempDir,
}

impl Site {
    /// A server with a certificate of its own making and the user `anna`; `None` where `openssl` is missing.
    fn start() -> Option<Self> {
        Self::with("")
    }

    /// The same with further settings.
    fn with(settings: &str) -> Option<Self> {
        let openssl = require("openssl")?;
        let (directory, secrets) = (public_dir().expect("a directory"), public_dir().expect("a directory"));
        let (certificate, key) = (secrets.path().join("host.pem"), secrets.path().join("host.key"));
        let subject = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"];
        Tool::new(openssl)
            .args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"])
            .args(subject)
            .args([Path::new("-out"), &certificate, Path::new("-keyout"), &key])
            .run_ok();
        let hash = Tool::new(WHIMBREL).args(["dtn", "--hash-password"]).input("pass word").run_ok().stdout_text();
        let users = secrets.path().join("users");
        fs::write(&users, format!("anna:{hash}")).expect("written");
        let config = secrets.path().join("dtn.toml");
        let tls =
            format!("{settings}\n[tls]\ncertificate = {certificate:?}\nkey = {key:?}\nlisten = [\"127.0.0.1:0\"]\n");
        fs::write(&config, tls).expect("written");
        fs::write(directory.path().join("here"), payload()).expect("written");
        let server =
            Dtn::builder().root(directory.path()).arg("--config").arg(config).arg("--users").arg(users).start();
        let log = server.log();
        let tls = log.lines().find_map(|line| line.strip_prefix("listening on ftps://")).expect("it says so");
        let tls = format!("ftps://{tls}");
        Some(Self { server, tls, directory, _secrets: secrets })
    }

    fn curl(&self, options: &[&str]) -> Option<Tool> {
        Some(curl()?.args(["--insecure", "--user", "anna:pass word"]).args(options))
    }

    fn url(&self, name: &str) -> String {
        format!("ftp://{}/{name}", self.server.addr())
    }

    fn stored(&self, name: &str) -> Option<Vec<u8>> {
        fs::read(self.directory.path().join(name)).ok()
    }

    fn copy(&self) -> PathBuf {
        self._secrets.path().join("copy")
    }
}

fn payload() -> Vec<u8> {
    (0..SIZE).map(|n| (n * 31 % 251) as u8).collect()
}

#[test]
fn curl_lists_and_moves_over_tls_in_both_versions_with_data_encrypted_or_not() {
    let Some(site) = Site::start() else { return };
    for version in VERSIONS {
        for protection in [&["--ssl-reqd"][..], &["--ftp-ssl-control"]] {
            let options = [version, protection].concat();
            let Some(list) = site.curl(&options) else { return };
            let names = list.args(["--list-only", &site.url("")]).run_ok().stdout_text();
            assert_eq!(names.trim_end(), "here", "{options:?}");
            let get = site.curl(&options).expect("it is there").arg("--output").arg(site.copy());
            get.arg(site.url("here")).run_ok();
            assert!(fs::read(site.copy()).expect("copied") == payload(), "{options:?}");
            let put = site.curl(&options).expect("it is there").arg("--upload-file").arg(site.copy());
            put.arg(site.url("there")).run_ok();
            assert!(site.stored("there") == Some(payload()), "{options:?}");
            fs::remove_file(site.directory.path().join("there")).expect("stored");
        }
    }
}

#[test]
fn curl_reaches_an_address_where_tls_comes_before_the_greeting() {
    let Some(site) = Site::start() else { return };
    let Some(list) = site.curl(&["--list-only"]) else { return };
    assert_eq!(list.arg(&site.tls).run_ok().stdout_text().trim_end(), "here");
}

#[test]
fn a_password_in_clear_is_refused_with_the_cure() {
    let Some(site) = Site::start() else { return };
    let mut control = Control::open(site.server.addr());
    for line in ["USER anna", "PASS pass word"] {
        let reply = control.ask(line);
        assert_eq!((reply.code, reply.text.contains("AUTH TLS")), (530, true), "{}", reply.text);
    }
    let Some(clear) = site.curl(&["--list-only"]) else { return };
    assert_eq!(clear.arg(site.url("")).run_failing().code(), Some(67), "curl: login denied");
}

#[test]
fn lftp_lists_and_moves_over_tls() {
    let Some(site) = Site::start() else { return };
    let script = |commands: &str| -> Option<Run> {
        let host = format!("open -u anna,'pass word' ftp://{}", site.server.addr());
        let settings =
            "set ssl:verify-certificate no; set ftp:ssl-force yes; set ftp:ssl-protect-data yes; set net:max-retries 1";
        Some(lftp(&format!("{settings}; {host}; {commands}; exit"))?.run_ok())
    };
    let copy = site.copy();
    let Some(run) = script(&format!("cls -1; get here -o {0:?}; put {0:?} -o there", copy)) else { return };
    assert_eq!(run.stdout_text().lines().next(), Some("here"));
    assert!(fs::read(&copy).expect("copied") == payload());
    assert!(site.stored("there") == Some(payload()));
}

impl Site {
    /// Our client, with known hosts of its own.
    fn client(&self, arguments: &[&str]) -> Tool {
        Tool::new(WHIMBREL).args(arguments).env("XDG_CONFIG_HOME", self._secrets.path()).env("WHIMBREL_LOG", "warn")
    }

    fn known_hosts(&self) -> PathBuf {
        self._secrets.path().join("whimbrel/known_hosts")
    }

    /// A place there, as a password user.
    fn place(&self, scheme: &str, address: &str, name: &str) -> String {
        format!("{scheme}://anna:pass%20word@{address}/{name}")
    }
}

#[test]
fn our_client_logs_in_over_tls_and_knows_the_host_again() {
    let Some(site) = Site::start() else { return };
    let implicit = site.tls.trim_start_matches("ftps://").trim_end_matches('/').to_owned();
    let control = site.server.addr().to_string();
    for (scheme, address) in [("whimbrel", &control), ("ftps", &implicit)] {
        let place = site.place(scheme, address, "here");
        let first = site.client(&["cp", &place]).arg(site.copy()).run_ok();
        assert!(first.stderr_text().contains("first visit to"), "{}", first.stderr_text());
        assert!(fs::read(site.copy()).expect("copied") == payload());
        let second = site.client(&["cp"]).arg(site.copy()).arg(site.place(scheme, address, "back")).run_ok();
        assert!(!second.stderr_text().contains("first visit"), "{}", second.stderr_text());
        assert!(site.stored("back") == Some(payload()));
        let third_party = [&place, &site.place(scheme, address, "third")];
        site.client(&["cp", third_party[0], third_party[1]]).run_ok();
        assert!(site.stored("third") == Some(payload()));
        for name in ["back", "third"] {
            fs::remove_file(site.directory.path().join(name)).expect("stored");
        }
        fs::remove_file(site.copy()).expect("copied");
    }
    let checked = site.client(&["check", &site.place("whimbrel", &control, "")]).run_ok().stdout_text();
    assert!(checked.contains("TLSv1.3") && checked.contains("known by its key sha256:"), "{checked}");
    let known = fs::read_to_string(site.known_hosts()).expect("written");
    assert_eq!(known.lines().filter(|line| line.contains("sha256:")).count(), 2, "{known}");
}

#[test]
fn a_host_with_another_key_is_refused_and_both_keys_are_told() {
    let Some(site) = Site::start() else { return };
    let address = site.server.addr().to_string();
    let other = format!("sha256:{}", "ab".repeat(32));
    fs::create_dir_all(site.known_hosts().parent().expect("a directory")).expect("made");
    fs::write(site.known_hosts(), format!("{address} {other}\n")).expect("written");
    let run = site.client(&["ls", &site.place("whimbrel", &address, "")]).run_failing();
    let said = run.stderr_text();
    assert!(said.contains(&other) && said.matches("sha256:").count() >= 2, "{said}");
    assert!(said.contains("somebody may be in between"), "{said}");
}

#[test]
fn a_password_is_not_told_to_a_server_without_tls_and_guests_are_warned() {
    let Some(site) = Site::start() else { return };
    let plain = Dtn::builder().anonymous().root(site.directory.path()).start();
    let address = plain.addr().to_string();
    let refused = site.client(&["ls", &site.place("whimbrel", &address, "")]).run_failing();
    assert!(refused.stderr_text().contains("ask for TLS"), "{}", refused.stderr_text());
    let guest = site.client(&["ls", &format!("whimbrel://{address}/")]).run_ok();
    assert!(guest.stdout_text().contains("here"));
    assert!(guest.stderr_text().contains("offers no TLS"), "{}", guest.stderr_text());
}

#[test]
fn a_host_that_had_tls_is_not_talked_to_in_clear() {
    let Some(site) = Site::start() else { return };
    let plain = Dtn::builder().anonymous().root(site.directory.path()).start();
    let address = plain.addr().to_string();
    fs::create_dir_all(site.known_hosts().parent().expect("a directory")).expect("made");
    // Whatever the line says of the host: it is known.
    let lines = [format!("sha256:{}", "ab".repeat(32)), "vouched".to_owned(), "torn".to_owned()];
    for line in lines.map(|said| format!("{address} {said}")) {
        fs::write(site.known_hosts(), format!("{line}\n")).expect("written");
        let run = site.client(&["ls", &format!("whimbrel://{address}/")]).run_failing();
        assert!(run.stderr_text().contains("it offers no TLS, and has before"), "{}", run.stderr_text());
        assert!(!run.stdout_text().contains("here"));
    }
    let clear = site.client(&["ls", &format!("ftp://{address}/")]).run_ok();
    assert!(clear.stdout_text().contains("here"), "who asks for no TLS gets none");
}

#[test]
fn a_host_that_an_authority_vouches_for_is_remembered_and_then_needs_one() {
    let Some(site) = Site::start() else { return };
    let address = site.server.addr().to_string();
    let authorities = site._secrets.path().join("host.pem");
    let list = || site.client(&["ls", &site.place("whimbrel", &address, "")]).env("SSL_CERT_DIR", "/nowhere");
    for _ in 0..2 {
        let run = list().env("SSL_CERT_FILE", &authorities).run_ok();
        assert_eq!(run.stderr_text(), "");
        assert_eq!(fs::read_to_string(site.known_hosts()).expect("written"), format!("{address} vouched\n"));
    }
    let refused = list().env("SSL_CERT_FILE", "/nowhere").run_failing();
    assert!(refused.stderr_text().contains("one has vouched for it before"), "{}", refused.stderr_text());
    // As the message says.
    fs::write(site.known_hosts(), "").expect("written");
    let first = list().env("SSL_CERT_FILE", "/nowhere").run_ok();
    assert!(first.stderr_text().contains("first visit to"), "{}", first.stderr_text());
}

#[test]
fn passwords_are_taken_in_clear_only_where_the_administrator_says_so() {
    let Some(site) = Site::start() else { return };
    let users = site._secrets.path().join("users");
    let start = || Tool::new(WHIMBREL).args(["dtn", "--listen", "127.0.0.1:0", "--users"]).arg(&users);
    let refused = start().run_failing();
    assert_eq!(refused.code(), Some(2));
    assert!(refused.stderr_text().contains("--clear-text-passwords"), "{}", refused.stderr_text());
    let server = Dtn::builder().root(site.directory.path()).arg("--users").arg(&users).arg("--clear-text-passwords");
    let server = server.start();
    let place = site.place("ftp", &server.addr().to_string(), "");
    assert!(site.client(&["ls", &place]).run_ok().stdout_text().contains("here"));
}

#[test]
fn encrypted_copies_work_every_way_and_a_server_may_take_no_others() {
    let Some(site) = Site::with("encrypt_data = true") else { return };
    let address = site.server.addr().to_string();
    let (here, there) = (site.place("whimbrel", &address, "here"), site.place("whimbrel", &address, "there"));
    let clear = site.client(&["cp", &here, &there]).run_failing();
    assert!(clear.stderr_text().contains("521"), "{}", clear.stderr_text());
    site.client(&["cp", "--encrypt", &here, &there]).run_ok();
    assert!(site.stored("there") == Some(payload()), "between servers");
    site.client(&["cp", "--encrypt", &here]).arg(site.copy()).run_ok();
    assert!(fs::read(site.copy()).expect("copied") == payload(), "to this host");
    site.client(&["cp", "--encrypt"]).arg(site.copy()).arg(site.place("whimbrel", &address, "back")).run_ok();
    assert!(site.stored("back") == Some(payload()), "from this host");
}

#[test]
fn what_cannot_be_encrypted_is_not_copied() {
    let Some(site) = Site::start() else { return };
    let plain = Dtn::builder().anonymous().root(site.directory.path()).start();
    let from = format!("ftp://{}/here", plain.addr());
    let run = site.client(&["cp", "--encrypt", &from]).arg(site.copy()).run_failing();
    assert!(run.stderr_text().contains("cannot encrypt data connections"), "{}", run.stderr_text());
    assert!(!site.copy().exists());
}

/// Counts how often a file is opened.
struct Opened {
    queue: std::os::fd::OwnedFd,
}

impl Opened {
    fn watch(file: &Path) -> Self {
        let queue = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC).expect("a queue");
        inotify::add_watch(&queue, file, WatchFlags::OPEN).expect("watched");
        Self { queue }
    }

    /// How often since it was asked last.
    fn count(&self) -> usize {
        let mut buffer = [MaybeUninit::uninit(); 4096];
        let mut reader = inotify::Reader::new(&self.queue, &mut buffer);
        std::iter::from_fn(|| reader.next().ok().map(|_| ())).count()
    }
}

#[test]
fn sessions_after_the_first_ones_need_no_full_handshake() {
    let (Some(one), Some(two)) = (Site::start(), Site::start()) else { return };
    fs::create_dir(one.directory.path().join("tree")).expect("made");
    for number in 0..300 {
        fs::write(one.directory.path().join(format!("tree/f{number}")), [number as u8; 20_000]).expect("written");
    }
    let place = |site: &Site| site.place("whimbrel", &site.server.addr().to_string(), "tree/");
    let copy = ["cp", "-r", "--quiet", "--concurrency", "8", "--verify=require"];
    one.client(&copy).args([place(&one), place(&two)]).run_ok();
    assert!(two.stored("tree/f299") == Some(vec![43; 20_000]));
    for site in [&one, &two] {
        let (full, resumed) = (site.server.metric("tls_handshakes_total"), site.server.metric("tls_resumed_total"));
        assert_eq!(full + resumed, site.server.metric("control_connections_total"));
        // Rules, the listing and the first session may be asked for at the same time; the others have to wait for what is listed.
        assert!(full <= 3 && resumed >= 5, "{full} full handshakes, {resumed} resumed");
    }
}

#[test]
fn authorities_are_read_once_and_not_at_all_for_a_host_that_is_known() {
    let (Some(one), Some(two)) = (Site::start(), Site::start()) else { return };
    let authorities = one._secrets.path().join("authorities.pem");
    fs::copy(one._secrets.path().join("host.pem"), &authorities).expect("copied");
    let opened = Opened::watch(&authorities);
    let place = |site: &Site, name: &str| site.place("whimbrel", &site.server.addr().to_string(), name);
    let run = |arguments: &[&str]| {
        let tool = two.client(arguments).env("SSL_CERT_FILE", &authorities).env("SSL_CERT_DIR", "/nowhere");
        let said = tool.run_ok().stderr_text();
        (said.matches("first visit").count(), opened.count())
    };
    // The authority is the host's own certificate: the first one is vouched for, the second one a stranger.
    let copy = ["cp", "--concurrency", "4", &place(&one, "here"), &place(&two, "there")];
    assert_eq!(run(&copy), (1, 1));
    assert_eq!(run(&["ls", &place(&two, "")]), (0, 0), "known by its key");
    assert_eq!(run(&["ls", &place(&one, "")]), (0, 1), "vouched for again");
}
