//! Storage in memory, with the rules of POSIX.
//!
//! For tests and simulations: every path, link, session and error behaves as in
//! [`crate::posix`], except that everybody may do everything, and that nothing survives. Instances
//! made by `clone` share one storage, as two hosts share a file system. With
//! [`Memory::with_power_cuts`] it survives power cuts as a disk does: what was synced is there.

mod data;
mod files;
mod journal;
mod power;
mod session;
mod tree;

use std::ops::Bound;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::{SystemTime, UNIX_EPOCH};

use whimbrel_engine::{Fault, FaultCode};

use crate::meta::{Entry, Kind, Meta, Timestamp, Version};
use crate::path::StoragePath;
use crate::rules::{can_be_cut, check_commit_only, end_of, expect_version, link_has_no_mode, root_stays};
use crate::session::{Attributes, Receipt, WriteIntent, WriteSession};
use crate::staging::refuse_hidden;
use crate::{Capabilities, Connector, FileSystem, Follow, Journal, Listing, ReadAt, WriteAt, WriteOrder};
use files::{Reader, Writer};
use power::Power;
pub use power::Safeguard;
use tree::{Body, Facts, Node, OnPath, Spot, is_within, resolve};

/// Where modification times come from.
pub type Clock = Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// Modes of new files, and of those that have no final name yet.
const ORDINARY: u32 = 0o644;
const PRIVATE: u32 = 0o600;

/// Longest link text, bytes (`PATH_MAX` less its NUL).
const LINK_MAX: usize = 4095;

/// A storage in memory; clones share it.
#[derive(Clone)]
pub struct Memory {
    root: Arc<Node>,
    /// Held during every change of names, so that each is one step.
    names: Arc<Mutex<()>>,
    next_id: Arc<AtomicU64>,
    clock: Clock,
    power: Arc<Power>,
    /// Whether a name may be taken from what has it.
    replaces: bool,
}

impl Default for Memory {
    fn default() -> Self {
        Self::new()
    }
}

impl Memory {
    /// An empty storage that takes times from the system's clock.
    pub fn new() -> Self {
        Self::with_clock(Arc::new(|| {
            let now = SystemTime::now().duration_since(UNIX_EPOCH);
            let now = now.unwrap_or_default();
            Timestamp { seconds: now.as_secs() as i64, nanoseconds: now.subsec_nanos() }
        }))
    }

    /// An empty storage that takes times from `clock`: simulations repeat exactly.
    pub fn with_clock(clock: Clock) -> Self {
        let root = Node {
            id: 1,
            body: Body::Directory(Mutex::default()),
            facts: Mutex::new(Facts { mode: 0o755, gid: 0, modified: clock() }),
            stable: Mutex::default(),
            committed: AtomicBool::default(),
            appended: AtomicBool::default(),
        };
        let next_id = Arc::new(AtomicU64::new(2));
        Self { root: Arc::new(root), names: Arc::default(), next_id, clock, power: Arc::default(), replaces: true }
    }

    /// Adds the device nodes `/zero` (endless zeros) and `/null`; both swallow what is written.
    pub fn with_devices(self) -> Self {
        for (name, body) in [("zero", Body::Zero), ("null", Body::Null)] {
            let node = self.new_node(body, 0o666);
            if let Ok(mut names) = self.root.names() {
                names.insert(name.into(), node);
            }
        }
        self
    }

    fn lock(&self) -> MutexGuard<'_, ()> {
        self.names.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn new_node(&self, body: Body, mode: u32) -> Arc<Node> {
        Arc::new(Node {
            id: self.next_id.fetch_add(1, Ordering::Relaxed),
            body,
            facts: Mutex::new(Facts { mode, gid: 0, modified: (self.clock)() }),
            stable: Mutex::default(),
            committed: AtomicBool::default(),
            appended: AtomicBool::default(),
        })
    }

    /// What `path` leads to; the root as itself.
    fn find(&self, path: &StoragePath, follow: bool) -> Result<Arc<Node>, FaultCode> {
        match resolve(&self.root, path, follow)? {
            None => Ok(self.root.clone()),
            Some(spot) => spot.found.ok_or(FaultCode::NotFound),
        }
    }

