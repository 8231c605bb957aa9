//! Begin, join, commit, abandon.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use whimbrel_engine::FaultCode;

use super::help::*;
use crate::Connector;
use crate::session::{Attributes, WriteSession};

fn with_size(size: u64) -> Attributes {
    Attributes { size: Some(size), ..Attributes::default() }
}

pub fn nothing_has_the_final_name_before_commit(a: &dyn Connector, b: &dyn Connector) {
    let session = ok(a.begin(&path("file"), &REPLACE));
    put(a, &session, 0, b"bytes");
    missing(b, &path("file"));
    commit(a, &session);
    assert_eq!(load(b, &path("file")), b"bytes");
    assert_eq!(names(b, &path("/")), [b"file"]);
}

pub fn commit_replaces_in_one_step(a: &dyn Connector, b: &dyn Connector) {
    let (old, new) = (vec![b'o'; 100_000], vec![b'n'; 150_000]);
    store(a, &path("file"), &old);
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            // Whatever is seen is whole: never missing, short or mixed.
            while !done.load(Ordering::Relaxed) {
                let seen = load(b, &path("file"));
                assert!(seen == old || seen == new, "{} bytes seen", seen.len());
            }
        });
        for round in 0..20 {
            let data = if round % 2 == 0 { &new } else { &old };
            store(a, &path("file"), data);
        }
        done.store(true, Ordering::Relaxed);
    });
    assert!(load(b, &path("file")) == old);
}

pub fn whether_a_session_is_committed_is_told(a: &dyn Connector, b: &dyn Connector) {
    let told = |session: &WriteSession| (a.has_committed(session), b.has_committed(session));
    let session = ok(a.begin(&path("file"), &CONTINUE));
    assert_eq!(told(&session), (false, false));
    commit(b, &session);
    assert_eq!(told(&session), (true, true));
    store(a, &path("file"), b"another");
    assert_eq!(told(&session), (false, false));
    let in_place = ok(a.begin(&path("file"), &UPDATE));
    assert_eq!(told(&in_place), (false, false));
}

pub fn names_of_unfinished_files_are_given_to_no_file(a: &dyn Connector, b: &dyn Connector) {
    let session = ok(a.begin(&path("file"), &REPLACE));
    put(a, &session, 0, b"bytes");
    let hidden = &session.staging;
    for intent in [REPLACE, RESUME, UPDATE, CONTINUE] {
        refused(b.begin(hidden, &intent), FaultCode::InvalidPath);
    }
    refused(b.put(hidden, b"other", &Attributes::default(), None), FaultCode::InvalidPath);
    store(b, &path("other"), b"other");
    refused(b.rename(&path("other"), hidden, false), FaultCode::InvalidPath);
    commit(a, &session);
    assert_eq!(load(b, &path("file")), b"bytes");
    // Whoever wants to keep what was left gives it a name of its own.
    let session = ok(a.begin(&path("left"), &REPLACE));
    put(a, &session, 0, b"part");
    ok(b.rename(&session.staging, &path("kept"), false));
    assert_eq!(load(b, &path("kept")), b"part");
}

pub fn committing_twice_is_harmless(a: &dyn Connector, b: &dyn Connector) {
    let session = ok(a.begin(&path("file"), &REPLACE));
    put(a, &session, 0, b"bytes");
    let first = commit(a, &session);
    let update = ok(a.begin(&path("file"), &UPDATE));
    put(a, &update, 5, b" and more");
    commit(a, &update);
    // The repeated commit neither fails nor cuts what was added since.
    for storage in [a, b] {
        let again = commit_as(storage, &session, &with_size(5));
        assert_eq!(again.unique, first.unique);
    }
    assert_eq!(load(a, &path("file")), b"bytes and more");
}

pub fn abandoning_leaves_nothing(a: &dyn Connector, b: &dyn Connector) {
    store(a, &path("old"), b"kept");
    for name in ["new", "old"] {
        let session = ok(a.begin(&path(name), &REPLACE));
        put(a, &session, 0, b"thrown away");
        ok(b.abandon(&session));
        ok(a.abandon(&session));
        refused(a.join(&session), FaultCode::NotFound);
        refused(a.commit(&session, &[], &Attributes::default()), FaultCode::NotFound);
    }
    assert_eq!(names(a, &path("/")), [b"old"]);
    assert_eq!(load(a, &path("old")), b"kept");
}

pub fn abandoning_after_commit_keeps_the_file(a: &dyn Connector, _: &dyn Connector) {
    let session = ok(a.begin(&path("file"), &REPLACE));
    put(a, &session, 0, b"bytes");
    commit(a, &session);
    ok(a.abandon(&session));
    assert_eq!(load(a, &path("file")), b"bytes");
}

