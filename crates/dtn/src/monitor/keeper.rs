//! Who may use which account, and the data processes of those accounts.

mod accounts;
mod claims;
mod sources;
mod watched;

use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use whimbrel_engine::{Fault, FaultCode, Side};
use whimbrel_proto::mapping::command::MAX_OUTPUT;
use whimbrel_sys::accounts::Record;

use self::accounts::Origin;
use self::claims::Progress;
use self::sources::{Lookup, Sources};
use super::jobs::{self, Answer, Order};
use super::message::{AccountId, Claim, MappedAccount, PasswordEntry};
use crate::confine::Sandbox;
use crate::front::config::{AccountsConfig, DtnConfig, IssuerConfig, ProofKind, closed_to};
use crate::front::users::{UsersFile, nobodys_hash};
use crate::keys;
use crate::mover::books::{Files, LogPaths};
use crate::small;

pub use self::accounts::{Account, account, is_root};
pub use self::claims::Search;

const FETCH: &str = "fetch keys";

/// Answers for the accounts of this host.
///
/// Started by root, every data process has the account of its login; otherwise all have the account of their starter.
pub struct Keeper {
    /// This program, started again for data processes.
    program: PathBuf,
    /// The directory served as `/`.
    root: PathBuf,
    users: Option<UsersFile>,
    sources: Sources,
    accounts: AccountsConfig,
    /// Issuers of tokens, in the order of the configuration.
    issuers: Vec<IssuerConfig>,
    /// PEM file of those who vouch for the hosts of issuers; `None`: those of the system.
    authorities: Option<PathBuf>,
    sandbox: Sandbox,
    /// Whose rights mapping programs have; `None`: those of this process.
    programs: Option<Account>,
    anonymous: bool,
    /// Whether rules or limits are for groups.
    asks_for_groups: bool,
    /// What handles data of users without an account of their own; `None`: the account that runs this.
    common: Option<Account>,
    /// Where what users have stored is written down.
    books: Option<PathBuf>,
    /// Where finished transfers are.
    logs: LogPaths,
    /// Accounts given out, by their number.
    given: Vec<Option<Account>>,
    /// Data processes log warnings only: what they say goes to a user's terminal.
    quiet: bool,
}

/// How far a question about a claim is.
pub enum Step {
    /// Answered; `None`: nobody here, or not that account.
    Done(Result<Option<MappedAccount>, Fault>),
    /// A program has to be asked; its answer goes to [`Keeper::answered`].
    Ask(Order),
}

impl Keeper {
    /// Checks users, mappings and accounts of the configuration.
    pub fn new(config: &DtnConfig, program: PathBuf) -> Result<Self, Fault> {
        let gridmap = config.account_file()?;
        let sources = Sources::open(gridmap, &config.mapping)?;
        let tokens = config.tokens.clone().unwrap_or_default();
        reachable(config, &sources)?;
        let logs = config.log_paths();
        // What cannot be written down is known before anybody logs in.
        logs.open()?;
        for name in tokens.issuer.iter().flat_map(|issuer| &issuer.accounts) {
            // It may be known later, or be one that this process does not serve: a login by it will be refused.
            if let Err(fault) = accounts::mapped(name, Origin::Written, &config.accounts) {
                tracing::warn!(account = name, %fault, "an account of an issuer of tokens cannot be used now");
            }
        }
        // It is the administrator who is told, and not who logs in.
        let unknown = |fault: Fault| match fault.code {
            FaultCode::NotAuthorized => Fault { code: FaultCode::InvalidArgument, ..fault }.side(Side::Us),
            _ => fault,
        };
        let root_only = |name: &Option<String>| match is_root() {
            true => account(name.as_deref().unwrap_or("nobody")).map(Some).map_err(unknown),
            false => Ok(None),
        };
        let common = root_only(&config.anonymous_user)?;
        if let Some(account) = common.as_ref().filter(|_| config.anonymous) {
            warn_if_closed(config, account);
        }
        Ok(Self {
            program,
            root: config.root.clone().unwrap_or_else(|| "/".into()),
            users: config.users.as_deref().map(UsersFile::open).transpose()?,
            programs: root_only(&config.accounts.program_account)?,
            common,
            sources,
            accounts: config.accounts.clone(),
            issuers: tokens.issuer,
            authorities: tokens.authorities,
            sandbox: config.sandbox,
            anonymous: config.anonymous,
            asks_for_groups: config.access().asks_for_groups(),
            given: Vec::new(),
            quiet: false,
            books: config.limits.quota_directory.as_deref().map(books).transpose()?,
            logs,
        })
    }

