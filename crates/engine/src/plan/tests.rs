use std::collections::{BTreeMap, HashMap, HashSet};

use proptest::prelude::*;

use super::*;
use crate::fault::{FaultCode, Side};
use crate::listing::{ObjectKind, join};
use crate::task::{FilterMethod, FilterRule, FilterType};

/// Two small file systems that answer the planner's questions.
#[derive(Debug, Default, Clone)]
struct Disks {
    source: BTreeMap<Vec<u8>, Object>,
    destination: BTreeMap<Vec<u8>, Object>,
    /// Directories at the source that cannot be listed.
    locked: HashSet<Vec<u8>>,
}

fn put(disk: &mut BTreeMap<Vec<u8>, Object>, path: &str, object: Object) {
    let name = path.rsplit('/').next().unwrap_or_default().as_bytes().to_vec();
    disk.insert(path.as_bytes().to_vec(), Object { path: name, ..object });
}

fn entries(disk: &BTreeMap<Vec<u8>, Object>, directory: &[u8]) -> Vec<Object> {
    let inside = |path: &[u8], object: &Object| path == join(directory, &object.path);
    disk.iter().filter(|(path, object)| inside(path, object)).map(|(_, o)| o.clone()).collect()
}

impl Disks {
    fn source(mut self, path: &str, object: Object) -> Self {
        put(&mut self.source, path, object);
        self
    }

    fn destination(mut self, path: &str, object: Object) -> Self {
        put(&mut self.destination, path, object);
        self
    }

    /// The inputs that answer `query`, in an order that `mix` chooses.
    fn answer(&self, query: Query, mix: u64) -> Vec<PlanInput> {
        match query {
            Query::Stat { query, source, destination, follow, .. } => {
                let source = source.map_or(Err(missing()), |path| self.stat(&path, follow));
                let destination = destination.and_then(|path| self.destination.get(&path).cloned());
                vec![PlanInput::Stat { query, source, destination: Ok(destination) }]
            }
            Query::List { query, source, destination, .. } => {
                let mut first: Vec<_> = if self.locked.contains(&source) {
                    vec![PlanInput::SourceFailed { query, fault: Fault::new(FaultCode::PermissionDenied, "list") }]
                } else {
                    let sources = entries(&self.source, &self.resolve(&source)).into_iter();
                    let sources = sources.map(|object| PlanInput::Source { query, object });
                    sources.chain([PlanInput::SourceEnd { query }]).collect()
                };
                let second: Vec<_> = destination
                    .into_iter()
                    .flat_map(|destination| {
                        let found = entries(&self.destination, &destination).into_iter();
                        let found = found.map(|object| PlanInput::Destination { query, object });
                        found.chain([PlanInput::DestinationEnd { query }]).collect::<Vec<_>>()
                    })
                    .collect();
                let at = (mix as usize) % (first.len() + 1);
                first.splice(at..at, second);
                first
            }
        }
    }

    /// `path` with the links on its way replaced by what they say.
    fn resolve(&self, path: &[u8]) -> Vec<u8> {
        let mut at = Vec::new();
        for name in path.split(|b| *b == b'/').skip(1) {
            at.push(b'/');
            at.extend_from_slice(name);
            if let Some(ObjectKind::Symlink { target }) = self.source.get(&at).map(|o| &o.kind) {
                at = target.clone();
            }
        }
        at
    }

    fn stat(&self, path: &[u8], follow: bool) -> Result<Object, Fault> {
        let path = if follow { &self.resolve(path) } else { path };
        let object = self.source.get(path).ok_or_else(missing)?;
        match &object.kind {
            ObjectKind::Symlink { target } if follow => self.stat(target, true),
            _ => Ok(object.clone()),
        }
    }

    fn plan(&self, options: PlanOptions, roots: Vec<Root>) -> Vec<Action> {
        self.plan_mixed(options, roots, 0)
    }

    fn plan_mixed(&self, options: PlanOptions, roots: Vec<Root>, mix: u64) -> Vec<Action> {
        self.plan_whole(options, roots, mix).0
    }

    fn plan_going_on(&self, options: PlanOptions, root: Root, earlier: impl Earlier + 'static) -> Vec<Action> {
        let mut planner = Planner::new(options);
        planner.go_on(Box::new(earlier));
        self.all_of(planner, vec![root], 0).0
    }

