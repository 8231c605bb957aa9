//! The certificate authorities of the operating system, as web browsers trust them.

use std::sync::{Arc, OnceLock};

use openssl::error::ErrorStack;
use openssl::stack::Stack;
use openssl::x509::store::{X509Store, X509StoreBuilder};
use openssl::x509::{X509, X509PurposeId, X509Ref, X509StoreContext};
use whimbrel_engine::fault::FaultCode;
use whimbrel_proto::x509::Certificate;

use crate::fault::TrustFault;
use crate::gsi::AMBIGUOUS;
use crate::gsi::host::{self, Names};
use crate::peer::{Peer, PeerJudge};
use crate::pins::PinJudge;
use crate::verified;

/// Where the system keeps its authorities, as OpenSSL was built to know (SSL_CERT_FILE and SSL_CERT_DIR win).
#[derive(Clone)]
pub struct SystemRoots(Arc<X509Store>);

impl SystemRoots {
    /// Reads them.
    pub fn load() -> Result<Self, TrustFault> {
        built(X509PurposeId::SSL_SERVER, |store| store.set_default_paths())
    }

    /// They, read when a process first needs them, which takes some 20 ms, and kept; `None` where they cannot be read.
    pub fn shared() -> Option<Self> {
        static SHARED: OnceLock<Option<SystemRoots>> = OnceLock::new();
        let load = || Self::load().inspect_err(|fault| tracing::warn!(%fault, "no authorities of this system")).ok();
        SHARED.get_or_init(load).clone()
    }

    /// Exactly the authorities in a PEM text.
    ///
    /// # Errors
    /// `CredentialRejected`: it holds something else.
    pub fn of_pem(pem: &[u8]) -> Result<Self, TrustFault> {
        let read = X509::stack_from_pem(pem);
        read.map_err(|error| TrustFault::new(FaultCode::CredentialRejected, format!("authorities: {error}")))
            .and_then(Self::of)
    }

    /// Exactly the authorities in a PEM text; without one those of the system.
    ///
    /// # Errors
    /// `CredentialRejected`: it holds something else; the system's cannot be read.
    pub fn of_pem_or_system(pem: Option<&[u8]>) -> Result<Self, TrustFault> {
        pem.map_or_else(Self::load, Self::of_pem)
    }

    /// Exactly these authorities.
    pub fn of(authorities: Vec<X509>) -> Result<Self, TrustFault> {
        Self::for_purpose(X509PurposeId::SSL_SERVER, authorities)
    }

    fn for_purpose(purpose: X509PurposeId, authorities: Vec<X509>) -> Result<Self, TrustFault> {
        built(purpose, |store| authorities.into_iter().try_for_each(|authority| store.add_cert(authority)))
    }

    /// Whether one of them vouches for a server's chain, its names aside; the reason otherwise.
    fn vouch(&self, leaf: &X509Ref, others: &[&X509Ref]) -> Result<Result<(), String>, ErrorStack> {
        let mut chain = Stack::new()?;
        for other in others {
            chain.push((*other).to_owned())?;
        }
        X509StoreContext::new()?.init(&self.0, leaf, &chain, |context| {
            Ok(if verified::path(context)? { Ok(()) } else { Err(context.error().error_string().to_owned()) })
        })
    }
}

fn built(
    purpose: X509PurposeId,
    fill: impl FnOnce(&mut X509StoreBuilder) -> Result<(), ErrorStack>,
) -> Result<SystemRoots, TrustFault> {
    let build = || {
        let mut store = X509StoreBuilder::new()?;
        fill(&mut store)?;
        store.set_purpose(purpose)?;
        Ok(SystemRoots(Arc::new(store.build())))
    };
    build().map_err(|error: ErrorStack| internal(&error))
}

/// Gives the authorities when they are needed.
pub type Roots = dyn Fn() -> Option<SystemRoots> + Send + Sync;

/// Believes a host by its pinned key, or when authorities vouch for it.
pub struct HostJudge {
    roots: Box<Roots>,
    host: String,
    /// For hosts outside of any authority's care.
    pub pins: PinJudge,
}

impl HostJudge {
    /// A judge of one host; `roots` is asked for nothing where the key is known.
    pub fn new(roots: impl Fn() -> Option<SystemRoots> + Send + Sync + 'static, host: &str, pins: PinJudge) -> Self {
        Self { roots: Box::new(roots), host: host.to_owned(), pins }
    }
}

impl PeerJudge for HostJudge {
    fn judge(&self, leaf: &X509Ref, others: &[&X509Ref]) -> Result<Peer, TrustFault> {
        if let Some(peer) = self.pins.known(leaf, others) {
            return Ok(peer);
        }
        let vouched = (self.roots)().map(|roots| vouched(&roots, leaf, others));
        match vouched {
            Some(Ok(peer)) if is_named(leaf, &self.host)? => {
                Ok(Peer { subject: format!("host {}", self.host), ..peer })
            }
            Some(Err(fault)) if fault.code == FaultCode::Internal => Err(fault),
            _ => self.pins.judge(leaf, others),
        }
    }
}

