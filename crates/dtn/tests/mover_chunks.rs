//! Files written in chunks: opened by many, proven leaf by leaf, committed only when all of it is proven.
#![allow(missing_docs, clippy::unwrap_used)]

mod mover_support;

use std::ops::Range;

use mover_support::{Node, pattern, receive};
use whimbrel_dtn::mover::message::MoverId;
use whimbrel_engine::journal::LONGEST;
use whimbrel_proto::leaf::MAX_LEAVES;
use whimbrel_proto::op::{ChunkedFile, FailureKind, Leaf, LeafSpec, Op, Outcome, ReceiveSpec, WriteKind};
use whimbrel_transport::digest::Algorithm;

const L: u64 = 1000;
const SIZE: u64 = 3500;

fn file(size: u64) -> ChunkedFile {
    let leaves = LeafSpec { size: L, algorithm: "CRC32C".to_owned(), holes: false, vouched: false };
    ChunkedFile { path: b"/copy".to_vec(), size, modified: Some((1_700_000_000, 7)), leaves }
}

fn leaf(index: u64, digest: u8) -> Leaf {
    Leaf { range: index * L..((index + 1) * L).min(SIZE), digest: format!("{digest:08x}") }
}

fn keep(session: &[u8], leaves: Vec<Leaf>) -> Op {
    Op::KeepLeaves { path: b"/copy".to_vec(), session: session.to_vec(), leaves }
}

fn commit(session: &[u8]) -> Op {
    Op::CommitChunked {
        path: b"/copy".to_vec(),
        session: session.to_vec(),
        modified: Some((1_600_000_000, 5)),
        mode: Some(0o640),
        expected: None,
    }
}

fn discard(session: &[u8]) -> Op {
    Op::DropChunked { path: b"/copy".to_vec(), session: session.to_vec() }
}

struct Lab {
    node: Node,
    mover: MoverId,
}

impl Lab {
    fn new() -> Self {
        Self::of(Node::start())
    }

    fn of(mut node: Node) -> Self {
        let mover = node.attach();
        Self { node, mover }
    }

    /// Another data process that reaches the same storage.
    fn beside(&self) -> Self {
        let root = self.node.root.path().to_owned();
        Self::of(Node::with(|settings| {
            use std::os::unix::ffi::OsStrExt;
            settings.root = root.as_os_str().as_bytes().to_vec();
        }))
    }

    #[track_caller]
    fn open(&mut self, file: ChunkedFile) -> (Vec<u8>, Vec<Leaf>) {
        match self.node.call(self.mover, Op::OpenChunked(file)).done() {
            Outcome::Chunked { session, verified, .. } => (session, verified),
            other => panic!("{other:?}"),
        }
    }

    #[track_caller]
    fn done(&mut self, op: Op) {
        assert_eq!(self.node.call(self.mover, op).done(), Outcome::Done);
    }

    #[track_caller]
    fn fails(&mut self, op: Op, kind: FailureKind) -> String {
        self.node.call(self.mover, op).fails_with(kind).text
    }

    /// What chunks would have brought.
    fn fill(&self, size: u64) -> Vec<u8> {
        let data = pattern(size as usize);
        self.node.write(".copy.whimbrel-part", &data);
        data
    }

    fn journal(&self) -> std::path::PathBuf {
        let names = self.node.names();
        let name = names.iter().find(|name| name.contains("journal")).expect("a journal");
        self.node.root.path().join(name)
    }
}

#[test]
fn a_file_gets_its_name_when_all_of_it_is_proven_and_not_before() {
    let mut lab = Lab::new();
    let (session, verified) = lab.open(file(SIZE));
    assert!(verified.is_empty());
    let data = lab.fill(SIZE + 10);
    let missing = lab.fails(commit(&session), FailureKind::Unproven);
    assert!(missing.contains("3500 bytes are not proven"), "{missing}");
    lab.done(keep(&session, vec![leaf(0, 1), leaf(3, 4)]));
    lab.done(keep(&session, vec![leaf(1, 2)]));
    let missing = lab.fails(commit(&session), FailureKind::Unproven);
    assert!(missing.contains("1000 bytes are not proven, the first of them 2000-3000"), "{missing}");
    assert!(!lab.node.names().contains(&"copy".to_owned()));
    lab.done(keep(&session, vec![leaf(2, 3)]));
    lab.done(commit(&session));
    assert_eq!(lab.node.names(), ["copy"], "neither journal nor hidden file is left");
    assert!(lab.node.read("copy") == data[..SIZE as usize], "cut to the size of the source");
    let modified = lab.node.call(lab.mover, Op::Modified(b"/copy".to_vec())).done();
    assert_eq!(modified, Outcome::Modified(1_600_000_000, 5));
    let copy = std::fs::metadata(lab.node.root.path().join("copy")).unwrap();
    assert_eq!(std::os::unix::fs::PermissionsExt::mode(&copy.permissions()) & 0o7777, 0o640);
}

