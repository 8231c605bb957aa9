//! The file of logins: which services, as whom, with which tokens. Nobody else reads it.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};
use whimbrel_dtn::client::security::settings;
use whimbrel_engine::{Fault, FaultCode, Side};
use whimbrel_trust::kept::Kept;

use super::reach;
use super::refusal::{Refusal, Trouble};

const OP: &str = "read the logins";

/// Name of the file, in the directory for settings.
const NAME: &str = "logins.json";

/// A token is renewed so many seconds before it ends, for clocks differ and questions take time.
const EARLY: i64 = 60;

/// A client's id, and what proves that one is it.
#[derive(Clone, Serialize, Deserialize)]
pub struct ClientCredential {
    /// Its id.
    pub id: String,
    /// Its secret.
    pub secret: String,
}

/// A token for one resource server.
#[derive(Clone, Serialize, Deserialize)]
pub struct Token {
    /// What is shown.
    pub access: String,
    /// When that ends, seconds since 1970.
    pub ends: i64,
    /// What gives a new one.
    pub refresh: Option<String>,
}

impl Token {
    /// Whether it can still be shown.
    pub fn is_good(&self, now: i64) -> bool {
        now < self.ends - EARLY
    }
}

/// Somebody's login at a service.
#[derive(Clone, Serialize, Deserialize)]
pub struct Login {
    /// The service.
    pub service: String,
    /// Whose login it is, for people.
    pub user: String,
    /// Authorities (PEM) that vouch for the service's host; `None`: the system's, or its known key.
    pub authorities: Option<String>,
    /// The client that asks for tokens.
    pub client: ClientCredential,
    /// The client acts in its own name; else for a person who logged in in a browser.
    pub acts_alone: bool,
    /// By resource server.
    pub tokens: BTreeMap<String, Token>,
}

/// What the file holds: the latest login first.
#[derive(Default, Serialize, Deserialize)]
struct Logins {
    logins: Vec<Login>,
    /// By service: what this computer's logins in browsers are made with, kept from one to the next.
    #[serde(default)]
    clients: BTreeMap<String, ClientCredential>,
}

/// The file.
pub struct LoginFile {
    directory: PathBuf,
}

impl LoginFile {
    /// The one in the user's directory for settings.
    ///
    /// # Errors
    /// Nobody has said where that is.
    pub fn usual() -> Result<Self, Trouble> {
        let missing = || {
            let fault = Fault::new(FaultCode::CredentialMissing, OP).side(Side::Us);
            Trouble::Fault(fault.detail("there is no place for logins: set HOME or XDG_CONFIG_HOME"))
        };
        Ok(Self { directory: settings().ok_or_else(missing)? })
    }

    /// Where it is.
    pub fn path(&self) -> PathBuf {
        self.directory.join(NAME)
    }

    /// The login at a service; without one the latest.
    ///
    /// # Errors
    /// There is none; the file cannot be read, or others may read it.
    pub fn find(&self, service: Option<&str>) -> Result<Login, Trouble> {
        let logins = self.read()?.logins;
        let wanted = service.map(reach::url);
        let found = logins.into_iter().find(|login| wanted.as_ref().is_none_or(|url| *url == login.service));
        found.ok_or_else(|| {
            let at = wanted.map_or_else(String::new, |url| format!(" at {url}"));
            let path = self.path();
            let message = format!("you are not logged in{at}: there is no such login in {}", path.display());
            Refusal::new(401, "NotLoggedIn", message).into()
        })
    }

