//! Feeds the planner: roots from the user's words, listings from both ends.

mod desk;
mod going_on;
mod lister;
mod taken;

use std::cell::Cell;
use std::collections::HashMap;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::Poll;

use tokio::sync::mpsc::{self, Receiver, Sender};
use whimbrel_engine::listing::{Object, ObjectKind, join};
use whimbrel_engine::plan::{
    Action, Existing, Extra, Links, ListedSide, PlanInput, PlanOptions, Planner, Query, QueryId, Root, RootId,
};
use whimbrel_engine::{Fault, FaultCode, Side};

use self::desk::Desk;
use self::lister::{Answer, Question};
use self::taken::Taken;
use super::end::{End, listing};
use super::options::{Demand, FoundFile, Jobs, Place};
use super::overlap;
use super::pair::Role;
use super::shared::{Route, Shared};
use super::tally::Places;
use super::target::Target;
use super::wildcard;

/// What is known about the ends of a copy before planning starts.
#[derive(Debug, Default)]
pub struct Known {
    /// The first source.
    pub source: Option<Object>,
    /// The destination; `Some(None)`: nothing is there.
    pub destination: Option<Option<Object>>,
    /// The tallies that earlier runs may have left, beside the destination and in it; `None`: nobody asked.
    pub tallies: Option<[Option<Object>; 2]>,
}

/// Looks at each action before it starts: it passes on, is changed, or is left out. While it looks nothing further is planned.
pub trait Sieve {
    /// The action that starts; `None`: nothing does.
    fn sift(&mut self, action: Action) -> impl Future<Output = Option<Action>>;
}

/// Everything starts.
pub struct All;

impl Sieve for All {
    async fn sift(&mut self, action: Action) -> Option<Action> {
        Some(action)
    }
}

/// Runs a planner and passes its actions on.
pub struct Planning<S = All> {
    shared: Rc<Shared>,
    planner: Planner,
    actions: Sender<Action>,
    sieve: S,
    extras: Option<Sender<Extra>>,
    /// Where it is told how many entries filters have left out.
    filtered: Rc<Cell<u64>>,
    desks: Vec<Desk>,
    /// Sessions that were opened before the first question: the desks' first ones.
    sessions: Vec<Session>,
    stats: HashMap<QueryId, Stat>,
    /// Ends whose rules were asked for.
    met: Vec<Rc<Route>>,
}

/// A session for questions that was opened before there were any.
pub struct Session {
    role: Role,
    target: Option<Target>,
    end: End,
    /// The directory whose listing is in the air.
    listed: Option<Vec<u8>>,
}

impl Session {
    /// One that was asked along with the login what is in a directory at the source, or whatever is there; `None` when it
    /// cannot be had now.
    pub async fn listing(shared: &Shared, place: &Place) -> Option<Self> {
        let target = place.target.clone();
        let opened = shared.open_lister(target.as_ref(), Role::Source, &[listing(&place.path)]).await;
        let (end, asked) = opened.ok()?;
        Some(Self { role: Role::Source, target, end, listed: (asked > 0).then(|| place.path.clone()) })
    }
}

/// A question about single objects while it is answered.
struct Stat {
    root: RootId,
    source: Option<Vec<u8>>,
    /// Answers that are still to come.
    missing: u32,
    device: bool,
    found_source: Result<Object, Fault>,
    found_destination: Result<Option<Object>, Fault>,
}

/// Roots that are still to come.
enum Coming {
    Pairs(Pairs),
    Files(Receiver<Result<FoundFile, Fault>>),
}

/// The user's list.
struct Pairs {
    coming: Receiver<Result<(Place, Place), Fault>>,
    plan: PlanOptions,
    taken: Taken,
}

/// The receiver of actions is gone: the run is over.
struct Gone;

impl<S: Sieve> Planning<S> {
    /// A planner without roots.
    pub fn new(shared: Rc<Shared>, actions: Sender<Action>, sieve: S) -> Self {
        let planner = Planner::new(shared.options.plan.clone());
        Self {
            shared,
            planner,
            actions,
            sieve,
            extras: None,
            filtered: Rc::default(),
            desks: Vec::new(),
            sessions: Vec::new(),
            stats: HashMap::new(),
            met: Vec::new(),
        }
    }

