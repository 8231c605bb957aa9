//! Files that many writers continue, with a journal.

use std::thread;

use whimbrel_engine::FaultCode;

use super::help::*;
use crate::Connector;
use crate::session::{Attributes, WriteSession};

fn begun(storage: &dyn Connector) -> WriteSession {
    ok(storage.begin(&path("file"), &CONTINUE))
}

fn append(storage: &dyn Connector, session: &WriteSession, bytes: &[u8]) {
    ok(ok(storage.journal(session)).append(bytes));
}

fn journal(storage: &dyn Connector, session: &WriteSession) -> Vec<u8> {
    ok(ok(storage.journal(session)).read())
}

pub fn many_hosts_continue_one_file(a: &dyn Connector, b: &dyn Connector) {
    store(a, &path("file"), b"the old one");
    let first = begun(a);
    put(a, &first, 0, b"first ");
    let second = begun(b);
    assert_eq!((&second.token, &second.staging), (&first.token, &first.staging));
    put(b, &second, 6, b"second");
    let mut seen = [0; 20];
    assert_eq!(ok(ok(a.join(&first)).read_back(0, &mut seen)), 12);
    assert_eq!(load(a, &path("file")), b"the old one", "never the final name in place");
    commit(b, &first);
    assert_eq!(load(a, &path("file")), b"first second");
    assert_eq!(names(a, &path("/")), [b"file"]);
}

pub fn hosts_that_begin_to_continue_at_once_get_the_same_file(a: &dyn Connector, b: &dyn Connector) {
    for _ in 0..20 {
        let sessions = thread::scope(|scope| {
            let other = scope.spawn(|| begun(b));
            let mine = begun(a);
            [mine, other.join().expect("a case")]
        });
        assert_eq!(sessions[0].token, sessions[1].token);
        ok(a.abandon(&sessions[0]));
        assert!(names(a, &path("/")).is_empty());
    }
}

pub fn a_session_to_continue_is_its_path_and_its_token(a: &dyn Connector, b: &dyn Connector) {
    let session = begun(a);
    let target = ok(b.target(&path("file")));
    assert_eq!(target, session.path);
    let again = ok(WriteSession::of_unfinished(target, session.token.clone(), None));
    assert_eq!(again, session);
    put(b, &again, 0, b"bytes");
    ok(a.begin(&path("other"), &CONTINUE));
    let elsewhere = ok(WriteSession::of_unfinished(path("other"), session.token.clone(), None));
    refused(b.join(&elsewhere), FaultCode::StorageBusy);
    refused(b.journal(&elsewhere), FaultCode::StorageBusy);
    let nowhere = ok(WriteSession::of_unfinished(path("gone"), session.token, None));
    refused(b.join(&nowhere), FaultCode::NotFound);
    refused(b.journal(&nowhere), FaultCode::NotFound);
}

pub fn a_link_is_continued_where_it_leads(a: &dyn Connector, b: &dyn Connector) {
    if !a.capabilities().symlinks {
        return;
    }
    ok(a.make_dir(&path("dir")));
    ok(a.symlink(b"dir/real", &path("file")));
    let session = begun(a);
    assert_eq!((&session.path, ok(b.target(&path("file")))), (&path("dir/real"), path("dir/real")));
    append(b, &session, b"x");
    commit(b, &session);
    assert_eq!(names(a, &path("dir")), [b"real"]);
}

pub fn what_is_appended_to_a_journal_is_read_by_every_host(a: &dyn Connector, b: &dyn Connector) {
    let session = begun(a);
    let (mine, theirs) = (ok(a.journal(&session)), ok(b.journal(&session)));
    assert!(ok(mine.read()).is_empty() && ok(theirs.read()).is_empty());
    ok(mine.append(b"one "));
    ok(theirs.append(b"two "));
    ok(mine.append(b""));
    ok(mine.append(b"three"));
    for seen in [ok(mine.read()), ok(theirs.read()), journal(a, &session), journal(b, &begun(b))] {
        assert_eq!(seen, b"one two three");
    }
}

