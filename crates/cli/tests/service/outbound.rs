//! Servers that take no connections: laptops, and hosts behind address translation.

use std::collections::BTreeSet;
use std::fs;
use std::io::ErrorKind;
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};
use whimbrel_testkit::lab::{Lab, Link, LinkHandle};
use whimbrel_testkit::require_root;

use super::field::{Field, Site};

/// A file of several chunks, and many small ones.
const LARGE: usize = 40 << 20;
const SMALL: usize = 40;

fn field() -> Option<Field> {
    let mut field = Field::alone()?;
    field.alpha = Some(field.site("alpha"));
    field.beta = Some(field.outbound_site("beta"));
    Some(field)
}

fn large() -> Vec<u8> {
    (0..LARGE as u32 / 4).flat_map(|word| word.wrapping_mul(0x9e37_79b9).to_le_bytes()).collect()
}

/// The process and all that it has started.
fn family(pid: u32) -> Vec<u32> {
    let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    let children = children.split_whitespace().filter_map(|child| child.parse().ok());
    std::iter::once(pid).chain(children.flat_map(family)).collect()
}

/// The numbers of the sockets that a process has open.
fn sockets(pid: u32) -> BTreeSet<String> {
    let open = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    let links = open.filter_map(|entry| fs::read_link(entry.path()).ok());
    links.filter_map(|link| Some(link.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.to_owned())).collect()
}

/// The sockets of TCP that processes listen at.
fn listening(pids: &[u32]) -> Vec<String> {
    let own: BTreeSet<_> = pids.iter().flat_map(|pid| sockets(*pid)).collect();
    let mut found = Vec::new();
    for table in ["/proc/net/tcp", "/proc/net/tcp6"] {
        for line in fs::read_to_string(table).unwrap_or_default().lines().skip(1) {
            let fields: Vec<_> = line.split_whitespace().collect();
            // The state 0A is LISTEN; the tenth field is the socket's number.
            if fields[3] == "0A" && own.contains(fields[9]) {
                found.push(fields[1].to_owned());
            }
        }
    }
    found
}

#[track_caller]
fn listens_nowhere(quiet: &Site, loud: &Site) {
    if !rustix::process::geteuid().is_root() {
        return println!("skipped: only root sees the sockets of processes that keep secrets");
    }
    let pids = family(quiet.server.pid());
    assert!(pids.len() > 3, "front, caller, talker: {pids:?}");
    assert_eq!(listening(&pids), Vec::<String>::new());
    assert!(!listening(&family(loud.server.pid())).is_empty(), "this test sees who listens");
}

