//! `whimbrel task events` and `log`: what happened to a task, and to each of its files.

use std::time::Duration;

use clap::Args;
use serde_json::{Value, json};
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

/// Tell what became of each file of a task: copied, with its checksum, or left out, and why
#[derive(Debug, Args)]
pub struct LogArgs {
    /// The task
    #[arg(value_name = "ID")]
    task: String,
    /// Only files that were left out
    #[arg(long)]
    left_out: bool,
}

/// Tells of files.
pub async fn log(session: &mut Session, args: &LogArgs, output: &mut Output) -> Result<u8, Trouble> {
    let place = path(&args.task)?;
    let task = session.get(&place).await?;
    let mut count = 0;
    // Of deletions there is no list of what was done.
    if !args.left_out && text(&task, "type") == "TRANSFER" {
        let proof = show::proof(&task);
        count += pages(session, &format!("{place}/successful_transfers"), |file| {
            output.result(&event(file, "copied"), &copied(file, proof));
        })
        .await?;
    }
    count += pages(session, &format!("{place}/skipped_errors"), |file| {
        output.result(&event(file, "left_out"), &left_out(file));
    })
    .await?;
    if count == 0 {
        output.outcome(
            &json!({"event": "nothing", "task_id": args.task}),
            "there is nothing to tell of files of this task",
        );
    }
    Ok(exit::OK)
}

async fn pages(session: &mut Session, place: &str, mut each: impl FnMut(&Value)) -> Result<usize, Trouble> {
    let (mut marker, mut count) = (None::<String>, 0);
    loop {
        let fields: Vec<_> = marker.iter().map(|marker| ("marker", marker.as_str())).collect();
        let page = session.get(&with_query(place, &fields)).await?;
        entries(&page).iter().for_each(&mut each);
        count += entries(&page).len();
        marker = page["next_marker"].as_str().map(str::to_owned);
        if marker.is_none() {
            return Ok(count);
        }
    }
}

/// `proof`: what is known of all files of the task together.
fn copied(file: &Value, proof: &str) -> String {
    let proof = match (text(file, "checksum_algorithm"), text(file, "checksum")) {
        (_, "") => proof.to_owned(),
        (algorithm, sum) => format!("{algorithm}:{sum}"),
    };
    let proof = if proof.is_empty() { proof } else { format!(", {proof}") };
    let size = ByteCount(show::number(file, "size"));
    format!("{} -> {}  ({size}{proof})", text(file, "source_path"), text(file, "destination_path"))
}

fn left_out(file: &Value) -> String {
    format!("left out: {}  {}: {}", text(file, "source_path"), text(file, "error_code"), text(file, "error_details"))
}
