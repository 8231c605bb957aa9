//! What we show: certificates, keys and proxies read from their files, with the reasons why one cannot be used.

use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use openssl::pkcs12::Pkcs12;
use openssl::pkey::{PKey, Private};
use openssl::x509::{X509, X509Ref};
use whimbrel_engine::fault::FaultCode;
use whimbrel_proto::timeval::Timestamp;
use whimbrel_proto::x509::{Certificate, Kind, Policy};
use zeroize::Zeroizing;

use crate::fault::TrustFault;
use crate::peer::OwnChain;
use crate::places::{Places, Source};

/// Largest file that is read, bytes.
const MOST_BYTES: u64 = 1 << 20;

/// Most certificates of a file.
const MOST_CERTIFICATES: usize = 64;

/// A credential and where it was found.
#[derive(Debug, Clone)]
pub struct Found {
    /// The credential.
    pub own: OwnChain,
    /// Its files.
    pub source: Source,
}

/// Gives the passphrase of a file; `None`: nobody can be asked.
pub type Unlock<'a> = dyn Fn(&Path) -> Option<Zeroizing<String>> + 'a;

/// The credential of a person: the first that is there, proxy before certificate.
///
/// One that is there but cannot be used is a fault; `now` tells what has expired.
pub fn person(places: &Places<'_>, now: Timestamp, unlock: &Unlock<'_>) -> Result<Found, TrustFault> {
    first(&places.person(), places.uid(), now, unlock)
}

/// The credential of a host: its own, or that of the person who starts a server without having one.
pub fn host(places: &Places<'_>, now: Timestamp) -> Result<Found, TrustFault> {
    let sources = [places.host(), places.person()].concat();
    first(&sources, places.uid(), now, &|_| None)
}

fn first(sources: &[Source], uid: u32, now: Timestamp, unlock: &Unlock<'_>) -> Result<Found, TrustFault> {
    let mut looked: Vec<String> = Vec::new();
    for source in sources {
        match load(source, uid, unlock) {
            Ok(own) => {
                alive(&own, now)
                    .map_err(|fault| TrustFault { detail: format!("{} ({source})", fault.detail), ..fault })?;
                return Ok(Found { own, source: source.clone() });
            }
            Err(Missing::Nothing) if !looked.contains(&source.to_string()) => looked.push(source.to_string()),
            Err(Missing::Nothing) => {}
            Err(Missing::Unusable(fault)) => return Err(fault),
        }
    }
    let detail = format!("there is no certificate or proxy; looked for {}", looked.join(", "));
    Err(TrustFault::new(FaultCode::CredentialMissing, detail))
}

/// Reads one source whose files must be there.
pub fn read(source: &Source, uid: u32, unlock: &Unlock<'_>) -> Result<OwnChain, TrustFault> {
    load(source, uid, unlock).map_err(|missing| match missing {
        Missing::Nothing => {
            let fault = TrustFault::new(FaultCode::CredentialMissing, "there is no such file");
            fault.about(source.to_string())
        }
        Missing::Unusable(fault) => fault,
    })
}

/// The certificate, key and certificates above it of a PEM text, as proxies and the `DCSC` command have it.
pub fn from_pem(pem: &[u8]) -> Result<OwnChain, TrustFault> {
    let certificates = certificates(pem, "")?;
    let key = private_key(pem, "", &|| None)?;
    assemble(certificates, key, "")
}

/// Says when a credential or one above it has expired, or is not good yet.
pub fn alive(own: &OwnChain, now: Timestamp) -> Result<(), TrustFault> {
    let chain = std::iter::once(&own.certificate).chain(&own.chain);
    for certificate in chain {
        let der = certificate.to_der().map_err(|error| refused("", &error.to_string()))?;
        let read = Certificate::parse(&der).map_err(|error| refused("", &error.to_string()))?;
        if now > read.not_after {
            let fault = TrustFault::new(FaultCode::CredentialExpired, "its life is over");
            return Err(fault.about(read.subject.one_line()).until(read.not_after));
        }
        if now < read.not_before {
            let detail = format!("it is not good before {} UTC; is the clock right?", read.not_before);
            return Err(refused(&read.subject.one_line(), &detail));
        }
    }
    Ok(())
}

/// Whom a credential speaks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holder {
    /// Subject of the person, in one-line form; of an independent proxy its own.
    pub identity: String,
    /// What it is, for people: `proxy`, `limited proxy`, `independent proxy`, `certificate`.
    pub kind: &'static str,
    /// Earliest end of life in the chain.
    pub until: Timestamp,
}

