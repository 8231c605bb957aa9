//! Keys of hosts that no certificate authority vouches for: remembered at the first visit, compared at every later one.
//!
//! A file of lines `HOST:PORT sha256:HEX`, the hash being that of the key (SubjectPublicKeyInfo), so that a renewed certificate with the
//! same key is the same host. `HOST:PORT vouched` stands for a host that an authority has vouched for: its key may be another one whenever an
//! authority vouches for that, and no other key is believed. Lines of other kinds, comments and whatever follows are kept as they are.

mod text;

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use openssl::asn1::Asn1Time;
use openssl::error::ErrorStack;
use openssl::x509::X509Ref;
use whimbrel_engine::fault::FaultCode;
use whimbrel_proto::timeval::Timestamp;

use crate::TrustFault;
use crate::peer::{Peer, PeerJudge};
pub use text::{Fingerprint, HostName, PinVerdict, verdict};
use text::{VOUCHED, is_about};

/// Longest file, bytes.
const MAX_FILE: u64 = 16 << 20;

/// No key has this hash.
const NOBODYS: Fingerprint = Fingerprint([0; 32]);

/// A file of known hosts; it need not be there yet.
#[derive(Debug, Clone)]
pub struct Pins {
    path: PathBuf,
}

impl Pins {
    /// The file at a path.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into() }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Compares a host's key with the file.
    ///
    /// # Errors
    /// `StorageIo` and its like if the file cannot be read; `InvalidArgument` if everybody may write it, or a line about this host cannot be
    /// understood: then nothing may be taken for a first visit.
    pub fn check(&self, host: &HostName, key: &Fingerprint) -> Result<PinVerdict, TrustFault> {
        match File::open(&self.path) {
            Ok(mut file) => self.judge(&self.read(&mut file)?, host, key),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(PinVerdict::First),
            Err(error) => Err(self.fault(&error)),
        }
    }

    /// Whether the file says anything of a host.
    ///
    /// # Errors
    /// As [`Self::check`].
    pub fn knows(&self, host: &HostName) -> Result<bool, TrustFault> {
        Ok(self.check(host, &NOBODYS)? != PinVerdict::First)
    }

    /// Remembers the key of a host that the file does not know; says what it knows if somebody else was faster.
    ///
    /// The line is on disk when this returns [`PinVerdict::First`]. Writers wait for each other (`flock`).
    ///
    /// # Errors
    /// As [`Self::check`], and those of writing.
    pub fn remember(&self, host: &HostName, key: &Fingerprint) -> Result<PinVerdict, TrustFault> {
        self.append(host, key, &key.to_string())
    }

    /// Remembers of a host that the file does not know that an authority vouches for it; says the same as [`Self::remember`].
    ///
    /// # Errors
    /// As [`Self::remember`].
    pub fn remember_vouched(&self, host: &HostName) -> Result<PinVerdict, TrustFault> {
        match self.check(host, &NOBODYS)? {
            PinVerdict::First => self.append(host, &NOBODYS, VOUCHED),
            known => Ok(known),
        }
    }

    /// Adds what is said of a host, unless the file knows it.
    fn append(&self, host: &HostName, key: &Fingerprint, said: &str) -> Result<PinVerdict, TrustFault> {
        let mut file = self.locked()?;
        let text = self.read(&mut file)?;
        let verdict = self.judge(&text, host, key)?;
        if verdict == PinVerdict::First {
            let torn = if text.is_empty() || text.ends_with(b"\n") { "" } else { "\n" };
            let line = format!("{torn}{host} {said}\n");
            // The file is open for appending: the line goes to its end in one piece.
            file.write_all(line.as_bytes()).and_then(|()| file.sync_data()).map_err(|error| self.fault(&error))?;
        }
        Ok(verdict)
    }

