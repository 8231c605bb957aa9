//! A tiny copy over a long path is a matter of round trips: they are counted in a trace of its packets, from the start of
//! the command to its exit.
#![allow(clippy::unwrap_used, reason = "a test helper that fails ends its test")]

mod support;

use std::any::Any;
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;
use support::dtn::Dtn;
use support::{Field, Server};
use whimbrel_engine::tune::small_limit;
use whimbrel_testkit::lab::{Host, Lab, Link, Record, Trace};
use whimbrel_testkit::peers::{GridftpServer, Tool, public_dir, url_path};
use whimbrel_testkit::pki::Pki;
use whimbrel_testkit::require_root;

const RTT: Duration = Duration::from_millis(200);

/// What a command cost.
struct Cost {
    /// One-way trips one after the other ([`whimbrel_testkit::lab::Trace::one_way_trips`]).
    one_way: u32,
    /// From start to exit, in round trips.
    clock: f64,
    /// Every packet with something in it, for whoever wonders what it cost that.
    packets: String,
}

impl fmt::Display for Cost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.1} round trips ({:.1} by the clock)", f64::from(self.one_way) / 2.0, self.clock)
    }
}

/// Round trips, in one-way trips.
const fn round_trips(number: u32) -> u32 {
    2 * number
}

fn triangle() -> Lab {
    // The keys that a real server makes for a delegation take seconds on a busy machine: the network waits meanwhile.
    let hosts = Lab::builder().host("client").host("src").host("dst");
    hosts.mesh(Link::new().rtt(RTT)).lockstep().build().expect("laboratory")
}

/// What a verified copy of one byte between two servers costs, as `prepare` has the program run on a host called `client`.
fn cost(
    lab: &Lab,
    client: &str,
    prepare: impl Fn(Tool) -> Tool,
    source: impl Fn(PathBuf) -> String,
    destination: impl Fn(PathBuf) -> String,
) -> Cost {
    let field = Field::new();
    let (from, to) = (source(field.path("from/one")), destination(field.path("to/")));
    lab.start_trace();
    let run = prepare(support::whimbrel(["cp", &from, &to])).on(lab.host(client)).run_ok();
    let trace = lab.trace();
    let one_way = trace.one_way_trips(client, lab.at(run.ended));
    assert!(run.stderr_text().contains("1 verified"), "{}", run.stderr_text());
    assert_eq!(std::fs::read(field.path("to/one")).unwrap(), b"1");
    Cost { one_way, clock: run.wall.as_secs_f64() / RTT.as_secs_f64(), packets: packets(&trace) }
}

/// When each packet that carries something entered its link, and how it begins.
fn packets(trace: &Trace) -> String {
    let line = |record: &Record| {
        let begin = &record.words[..record.words.len().min(60)];
        let (from, to, bytes) = (&record.from, &record.to, record.bytes);
        format!("{:9.1} ms {from} -> {to} {bytes} {}\n", record.entered.as_secs_f64() * 1e3, begin.escape_ascii())
    };
    trace.clone().with_payload().records().iter().map(line).collect()
}

/// The same between servers that anybody may use.
fn cost_in_clear(lab: &Lab, client: &str, source: &Server, destination: &Server) -> Cost {
    cost(lab, client, |tool| tool, |path| source.url(path), |path| destination.url(path))
}

fn servers(lab: &Lab, host: &str) -> [Option<Server>; 2] {
    [Server::real_on(lab.host(host)), Some(Server::own_on(lab.host(host)))]
}

