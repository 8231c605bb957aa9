//! Our client with certificates at the real server: logins, what is refused and why, copies from server to server.
#![allow(clippy::unwrap_used, reason = "a test helper that fails ends its test")]

mod support;

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use support::WHIMBREL;
use support::dtn::Dtn;
use tempfile::TempDir;
use whimbrel_proto::protect::base64;
use whimbrel_proto::x509::{Certificate, Form, Kind, Policy};
use whimbrel_testkit::peers::{GridftpServer, Run, Tool, public_dir, url_path};
use whimbrel_testkit::pki::{Member, Pki};
use whimbrel_trust::gsi::acceptor::Accepted;
use whimbrel_trust::gsi::{AnchorStore, Expected, GsiAcceptor, GsiJudge, Trusted};
use whimbrel_trust::make::ProxyKind;
use whimbrel_trust::tls::ServerTls;
use whimbrel_trust::{OwnChain, clock, credential};

/// A grid with one real server, the person alice and her proxy.
struct Site {
    pki: Pki,
    alice: Member,
    proxy: Member,
    gridmap: PathBuf,
    server: GridftpServer,
    files: TempDir,
}

/// The account that the real server may become.
fn account() -> String {
    match rustix::process::geteuid().is_root() {
        true => "nobody".to_owned(),
        false => Tool::new("id").arg("-un").run_ok().stdout_text().trim().to_owned(),
    }
}

impl Site {
    /// `None` where the real server is missing.
    #[track_caller]
    fn start() -> Option<Self> {
        let builder = GridftpServer::builder()?;
        let pki = Pki::new().unwrap();
        let host = pki.host(&["localhost", "127.0.0.1"]).unwrap();
        let alice = pki.person("alice").unwrap();
        let proxy = pki.full_proxy(&alice, 3600, "proxy").unwrap();
        let gridmap = pki.gridmap(&[("alice", &account())]).unwrap();
        let server = builder.gsi(&pki, &host, &gridmap).start().unwrap();
        let files = public_dir().unwrap();
        fs::write(files.path().join("here"), payload()).unwrap();
        Some(Self { pki, alice, proxy, gridmap, server, files })
    }

    /// A URL of a path below the directory of files.
    fn url(&self, name: &str) -> String {
        url_at(&self.server, &self.path(name))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.files.path().join(name)
    }

    /// Our program with alice's proxy and nobody else's files.
    fn client(&self, arguments: &[&str]) -> Tool {
        self.client_as(&self.proxy, arguments)
    }

    fn client_as(&self, who: &Member, arguments: &[&str]) -> Tool {
        Tool::new(WHIMBREL).args(arguments).as_member(&self.pki, who).env("HOME", self.files.path())
    }

    /// Runs it, expects this exit code, and gives what it said.
    #[track_caller]
    fn refused(&self, tool: Tool, code: i32) -> String {
        let run = tool.run().unwrap();
        assert_eq!(run.code(), Some(code), "{run}");
        run.stderr_text()
    }
}

fn url_at(server: &GridftpServer, path: &Path) -> String {
    format!("gsiftp://localhost:{}{}", server.addr().port(), url_path(path))
}

fn payload() -> Vec<u8> {
    support::pattern(3_000_001)
}

fn said(run: &Run) -> String {
    format!("{}{}", run.stdout_text(), run.stderr_text())
}

#[test]
fn a_proxy_lists_describes_and_makes_directories_at_the_real_server() {
    let Some(site) = Site::start() else { return };
    let list = site.client(&["ls", &site.url("")]).run_ok();
    assert_eq!(list.stdout_text().trim_end(), "here", "{list}");
    let stat = site.client(&["stat", "--json", &site.url("here")]).run_ok().stdout_text();
    assert!(stat.contains("\"size\":3000001"), "{stat}");
    site.client(&["mkdir", &site.url("new")]).run_ok();
    assert!(site.path("new").is_dir());
    // A certificate with its key does as well, and nothing of the dialogue shows a secret.
    let traced = said(&site.client_as(&site.alice, &["-vvv", "ls", &site.url("")]).run_ok());
    assert!(traced.contains("ADAT ***") && traced.contains("USER :globus-mapping:"), "{traced}");
    assert!(!traced.contains("ENC ") && traced.contains("PASS ***"), "{traced}");
}

