//! From error numbers to faults.

use rustix::io::Errno;
use whimbrel_engine::{Fault, FaultCode};

use crate::path::StoragePath;

/// Turns an error number into a fault, naming the operation and the path.
pub(super) trait OrFault<T> {
    fn or_fault(self, op: &str, path: &StoragePath) -> Result<T, Fault>;
}

impl<T> OrFault<T> for rustix::io::Result<T> {
    fn or_fault(self, op: &str, path: &StoragePath) -> Result<T, Fault> {
        self.map_err(|errno| fault(errno, op, path))
    }
}

/// The fault for `errno`; only paths of the collection are ever named, never those of the host.
pub(super) fn fault(errno: Errno, op: &str, path: &StoragePath) -> Fault {
    let mut fault = Fault::from_io(errno.into(), op).on_path(path.as_bytes());
    // ENXIO: nobody has the other end of a pipe open, or the device is gone. EAGAIN: what would have to be waited for, as
    // the lease of another program on a file that is opened.
    if matches!(errno, Errno::NXIO | Errno::AGAIN) {
        fault.code = FaultCode::StorageBusy;
        fault.retry = FaultCode::StorageBusy.default_retry();
    }
    fault
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_would_have_to_be_waited_for_is_busy() {
        for errno in [Errno::NXIO, Errno::AGAIN] {
            let fault = fault(errno, "open", &StoragePath::root());
            assert_eq!((fault.code, fault.retry), (FaultCode::StorageBusy, FaultCode::StorageBusy.default_retry()));
        }
    }
}
