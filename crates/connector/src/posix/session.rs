//! Write sessions: begin, join, commit, abandon.
//!
//! Two attempts at the same final name never mix their bytes: a new `Replace` removes the hidden
//! file of the other and creates its own, and the other finds out at its commit, which compares
//! inodes. A commit holds the hidden file's lock from that comparison to the rename, and a
//! takeover holds it while it removes the file, so a file half written never gets the final name.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, PoisonError};

use rustix::fs::{Statx, fstatvfs};
use rustix::io::Errno;
use whimbrel_engine::{Fault, FaultCode};

use super::Posix;
use super::attributes;
use super::begun::{
    Begun, Locked, OPEN, Striping, create_continued, create_in_place, create_staged, in_place, is_own, join_continued,
    may_replace, open_existing,
};
use super::error::{OrFault, fault};
use super::handles::Handle;
use super::journal;
use super::lustre::Lustre;
use super::meta::{kind_of, mode_of, statx_at, statx_fd};
use super::resolve::{Dir, Place, look};
use super::steps::{self, sync_dir};
use super::token::{Identity, Manner, Token};
use crate::meta::{Kind, Meta};
use crate::path::StoragePath;
use crate::rules::check;
use crate::session::{Attributes, Disposition, WriteIntent, WriteSession};
use crate::staging::staging_path;

/// Below this the file system's free space is not asked for: the write itself tells as soon.
const ASK_FOR_SPACE: u64 = 1 << 20;
impl Posix {
    pub(super) fn begin_session(&self, path: &StoragePath, intent: &WriteIntent) -> Result<WriteSession, Fault> {
        let place = self.root.place(path)?;
        let begun = self.begin_at(&place, intent)?;
        let replaced = place.found.as_ref().map(mode_of);
        let token = Token {
            manner: begun.manner,
            identity: Identity::of(&begun.stat),
            keep_mode: replaced.filter(|_| begun.manner.is_hidden()),
        };
        let session = WriteSession {
            path: place.path,
            staging: begun.staging,
            rename: begun.manner.is_hidden(),
            token: token.encode(),
            size: intent.size,
        };
        let (kind, identity) = (kind_of(&begun.stat), token.identity);
        let handle = Handle::new(begun.file, place.dir, kind, identity);
        self.handles.keep(&session.staging, Arc::new(handle));
        Ok(session)
    }

    fn begin_at(&self, place: &Place, intent: &WriteIntent) -> Result<Begun, Fault> {
        let begun = match (place.found.as_ref().map(kind_of), intent.disposition) {
            (Some(Kind::Directory), _) => return Err(fault(Errno::ISDIR, OPEN, &place.path)),
            (Some(Kind::File), Disposition::Update) => in_place(place, Manner::InPlace)?,
            (None | Some(Kind::File), Disposition::Resume) => match self.resume(place)? {
                Some(begun) => begun,
                None => return self.create(place, intent, create_staged),
            },
            (None | Some(Kind::File), Disposition::Replace) => {
                return self.create(place, intent, create_staged);
            }
            (None | Some(Kind::File), Disposition::Continue) => match self.continued(place)? {
                Some(begun) => begun,
                None => {
                    return self
                        .create(place, intent, |place, striping| create_continued(place, striping, &self.caller));
                }
            },
            (None, Disposition::Update) => return self.create(place, intent, create_in_place),
            (Some(_), Disposition::Continue) => return Err(no_unfinished(&place.path)),
            (Some(_), _) => return in_place(place, Manner::Special),
        };
        self.check_space(begun.file.as_fd(), begun.stat.stx_blocks, intent, &place.path)?;
        Ok(begun)
    }

