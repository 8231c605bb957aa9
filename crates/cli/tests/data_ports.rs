//! Where data connections are: within the ports that a firewall was opened for, at the address and interface that were
//! configured, behind address translation.

mod support;

use std::fs;
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::thread;

use support::control::Control;
use support::dtn::{Dtn, DtnBuilder, until};
use support::files::Files;
use support::{WHIMBREL, assert_same, pattern};
use whimbrel_testkit::lab::{Host, Lab, Link, Packet};
use whimbrel_testkit::peers::{self, Run, Tool, public_dir};
use whimbrel_testkit::require_root;

/// Below the ports that the system hands out by itself.
const SOURCE_PORTS: RangeInclusive<u16> = 20_000..=20_015;
const DESTINATION_PORTS: RangeInclusive<u16> = 21_000..=21_015;
const CLIENT_PORTS: RangeInclusive<u16> = 22_000..=22_015;

/// A client and two servers' hosts, of which `src` has two addresses, with a file and a tree to move.
struct Scene {
    lab: Lab,
    files: Files,
}

impl Scene {
    fn new() -> Option<Scene> {
        if !require_root() {
            return None;
        }
        let lab = Lab::builder().host("client").host_with_addrs("src", 2).host("dst").mesh(Link::new());
        Some(Scene { lab: lab.build().expect("laboratory"), files: Files::new() })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.files.path(name)
    }

    /// A server of all of this machine's files.
    fn server(&self, host: &str) -> DtnBuilder {
        Dtn::on(self.lab.host(host)).anonymous().root("/".as_ref())
    }

    fn whimbrel(&self, arguments: &[&str]) -> Tool {
        Tool::new(WHIMBREL).on(self.lab.host("client")).args(arguments)
    }

    /// Packets that ask for a connection, since the trace began.
    fn calls(&self) -> Vec<Packet> {
        let packets = self.lab.trace().tcp().records().iter().filter_map(|record| record.packet).collect::<Vec<_>>();
        packets.into_iter().filter(Packet::opens_connection).collect()
    }
}

/// Whether anybody listens on one of these ports of a host. Who has dropped a socket may still be one of those who do: until a child that
/// another test is starting has become its program, it has copies of all.
fn listens(host: &Host, ports: &[u16]) -> bool {
    let table = host.run(|| fs::read_to_string("/proc/thread-self/net/tcp")).expect("a table of sockets");
    table.lines().skip(1).any(|line| {
        let fields: Vec<_> = line.split_whitespace().collect();
        // Address and port in hexadecimal; the state 0A is LISTEN.
        fields[3] == "0A" && ports.iter().any(|port| fields[1].ends_with(&format!(":{port:04X}")))
    })
}

fn words(range: &RangeInclusive<u16>, between: char) -> String {
    format!("{}{between}{}", range.start(), range.end())
}

fn destination(packet: &Packet) -> SocketAddr {
    SocketAddr::new(packet.destination, packet.ports.expect("TCP has ports").1)
}

/// Ports of `host` that were called, but for one.
fn called_ports(calls: &[Packet], host: IpAddr, control: Option<u16>) -> Vec<u16> {
    let to = calls.iter().map(destination).filter(|to| to.ip() == host);
    to.map(|to| to.port()).filter(|port| Some(*port) != control).collect()
}

