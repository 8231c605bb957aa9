//! The small commands, exit codes and JSON.

mod support;

use support::{Field, Server, expect, whimbrel};

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
fn check_tells_that_both_directions_work() {
    for kind in Server::kinds() {
        let Some(server) = kind() else { continue };
        let run = expect(0, ["check", &server.url("/")]);
        assert_eq!(run.stdout_text().matches("ok   data connection").count(), 2, "{}", run.stdout_text());
    }
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
