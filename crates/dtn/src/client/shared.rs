//! What all sessions of one copy share.

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, HashSet};
use std::rc::Rc;
use std::time::{Duration, Instant};

use tokio::sync::OnceCell;
use whimbrel_engine::auto::{EndSpent, Sent, Spending, Steering};
use whimbrel_engine::events::Event;
use whimbrel_engine::plan::{Item, ItemId, RootId};
use whimbrel_engine::tune::Choice;
use whimbrel_engine::{Fault, FaultCode, Side};
use whimbrel_proto::op::{Op, OpId, Spent};

use super::chunk::OpenFile;
use super::dtns::Dtns;
use super::end::End;
use super::expect::{Expect, Expected};
use super::local::LocalData;
use super::options::CopyOptions;
use super::pair::{DataWish, Early, Pair, Role, fresh_nonce, listening};
use super::plan::base_name;
use super::remote::Remote;
use super::rules::Decision;
use super::sidecar::{Dialling, Sidecars};
use super::target::Target;
use super::whole::Whole;

/// Most directories of its own making that a copy remembers.
const NEW_DIRECTORIES: usize = 4096;

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
    local: OnceCell<LocalData>,
    routes: RefCell<HashMap<RootId, Route>>,
    devices: RefCell<HashSet<RootId>>,
    device_items: RefCell<HashSet<ItemId>>,
    prepared: RefCell<Option<(Route, Pair)>>,
    stream_only: RefCell<HashSet<Route>>,
    open_files: RefCell<HashMap<ItemId, OpenFile>>,
    /// Source paths of the roots: listed names count from there.
    roots: RefCell<HashMap<RootId, Vec<u8>>>,
    /// Names of the user's list that were met among the sources.
    met: RefCell<HashSet<Vec<u8>>>,
    /// What a destination said of a file that is not what the user expects.
    unexpected: RefCell<HashMap<ItemId, String>>,
    /// Directories at destinations that take no temporary names, and what is written to and not replaced.
    plain_names: RefCell<HashSet<(Route, Vec<u8>)>>,
    /// Directories that this copy has made: nobody else has links or pipes in them.
    new_directories: RefCell<HashSet<(Route, Vec<u8>)>>,
    /// Ends whose source announced checksums and refused them.
    unsummed: RefCell<HashSet<Route>>,
    /// What the user is to be told next.
    news: RefCell<Vec<Event>>,
    /// What is proven of unfinished files at servers that keep no journal.
    pub sidecars: Sidecars,
    dtns: Rc<Dtns>,
    spending: RefCell<Spending>,
    steering: RefCell<Option<Steering>>,
    steered: RefCell<Vec<Choice<String>>>,
    /// How long the rest of the run will take at the present rate; zero until that is known.
    pub left: Cell<Duration>,
    /// Whether the last transfer that told of it had to wait behind a full queue on the path.
    pub queued: Cell<bool>,
}

impl Shared {
    /// Nothing known yet, except of DTNs.
    pub fn new(options: CopyOptions, wish: DataWish, dtns: Rc<Dtns>) -> Self {
        Self {
            options,
            wish,
            local: OnceCell::new(),
            routes: RefCell::default(),
            devices: RefCell::default(),
            device_items: RefCell::default(),
            prepared: RefCell::default(),
            stream_only: RefCell::default(),
            open_files: RefCell::default(),
            roots: RefCell::default(),
            met: RefCell::default(),
            unexpected: RefCell::default(),
            plain_names: RefCell::default(),
            new_directories: RefCell::default(),
            unsummed: RefCell::default(),
            news: RefCell::default(),
            sidecars: Sidecars::default(),
            dtns,
            spending: RefCell::default(),
            steering: RefCell::default(),
            steered: RefCell::default(),
            left: Cell::default(),
            queued: Cell::default(),
        }
    }

    /// Remembers the ends of a root, and whether one of its files is a device.
    pub fn add_route(&self, root: RootId, route: Route, device: bool) {
        self.routes.borrow_mut().insert(root, route);
        if device {
            self.devices.borrow_mut().insert(root);
        }
    }

    /// Remembers where names of a root count from.
    pub fn add_root(&self, root: RootId, source: &[u8]) {
        self.roots.borrow_mut().insert(root, source.to_vec());
    }