    /// Puts a host's new key in the place of every one that the file knows; for who was asked and said yes.
    ///
    /// # Errors
    /// As [`Self::remember`].
    pub fn replace(&self, host: &HostName, key: &Fingerprint) -> Result<(), TrustFault> {
        // The lock of the file that is replaced: who waits for it looks again which file is there.
        let mut file = self.locked()?;
        let text = self.read(&mut file)?;
        let others = text.split_inclusive(|&byte| byte == b'\n').filter(|line| !is_about(line, host));
        let mut new: Vec<u8> = others.collect::<Vec<_>>().concat();
        if !new.is_empty() && !new.ends_with(b"\n") {
            new.push(b'\n');
        }
        new.extend_from_slice(format!("{host} {key}\n").as_bytes());
        self.swap(&file, &new).map_err(|error| self.fault(&error))
    }

    fn swap(&self, old: &File, text: &[u8]) -> io::Result<()> {
        // A link stays one.
        let path = fs::canonicalize(&self.path)?;
        let mut name = path.clone().into_os_string();
        name.push(".new");
        let fresh = PathBuf::from(name);
        // Only who has the lock gets here: one that is there was left by a crash.
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&fresh)?;
        file.set_permissions(Permissions::from_mode(old.metadata()?.mode() & 0o777))?;
        file.write_all(text)?;
        file.sync_all()?;
        fs::rename(&fresh, &path)
    }

    /// The file, made if need be, open for reading and appending, with its lock.
    fn locked(&self) -> Result<File, TrustFault> {
        self.locked_file().map_err(|error| self.fault(&error))
    }

    fn locked_file(&self) -> io::Result<File> {
        if let Some(folder) = self.path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
            DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        }
        loop {
            let file = OpenOptions::new().read(true).append(true).create(true).mode(0o600).open(&self.path)?;
            file.lock()?;
            let (ours, there) = (file.metadata()?, fs::metadata(&self.path));
            // Replaced while we waited: the lock is that of a file which is gone.
            if there.is_ok_and(|there| (there.dev(), there.ino()) == (ours.dev(), ours.ino())) {
                return Ok(file);
            }
        }
    }

    fn read(&self, file: &mut File) -> Result<Vec<u8>, TrustFault> {
        let mut text = Vec::new();
        let read = file.seek(SeekFrom::Start(0)).and_then(|_| file.take(MAX_FILE + 1).read_to_end(&mut text));
        let mode = read.and_then(|_| file.metadata()).map_err(|error| self.fault(&error))?.mode();
        if mode & 0o002 != 0 {
            return Err(self.wrong("everybody may write it: run chmod go-w on it after a look at its lines"));
        }
        if text.len() as u64 > MAX_FILE {
            return Err(self.wrong("it is longer than 16 MiB"));
        }
        Ok(text)
    }

    fn judge(&self, text: &[u8], host: &HostName, key: &Fingerprint) -> Result<PinVerdict, TrustFault> {
        verdict(text, host, key).map_err(|line| {
            self.wrong(format!(
                "line {line} about {host} is not `HOST:PORT sha256:HEX` or `HOST:PORT vouched`; correct or remove it"
            ))
        })
    }

    fn wrong(&self, detail: impl Into<String>) -> TrustFault {
        TrustFault::new(FaultCode::InvalidArgument, detail).about(self.path.display().to_string())
    }

    fn fault(&self, error: &io::Error) -> TrustFault {
        TrustFault::new(FaultCode::from_io(error), error.to_string()).about(self.path.display().to_string())
    }
}

/// Believes the host whose key the file knows; its certificate's dates and names count for nothing then.
///
/// A host that an authority has vouched for is no newcomer. It writes nothing: only after the handshake the other side has proven to hold the key, and may be [`Pins::remember`]ed.
#[derive(Debug)]
pub struct PinJudge {
    pins: Pins,
    host: HostName,
    /// Whether a host that the file does not know is believed.
    newcomers: bool,
    found: Mutex<Option<(Fingerprint, PinVerdict)>>,
}

impl PinJudge {
    /// A judge of one host; `newcomers`: whether its first visit is believed.
    pub fn new(pins: Pins, host: HostName, newcomers: bool) -> Self {
        Self { pins, host, newcomers, found: Mutex::new(None) }
    }

