//! What all sessions of one copy share.

mod expected;
mod figures;
mod names;
mod opening;

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, HashSet};
use std::rc::Rc;
use std::time::Duration;

use tokio::sync::OnceCell;
use tokio::time::Instant;
use whimbrel_engine::auto::{Spending, Steering};
use whimbrel_engine::events::Event;
use whimbrel_engine::plan::{Item, ItemId, RootId};
use whimbrel_engine::tune::Choice;

use super::chunk::OpenFile;
use super::dtns::Dtns;
use super::end::End;
use super::expect::{Expect, Expected};
use super::hosts::Hosts;
use super::local::LocalData;
use super::options::CopyOptions;
use super::pair::{DataWish, Pair, Role};
use super::relays::Relays;
use super::rules::Decision;
use super::run::Run;
use super::sidecar::{Dialling, News, Sidecars};
use super::tally::Tallying;
use super::target::Target;
use super::whole::Whole;

use figures::ShortestTrips;

pub use self::opening::{LoggedIn, asked_early};

/// The two ends of a root; `None` is this host.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Route {
    /// Where from.
    pub source: Option<Target>,
    /// Where to.
    pub destination: Option<Target>,
}

impl Route {
    fn target(&self, role: Role) -> Option<&Target> {
        match role {
            Role::Source => self.source.as_ref(),
            Role::Destination => self.destination.as_ref(),
        }
    }
}

/// What all sessions of one copy share; one thread only.
pub struct Shared {
    /// What the user wants.
    pub options: CopyOptions,
    /// Data connections.
    pub wish: DataWish,
    /// Congestion control that senders begin with where the user fixes none; `None`: their own.
    congestion: Option<String>,
    local: OnceCell<LocalData>,
    /// Where most roots go, as far as there are many: that of the first.
    usual: RefCell<Option<Rc<Route>>>,
    /// Where others go.
    routes: RefCell<HashMap<RootId, Rc<Route>>>,
    devices: RefCell<HashSet<RootId>>,
    device_items: RefCell<HashSet<ItemId>>,
    prepared: RefCell<Option<(Route, Pair)>>,
    stream_only: RefCell<HashSet<Route>>,
    open_files: RefCell<HashMap<ItemId, OpenFile>>,
    /// Source paths of the roots: listed names count from there. Where there is no list, none.
    roots: RefCell<HashMap<RootId, Vec<u8>>>,
    /// What the user said of single roots.
    demanded: RefCell<HashMap<RootId, Expected>>,
    /// Names of the user's list that were met among the sources.
    met: RefCell<HashSet<Vec<u8>>>,
    /// What a destination said of a file that is not what the user expects.
    unexpected: RefCell<HashMap<ItemId, String>>,
    /// Directories at destinations that take no temporary names, and what is written to and not replaced.
    plain_names: RefCell<HashSet<(Rc<Route>, Vec<u8>)>>,
    /// Directories that this copy has made: nobody else has links or pipes in them.
    new_directories: RefCell<HashSet<(Rc<Route>, Vec<u8>)>>,
    /// Ends whose source announced checksums and refused them.
    unsummed: RefCell<HashSet<Route>>,
    /// What the user is to be told next.
    news: News,
    /// What this run's unfinished files are called after; nobody takes them over as long as this is held.
    pub run: Run,
    /// Temporary names of whole files that have not their own.
    wholes: RefCell<HashMap<ItemId, (Target, Vec<u8>)>>,
    /// Whole files whose temporary names may be gone: they were to be renamed, or were removed.
    renamed: RefCell<HashSet<ItemId>>,
    /// How many restarts of hosts were known when the first bytes of a whole file that nothing proves were moved.
    begun: RefCell<HashMap<ItemId, u64>>,
    /// Directories of whole files in which others may have left something: all of them, and those to be looked through.
    looked_in: RefCell<HashSet<(Target, Vec<u8>)>>,
    untidy: RefCell<Vec<(Target, Vec<u8>)>>,
    /// Unfinished copies that are given up, though some session may still store a part of one.
    given_up: RefCell<Vec<(Target, Vec<u8>)>>,
    /// What is proven of unfinished files at servers that keep no journal.
    pub sidecars: Sidecars,
    /// What of trees is done.
    pub tally: Tallying,
    /// Whether the destination's hosts are those they were.
    pub hosts: Rc<Hosts>,
    relays: Option<Rc<Relays>>,
    dtns: Rc<Dtns>,
    spending: RefCell<Spending>,
    steering: RefCell<Option<Steering>>,
    steered: RefCell<Vec<Choice<String>>>,
    /// How long the rest of the run will take at the present rate; zero until that is known.
    pub left: Cell<Duration>,
    shortest: RefCell<ShortestTrips>,
    /// Whether the last transfer that told of it had to wait behind a full queue on the path.
    pub queued: Cell<bool>,
}

impl Shared {
    /// Nothing known yet, except of DTNs.
    pub fn new(options: CopyOptions, wish: DataWish, dtns: Rc<Dtns>) -> Self {
        Self {
            relays: Relays::new(&options.relays, &options.session).map(Rc::new),
            hosts: options.hosts.clone(),
            options,
            wish,
            congestion: None,
            local: OnceCell::new(),
            usual: RefCell::default(),
            routes: RefCell::default(),
            devices: RefCell::default(),
            device_items: RefCell::default(),
            prepared: RefCell::default(),
            stream_only: RefCell::default(),
            open_files: RefCell::default(),
            roots: RefCell::default(),
            demanded: RefCell::default(),
            met: RefCell::default(),
            unexpected: RefCell::default(),
            plain_names: RefCell::default(),
            new_directories: RefCell::default(),
            unsummed: RefCell::default(),
            news: News::default(),
            run: Run::begin(),
            wholes: RefCell::default(),
            renamed: RefCell::default(),
            begun: RefCell::default(),
            looked_in: RefCell::default(),
            untidy: RefCell::default(),
            given_up: RefCell::default(),
            sidecars: Sidecars::default(),
            tally: Tallying::default(),
            dtns,
            spending: RefCell::default(),
            steering: RefCell::default(),
            steered: RefCell::default(),
            left: Cell::default(),
            shortest: RefCell::default(),
            queued: Cell::default(),
        }
    }

