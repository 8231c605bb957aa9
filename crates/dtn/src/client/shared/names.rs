//! Names of unfinished files at servers that keep none, and what is known of the directories they are in.

use std::rc::Rc;

use whimbrel_engine::events::Event;
use whimbrel_engine::plan::{Item, ItemId};
use whimbrel_engine::{Fault, RangeSet};

use super::{Route, Shared};
use crate::client::options::Verify;
use crate::client::temporary::{self, directory_of};

/// Most directories of its own making that a copy remembers.
const NEW_DIRECTORIES: usize = 4096;

/// Most directories in which a copy looks for what was left of whole files.
const TIDIED: usize = 1000;

impl Shared {
    /// The name of a file that moves as a whole until it has its own.
    pub fn temporary_of_whole(&self, item: &Item) -> Vec<u8> {
        temporary::of_whole(&item.destination, self.run.of_file(item.id.0))
    }

    /// The same of a file that moves in chunks.
    pub fn temporary_of_chunks(&self, item: &Item) -> Vec<u8> {
        temporary::of_chunks(&item.destination, self.run.of_file(item.id.0), &temporary::version(item))
    }

    /// A whole file is about to be stored under such a name: what is left of it must be removed.
    pub fn whole_begins(&self, item: &Item, temporary: &[u8]) {
        let route = self.route(item.root);
        let Some(target) = route.destination.clone() else { return };
        self.wholes.borrow_mut().insert(item.id, (target.clone(), temporary.to_vec()));
        let place = (target, directory_of(&item.destination).to_vec());
        let mut looked = self.looked_in.borrow_mut();
        if looked.len() < TIDIED && !self.is_in_new_directory(item) && looked.insert(place.clone()) {
            self.untidy.borrow_mut().push(place);
        }
    }

    /// Its temporary name may be gone from now on: no attempt goes on with what was stored under it.
    pub fn renames_whole(&self, item: ItemId) {
        self.renamed.borrow_mut().insert(item);
    }

    /// What earlier attempts have stored of it, as far as that is there still, before the next one begins.
    ///
    /// A host that was started anew has forgotten what it had not written out, and the file may be as long as before. Where a
    /// proof follows it would be found; where none is asked for, nothing of it counts.
    pub fn still_there(&self, item: ItemId, received: RangeSet) -> RangeSet {
        if self.options.verify == Verify::Never {
            let now = self.hosts.restarts();
            let mut begun = self.begun.borrow_mut();
            let since = begun.entry(item).or_insert(now);
            if received.is_empty() {
                *since = now;
            } else if *since != now {
                self.renamed.borrow_mut().insert(item);
            }
        }
        if self.renamed.borrow().contains(&item) { RangeSet::new() } else { received }
    }

    /// It has its final name.
    pub fn whole_named(&self, item: ItemId) {
        self.begun.borrow_mut().remove(&item);
        self.renamed.borrow_mut().remove(&item);
        self.wholes.borrow_mut().remove(&item);
    }

    /// It has failed: nobody goes on with it.
    pub(super) fn whole_ended(&self, item: ItemId) {
        self.begun.borrow_mut().remove(&item);
        self.renamed.borrow_mut().remove(&item);
        let left = self.wholes.borrow_mut().remove(&item);
        if let Some((target, name)) = left {
            self.sidecars.discard(&self.dialling(), target, name);
        }
    }

    /// An unfinished copy in chunks is given up for a whole one: what sessions may still store there is removed at the end.
    pub fn give_up(&self, item: &Item, temporary: &[u8]) {
        let target = self.route(item.root).destination.clone();
        self.given_up.borrow_mut().extend(target.map(|target| (target, temporary.to_vec())));
    }

    /// No session is at work any more: removes what was given up, and, where it costs no session, what others have left.
    pub fn clean(&self) {
        for (target, name) in self.given_up.take() {
            self.sidecars.discard(&self.dialling(), target, name);
        }
        if self.sidecars.is_at_work() {
            self.tidy();
        }
    }

    /// Has the directories of whole files looked through for what runs that are no more have left. Called after a while: a
    /// short run opens no session for that.
    pub fn tidy(&self) {
        for (target, directory) in self.untidy.take() {
            self.sidecars.tidy(&self.dialling(), target, directory);
        }
    }

    /// Whether unfinished files may have temporary names beside this one.
    pub fn takes_temporary(&self, route: &Rc<Route>, path: &[u8]) -> bool {
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

    /// Whether there is a device, a pipe or a link that is written to.
    pub fn is_written_to(&self, route: &Rc<Route>, path: &[u8]) -> bool {
        self.plain_names.borrow().contains(&(route.clone(), path.to_vec()))
    }

    /// The destination refuses temporary names where this file is to be: from now on files have their final names there while
    /// they are written, which the user is told.
    pub fn refuse_temporary(&self, route: &Rc<Route>, path: &[u8], fault: Fault) {
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
}

#[cfg(test)]
mod tests {
    use whimbrel_engine::plan::PlanOptions;

    use super::*;
    use crate::client::options::CopyOptions;
    use crate::client::pair::DataWish;

    #[test]
    fn what_nothing_proves_does_not_outlive_a_restart_of_its_host() {
        let arrived = || RangeSet::from(0..10);
        for (verify, is_kept) in [(Verify::Never, false), (Verify::WhenPossible, true)] {
            let options = CopyOptions { verify, ..CopyOptions::of(PlanOptions::default()) };
            let shared = Shared::new(options, DataWish::plain(), Rc::default());
            let (early, late) = (ItemId(1), ItemId(2));
            let start = |start: &str| shared.hosts.saw_at("server", "host", start);
            start("first");
            assert!(shared.still_there(early, RangeSet::new()).is_empty());
            assert_eq!(shared.still_there(early, arrived()), arrived());
            start("second");
            assert_eq!(!shared.still_there(early, arrived()).is_empty(), is_kept);
            assert_eq!(!shared.still_there(early, arrived()).is_empty(), is_kept, "the transfer adds to what it had");
            assert!(shared.still_there(late, RangeSet::new()).is_empty());
            assert_eq!(shared.still_there(late, arrived()), arrived(), "it came afterwards");
        }
    }
}
