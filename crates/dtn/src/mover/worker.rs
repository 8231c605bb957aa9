//! One mover: the thread that carries out the operations of one control connection in order.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::panic::{self, AssertUnwindSafe};
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use whimbrel_connector::{Receipt, WriteSession};
use whimbrel_engine::{Fault, FaultCode};
use whimbrel_proto::op::{Failure, FailureKind, Op, OpId, Outcome, ReceiveSpec};
use whimbrel_transport::Cancel;

use super::context::Context;
use super::failure::Problem;
use super::finisher::{Finisher, Finishing, Later, bug};
use super::message::{Identity, LINES_AHEAD, MoverId, Stripe, ToMover};
use super::node::Node;
use super::outlet::Outlet;
use super::report::{self, Reporter};
use super::session::Session;
use super::{checksum, chunk, command, listing, pack, probe, receive, send, spent};

/// What the reader hands to a mover's thread.
pub enum Job {
    /// An operation.
    Run {
        /// Its id.
        id: OpId,
        /// What to do.
        op: Box<Op>,
        /// This node's part.
        stripe: Stripe,
        /// A receive begun elsewhere.
        session: Option<Box<WriteSession>>,
    },
    /// The end of a striped receive.
    Commit {
        /// Its id.
        id: OpId,
        /// The receive.
        spec: Box<ReceiveSpec>,
        /// What was written.
        session: Box<WriteSession>,
        /// By whom.
        receipts: Vec<Receipt>,
        /// How much.
        bytes: u64,
    },
    /// Where logins of the same server wait.
    Listening(Vec<SocketAddr>),
    /// Values for logs.
    Label {
        /// Task id.
        task: Option<String>,
        /// Client.
        client: Option<String>,
    },
}

impl Job {
    /// The job of a message, if it is one.
    pub fn from_message(message: ToMover) -> Option<Self> {
        match message {
            ToMover::Run { id, op, stripe, session, .. } => Some(Self::Run { id, op, stripe, session }),
            ToMover::Commit { id, spec, session, receipts, bytes, .. } => {
                Some(Self::Commit { id, spec, session, receipts, bytes })
            }
            ToMover::Label { task, client, .. } => Some(Self::Label { task, client }),
            ToMover::Listening { addresses, .. } => Some(Self::Listening(addresses)),
            _ => None,
        }
    }
}

/// What the reader may do to a mover out of band.
#[derive(Default)]
pub struct Control {
    state: Mutex<ControlState>,
    /// The front has heard something, or the operation is to stop.
    changed: Condvar,
}

#[derive(Default)]
struct ControlState {
    detached: bool,
    running: Option<OpId>,
    last: Option<OpId>,
    /// Kept from operation to operation until it is used: making one costs a system call.
    cancel: Option<Cancel>,
    aborted: BTreeSet<OpId>,
    /// Operations whose data have passed and whose results are still to come.
    finishing: BTreeMap<OpId, Cancel>,
    /// Bytes of listings sent and not yet heard.
    unheard: u64,
}

impl Control {
    /// Stops `id` now, or as soon as its turn comes.
    pub fn abort(&self, id: OpId) {
        let mut state = self.lock();
        if state.running == Some(id) {
            state.cancel();
            self.changed.notify_all();
        } else if let Some(cancel) = state.finishing.get(&id) {
            cancel.cancel();
        } else if state.last < Some(id) {
            state.aborted.insert(id);
        }
    }

    /// Stops what runs and everything that waits.
    pub fn detach(&self) {
        let mut state = self.lock();
        state.detached = true;
        state.cancel();
        state.finishing.values().for_each(Cancel::cancel);
        self.changed.notify_all();
    }

    /// The front has taken up so many bytes of a listing.
    pub fn heard(&self, bytes: u64) {
        let mut state = self.lock();
        state.unheard = state.unheard.saturating_sub(bytes);
        self.changed.notify_all();
    }