#[test]
fn a_commit_whose_answer_was_lost_can_be_repeated() {
    let mut lab = Lab::new();
    let (session, _) = lab.open(file(0));
    lab.done(commit(&session));
    lab.done(commit(&session));
    lab.beside().done(commit(&session));
    lab.done(discard(&session));
    assert_eq!(lab.node.names(), ["copy"]);
    assert!(lab.node.read("copy").is_empty(), "an empty file has no leaves to prove");
}

#[test]
fn whoever_resumes_finds_the_proven_leaves_on_any_host() {
    let mut lab = Lab::new();
    let (session, _) = lab.open(file(SIZE));
    lab.fill(SIZE);
    lab.done(keep(&session, vec![leaf(1, 2), leaf(0, 1)]));
    lab.done(keep(&session, vec![leaf(1, 2)]));
    let mut other = lab.beside();
    let (again, verified) = other.open(file(SIZE));
    assert_eq!(verified, [leaf(0, 1), leaf(1, 2)], "told twice, because an answer was lost");
    assert_eq!(again, session);
    other.done(keep(&session, vec![leaf(2, 3)]));
    lab.done(keep(&again, vec![leaf(3, 4)]));
    other.done(commit(&session));
    assert_eq!(lab.node.names(), ["copy"]);
}

#[test]
fn another_version_of_the_source_starts_anew() {
    for change in [
        |file: &mut ChunkedFile| file.size += 1,
        |file: &mut ChunkedFile| file.modified = Some((1_700_000_000, 8)),
        |file: &mut ChunkedFile| file.modified = None,
        |file: &mut ChunkedFile| file.leaves.size *= 2,
        |file: &mut ChunkedFile| file.leaves.algorithm = "MD5".to_owned(),
    ] {
        let mut lab = Lab::new();
        let (session, _) = lab.open(file(SIZE));
        lab.fill(SIZE);
        lab.done(keep(&session, vec![leaf(0, 1)]));
        let mut changed = file(SIZE);
        change(&mut changed);
        let (new, verified) = lab.beside().open(changed);
        assert!(verified.is_empty() && new != session);
        assert!(lab.node.read(".copy.whimbrel-part").iter().all(|&byte| byte == 0), "nothing of the old one");
        assert_eq!(lab.node.names().len(), 2, "one hidden file, one journal");
        lab.fails(keep(&session, vec![leaf(1, 1)]), FailureKind::Busy);
        lab.fails(commit(&session), FailureKind::Busy);
    }
}

#[test]
fn what_an_ordinary_attempt_left_is_not_built_upon() {
    let mut lab = Lab::new();
    lab.fill(SIZE);
    let (session, verified) = lab.open(file(SIZE));
    assert!(verified.is_empty());
    assert!(lab.node.read(".copy.whimbrel-part").iter().all(|&byte| byte == 0), "nothing of the old one");
    lab.done(discard(&session));
    assert!(lab.node.names().is_empty());
}

#[test]
fn an_ordinary_store_takes_the_name_over() {
    let mut lab = Lab::new();
    let (session, _) = lab.open(file(SIZE));
    lab.done(keep(&session, vec![leaf(0, 1)]));
    let resume =
        ReceiveSpec { write: WriteKind::Restart { done: std::iter::once(0..1000).collect() }, ..receive("/copy") };
    let movers = lab.node.pair(&mover_support::stream());
    lab.node.call(movers.1, Op::Receive(resume)).fails_with(FailureKind::Busy);
    lab.node.write("source", &pattern(77));
    let movers = lab.node.pair(&mover_support::stream());
    lab.node.copy(movers, mover_support::send("/source"), receive("/copy"));
    assert_eq!(lab.node.names(), ["copy", "source"]);
    lab.fails(keep(&session, vec![leaf(1, 1)]), FailureKind::Busy);
    let missing = lab.node.call(lab.mover, commit(&session)).failure();
    assert!(matches!(missing.kind, FailureKind::Busy | FailureKind::NotFound), "{missing:?}");
    assert_eq!(lab.node.read("copy").len(), 77);
}

