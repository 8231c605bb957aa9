//! What a task would do, counted from its plan as the task's own counters would count it.

use std::collections::{BTreeMap, HashSet};

use serde::{Deserialize, Serialize};

use super::{Action, DirectoryId, Item, RootId, SkipReason};
use crate::auto::Line;
use crate::fault::{Fault, FaultCode};
use crate::listing::path_text;
use crate::task::ItemKind;

/// What is foretold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Aim {
    /// A transfer.
    Transfer {
        /// Sources are deleted once their copies are proven.
        moves: bool,
    },
    /// A deletion.
    Delete {
        /// What is not there counts as deleted.
        ignore_missing: bool,
    },
}

/// Things of each kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Things {
    /// Files.
    pub files: u64,
    /// Directories.
    pub directories: u64,
    /// Symbolic links.
    pub symlinks: u64,
}

/// Why a plan was not looked at to its end: all its numbers are lower bounds then.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cut {
    /// As many entries were counted as may be.
    Entries,
    /// The time was up.
    Time,
    /// Only the first of the things that the user named were looked at.
    Named,
}

/// What a task would do.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Forecast {
    /// Why there may be more; `None`: this is all.
    pub cut: Option<Cut>,
    /// What the task would find, as its counters count it; of a deletion this is what it deletes.
    pub found: Things,
    /// Files to copy.
    pub files_to_copy: u64,
    /// Bytes of them, where their size is known.
    pub bytes_to_copy: u64,
    /// Files to copy whose size is not known.
    pub unknown_sizes: u64,
    /// Files whose contents decide whether they are copied.
    pub files_to_compare: u64,
    /// Bytes of them.
    pub bytes_to_compare: u64,
    /// Files left as they are at the destination, judged by the sync level.
    pub files_up_to_date: u64,
    /// Links left as they are.
    pub symlinks_up_to_date: u64,
    /// Directories to make, some of which may stand where nobody looked for them (sync level none).
    pub directories_to_make: u64,
    /// Links, devices, pipes and sockets that are not copied.
    pub left_out: u64,
    /// Entries of directories that the filter leaves out, each directory as one.
    pub filtered: u64,
    /// What would be deleted at the destination because the source does not have it.
    pub extra: Things,
    /// Named directories of which nothing would be deleted at the destination, because something in them cannot be read.
    pub extra_kept: u64,
    /// Sources that would be deleted once their copies are proven; directories, which go when they are empty, aside.
    pub sources_to_delete: u64,
    /// Things that cannot be read, or cannot be written where they go.
    pub failing: u64,
    /// The first steps, in their order.
    pub steps: Vec<Step>,
    /// How it would begin: sessions, channels and parts, each with its reason; nothing for deletions.
    pub choices: Vec<Line>,
}

/// What would be done with one thing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StepKind {
    /// A file is copied.
    Copy,
    /// A file is compared, and copied where it differs.
    Compare,
    /// It is left as it is at the destination.
    Keep,
    /// A directory is made.
    MakeDirectory,
    /// A link is made.
    MakeLink,
    /// It is not copied.
    LeaveOut,
    /// It is deleted.
    Delete,
    /// It is deleted at the destination because the source does not have it.
    DeleteExtra,
    /// It cannot be done.
    Fail,
}

/// One step of a forecast.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Step {
    /// What is done.
    pub step: StepKind,
    /// What it is done with.
    pub kind: ItemKind,
    /// Path at the source's server, or the path deleted; empty for what only the destination has.
    #[serde(with = "path_text")]
    pub source: Vec<u8>,
    /// Path at the destination's server; empty for deletions.
    #[serde(with = "path_text")]
    pub destination: Vec<u8>,
    /// Bytes of a file, when known.
    pub size: Option<u64>,
    /// Why, in words; empty: it goes without saying.
    pub reason: String,
    /// What fails it.
    pub fault: Option<FaultCode>,
}

/// Counts the actions of a plan. Memory is that of the steps kept, and of directories that are under way.
#[derive(Debug)]
pub struct Forecaster {
    aim: Aim,
    most: usize,
    forecast: Forecast,
    seen: u64,
    /// Directories that are to be made, until they end.
    making: HashSet<DirectoryId>,
    /// Roots in which something fails.
    spoilt: HashSet<RootId>,
    extras: BTreeMap<RootId, Things>,
    /// Steps, with the root that an extra one belongs to.
    steps: Vec<(Option<RootId>, Step)>,
}

