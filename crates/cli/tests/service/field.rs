//! A service with two endpoints, each with a server that joined it, and the public client.

use std::fs::{self, Permissions};
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};
use whimbrel_testkit::lab::Host;
use whimbrel_testkit::metrics;
use whimbrel_testkit::must_not_skip;
use whimbrel_testkit::peers::{Run, Tool, public_dir};

/// The program under test.
pub const WHIMBREL: &str = env!("CARGO_BIN_EXE_whimbrel");

/// A program of an environment that `cargo xtask setup` makes; `None`: it is not there, and the test is skipped.
#[track_caller]
pub fn peer(environment: &str, program: &str) -> Option<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let program = root.join("target/peers").join(environment).join("bin").join(program);
    if program.exists() {
        return Some(program);
    }
    assert!(!must_not_skip(), "{} is missing: cargo xtask setup", program.display());
    println!("skipped: {environment} is not here");
    None
}

/// A program that ends with its test.
pub struct Running {
    child: Child,
    /// What it said first.
    pub said: Vec<String>,
}

impl Running {
    /// Starts a program and reads its output up to the line that begins with `ready`.
    #[track_caller]
    pub fn start(command: &mut Command, ready: &str) -> Self {
        Self::try_start(command, ready).unwrap_or_else(|said| panic!("it ended before it was ready; it said {said:?}"))
    }

    /// The same; what it said if it ended before.
    fn try_start(command: &mut Command, ready: &str) -> Result<Self, Vec<String>> {
        let mut child = command.stdout(Stdio::piped()).spawn().expect("the program starts");
        let mut output = BufReader::new(child.stdout.take().expect("it is piped"));
        let mut said = Vec::new();
        while said.last().is_none_or(|line: &String| !line.starts_with(ready)) {
            let mut line = String::new();
            if output.read_line(&mut line).expect("it can be read") == 0 {
                let _status = child.wait();
                return Err(said);
            }
            said.push(line.trim_end().to_owned());
        }
        Ok(Self { child, said })
    }

    /// Whether it has ended by itself.
    pub fn has_ended(&mut self) -> bool {
        self.child.try_wait().expect("it is a child").is_some()
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Kills it, and waits until it is gone.
    pub fn kill(&mut self) {
        // It may have ended by itself.
        let _ended = self.child.kill();
        let _status = self.child.wait();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.kill();
    }
}

/// One of the two endpoints.
pub struct Site {
    /// The endpoint's id.
    pub endpoint: String,
    /// Its collection's id: all of the server's root.
    pub collection: String,
    /// The server's root on this host.
    pub root: PathBuf,
    /// The server.
    pub server: Running,
}

impl Site {
    /// `COLLECTION:PATH`.
    pub fn at(&self, path: &str) -> String {
        format!("{}:{path}", self.collection)
    }

    /// A path on this host.
    pub fn path(&self, path: &str) -> PathBuf {
        self.root.join(path)
    }

    /// Writes a file, with the directories it lies in, that the server's account can read.
    pub fn write(&self, path: &str, content: impl AsRef<[u8]>) {
        let path = self.path(path);
        for directory in path.parent().unwrap().ancestors().take_while(|directory| directory.starts_with(&self.root)) {
            fs::create_dir_all(directory).unwrap();
            fs::set_permissions(directory, Permissions::from_mode(0o777)).unwrap();
        }
        fs::write(path, content).unwrap();
    }

    /// What its server counts, if it serves its metrics to where the test is.
    #[track_caller]
    pub fn metric(&self, name: &str) -> u64 {
        let address = self.server.said.iter().find_map(|line| metrics::announced(line)).expect("it counts");
        metrics::value(&metrics::page(address), name)
    }

