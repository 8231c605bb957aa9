//! What a transfer document means, said as simply as possible.

use std::collections::{BTreeMap, BTreeSet};

use super::tree::{DIRECTORY, NOW, Node, Tree, entries, join, name, parent, resolve};

/// A rule of a filter.
#[derive(Debug, Clone)]
pub struct Rule {
    pub include: bool,
    /// `file`, `dir`, or both.
    pub kind: Option<&'static str>,
    pub pattern: &'static str,
}

/// The options of a document that decide what becomes of items.
#[derive(Debug, Clone)]
pub struct Options {
    pub sync: Option<u8>,
    pub verify: bool,
    pub times: bool,
    pub encrypt: bool,
    pub skip: bool,
    pub delete_extra: bool,
    pub quota_fails: bool,
    pub symlinks: &'static str,
    pub rules: Vec<Rule>,
}

/// An item of a document; paths are those of the trees.
#[derive(Debug, Clone)]
pub struct Item {
    pub source: String,
    pub destination: String,
    pub recursive: Option<bool>,
    pub symlink: bool,
    /// Algorithm and digest, and whether it is the file's.
    pub checksum: Option<(&'static str, String, bool)>,
}

impl Item {
    /// Whether what the source does not have may be deleted at its destination.
    fn may_mirror(&self) -> bool {
        !self.symlink && self.recursive != Some(false) && self.checksum.is_none()
    }
}

/// A source with its destination.
pub type Pair = (String, String);

/// What becomes of a task.
#[derive(Debug, Default)]
pub struct Model {
    pub destination: Tree,
    pub files: usize,
    pub directories: usize,
    pub symlinks: usize,
    /// Files copied, with what is in them.
    pub copied: BTreeMap<Pair, Vec<u8>>,
    /// Files left as they are.
    pub up_to_date: usize,
    /// Items that are done.
    pub succeeded: usize,
    /// Error code, and whether it is a directory.
    pub left_out: BTreeMap<Pair, (&'static str, bool)>,
    pub failed: Vec<&'static str>,
    /// Directories in which nothing was deleted, because something in them was left out.
    pub kept: usize,
    /// A file is not what the user says: the whole task ends.
    pub is_over: bool,
    spoilt: bool,
}

impl Model {
    /// Carries out a document.
    pub fn of(options: &Options, items: &[Item], source: &Tree, destination: &Tree) -> Self {
        let mut model = Self { destination: destination.clone(), ..Self::default() };
        let mut spoilt = BTreeSet::new();
        for item in items {
            model.spoilt = false;
            Walk { model: &mut model, options, source }.item(item);
            if model.spoilt {
                spoilt.insert(&item.source);
            }
        }
        if options.delete_extra {
            for item in items.iter().filter(|item| item.may_mirror()) {
                if spoilt.contains(&item.source) {
                    model.kept += 1;
                } else if let Some((real, Node::Directory { .. })) = resolve(source, &item.source) {
                    Walk { model: &mut model, options, source }.mirror(&real, &item.destination);
                }
            }
        }
        model
    }
}

struct Walk<'a> {
    model: &'a mut Model,
    options: &'a Options,
    source: &'a Tree,
}

impl Walk<'_> {
    fn item(&mut self, item: &Item) {
        let at = (item.source.clone(), item.destination.clone());
        if item.symlink {
            return match self.source.get(&item.source) {
                None => self.fault(at, "FILE_NOT_FOUND", false),
                Some(Node::Link(target)) => self.link(at, target),
                Some(_) => self.mistake("NOT_A_SYMLINK"),
            };
        }
        let is_file = item.recursive == Some(false) || item.checksum.is_some();
        match resolve(self.source, &item.source) {
            None => self.fault(at, "FILE_NOT_FOUND", false),
            Some((_, Node::Directory { .. })) if is_file => self.mistake("IS_A_DIRECTORY"),
            Some((_, Node::File { .. })) if item.recursive == Some(true) => self.mistake("NOT_A_DIRECTORY"),
            Some((real, Node::Directory { open })) => self.directory(at, &real, open, &[]),
            Some((_, node)) => self.file(at, &node, item.checksum.as_ref().is_some_and(|(_, _, right)| !right)),
        }
    }

    /// The user's: no option lets it pass. What was named counts as a file.
    fn mistake(&mut self, code: &'static str) {
        self.model.files += 1;
        self.model.failed.push(code);
        self.model.spoilt = true;
    }

    /// The source cannot be read.
    fn fault(&mut self, at: Pair, code: &'static str, is_directory: bool) {
        if is_directory {
            self.model.directories += 1;
        } else {
            self.model.files += 1;
        }
        if self.options.skip {
            self.model.left_out.insert(at, (code, is_directory));
        } else {
            self.model.failed.push(code);
        }
        self.model.spoilt = true;
    }

    /// `above`: the directories that it was found in, links resolved.
    fn directory(&mut self, at: Pair, real: &str, open: bool, above: &[&str]) {
        if self.model.destination.get(&at.1) != Some(&DIRECTORY) {
            self.put(&at.1, DIRECTORY);
        }
        if !open {
            return self.fault(at, "PERMISSION_DENIED", true);
        }
        self.model.directories += 1;
        self.model.succeeded += 1;
        let above = [above, &[real]].concat();
        for (path, node) in entries(self.source, real) {
            let name = name(&path);
            let at = (join(&at.0, name), join(&at.1, name));
            match node {
                Node::Link(_) if self.options.symlinks == "ignore" => {}
                Node::Link(target) if self.options.symlinks == "keep" => {
                    if self.takes("file", name) {
                        self.link(at, &target);
                    }
                }
                Node::Link(_) => match resolve(self.source, &path) {
                    None if self.takes("file", name) || self.takes("dir", name) => {
                        self.fault(at, "FILE_NOT_FOUND", false)
                    }
                    None => {}
                    Some((real, node)) => self.entry(at, &real, &node, &above),
                },
                node => self.entry(at, &path, &node, &above),
            }
        }
    }

