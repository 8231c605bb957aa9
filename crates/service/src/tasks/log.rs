//! A task's log: what became of every item, in the order in which it came to its end, as lines of JSON.

use bytes::Bytes;
use serde_json::{Value, json};
use uuid::Uuid;
use whimbrel_engine::task::ItemKind;

use super::document::shown;
use super::routes::own;
use crate::Service;
use crate::auth::UserCall;
use crate::clock::iso;
use crate::events::code_of;
use crate::http::{ApiError, Lines};
use crate::store::{LogEntry, StoreError};
use crate::task::Task;
use std::sync::Arc;

/// Items read at once.
const PAGE: u32 = 1000;

/// `GET /v2/whimbrel/tasks/{task}/log`: everything until now, or what follows the mark in `after`; with `limit` no more than so many lines,
/// a thousand at the most, for clients that read an answer whole.
pub(super) async fn log(call: UserCall) -> Result<Lines, ApiError> {
    let task = own(&call.service, &call.caller, call.path.id("task", "TaskNotFound")?).await?;
    let after = call.query.value("after")?.unwrap_or(0);
    let limit: Option<u32> = call.query.value("limit")?;
    let place = call.service.streams.enter()?;
    // What fails at once is told with its status.
    let first = call.service.store.log(task.id, after, limit.map_or(PAGE, |limit| limit.clamp(1, PAGE))).await?;
    let (sender, body) = whimbrel_web::stream();
    tokio::spawn(async move {
        let (mut page, id) = (first, task.id);
        while let Some(last) = page.last().map(|entry| entry.mark) {
            let is_full = limit.is_none() && page.len() == PAGE as usize;
            if sender.send(lines(&task, &page)).await.is_err() || !is_full {
                break;
            }
            page = match next(&call.service, id, last).await {
                Ok(page) => page,
                Err(error) => {
                    let failed = json!({"error": {"code": "ServiceUnavailable", "message": error.to_string()}});
                    // Who is gone is told nothing.
                    let _told = sender.send(Bytes::from(format!("{failed}\n"))).await;
                    break;
                }
            };
        }
        drop(place);
    });
    Ok(Lines(body))
}

async fn next(service: &Arc<Service>, task: Uuid, after: u64) -> Result<Vec<LogEntry>, StoreError> {
    service.store.log(task, after, PAGE).await
}

fn lines(task: &Task, page: &[LogEntry]) -> Bytes {
    let mut text = String::new();
    for entry in page {
        text.push_str(&line(task, entry).to_string());
        text.push('\n');
    }
    Bytes::from(text)
}

fn line(task: &Task, entry: &LogEntry) -> Value {
    let kind = match entry.kind {
        ItemKind::File => "file",
        ItemKind::Directory => "directory",
        ItemKind::Symlink => "symlink",
    };
    let (algorithm, checksum) = entry.checksum.clone().unzip();
    // What mirroring deletes is at the destination only.
    let source = (!entry.extra).then(|| shown(Some(&task.wanted.source), &entry.source));
    let destination = task.wanted.destination.as_ref().map(|end| shown(Some(end), &entry.destination));
    json!({
        "mark": entry.mark,
        "time": iso(entry.time),
        "type": kind,
        "state": entry.state,
        "source_path": source,
        "destination_path": destination,
        "bytes_transferred": entry.bytes,
        "checksum": checksum,
        "checksum_algorithm": algorithm,
        "is_delete_destination_extra": entry.extra,
        "error_code": entry.fault.as_ref().map(|fault| code_of(fault.code)),
        "error_details": entry.fault.as_ref().map(ToString::to_string),
    })
}
