//! Moves packets: one thread per direction takes them from one TUN device, holds them as long as the link says, and
//! gives them to the other device.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use whimbrel_sys::tun::{Offload, Tun};

use super::link::{Link, Shaper, Verdict};
use super::lockstep::{ASKS_EVERY, Lockstep};
use super::packet::{Packet, ip_part, is_multicast, on_the_wire, words};
use super::ring::{MAX_PACKET_BYTES, Ring};
use super::trace::{Record, Recorder};

/// Packets taken in before due ones are looked at again; bounds how late a burst can make a delivery.
const BATCH_PACKETS: usize = 32;
/// A delivery this late is counted, because a test that relies on timing should look at it.
const LATE_NS: u64 = 1_000_000;

/// What one direction of a link has carried and dropped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Packets that entered, in wire packets: a 64 KiB segment counts as what it would be cut into.
    pub packets: u64,
    /// Their IP bytes.
    pub bytes: u64,
    /// Wire packets that arrived.
    pub delivered_packets: u64,
    /// Their IP bytes.
    pub delivered_bytes: u64,
    /// Wire packets lost at random.
    pub lost: u64,
    /// Wire packets dropped because the queue was full.
    pub queue_full: u64,
    /// Wire packets dropped because the link was cut or a firewall refused them.
    pub blocked: u64,
    /// Wire packets dropped for reasons that a real link does not have: no memory left in the ring, or the device
    /// refused them. A test that sees any measured the laboratory instead of its subject.
    pub broken: u64,
    /// Deliveries more than a millisecond late.
    pub late: u64,
    /// The latest delivery.
    pub worst_lateness: Duration,
}

#[derive(Default)]
struct AtomicCounters {
    packets: AtomicU64,
    bytes: AtomicU64,
    delivered_packets: AtomicU64,
    delivered_bytes: AtomicU64,
    lost: AtomicU64,
    queue_full: AtomicU64,
    blocked: AtomicU64,
    broken: AtomicU64,
    late: AtomicU64,
    worst_lateness_ns: AtomicU64,
}

/// Only the pump's thread writes a counter, so a load and a store make a sum.
fn add(counter: &AtomicU64, amount: u64) {
    counter.store(counter.load(Ordering::Relaxed) + amount, Ordering::Relaxed);
}

/// One direction of a link, shared by its thread and the handles that change it.
pub(crate) struct Direction {
    pub(crate) from: String,
    pub(crate) to: String,
    /// Where packets enter.
    entry: Arc<Tun>,
    exit: Arc<Tun>,
    link: Mutex<Link>,
    /// Grows with every change of `link`.
    version: AtomicU64,
    counters: AtomicCounters,
    epoch: Instant,
    recorder: Arc<Recorder>,
    thread_id: AtomicI32,
}

impl Direction {
    pub(crate) fn new(
        names: (&str, &str),
        tuns: (Arc<Tun>, Arc<Tun>),
        link: Link,
        epoch: Instant,
        recorder: Arc<Recorder>,
    ) -> Direction {
        Direction {
            from: names.0.into(),
            to: names.1.into(),
            entry: tuns.0,
            exit: tuns.1,
            link: Mutex::new(link),
            version: AtomicU64::new(0),
            counters: AtomicCounters::default(),
            epoch,
            recorder,
            thread_id: AtomicI32::new(0),
        }
    }

    /// Applies `change` to packets that enter from here on; those in flight arrive as they were sent.
    pub(crate) fn change(&self, change: impl FnOnce(&mut Link)) -> io::Result<()> {
        let mut link = self.lock();
        change(&mut link);
        self.entry.set_offload(offload_of(&link))?;
        self.version.fetch_add(1, Ordering::Release);
        Ok(())
    }

    pub(crate) fn link(&self) -> Link {
        self.lock().clone()
    }

