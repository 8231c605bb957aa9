//! The task that keeps sidecars: one request after the other, and now and then what is due.

use std::collections::{HashMap, HashSet, VecDeque};
use std::time::Duration;

use tokio::sync::mpsc::UnboundedReceiver;
use tokio::time::{Instant, Interval, MissedTickBehavior, interval, timeout};
use whimbrel_engine::FaultCode;
use whimbrel_engine::journal::{self, Writer};
use whimbrel_engine::plan::ItemId;
use whimbrel_proto::op::Op;

use super::leftovers::Left;
use super::sessions::{Sessions, in_time};
use super::{Dialling, Found, News, Place, Request};
use crate::client::data;
use crate::client::target::Target;
use crate::client::temporary::{kept, live};
use crate::journaled::records;

/// Least time between two writes.
const EVERY: Duration = Duration::from_secs(1);

/// Time between two signs of life.
const BEAT: Duration = Duration::from_secs(5);

/// How long directories may be tidied when everything else is done.
const TIDYING: Duration = Duration::from_secs(2);

/// One sidecar.
struct Kept {
    place: Place,
    /// All of it, from its first byte.
    bytes: Vec<u8>,
    /// How much of that is written.
    written: usize,
    /// Whether something of that name is there.
    exists: bool,
}

/// The task.
pub struct Keeper {
    files: HashMap<ItemId, Kept>,
    /// Unfinished copies of which others are told that this run is at work.
    at_work: HashMap<ItemId, (Target, Vec<u8>)>,
    beaten: Instant,
    /// Those that nobody goes on with, though some session may still store a part of one.
    given_up: Vec<(Target, Vec<u8>)>,
    /// Names of this run that were used before.
    pub(super) used: HashSet<(Target, Vec<u8>)>,
    /// What lay in directories when it was looked for.
    pub(super) surveys: HashMap<(Target, Vec<u8>), Vec<Left>>,
    /// Directories to be tidied.
    untidy: VecDeque<(Target, Vec<u8>)>,
    pub(super) sessions: Sessions,
    pub(super) news: News,
}

impl Keeper {
    /// With nothing to do.
    pub fn new(dialling: Dialling) -> Self {
        Self {
            files: HashMap::new(),
            at_work: HashMap::new(),
            beaten: Instant::now(),
            given_up: Vec::new(),
            used: HashSet::new(),
            surveys: HashMap::new(),
            untidy: VecDeque::new(),
            news: dialling.news.clone(),
            sessions: Sessions::new(dialling),
        }
    }

    /// Works until nobody can ask any more.
    pub async fn run(mut self, mut requests: UnboundedReceiver<Request>) {
        let mut ticks = slow(EVERY);
        ticks.tick().await; // the first one is at once
        loop {
            tokio::select! {
                biased;
                request = requests.recv() => match request {
                    Some(request) => self.take(request).await,
                    None => break,
                },
                _ = ticks.tick() => self.do_what_is_due().await,
                () = std::future::ready(()), if !self.untidy.is_empty() => self.tidy_one().await,
            }
        }
        self.write_all().await;
        for (target, name) in std::mem::take(&mut self.given_up) {
            self.remove(&target, Op::Delete(name)).await;
        }
        let tidied = async {
            while !self.untidy.is_empty() {
                self.tidy_one().await;
            }
        };
        // The next run finds what is left.
        let _ = timeout(TIDYING, tidied).await;
    }

    /// What must not wait while something takes long.
    pub(super) async fn do_what_is_due(&mut self) {
        self.write_all().await;
        if self.beaten.elapsed() >= BEAT {
            self.beaten = Instant::now();
            for (target, name) in self.at_work.values().cloned().collect::<Vec<_>>() {
                self.beat(&target, &name).await;
            }
        }
    }

    /// Tells others that this run is at work on an unfinished copy; that it was told already is no fault.
    async fn beat(&mut self, target: &Target, name: &[u8]) {
        if let Err(fault) = self.sessions.run(target, Op::MakeDirectory(live(name))).await {
            tracing::trace!(%fault, "the sign of life is there, or cannot be given");
        }
    }