    /// For the account that runs this process alone, to which ssh has let somebody in.
    ///
    /// # Errors
    /// `NotAuthorized` for root: data is never handled as root.
    pub fn of_own_account(config: &DtnConfig, program: PathBuf) -> Result<Self, Fault> {
        if is_root() {
            let fault = Fault::new(FaultCode::NotAuthorized, "serve over ssh").subject("root").side(Side::Us);
            return Err(fault.detail("data is never handled as root: log in as another user"));
        }
        // No other way in is left.
        let (users, tls, gsi, kerberos, tokens, mapping) = (None, None, None, None, None, Vec::new());
        let config = DtnConfig { anonymous: true, users, tls, gsi, kerberos, tokens, mapping, ..config.clone() };
        // The system's log is not this account's to write.
        let config = match config.log_paths().open() {
            Ok(_) => config,
            Err(fault) => {
                tracing::warn!(%fault, "transfers are not written down");
                DtnConfig { transfer_log: None, transfer_log_json: None, ..config }
            }
        };
        Ok(Self { anonymous: false, quiet: true, ..Self::new(&config, program)? })
    }

    /// The account that runs this process.
    pub fn own(&mut self) -> Result<MappedAccount, Fault> {
        let uid = rustix::process::geteuid().as_raw();
        let record = whimbrel_sys::accounts::record_of(uid);
        let record = record.map_err(|error| Fault::from_io(error, "look up account").side(Side::Us))?;
        let given = self.give(None);
        Ok(match record {
            Some(Record { name, home, .. }) => MappedAccount { name, home: self.below_root(&home), ..given },
            None => given,
        })
    }

    /// The account of anonymous users; `None`: there are none.
    pub fn anonymous(&mut self) -> Option<MappedAccount> {
        self.anonymous.then(|| self.give(self.common.clone()))
    }

    /// The entry of a password user, or one of nobody's.
    pub fn password_user(&mut self, name: &str) -> Result<PasswordEntry, Fault> {
        let found = self.users.as_ref().map_or_else(|| Ok(Err(nobodys_hash(None))), |users| users.entry(name));
        let entry = match found? {
            Ok(entry) => entry,
            Err(hash) => return Ok(PasswordEntry { hash, account: None }),
        };
        let account = match &entry.user.account {
            Some(name) if is_root() => self.allowed(name, Origin::Written)?.map(|account| {
                let home = self.below_root(&account.home);
                MappedAccount { home, ..self.give(Some(account)) }
            }),
            // Data of a user without an account of their own: never root's.
            _ => Some(self.give(self.common.clone())),
        };
        Ok(PasswordEntry { hash: entry.hash, account })
    }

    /// Begins to look for the account of somebody who proved to be this: the wanted one, or the usual one.
    pub fn search(&mut self, claim: &Claim, wanted: Option<&str>) -> (Search, Step) {
        let mut places = self.sources.lookups(Some(ProofKind::of(claim)));
        let mut wanted = wanted;
        if let Claim::Token { issuer, .. } = claim {
            let known = self.issuers.iter().find(|known| known.url == *issuer);
            places.splice(0..0, known.map(|known| Ok(Lookup::Accounts(known.accounts.clone()))));
            // Clients have to send some name with a token: one that is no account asks for none.
            wanted = wanted.filter(|name| accounts::is_there(name));
        }
        let mut search = Search::new(claim, wanted.map(str::to_owned), places);
        let progress = search.advance();
        (search, self.step(progress))
    }

