//! `whimbrel rm`: removes files and directories.

use std::process::ExitCode;

use clap::Args;
use serde_json::json;
use whimbrel_dtn::client::end::{End, ends_session};
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
        match paths_of(place, global).await {
            Ok((mut end, paths)) => {
                for path in paths {
                    let removed = remove_one(&args, &mut end, &place.with_path(path)).await;
                    let is_lost = removed.as_ref().is_err_and(|fault| fault.side == Some(Side::Network));
                    codes.push(told(&args, removed, global, &mut output));
                    if is_lost {
                        break;
                    }
                }
            }
            Err(fault) => codes.push(told(&args, Err(fault), global, &mut output)),
        }
    }
    Ok(for_each_code(&codes))
}

/// What a place means: itself, or what fits its pattern.
async fn paths_of(place: &Place, global: &Global) -> Result<(End, Vec<Vec<u8>>), Fault> {
    let mut end = open(place, global).await?;
    let paths = match place.target.is_some() && wildcard::has_wildcards(&place.path) {
        true => wildcard::expand(&mut end, &place.path).await?.all()?,
        false => vec![place.path.clone()],
    };
    Ok((end, paths))
}

/// Removes one; gives its path.
async fn remove_one(args: &RmArgs, end: &mut End, place: &Place) -> Result<Vec<u8>, Fault> {
    if place.name().is_empty() {
        // As rm has it (POSIX rm, step 1): mostly a variable of a script was empty.
        let fault = Fault::new(FaultCode::InvalidArgument, "remove").on_path(&place.path).side(Side::Us);
        return Err(fault.detail("neither a whole server, nor a home, nor `.` or `..` is removed: name what is in it"));
    }
    let found = end.stat(&place.path, true).await?.ok_or_else(|| not_found(place, Side::Source))?;
    remove(end, &place.path, &found, args.recursive).await?;
    Ok(place.path.clone())
}

/// Tells what became of it; its exit code.
fn told(args: &RmArgs, removed: Result<Vec<u8>, Fault>, global: &Global, output: &mut Output) -> u8 {
    match removed {
        Ok(path) if global.json || global.verbose > 0 => {
            let text = format!("removed {}", quote_path(&path));
            output.result(&json!({ "event": "removed", "path": path_value(&path) }), &text);
            0
        }
        Err(fault) if !(args.force && fault.code == FaultCode::NotFound) => {
            output.fault(&fault.side_if_unknown(Side::Source))
        }
        _ => 0,
    }
}

async fn remove(end: &mut End, path: &[u8], found: &Object, recursive: bool) -> Result<(), Fault> {
    match (&found.kind, recursive) {
        (ObjectKind::Directory, false) => {
            Err(Fault::new(FaultCode::IsADirectory, "remove").on_path(path).detail("remove directories with -r"))
        }
        (ObjectKind::Directory, true) => match end.run_long(Op::DeleteTree(path.to_vec())).await {
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
        if is_removed(end, &directory).await? {
            continue;
        }
        let mut entries = Vec::new();
        end.list(&directory, true, async |batch| {
            entries.extend(batch.into_iter().map(|(object, _)| object));
            Ok(())
        })
        .await
        .or_else(unless_gone)?;
        for object in entries {
            let path = join(&directory, &object.path);
            if object.kind == ObjectKind::Directory {
                open.push(path);
            } else {
                end.run(Op::Delete(path)).await.map(drop).or_else(unless_gone)?;
            }
        }
        directories.push(directory);
    }
    // Every directory was met before what is in it.
    for directory in directories.into_iter().rev() {
        end.run(Op::RemoveDirectory(directory)).await.map(drop).or_else(unless_gone)?;
    }
    Ok(())
}

/// Whether what a server calls a directory is removed as a file is: many call a link to a directory so, in listings as well, and
/// what lies behind it is not to be removed. DELE takes links, and no directories (unlink(2)).
async fn is_removed(end: &mut End, path: &[u8]) -> Result<bool, Fault> {
    match end.run(Op::Delete(path.to_vec())).await {
        Ok(_) => Ok(true),
        Err(fault) if fault.code == FaultCode::NotFound => Ok(false),
        Err(fault) if ends_session(&fault) => Err(fault),
        Err(_) => Ok(false),
    }
}

/// What somebody else has removed meanwhile needs no removing.
fn unless_gone(fault: Fault) -> Result<(), Fault> {
    if fault.code == FaultCode::NotFound { Ok(()) } else { Err(fault) }
}
