//! Files that move in chunks, between the real server, ours and this host.

mod support;

use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use support::{Field, Server, expect, names, pattern};

/// Bytes of the file: 11 chunks and a bit, so that the last one is short and the leaves are not all alike.
const SIZE: usize = 3_000_001;

/// Every ordered pair of places that `big` can go between, as arguments of `cp`.
fn between_all(test: impl Fn(&Field, String, String)) {
    let place = |server: &Option<Server>, path: &Path| match server {
        Some(server) => server.url(path),
        None => path.to_string_lossy().into_owned(),
    };
    let kinds: [fn() -> Option<Server>; 3] = [Server::real, || Some(Server::own()), || None];
    for (at, source) in kinds.iter().enumerate() {
        for (to, destination) in kinds.iter().enumerate() {
            let (source, destination) = (source(), destination());
            // The real server may not be installed.
            if (at == 0 && source.is_none()) || (to == 0 && destination.is_none()) {
                continue;
            }
            let field = Field::new();
            let from = place(&source, &field.path("from/deep/er/big"));
            let into = place(&destination, &field.path("to/big"));
            test(&field, from, into);
        }
    }
}

#[test]
fn a_file_in_chunks_is_whole_verified_and_leaves_nothing_behind() {
    between_all(|field, from, into| {
        let run = expect(0, ["cp", "--chunk", "256K", "--concurrency", "3", "--preserve", &from, &into]);
        assert!(run.stderr_text().contains("1 verified"), "{from} {into}: {}", run.stderr_text());
        assert!(std::fs::read(field.path("to/big")).unwrap() == pattern(SIZE), "{from} {into}");
        assert_eq!(names(&field.path("to")), ["big"], "{from} {into}");
        let time = |path: &str| std::fs::metadata(field.path(path)).unwrap().mtime();
        assert_eq!(time("to/big"), time("from/deep/er/big"), "{from} {into}");
    });
}

#[test]
fn an_existing_file_is_replaced_as_a_whole() {
    between_all(|field, from, into| {
        std::fs::write(field.path("to/big"), vec![7; SIZE + 5000]).unwrap();
        std::fs::set_permissions(field.path("to/big"), std::os::unix::fs::PermissionsExt::from_mode(0o666)).unwrap();
        expect(0, ["cp", "--chunk", "256K", &from, &into]);
        assert!(std::fs::read(field.path("to/big")).unwrap() == pattern(SIZE), "{from} {into}");
    });
}

#[test]
fn a_missing_directory_is_a_clear_error_and_nothing_is_made() {
    let (source, destination) = (Server::own(), Server::own());
    let field = Field::new();
    let from = source.url(field.path("from/deep/er/big"));
    let run = expect(4, ["cp", "--chunk", "256K", &from, &destination.url(field.path("to/missing/big"))]);
    assert!(run.stderr_text().contains("missing"), "{}", run.stderr_text());
    assert!(names(&field.path("to")).is_empty());
}

#[test]
fn an_endpoint_of_several_servers_shares_the_chunks_and_survives_the_loss_of_one() {
    let field = Field::new();
    let (a, b, c) = (Server::own(), Server::own(), Server::own());
    let host = |server: &Server| {
        let url = server.url("/");
        url.trim_start_matches("ftp://").trim_end_matches('/').to_owned()
    };
    let nobody = "127.0.0.1:9";
    let url = |hosts: &[&str], path: &str| format!("ftp://{}{}", hosts.join(","), field.path(path).display());
    let from = url(&[nobody, &host(&a), &host(&b)], "from/deep/er/big");
    let into = url(&[&host(&c), nobody], "to/big");
    expect(0, ["cp", "--chunk", "256K", "--concurrency", "4", &from, &into]);
    assert!(std::fs::read(field.path("to/big")).unwrap() == pattern(SIZE));
}
