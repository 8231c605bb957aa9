//! Storage behind one trait.
//!
//! A [`Connector`] adapts one kind of storage. Calls block: file systems have no asynchronous I/O,
//! and a connector to a remote store runs its own runtime inside. Every implementation runs the
//! same contract suite ([`contract`]).

mod claim;
pub mod contract;
pub mod faults;
pub mod memory;
pub mod meta;
pub mod path;
pub mod posix;
mod put;
mod rules;
pub mod session;
mod staging;

pub use meta::{Access, Entry, Kind, Meta, Timestamp, Version};
pub use path::StoragePath;
pub use put::ReadBack;
pub use session::{Attributes, Disposition, Receipt, SET_ID, WriteIntent, WriteSession};
pub use staging::{HIDDEN_WORD, shortened};

use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use put::put_in_steps;
use whimbrel_engine::{Fault, FaultCode, RangeSet};

/// What a connector can do, as far as callers must know before they plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Capabilities {
    /// In which order ranges may be written.
    pub write_order: WriteOrder,
    /// Whether existing files can be changed in place.
    pub update_in_place: bool,
    /// Whether modes, owners and times are kept.
    pub posix_attributes: bool,
    /// Whether symbolic links exist.
    pub symlinks: bool,
    /// Whether holes stay holes.
    pub sparse: bool,
}

/// In which order the ranges of one file may be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WriteOrder {
    /// Any offset at any time, from many writers.
    Any,
    /// From the first byte to the last, one writer.
    Sequential,
}

/// Whether the last component of a path is followed when it is a symbolic link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Follow {
    /// Describe what the link points to.
    Yes,
    /// Describe the link itself.
    No,
}

/// Entries of one directory, in the storage's order; `.` and `..` are not among them.
pub type Listing = Box<dyn Iterator<Item = Result<Entry, Fault>> + Send>;

/// Sorts up to `most` entries by name, and tells how many there are; with more of them all come in their own order, uncounted.
pub fn sorted(mut entries: Listing, most: usize) -> Result<(Listing, Option<u64>), Fault> {
    let mut first = entries.by_ref().take(most.saturating_add(1)).collect::<Result<Vec<_>, _>>()?;
    if first.len() > most {
        return Ok((Box::new(first.into_iter().map(Ok).chain(entries)), None));
    }
    first.sort_by(|a, b| a.name.cmp(&b.name));
    let count = first.len() as u64;
    Ok((Box::new(first.into_iter().map(Ok)), Some(count)))
}

/// One kind of storage.
///
/// Paths are absolute inside the collection. No call can reach outside the collection's root.
pub trait Connector: Send + Sync {
    /// What this storage can do.
    fn capabilities(&self) -> Capabilities;

    /// Describes one object.
    fn stat(&self, path: &StoragePath, follow: Follow) -> Result<Meta, Fault>;

    /// Lists a directory as a stream; memory does not grow with its size.
    ///
    /// Entries describe links themselves (`Follow::No`).
    fn list(&self, path: &StoragePath) -> Result<Listing, Fault>;

    /// The same in the order of the names, with how many there are, where that is at most `most`; with more of them in the storage's
    /// order, uncounted. Memory grows up to `most` entries. What vanishes meanwhile may be counted and not told.
    fn list_sorted(&self, path: &StoragePath, most: usize) -> Result<(Listing, Option<u64>), Fault> {
        sorted(self.list(path)?, most)
    }

    /// Opens a file for reading at any offset.
    ///
    /// With `expect`, fails with `SourceChanged` when the file is no longer that version.
    fn open_read(&self, path: &StoragePath, expect: Option<&Version>) -> Result<Arc<dyn ReadAt>, Fault>;

