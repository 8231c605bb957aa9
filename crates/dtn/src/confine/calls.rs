//! System calls by seccomp.

use std::collections::BTreeMap;

use libc::c_long;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule, TargetArch,
};
use whimbrel_engine::{Fault, FaultCode, Side};
use whimbrel_sys::meddling::{OWNER_COMMANDS, OWNER_REQUESTS};
use whimbrel_sys::terminal::Request;

use super::{Held, OP};

/// Which system calls a process may make.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Calls {
    /// Of the front: sockets that it has, files to read; no new sockets but local ones, no change of any file.
    Front,
    /// Of a data process: files and TCP.
    Data,
    /// The same on a host where names of accounts are asked of services, over local sockets.
    DataWithServices,
    /// Of the process that fetches keys: TCP connections that it makes, and names of hosts. No change of any file.
    Fetch,
}

/// Memory, threads, clocks, signals to itself, polling, bytes over what is open: what any program with a runtime does.
const COMMON: &[c_long] = &[
    libc::SYS_brk,
    libc::SYS_clock_getres,
    libc::SYS_clock_gettime,
    libc::SYS_clock_nanosleep,
    libc::SYS_clone3, // the other filter answers it
    libc::SYS_close,
    libc::SYS_close_range,
    libc::SYS_dup,
    libc::SYS_dup3,
    libc::SYS_epoll_create1,
    libc::SYS_epoll_ctl,
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_pwait2,
    libc::SYS_eventfd2,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_fstat,
    libc::SYS_futex,
    libc::SYS_getegid,
    libc::SYS_geteuid,
    libc::SYS_getgid,
    libc::SYS_getgroups,
    libc::SYS_getpeername,
    libc::SYS_getpid,
    libc::SYS_getppid,
    libc::SYS_getrandom,
    libc::SYS_getrusage,
    libc::SYS_getsockname,
    libc::SYS_getsockopt,
    libc::SYS_gettid,
    libc::SYS_gettimeofday,
    libc::SYS_getuid,
    libc::SYS_lseek,
    libc::SYS_madvise,
    libc::SYS_membarrier,
    libc::SYS_mmap,
    libc::SYS_mprotect,
    libc::SYS_mremap,
    libc::SYS_munmap,
    libc::SYS_nanosleep,
    libc::SYS_newfstatat,
    libc::SYS_openat,
    libc::SYS_pipe2,
    libc::SYS_ppoll,
    libc::SYS_prctl,
    libc::SYS_pread64,
    libc::SYS_read,
    libc::SYS_readlinkat,
    libc::SYS_readv,
    libc::SYS_recvfrom,
    libc::SYS_recvmsg,
    libc::SYS_restart_syscall,
    libc::SYS_rseq,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigpending,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_rt_sigsuspend,
    libc::SYS_rt_sigtimedwait,
    libc::SYS_sched_getaffinity,
    libc::SYS_sched_yield,
    libc::SYS_sendmsg,
    libc::SYS_sendto,
    libc::SYS_set_robust_list,
    libc::SYS_set_tid_address,
    libc::SYS_setsockopt,
    libc::SYS_shutdown,
    libc::SYS_sigaltstack,
    libc::SYS_statx,
    libc::SYS_sysinfo,
    libc::SYS_uname,
    libc::SYS_write,
    libc::SYS_writev,
    libc::SYS_accept4,
    libc::SYS_accept,
    libc::SYS_getdents64,
    libc::SYS_faccessat,
    libc::SYS_faccessat2,
];

/// Older names of the same, which newer architectures never had.
#[cfg(target_arch = "x86_64")]
const OLDER: &[c_long] = &[
    libc::SYS_access,
    libc::SYS_arch_prctl,
    libc::SYS_dup2,
    libc::SYS_epoll_create,
    libc::SYS_epoll_wait,
    libc::SYS_lstat,
    libc::SYS_open,
    libc::SYS_pipe,
    libc::SYS_poll,
    libc::SYS_readlink,
    libc::SYS_select,
    libc::SYS_stat,
    libc::SYS_time,
];
#[cfg(not(target_arch = "x86_64"))]
const OLDER: &[c_long] = &[];

