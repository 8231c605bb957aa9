//! Tests the way to a server, step by step, and says what is wrong.

mod data;

use std::time::{Duration, Instant};

use whimbrel_engine::listing::{ObjectKind, split, trimmed};
use whimbrel_engine::plan::quote_path;
use whimbrel_engine::summary::{exit, exit_code_for};
use whimbrel_engine::{Fault, FaultCode, Side};
use whimbrel_trust::gsi::Delegate;

use super::end::End;
use super::local::LocalOptions;
use super::remote::Remote;
use super::security::Security;
use super::target::{SessionOptions, Target};

/// What is to be tested, and how.
#[derive(Debug, Clone)]
pub struct Check<'a> {
    /// The server.
    pub target: &'a Target,
    /// What is listed over data connections.
    pub path: &'a [u8],
    /// The session; its `connect_timeout` is the longest wait for the control connection.
    pub session: &'a SessionOptions,
    /// Where this host listens.
    pub local: &'a LocalOptions,
    /// Longest wait for one data connection, and for what comes over it.
    pub patience: Duration,
}

/// One finding.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// What was tested.
    pub name: &'static str,
    /// Whether it works.
    pub ok: bool,
    /// What was found.
    pub text: String,
    /// What to do about it.
    pub cure: Option<String>,
}

impl Step {
    fn ok(name: &'static str, text: impl Into<String>) -> Self {
        Self { name, ok: true, text: text.into(), cure: None }
    }

    fn bad(name: &'static str, text: impl Into<String>, cure: impl Into<String>) -> Self {
        Self { name, ok: false, text: text.into(), cure: Some(cure.into()) }
    }
}

/// Tests a server and reports each step; the exit code.
pub async fn check(asked: &Check<'_>, mut report: impl FnMut(&Step)) -> u8 {
    let (target, session) = (asked.target, asked.session);
    let started = Instant::now();
    let remote = match Remote::dial(target, session, &[]).await {
        Ok((remote, _)) => remote,
        Err(fault) => {
            report(&control_fault(target, &fault));
            return exit_code_for(&fault);
        }
    };
    let took = started.elapsed().as_secs_f64() * 1000.0;
    let (server, here) = remote.addresses();
    report(&Step::ok(
        "connect",
        format!("{target} is {server}, reached from {here}; connected and logged in within {took:.0} ms"),
    ));
    let mut failed = false;
    let mut tell = |steps: Vec<Step>| {
        failed |= steps.iter().any(|step| !step.ok);
        steps.iter().for_each(&mut report);
    };
    tell(logged_in(&remote, asked));
    let (mut remote, place) = look(remote, asked.path).await;
    let path = match place {
        Ok((path, step)) => {
            tell(step.into_iter().collect());
            path
        }
        Err((step, code)) => {
            tell(vec![step]);
            return code;
        }
    };
    let asked = Check { path, ..asked.clone() };
    tell(data::passive(&mut remote, &asked).await);
    tell(data::active(&mut remote, &asked).await);
    if failed { exit::NETWORK_OR_PEER } else { exit::OK }
}

/// What the login has come to.
fn logged_in(remote: &Remote, asked: &Check<'_>) -> Vec<Step> {
    let mut steps = vec![Step::ok("greeting", remote.greeting.clone()), protection(remote, asked.target)];
    if let Some(credential) = remote.credential() {
        let handed_on = match asked.session.delegate.most() {
            _ if !remote.handed_on() => "nothing",
            Delegate::Full => "a proxy",
            _ => "a limited proxy",
        };
        steps.push(Step::ok("credential", format!("{credential}; {handed_on} of it was handed on")));
        steps.push(Step::ok("mapping", mapping(remote)));
    }
    if let Some(ticket) = remote.ticket() {
        steps.push(Step::ok("ticket", format!("{ticket}, for {}", ticket.service)));
        steps.push(Step::ok("mapping", mapping(remote)));
    }
    if let Some(token) = remote.token() {
        steps.push(Step::ok("token", format!("{token}; the server says: {}", remote.welcome)));
    }
    steps.push(features(remote));
    steps
}

const NO_TLS: &str = "no TLS here: use ftp:// where nobody needs a password, or give the server a [tls] section";

fn protection(remote: &Remote, target: &Target) -> Step {
    match remote.protection() {
        Some(protection) => Step::ok("protection", protection),
        None if target.security == Security::Tls => {
            Step::bad("protection", "none: the server offers no TLS, and the dialogue is in clear", NO_TLS)
        }
        None => Step::ok("protection", "none: the dialogue is in clear; whimbrel:// asks for TLS"),
    }
}

