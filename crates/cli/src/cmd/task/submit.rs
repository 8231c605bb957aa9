//! `whimbrel task submit` and `delete`.

use std::ffi::OsString;
use std::io::Read as _;
use std::time::Duration;

use clap::{Args, ValueEnum};
use serde_json::{Map, Value, json};
use whimbrel_dtn::client::lines;
use whimbrel_engine::summary::exit;
use whimbrel_engine::units::ByteCount;
use whimbrel_proto::eblock::MOST_CONNECTIONS;

use super::plan;
use super::wait;
use crate::args::parse_rate;
use crate::managed::names::Spot;
use crate::managed::refusal::Trouble;
use crate::managed::submission::{Deletion, Pair, Transfer, pairs};
use crate::managed::{EXIT_CODES, Session};
use crate::output::Output;

/// Submit a copy, and walk away
///
/// DST is the very name of the copy; with a slash at its end, or with several sources, it is the directory they go into. Directories
/// above it are made. Prints the task's id.
#[derive(Debug, Args)]
#[command(after_help = format!("PLACES\n  \
    COLLECTION:PATH, with a collection's name or id; a PATH that does not begin with / is in the collection's default directory.\n\n\
    {EXIT_CODES}"))]
pub struct SubmitArgs {
    /// What to copy, and as the last one where to
    #[arg(value_name = "SRC... DST", required_unless_present = "list")]
    places: Vec<Spot>,
    /// Read pairs SRC DST from this file, one pair a line, names with blanks in quotes; - is standard input
    #[arg(long, value_name = "FILE", conflicts_with = "places")]
    list: Option<OsString>,
    #[command(flatten)]
    transfer: TransferArgs,
    #[command(flatten)]
    common: CommonArgs,
}

/// Options of copies.
#[derive(Debug, Args)]
pub struct TransferArgs {
    /// Copy directories with all that is in them
    #[arg(short, long)]
    recursive: bool,
    /// Leave files alone that are already at the destination, judged by LEVEL; without this they are all replaced
    #[arg(long, value_name = "LEVEL", value_enum)]
    sync: Option<Level>,
    /// Remove what is at the destination and not at the source; what cannot be listed removes nothing
    #[arg(long)]
    delete_extra: bool,
    /// Remove each source once its copy is proven
    #[arg(long = "move", conflicts_with = "no_verify")]
    move_source: bool,
    /// Copy files of these names only, as in '*.h5'; directories are gone into all the same
    #[arg(long, value_name = "PATTERN")]
    include: Vec<String>,
    /// Leave files of these names out, as in '*.tmp', also where --include fits
    #[arg(long, value_name = "PATTERN")]
    exclude: Vec<String>,
    /// What becomes of symbolic links in directories
    #[arg(long, value_name = "HOW", value_enum)]
    links: Option<LinkRule>,
    /// Do not verify copies by checksum
    #[arg(long)]
    no_verify: bool,
    /// Fail copies that cannot be verified, instead of reporting them
    #[arg(long, conflicts_with = "no_verify")]
    require_verify: bool,
    /// The one file that is copied must have this checksum, as in sha256:ba78...15ad
    #[arg(long, value_name = "ALG:HEX", value_parser = parse_checksum, conflicts_with_all = ["recursive", "list"])]
    expect: Option<(String, String)>,
    /// Give copies the times and modes of their sources
    #[arg(long)]
    preserve: bool,
    /// Encrypt the data on their way
    #[arg(long)]
    encrypt: bool,
    /// Leave out what cannot be read at the source, and tell it at the end; without this the task keeps trying, then fails
    #[arg(long)]
    skip_source_errors: bool,
    /// Fail at once when the destination's quota is full; without this the task waits for room
    #[arg(long)]
    fail_on_quota: bool,
    /// Files at once [default: chosen by number and size]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=256))]
    concurrency: Option<u32>,
    /// Data channels for each file [default: chosen by size and distance]
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(MOST_CONNECTIONS)))]
    parallelism: Option<u32>,
    /// Most bytes a second of all files together, as in 50MB (50M is 50 MiB) [default: no bound but the collections' own]
    #[arg(long, value_name = "BYTES", value_parser = parse_rate)]
    max_rate: Option<ByteCount>,
    /// Account to use at the source, where you have several
    #[arg(long, value_name = "ACCOUNT")]
    source_account: Option<String>,
    /// Account to use at the destination
    #[arg(long, value_name = "ACCOUNT")]
    destination_account: Option<String>,
}

