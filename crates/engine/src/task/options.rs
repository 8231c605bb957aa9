//! What a user asks of a task, in the words of the Transfer API's documents.

use serde::{Deserialize, Serialize};

use crate::plan::SyncLevel;

/// What is done with symbolic links met in directories.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Symlinks {
    /// They are left out.
    #[default]
    Ignore,
    /// They are made again at the destination.
    Keep,
    /// What they point to is copied.
    Copy,
}

/// What a filter rule does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FilterMethod {
    /// The item is taken.
    Include,
    /// The item is left out, a directory with all that is in it.
    Exclude,
}

/// What a filter rule is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FilterType {
    /// Files, and links where they are kept.
    File,
    /// Directories.
    Dir,
}

/// One rule about what is met in directories.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FilterRule {
    /// What it does.
    pub method: FilterMethod,
    /// What it is about; `None`: both.
    #[serde(default, rename = "type")]
    pub kind: Option<FilterType>,
    /// A pattern for the item's name (not its path): `*`, `?`, `[abc]`, `[a-z]`, `[!a]`.
    pub name: String,
}

/// Rules in their order.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Filter(pub Vec<FilterRule>);

impl Filter {
    /// Whether an item met in a directory is taken: the first rule that matches decides, and without one it is.
    pub fn takes(&self, kind: FilterType, name: &[u8]) -> bool {
        self.0
            .iter()
            .find(|rule| rule.kind.is_none_or(|of| of == kind) && fits_pattern(rule.name.as_bytes(), name))
            .is_none_or(|rule| rule.method == FilterMethod::Include)
    }
}

/// Hints of users about performance; they bound what is chosen by measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Perf {
    /// Files at once.
    pub concurrency: Option<u32>,
    /// Data channels for each file.
    pub parallelism: Option<u32>,
    /// Small files in flight on each session.
    pub pipelining: Option<u32>,
}

/// How a transfer is to be done.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct TransferOptions {
    /// When a file that is at the destination is copied again.
    pub sync: SyncLevel,
    /// Copies are proven by a checksum, and moved again where it differs.
    pub verify: bool,
    /// Copies get the modification times of their sources.
    pub preserve_times: bool,
    /// Copies get the permission bits of their sources (an addition to the Transfer API).
    pub preserve_modes: bool,
    /// Data are encrypted on their way.
    pub encrypt: bool,
    /// Items that are missing or cannot be read are left out and listed, instead of failing the task.
    pub skip_source_errors: bool,
    /// A used-up quota ends the task at once.
    pub fail_on_quota_errors: bool,
    /// What the source does not have is deleted at the destination, in directories that are copied whole.
    pub delete_extra: bool,
    /// Sources are deleted once their copies are proven (an addition to the Transfer API).
    pub move_source: bool,
    /// Symbolic links met in directories.
    pub symlinks: Symlinks,
    /// Which items met in directories are taken.
    pub filter: Filter,
    /// Hints.
    pub perf: Perf,
}

/// How a deletion is to be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct DeleteOptions {
    /// Directories are deleted with all that is in them; without it they are refused.
    pub recursive: bool,
    /// What is not there counts as deleted.
    pub ignore_missing: bool,
    /// The last component of paths may hold `*`, `?` and `[abc]`.
    pub globs: bool,
}

/// What a file must be, by the user's own knowledge.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExternalChecksum {
    /// In lower case: `md5`, `sha256`.
    pub algorithm: String,
    /// In lower-case hexadecimal digits.
    pub digest: String,
}

/// Whether `name` fits `pattern` whole; linear in both but for the stars.
pub fn fits_pattern(pattern: &[u8], name: &[u8]) -> bool {
    let (mut p, mut n) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while n < name.len() {
        match one(&pattern[p..], name[n]) {
            Step::Star => {
                star = Some((p + 1, n));
                p += 1;
            }
            Step::Fits(length) => {
                p += length;
                n += 1;
            }
            Step::Differs => {
                // The last star takes one byte more.
                let Some((after, taken)) = star else { return false };
                star = Some((after, taken + 1));
                (p, n) = (after, taken + 1);
            }
        }
    }
    pattern[p..].iter().all(|&byte| byte == b'*')
}

enum Step {
    Star,
    Fits(usize),
    Differs,
}

/// What the pattern's first part says of one byte.
fn one(pattern: &[u8], byte: u8) -> Step {
    match pattern.first() {
        None => Step::Differs,
        Some(b'*') => Step::Star,
        Some(b'?') => Step::Fits(1),
        Some(b'[') => match class(pattern) {
            Some((set, negated, length)) if is_in(set, byte) != negated => Step::Fits(length),
            Some(_) => Step::Differs,
            // A bracket without its end is a bracket.
            None if byte == b'[' => Step::Fits(1),
            None => Step::Differs,
        },
        Some(&plain) if plain == byte => Step::Fits(1),
        Some(_) => Step::Differs,
    }
}

/// The inside of a bracket, whether it is negated, and the length of the whole.
fn class(pattern: &[u8]) -> Option<(&[u8], bool, usize)> {
    let negated = pattern.get(1) == Some(&b'!');
    let start = 1 + usize::from(negated);
    // A closing bracket that comes first is one of the set.
    let end = pattern.iter().enumerate().skip(start + 1).find(|(_, byte)| **byte == b']')?.0;
    Some((&pattern[start..end], negated, end + 1))
}

fn is_in(set: &[u8], byte: u8) -> bool {
    let mut rest = set;
    while let Some((&first, after)) = rest.split_first() {
        if let [b'-', last, ..] = after {
            if (first..=*last).contains(&byte) {
                return true;
            }
            rest = &after[2..];
        } else if first == byte {
            return true;
        } else {
            rest = after;
        }
    }
    false
}
