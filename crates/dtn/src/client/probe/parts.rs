//! The measurements themselves.

use std::time::{Duration, Instant};

use whimbrel_engine::listing::ObjectKind;
use whimbrel_engine::probe::{Facts, Measured, Part};
use whimbrel_engine::{Fault, FaultCode};
use whimbrel_proto::op::{Notice, Op, Outcome, ProbeKind, ReceiveSpec, SendSpec};

use super::{Events, ProbeEvent, Prober, Why, probed, rate, within};
use crate::client::pair::Role;
use crate::client::remote::EndEvent;

/// First amount sent where only an amount can be asked for, bytes.
const FIRST_AMOUNT: u64 = 16 << 20;

/// Smallest file worth measuring with, bytes.
const SMALL: u64 = 1 << 20;

type Result<T> = std::result::Result<T, Why>;

impl Prober<'_> {
    /// Measures one part; with what the figure does not cover.
    pub(super) async fn measure(&mut self, part: Part, events: Events<'_>) -> Result<(Measured, Option<String>)> {
        match part {
            Part::Network => self.network(events).await,
            Part::SourceRead => self.storage(Role::Source, ProbeKind::Read, part, events).await,
            Part::DestinationWrite => self.storage(Role::Destination, ProbeKind::Write, part, events).await,
            Part::EndToEnd => self.end_to_end(events).await,
        }
    }

    async fn storage(
        &mut self,
        role: Role,
        kind: ProbeKind,
        part: Part,
        events: Events<'_>,
    ) -> Result<(Measured, Option<String>)> {
        if !self.can_measure(role) {
            return Err(self.cannot(role, "measure its storage alone"));
        }
        let op = self.op(role, kind);
        let mut answer = self.follow(role, op, part, events).await;
        let mut note = None;
        if kind == ProbeKind::Read && answer.as_ref().is_err_and(may_not_write) {
            // No temporary file may be made there: a file that exists serves as well.
            let Some(path) = self.largest_file(role).await? else {
                let why = "nothing may be written there, and it holds no file of 1 MiB to read";
                return Err(Why::Impossible(why.to_owned()));
            };
            note = Some(format!("measured with {}", String::from_utf8_lossy(&path)));
            let op = with_path(self.op(role, kind), path);
            answer = self.follow(role, op, part, events).await;
        }
        let facts = match answer {
            Ok(outcome) => probed(outcome),
            // The session stands: the next measurement can use it.
            Err(fault) if may_not_write(&fault) => return Err(Why::Impossible(fault.to_string())),
            Err(fault) => return Err(fault.into()),
        };
        if facts.get("from").is_some_and(|from| from == "memory") {
            note.get_or_insert_with(|| "read from the host's memory: the storage has nothing else, or kept it".into());
        }
        let (source, destination) = match role {
            Role::Source => (facts, Facts::new()),
            Role::Destination => (Facts::new(), facts),
        };
        Ok((rate(source, destination, 0, Duration::ZERO), note))
    }

    async fn network(&mut self, events: Events<'_>) -> Result<(Measured, Option<String>)> {
        let destination = match self.can_measure(Role::Destination) {
            true => self.op(Role::Destination, ProbeKind::Receive { storage: false }),
            false => store(b"/dev/null"),
        };
        if self.can_measure(Role::Source) {
            let source = self.op(Role::Source, ProbeKind::Send { storage: false });
            return Ok((self.transfer(source, destination, Part::Network, events).await?, None));
        }
        // Only an amount can be asked for: a first one tells which fills the time.
        let bounds = self.options.bounds;
        let first = FIRST_AMOUNT.min(bounds.bytes);
        let zeros = |bytes| retrieve(b"/dev/zero", Some(bytes));
        let measured = self.transfer(zeros(first), destination.clone(), Part::Network, events).await?;
        let fitting = (measured.rate * bounds.time.as_secs_f64() * 0.7).min(bounds.bytes as f64) as u64;
        let measured = match fitting > 2 * first {
            true => self.transfer(zeros(fitting), destination, Part::Network, events).await?,
            false => measured,
        };
        Ok((measured, Some("the source sent /dev/zero: it has no command to measure".to_owned())))
    }

    async fn end_to_end(&mut self, events: Events<'_>) -> Result<(Measured, Option<String>)> {
        if !self.can_measure(Role::Destination) {
            let what = "store for measuring without leaving a file behind";
            return Err(self.cannot(Role::Destination, what));
        }
        let destination = self.op(Role::Destination, ProbeKind::Receive { storage: true });
        let mut note = None;
        let mut source = self.op(Role::Source, ProbeKind::Send { storage: true });
        let file = self.source_file().await?;
        if let Some(path) = &file {
            note = Some(format!("the source sent {}", String::from_utf8_lossy(path)));
            source = match self.can_measure(Role::Source) {
                true => with_path(source, path.clone()),
                false => retrieve(path, None),
            };
        } else if !self.can_measure(Role::Source) {
            return Err(Why::Impossible("the source's directory holds no file of 1 MiB to send".to_owned()));
        }
        Ok((self.transfer(source, destination, Part::EndToEnd, events).await?, note))
    }

    /// The file to send where none can be made: at a server that is not ours, or that may not be written to.
    async fn source_file(&mut self) -> Result<Option<Vec<u8>>> {
        if self.can_measure(Role::Source) {
            // Reading alone has told whether one can be made.
            let tiny = whimbrel_proto::op::Bounds { bytes: 1, time: Duration::from_millis(1000) };
            let op = match self.op(Role::Source, ProbeKind::Read) {
                Op::Probe(probe) => Op::Probe(whimbrel_proto::op::Probe { bounds: tiny, ..probe }),
                op => op,
            };
            match self.pair.source.run(op).await {
                Ok(_) => return Ok(None),
                Err(fault) if may_not_write(&fault) => {}
                Err(fault) => return Err(fault.into()),
            }
        }
        self.largest_file(Role::Source).await
    }

    /// The largest file of the directory, if it is large enough to measure with; a file's own path.
    async fn largest_file(&mut self, role: Role) -> Result<Option<Vec<u8>>> {
        let path = self.place(role).path.clone();
        let described = self.pair.end(role).stat(&path, false).await?;
        if described.is_some_and(|object| object.kind == ObjectKind::File) {
            return Ok(Some(path));
        }
        let mut largest: Option<(u64, Vec<u8>)> = None;
        let most = self.options.bounds.bytes;
        let each = async |batch: Vec<(whimbrel_engine::listing::Object, _)>| {
            for (object, _) in batch {
                // Of those that are as large as can be used, the first will do.
                let size = object.size.unwrap_or(0).min(most);
                let best = largest.as_ref().map_or(SMALL - 1, |(size, _)| *size);
                if object.kind == ObjectKind::File && size > best {
                    largest = Some((size, object.path));
                }
            }
            Ok(())
        };
        match self.pair.end(role).list(&path, false, each).await {
            // Any file will do.
            Err(fault) if fault.code == FaultCode::ListingUnclear => {}
            result => result?,
        }
        Ok(largest.map(|(_, name)| {
            let mut whole = path.clone();
            if !whole.ends_with(b"/") {
                whole.push(b'/');
            }
            whole.extend_from_slice(&name);
            whole
        }))
    }

    /// Sends and receives over new data connections.
    async fn transfer(&mut self, source: Op, destination: Op, part: Part, events: Events<'_>) -> Result<Measured> {
        let (connecting, connect) = self.connect().await?;
        // The receiver first: a sender of some servers gives up when nobody answers.
        let receiving = self.pair.destination.submit(destination)?;
        let sending = self.pair.source.submit(source)?;
        let began = Instant::now();
        let (mut sent, mut received): (Option<Outcome>, Option<Outcome>) = (None, None);
        let mut moved = 0;
        while sent.is_none() || received.is_none() {
            let silence = self.silence();
            let (role, event) = within(silence, async { Ok(self.pair.event().await) }).await?;
            let (op, event) = event.map_err(|fault| fault.side_if_unknown(role.side()))?;
            match event {
                EndEvent::Done(result) => {
                    let outcome = result.map_err(|fault| fault.side_if_unknown(role.side()))?;
                    match role {
                        Role::Source if op == sending => sent = Some(outcome),
                        Role::Destination if op == receiving => received = Some(outcome),
                        _ => debug_assert!(role == connecting && op == connect, "no other operation is under way"),
                    }
                }
                EndEvent::Notice(Notice::Performance { bytes, .. }) if role == Role::Destination => {
                    moved = bytes;
                    events(ProbeEvent::Progress(part, bytes, began.elapsed()));
                }
                EndEvent::Notice(_) => {}
            }
        }
        let (source, destination) = (sent.map(probed).unwrap_or_default(), received.map(probed).unwrap_or_default());
        Ok(rate(source, destination, moved, began.elapsed()))
    }
}

fn may_not_write(fault: &Fault) -> bool {
    matches!(
        fault.code,
        FaultCode::ReadOnly | FaultCode::PermissionDenied | FaultCode::NotSupported | FaultCode::PeerRefused
    )
}

fn with_path(op: Op, path: Vec<u8>) -> Op {
    match op {
        Op::Probe(probe) => Op::Probe(whimbrel_proto::op::Probe { path, ..probe }),
        op => op,
    }
}

fn retrieve(path: &[u8], length: Option<u64>) -> Op {
    Op::Send(SendSpec { length, ..SendSpec::of(path) })
}

fn store(path: &[u8]) -> Op {
    let second = Some(Duration::from_secs(1));
    Op::Receive(ReceiveSpec { performance_interval: second, range_interval: second, ..ReceiveSpec::of(path) })
}
