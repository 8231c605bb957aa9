//! `whimbrel check` behind firewalls and with wrong addresses, at servers of either kind: it names what is in the way, and
//! says of the other direction that it works.

mod support;

use std::net::IpAddr;
use std::ops::RangeInclusive;

use serde_json::Value;
use support::dtn::Dtn;
use support::{WHIMBREL, events};
use whimbrel_testkit::lab::{Lab, Link};
use whimbrel_testkit::peers::{GridftpServer, Run, Tool, public_dir};
use whimbrel_testkit::require_root;

/// Below the ports that the system hands out by itself.
const SERVER_PORTS: RangeInclusive<u16> = 20_000..=20_009;
const CLIENT_PORTS: RangeInclusive<u16> = 21_000..=21_009;
/// Seconds until silence counts as such.
const WAIT: &str = "3";

const TO_SERVER: &str = "data connection to the server";
const FROM_SERVER: &str = "data connection from the server";
const ANNOUNCED: &str = "announced data address";
const THIS_HOST: &str = "address of this host";

#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Real,
    Own,
}

/// Servers that use [`SERVER_PORTS`] for data.
enum Server {
    Real(GridftpServer),
    Own(Dtn),
}

impl Server {
    fn url(&self, path: &str) -> String {
        match self {
            Self::Real(server) => server.url(path),
            Self::Own(server) => server.url(path),
        }
    }

    fn control_port(&self) -> u16 {
        match self {
            Self::Real(server) => server.addr().port(),
            Self::Own(server) => server.addr().port(),
        }
    }
}

/// A client, a server `src` with two addresses, and `other`, around a router that a firewall may be on.
struct Scene {
    lab: Lab,
    directory: tempfile::TempDir,
}

impl Scene {
    fn new() -> Option<Scene> {
        if !require_root() {
            return None;
        }
        let hosts = ["client", "other", "src"];
        let builder = Lab::builder().host("router").host("client").host("other").host_with_addrs("src", 2);
        let builder = hosts.iter().fold(builder, |lab, host| lab.link("router", host, Link::new()));
        let directory = public_dir().expect("directory");
        std::fs::write(directory.path().join("file"), b"listed").expect("written");
        Some(Scene { lab: builder.build().expect("laboratory"), directory })
    }

    /// The directory that is listed.
    fn listed(&self) -> String {
        self.directory.path().to_string_lossy().into_owned()
    }

    fn address(&self, host: &str) -> IpAddr {
        self.lab.host(host).addr()
    }

    /// A server of a kind on `src` that announces, or for the real one uses, a data address; `None`: it is not installed.
    fn server(&self, kind: Kind, announced: Option<IpAddr>) -> Option<Server> {
        let (src, range) = (self.lab.host("src"), [SERVER_PORTS.start(), SERVER_PORTS.end()].map(u16::to_string));
        Some(match kind {
            Kind::Real => {
                let server = GridftpServer::builder()?.on(src).env("GLOBUS_TCP_PORT_RANGE", range.join(","));
                let server = match announced {
                    Some(ip) => server.arg("-data-interface").arg(ip.to_string()),
                    None => server,
                };
                Server::Real(server.start().expect("the real server starts"))
            }
            Kind::Own => {
                let server = Dtn::on(src).anonymous().root("/".as_ref()).arg("--data-ports").arg(range.join("-"));
                let server = match announced {
                    Some(ip) => server.arg("--data-address").arg(ip.to_string()),
                    None => server,
                };
                Server::Own(server.start())
            }
        })
    }

    fn check(&self, url: &str) -> Tool {
        let range = format!("{},{}", CLIENT_PORTS.start(), CLIENT_PORTS.end());
        let tool = Tool::new(WHIMBREL).on(self.lab.host("client")).env("GLOBUS_TCP_PORT_RANGE", range);
        tool.args(["check", "--json", "--wait", WAIT, url])
    }

    /// The steps of a check that ends with this code.
    #[track_caller]
    fn steps(&self, code: i32, tool: Tool) -> Steps {
        let run = tool.run().expect("the program runs");
        assert_eq!(run.code(), Some(code), "{run}");
        Steps(run)
    }

    /// Has the router let no connections to ports through, but for one port, until it is dropped.
    fn firewall(&self, manner: Manner, ports: &RangeInclusive<u16>, except: Option<u16>) -> Firewall<'_> {
        let action = match manner {
            Manner::Drops => "blackhole",
            Manner::Refuses => "prohibit",
        };
        let all = format!("pref 11 ipproto tcp dport {}-{} {action}", ports.start(), ports.end());
        let spared = except.map(|port| format!("pref 10 ipproto tcp dport {port} lookup main"));
        let firewall = Firewall { lab: &self.lab, rules: spared.into_iter().chain([all]).collect() };
        firewall.tell("add");
        firewall
    }
}

/// What a firewall does with a packet that opens a connection.
#[derive(Clone, Copy, Debug)]
enum Manner {
    /// Nobody is told.
    Drops,
    /// The sender is told (ICMP type 3 code 13, RFC 1812 §5.2.7.1).
    Refuses,
}