#[test]
fn a_tiny_copy_between_servers_takes_at_most_seven_round_trips() {
    if !require_root() {
        return;
    }
    let lab = triangle();
    let (sources, destinations) = (servers(&lab, "src"), servers(&lab, "dst"));
    for source in sources.iter().flatten() {
        for destination in destinations.iter().flatten() {
            for client in ["client", "src"] {
                let cost = cost_in_clear(&lab, client, source, destination);
                println!("{client}: {cost}");
                assert!(cost.one_way <= round_trips(7), "{cost} from {client}\n{}", cost.packets);
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
    let lab = triangle();
    let pki = Pki::new().unwrap();
    let alice = pki.full_proxy(&pki.person("alice").unwrap(), 3600, "proxy").unwrap();
    let gridmap = pki.gridmap(&[("alice", "nobody")]).unwrap();
    let (sources, destinations) = (servers(&lab, "src"), servers(&lab, "dst"));
    // Our own servers are handed on nothing unless that is asked for.
    for (own, delegate, most) in [(false, "auto", 6), (true, "auto", 4), (true, "limited", 6)] {
        let (Some(source), Some(destination)) = (&sources[usize::from(own)], &destinations[usize::from(own)]) else {
            continue;
        };
        let clear = cost_in_clear(&lab, "client", source, destination);
        let grid = ["src", "dst"].map(|host| grid_server(&pki, &gridmap, lab.host(host), own));
        let [Some((_source, from)), Some((_destination, to))] = &grid else { continue };
        let url = |base: &String, path: PathBuf| format!("{base}{}", url_path(path));
        let alices = |tool: Tool| tool.args(["--delegate", delegate]).as_member(&pki, &alice);
        let cost = cost(&lab, "client", alices, |path| url(from, path), |path| url(to, path));
        println!("own {own}, {delegate}: {cost}, {clear} in clear");
        let is_few = cost.one_way <= clear.one_way + round_trips(most);
        assert!(is_few, "{cost}, {clear} in clear, own: {own}, {delegate}\n{}\n{}", clear.packets, cost.packets);
    }
}

/// The source is asked for the next file while the destination still has to tell that it has the one before.
#[test]
fn whole_files_follow_each_other_without_a_round_trip() {
    if !require_root() {
        return;
    }
    let rtt = Duration::from_millis(100);
    let lab = Lab::triangle(Link::new().rtt(rtt)).expect("laboratory");
    let field = Field::new();
    std::fs::create_dir(field.path("from/tree")).unwrap();
    // Larger than what is pipelined as small, smaller than what is divided.
    let size = usize::try_from(small_limit(Some(rtt)) + 1).unwrap();
    for name in ["one", "two", "three"] {
        std::fs::write(field.path("from/tree").join(name), support::pattern(size)).unwrap();
    }
    let [source, destination] = ["src", "dst"].map(|host| Dtn::on(lab.host(host)).anonymous().start());
    // What begins and ends, in order; the client is beside the source, so that it knows of the next file at once.
    let order = |more: &[&str]| {
        let (from, to) = (source.url(field.path("from/tree")), destination.url(field.path("to").join(more.join(""))));
        let tool = support::whimbrel(["--json", "cp", "-r", "--concurrency", "1", &from, &to]).args(more);
        let run = tool.on(lab.host("src")).run_ok();
        let told = run.stdout_text();
        let words = told.lines().filter_map(|line| {
            let event: Value = serde_json::from_str(line).unwrap();
            match (event["event"].as_str(), event["size"].as_u64()) {
                (Some("started"), _) => Some("begins"),
                (Some("item_done"), Some(1..)) => Some("ends"),
                _ => None,
            }
        });
        words.collect::<Vec<_>>().join(" ")
    };
    let ahead = order(&[]);
    assert!(ahead.starts_with("begins begins ends "), "{ahead}");
    assert_eq!(order(&["--pipeline", "1"]), "begins ends begins ends begins ends", "nothing is sent ahead");
}

/// RFC 4217: AUTH and the handshake of TLS 1.3. That of the data connection between the servers is one more: without early data
/// (RFC 8446 §2.3) the sender may not say a byte before it has heard that the receiver knows the key.
#[test]
fn a_login_over_tls_costs_at_most_two_round_trips_more() {
    if !require_root() {
        return;
    }
    let lab = triangle();
    let (pki, settings) = (Pki::new().unwrap(), public_dir().unwrap());
    let config = settings.path().join("dtn.toml");
    let host = pki.host(&["dtn.example.org"]).unwrap().file;
    std::fs::write(&config, format!("[tls]\ncertificate = {host:?}\nkey = {host:?}\n")).unwrap();
    let server = |name| Dtn::on(lab.host(name)).anonymous().arg("--config").arg(&config).start();
    let (source, destination) = (server("src"), server("dst"));
    let cost = |scheme: &str, options: &[&str]| {
        let url = |server: &Dtn, path: PathBuf| server.url(path).replacen("ftp", scheme, 1);
        // Whose keys are known is remembered there.
        let own = |tool: Tool| tool.args(options).env("XDG_CONFIG_HOME", settings.path());
        cost(&lab, "client", own, |path| url(&source, path), |path| url(&destination, path))
    };
    let clear = cost("ftp", &[]);
    let (login, all) = (cost("whimbrel", &[]), cost("whimbrel", &["--encrypt"]));
    println!("{clear} in clear, {login} with a login over TLS, {all} with data inside TLS, too");
    let is_few = login.one_way <= clear.one_way + round_trips(2);
    assert!(is_few, "{clear} in clear, {login} with a login over TLS\n{}\n{}", clear.packets, login.packets);
    assert!(
        all.one_way <= login.one_way + round_trips(1),
        "{login} with a login over TLS, {all} with data inside TLS, too\n{}\n{}",
        login.packets,
        all.packets
    );
}
