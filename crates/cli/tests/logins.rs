//! Logins over TLS with tokens and with certificates, and the accounts that they lead to.

mod support;

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use support::dtn::{Dtn, until};
use support::{WHIMBREL, account};
use tempfile::TempDir;
use whimbrel_testkit::issuer::{Issuer, SigningKey};
use whimbrel_testkit::peers::{Run, Tool, curl, lftp, public_dir};
use whimbrel_testkit::pki::Pki;
use whimbrel_testkit::require_root;

const AUDIENCE: &str = "https://dtn.example.org";

struct Site {
    server: Dtn,
    directory: TempDir,
    secrets: TempDir,
    authority: PathBuf,
}

impl Site {
    /// A server with a certificate of the grid and these further settings; `[tls]` comes last, so that they may begin with lines for it.
    fn start(pki: &Pki, tls: &str, settings: &str) -> Self {
        let (directory, secrets) = (public_dir().expect("a directory"), public_dir().expect("a directory"));
        let host = pki.host(&["127.0.0.1"]).expect("a certificate");
        let authority = secrets.path().join("authority.pem");
        fs::write(&authority, pki.authority().certificate.to_pem().expect("PEM")).expect("written");
        let config = secrets.path().join("dtn.toml");
        let files = format!("certificate = {0:?}\nkey = {0:?}\n", host.file);
        fs::write(&config, format!("{settings}\n[tls]\n{files}{tls}\n")).expect("written");
        fs::create_dir(directory.path().join("data")).expect("made");
        fs::write(directory.path().join("data/here"), "bytes").expect("written");
        let server = Dtn::builder().root(directory.path()).arg("--config").arg(&config).start();
        Self { server, directory, secrets, authority }
    }

    fn curl(&self, options: &[&str]) -> Option<Tool> {
        Some(curl()?.args(["--ssl-reqd", "--cacert"]).arg(&self.authority).args(options))
    }

    fn url(&self, path: &str) -> String {
        format!("ftp://{}/{path}", self.server.addr())
    }

    /// `curl` lists the directory `data`.
    fn list(&self, options: &[&str]) -> Option<Tool> {
        Some(self.curl(options)?.args(["--verbose", "--list-only", &self.url("data/")]))
    }
}

fn lists(tool: Option<Tool>) -> Option<Run> {
    let run = tool?.run_ok();
    assert_eq!(run.stdout_text().trim_end(), "here", "{run}");
    Some(run)
}

/// `curl` was not let in, and was told all of this.
fn is_denied(tool: Option<Tool>, parts: &[&str]) -> Option<()> {
    let run = tool?.run_failing();
    assert_eq!(run.code(), Some(67), "login denied: {run}");
    for part in parts {
        assert!(run.stderr_text().contains(part), "{part}: {run}");
    }
    Some(())
}

struct Tokens {
    pki: Pki,
    issuer: Issuer,
    keys: [SigningKey; 2],
}

impl Tokens {
    fn new() -> Self {
        let pki = Pki::new().expect("a grid");
        let keys = [SigningKey::rs256("rsa").expect("a key"), SigningKey::es256("ec").expect("a key")];
        let issuer = Issuer::start(&pki, &[&keys[0], &keys[1]]).expect("an issuer");
        Self { pki, issuer, keys }
    }

    /// A server that takes its tokens for one account.
    fn site(&self) -> Site {
        self.site_with("")
    }

    /// The same with further settings.
    fn site_with(&self, settings: &str) -> Site {
        let (authority, url, account) = (self.issuer.authority(), self.issuer.url(), account());
        let tokens = format!("[tokens]\naudience = [{AUDIENCE:?}]\nauthorities = {authority:?}\n");
        let issuer = format!("[[tokens.issuer]]\nurl = {url:?}\nwithout_scopes = true\naccounts = [{account:?}]\n");
        Site::start(&self.pki, "", &(tokens + &issuer + settings))
    }

    fn token(&self, key: usize, change: &[(&str, Value)]) -> String {
        let mut claims = self.issuer.claims(AUDIENCE, "openid");
        for (name, value) in change {
            claims[*name] = value.clone();
        }
        self.keys[key].sign(&claims)
    }
}

fn user(name: &str, token: &str) -> String {
    format!("{name}:{token}")
}

