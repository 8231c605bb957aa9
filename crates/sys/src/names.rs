//! Names of users and groups.

use std::ffi::{CStr, CString};
use std::io;
use std::mem::MaybeUninit;
use std::ptr;

use libc::{c_char, c_int, size_t};

/// Longest buffer a lookup may ask for, bytes; a group may have many members.
const BUFFER_MAX: usize = 16 << 20;

/// Name of the user with this number, raw bytes; `None` when there is none.
///
/// Asks the system's name services, which may block on the network.
pub fn user_name(uid: u32) -> io::Result<Option<Vec<u8>>> {
    lookup(
        // SAFETY: all pointers are valid for the call, the buffer for `len` bytes.
        |entry, buffer, len, found| unsafe { libc::getpwuid_r(uid, entry, buffer, len, found) },
        |entry: &libc::passwd| {
            // SAFETY: a found entry's name is a NUL-terminated string inside the live buffer.
            unsafe { CStr::from_ptr(entry.pw_name) }.to_bytes().to_vec()
        },
    )
}

/// Name of the group with this number, raw bytes; `None` when there is none.
pub fn group_name(gid: u32) -> io::Result<Option<Vec<u8>>> {
    lookup(
        // SAFETY: all pointers are valid for the call, the buffer for `len` bytes.
        |entry, buffer, len, found| unsafe { libc::getgrgid_r(gid, entry, buffer, len, found) },
        |entry: &libc::group| {
            // SAFETY: a found entry's name is a NUL-terminated string inside the live buffer.
            unsafe { CStr::from_ptr(entry.gr_name) }.to_bytes().to_vec()
        },
    )
}

/// Number of the group called `name`; `None` when there is none.
pub fn group_id(name: &str) -> io::Result<Option<u32>> {
    let name = CString::new(name)?;
    lookup(
        // SAFETY: all pointers are valid for the call, the buffer for `len` bytes.
        |entry, buffer, len, found| unsafe { libc::getgrnam_r(name.as_ptr(), entry, buffer, len, found) },
        |entry: &libc::group| entry.gr_gid,
    )
}

/// Calls one of the `*_r` functions with a growing buffer and reads the entry while it lives.
fn lookup<E, T>(
    call: impl Fn(*mut E, *mut c_char, size_t, *mut *mut E) -> c_int,
    read: impl Fn(&E) -> T,
) -> io::Result<Option<T>> {
    let mut buffer: Vec<c_char> = vec![0; 1024];
    loop {
        let mut entry = MaybeUninit::<E>::uninit();
        let mut found = ptr::null_mut();
        let error = call(entry.as_mut_ptr(), buffer.as_mut_ptr(), buffer.len(), &mut found);
        match error {
            libc::ERANGE if buffer.len() < BUFFER_MAX => buffer.resize(buffer.len() * 4, 0),
            libc::EINTR => {}
            // Different systems say "no such entry" in different ways (getpwnam_r(3), ERRORS).
            0 | libc::ENOENT | libc::ESRCH | libc::EBADF | libc::EPERM if found.is_null() => {
                return Ok(None);
            }
            // SAFETY: success with a non-null result means that `entry` was filled.
            0 => return Ok(Some(read(unsafe { entry.assume_init_ref() }))),
            error => return Err(io::Error::from_raw_os_error(error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn number_zero_is_root_both_ways() {
        assert_eq!(user_name(0).unwrap().as_deref(), Some(&b"root"[..]));
        let group = group_name(0).unwrap().unwrap();
        let group = String::from_utf8(group).unwrap();
        assert_eq!(group_id(&group).unwrap(), Some(0));
    }

    #[test]
    fn unknown_names_and_numbers_are_none() {
        assert_eq!(user_name(u32::MAX - 7).unwrap(), None);
        assert_eq!(group_name(u32::MAX - 7).unwrap(), None);
        assert_eq!(group_id("no-such-group-anywhere").unwrap(), None);
    }

    #[test]
    fn a_name_with_a_nul_is_an_error_not_a_truncated_lookup() {
        assert!(group_id("root\0x").is_err());
    }
}
