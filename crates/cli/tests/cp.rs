//! `whimbrel cp` against the real server and ours, in every combination of ends.

mod support;

use std::os::unix::fs::MetadataExt as _;

use support::{Field, Server, expect, pattern};

/// Runs `test` for each ordered pair of server kinds.
fn between_servers(test: impl Fn(&Server, &Server)) {
    for source in Server::kinds() {
        for destination in Server::kinds() {
            let (Some(source), Some(destination)) = (source(), destination()) else { continue };
            test(&source, &destination);
        }
    }
}

#[test]
fn a_tree_goes_from_server_to_server() {
    between_servers(|source, destination| {
        let field = Field::new();
        expect(0, ["cp", "-r", &source.url(field.path("from")), &destination.url(field.path("to"))]);
        field.assert_copied("from");
    });
}

#[test]
fn a_tree_goes_up_and_comes_back() {
    for kind in Server::kinds() {
        let Some(server) = kind() else { continue };
        let field = Field::new();
        let from = field.path("from").to_string_lossy().into_owned();
        expect(0, ["cp", "-r", &from, &server.url(field.path("to/up"))]);
        field.assert_copied("up");
        let down = field.path("to/down").to_string_lossy().into_owned();
        expect(0, ["cp", "-r", &server.url(field.path("to/up")), &down]);
        field.assert_copied("down");
    }
}

#[test]
fn a_tree_is_copied_on_this_host() {
    let field = Field::new();
    let (from, to) = (field.path("from"), field.path("to/here"));
    expect(0, ["cp".as_ref(), "-r".as_ref(), from.as_os_str(), to.as_os_str()]);
    field.assert_copied("here");
}

#[test]
fn a_bound_on_the_rate_is_kept_whatever_the_servers_are() {
    const SIZE: usize = 24 << 20;
    for kind in Server::kinds() {
        let (Some(source), Some(destination)) = (kind(), kind()) else { continue };
        let field = Field::new();
        std::fs::write(field.path("from/large"), pattern(SIZE)).unwrap();
        let (from, to) = (source.url(field.path("from/large")), destination.url(field.path("to/large")));
        let run = expect(0, ["--json", "cp", "--max-rate", "8M", "--explain", &from, &to]);
        assert!(std::fs::read(field.path("to/large")).unwrap() == pattern(SIZE));
        let elapsed = support::event(&run, "summary")["elapsed"].as_f64().unwrap();
        // What may be begun while a second of it is owed, and a second's worth in one part.
        assert!(elapsed > (SIZE >> 20) as f64 / 8.0 - 2.0, "{elapsed} s");
        let told = run.stdout_text();
        assert!(told.contains("what 8.39 MB/s let pass in a second, or a leaf"), "{told}");
    }
    let run = expect(2, ["cp", "--max-rate", "0", "a", "b"]);
    assert!(run.stderr_text().contains("at least one byte a second"), "{}", run.stderr_text());
}

#[test]
fn several_channels_carry_one_file() {
    between_servers(|source, destination| {
        let field = Field::new();
        let run = expect(
            0,
            ["cp", "-p", "4", &source.url(field.path("from/deep/er/big")), &destination.url(field.path("to/"))],
        );
        assert!(run.stderr_text().contains("1 verified"), "{}", run.stderr_text());
        assert!(std::fs::read(field.path("to/big")).unwrap() == pattern(3_000_001));
    });
}

#[test]
fn several_sources_of_one_server_are_planned_from_its_distance() {
    between_servers(|source, destination| {
        let field = Field::new();
        let from = ["from/one", "from/deep/er/big"].map(|name| source.url(field.path(name)));
        let run = expect(0, ["cp", "--explain", &from[0], &from[1], &destination.url(field.path("to/"))]);
        let said = run.stdout_text() + &run.stderr_text();
        assert!(said.contains("channels: ") && !said.contains("distance unknown"), "{said}");
        assert_eq!(support::names(&field.path("to")), ["big", "one"]);
    });
}

#[test]
fn wildcards_are_matched_on_the_server() {
    for kind in Server::kinds() {
        let Some(server) = kind() else { continue };
        let field = Field::new();
        let (pattern, to) = (server.url(field.path("from/deep")) + "/f0[1-3]", server.url(field.path("to")));
        expect(0, ["cp", &pattern, &to]);
        assert_eq!(support::names(&field.path("to")), ["f01", "f02", "f03"]);
        expect(3, ["cp", &(server.url(field.path("from")) + "/no*such"), &to]);
    }
}

#[test]
fn a_range_lands_at_its_own_place() {
    between_servers(|source, destination| {
        let field = Field::new();
        let (from, to) = (source.url(field.path("from/deep/er/big")), destination.url(field.path("to/part")));
        expect(0, ["cp", "--offset", "1000000", "--length", "500000", &from, &to]);
        let (whole, part) = (pattern(3_000_001), std::fs::read(field.path("to/part")).unwrap());
        assert_eq!(part.len(), 1_500_000);
        assert!(part[1_000_000..] == whole[1_000_000..1_500_000]);
    });
}

