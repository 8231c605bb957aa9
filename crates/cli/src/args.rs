//! The command line: one definition for parsing, help, completions and manual pages.

use std::path::PathBuf;
use std::sync::OnceLock;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
use whimbrel_dtn::client::security::Trust;
use whimbrel_dtn::client::target::{AddressFamily, CredentialFiles, HandOn, SessionOptions};
use whimbrel_engine::units::ByteCount;
use whimbrel_trust::gsi::Delegate;

use crate::cmd::{
    audit, cert, check, cksum, completions, cp, dtn, endpoint, login as service_login, ls, man, matrix, mkdir, mv,
    orchestrate, overview, probe, rm, rule, serve, stat, task, user,
};
use crate::login;

/// Text about places and exit codes below the help of every command.
pub const HELP_END: &str = "\
PLACES
  A place is a path on this host (data/run7, ./a:b), or a path on a server:
    dtn.example.org:/data/run7          a GridFTP server (port 2811), in clear
    anna@dtn.example.org:run7           the same with a login; relative to its home
    ftp://dtn.example.org:2811/data     the same as a URL (port 21 without one); %20 stands for a space
    whimbrel://anna@dtn.example.org/x   the login inside TLS (port 2811): where you have a password
    ftps://anna@dtn.example.org/data    a server where TLS comes first (port 990)
    gsiftp://dtn.example.org/data       your certificate, proxy or Kerberos ticket (port 2811)
    sshftp://anna@dtn.example.org/data  a server that ssh starts there
    lab:run7                            a name from ~/.config/whimbrel/endpoints.toml
  Without a name the login is anonymous. Passwords come from ~/.netrc or are asked for.

EXIT CODES
  0    everything asked for is done
  1    some items failed, or they failed for different reasons; or all is done, and standard output was lost
  2    the command line is wrong
  3    the source is to blame (missing file, no permission, ...)
  4    the destination is to blame (no space, no permission, ...)
  5    the network or the program at the other end is to blame
  6    the credentials were not accepted
  7    the transfer service cannot be reached
  8    a deadline passed or a limit was hit
  130  cancelled";

