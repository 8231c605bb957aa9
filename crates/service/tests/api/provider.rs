//! People of another provider log in: the provider is as strict as the specification, and then it lies.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use axum::body::Body;
use axum::http::header::{CONTENT_TYPE, COOKIE};
use axum::http::{Method, Request};
use serde_json::{Value, json};
use whimbrel_engine::listing::Timestamp;
use whimbrel_service::auth::clients::MadeClient;
use whimbrel_service::auth::identities::NewIdentity;
use whimbrel_service::auth::provider::Settings;
use whimbrel_service::auth::records::Identity;
use whimbrel_service::clock::{Clock as _, SetClock};
use whimbrel_service::store::Store;
use whimbrel_testkit::issuer::{Issuer, Registered, SigningKey};
use whimbrel_testkit::pki::Pki;
use whimbrel_trust::roots::SystemRoots;

use crate::bench::{Bench, Got, URL};
use crate::logins::{VERIFIER, client, exchange, path};

const LANDING: &str = "http://localhost:4321?";

/// Changes claims before they are signed.
type Spoil = fn(&mut Value);

/// A service with a provider.
struct Site {
    bench: Bench,
    issuer: Issuer,
    registered: Registered,
    key: SigningKey,
    program: MadeClient,
}

/// A browser that came to the login page.
struct Browser<'a> {
    site: &'a Site,
    cookies: Vec<String>,
    path: String,
    ticket: String,
    page: Got,
}

fn now() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() as i64
}

impl Site {
    async fn new(change: impl FnOnce(&mut Settings)) -> Self {
        Self::with(false, change).await
    }

    async fn with(by_form: bool, change: impl FnOnce(&mut Settings)) -> Self {
        let pki = Pki::new().unwrap();
        let key = SigningKey::rs256("one").unwrap();
        let issuer = Issuer::start(&pki, &[&key]).unwrap();
        let (id, secret) = ("whimbrel".to_owned(), "s3c+ret".to_owned());
        let redirect = format!("{URL}/v2/oauth2/provider");
        // Basic encodes what a form encodes (RFC 6749 §2.3.1).
        let kept = if by_form { secret.clone() } else { "s3c%2Bret".to_owned() };
        let registered = Registered { id: id.clone(), secret: kept, redirect, by_form };
        issuer.register(registered.clone(), key.clone());
        let mut settings = Settings {
            issuer: issuer.url(),
            label: "University <of> Example".to_owned(),
            client: id,
            secret: secret.into(),
            domain: "uni.example".to_owned(),
            claim: "preferred_username".to_owned(),
            only: false,
            roots: SystemRoots::of(vec![pki.authority().certificate.clone()]).unwrap(),
        };
        change(&mut settings);
        let bench = Bench::with(Arc::new(SetClock::at(now())), Store::open("sqlite::memory:").await.unwrap());
        bench.service.auth.provider.begin(settings);
        let program = client(&bench, false).await;
        Self { bench, issuer, registered, key, program }
    }

    /// Id tokens are signed by this key from now on.
    fn register(&self, key: SigningKey) {
        self.issuer.register(self.registered.clone(), key);
    }

    async fn browser(&self) -> Browser<'_> {
        let path = path(&self.program, &[]);
        let page = self.bench.ask(Method::GET, &path, None, None).await;
        assert_eq!(page.status, 200, "{page:?}");
        let ticket =
            page.text.split_once("name=\"ticket\" value=\"").map_or("", |(_, rest)| rest.split_once('"').unwrap().0);
        let cookies = vec![pair(page.cookie.as_ref().unwrap())];
        Browser { site: self, cookies, path, ticket: ticket.to_owned(), page }
    }

    /// A whole login of somebody with these claims.
    async fn log_in(&self, claims: Value) -> Got {
        let mut browser = self.browser().await;
        let asked = browser.depart().await;
        let back = self.issuer.log_in(&asked, &claims).expect("what is asked is fine");
        browser.arrive(&back).await
    }

    /// The identity of a login that went well.
    async fn identity(&self, claims: Value) -> Identity {
        let got = self.log_in(claims).await;
        let location = got.location.clone().unwrap_or_else(|| panic!("{got:?}"));
        let fields: Vec<_> =
            form_urlencoded::parse(location.strip_prefix(LANDING).unwrap().as_bytes()).into_owned().collect();
        assert_eq!((fields[0].0.as_str(), &fields[1]), ("code", &("state".to_owned(), "a b".to_owned())), "{location}");
        let document = exchange(&self.bench, &self.program, &fields[0].1, VERIFIER).await.good();
        let info = self.bench.get("/v2/oauth2/userinfo", document["access_token"].as_str().unwrap()).await.good();
        self.bench.service.identity(serde_json::from_value(info["sub"].clone()).unwrap()).await.unwrap().unwrap()
    }

    /// The error that the program is told.
    async fn error(&self, claims: Value) -> String {
        told(&self.log_in(claims).await)
    }
}

