//! Logins with Kerberos at our server, with tickets of a real KDC: by hand, and by our client.
//!
//! The library reads its configuration from the environment, so the client's side is a process of its own: this program, started again, or ours.
#![allow(clippy::unwrap_used, reason = "a test helper that fails ends its test")]

mod support;

use std::fs;
use std::path::{Path, PathBuf};

use support::WHIMBREL;
use support::control::Control;
use support::dtn::{Dtn, DtnBuilder};
use tempfile::TempDir;
use whimbrel_proto::protect::{CommandSealer, ReplyOpener, base64};
use whimbrel_proto::reply::MAX_REPLY_LINE;
use whimbrel_testkit::peers::{GridftpServer, Kdc, Run, Tool, public_dir, url_path};
use whimbrel_testkit::pki::Pki;
use whimbrel_trust::krb5::{Initiated, KerberosInitiator, KerberosSeal, Ticket};

/// Where the realm's files are, in a case's process.
const REALM: &str = "WHIMBREL_TEST_REALM";

/// The account that servers become.
fn account() -> String {
    match rustix::process::geteuid().is_root() {
        true => "nobody".to_owned(),
        false => Tool::new("id").arg("-un").run_ok().stdout_text().trim().to_owned(),
    }
}

/// Writes the settings of a server that lets in one principal.
fn configure(kdc: &Kdc, principal: &str) {
    fs::write(kdc.path("accounts"), format!("\"{principal}\" {}\n", account())).expect("written");
    let settings = format!(
        "[kerberos]\nkeytab = \"{}\"\naccounts = \"{}\"\n",
        kdc.path("host.keytab").display(),
        kdc.path("accounts").display()
    );
    fs::write(kdc.path("dtn.toml"), settings).expect("written");
}

#[test]
fn a_ticket_is_enough_and_an_unknown_principal_is_told_its_name() {
    let Some(kdc) = Kdc::start() else { return };
    kdc.kinit("tickets");
    let account = account();
    for (principal, case) in [("ada@GRID.TEST", "case_ada"), ("bob@GRID.TEST", "case_stranger")] {
        configure(&kdc, principal);
        let tool = Tool::new(std::env::current_exe().expect("this program"));
        let tool = kdc.with(tool, "tickets").env(REALM, kdc.path("")).env("WHIMBREL_TEST_ACCOUNT", &account);
        let run = tool.args(["--exact", case, "--ignored", "--nocapture"]).run_ok();
        assert!(run.stdout_text().contains("1 passed"), "{run}");
    }
}

fn server() -> Dtn {
    let realm = PathBuf::from(std::env::var_os(REALM).expect("started by a test"));
    Dtn::builder().arg("--config").arg(realm.join("dtn.toml")).start()
}

/// Exchanges tokens to the end; what wraps lines then, and the ticket of that.
fn exchange(control: &mut Control) -> (KerberosSeal, Ticket) {
    control.ask_for(334, "AUTH GSSAPI");
    let mut client = KerberosInitiator::new("localhost").expect("the library");
    let mut token = client.start().expect("a ticket");
    loop {
        let reply = control.ask(&format!("ADAT {}", base64::encode(&token)));
        let answer = reply.text.split("ADAT=").nth(1).map(|text| base64::decode(text.trim().as_bytes(), 1 << 16));
        let answer = answer.expect("a token").expect("base64");
        match (reply.code, client.step(&answer).expect("the server's token")) {
            (235, Initiated::Last(None)) => {
                let ticket = client.ticket().expect("it is over");
                return (client.into_seal().expect("over"), ticket);
            }
            (335, Initiated::Continue(next)) => token = next,
            other => panic!("{other:?}"),
        }
    }
}

/// Says a line and gives the reply, both wrapped.
fn ask(control: &mut Control, seal: &mut KerberosSeal, sealer: &mut CommandSealer, line: &str) -> String {
    let mut wire = Vec::new();
    sealer.feed(seal, format!("{line}\r\n").as_bytes(), &mut wire).expect("sealed");
    control.send(&wire).expect("sent");
    opened(seal, &control.reply().text)
}