#[test]
fn leaves_that_are_none_of_the_file_are_refused() {
    let mut lab = Lab::new();
    let (session, _) = lab.open(file(SIZE));
    let with = |range: Range<u64>, digest: &str| vec![Leaf { range, digest: digest.to_owned() }];
    for wrong in [
        with(4000..5000, "00000001"),
        with(3000..4000, "00000001"),
        with(0..500, "00000001"),
        with(0..2000, "00000001"),
        with(0..0, "00000001"),
        with(u64::MAX - 1..u64::MAX, "00000001"),
        with(0..1000, "0001"),
        with(0..1000, "0000000g"),
        with(0..1000, "+0000001"),
        with(0..1000, ""),
        vec![leaf(0, 1), leaf(1, 1), Leaf { range: 1..2, digest: "00000001".to_owned() }],
    ] {
        lab.fails(keep(&session, wrong), FailureKind::BadArgument);
    }
    assert!(lab.open(file(SIZE)).1.is_empty(), "nothing of a refused list is kept");
}

#[test]
fn impossible_files_are_refused() {
    let mut lab = Lab::new();
    let mut no_leaf = file(SIZE);
    no_leaf.leaves.size = 0;
    let mut no_algorithm = file(SIZE);
    no_algorithm.leaves.algorithm = "ROT13".to_owned();
    let mut no_time = file(SIZE);
    no_time.modified = Some((0, 1_000_000_000));
    for (wrong, kind) in [
        (no_leaf, FailureKind::BadArgument),
        (no_algorithm, FailureKind::NotSupported),
        (no_time, FailureKind::BadArgument),
        (file(u64::MAX), FailureKind::FileTooLarge),
        (ChunkedFile { path: b"/".to_vec(), ..file(1) }, FailureKind::IsADirectory),
        (ChunkedFile { path: b"/no/copy".to_vec(), ..file(1) }, FailureKind::NotFound),
    ] {
        lab.fails(Op::OpenChunked(wrong), kind);
    }
    assert!(lab.node.names().is_empty());
}

#[test]
fn what_anothers_commit_has_counted_is_kept() {
    let mut lab = Lab::new();
    let mut other = lab.beside();
    let (session, _) = lab.open(file(SIZE));
    lab.fill(SIZE);
    // A commit goes ahead of the answers to what others tell: it counts what is written, and they sync what is gone by then.
    lab.done(keep(&session, vec![leaf(0, 1)]));
    other.done(keep(&session, vec![leaf(1, 2), leaf(2, 3), leaf(3, 4)]));
    other.done(commit(&session));
    lab.done(keep(&session, vec![leaf(0, 1)]));
    // What is thrown away was not counted.
    let (session, _) = lab.open(file(SIZE));
    lab.done(keep(&session, vec![leaf(0, 1)]));
    other.done(discard(&session));
    lab.fails(keep(&session, vec![leaf(1, 2)]), FailureKind::Busy);
    assert_eq!(lab.node.names(), ["copy"]);
}

#[test]
fn what_two_sources_have_proven_of_one_leaf_gets_no_name_and_begins_anew() {
    let mut lab = Lab::new();
    let mut other = lab.beside();
    let (session, _) = lab.open(file(SIZE));
    assert_eq!(other.open(file(SIZE)).0, session, "of the same size and time");
    lab.fill(SIZE);
    lab.done(keep(&session, (0..4).map(|index| leaf(index, 1)).collect()));
    other.done(keep(&session, vec![leaf(2, 9)]));
    for lab in [&mut lab, &mut other] {
        let text = lab.fails(commit(&session), FailureKind::Busy);
        assert!(text.contains("two sources"), "{text}");
    }
    let (anew, verified) = other.open(file(SIZE));
    assert!(verified.is_empty() && anew != session);
    lab.fails(keep(&session, vec![leaf(0, 1)]), FailureKind::Busy);
    assert_eq!(lab.node.names().len(), 2, "one hidden file, one journal");
}

#[test]
fn what_another_source_has_proven_is_not_kept_behind_a_commit() {
    let mut lab = Lab::new();
    let mut other = lab.beside();
    let (session, _) = lab.open(file(SIZE));
    assert_eq!(other.open(file(SIZE)).0, session);
    lab.fill(SIZE);
    lab.done(keep(&session, (0..4).map(|index| leaf(index, 1)).collect()));
    lab.done(commit(&session));
    other.fails(keep(&session, vec![leaf(2, 9)]), FailureKind::Busy);
}

