//! The comparison says by its exit status whether it could measure, and how it came out only where `--strict` asks for that.

use std::fs;
use std::path::Path;

use whimbrel_testkit::peers::Tool;

#[test]
fn help_succeeds_and_a_wrong_command_line_is_told_apart_from_a_failure() {
    let bench = || Tool::new(env!("CARGO_BIN_EXE_bench"));
    assert!(bench().arg("--help").run_ok().stdout_text().contains("--only SECTIONS"));
    let wrong = bench().args(["--only", "moon"]).run_failing();
    assert_eq!(wrong.code(), Some(2));
    assert!(wrong.stderr_text().contains("no such section: moon"), "{wrong}");
}

#[test]
fn without_the_program_to_measure_it_fails_and_says_what_is_missing() {
    let bench = Path::new(env!("CARGO_BIN_EXE_bench"));
    let directory = tempfile::tempdir_in(bench.parent().expect("a directory of programs")).expect("directory");
    let alone = directory.path().join("bench");
    // A copy could not be started while what the other test starts has it open, too.
    fs::hard_link(bench, &alone).expect("linked");
    let run = Tool::new(&alone).args(["--quick", "--only", "mem"]).run_failing();
    assert_eq!(run.code(), Some(1));
    assert!(run.stderr_text().contains("build it first"), "{run}");
}
