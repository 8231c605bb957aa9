//! Logins by attributes of a virtual organization: a VOMS server's word in a proxy decides the account, or does not count.
#![allow(clippy::unwrap_used, reason = "a test helper that fails ends its test")]

mod support;

use std::fs;
use std::path::PathBuf;

use support::dtn::Dtn;
use support::{WHIMBREL, account};
use tempfile::TempDir;
use whimbrel_testkit::peers::{Tool, file_url, public_dir, require, url_path};
use whimbrel_testkit::pki::{Member, Membership, Pki};

const PRODUCTION: &[&str] = &["/atlas/Role=production", "/atlas"];

/// A server that knows nobody by name, and one role of one organization by one server.
struct Site {
    pki: Pki,
    server: Dtn,
    alice: Member,
    voms: Member,
    files: TempDir,
}

impl Site {
    fn start() -> Self {
        let pki = Pki::new().unwrap();
        let host = pki.host(&["localhost", "127.0.0.1"]).unwrap();
        let (alice, voms) = (pki.person("alice").unwrap(), pki.host(&["voms.example.org"]).unwrap());
        let files = public_dir().unwrap();
        fs::write(files.path().join("here"), "bytes").unwrap();
        let (vomsdir, authorities) = (pki.vomsdir(&[("atlas", &voms)]).unwrap(), pki.certificates());
        let gridmap = files.path().join("grid-mapfile");
        fs::write(&gridmap, format!("\"/atlas/Role=production\" {}\n", account())).unwrap();
        let config = files.path().join("dtn.toml");
        let certificate = &host.file;
        let places = format!("certificate = {certificate:?}\nauthorities = {authorities:?}\nvomsdir = {vomsdir:?}");
        fs::write(&config, format!("[gsi]\ngridmap = {gridmap:?}\n{places}\n[accounts]\nleast_uid = 1\n")).unwrap();
        let server = Dtn::builder().root(files.path()).arg("--config").arg(&config).start();
        Self { pki, server, alice, voms, files }
    }

    fn word(&self) -> Membership<'_> {
        Membership { organization: "atlas", attributes: PRODUCTION, holder: &self.alice, seconds: 3600 }
    }

    /// Alice's proxy with a server's word.
    fn proxy(&self, server: &Member, word: &Membership<'_>, file: &str) -> Member {
        self.pki.voms_proxy(&self.alice, server, word, file).unwrap()
    }

    fn url(&self, name: &str) -> String {
        format!("gsiftp://localhost:{}/{}", self.server.addr().port(), name)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.files.path().join(name)
    }

    fn client(&self, who: &Member, arguments: &[&str]) -> Tool {
        let tool = Tool::new(WHIMBREL).args(arguments).as_member(&self.pki, who);
        tool.env("HOME", self.path("")).env("KRB5CCNAME", "FILE:/nowhere/tickets")
    }

    /// Nobody is let in with this proxy, whose subject is told, and the log says why its attributes do not count.
    fn refuses(&self, who: &Member, why: &str) {
        let refused = self.client(who, &["ls", &self.url("")]).run_failing();
        assert_eq!(refused.code(), Some(6), "{refused}");
        assert!(refused.stderr_text().contains("/O=Grid/CN=alice"), "{refused}");
        self.server.wait_for_log(&["attributes are not believed", "/O=Grid/CN=alice", why]);
    }
}

#[test]
fn a_role_that_the_organizations_server_gives_leads_to_its_account() {
    let site = Site::start();
    let proxy = site.proxy(&site.voms, &site.word(), "good");
    let told = site.client(&proxy, &["check", &site.url("")]).run_ok().stdout_text();
    assert!(told.contains(&format!("User {} logged in", account())), "{told}");
    site.client(&proxy, &["cp", &site.url("here"), &site.path("copy").display().to_string()]).run_ok();
    assert_eq!(fs::read_to_string(site.path("copy")).unwrap(), "bytes");
    let Some(copy) = require("globus-url-copy") else { return };
    let (from, to) = (site.url(url_path("here").as_str()), file_url(site.path("theirs")));
    Tool::new(copy).args([from, to]).as_member(&site.pki, &proxy).run_ok();
    assert_eq!(fs::read_to_string(site.path("theirs")).unwrap(), "bytes");
}

#[test]
fn without_the_role_nobody_is_let_in() {
    let site = Site::start();
    let plain = site.pki.usual_proxy(&site.alice, "plain").unwrap();
    let member = site.proxy(&site.voms, &Membership { attributes: &["/atlas"], ..site.word() }, "member");
    for who in [&plain, &member] {
        let refused = site.client(who, &["ls", &site.url("")]).run_failing();
        assert_eq!(refused.code(), Some(6), "{refused}");
    }
    site.server.wait_for_log(&["login refused", "/O=Grid/CN=alice"]);
    assert!(!site.server.log().contains("not believed"), "{}", site.server.log());
}

#[test]
fn words_that_have_expired_or_are_about_somebody_else_do_not_count() {
    let site = Site::start();
    let expired = Membership { seconds: -60, ..site.word() };
    site.refuses(&site.proxy(&site.voms, &expired, "expired"), "not good at this time");
    let bob = site.pki.person("bob").unwrap();
    let stolen = Membership { holder: &bob, ..site.word() };
    site.refuses(&site.proxy(&site.voms, &stolen, "stolen"), "somebody else's");
    // The certificate that alice had before, or will have: the same name, another number.
    let renewed = site.pki.person("alice").unwrap();
    let other = Membership { holder: &renewed, ..site.word() };
    site.refuses(&site.proxy(&site.voms, &other, "other"), "somebody else's");
}

#[test]
fn words_of_servers_that_nobody_named_do_not_count() {
    let site = Site::start();
    let unlisted = Membership { organization: "cms", attributes: &["/cms/Role=production"], ..site.word() };
    site.refuses(&site.proxy(&site.voms, &unlisted, "unlisted"), "no server of this organization is known");
    let impostor = site.pki.host(&["voms.elsewhere.org"]).unwrap();
    site.refuses(&site.proxy(&impostor, &site.word(), "impostor"), "is no server of this organization");
    // The right name, below an authority that is not trusted here.
    let strangers = Pki::new().unwrap();
    let forged = strangers.host(&["voms.example.org"]).unwrap();
    site.refuses(&site.proxy(&forged, &site.word(), "forged"), "attributes are not believed");
}
