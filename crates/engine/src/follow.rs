//! Which files of a directory that is being written are complete.
//!
//! A file is ready when its writer closed it or renamed it into place, as far as events tell, or when its size and time
//! did not change for a while. Pure: sights and events come with the time they were made at.

use std::collections::hash_map::DefaultHasher;
use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::fault::{Fault, FaultCode, Side};
use crate::listing::{Object, ObjectKind, Timestamp};
use unread::{Unread, is_below};

#[cfg(test)]
mod tests;
mod unread;
#[cfg(test)]
mod unread_tests;

/// How long what cannot be read for a reason that may pass is asked again before that counts as a failure.
pub const PATIENCE: Duration = Duration::from_secs(600);

/// What was made empty and stays so for so long is copied, though nobody has told of its end.
const STAYS_EMPTY: Duration = Duration::from_secs(60);

/// What tells one content of a file from the next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Version {
    /// Bytes.
    pub size: Option<u64>,
    /// Modification time.
    pub modified: Option<Timestamp>,
}

impl Version {
    /// The file of this version, as a listing would tell of it by its own path.
    pub fn object(self) -> Object {
        Object { size: self.size, modified: self.modified, ..Object::bare("", ObjectKind::File) }
    }
}

/// Which names are followed.
#[derive(Debug, Clone, Default)]
pub struct Names {
    /// Take hidden and temporary names, too.
    pub include_hidden: bool,
    /// The end marker, which is taken whatever it is called.
    pub marker: Option<Vec<u8>>,
}

impl Names {
    /// Whether a file or directory is followed, by its relative path: every name in it counts.
    pub fn wanted(&self, path: &[u8]) -> bool {
        let is_marker = self.marker.as_deref() == Some(path);
        self.include_hidden || is_marker || !path.split(|&byte| byte == b'/').any(is_temporary)
    }
}

/// Whether programs give such names to what they have not finished.
pub fn is_temporary(name: &[u8]) -> bool {
    name.starts_with(b".") || [&b"~"[..], b".part", b".tmp"].iter().any(|end| name.ends_with(end))
}

/// The files of a followed directory, by their relative paths.
#[derive(Debug)]
pub struct Quiet {
    quiet: Duration,
    marker: Option<Vec<u8>>,
    files: HashMap<Arc<[u8]>, File>,
    ready: VecDeque<Arc<[u8]>>,
    /// When waiting files will have been quiet for long enough.
    due: BTreeSet<(Instant, Arc<[u8]>)>,
    /// Files with something that is not handed out yet.
    open: u64,
    /// Files handed out whose copies have not ended.
    busy: u64,
    scan: u32,
    /// When the end marker was seen.
    ending: Option<Instant>,
    sweep: Sweep,
    unread: Unread,
    /// What is not at the destination although it should be: the end marker does not vouch for it.
    failed: HashSet<Arc<[u8]>>,
    stopped: bool,
    backlog: Backlog,
}

/// What was there when everything was looked at for the first time.
#[derive(Debug)]
enum Backlog {
    /// Not everything has been looked at.
    Unknown,
    /// So many files, of which these are not copied yet.
    Known(u64, HashSet<Arc<[u8]>>),
    /// That there is none any more was told.
    Told,
}

/// The scan that finds what was there when the end marker appeared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sweep {
    Wanted,
    Running,
    /// Some directories could not be read: they are asked again.
    Unread,
    Done,
}

/// One file; small, because all that were ever copied are remembered.
#[derive(Debug, Default)]
struct File {
    /// The version handed out last.
    given: Option<Mark>,
    /// Whether its copy has not ended.
    busy: bool,
    /// The scan during or before which it was last seen.
    scan: u32,
    /// What is not handed out yet.
    open: Option<Box<Open>>,
}

/// A version's hash.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Mark(u64);

#[derive(Debug)]
struct Open {
    version: Option<Version>,
    /// No change was seen since.
    since: Instant,
    /// Events told that it is open for writing, so that they will tell of its end.
    writing: bool,
    /// Nothing but that it was made empty was told: what `ln` or `flock` has made, nobody has opened to write.
    only_made: bool,
    /// Written since it was handed out last, whatever its version says.
    dirty: bool,
    ready: bool,
}

impl Quiet {
    /// No file yet; those without events are ready once unchanged for `quiet`. `marker` is the path of the end marker.
    pub fn new(quiet: Duration, marker: Option<Vec<u8>>) -> Self {
        Self {
            quiet,
            marker,
            files: HashMap::new(),
            ready: VecDeque::new(),
            due: BTreeSet::new(),
            open: 0,
            busy: 0,
            scan: 0,
            ending: None,
            sweep: Sweep::Wanted,
            unread: Unread::default(),
            failed: HashSet::new(),
            stopped: false,
            backlog: Backlog::Unknown,
        }
    }

