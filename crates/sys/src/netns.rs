//! Network namespaces without names, and scheduling for the threads that emulate a network.
//!
//! A namespace made here is held by a descriptor only: it has no entry in the file system, so it cannot collide with
//! another one and it disappears with the last process, socket or descriptor that uses it, however the maker ends.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::panic::resume_unwind;
use std::process::Command;
use std::thread;

use rustix::fs::{Mode, OFlags};
use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space};

/// A network namespace, alive as long as this value or anything running inside it.
#[derive(Debug)]
pub struct NetNs {
    descriptor: OwnedFd,
}

/// Whether this process may create namespaces (`CAP_SYS_ADMIN`), found out by trying.
pub fn may_create() -> bool {
    NetNs::create().is_ok()
}

impl NetNs {
    /// Creates an empty namespace: a loopback device that is down, and nothing else.
    ///
    /// Needs `CAP_SYS_ADMIN`. The calling thread stays where it is.
    pub fn create() -> io::Result<NetNs> {
        on_new_thread(|| {
            // SAFETY: NEWNET changes the calling thread's network only. The flag that makes this call unsafe, FILES,
            // is not set, and the thread ends with this closure.
            unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNET) }?;
            NetNs::of_calling_thread()
        })
    }

    /// The namespace that the calling thread is in.
    pub fn of_calling_thread() -> io::Result<NetNs> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        let descriptor = rustix::fs::open("/proc/thread-self/ns/net", flags, Mode::empty())?;
        Ok(NetNs { descriptor })
    }

    /// Runs `work` on a thread of its own inside this namespace and returns its result; a panic in it goes on here.
    ///
    /// Sockets opened, threads started and processes spawned by `work` stay inside.
    pub fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> io::Result<T> {
        on_new_thread(|| {
            move_into_link_name_space(self.as_fd(), Some(LinkNameSpaceType::Network))?;
            Ok(work())
        })
    }

    /// Makes `command` start its program inside this namespace.
    pub fn enter_on_exec(&self, command: &mut Command) -> io::Result<()> {
        let descriptor = self.descriptor.try_clone()?;
        let enter = move || {
            // SAFETY: setns takes integers only, and is a bare system call, hence safe between fork and exec.
            if unsafe { libc::setns(descriptor.as_raw_fd(), libc::CLONE_NEWNET) } < 0 {
                return Err(io::Error::last_os_error());
            }
            Ok(())
        };
        // SAFETY: the closure allocates nothing, takes no lock and touches no memory but its own captured descriptor.
        unsafe { command.pre_exec(enter) };
        Ok(())
    }
}

impl AsFd for NetNs {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

/// Moves the calling thread ahead of all ordinary ones (`SCHED_FIFO`, priority 1), so that it wakes up on time on a
/// busy machine; false when the system refuses. Such a thread must sleep often: it is never preempted by others.
pub fn schedule_ahead() -> bool {
    let parameters = libc::sched_param { sched_priority: 1 };
    // SAFETY: pid 0 is the calling thread, and the pointer is valid for the call.
    unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK, &raw const parameters) == 0 }
}

fn on_new_thread<T: Send>(work: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
    thread::scope(|scope| scope.spawn(work).join()).unwrap_or_else(|panic| resume_unwind(panic))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::read_link;

    fn space() -> Option<NetNs> {
        let space = NetNs::create();
        if space.is_err() {
            assert!(std::env::var_os("CI").is_none(), "CI must run as root");
            println!("skipped: needs CAP_SYS_ADMIN");
        }
        space.ok()
    }

    #[test]
    fn work_and_commands_run_inside_and_the_caller_stays_outside() {
        let Some(space) = space() else { return };
        let link = || read_link("/proc/thread-self/ns/net").expect("link");
        let before = link();
        let inside = space.run(link).expect("enter");
        assert_ne!(inside, before);
        let mut command = Command::new("readlink");
        command.arg("/proc/self/ns/net");
        space.enter_on_exec(&mut command).expect("prepare");
        let output = command.output().expect("run");
        assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), inside.to_string_lossy());
        assert_eq!(link(), before);
    }

    #[test]
    fn a_panic_inside_reaches_the_caller() {
        let Some(space) = space() else { return };
        let caught = std::panic::catch_unwind(|| space.run(|| panic!("inside")));
        assert_eq!(caught.expect_err("must panic").downcast_ref::<&str>(), Some(&"inside"));
    }

    #[test]
    fn a_thread_scheduled_ahead_is_a_realtime_thread() {
        thread::spawn(|| {
            let granted = schedule_ahead();
            // SAFETY: pid 0 is the calling thread; the call takes integers only.
            let policy = unsafe { libc::sched_getscheduler(0) };
            assert_eq!(policy & libc::SCHED_FIFO != 0, granted);
        })
        .join()
        .expect("thread");
    }
}
