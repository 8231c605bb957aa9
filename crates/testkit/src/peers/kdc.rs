//! A Kerberos realm on loopback: a real KDC, one person and one host, with nothing of this host's.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::net::{AddressFamily, SocketType, sockopt};
use tempfile::TempDir;

use super::{Daemon, Tool, public_dir, require};
use crate::error::{Attempt, Result};

/// The realm.
pub const REALM: &str = "GRID.TEST";
/// Time until the KDC serves.
const START_LIMIT: Duration = Duration::from_secs(20);

/// A KDC; dropping it ends it.
#[derive(Debug)]
pub struct Kdc {
    directory: TempDir,
    _daemon: Daemon,
    /// Keeps the port for the KDC.
    _port: std::os::fd::OwnedFd,
}

impl Kdc {
    /// A realm with the person `ada` and the service `host/localhost`; `None` where a program is missing and the test may be skipped.
    #[track_caller]
    pub fn start() -> Option<Kdc> {
        let programs = ["krb5kdc", "kdb5_util", "kadmin.local", "kinit", "klist"].map(require);
        if programs.iter().any(Option::is_none) {
            return None;
        }
        Some(Self::make().unwrap_or_else(|error| panic!("{error}")))
    }

    fn make() -> Result<Kdc> {
        let directory = public_dir()?;
        let (port, number) = reserved()?;
        let here = directory.path().display();
        let put = |name: &str, text: String| {
            fs::write(directory.path().join(name), text).attempt(|| format!("writing {name}"))
        };
        put(
            "krb5.conf",
            format!(
                "[libdefaults]\n default_realm = {REALM}\n dns_lookup_kdc = false\n dns_lookup_realm = false\n \
                 dns_canonicalize_hostname = false\n rdns = false\n udp_preference_limit = 1\n\
                 [realms]\n {REALM} = {{\n  kdc = 127.0.0.1:{number}\n }}\n[domain_realm]\n localhost = {REALM}\n"
            ),
        )?;
        put(
            "kdc.conf",
            format!(
                "[kdcdefaults]\n kdc_listen = \"\"\n kdc_tcp_listen = 127.0.0.1:{number}\n[realms]\n {REALM} = {{\n  \
                 database_name = {here}/principal\n  key_stash_file = {here}/stash\n }}\n[logging]\n kdc = STDERR\n"
            ),
        )?;
        let tool = |program: &str| {
            let path = super::find(program).unwrap_or_default();
            Tool::new(path)
                .env("KRB5_CONFIG", directory.path().join("krb5.conf"))
                .env("KRB5_KDC_PROFILE", directory.path().join("kdc.conf"))
        };
        tool("kdb5_util").args(["create", "-s", "-r", REALM, "-P", "master"]).run_ok();
        let keytab = |name: &str, principal: &str| {
            let add = format!("addprinc -randkey {principal}");
            tool("kadmin.local").args(["-r", REALM, "-q", &add]).run_ok();
            let keep = format!("ktadd -k {here}/{name} {principal}");
            tool("kadmin.local").args(["-r", REALM, "-q", &keep]).run_ok();
        };
        keytab("host.keytab", "host/localhost");
        keytab("ada.keytab", "ada");
        let mut command = Command::new(super::find("krb5kdc").unwrap_or_default());
        command.args(["-n", "-r", REALM]).env("KRB5_CONFIG", directory.path().join("krb5.conf"));
        command.env("KRB5_KDC_PROFILE", directory.path().join("kdc.conf"));
        let ready = |line: &str| line.contains("commencing operation").then_some(());
        let (daemon, ()) = Daemon::start(command, START_LIMIT, ready)?;
        Ok(Kdc { directory, _daemon: daemon, _port: port })
    }

    /// A file of the realm: `krb5.conf`, `host.keytab`, `ada.keytab`.
    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Gives a program the realm's configuration and the tickets in a file of this name.
    pub fn with(&self, tool: Tool, tickets: &str) -> Tool {
        tool.env("KRB5_CONFIG", self.path("krb5.conf"))
            .env("KRB5CCNAME", format!("FILE:{}", self.path(tickets).display()))
    }

    /// Gets tickets of `ada` into a file.
    pub fn kinit(&self, tickets: &str) {
        self.kinit_for(tickets, "1h");
    }

    /// Gets tickets of `ada` into a file that are good for so long, as `kinit -l` has it.
    pub fn kinit_for(&self, tickets: &str, life: &str) {
        let tool = Tool::new(super::find("kinit").unwrap_or_default());
        self.with(tool, tickets).args(["-l", life, "-kt"]).arg(self.path("ada.keytab")).arg("ada").run_ok();
    }

    /// Waits until the tickets in a file have ended.
    pub fn outlive(&self, tickets: &str) {
        let limit = Instant::now() + START_LIMIT;
        while self
            .with(Tool::new(super::find("klist").unwrap_or_default()), tickets)
            .arg("-s")
            .run()
            .is_ok_and(|run| run.success())
        {
            assert!(Instant::now() < limit, "tickets without end");
        }
    }
}

/// A port of loopback that nobody else gets as long as the socket is there: it never listens, and lets another one do that.
fn reserved() -> Result<(std::os::fd::OwnedFd, u16)> {
    let what = || "reserving a port".to_owned();
    let socket = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None).attempt(what)?;
    sockopt::set_socket_reuseaddr(&socket, true).attempt(what)?;
    rustix::net::bind(&socket, &SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).attempt(what)?;
    let address = rustix::net::getsockname(&socket).attempt(what)?;
    let address = SocketAddr::try_from(address).attempt(what)?;
    Ok((socket, address.port()))
}