/// Options of every submission.
#[derive(Debug, Args)]
pub struct CommonArgs {
    /// What the task is called
    #[arg(long, value_name = "TEXT")]
    label: Option<String>,
    /// When it ends, done or not, as in 2027-01-31 or '2027-01-31 12:00:00' [default: in a week]
    #[arg(long, value_name = "TIME")]
    deadline: Option<String>,
    /// When to write a mail: succeeded, failed, inactive (it cannot go on without you); off [default: all]
    #[arg(long, value_name = "WHEN", value_enum, value_delimiter = ',')]
    notify: Option<Vec<Notice>>,
    /// What makes it the same task when it is submitted again: an id (UUID) of your own [default: a new one]
    #[arg(long, value_name = "ID")]
    submission_id: Option<String>,
    /// Wait until it is over, and end as it ends; Ctrl-C ends the waiting, not the task
    #[arg(long)]
    wait: bool,
    /// Print what the task would do, and do nothing: what is copied, kept, left out and deleted, and what may be in the way
    #[arg(long, conflicts_with = "wait")]
    dry_run: bool,
    /// Print the document that would be submitted, and submit nothing
    #[arg(long, conflicts_with_all = ["wait", "dry_run"])]
    print_document: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Notice {
    Succeeded,
    Failed,
    Inactive,
    Off,
}

/// Which files that already exist at the destination are replaced.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum Level {
    /// Copy what is missing; never replace a file that is there
    Exists,
    /// Also replace a file when the sizes differ
    Size,
    /// Also replace a file when the sizes differ or the source is newer
    Mtime,
    /// Also replace a file when the sizes or the checksums differ
    Checksum,
}

/// What becomes of symbolic links.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum LinkRule {
    /// They are left out
    Skip,
    /// They are made again at the destination
    Copy,
    /// What they point to is copied
    Follow,
}

fn parse_checksum(text: &str) -> Result<(String, String), String> {
    let parts = text.split_once(':').filter(|(algorithm, digest)| !algorithm.is_empty() && !digest.is_empty());
    let (algorithm, digest) = parts.ok_or_else(|| "a checksum is ALG:HEX, as in sha256:ba78...15ad".to_owned())?;
    Ok((algorithm.to_owned(), digest.to_owned()))
}

