//! RETR, STOR and their kin: from the one-shot settings to an operation, from its notices to replies.

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Duration;

use bytes::BytesMut;

use super::answer::Answer;
use super::chunk;
use super::config::ServerConfig;
use super::data;
use super::failure;
use super::probe;
use super::session::{Direction, Once, Session};
use super::step::{MAX_STRIPES, Step};
use crate::marker::{Marker, Perf};
use crate::op::{Leaf, ListSpec, Mode, Notice, Op, Outcome, PackResult, PackSpec, PackedFile, Probe};
use crate::op::{ReadFrom, ReceiveSpec, SendSpec, Spent, WriteKind};
use crate::{leaf, pack, ranges, spent};

/// A transfer that waits for its data handle.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Transfer {
    /// Which way.
    pub(super) direction: Direction,
    what: What,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum What {
    Send(SendSpec),
    Receive(Box<ReceiveSpec>),
    List(ListSpec),
    Probe(Probe),
    SendPack(PackSpec),
    ReceivePack(PackSpec),
}

impl Transfer {
    /// A listing over the data handle.
    pub(super) fn listing(spec: ListSpec) -> Self {
        Self { direction: Direction::Sending, what: What::List(spec) }
    }

    /// A measurement over the data handle.
    pub(super) fn probe(direction: Direction, probe: Probe) -> Self {
        Self { direction, what: What::Probe(probe) }
    }

    /// The operation on a handle of this mode: markers exist in MODE E only, and in MODE S the offsets of ESTO A and
    /// REST add up to where the stream begins.
    pub(super) fn into_op(self, mode: Mode) -> Op {
        match self.what {
            What::Send(spec) => Op::Send(spec),
            What::List(spec) => Op::SendListing(spec),
            What::Probe(mut probe) => {
                if mode == Mode::Stream {
                    probe.performance_interval = None;
                }
                Op::Probe(probe)
            }
            What::SendPack(spec) => Op::SendPack(spec),
            What::ReceivePack(spec) => Op::ReceivePack(spec),
            What::Receive(mut spec) => {
                if mode == Mode::Stream {
                    spec.performance_interval = None;
                    spec.range_interval = None;
                }
                Op::Receive(*spec)
            }
        }
    }
}

/// RETR (RFC 959 §4.1.3), ERET P (GFD.20 §3.4): `REST` counts inside the part.
pub(super) fn send(session: &mut Session, path: &[u8], part: Part) -> Transfer {
    let once = std::mem::take(&mut session.once);
    Transfer {
        direction: Direction::Sending,
        what: What::Send(SendSpec {
            path: session.resolve(path),
            ascii: session.ascii,
            offset: part.offset,
            length: part.length,
            done: once.restart.unwrap_or_default(),
            performance_interval: session.markers.sending,
            leaves: session.leaves_of_transfer(),
        }),
    }
}

/// A part of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Part {
    /// First byte.
    pub(super) offset: u64,
    /// Bytes; `None`: to the end.
    pub(super) length: Option<u64>,
}

impl Part {
    /// All of it.
    pub(super) const WHOLE: Self = Self { offset: 0, length: None };
}

/// How a receive was asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Store {
    /// STOR, PUT.
    Plain,
    /// ESTO A with its offset.
    Adjusted(u64),
    /// ESTO C with its offset and session.
    Chunk(u64, Vec<u8>),
    /// APPE.
    Append,
    /// STOU.
    Unique,
}

/// STOR, APPE, STOU (RFC 959 §4.1.3), ESTO A (GFD.20 §3.4), PUT (GFD.47 §3.2); `Err` is the refusal.
pub(super) fn receive(
    session: &mut Session,
    config: &ServerConfig,
    path: &[u8],
    store: Store,
) -> Result<Transfer, Answer> {
    if config.read_only {
        session.once = Once::default();
        return Err(failure::read_only());
    }
    let stream = session.handle_mode() == Mode::Stream;
    let once = std::mem::take(&mut session.once);
    if let Store::Chunk(..) = store {
        may_store_chunk(session, &once)?;
    }
    let write = write_kind(store, once.restart, stream).ok_or_else(|| Answer::line(501, "Offset out of range."))?;
    let spec = ReceiveSpec {
        path: session.resolve(path),
        ascii: session.ascii,
        write,
        expected_size: once.size,
        expected_checksum: once.checksum,
        modified: once.modified,
        mode: once.mode,
        performance_interval: session.markers.performance,
        range_interval: session.markers.ranges,
        leaves: session.leaves_of_transfer(),
        past_memory: session.past_memory && session.leaves_of_transfer().is_some(),
        durable: session.durable,
        strict: once.strict,
    };
    Ok(Transfer { direction: Direction::Receiving, what: What::Receive(Box::new(spec)) })
}

