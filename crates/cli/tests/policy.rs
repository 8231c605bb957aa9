//! The administrator's rules for files in chunks: `[[chunking]]` of a server's configuration, as clients obey them.

#![allow(clippy::unwrap_used, reason = "a test helper that fails ends its test")]

mod support;

use serde_json::Value;
use support::dtn::Dtn;
use support::{Field, Server, expect, pattern, whimbrel};

/// A server with such a configuration in its file; `FIELD` stands for the field's path.
fn serve(field: &Field, rules: &str) -> Dtn {
    let file = field.path("dtn.toml");
    std::fs::write(&file, rules.replace("FIELD", field.path("").to_str().unwrap().trim_end_matches('/'))).unwrap();
    Dtn::builder().anonymous().arg("--config").arg(file).start()
}

/// A field with a second large file.
fn field() -> Field {
    let field = Field::new();
    std::fs::write(field.path("from/other"), pattern(2_000_000)).unwrap();
    field
}

/// The lines of the plan, or of its changes, for one choice.
fn choices(output: &str, list: &str, choice: &str) -> Vec<Value> {
    let mut events = output.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let last = events.rfind(|event| event["event"] == "explained").unwrap();
    last[list].as_array().unwrap().iter().filter(|line| line["choice"] == choice).cloned().collect()
}

/// What the client opened for chunks, by the end of its name.
fn in_chunks(dialogue: &str, name: &str) -> bool {
    dialogue.lines().any(|line| line.contains("SITE CHUNK OPEN") && line.ends_with(name))
}

#[test]
fn each_file_is_moved_by_the_first_rule_for_its_place() {
    let field = field();
    let rules = "[[chunking]]\npath = \"FIELD/from/deep\"\nchunk = \"off\"\n\n[[chunking]]\nchunk = \"256K\"\n";
    let (source, destination) = (serve(&field, rules), Dtn::builder().anonymous().start());
    let (from, to) = (source.url(field.path("from")), destination.url(field.path("to/tree")));
    let run = expect(0, ["-vvv", "--json", "cp", "-r", "--explain", &from, &to]);
    let dialogue = run.stderr_text();
    assert!(in_chunks(&dialogue, "/other") && !in_chunks(&dialogue, "/big"), "{dialogue}");
    field.assert_copied("tree");
    let plan = &choices(&run.stdout_text(), "plan", "chunks")[0];
    assert_eq!(plan["value"], 262_144, "{plan}");
    assert!(plan["reason"].as_str().unwrap().ends_with("set by the administrator of 127.0.0.1"), "{plan}");
    let deep = &choices(&run.stdout_text(), "changes", "chunks")[0];
    let below = format!("below {}: set by the administrator of 127.0.0.1", field.path("from/deep").display());
    assert_eq!((&deep["value"], deep["reason"].as_str()), (&Value::Null, Some(&below[..])));
    let text = expect(0, ["cp", "-r", "--explain", &from, &destination.url(field.path("to/again"))]);
    assert!(text.stderr_text().contains("set by the administrator of 127.0.0.1"), "{}", text.stderr_text());
}

#[test]
fn the_user_decides_before_the_administrator() {
    let field = field();
    let destination = serve(&field, "[[chunking]]\nchunk = \"off\"\nmovers = 1\n");
    let run = |from: &str, more: &[&str], name: &str| {
        let (from, to) = (field.path(from), destination.url(field.path(&format!("to/{name}"))));
        let cp = ["-vvv", "--json", "cp", "-r", "--explain", from.to_str().unwrap(), &to];
        let run = expect(0, cp.iter().chain(more));
        let first = |choice| choices(&run.stdout_text(), "plan", choice)[0]["reason"].as_str().unwrap().to_owned();
        (in_chunks(&run.stderr_text(), name), first("chunks"), first("sessions"))
    };
    let (chunked, chunks, _) = run("from/other", &[], "one");
    assert_eq!((chunked, &chunks[..]), (false, "set by the administrator of 127.0.0.1"));
    let (chunked, chunks, _) = run("from/other", &["--chunk", "256K"], "two");
    assert!(chunked && chunks.ends_with("set by the user"), "{chunks}");
    let (_, _, sessions) = run("from", &["--chunk", "256K"], "tree");
    assert_eq!(sessions, "set by the administrator of 127.0.0.1");
    let (_, _, sessions) = run("from", &["--chunk", "256K", "--concurrency", "3"], "again");
    assert_eq!(sessions, "set by the user");
    field.assert_copied("tree");
    field.assert_copied("again");
}

/// Whether the number of sessions was changed to this one because an administrator allows no more.
fn was_limited(output: &str, most: u32) -> bool {
    let by = |line: &Value| line["reason"].as_str().unwrap().starts_with("set by the administrator of ");
    choices(output, "changes", "sessions").iter().any(|line| line["value"] == most && by(line))
}

#[test]
fn fewer_movers_than_an_endpoint_has_servers_are_obeyed_though_the_rule_is_for_a_part_of_the_tree() {
    let field = field();
    let servers = [(); 4].map(|()| serve(&field, "[[chunking]]\npath = \"FIELD/to/tree/deep\"\nmovers = 2\n"));
    let hosts = servers.iter().map(|server| server.addr().to_string()).collect::<Vec<_>>().join(",");
    let to = format!("ftp://{hosts}{}", field.path("to/tree").display());
    let run = expect(0, ["--json", "cp", "-r", "--explain", field.path("from").to_str().unwrap(), &to]);
    let sessions = choices(&run.stdout_text(), "plan", "sessions")[0]["value"].as_u64().unwrap();
    assert!(sessions > 2, "each server was to have one: {}", run.stdout_text());
    assert!(was_limited(&run.stdout_text(), 2), "{}", run.stdout_text());
    field.assert_copied("tree");
}