    // --- what was observed -----------------------------------------------------------------------

    /// A scan or a look at the file found this.
    pub fn seen(&mut self, now: Instant, path: &[u8], version: Version) {
        let Some(key) = self.key(now, path) else { return };
        let file = self.files.entry(key.clone()).or_default();
        file.scan = self.scan;
        match &mut file.open {
            Some(open) if open.ready => return,
            // Nothing has changed after all.
            Some(open) if !open.writing && !open.dirty && file.given == Some(mark(version)) => {
                return self.let_be(&key);
            }
            Some(open) if open.version != Some(version) => {
                // A first look after events is no change.
                if open.version.replace(version).is_some() || !open.dirty {
                    open.since = now;
                }
            }
            Some(_) => {}
            None if file.given == Some(mark(version)) => return,
            None => self.start(&key, Open { version: Some(version), since: now, ..Open::new(now) }),
        }
        self.judge(now, &key);
    }

    /// Somebody made the file. An empty one is being written; what has content already came by a link, or its writing
    /// is told next.
    pub fn created(&mut self, now: Instant, path: &[u8], version: Version) {
        if version.size == Some(0) {
            self.written(now, path);
            if let Some(open) = self.files.get_mut(path).and_then(|file| file.open.as_mut()) {
                open.only_made = true;
            }
        }
        self.seen(now, path, version);
    }

    /// Somebody writes to the file.
    pub fn written(&mut self, now: Instant, path: &[u8]) {
        let Some(key) = self.key(now, path) else { return };
        if self.files.get(&key).is_none_or(|file| file.open.is_none()) {
            self.start(&key, Open::new(now));
        }
        let file = self.files.entry(key.clone()).or_default();
        file.scan = self.scan;
        if let Some(open) = &mut file.open {
            (open.since, open.writing, open.only_made, open.dirty) = (now, true, false, true);
            if std::mem::replace(&mut open.ready, false) {
                self.ready.retain(|ready| *ready != key);
            }
        }
        self.schedule(&key);
    }

    /// A writer closed the file; `anew`: another file took the name.
    pub fn closed(&mut self, now: Instant, path: &[u8], version: Version, anew: bool) {
        let Some(key) = self.key(now, path) else { return };
        let file = self.files.entry(key.clone()).or_default();
        file.scan = self.scan;
        let dirty = anew || file.open.as_ref().is_some_and(|open| open.dirty);
        if !dirty && file.given == Some(mark(version)) {
            return self.let_be(&key);
        }
        if file.open.is_none() {
            self.start(&key, Open::new(now));
        }
        if let Some(open) = self.open_mut(&key) {
            open.version = Some(version);
            open.writing = false;
        }
        self.make_ready(&key);
    }

    /// The file is there no more: nothing of it is missing at the destination.
    pub fn gone(&mut self, path: &[u8]) {
        let key: Arc<[u8]> = path.into();
        self.settle(&key);
        self.caught(&key);
        // Of a directory that could not be read the failure stays: it is no file.
        let Some(file) = self.files.get_mut(&key) else { return };
        self.failed.remove(&key);
        file.given = None;
        if !file.busy {
            self.files.remove(&key);
        }
    }

    /// The directory has another name: no file is there any more under its path.
    pub fn gone_below(&mut self, directory: &[u8]) {
        // All at once: each by itself would be looked for among everything that is ready.
        self.ready.retain(|path| !is_below(path, directory));
        let mut below = Vec::new();
        for (path, file) in self.files.iter_mut().filter(|(path, _)| is_below(path, directory)) {
            if let Some(open) = &mut file.open {
                open.ready = false;
            }
            below.push(path.clone());
        }
        below.iter().for_each(|path| self.gone(path));
    }

    /// Events were lost: what they told may have changed, so that only quiet counts until they tell more.
    pub fn events_lost(&mut self, now: Instant) {
        let keys: Vec<_> =
            self.files.iter().filter(|(_, file)| file.open.is_some()).map(|(key, _)| key.clone()).collect();
        for key in keys {
            if let Some(open) = self.open_mut(&key)
                && std::mem::replace(&mut open.writing, false)
            {
                open.since = now;
            }
            self.schedule(&key);
        }
    }

