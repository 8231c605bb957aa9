//! The thread that talks to the service, and hands out what it orders.

use std::collections::HashMap;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{sleep, sleep_until};
use uuid::Uuid;
use whimbrel_engine::Fault;
use whimbrel_engine::dispatch::{Assignment, Lease, Operation, Order, Request, Response};

use super::hold::{Asked, Hold, Line, Standing};
use super::work::{Job, Sites};
use super::{Desk, Limits, operate};
use crate::client::pair::fresh_nonce;

/// Longest wait between polls that fail.
const LONGEST: Duration = Duration::from_secs(10);
/// Most polls open at once.
const POLLS: usize = 4;
/// Tasks whose fruitless runs are remembered.
const REMEMBERED: usize = 10_000;

/// Stack of a task's thread, bytes: what a copy waits for is deep, and builds for tests need almost the usual 2 MiB for it.
const STACK: usize = 8 << 20;

/// A task that is worked on.
struct Running {
    hold: Hold,
    sites: Sites,
    /// When the last poll that renewed it was sent.
    renewed: Instant,
}

/// A poll that is answered.
struct Polled {
    sent: Instant,
    leases: Vec<Lease>,
    free: u32,
    answer: Result<Response, Fault>,
}

/// Work on a task has ended.
struct Ended {
    lease: Lease,
    progress: bool,
}

/// All that the loop knows. Dropped, it leaves its tasks to others.
struct Loop<D> {
    limits: Limits,
    desk: Arc<D>,
    orchestrator: Uuid,
    line: Line,
    operations: mpsc::UnboundedSender<Operation>,
    running: HashMap<Lease, Running>,
    ended: mpsc::UnboundedSender<Ended>,
    polls: JoinSet<Polled>,
    /// What was offered in polls that are open.
    offered: u32,
    /// Tasks began or ended since the last poll: none that is open is told to stop them, or offers what is free.
    changed: bool,
    /// Not before this.
    next_poll: Instant,
    wait: Duration,
    fruitless: HashMap<Uuid, u32>,
    stopping: bool,
}

/// Works until it is told to stop.
pub(super) async fn run<D: Desk>(
    limits: Limits,
    name: Option<Uuid>,
    desk: Arc<D>,
    mut stop: watch::Receiver<bool>,
) -> Result<(), Fault> {
    let (asks, mut asked) = mpsc::unbounded_channel();
    let (ended, mut endings) = mpsc::unbounded_channel();
    let line = Line::new(asks, limits.service_wait);
    let operations = operate::start(line.clone(), limits.clone())?;
    let orchestrator = match name {
        Some(name) => name,
        None => Uuid::from_u128(u128::from_be_bytes(fresh_nonce()?)),
    };
    if name.is_some() {
        tokio::select! {
            () = begin(&*desk, orchestrator, limits.service_wait) => {}
            _ = stop.wait_for(|stop| *stop) => return Ok(()),
        }
    }
    let mut this = Loop {
        wait: limits.service_wait,
        limits,
        desk,
        orchestrator,
        line,
        operations,
        running: HashMap::new(),
        ended,
        polls: JoinSet::new(),
        offered: 0,
        changed: false,
        next_poll: Instant::now(),
        fruitless: HashMap::new(),
        stopping: false,
    };
    loop {
        this.poll();
        let expiry = this.running.values().map(|running| running.renewed).min().map(|first| first + this.limits.lease);
        tokio::select! {
            Some(ask) = asked.recv() => this.pass_on(ask),
            Some(end) = endings.recv() => this.take_end(&end),
            Some(polled) = this.polls.join_next() => match polled {
                Ok(polled) => this.polled(polled),
                Err(error) => {
                    tracing::error!(%error, "a poll ended by itself");
                    this.poll_lost();
                }
            },
            _ = stop.wait_for(|stop| *stop), if !this.stopping => this.stop(),
            () = sleep_until(this.next_poll.into()), if this.polls.is_empty() => {}
            () = sleep_until(expiry.unwrap_or_else(far).into()), if expiry.is_some() => this.expire(),
        }
        if this.stopping && this.running.is_empty() {
            return Ok(());
        }
    }
}

/// Gives up what an earlier life held.
async fn begin<D: Desk>(desk: &D, orchestrator: Uuid, mut wait: Duration) {
    while let Err(fault) = desk.ask(Request::Begin { orchestrator }).await {
        tracing::warn!(%fault, "the service does not answer");
        sleep(wait).await;
        wait = (wait * 2).min(LONGEST);
    }
}

fn far() -> Instant {
    Instant::now() + Duration::from_secs(86_400)
}

impl<D: Desk> Loop<D> {
    fn pass_on(&self, asked: Asked) {
        let desk = self.desk.clone();
        tokio::spawn(async move {
            // Who asked may have gone.
            match asked {
                Asked::Question(request, answer) => drop(answer.send(desk.ask(request).await)),
                Asked::Meeting(server, answer) => drop(answer.send(desk.meet(server).await)),
            }
        });
    }