    async fn take(&mut self, request: Request) {
        match request {
            Request::Seek { item, target, wanted, answer } => {
                let first = self.used.insert((target.clone(), wanted.name.clone()));
                let there = !first || self.take_over(&target, &wanted).await;
                let found = if there { self.found(&target, &wanted.name).await } else { None };
                // The session that asked may be gone.
                let _ = answer.send(found);
                self.begin_work(item, target, wanted.name).await;
            }
            Request::Opened { item, target, name } => {
                self.used.insert((target.clone(), name.clone()));
                self.begin_work(item, target, name).await;
            }
            Request::Begin { item, place, proven, exists } => {
                let bytes = journal::encode_header(&place.header);
                let bytes = bytes
                    .zip(records(&place.header, &proven, Writer::ONLY))
                    .map(|(header, leaves)| [header, leaves].concat());
                // What was kept of a copy that is gone lies there still.
                let before = self.files.get(&item).filter(|kept| kept.place.name == place.name);
                let exists = exists || before.is_some_and(|kept| kept.exists);
                if let Some(bytes) = bytes {
                    self.files.insert(item, Kept { place, bytes, written: 0, exists });
                }
            }
            Request::Proven { item, leaves } => {
                if let Some(kept) = self.files.get_mut(&item)
                    && let Some(records) = records(&kept.place.header, &leaves, Writer::ONLY)
                {
                    kept.bytes.extend(records);
                }
            }
            Request::End { item, remove } => self.end(item, remove).await,
            Request::GiveUp { item } => self.give_up(item).await,
            Request::Discard { target, name } => self.remove(&target, Op::Delete(name)).await,
            Request::Tidy { target, directory } => self.untidy.push_back((target, directory)),
        }
    }

    async fn begin_work(&mut self, item: ItemId, target: Target, name: Vec<u8>) {
        self.beat(&target, &name).await;
        self.at_work.insert(item, (target, name));
    }

    async fn end(&mut self, item: ItemId, remove: bool) {
        match self.files.remove(&item) {
            Some(file) if remove && file.exists => {
                self.remove(&file.place.target, Op::Delete(kept(&file.place.name))).await;
            }
            Some(file) if !remove => {
                self.files.insert(item, file);
                self.write(item).await;
                self.files.remove(&item);
            }
            _ => {}
        }
        if let Some((target, name)) = self.at_work.remove(&item) {
            self.remove(&target, Op::RemoveDirectory(live(&name))).await;
        }
    }

    /// Removes all there is of a file, under names that only this run has.
    async fn give_up(&mut self, item: ItemId) {
        let Some((target, name)) = self.at_work.remove(&item) else { return self.end(item, true).await };
        self.files.remove(&item);
        self.throw_away(&target, &name).await;
        self.given_up.push((target, name));
    }

    /// What has the name of an unfinished copy.
    async fn found(&mut self, target: &Target, name: &[u8]) -> Option<Found> {
        let object = self.sessions.stat(target, name).await.ok().flatten()?;
        let size = object.size?;
        // What cannot be read may be there.
        let mut read = Some(Vec::new());
        if let Some(remote) = self.sessions.with(target).await {
            match in_time(data::fetch_file(remote, &kept(name))).await {
                Ok(bytes) => read = Some(bytes),
                Err(fault) if fault.code == FaultCode::NotFound => read = None,
                Err(fault) => self.sessions.judge(target, Err(fault)),
            }
        }
        Some(Found { size, unique: object.unique, kept: read })
    }

    async fn write_all(&mut self) {
        for item in self.files.keys().copied().collect::<Vec<_>>() {
            self.write(item).await;
        }
    }

    /// Writes what is new; all of it after a failure, since nobody knows what came of that.
    async fn write(&mut self, item: ItemId) {
        let Some(mut file) = self.files.remove(&item) else { return };
        let (from, leaves) = (file.written, file.bytes.len());
        let header = journal::encode_header(&file.place.header).map_or(0, |header| header.len());
        if from < leaves
            && leaves > header
            && let Some(remote) = self.sessions.with(&file.place.target).await
        {
            let stored = in_time(data::store(remote, &kept(&file.place.name), from as u64, &file.bytes[from..])).await;
            file.exists = true;
            file.written = if stored.is_ok() { leaves } else { 0 };
            self.sessions.judge(&file.place.target, stored);
        }
        self.files.insert(item, file);
    }

    /// Removes something; that it is gone, or cannot be removed, is no fault.
    pub(super) async fn remove(&mut self, target: &Target, op: Op) {
        if let Err(fault) = self.sessions.insist(target, &op).await {
            tracing::debug!(%fault, "it is gone, or stays");
        }
    }

