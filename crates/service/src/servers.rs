//! DTNs that register themselves: they join an endpoint with a token, then tell of themselves now and then.

mod door;
pub mod rendezvous;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use uuid::Uuid;
use whimbrel_engine::dispatch;
use whimbrel_engine::listing::Timestamp;

use crate::Service;
use crate::audit::SERVICE;
use crate::auth::rules::bearer_text;
use crate::auth::secrets::{digest, random, random_id};
use crate::clock::iso;
use crate::endpoints::records::{Collection, EntityType};
use crate::grid::{self, Logins};
use crate::http::{Access, Answer, ApiError, Call, Created, Json, Knock, Route, Rule};
use crate::store::{AuditEntry, Batch, Record, Versioned};

/// Seconds between two signs of life of a server.
const INTERVAL: u32 = 10;

/// Seconds after which a silent server counts as gone: three signs of life missed.
const SILENCE: i64 = 35;

/// Seconds of silence after which a server that joined is forgotten: whoever starts it again joins anew.
const FORGOTTEN_AFTER: i64 = 30 * 24 * 3600;

/// Most addresses of a server, and their longest, bytes.
const MOST_ADDRESSES: usize = 16;
const LONGEST_ADDRESS: usize = 512;

/// A token with which servers join an endpoint.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JoinToken {
    /// SHA-256 of its text.
    digest: String,
    /// The endpoint.
    endpoint: Uuid,
    /// Last second at which it is good.
    expires: Timestamp,
    /// Servers that may still join with it.
    uses_left: u32,
}

impl Record for JoinToken {
    const KIND: &'static str = "join_token";

    fn id(&self) -> String {
        self.digest.clone()
    }

    fn keys(&self) -> Vec<(&'static str, String)> {
        vec![("endpoint", self.endpoint.to_string())]
    }
}

/// A server of an endpoint.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Server {
    /// Its id.
    pub id: Uuid,
    /// The endpoint it belongs to.
    pub endpoint: Uuid,
    /// What its host calls itself.
    pub name: String,
    /// Where it is reached, `whimbrel://HOST:PORT`.
    pub addresses: Vec<String>,
    /// The fingerprint of its certificate's key; `None`: authorities vouch for it.
    pub pin: Option<String>,
    /// Its program's version.
    pub version: String,
    /// SHA-256 of what proves that it is this server; `None`: it was named by an administrator, and does not speak to us.
    secret: Option<String>,
    /// When it last spoke.
    pub seen: Timestamp,
    /// Nothing new is to begin there.
    pub draining: bool,
    /// Runnable tasks of its host, averaged over a minute; `None`: it does not tell.
    pub load: Option<f64>,
    /// Where it serves collections over HTTPS, without a slash at the end; `None`: it does not.
    #[serde(default)]
    pub https: Option<String>,
    /// It takes no connections, and leaves some at the rendezvous.
    #[serde(default)]
    pub outbound: bool,
    /// It joins data connections of servers that take none.
    #[serde(default)]
    pub relay: bool,
}

impl Record for Server {
    const KIND: &'static str = "server";

    fn id(&self) -> String {
        self.id.to_string()
    }

    fn keys(&self) -> Vec<(&'static str, String)> {
        let secret = self.secret.iter().map(|digest| ("secret", digest.clone()));
        let relay = self.relay.then(|| ("relay", "yes".to_owned()));
        std::iter::once(("endpoint", self.endpoint.to_string())).chain(secret).chain(relay).collect()
    }
}

impl Server {
    /// Its name, as far as host names go, and the beginning of its id: laptops are often called alike.
    fn label(&self) -> String {
        let is_fit = |letter: &char| letter.is_ascii_alphanumeric() || *letter == '-';
        let name: String = self.name.split('.').next().unwrap_or_default().chars().filter(is_fit).take(40).collect();
        let id = &self.id.simple().to_string()[..8];
        if name.is_empty() { format!("dtn-{id}") } else { format!("{name}-{id}") }
    }

