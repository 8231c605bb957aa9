//! What no decent client does: precise replies, a line in the log, nothing lost, nothing written outside the root, and
//! everybody else is served meanwhile.

mod support;

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::symlink;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use support::control::{Control, block, header, vanish};
use support::dtn::{PATIENCE, until};
use support::pattern;
use support::scene::Scene;

const EOF: u8 = 0x40;
const EOD: u8 = 0x08;

#[test]
fn wrong_commands_get_a_precise_reply_and_the_session_goes_on() {
    let scene = Scene::open("");
    let mut guest = Control::login(scene.addr());
    for (line, codes) in [
        ("FOO", &[500][..]),
        ("", &[500]),
        ("RETR", &[501]),
        ("SIZE", &[501]),
        ("TYPE Q", &[501, 504]),
        ("MODE Q", &[501, 504]),
        ("STRU R", &[501, 504]),
        ("PORT 1,2,3", &[501]),
        ("PORT 256,0,0,1,1,1", &[501]),
        ("EPRT |9|x|y|", &[501, 522]),
        ("SITE NONSENSE", &[500, 501, 502, 504]),
        ("OPTS RETR Parallelism=-1;", &[500, 501]),
        ("OPTS NOTHING x", &[500, 501]),
        ("REST 99999999999999999999999", &[501]),
        ("REST -1", &[501]),
        ("REST 5-3", &[501]),
        ("ERET P 0", &[501]),
        ("ERET P -1 5 /file", &[501]),
        ("ERET P 99999999999999999999999 5 /file", &[501]),
        ("ERET Q 0 5 /file", &[501, 504]),
        ("ESTO A -1 /new", &[501]),
        ("ESTO A 99999999999999999999999 /new", &[501]),
        ("CKSM NONE 0 -1 /file", &[501, 504]),
        ("CKSM MD5 -5 10 /file", &[501]),
        // What lies beyond the end is cut off, as the real server does it.
        ("CKSM MD5 400000 1 /file", &[213]),
        ("CKSM MD5 18446744073709551615 18446744073709551615 /file", &[213, 501]),
        ("RNTO /x", &[503]),
        ("RETR /file", &[425, 503, 500]),
        ("CWD /file", &[550]),
        ("MKD /file/x", &[550]),
        ("RETR /a\0b", &[501, 550]),
    ] {
        let reply = guest.ask(line);
        assert!(codes.contains(&reply.code), "{line:?}: {}", reply.text);
        assert!(reply.text.trim_end().len() > 5, "{line:?}: a reason is missing in {:?}", reply.text);
    }
    guest.send(b"\xff\xfe\x00\x01 \x80\r\n").expect("taken");
    assert_eq!(guest.reply().code, 500);
    guest.send(&[b"SIZE /", &vec![b'x'; 300_000][..], b"\r\n"].concat()).expect("taken");
    assert!(matches!(guest.reply().code, 500 | 501 | 550));
    guest.ask_for(200, "NOOP");
    scene.assert_serves_others();
}

#[test]
fn commands_before_login_touch_nothing() {
    let scene = Scene::open("");
    let mut guest = Control::open(scene.addr());
    for line in [
        "RETR /file",
        "STOR /x",
        "DELE /file",
        "SIZE /file",
        "PASV",
        "MLST /",
        "SITE CHMOD 777 /file",
        "CKSM MD5 0 -1 /file",
    ] {
        guest.ask_for(530, line);
    }
    assert_eq!(guest.ask("USER root").code, 331);
    assert_eq!(guest.ask("PASS x").code, 530);
    scene.server.wait_for_log(&["login refused", "root"]);
    assert!(scene.path("root/file").exists());
}

#[test]
fn a_line_without_end_costs_no_memory() {
    let scene = Scene::open("");
    let before = scene.server.daemon.pss_bytes();
    let mut guest = Control::login(scene.addr());
    let piece = vec![b'A'; 1 << 20];
    for _ in 0..64 {
        if guest.send(&piece).is_err() {
            break;
        }
    }
    scene.assert_serves_others();
    let grown = scene.server.daemon.pss_bytes().saturating_sub(before);
    assert!(grown < 16 << 20, "{grown} bytes more");
}