    /// Starts writing a file; the answer can be carried to any host that reaches this storage.
    ///
    /// Nothing is visible under the final name before [`Connector::commit`], and what has a hidden name is readable by its
    /// owner only, journals included, whatever mode it will have; so whoever goes on with it must be of the same account.
    /// Not so if the session is in place: an [`Disposition::Update`], a `Resume` of a finished file, or a device or pipe.
    /// Links are followed: the session's path is the name the bytes really go to. The missing
    /// directory is `NotFound`, a directory at `path` `IsADirectory`, too little space `NoSpace`.
    fn begin(&self, path: &StoragePath, intent: &WriteIntent) -> Result<WriteSession, Fault>;

    /// The name that bytes written to `path` go to: links in the last place are followed.
    ///
    /// Equal to the `path` of every session begun for it.
    fn target(&self, path: &StoragePath) -> Result<StoragePath, Fault>;

    /// The name that `path` really means: links are followed, in the last place if `follow` says so, where nothing need be.
    ///
    /// What it means a moment later may be something else: act through [`Connector::without_links`].
    fn resolve(&self, path: &StoragePath, follow: Follow) -> Result<StoragePath, Fault> {
        let _ = follow;
        Ok(path.clone())
    }

    /// The same storage, where a link on the way to anything is a fault (`InvalidPath`) and never followed, so that a path is
    /// the place it names; `None` where that holds anyway, or nobody can change links meanwhile.
    fn without_links(&self) -> Option<Arc<dyn Connector>> {
        None
    }

    /// The same storage, where what is there is never replaced nor changed by beginning, committing, putting or renaming: a name
    /// that is taken is `AlreadyExists`, also when somebody takes it in the same instant; `None` where the storage cannot tell so.
    fn without_replacing(&self) -> Option<Arc<dyn Connector>> {
        None
    }

    /// The same storage for one operation on many files: what was found out about a directory may hold for the next path in it, as
    /// if all had been done at once. Not to be kept longer. `None` where nothing would be spared.
    fn for_one_operation(&self) -> Option<Arc<dyn Connector>> {
        None
    }

    /// The journal of a session begun with [`Disposition::Continue`].
    ///
    /// It belongs to the very file of the session: another file under the same names has another
    /// journal. Removed by commit and by abandon. `NotSupported` for every other session.
    fn journal(&self, session: &WriteSession) -> Result<Arc<dyn Journal>, Fault>;

    /// Joins a session started here or elsewhere, to write some of its ranges.
    ///
    /// `NotFound` when it was abandoned, `StorageBusy` when another writer replaced it,
    /// `InvalidArgument` when it belongs to another kind of storage. Keep the writer until the
    /// commit where that is done by the same process: storage need not open the file again.
    fn join(&self, session: &WriteSession) -> Result<Arc<dyn WriteAt>, Fault>;

    /// Gives the file its final name and attributes, once, from the receipts of all writers.
    ///
    /// The only act that makes new data visible. A new file has its mode before it has its name: the one in `attributes`,
    /// else that of the file it replaces but for [`SET_ID`], else the one that storage gives a new file. Repeating a commit that succeeded is harmless and
    /// changes nothing. `StorageBusy` when another writer replaced the file meanwhile: then nothing
    /// of this session is visible. `IsADirectory` when a directory has taken the final name.
    /// Devices and pipes have no attributes: they are ignored.
    fn commit(&self, session: &WriteSession, receipts: &[Receipt], attributes: &Attributes) -> Result<(), Fault>;

    /// Whether the bytes of a session that renames have its final name already.
    ///
    /// False as well where that cannot be told, or another file has taken the name since.
    fn has_committed(&self, session: &WriteSession) -> bool;

    /// Throws the unfinished data of a session away; unknown sessions are not an error.
    ///
    /// What was written in place stays: others may be writing the same file.
    fn abandon(&self, session: &WriteSession) -> Result<(), Fault>;

    /// Stores a small file in one act: all its bytes, its attributes, its name; `data` is its size.
    ///
    /// As a session with [`Disposition::Replace`] does it, and with the same faults; storage may do it with less. With
    /// `attributes.durable` the bytes are durable before the name is given. `read_back` is shown the stored bytes before
    /// that, for a digest of them; shown twice, the last time counts; with its fault there is no file.
    fn put(
        &self,
        path: &StoragePath,
        data: &[u8],
        attributes: &Attributes,
        read_back: Option<ReadBack<'_>>,
    ) -> Result<(), Fault> {
        put_in_steps(self, path, data, attributes, read_back)
    }