    /// How it is named to those who reach it; `None`: it has told no address.
    pub fn url(&self) -> Option<String> {
        match self.outbound {
            true => Some(format!("whimbrel://{}", self.label())),
            false => self.addresses.first().cloned(),
        }
    }

    /// Whether new work may begin there.
    pub fn is_ready(&self, now: Timestamp) -> bool {
        !self.draining && (self.secret.is_none() || now.secs - self.seen.secs <= SILENCE)
    }
}

/// The routes.
pub fn routes() -> Vec<Route> {
    vec![
        Route::post("/v2/whimbrel/servers", "server_join", join),
        Route::post("/v2/whimbrel/servers/{server}/beat", "server_beat", beat),
        Route::get("/v2/whimbrel/servers/{server}/wait", "server_wait", rendezvous::leave),
        Route::get("/v2/whimbrel/dispatch/servers/{server}", "dispatch_server", rendezvous::take),
        Route::get("/v2/whimbrel/replicas/servers/{server}", "replica_server", rendezvous::lend),
        Route::post("/v2/whimbrel/servers/{server}/access", "server_access", door::access),
        Route::post("/v2/whimbrel/servers/{server}/manage", "server_manage", door::manage),
    ]
}

/// What a server may join with.
enum Ticket {
    /// A token, of an administrator.
    Token(Versioned<JoinToken>),
    /// The setup key of somebody's own machine, which is good once.
    Setup(Box<Versioned<Collection>>),
}

impl Ticket {
    fn endpoint(&self) -> Uuid {
        match self {
            Self::Token(token) => token.record.endpoint,
            Self::Setup(machine) => machine.record.id,
        }
    }

    /// What it is, for the audit log.
    fn name(&self) -> &'static str {
        match self {
            Self::Token(_) => "join_token",
            Self::Setup(_) => "setup_key",
        }
    }

    /// Uses it once.
    fn used(self, batch: Batch) -> Batch {
        match self {
            Self::Token(mut token) => {
                token.record.uses_left -= 1;
                batch.update(&token)
            }
            Self::Setup(mut machine) => {
                machine.record.setup_key = None;
                batch.update(&machine)
            }
        }
    }
}

/// Whoever has a token to join an endpoint.
struct Joining;

impl Rule for Joining {
    type Caller = Ticket;
    const ACCESS: Access = Access::Server;

    async fn admit(service: &Service, knock: &Knock) -> Result<Ticket, ApiError> {
        let unknown = || ApiError::unauthenticated("The token to join is unknown, used up or has expired");
        let digest = digest(bearer_text(&knock.headers).ok_or_else(unknown)?);
        let is_good = |token: &JoinToken| token.uses_left > 0 && token.expires >= service.clock.now();
        if let Some(found) = service.store.get::<JoinToken>(&digest).await?.filter(|found| is_good(&found.record)) {
            return Ok(Ticket::Token(found));
        }
        let machine = service.store.find::<Collection>("setup", &digest, None, 1).await?.pop();
        let machine = machine.filter(|machine| !machine.record.deleted).ok_or_else(unknown)?;
        Ok(Ticket::Setup(Box::new(machine)))
    }
}

/// A server that has joined.
struct Joined;

impl Rule for Joined {
    type Caller = Versioned<Server>;
    const ACCESS: Access = Access::Server;

    async fn admit(service: &Service, knock: &Knock) -> Result<Versioned<Server>, ApiError> {
        let unknown = || ApiError::unauthenticated("The server is not known here, or no longer");
        let text = bearer_text(&knock.headers).ok_or_else(unknown)?;
        service.store.find::<Server>("secret", &digest(text), None, 1).await?.pop().ok_or_else(unknown)
    }
}