#[test]
fn ten_thousand_commands_in_one_go_are_answered_in_order() {
    let scene = Scene::open("");
    let mut guest = Control::login(scene.addr());
    guest.send("NOOP\r\nSIZE /file\r\n".repeat(5_000).as_bytes()).expect("taken");
    let mut codes = Vec::new();
    // A queue that is full is said so, and ends the connection.
    while codes.len() < 10_000
        && let Ok(reply) = guest.try_reply()
    {
        codes.push(reply.code);
    }
    let (last, answered) = codes.split_last().expect("an answer");
    assert!(answered.chunks(2).all(|pair| [200, 213].starts_with(pair)), "out of order");
    assert!(matches!((codes.len(), last), (10_000, 213) | (_, 500)), "{} replies, the last {last}", codes.len());
    scene.assert_serves_others();
}

#[test]
fn those_who_never_read_cost_little_and_are_sent_away() {
    let scene = Scene::open("idle_timeout = 4");
    let many = scene.path("root/many");
    std::fs::create_dir(&many).expect("made");
    let name = "x".repeat(200);
    for number in 0..10_000 {
        std::fs::write(many.join(format!("{number}-{name}")), "").expect("made");
    }
    let before = resident(scene.server.daemon.id());
    let guests: Vec<Control> = (0..16)
        .map(|_| {
            let mut guest = Control::login(scene.addr());
            guest.send("STAT /many\r\nHELP\r\n".repeat(200).as_bytes()).expect("taken");
            guest
        })
        .collect();
    scene.assert_serves_others();
    let grown = resident(scene.server.daemon.id()).saturating_sub(before);
    // A listing for each of them would be more than 40 MB.
    assert!(grown < 24 << 20, "{grown} bytes more");
    until("the end of those who do not read", || scene.server.metric("control_connections") == 0);
    scene.server.wait_for_log(&["does not read its replies"]);
    scene.assert_serves_others();
    drop(guests);
}

/// Memory of one process alone.
fn resident(process: u32) -> usize {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).expect("it runs");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("a line");
    line.trim().trim_end_matches(" kB").parse::<usize>().expect("a number") << 10
}

#[test]
fn those_who_never_finish_a_line_are_sent_away_and_keep_nobody_waiting() {
    let scene = Scene::open("login_timeout = 2\n[limits]\nwaiting_per_address = 1000\nwaiting = 1000");
    let mut guests: Vec<Control> = (0..200).map(|_| Control::open(scene.addr())).collect();
    guests.iter_mut().for_each(|guest| guest.send(b"USE").expect("taken"));
    scene.assert_serves_others();
    for mut guest in guests {
        assert_eq!(guest.reply().code, 421);
        assert_eq!(guest.end(), "");
    }
}

#[test]
fn those_who_leave_at_once_or_in_a_word_leave_nothing_behind() {
    let scene = Scene::open("");
    for _ in 0..100 {
        Control::silent(scene.addr()).vanish();
        let mut guest = Control::open(scene.addr());
        guest.send(b"USER anon").expect("taken");
        guest.vanish();
    }
    let mut guest = Control::login(scene.addr());
    guest.send(b"DELE /fi").expect("taken");
    guest.end();
    assert!(scene.path("root/file").exists(), "half a command was carried out");
    until("the end of all sessions", || scene.server.metric("control_connections") == 0);
    scene.assert_serves_others();
}

