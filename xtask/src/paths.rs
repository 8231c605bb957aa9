//! Whether copies without options are as good as the best options, on paths drawn by seed.

use crate::command::{Result, cargo, run};
use crate::setup;

/// Runs the trial; arguments go to it (`--help` lists them).
pub fn run_trial(args: &[&str]) -> Result {
    setup::run_all()?;
    run(&mut cargo(&["build", "--release", "--locked", "-p", "whimbrel", "-p", "whimbrel-testkit"]))?;
    let mut command =
        cargo(&["run", "--quiet", "--release", "--locked", "-p", "whimbrel-testkit", "--bin", "paths", "--"]);
    run(command.args(args))
}
