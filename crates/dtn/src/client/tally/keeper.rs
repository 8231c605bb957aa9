//! The task that keeps a tally: now and then what is done is made durable, then written down.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use tokio::sync::mpsc::UnboundedReceiver;
use tokio::sync::oneshot;
use tokio::time::{MissedTickBehavior, interval_at};
use whimbrel_engine::tally::{MOST_FILES, Mark, encode_files};

use super::home::Home;
use crate::client::options::Place;
use crate::client::sidecar::Dialling;

/// Least time between two writes.
const EVERY: Duration = Duration::from_secs(1);

/// A storage that takes long to write everything out is left alone for so many times as long.
const REST: u32 = 4;

/// Failures in a row after which nothing more is kept.
const PATIENCE: u32 = 3;

/// A file that is done.
pub struct Done {
    /// What the tally calls it.
    pub mark: Mark,
    /// The directory of its copy.
    pub directory: Vec<u8>,
}

/// The task.
pub struct Keeper {
    home: Home,
    /// What is to be written first.
    head: Vec<u8>,
    /// Bytes of the tally that stand.
    at: u64,
    /// Whether a tally is there, or may be.
    exists: bool,
    /// What is done and not written, by the directory it lies in.
    pending: HashMap<Vec<u8>, Vec<Mark>>,
    files: usize,
    failures: u32,
}

impl Keeper {
    /// One that begins with `head` behind the first `at` bytes of what is there, if anything `exists`.
    pub fn new(dialling: Dialling, place: Place, head: Vec<u8>, at: u64, exists: bool) -> Self {
        let home = Home::new(dialling, place);
        Self { home, head, at, exists, pending: HashMap::new(), files: 0, failures: 0 }
    }

    /// Works until it is told that the copy has ended.
    pub async fn run(mut self, mut done: UnboundedReceiver<Done>, mut ended: oneshot::Receiver<bool>) {
        let mut ticks = interval_at(tokio::time::Instant::now() + EVERY, EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut rested = Instant::now();
        let complete = loop {
            tokio::select! {
                biased;
                complete = &mut ended => break complete.unwrap_or(false),
                Some(file) = done.recv() => self.take(file),
                _ = ticks.tick(), if self.failures < PATIENCE => {
                    let began = Instant::now();
                    if began >= rested && self.has_news() {
                        // Storage may take long; who has nothing more to do does not wait for that.
                        let durable = tokio::select! {
                            biased;
                            complete = &mut ended => {
                                self.home.hang_up();
                                break complete.unwrap_or(false);
                            }
                            durable = self.home.make_durable(self.pending.keys()) => durable,
                        };
                        self.write(&durable).await;
                        rested = Instant::now() + began.elapsed() * REST;
                    }
                }
            }
        };
        if complete {
            if self.exists {
                self.home.remove().await;
            }
            return;
        }
        while let Ok(file) = done.try_recv() {
            self.take(file);
        }
        if self.failures < PATIENCE && self.has_news() {
            let durable = self.home.make_durable(self.pending.keys()).await;
            self.write(&durable).await;
        }
    }

    /// Whether something is to be written: files, or that this copy is under way.
    fn has_news(&self) -> bool {
        self.at == 0 || !self.pending.is_empty()
    }

    fn take(&mut self, file: Done) {
        // What was kept until then still holds; the rest would only cost memory.
        if self.failures < PATIENCE && self.files < MOST_FILES {
            self.files += 1;
            self.pending.entry(file.directory).or_default().push(file.mark);
        }
    }

    /// Writes down what is new. After a failure it is written once more: nobody knows what came of that.
    async fn write(&mut self, durable: &HashSet<Vec<u8>>) {
        let (mut kept, mut perhaps) = (Vec::new(), Vec::new());
        for (directory, marks) in &self.pending {
            let of = if durable.contains(directory) { &mut kept } else { &mut perhaps };
            of.extend_from_slice(marks);
        }
        let bytes = [&self.head[..], &encode_files(&kept, true), &encode_files(&perhaps, false)].concat();
        let existed = std::mem::replace(&mut self.exists, true);
        if self.home.store(self.at, &bytes, existed).await {
            self.at += bytes.len() as u64;
            self.head.clear();
            self.pending.clear();
            self.failures = 0;
        } else {
            self.failures += 1;
        }
    }
}
