//! Attacks on who may do what: logins, data channels, rules for paths, limits, logs. Each is told, counted or dropped, and an honest
//! client is served meanwhile.

mod support;

use std::io::{Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use socket2::{Domain, Socket, Type};
use support::control::{Control, Reply, block, header};
use support::dtn::{Dtn, PATIENCE, until};
use support::scene::{Scene, grid_config};
use support::{WHIMBREL, pattern};
use whimbrel_proto::protect::base64;
use whimbrel_testkit::peers::{Tool, public_dir};
use whimbrel_testkit::pki::Pki;

const EOF: u8 = 0x40;
const EOD: u8 = 0x08;

/// Addresses of this host that nobody here has logged in from.
const STRANGER: [u8; 4] = [127, 0, 0, 66];
const FRIEND: [u8; 4] = [127, 0, 0, 77];

/// A connection from one of this host's other addresses.
fn connect_from(address: [u8; 4], to: SocketAddr) -> std::io::Result<TcpStream> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
    socket.bind(&SocketAddr::new(IpAddr::from(address), 0).into())?;
    socket.connect(&to.into())?;
    socket.set_read_timeout(Some(PATIENCE))?;
    Ok(socket.into())
}

/// What a stranger at a data port gets: nothing, and a closed connection.
#[track_caller]
fn assert_dropped(mut stranger: TcpStream) {
    // It may be closed before it says a word.
    let _ = stranger.write_all(&block(0, 0, b"stolen"));
    let mut got = Vec::new();
    let end = stranger.read_to_end(&mut got);
    let timed_out = end.as_ref().is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock);
    assert!(got.is_empty() && !timed_out, "{end:?} after {} bytes", got.len());
}

fn port_command(address: SocketAddr) -> String {
    let (ip, port) = (address.ip().to_string().replace('.', ","), address.port());
    format!("PORT {ip},{},{}", port / 256, port % 256)
}

#[test]
fn nobody_is_attacked_through_the_server() {
    let scene = Scene::open("allow_third_party = [\"127.0.0.77\"]");
    let victim = TcpListener::bind((IpAddr::from(STRANGER), 0)).expect("a port");
    let mut guest = Control::login(scene.addr());
    guest.ask_for(200, "TYPE I");
    for (mode, target) in [("S", victim.local_addr().expect("bound")), ("E", victim.local_addr().expect("bound"))] {
        guest.ask_for(200, &format!("MODE {mode}"));
        let reply = guest.ask(&port_command(target));
        assert!((400..600).contains(&reply.code) && reply.text.contains("address"), "{}", reply.text);
        let reply = guest.ask("RETR /file");
        assert!((400..600).contains(&reply.code), "{}", reply.text);
    }
    // Well-known services are not attacked either, not even those of the client.
    for low in ["PORT 127,0,0,1,0,25", "PORT 127,0,0,1,3,255", "EPRT |1|127.0.0.1|22|"] {
        let reply = guest.ask(low);
        assert!((400..600).contains(&reply.code), "{low}: {}", reply.text);
    }
    victim.set_nonblocking(true).expect("set");
    assert!(victim.accept().is_err(), "the server connected to a third host");
    // Third parties that the administrator named, and the client itself, are served.
    let friend = TcpListener::bind((IpAddr::from(FRIEND), 0)).expect("a port");
    guest.ask_for(200, "MODE S");
    guest.ask_for(200, &port_command(friend.local_addr().expect("bound")));
    guest.say("RETR /file");
    let mut got = Vec::new();
    friend.accept().expect("it connects").0.read_to_end(&mut got).expect("read");
    assert!(got == pattern(300_000));
    assert_eq!(guest.last_reply().code, 226);
    scene.assert_serves_others();
}

