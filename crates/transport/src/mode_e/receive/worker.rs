//! The threads of a receive and what each of them does.

use std::os::fd::AsFd;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use whimbrel_engine::{Fault, FaultCode, Side};
use whimbrel_sys::poll::PollFlags;

use super::super::crew::start;
use super::super::{Connection, INLINE_LIMIT};
use super::Shared;
use super::lane::{Fate, Lane};
use crate::cancel::{after_refusal, timed_out};
use crate::flow::StallWatch;
use crate::pool::{Buffer, Class};
use crate::progress::Batch;
use crate::tcp::Listener;
use crate::times::Activity;

/// Rounds of uninterrupted reading after which everybody else is looked at.
const PATIENCE: u32 = 16;
/// How often the first thread looks whether the others have been deserted.
const LOOK_ROUND: Duration = Duration::from_secs(1);

/// Most connections kept for the next transfer; who opens more has to open them again.
const MOST_KEPT: usize = 1024;

/// One thread: its lanes, and the buffer it holds while bytes are ready.
struct Worker<'s, 'a> {
    shared: &'s Shared<'a>,
    lanes: Vec<Lane>,
    stall: StallWatch,
    buffer: Option<Buffer>,
    /// The first one accepts connections and starts the others.
    listener: Option<&'s Listener>,
    is_first: bool,
    /// Threads that work, as far as this one may start more; else more than there may be.
    threads: usize,
    /// Since when nobody was connected who could complete the transfer.
    deserted_since: Option<Instant>,
}

impl Shared<'_> {
    /// Receives to the end or to the first fault; returns how many threads that took.
    pub(super) fn run(&self, connections: Vec<Connection>) -> usize {
        let mut first = Worker::new(self, Vec::new());
        first.is_first = true;
        first.threads = if self.may_grow { 1 } else { usize::MAX };
        first.listener = self.job.admission.listener;
        let admitted = connections.into_iter().try_for_each(|c| first.admit(c));
        thread::scope(|scope| {
            let mut others = Vec::new();
            let result = admitted.and_then(|()| {
                first.drive(&mut |lanes| {
                    others.push(start(scope, lanes, move |lanes| Worker::new(self, lanes).finish())?);
                    Ok(())
                })
            });
            first.close(result);
            let threads = 1 + others.len();
            for other in others {
                if other.join().is_err() {
                    self.crew.fail(self.crew.panicked());
                }
            }
            threads
        })
    }
}

/// Starts a thread with these lanes, or gives them back.
type Crewing<'f> = dyn FnMut(Vec<Lane>) -> Result<(), Vec<Lane>> + 'f;

impl<'s, 'a> Worker<'s, 'a> {
    fn new(shared: &'s Shared<'a>, lanes: Vec<Lane>) -> Self {
        Self {
            shared,
            lanes,
            stall: shared.crew.stall_watch(),
            buffer: None,
            listener: None,
            is_first: false,
            threads: usize::MAX,
            deserted_since: None,
        }
    }

    fn admit(&mut self, connection: Connection) -> Result<(), Fault> {
        let id = self.shared.lock().join(!connection.greeted, connection.channel.is_proven())?;
        self.shared.crew.flow.progress.uses(connection.channel());
        self.lanes.push(Lane::new(connection, id, self.shared.job.admission.timeout));
        Ok(())
    }

    fn finish(mut self) {
        let result = self.drive(&mut Err);
        self.close(result);
    }

    fn close(&mut self, result: Result<(), Fault>) {
        let result = result.and_then(|()| self.retire());
        match result {
            Ok(()) => self.spare(),
            Err(fault) => self.shared.crew.fail(fault),
        }
    }

    /// Connections of ours that the sender has not taken yet: it may for the next transfer. Others nobody knows.
    fn spare(&mut self) {
        if self.shared.job.admission.listener.is_none() && self.shared.lock().is_complete() {
            let spare = self.lanes.extract_if(.., |lane| lane.is_untouched());
            spare.for_each(|lane| self.shared.keep(lane.connection));
        }
    }

