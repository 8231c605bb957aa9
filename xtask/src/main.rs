//! The one entry point for people and CI: `cargo xtask COMMAND`.
//!
//! Depends on nothing but the standard library, so that it builds in seconds on a fresh machine.

mod command;
mod coverage;
mod demo;
mod docs;
mod fuzz;
mod hygiene;
mod measure;
mod nightly;
mod sabotage;
mod setup;
mod test;

use std::process::ExitCode;

const HELP: &str = "\
cargo xtask COMMAND

  demo [--keep]   set up, build, start two data transfer nodes, move a data set between them, verify it
  test [STAGE]    set up and run every test, or one stage: setup hygiene unit demo
  bench [ARG...]  compare with the peers, side by side, and write docs/reference/performance.md
  managed [ARG...]  what the managed service costs: first byte, start-up, a million files; writes docs/reference/performance.md
  paths [ARG...]  whether copies without options are as good as the best options, on paths drawn by seed
  paper [ARG...]  reproduce the figures of the paper on chunked transfers, check its claims, write
                  docs/reference/paper-results.md
  nightly [SUITE...]  everything that is too long for `test`, or some of it: tests long deny gsi tls ssh bench paper paths sabotage coverage fuzz;
                  results go to docs/reference/nightly.md
  fuzz [[+]MINUTES [TARGET...]]  run fuzz targets until each used so much processor time (default 60), or so much more
                  (needs a nightly compiler and cargo-fuzz)
  coverage        replay the kept fuzz inputs and count the lines of parsers that they reach; fails below 90 %, writes
                  docs/reference/parser-coverage.md (needs rustup's component llvm-tools)
  sabotage [--keep] [--record FILE] [NAME...]  take out each sync, check and order of steps, one at a time, in a worktree of
                  its own; a test must notice each (all, or those whose names begin so); writes docs/reference/sabotage.md;
                  with a record it goes on where an earlier run of the same sources was cut
  docs            write the generated parts of docs/reference anew
  setup           install the system packages that demo, test and bench need";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    let result = match words[..] {
        ["demo", ref rest @ ..] => demo::run_demo(rest.contains(&"--keep")),
        ["test"] => test::run_stages(None),
        ["test", stage] => test::run_stages(Some(stage)),
        [program @ ("bench" | "managed" | "paths" | "paper"), ref rest @ ..] => measure::measure(program, rest),
        ["nightly", ref names @ ..] => nightly::run_suites(names),
        ["fuzz", ref rest @ ..] => fuzz::run_targets(rest),
        ["coverage"] => coverage::measure(),
        ["sabotage", ref names @ ..] => sabotage::run_mutations(names),
        ["docs"] => docs::write(),
        ["setup"] => setup::run_command(),
        _ => Err(HELP.to_owned()),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("{message}");
            ExitCode::FAILURE
        }
    }
}