/// Whom a credential speaks for, what it is, and until when it is good.
///
/// # Errors
/// `CredentialRejected`: it is an authority's, or the certificate of the person is missing.
pub fn holder(own: &OwnChain) -> Result<Holder, TrustFault> {
    let mut first = None;
    let mut until = None;
    for certificate in std::iter::once(&own.certificate).chain(&own.chain) {
        let der = certificate.to_der().map_err(|error| refused("", &error.to_string()))?;
        let read = Certificate::parse(&der).map_err(|error| refused("", &error.to_string()))?;
        let end = until.map_or(read.not_after, |end: Timestamp| end.min(read.not_after));
        until = Some(end);
        let subject = || read.subject.one_line();
        let found = |kind| Ok(Holder { identity: subject(), kind, until: end });
        match read.kind().map_err(|error| refused(&subject(), &error.to_string()))? {
            Kind::Proxy { policy: Policy::Independent, .. } => return found("independent proxy"),
            Kind::Proxy { policy, .. } => {
                let word = if policy == Policy::Limited { "limited proxy" } else { "proxy" };
                first.get_or_insert(word);
            }
            Kind::EndEntity => return found(first.unwrap_or("certificate")),
            Kind::Ca => return Err(refused(&subject(), "the certificate of an authority is nobody's")),
        }
    }
    Err(refused("", "the proxy is there, but not the certificate of the person it was made for"))
}

enum Missing {
    /// No file.
    Nothing,
    /// A file that cannot be used.
    Unusable(TrustFault),
}

impl From<TrustFault> for Missing {
    fn from(fault: TrustFault) -> Self {
        Self::Unusable(fault)
    }
}

