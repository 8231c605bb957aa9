//! What a user shows at grid servers, and whose certificates count there.

use std::collections::HashMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use openssl::x509::X509;
use whimbrel_engine::{Fault, FaultCode, Side};
use whimbrel_proto::command::Secret;
use whimbrel_proto::timeval::Timestamp;
use whimbrel_proto::x509::name::normal_form;
use whimbrel_proto::x509::{Certificate, Form, Kind, Policy};
use whimbrel_trust::clock::now;
use whimbrel_trust::credential::{self, Found, Holder};
use whimbrel_trust::fault::to_the_minute;
use whimbrel_trust::gsi::{AnchorStore, delegate};
use whimbrel_trust::make::{self, KeyKind, Life, ProxyKind};
use whimbrel_trust::places::{Place, Places, Source};
use whimbrel_trust::{OwnChain, TrustFault};

use super::target::{CredentialFiles, IN_MEMORY};

const OP: &str = "use a certificate";

/// Life of a proxy that is made for one run only, seconds.
const RUN: i64 = 7 * 24 * 3600;

/// Asks for the pass phrase of a file; `None`: nobody can be asked.
pub(super) type Ask = dyn Fn(&Path) -> Option<String> + Send + Sync;

/// A user's credentials and the authorities, each read when it is first needed.
#[derive(Clone, Default)]
pub(super) struct Grid {
    ask: Option<Arc<Ask>>,
    read: Arc<Mutex<Read>>,
}

#[derive(Default)]
struct Read {
    credentials: HashMap<Option<CredentialFiles>, Result<Arc<Credential>, TrustFault>>,
    /// What can be shown without asking anybody for a pass phrase.
    unasked: Option<Option<Arc<Credential>>>,
    authorities: Option<Arc<AnchorStore>>,
}

/// A credential that can be used.
pub struct Credential {
    /// What is shown.
    pub own: OwnChain,
    /// Subject of the person whom it speaks for.
    pub identity: String,
    /// What it is, for people: `proxy`, `limited proxy`, `certificate`.
    pub kind: &'static str,
    /// Its files.
    pub place: String,
    /// Earliest end of life in the chain.
    pub until: Timestamp,
}

impl fmt::Debug for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Credential({self})")
    }
}

/// Whose, what, where, until when.
impl fmt::Display for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { identity, kind, place, until, .. } = self;
        write!(f, "{identity}, {kind} in {place}, good until {}", to_the_minute(*until))
    }
}

impl Grid {
    /// Asks for pass phrases in this way.
    pub(super) fn asking(ask: Arc<Ask>) -> Self {
        Self { ask: Some(ask), ..Self::default() }
    }

    /// The credential in these files, or the usual one.
    pub(super) fn credential(&self, files: Option<&CredentialFiles>) -> Result<Arc<Credential>, Fault> {
        let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        // Whoever renews a proxy while a long copy runs need not start it anew.
        read.credentials.retain(|_, known| !known.as_ref().is_ok_and(|known| known.until < now()));
        let known = read.credentials.entry(files.cloned());
        // A pass phrase that was wrong, or was not given, is not asked for at every server anew.
        let found = known.or_insert_with(|| self.load(files).map(Arc::new));
        found.clone().map_err(|fault| fault.into_fault(OP, Side::Us))
    }

    /// The usual credential, if there is one that can be used as it is.
    pub(super) fn unasked(&self) -> Option<Arc<Credential>> {
        let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        let load = || {
            let found = with_places(|places| credential::person(places, now(), &|_| None));
            found.and_then(Credential::of).inspect_err(|fault| tracing::debug!(%fault, "no certificate is shown")).ok()
        };
        read.unasked.get_or_insert_with(|| load().map(Arc::new)).clone()
    }

