//! `whimbrel cp`: copies files.

use std::ffi::OsString;
use std::process::ExitCode;
use std::rc::Rc;
use std::time::Duration;

use clap::{Args, ValueEnum};
use tokio::sync::{mpsc, watch};
use whimbrel_dtn::client::checksum;
use whimbrel_dtn::client::copy::{Report, copy};
use whimbrel_dtn::client::follow::{Ends, follow};
use whimbrel_dtn::client::local::LocalOptions;
use whimbrel_dtn::client::options::{Chunks, CopyOptions, Jobs, Place, RateBound, Sums, Verify};
use whimbrel_dtn::client::target::SessionOptions;
use whimbrel_engine::Fault;
use whimbrel_engine::plan::{Links, PlanOptions, Preserve, SyncLevel};
use whimbrel_engine::retry::RetryPolicy;
use whimbrel_engine::summary::exit;
use whimbrel_engine::tune::Setting;
use whimbrel_engine::units::ByteCount;
use whimbrel_proto::eblock::MOST_CONNECTIONS;
use whimbrel_proto::policy::LEAST_CHUNK;

use super::{block_on, finish, local_options, log_in, usage};
use crate::args::{Global, HELP_END, parse_buffer, parse_rate};
use crate::login::Logins;
use crate::output::Output;
use crate::place;

mod ends;
mod follow;
pub mod list;
mod managed;
mod sums;

/// Copy files between servers and this host
///
/// When both ends are servers the data go directly from one to the other. Copies are verified by
/// checksum where both ends can compute one. A copy that was interrupted goes on when the same
/// command is given again.
#[derive(Debug, Args)]
#[command(after_help = HELP_END, after_long_help = long_help())]
pub struct CpArgs {
    /// What to copy, and as the last one where to; remote names may hold * ? [a-z]
    #[arg(value_name = "SRC... DST", required_unless_present = "list")]
    places: Vec<OsString>,
    /// Copy directories with all that is in them
    #[arg(short, long)]
    recursive: bool,
    /// Read pairs SRC DST from this file, one pair a line; - is standard input
    #[arg(long, value_name = "FILE", conflicts_with = "places")]
    list: Option<OsString>,
    /// Leave files alone that are already at the destination, judged by LEVEL; without this they are all replaced
    #[arg(long, value_name = "LEVEL", value_enum)]
    sync: Option<Sync>,
    /// Print what would be done, and do nothing
    #[arg(long)]
    dry_run: bool,
    /// Data channels for each file [default: chosen by size and distance]
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(MOST_CONNECTIONS)))]
    parallelism: Option<u32>,
    /// Files at once [default: chosen by number and size]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=256))]
    concurrency: Option<u32>,
    /// Small files in flight on each session [default: chosen by size and distance]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=60))]
    pipeline: Option<u32>,
    /// Socket buffer of each data channel, as in 4M, at both ends; hosts have limits of their own [default: the kernel's choice]
    #[arg(long, value_name = "BYTES", value_parser = parse_buffer)]
    buffer: Option<u32>,
    /// Most bytes a second of all files together in the mean, as in 50MB (50M is 50 MiB): large files go in parts of about a second's worth, each
    /// at full speed; one that goes in one piece (--chunk off) is not slowed down [default: no bound]
    #[arg(long, value_name = "BYTES", value_parser = parse_rate)]
    max_rate: Option<ByteCount>,
    /// First byte to copy, as in 100M; it goes to the same place in the destination file
    #[arg(long, value_name = "BYTES")]
    offset: Option<ByteCount>,
    /// Number of bytes to copy
    #[arg(long, value_name = "BYTES")]
    length: Option<ByteCount>,
    /// Algorithm that proves copies, such as md5, sha256, crc32c [default: the fastest both ends have]
    #[arg(long, value_name = "ALG", conflicts_with = "no_verify", value_parser = checksum::known)]
    checksum: Option<String>,
    /// What copies must be proven against
    #[arg(long, value_name = "HOW", value_enum, default_value_t = When::Auto)]
    verify: When,
    /// Do not verify copies, the same as --verify=never
    #[arg(long, conflicts_with = "verify")]
    no_verify: bool,
    /// Congestion control of data channels, such as bbr or cubic [default: what the path turns out to need]
    #[arg(long, value_name = "NAME", value_parser = super::probe::congestion)]
    congestion: Option<String>,
    /// Say what was chosen by itself, and why
    #[arg(long)]
    explain: bool,
    /// Move large files in parts of this size, several at once: auto, off, or BYTES as in 256M
    #[arg(long, value_name = "SIZE", default_value = "auto", value_parser = parse_chunks)]
    chunk: Chunks,
    /// What this task is called, for the servers' logs and for their administrators' rules
    #[arg(long, value_name = "TEXT", value_parser = parse_label)]
    label: Option<String>,
    /// Encrypt the data, too (logins by whimbrel://, ftps:// and gsiftp:// always are); needs Whimbrel servers, or gsiftp:// at both ends
    #[arg(long)]
    encrypt: bool,
    /// Have data guarded against change on the way (PROT S of gsiftp:// servers); with TLS 1.3 they are encrypted, too
    #[arg(long, conflicts_with = "encrypt")]
    safe: bool,
    /// Use all data nodes of striped servers for each file
    #[arg(long)]
    stripe: bool,
    /// Give copies the times and modes of their sources
    #[arg(long)]
    preserve: bool,
    /// What becomes of symbolic links
    #[arg(long, value_name = "HOW", value_enum, default_value_t = LinkRule::Follow)]
    links: LinkRule,
    /// Attempts for each file before it counts as failed
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    attempts: u32,
    // Groups come last: their headings hold for all that follows.
    #[command(flatten)]
    ends: ends::EndArgs,
    #[command(flatten)]
    sums: sums::SumArgs,
    #[command(flatten)]
    follow: follow::FollowArgs,
    #[command(flatten)]
    managed: managed::ManagedArgs,
}

