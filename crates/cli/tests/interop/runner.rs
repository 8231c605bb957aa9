//! Runs cases side by side, as other test programs run tests, and settles the written table.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

use crate::case::Case;
use crate::grid::grid;
use crate::report;
use crate::support::{Context, is_here, must_not_skip};

/// Cases at once. Most of a case is waiting for replies and for programs to start.
const THREADS: usize = 4;

/// What the command line asks for.
#[derive(Debug, Default)]
struct Arguments {
    words: Vec<String>,
    skip: Vec<String>,
    exact: bool,
    list: bool,
    ignored: bool,
    include_ignored: bool,
    threads: Option<usize>,
}

impl Arguments {
    fn read() -> Self {
        let mut found = Self::default();
        let mut arguments = std::env::args().skip(1);
        while let Some(argument) = arguments.next() {
            match argument.as_str() {
                "--exact" => found.exact = true,
                "--list" => found.list = true,
                "--ignored" => found.ignored = true,
                "--include-ignored" => found.include_ignored = true,
                "--skip" => found.skip.extend(arguments.next()),
                "--test-threads" => found.threads = arguments.next().and_then(|number| number.parse().ok()),
                // These take a value of their own word.
                "--format" | "--color" | "--logfile" | "-Z" => drop(arguments.next()),
                other => match other.strip_prefix("--test-threads=") {
                    Some(number) => found.threads = number.parse().ok(),
                    None if other.starts_with('-') => {}
                    None => found.words.push(other.into()),
                },
            }
        }
        found
    }

    fn wants(&self, case: &Case) -> bool {
        if grid().is_some() && !case.fits_grids() {
            return false;
        }
        let name = case.name();
        let fits = |word: &String| if self.exact { name == *word } else { name.contains(word.as_str()) };
        let named = self.words.is_empty() || self.words.iter().any(fits);
        let state = self.include_ignored || case.nightly == self.ignored;
        named && state && !self.skip.iter().any(fits)
    }
}

/// How a case ended.
enum Verdict {
    Passed,
    Skipped(String),
    Failed(String),
}

thread_local! {
    /// The message of the last panic of this thread.
    static SAID: RefCell<String> = const { RefCell::new(String::new()) };
}

/// Runs what the command line selects.
pub fn run(cases: Vec<Case>) -> ExitCode {
    let arguments = Arguments::read();
    let names: BTreeSet<String> = cases.iter().map(Case::name).collect();
    assert_eq!(names.len(), cases.len(), "two cases share a name");
    let selected: Vec<&Case> = cases.iter().filter(|case| arguments.wants(case)).collect();
    if arguments.list {
        selected.iter().for_each(|case| println!("{}: test", case.name()));
        return ExitCode::SUCCESS;
    }
    keep_panics();
    println!("\nrunning {} tests", selected.len());
    let verdicts = run_all(&selected, arguments.threads.unwrap_or(THREADS));
    let failed: Vec<_> = verdicts.iter().filter(|(_, verdict)| matches!(verdict, Verdict::Failed(_))).collect();
    let skipped = verdicts.iter().filter(|(_, verdict)| matches!(verdict, Verdict::Skipped(_))).count();
    for (name, verdict) in &failed {
        if let Verdict::Failed(said) = verdict {
            println!("\n---- {name} ----\n{said}");
        }
    }
    let passed = verdicts.len() - failed.len() - skipped;
    let ignored = cases.len() - selected.len();
    let mut good = failed.is_empty();
    let complete = arguments.words.is_empty() && arguments.skip.is_empty() && !arguments.ignored;
    if good && complete && skipped == 0 {
        // Nightly cases are in the table, too.
        let (page, all): (_, Vec<&Case>) = match grid() {
            Some(_) => ("interop-gsi.md", cases.iter().filter(|case| case.fits_grids()).collect()),
            None => ("interop.md", cases.iter().collect()),
        };
        good = report::settle(page, &all).map_err(|problem| println!("\n{problem}")).is_ok();
    }
    let result = if good { "ok" } else { "FAILED" };
    let failed = failed.len();
    println!("\ntest result: {result}. {passed} passed; {failed} failed; {skipped} skipped; {ignored} not selected\n");
    if good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Panics are shown with the case that had them, not where cases run side by side.
fn keep_panics() {
    std::panic::set_hook(Box::new(|information| SAID.set(information.to_string())));
}

fn run_all(selected: &[&Case], threads: usize) -> Vec<(String, Verdict)> {
    let context = Context::new();
    let next = AtomicUsize::new(0);
    let large = Mutex::new(());
    let verdicts = Mutex::new(Vec::new());
    // Large ones first: what takes longest should not be left over at the end.
    let mut order: Vec<&Case> = selected.to_vec();
    order.sort_by_key(|case| !case.large);
    thread::scope(|scope| {
        for _ in 0..threads.max(1) {
            scope.spawn(|| {
                while let Some(case) = order.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let turn = case.large.then(|| large.lock().unwrap_or_else(PoisonError::into_inner));
                    let start = std::time::Instant::now();
                    let verdict = try_one(case, &context);
                    drop(turn);
                    let word = match &verdict {
                        Verdict::Passed => "ok".to_owned(),
                        Verdict::Skipped(why) => format!("skipped, {why}"),
                        Verdict::Failed(_) => "FAILED".into(),
                    };
                    println!("test {} ... {word} ({:.1} s)", case.name(), start.elapsed().as_secs_f64());
                    verdicts.lock().unwrap_or_else(PoisonError::into_inner).push((case.name(), verdict));
                }
            });
        }
    });
    verdicts.into_inner().unwrap_or_else(PoisonError::into_inner)
}

fn try_one(case: &Case, context: &Context) -> Verdict {
    if let Some(missing) = is_here(case) {
        let said = format!("{missing} is not installed");
        return if must_not_skip() { Verdict::Failed(said) } else { Verdict::Skipped(said) };
    }
    match catch_unwind(AssertUnwindSafe(|| (case.run)(context))) {
        Ok(()) => Verdict::Passed,
        Err(_) => Verdict::Failed(SAID.take()),
    }
}
