//! Small trees: grown at random, planted on a disk, and read back.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt as _, lchown, symlink};
use std::path::Path;
use std::time::{Duration, SystemTime};

use whimbrel_testkit::rng::Rng;

/// Modification times of what is planted begin here, seconds since 1970; what is written later is newer by years.
const LONG_AGO: u64 = 1_700_000_000;
/// The time of what is written during a test.
pub const NOW: u64 = u64::MAX;

/// Names that programs get wrong, as far as JSON and listings can carry them.
const FILES: [&str; 6] = ["a", "b b", "ö.keep", "e.tmp", "-x\t\\\"'%20", "🐦"];
const DIRECTORIES: [&str; 3] = ["p", " q ü ", "r.tmp"];

/// What may be drawn: one in so many.
pub fn chance(rng: &mut Rng, one_in: u64) -> bool {
    rng.below(one_in) == 0
}

/// One of some.
pub fn pick<T: Copy>(rng: &mut Rng, of: &[T]) -> T {
    of[rng.below(of.len() as u64) as usize]
}

#[derive(Clone, PartialEq, Eq)]
pub enum Node {
    /// `open`: the server's account can read it.
    Directory {
        open: bool,
    },
    File {
        content: Vec<u8>,
        seconds: u64,
        open: bool,
    },
    /// To something beside it.
    Link(String),
}

impl Node {
    /// The same, and it can be read.
    pub fn opened(self) -> Self {
        match self {
            Self::Directory { .. } => DIRECTORY,
            Self::File { content, seconds, .. } => Self::File { content, seconds, open: true },
            link @ Self::Link(_) => link,
        }
    }
}

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Directory { open } => write!(f, "directory, open: {open}"),
            Self::Link(target) => write!(f, "link to {target}"),
            Self::File { content, seconds, open } => {
                let beginning = String::from_utf8_lossy(&content[..content.len().min(3)]);
                let time = if *seconds == NOW { "now".to_owned() } else { format!("{}", seconds - LONG_AGO) };
                write!(f, "{} bytes {beginning:?}, time: {time}, open: {open}", content.len())
            }
        }
    }
}

pub const DIRECTORY: Node = Node::Directory { open: true };

/// By path below a root, which has none.
pub type Tree = BTreeMap<String, Node>;

pub fn join(directory: &str, name: &str) -> String {
    if directory.is_empty() { name.to_owned() } else { format!("{directory}/{name}") }
}

pub fn name(path: &str) -> &str {
    path.rsplit('/').next().unwrap()
}

pub fn parent(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(parent, _)| parent)
}

/// What lies in a directory itself.
pub fn entries(tree: &Tree, directory: &str) -> Vec<(String, Node)> {
    let inside = |path: &&String| parent(path) == directory && !path.is_empty();
    tree.keys().filter(inside).map(|path| (path.clone(), tree[path].clone())).collect()
}

/// What a path leads to when links are followed, and where that is; `None`: nothing is there.
pub fn resolve(tree: &Tree, path: &str) -> Option<(String, Node)> {
    match tree.get(path)? {
        Node::Link(target) if target == "." => resolve(tree, parent(path)),
        Node::Link(target) => resolve(tree, &join(parent(path), target)),
        node => Some((path.to_owned(), node.clone())),
    }
}

/// Which trees grow.
#[derive(Debug, Clone, Copy)]
pub struct Soil {
    /// It is a source: its links lead somewhere.
    pub source: bool,
    /// Some of it cannot be read, and links lead nowhere or around in circles.
    pub faulty: bool,
}

pub fn file(rng: &mut Rng, soil: Soil) -> Node {
    // Few different contents, times and sizes, so that ends often agree in some of them.
    let content = match rng.below(12) {
        0 => vec![b'x'; 70_000],
        few => vec![b"xyz"[rng.below(2) as usize]; (few % 3) as usize],
    };
    Node::File { content, seconds: LONG_AGO + rng.below(3), open: !(soil.faulty && chance(rng, 10)) }
}

