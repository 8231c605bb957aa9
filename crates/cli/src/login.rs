//! Passwords and pass phrases: from the netrc file, or asked for on the terminal; what else a login takes from the command line.

use std::collections::HashMap;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

pub use whimbrel_dtn::client::hidden::ask as ask_hidden;
use whimbrel_dtn::client::netrc;
use whimbrel_dtn::client::options::Place;
use whimbrel_dtn::client::security::Security;
use whimbrel_dtn::client::target::{Password, Target};
use whimbrel_engine::summary::exit;
use whimbrel_engine::{Fault, FaultCode, Side};

use crate::args::LoginArgs;

/// Completes logins, asking once for each.
#[derive(Default)]
pub struct Logins {
    options: LoginArgs,
    netrc: Option<String>,
    asked: HashMap<(String, String), Password>,
}

impl Logins {
    /// Reads `NETRC` or `~/.netrc` if there is one.
    pub fn new(options: &LoginArgs) -> Self {
        let path = std::env::var_os("NETRC").map(PathBuf::from);
        let home = || std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".netrc"));
        let netrc = path.or_else(home).and_then(|path| std::fs::read_to_string(path).ok());
        Self { options: options.clone(), netrc, asked: HashMap::new() }
    }

    /// Adds what is missing to the login of a place.
    ///
    /// # Errors
    /// A password is needed and there is no terminal to ask on.
    pub fn complete(&mut self, place: &mut Place) -> Result<(), Fault> {
        let Some(target) = &mut place.target else { return Ok(()) };
        target.subject = target.subject.take().or_else(|| self.options.subject.clone());
        // A ticket that is asked for at one end goes before the certificate for both.
        target.credential = target.credential.take().or_else(|| self.options.credential().filter(|_| !target.kerberos));
        target.kerberos |= self.options.kerberos && target.credential.is_none();
        let in_its_place = match target.security {
            // ssh asks by itself.
            Security::Gsi | Security::Ssh => true,
            Security::Tls | Security::ImplicitTls => target.credential.is_some() || self.options.token_file.is_some(),
            Security::Clear => false,
        };
        if target.password.is_some() || in_its_place {
            return Ok(());
        }
        if let Some((user, password)) =
            self.netrc.as_deref().and_then(|text| netrc::entry(text, &target.host, target.user.as_deref()))
        {
            target.user.get_or_insert(user);
            target.password = Some(password);
            return Ok(());
        }
        let Some(user) = target.user.clone().filter(|user| user != "anonymous") else { return Ok(()) };
        let key = (user, target.host.clone());
        if !self.asked.contains_key(&key) {
            let password = ask(target)?;
            self.asked.insert(key.clone(), password);
        }
        target.password = self.asked.get(&key).cloned();
        Ok(())
    }
}

fn ask(target: &Target) -> Result<Password, Fault> {
    let user = target.user.as_deref().unwrap_or_default();
    ask_hidden(&format!("Password of {user} at {target}: ")).map(Password).map_err(|error| {
        let subject = format!("{user} at {target}");
        if error.kind() == ErrorKind::Interrupted {
            return Fault::new(FaultCode::Cancelled, "ask for a password").subject(subject).side(Side::Us);
        }
        let mut fault = Fault::new(FaultCode::LoginFailed, "ask for a password").subject(subject);
        fault.detail = "there is no terminal; put the password into ~/.netrc".to_owned();
        fault.source = Some(Box::new(error));
        fault
    })
}

/// The pass phrase of a private key's file; `None` without a terminal. Ctrl-C ends the program: nothing is under way before a key is unlocked.
pub fn pass_phrase(file: &Path) -> Option<String> {
    let asked = ask_hidden(&format!("Pass phrase of {}: ", file.display()));
    if asked.as_ref().is_err_and(|error| error.kind() == ErrorKind::Interrupted) {
        std::process::exit(exit::CANCELLED.into());
    }
    asked.ok()
}
