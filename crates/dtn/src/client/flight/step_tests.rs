//! The states of attempts, and what leads from one to the next.

use whimbrel_engine::progress::Verification;
use whimbrel_engine::transfer::Work;
use whimbrel_engine::{FaultCode, RangeSet};
use whimbrel_proto::op::Op;

use super::fixtures::{LEAF, SIZE, checksum, job, leaf, manner, open_file};
use super::occupant::Occupant;
use super::opening::OpenStep;
use super::order::{Manner, Named, Purpose};
use super::proof::{Evidence, Proof};
use super::step::{ChunkStep, CommitStep, CopyNaming, Step};

const TEMPORARY: &[u8] = b"/d/.f.whimbrel";

fn evidence() -> Evidence {
    Evidence::new(Ok(Proof { checksum: checksum(), in_reply: true }), false)
}

fn copy(named: Named) -> Step {
    Step::alone(&job(Work::Copy), &Manner { named, ..manner() })
}

fn later() -> Step {
    copy(Named::Later { temporary: TEMPORARY.to_vec(), may_exist: true })
}

#[test]
fn only_where_a_rename_would_replace_it_the_occupant_counts() {
    let after = |mut step: Step| {
        step.occupied(Occupant::Device);
        step.occupant()
    };
    assert_eq!(after(later()), Occupant::Device);
    assert_eq!(after(Step::Open(OpenStep::new(Some(TEMPORARY.to_vec())))), Occupant::Device);
    assert_eq!(after(Step::Open(OpenStep::new(None))), Occupant::Replaceable);
    assert_eq!(after(copy(Named::BY_DESTINATION)), Occupant::Replaceable);
    assert_eq!(after(Step::Simple), Occupant::Replaceable);
}

#[test]
fn a_file_goes_ahead_once_and_only_when_its_source_has_told_its_checksum() {
    let (job, mut evidence) = (job(Work::Copy), evidence());
    assert!(copy(Named::SourceFirst).waits_for_source() && !copy(Named::BY_DESTINATION).waits_for_source());
    let Step::Copy(mut step) = copy(Named::SourceFirst) else { panic!("a copy") };
    assert!(step.go_ahead(&job, &evidence).is_empty());
    evidence.source.sum = Some("aa".into());
    let orders = step.go_ahead(&job, &evidence);
    assert_eq!(orders.iter().map(|order| order.purpose).collect::<Vec<_>>(), [Purpose::Store, Purpose::Send]);
    match &orders[0].op {
        Op::Receive(receive) => assert_eq!(receive.expected_checksum, Some(("MD5".into(), "aa".into()))),
        other => panic!("{other:?}"),
    }
    assert!(matches!(step.naming, CopyNaming::Vouched));
    assert!(step.go_ahead(&job, &evidence).is_empty());
}

#[test]
fn a_checksum_that_nobody_waited_for_moves_nothing() {
    let mut evidence = evidence();
    evidence.source.sum = Some("aa".into());
    for step in [copy(Named::BY_DESTINATION), later()] {
        let Step::Copy(mut step) = step else { panic!("a copy") };
        assert!(step.go_ahead(&job(Work::Copy), &evidence).is_empty());
    }
}

#[test]
fn a_part_is_compared_once() {
    let mut evidence = evidence();
    evidence.source.leaves = vec![leaf(0, b"a"), leaf(1, b"b")];
    evidence.destination.leaves = vec![leaf(0, b"a"), leaf(1, b"x")];
    let mut step = ChunkStep::Moving(open_file());
    assert!(step.compare(&(0..2 * LEAF), &evidence).unwrap());
    assert!(!step.compare(&(0..2 * LEAF), &evidence).unwrap());
    let ChunkStep::Compared { compared, named: None, .. } = step else { panic!("{step:?}") };
    assert_eq!((compared.ranges(), compared.wrong), (RangeSet::from(0..LEAF), RangeSet::from(LEAF..2 * LEAF)));
}

#[test]
fn a_part_without_all_digests_is_not_compared() {
    let mut step = ChunkStep::Moving(open_file());
    assert_eq!(step.compare(&(0..LEAF), &evidence()).unwrap_err().code, FaultCode::PeerMisbehaved);
    assert!(matches!(step, ChunkStep::Moving(_)));
}

#[test]
fn what_is_not_proven_counts_when_it_arrived() {
    let mut file = open_file();
    file.checksum = None;
    let mut step = ChunkStep::Moving(file);
    assert!(step.compare(&(0..LEAF), &Evidence::new(Err(Verification::NotAsked), false)).unwrap());
    assert!(matches!(step, ChunkStep::Compared { compared, .. } if compared.ranges() == RangeSet::from(0..LEAF)));
}

#[test]
fn a_name_is_answered_only_where_it_was_asked_for() {
    let mut moving = ChunkStep::Moving(open_file());
    moving.name_answered(true);
    assert!(matches!(moving, ChunkStep::Moving(_)));
    let mut asking = ChunkStep::AskingName { file: open_file(), named: None };
    assert!(!asking.compare(&(0..LEAF), &evidence()).unwrap(), "nothing moves");
    asking.name_answered(false);
    assert!(matches!(asking, ChunkStep::AskingName { named: Some(false), .. }));
}

#[test]
fn what_has_the_name_is_the_file_only_if_all_of_it_is_what_was_proven() {
    let all = [leaf(0, b"a"), leaf(1, b"b"), leaf(2, b"c")];
    let is_named = |found: Option<u64>, stored: &[_]| {
        let file = open_file();
        file.proven.borrow_mut().extend(all.clone().map(|leaf| (leaf.range.start, leaf)));
        let mut step = Step::Commit(CommitStep::Comparing { file, found: None });
        found.into_iter().for_each(|size| step.found(size));
        let mut evidence = evidence();
        evidence.destination.leaves = stored.to_vec();
        matches!(step, Step::Commit(step) if step.is_named(&job(Work::Commit), &evidence))
    };
    let size = SIZE;
    assert!(is_named(Some(size), &all));
    assert!(!is_named(None, &all));
    assert!(!is_named(Some(size + 1), &all));
    assert!(!is_named(Some(size), &all[..2]));
    assert!(!is_named(Some(size), &[leaf(0, b"a"), leaf(1, b"b"), leaf(2, b"x")]));
}

#[test]
fn only_parts_and_ends_of_files_in_chunks_have_an_open_file() {
    let has = |step: Step| step.file().is_some();
    assert!(has(Step::Chunk(ChunkStep::Moving(open_file()))));
    assert!(has(Step::Commit(CommitStep::Asked { file: open_file(), again: false })));
    assert!(has(Step::Commit(CommitStep::Named(open_file()))) && !has(Step::Chunk(ChunkStep::Named)));
    assert!(!has(later()) && !has(Step::Open(OpenStep::new(None))));
}
