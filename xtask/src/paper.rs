//! The paper's figures in the laboratory.

use crate::command::{Result, cargo, run};
use crate::setup;

/// Measures and checks them; arguments go to it (`--help` lists them).
pub fn reproduce(args: &[&str]) -> Result {
    setup::run_all()?;
    run(&mut cargo(&["build", "--release", "--locked", "-p", "whimbrel", "-p", "whimbrel-testkit", "--bins"]))?;
    let mut command =
        cargo(&["run", "--quiet", "--release", "--locked", "-p", "whimbrel-testkit", "--bin", "paper", "--"]);
    run(command.args(args))
}