    /// The name that a list has for an item: relative to its root, or that of the root if this is the file itself.
    fn listed_name(&self, item: &Item) -> Vec<u8> {
        let roots = self.roots.borrow();
        let root = roots.get(&item.root).map_or(&b""[..], Vec::as_slice);
        let root = root.strip_suffix(b"/").unwrap_or(root);
        match item.source.strip_prefix(root).and_then(|rest| rest.strip_prefix(b"/")) {
            Some(name) if !root.is_empty() || item.source.starts_with(b"/") => name.to_vec(),
            _ => base_name(&item.source).to_vec(),
        }
    }

    /// What the user expects of a file.
    pub fn expected(&self, item: &Item) -> Option<Expected> {
        match &self.options.sums.expect {
            Expect::Nothing => None,
            Expect::One(expected) => Some(expected.clone()),
            Expect::Listed(list) => list.get(&self.listed_name(item)).cloned(),
        }
    }

    /// Whether the user's list names every file but this one.
    pub fn is_unlisted(&self, item: &Item) -> bool {
        matches!(&self.options.sums.expect, Expect::Listed(list) if list.get(&self.listed_name(item)).is_none())
    }

    /// Remembers that a name is among the sources; whether the list names it, if there is one.
    pub fn meet(&self, item: &Item) -> Option<bool> {
        let Expect::Listed(list) = &self.options.sums.expect else { return None };
        let name = self.listed_name(item);
        let listed = list.get(&name).is_some();
        if listed {
            self.met.borrow_mut().insert(name);
        }
        Some(listed)
    }

    /// Names of the list that were never met, sorted.
    pub fn never_met(&self) -> Vec<Vec<u8>> {
        let Expect::Listed(list) = &self.options.sums.expect else { return Vec::new() };
        let met = self.met.borrow();
        let mut names: Vec<_> = list.names().filter(|name| !met.contains(*name)).map(<[u8]>::to_vec).collect();
        names.sort_unstable();
        names
    }

    /// Whether a destination said the same of this file before: two transfers are not damaged alike.
    pub fn said_before(&self, item: ItemId, what: &str) -> bool {
        self.unexpected.borrow_mut().insert(item, what.to_owned()).is_some_and(|before| before == what)
    }

    /// The digests of a whole file that are wanted.
    pub fn whole(&self, item: &Item) -> Option<Whole> {
        if item.range.is_some() {
            return None;
        }
        Whole::new(self.options.sums.print, self.expected(item).as_ref())
    }