impl Forecaster {
    /// Nothing counted; of the steps the first `most` are kept.
    pub fn new(aim: Aim, most: usize) -> Self {
        Self {
            aim,
            most,
            forecast: Forecast::default(),
            seen: 0,
            making: HashSet::new(),
            spoilt: HashSet::new(),
            extras: BTreeMap::new(),
            steps: Vec::new(),
        }
    }

    /// Actions taken.
    pub fn seen(&self) -> u64 {
        self.seen
    }

    /// Takes an action of the task's plan.
    pub fn take(&mut self, action: &Action) {
        self.seen += 1;
        match self.aim {
            Aim::Transfer { moves } => self.copied(action, moves),
            Aim::Delete { ignore_missing } => self.deleted(action, ignore_missing),
        }
    }

    /// Takes an action of a plan of what only the destination of a root has.
    pub fn take_extra(&mut self, root: RootId, action: &Action) {
        self.seen += 1;
        let Some(kind) = removed(action) else { return };
        count(self.extras.entry(root).or_default(), kind);
        let path = action.item().source.clone();
        self.keep(
            Some(root),
            Step { source: Vec::new(), destination: path, ..step(StepKind::DeleteExtra, kind, action.item()) },
        );
    }

    /// The whole; the filter left out `filtered` entries.
    pub fn finish(self, filtered: u64, cut: Option<Cut>) -> Forecast {
        let Self { mut forecast, spoilt, extras, steps, .. } = self;
        for (root, things) in extras {
            if spoilt.contains(&root) {
                forecast.extra_kept += 1;
                continue;
            }
            forecast.extra.files += things.files;
            forecast.extra.directories += things.directories;
            forecast.extra.symlinks += things.symlinks;
        }
        let stays = |root: &Option<RootId>| root.is_none_or(|root| !spoilt.contains(&root));
        forecast.steps = steps.into_iter().filter(|(root, _)| stays(root)).map(|(_, step)| step).collect();
        Forecast { filtered, cut, ..forecast }
    }

    fn copied(&mut self, action: &Action, moves: bool) {
        let (forecast, item) = (&mut self.forecast, action.item());
        match action {
            Action::MakeDirectory { directory, .. } => {
                self.making.insert(*directory);
                forecast.found.directories += 1;
                forecast.directories_to_make += 1;
                self.keep(None, step(StepKind::MakeDirectory, ItemKind::Directory, item));
            }
            // A directory that stands has no other action.
            Action::SetAttributes { directory, .. } => {
                forecast.found.directories += u64::from(!self.making.remove(directory));
            }
            Action::Copy { .. } => {
                forecast.found.files += 1;
                forecast.files_to_copy += 1;
                forecast.bytes_to_copy = forecast.bytes_to_copy.saturating_add(item.size.unwrap_or(0));
                forecast.unknown_sizes += u64::from(item.size.is_none());
                forecast.sources_to_delete += u64::from(moves);
                self.keep(None, step(StepKind::Copy, ItemKind::File, item));
            }
            Action::CompareChecksum { .. } | Action::CompareOnly { .. } => {
                forecast.found.files += 1;
                forecast.files_to_compare += 1;
                forecast.bytes_to_compare = forecast.bytes_to_compare.saturating_add(item.size.unwrap_or(0));
                forecast.sources_to_delete += u64::from(moves);
                self.keep(None, step(StepKind::Compare, ItemKind::File, item));
            }
            Action::Symlink { .. } => {
                forecast.found.symlinks += 1;
                forecast.sources_to_delete += u64::from(moves);
                self.keep(None, step(StepKind::MakeLink, ItemKind::Symlink, item));
            }
            Action::Skip { reason, .. } => self.skipped(item, *reason),
            Action::Refuse { fault, .. } => {
                self.spoilt.insert(item.root);
                // A directory that cannot be listed is counted when it ends.
                let is_listing = fault.op == "list" && item.parent.is_some();
                self.forecast.found.files += u64::from(!is_listing);
                self.failing(item, if is_listing { ItemKind::Directory } else { ItemKind::File }, fault);
            }
        }
    }

