//! The plan for people and programs.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::Action;
use crate::units::ByteCount;

/// `path` for people: UTF-8 as it is, backslash doubled, control characters and other bytes as `\xHH`.
pub fn quote_path(path: &[u8]) -> String {
    let mut text = String::with_capacity(path.len());
    for chunk in path.utf8_chunks() {
        for c in chunk.valid().chars() {
            match c {
                '\\' => text.push_str("\\\\"),
                c if c.is_control() => push_escaped(&mut text, c.encode_utf8(&mut [0; 4])),
                c => text.push(c),
            }
        }
        push_escaped(&mut text, chunk.invalid());
    }
    text
}

fn push_escaped(text: &mut String, bytes: impl AsRef<[u8]>) {
    use fmt::Write as _;
    for byte in bytes.as_ref() {
        write!(text, "\\x{byte:02x}").expect("writing to a string cannot fail");
    }
}

/// One line for `--dry-run`.
impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let item = self.item();
        let source = quote_path(&item.source);
        let destination = quote_path(&item.destination);
        match self {
            Self::MakeDirectory { .. } => write!(f, "mkdir    {destination}"),
            Self::Copy { .. } => write!(f, "copy     {source} -> {destination}{}", Size(item.size)),
            Self::CompareChecksum { .. } | Self::CompareOnly { .. } => {
                write!(f, "compare  {source} -> {destination}{}", Size(item.size))
            }
            Self::Symlink { target, .. } => {
                write!(f, "symlink  {destination} -> {}", quote_path(target))
            }
            Self::SetAttributes { .. } => write!(f, "set      {destination}"),
            Self::Skip { reason, .. } => write!(f, "skip     {source}: {reason}"),
            Self::Refuse { fault, .. } => write!(f, "refuse   {source}: {fault}"),
        }
    }
}

struct Size(Option<u64>);

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(size) => write!(f, " ({})", ByteCount(size)),
            None => write!(f, " (size unknown)"),
        }
    }
}

/// What a plan adds up to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct PlanTotals {
    /// Files to copy.
    pub files: u64,
    /// Bytes to copy, of the files whose size is known.
    pub bytes: u64,
    /// Files to compare first, copied only if they differ.
    pub compares: u64,
    /// Bytes of the files to compare first.
    pub compare_bytes: u64,
    /// Directories to make.
    pub directories: u64,
    /// Symbolic links to make.
    pub symlinks: u64,
    /// Items left as they are.
    pub skipped: u64,
    /// Items that cannot be copied.
    pub refused: u64,
    /// Files to copy whose size is unknown.
    pub unknown_sizes: u64,
}

impl PlanTotals {
    /// Counts one action.
    pub fn add(&mut self, action: &Action) {
        let size = action.item().size;
        match action {
            Action::MakeDirectory { .. } => self.directories += 1,
            Action::Copy { .. } => {
                self.files += 1;
                self.bytes = self.bytes.saturating_add(size.unwrap_or(0));
                self.unknown_sizes += u64::from(size.is_none());
            }
            Action::CompareChecksum { .. } | Action::CompareOnly { .. } => {
                self.compares += 1;
                self.compare_bytes = self.compare_bytes.saturating_add(size.unwrap_or(0));
            }
            Action::Symlink { .. } => self.symlinks += 1,
            Action::SetAttributes { .. } => {}
            Action::Skip { .. } => self.skipped += 1,
            Action::Refuse { .. } => self.refused += 1,
        }
    }
}

/// The last line of `--dry-run`.
impl fmt::Display for PlanTotals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} files to copy, {}", self.files, ByteCount(self.bytes))?;
        if self.unknown_sizes > 0 {
            write!(f, " and {} of unknown size", self.unknown_sizes)?;
        }
        let others = [
            (self.compares, "to compare"),
            (self.directories, "directories"),
            (self.symlinks, "links"),
            (self.skipped, "skipped"),
            (self.refused, "refused"),
        ];
        for (count, what) in others.into_iter().filter(|(count, _)| *count > 0) {
            write!(f, ", {count} {what}")?;
        }
        Ok(())
    }
}
