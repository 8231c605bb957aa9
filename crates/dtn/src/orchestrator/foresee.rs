//! What a task would do: its plan is made as for the task itself, counted, and thrown away.
//!
//! Each runs on a thread of its own, so that a large tree holds up no listing that somebody waits for, and ends by itself.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use tokio::sync::{Notify, Semaphore, mpsc, oneshot};
use tokio::task::LocalSet;
use tokio::time::{sleep, timeout};
use whimbrel_engine::dispatch::{Draft, OperationResult, Site, Work, WorkItem};
use whimbrel_engine::plan::{Action, Aim, Cut, Extra, Forecast, Forecaster, Links, PlanOptions, RootId, SyncLevel};
use whimbrel_engine::task::{DeleteOptions, TransferOptions};
use whimbrel_engine::{Fault, FaultCode, Side};

use super::hold::Line;
use super::mirror::as_listed;
use super::options::{self, Manner, usual};
use super::removal::{Found, root};
use super::site::Reach;
use super::work::no_way;
use super::{Limits, delete, fate};
use crate::client::copy::beginning;
use crate::client::options::{CopyOptions, Jobs};
use crate::client::pair::DataWish;
use crate::client::plan::{All, Known, Planning};
use crate::client::shared::Shared;

/// Read ahead.
const AHEAD: usize = 256;
/// Plans at once: each lists as fast as the servers answer.
const AT_ONCE: usize = 4;
/// Longest wait for one of these places.
const PATIENCE: Duration = Duration::from_secs(20);

/// Tells what tasks would do.
pub(super) struct Foreseer {
    line: Line,
    limits: Limits,
    places: Arc<Semaphore>,
}

impl Foreseer {
    pub(super) fn new(line: Line, limits: Limits) -> Self {
        Self { line, limits, places: Arc::new(Semaphore::new(AT_ONCE)) }
    }

    /// What a task would do that begins at this site.
    ///
    /// # Errors
    /// An end cannot be reached or lets nobody in; `ServerBusy`, when others are looked at for too long.
    pub(super) async fn foresee(&self, source: Site, draft: Draft) -> Result<OperationResult, Fault> {
        let busy = || Fault::new(FaultCode::ServerBusy, "plan a task").side(Side::Service);
        let place = timeout(PATIENCE, self.places.clone().acquire_owned()).await;
        let place = place.map_err(|_| busy().detail("too many plans are asked for"))?.map_err(|_| busy())?;
        let (line, limits) = (self.line.clone(), self.limits.clone());
        let (sender, answer) = oneshot::channel();
        let failed = |error| Fault::from_io(error, "start a thread for a plan").side(Side::Us);
        let work = move || {
            let _place = place;
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed);
            let found = runtime.and_then(|runtime| {
                LocalSet::new().block_on(&runtime, Box::pin(foresee(&line, &limits, &source, draft)))
            });
            // Who asked may have gone.
            drop(sender.send(found));
        };
        thread::Builder::new().name("plan".to_owned()).spawn(work).map_err(failed)?;
        let forecast = answer.await.map_err(|_| Fault::new(FaultCode::Internal, "plan a task").side(Side::Us))?;
        forecast.map(|forecast| OperationResult::Foreseen(Box::new(forecast)))
    }
}

async fn foresee(line: &Line, limits: &Limits, source: &Site, draft: Draft) -> Result<Forecast, Fault> {
    let source = Reach::new(source, line)?;
    let destination = draft.destination.as_ref().map(|site| Reach::new(site, line)).transpose()?;
    match (&draft.work, destination) {
        (Work::Transfer(options), Some(destination)) => {
            // Whether there is a relay is looked at when the task begins.
            if let Some(fault) = no_way(&source, &destination, true) {
                return Err(fault);
            }
            transfer(limits, &draft, options, [&source, &destination]).await
        }
        (Work::Delete(options), _) => deletion(limits, &draft, *options, &source).await,
        (Work::Transfer(_), None) => Err(Fault::new(FaultCode::InvalidArgument, "plan a task")
            .side(Side::Service)
            .detail("it has no destination")),
    }
}

/// What is counted, and whether it is enough.
struct Count<'a> {
    draft: &'a Draft,
    forecaster: RefCell<Forecaster>,
    filtered: Rc<Cell<u64>>,
    /// Why nothing can be said.
    fault: RefCell<Option<Fault>>,
    /// Nothing more is to be counted.
    enough: Notify,
}

impl<'a> Count<'a> {
    fn new(aim: Aim, draft: &'a Draft) -> Self {
        Self {
            draft,
            forecaster: RefCell::new(Forecaster::new(aim, draft.bounds.steps as usize)),
            filtered: Rc::default(),
            fault: RefCell::default(),
            enough: Notify::new(),
        }
    }

    /// Takes the task's actions.
    async fn take(&self, mut actions: mpsc::Receiver<Action>) {
        while let Some(action) = actions.recv().await {
            match &action {
                // It says nothing about the item, and would say the same about all.
                Action::Refuse { fault, .. } if fate::is_about_login(fault) || fate::is_about_server(fault) => {
                    self.fault.borrow_mut().get_or_insert_with(|| fault.clone());
                    return self.enough.notify_one();
                }
                _ if self.is_full() => return self.enough.notify_one(),
                action => self.forecaster.borrow_mut().take(action),
            }
        }
    }

