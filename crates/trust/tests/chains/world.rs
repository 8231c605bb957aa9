//! The authorities, people and files that the table of chains is made of.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Arc, LazyLock};

use openssl::x509::{X509, X509Ref};
use whimbrel_engine::fault::FaultCode;
use whimbrel_proto::timeval::Timestamp;
use whimbrel_proto::x509::der::{encode, tag};
use whimbrel_proto::x509::{Form, Policy};
use whimbrel_trust::OwnChain;
use whimbrel_trust::gsi::Anchors;
use whimbrel_trust::gsi::judge::{Judge, Kinds};
use whimbrel_trust::make::{self, Draft, KeyKind, Life, ProxyKind, Purpose};

/// Where all clocks stand.
pub const NOW: i64 = 1_795_305_600;

/// What is given `seconds` from now on.
pub fn life(seconds: i64) -> Life {
    Life::of(Timestamp::from_secs(NOW), seconds)
}

/// From `from` to `until`, seconds from now.
pub fn between(from: i64, until: i64) -> Life {
    Life { from: Timestamp::from_secs(NOW + from), until: Timestamp::from_secs(NOW + until) }
}

/// An authority with this name and its own key.
pub fn authority(name: &str, path_length: Option<u32>, life: Life, signer: Option<&OwnChain>) -> OwnChain {
    let key = make::key(KeyKind::P256).unwrap();
    let certificate = make::authority(name, &key, path_length, life, signer).unwrap();
    let chain = signer.map(|signer| signer.chain.clone()).unwrap_or_default();
    OwnChain { certificate, key, chain }
}

/// A person.
pub fn person(name: &str, signer: &OwnChain) -> OwnChain {
    make::issue(name, KeyKind::P256, &Purpose::Person, life(50_000), signer).unwrap()
}

/// The trusted authority.
pub static CA: LazyLock<OwnChain> = LazyLock::new(|| authority("/O=Grid/CN=CA", None, life(1_000_000), None));

/// Somebody it signed.
pub static ALICE: LazyLock<OwnChain> = LazyLock::new(|| person("/O=Grid/CN=alice", &CA));

/// What a policy says that lets the authority sign for the grid.
pub const POLICY: &str = "access_id_ANYBODY pos_rights globus CA:sign cond_subjects globus '\"/O=Grid/*\"'";

/// A proxy of this kind, ready to sign others.
pub fn proxy(signer: &OwnChain, form: Form, policy: Policy, path_length: Option<u32>) -> OwnChain {
    make::own_proxy(signer, KeyKind::P256, &ProxyKind { form, policy, path_length }, life(40_000)).unwrap()
}

/// An RFC 3820 proxy without limits.
pub fn full(signer: &OwnChain) -> OwnChain {
    proxy(signer, Form::Rfc, Policy::InheritAll, None)
}

/// A limited RFC 3820 proxy.
pub fn limited(signer: &OwnChain) -> OwnChain {
    proxy(signer, Form::Rfc, Policy::Limited, None)
}

/// A full proxy after `bend` has had its way with it; `key` signs.
pub fn bent(signer: &OwnChain, bend: impl FnOnce(Draft) -> Draft) -> OwnChain {
    let draft = make::proxy_draft(signer, &ProxyKind::rfc(Policy::InheritAll), life(40_000)).unwrap();
    sign(bend(draft), signer, KeyKind::P256)
}

/// Signs a draft with a signer's key, for a new key.
pub fn sign(draft: Draft, signer: &OwnChain, kind: KeyKind) -> OwnChain {
    let key = make::key(kind).unwrap();
    let certificate = draft.sign(&key, &signer.key).unwrap();
    let chain = std::iter::once(signer.certificate.clone()).chain(signer.chain.iter().cloned()).collect();
    OwnChain { certificate, key, chain }
}

/// An end entity's certificate after `bend`.
pub fn bent_person(signer: &OwnChain, bend: impl FnOnce(Draft) -> Draft) -> OwnChain {
    let issuer = signer.certificate.subject_name().to_der().unwrap();
    let draft = Draft::new(issuer, make::name("/O=Grid/CN=alice").unwrap(), life(50_000)).unwrap();
    sign(bend(draft), signer, KeyKind::P256)
}

/// `SEQUENCE` of parts.
pub fn sequence(parts: &[&[u8]]) -> Vec<u8> {
    encode(tag::SEQUENCE, parts)
}

/// A certificate with one bit of its signature turned.
pub fn forged(certificate: &X509Ref) -> X509 {
    let mut der = certificate.to_der().unwrap();
    let last = der.len() - 1;
    der[last] ^= 1;
    X509::from_der(&der).unwrap()
}