/// What only a data process does: files, and TCP connections of its own.
const DATA: &[c_long] = &[
    libc::SYS_bind,
    libc::SYS_connect,
    libc::SYS_copy_file_range,
    libc::SYS_fadvise64,
    libc::SYS_fallocate,
    libc::SYS_fchmod,
    libc::SYS_fchmodat,
    libc::SYS_fchown,
    libc::SYS_fchownat,
    libc::SYS_fdatasync,
    libc::SYS_fgetxattr,
    libc::SYS_flistxattr,
    libc::SYS_flock,
    libc::SYS_fremovexattr,
    libc::SYS_fsetxattr,
    libc::SYS_fstatfs,
    libc::SYS_fsync,
    libc::SYS_ftruncate,
    libc::SYS_getcpu,
    libc::SYS_getcwd,
    libc::SYS_getpriority,
    libc::SYS_inotify_add_watch,
    libc::SYS_inotify_init1,
    libc::SYS_inotify_rm_watch,
    libc::SYS_linkat,
    libc::SYS_listen,
    libc::SYS_memfd_create,
    libc::SYS_mincore,
    libc::SYS_mkdirat,
    libc::SYS_mknodat,
    libc::SYS_mlock,
    libc::SYS_mlock2,
    libc::SYS_munlock,
    libc::SYS_openat2,
    libc::SYS_preadv,
    libc::SYS_preadv2,
    libc::SYS_pwrite64,
    libc::SYS_pwritev,
    libc::SYS_pwritev2,
    libc::SYS_readahead,
    libc::SYS_renameat,
    libc::SYS_renameat2,
    libc::SYS_sendfile,
    libc::SYS_sendmmsg,
    libc::SYS_recvmmsg,
    libc::SYS_splice,
    libc::SYS_statfs,
    libc::SYS_symlinkat,
    libc::SYS_sync_file_range,
    libc::SYS_syncfs,
    libc::SYS_tee,
    libc::SYS_truncate,
    libc::SYS_umask,
    libc::SYS_unlinkat,
    libc::SYS_utimensat,
    libc::SYS_vmsplice,
];

/// What only the process that fetches keys does: connections, and questions about names.
const FETCH: &[c_long] = &[libc::SYS_bind, libc::SYS_connect, libc::SYS_sendmmsg, libc::SYS_recvmmsg];

/// Older names of the same.
#[cfg(target_arch = "x86_64")]
const OLDER_DATA: &[c_long] = &[
    libc::SYS_chmod,
    libc::SYS_chown,
    libc::SYS_futimesat,
    libc::SYS_lchown,
    libc::SYS_link,
    libc::SYS_mkdir,
    libc::SYS_mknod,
    libc::SYS_rename,
    libc::SYS_rmdir,
    libc::SYS_symlink,
    libc::SYS_unlink,
    libc::SYS_utime,
    libc::SYS_utimes,
];
#[cfg(not(target_arch = "x86_64"))]
const OLDER_DATA: &[c_long] = &[];

/// Bits of a socket's type that are no flags (`SOCK_TYPE_MASK`).
const SOCKET_TYPE: u64 = 0xf;

/// Puts the filters in force; the small one first, for the other forbids putting in more.
pub(super) fn restrict(calls: Calls) -> Result<Held, Fault> {
    let Ok(arch) = TargetArch::try_from(std::env::consts::ARCH) else {
        return Ok(Held::Unknown);
    };
    for program in [no_clone3(arch)?, allowed(calls, arch)?] {
        match seccompiler::apply_filter_all_threads(&program) {
            Ok(()) => {}
            // A kernel without filters (EINVAL of prctl(2), ENOSYS of seccomp(2)).
            Err(seccompiler::Error::Prctl(error) | seccompiler::Error::Seccomp(error))
                if matches!(error.raw_os_error(), Some(libc::EINVAL | libc::ENOSYS)) =>
            {
                return Ok(Held::Unknown);
            }
            Err(error) => return Err(fault(&error)),
        }
    }
    Ok(Held::Full)
}

fn fault(error: &dyn std::fmt::Display) -> Fault {
    Fault::new(FaultCode::Internal, OP).side(Side::Us).detail(format!("seccomp: {error}"))
}

/// `clone3` has its flags in memory, where no filter can look: the C library falls back to `clone` when there is none.
fn no_clone3(arch: TargetArch) -> Result<BpfProgram, Fault> {
    let rules = BTreeMap::from([(libc::SYS_clone3, Vec::new())]);
    program(rules, SeccompAction::Allow, SeccompAction::Errno(libc::ENOSYS as u32), arch)
}

