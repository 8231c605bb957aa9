//! A service with two servers that have joined it, and a client.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use openssl::x509::X509;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::runtime::Runtime;
use whimbrel_testkit::measure::{Copies, Outcome};
use whimbrel_testkit::peers::{self, Daemon};
use whimbrel_testkit::tmpfs::Tmpfs;
use whimbrel_trust::roots::{HostOfAuthorities, SystemRoots};
use whimbrel_trust::tls::ClientTls;
use whimbrel_web::client::{Client, Question};

const START_LIMIT: Duration = Duration::from_secs(60);
const ASK_LIMIT: Duration = Duration::from_secs(60);
/// Room for files at both ends, bytes.
const ROOM: u64 = 14 << 30;

/// The service, its servers, and who asks it.
pub struct Field {
    runtime: Runtime,
    client: Client,
    token: String,
    collections: [String; 2],
    room: Tmpfs,
    service: Daemon,
    servers: Vec<Daemon>,
    _state: TempDir,
    _copies: Copies,
}

impl Field {
    /// Starts everything.
    pub fn start() -> Outcome<Self> {
        Self::with(&[], |setup, name, root, token| setup.site(name, root, token).map(|(id, server)| (id, Some(server))))
    }

    /// A service with these variables in its environment, and a collection at each end, each with its server if it has one of ours.
    pub fn with(
        variables: &[(&str, &Path)],
        site: impl Fn(&SetUp<'_>, &str, &Path, &str) -> Outcome<(String, Option<Daemon>)>,
    ) -> Outcome<Self> {
        let copies = Copies::of_beside(&["whimbrel"])?;
        let program = copies.path("whimbrel");
        let state = peers::public_dir()?;
        let room = Tmpfs::mount(ROOM)?;
        let place = state.path().join("service");
        let mut serve = Command::new(&program);
        serve.args(["serve", "--listen", "127.0.0.1:0", "--state"]).arg(&place).envs(variables.iter().copied());
        let ready = |line: &str| Some(line.strip_prefix("listening on ")?.to_owned());
        let (service, url) = Daemon::start(serve, START_LIMIT, ready)?;
        let setup = SetUp { url: &url, state: state.path(), program: &program };
        let token = setup.token()?;
        let (mut collections, mut servers) = (Vec::new(), Vec::new());
        for name in ["from", "to"] {
            let root = room.path().join(name);
            open_directory(&root)?;
            let (collection, server) = site(&setup, name, &root, &token)?;
            collections.push(collection);
            servers.extend(server);
        }
        let collections = collections.try_into().map_err(|_| "two sites were made")?;
        let roots = SystemRoots::of(X509::stack_from_pem(&fs::read(setup.certificate())?)?)?;
        let tls = ClientTls::new(Arc::new(HostOfAuthorities::new(roots, "127.0.0.1")), None)?;
        let client = Client::new(&url, tls, 16 << 20).map_err(|fault| fault.to_string())?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        Ok(Self { runtime, client, token, collections, room, service, servers, _state: state, _copies: copies })
    }

    /// Below the source's root.
    pub fn from(&self, path: &str) -> PathBuf {
        self.room.path().join("from").join(path)
    }

    /// Below the destination's root.
    pub fn to(&self, path: &str) -> PathBuf {
        self.room.path().join("to").join(path)
    }

    /// Process ids of the service, and of both servers.
    pub fn ids(&self) -> (u32, Vec<u32>) {
        (self.service.id(), self.servers.iter().map(Daemon::id).collect())
    }

    /// A transfer that has everything but its submission.
    pub fn transfer(&self, path: &str, recursive: bool) -> Outcome<Value> {
        let item = json!({
            "DATA_TYPE": "transfer_item", "source_path": format!("/{path}"), "destination_path": format!("/{path}"),
            "recursive": recursive,
        });
        Ok(json!({
            "DATA_TYPE": "transfer", "submission_id": self.ask("/v0.10/submission_id", None)?["value"],
            "source_endpoint": self.collections[0], "destination_endpoint": self.collections[1],
            "verify_checksum": true, "DATA": [item],
        }))
    }

    /// Submits; the task's id.
    pub fn submit(&self, document: &Value) -> Outcome<String> {
        let answer = self.ask("/v0.10/transfer", Some(document))?;
        Ok(answer["task_id"].as_str().ok_or_else(|| format!("no task: {answer}"))?.to_owned())
    }

    /// The task's document.
    pub fn task(&self, task: &str) -> Outcome<Value> {
        self.ask(&format!("/v0.10/task/{task}"), None)
    }

    fn ask(&self, path: &str, document: Option<&Value>) -> Outcome<Value> {
        let (method, body) = match document {
            None => ("GET", None),
            Some(document) => ("POST", Some(document.to_string().into_bytes())),
        };
        let method = method.parse().expect("it is a method");
        let question = Question { method, path, bearer: Some(&self.token), body, limit: ASK_LIMIT };
        let answer = self.runtime.block_on(self.client.ask(question)).map_err(|fault| fault.to_string())?;
        if !answer.status.is_success() {
            return Err(format!("{path}: {} {}", answer.status, String::from_utf8_lossy(&answer.body)).into());
        }
        Ok(serde_json::from_slice(&answer.body)?)
    }
}

/// Makes a directory that everybody may write to.
pub fn open_directory(path: &Path) -> Outcome<()> {
    fs::create_dir_all(path)?;
    Ok(fs::set_permissions(path, Permissions::from_mode(0o777))?)
}

/// A text of a document, which must be there.
pub fn text(made: &Value, field: &str) -> Outcome<String> {
    Ok(made[field].as_str().ok_or_else(|| format!("no {field}: {made}"))?.to_owned())
}

/// What is done once, with curl.
pub struct SetUp<'a> {
    url: &'a str,
    state: &'a Path,
    program: &'a Path,
}

