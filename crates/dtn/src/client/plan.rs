//! Feeds the planner: roots from the user's words, listings from both ends.

use std::collections::HashMap;
use std::rc::Rc;

use tokio::sync::mpsc::Sender;
use whimbrel_engine::listing::{Object, ObjectKind, join};
use whimbrel_engine::plan::{Action, Existing, Links, PlanInput, Planner, Query, RootId};
use whimbrel_engine::plan::{QueryId, Root};
use whimbrel_engine::{Fault, FaultCode, Side};

use super::end::End;
use super::options::{FoundFile, Jobs, Place};
use super::pair::Role;
use super::shared::{Route, Shared};
use super::target::Target;
use super::wildcard;

/// What is known about the ends of a copy before planning starts.
#[derive(Debug, Default)]
pub struct Known {
    /// The first source.
    pub source: Option<Object>,
    /// The destination; `Some(None)`: nothing is there.
    pub destination: Option<Option<Object>>,
}

/// Runs a planner and passes its actions on.
pub struct Planning {
    shared: Rc<Shared>,
    planner: Planner,
    actions: Sender<Action>,
    listers: HashMap<(Role, Option<Target>), End>,
}

/// The receiver of actions is gone: the run is over.
struct Gone;

impl Planning {
    /// A planner without roots.
    pub fn new(shared: Rc<Shared>, actions: Sender<Action>) -> Self {
        let planner = Planner::new(shared.options.plan.clone());
        Self { shared, planner, actions, listers: HashMap::new() }
    }

    /// Plans everything, then drops the sender of actions.
    ///
    /// # Errors
    /// What makes the whole command fail: a missing destination directory, an unreadable list.
    pub async fn run(mut self, jobs: Jobs, known: Known) -> Result<(), Fault> {
        match jobs {
            Jobs::Into { sources, destination } => self.add_into(sources, &destination, known).await?,
            Jobs::Pairs(mut pairs) => {
                while let Some(pair) = pairs.recv().await {
                    let (source, destination) = pair?;
                    let target = if destination.path.ends_with(b"/") {
                        destination.with_path(join(&destination.path, base_name(&source.path)))
                    } else {
                        destination
                    };
                    self.add_source(&source, &target, None, None).await;
                    if self.pump().await.is_err() {
                        return Ok(());
                    }
                }
            }
            Jobs::Files(mut files) => {
                while let Some(file) = files.recv().await {
                    let FoundFile { source, destination, object } = file?;
                    self.add_source(&source, &destination, object, None).await;
                    if self.pump().await.is_err() {
                        return Ok(());
                    }
                }
            }
        }
        self.planner.no_more_roots();
        // A receiver that is gone has ended the run already.
        let _ = self.pump().await;
        Ok(())
    }

    async fn add_into(&mut self, sources: Vec<Place>, destination: &Place, known: Known) -> Result<(), Fault> {
        let existing = match known.destination {
            Some(existing) => existing,
            None => self.stat(Role::Destination, destination, false).await?,
        };
        let is_directory = matches!(&existing, Some(object) if object.kind == ObjectKind::Directory);
        let mut expanded = Vec::new();
        for source in sources {
            self.expand(source, &mut expanded).await?;
        }
        if expanded.len() > 1 && !is_directory {
            return Err(not_a_directory(destination, existing.is_some()));
        }
        if destination.path.ends_with(b"/") && !is_directory && !self.shared.options.plan.recursive {
            return Err(not_a_directory(destination, existing.is_some()));
        }
        let single = expanded.len() == 1;
        for source in expanded {
            let path =
                if is_directory { join(&destination.path, base_name(&source.path)) } else { destination.path.clone() };
            let existing = (!is_directory).then(|| existing.clone().map_or(Existing::Absent, Existing::Present));
            let object = known.source.clone().filter(|_| single);
            self.add_source(&source, &destination.with_path(path), object, existing).await;
        }
        Ok(())
    }

    async fn expand(&mut self, source: Place, expanded: &mut Vec<Place>) -> Result<(), Fault> {
        if source.target.is_none() || !wildcard::has_wildcards(&source.path) {
            expanded.push(source);
            return Ok(());
        }
        let lister = self.lister(Role::Source, source.target.as_ref()).await?;
        let paths = wildcard::expand(lister, &source.path).await?;
        expanded.extend(paths.into_iter().map(|path| source.with_path(path)));
        Ok(())
    }

    async fn add_source(
        &mut self,
        source: &Place,
        destination: &Place,
        object: Option<Object>,
        existing: Option<Existing>,
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
        let id = self.planner.add_root(root);
        self.shared.add_root(id, &source.path);
        let route = Route { source: source.target.clone(), destination: destination.target.clone() };
        self.shared.add_route(id, route, device);
    }

    /// Answers questions and passes actions on until the planner has nothing more to ask.
    async fn pump(&mut self) -> Result<(), Gone> {
        self.drain().await?;
        while let Some(query) = self.planner.poll_query() {
            match query {
                Query::Stat { query, root, source, destination, follow } => {
                    self.answer_stat(query, root, source, destination, follow).await;
                }
                Query::List { query, root, source, destination } => {
                    self.answer_list(query, root, &source, destination.as_deref()).await?;
                }
            }
            self.drain().await?;
        }
        Ok(())
    }

