//! What a login over TLS shows in place of a password: an access token, a certificate.
//!
//! What the user names is shown, or the login fails. What lies in the usual places is shown where nothing else was said, and left out
//! where a server does not take it.

use std::ffi::OsString;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use whimbrel_engine::{Fault, FaultCode, Side};
use whimbrel_proto::timeval::Timestamp;
use whimbrel_trust::TrustFault;
use whimbrel_trust::bearer::Bearer;
use whimbrel_trust::clock::now;
use whimbrel_trust::fault::to_the_minute;

use super::grid::{Credential, Grid};
use super::security::Security;
use super::target::Target;

const OP: &str = "show a token";

/// An access token in memory. Who holds a copy sees what it is renewed to; equal are only copies of one. `Debug` hides it.
#[derive(Clone)]
pub struct Token(Arc<Mutex<Arc<Bearer>>>);

impl Token {
    /// One from the text of a token.
    ///
    /// # Errors
    /// `CredentialRejected`: empty, or characters that no token has.
    pub fn new(text: &str) -> Result<Self, Fault> {
        Ok(Self(Arc::new(Mutex::new(read(text)?))))
    }

    /// From now on another text is shown.
    ///
    /// # Errors
    /// As [`Token::new`]; it stays what it was then.
    pub fn renew(&self, text: &str) -> Result<(), Fault> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = read(text)?;
        Ok(())
    }

    fn current(&self) -> Arc<Bearer> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

fn read(text: &str) -> Result<Arc<Bearer>, Fault> {
    Bearer::of(text.as_bytes(), "memory").map(Arc::new).map_err(|fault| fault.into_fault(OP, Side::Us))
}

impl PartialEq for Token {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Token {}

impl Hash for Token {
    fn hash<H: Hasher>(&self, state: &mut H) {
        Arc::as_ptr(&self.0).hash(state);
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(..)")
    }
}

/// What logins over TLS show.
#[derive(Clone, Default)]
pub(super) struct Shown {
    token_file: Option<PathBuf>,
    /// Nothing from the usual places.
    named_only: bool,
    token: Arc<OnceLock<Result<Option<Arc<Bearer>>, TrustFault>>>,
}

impl Shown {
    /// The token in this file.
    pub(super) fn token_file(file: PathBuf) -> Self {
        Self { token_file: Some(file), ..Self::default() }
    }

    /// Without what lies in the usual places.
    pub(super) fn named_only(&self) -> Self {
        Self { named_only: true, ..self.clone() }
    }

    /// The token for a server; `None` where there is none, or where it may not be shown.
    pub(super) fn token(&self, target: &Target) -> Result<Option<Arc<Bearer>>, Fault> {
        if let Some(token) = target.token.as_ref().filter(|_| is_tls(target)) {
            let token = token.current();
            let usable = token.check(now().secs).map(|()| Some(token));
            return usable.map_err(|fault| fault.into_fault(OP, Side::Us));
        }
        let named = self.token_file.is_some();
        let has_other = target.password.is_some() || target.credential.is_some() || target.user.is_some();
        if target.password.is_some() || (!named && (self.named_only || has_other)) {
            return Ok(None);
        }
        if !is_tls(target) {
            if named && target.security == Security::Clear {
                tracing::warn!(%target, "the token is not shown there, for everybody on the way could read it");
            }
            return Ok(None);
        }
        let found = self.token.get_or_init(|| self.find().map(|found| found.map(Arc::new)));
        let usable = found.clone().and_then(|found| match found {
            Some(token) => token.check(now().secs).map(|()| Some(token)),
            None => Ok(None),
        });
        match usable {
            Err(fault) if !named => {
                tracing::warn!(%fault, "a token that lies here cannot be used");
                Ok(None)
            }
            usable => usable.map_err(|fault| fault.into_fault(OP, Side::Us)),
        }
    }

    fn find(&self) -> Result<Option<Bearer>, TrustFault> {
        let uid = rustix::process::geteuid().as_raw();
        match &self.token_file {
            Some(file) => {
                let named = |name: &str| (name == "BEARER_TOKEN_FILE").then(|| OsString::from(file));
                Bearer::find(named, uid).map_err(|fault| match fault.code {
                    FaultCode::CredentialMissing => {
                        TrustFault::new(fault.code, "there is no such file").about(file.display().to_string())
                    }
                    _ => fault,
                })
            }
            None => Bearer::find(|name| std::env::var_os(name), uid),
        }
    }