#[test]
fn a_stranger_who_is_first_at_the_data_port_gets_and_gives_nothing() {
    let scene = Scene::open("allow_third_party = []");
    for mode in ["S", "E"] {
        let mut guest = Control::login(scene.addr());
        guest.ask_for(200, "TYPE I");
        guest.ask_for(200, &format!("MODE {mode}"));
        let data = guest.passive();
        // Before the command, and while it waits.
        let early = connect_from(STRANGER, data).expect("it listens");
        guest.ask_for(150, "STOR /free/mine");
        assert_dropped(early);
        for _ in 0..50 {
            assert_dropped(connect_from(STRANGER, data).expect("it listens"));
        }
        let mut channel = TcpStream::connect(data).expect("it still listens");
        if mode == "E" {
            channel.write_all(&block(0, 0, &pattern(100_000))).expect("taken");
            channel.write_all(&header(EOF | EOD, 0, 1)).expect("taken");
        } else {
            channel.write_all(&pattern(100_000)).expect("taken");
        }
        drop(channel);
        let reply = guest.last_reply();
        assert_eq!(reply.code, 226, "{mode}: {}", reply.text);
        assert!(std::fs::read(scene.path("root/free/mine")).expect("stored") == pattern(100_000));
    }
    // The same the other way.
    let mut guest = Control::login(scene.addr());
    guest.ask_for(200, "TYPE I");
    let data = guest.passive();
    let thief = connect_from(STRANGER, data).expect("it listens");
    guest.say("RETR /file");
    assert_dropped(thief);
    let mut got = Vec::new();
    TcpStream::connect(data).expect("it still listens").read_to_end(&mut got).expect("read");
    assert!(got == pattern(300_000));
    assert_eq!(guest.last_reply().code, 226);
    scene.server.wait_for_log(&["data connection refused by address", "127.0.0.66"]);
    scene.assert_serves_others();
}

#[test]
fn nobody_can_wait_at_the_next_data_port() {
    let scene = Scene::open("data_ports = \"20000-29999\"");
    let mut guest = Control::login(scene.addr());
    let ports: Vec<i32> = (0..20).map(|_| i32::from(guest.passive().port())).collect();
    assert!(ports.iter().all(|port| (20_000..30_000).contains(port)), "{ports:?}");
    let near = ports.windows(2).filter(|pair| (pair[1] - pair[0]).abs() < 10).count();
    assert!(near < 5, "{ports:?}");
}

/// Bad passwords cost more and more time, whoever is told in the end; who is logged in notices nothing.
#[test]
fn guesses_are_slowed_down_and_told_how_long() {
    let scene = Scene::closed("");
    let (mut honest, reply) = scene.login("right");
    assert_eq!(reply.code, 230, "{}", reply.text);
    let (mut heard, mut unheard) = (0, 0);
    // Until the wait is long enough to be met: it doubles with every guess that is heard.
    let told = loop {
        let (_, reply) = scene.login("wrong");
        match reply.code {
            530 => heard += 1,
            421 => unheard += 1,
            _ => panic!("{}", reply.text),
        }
        assert!(heard < 12, "{heard} guesses were heard");
        let told =
            reply.text.split("try again in ").nth(1).and_then(|rest| rest.split(' ').next()?.parse::<u64>().ok());
        if told.is_some_and(|seconds| seconds > 4) {
            break reply.text;
        }
    };
    assert!(heard >= 4 && unheard > 0 && told.contains(" seconds"), "{heard} heard, {unheard} not: {told}");
    // Not even the right password is heard now.
    let (_, reply) = scene.login("right");
    assert_eq!(reply.code, 421, "{}", reply.text);
    assert!(scene.server.metric("logins_throttled_total") > unheard);
    scene.server.wait_for_log(&["login refused unheard"]);
    honest.ask_for(213, "SIZE /file");
    // From elsewhere it is: nobody is locked out by others for long.
    until("a login from another address", || {
        let stream = connect_from(FRIEND, scene.addr()).expect("it listens");
        let mut control = Control::over(stream);
        control.reply();
        control.ask("USER ada");
        control.ask("PASS right").code == 230
    });
}

#[test]
fn many_guesses_at_once_are_no_way_around() {
    let scene = Scene::closed("");
    let mut guests: Vec<Control> = (0..40).map(|_| Control::open(scene.addr())).collect();
    for guest in &mut guests {
        assert_eq!(guest.ask("USER ada").code, 331);
    }
    guests.iter_mut().for_each(|guest| guest.say("PASS wrong"));
    let codes: Vec<u16> = guests.iter_mut().map(|guest| guest.reply().code).collect();
    let heard = codes.iter().filter(|&&code| code == 530).count();
    // Three are free, and two may be judged at the time when the last of those is.
    assert!(heard <= 6, "{heard} guesses were heard: {codes:?}");
    assert!(codes.iter().all(|code| [530, 421].contains(code)), "{codes:?}");
}

