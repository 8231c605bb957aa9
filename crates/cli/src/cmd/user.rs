//! `whimbrel user`: who the managed service knows.

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Subcommand};
use serde_json::{Value, json};
use whimbrel_engine::summary::exit;

use super::managed;
use crate::args::Global;
use crate::login::ask_hidden;
use crate::managed::grants::AUTH;
use crate::managed::refusal::Trouble;
use crate::managed::{EXIT_CODES, ServiceArgs, Session, need, show, text};
use crate::output::{Output, path_value};

/// People and programs that the managed service knows
#[derive(Debug, Args)]
#[command(after_help = format!("EXAMPLES\n  \
    Somebody who logs in with a password:  whimbrel user create anna@example.org --name 'Anna Example'\n  \
    A program that acts in its own name:   whimbrel user client 'nightly archive' --file client.json\n  \
                                           whimbrel login URL --client client.json\n  \
    One that logs people in:               whimbrel user client Parsl --public --id 8b8060fd-610e-4a74-885e-1051c71ad473 \\\n  \
                                             --back https://auth.globus.org/v2/web/auth-code\n\n{EXIT_CODES}"))]
pub struct UserArgs {
    #[command(flatten)]
    service: ServiceArgs,
    #[command(subcommand)]
    command: UserCommand,
}

#[derive(Debug, Subcommand)]
enum UserCommand {
    /// Make somebody known (administrators of the service only); the password is asked for, or the first line of standard input
    Create {
        /// The name to log in with, NAME@DOMAIN
        #[arg(value_name = "USERNAME")]
        username: String,
        /// What people call them
        #[arg(long, value_name = "TEXT")]
        name: Option<String>,
        /// Where to write to
        #[arg(long, value_name = "MAIL")]
        mail: Option<String>,
        /// They administer the service
        #[arg(long)]
        admin: bool,
    },
    /// Make a client that acts in its own name or logs people in, and tell its id and secret as `login --client` reads them (administrators only)
    Client {
        /// What people call it
        #[arg(value_name = "NAME")]
        name: String,
        /// It carries out tasks, for `whimbrel serve --no-orchestrator`
        #[arg(long)]
        orchestrator: bool,
        /// It logs people in and has their browsers sent back to this place; may be repeated
        #[arg(long, value_name = "URL", conflicts_with = "orchestrator")]
        back: Vec<String>,
        /// It has no secret, as programs on people's own computers
        #[arg(long, requires = "back")]
        public: bool,
        /// Its id, where the program has it built in
        #[arg(long, value_name = "ID")]
        id: Option<uuid::Uuid>,
        /// Write id and secret to this new file, which nobody else may read, instead of printing them
        #[arg(long, value_name = "FILE", conflicts_with = "public")]
        file: Option<PathBuf>,
    },
    /// Show who somebody is
    Show {
        /// Name or id
        #[arg(value_name = "USER")]
        user: String,
    },
}

impl UserArgs {
    /// Whether nothing changes by it.
    pub fn only_asks(&self) -> bool {
        matches!(self.command, UserCommand::Show { .. })
    }
}

/// Runs the command.
pub fn run(args: UserArgs, global: &Global) -> ExitCode {
    managed(global, async |output| {
        let mut session = Session::open(&args.service)?;
        match args.command {
            UserCommand::Create { username, name, mail, admin } => {
                let wish = json!({"username": username, "name": name, "email": mail, "password": password(&username)?, "admin": admin});
                let made = session.post("/v2/api/identities", &wish).await?;
                let id = need(&made, "id")?;
                output.result(&json!({"event": "user_created", "id": id, "username": made["username"]}), id);
                Ok(exit::OK)
            }
            UserCommand::Client { name, orchestrator, back, public, id, file } => {
                let wish = json!({"name": name, "orchestrator": orchestrator, "redirect_uris": back, "public_client": public, "id": id});
                client(&mut session, &wish, file.as_deref(), output).await
            }
            UserCommand::Show { user } => show_one(&mut session, &user, output).await,
        }
    })
}

