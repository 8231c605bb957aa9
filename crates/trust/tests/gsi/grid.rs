//! A grid of one authority, one host and one person, in a directory of its own.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use tempfile::TempDir;
use whimbrel_proto::timeval::Timestamp;
use whimbrel_trust::OwnChain;
use whimbrel_trust::gsi::{AnchorStore, Expected, GsiJudge, Trusted};
use whimbrel_trust::make::{self, HostName, KeyKind, Life, Purpose};

/// The real time, by which connections judge.
pub fn now() -> Timestamp {
    Timestamp::from_secs(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() as i64)
}

/// Certificates, and the directory of authorities with the one there is.
pub struct Grid {
    pub directory: TempDir,
    pub host: OwnChain,
    pub alice: OwnChain,
    store: Arc<AnchorStore>,
}

impl Grid {
    /// A new one, with keys of this kind.
    pub fn new(kind: KeyKind) -> Self {
        let life = Life::of(now(), 5000);
        let key = make::key(kind).unwrap();
        let certificate = make::authority("/O=Grid/CN=Test CA", &key, None, life, None).unwrap();
        let ca = OwnChain { certificate, key, chain: Vec::new() };
        let names = vec![HostName::Dns("localhost".into()), HostName::Address([127, 0, 0, 1].into())];
        let host = make::issue("/O=Grid/CN=host/localhost", kind, &Purpose::Host(names), life, &ca).unwrap();
        let alice = make::issue("/O=Grid/CN=alice", kind, &Purpose::Person, life, &ca).unwrap();
        let directory = tempfile::tempdir().unwrap();
        let certificates = directory.path().join("certificates");
        fs::create_dir(&certificates).unwrap();
        let hash = ca.certificate.subject_name_hash();
        fs::write(certificates.join(format!("{hash:08x}.0")), ca.certificate.to_pem().unwrap()).unwrap();
        let policy =
            "access_id_CA X509 '/O=Grid/CN=Test CA'\npos_rights globus CA:sign\ncond_subjects globus '\"/O=Grid/*\"'\n";
        fs::write(certificates.join(format!("{hash:08x}.signing_policy")), policy).unwrap();
        let store = Arc::new(AnchorStore::open(&certificates, Instant::now()).unwrap());
        Self { directory, host, alice, store }
    }

    /// A judge of whoever is expected.
    pub fn judge(&self, expected: Expected) -> Arc<GsiJudge> {
        Arc::new(GsiJudge::new(Trusted::Directory(self.store.clone()), expected))
    }

    /// A place in the directory.
    #[allow(dead_code, reason = "not every test has files")]
    pub fn path(&self) -> &Path {
        self.directory.path()
    }
}
