//! What is at the destination of a directory while its source is listed: the one thing that grows with a directory.
//!
//! Kept small, because directories of a million files exist: some 60 bytes for each and its name.

use std::collections::HashMap;

use crate::listing::{Object, ObjectKind, Timestamp};
use crate::task::ItemKind;

/// The entries of one directory, by name.
#[derive(Debug, Default)]
pub(super) struct Entries {
    plain: HashMap<Box<[u8]>, Seen>,
    /// Links say something of their own, and are few.
    links: HashMap<Box<[u8]>, Object>,
}

/// As much of an object as comparisons look at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Seen {
    size: u64,
    secs: i64,
    nanos: u32,
    kind: Kind,
    has_size: bool,
    has_time: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    File,
    Directory,
    Other,
}

impl Entries {
    /// Remembers what is there; the last of several with one name counts.
    pub(super) fn insert(&mut self, object: Object) {
        let kind = match object.kind {
            ObjectKind::File => Kind::File,
            ObjectKind::Directory => Kind::Directory,
            ObjectKind::Other => Kind::Other,
            ObjectKind::Symlink { .. } => {
                self.links.insert(object.path.clone().into_boxed_slice(), object);
                return;
            }
        };
        let time = object.modified.unwrap_or(Timestamp::from_secs(0));
        let seen = Seen {
            size: object.size.unwrap_or(0),
            secs: time.secs,
            nanos: time.nanos,
            kind,
            has_size: object.size.is_some(),
            has_time: object.modified.is_some(),
        };
        self.plain.insert(object.path.into_boxed_slice(), seen);
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.plain.len() + self.links.len()
    }

    /// Takes out all names and what they are, in order.
    pub(super) fn drain(&mut self) -> Vec<(Box<[u8]>, ItemKind)> {
        let kind = |seen: &Seen| if seen.kind == Kind::Directory { ItemKind::Directory } else { ItemKind::File };
        let plain = self.plain.drain().map(|(name, seen)| (name, kind(&seen)));
        let mut all: Vec<_> = plain.chain(self.links.drain().map(|(name, _)| (name, ItemKind::Symlink))).collect();
        all.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
        all
    }

    /// Takes out what has that name.
    pub(super) fn remove(&mut self, name: &[u8]) -> Option<Object> {
        if let Some(link) = self.links.remove(name) {
            return Some(link);
        }
        let seen = self.plain.remove(name)?;
        let kind = match seen.kind {
            Kind::File => ObjectKind::File,
            Kind::Directory => ObjectKind::Directory,
            Kind::Other => ObjectKind::Other,
        };
        let time = Timestamp { secs: seen.secs, nanos: seen.nanos };
        Some(Object {
            size: seen.has_size.then_some(seen.size),
            modified: seen.has_time.then_some(time),
            ..Object::bare(name, kind)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comparisons_look_at_is_kept_and_little_else() {
        let time = Timestamp { secs: -5, nanos: 7 };
        let objects = [
            Object::file("file", 9).modified(time),
            Object::bare("unknown", ObjectKind::File),
            Object::directory("directory"),
            Object::symlink("link", "target"),
            Object::bare("pipe", ObjectKind::Other),
        ];
        let mut entries = Entries::default();
        objects.iter().for_each(|object| entries.insert(object.clone().mode(0o644)));
        for object in objects {
            let found = entries.remove(&object.path).expect("it is there");
            assert_eq!((found.kind, found.size, found.modified), (object.kind, object.size, object.modified));
        }
        assert_eq!(entries.remove(b"file"), None);
        assert!(std::mem::size_of::<Seen>() <= 24);
    }
}
