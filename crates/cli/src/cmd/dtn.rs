//! `whimbrel dtn`: serve data from this host.

mod import;
mod sshftp;

use std::io::Read as _;
use std::net::IpAddr;
use std::path::PathBuf;
use std::process::{ExitCode, ExitStatus};
use std::sync::{Arc, Mutex};

use clap::Args;
use tokio::sync::watch;
use whimbrel_dtn::confine::{self, Sandbox};
use whimbrel_dtn::front::config::{GsiConfig, JoinConfig};
use whimbrel_dtn::front::gate::Gate;
use whimbrel_dtn::front::stdio::{self, Caller};
use whimbrel_dtn::front::{DtnConfig, Server, dial, process, users};
use whimbrel_dtn::monitor;
use whimbrel_dtn::monitor::keeper::{self, Keeper};
use whimbrel_engine::{Fault, FaultCode, Side};
use whimbrel_proto::rules::Networks;

use crate::output::lines;

/// Serve files of this host to GridFTP and FTP programs (a data transfer node)
///
/// Prints one line `listening on URL` for each address when it is ready, with --outbound `connecting to URL`. SIGTERM or Ctrl-C
/// ends it gently: no new connections are taken, running transfers are finished.
#[derive(Debug, Args)]
#[command(after_help = "EXAMPLES\n  \
    Serve /data to the local network without passwords, reading only:\n    \
    whimbrel dtn --root /data --anonymous --read-only\n\n  \
    Serve with passwords, data connections on ports 50000 to 51000:\n    \
    whimbrel dtn --root /data --users /etc/whimbrel/users --data-ports 50000-51000\n\n  \
    Take over the settings of a globus-gridftp-server:\n    \
    whimbrel dtn --import /etc/gridftp.d /etc/gridftp.conf > dtn.toml\n\n  \
    Let everybody with an ssh login here use sshftp:// (as root; in one's own account without being root):\n    \
    whimbrel dtn --install-sshftp --data-ports 50000-51000\n\n  \
    A front end and one of its data nodes:\n    \
    whimbrel dtn --root /data --anonymous --node-listen 10.0.0.1:2812 --node-secret secret\n    \
    whimbrel dtn --data-node-of 10.0.0.1:2812 --node-secret secret")]
