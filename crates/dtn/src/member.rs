//! A server's place in a managed service: how it registers, what it then believes, and that it tells of itself.
//!
//! Three parts, as everywhere here: the monitor keeps the files and starts programs; a confined process of its own talks to
//! the service, first once to register, then for as long as the monitor lives; the front learns only whose tokens to take.

mod files;
mod talk;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::path::Path;
use std::process::{Child, ExitStatus, Stdio};

use serde::{Deserialize, Serialize};
use whimbrel_engine::{Fault, FaultCode, Side};
use whimbrel_proto::server::Secret;
use whimbrel_proto::token::http::HttpsUrl;

use crate::caller;
use crate::confine::Sandbox;
use crate::door;
use crate::front::certificate::CertificateFiles;
use crate::front::config::{DtnConfig, IssuerConfig, JoinConfig, ProofKind, TlsConfig};
use crate::helper::Helper;
use crate::monitor::jobs::{self, Order};
use crate::monitor::keeper::{account, is_root};
use crate::monitor::listeners::Bound;
use crate::packets::Channel;
use crate::relay;
use crate::small;

pub use talk::serve_standard_input;

use files::StateFiles;

const OP: &str = "join the service";

const TALKER: Helper = Helper { command: "dtn-member", op: OP };

/// Largest file of authorities, bytes.
const MOST_AUTHORITIES: u64 = 256 << 10;

/// Largest token file, bytes.
const MOST_TOKEN: u64 = 16 << 10;

/// Longest answer of the process that registers, bytes.
const MOST_ANSWER: usize = 64 << 10;

/// What the service gave a server.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Membership {
    /// The service it is of: its URL as it was configured.
    service: String,
    /// The server's number there.
    server: String,
    /// What proves that it is this server.
    secret: Secret,
    /// Whose tokens it takes.
    issuer: String,
    /// What such a token has to name.
    audience: String,
    /// Seconds between two signs of life.
    interval: u32,
}

/// What a server tells of itself.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct About {
    /// Where it is reached.
    addresses: Vec<String>,
    /// The fingerprint of its certificate's key.
    pin: String,
    /// Of the program.
    version: String,
    /// The host's own name, for people.
    name: String,
    /// Where it serves collections over HTTPS, if it does.
    https: Option<String>,
    /// Whether it takes no connections, and leaves some with the service.
    outbound: bool,
    /// Whether it joins data connections of others.
    relay: bool,
}

/// What the talking process is told.
#[derive(Debug, Serialize, Deserialize)]
struct Question {
    service: String,
    authorities: Option<Vec<u8>>,
    about: About,
    errand: Errand,
    sandbox: Sandbox,
}

#[derive(Debug, Serialize, Deserialize)]
enum Errand {
    /// Register with this token, once, and answer with a [`Membership`].
    Register(Secret),
    /// Tell of itself, now and then.
    Stay(Membership),
}

/// The processes that belong to the place in a service.
#[derive(Debug)]
pub(crate) struct Member {
    /// Tells the service of this server.
    talker: Child,
    /// Serves collections over HTTPS.
    door: Option<Child>,
    /// Makes connections, where none are taken.
    caller: Option<Child>,
    /// Joins data connections of others.
    relay: Option<Child>,
    draining: bool,
}

/// Registers the server if it is to join a service, and gives the configuration with which it then serves.
///
/// # Errors
/// The service refuses, or cannot be reached by a server that is not registered yet; files that cannot be kept.
pub(crate) fn enter(config: &DtnConfig, program: &Path, bound: &Bound) -> Result<(DtnConfig, Option<Member>), Fault> {
    let Some(join) = &config.join else { return Ok((config.clone(), None)) };
    join.place()?;
    // Before the token is used up.
    let accounts = accounts_of(join, config)?;
    let files = StateFiles::at(join.state.as_deref())?;
    let mut config = DtnConfig { tls: Some(tls(config, join, &files)?), ..config.clone() };
    let question = |errand| -> Result<Question, Fault> {
        let read = |path: &Path| small::read(path, OP, MOST_AUTHORITIES);
        Ok(Question {
            service: join.service.clone(),
            authorities: join.authorities.as_deref().map(read).transpose()?,
            about: about(&config, join, bound)?,
            errand,
            sandbox: config.sandbox,
        })
    };
    let membership = match files.membership()?.filter(|known| known.service == join.service) {
        Some(known) => known,
        None => {
            let membership = register(program, &question(Errand::Register(token(join)?))?)?;
            files.keep(&membership)?;
            membership
        }
    };
    let talker = stay(program, &question(Errand::Stay(membership.clone()))?)?;
    let door = bound.https.as_ref().map(|listener| open_door(&config, join, &membership, bound, listener, program));
    let calls = bound.calls.as_ref();
    let caller = calls.map(|calls| open_caller(&config, join, &membership, &calls.caller, program)).transpose()?;
    let relay = bound.relay.as_ref();
    let relay = relay
        .map(|joins| relay::start(program, &joins.listener, (&joins.front, &joins.relay), nobody()?, config.sandbox));
    let member = Member { talker, door: door.transpose()?, caller, relay: relay.transpose()?, draining: false };
    config.tokens.get_or_insert_default().issuer.push(IssuerConfig {
        url: membership.issuer.clone(),
        audience: vec![membership.audience.clone()],
        authorities: join.authorities.clone(),
        accounts,
        ..IssuerConfig::default()
    });
    Ok((config, Some(member)))
}