/// Lines of our side of the dialogue with a server that begin so.
fn commands(trace: &str, command: &str) -> usize {
    trace.lines().filter(|line| line.split_once(" > ").is_some_and(|(_, said)| said.starts_with(command))).count()
}

#[test]
fn data_go_from_one_real_server_to_another_proven_or_encrypted() {
    let Some(site) = Site::start() else { return };
    let host = site.pki.host(&["localhost"]).unwrap();
    let other = GridftpServer::builder().unwrap().gsi(&site.pki, &host, &site.gridmap).start().unwrap();
    for (options, level, protected) in
        [(&[][..], "PROT P", 0), (&["--encrypt"], "PROT P", 2), (&["--safe"], "PROT S", 2)]
    {
        let to = url_at(&other, &site.path("there"));
        let copied = said(&site.client(&["-vvv", "cp", &site.url("here"), &to]).args(options).run_ok());
        assert!(copied.contains("1 verified"), "{copied}");
        assert!(fs::read(site.path("there")).unwrap() == payload());
        assert!(commands(&copied, "DCAU A") >= 2 && commands(&copied, "DCAU N") == 0, "{copied}");
        assert_eq!(commands(&copied, level), protected, "{copied}");
        fs::remove_file(site.path("there")).unwrap();
    }
}

#[test]
fn one_login_serves_all_items() {
    let Some(site) = Site::start() else { return };
    fs::create_dir(site.path("many")).unwrap();
    for number in 0..20 {
        fs::write(site.path(&format!("many/{number}")), format!("{number}")).unwrap();
    }
    let options = ["-vvv", "cp", "-r", "--concurrency", "1"];
    let run = site.client(&options).arg(site.url("many")).arg(site.url("copies")).run_ok();
    let copied = said(&run);
    assert!(copied.contains("20 verified"), "{copied}");
    let logins = commands(&copied, "AUTH GSSAPI");
    assert_eq!(logins, commands(&copied, "USER "), "{copied}");
    // One for each end, those that list, and those that look for what others left behind.
    assert!(logins <= 6, "{logins} logins: {copied}");
}

/// The authorities of two grids, for those who know both.
fn authorities(grids: [&Pki; 2]) -> TempDir {
    let both = public_dir().unwrap();
    for (number, pki) in grids.into_iter().enumerate() {
        for name in support::names(&pki.certificates()) {
            // Both have the same name, and so the same hash.
            let to = name.to_str().unwrap().replace(".0", &format!(".{number}"));
            fs::copy(pki.certificates().join(&name), both.path().join(to)).unwrap();
        }
    }
    both
}

#[test]
fn servers_that_know_nothing_of_each_other_get_a_credential_for_the_session() {
    let Some(site) = Site::start() else { return };
    let theirs = Pki::new().unwrap();
    let (host, bob) = (theirs.host(&["localhost"]).unwrap(), theirs.person("bob").unwrap());
    let gridmap = theirs.gridmap(&[("bob", &account())]).unwrap();
    let other = GridftpServer::builder().unwrap().gsi(&theirs, &host, &gridmap).start().unwrap();
    let both = authorities([&site.pki, &theirs]);
    for options in [&[][..], &["--encrypt"]] {
        let copy = site.client(&["-vvv", "cp", "--destination-credential"]).arg(&bob.file).args(options);
        let copy = copy.arg(site.url("here")).arg(url_at(&other, &site.path("there")));
        let copied = said(&copy.env("X509_CERT_DIR", both.path()).run_ok());
        assert!(copied.contains("1 verified"), "{copied}");
        assert!(fs::read(site.path("there")).unwrap() == payload());
        assert!(commands(&copied, "DCSC ***") >= 2, "{copied}");
        assert!(!copied.contains("PRIVATE KEY"), "{copied}");
        fs::remove_file(site.path("there")).unwrap();
    }
}