    /// Goes on with what a program has said.
    pub fn answered(&mut self, search: &mut Search, answer: Answer) -> Step {
        let progress = answer.and_then(|answer| search.answered(&answer));
        self.step(progress)
    }

    /// The account of somebody who proved to be this, however long that takes; `None`: nobody here, or not that account.
    pub fn claim(&mut self, claim: &Claim, wanted: Option<&str>) -> Result<Option<MappedAccount>, Fault> {
        let (mut search, mut step) = self.search(claim, wanted);
        loop {
            step = match step {
                Step::Done(answer) => return answer,
                Step::Ask(order) => self.answered(&mut search, jobs::run(order)),
            }
        }
    }

    /// What fetches the keys of an issuer, counted from 0.
    ///
    /// # Errors
    /// `NotAuthorized` for an issuer that is not configured; those of the file of authorities.
    pub fn fetch_keys(&self, issuer: usize) -> Result<Order, Fault> {
        let stranger = || Fault::new(FaultCode::NotAuthorized, FETCH).side(Side::Us).detail("no such issuer");
        let IssuerConfig { url, authorities: own, .. } = self.issuers.get(issuer).ok_or_else(stranger)?;
        let issuer = url.clone();
        let authorities = own.as_deref().or(self.authorities.as_deref()).map(authorities).transpose()?;
        Ok(Order {
            op: FETCH,
            program: self.program.clone(),
            arguments: vec!["fetch-keys".to_owned()],
            question: keys::Question { issuer, authorities, sandbox: self.sandbox }.to_bytes(),
            account: self.programs.clone(),
            most: keys::MOST_ANSWER,
            limit: keys::LIMIT + Duration::from_secs(5),
        })
    }

    fn step(&mut self, progress: Result<Progress, Fault>) -> Step {
        match progress {
            Ok(Progress::Ask { mut words, question }) => Step::Ask(Order {
                op: "ask the mapping program",
                program: words.remove(0).into(),
                arguments: words,
                question,
                account: self.programs.clone(),
                most: MAX_OUTPUT,
                limit: self.accounts.program_timeout(),
            }),
            Ok(Progress::Nobody) => Step::Done(Ok(None)),
            Ok(Progress::Found(name, origin)) => {
                let account = self.allowed(&name, origin);
                Step::Done(account.map(|account| account.and_then(|account| self.usable(account))))
            }
            Err(fault) => Step::Done(Err(fault)),
        }
    }

    /// An account if logins may lead to it.
    fn allowed(&self, name: &str, origin: Origin) -> Result<Option<Account>, Fault> {
        match accounts::mapped(name, origin, &self.accounts) {
            Ok(account) => Ok(Some(account)),
            Err(fault) if fault.code == FaultCode::NotAuthorized => {
                tracing::warn!(account = name, %fault, "somebody is mapped to an account that may not be used");
                Ok(None)
            }
            Err(fault) => Err(fault),
        }
    }

    /// Gives out an account if this process can become it.
    fn usable(&mut self, account: Account) -> Option<MappedAccount> {
        let home = self.below_root(&account.home);
        if is_root() {
            return Some(MappedAccount { home, ..self.give(Some(account)) });
        }
        // Without rights there is one account only: this process' own.
        if account.uid == rustix::process::geteuid().as_raw() {
            return Some(MappedAccount { name: account.name, home, ..self.give(None) });
        }
        tracing::warn!(account = account.name, "only a server that root has started can serve other accounts");
        None
    }

    /// Where a home directory of this host is for clients; `/` if it is not below the root.
    fn below_root(&self, home: &[u8]) -> Vec<u8> {
        let home = Path::new(std::ffi::OsStr::from_bytes(home));
        match home.strip_prefix(&self.root) {
            Ok(below) if home.is_absolute() => Path::new("/").join(below).into_os_string().as_bytes().to_vec(),
            _ => b"/".to_vec(),
        }
    }

