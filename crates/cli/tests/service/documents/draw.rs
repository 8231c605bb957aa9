//! Random trees with a random document about them.

use openssl::hash::MessageDigest;
use serde_json::{Value, json};
use whimbrel_testkit::rng::Rng;

use super::model::{Item, Options, Rule};
use super::tree::{DIRECTORY, Node, Soil, Tree, chance, file, grow, pick};

/// Patterns of rules: some fit many names, some none.
const PATTERNS: [&str; 9] = ["*.keep", "?", "*.tmp", "[!a-c]*", "p", "*ö*", "[ö🐦]*", "*b*b*", "*"];

/// Trees at both ends, and what is to be done with them.
#[derive(Debug)]
pub struct Case {
    pub source: Tree,
    pub destination: Tree,
    pub options: Options,
    pub items: Vec<Item>,
}

/// What an item is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum About {
    Tree,
    File,
    LinkItself,
    FollowedLink,
    RightChecksum,
    // What cannot be done.
    WrongChecksum,
    Missing,
    FileAsTree,
    TreeAsFile,
    ChecksumOfTree,
    NoLink,
    OntoDirectory,
}

const GOOD: [About; 8] = [
    About::Tree,
    About::Tree,
    About::Tree,
    About::Tree,
    About::File,
    About::LinkItself,
    About::FollowedLink,
    About::RightChecksum,
];
const BAD: [About; 7] = [
    About::WrongChecksum,
    About::Missing,
    About::FileAsTree,
    About::TreeAsFile,
    About::ChecksumOfTree,
    About::NoLink,
    About::OntoDirectory,
];

impl Case {
    pub fn of(seed: u64) -> Self {
        let rng = &mut Rng::new(seed);
        let faulty = chance(rng, 2);
        let options = options(rng);
        let mut case = Self { source: Tree::new(), destination: Tree::new(), options, items: Vec::new() };
        for number in 0..1 + rng.below(4) {
            // Most of what goes wrong can be skipped, and so does not hide the rest.
            let about = if faulty && chance(rng, 3) { pick(rng, &BAD) } else { pick(rng, &GOOD) };
            case.add(rng, number, about, Soil { source: true, faulty });
        }
        if case.options.symlinks == "copy" {
            // Links at the destination are written through, and what they lead to may be copied meanwhile.
            case.destination.retain(|_, node| !matches!(node, Node::Link(_)));
        }
        case
    }

    fn add(&mut self, rng: &mut Rng, number: u64, about: About, soil: Soil) {
        use About as A;
        let suffix = pick(rng, &["", " é", ".d", "\"'\\"]);
        let path = format!("x{number}{suffix}");
        let is_tree = matches!(about, A::Tree | A::TreeAsFile | A::ChecksumOfTree)
            || matches!(about, A::FollowedLink | A::NoLink) && chance(rng, 2);
        let place = if matches!(about, A::FollowedLink | A::LinkItself) { format!("t{number}") } else { path.clone() };
        if is_tree {
            self.source.insert(place.clone(), Node::Directory { open: !(soil.faulty && chance(rng, 8)) });
            grow(rng, &mut self.source, &place, 2, soil);
        } else if about != A::Missing {
            let file = file(rng, soil);
            // Which of two ends that refuse is told of is not determined.
            let file = if about == A::OntoDirectory { file.opened() } else { file };
            self.source.insert(place.clone(), file);
        }
        if place != path {
            self.source.insert(path.clone(), Node::Link(place.clone()));
        }
        // A directory that is left out in a place that is still to be made may stand there afterwards, or not.
        let deep = !soil.faulty && !self.options.delete_extra && chance(rng, 4);
        let destination = format!("{}y{number}{suffix}", if deep { format!("new {number}/") } else { String::new() });
        if !deep {
            self.plant(rng, &destination, about, is_tree);
        }
        let demand = if is_tree { Some(true) } else { Some(false) };
        let recursive = match about {
            A::FileAsTree => Some(true),
            A::TreeAsFile => Some(false),
            A::LinkItself | A::NoLink | A::RightChecksum | A::WrongChecksum | A::ChecksumOfTree => None,
            _ => pick(rng, &[None, demand]),
        };
        let symlink = matches!(about, A::LinkItself | A::NoLink);
        let checksum = self.checksum(rng, &place, about);
        self.items.push(Item { source: path, destination, recursive, symlink, checksum });
    }

    /// What is at the destination before.
    fn plant(&mut self, rng: &mut Rng, path: &str, about: About, is_tree: bool) {
        let soil = Soil { source: false, faulty: false };
        if about == About::OntoDirectory || is_tree && about != About::NoLink && chance(rng, 2) {
            self.destination.insert(path.to_owned(), DIRECTORY);
            grow(rng, &mut self.destination, path, 2, soil);
        } else if !is_tree && chance(rng, 2) {
            self.destination.insert(path.to_owned(), file(rng, soil));
        }
    }

