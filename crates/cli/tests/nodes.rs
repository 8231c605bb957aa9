//! Data nodes come and go, also in the middle of a transfer, and strangers are kept out.

mod support;

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{IpAddr, TcpStream};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use support::cluster::{Cluster, Ground, Kind};
use support::control::{Control, block, header};
use support::dtn::{Dtn, PATIENCE, data_node, data_node_command, until};
use support::{Field, WHIMBREL, expect, pattern};
use whimbrel_testkit::dataset::Compare;
use whimbrel_testkit::lab::Link;
use whimbrel_testkit::peers::{self, Daemon, Tool};
use whimbrel_testkit::require_root;

/// Written so slowly that a node can be killed in the middle: 2 x 40 Mbit/s.
const LARGE: u64 = 40_000_000;
const SLOW_MBIT: u64 = 40;

/// Sent at first by a guest who takes time.
const HALF: usize = 100_000;

const EOF: u8 = 0x40;
const EOD: u8 = 0x08;

fn secret(directory: &Path, name: &str, text: &str) -> std::path::PathBuf {
    let path = directory.join(name);
    std::fs::write(&path, text).expect("written");
    path
}

/// Copies something from and to the server itself.
#[track_caller]
fn assert_serves(server: &Dtn, field: &Field, name: &str) {
    let to = format!("to/{name}");
    expect(0, ["cp", "--stripe", &server.url(field.path("from/deep/er/big")), &server.url(field.path(&to))]);
    Compare::contents().assert_same(&field.path("from/deep/er/big"), &field.path(&to));
}

/// Addresses that the nodes listen at for this session.
fn listeners(control: &mut Control) -> Vec<IpAddr> {
    control.striped_passive().into_iter().map(|address| address.ip()).collect()
}

#[test]
fn nodes_join_and_leave_while_sessions_go_on() {
    let field = Field::new();
    let secret = secret(&field.path(""), "secret", "sixteen bytes or more");
    let server = Dtn::builder().anonymous().front(&secret).start();
    let node = |last: u8| data_node(None, IpAddr::from([127, 0, 0, last]), server.node_addr(), &secret);
    let mut session = Control::login(server.addr());
    session.ask_for(200, "MODE E");
    assert_eq!(listeners(&mut session), [IpAddr::from([127, 0, 0, 1])], "without nodes the front serves");
    assert_serves(&server, &field, "none");

    let first = node(2);
    server.wait_for_nodes(1);
    assert_eq!(Control::login(server.addr()).striped_passive()[0].ip(), IpAddr::from([127, 0, 0, 2]));
    assert_serves(&server, &field, "one");
    let second = node(3);
    server.wait_for_nodes(2);
    let both: Vec<IpAddr> = vec![[127, 0, 0, 2].into(), [127, 0, 0, 3].into()];
    assert!(listeners(&mut session).ends_with(&both), "a session that was open before uses them too");
    assert_serves(&server, &field, "two");

    assert!(first.stop(PATIENCE).expect("it ends").success(), "a node that is asked to leave does");
    server.wait_for_nodes(1);
    until("the end of the first node in the session", || listeners_of(&server) == both[1..]);
    assert_serves(&server, &field, "one again");
    second.kill();
    server.wait_for_nodes(0);
    assert_serves(&server, &field, "none again");
    let back = node(2);
    server.wait_for_nodes(1);
    assert_eq!(listeners_of(&server), both[..1]);
    assert_serves(&server, &field, "rejoined");
    drop(back);
}

#[test]
fn a_data_handle_on_one_node_closes_the_one_before_on_all() {
    let field = Field::new();
    let secret = secret(&field.path(""), "secret", "sixteen bytes or more");
    let server = Dtn::builder().anonymous().front(&secret).start();
    let node = |last: u8| data_node(None, IpAddr::from([127, 0, 0, last]), server.node_addr(), &secret);
    let _nodes = [node(2), node(3)];
    server.wait_for_nodes(2);
    let mut session = Control::login(server.addr());
    session.ask_for(200, "MODE E");
    let before = session.striped_passive();
    assert_eq!(before.len(), 2);
    session.passive();
    for address in before {
        until("nobody listens there", || TcpStream::connect(address).is_err());
    }
}