/// What a server tells of itself.
#[derive(Debug, Deserialize, schemars::JsonSchema)]
struct Told {
    addresses: Vec<String>,
    pin: Option<String>,
    #[serde(default)]
    version: String,
    #[serde(default)]
    name: String,
    #[serde(default)]
    draining: bool,
    load: Option<f64>,
    https: Option<String>,
    #[serde(default)]
    outbound: bool,
    #[serde(default)]
    relay: bool,
}

impl Told {
    fn check(&self) -> Result<(), ApiError> {
        let is_address = |address: &&String| {
            let known = ["whimbrel://", "ftps://"].iter().any(|scheme| address.starts_with(scheme));
            known && is_url(address)
        };
        if self.outbound && (!self.addresses.is_empty() || self.https.is_some()) {
            return Err(ApiError::bad_request("A server that takes no connections has no addresses"));
        }
        if self.outbound && self.relay {
            return Err(ApiError::bad_request("A server that takes no connections joins none of others"));
        }
        if (self.addresses.is_empty() && !self.outbound) || self.addresses.len() > MOST_ADDRESSES {
            return Err(ApiError::bad_request(format!("A server has 1 to {MOST_ADDRESSES} addresses")));
        }
        if let Some(address) = self.addresses.iter().find(|address| !is_address(address)) {
            return Err(ApiError::bad_request(format!("{address:?} is no address as in whimbrel://HOST:PORT")));
        }
        let is_web = |url: &String| url.starts_with("https://") && is_url(url) && !url.ends_with('/');
        if let Some(url) = self.https.as_ref().filter(|url| !is_web(url)) {
            return Err(ApiError::bad_request(format!("{url:?} is no place as in https://HOST:PORT")));
        }
        let fits =
            self.name.len() <= 255 && self.version.len() <= 64 && self.pin.as_ref().is_none_or(|pin| is_pin(pin));
        if fits { Ok(()) } else { Err(ApiError::bad_request("name, version or pin is none")) }
    }
}

fn is_url(text: &str) -> bool {
    text.len() <= LONGEST_ADDRESS && text.bytes().all(|byte| byte.is_ascii_graphic())
}

