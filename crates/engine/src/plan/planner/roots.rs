//! Roots and links: what must be asked before they can be planned.

use super::{Open, Place, Planner};
use crate::fault::{Fault, FaultCode, Side};
use crate::listing::{Object, ObjectKind, split, trimmed};
use crate::plan::{Existing, Links, Query, QueryId, Root, RootId};

impl Planner {
    /// A source argument that failed before it could be planned.
    pub fn refuse_root(&mut self, root: Root, fault: Fault) {
        let id = RootId(self.next_root);
        self.next_root += 1;
        self.refuse(&self.root_place(id, root), fault);
    }

    /// Whether the source and the destination of a root must be asked for.
    pub(super) fn questions(&self, root: &Root) -> (bool, bool) {
        let follow = self.root_links(root) == Links::Follow;
        let source = match &root.object {
            None => true,
            Some(object) => follow && matches!(object.kind, ObjectKind::Symlink { .. }),
        };
        let destination = self.looks_at_destinations() && root.existing == Existing::Unknown;
        (source, destination)
    }

    pub(super) fn ask(&mut self, open: Open) -> QueryId {
        let query = QueryId(self.next_query);
        self.next_query += 1;
        self.open.insert(query, open);
        query
    }

    pub(super) fn ask_root(&mut self, id: RootId, root: Root) -> Query {
        let (source, destination) = self.questions(&root);
        Query::Stat {
            root: id,
            source: source.then(|| root.source.clone()),
            destination: destination.then(|| root.destination.clone()),
            follow: self.root_links(&root) == Links::Follow,
            query: self.ask(Open::Root(id, root)),
        }
    }

    pub(super) fn ask_link(&mut self, place: Place, existing: Option<Object>) -> Query {
        Query::Stat {
            root: place.root,
            source: Some(place.source.clone()),
            destination: None,
            follow: true,
            query: self.ask(Open::Link { place, existing }),
        }
    }

    pub(super) fn stat_answered(
        &mut self,
        query: QueryId,
        source: Result<Object, Fault>,
        destination: Result<Option<Object>, Fault>,
    ) {
        match self.open.remove(&query) {
            Some(Open::Root(id, root)) => self.root_answered(id, root, source, destination),
            Some(Open::Link { place, existing }) => {
                let parent = place.parent;
                match source {
                    Ok(object) if !self.takes_followed(&place.source, &object.kind) => self.filtered += 1,
                    Ok(object) => {
                        if let Some(child) = self.plan_object(place, object, existing) {
                            // The child takes over the link's part of its directory.
                            self.pending.push(child);
                            return;
                        }
                    }
                    Err(fault) => self.refuse(&place, fault.side_if_unknown(Side::Source)),
                }
                self.part_done(parent);
            }
            Some(listing) => {
                self.open.insert(query, listing);
            }
            None => {}
        }
    }

    pub(super) fn root_answered(
        &mut self,
        id: RootId,
        mut root: Root,
        source: Result<Object, Fault>,
        destination: Result<Option<Object>, Fault>,
    ) {
        let (asked_source, asked_destination) = self.questions(&root);
        if asked_source {
            match source {
                Ok(object) => root.object = Some(object),
                Err(fault) => {
                    return self.refuse(&self.root_place(id, root), fault.side_if_unknown(Side::Source));
                }
            }
        }
        if asked_destination {
            root.existing = match destination {
                Ok(Some(object)) => Existing::Present(object),
                Ok(None) => Existing::Absent,
                Err(fault) if fault.code == FaultCode::NotFound => Existing::Absent,
                Err(fault) => {
                    let fault = fault.side_if_unknown(Side::Destination);
                    return self.refuse(&self.root_place(id, root), fault);
                }
            };
        }
        self.plan_root(id, root);
    }

    pub(super) fn plan_root(&mut self, id: RootId, mut root: Root) {
        let existing = match std::mem::replace(&mut root.existing, Existing::Unknown) {
            Existing::Present(object) => Some(object),
            Existing::Unknown | Existing::Absent => None,
        };
        let Some(object) = root.object.take() else {
            unreachable!("a root is planned when its source is known");
        };
        let refused = demanded(&root, &object);
        let mut place = self.root_place(id, root);
        if let Some(fault) = refused {
            return self.refuse(&place, fault);
        }
        let (directory, name) = split(trimmed(&place.destination));
        place.twins = self.met.meet(directory, name, existing.is_some());
        if let Some(child) = self.plan_object(place, object, existing) {
            self.pending.push(child);
        }
    }

    fn root_links(&self, root: &Root) -> Links {
        root.links.unwrap_or(self.options.links)
    }

    fn root_place(&self, id: RootId, root: Root) -> Place {
        let links = self.root_links(&root);
        let Root { source, destination, range, .. } = root;
        Place { root: id, parent: None, source, destination, depth: 0, range, links, twins: Vec::new() }
    }
}

/// Why a source is not what was demanded of it.
fn demanded(root: &Root, object: &Object) -> Option<Fault> {
    let is_link = matches!(object.kind, ObjectKind::Symlink { .. });
    let fault = |code| Some(Fault::new(code, "copy").side(Side::Source));
    match (root.recursive, &object.kind) {
        _ if root.links == Some(Links::Copy) && !is_link => fault(FaultCode::NotASymlink),
        (Some(false), ObjectKind::Directory) => fault(FaultCode::IsADirectory),
        (Some(true), kind) if *kind != ObjectKind::Directory && !is_link => fault(FaultCode::NotADirectory),
        _ => None,
    }
}
