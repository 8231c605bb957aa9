//! Paths as users of a collection write them.

use crate::fault::{Fault, FaultCode};

/// Why a path cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InvalidPath {
    /// It leaves the collection.
    #[error("it leads out of the collection")]
    Outside,
    /// It holds a NUL, a carriage return or a line feed.
    #[error("it holds a character that no server takes")]
    Character,
    /// It is longer than any file system allows, 4,095 bytes.
    #[error("it is longer than 4095 bytes")]
    TooLong,
}

impl From<InvalidPath> for Fault {
    fn from(error: InvalidPath) -> Self {
        Fault::new(FaultCode::InvalidPath, "read path").detail(error.to_string())
    }
}

/// Longest path, bytes (PATH_MAX without its NUL).
const LONGEST: usize = 4095;

/// The absolute path within a collection that a user means: `~`, `/~/` and relative paths start at `default`, which is
/// absolute itself. Single dots, doubled slashes and steps back are resolved by their text; a slash at the end stays.
///
/// # Errors
/// It leaves the collection, or cannot be a path.
pub fn normal(path: &str, default: &str) -> Result<String, InvalidPath> {
    if path.bytes().any(|byte| matches!(byte, 0 | b'\r' | b'\n')) {
        return Err(InvalidPath::Character);
    }
    let whole = match path {
        "" | "~" | "/~" => format!("{default}/"),
        _ => match path.strip_prefix("~/").or_else(|| path.strip_prefix("/~/")) {
            Some(rest) => format!("{default}/{rest}"),
            None if path.starts_with('/') => path.to_owned(),
            None => format!("{default}/{path}"),
        },
    };
    let resolved = resolve(&whole)?;
    if resolved.len() > LONGEST { Err(InvalidPath::TooLong) } else { Ok(resolved) }
}

fn resolve(path: &str) -> Result<String, InvalidPath> {
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop().ok_or(InvalidPath::Outside)?),
            name => parts.push(name),
        }
    }
    let is_directory = path.ends_with('/') || path.ends_with("/.") || path.ends_with("/..");
    let mut resolved = format!("/{}", parts.join("/"));
    if is_directory && resolved.len() > 1 {
        resolved.push('/');
    }
    Ok(resolved)
}

/// The path at the server of a normal path of a collection that begins at `base`.
pub fn inside(base: &str, path: &str) -> String {
    format!("{}{path}", base.trim_end_matches('/'))
}