/// The error in the place that a browser is sent to.
fn told(got: &Got) -> String {
    let location = got.location.clone().unwrap_or_else(|| panic!("{got:?}"));
    let fields: Vec<_> =
        form_urlencoded::parse(location.strip_prefix(LANDING).unwrap().as_bytes()).into_owned().collect();
    let of = |name: &str| fields.iter().find(|(given, _)| given == name).map(|(_, value)| value.clone());
    assert_eq!((of("code"), of("state").as_deref()), (None, Some("a b")), "{location}");
    format!("{}: {}", of("error").unwrap(), of("error_description").unwrap())
}

/// Name and value of a cookie.
fn pair(cookie: &str) -> String {
    cookie.split_once(';').unwrap().0.to_owned()
}

impl Browser<'_> {
    async fn post(&mut self, fields: &[(&str, &str)]) -> Got {
        let body = form_urlencoded::Serializer::new(String::new()).extend_pairs(fields).finish();
        let request = Request::builder().method(Method::POST).uri(&self.path).header(COOKIE, self.cookies.join("; "));
        let request = request.header(CONTENT_TYPE, "application/x-www-form-urlencoded");
        let got = self.site.bench.send(request.body(Body::from(body)).unwrap()).await;
        self.cookies.extend(got.cookie.as_deref().map(pair));
        got
    }

    /// Presses the provider's button; where that leads.
    async fn depart(&mut self) -> String {
        let ticket = self.ticket.clone();
        let got = self.post(&[("ticket", &ticket), ("by", "provider")]).await;
        assert_eq!(got.status, 303, "{got:?}");
        let cookie = got.cookie.unwrap();
        assert!(
            cookie.contains("SameSite=Lax") && cookie.contains("HttpOnly; ") && cookie.ends_with("; Secure"),
            "{cookie}"
        );
        got.location.unwrap()
    }

    async fn arrive(&self, back: &str) -> Got {
        let path = back.strip_prefix(URL).unwrap();
        let request = Request::builder().uri(path).header(COOKIE, self.cookies.join("; "));
        self.site.bench.send(request.body(Body::empty()).unwrap()).await
    }
}

fn ada(extra: &Value) -> Value {
    let mut claims = json!({"sub": "7", "preferred_username": "Ada", "name": "Ada Byron", "email": "ada@uni.example"});
    claims.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
    claims
}

#[tokio::test]
async fn somebody_of_another_provider_logs_in_and_is_the_same_ever_after() {
    for by_form in [false, true] {
        let site = Site::with(by_form, |_| {}).await;
        let first = site.identity(ada(&json!({"email_verified": true}))).await;
        assert_eq!((first.username.as_str(), first.name.as_str()), ("ada@uni.example", "Ada Byron"));
        assert_eq!((first.email.as_deref(), first.admin), (Some("ada@uni.example"), false));
        // Names may change at the provider; who it is does not.
        let again = site.identity(json!({"sub": "7", "preferred_username": "countess"})).await;
        assert_eq!(again, first);
        let other = site.identity(json!({"sub": "8", "preferred_username": "bob", "email": "b@x.example"})).await;
        assert!(other.id != first.id && other.email.is_none(), "an address that nobody has verified is none");
        // Nobody else comes by the name, whatever they call themselves now.
        let error = site.error(json!({"sub": "9", "preferred_username": "ADA"})).await;
        assert!(error.starts_with("access_denied: ada@uni.example is somebody else's"), "{error}");
        let found = site.bench.service.identity_by_name("ada@uni.example").await.unwrap().unwrap();
        assert_eq!(found, first);
    }
}