    /// The authorities that are trusted.
    pub(super) fn authorities(&self) -> Result<Arc<AnchorStore>, Fault> {
        let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(store) = &read.authorities {
            return Ok(store.clone());
        }
        let opened = with_places(|places| AnchorStore::open_first(&places.anchors(), Instant::now()));
        let store = Arc::new(opened.map_err(|fault| fault.into_fault(OP, Side::Us))?);
        read.authorities = Some(store.clone());
        Ok(store)
    }

    /// The credential in these files with the authorities above it that are known here, for servers that may know none of them.
    pub(super) fn complete(&self, files: &CredentialFiles) -> Result<Arc<Credential>, Fault> {
        let credential = self.credential(Some(files))?;
        let Ok(store) = self.authorities() else { return Ok(credential) };
        let own = store.current(Instant::now()).completed(&credential.own);
        let own = own.map_err(|fault| fault.into_fault(OP, Side::Us))?;
        let Credential { identity, kind, place, until, .. } = &*credential;
        let (identity, place) = (identity.clone(), place.clone());
        Ok(Arc::new(Credential { own, identity, kind, place, until: *until }))
    }

    fn load(&self, files: Option<&CredentialFiles>) -> Result<Credential, TrustFault> {
        let unlock = |path: &Path| self.ask.as_ref().and_then(|ask| ask(path)).map(Into::into);
        let found = with_places(|places| match files {
            None => credential::person(places, now(), &unlock),
            Some(CredentialFiles { certificate, key }) => {
                let place = |path: &PathBuf| Place { path: path.clone(), variable: None };
                let source = Source::Pair(place(certificate), place(key));
                let own = credential::read(&source, places.uid(), &unlock)?;
                let ended = |fault: TrustFault| match certificate.starts_with(IN_MEMORY) {
                    true => fault,
                    false => TrustFault { detail: format!("{} ({source})", fault.detail), ..fault },
                };
                credential::alive(&own, now()).map_err(ended)?;
                Ok(Found { own, source })
            }
        })?;
        Credential::of(found)
    }
}

impl Credential {
    fn of(found: Found) -> Result<Self, TrustFault> {
        let Found { own, source } = found;
        let place = match &source {
            Source::Pair(certificate, key) if certificate == key => certificate.to_string(),
            source => source.to_string(),
        };
        // A descriptor of ours says nothing to people.
        let place = if place.starts_with(IN_MEMORY) { "the managed service".to_owned() } else { place };
        let Holder { identity, kind, until } = credential::holder(&own)?;
        let own = signing_for_globus(own)?;
        Ok(Self { own, identity, kind, place, until })
    }

    /// True if both speak for the same person.
    pub fn is_same_person(&self, other: &Self) -> bool {
        normal_form(&self.identity) == normal_form(&other.identity)
    }

    /// Certificate, key and the certificates above, as data connections need them.
    pub(super) fn pem(&self) -> Result<Secret, Fault> {
        let pem = make::to_pem(&self.own).map_err(|fault| fault.into_fault(OP, Side::Us))?;
        Ok(Secret(pem.to_vec()))
    }

    /// Adds to a refusal by a server whose and what it was, and until when it is good.
    pub(super) fn refused(&self, code: FaultCode, detail: String) -> TrustFault {
        TrustFault::new(code, format!("{detail}; it was shown: {self}")).about(&self.identity)
    }
}

/// Globus' servers take no rights from other keys than RSA: with such a key a proxy with one is made for this run.
fn signing_for_globus(own: OwnChain) -> Result<OwnChain, TrustFault> {
    if delegate::globus_takes(&own) {
        return Ok(own);
    }
    let (form, policy) = kind_of(&own.certificate)?;
    let kind = ProxyKind { form, policy, path_length: None };
    make::own_proxy(&own, KeyKind::Rsa(2048), &kind, Life::of(now(), RUN)).map_err(|fault| {
        let detail = "its key is not RSA, Globus' servers take nothing else, and no proxy can be made of it";
        TrustFault { detail: format!("{detail}: {}", fault.detail), ..fault }
    })
}

