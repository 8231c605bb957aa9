//! Where the threads of a transfer spend their time.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use whimbrel_sys::thread_time::{thread_delay, thread_time};

/// What a thread of a transfer does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Activity {
    /// In a call that reads or writes storage.
    Storage,
    /// Waiting until data connections take or bring something.
    Network,
    /// Hashing.
    Hash,
}

/// Sums over all threads of one transfer, in nanoseconds; any thread adds.
#[derive(Debug, Default)]
pub struct Times {
    began: OnceLock<Instant>,
    threads: AtomicU64,
    storage: AtomicU64,
    network: AtomicU64,
    hash: AtomicU64,
    cpu: AtomicU64,
    delay: AtomicU64,
}

/// [`Times`] as of some moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TimesTaken {
    /// Since the first thread began; zero before.
    pub took: Duration,
    /// What the threads had in all.
    pub threads: Duration,
    /// In calls that read or write storage.
    pub storage: Duration,
    /// Waiting for data connections.
    pub network: Duration,
    /// Hashing.
    pub hash: Duration,
    /// On a processor.
    pub cpu: Duration,
    /// Kept waiting for a processor, whatever was under way.
    pub delay: Duration,
}

impl Times {
    /// Adds to an activity.
    pub fn add(&self, activity: Activity, time: Duration) {
        let sum = match activity {
            Activity::Storage => &self.storage,
            Activity::Network => &self.network,
            Activity::Hash => &self.hash,
        };
        sum.fetch_add(nanoseconds(time), Relaxed);
    }

    /// Does `work`, whose time is that of an activity.
    pub fn timed<T>(&self, activity: Activity, work: impl FnOnce() -> T) -> T {
        let began = Instant::now();
        let result = work();
        self.add(activity, began.elapsed());
        result
    }

    /// Counts the calling thread as working for the transfer until the answer is dropped.
    pub fn on_thread(&self) -> OnThread<'_> {
        let began = Instant::now();
        self.began.get_or_init(|| began);
        OnThread { times: self, began, cpu: thread_time(), delay: thread_delay() }
    }

    /// The sums so far; threads at work count only what they have left behind.
    pub fn taken(&self) -> TimesTaken {
        let time = |sum: &AtomicU64| Duration::from_nanos(sum.load(Relaxed));
        TimesTaken {
            took: self.began.get().map_or(Duration::ZERO, Instant::elapsed),
            threads: time(&self.threads),
            storage: time(&self.storage),
            network: time(&self.network),
            hash: time(&self.hash),
            cpu: time(&self.cpu),
            delay: time(&self.delay),
        }
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// A thread at work.
#[derive(Debug)]
pub struct OnThread<'a> {
    times: &'a Times,
    began: Instant,
    cpu: Duration,
    delay: Duration,
}

impl Drop for OnThread<'_> {
    fn drop(&mut self) {
        self.times.threads.fetch_add(nanoseconds(self.began.elapsed()), Relaxed);
        self.times.cpu.fetch_add(nanoseconds(thread_time().saturating_sub(self.cpu)), Relaxed);
        self.times.delay.fetch_add(nanoseconds(thread_delay().saturating_sub(self.delay)), Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn activities_of_all_threads_add_up() {
        let times = Times::default();
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    let _working = times.on_thread();
                    times.timed(Activity::Storage, || std::thread::park_timeout(Duration::from_millis(20)));
                    times.add(Activity::Hash, Duration::from_millis(1));
                });
            }
        });
        let taken = times.taken();
        assert_eq!((taken.hash, taken.network), (Duration::from_millis(2), Duration::ZERO));
        assert!(taken.threads >= taken.storage && taken.storage >= Duration::from_millis(2), "{taken:?}");
        assert!(taken.cpu < taken.threads, "{taken:?}");
    }
}