#[test]
fn a_host_that_is_another_is_refused_unless_its_subject_was_named() {
    let Some(site) = Site::start() else { return };
    let host = site.pki.host(&["data.example.org"]).unwrap();
    let server = GridftpServer::builder().unwrap().gsi(&site.pki, &host, &site.gridmap).start().unwrap();
    let url = url_at(&server, site.files.path());
    let said = site.refused(site.client(&["ls", &url]), 6);
    assert!(said.contains("its certificate is for data.example.org, not for localhost"), "{said}");
    assert!(said.contains("--subject '/O=Grid/CN=data.example.org'"), "{said}");
    let listed = site.client(&["ls", "--subject", "/O=Grid/CN=data.example.org", &url]).run_ok();
    assert_eq!(listed.stdout_text().trim_end(), "here");
    let said = site.refused(site.client(&["ls", "--subject", "/O=Grid/CN=else", &site.url("")]), 6);
    assert!(said.contains("/O=Grid/CN=localhost") && said.contains("it should have been /O=Grid/CN=else"), "{said}");
    // Each end has its own.
    let copy = ["cp", "--source-subject", "/O=Grid/CN=data.example.org", "--dest-subject", "/O=Grid/CN=localhost"];
    let from = url_at(&server, &site.path("here"));
    site.client(&copy).arg(from).arg(site.url("there")).run_ok();
    assert!(fs::read(site.path("there")).unwrap() == payload());
}

#[test]
fn a_credential_that_is_missing_or_has_ended_is_told_before_anybody_is_called() {
    let Some(site) = Site::start() else { return };
    let expired = site.pki.full_proxy(&site.alice, -60, "expired").unwrap();
    let said = site.refused(site.client_as(&expired, &["ls", &site.url("")]), 6);
    assert!(said.contains("its life is over") && said.contains("(good until 20"), "{said}");
    assert!(said.contains("/O=Grid/CN=alice") && said.contains("expired.pem (X509_USER_PROXY)"), "{said}");
    let nowhere = site.client(&["ls", &site.url("")]).env("X509_USER_PROXY", "/nowhere/at/all");
    let said = site.refused(nowhere, 6);
    for place in ["/nowhere/at/all (X509_USER_PROXY)", ".globus/usercert.pem and ", ".globus/usercred.p12"] {
        assert!(said.contains(place), "{said}");
    }
    let readable = site.path("readable.pem");
    fs::copy(&site.proxy.file, &readable).unwrap();
    fs::set_permissions(&readable, std::os::unix::fs::PermissionsExt::from_mode(0o644)).unwrap();
    let said = site.refused(site.client(&["ls", &site.url(""), "--credential"]).arg(&readable), 6);
    assert!(said.contains("chmod 600"), "{said}");
    let none = site.client(&["--json", "ls", &site.url("")]).env("X509_USER_PROXY", "/nowhere").run_failing();
    let line: serde_json::Value = serde_json::from_str(none.stdout_text().lines().last().unwrap()).unwrap();
    assert_eq!(line["fault"]["code"], "CredentialMissing", "{none}");
    assert_eq!(none.code(), Some(6));
}

#[test]
fn unknown_authorities_and_revoked_certificates_are_refused_by_name_on_either_side() {
    let Some(site) = Site::start() else { return };
    let theirs = Pki::new().unwrap();
    // We do not know who vouches for the host.
    let said = site.refused(site.client(&["ls", &site.url("")]).env("X509_CERT_DIR", theirs.certificates()), 5);
    assert!(said.contains("/O=Grid/CN=Test CA") || said.contains("/O=Grid/CN=localhost"), "{said}");
    assert!(said.contains(&theirs.certificates().display().to_string()), "{said}");
    // The host does not know who vouches for us.
    let bob = theirs.person("bob").unwrap();
    let said =
        site.refused(site.client_as(&bob, &["ls", &site.url("")]).env("X509_CERT_DIR", site.pki.certificates()), 6);
    assert!(said.contains("/O=Grid/CN=bob") && said.contains("refused"), "{said}");
    // It knows us, and has no account for us.
    let carol = site.pki.person("carol").unwrap();
    let said = site.refused(site.client_as(&carol, &["ls", &site.url("")]), 6);
    assert!(said.contains("/O=Grid/CN=carol") && said.contains("530"), "{said}");
    // Named accounts have to be in the map.
    let root = site.url("").replace("gsiftp://", "gsiftp://root@");
    let said = site.refused(site.client(&["ls", &root]), 6);
    assert!(said.contains("root"), "{said}");
    let named = site.url("").replace("gsiftp://", &format!("gsiftp://{}@", account()));
    site.client(&["ls", &named]).run_ok();
    // From now on alice's certificate is void.
    site.pki.revoke(&[&site.alice]).unwrap();
    let said = site.refused(site.client(&["ls", &site.url("")]), 6);
    assert!(said.contains("/O=Grid/CN=alice") && said.contains("revoked"), "{said}");
}

