//! The items of a task: a report's changes come to them many at a time.
//!
//! A final state is never left, so only items that are open, or new, cost a write; and each only one, whatever a report says of it.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use uuid::Uuid;
use whimbrel_engine::Fault;
use whimbrel_engine::dispatch::{Change, Subject, key};
use whimbrel_engine::listing::Timestamp;
use whimbrel_engine::progress::Verification;
use whimbrel_engine::task::{ItemKind, ItemRecord, ItemState};

use super::StoreError;
use super::database::{Dialect, Transaction, Value, portions, values};
use super::history::{self, kind};
use super::tasks::{State, number, state, text};
use super::time::micros;
use crate::events;

/// Rows in one statement: 14 parameters each, and SQLite takes 32,766.
const ROWS: usize = 256;

/// Columns of an item that are written.
const COLUMNS: &[&str] = &[
    "task",
    "key",
    "mark",
    "kind",
    "extra",
    "state",
    "size",
    "bytes",
    "proven",
    "source",
    "destination",
    "sum",
    "fault",
    "time",
];

/// More than there are numbers of states.
const STATES: i64 = 16;

/// Most bytes of a task that are counted, 8 EiB less one: what databases can add up.
const MOST_BYTES: u64 = i64::MAX.unsigned_abs();

/// An item as it is after the changes so far.
struct Item<'a> {
    record: ItemRecord,
    subject: &'a Subject,
    size: Option<u64>,
    sum: Option<(&'a str, &'a str)>,
    fault: Option<&'a Fault>,
    mark: Option<u64>,
}

/// What the database holds of an item.
struct Stored {
    kind: ItemKind,
    state: ItemState,
}

/// Brings changes to items and to the task's counters; tells whether an item was done.
pub(super) async fn change(
    tx: &mut dyn Transaction,
    task: &mut State,
    changes: &[Change],
    now: Timestamp,
) -> Result<bool, StoreError> {
    let keyed: Vec<(Uuid, &Change)> = changes.iter().map(|change| (key(change.subject()), change)).collect();
    let stored = stored(tx, task.number, &keyed).await?;
    let mut places: HashMap<Uuid, Option<usize>> = HashMap::with_capacity(stored.len());
    let mut changed: Vec<(Uuid, Item<'_>)> = Vec::new();
    let mut is_progress = false;
    for (key, change) in keyed {
        let place = match places.entry(key) {
            Entry::Occupied(known) => *known.get(),
            Entry::Vacant(vacant) => *vacant.insert(None),
        };
        let before = match place {
            Some(place) => Some(changed[place].1.record),
            None => stored.get(&key).map(|stored| open_record(stored, change.subject())),
        };
        let Some(item) = after(task, before, change)? else { continue };
        is_progress |= matches!(item.record.state, ItemState::Succeeded | ItemState::UpToDate);
        task.task.counters.step(before.as_ref(), &item.record);
        match place {
            Some(place) => changed[place].1 = item,
            None => {
                places.insert(key, Some(changed.len()));
                changed.push((key, item));
            }
        }
    }
    write(tx, task.number, &changed, now).await?;
    Ok(is_progress)
}

/// Counts items as done that were to be deleted (`only_extras`: of a mirror) and that the last lease has not met any more: an earlier one has deleted
/// them, and could not say so.
pub(super) async fn gone(tx: &mut dyn Transaction, task: &mut State, only_extras: bool) -> Result<(), StoreError> {
    let open = [ItemState::Pending, ItemState::Retrying].map(ItemState::number);
    let mut of = "FROM items WHERE task = $1 AND state IN ($2, $3)".to_owned();
    if only_extras {
        of += " AND extra <> 0";
    }
    let sql = format!("SELECT kind, state, extra, COUNT(*) {of} GROUP BY kind, state, extra");
    for mut row in tx.query(&sql, values![task.number, open[0], open[1]]).await? {
        let (kind, state, extra) = (kind(row.int()?)?, state(row.int()?)?, row.int()? != 0);
        let before = ItemRecord { kind, state, bytes: 0, proven: 0, extra };
        for _ in 0..row.count()? {
            task.task.counters.step(Some(&before), &ItemRecord { state: ItemState::Succeeded, ..before });
        }
    }
    let sql = format!("UPDATE items SET state = $4 {}", &of["FROM items ".len()..]);
    let done = ItemState::Succeeded.number();
    tx.execute(&sql, values![task.number, open[0], open[1], done]).await.map(drop)
}

/// What counts of a stored item. Of one in a final state, whatever it counts, nothing changes any more.
fn open_record(stored: &Stored, subject: &Subject) -> ItemRecord {
    ItemRecord { kind: stored.kind, state: stored.state, bytes: 0, proven: 0, extra: subject.extra }
}

/// The item after a change; `None`: it stays as it is.
fn after<'a>(task: &mut State, before: Option<ItemRecord>, change: &'a Change) -> Result<Option<Item<'a>>, StoreError> {
    let subject = change.subject();
    if before.is_some_and(|before| before.state.is_final()) {
        return Ok(None);
    }
    let record =
        ItemRecord { kind: subject.kind, state: ItemState::Pending, bytes: 0, proven: 0, extra: subject.extra };
    let mut item = Item { record, subject, size: None, sum: None, fault: None, mark: None };
    match change {
        Change::Found { .. } if before.is_some() => return Ok(None),
        Change::Found { size, .. } => item.size = *size,
        Change::Retrying { .. } => item.record.state = ItemState::Retrying,
        Change::UpToDate { .. } => item.record.state = ItemState::UpToDate,
        Change::Done { bytes, verification, .. } => {
            let so_far = task.task.counters.bytes_transferred;
            if so_far.checked_add(*bytes).is_none_or(|sum| sum > MOST_BYTES) {
                return Err(StoreError::Invalid(format!("{bytes} bytes more than can be counted")));
            }
            item.record.state = ItemState::Succeeded;
            item.record.bytes = *bytes;
            item.size = Some(*bytes);
            if let Verification::Verified { sums, .. } = verification {
                item.record.proven = *bytes;
                item.sum = sums.first().map(|sum| (sum.algorithm.as_str(), sum.digest.as_str()));
            }
        }
        Change::SkippedError { fault, .. } => {
            item.record.state = ItemState::SkippedError;
            item.fault = Some(fault);
        }
        Change::Failed { fault, .. } => {
            item.record.state = ItemState::Failed;
            item.fault = Some(fault);
            task.failure.get_or_insert_with(|| events::fatal(fault));
        }
    }
    if item.record.state.is_final() {
        task.marks += 1;
        item.mark = Some(task.marks);
    }
    Ok(Some(item))
}

