//! Chains of certificates and tokens that are forged, stretched or somebody else's, shown to a running server: each is refused with
//! the reason, one line of the log tells it, no file is touched, and the same thing unforged logs in.

mod support;

use std::path::Path;
use std::sync::LazyLock;

use serde_json::{Value, json};
use support::account;
use support::control::{Control, Reply};
use support::scene::{Scene, grid_config};
use support::secured::Secured;
use whimbrel_proto::timeval::Timestamp;
use whimbrel_proto::x509::{Form, Policy};
use whimbrel_testkit::issuer::{Issuer, SigningKey, hs256, token};
use whimbrel_testkit::pki::{Member, Pki};
use whimbrel_trust::OwnChain;
use whimbrel_trust::make::{self, Draft, KeyKind, Life, ProxyKind, Purpose};

const ALICE: &str = "/O=Grid/CN=alice";

/// One authority for all tests: keys take their time.
static GRID: LazyLock<Grid> = LazyLock::new(|| {
    let pki = Pki::new().expect("an authority");
    let [alice, bob] = ["alice", "bob"].map(|name| pki.person(name).expect("a person"));
    Grid { host: pki.host(&["localhost"]).expect("a host"), pki, alice, bob }
});

struct Grid {
    pki: Pki,
    host: Member,
    alice: Member,
    bob: Member,
}

/// A server that knows alice, bob, and a person of another authority.
fn scene(authorities: &Path) -> Scene {
    let gridmap = authorities.with_file_name("grid-mapfile");
    let lines = [ALICE, "/O=Grid/CN=bob", "/O=Other/CN=carol"].map(|who| format!("{who:?} {}\n", account()));
    std::fs::write(&gridmap, lines.concat()).expect("written");
    Scene::open(&grid_config(&GRID.host.file, authorities, &gridmap))
}

fn now() -> i64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("after 1970");
    since.as_secs() as i64
}

fn between(from: i64, until: i64) -> Life {
    Life { from: Timestamp::from_secs(now() + from), until: Timestamp::from_secs(now() + until) }
}

fn hour() -> Life {
    between(-300, 3600)
}

fn proxy(signer: &OwnChain, form: Form, policy: Policy, path_length: Option<u32>) -> OwnChain {
    make::own_proxy(signer, KeyKind::P256, &ProxyKind { form, policy, path_length }, hour()).expect("a proxy")
}

fn full(signer: &OwnChain) -> OwnChain {
    proxy(signer, Form::Rfc, Policy::InheritAll, None)
}

/// A full proxy after `bend` has had its way with it.
fn bent(signer: &OwnChain, bend: impl FnOnce(Draft) -> Draft) -> OwnChain {
    let draft = make::proxy_draft(signer, &ProxyKind::rfc(Policy::InheritAll), hour()).expect("a draft");
    signed(bend(draft), signer)
}

/// A certificate for a new key, signed with a signer's.
fn signed(draft: Draft, signer: &OwnChain) -> OwnChain {
    let key = make::key(KeyKind::P256).expect("a key");
    let certificate = draft.sign(&key, &signer.key).expect("signed");
    let chain = std::iter::once(signer.certificate.clone()).chain(signer.chain.iter().cloned()).collect();
    OwnChain { certificate, key, chain }
}

fn name(one_line: &str) -> Vec<u8> {
    make::name(one_line).expect("a name")
}

fn person(subject: &str, signer: &OwnChain) -> OwnChain {
    make::issue(subject, KeyKind::P256, &Purpose::Person, hour(), signer).expect("a certificate")
}

fn authority(subject: &str) -> OwnChain {
    let key = make::key(KeyKind::P256).expect("a key");
    let certificate = make::authority(subject, &key, None, hour(), None).expect("an authority");
    OwnChain { certificate, key, chain: Vec::new() }
}

/// Adds an authority to a directory, with what it may sign; an empty text: no policy.
fn trust(directory: &Path, authority: &OwnChain, policy: &str) {
    let hash = authority.certificate.subject_name_hash();
    let put = |ending: &str, bytes: &[u8]| {
        std::fs::write(directory.join(format!("{hash:08x}.{ending}")), bytes).expect("written");
    };
    put("0", &authority.certificate.to_pem().expect("PEM"));
    if !policy.is_empty() {
        put("signing_policy", policy.as_bytes());
    }
}

