//! IPv6 from end to end: between hosts that reach each other by it alone, our client with servers of either kind.

mod support;

use std::net::IpAddr;
use std::path::{Path, PathBuf};

use support::dtn::Dtn;
use support::files::Files;
use support::{WHIMBREL, assert_same};
use whimbrel_testkit::lab::{Host, Lab, Link};
use whimbrel_testkit::peers::{self, Run, Tool};
use whimbrel_testkit::require_root;

struct Scene {
    lab: Lab,
    files: Files,
}

impl Scene {
    fn new() -> Option<Scene> {
        if !require_root() {
            return None;
        }
        let lab = Lab::triangle(Link::new()).expect("laboratory");
        Some(Scene { lab, files: Files::new() })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.files.path(name)
    }

    fn server(&self, host: &str) -> Dtn {
        let host = self.lab.host(host);
        Dtn::on(host).at(host.addrs_v6()[0]).anonymous().root("/".as_ref()).start()
    }

    fn whimbrel(&self, arguments: &[&str]) -> Tool {
        Tool::new(WHIMBREL).on(self.lab.host("client")).args(["-vvv"]).args(arguments)
    }

    /// Panics if anything but IPv6 has crossed the laboratory since the trace began, or nothing has.
    fn assert_only_ipv6(&self) {
        let trace = self.lab.trace().tcp();
        let ends: Vec<[IpAddr; 2]> = trace
            .records()
            .iter()
            .filter_map(|record| record.packet.map(|packet| [packet.source, packet.destination]))
            .collect();
        assert!(!ends.is_empty() && ends.iter().flatten().all(IpAddr::is_ipv6), "{ends:?}");
    }
}

/// Whether the client has said a command to a server, by the transcript that it prints.
fn said(run: &Run, command: &str) -> bool {
    let of = |line: &str| line.split_once(" > ").and_then(|(_, said)| said.split(' ').next().map(str::to_owned));
    run.stderr_text().lines().filter_map(of).any(|said| said.trim() == command)
}

fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

#[test]
fn copies_listings_and_checksums_use_nothing_else() {
    let Some(scene) = Scene::new() else { return };
    let (source, destination) = (scene.server("src"), scene.server("dst"));
    assert!(source.url("/").starts_with("ftp://[fd77:"), "{}", source.url("/"));
    let (file, tree) = (scene.path("file"), scene.path("tree"));
    scene.lab.start_trace();
    for options in [&[][..], &["-p", "4"], &["--stripe", "-p", "2"], &["--lockstep"]] {
        let copy = |from: String, to: String| {
            let run = scene.whimbrel(&["cp", "-r"]).args(options).args([from, to]).run_ok();
            assert!(!said(&run, "PASV") && !said(&run, "PORT"), "{run}");
            run
        };
        copy(text(&file), destination.url(scene.path("up")));
        copy(source.url(&file), text(&scene.path("down")));
        let across = copy(source.url(&file), destination.url(scene.path("across")));
        copy(source.url(&tree), destination.url(scene.path("trees")));
        let is_striped = options.contains(&"--stripe");
        assert!(is_striped || said(&across, "EPSV") && said(&across, "EPRT"), "{across}");
        for name in ["up", "down", "across"] {
            assert_same(&file, &scene.path(name));
            std::fs::remove_file(scene.path(name)).expect("made");
        }
        assert_same(&tree, &scene.path("trees"));
        std::fs::remove_dir_all(scene.path("trees")).expect("made");
    }
    assert!(scene.whimbrel(&["ls", &source.url(scene.path(""))]).run_ok().stdout_text().contains("file"));
    assert!(scene.whimbrel(&["stat", &source.url(&file)]).run_ok().stdout_text().contains("3000001"));
    let sum = scene.whimbrel(&["cksum", &source.url(&file)]).run_ok();
    let here = Tool::new("md5sum").arg(&file).run_ok();
    assert_eq!(sum.stdout_text().split(' ').next(), here.stdout_text().split(' ').next());
    let check = scene.whimbrel(&["check", &source.url("/")]).run_ok();
    assert_eq!(check.stdout_text().matches("ok   data connection").count(), 2, "{check}");
    scene.assert_only_ipv6();
}

