//! What the managed service costs: `managed --help`.
//!
//! A service and two data transfer nodes on this host, files on tmpfs, and a client that submits tasks over HTTPS as any other
//! would. Times are from the first byte of the submission; gates are those of the page.

mod field;
mod options;
mod page;
mod stock;
mod tasks;

use std::process::ExitCode;

use whimbrel_testkit::measure::{Machine, Outcome, run_program};
use whimbrel_testkit::performance;

use field::Field;
use options::Options;

fn main() -> ExitCode {
    run_program("managed", options::HELP, Options::parse(std::env::args().skip(1)), measure)
}

/// Measures, prints and writes; false when a gate does not hold.
fn measure(options: &Options) -> Outcome<bool> {
    let mut figures = tasks::Figures::default();
    if ["first", "start", "many"].iter().any(|part| options.wants(part)) {
        measure_own(options, &mut figures)?;
    }
    if options.wants("stock") {
        figures.stock = Some(stock::one_file(options.rounds.div_ceil(3))?);
    }
    let text = page::text(&Machine::read()?, &figures);
    println!("{text}");
    if options.write {
        performance::update("managed", &text)?;
    }
    let broken = figures.broken();
    broken.iter().for_each(|gate| eprintln!("managed: does not hold: {gate}"));
    Ok(broken.is_empty())
}

/// What is measured with servers of our own.
fn measure_own(options: &Options, figures: &mut tasks::Figures) -> Outcome<()> {
    let mut field = Field::start()?;
    if options.wants("first") {
        figures.first = Some(tasks::first_bytes(&mut field, options.rounds)?);
    }
    if options.wants("start") {
        figures.start = Some(tasks::start_up(&mut field, options.rounds)?);
    }
    if options.wants("many") {
        figures.many = Some(tasks::many_files(&mut field, options.files)?);
    }
    Ok(())
}