    /// The name itself, which the root does not have.
    fn entry(&self, path: &StoragePath, op: &str) -> Result<Spot, Fault> {
        let spot = resolve(&self.root, path, false).on(op, path)?;
        spot.ok_or_else(|| root_stays(op))
    }

    fn add(&self, path: &StoragePath, body: Body, mode: u32, op: &str) -> Result<(), Fault> {
        let _names = self.lock();
        let spot = resolve(&self.root, path, false).on(op, path)?;
        let Some(spot) = spot.filter(|spot| spot.found.is_none()) else {
            return Err(FaultCode::AlreadyExists).on(op, path);
        };
        let node = self.new_node(body, mode);
        self.put_name(&spot.dir, spot.name(), &node).on(op, path)
    }

    /// Removes a name when `check` allows it for what bears it.
    fn remove(&self, path: &StoragePath, op: &str, check: fn(&Node) -> Result<(), FaultCode>) -> Result<(), Fault> {
        let _names = self.lock();
        let spot = self.entry(path, op)?;
        let node = spot.found.as_ref().ok_or(FaultCode::NotFound);
        node.and_then(|node| check(node)).on(op, path)?;
        self.drop_name(&spot.dir, spot.name()).on(op, path)
    }

    /// Renames; the caller holds the names' lock.
    fn move_name(&self, from: &StoragePath, to: &StoragePath) -> Result<(), Fault> {
        let op = "rename";
        let (old, new) = (self.entry(from, op)?, self.entry(to, op)?);
        let Some(node) = &old.found else {
            return Err(FaultCode::NotFound).on(op, from);
        };
        if !self.replaces && new.found.is_some() {
            return Err(FaultCode::AlreadyExists).on(op, to);
        }
        if may_replace(node, &old, &new).on(op, from)? {
            if Arc::ptr_eq(&old.dir, &new.dir) {
                return self.change_name(&old.dir, old.name(), new.name(), node).on(op, from);
            }
            self.drop_name(&old.dir, old.name()).on(op, from)?;
            self.put_name(&new.dir, new.name(), node).on(op, to)?;
        }
        Ok(())
    }
}

/// Checks in the order of the kernel; false when old and new are the same.
fn may_replace(node: &Arc<Node>, old: &Spot, new: &Spot) -> Result<bool, FaultCode> {
    if is_within(node, &new.dir) {
        return Err(FaultCode::InvalidArgument);
    }
    let Some(target) = &new.found else {
        return Ok(true);
    };
    if is_within(target, &old.dir) && target.kind() == Kind::Directory {
        return Err(FaultCode::DirectoryNotEmpty);
    }
    if Arc::ptr_eq(node, target) {
        return Ok(false);
    }
    match (node.kind(), target.kind()) {
        (Kind::Directory, Kind::Directory) if target.names()?.is_empty() => Ok(true),
        (Kind::Directory, Kind::Directory) => Err(FaultCode::DirectoryNotEmpty),
        (Kind::Directory, _) => Err(FaultCode::NotADirectory),
        (_, Kind::Directory) => Err(FaultCode::IsADirectory),
        _ => Ok(true),
    }
}

/// Sets mode, group and time; the values are checked already.
fn set_facts(node: &Node, attributes: &Attributes, path: &StoragePath) -> Result<(), Fault> {
    let gid = match &attributes.group {
        None => None,
        Some(group) => Some(group.parse::<u32>().map_err(|_| {
            Fault::new(FaultCode::InvalidArgument, "change group")
                .on_path(path.as_bytes())
                .detail("groups in memory have numbers only")
        })?),
    };
    let mut facts = node.facts();
    facts.gid = gid.unwrap_or(facts.gid);
    facts.mode = attributes.mode.unwrap_or(facts.mode);
    facts.modified = attributes.modified.unwrap_or(facts.modified);
    Ok(())
}

/// One directory being listed: goes on behind the last name, so names may come and go.
struct Names {
    dir: Arc<Node>,
    last: Option<Vec<u8>>,
}

