//! The streaming planner: listings in, actions out.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::ops::Range;

use super::compare::{self, Verdict};
use super::{
    Action, Attributes, DirectoryId, Existing, Item, ItemId, Links, PlanInput, PlanOptions, Query, QueryId, Root,
    RootId, SkipReason, SyncLevel,
};
use crate::fault::{Fault, FaultCode, Side};
use crate::listing::{Object, ObjectKind, join};

/// The planner: pure, streaming, depth first.
///
/// Memory is bounded by the entries of the directories on the way from a root to the directories
/// being listed, provided that the caller takes all actions after every call.
#[derive(Debug)]
pub struct Planner {
    options: PlanOptions,
    roots: VecDeque<(RootId, Root)>,
    no_more_roots: bool,
    /// Depth-first: the last is next.
    pending: Vec<Pending>,
    open: BTreeMap<QueryId, Open>,
    directories: HashMap<DirectoryId, Directory>,
    actions: VecDeque<Action>,
    next_root: u64,
    next_query: u64,
    next_directory: u64,
    next_item: u64,
}

/// Where an object is and where its copy goes.
#[derive(Debug, Clone)]
struct Place {
    root: RootId,
    parent: Option<DirectoryId>,
    source: Vec<u8>,
    destination: Vec<u8>,
    depth: u32,
    range: Option<Range<u64>>,
}

#[derive(Debug)]
enum Pending {
    Directory { place: Place, object: Object, exists: bool },
    Link { place: Place, existing: Option<Object> },
}

#[derive(Debug)]
enum Open {
    Root(RootId, Root),
    Link { place: Place, existing: Option<Object> },
    Listing(Listing),
}

/// One directory while it is listed.
#[derive(Debug)]
struct Listing {
    directory: DirectoryId,
    existing: HashMap<Vec<u8>, Object>,
    destination_done: bool,
    source_done: bool,
    /// Source entries that wait for the end of the destination.
    waiting: Vec<Object>,
    children: Vec<Pending>,
}

/// One directory until everything in it is planned.
#[derive(Debug)]
struct Directory {
    place: Place,
    attributes: Attributes,
    unique: Option<String>,
    /// Its own listing and the children still to visit.
    open_parts: u64,
}

impl Planner {
    /// A planner without roots.
    pub fn new(options: PlanOptions) -> Self {
        Self {
            options,
            roots: VecDeque::new(),
            no_more_roots: false,
            pending: Vec::new(),
            open: BTreeMap::new(),
            directories: HashMap::new(),
            actions: VecDeque::new(),
            next_root: 0,
            next_query: 0,
            next_directory: 0,
            next_item: 0,
        }
    }

    /// Adds a source argument; may be called at any time before [`Planner::no_more_roots`].
    ///
    /// Roots are worked off one by one: a long list is best added as the planner asks for more.
    pub fn add_root(&mut self, root: Root) -> RootId {
        let id = RootId(self.next_root);
        self.next_root += 1;
        if self.questions(&root) == (false, false) {
            self.plan_root(id, root);
        } else {
            self.roots.push_back((id, root));
        }
        id
    }

    /// Says that no further root will come.
    pub fn no_more_roots(&mut self) {
        self.no_more_roots = true;
    }

    /// Whether every root added so far is planned, so that the caller may add the next.
    pub fn wants_root(&self) -> bool {
        self.roots.is_empty() && self.pending.is_empty()
    }

    /// The next question; `None` while enough are open ([`PlanOptions::queries_at_once`]) or nothing is left to ask.
    pub fn poll_query(&mut self) -> Option<Query> {
        if self.open.len() >= self.options.queries_at_once.max(1) {
            return None;
        }
        while let Some(pending) = self.pending.pop() {
            match pending {
                Pending::Link { place, existing } => return Some(self.ask_link(place, existing)),
                Pending::Directory { place, object, exists } => {
                    if let Some(query) = self.enter(place, object, exists) {
                        return Some(query);
                    }
                }
            }
        }
        let (id, root) = self.roots.pop_front()?;
        Some(self.ask_root(id, root))
    }