    fn give(&mut self, account: Option<Account>) -> MappedAccount {
        let name = account.as_ref().map_or("own", |account| &account.name).to_owned();
        let uid = account.as_ref().map_or_else(|| rustix::process::geteuid().as_raw(), |account| account.uid);
        let known = self.given.iter().position(|given| *given == account);
        let number = known.unwrap_or_else(|| {
            self.given.push(account);
            self.given.len() - 1
        });
        let id = AccountId(u32::try_from(number).expect("a host has fewer accounts"));
        let groups = self.groups_of(number);
        MappedAccount { id, name, uid, home: b"/".to_vec(), groups }
    }

    /// The groups of an account that was given out, by name, if anybody asks.
    fn groups_of(&self, number: usize) -> Option<Vec<String>> {
        if !self.asks_for_groups {
            return Some(Vec::new());
        }
        group_names(self.given[number].as_ref())
            .inspect_err(|error| tracing::error!(%error, "the groups of an account cannot be told"))
            .ok()
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
        command.arg("data-process").stdin(Stdio::from(OwnedFd::from(theirs)));
        let files = Files { ledger: self.book(account.as_ref())?, ..self.logs.open_or_say() };
        command.stdout(files.into_stdio().map_err(failed)?);
        whimbrel_sys::lifetime::own_session(&mut command);
        if let Some(Account { name, uid, gid, .. }) = account {
            let groups = whimbrel_sys::accounts::groups_of(name, *gid).map_err(failed)?;
            whimbrel_sys::accounts::become_account(&mut command, *uid, *gid, groups);
        }
        if self.quiet && std::env::var_os("WHIMBREL_LOG").is_none() {
            command.env("WHIMBREL_LOG", "warn");
        }
        let child = command.spawn().map_err(failed)?;
        let name = account.as_ref().map_or("own", |account| &account.name);
        tracing::info!(pid = child.id(), account = name, "data process started");
        Ok((ours.into(), child))
    }

    /// Where a data process of this account writes down what is stored: it gets the open file, and has no right to open it itself.
    fn book(&self, account: Option<&Account>) -> Result<Option<File>, Fault> {
        let Some(directory) = &self.books else { return Ok(None) };
        let path = directory.join(account.map_or("own", |account| &account.name));
        let mut options = File::options();
        options.read(true).append(true).create(true).mode(0o600).custom_flags(libc::O_NOFOLLOW);
        let opened = options.open(&path).map_err(|error| {
            Fault::from_io(error, "open what is written down of stored data").subject(path.display().to_string())
        });
        opened.map(Some)
    }
}

/// The directory for what users have stored, if nobody else may change what is in it.
fn books(directory: &Path) -> Result<PathBuf, Fault> {
    const OP: &str = "open limits.quota_directory";
    let subject = directory.display().to_string();
    let facts = std::fs::metadata(directory).map_err(|error| Fault::from_io(error, OP).subject(&subject))?;
    let refused = |why: &str| Err(Fault::new(FaultCode::InvalidArgument, OP).subject(&subject).detail(why));
    match (facts.is_dir(), facts.mode() & 0o022) {
        (false, _) => refused("it is no directory"),
        (true, 0) => Ok(directory.to_owned()),
        (true, _) => refused("others may write in it: chmod 700"),
    }
}

/// Longest file of them, bytes: those of a whole system have some 200 KiB.
const MOST_AUTHORITIES: u64 = 1 << 20;

/// The file of authorities that vouch for issuers' hosts.
fn authorities(path: &Path) -> Result<Vec<u8>, Fault> {
    small::read(path, FETCH, MOST_AUTHORITIES)
}