#[test]
fn a_sender_that_vanishes_in_mid_block_leaves_no_final_name_and_what_came_is_kept() {
    let scene = Scene::open("");
    let (mut guest, data) = Control::extended(scene.addr());
    guest.ask_for(150, "STOR /new");
    let mut channel = TcpStream::connect(data).expect("it listens");
    channel.write_all(&block(0, 0, &pattern(100_000))).expect("taken");
    channel.write_all(&header(0, 50_000, 100_000)).expect("taken");
    channel.write_all(&[1; 20_000]).expect("taken");
    until("some bytes", || scene.server.metric("received_bytes_total") >= 100_000);
    scene.assert_serves_others();
    vanish(channel);
    let reply = guest.last_reply();
    assert_eq!(reply.code, 426, "{}", reply.text);
    assert!(!scene.path("root/new").exists(), "an unfinished file has its final name");
    scene.server.wait_for_log(&["operation failed"]);
    guest.ask_for(200, "NOOP");
    scene.assert_calms_down();
}

#[test]
fn a_receiver_that_vanishes_gets_a_broken_transfer() {
    let scene = Scene::open("");
    std::fs::File::create(scene.path("root/large")).and_then(|file| file.set_len(1 << 30)).expect("made");
    for mode in ["S", "E"] {
        let mut guest = Control::login(scene.addr());
        guest.ask_for(200, "TYPE I");
        guest.ask_for(200, &format!("MODE {mode}"));
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("bound").port();
        guest.ask_for(200, &format!("PORT 127,0,0,1,{},{}", port / 256, port % 256));
        guest.say("RETR /large");
        let (mut channel, _) = listener.accept().expect("it connects");
        channel.read_exact(&mut [0; 100_000]).expect("data come");
        scene.assert_serves_others();
        vanish(channel);
        drop(listener);
        assert_eq!(guest.last_reply().code, 426, "mode {mode}");
        guest.ask_for(200, "NOOP");
    }
    scene.assert_calms_down();
}

#[test]
fn of_two_who_append_at_once_none_writes_over_the_other() {
    let scene = Scene::open("");
    let append = |guest: &mut Control, part: &[u8]| {
        let data = guest.passive();
        guest.ask_for(150, "APPE /free/log");
        let mut channel = TcpStream::connect(data).expect("it listens");
        channel.write_all(part).expect("taken");
        channel
    };
    let (mut first, mut second) = (Control::login(scene.addr()), Control::login(scene.addr()));
    for guest in [&mut first, &mut second] {
        guest.ask_for(200, "TYPE I");
    }
    let refuse = |second: &mut Control| {
        second.passive();
        let reply = second.ask("APPE /free/log");
        let refused = reply.code == 450 && reply.text.contains("another transfer appends to it");
        assert!(refused, "{}", reply.text);
    };
    let channel = append(&mut first, &pattern(1000));
    until("some bytes", || scene.server.metric("received_bytes_total") >= 1000);
    refuse(&mut second);
    drop(channel);
    assert_eq!(first.last_reply().code, 226);
    // What somebody does who has gone keeps nobody away for longer.
    let channel = append(&mut first, b"cut");
    until("some more", || scene.server.metric("received_bytes_total") >= 1003);
    refuse(&mut second);
    first.vanish();
    vanish(channel);
    until("the end of the first", || scene.server.metric("transfers_running") == 0);
    drop(append(&mut second, b"next"));
    assert_eq!(second.last_reply().code, 226);
    let wanted = [&pattern(1000)[..], b"cutnext"].concat();
    assert!(std::fs::read(scene.path("root/free/log")).expect("there") == wanted);
    scene.assert_calms_down();
}

#[test]
fn a_control_connection_that_vanishes_ends_its_transfers() {
    let scene = Scene::open("");
    let (mut guest, data) = Control::extended(scene.addr());
    guest.ask_for(150, "STOR /new");
    let mut channel = TcpStream::connect(data).expect("it listens");
    channel.write_all(&block(0, 0, &pattern(100_000))).expect("taken");
    until("some bytes", || scene.server.metric("received_bytes_total") >= 100_000);
    guest.vanish();
    scene.assert_calms_down();
    // The server's end of the channel is closed too.
    let mut rest = Vec::new();
    let _ = channel.read_to_end(&mut rest);
    assert!(rest.is_empty());
    assert!(!scene.path("root/new").exists());
    scene.assert_serves_others();
}