fn policy(subjects: &str) -> String {
    format!("access_id_ANYBODY pos_rights globus CA:sign cond_subjects globus '\"{subjects}\"'")
}

impl Scene {
    /// It logs in, over both ways to show a certificate, and may read.
    #[track_caller]
    fn assert_takes(&self, who: &OwnChain) {
        let mut inside = Secured::gsi(self.addr(), who).unwrap_or_else(|reply| panic!("{}", reply.text));
        let reply = inside.login().expect("a reply");
        assert_eq!(reply.code, 230, "{}", reply.text);
        inside.ask_for(213, "SIZE /file");
        let mut inside = Secured::tls(self.addr(), Some(who)).expect("a handshake");
        let reply = inside.login().expect("a reply");
        assert!([230, 232].contains(&reply.code), "{}", reply.text);
        inside.ask_for(213, "SIZE /file");
    }

    /// It is refused over both ways: told why, or by an alert, and counted.
    #[track_caller]
    fn assert_refuses(&self, what: &str, who: &OwnChain, why: &str) {
        let before = self.server.metric("handshakes_failed_total");
        let reply = match Secured::gsi(self.addr(), who) {
            Err(reply) => reply,
            Ok(_) => panic!("{what} is somebody"),
        };
        println!("{what}: {}", reply.text.trim_end());
        assert!(reply.code == 530 || reply.code == 535, "{what}: {}", reply.text);
        assert!(reply.text.contains(why), "{what}: {}", reply.text);
        assert!(reply.text.lines().all(|line| line.starts_with("53")), "{what}: {}", reply.text);
        let shown = Secured::tls(self.addr(), Some(who)).map_err(|fault| fault.to_string());
        let alert = match shown.and_then(|mut inside| inside.login().map_err(|error| error.to_string())) {
            Err(alert) => alert,
            Ok(reply) => panic!("{what}: {}", reply.text),
        };
        assert!(alert.contains("refused"), "{what}: {alert}");
        assert_eq!(self.server.metric("handshakes_failed_total"), before + 2, "{what}");
    }
}

#[test]
fn nobody_is_who_he_says_because_he_has_signed_it_himself() {
    let scene = scene(&GRID.pki.certificates());
    let (alice, bob) = (&GRID.alice.own, &GRID.bob.own);
    scene.assert_takes(&full(alice));
    let twin = authority("/O=Grid/CN=Test CA");
    let impostor = person(ALICE, &twin);
    let brought = OwnChain { chain: vec![twin.certificate.clone()], ..impostor.clone() };
    let key = make::key(KeyKind::P256).expect("a key");
    let certificate = make::self_signed(ALICE, &key, &Purpose::Person, hour()).expect("signed");
    let alone = OwnChain { certificate, key, chain: Vec::new() };
    let by_bob = bent(bob, |draft| Draft { subject: name("/O=Grid/CN=alice"), extensions: Vec::new(), ..draft });
    // Of alice's name and with alice's certificate, but bob's key.
    let mallory = OwnChain { key: bob.key.clone(), ..alice.clone() };
    let below = bent(bob, |draft| Draft { subject: name("/O=Grid/CN=alice/CN=1"), ..draft });
    scene.assert_refuses("an authority of the same name", &impostor, "");
    scene.assert_refuses("an authority of the same name, brought along", &brought, "");
    scene.assert_refuses("signed by himself", &alone, "not trusted");
    scene.assert_refuses("an unknown authority", &person(ALICE, &authority("/O=Grid/CN=Nobody")), "is not trusted");
    scene.assert_refuses("a person signed by another", &by_bob, "");
    scene.assert_refuses("a proxy by another's key", &full(&mallory), "its signature is not that of its issuer");
    scene.assert_refuses("a proxy of another's name", &below, "a proxy's name must be its issuer's");
    scene.assert_refuses("an authority in person", GRID.pki.authority(), "speaks for nobody");
    scene.server.wait_for_log(&["an identity is refused", "/O=Grid/CN=alice"]);
    scene.assert_log_is_plain();
    scene.assert_takes(&full(bob));
    scene.assert_untouched();
    scene.assert_serves_others();
}