pub fn resume_goes_on_with_the_unfinished_file(a: &dyn Connector, b: &dyn Connector) {
    store(a, &path("file"), b"the old one");
    let session = ok(a.begin(&path("file"), &REPLACE));
    put(a, &session, 0, b"first ");
    drop(session);
    let left = ok(b.unfinished(&path("file"))).map(|meta| meta.size);
    assert_eq!(left, Some(6));
    let session = ok(b.begin(&path("file"), &RESUME));
    let mut buffer = [0; 20];
    let writer = ok(b.join(&session));
    assert_eq!(ok(writer.read_back(0, &mut buffer)), 6);
    ok(writer.write_at(6, b"second"));
    ok(writer.finish());
    assert_eq!(load(a, &path("file")), b"the old one");
    commit(b, &session);
    assert_eq!(load(a, &path("file")), b"first second");
    assert!(ok(a.unfinished(&path("file"))).is_none());
}

pub fn resume_changes_a_finished_file_in_place(a: &dyn Connector, _: &dyn Connector) {
    if !a.capabilities().update_in_place {
        return;
    }
    store(a, &path("file"), b"finished once");
    let session = ok(a.begin(&path("file"), &RESUME));
    assert!(!session.rename);
    put(a, &session, 9, b"again, and longer");
    commit(a, &session);
    assert_eq!(load(a, &path("file")), b"finished again, and longer");
}

pub fn resume_without_anything_starts_anew(a: &dyn Connector, _: &dyn Connector) {
    let session = ok(a.begin(&path("file"), &RESUME));
    put(a, &session, 0, b"new");
    missing(a, &path("file"));
    commit(a, &session);
    assert_eq!(load(a, &path("file")), b"new");
}

pub fn update_keeps_the_bytes_outside(a: &dyn Connector, b: &dyn Connector) {
    if !a.capabilities().update_in_place {
        return;
    }
    store(a, &path("file"), b"0123456789");
    let session = ok(a.begin(&path("file"), &UPDATE));
    put(b, &session, 3, b"abc");
    commit(a, &session);
    commit(a, &session);
    assert_eq!(load(a, &path("file")), b"012abc6789");
    let session = ok(a.begin(&path("file"), &UPDATE));
    ok(a.abandon(&session));
    assert_eq!(load(a, &path("file")), b"012abc6789");
}

pub fn update_creates_what_is_missing(a: &dyn Connector, _: &dyn Connector) {
    if !a.capabilities().update_in_place {
        return;
    }
    let session = ok(a.begin(&path("file"), &UPDATE));
    put(a, &session, 2, b"ab");
    commit(a, &session);
    assert_eq!(load(a, &path("file")), b"\0\0ab");
}

pub fn the_end_of_a_file_is_given_to_one_writer(a: &dyn Connector, b: &dyn Connector) {
    if !a.capabilities().update_in_place {
        return;
    }
    let file = path("file");
    store(a, &file, b"012");
    let join = |storage: &dyn Connector| ok(storage.join(&ok(storage.begin(&file, &UPDATE))));
    let first = join(a);
    ok(first.claim_end());
    ok(first.claim_end());
    for storage in [a, b] {
        let second = join(storage);
        refused(second.claim_end(), FaultCode::StorageBusy);
        ok(second.write_at(0, b"x"));
    }
    refused(join(b).claim_end(), FaultCode::StorageBusy);
    drop(first);
    ok(join(b).claim_end());
    ok(join(a).claim_end());
    assert_eq!(load(a, &file), b"x12", "only the end is kept for one");
}

pub fn an_update_that_wrote_nothing_leaves_no_file_that_it_made(a: &dyn Connector, b: &dyn Connector) {
    if !a.capabilities().update_in_place {
        return;
    }
    let session = ok(a.begin(&path("file"), &UPDATE));
    let writer = ok(a.join(&session));
    ok(b.abandon(&session));
    assert!(names(a, &path("/")).is_empty());
    drop(writer);
    let session = ok(a.begin(&path("file"), &UPDATE));
    put(a, &session, 0, b"x");
    ok(a.abandon(&session));
    assert_eq!(load(a, &path("file")), b"x", "what was written stays");
    let empty = path("empty");
    store(a, &empty, b"");
    ok(a.abandon(&ok(a.begin(&empty, &UPDATE))));
    assert!(load(a, &empty).is_empty(), "it was there before");
}

