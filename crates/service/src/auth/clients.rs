//! Programs that ask for tokens: made by administrators, by bootstrap, or by a program for itself from a template.

use axum::http::StatusCode;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use uuid::{Uuid, uuid};

use super::records::{CODE_PAGE_PATH, Client, Identity, LOOPBACK, Role, Token};
use super::rules::{Admin, ByClient};
use super::scope::TransferAll;
use super::secrets::{digest, random, random_id};
use crate::Service;
use crate::audit::{NOBODY, SERVICE};
use crate::http::{Answer, Anyone, ApiError, Call, Created, Json};
use crate::store::{AuditEntry, Batch};

/// The public command line's template: each installation becomes a client of its own with its first login.
const CLI_TEMPLATE: Uuid = uuid!("95fdeba8-fac2-42bd-a357-e068d82ff78e");

/// Longest name of a client, characters.
const LONGEST_NAME: usize = 200;

/// A client that is to be.
#[derive(Debug, Clone)]
pub struct NewClient {
    /// What people call it.
    pub name: String,
    /// What it is for.
    pub role: Role,
    /// It has a secret, and an identity of its own unless it is made from the template.
    pub confidential: bool,
    /// It may log users in.
    pub logins: bool,
    /// It is made from the template, and never acts in its own name.
    pub template: bool,
    /// Where browsers may be sent with codes.
    pub redirects: Vec<String>,
    /// Its id; else a random one.
    pub id: Option<Uuid>,
}

/// A client with its secret, which is told once.
#[derive(Debug, Clone)]
pub struct MadeClient {
    /// The client.
    pub client: Client,
    /// Its secret; `None` for a public one.
    pub secret: Option<String>,
}

impl NewClient {
    /// One that carries out tasks.
    pub(crate) fn orchestrator(name: &str) -> Self {
        let (role, redirects) = (Role::Orchestrator, Vec::new());
        Self { name: name.to_owned(), role, confidential: true, logins: false, template: false, redirects, id: None }
    }
}

impl Service {
    /// A new client; a confidential one with an identity of the same id.
    ///
    /// # Errors
    /// 400 for a name that is none, 409 for an id that is taken.
    pub async fn add_client(&self, new: NewClient) -> Result<MadeClient, ApiError> {
        self.add_client_by(SERVICE, new).await
    }

    /// The same in somebody's name.
    ///
    /// # Errors
    /// Those of [`Service::add_client`].
    pub(crate) async fn add_client_by(&self, by: &str, new: NewClient) -> Result<MadeClient, ApiError> {
        let name = new.name.trim();
        if name.is_empty() || name.chars().count() > LONGEST_NAME || name.chars().any(char::is_control) {
            return Err(ApiError::bad_request(format!("A client's name has 1 to {LONGEST_NAME} characters")));
        }
        let id = new.id.map_or_else(random_id, Ok)?;
        let secret = if new.confidential { Some(random("ws_")?) } else { None };
        let client = Client {
            id,
            name: name.to_owned(),
            secret: secret.as_deref().map(digest),
            redirects: new.redirects,
            role: new.role,
            logins: new.logins,
            template: Some(new.template),
            created: self.clock.now(),
        };
        let mut batch = Batch::new().insert(&client);
        if new.confidential && !new.template {
            batch = batch.insert(&self.own_identity(&client));
        }
        let detail =
            json!({"name": client.name, "role": client.role, "logins": client.logins, "redirects": client.redirects});
        let entry = AuditEntry::new(self.clock.now(), by, "client.create", id.to_string()).detail(detail);
        self.store.apply(batch.audit(entry)).await?;
        Ok(MadeClient { client, secret })
    }

    fn own_identity(&self, client: &Client) -> Identity {
        Identity {
            id: client.id,
            username: format!("{}{}", client.id, self.client_domain()),
            name: client.name.clone(),
            email: None,
            organization: None,
            password: None,
            admin: false,
            disabled: false,
            elsewhere: None,
            created: client.created,
        }
    }