/// Stores something; the number of the account that has it then.
#[track_caller]
fn owner_of_stored(control: &mut Control, field: &Field, name: &str) -> u32 {
    let path = field.path("to").join(name);
    let data = control.passive();
    control.say(&format!("STOR {}", path.display()));
    TcpStream::connect(data).expect("it listens").write_all(b"mine").expect("taken");
    assert_eq!(control.last_reply().code, 226);
    std::fs::metadata(path).expect("stored").uid()
}

/// Nobody's files are written by a node of another account: each login has the nodes of its own, or is refused.
#[test]
fn a_login_uses_the_nodes_that_have_its_account_and_no_others() {
    if !require_root() {
        return;
    }
    const DAEMON: u32 = 1;
    const NOBODY: u32 = 65_534;
    let field = Field::new();
    let secret = secret(&field.path(""), "secret", "sixteen bytes or more");
    let hash = Tool::new(WHIMBREL).args(["dtn", "--hash-password"]).input("right").run_ok().stdout_text();
    let users = field.path("users");
    std::fs::write(&users, format!("ada:{}:daemon\n", hash.trim())).expect("made");
    let server =
        Dtn::builder().anonymous().arg("--users").arg(&users).arg("--clear-text-passwords").front(&secret).start();
    let log_in = || {
        let mut control = Control::open(server.addr());
        assert_eq!(control.ask("USER ada").code, 331);
        let reply = control.ask("PASS right");
        (control, reply)
    };
    let (mut early, reply) = log_in();
    assert_eq!(reply.code, 230, "{}", reply.text);
    assert_eq!(owner_of_stored(&mut early, &field, "early"), DAEMON);

    let _nobodys = data_node(None, [127, 0, 0, 2].into(), server.node_addr(), &secret);
    server.wait_for_nodes(1);
    let mut guest = Control::login(server.addr());
    assert_eq!(owner_of_stored(&mut guest, &field, "guest"), NOBODY);
    let (_, reply) = log_in();
    assert_eq!(reply.code, 530, "{}", reply.text);
    assert!(reply.text.contains("daemon") && reply.text.contains("--anonymous-user"), "{}", reply.text);
    server.wait_for_log(&["login refused", "no data node", "daemon"]);
    assert_eq!(owner_of_stored(&mut early, &field, "still"), DAEMON, "who was there before goes on as before");

    let mut command = data_node_command(None, [127, 0, 0, 3].into(), server.node_addr(), &secret);
    command.args(["--anonymous-user", "daemon"]);
    let joined = |line: &str| line.starts_with("joined ").then_some(());
    let _daemons = Daemon::start(command, PATIENCE, joined).expect("the node joins");
    server.wait_for_nodes(2);
    let (mut late, reply) = log_in();
    assert_eq!(reply.code, 230, "{}", reply.text);
    assert_eq!(owner_of_stored(&mut late, &field, "late"), DAEMON);
    late.ask_for(200, "MODE E");
    assert_eq!(listeners(&mut late), [IpAddr::from([127, 0, 0, 3])]);
    assert_eq!(listeners_of(&server), [IpAddr::from([127, 0, 0, 2])]);
}

/// What a front writes down, and allows, is about its own host; a node's administrator decides for his.
#[test]
fn a_node_keeps_its_own_log_and_its_own_word_about_changes() {
    let field = Field::new();
    let secret = secret(&field.path(""), "secret", "sixteen bytes or more");
    let (fronts, nodes) = (field.path("front.log"), field.path("node.log"));
    let server = Dtn::builder().anonymous().arg("--transfer-log").arg(&fronts).front(&secret).start();
    let mut command = data_node_command(None, [127, 0, 0, 2].into(), server.node_addr(), &secret);
    command.arg("--read-only").arg("--transfer-log").arg(&nodes);
    let joined = |line: &str| line.starts_with("joined ").then_some(());
    let _node = Daemon::start(command, PATIENCE, joined).expect("the node joins");
    server.wait_for_nodes(1);
    let file = field.path("from/deep/er/big");
    let run = Tool::new(WHIMBREL).args(["cp"]).arg(&file).arg(server.url(field.path("to/refused"))).run_failing();
    assert!(run.stderr_text().contains("read-only") || run.stderr_text().contains("ReadOnly"), "{run}");
    assert!(!field.path("to/refused").exists());
    expect(0, ["cp", &server.url(&file), &field.path("to/fetched").display().to_string()]);
    let log = std::fs::read_to_string(&nodes).expect("written");
    assert!(log.contains("big ") && log.contains("CODE=226"), "{log}");
    assert_eq!(std::fs::read_to_string(&fronts).expect("made at the start"), "");

    for (option, value) in [("--transfer-log", "/nowhere/log"), ("--metrics", "127.0.0.1:0")] {
        let mut command = data_node_command(None, [127, 0, 0, 3].into(), server.node_addr(), &secret);
        let output = command.args([option, value]).output().expect("started");
        assert_eq!(output.status.code(), Some(2), "{option}");
    }
}

