//! A tiny copy over a long path is a matter of round trips: they are counted by the clock, from the start of the
//! command to its exit.
#![allow(clippy::unwrap_used, reason = "a test helper that fails ends its test")]

mod support;

use std::path::Path;
use std::time::Duration;

use support::dtn::Dtn;
use support::{Field, Server};
use whimbrel_testkit::lab::{Host, Lab, Link};
use whimbrel_testkit::peers::{Tool, public_dir};
use whimbrel_testkit::pki::Pki;
use whimbrel_testkit::require_root;

const RTT: Duration = Duration::from_millis(200);

/// Round trips of a verified copy of one byte between two servers, seen from `client`.
fn round_trips(client: &Host, source: &Server, destination: &Server) -> f64 {
    let url = |server: &Server, path: &Path| server.url(path);
    trips_of(client, |from, to| support::whimbrel(["cp", &url(source, from), &url(destination, to)]))
}

/// Round trips of this copy of one byte.
fn trips_of(client: &Host, copy: impl Fn(&Path, &Path) -> Tool) -> f64 {
    let field = Field::new();
    let run = copy(&field.path("from/one"), &field.path("to/")).on(client).run_ok();
    assert!(run.stderr_text().contains("1 verified"), "{}", run.stderr_text());
    assert_eq!(std::fs::read(field.path("to/one")).unwrap(), b"1");
    run.wall.as_secs_f64() / RTT.as_secs_f64()
}

#[test]
fn a_tiny_copy_between_servers_takes_at_most_seven_round_trips() {
    if !require_root() {
        return;
    }
    let lab = Lab::triangle(Link::new().rtt(RTT)).expect("laboratory");
    let servers = |host: &str| [Server::real_on(lab.host(host)), Some(Server::own_on(lab.host(host)))];
    let (sources, destinations) = (servers("src"), servers("dst"));
    for source in sources.iter().flatten() {
        for destination in destinations.iter().flatten() {
            for client in ["client", "src"] {
                // A busy machine only adds time; the count is what the fastest of three shows.
                let copies = (0..3).map(|_| round_trips(lab.host(client), source, destination));
                let trips = copies.fold(f64::INFINITY, f64::min);
                println!("{client}: {trips:.1} round trips");
                assert!(trips <= 7.0, "{trips:.1} round trips from {client}");
            }
        }
    }
}

/// RFC 4217: AUTH and the handshake of TLS 1.3. Nothing of what a login is protected with may cost more.
#[test]
fn a_login_over_tls_costs_at_most_two_round_trips() {
    if !require_root() {
        return;
    }
    let lab = Lab::triangle(Link::new().rtt(RTT)).expect("laboratory");
    let (pki, settings) = (Pki::new().unwrap(), public_dir().unwrap());
    let config = settings.path().join("dtn.toml");
    let host = pki.host(&["dtn.example.org"]).unwrap().file;
    std::fs::write(&config, format!("[tls]\ncertificate = {host:?}\nkey = {host:?}\n")).unwrap();
    let server = |name| Dtn::on(lab.host(name)).anonymous().arg("--config").arg(&config).start();
    let (source, destination) = (server("src"), server("dst"));
    let copy = |from: &Path, to: &Path, scheme: &str, options: &[&str]| {
        let url = |server: &Dtn, path| server.url(path).replacen("ftp", scheme, 1);
        let urls = [url(&source, from), url(&destination, to)];
        support::whimbrel(["cp"]).args(options).args(urls).env("XDG_CONFIG_HOME", settings.path())
    };
    let fastest = |scheme: &str, options: &[&str]| {
        let copies = (0..3).map(|_| trips_of(lab.host("client"), |from, to| copy(from, to, scheme, options)));
        copies.fold(f64::INFINITY, f64::min)
    };
    let clear = fastest("ftp", &[]);
    let (login, all) = (fastest("whimbrel", &[]), fastest("whimbrel", &["--encrypt"]));
    println!("{clear:.1} round trips in clear, {login:.1} with a login over TLS, {all:.1} with data inside TLS, too");
    assert!(login <= clear + 2.2, "{clear:.1} in clear, {login:.1} with a login over TLS");
    assert!(all <= clear + 3.2, "{clear:.1} in clear, {all:.1} with everything inside TLS");
}