/// What a receive of these blocks on one channel is answered with.
fn store(scene: &Scene, command: &str, blocks: &[Vec<u8>]) -> support::control::Reply {
    let (mut guest, data) = Control::extended(scene.addr());
    guest.ask_for(150, command);
    let mut channel = TcpStream::connect(data).expect("it listens");
    for block in blocks {
        // The server may have heard enough already.
        let _ = channel.write_all(block);
    }
    drop(channel);
    let reply = guest.last_reply();
    guest.ask_for(200, "NOOP");
    reply
}

#[test]
fn blocks_that_lie_are_refused() {
    // So long channels are waited for that were announced and do not come.
    let scene = Scene::open("connect_timeout = 1");
    let end = |count| header(EOF | EOD, 0, count).to_vec();
    let max = i64::MAX as u64;
    let lies: [(&str, Vec<Vec<u8>>); 8] = [
        ("STOR /new", vec![block(0, u64::MAX - 5, b"0123456789"), end(1)]),
        ("STOR /new", vec![block(0, max, b"0"), end(1)]),
        ("STOR /new", vec![header(0, u64::MAX, 0).to_vec(), b"x".to_vec()]),
        ("ESTO A 9223372036854775800 /new", vec![block(0, 100, b"0123456789"), end(1)]),
        ("STOR /new", vec![end(1), end(1), block(0, 0, b"late")]),
        ("STOR /new", vec![block(EOF, 1, b"a payload where none may be"), end(1)]),
        ("STOR /new", vec![block(0, 0, b"data"), end(7)]),
        ("STOR /new", vec![block(0, 0, b"data"), header(EOF, 0, 2).to_vec(), end(3)]),
    ];
    for (number, (command, blocks)) in lies.iter().enumerate() {
        let reply = store(&scene, command, blocks);
        println!("{number} {command}: {}", reply.text.trim_end());
        // What was complete before the lie may stand. Else nothing has a final name but what is changed in place.
        let whole = number == 4 && reply.code == 226;
        assert!(whole || (400..600).contains(&reply.code), "{number} {command}: {}", reply.text);
        assert!(reply.text.len() > 12, "{}", reply.text);
        let size = std::fs::metadata(scene.path("root/new")).map_or(0, |metadata| metadata.len());
        assert_eq!(size > 0 || scene.path("root/new").exists() && command.starts_with("STOR"), whole, "{number}");
        let _ = std::fs::remove_file(scene.path("root/new"));
        scene.assert_serves_others();
    }
    scene.server.wait_for_log(&["operation failed"]);
    scene.assert_calms_down();
}

#[test]
fn bytes_scattered_over_a_file_cost_little_memory_and_are_refused_when_they_are_too_many() {
    let scene = Scene::open("");
    let before = scene.server.daemon.pss_bytes();
    // Every second byte of the file, each in a block of its own.
    let scattered = |count: u64| -> Vec<u8> { (0..count).flat_map(|place| block(0, place * 2, b"x")).collect() };
    let end = header(EOF | EOD, 0, 1).to_vec();
    let reply = store(&scene, "STOR /few", &[scattered(1000), end.clone()]);
    assert_eq!(reply.code, 226, "{}", reply.text);
    assert_eq!(std::fs::metadata(scene.path("root/few")).expect("stored").len(), 1999);
    let reply = store(&scene, "STOR /many", &[scattered((1 << 20) + 2), end]);
    println!("{}", reply.text.trim_end());
    assert!((400..600).contains(&reply.code), "{}", reply.text);
    assert!(!scene.path("root/many").exists());
    let grown = scene.server.daemon.pss_bytes().saturating_sub(before);
    assert!(grown < 64 << 20, "{grown} bytes more");
    scene.assert_serves_others();
    scene.assert_calms_down();
}