#[test]
fn tokens_of_both_algorithms_log_in_whatever_the_name_and_keys_are_fetched_once() {
    let tokens = Tokens::new();
    let site = tokens.site();
    for key in [0, 1] {
        let token = tokens.token(key, &[]);
        let Some(run) = lists(site.list(&["--user", &user("bearer", &token)])) else { return };
        assert!(run.stderr_text().contains(&format!("User {} logged in", account())), "{run}");
        assert!(
            !site.server.log().contains(&token) && !site.server.log().contains(&token[..40]),
            "no token in the log"
        );
    }
    assert_eq!(tokens.issuer.answers(), 2, "the description and the keys");
    site.server.wait_for_log(&["token accepted", "alice", &tokens.issuer.url()]);
    lists(site.list(&["--user", &user(&account(), &tokens.token(0, &[]))]));
    is_denied(site.list(&["--user", &user("root", &tokens.token(0, &[]))]), &["not mapped to an account"]);
    // What is cached serves without it.
    tokens.issuer.fall_silent();
    lists(site.list(&["--user", &user("bearer", &tokens.token(1, &[]))]));
}

#[test]
fn a_token_for_another_audience_or_time_is_refused_with_the_reason() {
    let tokens = Tokens::new();
    let site = tokens.site();
    let denied = |change: (&str, Value), parts: &[&str]| {
        is_denied(site.list(&["--user", &user("x", &tokens.token(0, &[change]))]), parts)
    };
    let about = format!("alice of {}", tokens.issuer.url());
    if denied(("aud", json!(["https://other.example.org"])), &[&about, "https://other.example.org", AUDIENCE]).is_none()
    {
        return;
    }
    denied(("exp", json!(1_700_000_000)), &[&about, "has expired", "2023-11-14 22:13 UTC"]);
    denied(("nbf", json!(4_000_000_000_u32)), &[&about, "not good yet"]);
    site.server.wait_for_log(&["login refused", "not good yet"]);
}

#[test]
fn a_token_with_scopes_reaches_what_they_name_and_nothing_else() {
    let tokens = Tokens::new();
    let site = tokens.site();
    let token = tokens.token(0, &[("scope", json!("openid storage.read:/data"))]);
    let login = user("bearer", &token);
    let copy = site.secrets.path().join("copy").display().to_string();
    let fetch = |path: &str| Some(site.curl(&["--user", &login, "--output", &copy])?.arg(site.url(path)));
    fs::write(site.directory.path().join("beside"), "another's").expect("written");
    let Some(inside) = fetch("data/here") else { return };
    inside.run_ok();
    assert_eq!(fs::read_to_string(&copy).expect("copied"), "bytes");
    fetch("beside").expect("it is there").run_failing();
    let store =
        |path: &str| site.curl(&["--user", &login, "--upload-file", &copy]).expect("it is there").arg(site.url(path));
    for place in ["data/here", "data/new", "new"] {
        store(place).run_failing();
    }
    let mut names: Vec<_> = fs::read_dir(site.directory.path().join("data")).expect("it is there").flatten().collect();
    assert_eq!(names.pop().map(|entry| entry.file_name()), Some("here".into()), "nothing was stored");
    assert!(names.is_empty() && !site.directory.path().join("new").exists());
    // Another scope, another right.
    let writer = tokens.token(1, &[("scope", json!("storage.create:/data"))]);
    fs::set_permissions(site.directory.path().join("data"), std::os::unix::fs::PermissionsExt::from_mode(0o777))
        .expect("set");
    let tool = site.curl(&["--user", &user("bearer", &writer), "--upload-file", &copy]).expect("it is there");
    tool.arg(site.url("data/new")).run_ok();
    assert_eq!(fs::read_to_string(site.directory.path().join("data/new")).expect("stored"), "bytes");
}

