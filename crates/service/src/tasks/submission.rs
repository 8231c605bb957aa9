//! Reads the documents with which transfers and deletions are submitted (Transfer API 0.10, `transfer` and `delete`).
//!
//! Unknown fields are ignored, as clients add what newer servers know; what is absent has the API's default.

use std::collections::HashSet;

use serde::Deserialize;
use serde_json::Value;
use sha2::{Digest as _, Sha256};
use uuid::Uuid;
use whimbrel_engine::dispatch::WorkItem;
use whimbrel_engine::listing::Timestamp;
use whimbrel_engine::plan::SyncLevel;
use whimbrel_engine::task::{
    DeleteOptions, ExternalChecksum, Filter, FilterRule, Follow, Perf, Symlinks, TransferOptions, inside, normal,
};

use crate::clock;
use crate::task::{Notify, TaskWork};

/// Why a document is refused: always the submitter's to mend.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Invalid {
    /// The API's code.
    pub code: &'static str,
    /// Words for people.
    pub message: String,
}

fn bad(message: impl Into<String>) -> Invalid {
    Invalid { code: "ClientError.BadRequest", message: message.into() }
}

/// Longest label, characters.
const LONGEST_LABEL: usize = 128;

/// Most items of one submission.
pub const MOST_ITEMS: usize = 1_000_000;

/// Longest pattern of a filter rule, bytes.
const LONGEST_PATTERN: usize = 256;

/// Most filter rules.
const MOST_RULES: usize = 1000;

/// A submission before anybody looked up its collections.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Draft {
    /// What makes it the same one when it is repeated.
    pub submission: Uuid,
    /// What is to be done.
    pub work: TaskWork,
    /// The collection of the sources, or where is deleted.
    pub source: Uuid,
    /// The destination's collection; `None` for deletions.
    pub destination: Option<Uuid>,
    /// What the user calls it.
    pub label: Option<String>,
    /// When it expires; `None`: the service's default.
    pub deadline: Option<Timestamp>,
    /// The mails wanted.
    pub notify: Notify,
    /// Account at the source that the user chose.
    pub source_local_user: Option<String>,
    /// Account at the destination that the user chose.
    pub destination_local_user: Option<String>,
    /// Whether the directory that all items lie in is to be kept.
    pub base_path_info: bool,
    /// What was named, paths as the user wrote them.
    items: Vec<DraftItem>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct DraftItem {
    source: String,
    destination: String,
    recursive: Option<bool>,
    symlink: bool,
    checksum: Option<ExternalChecksum>,
}

/// Where paths of a collection lead.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ground {
    /// The collection's root at its servers.
    pub base: String,
    /// Where `~` and relative paths begin: a normal path in the collection.
    pub default_directory: String,
    /// Names of the storage that it is a part of: its deployment, and servers. Grounds that share one are one storage.
    pub storage: Vec<String>,
}

impl Ground {
    fn is_of(&self, other: &Self) -> bool {
        self.storage.iter().any(|name| other.storage.contains(name))
    }
}

/// The items of a submission on their servers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placed {
    /// In the submission's order.
    pub items: Vec<WorkItem>,
    /// Paths in the source's collection (or where is deleted), normal.
    pub sources: Vec<String>,
    /// Paths in the destination's collection, normal; empty for deletions.
    pub destinations: Vec<String>,
    /// See [`crate::task::Wanted::fingerprint`].
    pub fingerprint: String,
}

#[derive(Deserialize)]
struct TransferDocument {
    #[serde(rename = "DATA", default)]
    data: Vec<Value>,
    source_endpoint: Uuid,
    destination_endpoint: Uuid,
    submission_id: Uuid,
    label: Option<String>,
    sync_level: Option<u8>,
    #[serde(default)]
    verify_checksum: bool,
    #[serde(default)]
    preserve_timestamp: bool,
    #[serde(default)]
    preserve_mode: bool,
    #[serde(default)]
    encrypt_data: bool,
    #[serde(default)]
    skip_source_errors: bool,
    #[serde(default)]
    fail_on_quota_errors: bool,
    #[serde(default)]
    delete_destination_extra: bool,
    #[serde(default)]
    delete_source: bool,
    recursive_symlinks: Option<Symlinks>,
    filter_rules: Option<Vec<Value>>,
    #[serde(default)]
    store_base_path_info: bool,
    source_local_user: Option<String>,
    destination_local_user: Option<String>,
    perf_cc: Option<u32>,
    perf_p: Option<u32>,
    perf_pp: Option<u32>,
    max_rate: Option<u64>,
    whimbrel_follow: Option<FollowDocument>,
    /// That copies which cannot be verified fail: an addition to the Transfer API.
    #[serde(default)]
    whimbrel_verify_required: bool,
}