fn allowed(calls: Calls, arch: TargetArch) -> Result<BpfProgram, Fault> {
    let (own, older) = match calls {
        Calls::Front => (&[][..], &[][..]),
        Calls::Data | Calls::DataWithServices => (DATA, OLDER_DATA),
        Calls::Fetch => (FETCH, &[][..]),
    };
    let plain = COMMON.iter().chain(OLDER).chain(own).chain(older).map(|call| (*call, Vec::new()));
    let mut rules: BTreeMap<c_long, Vec<SeccompRule>> = plain.collect();
    let stream = libc::SOCK_STREAM;
    let local = socket(libc::AF_UNIX, stream)?;
    let sockets = match calls {
        Calls::Front => vec![local],
        // Whoever may connect to a local socket may ask what listens there to start programs: no Landlock of today looks at its path.
        Calls::Data => vec![socket(libc::AF_INET, stream)?, socket(libc::AF_INET6, stream)?],
        Calls::DataWithServices => vec![local, socket(libc::AF_INET, stream)?, socket(libc::AF_INET6, stream)?],
        Calls::Fetch => {
            let question = libc::SOCK_DGRAM;
            let kinds = [
                (libc::AF_INET, stream),
                (libc::AF_INET6, stream),
                (libc::AF_INET, question),
                (libc::AF_INET6, question),
            ];
            let others = kinds.into_iter().map(|(family, kind)| socket(family, kind)).collect::<Result<Vec<_>, _>>()?;
            std::iter::once(local).chain(others).collect()
        }
    };
    rules.insert(libc::SYS_socket, sockets);
    rules.insert(libc::SYS_socketpair, vec![socket(libc::AF_UNIX, stream)?]);
    rules.insert(libc::SYS_clone, vec![threads_only()?]);
    rules.insert(libc::SYS_ioctl, vec![no_typing()?]);
    // Of others of the same account neither signals nor limits are changed: a data process of guests may have the front's account, and only
    // the newest Landlock (ABI 6) knows of signals.
    rules.insert(libc::SYS_tgkill, vec![rule(vec![condition(0, SeccompCmpOp::Eq, std::process::id().into())?])?]);
    rules.insert(libc::SYS_prlimit64, vec![rule(vec![condition(0, SeccompCmpOp::Eq, 0)?])?]);
    rules.insert(libc::SYS_fcntl, vec![none_of(1, OWNER_COMMANDS)?]);
    // A thread's own, which only falls.
    let own = [condition(0, SeccompCmpOp::Eq, libc::PRIO_PROCESS.into())?, condition(1, SeccompCmpOp::Eq, 0)?];
    rules.insert(libc::SYS_setpriority, vec![rule(own.to_vec())?]);
    program(rules, SeccompAction::Errno(libc::EPERM as u32), SeccompAction::Allow, arch)
}

fn socket(family: i32, kind: i32) -> Result<SeccompRule, Fault> {
    let family = condition(0, SeccompCmpOp::Eq, family as u64)?;
    let kind = condition(1, SeccompCmpOp::MaskedEq(SOCKET_TYPE), kind as u64)?;
    rule(vec![family, kind])
}

/// Nothing that acts for whoever sits at the terminal that standard error may be: what is typed there is obeyed with that person's rights.
/// Nor does a descriptor signal others.
fn no_typing() -> Result<SeccompRule, Fault> {
    none_of(1, Request::ALL.map(Request::number).into_iter().chain(OWNER_REQUESTS))
}

/// Any value of that argument but these.
fn none_of(argument: u8, values: impl IntoIterator<Item = u32>) -> Result<SeccompRule, Fault> {
    let others = values.into_iter().map(|value| condition(argument, SeccompCmpOp::Ne, value.into()));
    rule(others.collect::<Result<_, _>>()?)
}

/// New threads, not new processes.
fn threads_only() -> Result<SeccompRule, Fault> {
    let thread = libc::CLONE_THREAD as u64;
    rule(vec![condition(0, SeccompCmpOp::MaskedEq(thread), thread)?])
}

/// All of these conditions.
fn rule(conditions: Vec<SeccompCondition>) -> Result<SeccompRule, Fault> {
    SeccompRule::new(conditions).map_err(|error| fault(&error))
}

fn condition(argument: u8, op: SeccompCmpOp, value: u64) -> Result<SeccompCondition, Fault> {
    SeccompCondition::new(argument, SeccompCmpArgLen::Dword, op, value).map_err(|error| fault(&error))
}

