//! One thread that does small things at intervals for all transfers of a process.

use std::collections::HashMap;
use std::io;
use std::panic::{self, AssertUnwindSafe};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Shortest interval: a client may ask for less, but not get it.
const MIN_INTERVAL: Duration = Duration::from_millis(100);

const STACK: usize = 256 << 10;

/// Something done at intervals.
pub trait Tick: Send + Sync {
    /// Does it; `false` ends it. Must be short: all ticks share a thread.
    fn tick(&self) -> bool;
}

/// The thread; stops when dropped.
pub struct Ticker {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

/// A running tick; dropping it ends it, though one call may still be under way.
pub struct Ticking {
    shared: Arc<Shared>,
    key: u64,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    entries: HashMap<u64, Entry>,
    next_key: u64,
    wake_at: Option<Instant>,
    stop: bool,
}

struct Entry {
    due: Instant,
    interval: Duration,
    task: Arc<dyn Tick>,
}

impl Ticker {
    /// Starts the thread.
    pub fn start(name: &str) -> io::Result<Self> {
        let shared = Arc::new(Shared::default());
        let for_thread = shared.clone();
        let thread = thread::Builder::new().name(name.to_owned()).stack_size(STACK).spawn(move || for_thread.run())?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// Calls `task` every `interval` (at least 100 ms), first after one interval.
    pub fn every(&self, interval: Duration, task: Arc<dyn Tick>) -> Ticking {
        let interval = interval.max(MIN_INTERVAL);
        let due = Instant::now() + interval;
        let mut state = self.shared.lock();
        let key = state.next_key;
        state.next_key += 1;
        state.entries.insert(key, Entry { due, interval, task });
        // A thread that wakes before `due` anyway is left alone: no system call per small file.
        if state.wake_at.is_none_or(|at| due < at) {
            state.wake_at = Some(due);
            self.shared.changed.notify_one();
        }
        Ticking { shared: self.shared.clone(), key }
    }
}

impl Drop for Ticker {
    fn drop(&mut self) {
        self.shared.lock().stop = true;
        self.shared.changed.notify_one();
        // The last owner may be a tick, on the very thread, which ends by itself then.
        if let Some(thread) = self.thread.take().filter(|thread| thread.thread().id() != thread::current().id()) {
            // A tick that panicked has been reported by the panic hook.
            let _ = thread.join();
        }
    }
}

impl Ticking {
    /// Lets the tick go on until it ends itself.
    pub fn detach(self) {
        std::mem::forget(self);
    }
}

impl Drop for Ticking {
    fn drop(&mut self) {
        self.shared.lock().entries.remove(&self.key);
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // Every change of the state is one step, so a panic leaves it usable.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self) {
        let mut state = self.lock();
        while !state.stop {
            let due = state.take_due(Instant::now());
            if due.is_empty() {
                state = self.wait(state);
                continue;
            }
            drop(state);
            let ended: Vec<u64> = due.iter().filter(|(_, task)| !goes_on(task.as_ref())).map(|&(key, _)| key).collect();
            state = self.lock();
            for key in ended {
                state.entries.remove(&key);
            }
        }
    }

    fn wait<'a>(&self, mut state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        state.wake_at = state.entries.values().map(|entry| entry.due).min();
        match state.wake_at {
            None => self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
            Some(at) => {
                let pause = at.saturating_duration_since(Instant::now());
                self.changed.wait_timeout(state, pause).unwrap_or_else(PoisonError::into_inner).0
            }
        }
    }
}

/// Whether the task wants to be called again; one that panicked does not, and harms no other.
fn goes_on(task: &dyn Tick) -> bool {
    panic::catch_unwind(AssertUnwindSafe(|| task.tick())).unwrap_or(false)
}

impl State {
    /// The tasks that are due, each put off by its interval.
    fn take_due(&mut self, now: Instant) -> Vec<(u64, Arc<dyn Tick>)> {
        let mut due = Vec::new();
        for (&key, entry) in &mut self.entries {
            if entry.due <= now {
                entry.due = now + entry.interval;
                due.push((key, entry.task.clone()));
            }
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Sender, channel};

    use super::*;

    struct Count(Mutex<(u32, Sender<u32>)>, u32);

    impl Tick for Count {
        fn tick(&self) -> bool {
            let mut state = self.0.lock().unwrap();
            state.0 += 1;
            let count = state.0;
            // The receiver may be gone when the test has seen enough.
            let _ = state.1.send(count);
            count < self.1
        }
    }

    #[test]
    fn ticks_come_until_they_end_themselves_and_a_later_one_still_works() {
        let ticker = Ticker::start("test").unwrap();
        for _ in 0..2 {
            let (sender, receiver) = channel();
            let task = Arc::new(Count(Mutex::new((0, sender)), 2));
            let _ticking = ticker.every(Duration::ZERO, task);
            assert_eq!(receiver.iter().take(2).collect::<Vec<_>>(), [1, 2]);
        }
    }

    struct Last(Mutex<Option<Ticker>>, Sender<u32>);

    impl Tick for Last {
        fn tick(&self) -> bool {
            drop(self.0.lock().unwrap().take());
            self.1.send(1).unwrap();
            panic!("on purpose");
        }
    }

    #[test]
    fn a_tick_may_be_the_last_owner_of_its_ticker_and_may_panic() {
        let ticker = Ticker::start("test").unwrap();
        let (sender, receiver) = channel();
        let last = Arc::new(Last(Mutex::new(None), sender));
        ticker.every(Duration::ZERO, last.clone()).detach();
        *last.0.lock().unwrap() = Some(ticker);
        drop(last);
        assert_eq!(receiver.recv(), Ok(1));
        assert!(receiver.recv().is_err(), "the thread ended and released the task");
    }

    #[test]
    fn a_dropped_tick_is_forgotten() {
        let ticker = Ticker::start("test").unwrap();
        let (sender, receiver) = channel();
        let task = Arc::new(Count(Mutex::new((0, sender)), 9));
        drop(ticker.every(Duration::from_secs(3600), task));
        assert!(receiver.recv().is_err(), "the task was released");
    }
}