#[test]
fn proxies_give_no_more_than_was_given() {
    let scene = scene(&GRID.pki.certificates());
    let alice = &GRID.alice.own;
    let (legacy, limited) =
        (proxy(alice, Form::Legacy, Policy::InheritAll, None), proxy(alice, Form::Rfc, Policy::Limited, None));
    // What is near to each of those below, and good; each hands on one proxy more.
    for good in [&full(&full(alice)), &legacy, &limited, &proxy(alice, Form::Rfc, Policy::InheritAll, Some(1))] {
        scene.assert_takes(good);
    }
    let expired = bent(alice, |draft| Draft { life: between(-900, -60), ..draft });
    let below_expired = bent(&expired, |draft| Draft { life: between(-900, 900), ..draft });
    let to_come = bent(alice, |draft| Draft { life: between(600, 900), ..draft });
    let endless = (0..11).fold(alice.clone(), |above, _| full(&above));
    let short = full(&proxy(alice, Form::Rfc, Policy::InheritAll, Some(0)));
    // Signs itself: under a name of its own, and as one of alice's.
    let own_issuer = |issuer: &str| {
        let key = make::key(KeyKind::P256).expect("a key");
        let draft = make::proxy_draft(alice, &ProxyKind::rfc(Policy::InheritAll), hour()).expect("a draft");
        let draft = Draft { subject: name("/O=Grid/CN=alice/CN=1"), issuer: name(issuer), ..draft };
        let certificate = draft.sign(&key, &key).expect("signed");
        OwnChain { certificate, key, chain: vec![alice.certificate.clone()] }
    };
    let self_made = own_issuer("/O=Grid/CN=alice/CN=1");
    let self_delegated = full(&OwnChain { chain: vec![alice.certificate.clone()], ..own_issuer(ALICE) });
    for (what, chain, why) in [
        ("an expired proxy", &expired, "expired"),
        ("a good proxy below an expired one", &below_expired, "expired"),
        ("a proxy to come", &to_come, "not good before"),
        ("eleven proxies", &endless, "more than 10 proxies"),
        ("one more than its signer allows", &short, "more proxies are below it"),
        ("a legacy proxy below one of RFC 3820", &proxy(&full(alice), Form::Legacy, Policy::InheritAll, None), "mixes"),
        ("a proxy of RFC 3820 below a legacy one", &full(&legacy), "mixes"),
        ("a full proxy below a limited one", &full(&limited), "a full proxy cannot come from a limited one"),
        ("a proxy that is its own issuer", &self_made, ""),
        ("a proxy below one that signed itself in alice's name", &self_delegated, "not that of its issuer"),
    ] {
        scene.assert_refuses(what, chain, why);
    }
    scene.server.wait_for_log(&["an identity is refused", "expired"]);
    scene.assert_log_is_plain();
    scene.assert_takes(&full(alice));
    scene.assert_untouched();
    scene.assert_serves_others();
}

#[test]
fn authorities_speak_for_whom_they_may_and_take_back_what_they_said() {
    let pki = Pki::new().expect("an authority");
    let [alice, bob] = ["alice", "bob"].map(|name| pki.person(name).expect("a person"));
    let directory = pki.certificates();
    let (other, wild) = (authority("/O=Other/CN=CA"), authority("/O=Wild/CN=CA"));
    trust(&directory, &other, &policy("/O=Other/*"));
    trust(&directory, &wild, "");
    pki.revoke(&[&alice]).expect("a list");
    let scene = scene(&directory);
    scene.assert_takes(&full(&bob.own));
    scene.assert_takes(&person("/O=Other/CN=carol", &other));
    scene.assert_refuses("a revoked certificate", &alice.own, "has revoked it");
    scene.assert_refuses("a proxy of a revoked certificate", &full(&alice.own), "has revoked it");
    scene.assert_refuses("a name beyond the policy", &person("/O=Grid/CN=bob", &other), "does not let it sign");
    scene.assert_refuses("an authority without a policy", &person("/O=Wild/CN=x", &wild), "there is no ");
    scene.server.wait_for_log(&["an identity is refused", "has revoked it"]);
    scene.assert_log_is_plain();
    scene.assert_untouched();
    scene.assert_serves_others();
}

