//! Logins of people in a browser: a plain page without scripts that asks for a password and gives a code (RFC 6749 §4.1, RFC 7636).

use std::time::Instant;

use axum::http::header::COOKIE;
use axum::http::{HeaderMap, StatusCode};
use serde_json::{Value, json};
use uuid::Uuid;

use super::grant::allowed;
use super::records::{CODE_PAGE_PATH, Client, Code, Identity};
use super::scope;
use super::secrets::{alike, digest, random, verify_password};
use super::tokens::{invalid_scope, later};
use crate::Service;
use crate::audit::Refused;
use crate::http::{Anyone, ApiError, Call, Form, HtmlPage, Query};
use crate::store::Batch;

/// Life of a code, seconds: time to copy it from one window to another.
const CODE_SECONDS: i64 = 600;
/// Longest `state` that is carried through, bytes.
const LONGEST_STATE: usize = 2048;

/// The page on which Globus shows codes: native programs have it compiled in. Ours is shown in its place, so that no code leaves us.
const CODE_PAGE: &str = "https://auth.globus.org/v2/web/auth-code";

/// What a client asks for.
pub(super) struct Asked {
    pub(super) client: Client,
    pub(super) redirect: String,
    pub(super) state: Option<String>,
    scope: String,
    challenge: Option<String>,
    nonce: Option<String>,
    offline: bool,
}

/// What is wrong with it.
pub(super) enum Wrong {
    /// Whom to send the browser back to is not certain: it stays here.
    Here(String),
    /// The client is told.
    There(String, Option<String>, ApiError),
}

impl Service {
    pub(super) async fn asked(&self, query: &Query) -> Result<Result<Asked, Wrong>, ApiError> {
        let client = self.client(query.get("client_id").unwrap_or_default()).await?;
        let Some(client) = client.filter(|client| client.logins) else {
            return Ok(Err(Wrong::Here(
                "The program that sent you here is not known, or may not log people in.".to_owned(),
            )));
        };
        let redirect = query.get("redirect_uri").unwrap_or_default().to_owned();
        if !client.redirects.iter().any(|known| is_redirect(known, &redirect)) {
            return Ok(Err(Wrong::Here(
                "The program that sent you here wants you back at a place that is not its own.".to_owned(),
            )));
        }
        let state = query.get("state").filter(|state| state.len() <= LONGEST_STATE).map(str::to_owned);
        let landing = self.landing(&redirect);
        Ok(self.details(query, client, &redirect, state.clone()).map_err(|error| Wrong::There(landing, state, error)))
    }

    /// Where a browser is sent for a redirect URI.
    pub(super) fn landing(&self, redirect: &str) -> String {
        match redirect {
            CODE_PAGE => format!("{}{CODE_PAGE_PATH}", self.config.url),
            other => other.to_owned(),
        }
    }

    fn details(&self, query: &Query, client: Client, redirect: &str, state: Option<String>) -> Result<Asked, ApiError> {
        let wrong = |error, text: &str| ApiError::oauth(StatusCode::BAD_REQUEST, error, text);
        if query.get("response_type") != Some("code") {
            return Err(wrong("unsupported_response_type", "Only codes are given"));
        }
        let challenge = query.filled("code_challenge").map(str::to_owned);
        let method = query.get("code_challenge_method");
        match &challenge {
            Some(challenge) if method != Some("S256") || challenge.len() != 43 => {
                return Err(wrong("invalid_request", "The code_challenge has to be one of S256"));
            }
            None if client.secret.is_none() => {
                return Err(wrong("invalid_request", "A client without a secret needs a code_challenge"));
            }
            _ => {}
        }
        let scope = query.get("scope").unwrap_or_default().to_owned();
        let wanted = scope::parse(&scope).map_err(|error| wrong("invalid_scope", &error.to_string()))?;
        if let Some(unknown) = wanted.iter().find(|one| scope::resource_server(&one.name).is_none()) {
            return Err(invalid_scope(&unknown.name));
        }
        if wanted.is_empty() {
            return Err(invalid_scope(""));
        }
        allowed(&client, &wanted)?;
        let (nonce, redirect) = (query.filled("nonce").map(str::to_owned), redirect.to_owned());
        let offline = query.get("access_type") == Some("offline");
        Ok(Asked { client, redirect, state, scope, challenge, nonce, offline })
    }

