//! The program that measures hashing.

use std::process::Command;

#[test]
fn every_algorithm_and_kernel_gets_a_figure() {
    let output = Command::new(env!("CARGO_BIN_EXE_hashes")).args(["--megabytes", "1"]).output().expect("it starts");
    assert!(output.status.success());
    let text = String::from_utf8(output.stdout).expect("text");
    for name in ["read", "MD5", "ADLER32", "CRC32C", "SHA256", "BLAKE3", "XXH3-128", "MD5 portable"] {
        let line =
            text.lines().find(|line| line.starts_with(&format!("{name} "))).unwrap_or_else(|| panic!("{name}: {text}"));
        let rate: f64 = line.split_whitespace().last().and_then(|word| word.parse().ok()).expect("a figure");
        assert!(rate > 0.0, "{line}");
    }
}