    /// Takes a client away, with its tokens.
    ///
    /// # Errors
    /// 503 without the store.
    pub async fn remove_client(&self, id: Uuid) -> Result<(), ApiError> {
        let tokens = self.all_by_key::<Token>("client", &id.to_string()).await?;
        let batch = tokens.iter().fold(Batch::new(), |batch, token| batch.delete_id::<Token>(&token.record.hash));
        let entry = self.entry(id, "client.remove", id);
        self.store.apply(batch.delete_id::<Client>(id.to_string()).audit(entry)).await?;
        self.auth.memory.forget();
        Ok(())
    }
}

/// The body of a question for a client.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
pub(super) struct ClientQuestion {
    client: ClientWish,
}

#[derive(Debug, Clone, Deserialize, JsonSchema)]
struct ClientWish {
    template_id: Option<Uuid>,
    name: String,
}

/// A client that was made.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub(super) struct ClientAnswer {
    client: Value,
    included: Value,
}

impl ClientAnswer {
    fn new(made: &MadeClient) -> Self {
        let client = &made.client;
        Self {
            client: json!({"id": client.id, "name": client.name, "public_client": client.secret.is_none(), "redirect_uris": client.redirects}),
            included: json!({"client_credential": {"client": client.id, "secret": made.secret, "name": "secret"}}),
        }
    }
}

/// `POST /v2/api/clients` by a program without a client: one of the command line's kind, good for logins of users only.
pub(super) async fn from_template(call: Call<Anyone, Json<ClientQuestion>>) -> Result<Created<ClientAnswer>, ApiError> {
    let wish = call.body.0.client;
    if wish.template_id != Some(CLI_TEMPLATE) {
        return Err(ApiError::new(
            StatusCode::FORBIDDEN,
            "FORBIDDEN",
            "Clients are made from the command line's template only",
        ));
    }
    if !call
        .service
        .auth
        .templated
        .lock()
        .expect("nothing panics with it")
        .ask(call.knock.from, std::time::Instant::now())
    {
        return Err(ApiError::too_many(60, "Too many new clients from your network; try again in a minute"));
    }
    let new = NewClient {
        name: wish.name,
        role: Role::Program,
        confidential: true,
        logins: true,
        template: true,
        redirects: vec![format!("{}{CODE_PAGE_PATH}", call.service.config.url), LOOPBACK.to_owned()],
        id: None,
    };
    let made = call.service.add_client_by(NOBODY, new).await?;
    Ok(Answer(ClientAnswer::new(&made)))
}

/// `DELETE /v2/api/clients/{id}`: a client takes itself away.
pub(super) async fn remove_own(call: Call<ByClient>) -> Result<Answer<Value>, ApiError> {
    let id = call.path.id("id", "ClientNotFound")?;
    if id != call.caller.id {
        return Err(ApiError::new(StatusCode::FORBIDDEN, "FORBIDDEN", "A client may take away itself only"));
    }
    call.service.remove_client(id).await?;
    Ok(Answer(json!({"client": {"id": id}})))
}

/// A client that an administrator wants.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
pub(super) struct AdminWish {
    name: String,
    /// It carries out tasks.
    #[serde(default)]
    orchestrator: bool,
    /// It collects metrics.
    #[serde(default)]
    monitor: bool,
    /// It may log users in at these places.
    #[serde(default)]
    redirect_uris: Vec<String>,
    /// It has no secret.
    #[serde(default)]
    public_client: bool,
    /// Its id, where a program has it compiled in; else a random one.
    id: Option<Uuid>,
}

/// `POST /v2/whimbrel/clients`, for administrators.
pub(super) async fn add(call: Call<Admin<TransferAll>, Json<AdminWish>>) -> Result<Created<ClientAnswer>, ApiError> {
    let wish = call.body.0;
    let role = match (wish.orchestrator, wish.monitor) {
        (true, true) => return Err(ApiError::bad_request("A client either carries out tasks or collects metrics")),
        (true, false) => Role::Orchestrator,
        (false, true) => Role::Monitor,
        (false, false) => Role::Program,
    };
    let new = NewClient {
        name: wish.name,
        role,
        confidential: !wish.public_client,
        logins: !wish.redirect_uris.is_empty() && role == Role::Program,
        template: false,
        redirects: wish.redirect_uris,
        id: wish.id,
    };
    let made = call.service.add_client_by(&call.caller.identity.to_string(), new).await?;
    Ok(Answer(ClientAnswer::new(&made)))
}
