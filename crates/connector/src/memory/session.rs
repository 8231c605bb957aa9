//! Write sessions in memory: the same rules as for POSIX, hidden names included.

use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

use whimbrel_engine::{Fault, FaultCode};

use super::tree::{Body, Node, OnPath, Spot, resolve};
use super::{Memory, ORDINARY, PRIVATE, Safeguard, set_facts};
use crate::meta::{Kind, Meta};
use crate::path::StoragePath;
use crate::rules::check;
use crate::session::{Attributes, Disposition, SET_ID, WriteIntent, WriteSession};
use crate::staging::{refuse_hidden, staging_path};

const OPEN: &str = "open for writing";
const LOOK: &str = "look for an unfinished file";

impl Memory {
    pub(super) fn begin_session(&self, path: &StoragePath, intent: &WriteIntent) -> Result<WriteSession, Fault> {
        let _names = self.lock();
        let spot = resolve(&self.root, path, true).on(OPEN, path)?;
        let Some(spot) = spot else {
            return Err(FaultCode::IsADirectory).on(OPEN, path);
        };
        refuse_hidden(&spot.path, OPEN)?;
        let staging = staging_path(&spot.path)?;
        let unfinished = spot.dir.child(staging.name().unwrap_or_default());
        let unfinished = unfinished.on(OPEN, path)?.filter(|node| node.kind() == Kind::File);
        let kind = spot.found.as_ref().map(|node| node.kind());
        let continued = intent.disposition == Disposition::Continue;
        let mut made = false;
        let (node, rename) = match (kind, intent.disposition, &spot.found) {
            (Some(Kind::Directory), ..) => return Err(FaultCode::IsADirectory).on(OPEN, path),
            (Some(_), ..) if !self.replaces => return Err(FaultCode::AlreadyExists).on(OPEN, path),
            (None | Some(Kind::File), Disposition::Continue, _) => match unfinished {
                Some(node) => (made_private(node), true),
                None => (self.create(&spot, &staging, PRIVATE)?, true),
            },
            (Some(_), Disposition::Continue, _) => {
                return Err(Fault::new(FaultCode::NotSupported, OPEN)
                    .on_path(path.as_bytes())
                    .detail("a device cannot be written in chunks"));
            }
            (None, Disposition::Update, _) => {
                made = true;
                (self.create(&spot, &spot.path, intent.mode.map_or(ORDINARY, |mode| mode & ORDINARY | PRIVATE))?, false)
            }
            (None | Some(Kind::File), Disposition::Replace, _) => {
                if let Some(old) = unfinished {
                    self.remove_journal(&spot.path, old.id).on(OPEN, path)?;
                }
                (self.create(&spot, &staging, PRIVATE)?, true)
            }
            (None | Some(Kind::File), Disposition::Resume, found) => match (unfinished, found) {
                (Some(node), _) => {
                    if Self::has_journal(&spot.dir, &spot.path, node.id).on(OPEN, path)? {
                        return Err(Fault::new(FaultCode::StorageBusy, OPEN)
                            .on_path(path.as_bytes())
                            .detail("it is being written in chunks; start from the beginning to replace that"));
                    }
                    (made_private(node), true)
                }
                (None, Some(node)) => (node.clone(), false),
                (None, None) => (self.create(&spot, &staging, PRIVATE)?, true),
            },
            (Some(_), _, found) => (found.clone().expect("its kind is known"), false),
        };
        Ok(WriteSession {
            staging: if rename { staging } else { spot.path.clone() },
            path: spot.path,
            rename,
            token: token(&node, kind.and(spot.found).filter(|_| rename), if made { MADE } else { u8::from(continued) }),
            size: intent.size,
        })
    }

    /// Puts a new empty file where `path` says, which is in the directory of `spot`.
    fn create(&self, spot: &Spot, path: &StoragePath, mode: u32) -> Result<Arc<Node>, Fault> {
        let node = self.new_node(Body::File(Default::default()), mode);
        let name = path.name().unwrap_or_default();
        if spot.dir.child(name).on(OPEN, path)?.is_some_and(|old| old.kind() == Kind::Directory) {
            return Err(FaultCode::IsADirectory).on(OPEN, path);
        }
        self.put_name(&spot.dir, name, &node).on(OPEN, path)?;
        Ok(node)
    }

