//! `whimbrel orchestrate`: carries out a managed service's tasks from another host.

use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use serde_json::json;
use tokio::sync::{Mutex, watch};
use uuid::Uuid;
use whimbrel_dtn::client::meeting::absent;
use whimbrel_dtn::orchestrator::{Desk, Limits, Orchestrator};
use whimbrel_engine::dispatch::waiting::PROTOCOL;
use whimbrel_engine::dispatch::{POLL_SECONDS, Request, Response};
use whimbrel_engine::{Fault, FaultCode, Side};
use whimbrel_service::auth::scope::{Orchestrate, Scope as _};
use whimbrel_trust::kept::Kept;
use whimbrel_web::client::{Method, Question};

use super::login::{named_client, read};
use super::serve::{joined, kept_name, stop_on_signal};
use crate::args::Global;
use crate::managed::logins::{ClientCredential, Token, now};
use crate::managed::reach::{self, Reach};
use crate::managed::refusal::Trouble;
use crate::managed::{EXIT_CODES, grants};
use crate::output::Output;

const OP: &str = "orchestrate";

/// Time for an answer to a poll, which may wait for something to do: shorter than a lease holds, so that a dead connection loses none.
const POLL: Duration = Duration::from_secs(POLL_SECONDS + 5);
/// Time for any other answer: the database may be busy.
const PATIENCE: Duration = Duration::from_secs(60);

/// Carry out tasks of a managed service from this host
///
/// One service may have many: each takes tasks when it has room, and another goes on with them when it dies. It needs connections to
/// the service and to the data transfer nodes, and nobody connects to it. Prints one line `orchestrating for URL` when it begins.
#[derive(Debug, Args)]
#[command(after_help = format!("EXAMPLES\n  \
    Make its client, as an administrator:  whimbrel user client mover-2 --orchestrator --file mover-2.json\n  \
    Run it, on any host:                   whimbrel orchestrate --service https://transfer.example.org --client mover-2.json\n  \
    Keep the service's host free of it:    whimbrel serve --no-orchestrator\n\n{EXIT_CODES}"))]
pub struct OrchestrateArgs {
    /// The service, as in https://transfer.example.org:8443
    #[arg(long, value_name = "URL")]
    service: String,
    /// File with client_id and client_secret, which nobody else may read
    #[arg(long, value_name = "FILE")]
    client: PathBuf,
    /// Certificates (PEM) of who vouches for the service's host [default: this computer's authorities, or the key of an earlier login]
    #[arg(long, value_name = "FILE")]
    authorities: Option<PathBuf>,
    /// Directory where it keeps its name [default: /var/lib/whimbrel-orchestrator as root, else ~/.local/state/whimbrel-orchestrator]
    #[arg(long, value_name = "DIR")]
    state: Option<PathBuf>,
    /// Tasks at once
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=1000))]
    tasks: u32,
}

/// Runs the command.
pub fn run(args: OrchestrateArgs, global: &Global) -> ExitCode {
    let mut output = Output::new(global);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let ended = match &runtime {
        Ok(runtime) => runtime.block_on(orchestrate(args, &mut output)),
        Err(error) => Err(Trouble::Fault(failed(FaultCode::Internal, format!("start the runtime: {error}")))),
    };
    runtime.into_iter().for_each(tokio::runtime::Runtime::shutdown_background);
    ExitCode::from(ended.unwrap_or_else(|trouble| output.trouble(&trouble)))
}

async fn orchestrate(args: OrchestrateArgs, output: &mut Output) -> Result<u8, Trouble> {
    let name = name(args.state)?;
    let authorities = args.authorities.as_deref().map(read).transpose()?;
    let service = reach::url(&args.service);
    let client = named_client(&args.client)?;
    let away = Away { reach: Reach::new(&service, authorities.as_deref(), false)?, client, token: Mutex::new(None) };
    // Who is refused is told at once; a service that is away comes back.
    match away.token().await {
        Err(trouble) if !trouble.is_temporary() => return Err(trouble),
        Err(trouble) => tracing::warn!(?trouble, "the service does not answer yet"),
        Ok(_) => {}
    }
    output.result(&json!({"event": "orchestrating", "service": service}), &format!("orchestrating for {service}"));
    let (stop, stopped) = watch::channel(false);
    tokio::spawn(stop_on_signal(stop));
    let limits = Limits { tasks: args.tasks, local: super::local_options()?, ..Limits::default() };
    Orchestrator::new(limits).named(name).run(Arc::new(away), stopped).await?;
    Ok(0)
}

