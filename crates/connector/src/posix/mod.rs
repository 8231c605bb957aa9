//! A directory tree of the host.
//!
//! Everything happens beneath one root directory, as after `chroot`: `..` stops there, absolute
//! links start there, and no call can reach outside, whatever is renamed meanwhile. The kernel
//! resolves paths (`openat2`, Linux 5.6); without it, and where the resolved name is needed, this
//! module does, component by component.
//!
//! **Unfinished files** are named `.NAME.whimbrel-part` in the directory of the final name, so
//! that the rename at commit is atomic and the space is the destination's. Listings show them, as
//! an administrator must see what fills the disk. Replacing a file needs write permission on it and
//! on its directory, breaks hard links to it, drops its owner, access lists and extended attributes,
//! and replaces what a link points to, not the link.
//!
//! **Modes**: unfinished files and journals are their owner's alone (0600) until the moment before
//! the rename. Then they get the mode that was asked for; else that of the file they replace, as it
//! was when the session began, but for the bits with which a program runs as somebody else; else
//! the one that open(2) gives a new file there: 0666 less the mask that the process had when the
//! collection was opened, or what the directory's default access list says (acl(5)). A file made under its final name never has more than was asked for.
//!
//! **Two writers of one name** (see [`Connector::without_replacing`] for those who may not replace): the last `begin(Replace)` throws the earlier unfinished file away;
//! the earlier writer's commit then fails with `StorageBusy`. Of two finished ones the last commit
//! wins. Writers that `Resume`, `Update` or `Continue` the same file share it.
//!
//! **Journals** of files that many writers `Continue` are named `.NAME.whimbrel-journal-IDENTITY`, where the
//! identity is that of the unfinished file (inode and birth). Only files of this user are believed.
//!
//! **Devices and pipes**, known by type and not by name, are opened where they are: no hidden
//! name, no size, no attributes. Opening a pipe that nobody reads fails with `StorageBusy` instead
//! of waiting. Their bytes pass in order, unless the device has positions. They alone may make a
//! read or a write wait for as long as the other side likes. A pipe under a hidden name is what
//! somebody planted there: never opened to be written, and removed by the next who needs the name.
//!
//! **Locks** (flock) of unfinished files and journals are waited for 30 s, then the operation fails with `StorageBusy`.
//!
//! **Small files** that come whole ([`Connector::put`]) have no name at all until they are given the final one, where
//! the file system has such files, nothing else bears that name and nothing unfinished of it is known to lie beside it: a
//! directory is looked through at most every 10 s, and for its single names where it is large or something was begun in it.
//!
//! **Past the page cache** ([`DirectOptions`]): of large files whose length is known, whole pieces are written directly, and
//! read back so; until a piece is complete its bytes are in this process, and others do not see them.
//!
//! **Speed**: keep a session's writer until commit; then begin, join, commit open the file once.
//!
//! Sizes of unfinished files are not reserved, only ranges asked for ([`crate::WriteAt::reserve`]; not in file systems
//! that are memory): holes stay holes. A known size of 1 MiB or more that
//! exceeds the free space is refused at begin.

mod attributes;
mod begun;
mod commit;
mod direct;
mod error;
mod handles;
mod inorder;
mod journal;
mod list;
mod lock;
mod looked;
pub mod lustre;
mod magic;
mod meta;
mod modes;
mod read;
mod remove;
mod renaming;
mod resolve;
mod scratch;
mod session;
mod steps;
mod token;
mod unnamed;
mod walk;
mod write;
mod written;

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use rustix::fs::{AtFlags, Dir as RawStream, Mode, OFlags, ftruncate, mkdirat};
use rustix::fs::{symlinkat, unlinkat};
use rustix::io::Errno;
use whimbrel_engine::{Fault, FaultCode};
use whimbrel_sys::names;

