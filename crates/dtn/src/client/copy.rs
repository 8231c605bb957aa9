//! A whole copy: plans, drives the transfer machine, opens sessions, reports events.

mod driver;
mod preparation;

use std::rc::Rc;

use tokio::sync::{mpsc, watch};
use tokio::task::LocalSet;
use whimbrel_engine::auto::{self, Explain, Line, Plan};
use whimbrel_engine::events::Event;
use whimbrel_engine::plan::{Action, PlanTotals};
use whimbrel_engine::summary::Summary;
use whimbrel_engine::transfer::TransferOptions;
use whimbrel_engine::{Fault, FaultCode};

use self::driver::Driver;
use self::preparation::prepare;
use super::options::{CopyOptions, Jobs};
use super::pair::DataWish;
use super::plan::{All, Planning, Sieve};
use super::planning;
use super::shared::Shared;

pub(super) use self::preparation::Preparation;

/// Actions planned ahead of the transfer machine.
const PLANNED_AHEAD: usize = 256;

/// What a copy came to.
#[derive(Debug)]
pub enum Report {
    /// It ran.
    Done(Summary),
    /// It was a dry run.
    Planned(PlanTotals),
}

/// Copies; every event goes to `events` in order, the summary included.
///
/// `cancel` turning true ends the run early and orderly. Must run on a current-thread runtime.
///
/// # Errors
/// What stops the command before or while anything is planned; failures of items are in the summary.
pub async fn copy(
    jobs: Jobs,
    options: CopyOptions,
    cancel: watch::Receiver<bool>,
    events: impl FnMut(Event),
) -> Result<Report, Fault> {
    copy_some(jobs, options, cancel, All, events).await
}

/// The same for what a sieve lets pass.
///
/// # Errors
/// As [`copy`].
pub(crate) async fn copy_some(
    jobs: Jobs,
    options: CopyOptions,
    cancel: watch::Receiver<bool>,
    sieve: impl Sieve,
    events: impl FnMut(Event),
) -> Result<Report, Fault> {
    LocalSet::new().run_until(run(jobs, options, cancel, sieve, events)).await
}

async fn run(
    jobs: Jobs,
    options: CopyOptions,
    mut cancel: watch::Receiver<bool>,
    sieve: impl Sieve,
    mut events: impl FnMut(Event),
) -> Result<Report, Fault> {
    let mut preparation = unless_cancelled(&mut cancel, prepare(&jobs, &options)).await?;
    let facts = planning::facts(&jobs, &options, &preparation);
    let plan = auto::plan(&facts);
    let tuning = &plan.tuning;
    let parallelism = u16::try_from(tuning.parallelism.value).unwrap_or(u16::MAX);
    let dry_run = options.dry_run;
    let wish = DataWish {
        parallelism,
        buffer: options.buffer.fixed(),
        stripe: options.stripe,
        congestion: options.congestion.clone(),
        encrypt: options.encrypt,
        credential: options.data_credential.clone(),
    };
    let shared = Shared::new(options, wish, preparation.dtns.clone());
    let shared = Rc::new(shared.beginning_with(plan.congestion.value.clone()));
    let other_kind = is_of_another_kind(&preparation);
    let listed = preparation.listed.take();
    let known = unless_cancelled(&mut cancel, preparation.leave(&shared)).await?;
    let (actions, planned) = mpsc::channel(PLANNED_AHEAD);
    let planning = Planning::new(shared.clone(), actions, sieve).listed(listed).run(jobs, known);
    if dry_run {
        return dry(planning, planned, cancel, events).await;
    }
    events(Event::Tuned(plan.tuning.clone()));
    let explain = explained(&plan, &shared.options, other_kind);
    if shared.options.explain {
        events(Event::Explained(explain.clone()));
    }
    let transfer = TransferOptions {
        retry: shared.options.retry.clone(),
        seed: u64::from(std::process::id()),
        ..plan.options(&facts)
    };
    Driver::new(shared, transfer, explain, (facts, plan))
        .drive(planning, planned, cancel, &mut events)
        .await
        .map(Report::Done)
}

/// How a copy of files that are still to come would begin: each choice with its reason. Nothing is copied.
///
/// Must run in a [`LocalSet`].
pub(crate) async fn beginning(options: &CopyOptions) -> Vec<Line> {
    let (_, none) = mpsc::channel(1);
    let jobs = Jobs::Files(none);
    let preparation = prepare(&jobs, options).await.unwrap_or_default();
    let plan = auto::plan(&planning::facts(&jobs, options, &preparation));
    explained(&plan, options, is_of_another_kind(&preparation)).plan
}

/// Whether the destination's server keeps no unfinished files.
fn is_of_another_kind(preparation: &Preparation) -> bool {
    preparation.destination().is_some_and(|remote| !remote.features.has("CHUNK"))
}

fn explained(plan: &Plan, options: &CopyOptions, other_kind: bool) -> Explain {
    let mut explain = Explain::new(plan);
    explain.limited(options.rate.now());
    if other_kind {
        explain.temporary_names();
    }
    explain
}

/// What comes before anything is copied.
///
/// # Errors
/// Its own, and `Cancelled`.
pub(super) async fn unless_cancelled<T>(
    cancel: &mut watch::Receiver<bool>,
    work: impl Future<Output = Result<T, Fault>>,
) -> Result<T, Fault> {
    tokio::select! {
        result = work => result,
        Ok(_) = cancel.wait_for(|cancel| *cancel) => Err(Fault::new(FaultCode::Cancelled, "copy")),
    }
}

async fn dry(
    planning: impl Future<Output = Result<(), Fault>>,
    mut planned: mpsc::Receiver<Action>,
    mut cancel: watch::Receiver<bool>,
    mut events: impl FnMut(Event),
) -> Result<Report, Fault> {
    let mut totals = PlanTotals::default();
    let print = async {
        while let Some(action) = planned.recv().await {
            totals.add(&action);
            events(Event::Plan(action));
        }
    };
    unless_cancelled(&mut cancel, async { tokio::join!(planning, print).0 }).await?;
    events(Event::PlanTotals(totals));
    Ok(Report::Planned(totals))
}