/// Of which kind proxies below this certificate have to be.
fn kind_of(certificate: &X509) -> Result<(Form, Policy), TrustFault> {
    let der = certificate.to_der().map_err(|error| rejected(&error))?;
    let read = Certificate::parse(&der).map_err(|error| rejected(&error))?;
    Ok(match read.kind() {
        Ok(Kind::Proxy { form, policy: Policy::Limited }) => (form, Policy::Limited),
        Ok(Kind::Proxy { form, .. }) => (form, Policy::InheritAll),
        _ => (Form::Rfc, Policy::InheritAll),
    })
}

fn rejected(reason: &dyn fmt::Display) -> TrustFault {
    TrustFault::new(FaultCode::CredentialRejected, reason.to_string())
}

fn with_places<R>(see: impl FnOnce(&Places<'_>) -> R) -> R {
    let environment = |name: &str| std::env::var_os(name);
    see(&Places::new(&environment, rustix::process::geteuid().as_raw()))
}

/// The first directory of trusted authorities that is there.
pub fn authorities_directory() -> Option<PathBuf> {
    with_places(|places| places.anchor_directory())
}

#[cfg(test)]
mod tests {
    use whimbrel_trust::make::Purpose;

    use super::*;

    fn person(kind: KeyKind) -> OwnChain {
        let key = make::key(KeyKind::P256).unwrap();
        let certificate = make::authority("/O=Grid/CN=CA", &key, None, Life::of(now(), 9000), None).unwrap();
        let ca = OwnChain { certificate, key, chain: Vec::new() };
        make::issue("/O=Grid/CN=alice", kind, &Purpose::Person, Life::of(now(), 5000), &ca).unwrap()
    }

    fn read(own: OwnChain) -> Result<Credential, TrustFault> {
        let source = Source::Proxy(Place { path: "/p".into(), variable: Some("X509_USER_PROXY") });
        Credential::of(Found { own, source })
    }

    #[test]
    fn a_proxy_speaks_for_its_person_until_the_first_end_in_its_chain() {
        let alice = person(KeyKind::P256);
        let proxy =
            |policy| make::own_proxy(&alice, KeyKind::P256, &ProxyKind::rfc(policy), Life::of(now(), 600)).unwrap();
        for (own, kind) in [
            (alice.clone(), "certificate"),
            (proxy(Policy::InheritAll), "proxy"),
            (proxy(Policy::Limited), "limited proxy"),
        ] {
            let read = read(own).unwrap();
            assert_eq!((read.identity.as_str(), read.kind), ("/O=Grid/CN=alice", kind));
            assert!(read.to_string().starts_with(&format!("/O=Grid/CN=alice, {kind} in /p (X509_USER_PROXY), good")));
            let least = if kind == "certificate" { 4000 } else { 0 };
            assert!((least..5001).contains(&(read.until.secs - now().secs)));
        }
        let independent = read(proxy(Policy::Independent)).unwrap();
        assert!(independent.identity.starts_with("/O=Grid/CN=alice/CN="), "{independent}");
        let alone = OwnChain { chain: Vec::new(), ..proxy(Policy::InheritAll) };
        assert!(read(alone).unwrap_err().detail.contains("not the certificate of the person"));
    }

    #[test]
    fn other_keys_than_rsa_get_a_proxy_with_one_that_is_no_wider() {
        let alice = person(KeyKind::P256);
        let limited = make::own_proxy(&alice, KeyKind::P256, &ProxyKind::rfc(Policy::Limited), Life::of(now(), 600));
        for (own, policy) in [(alice, Policy::InheritAll), (limited.unwrap(), Policy::Limited)] {
            let made = read(own.clone()).unwrap().own;
            assert!(delegate::globus_takes(&made));
            assert_eq!(kind_of(&made.certificate).unwrap(), (Form::Rfc, policy));
            assert_eq!(made.chain[0].to_der().unwrap(), own.certificate.to_der().unwrap());
        }
    }
}
