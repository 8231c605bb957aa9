//! The second half of long receives: one thread a mover proves what was stored while the next data come in.

use std::collections::VecDeque;
use std::panic::{self, AssertUnwindSafe};
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

use whimbrel_engine::{Fault, FaultCode};
use whimbrel_proto::op::{Op, OpId, Outcome};
use whimbrel_transport::{Cancel, Times};

use super::command::resolve;
use super::failure::Problem;
use super::outlet::Place;
use super::process::STACK;
use super::worker::Control;

/// Receives handed over and not finished: the one in work and one that waits.
const BACKLOG: usize = 2;

/// The rest of an operation, which ends with its result.
pub type Work = Box<dyn FnOnce(&Cancel) -> Result<Outcome, Problem> + Send>;

/// What is left of an operation when its data have passed.
pub struct Later {
    /// The file's path as the operation gave it.
    pub path: Vec<u8>,
    /// What is to be done.
    pub work: Work,
    /// Where its time goes.
    pub times: Arc<Times>,
}

/// An operation in the finisher's hands.
pub struct Finishing {
    /// Its id.
    pub id: OpId,
    /// What is left.
    pub later: Later,
    /// Stops it.
    pub cancel: Cancel,
    /// Where its answer goes.
    pub place: Place,
    /// Makes the answer's frames.
    pub encode: Box<dyn FnOnce(Result<Outcome, Problem>) -> Vec<u8> + Send>,
}

/// Finishes a mover's operations in order, on a thread that is started when first needed.
pub struct Finisher {
    control: Arc<Control>,
    shared: Arc<UnderWay>,
    running: Option<(SyncSender<Finishing>, JoinHandle<()>)>,
}

/// Paths of the operations that are not finished, in order.
#[derive(Default)]
struct UnderWay {
    paths: Mutex<VecDeque<Vec<u8>>>,
    less: Condvar,
}

impl UnderWay {
    fn lock(&self) -> MutexGuard<'_, VecDeque<Vec<u8>>> {
        self.paths.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait_for(&self, most: usize) {
        let paths = self.lock();
        drop(self.less.wait_while(paths, |paths| paths.len() > most));
    }
}

impl Finisher {
    /// Nothing to do yet.
    pub fn new(control: Arc<Control>) -> Self {
        Self { control, shared: Arc::default(), running: None }
    }

    /// Waits until `op` may run: most need to see what operations before them did.
    pub fn make_way(&self, op: &Op) {
        if self.running.is_some() && !self.may_overtake(op) {
            self.shared.wait_for(0);
        }
    }

    /// Waits until everything is finished.
    pub fn drain(&self) {
        self.shared.wait_for(0);
    }

    fn may_overtake(&self, op: &Op) -> bool {
        match op {
            // Chunks of a file are written in any order, at once, by many movers.
            Op::Receive(spec) if spec.is_chunk() => true,
            Op::KeepLeaves { .. } => true,
            Op::Receive(spec) => !self.holds(&spec.path),
            Op::ReceivePack(spec) => !spec.files.iter().any(|file| self.holds(&file.path)),
            _ => false,
        }
    }

    fn holds(&self, path: &[u8]) -> bool {
        let resolved = resolve(path).ok();
        self.shared.lock().iter().any(|held| resolve(held).ok() == resolved)
    }

    /// Takes an operation over; waits while there are too many.
    pub fn take(&mut self, finishing: Finishing) {
        self.shared.wait_for(BACKLOG - 1);
        self.shared.lock().push_back(finishing.later.path.clone());
        let unsent = match self.sender() {
            Some(sender) => sender.send(finishing).err().map(|error| error.0),
            None => Some(finishing),
        };
        if let Some(finishing) = unsent {
            // No thread can be had: then the mover's own has to do it.
            finish(&self.control, &self.shared, finishing);
        }
    }

    fn sender(&mut self) -> Option<&SyncSender<Finishing>> {
        if self.running.is_none() {
            let (sender, receiver) = mpsc::sync_channel(BACKLOG);
            let (control, shared) = (self.control.clone(), self.shared.clone());
            let thread = thread::Builder::new().name("finisher".to_owned()).stack_size(STACK);
            match thread.spawn(move || run(&control, &shared, &receiver)) {
                Ok(thread) => self.running = Some((sender, thread)),
                Err(error) => tracing::warn!(%error, "no thread to finish receives"),
            }
        }
        self.running.as_ref().map(|(sender, _)| sender)
    }
}

impl Drop for Finisher {
    fn drop(&mut self) {
        if let Some((sender, thread)) = self.running.take() {
            drop(sender);
            if thread.join().is_err() {
                tracing::error!("a finisher's thread panicked outside an operation");
            }
        }
    }
}

fn run(control: &Control, shared: &UnderWay, receiver: &Receiver<Finishing>) {
    while let Ok(finishing) = receiver.recv() {
        finish(control, shared, finishing);
    }
}

fn finish(control: &Control, shared: &UnderWay, finishing: Finishing) {
    let Finishing { id, later, cancel, place, encode } = finishing;
    let result = match cancel.check("finish receive") {
        Err(fault) => Err(fault.into()),
        Ok(()) => panic::catch_unwind(AssertUnwindSafe(|| (later.work)(&cancel))).unwrap_or_else(|_| Err(bug().into())),
    };
    control.finished(id);
    place.fill(encode(result));
    shared.lock().pop_front();
    shared.less.notify_all();
}

/// A panic was caught; the panic hook has said where.
pub fn bug() -> Fault {
    let fault = Fault::new(FaultCode::Internal, "carry out operation").side(whimbrel_engine::Side::Us);
    fault.detail("this is a bug; the log has more")
}
