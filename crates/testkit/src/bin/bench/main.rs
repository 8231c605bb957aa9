//! Whimbrel and the peers side by side on this machine, interleaved in one run: `bench --help`.
//!
//! Times of a shared machine mean little, so what is compared is always one round with the same round of the peer, and
//! a claim is the median of those ratios. What cannot be measured makes the exit status 1, and with `--strict` what misses
//! something that is asked of it.

mod case;
mod checksums;
mod control;
mod encrypted;
mod local;
mod logins;
mod machine;
mod neighbour;
mod options;
mod path;
mod report;
mod room;
mod servers;
mod versus;
mod wan;

use std::process::ExitCode;

use whimbrel_testkit::kept_memory::KeptMemory;
use whimbrel_testkit::measure::{Outcome, run_program};
use whimbrel_testkit::performance;

use case::{Case, Results};
use options::{Options, Section};
use servers::Programs;

/// One section's results, and the cases that could not be measured.
struct Measured {
    section: Section,
    skip: Vec<String>,
    cases: Vec<Results>,
    failures: Vec<String>,
}

fn main() -> ExitCode {
    run_program("bench", options::HELP, Options::parse(std::env::args().skip(1)), compare)
}

/// Measures, prints and writes; false when a case could not be measured, or, where that is asked, missed something.
fn compare(options: &Options) -> Outcome<bool> {
    let programs = Programs::find()?;
    let machine = machine::Machine::read(&programs)?;
    let _memory = KeptMemory::hold();
    println!("{machine}\n");
    let mut measured = Vec::new();
    for section in &options.sections {
        let mut done =
            Measured { section: *section, skip: options.skip.clone(), cases: Vec::new(), failures: Vec::new() };
        let outcome = match section {
            Section::Wan => wan::measure(options, &programs, &mut done),
            Section::Encrypted => encrypted::measure(options, &programs, &mut done),
            Section::Path => path::measure(options, &programs, &mut done),
            Section::Neighbour => neighbour::measure(options, &programs, &mut done),
            _ => local::measure(options, &programs, &mut done),
        };
        if let Err(error) = outcome {
            done.failures.push(format!("{}: {error}", section.name()));
        }
        println!("{}", report::section(&done));
        if options.write {
            // At once, so that what ends the run later costs only its own section.
            write(&machine, &done)?;
        }
        measured.push(done);
    }
    if let Some(file) = &options.json {
        std::fs::write(file, report::json(&machine, &measured)?)?;
    }
    let failures: Vec<&String> = measured.iter().flat_map(|done| &done.failures).collect();
    failures.iter().for_each(|failure| eprintln!("bench: not measured: {failure}"));
    let missed = report::missed(&measured);
    missed.iter().for_each(|missed| eprintln!("bench: missed: {missed}"));
    Ok(failures.is_empty() && (missed.is_empty() || !options.strict))
}

/// Puts a section into the page that people read, unless nothing of it could be measured.
fn write(machine: &machine::Machine, done: &Measured) -> Outcome<()> {
    if done.cases.is_empty() {
        return Ok(());
    }
    Ok(performance::update(done.section.name(), &format!("{}\n{machine}\n", report::section(done)))?)
}

impl Measured {
    /// Measures one case; a failure is kept, and the next case goes on.
    fn add(&mut self, mut case: Case<'_>, rounds: u32) {
        let name = case.name.clone();
        case.leave_out(&self.skip);
        match case.measure(rounds) {
            Ok(results) => self.cases.push(results),
            Err(error) => self.failures.push(format!("{name}: {error}")),
        }
    }
}