    pub(crate) fn counters(&self) -> Counters {
        let counters = &self.counters;
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Counters {
            packets: read(&counters.packets),
            bytes: read(&counters.bytes),
            delivered_packets: read(&counters.delivered_packets),
            delivered_bytes: read(&counters.delivered_bytes),
            lost: read(&counters.lost),
            queue_full: read(&counters.queue_full),
            blocked: read(&counters.blocked),
            broken: read(&counters.broken),
            late: read(&counters.late),
            worst_lateness: Duration::from_nanos(read(&counters.worst_lateness_ns)),
        }
    }

    /// Kernel id of the thread that moves this direction's packets; 0 before it runs.
    pub(crate) fn thread_id(&self) -> i32 {
        self.thread_id.load(Ordering::Relaxed)
    }

    fn now(&self) -> u64 {
        self.epoch.elapsed().as_nanos() as u64
    }

    fn lock(&self) -> MutexGuard<'_, Link> {
        self.link.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(crate) fn offload_of(link: &Link) -> Offload {
    if link.offloads() { Offload::Segments } else { Offload::Checksum }
}

/// The state of one direction's thread.
pub(crate) struct Pump {
    direction: Arc<Direction>,
    shaper: Shaper,
    ring: Ring,
    overflow: Vec<u8>,
    version: u64,
    lockstep: Option<Arc<Lockstep>>,
    /// Of each packet in flight, where there are rounds: its round, and when it entered.
    rounds: VecDeque<(u64, u64)>,
    /// The front packet is due and has to wait for its round.
    held: bool,
    /// Set when the entry fails, which means that its namespace is gone: watching it on would never sleep.
    entry_gone: bool,
}

impl Pump {
    /// `index` is 0 or 1 and separates the random sequences of a link's two directions.
    pub(crate) fn new(direction: Arc<Direction>, index: u64, lockstep: Option<Arc<Lockstep>>) -> Pump {
        let link = direction.link();
        let ring = Ring::new(link.ring_bytes());
        let (shaper, overflow) = (Shaper::new(link, index), vec![0; MAX_PACKET_BYTES]);
        let rounds = VecDeque::new();
        Pump { direction, shaper, ring, overflow, version: 0, lockstep, rounds, held: false, entry_gone: false }
    }

    /// Moves packets until the other end of `stop` is closed.
    pub(crate) fn run(mut self, stop: &OwnedFd) {
        self.direction.thread_id.store(rustix::thread::gettid().as_raw_nonzero().get(), Ordering::Relaxed);
        whimbrel_sys::netns::schedule_ahead();
        loop {
            self.follow_changes();
            self.deliver_due();
            if !self.take_in() && self.wait(stop) {
                return;
            }
        }
    }

    fn follow_changes(&mut self) {
        let version = self.direction.version.load(Ordering::Acquire);
        if version == self.version {
            return;
        }
        self.version = version;
        let link = self.direction.link();
        self.ring.grow(link.ring_bytes());
        self.shaper.change(link, self.direction.now());
    }

    fn deliver_due(&mut self) {
        let mut now = self.direction.now();
        self.held = false;
        while let Some(due) = self.ring.next_due() {
            if due > now {
                now = self.direction.now();
                if due > now {
                    return;
                }
            }
            let round = self.rounds.front().copied();
            let waits = |lockstep: &Arc<Lockstep>| round.is_some_and(|(round, _)| !lockstep.lets_arrive(round));
            self.held = self.lockstep.as_ref().is_some_and(waits);
            if self.held {
                return;
            }
            let frame = self.ring.front().expect("a ring with a due time has a packet");
            deliver(&self.direction, frame, now - due);
            if let (Some(lockstep), Some((round, entered))) = (&self.lockstep, self.rounds.pop_front()) {
                if self.direction.recorder.is_on() {
                    record(&self.direction, frame, entered, Verdict::Deliver(self.direction.now()));
                }
                lockstep.arrived(round);
            }
            self.ring.pop();
        }
    }