/// That the one directory named is copied while it is written: an addition to the Transfer API.
#[derive(Deserialize)]
struct FollowDocument {
    until: Option<String>,
    settled_after_seconds: Option<u32>,
    #[serde(default)]
    include_hidden: bool,
}

/// What transfers and deletions have in common.
#[derive(Deserialize)]
struct CommonDocument {
    deadline: Option<String>,
    notify_on_succeeded: Option<bool>,
    notify_on_failed: Option<bool>,
    notify_on_inactive: Option<bool>,
}

#[derive(Deserialize)]
struct ItemDocument {
    source_path: String,
    destination_path: String,
    recursive: Option<bool>,
    external_checksum: Option<String>,
    checksum_algorithm: Option<String>,
}

#[derive(Deserialize)]
struct DeleteDocument {
    #[serde(rename = "DATA", default)]
    data: Vec<Value>,
    endpoint: Uuid,
    submission_id: Uuid,
    label: Option<String>,
    #[serde(default)]
    recursive: bool,
    #[serde(default)]
    ignore_missing: bool,
    #[serde(default)]
    interpret_globs: bool,
    local_user: Option<String>,
}

#[derive(Deserialize)]
struct DeleteItemDocument {
    path: String,
}

/// Reads a `transfer` document.
///
/// # Errors
/// A field is missing or cannot be what it says; there are no items, or too many.
pub fn read_transfer(document: &Value) -> Result<Draft, Invalid> {
    expect_type(document, "transfer")?;
    let read: TransferDocument = parse(document, "transfer")?;
    let common: CommonDocument = parse(document, "transfer")?;
    let options = transfer_options(&read)?;
    let items = read_items(&read.data, transfer_item)?;
    if options.follow.is_some() {
        followed(&options, &items)?;
    }
    Ok(Draft {
        items,
        submission: read.submission_id,
        source: read.source_endpoint,
        destination: Some(read.destination_endpoint),
        label: label(read.label)?,
        deadline: deadline(common.deadline.as_deref())?,
        notify: common.notify(),
        source_local_user: account(read.source_local_user)?,
        destination_local_user: account(read.destination_local_user)?,
        base_path_info: read.store_base_path_info,
        work: TaskWork::Transfer(Box::new(options)),
    })
}

/// Reads a `delete` document.
///
/// # Errors
/// As [`read_transfer`].
pub fn read_delete(document: &Value) -> Result<Draft, Invalid> {
    expect_type(document, "delete")?;
    let read: DeleteDocument = parse(document, "delete")?;
    let common: CommonDocument = parse(document, "delete")?;
    let options =
        DeleteOptions { recursive: read.recursive, ignore_missing: read.ignore_missing, globs: read.interpret_globs };
    Ok(Draft {
        items: read_items(&read.data, delete_item)?,
        submission: read.submission_id,
        source: read.endpoint,
        destination: None,
        label: label(read.label)?,
        deadline: deadline(common.deadline.as_deref())?,
        notify: common.notify(),
        source_local_user: account(read.local_user)?,
        destination_local_user: None,
        base_path_info: false,
        work: TaskWork::Delete(options),
    })
}

fn parse<'a, T: Deserialize<'a>>(document: &'a Value, what: &str) -> Result<T, Invalid> {
    fields(document).map_err(|error| bad(format!("{what}: {error}")))
}

/// Reads an object by the names of its fields; a list of values, in whatever order, is none.
fn fields<'a, T: Deserialize<'a>>(value: &'a Value) -> Result<T, String> {
    if !value.is_object() {
        return Err("it is no object with named fields".into());
    }
    T::deserialize(value).map_err(|error| error.to_string())
}

/// A document may say what it is; what it says must be true.
fn expect_type(document: &Value, expected: &str) -> Result<(), Invalid> {
    match document.get("DATA_TYPE") {
        None | Some(Value::Null) => Ok(()),
        Some(Value::String(said)) if said == expected => Ok(()),
        Some(said) => Err(bad(format!("DATA_TYPE is {said}, not \"{expected}\""))),
    }
}

