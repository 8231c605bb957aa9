//! How the data connections between two ends prove who they are, and whether they are encrypted.
//!
//! Between ends that know nonces, the nonce is the proof: no certificates, one round trip. Grid servers of other kinds show what was handed
//! on to them (DCAU A). Where that differs, both are given one credential that was made for this session and is good for
//! nothing else (DCSC), or, where one takes none, are told whom to expect (DCAU S). A credential of one site never goes to another.

use whimbrel_engine::{Fault, FaultCode, Side};
use whimbrel_proto::command::Secret;
use whimbrel_proto::op::{GsiPeer, Level, Mode, Shield};
use whimbrel_trust::clock::now;
use whimbrel_trust::make::{self, Draft, KeyKind, Life};
use whimbrel_trust::{OwnChain, TrustFault};

use super::end::End;
use super::grid::Credential;
use super::pair::{Pair, Role};

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
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Common {
    /// A credential of the same person.
    Person,
    /// A credential that both are given.
    Given,
    /// Nothing but names.
    Names,
}

impl Pair {
    /// Agrees on the protection of the next data connections.
    ///
    /// # Errors
    /// `PeerIncompatible` where encryption is wanted and cannot be had; at the end that lacks it.
    pub(super) fn accord(&mut self, mode: Mode, encrypt: bool) -> Result<Accord, (Role, Fault)> {
        let nonce = mode == Mode::Extended && self.own_pair();
        let own = nonce && (!encrypt || (self.source.encrypts_data() && self.destination.encrypts_data()));
        let (source, destination) = (self.source.credential().cloned(), self.destination.credential().cloned());
        match (source, destination) {
            _ if own => Ok(Accord::both(true, if encrypt { Shield::Nonce } else { Shield::None })),
            (Some(source), Some(destination)) => {
                let level = if encrypt { Level::Private } else { Level::Clear };
                self.certified(&source, &destination, level).map_err(|fault| (Role::Destination, fault))
            }
            (source, destination) if encrypt => Err(self.lacking(mode, source.is_some(), destination.is_some())),
            _ => Ok(Accord::both(nonce, Shield::None)),
        }
    }

    /// Both ends have certificates.
    fn certified(&mut self, source: &Credential, destination: &Credential, level: Level) -> Result<Accord, Fault> {
        let takes = |end: &End| end.remote().is_some_and(|remote| remote.features.has("DCSC"));
        let given = takes(&self.source) && takes(&self.destination);
        let subject = |of: &Credential| Shield::Gsi { peer: GsiPeer::Subject(of.identity.clone()), level };
        Ok(match common(source, destination, given) {
            Common::Person => Accord::both(false, Shield::Gsi { peer: GsiPeer::Own, level }),
            Common::Given => {
                self.give_credential()?;
                Accord::both(false, Shield::Gsi { peer: GsiPeer::Own, level })
            }
            Common::Names => Accord { nonce: false, source: subject(destination), destination: subject(source) },
        })
    }

    /// Gives both servers a credential for the data connections between them, once.
    fn give_credential(&mut self) -> Result<(), Fault> {
        if self.given {
            return Ok(());
        }
        let made = for_one_session().map_err(|fault| fault.into_fault("protect data", Side::Us))?;
        for end in [&mut self.source, &mut self.destination] {
            if let End::Remote(remote) = end {
                remote.show_on_data(made.clone());
            }
        }
        self.given = true;
        Ok(())
    }

    /// Who cannot encrypt, and what to do about it.
    fn lacking(&self, mode: Mode, source: bool, destination: bool) -> (Role, Fault) {
        let able = |end: &End, certified: bool| certified || (mode == Mode::Extended && end.encrypts_data());
        let role = match (able(&self.source, source), able(&self.destination, destination)) {
            (false, _) => Role::Source,
            _ => Role::Destination,
        };
        let fault = Fault::new(FaultCode::PeerIncompatible, "encrypt data").side(role.side());
        let why = "it cannot encrypt data connections with the other end; use gsiftp:// at both ends, or whimbrel:// or ftps:// and Whimbrel servers";
        (role, fault.detail(why))
    }
}

fn common(source: &Credential, destination: &Credential, given: bool) -> Common {
    match (source.is_same_person(destination), given) {
        (true, _) => Common::Person,
        (false, true) => Common::Given,
        (false, false) => Common::Names,
    }
}

/// A credential that vouches for itself: certificate, key, and the certificate again as its own authority (GCT practice).
///
/// Without extensions: OpenSSL would not find it to be its own issuer if it said what its key is for, and Globus' programs take no authority's.
fn for_one_session() -> Result<Secret, TrustFault> {
    let key = make::key(KeyKind::Rsa(2048))?;
    let name = make::name("/O=Whimbrel/CN=data connections of one session")?;
    let certificate = Draft::new(name.clone(), name, Life::of(now(), SESSION))?.sign(&key, &key)?;
    let own = OwnChain { chain: vec![certificate.clone()], certificate, key };
    Ok(Secret(make::to_pem(&own)?.to_vec()))
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
        assert_eq!(
            common(&alice, &credential("/O=Grid/CN=Alice"), true),
            Common::Person,
            "names compare as in RFC 5280"
        );
        assert_eq!(common(&alice, &bob, true), Common::Given);
        assert_eq!(common(&alice, &bob, false), Common::Names);
    }

    #[test]
    fn a_credential_for_one_session_is_its_own_authority_and_nobody_elses() {
        let pem = String::from_utf8(for_one_session().unwrap().0).unwrap();
        assert_eq!(pem.matches("BEGIN CERTIFICATE").count(), 2);
        assert!(pem.find("BEGIN RSA PRIVATE KEY") < pem.rfind("BEGIN CERTIFICATE"), "the order of DCSC");
        assert_ne!(for_one_session().unwrap().0, pem.into_bytes());
    }
}
