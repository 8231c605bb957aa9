//! Judges access tokens by the cached keys of their issuers; fetching keys is somebody else's, when it is due is said here.

use whimbrel_engine::fault::FaultCode;
use whimbrel_proto::timeval::Timestamp;
use whimbrel_proto::token::judge::{Grant, Issuer, LEEWAY, Refusal, judge};
use whimbrel_proto::token::jwks::KeySet;
use whimbrel_proto::token::jwt::{Algorithm, Claims, Jwt, JwtError};

use crate::TrustFault;
use crate::signature::VerifyingKey;

/// Seconds after which keys are fetched anew although they still serve.
pub const FRESH: i64 = 3600;
/// Seconds after which keys that could not be fetched anew serve no longer: a key that was taken back is believed no longer than that.
pub const STALE: i64 = 24 * 3600;
/// Seconds between two fetches that tokens with unknown keys bring about.
pub const PAUSE: i64 = 30;
/// Seconds after the first failure; doubled by each that follows. Nobody can log in meanwhile, and an issuer that is started again is back soon.
const FIRST_PAUSE: i64 = 1;
/// Longest pause after failures, seconds.
const LONGEST_PAUSE: i64 = 60;

/// When an issuer's keys were fetched.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Fetches {
    /// When the present keys came, seconds since 1970.
    pub fetched: Option<i64>,
    /// When somebody last tried.
    pub tried: Option<i64>,
    /// How often that failed since they came.
    pub failures: u32,
}

/// What a token found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Need {
    /// Keys that fit.
    Served,
    /// No key of the name it gives, or none that verifies it although it names none.
    UnknownKey,
}

/// Whether keys are to be fetched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fetch {
    /// No.
    Unneeded,
    /// Yes, now.
    Due,
    /// They would be, but somebody tried a short while ago.
    TooSoon {
        /// First second at which it is due, since 1970.
        due: i64,
    },
}

impl Fetches {
    /// Whether the keys can be used at all.
    pub fn usable(self, now: i64) -> bool {
        // Of a clock that was set back nothing is learned.
        self.fetched.is_some_and(|at| now.saturating_sub(at) < STALE)
    }

    /// Whether keys are to be fetched: when there are none, when they are old, or when a token needs another; with pauses in between
    /// that grow with failures, since tokens of strangers bring fetches about.
    pub fn due(self, need: Need, now: i64) -> Fetch {
        let fresh = self.fetched.is_some_and(|at| now.saturating_sub(at) < FRESH);
        if fresh && need == Need::Served {
            return Fetch::Unneeded;
        }
        let pause = match self.failures {
            0 => PAUSE,
            failures => (FIRST_PAUSE << (failures - 1).min(10)).min(LONGEST_PAUSE),
        };
        // An attempt in the future was made before the clock was set back.
        let due = self.tried.filter(|&at| at <= now).map_or(now, |at| at.saturating_add(pause));
        if due <= now { Fetch::Due } else { Fetch::TooSoon { due } }
    }
}

/// What became of a token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// It is good.
    Granted {
        /// Its issuer's place in the configuration.
        issuer: usize,
        /// What it gives.
        grant: Grant,
    },
    /// It is not, and newer keys would not help.
    Refused(TrustFault),
    /// The issuer's keys have to be fetched before it can be judged: fetch them if [`TokenJudge::began`] says so, else wait for who does;
    /// then [`TokenJudge::install`], and judge again.
    KeysNeeded {
        /// The issuer's place.
        issuer: usize,
    },
}

/// The accepted issuers with their keys.
#[derive(Debug, Default)]
pub struct TokenJudge {
    issuers: Vec<Known>,
}

#[derive(Debug)]
struct Known {
    issuer: Issuer,
    keys: Keys,
    fetches: Fetches,
    /// Somebody fetches; who says nothing for [`PAUSE`] is given up.
    fetching: bool,
}

#[derive(Debug, Default)]
struct Keys {
    set: KeySet,
    /// As many as in the set; a key that OpenSSL does not take is `None`.
    verifying: Vec<Option<VerifyingKey>>,
}

impl TokenJudge {
    /// Issuers in the order of the configuration, without keys yet.
    pub fn new(issuers: impl IntoIterator<Item = Issuer>) -> Self {
        let known = |issuer| Known { issuer, keys: Keys::default(), fetches: Fetches::default(), fetching: false };
        Self { issuers: issuers.into_iter().map(known).collect() }
    }

    /// Whether a text that came as a password is a token, good or bad: what is wrong with it is told, and it is no guess at a password.
    pub fn is_token(text: &[u8]) -> bool {
        Jwt::is_made_like_one(text)
    }