#[test]
fn what_is_proven_is_not_cut_under_its_hidden_name() {
    let mut lab = Lab::new();
    let (session, _) = lab.open(file(SIZE));
    let data = lab.fill(SIZE);
    lab.done(keep(&session, (0..4).map(|index| leaf(index, 1)).collect()));
    std::os::unix::fs::symlink(".copy.whimbrel-part", lab.node.root.path().join("link")).unwrap();
    for name in lab.node.names() {
        let path = format!("/{name}").into_bytes();
        lab.fails(Op::Truncate { path, size: 0 }, FailureKind::BadPath);
    }
    lab.done(commit(&session));
    assert!(lab.node.read("copy") == data);
}

#[test]
fn a_journal_that_is_longer_than_any_proves_nothing() {
    let mut lab = Lab::new();
    let (session, _) = lab.open(file(SIZE));
    lab.done(keep(&session, vec![leaf(0, 1)]));
    std::fs::File::options().write(true).open(lab.journal()).unwrap().set_len(LONGEST + 1).unwrap();
    lab.fails(commit(&session), FailureKind::FileTooLarge);
    let (anew, verified) = lab.beside().open(file(SIZE));
    assert!(verified.is_empty() && anew != session);
    assert_eq!(lab.node.names().len(), 2, "one hidden file, one journal");
}

#[test]
fn a_session_of_one_file_reaches_no_other() {
    let mut lab = Lab::new();
    let (session, _) = lab.open(file(SIZE));
    let (other, _) = lab.open(ChunkedFile { path: b"/other".to_vec(), ..file(SIZE) });
    lab.node.write("victim", b"untouched");
    let before = lab.node.names();
    for path in ["/victim", "/other", "/nowhere", "/../copy/../victim"] {
        let path = path.as_bytes().to_vec();
        let keep = Op::KeepLeaves { path: path.clone(), session: session.clone(), leaves: vec![leaf(0, 1)] };
        let commit = Op::CommitChunked {
            path: path.clone(),
            session: session.clone(),
            modified: None,
            mode: None,
            expected: None,
        };
        for op in [keep, commit] {
            let failure = lab.node.call(lab.mover, op).failure();
            assert!(matches!(failure.kind, FailureKind::Busy | FailureKind::NotFound), "{failure:?}");
        }
        lab.done(Op::DropChunked { path, session: session.clone() });
    }
    let mut longer = session.clone();
    longer.push(0);
    for bytes in [&b""[..], b"junk", &[0xff; 40], &longer] {
        lab.fails(keep(bytes, vec![leaf(0, 1)]), FailureKind::BadArgument);
        lab.fails(commit(bytes), FailureKind::BadArgument);
        lab.fails(discard(bytes), FailureKind::BadArgument);
    }
    assert_eq!(lab.node.names(), before);
    assert_eq!(lab.node.read("victim"), b"untouched");
    lab.done(keep(&session, vec![leaf(0, 1)]));
    assert_ne!(session, other);
}

#[test]
fn a_forged_size_commits_nothing() {
    let mut lab = Lab::new();
    let (session, _) = lab.open(file(SIZE));
    // The last bytes are the size: 3500 becomes 3372.
    let mut forged = session.clone();
    assert_eq!(forged.split_off(session.len() - 2), [0xac, 0x1b]);
    forged.extend([0xac, 0x1a]);
    lab.fails(commit(&forged), FailureKind::Unproven);
    let mut nothing = session.clone();
    nothing.truncate(session.len() - 2);
    nothing.push(0);
    lab.fails(commit(&nothing), FailureKind::Unproven);
    assert!(!lab.node.names().contains(&"copy".to_owned()));
}

#[test]
fn a_torn_record_is_cut_off_so_that_later_ones_are_found() {
    let mut lab = Lab::new();
    let (session, _) = lab.open(file(SIZE));
    lab.fill(SIZE);
    lab.done(keep(&session, vec![leaf(0, 1), leaf(1, 2)]));
    let journal = lab.journal();
    let bytes = std::fs::read(&journal).unwrap();
    std::fs::write(&journal, &bytes[..bytes.len() - 1]).unwrap();
    let mut other = lab.beside();
    let (again, verified) = other.open(file(SIZE));
    assert_eq!((again, verified), (session.clone(), vec![leaf(0, 1)]));
    other.done(keep(&session, vec![leaf(2, 3)]));
    assert_eq!(lab.open(file(SIZE)).1, [leaf(0, 1), leaf(2, 3)]);
}

