//! Who may use which account, and the data processes of those accounts.

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use whimbrel_engine::{Fault, FaultCode, Side};

use whimbrel_proto::x509::gridmap::GridMap;

use super::message::{AccountId, Claim, MappedAccount, PasswordEntry};
use crate::front::config::DtnConfig;
use crate::front::users::UsersFile;

/// A local account that handles data.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Account {
    /// Login name.
    pub name: String,
    /// User number.
    pub uid: u32,
    /// Primary group.
    pub gid: u32,
}

/// Answers for the accounts of this host.
///
/// Started by root, every data process has the account of its login; otherwise all have the account of their starter.
pub struct Keeper {
    /// This program, started again for data processes.
    program: PathBuf,
    users: Option<UsersFile>,
    /// The grid-mapfile, read at each login.
    gridmap: Option<PathBuf>,
    anonymous: bool,
    /// What handles data of users without an account of their own; `None`: the account that runs this.
    common: Option<Account>,
    /// Accounts given out, by their number.
    given: Vec<Option<Account>>,
}

impl Keeper {
    /// Checks users and accounts of the configuration.
    pub fn new(config: &DtnConfig, program: PathBuf) -> Result<Self, Fault> {
        let gridmap = config.gsi_places()?.map(|places| places.gridmap);
        if !config.anonymous && config.users.is_none() && gridmap.is_none() {
            let nobody = Fault::new(FaultCode::InvalidArgument, "configure");
            return Err(nobody.detail("nobody could log in: give --anonymous, --users FILE or --gsi"));
        }
        let root = is_root();
        let common = match &config.anonymous_user {
            Some(name) if root => Some(account(name)?),
            None if root => Some(account("nobody")?),
            _ => None,
        };
        let users = config.users.as_deref().map(UsersFile::open).transpose()?;
        Ok(Self { program, users, gridmap, anonymous: config.anonymous, common, given: Vec::new() })
    }

    /// The account of anonymous users; `None`: there are none.
    pub fn anonymous(&mut self) -> Option<MappedAccount> {
        self.anonymous.then(|| self.give(self.common.clone()))
    }

    /// The entry of a password user; `None`: unknown.
    pub fn password_user(&mut self, name: &str) -> Result<Option<PasswordEntry>, Fault> {
        let Some(entry) = self.users.as_ref().map(|users| users.entry(name)).transpose()?.flatten() else {
            return Ok(None);
        };
        let account = match &entry.user.account {
            Some(account_name) if is_root() => Some(account(account_name)?),
            // Data of a user without an account of their own: never root's.
            _ => self.common.clone(),
        };
        Ok(Some(PasswordEntry { hash: entry.hash, account: self.give(account) }))
    }

    /// The account of somebody who proved to be this; `None`: nobody here, or not that account.
    pub fn claim(&mut self, claim: &Claim, wanted: Option<&str>) -> Result<Option<MappedAccount>, Fault> {
        let accounts = match claim {
            Claim::Certificate { subject, .. } => self.mapped(subject)?,
            Claim::Token { .. } | Claim::Principal(_) => Vec::new(),
        };
        let chosen = match wanted {
            Some(name) => accounts.iter().find(|account| *account == name),
            None => accounts.first(),
        };
        let Some(name) = chosen else { return Ok(None) };
        let account = account(name)?;
        match is_root() {
            true => Ok(Some(self.give(Some(account)))),
            // Without rights there is one account only: this process' own.
            false if account.uid == rustix::process::geteuid().as_raw() => {
                Ok(Some(MappedAccount { name: name.clone(), ..self.give(None) }))
            }
            false => Err(Fault::new(FaultCode::NotAuthorized, "look up account")
                .subject(name)
                .side(Side::Us)
                .detail("only root can serve other accounts")),
        }
    }