    fn plan_whole(&self, options: PlanOptions, roots: Vec<Root>, mix: u64) -> (Vec<Action>, Vec<Extra>) {
        self.all_of(Planner::new(options), roots, mix)
    }

    fn all_of(&self, mut planner: Planner, roots: Vec<Root>, mix: u64) -> (Vec<Action>, Vec<Extra>) {
        roots.into_iter().for_each(|root| {
            planner.add_root(root);
        });
        planner.no_more_roots();
        let (mut actions, mut extras) = (Vec::new(), Vec::new());
        let mut open = Vec::new();
        while !planner.is_finished() {
            open.extend(std::iter::from_fn(|| planner.poll_query()));
            if !open.is_empty() {
                let query = open.remove(mix as usize % open.len());
                for input in self.answer(query, mix) {
                    planner.handle(input);
                }
            }
            actions.extend(std::iter::from_fn(|| planner.poll_action()));
            extras.extend(std::iter::from_fn(|| planner.poll_extra()));
        }
        (actions, extras)
    }
}

fn missing() -> Fault {
    Fault::new(FaultCode::NotFound, "stat")
}

fn recursive() -> PlanOptions {
    PlanOptions { recursive: true, ..PlanOptions::default() }
}

fn texts(actions: &[Action]) -> Vec<String> {
    actions.iter().map(Action::to_string).collect()
}

fn tree() -> Disks {
    Disks::default()
        .source("/s", Object::directory(""))
        .source("/s/b", Object::directory(""))
        .source("/s/b/c", Object::file("", 2_000))
        .source("/s/a", Object::file("", 1).mode(0o100644))
}

#[test]
fn a_tree_is_planned_directories_first_and_attributes_last() {
    let plan = tree().plan(recursive(), vec![Root::new("/s", "/d")]);
    assert_eq!(
        texts(&plan),
        [
            "mkdir    /d",
            "copy     /s/a -> /d/a (1 B)",
            "mkdir    /d/b",
            "copy     /s/b/c -> /d/b/c (2.00 KB)",
            "set      /d/b",
            "set      /d",
        ]
    );
}

#[test]
fn a_known_file_is_planned_without_a_question() {
    let mut planner = Planner::new(PlanOptions::default());
    planner.add_root(Root::new("/s/a", "/d/a").object(Object::file("", 7)));
    planner.no_more_roots();
    assert_eq!(planner.poll_query(), None);
    assert!(matches!(planner.poll_action(), Some(Action::Copy { item }) if item.size == Some(7)));
    assert!(planner.is_finished());
}

#[test]
fn nothing_is_preserved_unless_asked() {
    let root = || vec![Root::new("/s/a", "/d/a")];
    let plain = tree().plan(recursive(), root());
    assert!(plain[0].item().attributes.is_empty());
    let preserve = Preserve { times: true, modes: true };
    let kept = tree().plan(PlanOptions { preserve, ..recursive() }, root());
    assert_eq!(kept[0].item().attributes.mode, Some(0o644));
}

#[test]
fn a_directory_without_recursive_and_a_missing_source_are_refused_with_a_side() {
    let plan = tree().plan(PlanOptions::default(), vec![Root::new("/s", "/d"), Root::new("/x", "/d/x")]);
    let faults: Vec<_> = plan
        .iter()
        .map(|action| match action {
            Action::Refuse { fault, .. } => (fault.code, fault.side),
            other => panic!("{other}"),
        })
        .collect();
    assert_eq!(faults, [(FaultCode::IsADirectory, Some(Side::Source)), (FaultCode::NotFound, Some(Side::Source))]);
}

#[test]
fn names_that_would_leave_the_directory_are_refused_and_dots_ignored() {
    for name in [&b"../evil"[..], b"/etc/passwd", b"a/b", b"", b"nul\0"] {
        let mut planner = Planner::new(recursive());
        planner.add_root(Root::new("/s", "/d").object(Object::directory("")));
        let Some(Query::List { query, .. }) = planner.poll_query() else { panic!("a directory is listed") };
        planner.handle(PlanInput::Source { query, object: Object::file(name, 1) });
        planner.handle(PlanInput::Source { query, object: Object::directory(&b"."[..]) });
        planner.handle(PlanInput::Source { query, object: Object::directory(&b".."[..]) });
        planner.handle(PlanInput::SourceEnd { query });
        let plan: Vec<_> = std::iter::from_fn(|| planner.poll_action()).collect();
        assert!(
            matches!(&plan[..], [Action::MakeDirectory { .. }, Action::Refuse { fault, .. }, Action::SetAttributes { .. }] if fault.code == FaultCode::InvalidPath),
            "{plan:?}"
        );
    }
}

