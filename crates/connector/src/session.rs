//! The values a write session is made of; all of them can travel to another host.

use serde::{Deserialize, Serialize};
use whimbrel_engine::{Fault, RangeSet};

use crate::meta::Timestamp;
use crate::path::StoragePath;
use crate::staging::staging_path;

/// What should become of what is there already.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Disposition {
    /// A new file, invisible until committed; replaces an existing one then.
    ///
    /// Leftovers of an earlier attempt at the same name are thrown away.
    Replace,
    /// Goes on with the unfinished file of an earlier attempt; where there is none but the final
    /// name exists, that file is changed in place; where there is neither, like `Replace`.
    Resume,
    /// The existing file is changed in place (created when missing): bytes outside what is written stay.
    Update,
    /// Goes on with the unfinished file beside the final name, or makes it; never changes the final name in place.
    ///
    /// Many writers on many hosts begin it so at once and share one file and one journal
    /// ([`crate::Connector::journal`]). Devices and pipes have no unfinished file: `NotSupported`.
    Continue,
}

/// What a writer intends, so that storage can prepare.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WriteIntent {
    /// What becomes of what is there.
    pub disposition: Disposition,
    /// Size of the whole file when it is known, bytes; lets storage reserve and refuse early.
    ///
    /// `None` for a sparse file: its size says nothing about the space it needs.
    pub size: Option<u64>,
    /// Length of the whole file when it is known, holes included, bytes; lets storage lay a new file out.
    pub length: Option<u64>,
    /// Permission bits that the commit will set, when they are known: a file that is made under its final name gives nobody
    /// more from the start. What has a hidden name is its owner's alone in any case.
    pub mode: Option<u32>,
}

/// A file being written; serialisable, valid on every host that reaches the storage.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WriteSession {
    /// Final name.
    pub path: StoragePath,
    /// Where the bytes are meanwhile: the final name itself for devices and in-place changes.
    pub staging: StoragePath,
    /// Whether commit has to rename `staging` to `path`.
    pub rename: bool,
    /// Opaque part of the connector: an upload id, say.
    pub token: Vec<u8>,
    /// Size known at begin, bytes.
    pub size: Option<u64>,
}

impl WriteSession {
    /// A session that leads to no file, for those who receive what is not kept.
    pub fn nowhere() -> Self {
        let path = StoragePath::root();
        Self { staging: path.clone(), path, rename: false, token: Vec::new(), size: None }
    }

    /// The session that a [`Disposition::Continue`] of `path` gave, from its token: so a token from
    /// elsewhere leads to the unfinished file of `path` or to nothing.
    ///
    /// `path` as [`crate::Connector::target`] answers it.
    pub fn of_unfinished(path: StoragePath, token: Vec<u8>, size: Option<u64>) -> Result<Self, Fault> {
        let staging = staging_path(&path)?;
        Ok(Self { path, staging, rename: true, token, size })
    }
}

/// What one writer wrote.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Receipt {
    /// Ranges written by this writer.
    pub written: RangeSet,
    /// Opaque part of the connector: part numbers and tags, say.
    pub token: Vec<u8>,
}

/// Permission bits with which a program runs as its owner, or as its group.
pub const SET_ID: u32 = 0o6000;

/// Attributes to set; `None` leaves what is there (or the storage's default for a new file).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attributes {
    /// Permission bits, `0o7777` at most.
    pub mode: Option<u32>,
    /// Group, by name or number.
    pub group: Option<String>,
    /// Modification time.
    pub modified: Option<Timestamp>,
    /// Commit only (else `InvalidArgument`): exact final size, bytes; a longer file is cut, a
    /// shorter one gets a hole.
    pub size: Option<u64>,
    /// Commit only (else ignored): data and name must survive a crash of the host.
    pub durable: bool,
}

impl Attributes {
    /// The same, with which no program runs as anybody else ([`SET_ID`]).
    #[must_use]
    pub fn without_set_id(&self) -> Self {
        Self { mode: self.mode.map(|mode| mode & !SET_ID), ..self.clone() }
    }
}