/// Believes a host that certain authorities vouch for, and nobody else.
pub struct HostOfAuthorities {
    roots: SystemRoots,
    host: String,
}

impl HostOfAuthorities {
    /// A judge of one host, a name or an address.
    pub fn new(roots: SystemRoots, host: &str) -> Self {
        Self { roots, host: host.to_owned() }
    }
}

impl PeerJudge for HostOfAuthorities {
    fn judge(&self, leaf: &X509Ref, others: &[&X509Ref]) -> Result<Peer, TrustFault> {
        let peer = vouched(&self.roots, leaf, others)?;
        if !is_named(leaf, &self.host)? {
            let detail = format!("it is no certificate of {}", self.host);
            return Err(TrustFault::new(FaultCode::PeerIdentity, detail).about(peer.subject));
        }
        Ok(peer)
    }
}

/// Believes clients that certain authorities vouch for: people, by the subjects of their certificates.
///
/// Revocation lists are not looked at: what is taken back has to be taken out of the mapping.
pub struct ClientsOfAuthorities(SystemRoots);

impl ClientsOfAuthorities {
    /// A judge of certificates that these authorities, and those below them, have signed.
    pub fn new(authorities: Vec<X509>) -> Result<Self, TrustFault> {
        SystemRoots::for_purpose(X509PurposeId::SSL_CLIENT, authorities).map(Self)
    }
}

impl PeerJudge for ClientsOfAuthorities {
    fn judge(&self, leaf: &X509Ref, others: &[&X509Ref]) -> Result<Peer, TrustFault> {
        let peer = vouched(&self.0, leaf, others)?;
        let der = leaf.to_der().map_err(|error| internal(&error))?;
        if Certificate::parse(&der).is_ok_and(|parsed| !parsed.subject.is_ambiguous()) {
            return Ok(peer);
        }
        Err(TrustFault::new(FaultCode::CredentialRejected, AMBIGUOUS).about(peer.subject))
    }
}

/// The peer of a chain that the authorities vouch for, whatever it is called.
fn vouched(roots: &SystemRoots, leaf: &X509Ref, others: &[&X509Ref]) -> Result<Peer, TrustFault> {
    let der = leaf.to_der().map_err(|error| internal(&error))?;
    let refused = |detail: String| TrustFault::new(FaultCode::CredentialRejected, detail);
    let parsed = Certificate::parse(&der).map_err(|error| refused(format!("it cannot be read: {error}")))?;
    let (subject, until) = (parsed.subject.one_line(), parsed.not_after);
    match roots.vouch(leaf, others).map_err(|error| internal(&error))? {
        Ok(()) => Ok(Peer::plain(subject, leaf, others, until)),
        Err(reason) => Err(refused(reason).about(subject).until(until)),
    }
}

fn is_named(leaf: &X509Ref, host: &str) -> Result<bool, TrustFault> {
    let der = leaf.to_der().map_err(|error| internal(&error))?;
    Ok(Certificate::parse(&der).is_ok_and(|parsed| host::check(&parsed, host, Names::Alternative).is_ok()))
}

