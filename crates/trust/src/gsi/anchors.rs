//! The directory of trusted authorities: `<hash>.0`, `<hash>.signing_policy`, `<hash>.r0`, as grids have it.
//!
//! Authorities are found by their subjects; the hash in a file's name only ties its policy to it.

use std::collections::{BTreeMap, HashMap};
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, RwLock};
use std::time::{Duration, Instant};

use openssl::x509::X509;
use whimbrel_engine::fault::FaultCode;
use whimbrel_proto::x509::policy::SigningPolicy;
use whimbrel_proto::x509::{Certificate, Name};

use super::crl::RevocationList;
use crate::fault::TrustFault;
use crate::peer::OwnChain;
use crate::places::Place;
use crate::verified::Signed;

/// Largest certificate or policy, and largest revocation list, that is read, bytes.
const MOST_BYTES: u64 = 1 << 20;
const MOST_LIST_BYTES: u64 = 64 << 20;

/// How long the directory is believed to be as it was.
const FRESH: Duration = Duration::from_secs(60);

/// Most authorities above a certificate that are looked for.
const MOST_ABOVE: usize = 8;

/// The authorities that are trusted, at one time.
#[derive(Clone, Default)]
pub struct Anchors {
    directory: Option<PathBuf>,
    /// Certificates of a user's own.
    brought: Vec<Arc<Authority>>,
    /// By the canonical form of their names.
    certificates: HashMap<Vec<u8>, Vec<Arc<Authority>>>,
    lists: HashMap<Vec<u8>, Vec<Arc<RevocationList>>>,
    /// By OpenSSL's hash of the authority's name.
    by_hash: HashMap<u32, Result<Arc<SigningPolicy>, String>>,
    /// Revocation lists that cannot be read, by the same hash.
    broken_lists: HashMap<u32, String>,
    files: BTreeMap<String, Known>,
    faults: Vec<String>,
}

/// An authority's certificate.
pub struct Authority {
    /// The certificate.
    pub certificate: X509,
    der: Vec<u8>,
    name: Vec<u8>,
}

impl Authority {
    fn new(certificate: X509) -> Result<Self, String> {
        let der = certificate.to_der().map_err(|error| error.to_string())?;
        let read = Certificate::parse(&der).map_err(|error| format!("the certificate cannot be read: {error}"))?;
        let name = read.subject.canonical();
        Ok(Self { certificate, der, name })
    }

    /// The certificate's bytes.
    pub fn der(&self) -> &[u8] {
        &self.der
    }
}

/// A file as it was when it was read.
#[derive(Clone)]
struct Known {
    stamp: Stamp,
    content: Content,
}

#[derive(Clone, PartialEq, Eq)]
struct Stamp {
    inode: u64,
    size: u64,
    modified: (i64, i64),
}

#[derive(Clone)]
enum Content {
    Certificates(Vec<Arc<Authority>>),
    Policy(Arc<SigningPolicy>),
    List(Arc<RevocationList>),
    Faulty(String),
}

/// What a file's name says it is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Role {
    Certificate,
    Policy,
    List,
}

impl Anchors {
    /// Reads a directory; files that cannot be read are [`Self::faults`], a directory that cannot is an error.
    pub fn load(directory: &Path) -> Result<Self, TrustFault> {
        Self::reload(directory, &BTreeMap::new())
    }

    /// These, and certificates that a user brought for his own data connections (DCSC).
    ///
    /// Each of them ends a chain, be it an authority's or not; authorities without a signing policy sign anything, for what they
    /// sign is the user's affair. [`Self::default`] is nobody.
    pub fn and(&self, certificates: Vec<X509>) -> Result<Self, TrustFault> {
        let mut anchors = self.clone();
        for certificate in certificates {
            let authority = Authority::new(certificate);
            let authority = authority.map_err(|reason| TrustFault::new(FaultCode::CredentialRejected, reason))?;
            anchors.brought.push(Arc::new(authority));
        }
        Ok(anchors)
    }

