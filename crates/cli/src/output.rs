//! What people and programs see of a run.

mod explained;
pub mod lines;
mod progress;
mod summary;

use std::io::{IsTerminal as _, Write as _};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use whimbrel_engine::events::Event;
use whimbrel_engine::listing::path_text;
use whimbrel_engine::plan::{Item, SkipReason, quote_path};
use whimbrel_engine::progress::{ReadBack, Verification};
use whimbrel_engine::summary::{Summary, exit, exit_code_for};
use whimbrel_engine::units::{ByteCount, HumanDuration};
use whimbrel_engine::{Fault, Side};

use crate::args::Global;
use crate::managed::refusal::Trouble;

/// Interval of progress lines where there is no terminal.
const LOG_INTERVAL: Duration = Duration::from_secs(10);

/// Prints events as the user wants them.
pub struct Output {
    json: bool,
    quiet: bool,
    verbose: u8,
    terminal: bool,
    line_shown: bool,
    last_log: Instant,
    /// A directory is followed, and more may come.
    following: bool,
    /// A directory is or was followed.
    followed: bool,
    /// Checksums of copies go to standard output.
    sums: bool,
    /// Pipes, devices and the like, which are not copied.
    odd: u64,
    /// What was said once about where copies were read back from.
    said: Vec<ReadBack>,
    /// Why files were not verified, as far as that was said once.
    unproven: Vec<String>,
    explained: explained::Said,
}

impl Output {
    /// Looks at the options and at standard error.
    pub fn new(global: &Global) -> Self {
        Self {
            json: global.json,
            quiet: global.quiet,
            verbose: global.verbose,
            terminal: std::io::stderr().is_terminal() && std::env::var_os("TERM").is_none_or(|term| term != "dumb"),
            line_shown: false,
            last_log: Instant::now(),
            following: false,
            followed: false,
            sums: false,
            odd: 0,
            said: Vec::new(),
            unproven: Vec::new(),
            explained: explained::Said::default(),
        }
    }

    /// Whether checksums of copies go to standard output.
    pub fn print_sums(&mut self, on: bool) {
        self.sums = on;
    }

    /// How often progress is worth computing.
    pub fn progress_interval(&self) -> Duration {
        if self.json || !self.terminal { Duration::from_secs(1) } else { Duration::from_millis(250) }
    }

