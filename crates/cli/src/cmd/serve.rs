//! `whimbrel serve`: the managed transfer service.

mod notify;
mod place;
mod provider;

pub use place::{host_name, kept_name};

use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use clap::Args;
use tokio::sync::watch;
use uuid::Uuid;
use whimbrel_dtn::client::meeting::absent;
use whimbrel_dtn::orchestrator::{Desk, Limits, Orchestrator};
use whimbrel_engine::dispatch::{Request, Response};
use whimbrel_engine::{Fault, FaultCode, Side};
use whimbrel_service::clock::SystemClock;
use whimbrel_service::house::Keeping;
use whimbrel_service::store::{SealKey, Store};
use whimbrel_service::{Config, Service};
use whimbrel_web::{Limits as WebLimits, Line, Listen, Security, Server, WebError, of_connections};

use self::notify::NotifyArgs;
use self::place::StatePlace;
use self::provider::ProviderArgs;
use crate::output::lines;

const OP: &str = "serve";

/// Run the managed transfer service: users submit tasks and walk away
///
/// Its API is that of Globus Transfer, so that the `globus` command and its SDK work with it unmodified. Prints one line
/// `listening on URL` when it is ready. At its first start it makes an administrator's client and says where its secret is.
#[derive(Debug, Args)]
#[command(after_help = "EXAMPLES\n  \
    Try it on this host:             whimbrel serve --state ./service --listen 127.0.0.1:8443\n  \
    For others, behind their name:   whimbrel serve --listen '[::]:443' --url https://transfer.example.org \\\n  \
                                       --certificate /etc/ssl/transfer.pem --key /etc/ssl/transfer.key\n  \
    With a PostgreSQL for fleets:    whimbrel serve --database postgres://whimbrel@db.example.org/whimbrel\n  \
    Point the globus command at it:  export GLOBUS_SDK_ENVIRONMENT=mine GLOBUS_SDK_SERVICE_URL_AUTH=https://HOST:8443/ \\\n  \
                                       GLOBUS_SDK_SERVICE_URL_TRANSFER=https://HOST:8443/ GLOBUS_SDK_VERIFY_SSL=FILE")]
pub struct ServeArgs {
    /// Directory of what the service keeps [default: /var/lib/whimbrel-service as root, else ~/.local/state/whimbrel-service]
    #[arg(long, value_name = "DIR")]
    state: Option<PathBuf>,
    /// Where tasks are kept: sqlite:FILE, or postgres://USER@HOST/DATABASE [default: a file in the state directory]
    #[arg(long, value_name = "URL")]
    database: Option<String>,
    /// Address to listen at; port 0 takes a free port
    #[arg(long, value_name = "ADDR:PORT", default_value = "[::]:8443")]
    listen: SocketAddr,
    /// How clients and servers reach it [default: this host's name and the port it listens at]
    #[arg(long, value_name = "URL")]
    url: Option<String>,
    /// How other replicas over the same database reach this one [default: this host's name and the port it listens at]
    #[arg(long, value_name = "URL", requires = "database")]
    own_url: Option<String>,
    /// Certificate for TLS, a PEM file [default: one made at the first start, in the state directory]
    #[arg(long, value_name = "FILE", requires = "key")]
    certificate: Option<PathBuf>,
    /// Its private key, a PEM file
    #[arg(long, value_name = "FILE", requires = "certificate")]
    key: Option<PathBuf>,
    /// What follows the @ in the names of people [default: this host's name]
    #[arg(long, value_name = "NAME")]
    domain: Option<String>,
    /// Carry out no tasks in this process: `whimbrel orchestrate` on other hosts does
    #[arg(long)]
    no_orchestrator: bool,
    /// Tasks that this process carries out at once
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=1000))]
    tasks: u32,
    /// Connections at once, of clients and servers
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(10..=100_000))]
    connections: u32,
    /// Connections at once of one address, or IPv6 /64 [default: half of all; with a proxy in front, say as many as all]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    connections_per_address: Option<u32>,
    /// Days for which tasks that are over are kept, with all that is told of them
    #[arg(long, value_name = "DAYS", default_value_t = 90, value_parser = clap::value_parser!(u32).range(1..=36500))]
    keep_tasks: u32,
    /// Days for which the audit log is kept
    #[arg(long, value_name = "DAYS", default_value_t = 730, value_parser = clap::value_parser!(u32).range(1..=36500))]
    keep_audit: u32,
    #[command(flatten)]
    notify: NotifyArgs,
    #[command(flatten)]
    provider: ProviderArgs,
}

/// Runs the command.
pub fn run(args: ServeArgs) -> ExitCode {
    match serve(args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(fault) => {
            eprintln!("whimbrel serve: {fault}");
            eprintln!("  cure: {}", fault.code.explain().cure);
            ExitCode::from(2)
        }
    }
}

fn serve(args: ServeArgs) -> Result<(), Fault> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Fault::from_io(error, "start the runtime"))?;
    let result = runtime.block_on(serve_until_stopped(args));
    runtime.shutdown_background();
    result
}