#[tokio::test]
async fn what_was_given_to_a_name_beforehand_is_theirs_who_comes_by_it() {
    let site = Site::new(|_| {}).await;
    let new = NewIdentity { username: "ada@uni.example".to_owned(), admin: true, ..NewIdentity::default() };
    let waiting = site.bench.service.add_identity(new).await.unwrap();
    let come = site.identity(ada(&json!({}))).await;
    assert_eq!((come.id, come.admin), (waiting.id, true));
    let closed = NewIdentity { username: "bob@uni.example".to_owned(), ..NewIdentity::default() };
    let closed = site.bench.service.add_identity(closed).await.unwrap();
    site.bench.service.set_disabled(closed.id, true, waiting.id).await.unwrap();
    let error = site.error(json!({"sub": "8", "preferred_username": "bob"})).await;
    assert!(error.contains("somebody else's"), "{error}");
}

#[tokio::test]
async fn a_closed_account_stays_closed() {
    let site = Site::new(|_| {}).await;
    let (known, other) =
        (site.identity(ada(&json!({}))).await, site.identity(json!({"sub": "8", "preferred_username": "bob"})).await);
    site.bench.service.set_disabled(known.id, true, other.id).await.unwrap();
    let got = site.log_in(ada(&json!({}))).await;
    assert!(got.status == 403 && got.location.is_none() && got.text.contains("ada@uni.example is closed"), "{got:?}");
}

#[tokio::test]
async fn an_answer_is_good_once_and_in_the_browser_that_was_sent() {
    let site = Site::new(|_| {}).await;
    let mut browser = site.browser().await;
    let asked = browser.depart().await;
    let back = site.issuer.log_in(&asked, &ada(&json!({}))).unwrap();
    let mut other = site.browser().await;
    for _ in 0..2 {
        let got = other.arrive(&back).await;
        assert!(got.status == 403 && got.location.is_none() && got.text.contains("another browser"), "{got:?}");
        // Also one that is on its way itself.
        other.depart().await;
    }
    let good = browser.arrive(&back).await;
    assert!(good.location.as_ref().unwrap().contains("?code=") && good.cookie.unwrap().contains("Max-Age=0"));
    let again = browser.arrive(&back).await;
    assert_eq!((again.status, again.location), (403, None));

    let mut late = site.browser().await;
    let asked = late.depart().await;
    let back = site.issuer.log_in(&asked, &ada(&json!({}))).unwrap();
    site.bench.clock.advance(900);
    assert_eq!(late.arrive(&back).await.status, 403);

    let mut forged = site.browser().await;
    let got = forged.post(&[("ticket", "x"), ("by", "provider")]).await;
    assert_eq!((got.status, got.location), (403, None), "a form of another site leads nowhere");
}