    /// The certificate for a server that asks for one.
    pub(super) fn certificate(&self, grid: &Grid, target: &Target) -> Result<Option<Arc<Credential>>, Fault> {
        match &target.credential {
            Some(files) => grid.credential(Some(files)).map(Some),
            None if self.named_only => Ok(None),
            None => Ok(grid.unasked()),
        }
    }

    /// True if a login failed by what nobody has named: it is worth trying without.
    pub(super) fn went_too_far(&self, grid: &Grid, target: &Target, fault: &Fault) -> bool {
        use FaultCode as F;
        let named = target.credential.is_some() || target.token.is_some();
        if self.named_only || !is_tls(target) || named || fault.side == Some(Side::Us) {
            return false;
        }
        let token = || self.token_file.is_none() && self.token(target).is_ok_and(|token| token.is_some());
        match fault.code {
            F::LoginFailed | F::NotAuthorized => token(),
            // The handshake ended because of our certificate.
            F::CredentialRejected | F::CredentialExpired | F::CredentialMissing => grid.unasked().is_some(),
            _ => false,
        }
    }

    /// True if the user named what is to be shown: then nothing less will do.
    pub(super) fn insists(&self, target: &Target) -> bool {
        self.token_file.is_some() || target.credential.is_some() || target.token.is_some() || !target.keys.is_empty()
    }
}

fn is_tls(target: &Target) -> bool {
    matches!(target.security, Security::Tls | Security::ImplicitTls)
}

/// Whose token it is, by whom, where it lies and until when it is good.
pub(super) fn describe(token: &Bearer) -> String {
    let Some(claims) = &token.claims else { return format!("token in {}", token.place) };
    let of = |name: &Option<String>| name.clone().unwrap_or_else(|| "nobody".into());
    let until = claims.expires.map(|end| format!(", good until {}", to_the_minute(Timestamp::from_secs(end))));
    let (subject, issuer) = (of(&claims.subject), of(&claims.issuer));
    format!("token of {subject} by {issuer} in {}{}", token.place, until.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::target::Password;

    /// `{"alg":"RS256"}` with `{"sub":"a","iss":"https://i","exp":EXP}`.
    fn token(file: &std::path::Path, expires: i64) -> Shown {
        let body = whimbrel_proto::protect::base64::encode(
            format!(r#"{{"sub":"a","iss":"https://i","exp":{expires}}}"#).as_bytes(),
        );
        let body = body.trim_end_matches('=').replace('+', "-").replace('/', "_");
        std::fs::write(file, format!("eyJhbGciOiJSUzI1NiJ9.{body}.AAAA")).unwrap();
        Shown::token_file(file.to_owned())
    }

    fn target(security: Security) -> Target {
        Target { security, ..Target::anonymous("h", 1) }
    }

    #[test]
    fn a_token_that_was_named_is_shown_over_tls_only_and_never_beside_a_password() {
        let folder = tempfile::tempdir().unwrap();
        let shown = token(&folder.path().join("token"), now().secs + 60);
        for security in [Security::Tls, Security::ImplicitTls] {
            let found = shown.token(&target(security)).unwrap().unwrap();
            assert!(describe(&found).starts_with("token of a by https://i in /"), "{}", describe(&found));
        }
        for security in [Security::Clear, Security::Gsi] {
            assert!(shown.token(&target(security)).unwrap().is_none());
        }
        let password = Target { password: Some(Password("p".into())), ..target(Security::Tls) };
        assert!(shown.token(&password).unwrap().is_none());
        assert!(
            shown.insists(&target(Security::Tls))
                && shown.named_only().token(&target(Security::Tls)).unwrap().is_some()
        );
    }

    #[test]
    fn a_token_that_was_named_and_cannot_be_used_is_a_fault() {
        let folder = tempfile::tempdir().unwrap();
        let expired = token(&folder.path().join("token"), 1000);
        let fault = expired.token(&target(Security::Tls)).unwrap_err();
        assert_eq!((fault.code, fault.side), (FaultCode::CredentialExpired, Some(Side::Us)));
        let missing = Shown::token_file(folder.path().join("none"));
        let fault = missing.token(&target(Security::Tls)).unwrap_err();
        assert!(fault.code == FaultCode::CredentialMissing && fault.to_string().contains("none"), "{fault}");
    }
}