pub struct DtnArgs {
    /// Read settings from a TOML file; flags win over it
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Address for control connections, may be repeated; port 0 takes a free port [default: [::]:2811]
    #[arg(long, value_name = "ADDR:PORT")]
    listen: Vec<String>,
    /// Serve one control connection on standard input and output instead of listening; over ssh whoever has logged in is let in
    #[arg(long)]
    stdio: bool,
    /// Make what sshftp:// clients start over ssh, with the other options given here, and exit: ~/.globus/sshftp, or as root
    /// /etc/grid-security/sshftp for all users
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true)]
    install_sshftp: Option<Option<PathBuf>>,
    /// Print the settings for a server that replaces globus-gridftp-server, from its files (gridftp.conf) and directories
    /// (gridftp.d), the later winning; says what cannot be taken over, and exits with 1 if that matters
    #[arg(long, value_name = "FILE", num_args = 1..)]
    import: Vec<PathBuf>,
    /// Directory that clients see as / [default: /]
    #[arg(long, value_name = "DIR")]
    root: Option<PathBuf>,
    /// Let anybody in without a password, and accept data connections from any address (but see --allow-third-party)
    #[arg(long)]
    anonymous: bool,
    /// Account that handles anonymous data when started by root [default: nobody]
    #[arg(long, value_name = "NAME")]
    anonymous_user: Option<String>,
    /// File of users: lines NAME:HASH or NAME:HASH:ACCOUNT
    #[arg(long, value_name = "FILE")]
    users: Option<PathBuf>,
    /// Read a password from standard input, print its hash for the users file, and exit
    #[arg(long)]
    hash_password: bool,
    /// Let in holders of grid certificates; what that needs lies where grid programs have it (X509_USER_CERT, X509_CERT_DIR,
    /// GRIDMAP, /etc/grid-security), or where the configuration file says
    #[arg(long)]
    gsi: bool,
    /// File of certificate subjects and the accounts they may use; means --gsi
    #[arg(long, value_name = "FILE")]
    gridmap: Option<PathBuf>,
    /// Register with the managed service at this URL, and let its users in
    #[arg(long, value_name = "URL", conflicts_with_all = ["stdio", "data_node_of"])]
    join: Option<String>,
    /// The token with which this server registers the first time; afterwards it is not needed any more
    #[arg(long, value_name = "TOKEN", requires = "join")]
    token: Option<String>,
    /// Certificates (PEM) of who vouches for the service's host [default: this computer's authorities]
    #[arg(long, value_name = "FILE", requires = "join")]
    join_authorities: Option<PathBuf>,
    /// Account of this host whose rights the service's users have, may be repeated: the first is the usual one [default: your
    /// own; started by root there is none, and this, or mapping in the configuration file, has to be given]
    #[arg(long, value_name = "NAME", requires = "join")]
    join_account: Vec<String>,
    /// Make connections to the service and to other servers, and take none: for laptops, and hosts behind address translation
    /// or a firewall
    #[arg(long, requires = "join", conflicts_with_all = ["listen", "node_listen"])]
    outbound: bool,
    /// Let servers that take no connections exchange files by way of this one: it passes their data on, encrypted, at this address
    /// [default with --relay alone: [::]:2812]
    #[arg(long, value_name = "ADDR:PORT", num_args = 0..=1, default_missing_value = "[::]:2812", requires = "join", conflicts_with = "outbound")]
    relay: Option<String>,
    /// Refuse everything that changes files
    #[arg(long)]
    read_only: bool,
    /// Ports for data connections; GLOBUS_TCP_PORT_RANGE does the same
    #[arg(long, value_name = "A-B")]
    data_ports: Option<String>,
    /// Address told to others for data connections, for hosts behind address translation
    #[arg(long, value_name = "IP")]
    data_address: Option<IpAddr>,
    /// Local address for data connections, where it is not that of the control connection
    #[arg(long, value_name = "IP")]
    data_interface: Option<IpAddr>,
    /// Let data nodes join at this address: one file is then moved by many hosts at once
    #[arg(long, value_name = "ADDR:PORT")]
    node_listen: Option<String>,
    /// Serve as a data node of the front end at this address
    #[arg(long, value_name = "FRONT:PORT", conflicts_with_all = ["listen", "node_listen", "stdio"])]
    data_node_of: Option<String>,
    /// File with the secret that a front end and its data nodes share (16 bytes or more)
    #[arg(long, value_name = "FILE")]
    node_secret: Option<PathBuf>,
    /// Serve Prometheus metrics at this address
    #[arg(long, value_name = "ADDR:PORT")]
    metrics: Option<String>,
    /// Write one line for each transfer in the classic key=value form
    #[arg(long, value_name = "FILE")]
    transfer_log: Option<PathBuf>,
    /// Write one JSON object for each transfer
    #[arg(long, value_name = "FILE")]
    transfer_log_json: Option<PathBuf>,
    /// Flush data to storage before reporting it as received
    #[arg(long)]
    sync_writes: bool,
    /// Write and read files of 64 MiB or more past this host's page cache (direct I/O)
    #[arg(long)]
    direct_io: bool,
    /// Memory for transfer buffers in each direction, MiB [default: 64]
    #[arg(long, value_name = "MIB")]
    buffer_mib: Option<u64>,
    /// Do not measure storage and network for clients: `whimbrel probe` then says so
    #[arg(long)]
    no_probe: bool,
    /// Congestion control of data connections, such as bbr or cubic [default: the system's]
    #[arg(long, value_name = "NAME")]
    congestion: Option<String>,
    /// The program that spreads large new files on Lustre; empty: never [default: /usr/bin/lfs where it is]
    #[arg(long, value_name = "PROGRAM")]
    lfs: Option<PathBuf>,
    /// Refuse data connections in clear
    #[arg(long)]
    encrypt_data: bool,
    /// Take passwords over connections in clear, where everybody on the way can read them
    #[arg(long)]
    clear_text_passwords: bool,
    /// Networks that data connections may lead to and come from besides the client's own address, for third-party copies of
    /// programs without a proof of their own [default: all with --anonymous, else none]
    #[arg(long, value_name = "CIDR,...")]
    allow_third_party: Option<Networks>,
    /// Confine the processes that serve: auto (as far as the kernel can), require (or do not start), off [default: auto]
    #[arg(long, value_name = "WORD")]
    sandbox: Option<Sandbox>,
    /// Control connections at once [default: 1000]
    #[arg(long, value_name = "N")]
    max_connections: Option<usize>,
    /// Longest wait for running transfers after SIGTERM, seconds [default: no limit]
    #[arg(long, value_name = "SECONDS")]
    drain_timeout: Option<u64>,
}

