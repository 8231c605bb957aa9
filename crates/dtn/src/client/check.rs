//! Tests the way to a server, step by step, and says what is wrong.

use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;
use whimbrel_engine::summary::{exit, exit_code_for};
use whimbrel_engine::{Fault, FaultCode, Side};
use whimbrel_proto::op::{DataParams, ListForm, ListSpec, Op, Outcome};

use whimbrel_trust::gsi::Delegate;

use super::data::{Certified, DataStream};
use super::end::reachable;
use super::local::LocalOptions;
use super::remote::Remote;
use super::target::{SessionOptions, Target};

/// Longest wait for one data connection.
const PATIENCE: Duration = Duration::from_secs(10);

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
pub async fn check(
    target: &Target,
    path: &[u8],
    session: &SessionOptions,
    local: &LocalOptions,
    mut report: impl FnMut(&Step),
) -> u8 {
    let started = Instant::now();
    let mut remote = match Remote::dial(target, session, &[]).await {
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
    report(&Step::ok("greeting", remote.greeting.clone()));
    let protection = remote.protection();
    report(&Step::ok(
        "protection",
        protection.unwrap_or_else(|| "none: the dialogue is in clear; whimbrel:// asks for TLS".to_owned()),
    ));
    if let Some(credential) = remote.credential() {
        let handed_on = match session.delegate {
            Delegate::No => "nothing",
            Delegate::Limited => "a limited proxy",
            Delegate::Full => "a proxy",
        };
        report(&Step::ok("credential", format!("{credential}; {handed_on} of it was handed on")));
        report(&Step::ok("mapping", mapping(&remote)));
    }
    if let Some(ticket) = remote.ticket() {
        report(&Step::ok("ticket", format!("{ticket}, for {}", ticket.service)));
        report(&Step::ok("mapping", mapping(&remote)));
    }
    if let Some(token) = remote.token() {
        report(&Step::ok("token", format!("{token}; the server says: {}", remote.welcome)));
    }
    report(&features(&remote));
    let results = [passive(&mut remote, path).await, active(&mut remote, path, local).await];
    results.iter().flatten().for_each(&mut report);
    let failed = results.iter().flatten().any(|step| !step.ok);
    if failed { exit::NETWORK_OR_PEER } else { exit::OK }
}

fn control_fault(target: &Target, fault: &Fault) -> Step {
    // Unless its configuration says otherwise, which it has told.
    let port = if target.port == 0 { 22 } else { target.port };
    let cure = match fault.code {
        FaultCode::HostNotFound => "check the spelling of the host name, and that name service works here".to_owned(),
        FaultCode::ConnectionRefused => format!(
            "the host answers, but nothing listens on port {port}: check the port and that the server runs (GridFTP servers use 2811, FTP servers 21, ssh 22)"
        ),
        FaultCode::TimedOut | FaultCode::HostUnreachable => {
            format!(
                "a firewall drops packets to port {port}, or the host is down: ask for TCP port {port} to be opened"
            )
        }
        FaultCode::LoginFailed => "use another login, as in user@host: or ask the site for access".to_owned(),
        code => code.explain().cure.to_owned(),
    };
    Step::bad("connect", fault.to_string(), cure)
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

fn listing(path: &[u8], remote: &Remote) -> Op {
    let facts = !remote.lacks("MLST");
    Op::SendListing(ListSpec {
        path: path.to_vec(),
        written: Vec::new(),
        form: if facts { ListForm::Facts } else { ListForm::Long },
        facts: None,
        flags: Vec::new(),
        continue_on_error: true,
        follow_links: false,
    })
}

/// From here to the server: downloads in stream mode, and every upload.
async fn passive(remote: &mut Remote, path: &[u8]) -> Vec<Step> {
    let name = "data connection to the server";
    let certified = match remote.certified() {
        Ok(certified) => certified,
        Err(fault) => return vec![Step::bad(name, fault.to_string(), fault.code.explain().cure)],
    };
    let op = Op::Passive { striped: false, family: None, params: params(certified.as_ref()) };
    let announced = match remote.run(op).await {
        Ok(Outcome::Listening(addresses)) if !addresses.is_empty() => addresses[0],
        Ok(_) => return vec![Step::bad(name, "the server names no address", "report it to the site")],
        Err(fault) => {
            return vec![Step::bad(name, fault.to_string(), "ask the site to allow passive data connections")];
        }
    };
    let (server, _) = remote.addresses();
    let mut steps: Vec<Step> = announced_address(announced, server.ip()).into_iter().collect();
    let address = reachable(announced, server.ip());
    match timeout(PATIENCE, TcpStream::connect(address)).await {
        Ok(Ok(stream)) => {
            let result = match DataStream::new(stream, certified.as_ref(), false) {
                Ok(stream) => fetch(remote, path, stream).await,
                Err(fault) => Err(fault),
            };
            steps.push(match result {
                Ok(bytes) => Step::ok(name, format!("a listing of {bytes} bytes came through {address}")),
                Err(fault) => Step::bad(name, format!("{address} took the connection, but: {fault}"), fault.code.explain().cure),
            });
        }
        Ok(Err(error)) => steps.push(Step::bad(
            name,
            format!("{address}: {error}"),
            "a firewall refuses the server's data ports: the site must open its data port range to this host (globus: 50000-51000 is usual; whimbrel dtn: --data-ports)",
        )),
        Err(_) => steps.push(Step::bad(
            name,
            format!("{address}: no answer in {} s", PATIENCE.as_secs()),
            "a firewall drops packets to the server's data ports, or the announced address is not routed here: the site must open its data port range, or announce an address that can be reached (--data-address)",
        )),
    }
    steps
}

/// Proven and encrypted where the login was with certificates.
fn params(certified: Option<&Certified>) -> DataParams {
    DataParams { shield: Certified::shield(certified), ..DataParams::default() }
}

async fn fetch(remote: &mut Remote, path: &[u8], mut stream: DataStream) -> Result<usize, Fault> {
    let id = remote.submit(listing(path, remote))?;
    remote.flush().await?;
    let read = timeout(PATIENCE, read_all(&mut stream));
    let (read, done) = tokio::join!(read, remote.finish(id));
    let count = read.unwrap_or_else(|_| Err(Fault::new(FaultCode::TimedOut, "read listing")));
    // The server's word about a connection is often only that it broke.
    match (done, count) {
        (Err(_), Err(fault)) if fault.side == Some(Side::Peer) => Err(fault),
        (Err(fault), _) => Err(fault),
        (Ok(_), count) => count,
    }
}

async fn read_all(stream: &mut DataStream) -> Result<usize, Fault> {
    let mut text = Vec::new();
    while stream.read(&mut text).await? {}
    Ok(text.len())
}

fn announced_address(announced: SocketAddr, server: IpAddr) -> Option<Step> {
    let (ip, server) = (announced.ip().to_canonical(), server.to_canonical());
    if ip == server {
        return None;
    }
    let name = "announced data address";
    let cure = "the site must set the address it announces (globus: -data-interface or -hostname; whimbrel dtn: --data-address)";
    let private = match ip {
        IpAddr::V4(ip) => ip.is_private() || ip.is_link_local(),
        IpAddr::V6(ip) => (ip.segments()[0] & 0xfe00) == 0xfc00,
    };
    if ip.is_loopback() || ip.is_unspecified() {
        let text = format!(
            "the server at {server} announces {ip}, which every host takes for itself; copies from server to server fail"
        );
        return Some(Step::bad(name, text, cure));
    }
    if private {
        let text =
            format!("the server at {server} announces {ip}, a private address that only its own network reaches");
        return Some(Step::bad(name, text, cure));
    }
    Some(Step::ok(name, format!("differs from the server's: {ip} instead of {server}")))
}

/// From the server to here: downloads with several channels.
async fn active(remote: &mut Remote, path: &[u8], local: &LocalOptions) -> Vec<Step> {
    let name = "data connection from the server";
    let (_, here) = remote.addresses();
    let listener = match listen(here.ip(), local.data_ports).await {
        Ok(listener) => listener,
        Err(error) => {
            return vec![Step::bad(
                name,
                format!("no port to listen on: {error}"),
                "free a port, or correct GLOBUS_TCP_PORT_RANGE",
            )];
        }
    };
    let Ok(bound) = listener.local_addr() else { return Vec::new() };
    let told = SocketAddr::new(local.data_address.unwrap_or(bound.ip()), bound.port());
    let certified = match remote.certified() {
        Ok(certified) => certified,
        Err(fault) => return vec![Step::bad(name, fault.to_string(), fault.code.explain().cure)],
    };
    let op = Op::Active { targets: vec![told], params: params(certified.as_ref()) };
    if let Err(fault) = remote.run(op).await {
        return vec![Step::bad(
            name,
            fault.to_string(),
            "the server takes no data address; downloads use passive stream mode",
        )];
    }
    let started = match remote.submit(listing(path, remote)) {
        Ok(id) => id,
        Err(fault) => return vec![Step::bad(name, fault.to_string(), "name a path without line breaks")],
    };
    let receive = async {
        let accepted = listener.accept().await;
        let (stream, _) = accepted.map_err(|error| Fault::from_io(error, "accept a data connection"))?;
        read_all(&mut DataStream::new(stream, certified.as_ref(), true)?).await
    };
    let (received, done) = tokio::join!(timeout(PATIENCE, receive), timeout(PATIENCE, remote.finish(started)));
    let why = match done {
        Ok(Err(fault)) => format!("; the server says: {fault}"),
        _ => String::new(),
    };
    vec![match received {
        Ok(Ok(bytes)) if why.is_empty() => Step::ok(name, format!("a listing of {bytes} bytes came to {told}")),
        Ok(Err(fault)) if fault.side == Some(Side::Peer) => {
            Step::bad(name, format!("the server reaches {told}, but: {fault}{why}"), fault.code.explain().cure)
        }
        _ => Step::bad(
            name,
            format!("the server does not reach {told}{why}"),
            "a firewall or address translation in front of this host: downloads fall back to one passive channel; open a port range and set GLOBUS_TCP_PORT_RANGE, and GLOBUS_FTP_CLIENT_DATA_IP if the address is translated",
        ),
    }]
}

async fn listen(ip: IpAddr, ports: Option<(u16, u16)>) -> std::io::Result<TcpListener> {
    let (low, high) = ports.unwrap_or((0, 0));
    let mut last = None;
    for port in low..=high {
        match TcpListener::bind((ip, port)).await {
            Ok(listener) => return Ok(listener),
            Err(error) => last = Some(error),
        }
    }
    Err(last.unwrap_or_else(|| std::io::ErrorKind::AddrInUse.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(announced: &str, server: &str) -> Option<bool> {
        announced_address(format!("{announced}:1").parse().unwrap(), server.parse().unwrap()).map(|step| step.ok)
    }

    #[test]
    fn addresses_that_others_cannot_reach_are_named() {
        assert_eq!(judged("127.0.0.1", "192.0.2.1"), Some(false));
        assert_eq!(judged("10.1.2.3", "192.0.2.1"), Some(false));
        assert_eq!(judged("192.0.2.9", "192.0.2.1"), Some(true));
        assert_eq!(judged("192.0.2.1", "192.0.2.1"), None);
    }
}
