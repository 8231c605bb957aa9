//! The end of a write session: commit or abandon.
//!
//! A commit holds the hidden file's lock from the comparison of inodes to the rename, and a takeover holds it while it
//! removes the file, so a file half written never gets the final name.

use std::os::fd::AsFd;
use std::sync::PoisonError;

use rustix::fs::Statx;
use rustix::io::Errno;
use whimbrel_engine::{Fault, FaultCode};

use super::Posix;
use super::attributes;
use super::error::{OrFault, fault};
use super::handles::Handle;
use super::journal;
use super::lock::Locked;
use super::meta::{mode_of, statx_at, statx_now};
use super::modes::{self, PRIVATE};
use super::resolve::{Dir, look};
use super::session::taken;
use super::steps::{self, sync_dir};
use super::token::{Identity, Manner, Token};
use crate::path::StoragePath;
use crate::rules::check;
use crate::session::{Attributes, WriteSession};

impl Posix {
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
            Manner::Staged | Manner::Continued => {
                let renamed = self.rename_staged(session, &token, &handle, attributes);
                if renamed.is_err() {
                    // Its writers, if there are any, must still learn of the next commit.
                    self.handles.share(&session.staging, &handle);
                }
                renamed
            }
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
        let locked = Locked::exclusive(&handle.file, "commit", path)?;
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
        let mode = attributes.mode.or(token.keep_mode).or_else(|| self.ordinary_mode(&handle.dir, &stat));
        finalize(handle, &stat, attributes, mode, path)?;
        // Syncing may take long; where locks are not kept, another writer may have removed it, and the name is of another file.
        match statx_now(&handle.file) {
            Ok(stat) if stat.stx_nlink > 0 => {}
            Ok(_) | Err(Errno::STALE) => return Err(taken(session)),
            Err(errno) => return Err(fault(errno, "commit", path)),
        }
        self.give_name("commit", (&handle.dir, from), (&handle.dir, to), path)?;
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

    /// What a new file is given when nobody said; `None` where the file system did not make it private either.
    fn ordinary_mode(&self, dir: &Dir, stat: &Statx) -> Option<u32> {
        (mode_of(stat) == PRIVATE.as_raw_mode()).then(|| modes::ordinary(dir, self.mask))
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
        let Some(dir) = self.committed_at(session, token) else { return Err(fault) };
        if attributes.durable {
            sync_dir(&dir).or_fault("sync directory", path)?;
        }
        if token.manner == Manner::Continued {
            journal::remove(&dir, path, &token.identity).or_fault("remove journal", path)?;
        }
        Ok(())
    }

    /// The directory where the bytes of a session have their final name; `None`: they have not, or it cannot be seen.
    pub(super) fn committed_at(&self, session: &WriteSession, token: &Token) -> Option<Dir> {
        let (dir, name) = self.root.entry(&session.path, "commit").ok()?;
        let named = look(&dir, name).ok()??;
        (Identity::of(&named) == token.identity).then_some(dir)
    }

    pub(super) fn abandon_session(&self, session: &WriteSession) -> Result<(), Fault> {
        let token = Token::of(session)?;
        let open_here = self.handles.take(&session.staging, &token.identity);
        match token.manner {
            Manner::Created => return self.remove_unwritten(session, &token),
            Manner::InPlace | Manner::Special => return Ok(()),
            Manner::Staged | Manner::Continued => {}
        }
        let handle = match open_here.map_or_else(|| self.reopen(session, &token), Ok) {
            Ok(handle) => Some(handle),
            // Committed, abandoned or taken over: nothing of this session is left but perhaps its journal.
            Err(fault) if matches!(fault.code, FaultCode::NotFound | FaultCode::StorageBusy) => {
                if self.is_hidden_still(session, &token) {
                    return Err(fault);
                }
                None
            }
            Err(fault) => return Err(fault),
        };
        let lock = |handle| Locked::exclusive(handle, "abandon", &session.path);
        let _locked = handle.as_ref().map(|handle| lock(&handle.file)).transpose()?;
        if token.manner == Manner::Continued {
            self.remove_journal(session, &token)?;
        }
        let Some(handle) = &handle else { return Ok(()) };
        let (name, _) = names(session)?;
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
    /// Whether the hidden name is the session's: then it could not be opened for another reason.
    fn is_hidden_still(&self, session: &WriteSession, token: &Token) -> bool {
        let entry = self.root.entry(&session.staging, "abandon").ok();
        let found = entry.and_then(|(dir, name)| look(&dir, name).ok().flatten());
        found.is_some_and(|stat| Identity::of(&stat) == token.identity)
    }

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
}

/// Applies size and attributes, and makes them durable when asked.
fn finalize(
    handle: &Handle,
    stat: &Statx,
    attributes: &Attributes,
    keep_mode: Option<u32>,
    path: &StoragePath,
) -> Result<(), Fault> {
    // Before its size is set.
    handle.settle(&(0..u64::MAX)).or_fault("write", path)?;
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