    /// Before bytes of a listing are sent: waits while too many are unheard, until cancelled.
    pub fn tell(&self, bytes: usize, cancel: &Cancel) -> Result<(), Fault> {
        let mut state = self.lock();
        while state.unheard > LINES_AHEAD {
            cancel.check("list")?;
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.unheard += bytes as u64;
        Ok(())
    }

    fn is_detached(&self) -> bool {
        self.lock().detached
    }

    /// The token of an operation that starts now; `Cancelled` when it was aborted before.
    fn start(&self, id: OpId) -> Result<Cancel, Fault> {
        let mut state = self.lock();
        let aborted = state.aborted.remove(&id);
        state.last = Some(id);
        if aborted || state.detached {
            return Err(Fault::new(FaultCode::Cancelled, "start operation"));
        }
        if state.cancel.as_ref().is_none_or(Cancel::is_cancelled) {
            state.cancel = Some(Cancel::new()?);
        }
        state.running = Some(id);
        Ok(state.cancel.clone().expect("set above"))
    }

    fn finish(&self) {
        self.lock().running = None;
    }

    /// Like [`Control::finish`] for an operation that goes on elsewhere; its token.
    fn hand_over(&self, id: OpId) -> Option<Cancel> {
        let mut state = self.lock();
        state.running = None;
        let cancel = state.cancel.take()?;
        state.finishing.insert(id, cancel.clone());
        Some(cancel)
    }

    /// An operation that went on elsewhere has ended.
    pub fn finished(&self, id: OpId) {
        self.lock().finishing.remove(&id);
    }

    fn lock(&self) -> MutexGuard<'_, ControlState> {
        // Every change of the state is one step, so a panic leaves it usable.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ControlState {
    fn cancel(&mut self) {
        if let Some(cancel) = &self.cancel {
            cancel.cancel();
        }
    }
}

/// One mover.
pub struct Worker {
    node: Arc<Node>,
    control: Arc<Control>,
    reporter: Reporter,
    session: Session,
    context: Context,
    finisher: Finisher,
    /// What the present operation leaves to the finisher.
    later: Option<Later>,
}

impl Worker {
    /// A mover without a data handle.
    pub fn new(node: Arc<Node>, mover: MoverId, identity: Identity) -> Self {
        let control = Arc::<Control>::default();
        let node = node.of_login(&identity);
        Self {
            finisher: Finisher::new(control.clone()),
            later: None,
            control,
            reporter: Reporter::new(Outlet::new(node.writer.clone()), mover),
            session: Session::new(node.clone(), &identity),
            context: Context::new(identity),
            node,
        }
    }

    /// The reader's hold on this mover.
    pub fn control(&self) -> Arc<Control> {
        self.control.clone()
    }

    /// Works until detached or until the reader is gone.
    pub fn run(mut self, jobs: &Receiver<Job>) {
        while let Ok(job) = jobs.recv() {
            if self.control.is_detached() {
                break;
            }
            self.handle(job);
        }
    }

    fn handle(&mut self, job: Job) {
        match job {
            Job::Label { task, client } => self.context.label(task, client),
            Job::Listening(addresses) => self.session.listening_of_server(addresses),
            Job::Run { id, op, stripe, session } => {
                self.finisher.make_way(&op);
                let nature = match *op {
                    _ if op.moves_data() => Nature::Moves,
                    Op::Facts { .. } | Op::Size(_) | Op::Modified(_) => Nature::Asks,
                    _ => Nature::Other,
                };
                self.guarded(id, nature, |worker, cancel| worker.operation(&op, stripe, session.as_deref(), cancel))
            }
            Job::Commit { id, spec, session, receipts, bytes } => {
                self.finisher.drain();
                self.guarded(id, Nature::Other, |worker, cancel| {
                    let node = worker.node.clone();
                    receive::commit(&node, &spec, &session, &receipts, bytes, cancel).map(Some)
                })
            }
        }
    }

    /// Runs `work` so that exactly one answer follows, whatever happens inside.
    ///
    /// A transfer that fails without its data having passed closes the data handle: with pipelined
    /// commands the other side's next file would take this one's place, or this one's data the next
    /// file's.
    fn guarded(
        &mut self,
        id: OpId,
        nature: Nature,
        work: impl FnOnce(&mut Self, &Cancel) -> Result<Option<Outcome>, Problem>,
    ) {
        self.reporter.start(id);
        self.session.expect_data();
        let (result, cancelled) = match self.control.start(id) {
            Err(fault) => (Err(fault.into()), false),
            Ok(cancel) => {
                let result = panic::catch_unwind(AssertUnwindSafe(|| work(self, &cancel)));
                if !matches!(result, Ok(Ok(None))) {
                    self.later = None;
                }
                if self.later.is_none() {
                    self.control.finish();
                }
                (result.unwrap_or_else(|_| Err(bug().into())), cancel.is_cancelled())
            }
        };
        if nature == Nature::Moves && result.is_err() && !self.session.data_passed() {
            self.session.close();
        }
        match result {
            Ok(Some(outcome)) => self.reporter.outcome(outcome),
            Ok(None) => match self.later.take() {
                Some(later) => self.hand_over(id, later),
                None => self.reporter.flush(),
            },
            Err(problem) => self.fail(problem, cancelled, nature),
        }
    }

