//! Data connections between three hosts that never share an address: who may make them, and who may not.

mod support;

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use support::control::Control;
use support::dtn::{Dtn, PATIENCE};
use support::pattern;
use whimbrel_testkit::lab::{Lab, Link};
use whimbrel_testkit::peers::{Tool, public_dir};
use whimbrel_testkit::require_root;

/// A server on `src` that knows one user; the guest is on `client`, a stranger on `dst`.
struct Scene {
    lab: Lab,
    directory: tempfile::TempDir,
    server: Dtn,
}

impl Scene {
    fn new() -> Option<Scene> {
        if !require_root() {
            return None;
        }
        let lab = Lab::triangle(Link::new().rtt(Duration::from_millis(2))).expect("laboratory");
        let directory = public_dir().expect("directory");
        let hash = Tool::new(support::WHIMBREL).args(["dtn", "--hash-password"]).input("password").run_ok();
        let users = directory.path().join("users");
        std::fs::write(&users, format!("guest:{}", hash.stdout_text())).expect("written");
        std::fs::write(directory.path().join("file"), pattern(100_000)).expect("written");
        let server = Dtn::on(lab.host("src"))
            .root(directory.path())
            .arg("--users")
            .arg(users)
            .arg("--clear-text-passwords")
            .start();
        Some(Scene { lab, directory, server })
    }

    /// Another server with the same users and files.
    fn other(&self, host: &str) -> Dtn {
        let users = self.directory.path().join("users");
        Dtn::on(self.lab.host(host))
            .root(self.directory.path())
            .arg("--users")
            .arg(users)
            .arg("--clear-text-passwords")
            .start()
    }

    fn login(&self) -> Control {
        self.login_at(&self.server)
    }

    fn login_at(&self, server: &Dtn) -> Control {
        let mut guest = self.lab.host("client").run(|| Control::open(server.addr()));
        guest.ask_for(331, "USER guest");
        guest.ask_for(230, "PASS password");
        guest.ask_for(200, "TYPE I");
        guest
    }

    fn connect(&self, host: &str, data: SocketAddr) -> std::io::Result<TcpStream> {
        let stream = self.lab.host(host).run(|| TcpStream::connect_timeout(&data, PATIENCE))?;
        stream.set_read_timeout(Some(PATIENCE))?;
        Ok(stream)
    }
}

#[test]
fn a_stranger_gets_neither_the_data_nor_in_the_way() {
    let Some(scene) = Scene::new() else { return };
    let mut guest = scene.login();
    let data = guest.passive();
    guest.say("RETR /file");
    let mut stolen = Vec::new();
    // Refused, or taken and closed: but never served.
    if let Ok(mut stranger) = scene.connect("dst", data) {
        let _ = stranger.read_to_end(&mut stolen);
    }
    assert!(stolen.is_empty(), "{} bytes went to a stranger", stolen.len());
    let mut got = Vec::new();
    scene.connect("client", data).expect("it still listens").read_to_end(&mut got).expect("read");
    assert_eq!(guest.last_reply().code, 226);
    assert!(got == pattern(100_000));
    scene.server.wait_for_log(&[&scene.lab.host("dst").addr().to_string()]);
}

#[test]
fn a_stranger_cannot_slip_a_file_in() {
    let Some(scene) = Scene::new() else { return };
    let mut guest = scene.login();
    let data = guest.passive();
    guest.ask_for(150, "STOR /new");
    if let Ok(mut stranger) = scene.connect("dst", data) {
        let _ = stranger.write_all(b"forged");
    }
    scene.connect("client", data).expect("it still listens").write_all(b"genuine").expect("taken");
    assert_eq!(guest.last_reply().code, 226);
    assert_eq!(std::fs::read(scene.directory.path().join("new")).expect("stored"), b"genuine");
}

#[test]
fn the_server_does_not_connect_to_others_for_a_guest() {
    let Some(scene) = Scene::new() else { return };
    let mut guest = scene.login();
    let stranger = scene.lab.host("dst").addr().to_string().replace('.', ",");
    let own = scene.lab.host("client").addr().to_string().replace('.', ",");
    for (port, what) in [(format!("PORT {stranger},8,0"), "another host"), (format!("PORT {own},0,25"), "a low port")] {
        let reply = guest.ask(&port);
        assert!((400..560).contains(&reply.code), "{what}: {}", reply.text);
    }
    scene.lab.start_trace();
    let reply = guest.ask("RETR /file");
    assert!((400..560).contains(&reply.code), "{}", reply.text);
    let (src, dst) = (scene.lab.host("src").addr(), scene.lab.host("dst").addr());
    let reached = scene
        .lab
        .trace()
        .to_string()
        .lines()
        .any(|line| line.contains(&src.to_string()) && line.contains(&dst.to_string()));
    assert!(!reached, "it talked to a host that it was not to know");
}

fn port(address: SocketAddr) -> String {
    format!("PORT {},{},{}", address.ip().to_string().replace('.', ","), address.port() / 256, address.port() % 256)
}

/// What our own client says for data connections in clear.
fn show_nonce(guest: &mut Control) {
    guest.ask_for(200, "MODE E");
    guest.ask_for(250, "SITE DCNONCE 00112233445566778899aabbccddeeff");
}

#[test]
fn a_nonce_in_clear_reaches_no_service_of_the_server_itself() {
    let Some(scene) = Scene::new() else { return };
    let mut guest = scene.login();
    let (host, own) = (scene.lab.host("src"), scene.lab.host("src").addr());
    for address in [Ipv4Addr::LOCALHOST.into(), own] {
        let service = host.run(|| TcpListener::bind((address, 0))).expect("a port");
        service.set_nonblocking(true).expect("set");
        show_nonce(&mut guest);
        let reply = guest.ask(&port(service.local_addr().expect("bound")));
        assert!((400..600).contains(&reply.code) && reply.text.contains("this host's"), "{}", reply.text);
        let reply = guest.ask("RETR /file");
        assert!((400..600).contains(&reply.code), "{}", reply.text);
        assert!(service.accept().is_err(), "the server called a service of its own host");
    }
}

#[test]
fn a_nonce_in_clear_moves_files_between_servers_and_within_one() {
    let Some(scene) = Scene::new() else { return };
    let other = scene.other("dst");
    for (server, name) in [(&other, "there"), (&scene.server, "here")] {
        let (mut from, mut to) = (scene.login(), scene.login_at(server));
        show_nonce(&mut to);
        let data = to.passive();
        show_nonce(&mut from);
        from.ask_for(200, &port(data));
        to.say(&format!("STOR /{name}"));
        from.say("RETR /file");
        for end in [&mut from, &mut to] {
            let reply = end.last_reply();
            assert_eq!(reply.code, 226, "{name}: {}", reply.text);
        }
        assert!(std::fs::read(scene.directory.path().join(name)).expect("stored") == pattern(100_000));
    }
}
