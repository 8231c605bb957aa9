//! Checks of the source itself: format, lints, purity, sizes, words.

use std::path::{Path, PathBuf};
use std::{env, fs};

use crate::command::{Result, cargo, output, root, run};
use crate::docs;

/// Longest source file, lines (tests in sibling files do not count apart).
const LONGEST_FILE: usize = 800;

/// Crates that must stay free of input, output, clocks and runtimes.
const PURE: &[&str] = &["whimbrel-proto", "whimbrel-engine"];

/// What a pure crate may depend on, directly or not.
const PURE_MAY_USE: &[&str] = &[
    "base64",
    "base64ct",
    "bytes",
    "serde",
    "serde_bytes",
    "serde_core",
    "serde_derive",
    "thiserror",
    "thiserror-impl",
    "proc-macro2",
    "quote",
    "syn",
    "unicode-ident",
    // Events are printed as JSON lines.
    "serde_json",
    "itoa",
    "memchr",
    "zmij",
    "ryu",
    // Identities of tasks and collections; random ones are made elsewhere.
    "uuid",
    "xxhash-rust",
    // Tables of Unicode.
    "unicode-normalization",
    "tinyvec",
    "tinyvec_macros",
];

/// Names whose use makes a crate impure.
const IMPURE_WORDS: &[&str] = &[
    "std::net::Tcp",
    "std::net::Udp",
    "std::net::ToSocketAddrs",
    "std::fs",
    "std::process",
    "std::thread",
    "Instant::now",
    "SystemTime::now",
    "tokio::",
    "async fn",
    "unsafe ",
];

/// Says what is missing to look at dependencies.
pub const NO_CARGO_DENY: &str = "cargo deny is not installed (cargo install cargo-deny --locked)";

/// Every check.
pub fn run_checks() -> Result {
    lints()?;
    purity()?;
    sizes()?;
    docs::check()?;
    match dependencies(&["bans", "licenses", "sources"]) {
        Err(missing) if missing == NO_CARGO_DENY => println!("skipped: {missing}"),
        result => result?,
    }
    Ok(())
}

fn lints() -> Result {
    for (component, args) in [
        ("fmt", &["fmt", "--all", "--check"][..]),
        ("clippy", &["clippy", "--workspace", "--all-targets", "--locked", "--", "-D", "warnings"][..]),
    ] {
        if output(&mut cargo(&[component, "--version"])).is_ok() {
            run(&mut cargo(args))?;
        } else if env::var_os("CI").is_some() {
            return Err(format!("cargo {component} is not installed: rustup component add rustfmt clippy"));
        } else {
            println!("skipped: cargo {component} is not installed (rustup component add rustfmt clippy)");
        }
    }
    Ok(())
}

/// `proto` and `engine` depend on nothing impure, do not know each other, and use nothing impure.
fn purity() -> Result {
    for package in PURE {
        let tree = output(&mut cargo(&[
            "tree", "--locked", "-p", package, "-e", "normal", "--prefix", "none", "-f", "{lib}",
        ]))?;
        // A star marks a library that the tree has shown before.
        for name in tree
            .lines()
            .map(|line| line.trim().trim_end_matches(" (*)").replace('_', "-"))
            .filter(|name| !name.is_empty())
        {
            let known = name == *package || PURE_MAY_USE.iter().any(|allowed| allowed.replace('_', "-") == name);
            if !known {
                return Err(format!("{package} must stay pure but depends on {name}"));
            }
        }
        let folder = root().join("crates").join(package.trim_start_matches("whimbrel-")).join("src");
        for file in rust_files(&folder) {
            pure_file(&file)?;
        }
    }
    Ok(())
}

fn pure_file(file: &Path) -> Result {
    let text = read(file)?;
    let stem = file.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
    let tests_only = stem.ends_with("simulation")
        || stem.ends_with("tests")
        || file.components().any(|part| part.as_os_str() == "tests");
    if tests_only {
        return Ok(());
    }
    for (number, line) in served_lines(&text).filter(|(_, line)| !line.trim_start().starts_with("//")) {
        if let Some(word) = IMPURE_WORDS.iter().find(|word| line.contains(*word)).copied().or_else(|| grouped(line)) {
            return Err(format!("{}:{}: `{word}` in a pure crate", file.display(), number + 1));
        }
    }
    Ok(())
}

/// An impure module among several that one line names.
fn grouped(line: &str) -> Option<&str> {
    let names = line.strip_prefix("use std::{")?;
    names.split(|c: char| !c.is_alphanumeric()).find(|name| ["fs", "process", "thread"].contains(name))
}

/// The lines that are not in a module of tests, which may do what it likes: its closing brace stands where the line of its attribute begins.
fn served_lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let (mut attribute, mut inside) = (false, false);
    text.lines().enumerate().filter(move |(_, line)| {
        let opens = std::mem::replace(&mut attribute, *line == "#[cfg(test)]") && line.ends_with('{');
        inside |= opens;
        let is_served = !inside;
        inside &= *line != "}";
        is_served
    })
}

fn sizes() -> Result {
    let mut long = Vec::new();
    for folder in ["crates", "xtask", "fuzz"] {
        for file in rust_files(&root().join(folder)) {
            let lines = read(&file)?.lines().count();
            if lines > LONGEST_FILE {
                long.push(format!("{} has {lines} lines (at most {LONGEST_FILE})", file.display()));
            }
        }
    }
    if long.is_empty() { Ok(()) } else { Err(long.join("\n")) }
}

/// Has `cargo deny` look at all dependencies; [`NO_CARGO_DENY`] where it is not installed: what it notices changes only with
/// Cargo.lock.
pub fn dependencies(checks: &[&str]) -> Result {
    if output(&mut cargo(&["deny", "--version"])).is_err() {
        return Err(NO_CARGO_DENY.into());
    }
    run(cargo(&["deny", "--locked", "check"]).args(checks))
}

fn rust_files(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    let Ok(entries) = fs::read_dir(folder) else { return files };
    for path in entries.flatten().map(|entry| entry.path()) {
        if path.is_dir() && path.file_name().is_some_and(|name| name != "target") {
            files.extend(rust_files(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    files
}

fn read(file: &Path) -> Result<String> {
    fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_modules_of_tests_may_do_what_they_like() {
        let text =
            "#[cfg(test)]\nmod tests;\nfn a() {\n}\n#[cfg(test)]\nmod tests {\n    fn b() {\n    }\n}\nfn c() {}\n";
        let lines: Vec<&str> = served_lines(text).map(|(_, line)| line).collect();
        assert_eq!(lines, ["#[cfg(test)]", "mod tests;", "fn a() {", "}", "#[cfg(test)]", "fn c() {}"]);
        assert_eq!(grouped("use std::{fmt, fs, str};"), Some("fs"));
        assert_eq!(grouped("use std::{fmt, offs};"), None);
    }
}