    /// Takes actions about what only the destination has; their roots are those of `roots`, in this order.
    async fn take_extras(&self, mut actions: mpsc::Receiver<Action>, roots: &RefCell<Vec<RootId>>) {
        while let Some(action) = actions.recv().await {
            if self.is_full() {
                return self.enough.notify_one();
            }
            let of = usize::try_from(action.item().root.0).ok().and_then(|at| roots.borrow().get(at).copied());
            if let Some(of) = of {
                self.forecaster.borrow_mut().take_extra(of, &action);
            }
        }
    }

    fn is_full(&self) -> bool {
        self.forecaster.borrow().seen() >= self.draft.bounds.entries
    }

    /// Counts until `work` has ended, or enough is counted, or the time is up; why there may be more.
    async fn until(&self, work: impl Future<Output = Result<(), Fault>>) -> Result<Option<Cut>, Fault> {
        let time = Duration::from_secs(self.draft.bounds.seconds.into());
        let (result, cut) = tokio::select! {
            result = work => (result, self.draft.more.then_some(Cut::Named)),
            () = self.enough.notified() => (Ok(()), Some(Cut::Entries)),
            () = sleep(time) => (Ok(()), Some(Cut::Time)),
        };
        match self.fault.take() {
            Some(fault) => Err(fault),
            None => result.map(|()| cut),
        }
    }

    fn finish(self, cut: Option<Cut>) -> Forecast {
        self.forecaster.into_inner().finish(self.filtered.get(), cut)
    }
}

async fn transfer(
    limits: &Limits,
    draft: &Draft,
    wanted: &TransferOptions,
    ends: [&Reach; 2],
) -> Result<Forecast, Fault> {
    let manner = Manner { label: &draft.label, max_concurrency: draft.max_concurrency };
    let copy = CopyOptions { dry_run: true, ..options::copy(limits, manner, wanted, ends) };
    let count = Count::new(Aim::Transfer { moves: wanted.move_source }, draft);
    let (sender, files) = mpsc::channel(AHEAD);
    let (to, actions) = mpsc::channel(AHEAD);
    let (tell, extras) = mpsc::channel(AHEAD);
    let (name, removed) = mpsc::channel(AHEAD);
    let (to_extra, extra_actions) = mpsc::channel(AHEAD);
    let plan = PlanOptions { mirror: wanted.delete_extra, ..copy.plan.clone() };
    // As mirroring finds what it deletes.
    let removal = PlanOptions { sync: SyncLevel::None, links: Links::Copy, avoids_links: false, ..copy.plan.clone() };
    let planning = planning(&copy, plan, to).telling_extras(tell).counting_filtered(count.filtered.clone());
    let removing = self::planning(&copy, removal, to_extra);
    let (roots, choices) = (RefCell::default(), RefCell::default());
    let work = async {
        let ((), (), planned, (), removed, (), ()) = tokio::join!(
            async { *choices.borrow_mut() = beginning(&copy).await },
            feed(draft, sender, |item| options::found(ends[0], ends[1], item)),
            planning.run(Jobs::Files(files), Known::default()),
            name_extras(ends[1], extras, name, &roots),
            removing.run(Jobs::Files(removed), Known::default()),
            count.take(actions),
            count.take_extras(extra_actions, &roots),
        );
        planned.and(removed)
    };
    let cut = count.until(work).await?;
    Ok(Forecast { choices: choices.take(), ..count.finish(cut) })
}

async fn deletion(limits: &Limits, draft: &Draft, wanted: DeleteOptions, end: &Reach) -> Result<Forecast, Fault> {
    let plan = PlanOptions { recursive: wanted.recursive, links: Links::Copy, ..PlanOptions::default() };
    let options = CopyOptions { dry_run: true, ..usual(limits, &draft.label, plan.clone()) };
    let count = Count::new(Aim::Delete { ignore_missing: wanted.ignore_missing }, draft);
    let (to, items) = mpsc::channel(AHEAD);
    let (sender, files) = mpsc::channel(AHEAD);
    let (tell, actions) = mpsc::channel(AHEAD);
    let work = async {
        let ((), (), planned, ()) = tokio::join!(
            feed(draft, to, |item| item),
            delete::name(&draft.label, end, wanted.globs, items, sender),
            planning(&options, plan, tell).run(Jobs::Files(files), Known::default()),
            count.take(actions),
        );
        planned
    };
    let cut = count.until(work).await?;
    Ok(count.finish(cut))
}

/// A planner that asks as the task would.
fn planning(options: &CopyOptions, plan: PlanOptions, to: mpsc::Sender<Action>) -> Planning {
    let options = CopyOptions { plan, ..options.clone() };
    Planning::new(Rc::new(Shared::new(options, DataWish::plain(), Rc::default())), to, All)
}

/// What the user named, as fast as it is taken.
async fn feed<T>(draft: &Draft, to: mpsc::Sender<T>, read: impl Fn(WorkItem) -> T) {
    for item in &draft.items {
        if to.send(read(item.clone())).await.is_err() {
            return;
        }
    }
}

/// Has what only the destination has looked through.
async fn name_extras(
    end: &Reach,
    mut extras: mpsc::Receiver<Extra>,
    to: mpsc::Sender<Found>,
    roots: &RefCell<Vec<RootId>>,
) {
    while let Some(extra) = extras.recv().await {
        roots.borrow_mut().push(extra.root);
        if to.send(root(end, &extra.path, Ok(Some(as_listed(extra.kind))))).await.is_err() {
            return;
        }
    }
}
