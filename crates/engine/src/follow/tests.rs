use super::*;
use crate::fault::FaultCode;

const QUIET: Duration = Duration::from_secs(10);

pub struct World {
    start: Instant,
    pub quiet: Quiet,
}

impl World {
    pub fn new() -> Self {
        Self { start: Instant::now(), quiet: Quiet::new(QUIET, Some(b"END".to_vec())) }
    }

    pub fn at(&self, secs: u64) -> Instant {
        self.start + Duration::from_secs(secs)
    }

    /// A scan of everything.
    pub fn scan(&mut self, secs: u64, files: &[(&str, u64)]) {
        self.scan_with(secs, files, &[]);
    }

    /// A scan of everything that could not read some directories.
    pub fn scan_with(&mut self, secs: u64, files: &[(&str, u64)], unread: &[(&str, FaultCode)]) {
        self.scan_from(secs, &[""], files, unread);
    }

    /// A scan of these directories.
    pub fn scan_from(&mut self, secs: u64, starts: &[&str], files: &[(&str, u64)], unread: &[(&str, FaultCode)]) {
        let now = self.at(secs);
        let starts: Vec<Vec<u8>> = starts.iter().map(|start| start.as_bytes().to_vec()).collect();
        self.quiet.scan_begins(starts.iter().any(Vec::is_empty));
        for (path, size) in files {
            self.quiet.seen(now, path.as_bytes(), version(*size));
        }
        for (path, code) in unread {
            self.quiet.unread(now, path.as_bytes(), Fault::new(*code, "scan"));
        }
        self.quiet.scan_ends(now, &starts);
    }

    pub fn write(&mut self, secs: u64, path: &str) {
        self.quiet.written(self.at(secs), path.as_bytes());
    }

    pub fn close(&mut self, secs: u64, path: &str, size: u64) {
        self.quiet.closed(self.at(secs), path.as_bytes(), version(size), false);
    }

    pub fn ready(&mut self) -> Vec<String> {
        let ready = std::iter::from_fn(|| {
            let peeked = self.quiet.peek_ready();
            let ready = self.quiet.next_ready();
            assert_eq!(peeked.as_ref(), ready.as_ref().map(|(path, _)| path));
            ready
        });
        ready.map(|(path, _)| String::from_utf8(path).unwrap()).collect()
    }

    pub fn end(&mut self, path: &str) {
        self.quiet.ended(path.as_bytes(), true);
    }

    pub fn fail(&mut self, path: &str) {
        self.quiet.ended(path.as_bytes(), false);
    }
}

pub fn version(size: u64) -> Version {
    Version { size: Some(size), modified: Some(Timestamp::from_secs(size as i64)) }
}

#[test]
fn a_file_without_events_is_ready_when_quiet_and_each_change_starts_anew() {
    let mut world = World::new();
    world.scan(0, &[("a", 1), ("b", 1)]);
    world.scan(5, &[("a", 1), ("b", 2)]);
    assert!(world.ready().is_empty());
    world.scan(10, &[("a", 1), ("b", 2)]);
    assert_eq!(world.ready(), ["a"]);
    assert_eq!(world.quiet.next_due(), Some(world.at(10)), "an early look does no harm");
    world.scan(14, &[("a", 1), ("b", 2)]);
    assert!(world.ready().is_empty());
    world.scan(15, &[("a", 1), ("b", 2)]);
    assert_eq!(world.ready(), ["b"]);
    world.scan(100, &[("a", 1), ("b", 2)]);
    assert!(world.ready().is_empty(), "each version once");
}

#[test]
fn a_look_at_the_due_time_makes_a_quiet_file_ready_without_a_scan() {
    let mut world = World::new();
    world.scan(0, &[("a", 1)]);
    assert_eq!(world.quiet.poll_due(world.at(9)), None);
    assert_eq!(world.quiet.poll_due(world.at(10)).as_deref(), Some(&b"a"[..]));
    world.quiet.seen(world.at(10), b"a", version(1));
    assert_eq!(world.ready(), ["a"]);
}

#[test]
fn a_file_that_events_tell_of_waits_for_its_close_however_quiet_it_is() {
    let mut world = World::new();
    world.quiet.created(world.at(0), b"a", version(0));
    world.write(1, "a");
    world.scan(50, &[("a", 7)]);
    world.scan(100, &[("a", 7)]);
    assert!(world.ready().is_empty());
    world.close(101, "a", 7);
    assert_eq!(world.ready(), ["a"]);
}

