//! The issuer: tokens of clients, their scopes, and their end.

use axum::body::Body;
use axum::http::header::AUTHORIZATION;
use axum::http::{Method, Request};
use base64ct::{Base64, Encoding};
use serde_json::json;
use whimbrel_proto::token::judge::Issuer;
use whimbrel_service::auth::clients::MadeClient;
use whimbrel_service::auth::keys::dtn_scope;
use whimbrel_service::auth::scope::{Orchestrate, Scope, TransferAll};
use whimbrel_trust::token::{TokenJudge, Verdict};

use crate::bench::{Bench, NOW, URL};

const AUTH_SCOPES: &str = "openid profile email urn:globus:auth:scope:auth.globus.org:view_identity_set";

#[tokio::test]
async fn a_client_gets_a_token_for_each_resource_server_it_asks_for() {
    let bench = Bench::new().await;
    let client = bench.service.bootstrap_client("script", false).await.unwrap();
    let scope = format!(
        "{AUTH_SCOPES} {}[*https://auth.globus.org/scopes/{}/data_access]",
        TransferAll::NAME,
        client.client.id
    );
    let document = bench.credentials(&client, &scope).await.good();
    assert_eq!((&document["resource_server"], &document["scope"]), (&json!("auth.globus.org"), &json!(AUTH_SCOPES)));
    assert_eq!((&document["expires_in"], &document["token_type"]), (&json!(172_800), &json!("Bearer")));
    let other = &document["other_tokens"][0];
    assert_eq!(
        (&other["resource_server"], &other["scope"]),
        (&json!("transfer.api.globus.org"), &json!(TransferAll::NAME))
    );
    assert!(other.get("other_tokens").is_none() && document.get("refresh_token").is_none());

    let token = document["access_token"].as_str().unwrap();
    let info = bench.get("/v2/oauth2/userinfo", token).await.good();
    assert_eq!(info["sub"], json!(client.client.id));
    assert_eq!(info["identity_set"][0]["username"], json!(format!("{}@clients.example.org", client.client.id)));
    let identities = format!("/v2/api/identities?ids={}", client.client.id);
    assert_eq!(bench.get(&identities, token).await.good()["identities"][0]["name"], "script");
    let consents =
        bench.get(&format!("/v2/api/identities/{}/consents?all=False", client.client.id), token).await.good();
    let paths: Vec<_> =
        consents["consents"].as_array().unwrap().iter().map(|consent| consent["dependency_path"].clone()).collect();
    assert_eq!(paths, [json!([1]), json!([2]), json!([3]), json!([4]), json!([5]), json!([5, 6])]);
}

#[tokio::test]
async fn wrong_clients_scopes_and_grants_are_refused_in_oauths_words() {
    let bench = Bench::new().await;
    let client = bench.service.bootstrap_client("script", false).await.unwrap();
    let orchestrator = bench.service.bootstrap_orchestrator("mover").await.unwrap();
    let mut wrong = client.clone();
    wrong.secret = Some("wrong".to_owned());
    let told = |got: crate::bench::Got| (got.status, got.code());
    assert_eq!(told(bench.credentials(&wrong, TransferAll::NAME).await), (401, "invalid_client".to_owned()));
    assert_eq!(told(bench.form("/v2/oauth2/token", None, &[]).await), (401, "invalid_client".to_owned()));
    for (client, scope) in [
        (&client, "nothing"),
        (&client, ""),
        (&client, "a[b"),
        (&client, Orchestrate::NAME),
        (&orchestrator, TransferAll::NAME),
    ] {
        assert_eq!(told(bench.credentials(client, scope).await), (400, "invalid_scope".to_owned()), "{scope}");
    }
    let got = bench.form("/v2/oauth2/token", Some(&client), &[("grant_type", "password")]).await;
    assert_eq!(told(got), (400, "unsupported_grant_type".to_owned()));
}