    /// Sends a poll where none is open that names what runs and offers what is free by now.
    fn poll(&mut self) {
        let free = if self.stopping { 0 } else { self.limits.tasks.saturating_sub(self.running.len() as u32) };
        let more = free.saturating_sub(self.offered);
        let wanted = self.polls.is_empty() || (self.changed && self.polls.len() < POLLS);
        let now = Instant::now();
        if !wanted || now < self.next_poll {
            return;
        }
        let leases: Vec<Lease> = self.running.keys().copied().collect();
        let ends = self.running.values().filter(|running| running.hold.standing() > Standing::Held);
        let ending = ends.map(|running| running.hold.lease).collect();
        let request = Request::Poll { orchestrator: self.orchestrator, free: more, running: leases.clone(), ending };
        let desk = self.desk.clone();
        self.offered += more;
        self.changed = false;
        self.polls.spawn(async move { Polled { sent: now, leases, free: more, answer: desk.ask(request).await } });
    }

    /// What it had offered is not known any more: it is offered again once no other is under way.
    fn poll_lost(&mut self) {
        if self.polls.is_empty() {
            self.offered = 0;
        }
        self.next_poll = Instant::now() + self.wait;
    }

    fn polled(&mut self, polled: Polled) {
        self.offered = self.offered.saturating_sub(polled.free);
        match polled.answer {
            Ok(response) => {
                self.wait = self.limits.service_wait;
                for lease in &polled.leases {
                    if let Some(running) = self.running.get_mut(lease) {
                        running.renewed = running.renewed.max(polled.sent);
                    }
                }
                match response {
                    Response::Orders { orders } => orders.into_iter().for_each(|order| self.obey(order, polled.sent)),
                    Response::LeaseLost { lease } => self.lost(lease),
                    other => tracing::error!(?other, "the service answers a poll with something else"),
                }
            }
            Err(fault) => {
                tracing::warn!(%fault, "the service does not answer");
                self.next_poll = Instant::now() + self.wait;
                self.wait = (self.wait * 2).min(LONGEST);
            }
        }
    }

    fn obey(&mut self, order: Order, sent: Instant) {
        match order {
            Order::Run(assignment) => self.begin(assignment, sent),
            Order::Stop { lease } => {
                if let Some(running) = self.running.get(&lease) {
                    running.hold.set(Standing::Stopping);
                }
            }
            // Its thread outlives everything that can be ordered.
            Order::Operate(operation) => drop(self.operations.send(*operation)),
            Order::Sites { lease, source, destination } => {
                if let Some(running) = self.running.get(&lease) {
                    running.sites.renew(&source, destination.as_deref());
                }
            }
            Order::Rate { lease, most } => {
                if let Some(running) = self.running.get(&lease) {
                    running.hold.set_rate(most);
                }
            }
        }
    }

    fn begin(&mut self, assignment: Box<Assignment>, sent: Instant) {
        let lease = assignment.lease;
        if self.running.contains_key(&lease) {
            return;
        }
        let mut fruitless = self.fruitless.get(&lease.task).copied().unwrap_or(0);
        // A newer lease of a task takes the place of an older one. That may have reported its end already, and of a run that is
        // not over here it is not known that it brought anything.
        for older in self.running.values().filter(|running| running.hold.lease.task == lease.task) {
            older.hold.set(Standing::Lost);
            fruitless = fruitless.saturating_add(1);
        }
        let (hold, sites) = (Hold::new(lease, assignment.max_rate), Sites::default());
        if self.stopping {
            hold.set(Standing::Stopping);
        }
        let job = Job {
            line: self.line.clone(),
            hold: hold.clone(),
            limits: self.limits.clone(),
            fruitless,
            assignment,
            sites: sites.clone(),
        };
        let ending = Ending { ended: self.ended.clone(), lease, progress: false };
        let name = format!("task-{:.8}", lease.task.simple());
        let started = thread::Builder::new().name(name).stack_size(STACK).spawn(move || {
            let mut ending = ending;
            ending.progress = job.run();
        });
        match started {
            Ok(_) => {
                self.changed = true;
                self.running.insert(lease, Running { hold, sites, renewed: sent });
            }
            // The lease runs out, and the task goes to another.
            Err(error) => tracing::error!(%error, "no thread for a task"),
        }
    }

    fn take_end(&mut self, end: &Ended) {
        self.running.remove(&end.lease);
        self.changed = true;
        if end.progress {
            self.fruitless.remove(&end.lease.task);
        } else {
            // Most of so many are over by now.
            if self.fruitless.len() >= REMEMBERED {
                self.fruitless.clear();
            }
            *self.fruitless.entry(end.lease.task).or_default() += 1;
        }
    }

    fn lost(&mut self, lease: Lease) {
        if let Some(running) = self.running.get(&lease) {
            running.hold.set(Standing::Lost);
        }
    }

    /// What was not renewed in time is another's by now.
    fn expire(&mut self) {
        let (now, lease) = (Instant::now(), self.limits.lease);
        for running in self.running.values_mut().filter(|running| running.renewed + lease <= now) {
            tracing::warn!(task = %running.hold.lease.task, "its lease has run out");
            running.hold.set(Standing::Lost);
            // It ends by itself.
            running.renewed = now;
        }
    }

    fn stop(&mut self) {
        self.stopping = true;
        self.running.values().for_each(|running| running.hold.set(Standing::Stopping));
    }
}

impl<D> Drop for Loop<D> {
    fn drop(&mut self) {
        self.running.values().for_each(|running| running.hold.set(Standing::Lost));
    }
}

/// Tells of the end of a thread, whatever ended it.
struct Ending {
    ended: mpsc::UnboundedSender<Ended>,
    lease: Lease,
    progress: bool,
}

impl Drop for Ending {
    fn drop(&mut self) {
        let _ = self.ended.send(Ended { lease: self.lease, progress: self.progress });
    }
}
