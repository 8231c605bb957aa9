//! `whimbrel mv`: renames.

use std::process::ExitCode;

use clap::Args;
use serde_json::json;
use whimbrel_dtn::client::options::Place;
use whimbrel_engine::listing::{ObjectKind, join};
use whimbrel_engine::plan::quote_path;
use whimbrel_engine::{Fault, Side};
use whimbrel_proto::op::Op;

use super::{block_on, finish, log_in, open, usage};
use crate::args::{Global, HELP_END};
use crate::output::{Output, path_value};
use crate::place;

/// Rename a file or a directory on one host
///
/// Both places must be on the same server: to move data between hosts, copy them, then remove them.
#[derive(Debug, Args)]
#[command(after_help = HELP_END)]
pub struct MvArgs {
    /// What to rename
    #[arg(value_name = "OLD", value_parser = place::parser())]
    from: Place,
    /// New name, or a directory to move into; on the same server
    #[arg(value_name = "NEW", value_parser = place::parser())]
    to: Place,
}

/// Runs the command.
pub fn run(mut args: MvArgs, global: &Global) -> ExitCode {
    let result = log_in([&mut args.from, &mut args.to], global);
    if args.from.target != args.to.target {
        return usage("mv renames on one host; copy with cp, then remove with rm");
    }
    finish(global, result.and_then(|()| block_on(rename(args, global))))
}

async fn rename(args: MvArgs, global: &Global) -> Result<u8, Fault> {
    let mut end = open(&args.from, global).await?;
    let into = end.stat(&args.to.path, false).await?.is_some_and(|object| object.kind == ObjectKind::Directory);
    let name = args.from.path.split(|&byte| byte == b'/').rfind(|part| !part.is_empty()).unwrap_or(b"");
    let to = if into { join(&args.to.path, name) } else { args.to.path.clone() };
    let op = Op::Rename { from: args.from.path.clone(), to: to.clone() };
    end.run(op).await.map_err(|fault| fault.side_if_unknown(Side::Source))?;
    if global.json || global.verbose > 0 {
        let text = format!("{} -> {}", quote_path(&args.from.path), quote_path(&to));
        let event = json!({ "event": "renamed", "from": path_value(&args.from.path), "to": path_value(&to) });
        Output::new(global).result(&event, &text);
    }
    Ok(0)
}
