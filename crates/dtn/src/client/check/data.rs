//! Whether data connections stand, in either direction, and what is in their way: a firewall, or an address.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::time::error::Elapsed;
use tokio::time::timeout;
use whimbrel_engine::{Fault, FaultCode, Side};
use whimbrel_proto::op::{DataParams, ListForm, ListSpec, Op, OpId, Outcome};

use super::{Check, Step};
use crate::client::data::{Certified, DataStream};
use crate::client::end::reachable;
use crate::client::remote::Remote;

const TO_SERVER: &str = "data connection to the server";
const FROM_SERVER: &str = "data connection from the server";
const ANNOUNCED: &str = "announced data address";
const TOLD: &str = "address of this host";

const ANNOUNCE: &str =
    "the site must set the address it announces (globus: -data-interface or -hostname; whimbrel dtn: --data-address)";
const OPEN_RANGE: &str =
    "the site must open its data port range to this host (globus: 50000-51000 is usual; whimbrel dtn: --data-ports)";

/// From here to the server: downloads in stream mode, and every upload.
pub(super) async fn passive(remote: &mut Remote, asked: &Check<'_>) -> Vec<Step> {
    let certified = match remote.certified() {
        Ok(certified) => certified,
        Err(fault) => return vec![Step::bad(TO_SERVER, fault.to_string(), fault.code.explain().cure)],
    };
    let op = Op::Passive { striped: false, family: None, params: params(certified.as_ref()) };
    let announced = match remote.run(op).await {
        Ok(Outcome::Listening(addresses)) if !addresses.is_empty() => addresses[0],
        Ok(_) => return vec![Step::bad(TO_SERVER, "the server names no address", "report it to the site")],
        Err(fault) => {
            return vec![Step::bad(TO_SERVER, fault.to_string(), "ask the site to allow passive data connections")];
        }
    };
    let (server, _) = remote.addresses();
    let (mut steps, address, stream) = dial(announced, server.ip(), asked.patience).await;
    if let Some(stream) = stream {
        let result = match DataStream::new(stream, certified.as_ref(), false) {
            Ok(stream) => fetch(remote, asked, stream).await,
            Err(fault) => Err(fault),
        };
        steps.push(match result {
            Ok(bytes) => Step::ok(TO_SERVER, format!("a listing of {bytes} bytes came through {address}")),
            Err(fault) => {
                Step::bad(TO_SERVER, format!("{address} took the connection, but: {fault}"), fault.code.explain().cure)
            }
        });
    }
    steps
}

/// Connects to where the server listens; what there is to say about the address, which one was tried last, and the connection.
///
/// Where nothing answers at an announced address, the same port of the server's own one tells a wrong address from a firewall.
async fn dial(announced: SocketAddr, server: IpAddr, patience: Duration) -> (Vec<Step>, SocketAddr, Option<TcpStream>) {
    let address = reachable(announced, server);
    let obstacle = match connect(address, patience).await {
        Ok(stream) => return (announced_address(announced.ip(), server).into_iter().collect(), address, Some(stream)),
        Err(obstacle) => obstacle,
    };
    let own = SocketAddr::new(server.to_canonical(), announced.port());
    if address.ip().to_canonical() == own.ip() {
        let address_step = announced_address(announced.ip(), server);
        return (address_step.into_iter().chain([blocked(address, &obstacle)]).collect(), address, None);
    }
    match connect(own, patience).await {
        Ok(stream) => (vec![wrong(address, server, &obstacle)], own, Some(stream)),
        Err(_) => (vec![unreached(address, server, &obstacle)], own, None),
    }
}

/// Why a connection does not stand.
#[derive(Debug)]
enum Obstacle {
    /// What the network says, at once.
    Refusal(io::Error),
    /// Nothing was heard in this time.
    Silence(Duration),
}

impl Obstacle {
    fn text(&self) -> String {
        match self {
            Self::Refusal(error) => error.to_string(),
            Self::Silence(patience) => format!("no answer in {} s", patience.as_secs()),
        }
    }

    fn does(&self) -> &'static str {
        match self {
            Self::Refusal(_) => "refuses connections to",
            Self::Silence(_) => "drops packets to",
        }
    }
}

async fn connect(address: SocketAddr, patience: Duration) -> Result<TcpStream, Obstacle> {
    match timeout(patience, TcpStream::connect(address)).await {
        Ok(connected) => connected.map_err(Obstacle::Refusal),
        Err(_) => Err(Obstacle::Silence(patience)),
    }
}