    /// The file is there, but what it is could not be seen: its directory is asked. Returns whether that is news.
    pub fn hidden(&mut self, now: Instant, path: &[u8], fault: Fault) -> bool {
        let Some(key) = self.key(now, path) else { return false };
        if self.unread.is_given_up(path) {
            self.let_be(&key);
            return false;
        }
        if self.files.get(&key).is_none_or(|file| file.open.is_none()) {
            self.start(&key, Open::new(now));
        }
        self.files.entry(key.clone()).or_default().scan = self.scan;
        if let Some(open) = self.open_mut(&key).filter(|open| !open.ready) {
            // What events told of it is known no more.
            (open.since, open.writing) = (now, false);
        }
        self.schedule(&key);
        let parent = path.rsplitn(2, |&byte| byte == b'/').nth(1).unwrap_or_default();
        !self.unread.covers(parent) && self.unread(now, parent, fault)
    }

    /// A scan begins; `whole`: of everything.
    pub fn scan_begins(&mut self, whole: bool) {
        self.scan += 1;
        if whole && self.ending.is_some() && self.sweep == Sweep::Wanted {
            self.sweep = Sweep::Running;
            self.unread.begin_last();
        }
    }

    /// The scan could not read a directory (the root's path is empty), or not all of it: what is below may be there.
    /// Returns whether that is news.
    pub fn unread(&mut self, now: Instant, path: &[u8], fault: Fault) -> bool {
        let last = self.sweep != Sweep::Wanted;
        !self.stopped && self.unread.add(now, path, fault, self.scan, last)
    }

    /// Everything that the scan of what is below `starts` found was told with [`Quiet::seen`] and [`Quiet::unread`]: what
    /// was neither found nor lies where nobody could look is gone.
    pub fn scan_ends(&mut self, now: Instant, starts: &[Vec<u8>]) {
        self.unread.scanned(self.scan, starts);
        if self.sweep != Sweep::Wanted {
            self.unread.give_up(now, self.scan);
        }
        let missed = |(path, file): &(&Arc<[u8]>, &File)| {
            file.scan < self.scan && starts.iter().any(|start| is_below(path, start))
        };
        let missed: Vec<_> = self.files.iter().filter(missed).map(|(key, _)| key.clone()).collect();
        for key in missed {
            if !self.unread.covers(&key) {
                self.gone(&key);
            } else if self.unread.is_given_up(&key) {
                self.forgo(&key);
            }
        }
        let whole = starts.iter().any(Vec::is_empty);
        if whole && matches!(self.backlog, Backlog::Unknown) {
            let open =
                self.files.iter().filter(|(key, file)| (file.open.is_some() || file.busy) && !self.is_marker(key));
            let open: HashSet<_> = open.map(|(key, _)| key.clone()).collect();
            self.backlog = Backlog::Known(open.len() as u64, open);
        }
        if self.sweep == Sweep::Unread || (whole && self.sweep == Sweep::Running) {
            self.sweep = if self.unread.is_waiting() { Sweep::Unread } else { Sweep::Done };
        }
    }

    /// The copy of a file has ended, well or not: a later version may make a failure good. With an empty path: what was copied
    /// of the directory may be lost.
    pub fn ended(&mut self, path: &[u8], well: bool) {
        let key: Arc<[u8]> = path.into();
        // What went away meanwhile is missing nowhere, and comes anew should it be there again.
        let is_gone = self.files.get(&key).is_some_and(|file| file.busy && file.given.is_none());
        if well {
            self.failed.remove(&key);
        } else if !is_gone {
            self.failed.insert(key.clone());
        }
        self.caught(&key);
        let Some(file) = self.files.get_mut(&key) else { return };
        self.busy -= u64::from(std::mem::take(&mut file.busy));
        match &file.open {
            Some(open) if open.ready => self.queue(key),
            Some(_) => {}
            None if file.given.is_none() => drop(self.files.remove(&key)),
            None => {}
        }
    }

    /// Takes nothing more, and forgets what is not ready; returns how many files that leaves unfinished. What could not be
    /// read until now has failed.
    pub fn stop(&mut self) -> u64 {
        let unready = |(key, file): &(&Arc<[u8]>, &File)| {
            file.open.as_ref().is_some_and(|open| !open.ready || self.is_marker(key))
        };
        let left: Vec<_> = self.files.iter().filter(unready).map(|(key, _)| key.clone()).collect();
        left.iter().for_each(|key| self.settle(key));
        self.unread.give_up_all();
        self.stopped = true;
        left.iter().filter(|key| !self.is_marker(key)).count() as u64
    }

    // --- what to do ------------------------------------------------------------------------------

