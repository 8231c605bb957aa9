//! Access tokens made here by keys of OpenSSL: what is good is believed, and every trick is refused for its own reason.
#![allow(clippy::unwrap_used, reason = "a test helper that fails ends its test")]

use std::sync::LazyLock;

use openssl::bn::{BigNum, BigNumContext};
use openssl::ec::{EcGroup, EcKey};
use openssl::ecdsa::EcdsaSig;
use openssl::hash::MessageDigest;
use openssl::nid::Nid;
use openssl::pkey::{PKey, Private};
use openssl::rsa::Rsa;
use openssl::sha::sha256;
use openssl::sign::Signer;
use serde_json::{Value, json};
use whimbrel_engine::fault::FaultCode;
use whimbrel_proto::rules::Operation;
use whimbrel_proto::token::judge::{ANY_AUDIENCE, Grant, Issuer, LEEWAY};
use whimbrel_trust::TrustFault;
use whimbrel_trust::token::{PAUSE, STALE, TokenJudge, Verdict};

const NOW: i64 = 1_800_000_000;
const IAM: &str = "https://iam.example.org/";
const OTHER: &str = "https://other.example.org";
const HERE: &str = "https://dtn.example.org";

/// Making RSA keys takes long: one of each for all tests.
static RSA: LazyLock<Rsa<Private>> = LazyLock::new(|| Rsa::generate(2048).unwrap());
static STRANGER: LazyLock<Rsa<Private>> = LazyLock::new(|| Rsa::generate(2048).unwrap());
static EC: LazyLock<EcKey<Private>> = LazyLock::new(|| EcKey::generate(&curve()).unwrap());

fn curve() -> EcGroup {
    EcGroup::from_curve_name(Nid::X9_62_PRIME256V1).unwrap()
}

fn b64(bytes: &[u8]) -> String {
    let text = openssl::base64::encode_block(bytes);
    text.trim_end_matches('=').replace('+', "-").replace('/', "_")
}

fn rsa_key(key: &Rsa<Private>, kid: &str) -> Value {
    json!({"kty": "RSA", "kid": kid, "use": "sig", "alg": "RS256", "n": b64(&key.n().to_vec()), "e": b64(&key.e().to_vec())})
}

fn ec_key(kid: &str) -> Value {
    let (mut x, mut y) = (BigNum::new().unwrap(), BigNum::new().unwrap());
    EC.public_key().affine_coordinates(&curve(), &mut x, &mut y, &mut BigNumContext::new().unwrap()).unwrap();
    let fixed = |number: &BigNum| b64(&number.to_vec_padded(32).unwrap());
    json!({"kty": "EC", "crv": "P-256", "kid": kid, "x": fixed(&x), "y": fixed(&y)})
}

fn key_set(keys: &[Value]) -> Vec<u8> {
    json!({ "keys": keys }).to_string().into_bytes()
}

fn issuer(name: &str) -> Issuer {
    Issuer {
        name: name.into(),
        audiences: vec![HERE.into()],
        any_audience: true,
        base: b"/vo".to_vec(),
        without_scopes: false,
    }
}

/// Two issuers with a key each, and one without.
fn judge() -> TokenJudge {
    let mut judge = TokenJudge::new([issuer(IAM), issuer(OTHER), issuer("https://new.example.org")]);
    let iam = [rsa_key(&RSA, "rsa"), ec_key("ec"), json!({"kty": "oct", "k": "AAAA", "kid": "oct", "alg": "HS256"})];
    assert_eq!(judge.install(0, &key_set(&iam), NOW).unwrap(), 2);
    assert_eq!(judge.install(1, &key_set(&[rsa_key(&STRANGER, "rsa")]), NOW).unwrap(), 1);
    judge
}

fn claims() -> Value {
    json!({
        "iss": IAM, "sub": "alice", "aud": [HERE], "exp": NOW + 600, "nbf": NOW - 10, "iat": NOW - 10, "jti": "1",
        "wlcg.ver": "1.0", "scope": "openid storage.read:/data storage.create:/data/out", "email": "alice@example.org",
    })
}