/// Both ways, also encrypted; what file managers ask goes by the same connections.
#[test]
fn a_server_that_listens_nowhere_sends_and_receives() {
    let Some(field) = field() else { return };
    let content = large();
    field.alpha().write("from/large", &content);
    for number in 0..SMALL {
        field.alpha().write(&format!("from/d/f{number}"), format!("file {number}\n"));
    }
    fs::set_permissions(&field.beta().root, std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
    field.carry_out(&["transfer", "-r", &field.alpha().at("/from"), &field.beta().at("/there")]);
    listens_nowhere(field.beta(), field.alpha());
    field.carry_out(&["transfer", "-r", "--encrypt-data", &field.beta().at("/there"), &field.alpha().at("/back")]);
    for place in [field.beta().path("there"), field.alpha().path("back")] {
        assert!(fs::read(place.join("large")).unwrap() == content, "{}", place.display());
        for number in 0..SMALL {
            let small = fs::read_to_string(place.join(format!("d/f{number}"))).unwrap();
            assert_eq!(small, format!("file {number}\n"));
        }
    }
    listens_nowhere(field.beta(), field.alpha());

    let listed = field.globus(&["ls", &field.beta().at("/there")]);
    assert_eq!(listed.lines().collect::<Vec<_>>(), ["d/", "large"]);
    field.globus(&["mkdir", &field.beta().at("/new")]);
    field.globus(&["rename", &field.beta().collection, "/new", "/named"]);
    assert!(field.beta().path("named").is_dir());
    let stat = field.json(&["stat", &field.beta().at("/there/large")]);
    assert_eq!(stat["size"], json!(LARGE), "{stat:#}");
    field.globus(&["rm", "-r", &field.beta().at("/there"), "--timeout", "60"]);
    assert!(!field.beta().path("there").exists());

    // It says what it is, and that its files are not had over HTTPS.
    let token = field.token();
    let about = |id: &str, what: &str| field.ask_with(&token, &format!("/v0.10/endpoint/{id}{what}"), None).unwrap();
    let servers = about(&field.beta().endpoint, "/server_list");
    assert_eq!((&servers["DATA"][0]["outbound"], &servers["DATA"][0]["is_connected"]), (&json!(true), &json!(true)));
    let (here, there) = (about(&field.beta().collection, ""), about(&field.alpha().collection, ""));
    assert!(here["https_server"].is_null() && there["https_server"].is_string(), "{here:#} {there:#}");
}

/// A service that is killed is connected to again, and so is one whose server comes back.
#[test]
fn it_connects_again_and_again() {
    let Some(mut field) = field() else { return };
    field.alpha().write("one", "1");
    field.restart();
    field.carry_out(&["transfer", &field.alpha().at("/one"), &field.beta().at("/one")]);
    let mut beta = field.beta.take().unwrap();
    beta.server.kill();
    // The public client would ask until it is known to be gone.
    let listing = format!("/v0.10/operation/endpoint/{}/ls?path=/", beta.collection);
    let refused = field.ask_with(&field.token(), &listing, None).unwrap();
    assert!(refused["message"].as_str().is_some_and(|text| text.contains("has not connected")), "{refused:#}");
    let task = field.submit(&["transfer", &field.alpha().at("/one"), &beta.at("/two")]);
    beta.server = field.outbound_server("beta", &beta.root, "used-up-long-ago");
    field.globus(&["task", "wait", &task, "--timeout", "120", "--polling-interval", "1"]);
    assert_eq!(beta.read("two"), b"1");
}

/// Orchestrators elsewhere reach it by way of the service.
#[test]
fn orchestrators_on_other_hosts_reach_it() {
    let Some(mut field) = field() else { return };
    field.restart_with(&["--no-orchestrator"]);
    let client = field.orchestrator_client("movers");
    let _mover = field.orchestrator("first", &client);
    field.alpha().write("one", large());
    field.carry_out(&["transfer", &field.alpha().at("/one"), &field.beta().at("/one")]);
    assert!(field.beta().read("one") == large());
    listens_nowhere(field.beta(), field.alpha());
}

/// A firewall that drops the first packet of every connection to the host: what it makes itself is all that there is.
#[test]
fn a_firewall_that_lets_nothing_in_is_no_hindrance() {
    if !require_root() {
        return;
    }
    let lab = Lab::triangle(Link::new().rtt(Duration::from_millis(2))).expect("laboratory");
    lab.host("client").run(|| through_the_firewall(&lab));
}

/// A host into which no connection is let.
struct Walled<'a> {
    lab: &'a Lab,
    host: &'static str,
    /// Somebody listens there, and could be reached until the firewall stood.
    within: TcpListener,
    inward: [LinkHandle; 2],
}

