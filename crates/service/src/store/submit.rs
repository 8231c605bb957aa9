//! New tasks, and what their users named.

use serde_json::{Value as Json, json};
use uuid::Uuid;
use whimbrel_engine::dispatch::WorkItem;
use whimbrel_engine::listing::Timestamp;
use whimbrel_engine::task::{Counters, Status};

use super::audit::{self, AuditEntry};
use super::database::{Transaction, values};
use super::tasks::{number, text, uuid};
use super::time::micros;
use super::{Store, StoreError};
use crate::task::{Condition, Submission, Submitted, Wanted};

/// Items in one row: they are written once and read in pages, never one by one.
const PAGE: usize = 1000;

/// A page of items as it stands in a row: the number of its last item, and all of them.
type Page = (i64, Vec<u8>);

impl Store {
    /// Makes a task of a submission, once: the same one again is told, and so is an unfinished task with the same items.
    ///
    /// # Errors
    /// [`StoreError::Invalid`]: its items are none, or not numbered upwards.
    pub async fn submit(&self, submission: &Submission, now: Timestamp) -> Result<Submitted, StoreError> {
        self.submit_by(submission, json!({}), now).await
    }

    /// The same; `how` says in the audit log by which way it came, besides what it is.
    ///
    /// # Errors
    /// Those of [`Store::submit`].
    pub async fn submit_by(&self, submission: &Submission, how: Json, now: Timestamp) -> Result<Submitted, StoreError> {
        let pages = std::sync::Arc::new(pages(&submission.items)?);
        let wanted = std::sync::Arc::new(submission.wanted.clone());
        let id = super::seal::random_uuid()?;
        let entry = entry(id, submission, how, now);
        self.write(move |tx| {
            let (pages, wanted, entry) = (pages.clone(), wanted.clone(), entry.clone());
            Box::pin(async move {
                let Some(task) = insert(tx, id, &wanted, now).await? else {
                    return known(tx, &wanted).await;
                };
                for (last, items) in pages.iter() {
                    let sql = "INSERT INTO submitted (task, last, items) VALUES ($1, $2, $3)";
                    tx.execute(sql, values![task, *last, items.clone()]).await?;
                }
                audit::append(tx, entry).await?;
                Ok(Submitted::New(id))
            })
        })
        .await
    }

    /// What is in the way of a submission now; nothing is written.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn in_the_way(&self, wanted: &Wanted) -> Result<Option<Submitted>, StoreError> {
        let mut tx = self.read().await?;
        in_the_way(&mut *tx, wanted).await
    }

    /// What the user named, by number: items that follow `after` (0 begins), about `limit` of them; none at the end.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn submitted_items(&self, task: Uuid, after: u64, limit: u32) -> Result<Vec<WorkItem>, StoreError> {
        let rows = limit.div_ceil(PAGE as u32).max(1) + 1;
        let sql = "SELECT items FROM submitted WHERE task = (SELECT number FROM tasks WHERE id = $1) AND last > $2 \
                   ORDER BY last LIMIT $3";
        let after_last = i64::try_from(after).unwrap_or(i64::MAX);
        let mut items = Vec::new();
        for mut row in self.read().await?.query(sql, values![task, after_last, rows]).await? {
            let page: Vec<WorkItem> = serde_json::from_slice(&row.blob()?)?;
            items.extend(page.into_iter().filter(|item| item.number > after));
        }
        items.truncate(limit as usize);
        Ok(items)
    }
}

/// One entry for a task, whatever it is about: its items are its own log's.
fn entry(id: Uuid, submission: &Submission, how: Json, now: Timestamp) -> AuditEntry {
    let wanted = &submission.wanted;
    let mut detail = json!({
        "type": wanted.work.name(), "source": wanted.source.collection, "items": submission.items.len(),
        "destination": wanted.destination.as_ref().map(|end| end.collection), "label": wanted.label,
    });
    for (name, value) in how.as_object().into_iter().flatten() {
        detail[name] = value.clone();
    }
    AuditEntry::new(now, wanted.owner.to_string(), "task.submit", id.to_string()).detail(detail)
}

fn pages(items: &[WorkItem]) -> Result<Vec<Page>, StoreError> {
    if items.is_empty() || items[0].number == 0 || !items.is_sorted_by(|one, next| one.number < next.number) {
        return Err(StoreError::Invalid("a submission's items are none, or not numbered upwards".into()));
    }
    let page = |page: &[WorkItem]| {
        let last = page.last().map_or(Ok(0), |item| number(item.number))?;
        let items = serde_json::to_vec(page).map_err(|error| StoreError::Invalid(error.to_string()))?;
        Ok((last, items))
    };
    items.chunks(PAGE).map(page).collect()
}

/// The number of the new row; `None`: there is one with its submission or its fingerprint.
async fn insert(
    tx: &mut dyn Transaction,
    id: Uuid,
    wanted: &Wanted,
    now: Timestamp,
) -> Result<Option<i64>, StoreError> {
    let sql = "INSERT INTO tasks (id, owner, submission, fingerprint, type, wanted, label, source, destination, \
               requested, deadline, status, paused, situation, counters, faults, not_before, troubles, epoch, sequence, \
               marks, events) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, 0, $13, $14, 0, 0, 0, 0, 0, 0, 0) \
               ON CONFLICT DO NOTHING RETURNING number";
    let values = values![
        id,
        wanted.owner,
        wanted.submission,
        wanted.fingerprint.as_str(),
        wanted.work.name(),
        text(wanted)?,
        wanted.label.as_deref().map(str::to_lowercase),
        wanted.source.collection,
        wanted.destination.as_ref().map(|end| end.collection),
        micros(now),
        micros(wanted.deadline),
        Status::Active.name(),
        text(&Condition::Queued)?,
        text(&Counters::default())?,
    ];
    tx.query(sql, values).await?.pop().map(|mut row| row.int()).transpose()
}

/// The task that is in the way of a submission.
async fn known(tx: &mut dyn Transaction, wanted: &Wanted) -> Result<Submitted, StoreError> {
    // Without one it came to its end between the two statements.
    in_the_way(tx, wanted).await?.ok_or_else(|| StoreError::Again("a task that ends".into()))
}

async fn in_the_way(tx: &mut dyn Transaction, wanted: &Wanted) -> Result<Option<Submitted>, StoreError> {
    let sql = "SELECT id FROM tasks WHERE owner = $1 AND submission = $2";
    if let Some(mut row) = tx.query(sql, values![wanted.owner, wanted.submission]).await?.pop() {
        return Ok(Some(Submitted::Repeated(uuid(&row.text()?)?)));
    }
    let sql = "SELECT id FROM tasks WHERE owner = $1 AND fingerprint = $2 AND status IN ('ACTIVE', 'INACTIVE')";
    match tx.query(sql, values![wanted.owner, wanted.fingerprint.as_str()]).await?.pop() {
        Some(mut row) => Ok(Some(Submitted::Conflict(uuid(&row.text()?)?))),
        None => Ok(None),
    }
}