/// A reply that came wrapped.
fn opened(seal: &mut KerberosSeal, reply: &str) -> String {
    assert!(["632", "633"].contains(&&reply[..3]), "{reply} is not encrypted");
    let mut plain = Vec::new();
    ReplyOpener::new(MAX_REPLY_LINE).feed(seal, reply.as_bytes(), &mut plain).expect("genuine");
    String::from_utf8(plain).expect("text")
}

#[test]
#[ignore = "run in a realm by the test above"]
fn case_ada() {
    let server = server();
    let mut control = Control::open(server.addr());
    let (mut seal, _) = exchange(&mut control);
    let mut sealer = CommandSealer::default();
    let mut ask = |line: &str| ask(&mut control, &mut seal, &mut sealer, line);
    assert!(ask("USER :globus-mapping:").starts_with("331 "));
    let account = std::env::var("WHIMBREL_TEST_ACCOUNT").expect("told");
    assert!(ask("PASS dummy").starts_with("230 "));
    assert!(ask("SITE WHOAMI").contains(&account));
    // Kerberos has no certificates to prove data connections with.
    assert!(ask("DCAU A").starts_with("504 "));
    server.wait_for_log(&["identity accepted", "ada@GRID.TEST"]);
    // A token of certificates, where there are none.
    let mut other = Control::open(server.addr());
    other.ask_for(334, "AUTH GSSAPI");
    let refused = other.ask(&format!("ADAT {}", base64::encode(&[0x16, 3, 1, 0, 0])));
    assert!(refused.code == 530 && refused.text.contains("no logins with certificates"), "{}", refused.text);
}

#[test]
#[ignore = "run in a realm by the test above"]
fn case_stranger() {
    let server = server();
    let mut control = Control::open(server.addr());
    let (mut seal, _) = exchange(&mut control);
    let mut sealer = CommandSealer::default();
    assert!(ask(&mut control, &mut seal, &mut sealer, "USER :globus-mapping:").starts_with("331 "));
    let refused = ask(&mut control, &mut seal, &mut sealer, "PASS dummy");
    assert!(refused.starts_with("530") && refused.contains("ada@GRID.TEST"), "{refused}");
}

/// Where the server is, in a case's process that does not start one.
const SERVER: &str = "WHIMBREL_TEST_SERVER";

/// How long a ticket is good here, and how much longer a server takes it, seconds.
const SHORT: (i64, i64) = (5, 3);

#[test]
fn a_login_ends_with_its_ticket() {
    let Some(site) = Site::start() else { return };
    let conf = fs::read_to_string(site.kdc.path("krb5.conf")).unwrap();
    let skew = format!("[libdefaults]\n clockskew = {}\n", SHORT.1);
    fs::write(site.kdc.path("krb5.conf"), conf.replace("[libdefaults]\n", &skew)).unwrap();
    let server = site.server().start();
    site.kdc.kinit_for("short", &format!("{}s", SHORT.0));
    let tool = site.kdc.with(Tool::new(std::env::current_exe().expect("this program")), "short");
    let tool = tool.env(SERVER, server.addr().to_string());
    let run = tool.args(["--exact", "case_ticket_that_ends", "--ignored", "--nocapture"]).run_ok();
    assert!(run.stdout_text().contains("1 passed"), "{run}");
    server.wait_for_log(&["the credential of a login has expired"]);
    // Whoever has a ticket still is let in.
    site.client("tickets", &["ls", &site.url(&server, "")]).run_ok();
}

#[test]
#[ignore = "run in a realm by the test above"]
fn case_ticket_that_ends() {
    let server = std::env::var(SERVER).expect("started by a test").parse().expect("an address");
    let mut control = Control::open(server);
    let (mut seal, ticket) = exchange(&mut control);
    let mut sealer = CommandSealer::default();
    for (line, code) in [("USER :globus-mapping:", "331 "), ("PASS dummy", "230 "), ("NOOP", "200 ")] {
        let said = ask(&mut control, &mut seal, &mut sealer, line);
        assert!(said.starts_with(code), "{said}");
    }
    // Nothing is asked: the server ends it by itself.
    let farewell = opened(&mut seal, &control.reply().text);
    assert!(farewell.starts_with("421 ") && farewell.contains("credential has expired"), "{farewell}");
    let after = whimbrel_trust::clock::now().secs - ticket.until.secs;
    assert!((SHORT.1 - 1..60).contains(&after), "{after} s after the ticket");
    assert!(control.try_reply().is_err(), "it is closed");
}