/// What a user's guests may do is the administrator's to say, whatever their tokens allow; the user is not concerned.
#[test]
fn rules_for_what_is_shared_bind_guests_and_nobody_else() {
    let tokens = Tokens::new();
    let nothing_but = "[[rules]]\nshared = true\ndeny = \"all\"\n[[rules]]\nshared = true\npath = \"/data\"\nallow = [\"read\", \"list\"]";
    let others = format!("[[rules]]\nshared = true\npath = \"/data/hers\"\ndeny = \"all\"\nusers = [{:?}]", account());
    let site = tokens.site_with(&format!("{nothing_but}\n{others}\n"));
    for name in ["beside", "data/hers"] {
        fs::write(site.directory.path().join(name), "text").expect("written");
    }
    fs::set_permissions(site.directory.path().join("data"), std::os::unix::fs::PermissionsExt::from_mode(0o777))
        .expect("set");
    let copy = site.secrets.path().join("copy").display().to_string();
    let (own, guest) = ("storage.read:/ storage.create:/data", "storage.read:/ storage.create:/data whimbrel.guest");
    for (scope, new, allowed) in
        [(own, "data/new", [true, true, true, true]), (guest, "data/other", [true, false, false, false])]
    {
        let login = user("bearer", &tokens.token(0, &[("scope", json!(scope))]));
        let does = |options: &[&str], path: &str| {
            let tool = site.curl(&["--user", &login])?.args(options).arg(site.url(path));
            Some(tool.run().expect("it runs").success())
        };
        let get = |path: &str| does(&["--output", &copy], path);
        let Some(inside) = get("data/here") else { return };
        let done = [Some(inside), get("beside"), get("data/hers"), does(&["--upload-file", &copy], new)];
        assert_eq!(done, allowed.map(Some), "{scope}");
    }
}

#[test]
fn a_forged_token_and_one_of_a_stranger_are_refused() {
    let tokens = Tokens::new();
    let site = tokens.site();
    let forger = SigningKey::rs256("rsa").expect("a key");
    let forged = forger.sign(&tokens.issuer.claims(AUDIENCE, "openid"));
    if is_denied(site.list(&["--user", &user("x", &forged)]), &["its signature is wrong"]).is_none() {
        return;
    }
    let newer = SigningKey::es256("new").expect("a key").sign(&tokens.issuer.claims(AUDIENCE, "openid"));
    is_denied(site.list(&["--user", &user("x", &newer)]), &["none of its issuer's keys has signed it"]);
    let stranger = tokens.token(0, &[("iss", json!("https://stranger.example.org/"))]);
    is_denied(site.list(&["--user", &user("x", &stranger)]), &["https://stranger.example.org/", "not accepted here"]);
}

/// A file of rules that give an account to somebody's certificate.
fn rules(directory: &Path, subject: &str, account: &str) -> PathBuf {
    let file = directory.join("mapping.toml");
    let rule = format!("{{source = \"{{subject}}\", match = {subject:?}, output = {account:?}}}");
    let text = format!("DATA_TYPE = \"expression_identity_mapping#1.0.0\"\nmappings = [{rule}]\n");
    fs::write(&file, text).expect("written");
    file
}

#[test]
fn certificates_log_in_over_tls_without_a_password() {
    let pki = Pki::new().expect("a grid");
    let (alice, bob) = (pki.person("alice").expect("a certificate"), pki.person("bob").expect("a certificate"));
    let files = public_dir().expect("a directory");
    let mapping = rules(files.path(), "/O=Grid/CN=alice", &account());
    let users = files.path().join("users");
    let hash = Tool::new(WHIMBREL).args(["dtn", "--hash-password"]).input("pass word").run_ok().stdout_text();
    fs::write(&users, format!("anna:{hash}")).expect("written");
    let least = "[accounts]\nleast_uid = 1";
    let clients = format!("clients = {:?}", files.path().join("authority.pem"));
    fs::write(files.path().join("authority.pem"), pki.authority().certificate.to_pem().expect("PEM")).expect("written");
    let site = Site::start(&pki, &clients, &format!("mapping = [{mapping:?}]\nusers = {users:?}\n{least}"));
    let (alice, bob) = (alice.file.display().to_string(), bob.file.display().to_string());
    for version in [&["--tlsv1.2", "--tls-max", "1.2"][..], &["--tlsv1.3"]] {
        // Without a name, and with that of the account.
        let certificate = [version, &["--cert", &alice]].concat();
        let Some(run) = lists(site.list(&certificate)) else { return };
        assert!(run.stderr_text().contains("232 User"), "{run}");
        lists(site.list(&[&certificate[..], &["--user", &user(&account(), "")]].concat()));
    }
    site.server.wait_for_log(&["certificate accepted", "/O=Grid/CN=alice"]);
    lists(site.list(&["--cert", &bob, "--user", "anna:pass word"]));
    is_denied(site.list(&["--cert", &bob, "--user", &user(&account(), "guess")]), &["331 Password required"]);
    let stranger = Pki::new().expect("a grid").person("alice").expect("a certificate").file.display().to_string();
    if let Some(tool) = site.list(&["--cert", &stranger]) {
        tool.run_failing();
    }
    let settings = format!(
        "set ssl:ca-file {:?}; set ftp:ssl-force yes; set ftp:ssl-protect-data yes; set net:max-retries 1; \
         set ssl:cert-file {alice:?}; set ssl:key-file {alice:?}",
        site.authority
    );
    let script = format!("{settings}; open -u {},x ftp://{}; cls -1 data; exit", account(), site.server.addr());
    let Some(lftp) = lftp(&script) else { return };
    assert_eq!(lftp.run_ok().stdout_text().trim_end(), "data/here");
}