#[test]
fn what_is_handed_on_is_ones_own() {
    let scene = scene(&GRID.pki.certificates());
    let (alice, bob) = (full(&GRID.alice.own), full(&GRID.bob.own));
    let forged = OwnChain { key: bob.key.clone(), ..alice.clone() };
    let old = bent(&GRID.alice.own, |draft| Draft { life: between(-900, -60), ..draft });
    scene.assert_takes(&alice);
    for (what, other, why) in [
        ("somebody else's rights", &bob, "the delegated proxy is not the peer's"),
        ("rights signed by somebody else", &forged, "the delegated proxy is not signed by the peer"),
        ("rights of another proxy of one's own", &full(&GRID.alice.own), "the delegated proxy is not the peer's"),
        ("rights of an expired proxy", &old, "the delegated proxy"),
    ] {
        let reply = match Secured::gsi_handing_on(scene.addr(), &alice, other) {
            Err(reply) => reply,
            Ok(_) => panic!("{what} are taken"),
        };
        assert!(reply.text.starts_with("53") && reply.text.contains(why), "{what}: {}", reply.text);
        scene.server.wait_for_log(&["an identity is refused", why]);
    }
    scene.assert_log_is_plain();
    scene.assert_untouched();
    scene.assert_serves_others();
}

#[test]
fn what_was_recorded_of_a_login_is_nobodys_again() {
    let scene = scene(&GRID.pki.certificates());
    let alice = full(&GRID.alice.own);
    let mut honest = Secured::gsi(scene.addr(), &alice).unwrap_or_else(|reply| panic!("{}", reply.text));
    assert_eq!(honest.login().expect("a reply").code, 230);
    assert!(honest.tokens.len() >= 4, "{} tokens", honest.tokens.len());
    // From its beginning, and each as a first one.
    for from in 0..honest.tokens.len() {
        let mut thief = Control::open(scene.addr());
        thief.ask_for(334, "AUTH GSSAPI");
        for (number, token) in honest.tokens[from..].iter().enumerate() {
            let reply = thief.ask(&format!("ADAT {token}"));
            assert!(
                reply.code == 335 && number == 0 && from == 0 || (530..540).contains(&reply.code),
                "{}",
                reply.text
            );
            if reply.code != 335 {
                break;
            }
        }
        thief.ask_for(530, "SIZE /file");
    }
    scene.server.wait_for_log(&["an identity is refused"]);
    // A line that was said inside is not heard again, neither there nor elsewhere.
    let line = honest.seal("MKD /free/bystander").expect("sealed");
    let mut elsewhere = Secured::gsi(scene.addr(), &alice).unwrap_or_else(|reply| panic!("{}", reply.text));
    assert_eq!(elsewhere.login().expect("a reply").code, 230);
    for session in [&mut honest, &mut elsewhere] {
        session.send(&line).expect("taken");
        if let Ok(reply) = session.try_reply() {
            assert_eq!(reply.code, 257, "{}", reply.text);
            std::fs::remove_dir(scene.path("root/free/bystander")).expect("it was said once");
            session.send(&line).expect("taken");
            assert!(session.try_reply().is_err(), "it was heard twice");
        }
        assert!(!scene.path("root/free/bystander").exists());
    }
    scene.server.wait_for_log(&["the protection of a control connection failed"]);
    scene.assert_log_is_plain();
    scene.assert_untouched();
    scene.assert_serves_others();
}

/// Names of strangers come into replies and logs before anybody has vouched for them.
#[test]
fn names_in_certificates_write_neither_replies_nor_lines_of_the_log() {
    let scene = scene(&GRID.pki.certificates());
    // A part of a name has 64 characters.
    let evil = "\r\n230 Welcome\r\n2026-11-22T00:00:00Z  INFO in\u{1b}[2J\u{202e}";
    let authority = authority(&format!("/O=Evil/CN={evil}"));
    let stranger = person(&format!("/O=Grid/CN=eve{evil}"), &authority);
    let reply = match Secured::gsi(scene.addr(), &stranger) {
        Err(reply) => reply,
        Ok(_) => panic!("a stranger is somebody"),
    };
    assert!(reply.text.lines().all(|line| line.starts_with("530")), "{:?}", reply.text);
    assert!(reply.text.contains("Welcome"), "what was shown is named: {:?}", reply.text);
    scene.server.wait_for_log(&["an identity is refused", "Welcome"]);
    scene.assert_log_is_plain();
    assert!(!scene.server.log().lines().any(|line| line.starts_with("2026-11-22T00:00:00Z")));
    scene.assert_takes(&full(&GRID.alice.own));
    scene.assert_untouched();
    scene.assert_serves_others();
}