fn load(source: &Source, uid: u32, unlock: &Unlock<'_>) -> Result<OwnChain, Missing> {
    match source {
        Source::Proxy(place) => {
            let text = contents(&place.path, uid, Secrecy::Secret)?;
            let place = place.to_string();
            let key = private_key(&text, &place, &|| None)?;
            Ok(assemble(certificates(&text, &place)?, key, &place)?)
        }
        Source::Pair(certificate, key) => {
            let same = certificate.path == key.path;
            let secrecy = if same { Secrecy::Secret } else { Secrecy::Public };
            let text = contents(&certificate.path, uid, secrecy)?;
            // A certificate without its key is half a credential, not none.
            let secret = contents(&key.path, uid, Secrecy::Secret).map_err(|missing| match missing {
                Missing::Nothing => {
                    let detail = format!("{certificate} is there, but its key is not");
                    TrustFault::new(FaultCode::CredentialMissing, detail).about(key.to_string()).into()
                }
                other => other,
            })?;
            let unlocked = private_key(&secret, &key.to_string(), &|| unlock(&key.path))?;
            let place = certificate.to_string();
            Ok(assemble(certificates(&text, &place)?, unlocked, &place)?)
        }
        Source::Bundle(place) => {
            let bytes = contents(&place.path, uid, Secrecy::Secret)?;
            Ok(bundle(&bytes, &place.to_string(), &|| unlock(&place.path))?)
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Secrecy {
    /// Others may read it but not change it.
    Public,
    /// Others may do nothing with it.
    Secret,
}

/// The bytes of a file that belongs to the account, or to root, and that others cannot misuse.
fn contents(path: &Path, uid: u32, secrecy: Secrecy) -> Result<Zeroizing<Vec<u8>>, Missing> {
    let place = path.display().to_string();
    let unreadable = |error: io::Error| match error.kind() {
        ErrorKind::NotFound | ErrorKind::NotADirectory => Missing::Nothing,
        _ => Missing::Unusable(refused(&place, &format!("it cannot be read: {error}"))),
    };
    let wrong = |detail: &str| Err(Missing::Unusable(refused(&place, detail)));
    // Asked first: opening a pipe would wait for its writer.
    if !std::fs::metadata(path).map_err(unreadable)?.is_file() {
        return wrong("it is not a file");
    }
    let mut file = File::open(path).map_err(unreadable)?;
    // Of the open file: what the name leads to may change.
    let meta = file.metadata().map_err(unreadable)?;
    if meta.uid() != uid && meta.uid() != 0 {
        return wrong("it belongs to somebody else");
    }
    let forbidden = if secrecy == Secrecy::Secret { 0o077 } else { 0o022 };
    if meta.mode() & forbidden != 0 {
        let may = if secrecy == Secrecy::Secret { "others may read it" } else { "others may change it" };
        let cure = if secrecy == Secrecy::Secret { "chmod 600" } else { "chmod 644" };
        return wrong(&format!("{may} (mode {:04o}): {cure} {place}", meta.mode() & 0o7777));
    }
    if meta.len() > MOST_BYTES {
        return wrong("it is too long to be a credential");
    }
    let mut bytes = Zeroizing::new(Vec::with_capacity(meta.len() as usize + 1));
    file.by_ref().take(MOST_BYTES).read_to_end(&mut bytes).map_err(unreadable)?;
    Ok(bytes)
}

fn certificates(pem: &[u8], place: &str) -> Result<Vec<X509>, TrustFault> {
    let found = X509::stack_from_pem(pem).map_err(|_| refused(place, "it holds no readable certificate"))?;
    match found.len() {
        0 => Err(refused(place, "it holds no certificate")),
        1..=MOST_CERTIFICATES => Ok(found),
        _ => Err(refused(place, "it holds too many certificates")),
    }
}

fn private_key(
    pem: &[u8],
    place: &str,
    unlock: &dyn Fn() -> Option<Zeroizing<String>>,
) -> Result<PKey<Private>, TrustFault> {
    let locked = contains(pem, b"ENCRYPTED");
    let phrase = if locked { unlock() } else { None };
    if locked && phrase.is_none() {
        return Err(TrustFault::new(
            FaultCode::CredentialMissing,
            "its key is locked, and nobody is there to give the passphrase",
        )
        .about(place));
    }
    // An empty passphrase keeps OpenSSL from asking the terminal.
    let phrase = phrase.unwrap_or_default();
    PKey::private_key_from_pem_passphrase(pem, phrase.as_bytes()).map_err(|_| match locked {
        true => refused(place, "the passphrase is wrong, or the key is damaged"),
        false => refused(place, "it holds no readable private key"),
    })
}

fn contains(text: &[u8], word: &[u8]) -> bool {
    text.windows(word.len()).any(|window| window == word)
}

fn bundle(bytes: &[u8], place: &str, unlock: &dyn Fn() -> Option<Zeroizing<String>>) -> Result<OwnChain, TrustFault> {
    let bundle = Pkcs12::from_der(bytes).map_err(|_| refused(place, "it is not a PKCS#12 file"))?;
    let parsed = match bundle.parse2("") {
        Ok(parsed) => parsed,
        Err(_) => {
            let missing = "it is locked, and nobody is there to give the passphrase";
            let phrase = unlock().ok_or_else(|| TrustFault::new(FaultCode::CredentialMissing, missing).about(place))?;
            bundle.parse2(&phrase).map_err(|_| {
                refused(place, "the passphrase is wrong, or it is locked in a way (RC2) that OpenSSL 3 no longer opens")
            })?
        }
    };
    let (Some(certificate), Some(key)) = (parsed.cert, parsed.pkey) else {
        return Err(refused(place, "it does not hold a certificate with its key"));
    };
    let above = parsed.ca.into_iter().flatten();
    assemble(std::iter::once(certificate).chain(above).collect(), key, place)
}

/// The first certificate is the one whose key this must be.
fn assemble(certificates: Vec<X509>, key: PKey<Private>, place: &str) -> Result<OwnChain, TrustFault> {
    let mut certificates = certificates.into_iter();
    let certificate = certificates.next().ok_or_else(|| refused(place, "it holds no certificate"))?;
    if !belongs(&certificate, &key) {
        return Err(refused(place, "certificate and key do not belong together"));
    }
    let same = |one: &X509Ref, other: &X509Ref| one.to_der().ok() == other.to_der().ok();
    // DCSC repeats a self-signed certificate as its own anchor: that one stays.
    let repeated = certificate.issuer_name().try_cmp(certificate.subject_name()).is_ok_and(|order| order.is_eq());
    let chain = certificates.filter(|above| repeated || !same(above, &certificate)).collect();
    Ok(OwnChain { certificate, key, chain })
}

fn belongs(certificate: &X509Ref, key: &PKey<Private>) -> bool {
    certificate.public_key().is_ok_and(|public| public.public_eq(key))
}

fn refused(place: &str, detail: &str) -> TrustFault {
    TrustFault::new(FaultCode::CredentialRejected, detail).about(place)
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;
    use std::path::PathBuf;

    use openssl::symm::Cipher;
    use tempfile::TempDir;
    use whimbrel_proto::x509::Policy;

    use super::*;
    use crate::make::{self, KeyKind, Life, ProxyKind, Purpose};

    fn now() -> Timestamp {
        Timestamp::parse(b"20261122000000").unwrap()
    }

    struct Home(TempDir, u32);

    impl Home {
        fn new() -> Self {
            let home = tempfile::tempdir().unwrap();
            let uid = fs::metadata(home.path()).unwrap().uid();
            fs::create_dir(home.path().join(".globus")).unwrap();
            Self(home, uid)
        }

        fn put(&self, name: &str, bytes: &[u8], mode: u32) -> PathBuf {
            let path = self.0.path().join(name);
            fs::write(&path, bytes).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            path
        }

        fn person(&self, unlock: &Unlock<'_>) -> Result<Found, TrustFault> {
            let proxy: OsString = self.0.path().join("proxy").into();
            let look = |name: &str| match name {
                "HOME" => Some(self.0.path().into()),
                "X509_USER_PROXY" => Some(proxy.clone()),
                _ => None,
            };
            person(&Places::new(&look, self.1), now(), unlock)
        }
    }

    fn user() -> OwnChain {
        let key = make::key(KeyKind::P256).unwrap();
        let certificate = make::authority("/O=Grid/CN=CA", &key, None, Life::of(now(), 9000), None).unwrap();
        let ca = OwnChain { certificate, key, chain: Vec::new() };
        make::issue("/O=Grid/CN=alice", KeyKind::P256, &Purpose::Person, Life::of(now(), 5000), &ca).unwrap()
    }

    fn proxy(user: &OwnChain, seconds: i64) -> Vec<u8> {
        let kind = ProxyKind::rfc(Policy::InheritAll);
        let made = make::own_proxy(user, KeyKind::P256, &kind, Life::of(now(), seconds)).unwrap();
        make::to_pem(&made).unwrap().to_vec()
    }

    #[test]
    fn a_proxy_is_found_with_the_certificates_above_it() {
        let home = Home::new();
        let path = home.put("proxy", &proxy(&user(), 100), 0o600);
        let found = home.person(&|_| None).unwrap();
        assert_eq!((found.own.chain.len(), found.source.certificate()), (1, path.as_path()));
        home.put("proxy", &fs::read(&path).unwrap(), 0o400);
        assert!(home.person(&|_| None).is_ok());
    }

    #[test]
    fn what_was_looked_for_where_is_told() {
        let home = Home::new();
        let fault = home.person(&|_| None).unwrap_err();
        assert_eq!(fault.code, FaultCode::CredentialMissing);
        for place in ["proxy (X509_USER_PROXY)", ".globus/usercert.pem and ", ".globus/usercred.p12"] {
            assert!(fault.detail.contains(place), "{fault}");
        }
        let source = Source::Bundle(crate::places::Place { path: home.0.path().join("none"), variable: None });
        assert_eq!(read(&source, home.1, &|_| None).unwrap_err().code, FaultCode::CredentialMissing);
    }

    #[test]
    fn files_that_others_can_misuse_are_refused_with_the_cure() {
        let home = Home::new();
        let user = user();
        let path = home.put("proxy", &proxy(&user, 100), 0o644);
        let fault = home.person(&|_| None).unwrap_err();
        assert_eq!(fault.detail, format!("others may read it (mode 0644): chmod 600 {}", path.display()));
        fs::remove_file(&path).unwrap();
        home.put(".globus/usercert.pem", &user.certificate.to_pem().unwrap(), 0o666);
        home.put(".globus/userkey.pem", &make::key_pem(&user.key).unwrap(), 0o600);
        assert!(home.person(&|_| None).unwrap_err().detail.starts_with("others may change it (mode 0666)"));
        home.put(".globus/usercert.pem", &user.certificate.to_pem().unwrap(), 0o644);
        assert!(home.person(&|_| None).is_ok());
        let place = crate::places::Place { path: home.put("other", &proxy(&user, 100), 0o600), variable: None };
        let mut uid = home.1.wrapping_add(1);
        if home.1 == 0 {
            // Files of root are everybody's to use: another's is needed.
            std::os::unix::fs::chown(&place.path, Some(12345), None).unwrap();
            uid = 0;
        }
        let fault = read(&Source::Proxy(place), uid, &|_| None).unwrap_err();
        assert_eq!(fault.detail, "it belongs to somebody else");
        fs::remove_file(home.0.path().join(".globus/userkey.pem")).unwrap();
        let fault = home.person(&|_| None).unwrap_err();
        assert!(fault.code == FaultCode::CredentialMissing && fault.detail.ends_with("is there, but its key is not"));
    }

    #[test]
    fn locked_keys_ask_for_their_passphrase() {
        let home = Home::new();
        let user = user();
        let locked = user.key.private_key_to_pem_pkcs8_passphrase(Cipher::aes_256_cbc(), b"secret").unwrap();
        home.put(".globus/usercert.pem", &user.certificate.to_pem().unwrap(), 0o644);
        home.put(".globus/userkey.pem", &locked, 0o600);
        assert!(home.person(&|_| Some(Zeroizing::new("secret".into()))).is_ok());
        let wrong = home.person(&|_| Some(Zeroizing::new("wrong".into()))).unwrap_err();
        assert_eq!(wrong.detail, "the passphrase is wrong, or the key is damaged");
        assert_eq!(home.person(&|_| None).unwrap_err().code, FaultCode::CredentialMissing);
    }

    #[test]
    fn bundles_hold_certificate_and_key() {
        let home = Home::new();
        let user = user();
        let mut builder = Pkcs12::builder();
        builder.name("alice").pkey(&user.key).cert(&user.certificate);
        for (phrase, given, good) in
            [("secret", Some("secret"), true), ("secret", Some("x"), false), ("secret", None, false), ("", None, true)]
        {
            let bytes = builder.build2(phrase).unwrap().to_der().unwrap();
            home.put(".globus/usercred.p12", &bytes, 0o600);
            let found = home.person(&|_| given.map(|phrase| Zeroizing::new(phrase.to_owned())));
            assert_eq!(found.is_ok(), good, "{phrase:?} {given:?}: {found:?}");
        }
        home.put(".globus/usercred.p12", b"no", 0o600);
        assert_eq!(home.person(&|_| None).unwrap_err().detail, "it is not a PKCS#12 file");
    }

    #[test]
    fn damaged_foreign_and_expired_credentials_are_told_apart() {
        let home = Home::new();
        let user = user();
        let stranger = proxy(&self::user(), 100);
        let own = proxy(&user, 100);
        let key_start = |pem: &[u8]| {
            pem.windows(11)
                .position(|word| word == b"-----BEGIN ")
                .map(|_| ())
                .and(pem.windows(18).position(|word| word == b"-----BEGIN PRIVATE"))
                .unwrap()
        };
        let mixed = [&own[..key_start(&own)], &stranger[key_start(&stranger)..]].concat();
        for (bytes, detail) in [
            (&b""[..], "it holds no readable private key"),
            (&user.certificate.to_pem().unwrap(), "it holds no readable private key"),
            (&make::key_pem(&user.key).unwrap(), "it holds no certificate"),
            (&mixed, "certificate and key do not belong together"),
            (&vec![b'x'; 2 << 20], "it is too long to be a credential"),
        ] {
            home.put("proxy", bytes, 0o600);
            let fault = home.person(&|_| None).unwrap_err();
            assert_eq!((fault.code, fault.detail.as_str()), (FaultCode::CredentialRejected, detail));
        }
        home.put("proxy", &proxy(&user, -100), 0o600);
        let fault = home.person(&|_| None).unwrap_err();
        assert_eq!(
            (fault.code, fault.until),
            (FaultCode::CredentialExpired, Some(Timestamp::from_secs(now().secs - 100)))
        );
        assert!(fault.detail.contains("X509_USER_PROXY"), "{fault}");
        let early = alive(&from_pem(&own).unwrap(), Timestamp::from_secs(0)).unwrap_err();
        assert!(early.detail.contains("is the clock right?"));
        fs::remove_file(home.0.path().join("proxy")).unwrap();
        fs::create_dir(home.0.path().join("proxy")).unwrap();
        assert_eq!(home.person(&|_| None).unwrap_err().detail, "it is not a file");
    }

    #[test]
    fn a_server_takes_a_hosts_credential_before_a_persons() {
        let home = Home::new();
        let user = user();
        home.put("proxy", &proxy(&user, 100), 0o600);
        let look = |name: &str| match name {
            "HOME" => Some(home.0.path().into()),
            "X509_USER_PROXY" => Some(home.0.path().join("proxy").into()),
            _ => None,
        };
        let places = Places::new(&look, home.1);
        assert!(host(&places, now()).unwrap().source.certificate().ends_with("proxy"));
        home.put(".globus/hostcert.pem", &user.certificate.to_pem().unwrap(), 0o644);
        home.put(".globus/hostkey.pem", &make::key_pem(&user.key).unwrap(), 0o600);
        assert!(host(&places, now()).unwrap().source.certificate().ends_with(".globus/hostcert.pem"));
    }

    #[test]
    fn a_self_signed_certificate_stays_its_own_anchor() {
        let key = make::key(KeyKind::P256).unwrap();
        let certificate = make::self_signed("/CN=dcsc", &key, &Purpose::Person, Life::of(now(), 10)).unwrap();
        let own = OwnChain { chain: vec![certificate.clone()], certificate, key };
        assert_eq!(from_pem(&make::to_pem(&own).unwrap()).unwrap().chain.len(), 1);
    }
}
