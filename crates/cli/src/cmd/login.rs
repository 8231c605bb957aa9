//! `whimbrel login`, `logout` and `whoami`: who one is at a managed service.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use serde_json::{Value, json};
use uuid::Uuid;
use whimbrel_engine::{Fault, FaultCode, Side};

use super::managed;
use crate::args::Global;
use crate::login::ask_hidden;
use crate::managed::browser::{self, Wanted};
use crate::managed::grants::{self, AUTH, SCOPES};
use crate::managed::logins::{ClientCredential, Login, LoginFile, Token};
use crate::managed::reach::{self, Reach};
use crate::managed::refusal::Trouble;
use crate::managed::{EXIT_CODES, ServiceArgs, Session, need, show, text};
use crate::output::Output;

/// Log in at a managed transfer service
///
/// A person logs in in a browser. A program, or whoever has a client's id and secret, logs in with --client. The login is kept in
/// ~/.config/whimbrel/logins.json, which nobody else may read, and renews itself; `whimbrel logout` ends it.
#[derive(Debug, Args)]
#[command(after_help = format!("EXAMPLES\n  \
    With a browser:                         whimbrel login https://transfer.example.org\n  \
    On a host without one:                  whimbrel login transfer.example.org --no-browser\n  \
    As the administrator of a new service:  whimbrel login localhost:8443 --client service/administrator.json \\\n  \
                                              --authorities service/certificate.pem\n\n{EXIT_CODES}"))]
pub struct LoginArgs {
    /// The service, as in https://transfer.example.org:8443 [default: where you are logged in]
    #[arg(value_name = "URL")]
    url: Option<String>,
    /// Log in as a client in its own name: a file with client_id and client_secret, or the id (the secret is asked for)
    #[arg(long, value_name = "FILE|ID")]
    client: Option<PathBuf>,
    /// Certificates (PEM) of who vouches for the service's host [default: this computer's authorities; any other host is known by the
    /// key of the first visit]
    #[arg(long, value_name = "FILE")]
    authorities: Option<PathBuf>,
    /// Show the address, and ask for the code that the browser shows: for hosts without one
    #[arg(long, conflicts_with = "client")]
    no_browser: bool,
    /// Allow this, too: what a refusal has named
    #[arg(long, value_name = "SCOPES")]
    scope: Option<String>,
}

/// Runs the command.
pub fn run(args: LoginArgs, global: &Global) -> ExitCode {
    managed(global, async |output| log_in(args, output).await)
}

async fn log_in(args: LoginArgs, output: &mut Output) -> Result<u8, Trouble> {
    let file = LoginFile::usual()?;
    let known = file.find(args.url.as_deref()).ok();
    let service = match (&args.url, &known) {
        (Some(url), _) => reach::url(url),
        (None, Some(known)) => known.service.clone(),
        (None, None) => return Err(Trouble::Usage("name the service: whimbrel login https://HOST".to_owned())),
    };
    let authorities = match &args.authorities {
        Some(file) => Some(read(file)?),
        None => known.as_ref().and_then(|known| known.authorities.clone()),
    };
    let reach = Reach::new(&service, authorities.as_deref(), true)?;
    grants::visit(&reach).await?;
    if let Some(key) = reach.remember()? {
        output.say(&format!("{service} is known by its key from now on: {key}"));
    }
    let scopes = args.scope.iter().fold(SCOPES.to_owned(), |all, more| format!("{all} {more}"));
    let known = file.client(&service)?;
    let (client, tokens) = match &args.client {
        Some(named) => {
            let client = named_client(named)?;
            let tokens = grants::by_client(&reach, &client, &scopes).await?;
            (client, tokens)
        }
        None => in_browser(&reach, &service, known, &scopes, args.no_browser).await?,
    };
    let user = user(&reach, &tokens).await?;
    let login = Login { service, user, authorities, client, acts_alone: args.client.is_some(), tokens };
    file.put_first(&login)?;
    let shown = json!({"event": "logged_in", "service": login.service, "user": login.user});
    output.outcome(&shown, &format!("logged in at {} as {}", login.service, login.user));
    Ok(0)
}

async fn in_browser(
    reach: &Reach,
    service: &str,
    known: Option<ClientCredential>,
    scopes: &str,
    no_browser: bool,
) -> Result<(ClientCredential, BTreeMap<String, Token>), Trouble> {
    let client = match known {
        Some(client) if grants::knows(reach, &client).await? => client,
        _ => grants::new_client(reach, &format!("whimbrel on {}", super::serve::host_name())).await?,
    };
    let wanted = Wanted { service, client: &client.id, scopes };
    let brought = if no_browser || !browser::is_here() { wanted.by_hand()? } else { wanted.by_browser().await? };
    let tokens = grants::by_code(reach, &client, &brought.code, &brought.redirect, &brought.verifier).await?;
    Ok((client, tokens))
}

