//! What a task would do is told before it runs, and nothing is done.

use std::fs;

use whimbrel_engine::FaultCode;
use whimbrel_engine::dispatch::{
    Bounds, Credential, Draft, End, Occurrence, OperationKind, OperationResult, Work, WorkItem,
};
use whimbrel_engine::plan::{Cut, Forecast, StepKind, SyncLevel, Things};
use whimbrel_engine::task::{
    DeleteOptions, Filter, FilterMethod, FilterRule, ItemKind, ItemState, Symlinks, TransferOptions,
};

use crate::bench::{Bench, Ends, item};
use crate::desk::Task;
use crate::open_up;
use crate::support::Field;

const BOUNDS: Bounds = Bounds { entries: 100_000, seconds: 30, steps: 1000 };

impl Ends {
    /// A task that is not submitted.
    pub fn draft(&self, work: Work, items: Vec<WorkItem>) -> Draft {
        let destination = matches!(work, Work::Transfer(_)).then(|| self.site(1));
        Draft { work, destination, items, more: false, label: "test".into(), max_concurrency: None, bounds: BOUNDS }
    }
}

impl Bench {
    /// What a task would do.
    #[track_caller]
    pub fn foresee(&self, ends: &Ends, draft: Draft) -> Forecast {
        match self.operate(&ends.site(0), OperationKind::Foresee(Box::new(draft))).unwrap() {
            OperationResult::Foreseen(forecast) => *forecast,
            other => panic!("{other:?}"),
        }
    }
}

/// Panics unless a task did what was foretold.
#[track_caller]
pub fn assert_came_true(forecast: &Forecast, task: &Task, is_filtered: bool, context: &str) {
    let count = |extra: bool, kind, states: &[ItemState]| {
        let records = task.records.values().filter(|record| record.subject.extra == extra);
        let those = records.filter(|record| record.subject.kind == kind);
        those.filter(|record| states.is_empty() || states.contains(&record.state)).count() as u64
    };
    let things = |extra| Things {
        files: count(extra, ItemKind::File, &[]),
        directories: count(extra, ItemKind::Directory, &[]),
        symlinks: count(extra, ItemKind::Symlink, &[]),
    };
    assert_eq!(forecast.cut, None, "{context}");
    assert_eq!(forecast.found, things(false), "{forecast:#?} {context}");
    let (told, extra) = (forecast.extra, things(true));
    assert_eq!((told.files, told.symlinks), (extra.files, extra.symlinks), "{forecast:#?} {context}");
    // Directories that hold what a filter leaves out stay.
    let fits = if is_filtered { told.directories >= extra.directories } else { told.directories == extra.directories };
    assert!(fits, "{forecast:#?} {extra:?} {context}");
    let between = |least: u64, state| {
        let done = count(false, ItemKind::File, &[state]);
        assert!((least..=least + forecast.files_to_compare).contains(&done), "{done} {forecast:#?} {context}");
    };
    between(forecast.files_to_copy, ItemState::Succeeded);
    between(forecast.files_up_to_date, ItemState::UpToDate);
    let failed = task.records.values().filter(|record| record.fault.is_some()).count() as u64;
    assert_eq!(forecast.failing, failed, "{forecast:#?} {context}");
}

#[test]
fn a_transfer_does_what_was_foretold_and_begins_as_it_was() {
    let field = Field::new();
    let ends = Ends::own(&field.path(""));
    let bench = Bench::new();
    let (from, to) = (field.path("from"), field.path("to"));
    fs::create_dir_all(to.join("tree/deep")).unwrap();
    fs::write(to.join("tree/deep/f00"), "file number 0\n").unwrap();
    fs::create_dir(to.join("tree/gone")).unwrap();
    fs::write(to.join("tree/gone/x"), "x").unwrap();
    open_up(&field.path(""));
    let rule = FilterRule { method: FilterMethod::Exclude, kind: None, name: "f1?".to_owned() };
    let options = TransferOptions {
        verify: true,
        sync: SyncLevel::Size,
        delete_extra: true,
        symlinks: Symlinks::Keep,
        filter: Filter(vec![rule]),
        ..TransferOptions::default()
    };
    let items = vec![item(1, &from, &to.join("tree")), item(2, &from.join("none"), &to.join("none"))];
    let work = Work::Transfer(Box::new(options.clone()));
    let forecast = bench.foresee(&ends, ends.draft(work, items.clone()));
    // What is missing is of another item, and keeps nothing of this one.
    assert_eq!(forecast.extra, Things { files: 1, directories: 1, symlinks: 0 });
    assert_eq!((forecast.filtered, forecast.failing, forecast.files_up_to_date), (10, 1, 1));
    assert_eq!((forecast.files_to_copy, forecast.bytes_to_copy), (33, 3_000_001 + 1 + 6 + 9 * 14 + 20 * 15));
    assert_eq!(forecast.found, Things { files: 35, directories: 4, symlinks: 1 });
    assert_eq!(forecast.directories_to_make, 2);
    let failing: Vec<_> = forecast.steps.iter().filter(|step| step.step == StepKind::Fail).collect();
    assert!(matches!(failing[..], [step] if step.fault == Some(FaultCode::NotFound)), "{failing:#?}");
    assert!(!to.join("tree/deep/f01").exists() && to.join("tree/gone/x").exists());

    let (task, end) = bench.transfer(&ends, options, items);
    assert!(matches!(end, End::Finished), "{end:?}");
    bench.service.see(task, |task| {
        assert_came_true(&forecast, task, false, "");
        let begun = task.occurrences.iter().find_map(|told| match told {
            Occurrence::Started { concurrency, parallelism, pipelining } => {
                Some((concurrency, parallelism, pipelining))
            }
            _ => None,
        });
        let choice = |name: &str| forecast.choices.iter().find(|line| line.choice == name).unwrap().value.unwrap();
        let (sessions, channels, pipeline) = begun.unwrap();
        let begun = [sessions, channels, pipeline].map(|number| u64::from(*number));
        assert_eq!(begun, ["sessions", "channels", "pipeline"].map(choice));
    });
    bench.finish();
}