/// A realm where ada has a ticket, and files.
struct Site {
    kdc: Kdc,
    files: TempDir,
}

impl Site {
    #[track_caller]
    fn start() -> Option<Self> {
        let kdc = Kdc::start()?;
        kdc.kinit("tickets");
        configure(&kdc, "ada@GRID.TEST");
        let files = public_dir().unwrap();
        fs::write(files.path().join("here"), payload()).unwrap();
        Some(Self { kdc, files })
    }

    /// A server of the realm.
    fn server(&self) -> DtnBuilder {
        let config = self.kdc.path("krb5.conf").into_os_string();
        Dtn::builder().root(Path::new("/")).arg("--config").arg(self.kdc.path("dtn.toml")).env("KRB5_CONFIG", config)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.files.path().join(name)
    }

    fn url(&self, server: &Dtn, name: &str) -> String {
        format!("gsiftp://localhost:{}{}", server.addr().port(), url_path(self.path(name)))
    }

    /// Our program with these tickets, and without certificates.
    fn client(&self, tickets: &str, arguments: &[&str]) -> Tool {
        let tool = self.kdc.with(Tool::new(WHIMBREL).args(arguments), tickets);
        tool.env("HOME", self.files.path()).env("X509_USER_PROXY", "/nowhere/proxy")
    }

    /// Runs it, expects this exit code, and gives what it said.
    #[track_caller]
    fn refused(&self, tool: Tool, code: i32) -> String {
        let run = tool.run().unwrap();
        assert_eq!(run.code(), Some(code), "{run}");
        run.stderr_text()
    }
}

fn payload() -> Vec<u8> {
    support::pattern(3_000_001)
}

fn said(run: &Run) -> String {
    format!("{}{}", run.stdout_text(), run.stderr_text())
}

#[test]
fn our_client_copies_with_a_ticket_also_from_server_to_server_and_encrypted() {
    let Some(site) = Site::start() else { return };
    let (one, two) = (site.server().start(), site.server().start());
    let listed = site.client("tickets", &["ls", &site.url(&one, "")]).run_ok();
    assert_eq!(listed.stdout_text().trim_end(), "here", "{listed}");
    for options in [&[][..], &["--encrypt"]] {
        for (from, to) in [
            (site.url(&one, "here"), site.path("there").display().to_string()),
            (site.path("here").display().to_string(), site.url(&one, "there")),
            (site.url(&one, "here"), site.url(&two, "there")),
        ] {
            let copied = said(&site.client("tickets", &["-vvv", "cp", &from, &to]).args(options).run_ok());
            assert!(copied.contains("1 verified"), "{copied}");
            assert!(fs::read(site.path("there")).unwrap() == payload());
            assert!(copied.contains("ADAT ***") && copied.contains("235 ADAT=***"), "{copied}");
            assert!(copied.contains("SITE DCNONCE") && !copied.contains("ENC "), "{copied}");
            assert_eq!(copied.contains("PROT P"), !options.is_empty(), "{copied}");
            fs::remove_file(site.path("there")).unwrap();
        }
    }
}

#[test]
fn check_tells_whose_ticket_it_is_for_whom_and_until_when() {
    let Some(site) = Site::start() else { return };
    let server = site.server().start();
    let checked = site.client("tickets", &["check", &site.url(&server, "")]).run_ok().stdout_text();
    for part in [
        "protection: Kerberos; the host is host/localhost@GRID.TEST",
        "ticket: ada@GRID.TEST, Kerberos ticket in FILE:",
        "/tickets, good until 20",
        "for host/localhost@GRID.TEST",
        &format!("the account of this principal; the server says: User {} logged in", account()),
        "data connection to the server: a listing of",
        "data connection from the server: a listing of",
    ] {
        assert!(checked.contains(part), "{part:?} in:\n{checked}");
    }
}

