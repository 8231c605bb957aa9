//! Measuring storage and network, each alone or together (SITE PROBE, ERET M and D, ESTO M and D).
//!
//! What is written goes to files without a name: the system removes them, whatever becomes of this process.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use whimbrel_connector::{Follow, Kind, ReadAt, ReadsFrom, Receipt, StoragePath, WriteAt};
use whimbrel_engine::{Fault, FaultCode, RangeSet, Side};
use whimbrel_proto::op::{Bounds, Fact, Outcome, Probe, ProbeKind, Spent};
use whimbrel_transport::{BlockSource, Progress};

use super::audit;
use super::command::resolve;
use super::dial::in_parallel;
use super::failure::Problem;
use super::spent::{self, micros};
use super::transfer::{Markers, Transfer};
use super::worker::Task;
use super::{receive, send};
use crate::mover::stats::Way;

/// Bytes read or written in one call, as transfers do.
const BLOCK: usize = 256 << 10;

/// Threads that read or write at once, as many as a transfer has on a host of that many processors.
const MOST_THREADS: usize = 4;

/// Most bytes of a temporary file that is made to be read.
const MOST_MADE: u64 = 1 << 30;

/// Longest time to make it; the peer of a transfer waits meanwhile.
const LONGEST_MADE: Duration = Duration::from_secs(10);

/// What a receiver allows a sender beyond the time it was asked for.
const GRACE: Duration = Duration::from_secs(30);

/// Carries out a probe.
pub fn run(task: &mut Task<'_>, probe: &Probe) -> Result<Outcome, Problem> {
    let path = resolve(&probe.path)?;
    match probe.kind {
        ProbeKind::Host => host(task, &path),
        ProbeKind::Read => read(task, probe, &path),
        ProbeKind::Write => write(task, probe, &path),
        ProbeKind::Send { storage } => send_over(task, probe, &path, storage),
        ProbeKind::Receive { storage } => receive_over(task, probe, &path, storage),
    }
}

fn host(task: &Task<'_>, path: &StoragePath) -> Result<Outcome, Problem> {
    let mut facts = audit::facts(task.node);
    match task.node.connector.file_system(path) {
        Ok(system) => facts.extend([
            Fact::new("fs.kind", system.kind),
            Fact::new("fs.total", system.total),
            Fact::new("fs.free", system.free),
            Fact::new("fs.memory", system.in_memory),
        ]),
        Err(fault) if fault.code == FaultCode::NotSupported => {}
        Err(fault) => return Err(fault.into()),
    }
    Ok(Outcome::Probed(facts))
}

/// Something to read from: a user's file, or a temporary one.
enum Source {
    File { reader: Arc<dyn ReadAt>, size: u64 },
    Made { file: Arc<dyn WriteAt>, size: u64 },
}

impl Source {
    /// Opens a file, or makes one on a directory's storage, and has memory forget it.
    fn open(task: &Task<'_>, path: &StoragePath, bounds: Bounds) -> Result<(Self, ReadsFrom), Problem> {
        let meta = task.node.connector.stat(path, Follow::Yes)?;
        if meta.kind == Kind::File {
            let reader = task.node.connector.open_read(path, None)?;
            let from = reader.drop_cached(0..meta.size.min(bounds.bytes));
            return Ok((Self::File { reader, size: meta.size }, from));
        }
        let file = scratch(task, path)?;
        let bounds = bounds.within(Bounds { bytes: MOST_MADE, time: LONGEST_MADE });
        let size = fill(task, file.as_ref(), bounds, &Progress::new())?;
        let from = file.drop_cached(0..size)?;
        Ok((Self::Made { file, size }, from))
    }