    fn checksum(&self, rng: &mut Rng, place: &str, about: About) -> Option<(&'static str, String, bool)> {
        let right = match about {
            About::RightChecksum => true,
            About::WrongChecksum | About::ChecksumOfTree => false,
            _ => return None,
        };
        let algorithm = pick(rng, &["MD5", "sha256", "SHA-512", "sha1"]);
        let content = match self.source.get(place) {
            Some(Node::File { content, .. }) if right => content.as_slice(),
            _ => b"something else",
        };
        Some((algorithm, digest(algorithm, content), right))
    }

    /// The document as a client sends it; `source` and `destination` are directories of collections.
    pub fn document(
        &self,
        seed: u64,
        (from, source): (&str, &str),
        (to, destination): (&str, &str),
        deadline: &str,
    ) -> Value {
        // Paths and what is left to chance are other than those of the trees.
        let rng = &mut Rng::new(!seed);
        let mut document = json!({"DATA_TYPE": "transfer", "source_endpoint": from, "destination_endpoint": to});
        let data = self.items.iter().map(|item| {
            let mut value = json!({
                "DATA_TYPE": if item.symlink { "transfer_symlink_item" } else { "transfer_item" },
                "source_path": written(rng, source, &item.source, item.recursive),
                "destination_path": written(rng, destination, &item.destination, item.recursive),
            });
            if let Some(recursive) = item.recursive {
                value["recursive"] = json!(recursive);
            }
            if let Some((algorithm, digest, _)) = &item.checksum {
                value["external_checksum"] = json!(digest);
                if *algorithm != "MD5" || chance(rng, 2) {
                    value["checksum_algorithm"] = json!(algorithm);
                }
            }
            value
        });
        document["DATA"] = data.collect();
        let Options { sync, verify, times, encrypt, skip, delete_extra, quota_fails, symlinks, rules } = &self.options;
        let rules = rules.iter().map(|rule| {
            let method = if rule.include { "include" } else { "exclude" };
            let mut value = json!({"DATA_TYPE": "filter_rule", "method": method, "name": rule.pattern});
            if rule.kind.is_some() || chance(rng, 2) {
                value["type"] = json!(rule.kind);
            }
            value
        });
        let rules: Vec<_> = rules.collect();
        for (name, value, usual) in [
            ("sync_level", json!(sync), Value::Null),
            ("verify_checksum", json!(verify), json!(false)),
            ("preserve_timestamp", json!(times), json!(false)),
            ("encrypt_data", json!(encrypt), json!(false)),
            ("skip_source_errors", json!(skip), json!(false)),
            ("delete_destination_extra", json!(delete_extra), json!(false)),
            ("fail_on_quota_errors", json!(quota_fails), json!(false)),
            ("recursive_symlinks", json!(symlinks), json!("ignore")),
            ("filter_rules", json!(rules), json!([])),
            ("label", json!(format!("document {seed} é")), Value::Null),
            ("deadline", json!(deadline), Value::Null),
            ("notify_on_succeeded", json!(false), json!(true)),
            ("perf_cc", json!(1 + rng.below(4)), Value::Null),
            ("skip_activation_check", json!(true), json!(true)),
        ] {
            // The command line sends defaults, the SDK leaves them out.
            if value != usual || chance(rng, 2) {
                document[name] = value;
            }
        }
        document
    }
}

/// A path as users write it.
fn written(rng: &mut Rng, directory: &str, path: &str, recursive: Option<bool>) -> String {
    let between = pick(rng, &["/", "/", "/", "//", "/./", "/none/../"]);
    let end = if recursive == Some(true) && chance(rng, 2) { "/" } else { "" };
    format!("{directory}{between}{path}{end}")
}

pub fn digest(algorithm: &str, content: &[u8]) -> String {
    let algorithm = algorithm.to_ascii_lowercase().replace('-', "");
    let known = MessageDigest::from_name(&algorithm).unwrap_or_else(|| panic!("OpenSSL knows no {algorithm}"));
    let digest = openssl::hash::hash(known, content).unwrap();
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn options(rng: &mut Rng) -> Options {
    let rule = |rng: &mut Rng| Rule {
        include: chance(rng, 2),
        kind: pick(rng, &[None, Some("file"), Some("dir")]),
        pattern: pick(rng, &PATTERNS),
    };
    Options {
        sync: pick(rng, &[None, Some(0), Some(1), Some(2), Some(3)]),
        verify: chance(rng, 2),
        times: chance(rng, 2),
        encrypt: chance(rng, 4),
        skip: !chance(rng, 3),
        delete_extra: chance(rng, 2),
        quota_fails: chance(rng, 2),
        symlinks: pick(rng, &["ignore", "keep", "copy"]),
        rules: (0..pick(rng, &[0, 0, 1, 2, 3, 4])).map(|_| rule(rng)).collect(),
    }
}
