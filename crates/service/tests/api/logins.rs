//! People log in with a browser.

use axum::body::Body;
use axum::http::header::{AUTHORIZATION, CONTENT_TYPE, COOKIE};
use axum::http::{Method, Request};
use base64ct::{Base64, Base64UrlUnpadded, Encoding};
use openssl::pkey::PKey;
use openssl::sign::Verifier;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use whimbrel_service::auth::clients::{MadeClient, NewClient};
use whimbrel_service::auth::records::{Client, Role, Token};
use whimbrel_service::auth::scope::{Scope, TransferAll};
use whimbrel_service::store::Batch;

use crate::bench::{Bench, Got, URL};

const SCOPES: &str = "openid profile email urn:globus:auth:scope:transfer.api.globus.org:all";
const BACK: &str = "http://localhost:4321";
pub const VERIFIER: &str = "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk";

pub async fn client(bench: &Bench, confidential: bool) -> MadeClient {
    let redirects = vec!["http://localhost".to_owned(), "https://app.example.org/back".to_owned()];
    let name = "Try <b>it</b>".to_owned();
    bench
        .service
        .add_client(NewClient {
            name,
            role: Role::Program,
            confidential,
            logins: true,
            template: false,
            redirects,
            id: None,
        })
        .await
        .unwrap()
}

pub fn path(client: &MadeClient, changes: &[(&str, &str)]) -> String {
    let challenge = Base64UrlUnpadded::encode_string(&Sha256::digest(VERIFIER));
    let id = client.client.id.to_string();
    let mut fields = vec![
        ("client_id", id.as_str()),
        ("redirect_uri", BACK),
        ("response_type", "code"),
        ("scope", SCOPES),
        ("state", "a b"),
        ("access_type", "offline"),
        ("code_challenge", &challenge),
        ("code_challenge_method", "S256"),
    ];
    for (name, value) in changes {
        fields.retain(|(known, _)| known != name);
        if !value.is_empty() {
            fields.push((name, value));
        }
    }
    format!("/v2/oauth2/authorize?{}", form_urlencoded::Serializer::new(String::new()).extend_pairs(fields).finish())
}

/// What a browser has of the page: its cookie, and the ticket in its form.
pub async fn opened(bench: &Bench, path: &str) -> (String, String) {
    let page = bench.ask(Method::GET, path, None, None).await;
    assert_eq!(page.status, 200, "{page:?}");
    assert!(page.text.contains("Try &lt;b&gt;it&lt;/b&gt;") && !page.text.contains("<script"), "{}", page.text);
    let cookie = page.cookie.unwrap();
    assert!(cookie.starts_with("__Host-") && cookie.contains("HttpOnly") && cookie.contains("Secure"), "{cookie}");
    let ticket = page.text.split_once("name=\"ticket\" value=\"").unwrap().1.split_once('"').unwrap().0;
    (cookie.split_once(';').unwrap().0.to_owned(), ticket.to_owned())
}

pub async fn log_in(bench: &Bench, path: &str, cookie: &str, ticket: &str, password: &str) -> Got {
    let fields = [("ticket", ticket), ("username", "Ada"), ("password", password)];
    let body = form_urlencoded::Serializer::new(String::new()).extend_pairs(fields).finish();
    let request = Request::builder().method(Method::POST).uri(path).header(COOKIE, cookie);
    let request = request.header(CONTENT_TYPE, "application/x-www-form-urlencoded");
    bench.send(request.body(Body::from(body)).unwrap()).await
}

/// A code of Ada's.
async fn code(bench: &Bench, path: &str) -> String {
    let (cookie, ticket) = opened(bench, path).await;
    let got = log_in(bench, path, &cookie, &ticket, "s3cret").await;
    assert_eq!(got.status, 303, "{got:?}");
    let location = got.location.unwrap();
    let query = location.strip_prefix("http://localhost:4321?").unwrap();
    let fields: Vec<_> = form_urlencoded::parse(query.as_bytes()).into_owned().collect();
    assert_eq!(fields[1], ("state".to_owned(), "a b".to_owned()));
    fields[0].1.clone()
}

pub async fn exchange(bench: &Bench, client: &MadeClient, code: &str, verifier: &str) -> Got {
    let id = client.client.id.to_string();
    let fields = [
        ("grant_type", "authorization_code"),
        ("code", code),
        ("redirect_uri", BACK),
        ("client_id", &id),
        ("code_verifier", verifier),
    ];
    bench.form("/v2/oauth2/token", client.secret.as_ref().map(|_| client), &fields).await
}

