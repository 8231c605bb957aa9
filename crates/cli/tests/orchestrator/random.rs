//! Small random trees under random options, against a model that is simple enough to be right.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::time::{Duration, SystemTime};

use whimbrel_engine::dispatch::{End, Work};
use whimbrel_engine::plan::SyncLevel;
use whimbrel_engine::task::{
    Filter, FilterMethod, FilterRule, FilterType, ItemKind, ItemState, Symlinks, TransferOptions,
};
use whimbrel_testkit::rng::Rng;

use crate::bench::{Bench, Ends, item};
use crate::foresee::assert_came_true;
use crate::open_up;

const CASES: u64 = 40;
const FILES: [&str; 4] = ["a", "b", "c.keep", "e.tmp"];
const DIRECTORIES: [&str; 3] = ["p", "q", "r.tmp"];

#[derive(Debug, Clone, PartialEq, Eq)]
enum Node {
    Directory,
    File {
        content: String,
        seconds: u64,
    },
    /// To a file beside it.
    Link(String),
}

/// By path from the root, which has none.
type Tree = BTreeMap<String, Node>;

fn join(directory: &str, name: &str) -> String {
    if directory.is_empty() { name.to_owned() } else { format!("{directory}/{name}") }
}

fn name(path: &str) -> &str {
    path.rsplit('/').next().unwrap()
}

fn parent(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(parent, _)| parent)
}

fn grow(rng: &mut Rng, tree: &mut Tree, directory: &str, depth: u32, links: bool) {
    for file in FILES {
        if rng.below(2) == 0 {
            let content = "x".repeat(rng.below(3) as usize) + ["", "1", "2"][rng.below(3) as usize];
            let seconds = 1_700_000_000 + rng.below(3);
            tree.insert(join(directory, file), Node::File { content, seconds });
        }
    }
    if links && tree.contains_key(&join(directory, "a")) {
        tree.insert(join(directory, "l"), Node::Link("a".to_owned()));
    }
    for child in DIRECTORIES {
        if depth > 0 && rng.below(2) == 0 {
            let path = join(directory, child);
            tree.insert(path.clone(), Node::Directory);
            grow(rng, tree, &path, depth - 1, links);
        }
    }
}

fn plant(root: &Path, tree: &Tree) {
    fs::create_dir_all(root).unwrap();
    for (path, node) in tree {
        let path = root.join(path);
        match node {
            Node::Directory => fs::create_dir(path).unwrap(),
            Node::Link(target) => symlink(target, path).unwrap(),
            Node::File { content, seconds } => {
                fs::write(&path, content).unwrap();
                let time = SystemTime::UNIX_EPOCH + Duration::from_secs(*seconds);
                fs::File::options().write(true).open(&path).unwrap().set_modified(time).unwrap();
            }
        }
    }
    open_up(root);
}

fn harvest(root: &Path, from: &str, tree: &mut Tree) {
    let Ok(entries) = fs::read_dir(root.join(from)) else { return };
    for entry in entries {
        let entry = entry.unwrap();
        let path = join(from, entry.file_name().to_str().unwrap());
        let kind = entry.file_type().unwrap();
        let node = if kind.is_dir() {
            harvest(root, &path, tree);
            Node::Directory
        } else if kind.is_symlink() {
            Node::Link(fs::read_link(entry.path()).unwrap().to_str().unwrap().to_owned())
        } else {
            let time = entry.metadata().unwrap().modified().unwrap();
            let seconds = time.duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs();
            Node::File { content: fs::read_to_string(entry.path()).unwrap(), seconds }
        };
        tree.insert(path, node);
    }
}