#[test]
fn the_one_thread_of_the_monitor_does_not_wait_for_a_mapping_program() {
    let pki = Pki::new().expect("a grid");
    let files = public_dir().expect("a directory");
    let alice = pki.person("alice").expect("a certificate").file.display().to_string();
    // It says nothing before a second login has been served.
    let (asked, go) = (files.path().join("asked"), files.path().join("go"));
    let program = files.path().join("map");
    let script = format!(
        "#!/bin/sh\n: > {asked:?}\nuntil [ -e {go:?} ]; do sleep 0.02; done\nexec sed 's/.*\"id\":\"\\([^\"]*\\)\".*/{{\"result\":[{{\"id\":\"\\1\",\"output\":\"{}\"}}]}}/'\n",
        account()
    );
    fs::write(&program, script).expect("written");
    Tool::new("chmod").arg("755").arg(&program).run_ok();
    let mapping = files.path().join("mapping.json");
    let text = json!({"DATA_TYPE": "external_identity_mapping#1.0.0", "command": [program]}).to_string();
    fs::write(&mapping, text).expect("written");
    let authority = files.path().join("authority.pem");
    fs::write(&authority, pki.authority().certificate.to_pem().expect("PEM")).expect("written");
    let settings = format!("anonymous = true\nmapping = [{mapping:?}]\n[accounts]\nleast_uid = 1");
    let site = Site::start(&pki, &format!("clients = {authority:?}"), &settings);
    let Some(slow) = site.list(&["--cert", &alice, "--user", &user(&account(), "")]) else { return };
    let waiting = std::thread::spawn(move || lists(Some(slow)));
    until("the question", || asked.exists());
    lists(site.list(&["--user", "anonymous:me"]));
    assert!(!waiting.is_finished());
    fs::write(&go, "").expect("written");
    waiting.join().expect("it is let in");
}

#[test]
fn a_data_process_has_the_groups_of_its_account_and_a_login_begins_at_its_home() {
    if !require_root() {
        return;
    }
    let Some((name, groups)) = member_of_groups() else {
        return println!("skipped: no account here is in a second group");
    };
    let files = public_dir().expect("a directory");
    let users = files.path().join("users");
    let hash = Tool::new(WHIMBREL).args(["dtn", "--hash-password"]).input("secret").run_ok().stdout_text();
    fs::write(&users, format!("anna:{}:{name}\n", hash.trim_end())).expect("written");
    let server = Dtn::builder().arg("--users").arg(&users).arg("--clear-text-passwords").start();
    let Some(tool) = curl() else { return };
    let run = tool.args(["--verbose", "--user", "anna:secret", &format!("ftp://{}/", server.addr())]).run_ok();
    let home = home_of(&name);
    let there = Tool::new("test").args(["-d", &home]).run().is_ok_and(|run| run.success());
    let begins = if there { home.as_str() } else { "/" };
    assert!(run.stderr_text().contains(&format!("257 \"{begins}\"")), "{run}");
    let children = format!("/proc/{0}/task/{0}/children", server.daemon.id());
    let children = fs::read_to_string(children).expect("it lives");
    let statuses = children.split_whitespace().filter_map(|id| {
        let line = fs::read_to_string(format!("/proc/{id}/cmdline")).ok()?;
        line.contains("data-process").then(|| fs::read_to_string(format!("/proc/{id}/status")).expect("it lives"))
    });
    let found: Vec<Vec<u32>> = statuses.map(|status| numbers(&status)).collect();
    assert_eq!(found, [groups], "the groups of {name}");
}