#[tokio::test]
async fn guessing_a_secret_costs_time() {
    let bench = Bench::new().await;
    let client = bench.service.bootstrap_client("script", false).await.unwrap();
    let mut wrong = client.clone();
    wrong.secret = Some("wrong".to_owned());
    for _ in 0..4 {
        assert_eq!(bench.credentials(&wrong, TransferAll::NAME).await.status, 401);
    }
    let got = bench.credentials(&client, TransferAll::NAME).await;
    assert_eq!((got.status, got.code().as_str()), (429, "ClientError.TooManyRequests"));
}

#[tokio::test]
async fn a_token_ends_when_its_time_is_over_or_it_is_revoked() {
    let bench = Bench::new().await;
    let client = bench.service.bootstrap_client("script", false).await.unwrap();
    let (first, second) = (bench.token(&client, AUTH_SCOPES).await, bench.token(&client, AUTH_SCOPES).await);
    let third = bench.token(&client, AUTH_SCOPES).await;
    let works = async |token: &str| bench.get("/v2/oauth2/userinfo", token).await.status;
    assert_eq!((works(&first).await, works(&second).await), (200, 200));
    let introspected = bench.form("/v2/oauth2/token/introspect", Some(&client), &[("token", &first)]).await.good();
    assert_eq!((&introspected["active"], &introspected["sub"]), (&json!(true), &json!(client.client.id)));

    // Another client cannot revoke it, nor learn of it.
    let other = bench.service.bootstrap_client("other", false).await.unwrap();
    bench.form("/v2/oauth2/token/revoke", Some(&other), &[("token", &first)]).await.good();
    let introspected = bench.form("/v2/oauth2/token/introspect", Some(&other), &[("token", &first)]).await.good();
    assert_eq!((introspected, works(&first).await), (json!({"active": false}), 200));

    bench.form("/v2/oauth2/token/revoke", Some(&client), &[("token", &first)]).await.good();
    assert_eq!((works(&first).await, works(&second).await), (401, 200));
    // Without a client's proof the token itself is enough.
    bench.form("/v2/oauth2/token/revoke", None, &[("token", &third), ("client_id", "any")]).await.good();
    assert_eq!(works(&third).await, 401);
    let validated = bench.form("/v2/oauth2/token/validate", None, &[("token", &first)]).await.good();
    assert_eq!(validated, json!({"active": false}));
    bench.clock.advance(48 * 3600);
    assert_eq!(works(&second).await, 401);
    let ended = whimbrel_engine::listing::Timestamp::from_secs(NOW + 48 * 3600);
    assert_eq!(bench.service.forget_expired(ended).await.unwrap(), 1, "the second");
}

#[tokio::test]
async fn who_is_disabled_or_gone_has_no_tokens_that_work() {
    let bench = Bench::new().await;
    let client = bench.service.bootstrap_client("script", false).await.unwrap();
    let token = bench.token(&client, AUTH_SCOPES).await;
    assert_eq!(bench.get("/v2/oauth2/userinfo", &token).await.status, 200);
    bench.service.remove_client(client.client.id).await.unwrap();
    assert_eq!(bench.get("/v2/oauth2/userinfo", &token).await.status, 401);
    assert_eq!(bench.credentials(&client, AUTH_SCOPES).await.status, 401);
}

#[tokio::test]
async fn names_are_found_and_made_for_those_who_are_yet_to_come() {
    let bench = Bench::new().await;
    bench.service.bootstrap_person("Ada@Example.org", "s3cret", false).await.unwrap();
    let client = bench.service.bootstrap_client("script", false).await.unwrap();
    let token = bench.token(&client, AUTH_SCOPES).await;
    let found = async |query: &str| bench.get(&format!("/v2/api/identities?{query}"), &token).await;
    assert_eq!(found("usernames=ADA@example.org").await.good()["identities"][0]["username"], "ada@example.org");
    assert_eq!(found("usernames=bob@uni.edu&provision=false").await.good(), json!({"identities": []}));
    let bob = found("usernames=bob@uni.edu&provision=true").await.good()["identities"][0]["id"].clone();
    assert_eq!(found("usernames=bob@uni.edu").await.good()["identities"][0]["id"], bob);
    assert_eq!(found("usernames=eve@example.org&provision=true").await.status, 400);
    assert_eq!(
        (found("").await.status, found("ids=x").await.status, found("ids=x&usernames=y").await.status),
        (400, 400, 400)
    );
}