#[tokio::test]
async fn what_the_provider_does_not_vouch_for_lets_nobody_in() {
    let site = Site::new(|_| {}).await;
    let spoilt: [(&str, Spoil); 7] = [
        ("nonce", |claims| claims["nonce"] = json!("another")),
        ("nonce", |claims| drop(claims.as_object_mut().unwrap().remove("nonce"))),
        ("for", |claims| claims["aud"] = json!("other")),
        ("azp", |claims| (claims["aud"], claims["azp"]) = (json!(["whimbrel", "other"]), json!("other"))),
        ("expired", |claims| claims["exp"] = json!(now() - 120)),
        ("issuer", |claims| claims["iss"] = json!("https://elsewhere.example/")),
        ("sub", |claims| drop(claims.as_object_mut().unwrap().remove("sub"))),
    ];
    for (word, change) in spoilt {
        site.issuer.spoil(change);
        let error = site.error(ada(&json!({}))).await;
        assert!(error.starts_with("server_error") && error.contains(word), "{word}: {error}");
    }
    for name in ["ada@elsewhere.example", "ada@example.org", "a b", ""] {
        let error = site.error(json!({"sub": "7", "preferred_username": name})).await;
        assert!(error.starts_with("access_denied: "), "{name:?}: {error}");
    }
    let mut browser = site.browser().await;
    let asked = browser.depart().await;
    let back = site.issuer.log_in(&asked, &ada(&json!({}))).unwrap();
    let got = browser.arrive(&format!("{back}&iss=https%3A%2F%2Fother.example")).await;
    assert!(told(&got).contains("another provider's"), "{got:?}");

    let mut browser = site.browser().await;
    let asked = browser.depart().await;
    let back = site.issuer.log_in(&asked, &ada(&json!({}))).unwrap();
    let state = back.split_once("&state=").unwrap().1;
    let got = browser.arrive(&format!("{URL}/v2/oauth2/provider?error=access_denied&state={state}")).await;
    assert!(told(&got).contains("did not let you in (access_denied)"), "{got:?}");

    // A key that it does not show, under the name of one that it does; then under a name of its own.
    for name in ["one", "two"] {
        site.register(SigningKey::rs256(name).unwrap());
        let error = site.error(ada(&json!({}))).await;
        assert!(error.starts_with("server_error") && error.contains("sign"), "{error}");
    }
    assert!(site.bench.service.identity_by_name("ada@uni.example").await.unwrap().is_none(), "nobody came of all that");
    site.register(site.key.clone());
    site.identity(ada(&json!({}))).await;
    // Keys are changed: the new one is fetched when it is met, which strangers cannot bring about at will.
    let new = SigningKey::rs256("three").unwrap();
    site.issuer.show(&[&new]).unwrap();
    site.register(new);
    site.bench.clock.advance(60);
    site.identity(ada(&json!({}))).await;
}

#[tokio::test]
async fn the_page_offers_what_there_is() {
    let site = Site::new(|_| {}).await;
    let page = site.browser().await.page;
    assert!(page.text.contains("Log in with University &lt;of&gt; Example and allow"), "{}", page.text);
    assert!(page.text.contains("type=\"password\"") && page.text.matches("<form").count() == 2);
    site.issuer.fall_silent();
    site.bench.clock.advance(3600);
    let page = site.browser().await.page;
    assert!(
        page.text.contains("cannot be reached at this moment") && page.text.matches("<form").count() == 1,
        "{}",
        page.text
    );

    let site = Site::new(|settings| settings.only = true).await;
    site.bench.service.bootstrap_person("bob@example.org", "s3cret", false).await.unwrap();
    let mut browser = site.browser().await;
    assert!(!browser.page.text.contains("password"), "{}", browser.page.text);
    let ticket = browser.ticket.clone();
    let got = browser.post(&[("ticket", &ticket), ("username", "bob"), ("password", "s3cret")]).await;
    assert_eq!((got.status, got.location), (403, None));

    let site = Site::new(|settings| settings.issuer = settings.issuer.trim_end_matches('/').to_owned()).await;
    let page = site.browser().await.page;
    assert!(page.text.contains("cannot be reached"), "it describes itself by another name: {}", page.text);

    let none = Bench::new().await;
    assert_eq!(none.ask(Method::GET, "/v2/oauth2/provider?state=x&code=y", None, None).await.status, 404);
}

#[tokio::test]
async fn logins_that_nobody_ends_are_few_and_forgotten() {
    let site = Site::new(|_| {}).await;
    let hour = Timestamp::from_secs(site.bench.clock.now().secs + 900);
    let mut browser = site.browser().await;
    let ticket = browser.ticket.clone();
    let mut begun = 0;
    let refused = loop {
        let got = browser.post(&[("ticket", &ticket), ("by", "provider")]).await;
        if got.status != 303 {
            break got;
        }
        begun += 1;
        assert!(begun < 1000, "nobody stops it");
    };
    assert!(refused.status == 429 && refused.text.contains("Too many logins from your network"), "{refused:?}");
    site.bench.clock.advance(2 * 3600);
    let forgotten = site.bench.service.forget_expired(hour).await.unwrap();
    assert_eq!(forgotten, begun);
}