    fn size(&self) -> u64 {
        match self {
            Self::File { size, .. } | Self::Made { size, .. } => *size,
        }
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<usize, Fault> {
        match self {
            Self::File { reader, .. } => reader.read_at(offset, buffer),
            Self::Made { file, .. } => file.read_back(offset, buffer),
        }
    }

    fn facts(&self, from: ReadsFrom) -> [Fact; 2] {
        let object = match self {
            Self::File { .. } => "file",
            Self::Made { .. } => "temporary file",
        };
        let from = if from == ReadsFrom::Storage { "storage" } else { "memory" };
        [Fact::new("object", object), Fact::new("from", from)]
    }
}

fn scratch(task: &Task<'_>, path: &StoragePath) -> Result<Arc<dyn WriteAt>, Problem> {
    if task.node.settings.read_only {
        return Err(Fault::new(FaultCode::ReadOnly, "make a temporary file").on_path(path.as_bytes()).into());
    }
    Ok(task.node.connector.scratch(path)?)
}

fn measured(bytes: u64, time: Duration) -> Vec<Fact> {
    vec![Fact::new("bytes", bytes), Fact::new("micros", micros(time))]
}

fn read(task: &mut Task<'_>, probe: &Probe, path: &StoragePath) -> Result<Outcome, Problem> {
    let (source, from) = Source::open(task, path, probe.bounds)?;
    let bytes = source.size().min(probe.bounds.bytes);
    let progress = Arc::new(Progress::new());
    let markers = Markers::performance(task, probe.performance_interval, &progress);
    task.reporter.flush();
    let began = Instant::now();
    let read =
        in_blocks(task, Bounds { bytes, ..probe.bounds }, &progress, |offset, buffer| source.read_at(offset, buffer));
    let time = began.elapsed();
    markers.end(task);
    read?;
    let mut facts = measured(progress.bytes(), time);
    facts.extend(source.facts(from));
    Ok(Outcome::Probed(facts))
}

fn write(task: &mut Task<'_>, probe: &Probe, path: &StoragePath) -> Result<Outcome, Problem> {
    let file = scratch(task, path)?;
    let progress = Arc::new(Progress::new());
    let markers = Markers::performance(task, probe.performance_interval, &progress);
    task.reporter.flush();
    let began = Instant::now();
    let filled = fill(task, file.as_ref(), probe.bounds, &progress);
    let time = began.elapsed();
    markers.end(task);
    Ok(Outcome::Probed(measured(filled?, time)))
}

/// Writes until it is durable; bytes written.
fn fill(task: &Task<'_>, file: &dyn WriteAt, bounds: Bounds, progress: &Progress) -> Result<u64, Problem> {
    in_blocks(task, bounds, progress, |offset, buffer| {
        buffer.copy_from_slice(&pattern()[..buffer.len()]);
        // Storage that finds equal blocks must not find any.
        let stamp = buffer.len().min(8);
        buffer[..stamp].copy_from_slice(&offset.to_be_bytes()[..stamp]);
        file.write_at(offset, buffer).map(|()| buffer.len())
    })?;
    file.sync()?;
    Ok(progress.bytes())
}

/// Has every thread work on the next block until all are done, the time is over, or one gives nothing.
fn in_blocks(
    task: &Task<'_>,
    bounds: Bounds,
    progress: &Progress,
    work: impl Fn(u64, &mut [u8]) -> Result<usize, Fault> + Sync,
) -> Result<(), Fault> {
    let threads = task.node.processors.clamp(1, MOST_THREADS);
    over_threads(threads, bounds, progress, |offset, buffer| {
        task.cancel.check("measure")?;
        work(offset, buffer)
    })
}

/// The same, on as many threads as the system gives: the calling one is always there.
fn over_threads(
    threads: usize,
    bounds: Bounds,
    progress: &Progress,
    work: impl Fn(u64, &mut [u8]) -> Result<usize, Fault> + Sync,
) -> Result<(), Fault> {
    let (next, over, until) = (AtomicU64::new(0), AtomicBool::new(false), Instant::now() + bounds.time);
    let one = |buffer: &mut Vec<u8>| {
        buffer.resize(BLOCK, 0);
        while !over.load(Ordering::Relaxed) && Instant::now() < until {
            let offset = next.fetch_add(BLOCK as u64, Ordering::Relaxed);
            let length = bounds.bytes.saturating_sub(offset).min(BLOCK as u64) as usize;
            if length == 0 {
                break;
            }
            match work(offset, &mut buffer[..length]).inspect_err(|_| over.store(true, Ordering::Relaxed))? {
                0 => break,
                bytes => progress.add_bytes(bytes as u64),
            }
        }
        Ok(())
    };
    in_parallel(&mut vec![Vec::new(); threads], one)
}

/// Bytes that do not compress.
fn pattern() -> &'static [u8] {
    static PATTERN: OnceLock<Vec<u8>> = OnceLock::new();
    PATTERN.get_or_init(|| {
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        let mut bytes = Vec::with_capacity(BLOCK);
        while bytes.len() < BLOCK {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            bytes.extend_from_slice(&state.to_le_bytes());
        }
        bytes
    })
}

/// What is sent: until the bounds are reached, or the file ends.
struct Supply {
    source: Option<Source>,
    bounds: Bounds,
    until: OnceLock<Instant>,
}

