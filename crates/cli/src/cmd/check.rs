//! `whimbrel check`: tests the way to a server.

use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use whimbrel_dtn::client::check::{Check, Step, check};
use whimbrel_dtn::client::options::Place;
use whimbrel_dtn::client::target::SessionOptions;
use whimbrel_engine::Fault;

use super::{block_on, finish, local_options, log_in, usage};
use crate::args::{Global, HELP_END};
use crate::output::Output;
use crate::place;

/// Test the way to a server: name, port, login, data connections both ways
///
/// Says which address, port or firewall is wrong, and what to do about it.
#[derive(Debug, Args)]
#[command(after_help = HELP_END)]
pub struct CheckArgs {
    /// The server, as in dtn.example.org: or ftp://dtn.example.org:2811/data
    #[arg(value_name = "PLACE", value_parser = place::parser())]
    place: Place,
    /// Longest wait for each connection
    #[arg(long, value_name = "SECONDS", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=3600))]
    wait: u64,
}

/// Runs the command.
pub fn run(mut args: CheckArgs, global: &Global) -> ExitCode {
    let result = log_in([&mut args.place], global);
    let Some(target) = args.place.target.clone() else {
        return usage("check needs a server, as in dtn.example.org: or ftp://dtn.example.org:2811/");
    };
    let local = match local_options() {
        Ok(local) => local,
        Err(fault) => return usage(&fault.to_string()),
    };
    let patience = Duration::from_secs(args.wait);
    let session = SessionOptions { connect_timeout: patience, ..global.session() };
    let asked = Check { target: &target, path: &args.place.path, session: &session, local: &local, patience };
    let mut output = Output::new(global);
    let checked =
        result.and_then(|()| block_on(async { Ok::<u8, Fault>(check(&asked, |step| show(&mut output, step)).await) }));
    finish(global, checked)
}

fn show(output: &mut Output, step: &Step) {
    let mark = if step.ok { "ok  " } else { "FAIL" };
    let mut text = format!("{mark} {}: {}", step.name, step.text);
    if let Some(cure) = &step.cure {
        text += &format!("\n     cure: {cure}");
    }
    let json =
        serde_json::json!({ "event": "check", "step": step.name, "ok": step.ok, "text": step.text, "cure": step.cure });
    output.result(&json, &text);
}
