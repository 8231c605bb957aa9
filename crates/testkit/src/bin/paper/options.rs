//! The command line.

use std::path::PathBuf;

use crate::Outcome;
use crate::scale::Scale;

/// What `--help` prints.
pub const HELP: &str = "\
usage: paper [--quick] [--rounds N] [--json FILE] [--from FILE [--again]] [--write]
  --quick      a quarter of the bytes, one round, two routes: shows that everything can be measured, judges nothing
  --rounds N   measured copies of each setting [default: 3]
  --json FILE  also write every time as JSON
  --from FILE  measure nothing: judge again what an earlier run wrote with --json
  --again      but measure more copies of settings whose copies differ
  --write      write docs/reference/paper-results.md and its figures; needs full sizes and 3 rounds";

/// Fewest copies that a claim may rest on; the paper has 3 or 4.
pub const CLAIM_ROUNDS: u32 = 3;

/// What is asked for.
#[derive(Debug)]
pub struct Options {
    pub quick: bool,
    pub rounds: u32,
    pub json: Option<PathBuf>,
    pub from: Option<PathBuf>,
    pub again: bool,
    pub write: bool,
}

impl Options {
    /// Understands the arguments; `None` when help is asked for.
    pub fn parse(mut arguments: impl Iterator<Item = String>) -> Outcome<Option<Options>> {
        let (mut quick, mut write, mut again, mut json, mut from, mut rounds) = (false, false, false, None, None, None);
        while let Some(flag) = arguments.next() {
            let mut value = || arguments.next().ok_or_else(|| format!("{flag} needs a value"));
            match flag.as_str() {
                "--help" | "-h" => return Ok(None),
                "--quick" => quick = true,
                "--again" => again = true,
                "--write" => write = true,
                "--json" => json = Some(value()?.into()),
                "--from" => from = Some(value()?.into()),
                "--rounds" => rounds = Some(value()?.parse::<u32>()?.max(1)),
                _ => return Err(format!("unknown argument {flag}").into()),
            }
        }
        let rounds = rounds.unwrap_or(if quick { 1 } else { CLAIM_ROUNDS });
        if write && (quick || rounds < CLAIM_ROUNDS) {
            return Err(format!("--write needs full sizes and at least {CLAIM_ROUNDS} rounds").into());
        }
        Ok(Some(Options { quick, rounds, json, from, again, write }))
    }

    /// How much smaller than the paper everything is.
    pub fn scale(&self) -> Scale {
        if self.quick { Scale::QUICK } else { Scale::FULL }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Outcome<Option<Options>> {
        Options::parse(line.split_whitespace().map(String::from))
    }

    #[test]
    fn the_default_is_enough_for_claims_and_a_quick_run_is_never_written_down() {
        assert_eq!(parse("").expect("understood").expect("no help").rounds, CLAIM_ROUNDS);
        for line in ["--quick --write", "--rounds 2 --write", "--quick --rounds 9 --write", "--moon", "--json"] {
            assert!(parse(line).is_err(), "{line}");
        }
        assert!(parse("--rounds 4 --write").is_ok());
        assert!(parse("--help").expect("understood").is_none());
    }
}