    /// Judges a token at `now`, in seconds since 1970.
    ///
    /// A token that needs keys which cannot be fetched again yet is refused as [`FaultCode::CredentialRejected`] if keys are there and
    /// none of them is the right one, else as [`FaultCode::ServerBusy`], which asks to try later.
    pub fn judge(&self, token: &[u8], now: i64) -> Verdict {
        let jwt = match Jwt::parse(token) {
            Ok(jwt) => jwt,
            Err(error) => return Verdict::Refused(malformed(&error)),
        };
        let Some(place) = self.known(&jwt) else { return Verdict::Refused(unknown_issuer(&jwt)) };
        let known = &self.issuers[place];
        if known.fetches.usable(now) {
            let subject = known.issuer.name.clone();
            let (algorithm, kid) = (jwt.algorithm(), jwt.key().map(str::to_owned));
            match jwt.claims(|signed, signature| known.keys.verify(algorithm, kid.as_deref(), signed, signature)) {
                Ok(claims) => return granted(place, &known.issuer, &claims, now),
                Err(Unverified::Forged) => {
                    return Verdict::Refused(rejected("its signature is wrong").about(subject));
                }
                Err(Unverified::NoKey) => {}
            }
        }
        match known.fetches.due(Need::UnknownKey, now) {
            Fetch::TooSoon { due } if !known.is_fetching(now) => Verdict::Refused(known.without_keys(now, due)),
            _ => Verdict::KeysNeeded { issuer: place },
        }
    }

    /// Issuers whose keys are old, or not there yet, and may be fetched now: so that few tokens have to wait for it.
    pub fn due(&self, now: i64) -> Vec<usize> {
        let due = |known: &Known| known.fetches.due(Need::Served, now) == Fetch::Due;
        self.issuers.iter().enumerate().filter(|(_, known)| due(known)).map(|(place, _)| place).collect()
    }

    /// Notes that the caller is about to fetch; `false` if somebody else does already, who is to be waited for.
    pub fn began(&mut self, issuer: usize, now: i64) -> bool {
        let Some(known) = self.issuers.get_mut(issuer).filter(|known| !known.is_fetching(now)) else { return false };
        known.fetches.tried = Some(now);
        known.fetching = true;
        true
    }

    /// Takes an issuer's keys as they were fetched, in the place of those before; how many can verify something.
    ///
    /// # Errors
    /// `CredentialRejected` if that is no key set, or one without any key for RS256 or ES256; the keys before stay.
    pub fn install(&mut self, issuer: usize, jwks: &[u8], now: i64) -> Result<usize, TrustFault> {
        let known = self.issuers.get_mut(issuer).ok_or_else(|| rejected("no such issuer is configured"))?;
        let name = &known.issuer.name;
        let read = KeySet::parse(jwks).map_err(|error| error.to_string()).map(Keys::new);
        let keys = read.and_then(|keys| {
            let none =
                || format!("none of its {} keys is for RS256 or ES256", keys.set.passed_over + keys.set.keys.len());
            if keys.count() > 0 { Ok(keys) } else { Err(none()) }
        });
        match keys {
            Ok(keys) => {
                let count = keys.count();
                known.keys = keys;
                known.fetching = false;
                known.fetches = Fetches { fetched: Some(now), tried: Some(now), failures: 0 };
                Ok(count)
            }
            Err(reason) => {
                let fault = rejected(format!("its keys cannot be used: {reason}")).about(name);
                self.failed(issuer, now);
                Err(fault)
            }
        }
    }

    /// Notes that an issuer's keys could not be fetched.
    pub fn failed(&mut self, issuer: usize, now: i64) {
        if let Some(known) = self.issuers.get_mut(issuer) {
            known.fetching = false;
            known.fetches.tried = Some(now);
            known.fetches.failures = known.fetches.failures.saturating_add(1);
        }
    }

    /// The name of an issuer.
    pub fn issuer(&self, place: usize) -> Option<&str> {
        self.issuers.get(place).map(|known| known.issuer.name.as_str())
    }

    fn known(&self, jwt: &Jwt<'_>) -> Option<usize> {
        self.issuers.iter().position(|known| jwt.claimed_issuer() == Some(&known.issuer.name))
    }
}

impl Known {
    fn is_fetching(&self, now: i64) -> bool {
        self.fetching && self.fetches.tried.is_some_and(|at| (0..PAUSE).contains(&now.saturating_sub(at)))
    }

    /// Why a token is not judged although keys would be needed for it.
    fn without_keys(&self, now: i64, due: i64) -> TrustFault {
        let wait = due.saturating_sub(now);
        let fault = if self.fetches.usable(now) {
            rejected("none of its issuer's keys has signed it")
        } else {
            let code = FaultCode::ServerBusy;
            TrustFault::new(code, format!("its issuer's keys could not be fetched; the next attempt is in {wait} s"))
        };
        fault.about(&self.issuer.name)
    }
}

/// Why no key vouches for a token.
enum Unverified {
    /// The key it names did not sign it.
    Forged,
    /// There is no such key, or it names none and no key fits: a newer set may help.
    NoKey,
}

