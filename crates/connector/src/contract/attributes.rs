//! Modes, times, links.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use whimbrel_engine::FaultCode;

use super::help::*;
use crate::session::{Attributes, Disposition, WriteIntent};
use crate::{Connector, Follow, Kind, Timestamp};

const THEN: Timestamp = Timestamp { seconds: 981_173_106, nanoseconds: 123_456_789 };

fn attributes(mode: Option<u32>, modified: Option<Timestamp>) -> Attributes {
    Attributes { mode, modified, ..Attributes::default() }
}

pub fn attributes_are_kept(a: &dyn Connector, b: &dyn Connector) {
    if !a.capabilities().posix_attributes {
        return;
    }
    let session = ok(a.begin(&path("file"), &REPLACE));
    put(a, &session, 0, b"bytes");
    let wanted = Attributes { size: Some(9), durable: true, ..attributes(Some(0o2741), Some(THEN)) };
    let told = commit_as(a, &session, &wanted);
    let seen = ok(b.stat(&path("file"), Follow::No));
    assert_eq!(told, seen);
    assert_eq!((seen.mode, seen.modified, seen.size), (0o2741, THEN, 9));
    let reader = ok(b.open_read(&path("file"), None));
    assert_eq!(ok(reader.meta()), seen);
}

pub fn what_is_put_has_its_attributes(a: &dyn Connector, b: &dyn Connector) {
    if !a.capabilities().posix_attributes {
        return;
    }
    for durable in [false, true] {
        let name = path(format!("file{durable}"));
        ok(a.put(&name, b"bytes", &Attributes { durable, ..attributes(Some(0o640), Some(THEN)) }, None));
        let seen = ok(b.stat(&name, Follow::No));
        assert_eq!((seen.mode, seen.modified, seen.size), (0o640, THEN, 5));
        ok(a.put(&name, b"other bytes", &Attributes { durable, ..Attributes::default() }, None));
        let seen = ok(b.stat(&name, Follow::No));
        assert_eq!((seen.mode, seen.size), (0o640, 11), "the mode of the old file stays");
    }
    ok(a.put(&path("long"), b"bytes", &Attributes { size: Some(9), ..Attributes::default() }, None));
    assert_eq!(load(b, &path("long")), b"bytes\0\0\0\0");
}

pub fn replacing_keeps_the_mode_of_the_old_file(a: &dyn Connector, _: &dyn Connector) {
    if !a.capabilities().posix_attributes {
        return;
    }
    store(a, &path("file"), b"secret");
    ok(a.set_attributes(&path("file"), &attributes(Some(0o600), None), Follow::Yes));
    assert_eq!(store(a, &path("file"), b"new secret").mode, 0o600);
    let session = ok(a.begin(&path("file"), &REPLACE));
    let wanted = attributes(Some(0o666), None);
    assert_eq!(commit_as(a, &session, &wanted).mode, 0o666);
}

/// Also for who makes a token.
pub fn replacing_takes_from_a_program_whom_it_runs_as(a: &dyn Connector, b: &dyn Connector) {
    if !a.capabilities().posix_attributes {
        return;
    }
    store(a, &path("program"), b"trusted");
    let trusted = || ok(a.set_attributes(&path("program"), &attributes(Some(0o6755), None), Follow::Yes));
    for disposition in [Disposition::Replace, Disposition::Resume, Disposition::Continue] {
        trusted();
        assert_eq!(ok(b.stat(&path("program"), Follow::No)).mode, 0o6755, "asked for, it is given");
        // So that it is resumed beside the program, and not in it.
        drop(ok(a.begin(&path("program"), &REPLACE)));
        let session = ok(a.begin(&path("program"), &WriteIntent { disposition, ..REPLACE }));
        put(a, &session, 0, b"other");
        assert_eq!(commit(b, &session).mode, 0o755, "{disposition:?}");
    }
    trusted();
    ok(a.put(&path("program"), b"other", &Attributes::default(), None));
    assert_eq!(ok(b.stat(&path("program"), Follow::No)).mode, 0o755);
}