    /// With a session for listings that stands already.
    pub fn listed(mut self, session: Option<Session>) -> Self {
        self.sessions.extend(session);
        self
    }

    /// Tells there what destinations hold that sources do not.
    pub fn telling_extras(mut self, extras: mpsc::Sender<Extra>) -> Self {
        self.extras = Some(extras);
        self
    }

    /// Tells there how many entries of source directories filters have left out so far.
    pub fn counting_filtered(mut self, filtered: Rc<Cell<u64>>) -> Self {
        self.filtered = filtered;
        self
    }

    /// Plans everything, then drops the sender of actions.
    ///
    /// # Errors
    /// What makes the whole command fail: a missing destination directory.
    pub async fn run(mut self, jobs: Jobs, known: Known) -> Result<(), Fault> {
        let places = Places::of(&jobs, &self.shared.options);
        let coming = match jobs {
            Jobs::Into { sources, destination } => {
                self.add_into(sources, &destination, known, places).await?;
                None
            }
            Jobs::Pairs(coming) => {
                let plan = self.shared.options.plan.clone();
                Some(Coming::Pairs(Pairs { coming, plan, taken: Taken::default() }))
            }
            Jobs::Files(files) => Some(Coming::Files(files)),
        };
        self.plan(coming).await
    }

    /// Asks as much as may be asked, and takes answers and further roots as they come.
    async fn plan(&mut self, mut coming: Option<Coming>) -> Result<(), Fault> {
        let mut ended = Ok(());
        loop {
            if coming.is_none() {
                self.planner.no_more_roots();
            }
            while let Some(query) = self.planner.poll_query() {
                self.ask(query);
            }
            // A receiver that is gone has ended the run already.
            let Ok(()) = self.drain().await else { return ended };
            if self.planner.is_finished() {
                return ended;
            }
            tokio::select! {
                Some(found) = Coming::next(&mut coming), if self.planner.wants_root() => match found {
                    Some(Ok(FoundFile { source, destination, found: Ok(object), demand })) => {
                        let existing = demand.replace.then_some(Existing::Absent);
                        self.add_source(&source, &destination, (object, existing), demand);
                    }
                    Some(Ok(FoundFile { source, destination, found: Err(fault), .. })) => {
                        self.planner.refuse_root(Root::new(source.path, destination.path), fault);
                    }
                    Some(Err(fault)) => (coming, ended) = (None, Err(fault)),
                    None => coming = None,
                },
                answer = next_answer(&mut self.desks, &self.planner) => self.take(answer?),
            }
        }
    }

    async fn add_into(
        &mut self,
        sources: Vec<Place>,
        destination: &Place,
        known: Known,
        places: Option<Places>,
    ) -> Result<(), Fault> {
        let existing = match known.destination {
            Some(existing) => existing,
            None => {
                let end = self.end(Role::Destination, destination.target.as_ref()).await?;
                let existing = end.stat(&destination.path, false).await;
                existing.map_err(|fault| fault.side_if_unknown(Side::Destination))?
            }
        };
        let is_directory = matches!(&existing, Some(object) if object.kind == ObjectKind::Directory);
        let mut expanded = Vec::new();
        for source in sources {
            self.expand(source, destination, &mut expanded).await?;
        }
        if expanded.len() > 1 && !is_directory {
            return Err(not_a_directory(destination, existing.is_some()));
        }
        if destination.path.ends_with(b"/") && !is_directory && !self.shared.options.plan.recursive {
            return Err(not_a_directory(destination, existing.is_some()));
        }
        let single = expanded.len() == 1;
        let within = match places {
            Some(places) => self.keep_tally(&expanded, destination, is_directory, places, known.tallies).await,
            None => is_directory,
        };
        let copies = self.copies(expanded, destination, within)?;
        for (source, copy) in copies {
            let existing = (!within).then(|| existing.clone().map_or(Existing::Absent, Existing::Present));
            let object = known.source.clone().filter(|_| single);
            // Nothing but a directory can have a name that ends in a slash.
            let recursive = (destination.path.ends_with(b"/") && !is_directory).then_some(true);
            self.add_source(&source, &copy, (object, existing), Demand { recursive, ..Demand::default() });
        }
        Ok(())
    }