/// A guest who sends a file in blocks, and has sent the first.
fn half_sent(server: &Dtn, path: &Path) -> (Control, TcpStream) {
    let (mut guest, data) = Control::extended(server.addr());
    guest.say(&format!("STOR {}", path.display()));
    let mut stream = TcpStream::connect(data).expect("the node listens");
    stream.write_all(&block(0, 0, &pattern(HALF)[..])).expect("taken");
    assert_eq!(guest.reply().code, 150);
    (guest, stream)
}

#[test]
fn a_node_that_is_asked_to_leave_finishes_what_it_runs_and_gets_nothing_new() {
    let field = Field::new();
    let secret = secret(&field.path(""), "secret", "sixteen bytes or more");
    let server = Dtn::builder().anonymous().front(&secret).start();
    let mut node = data_node(None, [127, 0, 0, 2].into(), server.node_addr(), &secret);
    server.wait_for_nodes(1);
    let stays = data_node(None, [127, 0, 0, 3].into(), server.node_addr(), &secret);
    server.wait_for_nodes(2);
    let both: Vec<IpAddr> = vec![[127, 0, 0, 2].into(), [127, 0, 0, 3].into()];
    // The least loaded node gets a session: the first of both.
    let (mut guest, mut stream) = half_sent(&server, &field.path("to/whole"));
    assert_eq!(stream.peer_addr().expect("connected").ip(), both[0]);
    let mut idle = Control::login(server.addr());
    idle.ask_for(200, "MODE E");
    assert_eq!(listeners(&mut idle), both);

    signal("-TERM", node.id());
    until("the word that the node leaves", || server.log().contains("takes no new work"));
    until("sessions without the node", || listeners_of(&server) == both[1..]);
    assert_eq!(listeners(&mut idle), both[1..], "nor does a session that knew it use it");
    assert_serves(&server, &field, "meanwhile");
    assert!(!server.log().contains("data node left"), "it is still there for what it runs");

    stream.write_all(&block(0, HALF as u64, b"the end")).expect("taken");
    stream.write_all(&header(EOF | EOD, 0, 1)).expect("taken");
    assert_eq!(guest.last_reply().code, 226);
    let whole = [&pattern(HALF)[..], b"the end"].concat();
    assert!(std::fs::read(field.path("to/whole")).expect("stored") == whole);
    server.wait_for_nodes(1);
    assert!(node.wait(PATIENCE).expect("it ends by itself").success());
    assert_serves(&server, &field, "after");
    drop(stays);
}

#[test]
fn a_node_whose_time_to_leave_is_up_is_gone_and_the_transfer_says_so() {
    let field = Field::new();
    let secret = secret(&field.path(""), "secret", "sixteen bytes or more");
    let server = Dtn::builder().anonymous().front(&secret).start();
    let mut command = data_node_command(None, [127, 0, 0, 2].into(), server.node_addr(), &secret);
    command.args(["--drain-timeout", "1"]);
    let joined = |line: &str| line.starts_with("joined ").then_some(());
    let (mut node, ()) = Daemon::start(command, PATIENCE, joined).expect("the node joins");
    server.wait_for_nodes(1);
    let (mut guest, stream) = half_sent(&server, &field.path("to/part"));
    signal("-TERM", node.id());
    assert_eq!(guest.last_reply().code, 426);
    assert!(node.wait(PATIENCE).expect("it ends").success());
    server.wait_for_nodes(0);
    assert!(!field.path("to/part").exists(), "half a file has no name");
    drop(stream);
}

