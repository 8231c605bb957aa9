//! Processes that are no use without the one that started them.

use whimbrel_engine::{Fault, FaultCode, Side};

const OP: &str = "follow the parent process";

/// Makes the kernel kill this process when the thread that started it ends, however it ends.
pub fn end_with_parent() -> Result<(), Fault> {
    let failed = |error: rustix::io::Errno| Fault::from_io(error.into(), OP);
    let parent = rustix::process::getppid();
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL)).map_err(failed)?;
    if rustix::process::getppid() != parent {
        return Err(Fault::new(FaultCode::InvalidArgument, OP).side(Side::Us).detail("it has ended"));
    }
    Ok(())
}
