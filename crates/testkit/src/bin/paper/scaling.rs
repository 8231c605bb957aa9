//! One large file in chunks over 1 to 4 pairs of nodes whose storage has the same fixed rate.

use crate::Outcome;
use crate::field::{Copy, Field, Site, Storage};
use crate::options::Options;
use crate::results::Results;

/// Pairs at most.
pub const PAIRS: u32 = 4;
/// Bytes per second that each node stores.
pub const WRITE_RATE: u64 = 30_000_000;
/// Parts of the file for each of four pairs.
const PARTS: u64 = 16;

/// Measures all numbers of pairs in every round; what fails is noted.
pub fn measure(options: &Options, results: &mut Results) -> Outcome<()> {
    let bytes = results.scale.scaling_bytes;
    let mut field = Field::new(bytes * 2)?;
    field.add_files(1, bytes)?;
    let storage = Storage { write: WRITE_RATE, proof: true };
    let start = |name| Site::start(&field.programs, field.lab.host(name), PAIRS.into(), storage);
    let (from, to) = (start("A")?, start("N")?);
    let chunk = (bytes / u64::from(PAIRS) / PARTS).to_string();
    for round in 1..=options.rounds {
        for pairs in 1..=PAIRS {
            let flags = ["--chunk", &chunk, "--checksum", "md5", "--verify", "require"].map(String::from).to_vec();
            let copy = Copy { from: &from, to: &to, nodes: pairs.into(), files: 1, flags };
            match field.copy(&copy, round == 1) {
                Ok(seconds) => {
                    eprintln!("round {round}: {pairs} pairs: {seconds:.2} s");
                    results.pairs.entry(pairs).or_default().push(seconds);
                }
                Err(error) => results.failures.push(format!("{pairs} pairs: {error}")),
            }
        }
    }
    Ok(())
}