    /// A chain with the authorities above it, as far as they are among these: where somebody is to believe it who has never heard of them.
    ///
    /// # Errors
    /// `CredentialRejected` for a certificate that cannot be read.
    pub fn completed(&self, own: &OwnChain) -> Result<OwnChain, TrustFault> {
        let rejected = |reason: String| TrustFault::new(FaultCode::CredentialRejected, reason);
        let mut chain = own.chain.clone();
        for _ in 0..MOST_ABOVE {
            let last = chain.last().unwrap_or(&own.certificate);
            let der = last.to_der().map_err(|error| rejected(error.to_string()))?;
            let read = Certificate::parse(&der).map_err(|error| rejected(error.to_string()))?;
            let signs =
                |above: &&Arc<Authority>| above.certificate.public_key().is_ok_and(|key| last.is_signed_by(&key));
            match self.named(&read.issuer).iter().find(signs) {
                Some(above) if !read.issuer.matches(&read.subject) => chain.push(above.certificate.clone()),
                _ => break,
            }
        }
        Ok(OwnChain { chain, ..own.clone() })
    }

    fn reload(directory: &Path, before: &BTreeMap<String, Known>) -> Result<Self, TrustFault> {
        let unreadable = |error: io::Error| {
            let detail = format!("the directory of trusted authorities cannot be read: {error}");
            TrustFault::new(FaultCode::CredentialMissing, detail).about(directory.display().to_string())
        };
        let mut anchors = Self { directory: Some(directory.to_owned()), ..Self::default() };
        for entry in fs::read_dir(directory).map_err(unreadable)? {
            let name = entry.map_err(unreadable)?.file_name();
            let Some((name, hash, role)) = name.to_str().and_then(|name| Some((name, hash_of(name)?, role_of(name)?)))
            else {
                continue;
            };
            let known = read(&directory.join(name), role, before.get(name));
            anchors.take(name, hash, role, &known.content);
            anchors.files.insert(name.to_owned(), known);
        }
        Ok(anchors)
    }

    fn take(&mut self, name: &str, hash: u32, role: Role, content: &Content) {
        match content {
            Content::Certificates(list) => list.iter().for_each(|authority| self.add(authority.clone())),
            Content::List(list) => self.lists.entry(list.authority().to_vec()).or_default().push(list.clone()),
            Content::Policy(policy) => drop(self.by_hash.insert(hash, Ok(policy.clone()))),
            Content::Faulty(reason) => {
                self.faults.push(format!("{name}: {reason}"));
                match role {
                    Role::Policy => drop(self.by_hash.insert(hash, Err(reason.clone()))),
                    Role::List => drop(self.broken_lists.insert(hash, format!("{name}: {reason}"))),
                    Role::Certificate => {}
                }
            }
        }
    }

    fn add(&mut self, authority: Arc<Authority>) {
        let same = self.certificates.entry(authority.name.clone()).or_default();
        // The same file often has two names: by the new hash and by the old one.
        if !same.iter().any(|known| known.der == authority.der) {
            same.push(authority);
        }
    }

    /// The certificates of the authority with this name.
    pub fn named(&self, name: &Name<'_>) -> &[Arc<Authority>] {
        self.certificates.get(&name.canonical()).map_or(&[], Vec::as_slice)
    }

    /// What a user brought.
    pub fn brought(&self) -> &[Arc<Authority>] {
        &self.brought
    }

    /// Says why the authority may not sign for a subject; `hash` is OpenSSL's of the authority's name.
    pub fn may_sign(&self, hash: u32, authority: &str, subject: &str) -> Result<(), String> {
        let file = || format!("{hash:08x}.signing_policy");
        match self.by_hash.get(&hash) {
            None if !self.brought.is_empty() => Ok(()),
            None => Err(format!("there is no {} in {}", file(), self.place())),
            Some(Err(reason)) => Err(format!("{} cannot be used: {reason}", file())),
            Some(Ok(policy)) if policy.allows(authority, subject) => Ok(()),
            Some(Ok(_)) => Err(format!("its signing policy ({}) does not let it sign for this subject", file())),
        }
    }