    /// Takes one observation; observations that answer no open question are ignored.
    pub fn handle(&mut self, input: PlanInput) {
        match input {
            PlanInput::Stat { query, source, destination } => self.stat_answered(query, source, destination),
            PlanInput::Source { query, object } => self.source_entry(query, object),
            PlanInput::Destination { query, object } => {
                if let Some(Open::Listing(listing)) = self.open.get_mut(&query) {
                    listing.existing.insert(object.path.clone(), object);
                }
            }
            PlanInput::SourceEnd { query } => {
                if let Some(Open::Listing(listing)) = self.open.get_mut(&query) {
                    listing.source_done = true;
                }
                self.end_listing(query);
            }
            PlanInput::DestinationEnd { query } => self.destination_end(query),
            PlanInput::SourceFailed { query, fault } => {
                self.listing_failed(query, fault.side_if_unknown(Side::Source));
            }
            PlanInput::DestinationFailed { query, fault } if fault.code == FaultCode::NotFound => {
                self.destination_end(query);
            }
            PlanInput::DestinationFailed { query, fault } => {
                self.listing_failed(query, fault.side_if_unknown(Side::Destination));
            }
        }
    }

    /// The next step of the plan.
    pub fn poll_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    /// Whether everything is planned and every action was taken.
    pub fn is_finished(&self) -> bool {
        self.no_more_roots
            && self.roots.is_empty()
            && self.pending.is_empty()
            && self.open.is_empty()
            && self.actions.is_empty()
    }

    // --- roots and links ---------------------------------------------------------------------

    /// Whether the source and the destination of a root must be asked for.
    fn questions(&self, root: &Root) -> (bool, bool) {
        let follow = self.options.links == Links::Follow;
        let source = match &root.object {
            None => true,
            Some(object) => follow && matches!(object.kind, ObjectKind::Symlink { .. }),
        };
        let destination = self.options.sync != SyncLevel::None && root.existing == Existing::Unknown;
        (source, destination)
    }

    fn ask(&mut self, open: Open) -> QueryId {
        let query = QueryId(self.next_query);
        self.next_query += 1;
        self.open.insert(query, open);
        query
    }

    fn ask_root(&mut self, id: RootId, root: Root) -> Query {
        let (source, destination) = self.questions(&root);
        Query::Stat {
            root: id,
            source: source.then(|| root.source.clone()),
            destination: destination.then(|| root.destination.clone()),
            follow: self.options.links == Links::Follow,
            query: self.ask(Open::Root(id, root)),
        }
    }

    fn ask_link(&mut self, place: Place, existing: Option<Object>) -> Query {
        Query::Stat {
            root: place.root,
            source: Some(place.source.clone()),
            destination: None,
            follow: true,
            query: self.ask(Open::Link { place, existing }),
        }
    }