impl Iterator for Names {
    type Item = Result<Entry, Fault>;

    fn next(&mut self) -> Option<Self::Item> {
        let names = self.dir.names().ok()?;
        let from = self.last.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
        let (name, node) = names.range::<[u8], _>((from, Bound::Unbounded)).next()?;
        let entry = Entry { name: name.clone(), meta: node.meta() };
        self.last = Some(name.clone());
        Some(Ok(entry))
    }
}

impl Connector for Memory {
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
        let _names = self.lock();
        let node = self.find(path, follow == Follow::Yes).on("stat", path)?;
        Ok(node.meta())
    }

    fn list(&self, path: &StoragePath) -> Result<Listing, Fault> {
        let _names = self.lock();
        let dir = self.find(path, true).on("list", path)?;
        dir.names().map(drop).on("list", path)?;
        Ok(Box::new(Names { dir, last: None }))
    }

    fn open_read(&self, path: &StoragePath, expect: Option<&Version>) -> Result<Arc<dyn ReadAt>, Fault> {
        let op = "open for reading";
        let _names = self.lock();
        let node = self.find(path, true).on(op, path)?;
        if node.kind() == Kind::Directory {
            return Err(FaultCode::IsADirectory).on(op, path);
        }
        if let Some(expected) = expect {
            expect_version(expected, &node.meta().version(), path)?;
        }
        Ok(Arc::new(Reader { node }))
    }

    fn begin(&self, path: &StoragePath, intent: &WriteIntent) -> Result<WriteSession, Fault> {
        self.begin_session(path, intent)
    }

    fn resolve(&self, path: &StoragePath, follow: Follow) -> Result<StoragePath, Fault> {
        let _names = self.lock();
        let spot = resolve(&self.root, path, follow == Follow::Yes).on("resolve", path)?;
        Ok(spot.map_or_else(StoragePath::root, |spot| spot.path))
    }

    fn target(&self, path: &StoragePath) -> Result<StoragePath, Fault> {
        let op = "open for writing";
        let _names = self.lock();
        match resolve(&self.root, path, true).on(op, path)? {
            Some(spot) => Ok(spot.path),
            None => Err(FaultCode::IsADirectory).on(op, path),
        }
    }

    fn without_replacing(&self) -> Option<Arc<dyn Connector>> {
        Some(Arc::new(Self { replaces: false, ..self.clone() }))
    }

    fn journal(&self, session: &WriteSession) -> Result<Arc<dyn Journal>, Fault> {
        Ok(Arc::new(self.open_journal(session)?))
    }

    fn join(&self, session: &WriteSession) -> Result<Arc<dyn WriteAt>, Fault> {
        let _names = self.lock();
        let node = self.node_of(session)?;
        let path = session.path.clone();
        Ok(Arc::new(Writer::new(node, path, self.clone(), session.rename.then(|| session.clone()))))
    }

    fn commit(&self, session: &WriteSession, _receipts: &[Receipt], attributes: &Attributes) -> Result<(), Fault> {
        self.commit_session(session, attributes)
    }

    fn has_committed(&self, session: &WriteSession) -> bool {
        let _names = self.lock();
        self.is_committed(session).unwrap_or(false)
    }

    fn abandon(&self, session: &WriteSession) -> Result<(), Fault> {
        self.abandon_session(session)
    }

    fn unfinished(&self, path: &StoragePath) -> Result<Option<Meta>, Fault> {
        let _names = self.lock();
        self.find_unfinished(path)
    }

    fn has_unfinished(&self, path: &StoragePath) -> Result<bool, Fault> {
        let _names = self.lock();
        Ok(self.hidden_of(path)?.is_some())
    }

    fn scratch(&self, directory: &StoragePath) -> Result<Arc<dyn WriteAt>, Fault> {
        let _names = self.lock();
        let dir = self.find(directory, true).on("make a temporary file", directory)?;
        dir.names().map(drop).on("make a temporary file", directory)?;
        let node = self.new_node(Body::File(RwLock::default()), PRIVATE);
        Ok(Arc::new(Writer::new(node, directory.clone(), self.clone(), None)))
    }

    fn sync(&self, path: &StoragePath) -> Result<(), Fault> {
        let _names = self.lock();
        let dir = self.find(path, true).on("make durable", path)?;
        dir.names().map(drop).on("make durable", path)
    }

    fn file_system(&self, path: &StoragePath) -> Result<FileSystem, Fault> {
        let _names = self.lock();
        self.find(path, true).on("describe file system", path)?;
        Ok(FileSystem { kind: "memory".to_owned(), total: 0, free: 0, in_memory: true })
    }

    fn make_dir(&self, path: &StoragePath) -> Result<(), Fault> {
        self.add(path, Body::Directory(Mutex::default()), 0o755, "make directory")
    }

    fn remove_dir(&self, path: &StoragePath) -> Result<(), Fault> {
        self.remove(path, "remove directory", |node| {
            if node.names()?.is_empty() { Ok(()) } else { Err(FaultCode::DirectoryNotEmpty) }
        })
    }

    fn remove_file(&self, path: &StoragePath) -> Result<(), Fault> {
        let op = "remove file";
        if path.is_root() {
            return Err(FaultCode::IsADirectory).on(op, path);
        }
        self.remove(path, op, |node| match node.kind() {
            Kind::Directory => Err(FaultCode::IsADirectory),
            _ => Ok(()),
        })
    }

    fn remove_tree(&self, path: &StoragePath) -> Result<(), Fault> {
        self.remove(path, "remove", |node| node.names().map(drop))
    }

    fn rename(&self, from: &StoragePath, to: &StoragePath, durable: bool) -> Result<(), Fault> {
        refuse_hidden(to, "rename")?;
        let _names = self.lock();
        if durable && let Some(node) = self.entry(from, "rename")?.found {
            self.sync_file(&node).on("sync", from)?;
        }
        self.move_name(from, to)?;
        if durable {
            // The new name first: at no time is there neither.
            self.sync_parent(to).on("sync directory", to)?;
            self.sync_parent(from).on("sync directory", from)?;
        }
        Ok(())
    }

    fn symlink(&self, target: &[u8], link: &StoragePath) -> Result<(), Fault> {
        let op = "make link";
        let code = match target {
            b"" => Some(FaultCode::NotFound),
            _ if target.contains(&0) => Some(FaultCode::InvalidArgument),
            _ if target.len() > LINK_MAX => Some(FaultCode::InvalidPath),
            _ => None,
        };
        if let Some(code) = code {
            return Err(code).on(op, link);
        }
        self.add(link, Body::Link(target.to_vec()), 0o777, op)
    }

    fn set_attributes(&self, path: &StoragePath, attributes: &Attributes, follow: Follow) -> Result<(), Fault> {
        check_commit_only(attributes, path)?;
        let _names = self.lock();
        let node = self.find(path, follow == Follow::Yes);
        let node = node.on("set attributes", path)?;
        if attributes.mode.is_some() && node.kind() == Kind::Symlink {
            return Err(link_has_no_mode(path));
        }
        set_facts(&node, attributes, path)
    }

    fn truncate(&self, path: &StoragePath, size: u64) -> Result<(), Fault> {
        let op = "truncate";
        let _names = self.lock();
        if let Some(spot) = resolve(&self.root, path, true).on(op, path)? {
            refuse_hidden(&spot.path, op)?;
        }
        let node = self.find(path, true).on(op, path)?;
        can_be_cut(node.kind(), path)?;
        if end_of(size, 0).is_none() {
            return Err(FaultCode::InvalidArgument).on(op, path);
        }
        if let Body::File(data) = &node.body {
            let mut data = data.write().unwrap_or_else(PoisonError::into_inner);
            self.power.step().on(op, path)?;
            data.set_size(size);
            node.facts().modified = (self.clock)();
        }
        Ok(())
    }

    fn owner_names(&self, uid: u32, gid: u32) -> (String, String) {
        (uid.to_string(), gid.to_string())
    }
}
