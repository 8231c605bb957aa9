//! Tokens of the service's issuer (RFC 6749).

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};
use whimbrel_web::client::{Method, Question};

use super::logins::{ClientCredential, Token, now};
use super::reach::Reach;
use super::refusal::Trouble;
use super::{need, odd};

/// Resource server of transfers.
pub const TRANSFER: &str = "transfer.api.globus.org";
/// Resource server of identities.
pub const AUTH: &str = "auth.globus.org";

/// What a login is for: who one is, who others are, and everything about transfers.
pub const SCOPES: &str = "openid profile email urn:globus:auth:scope:auth.globus.org:view_identity_set \
                          urn:globus:auth:scope:transfer.api.globus.org:all";

/// The template of clients that programs on users' machines are made from.
const TEMPLATE: &str = "95fdeba8-fac2-42bd-a357-e068d82ff78e";

/// Time for an answer of the issuer.
const PATIENCE: Duration = Duration::from_secs(60);

/// Tokens of a client in its own name.
///
/// # Errors
/// A refusal: the client or its secret is wrong, or there is no such scope.
pub async fn by_client(
    reach: &Reach,
    client: &ClientCredential,
    scopes: &str,
) -> Result<BTreeMap<String, Token>, Trouble> {
    tokens(reach, client, &[("grant_type", "client_credentials"), ("scope", scopes)]).await
}

/// Tokens for a code that a browser brought.
///
/// # Errors
/// A refusal: the code is not good.
pub async fn by_code(
    reach: &Reach,
    client: &ClientCredential,
    code: &str,
    redirect: &str,
    verifier: &str,
) -> Result<BTreeMap<String, Token>, Trouble> {
    let fields =
        [("grant_type", "authorization_code"), ("code", code), ("redirect_uri", redirect), ("code_verifier", verifier)];
    tokens(reach, client, &fields).await
}

/// A new access token for an earlier login.
///
/// # Errors
/// A refusal: the login is over.
pub async fn by_refresh_token(
    reach: &Reach,
    client: &ClientCredential,
    refresh: &str,
) -> Result<BTreeMap<String, Token>, Trouble> {
    tokens(reach, client, &[("grant_type", "refresh_token"), ("refresh_token", refresh)]).await
}

async fn tokens(
    reach: &Reach,
    client: &ClientCredential,
    fields: &[(&str, &str)],
) -> Result<BTreeMap<String, Token>, Trouble> {
    let document = reach.ask_form(form(client, "/v2/oauth2/token", fields)).await?;
    let others = document["other_tokens"].as_array().into_iter().flatten();
    std::iter::once(&document).chain(others).map(token).collect()
}

fn token(document: &Value) -> Result<(String, Token), Trouble> {
    let seconds = document["expires_in"].as_i64().ok_or_else(|| odd("a token without an end"))?;
    let token = Token {
        access: need(document, "access_token")?.to_owned(),
        ends: now().saturating_add(seconds),
        refresh: document["refresh_token"].as_str().map(str::to_owned),
    };
    Ok((need(document, "resource_server")?.to_owned(), token))
}

/// Ends a token, and all that came of it.
///
/// # Errors
/// No answer.
pub async fn revoke(reach: &Reach, client: &ClientCredential, token: &str) -> Result<(), Trouble> {
    reach.ask_form(form(client, "/v2/oauth2/token/revoke", &[("token", token)])).await.map(drop)
}

/// Whether the service still knows a client: a token that is none is nobody's, whoever asks.
///
/// # Errors
/// No answer.
pub async fn knows(reach: &Reach, client: &ClientCredential) -> Result<bool, Trouble> {
    match revoke(reach, client, "none").await {
        Ok(()) => Ok(true),
        Err(Trouble::Refused(refusal)) if refusal.status == 401 => Ok(false),
        Err(trouble) => Err(trouble),
    }
}

/// A form of a client, with its secret (RFC 6749 §2.3.1).
fn form<'a>(client: &ClientCredential, path: &'a str, fields: &[(&str, &str)]) -> Question<'a> {
    let own = [("client_id", client.id.as_str()), ("client_secret", client.secret.as_str())];
    let body = form_urlencoded::Serializer::new(String::new()).extend_pairs(own).extend_pairs(fields).finish();
    Question { method: Method::POST, path, bearer: None, body: Some(body.into_bytes()), limit: PATIENCE }
}

/// A client for this installation, good for logins of people only.
///
/// # Errors
/// A refusal: too many new ones from this network.
pub async fn new_client(reach: &Reach, name: &str) -> Result<ClientCredential, Trouble> {
    let document = json!({"client": {"template_id": TEMPLATE, "name": name}}).to_string();
    let (path, body) = ("/v2/api/clients", Some(document.into_bytes()));
    let made = reach.ask(Question { method: Method::POST, path, bearer: None, body, limit: PATIENCE }).await?;
    let made = &made["included"]["client_credential"];
    Ok(ClientCredential { id: need(made, "client")?.to_owned(), secret: need(made, "secret")?.to_owned() })
}

/// Who a token speaks for: the name that people know.
///
/// # Errors
/// No answer, or a token that is not good.
pub async fn user(reach: &Reach, token: &str) -> Result<Value, Trouble> {
    let path = "/v2/oauth2/userinfo";
    reach.ask(Question { method: Method::GET, path, bearer: Some(token), body: None, limit: PATIENCE }).await
}

/// Visits the service, showing nothing to it: whether it is one.
///
/// # Errors
/// No answer, or something else is there.
pub async fn visit(reach: &Reach) -> Result<(), Trouble> {
    let path = "/.well-known/openid-configuration";
    let found = reach.ask(Question { method: Method::GET, path, bearer: None, body: None, limit: PATIENCE }).await?;
    need(&found, "token_endpoint").map(drop)
}
