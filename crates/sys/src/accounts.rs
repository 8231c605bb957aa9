//! Local accounts by name, through the system's name service.

use std::ffi::CString;
use std::io;
use std::mem::MaybeUninit;
use std::ptr;

/// User number and primary group of a local account; `None` when there is no such account.
pub fn user_ids(name: &str) -> io::Result<Option<(u32, u32)>> {
    let name = CString::new(name).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
    // A record longer than this has a home directory beyond PATH_MAX.
    let mut text = vec![0 as libc::c_char; 16 << 10];
    let mut record = MaybeUninit::<libc::passwd>::uninit();
    let mut found: *mut libc::passwd = ptr::null_mut();
    // SAFETY: every pointer is to a live object of this frame and `text` has the length given; the
    // function keeps none of them.
    let status =
        unsafe { libc::getpwnam_r(name.as_ptr(), record.as_mut_ptr(), text.as_mut_ptr(), text.len(), &mut found) };
    match status {
        0 if found.is_null() => Ok(None),
        // SAFETY: a zero status and a non-null `found` mean that `record` was filled in.
        0 => Ok(Some(unsafe { (record.assume_init_ref().pw_uid, record.assume_init_ref().pw_gid) })),
        errno => Err(io::Error::from_raw_os_error(errno)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_is_known_and_a_made_up_name_is_not() {
        assert_eq!(user_ids("root").unwrap(), Some((0, 0)));
        assert_eq!(user_ids("no-such-account-here").unwrap(), None);
    }
}