fn listeners_of(server: &Dtn) -> Vec<IpAddr> {
    listeners(&mut Control::login(server.addr()))
}

#[test]
fn a_node_joins_again_when_its_data_process_was_lost() {
    let field = Field::new();
    let secret = secret(&field.path(""), "secret", "sixteen bytes or more");
    let server = Dtn::builder().anonymous().front(&secret).start();
    let node = data_node(None, [127, 0, 0, 2].into(), server.node_addr(), &secret);
    server.wait_for_nodes(1);
    let worker = whimbrel_testkit::cpu::tree(&[node.id()]).into_iter().find(|id| *id != node.id());
    kill(worker.expect("a node has a data process"));
    until("the node's return", || node.log().matches("joined ").count() == 2);
    server.wait_for_nodes(1);
    assert_serves(&server, &field, "again");
}

#[test]
fn a_killed_nodes_data_process_does_not_outlive_it() {
    let field = Field::new();
    let secret = secret(&field.path(""), "secret", "sixteen bytes or more");
    let server = Dtn::builder().anonymous().front(&secret).start();
    let node = data_node(None, [127, 0, 0, 2].into(), server.node_addr(), &secret);
    server.wait_for_nodes(1);
    // Only the one process, as the kernel does when memory runs out.
    kill(node.id());
    server.wait_for_nodes(0);
    assert_serves(&server, &field, "without");
}

fn kill(process: u32) {
    signal("-KILL", process);
}

fn signal(signal: &str, process: u32) {
    Tool::new("kill").args([signal, &process.to_string()]).run_ok();
}

#[test]
fn strangers_do_not_become_nodes_nor_keep_nodes_out() {
    let field = Field::new();
    let right = secret(&field.path(""), "secret", "sixteen bytes or more");
    let wrong = secret(&field.path(""), "wrong", "another secret of length");
    let server = Dtn::builder().anonymous().front(&right).start();
    let mut mute = TcpStream::connect(server.node_addr()).expect("it listens");
    mute.write_all(&[0x16, 3, 1]).expect("taken");
    let mut noisy = TcpStream::connect(server.node_addr()).expect("it listens");
    noisy.write_all(&[0xff; 4096]).expect("taken");
    let refused = data_node_command(None, [127, 0, 0, 2].into(), server.node_addr(), &wrong).output().expect("runs");
    assert_eq!(refused.status.code(), Some(2));
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(said.contains("does not know the node secret"), "{said}");
    server.wait_for_log(&["data node refused"]);
    assert_eq!(listeners_of(&server), [IpAddr::from([127, 0, 0, 1])], "nobody has joined");
    let _node = data_node(None, [127, 0, 0, 2].into(), server.node_addr(), &right);
    server.wait_for_nodes(1);
    assert_serves(&server, &field, "file");
    let short = secret(&field.path(""), "short", "short");
    let run = data_node_command(None, [127, 0, 0, 2].into(), server.node_addr(), &short).output().expect("runs");
    assert_eq!(run.status.code(), Some(2), "{}", String::from_utf8_lossy(&run.stderr));
}

/// A source and a destination with two nodes each, joined by slow links.
fn slow(kinds: [Kind; 2]) -> Option<(Ground, Cluster, Cluster)> {
    let wire = Link::new().rtt(Duration::from_millis(2)).rate_mbit(SLOW_MBIT);
    let ground = Ground::new(wire, 2, LARGE)?;
    for sender in ["s1", "s2"] {
        // Small, or a sender is done, and can no longer be missed, long before its bytes have arrived.
        ground.lab.host(sender).set_sysctl("net.ipv4.tcp_wmem", "4096 65536 262144").expect("set");
    }
    let source = Cluster::start(&ground, kinds[0], "src", &["s1", "s2"])?;
    let destination = Cluster::start(&ground, kinds[1], "dst", &["d1", "d2"])?;
    Some((ground, source, destination))
}

