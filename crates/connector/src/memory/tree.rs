//! The tree of names.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use whimbrel_engine::{Fault, FaultCode};

use super::data::Data;
use super::power::Stable;
use crate::meta::{Access, Kind, Meta, Timestamp};
use crate::path::StoragePath;

/// Most links expanded in one resolution, as on Linux.
const LINKS_MAX: usize = 40;

/// What a directory holds.
pub(super) type Names = BTreeMap<Vec<u8>, Arc<Node>>;

/// One object; names refer to it.
pub(super) struct Node {
    pub id: u64,
    pub body: Body,
    pub facts: Mutex<Facts>,
    /// What of it survives a power cut.
    pub stable: Mutex<Stable>,
    /// A file that was written under a hidden name has got its final one.
    pub committed: AtomicBool,
    /// A writer has its end.
    pub appended: AtomicBool,
}

pub(super) enum Body {
    File(RwLock<Data>),
    Directory(Mutex<Names>),
    Link(Vec<u8>),
    /// Endless zeros, like `/dev/zero`; swallows what is written.
    Zero,
    /// Empty, and swallows what is written, like `/dev/null`.
    Null,
}

#[derive(Clone, Copy)]
pub(super) struct Facts {
    pub mode: u32,
    pub gid: u32,
    pub modified: Timestamp,
}

/// A directory and a name in it, with what bears the name.
pub(super) struct Spot {
    pub dir: Arc<Node>,
    pub path: StoragePath,
    pub found: Option<Arc<Node>>,
}

impl Spot {
    pub fn name(&self) -> &[u8] {
        self.path.name().unwrap_or_default()
    }
}

impl Node {
    pub fn stable(&self) -> MutexGuard<'_, Stable> {
        self.stable.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn facts(&self) -> MutexGuard<'_, Facts> {
        self.facts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn kind(&self) -> Kind {
        match self.body {
            Body::File(_) => Kind::File,
            Body::Directory(_) => Kind::Directory,
            Body::Link(_) => Kind::Symlink,
            Body::Zero | Body::Null => Kind::CharacterDevice,
        }
    }

    /// The names in a directory; `NotADirectory` for anything else.
    pub fn names(&self) -> Result<MutexGuard<'_, Names>, FaultCode> {
        match &self.body {
            Body::Directory(names) => Ok(names.lock().unwrap_or_else(PoisonError::into_inner)),
            _ => Err(FaultCode::NotADirectory),
        }
    }

    pub fn child(&self, name: &[u8]) -> Result<Option<Arc<Node>>, FaultCode> {
        Ok(self.names()?.get(name).cloned())
    }

    pub fn size(&self) -> u64 {
        match &self.body {
            Body::File(data) => data.read().unwrap_or_else(PoisonError::into_inner).size(),
            Body::Link(target) => target.len() as u64,
            _ => 0,
        }
    }

    pub fn meta(&self) -> Meta {
        let facts = *self.facts();
        let directory = matches!(self.body, Body::Directory(_));
        Meta {
            kind: self.kind(),
            size: self.size(),
            modified: facts.modified,
            mode: facts.mode,
            uid: 0,
            gid: facts.gid,
            links: 1,
            unique: (0, self.id),
            link_target: match &self.body {
                Body::Link(target) => Some(target.clone()),
                _ => None,
            },
            access: Access { read: true, write: true, execute: directory || facts.mode & 0o111 != 0 },
        }
    }
}

/// Resolves `path` from `root`; the last name may not exist. `None`: it leads to the root.
pub(super) fn resolve(root: &Arc<Node>, path: &StoragePath, follow: bool) -> Result<Option<Spot>, FaultCode> {
    let mut above: Vec<(Arc<Node>, Vec<u8>)> = Vec::new();
    let mut here = root.clone();
    let mut pending = Vec::new();
    push(&mut pending, path.as_bytes());
    let mut links = 0;
    while let Some(name) = pending.pop() {
        if name == b".." {
            if let Some((dir, _)) = above.pop() {
                here = dir;
            }
            continue;
        }
        let found = here.child(&name)?;
        let last = pending.is_empty();
        match found.as_ref().map(|node| &node.body) {
            Some(Body::Link(target)) if follow || !last => {
                links += 1;
                if links > LINKS_MAX {
                    return Err(FaultCode::InvalidPath);
                }
                if target.first() == Some(&b'/') {
                    above.clear();
                    here = root.clone();
                }
                push(&mut pending, target);
            }
            _ if last => return spot(above, here, name, found).map(Some),
            Some(Body::Directory(_)) => {
                let node = found.expect("matched as present");
                above.push((std::mem::replace(&mut here, node), name));
            }
            Some(_) => return Err(FaultCode::NotADirectory),
            None => return Err(FaultCode::NotFound),
        }
    }
    // The path ended in `..` of a link: name the directory it came to.
    match above.pop() {
        Some((dir, name)) => spot(above, dir, name, Some(here)).map(Some),
        None => Ok(None),
    }
}

fn push(pending: &mut Vec<Vec<u8>>, path: &[u8]) {
    let parts = path.split(|&b| b == b'/').rev();
    let parts = parts.filter(|part| !matches!(*part, b"" | b"."));
    pending.extend(parts.map(<[u8]>::to_vec));
}

fn spot(
    above: Vec<(Arc<Node>, Vec<u8>)>,
    dir: Arc<Node>,
    name: Vec<u8>,
    found: Option<Arc<Node>>,
) -> Result<Spot, FaultCode> {
    let mut bytes = Vec::new();
    for (_, part) in &above {
        bytes.push(b'/');
        bytes.extend_from_slice(part);
    }
    bytes.push(b'/');
    bytes.extend_from_slice(&name);
    let path = StoragePath::try_from(bytes).map_err(|_| FaultCode::InvalidPath)?;
    Ok(Spot { dir, path, found })
}

/// Whether `node` is `dir` or anywhere below it.
pub(super) fn is_within(dir: &Arc<Node>, node: &Arc<Node>) -> bool {
    let mut pending = vec![dir.clone()];
    while let Some(next) = pending.pop() {
        if Arc::ptr_eq(&next, node) {
            return true;
        }
        if let Ok(names) = next.names() {
            let directories = names.values().filter(|n| n.kind() == Kind::Directory);
            pending.extend(directories.cloned());
        }
    }
    false
}

/// Turns a code into a fault, naming the operation and the path.
pub(super) trait OnPath<T> {
    fn on(self, op: &str, path: &StoragePath) -> Result<T, Fault>;
}

impl<T> OnPath<T> for Result<T, FaultCode> {
    fn on(self, op: &str, path: &StoragePath) -> Result<T, Fault> {
        self.map_err(|code| Fault::new(code, op).on_path(path.as_bytes()))
    }
}
