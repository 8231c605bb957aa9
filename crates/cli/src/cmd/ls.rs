//! `whimbrel ls`: lists directories.

use std::process::ExitCode;

use clap::Args;
use serde_json::json;
use whimbrel_dtn::client::Owner;
use whimbrel_dtn::client::options::Place;
use whimbrel_dtn::client::wildcard;
use whimbrel_engine::listing::{Object, ObjectKind, Timestamp};
use whimbrel_engine::plan::quote_path;
use whimbrel_engine::units::ByteCount;
use whimbrel_engine::{Fault, Side};

use super::{block_on, finish, for_each_code, log_in, not_found, open};
use crate::args::{Global, HELP_END};
use crate::output::Output;
use crate::place;

/// List directories and files
#[derive(Debug, Args)]
#[command(after_help = HELP_END)]
pub struct LsArgs {
    /// What to list; remote names may hold * ? [a-z]
    #[arg(required = true, value_name = "PLACE", value_parser = place::parser())]
    places: Vec<Place>,
    /// Show kind, mode, size and time of each entry
    #[arg(short, long)]
    long: bool,
    /// Show names that start with a dot
    #[arg(short, long)]
    all: bool,
    /// Show sizes with units
    #[arg(short = 'H', long)]
    human: bool,
}

/// Runs the command.
pub fn run(mut args: LsArgs, global: &Global) -> ExitCode {
    let result = log_in(&mut args.places, global).and_then(|()| block_on(list_all(args, global)));
    finish(global, result)
}

async fn list_all(args: LsArgs, global: &Global) -> Result<u8, Fault> {
    let mut output = Output::new(global);
    let mut codes = Vec::new();
    for place in &args.places {
        let listed = list_place(&args, place, global, &mut output).await;
        codes.push(match listed {
            Ok(()) => 0,
            Err(fault) => output.fault(&fault.side_if_unknown(Side::Source)),
        });
    }
    Ok(for_each_code(&codes))
}

async fn list_place(args: &LsArgs, place: &Place, global: &Global, output: &mut Output) -> Result<(), Fault> {
    let mut end = open(place, global).await?;
    let paths = if place.target.is_some() && wildcard::has_wildcards(&place.path) {
        wildcard::expand(&mut end, &place.path).await?.all()?
    } else {
        vec![place.path.clone()]
    };
    for path in &paths {
        let found =
            end.stat(path, true).await?.ok_or_else(|| not_found(&place.with_path(path.clone()), Side::Source))?;
        if found.kind != ObjectKind::Directory {
            let named = Object { path: path.clone(), ..found };
            show(args, output, &named, &Owner::default());
            continue;
        }
        if paths.len() + args.places.len() > 2 {
            output.say(&format!("{}:", quote_path(path)));
        }
        let mut entries = Vec::new();
        let listed = end.list(path, true, async |batch| {
            entries.extend(batch);
            Ok(())
        });
        let listed = listed.await;
        entries.sort_by(|a, b| a.0.path.cmp(&b.0.path));
        for (object, owner) in entries.iter().filter(|(object, _)| args.all || !object.path.starts_with(b".")) {
            show(args, output, object, owner);
        }
        // What could be read is shown all the same.
        listed?;
    }
    Ok(())
}

fn show(args: &LsArgs, output: &mut Output, object: &Object, owner: &Owner) {
    let text = if args.long { long_line(args, object, owner) } else { quote_path(&object.path) };
    output.result(&json!({ "event": "entry", "object": object, "owner": owner.user, "group": owner.group }), &text);
}

fn long_line(args: &LsArgs, object: &Object, owner: &Owner) -> String {
    let mode = object.mode.map_or_else(|| "?????????".to_owned(), mode_text);
    let size = match object.size {
        None => "?".to_owned(),
        Some(size) if args.human => ByteCount(size).to_string(),
        Some(size) => size.to_string(),
    };
    let name = |name: &Option<String>| name.clone().unwrap_or_else(|| "-".to_owned());
    let link = match &object.kind {
        ObjectKind::Symlink { target } if !target.is_empty() => format!(" -> {}", quote_path(target)),
        _ => String::new(),
    };
    let time = object.modified.map_or_else(|| "-".repeat(20), time_text);
    let (user, group) = (name(&owner.user), name(&owner.group));
    format!(
        "{}{mode} {user:>8} {group:>8} {size:>12} {time} {}{link}",
        kind_letter(&object.kind),
        quote_path(&object.path)
    )
}

fn kind_letter(kind: &ObjectKind) -> char {
    match kind {
        ObjectKind::File => '-',
        ObjectKind::Directory => 'd',
        ObjectKind::Symlink { .. } => 'l',
        ObjectKind::Other => '?',
    }
}

/// `rwxr-x---`.
pub fn mode_text(mode: u32) -> String {
    let letters = [
        (0o400, 'r'),
        (0o200, 'w'),
        (0o100, 'x'),
        (0o040, 'r'),
        (0o020, 'w'),
        (0o010, 'x'),
        (0o004, 'r'),
        (0o002, 'w'),
        (0o001, 'x'),
    ];
    letters.iter().map(|&(bit, letter)| if mode & bit != 0 { letter } else { '-' }).collect()
}

/// `2026-11-21 02:01:54Z`.
pub fn time_text(time: Timestamp) -> String {
    let wire = whimbrel_proto::timeval::Timestamp::from_secs(time.secs).to_civil();
    format!(
        "{:04}-{:02}-{:02} {:02}:{:02}:{:02}Z",
        wire.year, wire.month, wire.day, wire.hour, wire.minute, wire.second
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_and_times_are_shown_in_the_usual_form() {
        assert_eq!(mode_text(0o754), "rwxr-xr--");
        assert_eq!(time_text(Timestamp::from_secs(1_795_226_514)), "2026-11-21 02:01:54Z");
    }
}
