//! What other runs have left: taken over, removed, or left alone.
//!
//! A run writes only to files that it made itself or took over by renaming them to a name of its own. It takes over only
//! from a run that is no more. On one host that is known. Elsewhere the sign of life is removed, and a run that does not give
//! it again for a while counts as gone; should it live after all, it finds another file, or none, under the name that it
//! uses, and does not trust what it had.

use std::time::{Duration, SystemTime};

use tokio::time::{Instant, sleep};
use whimbrel_engine::events::Event;
use whimbrel_engine::listing::{Object, ObjectKind, Timestamp, join};
use whimbrel_proto::op::Op;

use super::Wanted;
use super::keeper::Keeper;
use crate::client::run::{Owner, RunId};
use crate::client::target::Target;
use crate::client::temporary::{self, Name, Part};

/// A run of another host that gave no sign of life for so long is no more; several times the interval of such signs.
const SILENCE: Duration = Duration::from_secs(20);

/// How often signs of life are looked for.
const LOOKS: Duration = Duration::from_secs(1);

/// After so long without a change, what a run of another host has left is removed where nobody goes on with it.
const OLD: Duration = Duration::from_secs(86_400);

/// What a run has left.
#[derive(Debug, Clone)]
pub struct Left {
    path: Vec<u8>,
    name: Name,
    size: Option<u64>,
    modified: Option<Timestamp>,
    unique: Option<String>,
}

/// What is to become of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    /// Its run is no more.
    Free,
    /// Its run is at work, or may be.
    Left,
    /// Nobody can say without waiting for a sign of life.
    Asked,
}

impl Left {
    /// Of an entry of a directory; `None`: it is something else.
    fn of(directory: &[u8], object: Object) -> Option<Self> {
        let name = Name::parse(&object.path)?;
        let kind = if name.part == Part::Live { ObjectKind::Directory } else { ObjectKind::File };
        let path = join(directory, &object.path);
        let Object { size, modified, unique, .. } = object;
        (object.kind == kind).then_some(Self { path, name, size, modified, unique })
    }

    /// Whether it lies beside the bytes of an unfinished copy.
    fn is_beside(&self, bytes: &Self) -> bool {
        let same = |name: &Name| (name.run, name.version);
        bytes.name.part == Part::Bytes && self.name.stem == bytes.name.stem && same(&self.name) == same(&bytes.name)
    }

    /// Whether another run than this one has left it of the file in chunks that its names begin with.
    fn is_of_another(&self, stem: &[u8], run: RunId) -> bool {
        // A list may name a destination twice.
        self.name.stem == stem && self.name.version.is_some() && !self.name.run.is_of_run_of(run)
    }

    /// What removes it alone.
    fn removal(&self) -> Op {
        match self.name.part {
            Part::Bytes | Part::Kept => Op::Delete(self.path.clone()),
            Part::Live => Op::RemoveDirectory(self.path.clone()),
        }
    }

    /// What is to become of it, with `wanted`: it could be gone on with.
    fn fate(&self, owner: Owner, wanted: bool, now: SystemTime) -> Fate {
        match owner {
            Owner::Gone => Fate::Free,
            Owner::Here => Fate::Left,
            // Without knowing which file it is, a run that lives after all could not tell that it lost it.
            Owner::Elsewhere if wanted && self.unique.is_some() => Fate::Asked,
            Owner::Elsewhere if wanted || !self.is_old(now) => Fate::Left,
            Owner::Elsewhere => Fate::Free,
        }
    }

    fn is_old(&self, now: SystemTime) -> bool {
        let modified = self.modified.and_then(|time| u64::try_from(time.secs).ok()).map(Duration::from_secs);
        modified
            .is_some_and(|modified| now.duration_since(SystemTime::UNIX_EPOCH + modified).is_ok_and(|age| age >= OLD))
    }
}