/// Permission bits of everything in the collection that has a hidden name.
fn hidden_modes(storage: &dyn Connector) -> Vec<u32> {
    let entries = ok(storage.list(&path("/"))).map(ok);
    entries.filter(|entry| entry.name.starts_with(b".")).map(|entry| entry.meta.mode).collect()
}

pub fn what_is_unfinished_is_its_owners_alone(a: &dyn Connector, b: &dyn Connector) {
    if !a.capabilities().posix_attributes {
        return;
    }
    // That of a file that is made under its final name is what storage gives any new file.
    let made = ok(a.begin(&path("plain"), &UPDATE));
    let ordinary = commit(a, &made).mode;
    store(a, &path("replaced"), b"old");
    ok(a.set_attributes(&path("replaced"), &attributes(Some(0o646), None), Follow::Yes));
    for (name, mode) in [("new", ordinary), ("replaced", 0o646)] {
        for intent in [REPLACE, RESUME, CONTINUE] {
            if name == "replaced" && intent == RESUME {
                // In place.
                continue;
            }
            let session = ok(a.begin(&path(name), &intent));
            assert_eq!(hidden_modes(b), [0o600], "{name} {intent:?}");
            put(b, &session, 0, b"bytes");
            if intent == CONTINUE {
                ok(ok(a.journal(&session)).append(b"proof"));
            }
            assert!(hidden_modes(b).iter().all(|&mode| mode == 0o600), "{name} {intent:?}");
            assert_eq!(commit(b, &session).mode, mode, "{name} {intent:?}");
            assert!(hidden_modes(b).is_empty());
            if name == "new" {
                ok(a.remove_file(&path(name)));
            }
        }
    }
}

pub fn what_others_could_read_of_an_earlier_attempt_they_can_no_longer(a: &dyn Connector, b: &dyn Connector) {
    if !a.capabilities().posix_attributes {
        return;
    }
    for intent in [RESUME, CONTINUE] {
        let session = ok(a.begin(&path("file"), &CONTINUE));
        put(a, &session, 0, b"half");
        ok(a.set_attributes(&session.staging, &attributes(Some(0o666), None), Follow::No));
        let again = ok(b.begin(&path("file"), &intent));
        assert_eq!(hidden_modes(a), [0o600], "{intent:?}");
        assert_eq!(commit(b, &again).size, 4);
        ok(a.remove_file(&path("file")));
    }
}

pub fn a_private_file_is_never_seen_with_another_mode(a: &dyn Connector, b: &dyn Connector) {
    if !a.capabilities().posix_attributes {
        return;
    }
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let seen = scope.spawn(|| {
            let mut seen = 0;
            while !done.load(Ordering::Relaxed) {
                if let Ok(meta) = b.stat(&path("file"), Follow::No) {
                    assert_eq!(meta.mode, 0o640);
                    seen += 1;
                }
            }
            seen
        });
        for _ in 0..50 {
            let session = ok(a.begin(&path("file"), &REPLACE));
            put(a, &session, 0, b"secret");
            commit_as(a, &session, &attributes(Some(0o640), None));
            ok(a.remove_file(&path("file")));
            ok(a.put(&path("file"), b"secret", &attributes(Some(0o640), None), None));
            ok(a.remove_file(&path("file")));
        }
        done.store(true, Ordering::Relaxed);
        seen.join().expect("no other mode was seen")
    });
}

pub fn a_file_made_under_its_name_never_gives_more_than_it_will(a: &dyn Connector, b: &dyn Connector) {
    if !a.capabilities().posix_attributes || !a.capabilities().update_in_place {
        return;
    }
    let session = ok(a.begin(&path("file"), &WriteIntent { mode: Some(0o400), ..UPDATE }));
    put(a, &session, 0, b"secret");
    assert_eq!(ok(b.stat(&path("file"), Follow::No)).mode, 0o600, "its owner can go on writing");
    assert_eq!(commit_as(b, &session, &attributes(Some(0o400), None)).mode, 0o400);
}