pub fn appends_of_many_writers_never_mix(a: &dyn Connector, b: &dyn Connector) {
    let session = begun(a);
    let journals = [a, b, a, b].map(|storage| ok(storage.journal(&session)));
    thread::scope(|scope| {
        for (writer, journal) in journals.iter().enumerate() {
            scope.spawn(move || (0..30).for_each(|n| ok(journal.append(&[writer as u8 * 30 + n; 300]))));
        }
    });
    let bytes = journal(b, &session);
    assert_eq!(bytes.len(), 4 * 30 * 300);
    let mut pieces: Vec<_> =
        bytes.chunks(300).inspect(|p| assert!(p.iter().all(|b| b == &p[0]))).map(|p| p[0]).collect();
    pieces.sort_unstable();
    assert_eq!(pieces, (0..120).collect::<Vec<_>>());
}

pub fn a_journal_is_cut_only_where_it_was_seen(a: &dyn Connector, b: &dyn Connector) {
    let session = begun(a);
    let journal = ok(a.journal(&session));
    assert!(ok(journal.cut(0, 0)), "there is none yet");
    ok(journal.append(b"sound torn"));
    let seen = ok(journal.read()).len() as u64;
    append(b, &session, b" more");
    assert!(!ok(journal.cut(seen, 5)));
    assert_eq!(ok(journal.read()), b"sound torn more");
    assert!(ok(journal.cut(15, 5)));
    append(b, &session, b" again");
    assert_eq!(ok(journal.read()), b"sound again");
    assert!(ok(journal.cut(11, 0)) && ok(journal.read()).is_empty());
}

pub fn what_is_noted_follows_what_was_seen(a: &dyn Connector, b: &dyn Connector) {
    let session = begun(a);
    let (mine, theirs) = (ok(a.journal(&session)), ok(b.journal(&session)));
    assert!(ok(mine.note(0, b"one ")));
    assert!(!ok(theirs.note(0, b"two ")), "it is not as it was seen");
    assert_eq!(ok(theirs.read()), b"one ");
    assert!(ok(theirs.note(4, b"two ")));
    append(a, &session, b"three");
    assert!(!ok(mine.note(8, b"four")));
    for (offset, rest) in [(0, &b"one two three"[..]), (8, b"three"), (13, b""), (99, b"")] {
        assert_eq!(ok(mine.read_from(offset)), rest);
        assert_eq!(ok(theirs.read_from(offset)), rest);
    }
    ok(theirs.sync());
    ok(b.abandon(&session));
    refused(mine.note(13, b"too late"), FaultCode::StorageBusy);
    refused(mine.sync(), FaultCode::StorageBusy);
    assert!(names(a, &path("/")).is_empty(), "nothing comes back");
}

pub fn a_journal_goes_with_its_file(a: &dyn Connector, b: &dyn Connector) {
    for end in ["commit", "abandon", "replace"] {
        let session = begun(a);
        let (mine, theirs) = (ok(a.journal(&session)), ok(b.journal(&session)));
        ok(mine.append(b"proven"));
        ok(theirs.append(b"proven"));
        assert_eq!(names(a, &path("/")).iter().filter(|name| *name != b"file").count(), 2);
        match end {
            "commit" => drop(commit(b, &session)),
            "abandon" => ok(b.abandon(&session)),
            _ => ok(b.abandon(&ok(b.begin(&path("file"), &REPLACE)))),
        }
        assert!(names(a, &path("/")).iter().all(|name| name == b"file"), "{end}");
        for journal in [mine, theirs] {
            refused(journal.append(b"too late"), FaultCode::StorageBusy);
        }
        assert!(names(a, &path("/")).iter().all(|name| name == b"file"), "{end}: nothing comes back");
        assert!(a.journal(&session).is_err());
        let next = begun(b);
        assert!(journal(a, &next).is_empty(), "{end}");
        ok(a.abandon(&next));
    }
}

pub fn a_new_file_never_has_the_journal_of_the_one_before(a: &dyn Connector, b: &dyn Connector) {
    let first = begun(a);
    append(a, &first, b"proven");
    // As somebody would by hand.
    ok(a.remove_file(&first.staging));
    let second = begun(b);
    assert_ne!(first.token, second.token);
    assert!(journal(b, &second).is_empty());
    for storage in [a, b] {
        refused(storage.journal(&first), FaultCode::StorageBusy);
        refused(storage.commit(&first, &[], &Attributes::default()), FaultCode::StorageBusy);
    }
    ok(a.abandon(&first));
    ok(a.abandon(&second));
    assert!(names(a, &path("/")).is_empty());
}

