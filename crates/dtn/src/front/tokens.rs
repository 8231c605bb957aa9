//! Logins with bearer tokens: judged here by keys that somebody else fetches.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;
use whimbrel_engine::{Fault, FaultCode, Side};
use whimbrel_proto::rules::{LoginRules, PathRules};
use whimbrel_proto::server::Secret;
use whimbrel_proto::token::judge::{Grant, Issuer};
use whimbrel_trust::TrustFault;
use whimbrel_trust::clock::now;
use whimbrel_trust::token::{TokenJudge, Verdict};

use super::gate::Gate;
use crate::monitor::message::Claim;

const OP: &str = "log in with a token";

/// A managed service's claim: most bytes a second of its transfers, in decimal digits.
const RATE: &str = "whimbrel.rate";

/// Ends of fetches that one login waits for, its own issuer's or another's.
const PATIENCE: usize = 8;

/// Keys that are on their way.
type Coming = Pin<Box<dyn Future<Output = Result<Vec<u8>, Fault>> + Send>>;

/// The accepted issuers and their keys.
pub struct Tokens {
    judge: Mutex<TokenJudge>,
    /// Fetches the keys of an issuer.
    keys: Box<dyn Fn(usize) -> Coming + Send + Sync>,
    /// Seconds since 1970.
    clock: Box<dyn Fn() -> i64 + Send + Sync>,
    /// How many fetches have ended.
    ended: watch::Sender<u64>,
}

/// What a good token leads to.
#[derive(Debug)]
pub struct Accepted {
    /// For the question which account it is.
    pub claim: Claim,
    /// What the login may do, and until when.
    pub rules: LoginRules,
}

impl Tokens {
    /// Issuers without keys yet, in the order of the configuration.
    pub fn new(issuers: &[Issuer], gate: Arc<Gate>) -> Self {
        let keys = move |issuer| -> Coming {
            let gate = gate.clone();
            Box::pin(async move { gate.keys(issuer).await })
        };
        Self::with(issuers, Box::new(keys), Box::new(|| now().secs))
    }

    fn with(
        issuers: &[Issuer],
        keys: Box<dyn Fn(usize) -> Coming + Send + Sync>,
        clock: Box<dyn Fn() -> i64 + Send + Sync>,
    ) -> Self {
        let judge = Mutex::new(TokenJudge::new(issuers.iter().cloned()));
        Self { judge, keys, clock, ended: watch::channel(0).0 }
    }

    /// Whether what came as a password is a token, of whomever.
    pub fn is_token(text: &Secret) -> bool {
        TokenJudge::is_token(&text.0)
    }

    /// Judges a token, with new keys if it needs them.
    ///
    /// # Errors
    /// `CredentialRejected` or `CredentialExpired`, saying which and why; `ServerBusy` if nobody can tell now.
    pub async fn judge(self: &Arc<Self>, token: &Secret) -> Result<Accepted, Fault> {
        let refused = |fault: TrustFault| fault.into_fault(OP, Side::Peer);
        // Keys that still serve are renewed while they do.
        let due = self.lock().due((self.clock)());
        for issuer in due {
            self.fetch(issuer);
        }
        let mut ended = self.ended.subscribe();
        for _ in 0..PATIENCE {
            ended.borrow_and_update();
            let verdict = self.lock().judge(&token.0, (self.clock)());
            match verdict {
                Verdict::Granted { issuer, grant } => {
                    let issuer = self.lock().issuer(issuer).unwrap_or_default().to_owned();
                    return Ok(accepted(issuer, grant));
                }
                Verdict::Refused(fault) => return Err(refused(fault)),
                Verdict::KeysNeeded { issuer } => self.fetch(issuer),
            }
            // The sender is a part of this.
            let _alive = ended.changed().await;
        }
        Err(refused(TrustFault::new(FaultCode::ServerBusy, "its issuer's keys do not come")))
    }

    /// Has an issuer's keys fetched, unless somebody does already. The task outlives the login that brought it about.
    fn fetch(self: &Arc<Self>, issuer: usize) {
        if !self.lock().began(issuer, (self.clock)()) {
            return;
        }
        let (all, coming) = (self.clone(), (self.keys)(issuer));
        tokio::spawn(async move {
            all.take_in(issuer, coming.await);
            all.ended.send_modify(|count| *count += 1);
        });
    }

    fn take_in(&self, issuer: usize, keys: Result<Vec<u8>, Fault>) {
        let mut judge = self.lock();
        let name = judge.issuer(issuer).unwrap_or_default().to_owned();
        match keys {
            Ok(keys) => match judge.install(issuer, &keys, (self.clock)()) {
                Ok(count) => tracing::info!(issuer = name, keys = count, "keys of an issuer of tokens fetched"),
                Err(fault) => tracing::error!(%fault, "keys of an issuer of tokens cannot be used"),
            },
            Err(fault) => {
                judge.failed(issuer, (self.clock)());
                tracing::error!(issuer = name, %fault, "keys of an issuer of tokens cannot be fetched");
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, TokenJudge> {
        self.judge.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn accepted(issuer: String, grant: Grant) -> Accepted {
    let Grant { subject, until, paths, groups, identity } = grant;
    let limited = paths.is_some();
    tracing::info!(subject, issuer, until, limited, "token accepted");
    let rules = LoginRules {
        paths: paths.unwrap_or_else(PathRules::everything),
        bandwidth: rate(&identity),
        until: Some(until),
        ..LoginRules::unlimited()
    };
    Accepted { claim: Claim::Token { issuer, subject, groups, claims: identity }, rules }
}

/// How fast a login may be by its token, bytes a second; what cannot be read must not open anything.
fn rate(claims: &[(String, String)]) -> Option<u64> {
    let (_, text) = claims.iter().find(|(name, _)| name == RATE)?;
    Some(text.parse().map_or(1, |rate: u64| rate.max(1)))
}

#[cfg(test)]
#[path = "tokens_tests.rs"]
mod tests;