#[test]
fn no_listener_for_data_leaves_the_range_of_its_host() {
    let Some(scene) = Scene::new() else { return };
    let source = scene.server("src").arg("--data-ports").arg(words(&SOURCE_PORTS, '-')).start();
    let destination = scene.server("dst").env("GLOBUS_TCP_PORT_RANGE", words(&DESTINATION_PORTS, ' ')).start();
    let (file, tree) = (scene.path("file"), scene.path("tree"));
    scene.lab.start_trace();
    let copy = |options: &[&str], from: &str, to: &str| {
        let tool = scene.whimbrel(&["cp", "-r"]).args(options).args([from, to]);
        tool.env("GLOBUS_TCP_PORT_RANGE", words(&CLIENT_PORTS, ',')).run_ok()
    };
    let (here, there) = (|path: &PathBuf| path.to_string_lossy().into_owned(), |name| scene.path(name));
    for options in [&["-p", "4"][..], &["-p", "2", "--concurrency", "2", "--stripe"]] {
        copy(options, &here(&file), &destination.url(there("up")));
        copy(options, &source.url(&file), &here(&there("down")));
        copy(options, &source.url(&file), &destination.url(there("across")));
        copy(options, &source.url(&tree), &destination.url(there("trees")));
        copy(options, &source.url(&tree), &here(&there("tree-down")));
        for name in ["up", "down", "across"] {
            assert_same(&file, &there(name));
        }
        for name in ["trees", "tree-down"] {
            assert_same(&tree, &there(name));
            std::fs::remove_dir_all(there(name)).expect("made");
        }
    }
    let mut everyday: Vec<Tool> = vec![Tool::new("curl").args(["-s", "-o"]).arg(there("curl")).arg(source.url(&file))];
    everyday
        .extend(peers::url_copy().map(|copy| {
            copy.args(["-fast", "-p", "2"]).arg(destination.url(&file)).arg(source.url(there("url-copy")))
        }));
    everyday.into_iter().for_each(|tool| drop(tool.on(scene.lab.host("client")).run_ok()));
    let calls = scene.calls();
    for (host, control, range) in [
        ("src", Some(source.addr().port()), SOURCE_PORTS),
        ("dst", Some(destination.addr().port()), DESTINATION_PORTS),
        ("client", None, CLIENT_PORTS),
    ] {
        let ports = called_ports(&calls, scene.lab.host(host).addr(), control);
        assert!(ports.iter().all(|port| range.contains(port)), "{host}: {ports:?}");
        // Not even of our own pairs does every transfer have its listener at the same end.
        assert!(!ports.is_empty() || host == "client", "{host} was never called");
    }
}

#[test]
fn the_range_of_this_host_is_where_stock_servers_call() {
    let Some(scene) = Scene::new() else { return };
    let Some(builder) = peers::GridftpServer::builder() else { return };
    let server = builder.on(scene.lab.host("src")).start().expect("the real server starts");
    scene.lab.start_trace();
    let down = scene.path("down");
    let tool = scene.whimbrel(&["cp", "-p", "4"]).arg(server.url(scene.path("file"))).arg(&down);
    tool.env("GLOBUS_TCP_PORT_RANGE", "22007").run_ok();
    assert_same(&scene.path("file"), &down);
    let ports = called_ports(&scene.calls(), scene.lab.host("client").addr(), None);
    assert!(!ports.is_empty() && ports.iter().all(|port| *port == 22_007), "{ports:?}");
}

#[test]
fn a_range_that_is_used_up_is_named_by_server_and_client() {
    let Some(scene) = Scene::new() else { return };
    let server = scene.server("src").arg("--data-ports").arg("20000-20001").start();
    let occupy = |host: &str, ports: &[u16]| -> Vec<TcpListener> {
        let host = scene.lab.host(host);
        let bind = |port: &u16| TcpListener::bind((host.addr(), *port)).expect("free");
        host.run(|| ports.iter().map(bind).collect())
    };
    let taken = occupy("src", &[20_000, 20_001]);
    let mut control = scene.lab.host("client").run(|| Control::login(server.addr()));
    let reply = control.ask_for(425, "PASV");
    assert!(reply.text.contains("no free port") && reply.text.contains("20000,20001"), "{}", reply.text);
    let (from, to) = (scene.path("file"), scene.path("to"));
    let run = scene.whimbrel(&["cp", "--attempts", "1"]).arg(&from).arg(server.url(&to)).run_failing();
    assert_eq!(run.code(), Some(5), "{run}");
    assert!(run.stderr_text().contains("no free port") && run.stderr_text().contains("20000,20001"), "{run}");
    assert!(!to.exists());
    // What was refused has not used anything up.
    assert!(listens(scene.lab.host("src"), &[20_001]));
    drop(taken);
    until("the ports are free", || !listens(scene.lab.host("src"), &[20_000, 20_001]));
    control.ask_for(227, "PASV");
    scene.whimbrel(&["cp"]).arg(&from).arg(server.url(&to)).run_ok();
    assert_same(&from, &to);
}