fn options(rng: &mut Rng) -> TransferOptions {
    let rule = |rng: &mut Rng, name: &str| FilterRule {
        method: if rng.below(4) == 0 { FilterMethod::Include } else { FilterMethod::Exclude },
        kind: [None, Some(FilterType::File), Some(FilterType::Dir)][rng.below(3) as usize],
        name: name.to_owned(),
    };
    let patterns = ["*.keep", "?", "*.tmp", "[!a-c]*", "q"];
    let rules = (0..rng.below(3)).map(|_| {
        let pattern = patterns[rng.below(5) as usize];
        rule(rng, pattern)
    });
    let filter = Filter(rules.collect());
    let levels = [SyncLevel::None, SyncLevel::Exists, SyncLevel::Size, SyncLevel::Mtime, SyncLevel::Checksum];
    let move_source = rng.below(4) == 0;
    let symlinks = [Symlinks::Ignore, Symlinks::Keep, Symlinks::Copy][rng.below(3) as usize];
    TransferOptions {
        sync: levels[rng.below(5) as usize],
        verify: rng.below(2) == 0,
        preserve_times: rng.below(2) == 0,
        delete_extra: rng.below(2) == 0,
        move_source,
        // What a link points to may have moved before the link is read.
        symlinks: if move_source && symlinks == Symlinks::Copy { Symlinks::Keep } else { symlinks },
        filter,
        ..TransferOptions::default()
    }
}

struct Model<'a> {
    options: &'a TransferOptions,
    source: Tree,
    destination: Tree,
    copied: usize,
    up_to_date: usize,
    links: usize,
    extras: usize,
    moved: Vec<String>,
}

impl Model<'_> {
    fn takes(&self, path: &str, is_directory: bool) -> bool {
        let kind = if is_directory { FilterType::Dir } else { FilterType::File };
        self.options.filter.takes(kind, name(path).as_bytes())
    }

    fn children(tree: &Tree, directory: &str) -> Vec<(String, Node)> {
        let inside = |path: &&String| parent(path) == directory && !path.is_empty();
        tree.keys().filter(inside).map(|path| (path.clone(), tree[path].clone())).collect()
    }

    fn copy(&mut self, directory: &str) {
        for (path, node) in Self::children(&self.source, directory) {
            match node {
                Node::Directory if self.takes(&path, true) => {
                    self.destination.insert(path.clone(), Node::Directory);
                    self.copy(&path);
                }
                Node::Directory => {}
                Node::File { .. } if self.takes(&path, false) => self.file(&path, &node),
                Node::File { .. } => {}
                Node::Link(target) => match self.options.symlinks {
                    Symlinks::Ignore => {}
                    Symlinks::Keep if self.takes(&path, false) => {
                        self.destination.insert(path.clone(), Node::Link(target));
                        self.links += 1;
                        self.moved.push(path);
                    }
                    Symlinks::Copy if self.takes(&path, false) => {
                        let node = self.source[&join(directory, &target)].clone();
                        self.file(&path, &node);
                    }
                    _ => {}
                },
            }
        }
    }

    fn file(&mut self, path: &str, node: &Node) {
        let Node::File { content, seconds } = node else { unreachable!() };
        let needed = match self.destination.get(path) {
            Some(Node::File { content: old, seconds: then }) => match self.options.sync {
                SyncLevel::None => true,
                SyncLevel::Exists => false,
                SyncLevel::Size => old.len() != content.len(),
                SyncLevel::Mtime => old.len() != content.len() || seconds > then,
                SyncLevel::Checksum => old != content,
            },
            _ => true,
        };
        if needed {
            self.copied += 1;
            self.destination.insert(path.to_owned(), node.clone());
        } else {
            self.up_to_date += 1;
        }
        if needed || self.options.sync == SyncLevel::Checksum {
            self.moved.push(path.to_owned());
        }
    }

    fn mirror(&mut self, source: &Tree, directory: &str) {
        for (path, node) in Self::children(&self.destination, directory) {
            let is_directory = node == Node::Directory;
            if !self.takes(&path, is_directory) {
                continue;
            }
            if !source.contains_key(&path) {
                self.delete(&path);
            } else if is_directory {
                self.mirror(source, &path);
            }
        }
    }

    /// Whether it is gone: what holds something that a filter leaves out stays.
    fn delete(&mut self, path: &str) -> bool {
        if self.destination[path] == Node::Directory {
            for (child, node) in Self::children(&self.destination, path) {
                if self.takes(&child, node == Node::Directory) {
                    self.delete(&child);
                }
            }
            if !Self::children(&self.destination, path).is_empty() {
                return false;
            }
        }
        self.destination.remove(path);
        self.extras += 1;
        true
    }

    fn tidy(&mut self, directory: &str) {
        for (path, node) in Self::children(&self.source, directory) {
            if node == Node::Directory && self.takes(&path, true) {
                self.tidy(&path);
                if Self::children(&self.source, &path).is_empty() {
                    self.source.remove(&path);
                }
            }
        }
    }
}