#[test]
fn a_revoked_host_is_refused() {
    let Some(site) = Site::start() else { return };
    let (host, bob) = (site.pki.host(&["localhost"]).unwrap(), &site.proxy);
    let server = GridftpServer::builder().unwrap().gsi(&site.pki, &host, &site.gridmap).start().unwrap();
    let url = url_at(&server, site.files.path());
    site.client_as(bob, &["ls", &url]).run_ok();
    site.pki.revoke(&[&host]).unwrap();
    let said = site.refused(site.client_as(bob, &["ls", &url]), 5);
    assert!(said.contains("/O=Grid/CN=localhost") && said.contains("revoked"), "{said}");
}

#[test]
fn check_tells_what_was_shown_and_believed_and_which_account_came_of_it() {
    let Some(site) = Site::start() else { return };
    let run = site.client(&["check", &site.url("")]).run_ok();
    let said = run.stdout_text();
    for part in [
        "GSI, TLSv1.3",
        "the host is /O=Grid/CN=localhost, good until 20",
        "credential: /O=Grid/CN=alice, proxy in ",
        "proxy.pem (X509_USER_PROXY), good until 20",
        &format!("User {} logged in", account()),
        "data connection to the server: a listing of",
        "data connection from the server: a listing of",
    ] {
        assert!(said.contains(part), "{part:?} in:\n{said}");
    }
}

#[test]
fn data_connections_show_no_certificates_where_the_user_says_so() {
    let Some(site) = Site::start() else { return };
    let (from, to) = (site.url("here"), site.path("there").display().to_string());
    for (options, bare) in [(&[][..], false), (&["--nodcau"], true)] {
        let run = site.client(&["-vvv", "cp", &from, &to]).args(options).run_ok();
        let said = format!("{}{}", run.stdout_text(), run.stderr_text());
        assert!(said.contains("DCAU N") == bare && said.contains("1 verified"), "{said}");
        fs::remove_file(site.path("there")).unwrap();
    }
    let both = site.client(&["cp", "--nodcau", "--encrypt", &from, &to]).run_failing();
    assert_eq!(both.code(), Some(2), "{both}");
}

#[test]
fn a_server_without_certificates_is_named() {
    let Some(server) = GridftpServer::builder() else { return };
    let Some(site) = Site::start() else { return };
    let clear = support::Server::own();
    let url = clear.url(site.path("here")).replace("ftp://", "gsiftp://");
    let said = site.refused(site.client(&["ls", &url]), 5);
    assert!(said.contains("lets nobody in with certificates"), "{said}");
    drop(server);
}

/// Our server for the same people, with the same files.
fn own(site: &Site) -> Dtn {
    let host = site.pki.host(&["localhost", "127.0.0.1"]).unwrap();
    Dtn::builder().root(Path::new("/")).gsi(&site.pki, &host, &site.gridmap).start()
}

fn own_url(server: &Dtn, path: &Path) -> String {
    format!("gsiftp://localhost:{}{}", server.addr().port(), url_path(path))
}

#[test]
fn our_own_servers_move_data_by_nonces_as_in_clear() {
    let Some(site) = Site::start() else { return };
    let (one, other) = (own(&site), own(&site));
    let (here, there) = (own_url(&one, &site.path("here")), own_url(&other, &site.path("there")));
    let copy = public_dir().unwrap();
    for (options, protected) in [(&[][..], 0), (&["--encrypt"], 1)] {
        for (from, to) in [
            (here.clone(), there.clone()),
            (here.clone(), copy.path().join("here").display().to_string()),
            (copy.path().join("here").display().to_string(), there.clone()),
        ] {
            let copied = said(&site.client(&["-vvv", "cp", &from, &to]).args(options).run_ok());
            assert!(copied.contains("1 verified"), "{copied}");
            assert!(commands(&copied, "SITE DCNONCE") >= 1 && commands(&copied, "DCAU A") == 0, "{copied}");
            assert!(commands(&copied, "PROT P") >= protected, "{copied}");
            assert!(copied.contains("SITE LEAVES") || copied.contains("SITE CHUNK"), "{copied}");
        }
        assert!(fs::read(site.path("there")).unwrap() == payload());
        assert!(fs::read(copy.path().join("here")).unwrap() == payload());
        fs::remove_file(site.path("there")).unwrap();
        fs::remove_file(copy.path().join("here")).unwrap();
    }
}