/// A password: asked for twice on a terminal, else the first line of standard input.
fn password(username: &str) -> Result<String, Trouble> {
    use std::io::{BufRead as _, IsTerminal as _};
    let failed = |error| Trouble::here(error, "ask for a password", username);
    if !std::io::stdin().is_terminal() {
        let mut line = String::new();
        std::io::stdin().lock().read_line(&mut line).map_err(failed)?;
        return Ok(line.trim_end_matches(['\r', '\n']).to_owned());
    }
    let first = ask_hidden(&format!("Password of {username}: ")).map_err(failed)?;
    let again = ask_hidden("The same again: ").map_err(failed)?;
    if first == again { Ok(first) } else { Err(Trouble::Usage("these are two different passwords".to_owned())) }
}

async fn client(session: &mut Session, wish: &Value, file: Option<&Path>, output: &mut Output) -> Result<u8, Trouble> {
    // The secret is told once: where it goes has to be there first.
    let file = file.map(SecretFile::make).transpose()?;
    let made = session.post("/v2/whimbrel/clients", wish).await?;
    let made = &made["included"]["client_credential"];
    let id = need(made, "client")?;
    if made["secret"].is_null() {
        output.result(&json!({"event": "client_created", "client_id": id}), id);
        return Ok(exit::OK);
    }
    let secret = need(made, "secret")?;
    if let Some(file) = file {
        let path = path_value(file.path.as_os_str().as_bytes());
        let event = json!({"event": "client_created", "client_id": id, "file": path});
        let told = format!("{id}: its secret is in {}, which only you may read", file.path.display());
        file.keep(&json!({"client_id": id, "client_secret": secret}).to_string())?;
        output.outcome(&event, &told);
        return Ok(exit::OK);
    }
    let event = json!({"event": "client_created", "client_id": id, "client_secret": secret});
    output.result(&event, &json!({"client_id": id, "client_secret": secret}).to_string());
    output.say("the secret is told this once");
    Ok(exit::OK)
}

/// A new file that nobody else may read, gone again unless something is kept in it.
struct SecretFile {
    path: PathBuf,
    file: Option<File>,
}

impl SecretFile {
    const OP: &str = "write the client";

    fn make(path: &Path) -> Result<Self, Trouble> {
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
        let file = file.map_err(|error| Trouble::here(error, Self::OP, path.display()))?;
        Ok(Self { path: path.to_owned(), file: Some(file) })
    }

    fn keep(mut self, text: &str) -> Result<(), Trouble> {
        let file = self.file.as_mut().expect("it is open until it is kept");
        let written = writeln!(file, "{text}").and_then(|()| file.sync_all());
        written.map_err(|error| Trouble::here(error, Self::OP, self.path.display()))?;
        self.file = None;
        Ok(())
    }
}

impl Drop for SecretFile {
    fn drop(&mut self) {
        if self.file.is_some() {
            // What is left is empty or a part, and a secret of nobody.
            let _gone = std::fs::remove_file(&self.path);
        }
    }
}

async fn show_one(session: &mut Session, user: &str, output: &mut Output) -> Result<u8, Trouble> {
    let id = session.identity_of(user).await?;
    let path = crate::managed::with_query("/v2/api/identities", &[("ids", &id)]);
    let found = session.ask(AUTH, whimbrel_web::client::Method::GET, &path, None).await?;
    let one = &found["identities"][0];
    if one.is_null() {
        let refusal = crate::managed::refusal::Refusal::new(404, "UserNotFound", format!("nobody has the id {id}"));
        return Err(refusal.into());
    }
    let facts = [
        ("id", text(one, "id").to_owned()),
        ("name", text(one, "name").to_owned()),
        ("mail", text(one, "email").to_owned()),
        ("organization", text(one, "organization").to_owned()),
    ];
    let mut event = one.clone();
    event["event"] = json!("identity");
    output.result(&event, &show::facts(text(one, "username"), &facts));
    Ok(exit::OK)
}