/// Rules of the router's.
struct Firewall<'a> {
    lab: &'a Lab,
    rules: Vec<String>,
}

impl Firewall<'_> {
    fn tell(&self, verb: &str) {
        for rule in &self.rules {
            let words = ["rule", verb].into_iter().chain(rule.split(' '));
            Tool::new("ip").on(self.lab.host("router")).args(words).run_ok();
        }
    }
}

impl Drop for Firewall<'_> {
    fn drop(&mut self) {
        self.tell("del");
    }
}

/// What a check has found.
struct Steps(Run);

impl Steps {
    #[track_caller]
    fn step(&self, name: &str) -> Value {
        let found = events(&self.0).into_iter().find(|event| event["step"] == name);
        found.unwrap_or_else(|| panic!("no {name} in {}", self.0))
    }

    #[track_caller]
    fn works(&self, name: &str) {
        assert_eq!(self.step(name)["ok"], true, "{}", self.0);
    }

    /// This step fails; all `parts` are in what is said about it and its cure.
    #[track_caller]
    fn fails(&self, name: &str, parts: &[&str]) {
        let step = self.step(name);
        assert_eq!(step["ok"], false, "{}", self.0);
        let said = format!("{} cure: {}", step["text"].as_str().unwrap_or(""), step["cure"].as_str().unwrap_or(""));
        parts.iter().for_each(|part| assert!(said.contains(part), "{part} is not in: {said}"));
    }

    fn has_no(&self, name: &str) {
        assert!(events(&self.0).iter().all(|event| event["step"] != name), "{}", self.0);
    }
}

#[test]
fn a_blocked_control_port_is_told_from_one_where_nothing_listens() {
    let Some(scene) = Scene::new() else { return };
    let Some(server) = scene.server(Kind::Own, None) else { return };
    let (url, port) = (server.url("/"), server.control_port());
    let firewall = scene.firewall(Manner::Drops, &(port..=port), None);
    let found = scene.steps(5, scene.check(&url));
    found.fails("connect", &["no answer", &format!("a firewall drops packets to port {port}")]);
    drop(firewall);
    let firewall = scene.firewall(Manner::Refuses, &(port..=port), None);
    let found = scene.steps(5, scene.check(&url));
    found.fails("connect", &["No route to host", &format!("a firewall refuses TCP port {port}")]);
    drop(firewall);
    scene.steps(0, scene.check(&url)).works("connect");
    drop(server);
    let found = scene.steps(5, scene.check(&url));
    found.fails("connect", &["refused", &format!("nothing listens on port {port}")]);
}

#[test]
fn something_that_takes_connections_and_says_nothing_is_no_firewall() {
    let Some(scene) = Scene::new() else { return };
    let src = scene.lab.host("src");
    let silent = src.run(|| std::net::TcpListener::bind((src.addr(), 0))).expect("a port");
    let port = silent.local_addr().expect("bound").port();
    let tool = scene.check(&format!("ftp://{}:{port}/", src.addr())).arg("--lockstep");
    let closing = std::thread::spawn(move || {
        // Two attempts at most, each closed without a word.
        (0..2).for_each(|_| drop(silent.accept()));
    });
    let found = scene.steps(5, tool);
    let step = found.step("connect");
    assert!(!step["cure"].as_str().expect("a cure").contains("firewall"), "{step}");
    drop(scene.lab.host("src").run(|| std::net::TcpStream::connect((scene.address("src"), port))));
    closing.join().expect("ends");
}

#[test]
fn a_firewall_before_the_servers_data_ports_is_named() {
    for kind in [Kind::Real, Kind::Own] {
        let Some(scene) = Scene::new() else { return };
        let Some(server) = scene.server(kind, None) else { return };
        let url = server.url(&scene.listed());
        let open = scene.steps(0, scene.check(&url));
        [TO_SERVER, FROM_SERVER].iter().for_each(|step| open.works(step));
        let port = format!("{}:200", scene.address("src"));
        // The real server takes its control port from the range, too.
        let spared = Some(server.control_port());

        let firewall = scene.firewall(Manner::Drops, &SERVER_PORTS, spared);
        let found = scene.steps(5, scene.check(&url));
        found.fails(TO_SERVER, &[&port, "no answer in 3 s", "a firewall drops packets to the server's data ports"]);
        found.works(FROM_SERVER);
        found.has_no(ANNOUNCED);
        drop(firewall);

        let _firewall = scene.firewall(Manner::Refuses, &SERVER_PORTS, spared);
        let found = scene.steps(5, scene.check(&url));
        found.fails(
            TO_SERVER,
            &[&port, "No route to host", "a firewall refuses connections to the server's data ports"],
        );
        found.works(FROM_SERVER);
    }
}

