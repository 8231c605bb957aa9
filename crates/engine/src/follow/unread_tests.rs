use super::tests::{World, version};
use super::*;
use crate::fault::{FaultCode, Retry};

const DENIED: FaultCode = FaultCode::PermissionDenied;
const FAILING: FaultCode = FaultCode::StorageIo;

impl World {
    fn failed(&mut self) -> Vec<(String, Retry)> {
        let failed = std::iter::from_fn(|| self.quiet.next_failed());
        failed.map(|(path, fault)| (String::from_utf8(path).unwrap(), fault.retry)).collect()
    }

    /// What is asked again at this time.
    fn asked(&self, secs: u64) -> Vec<String> {
        self.quiet.asked_again(self.at(secs)).into_iter().map(|path| String::from_utf8(path).unwrap()).collect()
    }
}

#[test]
fn what_is_below_an_unread_directory_is_neither_gone_nor_forgotten() {
    let mut world = World::new();
    world.scan(0, &[("d/e/open", 1), ("d/copied", 1), ("dd", 1)]);
    world.close(0, "d/copied", 1);
    assert_eq!(world.ready(), ["d/copied"]);
    world.end("d/copied");
    world.scan_with(1, &[], &[("d", FAILING)]);
    world.scan(10, &[("d/e/open", 1), ("d/copied", 1), ("dd", 1)]);
    assert_eq!(world.ready(), ["d/e/open"], "quiet since the first sight, and no version twice; dd was gone");
}

#[test]
fn the_end_waits_for_an_unread_directory_that_heals() {
    let mut world = World::new();
    world.close(0, "END", 0);
    world.scan_with(0, &[("END", 0)], &[("d", FAILING)]);
    assert!(!world.quiet.has_ready() && !world.quiet.is_over() && !world.quiet.wants_scan());
    assert_eq!(world.quiet.next_ask(), Some(world.at(1)));
    assert!(world.asked(0).is_empty());
    assert_eq!(world.asked(1), ["d"]);
    world.scan_from(1, &["d"], &[], &[("d", FAILING)]);
    assert_eq!(world.quiet.next_ask(), Some(world.at(3)), "each wait is twice as long");
    world.scan_from(3, &["d"], &[("d/late", 1)], &[]);
    assert_eq!(world.quiet.next_ask(), None);
    assert!(world.ready().is_empty());
    world.quiet.seen(world.at(13), b"d/late", version(1));
    assert_eq!(world.ready(), ["d/late"]);
    world.end("d/late");
    assert_eq!(world.ready(), ["END"]);
    world.end("END");
    assert!(world.quiet.is_over() && world.failed().is_empty());
}

#[test]
fn what_time_does_not_cure_fails_at_the_second_try_behind_the_marker() {
    let mut world = World::new();
    for secs in 0..100 {
        world.scan_with(secs, &[], &[("d", DENIED)]);
        assert!(!world.quiet.has_ready(), "it may be allowed before the end");
    }
    world.close(100, "END", 0);
    for _ in 0..9 {
        world.scan_with(100, &[("END", 0)], &[("d", DENIED)]);
        assert!(!world.quiet.has_ready(), "however often scans of everything come");
    }
    world.scan_from(101, &["d"], &[], &[("d", DENIED)]);
    assert!(world.ready().is_empty(), "the marker goes last");
    assert_eq!(world.failed(), ["d", "END"].map(|path| (path.to_owned(), Retry::Permanent)));
    assert!(world.ready().is_empty(), "the marker vouches for all");
    world.fail("END");
    assert!(world.quiet.is_over());
}

#[test]
fn what_may_pass_fails_when_patience_is_over_and_not_without_a_try_after_it() {
    let mut world = World::new();
    world.close(0, "END", 0);
    world.scan_with(0, &[("END", 0)], &[("d", FAILING)]);
    let mut secs = 0;
    while let Some(ask) = world.quiet.next_ask() {
        assert!(!world.quiet.has_ready() && !world.quiet.is_over());
        secs = (ask - world.at(0)).as_secs();
        assert!(!world.quiet.has_ready(), "only another try ends it");
        world.scan_from(secs, &["d"], &[], &[("d", FAILING)]);
    }
    assert!((600..=660).contains(&secs), "{secs}");
    assert_eq!(world.failed(), [("d".to_owned(), Retry::Exhausted), ("END".to_owned(), Retry::Permanent)]);
}

#[test]
fn an_unread_directory_that_vanishes_is_no_failure() {
    let mut world = World::new();
    world.close(0, "END", 0);
    world.scan_with(0, &[("END", 0)], &[("d", DENIED)]);
    world.scan_from(1, &["d"], &[], &[]);
    assert_eq!(world.ready(), ["END"]);
    assert!(world.failed().is_empty());
}

#[test]
fn files_that_nobody_can_see_any_more_end_with_their_directory_and_seen_ones_by_themselves() {
    let mut world = World::new();
    world.scan(0, &[("d/seen", 1), ("d/unseen", 1), ("END", 0)]);
    world.scan_with(1, &[("d/seen", 1), ("END", 0)], &[("d", DENIED)]);
    world.scan_from(2, &["d"], &[("d/seen", 1)], &[("d", DENIED)]);
    assert_eq!(world.failed().len(), 1);
    world.scan_with(11, &[("d/seen", 1), ("END", 0)], &[("d", DENIED)]);
    assert_eq!(world.ready(), ["d/seen"]);
    world.end("d/seen");
    assert!(world.ready().is_empty());
    assert_eq!(world.failed(), [("END".to_owned(), Retry::Permanent)], "the directory was told once");
}