#[test]
fn each_server_of_a_list_is_obeyed_though_the_rules_of_all_are_for_the_same_path() {
    let (field, other) = (field(), Field::new());
    let first = serve(&field, "[[chunking]]\nchunk = \"256K\"\nmovers = 8\n");
    let second = serve(&other, "[[chunking]]\nchunk = \"off\"\nmovers = 1\n");
    let from = field.path("from/other");
    let to = [first.url(field.path("to/one")), second.url(other.path("to/two"))];
    let list: String = to.iter().map(|to| format!("{} {to}\n", from.display())).collect();
    let run = whimbrel(["--json", "cp", "--explain", "--list", "-"]).input(list).run_ok();
    let told = choices(&run.stdout_text(), "changes", "chunks");
    let told: Vec<_> = told.iter().map(|line| line["value"].as_u64()).collect();
    assert_eq!(told, [Some(262_144), None], "{}", run.stdout_text());
    assert!(was_limited(&run.stdout_text(), 1), "{}", run.stdout_text());
}

#[test]
fn rules_are_for_labels_and_for_every_source() {
    let field = field();
    let rules = "[[chunking]]\nlabel = \"night run\"\nchunk = \"off\"\n[[chunking]]\nchunk = \"256K\"\nleaf = \"8K\"\n";
    let server = serve(&field, rules);
    let sources = ["from/deep/er/big", "from/other"].map(|name| server.url(field.path(name)));
    for (label, chunked) in [(&["--label", "night run"][..], false), (&["--label", "day run"], true), (&[], true)] {
        let to = field.path(&format!("to/{}", label.concat()));
        std::fs::create_dir(&to).ok();
        let places = [&sources[0], &sources[1], to.to_str().unwrap()];
        let run = expect(0, ["-vvv", "cp", "--concurrency", "2"].iter().chain(label).copied().chain(places));
        let dialogue = run.stderr_text();
        let parts = dialogue.lines().filter(|line| line.contains("ERET P")).count();
        assert_eq!(parts > 2, chunked, "{label:?}: {dialogue}");
        assert!(!chunked || dialogue.contains("SITE LEAVES 8192"), "{dialogue}");
        assert!(std::fs::read(to.join("big")).unwrap() == pattern(3_000_001));
    }
    assert_eq!(whimbrel(["cp", "--label", "two\nlines", "a", "b"]).run().unwrap().code(), Some(2));
}

#[test]
fn rules_are_known_before_the_first_file_of_a_list_or_of_a_followed_directory_is_decided_on() {
    let field = field();
    let rules = "[[chunking]]\npath = \"FIELD/to\"\nchunk = \"256K\"\n";
    let server = serve(&field, rules);
    let (from, to) = (field.path("from/other"), server.url(field.path("to/one")));
    let list = format!("{} {to}\n", from.display());
    let run = whimbrel(["-vvv", "cp", "--concurrency", "1", "--list", "-"]).input(list).run_ok();
    assert!(in_chunks(&run.stderr_text(), "/one"), "{}", run.stderr_text());
    let logins = |dialogue: &str| dialogue.lines().filter(|line| line.contains("USER ")).count();
    assert_eq!(logins(&run.stderr_text()), 1, "the session that told the rules moves the file: {}", run.stderr_text());
    std::fs::create_dir(field.path("made")).unwrap();
    std::fs::copy(&from, field.path("made/two")).unwrap();
    std::fs::write(field.path("made/END"), "").unwrap();
    let to = server.url(field.path("to"));
    let options = ["--until", "END", "--quiet-time", "10ms", "--scan-interval", "50ms", "--concurrency", "1"];
    let run = whimbrel(["-vvv", "cp", "--follow", field.path("made").to_str().unwrap(), &to]).args(options).run_ok();
    assert!(in_chunks(&run.stderr_text(), "/two"), "{}", run.stderr_text());
}

#[test]
fn nobody_is_asked_who_has_no_rules() {
    for server in Server::kinds() {
        let Some(server) = server() else { continue };
        let field = Field::new();
        let run =
            expect(0, ["-vvv", "cp", &server.url(field.path("from/one")), field.path("to/one").to_str().unwrap()]);
        assert!(!run.stderr_text().contains("SITE POLICY"), "{}", run.stderr_text());
    }
}

#[test]
fn a_rule_that_is_wrong_stops_the_server_with_file_line_and_cure() {
    let field = Field::new();
    let file = field.path("dtn.toml");
    std::fs::write(&file, "anonymous = true\n\n[[chunking]]\nchunk = \"huge\"\n").unwrap();
    let run = expect(2, ["dtn", "--listen", "127.0.0.1:0", "--config", file.to_str().unwrap()]);
    for part in [file.to_str().unwrap(), "line 4", "chunk = \"256M\" or chunk = \"off\""] {
        assert!(run.stderr_text().contains(part), "{part}: {}", run.stderr_text());
    }
}