/// `30`, `30s`, `10m`, `2h`, `7d`.
///
/// # Errors
/// It is no time.
pub fn parse_time(text: &str) -> Result<Duration, String> {
    let digits = text.find(|sign: char| !sign.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let scale = match unit {
        "" | "s" => 1,
        "m" => 60,
        "h" => 3600,
        "d" => 86_400,
        _ => return Err("a time is a number with s, m, h or d behind it".to_owned()),
    };
    let number: u64 = number.parse().map_err(|_| "a time begins with a number".to_owned())?;
    number.checked_mul(scale).map(Duration::from_secs).ok_or_else(|| "that is too long".to_owned())
}

impl SubmitArgs {
    /// Whether nothing is submitted.
    pub fn only_plans(&self) -> bool {
        self.common.only_plans()
    }
}

impl DeleteArgs {
    /// Whether nothing is submitted.
    pub fn only_plans(&self) -> bool {
        self.common.only_plans()
    }
}

impl TransferArgs {
    fn options(&self) -> Map<String, Value> {
        let mut options = Map::new();
        let mut set = |name: &str, value: Value| drop(options.insert(name.to_owned(), value));
        set("verify_checksum", json!(!self.no_verify));
        for (name, on) in [
            ("whimbrel_verify_required", self.require_verify),
            ("delete_destination_extra", self.delete_extra),
            ("delete_source", self.move_source),
            ("preserve_timestamp", self.preserve),
            ("preserve_mode", self.preserve),
            ("encrypt_data", self.encrypt),
            ("skip_source_errors", self.skip_source_errors),
            ("fail_on_quota_errors", self.fail_on_quota),
        ] {
            set(name, json!(on));
        }
        if let Some(level) = self.sync {
            set("sync_level", json!(level as u8));
        }
        if let Some(links) = self.links {
            let name = match links {
                LinkRule::Skip => "ignore",
                LinkRule::Copy => "keep",
                LinkRule::Follow => "copy",
            };
            set("recursive_symlinks", json!(name));
        }
        let rules = self.rules();
        if !rules.is_empty() {
            set("filter_rules", json!(rules));
        }
        for (name, number) in [("perf_cc", self.concurrency), ("perf_p", self.parallelism)] {
            number.into_iter().for_each(|number| set(name, json!(number)));
        }
        if let Some(ByteCount(rate)) = self.max_rate {
            set("max_rate", json!(rate));
        }
        for (name, account) in
            [("source_local_user", &self.source_account), ("destination_local_user", &self.destination_account)]
        {
            account.iter().for_each(|account| set(name, json!(account)));
        }
        options
    }

    /// Rules of names: the first that fits decides. Where only some are taken, all others are left out.
    fn rules(&self) -> Vec<Value> {
        let rule = |method: &str, name: &str| json!({"DATA_TYPE": "filter_rule", "method": method, "type": "file", "name": name});
        let excluded = self.exclude.iter().map(|name| rule("exclude", name));
        let included = self.include.iter().map(|name| rule("include", name));
        let others = (!self.include.is_empty()).then(|| rule("exclude", "*"));
        excluded.chain(included).chain(others).collect()
    }
}

impl CommonArgs {
    fn only_plans(&self) -> bool {
        self.dry_run || self.print_document
    }

    fn options(&self) -> Result<Map<String, Value>, Trouble> {
        let mut options = Map::new();
        for (name, text) in
            [("label", &self.label), ("deadline", &self.deadline), ("submission_id", &self.submission_id)]
        {
            text.iter().for_each(|text| drop(options.insert(name.to_owned(), json!(text))));
        }
        let Some(notices) = &self.notify else { return Ok(options) };
        if notices.contains(&Notice::Off) && notices.len() > 1 {
            return Err(Trouble::Usage("--notify off stands alone".to_owned()));
        }
        for (name, notice) in [
            ("notify_on_succeeded", Notice::Succeeded),
            ("notify_on_failed", Notice::Failed),
            ("notify_on_inactive", Notice::Inactive),
        ] {
            options.insert(name.to_owned(), json!(notices.contains(&notice)));
        }
        Ok(options)
    }
}

/// Submits a copy.
pub async fn submit(session: &mut Session, args: SubmitArgs, output: &mut Output) -> Result<u8, Trouble> {
    let mut options = args.transfer.options();
    options.extend(args.common.options()?);
    let pairs = match &args.list {
        Some(file) => listed(file)?,
        None => {
            let mut sources = args.places;
            let destination = sources.pop().filter(|_| !sources.is_empty());
            let destination =
                destination.ok_or_else(|| Trouble::Usage("a copy needs a source and a destination".to_owned()))?;
            pairs(sources, &destination, false)
        }
    };
    if args.transfer.expect.is_some() && pairs.len() != 1 {
        return Err(Trouble::Usage("--expect is about one file".to_owned()));
    }
    let transfer = Transfer { pairs, recursive: args.transfer.recursive, checksum: args.transfer.expect, options };
    let document = transfer.document(session).await?;
    send(session, document, &args.common, output).await
}

async fn send(session: &mut Session, document: Value, args: &CommonArgs, output: &mut Output) -> Result<u8, Trouble> {
    if args.dry_run {
        return plan::plan(session, document, output).await;
    }
    if args.print_document {
        let text = serde_json::to_string_pretty(&document).unwrap_or_default();
        output.result(&json!({"event": "document", "document": document}), &text);
        return Ok(exit::OK);
    }
    let task = session.submit(document).await?;
    output.result(&json!({"event": "submitted", "task_id": task}), &task);
    if args.wait {
        return wait(session, &task, None, output).await;
    }
    output.say(&format!("how it goes: whimbrel task wait {task}"));
    Ok(exit::OK)
}

/// Pairs of a file.
pub fn listed(file: &OsString) -> Result<Vec<Pair>, Trouble> {
    let name = file.to_string_lossy();
    let mut text = String::new();
    let read = match file == "-" {
        true => std::io::stdin().read_to_string(&mut text),
        false => std::fs::File::open(file).and_then(|mut file| file.read_to_string(&mut text)),
    };
    read.map_err(|error| Trouble::Usage(format!("--list {name}: {error}")))?;
    let mut pairs = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let pair = pair(line).map_err(|error| Trouble::Usage(format!("{name}:{number}: {error}")))?;
        pairs.extend(pair);
    }
    Ok(pairs)
}