/// What a row of the table expects.
pub enum Verdict {
    /// Accepted as this subject.
    Good(&'static str),
    /// Accepted as this subject, limited.
    Limited(&'static str),
    /// Accepted, as the leaf's own subject.
    Own,
    /// Refused with a reason that has these words.
    Bad(&'static str),
    /// Refused because something has expired.
    Expired,
}

/// One chain.
pub struct Row {
    /// What it shows.
    pub name: &'static str,
    /// What the peer sends.
    pub chain: OwnChain,
    /// Files of the directory of authorities besides the usual ones, or in their place.
    pub files: Vec<(String, Vec<u8>)>,
    /// What must come out.
    pub verdict: Verdict,
    /// What `openssl verify` must say; `None`: it does not know what this is about.
    pub openssl: Option<bool>,
}

/// A row with the usual directory.
pub fn row(name: &'static str, chain: OwnChain, verdict: Verdict, openssl: impl Into<Option<bool>>) -> Row {
    Row { name, chain, files: Vec::new(), verdict, openssl: openssl.into() }
}

impl Row {
    /// With another file in the directory.
    pub fn file(mut self, name: String, bytes: impl Into<Vec<u8>>) -> Self {
        self.files.push((name, bytes.into()));
        self
    }
}

/// The name of a file that goes with an authority.
pub fn file_of(authority: &OwnChain, ending: &str) -> String {
    format!("{:08x}.{ending}", authority.certificate.subject_name_hash())
}

fn fill(directory: &Path, files: &[(String, Vec<u8>)]) {
    fs::write(directory.join(file_of(&CA, "0")), CA.certificate.to_pem().unwrap()).unwrap();
    fs::write(directory.join(file_of(&CA, "signing_policy")), POLICY).unwrap();
    for (name, bytes) in files {
        // An empty file stands for one that is missing.
        match bytes.is_empty() {
            true => fs::remove_file(directory.join(name)).unwrap(),
            false => fs::write(directory.join(name), bytes).unwrap(),
        }
    }
}

/// Judges every row, here and by OpenSSL's own program.
pub fn check(rows: Vec<Row>) {
    for row in rows {
        let directory = tempfile::tempdir().unwrap();
        fill(directory.path(), &row.files);
        let anchors = Arc::new(Anchors::load(directory.path()).unwrap());
        compare(&row, Judge::new(anchors));
        let said = openssl_says(directory.path(), &row.chain);
        if let (Some(expected), Some(said)) = (row.openssl, &said) {
            assert_eq!(expected, said.is_ok(), "{}: {said:?}", row.name);
        }
    }
}

fn compare(row: &Row, judge: Judge) {
    let others: Vec<&X509Ref> = row.chain.chain.iter().map(AsRef::as_ref).collect();
    let judged = judge.judge(&row.chain.certificate, &others, Timestamp::from_secs(NOW));
    let name = row.name;
    let (subject, is_limited) = match (&row.verdict, &judged) {
        (Verdict::Good(subject), Ok(_)) => ((*subject).to_owned(), false),
        (Verdict::Limited(subject), Ok(_)) => ((*subject).to_owned(), true),
        (Verdict::Own, Ok(judged)) => {
            assert!(judged.independent, "{name}");
            let der = row.chain.certificate.to_der().unwrap();
            (whimbrel_proto::x509::Certificate::parse(&der).unwrap().subject.one_line(), false)
        }
        (Verdict::Bad(words), Err(refusal)) => {
            assert_eq!(refusal.fault.code, FaultCode::CredentialRejected, "{name}: {}", refusal.fault);
            return assert!(refusal.fault.detail.contains(words), "{name}: {}", refusal.fault);
        }
        (Verdict::Expired, Err(refusal)) => {
            assert_eq!(refusal.fault.code, FaultCode::CredentialExpired, "{name}: {}", refusal.fault);
            return assert!(refusal.fault.until.is_some_and(|until| until.secs < NOW), "{name}");
        }
        (_, judged) => panic!("{name}: {judged:?}"),
    };
    let peer = &judged.as_ref().unwrap().peer;
    assert_eq!((&peer.subject, peer.limited), (&subject, is_limited), "{name}");
    assert!(peer.until.secs > NOW, "{name}");
}

/// A judge of the usual directory that accepts these kinds.
pub fn judge(kinds: Kinds) -> Judge {
    let directory = tempfile::tempdir().unwrap();
    fill(directory.path(), &[]);
    Judge { kinds, ..Judge::new(Arc::new(Anchors::load(directory.path()).unwrap())) }
}

/// What `openssl verify` says with the authorities of a directory; `None` without the program.
fn openssl_says(directory: &Path, chain: &OwnChain) -> Option<Result<(), String>> {
    let work = tempfile::tempdir().unwrap();
    let put = |name: &str, certificates: &[&X509]| {
        let text: Vec<u8> = certificates.iter().flat_map(|one| one.to_pem().unwrap()).collect();
        fs::write(work.path().join(name), text).unwrap();
    };
    put("leaf", &[&chain.certificate]);
    put("untrusted", &chain.chain.iter().collect::<Vec<_>>());
    let mut command = Command::new("openssl");
    command.args(["verify", "-allow_proxy_certs", "-auth_level", "2", "-attime", &NOW.to_string()]);
    command.arg("-CApath").arg(directory).args(["-no-CAfile", "-no-CAstore"]);
    if !chain.chain.is_empty() {
        command.arg("-untrusted").arg(work.path().join("untrusted"));
    }
    let output = command.arg(work.path().join("leaf")).stdin(Stdio::null()).output();
    match output {
        Ok(output) if output.status.success() => Some(Ok(())),
        Ok(output) => Some(Err(String::from_utf8_lossy(&output.stderr).into_owned())),
        Err(_) => {
            println!("skipped: `openssl` is not installed");
            None
        }
    }
}