const AUDIENCE: &str = "https://dtn.example.org";

struct Tokens {
    issuer: Issuer,
    rsa: SigningKey,
    ec: SigningKey,
}

impl Tokens {
    fn new() -> (Self, Scene) {
        let [rsa, ec] = [SigningKey::rs256("rsa"), SigningKey::es256("ec")].map(|key| key.expect("a key"));
        let issuer = Issuer::start(&GRID.pki, &[&rsa, &ec]).expect("an issuer");
        let scene = Scene::open(&format!(
            "[tls]\ncertificate = {host:?}\nkey = {host:?}\n[tokens]\naudience = [{AUDIENCE:?}]\nauthorities = {:?}\n\
             [[tokens.issuer]]\nurl = {:?}\nwithout_scopes = true\naccounts = [{:?}]\n",
            issuer.authority(),
            issuer.url(),
            account(),
            host = GRID.host.file,
        ));
        (Self { issuer, rsa, ec }, scene)
    }

    /// Claims of a good token, with a change.
    fn claims(&self, change: &[(&str, Value)]) -> Value {
        let mut claims = self.issuer.claims(AUDIENCE, "openid");
        for (name, value) in change {
            claims[*name] = value.clone();
        }
        // What is nothing is not there.
        claims.as_object_mut().expect("claims have names").retain(|_, value| !value.is_null());
        claims
    }
}

/// A header with another value in one place.
fn header(key: &SigningKey, name: &str, value: Value) -> Value {
    let mut header = key.header();
    header[name] = value;
    header
}

impl Scene {
    /// Shows a token over TLS; the session, and the last reply.
    fn show(&self, token: &str) -> (Secured, Reply) {
        let mut inside = Secured::tls(self.addr(), None).expect("a handshake");
        inside.ask_for(331, "USER bearer");
        let reply = inside.ask(&format!("PASS {token}"));
        (inside, reply)
    }
}

