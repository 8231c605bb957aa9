//! How the data connections between two ends prove who they are, and whether they are encrypted.
//!
//! Between ends that know nonces, the nonce is the proof: no certificates, one round trip. Grid servers of other kinds show what was handed
//! on to them (DCAU A). Where that differs, or nothing was, both are given one credential that was made for this session and is good for
//! nothing else (DCSC), or, where one takes none, are told whom to expect (DCAU S). A credential of one site never goes to another, unless the
//! user names it.

use std::sync::Arc;

use whimbrel_engine::{Fault, FaultCode, Side};
use whimbrel_proto::op::{GsiPeer, Level, Mode, Op, Shield};
use whimbrel_trust::clock::now;
use whimbrel_trust::make::{self, Draft, KeyKind, Life};
use whimbrel_trust::{OwnChain, TrustFault};

use super::end::End;
use super::grid::Credential;
use super::options::DataCredential;
use super::pair::{DataWish, Pair, Role};
use super::target::CredentialFiles;

const OP: &str = "protect data";

/// How long a credential for one session is good, seconds.
const SESSION: i64 = 7 * 24 * 3600;

/// What was agreed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Accord {
    /// Both ends get a nonce.
    pub(super) nonce: bool,
    source: Shield,
    destination: Shield,
}

impl Accord {
    fn both(nonce: bool, shield: Shield) -> Self {
        Self { nonce, source: shield.clone(), destination: shield }
    }

    /// What the end in a role is to do.
    pub(super) fn shield(&self, role: Role) -> Shield {
        match role {
            Role::Source => self.source.clone(),
            Role::Destination => self.destination.clone(),
        }
    }
}

/// What two ends have in common.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Common {
    /// A credential of the same person.
    Person,
    /// A credential that both are given.
    Given,
    /// Nothing but the names of the source's and the destination's person.
    Names(String, String),
}

impl Pair {
    /// Agrees on the protection of the next data connections; nothing may be in flight.
    ///
    /// # Errors
    /// `PeerIncompatible` where encryption is wanted, or a credential named, and cannot be had; at the end that lacks it.
    pub(super) async fn accord(&mut self, mode: Mode, wish: &DataWish) -> Result<Accord, (Role, Fault)> {
        let level = if wish.encrypt { Level::Private } else { Level::Clear };
        let all_own = Accord::both(false, Shield::Gsi { peer: GsiPeer::Own, level });
        let nothing = wish.credential == DataCredential::Nothing;
        if wish.credential != DataCredential::Usual && !nothing {
            return self.show(&wish.credential).await.map(|()| all_own);
        }
        let nonce = mode == Mode::Extended && self.own_pair();
        if nonce && (!wish.encrypt || (self.source.encrypts_data() && self.destination.encrypts_data())) {
            return Ok(Accord::both(true, if wish.encrypt { Shield::Nonce } else { Shield::None }));
        }
        if nothing {
            return if wish.encrypt { Err(self.lacking(mode)) } else { Ok(Accord::both(nonce, Shield::None)) };
        }
        let (source, destination) = (self.source.credential().cloned(), self.destination.credential().cloned());
        let can = Can {
            prove: self.source.proves_by_login() && self.destination.proves_by_login(),
            take: self.source.takes_credential() && self.destination.takes_credential(),
        };
        match common(source.as_deref().zip(destination.as_deref()), can, wish.encrypt) {
            Some(Common::Person) => Ok(all_own),
            Some(Common::Given) => self.show(&DataCredential::Made).await.map(|()| all_own),
            Some(Common::Names(source, destination)) => {
                let shield = |subject| Shield::Gsi { peer: GsiPeer::Subject(subject), level };
                Ok(Accord { nonce: false, source: shield(destination), destination: shield(source) })
            }
            None if wish.encrypt => Err(self.lacking(mode)),
            None => Ok(Accord::both(nonce, Shield::None)),
        }
    }

    /// Gives both ends a credential for the data connections between them, once.
    async fn show(&mut self, choice: &DataCredential) -> Result<(), (Role, Fault)> {
        if self.given {
            return Ok(());
        }
        let credential = match choice {
            DataCredential::Named(files) => self.named(files),
            _ => for_one_session().map(Arc::new).map_err(|fault| fault.into_fault(OP, Side::Us)),
        };
        let credential = credential.map_err(|fault| (Role::Source, fault))?;
        for role in [Role::Source, Role::Destination] {
            self.end(role)
                .show_on_data(&credential)
                .await
                .map_err(|fault| (role, fault.side_if_unknown(role.side())))?;
        }
        self.given = true;
        Ok(())
    }

    fn named(&self, files: &CredentialFiles) -> Result<Arc<Credential>, Fault> {
        let remote = self.source.remote().or_else(|| self.destination.remote());
        let none =
            || Fault::new(FaultCode::InvalidArgument, OP).side(Side::Us).detail("there is no server to show it at");
        remote.ok_or_else(none)?.credential_in(files)
    }

    /// Who cannot encrypt, and what to do about it.
    fn lacking(&self, mode: Mode) -> (Role, Fault) {
        let able = |end: &End| end.proves_by_login() || (mode == Mode::Extended && end.encrypts_data());
        let role = if able(&self.source) { Role::Destination } else { Role::Source };
        let fault = Fault::new(FaultCode::PeerIncompatible, "encrypt data").side(role.side());
        let why = "it cannot encrypt data connections with the other end; use gsiftp:// at both ends, or whimbrel:// or ftps:// and Whimbrel servers";
        (role, fault.detail(why))
    }
}

