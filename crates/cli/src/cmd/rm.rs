//! `whimbrel rm`: removes files and directories.

use std::process::ExitCode;

use clap::Args;
use serde_json::json;
use whimbrel_dtn::client::end::End;
use whimbrel_dtn::client::options::Place;
use whimbrel_dtn::client::wildcard;
use whimbrel_engine::listing::{Object, ObjectKind, join};
use whimbrel_engine::plan::quote_path;
use whimbrel_engine::{Fault, FaultCode, Side};
use whimbrel_proto::op::Op;

use super::{block_on, finish, for_each_code, log_in, not_found, open};
use crate::args::{Global, HELP_END};
use crate::output::{Output, path_value};
use crate::place;

/// Remove files and directories
#[derive(Debug, Args)]
#[command(after_help = HELP_END)]
pub struct RmArgs {
    /// What to remove; remote names may hold * ? [a-z]
    #[arg(required = true, value_name = "PLACE", value_parser = place::parser())]
    places: Vec<Place>,
    /// Remove directories with all that is in them
    #[arg(short, long)]
    recursive: bool,
    /// What does not exist is no failure
    #[arg(short, long)]
    force: bool,
}

/// Runs the command.
pub fn run(mut args: RmArgs, global: &Global) -> ExitCode {
    let result = log_in(&mut args.places, global).and_then(|()| block_on(remove_all(args, global)));
    finish(global, result)
}

async fn remove_all(args: RmArgs, global: &Global) -> Result<u8, Fault> {
    let mut output = Output::new(global);
    let mut codes = Vec::new();
    for place in &args.places {
        let removed = remove_place(&args, place, global, &mut output).await;
        codes.push(match removed {
            Err(fault) if !(args.force && fault.code == FaultCode::NotFound) => {
                output.fault(&fault.side_if_unknown(Side::Source))
            }
            _ => 0,
        });
    }
    Ok(for_each_code(&codes))
}

async fn remove_place(args: &RmArgs, place: &Place, global: &Global, output: &mut Output) -> Result<(), Fault> {
    let mut end = open(place, global).await?;
    let paths = if place.target.is_some() && wildcard::has_wildcards(&place.path) {
        wildcard::expand(&mut end, &place.path).await?.all()?
    } else {
        vec![place.path.clone()]
    };
    for path in paths {
        let found =
            end.stat(&path, true).await?.ok_or_else(|| not_found(&place.with_path(path.clone()), Side::Source))?;
        remove(&mut end, &path, &found, args.recursive).await?;
        if global.json || global.verbose > 0 {
            let text = format!("removed {}", quote_path(&path));
            output.result(&json!({ "event": "removed", "path": path_value(&path) }), &text);
        }
    }
    Ok(())
}

async fn remove(end: &mut End, path: &[u8], found: &Object, recursive: bool) -> Result<(), Fault> {
    match (&found.kind, recursive) {
        (ObjectKind::Directory, false) => {
            Err(Fault::new(FaultCode::IsADirectory, "remove").on_path(path).detail("remove directories with -r"))
        }
        (ObjectKind::Directory, true) => match end.run(Op::DeleteTree(path.to_vec())).await {
            Err(fault) if fault.code == FaultCode::NotSupported => remove_tree(end, path).await,
            result => result.map(drop),
        },
        _ => end.run(Op::Delete(path.to_vec())).await.map(drop),
    }
}

/// For servers without SITE RDEL: never follows links.
async fn remove_tree(end: &mut End, root: &[u8]) -> Result<(), Fault> {
    let mut open = vec![root.to_vec()];
    let mut directories = Vec::new();
    while let Some(directory) = open.pop() {
        let mut entries = Vec::new();
        end.list(&directory, true, async |batch| {
            entries.extend(batch.into_iter().map(|(object, _)| object));
            Ok(())
        })
        .await?;
        for object in entries {
            let path = join(&directory, &object.path);
            if object.kind == ObjectKind::Directory {
                open.push(path);
            } else {
                end.run(Op::Delete(path)).await?;
            }
        }
        directories.push(directory);
    }
    // Every directory was met before what is in it.
    for directory in directories.into_iter().rev() {
        end.run(Op::RemoveDirectory(directory)).await?;
    }
    Ok(())
}