fn transfer_options(read: &TransferDocument) -> Result<TransferOptions, Invalid> {
    if read.delete_source && !read.verify_checksum {
        return Err(bad("delete_source needs verify_checksum: a source is deleted only once its copy is proven"));
    }
    if read.whimbrel_verify_required && !read.verify_checksum {
        return Err(bad("whimbrel_verify_required needs verify_checksum"));
    }
    if read.max_rate == Some(0) {
        return Err(bad("max_rate is at least one byte a second"));
    }
    Ok(TransferOptions {
        sync: sync_level(read.sync_level)?,
        verify: read.verify_checksum,
        verify_required: read.whimbrel_verify_required,
        preserve_times: read.preserve_timestamp,
        preserve_modes: read.preserve_mode,
        encrypt: read.encrypt_data,
        skip_source_errors: read.skip_source_errors,
        fail_on_quota_errors: read.fail_on_quota_errors,
        delete_extra: read.delete_destination_extra,
        move_source: read.delete_source,
        symlinks: read.recursive_symlinks.unwrap_or_default(),
        filter: filter(read.filter_rules.as_deref().unwrap_or_default())?,
        perf: Perf { concurrency: read.perf_cc, parallelism: read.perf_p, pipelining: read.perf_pp },
        max_rate: read.max_rate,
        follow: read.whimbrel_follow.as_ref().map(follow).transpose()?,
    })
}

/// Seconds without change after which a followed file is complete, where nobody says otherwise, and the most.
const SETTLED_AFTER: u32 = 10;
const MOST_SETTLED_AFTER: u32 = 86_400;

fn follow(read: &FollowDocument) -> Result<Follow, Invalid> {
    let is_name = |name: &String| (1..=255).contains(&name.len()) && !name.contains(['/', '\0', '\r', '\n']);
    if read.until.as_ref().is_some_and(|name| !is_name(name) || matches!(&name[..], "." | "..")) {
        return Err(bad("whimbrel_follow: until is the name of a file in the directory, not a path"));
    }
    let seconds = read.settled_after_seconds.unwrap_or(SETTLED_AFTER);
    if !(1..=MOST_SETTLED_AFTER).contains(&seconds) {
        return Err(bad(format!("whimbrel_follow: settled_after_seconds is between 1 and {MOST_SETTLED_AFTER}")));
    }
    let (until, include_hidden) = (read.until.clone(), read.include_hidden);
    Ok(Follow { until, settled_after_seconds: seconds, include_hidden })
}

/// Refuses what cannot be said of a directory that is followed.
fn followed(options: &TransferOptions, items: &[DraftItem]) -> Result<(), Invalid> {
    let is_directory = |item: &DraftItem| item.recursive != Some(false) && !item.symlink && item.checksum.is_none();
    if !matches!(items, [item] if is_directory(item)) {
        return Err(bad("whimbrel_follow is about exactly one directory"));
    }
    let said = [
        ("sync_level", options.sync != SyncLevel::None),
        ("delete_destination_extra", options.delete_extra),
        ("delete_source", options.move_source),
        ("skip_source_errors", options.skip_source_errors),
        ("filter_rules", !options.filter.0.is_empty()),
    ];
    match said.into_iter().find(|(_, is_said)| *is_said) {
        Some((name, _)) => Err(bad(format!("whimbrel_follow does not go with {name}"))),
        None => Ok(()),
    }
}

fn sync_level(level: Option<u8>) -> Result<SyncLevel, Invalid> {
    match level {
        None => Ok(SyncLevel::None),
        Some(0) => Ok(SyncLevel::Exists),
        Some(1) => Ok(SyncLevel::Size),
        Some(2) => Ok(SyncLevel::Mtime),
        Some(3) => Ok(SyncLevel::Checksum),
        Some(other) => Err(bad(format!("sync_level is 0, 1, 2 or 3, not {other}"))),
    }
}

fn filter(rules: &[Value]) -> Result<Filter, Invalid> {
    if rules.len() > MOST_RULES {
        return Err(bad(format!("there are {} filter rules, more than {MOST_RULES}", rules.len())));
    }
    let rules: Vec<FilterRule> = rules.iter().map(filter_rule).collect::<Result<_, _>>()?;
    let is_pattern = |rule: &&FilterRule| (1..=LONGEST_PATTERN).contains(&rule.name.len()) && !rule.name.contains('/');
    match rules.iter().find(|rule| !is_pattern(rule)) {
        None => Ok(Filter(rules)),
        Some(rule) => Err(bad(format!(
            "the name of a filter rule is a pattern for names of 1 to {LONGEST_PATTERN} bytes without a slash, not {:?}",
            rule.name.chars().take(LONGEST_PATTERN).collect::<String>()
        ))),
    }
}

fn filter_rule(rule: &Value) -> Result<FilterRule, Invalid> {
    expect_type(rule, "filter_rule")?;
    parse(rule, "filter_rules")
}