/// ERET PACK and ESTO PACK: what belongs to one file is refused, for it would not be done; `Err` is the refusal.
pub(super) fn pack(
    session: &mut Session,
    config: &ServerConfig,
    files: Vec<PackedFile>,
    direction: Direction,
) -> Result<Transfer, Answer> {
    let once = std::mem::take(&mut session.once);
    if direction == Direction::Receiving && config.read_only {
        return Err(failure::read_only());
    }
    if session.ascii || session.handle_mode() == Mode::Stream {
        return Err(Answer::line(503, "Send TYPE I and MODE E before PACK."));
    }
    if once.is_about_a_whole_file() {
        return Err(Answer::line(501, "REST, SCKS and SITE STORATTR do not go with PACK."));
    }
    let files = files.into_iter().map(|file| PackedFile { path: session.resolve(&file.path), ..file }).collect();
    let durable = session.durable && direction == Direction::Receiving;
    let spec = match session.leaves_of_transfer() {
        Some(leaves) => PackSpec { files, algorithm: Some(leaves.algorithm), durable, vouched: leaves.vouched },
        None => PackSpec { files, algorithm: None, durable, vouched: false },
    };
    let what = match direction {
        Direction::Sending => What::SendPack(spec),
        Direction::Receiving => What::ReceivePack(spec),
    };
    Ok(Transfer { direction, what })
}

/// A chunk is proven by its leaves alone; what belongs to a whole file is refused, for it would not be done.
fn may_store_chunk(session: &Session, once: &Once) -> Result<(), Answer> {
    if session.ascii {
        return Err(Answer::line(503, "Send TYPE I before ESTO C."));
    }
    if once.is_about_a_whole_file() {
        return Err(Answer::line(501, "REST, SCKS and SITE STORATTR do not go with ESTO C."));
    }
    Ok(())
}

/// `REST 0` is no restart: clients send it to withdraw an earlier one (RFC 3659 §5.3).
fn write_kind(store: Store, restart: Option<Vec<Range<u64>>>, stream: bool) -> Option<WriteKind> {
    Some(match (store, restart) {
        (Store::Plain, None) => WriteKind::Replace,
        (Store::Plain, Some(done)) => WriteKind::Restart { done },
        (Store::Adjusted(offset), None) => WriteKind::Adjusted { offset },
        (Store::Adjusted(offset), Some(done)) => {
            let skipped = if stream { ranges::from_beginning(&done) } else { 0 };
            WriteKind::Adjusted { offset: offset.checked_add(skipped)? }
        }
        (Store::Chunk(offset, session), _) => WriteKind::Chunk { offset, session },
        (Store::Append, _) => WriteKind::Append,
        (Store::Unique, _) => WriteKind::Unique,
    })
}

/// What a running transfer has told so far.
#[derive(Debug)]
pub(super) struct Progress {
    /// Which way.
    pub(super) direction: Direction,
    /// 150 or 125 went out.
    pub(super) opened: bool,
    /// Bytes by stripe, from the 112 markers.
    moved: BTreeMap<u16, u64>,
    /// Where the time went, all nodes together.
    spent: Option<Box<Spent>>,
}

impl Progress {
    /// Nothing has happened.
    pub(super) fn new(direction: Direction) -> Self {
        Self { direction, opened: false, moved: BTreeMap::new(), spent: None }
    }

    /// Bytes moved, if markers told.
    pub(super) fn bytes_moved(&self) -> Option<u64> {
        (!self.moved.is_empty()).then(|| self.moved.values().fold(0, |sum: u64, &n| sum.saturating_add(n)))
    }

