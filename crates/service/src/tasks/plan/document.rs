//! What a task would do, as a document (`task_plan`): its words are those of the `task` document.

use serde_json::{Value, json};
use uuid::Uuid;
use whimbrel_engine::plan::{Cut, Forecast, Step, SyncLevel};
use whimbrel_engine::task::TransferOptions;

use super::super::document::shown;
use super::{LONGEST, MOST_ENTRIES};
use crate::clock::iso;
use crate::endpoints::records::PauseRule;
use crate::events::{self, code, code_of};
use crate::task::{Submitted, TaskEnd, TaskWork, Wanted};

/// What else is known that may be in the task's way.
pub(super) struct Warnings<'a> {
    /// Another task.
    pub(super) known: Option<Submitted>,
    /// Rules that would pause it.
    pub(super) pauses: &'a [PauseRule],
}

/// A `task_plan` document.
pub(super) fn plan(wanted: &Wanted, forecast: &Forecast, warnings: &Warnings<'_>) -> Value {
    let steps: Vec<_> = forecast.steps.iter().map(|step| self::step(wanted, step)).collect();
    let end = |end: Option<&TaskEnd>| end.map(|end| (end.collection, end.display_name.clone())).unzip();
    let (source, source_name): (Option<Uuid>, Option<String>) = end(Some(&wanted.source));
    let (destination, destination_name) = end(wanted.destination.as_ref());
    json!({
        "DATA_TYPE": "task_plan",
        "type": wanted.work.name(),
        "source_endpoint_id": source,
        "source_endpoint_display_name": source_name,
        "destination_endpoint_id": destination,
        "destination_endpoint_display_name": destination_name,
        "deadline": iso(wanted.deadline),
        "is_complete": forecast.cut.is_none(),
        "files": forecast.found.files,
        "directories": forecast.found.directories,
        "symlinks": forecast.found.symlinks,
        "files_to_transfer": forecast.files_to_copy,
        "bytes_to_transfer": forecast.bytes_to_copy,
        "files_of_unknown_size": forecast.unknown_sizes,
        "files_to_compare": forecast.files_to_compare,
        "bytes_to_compare": forecast.bytes_to_compare,
        "files_skipped": forecast.files_up_to_date,
        "symlinks_skipped": forecast.symlinks_up_to_date,
        "directories_to_make": forecast.directories_to_make,
        "left_out": forecast.left_out,
        "filtered": forecast.filtered,
        "extra_files_to_delete": forecast.extra.files,
        "extra_directories_to_delete": forecast.extra.directories,
        "extra_symlinks_to_delete": forecast.extra.symlinks,
        "sources_to_delete": forecast.sources_to_delete,
        "failing": forecast.failing,
        "choices": forecast.choices,
        "warnings": told(wanted, forecast, warnings),
        "length": steps.len(),
        "DATA": steps,
    })
}

fn step(wanted: &Wanted, step: &Step) -> Value {
    let there = wanted.destination.as_ref();
    json!({
        "DATA_TYPE": "plan_step",
        "step": step.step,
        "type": step.kind,
        "source_path": (!step.source.is_empty()).then(|| shown(Some(&wanted.source), &step.source)),
        "destination_path": (!step.destination.is_empty()).then(|| shown(there, &step.destination)),
        "size": step.size,
        "reason": (!step.reason.is_empty()).then_some(&step.reason),
        "error_code": step.fault.map(code_of),
    })
}

fn told(wanted: &Wanted, forecast: &Forecast, warnings: &Warnings<'_>) -> Vec<Value> {
    let mut told = Vec::new();
    let mut tell = |code: &str, message: String| told.push(json!({"code": code, "message": message}));
    match forecast.cut {
        None => {}
        Some(Cut::Entries) => {
            let message = format!("More than {MOST_ENTRIES} things were found: all numbers say \"at least\"");
            tell("AT_LEAST", message);
        }
        Some(Cut::Time) => {
            tell("AT_LEAST", format!("Not all could be listed in {LONGEST} s: all numbers say \"at least\""));
        }
        Some(Cut::Named) => {
            let message = "Only the first items of the document were looked at: all numbers say \"at least\"";
            tell("AT_LEAST", message.to_owned());
        }
    }
    match warnings.known {
        Some(Submitted::Conflict(task)) => {
            let message = format!(
                "A task with identical paths has not yet completed, so that this one would be refused: task {task}"
            );
            tell("CONFLICT", message);
        }
        Some(Submitted::Repeated(task) | Submitted::New(task)) => {
            let message =
                format!("A task with this submission id is there already, and would be the answer: task {task}");
            tell("DUPLICATE", message);
        }
        None => {}
    }
    for rule in warnings.pauses {
        tell(code::PAUSED, format!("The task would wait until a pause rule ends: {}", rule.message));
    }
    if wanted.is_not_durable() {
        tell(code::NOT_DURABLE, format!("Not promised: {}", events::NOT_DURABLE));
    }
    if let TaskWork::Transfer(options) = &wanted.work {
        of_transfer(options, forecast, &mut tell);
    } else if forecast.failing > 0 {
        let message = "Some of it cannot be deleted: the task would delete the rest, and fail";
        tell("FAILING", message.to_owned());
    }
    told
}

fn of_transfer(options: &TransferOptions, forecast: &Forecast, tell: &mut impl FnMut(&str, String)) {
    let copies = forecast.files_to_copy + forecast.files_to_compare > 0;
    if let Some(follow) = &options.follow {
        let end = match &follow.until {
            Some(name) => format!("until a file {name} appears"),
            None => "until somebody ends it, or its deadline".to_owned(),
        };
        tell("FOLLOWS", format!("This is what is there now; the task would follow what comes, {end}"));
    }
    if forecast.failing > 0 {
        let message = match options.skip_source_errors {
            true => "Some of it cannot be read or written: what cannot be read would be left out and listed",
            false => "Some of it cannot be read or written: the task would copy the rest, and fail",
        };
        tell("FAILING", message.to_owned());
    }
    if copies && options.sync == SyncLevel::None && options.follow.is_none() {
        let message =
            "Files of the same names at the destination would be replaced: without a sync level nobody looks for them";
        tell("REPLACES", message.to_owned());
    }
    if copies && !options.verify && !options.move_source {
        tell("NOT_VERIFIED", "Copies would not be proven by checksums".to_owned());
    }
    if copies {
        let then = match options.fail_on_quota_errors {
            true => "the task would fail at once",
            false => "the task would wait for room until its deadline",
        };
        let message =
            format!("Servers do not tell how much room and quota there is: where they do not suffice, {then}");
        tell("ROOM_NOT_KNOWN", message);
    }
    if forecast.extra_kept > 0 {
        let message = "Nothing would be deleted at the destination of items of which something cannot be read";
        tell(code::DELETE_DESTINATION_EXTRA_SKIPPED, message.to_owned());
    }
    if forecast.extra.directories > 0 && !options.filter.0.is_empty() {
        let message = "Directories at the destination that hold what the filter leaves out would stay, though they are counted here";
        tell("EXTRA_DIRECTORIES_KEPT", message.to_owned());
    }
}