#[test]
fn our_own_servers_are_handed_on_nothing_that_they_do_not_need() {
    let Some(site) = Site::start() else { return };
    let (one, other) = (own(&site), own(&site));
    fs::create_dir(site.path("many")).unwrap();
    for number in 0..40 {
        fs::write(site.path(&format!("many/{number}")), payload()).unwrap();
    }
    let tokens = |delegate: &[&str]| {
        let run = site.client(&["-vvv", "stat", &own_url(&one, &site.path("here"))]).args(delegate).run_ok();
        commands(&said(&run), "ADAT ")
    };
    let bare = tokens(&[]);
    assert_eq!(tokens(&["--delegate", "full"]), bare + 1);
    // Logins at our source, tokens in them, and its data handles that show a certificate. What still logs in when the copy is over
    // is cut short.
    let copied = |to: String, name: &str| {
        let ends = [own_url(&one, &site.path("many")), format!("{to}{}", url_path(site.path(name)))];
        let run = site.client(&["-vvv", "cp", "-r", "--concurrency", "4"]).args(ends).run_ok();
        let said = said(&run);
        assert!(said.contains("40 verified"), "{said}");
        let source = format!("localhost:{} ", one.addr().port());
        let with_source: String =
            said.lines().filter(|line| line.starts_with(&source)).flat_map(|line| [line, "\n"]).collect();
        ["AUTH GSSAPI", "ADAT ", "DCAU A"].map(|command| commands(&with_source, command))
    };
    let [logins, sent, shown] = copied(format!("gsiftp://localhost:{}", other.addr().port()), "ours");
    assert!(logins > 3 && sent <= logins * bare && shown == 0, "{logins} logins, {sent} tokens, {shown} shown");
    // Where the other end needs a certificate on data connections, ours gets one to show: its first session is made anew, those
    // that follow have it at once. One more lists.
    let [logins, _, shown] = copied(format!("gsiftp://localhost:{}", site.server.addr().port()), "theirs");
    assert!((3..=6).contains(&logins) && (1..=4).contains(&shown), "{logins} logins, {shown} shown");
}

#[test]
fn our_server_is_checked_and_refuses_by_name() {
    let Some(site) = Site::start() else { return };
    let server = own(&site);
    let url = own_url(&server, site.files.path());
    assert_eq!(site.client(&["ls", &url]).run_ok().stdout_text().trim_end(), "here");
    let carol = site.pki.person("carol").unwrap();
    let said = site.refused(site.client_as(&carol, &["ls", &url]), 6);
    assert!(said.contains("/O=Grid/CN=carol"), "{said}");
    let theirs = Pki::new().unwrap();
    let bob = theirs.person("bob").unwrap();
    let said = site.refused(site.client_as(&bob, &["ls", &url]).env("X509_CERT_DIR", site.pki.certificates()), 6);
    assert!(said.contains("/O=Grid/CN=bob") && said.contains("refused"), "{said}");
    // A server looks at its lists once a minute; this one has not yet.
    site.pki.revoke(&[&site.alice]).unwrap();
    let later = own(&site);
    let url = own_url(&later, site.files.path());
    let said = site.refused(site.client(&["ls", &url]), 6);
    assert!(said.contains("/O=Grid/CN=alice") && said.contains("revoked"), "{said}");
}

#[test]
fn data_go_between_this_host_and_the_real_server_proven_or_encrypted() {
    let Some(site) = Site::start() else { return };
    let copy = public_dir().unwrap();
    let local = copy.path().join("copy");
    for (options, protected) in [(&[][..], 0), (&["--encrypt"], 1), (&["--encrypt", "--parallelism", "4"], 1)] {
        for (from, to) in
            [(site.url("here"), local.display().to_string()), (local.display().to_string(), site.url("there"))]
        {
            let copied = said(&site.client(&["-vvv", "cp", &from, &to]).args(options).run_ok());
            assert!(copied.contains("1 verified"), "{copied}");
            assert!(commands(&copied, "DCAU A") >= 1 && commands(&copied, "DCAU N") == 0, "{copied}");
            assert!(commands(&copied, "PROT P") >= protected, "{copied}");
        }
        assert!(fs::read(&local).unwrap() == payload() && fs::read(site.path("there")).unwrap() == payload());
        fs::remove_file(site.path("there")).unwrap();
        fs::remove_file(&local).unwrap();
    }
}