    fn stat_answered(
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

    fn root_answered(
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
                    return self.refuse(&root_place(id, root), fault.side_if_unknown(Side::Source));
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
                    return self.refuse(&root_place(id, root), fault);
                }
            };
        }
        self.plan_root(id, root);
    }

    fn plan_root(&mut self, id: RootId, mut root: Root) {
        let existing = match std::mem::replace(&mut root.existing, Existing::Unknown) {
            Existing::Present(object) => Some(object),
            Existing::Unknown | Existing::Absent => None,
        };
        let Some(object) = root.object.take() else {
            unreachable!("a root is planned when its source is known");
        };
        let place = root_place(id, root);
        if let Some(child) = self.plan_object(place, object, existing) {
            self.pending.push(child);
        }
    }

    // --- objects -----------------------------------------------------------------------------

    /// Plans one object; returns what has to be visited before more can be said.
    fn plan_object(&mut self, place: Place, object: Object, existing: Option<Object>) -> Option<Pending> {
        match &object.kind {
            ObjectKind::File => self.plan_file(place, &object, existing.as_ref()),
            ObjectKind::Directory => return self.plan_directory(place, object, existing.as_ref()),
            ObjectKind::Symlink { target } => {
                self.plan_link(&place, &object, target, existing.as_ref());
            }
            // What the user names is copied, whatever it is; what merely lies in a directory is not.
            ObjectKind::Other if place.parent.is_none() => {
                self.plan_file(place, &object, existing.as_ref());
            }
            ObjectKind::Other if self.options.skip_unsupported => {
                self.skip(&place, SkipReason::Unsupported);
            }
            ObjectKind::Other => {
                let fault =
                    Fault::new(FaultCode::NotSupported, "copy").detail("a device, pipe or socket").side(Side::Source);
                self.refuse(&place, fault);
            }
        }
        None
    }

    fn plan_file(&mut self, place: Place, object: &Object, existing: Option<&Object>) {
        // The size of a device is not the number of bytes it gives.
        let size = object.size.filter(|_| object.kind == ObjectKind::File);
        let (range, size) = match effective_range(place.range.clone(), size) {
            Ok(found) => found,
            Err(fault) => return self.refuse(&place, fault),
        };
        let verdict = if range.is_some() { Verdict::Copy } else { compare::file(object, existing, &self.options) };
        let mut item = self.item(&place);
        item.size = size;
        item.range = range;
        item.modified = object.modified;
        item.attributes = self.attributes(object);
        self.actions.push_back(match verdict {
            Verdict::Copy => Action::Copy { item },
            Verdict::CompareChecksum => Action::CompareChecksum { item },
            Verdict::Skip(reason) => Action::Skip { item, reason },
            Verdict::Refuse(code) => Action::Refuse { fault: destination_fault(code, &item), item },
        });
    }

    fn plan_link(&mut self, place: &Place, object: &Object, target: &[u8], existing: Option<&Object>) {
        match self.options.links {
            Links::Skip => self.skip(place, SkipReason::Link),
            // Asked to resolve it, the source still says it is a link.
            Links::Follow => {
                let fault = Fault::new(FaultCode::NotFound, "follow link").side(Side::Source);
                self.refuse(place, fault);
            }
            Links::Copy => {
                let mut item = self.item(place);
                item.attributes.modified = self.attributes(object).modified;
                self.actions.push_back(match compare::link(target, existing, &self.options) {
                    Verdict::Skip(reason) => Action::Skip { item, reason },
                    Verdict::Refuse(code) => Action::Refuse { fault: destination_fault(code, &item), item },
                    Verdict::Copy | Verdict::CompareChecksum => Action::Symlink { item, target: target.to_vec() },
                });
            }
        }
    }

    fn plan_directory(&mut self, place: Place, object: Object, existing: Option<&Object>) -> Option<Pending> {
        let exists = matches!(existing, Some(o) if o.kind == ObjectKind::Directory);
        let refused = if !self.options.recursive {
            Some(Fault::new(FaultCode::IsADirectory, "copy").side(Side::Source))
        } else if place.range.is_some() {
            Some(Fault::new(FaultCode::IsADirectory, "copy a range of").side(Side::Source))
        } else if place.depth > self.options.max_depth || self.is_loop(&place, &object) {
            let fault = Fault::new(FaultCode::InvalidPath, "enter").side(Side::Source);
            Some(fault.detail("a loop of links, or too deep"))
        } else if matches!(existing, Some(o) if matches!(o.kind, ObjectKind::File | ObjectKind::Other)) {
            Some(Fault::new(FaultCode::NotADirectory, "make directory").side(Side::Destination))
        } else {
            None
        };
        if let Some(fault) = refused {
            self.refuse(&place, fault);
            return None;
        }
        Some(Pending::Directory { place, object, exists })
    }

    fn is_loop(&self, place: &Place, object: &Object) -> bool {
        let Some(unique) = &object.unique else {
            return false;
        };
        let mut at = place.parent;
        while let Some(directory) = at.and_then(|id| self.directories.get(&id)) {
            if directory.unique.as_ref() == Some(unique) {
                return true;
            }
            at = directory.place.parent;
        }
        false
    }

    // --- directories -------------------------------------------------------------------------

    /// Makes a directory and asks for what is in it.
    fn enter(&mut self, place: Place, object: Object, exists: bool) -> Option<Query> {
        let id = DirectoryId(self.next_directory);
        self.next_directory += 1;
        if !exists {
            let mut item = self.item(&place);
            item.size = Some(0);
            self.actions.push_back(Action::MakeDirectory { item, directory: id });
        }
        let list_destination = exists && self.options.sync != SyncLevel::None;
        let attributes = self.attributes(&object);
        let (root, source) = (place.root, place.source.clone());
        let destination = list_destination.then(|| place.destination.clone());
        self.directories.insert(id, Directory { place, attributes, unique: object.unique, open_parts: 1 });
        let query = self.ask(Open::Listing(Listing {
            directory: id,
            existing: HashMap::new(),
            destination_done: !list_destination,
            source_done: false,
            waiting: Vec::new(),
            children: Vec::new(),
        }));
        Some(Query::List { query, root, source, destination })
    }

    fn source_entry(&mut self, query: QueryId, object: Object) {
        let Some(Open::Listing(listing)) = self.open.get_mut(&query) else {
            return;
        };
        if listing.destination_done {
            let (id, existing) = (listing.directory, listing.existing.remove(&object.path));
            let child = self.plan_entry(id, object, existing);
            if let (Some(child), Some(Open::Listing(listing))) = (child, self.open.get_mut(&query)) {
                listing.children.push(child);
            }
        } else {
            listing.waiting.push(object);
        }
    }

    fn plan_entry(&mut self, id: DirectoryId, object: Object, existing: Option<Object>) -> Option<Pending> {
        if matches!(object.path.as_slice(), b"." | b"..") {
            return None;
        }
        let directory = self.directories.get(&id)?;
        let place = Place {
            root: directory.place.root,
            parent: Some(id),
            source: join(&directory.place.source, &object.path),
            destination: join(&directory.place.destination, &object.path),
            depth: directory.place.depth + 1,
            range: None,
        };
        // A name with a slash would leave the destination directory.
        if object.path.is_empty() || object.path.contains(&b'/') || object.path.contains(&0) {
            let fault = Fault::new(FaultCode::InvalidPath, "list").side(Side::Source);
            self.refuse(&place, fault.detail("the listing holds a name that is no file name"));
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

    fn destination_end(&mut self, query: QueryId) {
        if let Some(Open::Listing(listing)) = self.open.get_mut(&query) {
            listing.destination_done = true;
            for object in std::mem::take(&mut listing.waiting) {
                self.source_entry(query, object);
            }
        }
        self.end_listing(query);
    }

    fn end_listing(&mut self, query: QueryId) {
        match self.open.remove(&query) {
            Some(Open::Listing(listing)) if listing.source_done && listing.destination_done => {
                self.pending.extend(listing.children.into_iter().rev());
                self.part_done(Some(listing.directory));
            }
            Some(open) => {
                self.open.insert(query, open);
            }
            None => {}
        }
    }

    fn listing_failed(&mut self, query: QueryId, fault: Fault) {
        match self.open.remove(&query) {
            Some(Open::Listing(listing)) => {
                let place = self.directories.get(&listing.directory).map(|d| d.place.clone());
                if let Some(mut place) = place {
                    place.parent = Some(listing.directory);
                    self.refuse(&place, fault);
                }
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
    fn part_done(&mut self, directory: Option<DirectoryId>) {
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

    // --- small helpers -----------------------------------------------------------------------

    fn item(&mut self, place: &Place) -> Item {
        let id = ItemId(self.next_item);
        self.next_item += 1;
        Item {
            id,
            root: place.root,
            parent: place.parent,
            source: place.source.clone(),
            destination: place.destination.clone(),
            size: Some(0),
            modified: None,
            range: None,
            attributes: Attributes::default(),
        }
    }

    fn attributes(&self, object: &Object) -> Attributes {
        let preserve = self.options.preserve;
        Attributes {
            modified: object.modified.filter(|_| preserve.times),
            mode: object.mode.filter(|_| preserve.modes).map(|mode| mode & 0o7777),
        }
    }

    fn skip(&mut self, place: &Place, reason: SkipReason) {
        let item = self.item(place);
        self.actions.push_back(Action::Skip { item, reason });
    }

    fn refuse(&mut self, place: &Place, mut fault: Fault) {
        let item = self.item(place);
        if fault.subject.is_empty() {
            fault = fault.on_path(&item.source);
        }
        self.actions.push_back(Action::Refuse { item, fault });
    }
}

fn root_place(id: RootId, root: Root) -> Place {
    Place { root: id, parent: None, source: root.source, destination: root.destination, depth: 0, range: root.range }
}

fn destination_fault(code: FaultCode, item: &Item) -> Fault {
    Fault::new(code, "write").on_path(&item.destination).side(Side::Destination)
}

/// The bytes to move and their number, when the file's size allows to say.
type Extent = (Option<Range<u64>>, Option<u64>);

fn effective_range(range: Option<Range<u64>>, size: Option<u64>) -> Result<Extent, Fault> {
    let Some(range) = range else {
        return Ok((None, size));
    };
    let end = size.map_or(range.end, |size| range.end.min(size));
    if range.start > end {
        let fault = Fault::new(FaultCode::InvalidArgument, "copy a range of");
        return Err(fault.side(Side::Source).detail("the range starts behind the end"));
    }
    let length = (end != u64::MAX).then(|| end - range.start);
    Ok((Some(range.start..end), length))
}