impl BlockSource for Supply {
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<usize, Fault> {
        let now = Instant::now();
        // The time begins with the data, when the connections stand.
        let over = now >= *self.until.get_or_init(|| now + self.bounds.time);
        let left = if over { 0 } else { self.bounds.bytes.saturating_sub(offset) };
        let length = left.min(buffer.len() as u64) as usize;
        match &self.source {
            Some(source) => source.read_at(offset, &mut buffer[..length]),
            None => {
                buffer[..length].chunks_mut(BLOCK).for_each(|part| part.copy_from_slice(&pattern()[..part.len()]));
                Ok(length)
            }
        }
    }
}

fn send_over(task: &mut Task<'_>, probe: &Probe, path: &StoragePath, storage: bool) -> Result<Outcome, Problem> {
    task.session.acquire(Way::Out)?;
    task.node.connector.stat(path, Follow::Yes)?;
    let opened = if storage { Some(Source::open(task, path, probe.bounds)?) } else { None };
    let mut facts: Vec<Fact> = opened.iter().flat_map(|(source, from)| source.facts(*from)).collect();
    let supply = Supply { source: opened.map(|(source, _)| source), bounds: probe.bounds, until: OnceLock::new() };
    let transfer = Transfer::begin(task, Way::Out, "ERET", path.as_bytes(), None);
    let began = Instant::now();
    let mut network = Vec::new();
    let bytes = send::endless(task, &supply, transfer, |transfer| {
        network = channel_facts(&transfer.progress);
        Ok(())
    })?;
    facts.extend(measured(bytes, began.elapsed()));
    facts.extend(network);
    Ok(Outcome::Probed(facts))
}

/// Where measured bytes go.
struct Sink {
    file: Option<Arc<dyn WriteAt>>,
    bounds: Bounds,
    began: OnceLock<Instant>,
}

impl Sink {
    fn too_much(&self, what: &str) -> Fault {
        Fault::new(FaultCode::PeerMisbehaved, "receive").side(Side::Peer).detail(what)
    }
}

impl WriteAt for Sink {
    fn write_at(&self, offset: u64, data: &[u8]) -> Result<(), Fault> {
        let began = *self.began.get_or_init(Instant::now);
        if offset.saturating_add(data.len() as u64) > self.bounds.bytes {
            return Err(self.too_much("more bytes came than the measurement has"));
        }
        if began.elapsed() > self.bounds.time + GRACE {
            return Err(self.too_much("the measurement has taken too long"));
        }
        self.file.as_ref().map_or(Ok(()), |file| file.write_at(offset, data))
    }

    fn sync(&self) -> Result<(), Fault> {
        self.file.as_ref().map_or(Ok(()), |file| file.sync())
    }

    fn durable(&self) -> Result<RangeSet, Fault> {
        Ok(RangeSet::new())
    }

    fn read_back(&self, _offset: u64, _buffer: &mut [u8]) -> Result<usize, Fault> {
        Ok(0)
    }

    fn finish(&self) -> Result<Receipt, Fault> {
        Ok(Receipt { written: RangeSet::new(), token: Vec::new() })
    }
}

fn receive_over(task: &mut Task<'_>, probe: &Probe, path: &StoragePath, storage: bool) -> Result<Outcome, Problem> {
    task.session.acquire(Way::In)?;
    task.node.connector.stat(path, Follow::Yes)?;
    let file = if storage { Some(scratch(task, path)?) } else { None };
    let sink = Arc::new(Sink { file, bounds: probe.bounds, began: OnceLock::new() });
    let mut transfer = Transfer::begin(task, Way::In, "ESTO", path.as_bytes(), None);
    let received = receive::measured(task, sink.clone(), probe.performance_interval, &mut transfer);
    let network = channel_facts(&transfer.progress);
    let bytes = transfer.progress.bytes();
    task.session.release(Way::In, received.is_ok(), bytes);
    transfer.end(task, received.is_ok());
    received?;
    sink.sync()?;
    let time = sink.began.get().map_or(Duration::ZERO, Instant::elapsed);
    let mut facts = measured(bytes, time);
    facts.extend(network);
    Ok(Outcome::Probed(facts))
}