#[test]
fn what_is_wrong_with_a_ticket_is_told_with_its_cure() {
    let Some(site) = Site::start() else { return };
    let server = site.server().start();
    let url = site.url(&server, "");
    let said = site.refused(site.client("none", &["ls", &url]), 6);
    for part in
        ["no certificate or proxy; looked for /nowhere/proxy", "no Kerberos ticket in FILE:", "/none: `kinit` gets one"]
    {
        assert!(said.contains(part), "{part:?} in:\n{said}");
    }
    let said = site.refused(site.client("none", &["ls", "--kerberos", &url]), 6);
    assert!(said.contains("/none: `kinit` gets one") && !said.contains("certificate or proxy;"), "{said}");
    site.kdc.kinit_for("short", "1s");
    site.kdc.outlive("short");
    let said = site.refused(site.client("short", &["ls", "--kerberos", &url]), 6);
    assert!(
        said.contains("ada@GRID.TEST") && said.contains("/short has ended: `kinit` gets a new one (good until 20"),
        "{said}"
    );
    // The realm knows no host of this name.
    let said = site.refused(site.client("tickets", &["ls", "--kerberos", &url.replace("localhost", "127.0.0.1")]), 6);
    assert!(said.contains("host/127.0.0.1 or ftp/127.0.0.1: use the full name of the host"), "{said}");
    // No KDC of the realm answers.
    let conf = fs::read_to_string(site.kdc.path("krb5.conf")).unwrap();
    let dead = conf.lines().map(|line| if line.contains("kdc = 127") { " kdc = 127.0.0.1:1" } else { line });
    fs::write(site.kdc.path("dead.conf"), dead.collect::<Vec<_>>().join("\n")).unwrap();
    site.kdc.kinit("fresh");
    let dead = site.client("fresh", &["ls", "--kerberos", &url]).env("KRB5_CONFIG", site.kdc.path("dead.conf"));
    let said = site.refused(dead, 5);
    assert!(
        said.contains("the host cannot be reached") && said.contains("/etc/krb5.conf name the realm's KDC?"),
        "{said}"
    );
    // Known, but without the account that was asked for.
    let named = url.replace("gsiftp://", "gsiftp://root@");
    let said = site.refused(site.client("tickets", &["ls", &named]), 6);
    assert!(said.contains("ada@GRID.TEST as root at localhost") && said.contains("530"), "{said}");
    // A server that takes no GSSAPI at all.
    let clear = support::Server::own();
    let other = clear.url(site.path("")).replace("ftp://", "gsiftp://").replace("127.0.0.1", "localhost");
    let said = site.refused(site.client("tickets", &["ls", "--kerberos", &other]), 5);
    assert!(said.contains("lets nobody in with Kerberos"), "{said}");
}