async fn user(reach: &Reach, tokens: &BTreeMap<String, Token>) -> Result<String, Trouble> {
    let Some(token) = tokens.get(AUTH) else { return Ok("somebody".to_owned()) };
    let told = grants::user(reach, &token.access).await?;
    Ok(need(&told, "preferred_username")?.to_owned())
}

/// The client that a file holds, or whose id this is.
///
/// # Errors
/// The file cannot be read, may be read by others, or holds no client.
pub(super) fn named_client(named: &Path) -> Result<ClientCredential, Trouble> {
    let id = named.to_str().and_then(|text| Uuid::try_parse(text).ok());
    if let Some(id) = id {
        let secret = ask_hidden(&format!("Secret of client {id}: "));
        let secret = secret.map_err(|error| Trouble::here(error, "ask for the secret", "the terminal"))?;
        return Ok(ClientCredential { id: id.to_string(), secret });
    }
    let wrong = |detail: &str| {
        let fault = Fault::new(FaultCode::CredentialRejected, "read the client").side(Side::Us);
        Trouble::from(fault.subject(named.display().to_string()).detail(detail))
    };
    let document: Value = serde_json::from_str(&read(named)?).unwrap_or_default();
    let field = |name: &str| document[name].as_str().map(str::to_owned);
    let (Some(id), Some(secret)) = (field("client_id"), field("client_secret")) else {
        return Err(wrong("it is no JSON document with client_id and client_secret"));
    };
    let facts = fs::metadata(named).map_err(|error| Trouble::here(error, "read", named.display()))?;
    if facts.is_file() && facts.permissions().mode() & 0o077 != 0 {
        return Err(wrong("others may read it, and act as this client: chmod 600 it"));
    }
    Ok(ClientCredential { id, secret })
}

/// A text file.
pub(super) fn read(file: &Path) -> Result<String, Trouble> {
    fs::read_to_string(file).map_err(|error| Trouble::here(error, "read", file.display()))
}

/// End a login: the service forgets its tokens, and so does this computer
#[derive(Debug, Args)]
#[command(after_help = EXIT_CODES)]
pub struct LogoutArgs {
    #[command(flatten)]
    service: ServiceArgs,
}

/// Runs the command.
pub fn run_logout(args: LogoutArgs, global: &Global) -> ExitCode {
    managed(global, async |output| log_out(&args.service, output).await)
}

async fn log_out(args: &ServiceArgs, output: &mut Output) -> Result<u8, Trouble> {
    let file = LoginFile::usual()?;
    let login = file.find(args.service.as_deref())?;
    let ended = end(&login).await;
    // What this computer knows goes, whatever the service says.
    file.forget(&login.service)?;
    ended?;
    let shown = json!({"event": "logged_out", "service": login.service, "user": login.user});
    output.outcome(&shown, &format!("logged out at {}", login.service));
    Ok(0)
}

async fn end(login: &Login) -> Result<(), Trouble> {
    let reach = Reach::new(&login.service, login.authorities.as_deref(), false)?;
    for token in login.tokens.values() {
        let refresh = token.refresh.as_ref();
        for text in refresh.into_iter().chain([&token.access]) {
            grants::revoke(&reach, &login.client, text).await?;
        }
    }
    Ok(())
}

/// Tell who one is at the managed service
#[derive(Debug, Args)]
#[command(after_help = EXIT_CODES)]
pub struct WhoamiArgs {
    #[command(flatten)]
    service: ServiceArgs,
}

/// Runs the command.
pub fn run_whoami(args: WhoamiArgs, global: &Global) -> ExitCode {
    managed(global, async |output| tell(&args.service, output).await)
}

async fn tell(args: &ServiceArgs, output: &mut Output) -> Result<u8, Trouble> {
    let mut session = Session::open(args)?;
    let told = session.ask(AUTH, whimbrel_web::client::Method::GET, "/v2/oauth2/userinfo", None).await?;
    let name = text(&told, "preferred_username").to_owned();
    let facts = [
        ("name", text(&told, "name").to_owned()),
        ("id", text(&told, "sub").to_owned()),
        ("mail", text(&told, "email").to_owned()),
        ("service", session.login().service.clone()),
    ];
    let mut event = told.clone();
    (event["event"], event["service"]) = (json!("identity"), json!(session.login().service));
    output.result(&event, &show::facts(&name, &facts));
    Ok(0)
}