impl SetUp<'_> {
    fn certificate(&self) -> PathBuf {
        self.state.join("service/certificate.pem")
    }

    fn token(&self) -> Outcome<String> {
        let made: Value = serde_json::from_slice(&fs::read(self.state.join("service/administrator.json"))?)?;
        let text = |name: &str| made[name].as_str().unwrap_or_default().to_owned();
        let pair = format!("{}:{}", text("client_id"), text("client_secret"));
        let form = "grant_type=client_credentials&scope=urn:globus:auth:scope:transfer.api.globus.org:all";
        let answer = self.curl(&["-u", &pair, "-d", form], "/v2/oauth2/token")?;
        Ok(answer["access_token"].as_str().ok_or_else(|| format!("no token: {answer}"))?.to_owned())
    }

    /// An endpoint with a collection and a server.
    fn site(&self, name: &str, root: &Path, token: &str) -> Outcome<(String, Daemon)> {
        let post = |path: &str, document: Value| self.tell("POST", token, path, &document);
        let endpoint = text(&post("/v2/whimbrel/endpoints", json!({"display_name": name}))?, "id")?;
        let place = format!("/v2/whimbrel/endpoints/{endpoint}");
        let wish = json!({"display_name": format!("{name} data"), "base_path": "/"});
        let collection = text(&post(&format!("{place}/collections"), wish)?, "id")?;
        let join = text(&post(&format!("{place}/join_tokens"), json!({}))?, "token")?;
        let config = self.state.join(format!("{name}.toml"));
        let (authorities, state) = (self.certificate(), self.state.join(format!("{name}.state")));
        let settings = format!(
            "listen = [\"127.0.0.1:0\"]\nroot = {root:?}\n[join]\nservice = {:?}\n\
             authorities = {authorities:?}\nstate = {state:?}\naccounts = [\"nobody\"]\n",
            self.url
        );
        fs::write(&config, settings)?;
        let mut command = Command::new(self.program);
        command.arg("dtn").arg("--config").arg(&config).args(["--join", self.url, "--token", &join]);
        let (server, ()) = Daemon::start(command, START_LIMIT, |line| line.starts_with("listening on ").then_some(()))?;
        Ok((collection, server))
    }

    /// An endpoint of stock servers, and a collection of a directory of theirs.
    pub fn stock_site(&self, name: &str, root: &Path, servers: &[String], token: &str) -> Outcome<String> {
        let post = |path: &str, document: Value| self.tell("POST", token, path, &document);
        let wish = json!({"display_name": name, "servers": servers});
        let endpoint = text(&post("/v2/whimbrel/endpoints", wish)?, "id")?;
        let wish = json!({"display_name": format!("{name} data"), "base_path": root});
        text(&post(&format!("/v2/whimbrel/endpoints/{endpoint}/collections"), wish)?, "id")
    }

    /// Sends a document with a token; the answer.
    pub fn tell(&self, method: &str, token: &str, path: &str, document: &Value) -> Outcome<Value> {
        let (bearer, body) = (format!("Authorization: Bearer {token}"), document.to_string());
        self.curl(&["-X", method, "-H", &bearer, "-H", "Content-Type: application/json", "-d", &body], path)
    }

    fn curl(&self, arguments: &[&str], path: &str) -> Outcome<Value> {
        let tool = peers::curl().ok_or("curl is not installed")?.args(["-sS", "--cacert"]).arg(self.certificate());
        let run = tool.args(arguments).arg(format!("{}{path}", self.url)).run()?;
        Ok(serde_json::from_slice(&run.stdout).map_err(|error| format!("{path}: {error}: {run}"))?)
    }
}
