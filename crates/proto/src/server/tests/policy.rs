//! SITE POLICY.

use super::*;
use crate::policy::{Policy, Rule};

fn rule(path: &str, user: Option<&str>, label: Option<&str>, chunk: u64) -> PolicyRule {
    let policy = Policy { chunk: Some(chunk), ..Policy::default() };
    PolicyRule {
        user: user.map(str::to_owned),
        label: label.map(|label| label.as_bytes().to_vec()),
        rule: Rule { path: path.into(), policy },
    }
}

#[test]
fn rules_are_told_to_those_whom_they_are_for_in_their_order() {
    let rules = vec![
        rule("/mine", Some("u"), None, 0),
        rule("/theirs", Some("other"), None, 0),
        rule("/nightly", None, Some("night run"), 1 << 20),
        rule("/", None, None, 1 << 28),
    ];
    let mut peer = Peer::logged_in_with(ServerConfig { rules, ..ServerConfig::default() });
    assert!(peer.send("FEAT").contains("\r\n POLICY\r\n"));
    let told = |lines: &str| format!("250-Policy.\r\n{lines}250 End\r\n");
    let (mine, all) = (" RULE chunk=0; /mine\r\n", " RULE chunk=268435456; /\r\n");
    assert_eq!(peer.send("SITE POLICY"), told(&format!("{mine}{all}")));
    assert_eq!(peer.send("SITE TASKID night run"), "250 OK.\r\n");
    let nightly = " RULE chunk=1048576; /nightly\r\n";
    assert_eq!(peer.send("site policy"), told(&format!("{mine}{nightly}{all}")));
}

#[test]
fn without_rules_it_is_neither_announced_nor_known() {
    let mut peer = Peer::logged_in();
    assert!(!peer.send("FEAT").contains("POLICY"));
    assert!(peer.send("SITE POLICY").starts_with("502"));
}

#[test]
fn nobody_is_told_before_login() {
    let rules = vec![rule("/", None, None, 0)];
    let mut peer = Peer::connect(ServerConfig { rules, ..ServerConfig::default() });
    assert!(!peer.send("FEAT").contains("POLICY"));
    assert!(peer.send("SITE POLICY").starts_with("530"));
}
