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
    hash_cpu: AtomicU64,
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
    /// Of this, on a processor.
    pub hash_cpu: Duration,
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

    /// Adds hashing, of which it is told apart what the thread waited for a processor.
    pub fn add_hashing(&self, span: Span) {
        self.add(Activity::Hash, span.passed);
        self.hash_cpu.fetch_add(nanoseconds(span.cpu), Relaxed);
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
            hash_cpu: time(&self.hash_cpu),
            cpu: time(&self.cpu),
            delay: time(&self.delay),
        }
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// Some of a thread's time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Span {
    /// That passed.
    pub passed: Duration,
    /// In which the thread had a processor.
    pub cpu: Duration,
}

impl Span {
    /// Without a part of it, which is taken to have had its share of the processor: asking the system in between would cost
    /// as much as a small part of the work itself.
    #[must_use]
    pub fn without(self, part: Duration) -> Self {
        let passed = self.passed.saturating_sub(part);
        let share = if self.passed.is_zero() { 0.0 } else { passed.div_duration_f64(self.passed) };
        Self { passed, cpu: self.cpu.mul_f64(share) }
    }
}

/// Fewer bytes are not worth the two system calls that tell a thread's time on its processor from what passed.
const WORTH_A_CALL: usize = 64 << 10;

/// Measures the calling thread.
#[derive(Debug)]
pub struct Stopwatch {
    began: Instant,
    /// `None`: all that passes is taken to be on a processor.
    cpu: Option<Duration>,
}

impl Stopwatch {
    /// Begins work on so many bytes.
    #[must_use]
    pub fn start(bytes: usize) -> Self {
        Self { began: Instant::now(), cpu: (bytes >= WORTH_A_CALL).then(thread_time) }
    }

    /// Since it began; on the same thread.
    pub fn elapsed(&self) -> Span {
        let passed = self.began.elapsed();
        Span { passed, cpu: self.cpu.map_or(passed, |before| thread_time().saturating_sub(before)) }
    }
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
                    let millis = Duration::from_millis;
                    let all = Span { passed: millis(4), cpu: millis(2) };
                    times.add_hashing(all.without(millis(3)));
                    assert_eq!(Span::default().without(millis(1)), Span::default());
                });
            }
        });
        let taken = times.taken();
        let (one, two) = (Duration::from_millis(1), Duration::from_millis(2));
        assert_eq!((taken.hash, taken.hash_cpu, taken.network), (two, one, Duration::ZERO));
        assert!(taken.threads >= taken.storage && taken.storage >= Duration::from_millis(2), "{taken:?}");
        assert!(taken.cpu < taken.threads, "{taken:?}");
    }
}
