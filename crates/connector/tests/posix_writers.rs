//! Several writers of one name on a real file system: hidden names, takeovers, commits.
#![allow(missing_docs, clippy::unwrap_used)]

mod posix_support;

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use posix_support::*;
use whimbrel_connector::posix::{Posix, PosixOptions};
use whimbrel_connector::{Attributes, Connector, Disposition, WriteSession};
use whimbrel_engine::journal::LONGEST;
use whimbrel_engine::{Fault, FaultCode};

#[test]
fn planted_hidden_files_are_not_trusted() {
    let lab = Lab::new();
    let hidden = lab.host(".file.whimbrel-part");
    let victim = lab.dir.path().join("outside/secret");
    let pipe = || {
        let mode = rustix::fs::Mode::from_raw_mode(0o666);
        rustix::fs::mkfifoat(rustix::fs::CWD, &hidden, mode).unwrap();
    };
    for disposition in [Disposition::Replace, Disposition::Resume, Disposition::Continue] {
        for plant in 0..5 {
            // Where somebody reads a pipe, it can be opened at once; where nobody does, that would wait for ever.
            let mut reader = None;
            match plant {
                0 => symlink(&victim, &hidden).unwrap(),
                1 => fs::hard_link(&victim, &hidden).unwrap(),
                2 => drop(std::os::unix::net::UnixListener::bind(&hidden).unwrap()),
                3 => pipe(),
                _ => {
                    pipe();
                    reader = Some(fs::File::options().read(true).write(true).open(&hidden).unwrap());
                }
            }
            let storage = lab.open(PosixOptions::default());
            let session = storage.begin(&path("file"), &intent(disposition)).unwrap();
            storage.join(&session).unwrap().write_at(0, b"data").unwrap();
            storage.commit(&session, &[], &Attributes::default()).unwrap();
            assert_eq!(lab.secret(), "secret");
            assert_eq!(fs::read(lab.host("file")).unwrap(), b"data");
            fs::remove_file(lab.host("file")).unwrap();
            drop(reader);
        }
    }
}

#[test]
fn a_file_that_another_user_has_planted_is_thrown_away_though_it_cannot_be_opened() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let lab = Lab::new();
    let hidden = lab.host(".file.whimbrel-part");
    for open in [lab.dir.path().to_path_buf(), lab.host("")] {
        fs::set_permissions(open, fs::Permissions::from_mode(0o777)).unwrap();
    }
    for disposition in [Disposition::Replace, Disposition::Resume, Disposition::Continue] {
        fs::write(&hidden, "planted").unwrap();
        fs::set_permissions(&hidden, fs::Permissions::from_mode(0o600)).unwrap();
        unprivileged(|| {
            let storage = lab.open(PosixOptions::default());
            let session = storage.begin(&path("file"), &intent(disposition)).unwrap();
            storage.join(&session).unwrap().write_at(0, b"mine").unwrap();
            storage.commit(&session, &[], &Attributes::default()).unwrap();
        });
        assert_eq!(fs::read(lab.host("file")).unwrap(), b"mine", "{disposition:?}");
        fs::remove_file(lab.host("file")).unwrap();
    }
}