    /// The accounts that the grid-mapfile has for a subject.
    fn mapped(&self, subject: &str) -> Result<Vec<String>, Fault> {
        let Some(path) = &self.gridmap else { return Ok(Vec::new()) };
        let name = path.display().to_string();
        let file = std::fs::read(path).map_err(|error| Fault::from_io(error, "read grid-mapfile").subject(&name))?;
        let map = GridMap::parse(&file);
        for (line, fault) in map.faults() {
            tracing::warn!(file = name, line, %fault, "a line of the grid-mapfile maps nobody");
        }
        Ok(map.accounts(subject).to_vec())
    }

    fn give(&mut self, account: Option<Account>) -> MappedAccount {
        let name = account.as_ref().map_or("own", |account| &account.name).to_owned();
        let known = self.given.iter().position(|given| *given == account);
        let number = known.unwrap_or_else(|| {
            self.given.push(account);
            self.given.len() - 1
        });
        MappedAccount { id: AccountId(u32::try_from(number).expect("a host has fewer accounts")), name }
    }

    /// Starts a data process for an account that was given out; `NotAuthorized` for another.
    pub fn open(&self, id: AccountId) -> Result<(OwnedFd, Child), Fault> {
        let given = self.given.get(id.0 as usize);
        let account = given.ok_or_else(|| {
            Fault::new(FaultCode::NotAuthorized, "start data process")
                .side(Side::Us)
                .detail("an account nobody was given")
        })?;
        let failed = |error| Fault::from_io(error, "start data process").side(Side::Us);
        let (ours, theirs) = UnixStream::pair().map_err(failed)?;
        let mut command = Command::new(&self.program);
        command.arg("data-process").stdin(Stdio::from(OwnedFd::from(theirs))).stdout(Stdio::null()).process_group(0);
        if let Some(account) = account {
            // As root this also drops the supplementary groups.
            command.uid(account.uid).gid(account.gid);
        }
        let child = command.spawn().map_err(failed)?;
        let name = account.as_ref().map_or("own", |account| &account.name);
        tracing::info!(pid = child.id(), account = name, "data process started");
        Ok((ours.into(), child))
    }
}

/// Whether this process may become other accounts.
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Looks an account up by name.
pub fn account(name: &str) -> Result<Account, Fault> {
    let (uid, gid) = whimbrel_sys::accounts::user_ids(name)
        .map_err(|error| Fault::from_io(error, "look up account").subject(name))?
        .ok_or_else(|| {
            Fault::new(FaultCode::InvalidArgument, "look up account").subject(name).detail("no such account")
        })?;
    if uid == 0 {
        return Err(Fault::new(FaultCode::InvalidArgument, "look up account")
            .subject(name)
            .detail("data is never handled as root"));
    }
    Ok(Account { name: name.to_owned(), uid, gid })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keeper(config: DtnConfig) -> Keeper {
        Keeper::new(&config, "/bin/true".into()).unwrap()
    }

    #[test]
    fn only_accounts_that_were_given_out_can_be_opened() {
        let mut keeper = keeper(DtnConfig { anonymous: true, ..DtnConfig::default() });
        let refused = keeper.open(AccountId(0)).unwrap_err();
        assert_eq!(refused.code, FaultCode::NotAuthorized);
        let given = keeper.anonymous().unwrap();
        assert_eq!(keeper.anonymous().unwrap().id, given.id, "one account has one number");
        let (_stream, mut child) = keeper.open(given.id).unwrap();
        child.wait().unwrap();
        assert!(keeper.open(AccountId(given.id.0 + 1)).is_err());
    }

    #[test]
    fn nobody_is_anonymous_where_that_is_not_allowed() {
        let dir = tempfile::tempdir().unwrap();
        let users = dir.path().join("users");
        std::fs::write(&users, "").unwrap();
        let mut keeper = keeper(DtnConfig { users: Some(users), ..DtnConfig::default() });
        assert!(keeper.anonymous().is_none());
        assert!(keeper.password_user("ada").unwrap().is_none());
        assert!(Keeper::new(&DtnConfig::default(), "/bin/true".into()).is_err(), "nobody could log in");
    }

    #[test]
    fn data_is_never_handled_as_root() {
        assert_eq!(account("root").unwrap_err().code, FaultCode::InvalidArgument);
    }
}