use crate::path::StoragePath;
use crate::put::ReadBack;
use crate::rules::can_be_cut;
use crate::session::{Attributes, Receipt, WriteIntent, WriteSession};
use crate::staging::refuse_hidden;
use crate::{Capabilities, Connector, FileSystem, Follow, Journal, Listing, ReadAt, WriteAt, WriteOrder};
use crate::{Meta, Version};
use attributes::SetId;
use direct::Direct;
pub use direct::DirectOptions;
use error::{OrFault, fault};
use handles::Handles;
use looked::Looked;
use lustre::Lustre;
pub use lustre::{LayoutTool, Lfs};
use meta::{Caller, is_link, kind_of, link_text, statx_fd};
use resolve::{Root, retry};
use token::{Manner, Token};
use unnamed::Unnamed;

/// How a directory tree is served.
#[derive(Debug, Clone, Default)]
pub struct PosixOptions {
    /// Refuse every change with `ReadOnly`. Default: false.
    pub read_only: bool,
    /// Resolve paths without `openat2` even where the kernel has it. Default: false, for tests.
    pub without_openat2: bool,
    /// The program `lfs`, which chooses the layout of new files on Lustre. Default: none, layouts are left alone.
    pub lfs: Option<Arc<dyn LayoutTool>>,
    /// Write and read large files past the page cache. Default: none, everything goes through it.
    pub direct: Option<DirectOptions>,
    /// Take every file system for Lustre. Default: false, for tests.
    pub lustre_everywhere: bool,
}

/// A directory tree of the host; see the module's description for its rules.
///
/// Acts with the identity the process has when this is opened: do not change users afterwards. Clones share what is remembered of
/// the storage.
#[derive(Clone)]
pub struct Posix {
    root: Root,
    caller: Caller,
    handles: Arc<Handles>,
    unnamed: Arc<Unnamed>,
    looked: Arc<Looked>,
    direct: Option<Arc<Direct>>,
    lustre: Option<Arc<Lustre>>,
    /// What new files do not give to others.
    mask: u32,
    read_only: bool,
    /// Whether a name may be taken from what has it.
    replaces: bool,
    users: Arc<Names>,
    groups: Arc<Names>,
}

impl Posix {
    /// Serves the tree below `root`, which must be a directory.
    pub fn open(root: &Path, options: PosixOptions) -> Result<Self, Fault> {
        Ok(Self {
            root: Root::open(root, options.without_openat2)?,
            caller: Caller::current(options.read_only),
            handles: Arc::default(),
            unnamed: Arc::default(),
            looked: Arc::default(),
            direct: options.direct.map(|options| Arc::new(Direct::new(options))),
            lustre: options.lfs.map(|tool| Arc::new(Lustre::new(tool, options.lustre_everywhere))),
            mask: modes::mask(),
            read_only: options.read_only,
            replaces: true,
            users: Arc::default(),
            groups: Arc::default(),
        })
    }

    fn stream(&self, path: &StoragePath) -> Result<list::Stream, Fault> {
        let fd = self.root.open_at(path, OFlags::RDONLY | OFlags::DIRECTORY).or_fault("list", path)?;
        let entries = RawStream::new(fd).or_fault("list", path)?;
        Ok(list::Stream::new(entries, self.caller.clone(), path.clone()))
    }

    fn writable(&self, op: &str, path: &StoragePath) -> Result<(), Fault> {
        if !self.read_only {
            return Ok(());
        }
        Err(Fault::new(FaultCode::ReadOnly, op).on_path(path.as_bytes()).detail("the collection is served read-only"))
    }
}

