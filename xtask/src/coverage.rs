//! How much of each parser the kept fuzz inputs reach: they are replayed by a program that counts lines.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use crate::command::{Result, cargo, output, program, root, run};

/// The least share of a parser's lines that the kept inputs reach, in percent.
const LEAST: f64 = 90.0;

/// What is built for counting lies apart: nothing of it can be used otherwise.
const TARGET: &str = "target/coverage";

/// Where parsers are: folders and files. What text or bytes of strangers turn into, and the machines that they drive.
const PARSERS: &[&str] = &[
    "crates/proto/src",
    "crates/engine/src/journal.rs",
    "crates/engine/src/journal/reading.rs",
    "crates/engine/src/records.rs",
    "crates/engine/src/tally.rs",
    "crates/connector/src/posix/token.rs",
    "crates/dtn/src/client/endpoints.rs",
    "crates/dtn/src/client/expect.rs",
    "crates/dtn/src/client/lines.rs",
    "crates/dtn/src/client/netrc.rs",
    "crates/dtn/src/door/range.rs",
    "crates/dtn/src/door/spot.rs",
    "crates/dtn/src/front/config",
    "crates/dtn/src/front/import",
    "crates/dtn/src/front/users",
    "crates/dtn/src/mover/codec.rs",
    "crates/sys/src/md5lanes",
    "crates/trust/src/gsi/acceptor.rs",
    "crates/trust/src/gsi/crl.rs",
    "crates/trust/src/gsi/delegate.rs",
    "crates/trust/src/gsi/deposit.rs",
    "crates/trust/src/gsi/initiator.rs",
    "crates/trust/src/pins/text.rs",
    "crates/trust/src/tls/records.rs",
];

/// Files in those places that read nothing of a stranger's, and why they need no inputs.
const OTHERS: &[(&str, &str)] = &[
    ("crates/proto/src/server/help.rs", "it prints"),
    ("crates/proto/src/op/transfer.rs", "it makes messages of what was parsed"),
    ("crates/dtn/src/front/import/options.rs", "it is a table, read when this is compiled"),
];

const PAGE: &str = "\
# What the kept fuzz inputs reach

Written by `cargo xtask coverage`, which replays all kept inputs (see [fuzzing](fuzzing.md)) in a program that counts lines, and
fails when one of these files is below 90 %.

| file | lines | reached, % |
| --- | --: | --: |
";

/// The lines of one file: how often each was run.
type Lines = BTreeMap<u32, u64>;

/// Replays the corpora, prints and writes what they reach, and fails when that is too little of a parser.
pub fn measure() -> Result {
    let (profdata, cov) = (tool("llvm-profdata")?, tool("llvm-cov")?);
    let replay = build()?;
    let (raw, merged) = (root().join(TARGET).join("replay.profraw"), root().join(TARGET).join("replay.profdata"));
    // Inputs are found from the crate's folder, as under `cargo test`.
    run(program(&replay, &["--quiet"]).current_dir(root().join("crates/testkit")).env("LLVM_PROFILE_FILE", &raw))?;
    run(program(&profdata, &["merge", "-sparse", "-o"]).arg(&merged).arg(&raw))?;
    let profile = format!("-instr-profile={}", merged.display());
    let counted = read_lcov(&output(&mut program(&cov, &["export", "-format=lcov", &profile, &replay]))?);
    report(&counted)
}

/// A tool of the compiler's own version of LLVM, since others cannot read what it counts: the toolchain's, else the system's.
fn tool(name: &str) -> Result<String> {
    let rustc = std::env::var("RUSTC").unwrap_or_else(|_| "rustc".into());
    let sysroot = output(&mut program(&rustc, &["--print", "target-libdir"]))?;
    let path = PathBuf::from(sysroot.trim()).with_file_name("bin").join(name);
    if path.exists() {
        return Ok(path.display().to_string());
    }
    let major = llvm_major(&output(&mut program(&rustc, &["-vV"]))?);
    let packaged = major.map(|major| format!("{name}-{major}"));
    match packaged.filter(|tool| output(&mut program(tool, &["--version"])).is_ok()) {
        Some(tool) => Ok(tool),
        None => {
            let version = major.map(|major| major.to_string()).unwrap_or_default();
            Err(format!(
                "{} is missing: rustup component add llvm-tools, or apt-get install llvm-{version}",
                path.display()
            ))
        }
    }
}

/// The LLVM of a compiler, from what it says with `-vV`; formats of counts change with it.
fn llvm_major(told: &str) -> Option<u32> {
    told.lines().find_map(|line| line.strip_prefix("LLVM version: "))?.split('.').next()?.parse().ok()
}