    /// The identity of a name with its password; guesses cost time.
    async fn by_password(
        &self,
        from: std::net::IpAddr,
        name: &str,
        password: &str,
    ) -> Result<Option<Identity>, ApiError> {
        let name = name.trim().to_lowercase();
        let name = if name.contains('@') { name } else { format!("{name}@{}", self.config.domain.to_lowercase()) };
        self.throttled(from, Some(&name))?;
        let _turn = self.auth.password_turn().await?;
        // Others may have guessed while this one waited.
        self.throttled(from, Some(&name))?;
        let identity = self.identity_by_name(&name).await?;
        let hash =
            identity.as_ref().filter(|identity| !identity.disabled).and_then(|identity| identity.password.clone());
        let good = verify_password(hash, password.to_owned()).await?;
        if good {
            self.auth.throttle.lock().expect("nothing panics with it").succeeded(from, &name, Instant::now());
            return Ok(identity);
        }
        self.auth.throttle.lock().expect("nothing panics with it").failed(from, Some(&name), Instant::now());
        let known = identity.map(|identity| identity.id);
        self.tell_refused(Refused::Login, from, known, "password").await?;
        Ok(None)
    }

    /// A code for somebody who has logged in: `how` says by what, and from where.
    async fn code(&self, asked: &Asked, identity: Uuid, how: Value) -> Result<String, ApiError> {
        let text = random("wc_")?;
        let code = Code {
            hash: digest(&text),
            client: asked.client.id,
            identity,
            redirect: asked.redirect.clone(),
            scope: asked.scope.clone(),
            challenge: asked.challenge.clone(),
            nonce: asked.nonce.clone(),
            offline: asked.offline,
            expires: later(self.clock.now(), CODE_SECONDS),
        };
        let entry = self.entry(identity, "login", asked.client.id).detail(how);
        self.store.apply(Batch::new().insert(&code).audit(entry)).await?;
        Ok(text)
    }

    /// Sends the browser back with a code.
    pub(super) async fn accept(&self, asked: &Asked, identity: &Identity, how: Value) -> Result<HtmlPage, ApiError> {
        let code = self.code(asked, identity.id, how).await?;
        let fields = [("code", Some(code.as_str())), ("state", asked.state.as_deref())];
        let cookie = Some(format!("{}=; Path=/; Max-Age=0", self.cookie()));
        Ok(HtmlPage::See { location: back(&self.landing(&asked.redirect), &fields), cookie })
    }

    /// Name of the cookie that ties a form to the browser that was shown it; over TLS no other host can set it.
    fn cookie(&self) -> &'static str {
        if self.config.url.starts_with("https://") { "__Host-whimbrel-login" } else { "whimbrel-login" }
    }

    async fn page(&self, asked: &Asked, status: StatusCode, message: &str) -> Result<HtmlPage, ApiError> {
        let ticket = random("")?;
        let secure = if self.config.url.starts_with("https://") { "; Secure" } else { "" };
        let cookie = format!("{}={ticket}; Path=/; HttpOnly; SameSite=Strict; Max-Age=3600{secure}", self.cookie());
        let scopes = scope::parse(&asked.scope).unwrap_or_default();
        let items: String =
            scopes.iter().map(|scope| format!("<li><code>{}</code></li>", escape(&scope.to_string()))).collect();
        let mut forms = String::new();
        // Browsers look at where the answer to a form leads, too.
        let mut form_to: Vec<_> = origin(&self.landing(&asked.redirect)).map(str::to_owned).into_iter().collect();
        let provider = self.auth.provider.get();
        if let Some(provider) = provider {
            let label = escape(&provider.settings.label);
            forms += &match provider.places(self.clock.now().secs).await {
                Ok(places) => {
                    form_to.extend(origin(&places.authorization_endpoint).map(str::to_owned));
                    form(&ticket, "provider", &format!("<p><button>Log in with {label} and allow</button></p>"))
                }
                Err(fault) => {
                    tracing::warn!(%fault, "the provider of identities is not reached");
                    format!("<p role=\"alert\">{label} cannot be reached at this moment. Try again in a minute.</p>")
                }
            };
        }
        if !provider.is_some_and(|provider| provider.settings.only) {
            forms += &form(&ticket, "password", PASSWORD);
        }
        let alert = match message {
            "" => String::new(),
            message => format!("<p role=\"alert\"><b>{}</b></p>", escape(message)),
        };
        let body = format!(
            "<p><b>{}</b> asks you to log in.</p>{alert}{forms}<details><summary>What it may do then</summary><ul>{items}</ul></details>",
            escape(&asked.client.name),
        );
        let form_to = (!form_to.is_empty()).then(|| form_to.join(" "));
        Ok(HtmlPage::Html { status, html: frame("Log in", &body), cookie: Some(cookie), form_to })
    }
}