#[test]
fn what_stays_empty_for_a_minute_is_not_waited_for() {
    let mut world = World::new();
    world.quiet.created(world.at(0), b"a", version(0));
    world.scan(59, &[("a", 0)]);
    assert!(world.ready().is_empty(), "somebody may be about to write");
    assert_eq!(world.quiet.poll_due(world.at(60)).as_deref(), Some(&b"a"[..]));
    world.quiet.seen(world.at(60), b"a", version(0));
    assert_eq!(world.ready(), ["a"]);
    world.end("a");
    world.write(70, "a");
    world.scan(200, &[("a", 7)]);
    assert!(world.ready().is_empty(), "now it is written to");
    world.close(201, "a", 7);
    assert_eq!(world.ready(), ["a"]);
}

#[test]
fn what_has_content_when_it_appears_came_by_a_link_and_needs_no_close() {
    let mut world = World::new();
    world.quiet.created(world.at(0), b"a", version(5));
    world.quiet.seen(world.at(10), b"a", version(5));
    assert_eq!(world.ready(), ["a"]);
}

#[test]
fn a_file_rewritten_while_it_is_copied_is_copied_again_and_only_after_that() {
    let mut world = World::new();
    world.close(0, "a", 1);
    assert_eq!(world.ready(), ["a"]);
    world.write(1, "a");
    world.close(2, "a", 1);
    assert!(world.ready().is_empty(), "one copy of a file at a time");
    world.end("a");
    assert_eq!(world.ready(), ["a"], "written anew, though size and time are the same");
    world.end("a");
    world.close(5, "a", 1);
    assert!(world.ready().is_empty(), "opened and closed without writing");
    world.quiet.closed(world.at(6), b"a", version(1), true);
    assert_eq!(world.ready(), ["a"], "another file took the name");
}

#[test]
fn writing_to_a_ready_file_takes_it_back() {
    let mut world = World::new();
    world.close(0, "a", 1);
    world.write(1, "a");
    assert!(world.ready().is_empty());
    world.close(2, "a", 2);
    assert_eq!(world.ready(), ["a"]);
}

#[test]
fn the_marker_makes_everything_complete_and_goes_last() {
    let mut world = World::new();
    world.close(0, "done", 1);
    world.write(0, "open");
    world.scan(1, &[("done", 1), ("open", 3), ("old", 1)]);
    assert_eq!(world.ready(), ["done"]);
    world.end("done");
    world.close(20, "END", 0);
    assert!(world.quiet.wants_scan() && world.quiet.is_ending());
    world.scan(20, &[("done", 1), ("open", 3), ("old", 1), ("late", 1), ("END", 0)]);
    assert!(!world.quiet.wants_scan());
    assert_eq!(world.ready(), ["old"]);
    world.scan(29, &[("done", 1), ("open", 3), ("old", 1), ("late", 1), ("END", 0)]);
    assert!(world.ready().is_empty(), "quiet only since the marker");
    world.scan(30, &[("done", 1), ("open", 3), ("old", 1), ("late", 1), ("END", 0)]);
    let mut ready = world.ready();
    ready.sort();
    assert_eq!(ready, ["late", "open"]);
    ["old", "open"].iter().for_each(|path| world.end(path));
    assert!(world.ready().is_empty() && !world.quiet.is_over());
    world.end("late");
    assert_eq!(world.ready(), ["END"]);
    assert!(!world.quiet.is_over());
    world.end("END");
    assert!(world.quiet.is_over());
}

#[test]
fn what_vanishes_does_not_hold_up_the_end() {
    let mut world = World::new();
    world.write(0, "gone");
    world.scan(0, &[("gone", 1), ("END", 0)]);
    world.scan(1, &[("END", 0)]);
    world.scan(11, &[("END", 0)]);
    assert_eq!(world.ready(), ["END"]);
    world.end("END");
    assert!(world.quiet.is_over());
}

#[test]
fn after_lost_events_quiet_decides() {
    let mut world = World::new();
    world.write(0, "a");
    world.quiet.events_lost(world.at(5));
    world.scan(5, &[("a", 1)]);
    world.scan(14, &[("a", 1)]);
    assert!(world.ready().is_empty());
    world.scan(15, &[("a", 1)]);
    assert_eq!(world.ready(), ["a"]);
}

