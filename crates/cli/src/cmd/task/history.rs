//! `whimbrel task events` and `log`: what happened to a task, and to each of its files.

use std::time::Duration;

use clap::Args;
use serde_json::Value;
use whimbrel_engine::summary::exit;
use whimbrel_engine::units::ByteCount;

use super::{event, path};
use crate::managed::refusal::Trouble;
use crate::managed::{Session, entries, show, text, with_query};
use crate::output::Output;

/// Events of one page.
const PAGE: u64 = 1000;
/// Time between two looks at the events of a task that is under way.
const PAUSE: Duration = Duration::from_secs(1);

/// Tell what happened to a task, the earliest first
#[derive(Debug, Args)]
pub struct EventsArgs {
    /// The task
    #[arg(value_name = "ID")]
    task: String,
    /// Only faults
    #[arg(long)]
    errors: bool,
    /// Go on until the task is over
    #[arg(long)]
    follow: bool,
}

/// Tells events.
pub async fn events(session: &mut Session, args: &EventsArgs, output: &mut Output) -> Result<u8, Trouble> {
    let place = path(&args.task)?;
    let mut told = 0;
    loop {
        // What is over before its events are read has no others.
        let task = session.get(&place).await?;
        for one in new_events(session, &place, args.errors, &mut told).await? {
            output.result(&event(&one, "event"), &line(&one));
        }
        if !args.follow || !matches!(text(&task, "status"), "ACTIVE" | "INACTIVE") {
            return Ok(exit::OK);
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// Events that were not told yet; the service has the latest first.
async fn new_events(session: &mut Session, place: &str, errors: bool, told: &mut u64) -> Result<Vec<Value>, Trouble> {
    let filter = if errors { "is_error:1" } else { "" };
    let mut new: Vec<Value> = Vec::new();
    let mut total = None;
    loop {
        let (offset, limit) = (new.len().to_string(), PAGE.to_string());
        let fields = [("filter", filter), ("limit", limit.as_str()), ("offset", offset.as_str())];
        let page = session.get(&with_query(&format!("{place}/event_list"), &fields)).await?;
        let known = *total.get_or_insert_with(|| show::number(&page, "total"));
        new.extend(entries(&page).iter().cloned());
        let wanted = known.saturating_sub(*told);
        if entries(&page).is_empty() || new.len() as u64 >= wanted {
            new.truncate(usize::try_from(wanted).unwrap_or(usize::MAX));
            new.reverse();
            *told = known;
            return Ok(new);
        }
    }
}

fn line(event: &Value) -> String {
    let mut line = format!("{}  {}: {}", show::time(event, "time"), text(event, "code"), text(event, "description"));
    let details: Value = serde_json::from_str(text(event, "details")).unwrap_or_default();
    let what = text(&details["error"], "body");
    if event["is_error"] == true && !what.is_empty() {
        line += &format!("\n    {what}");
    }
    if let Some(seconds) = details["retry_in"].as_f64() {
        line += &format!("; again in {seconds:.0} s");
    }
    line
}

/// Tell what became of each file, directory and link of a task: copied, removed, left as it was, or not, and why
#[derive(Debug, Args)]
pub struct LogArgs {
    /// The task
    #[arg(value_name = "ID")]
    task: String,
    /// Only what was not done
    #[arg(long)]
    failed: bool,
}

/// Tells of items.
pub async fn log(session: &mut Session, args: &LogArgs, output: &mut Output) -> Result<u8, Trouble> {
    let task = session.get(&path(&args.task)?).await?;
    let (mut after, mut count) = (0, 0);
    loop {
        let fields = [("after", after.to_string()), ("limit", PAGE.to_string())];
        let fields: Vec<_> = fields.iter().map(|(name, text)| (*name, text.as_str())).collect();
        let items = session.lines(&with_query(&format!("/v2/whimbrel/tasks/{}/log", args.task), &fields)).await?;
        for item in items.iter().filter(|item| !args.failed || !is_done(item)) {
            output.result(&event(item, "item"), &item_line(&task, item));
            count += 1;
        }
        match items.last() {
            Some(last) if items.len() as u64 == PAGE => after = show::number(last, "mark"),
            _ => break,
        }
    }
    if count == 0 {
        output.say("there is nothing to tell of items of this task");
    }
    Ok(exit::OK)
}

fn is_done(item: &Value) -> bool {
    matches!(text(item, "state"), "succeeded" | "up_to_date")
}

fn item_line(task: &Value, item: &Value) -> String {
    let removed = text(task, "type") == "DELETE" || item["is_delete_destination_extra"] == true;
    let name = match (text(item, "source_path"), text(item, "destination_path")) {
        ("", only) | (only, "") => only.to_owned(),
        (from, to) => format!("{from} -> {to}"),
    };
    let done = match (text(item, "state"), text(item, "type")) {
        ("succeeded", _) if removed => "removed".to_owned(),
        ("succeeded", "file") => copied(task, item),
        ("succeeded", _) => "made".to_owned(),
        ("up_to_date", _) => "left as it was".to_owned(),
        ("skipped_error", _) => "left out".to_owned(),
        (state, _) => state.to_owned(),
    };
    let why = match text(item, "error_code") {
        "" => String::new(),
        code => format!(": {code}: {}", text(item, "error_details")),
    };
    format!("{name}  {done}{why}")
}

/// How a file was copied; what is known of the proof of all files of the task is known of each.
fn copied(task: &Value, item: &Value) -> String {
    let proof = match (text(item, "checksum_algorithm"), text(item, "checksum")) {
        (_, "") => show::proof(task).to_owned(),
        (algorithm, sum) => format!("{algorithm}:{sum}"),
    };
    let size = ByteCount(show::number(item, "bytes_transferred"));
    if proof.is_empty() { format!("copied, {size}") } else { format!("copied, {size}, {proof}") }
}
