//! Another provider of identities, whose people may log in here (OpenID Connect Core 1.0 §3.1, with PKCE): we are a client there.
//!
//! Tokens for our own API are still ours: what the provider says is believed once, at the login, for who somebody is.

mod arrival;

use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use serde::Deserialize;
use whimbrel_engine::{Fault, FaultCode, Side};
use whimbrel_trust::oidc::{IdTokenJudge, IdVerdict, Person};
use whimbrel_trust::roots::SystemRoots;
use whimbrel_web::client::{Answer, Method, Question};
use zeroize::Zeroizing;

use super::secrets::challenge_of;
use crate::elsewhere;

pub(super) use arrival::arrive;

const OP: &str = "log in at another provider";

/// Time for an answer.
const LIMIT: Duration = Duration::from_secs(10);
/// Longest answer, bytes.
const MOST_ANSWER: usize = 256 << 10;
/// How long a provider's description is believed, seconds.
const FRESH: i64 = 3600;
/// Seconds between two attempts to reach a provider that does not answer: everybody's login page would wait for it.
const PAUSE: i64 = 10;
/// Where the provider sends browsers back to, below our URL.
pub const BACK: &str = "/v2/oauth2/provider";

/// A provider as an administrator describes it.
#[derive(Clone)]
pub struct Settings {
    /// Its name in tokens: the URL below which it describes itself.
    pub issuer: String,
    /// What people call it.
    pub label: String,
    /// Our id there.
    pub client: String,
    /// Our secret there.
    pub secret: Zeroizing<String>,
    /// What follows the `@` in the names of its people here; never our own domain.
    pub domain: String,
    /// The claim that names people. It has to be unique there, and not of their own choice.
    pub claim: String,
    /// Nobody logs in with a password of ours.
    pub only: bool,
    /// Who vouches for its hosts.
    pub roots: SystemRoots,
}

/// The provider, as far as there is one.
#[derive(Default)]
pub struct Slot(OnceLock<Provider>);

impl Slot {
    /// Lets its people in from now on. The first settings stay.
    pub fn begin(&self, settings: Settings) {
        // Identities were made by the first ones.
        let _first = self.0.set(Provider::new(settings));
    }

    pub(super) fn get(&self) -> Option<&Provider> {
        self.0.get()
    }
}

/// The provider with what is known of it.
pub(super) struct Provider {
    pub(super) settings: Settings,
    judge: Mutex<IdTokenJudge>,
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    places: Option<Arc<Places>>,
    /// Seconds since 1970.
    fetched: i64,
    failed: Option<i64>,
}

/// What a provider says of itself (OpenID Connect Discovery 1.0 §3).
#[derive(Debug, Deserialize)]
pub(super) struct Places {
    issuer: String,
    pub(super) authorization_endpoint: String,
    token_endpoint: String,
    jwks_uri: String,
    #[serde(default)]
    token_endpoint_auth_methods_supported: Vec<String>,
}

impl Places {
    /// Whether clients show their secrets in forms; who says nothing takes them as Basic.
    fn wants_form(&self) -> bool {
        let methods = &self.token_endpoint_auth_methods_supported;
        !methods.is_empty() && !methods.iter().any(|method| method == "client_secret_basic")
    }
}

#[derive(Deserialize)]
struct Tokens {
    id_token: String,
}

/// What ties a provider's answer to a browser and a login.
pub(super) struct Ties<'a> {
    pub(super) state: &'a str,
    pub(super) nonce: &'a str,
    pub(super) verifier: &'a str,
}

impl Provider {
    fn new(settings: Settings) -> Self {
        let judge = IdTokenJudge::new(&settings.issuer, &settings.client);
        Self { settings, judge: Mutex::new(judge), known: Mutex::default() }
    }

    /// What it says of itself, as it was last fetched.
    ///
    /// # Errors
    /// It does not answer, or describes somebody else.
    pub(super) async fn places(&self, now: i64) -> Result<Arc<Places>, Fault> {
        let known = || self.known.lock().expect("nothing panics with it");
        {
            let known = known();
            let age = |at: i64| now.saturating_sub(at);
            if let Some(places) = known.places.as_ref().filter(|_| (0..FRESH).contains(&age(known.fetched))) {
                return Ok(places.clone());
            }
            if known.failed.is_some_and(|at| (0..PAUSE).contains(&age(at))) {
                return Err(self.fault(FaultCode::ServerBusy, "it did not answer a moment ago"));
            }
        }
        let fetched = self.describe().await.map(Arc::new);
        let mut known = known();
        match &fetched {
            Ok(places) => (known.places, known.fetched, known.failed) = (Some(places.clone()), now, None),
            Err(_) => known.failed = Some(now),
        }
        fetched
    }

