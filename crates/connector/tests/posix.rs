//! What only a real file system can show: escapes, devices, pipes, permissions, hidden names.
#![allow(missing_docs, clippy::unwrap_used)]

mod posix_support;

use std::fs;
use std::io::{Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use posix_support::*;
use whimbrel_connector::posix::{Posix, PosixOptions};
use whimbrel_connector::{Attributes, Connector, Disposition, Follow, Kind, WriteIntent};
use whimbrel_engine::FaultCode;

#[test]
fn links_cannot_lead_outside_the_root() {
    let lab = Lab::new();
    let outside = lab.dir.path().join("outside");
    symlink(&outside, lab.host("absolute")).unwrap();
    symlink("../outside", lab.host("relative")).unwrap();
    symlink("../outside/secret", lab.host("file")).unwrap();
    symlink("../../../../../../../../etc", lab.host("up")).unwrap();
    symlink("/proc/self/root", lab.host("magic")).unwrap();
    for storage in lab.both() {
        for name in ["absolute/secret", "relative/secret", "file", "up/passwd", "magic/etc"] {
            assert_eq!(code(storage.open_read(&path(name), None)), FaultCode::NotFound, "{name}");
            assert_eq!(code(storage.stat(&path(name), Follow::Yes)), FaultCode::NotFound);
            assert_eq!(code(begin(&storage, name)), FaultCode::NotFound, "{name}");
            assert_eq!(code(storage.truncate(&path(name), 0)), FaultCode::NotFound);
        }
        for name in ["absolute", "relative", "up"] {
            assert_eq!(code(storage.list(&path(name))), FaultCode::NotFound);
            let below = path(format!("{name}/new"));
            assert_eq!(code(storage.make_dir(&below)), FaultCode::NotFound);
            assert_eq!(code(storage.symlink(b"x", &below)), FaultCode::NotFound);
            assert_eq!(code(storage.remove_file(&below)), FaultCode::NotFound);
            assert_eq!(code(storage.rename(&path("file"), &below, false)), FaultCode::NotFound);
        }
    }
    assert_eq!(lab.secret(), "secret");
    assert_eq!(fs::read_dir(outside).unwrap().count(), 1);
}

#[test]
fn magic_links_of_proc_are_refused_even_inside_a_served_proc() {
    for without_openat2 in [false, true] {
        let options = PosixOptions { without_openat2, ..PosixOptions::default() };
        let storage = Posix::open("/proc".as_ref(), options).unwrap();
        let inside = format!("{}/root/etc/passwd", std::process::id());
        assert!(storage.open_read(&path(&inside), None).is_err());
        let fd = format!("{}/exe", std::process::id());
        assert!(storage.open_read(&path(fd), None).is_err());
    }
}

#[test]
fn a_directory_swapped_with_a_link_never_leads_outside() {
    let lab = Lab::new();
    fs::create_dir(lab.host("dir")).unwrap();
    fs::write(lab.host("dir/secret"), "harmless").unwrap();
    symlink("../outside", lab.host("link")).unwrap();
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let (dir, link, spare) = (lab.host("dir"), lab.host("link"), lab.host("spare"));
            while !done.load(Ordering::Relaxed) {
                fs::rename(&dir, &spare).unwrap();
                fs::rename(&link, &dir).unwrap();
                fs::rename(&dir, &link).unwrap();
                fs::rename(&spare, &dir).unwrap();
            }
        });
        for storage in lab.both() {
            for round in 0..600 {
                if let Ok(reader) = storage.open_read(&path("dir/secret"), None) {
                    let mut buffer = [0; 8];
                    let count = reader.read_at(0, &mut buffer).unwrap();
                    assert_eq!(&buffer[..count], b"harmless");
                }
                let _ = store(&storage, &format!("dir/new{}", round % 3), b"x");
            }
        }
        done.store(true, Ordering::Relaxed);
    });
    let outside = fs::read_dir(lab.dir.path().join("outside")).unwrap();
    assert_eq!(outside.count(), 1);
    assert_eq!(lab.secret(), "secret");
}

#[test]
fn removing_a_tree_under_attack_spares_what_is_outside() {
    let lab = Lab::new();
    let storage = lab.open(PosixOptions::default());
    for _ in 0..30 {
        fs::create_dir_all(lab.host("tree/sub")).unwrap();
        (0..50).for_each(|i| fs::write(lab.host(&format!("tree/sub/{i}")), "x").unwrap());
        symlink("../../outside", lab.host("link")).unwrap();
        thread::scope(|scope| {
            scope.spawn(|| {
                let _ = fs::rename(lab.host("tree/sub"), lab.host("moved"));
                let _ = fs::rename(lab.host("link"), lab.host("tree/sub"));
            });
            let _ = storage.remove_tree(&path("tree"));
        });
        assert_eq!(lab.secret(), "secret");
        for left in ["tree", "moved"] {
            let _ = fs::remove_dir_all(lab.host(left));
        }
        let _ = fs::remove_file(lab.host("link"));
    }
}

