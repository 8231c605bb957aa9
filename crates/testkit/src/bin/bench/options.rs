//! The command line.

use std::path::PathBuf;

use crate::Outcome;

/// What `--help` prints.
pub const HELP: &str = "\
usage: bench [--quick] [--only SECTIONS] [--skip TEXT] [--rounds N] [--json FILE] [--write] [--strict]
  --quick          small sizes and 2 rounds: shows that everything can be measured, proves no claim
  --only SECTIONS  some of mem,file,small,encrypted,wan,path,neighbour [default: all]
  --skip TEXT      leave out the contenders whose name contains it; may be given several times
  --rounds N       measured rounds of each case, after one to warm up [default: 5]
  --json FILE      also write every sample as JSON
  --write          replace the measured sections of docs/reference/performance.md; needs full sizes and 5 rounds
  --strict         end with 1 when something that is asked is missed";

/// Fewest pairs that a claim may rest on.
pub const CLAIM_ROUNDS: u32 = 5;

/// A part of the comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Section {
    /// Loopback, memory to memory.
    Mem,
    /// Loopback, file to file in memory.
    File,
    /// Lots of small files.
    Small,
    /// Loopback, protected.
    Encrypted,
    /// The emulated wide area, memory to memory, and its round trips.
    Wan,
    /// The emulated wide area, proven files.
    Path,
    /// What is left to a stranger on the same path.
    Neighbour,
}

impl Section {
    /// All of them, in the order of the page.
    pub const ALL: [Section; 7] = [
        Section::Mem,
        Section::File,
        Section::Small,
        Section::Encrypted,
        Section::Wan,
        Section::Path,
        Section::Neighbour,
    ];

    /// Its name on the command line and in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Section::Mem => "mem",
            Section::File => "file",
            Section::Small => "small",
            Section::Encrypted => "encrypted",
            Section::Wan => "wan",
            Section::Path => "path",
            Section::Neighbour => "neighbour",
        }
    }
}

/// What is asked for.
#[derive(Debug)]
pub struct Options {
    pub quick: bool,
    pub sections: Vec<Section>,
    /// Parts of the names of contenders that do not take part.
    pub skip: Vec<String>,
    pub rounds: u32,
    pub json: Option<PathBuf>,
    pub write: bool,
    /// Whether a miss is a failure.
    pub strict: bool,
}

impl Options {
    /// Understands the arguments; `None` when help is asked for.
    pub fn parse(mut arguments: impl Iterator<Item = String>) -> Outcome<Option<Options>> {
        let (mut quick, mut write, mut strict, mut json, mut rounds) = (false, false, false, None, None);
        let (mut sections, mut skip) = (Section::ALL.to_vec(), Vec::new());
        while let Some(flag) = arguments.next() {
            let mut value = || arguments.next().ok_or_else(|| format!("{flag} needs a value"));
            match flag.as_str() {
                "--help" | "-h" => return Ok(None),
                "--quick" => quick = true,
                "--write" => write = true,
                "--strict" => strict = true,
                "--json" => json = Some(value()?.into()),
                "--rounds" => rounds = Some(value()?.parse::<u32>()?.max(1)),
                "--skip" => skip.push(value()?),
                "--only" => sections = chosen(&value()?)?,
                _ => return Err(format!("unknown argument {flag}").into()),
            }
        }
        let rounds = rounds.unwrap_or(if quick { 2 } else { CLAIM_ROUNDS });
        if write && (quick || rounds < CLAIM_ROUNDS || !skip.is_empty()) {
            let needs = format!("--write needs full sizes, all contenders and at least {CLAIM_ROUNDS} rounds");
            return Err(needs.into());
        }
        Ok(Some(Options { quick, sections, skip, rounds, json, write, strict }))
    }

    /// The full size, or the small one of a quick run.
    pub fn size<T>(&self, full: T, quick: T) -> T {
        if self.quick { quick } else { full }
    }
}

fn chosen(names: &str) -> Outcome<Vec<Section>> {
    let find = |name: &str| {
        let found = Section::ALL.into_iter().find(|section| section.name() == name);
        found.ok_or_else(|| format!("no such section: {name}").into())
    };
    names.split(',').map(find).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Outcome<Option<Options>> {
        Options::parse(line.split_whitespace().map(String::from))
    }

    #[test]
    fn the_default_is_everything_with_enough_rounds_for_a_claim() {
        let options = parse("").expect("understood").expect("no help");
        assert_eq!((options.sections, options.rounds), (Section::ALL.to_vec(), CLAIM_ROUNDS));
    }

    #[test]
    fn a_run_too_small_for_claims_is_never_written_down() {
        for line in ["--quick --write", "--rounds 4 --write", "--quick --rounds 9 --write", "--skip iperf3 --write"] {
            assert!(parse(line).is_err(), "{line}");
        }
        assert!(parse("--rounds 7 --write").is_ok());
    }

    #[test]
    fn sections_are_chosen_by_name() {
        let options = parse("--only wan,mem --quick").expect("understood").expect("no help");
        assert_eq!(options.sections, [Section::Wan, Section::Mem]);
        assert!(parse("--only moon").is_err());
        assert!(parse("--help").expect("understood").is_none());
    }
}
