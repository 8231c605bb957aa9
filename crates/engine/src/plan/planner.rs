//! The streaming planner: listings in, actions out.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::ops::Range;

use super::{
    Action, Attributes, DirectoryId, Earlier, Extra, Links, PlanInput, PlanOptions, Query, QueryId, Root, RootId,
    SyncLevel,
};
use crate::fault::{FaultCode, Side};
use crate::listing::Object;

mod directories;
mod existing;
mod extras;
mod objects;
mod room;
mod roots;
mod twins;

use existing::Entries;
use room::Breadth;
use twins::{Met, Names};

/// The planner: pure, streaming, depth first.
///
/// Memory is bounded by the entries of the directories on the way from a root to the directories
/// being listed, provided that the caller takes all actions after every call and hands over no entries
/// for which there is no room ([`Planner::has_room`]).
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
    extras: VecDeque<Extra>,
    /// Entries of sources that filters have left out.
    filtered: u64,
    breadth: Breadth,
    /// Where a run goes on: destinations are listed then.
    earlier: Option<Box<dyn Earlier>>,
    /// The names of roots' copies.
    met: Met,
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
    links: Links,
    /// Of what was planned before it in the same directory: names that a destination may take for its own.
    twins: Vec<Vec<u8>>,
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
    existing: Entries,
    /// Of a mirror whose destination is listed: the source's names that the destination does not show.
    absent: Option<Names>,
    destination_done: bool,
    source_done: bool,
    /// Where links are copied: the names that were met, each as its digest.
    met: Option<HashSet<u64>>,
    /// The names that are copied.
    copied: Met,
    /// The source's entries are not all known.
    source_broken: bool,
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
            extras: VecDeque::new(),
            filtered: 0,
            breadth: Breadth::default(),
            earlier: None,
            met: Met::default(),
            next_root: 0,
            next_query: 0,
            next_directory: 0,
            next_item: 0,
        }
    }

    /// Leaves what an earlier run has finished as it is. Before the first root; matters where nothing is compared anyway
    /// ([`super::SyncLevel::None`]).
    pub fn go_on(&mut self, earlier: Box<dyn Earlier>) {
        self.earlier = Some(earlier);
    }

    /// Whether it matters what is at destinations.
    fn looks_at_destinations(&self) -> bool {
        let compares = self.options.sync != SyncLevel::None || self.options.mirror || self.earlier.is_some();
        compares || self.options.avoids_links
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

    /// Whether everything about the roots added so far has been asked and more may be, so that the caller may add the next.
    pub fn wants_root(&self) -> bool {
        self.roots.is_empty() && self.pending.is_empty() && self.may_ask()
    }

    /// The next question; `None` while enough are open ([`PlanOptions::queries_at_once`]; fewer while the listed directories
    /// turn out to hold thousands of others) or nothing is left to ask.
    pub fn poll_query(&mut self) -> Option<Query> {
        if !self.may_ask() {
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
                    listing.existing.insert(object);
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
                self.source_failed(query, fault.side_if_unknown(Side::Source));
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

    /// The next thing at the destination that the source does not have ([`PlanOptions::mirror`]).
    pub fn poll_extra(&mut self) -> Option<Extra> {
        self.extras.pop_front()
    }

    /// Entries of source directories that the filter has left out so far, each directory as one.
    pub fn filtered(&self) -> u64 {
        self.filtered
    }

    /// Whether everything is planned and every action was taken.
    pub fn is_finished(&self) -> bool {
        self.no_more_roots
            && self.roots.is_empty()
            && self.pending.is_empty()
            && self.open.is_empty()
            && self.actions.is_empty()
            && self.extras.is_empty()
    }
}