#[test]
fn a_directory_of_many_directories_is_removed_whole() {
    let lab = Lab::new();
    for i in 0..700 {
        fs::create_dir_all(lab.host(&format!("tree/{i}/x"))).unwrap();
        fs::write(lab.host(&format!("tree/{i}/f")), "x").unwrap();
    }
    let storage = lab.open(PosixOptions::default());
    storage.remove_tree(&path("tree")).unwrap();
    assert!(!lab.host("tree").exists());
}

#[test]
fn device_nodes_are_opened_in_place() {
    let storage = Posix::open("/dev".as_ref(), PosixOptions::default()).unwrap();
    let before = fs::metadata("/dev/null").unwrap();
    let wanted = Attributes { mode: Some(0o600), size: Some(5), durable: true, ..Attributes::default() };
    for disposition in [Disposition::Replace, Disposition::Resume, Disposition::Update] {
        let session = storage.begin(&path("null"), &intent(disposition)).unwrap();
        assert!(!session.rename);
        let writer = storage.join(&session).unwrap();
        writer.write_at(1 << 40, b"anything").unwrap();
        writer.write_at(0, b"anything").unwrap();
        writer.sync().unwrap();
        let receipt = writer.finish().unwrap();
        storage.commit(&session, &[receipt], &wanted).unwrap();
        storage.abandon(&session).unwrap();
    }
    let after = fs::metadata("/dev/null").unwrap();
    assert_eq!((before.ino(), before.mode()), (after.ino(), after.mode()));
    assert!(!std::path::Path::new("/dev/.null.whimbrel-part").exists());
    let full = begin(&storage, "full").unwrap();
    let result = storage.join(&full).unwrap().write_at(0, b"x");
    assert_eq!(code(result), FaultCode::NoSpace);
}

#[test]
fn zeros_never_end() {
    let storage = Posix::open("/dev".as_ref(), PosixOptions::default()).unwrap();
    let reader = storage.open_read(&path("zero"), None).unwrap();
    let mut buffer = vec![7; 1 << 20];
    for offset in [0, 5 << 40] {
        buffer.fill(7);
        assert_eq!(reader.read_at(offset, &mut buffer).unwrap(), 1 << 20);
        assert!(buffer.iter().all(|&b| b == 0));
    }
    let meta = reader.meta().unwrap();
    assert_eq!((meta.kind, meta.size), (Kind::CharacterDevice, 0));
    assert!(reader.sendfile_source().is_none());
    assert!(reader.data_ranges().unwrap().is_empty());
}

fn make_pipe(lab: &Lab) {
    let mode = rustix::fs::Mode::from_raw_mode(0o600);
    rustix::fs::mkfifoat(rustix::fs::CWD, lab.host("pipe"), mode).unwrap();
}

#[test]
fn a_pipe_with_nobody_at_its_other_end_is_busy_and_does_not_block() {
    let lab = Lab::new();
    make_pipe(&lab);
    let storage = lab.open(PosixOptions::default());
    assert_eq!(code(begin(&storage, "pipe")), FaultCode::StorageBusy);
    let reader = storage.open_read(&path("pipe"), None).unwrap();
    assert_eq!(code(reader.read_at(0, &mut [0; 4])), FaultCode::StorageBusy);
    // One who writes nothing gives an empty file all the same.
    drop(fs::OpenOptions::new().write(true).open(lab.host("pipe")).unwrap());
    assert_eq!(reader.read_at(0, &mut [0; 4]).unwrap(), 0);
    assert_eq!(code(storage.truncate(&path("pipe"), 0)), FaultCode::InvalidArgument);
}

#[test]
fn pipes_pass_bytes_in_order() {
    let lab = Lab::new();
    make_pipe(&lab);
    let storage = lab.open(PosixOptions::default());
    let data: Vec<u8> = (0..300_000).map(|i| (i % 253) as u8).collect();
    let reader = storage.open_read(&path("pipe"), None).unwrap();
    let session = begin(&storage, "pipe").unwrap();
    assert!(!session.rename);
    let writer = storage.join(&session).unwrap();
    thread::scope(|scope| {
        scope.spawn(|| {
            writer.write_at(0, &data[..100_000]).unwrap();
            assert_eq!(code(writer.write_at(5, b"x")), FaultCode::InvalidArgument);
            writer.write_at(100_000, &data[100_000..]).unwrap();
        });
        let mut seen = vec![0; data.len()];
        assert_eq!(reader.read_at(0, &mut seen[..7]).unwrap(), 7);
        assert_eq!(code(reader.read_at(0, &mut [0; 4])), FaultCode::InvalidArgument);
        assert_eq!(reader.read_at(7, &mut seen[7..]).unwrap(), data.len() - 7);
        assert!(seen == data);
    });
    assert_eq!(code(writer.read_back(0, &mut [0; 4])), FaultCode::NotSupported);
    storage.commit(&session, &[], &Attributes::default()).unwrap();
    assert_eq!(storage.stat(&path("pipe"), Follow::No).unwrap().kind, Kind::Pipe);
}