#[test]
fn what_is_stored_in_a_directory_that_may_not_be_listed_is_made_durable_all_the_same() {
    let lab = Lab::new();
    fs::set_permissions(lab.dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    fs::create_dir(lab.host("incoming")).unwrap();
    fs::set_permissions(lab.host("incoming"), fs::Permissions::from_mode(0o333)).unwrap();
    unprivileged(|| {
        let storage = lab.open(PosixOptions::default());
        let durable = Attributes { durable: true, ..Attributes::default() };
        for (name, disposition) in [("incoming/whole", Disposition::Replace), ("incoming/parts", Disposition::Continue)]
        {
            let session = storage.begin(&path(name), &intent(disposition)).unwrap();
            storage.join(&session).unwrap().write_at(0, b"mine").unwrap();
            if disposition == Disposition::Continue {
                storage.journal(&session).unwrap().append(b"kept").unwrap();
            }
            storage.commit(&session, &[], &durable).unwrap();
        }
        storage.sync(&path("incoming")).unwrap();
    });
    fs::set_permissions(lab.host("incoming"), fs::Permissions::from_mode(0o755)).unwrap();
    let mut names: Vec<_> =
        fs::read_dir(lab.host("incoming")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["parts", "whole"], "nothing is left beside them");
}

#[test]
fn racing_writers_never_publish_a_mixed_or_short_file() {
    let lab = Lab::new();
    let storages = Arc::new([lab.both(), lab.both()].into_iter().flatten().collect::<Vec<_>>());
    thread::scope(|scope| {
        for (who, storage) in storages.iter().enumerate() {
            scope.spawn(move || {
                let data = vec![b'a' + who as u8; 20_000];
                for _ in 0..200 {
                    let attempt = store(storage, "file", &data);
                    let lost = |fault: &Fault| matches!(fault.code, FaultCode::StorageBusy | FaultCode::NotFound);
                    assert!(attempt.as_ref().err().is_none_or(lost), "{attempt:?}");
                }
            });
        }
        let file = lab.host("file");
        for _ in 0..2000 {
            if let Ok(seen) = fs::read(&file) {
                assert_eq!(seen.len(), 20_000);
                assert!(seen.iter().all(|&b| b == seen[0]));
            }
        }
    });
}

#[test]
fn a_session_outlives_the_process_that_began_it() {
    let lab = Lab::new();
    let session = begin(&lab.open(PosixOptions::default()), "file").unwrap();
    let wire = postcard::to_stdvec(&session).unwrap();
    let session: WriteSession = postcard::from_bytes(&wire).unwrap();
    let storage = lab.open(PosixOptions::default());
    let writer = storage.join(&session).unwrap();
    writer.write_at(0, b"bytes").unwrap();
    // The writer is gone before the commit, which has to open the file again.
    drop(writer);
    storage.commit(&session, &[], &Attributes::default()).unwrap();
    assert_eq!(fs::read(lab.host("file")).unwrap(), b"bytes");
}

fn continued(storage: &Posix) -> WriteSession {
    storage.begin(&path("file"), &intent(Disposition::Continue)).unwrap()
}

#[test]
fn a_late_writer_of_another_process_learns_that_the_file_is_committed() {
    let lab = Lab::new();
    let [here, there] = lab.both();
    let session = continued(&here);
    let (mine, late) = (here.join(&session).unwrap(), there.join(&session).unwrap());
    mine.write_at(0, b"right").unwrap();
    late.write_at(0, b"right").unwrap();
    drop(mine);
    here.commit(&session, &[], &Attributes::default()).unwrap();
    // It looks now and then; what it writes right after the commit it has proven, or nobody has.
    let deadline = Instant::now() + Duration::from_secs(20);
    let fault = loop {
        match late.write_at(0, b"right") {
            Err(fault) => break fault,
            Ok(()) => assert!(Instant::now() < deadline, "it never looks"),
        }
        thread::yield_now();
    };
    assert_eq!(fault.code, FaultCode::StorageBusy);
    assert_eq!(fs::read(lab.host("file")).unwrap(), b"right");
    assert!(late.write_at(0, b"wrong").is_err());
}

#[test]
fn journals_of_files_that_were_removed_by_hand_go_when_the_next_one_is_made() {
    let lab = Lab::new();
    for storage in lab.both() {
        let first = continued(&storage);
        storage.journal(&first).unwrap().append(b"proven").unwrap();
        fs::remove_file(lab.host(".file.whimbrel-part")).unwrap();
        // Of another file; its name begins alike.
        let other = storage.begin(&path("file.2"), &intent(Disposition::Continue)).unwrap();
        storage.journal(&other).unwrap().append(b"proven").unwrap();
        let second = continued(&storage);
        assert!(storage.journal(&second).unwrap().read().unwrap().is_empty());
        let journals = |name: &str| {
            let names = fs::read_dir(lab.host("")).unwrap().map(|entry| entry.unwrap().file_name());
            names.filter(|found| found.to_string_lossy().starts_with(&format!(".{name}.whimbrel-journal-"))).count()
        };
        assert_eq!((journals("file"), journals("file.2")), (0, 1));
        storage.journal(&second).unwrap().append(b"new").unwrap();
        assert_eq!(storage.begin(&path("file"), &intent(Disposition::Continue)).unwrap().token, second.token);
        assert_eq!(storage.journal(&second).unwrap().read().unwrap(), b"new", "that of the present file stays");
        storage.abandon(&second).unwrap();
        storage.abandon(&other).unwrap();
    }
}

#[test]
fn files_whose_names_begin_like_that_of_a_journal_are_left_alone() {
    let lab = Lab::new();
    let notes = lab.host(".file.whimbrel-journal-of-last-year");
    fs::write(&notes, "mine").unwrap();
    for storage in lab.both() {
        // What is unfinished of it begins so, too.
        let other = storage.begin(&path("file.whimbrel-journal-2"), &intent(Disposition::Continue)).unwrap();
        storage.journal(&other).unwrap().append(b"proven").unwrap();
        let session = continued(&storage);
        assert_eq!(fs::read(&notes).unwrap(), b"mine");
        assert_eq!(storage.journal(&other).unwrap().read().unwrap(), b"proven");
        storage.abandon(&session).unwrap();
        storage.abandon(&other).unwrap();
    }
}

#[test]
fn a_journal_that_is_longer_than_any_is_neither_read_nor_made() {
    let lab = Lab::new();
    for storage in lab.both() {
        let session = continued(&storage);
        let journal = storage.journal(&session).unwrap();
        journal.append(b"proven").unwrap();
        let mut names = fs::read_dir(lab.host("")).unwrap().map(|entry| entry.unwrap().path());
        let found = names.find(|name| name.to_string_lossy().contains("-journal-")).unwrap();
        let file = fs::File::options().write(true).open(found).unwrap();
        file.set_len(LONGEST).unwrap();
        assert_eq!(code(journal.append(b"x")), FaultCode::FileTooLarge);
        assert_eq!(journal.read().unwrap().len() as u64, LONGEST);
        file.set_len(LONGEST + 1).unwrap();
        assert_eq!(code(journal.read()), FaultCode::FileTooLarge);
        storage.abandon(&session).unwrap();
    }
}

#[test]
fn a_file_that_others_go_on_with_in_chunks_is_no_longer_its_first_writers() {
    let lab = Lab::new();
    let [one, other] = lab.both();
    let first = begin(&one, "file").unwrap();
    let writer = one.join(&first).unwrap();
    // Nothing has come yet: another client writes the same name in chunks, and finds the file that was begun.
    let chunks = continued(&other);
    other.journal(&chunks).unwrap().append(b"header").unwrap();
    assert_eq!(code(writer.write_at(0, b"mine")), FaultCode::StorageBusy);
    assert_eq!(code(one.commit(&first, &[], &Attributes::default())), FaultCode::StorageBusy);
    one.abandon(&first).unwrap();
    other.join(&chunks).unwrap().write_at(0, b"theirs").unwrap();
    other.commit(&chunks, &[], &Attributes::default()).unwrap();
    assert_eq!(fs::read(lab.host("file")).unwrap(), b"theirs");
    assert_eq!(fs::read_dir(lab.host("")).unwrap().count(), 1);
}