impl Keeper {
    /// Takes over the most that a run which is no more has left of a file, and removes what else such runs left of it.
    /// Returns whether something was taken over.
    pub(super) async fn take_over(&mut self, target: &Target, wanted: &Wanted) -> bool {
        let (directory, stem) = temporary::stem(&wanted.destination);
        let mut left = self.survey(target, directory).await;
        left.retain(|left| left.is_of_another(&stem, wanted.run));
        left.sort_by_key(|left| std::cmp::Reverse(left.size));
        let (bytes, beside): (Vec<_>, Vec<_>) = left.into_iter().partition(|left| left.name.part == Part::Bytes);
        for lonely in beside.iter().filter(|beside| !bytes.iter().any(|bytes| beside.is_beside(bytes))) {
            if lonely.fate(lonely.name.run.owner(), false, SystemTime::now()) == Fate::Free {
                self.remove(target, lonely.removal()).await;
            }
        }
        let (mut taken, mut others) = (false, 0);
        for left in bytes {
            let fits = !taken && left.name.version == Some(wanted.version);
            let fate = match left.fate(left.name.run.owner(), fits, SystemTime::now()) {
                Fate::Asked if self.is_silent(target, &left).await => Fate::Free,
                Fate::Asked => Fate::Left,
                fate => fate,
            };
            match fate {
                Fate::Free if fits => taken = self.rename(target, &left, &wanted.name).await,
                Fate::Free => self.throw_away(target, &left.path).await,
                Fate::Left | Fate::Asked => others += 1,
            }
        }
        self.tell_of(directory, others);
        taken
    }

    /// Removes what runs that are no more left of whole files in a directory.
    pub(super) async fn tidy(&mut self, target: &Target, directory: &[u8]) {
        // Something may have come since.
        self.surveys.remove(&(target.clone(), directory.to_vec()));
        let mut left = self.survey(target, directory).await;
        left.retain(|left| left.name.version.is_none());
        let mut others = 0;
        for left in left {
            let owner = left.name.run.owner();
            match (owner, left.fate(owner, false, SystemTime::now())) {
                (_, Fate::Free) => self.remove(target, left.removal()).await,
                // Of another host nobody knows whether its run will ever end.
                (Owner::Elsewhere, _) => others += 1,
                _ => {}
            }
        }
        self.tell_of(directory, others);
    }

    /// What other runs have left in a directory; asked once.
    async fn survey(&mut self, target: &Target, directory: &[u8]) -> Vec<Left> {
        let key = (target.clone(), directory.to_vec());
        if let Some(known) = self.surveys.get(&key) {
            return known.clone();
        }
        let path = match directory {
            b"/" => directory,
            other => other.strip_suffix(b"/").unwrap_or(other),
        };
        let found = self.sessions.list(target, path, |object| Left::of(path, object)).await;
        self.surveys.insert(key, found.clone());
        found
    }

    /// Takes something over: of several that try, one succeeds.
    async fn rename(&mut self, target: &Target, left: &Left, name: &[u8]) -> bool {
        let to = |from: Vec<u8>, to: Vec<u8>| Op::Rename { from, to };
        if let Err(fault) = self.sessions.run(target, to(left.path.clone(), name.to_vec())).await {
            tracing::info!(%fault, "an unfinished copy cannot be taken over");
            return false;
        }
        if let Err(fault) = self.sessions.insist(target, &to(temporary::kept(&left.path), temporary::kept(name))).await
        {
            tracing::debug!(%fault, "nothing was kept beside it");
        }
        self.remove(target, Op::RemoveDirectory(temporary::live(&left.path))).await;
        true
    }

    /// Removes an unfinished copy and what lies beside it.
    pub(super) async fn throw_away(&mut self, target: &Target, name: &[u8]) {
        self.remove(target, Op::Delete(name.to_vec())).await;
        self.remove(target, Op::Delete(temporary::kept(name))).await;
        self.remove(target, Op::RemoveDirectory(temporary::live(name))).await;
    }

    /// Whether the run of an unfinished copy gives no sign of life, and nothing of the copy changes.
    async fn is_silent(&mut self, target: &Target, left: &Left) -> bool {
        let sign = temporary::live(&left.path);
        self.remove(target, Op::RemoveDirectory(sign.clone())).await;
        let Ok(Some(before)) = self.sessions.stat(target, &left.path).await else { return false };
        let until = Instant::now() + SILENCE;
        while Instant::now() < until {
            sleep(LOOKS).await;
            self.do_what_is_due().await;
            let unchanged = matches!(self.sessions.stat(target, &left.path).await, Ok(Some(now)) if now == before);
            let no_sign = matches!(self.sessions.stat(target, &sign).await, Ok(None));
            if !unchanged || !no_sign {
                return false;
            }
        }
        true
    }

