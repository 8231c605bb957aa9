//! Confinement: what a process cannot do any more, even if it were taken over.
//!
//! Landlock names the files that it may reach, seccomp the system calls that it may make. Both hold for this process and all
//! it starts, for good. Where the kernel lacks one of them, the process runs without, and says so.

mod calls;
mod files;
pub mod helper;
mod needs;

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use whimbrel_engine::{Fault, FaultCode, Side};

pub use calls::Calls;

/// How much confinement the administrator wants.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Sandbox {
    /// As much as the kernel offers.
    #[default]
    Auto,
    /// All of it, or the server does not start.
    Require,
    /// None.
    Off,
}

impl std::str::FromStr for Sandbox {
    type Err = &'static str;

    fn from_str(word: &str) -> Result<Self, Self::Err> {
        match word {
            "auto" => Ok(Self::Auto),
            "require" => Ok(Self::Require),
            "off" => Ok(Self::Off),
            _ => Err("auto, require or off"),
        }
    }
}

/// What a process needs: everything else is closed to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Needs {
    /// Files and directories, with all below, to read. Missing ones are left out.
    pub read: Vec<PathBuf>,
    /// The same to read and change; nothing in them can be executed.
    pub write: Vec<PathBuf>,
    /// System calls.
    pub calls: Calls,
}

/// What became of one kind of confinement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Held {
    /// In force, completely.
    Full,
    /// In force as far as this kernel knows it.
    Partly,
    /// Not in force: the kernel does not know it.
    Unknown,
}

/// What confines this process from now on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Confinement {
    /// Of files, by Landlock.
    pub files: Held,
    /// Of system calls, by seccomp.
    pub calls: Held,
}

const OP: &str = "confine process";

/// Confines the calling thread and all threads and programs it starts from now on; call it before there are others.
///
/// Fails where a kernel that knows a kind of confinement refuses it; with [`Sandbox::Require`], also where it does not know it.
pub fn enter(needs: &Needs, wanted: Sandbox) -> Result<Option<Confinement>, Fault> {
    if wanted == Sandbox::Off {
        tracing::warn!("this process is not confined: the sandbox is switched off");
        return Ok(None);
    }
    rustix::thread::set_no_new_privs(true).map_err(|error| Fault::from_io(error.into(), OP).side(Side::Us))?;
    let held = Confinement { files: files::restrict(needs)?, calls: calls::restrict(needs.calls)? };
    if held == (Confinement { files: Held::Full, calls: Held::Full }) {
        tracing::debug!("confined: files by Landlock, system calls by seccomp");
        return Ok(Some(held));
    }
    if wanted == Sandbox::Require {
        let fault = Fault::new(FaultCode::NotSupported, OP).side(Side::Us);
        return Err(fault.detail(format!("this kernel does not confine all that it should: {held:?}")));
    }
    tracing::warn!(?held, "this kernel confines processes only in part");
    Ok(Some(held))
}

/// Keeps this process's memory out of core files; the programs that it starts may allow themselves theirs again.
pub fn keep_out_of_core_files() -> Result<(), Fault> {
    let (kind, limit) = (rustix::process::Resource::Core, rustix::process::getrlimit(rustix::process::Resource::Core));
    let none = rustix::process::Rlimit { current: Some(0), ..limit };
    rustix::process::setrlimit(kind, none)
        .map_err(|error| Fault::from_io(error.into(), "protect memory").side(Side::Us))
}

/// Keeps other processes of the same account out of this one's memory, and its memory out of core files.
pub fn keep_secrets() -> Result<(), Fault> {
    let failed = |error: rustix::io::Errno| Fault::from_io(error.into(), "protect memory").side(Side::Us);
    rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable).map_err(failed)?;
    let none = rustix::process::Rlimit { current: Some(0), maximum: Some(0) };
    rustix::process::setrlimit(rustix::process::Resource::Core, none).map_err(failed)
}
