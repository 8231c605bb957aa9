//! The real programs start, work together and stop: what interoperability tests stand on.

use std::fs;
use std::net::TcpStream;
use std::time::Duration;

use whimbrel_testkit::dataset::{self, Compare};
use whimbrel_testkit::lab::{Host, Lab, Link};
use whimbrel_testkit::peers::{self, GridftpServer, Tool, file_url, public_dir};
use whimbrel_testkit::require_root;

#[test]
fn the_server_serves_its_clients_and_is_gone_afterwards() {
    let (Some(server), Some(copy)) = (GridftpServer::builder(), peers::url_copy()) else { return };
    let server = server.start().expect("started");
    let directory = public_dir().expect("directory");
    let (from, to) = (directory.path().join("from file"), directory.path().join("to file"));
    dataset::random_file(&from, 3 << 20, 1).expect("made");
    copy.arg("-fast").arg(server.url(&from)).arg(file_url(&to)).run_ok();
    Compare::contents().assert_same(&from, &to);
    let address = server.addr();
    drop(server);
    assert!(TcpStream::connect(address).is_err(), "it still listens");
}

#[test]
fn a_failing_client_says_why() {
    let (Some(server), Some(copy)) = (GridftpServer::builder(), peers::url_copy()) else { return };
    let server = server.start().expect("started");
    let run = copy.arg(server.url("/no/such/file")).arg("file:///dev/null").run_failing();
    assert!(run.stderr_text().contains("No such file"), "{run}");
}

#[test]
fn third_party_copies_cross_the_laboratory_between_three_hosts() {
    if !require_root() {
        return;
    }
    let (Some(server), Some(copy)) = (GridftpServer::builder(), peers::url_copy()) else { return };
    let lab = Lab::triangle(Link::new().rtt(Duration::from_millis(4)).rate_mbit(1000)).expect("laboratory");
    let directory = public_dir().expect("directory");
    let (from, to) = (directory.path().join("from"), directory.path().join("to"));
    dataset::random_file(&from, 8 << 20, 2).expect("made");
    let source = server.clone().on(lab.host("src")).start().expect("started");
    let sink = server.on(lab.host("dst")).start().expect("started");
    copy.on(lab.host("client")).args(["-fast", "-p", "4"]).arg(source.url(&from)).arg(sink.url(&to)).run_ok();
    Compare::contents().assert_same(&from, &to);
    assert!(lab.direction("src", "dst").counters().delivered_bytes > 8 << 20);
    assert!(lab.link("client", "dst").counters().bytes < 1 << 20, "data took the client's path");
}

#[test]
fn the_peers_tiny_third_party_copy_costs_as_many_round_trips_as_is_known() {
    if !require_root() {
        return;
    }
    let (Some(server), Some(copy)) = (GridftpServer::builder(), peers::url_copy()) else { return };
    let rtt = Duration::from_millis(100);
    let lab = Lab::builder().host("src").host("dst").mesh(Link::new().rtt(rtt)).lockstep().build().expect("laboratory");
    let directory = public_dir().expect("directory");
    let (from, to) = (directory.path().join("from"), directory.path().join("to"));
    fs::write(&from, b"1").expect("made");
    let source = server.clone().on(lab.host("src")).start().expect("started");
    let sink = server.on(lab.host("dst")).start().expect("started");
    // Beside the source, which so costs no trips.
    let copy = copy.on(lab.host("src")).arg(source.url(&from)).arg(sink.url(&to));
    lab.start_trace();
    let run = copy.run_ok();
    let trips = f64::from(lab.trace().one_way_trips("src", lab.at(run.ended))) / 2.0;
    let clock = run.wall.as_secs_f64() / rtt.as_secs_f64();
    println!("{trips:.1} round trips, {clock:.1} from start to exit by the clock");
    assert!((11.0..=14.0).contains(&trips), "{trips}\n{}", lab.trace());
}

#[test]
fn each_data_node_of_a_striped_server_moves_its_share() {
    if !require_root() {
        return;
    }
    let (Some(server), Some(copy)) = (GridftpServer::builder(), peers::url_copy()) else { return };
    let wire = Link::new().rtt(Duration::from_millis(2));
    let lab = Lab::builder().host("client").host_with_addrs("src", 3).host("dst").host("node1").host("node2");
    let lab = lab.mesh(wire).build().expect("laboratory");
    let directory = public_dir().expect("directory");
    let (from, to) = (directory.path().join("from"), directory.path().join("to"));
    dataset::random_file(&from, 16 << 20, 3).expect("made");
    // The source has its data nodes on two more addresses of one host, the destination on two more hosts.
    let (src, node1, node2) = (lab.host("src"), lab.host("node1"), lab.host("node2"));
    let source = server.clone().on(src).data_node(src.addrs()[1]).data_node(src.addrs()[2]).start().expect("started");
    let sink = server.on(lab.host("dst")).data_node_on(node1, node1.addr()).data_node_on(node2, node2.addr());
    let sink = sink.start().expect("started");
    assert_eq!((sink.nodes().len(), sink.ids().len()), (2, 3));
    copy.on(lab.host("client")).arg("-stripe").arg(source.url(&from)).arg(sink.url(&to)).run_ok();
    Compare::contents().assert_same(&from, &to);
    for node in ["node1", "node2"] {
        let bytes = lab.direction("src", node).counters().delivered_bytes;
        assert!(bytes > 4 << 20, "{node} took {bytes} bytes of 16 MiB");
    }
}

/// Fetches, or asks about, a file of eight bytes with each everyday client, on a host of a laboratory or right here.
///
/// For curl, a path without a second slash is relative to the login directory (RFC 1738 §3.2.2).
fn everyday_clients(server: &GridftpServer, host: Option<&Host>) {
    let directory = public_dir().expect("directory");
    fs::write(directory.path().join("file"), b"whimbrel").expect("made");
    let (address, port, path) = (server.addr().ip(), server.addr().port(), directory.path().display());
    let url = server.url(directory.path().join("file"));
    let check = |tool: Option<Tool>, expected: &str| {
        let placed = tool.map(|tool| host.into_iter().fold(tool, Tool::on));
        placed.into_iter().for_each(|tool| assert_eq!(tool.run_ok().stdout_text(), expected));
    };
    check(peers::curl().map(|curl| curl.arg(server.url(format!("/{path}/file")))), "whimbrel");
    check(peers::lftp(&format!("open -p {port} {address}; cat {path}/file")), "whimbrel");
    let script = format!(
        "import ftplib\nftp = ftplib.FTP()\nftp.connect('{address}', {port})\nftp.login()\n\
         ftp.retrbinary('RETR {path}/file', lambda block: print(block.decode(), end=''))\nftp.quit()\n"
    );
    check(peers::python(&script), "whimbrel");
    check(peers::gfal2(&format!("import gfal2\nprint(gfal2.creat_context().stat('{url}').st_size)\n")), "8\n");
}

#[test]
fn everyday_clients_run_on_this_machine() {
    let Some(server) = GridftpServer::builder() else { return };
    everyday_clients(&server.start().expect("started"), None);
}

#[test]
fn everyday_clients_run_in_the_laboratory() {
    if !require_root() {
        return;
    }
    let Some(server) = GridftpServer::builder() else { return };
    let lab = Lab::triangle(Link::new().rtt(Duration::from_millis(2))).expect("laboratory");
    everyday_clients(&server.on(lab.host("src")).start().expect("started"), Some(lab.host("client")));
}