#[test]
fn sync_levels_copy_only_what_they_see_as_different() {
    let Some(server) = Server::real() else { return };
    let field = Field::new();
    let (from, to) = (server.url(field.path("from")), server.url(field.path("to")));
    expect(0, ["cp", "-r", &from, &to]);
    let copied = field.path("to/from/one");
    // Same size, other content: only checksums see it.
    std::fs::write(&copied, b"2").unwrap();
    std::fs::set_permissions(&copied, std::os::unix::fs::PermissionsExt::from_mode(0o666)).unwrap();
    for level in ["exists", "size", "mtime"] {
        expect(0, ["cp", "-r", "--sync", level, &from, &to]);
        assert_eq!(std::fs::read(&copied).unwrap(), b"2", "{level}");
    }
    expect(0, ["cp", "-r", "--sync", "checksum", &from, &to]);
    assert_eq!(std::fs::read(&copied).unwrap(), b"1");
}

#[test]
fn a_dry_run_prints_the_plan_and_writes_nothing() {
    let server = Server::own();
    let field = Field::new();
    let run = expect(0, ["cp", "-r", "--dry-run", &server.url(field.path("from")), &server.url(field.path("to"))]);
    assert!(
        run.stdout_text().contains("44 files to copy") || run.stdout_text().contains("45 files to copy"),
        "{}",
        run.stdout_text()
    );
    assert!(support::names(&field.path("to")).is_empty());
}

#[test]
fn one_bad_file_does_not_stop_the_others_and_is_named_at_the_end() {
    between_servers(|source, destination| {
        use std::os::unix::fs::PermissionsExt as _;
        if runs_as_root() {
            let field = Field::new();
            for name in ["from/deep/f07", "from/deep/f20"] {
                std::fs::set_permissions(field.path(name), std::fs::Permissions::from_mode(0o000)).unwrap();
            }
            let run = expect(1, ["cp", "-r", &source.url(field.path("from")), &destination.url(field.path("to"))]);
            let text = run.stderr_text();
            assert!(text.contains("f07") && text.contains("f20") && text.contains("permission denied"), "{text}");
            for name in ["from/deep/f07", "from/deep/f20"] {
                std::fs::remove_file(field.path(name)).unwrap();
            }
            field.assert_copied("from");
        }
    });
}

#[test]
fn a_name_that_no_listing_can_tell_fails_its_directory_and_the_rest_is_copied() {
    for server in [None, Some(Server::own())] {
        let field = Field::new();
        let sub = field.path("from/sub");
        std::fs::create_dir_all(&sub).unwrap();
        for name in ["before", "ev\nil", "with"] {
            std::fs::write(sub.join(name), name).unwrap();
        }
        let from = field.path("from");
        let from = server.as_ref().map_or_else(|| from.to_string_lossy().into_owned(), |server| server.url(&from));
        let run = expect(1, ["cp", "-r", &from, &field.path("to/copy").to_string_lossy()]);
        let told = run.stderr_text();
        assert!(told.contains("from/sub") && told.contains("ev%0Ail"), "{told}");
        assert_eq!(support::names(&field.path("to/copy/sub")), ["before", "with"]);
    }
}

/// Root starts servers that act as somebody else, whom modes stop.
fn runs_as_root() -> bool {
    std::fs::metadata("/proc/self").is_ok_and(|metadata| metadata.uid() == 0)
}

#[test]
fn times_and_modes_are_preserved_when_asked() {
    use std::os::unix::fs::PermissionsExt as _;
    between_servers(|source, destination| {
        let field = Field::new();
        let file = field.path("from/one");
        let old = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000_000);
        std::fs::File::options().write(true).open(&file).unwrap().set_modified(old).unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o754)).unwrap();
        expect(0, ["cp", "--preserve", &source.url(&file), &destination.url(field.path("to/"))]);
        let copied = std::fs::metadata(field.path("to/one")).unwrap();
        assert_eq!((copied.mtime(), copied.mode() & 0o7777), (1_000_000_000, 0o754));
    });
}

#[test]
fn links_are_made_again_when_asked() {
    let server = Server::own();
    let field = Field::new();
    expect(0, ["cp", "-r", "--links", "copy", &server.url(field.path("from")), &server.url(field.path("to"))]);
    let words = |link: &str| std::fs::read_link(field.path(link)).unwrap();
    assert_eq!(words("to/from/link"), words("from/link"));
    assert_eq!(std::fs::read(field.path("to/from/link")).unwrap(), b"1");
}

