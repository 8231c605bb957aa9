//! A service in memory, with a clock that tests move, and what asks it.

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::http::header::{AUTHORIZATION, CONTENT_TYPE};
use axum::http::{Method, Request};
use base64ct::{Base64, Encoding};
use http_body_util::BodyExt;
use serde_json::Value;
use tower_service::Service as _;
use uuid::Uuid;
use whimbrel_service::auth::clients::MadeClient;
use whimbrel_service::auth::scope::{Scope, TransferAll};
use whimbrel_service::clock::SetClock;
use whimbrel_service::notices::Settings;
use whimbrel_service::store::Store;
use whimbrel_service::{Config, Service};

pub const URL: &str = "https://transfer.example.org";
pub const NOW: i64 = 1_795_000_000;

/// What came of a request.
#[derive(Debug)]
pub struct Got {
    pub status: u16,
    pub location: Option<String>,
    pub cookie: Option<String>,
    pub text: String,
}

impl Got {
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|error| panic!("{error}: {}", self.text))
    }

    pub fn code(&self) -> String {
        let document = self.json();
        document["code"].as_str().or(document["error"].as_str()).unwrap_or_default().to_owned()
    }

    /// The document of a good answer.
    pub fn good(&self) -> Value {
        assert!((200..300).contains(&self.status), "{self:?}");
        self.json()
    }
}

pub struct Bench {
    pub service: Arc<Service>,
    pub clock: Arc<SetClock>,
    router: Router,
}

impl Bench {
    pub async fn new() -> Self {
        let inside = vec!["127.0.0.1".to_owned()];
        Self::telling(Settings { inside, ..Settings::trusting(None).unwrap() }).await
    }

    /// A service that tells owners of tasks so.
    pub async fn telling(settings: Settings) -> Self {
        let bench = Self::with(Arc::new(SetClock::at(NOW)), Store::open("sqlite::memory:").await.unwrap());
        bench.service.notifier.begin(settings);
        bench
    }

    /// Another replica: all that they share is the store.
    pub fn replica(&self) -> Self {
        Self::with(self.clock.clone(), self.service.store.clone())
    }

    pub fn with(clock: Arc<SetClock>, store: Store) -> Self {
        let config = Config { url: URL.to_owned(), domain: "example.org".to_owned() };
        let service = Arc::new(Service::new(config, clock.clone(), store));
        let router = service.router();
        Self { service, clock, router }
    }

    /// A good answer whose body is not read yet.
    pub async fn open(&self, path: &str, token: &str) -> Body {
        let request = Request::builder().uri(path).header(AUTHORIZATION, format!("Bearer {token}"));
        let response = self.router.clone().call(request.body(Body::empty()).unwrap()).await.unwrap();
        assert_eq!(response.status().as_u16(), 200);
        response.into_body()
    }

    pub async fn send(&self, request: Request<Body>) -> Got {
        let response = self.router.clone().call(request).await.unwrap();
        let header = |name: &str| response.headers().get(name).map(|value| value.to_str().unwrap().to_owned());
        let (status, location, cookie) = (response.status().as_u16(), header("location"), header("set-cookie"));
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
        Got { status, location, cookie, text: String::from_utf8(bytes.to_vec()).unwrap() }
    }

    pub async fn ask(&self, method: Method, path: &str, token: Option<&str>, body: Option<Value>) -> Got {
        let mut request = Request::builder().method(method).uri(path);
        if let Some(token) = token {
            request = request.header(AUTHORIZATION, format!("Bearer {token}"));
        }
        let body = body.map_or(Body::empty(), |body| Body::from(body.to_string()));
        self.send(request.header(CONTENT_TYPE, "application/json").body(body).unwrap()).await
    }

    pub async fn get(&self, path: &str, token: &str) -> Got {
        self.ask(Method::GET, path, Some(token), None).await
    }

    pub async fn post(&self, path: &str, token: &str, body: Value) -> Got {
        self.ask(Method::POST, path, Some(token), Some(body)).await
    }

    pub async fn put(&self, path: &str, token: &str, body: Value) -> Got {
        self.ask(Method::PUT, path, Some(token), Some(body)).await
    }

    pub async fn delete(&self, path: &str, token: &str) -> Got {
        self.ask(Method::DELETE, path, Some(token), None).await
    }

    pub async fn form(&self, path: &str, client: Option<&MadeClient>, fields: &[(&str, &str)]) -> Got {
        let mut request = Request::builder().method(Method::POST).uri(path);
        if let Some(made) = client {
            let pair = format!("{}:{}", made.client.id, made.secret.as_deref().unwrap_or_default());
            request = request.header(AUTHORIZATION, format!("Basic {}", Base64::encode_string(pair.as_bytes())));
        }
        let body = form_urlencoded::Serializer::new(String::new()).extend_pairs(fields).finish();
        let request = request.header(CONTENT_TYPE, "application/x-www-form-urlencoded");
        self.send(request.body(Body::from(body)).unwrap()).await
    }

    /// A client's own token document.
    pub async fn credentials(&self, client: &MadeClient, scope: &str) -> Got {
        let fields = [("grant_type", "client_credentials"), ("scope", scope)];
        self.form("/v2/oauth2/token", Some(client), &fields).await
    }

    /// Somebody with a token for all of the Transfer API.
    pub async fn user(&self, name: &str) -> Somebody {
        let client = self.service.bootstrap_client(name, false).await.unwrap();
        let token = self.token(&client, TransferAll::NAME).await;
        Somebody { id: client.client.id, token, client }
    }

    pub async fn token(&self, client: &MadeClient, scope: &str) -> String {
        let document = self.credentials(client, scope).await.good();
        document["access_token"].as_str().unwrap().to_owned()
    }
}

pub struct Somebody {
    pub id: Uuid,
    pub token: String,
    pub client: MadeClient,
}
