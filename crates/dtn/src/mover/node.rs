//! What all movers of a data process share.

use std::net::IpAddr;
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use whimbrel_connector::Connector;
use whimbrel_engine::Fault;
use whimbrel_transport::leaves::Permits;
use whimbrel_transport::{Pool, PoolLimits, Progress, RateLimit};

use super::books::Books;
use super::chunk;
use super::codec::{self, FrameWriter};
use super::credential::Authorities;
use super::ledger::{Ledger, Rates};
use super::log::TransferLog;
use super::message::{DataSettings, FromMover, Identity, Load, Transfers};
use super::ruled::Ruled;
use super::running::{self, Meter, Running};
use super::stats::{self, Stats, Way};
use super::ticker::{Tick, Ticker};

/// Shortest time between two load reports.
const LOAD_INTERVAL: Duration = Duration::from_millis(500);

/// Buffers of the pool; bigger ones gain nothing measurable.
const BUFFER_SIZE: usize = 256 << 10;

/// Most buffers for checksums of stored files: more at once than storage serves well.
const HASH_BUFFERS: usize = 16;

/// One data process as a login may use it.
pub struct Node {
    /// The storage, under the login's rules.
    pub connector: Arc<dyn Connector>,
    /// Files being written in chunks.
    pub chunked: chunk::Files,
    /// The speed limits of its user, if there are any.
    rates: Option<Arc<Rates>>,
    shared: Arc<Shared>,
}

impl Deref for Node {
    type Target = Arc<Shared>;

    fn deref(&self) -> &Arc<Shared> {
        &self.shared
    }
}

impl Shared {
    /// Whether whole files must survive a crash before they are answered: because the client wants it, or the administrator.
    pub fn keeps_durable(&self, wanted: bool) -> bool {
        wanted || self.settings.sync_writes
    }
}

/// What all logins of one data process share: settings, buffers, counters, the way to the front.
pub struct Shared {
    /// The administrator's configuration.
    pub settings: DataSettings,
    /// Payload buffers.
    pub pool: Pool,
    /// For reading back and hashing: as many at once as there are processors.
    pub hashing: Permits,
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
    /// Files in chunks that its movers write.
    pub writing: chunk::Writing,
    /// Whom certificates of data connections must come from.
    pub authorities: Authorities,
    /// What users have used of what they may.
    ledger: Ledger,
    /// Transfers under way.
    running: Mutex<Vec<Running>>,
    next_transfer: AtomicU64,
    load: Arc<LoadReport>,
}

impl Node {
    /// Prepares everything that movers share.
    pub fn new(
        settings: DataSettings,
        connector: Arc<dyn Connector>,
        Books { ledger, log }: Books,
        writer: FrameWriter,
        link_ip: Option<IpAddr>,
    ) -> Result<Self, Fault> {
        let buffers = (settings.pool_bytes / BUFFER_SIZE as u64).clamp(2, 1 << 20) as usize;
        let pool = Pool::new(PoolLimits {
            buffer_size: BUFFER_SIZE,
            send: buffers,
            receive: buffers,
            hash: buffers.min(HASH_BUFFERS),
            ..PoolLimits::default()
        })?;
        let start = |name| Ticker::start(name).map_err(|error| Fault::from_io(error, "start ticker"));
        let processors = std::thread::available_parallelism().map_or(1, |n| n.get());
        let shared = Shared {
            log,
            ticker: start("ticker")?,
            flusher: start("flusher")?,
            load: Arc::new(LoadReport::default()),
            stats: Stats::default(),
            authorities: Authorities::new(&settings),
            settings,
            pool,
            writer,
            link_ip,
            hashing: Permits::new(processors),
            writing: chunk::Writing::default(),
            processors,
            ledger,
            running: Mutex::default(),
            next_transfer: AtomicU64::new(1),
        };
        Ok(Self { connector, chunked: chunk::Files::default(), rates: None, shared: Arc::new(shared) })
    }