    /// Whether [`Quiet::next_ready`] or [`Quiet::next_failed`] has something.
    pub fn has_ready(&self) -> bool {
        !self.ready.is_empty() || self.unread.has_failed() || self.marker_is_next()
    }

    /// What fails without having been tried: the next directory that could not be read and is not waited for any more, with
    /// the reason; and the end marker when nothing else is left, if anything failed.
    pub fn next_failed(&mut self) -> Option<(Vec<u8>, Fault)> {
        if let Some((path, fault)) = self.unread.next_failed() {
            self.failed.insert(path.as_slice().into());
            return Some((path, fault));
        }
        if self.failed.is_empty() || !self.ready.is_empty() || !self.marker_is_next() {
            return None;
        }
        let (marker, _) = self.hand_out(self.marker.as_deref()?.into())?;
        let fault = Fault::new(FaultCode::HeldBack, "copy the end marker").on_path(&marker).side(Side::Source);
        let example = self.failed.iter().min().map(|path| match &path[..] {
            b"" => "the directory itself".to_owned(),
            path => format!("{:?}", String::from_utf8_lossy(path)),
        });
        let detail = match (self.failed.len(), example) {
            (1, Some(path)) => format!("{path} was not copied, or not wholly"),
            (count, Some(path)) => format!("{count} files or directories were not copied, {path} among them"),
            (_, None) => String::new(),
        };
        Some((marker, fault.detail(detail)))
    }

    /// The next file to copy, with the version that is complete; the end marker comes when nothing else is left and nothing
    /// failed.
    pub fn next_ready(&mut self) -> Option<(Vec<u8>, Version)> {
        let key = self.next_key()?;
        self.ready.pop_front();
        self.hand_out(key)
    }

    /// The path of what [`Quiet::next_ready`] gives next.
    pub fn peek_ready(&self) -> Option<Vec<u8>> {
        self.next_key().map(|key| key.to_vec())
    }

    fn next_key(&self) -> Option<Arc<[u8]>> {
        match self.ready.front() {
            Some(key) => Some(key.clone()),
            None if self.failed.is_empty() && self.marker_is_next() => self.marker.as_deref().map(Arc::from),
            None => None,
        }
    }

    /// Whether only the end marker is left to hand out.
    pub fn marker_is_next(&self) -> bool {
        let Some(file) = self.marker.as_deref().and_then(|marker| self.files.get(marker)) else { return false };
        let is_ready = file.open.as_ref().is_some_and(|open| open.ready);
        is_ready && self.sweep == Sweep::Done && self.open == 1 && self.busy == 0 && !self.unread.has_failed()
    }

    fn hand_out(&mut self, key: Arc<[u8]>) -> Option<(Vec<u8>, Version)> {
        let file = self.files.get_mut(&key)?;
        let open = file.open.take()?;
        let version = open.version.expect("what is ready was looked at");
        file.given = Some(mark(version));
        file.busy = true;
        self.open -= 1;
        self.busy += 1;
        Some((key.to_vec(), version))
    }

    /// That everything is copied, or has failed, that the first scan of everything had found: how many files that were. Once.
    pub fn caught_up(&mut self) -> Option<u64> {
        match &self.backlog {
            Backlog::Known(files, open) if open.is_empty() => {
                let files = *files;
                self.backlog = Backlog::Told;
                Some(files)
            }
            _ => None,
        }
    }

    /// When the first waiting file will have been quiet for long enough.
    pub fn next_due(&self) -> Option<Instant> {
        self.due.first().map(|(at, _)| *at)
    }

    /// A file that may have been quiet for long enough: look at it and tell with [`Quiet::seen`] or [`Quiet::gone`].
    pub fn poll_due(&mut self, now: Instant) -> Option<Vec<u8>> {
        let (_, key) = self.due.first().filter(|(at, _)| *at <= now)?.clone();
        self.due.pop_first();
        Some(key.to_vec())
    }

    /// When the first directory that could not be read is to be asked again.
    pub fn next_ask(&self) -> Option<Instant> {
        self.unread.next_due().filter(|_| !self.stopped)
    }

    /// The directories that could not be read and are to be asked again now.
    pub fn asked_again(&self, now: Instant) -> Vec<Vec<u8>> {
        self.unread.due(now)
    }

    /// Whether a scan of everything is wanted at once.
    pub fn wants_scan(&self) -> bool {
        self.ending.is_some() && self.sweep == Sweep::Wanted && !self.stopped
    }

    /// Whether the end marker was seen.
    pub fn is_ending(&self) -> bool {
        self.ending.is_some()
    }

