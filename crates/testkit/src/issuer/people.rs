//! People log in at the issuer, by the code flow of OpenID Connect Core 1.0 §3.1: as strict as the specification, since nobody else
//! tells whether a program keeps to it.

use std::collections::HashMap;
use std::fmt;
use std::time::{SystemTime, UNIX_EPOCH};

use openssl::sha::sha256;
use serde_json::{Value, json};

use super::{SigningKey, base64url};

/// A program as it is registered.
#[derive(Debug, Clone)]
pub struct Registered {
    /// Its id.
    pub id: String,
    /// Its secret.
    pub secret: String,
    /// Where browsers are sent back to.
    pub redirect: String,
    /// Whether it shows its secret in forms, and not as Basic.
    pub by_form: bool,
}

/// Changes claims.
type Change = Box<dyn FnOnce(&mut Value) + Send>;

/// Who has logged in, and for whom.
#[derive(Default)]
pub(super) struct People {
    program: Option<(Registered, SigningKey)>,
    /// What was asked, and the claims, by code.
    codes: HashMap<String, (HashMap<String, String>, Value)>,
    count: usize,
    change: Option<Change>,
}

impl fmt::Debug for People {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "People({:?})", self.program)
    }
}

/// A request that has come whole.
pub(super) struct Request {
    pub(super) path: String,
    authorization: Option<String>,
    body: String,
}

impl Request {
    pub(super) fn whole(bytes: &[u8]) -> Option<Self> {
        let text = String::from_utf8_lossy(bytes);
        let (head, body) = text.split_once("\r\n\r\n")?;
        let field = |name: &str| {
            let fields = head.lines().skip(1).filter_map(|line| line.split_once(':'));
            let found = fields.into_iter().find(|(given, _)| given.eq_ignore_ascii_case(name));
            found.map(|(_, value)| value.trim().to_owned())
        };
        let length = field("content-length").and_then(|length| length.parse().ok()).unwrap_or(0);
        let path = head.split(' ').nth(1)?.to_owned();
        (body.len() >= length).then(|| Self { path, authorization: field("authorization"), body: body.to_owned() })
    }
}

impl People {
    pub(super) fn register(&mut self, program: Registered, key: SigningKey) {
        self.program = Some((program, key));
    }

    pub(super) fn spoil(&mut self, change: impl FnOnce(&mut Value) + Send + 'static) {
        self.change = Some(Box::new(change));
    }

    pub(super) fn description(&self, url: &str) -> Value {
        let method = match &self.program {
            Some((program, _)) if program.by_form => "client_secret_post",
            _ => "client_secret_basic",
        };
        json!({
            "issuer": url, "jwks_uri": format!("{url}keys"), "authorization_endpoint": format!("{url}authorize"),
            "token_endpoint": format!("{url}token"), "token_endpoint_auth_methods_supported": [method],
        })
    }

    pub(super) fn log_in(&mut self, asked: &str, claims: &Value) -> Option<String> {
        let (program, _) = self.program.as_ref()?;
        let (_, query) = asked.split_once('?')?;
        let asked = fields(query);
        let is = |name: &str, value: &str| asked.get(name).is_some_and(|given| given == value);
        let openid = asked.get("scope").is_some_and(|scope| scope.split(' ').any(|scope| scope == "openid"));
        let fine = openid
            && is("response_type", "code")
            && is("client_id", &program.id)
            && is("redirect_uri", &program.redirect)
            && is("code_challenge_method", "S256")
            && ["state", "nonce", "code_challenge"].iter().all(|name| asked.contains_key(*name));
        if !fine {
            return None;
        }
        self.count += 1;
        let code = format!("code-{}", self.count);
        let back = format!("{}?code={code}&state={}", program.redirect, asked["state"]);
        self.codes.insert(code, (asked, claims.clone()));
        Some(back)
    }

    /// The id token of a code, once, for the program that it was made for.
    pub(super) fn exchange(&mut self, request: &Request, url: &str) -> Option<Value> {
        let (program, key) = self.program.as_ref()?;
        let form = fields(&request.body);
        let is = |name: &str, value: &str| form.get(name).is_some_and(|given| given == value);
        let known = match program.by_form {
            true => is("client_id", &program.id) && is("client_secret", &program.secret),
            false => {
                let pair = format!("{}:{}", program.id, program.secret);
                request.authorization.as_deref()
                    == Some(&format!("Basic {}", openssl::base64::encode_block(pair.as_bytes())))
            }
        };
        let fine = known && is("grant_type", "authorization_code") && is("redirect_uri", &program.redirect);
        let (asked, claims) = form.get("code").filter(|_| fine).and_then(|code| self.codes.remove(code))?;
        let challenge = base64url(&sha256(form.get("code_verifier")?.as_bytes()));
        if challenge != asked["code_challenge"] {
            return None;
        }
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let mut all = json!({
            "iss": url, "aud": program.id, "exp": now + 300, "iat": now, "nonce": asked["nonce"],
        });
        if let (Some(all), Some(claims)) = (all.as_object_mut(), claims.as_object()) {
            all.extend(claims.clone());
        }
        if let Some(change) = self.change.take() {
            change(&mut all);
        }
        Some(json!({"access_token": "of no use", "token_type": "Bearer", "id_token": key.sign(&all)}))
    }
}

fn fields(text: &str) -> HashMap<String, String> {
    form_urlencoded::parse(text.as_bytes()).into_owned().collect()
}
