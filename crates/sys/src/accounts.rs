//! Local accounts through the system's name service, and programs that are started as one.

use std::ffi::{CStr, CString};
use std::io;
use std::mem::MaybeUninit;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::ptr;

/// Bytes for the texts of one record: a longer one has a home directory beyond PATH_MAX.
const TEXT: usize = 16 << 10;

/// Most groups of a process (NGROUPS_MAX of Linux).
const MOST_GROUPS: usize = 65_536;

/// What the system knows of an account.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// Login name.
    pub name: String,
    /// User number.
    pub uid: u32,
    /// Primary group.
    pub gid: u32,
    /// Home directory, raw bytes.
    pub home: Vec<u8>,
    /// Program that a login starts, raw bytes; empty: the system's usual one.
    pub shell: Vec<u8>,
}

/// An account by name; `None` when there is no such account.
pub fn record(name: &str) -> io::Result<Option<Record>> {
    let name = c_name(name)?;
    // SAFETY: `name` ends with NUL and is only read; the rest is what `found` promises.
    found(|record, text, length, result| unsafe { libc::getpwnam_r(name.as_ptr(), record, text, length, result) })
}

/// The account with this number; `None` when there is no such account.
pub fn record_of(uid: u32) -> io::Result<Option<Record>> {
    // SAFETY: what `found` promises.
    found(|record, text, length, result| unsafe { libc::getpwuid_r(uid, record, text, length, result) })
}

/// Asks for one record.
///
/// `ask` gets pointers to a record, to text of so many bytes for what the record points to, and to where the record's address goes; all
/// of them live as long as the call, and none of them is null.
fn found(
    ask: impl FnOnce(*mut libc::passwd, *mut libc::c_char, usize, *mut *mut libc::passwd) -> libc::c_int,
) -> io::Result<Option<Record>> {
    let mut text = vec![0 as libc::c_char; TEXT];
    let mut record = MaybeUninit::<libc::passwd>::uninit();
    let mut result: *mut libc::passwd = ptr::null_mut();
    match ask(record.as_mut_ptr(), text.as_mut_ptr(), text.len(), &mut result) {
        0 if result.is_null() => Ok(None),
        0 => {
            // SAFETY: a zero status and a non-null result mean that `record` was filled in.
            let record = unsafe { record.assume_init_ref() };
            // SAFETY: its texts are null or end with NUL inside `text`, which lives to the end of this function.
            let [name, home, shell] =
                unsafe { [record.pw_name, record.pw_dir, record.pw_shell].map(|text| bytes(text)) };
            let name = String::from_utf8_lossy(&name).into_owned();
            Ok(Some(Record { name, uid: record.pw_uid, gid: record.pw_gid, home, shell }))
        }
        errno => Err(io::Error::from_raw_os_error(errno)),
    }
}

/// The day, counted from 1970, on which an account ends or has ended (`usermod --expiredate`); `None` for an account without such a day, or
/// without an entry among the shadow passwords. Needs root.
pub fn end(name: &str) -> io::Result<Option<i64>> {
    let name = c_name(name)?;
    let mut text = vec![0 as libc::c_char; TEXT];
    let mut record = MaybeUninit::<libc::spwd>::uninit();
    let mut found: *mut libc::spwd = ptr::null_mut();
    // SAFETY: every pointer is to a live object of this frame and `text` has the length given; the
    // function keeps none of them.
    let status =
        unsafe { libc::getspnam_r(name.as_ptr(), record.as_mut_ptr(), text.as_mut_ptr(), text.len(), &mut found) };
    match status {
        // The C library says ENOENT where there is no such file or entry.
        libc::ENOENT => Ok(None),
        0 if found.is_null() => Ok(None),
        // SAFETY: a zero status and a non-null `found` mean that `record` was filled in.
        0 => Ok(Some(unsafe { record.assume_init_ref() }.sp_expire).filter(|day| *day >= 0)),
        errno => Err(io::Error::from_raw_os_error(errno)),
    }
}

