//! The service's documents as people read them.

use serde_json::Value;
use whimbrel_engine::units::{ByteCount, ByteRate};

use super::{list, text};

/// A point in time of a document: `2026-11-22 18:00:01Z`; `-` where there is none.
pub fn time(document: &Value, name: &str) -> String {
    let whole = text(document, name);
    let seconds = whole.get(..19).unwrap_or(whole).replacen('T', " ", 1);
    match whole.get(whole.len().saturating_sub(6)..) {
        _ if whole.is_empty() => "-".to_owned(),
        Some("+00:00") => seconds + "Z",
        _ => seconds,
    }
}

/// A number of a document; 0 where there is none.
pub fn number(document: &Value, name: &str) -> u64 {
    document[name].as_u64().unwrap_or(0)
}

/// Rows with aligned columns, two blanks between them; the last column is not padded.
pub fn table(rows: &[Vec<String>]) -> Vec<String> {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max();
    let widths: Vec<_> = (0..columns).map(|column| width(column).unwrap_or(0)).collect();
    let line = |row: &Vec<String>| {
        let cells = row.iter().zip(&widths).map(|(cell, &width)| format!("{cell:<width$}"));
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    rows.iter().map(line).collect()
}

/// `name      value` lines below a title.
pub fn facts(title: &str, facts: &[(&str, String)]) -> String {
    let width = facts.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    let lines = facts.iter().filter(|(_, value)| !value.is_empty());
    lines.fold(title.to_owned(), |text, (name, value)| format!("{text}\n  {name:<width$}  {value}"))
}

/// Where a task goes from and to.
pub fn ends(task: &Value) -> String {
    let name = |field: &str| text(task, field).to_owned();
    let from = name("source_endpoint_display_name");
    match text(task, "destination_endpoint_display_name") {
        "" => format!("delete at {from}"),
        to => format!("{from} -> {to}"),
    }
}

/// What a task has done so far, in one line.
pub fn work(task: &Value) -> String {
    let all = number(task, "files");
    let plus = if text(task, "status") == "ACTIVE" { "+" } else { "" };
    if text(task, "type") == "DELETE" {
        return format!("{} of {}{plus} removed", number(task, "subtasks_succeeded"), number(task, "subtasks_total"));
    }
    let mut line = format!(
        "{} of {all}{plus} files copied, {}",
        number(task, "files_transferred"),
        ByteCount(number(task, "bytes_transferred"))
    );
    for (name, words) in [
        ("files_skipped", "left as they were"),
        ("subtasks_skipped_errors", "left out because of errors"),
        ("subtasks_failed", "failed"),
    ] {
        let count = number(task, name);
        if count > 0 {
            line += &format!(", {count} {words}");
        }
    }
    match number(task, "faults") {
        0 => {}
        1 => line += ", 1 fault",
        count => line += &format!(", {count} faults"),
    }
    line
}

/// What its servers do not promise, in words.
fn not_promised(task: &Value) -> String {
    let is_told = |word: &str| task["not_promised"].as_array().is_some_and(|list| list.iter().any(|told| told == word));
    let words = [
        ("durability", "durability: its servers do not say whether what they have stored is on their disks"),
        ("verification", "verification: some copies could not be compared with their sources"),
    ];
    let told: Vec<&str> = words.into_iter().filter(|(word, _)| is_told(word)).map(|(_, words)| words).collect();
    told.join("; ")
}

/// What is known of how a task's copies were proven; empty: some were, and some could not be.
pub fn proof(task: &Value) -> &'static str {
    match (number(task, "bytes_checksummed"), number(task, "bytes_transferred")) {
        (0, 1..) => "not verified",
        (proven, moved) if proven >= moved => "verified",
        _ => "",
    }
}

/// What holds a task up; empty: nothing.
pub fn trouble(task: &Value) -> String {
    if task["is_ok"] != false {
        return String::new();
    }
    let (words, details) = (text(task, "nice_status_short_description"), text(task, "nice_status_details"));
    [words, details].into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(": ")
}

/// Everything about a task that people ask for.
pub fn task(task: &Value) -> String {
    let rate = number(task, "effective_bytes_per_second");
    let fatal = &task["fatal_error"];
    let why = match text(fatal, "code") {
        "" => String::new(),
        code => format!("{} ({code})", text(fatal, "description")),
    };
    facts(
        &format!("task {}", text(task, "task_id")),
        &[
            ("status", text(task, "status").to_owned()),
            ("why", why),
            ("trouble", trouble(task)),
            ("label", text(task, "label").to_owned()),
            ("what", ends(task)),
            ("follows", follows(task)),
            ("done", work(task)),
            ("verified", if text(task, "type") == "TRANSFER" { verified(task) } else { String::new() }),
            ("not promised", not_promised(task)),
            ("rate", if rate > 0 { ByteRate(rate as f64).to_string() } else { String::new() }),
            ("slowed", slowed(task)),
            ("submitted", time(task, "request_time")),
            ("ended", time(task, "completion_time")),
            ("deadline", time(task, "deadline")),
        ],
    )
}