pub fn what_is_written_in_chunks_is_not_resumed_by_its_size(a: &dyn Connector, b: &dyn Connector) {
    let session = begun(a);
    append(a, &session, b"proven");
    put(a, &session, 1000, b"the last chunk came first");
    assert!(ok(b.unfinished(&path("file"))).is_none());
    refused(b.begin(&path("file"), &RESUME), FaultCode::StorageBusy);
    assert_eq!(journal(b, &session), b"proven");
    let anew = ok(b.begin(&path("file"), &REPLACE));
    refused(a.commit(&session, &[], &Attributes::default()), FaultCode::StorageBusy);
    commit(b, &anew);
    assert!(load(a, &path("file")).is_empty());
}

pub fn whatever_bears_a_hidden_name_is_told(a: &dyn Connector, b: &dyn Connector) {
    let told = || [a, b].map(|storage| ok(storage.has_unfinished(&path("file"))));
    assert_eq!(told(), [false, false]);
    for intent in [REPLACE, CONTINUE] {
        let session = ok(a.begin(&path("file"), &intent));
        if intent == CONTINUE {
            append(a, &session, b"proven");
        }
        assert_eq!(told(), [true, true], "{intent:?}");
        ok(a.abandon(&session));
        assert_eq!(told(), [false, false], "{intent:?}");
    }
    for nowhere in ["/", "gone/file"] {
        assert!(!ok(a.has_unfinished(&path(nowhere))));
    }
}

pub fn what_is_unfinished_is_neither_cut_nor_extended(a: &dyn Connector, b: &dyn Connector) {
    let session = begun(a);
    put(a, &session, 0, b"bytes");
    append(a, &session, b"proven");
    let hidden = names(a, &path("/"));
    assert_eq!(hidden.len(), 2);
    if a.capabilities().symlinks {
        for (number, name) in hidden.iter().enumerate() {
            ok(a.symlink(name, &path(format!("link{number}"))));
        }
    }
    for name in names(a, &path("/")) {
        for size in [0, 1 << 40] {
            refused(b.truncate(&path(&name), size), FaultCode::InvalidPath);
        }
    }
    assert_eq!(journal(b, &session), b"proven");
    commit(a, &session);
    assert_eq!(load(b, &path("file")), b"bytes");
}

pub fn only_files_to_continue_have_journals(a: &dyn Connector, _: &dyn Connector) {
    for intent in [REPLACE, UPDATE] {
        let session = ok(a.begin(&path("file"), &intent));
        refused(a.journal(&session), FaultCode::NotSupported);
        commit(a, &session);
    }
    let mut session = begun(a);
    session.token.pop();
    refused(a.journal(&session), FaultCode::InvalidArgument);
    refused(a.begin(&path("/"), &CONTINUE), FaultCode::IsADirectory);
    refused(a.begin(&path("gone/file"), &CONTINUE), FaultCode::NotFound);
}

pub fn reserving_changes_neither_size_nor_content(a: &dyn Connector, _: &dyn Connector) {
    let session = begun(a);
    let writer = ok(a.join(&session));
    ok(writer.write_at(0, b"0123456789"));
    for range in [0..4, 5..5, 8..100_000, 0..0] {
        ok(writer.reserve(range));
    }
    let mut seen = [0; 20];
    assert_eq!(ok(writer.read_back(0, &mut seen)), 10);
    assert_eq!(&seen[..10], b"0123456789");
    ok(writer.finish());
    drop(writer);
    assert_eq!(commit(a, &session).size, 10);
}

pub fn dropping_what_is_cached_makes_it_durable_and_keeps_it(a: &dyn Connector, _: &dyn Connector) {
    let session = begun(a);
    let writer = ok(a.join(&session));
    let data = pattern(100_000);
    ok(writer.write_at(0, &data));
    let from = ok(writer.drop_cached(10_000..60_000));
    assert_eq!(from, ok(writer.drop_cached(10_000..60_000)), "asked again, the answer is the same");
    assert!(ok(writer.durable()).covers(10_000..60_000));
    let mut seen = vec![0; 100_000];
    assert_eq!(ok(writer.read_back(0, &mut seen)), 100_000);
    assert_eq!(seen, data);
}