    fn skipped(&mut self, item: &Item, reason: SkipReason) {
        let forecast = &mut self.forecast;
        let (done, kind) = match reason {
            SkipReason::Link => (StepKind::LeaveOut, ItemKind::Symlink),
            SkipReason::Unsupported => (StepKind::LeaveOut, ItemKind::File),
            SkipReason::SameLink | SkipReason::LinkExists => (StepKind::Keep, ItemKind::Symlink),
            _ => (StepKind::Keep, ItemKind::File),
        };
        match (done, kind) {
            (StepKind::LeaveOut, _) => forecast.left_out += 1,
            (_, ItemKind::Symlink) => {
                forecast.found.symlinks += 1;
                forecast.symlinks_up_to_date += 1;
            }
            _ => {
                forecast.found.files += 1;
                forecast.files_up_to_date += 1;
            }
        }
        self.keep(None, Step { reason: reason.to_string(), ..step(done, kind, item) });
    }

    fn deleted(&mut self, action: &Action, ignore_missing: bool) {
        let item = action.item();
        if let Action::Refuse { fault, .. } = action {
            // What is below a directory that cannot be listed is not known; the directory is counted when it ends.
            self.forecast.found.files += u64::from(item.parent.is_none());
            if fault.code == FaultCode::NotFound && ignore_missing && item.parent.is_none() {
                let gone = step(StepKind::Keep, ItemKind::File, item);
                return self.keep(None, Step { destination: Vec::new(), reason: "it is not there".into(), ..gone });
            }
            return self.failing(item, ItemKind::File, fault);
        }
        let Some(kind) = removed(action) else { return };
        count(&mut self.forecast.found, kind);
        self.keep(None, Step { destination: Vec::new(), ..step(StepKind::Delete, kind, item) });
    }

    fn failing(&mut self, item: &Item, kind: ItemKind, fault: &Fault) {
        self.forecast.failing += 1;
        let mut failed = step(StepKind::Fail, kind, item);
        if matches!(self.aim, Aim::Delete { .. }) {
            failed.destination = Vec::new();
        }
        self.keep(None, Step { reason: fault.to_string(), fault: Some(fault.code), ..failed });
    }

    fn keep(&mut self, extra_of: Option<RootId>, step: Step) {
        if self.steps.len() < self.most {
            self.steps.push((extra_of, step));
        }
    }
}

fn step(step: StepKind, kind: ItemKind, item: &Item) -> Step {
    let (source, destination) = (item.source.clone(), item.destination.clone());
    let size = item.size.filter(|_| kind == ItemKind::File);
    Step { step, kind, source, destination, size, reason: String::new(), fault: None }
}

/// What an action of a plan of things to be removed removes; devices count as files.
fn removed(action: &Action) -> Option<ItemKind> {
    match action {
        Action::Copy { .. } | Action::CompareChecksum { .. } | Action::CompareOnly { .. } => Some(ItemKind::File),
        Action::Skip { reason: SkipReason::Unsupported, .. } => Some(ItemKind::File),
        Action::Symlink { .. } => Some(ItemKind::Symlink),
        Action::SetAttributes { .. } => Some(ItemKind::Directory),
        Action::MakeDirectory { .. } | Action::Skip { .. } | Action::Refuse { .. } => None,
    }
}