fn program(
    rules: BTreeMap<c_long, Vec<SeccompRule>>,
    otherwise: SeccompAction,
    matched: SeccompAction,
    arch: TargetArch,
) -> Result<BpfProgram, Fault> {
    let filter = SeccompFilter::new(rules, otherwise, matched, arch).map_err(|error| fault(&error))?;
    filter.try_into().map_err(|error: seccompiler::BackendError| fault(&error))
}

#[cfg(test)]
mod tests {
    use whimbrel_sys::meddling::Meddling;

    use super::*;

    const ALL: [Calls; 4] = [Calls::Front, Calls::Data, Calls::DataWithServices, Calls::Fetch];

    #[test]
    fn what_leads_out_of_a_process_is_on_no_list() {
        let out = [
            libc::SYS_execve,
            libc::SYS_execveat,
            libc::SYS_ptrace,
            libc::SYS_process_vm_readv,
            libc::SYS_process_vm_writev,
            libc::SYS_io_uring_setup,
            libc::SYS_bpf,
            libc::SYS_mount,
            libc::SYS_unshare,
            libc::SYS_setns,
            libc::SYS_setuid,
            libc::SYS_setresuid,
            libc::SYS_userfaultfd,
            libc::SYS_perf_event_open,
            libc::SYS_keyctl,
            libc::SYS_personality,
            libc::SYS_pidfd_getfd,
            libc::SYS_open_by_handle_at,
            libc::SYS_chroot,
            libc::SYS_pivot_root,
            libc::SYS_kill,
        ];
        for call in COMMON.iter().chain(OLDER).chain(DATA).chain(OLDER_DATA).chain(FETCH) {
            assert!(!out.contains(call), "system call {call}");
        }
    }

    /// A thread alone is confined, and by these filters alone: what the kernel refuses besides is not what is asked for.
    fn within<T: Send + 'static>(calls: Calls, what: impl FnOnce() -> T + Send + 'static) -> T {
        let arch = TargetArch::try_from(std::env::consts::ARCH).unwrap();
        let confined = move || {
            seccompiler::apply_filter(&allowed(calls, arch).unwrap()).unwrap();
            what()
        };
        std::thread::spawn(confined).join().unwrap()
    }

    #[test]
    fn processes_of_the_same_account_are_neither_signalled_nor_limited() {
        use rustix::process::{Pid, Resource, getrlimit, prlimit};
        // It ends with its standard input.
        let mut twin = std::process::Command::new("cat").stdin(std::process::Stdio::piped()).spawn().unwrap();
        let (id, pid) = (twin.id(), Pid::from_child(&twin));
        for calls in ALL {
            let [own, others] = within(calls, move || {
                let (socket, _other) = std::os::unix::net::UnixStream::pair().unwrap();
                let limit = getrlimit(Resource::Fsize);
                let limited = |whom| prlimit(whom, Resource::Fsize, limit).map_err(std::io::Error::from).map(drop);
                [(std::process::id(), None), (id, Some(pid))].map(|(id, pid)| {
                    let tried = Meddling::ALL.map(|meddling| meddling.attempt(id, &socket)).into_iter();
                    let errors = tried.chain([limited(pid)]).map(|tried| tried.err().and_then(|e| e.raw_os_error()));
                    errors.collect::<Vec<_>>()
                })
            });
            assert_eq!(own, [None, Some(libc::EPERM), Some(libc::EPERM), None], "{calls:?}");
            assert_eq!(others, [Some(libc::EPERM); 4], "{calls:?}");
        }
        drop(twin.stdin.take());
        assert!(twin.wait().unwrap().success());
    }

    #[test]
    fn a_data_process_connects_to_local_services_only_where_those_tell_names() {
        let directory = tempfile::tempdir().unwrap();
        let place = directory.path().join("service");
        let _service = std::os::unix::net::UnixListener::bind(&place).unwrap();
        let connected = |calls| {
            let place = place.clone();
            let tried = within(calls, move || std::os::unix::net::UnixStream::connect(place));
            tried.err().and_then(|error| error.raw_os_error())
        };
        assert_eq!((connected(Calls::Data), connected(Calls::DataWithServices)), (Some(libc::EPERM), None));
        assert_eq!(connected(Calls::Front), Some(libc::EPERM));
    }

    #[test]
    fn filters_fit_into_the_kernel() {
        let arch = TargetArch::try_from(std::env::consts::ARCH).unwrap();
        for calls in ALL {
            let length = allowed(calls, arch).unwrap().len();
            assert!(length < 4096, "BPF_MAXINSNS, {calls:?}: {length}");
        }
        assert!(no_clone3(arch).unwrap().len() < 50);
    }
}
