//! Page-aligned memory that goes back to the system when dropped.

use std::io;
use std::ops::{Deref, DerefMut};
use std::ptr::{self, NonNull};
use std::slice;

/// A zeroed, page-aligned piece of anonymous memory.
///
/// Mapped on its own, so that dropping it lowers the resident size of the process at once, which
/// the general allocator does not promise. Pages cost memory only once they are touched.
#[derive(Debug)]
pub struct Pages {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: the mapping is private to this value and has no tie to the thread that made it.
unsafe impl Send for Pages {}
// SAFETY: shared references give only read access to plain bytes.
unsafe impl Sync for Pages {}

impl Pages {
    /// Maps `len` bytes (more than 0); fails with `ENOMEM` when the system has none left.
    pub fn new(len: usize) -> io::Result<Self> {
        let prot = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: an anonymous mapping at an address of the kernel's choice touches no other memory.
        let start = unsafe { libc::mmap(ptr::null_mut(), len, prot, flags, -1, 0) };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = NonNull::new(start.cast()).expect("the kernel never maps address zero");
        Ok(Self { start, len })
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: exactly the mapping made in `new`, to which no reference outlives `self`.
        // It cannot fail for a whole mapping; nothing could be done if it did.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.len) };
    }
}

impl Deref for Pages {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: `len` initialised (zeroed) bytes, alive as long as `self`; no writer while shared.
        unsafe { slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl DerefMut for Pages {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`, and `&mut self` excludes every other reference.
        unsafe { slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_zeroed_aligned_and_writable() {
        let mut pages = Pages::new(10_000).expect("map");
        assert_eq!(pages.len(), 10_000);
        assert_eq!(pages.as_ptr() as usize % 4096, 0);
        assert!(pages.iter().all(|&byte| byte == 0));
        pages[9_999] = 7;
        assert_eq!(pages[9_999], 7);
    }

    #[test]
    fn an_impossible_size_is_an_error_not_a_crash() {
        assert!(Pages::new(usize::MAX / 2).is_err());
    }
}
