//! What is said once, and what is not said at all.

mod support;

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use support::dtn::Dtn;
use support::{Field, Server, WHIMBREL, expect};
use whimbrel_testkit::peers::Tool;

#[test]
fn a_healthy_copy_of_a_folder_leaves_no_failure_in_the_servers_log() {
    let (server, field) = (Dtn::builder().anonymous().root(Path::new("/")).start(), Field::new());
    let from = field.path("from").display().to_string();
    expect(0, ["cp", "-r", &from, &server.url(field.path("to/copy"))]);
    field.assert_copied("copy");
    // The end of what it has to tell.
    expect(4, ["mkdir", &server.url(field.path("to/copy"))]);
    server.wait_for_log(&["operation failed", "to/copy"]);
    assert_eq!(server.log().matches("operation failed").count(), 1, "{}", server.log());
}

#[test]
fn a_server_that_is_not_there_is_told_of_once() {
    let refusal = expect(5, ["ls", "ftp://127.0.0.1:1/"]).stderr_text();
    assert_eq!(refusal.matches("connection refused").count(), 1, "{refusal}");
    assert!(!refusal.contains("WARN"), "{refusal}");
}

#[test]
fn a_pipe_in_a_folder_is_named_and_counted_as_skipped() {
    let field = Field::new();
    let (from, to) = (field.path("from"), field.path("to/copy").display().to_string());
    Tool::new("mkfifo").arg(from.join("pipe")).run_ok();
    let said = expect(0, ["cp", "-r", &from.display().to_string(), &to]).stderr_text();
    assert!(said.contains("from/pipe: skipped: no regular file"), "{said}");
    assert!(said.contains("1 skipped (no regular file)") && !said.contains("left as they were"), "{said}");
}

#[test]
fn what_failed_with_its_folder_is_counted_and_not_told_line_by_line() {
    let (server, field) = (Server::own(), Field::new());
    let from = field.path("from").display().to_string();
    // Whoever handles the data may make nothing in it.
    std::fs::create_dir(field.path("to/closed")).unwrap();
    std::fs::set_permissions(field.path("to/closed"), std::fs::Permissions::from_mode(0o555)).unwrap();
    let to = server.url(field.path("to/closed/new"));
    let said = expect(4, ["cp", "-r", &from, &to]).stderr_text();
    assert_eq!(said.matches("failed: ").count(), 1, "{said}");
    assert!(said.contains("more below it, for the same reason"), "{said}");
}

#[test]
fn an_empty_password_is_not_hashed() {
    let run = Tool::new(WHIMBREL).args(["dtn", "--hash-password"]).input("\n").run_failing();
    assert_eq!(run.code(), Some(2), "{run}");
    assert!(run.stdout.is_empty() && run.stderr_text().contains("it is empty"), "{run}");
}