#[test]
fn a_stop_finishes_what_is_ready_and_counts_what_is_not() {
    let mut world = World::new();
    world.close(0, "ready", 1);
    world.close(0, "again", 1);
    assert_eq!(world.quiet.next_ready(), Some((b"ready".to_vec(), version(1))));
    assert_eq!(world.quiet.next_ready(), Some((b"again".to_vec(), version(1))));
    world.write(1, "again");
    world.close(2, "again", 2);
    world.write(2, "open");
    assert_eq!(world.quiet.stop(), 1);
    world.close(3, "late", 1);
    world.end("ready");
    world.end("again");
    assert_eq!(world.ready(), ["again"]);
    world.end("again");
    assert!(world.quiet.is_over());
}

#[test]
fn temporary_names_are_left_out_unless_wanted_or_the_marker() {
    let names = Names { include_hidden: false, marker: Some(b".done".to_vec()) };
    for name in ["a/.hidden", "b~", "c.part", "d.tmp", "x/.done", "e.tmp/f", ".g/h/i", "j/k~/l"] {
        assert!(!names.wanted(name.as_bytes()), "{name}");
        assert!(Names { include_hidden: true, ..names.clone() }.wanted(name.as_bytes()));
    }
    for name in ["a", "a.h5", ".done", "tmp", "part", "~a"] {
        assert!(names.wanted(name.as_bytes()), "{name}");
    }
}

#[test]
fn the_marker_is_held_back_when_something_failed_and_says_what() {
    let mut world = World::new();
    for path in ["a", "b"] {
        world.close(0, path, 1);
    }
    assert_eq!(world.ready(), ["a", "b"]);
    world.fail("a");
    world.close(1, "END", 0);
    world.scan(1, &[("a", 1), ("b", 1), ("END", 0)]);
    assert!(!world.quiet.has_ready(), "b is still copied");
    world.end("b");
    assert!(world.quiet.has_ready() && world.ready().is_empty());
    let (path, fault) = world.quiet.next_failed().unwrap();
    assert_eq!((&path[..], fault.code), (&b"END"[..], FaultCode::HeldBack));
    assert_eq!(fault.detail, "\"a\" was not copied, or not wholly");
    assert!(world.quiet.next_failed().is_none() && !world.quiet.is_over());
    world.fail("END");
    assert!(world.quiet.is_over());
}

#[test]
fn a_failure_that_a_later_version_made_good_holds_no_marker_back() {
    let mut world = World::new();
    world.close(0, "a", 1);
    assert_eq!(world.ready(), ["a"]);
    world.fail("a");
    world.close(1, "a", 2);
    assert_eq!(world.ready(), ["a"]);
    world.end("a");
    world.close(2, "END", 0);
    world.scan(2, &[("a", 2), ("END", 0)]);
    assert_eq!((world.ready(), world.quiet.next_failed().is_none()), (vec!["END".to_owned()], true));
}

#[test]
fn what_went_away_while_it_was_copied_or_after_it_failed_holds_no_marker_back() {
    let mut world = World::new();
    for path in ["renamed", "unreadable"] {
        world.close(0, path, 1);
    }
    assert_eq!(world.ready(), ["renamed", "unreadable"]);
    world.quiet.gone(b"renamed");
    world.fail("renamed");
    world.fail("unreadable");
    world.quiet.gone(b"unreadable");
    world.close(1, "END", 0);
    world.scan(1, &[("END", 0)]);
    assert!(world.quiet.marker_is_next());
    assert_eq!((world.ready(), world.quiet.next_failed().is_none()), (vec!["END".to_owned()], true));
}

#[test]
fn a_scan_that_misses_what_failed_frees_the_marker_and_one_that_finds_it_does_not() {
    for (left, held_back) in [(&[("END", 0)][..], false), (&[("a", 1), ("END", 0)][..], true)] {
        let mut world = World::new();
        world.close(0, "a", 1);
        assert_eq!(world.ready(), ["a"]);
        world.fail("a");
        world.close(1, "END", 0);
        world.scan(1, left);
        assert_eq!(world.quiet.next_failed().is_some(), held_back, "{left:?}");
    }
}

