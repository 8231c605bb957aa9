//! Packs: small files that move as one transfer (ERET PACK, ESTO PACK).
//!
//! The sender reads all of them before it sends any, so that it knows which it has: the bytes of the others do not come.
//! The receiver stores each file as soon as it is whole, in one act; what did not come has failed.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use whimbrel_connector::{Attributes, Connector, Kind};
use whimbrel_engine::{Fault, FaultCode, RangeSet, Side};
use whimbrel_proto::op::{Mode, Notice, Outcome, PackResult, PackSpec, PackedFile};
use whimbrel_proto::pack;
use whimbrel_transport::digest::Algorithm;
use whimbrel_transport::{Activity, BlockSink, Cancel};

use super::command::{resolve, timestamp};
use super::failure::{Problem, from_fault};
use super::node::Node;
use super::session::Handle;
use super::stats::Way;
use super::transfer::Transfer;
use super::worker::Task;
use super::{receive, send, spent, voucher};

/// Sends a pack.
pub fn send(task: &mut Task<'_>, spec: &PackSpec) -> Result<Outcome, Problem> {
    let algorithm = check(task, Way::Out, spec)?;
    let mut transfer = begin(task, Way::Out, "ERET", spec);
    let loaded = {
        let times = transfer.progress.times();
        let _working = times.on_thread();
        times.timed(Activity::Storage, || load(storage(task.node).as_ref(), spec, algorithm, task.cancel))
    };
    let loaded = match loaded {
        Ok(loaded) => loaded,
        Err(fault) => {
            transfer.end_pack(task, false, std::iter::empty());
            return Err(fault.into());
        }
    };
    let voucher = (spec.vouched && algorithm.is_some()).then(|| voucher::of_pack(&loaded.fates));
    let sent = send::parts(task, &loaded.bytes, loaded.present, voucher.as_ref(), &mut transfer);
    transfer.end_pack(task, sent.is_ok(), told(spec, &loaded.fates));
    sent?;
    Ok(Outcome::Packed(loaded.fates))
}

/// Receives a pack.
pub fn receive(task: &mut Task<'_>, spec: &PackSpec) -> Result<Outcome, Problem> {
    let algorithm = check(task, Way::In, spec)?;
    let node = task.node.clone();
    let unpacker = Unpacker::new(&node, spec, algorithm, task.cancel);
    let mut transfer = begin(task, Way::In, "ESTO", spec);
    let received = over_handle(task, &unpacker, &mut transfer);
    spent::tell(task, &transfer.progress);
    task.session.release(Way::In, received.is_ok(), transfer.progress.bytes());
    let fates = unpacker.end();
    transfer.end_pack(task, received.is_ok(), told(spec, &fates));
    received?;
    Ok(Outcome::Packed(fates))
}

/// The storage for the files of one pack, most of which lie in one directory.
fn storage(node: &Node) -> Arc<dyn Connector> {
    node.connector.for_one_operation().unwrap_or_else(|| node.connector.clone())
}

fn begin(task: &Task<'_>, way: Way, kind: &'static str, spec: &PackSpec) -> Transfer {
    let bytes = spec.files.iter().map(|file| file.size).sum();
    Transfer::begin(task, way, kind, &spec.files[0].path, Some(bytes))
}

/// Each file as the transfer log tells it: path, bytes, and whether it came through.
fn told<'a>(spec: &'a PackSpec, fates: &'a [PackResult]) -> impl Iterator<Item = (&'a [u8], u64, bool)> {
    spec.files.iter().zip(fates).map(|(file, fate)| (file.path.as_slice(), file.size, fate.is_ok()))
}

/// Refuses what cannot be done as a whole; the algorithm of the digests.
fn check(task: &mut Task<'_>, way: Way, spec: &PackSpec) -> Result<Option<Algorithm>, Problem> {
    let unsupported = |why: &str| Fault::new(FaultCode::NotSupported, "move a pack").detail(why);
    let handle = task.session.acquire(way)?;
    if handle.params.mode == Mode::Stream {
        return Err(unsupported("packs need MODE E").into());
    }
    if task.stripe.count > 1 || handle.lanes.len() > 1 {
        return Err(unsupported("a pack goes from one node to one address").into());
    }
    // The front checks this, too; the buffer below is taken on its word.
    let invalid = |error: pack::PackError| Fault::new(FaultCode::InvalidArgument, "move a pack").detail(error.reason());
    pack::check_list(&spec.files).map_err(invalid)?;
    Ok(spec.algorithm.as_deref().map(str::parse).transpose()?)
}