fn read_items(data: &[Value], read: impl Fn(&Value) -> Result<DraftItem, String>) -> Result<Vec<DraftItem>, Invalid> {
    if data.is_empty() {
        let message = "DATA is empty: there is nothing to do".into();
        return Err(Invalid { code: "ClientError.BadRequest.NoTransferItems", message });
    }
    if data.len() > MOST_ITEMS {
        return Err(bad(format!("DATA has {} items, more than {MOST_ITEMS}: name directories", data.len())));
    }
    let numbered = |(place, value)| read(value).map_err(|error| bad(format!("DATA[{place}]: {error}")));
    data.iter().enumerate().map(numbered).collect()
}

fn transfer_item(value: &Value) -> Result<DraftItem, String> {
    let read: ItemDocument = fields(value)?;
    let symlink = match value.get("DATA_TYPE").unwrap_or(&Value::Null) {
        Value::Null => false,
        said if said == "transfer_item" => false,
        said if said == "transfer_symlink_item" => true,
        other => return Err(format!("no item is of type {other}")),
    };
    let checksum = checksum(&read)?;
    if checksum.is_some() && (read.recursive == Some(true) || symlink) {
        return Err("external_checksum is for a file".into());
    }
    Ok(DraftItem {
        source: read.source_path,
        destination: read.destination_path,
        recursive: read.recursive.or(checksum.is_some().then_some(false)),
        symlink,
        checksum,
    })
}

/// Hexadecimal digits of the digests that files may be compared with.
const DIGESTS: [(&str, usize); 8] = [
    ("md5", 32),
    ("sha1", 40),
    ("sha256", 64),
    ("sha384", 96),
    ("sha512", 128),
    ("crc32", 8),
    ("crc32c", 8),
    ("adler32", 8),
];

fn checksum(item: &ItemDocument) -> Result<Option<ExternalChecksum>, String> {
    let Some(digest) = &item.external_checksum else { return Ok(None) };
    let algorithm = item.checksum_algorithm.as_deref().unwrap_or("md5").to_ascii_lowercase().replace('-', "");
    let known = DIGESTS.iter().find(|(name, _)| *name == algorithm);
    let (_, digits) = known.ok_or_else(|| format!("checksum_algorithm {algorithm:?} is not known here"))?;
    let digest = digest.trim().to_ascii_lowercase();
    if digest.len() != *digits || !digest.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Err(format!("external_checksum: {algorithm} has {digits} hexadecimal digits"));
    }
    Ok(Some(ExternalChecksum { algorithm, digest }))
}

fn delete_item(value: &Value) -> Result<DraftItem, String> {
    expect_type(value, "delete_item").map_err(|invalid| invalid.message)?;
    let read: DeleteItemDocument = fields(value)?;
    Ok(DraftItem { source: read.path, destination: String::new(), recursive: None, symlink: false, checksum: None })
}

/// Reads a label: one line without blanks at its ends; an empty one is none.
///
/// # Errors
/// It is something else.
pub fn label(label: Option<String>) -> Result<Option<String>, Invalid> {
    let Some(label) = label.filter(|label| !label.is_empty()) else { return Ok(None) };
    let fits = label.chars().count() <= LONGEST_LABEL && label.trim() == label && !label.chars().any(char::is_control);
    if fits {
        return Ok(Some(label));
    }
    Err(bad(format!(
        "label is one line of at most {LONGEST_LABEL} characters, without blanks at its beginning and end"
    )))
}

/// Reads a deadline.
///
/// # Errors
/// It is no time.
pub fn deadline(text: Option<&str>) -> Result<Option<Timestamp>, Invalid> {
    let Some(text) = text else { return Ok(None) };
    let time = clock::parse(text);
    time.map(Some).ok_or_else(|| bad(format!("deadline {text:?} is no time as in 2027-01-31 12:00:00")))
}

impl CommonDocument {
    fn notify(&self) -> Notify {
        Notify {
            succeeded: self.notify_on_succeeded.unwrap_or(true),
            failed: self.notify_on_failed.unwrap_or(true),
            inactive: self.notify_on_inactive.unwrap_or(true),
        }
    }
}

fn account(name: Option<String>) -> Result<Option<String>, Invalid> {
    let Some(name) = name.filter(|name| !name.is_empty()) else { return Ok(None) };
    let fits = name.len() <= 255 && name.bytes().all(|byte| byte.is_ascii_graphic()) && !name.contains(['/', ':']);
    if fits { Ok(Some(name)) } else { Err(bad("a local user's name is one word")) }
}