fn internal(error: &ErrorStack) -> TrustFault {
    TrustFault::new(FaultCode::Internal, format!("OpenSSL: {error}"))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tempfile::TempDir;
    use whimbrel_proto::x509::der::{encode, tag};
    use whimbrel_proto::x509::oid;

    use super::*;
    use crate::OwnChain;
    use crate::clock::now;
    use crate::make::{self, KeyKind, Life, Purpose};
    use crate::pins::{Fingerprint, HostName, PinVerdict, Pins};

    /// An authority, a host that it vouches for, and one with the same name that nobody vouches for.
    fn hosts() -> (X509, OwnChain, OwnChain) {
        let key = make::key(KeyKind::P256).unwrap();
        let ca = make::authority("/O=Web/CN=CA", &key, None, Life::of(now(), 9000), None).unwrap();
        let ca = OwnChain { certificate: ca, key, chain: Vec::new() };
        let host = Purpose::Host(vec![make::HostName::Dns("dtn.example.org".to_owned())]);
        let vouched = make::issue("/CN=dtn", KeyKind::P256, &host, Life::of(now(), 5000), &ca).unwrap();
        let key = make::key(KeyKind::P256).unwrap();
        let certificate = make::self_signed("/CN=dtn", &key, &host, Life::of(now(), 5000)).unwrap();
        (ca.certificate, vouched, OwnChain { certificate, key, chain: Vec::new() })
    }

    struct Judged {
        folder: TempDir,
        asked: Arc<AtomicUsize>,
        ca: X509,
    }

    impl Judged {
        fn pins(&self) -> Pins {
            Pins::new(self.folder.path().join("known_hosts"))
        }

        fn name() -> HostName {
            HostName::new("dtn.example.org", 2811).unwrap()
        }

        /// The verdict on a host, as what it is known, and how often the authorities were asked for.
        fn on(&self, host: &OwnChain) -> (Result<String, FaultCode>, Option<PinVerdict>, usize) {
            let (asked, ca) = (self.asked.clone(), self.ca.clone());
            self.asked.store(0, Ordering::Relaxed);
            let roots = move || {
                asked.fetch_add(1, Ordering::Relaxed);
                SystemRoots::of(vec![ca.clone()]).ok()
            };
            let pins = PinJudge::new(self.pins(), Self::name(), true);
            let judge = HostJudge::new(roots, "dtn.example.org", pins);
            let verdict = judge.judge(&host.certificate, &[]).map(|peer| peer.subject).map_err(|fault| fault.code);
            (verdict, judge.pins.found().map(|(_, verdict)| verdict), self.asked.load(Ordering::Relaxed))
        }
    }

    #[test]
    fn authorities_are_asked_only_where_the_key_is_not_known() {
        let (ca, vouched, alone) = hosts();
        let judged = Judged { folder: tempfile::tempdir().unwrap(), asked: Arc::default(), ca };
        let pin = |host: &OwnChain| {
            let key = Fingerprint::of(&host.certificate).unwrap();
            judged.pins().replace(&Judged::name(), &key).unwrap();
        };
        let known = || Ok("pinned dtn.example.org:2811".to_owned());
        assert_eq!(judged.on(&vouched), (Ok("host dtn.example.org".to_owned()), None, 1));
        assert_eq!(judged.on(&alone), (known(), Some(PinVerdict::First), 1), "a first visit");
        pin(&alone);
        assert_eq!(judged.on(&alone), (known(), Some(PinVerdict::Same), 0));
        // Whom an authority vouches for may have a new key.
        assert_eq!(judged.on(&vouched), (Ok("host dtn.example.org".to_owned()), None, 1));
        pin(&vouched);
        assert_eq!(judged.on(&vouched), (known(), Some(PinVerdict::Same), 0));
        let (verdict, found, asked) = judged.on(&alone);
        assert_eq!((verdict, asked), (Err(FaultCode::PeerIdentity), 1), "neither known nor vouched for");
        assert!(matches!(found, Some(PinVerdict::Changed { .. })));
    }

    #[test]
    fn a_host_that_was_vouched_for_may_have_a_new_key_and_none_that_nobody_vouches_for() {
        let (ca, vouched, alone) = hosts();
        let judged = Judged { folder: tempfile::tempdir().unwrap(), asked: Arc::default(), ca };
        judged.pins().remember_vouched(&Judged::name()).unwrap();
        assert_eq!(judged.on(&vouched), (Ok("host dtn.example.org".to_owned()), None, 1));
        let found = Some(PinVerdict::Vouched { line: 1 });
        assert_eq!(judged.on(&alone), (Err(FaultCode::PeerIdentity), found, 1));
    }

    #[test]
    fn a_person_whose_name_reads_as_another_ones_is_refused() {
        let (key, life) = (make::key(KeyKind::P256).unwrap(), Life::of(now(), 5000));
        let ca = make::authority("/O=Web/CN=CA", &key, None, life, None).unwrap();
        let ca = OwnChain { certificate: ca, key, chain: Vec::new() };
        let judge = ClientsOfAuthorities::new(vec![ca.certificate.clone()]).unwrap();
        // The same bytes in an IA5String, and in a BMPString of two characters.
        for (kind, believed) in [(tag::IA5_STRING, Ok("/CN=alic".to_owned())), (tag::BMP_STRING, Err(AMBIGUOUS))] {
            let common =
                encode(tag::SEQUENCE, &[&encode(tag::OID, &[oid::COMMON_NAME.bytes()]), &encode(kind, &[b"alic"])]);
            let subject = encode(tag::SEQUENCE, &[&encode(tag::SET, &[&common])]);
            let key = make::key(KeyKind::P256).unwrap();
            let leaf = make::certify(&subject, &key, &Purpose::Person, life, &ca).unwrap();
            let judged = judge.judge(&leaf, &[]).map(|peer| peer.subject).map_err(|fault| fault.detail);
            assert_eq!(judged, believed.map_err(str::to_owned));
        }
    }

    #[test]
    fn a_file_of_keys_that_cannot_be_read_matters_to_who_has_no_authority_only() {
        let (ca, vouched, alone) = hosts();
        let judged = Judged { folder: tempfile::tempdir().unwrap(), asked: Arc::default(), ca };
        std::fs::create_dir(judged.pins().path()).unwrap();
        assert_eq!(judged.on(&vouched).0, Ok("host dtn.example.org".to_owned()));
        assert!(judged.on(&alone).0.is_err());
    }
}