/// A file can only be opened by a process that may have so many.
fn room_for_connections(count: u64) {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let wanted = count + 500;
    if limit.current.is_some_and(|now| now < wanted) {
        let maximum = limit.maximum.map(|most| most.max(wanted));
        setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), maximum }).expect("a larger limit, as root");
    }
}

#[test]
fn ten_thousand_half_open_connections_keep_nobody_out_who_is_known() {
    room_for_connections(10_000);
    let scene = Scene::open("login_timeout = 600");
    scene.assert_serves_others();
    let mut inside = Control::login(scene.addr());
    let before = scene.server.daemon.pss_bytes();
    // A hundred addresses, a hundred connections each: some are let in, the others are told or dropped; none says a word.
    let flood: Vec<TcpStream> = (0..10_000_u32)
        .map(|number| {
            let from = [127, 0, 1, (number % 100) as u8 + 1];
            connect_from(from, scene.addr()).expect("the system takes it")
        })
        .collect();
    until("an answer to all", || {
        let inside = scene.server.metric("control_connections_waiting");
        inside + scene.server.metric("connections_refused_total") >= 10_000
    });
    let waiting = scene.server.metric("control_connections_waiting");
    assert!((200..=400).contains(&waiting), "{waiting} wait");
    let grown = scene.server.daemon.pss_bytes().saturating_sub(before);
    assert!(grown < 48 << 20, "{grown} bytes more");
    inside.ask_for(213, "SIZE /file");
    // New connections of those who were here before come in, past the flood.
    scene.assert_serves_others();
    let lines = scene.server.log().lines().filter(|line| line.contains("control connection refused")).count();
    assert!((1..500).contains(&lines), "{lines} lines about it");
    drop(flood);
    until("the end of the flood", || scene.server.metric("control_connections_waiting") == 0);
    scene.assert_serves_others();
}

#[test]
fn a_line_that_comes_byte_by_byte_is_not_waited_for() {
    let scene = Scene::open("[limits]\nline_seconds = 1");
    let mut guests = [Control::open(scene.addr()), Control::login(scene.addr())];
    let started = Instant::now();
    for guest in &mut guests {
        guest.send(b"NO").expect("taken");
    }
    scene.assert_serves_others();
    for mut guest in guests {
        let reply = guest.reply();
        assert_eq!(reply.code, 421, "{}", reply.text);
        assert!(reply.text.contains("did not end in time"), "{}", reply.text);
        assert_eq!(guest.end(), "");
    }
    assert!(started.elapsed() < Duration::from_secs(15));
    assert_eq!(scene.server.metric("slow_lines_total"), 2);
    scene.server.wait_for_log(&["control connection closed", "did not end in time"]);
    // Who says nothing at all is only idle.
    Control::login(scene.addr()).ask_for(200, "NOOP");
}

#[test]
fn who_comes_too_often_is_told_to_wait_and_others_are_let_in() {
    let scene = Scene::open("[limits]\nconnections_per_minute = 5");
    // A connection at a time is never one too many, but each of them costs work.
    let come = |from| {
        let mut control = Control::over(connect_from(from, scene.addr()).expect("it listens"));
        let reply = control.reply();
        (control, reply)
    };
    for _ in 0..5 {
        let (control, reply) = come(STRANGER);
        assert_eq!(reply.code, 220, "{}", reply.text);
        drop(control);
    }
    let (_, reply) = come(STRANGER);
    assert_eq!(reply.code, 421, "{}", reply.text);
    assert!(reply.text.contains("in a minute"), "{}", reply.text);
    assert_eq!(scene.server.metric("connections_refused_total"), 1);
    scene.server.wait_for_log(&["control connection refused", "in a minute"]);
    let (mut friend, reply) = come(FRIEND);
    assert_eq!(reply.code, 220, "{}", reply.text);
    assert_eq!(friend.ask("NOOP").code / 100, 2);
}

const RULES: &str = r#"
[[rules]]
path = "/shut"
deny = "all"
[[rules]]
path = "/file"
deny = ["create", "modify", "delete"]
"#;