    /// The same whose senders begin with this congestion control, where they allow it.
    pub fn beginning_with(self, congestion: Option<String>) -> Self {
        Self { congestion, ..self }
    }

    /// Remembers the ends of a root, and whether one of its files is a device.
    pub fn add_route(&self, root: RootId, route: Rc<Route>, device: bool) {
        let usual = self.usual.borrow_mut().get_or_insert_with(|| route.clone()).clone();
        if usual == route {
            self.routes.borrow_mut().remove(&root);
        } else {
            self.routes.borrow_mut().insert(root, route);
        }
        if device {
            self.devices.borrow_mut().insert(root);
        }
    }

    /// Remembers where names of a root count from.
    pub fn add_root(&self, root: RootId, source: &[u8]) {
        if matches!(self.options.sums.expect, Expect::Listed(_)) {
            self.roots.borrow_mut().insert(root, source.to_vec());
        }
    }

    /// Remembers what a root that is a file must be.
    pub fn expect(&self, root: RootId, expected: Expected) {
        self.demanded.borrow_mut().insert(root, expected);
    }

    /// The digests of a whole file that are wanted.
    pub fn whole(&self, item: &Item) -> Option<Whole> {
        if item.range.is_some() {
            return None;
        }
        Whole::new(self.options.sums.print, self.expected(item).as_ref())
    }

    /// The ends of a root.
    pub fn route(&self, root: RootId) -> Rc<Route> {
        let other = self.routes.borrow().get(&root).cloned();
        let here = || Rc::new(Route { source: None, destination: None });
        other.or_else(|| self.usual.borrow().clone()).unwrap_or_else(here)
    }

    /// Whether reading the root again, or back, would not give the same bytes.
    pub fn is_device(&self, root: RootId) -> bool {
        self.devices.borrow().contains(&root)
    }

    /// The same of one item, by what its destination has said meanwhile; some servers do not tell what is a device.
    pub fn is_device_item(&self, item: &Item) -> bool {
        let path = &item.destination;
        let named_so = path.starts_with(b"/dev/") && !path.starts_with(b"/dev/shm/");
        named_so || self.is_device(item.root) || self.device_items.borrow().contains(&item.id)
    }

    /// The only pair of ends so far, if there is just one.
    pub fn only_route(&self) -> Option<Rc<Route>> {
        self.usual.borrow().clone().filter(|_| self.routes.borrow().is_empty())
    }

    /// Remembers that extended block mode does not work between these ends.
    pub fn use_streams(&self, route: &Route) {
        self.stream_only.borrow_mut().insert(route.clone());
    }

    /// Whether sources can be asked for checksums before they send.
    pub fn sums_first(&self, route: &Route) -> bool {
        !self.unsummed.borrow().contains(route)
    }

    /// The source computes no checksums after all.
    pub fn refuse_sums(&self, route: &Route) {
        self.unsummed.borrow_mut().insert(route.clone());
    }

    /// The user is to be told.
    pub fn tell(&self, news: Event) {
        self.news.borrow_mut().push(news);
    }

    /// What the user is to be told since the last call.
    pub fn take_news(&self) -> Vec<Event> {
        self.news.take()
    }

    /// A file that moves in chunks and was opened.
    pub fn open_file(&self, item: ItemId) -> Option<OpenFile> {
        self.open_files.borrow().get(&item).cloned()
    }

    /// Remembers how a file moves in chunks.
    pub fn file_opened(&self, item: ItemId, file: OpenFile) {
        self.open_files.borrow_mut().insert(item, file);
    }

    /// Forgets a file that is complete or has failed; `changed`: its source has become another one.
    pub fn file_ended(&self, item: ItemId, changed: bool) {
        self.open_files.borrow_mut().remove(&item);
        if changed {
            self.sidecars.give_up(item);
        } else {
            self.sidecars.end(item, false);
        }
        self.whole_ended(item);
    }

    /// How sessions for sidecars are opened.
    pub fn dialling(&self) -> Dialling {
        let (dtns, hosts) = (self.dtns.clone(), self.hosts.clone());
        Dialling { dtns, hosts, session: self.options.session.clone(), news: self.news.clone() }
    }

    /// Nothing moves between these two: where one of them is one of several servers, the others are dialled first for a while.
    /// Whether any is.
    pub fn avoid(&self, route: &Route, pair: &Pair) -> bool {
        let has_others = |role: Role| route.target(role).is_some_and(|target| !target.others.is_empty());
        let ends = [(Role::Source, &pair.source), (Role::Destination, &pair.destination)];
        let servers = ends.into_iter().filter(|(role, _)| has_others(*role)).filter_map(|(_, end)| End::remote(end));
        let mut avoided = false;
        for server in servers {
            tracing::warn!(dtn = %server.target, "no data can be moved with a server; another one is tried");
            self.dtns.failed(&server.target, Instant::now());
            avoided = true;
        }
        avoided
    }

    /// What the administrators of the ends of a file decide about it.
    pub fn decision(&self, item: &Item) -> Option<Decision> {
        let rules = &self.dtns.rules;
        if rules.is_empty() {
            return None;
        }
        rules.decide(&self.route(item.root), &item.source, &item.destination)
    }
}