#[tokio::test]
async fn a_person_logs_in_and_the_program_gets_tokens_that_it_can_renew() {
    let bench = Bench::new().await;
    let ada = bench.service.bootstrap_person("ada@example.org", "s3cret", false).await.unwrap();
    for confidential in [false, true] {
        let client = client(&bench, confidential).await;
        let code = code(&bench, &path(&client, &[])).await;
        let document = exchange(&bench, &client, &code, VERIFIER).await.good();
        assert_eq!(document["other_tokens"][0]["resource_server"], "transfer.api.globus.org");
        let info = bench.get("/v2/oauth2/userinfo", document["access_token"].as_str().unwrap()).await.good();
        assert_eq!(info["sub"], json!(ada.id));
        id_token(&bench, &client, document["id_token"].as_str().unwrap(), &ada.id.to_string()).await;

        let again = exchange(&bench, &client, &code, VERIFIER).await;
        assert_eq!((again.status, again.code().as_str()), (400, "invalid_grant"), "a code is good once");

        let refresh = document["other_tokens"][0]["refresh_token"].as_str().unwrap();
        let id = client.client.id.to_string();
        let fields = [("grant_type", "refresh_token"), ("refresh_token", refresh), ("client_id", &id)];
        let shown = client.secret.as_ref().map(|_| &client);
        let renewed = bench.form("/v2/oauth2/token", shown, &fields).await.good();
        assert_eq!(
            (&renewed["resource_server"], &renewed["refresh_token"]),
            (&json!("transfer.api.globus.org"), &json!(refresh))
        );
        // Revoking the refresh token ends what came of it.
        let token = renewed["access_token"].as_str().unwrap();
        assert_eq!(bench.get("/v0.10/bookmark_list", token).await.status, 200);
        bench.form("/v2/oauth2/token/revoke", shown, &[("token", refresh), ("client_id", &id)]).await.good();
        assert_eq!(bench.get("/v0.10/bookmark_list", token).await.status, 401);
        assert_eq!(bench.form("/v2/oauth2/token", shown, &fields).await.code(), "invalid_grant");
    }
}

/// One that a program made for itself, as anybody on the network may.
async fn of_template(bench: &Bench) -> MadeClient {
    let wish = json!({"client": {"template_id": "95fdeba8-fac2-42bd-a357-e068d82ff78e", "name": "Try <b>it</b>"}});
    let made = bench.ask(Method::POST, "/v2/api/clients", None, Some(wish)).await.good();
    let made = &made["included"]["client_credential"];
    let client = bench.service.store.get::<Client>(made["client"].as_str().unwrap()).await.unwrap().unwrap().record;
    MadeClient { client, secret: Some(made["secret"].as_str().unwrap().to_owned()) }
}

/// What it is refused in its own name.
async fn is_nobody(bench: &Bench, client: &MadeClient) {
    let own = bench.credentials(client, TransferAll::NAME).await;
    assert_eq!((own.status, own.code().as_str()), (400, "unauthorized_client"), "{own:?}");
    let pair = format!("{}:{}", client.client.id, client.secret.as_deref().unwrap());
    for query in ["usernames=ada@example.org", "usernames=new@uni.edu&provision=true"] {
        let request = Request::builder().uri(format!("/v2/api/identities?{query}"));
        let request = request.header(AUTHORIZATION, format!("Basic {}", Base64::encode_string(pair.as_bytes())));
        assert_eq!(bench.send(request.body(Body::empty()).unwrap()).await.status, 403, "{query}");
    }
    assert!(bench.service.identity_by_name("new@uni.edu").await.unwrap().is_none());
}

#[tokio::test]
async fn a_client_that_anybody_may_make_logs_people_in_and_is_nobody_itself() {
    let bench = Bench::new().await;
    let ada = bench.service.bootstrap_person("ada@example.org", "s3cret", false).await.unwrap();
    let client = of_template(&bench).await;
    is_nobody(&bench, &client).await;
    assert!(bench.service.identity(client.client.id).await.unwrap().is_none());

    let code = code(&bench, &path(&client, &[])).await;
    let document = exchange(&bench, &client, &code, VERIFIER).await.good();
    let refresh = document["refresh_token"].as_str().unwrap();
    let fields = [("grant_type", "refresh_token"), ("refresh_token", refresh)];
    let renewed = bench.form("/v2/oauth2/token", Some(&client), &fields).await.good();
    let info = bench.get("/v2/oauth2/userinfo", renewed["access_token"].as_str().unwrap()).await.good();
    assert_eq!(info["sub"], json!(ada.id));
}

