//! The paper's Figures 6 to 10 in the laboratory, each of its claims as an inequality that is checked: `paper --help`.
//!
//! The paper is *Globus Service Enhancements for Exascale Applications and Facilities*. Three facilities of eight data
//! transfer nodes each, whose storage has a fixed rate, stand for its three; everything is scaled as `scale.rs` says.
//! The exit status is 1 when a claim does not hold or something could not be measured.

mod claims;
mod field;
mod figures;
mod options;
mod page;
mod results;
mod saved;
mod scale;
mod scaling;
mod setting;
mod sweep;

use std::path::PathBuf;
use std::process::ExitCode;

use whimbrel_testkit::measure::{Machine, Outcome, run_program};

use options::Options;
use results::Results;
use scale::Scale;

fn main() -> ExitCode {
    run_program("paper", options::HELP, Options::parse(std::env::args().skip(1)), reproduce)
}

/// Measures, judges, prints and writes; false when a claim does not hold or something could not be measured.
fn reproduce(options: &Options) -> Outcome<bool> {
    let (machine, results) = match &options.from {
        Some(file) => {
            let (machine, mut results) = saved::read(file)?;
            if options.again {
                sweep::measure(options, &mut results)?;
            }
            (machine, results)
        }
        None => measure(options)?,
    };
    let claims = claims::judge(&results);
    let page = page::text(&machine, &results, &claims);
    println!("{page}");
    if options.write {
        if results.scale != Scale::FULL {
            return Err("a quick run is never written down".into());
        }
        page::write(&docs(), &page, &figures::all(&results))?;
    }
    if let Some(file) = &options.json {
        saved::write(file, &machine, &results, &claims)?;
    }
    results.failures.iter().for_each(|failure| eprintln!("paper: not measured: {failure}"));
    let broken = claims.iter().filter(|claim| !claim.holds());
    broken.clone().for_each(|claim| eprintln!("paper: does not hold: {claim}"));
    // Small sizes show that everything can be measured; they judge nothing.
    Ok(results.failures.is_empty() && (results.scale != Scale::FULL || broken.count() == 0))
}

/// Measures everything.
fn measure(options: &Options) -> Outcome<(Machine, Results)> {
    let machine = Machine::read()?;
    eprintln!("{machine}");
    let mut results = Results::new(options.scale());
    sweep::measure(options, &mut results)?;
    scaling::measure(options, &mut results)?;
    Ok((machine, results))
}

/// Where the pages lie, in the source tree that this program was built from.
fn docs() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference"))
}
