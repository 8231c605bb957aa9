//! Running programs, each shown before it runs.

use std::ffi::OsStr;
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

/// A program that runs in the root, without what cargo has told this one about its own package.
///
/// Build scripts of dependencies look at these variables (`rerun-if-env-changed`), so that cargo would build half the workspace
/// anew whenever it was called from here after it had been called by hand, or the other way round.
pub fn program(name: &str, args: &[&str]) -> Command {
    let mut command = Command::new(name);
    command.args(args).current_dir(root());
    std::env::vars_os().map(|(name, _)| name).filter(|name| is_of_package(name)).for_each(|name| {
        command.env_remove(name);
    });
    command
}

/// Whether a variable is one that cargo sets for a package that it builds or runs.
fn is_of_package(name: &OsStr) -> bool {
    let about = ["CARGO_PKG_", "CARGO_MANIFEST_", "CARGO_BIN_", "CARGO_CRATE_"];
    name.to_str().is_some_and(|name| about.iter().any(|start| name.starts_with(start)))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_not_told_what_cargo_says_of_this_package() {
        assert!(std::env::var_os("CARGO_MANIFEST_DIR").is_some(), "cargo says it to tests");
        let command = cargo(&["build"]);
        let kept: Vec<_> = command.get_envs().filter(|(_, value)| value.is_some()).map(|(name, _)| name).collect();
        assert!(kept.iter().all(|name| *name == "CARGO_INCREMENTAL"), "{kept:?}");
        let taken = |name: &str| command.get_envs().any(|(other, value)| other == name && value.is_none());
        assert!(taken("CARGO_MANIFEST_DIR") && taken("CARGO_PKG_NAME"));
        assert!(!taken("CARGO") && !taken("CARGO_HOME") && !taken("PATH"));
    }
}