    /// Prints one event.
    pub fn event(&mut self, event: &Event) {
        if self.json {
            return print_json(&event.to_json());
        }
        match event {
            Event::Progress(snapshot) if self.following => self.progress(&progress::following(snapshot)),
            Event::Watching { source, events, scan_interval, quiet_time } => {
                (self.following, self.followed) = (true, true);
                let how = if *events { "as writers close them, and " } else { "" };
                self.say(&format!(
                    "watching {}: files are copied {how}when unchanged for {quiet_time} s (looked at every {scan_interval} s)",
                    quote_path(source)
                ));
            }
            Event::CannotRead { source, fault } => {
                self.say(&format!("{} cannot be read now and is asked again: {fault}", quote_path(source)));
            }
            Event::CaughtUp { files } => {
                self.say(&format!(
                    "caught up: what was there at first ({files} files) is copied; what comes is followed"
                ));
            }
            Event::WatchEnded { unfinished } => {
                self.following = false;
                if *unfinished > 0 {
                    self.say(&format!("not watching any more; {unfinished} unfinished files are left"));
                }
            }
            Event::Progress(snapshot) => self.progress(&progress::line(snapshot)),
            Event::Plan(action) => lines::line(&action.to_string()),
            Event::PlanTotals(totals) => lines::line(&totals.to_string()),
            Event::ItemDone { item, bytes, verification, seconds, .. } => {
                self.proof(item, verification);
                if self.verbose == 0 {
                    return;
                }
                let proof = proof_text(verification);
                let took = HumanDuration(Duration::from_secs_f64(seconds.max(0.0)));
                self.say(&format!(
                    "{} -> {} ({}, {took}{proof})",
                    quote_path(&item.source),
                    quote_path(&item.destination),
                    ByteCount(*bytes)
                ));
            }
            Event::ItemSkipped { source, reason: SkipReason::Unsupported, .. } => {
                self.odd += 1;
                self.say(&format!("{}: skipped: no regular file", quote_path(source)));
            }
            Event::ItemSkipped { source, reason, .. } if self.verbose > 0 => {
                self.say(&format!("{}: left as it is: {reason}", quote_path(source)));
            }
            Event::Retry { source, fault, attempt, retry_in, .. } => {
                self.say(&format!(
                    "{}: attempt {attempt} failed, again in {retry_in:.1} s: {fault}",
                    quote_path(source)
                ));
            }
            Event::SessionLost { fault, retry_in: Some(seconds), .. } => {
                self.say(&format!("a session was lost, opening it again in {seconds:.1} s: {fault}"));
            }
            Event::Tuned(tuning) if self.verbose > 0 => {
                self.say(&format!("{} files at once: {}", tuning.concurrency.value, tuning.concurrency.reason));
                self.say(&format!("{} data channels each: {}", tuning.parallelism.value, tuning.parallelism.reason));
                self.say(&format!("{} commands ahead: {}", tuning.pipeline.value, tuning.pipeline.reason));
            }
            Event::Explained(explain) => {
                let news = self.explained.news(explain);
                if !news.is_empty() {
                    self.say(&news);
                }
            }
            Event::LeafWrong { source, start, end, .. } => {
                let place = quote_path(source);
                self.say(&format!("{place}: bytes {start} to {end} differed at the destination and go again"));
            }
            Event::BeganAnew { source, bytes, .. } => {
                let (place, bytes) = (quote_path(source), ByteCount(*bytes));
                self.say(&format!(
                    "{place}: has changed since an earlier run, or may have; the {bytes} that it had moved are thrown away"
                ));
            }
            Event::GoesOn { destination, files } => {
                let place = quote_path(destination);
                self.say(&format!("{place}: an earlier run of this command was cut short; what it moved ({files} files) stays as it is"));
            }
            Event::WrittenInPlace { directory, fault } => {
                let place = quote_path(directory);
                self.say(&format!(
                    "{place}: the server takes no temporary names here, so files bear their final names before they are \
                     complete: {fault}"
                ));
            }
            Event::OtherRuns { directory, files } => {
                let place = quote_path(directory);
                self.say(&format!(
                    "{place}: unfinished copies of other runs lie here ({files}), named .NAME.whimbrel-...; those runs are at \
                     work or may be, so they are left alone"
                ));
            }
            Event::NotChecked { source, listed, .. } => {
                let why = if *listed {
                    "left as it is, and so not compared with the checksum that is expected"
                } else {
                    "not in the list of expected checksums; copied and verified as any other"
                };
                self.say(&format!("{}: {why}", quote_path(source)));
            }
            Event::Summary(summary) => self.summary(summary),
            _ => {}
        }
    }

    /// What is said of a copy even to those who want to hear little: its checksum, that it was not read from the disk, or why it is not proven.
    fn proof(&mut self, item: &Item, verification: &Verification) {
        if let Verification::Unverified { reason } = verification
            && !self.unproven.contains(reason)
        {
            self.unproven.push(reason.clone());
            self.say(&format!("{} is not verified (said once): {reason}", quote_path(&item.destination)));
        }
        let Verification::Verified { read_back, sums, .. } = verification else { return };
        // The digest that was asked for is the last; the one that was expected may be the same.
        if let Some(sum) = sums.last().filter(|_| self.sums) {
            lines::line(&format!("{}  {}", sum.digest, quote_path(&item.destination)));
        }
        if let Some(read_back) = read_back.filter(|from| *from != ReadBack::Disk && !self.said.contains(from)) {
            self.said.push(read_back);
            let path = quote_path(&item.destination);
            self.say(&format!("{path} was verified as read back {} (said once)", read_back.phrase()));
        }
    }

    /// Tells what goes on in a command that has a result of its own.
    pub fn news(&mut self, json: &serde_json::Value, text: &str) {
        if self.json {
            return print_json(&json.to_string());
        }
        if self.terminal || self.verbose > 0 {
            self.last_log = Instant::now().checked_sub(LOG_INTERVAL).unwrap_or(self.last_log);
        }
        self.progress(text);
    }

    /// Removes the line of news before a result is printed.
    pub fn end_news(&mut self) {
        if std::mem::take(&mut self.line_shown) {
            // A terminal that is gone is no reason to stop.
            let _ = write!(std::io::stderr().lock(), "\r\x1b[K");
        }
    }

    fn progress(&mut self, line: &str) {
        if self.quiet {
            return;
        }
        let mut err = std::io::stderr().lock();
        if self.terminal {
            self.line_shown = true;
            // A terminal that is gone is no reason to stop copying.
            let _ = write!(err, "\r\x1b[K{line}").and_then(|()| err.flush());
        } else if self.last_log.elapsed() >= LOG_INTERVAL {
            self.last_log = Instant::now();
            let _ = writeln!(err, "{line}");
        }
    }

