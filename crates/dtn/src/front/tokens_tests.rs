//! Tests of logins with tokens: real signatures, a clock and an issuer of the test's own.

use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};

use openssl::bn::{BigNum, BigNumContext};
use openssl::ec::{EcGroup, EcKey};
use openssl::ecdsa::EcdsaSig;
use openssl::nid::Nid;
use openssl::pkey::Private;
use openssl::sha::sha256;
use serde_json::{Value, json};
use whimbrel_proto::rules::Operation;
use whimbrel_trust::token::{FRESH, PAUSE, STALE};

use super::*;

const BEGIN: i64 = 1_800_000_000;
const IAM: &str = "https://iam.example.org/";

fn b64(bytes: &[u8]) -> String {
    openssl::base64::encode_block(bytes).trim_end_matches('=').replace('+', "-").replace('/', "_").replace('\n', "")
}

struct Key(EcKey<Private>, &'static str);

impl Key {
    fn new(kid: &'static str) -> Self {
        Self(EcKey::generate(&EcGroup::from_curve_name(Nid::X9_62_PRIME256V1).unwrap()).unwrap(), kid)
    }

    fn public(&self) -> Value {
        let (mut x, mut y) = (BigNum::new().unwrap(), BigNum::new().unwrap());
        let mut context = BigNumContext::new().unwrap();
        self.0.public_key().affine_coordinates(self.0.group(), &mut x, &mut y, &mut context).unwrap();
        let fixed = |number: &BigNum| b64(&number.to_vec_padded(32).unwrap());
        json!({"kty": "EC", "crv": "P-256", "kid": self.1, "x": fixed(&x), "y": fixed(&y)})
    }

    fn token(&self, until: i64, scope: &str) -> Secret {
        let header = json!({"alg": "ES256", "kid": self.1});
        let claims =
            json!({"iss": IAM, "sub": "alice", "aud": "https://dtn", "exp": until, "scope": scope, "groups": ["/vo"]});
        let signed = format!("{}.{}", b64(header.to_string().as_bytes()), b64(claims.to_string().as_bytes()));
        let signature = EcdsaSig::sign(&sha256(signed.as_bytes()), &self.0).unwrap();
        let halves = [signature.r().to_vec_padded(32).unwrap(), signature.s().to_vec_padded(32).unwrap()].concat();
        Secret(format!("{signed}.{}", b64(&halves)).into_bytes())
    }
}

/// What the issuer shows; nothing while it is down.
#[derive(Default)]
struct World {
    clock: AtomicI64,
    fetches: AtomicUsize,
    shown: Mutex<Option<Vec<Value>>>,
}

impl World {
    fn show(&self, keys: &[&Key]) {
        *self.shown.lock().unwrap() = Some(keys.iter().map(|key| key.public()).collect());
    }

    fn pass(&self, seconds: i64) {
        self.clock.fetch_add(seconds, Ordering::Relaxed);
    }

    fn fetches(&self) -> usize {
        self.fetches.load(Ordering::Relaxed)
    }
}

fn tokens() -> (Arc<World>, Arc<Tokens>) {
    let world = Arc::new(World { clock: AtomicI64::new(BEGIN), ..World::default() });
    let (issuer, clock) = (world.clone(), world.clone());
    let keys = move |_| -> Coming {
        issuer.fetches.fetch_add(1, Ordering::Relaxed);
        let shown = issuer.shown.lock().unwrap().clone();
        Box::pin(async move {
            // Another login may come meanwhile.
            tokio::task::yield_now().await;
            let down = || Fault::new(FaultCode::ConnectionRefused, "fetch keys");
            shown.map(|keys| json!({ "keys": keys }).to_string().into_bytes()).ok_or_else(down)
        })
    };
    let settings = Issuer {
        name: IAM.into(),
        audiences: vec!["https://dtn".into()],
        any_audience: false,
        base: b"/vo".to_vec(),
        without_scopes: true,
    };
    let clock = move || clock.clock.load(Ordering::Relaxed);
    (world, Arc::new(Tokens::with(&[settings], Box::new(keys), Box::new(clock))))
}

#[tokio::test]
async fn keys_are_fetched_once_for_all_who_wait() {
    let (world, tokens) = tokens();
    let key = Key::new("one");
    world.show(&[&key]);
    let token = key.token(BEGIN + 600, "storage.read:/data");
    assert!(Tokens::is_token(&token) && !Tokens::is_token(&Secret(b"a password".to_vec())));
    let (one, two) = tokio::join!(tokens.judge(&token), tokens.judge(&token));
    assert_eq!(world.fetches(), 1);
    for accepted in [one.unwrap(), two.unwrap()] {
        assert!(accepted.rules.paths.allows(b"/vo/data/x", Operation::Read));
        assert!(!accepted.rules.paths.allows(b"/vo/data/x", Operation::Create));
        assert!(accepted.rules.until.unwrap() >= BEGIN + 600);
        let Claim::Token { issuer, subject, groups, .. } = accepted.claim else { panic!("a token") };
        assert_eq!((issuer.as_str(), subject.as_str(), groups), (IAM, "alice", vec![]));
    }
    let identity = tokens.judge(&key.token(BEGIN + 600, "openid")).await.unwrap();
    assert!(identity.rules.paths.allows(b"/any/where", Operation::Delete), "no scope limits it");
    assert!(matches!(identity.claim, Claim::Token { groups, .. } if groups == ["/vo"]));
}

#[tokio::test]
async fn a_new_key_is_fetched_when_a_token_names_it() {
    let (world, tokens) = tokens();
    let (old, new) = (Key::new("old"), Key::new("new"));
    world.show(&[&old]);
    assert!(tokens.judge(&old.token(BEGIN + 999, "")).await.is_ok());
    world.show(&[&new]);
    let refused = tokens.judge(&new.token(BEGIN + 999, "")).await.unwrap_err();
    assert_eq!((refused.code, world.fetches()), (FaultCode::CredentialRejected, 1), "not so soon: {refused}");
    world.pass(PAUSE);
    assert!(tokens.judge(&new.token(BEGIN + 999, "")).await.is_ok());
    assert_eq!(world.fetches(), 2);
    world.pass(PAUSE);
    assert!(tokens.judge(&old.token(BEGIN + 999, "")).await.is_err(), "the issuer shows it no longer");
}

#[tokio::test]
async fn keys_of_an_issuer_that_is_down_serve_for_a_day_and_are_renewed_when_it_is_back() {
    let (world, tokens) = tokens();
    let key = Key::new("one");
    let token = key.token(BEGIN + 10 * STALE, "");
    let early = tokens.judge(&token).await.unwrap_err();
    assert_eq!(early.code, FaultCode::ServerBusy, "nobody can tell: {early}");
    world.show(&[&key]);
    world.pass(PAUSE);
    assert!(tokens.judge(&token).await.is_ok());
    *world.shown.lock().unwrap() = None;
    world.pass(FRESH);
    for _ in 0..3 {
        assert!(tokens.judge(&token).await.is_ok(), "while they are renewed");
        tokio::task::yield_now().await;
    }
    assert_eq!(world.fetches(), 3, "with pauses");
    world.pass(STALE);
    assert_eq!(tokens.judge(&token).await.unwrap_err().code, FaultCode::ServerBusy);
}

#[tokio::test]
async fn a_refusal_says_which_token_why_and_until_when() {
    let (world, tokens) = tokens();
    let key = Key::new("one");
    world.show(&[&key]);
    let fault = tokens.judge(&key.token(BEGIN - 3600, "")).await.unwrap_err();
    let text = fault.to_string();
    assert_eq!((fault.code, fault.side), (FaultCode::CredentialExpired, Some(Side::Peer)));
    for part in ["alice of https://iam.example.org/", "expired", "2027-01-15 07:00 UTC"] {
        assert!(text.contains(part), "{text}");
    }
    let forged = Secret([&key.token(BEGIN + 600, "").0[..], b"A"].concat());
    assert!(tokens.judge(&forged).await.is_err());
}

#[test]
fn a_rate_that_cannot_be_read_is_the_slowest() {
    let of = |text: &str| super::rate(&[("email".into(), "5".into()), (super::RATE.into(), text.into())]);
    assert_eq!((of("2000"), of("0"), of("fast"), super::rate(&[])), (Some(2000), Some(1), Some(1), None));
}
