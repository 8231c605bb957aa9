//! Programs of the system that make disks.

use std::path::Path;
use std::process::Command;

use crate::error::{Attempt as _, Error, Result};

/// Runs a program to its end; what it says on standard error is the reason of its failure.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    let said = words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ");
    let output = command.output().attempt(|| said.clone())?;
    match output.status.success() {
        true => Ok(()),
        false => Err(Error::new(said, String::from_utf8_lossy(&output.stderr))),
    }
}

/// Mounts the file system that an image holds.
pub(crate) fn mount_image(image: &Path, at: &Path) -> Result<()> {
    run(Command::new("mount").args(["-o", "loop"]).arg(image).arg(at))
}

/// Lets everybody make files in a directory, and nobody remove others'.
pub(crate) fn open_like_tmp(directory: &Path) -> Result<()> {
    run(Command::new("chmod").arg("1777").arg(directory))
}