#[test]
fn data_go_between_our_server_and_the_real_one_proven_or_encrypted() {
    let Some(site) = Site::start() else { return };
    let ours = own(&site);
    for options in [&[][..], &["--encrypt"]] {
        for (from, to) in [
            (site.url("here"), own_url(&ours, &site.path("there"))),
            (own_url(&ours, &site.path("here")), site.url("there")),
        ] {
            let copied = said(&site.client(&["-vvv", "cp", &from, &to]).args(options).run_ok());
            assert!(copied.contains("1 verified") && commands(&copied, "DCAU A") >= 2, "{copied}");
            assert!(fs::read(site.path("there")).unwrap() == payload());
            fs::remove_file(site.path("there")).unwrap();
        }
    }
}

#[test]
fn a_file_in_chunks_goes_to_the_real_server_over_proven_connections_only() {
    let Some(site) = Site::start() else { return };
    let copied = said(&site.client(&["-vvv", "cp", "--chunk", "1M", &site.url("here"), &site.url("there")]).run_ok());
    assert!(copied.contains("1 verified"), "{copied}");
    assert!(fs::read(site.path("there")).unwrap() == payload());
    assert!(commands(&copied, "ESTO A") >= 2 && commands(&copied, "DCAU N") == 0, "{copied}");
}

#[test]
fn an_end_without_certificates_is_met_in_clear_or_not_at_all() {
    let Some(site) = Site::start() else { return };
    let clear = GridftpServer::builder().unwrap().start().unwrap();
    let to = clear.url(site.path("there"));
    let copied = said(&site.client(&["-vvv", "cp", &site.url("here"), &to]).run_ok());
    assert!(copied.contains("1 verified") && commands(&copied, "DCAU N") >= 1, "{copied}");
    let said = site.client(&["cp", "--encrypt", &site.url("here"), &to]).run_failing().stderr_text();
    assert!(said.contains("cannot encrypt data connections"), "{said}");
}

#[test]
fn who_hands_on_nothing_has_data_connections_that_prove_a_credential_of_the_session() {
    let Some(site) = Site::start() else { return };
    let host = site.pki.host(&["localhost"]).unwrap();
    let other = GridftpServer::builder().unwrap().gsi(&site.pki, &host, &site.gridmap).start().unwrap();
    let local = site.path("local");
    for (options, protected) in [(&[][..], 0), (&["--encrypt"], 1)] {
        for (from, to, given) in [
            (site.url("here"), url_at(&other, &site.path("there")), 2),
            (site.url("here"), local.display().to_string(), 1),
            (local.display().to_string(), site.url("there"), 1),
        ] {
            let copy = site.client(&["-vvv", "cp", "--delegate", "none", &from, &to]).args(options);
            let copied = said(&copy.run_ok());
            assert!(copied.contains("1 verified"), "{copied}");
            assert!(commands(&copied, "DCSC ***") >= given && commands(&copied, "DCAU A") >= given, "{copied}");
            assert!(commands(&copied, "PROT P") >= protected, "{copied}");
        }
        assert!(fs::read(site.path("there")).unwrap() == payload() && fs::read(&local).unwrap() == payload());
        fs::remove_file(site.path("there")).unwrap();
        fs::remove_file(&local).unwrap();
    }
    let checked = site.client(&["check", "--delegate", "none", &site.url("")]).run_ok().stdout_text();
    assert!(checked.contains("nothing of it was handed on"), "{checked}");
}

#[test]
fn data_connections_show_what_the_user_names() {
    let Some(site) = Site::start() else { return };
    let host = site.pki.host(&["localhost"]).unwrap();
    let other = GridftpServer::builder().unwrap().gsi(&site.pki, &host, &site.gridmap).start().unwrap();
    // Neither server has ever heard of her.
    let theirs = Pki::new().unwrap();
    let carol = theirs.person("carol").unwrap();
    let carols = theirs.full_proxy(&carol, 3600, "carols").unwrap().file.display().to_string();
    let (local, both) = (site.path("local").display().to_string(), authorities([&site.pki, &theirs]));
    for credential in ["auto", carols.as_str()] {
        for (from, to, given) in [
            (site.url("here"), url_at(&other, &site.path("there")), 2),
            (site.url("here"), local.clone(), 1),
            (local.clone(), own_url(&own(&site), &site.path("there")), 1),
        ] {
            let copy = ["-vvv", "cp", "--encrypt", "--data-credential", credential, &from, &to];
            let copied = said(&site.client(&copy).env("X509_CERT_DIR", both.path()).run_ok());
            assert!(copied.contains("1 verified"), "{copied}");
            assert!(commands(&copied, "DCSC ***") >= given && commands(&copied, "SITE DCNONCE") <= 1, "{copied}");
            assert!(commands(&copied, "PROT P") >= given && !copied.contains("PRIVATE KEY"), "{copied}");
            let copy = if to == local { &local } else { &site.path("there").display().to_string() };
            assert!(fs::read(copy).unwrap() == payload());
        }
    }
    // One that is good for no other server is not shown in clear.
    let clear = GridftpServer::builder().unwrap().start().unwrap();
    let copy = ["-vvv", "cp", "--data-credential", &carols, &site.url("here"), &clear.url(site.path("there"))];
    let run = site.client(&copy).run_failing();
    assert_eq!((run.code(), commands(&said(&run), "DCSC")), (Some(4), 0), "{run}");
    assert!(run.stderr_text().contains("takes no credential for data connections"), "{run}");
}