/// The claims with one of them changed or, by null, left out.
fn with(name: &str, value: Value) -> Value {
    let mut claims = claims();
    match value {
        Value::Null => drop(claims.as_object_mut().unwrap().remove(name)),
        value => claims[name] = value,
    }
    claims
}

fn unsigned(header: &Value, claims: &Value) -> String {
    format!("{}.{}", b64(header.to_string().as_bytes()), b64(claims.to_string().as_bytes()))
}

fn rs256_by(key: &Rsa<Private>, header: &Value, claims: &Value) -> String {
    let signed = unsigned(header, claims);
    let key = PKey::from_rsa(key.clone()).unwrap();
    let mut signer = Signer::new(MessageDigest::sha256(), &key).unwrap();
    format!("{signed}.{}", b64(&signer.sign_oneshot_to_vec(signed.as_bytes()).unwrap()))
}

fn rs256(claims: &Value) -> String {
    rs256_by(&RSA, &json!({"alg": "RS256", "kid": "rsa", "typ": "at+jwt"}), claims)
}

fn es256_signature(signed: &str) -> EcdsaSig {
    EcdsaSig::sign(&sha256(signed.as_bytes()), &EC).unwrap()
}

fn es256(header: &Value, claims: &Value) -> String {
    let signed = unsigned(header, claims);
    let signature = es256_signature(&signed);
    let halves = [signature.r().to_vec_padded(32).unwrap(), signature.s().to_vec_padded(32).unwrap()].concat();
    format!("{signed}.{}", b64(&halves))
}

fn hs256(secret: &[u8], header: &Value) -> String {
    let signed = unsigned(header, &claims());
    let key = PKey::hmac(secret).unwrap();
    let mut signer = Signer::new(MessageDigest::sha256(), &key).unwrap();
    signer.update(signed.as_bytes()).unwrap();
    format!("{signed}.{}", b64(&signer.sign_to_vec().unwrap()))
}

fn granted(token: &str) -> Grant {
    match judge().judge(token.as_bytes(), NOW) {
        Verdict::Granted { issuer: 0, grant } => grant,
        other => panic!("{other:?}"),
    }
}

fn refused(token: &str) -> TrustFault {
    match judge().judge(token.as_bytes(), NOW + PAUSE - 1) {
        Verdict::Refused(fault) => fault,
        other => panic!("{token}: {other:?}"),
    }
}

#[test]
fn tokens_of_both_algorithms_are_believed() {
    let ec = es256(&json!({"alg": "ES256", "kid": "ec", "typ": "JWT"}), &claims());
    let nameless = rs256_by(&RSA, &json!({"alg": "RS256"}), &claims());
    let nameless_ec = es256(&json!({"alg": "ES256"}), &claims());
    for token in [rs256(&claims()), ec, nameless, nameless_ec] {
        let grant = granted(&token);
        assert_eq!((grant.subject.as_str(), grant.until), ("alice", NOW + 600 + i64::from(LEEWAY)));
        let paths = grant.paths.unwrap();
        assert!(paths.allows(b"/vo/data/x", Operation::Read) && paths.allows(b"/vo/data/out/x", Operation::Create));
        assert!(!paths.allows(b"/vo/data/x", Operation::Create) && !paths.allows(b"/data/x", Operation::Read));
        assert!(grant.identity.contains(&("email".into(), "alice@example.org".into())));
    }
    let everybody = granted(&rs256(&with("aud", json!(ANY_AUDIENCE))));
    assert_eq!(everybody.subject, "alice");
}

