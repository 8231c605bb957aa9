//! `whimbrel cp --managed`: the managed service copies, what GridCopy called `-rft`.

use std::process::ExitCode;

use clap::Args;
use serde_json::{Map, Value, json};
use whimbrel_engine::summary::exit;

use super::super::endpoint::files::described;
use super::super::managed;
use super::super::task::plan::plan;
use super::super::task::{listed, wait};
use super::{CpArgs, LinkRule, When};
use crate::args::Global;
use crate::managed::names::Spot;
use crate::managed::refusal::Trouble;
use crate::managed::submission::{Pair, Transfer, pairs};
use crate::managed::{ServiceArgs, Session, text};
use crate::output::Output;

/// Copies by the managed service.
#[derive(Debug, Args)]
#[command(next_help_heading = "By the managed service")]
pub struct ManagedArgs {
    /// Have the managed service copy, as -rft of GridCopy: it goes on when this computer is off. Places are COLLECTION:PATH, with names or
    /// ids of collections (whimbrel endpoint list); waits until all is done, and Ctrl-C ends the waiting alone
    #[arg(long, conflicts_with_all = [
        "offset", "length", "checksum", "congestion", "explain", "chunk", "safe", "stripe", "attempts", "source_subject",
        "destination_subject", "source_credential", "destination_credential", "source_kerberos", "destination_kerberos", "no_data_auth",
        "data_credential", "print_checksum", "expect_from", "scan_interval", "buffer",
    ])]
    pub managed: bool,
    /// Print the task's id, and do not wait
    #[arg(long, requires = "managed", conflicts_with = "dry_run")]
    no_wait: bool,
    /// Which service, where you are logged in at several [default: WHIMBREL_SERVICE, or where you logged in last]
    #[arg(long, value_name = "URL", requires = "managed")]
    service: Option<String>,
}

/// Runs the command.
pub fn run(args: CpArgs, global: &Global) -> ExitCode {
    managed(global, async |output| copy(&args, output).await)
}

async fn copy(args: &CpArgs, output: &mut Output) -> Result<u8, Trouble> {
    let mut options = args.managed_options()?;
    options.extend(args.label.iter().map(|label| ("label".to_owned(), json!(label))));
    let mut session = Session::open(&ServiceArgs { service: args.managed.service.clone() })?;
    options.extend(args.follow.document()?);
    let pairs = args.managed_pairs(&mut session).await?;
    let checksum = args.sums.expected().map(|expected| (expected.algorithm.to_string(), expected.digest.clone()));
    if checksum.is_some() && (pairs.len() != 1 || args.recursive) {
        return Err(Trouble::Usage("--expect is about one file".to_owned()));
    }
    let recursive = args.recursive || args.follow.follow;
    let transfer = Transfer { pairs, recursive, checksum, options };
    let document = transfer.document(&mut session).await?;
    if args.dry_run {
        return plan(&mut session, document, output).await;
    }
    let task = session.submit(document).await?;
    let event = json!({"event": "submitted", "task_id": task});
    if args.managed.no_wait {
        output.result(&event, &task);
        return Ok(exit::OK);
    }
    output.outcome(&event, &format!("task {task}"));
    wait(&mut session, &task, None, output).await
}

impl CpArgs {
    /// What is copied where, as without the service: into a directory that is there, under its own name.
    async fn managed_pairs(&self, session: &mut Session) -> Result<Vec<Pair>, Trouble> {
        if let Some(file) = &self.list {
            return listed(file);
        }
        let read = |text: &std::ffi::OsString| text.to_string_lossy().parse::<Spot>().map_err(Trouble::Usage);
        let mut sources = self.places.iter().map(read).collect::<Result<Vec<_>, _>>()?;
        if let Some(pattern) = sources.iter().find(|spot| spot.path.contains(['*', '?'])) {
            let text = format!(
                "the service takes no patterns such as {}: copy the directory, or see whimbrel task submit --include",
                pattern.path
            );
            return Err(Trouble::Usage(text));
        }
        let destination = sources.pop().filter(|_| !sources.is_empty());
        let destination =
            destination.ok_or_else(|| Trouble::Usage("cp needs a source and a destination".to_owned()))?;
        if self.follow.follow {
            // What is in the one goes into the other.
            return match <[Spot; 1]>::try_from(sources) {
                Ok([source]) => Ok(vec![Pair { source, destination }]),
                Err(_) => Err(Trouble::Usage("--follow takes one directory and a destination".to_owned())),
            };
        }
        let decided = sources.len() > 1 || destination.path.ends_with('/');
        let into = decided || is_directory(session, &destination).await?;
        Ok(pairs(sources, &destination, into))
    }

    fn managed_options(&self) -> Result<Map<String, Value>, Trouble> {
        if self.verify == When::Disk {
            let text = "the service proves copies against what the destination reads back; --verify=disk is for copies without it";
            return Err(Trouble::Usage(text.to_owned()));
        }
        let links = match self.links {
            LinkRule::Follow => "copy",
            LinkRule::Copy => "keep",
            LinkRule::Skip => "ignore",
        };
        let mut options = Map::new();
        for (name, value) in [
            ("verify_checksum", json!(!(self.no_verify || self.verify == When::Never))),
            ("whimbrel_verify_required", json!(self.verify == When::Require)),
            ("preserve_timestamp", json!(self.preserve)),
            ("preserve_mode", json!(self.preserve)),
            ("encrypt_data", json!(self.encrypt)),
            ("recursive_symlinks", json!(links)),
            ("sync_level", self.sync.map_or(Value::Null, |level| json!(level as u8))),
            ("perf_cc", json!(self.concurrency)),
            ("perf_p", json!(self.parallelism)),
            ("perf_pp", json!(self.pipeline)),
            ("max_rate", json!(self.max_rate.map(|rate| rate.0))),
        ] {
            options.insert(name.to_owned(), value);
        }
        Ok(options)
    }
}

/// Whether a place is a directory that is there.
async fn is_directory(session: &mut Session, spot: &Spot) -> Result<bool, Trouble> {
    match described(session, spot).await {
        Ok(file) => Ok(text(&file, "type") == "dir"),
        Err(Trouble::Refused(refusal)) if refusal.status == 404 && refusal.code == "NotFound" => Ok(false),
        Err(trouble) => Err(trouble),
    }
}
