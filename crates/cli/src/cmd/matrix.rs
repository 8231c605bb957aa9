//! `whimbrel matrix`: how fast each way is between a set of collections, measured again and again.

use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Subcommand};
use serde_json::{Value, json};
use uuid::Uuid;
use whimbrel_engine::summary::exit;

use super::managed;
use super::task::parse_time;
use crate::args::Global;
use crate::managed::names::{Kind, Spot};
use crate::managed::refusal::{Refusal, Trouble};
use crate::managed::{EXIT_CODES, ServiceArgs, Session, entries, list, need, show, text};

/// Measure how fast each way is between collections, again and again, and show the table
///
/// Each probe copies a dataset of yours from one collection to another, as any task of yours does: from disk to disk, verified. One pair
/// is measured at a time. The copies stay, and the next round replaces them.
#[derive(Debug, Args)]
#[command(after_help = format!("EXAMPLES\n  \
    Each night, between three sites:  whimbrel matrix create nightly --every 1d \"Site A:/probe/\" \"Site B:/probe/\" \"Site C:/probe/\"\n  \
    The table:                        whimbrel matrix show nightly\n\n{EXIT_CODES}"))]
pub struct MatrixArgs {
    #[command(flatten)]
    service: ServiceArgs,
    #[command(subcommand)]
    command: MatrixCommand,
}

#[derive(Debug, Subcommand)]
enum MatrixCommand {
    /// Begin to measure
    Create {
        /// What it is called
        #[arg(value_name = "NAME")]
        name: String,
        /// What is copied from each collection: a file, or a directory with a slash behind it
        #[arg(value_name = "COLLECTION:DATASET", num_args = 2.., required = true)]
        ends: Vec<Spot>,
        /// Time from the beginning of a round to that of the next (90m, 12h, 1d)
        #[arg(long, value_name = "TIME", default_value = "1d", value_parser = parse_time)]
        every: Duration,
        /// Directory of each collection where copies go [default: ~/whimbrel-probes/]
        #[arg(long, value_name = "DIRECTORY")]
        copies: Option<String>,
    },
    /// Show which there are
    List,
    /// Show the table: sources are rows, destinations are columns
    Show {
        /// Name or id
        #[arg(value_name = "MATRIX")]
        matrix: String,
    },
    /// End one, and forget what it measured
    Delete {
        /// Name or id
        #[arg(value_name = "MATRIX")]
        matrix: String,
    },
}

impl MatrixArgs {
    /// Whether nothing changes by it.
    pub fn only_asks(&self) -> bool {
        matches!(self.command, MatrixCommand::List | MatrixCommand::Show { .. })
    }
}

/// Runs the command.
pub fn run(args: MatrixArgs, global: &Global) -> ExitCode {
    managed(global, async |output| {
        let mut session = Session::open(&args.service)?;
        match args.command {
            MatrixCommand::Create { name, ends, every, copies } => {
                let wishes = wishes(&mut session, &ends, copies.as_deref()).await?;
                let wish = json!({"name": name, "interval_seconds": every.as_secs(), "ends": wishes});
                let made = session.post("/v2/whimbrel/matrices", &wish).await?;
                let id = need(&made, "id")?;
                output.result(&json!({"event": "matrix_created", "id": id}), id);
            }
            MatrixCommand::List => {
                for matrix in all(&mut session).await? {
                    let line =
                        format!("{}  {}  {}", text(&matrix, "id"), text(&matrix, "state"), text(&matrix, "name"));
                    output.result(&event("matrix", matrix), &line);
                }
            }
            MatrixCommand::Show { matrix } => {
                let path = path(&mut session, &matrix).await?;
                let found = session.get(&path).await?;
                let shown = shown(&found);
                output.result(&event("matrix", found), &shown);
            }
            MatrixCommand::Delete { matrix } => {
                let path = path(&mut session, &matrix).await?;
                let deleted = session.delete(&path).await?;
                output.outcome(&json!({"event": "matrix_deleted"}), text(&deleted, "message"));
            }
        }
        Ok(exit::OK)
    })
}

fn event(name: &str, mut document: Value) -> Value {
    document["event"] = json!(name);
    document
}