    pub(super) fn find_unfinished(&self, path: &StoragePath) -> Result<Option<Meta>, Fault> {
        let Some((spot, found)) = self.hidden_of(path)?.filter(|(_, found)| found.kind() == Kind::File) else {
            return Ok(None);
        };
        let chunked = Self::has_journal(&spot.dir, &spot.path, found.id).on(LOOK, path)?;
        Ok((!chunked).then(|| found.meta()))
    }

    /// Where `path` leads, and what bears the hidden name there.
    pub(super) fn hidden_of(&self, path: &StoragePath) -> Result<Option<(Spot, Arc<Node>)>, Fault> {
        let spot = match resolve(&self.root, path, true) {
            Ok(Some(spot)) => spot,
            Ok(None) | Err(FaultCode::NotFound) => return Ok(None),
            Err(code) => return Err(code).on(LOOK, path),
        };
        if spot.found.as_ref().map(|node| node.kind()) == Some(Kind::Directory) {
            return Ok(None);
        }
        let staging = staging_path(&spot.path)?;
        let found = spot.dir.child(staging.name().unwrap_or_default()).on(LOOK, path)?;
        Ok(found.map(|found| (spot, found)))
    }

    /// What bears the session's hidden name, if it is still the session's.
    pub(super) fn node_of(&self, session: &WriteSession) -> Result<Arc<Node>, Fault> {
        let (id, _) = decode(session)?;
        let spot = resolve(&self.root, &session.staging, false).on(OPEN, &session.path)?;
        match spot.and_then(|spot| spot.found) {
            Some(node) if node.id == id => Ok(node),
            Some(_) => Err(replaced(&session.path)),
            None => Err(FaultCode::NotFound).on(OPEN, &session.path),
        }
    }

    /// Whether the bytes of a session that renames have their final name; the caller holds the names' lock.
    pub(super) fn is_committed(&self, session: &WriteSession) -> Result<bool, Fault> {
        let (id, _) = decode(session)?;
        let spot = resolve(&self.root, &session.path, false).ok().flatten();
        Ok(session.rename && spot.and_then(|spot| spot.found).is_some_and(|node| node.id == id))
    }

    pub(super) fn commit_session(&self, session: &WriteSession, attributes: &Attributes) -> Result<(), Fault> {
        check(attributes, &session.path)?;
        let _names = self.lock();
        let (id, keep_mode) = decode(session)?;
        let node = match self.node_of(session) {
            Ok(node) => node,
            Err(fault) if session.rename => {
                if !self.is_committed(session)? {
                    return Err(fault);
                }
                if attributes.durable && self.power.has(Safeguard::SyncRepeatedCommit) {
                    self.sync_parent(&session.path).on("commit", &session.path)?;
                }
                return self.remove_journal(&session.path, id).on("commit", &session.path);
            }
            Err(fault) => return Err(fault),
        };
        let Body::File(data) = &node.body else {
            return Ok(());
        };
        if self.is_others(session, id).on("commit", &session.path)? {
            return Err(replaced(&session.path));
        }
        if let Some(size) = attributes.size {
            let mut data = data.write().unwrap_or_else(PoisonError::into_inner);
            if data.size() != size {
                self.power.step().on("commit", &session.path)?;
                data.set_size(size);
                node.facts().modified = (self.clock)();
            }
        }
        let mut wanted = attributes.clone();
        let is_new = session.rename && node.facts().mode == PRIVATE;
        wanted.mode = wanted.mode.or(keep_mode).or(is_new.then_some(ORDINARY));
        set_facts(&node, &wanted, &session.path)?;
        self.finish(session, &node, attributes.durable).on("commit", &session.path)
    }

    /// Syncs, renames, syncs the name, removes the journal: in this order, as POSIX does.
    fn finish(&self, session: &WriteSession, node: &Arc<Node>, durable: bool) -> Result<(), FaultCode> {
        if durable && self.power.has(Safeguard::SyncBeforeRename) {
            self.sync_file(node)?;
        }
        if session.rename && !self.power.has(Safeguard::RemoveJournalLast) {
            self.remove_journal(&session.path, node.id)?;
        }
        if session.rename {
            let _content = match &node.body {
                Body::File(content) => Some(content.write().unwrap_or_else(PoisonError::into_inner)),
                _ => None,
            };
            self.move_name(&session.staging, &session.path).map_err(|fault| fault.code)?;
            node.committed.store(true, Ordering::SeqCst);
        }
        if durable && self.power.has(Safeguard::SyncAfterRename) {
            self.sync_parent(&session.path)?;
        }
        if session.rename { self.remove_journal(&session.path, node.id) } else { Ok(()) }
    }

