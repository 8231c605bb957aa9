//! Running programs, each shown before it runs.

use std::path::PathBuf;
use std::process::{Command, Stdio};

/// What every step returns: an error is a message for a person.
pub type Result<T = ()> = std::result::Result<T, String>;

/// The checkout's root: asked of cargo at run time, since two checkouts that share a target folder share this program.
pub fn root() -> PathBuf {
    let built_in = || env!("CARGO_MANIFEST_DIR").into();
    let xtask = std::env::var_os("CARGO_MANIFEST_DIR").map_or_else(built_in, PathBuf::from);
    xtask.parent().expect("xtask lies in the root").to_owned()
}

/// A program that runs in the root.
pub fn program(name: &str, args: &[&str]) -> Command {
    let mut command = Command::new(name);
    command.args(args).current_dir(root());
    command
}

/// Cargo, the same one that runs this program.
///
/// Nothing is kept for incremental builds unless the caller's environment asks for it: a whole run builds each program once, and what
/// would be kept doubles the disk it needs.
pub fn cargo(args: &[&str]) -> Command {
    let mut command = program(&std::env::var("CARGO").unwrap_or_else(|_| "cargo".into()), args);
    if std::env::var_os("CARGO_INCREMENTAL").is_none() {
        command.env("CARGO_INCREMENTAL", "0");
    }
    command
}

/// Shows and runs a program; fails when it does.
pub fn run(command: &mut Command) -> Result {
    println!("$ {}", shown(command));
    let status = command.status().map_err(|error| format!("{}: {error}", shown(command)))?;
    if status.success() { Ok(()) } else { Err(format!("{} failed: {status}", shown(command))) }
}

/// What a program prints; fails when it does.
pub fn output(command: &mut Command) -> Result<String> {
    let output = command.stderr(Stdio::inherit()).output().map_err(|error| format!("{}: {error}", shown(command)))?;
    if !output.status.success() {
        return Err(format!("{} failed: {}", shown(command), output.status));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Whether a program is on the path.
pub fn exists(name: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    // Debian keeps administrators' programs off ordinary users' paths.
    let places = std::env::split_paths(&path).chain(["/usr/sbin".into(), "/sbin".into()]);
    places.into_iter().any(|place: PathBuf| place.join(name).is_file())
}

fn shown(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(|word| word.to_string_lossy().into_owned()).collect::<Vec<_>>().join(" ")
}
