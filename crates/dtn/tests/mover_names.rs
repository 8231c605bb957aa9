//! Listings, descriptions, checksums and commands on names.

#![allow(missing_docs, clippy::unwrap_used)]

mod mover_support;

use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use mover_support::{Node, extended, identity, pattern, receive, stream};
use whimbrel_connector::faults::{Faulty, Operation, Script};
use whimbrel_connector::posix::{Posix, PosixOptions};
use whimbrel_dtn::client::end;
use whimbrel_dtn::mover::message::{DataPeers, LINES_AHEAD, MoverId, ToMover};
use whimbrel_proto::op::{FailureKind, ListForm, ListSpec, Notice, Op, Outcome, ReceiveSpec, WriteKind};

fn spec(path: &str, form: ListForm) -> ListSpec {
    ListSpec {
        path: path.into(),
        written: Vec::new(),
        form,
        facts: Some(vec!["type".to_owned()]),
        flags: Vec::new(),
        continue_on_error: true,
        follow_links: false,
    }
}

fn tree() -> (Node, MoverId) {
    let mut node = Node::start();
    let root = node.root.path().to_owned();
    std::fs::create_dir_all(root.join("dir/sub")).unwrap();
    node.write("dir/b.dat", b"bb");
    node.write("dir/a.dat", b"a");
    node.write("dir/sub/deep", b"deep");
    symlink("b.dat", root.join("dir/link")).unwrap();
    symlink("nowhere", root.join("dir/dangling")).unwrap();
    std::fs::write(root.join(std::ffi::OsStr::from_bytes(b"dir/ev\r\nil")), b"x").unwrap();
    std::fs::write(root.join(std::ffi::OsStr::from_bytes(b"dir/raw\xff")), b"x").unwrap();
    let mover = node.attach();
    (node, mover)
}

fn listed(node: &mut Node, mover: MoverId, spec: ListSpec) -> Vec<Vec<u8>> {
    let answer = node.call(mover, Op::Listing(spec));
    let lines = answer.lines();
    assert_eq!(answer.done(), Outcome::Done);
    let mut split: Vec<Vec<u8>> = lines.split(|&b| b == b'\n').map(<[u8]>::to_vec).collect();
    assert_eq!(split.pop(), Some(Vec::new()), "every line is ended");
    for line in &mut split {
        assert_eq!(line.pop(), Some(b'\r'));
    }
    split
}

#[test]
fn what_was_handed_ahead_of_the_end_of_a_login_is_for_another_login() {
    let mut node = Node::start();
    node.write("f", b"x");
    let mut late = identity(DataPeers::ControlPeer);
    late.rules.until = Some(1);
    let mover = node.attach_as(late);
    for op in [Op::Size(b"/f".to_vec()), Op::Delete(b"/f".to_vec()), Op::Sync(b"/".to_vec())] {
        node.call(mover, op).fails_with(FailureKind::LoginOver);
    }
    assert!(node.root.path().join("f").exists());
}

#[test]
fn a_listing_goes_no_further_than_it_is_heard_and_can_be_aborted_there() {
    let mut node = Node::start();
    let name = "x".repeat(200);
    for number in 0..5000 {
        node.write(&format!("{number}-{name}"), b"");
    }
    let mover = node.attach();
    let every = spec("/", ListForm::Facts);
    node.listens = false;
    let unheard = node.run(mover, Op::Listing(every.clone()));
    let most = LINES_AHEAD as usize + (128 << 10);
    let got = node.until(unheard, |answer| answer.lines().len() as u64 > LINES_AHEAD).lines().len();
    assert!(got < most, "{got}");
    // Another mover is not held up, and after it nothing more of the first has come.
    let other = node.attach();
    node.call(other, Op::MakeDirectory(b"/d".to_vec())).done();
    node.abort(unheard);
    let answer = node.wait(unheard);
    assert!(answer.lines().len() < most);
    answer.fails_with(FailureKind::Aborted);
    // What was not heard of the first is still not heard: the front says so in the end.
    node.send(&ToMover::Heard { mover, bytes: got as u64 });
    node.listens = true;
    let heard = node.call(mover, Op::Listing(every));
    assert!(heard.lines().len() > 5000 * 200);
    heard.done();
}

