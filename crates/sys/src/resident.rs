//! Which pages of a file are in this host's memory.

use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr;

/// Pages asked for in one call: the answer takes a byte for each.
const WINDOW: u64 = 64 << 10;

/// Counts the pages of `range` of a file that the page cache holds; pages that hold any byte of it count.
///
/// The file must be open for reading, and writable or owned by the caller, or the kernel answers as if
/// everything were resident. Fails with `ENODEV` or `EACCES` for what cannot be mapped.
pub fn resident_pages(file: BorrowedFd<'_>, range: Range<u64>) -> io::Result<u64> {
    let page = page_size();
    let (mut first, end) = (range.start / page, range.end.div_ceil(page));
    let mut resident = 0;
    while first < end {
        let count = (end - first).min(WINDOW);
        resident += resident_window(file, first * page, count, page)?;
        first += count;
    }
    Ok(resident)
}

/// Bytes of a page of memory.
pub fn page_size() -> u64 {
    // SAFETY: takes a number and returns one.
    let size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    u64::try_from(size).expect("every kernel has a page size")
}

fn resident_window(file: BorrowedFd<'_>, offset: u64, count: u64, page: u64) -> io::Result<u64> {
    let too_far = |_| io::Error::from_raw_os_error(libc::EOVERFLOW);
    let len = usize::try_from(count * page).map_err(too_far)?;
    let offset = libc::off_t::try_from(offset).map_err(too_far)?;
    let mut answer = vec![0u8; usize::try_from(count).map_err(too_far)?];
    // SAFETY: a new mapping at an address of the kernel's choice; it is never read or written through,
    // so it does not matter what others do to the file.
    let start =
        unsafe { libc::mmap(ptr::null_mut(), len, libc::PROT_READ, libc::MAP_SHARED, file.as_raw_fd(), offset) };
    if start == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: `start` and `len` are the mapping made above, and `answer` has a byte for each of its pages.
    let done = unsafe { libc::mincore(start, len, answer.as_mut_ptr()) };
    let error = io::Error::last_os_error();
    // SAFETY: exactly the mapping made above; nothing refers to it.
    unsafe { libc::munmap(start, len) };
    if done != 0 {
        return Err(error);
    }
    Ok(answer.iter().filter(|&&page| page & 1 == 1).count() as u64)
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::fd::AsFd;
    use std::os::unix::fs::FileExt;

    use super::*;

    #[test]
    fn pages_just_written_are_resident_and_holes_are_not() {
        let path = std::env::temp_dir().join(format!("whimbrel-resident-{}", std::process::id()));
        let file = File::options().read(true).write(true).create_new(true).open(&path).expect("create");
        std::fs::remove_file(&path).expect("unlink");
        let page = page_size();
        file.write_all_at(&vec![7; 3 * page as usize], 10 * page).expect("write");
        assert_eq!(resident_pages(file.as_fd(), 10 * page..13 * page).expect("ask"), 3);
        assert_eq!(resident_pages(file.as_fd(), 10 * page + 5..10 * page + 6).expect("ask"), 1);
        assert_eq!(resident_pages(file.as_fd(), 0..10 * page).expect("ask"), 0);
        assert_eq!(resident_pages(file.as_fd(), 0..0).expect("ask"), 0);
        // Longer than one window.
        file.set_len((WINDOW + 20) * page).expect("extend");
        assert_eq!(resident_pages(file.as_fd(), 0..(WINDOW + 20) * page).expect("ask"), 3);
    }

    #[test]
    fn what_cannot_be_mapped_is_an_error() {
        let null = File::open("/proc/self/fd").expect("open a directory");
        assert!(resident_pages(null.as_fd(), 0..1).is_err());
    }
}