async fn serve_until_stopped(args: ServeArgs) -> Result<(), Fault> {
    let settings = args.notify.settings()?;
    let place = StatePlace::at(args.state.as_deref())?;
    let host = place::host_name();
    let (tls, pin) = place.tls(args.certificate.as_deref().zip(args.key.as_deref()), args.url.as_deref(), &host)?;
    let database = args.database.clone().unwrap_or_else(|| place.database());
    let store = match database.starts_with("sqlite:") {
        true => Store::open(&database).await,
        // All replicas need the same key: an administrator copies it.
        false => match SealKey::at(&place.seal_key()) {
            Ok(key) => Store::open_with(&database, key).await,
            Err(error) => Err(error),
        },
    };
    let store = store.map_err(Fault::from)?;
    let listen = Listen { address: args.listen, security: Security::Tls(tls), limits: limits(&args) };
    let server = Server::bind(listen).await.map_err(|error| match error {
        WebError::Listen { address, error } => {
            Fault::from_io(error, "listen").side(Side::Us).subject(address.to_string())
        }
        clear @ WebError::Clear { .. } => failed(clear.to_string()),
    })?;
    let here = place::url(server.address(), &host);
    let url = args.url.clone().unwrap_or_else(|| here.clone());
    let domain = args.domain.clone().unwrap_or(host);
    let provider = args.provider.settings(&domain)?;
    let config = Config { url: url.trim_end_matches('/').to_owned(), domain };
    let service = Arc::new(Service::new(config, Arc::new(SystemClock), store));
    place.make_administrator(&service).await?;
    service.notifier.begin(settings);
    if let Some(provider) = provider {
        service.auth.provider.begin(provider);
    }
    service.house.keep(Keeping { tasks: Some(args.keep_tasks), audit: Some(args.keep_audit) });
    let (stop, stopped) = watch::channel(false);
    tokio::spawn(stop_on_signal(stop.clone()));
    let orchestrator = place.orchestrator()?;
    if !database.starts_with("sqlite:") {
        let own = args.own_url.as_deref().unwrap_or(&here);
        service.replicas.begin(own, pin).map_err(|error| failed(error.to_string()))?;
    }
    let orchestrating = orchestrate(&args, orchestrator, service.clone(), stopped.clone());
    let orchestrating = async {
        let ended = orchestrating.await;
        // A service that takes tasks and runs none would say nothing of it.
        if ended.is_err() {
            stop.send_replace(true);
        }
        ended
    };
    match args.url {
        Some(_) => lines::line(&format!("listening on {url} (here: {})", server.address())),
        None => lines::line(&format!("listening on {url}")),
    }
    let router = service.router();
    let (telling, keeping) = (service.tell_owners(stopped.clone()), service.keep_house(stopped.clone()));
    let ((), (), (), (), (), orchestrated) = tokio::join!(
        server.serve(router, stopped.clone()),
        service.attend(stopped.clone()),
        service.look_after(stopped),
        telling,
        keeping,
        orchestrating
    );
    orchestrated
}

fn limits(args: &ServeArgs) -> WebLimits {
    let mut doors = of_connections(args.connections as usize);
    doors.per_network = args.connections_per_address.map_or(doors.per_network, |most| most as usize);
    WebLimits { doors, ..WebLimits::default() }
}

/// The service in this process, as an orchestrator sees it.
struct Here(Arc<Service>);

impl Desk for Here {
    async fn ask(&self, request: Request) -> Result<Response, Fault> {
        self.0.dispatch(request).await
    }

    async fn meet(&self, server: Uuid) -> Result<UnixStream, Fault> {
        let met = self.0.meet(server).await;
        let met = met
            .map_err(|error| Fault::new(FaultCode::ServerBusy, "connect").side(Side::Service).detail(error.message))?;
        joined(met.ok_or_else(|| absent(""))?)
    }
}

async fn orchestrate(
    args: &ServeArgs,
    name: Uuid,
    service: Arc<Service>,
    stopped: watch::Receiver<bool>,
) -> Result<(), Fault> {
    if args.no_orchestrator {
        return Ok(());
    }
    let limits = Limits { tasks: args.tasks, local: super::local_options()?, ..Limits::default() };
    Orchestrator::new(limits).named(name).run(Arc::new(Here(service)), stopped).await
}

/// An end of a socket pair whose bytes are carried to and from a connection.
pub(super) fn joined(line: Line) -> Result<UnixStream, Fault> {
    let (theirs, carrying) = line.paired().map_err(|error| Fault::from_io(error, "connect").side(Side::Us))?;
    tokio::spawn(async move {
        if let Err(error) = carrying.await {
            tracing::debug!(%error, "a control connection that a server made has broken");
        }
    });
    Ok(theirs)
}

/// Sets the flag at the first signal to end, and ends the process at the second.
pub(super) async fn stop_on_signal(stop: watch::Sender<bool>) {
    use tokio::signal::unix::{SignalKind, signal};
    let (Ok(mut interrupt), Ok(mut terminate)) = (signal(SignalKind::interrupt()), signal(SignalKind::terminate()))
    else {
        return;
    };
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
    stop.send_replace(true);
    // Whoever asks twice does not want to wait for what runs.
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
    std::process::exit(1);
}

fn failed(detail: impl Into<String>) -> Fault {
    Fault::new(FaultCode::InvalidArgument, OP).side(Side::Us).detail(detail)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        args: ServeArgs,
    }

    #[test]
    fn no_address_has_all_connections_unless_that_is_said() {
        for (words, expected) in [
            (&["serve"][..], (1000, 500)),
            (&["serve", "--connections", "50"], (50, 25)),
            (&["serve", "--connections", "50", "--connections-per-address", "50"], (50, 50)),
        ] {
            let doors = limits(&Line::try_parse_from(words).unwrap().args).doors;
            assert_eq!((doors.all, doors.per_network), expected, "{words:?}");
        }
        assert!(Line::try_parse_from(["serve", "--connections", "0"]).is_err());
    }
}
