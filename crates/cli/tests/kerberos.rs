//! Logins with Kerberos at our server, with tickets of a real KDC.
//!
//! The library reads its configuration from the environment, so the client's side is a process of its own: this program, started again.

mod support;

use std::fs;
use std::path::PathBuf;

use support::control::Control;
use support::dtn::Dtn;
use whimbrel_proto::protect::{CommandSealer, ReplyOpener, base64};
use whimbrel_proto::reply::MAX_REPLY_LINE;
use whimbrel_testkit::peers::{Kdc, Tool};
use whimbrel_trust::krb5::{Initiated, KerberosInitiator, KerberosSeal};

/// Where the realm's files are, in a case's process.
const REALM: &str = "WHIMBREL_TEST_REALM";

#[test]
fn a_ticket_is_enough_and_an_unknown_principal_is_told_its_name() {
    let Some(kdc) = Kdc::start() else { return };
    kdc.kinit("tickets");
    let account = match rustix::process::geteuid().is_root() {
        true => "nobody".to_owned(),
        false => Tool::new("id").arg("-un").run_ok().stdout_text().trim().to_owned(),
    };
    for (principal, case) in [("ada@GRID.TEST", "case_ada"), ("bob@GRID.TEST", "case_stranger")] {
        fs::write(kdc.path("accounts"), format!("\"{principal}\" {account}\n")).expect("written");
        let settings = format!(
            "[kerberos]\nkeytab = \"{}\"\naccounts = \"{}\"\n",
            kdc.path("host.keytab").display(),
            kdc.path("accounts").display()
        );
        fs::write(kdc.path("dtn.toml"), settings).expect("written");
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

/// Exchanges tokens to the end; what wraps lines then.
fn exchange(control: &mut Control) -> KerberosSeal {
    control.ask_for(334, "AUTH GSSAPI");
    let mut client = KerberosInitiator::new("localhost").expect("the library");
    let mut token = client.start().expect("a ticket");
    loop {
        let reply = control.ask(&format!("ADAT {}", base64::encode(&token)));
        let answer = reply.text.split("ADAT=").nth(1).map(|text| base64::decode(text.trim().as_bytes(), 1 << 16));
        let answer = answer.expect("a token").expect("base64");
        match (reply.code, client.step(&answer).expect("the server's token")) {
            (235, Initiated::Last(None)) => return client.into_seal(),
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
    let reply = control.reply();
    assert!(["632", "633"].contains(&&reply.text[..3]), "{} is not encrypted", reply.text);
    let mut plain = Vec::new();
    ReplyOpener::new(MAX_REPLY_LINE).feed(seal, reply.text.as_bytes(), &mut plain).expect("genuine");
    String::from_utf8(plain).expect("text")
}

#[test]
#[ignore = "run in a realm by the test above"]
fn case_ada() {
    let server = server();
    let mut control = Control::open(server.addr());
    let mut seal = exchange(&mut control);
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
    let mut seal = exchange(&mut control);
    let mut sealer = CommandSealer::default();
    assert!(ask(&mut control, &mut seal, &mut sealer, "USER :globus-mapping:").starts_with("331 "));
    let refused = ask(&mut control, &mut seal, &mut sealer, "PASS dummy");
    assert!(refused.starts_with("530") && refused.contains("ada@GRID.TEST"), "{refused}");
}
