//! `whimbrel cert`: certificates of a small site, proxies, and what a file holds.

mod show;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Subcommand};
use serde_json::json;
use whimbrel_engine::summary::exit;
use whimbrel_engine::{Fault, Side};
use whimbrel_proto::x509::{Form, Policy};
use whimbrel_trust::clock::now;
use whimbrel_trust::make::{Life, ProxyKind};
use whimbrel_trust::places::{Place, Places, Source};
use whimbrel_trust::site::{self, Made, Site};
use whimbrel_trust::{OwnChain, TrustFault, credential};

use super::finish;
use super::ls::time_text;
use crate::args::Global;
use crate::output::Output;

/// A day, seconds.
const DAY: i64 = 24 * 3600;

/// Make and explain certificates: an authority for tests and demonstrations, hosts, people, proxies
///
/// Files lie as grid programs expect them below /etc/grid-security: whimbrel and the Globus programs use them alike.
#[derive(Debug, Args)]
#[command(after_help = "EXAMPLES\n  \
    A grid of your own in the directory grid, and somebody who may log in as ada:\n    \
    whimbrel cert ca\n    \
    whimbrel cert host localhost 127.0.0.1\n    \
    whimbrel cert user alice --account ada\n\n  \
    A proxy for a day, from the certificate of grid-proxy-init or another one:\n    \
    whimbrel cert proxy --hours 24\n    \
    whimbrel cert proxy --cert grid/users/alice/usercert.pem --out proxy\n\n  \
    What a file holds, and whether it is believed here:\n    \
    whimbrel cert show /etc/grid-security/hostcert.pem")]
pub struct CertArgs {
    #[command(subcommand)]
    command: CertCommand,
}

#[derive(Debug, Subcommand)]
enum CertCommand {
    /// Make an authority, trusted by whoever sets X509_CERT_DIR to DIR/certificates
    Ca {
        #[command(flatten)]
        place: SiteArgs,
        /// Its name
        #[arg(long, value_name = "NAME", default_value = "/O=Grid/CN=Test CA")]
        subject: String,
        /// Names that it may sign, with one * [default: everything below its name without the last part]
        #[arg(long, value_name = "PATTERN")]
        signs: Option<String>,
        /// How long it is good, days
        #[arg(long, value_name = "N", default_value_t = 3650, value_parser = clap::value_parser!(u32).range(1..=36_500))]
        days: u32,
    },
    /// Make a host's certificate and key: hostcert.pem and hostkey.pem
    Host {
        #[command(flatten)]
        place: SiteArgs,
        /// Names and addresses of the host; the first names it
        #[arg(required = true, value_name = "NAME")]
        names: Vec<String>,
        /// Directory for the files [default: DIR]
        #[arg(long, value_name = "DIRECTORY")]
        out: Option<PathBuf>,
        /// How long it is good, days
        #[arg(long, value_name = "N", default_value_t = 365, value_parser = clap::value_parser!(u32).range(1..=36_500))]
        days: u32,
    },
    /// Make a person's certificate and key: usercert.pem and userkey.pem
    User {
        #[command(flatten)]
        place: SiteArgs,
        /// The person
        name: String,
        /// Let this person log in as this account: adds a line to DIR/grid-mapfile
        #[arg(long, value_name = "ACCOUNT")]
        account: Option<String>,
        /// Directory for the files, such as ~/.globus [default: DIR/users/NAME]
        #[arg(long, value_name = "DIRECTORY")]
        out: Option<PathBuf>,
        /// How long it is good, days
        #[arg(long, value_name = "N", default_value_t = 365, value_parser = clap::value_parser!(u32).range(1..=36_500))]
        days: u32,
    },
    /// Make a proxy, which speaks for somebody for some hours
    Proxy {
        /// File of the certificate, or of a proxy [default: X509_USER_CERT, ~/.globus/usercert.pem]
        #[arg(long, value_name = "FILE")]
        cert: Option<PathBuf>,
        /// File of its key [default: userkey.pem beside usercert.pem, else the file itself]
        #[arg(long, value_name = "FILE", requires = "cert")]
        key: Option<PathBuf>,
        /// File of the proxy [default: X509_USER_PROXY, /tmp/x509up_u and the user number]
        #[arg(long, value_name = "FILE")]
        out: Option<PathBuf>,
        /// How long it is good, hours
        #[arg(long, value_name = "N", default_value_t = 12, value_parser = clap::value_parser!(u32).range(1..=876_000))]
        hours: u32,
        /// For moving data only: it cannot start jobs
        #[arg(long, conflicts_with = "independent")]
        limited: bool,
        /// An identity of its own, without its owner's rights
        #[arg(long)]
        independent: bool,
        /// Most proxies below it [default: no limit]
        #[arg(long, value_name = "N")]
        depth: Option<u32>,
        /// Replace a proxy that is there
        #[arg(long)]
        force: bool,
    },
    /// Say what files hold: whom it names, who signed it, until when, and whether it is believed
    Show {
        /// PEM files
        #[arg(required = true, value_name = "FILE")]
        files: Vec<PathBuf>,
        /// Directory of trusted authorities [default: X509_CERT_DIR, ~/.globus/certificates, /etc/grid-security/certificates]
        #[arg(long, value_name = "DIRECTORY")]
        authorities: Option<PathBuf>,
    },
}