fn long_help() -> String {
    format!(
        "EXAMPLES\n  \
         From here to a server:             whimbrel cp results.h5 dtn.example.org:/data/\n  \
         From server to server:             whimbrel cp -r a.example.org:/run7 b.example.org:/archive/\n  \
         Only what is new or has changed:   whimbrel cp -r --sync mtime dtn:/run7/. ./run7\n  \
         Look before you copy:              whimbrel cp -r --dry-run dtn:/run7 ./run7\n  \
         Check against a known checksum:    whimbrel cp --expect sha256:ba78...15ad dtn:/data/x.h5 .\n  \
         Check against a list:              whimbrel cp -r --expect-from SHA256SUMS dtn:/data ./data\n  \
         Proven past the memory's cache:    whimbrel cp --verify disk x.h5 dtn:/data/\n  \
         While a simulation writes:         whimbrel cp --follow /scratch/run7 dtn:/run7 --until DONE\n  \
         While this computer is off:        whimbrel cp --managed -r \"Cluster data:/run7\" Archive:/2026/\n\n{HELP_END}"
    )
}

fn parse_chunks(text: &str) -> Result<Chunks, String> {
    match text {
        "auto" => Ok(Chunks::Auto),
        "off" => Ok(Chunks::Off),
        size => match size.parse::<ByteCount>() {
            Ok(ByteCount(size)) if size >= LEAST_CHUNK => Ok(Chunks::Size(size)),
            Ok(_) => Err("a chunk has at least 64 KiB".to_owned()),
            Err(error) => Err(format!("{error}; or say auto or off")),
        },
    }
}

/// Longest label, bytes.
const LONGEST_LABEL: usize = 256;

fn parse_label(text: &str) -> Result<String, String> {
    let fits = (1..=LONGEST_LABEL).contains(&text.len()) && !text.chars().any(char::is_control);
    fits.then(|| text.to_owned()).ok_or_else(|| format!("a label is one line of 1 to {LONGEST_LABEL} bytes"))
}