/// What it goes by, the same each time it is started from this directory.
fn name(state: Option<PathBuf>) -> Result<Uuid, Trouble> {
    let usual = || Kept::usual("whimbrel-orchestrator", rustix::process::geteuid().as_raw());
    let place = state.or_else(usual);
    let place = place.ok_or_else(|| Trouble::Usage("say where it is to keep its name: --state DIR".to_owned()))?;
    let kept = Kept::at(&place).map_err(|error| Trouble::here(error, OP, place.display()))?;
    kept_name(&kept).map_err(Trouble::from)
}

/// A service elsewhere.
struct Away {
    reach: Reach,
    client: ClientCredential,
    token: Mutex<Option<Token>>,
}

impl Away {
    /// A token that is good, a new one if need be.
    async fn token(&self) -> Result<String, Trouble> {
        let mut kept = self.token.lock().await;
        if let Some(token) = kept.as_ref().filter(|token| token.is_good(now())) {
            return Ok(token.access.clone());
        }
        let given = grants::by_client(&self.reach, &self.client, Orchestrate::NAME).await?;
        let token = given.into_values().next().ok_or_else(|| crate::managed::odd("no token"))?;
        Ok(kept.insert(token).access.clone())
    }

    async fn asked(&self, message: &[u8], limit: Duration) -> Result<Response, Trouble> {
        let token = self.token().await?;
        let path = "/v2/whimbrel/dispatch";
        let question =
            Question { method: Method::POST, path, bearer: Some(&token), body: Some(message.to_owned()), limit };
        let answer = self.reach.ask(question).await;
        if let Err(Trouble::Refused(refusal)) = &answer
            && refusal.status == 401
        {
            let mut kept = self.token.lock().await;
            if kept.as_ref().is_some_and(|kept| kept.access == token) {
                *kept = None;
            }
        }
        serde_json::from_value(answer?)
            .map_err(|error| crate::managed::odd(&format!("no answer to a message: {error}")))
    }
}

impl Desk for Away {
    async fn ask(&self, request: Request) -> Result<Response, Fault> {
        let message = serde_json::to_vec(&request).map_err(|error| failed(FaultCode::Internal, error.to_string()))?;
        let limit = if matches!(request, Request::Poll { .. }) { POLL } else { PATIENCE };
        self.asked(&message, limit).await.map_err(|trouble| match trouble {
            Trouble::Fault(fault) => fault,
            Trouble::Refused(refusal) if matches!(refusal.status, 401 | 403) => {
                failed(FaultCode::NotAuthorized, refusal.message).side(Side::Service)
            }
            Trouble::Refused(refusal) => failed(FaultCode::ConnectionLost, refusal.message).side(Side::Service),
            Trouble::Usage(text) => failed(FaultCode::InvalidArgument, text),
        })
    }

    async fn meet(&self, server: Uuid) -> Result<UnixStream, Fault> {
        let refused = |text: String| failed(FaultCode::ConnectionLost, text).side(Side::Service);
        let token = self.token().await.map_err(|trouble| refused(format!("no token: {trouble:?}")))?;
        let path = format!("/v2/whimbrel/dispatch/servers/{server}");
        match self.reach.upgrade(&path, &token, PROTOCOL).await? {
            Ok(line) => joined(line),
            Err(503) => Err(absent("")),
            Err(status) => {
                Err(refused(format!("the service answered {status} to who would reach a server by way of it")))
            }
        }
    }
}

fn failed(code: FaultCode, detail: String) -> Fault {
    Fault::new(code, OP).side(Side::Us).detail(detail)
}