/// As many blocks as a large file has stripe blocks would be listed for each address.
#[test]
fn a_share_of_a_large_file_costs_no_memory_whatever_a_block_is_to_be() {
    let scene = Scene::open("");
    let large = std::fs::File::create(scene.path("root/large")).expect("made");
    large.set_len(1 << 40).expect("sparse");
    let before = scene.server.daemon.pss_bytes();
    let listeners = [0, 1].map(|_| TcpListener::bind("127.0.0.1:0").expect("bound"));
    let mut guest = Control::login(scene.addr());
    guest.ask_for(200, "TYPE I");
    guest.ask_for(200, "MODE E");
    guest.ask_for(504, "OPTS RETR StripeLayout=Blocked;BlockSize=1;");
    guest.ask_for(200, "OPTS RETR StripeLayout=Blocked;BlockSize=4096;");
    let target = |listener: &TcpListener| {
        let port = listener.local_addr().expect("bound").port();
        format!(" 127,0,0,1,{},{}", port >> 8, port & 255)
    };
    guest.ask_for(200, &format!("SPOR{}", listeners.iter().map(target).collect::<String>()));
    guest.ask_for(150, "RETR /large");
    let channels = listeners.each_ref().map(|listener| listener.accept().expect("it connects").0);
    for (number, mut channel) in (0..).zip(&channels) {
        let mut head = [0; 17];
        channel.read_exact(&mut head).expect("a block comes at once");
        assert_eq!(head, header(0, 4096, number * 4096), "the first of its blocks");
    }
    let grown = scene.server.daemon.pss_bytes().saturating_sub(before);
    drop(channels);
    assert!((400..600).contains(&guest.last_reply().code));
    assert!(grown < 32 << 20, "{grown} bytes more");
    scene.assert_calms_down();
}

#[test]
fn no_path_leads_out_of_the_root() {
    let scene = Scene::open("");
    let outside = scene.path("outside");
    symlink(&outside, scene.path("root/absolute")).expect("made");
    symlink("../outside", scene.path("root/relative")).expect("made");
    symlink(outside.join("secret"), scene.path("root/straight")).expect("made");
    symlink("relative", scene.path("root/twice")).expect("made");
    let mut guest = Control::login(scene.addr());
    let ways = ["absolute", "relative", "twice", "..//outside", "./../outside", "../../../.."];
    for way in ways {
        let secret = match way.contains("../..") {
            true => format!("/{way}{}", outside.join("secret").display()),
            false => format!("/{way}/secret"),
        };
        let new = secret.replace("secret", "new");
        for line in [
            format!("SIZE {secret}"),
            format!("MLST {secret}"),
            format!("CKSM MD5 0 -1 {secret}"),
            format!("DELE {secret}"),
            format!("SITE CHMOD 777 {secret}"),
            format!("SITE UTIME 20200101000000 {secret}"),
            format!("MKD {new}"),
            format!("SITE SYMLINK /file {new}"),
            format!("SITE RDEL {}", secret.replace("/secret", "/.")),
        ] {
            let reply = guest.ask(&line);
            assert!((500..560).contains(&reply.code), "{line}: {}", reply.text);
        }
        for (from, to) in [("/file", new.as_str()), (secret.as_str(), "/stolen")] {
            let asked = guest.ask(&format!("RNFR {from}"));
            let renamed = if asked.code == 350 { guest.ask(&format!("RNTO {to}")) } else { asked };
            assert!((500..560).contains(&renamed.code), "{from} to {to}: {}", renamed.text);
        }
        for line in [format!("RETR {secret}"), format!("STOR {new}"), format!("APPE {secret}")] {
            guest.passive();
            let reply = guest.ask(&line);
            assert!((500..560).contains(&reply.code), "{line}: {}", reply.text);
        }
        scene.assert_contained();
    }
    assert!((500..560).contains(&guest.ask("SIZE /straight").code));
    assert!(scene.path("root/file").exists());
    scene.assert_serves_others();
}