/// Looks for a path, over the control connection: the directory that can be listed there, or why there is none and the exit code.
async fn look(remote: Remote, path: &[u8]) -> (Remote, Result<(&[u8], Option<Step>), (Step, u8)>) {
    let mut end = End::Remote(Box::new(remote));
    let found = end.stat(path, false).await;
    let End::Remote(remote) = end else { unreachable!("it was made of a server") };
    let shown = quote_path(path);
    let place = match found {
        Ok(Some(object)) if object.kind == ObjectKind::Directory => {
            Ok((path, Some(Step::ok("path", format!("{shown} is a directory")))))
        }
        Ok(Some(_)) => Ok((parent(path), Some(Step::ok("path", format!("{shown} is there"))))),
        Ok(None) => {
            let cure = "check the path: whimbrel ls on the directory above it shows what there is";
            Err((Step::bad("path", format!("there is nothing at {shown}"), cure), exit::SOURCE))
        }
        // It may be listed all the same.
        Err(fault) if fault.code == FaultCode::NotSupported => Ok((path, None)),
        Err(fault) => {
            let fault = fault.side_if_unknown(Side::Source);
            Err((Step::bad("path", fault.to_string(), fault.code.explain().cure), exit_code_for(&fault)))
        }
    };
    (*remote, place)
}

/// The directory that a file is in.
fn parent(path: &[u8]) -> &[u8] {
    match trimmed(split(path).0) {
        b"" => b".",
        above => above,
    }
}

fn control_fault(target: &Target, fault: &Fault) -> Step {
    // Unless its configuration says otherwise, which it has told.
    let port = if target.port == 0 { 22 } else { target.port };
    // The operation tells how far it came: who says nothing was reached, and a firewall does not do that.
    let connected = fault.op != "connect";
    let cure = match fault.code {
        FaultCode::HostNotFound => "check the spelling of the host name, and that name service works here".to_owned(),
        FaultCode::ConnectionRefused => format!(
            "the host answers, but nothing listens on port {port}, or a firewall refuses it: check the port, that the server runs, and that the firewall lets it through (GridFTP servers use 2811, FTP servers 21, ssh 22)"
        ),
        FaultCode::HostUnreachable => format!(
            "a firewall refuses TCP port {port}, or there is no route to the host: ask for the port to be opened, and check the address"
        ),
        FaultCode::TimedOut if !connected => format!(
            "a firewall drops packets to port {port}, or the host is down: ask for TCP port {port} to be opened"
        ),
        FaultCode::TimedOut => {
            format!("something takes connections on port {port} and says nothing: check that it is the server's")
        }
        FaultCode::LoginFailed => {
            "use another login, as in whimbrel://USER@HOST/, or ask the site for access".to_owned()
        }
        FaultCode::PeerIncompatible if target.security == Security::Tls => NO_TLS.to_owned(),
        code if target.security == Security::ImplicitTls && is_of_dialogue(code) => format!(
            "what listens on port {port} does not begin with TLS, as ftps:// servers do (port 990): if it is a GridFTP or FTP server, use whimbrel:// or ftp://"
        ),
        code => {
            code.explain().cure.replace("run `whimbrel check` on the URL, and ", "look at the messages above, and ")
        }
    };
    Step::bad("connect", fault.to_string(), cure)
}

/// Whether the other end is heard, and does not say what was expected.
fn is_of_dialogue(code: FaultCode) -> bool {
    matches!(code, FaultCode::EncryptionFailed | FaultCode::PeerMisbehaved | FaultCode::ConnectionLost)
}

/// Which account a certificate or ticket has led to.
fn mapping(remote: &Remote) -> String {
    let asked = match &remote.target.user {
        Some(user) => format!("asked for {user}"),
        None if remote.ticket().is_some() => "asked for the account of this principal".to_owned(),
        None => "asked for the account of this certificate".to_owned(),
    };
    format!("{asked}; the server says: {}", remote.welcome)
}

fn features(remote: &Remote) -> Step {
    let features = &remote.features;
    let yes = |flag: bool| if flag { "yes" } else { "no" };
    let sums = remote.checksums();
    let sums = if sums.is_empty() { "none".to_owned() } else { sums.join(" ") };
    Step::ok(
        "features",
        format!(
            "parallel channels {}, listings without data connection {}, checksums {sums}, reversed data connections {}",
            yes(features.has("PARALLEL")),
            yes(features.has("MLSC")),
            yes(features.has("REVERSE"))
        ),
    )
}