async fn wishes(session: &mut Session, ends: &[Spot], copies: Option<&str>) -> Result<Vec<Value>, Trouble> {
    let mut wishes = Vec::new();
    for end in ends {
        let id = session.id_of(&end.collection, Kind::Collection).await?;
        wishes.push(json!({"collection_id": id, "dataset": end.path, "copies": copies}));
    }
    Ok(wishes)
}

async fn all(session: &mut Session) -> Result<Vec<Value>, Trouble> {
    Ok(entries(&session.get("/v2/whimbrel/matrices").await?).to_vec())
}

/// The place of a matrix that is named by its id or its name.
async fn path(session: &mut Session, named: &str) -> Result<String, Trouble> {
    let place = |id: &str| format!("/v2/whimbrel/matrices/{id}");
    if let Ok(id) = Uuid::try_parse(named) {
        return Ok(place(&id.to_string()));
    }
    let found: Vec<_> = all(session).await?.into_iter().filter(|matrix| text(matrix, "name") == named).collect();
    match &found[..] {
        [one] => Ok(place(text(one, "id"))),
        [] => Err(Refusal::new(404, "MatrixNotFound", format!("you have no matrix called {named:?}")).into()),
        _ => Err(Trouble::Usage(format!("several matrices are called {named:?}: give the id"))),
    }
}

/// The table, and what was in the way of pairs without a figure.
fn shown(matrix: &Value) -> String {
    let names: Vec<String> = matrix["ends"].as_array().into_iter().flatten().map(name).collect();
    let cells = list(matrix, "cells");
    let best = cells.iter().filter_map(|cell| cell["bytes_per_second"].as_f64()).fold(0.0, f64::max);
    let (unit, scale) = if best * 8.0 >= 1e9 { ("Gbit/s", 8e-9) } else { ("Mbit/s", 8e-6) };
    let mut rows = vec![[vec!["from \\ to".to_owned()], names.clone()].concat()];
    let mut faults = Vec::new();
    for (from, row_name) in names.iter().enumerate() {
        let mut row = vec![row_name.clone()];
        for (to, column_name) in names.iter().enumerate() {
            let cell = cells.iter().find(|cell| cell["source"] == json!(from) && cell["destination"] == json!(to));
            row.push(cell.map_or_else(|| "-".to_owned(), |cell| figure(cell, scale)));
            let fault = cell.and_then(|cell| cell["measurements"][0]["fault"].as_str());
            faults.extend(fault.map(|fault| format!("  {row_name} to {column_name}: {fault}")));
        }
        rows.push(row);
    }
    let rounds = show::number(matrix, "rounds");
    let head =
        format!("{}: {unit}, newest of {rounds} round{}", text(matrix, "name"), if rounds == 1 { "" } else { "s" });
    [vec![head], show::table(&rows), faults].concat().join("\n")
}

fn name(end: &Value) -> String {
    let name = text(end, "display_name");
    if name.is_empty() { text(end, "collection_id").to_owned() } else { name.to_owned() }
}

/// The newest figure of a pair in the table's unit; nothing yet, or a failure.
fn figure(cell: &Value, scale: f64) -> String {
    match (cell["bytes_per_second"].as_f64(), cell["measurements"].get(0)) {
        (Some(rate), _) => format!("{:.1}", rate * scale),
        (None, Some(_)) => "failed".to_owned(),
        (None, None) => "not yet".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_has_a_row_for_each_source() {
        let cell = |from: u32, to: u32, rate: Value, measured: Value| json!({"source": from, "destination": to, "bytes_per_second": rate, "measurements": measured});
        let matrix = json!({
            "name": "nightly", "rounds": 1,
            "ends": [{"display_name": "Site A"}, {"display_name": "B"}, {"display_name": "", "collection_id": "c-id"}],
            "cells": [
                cell(0, 1, json!(250_000_000), json!([{"fault": null}])),
                cell(0, 2, json!(null), json!([{"fault": "no space"}])),
                cell(1, 0, json!(null), json!([])),
            ],
        });
        let expected = "nightly: Gbit/s, newest of 1 round\n\
                        from \\ to  Site A   B    c-id\n\
                        Site A     -        2.0  failed\n\
                        B          not yet  -    -\n\
                        c-id       -        -    -\n  \
                          Site A to c-id: no space";
        assert_eq!(shown(&matrix), expected);
    }
}