#[test]
fn rules_for_paths_hold_for_every_command() {
    let scene = Scene::open(RULES);
    symlink("/shut", scene.path("root/free/way")).expect("made");
    let mut guest = Control::login(scene.addr());
    guest.ask_for(200, "TYPE I");
    for place in ["/shut", "/free/way", "/free/../shut"] {
        for command in [
            "SIZE {}/secret",
            "MDTM {}/secret",
            "MLST {}/secret",
            "CWD {}",
            "CKSM MD5 0 -1 {}/secret",
            "DELE {}/secret",
            "MKD {}/new",
            "RMD {}/new",
            "SITE CHMOD 777 {}/secret",
            "SITE UTIME 20200101000000 {}/secret",
            "SITE SYMLINK /file {}/new",
            "SITE RDEL {}/secret",
            "SIZE {}/none",
        ] {
            let line = command.replace("{}", place);
            let reply = guest.ask(&line);
            assert!((500..560).contains(&reply.code), "{line}: {}", reply.text);
            assert!(!reply.text.to_lowercase().contains("no such file"), "{line}: {}", reply.text);
        }
        for (from, to) in
            [(format!("{place}/secret"), "/free/stolen".into()), ("/free/mine".into(), format!("{place}/x"))]
        {
            std::fs::write(scene.path("root/free/mine"), "mine").expect("made");
            let asked = guest.ask(&format!("RNFR {from}"));
            let renamed = if asked.code == 350 { guest.ask(&format!("RNTO {to}")) } else { asked };
            assert!((500..560).contains(&renamed.code), "{from} to {to}: {}", renamed.text);
        }
        for command in ["RETR {}/secret", "STOR {}/new", "APPE {}/secret", "MLSD {}", "NLST {}"] {
            guest.passive();
            let line = command.replace("{}", place);
            let reply = guest.ask(&line);
            assert!((400..560).contains(&reply.code), "{line}: {}", reply.text);
        }
    }
    guest.ask_for(213, "SIZE /file");
    assert!((500..560).contains(&guest.ask("DELE /file").code));
    assert_eq!(support::names(&scene.path("root/shut")), ["secret"]);
    scene.assert_serves_others();
}

#[test]
fn a_directory_that_turns_into_a_link_opens_nothing_that_is_shut() {
    let scene = Scene::open(RULES);
    let (real, link, name) = (scene.path("root/free/real"), scene.path("root/free/link"), scene.path("root/free/dir"));
    std::fs::create_dir(&real).expect("made");
    std::fs::set_permissions(&real, std::fs::Permissions::from_mode(0o777)).expect("set");
    symlink("/shut", &link).expect("made");
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                for from in [&real, &link] {
                    std::fs::rename(from, &name).expect("renamed");
                    std::fs::rename(&name, from).expect("renamed");
                }
            }
        });
        let mut guest = Control::login(scene.addr());
        guest.ask_for(200, "TYPE I");
        for number in 0..300 {
            let data = guest.passive();
            let reply = guest.ask(&format!("STOR /free/dir/escape{number}"));
            if reply.code == 150 {
                drop(TcpStream::connect(data).expect("it listens"));
                guest.last_reply();
            }
            for line in ["SIZE /free/dir/secret", "CKSM MD5 0 -1 /free/dir/secret", "DELE /free/dir/secret"] {
                let reply = guest.ask(line);
                assert!((500..560).contains(&reply.code), "{line}: {}", reply.text);
            }
        }
        done.store(true, Ordering::Relaxed);
    });
    assert_eq!(support::names(&scene.path("root/shut")), ["secret"], "something was written where nothing may be");
    scene.assert_serves_others();
}

/// Stores so many bytes in stream mode; the last reply.
fn store(guest: &mut Control, name: &str, bytes: usize) -> Reply {
    let data = guest.passive();
    let reply = guest.ask(&format!("STOR {name}"));
    if reply.code != 150 {
        return reply;
    }
    let mut channel = TcpStream::connect(data).expect("it listens");
    // A server that has refused may have closed.
    let _ = channel.write_all(&pattern(bytes));
    drop(channel);
    guest.last_reply()
}