#[test]
fn a_deletion_does_what_was_foretold() {
    let field = Field::new();
    let ends = Ends::own(&field.path(""));
    let bench = Bench::new();
    open_up(&field.path(""));
    let from = field.path("from");
    let options = DeleteOptions { recursive: true, globs: true, ..DeleteOptions::default() };
    let items = vec![
        item(1, &from.join("d*"), "".as_ref()),
        item(2, &from.join("none"), "".as_ref()),
        item(3, &from.join("link"), "".as_ref()),
    ];
    let forecast = bench.foresee(&ends, ends.draft(Work::Delete(options), items.clone()));
    assert_eq!(forecast.found, Things { files: 42, directories: 2, symlinks: 1 });
    assert_eq!((forecast.failing, forecast.choices.len(), forecast.files_to_copy), (1, 0, 0));
    assert!(from.join("deep/er/big").exists());
    let (task, end) = bench.delete(&ends, options, &[&from.join("d*"), &from.join("none"), &from.join("link")]);
    assert!(matches!(end, End::Finished), "{end:?}");
    assert!(!from.join("deep").exists());
    bench.service.see(task, |task| {
        let count = |kind| task.records.values().filter(|record| record.subject.kind == kind).count() as u64;
        let [files, directories, symlinks] = [ItemKind::File, ItemKind::Directory, ItemKind::Symlink].map(count);
        assert_eq!(forecast.found, Things { files, directories, symlinks });
    });
    bench.finish();
}

#[test]
fn looking_ahead_has_bounds_and_says_so() {
    let field = Field::new();
    let ends = Ends::own(&field.path(""));
    let bench = Bench::new();
    let (many, to) = (crate::many(&field, 500), field.path("to/many"));
    let draft = |bounds| {
        let work = Work::Transfer(Box::default());
        Draft { bounds, ..ends.draft(work, vec![item(1, &many, &to)]) }
    };
    let forecast = bench.foresee(&ends, draft(Bounds { entries: 100, steps: 5, ..BOUNDS }));
    let found = forecast.found;
    assert_eq!((forecast.cut, forecast.steps.len()), (Some(Cut::Entries), 5));
    assert!(found.files + found.directories >= 90 && found.files <= 100, "{found:?}");
    let forecast = bench.foresee(&ends, draft(Bounds { seconds: 0, ..BOUNDS }));
    assert_eq!(forecast.cut, Some(Cut::Time));
    let more = Draft { more: true, ..draft(BOUNDS) };
    let forecast = bench.foresee(&ends, more);
    assert_eq!((forecast.cut, forecast.found.files), (Some(Cut::Named), 500));
    assert!(!to.exists());
    bench.finish();
}

#[test]
fn where_nobody_is_let_in_nothing_is_foretold() {
    let field = Field::new();
    let ends = Ends::own(&field.path(""));
    let bench = Bench::new();
    let items = vec![item(1, &field.path("from"), &field.path("to/x"))];
    let mut draft = ends.draft(Work::Transfer(Box::default()), items);
    let site = draft.destination.as_mut().unwrap();
    site.credential = Credential::Password { user: "nobody-here".into(), password: "wrong".into() };
    let options = TransferOptions { sync: SyncLevel::Size, ..TransferOptions::default() };
    draft.work = Work::Transfer(Box::new(options));
    let fault = bench.operate(&ends.site(0), OperationKind::Foresee(Box::new(draft))).unwrap_err();
    assert_eq!(fault.code, FaultCode::LoginFailed, "{fault}");
    bench.finish();
}
