//! What all movers of a data process share.

use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use whimbrel_connector::Connector;
use whimbrel_engine::Fault;
use whimbrel_transport::{Pool, PoolLimits, Progress};

use super::codec::FrameWriter;
use super::log::TransferLog;
use super::message::{DataSettings, FromMover, Load};
use super::stats::{self, Stats, Way};
use super::ticker::{Tick, Ticker};

/// Shortest time between two load reports.
const LOAD_INTERVAL: Duration = Duration::from_millis(500);

/// Buffers of the pool; bigger ones gain nothing measurable.
const BUFFER_SIZE: usize = 256 << 10;

/// One data process: settings, storage, buffers, counters, the way to the front.
pub struct Node {
    /// The administrator's configuration.
    pub settings: DataSettings,
    /// The one storage.
    pub connector: Arc<dyn Connector>,
    /// Payload buffers.
    pub pool: Pool,
    /// Counters.
    pub stats: Stats,
    /// Performance notices and load reports.
    pub ticker: Ticker,
    /// Range notices that must flush storage first, which may take long.
    pub flusher: Ticker,
    /// Transfer log.
    pub log: TransferLog,
    /// To the front.
    pub writer: FrameWriter,
    /// This host's address as the front's host sees it; `None` on the same host.
    pub link_ip: Option<IpAddr>,
    /// Processors; asked once, because the answer takes a dozen system calls.
    pub processors: usize,
    /// Transfers under way.
    running: Mutex<Vec<Running>>,
    load: Arc<LoadReport>,
}

impl Node {
    /// Prepares everything that movers share.
    pub fn new(
        settings: DataSettings,
        connector: Arc<dyn Connector>,
        writer: FrameWriter,
        link_ip: Option<IpAddr>,
    ) -> Result<Self, Fault> {
        let buffers = (settings.pool_bytes / BUFFER_SIZE as u64).clamp(2, 1 << 20) as usize;
        let pool = Pool::new(PoolLimits {
            buffer_size: BUFFER_SIZE,
            send: buffers,
            receive: buffers,
            ..PoolLimits::default()
        })?;
        let start = |name| Ticker::start(name).map_err(|error| Fault::from_io(error, "start ticker"));
        Ok(Self {
            log: TransferLog::open(&settings)?,
            ticker: start("ticker")?,
            flusher: start("flusher")?,
            load: Arc::new(LoadReport::default()),
            stats: Stats::default(),
            settings,
            connector,
            pool,
            writer,
            link_ip,
            processors: std::thread::available_parallelism().map_or(1, |n| n.get()),
            running: Mutex::default(),
        })
    }

    /// Makes sure that a load report will follow; to be called after counters changed.
    pub fn load_changed(self: &Arc<Self>) {
        if self.load.scheduled.swap(true, Ordering::AcqRel) {
            return;
        }
        let tick = LoadTick(Arc::downgrade(self));
        self.ticker.every(LOAD_INTERVAL, Arc::new(tick)).detach();
    }

    /// Counts a transfer that begins.
    pub fn transfer_begins(self: &Arc<Self>, way: Way, progress: &Arc<Progress>) {
        self.stats.began();
        let running = Running { way, progress: progress.clone(), counted: 0 };
        self.running().push(running);
        self.load_changed();
    }

    /// Counts a transfer that has ended.
    pub fn transfer_ends(self: &Arc<Self>, progress: &Arc<Progress>, well: bool) {
        let mut running = self.running();
        if let Some(at) = running.iter().position(|one| Arc::ptr_eq(&one.progress, progress)) {
            running.swap_remove(at).count(&self.stats);
        }
        drop(running);
        self.stats.ended(well);
        self.load_changed();
    }

    fn running(&self) -> MutexGuard<'_, Vec<Running>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends a report if there is anything new; whether there was.
    fn report_load(&self) -> bool {
        for one in self.running().iter_mut() {
            one.count(&self.stats);
        }
        let pool = self.pool.stats();
        let bytes = (pool.send + pool.receive) * self.pool.buffer_size();
        let now = self.stats.take(bytes as u64);
        let mut last = self.load.last.lock().unwrap_or_else(PoisonError::into_inner);
        let news = stats::worth_reporting(&last, &now);
        *last = now.clone();
        drop(last);
        if news {
            let message = FromMover::Load(now);
            self.writer.send_message(&message).expect("a load report is short");
        }
        news
    }
}

/// A transfer under way, with the bytes that are in the counters already.
struct Running {
    way: Way,
    progress: Arc<Progress>,
    counted: u64,
}

impl Running {
    fn count(&mut self, stats: &Stats) {
        let now = self.progress.bytes();
        stats.moved(self.way, now.saturating_sub(self.counted));
        self.counted = now;
    }
}

#[derive(Default)]
struct LoadReport {
    scheduled: AtomicBool,
    last: Mutex<Load>,
}

/// Reports as long as something changes, then leaves the process asleep.
struct LoadTick(std::sync::Weak<Node>);

impl Tick for LoadTick {
    fn tick(&self) -> bool {
        let Some(node) = self.0.upgrade() else {
            return false;
        };
        if node.report_load() {
            return true;
        }
        node.load.scheduled.store(false, Ordering::Release);
        // A change between the report and the store has found the report scheduled.
        if node.report_load() && !node.load.scheduled.swap(true, Ordering::AcqRel) {
            return true;
        }
        false
    }
}