    /// Describes the unfinished file that `Disposition::Resume` would go on with; `None` without one.
    ///
    /// Its size tells a client where to restart.
    fn unfinished(&self, path: &StoragePath) -> Result<Option<Meta>, Fault> {
        let _ = path;
        Ok(None)
    }

    /// Whether anything bears the hidden name of `path`: whoever begins to replace a file there would throw it away, also when it is
    /// written in chunks and so is nothing that could be resumed.
    fn has_unfinished(&self, path: &StoragePath) -> Result<bool, Fault> {
        Ok(self.unfinished(path)?.is_some())
    }

    /// A file without a name on the storage of a directory, for measuring; gone when the last hold on it is, whatever
    /// becomes of this process. Readable through [`WriteAt::read_back`].
    fn scratch(&self, directory: &StoragePath) -> Result<Arc<dyn WriteAt>, Fault> {
        Err(Fault::new(FaultCode::NotSupported, "make a temporary file").on_path(directory.as_bytes()))
    }

    /// Makes everything durable that was stored so far, by anybody on this host, on the file system that holds the directory
    /// `path`: bytes, names, attributes.
    ///
    /// `NotSupported` where the storage cannot promise it.
    fn sync(&self, path: &StoragePath) -> Result<(), Fault> {
        Err(Fault::new(FaultCode::NotSupported, "make durable").on_path(path.as_bytes()))
    }

    /// The file system that holds `path`.
    fn file_system(&self, path: &StoragePath) -> Result<FileSystem, Fault> {
        Err(Fault::new(FaultCode::NotSupported, "describe file system").on_path(path.as_bytes()))
    }

    /// Creates a directory; its parent must exist.
    fn make_dir(&self, path: &StoragePath) -> Result<(), Fault>;

    /// Removes an empty directory.
    fn remove_dir(&self, path: &StoragePath) -> Result<(), Fault>;

    /// Removes a file or a link (never what the link points to).
    fn remove_file(&self, path: &StoragePath) -> Result<(), Fault>;

    /// Removes a directory and everything below it, never following links.
    ///
    /// Anything else at `path`, a link included, is `NotADirectory`. Goes on past what cannot be
    /// removed and fails with the first fault.
    fn remove_tree(&self, path: &StoragePath) -> Result<(), Fault>;

    /// Renames, replacing a file that has the new name.
    ///
    /// With `durable` the content of a file, if it can be opened, survives a crash before it has the new name, and both
    /// names when this returns.
    fn rename(&self, from: &StoragePath, to: &StoragePath, durable: bool) -> Result<(), Fault>;

    /// Creates the link `link` with the text `target`.
    fn symlink(&self, target: &[u8], link: &StoragePath) -> Result<(), Fault>;

    /// Changes mode, group or times of what exists; `None` fields stay.
    ///
    /// A link itself has no mode: `NotSupported`.
    fn set_attributes(&self, path: &StoragePath, attributes: &Attributes, follow: Follow) -> Result<(), Fault>;

    /// The same for who must not say as whom a program runs: [`SET_ID`] is left out of a mode, but for a directory, where it says
    /// which group new files have. Storage that cannot tell in one act what it changes leaves it out always.
    fn set_plain_attributes(&self, path: &StoragePath, attributes: &Attributes, follow: Follow) -> Result<(), Fault> {
        self.set_attributes(path, &attributes.without_set_id(), follow)
    }

    /// Cuts or extends a file to `size` bytes; never what is unfinished, nor what is known of it (`InvalidPath`).
    fn truncate(&self, path: &StoragePath, size: u64) -> Result<(), Fault>;

    /// User and group names for listings; numbers as text where there are none.
    fn owner_names(&self, uid: u32, gid: u32) -> (String, String);
}