    /// A file as it is.
    #[track_caller]
    pub fn read(&self, path: &str) -> Vec<u8> {
        fs::read(self.path(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
    }
}

/// Somebody with a client of their own.
pub struct Person {
    /// The client's id, and the identity's.
    pub id: String,
    /// The client's secret.
    pub secret: String,
}

impl Person {
    /// What proves that they are the client.
    pub fn secret(&self) -> &str {
        &self.secret
    }
}

/// The service with what belongs to it.
pub struct Field {
    directory: tempfile::TempDir,
    client: Option<PathBuf>,
    /// The service.
    pub service: Running,
    /// Where it is.
    pub url: String,
    id: String,
    secret: String,
    /// Where the sources are.
    pub alpha: Option<Site>,
    /// Where the copies go.
    pub beta: Option<Site>,
    /// A section of the configuration of servers that are started from now on.
    pub limits: String,
}

impl Field {
    /// A service with both endpoints; `None` without the public client.
    #[track_caller]
    pub fn new() -> Option<Self> {
        let mut field = Self::alone()?;
        field.alpha = Some(field.site("alpha"));
        field.beta = Some(field.site("beta"));
        Some(field)
    }

    /// A service without endpoints.
    #[track_caller]
    pub fn alone() -> Option<Self> {
        let client = peer("globus-cli", "globus")?;
        Some(Self { client: Some(client), ..Self::plain() })
    }

    /// A service without endpoints, for who does without the public client.
    pub fn plain() -> Self {
        Self::serving_with(&[])
    }

    /// The same with further options.
    pub fn serving_with(options: &[&str]) -> Self {
        let directory = public_dir().expect("a temporary directory");
        let mut command = serving(directory.path(), "127.0.0.1:0");
        let service = Running::start(command.args(options), "listening on ");
        let url = service.said.last().unwrap().strip_prefix("listening on ").unwrap().to_owned();
        Self::of(directory, None, service, url)
    }

    /// A service on a host of the laboratory; its methods are for threads on that host.
    pub fn on(host: &Host) -> Self {
        let directory = public_dir().expect("a temporary directory");
        let listen = format!("{}:8443", host.addr());
        let url = format!("https://{listen}");
        let mut command = serving(directory.path(), &listen);
        host.adopt(command.args(["--url", &url]));
        let service = Running::start(&mut command, "listening on ");
        Self::of(directory, None, service, url)
    }

    /// A service without endpoints, whose process has these variables in its environment.
    #[track_caller]
    #[allow(dead_code, reason = "the tests of stock servers use it")]
    pub fn surrounded(variables: &[(&str, &Path)]) -> Option<Self> {
        let client = peer("globus-cli", "globus")?;
        let directory = public_dir().expect("a temporary directory");
        let mut command = serving(directory.path(), "127.0.0.1:0");
        command.envs(variables.iter().copied());
        let service = Running::start(&mut command, "listening on ");
        let url = service.said.last().unwrap().strip_prefix("listening on ").unwrap().to_owned();
        Some(Self::of(directory, Some(client), service, url))
    }

    /// One replica of a service over a database, behind a URL; others come by [`Field::replica`].
    #[track_caller]
    pub fn replicated(database: &str, url: &str) -> Option<Self> {
        Self::replicated_with(database, url, &[])
    }

    /// The same with further options.
    #[track_caller]
    pub fn replicated_with(database: &str, url: &str, options: &[&str]) -> Option<Self> {
        let client = peer("globus-cli", "globus")?;
        let directory = public_dir().expect("a temporary directory");
        let mut command = replica(&directory.path().join("service"), database, url);
        let service = Running::start(command.args(options), "listening on ");
        Some(Self::of(directory, Some(client), service, url.to_owned()))
    }

    /// Another replica, with the keys of the first.
    #[track_caller]
    pub fn replica(&self, name: &str, database: &str) -> Running {
        self.replica_with(name, database, &[])
    }

    /// The same with further options.
    #[track_caller]
    pub fn replica_with(&self, name: &str, database: &str, options: &[&str]) -> Running {
        let (first, state) = (self.directory.path().join("service"), self.directory.path().join(name));
        if !state.exists() {
            fs::DirBuilder::new().mode(0o700).create(&state).unwrap();
            for file in ["seal.key", "certificate.pem", "key.pem"] {
                fs::copy(first.join(file), state.join(file)).unwrap();
            }
        }
        Running::start(replica(&state, database, &self.url).args(options), "listening on ")
    }

    fn of(directory: tempfile::TempDir, client: Option<PathBuf>, service: Running, url: String) -> Self {
        let file = fs::read(directory.path().join("service/administrator.json")).unwrap();
        let made: Value = serde_json::from_slice(&file).unwrap();
        let text = |name: &str| made[name].as_str().unwrap().to_owned();
        let (id, secret) = (text("client_id"), text("client_secret"));
        Self { directory, client, service, url, id, secret, alpha: None, beta: None, limits: String::new() }
    }

    /// Kills the service and starts it again where it was.
    pub fn restart(&mut self) {
        self.restart_with(&[]);
    }

    /// The same, with more options.
    pub fn restart_with(&mut self, options: &[&str]) {
        self.service.kill();
        self.service = Running::start(self.serving(&[]).args(options), "listening on ");
    }

    /// Has the administrator make the client of an orchestrator, in a file.
    #[track_caller]
    pub fn orchestrator_client(&self, name: &str) -> PathBuf {
        let made = self.ask("/v2/whimbrel/orchestrators", &json!({"name": name}));
        self.secret(&format!("{name}.json"), &made.to_string())
    }

    /// A file that nobody else may read.
    pub fn secret(&self, name: &str, text: &str) -> PathBuf {
        let file = self.place(name);
        fs::write(&file, text).unwrap();
        fs::set_permissions(&file, Permissions::from_mode(0o600)).unwrap();
        file
    }

    /// The command of an orchestrator elsewhere.
    pub fn orchestrating(&self, name: &str, client: &Path) -> Command {
        let mut command = Command::new(WHIMBREL);
        command.args(["orchestrate", "--service", &self.url, "--client"]).arg(client);
        command.arg("--authorities").arg(self.certificate()).arg("--state").arg(self.place(&format!("{name}.state")));
        command
    }

    /// Starts an orchestrator elsewhere.
    #[track_caller]
    pub fn orchestrator(&self, name: &str, client: &Path) -> Running {
        Running::start(&mut self.orchestrating(name, client), "orchestrating for ")
    }

    /// The same, to be killed before its n-th sync of a file; `false`: it did not even start.
    pub fn restart_doomed(&mut self, sync: u32) -> bool {
        self.service.kill();
        let doomed =
            Running::try_start(&mut self.serving(&doom(sync, "fsync,fdatasync", &self.told())), "listening on ");
        doomed.map(|service| self.service = service).is_ok()
    }

    fn serving(&self, under: &[String]) -> Command {
        let address = self.url.strip_prefix("https://").unwrap();
        let mut command = command_under(under);
        command.arg("serve").arg("--state").arg(self.directory.path().join("service")).args(["--listen", address]);
        command
    }

    /// Where the sources are.
    pub fn alpha(&self) -> &Site {
        self.alpha.as_ref().expect("it was made")
    }

    /// Where the copies go.
    pub fn beta(&self) -> &Site {
        self.beta.as_ref().expect("it was made")
    }

    /// Where something of it is, or would be.
    pub fn place(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Who vouches for the service's host.
    pub fn certificate(&self) -> PathBuf {
        self.place("service/certificate.pem")
    }

    /// Somebody who has no rights yet.
    #[track_caller]
    pub fn person(&self, name: &str) -> Person {
        let made = self.ask("/v2/whimbrel/clients", &json!({"name": name}));
        let text =
            |name: &str| made["included"]["client_credential"][name].as_str().unwrap_or_else(|| panic!("{made}"));
        Person { id: text("client").to_owned(), secret: text("secret").to_owned() }
    }

    /// The public client's command in somebody's name, with these arguments.
    pub fn command_as(&self, who: &Person, arguments: &[&str]) -> Tool {
        let tool = self.command(arguments);
        tool.env("GLOBUS_CLI_CLIENT_ID", &who.id).env("GLOBUS_CLI_CLIENT_SECRET", &who.secret)
    }

    /// Runs the public client in somebody's name and expects it to succeed; gives what it printed.
    #[track_caller]
    pub fn globus_as(&self, who: &Person, arguments: &[&str]) -> String {
        ended(0, arguments, self.command_as(who, arguments)).0
    }

    /// Runs the public client in somebody's name and expects it to be refused; gives what it complained of.
    #[track_caller]
    pub fn refused(&self, who: &Person, arguments: &[&str]) -> String {
        ended(1, arguments, self.command_as(who, arguments)).1
    }

    /// Runs the public client in somebody's name and reads the JSON it prints.
    #[track_caller]
    pub fn json_as(&self, who: &Person, arguments: &[&str]) -> Value {
        let output = self.globus_as(who, &[arguments, &["--format", "json"]].concat());
        serde_json::from_str(&output).unwrap_or_else(|error| panic!("{arguments:?}: {error}: {output}"))
    }

    /// The public client's command, with these arguments.
    pub fn command(&self, arguments: &[&str]) -> Tool {
        self.environment(Tool::new(self.client.as_ref().expect("the public client is here")).args(arguments))
    }

    /// Runs the public client and expects it to succeed; gives what it printed.
    #[track_caller]
    pub fn globus(&self, arguments: &[&str]) -> String {
        self.globus_ends(0, arguments).0
    }

    /// Runs the public client and expects this exit code; gives what it printed and what it complained of.
    #[track_caller]
    pub fn globus_ends(&self, code: i32, arguments: &[&str]) -> (String, String) {
        ended(code, arguments, self.command(arguments))
    }

    /// Runs the public client and reads the JSON it prints.
    #[track_caller]
    pub fn json(&self, arguments: &[&str]) -> Value {
        let output = self.globus(&[arguments, &["--format", "json"]].concat());
        serde_json::from_str(&output).unwrap_or_else(|error| panic!("{arguments:?}: {error}: {output}"))
    }

    /// Submits with the public client; gives the task's id.
    #[track_caller]
    pub fn submit(&self, arguments: &[&str]) -> String {
        self.json(arguments)["task_id"].as_str().expect("there is a task").to_owned()
    }

    /// Submits with the public client and waits for the task to succeed; gives its document.
    #[track_caller]
    pub fn carry_out(&self, arguments: &[&str]) -> Value {
        let task = self.submit(arguments);
        let (output, error) =
            self.globus_ends(0, &["task", "wait", &task, "--timeout", "60", "--polling-interval", "1"]);
        let shown = self.json(&["task", "show", &task]);
        assert_eq!(shown["status"], "SUCCEEDED", "{arguments:?}: {shown:#} {output} {error}");
        shown
    }

    /// An access token of the administrator, for transfers.
    #[track_caller]
    pub fn token(&self) -> String {
        self.token_for("urn:globus:auth:scope:transfer.api.globus.org:all")
    }

    /// Asks the service with curl, as the administrator.
    #[track_caller]
    pub fn ask(&self, path: &str, document: &Value) -> Value {
        self.tell("POST", path, document)
    }

    /// Asks the service with curl by a method, as the administrator.
    #[track_caller]
    pub fn tell(&self, method: &str, path: &str, document: &Value) -> Value {
        let bearer = format!("Authorization: Bearer {}", self.token());
        let body = document.to_string();
        self.curl(&["-X", method, "-H", &bearer, "-H", "Content-Type: application/json", "-d", &body], path)
    }

    /// Asks the service with curl: GET without a document, else POST; what curl or the reader of its answer complains of.
    pub fn ask_with(&self, token: &str, path: &str, document: Option<&Value>) -> Result<Value, String> {
        let bearer = format!("Authorization: Bearer {token}");
        let body = document.map(Value::to_string);
        let mut arguments = vec!["-H", &bearer];
        if let Some(body) = &body {
            arguments.extend(["-H", "Content-Type: application/json", "-d", body]);
        }
        self.try_curl(&arguments, path)
    }

    /// An access token of the administrator.
    #[track_caller]
    pub fn token_for(&self, scope: &str) -> String {
        let form = format!("grant_type=client_credentials&scope={scope}");
        let made = self.curl(&["-u", &format!("{}:{}", self.id, self.secret), "-d", &form], "/v2/oauth2/token");
        made["access_token"].as_str().unwrap_or_else(|| panic!("{made}")).to_owned()
    }

    /// A file that vouches for the service and for all servers that have joined.
    pub fn authorities(&self) -> PathBuf {
        let mut all = fs::read(self.certificate()).unwrap();
        for name in ["alpha", "beta"] {
            // It holds the key, too, which is nobody's business.
            let own =
                fs::read_to_string(self.directory.path().join(format!("{name}.state/host.pem"))).unwrap_or_default();
            let end = "-----END CERTIFICATE-----\n";
            let begin = own.find("-----BEGIN CERTIFICATE-----");
            all.extend(
                begin.and_then(|at| Some(&own[at..at + own[at..].find(end)? + end.len()])).unwrap_or("").bytes(),
            );
        }
        let bundle = self.directory.path().join("authorities.pem");
        fs::write(&bundle, all).unwrap();
        bundle
    }

    /// The environment in which the public clients find the service, and are its administrator.
    pub fn environment(&self, tool: Tool) -> Tool {
        let tool = tool.limit(Duration::from_secs(180));
        self.variables().into_iter().fold(tool, |tool, (name, value)| tool.env(&name, value))
    }

    /// The variables of that environment.
    pub fn variables(&self) -> Vec<(String, String)> {
        let home = self.directory.path().join("home");
        fs::create_dir_all(&home).unwrap();
        let url = format!("{}/", self.url);
        let mut variables = vec![
            ("GLOBUS_SDK_ENVIRONMENT", "whimbrel".to_owned()),
            ("GLOBUS_SDK_VERIFY_SSL", self.authorities().display().to_string()),
            ("GLOBUS_CLI_CLIENT_ID", self.id.clone()),
            ("GLOBUS_CLI_CLIENT_SECRET", self.secret.clone()),
            ("GLOBUS_CLI_INTERACTIVE", "0".to_owned()),
            ("HOME", home.display().to_string()),
        ];
        let services = ["AUTH", "TRANSFER", "TIMER", "GROUPS", "FLOWS", "SEARCH"];
        let places = services.map(|service| (format!("GLOBUS_SDK_SERVICE_URL_{service}"), url.clone()));
        places.into_iter().chain(variables.drain(..).map(|(name, value)| (name.to_owned(), value))).collect()
    }

    /// Reads something of the service's with curl, as the administrator, to its end.
    #[track_caller]
    pub fn fetch(&self, path: &str) -> String {
        let bearer = format!("Authorization: Bearer {}", self.token());
        let tool = Tool::new("curl").args(["-sSN", "--cacert"]).arg(self.certificate()).args(["-H", &bearer]);
        let run = tool.arg(format!("{}{path}", self.url)).run().expect("curl runs");
        assert_eq!(run.code(), Some(0), "{path}: {}", run.stderr_text());
        run.stdout_text()
    }

    #[track_caller]
    fn curl(&self, arguments: &[&str], path: &str) -> Value {
        self.try_curl(arguments, path).unwrap_or_else(|error| panic!("{path}: {error}"))
    }

    fn try_curl(&self, arguments: &[&str], path: &str) -> Result<Value, String> {
        let tool = Tool::new("curl").args(["-sS", "--cacert"]).arg(self.certificate());
        let run = tool.args(arguments).arg(format!("{}{path}", self.url)).run().expect("curl runs");
        let output = run.stdout_text();
        serde_json::from_str(&output).map_err(|error| format!("{error}: {output} {}", run.stderr_text()))
    }

    /// An endpoint with a collection and a server that has joined.
    #[track_caller]
    pub fn site(&self, name: &str) -> Site {
        self.site_with(name, |root, token| self.server(name, root, token))
    }

    /// The same, with a server that takes no connections.
    #[track_caller]
    pub fn outbound_site(&self, name: &str) -> Site {
        self.site_with(name, |root, token| self.outbound_server(name, root, token))
    }

    /// Starts a server that takes no connections, and joins or has joined already.
    #[track_caller]
    pub fn outbound_server(&self, name: &str, root: &Path, token: &str) -> Running {
        let mut command = self.serving_files(name, "", root, token, &[]);
        // All servers are on this host, which clients from nowhere reach in clear only if they may.
        command.args(["--allow-third-party", "127.0.0.0/8"]);
        Running::start(command.arg("--outbound"), "connecting to ")
    }

    /// The same, with a server that passes data on between such.
    #[track_caller]
    pub fn relay_site(&self, name: &str) -> Site {
        self.site_with(name, |root, token| self.relay_server(name, root, token))
    }

    /// Starts a server that passes data on between such that take no connections, and joins or has joined already.
    #[track_caller]
    pub fn relay_server(&self, name: &str, root: &Path, token: &str) -> Running {
        let mut command = self.serving_files(name, "127.0.0.1", root, token, &[]);
        command.args(["--relay", "127.0.0.1:0", "--metrics", "127.0.0.1:0"]);
        Running::start(&mut command, "joining data connections at ")
    }

    /// The same, with a server on a host of the laboratory.
    #[track_caller]
    pub fn relay_site_on(&self, host: &Host, name: &str) -> Site {
        self.site_with(name, |root, token| {
            let mut command = self.serving_files(name, &host.addr().to_string(), root, token, &[]);
            host.adopt(command.arg("--relay").arg(format!("{}:0", host.addr())));
            Running::start(&mut command, "joining data connections at ")
        })
    }

    /// The same, with a server on a host of the laboratory.
    #[track_caller]
    pub fn site_on(&self, host: &Host, name: &str) -> Site {
        self.site_with(name, |root, token| {
            let mut command = self.serving_files(name, &host.addr().to_string(), root, token, &[]);
            host.adopt(command.arg("--metrics").arg(format!("{}:0", host.addr())));
            Running::start(&mut command, "metrics at ")
        })
    }

    /// The same, with a server on a host of the laboratory that takes no connections.
    #[track_caller]
    pub fn outbound_site_on(&self, host: &Host, name: &str) -> Site {
        self.site_with(name, |root, token| {
            let mut command = self.serving_files(name, "", root, token, &[]);
            host.adopt(command.arg("--outbound"));
            Running::start(&mut command, "connecting to ")
        })
    }

    #[track_caller]
    fn site_with(&self, name: &str, start: impl FnOnce(&Path, &str) -> Running) -> Site {
        let id = |made: &Value| made["id"].as_str().unwrap_or_else(|| panic!("{made}")).to_owned();
        let endpoint = id(&self.ask("/v2/whimbrel/endpoints", &json!({"display_name": format!("{name} endpoint")})));
        let place = format!("/v2/whimbrel/endpoints/{endpoint}");
        let wish = json!({"display_name": format!("{name} data"), "base_path": "/"});
        let collection = id(&self.ask(&format!("{place}/collections"), &wish));
        let token = self.ask(&format!("{place}/join_tokens"), &json!({}));
        let root = self.directory.path().join(name);
        fs::create_dir(&root).unwrap();
        fs::set_permissions(&root, Permissions::from_mode(0o777)).unwrap();
        let server = start(&root, token["token"].as_str().expect("there is a token"));
        Site { endpoint, collection, root, server }
    }

    /// Starts a server that joins, or has joined already.
    #[track_caller]
    pub fn server(&self, name: &str, root: &Path, token: &str) -> Running {
        Running::start(&mut self.serving_files(name, "127.0.0.1", root, token, &[]), "listening on ")
    }

    /// Starts a server that has joined already, one of whose processes is killed before its n-th call that makes something durable
    /// or gives it its name; `None`: it did not even start.
    pub fn doomed_server(&self, name: &str, root: &Path, call: u32) -> Option<Running> {
        let under = doom(call, "fsync,fdatasync,renameat,renameat2,linkat", &self.told());
        Running::try_start(&mut self.serving_files(name, "127.0.0.1", root, "used-up", &under), "listening on ").ok()
    }

    /// Whether a process was killed of the program that is doomed.
    pub fn doom_has_come(&self) -> bool {
        fs::read_to_string(self.told()).is_ok_and(|told| told.contains("killed by SIGKILL"))
    }

    fn told(&self) -> PathBuf {
        self.directory.path().join("doom")
    }

    fn serving_files(&self, name: &str, address: &str, root: &Path, token: &str, under: &[String]) -> Command {
        let config = self.directory.path().join(format!("{name}.toml"));
        let state = self.directory.path().join(format!("{name}.state"));
        // A server without an address makes connections.
        let (listen, https) = match address {
            "" => (String::new(), String::new()),
            _ => (format!("listen = [\"{address}:0\"]\n"), format!("https = \"{address}:0\"\n")),
        };
        let text = format!(
            "{listen}root = {root:?}\n[join]\nservice = {:?}\nauthorities = {:?}\nstate = {state:?}\n{https}{}{}",
            self.url,
            self.certificate(),
            // Data are never handled as root.
            if rustix::process::geteuid().is_root() { "accounts = [\"nobody\"]\n" } else { "" },
            self.limits,
        );
        fs::write(&config, text).unwrap();
        let mut command = command_under(under);
        command.arg("dtn").arg("--config").arg(&config).args(["--join", &self.url, "--token", token]);
        command
    }
}

/// What `strace` is told for a program that is killed as a thread of it makes one of these calls for the n-th time; the tracer is
/// no parent of it, so that the program's process is the one that was started.
fn doom(call: u32, calls: &str, told: &Path) -> Vec<String> {
    let _earlier = fs::remove_file(told);
    let inject = format!("inject={calls}:signal=SIGKILL:when={call}");
    let (trace, told) = (format!("trace={calls}"), told.display().to_string());
    ["strace", "-D", "-f", "-qq", "-o", &told, "-e", &trace, "-e", &inject].map(str::to_owned).to_vec()
}

/// The program under test, started by another.
fn command_under(under: &[String]) -> Command {
    let Some((program, arguments)) = under.split_first() else { return Command::new(WHIMBREL) };
    let mut command = Command::new(program);
    command.args(arguments).arg(WHIMBREL);
    command
}

/// A service that is one of several; it tells where it listens itself on a line of its own.
fn replica(state: &Path, database: &str, url: &str) -> Command {
    let mut command = Command::new(WHIMBREL);
    command.arg("serve").arg("--state").arg(state).args(["--database", database, "--url", url]);
    command.args(["--listen", "127.0.0.1:0"]);
    command
}

fn serving(directory: &Path, listen: &str) -> Command {
    let mut command = Command::new(WHIMBREL);
    command.arg("serve").arg("--state").arg(directory.join("service")).args(["--listen", listen]);
    // Tests are told of tasks on this host.
    command.args(["--webhook-host", "127.0.0.1"]);
    command
}

/// Runs a client and expects this exit code; gives what it printed and what it complained of.
#[track_caller]
pub fn ended(code: i32, arguments: &[&str], tool: Tool) -> (String, String) {
    let run: Run = tool.run().expect("the client runs");
    let (output, error) = (run.stdout_text(), run.stderr_text());
    assert_eq!(run.code(), Some(code), "globus {arguments:?}\nstdout:\n{output}\nstderr:\n{error}");
    (output, error)
}
