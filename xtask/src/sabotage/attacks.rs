//! Checks that attackers at a running server meet: each is taken out, and a test must notice.

use super::mutations::{Mutation, Suite, mutation, suite};

const CHAINS: Suite = suite(&["test", "-p", "whimbrel-trust", "--test", "chains"], &[]);
const EBLOCK: Suite = suite(&["test", "-p", "whimbrel-proto", "--lib"], &["eblock"]);
const MODE_E: Suite = suite(&["test", "-p", "whimbrel-transport", "--lib"], &["mode_e"]);
const TLS: Suite = suite(&["test", "-p", "whimbrel-trust", "--lib"], &["tls::"]);
const PATIENCE: Suite = suite(&["test", "-p", "whimbrel-dtn", "--lib"], &["patience"]);
const RULED: Suite = suite(&["test", "-p", "whimbrel-dtn", "--lib"], &["ruled"]);
const STEPS: Suite = suite(&["test", "-p", "whimbrel-connector", "--lib"], &["posix::steps"]);
const DCAU: Suite = suite(&["test", "-p", "whimbrel-dtn", "--test", "mover_gsi"], &["turned_away"]);
const WRAPPED: Suite = suite(&["test", "-p", "whimbrel-testkit", "--test", "kerberos"], &[]);
const LOGINS: Suite = suite(&["test", "-p", "whimbrel", "--test", "hostile_logins"], &["token"]);
const RECORDS: Suite = suite(&["test", "-p", "whimbrel", "--test", "hostile_records"], &["say_nothing"]);
const BOUNCE: Suite = suite(&["test", "-p", "whimbrel", "--test", "hostile_security"], &["attacked"]);
const THEFT: Suite = suite(&["test", "-p", "whimbrel", "--test", "hostile_security"], &["stranger"]);
/// No stranger's text reaches it today that was not escaped before: the last of several walls.
const LOG: Suite = suite(&["test", "-p", "whimbrel", "--bin", "whimbrel"], &["log::"]);

const ANCHORS_RS: &str = "crates/trust/src/gsi/anchors.rs";
const CRL_RS: &str = "crates/trust/src/gsi/crl.rs";
const PEERS_RS: &str = "crates/trust/src/gsi/peers.rs";
const SESSION_RS: &str = "crates/dtn/src/mover/session.rs";
const RECEIVE_RS: &str = "crates/proto/src/eblock/receive.rs";
const GATHER_RS: &str = "crates/transport/src/mode_e/gather.rs";
const CARRIER_RS: &str = "crates/transport/src/secure/carrier.rs";
const PATIENCE_RS: &str = "crates/dtn/src/front/patience.rs";
const FRONT_RS: &str = "crates/dtn/src/front/connection.rs";
const SERVER_RS: &str = "crates/dtn/src/front/server.rs";
const RULED_RS: &str = "crates/dtn/src/mover/ruled.rs";
const STEPS_RS: &str = "crates/connector/src/posix/steps.rs";
const RECORDS_RS: &str = "crates/trust/src/tls/records.rs";
const LOG_RS: &str = "crates/cli/src/log.rs";
const GSSAPI_RS: &str = "crates/sys/src/gssapi.rs";