/// The certificate that the server shows: the administrator's, or one of its own, which the service vouches for.
fn tls(config: &DtnConfig, join: &JoinConfig, files: &StateFiles) -> Result<TlsConfig, Fault> {
    match &config.tls {
        Some(tls) => Ok(tls.clone()),
        None => {
            let https = join.https_url.as_deref().and_then(HttpsUrl::parse);
            let (certificate, key) =
                files.certificate(&[host_name(), https.map_or_else(String::new, |url| url.host().to_owned())])?;
            Ok(TlsConfig { certificate, key, ..TlsConfig::default() })
        }
    }
}

fn token(join: &JoinConfig) -> Result<Secret, Fault> {
    let text = match (&join.token, &join.token_file) {
        (Some(token), _) => token.clone().into_bytes(),
        (None, Some(file)) => small::read(file, OP, MOST_TOKEN)?,
        (None, None) => {
            let fault = Fault::new(FaultCode::CredentialMissing, OP).subject(&join.service).side(Side::Us);
            return Err(fault.detail("this server is not registered there yet: give --token, or token_file in [join]"));
        }
    };
    Ok(Secret(text.trim_ascii().to_vec()))
}

fn about(config: &DtnConfig, join: &JoinConfig, bound: &Bound) -> Result<About, Fault> {
    let name = host_name();
    let addresses = match join.addresses.is_empty() {
        false => join.addresses.clone(),
        true => {
            bound.control.iter().filter_map(|listener| url("whimbrel", listener.local_addr().ok()?, &name)).collect()
        }
    };
    let https = bound.https.as_ref().and_then(|listener| url("https", listener.local_addr().ok()?, &name));
    let tls = config.tls.as_ref().expect("it was made where there was none");
    let pin = files::fingerprint(&tls.certificate)?;
    let https = join.https_url.clone().filter(|_| bound.https.is_some()).or(https);
    let version = env!("CARGO_PKG_VERSION").to_owned();
    Ok(About { addresses, pin, version, name, https, outbound: bound.calls.is_some(), relay: bound.relay.is_some() })
}

fn host_name() -> String {
    String::from_utf8_lossy(rustix::system::uname().nodename().to_bytes()).into_owned()
}

/// Starts the process that serves collections over HTTPS.
fn open_door(
    config: &DtnConfig,
    join: &JoinConfig,
    membership: &Membership,
    bound: &Bound,
    listener: &TcpListener,
    program: &Path,
) -> Result<Child, Fault> {
    let tls = config.tls.as_ref().expect("it was made where there was none");
    let control = bound.control.iter().find_map(|listener| listener.local_addr().ok());
    let control = control.ok_or_else(|| Fault::new(FaultCode::InvalidArgument, OP).side(Side::Us))?;
    door::start(
        program,
        listener,
        nobody()?,
        &door::Settings {
            service: join.service.clone(),
            authorities: join.authorities.as_deref().map(|path| small::read(path, OP, MOST_AUTHORITIES)).transpose()?,
            server: membership.server.clone(),
            secret: membership.secret.clone(),
            issuer: membership.issuer.clone(),
            endpoint: membership.audience.clone(),
            certificate: CertificateFiles::of_tls(tls)?,
            pin: files::fingerprint(&tls.certificate)?,
            control: reached(control),
            encrypt_data: config.encrypt_data,
            sandbox: config.sandbox,
        },
    )
}