    /// The revocation lists of the authority with this name.
    pub fn lists_of(&self, authority: &Name<'_>) -> &[Arc<RevocationList>] {
        self.lists.get(&authority.canonical()).map_or(&[], Vec::as_slice)
    }

    /// Why a revocation list of the authority with this hash cannot be read, if there is such a list.
    pub fn broken_list(&self, hash: u32) -> Option<&str> {
        self.broken_lists.get(&hash).map(String::as_str)
    }

    /// How many certificates are trusted.
    pub fn len(&self) -> usize {
        self.certificates.values().map(Vec::len).sum::<usize>() + self.brought.len()
    }

    /// True if nobody is trusted.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Files that could not be used, each with its reason.
    pub fn faults(&self) -> &[String] {
        &self.faults
    }

    /// Where they are from, for people.
    pub fn place(&self) -> String {
        match (&self.directory, self.brought.is_empty()) {
            (Some(directory), true) => directory.display().to_string(),
            (Some(directory), false) => format!("{} or among what the user brought", directory.display()),
            (None, _) => "what the user brought".to_owned(),
        }
    }
}

/// `1a2b3c4d.0` and the like.
fn hash_of(name: &str) -> Option<u32> {
    let (hash, _) = name.split_once('.')?;
    let hex = hash.len() == 8 && hash.bytes().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f'));
    hex.then(|| u32::from_str_radix(hash, 16).ok())?
}

fn role_of(name: &str) -> Option<Role> {
    let number = |text: &str| !text.is_empty() && text.len() < 4 && text.bytes().all(|digit| digit.is_ascii_digit());
    match name.split_once('.')?.1 {
        "signing_policy" => Some(Role::Policy),
        text if number(text) => Some(Role::Certificate),
        text if text.strip_prefix('r').is_some_and(number) => Some(Role::List),
        _ => None,
    }
}

/// A file's content, that of before if the file has not changed.
fn read(path: &Path, role: Role, before: Option<&Known>) -> Known {
    let most = if role == Role::List { MOST_LIST_BYTES } else { MOST_BYTES };
    let faulty = |reason: String| Known {
        stamp: Stamp { inode: 0, size: 0, modified: (0, 0) },
        content: Content::Faulty(reason),
    };
    // Asked first: opening a pipe would wait for its writer.
    let file = match fs::metadata(path).map(|meta| meta.is_file()) {
        Ok(true) => File::open(path),
        Ok(false) => return faulty("it is not a file".to_owned()),
        Err(error) => return faulty(error.to_string()),
    };
    let file = match file {
        Ok(file) => file,
        Err(error) => return faulty(error.to_string()),
    };
    let meta = match file.metadata() {
        Ok(meta) if meta.is_file() && meta.len() <= most => meta,
        Ok(meta) if meta.is_file() => return faulty(format!("it is longer than {} MiB", most >> 20)),
        Ok(_) => return faulty("it is not a file".to_owned()),
        Err(error) => return faulty(error.to_string()),
    };
    let stamp = Stamp { inode: meta.ino(), size: meta.len(), modified: (meta.mtime(), meta.mtime_nsec()) };
    if let Some(known) = before.filter(|known| known.stamp == stamp) {
        return known.clone();
    }
    let mut bytes = Vec::with_capacity(meta.len() as usize + 1);
    if let Err(error) = file.take(most).read_to_end(&mut bytes) {
        return faulty(error.to_string());
    }
    Known { stamp, content: parse(&bytes, role).unwrap_or_else(Content::Faulty) }
}