    fn entry(&mut self, at: Pair, real: &str, node: &Node, above: &[&str]) {
        let name = name(&at.0).to_owned();
        match *node {
            Node::Directory { .. } if !self.takes("dir", &name) => {}
            Node::Directory { .. } if above.contains(&real) => self.fault(at, "INVALID_PATH_NAME", false),
            Node::Directory { open } => self.directory(at, real, open, above),
            _ if !self.takes("file", &name) => {}
            _ => self.file(at, node, false),
        }
    }

    fn file(&mut self, at: Pair, node: &Node, wrong: bool) {
        let Node::File { content, seconds, open } = node else { unreachable!("links are resolved") };
        let (needed, compared) = match self.model.destination.get(&at.1) {
            None => (true, false),
            Some(Node::Directory { .. }) => return self.mistake("IS_A_DIRECTORY"),
            Some(Node::Link(_)) => unreachable!("no file goes where a link is"),
            Some(Node::File { content: old, seconds: then, .. }) => match self.options.sync {
                None => (true, false),
                Some(0) => (false, false),
                Some(1) => (old.len() != content.len(), false),
                Some(2) => (old.len() != content.len() || seconds > then, false),
                _ => (old != content, old.len() == content.len() && !content.is_empty()),
            },
        };
        if (needed || compared) && !open {
            return self.fault(at, "PERMISSION_DENIED", false);
        }
        if wrong && needed {
            self.model.is_over = true;
            return self.mistake("EXTERNAL_CHECKSUM_MISMATCH");
        }
        self.model.files += 1;
        self.model.succeeded += 1;
        if !needed {
            self.model.up_to_date += 1;
            return;
        }
        let seconds = if self.options.times { *seconds } else { NOW };
        let copy = Node::File { content: content.clone(), seconds, open: true };
        self.put(&at.1, copy);
        self.model.copied.insert(at, content.clone());
    }

    fn link(&mut self, at: Pair, target: &str) {
        self.model.symlinks += 1;
        self.model.succeeded += 1;
        if self.options.sync != Some(0) || !self.model.destination.contains_key(&at.1) {
            self.put(&at.1, Node::Link(target.to_owned()));
        }
    }

    /// With the directories above, which are made for it.
    fn put(&mut self, path: &str, node: Node) {
        if !parent(path).is_empty() && !self.model.destination.contains_key(parent(path)) {
            self.put(parent(path), DIRECTORY);
        }
        self.model.destination.insert(path.to_owned(), node);
    }

    fn mirror(&mut self, real: &str, destination: &str) {
        for (path, node) in entries(&self.model.destination, destination) {
            let kind = if node == DIRECTORY { "dir" } else { "file" };
            if !self.takes(kind, name(&path)) {
                continue;
            }
            let twin = join(real, name(&path));
            match (self.source.get(&twin), resolve(self.source, &twin)) {
                (None, _) => self.delete(&path),
                (Some(Node::Link(_)), _) if self.options.symlinks != "copy" => {}
                (_, Some((real, Node::Directory { .. }))) if node == DIRECTORY => self.mirror(&real, &path),
                _ => {}
            }
        }
    }

    /// What holds something that a filter leaves out stays.
    fn delete(&mut self, path: &str) {
        if self.model.destination[path] == DIRECTORY {
            for (child, node) in entries(&self.model.destination, path) {
                if self.takes(if node == DIRECTORY { "dir" } else { "file" }, name(&child)) {
                    self.delete(&child);
                }
            }
            if !entries(&self.model.destination, path).is_empty() {
                return;
            }
        }
        self.model.destination.remove(path);
        self.model.succeeded += 1;
    }

    fn takes(&self, kind: &str, name: &str) -> bool {
        let fits = |rule: &&Rule| rule.kind.is_none_or(|of| of == kind) && fits(rule.pattern, name);
        self.options.rules.iter().find(fits).is_none_or(|rule| rule.include)
    }
}

/// Whether a name fits a pattern, tried in every way there is.
fn fits(pattern: &str, name: &str) -> bool {
    let (mut rest, mut letters) = (pattern.chars(), name.chars());
    match rest.next() {
        None => name.is_empty(),
        Some('*') => {
            let mut ends = (0..=name.len()).filter(|&at| name.is_char_boundary(at));
            ends.any(|at| fits(rest.as_str(), &name[at..]))
        }
        Some(first) => {
            let Some(letter) = letters.next() else { return false };
            let (is_one, rest) = match (first, rest.as_str().split_once(']')) {
                ('?', _) => (true, rest.as_str()),
                ('[', Some((set, rest))) => {
                    let (not, set) = set.strip_prefix('!').map_or((false, set), |set| (true, set));
                    let range =
                        set.split_once('-').map(|(from, to)| from.parse::<char>().unwrap()..=to.parse().unwrap());
                    (range.map_or_else(|| set.contains(letter), |range| range.contains(&letter)) != not, rest)
                }
                _ => (first == letter, rest.as_str()),
            };
            is_one && fits(rest, letters.as_str())
        }
    }
}