/// Times count only where they are kept.
fn without_times(tree: &Tree) -> Tree {
    let plain = |node: &Node| match node {
        Node::File { content, .. } => Node::File { content: content.clone(), seconds: 0 },
        other => other.clone(),
    };
    tree.iter().map(|(path, node)| (path.clone(), plain(node))).collect()
}

#[test]
fn every_option_does_to_random_trees_what_it_says() {
    let field = crate::support::Field::new();
    let ends = Ends::own(&field.path(""));
    let bench = Bench::new();
    for seed in 0..CASES {
        let mut rng = Rng::new(seed);
        let (mut source, mut destination) = (Tree::new(), Tree::new());
        grow(&mut rng, &mut source, "", 2, true);
        grow(&mut rng, &mut destination, "", 2, false);
        let options = options(&mut rng);
        let (from, to) = (field.path(&format!("s{seed}")), field.path(&format!("to/d{seed}")));
        plant(&from, &source);
        plant(&to, &destination);
        open_up(&field.path(""));

        let planted_there = destination.clone();
        let mut model = Model {
            options: &options,
            source: source.clone(),
            destination,
            copied: 0,
            up_to_date: 0,
            links: 0,
            extras: 0,
            moved: Vec::new(),
        };
        model.copy("");
        if options.delete_extra {
            model.mirror(&source, "");
        }
        if options.move_source {
            let moved = std::mem::take(&mut model.moved);
            moved.iter().for_each(|path| drop(model.source.remove(path)));
            model.tidy("");
        }

        let work = Work::Transfer(Box::new(options.clone()));
        let forecast = bench.foresee(&ends, ends.draft(work, vec![item(1, &from, &to)]));
        for (root, planted) in [(&from, &source), (&to, &planted_there)] {
            let mut found = Tree::new();
            harvest(root, "", &mut found);
            assert_eq!(found, *planted, "looking ahead has changed something: seed {seed}");
        }
        let (task, end) = bench.transfer(&ends, options.clone(), vec![item(1, &from, &to)]);
        assert!(matches!(end, End::Finished), "{seed}: {end:?} {options:?}");
        let (mut found, mut left) = (Tree::new(), Tree::new());
        harvest(&to, "", &mut found);
        harvest(&from, "", &mut left);
        let context = format!("seed {seed}, {options:#?}, from {source:#?}");
        bench.service.see(task, |task| {
            let faults: Vec<_> = task.records.values().filter_map(|record| record.fault.as_ref()).collect();
            assert_eq!((task.open(), faults.len()), (0, 0), "{faults:?} {:?} {context}", task.occurrences);
        });
        assert_eq!(without_times(&found), without_times(&model.destination), "{context}");
        assert_eq!(without_times(&left), without_times(&model.source), "{context}");
        if options.preserve_times {
            assert_eq!(found, model.destination, "{context}");
        }
        bench.service.see(task, |task| {
            assert_came_true(&forecast, task, !options.filter.0.is_empty(), &context);
            let done = |kind| {
                let records = task.records.values().filter(|record| !record.subject.extra);
                records.filter(|record| record.subject.kind == kind && record.state == ItemState::Succeeded).count()
            };
            assert_eq!((done(ItemKind::File), done(ItemKind::Symlink)), (model.copied, model.links), "{context}");
            assert_eq!(task.count(ItemKind::File, ItemState::UpToDate), model.up_to_date, "{context}");
            assert_eq!(task.records.values().filter(|record| record.subject.extra).count(), model.extras, "{context}");
        });
    }
    bench.finish();
}