#[test]
fn links_that_are_copied_are_not_written_through_by_what_comes_in_their_place() {
    let (server, field) = (Server::own(), Field::new());
    std::fs::create_dir(field.path("from/inner")).unwrap();
    std::fs::write(field.path("from/inner/secret"), "s").unwrap();
    std::fs::write(field.path("from/inner-file"), "s").unwrap();
    // As an earlier copy has left it, of a source where it was a link; nobody lists the destination.
    std::fs::create_dir_all(field.path("to/from")).unwrap();
    std::fs::create_dir(field.path("to/elsewhere")).unwrap();
    std::os::unix::fs::symlink("../elsewhere", field.path("to/from/inner")).unwrap();
    std::os::unix::fs::symlink("../elsewhere/x", field.path("to/from/inner-file")).unwrap();
    for directory in ["to/from", "to/elsewhere"] {
        std::fs::set_permissions(field.path(directory), std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
    }
    let (here, there) = (field.path("to").to_string_lossy().into_owned(), server.url(field.path("to")));
    for destination in [&there, &here] {
        let run = expect(1, ["cp", "-r", "--links", "copy", &server.url(field.path("from")), destination]);
        assert_eq!(run.stderr_text().matches("a symbolic link is there").count(), 2, "{}", run.stderr_text());
        assert!(support::names(&field.path("to/elsewhere")).is_empty(), "{destination}");
    }
    expect(0, ["cp", "-r", &server.url(field.path("from")), &here]);
    assert_eq!(support::names(&field.path("to/elsewhere")), ["secret", "x"], "unless links are followed");
}

#[test]
fn pairs_are_read_from_a_list_on_standard_input() {
    let server = Server::own();
    let field = Field::new();
    let list = format!(
        "# two files\n{} {}\n\"{}\" {}\n",
        server.url(field.path("from/one")),
        server.url(field.path("to/eins")),
        field.path("from/na me%20").display(),
        server.url(field.path("to/zwei")),
    );
    let run = support::whimbrel(["cp", "--list", "-"]).input(list).run().unwrap();
    assert_eq!(run.code(), Some(0), "{}", run.stderr_text());
    assert_eq!(std::fs::read(field.path("to/eins")).unwrap(), b"1");
    assert_eq!(std::fs::read(field.path("to/zwei")).unwrap(), b"spaces");
}

#[test]
fn an_interrupt_ends_a_dry_run_too() {
    use std::io::{BufRead as _, Write as _};
    use std::process::{Command, Stdio};
    let (server, field) = (Server::own(), Field::new());
    let mut command = Command::new(support::WHIMBREL);
    command.args(["--json", "cp", "--dry-run", "--list", "-"]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut list = child.stdin.take().unwrap();
    writeln!(list, "{} {}", server.url(field.path("from/one")), server.url(field.path("to/one"))).unwrap();
    let mut lines = std::io::BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(lines.next().unwrap().unwrap().contains("\"plan\""), "the list goes on");
    Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130));
    drop(list);
}

#[test]
fn a_line_of_a_list_that_makes_no_sense_is_a_failure_in_a_summary() {
    let (server, field) = (Server::own(), Field::new());
    let pair = |to: &str| format!("{} {}", server.url(field.path("from/one")), server.url(field.path(to)));
    let list = format!("{}\nonly-one\n{}\n", pair("to/before"), pair("to/behind"));
    let run = support::whimbrel(["--json", "cp", "--list", "-"]).input(list.clone()).run().unwrap();
    assert_eq!(run.code(), Some(1), "{}", run.stderr_text());
    let summary = support::events(&run).pop().unwrap();
    assert_eq!((&summary["event"], &summary["files"], &summary["failed"]), (&"summary".into(), &1.into(), &1.into()));
    let fault = &summary["failures"][0]["fault"];
    assert_eq!(fault["subject"], "-:2");
    assert!(fault["detail"].as_str().unwrap().contains("nothing behind line 2 was read"), "{fault}");
    assert!(field.path("to/before").exists() && !field.path("to/behind").exists());

    let run = support::whimbrel(["cp", "--list", "-"]).input(list).run().unwrap();
    assert!(run.stderr_text().contains("1 files") && run.stderr_text().contains("-:2"), "{}", run.stderr_text());
    let missing = expect(2, ["cp", "--list", &field.path("none").display().to_string()]);
    assert!(missing.stderr_text().contains("--list"), "{}", missing.stderr_text());
}

#[test]
fn devices_are_read_and_written_in_place() {
    between_servers(|source, destination| {
        let run = expect(0, ["cp", "--length", "10M", &source.url("/dev/zero"), &destination.url("/dev/null")]);
        assert!(run.stderr_text().contains("1 not verified"), "{}", run.stderr_text());
        assert_eq!(run.stderr_text().matches("a device cannot be read back").count(), 1, "{}", run.stderr_text());
        expect(
            5,
            ["cp", "--length", "10M", "--verify", "require", &source.url("/dev/zero"), &destination.url("/dev/null")],
        );
    });
}

#[test]
fn a_server_that_cannot_connect_back_is_asked_for_passive_streams() {
    let Some(server) = Server::real() else { return };
    let field = Field::new();
    let down = field.path("to/down").to_string_lossy().into_owned();
    // Nothing listens at the announced address, as behind address translation.
    let copy = support::whimbrel(["cp", "-r", &server.url(field.path("from")), &down]);
    let run = copy.env("GLOBUS_FTP_CLIENT_DATA_IP", "127.0.0.9").run().expect("the program runs");
    assert_eq!(run.code(), Some(0), "{}", run.stderr_text());
    assert!(run.stderr_text().contains("passive stream mode"), "{}", run.stderr_text());
    field.assert_copied("down");
}
