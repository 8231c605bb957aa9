//! `whimbrel stat`: describes files.

use std::process::ExitCode;

use clap::Args;
use serde_json::json;
use whimbrel_dtn::client::options::Place;
use whimbrel_engine::listing::{Object, ObjectKind};
use whimbrel_engine::plan::quote_path;
use whimbrel_engine::{Fault, Side};

use super::ls::{mode_text, time_text};
use super::{block_on, finish, for_each_code, log_in, not_found, open};
use crate::args::{Global, HELP_END};
use crate::output::Output;
use crate::place;

/// Describe files and directories
#[derive(Debug, Args)]
#[command(after_help = HELP_END)]
pub struct StatArgs {
    /// What to describe
    #[arg(required = true, value_name = "PLACE", value_parser = place::parser())]
    places: Vec<Place>,
    /// Describe what symbolic links point to
    #[arg(short = 'L', long)]
    dereference: bool,
}

/// Runs the command.
pub fn run(mut args: StatArgs, global: &Global) -> ExitCode {
    let result = log_in(&mut args.places, global).and_then(|()| block_on(describe_all(args, global)));
    finish(global, result)
}

async fn describe_all(args: StatArgs, global: &Global) -> Result<u8, Fault> {
    let mut output = Output::new(global);
    let mut codes = Vec::new();
    for place in &args.places {
        let described = describe(place, !args.dereference, global).await;
        codes.push(match described {
            Ok(object) => {
                output.result(&json!({ "event": "entry", "object": object }), &text(&object));
                0
            }
            Err(fault) => output.fault(&fault.side_if_unknown(Side::Source)),
        });
    }
    Ok(for_each_code(&codes))
}

async fn describe(place: &Place, links: bool, global: &Global) -> Result<Object, Fault> {
    let found = open(place, global).await?.stat(&place.path, links).await?;
    let object = found.ok_or_else(|| not_found(place, Side::Source))?;
    Ok(Object { path: place.path.clone(), ..object })
}

fn text(object: &Object) -> String {
    let kind = match &object.kind {
        ObjectKind::File => "file".to_owned(),
        ObjectKind::Directory => "directory".to_owned(),
        ObjectKind::Symlink { target } => format!("symbolic link to {}", quote_path(target)),
        ObjectKind::Other => "device, pipe or socket".to_owned(),
    };
    let mut text = format!("{}\n  kind      {kind}", quote_path(&object.path));
    if let Some(size) = object.size {
        text += &format!("\n  size      {size}");
    }
    if let Some(time) = object.modified {
        text += &format!("\n  modified  {}", time_text(time));
    }
    if let Some(mode) = object.mode {
        text += &format!("\n  mode      {mode:04o} {}", mode_text(mode));
    }
    text
}
