//! Going on where an earlier run of the same command was cut short.

use whimbrel_engine::events::Event;
use whimbrel_engine::listing::{Object, ObjectKind};
use whimbrel_engine::tally::Tally;
use whimbrel_proto::op::Op;

use super::{Planning, Sieve};
use crate::client::data;
use crate::client::end::End;
use crate::client::options::Place;
use crate::client::pair::Role;
use crate::client::tally::{Before, Found, Places};

impl<S: Sieve> Planning<S> {
    /// Finds what an earlier run has left, and begins to keep what this one does. Returns whether the sources go into the
    /// destination, and not under its name.
    pub(super) async fn keep_tally(
        &mut self,
        sources: &[Place],
        destination: &Place,
        is_directory: bool,
        places: Places,
        known: Option<[Option<Object>; 2]>,
    ) -> bool {
        let mut torn = Vec::new();
        if !is_directory && matches!(&known, Some([Some(_), _])) {
            // What it tells of is gone.
            torn.extend(places.beside.clone());
        }
        let found = if is_directory { self.find_tally(&places, known, &mut torn).await } else { None };
        let of_made = found.as_ref().is_some_and(|found| Some(&found.place) == places.beside.as_ref());
        let within = is_directory && !of_made;
        let place = match (&found, within) {
            (Some(found), _) => Some(found.place.clone()),
            (None, true) => places.inside.clone(),
            (None, false) => places.beside.clone(),
        };
        if let Some(place) = place.filter(|_| !self.shared.options.dry_run) {
            let is_there = found.is_some() || torn.contains(&place);
            self.shared.tally.begin(place, &places, &destination.path, found.as_ref(), is_there);
        }
        if let Some(found) = found.filter(|found| places.tells_files() && found.tally.files() > 0) {
            let (files, compares) = (found.tally.files() as u64, self.can_compare(sources, destination).await);
            self.shared.tell(Event::GoesOn { destination: destination.path.clone(), files });
            self.planner.go_on(Box::new(Before::new(found, &destination.path, compares)));
        }
        within
    }

    /// What an earlier run has left; `torn`: where lies what tells nothing, as a crash of the destination leaves a name without content.
    async fn find_tally(
        &mut self,
        places: &Places,
        known: Option<[Option<Object>; 2]>,
        torn: &mut Vec<Place>,
    ) -> Option<Found> {
        let [beside, inside] = match known {
            Some(objects) => objects.map(Some),
            None => [None, None],
        };
        for (place, known) in [(places.beside.as_ref(), beside), (places.inside.as_ref(), inside)] {
            let Some(place) = place else { continue };
            let object = match known {
                Some(object) => object,
                None => {
                    let end = self.end(Role::Destination, place.target.as_ref()).await.ok()?;
                    // Whoever cannot tell what is there has kept nothing.
                    end.stat(&place.path, false).await.ok().flatten()
                }
            };
            let written = object.filter(|object| object.kind == ObjectKind::File).and_then(|object| object.modified);
            let Some(written) = written else { continue };
            let end = self.end(Role::Destination, place.target.as_ref()).await.ok()?;
            let Some(bytes) = read(end, &place.path).await else { continue };
            let tally = Tally::decode(&bytes, &places.copy);
            if tally.sound > 0 {
                // Only its owner may do this.
                let own = end.run(Op::SetMode { path: place.path.clone(), mode: 0o600 }).await.is_ok();
                return Some(Found { place: place.clone(), tally, written, own });
            }
            torn.push(place.clone());
        }
        None
    }

    /// Whether checksums of both ends can be compared.
    async fn can_compare(&mut self, sources: &[Place], destination: &Place) -> bool {
        let mut common: Option<Vec<String>> = None;
        for (role, place) in
            sources.iter().map(|source| (Role::Source, source)).chain([(Role::Destination, destination)])
        {
            let Ok(end) = self.end(role, place.target.as_ref()).await else { return false };
            let told = end.checksums();
            common = Some(match common {
                Some(common) => common.into_iter().filter(|name| told.contains(name)).collect(),
                None => told,
            });
        }
        common.is_some_and(|common| !common.is_empty())
    }
}

/// The bytes of a tally; `None`: they cannot be had, and nothing is known.
async fn read(end: &mut End, path: &[u8]) -> Option<Vec<u8>> {
    let read = match end {
        End::Remote(remote) => data::fetch_file(remote, path).await,
        End::Local(_) => crate::client::tally::read_here(path).await,
    };
    read.inspect_err(|fault| tracing::info!(%fault, "what an earlier run has left cannot be read")).ok()
}