/// Records from before templates were noted have an identity, and perhaps tokens of their own.
#[tokio::test]
async fn a_client_that_was_made_from_the_template_earlier_is_nobody_either() {
    let bench = Bench::new().await;
    let redirects = vec!["https://earlier.example.org/v2/web/auth-code".to_owned(), "http://localhost".to_owned()];
    let name = "laptop".to_owned();
    let new =
        NewClient { name, role: Role::Program, confidential: true, logins: true, template: false, redirects, id: None };
    let client = bench.service.add_client(new).await.unwrap();
    let token = bench.token(&client, TransferAll::NAME).await;
    assert_eq!(bench.get("/v0.10/bookmark_list", &token).await.status, 200, "an administrator may have made it so");

    let mut found = bench.service.store.get::<Client>(&client.client.id.to_string()).await.unwrap().unwrap();
    found.record.template = None;
    bench.service.store.apply(Batch::new().update(&found)).await.unwrap();
    is_nobody(&bench, &client).await;
    assert_eq!(bench.replica().get("/v0.10/bookmark_list", &token).await.status, 401);
}

/// Both ask the store in turns, so that each of them finds the token there.
#[tokio::test]
async fn nothing_comes_of_a_refresh_token_that_is_revoked_in_this_moment() {
    let bench = Bench::new().await;
    bench.service.bootstrap_person("ada@example.org", "s3cret", false).await.unwrap();
    for revoked_first in [false, true] {
        let client = client(&bench, true).await;
        let code = code(&bench, &path(&client, &[])).await;
        let document = exchange(&bench, &client, &code, VERIFIER).await.good();
        let refresh = document["other_tokens"][0]["refresh_token"].as_str().unwrap();
        let fields = [("grant_type", "refresh_token"), ("refresh_token", refresh)];
        let (renew, token) = (bench.form("/v2/oauth2/token", Some(&client), &fields), [("token", refresh)]);
        let revoke = bench.form("/v2/oauth2/token/revoke", Some(&client), &token);
        let (renewed, revoked) = if revoked_first {
            let (revoked, renewed) = tokio::join!(revoke, renew);
            (renewed, revoked)
        } else {
            tokio::join!(renew, revoke)
        };
        assert_eq!(revoked.status, 200);
        if renewed.status != 200 {
            assert_eq!(renewed.code(), "invalid_grant");
            continue;
        }
        let token = renewed.json()["access_token"].as_str().unwrap().to_owned();
        assert_eq!(bench.get("/v0.10/bookmark_list", &token).await.status, 401, "{revoked_first}");
    }
}

/// Public programs have their client's id built in, and a page of Globus' as the place for codes: no code is sent there.
#[tokio::test]
async fn a_program_that_is_known_to_globus_is_made_known_and_its_codes_are_shown_here() {
    const PARSL: &str = "8b8060fd-610e-4a74-885e-1051c71ad473";
    const PAGE: &str = "https://auth.globus.org/v2/web/auth-code";
    let bench = Bench::new().await;
    bench.service.bootstrap_person("ada@example.org", "s3cret", false).await.unwrap();
    let root = bench.service.bootstrap_client("root", true).await.unwrap();
    let root = bench.token(&root, TransferAll::NAME).await;
    let wish = json!({"name": "Try <b>it</b>", "id": PARSL, "public_client": true, "redirect_uris": [PAGE]});
    assert_eq!(bench.post("/v2/whimbrel/clients", &root, wish.clone()).await.good()["client"]["id"], PARSL);
    assert_eq!(bench.post("/v2/whimbrel/clients", &root, wish).await.status, 409, "it is known already");

    let client = bench.service.bootstrap_client("other", false).await.unwrap();
    let path = path(&client, &[("client_id", PARSL), ("redirect_uri", PAGE)]);
    let (cookie, ticket) = opened(&bench, &path).await;
    let location = log_in(&bench, &path, &cookie, &ticket, "s3cret").await.location.unwrap();
    let query = location.strip_prefix("https://transfer.example.org/v2/web/auth-code?code=").unwrap();
    let (code, _) = query.split_once('&').unwrap();
    let shown = bench.ask(Method::GET, location.strip_prefix(URL).unwrap(), None, None).await;
    assert!(shown.text.contains(code), "{}", shown.text);
    let fields = |place| {
        let grant = [("grant_type", "authorization_code"), ("code", code), ("client_id", PARSL)];
        [&grant[..], &[("redirect_uri", place), ("code_verifier", VERIFIER)]].concat()
    };
    let own = format!("{URL}/v2/web/auth-code");
    assert_eq!(bench.form("/v2/oauth2/token", None, &fields(&own)).await.code(), "invalid_grant");
    assert!(bench.form("/v2/oauth2/token", None, &fields(PAGE)).await.good()["refresh_token"].is_string());
}