    /// Reads what waits at the entry, one batch at most; false when nothing was there.
    fn take_in(&mut self) -> bool {
        for count in 0..BATCH_PACKETS {
            let space = self.ring.space();
            let full = space.is_none();
            let space = space.unwrap_or(&mut self.overflow);
            let received = self.direction.entry.receive(space);
            self.entry_gone = received.is_err();
            let Ok(Some(bytes)) = received else { return count > 0 };
            let frame = &space[..bytes];
            // The kernel's own multicast chatter has no listener; without it, an idle link is silent.
            if is_multicast(ip_part(frame)) {
                continue;
            }
            let now = self.direction.now();
            let verdict = admit(&self.direction, &mut self.shaper, frame, now);
            // In rounds a packet arrives when it does, and not when it is due.
            let recorded_later = self.lockstep.is_some() && matches!(verdict, Verdict::Deliver(_));
            if self.direction.recorder.is_on() && !recorded_later {
                record(&self.direction, frame, now, verdict);
            }
            match verdict {
                Verdict::Deliver(_) if full => add(&self.direction.counters.broken, on_the_wire(frame).0),
                Verdict::Deliver(due) => {
                    self.rounds.extend(self.lockstep.as_ref().map(|lockstep| (lockstep.enters(), now)));
                    self.ring.keep(bytes, due);
                }
                Verdict::Lost | Verdict::QueueFull | Verdict::Cut => {}
            }
        }
        true
    }

    /// Sleeps until a packet enters or one is due; true when the laboratory is closing.
    fn wait(&self, stop: &OwnedFd) -> bool {
        let soonest = if self.held { ASKS_EVERY.as_nanos() as u64 } else { 0 };
        let wait_ns = self.ring.next_due().map(|due| due.saturating_sub(self.direction.now()).max(soonest));
        let timeout =
            wait_ns.map(|ns| Timespec { tv_sec: (ns / 1_000_000_000) as i64, tv_nsec: (ns % 1_000_000_000) as i64 });
        let entry = self.direction.entry.as_fd();
        let mut watched = [PollFd::new(stop, PollFlags::IN), PollFd::from_borrowed_fd(entry, PollFlags::IN)];
        let watched = &mut watched[..if self.entry_gone { 1 } else { 2 }];
        // An interrupted sleep is a short one.
        let _ = poll(watched, timeout.as_ref());
        !watched[0].revents().is_empty()
    }
}

/// Counts a packet that enters and decides its fate.
fn admit(direction: &Direction, shaper: &mut Shaper, frame: &[u8], now: u64) -> Verdict {
    let counters = &direction.counters;
    let (packets, bytes) = on_the_wire(frame);
    add(&counters.packets, packets);
    add(&counters.bytes, bytes);
    let refused = is_refused(shaper.link(), frame);
    let verdict = if refused { Verdict::Cut } else { shaper.admit(bytes, now) };
    match verdict {
        Verdict::Deliver(_) => {}
        Verdict::Lost => add(&counters.lost, packets),
        Verdict::QueueFull => add(&counters.queue_full, packets),
        Verdict::Cut => add(&counters.blocked, packets),
    }
    verdict
}

fn is_refused(link: &Link, frame: &[u8]) -> bool {
    let Some(ports) = &link.refused_ports else { return false };
    let packet = Packet::parse(ip_part(frame)).filter(Packet::opens_connection);
    packet.and_then(|packet| packet.ports).is_some_and(|(_, destination)| ports.contains(&destination))
}

fn record(direction: &Direction, frame: &[u8], now: u64, verdict: Verdict) {
    direction.recorder.add(Record {
        entered: Duration::from_nanos(now),
        fate: verdict.into(),
        from: direction.from.clone(),
        to: direction.to.clone(),
        bytes: ip_part(frame).len(),
        packet: Packet::parse(ip_part(frame)),
        words: words(ip_part(frame)),
    });
}

fn deliver(direction: &Direction, frame: &[u8], late_ns: u64) {
    let counters = &direction.counters;
    let (packets, bytes) = on_the_wire(frame);
    if direction.exit.send(frame).is_err() {
        add(&counters.broken, packets);
        return;
    }
    add(&counters.delivered_packets, packets);
    add(&counters.delivered_bytes, bytes);
    if late_ns > LATE_NS {
        add(&counters.late, 1);
    }
    counters.worst_lateness_ns.fetch_max(late_ns, Ordering::Relaxed);
}