    /// Whether everything is handed out and ended, and nothing more can come.
    pub fn is_over(&self) -> bool {
        let no_more = self.stopped || (self.ending.is_some() && self.sweep == Sweep::Done);
        no_more && self.open == 0 && self.busy == 0 && !self.unread.has_failed()
    }

    // --- within ----------------------------------------------------------------------------------

    /// The key of a file that is told of; `None` after the stop. The end marker begins the end.
    fn key(&mut self, now: Instant, path: &[u8]) -> Option<Arc<[u8]>> {
        if self.stopped {
            return None;
        }
        let key: Arc<[u8]> = path.into();
        if self.ending.is_none() && self.is_marker(path) {
            self.ending = Some(now);
            let open = self.files.iter().filter(|(_, file)| file.open.is_some());
            let keys: Vec<_> = open.map(|(key, _)| key.clone()).collect();
            self.due.clear();
            keys.iter().for_each(|key| self.schedule(key));
        }
        Some(key)
    }

    fn caught(&mut self, key: &Arc<[u8]>) {
        if let Backlog::Known(_, open) = &mut self.backlog {
            open.remove(key);
        }
    }

    fn is_marker(&self, path: &[u8]) -> bool {
        self.marker.as_deref() == Some(path)
    }

    fn open_mut(&mut self, key: &Arc<[u8]>) -> Option<&mut Open> {
        self.files.get_mut(key)?.open.as_deref_mut()
    }

    fn start(&mut self, key: &Arc<[u8]>, open: Open) {
        self.files.entry(key.clone()).or_default().open = Some(Box::new(open));
        self.open += 1;
    }

    /// When quiet makes the file ready; `None`: only an event does.
    fn due_at(&self, open: &Open) -> Option<Instant> {
        match self.ending {
            _ if open.ready => None,
            None if open.writing => open.only_made.then(|| open.since + self.quiet.max(STAYS_EMPTY)),
            None => Some(open.since + self.quiet),
            // Its writer may have paused: what is open has the quiet time from the marker on.
            Some(ending) if open.writing => Some(open.since.max(ending) + self.quiet),
            Some(_) => Some(open.since + self.quiet),
        }
    }

    fn schedule(&mut self, key: &Arc<[u8]>) {
        let Some(file) = self.files.get(key) else { return };
        let at = file.open.as_ref().and_then(|open| self.due_at(open));
        // At most one entry a file is valid; looking at a file too early changes nothing.
        if let Some(at) = at {
            self.due.insert((at, key.clone()));
        }
    }

    fn judge(&mut self, now: Instant, key: &Arc<[u8]>) {
        let Some(open) = self.files.get(key).and_then(|file| file.open.as_ref()) else { return };
        match self.due_at(open) {
            Some(at) if at <= now => self.make_ready(key),
            _ => self.schedule(key),
        }
    }

    fn make_ready(&mut self, key: &Arc<[u8]>) {
        let Some(file) = self.files.get_mut(key) else { return };
        let Some(open) = &mut file.open else { return };
        let was_ready = std::mem::replace(&mut open.ready, true);
        (open.writing, open.dirty) = (false, false);
        if !was_ready && !file.busy {
            self.queue(key.clone());
        }
    }

    fn queue(&mut self, key: Arc<[u8]>) {
        if !self.is_marker(&key) {
            self.ready.push_back(key);
        }
    }

    /// Nobody will see the file any more, which its directory answers for.
    fn forgo(&mut self, key: &Arc<[u8]>) {
        if self.files.get(key).and_then(|file| file.open.as_ref()).is_some_and(|open| !open.ready) {
            self.caught(key);
            self.settle(key);
        }
    }

    /// Nothing of the file is left to hand out: unless it is being copied, nobody will tell of its end.
    fn let_be(&mut self, key: &Arc<[u8]>) {
        if self.files.get(key).is_none_or(|file| !file.busy) {
            self.caught(key);
        }
        self.settle(key);
    }

    /// Nothing of the file is left to hand out.
    fn settle(&mut self, key: &Arc<[u8]>) {
        let Some(open) = self.files.get_mut(key).and_then(|file| file.open.take()) else { return };
        self.open -= 1;
        if open.ready {
            self.ready.retain(|ready| ready != key);
        }
    }
}

impl Open {
    fn new(now: Instant) -> Self {
        Self { version: None, since: now, writing: false, only_made: false, dirty: false, ready: false }
    }
}

fn mark(version: Version) -> Mark {
    let mut hasher = DefaultHasher::new();
    version.hash(&mut hasher);
    Mark(hasher.finish())
}