/// An open file to read from, by many threads at once.
pub trait ReadAt: Send + Sync {
    /// Reads at `offset` into `buffer`; fewer bytes than asked only at the end, 0 at and beyond it.
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<usize, Fault>;

    /// Size and version now, from the open file (not from its name).
    fn meta(&self) -> Result<Meta, Fault>;

    /// Size and version when it was opened: what a later [`ReadAt::meta`] is compared with.
    fn opened(&self) -> Result<Meta, Fault> {
        self.meta()
    }

    /// Parts of `0..size` that hold data; the rest is holes and reads as zeros.
    fn data_ranges(&self) -> Result<RangeSet, Fault>;

    /// The run of data or the hole that byte `at` lies in; beyond the end there is a hole without end.
    ///
    /// Takes no memory, however many there are. Storage that cannot tell says that all is data.
    fn extent_at(&self, at: u64) -> Result<Extent, Fault> {
        let size = self.meta()?.size;
        Ok(Extent { is_data: at < size, end: if at < size { size } else { u64::MAX } })
    }

    /// Whether there may be holes: cheaper than looking for them.
    fn may_have_holes(&self) -> bool {
        false
    }

    /// Forgets what memory holds of `range`, then tells where reads of it come from until somebody reads it again.
    fn drop_cached(&self, range: Range<u64>) -> ReadsFrom {
        let _ = range;
        ReadsFrom::Memory
    }

    /// Whether reads come from storage itself and nothing is read ahead: then few long ones are better than many short ones.
    fn is_past_cache(&self) -> bool {
        false
    }

    /// A descriptor the kernel can send from, when the bytes need not be seen.
    fn sendfile_source(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

/// A run of data or of nothing in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extent {
    /// Whether bytes are stored there; a hole reads as zeros and takes no space.
    pub is_data: bool,
    /// Where it ends at the latest; never before the byte that was asked about.
    pub end: u64,
}

/// A file system as a whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileSystem {
    /// What kind it is, as `mount` names it: `xfs`, `lustre`, `tmpfs`; a number where it has no known name.
    pub kind: String,
    /// Bytes in all.
    pub total: u64,
    /// Bytes that this user may still write.
    pub free: u64,
    /// Whether it has no storage but memory.
    pub in_memory: bool,
}

/// Where bytes that are read back come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReadsFrom {
    /// The storage itself: no byte of the range is in this host's memory.
    Storage,
    /// Possibly this host's memory, which did not let go of all of it.
    Memory,
    /// This host's memory: the storage has nothing else.
    OnlyMemory,
}

/// Bytes beside an unfinished file that say what of it is proven; shared by all its writers.
///
/// Appends of several writers, on several hosts, never mix, but a crash may tear the last one.
pub trait Journal: Send + Sync {
    /// All bytes appended so far, behind the first `offset`; none when there is no journal yet.
    fn read_from(&self, offset: u64) -> Result<Vec<u8>, Fault>;

    /// All bytes appended so far; empty when there is no journal yet.
    fn read(&self) -> Result<Vec<u8>, Fault> {
        self.read_from(0)
    }

    /// Adds `bytes` at the end, in one piece, if there are exactly `seen` bytes; whether it did.
    ///
    /// They survive this process, and a crash of the host after the next [`Journal::sync`] or [`Journal::append`]. `StorageBusy` when
    /// the journal was removed since it was opened: the file was committed or replaced.
    fn note(&self, seen: u64, bytes: &[u8]) -> Result<bool, Fault>;

    /// Makes what was noted survive a crash; `StorageBusy` as for [`Journal::note`].
    fn sync(&self) -> Result<(), Fault>;

    /// Adds `bytes` at the end, in one piece; they survive a crash when this returns.
    ///
    /// `StorageBusy` as for [`Journal::note`].
    fn append(&self, bytes: &[u8]) -> Result<(), Fault>;

    /// Keeps only the first `keep` bytes, if there are exactly `seen` bytes; whether it did.
    ///
    /// For a torn end: another writer may have appended since it was read.
    fn cut(&self, seen: u64, keep: u64) -> Result<bool, Fault>;
}

