//! Fills the tables: submits a probe, waits for its end, turns to the next pair.

use serde_json::{Value, json};
use uuid::Uuid;
use whimbrel_engine::listing::Timestamp;
use whimbrel_engine::task::Status;

use super::records::{Matrix, Measure};
use crate::Service;
use crate::auth::secrets::id_bytes;
use crate::auth::tokens::later;
use crate::clock::iso;
use crate::http::ApiError;
use crate::store::{Batch, StoreError, Versioned, time_key};
use crate::task::{Submitted, Task};
use crate::tasks::submission;
use crate::timers::records::DUE;

/// Matrices that are looked into in one go.
const AT_ONCE: u32 = 100;

/// Seconds between two looks at a probe that runs, and until a submission is tried again that could not be made.
const LOOK: i64 = 2;

/// Shortest time for a probe until it is given up, seconds.
const PATIENCE: i64 = 3600;

/// What became of a submission.
enum Probe {
    Task(Uuid),
    Refused(String),
    /// Not now.
    Later,
}

impl Service {
    /// Goes on with the matrices whose time has come.
    ///
    /// # Errors
    /// 503 without the store. What is wrong with one keeps no other from being filled.
    pub async fn run_matrices(&self) -> Result<(), ApiError> {
        for found in self.store.find_until::<Matrix>(DUE, &time_key(self.clock.now()), AT_ONCE).await? {
            let id = found.record.id;
            if let Err(error) = self.run_matrix(found).await {
                tracing::warn!(matrix = %id, "a matrix does not go on, and is tried again: {error}");
            }
        }
        Ok(())
    }

    async fn run_matrix(&self, mut found: Versioned<Matrix>) -> Result<(), ApiError> {
        let now = self.clock.now();
        match found.record.task {
            Some(task) => match self.store.task(task).await? {
                Some(task) if !task.status.is_final() => found.record.due = Some(later(now, LOOK)),
                task => {
                    let measure = measured(task.as_ref(), now);
                    found.record.note(measure, now);
                }
            },
            None => match self.probe(&found.record).await? {
                None => found.record.due = None,
                Some(Probe::Later) => found.record.due = Some(later(now, LOOK)),
                Some(Probe::Task(task)) => {
                    found.record.round += u64::from(found.record.pair == 0);
                    found.record.task = Some(task);
                    found.record.due = Some(later(now, LOOK));
                }
                Some(Probe::Refused(why)) => {
                    found.record.round += u64::from(found.record.pair == 0);
                    let measure = Measure { at: now, task: None, bytes: 0, micros: 0, fault: Some(why) };
                    found.record.note(measure, now);
                }
            },
        }
        match self.store.apply(Batch::new().update(&found)).await {
            // A replica beside this one was faster, or its owner has deleted it.
            Err(StoreError::Conflict(_)) => Ok(()),
            other => Ok(other?),
        }
    }

    /// Submits the probe of the present pair; `None`: nobody is there in whose name.
    async fn probe(&self, matrix: &Matrix) -> Result<Option<Probe>, ApiError> {
        let Some(owner) = self.acting_for(matrix.owner, matrix.client).await? else { return Ok(None) };
        let draft = submission::read_transfer(&document(matrix, matrix.pair, self.clock.now()))?;
        Ok(Some(match self.submit(&owner, &draft, Some(("matrix", matrix.id))).await {
            Ok(Submitted::New(task) | Submitted::Repeated(task)) => Probe::Task(task),
            Ok(Submitted::Conflict(task)) => {
                Probe::Refused(format!("a transfer of the same paths is not over: {task}"))
            }
            Err(error) if error.status.is_server_error() => Probe::Later,
            Err(error) => Probe::Refused(error.message),
        }))
    }
}

/// What a task that is over has measured; `None`: it is not known any more.
fn measured(task: Option<&Task>, now: Timestamp) -> Measure {
    let Some(task) = task else {
        return Measure { at: now, task: None, bytes: 0, micros: 0, fault: Some("its task is forgotten".to_owned()) };
    };
    let at = task.started.unwrap_or(task.requested);
    let micros = |time: Timestamp| i128::from(time.secs) * 1_000_000 + i128::from(time.nanos / 1000);
    let fault = (task.status != Status::Succeeded).then(|| match &task.fatal {
        Some(fatal) => format!("{}: {}", fatal.code, fatal.description),
        None => "it did not succeed".to_owned(),
    });
    let taken = task.completed.map_or(0, |end| u64::try_from(micros(end) - micros(at)).unwrap_or(0));
    Measure { at, task: Some(task.id), bytes: task.counters.bytes_transferred, micros: taken, fault }
}

/// The transfer that measures a pair.
pub(super) fn document(matrix: &Matrix, pair: usize, now: Timestamp) -> Value {
    let (from, to) = matrix.pairs()[pair];
    let (source, destination) = (&matrix.ends[from], &matrix.ends[to]);
    let recursive = source.dataset.ends_with('/');
    let name = if recursive { "" } else { source.dataset.rsplit('/').next().unwrap_or_default() };
    let label: String = format!("{}: {} to {}", matrix.name, from + 1, to + 1).chars().take(128).collect();
    json!({
        "DATA_TYPE": "transfer", "submission_id": submission_of(matrix, pair), "label": label,
        "source_endpoint": source.collection, "destination_endpoint": destination.collection,
        "verify_checksum": true, "notify_on_succeeded": false, "notify_on_failed": false, "notify_on_inactive": false,
        "deadline": iso(later(now, matrix.every.max(PATIENCE))),
        "DATA": [{
            "DATA_TYPE": "transfer_item", "source_path": source.dataset, "recursive": recursive,
            "destination_path": format!("{}from-{}/{name}", destination.copies, source.collection),
        }],
    })
}

/// The same for the same probe, so that it becomes one task however often it is submitted.
fn submission_of(matrix: &Matrix, pair: usize) -> Uuid {
    let (begun, pair) = (matrix.begun.secs.to_be_bytes(), (pair as u64).to_be_bytes());
    let parts = [b"whimbrel matrix probe", &matrix.id.as_bytes()[..], &begun, &pair];
    uuid::Builder::from_random_bytes(id_bytes(parts)).into_uuid()
}