fn nodes(cluster: &mut Cluster) -> &mut Vec<Daemon> {
    match cluster {
        Cluster::Own { nodes, .. } => nodes,
        Cluster::Real(..) => panic!("only ours lose nodes here"),
    }
}

fn received(ground: &Ground) -> u64 {
    let bytes = |host: &str| ground.lab.direction("router", host).counters().delivered_bytes;
    bytes("d1") + bytes("d2")
}

/// `whimbrel cp --stripe` while one node of the source (0) or the destination (1) is killed.
fn cp_survives_the_loss(kinds: [Kind; 2], victim: usize) {
    let Some((ground, source, destination)) = slow(kinds) else { return };
    let mut clusters = [source, destination];
    let (from, to) = (clusters[0].url("from"), clusters[1].url("to"));
    let mut command = ground.lab.host("client").command(WHIMBREL);
    command.args(["--json", "cp", "--stripe", &from, &to]).stdout(Stdio::piped());
    let mut child = command.spawn().expect("starts");
    let (mut killed, mut resumed, mut last) = (false, 0, serde_json::Value::Null);
    for line in BufReader::new(child.stdout.take().expect("piped")).lines() {
        let event: serde_json::Value = serde_json::from_str(&line.expect("text")).expect("one event a line");
        if event["event"] == "progress" && !killed && event["bytes_done"].as_u64() > Some(LARGE / 5) {
            nodes(&mut clusters[victim]).remove(1).kill();
            killed = true;
        }
        if event["event"] == "started" {
            resumed = event["resumed"].as_u64().expect("a number");
        }
        last = event;
    }
    assert_eq!(child.wait().expect("ends").code(), Some(0), "{last}");
    assert!(killed, "the copy was too fast to be cut");
    Compare::contents().assert_same(&ground.path("from"), &ground.path("to"));
    let moved = received(&ground);
    println!("{kinds:?}, node of {victim} lost: {resumed} bytes kept of {LARGE}, {moved} moved in all");
    assert!(resumed >= LARGE / 5, "only {resumed} bytes were kept");
    // Headers and acknowledgements are in the count, and a second's work may be lost with a node.
    assert!(moved < LARGE + LARGE / 2, "{moved} bytes were moved");
    // The one that was lost comes back, and serves.
    let Cluster::Own { front, .. } = &clusters[victim] else { unreachable!("it lost a node") };
    let host = ground.lab.host(["s2", "d2"][victim]);
    let _back = data_node(Some(host), host.addr(), front.node_addr(), &ground.path("secret"));
    front.wait_for_nodes(2);
    let session = ground.lab.host("client").run(|| Control::login(front.addr()).striped_passive().len());
    assert_eq!(session, 2);
}

#[test]
fn a_copy_survives_the_loss_of_a_receiving_node() {
    cp_survives_the_loss([Kind::Own, Kind::Own], 1);
}

#[test]
fn a_copy_survives_the_loss_of_a_sending_node() {
    cp_survives_the_loss([Kind::Own, Kind::Own], 0);
}

#[test]
fn a_copy_from_real_nodes_survives_the_loss_of_a_receiving_node() {
    cp_survives_the_loss([Kind::Real, Kind::Own], 1);
}

#[test]
fn url_copy_restarts_after_the_loss_of_a_receiving_node_with_what_is_missing() {
    let Some((ground, source, mut destination)) = slow([Kind::Real, Kind::Own]) else { return };
    let Some(copy) = peers::url_copy() else { return };
    let copy = copy.on(ground.lab.host("client")).args(["-stripe", "-rst", "-rst-interval", "1", "-rst-retries", "5"]);
    let copy = copy.arg(source.url("from")).arg(destination.url("to"));
    std::thread::scope(|scope| {
        let copy = scope.spawn(|| copy.run_ok());
        until("half of the file", || received(&ground) > LARGE / 2);
        nodes(&mut destination).remove(1).kill();
        copy.join().expect("the copy goes well");
    });
    Compare::contents().assert_same(&ground.path("from"), &ground.path("to"));
    let moved = received(&ground);
    println!("url-copy: {moved} bytes moved in all of {LARGE}");
    assert!(moved < LARGE + LARGE / 2, "{moved} bytes were moved");
}