    /// 150 or 125 (RFC 959 §5.4), 112 (GFD.20 §4.2), 111 (GFD.20 §3.2.5).
    pub(super) fn notice(&mut self, notice: Notice, out: &mut BytesMut) {
        match notice {
            Notice::Opened { reused, unique_name } if !self.opened => {
                self.opened = true;
                opened_answer(reused, unique_name.as_deref()).write(out);
            }
            Notice::Performance { stripe, stripes, bytes, at_ms } => {
                if self.moved.len() < MAX_STRIPES {
                    self.moved.insert(stripe, bytes);
                }
                let (stripe, stripes) = (stripe.into(), stripes.into());
                put_marker(&Marker::Perf(Perf { at: tenths(at_ms), stripe, bytes, stripes }), out);
            }
            Notice::Ranges(new) if !new.is_empty() => {
                put_marker(&Marker::Restart(new), out);
            }
            Notice::Spent(spent) => match &mut self.spent {
                Some(sum) => sum.add(&spent),
                None => self.spent = Some(spent),
            },
            Notice::Opened { .. } | Notice::Ranges(_) | Notice::Hashed { .. } | Notice::Lines(_) => {}
        }
    }

    /// 226, or why not; a 1xx always comes before a 226, because clients start their data on it.
    pub(super) fn finish(mut self, session: &mut Session, outcome: Outcome, aborted: bool, out: &mut BytesMut) -> Step {
        let succeeded = !matches!(outcome, Outcome::Failed(_));
        if succeeded && !self.opened {
            self.notice(Notice::Opened { reused: false, unique_name: None }, out);
        }
        data::settle(session, &self, succeeded);
        Step::Answer(match outcome {
            Outcome::Failed(_) if aborted => Answer::line(426, "Transfer aborted."),
            Outcome::Failed(failure) => failure::answer(&failure),
            Outcome::Transferred { leaves, read_from, .. } => self.complete(session, &leaves, read_from),
            Outcome::Probed(facts) => probe::complete(&facts),
            Outcome::Packed(fates) => self.packed(session, &fates),
            _ => self.complete(session, &[], None),
        })
    }
}

impl Progress {
    /// 226 with leaves and with where the time went, each where it was asked for.
    fn complete(&self, session: &Session, leaves: &[Leaf], read_from: Option<ReadFrom>) -> Answer {
        chunk::complete(leaves, read_from.map(leaf::read_line).into_iter().chain(self.spent_line(session)).collect())
    }

    /// 226 with what became of each file of a pack.
    fn packed(&self, session: &Session, fates: &[PackResult]) -> Answer {
        let fates = fates.iter().enumerate().map(|(number, fate)| pack::fate_line(number, fate));
        let answer = Answer::listing(226, "Transfer Complete.", "End");
        self.spent_line(session).into_iter().fold(fates.fold(answer, Answer::with), Answer::with)
    }

    fn spent_line(&self, session: &Session) -> Option<String> {
        self.spent.as_deref().filter(|_| session.tells_spent).map(spent::line)
    }
}

/// RFC 1123 §4.1.2.9 gives the form that tells the name STOU chose.
fn opened_answer(reused: bool, unique_name: Option<&[u8]>) -> Answer {
    let code = if reused { 125 } else { 150 };
    match unique_name {
        Some(name) => Answer::line(code, [b"FILE: ", name].concat()),
        None if reused => Answer::line(125, "Beginning transfer; reusing existing data connection."),
        None => Answer::line(150, "Beginning transfer."),
    }
}

/// Appends a marker.
pub(super) fn put_marker(marker: &Marker, out: &mut BytesMut) {
    out.extend_from_slice(&marker.to_reply().to_bytes());
}

/// Milliseconds in the unit of markers.
pub(super) fn tenths(at_ms: u64) -> u64 {
    at_ms / 100
}

/// OPTS RETR Markers, OPTS CKSM Markers, TREV: 0 means none.
pub(super) fn interval(seconds: u64) -> Option<Duration> {
    (seconds > 0).then(|| Duration::from_secs(seconds))
}