    async fn tidy_one(&mut self) {
        if let Some((target, directory)) = self.untidy.pop_front() {
            self.tidy(&target, &directory).await;
        }
    }
}

fn slow(every: Duration) -> Interval {
    let mut ticks = interval(every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
    use tokio::net::TcpListener;
    use tokio::sync::mpsc::unbounded_channel;
    use whimbrel_engine::journal::Header;

    use super::*;
    use crate::client::target::SessionOptions;

    fn keeper() -> Keeper {
        let session = SessionOptions::default();
        Keeper::new(Dialling { dtns: Rc::default(), hosts: Rc::default(), session, news: News::default() })
    }

    /// A server that takes one connection and does whatever it is told; the lines by which it is told to remove something.
    async fn obedient() -> (Target, UnboundedReceiver<String>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let target = Target::anonymous("127.0.0.1", listener.local_addr().unwrap().port());
        let (told, removals) = unbounded_channel();
        tokio::spawn(async move {
            let (stream, _) = listener.accept().await.unwrap();
            let (reading, mut writing) = stream.into_split();
            writing.write_all(b"220 Ready\r\n").await.unwrap();
            let mut lines = BufReader::new(reading).lines();
            while let Ok(Some(line)) = lines.next_line().await {
                let reply = match line.split(' ').next().unwrap() {
                    "USER" => "331 Password, please.\r\n",
                    "PASS" => "230 Welcome.\r\n",
                    "FEAT" => "211-Extensions\r\n SIZE\r\n211 End\r\n",
                    "TYPE" => "200 Type set.\r\n",
                    "MKD" => "257 \"/d\" Made.\r\n",
                    "DELE" | "RMD" => "250 Gone.\r\n",
                    _ => "500 What?\r\n",
                };
                if reply.starts_with("250") {
                    told.send(line).unwrap();
                }
                if writing.write_all(reply.as_bytes()).await.is_err() {
                    return;
                }
            }
        });
        (target, removals)
    }

    /// What has come by now.
    fn so_far(removals: &mut UnboundedReceiver<String>) -> Vec<String> {
        std::iter::from_fn(|| removals.try_recv().ok()).collect()
    }

    #[tokio::test]
    async fn what_was_stored_of_a_source_that_changed_is_removed_at_once_and_once_more_in_the_end() {
        let (target, mut removals) = obedient().await;
        let mut keeper = keeper();
        let (changed, failed) = (ItemId(1), ItemId(2));
        for (item, name) in [(changed, "/d/.f"), (failed, "/d/.g")] {
            keeper.take(Request::Opened { item, target: target.clone(), name: name.into() }).await;
        }
        keeper.take(Request::GiveUp { item: changed }).await;
        assert_eq!(so_far(&mut removals), ["DELE /d/.f", "DELE /d/.f-kept", "RMD /d/.f-live"]);
        keeper.take(Request::End { item: failed, remove: false }).await;
        assert_eq!(so_far(&mut removals), ["RMD /d/.g-live"], "the next run goes on with it");
        // Meanwhile some session may have stored a part of it.
        let (asking, requests) = unbounded_channel();
        drop(asking);
        keeper.run(requests).await;
        assert_eq!(so_far(&mut removals), ["DELE /d/.f"]);
    }

    #[tokio::test]
    async fn what_was_written_between_two_beginnings_is_not_forgotten() {
        let mut keeper = keeper();
        let item = ItemId(1);
        let header = Header { size: 5, modified: None, leaf: 4096, algorithm: "MD5".into() };
        let place = Place { target: Target::anonymous("localhost", 1), name: b"/d/.f".to_vec(), header };
        let begin = |place: &Place, exists| Request::Begin { item, place: place.clone(), proven: Vec::new(), exists };
        keeper.take(begin(&place, false)).await;
        assert!(!keeper.files[&item].exists);
        // As a write does, while the file is opened anew and nothing was found beside it.
        keeper.files.get_mut(&item).unwrap().exists = true;
        keeper.take(begin(&place, false)).await;
        assert!(keeper.files[&item].exists, "it would never be removed");
        keeper.take(begin(&Place { name: b"/d/.g".to_vec(), ..place }, false)).await;
        assert!(!keeper.files[&item].exists, "of another name nothing is known");
    }
}