/// One writer's hold on a session, used by many threads at once.
pub trait WriteAt: Send + Sync {
    /// Writes all of `data` at `offset`.
    fn write_at(&self, offset: u64, data: &[u8]) -> Result<(), Fault>;

    /// Makes what was written so far through this writer survive a crash.
    fn sync(&self) -> Result<(), Fault>;

    /// Gives to the storage what this process still keeps of `range`: then it outlives this process, and others see it.
    ///
    /// `StorageBusy` when another writer replaced the file. Storage that keeps nothing back does nothing.
    fn settle(&self, range: Range<u64>) -> Result<(), Fault> {
        let _ = range;
        Ok(())
    }

    /// Makes what was written so far of `range` survive a crash; cheaper than [`WriteAt::sync`] while others write elsewhere.
    fn sync_range(&self, range: Range<u64>) -> Result<(), Fault> {
        let _ = range;
        self.sync()
    }

    /// False once a sync of the file has failed, by whichever of its writers: what was written and not synced before may be
    /// lost, and this writer can make nothing durable any more. Join the session anew, and write it again.
    fn is_sound(&self) -> bool {
        true
    }

    /// Gives the end of the file to this writer as long as it lives: of two that append, none writes over the other's bytes.
    ///
    /// `StorageBusy` at once while another has it. Devices and pipes have no end, and storage without locks leaves it to everybody.
    fn claim_end(&self) -> Result<(), Fault> {
        Ok(())
    }

    /// What a restart may trust: everything written before the last successful [`WriteAt::sync`].
    fn durable(&self) -> Result<RangeSet, Fault>;

    /// Takes the space that writing `range` will need, so that a full disk is known before data flow.
    ///
    /// Changes neither size nor content. `NoSpace` when there is none; storage that cannot reserve
    /// does nothing.
    fn reserve(&self, range: Range<u64>) -> Result<(), Fault> {
        let _ = range;
        Ok(())
    }

    /// Makes `range` a hole, which it may be already: it reads as zeros and takes no space.
    ///
    /// Durable after [`WriteAt::sync`]. The file's size stays. `NotSupported` where storage keeps no holes of that
    /// place and length; then nothing is changed.
    fn clear(&self, range: Range<u64>) -> Result<(), Fault> {
        let _ = range;
        Err(Fault::new(FaultCode::NotSupported, "make a hole").detail("this storage keeps no holes"))
    }

    /// Makes the file at least `size` bytes long; what is added is a hole.
    ///
    /// All who write the file at once must agree on `size` and write nothing behind it.
    fn extend_to(&self, size: u64) -> Result<(), Fault> {
        let _ = size;
        Ok(())
    }

    /// Bytes that the file can hold at most as storage is now: what is free and what it takes itself; `None` when nobody knows.
    fn room(&self) -> Result<Option<u64>, Fault> {
        Ok(None)
    }

    /// Bytes at whose multiples writers should begin and end so as not to meet in one server of a parallel file
    /// system; `None` where it does not matter.
    fn stripe_size(&self) -> Option<u64> {
        None
    }

    /// Makes `range` durable and forgets what memory holds of it, then tells where [`WriteAt::read_back`]
    /// of it reads from until somebody reads or writes it again.
    fn drop_cached(&self, range: Range<u64>) -> Result<ReadsFrom, Fault> {
        let _ = range;
        self.sync()?;
        Ok(ReadsFrom::Memory)
    }

    /// Reads back what was written, for verification; same rules as [`ReadAt::read_at`].
    fn read_back(&self, offset: u64, buffer: &mut [u8]) -> Result<usize, Fault>;

    /// As [`ReadAt::is_past_cache`], of [`WriteAt::read_back`].
    fn is_past_cache(&self) -> bool {
        false
    }

    /// Ends this writer's part; with the faults of what it has written, which some storage tells no sooner.
    fn finish(&self) -> Result<Receipt, Fault>;
}