#[test]
fn what_went_away_and_came_again_holds_the_marker_back_as_long_as_it_fails() {
    let mut world = World::new();
    world.close(0, "a", 1);
    assert_eq!(world.ready(), ["a"]);
    world.quiet.gone(b"a");
    world.quiet.closed(world.at(1), b"a", version(1), true);
    world.fail("a");
    assert_eq!(world.ready(), ["a"], "as if it had never been there");
    world.fail("a");
    world.close(2, "END", 0);
    world.scan(2, &[("a", 1), ("END", 0)]);
    assert_eq!(world.quiet.next_failed().map(|(path, _)| path), Some(b"END".to_vec()));
}

#[test]
fn what_was_ready_in_a_directory_that_has_another_name_is_not_handed_out() {
    let mut world = World::new();
    for path in ["d/copied", "d/ready", "d/e/ready", "dd"] {
        world.close(0, path, 1);
    }
    assert_eq!(world.quiet.next_ready(), Some((b"d/copied".to_vec(), version(1))));
    world.write(1, "d/open");
    world.quiet.gone_below(b"d");
    assert_eq!(world.ready(), ["dd"]);
    world.fail("d/copied");
    world.end("dd");
    world.close(2, "END", 0);
    world.scan(2, &[("n/copied", 1), ("n/ready", 1), ("n/e/ready", 1), ("n/open", 1), ("dd", 1), ("END", 0)]);
    world.scan(12, &[("n/copied", 1), ("n/ready", 1), ("n/e/ready", 1), ("n/open", 1), ("dd", 1), ("END", 0)]);
    let mut ready = world.ready();
    ready.sort();
    assert_eq!(ready, ["n/copied", "n/e/ready", "n/open", "n/ready"]);
    ready.iter().for_each(|path| world.end(path));
    assert_eq!(world.ready(), ["END"]);
}

#[test]
fn the_marker_is_held_back_when_what_was_copied_may_be_lost() {
    let mut world = World::new();
    world.close(0, "a", 1);
    assert_eq!(world.ready(), ["a"]);
    world.end("a");
    world.quiet.ended(b"", false);
    world.close(1, "END", 0);
    world.scan(1, &[("a", 1), ("END", 0)]);
    assert!(world.ready().is_empty());
    let (path, fault) = world.quiet.next_failed().unwrap();
    assert_eq!((&path[..], fault.code), (&b"END"[..], FaultCode::HeldBack));
    assert_eq!(fault.detail, "the directory itself was not copied, or not wholly");
}

#[test]
fn that_what_was_there_at_first_is_copied_is_told_once_whatever_else_comes() {
    let mut world = World::new();
    assert_eq!(world.quiet.caught_up(), None, "nobody has looked");
    world.scan_from(0, &["d"], &[("d/a", 1)], &[]);
    assert_eq!(world.quiet.caught_up(), None, "only a part was looked at");
    world.scan(1, &[("d/a", 1), ("b", 1), ("c", 1), ("END", 1)]);
    world.scan(11, &[("d/a", 1), ("b", 1), ("c", 2), ("new", 1), ("END", 1)]);
    assert_eq!(world.ready(), ["d/a", "b"]);
    world.end("b");
    world.fail("d/a");
    assert_eq!(world.quiet.caught_up(), None, "one is written on");
    world.scan(12, &[("d/a", 1), ("b", 1), ("new", 1), ("END", 1)]);
    assert_eq!(world.quiet.caught_up(), Some(3), "it is gone, and what came later does not count");
    assert_eq!(world.quiet.caught_up(), None);
    let mut empty = World::new();
    empty.scan(0, &[]);
    assert_eq!(empty.quiet.caught_up(), Some(0));
}

#[test]
fn an_old_listing_of_what_was_copied_meanwhile_does_not_hide_that_all_is_copied() {
    for is_closed in [false, true] {
        for is_busy in [false, true] {
            let mut world = World::new();
            world.close(0, "a", 2);
            assert_eq!(world.ready(), ["a"]);
            if !is_busy {
                world.end("a");
            }
            world.scan(1, &[("a", 1)]);
            assert_eq!(world.quiet.caught_up(), None);
            if is_closed {
                world.close(2, "a", 2);
            } else {
                world.scan(2, &[("a", 2)]);
            }
            if is_busy {
                assert_eq!(world.quiet.caught_up(), None, "its copy has not ended");
                world.end("a");
            }
            assert_eq!(world.quiet.caught_up(), Some(1), "closed: {is_closed}, busy: {is_busy}");
        }
    }
}