#[test]
fn users_have_no_more_than_their_limits() {
    let scene = Scene::closed("[limits]\nconnections = 2\nquota = 500000\nbandwidth = 200000");
    let (mut first, _) = scene.login("right");
    let (mut second, reply) = scene.login("right");
    assert_eq!(reply.code, 230, "{}", reply.text);
    let (_, reply) = scene.login("right");
    assert_eq!(reply.code, 421, "{}", reply.text);
    assert!(reply.text.contains("as many connections as your account may have"), "{}", reply.text);
    second.ask_for(220, "REIN");
    until("a place for another while the connection is nobody's", || scene.login("right").1.code == 230);
    drop(second);
    first.ask_for(200, "TYPE I");
    let started = Instant::now();
    assert_eq!(store(&mut first, "/free/one", 300_000).code, 226);
    // A tenth of a second is free, and what the last block was.
    assert!(started.elapsed() > Duration::from_millis(700), "{:?} for 300 kB at 200 kB/s", started.elapsed());
    let reply = store(&mut first, "/free/two", 300_000);
    assert!((400..600).contains(&reply.code) && reply.text.contains("500000 bytes a day"), "{}", reply.text);
    assert!(!scene.path("root/free/two").exists(), "what does not fit gets no name");
    let data = first.passive();
    first.ask_for(150, "RETR /free/one");
    let mut got = Vec::new();
    TcpStream::connect(data).expect("it listens").read_to_end(&mut got).expect("read");
    assert_eq!((got.len(), first.last_reply().code), (300_000, 226));
}

#[test]
fn what_was_stored_today_counts_after_a_restart() {
    let books = tempfile::tempdir().expect("a directory");
    let config = format!("[limits]\nquota = 500000\nquota_directory = {:?}\n", books.path());
    let scene = Scene::closed(&config);
    let (mut guest, _) = scene.login("right");
    guest.ask_for(200, "TYPE I");
    assert_eq!(store(&mut guest, "/free/one", 300_000).code, 226);
    drop(guest);
    let written = || {
        let files = std::fs::read_dir(books.path()).expect("there").map(|entry| entry.expect("read").path());
        let text: String = files.map(|file| std::fs::read_to_string(file).expect("text")).collect();
        text.lines().map(|line| line.split(' ').nth(1).expect("bytes").parse::<u64>().expect("a number")).sum::<u64>()
    };
    until("all is written down", || written() == 300_000);
    let (directory, server) = scene.into_parts();
    drop(server);
    let at = |name: &str| directory.path().join(name);
    let again = Dtn::builder().root(&at("root")).arg("--config").arg(at("config.toml")).arg("--users").arg(at("users"));
    let again = again.arg("--clear-text-passwords");
    let again = again.start();
    let mut guest = Control::open(again.addr());
    guest.ask_for(331, "USER ada");
    guest.ask_for(230, "PASS right");
    guest.ask_for(200, "TYPE I");
    let reply = store(&mut guest, "/free/two", 300_000);
    assert!((400..600).contains(&reply.code), "{}", reply.text);
    // Of the second file some has come before it was too much.
    let told = reply.text.split("have stored ").nth(1).and_then(|rest| rest.split(' ').next()?.parse::<u64>().ok());
    assert!(told.is_some_and(|bytes| (300_000..=500_000).contains(&bytes)), "{}", reply.text);
    // Where others may write, nothing is to be believed.
    let open = public_dir().expect("a directory");
    std::fs::set_permissions(open.path(), std::os::unix::fs::PermissionsExt::from_mode(0o777)).expect("set");
    let config = format!("[limits]\nquota = 5\nquota_directory = {:?}\n", open.path());
    std::fs::write(at("open.toml"), config).expect("written");
    let refused = Tool::new(WHIMBREL).args(["dtn", "--anonymous", "--listen", "127.0.0.1:0", "--config"]);
    let refused = refused.arg(at("open.toml")).run_failing();
    assert!(refused.stderr_text().contains("others may write in it"), "{refused}");
}

#[test]
fn a_user_logs_in_so_often_in_a_minute() {
    let scene = Scene::closed("[limits]\nlogins_per_minute = 2");
    for _ in 0..2 {
        assert_eq!(scene.login("right").1.code, 230);
    }
    let (_, reply) = scene.login("right");
    assert!(reply.code == 421 && reply.text.contains("too often in this minute"), "{}", reply.text);
}