#[tokio::test]
async fn nobody_fills_the_store_with_people_who_are_yet_to_come() {
    let bench = Bench::new().await;
    let (ada, bob) = (bench.service.bootstrap_client("ada", false), bench.service.bootstrap_client("bob", false));
    let (ada, bob) =
        (bench.token(&ada.await.unwrap(), AUTH_SCOPES).await, bench.token(&bob.await.unwrap(), AUTH_SCOPES).await);
    let made = async |token: &str, from: usize, many: usize| {
        let names: Vec<_> = (from..from + many).map(|number| format!("p{number}@uni.edu")).collect();
        bench.get(&format!("/v2/api/identities?usernames={}&provision=true", names.join(",")), token).await
    };
    for from in [0, 200, 300] {
        assert_eq!(made(&ada, from, 200).await.status, 200, "those who are there already do not count");
    }
    let refused = made(&ada, 500, 200).await;
    assert_eq!((refused.status, refused.code().as_str()), (429, "ClientError.TooManyRequests"));
    assert!(bench.service.identity_by_name("p600@uni.edu").await.unwrap().is_none());
    assert_eq!((made(&ada, 0, 200).await.status, made(&bob, 600, 1).await.status), (200, 200));
}

/// As `ConfidentialAppAuthClient.get_identities` of the public SDK's third edition asks.
#[tokio::test]
async fn portals_look_people_up_with_their_secret_or_a_token_for_that() {
    let bench = Bench::new().await;
    let ada = bench.service.bootstrap_person("ada@example.org", "s3cret", false).await.unwrap();
    let portal = bench.service.bootstrap_client("portal", false).await.unwrap();
    let mover = bench.service.bootstrap_orchestrator("mover").await.unwrap();
    let path = format!("/v2/api/identities?ids={}", ada.id);
    let by = async |client: &MadeClient, secret: &str| {
        let pair = Base64::encode_string(format!("{}:{secret}", client.client.id).as_bytes());
        let request = Request::builder().uri(&path).header(AUTHORIZATION, format!("Basic {pair}"));
        bench.send(request.body(Body::empty()).unwrap()).await
    };
    let found = by(&portal, portal.secret.as_deref().unwrap()).await.good();
    assert_eq!(found["identities"][0]["username"], "ada@example.org");
    assert_eq!(by(&portal, "wrong").await.status, 401);
    assert_eq!(by(&mover, mover.secret.as_deref().unwrap()).await.status, 403);
    let token = bench.token(&portal, "urn:globus:auth:scope:auth.globus.org:view_identities").await;
    assert_eq!(bench.get(&path, &token).await.good(), found);
    let consents = format!("/v2/api/identities/{}/consents?all=False", portal.client.id);
    assert_eq!(bench.get(&consents, &token).await.status, 403);
    let token = bench.token(&portal, "urn:globus:auth:scope:auth.globus.org:view_consents").await;
    assert_eq!((bench.get(&consents, &token).await.status, bench.get(&path, &token).await.status), (200, 403));
}

#[tokio::test]
async fn a_programs_own_client_is_made_from_the_template_only() {
    let bench = Bench::new().await;
    let ask = async |template: &str| {
        let body = json!({"client": {"template_id": template, "name": "Globus CLI"}});
        bench.ask(Method::POST, "/v2/api/clients", None, Some(body)).await
    };
    assert_eq!(ask("00000000-0000-4000-8000-000000000000").await.status, 403);
    let made = ask("95fdeba8-fac2-42bd-a357-e068d82ff78e").await;
    assert_eq!(made.status, 201);
    assert!(made.json()["included"]["client_credential"]["secret"].as_str().unwrap().len() > 40);
    // Nobody fills the store with clients.
    let mut refused = 0;
    for _ in 0..20 {
        refused += u32::from(ask("95fdeba8-fac2-42bd-a357-e068d82ff78e").await.status == 429);
    }
    assert!(refused >= 10, "{refused}");
}