#[test]
fn a_certificate_comes_first_unless_the_ticket_is_asked_for() {
    let Some(site) = Site::start() else { return };
    let pki = Pki::new().unwrap();
    let (host, alice) = (pki.host(&["localhost", "127.0.0.1"]).unwrap(), pki.person("alice").unwrap());
    let proxy = pki.full_proxy(&alice, 3600, "proxy").unwrap();
    let gridmap = pki.gridmap(&[("alice", &account())]).unwrap();
    let only = site.server().start();
    // One file for both.
    let clash =
        site.kdc.with(Tool::new(WHIMBREL).args(["dtn", "--gsi", "--listen", "127.0.0.1:0", "--config"]), "none");
    let clash = clash.arg(site.kdc.path("dtn.toml")).env("X509_CERT_DIR", pki.certificates()).env("GRIDMAP", &gridmap);
    let clash = clash.env("X509_USER_CERT", &host.file).env("X509_USER_KEY", &host.file).run_failing();
    assert!(clash.stderr_text().contains("is not read beside the grid-mapfile"), "{clash}");
    let map = format!("{}\"ada@GRID.TEST\" {}\n", fs::read_to_string(&gridmap).unwrap(), account());
    fs::write(&gridmap, map).unwrap();
    fs::write(site.kdc.path("dtn.toml"), format!("[kerberos]\nkeytab = {:?}\n", site.kdc.path("host.keytab"))).unwrap();
    let both = site.server().gsi(&pki, &host, &gridmap).start();
    let client = |who, arguments: &[&str]| site.client("tickets", arguments).as_member(&pki, who);
    let url = site.url(&both, "");
    let checked = client(&proxy, &["check", &url]).run_ok().stdout_text();
    assert!(checked.contains("credential: /O=Grid/CN=alice") && !checked.contains("ticket:"), "{checked}");
    let checked = client(&proxy, &["check", "--kerberos", &url]).run_ok().stdout_text();
    assert!(checked.contains("ticket: ada@GRID.TEST") && !checked.contains("credential:"), "{checked}");
    // A certificate that does not do: the ticket is named, and not shown unasked.
    let expired = pki.full_proxy(&alice, -60, "expired").unwrap();
    let told = site.refused(client(&expired, &["ls", &url]), 6);
    assert!(told.contains("its life is over") && told.contains("ada@GRID.TEST in FILE:"), "{told}");
    assert!(told.contains("--kerberos logs in with it"), "{told}");
    let told = site.refused(client(&proxy, &["ls", &site.url(&only, "")]), 6);
    assert!(told.contains("no logins with certificates") && told.contains("--kerberos logs in with it"), "{told}");
    // One that was named and is not there: nothing takes its place, though the ticket would do.
    let named = site.client("tickets", &["ls", "--certificate", "/nowhere/named.pem", &site.url(&only, "")]);
    let told = site.refused(named.env("X509_CERT_DIR", pki.certificates()), 6);
    assert!(told.contains("/nowhere/named.pem") && told.contains("there is no such file"), "{told}");
    // Each end by its own proof; the nonce fits both.
    let copy = ["-vvv", "cp", "--encrypt", "--kerberos", "--source-credential"];
    let copy = client(&proxy, &copy).arg(&proxy.file).arg(site.url(&both, "here")).arg(site.url(&only, "there"));
    let copied = said(&copy.run_ok());
    assert!(copied.contains("1 verified") && copied.contains("PROT P"), "{copied}");
    assert!(fs::read(site.path("there")).unwrap() == payload());
    fs::remove_file(site.path("there")).unwrap();
    let copy = client(&proxy, &["-vvv", "cp", "--destination-kerberos"]);
    let copied = said(&copy.arg(site.url(&both, "here")).arg(site.url(&only, "there")).run_ok());
    assert!(copied.contains("1 verified") && fs::read(site.path("there")).unwrap() == payload(), "{copied}");
    only.wait_for_log(&["identity accepted", "ada@GRID.TEST"]);
    both.wait_for_log(&["/O=Grid/CN=alice"]);
    // At the source it is not shown what only the destination asks for.
    let wrong = client(&proxy, &["cp", "--source-kerberos"]).arg(site.url(&both, "here")).arg(site.url(&only, "other"));
    let told = site.refused(wrong, 6);
    assert!(told.contains("no logins with certificates"), "{told}");
}

#[test]
fn data_go_encrypted_between_a_ticket_here_and_a_certificate_at_the_real_server() {
    let Some(builder) = GridftpServer::builder() else { return };
    let Some(site) = Site::start() else { return };
    let pki = Pki::new().unwrap();
    let (host, alice) = (pki.host(&["localhost"]).unwrap(), pki.person("alice").unwrap());
    let gridmap = pki.gridmap(&[("alice", &account())]).unwrap();
    let real = builder.gsi(&pki, &host, &gridmap).start().unwrap();
    let (ours, there) = (site.server().start(), url_path(site.path("there")));
    let to = format!("gsiftp://localhost:{}{there}", real.addr().port());
    let copy = site.client("tickets", &["-vvv", "cp", "--encrypt", "--kerberos", "--destination-credential"]);
    let copy = copy.env("X509_CERT_DIR", pki.certificates()).arg(&alice.file).arg(site.url(&ours, "here"));
    // It takes certificates only.
    let told = site.refused(site.client("tickets", &["ls", &to]).env("X509_CERT_DIR", pki.certificates()), 6);
    for part in ["does not take the Kerberos ticket: 530", "no certificate or proxy; looked for /nowhere/proxy"] {
        assert!(told.contains(part), "{part:?} in:\n{told}");
    }
    let copied = said(&copy.arg(to).run_ok());
    assert!(copied.contains("1 verified") && copied.contains("DCSC ***") && copied.contains("PROT P"), "{copied}");
    assert!(fs::read(site.path("there")).unwrap() == payload());
}