impl Draft {
    /// Puts the items on their servers.
    ///
    /// # Errors
    /// A path leaves its collection; two items go to one place, or one into the mirror of another; a directory is copied into
    /// itself; a collection would be deleted whole.
    pub fn place(&self, source: &Ground, destination: Option<&Ground>) -> Result<Placed, Invalid> {
        let mut placed =
            Placed { items: Vec::new(), sources: Vec::new(), destinations: Vec::new(), fingerprint: String::new() };
        let mut taken = HashSet::with_capacity(self.items.len());
        for (number, item) in (1..).zip(&self.items) {
            let from = self.normal(source, &item.source)?;
            let to = destination.map(|ground| self.normal(ground, &item.destination)).transpose()?;
            if let (Some(to), Some(ground)) = (&to, destination.filter(|ground| ground.is_of(source))) {
                refuse_loops((source, &from), (ground, to), item)?;
            }
            let key = to.as_deref().unwrap_or(&from).trim_end_matches('/').to_owned();
            if !taken.insert(key) {
                return Err(bad(format!("{} is named twice", to.unwrap_or(from))));
            }
            placed.items.push(WorkItem {
                number,
                source: inside(&source.base, &from).into_bytes(),
                destination: match (&to, destination) {
                    (Some(to), Some(ground)) => inside(&ground.base, to).into_bytes(),
                    _ => Vec::new(),
                },
                recursive: item.recursive,
                symlink: item.symlink,
                checksum: item.checksum.clone(),
            });
            placed.sources.push(from);
            placed.destinations.extend(to);
        }
        self.refuse_nested(&placed)?;
        placed.fingerprint = self.fingerprint(&placed);
        Ok(placed)
    }

    /// What the source does not have is deleted at each directory's destination: no other item may lie in there.
    fn refuse_nested(&self, placed: &Placed) -> Result<(), Invalid> {
        if !matches!(&self.work, TaskWork::Transfer(options) if options.delete_extra) {
            return Ok(());
        }
        let places = || placed.destinations.iter().map(|path| path.trim_end_matches('/'));
        let may_be_directory = placed.items.iter().map(|item| item.recursive != Some(false));
        let mirrors: HashSet<&str> =
            places().zip(may_be_directory).filter_map(|(path, may)| may.then_some(path)).collect();
        for path in places() {
            let mut above = path;
            while let Some((directory, _)) = above.rsplit_once('/') {
                if mirrors.contains(directory) {
                    return Err(bad(format!(
                        "{path} lies in {directory}/, where delete_destination_extra deletes what its own source does not have"
                    )));
                }
                above = directory;
            }
        }
        Ok(())
    }

    fn normal(&self, ground: &Ground, path: &str) -> Result<String, Invalid> {
        let normal = normal(path, &ground.default_directory);
        let normal = normal.map_err(|error| bad(format!("{path:?}: {error}")))?;
        if self.destination.is_none() && normal == "/" {
            return Err(bad(format!("{path:?} is the collection itself, which is not deleted")));
        }
        Ok(normal)
    }

    /// The same for the same paths, in whatever order they are named, with or without slashes at their ends.
    fn fingerprint(&self, placed: &Placed) -> String {
        let mut digest = Sha256::new();
        digest.update(self.source.as_bytes());
        digest.update(self.destination.unwrap_or_default().as_bytes());
        let sources = placed.sources.iter().map(|path| path.trim_end_matches('/'));
        let destinations = placed.destinations.iter().map(|path| Some(path.trim_end_matches('/')));
        let mut pairs: Vec<_> = sources.zip(destinations.chain(std::iter::repeat(None))).collect();
        pairs.sort_unstable();
        for (source, destination) in pairs {
            for path in [Some(source), destination].into_iter().flatten() {
                digest.update(path.as_bytes());
                digest.update([0]);
            }
        }
        digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

/// Refuses what would be copied onto or into itself; two collections may show one storage.
fn refuse_loops(from: (&Ground, &str), to: (&Ground, &str), item: &DraftItem) -> Result<(), Invalid> {
    let there = |(ground, path): (&Ground, &str)| inside(&ground.base, path).trim_end_matches('/').to_owned();
    let (source, destination) = (there(from), there(to));
    let is_inside = |inner: &str, outer: &str| inner.strip_prefix(outer).is_some_and(|rest| rest.starts_with('/'));
    let (from, to) = (from.1.trim_end_matches('/'), to.1.trim_end_matches('/'));
    if source == destination {
        return Err(bad(match from == to {
            true => format!("{from} is both source and destination"),
            false => format!("{from} at the source is the same as {to} at the destination: two names of one storage"),
        }));
    }
    if item.recursive != Some(false) && !item.symlink && is_inside(&destination, &source) {
        return Err(bad(format!("{from} would be copied into itself")));
    }
    Ok(())
}
