//! What orchestrators report: items, counters, events and the task's standing change in one transaction.

use std::sync::Arc;

use serde_json::json;
use whimbrel_engine::Fault;
use whimbrel_engine::dispatch::{End, Gauge, Lease, Occurrence, Report};
use whimbrel_engine::listing::Timestamp;
use whimbrel_engine::task::{ItemState, Status};

use super::database::{Transaction, values};
use super::tasks::{State, lock};
use super::time::later;
use super::{Store, StoreError, items};
use crate::events::{self, code};
use crate::task::{Condition, Fatal, TaskWork};

/// Wait before a task that met something temporary is tried again, seconds; doubled each time without an item done.
const FIRST_WAIT: f64 = 5.0;
/// Longest of these waits, seconds; a longer one that the trouble itself demands is honoured.
const LONGEST_WAIT: f64 = 600.0;

/// What became of a report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reported {
    /// It is stored, now or already before; and where the task stands.
    Taken(Status),
    /// Nothing of it is stored: the lease is another's by now, or the task is over.
    LeaseLost,
}

impl Store {
    /// Takes a report whole, or not at all; one that came before is not taken twice.
    ///
    /// # Errors
    /// [`StoreError::Invalid`]: a report before it is missing, or numbers are too large to be counted.
    pub async fn report(&self, report: impl Into<Arc<Report>>, now: Timestamp) -> Result<Reported, StoreError> {
        let report = report.into();
        self.write(move |tx| {
            let report = report.clone();
            Box::pin(async move { take(tx, &report, now).await })
        })
        .await
    }

    /// Whether the lease still holds: it is the task's newest, and was not given back.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn holds(&self, lease: Lease) -> Result<bool, StoreError> {
        let sql = "SELECT 1 FROM tasks WHERE id = $1 AND epoch = $2 AND holder IS NOT NULL";
        let epoch = i64::try_from(lease.epoch).unwrap_or(i64::MAX);
        Ok(!self.read().await?.query(sql, values![lease.task, epoch]).await?.is_empty())
    }
}

async fn take(tx: &mut dyn Transaction, report: &Report, now: Timestamp) -> Result<Reported, StoreError> {
    let Some(mut state) = lock(tx, report.lease.task).await?.filter(|state| state.task.epoch == report.lease.epoch)
    else {
        return Ok(Reported::LeaseLost);
    };
    if (1..=state.sequence).contains(&report.sequence) {
        return Ok(Reported::Taken(state.task.status));
    }
    if state.holder.is_none() {
        return Ok(Reported::LeaseLost);
    }
    if report.sequence != state.sequence + 1 {
        let (came, awaited) = (report.sequence, state.sequence + 1);
        return Err(StoreError::Invalid(format!("report {came} of a lease came where {awaited} was awaited")));
    }
    state.sequence = report.sequence;
    let was_unverified = state.task.is_unverified();
    let is_progress = items::change(tx, &mut state, &report.changes, now).await?;
    if is_progress {
        state.troubles = 0;
        state.show(Condition::Running);
    }
    if state.task.is_unverified() && !was_unverified {
        state.new_events.push(events::not_verified(now));
    }
    for occurrence in &report.occurrences {
        state.new_events.push(events::of(now, occurrence));
        if let Occurrence::Faulted { fault, retry_in: Some(_), .. } = occurrence {
            state.show(Condition::Troubled { fault: fault.clone() });
        }
    }
    state.task.gauge = report.gauge.filter(is_sound).or(state.task.gauge);
    if let Some(end) = &report.end {
        if matches!(end, End::Finished) {
            settle_deletions(tx, &mut state).await?;
        }
        end_lease(&mut state, end, now);
    }
    Ok(Reported::Taken(state.save(tx).await?.status))
}

/// JSON has no infinite numbers.
fn is_sound(gauge: &Gauge) -> bool {
    gauge.rate.is_finite()
}

/// Nothing is left of what was to be deleted and could be.
async fn settle_deletions(tx: &mut dyn Transaction, state: &mut State) -> Result<(), StoreError> {
    let only_extras = match &state.task.wanted.work {
        TaskWork::Delete(_) => false,
        // Where something could not be read, nothing is deleted.
        TaskWork::Transfer(options) if options.delete_extra && state.task.counters.skipped_errors == 0 => true,
        TaskWork::Transfer(_) => return Ok(()),
    };
    if state.failure.is_some() || state.task.counters.open() == 0 {
        return Ok(());
    }
    items::gone(tx, state, only_extras).await
}

fn end_lease(state: &mut State, end: &End, now: Timestamp) {
    match end {
        End::Finished => finished(state, now),
        End::Stopped => stopped(state),
        End::Again { fault, after } => again(state, fault, *after, now),
        End::Impossible { fault } => {
            state.new_events.push(events::faulted(now, fault, b"", None));
            state.finish(ItemState::Failed, Some(events::fatal(fault)), now);
        }
        End::NeedsCredential { fault } => {
            state.new_events.push(events::faulted(now, fault, b"", None));
            state.release();
            state.task.status = Status::Inactive;
            state.show(Condition::Troubled { fault: fault.clone() });
        }
    }
}

fn finished(state: &mut State, now: Timestamp) {
    let counters = state.task.counters;
    if counters.skipped_errors > 0 {
        let details = json!({"skipped_errors": counters.skipped_errors});
        let description = "items that could not be read were left out";
        state.new_events.push(events::told(now, code::SKIPPED_ERRORS, description, &details));
    }
    let fatal = match (state.failure.take(), counters.open()) {
        (Some(failure), _) => failure,
        // Found by an earlier lease, and not there when the sources were listed again.
        (None, open @ 1..) => Fatal {
            code: "FILE_NOT_FOUND".into(),
            description: format!("{open} items were found at first and were gone before they were done"),
        },
        (None, 0) => {
            let details = json!({"files_succeeded": counters.files_transferred + counters.files_skipped});
            state.new_events.push(events::told(now, code::SUCCEEDED, "done", &details));
            return state.finish(ItemState::Failed, None, now);
        }
    };
    // Programs show the newest event's details as the reason.
    let details = json!({"failed": counters.failed, "error": {"body": fatal.description}});
    let mut event = events::told(now, &fatal.code, fatal.description.clone(), &details);
    event.is_error = true;
    state.new_events.push(event);
    state.finish(ItemState::Failed, Some(fatal), now);
}

fn stopped(state: &mut State) {
    state.release();
    if matches!(state.task.condition, Condition::Running) {
        state.show(Condition::Queued);
    }
}

fn again(state: &mut State, fault: &Fault, after: f64, now: Timestamp) {
    let doubled = FIRST_WAIT * 2f64.powi(state.troubles.min(16).cast_signed());
    let wait = doubled.min(LONGEST_WAIT).max(after);
    state.troubles = state.troubles.saturating_add(1);
    state.new_events.push(events::faulted(now, fault, b"", Some(wait)));
    state.release();
    state.task.not_before = Some(later(now, wait));
    state.show(Condition::Troubled { fault: fault.clone() });
}