#[test]
fn a_scan_of_some_directories_says_nothing_of_others() {
    let mut world = World::new();
    world.scan_with(0, &[("a/x", 1), ("b", 1)], &[("c", FAILING), ("cc", FAILING)]);
    world.scan_from(1, &["a", "c"], &[], &[]);
    assert_eq!(world.asked(60), ["cc"]);
    world.scan(10, &[("a/x", 1), ("b", 1)]);
    assert_eq!(world.ready(), ["b"], "a/x was gone meanwhile and is new");
}

#[test]
fn of_directories_in_each_other_the_outermost_is_asked_and_fails() {
    let mut world = World::new();
    world.scan_with(0, &[("END", 0)], &[("d/e/f", DENIED), ("d/ee", DENIED)]);
    world.scan_with(1, &[("END", 0)], &[("d", DENIED), ("d/e", DENIED)]);
    assert_eq!(world.asked(60), ["d"]);
    world.scan_with(2, &[("END", 0)], &[("d", DENIED)]);
    assert_eq!(world.failed(), [("d".to_owned(), Retry::Permanent)]);
}

#[test]
fn a_directory_that_heals_but_for_some_below_it_leaves_the_outermost_of_these() {
    let mut world = World::new();
    world.scan_with(0, &[], &[("d", FAILING)]);
    world.scan_from(1, &["d"], &[], &[("d/e", FAILING), ("d/e/f", FAILING), ("d/g/h", FAILING), ("d/g", FAILING)]);
    assert_eq!(world.asked(60), ["d/e", "d/g"]);
}

#[test]
fn the_root_itself_may_be_read_in_part() {
    let mut world = World::new();
    world.scan(0, &[("a", 1), ("END", 0)]);
    world.scan_with(1, &[("END", 0)], &[("", DENIED)]);
    assert_eq!(world.asked(2), [""]);
    world.scan_with(2, &[("END", 0)], &[("", DENIED)]);
    assert_eq!(world.failed(), [(String::new(), Retry::Permanent)]);
    world.scan_with(10, &[("END", 0)], &[("", DENIED)]);
    assert!(world.ready().is_empty());
    assert_eq!(world.failed(), [("END".to_owned(), Retry::Permanent)]);
}

#[test]
fn a_file_that_cannot_be_looked_at_is_waited_for_and_its_directory_asked() {
    let mut world = World::new();
    let fault = || Fault::new(FAILING, "scan");
    world.write(0, "d/a");
    assert!(world.quiet.hidden(world.at(1), b"d/a", fault()), "news");
    assert!(!world.quiet.hidden(world.at(1), b"d/b", fault()), "the same directory");
    assert_eq!(world.asked(2), ["d"]);
    world.scan_from(2, &["d"], &[("d/a", 1)], &[]);
    world.quiet.seen(world.at(12), b"d/a", version(1));
    assert_eq!(world.ready(), ["d/a"], "its close may have been told to nobody");
    world.end("d/a");
    world.scan(20, &[("d/a", 1), ("END", 0)]);
    world.scan(21, &[("d/a", 1), ("END", 0)]);
    world.quiet.seen(world.at(30), b"END", version(0));
    assert_eq!(world.ready(), ["END"], "d/b is gone");
}

#[test]
fn a_file_that_can_never_be_looked_at_fails_with_its_directory() {
    let mut world = World::new();
    let hide = |world: &mut World, secs| {
        let now = world.at(secs);
        world.quiet.hidden(now, b"d/a", Fault::new(DENIED, "scan"));
    };
    world.close(0, "END", 0);
    world.scan(0, &[("END", 0)]);
    hide(&mut world, 1);
    assert!(world.ready().is_empty());
    world.scan_from(2, &["d"], &[], &[("d", DENIED)]);
    assert_eq!(world.quiet.next_failed().unwrap().0, b"d");
    hide(&mut world, 3);
    assert!(world.ready().is_empty());
    assert_eq!(world.failed(), [("END".to_owned(), Retry::Permanent)]);
}

#[test]
fn a_file_that_nobody_can_look_at_any_more_does_not_hide_that_all_else_is_copied() {
    let mut world = World::new();
    world.scan_with(0, &[("d/a", 1), ("END", 0)], &[("d", DENIED)]);
    world.scan_with(1, &[("d/a", 1), ("END", 0)], &[("d", DENIED)]);
    world.scan_from(2, &["d"], &[("d/a", 1)], &[("d", DENIED)]);
    assert_eq!((world.failed().len(), world.quiet.caught_up()), (1, None));
    world.quiet.hidden(world.at(4), b"d/a", Fault::new(DENIED, "scan"));
    assert_eq!(world.quiet.caught_up(), Some(1), "it has failed with its directory");
}

#[test]
fn a_stop_fails_what_was_not_read_until_then() {
    let mut world = World::new();
    world.scan_with(0, &[("d/a", 1)], &[("d", FAILING)]);
    assert_eq!(world.quiet.stop(), 1);
    assert!(!world.quiet.is_over() && world.quiet.next_ask().is_none());
    assert_eq!(world.failed(), [("d".to_owned(), Retry::Exhausted)]);
    assert!(world.quiet.is_over());
}