    /// Makes the names beside `path` durable; the caller holds the names' lock.
    pub(super) fn sync_parent(&self, path: &StoragePath) -> Result<(), FaultCode> {
        match resolve(&self.root, path, false)? {
            Some(spot) => self.sync_names(&spot.dir),
            None => Ok(()),
        }
    }

    /// Whether others have gone on in chunks with a file that was to be written as a whole: what they have proven is theirs.
    pub(super) fn is_others(&self, session: &WriteSession, id: u64) -> Result<bool, FaultCode> {
        if !session.rename || session.token.last() != Some(&ALONE) {
            return Ok(false);
        }
        match resolve(&self.root, &session.staging, false) {
            Ok(Some(spot)) => Self::has_journal(&spot.dir, &session.path, id),
            _ => Ok(false),
        }
    }

    pub(super) fn abandon_session(&self, session: &WriteSession) -> Result<(), Fault> {
        let _names = self.lock();
        let (id, _) = decode(session)?;
        if !session.rename {
            let spot = resolve(&self.root, &session.path, false).ok().flatten();
            let is_empty = |node: &Arc<Node>| node.id == id && node.meta().size == 0;
            return match spot {
                Some(spot) if session.token.last() == Some(&MADE) && spot.found.as_ref().is_some_and(is_empty) => {
                    self.drop_name(&spot.dir, spot.name()).on("abandon", &session.path)
                }
                _ => Ok(()),
            };
        }
        if self.is_others(session, id).on("abandon", &session.path)? {
            return Ok(());
        }
        self.remove_journal(&session.path, id).on("abandon", &session.path)?;
        let Ok(Some(spot)) = resolve(&self.root, &session.staging, false) else {
            return Ok(());
        };
        if spot.found.as_ref().is_some_and(|node| node.id == id) {
            self.drop_name(&spot.dir, spot.name()).on("abandon", &session.path)?;
        }
        Ok(())
    }
}

/// The last byte of the token of a session whose file nobody else is to go on with.
const ALONE: u8 = 0;
/// The last byte of the token of a session that made the file it writes in place.
const MADE: u8 = 2;

/// The file of a session is another one by now, or has got its final name.
pub(super) fn replaced(path: &StoragePath) -> Fault {
    Fault::new(FaultCode::StorageBusy, "write").on_path(path.as_bytes()).detail("another writer replaced it")
}

/// What was left by hand may be open to others.
fn made_private(node: Arc<Node>) -> Arc<Node> {
    if node.facts().mode & 0o077 != 0 {
        node.facts().mode = PRIVATE;
    }
    node
}

fn token(node: &Node, replaced: Option<Arc<Node>>, how: u8) -> Vec<u8> {
    let mode = replaced.map_or(u32::MAX, |node| node.facts().mode);
    [&node.id.to_le_bytes()[..], &mode.to_le_bytes()[..], &[how]].concat()
}

/// Whether the session is one of many writers, with a journal.
pub(super) fn is_continued(session: &WriteSession) -> Result<bool, Fault> {
    decode(session)?;
    Ok(session.rename && session.token.last() == Some(&1))
}

/// The file's number, and the mode of the file it replaces.
fn decode(session: &WriteSession) -> Result<(u64, Option<u32>), Fault> {
    let beside = session.path.parent() == session.staging.parent();
    let fits = beside && session.rename == (session.staging != session.path);
    match <&[u8; 13]>::try_from(&session.token[..]) {
        Ok(token) if fits && token[12] <= MADE => {
            let (id, rest) = token.split_first_chunk::<8>().expect("thirteen bytes");
            let mode = rest.first_chunk::<4>().map_or(u32::MAX, |mode| u32::from_le_bytes(*mode));
            Ok((u64::from_le_bytes(*id), (mode <= 0o7777).then_some(mode & !SET_ID)))
        }
        _ => Err(Fault::new(FaultCode::InvalidArgument, "join session")
            .on_path(session.path.as_bytes())
            .detail("not a session of this kind of storage")),
    }
}