    fn tell_of(&self, directory: &[u8], files: u64) {
        if files > 0 {
            self.news.borrow_mut().push(Event::OtherRuns { directory: directory.to_vec(), files });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::run::Run;

    fn left(unique: Option<&str>, age: Duration) -> Left {
        let name = Name { stem: b".f".to_vec(), run: RunId::fresh(), version: None, part: Part::Bytes };
        let modified = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap() - age;
        Left {
            path: b"/d/.f".to_vec(),
            name,
            size: Some(1),
            modified: Some(Timestamp::from_secs(modified.as_secs() as i64)),
            unique: unique.map(str::to_owned),
        }
    }

    #[test]
    fn only_what_a_run_that_is_no_more_has_left_is_touched() {
        let fate = |left: &Left, owner, wanted| left.fate(owner, wanted, SystemTime::now());
        let (young, old) = (left(Some("1-2"), Duration::from_secs(5)), left(Some("1-2"), OLD * 2));
        for wanted in [true, false] {
            assert_eq!(fate(&old, Owner::Here, wanted), Fate::Left);
            assert_eq!(fate(&young, Owner::Gone, wanted), Fate::Free);
        }
        assert_eq!(
            (fate(&young, Owner::Elsewhere, true), fate(&old, Owner::Elsewhere, true)),
            (Fate::Asked, Fate::Asked)
        );
        assert_eq!(
            (fate(&young, Owner::Elsewhere, false), fate(&old, Owner::Elsewhere, false)),
            (Fate::Left, Fate::Free)
        );
    }

    #[test]
    fn what_an_ended_run_of_this_process_left_is_free_and_each_at_work_keeps_its_own() {
        let [run, other, ended] = [(); 3].map(|()| Run::begin());
        let of = |run: &Run| {
            let name = temporary::of_chunks(b"f", run.of_file(2), b"0123456789abcdef");
            Left::of(b"/d", Object::file(name, 5)).unwrap()
        };
        let [own, theirs, free] = [of(&run), of(&other), of(&ended)];
        drop(ended);
        let fate = |left: &Left| left.fate(left.name.run.owner(), true, SystemTime::now());
        let is_of_another = |left: &Left| left.is_of_another(b".f", run.id());
        assert!(!is_of_another(&own) && is_of_another(&theirs) && is_of_another(&free));
        assert_eq!((fate(&theirs), fate(&free)), (Fate::Left, Fate::Free));
        assert!(!free.is_of_another(b".g", run.id()));
    }

    #[test]
    fn where_files_cannot_be_told_apart_nothing_of_another_host_is_taken_over() {
        let nameless = left(None, OLD * 2);
        assert_eq!(nameless.fate(Owner::Elsewhere, true, SystemTime::now()), Fate::Left);
    }

    #[test]
    fn of_a_directory_only_files_with_names_of_unfinished_copies_count() {
        let name = temporary::of_whole(b"f", RunId::fresh());
        let of = |object| Left::of(b"/d", object);
        assert_eq!(of(Object::file(name.clone(), 5)).unwrap().path, [b"/d/", &name[..]].concat());
        assert!(of(Object::directory(name.clone())).is_none() && of(Object::file("f", 5)).is_none());
        assert!(of(Object::symlink(name, "x")).is_none());
    }

    #[test]
    fn what_lies_beside_an_unfinished_copy_is_known_by_its_name() {
        let chunks = temporary::of_chunks(b"f", RunId::fresh(), b"0123456789abcdef");
        let of = |name: &[u8], kind| Left::of(b"/d", Object::bare(name, kind)).unwrap();
        let bytes = of(&chunks, ObjectKind::File);
        let (kept, live) = (temporary::kept(&chunks), temporary::live(&chunks));
        let (kept, live) = (of(&kept, ObjectKind::File), of(&live, ObjectKind::Directory));
        assert!(kept.is_beside(&bytes) && live.is_beside(&bytes) && !kept.is_beside(&live));
        assert!(matches!(live.removal(), Op::RemoveDirectory(_)) && matches!(kept.removal(), Op::Delete(_)));
        let other = temporary::kept(&temporary::of_chunks(b"f", RunId::fresh(), b"0123456789abcdef"));
        assert!(!of(&other, ObjectKind::File).is_beside(&bytes));
    }
}