    /// The client that logs people in at a service from this computer, if it did so before.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn client(&self, service: &str) -> Result<Option<ClientCredential>, Trouble> {
        Ok(self.read()?.clients.remove(service))
    }

    /// Puts a login in the place of the one at the same service, which keeps its rank.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn keep(&self, login: &Login) -> Result<(), Trouble> {
        self.change(|all| match all.logins.iter_mut().find(|known| known.service == login.service) {
            Some(known) => known.clone_from(login),
            None => all.logins.insert(0, login.clone()),
        })
    }

    /// Puts a login first: it is the one that is meant from now on.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn put_first(&self, login: &Login) -> Result<(), Trouble> {
        self.change(|all| {
            all.logins.retain(|known| known.service != login.service);
            all.logins.insert(0, login.clone());
            if !login.acts_alone {
                all.clients.insert(login.service.clone(), login.client.clone());
            }
        })
    }

    /// Forgets the login at a service.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn forget(&self, service: &str) -> Result<(), Trouble> {
        self.change(|all| all.logins.retain(|known| known.service != service))
    }

    /// Several programs of a user change it, one after the other.
    fn change(&self, change: impl FnOnce(&mut Logins)) -> Result<(), Trouble> {
        let failed = |error| Trouble::here(error, "write the logins", self.path().display());
        let kept = Kept::at(&self.directory).map_err(failed)?;
        let lock =
            OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(kept.path(".logins.lock"));
        let lock: File = lock.map_err(failed)?;
        lock.lock().map_err(failed)?;
        let mut logins = self.read()?;
        change(&mut logins);
        let text = serde_json::to_vec_pretty(&logins).map_err(|error| failed(error.into()))?;
        kept.write(NAME, &text, 0o600).map_err(failed)
    }

    fn read(&self) -> Result<Logins, Trouble> {
        let path = self.path();
        let failed = |error| Trouble::here(error, OP, path.display());
        let bytes = match fs::read(&path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Logins::default()),
            Err(error) => return Err(failed(error)),
        };
        let mode = fs::metadata(&path).map_err(failed)?.permissions().mode();
        let wrong = |detail: String| {
            Fault::new(FaultCode::CredentialRejected, OP)
                .side(Side::Us)
                .subject(path.display().to_string())
                .detail(detail)
        };
        if mode & 0o077 != 0 {
            let text = format!(
                "others may read it (mode {:04o}): chmod 600, and log in again if others were there",
                mode & 0o7777
            );
            return Err(wrong(text).into());
        }
        serde_json::from_slice(&bytes)
            .map_err(|error| wrong(format!("it is damaged ({error}): remove it, and log in again")).into())
    }
}

/// Seconds since 1970.
pub fn now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn login(service: &str, user: &str) -> Login {
        Login {
            service: service.to_owned(),
            user: user.to_owned(),
            authorities: None,
            client: ClientCredential { id: "i".into(), secret: "s".into() },
            acts_alone: true,
            tokens: BTreeMap::new(),
        }
    }

    #[test]
    fn the_latest_login_is_meant_and_others_are_named() {
        let directory = tempfile::tempdir().expect("a directory");
        let file = LoginFile { directory: directory.path().join("x/whimbrel") };
        let Err(Trouble::Refused(refusal)) = file.find(None) else { panic!("nobody is logged in") };
        assert_eq!((refusal.exit_code(), refusal.code.as_str()), (6, "NotLoggedIn"));
        for (service, user) in [("https://a", "one"), ("https://b", "two")] {
            file.put_first(&login(service, user)).expect("it is written");
        }
        file.keep(&login("https://a", "three")).expect("it is written");
        let user = |service| file.find(service).map(|login| login.user).ok();
        assert_eq!((user(None), user(Some("a"))), (Some("two".into()), Some("three".into())));
        file.put_first(&Login { acts_alone: false, ..login("https://b", "two") }).expect("it is written");
        file.forget("https://b").expect("it is written");
        let client = |service| file.client(service).ok().flatten().map(|client| client.id);
        assert_eq!((client("https://b"), client("https://a")), (Some("i".into()), None), "a computer's own is kept");
        assert_eq!((user(None), user(Some("b"))), (Some("three".into()), None));
    }

    #[test]
    fn a_file_that_others_may_read_is_refused() {
        let directory = tempfile::tempdir().expect("a directory");
        let file = LoginFile { directory: directory.path().to_owned() };
        file.put_first(&login("https://a", "one")).expect("it is written");
        assert_eq!(fs::metadata(file.path()).expect("it is there").permissions().mode() & 0o777, 0o600);
        fs::set_permissions(file.path(), fs::Permissions::from_mode(0o640)).expect("it can be changed");
        let Err(Trouble::Fault(fault)) = file.find(None) else { panic!("it is refused") };
        assert_eq!(fault.code, FaultCode::CredentialRejected);
    }

    #[test]
    fn tokens_are_renewed_before_they_end() {
        let token = Token { access: "a".into(), ends: 1000, refresh: None };
        assert!(token.is_good(900) && !token.is_good(950) && !token.is_good(1001));
    }
}