#[test]
fn a_firewall_before_this_host_is_named() {
    for kind in [Kind::Real, Kind::Own] {
        let Some(scene) = Scene::new() else { return };
        let Some(server) = scene.server(kind, None) else { return };
        let url = server.url(&scene.listed());
        let at = format!("the server does not reach {}:210", scene.address("client"));
        let cure = format!("let connections from {} to ports 21000-21009 through", scene.address("src"));

        let firewall = scene.firewall(Manner::Drops, &CLIENT_PORTS, None);
        let found = scene.steps(5, scene.check(&url));
        found.fails(FROM_SERVER, &[&at, &cure]);
        found.works(TO_SERVER);
        drop(firewall);

        // A refusal that the server hears is passed on at once.
        let _firewall = scene.firewall(Manner::Refuses, &CLIENT_PORTS, None);
        let found = scene.steps(5, scene.check(&url));
        found.fails(FROM_SERVER, &[&at, "the server says", "No route to host", &cure]);
        found.works(TO_SERVER);
    }
}

#[test]
fn a_wrong_data_address_of_the_server_is_named_and_its_port_is_not() {
    for kind in [Kind::Real, Kind::Own] {
        let Some(scene) = Scene::new() else { return };
        let (other, src) = (scene.address("other"), scene.address("src"));
        // Another host, which refuses; the same where nothing answers; one that nothing leads to.
        let unknown: IpAddr = [192, 168, 1, 5].into();
        for (wrong, is_cut, said) in
            [(other, false, "refused"), (other, true, "no answer in 3 s"), (unknown, false, "unreachable")]
        {
            let Some(server) = scene.server(kind, Some(wrong)) else { return };
            let link = scene.lab.direction("router", "other");
            if is_cut {
                link.cut()
            } else {
                link.restore()
            }
            let found = scene.steps(5, scene.check(&server.url(&scene.listed())));
            let port_works = format!("at its own address {src} the same port takes the connection: {wrong} is wrong");
            found.fails(ANNOUNCED, &[&format!("announces {wrong}:200"), said, &port_works, "--data-address"]);
            found.works(TO_SERVER);
            found.works(FROM_SERVER);
        }
    }
}

#[test]
fn an_address_that_means_every_host_itself_is_named() {
    for kind in [Kind::Real, Kind::Own] {
        let Some(scene) = Scene::new() else { return };
        let Some(server) = scene.server(kind, Some([127, 0, 0, 1].into())) else { return };
        let found = scene.steps(5, scene.check(&server.url(&scene.listed())));
        found.fails(ANNOUNCED, &["announces 127.0.0.1, which every host takes for itself"]);
        found.works(TO_SERVER);
    }
}

#[test]
fn a_network_of_its_own_for_data_is_no_fault_and_its_firewall_is_told() {
    for kind in [Kind::Real, Kind::Own] {
        let Some(scene) = Scene::new() else { return };
        let second = scene.lab.host("src").addrs()[1];
        let server = match kind {
            Kind::Real => scene.server(kind, Some(second)),
            Kind::Own => Some(Server::Own(
                Dtn::on(scene.lab.host("src"))
                    .anonymous()
                    .root("/".as_ref())
                    .arg("--data-ports")
                    .arg("20000-20009")
                    .arg("--data-interface")
                    .arg(second.to_string())
                    .start(),
            )),
        };
        let Some(server) = server else { return };
        let url = server.url(&scene.listed());
        let found = scene.steps(0, scene.check(&url));
        found.works(ANNOUNCED);
        found.works(TO_SERVER);
        let _firewall = scene.firewall(Manner::Drops, &SERVER_PORTS, Some(server.control_port()));
        let found = scene.steps(5, scene.check(&url));
        let announces = format!("announces {second}:200");
        found
            .fails(TO_SERVER, &[&announces, "does not answer either", "is wrong", "or a firewall drops packets to it"]);
        found.works(FROM_SERVER);
    }
}

#[test]
fn a_wrong_address_that_this_host_tells_is_named() {
    for kind in [Kind::Real, Kind::Own] {
        let Some(scene) = Scene::new() else { return };
        let Some(server) = scene.server(kind, None) else { return };
        let (url, wrong) = (server.url(&scene.listed()), scene.address("other").to_string());
        let found = scene.steps(5, scene.check(&url).env("GLOBUS_FTP_CLIENT_DATA_IP", &wrong));
        let parts = [&format!("does not reach {wrong}:210"), "it does", "GLOBUS_FTP_CLIENT_DATA_IP is wrong"];
        found.fails(THIS_HOST, &parts);
        found.works(TO_SERVER);
        found.works(FROM_SERVER);
    }
}

#[test]
fn what_cannot_be_listed_is_no_firewall() {
    for kind in [Kind::Real, Kind::Own] {
        let Some(scene) = Scene::new() else { return };
        let Some(server) = scene.server(kind, None) else { return };
        let found = scene.steps(3, scene.check(&server.url("/no/such/place")));
        found.fails("path", &["/no/such/place", "whimbrel ls"]);
        // Without a place to list they cannot be tried, and are blamed for nothing.
        found.has_no(TO_SERVER);
        found.has_no(FROM_SERVER);
    }
}