/// The names in a plan with those that they are to be told from, and what becomes of them.
fn twins(plan: &[Action]) -> Vec<(String, String, Vec<String>)> {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let kind = |action: &Action| match action {
        Action::MakeDirectory { .. } => "make",
        Action::Copy { .. } => "copy",
        Action::Symlink { .. } => "link",
        Action::Skip { .. } => "skip",
        other => panic!("{other:?}"),
    };
    let of = |action: &Action| {
        let item = action.item();
        let others = item.twins.iter().map(|name| text(name)).collect();
        (kind(action).to_owned(), text(&item.destination), others)
    };
    plan.iter().filter(|action| !matches!(action, Action::SetAttributes { .. })).map(of).collect()
}

fn told(what: &str, name: &str, others: &[&str]) -> (String, String, Vec<String>) {
    (what.to_owned(), name.to_owned(), others.iter().map(|other| (*other).to_owned()).collect())
}

#[test]
fn names_that_a_destination_may_take_for_one_are_to_be_told_apart() {
    let disks = Disks::default()
        .source("/s", Object::directory(""))
        .source("/s/DATA", Object::directory(""))
        .source("/s/DATA/x", Object::file("", 1))
        .source("/s/Data", Object::directory(""))
        .source("/s/Data/X", Object::file("", 1))
        .source("/s/README", Object::file("", 1))
        .source("/s/ReadMe", Object::symlink("", "README"))
        .source("/s/readme", Object::file("", 1));
    let plan = disks.plan(PlanOptions { links: Links::Copy, ..recursive() }, vec![Root::new("/s", "/d")]);
    let mut found = twins(&plan);
    found.sort();
    let expected = [
        told("copy", "/d/DATA/x", &[]),
        told("copy", "/d/Data/X", &[]),
        told("copy", "/d/README", &[]),
        told("copy", "/d/readme", &["README", "ReadMe"]),
        told("link", "/d/ReadMe", &["README"]),
        told("make", "/d", &[]),
        told("make", "/d/DATA", &[]),
        told("make", "/d/Data", &["DATA"]),
    ];
    assert_eq!(found, expected);
}

#[test]
fn names_that_the_destination_shows_beside_each_other_are_told_apart_already() {
    let disks = |shown: &[&str]| {
        let mut disks = Disks::default()
            .source("/s", Object::directory(""))
            .source("/s/A", Object::file("", 1))
            .source("/s/a", Object::file("", 1))
            .destination("/d", Object::directory(""));
        for name in shown {
            disks = disks.destination(name, Object::file("", 1));
        }
        let plan = disks.plan(PlanOptions { sync: SyncLevel::Size, ..recursive() }, vec![Root::new("/s", "/d")]);
        twins(&plan)
    };
    assert_eq!(disks(&["/d/A", "/d/a"]), [told("skip", "/d/A", &[]), told("skip", "/d/a", &[])]);
    assert_eq!(disks(&["/d/A"]), [told("skip", "/d/A", &[]), told("copy", "/d/a", &["A"])]);
    // What is there may be the copy of the other, which is written over.
    assert_eq!(disks(&["/d/a"]), [told("copy", "/d/A", &[]), told("copy", "/d/a", &["A"])]);
}

#[test]
fn copies_of_several_sources_are_told_apart_too() {
    let mut planner = Planner::new(PlanOptions::default());
    for (from, to) in [("/s/A", "/d/A"), ("/t/a", "/d/a"), ("/t/b", "/e/a"), ("/s/A", "/d/A")] {
        planner.add_root(Root::new(from, to).object(Object::file("", 1)));
    }
    let plan: Vec<_> = std::iter::from_fn(|| planner.poll_action()).collect();
    let expected = [
        told("copy", "/d/A", &[]),
        told("copy", "/d/a", &["A"]),
        told("copy", "/e/a", &[]),
        told("copy", "/d/A", &["a"]),
    ];
    assert_eq!(twins(&plan), expected);
}