pub fn grow(rng: &mut Rng, tree: &mut Tree, directory: &str, depth: u32, soil: Soil) {
    for name in FILES {
        if chance(rng, 2) {
            tree.insert(join(directory, name), file(rng, soil));
        }
    }
    for child in DIRECTORIES {
        if depth > 0 && chance(rng, 2) {
            let path = join(directory, child);
            tree.insert(path.clone(), Node::Directory { open: !(soil.faulty && chance(rng, 12)) });
            grow(rng, tree, &path, depth - 1, soil);
        }
    }
    if !soil.source && chance(rng, 4) {
        tree.insert(join(directory, "l"), file(rng, soil));
    }
    let mut link = |name: &str, target: &str| tree.insert(join(directory, name), Node::Link(target.to_owned()));
    let targets = if soil.source { ["a", "p"] } else { [pick(rng, &["a", "b b"]), "elsewhere"] };
    for (name, target) in ["l", "l ö"].into_iter().zip(targets) {
        if chance(rng, 2) {
            link(name, target);
        }
    }
    if soil.source && soil.faulty && chance(rng, 8) {
        link("loop", ".");
    }
    if soil.source && !soil.faulty {
        // What links lead to is there.
        for (name, target) in [("l", "a"), ("l ö", "p")] {
            if !tree.contains_key(&join(directory, target)) {
                tree.remove(&join(directory, name));
            }
        }
    }
}

/// Writes a tree to a disk; `owner`: whose it is.
pub fn plant(root: &Path, tree: &Tree, owner: Option<u32>) {
    fs::create_dir(root).unwrap();
    fs::set_permissions(root, Permissions::from_mode(0o777)).unwrap();
    for (path, node) in tree {
        let path = root.join(path);
        match node {
            Node::Directory { .. } => fs::create_dir(&path).unwrap(),
            Node::Link(target) => symlink(target, &path).unwrap(),
            Node::File { content, seconds, open } => {
                fs::write(&path, content).unwrap();
                let time = SystemTime::UNIX_EPOCH + Duration::from_secs(*seconds);
                fs::File::options().write(true).open(&path).unwrap().set_modified(time).unwrap();
                fs::set_permissions(&path, Permissions::from_mode(if *open { 0o644 } else { 0 })).unwrap();
            }
        }
        lchown(&path, owner, None).unwrap();
    }
    // The inner ones first: nobody but root passes a closed one.
    for (path, node) in tree.iter().rev() {
        if let Node::Directory { open } = node {
            fs::set_permissions(root.join(path), Permissions::from_mode(if *open { 0o755 } else { 0 })).unwrap();
        }
    }
}

/// Lets everything be read, and so be removed.
pub fn open_up(root: &Path, tree: &Tree) {
    for path in tree.iter().filter(|(_, node)| matches!(node, Node::Directory { open: false })).map(|(path, _)| path) {
        fs::set_permissions(root.join(path), Permissions::from_mode(0o755)).unwrap();
    }
}

/// Reads a tree from a disk.
pub fn harvest(root: &Path, from: &str, tree: &mut Tree) {
    for entry in fs::read_dir(root.join(from)).unwrap() {
        let entry = entry.unwrap();
        let path = join(from, entry.file_name().to_str().unwrap());
        let kind = entry.file_type().unwrap();
        let node = if kind.is_dir() {
            harvest(root, &path, tree);
            DIRECTORY
        } else if kind.is_symlink() {
            Node::Link(fs::read_link(entry.path()).unwrap().to_str().unwrap().to_owned())
        } else {
            let time = entry.metadata().unwrap().modified().unwrap();
            let seconds = time.duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs();
            let seconds = if seconds > LONG_AGO + 100 { NOW } else { seconds };
            Node::File { content: fs::read(entry.path()).unwrap(), seconds, open: true }
        };
        tree.insert(path, node);
    }
}
