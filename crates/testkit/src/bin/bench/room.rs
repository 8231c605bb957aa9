//! Destinations as each round must find them.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use crate::Outcome;

/// Removes a file, if it is there.
pub fn remove(path: &Path) -> Outcome<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error.into()),
        _ => Ok(()),
    }
}

/// Makes an empty directory that `nobody` may write to.
pub fn empty(path: &Path) -> Outcome<()> {
    if path.exists() {
        fs::remove_dir_all(path)?;
    }
    fs::create_dir(path)?;
    Ok(fs::set_permissions(path, fs::Permissions::from_mode(0o777))?)
}
