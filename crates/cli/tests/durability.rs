//! The system calls of a server that make a copy durable, and their order, seen from outside (`strace`): of a whole
//! program, because what only a library notes of itself proves nothing about the kernel.

#![allow(clippy::unwrap_used, reason = "a test helper that fails ends its test")]

mod support;

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;

use support::control::Control;
use support::traced::{Call, Traced, calls};
use support::{Field, expect, pattern};

fn at(calls: &[Call], is: impl Fn(&Call) -> bool) -> Option<usize> {
    calls.iter().position(is)
}

fn last(calls: &[Call], wanted: &Call) -> Option<usize> {
    calls.iter().rposition(|call| call == wanted)
}

#[test]
fn each_step_of_a_file_in_chunks_is_durable_before_the_next_relies_on_it() {
    for options in [&["cp"][..], &["cp", "--preserve"]] {
        let field = Field::new();
        let Some(server) = Traced::start(&field, &[]) else { return };
        fs::write(field.path("source"), pattern(200_000)).unwrap();
        let (from, to) =
            (field.path("source").display().to_string(), format!("{}{}", server.url, field.path("to/copy").display()));
        let fixed = ["--chunk", "64K", "--concurrency", "1", "--parallelism", "1", &from, &to];
        expect(0, options.iter().chain(&fixed));
        let calls = server.calls(&field.path("to"));
        let data = ".copy.whimbrel-part".to_owned();
        let journal = calls.iter().find_map(|call| match call {
            Call::Write(name) if name.contains("-journal-") => Some(name.clone()),
            _ => None,
        });
        let journal = journal.unwrap_or_else(|| panic!("no journal: {calls:#?}"));
        let first_after = |at: usize, wanted: &[&Call]| calls[at + 1..].iter().find(|call| wanted.contains(call));
        let [to_data, to_journal] = [&data, &journal].map(|name| Call::Write(name.clone()));
        let written = (0..calls.len()).filter(|&at| calls[at] == to_journal);
        // That a chunk begins is said before its first byte, and need not be durable where nothing was proven.
        let (begun, noted): (Vec<usize>, Vec<usize>) = written
            .partition(|&at| first_after(at, &[&to_data, &to_journal, &Call::Sync(journal.clone())]) == Some(&to_data));
        assert!(noted.len() >= 3, "a header and two chunks at least: {calls:#?}");
        let about = |name: &String, from: usize| {
            calls[from..].iter().find(|call| [&Call::Write(name.clone()), &Call::Sync(name.clone())].contains(call))
        };
        for &note in &noted {
            assert_eq!(
                about(&journal, note + 1),
                Some(&Call::Sync(journal.clone())),
                "an append is synced: {calls:#?}"
            );
        }
        assert_eq!(begun.len() + 1, noted.len(), "a beginning and a proof of each chunk: {calls:#?}");
        // The header and both names, before there is anything that they speak of.
        let first_data = at(&calls, |call| *call == Call::Write(data.clone())).unwrap();
        let named = at(&calls, |call| *call == Call::Sync(".".to_owned())).expect("the directory is synced");
        assert!(noted[0] < named && named < first_data && begun[0] < first_data, "{calls:#?}");
        // What is called proven is durable: each chunk was synced before its leaves were noted.
        for (number, &note) in noted.iter().enumerate().skip(1) {
            let synced = calls[..note].iter().filter(|call| **call == Call::Sync(data.clone())).count();
            assert!(synced >= number, "note {number} after {synced} syncs: {calls:#?}");
            let chunks = begun.iter().filter(|&&begun| begun < note).count();
            assert!(chunks >= number, "note {number} of a chunk that was not begun: {calls:#?}");
        }
        let end = [
            Call::Sync(data.clone()),
            Call::Rename(data, "copy".to_owned()),
            Call::Sync(".".to_owned()),
            Call::Unlink(journal),
        ];
        assert_eq!(calls[calls.len() - end.len()..], end, "{options:?}");
    }
}

#[test]
fn a_server_that_was_told_to_syncs_whole_and_packed_files_before_it_names_them_and_then_their_names() {
    for names in [&["whole"][..], &["one", "two", "three"]] {
        let field = Field::new();
        let Some(server) = Traced::start(&field, &["--sync-writes"]) else { return };
        fs::create_dir(field.path("tree")).unwrap();
        for name in names {
            let bytes = if *name == "whole" { 300_000 } else { 5000 };
            fs::write(field.path("tree").join(name), pattern(bytes)).unwrap();
        }
        let (from, to) =
            (field.path("tree").display().to_string(), format!("{}{}/", server.url, field.path("to").display()));
        expect(0, ["cp", "-r", "--concurrency", "1", &from, &to]);
        let calls = server.calls(&field.path("to/tree"));
        for name in names {
            let is_named = |call: &Call| match call {
                Call::Rename(_, to) | Call::Link(_, to) => to == name,
                _ => false,
            };
            let named = at(&calls, is_named).unwrap_or_else(|| panic!("{name} is not named: {calls:#?}"));
            let (Call::Rename(before, _) | Call::Link(before, _)) = calls[named].clone() else { unreachable!() };
            let written = last(&calls, &Call::Write(before.clone()));
            let read_back = last(&calls, &Call::Read(before.clone()));
            let synced = at(&calls, |call| *call == Call::Sync(before.clone()));
            let durable = last(&calls, &Call::Sync(".".to_owned()));
            let order = [written, synced, read_back, Some(named), durable];
            assert!(order.iter().all(Option::is_some) && order.is_sorted(), "{name}: {order:?} of {calls:#?}");
        }
    }
}