#[test]
fn nothing_is_written_through_a_link_that_is_copied() {
    let link = || Object::symlink(&b"x"[..], "/home/me/.ssh");
    for (first, second) in [(link(), Object::directory(&b"x"[..])), (Object::file(&b"x"[..], 1), link())] {
        let mut planner = Planner::new(PlanOptions { links: Links::Copy, ..recursive() });
        planner.add_root(Root::new("/s", "/d").object(Object::directory("")));
        let Some(Query::List { query, .. }) = planner.poll_query() else { panic!("a directory is listed") };
        for object in [first, second, Object::file(&b"y"[..], 1)] {
            planner.handle(PlanInput::Source { query, object });
        }
        planner.handle(PlanInput::SourceEnd { query });
        let plan: Vec<_> = std::iter::from_fn(|| planner.poll_action()).collect();
        let refused = |action: &&Action| matches!(action, Action::Refuse { item, .. } if item.destination == b"/d/x");
        assert_eq!(plan.iter().filter(refused).count(), 1, "{plan:?}");
        assert_eq!(plan.len(), 5, "the directory, the first, the refusal, the other file, the attributes: {plan:?}");
    }
    let disks = Disks::default()
        .source("/s", Object::directory(""))
        .source("/s/latest", Object::directory(""))
        .destination("/d", Object::directory(""))
        .destination("/d/latest", Object::symlink("", "/scratch/run6"))
        .source("/s/notes", Object::file("", 1))
        .destination("/d/notes", Object::symlink("", "/home/me/.profile"));
    for sync in [SyncLevel::None, SyncLevel::Size] {
        let options = PlanOptions { links: Links::Copy, avoids_links: true, sync, ..recursive() };
        let plan = texts(&disks.plan(options, vec![Root::new("/s", "/d")]));
        for refused in ["refuse   /s/latest: ", "refuse   /s/notes: "] {
            assert!(plan.iter().any(|line| line.starts_with(refused)), "{plan:?}");
        }
    }
}

#[test]
fn existing_directories_are_not_made_and_existing_files_are_compared() {
    let disks = tree()
        .destination("/d", Object::directory(""))
        .destination("/d/a", Object::file("", 1))
        .destination("/d/b", Object::directory(""))
        .destination("/d/b/c", Object::file("", 1));
    let options = PlanOptions { sync: SyncLevel::Size, ..recursive() };
    let plan = disks.plan(options, vec![Root::new("/s", "/d")]);
    assert_eq!(
        texts(&plan),
        ["skip     /s/a: same size", "copy     /s/b/c -> /d/b/c (2.00 KB)", "set      /d/b", "set      /d",]
    );
}

