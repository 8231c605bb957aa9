//! The small commands, exit codes and JSON.

mod support;

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::thread;

use support::dtn::Dtn;
use support::{Field, Server, expect, whimbrel};
use whimbrel_testkit::peers::public_dir;

#[test]
fn directories_are_listed_described_made_renamed_and_removed() {
    for kind in Server::kinds() {
        let Some(server) = kind() else { continue };
        let field = Field::new();
        let run = expect(0, ["ls", &server.url(field.path("from"))]);
        assert_eq!(run.stdout_text().lines().collect::<Vec<_>>(), ["deep", "empty", "link", "na me%20", "one", "zero"]);
        assert!(expect(0, ["stat", &server.url(field.path("from/one"))]).stdout_text().contains("size      1\n"));
        expect(0, ["mkdir", "-p", &server.url(field.path("to/a/b"))]);
        expect(4, ["mkdir", &server.url(field.path("to/a"))]);
        expect(0, ["mv", &server.url(field.path("to/a/b")), &server.url(field.path("to/c"))]);
        assert_eq!(support::names(&field.path("to")), ["a", "c"]);
        expect(3, ["rm", &server.url(field.path("to/a"))]);
        expect(0, ["rm", "-r", &server.url(field.path("to/a")), &server.url(field.path("to/c"))]);
        assert!(support::names(&field.path("to")).is_empty());
        expect(3, ["rm", &server.url(field.path("to/a"))]);
        expect(0, ["rm", "-f", &server.url(field.path("to/a"))]);
    }
}

#[test]
fn what_cannot_be_removed_keeps_nothing_else_from_being_removed() {
    for kind in Server::kinds() {
        let Some(server) = kind() else { continue };
        let field = Field::new();
        std::fs::create_dir(field.path("to/b")).unwrap();
        for name in ["to/a", "to/c"] {
            std::fs::write(field.path(name), "x").unwrap();
        }
        let run = expect(1, ["rm", &server.url(field.path("to/*"))]);
        assert!(run.stderr_text().contains("to/b: is a directory"), "{}", run.stderr_text());
        assert_eq!(support::names(&field.path("to")), ["b"], "directories are removed with -r only");
    }
}

#[test]
fn what_is_everything_is_not_removed() {
    let directory = public_dir().unwrap();
    let kept = directory.path().join("kept");
    std::fs::create_dir(&kept).unwrap();
    std::fs::set_permissions(directory.path(), std::fs::Permissions::from_mode(0o777)).unwrap();
    let server = Dtn::builder().anonymous().root(directory.path()).start();
    // As when a variable of a script is empty.
    for place in ["", "/", "/kept/.", "/kept/.."] {
        let run = expect(1, ["rm", "-r", &format!("ftp://{}{place}", server.addr())]);
        assert!(run.stderr_text().contains("name what is in it"), "{place}: {}", run.stderr_text());
        assert!(kept.exists(), "{place}");
    }
}

#[test]
fn a_file_is_not_stored_under_a_name_that_only_a_directory_can_have() {
    for kind in Server::kinds() {
        let Some(server) = kind() else { continue };
        let field = Field::new();
        for options in [&["cp"][..], &["cp", "-r"]] {
            let ends = [server.url(field.path("from/one")), server.url(field.path("to/missing/"))];
            let run = whimbrel(options.iter().copied().chain(ends.iter().map(String::as_str))).run().unwrap();
            assert!(!run.success(), "{options:?}");
            assert!(support::names(&field.path("to")).is_empty(), "{options:?}");
        }
        let ends = [server.url(field.path("from/deep")), server.url(field.path("to/made/"))];
        expect(0, ["cp", "-r"].into_iter().chain(ends.iter().map(String::as_str)));
        assert_eq!(support::names(&field.path("to")), ["made"]);
    }
}

#[test]
fn checksums_are_those_of_the_files() {
    for kind in Server::kinds() {
        let Some(server) = kind() else { continue };
        let field = Field::new();
        let run = expect(0, ["cksum", &server.url(field.path("from/one"))]);
        assert!(run.stdout_text().starts_with("c4ca4238a0b923820dcc509a6f75849b  "), "{}", run.stdout_text());
        let run = expect(0, ["cksum", "-a", "sha-256", &server.url(field.path("from/zero"))]);
        assert!(run.stdout_text().starts_with("e3b0c44298fc1c149afbf4c8996fb924"), "{}", run.stdout_text());
    }
}