    /// The ends of a root.
    pub fn route(&self, root: RootId) -> Route {
        let here = Route { source: None, destination: None };
        self.routes.borrow().get(&root).cloned().unwrap_or(here)
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
    pub fn only_route(&self) -> Option<Route> {
        let routes = self.routes.borrow();
        let mut all = routes.values();
        let first = all.next()?;
        all.all(|route| route == first).then(|| first.clone())
    }

    /// Remembers that extended block mode does not work between these ends.
    pub fn use_streams(&self, route: &Route) {
        self.stream_only.borrow_mut().insert(route.clone());
    }

    /// Whether unfinished files may have temporary names beside this one.
    pub fn takes_temporary(&self, route: &Route, path: &[u8]) -> bool {
        let plain = self.plain_names.borrow();
        plain.is_empty()
            || [path, directory_of(path)].iter().all(|name| !plain.contains(&(route.clone(), name.to_vec())))
    }

    /// A device, a pipe or a link at the destination is written to.
    pub fn write_to(&self, item: &Item, device: bool) {
        self.plain_names.borrow_mut().insert((self.route(item.root), item.destination.clone()));
        if device {
            self.device_items.borrow_mut().insert(item.id);
        }
    }

    /// The destination refuses temporary names where this file is to be: from now on files have their final names there while
    /// they are written, which the user is told.
    pub fn refuse_temporary(&self, route: &Route, path: &[u8], fault: Fault) {
        let directory = directory_of(path).to_vec();
        if self.plain_names.borrow_mut().insert((route.clone(), directory.clone())) {
            self.news.borrow_mut().push(Event::WrittenInPlace { directory, fault });
        }
    }

    /// Remembers a directory that was not there before.
    pub fn directory_made(&self, item: &Item) {
        let mut known = self.new_directories.borrow_mut();
        if known.len() < NEW_DIRECTORIES {
            let slash: &[u8] = if item.destination.ends_with(b"/") { b"" } else { b"/" };
            known.insert((self.route(item.root), [&item.destination, slash].concat()));
        }
    }

    /// Whether an item's directory is known to be of this copy's making.
    pub fn is_in_new_directory(&self, item: &Item) -> bool {
        let known = self.new_directories.borrow();
        !known.is_empty() && known.contains(&(self.route(item.root), directory_of(&item.destination).to_vec()))
    }

    /// Whether sources can be asked for checksums before they send.
    pub fn sums_first(&self, route: &Route) -> bool {
        !self.unsummed.borrow().contains(route)
    }

    /// The source computes no checksums after all.
    pub fn refuse_sums(&self, route: &Route) {
        self.unsummed.borrow_mut().insert(route.clone());
    }

    /// What the user is to be told since the last call.
    pub fn take_news(&self) -> Vec<Event> {
        self.news.take()
    }

    /// What new data connections of a session are to be like.
    pub fn wish_of(&self, session: u32) -> DataWish {
        let steered = || self.steering.borrow().as_ref().and_then(|steering| steering.wanted(session));
        let congestion = self.wish.congestion.clone().or_else(|| steered().map(str::to_owned));
        DataWish { congestion, ..self.wish.clone() }
    }

    /// Changes of the congestion control since the last call.
    pub fn take_steered(&self) -> Vec<Choice<String>> {
        self.steered.take()
    }

    /// Decides from what a sender tells, which lets us choose among these.
    pub fn steer(&self, session: u32, allowed: impl FnOnce() -> Vec<String>, spent: &Spent) {
        let fixed = self.options.congestion.as_deref();
        let mut steering = self.steering.borrow_mut();
        let steering = steering.get_or_insert_with(|| Steering::new(&allowed(), fixed));
        let sent = Sent {
            session,
            congestion: spent.congestion.clone(),
            bytes: spent.bytes,
            took: Duration::from_micros(spent.took),
            sent: spent.bytes_sent,
            resent: spent.bytes_resent,
            rtt: Duration::from_micros(spent.rtt),
            rtt_least: Duration::from_micros(spent.rtt_least),
            waited: if spent.threads > 0 { spent.network as f64 / spent.threads as f64 } else { 0.0 },
        };
        self.queued.set(sent.is_queued());
        self.steered.borrow_mut().extend(steering.sent(Instant::now(), &sent, self.left.get()));
    }

    /// An end has told where the time of a transfer went.
    pub fn spent(&self, role: Role, spent: &Spent) {
        let told = EndSpent {
            bytes: spent.bytes,
            took: spent.took,
            threads: spent.threads,
            storage: spent.storage,
            network: spent.network,
            hash: spent.hash,
            hash_cpu: spent.hash_cpu,
            cpu: spent.cpu,
            delay: spent.delay,
            proof: spent.proof,
            proof_storage: spent.proof_storage,
            proof_hash: spent.proof_hash,
            proof_cpu: spent.proof_cpu,
            proof_hash_cpu: spent.proof_hash_cpu,
            proof_delay: spent.proof_delay,
            busy: spent.busy,
            window: spent.window_limited,
            buffer: spent.buffer_limited,
            sent: spent.bytes_sent,
            resent: spent.bytes_resent,
        };
        let mut spending = self.spending.borrow_mut();
        match role {
            Role::Source => spending.source.add(&told),
            Role::Destination => spending.destination.add(&told),
        }
    }

    /// Where the time of all transfers so far went.
    pub fn spending(&self) -> Spending {
        self.spending.borrow().clone()
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
        self.sidecars.end(item, changed);
    }

    /// How sessions for sidecars are opened.
    pub fn dialling(&self) -> Dialling {
        Dialling { dtns: self.dtns.clone(), session: self.options.session.clone() }
    }

    /// Leaves a pair for the first session that wants this route.
    pub fn leave_prepared(&self, route: Route, pair: Pair) {
        *self.prepared.borrow_mut() = Some((route, pair));
    }

    /// A pair of ends, logged in.
    pub async fn open_pair(&self, route: &Route) -> Result<Pair, Fault> {
        let mut pair = self.new_pair(route).await?;
        pair.stream_only |= self.stream_only.borrow().contains(route);
        Ok(pair)
    }

    async fn new_pair(&self, route: &Route) -> Result<Pair, Fault> {
        let prepared = self.prepared.borrow_mut().take_if(|(prepared, _)| prepared == route);
        if let Some((_, pair)) = prepared {
            return Ok(pair);
        }
        // Asked along with the login, a listener costs no round trip of its own.
        let nonce = fresh_nonce()?;
        let first = [self.wish.listener(nonce)];
        let (source, destination) = tokio::join!(
            self.open_server(route, Role::Source, &[]),
            self.open_server(route, Role::Destination, &first),
        );
        let (source, mut destination) = (source?, destination?);
        let mut early = None;
        if let Some((remote, asked)) = &mut destination
            && let [passive] = asked[..]
        {
            early = early_listener(remote, passive, nonce).await?;
        }
        let mut pair = self.complete(source.map(|(end, _)| end), destination.map(|(end, _)| end)).await?;
        pair.early = early;
        Ok(pair)
    }

    /// The server in a role, logged in, with the first operations sent along; `None` for this host.
    pub async fn open_server(
        &self,
        route: &Route,
        role: Role,
        first: &[Op],
    ) -> Result<Option<(Remote, Vec<OpId>)>, Fault> {
        let Some(target) = route.target(role) else { return Ok(None) };
        self.dial(target, role, first).await.map(Some)
    }

    async fn dial(&self, target: &Target, role: Role, first: &[Op]) -> Result<(Remote, Vec<OpId>), Fault> {
        let dialled = async {
            let (mut remote, asked) = self.dtns.dial(target, &self.options.session, first).await?;
            self.dtns.rules.learn(&mut remote).await?;
            Ok((remote, asked))
        };
        dialled.await.map_err(|fault: Fault| fault.side_if_unknown(role.side()))
    }

    /// What the administrators of the ends of a file decide about it.
    pub fn decision(&self, item: &Item) -> Option<Decision> {
        let rules = &self.dtns.rules;
        if rules.is_empty() {
            return None;
        }
        rules.decide(&self.route(item.root), &item.source, &item.destination)
    }

    /// Puts a local end wherever there is no server; it uses the address under which it reaches the server.
    pub async fn complete(&self, source: Option<Remote>, destination: Option<Remote>) -> Result<Pair, Fault> {
        let source_addresses = source.as_ref().map(Remote::addresses);
        let destination_addresses = destination.as_ref().map(Remote::addresses);
        let source = match source {
            Some(remote) => End::Remote(Box::new(remote)),
            None => End::Local(self.local().await?.attach(destination_addresses)?),
        };
        let destination = match destination {
            Some(remote) => End::Remote(Box::new(remote)),
            None => End::Local(self.local().await?.attach(source_addresses)?),
        };
        Ok(Pair::new(source, destination))
    }

    /// One end for listings and questions. A server is asked `first` along with the login; the number of operations that
    /// were asked comes, too.
    pub async fn open_lister(&self, target: Option<&Target>, role: Role, first: &[Op]) -> Result<(End, usize), Fault> {
        let Some(target) = target else { return Ok((End::Local(self.local().await?.attach(None)?), 0)) };
        let (remote, asked) = match first.iter().any(|op| matches!(op, Op::Listing(_))) {
            // A listing is read as it is used, because it may be longer than memory: nothing may be asked behind it here.
            true => {
                let dialled = self.dtns.dial(target, &self.options.session, first).await;
                dialled.map_err(|fault| fault.side_if_unknown(role.side()))?
            }
            false => self.dial(target, role, first).await?,
        };
        Ok((End::Remote(Box::new(remote)), asked.len()))
    }

    async fn local(&self) -> Result<&LocalData, Fault> {
        self.local.get_or_try_init(|| LocalData::start(&self.options.local)).await
    }
}

/// The directory of a path, with the slash at its end.
fn directory_of(path: &[u8]) -> &[u8] {
    &path[..path.iter().rposition(|&byte| byte == b'/').map_or(0, |slash| slash + 1)]
}

/// The listener asked for ahead; `None` when the server has no extended block mode, say.
pub async fn early_listener(remote: &mut Remote, passive: OpId, nonce: [u8; 16]) -> Result<Option<Early>, Fault> {
    match remote.finish(passive).await {
        Ok(outcome) => {
            let nonce = remote.nonce_accepted().then_some(nonce);
            Ok(Some(Early { addresses: listening(outcome)?, nonce }))
        }
        Err(fault) if matches!(fault.code, FaultCode::ConnectionLost | FaultCode::TimedOut) => {
            Err(fault.side_if_unknown(Side::Destination))
        }
        Err(_) => Ok(None),
    }
}