/// Which files that already exist at the destination are replaced.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum Sync {
    /// Copy what is missing; never replace a file that is there
    Exists,
    /// Also replace a file when the sizes differ
    Size,
    /// Also replace a file when the sizes differ or the source is newer
    Mtime,
    /// Also replace a file when the sizes or the checksums differ; reads both files, so it is slow and sure
    Checksum,
}

/// What copies must be proven against.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum When {
    /// The destination reads each file back through its operating system and computes its checksum, which must be that of
    /// what the source sent (with a server of another kind: of what the source reads then). Proves what the destination
    /// would read now, not what its disk holds. Where an end has no checksums the copy is reported as not verified
    Auto,
    /// The same proof; a copy that cannot be verified counts as failed
    Require,
    /// As require, and the destination first writes to its storage and drops from memory what it then reads back: proves
    /// what the disk returns (its own cache and its controller's excepted). Where nothing but memory is below the file
    /// system, or a server cannot do it, the copy counts as verified and is reported as read from memory
    Disk,
    /// No proof: only that the number of bytes announced arrived without an error
    Never,
}

/// What becomes of symbolic links.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum LinkRule {
    /// What they point to is copied
    Follow,
    /// They are made again at the destination
    Copy,
    /// They are left out
    Skip,
}

/// Runs the command.
pub fn run(args: CpArgs, global: &Global) -> ExitCode {
    if args.list.is_none() && args.places.len() < 2 {
        return usage("cp needs at least one source and a destination");
    }
    if args.managed.managed {
        return managed::run(args, global);
    }
    let mut places = match args.places.iter().map(|text| place::parse_argument(text)).collect::<Result<Vec<_>, _>>() {
        Ok(places) => places,
        Err(error) => return usage(&error.to_string()),
    };
    if let Err(text) = args.follow.check(&places) {
        return usage(text);
    }
    let list = match args.list.as_deref().map(list::List::open).transpose() {
        Ok(list) => list,
        Err(text) => return usage(&text),
    };
    let never = args.no_verify || args.verify == When::Never;
    let sums = match args.sums.read(places.len(), args.recursive, never) {
        Ok(sums) => sums,
        Err(text) => return usage(&text),
    };
    let local = match local_options() {
        Ok(local) => local,
        Err(fault) => return usage(&fault.to_string()),
    };
    let mut output = Output::new(global);
    output.print_sums(args.sums.prints());
    let options = CopyOptions { sums, local, ..args.options(global, &output) };
    if let Some((destination, sources)) = places.split_last_mut() {
        args.ends.name(sources, destination);
    }
    let result = log_in(&mut places, global);
    let result = result.and_then(|()| block_on(run_copy(args, (places, list), global, options, &mut output)));
    finish(global, result)
}

async fn run_copy(
    args: CpArgs,
    (places, list): (Vec<Place>, Option<list::List>),
    global: &Global,
    options: CopyOptions,
    output: &mut Output,
) -> Result<u8, Fault> {
    let (cancel, cancelled) = watch::channel(false);
    let report = if args.follow.follow {
        let (stop, stopped) = watch::channel(false);
        tokio::spawn(heed_signals(vec![stop, cancel]));
        let ends = Ends { stop: stopped, cancel: cancelled };
        follow(args.follow.options(places), options, ends, |event| output.event(&event)).await?
    } else {
        tokio::spawn(heed_signals(vec![cancel]));
        copy(args.jobs(places, list, global), options, cancelled, |event| output.event(&event)).await?
    };
    Ok(match report {
        Report::Done(summary) => summary.exit_code,
        Report::Planned(totals) if totals.refused > 0 => exit::SOME_FAILED,
        Report::Planned(_) => exit::OK,
    })
}