#[test]
fn machine_listings_are_sorted_follow_links_and_tell_that_names_that_break_lines_are_there() {
    let (mut node, mover) = tree();
    let lines = listed(&mut node, mover, spec("/dir", ListForm::Facts));
    let expected: [&[u8]; 9] = [
        b"Type=cdir; .",
        b"Type=pdir; ..",
        b"Type=file; a.dat",
        b"Type=file; b.dat",
        b"Type=slink; dangling",
        b"Type=OS.unix=other;Error=InvalidName; ./ev%0D%0Ail",
        b"Type=file; link",
        b"Type=file; raw\xff",
        b"Type=dir; sub",
    ];
    assert_eq!(lines, expected);
    // Our client takes that line for an entry it cannot know.
    assert!(end::entries(expected[5], false).unclear.is_some());
    for form in [ListForm::Long, ListForm::Names] {
        let lines = listed(&mut node, mover, spec("/dir", form));
        assert!(lines.iter().all(|line| !line.windows(2).any(|two| two == b"ev")), "{lines:?}");
    }
}

#[test]
fn the_number_of_entries_and_link_targets_are_told() {
    let (mut node, mover) = tree();
    let facts = Some(vec!["x.count".to_owned(), "UNIX.slink".to_owned()]);
    let lines = listed(&mut node, mover, ListSpec { facts, ..spec("/dir", ListForm::Facts) });
    assert_eq!(lines[0], b"X.count=9; .");
    assert_eq!(lines[1], b" ..");
    assert!(lines.contains(&b"UNIX.slink=/dir/b.dat; link".to_vec()));
    assert!(lines.contains(&b"UNIX.slink=/dir/nowhere; dangling".to_vec()));
}

#[test]
fn plain_listings_take_patterns_in_the_last_component() {
    let (mut node, mover) = tree();
    let names = listed(&mut node, mover, spec("/dir/*.dat", ListForm::Names));
    assert_eq!(names, [b"a.dat".to_vec(), b"b.dat".to_vec()]);
    // Each name can be fetched as it stands, from where the client is.
    let written = ListSpec { written: b"../dir/".to_vec(), ..spec("/dir/*.dat", ListForm::Names) };
    assert_eq!(listed(&mut node, mover, written), [b"../dir/a.dat".to_vec(), b"../dir/b.dat".to_vec()]);
    let names = listed(&mut node, mover, ListSpec { written: b"/dir/".to_vec(), ..spec("/dir/sub", ListForm::Names) });
    assert_eq!(names, [b"deep".to_vec()]);
    let long = listed(&mut node, mover, spec("/dir/l*", ListForm::Long));
    assert!(long[0].starts_with(b"lrwxrwxrwx") && long[0].ends_with(b" link -> b.dat"), "{long:?}");
    let one = listed(&mut node, mover, spec("/dir/a.dat", ListForm::Long));
    assert!(one.len() == 1 && one[0].starts_with(b"-rw") && one[0].ends_with(b" a.dat"));
    let none = node.call(mover, Op::Listing(spec("/dir/*.none", ListForm::Names)));
    none.fails_with(FailureKind::NotFound);
    let file = node.call(mover, Op::Listing(spec("/dir/a.dat", ListForm::Facts)));
    file.fails_with(FailureKind::NotADirectory);
}

#[test]
fn recursive_listings_name_relative_paths_and_end_on_cycles() {
    let (mut node, mover) = tree();
    symlink("..", node.root.path().join("dir/sub/up")).unwrap();
    std::fs::create_dir(node.root.path().join("dir/sub/ev\nil")).unwrap();
    let mut lines = listed(&mut node, mover, spec("/dir", ListForm::FactsRecursive));
    assert_eq!(lines[0], b"Type=cdir; .");
    lines.sort();
    assert!(lines.contains(&b"Type=file; sub/deep".to_vec()));
    assert!(lines.contains(&b"Type=slink; sub/up".to_vec()));
    assert!(lines.contains(&b"Type=slink; link".to_vec()));
    assert!(lines.contains(&b"Type=OS.unix=other;Error=InvalidName; ./sub/ev%0Ail".to_vec()), "{lines:?}");
    assert_eq!(lines.iter().filter(|line| line.ends_with(b" sub")).count(), 1);
    let follow = ListSpec { follow_links: true, ..spec("/dir", ListForm::FactsRecursive) };
    let lines = listed(&mut node, mover, follow);
    assert!(lines.contains(&b"Type=dir;Error=Cycle; sub/up".to_vec()), "{lines:?}");
    assert!(lines.contains(&b"Type=slink;Error=InvalidLink; dangling".to_vec()));
    assert!(lines.contains(&b"Type=file; link".to_vec()));
}