    /// The same as one login may use it; itself where nothing is forbidden or limited.
    pub fn of_login(self: &Arc<Self>, identity: &Identity) -> Arc<Self> {
        let Identity { user, rules, .. } = identity;
        let quota = rules.quota.map(|limit| self.ledger.quota(user, limit));
        let rates = rules.bandwidth.map(|limit| self.ledger.rates(user, limit));
        let free = quota.is_none() && rules.paths.is_free();
        if free && rates.is_none() {
            return self.clone();
        }
        let connector = match free {
            true => self.connector.clone(),
            false => Arc::new(Ruled::new(self.connector.clone(), rules.paths.clone(), quota)),
        };
        Arc::new(Self { connector, chunked: chunk::Files::default(), rates, shared: self.shared.clone() })
    }

    /// The speed limit of one direction; `None`: there is none.
    pub fn rate(&self, way: Way) -> Option<&RateLimit> {
        self.rates.as_ref().map(|rates| rates.of(way))
    }
}

impl Shared {
    /// Makes sure that a load report will follow; to be called after counters changed.
    pub fn load_changed(self: &Arc<Self>) {
        if self.load.scheduled.swap(true, Ordering::AcqRel) {
            return;
        }
        let tick = LoadTick(Arc::downgrade(self));
        self.ticker.every(LOAD_INTERVAL, Arc::new(tick)).detach();
    }

    /// Counts a transfer that begins; `kind` is its command, `expected` the bytes to move where known.
    pub fn transfer_begins(
        self: &Arc<Self>,
        way: Way,
        kind: &'static str,
        expected: Option<u64>,
        progress: &Arc<Progress>,
    ) {
        self.stats.began();
        let id = self.next_transfer.fetch_add(1, Ordering::Relaxed);
        self.running().push(Running::new(id, way, kind, expected, progress.clone()));
        self.load_changed();
    }

    /// Counts a transfer that has ended.
    pub fn transfer_ends(self: &Arc<Self>, progress: &Arc<Progress>, well: bool) {
        let mut running = self.running();
        if let Some(at) = running.iter().position(|one| one.is(progress)) {
            running.swap_remove(at).count(&self.stats);
        }
        drop(running);
        self.stats.ended(well);
        self.load_changed();
    }

    fn running(&self) -> MutexGuard<'_, Vec<Running>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends a report if there is anything new; whether there was, or will be while a transfer runs.
    fn report_load(&self) -> bool {
        let mut last = self.load.last.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        let mut running = self.running();
        let busy = !running.is_empty();
        let (transfers, in_use) = running::look(&mut running, now, LOAD_INTERVAL, &self.stats);
        drop(running);
        let pool = self.pool.stats();
        let mut load = self.stats.take();
        load.channels_open += in_use;
        load.pool_bytes = ((pool.send + pool.receive) * self.pool.buffer_size()) as u64;
        (load.receive_rate, load.send_rate) = last.rates(now, &load);
        let mut frames = Vec::new();
        if stats::worth_reporting(&last.load, &load) {
            codec::encode(&FromMover::Load(load.clone()), &mut frames).expect("a load report is short");
            last.load = load;
        }
        if last.transfers != transfers {
            let message = FromMover::Transfers(Box::new(transfers.clone()));
            codec::encode(&message, &mut frames).expect("a report of transfers has a limit");
            last.transfers = transfers;
        }
        drop(last);
        if frames.is_empty() {
            return busy;
        }
        self.writer.send(&frames);
        true
    }
}

#[derive(Default)]
struct LoadReport {
    scheduled: AtomicBool,
    last: Mutex<LastReport>,
}

/// What was reported last.
#[derive(Default)]
struct LastReport {
    load: Load,
    transfers: Transfers,
    received: (u64, Meter),
    sent: (u64, Meter),
}

impl LastReport {
    /// Bytes received and sent per second with what `news` counts.
    fn rates(&mut self, now: Instant, news: &Load) -> (u64, u64) {
        let rate = |(total, meter): &mut (u64, Meter), bytes| {
            *total += bytes;
            meter.look(now, LOAD_INTERVAL, *total);
            meter.rate()
        };
        (rate(&mut self.received, news.bytes_received), rate(&mut self.sent, news.bytes_sent))
    }
}

/// Reports as long as something changes, then leaves the process asleep.
struct LoadTick(std::sync::Weak<Shared>);

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