#[test]
fn tokens_are_those_of_the_issuer_for_this_server_at_this_time() {
    let (tokens, scene) = Tokens::new();
    let (rsa, ec) = (&tokens.rsa, &tokens.ec);
    let good = tokens.claims(&[]);
    for key in [rsa, ec] {
        let (mut inside, reply) = scene.show(&key.sign(&good));
        assert_eq!(reply.code, 230, "{}", reply.text);
        inside.ask_for(213, "SIZE /file");
    }
    let with = |change: (&str, Value)| rsa.sign(&tokens.claims(&[change]));
    let stranger = SigningKey::rs256("rsa").expect("a key");
    let public = rsa.public_pem();
    let shown = stranger.shown();
    let tail = |token: &str| token.rsplit_once('.').map(|(text, _)| format!("{text}.")).expect("two dots");
    let swapped = {
        let (one, other) = (rsa.sign(&good), with(("sub", json!("root"))));
        let text = other.rsplit_once('.').expect("a dot").0.to_owned();
        format!("{text}.{}", one.rsplit_once('.').expect("a dot").1)
    };
    let keyed = |key: &[u8]| token(&header(rsa, "alg", json!("HS256")), &good, |text| hs256(key, text));
    let none = |algorithm: &str| token(&header(rsa, "alg", json!(algorithm)), &good, |_| Vec::new());
    for (what, token, why) in [
        ("for another audience", with(("aud", json!("https://other.example.org"))), "not for this server"),
        ("for nobody", with(("aud", json!([]))), "audience"),
        ("expired", with(("exp", json!(now() - 600))), "has expired"),
        ("without an end", with(("exp", Value::Null)), "exp"),
        ("not good yet", with(("nbf", json!(now() + 600))), "not good yet"),
        ("about nobody", with(("sub", Value::Null)), "sub"),
        ("of another profile", with(("wlcg.ver", json!("2.0"))), "version 2.0"),
        ("with a scope that names no path", with(("scope", json!("storage.read"))), "names no path"),
        ("with a scope that leads up", with(("scope", json!("storage.read:/a/../b"))), "not absolute and normal"),
        ("not signed", none("none"), "\"none\""),
        ("not signed, in other letters", none("nOnE"), "\"nOnE\""),
        ("with an empty signature", tail(&rsa.sign(&good)), ""),
        ("with another's signature", swapped, "its signature is wrong"),
        ("signed with the public key as a secret", keyed(&public), "\"HS256\""),
        ("by a key of the same name", stranger.sign(&good), "its signature is wrong"),
        ("by a key it brings along", stranger.sign_as(&header(rsa, "jwk", shown), &good), "its signature is wrong"),
        ("with demands", rsa.sign_as(&header(rsa, "crit", json!(["exp"])), &good), "demands"),
        ("of another kind of key", ec.sign_as(&header(rsa, "alg", json!("RS256")), &good), "its signature is wrong"),
        ("that is no access token", rsa.sign_as(&header(rsa, "typ", json!("logout+jwt")), &good), "no access token"),
        ("by an unknown key", rsa.sign_as(&header(rsa, "kid", json!("other")), &good), "none of its issuer's keys"),
        ("of another issuer", with(("iss", json!("https://evil.example.org/"))), "Login incorrect"),
    ] {
        let (mut inside, reply) = scene.show(&token);
        println!("{what}: {}", reply.text.trim_end());
        assert_eq!(reply.code, 530, "{what}: {}", reply.text);
        assert!(reply.text.contains(why), "{what}: {}", reply.text);
        inside.ask_for(530, "DELE /file");
        assert!(!scene.server.log().contains(&token[..60]), "{what}: it is in the log");
    }
    scene.server.wait_for_log(&["login refused", "none of its issuer's keys"]);
    scene.assert_log_is_plain();
    assert_eq!(scene.show(&ec.sign(&good)).1.code, 230);
    scene.assert_untouched();
    scene.assert_serves_others();
}

#[test]
fn a_token_opens_the_paths_of_its_scopes_and_no_other() {
    let (tokens, scene) = Tokens::new();
    let read = tokens.rsa.sign(&tokens.claims(&[("scope", json!("storage.read:/free storage.create:/free/in"))]));
    std::fs::write(scene.path("root/free/bystander"), "for everybody").expect("made");
    let (mut inside, reply) = scene.show(&read);
    assert_eq!(reply.code, 230, "{}", reply.text);
    inside.ask_for(213, "SIZE /free/bystander");
    for line in [
        "SIZE /file",
        "SIZE /shut/secret",
        "SIZE /free/../file",
        "CKSM MD5 0 -1 /file",
        "DELE /free/bystander",
        "SITE CHMOD 777 /free/bystander",
        "MKD /new",
        "MKD /free/new",
        "SITE SYMLINK /file /free/in/link",
    ] {
        let reply = inside.ask(line);
        let made = line.starts_with("SITE SYMLINK") && reply.code == 250;
        assert!(made || (500..560).contains(&reply.code), "{line}: {}", reply.text);
    }
    // A link that it may make leads nowhere that it may not go.
    let reply = inside.ask("SIZE /free/in/link");
    assert!((500..560).contains(&reply.code), "{}", reply.text);
    for line in ["RETR /file", "STOR /free/bystander", "STOR /free/other", "MLSD /shut"] {
        inside.ask_for(200, "PROT C");
        inside.passive();
        let reply = inside.ask(line);
        assert!((400..560).contains(&reply.code), "{line}: {}", reply.text);
    }
    // In clear it would be everybody's.
    let mut clear = Control::open(scene.addr());
    clear.ask_for(331, "USER anonymous");
    let reply = clear.ask(&format!("PASS {read}"));
    assert!(reply.code == 530 && reply.text.contains("Tokens are not taken"), "{}", reply.text);
    assert_eq!(std::fs::read(scene.path("root/free/bystander")).expect("there"), b"for everybody");
    std::fs::remove_file(scene.path("root/free/bystander")).expect("removed");
    scene.assert_untouched();
    scene.assert_serves_others();
}
