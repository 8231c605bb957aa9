//! What the service lets somebody do, asked with this server's own secret and believed for a few seconds.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use axum::http::{Method, StatusCode};
use openssl::sha::sha256;
use serde_json::{Value, json};
use uuid::Uuid;
use whimbrel_engine::{Fault, FaultCode, Side};
use whimbrel_web::client::{Client, Question};

use super::answer::Refusal;
use super::{HELPER, Settings};

/// How long a verdict is believed: the service itself believes a token as long.
const BELIEVED: Duration = Duration::from_secs(5);

/// Most verdicts that are remembered.
const MOST: usize = 4096;

/// Longest answer of the service, bytes.
const MOST_ANSWER: usize = 4 << 20;

/// Time for an answer of the service.
const LIMIT: Duration = Duration::from_secs(20);

/// What somebody wants of a file.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Wish {
    /// SHA-256 of their token; `None`: they show none.
    token: Option<[u8; 32]>,
    collection: Uuid,
    path: String,
    write: bool,
}

/// What they get.
#[derive(Debug)]
pub(super) struct Grant {
    /// The path at the server.
    pub(super) path: Vec<u8>,
    /// The token that its control port takes.
    pub(super) token: String,
    /// The account that the user has chosen; `None`: the usual one.
    pub(super) account: Option<String>,
}

/// Asks the service.
pub(super) struct Judge {
    client: Client,
    server: String,
    secret: String,
    known: Mutex<HashMap<Wish, (Instant, Arc<Grant>)>>,
}

impl Judge {
    pub(super) fn new(settings: &Settings) -> Result<Self, Fault> {
        Ok(Self {
            client: HELPER.client(&settings.service, settings.authorities.as_deref(), MOST_ANSWER)?,
            server: settings.server.clone(),
            secret: String::from_utf8_lossy(&settings.secret.0).into_owned(),
            known: Mutex::default(),
        })
    }

    /// What somebody may do with a path of a collection.
    ///
    /// # Errors
    /// What the service refuses, in its words; 503 while it cannot be asked.
    pub(super) async fn admit(
        &self,
        token: Option<&str>,
        collection: Uuid,
        path: &str,
        write: bool,
    ) -> Result<Arc<Grant>, Refusal> {
        let print = token.map(|token| sha256(token.as_bytes()));
        let wish = Wish { token: print, collection, path: path.to_owned(), write };
        if let Some(grant) = self.remembered(&wish) {
            return Ok(grant);
        }
        let document = json!({"token": token, "collection": collection, "path": path, "write": write});
        let granted = self.ask("access", &document).await?;
        let text = |name: &str| granted[name].as_str().map(str::to_owned);
        let (Some(path), Some(token)) = (text("path"), text("token")) else {
            return Err(Refusal::unavailable(&self.fault("its answer is no grant")));
        };
        let grant = Arc::new(Grant { path: path.into_bytes(), token, account: text("account") });
        let mut known = self.known.lock().expect("nothing panics with it");
        if known.len() >= MOST {
            known.retain(|_, (asked, _)| asked.elapsed() < BELIEVED);
        }
        if known.len() < MOST {
            known.insert(wish, (Instant::now(), grant.clone()));
        }
        Ok(grant)
    }

    fn remembered(&self, wish: &Wish) -> Option<Arc<Grant>> {
        let known = self.known.lock().expect("nothing panics with it");
        let (asked, grant) = known.get(wish)?;
        (asked.elapsed() < BELIEVED).then(|| grant.clone())
    }

    /// Asks something in the name of a user: what the service grants.
    ///
    /// # Errors
    /// As [`Judge::admit`].
    pub(super) async fn ask(&self, what: &str, document: &Value) -> Result<Value, Refusal> {
        let path = format!("/v2/whimbrel/servers/{}/{what}", self.server);
        let body = Some(document.to_string().into_bytes());
        let question = Question { method: Method::POST, path: &path, bearer: Some(&self.secret), body, limit: LIMIT };
        let answer = self.client.ask(question).await.map_err(|fault| Refusal::unavailable(&fault))?;
        let told: Option<Value> = serde_json::from_slice(&answer.body).ok();
        match told {
            Some(mut told) if answer.status == StatusCode::OK => match told.get("refused") {
                Some(refused) => Err(Refusal::of_service(refused)),
                None => Ok(told["granted"].take()),
            },
            _ => Err(Refusal::unavailable(&self.fault(&format!("the service answered {}", answer.status)))),
        }
    }

    fn fault(&self, detail: &str) -> Fault {
        Fault::new(FaultCode::ServerBusy, "ask the service").side(Side::Service).detail(detail)
    }
}