/// The log is the system's: no user could open it, and each has its lines there.
#[test]
fn transfers_of_all_accounts_are_in_one_log_that_none_of_them_may_open() {
    if !require_root() {
        return;
    }
    let (files, logs) = (public_dir().expect("a directory"), tempfile::tempdir().expect("a directory"));
    let hash = Tool::new(WHIMBREL).args(["dtn", "--hash-password"]).input("secret").run_ok().stdout_text();
    let hash = hash.trim_end();
    let users = logs.path().join("users");
    fs::write(&users, format!("ada:{hash}:daemon\nbob:{hash}:nobody\n")).expect("written");
    fs::write(files.path().join("file"), "text").expect("written");
    let (log, json) = (logs.path().join("transfers.log"), logs.path().join("transfers.json"));
    let settings = files.path().join("dtn.toml");
    fs::write(&settings, "clear_text_passwords = true\n[accounts]\nleast_uid = 1\n").expect("written");
    let server = Dtn::builder().root(files.path()).arg("--config").arg(&settings).arg("--users").arg(&users);
    let server = server.arg("--transfer-log").arg(&log).arg("--transfer-log-json").arg(&json).start();
    for user in ["ada", "bob", "ada"] {
        let Some(tool) = curl() else { return };
        let url = format!("ftp://{}/file", server.addr());
        assert_eq!(tool.args(["--user", &format!("{user}:secret"), &url]).run_ok().stdout_text(), "text");
    }
    let lines = |path: &Path| fs::read_to_string(path).expect("written").lines().map(str::to_owned).collect::<Vec<_>>();
    let (classic, structured) = (lines(&log), lines(&json));
    for (user, count) in [("ada", 2), ("bob", 1)] {
        assert_eq!(classic.iter().filter(|line| line.contains(&format!(" USER={user} FILE=/file "))).count(), count);
        assert_eq!(structured.iter().filter(|line| line.contains(&format!("\"user\":\"{user}\""))).count(), count);
    }
    assert_eq!((classic.len(), structured.len()), (3, 3));
    drop(server);
    let nowhere =
        Tool::new(WHIMBREL).args(["dtn", "--anonymous", "--listen", "127.0.0.1:0", "--transfer-log", "/nowhere/log"]);
    let refused = nowhere.run_failing();
    assert!(refused.stderr_text().contains("/nowhere/log"), "{}", refused.stderr_text());
}

fn numbers(status: &str) -> Vec<u32> {
    let line = status.lines().find_map(|line| line.strip_prefix("Groups:")).expect("the kernel tells them");
    let mut groups: Vec<u32> = line.split_whitespace().map(|id| id.parse().expect("a number")).collect();
    groups.sort_unstable();
    groups
}

/// An account other than root that is in a group besides its own, with the numbers of all its groups.
fn member_of_groups() -> Option<(String, Vec<u32>)> {
    let text = fs::read_to_string("/etc/group").ok()?;
    let names = text.lines().filter_map(|line| line.rsplit(':').next()).flat_map(|members| members.split(','));
    let mut names = names.filter(|name| !name.is_empty() && *name != "root");
    names.find_map(|name| {
        let told = Tool::new("id").args(["-G", name]).run().ok()?;
        let mut groups: Vec<u32> = told.stdout_text().split_whitespace().filter_map(|id| id.parse().ok()).collect();
        groups.sort_unstable();
        (groups.len() > 1).then(|| (name.to_owned(), groups))
    })
}

fn home_of(name: &str) -> String {
    let entry = Tool::new("getent").args(["passwd", name]).run_ok().stdout_text();
    entry.split(':').nth(5).expect("a home").to_owned()
}

