//! The process that talks to the service: it can make connections and nothing else.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, Write as _};
use std::os::fd::AsFd as _;
use std::time::{Duration, Instant};

use serde::Deserialize;
use serde_json::{Value, json};
use whimbrel_engine::{Fault, FaultCode, Side};
use whimbrel_proto::server::Secret;
use whimbrel_proto::token::http::{Answer, HttpsUrl};
use whimbrel_sys::poll::{self, PollFd, PollFlags};
use whimbrel_sys::signals::{Signal, SignalQueue};

use super::{Errand, Membership, OP, Question};
use crate::confine::{self, Needs};
use crate::https::Https;
use crate::parent;

/// Time for one exchange with the service.
pub(super) const LIMIT: Duration = Duration::from_secs(15);

/// Longest answer of the service, bytes.
const MOST_DOCUMENT: usize = 32 << 10;

/// Signs of life are never further apart, seconds.
const SLOWEST: u32 = 3600;

/// Where servers register, below the service's URL.
const SERVERS: &str = "/v2/whimbrel/servers";

/// Does the errand on standard input.
///
/// # Errors
/// It is none, or this process cannot be confined.
pub fn serve_standard_input() -> Result<(), Fault> {
    let failed = |error| Fault::from_io(error, OP).side(Side::Us);
    parent::end_with_parent()?;
    // The token or the secret of this server.
    confine::keep_secrets()?;
    let signals = SignalQueue::new().map_err(failed)?;
    let mut question = Vec::new();
    io::stdin().lock().read_to_end(&mut question).map_err(failed)?;
    let question: Question = postcard::from_bytes(&question)
        .map_err(|_| Fault::new(FaultCode::InvalidArgument, OP).detail("only `whimbrel dtn` starts it"))?;
    // Opened while files can be: afterwards it is only read.
    let load = File::open("/proc/loadavg").ok();
    confine::enter(&Needs::fetch(), question.sandbox)?;
    match &question.errand {
        Errand::Register(token) => {
            let answer = postcard::to_stdvec(&question.register(token)).expect("texts can always be written");
            io::stdout().lock().write_all(&answer).map_err(failed)
        }
        Errand::Stay(membership) => question.stay(membership, &signals, load),
    }
}

/// What the service answers to a registration.
#[derive(Deserialize)]
struct Registered {
    server_id: String,
    secret: String,
    issuer: String,
    audience: String,
    #[serde(default = "usual_interval")]
    interval: u32,
}

fn usual_interval() -> u32 {
    10
}

impl Question {
    fn register(&self, token: &Secret) -> Result<Membership, Fault> {
        let answer = self.post(SERVERS, &token.0, &self.description())?;
        let read: Registered = serde_json::from_slice(&answer).map_err(|error| {
            self.fault(FaultCode::PeerMisbehaved, format!("its answer is no registration: {error}"))
        })?;
        Ok(Membership {
            service: self.service.clone(),
            server: read.server_id,
            secret: Secret(read.secret.into_bytes()),
            issuer: read.issuer,
            audience: read.audience,
            interval: read.interval.clamp(1, SLOWEST),
        })
    }

    fn description(&self) -> Value {
        json!({"addresses": self.about.addresses, "pin": self.about.pin, "version": self.about.version,
               "name": self.about.name, "https": self.about.https, "outbound": self.about.outbound,
               "relay": self.about.relay})
    }

    /// Tells of this server until the monitor ends.
    fn stay(&self, membership: &Membership, signals: &SignalQueue, mut load: Option<File>) -> Result<(), Fault> {
        let failed = |error| Fault::from_io(error, OP).side(Side::Us);
        let path = format!("{SERVERS}/{}/beat", membership.server);
        let (mut draining, mut in_trouble) = (false, false);
        loop {
            let mut beat = self.description();
            beat["draining"] = draining.into();
            beat["load"] = load.as_mut().and_then(read_load).into();
            let told = self.post(&path, &membership.secret.0, &beat);
            match &told {
                Ok(_) if in_trouble => {
                    tracing::info!(service = self.service, "the service is told of this server again")
                }
                // A time of trouble is spoken of once.
                Err(fault) if !in_trouble => tracing::warn!(%fault, "the service is not told of this server"),
                _ => {}
            }
            in_trouble = told.is_err();
            let until = Instant::now() + Duration::from_secs(membership.interval.into());
            draining |= told_to_drain(signals, until).map_err(failed)?;
        }
    }

    fn post(&self, path: &str, bearer: &[u8], document: &Value) -> Result<Vec<u8>, Fault> {
        let service = HttpsUrl::parse(self.service.trim_end_matches('/'));
        let base = service.as_ref().map_or("", |place| place.path().trim_end_matches('/'));
        let place = service.as_ref().and_then(|place| place.at(&format!("{base}{path}")));
        let bearer = std::str::from_utf8(bearer).unwrap_or_default();
        let request = place.as_ref().and_then(|place| place.post(bearer, document.to_string().as_bytes()));
        let (Some(place), Some(request)) = (place, request) else {
            return Err(self.fault(FaultCode::InvalidArgument, "the URL or the token cannot be used"));
        };
        let https = Https::new(OP, self.authorities.as_deref(), Instant::now() + LIMIT)?;
        match https.ask(&place, &request, MOST_DOCUMENT)? {
            Answer::Document(document) => Ok(document),
            Answer::Moved(_) => Err(self.fault(FaultCode::PeerMisbehaved, "the service sends us elsewhere")),
            Answer::Status(status @ (401 | 403)) => Err(self.fault(
                FaultCode::NotAuthorized,
                format!("it answered {status}: the token is not, or no longer, good"),
            )),
            Answer::Status(status @ 500..) => Err(self.fault(FaultCode::ServerBusy, format!("it answered {status}"))),
            Answer::Status(status) => Err(self.fault(FaultCode::PeerMisbehaved, format!("it answered {status}"))),
        }
    }

    fn fault(&self, code: FaultCode, detail: impl Into<String>) -> Fault {
        Fault::new(code, OP).side(Side::Service).subject(&self.service).detail(detail)
    }
}

/// Waits until a point in time, or for the order to drain: whether that came.
fn told_to_drain(signals: &SignalQueue, until: Instant) -> io::Result<bool> {
    loop {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(false);
        }
        poll::wait(&mut [PollFd::from_borrowed_fd(signals.as_fd(), PollFlags::IN)], Some(left))?;
        if let Some(Signal::Terminate) = signals.next()? {
            return Ok(true);
        }
    }
}

/// The first number of `/proc/loadavg`: runnable tasks, averaged over a minute.
fn read_load(file: &mut File) -> Option<f64> {
    let mut text = String::new();
    file.rewind().ok()?;
    file.read_to_string(&mut text).ok()?;
    text.split(' ').next()?.parse().ok()
}