/// The control connection reaches this address: only the port can be in the way.
fn blocked(address: SocketAddr, obstacle: &Obstacle) -> Step {
    let text = format!("{address}: {}", obstacle.text());
    Step::bad(TO_SERVER, text, format!("a firewall {} the server's data ports: {OPEN_RANGE}", obstacle.does()))
}

/// The port answers at the server's own address.
fn wrong(announced: SocketAddr, server: IpAddr, obstacle: &Obstacle) -> Step {
    let (ip, server) = (announced.ip(), server.to_canonical());
    let text = format!(
        "the server announces {announced}: {}; at its own address {server} the same port takes the connection: {ip} is wrong",
        obstacle.text()
    );
    Step::bad(ANNOUNCED, text, ANNOUNCE)
}

/// It answers at neither.
fn unreached(announced: SocketAddr, server: IpAddr, obstacle: &Obstacle) -> Step {
    let (ip, server) = (announced.ip(), server.to_canonical());
    let port = announced.port();
    let text = format!(
        "the server at {server} announces {announced}: {}; port {port} of {server} does not answer either",
        obstacle.text()
    );
    let cure = if is_private(ip) && !is_private(server) {
        format!(
            "{ip} is a private address that only the site's own network reaches: {ANNOUNCE}, and open its data port range to this host"
        )
    } else {
        format!("either {ip} is wrong: {ANNOUNCE}; or a firewall {} it: {OPEN_RANGE}", obstacle.does())
    };
    Step::bad(TO_SERVER, text, cure)
}

/// What others will think of an address that differs from the server's, though it can be used from here.
fn announced_address(announced: IpAddr, server: IpAddr) -> Option<Step> {
    let (ip, server) = (announced.to_canonical(), server.to_canonical());
    if ip == server {
        return None;
    }
    if ip.is_loopback() || ip.is_unspecified() {
        let text = format!(
            "the server at {server} announces {ip}, which every host takes for itself; copies from server to server fail"
        );
        return Some(Step::bad(ANNOUNCED, text, ANNOUNCE));
    }
    if is_private(ip) && !is_private(server) {
        let text =
            format!("the server at {server} announces {ip}, a private address that only its own network reaches");
        return Some(Step::bad(ANNOUNCED, text, ANNOUNCE));
    }
    Some(Step::ok(ANNOUNCED, format!("differs from the server's: {ip} instead of {server}")))
}

/// Whether an address is known in one network only (RFC 1918 §3, RFC 3927 §2, RFC 6598 §7, RFC 4193 §3).
fn is_private(ip: IpAddr) -> bool {
    match ip.to_canonical() {
        IpAddr::V4(ip) => {
            let [a, b, ..] = ip.octets();
            ip.is_private() || ip.is_link_local() || ip.is_loopback() || (a == 100 && b & 0xc0 == 64)
        }
        IpAddr::V6(ip) => ip.is_loopback() || ip.is_unicast_link_local() || ip.is_unique_local(),
    }
}