#[test]
fn a_server_that_was_told_to_makes_a_renamed_file_and_its_name_durable() {
    for (options, durable) in [(&["--sync-writes"][..], true), (&[], false)] {
        let field = Field::new();
        let Some(server) = Traced::start(&field, options) else { return };
        let directory = field.path("to");
        fs::write(directory.join("old"), b"data").unwrap();
        let address = server.url.rsplit('/').next().unwrap().parse().unwrap();
        let mut control = Control::login(address);
        control.ask_for(350, &format!("RNFR {}", directory.join("old").display()));
        control.ask_for(250, &format!("RNTO {}", directory.join("new").display()));
        let [old, new, here] = ["old", "new", "."].map(str::to_owned);
        let renamed = Call::Rename(old.clone(), new);
        let expected = if durable { vec![Call::Sync(old), renamed, Call::Sync(here)] } else { vec![renamed] };
        assert_eq!(server.calls(&directory), expected);
    }
}

/// What is open stays open, whatever becomes of its mode: so nobody else may have been able to open it at any time.
#[test]
fn a_private_file_is_its_owners_alone_from_its_first_byte_on_and_named_with_its_mode() {
    let ways = [(300_000, &[][..]), (5000, &[]), (0, &[]), (200_000, &["--chunk", "64K", "--concurrency", "1"])];
    for ((bytes, options), mode) in ways.into_iter().flat_map(|way| [(way, 0o600), (way, 0o640)]) {
        let field = Field::new();
        let Some(server) = Traced::start(&field, &[]) else { return };
        fs::write(field.path("source"), pattern(bytes)).unwrap();
        fs::set_permissions(field.path("source"), fs::Permissions::from_mode(mode)).unwrap();
        let (from, to) =
            (field.path("source").display().to_string(), format!("{}{}", server.url, field.path("to/copy").display()));
        expect(0, ["cp", "--preserve"].iter().chain(options).chain(&[from.as_str(), to.as_str()]));
        assert_eq!(fs::metadata(field.path("to/copy")).unwrap().mode() & 0o7777, mode);
        let calls = server.calls(&field.path("to"));
        let made: Vec<&Call> = calls.iter().filter(|call| matches!(call, Call::Make(..))).collect();
        assert!(!made.is_empty(), "{calls:#?}");
        assert!(made.iter().all(|call| matches!(call, Call::Make(_, mode) if mode == "0600")), "{made:#?}");
        let is_named = |call: &Call| matches!(call, Call::Rename(..) | Call::Link(..));
        let named = at(&calls, is_named).unwrap_or_else(|| panic!("it is not named: {calls:#?}"));
        let changed: Vec<usize> = (0..calls.len()).filter(|&at| matches!(calls[at], Call::Mode(..))).collect();
        let other = mode != 0o600;
        assert_eq!(changed.len(), usize::from(other), "{bytes} bytes, {mode:o}: {calls:#?}");
        assert!(changed.iter().all(|&at| at < named), "the mode comes before the name: {calls:#?}");
        assert!(!calls.contains(&Call::ModeOfName), "{calls:#?}");
    }
}

#[test]
fn traces_are_read_with_calls_that_threads_interrupt() {
    let trace = "7 write(9</d/a>, \"\"..., 5) = 5\n7 fdatasync(9</d/a> <unfinished ...>\n8 fsync(5</d>) = 0\n\
                 7 <... fdatasync resumed>) = 0\n8 renameat(5</d>, \"a\", 5</d>, \"b\") = 0\n\
                 8 unlinkat(5</d>, \"c\", 0) = -1 ENOENT (No such file or directory)\n9 fsync(4</e>) = 0\n\
                 9 linkat(3</d/#7 (deleted)>, \"\", 5</d>, \"f\", AT_EMPTY_PATH) = 0\n\
                 9 openat(5</d>, \"g\", O_RDWR|O_CREAT|O_EXCL, 0600) = 6</d/g>\n9 openat(5</d>, \"g\", O_RDONLY) = 7</d/g>\n\
                 9 fchmod(6</d/g>, 0640) = 0\n9 fchmodat(AT_FDCWD</>, \"/proc/self/fd/6\", 0644) = 0\n";
    let [a, b, here] = ["a", "b", "."].map(str::to_owned);
    let link = Call::Link("#7 (deleted)".to_owned(), "f".to_owned());
    let made = [Call::Make("g".to_owned(), "0600".to_owned()), Call::Mode("g".to_owned(), "0640".to_owned())];
    let expected = [Call::Write(a.clone()), Call::Sync(here), Call::Sync(a.clone()), Call::Rename(a, b), link];
    let expected: Vec<Call> = expected.into_iter().chain(made).chain([Call::ModeOfName]).collect();
    assert_eq!(calls(trace, Path::new("/d")), expected);
}