/// `None` for empty lines and comments.
fn pair(line: &str) -> Result<Option<Pair>, String> {
    let Some([source, destination]) = lines::pair(line.as_bytes())? else { return Ok(None) };
    let (source, destination): (Spot, Spot) = (spot(&source)?, spot(&destination)?);
    let destination = if destination.path.ends_with('/') { destination.join(source.base_name()) } else { destination };
    Ok(Some(Pair { source, destination }))
}

fn spot(word: &[u8]) -> Result<Spot, String> {
    String::from_utf8_lossy(word).parse()
}

/// Submit a deletion
///
/// Names may hold * ? [a-z]. Prints the task's id.
#[derive(Debug, Args)]
#[command(after_help = EXIT_CODES)]
pub struct DeleteArgs {
    /// What to delete, COLLECTION:PATH
    #[arg(required = true, value_name = "PLACE")]
    places: Vec<Spot>,
    /// Delete directories with all that is in them
    #[arg(short, long)]
    recursive: bool,
    /// What is not there is no failure
    #[arg(short = 'f', long)]
    ignore_missing: bool,
    #[command(flatten)]
    common: CommonArgs,
}

/// Submits a deletion.
pub async fn delete(session: &mut Session, args: DeleteArgs, output: &mut Output) -> Result<u8, Trouble> {
    let DeleteArgs { places: spots, recursive, ignore_missing, common } = args;
    let deletion = Deletion { spots, recursive, ignore_missing, options: common.options()? };
    let document = deletion.document(session).await?;
    send(session, document, &common, output).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_and_checksums_are_read_and_bad_ones_refused() {
        for (text, seconds) in [("30", 30), ("30s", 30), ("10m", 600), ("2h", 7200), ("7d", 604_800)] {
            assert_eq!(parse_time(text), Ok(Duration::from_secs(seconds)), "{text}");
        }
        for text in ["", "s", "-1", "1.5s", "1w", "99999999999999999999d"] {
            assert!(parse_time(text).is_err(), "{text}");
        }
        assert_eq!(parse_checksum("md5:00"), Ok(("md5".into(), "00".into())));
        assert!(parse_checksum("00").is_err() && parse_checksum(":00").is_err() && parse_checksum("md5:").is_err());
    }

    #[test]
    fn lists_hold_pairs_and_say_which_line_is_wrong() {
        let read = |line| pair(line).map(|pair| pair.map(|pair| (pair.source.path, pair.destination.path)));
        assert_eq!(read("  # x"), Ok(None));
        assert_eq!(read("\"A b:/x y\" b:/z/"), Ok(Some(("/x y".into(), "/z/x y".into()))));
        assert!(read("a:/x").is_err() && read("a:/x /y").is_err());
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("list");
        std::fs::write(&file, "a:/1 b:/1\n\na:/2\n").expect("it is written");
        let Err(Trouble::Usage(text)) = listed(&file.into_os_string()) else { panic!("it is refused") };
        assert!(text.contains(":3: "), "{text}");
    }
}