    /// Asks for space before there is a file that would have to be removed again.
    fn create(
        &self,
        place: &Place,
        intent: &WriteIntent,
        create: impl FnOnce(&Place, &Striping<'_>) -> Result<Begun, Fault>,
    ) -> Result<Begun, Fault> {
        self.check_space(place.dir.as_fd(), 0, intent, &place.path)?;
        let planned = |lustre: &'_ Lustre| lustre.plan(&place.dir, intent.length);
        create(place, &self.lustre.as_deref().and_then(|lustre| Some((lustre, planned(lustre)?))))
    }

    /// What can be gone on with: the unfinished file, else the finished one.
    fn resume(&self, place: &Place) -> Result<Option<Begun>, Fault> {
        let staging = staging_path(&place.path)?;
        let found = self.unfinished_at(&place.dir, &staging).or_fault(OPEN, &staging)?;
        if let Some(stat) = &found
            && journal::exists(&place.dir, &place.path, stat).or_fault(OPEN, &staging)?
        {
            return Err(in_chunks(&place.path));
        }
        let file = found.map(|_| open_existing(&place.dir, staging.name().unwrap_or_default()));
        match file {
            Some(Ok(file)) => Begun::of(file, Manner::Staged, staging).map(Some),
            Some(Err(errno)) if errno != Errno::NOENT => Err(fault(errno, OPEN, &staging)),
            _ if place.found.is_some() => in_place(place, Manner::InPlace).map(Some),
            _ => Ok(None),
        }
    }

    /// The unfinished file that others may be writing already.
    fn continued(&self, place: &Place) -> Result<Option<Begun>, Fault> {
        may_replace(place)?;
        let staging = staging_path(&place.path)?;
        if self.unfinished_at(&place.dir, &staging).or_fault(OPEN, &staging)?.is_none() {
            return Ok(None);
        }
        join_continued(place, staging, &self.caller)
    }

    /// The unfinished file, if it is one that this user may trust.
    fn unfinished_at(&self, dir: &Dir, staging: &StoragePath) -> Result<Option<Statx>, Errno> {
        let found = look(dir, staging.name().unwrap_or_default())?;
        Ok(found.filter(|stat| is_own(stat, &self.caller)))
    }

    pub(super) fn find_unfinished(&self, path: &StoragePath) -> Result<Option<Meta>, Fault> {
        let op = "look for an unfinished file";
        if path.is_root() {
            return Ok(None);
        }
        let place = match self.root.place(path) {
            Err(fault) if matches!(fault.code, FaultCode::NotFound | FaultCode::IsADirectory) => {
                return Ok(None);
            }
            other => other?,
        };
        if place.found.as_ref().map(kind_of) == Some(Kind::Directory) {
            return Ok(None);
        }
        let staging = staging_path(&place.path)?;
        let Some(found) = self.unfinished_at(&place.dir, &staging).or_fault(op, path)? else {
            return Ok(None);
        };
        // Written in chunks: its size says nothing about what of it is there.
        let chunked = journal::exists(&place.dir, &place.path, &found).or_fault(op, path)?;
        Ok((!chunked).then(|| self.caller.meta(&found, None)))
    }

    /// Refuses what cannot fit; the blocks the file has already count as free.
    fn check_space(
        &self,
        fd: BorrowedFd<'_>,
        blocks_had: u64,
        intent: &WriteIntent,
        path: &StoragePath,
    ) -> Result<(), Fault> {
        let Some(size) = intent.size.filter(|&size| size >= ASK_FOR_SPACE) else {
            return Ok(());
        };
        let space = fstatvfs(fd).or_fault(OPEN, path)?;
        let blocks = if self.caller.is_root() { space.f_bfree } else { space.f_bavail };
        let free = blocks.saturating_mul(space.f_frsize);
        let needed = size.saturating_sub(blocks_had.saturating_mul(512));
        // File systems without a size of their own (many network ones) report zero blocks.
        if space.f_blocks == 0 || needed <= free {
            return Ok(());
        }
        Err(Fault::new(FaultCode::NoSpace, OPEN)
            .on_path(path.as_bytes())
            .detail(format!("{needed} bytes needed, {free} free")))
    }

    /// The session's open file, from here or opened again.
    pub(super) fn handle_of(&self, session: &WriteSession, token: &Token) -> Result<Arc<Handle>, Fault> {
        if let Some(handle) = self.handles.join(&session.staging, &token.identity) {
            return Ok(handle);
        }
        let handle = self.reopen(session, token)?;
        self.handles.share(&session.staging, &handle);
        Ok(handle)
    }

    fn reopen(&self, session: &WriteSession, token: &Token) -> Result<Arc<Handle>, Fault> {
        let (dir, name) = self.root.entry(&session.staging, OPEN)?;
        let file = match open_existing(&dir, name) {
            // Something else has the name now.
            Err(Errno::LOOP | Errno::ISDIR) => return Err(taken(session)),
            other => other.or_fault(OPEN, &session.path)?,
        };
        let stat = statx_fd(&file).or_fault(OPEN, &session.path)?;
        if Identity::of(&stat) != token.identity {
            return Err(taken(session));
        }
        let (kind, identity) = (kind_of(&stat), token.identity);
        Ok(Arc::new(Handle::new(file, dir, kind, identity)))
    }

    pub(super) fn commit_session(&self, session: &WriteSession, attributes: &Attributes) -> Result<(), Fault> {
        check(attributes, &session.path)?;
        let token = Token::of(session)?;
        let handle = match self.handles.take(&session.staging, &token.identity) {
            Some(handle) => handle,
            None => match self.reopen(session, &token) {
                Err(fault) if token.manner.is_hidden() => {
                    return self.committed_before(session, &token, attributes, fault);
                }
                other => other?,
            },
        };
        match token.manner {
            Manner::Special if attributes.durable => match handle.sync_data() {
                // Only devices with a medium have anything to make durable.
                Err(Errno::INVAL | Errno::ROFS) => Ok(()),
                other => other.or_fault("sync", &session.path),
            },
            Manner::Special => Ok(()),
            Manner::InPlace | Manner::Created => {
                let stat = self.still_named(session, &token, &handle)?;
                finalize(&handle, &stat, attributes, None, &session.path)?;
                if attributes.durable {
                    // The session may have created the name.
                    sync_dir(&handle.dir).or_fault("sync directory", &session.path)?;
                }
                Ok(())
            }
            Manner::Staged | Manner::Continued => self.rename_staged(session, &token, &handle, attributes),
        }
    }

    /// The file of an in-place session, if it still has its name: else its bytes are lost.
    fn still_named(&self, session: &WriteSession, token: &Token, handle: &Handle) -> Result<Statx, Fault> {
        let name = session.path.name().unwrap_or_default();
        match statx_at(&handle.dir, name).or_fault("commit", &session.path)? {
            stat if Identity::of(&stat) == token.identity => Ok(stat),
            _ => Err(taken(session)),
        }
    }

    fn rename_staged(
        &self,
        session: &WriteSession,
        token: &Token,
        handle: &Handle,
        attributes: &Attributes,
    ) -> Result<(), Fault> {
        let path = &session.path;
        let (from, to) = names(session)?;
        let locked = Locked::new(&handle.file);
        let stat = match look(&handle.dir, from).or_fault("commit", path)? {
            Some(stat) if Identity::of(&stat) == token.identity => stat,
            Some(_) => return self.committed_before(session, token, attributes, taken(session)),
            None => {
                let fault = fault(Errno::NOENT, "commit", path);
                return self.committed_before(session, token, attributes, fault);
            }
        };
        if is_others(token, &handle.dir, path, &stat).or_fault("commit", path)? {
            return Err(taken(session));
        }
        // Waits for those who write just now; whoever comes later is refused.
        let mut committed = handle.committed.write().unwrap_or_else(PoisonError::into_inner);
        finalize(handle, &stat, attributes, token.keep_mode, path)?;
        steps::rename(&handle.dir, from, to).or_fault("commit", path)?;
        *committed = true;
        drop(committed);
        locked.release_with_file();
        if attributes.durable {
            sync_dir(&handle.dir).or_fault("sync directory", path)?;
        }
        // Only now: until the name is durable a crash brings the unfinished file back, and it is proven.
        if token.manner == Manner::Continued {
            journal::remove(&handle.dir, path, &token.identity).or_fault("remove journal", path)?;
        }
        Ok(())
    }

    /// The hidden file is gone: harmless if it bears the final name already, else `fault`.
    fn committed_before(
        &self,
        session: &WriteSession,
        token: &Token,
        attributes: &Attributes,
        fault: Fault,
    ) -> Result<(), Fault> {
        let path = &session.path;
        let Ok((dir, name)) = self.root.entry(path, "commit") else {
            return Err(fault);
        };
        match look(&dir, name) {
            Ok(Some(stat)) if Identity::of(&stat) == token.identity => {
                if attributes.durable {
                    sync_dir(&dir).or_fault("sync directory", path)?;
                }
                if token.manner == Manner::Continued {
                    journal::remove(&dir, path, &token.identity).or_fault("remove journal", path)?;
                }
                Ok(())
            }
            _ => Err(fault),
        }
    }

    pub(super) fn abandon_session(&self, session: &WriteSession) -> Result<(), Fault> {
        let token = Token::of(session)?;
        let open_here = self.handles.take(&session.staging, &token.identity);
        match token.manner {
            Manner::Created => return self.remove_unwritten(session, &token),
            Manner::InPlace | Manner::Special => return Ok(()),
            Manner::Staged | Manner::Continued => {}
        }
        if token.manner == Manner::Continued {
            self.remove_journal(session, &token)?;
        }
        let handle = match open_here.map_or_else(|| self.reopen(session, &token), Ok) {
            Ok(handle) => handle,
            // Committed, abandoned or taken over: nothing of this session is left.
            Err(fault) if matches!(fault.code, FaultCode::NotFound | FaultCode::StorageBusy) => {
                return Ok(());
            }
            Err(fault) => return Err(fault),
        };
        let (name, _) = names(session)?;
        let _locked = Locked::new(&handle.file);
        match look(&handle.dir, name).or_fault("abandon", &session.path)? {
            Some(stat) if Identity::of(&stat) == token.identity => {
                let theirs = is_others(&token, &handle.dir, &session.path, &stat).or_fault("abandon", &session.path)?;
                if theirs { Ok(()) } else { steps::unlink(&handle.dir, name).or_fault("abandon", &session.path) }
            }
            _ => Ok(()),
        }
    }
}

impl Posix {
    /// Removes the file that a session made under its final name, if nobody has written to it.
    ///
    /// Another writer of the same new file that has not written either learns of it at its commit.
    fn remove_unwritten(&self, session: &WriteSession, token: &Token) -> Result<(), Fault> {
        let (dir, name) = match self.root.entry(&session.path, "abandon") {
            Err(fault) if matches!(fault.code, FaultCode::NotFound | FaultCode::NotADirectory) => return Ok(()),
            other => other?,
        };
        match look(&dir, name).or_fault("abandon", &session.path)? {
            Some(stat) if Identity::of(&stat) == token.identity && stat.stx_size == 0 => {
                steps::unlink(&dir, name).or_fault("abandon", &session.path)
            }
            _ => Ok(()),
        }
    }

