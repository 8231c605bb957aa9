//! Processes that end with the one that started them or are beside its terminal, and mounts that end with the processes that see them.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::thread::UnshareFlags;

/// Makes `command` start a program that is killed (SIGKILL) as soon as the thread that started it ends, however it ends
/// (`PR_SET_PDEATHSIG`). Programs that change their user are not; what the program itself starts is not, either.
pub fn die_with_starter(command: &mut Command) {
    let starter = std::process::id();
    let ask = move || {
        // SAFETY: this prctl takes integers only, and is a bare system call, hence safe between fork and exec.
        if unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) } < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: getppid has no arguments, cannot fail, and is a bare system call.
        let parent = unsafe { libc::getppid() };
        // One that ended before it was asked will send no signal.
        if u32::try_from(parent) == Ok(starter) { Ok(()) } else { Err(io::Error::from_raw_os_error(libc::ESRCH)) }
    };
    // SAFETY: the closure allocates nothing, takes no lock and touches no memory but its own captured integer.
    unsafe { command.pre_exec(ask) };
}

/// Makes `command` start its program as the leader of a session and process group of its own (setsid(2)): it has no controlling terminal, so that it
/// can neither put words into the one that its starter was started from nor hear of that one's Ctrl-C. Its group has its number.
///
/// Do not give the command a process group besides: who leads one cannot begin a session.
pub fn own_session(command: &mut Command) {
    let begin = || {
        // SAFETY: setsid has no arguments, and is a bare system call, hence safe between fork and exec.
        if unsafe { libc::setsid() } < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    };
    // SAFETY: the closure allocates nothing, takes no lock and touches no memory.
    unsafe { command.pre_exec(begin) };
}

/// Gives the calling thread, and all threads and processes that it starts from now on, a table of mounts of their own:
/// what they mount is seen by nobody else, and gone when the last of them ends. Call it before other threads run.
///
/// Needs `CAP_SYS_ADMIN`.
pub fn own_mounts() -> io::Result<()> {
    // SAFETY: NEWNS and FS change the calling thread's mounts and directories only. The flag that makes this call unsafe,
    // FILES, is not set.
    unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNS | UnshareFlags::FS) }?;
    let (none, flags) = (std::ptr::null(), libc::MS_REC | libc::MS_PRIVATE);
    // SAFETY: the target is a string that ends with NUL; where only the propagation changes, no other pointer is read.
    if unsafe { libc::mount(none, c"/".as_ptr(), none, flags, none.cast()) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::read_link;
    use std::os::unix::process::ExitStatusExt;
    use std::process::Stdio;
    use std::thread;

    #[test]
    fn a_program_lives_no_longer_than_what_started_it() {
        let mut child = thread::spawn(|| {
            // It would wait for its standard input for ever.
            let mut command = Command::new("cat");
            die_with_starter(&mut command);
            command.stdin(Stdio::piped()).spawn().expect("started")
        })
        .join()
        .expect("thread");
        let input = child.stdin.take();
        assert_eq!(child.wait().expect("ended").signal(), Some(libc::SIGKILL));
        drop(input);
    }

    #[test]
    fn a_program_with_a_session_of_its_own_leads_it_and_its_group() {
        let mut command = Command::new("cat");
        own_session(&mut command);
        let mut child = command.stdin(Stdio::piped()).spawn().expect("started");
        let pid = rustix::process::Pid::from_child(&child);
        let (session, group) = (rustix::process::getsid(Some(pid)), rustix::process::getpgid(Some(pid)));
        drop(child.stdin.take());
        child.wait().expect("ended");
        assert_eq!((session, group), (Ok(pid), Ok(pid)));
    }

    #[test]
    fn mounts_of_its_own_are_a_threads_and_its_childrens_only() {
        let link = |of: &str| read_link(format!("/proc/{of}/ns/mnt")).expect("link");
        let before = link("self");
        let inside = thread::spawn(move || {
            own_mounts().ok()?;
            let child = Command::new("readlink").arg("/proc/self/ns/mnt").output().expect("run");
            let table = std::fs::read_to_string("/proc/thread-self/mountinfo").expect("mounts");
            assert!(!table.contains("shared:"), "what is mounted here would be seen elsewhere");
            Some((link("thread-self"), String::from_utf8_lossy(&child.stdout).trim().to_owned()))
        });
        let Some((inside, child)) = inside.join().expect("thread") else {
            assert!(std::env::var_os("CI").is_none(), "CI must run as root");
            println!("skipped: needs CAP_SYS_ADMIN");
            return;
        };
        assert_ne!(inside, before);
        assert_eq!(child, inside.to_string_lossy());
        assert_eq!(link("self"), before);
    }
}
