//! Paths inside a collection.

use std::fmt;

use serde::{Deserialize, Serialize};

/// An absolute path inside a collection, as raw bytes (names need not be UTF-8).
///
/// Always starts with `/`; has no empty, `.` or `..` component and no NUL byte; the root is `/`.
///
/// Deserializing checks all of this, so a path from another host is as trustworthy as a local one.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "Vec<u8>")]
pub struct StoragePath(Vec<u8>);

impl TryFrom<Vec<u8>> for StoragePath {
    type Error = PathError;

    fn try_from(bytes: Vec<u8>) -> Result<Self, PathError> {
        let path = Self::resolve(&Self::root(), &bytes)?;
        if path.0 == bytes { Ok(path) } else { Err(PathError::NotNormal) }
    }
}

/// Why bytes are not a path.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PathError {
    /// Holds a NUL byte.
    #[error("the path holds a NUL byte")]
    Nul,
    /// Not absolute, or holds an empty, `.` or `..` component (deserializing only).
    #[error("the path is not in normal form")]
    NotNormal,
    /// A component is longer than 255 bytes or the whole longer than 4095.
    #[error("the path is too long")]
    TooLong,
}

impl StoragePath {
    /// The collection's root.
    pub fn root() -> Self {
        Self(b"/".to_vec())
    }

    /// Resolves `path` textually against `base`: `..` is collapsed and stops at the root.
    pub fn resolve(base: &StoragePath, path: &[u8]) -> Result<Self, PathError> {
        let mut parts: Vec<&[u8]> = Vec::new();
        let from_base: &[u8] = if path.first() == Some(&b'/') { b"" } else { &base.0 };
        for part in from_base.split(|&b| b == b'/').chain(path.split(|&b| b == b'/')) {
            match part {
                b"" | b"." => {}
                b".." => drop(parts.pop()),
                name if name.contains(&0) => return Err(PathError::Nul),
                name if name.len() > 255 => return Err(PathError::TooLong),
                name => parts.push(name),
            }
        }
        let mut bytes = Vec::with_capacity(path.len() + 1);
        for part in &parts {
            bytes.push(b'/');
            bytes.extend_from_slice(part);
        }
        if bytes.is_empty() {
            bytes.push(b'/');
        }
        if bytes.len() > 4095 { Err(PathError::TooLong) } else { Ok(Self(bytes)) }
    }

    /// The raw bytes, starting with `/`.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Whether this is the root.
    pub fn is_root(&self) -> bool {
        self.0.len() == 1
    }

    /// The last component; `None` for the root.
    pub fn name(&self) -> Option<&[u8]> {
        self.0.rsplit(|&b| b == b'/').next().filter(|name| !name.is_empty())
    }

    /// The directory this is in; `None` for the root.
    pub fn parent(&self) -> Option<Self> {
        let name = self.name()?;
        let end = (self.0.len() - name.len() - 1).max(1);
        Some(Self(self.0[..end].to_vec()))
    }

    /// The path of `name` in this directory; `name` must be one component.
    pub fn join(&self, name: &[u8]) -> Result<Self, PathError> {
        Self::resolve(self, name)
    }

    /// The components, root first.
    pub fn components(&self) -> impl Iterator<Item = &[u8]> {
        self.0.split(|&b| b == b'/').filter(|part| !part.is_empty())
    }
}

impl fmt::Display for StoragePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&String::from_utf8_lossy(&self.0))
    }
}

impl fmt::Debug for StoragePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", String::from_utf8_lossy(&self.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resolve(base: &[u8], path: &[u8]) -> Vec<u8> {
        let base = StoragePath::resolve(&StoragePath::root(), base).unwrap();
        StoragePath::resolve(&base, path).unwrap().as_bytes().to_vec()
    }

    #[test]
    fn dots_never_climb_above_the_root() {
        assert_eq!(resolve(b"/a/b", b"../../../../etc"), b"/etc");
        assert_eq!(resolve(b"/", b".."), b"/");
    }

    #[test]
    fn relative_paths_start_at_the_base_and_absolute_ones_at_the_root() {
        assert_eq!(resolve(b"/a/b", b"c//./d/"), b"/a/b/c/d");
        assert_eq!(resolve(b"/a/b", b"/c\xff"), b"/c\xff");
    }

    #[test]
    fn parent_and_name_split_the_path() {
        let path = StoragePath::resolve(&StoragePath::root(), b"/a/b").unwrap();
        assert_eq!(path.name(), Some(&b"b"[..]));
        assert_eq!(path.parent().unwrap().as_bytes(), b"/a");
        assert_eq!(path.parent().unwrap().parent().unwrap(), StoragePath::root());
        assert_eq!(StoragePath::root().parent(), None);
    }

    #[test]
    fn a_path_from_another_host_must_be_in_normal_form() {
        let decode = |bytes: &[u8]| {
            let wire = postcard::to_stdvec(&bytes.to_vec()).unwrap();
            postcard::from_bytes::<StoragePath>(&wire)
        };
        assert_eq!(decode(b"/a/b\xff").unwrap().as_bytes(), b"/a/b\xff");
        assert_eq!(decode(b"/").unwrap(), StoragePath::root());
        for bad in [&b"/a/../b"[..], b"/..", b"a", b"", b"/a/", b"//a", b"/a/./b", b"/a\0"] {
            assert!(decode(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn nul_is_refused() {
        assert_eq!(StoragePath::resolve(&StoragePath::root(), b"a\0b"), Err(PathError::Nul));
    }
}
