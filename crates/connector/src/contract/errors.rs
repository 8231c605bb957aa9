//! The right code for every mistake.

use whimbrel_engine::FaultCode;

use super::help::*;
use crate::{Connector, Follow};

pub fn what_is_missing_is_not_found(a: &dyn Connector, _: &dyn Connector) {
    let code = FaultCode::NotFound;
    for name in ["missing", "no/such/dir/file"] {
        let name = path(name);
        refused(a.stat(&name, Follow::Yes), code);
        refused(a.stat(&name, Follow::No), code);
        refused(a.list(&name), code);
        refused(a.open_read(&name, None), code);
        refused(a.remove_file(&name), code);
        refused(a.remove_dir(&name), code);
        refused(a.remove_tree(&name), code);
        refused(a.rename(&name, &path("new"), false), code);
        refused(a.truncate(&name, 0), code);
        refused(a.set_attributes(&name, &Default::default(), Follow::Yes), code);
        assert!(ok(a.unfinished(&name)).is_none());
    }
    for intent in [REPLACE, RESUME, UPDATE] {
        refused(a.begin(&path("no/such/dir/file"), &intent), code);
    }
    refused(a.make_dir(&path("no/dir")), code);
    if a.capabilities().symlinks {
        refused(a.symlink(b"x", &path("no/link")), code);
    }
    store(a, &path("file"), b"bytes");
    refused(a.rename(&path("file"), &path("no/file"), false), code);
    assert_eq!(load(a, &path("file")), b"bytes");
}

pub fn what_exists_is_not_created_again(a: &dyn Connector, _: &dyn Connector) {
    let code = FaultCode::AlreadyExists;
    store(a, &path("file"), b"bytes");
    ok(a.make_dir(&path("dir")));
    for name in ["file", "dir", "/"] {
        refused(a.make_dir(&path(name)), code);
        if a.capabilities().symlinks {
            refused(a.symlink(b"x", &path(name)), code);
        }
    }
    assert_eq!(load(a, &path("file")), b"bytes");
}

pub fn directories_are_no_files(a: &dyn Connector, _: &dyn Connector) {
    let code = FaultCode::IsADirectory;
    ok(a.make_dir(&path("dir")));
    store(a, &path("file"), b"bytes");
    for name in ["dir", "/"] {
        refused(a.open_read(&path(name), None), code);
        for intent in [REPLACE, RESUME, UPDATE] {
            refused(a.begin(&path(name), &intent), code);
        }
        refused(a.remove_file(&path(name)), code);
        refused(a.truncate(&path(name), 0), code);
    }
    refused(a.rename(&path("file"), &path("dir"), false), code);
    let session = ok(a.begin(&path("late"), &REPLACE));
    ok(a.make_dir(&path("late")));
    refused(a.commit(&session, &[], &Default::default()), code);
    ok(a.abandon(&session));
}

pub fn files_are_no_directories(a: &dyn Connector, _: &dyn Connector) {
    let code = FaultCode::NotADirectory;
    store(a, &path("file"), b"bytes");
    ok(a.make_dir(&path("dir")));
    refused(a.list(&path("file")), code);
    refused(a.remove_dir(&path("file")), code);
    refused(a.remove_tree(&path("file")), code);
    refused(a.rename(&path("dir"), &path("file"), false), code);
    refused(a.stat(&path("file/x"), Follow::Yes), code);
    refused(a.stat(&path("file/x/y"), Follow::No), code);
    refused(a.open_read(&path("file/x"), None), code);
    refused(a.begin(&path("file/x"), &REPLACE), code);
    refused(a.make_dir(&path("file/x")), code);
    refused(a.remove_file(&path("file/x")), code);
    assert_eq!(load(a, &path("file")), b"bytes");
}

pub fn full_directories_stay(a: &dyn Connector, _: &dyn Connector) {
    ok(a.make_dir(&path("dir")));
    store(a, &path("dir/file"), b"bytes");
    refused(a.remove_dir(&path("dir")), FaultCode::DirectoryNotEmpty);
    assert_eq!(load(a, &path("dir/file")), b"bytes");
}

pub fn the_root_stays(a: &dyn Connector, _: &dyn Connector) {
    let code = FaultCode::InvalidPath;
    ok(a.make_dir(&path("dir")));
    refused(a.remove_dir(&path("/")), code);
    refused(a.remove_tree(&path("/")), code);
    refused(a.rename(&path("/"), &path("dir/x"), false), code);
    refused(a.rename(&path("dir"), &path("/"), false), code);
    assert_eq!(names(a, &path("/")), [b"dir"]);
}

pub fn who_may_not_replace_gets_free_names_only(a: &dyn Connector, b: &dyn Connector) {
    let Some(fresh) = a.without_replacing() else { return };
    let (fresh, code) = (fresh.as_ref(), FaultCode::AlreadyExists);
    store(fresh, &path("file"), b"bytes");
    for intent in [REPLACE, RESUME, UPDATE] {
        refused(fresh.begin(&path("file"), &intent), code);
    }
    refused(fresh.put(&path("file"), b"other", &Default::default(), None), code);
    store(b, &path("other"), b"other");
    refused(fresh.rename(&path("other"), &path("file"), false), code);
    // Taken while it was written.
    let session = ok(fresh.begin(&path("late"), &REPLACE));
    let writer = ok(fresh.join(&session));
    ok(writer.write_at(0, b"mine"));
    let receipt = ok(writer.finish());
    ok(b.rename(&path("other"), &path("late"), false));
    refused(fresh.commit(&session, &[receipt], &Default::default()), code);
    assert_eq!((load(b, &path("file")), load(b, &path("late"))), (b"bytes".to_vec(), b"other".to_vec()));
    // The others may as before.
    store(a, &path("file"), b"new");
}

pub fn offsets_beyond_the_largest_file_are_refused(a: &dyn Connector, _: &dyn Connector) {
    let session = ok(a.begin(&path("file"), &REPLACE));
    let writer = ok(a.join(&session));
    for offset in [i64::MAX as u64 - 2, i64::MAX as u64, u64::MAX - 2, u64::MAX] {
        refused(writer.write_at(offset, b"bytes"), FaultCode::FileTooLarge);
    }
    assert!(ok(writer.finish()).written.is_empty());
    assert_eq!(commit(a, &session).size, 0);
}