    /// The sources with the places of their copies.
    ///
    /// # Errors
    /// One would be copied onto or into itself, or onto the copy of another: nothing is begun.
    fn copies(&self, sources: Vec<Place>, destination: &Place, within: bool) -> Result<Vec<(Place, Place)>, Fault> {
        let mut taken = Taken::default();
        let place = |source: Place| {
            let name = base_name(&source.path);
            let path = if within { join(&destination.path, name) } else { destination.path.clone() };
            let copy = destination.with_path(path);
            overlap::refuse(&source, &copy, &self.shared.options.plan)?;
            // What is in several directories may go together into one.
            if !name.is_empty() && !taken.take(&copy) {
                let text = format!("{} and another source would both be this", source.path.escape_ascii());
                return Err(is_taken(&copy, text));
            }
            Ok((source, copy))
        };
        sources.into_iter().map(place).collect()
    }

    /// A session before there are any questions.
    async fn end(&mut self, role: Role, target: Option<&Target>) -> Result<&mut End, Fault> {
        let same = |session: &Session| session.role == role && session.target.as_ref() == target;
        let found = self.sessions.iter().position(|session| same(session) && session.listed.is_none());
        let index = match found {
            Some(index) => index,
            None => {
                let (end, _) = self.shared.open_lister(target, role, &[]).await?;
                self.sessions.push(Session { role, target: target.cloned(), end, listed: None });
                self.sessions.len() - 1
            }
        };
        Ok(&mut self.sessions[index].end)
    }

    async fn expand(&mut self, source: Place, destination: &Place, expanded: &mut Vec<Place>) -> Result<(), Fault> {
        if source.target.is_none() || !wildcard::has_wildcards(&source.path) {
            expanded.push(source);
            return Ok(());
        }
        let end = self.end(Role::Source, source.target.as_ref()).await?;
        let matches = wildcard::expand(end, &source.path).await?;
        expanded.extend(matches.paths.into_iter().map(|path| source.with_path(path)));
        for (path, fault) in matches.failed {
            self.planner.refuse_root(Root::new(path, destination.path.clone()), fault);
        }
        Ok(())
    }

    fn add_source(
        &mut self,
        source: &Place,
        destination: &Place,
        (object, existing): (Option<Object>, Option<Existing>),
        demand: Demand,
    ) {
        let is_other = |object: &Object| object.kind == ObjectKind::Other;
        let device = object.as_ref().is_some_and(is_other)
            || matches!(&existing, Some(Existing::Present(object)) if is_other(object));
        let mut root = Root::new(source.path.clone(), destination.path.clone());
        root.range = self
            .shared
            .options
            .range
            .map(|(offset, length)| offset..length.map_or(u64::MAX, |length| offset.saturating_add(length)));
        root.object = object.map(|object| as_file(object, &source.path));
        root.existing = existing.unwrap_or(Existing::Unknown);
        (root.recursive, root.links) = (demand.recursive, demand.links);
        let id = self.planner.add_root(root);
        self.shared.add_root(id, &source.path);
        if let Some(expected) = demand.expected {
            self.shared.expect(id, expected);
        }
        let route = Route { source: source.target.clone(), destination: destination.target.clone() };
        self.shared.add_route(id, Rc::new(route), device);
    }

    /// Hands a question to the sessions of its places.
    fn ask(&mut self, query: Query) {
        match query {
            Query::Stat { query, root, source, destination, follow } => {
                let route = self.shared.route(root);
                let missing = u32::from(source.is_some()) + u32::from(destination.is_some());
                let asked = |path| Question { query, path, links: !follow, entries: false };
                let stat = Stat {
                    root,
                    source: source.clone(),
                    missing,
                    device: false,
                    // Nobody asked; the planner ignores it.
                    found_source: Err(not_found(b"")),
                    found_destination: Ok(None),
                };
                self.stats.insert(query, stat);
                if let Some(path) = source {
                    self.desk(Role::Source, route.source.clone()).ask(asked(path));
                }
                if let Some(path) = destination {
                    self.desk(Role::Destination, route.destination.clone()).ask(asked(path));
                }
            }
            Query::List { query, root, source, destination } => {
                let route = self.shared.route(root);
                let plan = &self.shared.options.plan;
                let links = plan.links != Links::Follow;
                // What lies behind a link at the destination is no part of a mirror.
                let there = links || plan.mirror;
                let asked = |path, links| Question { query, path, links, entries: true };
                if let Some(path) = destination {
                    self.desk(Role::Destination, route.destination.clone()).ask(asked(path, there));
                }
                self.desk(Role::Source, route.source.clone()).ask(asked(source, links));
            }
        }
    }

