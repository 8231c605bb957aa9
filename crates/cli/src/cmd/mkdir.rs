//! `whimbrel mkdir`: makes directories.

use std::process::ExitCode;

use clap::Args;
use serde_json::json;
use whimbrel_dtn::client::end::End;
use whimbrel_dtn::client::options::Place;
use whimbrel_engine::listing::{ObjectKind, trimmed};
use whimbrel_engine::plan::quote_path;
use whimbrel_engine::{Fault, FaultCode, Side};
use whimbrel_proto::op::Op;

use super::{block_on, finish, for_each_code, log_in, open};
use crate::args::{Global, HELP_END};
use crate::output::{Output, path_value};
use crate::place;

/// Make directories
#[derive(Debug, Args)]
#[command(after_help = HELP_END)]
pub struct MkdirArgs {
    /// Directories to make
    #[arg(required = true, value_name = "PLACE", value_parser = place::parser())]
    places: Vec<Place>,
    /// Make missing parents too; a directory that exists is no failure
    #[arg(short, long)]
    parents: bool,
}

/// Runs the command.
pub fn run(mut args: MkdirArgs, global: &Global) -> ExitCode {
    let result = log_in(&mut args.places, global).and_then(|()| block_on(make_all(args, global)));
    finish(global, result)
}

async fn make_all(args: MkdirArgs, global: &Global) -> Result<u8, Fault> {
    let mut output = Output::new(global);
    let mut codes = Vec::new();
    for place in &args.places {
        let made = make(place, args.parents, global).await;
        codes.push(match made {
            Ok(()) => {
                if global.json || global.verbose > 0 {
                    let text = format!("made {}", quote_path(&place.path));
                    output.result(&json!({ "event": "directory_made", "path": path_value(&place.path) }), &text);
                }
                0
            }
            Err(fault) => output.fault(&fault.side_if_unknown(Side::Destination)),
        });
    }
    Ok(for_each_code(&codes))
}

async fn make(place: &Place, parents: bool, global: &Global) -> Result<(), Fault> {
    let mut end = open(place, global).await?;
    let path = trimmed(&place.path);
    if !parents {
        return end.run(Op::MakeDirectory(path.to_vec())).await.map(drop);
    }
    let ends = (1..path.len()).filter(|&at| path[at] == b'/').chain([path.len()]);
    for at in ends {
        make_unless_there(&mut end, &path[..at]).await?;
    }
    Ok(())
}

async fn make_unless_there(end: &mut End, path: &[u8]) -> Result<(), Fault> {
    let Err(fault) = end.run(Op::MakeDirectory(path.to_vec())).await else { return Ok(()) };
    // Servers refuse existing directories, and parents one may not write to, with many codes.
    match end.stat(path, false).await? {
        Some(object) if object.kind == ObjectKind::Directory => Ok(()),
        Some(_) => Err(Fault::new(FaultCode::AlreadyExists, "make directory").on_path(path)),
        None => Err(fault),
    }
}
