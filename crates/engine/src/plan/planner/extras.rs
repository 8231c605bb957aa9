//! What filters leave out, and what is at destinations only.

use super::{Listing, Planner};
use crate::listing::{Object, ObjectKind, join};
use crate::plan::{Extra, Links};
use crate::task::{FilterType, ItemKind};

impl Planner {
    /// Whether an entry of a directory is taken. Of a link that is followed only what it points to can be judged.
    pub(super) fn takes(&self, object: &Object) -> bool {
        let filter = &self.options.filter;
        match object.kind {
            ObjectKind::Symlink { .. } if self.options.links == Links::Follow => {
                filter.takes(FilterType::File, &object.path) || filter.takes(FilterType::Dir, &object.path)
            }
            _ => filter.takes(filter_type(&object.kind), &object.path),
        }
    }

    /// Whether what a followed link in a directory points to is taken; `source` is the link's path.
    pub(super) fn takes_followed(&self, source: &[u8], kind: &ObjectKind) -> bool {
        let name = source.rsplit(|&byte| byte == b'/').next().unwrap_or(source);
        self.options.filter.takes(filter_type(kind), name)
    }

    /// Tells what is left of the destination when both listings of a directory have ended.
    pub(super) fn tell_extras(&mut self, listing: &mut Listing) {
        if !self.options.mirror || listing.source_broken {
            return;
        }
        let Some(directory) = self.directories.get(&listing.directory) else { return };
        for (name, kind) in listing.existing.drain() {
            let of = if kind == ItemKind::Directory { FilterType::Dir } else { FilterType::File };
            // A name with a slash would lead elsewhere.
            let is_name = !matches!(&name[..], b"" | b"." | b"..") && !name.contains(&b'/') && !name.contains(&0);
            if is_name && self.options.filter.takes(of, &name) {
                let path = join(&directory.place.destination, &name);
                let twin = listing.absent.as_ref().is_some_and(|absent| absent.may_have(&name));
                self.extras.push_back(Extra { root: directory.place.root, path, kind, twin });
            }
        }
    }
}

fn filter_type(kind: &ObjectKind) -> FilterType {
    if *kind == ObjectKind::Directory { FilterType::Dir } else { FilterType::File }
}
