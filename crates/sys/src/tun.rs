//! TUN devices, for the laboratory's user-space links.
//!
//! A device opened here belongs to the network namespace of the calling thread and disappears with its last descriptor.
//! With [`Offload::Segments`] the kernel hands over whole TCP segments of up to 64 KiB behind a `virtio_net_hdr`
//! (Linux `Documentation/networking/tuntap.rst`), which is what lets a user-space link carry gigabits.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::OpenOptionsExt;

/// Bytes of `virtio_net_hdr` before every packet read from or written to a [`Tun`].
pub const VNET_HEADER_BYTES: usize = 12;

/// What the reader of a device promises to finish for the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offload {
    /// Checksums may be missing; packets are at most one MTU long.
    Checksum,
    /// Checksums may be missing and TCP arrives in segments of up to 64 KiB, larger than the MTU.
    Segments,
}

/// A layer-3 network device whose packets are read and written by this process; non-blocking.
#[derive(Debug)]
pub struct Tun {
    file: File,
}

/// `struct ifreq` as `TUNSETIFF` reads it: a name, flags, and padding up to the size of the kernel's union.
#[repr(C)]
struct InterfaceRequest {
    name: [u8; libc::IFNAMSIZ],
    flags: libc::c_short,
    padding: [u8; 22],
}

impl Tun {
    /// Creates the device `name` (1 to 15 bytes) in the calling thread's network namespace.
    ///
    /// Needs `CAP_NET_ADMIN`. Errors: a bad name, a name in use, no `/dev/net/tun`, no permission.
    pub fn create(name: &str, offload: Offload) -> io::Result<Tun> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(libc::O_NONBLOCK | libc::O_CLOEXEC)
            .open("/dev/net/tun")?;
        let mut request = InterfaceRequest {
            name: [0; libc::IFNAMSIZ],
            flags: (libc::IFF_TUN | libc::IFF_NO_PI | libc::IFF_VNET_HDR) as libc::c_short,
            padding: [0; 22],
        };
        if name.is_empty() || name.len() >= libc::IFNAMSIZ || name.contains('\0') {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("interface name {name:?} is not 1 to 15 bytes"),
            ));
        }
        request.name[..name.len()].copy_from_slice(name.as_bytes());
        // SAFETY: TUNSETIFF reads and writes one `struct ifreq`, which `request` has the size and layout of, and the
        // pointer is valid for the call.
        check(unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETIFF as _, &raw mut request) })?;
        let header = VNET_HEADER_BYTES as libc::c_int;
        // SAFETY: TUNSETVNETHDRSZ reads one `int` through a pointer that is valid for the call.
        check(unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETVNETHDRSZ as _, &raw const header) })?;
        let tun = Tun { file };
        tun.set_offload(offload)?;
        Ok(tun)
    }

    /// Changes what the kernel may leave to the reader, from the next packet on.
    pub fn set_offload(&self, offload: Offload) -> io::Result<()> {
        let features = match offload {
            Offload::Checksum => libc::TUN_F_CSUM,
            Offload::Segments => libc::TUN_F_CSUM | libc::TUN_F_TSO4 | libc::TUN_F_TSO6 | libc::TUN_F_TSO_ECN,
        };
        // SAFETY: TUNSETOFFLOAD takes its argument by value; no memory is touched.
        check(unsafe { libc::ioctl(self.file.as_raw_fd(), libc::TUNSETOFFLOAD as _, libc::c_ulong::from(features)) })
    }

    /// Reads one packet with its header; `None` when none is waiting. A packet longer than `buffer` is cut short.
    pub fn receive(&self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        match (&self.file).read(buffer) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Writes one packet, header first, as [`Tun::receive`] gives it.
    pub fn send(&self, packet: &[u8]) -> io::Result<()> {
        (&self.file).write(packet).map(|_| ())
    }
}

impl AsFd for Tun {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

fn check(result: libc::c_int) -> io::Result<()> {
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netns::NetNs;

    #[test]
    fn names_that_do_not_fit_are_refused_before_the_kernel_sees_them() {
        // Opening the device needs a privilege, so an unprivileged run can only see that error.
        for name in ["", "sixteen-bytes-xx", "nul\0"] {
            let error = Tun::create(name, Offload::Checksum).expect_err("must be refused");
            assert!(matches!(
                error.kind(),
                io::ErrorKind::InvalidInput | io::ErrorKind::PermissionDenied | io::ErrorKind::NotFound
            ));
        }
    }

    #[test]
    fn a_device_lives_in_the_namespace_of_its_maker_and_passes_packets() {
        if !crate::netns::may_create() {
            assert!(std::env::var_os("CI").is_none(), "CI must run as root");
            println!("skipped: needs CAP_SYS_ADMIN");
            return;
        }
        let space = NetNs::create().expect("namespace");
        let names = space.run(|| {
            let tun = Tun::create("probe", Offload::Segments).expect("tun");
            tun.set_offload(Offload::Checksum).expect("offload");
            assert!(tun.send(&[0; 4]).is_err(), "a packet shorter than its header is refused");
            assert_eq!(tun.receive(&mut [0; 64]).expect("receive"), None);
            std::fs::read_to_string("/proc/thread-self/net/dev").expect("list")
        });
        assert!(names.expect("entered").contains("probe:"));
        let outside = std::fs::read_to_string("/proc/thread-self/net/dev").expect("list");
        assert!(!outside.contains("probe:"));
    }
}
