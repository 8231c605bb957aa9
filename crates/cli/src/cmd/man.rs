//! `whimbrel man`: manual pages from the definitions of the command line.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, CommandFactory as _};

use crate::args::Cli;

/// Write the manual pages into a directory
#[derive(Debug, Args)]
pub struct ManArgs {
    /// Directory, which must exist; man finds pages in a directory called man1
    #[arg(value_name = "DIR")]
    directory: PathBuf,
}

/// Runs the command.
pub fn run(args: &ManArgs) -> ExitCode {
    match clap_mangen::generate_to(Cli::command(), &args.directory) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("whimbrel: cannot write manual pages to {}: {error}", args.directory.display());
            ExitCode::from(whimbrel_engine::summary::exit::DESTINATION)
        }
    }
}
