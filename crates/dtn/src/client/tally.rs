//! The tally of a copy of trees: which files are done, kept at the destination while it runs ([`whimbrel_engine::tally`]).
//!
//! It lies in the directory that the trees go into, or beside the one that the copy has made: nothing in the copies is
//! touched. The same command finds it, from any host, and leaves alone what is done, also where `cp` would otherwise have
//! made a second copy inside the first. Of a copy that compares its files anyway it tells only that. A run that ends well
//! removes it.

mod home;
mod keeper;

use std::cell::RefCell;
use std::time::{Duration, Instant};

use tokio::sync::mpsc::{self, UnboundedSender};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use whimbrel_engine::listing::{Object, Timestamp, join, split};
use whimbrel_engine::plan::{Earlier, Finished, Item, SyncLevel};
use whimbrel_engine::tally::{Identity, Mark, Tally, encode_bound, encode_header};

use self::keeper::{Done, Keeper};
use super::options::{CopyOptions, Jobs, Place, Sums};
use super::sidecar::Dialling;
use super::temporary::directory_of;

/// In front of the digits of the copy.
const NAME: &[u8] = b".whimbrel-tally-";

/// How long the end of a copy may take for it.
const LIMIT: Duration = Duration::from_secs(10);

/// A run that ends sooner leaves no tally: there is little to save.
const WORTH: Duration = Duration::from_secs(1);

/// Where a tally may lie.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Places {
    /// Of which copy.
    pub copy: Identity,
    /// Beside the destination, which the copy has made; `None`: nothing can be beside it.
    pub beside: Option<Place>,
    /// In the destination, which was there; `None`: nothing is to be told of files.
    pub inside: Option<Place>,
}

impl Places {
    /// Where that of a copy would be; `None` for a copy that keeps none: of single files, or of parts.
    pub fn of(jobs: &Jobs, options: &CopyOptions) -> Option<Self> {
        let Jobs::Into { sources, destination } = jobs else { return None };
        let plan = &options.plan;
        let compares = plan.sync != SyncLevel::None || plan.mirror;
        if !plan.recursive || options.range.is_some() {
            return None;
        }
        // Of what is left alone no checksum is told, nor compared with the user's.
        let tells_files = !compares && options.sums == Sums::default();
        let copy = identity(sources, destination, options);
        let name = [NAME, hex(&copy).as_bytes()].concat();
        let inside = tells_files.then(|| destination.with_path(join(&destination.path, &name)));
        let trimmed = trimmed(&destination.path);
        let (above, own) = split(trimmed);
        let beside = (!own.is_empty() && !matches!(own, b"." | b".." | b"~"))
            .then(|| destination.with_path([above, &name].concat()));
        (beside.is_some() || inside.is_some()).then_some(Self { copy, beside, inside })
    }

    /// Whether files that are done are told, and left alone.
    pub fn tells_files(&self) -> bool {
        self.inside.is_some()
    }
}

