//! One task while it is worked on: a thread of its own.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{mpsc, watch};
use whimbrel_engine::dispatch::{Assignment, End, Site, Work};
use whimbrel_engine::{Fault, FaultCode, Side};

use super::Limits;
use super::delete;
use super::fate;
use super::hold::{Hold, Line, Lost};
use super::keys::Keys;
use super::ledger::Ledger;
use super::options;
use super::report::{Moved, Outbox, Reporter};
use super::site::Reach;
use super::transfer::{self, Run};
use crate::client::pair::{both_outbound, sender_connects};

/// How the service is talked to about a task.
pub(super) struct Desk {
    pub(super) line: Line,
    pub(super) hold: Hold,
    pub(super) outbox: Rc<Outbox>,
    pub(super) limits: Limits,
    /// Runs in a row that brought nothing.
    fruitless: u32,
}

impl Desk {
    /// Seconds to wait before the task is tried again.
    pub(super) fn after(&self) -> f64 {
        let Limits { first_wait, longest_wait, .. } = self.limits;
        first_wait.saturating_mul(2u32.saturating_pow(self.fruitless)).min(longest_wait).as_secs_f64()
    }
}

/// A task that is worked on, as the thread that talks to the service sees it.
pub(super) struct Job {
    pub(super) line: Line,
    pub(super) hold: Hold,
    pub(super) limits: Limits,
    pub(super) fruitless: u32,
    pub(super) assignment: Box<Assignment>,
    pub(super) sites: Sites,
}

/// The sites of a task: their credentials are renewed while it runs.
#[derive(Debug, Clone, Default)]
pub(super) struct Sites(Arc<Mutex<Option<Both>>>);

/// Where from, and where to.
type Both = [Option<Arc<Reach>>; 2];

impl Sites {
    /// What is shown from now on in new sessions.
    pub(super) fn renew(&self, source: &Site, destination: Option<&Site>) {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        for (reach, site) in known.iter().flatten().zip([Some(source), destination]) {
            if let (Some(reach), Some(site)) = (reach, site)
                && let Err(fault) = reach.renew(site)
            {
                tracing::warn!(%fault, "a renewed credential cannot be used");
            }
        }
    }

    fn open(&self, assignment: &Assignment, line: &Line) -> Result<Both, Fault> {
        let source = Arc::new(Reach::new(&assignment.source, line)?);
        let destination =
            assignment.destination.as_ref().map(|site| Reach::new(site, line).map(Arc::new)).transpose()?;
        let sites = [Some(source), destination];
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(sites.clone());
        Ok(sites)
    }
}

impl Job {
    /// Works until the end, and reports it; whether anything was done.
    pub(super) fn run(self) -> bool {
        let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
            Ok(runtime) => runtime,
            Err(error) => {
                // The lease runs out, and the task goes to another.
                tracing::error!(%error, "no runtime for a task");
                return false;
            }
        };
        runtime.block_on(self.work()).unwrap_or(false)
    }

    async fn work(self) -> Result<bool, Lost> {
        let Self { line, hold, limits, fruitless, assignment, sites } = self;
        let outbox = Rc::new(Outbox::default());
        let mut reporter = Reporter::new(outbox.clone(), line.clone(), hold.clone(), limits.batch, limits.gauge);
        let finished = Keys::fetch(&line, &hold).await?;
        let desk = Desk { line, hold, outbox, limits, fruitless };
        let progress = Rc::new(Cell::new(false));
        let end = match sites.open(&assignment, &desk.line) {
            Ok([Some(source), destination]) => {
                let (moved, sources) = mpsc::unbounded_channel();
                let is_move = matches!(&assignment.work, Work::Transfer(options) if options.move_source);
                reporter.moved = is_move.then_some(moved);
                let work = async {
                    let ends = (&*source, destination.as_deref());
                    let sources = is_move.then_some(sources);
                    let end = carry_out(&desk, &assignment, ends, finished, &progress, sources).await;
                    desk.outbox.close();
                    end
                };
                let reporting = async {
                    let told = reporter.run().await;
                    if told.is_err() {
                        desk.outbox.abandon();
                        reporter.moved = None;
                    }
                    told
                };
                let (end, told) = tokio::join!(work, reporting);
                told?;
                end
            }
            Ok(_) => impossible("the task has no source"),
            Err(fault) => {
                let sites = std::iter::once(&assignment.source).chain(&assignment.destination);
                let credentials: Vec<_> = sites.map(|site| site.credential.clone()).collect();
                fate::end_by(fault, desk.after(), &credentials)
            }
        };
        reporter.end(end).await?;
        Ok(progress.get())
    }
}

async fn carry_out(
    desk: &Desk,
    assignment: &Assignment,
    (source, destination): (&Reach, Option<&Reach>),
    finished: Keys,
    progress: &Rc<Cell<bool>>,
    moved: Option<mpsc::UnboundedReceiver<Moved>>,
) -> End {
    let options = match &assignment.work {
        Work::Transfer(options) => options,
        Work::Delete(options) => return delete::run(desk, assignment, *options, source, finished, progress).await,
    };
    let Some(destination) = destination else { return impossible("the transfer has no destination") };
    if let Some(fault) = no_way(source, destination, !assignment.relays.is_empty()) {
        return End::Impossible { fault };
    }
    let cancel = Rc::new(watch::channel(false).0);
    let mut ledger = Ledger::new(desk.outbox.clone(), finished, transfer::leniency(options), cancel.clone())
        .with_progress(progress.clone());
    ledger.moves = options.move_source;
    ledger.durable = options::is_durable(options);
    let ledger = Rc::new(RefCell::new(ledger));
    Run { desk, assignment, options, source, destination, ledger, cancel }.run(moved).await
}

/// Why no data connection can be made, as far as that is known before anything is asked.
pub(super) fn no_way(source: &Reach, destination: &Reach, relayed: bool) -> Option<Fault> {
    match (source.is_outbound(), destination.is_outbound()) {
        (true, true) if relayed => None,
        (true, true) => Some(both_outbound()),
        (false, true) if source.is_stock() => Some(sender_connects()),
        _ => None,
    }
}

fn impossible(detail: &str) -> End {
    End::Impossible {
        fault: Fault::new(FaultCode::InvalidArgument, "read the task").side(Side::Service).detail(detail),
    }
}