#[test]
fn a_range_that_cannot_be_understood_is_a_wrong_command() {
    let Some(scene) = Scene::new() else { return };
    let server = scene.server("src").start();
    for (variable, wrong) in [
        ("GLOBUS_TCP_PORT_RANGE", "50000,many"),
        ("GLOBUS_TCP_PORT_RANGE", "51000-50000"),
        ("GLOBUS_FTP_CLIENT_DATA_IP", "gateway"),
    ] {
        let tool = scene.whimbrel(&["cp"]).arg(server.url(scene.path("file"))).arg(scene.path("to"));
        let run = tool.env(variable, wrong).run_failing();
        assert_eq!(run.code(), Some(2), "{run}");
        assert!(run.stderr_text().contains(&format!("{variable}={wrong}")), "{run}");
    }
    let tool = scene.whimbrel(&["cp"]).arg(server.url(scene.path("file"))).arg(scene.path("to"));
    tool.env("GLOBUS_TCP_PORT_RANGE", "").env("GLOBUS_FTP_CLIENT_DATA_IP", "").run_ok();
}

#[test]
fn control_and_data_have_networks_of_their_own() {
    let Some(scene) = Scene::new() else { return };
    let [control, data] = scene.lab.host("src").addrs() else { panic!("src has two addresses") };
    let server = scene.server("src").arg("--data-interface").arg(data.to_string()).start();
    let other = scene.server("dst").start();
    assert_eq!(server.addr().ip(), *control);
    let (file, client) = (scene.path("file"), scene.lab.host("client"));
    scene.lab.start_trace();
    let url = server.url(&file);
    let mut names = Vec::new();
    let mut copy = |name: &str, tool: &dyn Fn(&str) -> Tool| {
        tool(&scene.path(name).to_string_lossy()).on(client).run_ok();
        names.push(name.to_owned());
    };
    copy("down", &|to| Tool::new(WHIMBREL).args(["cp", "-p", "2", &url, to]));
    copy("up", &|to| Tool::new(WHIMBREL).args(["cp", "-p", "2", &file.to_string_lossy(), &server.url(to)]));
    copy("across", &|to| Tool::new(WHIMBREL).args(["cp", "-p", "2", &url, &other.url(to)]));
    copy("back", &|to| Tool::new(WHIMBREL).args(["cp", "-p", "2", &other.url(&file), &server.url(to)]));
    // Everyday clients begin with EPSV, which has no words for another address, and believe that of PASV when told so.
    copy("curl", &|to| Tool::new("curl").args(["-sS", "--no-ftp-skip-pasv-ip", "-o", to, &url]));
    copy("curl-active", &|to| Tool::new("curl").args(["-sS", "-P", "-", "-o", to, &url]));
    let script = |to: &str| format!("set net:max-retries 1; get {} -o {to}; bye", file.display());
    copy("lftp", &|to| Tool::new("lftp").args(["-e", &script(to), &format!("ftp://{}", server.addr())]));
    if peers::url_copy().is_some() {
        let url_copy = || peers::url_copy().expect("it is here");
        copy("fast", &|to| url_copy().args(["-fast", &other.url(&file), &server.url(to)]));
        copy("stream", &|to| url_copy().args([&url, &peers::file_url(to)]));
    }
    for name in &names {
        assert_same(&file, &scene.path(name));
    }
    for call in scene.calls() {
        let to = destination(&call);
        let is_control = to == server.addr();
        assert!(to.ip() != *control || is_control, "data went to {to}");
        assert!(call.source != *control, "data came from the control address: {call:?}");
    }
    let came = scene.calls().iter().filter(|call| call.destination == *data).count();
    let went = scene.calls().iter().filter(|call| call.source == *data).count();
    assert!(came > 4 && went > 2, "{came} came and {went} went");
}

/// Passes connections at ports of a host on to the same ports of another, as address translation does for a server inside.
fn forward(gateway: &Host, ports: &[u16], inside: IpAddr) {
    gateway.run(|| {
        for &port in ports {
            let listener = TcpListener::bind((gateway.addr(), port)).expect("free");
            // Ends with the test's process.
            thread::spawn(move || {
                for outer in listener.incoming().map_while(Result::ok) {
                    thread::spawn(move || {
                        if let Ok(inner) = TcpStream::connect((inside, port)) {
                            join(outer, inner);
                        }
                    });
                }
            });
        }
    });
}