/// What our client hands on to a server that greets so.
fn handed_on(site: &Site, who: &Member, greeting: &str, options: &[&str]) -> Option<Kind> {
    let host = site.pki.host(&["localhost"]).unwrap();
    let own = credential::from_pem(&fs::read(&host.file).unwrap()).unwrap();
    let store = Arc::new(AnchorStore::open(&site.pki.certificates(), Instant::now()).unwrap());
    let judge = Arc::new(GsiJudge::new(Trusted::Directory(store), Expected::Anybody));
    let mut acceptor = GsiAcceptor::new(&ServerTls::gsi(&own, judge).unwrap(), Arc::default()).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("gsiftp://localhost:{}/", listener.local_addr().unwrap().port());
    // In lock-step it is not called a second time.
    let client = site.client_as(who, &["-4", "--lockstep", "ls", &url]).args(options);
    std::thread::scope(|scope| {
        let server = scope.spawn(|| {
            let mut lines = BufReader::new(listener.accept().unwrap().0);
            write!(lines.get_ref(), "220 {greeting}\r\n").unwrap();
            loop {
                let mut line = String::new();
                assert!(lines.read_line(&mut line).unwrap() > 0, "it gave up");
                let reply = match line.trim_end().strip_prefix("ADAT ") {
                    None => "334 go on\r\n".to_owned(),
                    Some(token) => {
                        let token = base64::decode(token.as_bytes(), 1 << 16).unwrap();
                        match acceptor.step(&token, clock::now()).unwrap() {
                            Accepted::Continue(token) => format!("335 ADAT={}\r\n", base64::encode(&token)),
                            Accepted::Established { delegated, .. } => return delegated.map(|own| kind_of(&own)),
                        }
                    }
                };
                lines.get_ref().write_all(reply.as_bytes()).unwrap();
            }
        });
        client.run_failing();
        server.join().unwrap()
    })
}

fn kind_of(own: &OwnChain) -> Kind {
    Certificate::parse(&own.certificate.to_der().unwrap()).unwrap().kind().unwrap()
}

#[test]
fn servers_are_handed_on_what_the_user_says_and_never_more_than_he_has() {
    let Some(site) = Site::start() else { return };
    let proxy = |policy| Some(Kind::Proxy { form: Form::Rfc, policy });
    let limited = site.pki.proxy(&site.alice, &ProxyKind::rfc(Policy::Limited), "limited").unwrap();
    let (ours, another) = ("localhost Whimbrel 9.9 ready.", "ready");
    for (who, greeting, options, expected) in [
        (&site.alice, another, &[][..], proxy(Policy::Limited)),
        (&site.alice, ours, &[], None),
        (&site.proxy, ours, &["--delegate", "limited"], proxy(Policy::Limited)),
        (&site.proxy, another, &["--delegate", "full"], proxy(Policy::InheritAll)),
        (&limited, another, &["--delegate", "full"], proxy(Policy::Limited)),
        (&site.proxy, another, &["--delegate", "none"], None),
    ] {
        assert_eq!(handed_on(&site, who, greeting, options), expected, "{greeting}, {options:?}");
    }
    // The real server takes all of a user's rights as well.
    let copied = site.client(&["-v", "cp", "--delegate", "full", &site.url("here"), &site.url("there")]).run_ok();
    assert!(said(&copied).contains("1 verified"), "{copied}");
}