/// What the kernel and the loops say of a transfer whose connections are still open.
fn channel_facts(progress: &Progress) -> Vec<Fact> {
    let Spent { threads, storage, network, cpu, busy, window_limited, buffer_limited, .. } = spent::of(progress);
    let mut facts = vec![
        Fact::new("threads_micros", threads),
        Fact::new("storage_micros", storage),
        Fact::new("network_micros", network),
        Fact::new("cpu_micros", cpu),
        Fact::new("busy_micros", busy),
        Fact::new("window_micros", window_limited),
        Fact::new("buffer_micros", buffer_limited),
    ];
    let channels = progress.channels();
    facts.push(Fact::new("channels", channels.len()));
    let looks: Vec<_> = channels.iter().filter_map(|channel| channel.look().map(|(_, stats)| stats)).collect();
    let sum = |part: fn(&whimbrel_transport::PathStats) -> u64| looks.iter().map(|look| part(&look.path)).sum::<u64>();
    facts.push(Fact::new("sent", sum(|path| path.bytes_sent)));
    facts.push(Fact::new("resent", sum(|path| path.bytes_resent)));
    if let Some(look) = looks.iter().max_by_key(|look| look.rtt) {
        facts.push(Fact::new("rtt_micros", micros(look.rtt)));
        facts.push(Fact::new("mss", look.path.mss));
        facts.push(Fact::new("mtu", look.path.mtu));
    }
    if let Some(least) = looks.iter().map(|look| look.path.min_rtt).filter(|rtt| !rtt.is_zero()).min() {
        facts.push(Fact::new("min_rtt_micros", micros(least)));
    }
    if let Some(name) = channels.iter().find_map(whimbrel_transport::ChannelWatch::congestion) {
        facts.push(Fact::new("congestion", name));
    }
    if let Some((send, receive)) = channels.iter().find_map(whimbrel_transport::ChannelWatch::buffers) {
        facts.push(Fact::new("send_buffer", send));
        facts.push(Fact::new("receive_buffer", receive));
    }
    facts
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use rustix::process::{Resource, Rlimit, Uid, geteuid, getrlimit, setrlimit};
    use rustix::thread::set_thread_res_uid;

    use super::*;

    const BOUNDS: Bounds = Bounds { bytes: 10 * BLOCK as u64 + 5, time: Duration::from_secs(3600) };

    fn moved(threads: usize) -> (u64, Vec<u64>) {
        let (progress, offsets) = (Progress::new(), Mutex::new(Vec::new()));
        let work = |offset, buffer: &mut [u8]| {
            offsets.lock().unwrap().push(offset);
            Ok(buffer.len())
        };
        over_threads(threads, BOUNDS, &progress, work).unwrap();
        let mut offsets = offsets.into_inner().unwrap();
        offsets.sort_unstable();
        (progress.bytes(), offsets)
    }

    /// Every block once.
    fn assert_all_moved() {
        let all: Vec<u64> = (0..11).map(|block| block * BLOCK as u64).collect();
        for threads in [1, MOST_THREADS] {
            assert_eq!(moved(threads), (BOUNDS.bytes, all.clone()));
        }
    }

    #[test]
    fn every_block_is_moved_once() {
        assert_all_moved();
    }

    /// As for an account that has all the threads it may have (`ulimit -u`).
    #[test]
    fn every_block_is_moved_once_when_the_system_gives_no_thread() {
        const IN_CHILD: &str = "WHIMBREL_TEST_WITHOUT_THREADS";
        if std::env::var_os(IN_CHILD).is_none() {
            // The limit holds for a whole process.
            let name = "mover::probe::tests::every_block_is_moved_once_when_the_system_gives_no_thread";
            let mut child = std::process::Command::new(std::env::current_exe().unwrap());
            let child = child.args(["--exact", name, "--test-threads=1", "--nocapture"]).env(IN_CHILD, "1");
            let output = child.output().unwrap();
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            return;
        }
        if geteuid().is_root() {
            // Whom no limit holds.
            let nobody = Uid::from_raw(65_534);
            set_thread_res_uid(nobody, nobody, nobody).unwrap();
        }
        let limit = Rlimit { current: Some(0), ..getrlimit(Resource::Nproc) };
        setrlimit(Resource::Nproc, limit).unwrap();
        assert!(std::thread::Builder::new().spawn(|| ()).is_err(), "the system still gives threads");
        assert_all_moved();
    }

    #[test]
    fn the_first_fault_ends_a_measurement() {
        let fault = || Fault::new(FaultCode::StorageIo, "test");
        let failed = over_threads(2, BOUNDS, &Progress::new(), |_, _| Err(fault())).unwrap_err();
        assert_eq!(failed.code, FaultCode::StorageIo);
    }
}