/// What keeps a task from going faster that somebody has asked for; empty: nothing does.
fn slowed(task: &Value) -> String {
    let brakes = list(&task["rate"], "held_by");
    let rate = |document: &Value| ByteRate(number(document, "max_rate") as f64).to_string();
    let brake = |brake: &Value| {
        let why = match (text(brake, "message"), text(brake, "rate_rule_id")) {
            ("", "") => "of each user there".to_owned(),
            ("", rule) => format!("by rule {rule}"),
            (message, _) => format!("by rule: {message}"),
        };
        match number(brake, "tasks") {
            0 | 1 => why,
            tasks => format!("{why} ({} for {tasks} tasks together)", rate(brake)),
        }
    };
    match brakes {
        [] => String::new(),
        _ => format!("to {} {}", rate(&task["rate"]), brakes.iter().map(brake).collect::<Vec<_>>().join("; ")),
    }
}

/// Until when a directory is followed.
fn follows(task: &Value) -> String {
    match (&task["whimbrel_follow"], text(&task["whimbrel_follow"], "until")) {
        (Value::Null, _) => String::new(),
        (_, "") => "what is written, until it is cancelled or its deadline".to_owned(),
        (_, until) => format!("what is written, until a file {until} appears"),
    }
}

fn verified(task: &Value) -> String {
    let (proven, moved) = (number(task, "bytes_checksummed"), number(task, "bytes_transferred"));
    match proof(task) {
        "" => format!("{} of {}", ByteCount(proven), ByteCount(moved)),
        "verified" if moved > 0 => "all by checksum".to_owned(),
        "verified" => String::new(),
        _ => "nothing".to_owned(),
    }
}

/// The word for a kind of endpoint.
pub fn kind(entity: &str) -> &'static str {
    match entity {
        "GCSv5_endpoint" => "endpoint",
        "GCSv5_mapped_collection" => "collection",
        "GCSv5_guest_collection" => "shared",
        "GCP_mapped_collection" => "personal",
        "GCP_guest_collection" => "shared personal",
        _ => "unknown",
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn times_are_short_and_tables_are_aligned() {
        let document = json!({"a": "2026-11-22T18:00:01+00:00", "b": null, "c": "2026-11-22T18:00:01.5+00:00"});
        assert_eq!(time(&document, "a"), "2026-11-22 18:00:01Z");
        assert_eq!((time(&document, "b"), time(&document, "c")), ("-".into(), "2026-11-22 18:00:01Z".into()));
        let row = |a: &str, b: &str| vec![a.to_owned(), b.to_owned()];
        assert_eq!(table(&[row("é", "x"), row("long", "y z")]), ["é     x", "long  y z"]);
        assert_eq!(
            facts("t", &[("a", "1".into()), ("long", String::new()), ("bb", "2".into())]),
            "t\n  a     1\n  bb    2"
        );
    }

    #[test]
    fn a_task_is_told_with_what_holds_it_up() {
        let task = json!({"task_id": "i", "type": "TRANSFER", "status": "ACTIVE", "files": 3, "files_transferred": 1,
                          "bytes_transferred": 2048, "faults": 2, "is_ok": false, "nice_status_details": "it waits",
                          "nice_status_short_description": "busy"});
        assert!(work(&task).starts_with("1 of 3+ files copied, 2") && work(&task).ends_with("2 faults"));
        assert_eq!((trouble(&task).as_str(), proof(&task)), ("busy: it waits", "not verified"));
        assert_eq!(slowed(&task), "");
        let shared = json!({"rate_rule_id": "r", "message": "Working hours", "max_rate": 90_000_000, "tasks": 2});
        let alone = json!({"rate_rule_id": "r", "message": "", "max_rate": 45_000_000, "tasks": 1});
        let held = json!({"rate": {"max_rate": 45_000_000, "held_by": [shared, alone]}});
        let told = "to 45.0 MB/s by rule: Working hours (90.0 MB/s for 2 tasks together); by rule r";
        assert_eq!(slowed(&held), told);
        let proven = json!({"bytes_checksummed": 2048, "bytes_transferred": 2048});
        assert_eq!((proof(&proven), verified(&proven)), ("verified", "all by checksum".to_owned()));
        assert_eq!(verified(&json!({"bytes_checksummed": 1000, "bytes_transferred": 2000})), "1.00 KB of 2.00 KB");
    }
}