/// What the database holds of the items that changes are about.
async fn stored(
    tx: &mut dyn Transaction,
    task: i64,
    changes: &[(Uuid, &Change)],
) -> Result<HashMap<Uuid, Stored>, StoreError> {
    let mut found = HashMap::with_capacity(changes.len());
    let mut rest = changes;
    for portion in portions(changes.len(), ROWS) {
        let (these, others) = rest.split_at(portion);
        rest = others;
        let place = match tx.dialect() {
            Dialect::Sqlite => "?".to_owned(),
            Dialect::Postgres => format!("${}", portion + 1),
        };
        // One look into the index for each key. As `key IN (...)`, PostgreSQL reads the whole task whenever it thinks that cheaper.
        let sql = format!(
            "WITH k AS (VALUES {}) SELECT k.column1, \
             (SELECT i.kind * {STATES} + i.state FROM items i WHERE i.key = k.column1 AND i.task = {place}) FROM k",
            tx.dialect().rows(portion, 1)
        );
        let mut values: Vec<Value> = these.iter().map(|(key, _)| Value::from(key.as_bytes().to_vec())).collect();
        values.push(task.into());
        for mut row in tx.query(&sql, values).await? {
            let key = history::key(row.blob()?)?;
            if let Some(packed) = row.maybe_int()? {
                found.insert(key, Stored { kind: kind(packed / STATES)?, state: state(packed % STATES)? });
            }
        }
    }
    Ok(found)
}

async fn write(
    tx: &mut dyn Transaction,
    task: i64,
    items: &[(Uuid, Item<'_>)],
    now: Timestamp,
) -> Result<(), StoreError> {
    let mut rest = items;
    for portion in portions(items.len(), ROWS) {
        let (these, others) = rest.split_at(portion);
        rest = others;
        let mut values = Vec::with_capacity(portion * COLUMNS.len());
        for (key, item) in these {
            values.extend(row(task, *key, item, now)?);
        }
        tx.execute(&upsert(tx.dialect(), portion), values).await?;
    }
    Ok(())
}

fn upsert(dialect: Dialect, rows: usize) -> String {
    let news = COLUMNS[2..].iter().map(|&column| match column {
        // Only some changes know it.
        "size" => "size = COALESCE(excluded.size, items.size)".to_owned(),
        _ => format!("{column} = excluded.{column}"),
    });
    format!(
        "INSERT INTO items ({}) VALUES {} ON CONFLICT (task, key) DO UPDATE SET {}",
        COLUMNS.join(", "),
        dialect.rows(rows, COLUMNS.len()),
        news.collect::<Vec<_>>().join(", ")
    )
}

/// In the order of [`COLUMNS`].
fn row(task: i64, key: Uuid, item: &Item<'_>, now: Timestamp) -> Result<Vec<Value>, StoreError> {
    let record = &item.record;
    Ok(values![
        task,
        key.as_bytes().to_vec(),
        item.mark.map(number).transpose()?,
        record.kind.number(),
        record.extra,
        record.state.number(),
        // Of what cannot be so large nobody asks for more than that it is huge.
        item.size.map(|size| i64::try_from(size).unwrap_or(i64::MAX)),
        number(record.bytes)?,
        number(record.proven)?,
        item.subject.source.clone(),
        item.subject.destination.clone(),
        item.sum.as_ref().map(text).transpose()?,
        item.fault.map(text).transpose()?,
        micros(now),
    ])
}