impl Connector for Posix {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            write_order: WriteOrder::Any,
            update_in_place: true,
            posix_attributes: true,
            symlinks: true,
            sparse: true,
        }
    }

    fn stat(&self, path: &StoragePath, follow: Follow) -> Result<Meta, Fault> {
        let op = "stat";
        let nofollow = match follow {
            Follow::Yes => OFlags::empty(),
            Follow::No => OFlags::NOFOLLOW,
        };
        let fd = self.root.open_at(path, OFlags::PATH | nofollow).or_fault(op, path)?;
        let stat = statx_fd(&fd).or_fault(op, path)?;
        let target = is_link(&stat).then(|| link_text(&fd, b""));
        let target = target.transpose().or_fault(op, path)?;
        Ok(self.caller.meta(&stat, target))
    }

    fn list(&self, path: &StoragePath) -> Result<Listing, Fault> {
        Ok(Box::new(self.stream(path)?))
    }

    fn list_sorted(&self, path: &StoragePath, most: usize) -> Result<(Listing, Option<u64>), Fault> {
        let mut stream = self.stream(path)?;
        let count = stream.sort(most)?;
        Ok((Box::new(stream), count))
    }

    fn open_read(&self, path: &StoragePath, expect: Option<&Version>) -> Result<Arc<dyn ReadAt>, Fault> {
        let reader = read::open(&self.root, &self.caller, path, expect)?;
        Ok(Arc::new(reader.past_cache(self.direct.as_deref())))
    }

    fn begin(&self, path: &StoragePath, intent: &WriteIntent) -> Result<WriteSession, Fault> {
        self.writable("write", path)?;
        self.begin_session(path, intent)
    }

    fn target(&self, path: &StoragePath) -> Result<StoragePath, Fault> {
        Ok(self.root.place(path)?.path)
    }

    fn resolve(&self, path: &StoragePath, follow: Follow) -> Result<StoragePath, Fault> {
        self.root.resolve(path, follow == Follow::Yes).or_fault("resolve", path)
    }

    fn without_links(&self) -> Option<Arc<dyn Connector>> {
        Some(Arc::new(Self { root: self.root.without_links(), ..self.clone() }))
    }

    fn without_replacing(&self) -> Option<Arc<dyn Connector>> {
        Some(Arc::new(Self { replaces: false, ..self.clone() }))
    }

    fn for_one_operation(&self) -> Option<Arc<dyn Connector>> {
        Some(Arc::new(Self { root: self.root.with_memory(), ..self.clone() }))
    }

    fn journal(&self, session: &WriteSession) -> Result<Arc<dyn Journal>, Fault> {
        self.writable("write", &session.path)?;
        Ok(Arc::new(self.open_journal(session)?))
    }

    fn join(&self, session: &WriteSession) -> Result<Arc<dyn WriteAt>, Fault> {
        self.writable("write", &session.path)?;
        let token = Token::of(session)?;
        let handle = self.handle_of(session, &token)?;
        if let Some(direct) = &self.direct {
            direct.apply(session, &token, &handle);
        }
        let hidden = session.rename.then(|| write::Hidden {
            name: session.staging.name().unwrap_or_default().to_vec(),
            alone: token.manner == Manner::Staged,
        });
        let writer = write::Writer::new(handle, session.path.clone(), hidden);
        Ok(Arc::new(writer.on_lustre(session, self.lustre.clone())))
    }

    fn commit(&self, session: &WriteSession, _receipts: &[Receipt], attributes: &Attributes) -> Result<(), Fault> {
        self.writable("commit", &session.path)?;
        self.commit_session(session, attributes)
    }

    fn has_committed(&self, session: &WriteSession) -> bool {
        Token::of(session).is_ok_and(|token| token.manner.is_hidden() && self.committed_at(session, &token).is_some())
    }

    fn abandon(&self, session: &WriteSession) -> Result<(), Fault> {
        self.writable("abandon", &session.path)?;
        self.abandon_session(session)
    }

    fn put(
        &self,
        path: &StoragePath,
        data: &[u8],
        attributes: &Attributes,
        read_back: Option<ReadBack<'_>>,
    ) -> Result<(), Fault> {
        self.writable("write", path)?;
        self.put_whole(path, data, attributes, read_back)
    }

    fn unfinished(&self, path: &StoragePath) -> Result<Option<Meta>, Fault> {
        self.find_unfinished(path)
    }

    fn has_unfinished(&self, path: &StoragePath) -> Result<bool, Fault> {
        self.bears_hidden_name(path)
    }

    fn scratch(&self, directory: &StoragePath) -> Result<Arc<dyn WriteAt>, Fault> {
        self.open_scratch(directory)
    }

    fn sync(&self, path: &StoragePath) -> Result<(), Fault> {
        self.sync_file_system(path)
    }

    fn file_system(&self, path: &StoragePath) -> Result<FileSystem, Fault> {
        self.describe_file_system(path)
    }

    fn make_dir(&self, path: &StoragePath) -> Result<(), Fault> {
        let op = "make directory";
        self.writable(op, path)?;
        let Some((dir, name)) = self.root.parent(path).or_fault(op, path)? else {
            return Err(fault(Errno::EXIST, op, path));
        };
        let made = self.looked.making();
        mkdirat(&dir, name, Mode::from_raw_mode(0o777)).or_fault(op, path)?;
        self.looked.made(made, path, Instant::now());
        Ok(())
    }

    fn remove_dir(&self, path: &StoragePath) -> Result<(), Fault> {
        let op = "remove directory";
        self.writable(op, path)?;
        let (dir, name) = self.root.entry(path, op)?;
        retry(|| unlinkat(&dir, name, AtFlags::REMOVEDIR)).or_fault(op, path)
    }

    fn remove_file(&self, path: &StoragePath) -> Result<(), Fault> {
        let op = "remove file";
        self.writable(op, path)?;
        match self.root.parent(path).or_fault(op, path)? {
            Some((dir, name)) => retry(|| unlinkat(&dir, name, AtFlags::empty())).or_fault(op, path),
            None => Err(fault(Errno::ISDIR, op, path)),
        }
    }

    fn remove_tree(&self, path: &StoragePath) -> Result<(), Fault> {
        self.writable("remove", path)?;
        let (dir, name) = self.root.entry(path, "remove")?;
        remove::remove_tree(&dir, name, path)
    }

    fn rename(&self, from: &StoragePath, to: &StoragePath, durable: bool) -> Result<(), Fault> {
        self.writable("rename", from)?;
        self.rename_entry(from, to, durable)
    }

    fn symlink(&self, target: &[u8], link: &StoragePath) -> Result<(), Fault> {
        let op = "make link";
        self.writable(op, link)?;
        match self.root.parent(link).or_fault(op, link)? {
            Some((dir, name)) => symlinkat(target, &dir, name).or_fault(op, link),
            None => Err(fault(Errno::EXIST, op, link)),
        }
    }

    fn set_attributes(&self, path: &StoragePath, attributes: &Attributes, follow: Follow) -> Result<(), Fault> {
        self.writable("set attributes", path)?;
        attributes::set(&self.root, path, attributes, follow, SetId::AsAsked)
    }

    fn set_plain_attributes(&self, path: &StoragePath, attributes: &Attributes, follow: Follow) -> Result<(), Fault> {
        self.writable("set attributes", path)?;
        attributes::set(&self.root, path, attributes, follow, SetId::OfDirectories)
    }

    fn truncate(&self, path: &StoragePath, size: u64) -> Result<(), Fault> {
        let op = "truncate";
        self.writable(op, path)?;
        // Bytes that are proven would go, or what is proven of them. Whatever is changed on the way to it, its name stays.
        let real = self.root.resolve(path, true).or_fault(op, path)?;
        refuse_hidden(&real, op)?;
        let flags = OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY;
        let fd = self.root.open_at(&real, flags).or_fault(op, path)?;
        let stat = statx_fd(&fd).or_fault(op, path)?;
        can_be_cut(kind_of(&stat), path)?;
        retry(|| ftruncate(&fd, size)).or_fault(op, path)
    }

    fn owner_names(&self, uid: u32, gid: u32) -> (String, String) {
        let user = self.users.get(uid, names::user_name);
        let group = self.groups.get(gid, names::group_name);
        (user, group)
    }
}

/// Names found so far: a lookup may ask a server, a listing has millions.
#[derive(Default)]
struct Names(Mutex<HashMap<u32, String>>);

/// Most names remembered.
const NAMES_MAX: usize = 10_000;

impl Names {
    fn get(&self, id: u32, look_up: fn(u32) -> std::io::Result<Option<Vec<u8>>>) -> String {
        let known = |names: &HashMap<u32, String>| names.get(&id).cloned();
        if let Some(name) = known(&self.0.lock().unwrap_or_else(PoisonError::into_inner)) {
            return name;
        }
        // Asked without the lock: it may take seconds. A failing name service is not remembered.
        let found = match look_up(id) {
            Ok(found) => found,
            Err(_) => return id.to_string(),
        };
        let name = found.map_or_else(|| id.to_string(), |name| String::from_utf8_lossy(&name).into_owned());
        let mut names = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if names.len() >= NAMES_MAX {
            names.clear();
        }
        names.insert(id, name.clone());
        name
    }
}