    fn drive(&mut self, crewing: &mut Crewing<'_>) -> Result<(), Fault> {
        let crew = &self.shared.crew;
        let _working = crew.flow.progress.times().on_thread();
        let mut batch = Batch::new(crew.flow.progress);
        let mut rounds = 0;
        self.check_deserted()?;
        while !crew.is_stopped() {
            crew.flow.cancel.check(crew.op())?;
            self.serve(&mut batch)?;
            batch.flush()?;
            self.retire()?;
            if crew.is_stopped() || (self.lanes.is_empty() && !self.is_first) {
                break;
            }
            self.share_out(crewing)?;
            let busy = self.lanes.iter().any(|lane| lane.ready);
            rounds += 1;
            if !busy || rounds % PATIENCE == 0 {
                self.wait(busy)?;
            }
        }
        Ok(())
    }

    /// Reads once from every lane that has something.
    fn serve(&mut self, batch: &mut Batch<'_>) -> Result<(), Fault> {
        let shared = self.shared;
        let flow = &shared.crew.flow;
        for lane in self.lanes.iter_mut().filter(|lane| lane.ready && lane.fate == Fate::Open) {
            let mut buffer = match self.buffer.take() {
                Some(buffer) => buffer,
                None => flow.pool.acquire(Class::Receive, flow.cancel)?,
            };
            let received = lane.step(shared, &mut buffer, batch)?;
            lane.ready &= lane.fate == Fate::Open;
            if flow.rate.is_some() {
                drop(buffer);
                shared.crew.pay(received, &mut self.stall)?;
            } else {
                self.buffer = Some(buffer);
            }
        }
        Ok(())
    }

    /// Takes lanes out that have ended one way or another.
    fn retire(&mut self) -> Result<(), Fault> {
        if self.lanes.iter().all(|lane| lane.fate == Fate::Open) {
            return Ok(());
        }
        for lane in self.lanes.extract_if(.., |lane| lane.fate != Fate::Open) {
            match lane.fate {
                Fate::Ended => self.shared.keep(lane.connection),
                Fate::Rejected => self.shared.reject(&lane)?,
                Fate::Closed | Fate::EndedForGood | Fate::Open => {}
            }
        }
        self.check_deserted()
    }

    fn check_deserted(&self) -> Result<(), Fault> {
        let can_join = self.shared.job.admission.listener.is_some();
        self.shared.lock().deserted(can_join)
    }

    /// Gives half of the lanes to a new thread once the transfer has proved to be large.
    fn share_out(&mut self, crewing: &mut Crewing<'_>) -> Result<(), Fault> {
        let flow = &self.shared.crew.flow;
        let due = self.threads < flow.threads && self.lanes.len() > 1;
        if due && self.shared.crew.moved() > INLINE_LIMIT {
            self.shared.crew.grow()?;
            // Whoever has yet to present itself stays with the first, which watches the room that they take.
            let ledger = self.shared.lock();
            self.lanes.sort_by_key(|lane| !ledger.is_stranger(lane.id()));
            let known = self.lanes.iter().filter(|lane| !ledger.is_stranger(lane.id())).count();
            drop(ledger);
            if known < 2 {
                return Ok(());
            }
            let share = self.lanes.split_off(self.lanes.len() - known / 2);
            match crewing(share) {
                Ok(()) => self.threads += 1,
                Err(mut share) => {
                    self.lanes.append(&mut share);
                    // Asking again in every round would cost more than a thread helps.
                    self.threads = usize::MAX;
                }
            }
        }
        Ok(())
    }

    /// Waits for any lane or a new connection; only looks around when `busy`.
    fn wait(&mut self, busy: bool) -> Result<(), Fault> {
        let timeout = if busy {
            Some(Duration::ZERO)
        } else {
            // Nothing is ready to move: others may use the memory.
            self.buffer = None;
            self.patience()?
        };
        let timeout = self.expire(timeout);
        let pause = self.listener.and_then(Listener::pause);
        let timeout = timeout.into_iter().chain(pause).min();
        let listener = self.listener.filter(|_| self.shared.has_room() && pause.is_none());
        let waiting = |lane: &&Lane| !lane.ready;
        let lanes = self.lanes.iter().filter(waiting).map(Lane::poll_entry);
        let door = listener.map(|listener| (listener.as_fd(), PollFlags::IN));
        let fds: Vec<_> = lanes.chain(door).collect();
        let times = self.shared.crew.flow.progress.times();
        let mut ready = times.timed(Activity::Network, || self.shared.crew.poll(&fds, timeout))?;
        let arrived = door.is_some() && ready.pop().is_some_and(|ready| !ready.is_empty());
        let waiting = self.lanes.iter_mut().filter(|lane| !lane.ready);
        waiting.zip(ready).for_each(|(lane, ready)| lane.ready = !ready.is_empty());
        match listener {
            Some(listener) if arrived => self.accept(listener),
            _ => Ok(()),
        }
    }