#[test]
fn sockets_and_their_like_are_refused() {
    let lab = Lab::new();
    let _listener = std::os::unix::net::UnixListener::bind(lab.host("socket")).unwrap();
    for storage in lab.both() {
        assert!(storage.open_read(&path("socket"), None).is_err());
        assert!(begin(&storage, "socket").is_err());
        assert_eq!(storage.stat(&path("socket"), Follow::No).unwrap().kind, Kind::Other);
    }
}

#[test]
fn a_read_only_collection_refuses_every_change() {
    let lab = Lab::new();
    let writable = lab.open(PosixOptions::default());
    let session = begin(&writable, "new").unwrap();
    store(&writable, "file", b"bytes").unwrap();
    let storage = lab.open(PosixOptions { read_only: true, ..PosixOptions::default() });
    let file = path("file");
    let none = Attributes::default();
    let refused = [
        code(begin(&storage, "file")),
        code(storage.join(&session)),
        code(storage.commit(&session, &[], &none)),
        code(storage.abandon(&session)),
        code(storage.make_dir(&path("dir"))),
        code(storage.remove_dir(&file)),
        code(storage.remove_file(&file)),
        code(storage.remove_tree(&file)),
        code(storage.rename(&file, &path("other"), false)),
        code(storage.symlink(b"x", &path("link"))),
        code(storage.set_attributes(&file, &none, Follow::Yes)),
        code(storage.truncate(&file, 0)),
    ];
    assert!(refused.iter().all(|&code| code == FaultCode::ReadOnly), "{refused:?}");
    let meta = storage.stat(&file, Follow::No).unwrap();
    assert!(meta.access.read && !meta.access.write);
    storage.open_read(&file, None).unwrap();
}

#[test]
fn unfinished_files_are_listed_under_their_hidden_name() {
    let lab = Lab::new();
    let storage = lab.open(PosixOptions::default());
    let session = begin(&storage, "file").unwrap();
    let names: Vec<_> = storage.list(&path("/")).unwrap().map(|entry| entry.unwrap().name).collect();
    assert_eq!(names, [b".file.whimbrel-part"]);
    assert_eq!(session.staging, path(".file.whimbrel-part"));
}

#[test]
fn what_cannot_fit_is_refused_before_anything_is_created() {
    let lab = Lab::new();
    let storage = lab.open(PosixOptions::default());
    for disposition in [Disposition::Replace, Disposition::Resume, Disposition::Update] {
        let huge = WriteIntent { disposition, size: Some(1 << 60), length: None, mode: None };
        let fault = storage.begin(&path("file"), &huge).unwrap_err();
        assert_eq!(fault.code, FaultCode::NoSpace);
    }
    assert_eq!(fs::read_dir(lab.host("")).unwrap().count(), 0);
}

#[test]
fn sendfile_gets_the_descriptor_of_a_regular_file() {
    let lab = Lab::new();
    let storage = lab.open(PosixOptions::default());
    store(&storage, "file", b"0123456789").unwrap();
    let reader = storage.open_read(&path("file"), None).unwrap();
    let fd = reader.sendfile_source().unwrap();
    let mut file = fs::File::from(fd.try_clone_to_owned().unwrap());
    let mut text = String::new();
    file.read_to_string(&mut text).unwrap();
    assert_eq!(text, "0123456789");
}

#[test]
fn a_group_can_be_named_or_numbered() {
    let lab = Lab::new();
    let storage = lab.open(PosixOptions::default());
    store(&storage, "file", b"x").unwrap();
    let gid = fs::metadata(lab.host("file")).unwrap().gid();
    let (_, name) = storage.owner_names(0, gid);
    for group in [name, gid.to_string()] {
        let wanted = Attributes { group: Some(group), ..Attributes::default() };
        storage.set_attributes(&path("file"), &wanted, Follow::Yes).unwrap();
        let session = begin(&storage, "file").unwrap();
        storage.commit(&session, &[], &wanted).unwrap();
        assert_eq!(storage.stat(&path("file"), Follow::No).unwrap().gid, gid);
    }
    assert_eq!(storage.owner_names(0, 0).0, "root");
    assert_eq!(storage.owner_names(4_294_967_000, 0).0, "4294967000");
}

