//! Destinations that a source goes to already: two of them must not become one file.

use std::collections::HashSet;
use std::hash::{BuildHasher as _, RandomState};
use std::path::PathBuf;

use crate::client::options::Place;
use crate::client::overlap::lexical;

/// Most destinations that are remembered; of those that come later only these are told.
const MOST: usize = 1 << 20;

/// Digests of destinations: of a million, two are taken for one in one of thirty million runs.
#[derive(Default)]
pub struct Taken {
    seen: HashSet<u64>,
    state: RandomState,
}

impl Taken {
    /// Takes a destination; false: another source goes there. What goes to a device replaces nothing.
    pub fn take(&mut self, destination: &Place) -> bool {
        let path: PathBuf = lexical(&destination.path);
        if path.starts_with("/dev") && !path.starts_with("/dev/shm") {
            return true;
        }
        let digest = self.state.hash_one((&destination.target, path));
        if self.seen.len() >= MOST { !self.seen.contains(&digest) } else { self.seen.insert(digest) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_destination_is_taken_once_however_it_is_written() {
        let mut taken = Taken::default();
        let at = |path: &str| Place { target: None, path: path.into() };
        assert!(taken.take(&at("/d/f")) && taken.take(&at("/d/g")));
        assert!(!taken.take(&at("/d//e/../f/")));
        assert!(taken.take(&at("/dev/null")) && taken.take(&at("/dev/null")));
    }
}