#[test]
fn a_server_that_could_map_nobody_does_not_start_and_says_why() {
    let files = public_dir().expect("a directory");
    let config = files.path().join("dtn.toml");
    let broken = files.path().join("rules.json");
    fs::write(&broken, "{\"DATA_TYPE\": \"expression_identity_mapping#1.0.0\",\n\"mappings\": [}").expect("written");
    let issuer = "[tokens]\naudience = [\"x\"]\n[[tokens.issuer]]\nurl = \"https://i/\"\naccounts = [\"nobody\"]\n";
    for (text, parts) in [
        (format!("anonymous = true\nmapping = [{broken:?}]"), ["rules.json", "line 2"]),
        ("anonymous = true\nmapping = [\"/no/such/file\"]".to_owned(), ["/no/such/file", "cure"]),
        (issuer.to_owned(), ["[tls] certificate and key", "cure"]),
        (issuer.replace("accounts", "#"), ["[tls] certificate and key", "cure"]),
        (issuer.replace("https", "http"), ["http://i/", "https URL"]),
        (String::new(), ["nobody could log in", "[tokens]"]),
    ] {
        fs::write(&config, &text).expect("written");
        let run = Tool::new(WHIMBREL).args(["dtn", "--listen", "127.0.0.1:0", "--config"]).arg(&config).run_failing();
        assert_eq!(run.code(), Some(2), "{run}");
        assert!(parts.iter().all(|part| run.stderr_text().contains(part)), "{parts:?}: {run}");
    }
}

impl Site {
    /// Our client lists the directory `data`, with known hosts of its own.
    fn our_list(&self, options: &[&str]) -> Tool {
        let place = format!("whimbrel://{}/data/", self.server.addr());
        Tool::new(WHIMBREL).args(["-vvv", "ls"]).args(options).arg(place).env("XDG_CONFIG_HOME", self.secrets.path())
    }
}

#[test]
fn our_client_shows_a_token_that_was_named_or_lies_here() {
    let tokens = Tokens::new();
    let site = tokens.site();
    let (token, file) = (tokens.token(0, &[]), site.secrets.path().join("token"));
    fs::write(&file, &token).expect("written");
    let name = file.to_str().expect("text");
    let found = site.our_list(&[]).env("BEARER_TOKEN_FILE", &file);
    for run in [site.our_list(&["--token-file", name]).run_ok(), found.run_ok()] {
        assert_eq!(run.stdout_text().trim_end(), "here", "{run}");
        assert!(run.stderr_text().contains("USER :globus-mapping:"), "{run}");
        assert!(!run.stderr_text().contains(&token[..40]), "{run}");
    }
    let elsewhere = tokens.token(0, &[("aud", json!(["https://other.example.org"]))]);
    fs::write(&file, elsewhere).expect("written");
    let run = site.our_list(&["--token-file", name]).run_failing();
    assert_eq!(run.code(), Some(6), "{run}");
    for part in ["token of alice by ", "https://other.example.org", name] {
        assert!(run.stderr_text().contains(part), "{part}: {run}");
    }
    fs::write(&file, tokens.token(0, &[("exp", json!(1_700_000_000))])).expect("written");
    let run = site.our_list(&["--token-file", name]).run_failing();
    assert_eq!(run.code(), Some(6), "{run}");
    assert!(run.stderr_text().contains("has expired (good until 2023-11-14 22:13 UTC)"), "{run}");
    assert!(!run.stderr_text().contains("220 "), "nobody was called: {run}");
}

#[test]
fn our_client_shows_its_certificate_where_it_is_asked_for() {
    let pki = Pki::new().expect("a grid");
    let (alice, bob) = (pki.person("alice").expect("a certificate"), pki.person("bob").expect("a certificate"));
    let files = public_dir().expect("a directory");
    let mapping = rules(files.path(), "/O=Grid/CN=alice", &account());
    let authority = files.path().join("authority.pem");
    fs::write(&authority, pki.authority().certificate.to_pem().expect("PEM")).expect("written");
    let settings = format!("mapping = [{mapping:?}]\n[accounts]\nleast_uid = 1");
    let site = Site::start(&pki, &format!("clients = {authority:?}"), &settings);
    let named = site.our_list(&["--certificate", alice.file.to_str().expect("text")]);
    // Without a word the usual one is shown.
    let usual = site.our_list(&[]).as_member(&pki, &alice);
    for run in [named.run_ok(), usual.run_ok()] {
        assert_eq!(run.stdout_text().trim_end(), "here", "{run}");
    }
    site.server.wait_for_log(&["certificate accepted", "/O=Grid/CN=alice"]);
    let run = site.our_list(&["--certificate", bob.file.to_str().expect("text")]).run_failing();
    assert_eq!(run.code(), Some(6), "{run}");
}