fn trimmed(path: &[u8]) -> &[u8] {
    let end = path.iter().rposition(|&byte| byte != b'/').map_or(0, |last| last + 1);
    &path[..end]
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The same for the same command, wherever it runs.
fn identity(sources: &[Place], destination: &Place, options: &CopyOptions) -> Identity {
    let mut hasher = blake3::Hasher::new();
    let mut part = |bytes: &[u8]| {
        hasher.update(&(bytes.len() as u64).to_le_bytes());
        hasher.update(bytes);
    };
    for place in sources.iter().chain([destination]) {
        match &place.target {
            Some(target) => {
                let mut addresses: Vec<_> = target.addresses().collect();
                addresses.sort_unstable();
                part(format!("{addresses:?} {:?}", target.user).as_bytes());
            }
            // The same path of another host is about other files.
            None => part(rustix::system::uname().nodename().to_bytes()),
        }
        part(trimmed(&place.path));
    }
    let plan = &options.plan;
    part(format!("{:?} {:?} {:?}", plan.preserve, plan.links, options.verify).as_bytes());
    let digest = hasher.finalize();
    *digest.as_bytes().first_chunk().expect("32 bytes")
}

/// What a tally calls a file; `None`: its version is not known, or it lies elsewhere.
fn mark(base: &[u8], item: &Item) -> Option<Mark> {
    let place = item.destination.strip_prefix(base)?;
    let (size, modified) = (item.size?, item.modified?);
    let mut hasher = blake3::Hasher::new();
    hasher.update(&size.to_le_bytes());
    hasher.update(&modified.secs.to_le_bytes());
    hasher.update(&modified.nanos.to_le_bytes());
    hasher.update(place);
    Some(Mark::from_le_bytes(*hasher.finalize().as_bytes().first_chunk().expect("32 bytes")))
}

pub use self::home::read_here;

/// What an earlier run has left.
#[derive(Debug)]
pub struct Found {
    /// Where it lies.
    pub place: Place,
    /// What it says.
    pub tally: Tally,
    /// When it was written last, by the destination's clock.
    pub written: Timestamp,
    /// Whether who is logged in has written it: nobody else can say what is done.
    pub own: bool,
}

/// What an earlier run has left, as the planner asks it.
#[derive(Debug)]
pub struct Before {
    found: Found,
    base: Vec<u8>,
    /// Both ends tell checksums.
    compares: bool,
}

impl Before {
    /// `base`: what the places of files count from; `compares`: checksums of both ends can be compared.
    pub fn new(found: Found, base: &[u8], compares: bool) -> Self {
        Self { found, base: trimmed(base).to_vec(), compares }
    }
}

impl Earlier for Before {
    fn finished(&self, item: &Item, existing: &Object) -> Finished {
        let Some(mark) = mark(&self.base, item).filter(|_| existing.size == item.size) else { return Finished::No };
        let changed = match (item.attributes.modified, existing.modified) {
            (_, None) => return Finished::No,
            // The copy has the time of its source: some servers keep whole seconds.
            (Some(set), Some(has)) if set.secs == has.secs => None,
            (Some(_), Some(_)) => return Finished::No,
            (None, changed) => changed,
        };
        match self.found.tally.finished(mark, changed, self.found.written) {
            Finished::Yes if self.found.own => Finished::Yes,
            Finished::Yes | Finished::Perhaps if self.compares => Finished::Perhaps,
            _ => Finished::No,
        }
    }
}

/// What a copy keeps.
#[derive(Default)]
pub struct Tallying {
    begun: RefCell<Option<Begun>>,
}

struct Begun {
    /// What the places of files count from.
    destination: Vec<u8>,
    tells_files: bool,
    /// What is written first.
    head: Vec<u8>,
    /// How much an earlier run has left that can be read, bytes.
    left: u64,
    /// Whether one has left anything.
    is_there: bool,
    place: Place,
    began: Instant,
    keeper: Option<Running>,
}

/// A keeper at work: who tells it what is done and how the copy ended, and who waits for it.
struct Running {
    done: UnboundedSender<Done>,
    end: oneshot::Sender<bool>,
    task: JoinHandle<()>,
}

impl Begun {
    /// The keeper, which begins now if it has not.
    fn keeper(&mut self, dialling: impl FnOnce() -> Dialling) -> &Running {
        self.keeper.get_or_insert_with(|| {
            let ((done, files), (end, ended)) = (mpsc::unbounded_channel(), oneshot::channel());
            let head = std::mem::take(&mut self.head);
            let keeper = Keeper::new(dialling(), self.place.clone(), head, self.left, self.is_there);
            Running { done, end, task: tokio::task::spawn_local(keeper.run(files, ended)) }
        })
    }
}

impl Tallying {
    /// From now on what is done is kept at `place`, behind what an earlier run has left there; `is_there`: it has left something,
    /// if only what cannot be read.
    pub fn begin(&self, place: Place, places: &Places, destination: &[u8], found: Option<&Found>, is_there: bool) {
        let (head, left) = match found {
            Some(found) => (encode_bound(found.written), found.tally.sound as u64),
            None => (encode_header(&places.copy), 0),
        };
        let (destination, tells_files, began) = (trimmed(destination).to_vec(), places.tells_files(), Instant::now());
        let begun = Begun { destination, tells_files, head, left, is_there, place, began, keeper: None };
        *self.begun.borrow_mut() = Some(begun);
    }

    /// The copy has made a directory that has no parent in it: if that is its destination, the same command is to know,
    /// however little is done.
    pub fn made(&self, dialling: impl FnOnce() -> Dialling, directory: &[u8]) {
        let mut begun = self.begun.borrow_mut();
        if let Some(begun) = begun.as_mut().filter(|begun| begun.destination == trimmed(directory)) {
            begun.keeper(dialling);
        }
    }

    /// A file is done.
    pub fn done(&self, dialling: impl FnOnce() -> Dialling, item: &Item) {
        let mut begun = self.begun.borrow_mut();
        let Some(begun) = &mut *begun else { return };
        let is_told = begun.tells_files && item.parent.is_some();
        let Some(mark) = is_told.then(|| mark(&begun.destination, item)).flatten() else { return };
        let directory = match trimmed(directory_of(&item.destination)) {
            b"" => b"/",
            directory => directory,
        };
        // A keeper that has given up takes nothing any more.
        let _ = begun.keeper(dialling).done.send(Done { mark, directory: directory.to_vec() });
    }

    /// Nothing more is done; `complete`: everything that was to be copied is, and the tally goes.
    pub async fn finish(&self, dialling: impl FnOnce() -> Dialling, complete: bool) {
        let Some(mut begun) = self.begun.take() else { return };
        if complete && begun.is_there {
            // Also where everything was done already.
            begun.keeper(dialling);
        }
        let Some(Running { done: _done, end, task }) = begun.keeper else { return };
        if !complete && begun.began.elapsed() < WORTH {
            return task.abort();
        }
        // A keeper that has given up is gone.
        let _ = end.send(complete);
        // What is not written by then would only have saved time.
        let _ = timeout(LIMIT, task).await;
    }
}

#[cfg(test)]
mod tests {
    use whimbrel_engine::plan::{Attributes, ItemId, PlanOptions, RootId};
    use whimbrel_engine::tally::encode_files;

    use super::*;
    use crate::client::target::Target;

    fn at(host: Option<&str>, path: &str) -> Place {
        Place { target: host.map(|host| Target::anonymous(host, 2811)), path: path.into() }
    }

    fn jobs(source: Place, destination: Place) -> Jobs {
        Jobs::Into { sources: vec![source], destination }
    }

    fn options() -> CopyOptions {
        CopyOptions::of(PlanOptions { recursive: true, ..PlanOptions::default() })
    }

    fn places(destination: &str) -> Places {
        Places::of(&jobs(at(Some("a"), "/s"), at(Some("b"), destination)), &options()).unwrap()
    }

    #[test]
    fn a_tally_lies_in_what_is_there_or_beside_what_is_made() {
        let name = format!(".whimbrel-tally-{}", hex(&places("/d/new").copy));
        for (destination, beside, inside) in [
            ("/d/new", Some(format!("/d/{name}")), format!("/d/new/{name}")),
            ("/d/new/", Some(format!("/d/{name}")), format!("/d/new/{name}")),
        ] {
            let places = places(destination);
            assert_eq!(places.beside.map(|place| place.path), beside.map(String::into_bytes), "{destination}");
            assert_eq!(places.inside.unwrap().path, inside.into_bytes(), "{destination}");
        }
        for nothing_beside in ["/", "~", "/d/.", "/d/.."] {
            assert_eq!(places(nothing_beside).beside, None, "{nothing_beside}");
        }
    }

    #[test]
    fn only_the_same_command_finds_it() {
        let copy =
            |source, destination, options: &CopyOptions| Places::of(&jobs(source, destination), options).unwrap().copy;
        let usual = || copy(at(Some("a"), "/s"), at(Some("b"), "/d"), &options());
        assert_eq!(usual(), copy(at(Some("a"), "/s/"), at(Some("b"), "/d/"), &options()));
        let both = |first: &str, second: &str| {
            let mut place = at(Some(first), "/s");
            place.target.as_mut().unwrap().others.push((second.into(), 2811));
            copy(place, at(Some("b"), "/d"), &options())
        };
        assert_eq!(both("x", "y"), both("y", "x"), "the same endpoint");
        let mut kept = options();
        kept.plan.preserve.times = true;
        for other in [
            copy(at(Some("other"), "/s"), at(Some("b"), "/d"), &options()),
            copy(at(None, "/s"), at(Some("b"), "/d"), &options()),
            copy(at(Some("a"), "/s/d"), at(Some("b"), "/"), &options()),
            copy(at(Some("a"), "/s"), at(Some("b"), "/d"), &kept),
        ] {
            assert_ne!(usual(), other);
        }
    }

    #[test]
    fn what_is_compared_anyway_tells_only_what_it_has_made_and_what_is_no_tree_nothing() {
        let of = |destination: &str, change: fn(&mut CopyOptions)| {
            let mut options = options();
            change(&mut options);
            Places::of(&jobs(at(None, "/s"), at(Some("b"), destination)), &options)
        };
        let no_trees: [fn(&mut CopyOptions); 2] =
            [|options| options.plan.recursive = false, |options| options.range = Some((0, None))];
        for change in no_trees {
            assert_eq!(of("/d", change), None);
        }
        let compared: [fn(&mut CopyOptions); 3] = [
            |options| options.plan.sync = SyncLevel::Size,
            |options| options.plan.mirror = true,
            |options| options.sums.print = Some(whimbrel_transport::digest::Algorithm::Md5),
        ];
        for change in compared {
            let (places, usual) = (of("/d", change).unwrap(), of("/d", |_| ()).unwrap());
            assert!(!places.tells_files() && usual.tells_files());
            assert_eq!(
                (places.copy, places.beside),
                (usual.copy, usual.beside),
                "either finds what the other has made"
            );
            assert_eq!(of("/", change), None, "nothing can be beside it");
        }
    }

    fn item(modified: i64) -> Item {
        Item {
            id: ItemId(1),
            root: RootId(0),
            parent: None,
            source: b"/s/f".to_vec(),
            destination: b"/d/s/f".to_vec(),
            size: Some(5),
            modified: Some(Timestamp::from_secs(modified)),
            range: None,
            attributes: Attributes::default(),
            twins: Vec::new(),
        }
    }

    /// What is said of a file of which an earlier run wrote a durable record.
    fn said(own: bool, compares: bool, item: &Item, existing: &Object) -> Finished {
        let bytes = [encode_header(&[1; 16]), encode_files(&[mark(b"/d", &self::item(7)).unwrap()], true)].concat();
        let (tally, written) = (Tally::decode(&bytes, &[1; 16]), Timestamp { secs: 100, nanos: 5 });
        let found = Found { place: at(None, "/d/t"), tally, written, own };
        Before::new(found, b"/d/", compares).finished(item, existing)
    }

    #[test]
    fn a_file_is_done_only_if_neither_end_has_changed_it() {
        let copy = |secs| Object::file("f", 5).modified(Timestamp { secs, nanos: 5 });
        let own = |item: &Item, existing: &Object| said(true, true, item, existing);
        assert_eq!(own(&item(7), &copy(100)), Finished::Yes);
        assert_eq!(own(&item(7), &copy(101)), Finished::No, "changed after that run");
        assert_eq!(own(&item(8), &copy(100)), Finished::No, "another version of the source");
        assert_eq!(own(&item(7), &Object::file("f", 4).modified(Timestamp::from_secs(9))), Finished::No, "cut");
        assert_eq!(own(&item(7), &Object::file("f", 5)), Finished::No, "nobody knows when it was changed");
        let mut kept = item(7);
        kept.attributes.modified = Some(Timestamp { secs: 7, nanos: 9 });
        assert_eq!(own(&kept, &Object::file("f", 5).modified(Timestamp::from_secs(7))), Finished::Yes);
        assert_eq!(own(&kept, &copy(8)), Finished::No, "it has not the time that it was given");
    }

    #[test]
    fn what_somebody_else_may_have_written_is_compared() {
        let existing = Object::file("f", 5).modified(Timestamp { secs: 99, nanos: 5 });
        assert_eq!(said(false, true, &item(7), &existing), Finished::Perhaps);
        assert_eq!(said(false, false, &item(7), &existing), Finished::No);
    }
}
