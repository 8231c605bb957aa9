//! A tiny copy over a long path is a matter of round trips: they are counted by the clock, from the start of the
//! command to its exit.
#![allow(clippy::unwrap_used, reason = "a test helper that fails ends its test")]

mod support;

use std::time::Duration;

use support::{Field, Server};
use whimbrel_testkit::lab::{Host, Lab, Link};
use whimbrel_testkit::require_root;

const RTT: Duration = Duration::from_millis(200);

/// Round trips of a verified copy of one byte between two servers, seen from `client`.
fn round_trips(client: &Host, source: &Server, destination: &Server) -> f64 {
    let field = Field::new();
    let (from, to) = (source.url(field.path("from/one")), destination.url(field.path("to/")));
    let run = support::whimbrel(["cp", &from, &to]).on(client).run_ok();
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