/// In the order in which an attacker comes by them.
pub const ATTACKS: &[Mutation] = &[
    mutation(
        "attack: a signing policy's subjects",
        "an authority that speaks for everybody",
        ANCHORS_RS,
        "Some(Ok(policy)) if policy.allows(authority, subject) => Ok(()),",
        "Some(Ok(policy)) if policy.allows(authority, subject) || !subject.is_empty() => Ok(()),",
        CHAINS,
    ),
    mutation(
        "attack: revoked certificates",
        "a stolen key that was reported",
        CRL_RS,
        "CrlStatus::Revoked(_) => Standing::Revoked,",
        "CrlStatus::Revoked(_) => Standing::Good,",
        CHAINS,
    ),
    mutation(
        "attack: whose data connection it is",
        "the data of one user for another",
        PEERS_RS,
        "if normal_form(expected) == normal_form(subject) => Ok(()),",
        "if normal_form(expected) == normal_form(subject) || !subject.is_empty() => Ok(()),",
        DCAU,
    ),
    mutation(
        "attack: the nonce of a connection that sends",
        "a file that somebody slips in",
        RECEIVE_RS,
        "        if header != expected[usize::from(2 - left)] {\n",
        "        if header != expected[usize::from(2 - left)] && left > 2 {\n",
        EBLOCK,
    ),
    mutation(
        "attack: the nonce of a connection that receives",
        "a file for whoever calls first",
        GATHER_RS,
        "        if pairs.fold(0, |sum, (a, b)| sum | (a ^ b)) != 0 {\n",
        "        if pairs.fold(0, |sum, (a, b)| sum | (a ^ b)) != 0 && self.len < NONCE_BLOCKS_LEN {\n",
        MODE_E,
    ),
    mutation(
        "attack: the address of who comes to a data port",
        "port theft",
        SESSION_RS,
        "peers.admits(from.ip(), control_peer)));",
        "peers.admits(from.ip(), control_peer) || from.port() > 0));",
        THEFT,
    ),
    mutation(
        "attack: the address that data go to",
        "bounce",
        SESSION_RS,
        "        if !known && !self.admits_all(params) {\n",
        "        if !known && !self.admits_all(params) && target.port() == 0 {\n",
        BOUNCE,
    ),
    mutation(
        "attack: the ports of services",
        "commands to a mail server, by way of a file",
        SESSION_RS,
        "        if target.port() < FIRST_FREE_PORT {\n",
        "        if target.port() < FIRST_FREE_PORT && target.port() == 0 {\n",
        BOUNCE,
    ),
    mutation(
        "attack: TLS without data, on data connections",
        "a thread that never comes back",
        CARRIER_RS,
        "        if self.barren > BARREN {\n",
        "        if self.barren > BARREN && buffer.is_empty() {\n",
        RECORDS,
    ),
    mutation(
        "attack: records without data",
        "a thread that never comes back",
        RECORDS_RS,
        "if self.idle > IDLE {",
        "if self.idle > IDLE && self.message.len() > MESSAGE {",
        TLS,
    ),
    mutation(
        "attack: records under worn keys",
        "the text of two records, and the key that proves them",
        RECORDS_RS,
        "if self.keys.records >= WORN {",
        "if self.keys.records >= WORN && into.is_empty() && !into.is_empty() {",
        TLS,
    ),
    mutation(
        "attack: TLS without commands",
        "a processor that changes keys",
        PATIENCE_RS,
        "self.barren > BARREN_BYTES {",
        "self.barren > BARREN_BYTES && wire == 0 {",
        PATIENCE,
    ),
    mutation(
        "attack: tokens in clear",
        "a token for whoever listens",
        FRONT_RS,
        "                Shown::Token(_) if !tls => return",
        "                Shown::Token(_) if !tls && name.is_empty() => return",
        LOGINS,
    ),
    mutation(
        "attack: scopes are the rules of a login",
        "all files for a token that names one directory",
        SERVER_RS,
        "self.settings.access.of(guest).and(&rules).and(",
        "self.settings.access.of(guest).and(&LoginRules { until: rules.until, ..LoginRules::unlimited() }).and(",
        LOGINS,
    ),
    mutation(
        "attack: who may only create replaces nothing",
        "the file of somebody who was a moment faster",
        RULED_RS,
        "            true => self.fresh.as_ref(),\n",
        "            true => self.plain.as_ref(),\n",
        RULED,
    ),
    mutation(
        "attack: a name is given only if it is free",
        "the same, in the file system",
        STEPS_RS,
        "RenameFlags::NOREPLACE)) {\n",
        "RenameFlags::empty())) {\n",
        STEPS,
    ),
    mutation(
        "attack: lines that are repeated or left out",
        "a command that is carried out twice",
        GSSAPI_RS,
        "        if major & OUT_OF_ORDER != 0 {\n",
        "        if major & OUT_OF_ORDER != 0 && major == 0 {\n",
        WRAPPED,
    ),
    mutation(
        "attack: control characters in logs",
        "lines that nobody has logged",
        LOG_RS,
        "        match is_unsafe(next) {\n",
        "        match is_unsafe(next) && next == '\\u{7f}' {\n",
        LOG,
    ),
];