#[tokio::test]
async fn a_dtn_that_trusts_the_service_takes_its_tokens() {
    let bench = Bench::new().await;
    let (endpoint, identity) = (uuid::Uuid::from_u128(7), bench.user("ada").await.id);
    let scope = dtn_scope(&[("storage.read", "/data/a b"), ("storage.modify", "/data")]);
    assert_eq!(scope, "storage.read:/data/a%20b storage.modify:/data");
    let token = bench.service.dtn_token(endpoint, identity, &scope, None, 3600).await.unwrap();
    let jwks = bench.ask(Method::GET, "/jwk.json", None, None).await.good();
    let (name, audiences) = (URL.to_owned(), vec![endpoint.to_string()]);
    let issuer = Issuer { name, audiences, any_audience: false, base: Vec::new(), without_scopes: false };
    let mut judge = TokenJudge::new([issuer]);
    assert!(judge.began(0, NOW));
    // The key for id tokens is passed over.
    assert_eq!(judge.install(0, jwks.to_string().as_bytes(), NOW), Ok(1));
    match judge.judge(token.as_bytes(), NOW + 10) {
        Verdict::Granted { grant, .. } => {
            assert_eq!(grant.subject, identity.to_string());
            let username = format!("{identity}@clients.example.org");
            for name in ["preferred_username", "username"] {
                let claim = (name.to_owned(), username.clone());
                assert!(grant.identity.contains(&claim), "{:?}", grant.identity);
            }
        }
        other => panic!("{other:?}"),
    }
    assert!(matches!(judge.judge(token.as_bytes(), NOW + 4000), Verdict::Refused(_)));
    let discovery = bench.ask(Method::GET, "/.well-known/openid-configuration", None, None).await.good();
    assert_eq!((&discovery["issuer"], &discovery["jwks_uri"]), (&json!(URL), &json!(format!("{URL}/jwk.json"))));

    // Ninety days later another key signs, and the old one is still shown.
    bench.clock.advance(90 * 24 * 3600);
    let later = bench.ask(Method::GET, "/jwk.json", None, None).await.good();
    assert_eq!(later["keys"].as_array().unwrap().len(), 4);
    let first = |jwks: &serde_json::Value| (jwks["keys"][0]["alg"].clone(), jwks["keys"][0]["kid"].clone());
    // The public clients look at the first key only.
    assert_eq!((first(&jwks).0, first(&later).0), (json!("RS512"), json!("RS512")));
    assert_ne!(first(&jwks).1, first(&later).1);
    bench.clock.advance(3 * 24 * 3600);
    let later = bench.ask(Method::GET, "/jwk.json", None, None).await.good();
    assert_eq!(later["keys"].as_array().unwrap().len(), 2);
}

/// A key that nobody shows signs tokens that nobody believes; one that is lost on the way fails a login.
#[tokio::test]
async fn those_who_ask_first_all_at_once_get_tokens_by_the_same_keys() {
    let bench = Bench::new().await;
    let replicas = [bench.replica(), bench.replica()];
    let services: Vec<_> = replicas.iter().cycle().take(12).map(|replica| replica.service.clone()).collect();
    let (endpoint, identity) = (uuid::Uuid::from_u128(7), bench.user("ada").await.id);
    let asked = services.into_iter().enumerate().map(|(number, service)| {
        tokio::spawn(async move {
            if number % 3 == 0 {
                return service.jwks().await.map(|_| None);
            }
            service.dtn_token(endpoint, identity, "storage.read:/", None, 60).await.map(Some)
        })
    });
    let asked: Vec<_> = asked.collect();
    let jwks = replicas[0].service.jwks().await.unwrap();
    assert_eq!(jwks["keys"].as_array().unwrap().len(), 2, "{jwks}");
    let issuer = Issuer {
        name: URL.to_owned(),
        audiences: vec![endpoint.to_string()],
        any_audience: false,
        base: Vec::new(),
        without_scopes: false,
    };
    let mut judge = TokenJudge::new([issuer]);
    assert_eq!(judge.install(0, jwks.to_string().as_bytes(), NOW), Ok(1));
    for answer in asked {
        if let Some(token) = answer.await.unwrap().unwrap() {
            assert!(matches!(judge.judge(token.as_bytes(), NOW), Verdict::Granted { .. }));
        }
    }
}