/// Proven and encrypted where the login was with certificates.
fn params(certified: Option<&Certified>) -> DataParams {
    DataParams { shield: Certified::shield(certified), ..DataParams::default() }
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

async fn fetch(remote: &mut Remote, asked: &Check<'_>, mut stream: DataStream) -> Result<usize, Fault> {
    let id = remote.submit(listing(asked.path, remote))?;
    remote.flush().await?;
    let read = timeout(asked.patience, read_all(&mut stream));
    let finish = remote.finish(id);
    tokio::pin!(read, finish);
    let (read, done) = tokio::select! {
        biased;
        read = &mut read => (read, finish.await),
        done = &mut finish => match done {
            // Nothing will come over the connection.
            Err(fault) if !is_of_network(&fault) => return Err(fault),
            done => (read.await, done),
        },
    };
    whose_word(in_time(read), Some(done))
}

async fn read_all(stream: &mut DataStream) -> Result<usize, Fault> {
    let mut text = Vec::new();
    while stream.read(&mut text).await? {}
    Ok(text.len())
}

/// From the server to here: downloads with several channels.
pub(super) async fn active(remote: &mut Remote, asked: &Check<'_>) -> Vec<Step> {
    let (server, here) = remote.addresses();
    let told = asked.local.data_address.filter(|ip| ip.is_ipv4() == here.ip().to_canonical().is_ipv4());
    let told = told.filter(|ip| *ip != here.ip());
    let (step, at) = called(remote, asked, told.unwrap_or(here.ip())).await;
    if step.ok {
        return vec![step];
    }
    let Some(at) = at else { return vec![step] };
    if told.is_none() {
        return vec![not_reached(step, at, server.ip(), asked)];
    }
    // The server may try that address for a while yet, and until then it hears nothing.
    let again = match Remote::dial(asked.target, asked.session, &[]).await {
        Ok((mut again, _)) => called(&mut again, asked, here.ip()).await.0,
        Err(fault) => Step::bad(FROM_SERVER, fault.to_string(), fault.code.explain().cure),
    };
    if !again.ok {
        return vec![not_reached(step, at, server.ip(), asked)];
    }
    let text = format!("{}; at this host's own address {} it does", step.text, here.ip());
    let cure =
        format!("GLOBUS_FTP_CLIENT_DATA_IP is wrong for this server: unset it, or correct it (it is {})", at.ip());
    vec![Step::bad(TOLD, text, cure), again]
}

/// The server cannot reach an address of this host.
fn not_reached(step: Step, at: SocketAddr, server: IpAddr, asked: &Check<'_>) -> Step {
    let ports = match asked.local.data_ports {
        Some((low, high)) => format!("let connections from {server} to ports {low}-{high} through"),
        None => format!("open a port range to {server}, and set GLOBUS_TCP_PORT_RANGE"),
    };
    let translated = match asked.local.data_address {
        Some(ip) if ip == at.ip() => format!("correct GLOBUS_FTP_CLIENT_DATA_IP, which is {ip}"),
        _ => "set GLOBUS_FTP_CLIENT_DATA_IP if the address is translated".to_owned(),
    };
    let cure = format!(
        "a firewall or address translation in front of this host, or a firewall that keeps the server from connecting out: {ports}, and {translated}; downloads fall back to one passive channel until then"
    );
    Step { cure: Some(cure), ..step }
}

/// Has the server connect to this host, at an address; with what was told it, where no connection came.
async fn called(remote: &mut Remote, asked: &Check<'_>, ip: IpAddr) -> (Step, Option<SocketAddr>) {
    let bad = |text: String, cure: &str| (Step::bad(FROM_SERVER, text, cure), None);
    let (_, here) = remote.addresses();
    let listening = async {
        let listener = listen(here.ip(), asked.local.data_ports).await?;
        Ok::<_, io::Error>((listener.local_addr()?.port(), listener))
    };
    let (port, listener) = match listening.await {
        Ok(listening) => listening,
        Err(error) => return bad(no_port(&error, asked), "free a port, or widen GLOBUS_TCP_PORT_RANGE"),
    };
    let certified = match remote.certified() {
        Ok(certified) => certified,
        Err(fault) => return bad(fault.to_string(), fault.code.explain().cure),
    };
    let told = SocketAddr::new(ip, port);
    let op = Op::Active { targets: vec![told], params: params(certified.as_ref()) };
    if let Err(fault) = remote.run(op).await {
        let cure = "the server takes no such data address: where this host's is translated, copies use passive streams; the site may allow others (whimbrel dtn: --allow-third-party)";
        return bad(format!("{told}: {fault}"), cure);
    }
    let started = match remote.submit(listing(asked.path, remote)) {
        Ok(id) => id,
        Err(fault) => return bad(fault.to_string(), "name a path without line breaks"),
    };
    match answered(remote, started, listener, certified.as_ref(), asked.patience).await {
        Call::Came(Ok(bytes)) => (Step::ok(FROM_SERVER, format!("a listing of {bytes} bytes came to {told}")), None),
        Call::Came(Err(fault)) => bad(format!("the server reaches {told}, but: {fault}"), fault.code.explain().cure),
        Call::Declined(fault) => bad(format!("the server does not try to connect: {fault}"), fault.code.explain().cure),
        Call::Missed(why) => {
            let why = why.map(|fault| format!("; the server says: {fault}")).unwrap_or_default();
            (Step::bad(FROM_SERVER, format!("the server does not reach {told}{why}"), ""), Some(told))
        }
    }
}

/// What became of a server's connection to here.
enum Call {
    /// It stood; what came over it.
    Came(Result<usize, Fault>),
    /// The server has another reason than the network.
    Declined(Fault),
    /// It did not come; what the server says.
    Missed(Option<Fault>),
}

/// Waits for a connection and for the server's word about it, whichever ends first.
async fn answered(
    remote: &mut Remote,
    started: OpId,
    listener: TcpListener,
    certified: Option<&Certified>,
    patience: Duration,
) -> Call {
    let accept = timeout(patience, listener.accept());
    let finish = remote.finish(started);
    tokio::pin!(accept, finish);
    let (stream, said) = tokio::select! {
        biased;
        accepted = &mut accept => (accepted, None),
        said = &mut finish => match said {
            Err(fault) if is_of_network(&fault) => return Call::Missed(Some(fault)),
            Err(fault) => return Call::Declined(fault),
            Ok(outcome) => (accept.await, Some(outcome)),
        },
    };
    let Ok(stream) = stream else { return Call::Missed(None) };
    let read = async {
        let (stream, _) = stream.map_err(|error| Fault::from_io(error, "accept a data connection"))?;
        read_all(&mut DataStream::new(stream, certified, true)?).await
    };
    let read = timeout(patience, read);
    if said.is_some() {
        return Call::Came(in_time(read.await));
    }
    tokio::pin!(read);
    let read = tokio::select! {
        biased;
        read = &mut read => in_time(read),
        said = &mut finish => match said {
            // Nothing will come over the connection.
            Err(fault) if !is_of_network(&fault) => return Call::Came(Err(fault)),
            said => return Call::Came(whose_word(in_time(read.await), Some(said))),
        },
    };
    Call::Came(whose_word(read, timeout(patience, finish).await.ok()))
}

fn in_time(read: Result<Result<usize, Fault>, Elapsed>) -> Result<usize, Fault> {
    read.unwrap_or_else(|_| Err(Fault::new(FaultCode::TimedOut, "read listing")))
}

/// What the peer does wrong here is known better than the server's word that the connection broke.
fn whose_word(read: Result<usize, Fault>, said: Option<Result<Outcome, Fault>>) -> Result<usize, Fault> {
    match (read, said) {
        (Err(fault), _) if fault.side == Some(Side::Peer) => Err(fault),
        (_, Some(Err(fault))) => Err(fault),
        (read, _) => read,
    }
}

/// Whether a server's refusal is about the connection and not about what it was to send.
fn is_of_network(fault: &Fault) -> bool {
    matches!(
        fault.code,
        FaultCode::ConnectionRefused | FaultCode::HostUnreachable | FaultCode::TimedOut | FaultCode::ConnectionLost
    )
}

fn no_port(error: &io::Error, asked: &Check<'_>) -> String {
    match asked.local.data_ports {
        Some((low, high)) => format!("no port of {low}-{high} to listen on: {error}"),
        None => format!("no port to listen on: {error}"),
    }
}

async fn listen(ip: IpAddr, ports: Option<(u16, u16)>) -> io::Result<TcpListener> {
    let (low, high) = ports.unwrap_or((0, 0));
    let mut last = None;
    for port in low..=high {
        match TcpListener::bind((ip, port)).await {
            Ok(listener) => return Ok(listener),
            Err(error) => last = Some(error),
        }
    }
    Err(last.unwrap_or_else(|| io::ErrorKind::AddrInUse.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(announced: &str, server: &str) -> Option<bool> {
        announced_address(announced.parse().unwrap(), server.parse().unwrap()).map(|step| step.ok)
    }

    #[test]
    fn addresses_that_others_cannot_reach_are_named() {
        assert_eq!(judged("127.0.0.1", "192.0.2.1"), Some(false));
        for private in ["10.1.2.3", "172.31.0.1", "169.254.1.1", "100.127.0.1"] {
            assert_eq!(judged(private, "192.0.2.1"), Some(false), "{private}");
        }
        assert_eq!(judged("fd00::1", "2001:db8::1"), Some(false));
        for public in ["192.0.2.9", "100.128.0.1", "172.32.0.1"] {
            assert_eq!(judged(public, "192.0.2.1"), Some(true), "{public}");
        }
        assert_eq!(judged("192.0.2.1", "192.0.2.1"), None);
        assert_eq!(judged("192.0.2.1", "::ffff:192.0.2.1"), None);
    }

    #[test]
    fn a_second_network_of_a_private_site_is_no_fault() {
        assert_eq!(judged("10.2.0.1", "10.1.0.1"), Some(true));
    }

    #[test]
    fn a_refusal_of_what_was_to_be_listed_is_no_firewall() {
        assert!(!is_of_network(&Fault::new(FaultCode::NotFound, "list")));
        assert!(is_of_network(&Fault::new(FaultCode::ConnectionLost, "list")));
    }
}