fn parse(bytes: &[u8], role: Role) -> Result<Content, String> {
    Ok(match role {
        Role::Certificate => {
            let list = X509::stack_from_pem(bytes).ok().filter(|list| !list.is_empty());
            let list = list.or_else(|| X509::from_der(bytes).ok().map(|one| vec![one]));
            let list = list.ok_or_else(|| "it holds no certificate".to_owned())?;
            Content::Certificates(
                list.into_iter().map(|one| Authority::new(one).map(Arc::new)).collect::<Result<_, _>>()?,
            )
        }
        Role::Policy => Content::Policy(Arc::new(SigningPolicy::parse(bytes).map_err(|fault| fault.to_string())?)),
        Role::List => Content::List(Arc::new(RevocationList::parse(bytes)?)),
    })
}

/// A directory of authorities that is read again when it has changed.
pub struct AnchorStore {
    directory: PathBuf,
    current: RwLock<Arc<Anchors>>,
    checked: Mutex<Instant>,
}

impl AnchorStore {
    /// Reads the directory, which must be there.
    pub fn open(directory: &Path, now: Instant) -> Result<Self, TrustFault> {
        let anchors = Arc::new(Anchors::load(directory)?);
        Ok(Self { directory: directory.to_owned(), current: RwLock::new(anchors), checked: Mutex::new(now) })
    }

    /// Reads the first of these directories that is there.
    pub fn open_first(places: &[Place], now: Instant) -> Result<Self, TrustFault> {
        match places.iter().find(|place| place.path.is_dir()) {
            Some(place) => Self::open(&place.path, now),
            None => {
                let looked: Vec<String> = places.iter().map(ToString::to_string).collect();
                let detail = format!("there is no directory of trusted authorities; looked for {}", looked.join(", "));
                Err(TrustFault::new(FaultCode::CredentialMissing, detail))
            }
        }
    }

    /// The authorities as they were at most a minute ago.
    pub fn current(&self, now: Instant) -> Arc<Anchors> {
        let due = match self.checked.try_lock() {
            // Whoever finds it locked takes what is there.
            Ok(mut checked) => {
                let due = now.saturating_duration_since(*checked) >= FRESH;
                if due {
                    *checked = now;
                }
                due
            }
            Err(_) => false,
        };
        if due { self.refresh() } else { self.held() }
    }

    /// The authorities as they are now; those of before while the directory cannot be read.
    pub fn refresh(&self) -> Arc<Anchors> {
        let before = self.held();
        match Anchors::reload(&self.directory, &before.files) {
            Ok(anchors) => {
                let anchors = Arc::new(anchors);
                *self.current.write().unwrap_or_else(|poisoned| poisoned.into_inner()) = anchors.clone();
                anchors
            }
            Err(fault) => {
                tracing::warn!(%fault, "keeping the authorities read before");
                before
            }
        }
    }

    fn held(&self) -> Arc<Anchors> {
        self.current.read().unwrap_or_else(|poisoned| poisoned.into_inner()).clone()
    }
}

#[cfg(test)]
mod tests {
    use whimbrel_proto::timeval::Timestamp;

    use super::*;
    use crate::make::{self, KeyKind, Life, ProxyKind, Purpose};

    fn ca(name: &str) -> OwnChain {
        let key = make::key(KeyKind::P256).unwrap();
        let life = Life::of(Timestamp::from_secs(1_795_300_000), 9000);
        let certificate = make::authority(name, &key, None, life, None).unwrap();
        OwnChain { certificate, key, chain: Vec::new() }
    }

    const POLICY: &str =
        "access_id_CA X509 '/O=Grid/CN=CA' pos_rights globus CA:sign cond_subjects globus '\"/O=Grid/*\"'";

    fn named(anchors: &Anchors, own: &OwnChain) -> usize {
        let der = own.certificate.to_der().unwrap();
        let read = Certificate::parse(&der).unwrap();
        anchors.named(&read.subject).len()
    }