fn is_pin(text: &str) -> bool {
    let digits = text.strip_prefix("sha256:").unwrap_or_default();
    digits.len() == 64 && digits.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Refuses addresses of a machine that any user may connect: whoever tells where the service connects to looks about in its
/// network, and at what listens on its own host.
async fn fits(service: &Service, endpoint: Uuid, told: &Told) -> Result<(), ApiError> {
    told.check()?;
    let found = service.store.get::<Collection>(&endpoint.to_string()).await?;
    if !told.outbound && found.is_some_and(|found| found.record.kind.is_personal()) {
        return Err(ApiError::bad_request(
            "A machine of one's own connects to the service, and is not connected to: start it with --outbound",
        ));
    }
    Ok(())
}

async fn join(call: Call<Joining, Json<Told>>) -> Result<Created<Value>, ApiError> {
    let told = call.body.0;
    let ticket = call.caller;
    let endpoint = ticket.endpoint();
    fits(&call.service, endpoint, &told).await?;
    let own = call.service.collection(endpoint).await?.record.servers;
    if call.service.logins_at(endpoint, &own).await?.is_some_and(Logins::is_stock) {
        return Err(grid::mixed());
    }
    let secret = random("ws_")?;
    let server = Server {
        id: random_id()?,
        endpoint,
        name: told.name,
        addresses: told.addresses,
        pin: told.pin,
        version: told.version,
        secret: Some(digest(&secret)),
        seen: call.service.clock.now(),
        draining: false,
        load: told.load,
        https: told.https,
        outbound: told.outbound,
        relay: told.relay,
    };
    let detail =
        json!({"from": call.knock.from, "addresses": server.addresses, "name": server.name, "by": ticket.name()});
    let entry = call.service.entry(server.id, "server.join", server.endpoint).detail(detail);
    // Two servers with the last use of a token: one of them finds the token changed, and is refused.
    call.service.store.apply(ticket.used(Batch::new()).insert(&server).audit(entry)).await?;
    call.service.desk.ring();
    Ok(Answer(json!({
        "server_id": server.id,
        "endpoint_id": server.endpoint,
        "secret": secret,
        "issuer": call.service.issuer(),
        "audience": server.endpoint,
        "interval": INTERVAL,
    })))
}

async fn beat(call: Call<Joined, Json<Told>>) -> Result<Answer<Value>, ApiError> {
    itself(&call)?;
    let told = call.body.0;
    let mut server = call.caller;
    fits(&call.service, server.record.endpoint, &told).await?;
    let now = call.service.clock.now();
    let was_ready = server.record.is_ready(now);
    let record = &mut server.record;
    (record.addresses, record.pin, record.version, record.name) = (told.addresses, told.pin, told.version, told.name);
    (record.draining, record.load, record.seen, record.https) = (told.draining, told.load, now, told.https);
    (record.outbound, record.relay) = (told.outbound, told.relay);
    call.service.store.apply(Batch::new().update(&server)).await?;
    if server.record.is_ready(now) != was_ready {
        call.service.desk.ring();
    }
    Ok(Answer(json!({"interval": INTERVAL})))
}

/// Refuses a server that names another one.
fn itself<I>(call: &Call<Joined, I>) -> Result<(), ApiError> {
    if call.path.text("server") == call.caller.record.id.to_string() {
        return Ok(());
    }
    Err(ApiError::denied("A server speaks of itself only"))
}

impl Service {
    /// A token with which `uses` servers may join an endpoint within `seconds`; told once.
    ///
    /// # Errors
    /// 503 without the store.
    pub async fn join_token(&self, endpoint: Uuid, uses: u32, seconds: i64) -> Result<String, ApiError> {
        self.join_token_by(SERVICE, endpoint, uses, seconds).await
    }

    /// The same in somebody's name.
    ///
    /// # Errors
    /// 503 without the store.
    pub(crate) async fn join_token_by(
        &self,
        by: &str,
        endpoint: Uuid,
        uses: u32,
        seconds: i64,
    ) -> Result<String, ApiError> {
        let text = random("wj_")?;
        let expires = Timestamp::from_secs(self.clock.now().secs.saturating_add(seconds));
        let token = JoinToken { digest: digest(&text), endpoint, expires, uses_left: uses };
        let entry = AuditEntry::new(self.clock.now(), by, "join_token.create", endpoint.to_string());
        let entry = entry.detail(json!({"uses": uses, "until": iso(expires)}));
        self.store.apply(Batch::new().insert(&token).audit(entry)).await?;
        Ok(text)
    }

    /// Names a server that does not speak to the service, in somebody's name.
    ///
    /// # Errors
    /// 503 without the store.
    pub async fn name_server(&self, by: Uuid, endpoint: Uuid, url: &str) -> Result<Server, ApiError> {
        let server = Server {
            id: random_id()?,
            endpoint,
            name: url.to_owned(),
            addresses: vec![url.to_owned()],
            pin: None,
            version: String::new(),
            secret: None,
            seen: self.clock.now(),
            draining: false,
            load: None,
            https: None,
            outbound: false,
            relay: false,
        };
        let entry = self.entry(by, "server.name", endpoint).detail(json!({"server": server.id, "url": url}));
        self.store.apply(Batch::new().insert(&server).audit(entry)).await?;
        Ok(server)
    }

    /// Takes a server away from an endpoint, in somebody's name. One that runs on is not known any more, and has to join anew.
    ///
    /// # Errors
    /// 404: the endpoint has no such server.
    pub async fn remove_server(&self, by: Uuid, endpoint: Uuid, id: Uuid) -> Result<(), ApiError> {
        let found = self.store.get::<Server>(&id.to_string()).await?.filter(|found| found.record.endpoint == endpoint);
        let missing = || ApiError::not_found("ServerNotFound", format!("It has no server {id}"));
        let server = found.ok_or_else(missing)?.record;
        let detail = json!({"server": id, "name": server.name, "url": server.url()});
        let entry = self.entry(by, "server.remove", endpoint).detail(detail);
        self.store.apply(Batch::new().delete_id::<Server>(id.to_string()).audit(entry)).await?;
        self.desk.ring();
        Ok(())
    }

    /// Forgets servers of deployments that joined and were silent for long; how many. Somebody's own machine has one at most, and may be off for
    /// as long as they like.
    ///
    /// # Errors
    /// 503 without the store; what was forgotten by then is.
    pub(crate) async fn forget_servers(&self) -> Result<usize, ApiError> {
        let now = self.clock.now();
        let is_silent = |server: &Server| server.secret.is_some() && now.secs - server.seen.secs > FORGOTTEN_AFTER;
        let mut count = 0;
        for server in self.all::<Server>().await?.into_iter().map(|found| found.record).filter(is_silent) {
            let endpoint = self.store.get::<Collection>(&server.endpoint.to_string()).await?;
            if endpoint.is_some_and(|found| found.record.kind.is_personal() && !found.record.deleted) {
                continue;
            }
            let detail = json!({"server": server.id, "name": server.name, "seen": iso(server.seen)});
            let entry = AuditEntry::new(now, SERVICE, "server.forget", server.endpoint.to_string()).detail(detail);
            self.store.apply(Batch::new().delete_id::<Server>(server.id.to_string()).audit(entry)).await?;
            count += 1;
        }
        Ok(count)
    }

    /// All servers of an endpoint, those that are gone or drained included.
    ///
    /// # Errors
    /// 503 without the store.
    pub async fn servers(&self, endpoint: Uuid) -> Result<Vec<Server>, ApiError> {
        let found = self.all_by_key::<Server>("endpoint", &endpoint.to_string()).await?;
        Ok(found.into_iter().map(|found| found.record).collect())
    }

    /// Where an endpoint serves its collections over HTTPS now: at the first server that does, so that it stays one place.
    ///
    /// # Errors
    /// 503 without the store.
    pub async fn https_place(&self, endpoint: Uuid) -> Result<Option<String>, ApiError> {
        let now = self.clock.now();
        let mut servers = self.servers(endpoint).await?;
        servers.retain(|server| server.https.is_some());
        // One that is away for a moment comes back to the same place: better a refused connection than no place at all.
        servers.sort_by_key(|server| (!server.is_ready(now), server.id));
        Ok(servers.into_iter().next().and_then(|server| server.https))
    }

    /// Servers of deployments that join data connections of others. Those of somebody's own machine do so for nobody.
    ///
    /// # Errors
    /// 503 without the store.
    pub async fn relay_servers(&self) -> Result<Vec<Server>, ApiError> {
        let mut relays = Vec::new();
        for found in self.all_by_key::<Server>("relay", "yes").await? {
            let endpoint = self.store.get::<Collection>(&found.record.endpoint.to_string()).await?;
            let is_deployment =
                |found: &Versioned<Collection>| found.record.kind == EntityType::Endpoint && !found.record.deleted;
            relays.extend(endpoint.filter(is_deployment).map(|_| found.record));
        }
        Ok(relays)
    }

    /// The servers of an endpoint where work may begin, the least loaded first.
    ///
    /// # Errors
    /// 503 without the store.
    pub async fn ready_servers(&self, endpoint: Uuid) -> Result<Vec<dispatch::Server>, ApiError> {
        let now = self.clock.now();
        let mut ready = self.servers(endpoint).await?;
        ready.retain(|server| server.is_ready(now));
        ready.sort_by(|a, b| a.load.unwrap_or(0.0).total_cmp(&b.load.unwrap_or(0.0)).then(a.id.cmp(&b.id)));
        let reached = |server: Server| {
            let rendezvous = server.outbound.then_some(server.id);
            Some(dispatch::Server { url: server.url()?, pin: server.pin, rendezvous })
        };
        Ok(ready.into_iter().filter_map(reached).collect())
    }
}