/// The files of a pack in memory.
struct Loaded {
    /// One behind the other; zeros where one failed.
    bytes: Vec<u8>,
    /// Where those lie that did not.
    present: RangeSet,
    fates: Vec<PackResult>,
}

fn load(
    connector: &dyn Connector,
    spec: &PackSpec,
    algorithm: Option<Algorithm>,
    cancel: &Cancel,
) -> Result<Loaded, Fault> {
    let total: u64 = spec.files.iter().map(|file| file.size).sum();
    let mut loaded = Loaded { bytes: vec![0; total as usize], present: RangeSet::new(), fates: Vec::new() };
    let mut at = 0;
    for file in &spec.files {
        cancel.check("send")?;
        let end = at + file.size as usize;
        let into = &mut loaded.bytes[at..end];
        let read = read(connector, file, into);
        if read.is_ok() {
            loaded.present.insert(at as u64..end as u64);
        }
        let digest = read.map(|()| algorithm.map(|algorithm| algorithm.digest(&loaded.bytes[at..end]).to_string()));
        loaded.fates.push(digest.map_err(|fault| from_fault(&fault)));
        at = end;
    }
    Ok(loaded)
}

/// Reads a whole file of a known size, in one version.
fn read(connector: &dyn Connector, file: &PackedFile, into: &mut [u8]) -> Result<(), Fault> {
    let reader = connector.open_read(&resolve(&file.path)?, None)?;
    let before = reader.opened()?;
    let changed = || Fault::new(FaultCode::SourceChanged, "send").on_path(&file.path).side(Side::Source);
    if before.kind != Kind::File {
        return Err(Fault::new(FaultCode::NotSupported, "send").on_path(&file.path).detail("only files are packed"));
    }
    if before.size != file.size {
        return Err(changed());
    }
    let mut filled = 0;
    while filled < into.len() {
        match reader.read_at(filled as u64, &mut into[filled..])? {
            0 => return Err(changed()),
            count => filled += count,
        }
    }
    if reader.meta()?.version() == before.version() { Ok(()) } else { Err(changed()) }
}

fn over_handle(task: &mut Task<'_>, unpacker: &Unpacker<'_>, transfer: &mut Transfer) -> Result<(), Problem> {
    let mut handle = task.session.take()?;
    task.reporter.notice(Notice::Opened { reused: handle.reused(), unique_name: None });
    // Nobody waits for this over connections that stand, and a pack is over before it is read: it goes out with the outcome.
    if !handle.reused() {
        task.reporter.flush();
    }
    let received = unpacker.fill(task, &mut handle, transfer);
    task.session.put_back(handle);
    Ok(received?)
}

/// Where the bytes of a pack go.
struct Unpacker<'a> {
    storage: Arc<dyn Connector>,
    algorithm: Option<Algorithm>,
    cancel: &'a Cancel,
    /// Whether the sender tells first what each file must be, and what it has told.
    vouched: bool,
    expected: OnceLock<Vec<String>>,
    /// Each file survives a crash before it has its name.
    durable: bool,
    /// Ascending, each begins where the one before it ends.
    places: Vec<Place<'a>>,
}

/// A file of a pack that comes in.
struct Place<'a> {
    file: &'a PackedFile,
    number: usize,
    start: u64,
    state: Mutex<State>,
}

enum State {
    /// Not all bytes have come; those that have, where they are not all in one piece.
    Coming { bytes: Vec<u8>, received: RangeSet },
    /// It has its name, or it failed.
    Ended(PackResult),
}

impl<'a> Unpacker<'a> {
    fn new(node: &'a Node, spec: &'a PackSpec, algorithm: Option<Algorithm>, cancel: &'a Cancel) -> Self {
        let mut start = 0;
        let places = spec.files.iter().enumerate().map(|(number, file)| {
            let place = Place { file, number, start, state: Mutex::new(State::nothing_came()) };
            start += file.size;
            place
        });
        let (places, vouched) = (places.collect(), spec.vouched && algorithm.is_some());
        let durable = node.keeps_durable(spec.durable);
        let storage = storage(node);
        Self { storage, algorithm, cancel, vouched, expected: OnceLock::new(), durable, places }
    }