impl End {
    /// Whether it has something of its login to show on data connections.
    fn proves_by_login(&self) -> bool {
        match self {
            Self::Remote(remote) => remote.handed_on(),
            Self::Local(local) => local.credential().is_some(),
        }
    }

    /// Whether it may be given a credential for data connections: never in clear.
    fn takes_credential(&self) -> bool {
        self.remote().is_none_or(|remote| remote.features.has("DCSC") && remote.protection().is_some())
    }

    /// Has its data connections show a credential; one that takes none must show one of the same person anyway.
    async fn show_on_data(&mut self, credential: &Arc<Credential>) -> Result<(), Fault> {
        if !self.takes_credential() {
            let same = self.credential().is_some_and(|own| own.is_same_person(credential));
            let why = "it takes no credential for data connections (DCSC over a protected login), and has none of that person";
            let lacking = || Fault::new(FaultCode::PeerIncompatible, OP).detail(why);
            return (same && self.proves_by_login()).then_some(()).ok_or_else(lacking);
        }
        match self {
            Self::Remote(remote) => remote.show_on_data(credential),
            Self::Local(local) => local.run(Op::DataCredential(Some(credential.pem()?))).await.map(drop),
        }
    }
}

/// What both ends are able to.
#[derive(Debug, Clone, Copy)]
struct Can {
    /// Show what they have of their logins.
    prove: bool,
    /// Show what they are given.
    take: bool,
}

/// `logins`: the credentials of both, where both have one. Without them nothing is proven, unless it has to be.
fn common(logins: Option<(&Credential, &Credential)>, can: Can, needed: bool) -> Option<Common> {
    match logins {
        Some((source, destination)) if can.prove && source.is_same_person(destination) => Some(Common::Person),
        Some(_) if can.take => Some(Common::Given),
        Some((source, destination)) if can.prove => {
            Some(Common::Names(source.identity.clone(), destination.identity.clone()))
        }
        None if can.take && needed => Some(Common::Given),
        _ => None,
    }
}

/// A credential that vouches for itself: certificate, key, and the certificate again as its own authority (GCT practice).
///
/// Without extensions: OpenSSL would not find it to be its own issuer if it said what its key is for, and Globus' programs take no authority's.
fn for_one_session() -> Result<Credential, TrustFault> {
    const NAME: &str = "/O=Whimbrel/CN=data connections of one session";
    let (key, name, life) = (make::key(KeyKind::Rsa(2048))?, make::name(NAME)?, Life::of(now(), SESSION));
    let certificate = Draft::new(name.clone(), name, life)?.sign(&key, &key)?;
    let own = OwnChain { chain: vec![certificate.clone()], certificate, key };
    let (kind, place) = ("certificate", "memory".to_owned());
    Ok(Credential { own, identity: NAME.to_owned(), kind, place, until: life.until })
}

#[cfg(test)]
mod tests {
    use whimbrel_trust::make::Purpose;

    use super::*;

    fn credential(identity: &str) -> Credential {
        let key = make::key(KeyKind::P256).unwrap();
        let certificate = make::self_signed(identity, &key, &Purpose::Person, Life::of(now(), 60)).unwrap();
        let own = OwnChain { certificate, key, chain: Vec::new() };
        Credential { own, identity: identity.into(), kind: "proxy", place: String::new(), until: now() }
    }

    #[test]
    fn different_people_get_a_credential_for_the_session_or_are_told_whom_to_expect() {
        let (alice, bob) = (credential("/O=Grid/CN=alice"), credential("/O=Grid/CN=bob"));
        let can = |prove, take| Can { prove, take };
        let same = credential("/O=Grid/CN=Alice");
        assert_eq!(common(Some((&alice, &same)), can(true, true), false), Some(Common::Person), "names as in RFC 5280");
        assert_eq!(common(Some((&alice, &bob)), can(true, true), false), Some(Common::Given));
        let names = Common::Names(alice.identity.clone(), bob.identity.clone());
        assert_eq!(common(Some((&alice, &bob)), can(true, false), false), Some(names));
    }

    #[test]
    fn ends_that_were_handed_nothing_get_a_credential_for_the_session_or_prove_nothing() {
        let (alice, can) = (credential("/O=Grid/CN=alice"), |take| Can { prove: false, take });
        assert_eq!(common(Some((&alice, &alice)), can(true), false), Some(Common::Given));
        assert_eq!(common(Some((&alice, &alice)), can(false), true), None);
        assert_eq!(common(None, can(true), true), Some(Common::Given));
        assert_eq!(common(None, can(true), false), None);
    }

    #[test]
    fn a_credential_for_one_session_is_its_own_authority_and_nobody_elses() {
        let pem = || for_one_session().unwrap().pem().unwrap().0;
        let made = pem();
        let pem_text = String::from_utf8(made.clone()).unwrap();
        assert_eq!(pem_text.matches("BEGIN CERTIFICATE").count(), 2);
        assert!(pem_text.find("BEGIN RSA PRIVATE KEY") < pem_text.rfind("BEGIN CERTIFICATE"), "the order of DCSC");
        assert_ne!(pem(), made);
    }
}