/// Move data between hosts, fast and verified
///
/// Copies files between GridFTP servers and this host, or directly from server to server. Every
/// copy is verified by checksum unless told otherwise, and goes on where it was interrupted.
#[derive(Debug, Parser)]
#[command(name = "whimbrel", version, after_help = HELP_END, max_term_width = 100)]
pub struct Cli {
    /// Options of every command.
    #[command(flatten)]
    pub global: Global,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// Options of every command.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Options of every command")]
pub struct Global {
    /// Print one JSON object a line instead of text
    #[arg(long, global = true)]
    pub json: bool,
    /// Say more: each file; twice: decisions; three times: the dialogue with servers
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    pub verbose: u8,
    /// Print only errors
    #[arg(short, long, global = true, conflicts_with = "verbose")]
    pub quiet: bool,
    /// Longest wait for a connection, seconds
    #[arg(long, global = true, value_name = "SECONDS", default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..86_400))]
    pub connect_timeout: u64,
    /// Use only IPv4 for control connections
    #[arg(short = '4', long = "ipv4", global = true, conflicts_with = "ipv6")]
    pub ipv4: bool,
    /// Use only IPv6 for control connections
    #[arg(short = '6', long = "ipv6", global = true)]
    pub ipv6: bool,
    /// Wait for each reply before the next command, for servers that cannot take commands ahead
    #[arg(long, global = true)]
    pub lockstep: bool,
    /// How logins prove who one is.
    #[command(flatten)]
    pub login: LoginArgs,
}

/// How logins prove who one is, and who the host has to be.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Logins")]
pub struct LoginArgs {
    /// Subject that the certificates of gsiftp:// hosts must have, where they do not name the host
    #[arg(long, global = true, value_name = "SUBJECT", value_parser = parse_subject)]
    pub subject: Option<String>,
    /// Certificate or proxy to log in with, for gsiftp://, and for whimbrel:// and ftps:// servers that ask for one
    /// [default: X509_USER_PROXY and the usual places]
    #[arg(long, global = true, visible_alias = "credential", value_name = "FILE")]
    pub certificate: Option<PathBuf>,
    /// Its private key [default: in the same file]
    #[arg(long, global = true, value_name = "FILE", requires = "certificate")]
    pub key: Option<PathBuf>,
    /// Log in at gsiftp:// servers with your Kerberos ticket, also where there is a certificate or proxy [default: where there is none]
    #[arg(long, global = true, conflicts_with = "certificate")]
    pub kerberos: bool,
    /// What gsiftp:// servers are handed on of your certificate
    #[arg(long, global = true, value_name = "WHAT", value_enum, default_value_t)]
    pub delegate: Delegated,
    /// File with an access token, shown in place of a password over whimbrel:// and ftps:// [default: BEARER_TOKEN and the usual places]
    #[arg(long, global = true, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
}

/// What a server may do in a user's name.
#[derive(Debug, Clone, Copy, Default, ValueEnum)]
pub enum Delegated {
    /// What is needed: a limited proxy for servers of other kinds, nothing for Whimbrel's
    #[default]
    Auto,
    /// A proxy with all your rights: it can log in for you, start jobs, and hand itself on
    Full,
    /// A limited proxy: good for data alone
    Limited,
    /// Nothing: data connections get a credential for the session (DCSC), or prove nothing where a server takes none
    None,
}

impl LoginArgs {
    /// The credential that was named.
    pub fn credential(&self) -> Option<Box<CredentialFiles>> {
        let certificate = self.certificate.clone()?;
        let key = self.key.clone().unwrap_or_else(|| certificate.clone());
        Some(Box::new(CredentialFiles { certificate, key }))
    }
}

/// Bounds of a socket buffer, bytes: less than a page holds no segment, and a socket takes an int.
const BUFFERS: std::ops::RangeInclusive<u64> = 4 << 10..=1 << 30;

/// Parses the size of a socket buffer.
pub fn parse_buffer(text: &str) -> Result<u32, String> {
    let ByteCount(bytes) = text.parse::<ByteCount>().map_err(|error| error.to_string())?;
    let fits = u32::try_from(bytes).ok().filter(|_| BUFFERS.contains(&bytes));
    fits.ok_or_else(|| "a socket buffer has 4 KiB to 1 GiB".to_owned())
}

/// Reads a bound on a rate, bytes per second, as in `50MB`.
pub fn parse_rate(text: &str) -> Result<ByteCount, String> {
    match text.parse::<ByteCount>() {
        Ok(ByteCount(0)) => Err("a rate is at least one byte a second".to_owned()),
        Ok(rate) => Ok(rate),
        Err(error) => Err(error.to_string()),
    }
}

/// A certificate's subject as people and programs write it.
pub fn parse_subject(text: &str) -> Result<String, String> {
    let fits = text.starts_with('/') && text.contains('=') && !text.chars().any(char::is_control);
    fits.then(|| text.to_owned()).ok_or_else(|| "a subject looks like /O=Grid/CN=host.example.org".to_owned())
}

impl Global {
    /// How sessions are made.
    pub fn session(&self) -> SessionOptions {
        SessionOptions {
            connect_timeout: Duration::from_secs(self.connect_timeout),
            family: match (self.ipv4, self.ipv6) {
                (true, _) => AddressFamily::V4,
                (_, true) => AddressFamily::V6,
                _ => AddressFamily::Any,
            },
            pipelined: !self.lockstep,
            trace: self.verbose >= 3,
            delegate: match self.login.delegate {
                Delegated::Auto => HandOn::AsNeeded,
                Delegated::Full => HandOn::Always(Delegate::Full),
                Delegated::Limited => HandOn::Always(Delegate::Limited),
                Delegated::None => HandOn::Always(Delegate::No),
            },
            trust: trust(self.login.token_file.as_ref()),
            ..SessionOptions::default()
        }
    }
}

/// The same for all sessions of a run, so that nobody is asked twice for a pass phrase.
fn trust(token_file: Option<&PathBuf>) -> Trust {
    static TRUST: OnceLock<Trust> = OnceLock::new();
    let asking = || Trust::default().asking(login::pass_phrase);
    let made = || token_file.map_or_else(asking, |file| asking().with_token_file(file.clone()));
    TRUST.get_or_init(made).clone()
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    Cp(Box<cp::CpArgs>),
    Ls(ls::LsArgs),
    Stat(stat::StatArgs),
    Mkdir(mkdir::MkdirArgs),
    Mv(mv::MvArgs),
    Rm(rm::RmArgs),
    Cksum(cksum::CksumArgs),
    Check(check::CheckArgs),
    Probe(probe::ProbeArgs),
    Dtn(Box<dtn::DtnArgs>),
    Serve(Box<serve::ServeArgs>),
    Orchestrate(orchestrate::OrchestrateArgs),
    Login(service_login::LoginArgs),
    Logout(service_login::LogoutArgs),
    Whoami(service_login::WhoamiArgs),
    Task(Box<task::TaskArgs>),
    Endpoint(Box<endpoint::EndpointArgs>),
    Audit(audit::AuditArgs),
    Matrix(matrix::MatrixArgs),
    Overview(overview::OverviewArgs),
    Rule(Box<rule::RuleArgs>),
    User(user::UserArgs),
    Cert(Box<cert::CertArgs>),
    Completions(completions::CompletionsArgs),
    Man(man::ManArgs),
    /// Serve movers on standard input; started by `dtn`, not by people
    #[command(hide = true)]
    DataProcess(dtn::DataProcessArgs),
    /// Run `lfs` for a data process, which starts it; not for people
    #[command(hide = true)]
    LfsHelper {
        /// The program
        program: std::ffi::OsString,
    },
    /// Serve control connections for `dtn`, which starts it; not for people
    #[command(hide = true)]
    DtnFront,
    /// Fetch the keys of an issuer of tokens for `dtn`, which starts it; not for people
    #[command(hide = true)]
    FetchKeys,
    /// Tell a managed service of a server for `dtn`, which starts it; not for people
    #[command(hide = true)]
    DtnMember,
    /// Serve collections over HTTPS for `dtn`, which starts it; not for people
    #[command(hide = true)]
    DtnDoor,
    /// Make connections for `dtn`, which starts it; not for people
    #[command(hide = true)]
    DtnCaller,
    /// Join data connections of other servers for `dtn`, which starts it; not for people
    #[command(hide = true)]
    DtnRelay,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_definitions_are_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn headings_of_groups_do_not_swallow_other_options() {
        let command = Cli::command();
        let copy = command.find_subcommand("cp").expect("a command");
        let heading = |id: &str| {
            let found = copy.get_arguments().find(|argument| argument.get_id() == id);
            found.unwrap_or_else(|| panic!("no {id}")).get_help_heading()
        };
        for id in ["recursive", "congestion", "chunk", "attempts"] {
            assert_eq!(heading(id), None, "{id}");
        }
        assert_eq!(heading("expect"), Some("Checksums of whole files"));
        assert_eq!(heading("until"), Some("While files are written"));
    }

    #[test]
    fn only_the_choice_of_a_service_stands_below_its_heading() {
        fn look(command: &clap::Command) {
            for argument in command.get_arguments().filter(|one| one.get_help_heading() == Some("The service")) {
                assert_eq!(argument.get_id(), "service", "{}", command.get_name());
            }
            command.get_subcommands().for_each(look);
        }
        look(&Cli::command());
    }

    #[test]
    fn every_command_and_option_has_a_help_text() {
        let command = Cli::command();
        for sub in command.get_subcommands() {
            assert!(sub.get_about().is_some(), "{}", sub.get_name());
            for arg in sub.get_arguments() {
                assert!(arg.get_help().is_some(), "{} {}", sub.get_name(), arg.get_id());
            }
        }
    }
}