/// Whether anybody can log in at all, and whoever proves something can be mapped.
fn reachable(config: &DtnConfig, sources: &Sources) -> Result<(), Fault> {
    let bad = |detail: &str| Err(Fault::new(FaultCode::InvalidArgument, "configure").detail(detail));
    let clients = config.tls.as_ref().is_some_and(|tls| tls.clients.is_some());
    let gssapi = config.gsi.is_some() || config.kerberos.is_some();
    if !config.anonymous && config.users.is_none() && config.tokens.is_none() && !gssapi && !clients {
        return bad(
            "nobody could log in: give --anonymous, --users FILE, --gsi, or in the configuration file [tokens], [kerberos] or [tls] clients",
        );
    }
    if let Some(tokens) = &config.tokens {
        tokens.issuers()?;
        tokens.authorities.as_deref().map(authorities).transpose()?;
        if config.tls.is_none() {
            return bad("tokens are taken over TLS only: [tls] certificate and key");
        }
        let unmapped = tokens.issuer.iter().find(|issuer| issuer.accounts.is_empty());
        if let Some(issuer) = unmapped.filter(|_| !config.maps(ProofKind::Token)) {
            let fault = Fault::new(FaultCode::InvalidArgument, "configure").subject(&issuer.url);
            return Err(fault.detail(
                "nobody with its tokens has an account: accounts = [\"NAME\"] in its [[tokens.issuer]], or mapping = [\"FILE\"] \
                 at the top of the file",
            ));
        }
    }
    if clients && sources.is_empty() {
        return bad("nobody with a certificate has an account: mapping = [\"FILE\"], or [gsi] with a grid-mapfile");
    }
    Ok(())
}

/// Tells the administrator that logins of an account will fail: what they are told themselves is that the server cannot serve them.
fn warn_if_closed(config: &DtnConfig, account: &Account) {
    let groups = whimbrel_sys::accounts::groups_of(&account.name, account.gid).unwrap_or_default();
    let closed = config.directory().ok().and_then(|root| closed_to(&root, account.uid, &groups));
    if let Some(closed) = closed {
        tracing::warn!(
            account = account.name,
            directory = %closed.display(),
            "the account of anonymous logins may not enter what is served: they will fail. chmod o+x lets it in, or choose another \
             account with --anonymous-user"
        );
    }
}

/// Names of the groups that a data process of this account has; `None`: of this process.
fn group_names(account: Option<&Account>) -> std::io::Result<Vec<String>> {
    let numbers = match account {
        Some(account) => whimbrel_sys::accounts::groups_of(&account.name, account.gid)?,
        None => {
            let mut own: Vec<u32> = rustix::process::getgroups()?.into_iter().map(|group| group.as_raw()).collect();
            own.push(rustix::process::getegid().as_raw());
            own
        }
    };
    let name = |number| {
        let name = whimbrel_sys::names::group_name(number)?;
        Ok(name.map_or_else(|| number.to_string(), |name| String::from_utf8_lossy(&name).into_owned()))
    };
    numbers.into_iter().map(name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn over_ssh_there_is_one_account_and_it_is_never_root() {
        let keeper = Keeper::of_own_account(&DtnConfig::default(), "/bin/true".into());
        match is_root() {
            true => assert_eq!(keeper.err().map(|fault| fault.code), Some(FaultCode::NotAuthorized)),
            false => assert_ne!(keeper.unwrap().own().unwrap().name, "root"),
        }
    }

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
        assert_eq!(keeper.password_user("ada").unwrap().account, None);
        assert!(Keeper::new(&DtnConfig::default(), "/bin/true".into()).is_err(), "nobody could log in");
    }

    #[test]
    fn an_account_has_its_groups_where_rules_ask_for_them() {
        let text = "anonymous = true\n[[rules]]\ndeny = [\"read\"]\ngroups = [\"x\"]";
        let own = keeper(DtnConfig::parse(text).unwrap()).anonymous().unwrap().groups.unwrap();
        assert!(!own.is_empty());
        assert_eq!(keeper(DtnConfig::parse("anonymous = true").unwrap()).anonymous().unwrap().groups.unwrap(), [""; 0]);
        if let Some(group) = group_names(Some(&account("nobody").unwrap())).unwrap().first() {
            assert!(!group.is_empty());
        }
    }
}