/// Starts the process that makes connections.
fn open_caller(
    config: &DtnConfig,
    join: &JoinConfig,
    membership: &Membership,
    channel: &Channel,
    program: &Path,
) -> Result<Child, Fault> {
    let settings = caller::Settings {
        service: join.service.clone(),
        authorities: join.authorities.as_deref().map(|path| small::read(path, OP, MOST_AUTHORITIES)).transpose()?,
        server: membership.server.clone(),
        secret: membership.secret.clone(),
        sandbox: config.sandbox,
    };
    caller::start(program, channel, nobody()?, &settings)
}

/// Where a listening socket is reached from this host.
fn reached(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => IpAddr::from(Ipv4Addr::LOCALHOST),
        IpAddr::V6(ip) if ip.is_unspecified() => IpAddr::from(Ipv6Addr::LOCALHOST),
        ip => ip,
    };
    SocketAddr::new(ip, address.port())
}

/// Under which URL a listening socket is reached; `None`: nobody knows the host's name.
fn url(scheme: &str, address: SocketAddr, name: &str) -> Option<String> {
    match address.ip().is_unspecified() {
        false => Some(format!("{scheme}://{address}")),
        true if name.is_empty() => None,
        true => Some(format!("{scheme}://{name}:{}", address.port())),
    }
}

/// The accounts of everybody whom the service sends; empty where `mapping` says.
///
/// # Errors
/// `InvalidArgument`: root has started it, and nothing says whose rights such users have.
fn accounts_of(join: &JoinConfig, config: &DtnConfig) -> Result<Vec<String>, Fault> {
    if config.maps(ProofKind::Token) || !join.accounts.is_empty() {
        return Ok(join.accounts.clone());
    }
    if is_root() {
        let fault = Fault::new(FaultCode::InvalidArgument, OP).subject(&join.service).side(Side::Us);
        return Err(fault.detail(
            "started by root it has to be told whose rights users of the service have here: --join-account NAME, \
             accounts = [\"NAME\"] in [join], or mapping = [\"FILE\"]",
        ));
    }
    let own = whimbrel_sys::accounts::record_of(rustix::process::geteuid().as_raw());
    let own = own.map_err(|error| Fault::from_io(error, "look up account").side(Side::Us))?;
    Ok(own.map(|record| record.name).into_iter().collect())
}

fn register(program: &Path, question: &Question) -> Result<Membership, Fault> {
    let answer = jobs::run(Order {
        op: OP,
        program: program.to_owned(),
        arguments: vec!["dtn-member".to_owned()],
        question: postcard::to_stdvec(question).expect("texts can always be written"),
        account: nobody()?,
        most: MOST_ANSWER,
        limit: talk::LIMIT * 2,
    })?;
    let read = postcard::from_bytes::<Result<Membership, Fault>>(&answer);
    read.map_err(|error| Fault::new(FaultCode::Internal, OP).side(Side::Us).detail(error.to_string()))?
}

fn stay(program: &Path, question: &Question) -> Result<Child, Fault> {
    TALKER.start_with(program, Stdio::null(), nobody()?, question)
}

/// The account without rights that talks to the service; `None`: this process' own.
fn nobody() -> Result<Option<crate::monitor::keeper::Account>, Fault> {
    is_root().then(|| account("nobody")).transpose()
}

impl Member {
    /// Has the service told that nothing new is to begin here, and begins nothing new over HTTPS.
    pub(crate) fn drain(&mut self) {
        self.draining = true;
        for child in std::iter::once(&self.talker).chain(&self.door).chain(&self.caller).chain(&self.relay) {
            let pid = i32::try_from(child.id()).ok().and_then(rustix::process::Pid::from_raw);
            // It may have ended; then the service finds out by itself.
            let _gone = pid.map(|pid| rustix::process::kill_process(pid, rustix::process::Signal::TERM));
        }
    }

    /// How the process that talks to the service, or serves HTTPS, or makes or joins connections, has ended, if one has and was not told to.
    pub(crate) fn one_ended(&mut self) -> std::io::Result<Option<ExitStatus>> {
        if self.draining {
            return Ok(None);
        }
        let ended = |child: &mut Option<Child>| child.as_mut().map_or(Ok(None), Child::try_wait);
        // Without that which talks to it the service takes the server for gone.
        Ok(self.talker.try_wait()?.or(ended(&mut self.door)?).or(ended(&mut self.caller)?).or(ended(&mut self.relay)?))
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        let others = [&mut self.door, &mut self.caller, &mut self.relay];
        for child in std::iter::once(&mut self.talker).chain(others.into_iter().flatten()) {
            // It may have ended already.
            let _ended = child.kill().and_then(|()| child.wait());
        }
    }
}
