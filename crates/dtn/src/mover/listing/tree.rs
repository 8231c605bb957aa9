//! The lines of a whole tree (MLSR).

use std::sync::Arc;

use whimbrel_connector::{Connector, Entry, Kind, Listing, Meta, StoragePath};
use whimbrel_engine::Fault;
use whimbrel_proto::mlsx::EntryKind;
use whimbrel_proto::op::ListSpec;

use super::{Line, Object, Style, Writer, facts};

/// A walk through a tree, depth first, a directory's own line before its entries.
pub(super) struct Tree {
    writer: Writer,
    continue_on_error: bool,
    follow: bool,
    to_enter: Vec<Branch>,
    current: Option<(Listing, Arc<Branch>)>,
    failed: bool,
}

/// A directory of the walk.
struct Branch {
    path: StoragePath,
    /// Relative to the start; empty for the start itself.
    shown: Vec<u8>,
    object: Object,
    /// The directory this was found in: its chain tells a cycle.
    parent: Option<Arc<Branch>>,
}

impl Branch {
    fn is_below(&self, unique: (u64, u64)) -> bool {
        let mut at = Some(self);
        while let Some(branch) = at {
            if branch.object.meta.unique == unique {
                return true;
            }
            at = branch.parent.as_deref();
        }
        false
    }
}

impl Drop for Branch {
    fn drop(&mut self) {
        // Not by recursion: a chain is as long as the tree is deep.
        let mut next = self.parent.take();
        while let Some(mut branch) = next.and_then(Arc::into_inner) {
            next = branch.parent.take();
        }
    }
}

impl Tree {
    pub(super) fn open(
        connector: Arc<dyn Connector>,
        spec: &ListSpec,
        path: StoragePath,
        meta: Meta,
    ) -> Result<Self, Fault> {
        // The start must be readable, whatever becomes of what is below.
        drop(connector.list(&path)?);
        let object = Object::plain(meta);
        Ok(Self {
            writer: Writer::new(connector, spec, path.clone()),
            continue_on_error: spec.continue_on_error,
            follow: spec.follow_links,
            to_enter: vec![Branch { path, shown: Vec::new(), object, parent: None }],
            current: None,
            failed: false,
        })
    }

    /// Enters the next directory: its own line, with the error if it cannot be read.
    fn enter(&mut self) -> Option<Line> {
        let branch = self.to_enter.pop()?;
        let role = branch.shown.is_empty().then_some(EntryKind::Current);
        let mut style = Style { role, ..self.writer.style.clone() };
        let listing = match self.writer.connector.list(&branch.path) {
            Ok(listing) => Some(listing),
            Err(_) if self.continue_on_error => {
                style.error = Some("OpenFailed");
                None
            }
            Err(fault) => {
                self.failed = true;
                return Some(Err(fault));
            }
        };
        let name = if branch.shown.is_empty() { b".".as_slice() } else { &branch.shown };
        let line = self.writer.line(&branch.object, &style, name);
        self.current = listing.map(|listing| (listing, Arc::new(branch)));
        Some(Ok(line))
    }

    /// The line of an entry; directories are kept for later instead.
    fn visit(&mut self, entry: Entry, parent: &Arc<Branch>) -> Option<Line> {
        let mut shown = parent.shown.clone();
        if !shown.is_empty() {
            shown.push(b'/');
        }
        shown.extend_from_slice(&entry.name);
        if facts::breaks_line(&entry.name) {
            return self.writer.untold(&parent.path, &shown).map(Ok);
        }
        let path = parent.path.join(&entry.name).ok()?;
        let is_link = entry.meta.kind == Kind::Symlink;
        let object = Object::of(self.writer.connector.as_ref(), &path, entry.meta, self.follow);
        if object.meta.kind != Kind::Directory {
            let dangling = is_link && self.follow && object.meta.kind == Kind::Symlink;
            let error = dangling.then_some("InvalidLink");
            return Some(Ok(self.writer.line(&object, &Style { error, ..self.writer.style.clone() }, &shown)));
        }
        if is_link && parent.is_below(object.meta.unique) {
            let style = Style { error: Some("Cycle"), ..self.writer.style.clone() };
            return Some(Ok(self.writer.line(&object, &style, &shown)));
        }
        self.to_enter.push(Branch { path, shown, object, parent: Some(parent.clone()) });
        None
    }
}

impl Iterator for Tree {
    type Item = Line;

    fn next(&mut self) -> Option<Line> {
        while !self.failed {
            let Some((listing, branch)) = &mut self.current else {
                return self.enter();
            };
            let branch = branch.clone();
            match listing.next() {
                Some(Ok(entry)) => {
                    if let Some(line) = self.visit(entry, &branch) {
                        return Some(line);
                    }
                }
                Some(Err(fault)) if !self.continue_on_error => {
                    self.failed = true;
                    return Some(Err(fault));
                }
                // A directory that fails in its middle is cut short, as one that cannot be opened.
                Some(Err(fault)) => {
                    tracing::warn!(%fault, "directory listed in part");
                    self.current = None;
                }
                None => self.current = None,
            }
        }
        None
    }
}