/// Fields for a name and a password of ours.
const PASSWORD: &str = "<p><label>Name<br><input name=\"username\" autocomplete=\"username\" required></label></p>\
    <p><label>Password<br><input name=\"password\" type=\"password\" autocomplete=\"current-password\" required></label></p>\
    <p><button>Log in and allow</button></p>";

/// A form that only this browser can send; `by` says how one logs in.
fn form(ticket: &str, by: &str, fields: &str) -> String {
    let hidden = |name: &str, value: &str| format!("<input type=\"hidden\" name=\"{name}\" value=\"{value}\">");
    format!("<form method=\"post\">{}{}{fields}</form>", hidden("ticket", ticket), hidden("by", by))
}

/// `GET /v2/oauth2/authorize`.
pub(super) async fn show(call: Call<Anyone>) -> Result<HtmlPage, ApiError> {
    match call.service.asked(&call.query).await? {
        Ok(asked) => call.service.page(&asked, StatusCode::OK, "").await,
        Err(wrong) => Ok(wrong.page()),
    }
}

/// `POST /v2/oauth2/authorize`, from the page.
pub(super) async fn submit(call: Call<Anyone, Form>) -> Result<HtmlPage, ApiError> {
    let (service, form) = (&call.service, &call.body.0);
    let asked = match service.asked(&call.query).await? {
        Ok(asked) => asked,
        Err(wrong) => return Ok(wrong.page()),
    };
    let ticket = cookie_of(&call.knock.headers, service.cookie());
    if !ticket.is_some_and(|ticket| !ticket.is_empty() && alike(ticket, form.get("ticket").unwrap_or_default())) {
        return service.page(&asked, StatusCode::FORBIDDEN, "The page was too old. Please log in again.").await;
    }
    let provider = service.auth.provider.get();
    match (form.get("by"), provider) {
        (Some("provider"), Some(provider)) => {
            return match service.depart(provider, call.knock.from, &call.query).await {
                // Said on the page, from which it can be tried again.
                Err(error) if error.status != StatusCode::INTERNAL_SERVER_ERROR => {
                    service.page(&asked, error.status, &error.message).await
                }
                result => result,
            };
        }
        (_, Some(provider)) if provider.settings.only => {
            let text = format!("Log in with {}.", provider.settings.label);
            return service.page(&asked, StatusCode::FORBIDDEN, &text).await;
        }
        _ => {}
    }
    let (name, password) = (form.get("username").unwrap_or_default(), form.get("password").unwrap_or_default());
    match service.by_password(call.knock.from, name, password).await {
        Ok(Some(identity)) => {
            tracing::info!(request = %call.place.request, identity = %identity.username, client = %asked.client.id, "logged in");
            service.accept(&asked, &identity, json!({"by": "password", "from": call.knock.from})).await
        }
        Ok(None) => service.page(&asked, StatusCode::FORBIDDEN, "The name or the password is wrong.").await,
        Err(error) if error.status == StatusCode::TOO_MANY_REQUESTS => {
            service.page(&asked, error.status, &error.message).await
        }
        Err(error) => Err(error),
    }
}

/// `GET /v2/web/auth-code`: shows a code, to be copied into a terminal.
pub(super) async fn show_code(call: Call<Anyone>) -> Result<HtmlPage, ApiError> {
    let body = match (call.query.filled("code"), call.query.filled("error_description")) {
        (Some(code), _) => format!(
            "<p>Copy this code into the program that sent you here:</p><p><input readonly size=\"60\" value=\"{}\"></p>",
            escape(code)
        ),
        (None, error) => format!("<p>There is no code. {}</p>", escape(error.unwrap_or_default())),
    };
    Ok(HtmlPage::Html { status: StatusCode::OK, html: frame("Your code", &body), cookie: None, form_to: None })
}

impl Wrong {
    pub(super) fn page(self) -> HtmlPage {
        match self {
            Self::Here(text) => refusal(StatusCode::BAD_REQUEST, &text),
            Self::There(redirect, state, error) => {
                let fields = [
                    ("error", Some(error.code.as_ref())),
                    ("error_description", Some(error.message.as_str())),
                    ("state", state.as_deref()),
                ];
                HtmlPage::See { location: back(&redirect, &fields), cookie: None }
            }
        }
    }
}