#[test]
fn mlst_describes_one_object_and_refuses_a_link_to_nowhere() {
    let (mut node, mover) = tree();
    let facts = |names: &[&str]| Some(names.iter().map(ToString::to_string).collect::<Vec<_>>());
    let describe = |path: &str, names| Op::Facts { path: path.into(), facts: names };
    let line = node.call(mover, describe("/dir/link", facts(&["type", "size"]))).done();
    assert_eq!(line, Outcome::Line(b"Type=file;Size=2; /dir/link".to_vec()));
    let line = node.call(mover, describe("/dir", facts(&["X.count"]))).done();
    assert_eq!(line, Outcome::Line(b"X.count=9; /dir".to_vec()));
    node.call(mover, describe("/dir/dangling", None)).fails_with(FailureKind::NotFound);
}

#[test]
fn listings_travel_over_data_connections_like_files() {
    for (params, ascii) in [(stream(), false), (extended(2), false), (stream(), true)] {
        let (mut node, source) = tree();
        for n in 0..400 {
            node.write(&format!("dir/sub/a-rather-long-name-for-a-file-{n:05}"), b"");
        }
        let destination = node.attach();
        node.link(source, destination, &params);
        let receiving = node.run(destination, Op::Receive(ReceiveSpec { ascii, ..receive("/listing") }));
        let sending = node.run(source, Op::SendListing(spec("/dir/sub", ListForm::Facts)));
        let bytes = node.wait(sending).bytes();
        let stored = node.wait(receiving).bytes();
        // A receiver in ASCII counts what it stores, without carriage returns.
        assert_eq!(stored, if ascii { bytes - 403 } else { bytes });
        let listing = node.read("listing");
        let lines: Vec<&[u8]> = listing.split(|&b| b == b'\n').collect();
        assert_eq!(lines.len(), 400 + 3 + 1, "{params:?}");
        let last = lines[lines.len() - 3];
        if !ascii {
            assert_eq!(last, b"Type=file; a-rather-long-name-for-a-file-00399\r");
        }
    }
}

#[test]
fn checksums_cover_the_asked_part_and_know_their_names() {
    let (mut node, mover) = tree();
    node.write("file", b"xxabcyy");
    let cksm = |algorithm: &str, offset, length| Op::Checksum {
        algorithm: algorithm.to_owned(),
        offset,
        length,
        path: b"/file".to_vec(),
        marker_interval: None,
    };
    let md5 = node.call(mover, cksm("MD5", 2, Some(3))).done();
    assert_eq!(md5, Outcome::Checksum("900150983cd24fb0d6963f7d28e17f72".to_owned()));
    // Beyond the end is cut, as the stock server does.
    let empty = node.call(mover, cksm("MD5", 100, Some(3))).done();
    assert_eq!(empty, Outcome::Checksum("d41d8cd98f00b204e9800998ecf8427e".to_owned()));
    node.call(mover, cksm("NONSENSE", 0, None)).fails_with(FailureKind::NotSupported);
}

#[test]
fn an_announced_checksum_decides_whether_a_file_is_kept() {
    let mut node = Node::start();
    node.write("source", &pattern(100_000));
    let mover = node.attach();
    let cksm = Op::Checksum {
        algorithm: "SHA256".to_owned(),
        offset: 0,
        length: None,
        path: b"/source".to_vec(),
        marker_interval: None,
    };
    let right = node.call(mover, cksm);
    let Outcome::Checksum(right) = right.done() else { panic!("no checksum") };
    for params in [stream(), extended(2)] {
        let movers = node.pair(&params);
        let expect = |digest: &str| ReceiveSpec {
            expected_checksum: Some(("SHA256".to_owned(), digest.to_owned())),
            write: WriteKind::Replace,
            ..receive("/copy")
        };
        let (_, received) = node.copy(movers, mover_support::send("/source"), expect(&right.to_uppercase()));
        assert_eq!(received.bytes(), 100_000);
        node.link(movers.0, movers.1, &params);
        std::fs::write(node.root.path().join("copy"), b"before").unwrap();
        let wrong = "0".repeat(64);
        let (_, received) = node.copy(movers, mover_support::send("/source"), expect(&wrong));
        let failure = received.fails_with(FailureKind::Checksum);
        assert_eq!(failure.checksums, Some((right.clone(), wrong)));
        assert_eq!(node.names(), ["copy", "source"], "the bad file is gone");
        assert_eq!(node.read("copy"), b"before");
    }
}