    /// Where a place is asked about.
    fn desk(&mut self, role: Role, target: Option<Target>) -> &mut Desk {
        let index = self.desks.iter().position(|desk| desk.role == role && desk.target == target);
        let index = index.unwrap_or_else(|| {
            let found = self.sessions.iter().position(|session| session.role == role && session.target == target);
            let session = found.map(|index| self.sessions.swap_remove(index));
            self.desks.push(Desk::new(self.shared.clone(), role, target, session));
            self.desks.len() - 1
        });
        &mut self.desks[index]
    }

    fn take(&mut self, (role, query, answer): (Role, QueryId, Answer)) {
        match (answer, role) {
            (Answer::Entries(objects), Role::Source) => {
                objects.into_iter().for_each(|object| self.planner.handle(PlanInput::Source { query, object }));
            }
            (Answer::Entries(objects), Role::Destination) => {
                objects.into_iter().for_each(|object| self.planner.handle(PlanInput::Destination { query, object }));
            }
            (Answer::Listed(Ok(())), Role::Source) => self.planner.handle(PlanInput::SourceEnd { query }),
            (Answer::Listed(Ok(())), Role::Destination) => self.planner.handle(PlanInput::DestinationEnd { query }),
            (Answer::Listed(Err(fault)), Role::Source) => {
                self.planner.handle(PlanInput::SourceFailed { query, fault });
            }
            (Answer::Listed(Err(fault)), Role::Destination) => {
                self.planner.handle(PlanInput::DestinationFailed { query, fault });
            }
            (Answer::Described(found), role) => self.described(query, role, found),
        }
    }

    fn described(&mut self, query: QueryId, role: Role, found: Result<Option<Object>, Fault>) {
        let Some(stat) = self.stats.get_mut(&query) else { return };
        stat.device |= matches!(&found, Ok(Some(object)) if object.kind == ObjectKind::Other);
        stat.missing -= 1;
        match role {
            Role::Source => {
                let path = stat.source.as_deref().unwrap_or_default();
                let object = found.and_then(|object| object.ok_or_else(|| not_found(path)));
                stat.found_source = object.map(|object| as_file(object, path));
            }
            Role::Destination => stat.found_destination = found,
        }
        if stat.missing == 0
            && let Some(stat) = self.stats.remove(&query)
        {
            let route = self.shared.route(stat.root);
            self.shared.add_route(stat.root, route, stat.device);
            let (source, destination) = (stat.found_source, stat.found_destination);
            self.planner.handle(PlanInput::Stat { query, source, destination });
        }
    }

    async fn drain(&mut self) -> Result<(), Gone> {
        self.filtered.set(self.planner.filtered());
        while let Some(action) = self.planner.poll_action() {
            if let Some(item) = action.file() {
                self.meet(item.root).await;
            }
            if let Some(action) = self.sieve.sift(action).await {
                self.actions.send(action).await.map_err(|_| Gone)?;
            }
        }
        while let Some(extra) = self.planner.poll_extra() {
            if let Some(extras) = &self.extras {
                extras.send(extra).await.map_err(|_| Gone)?;
            }
        }
        Ok(())
    }

    /// The first file between two ends: how large files move there is decided next.
    async fn meet(&mut self, root: RootId) {
        let route = self.shared.route(root);
        if self.shared.options.dry_run || self.met.contains(&route) {
            return;
        }
        self.shared.learn_rules(&route).await;
        self.met.push(route);
    }
}

impl Coming {
    /// The next root; the outer `None` at once when all have come.
    async fn next(coming: &mut Option<Self>) -> Option<Option<Result<FoundFile, Fault>>> {
        Some(match coming.as_mut()? {
            Self::Pairs(pairs) => {
                let pair = pairs.coming.recv().await;
                pair.map(|pair| {
                    Ok(match pair {
                        Ok((source, destination)) => pairs.copied_to(source, destination),
                        Err(fault) => unreadable(fault),
                    })
                })
            }
            Self::Files(files) => files.recv().await,
        })
    }
}