/// The groups of an account: its primary one and all of which it is a member.
pub fn groups_of(name: &str, gid: u32) -> io::Result<Vec<u32>> {
    let name = c_name(name)?;
    let mut groups: Vec<libc::gid_t> = vec![0; 64];
    loop {
        let mut count = libc::c_int::try_from(groups.len()).expect("at most MOST_GROUPS");
        // SAFETY: `name` ends with NUL, and `count` says how many numbers `groups` has room for.
        let status = unsafe { libc::getgrouplist(name.as_ptr(), gid, groups.as_mut_ptr(), &mut count) };
        if status >= 0 {
            groups.truncate(usize::try_from(count).unwrap_or(0));
            return Ok(groups);
        }
        if groups.len() >= MOST_GROUPS {
            return Err(io::Error::other("an account with more groups than a process can have"));
        }
        groups.resize((groups.len() * 4).min(MOST_GROUPS), 0);
    }
}

/// Makes `command` start its program as this account, with exactly these supplementary groups. Needs root.
///
/// Do not give the command a user or group besides.
pub fn become_account(command: &mut Command, uid: u32, gid: u32, groups: Vec<u32>) {
    let become_it = move || {
        // The groups first: afterwards there is no right to change them.
        // SAFETY: the pointer is to as many numbers as told; a bare system call.
        if unsafe { libc::setgroups(groups.len(), groups.as_ptr()) } < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: integers only; all three numbers change, so that there is no way back.
        if unsafe { libc::setresgid(gid, gid, gid) } < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: as before.
        if unsafe { libc::setresuid(uid, uid, uid) } < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(())
    };
    // SAFETY: between fork and exec the closure allocates nothing and takes no lock of another thread: the C library's set*id
    // functions only make the system call in a process of one thread, which a forked one is. It reads its own captured list.
    unsafe { command.pre_exec(become_it) };
}

fn c_name(name: &str) -> io::Result<CString> {
    CString::new(name).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))
}

/// # Safety
/// `text` is null or ends with NUL.
unsafe fn bytes(text: *const libc::c_char) -> Vec<u8> {
    if text.is_null() {
        return Vec::new();
    }
    // SAFETY: as demanded of the caller.
    unsafe { CStr::from_ptr(text) }.to_bytes().to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_account_is_found_by_its_number() {
        let root = record_of(0).unwrap().expect("every system has it");
        assert_eq!((root.name.as_str(), root.home.starts_with(b"/")), ("root", true));
        assert_eq!(record_of(u32::MAX - 7).unwrap(), None);
    }

    #[test]
    fn root_is_known_and_a_made_up_name_is_not() {
        let root = record("root").unwrap().unwrap();
        assert_eq!((root.name.as_str(), root.uid, root.gid), ("root", 0, 0));
        assert!(root.home.starts_with(b"/"), "{root:?}");
        assert_eq!(record("no-such-account-here").unwrap(), None);
        assert!(record("a\0b").is_err());
        assert!(groups_of("root", 7).unwrap().contains(&7), "the primary group is among them");
    }

    #[test]
    fn groups_are_those_that_the_system_tells() {
        let told = Command::new("id").args(["-G", "root"]).output().unwrap();
        let mut told: Vec<u32> =
            String::from_utf8(told.stdout).unwrap().split_whitespace().map(|id| id.parse().unwrap()).collect();
        let mut found = groups_of("root", 0).unwrap();
        told.sort_unstable();
        found.sort_unstable();
        assert_eq!(found, told);
    }

    #[test]
    fn a_program_has_the_account_and_exactly_its_groups() {
        if !rustix::process::geteuid().is_root() {
            assert!(end("root").is_err() || end("root").unwrap().is_none());
            return;
        }
        assert_eq!(end("no-such-account-here").unwrap(), None);
        let mut command = Command::new("/bin/sh");
        command.args(["-c", "grep -E '^(Uid|Gid|Groups):' /proc/self/status"]);
        become_account(&mut command, 65_534, 65_533, vec![65_533, 12_345]);
        let text = String::from_utf8(command.output().unwrap().stdout).unwrap();
        let fields: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().skip(1).collect()).collect();
        assert_eq!(fields, [vec!["65534"; 4], vec!["65533"; 4], vec!["12345", "65533"]]);
    }
}
