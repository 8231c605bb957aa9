//! Generated parts of `docs/reference`: written anew by `docs`, compared by the tests.

use std::fs;

use crate::command::{Result, cargo, output, root};

/// Each generated file and the arguments of the program that prints it.
const GENERATED: &[(&str, &[&str])] = &[
    (
        "docs/reference/faults.md",
        &["run", "--quiet", "--locked", "-p", "whimbrel-engine", "--example", "fault_catalogue"],
    ),
    ("docs/reference/openapi.json", &["run", "--quiet", "--locked", "-p", "whimbrel-service", "--example", "openapi"]),
];

/// Writes every generated file.
pub fn write() -> Result {
    for (file, args) in GENERATED {
        let text = output(&mut cargo(args))?;
        fs::write(root().join(file), text).map_err(|error| format!("{file}: {error}"))?;
        println!("wrote {file}");
    }
    Ok(())
}

/// Fails when a generated file is not what its program prints.
pub fn check() -> Result {
    for (file, args) in GENERATED {
        let text = output(&mut cargo(args))?;
        if fs::read_to_string(root().join(file)).ok().as_deref() != Some(text.as_str()) {
            return Err(format!("{file} is out of date: cargo xtask docs"));
        }
    }
    Ok(())
}
