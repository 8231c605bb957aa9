//! `whimbrel completions`: scripts that complete command lines.

use std::process::ExitCode;

use clap::{Args, CommandFactory as _};
use clap_complete::Shell;

use crate::args::Cli;
use crate::output::lines;

/// Print the completion script of a shell
///
/// For bash: whimbrel completions bash > ~/.local/share/bash-completion/completions/whimbrel
#[derive(Debug, Args)]
pub struct CompletionsArgs {
    /// The shell
    shell: Shell,
}

/// Runs the command.
pub fn run(args: &CompletionsArgs) -> ExitCode {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "whimbrel", &mut script);
    lines::print(&script);
    ExitCode::SUCCESS
}