    /// Prints a line of its own for people.
    pub fn say(&mut self, text: &str) {
        if !self.quiet && !self.json {
            self.print_error_line(text);
        }
    }

    fn print_error_line(&mut self, text: &str) {
        let mut err = std::io::stderr().lock();
        let clear = if self.line_shown { "\r\x1b[K" } else { "" };
        self.line_shown = false;
        let _ = writeln!(err, "{clear}{text}");
    }

    fn summary(&mut self, summary: &Summary) {
        self.say(&format!("{}{}", summary::summary_text(summary, self.odd), summary::end_text(summary, self.followed)));
        for (failure, below) in summary::told_once(&summary.failures, self.verbose > 0) {
            self.print_error_line(&summary::failure_text(failure));
            if below > 0 {
                self.print_error_line(&format!("  so did {below} more below it, for the same reason (-v names them)"));
            }
        }
        if summary.failures_not_listed > 0 {
            self.print_error_line(&format!("... and {} more failures", summary.failures_not_listed));
        }
        if let Some(hint) = summary.failures.iter().find_map(|failure| summary::hint(&failure.fault)) {
            self.print_error_line(&hint);
        }
    }

    /// Prints what ended the command; the exit code.
    pub fn fault(&mut self, fault: &Fault) -> u8 {
        let code = exit_code_for(fault);
        let explanation = fault.code.explain();
        if self.json {
            let failed = serde_json::json!({
                "event": "failed", "fault": fault, "cause": explanation.cause, "cure": explanation.cure, "exit_code": code,
            });
            print_json(&failed.to_string());
        } else {
            let side = fault.side.map(|side| format!("{}: ", side_name(side))).unwrap_or_default();
            self.print_error_line(&format!(
                "whimbrel: {side}{fault}\n  cause: {}\n  cure:  {}{}",
                explanation.cause,
                explanation.cure,
                summary::hint(fault).map(|hint| format!("\n{hint}")).unwrap_or_default()
            ));
        }
        code
    }

    /// Prints what ended a command of the managed service; the exit code.
    pub fn trouble(&mut self, trouble: &Trouble) -> u8 {
        self.end_news();
        match trouble {
            Trouble::Fault(fault) => self.fault(fault),
            Trouble::Usage(text) => {
                self.print_error_line(&format!("error: {text}\n\nFor more information, try '--help'."));
                exit::USAGE
            }
            Trouble::Refused(refusal) => {
                if self.json {
                    print_json(&refusal.json().to_string());
                } else {
                    self.print_error_line(&format!(
                        "whimbrel: service: {}\n  cure:  {}",
                        refusal.message,
                        refusal.cure()
                    ));
                }
                refusal.exit_code()
            }
        }
    }

    /// Tells how something ended: an object as JSON, or else its text for people who want to hear it.
    pub fn outcome(&mut self, json: &serde_json::Value, text: &str) {
        if self.json { print_json(&json.to_string()) } else { self.say(text) }
    }

    /// Prints a result: an object as JSON, or else its text.
    pub fn result(&mut self, json: &serde_json::Value, text: &str) {
        if self.json {
            print_json(&json.to_string());
        } else {
            lines::line(text);
        }
    }
}

/// Which side is to blame, for people.
pub fn side_name(side: Side) -> &'static str {
    match side {
        Side::Source => "source",
        Side::Destination => "destination",
        Side::Network => "network",
        Side::Peer => "peer",
        Side::Service => "service",
        Side::Us => "this host",
    }
}

fn proof_text(verification: &Verification) -> String {
    match verification {
        Verification::Verified { algorithm, read_back, sums } => {
            let mut text = format!(", {algorithm} verified");
            if let Some(from) = read_back {
                text += &format!(", read back {}", from.phrase());
            }
            for sum in sums.iter().filter(|sum| sum.expected) {
                text += &format!(", {} as expected", sum.algorithm);
            }
            text
        }
        Verification::Unverified { reason } => format!(", not verified: {reason}"),
        Verification::NotAsked => String::new(),
    }
}

/// How a path stands in JSON: a text, or where it is not UTF-8 an array of bytes.
pub fn path_value(path: &[u8]) -> serde_json::Value {
    path_text::serialize(path, serde_json::value::Serializer).expect("texts and numbers can always be written")
}

/// One JSON object with the time in front of its fields.
fn print_json(object: &str) {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let rest = object.strip_prefix('{').unwrap_or(object);
    let comma = if rest.starts_with('}') { "" } else { "," };
    lines::line(&format!("{{\"time\":{:.6}{comma}{rest}", now.as_secs_f64()));
}
