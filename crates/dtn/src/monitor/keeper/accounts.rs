//! Local accounts, and which of them logins may lead to.

use std::fs::Metadata;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use whimbrel_engine::{Fault, FaultCode};
use whimbrel_sys::accounts::{self, Record};

use crate::front::config::AccountsConfig;

const OP: &str = "look up account";

/// Least user number of an account that a rule computes: people's accounts are numbered from here on.
const PEOPLE: u32 = 1000;

/// Longest name of an account, bytes (utmp(5) is shorter; directories of people may have longer ones).
const MOST_NAME: usize = 256;

/// A local account that handles data.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Account {
    /// Login name.
    pub name: String,
    /// User number.
    pub uid: u32,
    /// Primary group.
    pub gid: u32,
    /// Home directory on this host, raw bytes.
    pub home: Vec<u8>,
}

impl Account {
    /// Under the name that somebody wrote.
    fn of(name: &str, record: Record) -> Self {
        Self { name: name.to_owned(), uid: record.uid, gid: record.gid, home: record.home }
    }
}

/// How an account's name came about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// The administrator wrote it.
    Written,
    /// A rule or a program made it from what somebody is called.
    Computed,
}

/// Whether this process may become other accounts.
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// An account that the administrator chose to handle data; never root.
pub fn account(name: &str) -> Result<Account, Fault> {
    let record = record(name)?;
    if record.uid == 0 {
        return Err(Fault::new(FaultCode::InvalidArgument, OP).subject(name).detail("data is never handled as root"));
    }
    Ok(Account::of(name, record))
}

/// The account that somebody was mapped to, if logins may lead to it.
///
/// # Errors
/// `NotAuthorized`, saying why not, for one that may not be used; other codes where the system cannot tell.
pub fn mapped(name: &str, origin: Origin, config: &AccountsConfig) -> Result<Account, Fault> {
    let record = record(name)?;
    if let Some(reason) = objection(&record, origin, config) {
        return Err(refused(name, &reason));
    }
    if is_root() && !config.allow_disabled {
        let end = accounts::end(name).map_err(|error| Fault::from_io(error, OP).subject(name))?;
        if end.is_some_and(|day| day <= today()) {
            return Err(refused(name, "it has expired (`chage --list` tells when)"));
        }
    }
    Ok(Account::of(name, record))
}

/// Whether a name is that of an account of this host.
pub fn is_there(name: &str) -> bool {
    // Longer ones are no names of accounts; where the system cannot tell, the account that was asked for is meant.
    name.len() <= MOST_NAME && accounts::record(name).map_or_else(|_| !name.contains('\0'), |found| found.is_some())
}

fn record(name: &str) -> Result<Record, Fault> {
    let found = accounts::record(name).map_err(|error| Fault::from_io(error, OP).subject(name))?;
    found.ok_or_else(|| refused(name, "there is no such account on this host"))
}

fn refused(name: &str, why: &str) -> Fault {
    Fault::new(FaultCode::NotAuthorized, OP).subject(name).detail(why)
}

/// What speaks against an account, by its record alone.
fn objection(record: &Record, origin: Origin, config: &AccountsConfig) -> Option<String> {
    if record.uid == 0 {
        return Some("data is never handled as root".to_owned());
    }
    let least = config.least_uid.unwrap_or(if origin == Origin::Computed { PEOPLE } else { 1 });
    if record.uid < least {
        let uid = record.uid;
        return Some(format!(
            "its number, {uid}, is below {least}: it is the system's own, or set [accounts] least_uid"
        ));
    }
    // As in the reference server, the shell need not be one to log in with: accounts for data alone often have `nologin`.
    let shell = Path::new(std::ffi::OsStr::from_bytes(&record.shell));
    (!config.allow_disabled && !is_program(shell)).then(|| {
        format!(
            "it is disabled: its shell, {:?}, is no program (or set [accounts] allow_disabled)",
            shell.display().to_string()
        )
    })
}

/// An empty shell means `/bin/sh` (passwd(5)).
fn is_program(shell: &Path) -> bool {
    let shell = if shell.as_os_str().is_empty() { Path::new("/bin/sh") } else { shell };
    std::fs::metadata(shell).is_ok_and(|facts| can_be_run(&facts))
}

/// Whether somebody may run this.
pub(super) fn can_be_run(facts: &Metadata) -> bool {
    facts.is_file() && facts.mode() & 0o111 != 0
}

/// Days since 1970.
fn today() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(now.as_secs() / 86_400).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn person(uid: u32, shell: &str) -> Record {
        Record { name: "x".to_owned(), uid, gid: 100, home: b"/home/x".to_vec(), shell: shell.into() }
    }

    #[test]
    fn data_is_never_handled_as_root() {
        assert_eq!(account("root").unwrap_err().code, FaultCode::InvalidArgument);
        let lenient = AccountsConfig { least_uid: Some(0), allow_disabled: true, ..AccountsConfig::default() };
        assert_eq!(mapped("root", Origin::Written, &lenient).unwrap_err().code, FaultCode::NotAuthorized);
        assert_eq!(account("no-such-account").unwrap_err().code, FaultCode::NotAuthorized);
    }

    #[test]
    fn accounts_of_the_system_are_not_reached_by_rules() {
        let usual = AccountsConfig::default();
        let daemon = person(2, "/bin/sh");
        assert_eq!(objection(&daemon, Origin::Written, &usual), None);
        let why = objection(&daemon, Origin::Computed, &usual).unwrap();
        assert!(why.contains("2, is below 1000") && why.contains("least_uid"), "{why}");
        assert_eq!(objection(&person(1000, "/bin/sh"), Origin::Computed, &usual), None);
        let strict = AccountsConfig { least_uid: Some(500), ..AccountsConfig::default() };
        assert!(objection(&person(499, "/bin/sh"), Origin::Written, &strict).is_some());
        assert_eq!(objection(&person(500, "/bin/sh"), Origin::Computed, &strict), None);
    }

    #[test]
    fn a_shell_that_is_no_program_disables_an_account() {
        let usual = AccountsConfig::default();
        for (shell, good) in
            [("/bin/sh", true), ("", true), ("/no/such/shell", false), ("/", false), ("/etc/passwd", false)]
        {
            assert_eq!(objection(&person(1000, shell), Origin::Written, &usual).is_none(), good, "{shell:?}");
        }
        let lenient = AccountsConfig { allow_disabled: true, ..AccountsConfig::default() };
        assert_eq!(objection(&person(1000, "/no/such/shell"), Origin::Written, &lenient), None);
    }
}
