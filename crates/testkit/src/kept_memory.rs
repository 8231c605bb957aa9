//! Free memory that a guest keeps while something is measured.

use std::fs;
use std::path::{Path, PathBuf};

/// The smallest power of two of free pages that a guest gives back to its host (mm/page_reporting.c); only root may write it.
const ORDER: &str = "/sys/module/page_reporting/parameters/page_reporting_order";

/// No free pages lie together in such a number (`MAX_PAGE_ORDER` is 10): nothing is given back.
const NEVER: &str = "11";

/// Until it is dropped, free pages are not given back to the host; where that cannot be had, it does nothing.
///
/// A page that was given back costs twenty times as much to take again: who writes after a pause would pay for that alone.
#[derive(Debug)]
pub struct KeptMemory {
    /// What is written back, and where.
    before: Option<(PathBuf, String)>,
}

impl KeptMemory {
    /// From now on.
    pub fn hold() -> Self {
        Self::hold_at(Path::new(ORDER))
    }

    fn hold_at(order: &Path) -> Self {
        let before = fs::read_to_string(order).ok().filter(|_| fs::write(order, NEVER).is_ok());
        Self { before: before.map(|before| (order.to_owned(), before)) }
    }
}

impl Drop for KeptMemory {
    fn drop(&mut self) {
        if let Some((order, before)) = &self.before {
            // What could be written once can be again; if not, the guest only keeps what is its own.
            let _ = fs::write(order, before.trim_end());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_order_is_as_it_was_when_the_measuring_is_over() {
        let directory = tempfile::tempdir().expect("made");
        let order = directory.path().join("order");
        fs::write(&order, "9\n").expect("written");
        let held = KeptMemory::hold_at(&order);
        assert_eq!((held.before.is_some(), fs::read_to_string(&order).expect("read").as_str()), (true, NEVER));
        drop(held);
        assert_eq!(fs::read_to_string(&order).expect("read"), "9");
        assert!(KeptMemory::hold_at(&directory.path().join("nothing")).before.is_none());
    }
}