#[test]
fn nobody_writes_lines_into_the_log_or_commands_to_the_terminal_of_its_reader() {
    let scene = Scene::open("");
    let mut guest = Control::open(scene.addr());
    let forged = "x\r2026-11-22T00:00:00Z  INFO logged in peer=\u{202e}forged";
    for line in [
        format!("USER eve\u{1b}[2J\u{1b}]0;owned\u{7}{forged}"),
        "PASS wrong".to_owned(),
        "USER anonymous".to_owned(),
        format!("PASS \u{1b}[31m{forged}"),
        format!("SITE CLIENTINFO appname={forged}\u{1b}[2J;"),
        format!("SITE TASKID {forged}\u{8}"),
        format!("SIZE /{forged}\u{1b}[2J\u{9b}31m"),
        format!("DELE /free/{forged}\u{b}\u{c}"),
    ] {
        guest.say(&line);
        guest.reply();
    }
    guest.send(b"DELE /free/\xff\xc2\x9b\x1b[2Jlast-of-all\r\n").expect("taken");
    guest.reply();
    scene.server.wait_for_log(&["operation failed", "last-of-all"]);
    let log = scene.server.log();
    assert!(log.contains("forged") && log.contains("eve"), "what was said is told");
    scene.assert_log_is_plain();
    assert!(!log.lines().any(|line| line.starts_with("2026-11-22T00:00:00Z")), "{log}");
    scene.assert_serves_others();
}

/// The configuration of a server of a grid where TLS is spoken, too.
fn grid_settings(pki: &Pki) -> String {
    let host = pki.host(&["localhost"]).expect("a host").file;
    let people = pki.gridmap(&[("alice", "nobody")]).expect("a map");
    grid_config(&host, &pki.certificates(), &people)
}

#[test]
fn who_asks_for_a_handshake_and_says_nothing_is_not_waited_for() {
    let pki = Pki::new().expect("an authority");
    let scene = Scene::open(&format!("login_timeout = 600\n[limits]\nhandshake_seconds = 1\n{}", grid_settings(&pki)));
    let started = Instant::now();
    let mut guests = [0; 3].map(|_| Control::open(scene.addr()));
    guests[0].ask_for(234, "AUTH TLS");
    guests[1].ask_for(334, "AUTH GSSAPI");
    guests[2].ask_for(334, "AUTH GSSAPI");
    // What is no token does not buy time either.
    guests[2].ask_for(501, "ADAT *");
    let [mut tls, mut silent, mut babbling] = guests;
    assert!(tls.try_reply().is_err(), "there is nobody who could be told");
    for guest in [&mut silent, &mut babbling] {
        let reply = guest.reply();
        assert_eq!(reply.code, 421, "{}", reply.text);
        assert!(reply.text.contains("handshake did not end in time"), "{}", reply.text);
    }
    assert!(started.elapsed() < Duration::from_secs(15));
    assert_eq!(scene.server.metric("handshakes_failed_total"), 3);
    scene.assert_serves_others();
}

#[test]
fn a_handshake_that_ends_in_the_middle_or_says_nothing_of_use_leaves_nothing_behind() {
    let pki = Pki::new().expect("an authority");
    let scene = Scene::open(&grid_settings(&pki));
    // The first record of a handshake, and less and less of it.
    let hello = [&[0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3][..], &[7; 600]].concat();
    for length in [0, 1, 5, 9, 40, 600] {
        let mut guest = Control::open(scene.addr());
        guest.ask_for(234, "AUTH TLS");
        guest.send(&hello[..length]).expect("taken");
        guest.vanish();
        let mut guest = Control::open(scene.addr());
        guest.ask_for(334, "AUTH GSSAPI");
        let token = base64::encode(&hello[..length]);
        guest.send(format!("ADAT {token}").as_bytes()).expect("taken");
        guest.vanish();
    }
    // Rubbish ends the exchange, not the server; so does a token without end, long before it costs memory.
    let before = scene.server.daemon.pss_bytes();
    let mut guest = Control::open(scene.addr());
    guest.ask_for(234, "AUTH TLS");
    // An alert may come before the end.
    let _ = guest.send(&vec![0x41; 1 << 20]);
    guest.end();
    let mut guest = Control::open(scene.addr());
    guest.ask_for(334, "AUTH GSSAPI");
    let _ = guest.send(b"ADAT ");
    for _ in 0..64 {
        if guest.send(&vec![b'A'; 1 << 20]).is_err() {
            break;
        }
    }
    drop(guest);
    until("the end of all connections", || scene.server.metric("control_connections") == 0);
    let grown = scene.server.daemon.pss_bytes().saturating_sub(before);
    assert!(grown < 16 << 20, "{grown} bytes more");
    assert!(scene.server.metric("handshakes_failed_total") > 0);
    scene.assert_serves_others();
}
