//! Runs cases side by side, as other test programs run tests, and settles the written table.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

use whimbrel_testkit::lab::Lab;
use whimbrel_testkit::require_root;

use crate::case::Case;
use crate::protection::Protection;
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

    /// Whether nothing is left out but what is nightly.
    fn is_complete(&self) -> bool {
        self.words.is_empty() && self.skip.is_empty() && !self.ignored
    }

    fn wants(&self, case: &Case) -> bool {
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

/// Runs what the command line selects: over the protection that was asked for, or without any and then some over each.
pub fn run(cases: &[Case]) -> ExitCode {
    let arguments = Arguments::read();
    let names: BTreeSet<String> = cases.iter().map(Case::name).collect();
    assert_eq!(names.len(), cases.len(), "two cases share a name");
    let wanted = Protection::wanted();
    let others: &[Protection] = if wanted == Protection::Clear { &Protection::ALL } else { &[] };
    keep_panics();
    let mut good = run_over(wanted, cases, &arguments, &|_| true);
    for protection in others {
        good &= run_over(*protection, cases, &arguments, &Case::is_sample);
    }
    if good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Runs what is selected of the cases that this protection fits.
fn run_over(over: Protection, cases: &[Case], arguments: &Arguments, among: &dyn Fn(&Case) -> bool) -> bool {
    let fitting: Vec<&Case> = cases.iter().filter(|case| over.fits(case)).collect();
    let selected: Vec<&Case> = fitting.iter().copied().filter(|case| among(case) && arguments.wants(case)).collect();
    if arguments.list {
        selected.iter().for_each(|case| println!("{}: test", named(over, case)));
        return true;
    }
    println!("\nrunning {} tests ({})", selected.len(), over.word());
    // Making it takes seconds, also where nothing needs it.
    if selected.is_empty() || !over.is_here() {
        return true;
    }
    over.prepare();
    let verdicts = run_all(over, &selected, arguments.threads.unwrap_or(THREADS));
    Protection::clear_away();
    let complete = arguments.is_complete() && selected.len() >= fitting.iter().filter(|case| !case.nightly).count();
    report(over, &fitting, &verdicts, complete)
}

/// Says what came of it, and whether that is good; the whole table has to be on its page.
fn report(over: Protection, fitting: &[&Case], verdicts: &[(String, Verdict)], complete: bool) -> bool {
    let failed: Vec<_> = verdicts.iter().filter(|(_, verdict)| matches!(verdict, Verdict::Failed(_))).collect();
    let skipped = verdicts.iter().filter(|(_, verdict)| matches!(verdict, Verdict::Skipped(_))).count();
    for (name, verdict) in &failed {
        if let Verdict::Failed(said) = verdict {
            println!("\n---- {name} ----\n{said}");
        }
    }
    let passed = verdicts.len() - failed.len() - skipped;
    let left = fitting.len() - verdicts.len();
    let mut good = failed.is_empty();
    if good && complete && skipped == 0 {
        // Nightly cases are in the table, too.
        good = report::settle(over.page(), fitting).map_err(|problem| println!("\n{problem}")).is_ok();
    }
    let (result, over, failed) = (if good { "ok" } else { "FAILED" }, over.word(), failed.len());
    println!(
        "\ntest result ({over}): {result}. {passed} passed; {failed} failed; {skipped} skipped; {left} not selected\n"
    );
    good
}

/// The name of a case, which says what it runs over.
fn named(over: Protection, case: &Case) -> String {
    match over {
        Protection::Clear => case.name(),
        _ => format!("{}::over_{}", case.name(), over.word()),
    }
}

/// Panics are shown with the case that had them, not where cases run side by side.
fn keep_panics() {
    std::panic::set_hook(Box::new(|information| SAID.set(information.to_string())));
}

fn run_all(over: Protection, selected: &[&Case], threads: usize) -> Vec<(String, Verdict)> {
    let context = Context::new();
    let next = AtomicUsize::new(0);
    let large = Mutex::new(());
    let verdicts = Mutex::new(Vec::new());
    // The shells of all cases are in the machine's network.
    let apart = over != Protection::Ssh && require_root();
    // Large ones first: what takes longest should not be left over at the end.
    let mut order: Vec<&Case> = selected.to_vec();
    order.sort_by_key(|case| !case.large);
    thread::scope(|scope| {
        for _ in 0..threads.max(1) {
            scope.spawn(|| {
                while let Some(case) = order.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let turn = case.large.then(|| large.lock().unwrap_or_else(PoisonError::into_inner));
                    let start = std::time::Instant::now();
                    let verdict = if apart { alone(|| try_one(case, &context)) } else { try_one(case, &context) };
                    drop(turn);
                    let word = match &verdict {
                        Verdict::Passed => "ok".to_owned(),
                        Verdict::Skipped(why) => format!("skipped, {why}"),
                        Verdict::Failed(_) => "FAILED".into(),
                    };
                    println!("test {} ... {word} ({:.1} s)", named(over, case), start.elapsed().as_secs_f64());
                    verdicts.lock().unwrap_or_else(PoisonError::into_inner).push((named(over, case), verdict));
                }
            });
        }
    });
    verdicts.into_inner().unwrap_or_else(PoisonError::into_inner)
}

/// Runs a case in a network of its own. Data connections in clear text tell nobody whose they are: one that comes late, when its
/// listener has gone, would be taken by the server of another case that has got the same port meanwhile.
fn alone(case: impl FnOnce() -> Verdict + Send) -> Verdict {
    let lab = Lab::builder().host("alone").build().expect("root may make networks");
    lab.host("alone").run(case)
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