pub fn a_late_writer_cannot_change_what_was_committed(a: &dyn Connector, _: &dyn Connector) {
    for intent in [CONTINUE, REPLACE] {
        let session = ok(a.begin(&path("file"), &intent));
        let early = ok(a.join(&session));
        // Others that go on with the same file share it.
        let session = if intent == CONTINUE { ok(a.begin(&path("file"), &intent)) } else { session };
        let late = ok(a.join(&session));
        ok(late.write_at(0, b"right"));
        commit(a, &session);
        for writer in [early, late] {
            refused(writer.write_at(0, b"wrong"), FaultCode::StorageBusy);
            refused(writer.extend_to(100), FaultCode::StorageBusy);
        }
        assert_eq!(load(a, &path("file")), b"right");
        let update = ok(a.begin(&path("file"), &UPDATE));
        put(a, &update, 0, b"w");
        commit(a, &update);
        assert_eq!(load(a, &path("file")), b"wight", "the finished file can be changed as any");
    }
}

pub fn replace_throws_leftovers_away(a: &dyn Connector, b: &dyn Connector) {
    let first = ok(a.begin(&path("file"), &REPLACE));
    put(a, &first, 0, b"a long leftover");
    let second = ok(b.begin(&path("file"), &REPLACE));
    put(b, &second, 0, b"new");
    assert_eq!(commit(b, &second).size, 3);
    assert_eq!(load(a, &path("file")), b"new");
    assert_eq!(names(a, &path("/")), [b"file"]);
}

pub fn a_writer_that_was_taken_over_cannot_commit(a: &dyn Connector, b: &dyn Connector) {
    let first = ok(a.begin(&path("file"), &REPLACE));
    let writer = ok(a.join(&first));
    ok(writer.write_at(0, b"first"));
    let second = ok(b.begin(&path("file"), &REPLACE));
    put(b, &second, 0, b"SECOND");
    ok(writer.write_at(0, b"more of the first"));
    let late = a.commit(&first, &[], &Attributes::default());
    refused(late, FaultCode::StorageBusy);
    missing(a, &path("file"));
    ok(a.abandon(&first));
    commit(b, &second);
    assert_eq!(load(a, &path("file")), b"SECOND");
    let later = a.commit(&first, &[], &Attributes::default());
    refused(later, FaultCode::NotFound);
    assert_eq!(load(a, &path("file")), b"SECOND");
}

pub fn an_update_of_a_file_replaced_meanwhile_cannot_commit(a: &dyn Connector, b: &dyn Connector) {
    if !a.capabilities().update_in_place {
        return;
    }
    store(a, &path("file"), b"old");
    let update = ok(a.begin(&path("file"), &UPDATE));
    put(a, &update, 0, b"lost");
    store(b, &path("file"), b"new");
    let late = a.commit(&update, &[], &Attributes::default());
    refused(late, FaultCode::StorageBusy);
    assert_eq!(load(a, &path("file")), b"new");
}

pub fn commit_cuts_and_extends_to_the_size_asked_for(a: &dyn Connector, _: &dyn Connector) {
    for (size, expected) in [(4, &b"0123"[..]), (12, b"0123456789\0\0"), (0, b"")] {
        let session = ok(a.begin(&path("file"), &REPLACE));
        put(a, &session, 0, b"0123456789");
        let meta = commit_as(a, &session, &with_size(size));
        assert_eq!(meta.size, size);
        assert_eq!(load(a, &path("file")), expected);
    }
}

pub fn sessions_survive_the_journey_to_another_host(a: &dyn Connector, b: &dyn Connector) {
    let session = ok(a.begin(&path("dir-less \u{1F426}"), &REPLACE));
    let copy = far_copy(&session);
    put(b, &copy, 0, b"from afar");
    commit(b, &copy);
    assert_eq!(load(a, &session.path), b"from afar");
    let durable = Attributes { durable: true, ..Attributes::default() };
    ok(a.commit(&session, &[], &durable));
}

/// A copy that shares nothing with the original.
fn far_copy(session: &WriteSession) -> WriteSession {
    WriteSession {
        path: path(session.path.as_bytes()),
        staging: path(session.staging.as_bytes()),
        rename: session.rename,
        token: session.token.to_vec(),
        size: session.size,
    }
}

pub fn foreign_sessions_are_refused(a: &dyn Connector, _: &dyn Connector) {
    store(a, &path("victim"), b"untouched");
    let good = ok(a.begin(&path("file"), &REPLACE));
    let mut no_token = good.clone();
    no_token.token.clear();
    let mut in_place = good.clone();
    in_place.rename = false;
    for bad in [&no_token, &in_place] {
        refused(a.join(bad), FaultCode::InvalidArgument);
        let result = a.commit(bad, &[], &Attributes::default());
        refused(result, FaultCode::InvalidArgument);
        refused(a.abandon(bad), FaultCode::InvalidArgument);
    }
    let mut elsewhere = good.clone();
    elsewhere.staging = path("victim");
    assert!(a.join(&elsewhere).is_err());
    assert!(a.commit(&elsewhere, &[], &Attributes::default()).is_err());
    ok(a.abandon(&elsewhere));
    assert_eq!(load(a, &path("victim")), b"untouched");
}