/// Reading a large file once more takes longer than clients wait for a word.
#[test]
fn while_an_announced_checksum_is_compared_the_client_hears_of_it() {
    let (root, script) = (tempfile::tempdir().unwrap(), Script::new());
    let inner = Posix::open(root.path(), PosixOptions::default()).unwrap();
    let mut node = Node::on(root, |_| {}, Arc::new(Faulty::new(inner, script.clone())));
    node.write("source", &pattern(100_000));
    let movers = node.pair(&stream());
    let (go_on, waits) = mpsc::channel::<()>();
    let waits = Mutex::new(waits);
    script.hook(move |operation, _| {
        if operation == Operation::ReadBack {
            // Until the test lets go of the other end.
            let _gone = waits.lock().unwrap().recv();
        }
    });
    let to = ReceiveSpec {
        expected_checksum: Some(("SHA256".to_owned(), "0".repeat(64))),
        performance_interval: Some(Duration::from_millis(1)),
        ..receive("/copy")
    };
    let receiving = node.run(movers.1, Op::Receive(to));
    let sending = node.run(movers.0, Op::Send(mover_support::send("/source")));
    let everything =
        |notice: &&Notice| matches!(notice, Notice::Performance { bytes: 100_000, stripe: 0, stripes: 1, .. });
    node.until(receiving, |answer| answer.notices.iter().filter(everything).count() > 3);
    drop(go_on);
    node.wait(sending);
    node.wait(receiving).fails_with(FailureKind::Checksum);
}

#[test]
fn commands_on_names_do_what_they_say() {
    let mut node = Node::start();
    let mover = node.attach();
    let path = |text: &str| text.as_bytes().to_vec();
    assert_eq!(node.call(mover, Op::MakeDirectory(path("/d/"))).done(), Outcome::Directory(path("/d")));
    node.call(mover, Op::MakeDirectory(path("/d"))).fails_with(FailureKind::Exists);
    assert_eq!(node.call(mover, Op::EnterDirectory(path("/d/../d"))).done(), Outcome::Directory(path("/d")));
    node.write("d/f", b"12345");
    node.call(mover, Op::EnterDirectory(path("/d/f"))).fails_with(FailureKind::NotADirectory);
    assert_eq!(node.call(mover, Op::Size(path("/d/f"))).done(), Outcome::Size(5));
    node.call(mover, Op::Size(path("/d"))).fails_with(FailureKind::IsADirectory);
    node.call(mover, Op::RemoveDirectory(path("/d"))).fails_with(FailureKind::NotEmpty);
    let set = Op::SetModified { path: path("/d/f"), seconds: 86_400, nanoseconds: 0 };
    assert_eq!(node.call(mover, set).done(), Outcome::Done);
    assert_eq!(node.call(mover, Op::Modified(path("/d/f"))).done(), Outcome::Modified(86_400, 0));
    let mode = |mode| Op::SetMode { path: path("/d/f"), mode };
    assert_eq!(node.call(mover, mode(0o600)).done(), Outcome::Done);
    node.call(mover, mode(0o10_000)).fails_with(FailureKind::BadArgument);
    let link = Op::Symlink { target: path("nowhere"), link: path("/d/l") };
    assert_eq!(node.call(mover, link).done(), Outcome::Done);
    assert_eq!(node.call(mover, Op::Exists(path("/d/l"))).done(), Outcome::Done);
    let rename = Op::Rename { from: path("/d/l"), to: path("/d/m") };
    assert_eq!(node.call(mover, rename).done(), Outcome::Done);
    assert_eq!(node.call(mover, Op::Truncate { path: path("/d/f"), size: 2 }).done(), Outcome::Done);
    assert_eq!(node.read("d/f"), b"12");
    assert_eq!(node.call(mover, Op::Delete(path("/d/m"))).done(), Outcome::Done);
    assert_eq!(node.call(mover, Op::DeleteTree(path("/d"))).done(), Outcome::Done);
    node.call(mover, Op::Exists(path("/d"))).fails_with(FailureKind::NotFound);
    node.call(mover, Op::Size(path("/../../etc/passwd"))).fails_with(FailureKind::NotFound);
}

#[test]
fn a_read_only_collection_refuses_every_change() {
    let mut node = Node::with(|settings| settings.read_only = true);
    node.write("f", b"x");
    let mover = node.attach();
    let changes = [
        Op::MakeDirectory(b"/d".to_vec()),
        Op::Delete(b"/f".to_vec()),
        Op::Truncate { path: b"/f".to_vec(), size: 0 },
        Op::Receive(receive("/g")),
    ];
    for op in changes {
        node.call(mover, op).fails_with(FailureKind::ReadOnly);
    }
    assert_eq!(node.call(mover, Op::Size(b"/f".to_vec())).done(), Outcome::Size(1));
}