    async fn drain(&mut self) -> Result<(), Gone> {
        drain(&mut self.planner, &self.actions).await
    }

    async fn answer_stat(
        &mut self,
        query: QueryId,
        root: RootId,
        source: Option<Vec<u8>>,
        destination: Option<Vec<u8>>,
        follow: bool,
    ) {
        let route = self.shared.route(root);
        let mut device = false;
        let source = match source {
            Some(path) => {
                let place = Place { target: route.source.clone(), path };
                let found = self.stat(Role::Source, &place, !follow).await;
                found.and_then(|object| object.ok_or_else(|| missing(&place.path))).map(|object| {
                    device |= object.kind == ObjectKind::Other;
                    as_file(object, &place.path)
                })
            }
            // Nobody asked; the planner ignores it.
            None => Err(missing(b"")),
        };
        let destination = match destination {
            Some(path) => {
                let place = Place { target: route.destination.clone(), path };
                self.stat(Role::Destination, &place, !follow).await
            }
            None => Ok(None),
        };
        device |= matches!(&destination, Ok(Some(object)) if object.kind == ObjectKind::Other);
        self.shared.add_route(root, route, device);
        self.planner.handle(PlanInput::Stat { query, source, destination });
    }

    async fn answer_list(
        &mut self,
        query: QueryId,
        root: RootId,
        source: &[u8],
        destination: Option<&[u8]>,
    ) -> Result<(), Gone> {
        let route = self.shared.route(root);
        if let Some(path) = destination {
            let place = Place { target: route.destination.clone(), path: path.to_vec() };
            let end = match self.list(Role::Destination, &place, query).await {
                Ok(()) => PlanInput::DestinationEnd { query },
                Err(fault) => PlanInput::DestinationFailed { query, fault },
            };
            self.planner.handle(end);
            self.drain().await?;
        }
        let place = Place { target: route.source.clone(), path: source.to_vec() };
        let end = match self.list(Role::Source, &place, query).await {
            Ok(()) => PlanInput::SourceEnd { query },
            Err(fault) => PlanInput::SourceFailed { query, fault },
        };
        self.planner.handle(end);
        self.drain().await
    }

    async fn list(&mut self, role: Role, place: &Place, query: QueryId) -> Result<(), Fault> {
        let links = self.shared.options.plan.links != Links::Follow;
        self.lister(role, place.target.as_ref()).await?;
        let key = (role, place.target.clone());
        let mut end = self.listers.remove(&key).expect("it was opened just now");
        let (planner, actions) = (&mut self.planner, &self.actions);
        let result = end
            .list(&place.path, links, async |objects| {
                for (object, _) in objects {
                    planner.handle(match role {
                        Role::Source => PlanInput::Source { query, object },
                        Role::Destination => PlanInput::Destination { query, object },
                    });
                }
                drain(planner, actions).await.map_err(|Gone| Fault::new(FaultCode::Cancelled, "list"))
            })
            .await;
        if result.as_ref().err().is_none_or(|fault| !broken(fault)) {
            self.listers.insert(key, end);
        }
        result.map_err(|fault| fault.side_if_unknown(role.side()))
    }

    async fn stat(&mut self, role: Role, place: &Place, links: bool) -> Result<Option<Object>, Fault> {
        let used = self.listers.contains_key(&(role, place.target.clone()));
        match self.stat_once(role, place, links).await {
            // A server may only have closed a session that was idle while no source came.
            Err(fault) if used && broken(&fault) => self.stat_once(role, place, links).await,
            result => result,
        }
    }

    async fn stat_once(&mut self, role: Role, place: &Place, links: bool) -> Result<Option<Object>, Fault> {
        let lister = self.lister(role, place.target.as_ref()).await?;
        let result = lister.stat(&place.path, links).await;
        if result.as_ref().err().is_some_and(broken) {
            self.listers.remove(&(role, place.target.clone()));
        }
        result.map_err(|fault| fault.side_if_unknown(role.side()))
    }

    async fn lister(&mut self, role: Role, target: Option<&Target>) -> Result<&mut End, Fault> {
        let key = (role, target.cloned());
        if !self.listers.contains_key(&key) {
            let end = self.shared.open_lister(target, role).await?;
            self.listers.insert(key.clone(), end);
        }
        Ok(self.listers.get_mut(&key).expect("it was inserted above"))
    }
}

async fn drain(planner: &mut Planner, actions: &Sender<Action>) -> Result<(), Gone> {
    while let Some(action) = planner.poll_action() {
        actions.send(action).await.map_err(|_| Gone)?;
    }
    Ok(())
}

fn broken(fault: &Fault) -> bool {
    matches!(
        fault.code,
        FaultCode::ConnectionLost | FaultCode::TimedOut | FaultCode::ServerBusy | FaultCode::PeerMisbehaved
    )
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
    let name = path.split(|&byte| byte == b'/').rfind(|part| !part.is_empty()).unwrap_or(b"");
    if name == b"." || name == b".." || name == b"~" { b"" } else { name }
}

fn missing(path: &[u8]) -> Fault {
    Fault::new(FaultCode::NotFound, "describe").on_path(path).side(Side::Source)
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
    }
}