    #[test]
    fn a_directory_holds_authorities_policies_and_lists() {
        let directory = tempfile::tempdir().unwrap();
        let (ca, other) = (ca("/O=Grid/CN=CA"), ca("/O=Grid/CN=Other"));
        let hash = ca.certificate.subject_name_hash();
        let put = |name: String, bytes: &[u8]| fs::write(directory.path().join(name), bytes).unwrap();
        put(format!("{hash:08x}.0"), &ca.certificate.to_pem().unwrap());
        put("00000000.0".into(), &ca.certificate.to_der().unwrap());
        put(format!("{hash:08x}.signing_policy"), POLICY.as_bytes());
        put(
            format!("{hash:08x}.r0"),
            &make::revocations(&ca, &[], Life::of(Timestamp::from_secs(1_795_300_000), 9)).unwrap().to_pem().unwrap(),
        );
        put("11111111.0".into(), b"nonsense");
        put("11111111.signing_policy".into(), b"nonsense");
        put("11111111.r7".into(), b"nonsense");
        put("README".into(), b"nonsense");
        put("igtf.pem".into(), b"nonsense");
        put("ABCDEF01.0".into(), b"nonsense");
        fs::create_dir(directory.path().join("22222222.0")).unwrap();
        std::os::unix::fs::symlink("nowhere", directory.path().join("33333333.0")).unwrap();
        let anchors = Anchors::load(directory.path()).unwrap();
        assert_eq!(
            (anchors.len(), anchors.is_empty(), named(&anchors, &ca), named(&anchors, &other)),
            (1, false, 1, 0)
        );
        assert_eq!(anchors.faults().len(), 5, "{:?}", anchors.faults());
        assert_eq!(anchors.may_sign(hash, "/O=Grid/CN=CA", "/O=Grid/CN=x"), Ok(()));
        assert!(anchors.may_sign(hash, "/O=Grid/CN=CA", "/O=X/CN=x").unwrap_err().contains("does not let it sign"));
        assert!(anchors.may_sign(0x1111_1111, "/O=Grid/CN=CA", "/O=Grid/CN=x").unwrap_err().contains("cannot be used"));
        assert!(
            anchors
                .may_sign(5, "/O=Grid/CN=CA", "/O=Grid/CN=x")
                .unwrap_err()
                .contains("there is no 00000005.signing_policy in /")
        );
        let der = ca.certificate.to_der().unwrap();
        assert_eq!(anchors.lists_of(&Certificate::parse(&der).unwrap().subject).len(), 1);
    }

    #[test]
    fn a_chain_gets_the_authorities_above_it_that_are_known() {
        let life = Life::of(Timestamp::from_secs(1_795_300_000), 900);
        let (root, key) = (ca("/O=Grid/CN=Root"), make::key(KeyKind::P256).unwrap());
        let certificate = make::authority("/O=Grid/CN=CA", &key, None, life, Some(&root)).unwrap();
        let below = OwnChain { certificate, key, chain: Vec::new() };
        let alice = make::issue("/O=Grid/CN=alice", KeyKind::P256, &Purpose::Person, life, &below).unwrap();
        let proxy = ProxyKind::rfc(whimbrel_proto::x509::Policy::InheritAll);
        let proxy = make::own_proxy(&alice, KeyKind::P256, &proxy, life).unwrap();
        let chain_in = |known: &[&OwnChain]| {
            let directory = tempfile::tempdir().unwrap();
            for (number, authority) in known.iter().enumerate() {
                let pem = authority.certificate.to_pem().unwrap();
                fs::write(directory.path().join(format!("00000000.{number}")), pem).unwrap();
            }
            let completed = Anchors::load(directory.path()).unwrap().completed(&proxy).unwrap();
            completed.chain.iter().map(|above| above.to_der().unwrap()).collect::<Vec<_>>()
        };
        let der = |own: &OwnChain| own.certificate.to_der().unwrap();
        let own = [der(&alice), der(&below)];
        assert_eq!(chain_in(&[]), own);
        // Another one of the same name has signed nothing.
        let other = ca("/O=Grid/CN=Root");
        assert_eq!(chain_in(&[&other]), own);
        assert_eq!(chain_in(&[&other, &root]), [&own[..], &[der(&root)]].concat());
    }