    async fn describe(&self) -> Result<Places, Fault> {
        let issuer = &self.settings.issuer;
        let place = format!("{}/.well-known/openid-configuration", issuer.trim_end_matches('/'));
        let places: Places = self.read(&self.get(&place).await?.body)?;
        if places.issuer != *issuer {
            let found: String = places.issuer.chars().filter(|sign| !sign.is_control()).take(200).collect();
            return Err(self.fault(FaultCode::CredentialRejected, format!("it describes itself as {found:?}")));
        }
        let all = [&places.authorization_endpoint, &places.token_endpoint, &places.jwks_uri];
        match all.iter().all(|place| place.starts_with("https://")) {
            true => Ok(places),
            false => Err(self.fault(FaultCode::CredentialRejected, "it names places that are not reached by https")),
        }
    }

    /// Where a browser goes to log in there.
    pub(super) fn departure(&self, places: &Places, back: &str, ties: &Ties<'_>) -> String {
        let challenge = challenge_of(ties.verifier);
        let query = form_urlencoded::Serializer::new(String::new())
            .extend_pairs([
                ("response_type", "code"),
                ("client_id", &self.settings.client),
                ("redirect_uri", back),
                ("scope", "openid profile email"),
                ("state", ties.state),
                ("nonce", ties.nonce),
                ("code_challenge", &challenge),
                ("code_challenge_method", "S256"),
            ])
            .finish();
        let place = &places.authorization_endpoint;
        format!("{place}{}{query}", if place.contains('?') { '&' } else { '?' })
    }

    /// Turns the provider's code into its id token, unread.
    ///
    /// # Errors
    /// It does not answer, or does not take the code.
    pub(super) async fn exchange(&self, code: &str, back: &str, verifier: &str, now: i64) -> Result<String, Fault> {
        let places = self.places(now).await?;
        let Settings { client, secret, .. } = &self.settings;
        let mut fields = vec![
            ("grant_type", "authorization_code"),
            ("code", code),
            ("redirect_uri", back),
            ("code_verifier", verifier),
        ];
        if places.wants_form() {
            fields.extend([("client_id", client.as_str()), ("client_secret", secret.as_str())]);
        }
        let form = form_urlencoded::Serializer::new(String::new()).extend_pairs(fields).finish();
        let (to, path) = elsewhere::client(&self.settings.roots, &places.token_endpoint, MOST_ANSWER, OP)?;
        let body = Some(form.into_bytes());
        let question = Question { method: Method::POST, path: &path, bearer: None, body, limit: LIMIT };
        let answer = match places.wants_form() {
            true => to.ask_form(question).await?,
            false => to.ask_form_as((client, secret), question).await?,
        };
        let answer = self.good(answer)?;
        self.read::<Tokens>(&answer.body).map(|tokens| tokens.id_token)
    }

    /// Who somebody is, by an id token.
    ///
    /// # Errors
    /// The token is not good; the provider's keys cannot be had.
    pub(super) async fn person(&self, token: &str, nonce: &str, now: i64) -> Result<Person, Fault> {
        let judge = || self.judge.lock().expect("nothing panics with it");
        for last in [false, true] {
            match judge().judge(token.as_bytes(), nonce, now) {
                IdVerdict::Person(person) => return Ok(person),
                IdVerdict::Refused(fault) => return Err(fault.into_fault(OP, Side::Peer)),
                IdVerdict::KeysNeeded if last => break,
                IdVerdict::KeysNeeded => {}
            }
            // Somebody else may fetch at this moment: twice is no harm.
            judge().began(now);
            let keys = self.keys(now).await;
            let mut judge = judge();
            match keys {
                Ok(keys) => judge.install(&keys, now).map_err(|fault| fault.into_fault(OP, Side::Peer))?,
                Err(fault) => {
                    judge.failed(now);
                    return Err(fault);
                }
            }
        }
        Err(self.fault(FaultCode::CredentialRejected, "none of its keys has signed the id token"))
    }

    async fn keys(&self, now: i64) -> Result<Vec<u8>, Fault> {
        let places = self.places(now).await?;
        Ok(self.get(&places.jwks_uri).await?.body.to_vec())
    }

    async fn get(&self, url: &str) -> Result<Answer, Fault> {
        let (client, path) = elsewhere::client(&self.settings.roots, url, MOST_ANSWER, OP)?;
        let question = Question { method: Method::GET, path: &path, bearer: None, body: None, limit: LIMIT };
        self.good(client.ask(question).await?)
    }

    fn good(&self, answer: Answer) -> Result<Answer, Fault> {
        if answer.status.is_success() {
            return Ok(answer);
        }
        let text: String =
            String::from_utf8_lossy(&answer.body).chars().filter(|c| !c.is_control()).take(300).collect();
        Err(self.fault(FaultCode::PeerRefused, format!("it answered {}: {text}", answer.status)))
    }

    fn read<'a, T: Deserialize<'a>>(&self, body: &'a [u8]) -> Result<T, Fault> {
        let unread = |error: serde_json::Error| self.fault(FaultCode::PeerRefused, format!("its answer: {error}"));
        serde_json::from_slice(body).map_err(unread)
    }

    fn fault(&self, code: FaultCode, detail: impl Into<String>) -> Fault {
        Fault::new(code, OP).side(Side::Peer).subject(&self.settings.issuer).detail(detail)
    }
}