#[test]
fn a_directory_that_turns_into_a_link_at_the_wrong_moment_leads_nowhere() {
    let scene = Scene::open("");
    let (real, link, name) = (scene.path("root/real"), scene.path("root/link"), scene.path("root/dir"));
    std::fs::create_dir(&real).expect("made");
    std::fs::set_permissions(&real, std::os::unix::fs::PermissionsExt::from_mode(0o777)).expect("set");
    symlink(scene.path("outside"), &link).expect("made");
    let done = AtomicBool::new(false);
    let mut stored = 0;
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
            let reply = guest.ask(&format!("STOR /dir/escape{number}"));
            if reply.code == 150 {
                drop(TcpStream::connect(data).expect("it listens"));
                stored += usize::from(guest.last_reply().code == 226);
            }
            let code = guest.ask("SIZE /dir/secret").code;
            assert!((500..560).contains(&code), "{code}");
        }
        done.store(true, Ordering::Relaxed);
        println!("{stored} of 300 files were stored in the directory");
    });
    assert_eq!(support::names(&real).len(), stored, "what was confirmed is there");
    scene.assert_contained();
    scene.assert_serves_others();
}

#[test]
fn a_port_scan_does_not_disturb_a_transfer() {
    let scene = Scene::open("");
    let (mut guest, data) = Control::extended(scene.addr());
    guest.ask_for(150, "STOR /scanned");
    for _ in 0..50 {
        drop(TcpStream::connect(data).expect("it listens"));
        vanish(TcpStream::connect(data).expect("it listens"));
    }
    let mut channel = TcpStream::connect(data).expect("it still listens");
    channel.write_all(&block(0, 0, &pattern(100_000))).expect("taken");
    channel.write_all(&header(EOF | EOD, 0, 1)).expect("taken");
    let reply = guest.last_reply();
    assert_eq!(reply.code, 226, "{}", reply.text);
    assert!(std::fs::read(scene.path("root/scanned")).expect("stored") == pattern(100_000));
    scene.assert_serves_others();
}

#[test]
fn two_writers_of_one_name_leave_one_whole_file() {
    let scene = Scene::open("");
    let contents = [vec![1; 200_000], vec![2; 150_000]];
    let mut writers = contents.each_ref().map(|_| {
        let mut guest = Control::login(scene.addr());
        guest.ask_for(200, "TYPE I");
        let data = guest.passive();
        guest.ask_for(150, "STOR /shared");
        (guest, TcpStream::connect(data).expect("it listens"))
    });
    for half in [0, 1] {
        for ((_, channel), content) in writers.iter_mut().zip(&contents) {
            let middle = content.len() / 2;
            channel.write_all(if half == 0 { &content[..middle] } else { &content[middle..] }).expect("taken");
        }
    }
    for (mut guest, channel) in writers {
        drop(channel);
        let reply = guest.last_reply();
        assert!(reply.code == 226 || (400..600).contains(&reply.code), "{}", reply.text);
    }
    let file = std::fs::read(scene.path("root/shared")).expect("stored");
    assert!(contents.contains(&file), "a mixture of {} bytes", file.len());
    scene.assert_serves_others();
}

#[test]
fn a_server_that_is_asked_to_end_finishes_what_it_has_begun() {
    let scene = Scene::open("");
    let (directory, server) = scene.into_parts();
    let mut guest = Control::login(server.addr());
    guest.ask_for(200, "TYPE I");
    let data = guest.passive();
    guest.ask_for(150, "STOR /last");
    let mut channel = TcpStream::connect(data).expect("it listens");
    channel.write_all(&pattern(100_000)).expect("taken");
    let address = server.addr();
    thread::scope(|scope| {
        let ending = scope.spawn(|| server.daemon.stop(PATIENCE).expect("it ends"));
        until("the end of the listener", || TcpStream::connect(address).is_err());
        channel.write_all(&pattern(200_000)[100_000..]).expect("a transfer goes on");
        drop(channel);
        let reply = guest.last_reply();
        assert_eq!(reply.code, 226, "{}", reply.text);
        let rest = guest.end();
        assert!(rest.is_empty() || rest.starts_with("421"), "{rest}");
        assert!(ending.join().expect("waited").success());
    });
    assert!(std::fs::read(directory.path().join("root/last")).expect("stored") == pattern(200_000));
}