    /// The journal goes before the file it speaks of, and also when that file is gone already.
    fn remove_journal(&self, session: &WriteSession, token: &Token) -> Result<(), Fault> {
        match self.root.entry(&session.path, "abandon") {
            Ok((dir, _)) => journal::remove(&dir, &session.path, &token.identity).or_fault("abandon", &session.path),
            // With its directory.
            Err(fault) if matches!(fault.code, FaultCode::NotFound | FaultCode::NotADirectory) => Ok(()),
            Err(fault) => Err(fault),
        }
    }

    pub(super) fn open_journal(&self, session: &WriteSession) -> Result<journal::Log, Fault> {
        let token = Token::of(session)?;
        if token.manner != Manner::Continued {
            return Err(Fault::new(FaultCode::NotSupported, "open journal")
                .on_path(session.path.as_bytes())
                .detail("only a file that is written in chunks has one"));
        }
        let (dir, name) = self.root.entry(&session.staging, "open journal")?;
        match look(&dir, name).or_fault("open journal", &session.path)? {
            Some(stat) if Identity::of(&stat) == token.identity => {}
            Some(_) => return Err(taken(session)),
            None => return Err(fault(Errno::NOENT, "open journal", &session.path)),
        }
        Ok(journal::Log::new(dir, session.path.clone(), &token.identity, self.caller.clone()))
    }
}

/// Applies size and attributes, and makes them durable when asked.
fn finalize(
    handle: &Handle,
    stat: &Statx,
    attributes: &Attributes,
    keep_mode: Option<u32>,
    path: &StoragePath,
) -> Result<(), Fault> {
    let file = handle.file.as_fd();
    let changed = attributes::apply(file, stat, attributes, keep_mode, path)?;
    if attributes.durable {
        // Times and modes are not needed to find the data again: only `fsync` writes them.
        let sync = if changed { handle.sync_all() } else { handle.sync_data() };
        sync.or_fault("sync", path)?;
    }
    Ok(())
}

/// Whether others have gone on in chunks with a file that was to be written as a whole: what they have proven is theirs.
fn is_others(token: &Token, dir: &Dir, path: &StoragePath, stat: &Statx) -> Result<bool, Errno> {
    Ok(token.manner == Manner::Staged && journal::exists(dir, path, stat)?)
}

fn names(session: &WriteSession) -> Result<(&[u8], &[u8]), Fault> {
    session.staging.name().zip(session.path.name()).ok_or_else(|| fault(Errno::INVAL, "commit", &session.path))
}

fn no_unfinished(path: &StoragePath) -> Fault {
    Fault::new(FaultCode::NotSupported, OPEN)
        .on_path(path.as_bytes())
        .detail("a device or pipe cannot be written in chunks")
}

fn in_chunks(path: &StoragePath) -> Fault {
    Fault::new(FaultCode::StorageBusy, OPEN)
        .on_path(path.as_bytes())
        .detail("it is being written in chunks; start from the beginning to replace that")
}

fn taken(session: &WriteSession) -> Fault {
    replaced(&session.path)
}

/// The file of a session is another one by now, or has got its final name.
pub(super) fn replaced(path: &StoragePath) -> Fault {
    Fault::new(FaultCode::StorageBusy, "write").on_path(path.as_bytes()).detail("another writer replaced it")
}