    /// The key that the host showed last, and what the file said about it.
    pub fn found(&self) -> Option<(Fingerprint, PinVerdict)> {
        self.found.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The host, if the file knows this very key of it; nothing is learned of any other, not even why the file cannot be read.
    pub fn known(&self, leaf: &X509Ref, others: &[&X509Ref]) -> Option<Peer> {
        let key = Fingerprint::of(leaf).ok()?;
        let verdict = self.pins.check(&self.host, &key).ok()?;
        if verdict != PinVerdict::Same {
            return None;
        }
        let peer = known_by_key(leaf, others, &self.host.to_string()).ok()?;
        self.note(key, verdict);
        Some(peer)
    }

    fn note(&self, key: Fingerprint, verdict: PinVerdict) {
        *self.found.lock().unwrap_or_else(PoisonError::into_inner) = Some((key, verdict));
    }

    fn believed(&self, key: &Fingerprint) -> Result<(), TrustFault> {
        let verdict = self.pins.check(&self.host, key)?;
        self.note(*key, verdict.clone());
        let (host, path) = (&self.host, self.pins.path.display());
        let reason = match verdict {
            PinVerdict::Same => return Ok(()),
            PinVerdict::First if self.newcomers => return Ok(()),
            PinVerdict::First => format!("its key {key} is not known yet in {path}"),
            PinVerdict::Vouched { line } => format!(
                "no authority that this system trusts vouches for its key {key}, and one has vouched for it before: somebody may be in \
                 between. If its administrator says that the key is right, remove {path} line {line}"
            ),
            PinVerdict::Changed { known, line } => {
                format!("it shows the key {key}, but {path} line {line} knows {known}: somebody may be in between")
            }
        };
        Err(TrustFault::new(FaultCode::PeerIdentity, reason).about(host.to_string()))
    }
}

impl PeerJudge for PinJudge {
    fn judge(&self, leaf: &X509Ref, others: &[&X509Ref]) -> Result<Peer, TrustFault> {
        let key = Fingerprint::of(leaf).map_err(|error| unreadable(&error))?;
        self.believed(&key)?;
        known_by_key(leaf, others, &self.host.to_string())
    }
}

/// Believes who has one of certain keys; its certificate's dates and names count for nothing.
#[derive(Debug)]
pub struct KeyJudge {
    keys: Vec<Fingerprint>,
    host: String,
}

impl KeyJudge {
    /// A judge of a host, named for people, that has one of these keys.
    pub fn new(keys: Vec<Fingerprint>, host: &str) -> Self {
        Self { keys, host: host.to_owned() }
    }
}

impl PeerJudge for KeyJudge {
    fn judge(&self, leaf: &X509Ref, others: &[&X509Ref]) -> Result<Peer, TrustFault> {
        let key = Fingerprint::of(leaf).map_err(|error| unreadable(&error))?;
        if !self.keys.contains(&key) {
            let reason = format!("it shows the key {key}, which is not the one that it is known by");
            return Err(TrustFault::new(FaultCode::PeerIdentity, reason).about(&self.host));
        }
        known_by_key(leaf, others, &self.host)
    }
}

fn unreadable(error: &ErrorStack) -> TrustFault {
    TrustFault::new(FaultCode::CredentialRejected, error.to_string())
}

/// A host that is believed for its key.
fn known_by_key(leaf: &X509Ref, others: &[&X509Ref], host: &str) -> Result<Peer, TrustFault> {
    let age = Asn1Time::from_unix(0).and_then(|start| start.diff(leaf.not_after()));
    let age = age.map_err(|error| unreadable(&error))?;
    let until = Timestamp { secs: i64::from(age.days) * 86_400 + i64::from(age.secs), nanos: 0 };
    // Nobody vouches for the names in such a certificate.
    Ok(Peer::plain(format!("pinned {host}"), leaf, others, until))
}

#[cfg(test)]
#[path = "pins_tests.rs"]
mod tests;
