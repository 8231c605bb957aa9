//! Tasks, their events and their files as the API's documents show them (Transfer API 0.10).

use serde_json::{Value, json};
use uuid::Uuid;
use whimbrel_engine::Side;
use whimbrel_engine::listing::Timestamp;
use whimbrel_engine::plan::SyncLevel;
use whimbrel_engine::task::{ItemKind, Status, TransferOptions};

use crate::clock::iso;
use crate::events;
use crate::grid::cure_for;
use crate::task::{Condition, Copied, LeftOut, Submitted, Task, TaskEnd, TaskEvent, TaskWork};

/// A `task` document.
pub fn task(task: &Task, now: Timestamp) -> Value {
    let managed = task.cancelled.as_ref().filter(|cancelled| cancelled.manager_of.is_some());
    let mut document = json!({
        "DATA_TYPE": "task",
        "task_id": task.id,
        "owner_id": task.wanted.owner,
        "status": task.status.name(),
        "label": task.wanted.label,
        "command": "API 0.10",
        "request_time": iso(task.requested),
        "completion_time": task.completed.map(iso),
        "deadline": iso(task.wanted.deadline),
        "history_deleted": false,
        "is_paused": matches!(task.condition, Condition::Paused { .. }),
        "canceled_by_admin": managed.map(|cancelled| cancelled.manager_of.clone()),
        "canceled_by_admin_message": managed.map(|cancelled| cancelled.message.clone()),
        "not_promised": task.not_promised(),
        "fatal_error": task.fatal.as_ref().map(|fatal| json!({"code": fatal.code, "description": fatal.description})),
    });
    for part in [ends(task), work(&task.wanted.work), numbers(task, now), condition(task)] {
        merge(&mut document, part);
    }
    document
}

fn merge(into: &mut Value, from: Value) {
    if let (Value::Object(into), Value::Object(from)) = (into, from) {
        into.extend(from);
    }
}

fn ends(task: &Task) -> Value {
    let (source, destination) = (&task.wanted.source, task.wanted.destination.as_ref());
    let of = |end: &TaskEnd| (end.collection, end.display_name.clone(), end.local_user.clone());
    let (there, name, user) = destination.map_or((None, None, None), |end| {
        let (id, name, user) = of(end);
        (Some(id), Some(name), user)
    });
    json!({
        "source_endpoint_id": source.collection,
        "source_endpoint": source.collection.to_string(),
        "source_endpoint_display_name": source.display_name,
        "source_local_user": source.local_user,
        "source_local_user_status": "OK",
        "source_base_path": source.base_path,
        "destination_endpoint_id": there,
        "destination_endpoint": there.map(|id: Uuid| id.to_string()),
        "destination_endpoint_display_name": name,
        "destination_local_user": user,
        "destination_local_user_status": there.map(|_| "OK"),
        "destination_base_path": destination.and_then(|end| end.base_path.clone()),
    })
}

fn work(work: &TaskWork) -> Value {
    match work {
        TaskWork::Delete(_) => json!({
            "type": "DELETE", "sync_level": null, "verify_checksum": false, "encrypt_data": false,
            "preserve_timestamp": false, "skip_source_errors": false, "fail_on_quota_errors": false,
            "delete_destination_extra": false, "max_rate": null, "recursive_symlinks": null,
            "filter_rules": null, "whimbrel_follow": null, "whimbrel_verify_required": false,
        }),
        TaskWork::Transfer(options) => json!({
            "type": "TRANSFER",
            "sync_level": sync_level(options.sync),
            "verify_checksum": options.verify,
            "encrypt_data": options.encrypt,
            "preserve_timestamp": options.preserve_times,
            "preserve_mode": options.preserve_modes,
            "skip_source_errors": options.skip_source_errors,
            "fail_on_quota_errors": options.fail_on_quota_errors,
            "delete_destination_extra": options.delete_extra,
            "delete_source": options.move_source,
            "max_rate": options.max_rate,
            "recursive_symlinks": options.symlinks,
            "filter_rules": filter_rules(options),
            "whimbrel_follow": options.follow,
            "whimbrel_verify_required": options.verify_required,
        }),
    }
}

fn sync_level(level: SyncLevel) -> Option<u8> {
    match level {
        SyncLevel::None => None,
        SyncLevel::Exists => Some(0),
        SyncLevel::Size => Some(1),
        SyncLevel::Mtime => Some(2),
        SyncLevel::Checksum => Some(3),
    }
}

fn filter_rules(options: &TransferOptions) -> Option<Vec<Value>> {
    let rules = &options.filter.0;
    let rule = |rule: &whimbrel_engine::task::FilterRule| json!({"DATA_TYPE": "filter_rule", "method": rule.method, "type": rule.kind, "name": rule.name});
    (!rules.is_empty()).then(|| rules.iter().map(rule).collect())
}