    /// Receives the files, and before them what they must be.
    fn fill(&self, task: &Task<'_>, handle: &mut Handle, transfer: &mut Transfer) -> Result<(), Fault> {
        if let Some(algorithm) = self.algorithm.filter(|_| self.vouched) {
            let most = voucher::most_of_pack(self.places.len(), algorithm);
            let voucher = voucher::hear(task, handle, most, transfer)?;
            let expected = voucher::digests(&voucher, self.places.len())?;
            self.expected.set(expected).expect("a pack is received once");
        }
        receive::blocks(task, handle, self, 0..self.length(), 0, transfer)
    }

    fn length(&self) -> u64 {
        self.places.last().map_or(0, |last| last.start + last.file.size)
    }

    /// What became of each file, once no more bytes come.
    fn end(self) -> Vec<PackResult> {
        self.places.into_iter().map(Place::end).collect()
    }
}

impl BlockSink for Unpacker<'_> {
    fn write_at(&self, mut offset: u64, mut data: &[u8]) -> Result<(), Fault> {
        let mut number = self.places.partition_point(|place| place.start <= offset).saturating_sub(1);
        while !data.is_empty() {
            let outside = || Fault::new(FaultCode::PeerMisbehaved, "receive a pack").detail("bytes behind its end");
            let place = self.places.get(number).ok_or_else(outside)?;
            let at = offset - place.start;
            let length = (place.file.size - at).min(data.len() as u64);
            let (here, rest) = data.split_at(length as usize);
            place.write(self, at, here);
            (offset, data, number) = (offset + length, rest, number + 1);
        }
        Ok(())
    }
}

impl State {
    fn nothing_came() -> Self {
        State::Coming { bytes: Vec::new(), received: RangeSet::new() }
    }
}

impl Place<'_> {
    /// Takes bytes; what goes wrong ends this file and no other.
    fn write(&self, unpacker: &Unpacker<'_>, at: u64, data: &[u8]) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let State::Coming { bytes, received } = &mut *state else { return };
        let whole = if data.len() as u64 == self.file.size {
            data
        } else {
            bytes.resize(self.file.size as usize, 0);
            bytes[at as usize..at as usize + data.len()].copy_from_slice(data);
            received.insert(at..at + data.len() as u64);
            if received.len() < self.file.size {
                return;
            }
            bytes
        };
        let stored = self.store(unpacker, whole).map_err(|fault| from_fault(&fault));
        *state = State::Ended(stored);
    }

    /// Stores it with its attributes and name; the digest of what was read back, if one is wanted.
    fn store(&self, unpacker: &Unpacker<'_>, data: &[u8]) -> Result<Option<String>, Fault> {
        unpacker.cancel.check("receive")?;
        let attributes = Attributes {
            modified: self.file.modified.map(|(seconds, nanos)| timestamp(seconds, nanos)).transpose()?,
            mode: self.file.mode,
            durable: unpacker.durable,
            ..Attributes::default()
        };
        let path = resolve(&self.file.path)?;
        let Some(algorithm) = unpacker.algorithm else {
            unpacker.storage.put(&path, data, &attributes, None)?;
            return Ok(None);
        };
        let mut digest = None;
        let expected = unpacker.expected.get().map(|digests| &digests[self.number]);
        let mut read_back = |stored: &[u8]| {
            let computed = algorithm.digest(stored).to_string();
            if let Some(expected) = expected.filter(|expected| **expected != computed) {
                return Err(self.is_wrong(algorithm, expected, &computed));
            }
            digest = Some(computed);
            Ok(())
        };
        unpacker.storage.put(&path, data, &attributes, Some(&mut read_back))?;
        Ok(digest)
    }

    fn is_wrong(&self, algorithm: Algorithm, expected: &str, computed: &str) -> Fault {
        let fault = Fault::new(FaultCode::ChecksumMismatch, "verify").on_path(&self.file.path).side(Side::Destination);
        // What a sender says must not fill a log.
        let expected: String = expected.chars().take(algorithm.hex_len()).collect();
        fault.detail(format!("{} at the source {expected}, at the destination {computed}", algorithm.name()))
    }

    fn end(self) -> PackResult {
        match self.state.into_inner().unwrap_or_else(PoisonError::into_inner) {
            State::Ended(fate) => fate,
            State::Coming { .. } => {
                let fault = Fault::new(FaultCode::PeerRefused, "receive").on_path(&self.file.path).side(Side::Source);
                Err(from_fault(&fault.detail("its bytes did not come")))
            }
        }
    }
}