#[test]
fn every_trick_with_the_algorithm_is_refused() {
    for algorithm in ["none", "None", "NONE", "nOnE", ""] {
        for signature in ["", "AAAA"] {
            let token = format!("{}.{signature}", unsigned(&json!({"alg": algorithm, "kid": "rsa"}), &claims()));
            assert!(refused(&token).detail.contains("RS256 and ES256 are accepted"), "{token}");
        }
    }
    // The public key as the secret of a keyed hash, in the forms in which it lies about.
    let public = PKey::public_key_from_pem(&RSA.public_key_to_pem().unwrap()).unwrap();
    let (pem, der) = (public.public_key_to_pem().unwrap(), public.public_key_to_der().unwrap());
    for secret in [&pem[..], &der, &RSA.n().to_vec(), b"AAAA", &[0, 0, 0]] {
        for header in [json!({"alg": "HS256", "kid": "rsa"}), json!({"alg": "HS256", "kid": "oct"})] {
            assert!(refused(&hs256(secret, &header)).detail.contains("HS256"));
        }
        for header in [json!({"alg": "RS256", "kid": "rsa"}), json!({"alg": "ES256", "kid": "ec"})] {
            assert_eq!(refused(&hs256(secret, &header)).detail, "its signature is wrong");
        }
    }
    // A key of one kind named by a token of the other.
    let crossed = es256(&json!({"alg": "ES256", "kid": "rsa"}), &claims());
    assert_eq!(refused(&crossed).detail, "none of its issuer's keys has signed it");
    let crossed = rs256_by(&RSA, &json!({"alg": "RS256", "kid": "ec"}), &claims());
    assert_eq!(refused(&crossed).detail, "none of its issuer's keys has signed it");
    let other_hash = rs256_by(&RSA, &json!({"alg": "RS512", "kid": "rsa"}), &claims());
    assert!(refused(&other_hash).detail.contains("RS512"));
    let critical = rs256_by(&RSA, &json!({"alg": "RS256", "kid": "rsa", "crit": ["b64"], "b64": false}), &claims());
    assert!(refused(&critical).detail.contains("crit"));
    let logout = rs256_by(&RSA, &json!({"alg": "RS256", "kid": "rsa", "typ": "logout+jwt"}), &claims());
    assert!(refused(&logout).detail.contains("no access token"));
}

#[test]
fn keys_that_a_token_brings_or_points_to_prove_nothing() {
    let mine = rsa_key(&STRANGER, "rsa");
    for header in [
        json!({"alg": "RS256", "kid": "rsa", "jwk": mine}),
        json!({"alg": "RS256", "kid": "rsa", "jku": "https://evil.example.org/keys"}),
        json!({"alg": "RS256", "kid": "rsa", "x5u": "https://evil.example.org/x", "x5c": ["AAAA"]}),
    ] {
        assert_eq!(refused(&rs256_by(&STRANGER, &header, &claims())).detail, "its signature is wrong");
    }
    for kid in ["../../../dev/null", "rsa\0", "' OR 1=1", "RSA", "", "rsa "] {
        let token = rs256_by(&STRANGER, &json!({"alg": "RS256", "kid": kid}), &claims());
        assert_eq!(refused(&token).detail, "none of its issuer's keys has signed it", "{kid:?}");
        // Nor does the right key under a wrong name.
        let token = rs256_by(&RSA, &json!({"alg": "RS256", "kid": kid}), &claims());
        assert_eq!(refused(&token).detail, "none of its issuer's keys has signed it", "{kid:?}");
    }
    let odd = rs256_by(&RSA, &json!({"alg": "RS256", "kid": ["rsa"]}), &claims());
    assert_eq!(refused(&odd).detail, "the token's header cannot be read");
}

#[test]
fn a_changed_token_is_refused() {
    let token = rs256(&claims());
    let parts: Vec<&str> = token.split('.').collect();
    let root = b64(with("sub", json!("root")).to_string().as_bytes());
    assert_eq!(refused(&format!("{}.{root}.{}", parts[0], parts[2])).detail, "its signature is wrong");
    let header = b64(json!({"alg": "RS256"}).to_string().as_bytes());
    let swapped = refused(&format!("{header}.{}.{}", parts[1], parts[2])).detail;
    assert_eq!(swapped, "none of its issuer's keys has signed it");
    assert_eq!(refused(&format!("{}.{}.", parts[0], parts[1])).detail, "its signature is wrong");
    for cut in (0..token.len()).step_by(7) {
        refused(&token[..cut]);
    }
    // OpenSSL's own form of an ECDSA signature is not JOSE's, nor is all zero.
    let signed = unsigned(&json!({"alg": "ES256", "kid": "ec"}), &claims());
    let der = es256_signature(&signed).to_der().unwrap();
    for signature in [der, vec![0; 64], vec![0; 63], vec![]] {
        assert_eq!(refused(&format!("{signed}.{}", b64(&signature))).detail, "its signature is wrong");
    }
}