/// Builds the replaying test with counters; returns its program.
fn build() -> Result<String> {
    let words =
        ["test", "-p", "whimbrel-testkit", "--locked", "--test", "corpus_replay", "--no-run", "--message-format=json"];
    let mut command = cargo(&words);
    command.env("CARGO_TARGET_DIR", root().join(TARGET)).env("RUSTFLAGS", "-Cinstrument-coverage");
    // Build scripts and macros are counted too: their counts must not land in the tree.
    let printed = output(command.env("LLVM_PROFILE_FILE", root().join(TARGET).join("build-%p.profraw")))?;
    let program = printed.lines().filter_map(executable).find(|path| path.contains("corpus_replay"));
    program.map(str::to_owned).ok_or_else(|| "cargo named no program of corpus_replay".into())
}

/// The program that a message of cargo's tells (`"executable":"PATH"`).
fn executable(message: &str) -> Option<&str> {
    message.split_once("\"executable\":\"")?.1.split('"').next()
}

/// The counts of each source file, by its path in the checkout (the `SF` and `DA` records of geninfo(1)).
fn read_lcov(text: &str) -> BTreeMap<String, Lines> {
    let prefix = format!("{}/", root().display());
    let (mut files, mut file) = (BTreeMap::<String, Lines>::new(), String::new());
    for line in text.lines() {
        if let Some(path) = line.strip_prefix("SF:") {
            file = path.strip_prefix(&prefix).unwrap_or(path).to_owned();
        } else if let Some((number, count)) = line.strip_prefix("DA:").and_then(|rest| rest.split_once(','))
            && let (Ok(number), Ok(count)) = (number.parse(), count.parse::<u64>())
        {
            *files.entry(file.clone()).or_default().entry(number).or_default() += count;
        }
    }
    files
}

fn is_parser(path: &str) -> bool {
    PARSERS.iter().any(|place| path.strip_prefix(place).is_some_and(|rest| rest.is_empty() || rest.starts_with('/')))
        && !OTHERS.iter().any(|(other, _)| *other == path)
}

fn report(counted: &BTreeMap<String, Lines>) -> Result {
    let (mut page, mut low) = (PAGE.to_owned(), Vec::new());
    for (path, lines) in counted.iter().filter(|(path, _)| is_parser(path)) {
        let share = share(lines);
        page += &format!("| {path} | {} | {share:.1} |\n", lines.len());
        if share < LEAST {
            low.push(format!("{path}: {share:.1} %, not lines {}", missing(lines)));
        }
    }
    for (path, why) in OTHERS {
        page += &format!("\n`{path}` is left out: {why}.\n");
    }
    let file = root().join("docs/reference/parser-coverage.md");
    fs::write(&file, &page).map_err(|error| format!("{}: {error}", file.display()))?;
    print!("{page}");
    if low.is_empty() { Ok(()) } else { Err(format!("Below {LEAST} %:\n{}", low.join("\n"))) }
}

/// Percent of the lines that were run.
fn share(lines: &Lines) -> f64 {
    let run = lines.values().filter(|count| **count > 0).count();
    100.0 * run as f64 / lines.len().max(1) as f64
}

/// The lines that were not run, as ranges: `3-5 9`.
fn missing(lines: &Lines) -> String {
    let mut ranges: Vec<(u32, u32)> = Vec::new();
    for number in lines.iter().filter(|(_, count)| **count == 0).map(|(number, _)| *number) {
        match ranges.last_mut() {
            Some((_, last)) if *last + 1 == number => *last = number,
            _ => ranges.push((number, number)),
        }
    }
    let shown =
        ranges.iter().map(|(first, last)| if first == last { first.to_string() } else { format!("{first}-{last}") });
    shown.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_of_a_file_are_read_and_its_gaps_are_told() {
        let text = format!(
            "SF:{}/crates/proto/src/a.rs\nDA:1,0\nDA:2,0\nDA:3,7\nDA:5,0\nend_of_record\nSF:/x.rs\nDA:1,1\n",
            root().display()
        );
        let files = read_lcov(&text);
        let lines = &files["crates/proto/src/a.rs"];
        assert_eq!((share(lines), missing(lines).as_str()), (25.0, "1-2 5"));
        assert_eq!(share(&files["/x.rs"]), 100.0);
    }

    #[test]
    fn parsers_lie_in_the_places_named() {
        assert!(is_parser("crates/proto/src/a.rs"));
        assert!(!is_parser("crates/proto/src2/a.rs") && !is_parser("/registry/src/x.rs"));
        let gone = PARSERS
            .iter()
            .copied()
            .chain(OTHERS.iter().map(|(path, _)| *path))
            .find(|path| !root().join(path).exists());
        assert_eq!(gone, None);
    }

    #[test]
    fn the_version_of_llvm_is_the_compilers() {
        assert_eq!(llvm_major("rustc 1.95.0\nhost: x\nLLVM version: 22.1.2\n"), Some(22));
        assert_eq!(llvm_major("rustc 1.95.0\n"), None);
    }

    #[test]
    fn the_program_is_found_in_cargo_s_messages() {
        assert_eq!(executable(r#"{"reason":"x","executable":"/t/a-1","fresh":true}"#), Some("/t/a-1"));
        assert_eq!(executable(r#"{"executable":null}"#), None);
    }
}
