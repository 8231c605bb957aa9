//! Directories: made, listed, and ended after everything in them.

use std::collections::HashSet;

use xxhash_rust::xxh3::xxh3_64;

use super::{Directory, Entries, Listing, Met, Names, Open, Pending, Place, Planner};
use crate::fault::{Fault, FaultCode, Side};
use crate::listing::{Object, ObjectKind, join};
use crate::plan::{Action, DirectoryId, Links, Query, QueryId};

impl Planner {
    /// Makes a directory and asks for what is in it.
    pub(super) fn enter(&mut self, place: Place, object: Object, exists: bool) -> Option<Query> {
        let id = DirectoryId(self.next_directory);
        self.next_directory += 1;
        // Where it may be another directory that is seen, its name is told apart before anything goes into it.
        if !exists || !place.twins.is_empty() {
            let mut item = self.item(&place);
            item.size = Some(0);
            self.actions.push_back(Action::MakeDirectory { item, directory: id });
        }
        let list_destination = exists && self.looks_at_destinations();
        let attributes = self.attributes(&object);
        let (root, source) = (place.root, place.source.clone());
        let destination = list_destination.then(|| place.destination.clone());
        self.directories.insert(id, Directory { place, attributes, unique: object.unique, open_parts: 1 });
        let query = self.ask(Open::Listing(Listing {
            directory: id,
            existing: Entries::default(),
            absent: (list_destination && self.options.mirror).then(Names::default),
            destination_done: !list_destination,
            source_done: false,
            met: (self.options.links == Links::Copy).then(HashSet::new),
            copied: Met::default(),
            source_broken: false,
            waiting: Vec::new(),
            children: Vec::new(),
        }));
        Some(Query::List { query, root, source, destination })
    }

    pub(super) fn source_entry(&mut self, query: QueryId, object: Object) {
        let Some(Open::Listing(listing)) = self.open.get_mut(&query) else {
            return;
        };
        if listing.destination_done {
            let is_met = listing.met.as_mut().is_some_and(|met| !met.insert(xxh3_64(&object.path)));
            let existing = listing.existing.remove(&object.path);
            if let (None, Some(absent)) = (&existing, &mut listing.absent) {
                absent.insert(&object.path);
            }
            let child = self.plan_entry(query, object, existing, is_met);
            if let (Some(child), Some(Open::Listing(listing))) = (child, self.open.get_mut(&query)) {
                listing.children.push(child);
            }
        } else {
            listing.waiting.push(object);
        }
    }

    /// `is_met`: the listing has brought the name before.
    fn plan_entry(
        &mut self,
        query: QueryId,
        object: Object,
        existing: Option<Object>,
        is_met: bool,
    ) -> Option<Pending> {
        if matches!(object.path.as_slice(), b"." | b"..") {
            return None;
        }
        if !self.takes(&object) {
            self.filtered += 1;
            return None;
        }
        let Some(Open::Listing(listing)) = self.open.get_mut(&query) else { return None };
        let id = listing.directory;
        let directory = self.directories.get(&id)?;
        let twins = listing.copied.meet(b"", &object.path, existing.is_some());
        let place = Place {
            root: directory.place.root,
            parent: Some(id),
            source: join(&directory.place.source, &object.path),
            destination: join(&directory.place.destination, &object.path),
            depth: directory.place.depth + 1,
            range: None,
            links: self.options.links,
            twins,
        };
        let is_no_name = object.path.is_empty() || object.path.contains(&b'/') || object.path.contains(&0);
        let wrong = match (is_no_name, is_met) {
            // With a slash it would leave the destination directory.
            (true, _) => Some("the listing holds a name that is no file name"),
            // No directory has two entries of one name. Where one of them is a link, the other would be written through it.
            (false, true) => Some("the listing holds the name twice"),
            (false, false) => None,
        };
        if let Some(detail) = wrong {
            let fault = Fault::new(FaultCode::InvalidPath, "list").side(Side::Source);
            self.refuse(&place, fault.detail(detail));
            return None;
        }
        let child = match object.kind {
            ObjectKind::Symlink { .. } if self.options.links == Links::Follow => {
                Some(Pending::Link { place, existing })
            }
            _ => self.plan_object(place, object, existing),
        };
        if child.is_some()
            && let Some(directory) = self.directories.get_mut(&id)
        {
            directory.open_parts += 1;
        }
        child
    }

    pub(super) fn destination_end(&mut self, query: QueryId) {
        if let Some(Open::Listing(listing)) = self.open.get_mut(&query) {
            listing.destination_done = true;
            for object in std::mem::take(&mut listing.waiting) {
                self.source_entry(query, object);
            }
        }
        self.end_listing(query);
    }

    pub(super) fn end_listing(&mut self, query: QueryId) {
        match self.open.remove(&query) {
            Some(Open::Listing(mut listing)) if listing.source_done && listing.destination_done => {
                self.tell_extras(&mut listing);
                self.breadth.ended(listing.children.len());
                self.pending.extend(listing.children.into_iter().rev());
                self.part_done(Some(listing.directory));
            }
            Some(open) => {
                self.open.insert(query, open);
            }
            None => {}
        }
    }

    /// The directory fails; what was already found in it goes on.
    pub(super) fn source_failed(&mut self, query: QueryId, fault: Fault) {
        let Some(Open::Listing(listing)) = self.open.get_mut(&query) else { return };
        listing.source_done = true;
        listing.source_broken = true;
        let id = listing.directory;
        self.refuse_directory(id, fault);
        self.end_listing(query);
    }

    fn refuse_directory(&mut self, id: DirectoryId, fault: Fault) {
        if let Some(mut place) = self.directories.get(&id).map(|directory| directory.place.clone()) {
            place.parent = Some(id);
            self.refuse(&place, fault);
        }
    }

    /// The directory fails: without its destination's entries nothing more can be said about its own.
    pub(super) fn listing_failed(&mut self, query: QueryId, fault: Fault) {
        match self.open.remove(&query) {
            Some(Open::Listing(listing)) => {
                self.refuse_directory(listing.directory, fault);
                // What was already found in it goes on.
                self.pending.extend(listing.children.into_iter().rev());
                self.part_done(Some(listing.directory));
            }
            Some(open) => {
                self.open.insert(query, open);
            }
            None => {}
        }
    }

    /// Counts one part of a directory as planned and ends every directory that has none left.
    pub(super) fn part_done(&mut self, directory: Option<DirectoryId>) {
        let mut at = directory;
        while let Some(id) = at {
            let Some(directory) = self.directories.get_mut(&id) else {
                return;
            };
            directory.open_parts -= 1;
            if directory.open_parts > 0 {
                return;
            }
            let Some(directory) = self.directories.remove(&id) else {
                return;
            };
            let mut item = self.item(&directory.place);
            item.attributes = directory.attributes;
            item.size = Some(0);
            self.actions.push_back(Action::SetAttributes { item, directory: id });
            at = directory.place.parent;
        }
    }
}