fn join(outer: TcpStream, inner: TcpStream) {
    let pass = |mut from: TcpStream, mut to: TcpStream| {
        let mut buffer = [0; 64 << 10];
        while let Ok(count @ 1..) = from.read(&mut buffer) {
            if to.write_all(&buffer[..count]).is_err() {
                break;
            }
        }
        // The other side may have closed already.
        let _ = to.shutdown(std::net::Shutdown::Write);
    };
    let (Ok(outer_again), Ok(inner_again)) = (outer.try_clone(), inner.try_clone()) else { return };
    let back = thread::spawn(move || pass(inner_again, outer_again));
    pass(outer, inner);
    back.join().expect("it ends");
}

/// A server inside, a gateway before it that passes its ports on, and a client that knows the gateway alone.
fn behind_a_gateway(address: impl Fn(IpAddr) -> Vec<String>) -> Option<(Lab, tempfile::TempDir, Dtn, String)> {
    if !require_root() {
        return None;
    }
    let lab = Lab::builder().host("client").host("gateway").host("inside");
    let lab = lab.link("client", "gateway", Link::new()).link("gateway", "inside", Link::new()).build();
    let lab = lab.expect("laboratory");
    lab.host("gateway").set_sysctl("net.ipv4.ip_forward", "0").expect("set");
    let directory = public_dir().expect("directory");
    std::fs::write(directory.path().join("file"), pattern(2_000_003)).expect("written");
    let gateway = lab.host("gateway");
    let server = Dtn::on(lab.host("inside")).anonymous().root(directory.path());
    let server = server.arg("--data-ports").arg(words(&SOURCE_PORTS, '-'));
    let server = address(gateway.addr()).into_iter().fold(server, DtnBuilder::arg).start();
    let port = server.addr().port();
    let ports: Vec<u16> = SOURCE_PORTS.chain([port]).collect();
    forward(gateway, &ports, lab.host("inside").addr());
    let url = format!("ftp://{}:{port}", gateway.addr());
    Some((lab, directory, server, url))
}

#[test]
fn a_server_behind_address_translation_is_reached_at_the_address_it_tells() {
    let told = |gateway: IpAddr| vec!["--data-address".to_owned(), gateway.to_string()];
    let Some((lab, directory, _server, url)) = behind_a_gateway(told) else { return };
    let (client, file) = (lab.host("client"), directory.path().join("file"));
    let here = public_dir().expect("directory");
    let down = |name: &str| here.path().join(name);
    let run = |tool: Tool| -> Run { tool.on(client).run_ok() };
    run(Tool::new(WHIMBREL).args(["cp", &format!("{url}/file")]).arg(down("cp")));
    run(Tool::new(WHIMBREL).args(["cp", "-p", "3"]).arg(&file).arg(format!("{url}/up")));
    run(Tool::new("curl").args(["-sS", "-o"]).arg(down("curl")).arg(format!("{url}/file")));
    run(Tool::new("curl").args(["-sS", "--disable-epsv", "-o"]).arg(down("pasv")).arg(format!("{url}/file")));
    assert!(run(Tool::new(WHIMBREL).args(["ls", &url])).stdout_text().contains("up"));
    for copy in [down("cp"), down("curl"), down("pasv"), directory.path().join("up")] {
        assert_same(&file, &copy);
    }
    if let Some(copy) = peers::url_copy() {
        run(copy.args(["-fast", "-p", "2"]).arg(peers::file_url(&file)).arg(format!("{url}/by-url-copy")));
        assert_same(&file, &directory.path().join("by-url-copy"));
    }
}

#[test]
fn without_the_address_of_its_gateway_a_servers_own_one_is_named_as_wrong() {
    let Some((lab, _directory, server, url)) = behind_a_gateway(|_| Vec::new()) else { return };
    let run = Tool::new(WHIMBREL).on(lab.host("client")).args(["check", "--wait", "2", &url]).run_failing();
    assert_eq!(run.code(), Some(5), "{run}");
    let said = run.stdout_text();
    let (inside, gateway) = (server.addr().ip(), lab.host("gateway").addr());
    assert!(said.contains(&format!("FAIL announced data address: the server announces {inside}:200")), "{run}");
    let works = format!("at its own address {gateway} the same port takes the connection: {inside} is wrong");
    assert!(said.contains(&works) && said.contains("--data-address"), "{run}");
    assert!(said.contains("ok   data connection to the server"), "{run}");
}