#[derive(Debug, Args)]
struct SiteArgs {
    /// Directory of everything that is made, laid out as /etc/grid-security is
    #[arg(long, value_name = "DIR", default_value = "grid")]
    dir: PathBuf,
}

impl SiteArgs {
    fn site(&self) -> Site {
        Site::new(self.dir.clone(), uid())
    }
}

impl CertArgs {
    /// Whether it makes nothing.
    pub fn only_shows(&self) -> bool {
        matches!(self.command, CertCommand::Show { .. })
    }
}

/// Runs the command.
pub fn run(args: CertArgs, global: &Global) -> ExitCode {
    let mut output = Output::new(global);
    let result = match args.command {
        CertCommand::Show { files, authorities } => show::run(&files, authorities.as_deref(), &mut output),
        other => make(other).map(|(made, next)| tell(&made, &next, &mut output)),
    };
    finish(global, result)
}

/// What was made, and what to do with it.
fn make(command: CertCommand) -> Result<(Made, String), Fault> {
    let result = match command {
        CertCommand::Ca { place, subject, signs, days } => authority(&place.site(), &subject, signs, days),
        CertCommand::Host { place, names, out, days } => {
            place.site().host(&names, out.as_deref(), days_from_now(days)).map(|made| (made, String::new()))
        }
        CertCommand::User { place, name, account, out, days } => {
            person(&place.site(), &name, account.as_deref(), out.as_deref(), days)
        }
        CertCommand::Proxy { cert, key, out, hours, limited, independent, depth, force } => {
            let policy = match (limited, independent) {
                (true, _) => Policy::Limited,
                (_, true) => Policy::Independent,
                _ => Policy::InheritAll,
            };
            let kind = ProxyKind { form: Form::Rfc, policy, path_length: depth };
            let life = Life::of(now(), i64::from(hours) * 3600);
            signer(cert, key).and_then(|signer| {
                let file = out.unwrap_or_else(|| Places::new(&environment, uid()).proxy().path);
                site::proxy(&signer, &kind, life, &file, force).map(|made| (made, String::new()))
            })
        }
        CertCommand::Show { .. } => unreachable!("handled by the caller"),
    };
    result.map_err(|fault| fault.into_fault("make a certificate", Side::Us))
}

fn authority(site: &Site, subject: &str, signs: Option<String>, days: u32) -> Result<(Made, String), TrustFault> {
    let below = subject.rfind("/CN=").map_or("", |at| &subject[..at]);
    let pattern = signs.unwrap_or_else(|| format!("{below}/*"));
    let made = site.authority(subject, &pattern, days_from_now(days))?;
    let next = format!("to trust it: export X509_CERT_DIR={}", absolute(&site.certificates()).display());
    Ok((made, next))
}

fn person(
    site: &Site,
    name: &str,
    account: Option<&str>,
    out: Option<&Path>,
    days: u32,
) -> Result<(Made, String), TrustFault> {
    let made = site.person(name, out, days_from_now(days))?;
    let mut next = String::new();
    if let Some(account) = account {
        site.map(&made.subject, account)?;
        next = format!("may log in as {account}: {}", site.gridmap().display());
    }
    Ok((made, next))
}

/// Whom a proxy is to speak for.
pub(super) fn signer(certificate: Option<PathBuf>, key: Option<PathBuf>) -> Result<OwnChain, TrustFault> {
    let place = |path| Place { path, variable: None };
    let source = match certificate {
        Some(certificate) => {
            let key = key.or_else(|| key_beside(&certificate)).unwrap_or_else(|| certificate.clone());
            Source::Pair(place(certificate), place(key))
        }
        None => {
            let places = Places::new(&environment, uid()).person();
            let pair = places.into_iter().find(|source| matches!(source, Source::Pair(..)));
            pair.ok_or_else(|| {
                let detail = "there is no home directory to look in: name a certificate with --cert";
                TrustFault::new(whimbrel_engine::FaultCode::CredentialMissing, detail)
            })?
        }
    };
    let own = credential::read(&source, uid(), &|file| crate::login::pass_phrase(file).map(Into::into))?;
    credential::alive(&own, now())?;
    Ok(own)
}

/// `userkey.pem` beside `usercert.pem`.
fn key_beside(certificate: &Path) -> Option<PathBuf> {
    let name = certificate.file_name()?.to_str()?.strip_suffix("cert.pem")?;
    Some(certificate.with_file_name(format!("{name}key.pem"))).filter(|key| key.exists())
}

fn tell(made: &Made, next: &str, output: &mut Output) -> u8 {
    let until = whimbrel_engine::listing::Timestamp { secs: made.until.secs, nanos: 0 };
    let files: Vec<String> = made.files.iter().map(|file| file.display().to_string()).collect();
    let mut text = format!("{} (good until {})", made.subject, time_text(until));
    for file in &files {
        text += &format!("\n  {file}");
    }
    if !next.is_empty() {
        text += &format!("\n{next}");
    }
    let json = json!({ "event": "made", "subject": made.subject, "until": time_text(until), "files": files });
    output.result(&json, &text);
    exit::OK
}

fn absolute(path: &Path) -> PathBuf {
    path.canonicalize().unwrap_or_else(|_| path.to_owned())
}

fn days_from_now(days: u32) -> Life {
    Life::of(now(), i64::from(days) * DAY)
}

pub(super) fn environment(name: &str) -> Option<std::ffi::OsString> {
    std::env::var_os(name)
}

pub(super) fn uid() -> u32 {
    rustix::process::geteuid().as_raw()
}