#[test]
fn names_on_disk_are_the_bytes_of_the_path() {
    let lab = Lab::new();
    let storage = lab.open(PosixOptions::default());
    let session = storage.begin(&path(b"\xc3\x28\xff"), &intent(Disposition::Replace)).unwrap();
    storage.commit(&session, &[], &Attributes::default()).unwrap();
    let names: Vec<_> = fs::read_dir(lab.host("")).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(names.len(), 1);
    assert_eq!(names[0].as_bytes(), b"\xc3\x28\xff");
}

#[test]
fn a_root_that_is_missing_or_a_file_cannot_be_served() {
    let lab = Lab::new();
    fs::write(lab.host("file"), "x").unwrap();
    let open = |name| Posix::open(&lab.host(name), PosixOptions::default());
    assert_eq!(code(open("missing")), FaultCode::NotFound);
    assert_eq!(code(open("file")), FaultCode::NotADirectory);
}

fn set_mode(at: std::path::PathBuf, mode: u32) {
    fs::set_permissions(at, fs::Permissions::from_mode(mode)).unwrap();
}

#[test]
fn missing_permissions_are_told_as_such() {
    let lab = Lab::new();
    let at = |name: &str| lab.host(name);
    set_mode(lab.dir.path().to_path_buf(), 0o755);
    fs::create_dir(at("open")).unwrap();
    set_mode(at("open"), 0o777);
    fs::create_dir(at("closed")).unwrap();
    fs::write(at("closed/file"), "x").unwrap();
    fs::write(at("secret"), "x").unwrap();
    fs::write(at("open/protected"), "x").unwrap();
    set_mode(at("secret"), 0o000);
    set_mode(at("open/protected"), 0o444);
    set_mode(at("closed"), 0o555);
    unprivileged(|| {
        for storage in lab.both() {
            let denied = FaultCode::PermissionDenied;
            assert_eq!(code(storage.open_read(&path("secret"), None)), denied);
            assert_eq!(code(begin(&storage, "closed/new")), denied);
            // Renaming over it would be possible.
            assert_eq!(code(begin(&storage, "open/protected")), denied);
            assert_eq!(code(storage.make_dir(&path("closed/dir"))), denied);
            assert_eq!(code(storage.remove_file(&path("closed/file"))), denied);
            assert_eq!(code(storage.truncate(&path("secret"), 0)), denied);
            let access = |name| storage.stat(&path(name), Follow::No).unwrap().access;
            assert!(!access("secret").read && !access("secret").write);
            assert!(access("open").write && !access("closed").write);
            store(&storage, "open/new", b"x").unwrap();
        }
    });
    set_mode(at("closed"), 0o755);
}

#[test]
fn remove_tree_goes_on_past_what_it_cannot_remove() {
    let lab = Lab::new();
    set_mode(lab.dir.path().to_path_buf(), 0o755);
    set_mode(lab.host(""), 0o777);
    unprivileged(|| {
        for dir in ["tree/a", "tree/closed/below", "tree/z", "tree/closed/empty"] {
            fs::create_dir_all(lab.host(dir)).unwrap();
        }
        for file in ["tree/a/f", "tree/closed/f", "tree/closed/below/f", "tree/z/f"] {
            fs::write(lab.host(file), "x").unwrap();
        }
        set_mode(lab.host("tree/closed"), 0o555);
        let storage = lab.open(PosixOptions::default());
        let fault = storage.remove_tree(&path("tree")).unwrap_err();
        assert_eq!(fault.code, FaultCode::PermissionDenied);
        assert!(fault.subject.starts_with("/tree/closed/"), "{fault}");
        let left = |dir: &str| fs::read_dir(lab.host(dir)).unwrap().count();
        assert_eq!((left("tree"), left("tree/closed/below")), (1, 0));
        set_mode(lab.host("tree/closed"), 0o755);
        storage.remove_tree(&path("tree")).unwrap();
    });
    assert!(!lab.host("tree").exists());
}

#[test]
fn a_write_only_file_can_be_updated() {
    let lab = Lab::new();
    let storage = lab.open(PosixOptions::default());
    fs::File::create(lab.host("file")).unwrap().write_all(b"0123").unwrap();
    fs::set_permissions(lab.host("file"), fs::Permissions::from_mode(0o200)).unwrap();
    let session = storage.begin(&path("file"), &intent(Disposition::Update)).unwrap();
    storage.join(&session).unwrap().write_at(1, b"X").unwrap();
    storage.commit(&session, &[], &Attributes::default()).unwrap();
    assert_eq!(fs::metadata(lab.host("file")).unwrap().mode() & 0o777, 0o200);
    fs::set_permissions(lab.host("file"), fs::Permissions::from_mode(0o600)).unwrap();
    assert_eq!(fs::read(lab.host("file")).unwrap(), b"0X23");
}