/// Runs the command.
pub fn run(args: DtnArgs) -> ExitCode {
    told(match (args.hash_password, args.install_sshftp.clone()) {
        (true, _) => hash_password().map(|()| ExitCode::SUCCESS),
        (false, None) if !args.import.is_empty() => import::run(&args.import),
        (false, Some(file)) => sshftp::install(args, file).map(|()| ExitCode::SUCCESS),
        (false, None) => serve(args),
    })
}

fn told(result: Result<ExitCode, Fault>) -> ExitCode {
    match result {
        Ok(code) => code,
        Err(fault) => {
            eprintln!("whimbrel dtn: {fault}");
            eprintln!("  cure: {}", fault.code.explain().cure);
            ExitCode::from(2)
        }
    }
}

fn hash_password() -> Result<(), Fault> {
    let failed = |error| Fault::from_io(error, "read password");
    let mut password = Vec::new();
    std::io::stdin().lock().read_to_end(&mut password).map_err(failed)?;
    let password = password.trim_ascii_end();
    if password.is_empty() {
        let fault = Fault::new(FaultCode::InvalidArgument, "hash a password").side(Side::Us);
        return Err(fault.detail(
            "it is empty: give one on standard input, as in printf %s 'the password' | whimbrel dtn --hash-password",
        ));
    }
    let hash = users::hash_password(password)?;
    lines::line(&hash);
    Ok(())
}

fn serve(args: DtnArgs) -> Result<ExitCode, Fault> {
    let stdio = args.stdio;
    // This process reads the keys of hosts and nodes, and what proves passwords.
    confine::keep_secrets()?;
    let config = args.into_config()?;
    let program = std::env::current_exe().map_err(|error| Fault::from_io(error, "find this program"))?;
    if config.data_node_of.is_none() && !stdio {
        return Ok(as_code(monitor::run(&config, program)?));
    }
    let caller = Caller::of_this_process();
    let by_ssh = caller.is_ssh() && !config.names_logins();
    if stdio && !by_ssh {
        if let Some(connection) = stdio::socket()? {
            return Ok(as_code(monitor::run_for(connection, &config, program)?));
        }
        never_as_root()?;
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Fault::from_io(error, "start the runtime"))?;
    let result = runtime.block_on(async {
        let (drain, draining) = watch::channel(false);
        process::drain_on_signal(drain)?;
        if config.data_node_of.is_some() {
            return dial::serve_front(&config, &program, draining).await;
        }
        let server = if by_ssh {
            over_ssh(&config, program)?
        } else {
            let keeper = Keeper::new(&config, program)?;
            Server::new(monitor::front_settings(&config)?, Gate::Here(Mutex::new(keeper)))?
        };
        server.warn_about_openness();
        stdio::serve(Arc::new(server), caller, draining).await;
        Ok(())
    });
    runtime.shutdown_background();
    result.map(|()| ExitCode::SUCCESS)
}

/// How the front has ended; it has told why it failed.
fn as_code(status: ExitStatus) -> ExitCode {
    status.code().and_then(|code| u8::try_from(code).ok()).map_or(ExitCode::FAILURE, ExitCode::from)
}

/// What strangers say over pipes would be read by this process itself.
fn never_as_root() -> Result<(), Fault> {
    if !keeper::is_root() {
        return Ok(());
    }
    let fault = Fault::new(FaultCode::NotAuthorized, "serve standard input").subject("root").side(Side::Us);
    Err(fault.detail(
        "standard input is no connection, and what strangers say is never read as root: have it started with the connection itself, as \
         inetd does, or as another user",
    ))
}

/// A server for somebody whom ssh has let in as this account.
fn over_ssh(config: &DtnConfig, program: PathBuf) -> Result<Server, Fault> {
    let keeper = Keeper::of_own_account(config, program)?;
    // ssh protects the connection; the key of TLS is not this account's to read.
    let settings = monitor::front_settings(&DtnConfig { tls: None, ..config.clone() })?;
    Ok(Server::new(settings, Gate::Here(Mutex::new(keeper)))?.over_ssh())
}

/// Runs `lfs-helper`.
pub fn run_lfs_helper(program: &std::ffi::OsStr) -> ExitCode {
    told(whimbrel_dtn::confine::helper::serve_standard_input(program).map(|()| ExitCode::SUCCESS))
}

/// Runs `dtn-front`.
pub fn run_front() -> ExitCode {
    told(process::serve_standard_input().map(|()| ExitCode::SUCCESS))
}

/// Runs `dtn-member`.
pub fn run_member() -> ExitCode {
    told(whimbrel_dtn::member::serve_standard_input().map(|()| ExitCode::SUCCESS))
}

/// Runs `dtn-door`.
pub fn run_door() -> ExitCode {
    told(whimbrel_dtn::door::serve_standard_input().map(|()| ExitCode::SUCCESS))
}