#[test]
fn an_algorithm_that_nobody_has_is_a_wrong_command_that_names_those_there_are() {
    for kind in Server::kinds() {
        let Some(server) = kind() else { continue };
        let field = Field::new();
        let (one, to) = (server.url(field.path("from/one")), server.url(field.path("to/")));
        let local = field.path("from/one").display().to_string();
        for command in [
            &["cp", "--checksum", "sha265", &one, &to][..],
            &["cksum", "-a", "sha265", &one],
            &["cksum", "-a", "sha265", &local],
        ] {
            let refusal = expect(2, command.iter()).stderr_text();
            assert!(refusal.contains("sha265") && refusal.contains("sha256, "), "{command:?}: {refusal}");
        }
        assert!(support::names(&field.path("to")).is_empty());
    }
}

#[test]
fn check_tells_that_both_directions_work() {
    for kind in Server::kinds() {
        let Some(server) = kind() else { continue };
        let run = expect(0, ["check", &server.url("/")]);
        assert_eq!(run.stdout_text().matches("ok   data connection").count(), 2, "{}", run.stdout_text());
    }
}

#[test]
fn a_port_behind_the_host_is_told_how_to_be_written() {
    // Nothing listens at the port of GridFTP on an address of this host alone.
    let refusal = expect(5, ["ls", "127.1.2.3:2812/data"]).stderr_text();
    assert!(refusal.contains("for a port write ftp://127.1.2.3:2812/data"), "{refusal}");
    let copy = expect(5, ["cp", "127.1.2.3:2812/data/x", "/dev/null"]).stderr_text();
    assert!(copy.contains("for a port write ftp://127.1.2.3:2812/data/x"), "{copy}");
    let plain = expect(5, ["ls", "127.1.2.3:/2812/data"]).stderr_text();
    assert!(!plain.contains("hint:"), "{plain}");
}

#[test]
fn check_says_that_a_path_is_not_there_and_waits_for_nothing() {
    for kind in Server::kinds() {
        let Some(server) = kind() else { continue };
        let field = Field::new();
        let run = expect(3, ["check", "--wait", "3600", &server.url(field.path("none"))]);
        assert!(run.stdout_text().contains("FAIL path: there is nothing at"), "{}", run.stdout_text());
        assert!(!run.stdout_text().contains("data connection to the server"), "{}", run.stdout_text());
        let run = expect(0, ["check", &server.url(field.path("from/one"))]);
        assert_eq!(run.stdout_text().matches("ok   data connection").count(), 2, "{}", run.stdout_text());
    }
}

#[test]
fn check_tells_of_missing_tls_in_terms_of_urls() {
    let settings = tempfile::tempdir().unwrap();
    let server = Server::own();
    let check = |scheme: &str| {
        let url = server.url("/").replacen("ftp://", scheme, 1);
        let run = whimbrel(["check", &url]).env("XDG_CONFIG_HOME", settings.path()).run().unwrap();
        assert_eq!(run.code(), Some(5), "{}{}", run.stdout_text(), run.stderr_text());
        run.stdout_text()
    };
    let anonymous = check("whimbrel://");
    assert!(anonymous.contains("FAIL protection: none") && anonymous.contains("no TLS here"), "{anonymous}");
    let with_password = check("whimbrel://anna:secret@");
    assert!(with_password.contains("FAIL connect: ") && with_password.contains("no TLS here"), "{with_password}");
    let implicit = check("ftps://");
    assert!(implicit.contains("FAIL connect: ") && implicit.contains("does not begin with TLS"), "{implicit}");
}

#[test]
fn no_password_is_shown_to_a_server_that_takes_none_in_clear_and_the_cure_is_named() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let heard = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.write_all(b"220 Whimbrel\r\n").unwrap();
        let (mut reader, mut said) = (BufReader::new(stream.try_clone().unwrap()), String::new());
        reader.read_line(&mut said).unwrap();
        stream.write_all(b"530 Passwords are not taken over a connection in clear: send AUTH TLS first.\r\n").unwrap();
        reader.read_to_string(&mut said).unwrap();
        said
    });
    let refusal = expect(6, ["stat", &format!("ftp://anna:secret@{address}/")]).stderr_text();
    assert!(refusal.contains(&format!("whimbrel://anna@{address}/")), "{refusal}");
    assert!(!refusal.contains("wrong user name"), "{refusal}");
    assert_eq!(heard.join().unwrap(), "USER anna\r\n");
}

#[test]
fn exit_codes_say_who_is_to_blame() {
    let server = Server::own();
    let field = Field::new();
    let (one, to) = (server.url(field.path("from/one")), server.url(field.path("to/")));
    expect(2, ["cp", "only-one"]);
    expect(2, ["no-such-command"]);
    expect(3, ["cp", &server.url(field.path("from/none")), &to]);
    expect(3, ["ls", &server.url(field.path("none"))]);
    expect(4, ["cp", &one, &server.url(field.path("none/x"))]);
    expect(5, ["ls", "ftp://127.0.0.1:1/"]);
    expect(5, ["check", "ftp://127.0.0.1:1/"]);
    let with_login = one.replacen("ftp://", "ftp://nobody-here:wrong@", 1);
    expect(6, ["stat", &with_login]);
    expect(3, ["cp", &server.url(field.path("from")), &to]);
    let help = expect(0, ["cp", "--help"]).stdout_text();
    for code in ["0    ", "1    ", "2    ", "3    ", "4    ", "5    ", "6    ", "130  "] {
        assert!(help.contains(&format!("\n  {code}")), "{code} in\n{help}");
    }
}