    /// Leaves the rest of an operation to the finisher; what this mover says from now on waits for its answer.
    fn hand_over(&mut self, id: OpId, later: Later) {
        let cancel = self.control.hand_over(id).expect("the operation had a token");
        self.reporter.flush();
        let place = self.reporter.outlet().hold();
        let (mover, _) = self.reporter.about();
        let (user, token, times) = (self.context.user().to_owned(), cancel.clone(), later.times.clone());
        let encode = Box::new(move |result: Result<Outcome, Problem>| {
            let failed = |problem| Outcome::Failed(failure(problem, token.is_cancelled(), &user, Nature::Other));
            report::last_frames(mover, id, spent::of_proof(&times), result.unwrap_or_else(failed))
        });
        self.finisher.take(Finishing { id, later, cancel, place, encode });
    }

    fn fail(&mut self, problem: Problem, cancelled: bool, nature: Nature) {
        let failure = failure(problem, cancelled, self.context.user(), nature);
        self.reporter.outcome(Outcome::Failed(failure));
    }

    fn operation(
        &mut self,
        op: &Op,
        stripe: Stripe,
        session: Option<&WriteSession>,
        cancel: &Cancel,
    ) -> Result<Option<Outcome>, Problem> {
        if self.node.settings.read_only && command::changes(op) {
            return Err(Fault::new(FaultCode::ReadOnly, "change storage").into());
        }
        self.context.check_time()?;
        let node = self.node.clone();
        if let Some(result) = command::run(node.connector.as_ref(), op, node.settings.sync_writes) {
            return Ok(Some(result?));
        }
        let mut task = Task {
            node: &node,
            context: &self.context,
            reporter: &mut self.reporter,
            session: &mut self.session,
            stripe,
            cancel,
            later: &mut self.later,
            control: &self.control,
        };
        if let Op::CommitChunked { path, session, expected: Some(expected), .. } = op {
            chunk::expect(&mut task, path, session, expected)?;
        }
        if let Some(result) = chunk::run(&task, op) {
            return result.map(Some);
        }
        match op {
            // A node is one stripe: with or without SPAS it listens at one address.
            Op::Passive { family, params, .. } => Ok(Some(task.session.passive(*family, params)?)),
            Op::Active { targets, params } => Ok(Some(task.session.active(targets, params)?)),
            Op::CloseData => {
                task.session.close();
                Ok(Some(Outcome::Done))
            }
            Op::DataCredential(given) => Ok(Some(task.session.bring_credential(given.as_ref())?)),
            Op::Send(spec) => send::file(&mut task, spec).map(Some),
            Op::SendPack(spec) => pack::send(&mut task, spec).map(Some),
            Op::ReceivePack(spec) => pack::receive(&mut task, spec).map(Some),
            Op::SendListing(spec) => send::listing(&mut task, spec).map(Some),
            Op::Receive(spec) => receive::run(&mut task, spec, session),
            Op::Listing(spec) => Ok(Some(listing::on_control(&mut task, spec)?)),
            Op::Facts { path, facts } => Ok(Some(listing::facts(node.connector.as_ref(), path, facts.as_deref())?)),
            Op::Checksum { .. } => Ok(Some(checksum::run(&mut task, op)?)),
            Op::Probe(spec) => probe::run(&mut task, spec).map(Some),
            _ => Err(Fault::new(FaultCode::Internal, "choose operation").into()),
        }
    }
}

/// What an operation does, as far as its failure depends on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Nature {
    /// Moves bytes over data connections.
    Moves,
    /// Asks about one name: that there is nothing is an answer.
    Asks,
    /// Anything else.
    Other,
}

fn failure(problem: Problem, cancelled: bool, user: &str, nature: Nature) -> Failure {
    let mut failure = problem.into_failure();
    if cancelled {
        failure.kind = FailureKind::Aborted;
    }
    if nature == Nature::Asks && failure.kind == FailureKind::NotFound {
        tracing::debug!(user, failure = failure.text, "operation failed");
    } else {
        tracing::info!(user, failure = failure.text, "operation failed");
    }
    failure
}

/// What an operation works with.
pub struct Task<'a> {
    /// The process.
    pub node: &'a Arc<Node>,
    /// On whose behalf.
    pub context: &'a Context,
    /// To the front.
    pub reporter: &'a mut Reporter,
    /// The data handle.
    pub session: &'a mut Session,
    /// This node's part.
    pub stripe: Stripe,
    /// The request to stop.
    pub cancel: &'a Cancel,
    /// Set by an operation that leaves its end to the finisher and answers nothing itself.
    pub later: &'a mut Option<Later>,
    /// How far listings may run ahead of the front.
    pub control: &'a Control,
}