/// Each signal ends more: the first raises the first flag, and so on; one too many ends the program at once.
async fn heed_signals(flags: Vec<watch::Sender<bool>>) {
    use tokio::signal::unix::{SignalKind, signal};
    let (Ok(mut interrupt), Ok(mut terminate)) = (signal(SignalKind::interrupt()), signal(SignalKind::terminate()))
    else {
        return;
    };
    // A login that was cut, or a terminal that was closed, unless the command was told to outlive it (nohup(1)).
    let mut hangup = (!is_hangup_ignored()).then(|| signal(SignalKind::hangup()).ok()).flatten();
    let mut next = flags.iter();
    loop {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
            Some(_) = async { hangup.as_mut()?.recv().await } => {}
        }
        match next.next() {
            Some(flag) => drop(flag.send_replace(true)),
            None => std::process::exit(exit::CANCELLED.into()),
        }
    }
}

/// Whether this process was started with SIGHUP ignored (proc(5), `SigIgn`: bit 0).
fn is_hangup_ignored() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).is_some_and(|mask| mask & 1 != 0)
}

impl CpArgs {
    /// Whether nothing is copied.
    pub fn only_plans(&self) -> bool {
        self.dry_run
    }

    fn jobs(self, mut places: Vec<Place>, list: Option<list::List>, global: &Global) -> Jobs {
        if let Some(list) = list {
            let (sender, pairs) = mpsc::channel(256);
            let (mut logins, ends) = (Logins::new(&global.login), self.ends);
            let log_in = move |source: &mut Place, destination: &mut Place| {
                ends.name(std::slice::from_mut(source), destination);
                logins.complete(source).and_then(|()| logins.complete(destination))
            };
            list.read_in_background(sender, log_in);
            return Jobs::Pairs(pairs);
        }
        let destination = places.pop().expect("the number of places was checked");
        Jobs::Into { sources: places, destination }
    }

    fn options(&self, global: &Global, output: &Output) -> CopyOptions {
        let setting = |value: Option<u32>| value.map_or(Setting::Auto, Setting::Fixed);
        let length = self.length.map(|length| length.0);
        CopyOptions {
            plan: self.plan(),
            dry_run: self.dry_run,
            range: (self.offset.is_some() || length.is_some())
                .then(|| (self.offset.map_or(0, |offset| offset.0), length)),
            concurrency: setting(self.concurrency),
            most_sessions: None,
            between: None,
            rate: RateBound::fixed(self.max_rate.map(|rate| rate.0)),
            parallelism: setting(self.parallelism),
            pipeline: setting(self.pipeline),
            buffer: setting(self.buffer),
            verify: match (self.no_verify, self.verify) {
                (true, _) | (_, When::Never) => Verify::Never,
                (_, When::Require) => Verify::Require,
                (_, When::Disk) => Verify::Disk,
                (_, When::Auto) => Verify::WhenPossible,
            },
            checksum: self.checksum.clone(),
            sums: Sums::default(),
            congestion: self.congestion.clone(),
            explain: self.explain,
            chunks: self.chunk,
            stripe: self.stripe,
            encrypt: self.encrypt || self.safe,
            durable: false,
            hosts: Rc::default(),
            data_credential: self.ends.data_credential(),
            retry: RetryPolicy { attempts: self.attempts, ..RetryPolicy::default() },
            progress: if global.quiet { Duration::from_secs(3600) } else { output.progress_interval() },
            session: SessionOptions { label: self.label.clone(), guarded: self.safe, ..global.session() },
            local: LocalOptions::default(),
            relays: Vec::new(),
        }
    }

    fn plan(&self) -> PlanOptions {
        PlanOptions {
            sync: match self.sync {
                None => SyncLevel::None,
                Some(Sync::Exists) => SyncLevel::Exists,
                Some(Sync::Size) => SyncLevel::Size,
                Some(Sync::Mtime) => SyncLevel::Mtime,
                Some(Sync::Checksum) => SyncLevel::Checksum,
            },
            recursive: self.recursive,
            links: match self.links {
                LinkRule::Follow => Links::Follow,
                LinkRule::Copy => Links::Copy,
                LinkRule::Skip => Links::Skip,
            },
            avoids_links: self.links == LinkRule::Copy,
            preserve: Preserve { times: self.preserve, modes: self.preserve },
            ..PlanOptions::default()
        }
    }
}