/// Everyday clients take a port alone from EPSV (RFC 2428 §3), and have no PASV to fall back to.
#[test]
fn an_address_for_translated_ipv4_is_not_told_to_who_came_by_ipv6() {
    let Some(scene) = Scene::new() else { return };
    let src = scene.lab.host("src");
    let server = Dtn::on(src).at(src.addrs_v6()[0]).anonymous().root("/".as_ref());
    let server = server.arg("--data-address").arg("192.0.2.1").start();
    let fetched = Tool::new("curl").on(scene.lab.host("client")).args(["-sS", "-g", &server.url(scene.path("file"))]);
    fetched.args(["-o", &text(&scene.path("down"))]).run_ok();
    assert_same(&scene.path("file"), &scene.path("down"));
}

#[test]
fn ports_keep_to_their_ranges_and_an_interface_of_the_other_family_is_no_hindrance() {
    let Some(scene) = Scene::new() else { return };
    let src = scene.lab.host("src");
    let server = Dtn::on(src).at(src.addrs_v6()[0]).anonymous().root("/".as_ref());
    let server = server.arg("--data-ports").arg("20000-20009").arg("--data-interface").arg(src.addr().to_string());
    let server = server.start();
    let (file, down, up) = (scene.path("file"), scene.path("down"), scene.path("up"));
    scene.lab.start_trace();
    let copy = |from: String, to: String| {
        let tool = scene.whimbrel(&["cp", "-p", "2"]).args([from, to]);
        tool.env("GLOBUS_TCP_PORT_RANGE", "22000,22009").run_ok();
    };
    copy(server.url(&file), text(&down));
    copy(text(&file), server.url(&up));
    assert_same(&file, &down);
    assert_same(&file, &up);
    scene.assert_only_ipv6();
    let trace = scene.lab.trace().tcp();
    let calls = trace.records().iter().filter_map(|record| record.packet).filter(|packet| packet.opens_connection());
    let ports: Vec<u16> =
        calls.filter_map(|packet| Some(packet.ports?.1)).filter(|port| *port != server.addr().port()).collect();
    let in_range = |port: &u16| (20_000..=20_009).contains(port) || (22_000..=22_009).contains(port);
    assert!(!ports.is_empty() && ports.iter().all(in_range), "{ports:?}");
}

fn real_server(host: &Host) -> Option<peers::GridftpServer> {
    let address = host.addrs_v6()[0];
    let builder = peers::GridftpServer::builder()?.on(host).address(address);
    Some(builder.start().expect("the real server starts"))
}

#[test]
fn stock_servers_and_clients_take_part() {
    let Some(scene) = Scene::new() else { return };
    let Some(real) = real_server(scene.lab.host("src")) else { return };
    let own = scene.server("dst");
    let file = scene.path("file");
    scene.lab.start_trace();
    for (from, to) in [
        (text(&file), real.url(scene.path("up"))),
        (real.url(&file), text(&scene.path("down"))),
        (real.url(&file), own.url(scene.path("to-own"))),
        (own.url(&file), real.url(scene.path("to-real"))),
    ] {
        scene.whimbrel(&["cp", "-p", "2"]).args([from, to]).run_ok();
    }
    let mut names = vec!["up", "down", "to-own", "to-real"];
    let curl = Tool::new("curl").on(scene.lab.host("client")).args(["-sS", "-o"]).arg(scene.path("curl"));
    curl.arg(own.url(&file)).run_ok();
    names.push("curl");
    if let Some(copy) = peers::url_copy() {
        let copy = copy.on(scene.lab.host("client")).args(["-ipv6", "-fast"]);
        copy.args([own.url(&file), peers::file_url(scene.path("by-url-copy"))]).run_ok();
        names.push("by-url-copy");
    }
    names.into_iter().for_each(|name| assert_same(&file, &scene.path(name)));
    scene.assert_only_ipv6();
}