/// An earlier run whose files are known by their names.
#[derive(Debug)]
struct Remembered(Vec<(&'static str, Finished)>);

impl Earlier for Remembered {
    fn finished(&self, item: &Item, existing: &Object) -> Finished {
        let known = self.0.iter().find(|(name, _)| item.source.ends_with(name.as_bytes()));
        known.filter(|_| existing.size == item.size).map_or(Finished::No, |(_, finished)| *finished)
    }
}

#[test]
fn what_an_earlier_run_has_finished_is_left_or_compared_and_the_rest_is_copied() {
    let file = |size| Object::file("", size);
    let mut disks = Disks::default().source("/s", Object::directory("")).destination("/d", Object::directory(""));
    for name in ["done", "perhaps", "other", "gone"] {
        disks = disks.source(&format!("/s/{name}"), file(5));
    }
    for (name, size) in [("done", 5), ("perhaps", 5), ("other", 6)] {
        disks = disks.destination(&format!("/d/{name}"), file(size));
    }
    let known = || {
        let finished = [("done", Finished::Yes), ("perhaps", Finished::Perhaps)];
        Remembered(finished.into_iter().chain([("other", Finished::Yes), ("gone", Finished::Yes)]).collect())
    };
    let going_on = |options| disks.plan_going_on(options, Root::new("/s", "/d"), known());
    let plan = going_on(recursive());
    let of = |name: &str| plan.iter().find(|action| action.item().source.ends_with(name.as_bytes())).unwrap();
    assert!(matches!(of("done"), Action::Skip { reason: SkipReason::MovedEarlier, .. }));
    assert!(matches!(of("perhaps"), Action::CompareChecksum { .. }));
    assert!(matches!((of("other"), of("gone")), (Action::Copy { .. }, Action::Copy { .. })));
    // Whoever compares anyway says what counts.
    let compared = going_on(PlanOptions { sync: SyncLevel::Checksum, ..recursive() });
    assert!(!compared.iter().any(|action| matches!(action, Action::Skip { .. })), "{:?}", texts(&compared));
}

#[test]
fn a_file_in_the_way_of_a_directory_is_refused_and_the_rest_goes_on() {
    let disks = tree().destination("/d", Object::directory("")).destination("/d/b", Object::file("", 1));
    let options = PlanOptions { sync: SyncLevel::Size, ..recursive() };
    let plan = disks.plan(options, vec![Root::new("/s", "/d")]);
    assert!(
        matches!(&plan[..], [Action::Copy { .. }, Action::Refuse { fault, .. }, Action::SetAttributes { .. }] if fault.code == FaultCode::NotADirectory),
        "{:?}",
        texts(&plan)
    );
}

/// Answers with all of the source before the destination.
fn source_first(mut answers: Vec<PlanInput>) -> Vec<PlanInput> {
    answers.sort_by_key(|input| matches!(input, PlanInput::Destination { .. } | PlanInput::DestinationEnd { .. }));
    answers
}

#[test]
fn what_was_found_before_a_listing_failed_is_planned_whenever_the_destination_answers() {
    let disks = tree().destination("/d", Object::directory("")).destination("/d/a", Object::file("", 1));
    for sync in [SyncLevel::None, SyncLevel::Size] {
        let mut planner = Planner::new(PlanOptions { sync, ..recursive() });
        planner.add_root(Root::new("/s", "/d").object(Object::directory("")));
        planner.no_more_roots();
        let mut plan = Vec::new();
        while !planner.is_finished() {
            let query = planner.poll_query().expect("there is one while it is not finished");
            let failed = matches!(&query, Query::List { source, .. } if source == b"/s");
            for mut input in source_first(disks.answer(query, 0)) {
                if let (PlanInput::SourceEnd { query }, true) = (&input, failed) {
                    let fault = Fault::new(FaultCode::ListingUnclear, "list");
                    input = PlanInput::SourceFailed { query: *query, fault };
                }
                planner.handle(input);
            }
            plan.extend(std::iter::from_fn(|| planner.poll_action()));
        }
        let count = |word: &str| texts(&plan).iter().filter(|text| text.starts_with(word)).count();
        let skipped = usize::from(sync == SyncLevel::Size);
        assert_eq!((count("refuse"), count("copy"), count("skip")), (1, 2 - skipped, skipped), "{:?}", texts(&plan));
        assert_eq!(texts(&plan).last().map(String::as_str), Some("set      /d"));
    }
}

fn with_links() -> Disks {
    Disks::default()
        .source("/s", Object { unique: Some("1".into()), ..Object::directory("") })
        .source("/s/dangling", Object::symlink("", "/nowhere"))
        .source("/s/file", Object::symlink("", "/o"))
        .source("/s/loop", Object::symlink("", "/s"))
        .source("/o", Object::file("", 5))
}

#[test]
fn links_are_followed_copied_or_skipped_as_asked() {
    let plan = |links| {
        let options = PlanOptions { links, ..recursive() };
        texts(&with_links().plan(options, vec![Root::new("/s", "/d")]))
    };
    assert_eq!(
        plan(Links::Copy)[1..4],
        ["symlink  /d/dangling -> /nowhere", "symlink  /d/file -> /o", "symlink  /d/loop -> /s",]
    );
    assert_eq!(plan(Links::Skip)[2], "skip     /s/file: symbolic link");
    let followed = plan(Links::Follow);
    assert!(followed[1].starts_with("refuse   /s/dangling: "), "{followed:?}");
    assert_eq!(followed[2], "copy     /s/file -> /d/file (5 B)");
    assert!(followed[3].contains("a loop of links"), "{followed:?}");
    assert_eq!(followed[4], "set      /d");
}

#[test]
fn a_loop_without_identities_ends_at_the_depth_limit() {
    let mut disks = with_links();
    disks.source.values_mut().for_each(|object| object.unique = None);
    let options = PlanOptions { max_depth: 3, ..recursive() };
    let plan = disks.plan(options, vec![Root::new("/s", "/d")]);
    let made = plan.iter().filter(|a| matches!(a, Action::MakeDirectory { .. })).count();
    assert_eq!(made, 4);
}

#[test]
fn a_device_is_copied_when_named_and_skipped_when_met() {
    let disks = Disks::default()
        .source("/s", Object::directory(""))
        .source("/s/zero", Object { size: Some(0), ..Object::bare("", ObjectKind::Other) });
    let named = disks.plan(recursive(), vec![Root::new("/s/zero", "/d/zero")]);
    assert!(matches!(&named[..], [Action::Copy { item }] if item.size.is_none()));
    let mut part = Root::new("/s/zero", "/d/zero");
    part.range = Some(0..1000);
    let part = disks.plan(recursive(), vec![part]);
    assert!(matches!(&part[..], [Action::Copy { item }] if item.size == Some(1000)));
    let met = disks.plan(recursive(), vec![Root::new("/s", "/d")]);
    assert_eq!(texts(&met)[1], "skip     /s/zero: device, pipe or socket");
}

#[test]
fn a_range_is_cut_at_the_end_of_the_file_and_refused_behind_it() {
    let ranged = |range: std::ops::Range<u64>| {
        let mut root = Root::new("/s/b/c", "/d");
        root.range = Some(range);
        tree().plan(PlanOptions::default(), vec![root]).remove(0)
    };
    let action = ranged(500..u64::MAX);
    assert_eq!((action.item().range.clone(), action.item().size), (Some(500..2000), Some(1500)));
    assert!(matches!(ranged(2001..3000), Action::Refuse { fault, .. } if fault.code == FaultCode::InvalidArgument));
}

#[test]
fn a_directory_that_cannot_be_listed_is_refused_and_the_rest_goes_on() {
    let mut disks = tree();
    disks.locked.insert(b"/s/b".to_vec());
    let plan = disks.plan(recursive(), vec![Root::new("/s", "/d")]);
    let text = texts(&plan);
    assert_eq!(text[2], "mkdir    /d/b");
    assert!(text[3].starts_with("refuse   /s/b: "), "{text:?}");
    assert_eq!(text[4..], ["set      /d/b", "set      /d"]);
}

#[test]
fn totals_count_what_the_plan_holds_and_paths_stay_on_one_line() {
    let mut totals = PlanTotals::default();
    tree().plan(recursive(), vec![Root::new("/s", "/d")]).iter().for_each(|action| totals.add(action));
    assert_eq!(totals.to_string(), "2 files to copy, 2.00 KB, 2 directories");
    assert_eq!(quote_path(b"a\nb\xff\\\xc3\xbc"), "a\\x0ab\\xff\\\\\u{fc}");
}

fn object() -> impl Strategy<Value = Object> {
    prop_oneof![
        3 => (0u64..3).prop_map(|size| Object::file("", size)),
        3 => Just(Object::directory("")),
        1 => Just(Object::symlink("", "/s/0")),
        1 => Just(Object::bare("", ObjectKind::Other)),
    ]
}

/// A tree of at most four levels with names 0 to 3.
fn disk(root: &'static str) -> impl Strategy<Value = BTreeMap<Vec<u8>, Object>> {
    let path = prop::collection::vec(0u8..4, 1..4);
    prop::collection::btree_map(path, object(), 0..25).prop_map(move |objects| {
        let mut disk = BTreeMap::new();
        put(&mut disk, root, Object::directory(""));
        for (path, object) in objects {
            let mut parent = root.to_string();
            for name in &path[..path.len() - 1] {
                parent = format!("{parent}/{name}");
                put(&mut disk, &parent, Object::directory(""));
            }
            let full = format!("{parent}/{}", path[path.len() - 1]);
            if !disk.contains_key(full.as_bytes()) {
                put(&mut disk, &full, object);
            }
        }
        // Only what lies in directories exists.
        let all = disk.clone();
        disk.retain(|path, _| {
            let parent = &path[..path.iter().rposition(|b| *b == b'/').unwrap_or(0)];
            parent.is_empty() || all.get(parent).is_some_and(|o| o.kind == ObjectKind::Directory)
        });
        disk
    })
}

fn sync() -> impl Strategy<Value = SyncLevel> {
    use SyncLevel::*;
    prop::sample::select(vec![None, Exists, Size, Mtime, Checksum])
}

/// Panics unless directories come before and end after what is in them.
fn check_order(plan: &[Action]) {
    let mut made: HashMap<DirectoryId, usize> = HashMap::new();
    let mut ended: HashMap<DirectoryId, usize> = HashMap::new();
    let mut ids = HashSet::new();
    for (at, action) in plan.iter().enumerate() {
        assert!(ids.insert(action.item().id), "{action}: number used twice");
        if let Some(parent) = action.item().parent {
            assert!(!ended.contains_key(&parent), "{action}: its directory has ended");
        }
        match action {
            Action::MakeDirectory { directory, .. } => {
                assert!(made.insert(*directory, at).is_none());
            }
            Action::SetAttributes { directory, .. } => {
                assert!(ended.insert(*directory, at).is_none());
            }
            _ => {}
        }
    }
    for (directory, at) in made {
        assert!(ended.get(&directory).is_some_and(|end| *end > at), "{directory:?} never ends");
        let early = plan[..at].iter().find(|action| action.item().parent == Some(directory));
        assert!(early.is_none(), "{early:?} before its directory");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_object_of_the_source_is_planned_once_and_in_order(
        source in disk("/s"),
        destination in disk("/d"),
        sync in sync(),
        mix: u64,
        queries_at_once in 1usize..4,
    ) {
        let disks = Disks { source, destination, locked: HashSet::new() };
        let options = PlanOptions { sync, links: Links::Copy, queries_at_once, ..recursive() };
        let plan = disks.plan_mixed(options, vec![Root::new("/s", "/d")], mix);
        check_order(&plan);
        let mut verdicts: HashMap<&[u8], u32> = HashMap::new();
        let mut entered: HashSet<&[u8]> = HashSet::new();
        for action in &plan {
            match action {
                Action::MakeDirectory { .. } => {}
                Action::SetAttributes { item, .. } => { entered.insert(&item.source); }
                other => *verdicts.entry(&other.item().source).or_default() += 1,
            }
        }
        for (path, object) in &disks.source {
            let reached = path.as_slice() == b"/s" || path.iter().rposition(|b| *b == b'/').is_some_and(|at| entered.contains(&path[..at]));
            let wanted = u32::from(reached && object.kind != ObjectKind::Directory);
            let found = verdicts.get(path.as_slice()).copied().unwrap_or(0);
            if object.kind == ObjectKind::Directory {
                prop_assert_eq!(found == 0, entered.contains(path.as_slice()) || !reached);
            } else {
                prop_assert_eq!(found, wanted, "{}", quote_path(path));
            }
        }
    }
}

fn exclude(kind: Option<FilterType>, name: &str) -> FilterRule {
    FilterRule { method: FilterMethod::Exclude, kind, name: name.into() }
}

#[test]
fn filters_prune_what_is_met_in_directories_and_not_what_is_named() {
    let disks = tree()
        .source("/s/l", Object::symlink("", "/s/b"))
        .source("/s/m", Object::symlink("", "/s/a"))
        .source("/s/b.tmp", Object::file("", 5));
    let rules = vec![exclude(Some(FilterType::Dir), "[bl]"), exclude(Some(FilterType::File), "*.tmp")];
    let options = PlanOptions { filter: Filter(rules), ..recursive() };
    let roots = [Root::new("/s", "/d"), Root::new("/s/b.tmp", "/t"), Root::new("/s/b", "/e")];
    let plan = roots.map(|root| texts(&disks.plan(options.clone(), vec![root])));
    assert_eq!(
        plan.concat(),
        [
            "mkdir    /d",
            "copy     /s/a -> /d/a (1 B)",
            "copy     /s/m -> /d/m (1 B)",
            "set      /d",
            "copy     /s/b.tmp -> /t (5 B)",
            "mkdir    /e",
            "copy     /s/b/c -> /e/c (2.00 KB)",
            "set      /e",
        ]
    );
    // A directory counts as one, whatever is in it, and a link by what it leads to.
    let mut planner = Planner::new(options);
    planner.add_root(Root::new("/s", "/d"));
    planner.no_more_roots();
    while let Some(query) = planner.poll_query() {
        disks.answer(query, 0).into_iter().for_each(|input| planner.handle(input));
        while planner.poll_action().is_some() {}
    }
    assert!(planner.is_finished());
    assert_eq!(planner.filtered(), 3);
}

#[test]
fn a_root_that_is_not_what_was_demanded_is_refused() {
    let disks = tree().source("/s/l", Object::symlink("", "/s/a"));
    let root = |path: &str| Root::new(path, "/d");
    let cases = [
        (Root { recursive: Some(false), ..root("/s") }, Some(FaultCode::IsADirectory)),
        (Root { recursive: Some(true), ..root("/s/a") }, Some(FaultCode::NotADirectory)),
        (Root { recursive: Some(false), ..root("/s/a") }, None),
        (Root { recursive: Some(true), ..root("/s/b") }, None),
        (Root { links: Some(Links::Copy), ..root("/s/a") }, Some(FaultCode::NotASymlink)),
        (Root { links: Some(Links::Copy), ..root("/s/l") }, None),
        (Root { links: Some(Links::Follow), recursive: Some(false), ..root("/s/l") }, None),
    ];
    for (root, expected) in cases {
        let plan = disks.plan(PlanOptions { links: Links::Skip, ..recursive() }, vec![root.clone()]);
        let refused = match &plan[0] {
            Action::Refuse { fault, .. } => Some(fault.code),
            Action::Symlink { .. } => {
                assert_eq!(root.links, Some(Links::Copy));
                None
            }
            _ => None,
        };
        assert_eq!(refused, expected, "{root:?}");
    }
}

/// Two trees that differ in everything a mirror looks at.
fn mirrored() -> Disks {
    tree()
        .source("/s/l", Object::symlink("", "/s/a"))
        .destination("/d", Object::directory(""))
        .destination("/d/a", Object::file("", 1))
        .destination("/d/l", Object::file("", 1))
        .destination("/d/x", Object::file("", 1))
        .destination("/d/x.keep", Object::file("", 1))
        .destination("/d/y", Object::directory(""))
        .destination("/d/y/z", Object::file("", 1))
        .destination("/d/b", Object::directory(""))
        .destination("/d/b/w", Object::symlink("", "/etc"))
}

fn extra(path: &str, kind: ItemKind) -> Extra {
    Extra { root: RootId(0), path: path.as_bytes().to_vec(), kind, twin: false }
}

#[test]
fn a_mirror_is_told_what_only_the_destination_has_and_not_what_filters_leave_out() {
    for mix in 0..50 {
        let filter = Filter(vec![exclude(Some(FilterType::File), "*.keep")]);
        let options = PlanOptions { mirror: true, links: Links::Skip, filter, ..recursive() };
        let (_, mut extras) = mirrored().plan_whole(options, vec![Root::new("/s", "/d")], mix);
        extras.sort_by(|one, other| one.path.cmp(&other.path));
        let expected =
            [extra("/d/b/w", ItemKind::Symlink), extra("/d/x", ItemKind::File), extra("/d/y", ItemKind::Directory)];
        assert_eq!(extras, expected, "{mix}");
    }
}

#[test]
fn an_extra_that_may_be_a_copy_under_another_spelling_is_told_as_such() {
    // One of each pair was copied to where names are told apart, the other to where they are not.
    let disks = Disks::default()
        .source("/s", Object::directory(""))
        .source("/s/README", Object::file("", 1))
        .source("/s/Data", Object::directory(""))
        .source("/s/new", Object::file("", 1))
        .destination("/d", Object::directory(""))
        .destination("/d/README", Object::file("", 1))
        .destination("/d/readme", Object::file("", 1))
        .destination("/d/data", Object::directory(""))
        .destination("/d/old", Object::file("", 1));
    for mix in 0..20 {
        let options = PlanOptions { mirror: true, ..recursive() };
        let (_, mut extras) = disks.plan_whole(options, vec![Root::new("/s", "/d")], mix);
        extras.sort_by(|one, other| one.path.cmp(&other.path));
        let expected = [
            Extra { twin: true, ..extra("/d/data", ItemKind::Directory) },
            extra("/d/old", ItemKind::File),
            extra("/d/readme", ItemKind::File),
        ];
        assert_eq!(extras, expected, "{mix}");
    }
}

#[test]
fn nothing_is_extra_in_a_directory_whose_source_cannot_be_listed() {
    let mut disks = mirrored();
    disks.locked.insert(b"/s/b".to_vec());
    for mix in 0..50 {
        let options = PlanOptions { mirror: true, ..recursive() };
        let (plan, extras) = disks.plan_whole(options, vec![Root::new("/s", "/d")], mix);
        assert!(extras.iter().all(|extra| extra.path != b"/d/b/w") && extras.len() == 3, "{extras:?}");
        assert!(plan.iter().any(|action| matches!(action, Action::Refuse { .. })));
    }
    let (_, extras) = disks.plan_whole(recursive(), vec![Root::new("/s", "/d")], 0);
    assert!(extras.is_empty(), "nobody asked");
}
