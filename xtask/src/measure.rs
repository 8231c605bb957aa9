//! The programs that measure: the comparison with the peers, the paper's figures, paths drawn by seed.

use crate::command::{Result, cargo, run};
use crate::setup;

/// Sets up, builds and runs one of them by its name; arguments go to it (`--help` lists them).
pub fn measure(program: &str, args: &[&str]) -> Result {
    setup::run_all()?;
    run(&mut cargo(&["build", "--release", "--locked", "-p", "whimbrel", "-p", "whimbrel-testkit", "--bins"]))?;
    let run_it = ["run", "--quiet", "--release", "--locked", "-p", "whimbrel-testkit", "--bin", program, "--"];
    run(cargo(&run_it).args(args))
}