impl Keys {
    fn new(set: KeySet) -> Self {
        let verifying = set.keys.iter().map(|key| VerifyingKey::new(key).ok()).collect();
        Self { set, verifying }
    }

    fn count(&self) -> usize {
        self.verifying.iter().flatten().count()
    }

    fn verify(
        &self,
        algorithm: Algorithm,
        kid: Option<&str>,
        signed: &[u8],
        signature: &[u8],
    ) -> Result<(), Unverified> {
        let mut named = false;
        for key in self.set.candidates(algorithm, kid).filter_map(|place| self.verifying[place].as_ref()) {
            if key.verifies(algorithm, signed, signature) {
                return Ok(());
            }
            named = kid.is_some();
        }
        Err(if named { Unverified::Forged } else { Unverified::NoKey })
    }
}

fn granted(place: usize, issuer: &Issuer, claims: &Claims, now: i64) -> Verdict {
    let refusal = match judge(claims, issuer, now, LEEWAY) {
        Ok(grant) => return Verdict::Granted { issuer: place, grant },
        Err(refusal) => refusal,
    };
    let (code, end) = match refusal {
        Refusal::Expired { at } => (FaultCode::CredentialExpired, Some(at)),
        _ => (FaultCode::CredentialRejected, claims.expires),
    };
    let subject = claims.subject.as_deref().unwrap_or("nobody");
    let fault = TrustFault::new(code, refusal.to_string()).about(format!("{subject} of {}", issuer.name));
    // Ends beyond the year 9999 cannot be shown, and are none.
    let shown = end.filter(|end| (0..253_402_300_800).contains(end));
    Verdict::Refused(match shown {
        Some(secs) => fault.until(Timestamp { secs, nanos: 0 }),
        None => fault,
    })
}

fn rejected(detail: impl Into<String>) -> TrustFault {
    TrustFault::new(FaultCode::CredentialRejected, detail)
}

fn malformed(error: &JwtError) -> TrustFault {
    rejected(error.to_string())
}

fn unknown_issuer(jwt: &Jwt<'_>) -> TrustFault {
    let issuer: String = jwt.claimed_issuer().unwrap_or("nobody").chars().take(200).collect();
    rejected("tokens of this issuer are not accepted here").about(issuer)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: i64 = 1_800_000_000;

    fn fetches(fetched: Option<i64>, tried: Option<i64>, failures: u32) -> Fetches {
        Fetches { fetched: fetched.map(|ago| NOW - ago), tried: tried.map(|ago| NOW - ago), failures }
    }

    #[test]
    fn keys_are_fetched_when_there_are_none_when_they_are_old_and_when_one_is_missing() {
        use Need::{Served, UnknownKey};
        let soon = |seconds: i64| Fetch::TooSoon { due: NOW + seconds };
        for (fetches, need, expected) in [
            (fetches(None, None, 0), Served, Fetch::Due),
            (fetches(None, Some(10), 0), UnknownKey, soon(20)),
            (fetches(None, Some(30), 0), UnknownKey, Fetch::Due),
            (fetches(Some(0), Some(0), 0), Served, Fetch::Unneeded),
            (fetches(Some(0), Some(0), 0), UnknownKey, soon(30)),
            (fetches(Some(30), Some(30), 0), UnknownKey, Fetch::Due),
            (fetches(Some(FRESH - 1), Some(FRESH - 1), 0), Served, Fetch::Unneeded),
            (fetches(Some(FRESH), Some(FRESH), 0), Served, Fetch::Due),
            (fetches(Some(FRESH), Some(0), 1), Served, soon(1)),
            (fetches(None, Some(1), 1), UnknownKey, Fetch::Due),
            (fetches(None, Some(0), 2), UnknownKey, soon(2)),
            (fetches(None, Some(0), 5), UnknownKey, soon(16)),
            (fetches(None, Some(0), 7), UnknownKey, soon(LONGEST_PAUSE)),
            (fetches(None, Some(0), u32::MAX), UnknownKey, soon(LONGEST_PAUSE)),
            (fetches(None, Some(LONGEST_PAUSE), u32::MAX), UnknownKey, Fetch::Due),
            (fetches(Some(-5000), Some(-5000), 0), UnknownKey, Fetch::Due),
        ] {
            assert_eq!(fetches.due(need, NOW), expected, "{fetches:?} {need:?}");
        }
        let extreme = Fetches { fetched: Some(i64::MIN), tried: Some(i64::MIN), failures: 3 };
        assert_eq!((extreme.due(Served, i64::MAX), extreme.usable(i64::MAX)), (Fetch::Due, false));
    }

    #[test]
    fn keys_that_cannot_be_renewed_serve_for_a_day() {
        assert!(fetches(Some(STALE - 1), Some(5), 40).usable(NOW));
        assert!(!fetches(Some(STALE), Some(5), 40).usable(NOW) && !fetches(None, None, 0).usable(NOW));
    }
}
