//! What a user asks of a task, in the words of the Transfer API's documents.

use serde::{Deserialize, Serialize};

use crate::pattern::{self, Syntax};
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
            .find(|rule| {
                rule.kind.is_none_or(|of| of == kind) && pattern::fits(rule.name.as_bytes(), name, Syntax::Plain)
            })
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
    /// A copy that cannot be proven fails: a collection demands proof.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub verify_required: bool,
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
    /// Most bytes per second, as a mean (an addition to the Transfer API); `None`: no bound.
    pub max_rate: Option<u64>,
    /// The one directory named is copied while programs write it, each file as it is complete (an addition to the Transfer API).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub follow: Option<Follow>,
}

/// How a directory is followed while it is written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Follow {
    /// Name of the file in it that says that nothing more comes; `None`: only the deadline or somebody ends it.
    pub until: Option<String>,
    /// A file is complete that did not change for so many seconds.
    pub settled_after_seconds: u32,
    /// Hidden and temporary names are copied, too.
    pub include_hidden: bool,
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
