//! Write sessions: begin and join.
//!
//! Two attempts at the same final name never mix their bytes: a new `Replace` removes the hidden
//! file of the other and creates its own, and the other finds out at its commit, which compares
//! inodes.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use rustix::fs::{Statx, fstatvfs};
use rustix::io::Errno;
use whimbrel_engine::{Fault, FaultCode};

use super::Posix;
use super::begun::{
    Begun, OPEN, Striping, create_continued, create_in_place, create_staged, in_place, is_own, join_hidden,
    may_replace, open_existing,
};
use super::error::{OrFault, fault};
use super::handles::Handle;
use super::journal;
use super::lustre::Lustre;
use super::meta::{kind_of, mode_of, statx_fd};
use super::resolve::{Dir, Place, above, look};
use super::token::{Identity, Manner, Token};
use crate::meta::{Kind, Meta};
use crate::path::StoragePath;
use crate::session::{Disposition, WriteIntent, WriteSession};
use crate::staging::{refuse_hidden, staging_path};

const LOOK: &str = "look for an unfinished file";

/// Below this the file system's free space is not asked for: the write itself tells as soon.
const ASK_FOR_SPACE: u64 = 1 << 20;

impl Posix {
    pub(super) fn begin_session(&self, path: &StoragePath, intent: &WriteIntent) -> Result<WriteSession, Fault> {
        let place = self.root.place(path)?;
        refuse_hidden(&place.path, OPEN)?;
        let begun = self.begin_at(&place, intent);
        for path in [path, &place.path] {
            self.looked.begun_in(above(path));
        }
        let begun = begun?;
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
            (Some(_), _) if !self.replaces => return Err(fault(Errno::EXIST, OPEN, &place.path)),
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
            (None, Disposition::Update) => {
                return self.create(place, intent, |place, _| create_in_place(place, intent.mode, self.replaces));
            }
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
        let begun = match found {
            Some(_) => join_hidden(place, staging, Manner::Staged, &self.caller)?,
            None => None,
        };
        match begun {
            None if place.found.is_some() => in_place(place, Manner::InPlace).map(Some),
            begun => Ok(begun),
        }
    }

    /// The unfinished file that others may be writing already.
    fn continued(&self, place: &Place) -> Result<Option<Begun>, Fault> {
        may_replace(place)?;
        let staging = staging_path(&place.path)?;
        if self.unfinished_at(&place.dir, &staging).or_fault(OPEN, &staging)?.is_none() {
            return Ok(None);
        }
        join_hidden(place, staging, Manner::Continued, &self.caller)
    }

    /// The unfinished file, if it is one that this user may trust.
    fn unfinished_at(&self, dir: &Dir, staging: &StoragePath) -> Result<Option<Statx>, Errno> {
        let found = look(dir, staging.name().unwrap_or_default())?;
        Ok(found.filter(|stat| is_own(stat, &self.caller)))
    }

    pub(super) fn find_unfinished(&self, path: &StoragePath) -> Result<Option<Meta>, Fault> {
        let Some((place, staging)) = self.place_of_unfinished(path)? else { return Ok(None) };
        let Some(found) = self.unfinished_at(&place.dir, &staging).or_fault(LOOK, path)? else {
            return Ok(None);
        };
        // Written in chunks: its size says nothing about what of it is there.
        let chunked = journal::exists(&place.dir, &place.path, &found).or_fault(LOOK, path)?;
        Ok((!chunked).then(|| self.caller.meta(&found, None)))
    }

    /// Whether anything bears the hidden name, whatever it is and whoever made it.
    pub(super) fn bears_hidden_name(&self, path: &StoragePath) -> Result<bool, Fault> {
        let Some((place, staging)) = self.place_of_unfinished(path)? else { return Ok(false) };
        let found = look(&place.dir, staging.name().unwrap_or_default()).or_fault(LOOK, path)?;
        Ok(found.is_some())
    }

    /// Where `path` leads, and the hidden name there; `None`: nothing unfinished can be there.
    fn place_of_unfinished(&self, path: &StoragePath) -> Result<Option<(Place, StoragePath)>, Fault> {
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
        Ok(Some((place, staging)))
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

    pub(super) fn reopen(&self, session: &WriteSession, token: &Token) -> Result<Arc<Handle>, Fault> {
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

pub(super) fn taken(session: &WriteSession) -> Fault {
    replaced(&session.path)
}

/// The file of a session is another one by now, or has got its final name.
pub(super) fn replaced(path: &StoragePath) -> Fault {
    Fault::new(FaultCode::StorageBusy, "write").on_path(path.as_bytes()).detail("another writer replaced it")
}
