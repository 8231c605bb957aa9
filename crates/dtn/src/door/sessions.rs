//! Sessions with this server's own control port, each logged in with the token of one user.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use whimbrel_engine::{Fault, FaultCode, Side};
use whimbrel_proto::mlsx;
use whimbrel_proto::op::{Op, Outcome};
use whimbrel_trust::pins::Fingerprint;

use super::{OP, Settings};
use crate::client::Token;
use crate::client::end::ends_session;
use crate::client::remote::Remote;
use crate::client::security::{Security, Trust};
use crate::client::target::{SessionOptions, Target};

/// Sessions kept that have no work.
const KEPT: usize = 32;

/// How long one is kept: a server ends idle ones later.
const IDLE: Duration = Duration::from_secs(30);

/// Token and account.
type Login = (String, Option<String>);

/// A session that has no work.
struct Idle {
    login: Login,
    since: Instant,
    remote: Remote,
}

/// All sessions.
pub(super) struct Sessions {
    target: Target,
    options: SessionOptions,
    idle: Mutex<Vec<Idle>>,
}

/// A session in use. Dropped, it is closed, and what it does ends; whole transfers give it back.
pub(super) struct Session {
    pub(super) remote: Remote,
    login: Login,
    home: Arc<Sessions>,
}

/// What is at a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) is_directory: bool,
    pub(super) size: u64,
    /// Seconds and nanoseconds.
    pub(super) modified: (i64, u32),
}

impl Sessions {
    pub(super) fn new(settings: &Settings) -> Result<Arc<Self>, Fault> {
        let keys = Fingerprint::parse(&settings.pin).into_iter().collect();
        let control = Target::anonymous(settings.control.ip().to_string(), settings.control.port());
        let target = Target { security: Security::Tls, keys, ..control };
        // Nothing that lies about here is anybody's.
        let trust = Trust::default().named_only();
        let label = Some("https".to_owned());
        let options = SessionOptions { trust, label, ..SessionOptions::default() };
        Ok(Arc::new(Self { target, options, idle: Mutex::default() }))
    }

    /// A session that is logged in with a token, perhaps as a certain account, and what is at a path there; `None`: nothing.
    pub(super) async fn look(
        self: &Arc<Self>,
        (token, account): (&str, Option<&str>),
        path: &[u8],
    ) -> Result<(Session, Option<Found>), Fault> {
        let login = (token.to_owned(), account.map(str::to_owned));
        if let Some(mut session) = self.take(&login) {
            match session.find(path).await {
                // It was closed meanwhile.
                Err(fault) if ends_session(&fault) => {}
                found => return found.map(|found| (session, found)),
            }
        }
        let target = Target { token: Some(Token::new(token)?), user: login.1.clone(), ..self.target.clone() };
        let (remote, _) = Remote::dial(&target, &self.options, &[]).await?;
        let mut session = Session { remote, login, home: self.clone() };
        let found = session.find(path).await?;
        Ok((session, found))
    }

    fn take(self: &Arc<Self>, login: &Login) -> Option<Session> {
        let mut idle = self.idle.lock().expect("nothing panics with it");
        idle.retain(|idle| idle.since.elapsed() < IDLE);
        // The youngest: it lives most probably.
        let at = idle.iter().rposition(|idle| idle.login == *login)?;
        let Idle { remote, login, .. } = idle.remove(at);
        Some(Session { remote, login, home: self.clone() })
    }
}

impl Session {
    async fn find(&mut self, path: &[u8]) -> Result<Option<Found>, Fault> {
        let line = match self.remote.run(Op::Facts { path: path.to_vec(), facts: None }).await {
            Ok(Outcome::Line(line)) => line,
            Ok(_) => return Ok(None),
            Err(fault) if fault.code == FaultCode::NotFound => return Ok(None),
            Err(fault) => return Err(fault),
        };
        let told = mlsx::Entry::parse(&line).map_err(|_| {
            let fault = Fault::new(FaultCode::PeerMisbehaved, OP).on_path(path).side(Side::Us);
            fault.detail(String::from_utf8_lossy(&line))
        })?;
        use mlsx::EntryKind as K;
        Ok(Some(Found {
            is_directory: matches!(told.kind, Some(K::Dir | K::Current | K::Parent)),
            size: told.size.unwrap_or(0),
            modified: told.modify.map_or((0, 0), |time| (time.secs, time.nanos)),
        }))
    }

    /// Gives it back, with nothing under way.
    pub(super) fn keep(self) {
        let Self { remote, login, home } = self;
        let mut idle = home.idle.lock().expect("nothing panics with it");
        if idle.len() >= KEPT {
            idle.remove(0);
        }
        idle.push(Idle { login, since: Instant::now(), remote });
    }
}
