//! Taking over the configuration of `globus-gridftp-server`: its text in, ours out, and a word about everything that differs.
//!
//! Pure but for [`read`]. What the options mean is in [`options`], as its version 13.24 has them.

pub mod options;
mod rules;
mod text;
mod write;

pub use options::{Fate, OPTIONS, Row, Special};
pub use text::{LineFault, Setting, parse};
pub use write::take_over;

use std::path::Path;

use whimbrel_engine::{Fault, FaultCode};

use crate::small;

/// Longest file of settings, bytes: a real one has a few KiB.
const LONGEST: u64 = 1 << 20;

/// The settings in a file.
///
/// # Errors
/// Faults of the file; `InvalidArgument` for more than 1 MiB, and for lines that the real server refuses, too.
pub fn read(path: &Path) -> Result<Vec<Setting>, Fault> {
    const OP: &str = "read settings";
    let text = small::read(path, OP, LONGEST)?;
    parse(&String::from_utf8_lossy(&text)).map_err(|fault| {
        let refused = Fault::new(FaultCode::InvalidArgument, OP).subject(path.display().to_string());
        refused.detail(format!("{fault} (the real server does not start with this either)"))
    })
}

/// Our configuration, and what became of theirs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Imported {
    /// TOML for `whimbrel dtn --config`.
    pub toml: String,
    /// In the order of their text; environment variables among them.
    pub remarks: Vec<Remark>,
}

/// Something that is not as it was.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Remark {
    /// How much it matters.
    pub weight: Weight,
    /// Where it stands, as in `/etc/gridftp.conf:12`; empty for what holds without being written.
    pub place: String,
    /// Their option, or `$VARIABLE`.
    pub option: String,
    /// What became of it, and what to do.
    pub text: String,
}

/// How much a difference matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Weight {
    /// Nothing is lost.
    Note,
    /// Taken over, but not quite the same.
    Differs,
    /// Not taken over.
    Missing,
    /// Not taken over, and without it more is allowed than before.
    Open,
}

impl Weight {
    /// The word in front of a remark.
    pub fn word(self) -> &'static str {
        match self {
            Self::Note => "note",
            Self::Differs => "differs",
            Self::Missing => "not taken over",
            Self::Open => "NOT TAKEN OVER, allows more than before",
        }
    }
}

impl Imported {
    /// True if everything that counts was taken over.
    pub fn is_complete(&self) -> bool {
        self.remarks.iter().all(|remark| remark.weight < Weight::Missing)
    }
}

/// Whether the real server reads a file of its configuration directory: neither hidden ones nor backups.
pub fn is_read(file_name: &str) -> bool {
    let backups = [".bak", ".dpkg-dist", ".dpkg-new", ".dpkg-old", ".rpmnew", ".rpmsave"];
    !file_name.starts_with('.') && !file_name.ends_with('~') && !backups.iter().any(|end| file_name.ends_with(end))
}
