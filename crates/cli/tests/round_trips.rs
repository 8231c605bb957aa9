//! A tiny copy over a long path is a matter of round trips: they are counted by the clock, from the start of the
//! command to its exit.
#![allow(clippy::unwrap_used, reason = "a test helper that fails ends its test")]

mod support;

use std::any::Any;
use std::path::{Path, PathBuf};
use std::time::Duration;

use support::dtn::Dtn;
use support::{Field, Server};
use whimbrel_testkit::lab::{Host, Lab, Link};
use whimbrel_testkit::peers::{GridftpServer, Tool, public_dir, url_path};
use whimbrel_testkit::pki::Pki;
use whimbrel_testkit::require_root;

const RTT: Duration = Duration::from_millis(200);

/// Round trips of a verified copy of one byte between two servers, seen from `client`.
fn round_trips(client: &Host, source: &Server, destination: &Server) -> f64 {
    trips_of(|tool| tool.on(client), |path| source.url(path), |path| destination.url(path))
}

fn trips_of(
    client: impl Fn(Tool) -> Tool,
    source: impl Fn(PathBuf) -> String,
    destination: impl Fn(PathBuf) -> String,
) -> f64 {
    let field = Field::new();
    let (from, to) = (source(field.path("from/one")), destination(field.path("to/")));
    let run = client(support::whimbrel(["cp", &from, &to])).run_ok();
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

/// A grid server on a host of the laboratory, of either kind, and the beginning of its URLs.
fn grid_server(pki: &Pki, gridmap: &Path, host: &Host, own: bool) -> Option<(Box<dyn Any>, String)> {
    let address = host.addr();
    let member = pki.host(&[&address.to_string()]).unwrap();
    let (server, port): (Box<dyn Any>, u16) = if own {
        let server = Dtn::on(host).root(Path::new("/")).gsi(pki, &member, gridmap).start();
        let port = server.addr().port();
        (Box::new(server), port)
    } else {
        let builder = GridftpServer::builder()?.on(host).address(address);
        let server = builder.gsi(pki, &member, gridmap).start().unwrap();
        let port = server.addr().port();
        (Box::new(server), port)
    };
    Some((server, format!("gsiftp://{address}:{port}")))
}

#[test]
fn certificates_and_delegation_cost_at_most_six_round_trips_more() {
    if !require_root() {
        return;
    }
    let lab = Lab::triangle(Link::new().rtt(RTT)).expect("laboratory");
    let pki = Pki::new().unwrap();
    let alice = pki.full_proxy(&pki.person("alice").unwrap(), 3600, "proxy").unwrap();
    let gridmap = pki.gridmap(&[("alice", "nobody")]).unwrap();
    for own in [false, true] {
        let servers = ["src", "dst"].map(|host| grid_server(&pki, &gridmap, lab.host(host), own));
        let [Some((_source, from)), Some((_destination, to))] = &servers else { continue };
        let url = |base: &String, path: PathBuf| format!("{base}{}", url_path(path));
        let copies = (0..3).map(|_| {
            let client = |tool: Tool| tool.as_member(&pki, &alice).on(lab.host("client"));
            trips_of(client, |path| url(from, path), |path| url(to, path))
        });
        let trips = copies.fold(f64::INFINITY, f64::min);
        println!("own {own}: {trips:.1} round trips");
        assert!(trips <= 13.0, "{trips:.1} round trips, own: {own}");
    }
}

/// RFC 4217: AUTH and the handshake of TLS 1.3.
#[test]
fn a_login_over_tls_costs_at_most_two_round_trips_more() {
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
    let fastest = |scheme: &str, options: &[&str]| {
        let url = |server: &Dtn, path: PathBuf| server.url(path).replacen("ftp", scheme, 1);
        let copies = (0..3).map(|_| {
            let known_hosts = settings.path();
            let client = |tool: Tool| tool.args(options).env("XDG_CONFIG_HOME", known_hosts).on(lab.host("client"));
            trips_of(client, |path| url(&source, path), |path| url(&destination, path))
        });
        copies.fold(f64::INFINITY, f64::min)
    };
    let clear = fastest("ftp", &[]);
    let (login, all) = (fastest("whimbrel", &[]), fastest("whimbrel", &["--encrypt"]));
    println!("{clear:.1} round trips in clear, {login:.1} with a login over TLS, {all:.1} with data inside TLS, too");
    assert!(login <= clear + 2.2, "{clear:.1} in clear, {login:.1} with a login over TLS");
    assert!(all <= clear + 3.2, "{clear:.1} in clear, {all:.1} with everything inside TLS");
}
