//! `cargo xtask test`: what CI runs, in the order in which it fails fastest.

use std::time::Instant;

use crate::command::{Result, cargo, run};
use crate::{demo, hygiene, setup};

type Stage = (&'static str, fn() -> Result);

const STAGES: &[Stage] =
    &[("setup", setup::run_all), ("hygiene", hygiene::run_checks), ("unit", unit), ("demo", || demo::run_demo(false))];

/// Runs every stage, or one.
pub fn run_stages(only: Option<&str>) -> Result {
    let chosen: Vec<&Stage> = STAGES.iter().filter(|(name, _)| only.is_none_or(|only| only == *name)).collect();
    if chosen.is_empty() {
        return Err(format!("no such stage: {}", only.unwrap_or_default()));
    }
    let mut times = Vec::new();
    for (name, stage) in chosen {
        println!("== {name}");
        let start = Instant::now();
        stage()?;
        times.push(format!("{name} {} s", start.elapsed().as_secs()));
    }
    println!("== done: {}", times.join(", "));
    Ok(())
}

fn unit() -> Result {
    // Missing peers fail the run here instead of being skipped.
    run(cargo(&["test", "--workspace", "--locked"]).env("WHIMBREL_REQUIRE_PEERS", "1"))
}
