//! The one binary: `whimbrel cp`, `whimbrel dtn` and the rest.

mod args;
mod cmd;
mod endpoints;
mod log;
mod login;
mod managed;
mod output;
mod place;
mod words;

use std::io::IsTerminal as _;
use std::process::ExitCode;

use clap::Parser as _;
use tracing_subscriber::EnvFilter;

use args::{Cli, Command};

fn main() -> ExitCode {
    let words = words::take();
    if let Err(error) = whimbrel_dtn::confine::keep_out_of_core_files() {
        eprintln!("whimbrel: should it crash, secrets may be left in a core file: {error}");
    }
    let cli = Cli::parse_from(words);
    start_log(&cli);
    cmd::run(cli)
}

/// Diagnostics go to standard error; `WHIMBREL_LOG` overrides `-v` with a filter of its own.
fn start_log(cli: &Cli) {
    let serves = match &cli.command {
        Command::Dtn(args) => !args.serves_one(),
        Command::DtnFront | Command::DataProcess(_) => true,
        _ => false,
    };
    let stays = serves
        || matches!(
            &cli.command,
            Command::Serve(_)
                | Command::Orchestrate(_)
                | Command::DtnMember
                | Command::DtnDoor
                | Command::DtnCaller
                | Command::DtnRelay
        );
    let level = match (cli.global.verbose, serves) {
        (0, false) => "warn",
        (0, true) | (1, false) => "info",
        (1, true) | (2, _) => "debug",
        _ => "trace",
    };
    let filter = EnvFilter::try_from_env("WHIMBREL_LOG").unwrap_or_else(|_| EnvFilter::new(level));
    let colours = std::io::stderr().is_terminal();
    let log =
        tracing_subscriber::fmt().with_env_filter(filter).with_writer(move || log::Plain { colours, waits: !stays });
    // Told in panics, where standard error takes nothing.
    log.with_ansi(colours).with_target(false).log_internal_errors(false).init();
}