pub fn plain_attributes_say_of_no_program_whom_it_runs_as(a: &dyn Connector, b: &dyn Connector) {
    if !a.capabilities().posix_attributes {
        return;
    }
    store(a, &path("program"), b"code");
    ok(a.make_dir(&path("dir")));
    for name in ["program", "dir"] {
        ok(a.set_plain_attributes(&path(name), &attributes(Some(0o7755), Some(THEN)), Follow::Yes));
    }
    let seen = ok(b.stat(&path("program"), Follow::No));
    assert_eq!((seen.mode, seen.modified), (0o1755, THEN));
    assert_eq!(ok(b.stat(&path("dir"), Follow::No)).mode & 0o1777, 0o1755);
}

pub fn attributes_of_what_exists_can_be_changed(a: &dyn Connector, _: &dyn Connector) {
    if !a.capabilities().posix_attributes {
        return;
    }
    store(a, &path("file"), b"bytes");
    ok(a.make_dir(&path("dir")));
    let before_epoch = Timestamp { seconds: -1, nanoseconds: 999_999_999 };
    for name in ["file", "dir", "/"] {
        let wanted = attributes(Some(0o750), Some(before_epoch));
        ok(a.set_attributes(&path(name), &wanted, Follow::Yes));
        let seen = ok(a.stat(&path(name), Follow::No));
        assert_eq!((seen.mode, seen.modified), (0o750, before_epoch), "{name}");
        ok(a.set_attributes(&path(name), &attributes(None, Some(THEN)), Follow::No));
        let seen = ok(a.stat(&path(name), Follow::No));
        assert_eq!((seen.mode, seen.modified), (0o750, THEN), "{name}");
    }
}

pub fn links_keep_their_text(a: &dyn Connector, _: &dyn Connector) {
    if !a.capabilities().symlinks {
        return;
    }
    store(a, &path("file"), b"bytes");
    for (name, text) in [("l1", &b"file"[..]), ("l2", b"/no/where\xff"), ("l3", b"../..")] {
        ok(a.symlink(text, &path(name)));
        let meta = ok(a.stat(&path(name), Follow::No));
        assert_eq!(meta.kind, Kind::Symlink);
        assert_eq!(meta.link_target.as_deref(), Some(text));
    }
    let followed = ok(a.stat(&path("l1"), Follow::Yes));
    assert_eq!((followed.kind, followed.size), (Kind::File, 5));
    assert_eq!(followed.link_target, None);
    refused(a.stat(&path("l2"), Follow::Yes), FaultCode::NotFound);
    assert_eq!(ok(a.stat(&path("l3"), Follow::Yes)).kind, Kind::Directory);
    // The link's own time, and its target's.
    let set = |follow| ok(a.set_attributes(&path("l1"), &attributes(None, Some(THEN)), follow));
    set(Follow::No);
    assert_ne!(ok(a.stat(&path("file"), Follow::No)).modified, THEN);
    assert_eq!(ok(a.stat(&path("l1"), Follow::No)).modified, THEN);
    set(Follow::Yes);
    assert_eq!(ok(a.stat(&path("file"), Follow::No)).modified, THEN);
    let mode = a.set_attributes(&path("l1"), &attributes(Some(0o600), None), Follow::No);
    refused(mode, FaultCode::NotSupported);
}

pub fn removing_a_link_keeps_its_target(a: &dyn Connector, _: &dyn Connector) {
    if !a.capabilities().symlinks {
        return;
    }
    store(a, &path("file"), b"bytes");
    ok(a.make_dir(&path("dir")));
    ok(a.symlink(b"file", &path("to-file")));
    ok(a.symlink(b"dir", &path("to-dir")));
    refused(a.remove_dir(&path("to-dir")), FaultCode::NotADirectory);
    refused(a.remove_tree(&path("to-dir")), FaultCode::NotADirectory);
    ok(a.remove_file(&path("to-dir")));
    ok(a.remove_file(&path("to-file")));
    assert_eq!(load(a, &path("file")), b"bytes");
    assert_eq!(kind(a, &path("dir")), Kind::Directory);
}