/// A page that says why nothing can be done.
pub(super) fn refusal(status: StatusCode, text: &str) -> HtmlPage {
    let html = frame("This does not work", &format!("<p>{}</p>", escape(text)));
    HtmlPage::Html { status, html, cookie: None, form_to: None }
}

fn frame(title: &str, body: &str) -> String {
    format!(
        "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width\">\
         <title>{title}</title><style>body{{font-family:sans-serif;max-width:30em;margin:3em auto;padding:0 1em}}\
         input{{font-size:1em;padding:.3em;max-width:100%}}button{{font-size:1em;padding:.4em 1em}}code{{overflow-wrap:anywhere}}</style>\
         </head><body><h1>{title}</h1>{body}</body></html>"
    )
}

fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for sign in text.chars() {
        match sign {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            other => escaped.push(other),
        }
    }
    escaped
}

pub(super) fn cookie_of<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let cookies = headers.get_all(COOKIE).iter().filter_map(|value| value.to_str().ok());
    let mut pairs = cookies.flat_map(|text| text.split(';')).filter_map(|pair| pair.trim().split_once('='));
    pairs.find(|(given, _)| *given == name).map(|(_, value)| value)
}

/// The client's place with further fields in its query.
fn back(redirect: &str, fields: &[(&str, Option<&str>)]) -> String {
    let given = fields.iter().filter_map(|(name, value)| value.map(|value| (*name, value)));
    let query = form_urlencoded::Serializer::new(String::new()).extend_pairs(given).finish();
    format!("{redirect}{}{query}", if redirect.contains('?') { '&' } else { '?' })
}

/// Whether a place is the registered one: exactly, but for the port of a loopback address (RFC 8252 §7.3).
fn is_redirect(known: &str, given: &str) -> bool {
    let plain = given.bytes().all(|byte| (0x21..=0x7e).contains(&byte)) && !given.contains(['#', '\\', '"', '<', '>']);
    if !plain {
        return false;
    }
    known == given || loopback(known).is_some_and(|place| loopback(given) == Some(place))
}

/// Host and path of a loopback place, without its port.
fn loopback(place: &str) -> Option<(&str, &str)> {
    let rest = place.strip_prefix("http://")?;
    let (authority, path) = rest.find('/').map_or((rest, ""), |at| rest.split_at(at));
    let (host, port) = match authority
        .rsplit_once(':')
        .filter(|(host, _)| !host.ends_with(':') && (!host.starts_with('[') || host.ends_with(']')))
    {
        Some((host, port)) => (host, port),
        None => (authority, "0"),
    };
    let is_port = port.len() <= 5 && port.bytes().all(|byte| byte.is_ascii_digit());
    (is_port && ["localhost", "127.0.0.1", "[::1]"].contains(&host)).then_some((host, path.trim_end_matches('/')))
}

fn origin(place: &str) -> Option<&str> {
    let (scheme, rest) = place.split_once("://")?;
    let host = rest.split(['/', '?']).next()?;
    let fine = !host.is_empty() && host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".:-[]".contains(&byte));
    (fine && ["http", "https"].contains(&scheme)).then(|| &place[..scheme.len() + 3 + host.len()])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn browsers_go_back_to_registered_places_only() {
        let exact = "https://app.example.org/back";
        for (known, given, fits) in [
            (exact, exact, true),
            (exact, "https://app.example.org/back/", false),
            (exact, "https://app.example.org.evil.org/back", false),
            (exact, "https://app.example.org/back?x", false),
            ("http://localhost", "http://localhost:4000", true),
            ("http://localhost", "http://localhost:4000/", true),
            ("http://localhost", "http://localhost", true),
            ("http://localhost", "http://localhost:4000/other", false),
            ("http://localhost", "http://localhost.evil.org", false),
            ("http://localhost", "http://localhost:4000@evil.org", false),
            ("http://localhost", "http://evil.org:4000", false),
            ("http://localhost", "https://localhost:4000", false),
            ("http://localhost", "http://127.0.0.1:4000", false),
            ("http://[::1]/x", "http://[::1]:9/x", true),
            ("http://localhost", "http://localhost:4000\r\nX: y", false),
        ] {
            assert_eq!(is_redirect(known, given), fits, "{known} {given}");
        }
    }

    #[test]
    fn what_is_shown_is_text() {
        assert_eq!(escape("<script>'\"&"), "&lt;script&gt;&#39;&quot;&amp;");
        assert_eq!(origin("http://localhost:4000/x"), Some("http://localhost:4000"));
        assert_eq!(origin("https://a;b/x"), None);
    }
}