impl<'a> Walled<'a> {
    /// Raises a firewall around a host, against both of its neighbours.
    fn new(lab: &'a Lab, host: &'static str, neighbours: [&'static str; 2]) -> Self {
        let within = lab.host(host).run(|| TcpListener::bind((lab.host(host).addr(), 0))).expect("a port");
        let inward = neighbours.map(|neighbour| lab.direction(neighbour, host));
        let walled = Self { lab, host, within, inward };
        assert!(neighbours.iter().all(|neighbour| walled.reached_from(neighbour).is_ok()), "it listens");
        walled.inward.iter().for_each(|way| way.set_refused_ports(Some(1..=u16::MAX)));
        walled.holds(neighbours);
        walled
    }

    fn reached_from(&self, neighbour: &str) -> Result<TcpStream, ErrorKind> {
        let port = self.within.local_addr().expect("it is bound");
        let connect = || TcpStream::connect_timeout(&port, Duration::from_millis(500));
        self.lab.host(neighbour).run(connect).map_err(|error| error.kind())
    }

    /// Packets that the firewall has dropped.
    fn dropped(&self) -> [u64; 2] {
        self.inward.each_ref().map(|way| way.counters().blocked)
    }

    #[track_caller]
    fn holds(&self, neighbours: [&'static str; 2]) {
        let before = self.dropped();
        for neighbour in neighbours {
            assert_eq!(self.reached_from(neighbour).unwrap_err(), ErrorKind::TimedOut, "{neighbour} to {}", self.host);
        }
        assert!(self.dropped().iter().zip(before).all(|(now, before)| *now > before), "the firewall dropped both");
    }
}

/// Moves files and back; the firewalls drop nothing, for nobody even tries to come in.
#[track_caller]
fn to_and_fro(field: &Field, alpha: &Site, beta: &Site, walls: &[Walled<'_>]) {
    let before: Vec<_> = walls.iter().map(Walled::dropped).collect();
    let content = large();
    alpha.write("from/large", &content);
    for number in 0..SMALL {
        alpha.write(&format!("from/d/f{number}"), format!("file {number}\n"));
    }
    move_tree(field, (alpha, "/from"), (beta, "/there"));
    move_tree(field, (beta, "/there"), (alpha, "/back"));
    assert_eq!(walls.iter().map(Walled::dropped).collect::<Vec<_>>(), before, "nobody even tries to connect there");
    for place in [beta.path("there"), alpha.path("back")] {
        assert!(fs::read(place.join("large")).unwrap() == content, "{}", place.display());
        for number in 0..SMALL {
            assert_eq!(fs::read_to_string(place.join(format!("d/f{number}"))).unwrap(), format!("file {number}\n"));
        }
    }
}

fn through_the_firewall(lab: &Lab) {
    let neighbours = ["client", "src"];
    let walls = [Walled::new(lab, "dst", neighbours)];
    let field = Field::on(lab.host("client"));
    let alpha = field.site_on(lab.host("src"), "alpha");
    let beta = field.outbound_site_on(lab.host("dst"), "beta");
    to_and_fro(&field, &alpha, &beta, &walls);
    walls[0].holds(neighbours);
}

/// Both ends behind firewalls, and the third is all that they reach.
#[test]
fn two_behind_firewalls_exchange_files_by_way_of_a_third() {
    if !require_root() {
        return;
    }
    let lab = Lab::triangle(Link::new().rtt(Duration::from_millis(2))).expect("laboratory");
    lab.host("client").run(|| {
        let around = [("src", ["client", "dst"]), ("dst", ["client", "src"])];
        let walls = around.map(|(host, neighbours)| Walled::new(&lab, host, neighbours));
        let field = Field::on(lab.host("client"));
        let _relay = field.relay_site_on(lab.host("client"), "gamma");
        let alpha = field.outbound_site_on(lab.host("src"), "alpha");
        let beta = field.outbound_site_on(lab.host("dst"), "beta");
        to_and_fro(&field, &alpha, &beta, &walls);
        for (wall, (_, neighbours)) in walls.iter().zip(around) {
            wall.holds(neighbours);
        }
    });
}

/// Moves a directory without the public client, which asks from another host than the service's.
#[track_caller]
fn move_tree(field: &Field, (source, from): (&Site, &str), (destination, to): (&Site, &str)) {
    let token = field.token();
    let ask = |path: &str, document: Option<&Value>| field.ask_with(&token, path, document).unwrap();
    let item = json!({"DATA_TYPE": "transfer_item", "source_path": from, "destination_path": to, "recursive": true});
    let document = json!({
        "DATA_TYPE": "transfer", "submission_id": ask("/v0.10/submission_id", None)["value"],
        "source_endpoint": source.collection, "destination_endpoint": destination.collection, "DATA": [item],
    });
    let task = ask("/v0.10/transfer", Some(&document));
    let path = format!("/v0.10/task/{}", task["task_id"].as_str().unwrap_or_else(|| panic!("{task}")));
    let ended = loop {
        let shown = ask(&path, None);
        if shown["status"] != "ACTIVE" {
            break shown;
        }
        std::thread::yield_now();
    };
    assert_eq!((&ended["status"], &ended["files"]), (&json!("SUCCEEDED"), &json!(SMALL + 1)), "{ended:#}");
}

/// Two of them have nobody between who listens: that is told at once, and nothing is made.
#[test]
fn two_that_take_no_connections_are_told_what_is_missing() {
    let Some(mut field) = Field::alone() else { return };
    field.alpha = Some(field.outbound_site("alpha"));
    field.beta = Some(field.outbound_site("beta"));
    field.alpha().write("d/one", "1");
    let task = field.submit(&["transfer", "-r", &field.alpha().at("/d"), &field.beta().at("/d")]);
    field.globus_ends(1, &["task", "wait", &task, "--timeout", "60", "--polling-interval", "1"]);
    let shown = field.json(&["task", "show", &task]);
    assert_eq!(shown["status"], "FAILED", "{shown:#}");
    let why = shown["fatal_error"]["description"].as_str().unwrap_or_default().to_owned();
    assert!(why.contains("takes connections") && why.contains("--relay"), "{shown:#}");
    assert!(!Path::new(&field.beta().path("d")).exists());
}

/// Both dial a third, which passes on what it cannot read; whatever the task says, it is encrypted.
#[test]
fn two_that_take_no_connections_exchange_files_by_way_of_a_third() {
    let Some(mut field) = Field::alone() else { return };
    let relay = field.relay_site("gamma");
    field.alpha = Some(field.outbound_site("alpha"));
    field.beta = Some(field.outbound_site("beta"));
    let content = large();
    field.alpha().write("from/large", &content);
    for number in 0..SMALL {
        field.alpha().write(&format!("from/d/f{number}"), format!("file {number}\n"));
    }
    field.carry_out(&["transfer", "-r", &field.alpha().at("/from"), &field.beta().at("/there")]);
    field.carry_out(&["transfer", "-r", &field.beta().at("/there"), &field.alpha().at("/back")]);
    for place in [field.beta().path("there"), field.alpha().path("back")] {
        assert!(fs::read(place.join("large")).unwrap() == content, "{}", place.display());
        for number in 0..SMALL {
            let small = fs::read_to_string(place.join(format!("d/f{number}"))).unwrap();
            assert_eq!(small, format!("file {number}\n"));
        }
    }
    listens_nowhere(field.alpha(), &relay);
    listens_nowhere(field.beta(), &relay);
    is_confined(&relay, "dtn-relay");
    // What is told of the last second may still be on its way.
    let passed = || relay.metric("relay_bytes_total");
    while passed() < 2 * LARGE as u64 {
        std::thread::yield_now();
    }
    assert!(relay.metric("relay_pairs_total") > 2);
    assert_eq!(relay.metric("relay_refused_total"), 0);
    let server =
        field.ask_with(&field.token(), &format!("/v0.10/endpoint/{}/server_list", relay.endpoint), None).unwrap();
    assert_eq!(server["DATA"][0]["relay"], json!(true), "{server:#}");
}

/// Looks at the process of a server that a hidden command is: it makes no other system calls than it needs, and is not root.
#[track_caller]
fn is_confined(site: &Site, command: &str) {
    let is_it = |pid: &u32| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        line.split(|byte| *byte == 0).nth(1) == Some(command.as_bytes())
    };
    let pid = family(site.server.pid()).into_iter().find(is_it).expect("it runs");
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        line.and_then(|line| line.split_whitespace().next()).map(str::to_owned).unwrap_or_default()
    };
    assert_eq!((field("Seccomp:").as_str(), field("CapEff:").as_str()), ("2", "0000000000000000"), "{status}");
    assert_ne!(field("Uid:"), "0");
}

/// A task waits for a relay that is killed and comes back, elsewhere, and moves little twice.
#[test]
fn a_task_outlives_its_relay() {
    const FILES: usize = 60;
    let Some(mut field) = Field::alone() else { return };
    let mut relay = field.relay_site("gamma");
    field.alpha = Some(field.outbound_site("alpha"));
    field.beta = Some(field.outbound_site("beta"));
    let content = |file: usize| vec![file as u8; 1_000_000];
    for file in 0..FILES {
        field.alpha().write(&format!("many/f{file}"), content(file));
    }
    // All of them take twelve seconds, and the buffers of one connection hold a sixth: it is not over before its relay is.
    let place = format!("/v0.10/endpoint/{}", field.beta().collection);
    let slow = json!({"max_rate": 5_000_000, "network_use": "custom", "max_concurrency": 1, "preferred_concurrency": 1,
                      "max_parallelism": 1, "preferred_parallelism": 1});
    let told = field.tell("PUT", &place, &slow);
    assert_eq!(told["code"], "Updated", "{told:#}");
    let task = field.submit(&["transfer", "-r", &field.alpha().at("/many"), &field.beta().at("/copy")]);
    let token = field.token();
    let shown = || field.ask_with(&token, &format!("/v0.10/task/{task}"), None).unwrap();
    while shown()["files_transferred"].as_u64() < Some(2) {
        std::thread::yield_now();
    }
    relay.server.kill();
    while shown()["faults"].as_u64() < Some(1) {
        assert_eq!(shown()["status"], "ACTIVE", "it waits");
        std::thread::yield_now();
    }
    relay.server = field.relay_server("gamma", &relay.root, "used-up-long-ago");
    field.globus(&["task", "wait", &task, "--timeout", "120", "--polling-interval", "1"]);
    let shown = shown();
    assert_eq!((&shown["status"], &shown["files"]), (&json!("SUCCEEDED"), &json!(FILES)), "{shown:#}");
    for file in 0..FILES {
        assert!(field.beta().read(&format!("copy/f{file}")) == content(file), "file {file}");
    }
}
