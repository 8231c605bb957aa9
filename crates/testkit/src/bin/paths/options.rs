//! The command line.

use std::path::PathBuf;

use crate::Outcome;

/// What `--help` prints.
pub const HELP: &str = "\
usage: paths [--seed N] [--count N] [--only K[,K...]] [--rounds N] [--seconds N] [--json FILE] [--write] [--list]
             [--continue] [--alone] [--against FLAGS]... [--most-mbit N]
  --seed N      what the paths are drawn from [default: the time]
  --count N     number of paths [default: 20]
  --only K,...  these paths alone, counted from 0, as if all had been run
  --rounds N    measured rounds of the last comparison [default: 3]
  --seconds N   data of each path: what it moves in so many seconds [default: 8]
  --json FILE   also write every sample as JSON, after each path
  --continue    what FILE has already is not measured again, if it is of the same program; for runs in several sittings
  --write       write docs/reference/paths.md and paths.json; needs 2 rounds at least, and 20 paths for a claim
  --list        only print the draws
  --alone       only run without options, one round, and print what is explained: for finding out why
  --against FLAGS  no sweep: without options and with these options of `cp` in turn, for trying an idea; may be given again
  --most-mbit N  rate of the fastest path [default: 400 for each processor of this machine]";

/// Most of any path for each processor of the machine, which stands for all hosts and links: with more, its processors
/// would be the bottleneck.
const MOST_FOR_PROCESSOR_MBIT: f64 = 400.0;
/// Paths and rounds that a claim may rest on.
const CLAIM: (u32, u32) = (20, 3);
/// Fewest rounds that are worth writing down.
const LEAST_ROUNDS: u32 = 2;

/// What is asked for.
#[derive(Debug)]
pub struct Options {
    pub seed: u64,
    pub paths: Vec<u32>,
    pub rounds: u32,
    pub seconds: f64,
    pub json: Option<PathBuf>,
    /// Goes on with what `json` has.
    pub go_on: bool,
    pub write: bool,
    pub list: bool,
    pub alone: bool,
    /// Options of `cp` that are compared with none.
    pub against: Vec<String>,
    /// Megabits per second.
    pub most: f64,
}

impl Options {
    /// Understands the arguments; `None` when help is asked for. `now` is the seed where none is given.
    pub fn parse(mut arguments: impl Iterator<Item = String>, now: u64) -> Outcome<Option<Options>> {
        let most = MOST_FOR_PROCESSOR_MBIT * std::thread::available_parallelism()?.get() as f64;
        let (mut count, mut only) = (CLAIM.0, None);
        let mut options = Options {
            seed: now,
            paths: vec![],
            rounds: CLAIM.1,
            seconds: 8.0,
            json: None,
            go_on: false,
            write: false,
            list: false,
            alone: false,
            against: vec![],
            most,
        };
        while let Some(flag) = arguments.next() {
            let mut value = || arguments.next().ok_or_else(|| format!("{flag} needs a value"));
            match flag.as_str() {
                "--help" | "-h" => return Ok(None),
                "--seed" => options.seed = value()?.parse()?,
                "--count" => count = value()?.parse::<u32>()?.max(1),
                "--only" => only = Some(value()?.split(',').map(str::parse).collect::<Result<Vec<u32>, _>>()?),
                "--rounds" => options.rounds = value()?.parse::<u32>()?.max(1),
                "--seconds" => options.seconds = value()?.parse::<f64>()?.max(0.5),
                "--json" => options.json = Some(value()?.into()),
                "--continue" => options.go_on = true,
                "--write" => options.write = true,
                "--list" => options.list = true,
                "--most-mbit" => options.most = value()?.parse::<f64>()?.max(50.0),
                "--against" => options.against.push(value()?),
                "--alone" => options.alone = true,
                _ => return Err(format!("unknown argument {flag}").into()),
            }
        }
        if options.write && options.rounds < LEAST_ROUNDS {
            return Err(format!("--write needs {LEAST_ROUNDS} rounds at least").into());
        }
        if options.go_on && options.json.is_none() {
            return Err("--continue needs --json FILE, which has what was measured".into());
        }
        options.paths = only.unwrap_or_else(|| (0..count).collect());
        Ok(Some(options))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Outcome<Option<Options>> {
        Options::parse(line.split_whitespace().map(String::from), 77)
    }

    #[test]
    fn the_default_is_twenty_paths_of_a_new_seed() {
        let options = parse("").expect("understood").expect("no help");
        assert_eq!((options.seed, options.paths.len(), options.rounds), (77, 20, 3));
    }

    #[test]
    fn some_paths_are_run_alone_and_single_rounds_never_written_down() {
        let options = parse("--seed 5 --only 3,17").expect("understood").expect("no help");
        assert_eq!((options.seed, options.paths), (5, vec![3, 17]));
        for line in ["--rounds 1 --write", "--moon", "--seed 5 --continue"] {
            assert!(parse(line).is_err(), "{line}");
        }
        assert!(parse("--count 20 --write").is_ok());
        assert!(parse("--help").expect("understood").is_none());
    }
}
