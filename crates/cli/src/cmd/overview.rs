//! `whimbrel overview`: how the managed service is.

use std::process::ExitCode;

use clap::Args;
use serde_json::{Value, json};
use whimbrel_engine::summary::exit;
use whimbrel_engine::units::ByteRate;

use super::managed;
use crate::args::Global;
use crate::managed::{EXIT_CODES, ServiceArgs, Session, list, show, text};
use crate::output::Output;

/// Tasks that people are shown of a kind; `--json` has more.
const SHOWN: usize = 10;

/// How the managed service is: its servers, its tasks, who uses it, and what is in the way (administrators of the service only)
#[derive(Debug, Args)]
#[command(after_help = format!("EXAMPLES\n  \
    One look:                 whimbrel overview\n  \
    Again and again:          watch -n 5 whimbrel overview\n  \
    For a program:            whimbrel overview --json\n  \
    Somebody else's task:     whimbrel task show ID\n  \
                              whimbrel task events ID\n\n{EXIT_CODES}"))]
pub struct OverviewArgs {
    #[command(flatten)]
    service: ServiceArgs,
}

/// Runs the command.
pub fn run(args: OverviewArgs, global: &Global) -> ExitCode {
    managed(global, async |output: &mut Output| {
        let mut session = Session::open(&args.service)?;
        let mut document = session.get("/v2/whimbrel/overview").await?;
        document["event"] = json!("overview");
        output.result(&document, &shown(&document));
        Ok(exit::OK)
    })
}

fn rate(document: &Value) -> String {
    ByteRate(show::number(document, "bytes_per_second") as f64).to_string()
}

/// A heading with rows below it; nothing without rows.
fn section(heading: &str, rows: &[Vec<String>]) -> String {
    let lines: String = show::table(rows).iter().map(|line| format!("\n  {line}")).collect();
    if rows.is_empty() { String::new() } else { format!("\n\n{heading}{lines}") }
}

fn shown(document: &Value) -> String {
    let mut page = show::facts(&format!("service {}", text(document, "url")), &facts(document));
    let servers = list(document, "endpoints").iter().flat_map(|endpoint| {
        let name = text(endpoint, "name");
        let own = list(endpoint, "servers");
        let none = own.is_empty().then(|| vec!["none".to_owned(), name.to_owned(), "no server has joined".to_owned()]);
        own.iter().map(|server| server_row(name, server)).chain(none).collect::<Vec<_>>()
    });
    page += &section("servers", &servers.collect::<Vec<_>>());
    let owners = list(document, "owners").iter().take(SHOWN);
    let owner = |one: &Value| {
        vec![text(one, "username").to_owned(), format!("{} running", show::number(one, "running")), rate(one)]
    };
    page += &section("who moves data now", &owners.map(owner).collect::<Vec<_>>());
    let running = list(document, "running").iter().take(SHOWN);
    let task = |one: &Value, last: String| {
        vec![text(one, "task_id").to_owned(), text(one, "owner_string").to_owned(), show::ends(one), last]
    };
    page += &section("fastest tasks", &running.map(|one| task(one, rate(one))).collect::<Vec<_>>());
    let troubled = list(document, "troubled").iter().take(SHOWN);
    page += &section("tasks in trouble", &troubled.map(|one| task(one, show::trouble(one))).collect::<Vec<_>>());
    page
}

fn facts(document: &Value) -> Vec<(&'static str, String)> {
    let tasks = &document["tasks"];
    let count = |name: &str| show::number(tasks, name);
    let waiting = match (count("waiting"), count("oldest_waiting_seconds")) {
        (0, _) => "0 waiting".to_owned(),
        (waiting, oldest) => format!("{waiting} waiting (the oldest for {oldest} s)"),
    };
    let (paused, inactive, troubled) = (count("paused"), count("inactive"), count("troubled"));
    let troubled = if troubled > 0 { format!("; {troubled} of these in trouble") } else { String::new() };
    let running = count("running");
    let tasks_now = format!("{running} running, {waiting}, {paused} paused, {inactive} without a credential{troubled}");
    let (succeeded, failed, cancelled) = (count("succeeded"), count("failed"), count("cancelled"));
    let replicas = list(document, "replicas").iter().map(|one| match one["is_there"] == true {
        true => text(one, "url").to_owned(),
        false => format!("{} (gone since {})", text(one, "url"), show::time(one, "seen")),
    });
    let unsent = match show::number(document, "notices_waiting") {
        0 => String::new(),
        count => format!("{count} owners are still to be told of the end of a task"),
    };
    vec![
        ("version", text(document, "version").to_owned()),
        ("replicas", replicas.collect::<Vec<_>>().join(", ")),
        ("tasks", tasks_now),
        ("moving", rate(tasks)),
        ("last day", format!("{succeeded} succeeded, {failed} failed, {cancelled} cancelled")),
        ("news", unsent),
        ("recount", recount(&document["recount"])),
    ]
}

fn recount(recount: &Value) -> String {
    match show::number(recount, "wrong") {
        0 => String::new(),
        wrong => {
            format!("the counters of {wrong} tasks are wrong ({}): please report this", show::time(recount, "time"))
        }
    }
}

fn server_row(endpoint: &str, server: &Value) -> Vec<String> {
    let state = match (server["draining"] == true, server["is_ready"] == true) {
        (true, _) => "drained".to_owned(),
        (_, true) => "there".to_owned(),
        (_, false) => "away".to_owned(),
    };
    let load = server["load"].as_f64().map_or_else(String::new, |load| format!("load {load:.1}"));
    let place = server["url"].as_str().unwrap_or("-").to_owned();
    let kinds = [("outbound", "takes no connections"), ("relay", "relay")];
    let kinds: Vec<_> = kinds.iter().filter(|(name, _)| server[*name] == true).map(|(_, words)| *words).collect();
    vec![state, endpoint.to_owned(), place, text(server, "version").to_owned(), load, kinds.join(", ")]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_overview_names_what_is_away_and_what_is_in_the_way() {
        let server =
            json!({"name": "dtn1", "url": "whimbrel://dtn1:2811", "is_ready": false, "draining": false, "load": 1.25});
        let task = json!({"task_id": "t", "owner_string": "anna@example.org", "is_ok": false, "type": "TRANSFER",
                          "nice_status_short_description": "busy", "source_endpoint_display_name": "a",
                          "destination_endpoint_display_name": "b", "bytes_per_second": 5_000_000});
        let page = shown(&json!({
            "url": "https://h", "version": "1", "tasks": {"running": 2, "waiting": 1, "oldest_waiting_seconds": 9, "bytes_per_second": 5_000_000},
            "endpoints": [{"name": "Cluster", "servers": [server]}, {"name": "Empty", "servers": []}],
            "owners": [{"username": "anna@example.org", "running": 2, "bytes_per_second": 5_000_000}],
            "running": [task], "troubled": [task], "recount": {"wrong": 1},
        }));
        for words in [
            "2 running, 1 waiting (the oldest for 9 s), 0 paused",
            "away  Cluster  whimbrel://dtn1:2811",
            "load 1.2",
            "none  Empty    no server has joined",
            "anna@example.org  2 running  5.00 MB/s",
            "t  anna@example.org  a -> b  busy",
            "the counters of 1 tasks are wrong",
        ] {
            assert!(page.contains(words), "{words}\n{page}");
        }
        assert!(!shown(&json!({"tasks": {}})).contains("trouble"));
    }
}