    #[test]
    fn what_a_user_brings_is_beside_the_others_and_needs_no_policy() {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join("00000005.signing_policy"), POLICY).unwrap();
        let (known, own) = (ca("/O=Grid/CN=CA"), ca("/O=Own/CN=CA"));
        fs::write(directory.path().join("00000005.0"), known.certificate.to_pem().unwrap()).unwrap();
        let base = Anchors::load(directory.path()).unwrap();
        let both = base.and(vec![own.certificate.clone()]).unwrap();
        assert_eq!((base.len(), both.len(), both.brought().len(), named(&both, &known)), (1, 2, 1, 1));
        assert_eq!(both.may_sign(1, "/O=Own/CN=CA", "/y"), Ok(()));
        assert!(base.may_sign(1, "/O=Own/CN=CA", "/y").is_err());
        assert!(both.may_sign(5, "/O=Grid/CN=CA", "/O=Other/CN=y").is_err(), "a policy that is there holds");
        assert!(both.place().ends_with(" or among what the user brought"));
        assert_eq!(Anchors::default().place(), "what the user brought");
    }

    #[test]
    fn the_first_directory_that_is_there_counts() {
        let directory = tempfile::tempdir().unwrap();
        let place = |path: &Path| Place { path: path.to_owned(), variable: Some("X509_CERT_DIR") };
        let (none, there) = (place(Path::new("/nowhere/at/all")), place(directory.path()));
        let store = AnchorStore::open_first(&[none.clone(), there], Instant::now()).unwrap();
        assert_eq!(store.refresh().place(), directory.path().display().to_string());
        let fault = AnchorStore::open_first(&[none], Instant::now()).map(|_| ()).unwrap_err();
        assert!(fault.detail.ends_with("looked for /nowhere/at/all (X509_CERT_DIR)"), "{fault}");
    }

    #[test]
    fn a_changed_directory_is_read_again_and_a_lost_one_kept() {
        let directory = tempfile::tempdir().unwrap();
        let start = Instant::now();
        let store = AnchorStore::open(directory.path(), start).unwrap();
        assert!(store.current(start).is_empty());
        let (one, two) = (ca("/O=Grid/CN=1"), ca("/O=Grid/CN=2"));
        fs::write(directory.path().join("00000001.0"), one.certificate.to_pem().unwrap()).unwrap();
        assert_eq!(store.current(start + FRESH / 2).len(), 0, "not looked again yet");
        let first = store.current(start + FRESH);
        assert_eq!((first.len(), named(&first, &one)), (1, 1));
        fs::write(directory.path().join("00000002.0"), two.certificate.to_pem().unwrap()).unwrap();
        let second = store.refresh();
        let der = one.certificate.to_der().unwrap();
        let name = Certificate::parse(&der).unwrap().subject;
        let shared = |anchors: &Anchors| anchors.named(&name)[0].clone();
        assert!(Arc::ptr_eq(&shared(&first), &shared(&second)), "what has not changed is not read again");
        fs::remove_file(directory.path().join("00000001.0")).unwrap();
        assert_eq!((store.refresh().len(), first.len()), (1, 1));
        directory.close().unwrap();
        assert_eq!(store.refresh().len(), 1);
        let gone = AnchorStore::open(Path::new("/nowhere/at/all"), start).map(|_| ()).unwrap_err();
        assert_eq!((gone.code, gone.subject.as_str()), (FaultCode::CredentialMissing, "/nowhere/at/all"));
    }

    #[test]
    fn giant_files_are_not_read() {
        let directory = tempfile::tempdir().unwrap();
        File::create(directory.path().join("00000001.0")).unwrap().set_len(MOST_BYTES + 1).unwrap();
        File::create(directory.path().join("00000001.r0")).unwrap().set_len(MOST_LIST_BYTES + 1).unwrap();
        let mut faults = Anchors::load(directory.path()).unwrap().faults().to_vec();
        faults.sort();
        assert_eq!(faults, ["00000001.0: it is longer than 1 MiB", "00000001.r0: it is longer than 64 MiB"]);
    }
}