fn count(things: &mut Things, kind: ItemKind) {
    match kind {
        ItemKind::File => things.files += 1,
        ItemKind::Directory => things.directories += 1,
        ItemKind::Symlink => things.symlinks += 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{Attributes, ItemId};

    fn item(root: u64, path: &str, parent: Option<u64>) -> Item {
        Item {
            id: ItemId(0),
            root: RootId(root),
            parent: parent.map(DirectoryId),
            source: format!("/s/{path}").into(),
            destination: format!("/d/{path}").into(),
            size: Some(10),
            modified: None,
            range: None,
            attributes: Attributes::default(),
            twins: Vec::new(),
        }
    }

    fn forecaster(moves: bool) -> Forecaster {
        Forecaster::new(Aim::Transfer { moves }, 100)
    }

    #[test]
    fn what_is_found_is_counted_as_the_task_would_count_it() {
        let mut all = forecaster(true);
        let (made, stands) = (DirectoryId(1), DirectoryId(2));
        all.take(&Action::MakeDirectory { item: item(0, "new", None), directory: made });
        all.take(&Action::Copy { item: item(0, "new/a", Some(1)) });
        all.take(&Action::Copy { item: Item { size: None, ..item(0, "new/b", Some(1)) } });
        all.take(&Action::SetAttributes { item: item(0, "new", None), directory: made });
        all.take(&Action::CompareChecksum { item: item(1, "old/c", Some(2)) });
        all.take(&Action::Skip { item: item(1, "old/d", Some(2)), reason: SkipReason::SameSize });
        all.take(&Action::Skip { item: item(1, "old/l", Some(2)), reason: SkipReason::Link });
        all.take(&Action::Skip { item: item(1, "old/m", Some(2)), reason: SkipReason::SameLink });
        all.take(&Action::Symlink { item: item(1, "old/n", Some(2)), target: b"x".to_vec() });
        all.take(&Action::SetAttributes { item: item(1, "old", None), directory: stands });
        assert_eq!(all.seen(), 10);
        let forecast = all.finish(4, None);
        assert_eq!(forecast.found, Things { files: 4, directories: 2, symlinks: 2 });
        assert_eq!((forecast.files_to_copy, forecast.bytes_to_copy, forecast.unknown_sizes), (2, 10, 1));
        assert_eq!((forecast.files_to_compare, forecast.files_up_to_date, forecast.left_out), (1, 1, 1));
        assert_eq!((forecast.directories_to_make, forecast.symlinks_up_to_date, forecast.filtered), (1, 1, 4));
        assert_eq!((forecast.sources_to_delete, forecast.failing, forecast.steps.len()), (4, 0, 8));
    }

    #[test]
    fn nothing_is_deleted_where_something_cannot_be_read() {
        let mut all = forecaster(false);
        let denied = Fault::new(FaultCode::PermissionDenied, "list");
        all.take(&Action::Refuse { item: item(0, "closed", Some(3)), fault: denied });
        all.take(&Action::SetAttributes { item: item(0, "closed", None), directory: DirectoryId(3) });
        for root in [0, 1] {
            all.take_extra(RootId(root), &Action::Copy { item: item(0, &format!("extra{root}"), None) });
            let directory = DirectoryId(0);
            all.take_extra(RootId(root), &Action::SetAttributes { item: item(0, "gone", None), directory });
        }
        let forecast = all.finish(0, Some(Cut::Entries));
        assert_eq!((forecast.failing, forecast.extra_kept, forecast.found.files), (1, 1, 0));
        assert_eq!(forecast.extra, Things { files: 1, directories: 1, symlinks: 0 });
        let told: Vec<_> = forecast.steps.iter().map(|step| (step.step, &step.destination[..])).collect();
        let extra = StepKind::DeleteExtra;
        assert_eq!(told, [(StepKind::Fail, &b"/d/closed"[..]), (extra, b"/s/extra1"), (extra, b"/s/gone")]);
    }

    #[test]
    fn deletions_count_what_goes_and_the_list_of_steps_is_bounded() {
        let mut all = Forecaster::new(Aim::Delete { ignore_missing: true }, 2);
        let missing = || Fault::new(FaultCode::NotFound, "describe");
        all.take(&Action::MakeDirectory { item: item(0, "d", None), directory: DirectoryId(0) });
        all.take(&Action::Copy { item: item(0, "d/a", Some(0)) });
        all.take(&Action::Skip { item: item(0, "d/pipe", Some(0)), reason: SkipReason::Unsupported });
        all.take(&Action::SetAttributes { item: item(0, "d", None), directory: DirectoryId(0) });
        all.take(&Action::Refuse { item: item(1, "gone", None), fault: missing() });
        let forecast = all.finish(0, None);
        assert_eq!(forecast.found, Things { files: 3, directories: 1, symlinks: 0 });
        assert_eq!((forecast.failing, forecast.steps.len()), (0, 2));
        let mut strict = Forecaster::new(Aim::Delete { ignore_missing: false }, 2);
        strict.take(&Action::Refuse { item: item(1, "gone", None), fault: missing() });
        assert_eq!(strict.finish(0, None).failing, 1);
    }
}
