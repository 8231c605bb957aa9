//! The floor program moves every byte and reports what it cost.

use std::fs;

use whimbrel_testkit::dataset::{self, Compare};
use whimbrel_testkit::peers::Tool;

fn floor() -> Tool {
    Tool::new(env!("CARGO_BIN_EXE_floor"))
}

/// The number of that name in a line of flat JSON.
fn number(json: &str, name: &str) -> f64 {
    let value = json.split(&format!("\"{name}\":")).nth(1).and_then(|rest| rest.split([',', '}']).next());
    value.and_then(|value| value.parse().ok()).unwrap_or_else(|| panic!("no {name} in {json}"))
}

#[test]
fn a_file_arrives_whole_over_any_number_of_streams() {
    let directory = tempfile::tempdir().expect("directory");
    let (from, to) = (directory.path().join("from"), directory.path().join("to"));
    dataset::random_file(&from, (5 << 20) + 3, 1).expect("made");
    for streams in ["1", "3"] {
        fs::write(&to, vec![1; 9 << 20]).expect("written");
        let run =
            floor().args(["--streams", streams, "--block", "65536", "--source"]).arg(&from).arg("--sink").arg(&to);
        let line = run.run_ok().stdout_text();
        Compare::contents().assert_same(&from, &to);
        assert_eq!(number(&line, "bytes"), (5 << 20) as f64 + 3.0);
    }
}

#[test]
fn memory_to_memory_reports_time_of_both_processes() {
    let line = floor().args(["--bytes", "268435456", "--streams", "2"]).run_ok().stdout_text();
    let (seconds, cpu) = (number(&line, "seconds"), number(&line, "cpu_seconds"));
    println!("{line}");
    assert!(seconds > 0.0 && cpu > 0.0 && cpu < seconds * 4.0, "{line}");
    assert!(line.contains("\"source\":\"memory\",\"sink\":\"memory\""), "{line}");
}

#[test]
fn a_missing_source_is_an_error() {
    assert!(floor().args(["--source", "/no/such/file"]).run_failing().stderr_text().contains("NotFound"));
    assert!(floor().arg("--unknown").run_failing().stderr_text().contains("--unknown"));
}