#[test]
fn a_journal_whose_first_record_is_wrong_proves_nothing() {
    let mut lab = Lab::new();
    let (session, _) = lab.open(file(SIZE));
    lab.done(keep(&session, vec![leaf(0, 1)]));
    let journal = lab.journal();
    let mut bytes = std::fs::read(&journal).unwrap();
    bytes[20] ^= 1;
    std::fs::write(&journal, &bytes).unwrap();
    lab.fails(commit(&session), FailureKind::Unproven);
    let (_, verified) = lab.beside().open(file(SIZE));
    assert!(verified.is_empty());
}

#[test]
fn many_movers_of_two_processes_keep_leaves_at_once_and_none_is_lost() {
    const LEAVES: u64 = 200;
    let leaves = LeafSpec { size: L, algorithm: "CRC32C".to_owned(), holes: false, vouched: false };
    let file = ChunkedFile { path: b"/copy".to_vec(), size: LEAVES * L, modified: None, leaves };
    let mut labs = [Lab::new(), Lab::new()];
    labs[1] = labs[0].beside();
    let session = labs[0].open(file.clone()).0;
    assert_eq!(labs[1].open(file.clone()).0, session);
    let one = |i: u64| Leaf { range: i * L..(i + 1) * L, digest: format!("{i:08x}") };
    std::thread::scope(|scope| {
        for (odd, lab) in labs.iter_mut().enumerate() {
            let session = &session;
            scope.spawn(move || {
                let movers: Vec<_> = (0..4).map(|_| lab.node.attach()).collect();
                let mine = (0..LEAVES).filter(|i| i % 2 == odd as u64);
                let ids: Vec<_> =
                    mine.map(|i| lab.node.run(movers[(i / 2 % 4) as usize], keep(session, vec![one(i)]))).collect();
                for id in ids {
                    assert_eq!(lab.node.wait(id).done(), Outcome::Done);
                }
            });
        }
    });
    let (_, verified) = labs[0].open(file);
    assert_eq!(verified, (0..LEAVES).map(one).collect::<Vec<_>>());
    labs[1].done(commit(&session));
}

#[test]
fn a_read_only_server_opens_nothing() {
    let mut lab = Lab::of(Node::with(|settings| settings.read_only = true));
    lab.fails(Op::OpenChunked(file(SIZE)), FailureKind::ReadOnly);
    assert!(lab.node.names().is_empty());
}

#[test]
fn a_file_of_as_many_leaves_as_there_may_be_is_opened_again_with_all_of_them() {
    const LEAVES: u64 = MAX_LEAVES as u64;
    let mut lab = Lab::new();
    let opened = || {
        let leaves = LeafSpec { algorithm: "SHA512".to_owned(), ..file(0).leaves };
        ChunkedFile { size: LEAVES * L, leaves, ..file(0) }
    };
    let (session, _) = lab.open(opened());
    let proven = |index: u64| Leaf { range: index * L..(index + 1) * L, digest: format!("{index:0128x}") };
    let all: Vec<Leaf> = (0..LEAVES).map(proven).collect();
    all.chunks(4096).for_each(|leaves| lab.done(keep(&session, leaves.to_vec())));
    let (again, verified) = lab.beside().open(opened());
    assert!(again == session && verified == all, "{} of {LEAVES} leaves are told", verified.len());
}

#[test]
fn a_checksum_of_the_whole_is_compared_though_another_session_has_named_the_file() {
    let mut lab = Lab::new();
    let (session, _) = lab.open(file(SIZE));
    let data = lab.fill(SIZE);
    lab.done(keep(&session, (0..4).map(|index| leaf(index, 1)).collect()));
    lab.beside().done(commit(&session));
    let demand = |digest: &str| match commit(&session) {
        Op::CommitChunked { path, session, modified, mode, .. } => {
            let expected = Some(("SHA256".to_owned(), digest.to_owned()));
            Op::CommitChunked { path, session, modified, mode, expected }
        }
        other => other,
    };
    let right = Algorithm::Sha256.digest(&data).to_string();
    // In processes that never had it open.
    lab.beside().done(demand(&right));
    lab.beside().fails(demand(&"0".repeat(64)), FailureKind::Checksum);
}