fn numbers(task: &Task, now: Timestamp) -> Value {
    let counters = &task.counters;
    let seconds = (task.completed.unwrap_or(now).secs - task.requested.secs).max(1).unsigned_abs();
    json!({
        "files": counters.files,
        "directories": counters.directories,
        "symlinks": counters.symlinks,
        "files_skipped": counters.files_skipped,
        "files_transferred": counters.files_transferred,
        "bytes_transferred": counters.bytes_transferred,
        "bytes_checksummed": counters.bytes_checksummed,
        "effective_bytes_per_second": counters.bytes_transferred / seconds,
        "faults": task.faults,
        "subtasks_total": counters.total(),
        "subtasks_pending": counters.pending,
        "subtasks_retrying": counters.retrying,
        "subtasks_succeeded": counters.succeeded,
        "subtasks_expired": counters.expired,
        "subtasks_canceled": counters.canceled,
        "subtasks_failed": counters.failed,
        "subtasks_skipped_errors": counters.skipped_errors,
    })
}

fn condition(task: &Task) -> Value {
    if task.status.is_final() {
        return json!({"is_ok": null, "nice_status": null, "nice_status_short_description": null,
                      "nice_status_details": null, "nice_status_expires_in": null});
    }
    let (ok, code, words, details) = match &task.condition {
        Condition::Queued => (true, "Queued", "Waiting for its turn".to_owned(), None),
        Condition::Running | Condition::Over => (true, "OK", "OK".to_owned(), None),
        Condition::Paused { message, .. } => (false, "PAUSED", "Paused".to_owned(), Some(message.clone())),
        Condition::Troubled { fault } => {
            (false, events::code_for(fault), fault.code.explain().meaning.to_owned(), Some(trouble(task, fault)))
        }
    };
    json!({"is_ok": ok, "nice_status": code, "nice_status_short_description": words,
           "nice_status_details": details, "nice_status_expires_in": -1})
}

/// The fault in words, with when it is tried again and what helps.
fn trouble(task: &Task, fault: &whimbrel_engine::Fault) -> String {
    let again = task.not_before.map(|time| format!("; next attempt at {}", iso(time))).unwrap_or_default();
    match (task.status, fault.side) {
        // The service itself has said how another is registered; what a server says of a credential does not.
        (Status::Inactive, Some(Side::Service)) => fault.to_string(),
        (Status::Inactive, _) => {
            let cures = task.wanted.grid_ends().map(|end| cure_for(end.collection, &end.display_name));
            format!("{fault}; to register another: {}", cures.collect::<Vec<_>>().join(", "))
        }
        _ => format!("{fault}{again}; to cure it: {}", fault.code.explain().cure),
    }
}

/// What became of a submission: `transfer_result` or `delete_result`.
///
/// `None`: it is refused as a conflict, which is an error's document.
pub fn submitted(what: &str, submitted: Submitted, submission: Uuid, request: &str) -> Option<Value> {
    let (task, code, message) = match submitted {
        Submitted::New(task) => (
            task,
            "Accepted",
            format!("The {what} has been accepted and a task has been created and queued for execution"),
        ),
        Submitted::Repeated(task) => {
            (task, "Duplicate", format!("A {what} with this submission id was accepted before; this is its task"))
        }
        Submitted::Conflict(_) => return None,
    };
    Some(json!({
        "DATA_TYPE": format!("{what}_result"),
        "code": code,
        "message": message,
        "request_id": request,
        "resource": format!("/{what}"),
        "submission_id": submission,
        "task_id": task,
        "task_link": {"DATA_TYPE": "link", "href": format!("task/{task}?format=json"), "rel": "related",
                      "resource": "task", "title": "related task"},
    }))
}

/// An `event` document.
pub fn event(event: &TaskEvent) -> Value {
    json!({
        "DATA_TYPE": "event",
        "time": iso(event.time),
        "code": event.code,
        "description": event.description,
        "details": event.details,
        "is_error": event.is_error,
    })
}

/// A `successful_transfer` document.
pub fn successful_transfer(task: &Task, copied: &Copied) -> Value {
    let (algorithm, checksum) = copied.checksum.clone().unzip();
    json!({
        "DATA_TYPE": "successful_transfer",
        "source_path": shown(Some(&task.wanted.source), &copied.source),
        "destination_path": shown(task.wanted.destination.as_ref(), &copied.destination),
        "size": copied.size,
        "checksum": checksum,
        "checksum_algorithm": algorithm,
        "dynamic_checksum": false,
    })
}

/// A `skipped_error` document.
pub fn skipped_error(task: &Task, left_out: &LeftOut) -> Value {
    json!({
        "DATA_TYPE": "skipped_error",
        "error_code": events::code_of(left_out.fault.code),
        "error_details": left_out.fault.to_string(),
        "error_time": iso(left_out.time),
        "source_path": shown(Some(&task.wanted.source), &left_out.source),
        "destination_path": shown(task.wanted.destination.as_ref(), &left_out.destination),
        "is_directory": left_out.kind == ItemKind::Directory,
        "is_symlink": left_out.kind == ItemKind::Symlink,
        "is_delete_destination_extra": false,
        "external_checksum": null,
        "checksum_algorithm": null,
    })
}

/// A server's path as users of the collection know it; bytes that are no UTF-8 are shown as such.
pub fn shown(end: Option<&TaskEnd>, path: &[u8]) -> String {
    let base = end.map_or(&b""[..], |end| end.base.trim_end_matches('/').as_bytes());
    let inside = path.strip_prefix(base).filter(|rest| rest.is_empty() || rest.starts_with(b"/"));
    match inside {
        Some(b"") => "/".into(),
        Some(rest) => String::from_utf8_lossy(rest).into_owned(),
        None => String::from_utf8_lossy(path).into_owned(),
    }
}