impl Pairs {
    /// A pair as it is copied: behind a slash at the end comes the name of the source. One that would be copied onto or into
    /// itself, or onto the copy of an earlier one, has failed.
    fn copied_to(&mut self, source: Place, destination: Place) -> FoundFile {
        let destination = match destination.path.ends_with(b"/") {
            true => destination.with_path(join(&destination.path, base_name(&source.path))),
            false => destination,
        };
        let found = match overlap::refuse(&source, &destination, &self.plan) {
            Ok(()) if !self.taken.take(&destination) => {
                Err(is_taken(&destination, "an earlier line of the list has this destination".to_owned()))
            }
            result => result.map(|()| None),
        };
        FoundFile { source, destination, found, demand: Demand::default() }
    }
}

/// The line of a list at which that has ended: what was listed before is copied, and this counts as an item that failed.
fn unreadable(fault: Fault) -> FoundFile {
    let line = Place { target: None, path: fault.subject.clone().into_bytes() };
    FoundFile { source: line.clone(), destination: line, found: Err(fault), demand: Demand::default() }
}

/// The next answer of any session that there is room for.
async fn next_answer(desks: &mut [Desk], planner: &Planner) -> Result<(Role, QueryId, Answer), Fault> {
    poll_fn(|context| {
        for desk in &mut *desks {
            let side = match desk.role {
                Role::Source => ListedSide::Source,
                Role::Destination => ListedSide::Destination,
            };
            match desk.poll(context, |query| planner.has_room(query, side)) {
                Poll::Ready(Some((query, answer))) => return Poll::Ready(Ok((desk.role, query, answer))),
                Poll::Ready(None) => {
                    let fault = Fault::new(FaultCode::Internal, "list").side(Side::Us);
                    return Poll::Ready(Err(fault.detail("a session for listings has ended by itself")));
                }
                Poll::Pending => {}
            }
        }
        Poll::Pending
    })
    .await
}

/// A device named by the user is read like a file of unknown size.
fn as_file(mut object: Object, path: &[u8]) -> Object {
    if object.kind == ObjectKind::Other {
        tracing::debug!(path = %String::from_utf8_lossy(path), "reading a device");
        object.kind = ObjectKind::File;
        object.size = None;
    }
    object
}

/// The last component; empty for the root, whose contents are meant then.
pub fn base_name(path: &[u8]) -> &[u8] {
    let mut parts = path.split(|&byte| byte == b'/').filter(|part| !part.is_empty());
    let name = parts.next_back().unwrap_or(b"");
    // A home is written so, and nothing before it; elsewhere it is a name like others.
    let is_home = name == b"~" && parts.next().is_none();
    if name == b"." || name == b".." || is_home { b"" } else { name }
}

fn not_found(path: &[u8]) -> Fault {
    Fault::new(FaultCode::NotFound, "describe").on_path(path).side(Side::Source)
}

/// The fault of a source that would be written over another one's copy.
fn is_taken(copy: &Place, text: String) -> Fault {
    Fault::new(FaultCode::InvalidArgument, "copy").on_path(&copy.path).side(Side::Us).detail(text)
}

fn not_a_directory(place: &Place, exists: bool) -> Fault {
    let (code, detail) = if exists {
        (FaultCode::NotADirectory, "several sources need a directory to go into")
    } else {
        (FaultCode::NotFound, "several sources, or a name that ends in a slash, need an existing directory")
    };
    Fault::new(code, "copy into").on_path(&place.path).side(Side::Destination).detail(detail)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_a_copy_gets_is_the_last_component() {
        assert_eq!(base_name(b"/a/b"), b"b");
        assert_eq!(base_name(b"/a/b//"), b"b");
        assert_eq!(base_name(b"c"), b"c");
        assert_eq!(base_name(b"/"), b"");
        assert_eq!(base_name(b"./"), b"");
        assert_eq!([&b"~"[..], b"/~/", b"/a/~", b"~/~"].map(base_name), [&b""[..], b"", b"~", b"~"]);
    }
}