#[test]
fn a_name_of_the_users_own_stands_for_all_servers_of_an_endpoint() {
    let (first, second, field) = (Server::own(), Server::own(), Field::new());
    let settings = tempfile::tempdir().unwrap();
    let file = settings.path().join("whimbrel/endpoints.toml");
    std::fs::create_dir(file.parent().unwrap()).unwrap();
    let host = |server: &Server| server.url("/").trim_start_matches("ftp://").trim_end_matches('/').to_owned();
    let lab = format!("ftp://{},{}{}", host(&first), host(&second), field.path("").display());
    std::fs::write(&file, format!("lab = {lab:?}\n")).unwrap();
    let run = |code, arguments: &[&str]| {
        let run = whimbrel(arguments).env("XDG_CONFIG_HOME", settings.path()).run().unwrap();
        assert_eq!(run.code(), Some(code), "{arguments:?}: {} {}", run.stdout_text(), run.stderr_text());
        run
    };
    run(0, &["cp", "-r", "lab:from", "lab:to/"]);
    field.assert_copied("from");
    assert!(run(0, &["ls", "lab:to"]).stdout_text().contains("from"));
    let connected = run(0, &["-vvv", "cp", "--concurrency", "2", "-r", "lab:from", "lab:again"]);
    for server in [&first, &second] {
        assert!(connected.stderr_text().contains(&host(server)), "{}", connected.stderr_text());
    }

    std::fs::write(&file, "lab = 7\n").unwrap();
    let refusal = run(2, &["ls", "lab:to"]);
    assert!(refusal.stderr_text().contains(&*file.to_string_lossy()), "{}", refusal.stderr_text());
    run(0, &["ls", &first.url(field.path("to"))]);
}

#[test]
fn json_is_one_object_a_line_with_its_time() {
    let server = Server::own();
    let field = Field::new();
    let run = expect(0, ["--json", "cp", "-r", &server.url(field.path("from")), &server.url(field.path("to"))]);
    let events: Vec<serde_json::Value> =
        run.stdout_text().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(events.iter().all(|event| event["time"].is_f64() && event["event"].is_string()));
    let summary = events.last().unwrap();
    assert_eq!(summary["event"], "summary");
    assert_eq!((summary["failed"].as_u64(), summary["exit_code"].as_u64()), (Some(0), Some(0)));
    let done = events.iter().filter(|event| event["event"] == "item_done" && event["outcome"] == "copied").count();
    assert_eq!(Some(done as u64), summary["files"].as_u64());
    for arguments in [["ls", "--json"], ["stat", "--json"], ["check", "--json"]] {
        let run = expect(0, arguments.into_iter().chain([server.url(field.path("from")).as_str()]));
        assert!(!run.stdout_text().is_empty());
        run.stdout_text().lines().for_each(|line| drop(serde_json::from_str::<serde_json::Value>(line).unwrap()));
    }
    let failed = expect(5, ["--json", "ls", "ftp://127.0.0.1:1/"]);
    let fault: serde_json::Value = serde_json::from_str(failed.stdout_text().trim()).unwrap();
    assert_eq!(fault["fault"]["code"], "ConnectionRefused");
}

#[test]
fn names_that_are_no_text_survive() {
    use std::os::unix::ffi::OsStrExt as _;
    let server = Server::own();
    let field = Field::new();
    let name = std::ffi::OsStr::from_bytes(b"caf\xe9 \xff");
    let local = field.path("from").join(name);
    std::fs::write(&local, b"bytes").unwrap();
    let to = server.url(field.path("to/"));
    expect(0, ["cp".as_ref(), local.as_os_str(), to.as_ref()]);
    assert_eq!(std::fs::read(field.path("to").join(name)).unwrap(), b"bytes");
}

#[test]
fn completions_and_manual_pages_come_from_the_definitions() {
    for shell in ["bash", "zsh", "fish"] {
        assert!(expect(0, ["completions", shell]).stdout_text().contains("cksum"), "{shell}");
    }
    let directory = tempfile::tempdir().unwrap();
    expect(0, ["man".as_ref(), directory.path().as_os_str()]);
    let page = std::fs::read_to_string(directory.path().join("whimbrel-cp.1")).unwrap();
    assert!(page.contains("EXIT CODES"), "{page}");
}