#[test]
fn claims_that_do_not_fit_are_refused_for_what_is_wrong() {
    use FaultCode::{CredentialExpired, CredentialRejected};
    for (name, value, code, why) in [
        (
            "aud",
            json!("https://other-dtn.example.org"),
            CredentialRejected,
            "not for this server (https://dtn.example.org)",
        ),
        ("aud", json!([]), CredentialRejected, "no audience"),
        ("aud", Value::Null, CredentialRejected, "no audience"),
        ("aud", json!(format!("{HERE}/")), CredentialRejected, "not for this server"),
        ("exp", json!(NOW - 31), CredentialExpired, "expired"),
        ("exp", Value::Null, CredentialRejected, "no end"),
        ("exp", json!("9999999999"), CredentialRejected, "claim exp"),
        ("nbf", json!(NOW + 3600), CredentialRejected, "not good yet"),
        ("sub", Value::Null, CredentialRejected, "no subject"),
        ("sub", json!("a\nlogged in: root"), CredentialRejected, "claim sub"),
        ("wlcg.ver", json!("2.0"), CredentialRejected, "version 2.0"),
        ("scope", json!("storage.read"), CredentialRejected, "storage.read names no path"),
        ("scope", json!("storage.read:/data storage.modify"), CredentialRejected, "storage.modify names no path"),
        ("scope", json!("storage.read:/data/../.."), CredentialRejected, "storage.read:/data/../.. is not absolute"),
        ("scope", json!("storage.read:/%2e%2e/etc"), CredentialRejected, "not absolute and normal"),
        ("scope", json!("storage.read:etc"), CredentialRejected, "not absolute and normal"),
        ("scope", json!("openid"), CredentialRejected, "no scope of the token is about files"),
        ("scope", Value::Null, CredentialRejected, "no scope of the token is about files"),
    ] {
        let fault = refused(&rs256(&with(name, value.clone())));
        assert_eq!(fault.code, code, "{name} {value}: {fault}");
        assert!(fault.detail.contains(why), "{name} {value}: {fault}");
    }
    let fault = refused(&rs256(&with("exp", json!(NOW - 3600))));
    assert!(fault.to_string().starts_with("alice of https://iam.example.org/: "), "{fault}");
    assert!(fault.to_string().ends_with("(good until 2027-01-15 07:00 UTC)"), "{fault}");
    let twice = claims().to_string().replace("{", "{\"sub\":\"root\",");
    let signed = format!("{}.{}", b64(br#"{"alg":"RS256","kid":"rsa"}"#), b64(twice.as_bytes()));
    let key = PKey::from_rsa(RSA.clone()).unwrap();
    let mut signer = Signer::new(MessageDigest::sha256(), &key).unwrap();
    let signature = signer.sign_oneshot_to_vec(signed.as_bytes()).unwrap();
    assert_eq!(refused(&format!("{signed}.{}", b64(&signature))).detail, "the token's claims cannot be read");
}

#[test]
fn an_issuer_vouches_for_its_own_tokens_only() {
    // Signed by the other accepted issuer, in the name of the first, and the other way round.
    let stolen = rs256_by(&STRANGER, &json!({"alg": "RS256", "kid": "rsa"}), &claims());
    assert_eq!(refused(&stolen).detail, "its signature is wrong");
    assert_eq!(refused(&rs256(&with("iss", json!(OTHER)))).detail, "its signature is wrong");
    for name in ["https://evil.example.org", "https://iam.example.org", "HTTPS://iam.example.org/"] {
        let fault = refused(&rs256(&with("iss", json!(name))));
        assert_eq!(
            (fault.subject.as_str(), fault.detail.as_str()),
            (name, "tokens of this issuer are not accepted here")
        );
    }
    assert_eq!(refused(&rs256(&with("iss", Value::Null))).subject, "nobody");
    assert!(TokenJudge::is_token(rs256(&claims()).as_bytes()) && !TokenJudge::is_token(b"a password"));
    // What is wrong with those of others is told, too.
    assert!(TokenJudge::is_token(rs256(&with("iss", json!("https://evil.example.org"))).as_bytes()));
}

#[test]
fn keys_are_asked_for_when_they_are_missing_and_no_more_often_than_that() {
    let mut judge = judge();
    let new = rs256(&with("iss", json!("https://new.example.org")));
    let needed = Verdict::KeysNeeded { issuer: 2 };
    assert_eq!(judge.judge(new.as_bytes(), NOW), needed);
    assert_eq!((judge.due(NOW), judge.issuer(2), judge.issuer(3)), (vec![2], Some("https://new.example.org"), None));
    assert!(judge.began(2, NOW) && !judge.began(2, NOW + 1) && !judge.began(3, NOW), "one fetches, the others wait");
    assert_eq!(judge.judge(new.as_bytes(), NOW + 1), needed);
    judge.failed(2, NOW);
    let Verdict::Refused(fault) = judge.judge(new.as_bytes(), NOW) else { panic!("tried a moment ago") };
    assert_eq!(fault.code, FaultCode::ServerBusy);
    assert_eq!(fault.detail, "its issuer's keys could not be fetched; the next attempt is in 1 s");
    for bad in [&b"<html>"[..], b"{\"keys\":[]}", b"{\"keys\":[{\"kty\":\"oct\"}]}"] {
        let fault = judge.install(2, bad, NOW + 2).unwrap_err();
        assert_eq!((fault.code, fault.subject.as_str()), (FaultCode::CredentialRejected, "https://new.example.org"));
    }
    assert!(judge.due(NOW + 9).is_empty(), "four failures make a pause of eight seconds");
    assert!(
        judge.began(2, NOW + 60) && !judge.began(2, NOW + 89) && judge.began(2, NOW + 90),
        "who says nothing is given up"
    );
    assert!(judge.install(9, b"", NOW).is_err());
    judge.install(2, &key_set(&[rsa_key(&RSA, "rsa")]), NOW + 130).unwrap();
    assert!(matches!(judge.judge(new.as_bytes(), NOW + 130), Verdict::Granted { issuer: 2, .. }));
    // The issuer signs by a key that it made since.
    let rolled =
        rs256_by(&STRANGER, &json!({"alg": "RS256", "kid": "next"}), &with("iss", json!("https://new.example.org")));
    assert!(matches!(judge.judge(rolled.as_bytes(), NOW + 131), Verdict::Refused(_)), "fetched a moment ago");
    assert_eq!(judge.judge(rolled.as_bytes(), NOW + 130 + PAUSE), needed);
    judge.install(2, &key_set(&[rsa_key(&STRANGER, "next")]), NOW + 200).unwrap();
    assert!(matches!(judge.judge(rolled.as_bytes(), NOW + 200), Verdict::Granted { .. }));
    assert_eq!(judge.judge(new.as_bytes(), NOW + 300), needed, "the old key is gone");
    judge.failed(2, NOW + 300);
    assert!(matches!(judge.judge(rolled.as_bytes(), NOW + 301), Verdict::Granted { .. }), "known keys still serve");
    let late = NOW + 200 + STALE;
    let lasting = with("iss", json!("https://new.example.org"));
    let mut lasting = lasting;
    lasting["exp"] = json!(late + 60);
    let lasting = rs256_by(&STRANGER, &json!({"alg": "RS256", "kid": "next"}), &lasting);
    assert!(matches!(judge.judge(lasting.as_bytes(), late - 1), Verdict::Granted { .. }));
    assert_eq!(judge.judge(lasting.as_bytes(), late), needed, "keys that nobody could renew are believed no longer");
}