/// Runs `dtn-caller`.
pub fn run_caller() -> ExitCode {
    told(whimbrel_dtn::caller::serve_standard_input().map(|()| ExitCode::SUCCESS))
}

/// Runs `dtn-relay`.
pub fn run_relay() -> ExitCode {
    told(whimbrel_dtn::relay::serve_standard_input().map(|()| ExitCode::SUCCESS))
}

/// Runs `fetch-keys`.
pub fn run_fetch_keys() -> ExitCode {
    told(whimbrel_dtn::keys::serve_standard_input().map(|()| ExitCode::SUCCESS))
}

impl DtnArgs {
    /// Whether it prints something instead of serving.
    pub fn only_prints(&self) -> bool {
        self.hash_password || !self.import.is_empty()
    }

    /// True if what it logs goes to a user's terminal, by way of ssh.
    pub fn serves_one(&self) -> bool {
        self.stdio
    }

    fn into_config(self) -> Result<DtnConfig, Fault> {
        let file = self.config.as_deref().map(DtnConfig::read).transpose()?.unwrap_or_default();
        let join = self.joined(file.join.clone());
        Ok(DtnConfig {
            listen: if self.listen.is_empty() { file.listen } else { self.listen },
            root: self.root.or(file.root),
            anonymous: self.anonymous || file.anonymous,
            anonymous_user: self.anonymous_user.or(file.anonymous_user),
            users: self.users.or(file.users),
            gsi: gsi(self.gsi, self.gridmap, file.gsi),
            join,
            read_only: self.read_only || file.read_only,
            data_ports: self.data_ports.or(file.data_ports),
            data_address: self.data_address.or(file.data_address),
            data_interface: self.data_interface.or(file.data_interface),
            node_listen: self.node_listen.or(file.node_listen),
            data_node_of: self.data_node_of.or(file.data_node_of),
            node_secret: self.node_secret.or(file.node_secret),
            metrics: self.metrics.or(file.metrics),
            transfer_log: self.transfer_log.or(file.transfer_log),
            transfer_log_json: self.transfer_log_json.or(file.transfer_log_json),
            sync_writes: self.sync_writes || file.sync_writes,
            direct_io: self.direct_io || file.direct_io,
            buffer_mib: self.buffer_mib.or(file.buffer_mib),
            no_probe: self.no_probe || file.no_probe,
            congestion: self.congestion.or(file.congestion),
            lfs: self.lfs.or(file.lfs),
            sandbox: self.sandbox.unwrap_or(file.sandbox),
            encrypt_data: self.encrypt_data || file.encrypt_data,
            clear_text_passwords: self.clear_text_passwords || file.clear_text_passwords,
            allow_third_party: self.allow_third_party.or(file.allow_third_party),
            max_connections: self.max_connections.or(file.max_connections),
            drain_timeout: self.drain_timeout.or(file.drain_timeout),
            ..file
        })
    }

    /// The service that this server belongs to, if any.
    fn joined(&self, file: Option<JoinConfig>) -> Option<JoinConfig> {
        if self.join.is_none() && file.is_none() {
            return None;
        }
        let file = file.unwrap_or_default();
        Some(JoinConfig {
            service: self.join.clone().unwrap_or(file.service),
            token: self.token.clone(),
            authorities: self.join_authorities.clone().or(file.authorities),
            accounts: if self.join_account.is_empty() { file.accounts } else { self.join_account.clone() },
            outbound: self.outbound || file.outbound,
            relay: self.relay.clone().or(file.relay),
            ..file
        })
    }
}

fn gsi(wanted: bool, gridmap: Option<PathBuf>, file: Option<GsiConfig>) -> Option<GsiConfig> {
    let wanted = wanted || gridmap.is_some() || file.is_some();
    let file = file.unwrap_or_default();
    wanted.then(|| GsiConfig { gridmap: gridmap.or(file.gridmap.clone()), ..file })
}

/// The hidden `data-process` command: serves movers on the socket that is its standard input.
#[derive(Debug, Args)]
pub struct DataProcessArgs {
    /// Settings of this host that win over the front's, as JSON
    #[arg(long, value_name = "JSON")]
    overrides: Option<String>,
}

/// Runs `data-process`.
pub fn run_data_process(args: DataProcessArgs) -> ExitCode {
    match whimbrel_dtn::mover::process::serve_standard_input(args.overrides.as_deref()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(fault) => {
            tracing::error!(%fault, "data process ends");
            ExitCode::FAILURE
        }
    }
}
