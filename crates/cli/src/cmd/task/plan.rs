//! What a task would do, for people and programs.

use serde_json::{Value, json};
use whimbrel_engine::plan::quote_path;
use whimbrel_engine::summary::exit;
use whimbrel_engine::units::ByteCount;

use crate::managed::refusal::Trouble;
use crate::managed::show::{ends, facts, number};
use crate::managed::{Session, entries, text};
use crate::output::Output;

/// Tells what the task of a document would do; the exit code says whether some of it would fail.
///
/// # Errors
/// A refusal, as for the submission; no answer.
pub async fn plan(session: &mut Session, mut document: Value, output: &mut Output) -> Result<u8, Trouble> {
    let plan = session.plan(&mut document).await?;
    let mut event = plan.clone();
    (event["event"], event["document"]) = (json!("plan"), document);
    output.result(&event, &shown(&plan));
    Ok(if number(&plan, "failing") > 0 { exit::SOME_FAILED } else { exit::OK })
}

/// The first steps, what all of them come to, and what may be in the way.
fn shown(plan: &Value) -> String {
    let mut lines: Vec<String> = entries(plan).iter().map(step).collect();
    if let Some(more) = more(plan, lines.len() as u64) {
        lines.push(more);
    }
    lines.push(sums(plan));
    lines.extend(
        plan["warnings"]
            .as_array()
            .into_iter()
            .flatten()
            .map(|warning| format!("warning: {}", text(warning, "message"))),
    );
    lines.join("\n")
}

/// As `cp --dry-run` tells it.
fn step(step: &Value) -> String {
    let path = |name: &str| quote_path(text(step, name).as_bytes());
    let (from, to) = (path("source_path"), path("destination_path"));
    let size = step["size"].as_u64().map(|bytes| format!(" ({})", ByteCount(bytes))).unwrap_or_default();
    let reason = text(step, "reason");
    match text(step, "step") {
        "copy" => format!("copy     {from} -> {to}{size}"),
        "compare" => format!("compare  {from} -> {to}{size}"),
        "make_directory" => format!("mkdir    {to}"),
        "make_link" => format!("symlink  {to}"),
        "keep" | "leave_out" => format!("skip     {from}: {reason}"),
        "delete" => format!("delete   {from}"),
        "delete_extra" => format!("delete   {to}"),
        "fail" => format!("refuse   {from}: {reason}"),
        other => format!("{other:<8} {from}"),
    }
}

fn more(plan: &Value, told: u64) -> Option<String> {
    let names = [
        "files",
        "symlinks",
        "left_out",
        "directories_to_make",
        "extra_files_to_delete",
        "extra_directories_to_delete",
        "extra_symlinks_to_delete",
    ];
    let all: u64 = names.iter().map(|name| number(plan, name)).sum();
    (all > told && told > 0).then(|| format!("... and {} more", all - told))
}

/// What it comes to. Where not everything was looked at, every number says "at least".
fn sums(plan: &Value) -> String {
    let least = if plan["is_complete"] == false { "at least " } else { "" };
    let count = |name: &str, one: &str, many: &str| match number(plan, name) {
        0 => None,
        1 => Some(format!("1 {one}")),
        count => Some(format!("{count} {many}")),
    };
    let list = |parts: Vec<Option<String>>| {
        let parts: Vec<_> = parts.into_iter().flatten().collect();
        if parts.is_empty() { String::new() } else { format!("{least}{}", parts.join(", ")) }
    };
    let files = |name: &str, bytes: &str| {
        count(name, "file", "files").map(|files| format!("{files}, {}", ByteCount(number(plan, bytes))))
    };
    let is_deletion = text(plan, "type") == "DELETE";
    let found = |names: [&str; 3]| {
        list(vec![
            count(names[0], "file", "files"),
            count(names[1], "directory", "directories"),
            count(names[2], "link", "links"),
        ])
    };
    let extra = ["extra_files_to_delete", "extra_directories_to_delete", "extra_symlinks_to_delete"];
    let deleted = if is_deletion { found(["files", "directories", "symlinks"]) } else { found(extra) };
    let links = number(plan, "symlinks").saturating_sub(number(plan, "symlinks_skipped"));
    let links = (links > 0 && !is_deletion).then(|| format!("{links} links"));
    let title = format!("would {}", if is_deletion { ends(plan) } else { format!("copy {}", ends(plan)) });
    facts(
        &title,
        &[
            ("copied", list(vec![files("files_to_transfer", "bytes_to_transfer")])),
            ("compared first", list(vec![files("files_to_compare", "bytes_to_compare")])),
            (
                "left as they are",
                list(vec![count("files_skipped", "file", "files"), count("symlinks_skipped", "link", "links")]),
            ),
            ("made", list(vec![count("directories_to_make", "directory", "directories"), links])),
            (
                "left out",
                list(vec![
                    count("filtered", "by filters", "by filters"),
                    count("left_out", "link or device", "links and devices"),
                ]),
            ),
            (if is_deletion { "deleted" } else { "deleted there" }, deleted),
            ("sources deleted", list(vec![count("sources_to_delete", "file or link", "files and links")])),
            ("failing", list(vec![count("failing", "item", "items")])),
            ("how", how(plan)),
        ],
    )
}

/// How it would begin.
fn how(plan: &Value) -> String {
    let choices = plan["choices"].as_array();
    let value = |name: &str| {
        let line = choices.into_iter().flatten().find(|line| text(line, "choice") == name);
        line.map(|line| line["value"].as_u64())
    };
    let parts = [
        value("sessions").flatten().map(|sessions| format!("{sessions} sessions")),
        value("channels").flatten().map(|channels| format!("{channels} data channels each")),
        value("chunks").map(|chunks| match chunks {
            Some(bytes) => format!("large files in parts of {}", ByteCount(bytes)),
            None => "files whole".to_owned(),
        }),
    ];
    parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn transfer() -> Value {
        json!({
            "type": "TRANSFER", "is_complete": false, "source_endpoint_display_name": "a", "destination_endpoint_display_name": "b",
            "files": 12, "symlinks": 2, "files_to_transfer": 10, "bytes_to_transfer": 2000, "files_skipped": 2, "symlinks_skipped": 0,
            "directories_to_make": 1, "filtered": 3, "extra_files_to_delete": 4, "failing": 0,
            "choices": [{"choice": "chunks", "value": 134_217_728u64}, {"choice": "sessions", "value": 4}, {"choice": "channels", "value": 2}],
            "warnings": [{"code": "X", "message": "look out"}],
            "DATA": [{"step": "copy", "source_path": "/x", "destination_path": "/y", "size": 5},
                     {"step": "fail", "source_path": "/z", "reason": "it is closed"}],
        })
    }

    #[test]
    fn a_plan_is_told_as_people_read_it() {
        let text = shown(&transfer());
        for part in [
            "copy     /x -> /y (5 B)\nrefuse   /z: it is closed\n... and 17 more\nwould copy a -> b\n",
            "at least 10 files, 2.00 KB",
            "at least 2 files",
            "at least 1 directory, 2 links",
            "at least 3 by filters",
            "deleted there",
            "4 sessions, 2 data channels each, large files in parts of 134 MB",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert!(text.ends_with("\nwarning: look out") && !text.contains("failing"), "{text}");
        let deletion = json!({"type": "DELETE", "is_complete": true, "source_endpoint_display_name": "a", "files": 1, "directories": 2});
        let text = shown(&deletion);
        assert!(text.starts_with("would delete at a") && text.contains("1 file, 2 directories"), "{text}");
    }
}