    /// Turns away who takes too long to show who it is; how long to wait at most, for the next one of them.
    ///
    /// A sender presents itself with its first block, for which a slow source may need long: the nonce has a deadline only
    /// while others may wait for the place, and a handshake a shorter one.
    fn expire(&mut self, timeout: Option<Duration>) -> Option<Duration> {
        let shared = self.shared;
        let crowded = self.is_first && shared.is_crowded();
        let mut next: Option<Instant> = None;
        for lane in self.lanes.iter_mut().filter(|lane| lane.fate == Fate::Open) {
            let greeted_by = (crowded && shared.lock().is_stranger(lane.id())).then(|| lane.greeted_by());
            let Some(until) = lane.prove_until().into_iter().chain(greeted_by).min() else { continue };
            if until <= Instant::now() {
                lane.refuse(shared, "it takes too long to show who it is");
            }
            next = Some(next.map_or(until, |next| next.min(until)));
        }
        let left = next.map(|next| next.saturating_duration_since(Instant::now()));
        timeout.into_iter().chain(left).min()
    }

    fn accept(&mut self, listener: &Listener) -> Result<(), Fault> {
        while self.shared.has_room() {
            match listener.try_accept()? {
                Some(channel) => self.admit(Connection::new(channel))?,
                None => break,
            }
        }
        Ok(())
    }

    /// How long to wait at most, or the fault of having waited too long.
    fn patience(&mut self) -> Result<Option<Duration>, Fault> {
        let crew = &self.shared.crew;
        let now = Instant::now();
        if self.is_first && self.shared.lock().is_deserted() {
            let timeout = self.shared.job.admission.timeout;
            let since = *self.deserted_since.get_or_insert(now);
            let left = timeout.saturating_sub(now - since);
            if left.is_zero() {
                return Err(self.shared.in_vain(timed_out("wait for data channel", timeout)));
            }
            self.stall = crew.stall_watch();
            return Ok(Some(left));
        }
        self.deserted_since = None;
        self.stall.check(now, crew.moved(), crew.op())?;
        let left = self.stall.remaining(now);
        // Only the first one sees that the lanes of the others are gone.
        let alone = !self.is_first || !self.shared.may_grow;
        Ok(if alone { left } else { Some(left.map_or(LOOK_ROUND, |left| left.min(LOOK_ROUND))) })
    }
}

impl Shared<'_> {
    /// Whether another connection may come. Those that have carried their EOD do not count: many senders may share an
    /// address, and the last of them must come in for the transfer to be complete.
    fn has_room(&self) -> bool {
        let (known, _) = self.lock().open();
        known < self.job.admission.max_connections as u64 && !self.is_crowded()
    }

    /// Whether those who have yet to present themselves take all the room there is for them.
    fn is_crowded(&self) -> bool {
        let (_, strangers) = self.lock().open();
        strangers >= self.job.admission.max_connections as u64
    }

    fn keep(&self, mut connection: Connection) {
        connection.greeted = true;
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() < MOST_KEPT {
            idle.push(connection);
        }
    }

    /// Remembers why somebody was turned away: if nobody else comes it is what was wrong.
    pub(super) fn refused(&self, why: &str) {
        let mut refusal = self.refusal.lock().unwrap_or_else(PoisonError::into_inner);
        *refusal = Some(why.to_owned());
    }

    fn in_vain(&self, fault: Fault) -> Fault {
        let refusal = self.refusal.lock().unwrap_or_else(PoisonError::into_inner);
        after_refusal(fault, refusal.as_deref())
    }

    fn reject(&self, lane: &Lane) -> Result<(), Fault> {
        self.lock().closed(lane.id())?;
        let before = self.rejected.fetch_add(1, Ordering::Relaxed);
        // Whoever scans ports is not to fill the log.
        if !(before + 1).is_power_of_two() {
            return Ok(());
        }
        let fault = Fault::new(FaultCode::DataPeerRejected, self.crew.op()).side(Side::Peer);
        let peer = lane.connection.channel.peer_addr();
        tracing::warn!(?peer, rejected = before + 1, "{fault}");
        Ok(())
    }
}