pub fn writing_through_a_link_changes_its_target(a: &dyn Connector, b: &dyn Connector) {
    if !a.capabilities().symlinks {
        return;
    }
    ok(a.make_dir(&path("dir")));
    store(a, &path("dir/file"), b"old");
    ok(a.symlink(b"dir/file", &path("link")));
    ok(a.symlink(b"/dir/later", &path("dangling")));
    store(a, &path("link"), b"new");
    store(b, &path("dangling"), b"created");
    assert_eq!(load(a, &path("dir/file")), b"new");
    assert_eq!(load(a, &path("dir/later")), b"created");
    assert_eq!(kind(a, &path("link")), Kind::Symlink);
    assert_eq!(names(a, &path("/")), [&b"dangling"[..], b"dir", b"link"]);
    let session = ok(a.begin(&path("link"), &UPDATE));
    put(b, &session, 0, b"N");
    commit(a, &session);
    assert_eq!(load(a, &path("link")), b"New");
}

pub fn links_in_the_way_are_followed_inside_the_root(a: &dyn Connector, _: &dyn Connector) {
    if !a.capabilities().symlinks {
        return;
    }
    ok(a.make_dir(&path("real")));
    ok(a.make_dir(&path("real/sub")));
    ok(a.symlink(b"/../../real", &path("up")));
    ok(a.symlink(b"../../up/sub/..", &path("real/sub/back")));
    store(a, &path("up/file"), b"bytes");
    assert_eq!(load(a, &path("real/file")), b"bytes");
    assert_eq!(load(a, &path("real/sub/back/file")), b"bytes");
    let listed = names(a, &path("real/sub/back"));
    assert_eq!(listed, [&b"file"[..], b"sub"]);
    ok(a.make_dir(&path("up/made")));
    assert_eq!(kind(a, &path("real/made")), Kind::Directory);
    ok(a.rename(&path("up/file"), &path("real/sub/back/moved"), false));
    assert_eq!(load(a, &path("real/moved")), b"bytes");
}

pub fn circular_links_are_refused(a: &dyn Connector, _: &dyn Connector) {
    if !a.capabilities().symlinks {
        return;
    }
    ok(a.symlink(b"two", &path("one")));
    ok(a.symlink(b"one", &path("two")));
    let code = FaultCode::InvalidPath;
    refused(a.stat(&path("one"), Follow::Yes), code);
    refused(a.stat(&path("one/x"), Follow::No), code);
    refused(a.open_read(&path("two"), None), code);
    refused(a.begin(&path("two"), &REPLACE), code);
    refused(a.begin(&path("two/x"), &REPLACE), code);
    refused(a.list(&path("one")), code);
    assert_eq!(kind(a, &path("one")), Kind::Symlink);
}

pub fn truncate_cuts_and_extends(a: &dyn Connector, _: &dyn Connector) {
    if !a.capabilities().update_in_place {
        return;
    }
    store(a, &path("file"), b"0123456789");
    ok(a.truncate(&path("file"), 4));
    assert_eq!(load(a, &path("file")), b"0123");
    ok(a.truncate(&path("file"), 6));
    assert_eq!(load(a, &path("file")), b"0123\0\0");
}

pub fn invalid_attributes_are_refused(a: &dyn Connector, _: &dyn Connector) {
    if !a.capabilities().posix_attributes {
        return;
    }
    store(a, &path("file"), b"bytes");
    let late = Timestamp { seconds: 0, nanoseconds: 1_000_000_000 };
    let group = |name: &str| Attributes { group: Some(name.into()), ..Attributes::default() };
    for bad in
        [attributes(Some(0o10000), None), attributes(None, Some(late)), group("no such group"), group("4294967295")]
    {
        let code = FaultCode::InvalidArgument;
        refused(a.set_attributes(&path("file"), &bad, Follow::Yes), code);
        let session = ok(a.begin(&path("new"), &REPLACE));
        refused(a.commit(&session, &[], &bad), code);
        missing(a, &path("new"));
    }
    let size = Attributes { size: Some(1), ..Attributes::default() };
    let result = a.set_attributes(&path("file"), &size, Follow::Yes);
    refused(result, FaultCode::InvalidArgument);
    assert_eq!(load(a, &path("file")), b"bytes");
}