/// Verifies an id token as the public clients do.
async fn id_token(bench: &Bench, client: &MadeClient, token: &str, subject: &str) {
    let jwks = bench.ask(Method::GET, "/jwk.json", None, None).await.good();
    let key = jwks["keys"].as_array().unwrap().iter().find(|key| key["alg"] == "RS512").unwrap();
    let number = |name: &str| {
        let bytes = Base64UrlUnpadded::decode_vec(key[name].as_str().unwrap()).unwrap();
        openssl::bn::BigNum::from_slice(&bytes).unwrap()
    };
    let key = PKey::from_rsa(openssl::rsa::Rsa::from_public_components(number("n"), number("e")).unwrap()).unwrap();
    let (signed, signature) = token.rsplit_once('.').unwrap();
    let mut verifier = Verifier::new(openssl::hash::MessageDigest::sha512(), &key).unwrap();
    let signature = Base64UrlUnpadded::decode_vec(signature).unwrap();
    #[allow(clippy::disallowed_methods, reason = "no connection reads on this thread after a failure")]
    let held = verifier.verify_oneshot(&signature, signed.as_bytes()).unwrap();
    assert!(held);
    let claims = Base64UrlUnpadded::decode_vec(signed.split_once('.').unwrap().1).unwrap();
    let claims: Value = serde_json::from_slice(&claims).unwrap();
    assert_eq!((&claims["sub"], &claims["aud"]), (&json!(subject), &json!(client.client.id)));
}

#[tokio::test]
async fn a_stolen_code_is_worth_nothing_without_its_verifier_place_and_client() {
    let bench = Bench::new().await;
    bench.service.bootstrap_person("ada@example.org", "s3cret", false).await.unwrap();
    let (client, other) = (client(&bench, false).await, client(&bench, false).await);
    let wrong = VERIFIER.replace('d', "e");
    let code = code(&bench, &path(&client, &[])).await;
    for (who, verifier) in [(&client, wrong.as_str()), (&client, ""), (&other, VERIFIER)] {
        assert_eq!(exchange(&bench, who, &code, verifier).await.code(), "invalid_grant");
    }
    bench.clock.advance(601);
    assert_eq!(exchange(&bench, &client, &code, VERIFIER).await.code(), "invalid_grant", "too late");
}

#[tokio::test]
async fn a_code_is_worth_nothing_once_its_account_is_closed() {
    let bench = Bench::new().await;
    let ada = bench.service.bootstrap_person("ada@example.org", "s3cret", false).await.unwrap();
    for confidential in [false, true] {
        let client = client(&bench, confidential).await;
        let code = code(&bench, &path(&client, &[])).await;
        bench.service.set_disabled(ada.id, true, ada.id).await.unwrap();
        let refused = exchange(&bench, &client, &code, VERIFIER).await;
        assert_eq!((refused.status, refused.code().as_str()), (400, "invalid_grant"), "{refused:?}");
        // Nothing was given that works when the account is open again.
        bench.service.set_disabled(ada.id, false, ada.id).await.unwrap();
        assert!(bench.service.store.list::<Token>(None, 10).await.unwrap().is_empty());
    }
}

#[tokio::test]
async fn forms_from_elsewhere_and_wrong_passwords_lead_nowhere() {
    let bench = Bench::new().await;
    bench.service.bootstrap_person("ada@example.org", "s3cret", false).await.unwrap();
    let client = client(&bench, true).await;
    let path = path(&client, &[]);
    let (cookie, ticket) = opened(&bench, &path).await;
    for (cookie, ticket) in
        [("", ticket.as_str()), (cookie.as_str(), ""), (cookie.as_str(), "guess"), ("__Host-whimbrel-login=", "")]
    {
        let got = log_in(&bench, &path, cookie, ticket, "s3cret").await;
        assert_eq!((got.status, got.location), (403, None), "{cookie} {ticket}");
    }
    for _ in 0..4 {
        assert_eq!(log_in(&bench, &path, &cookie, &ticket, "wrong").await.status, 403);
    }
    let got = log_in(&bench, &path, &cookie, &ticket, "s3cret").await;
    assert_eq!((got.status, got.location), (429, None), "guesses cost time");
}

#[tokio::test]
async fn wrong_questions_stay_here_or_go_back_with_a_reason() {
    let bench = Bench::new().await;
    let client = client(&bench, false).await;
    for changes in [&[("client_id", "x")][..], &[("redirect_uri", "https://evil.org/")], &[("redirect_uri", "")]] {
        let got = bench.ask(Method::GET, &path(&client, changes), None, None).await;
        assert_eq!((got.status, got.location), (400, None), "{changes:?}");
    }
    for (changes, error) in [
        (&[("response_type", "token")][..], "unsupported_response_type"),
        (&[("code_challenge", "")], "invalid_request"),
        (&[("code_challenge_method", "plain")], "invalid_request"),
        (&[("scope", "nothing")], "invalid_scope"),
        (&[("scope", "urn:whimbrel:scope:orchestrate")], "invalid_scope"),
    ] {
        let got = bench.ask(Method::GET, &path(&client, changes), None, None).await;
        assert!(got.location.is_some_and(|place| place.starts_with(&format!("{BACK}?error={error}&"))), "{changes:?}");
    }
}
