//! Control sessions against scripted servers: what is sent ahead, and what happens when that is not liked.
#![allow(clippy::unwrap_used, reason = "a test helper that fails ends its test")]

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use uuid::Uuid;
use whimbrel_dtn::client::end::End;
use whimbrel_dtn::client::local::LocalOptions;
use whimbrel_dtn::client::meeting::{Meeting, MeetingPlace};
use whimbrel_dtn::client::options::Place;
use whimbrel_dtn::client::remote::Remote;
use whimbrel_dtn::client::target::{SessionOptions, Target};
use whimbrel_engine::listing::ObjectKind;
use whimbrel_engine::{Fault, FaultCode};
use whimbrel_proto::op::{Op, Outcome, ReceiveSpec};

const PATIENCE: Duration = Duration::from_secs(10);

/// Serves each connection of a list with a script of its own.
fn serve(scripts: Vec<fn(TcpStream)>) -> Target {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        for script in scripts {
            let (stream, _) = listener.accept().unwrap();
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
            script(stream);
        }
    });
    Target::anonymous("127.0.0.1", port)
}

fn facts() -> Op {
    Op::Facts { path: b"/x".to_vec(), facts: None }
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

/// A server's answer to one command.
fn answer(line: &str) -> &'static str {
    match line.split(' ').next().unwrap() {
        "USER" => "331 Password, please.\r\n",
        "PASS" => "230 Welcome.\r\n",
        "FEAT" => "211-Extensions\r\n MLST Type*;\r\n MLSC\r\n211 End\r\n",
        "TYPE" => "200 Type set.\r\n",
        "MLST" => "250-status\r\n Type=file;Size=3; /x\r\n250 End\r\n",
        _ => "500 What?\r\n",
    }
}

/// Answers one line after another; closes when more than a line comes at once.
fn strict(mut stream: TcpStream) {
    stream.write_all(b"220 Strict\r\n").unwrap();
    let mut buffer = [0; 4096];
    loop {
        let count = stream.read(&mut buffer).unwrap_or(0);
        let text = String::from_utf8_lossy(&buffer[..count]).into_owned();
        if count == 0 || text.matches('\n').count() > 1 {
            return;
        }
        stream.write_all(answer(text.trim_end()).as_bytes()).unwrap();
    }
}

/// Says nothing, not even hello, before the last command of the first flight is here.
fn patient(stream: TcpStream) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let mut replies = "220 Patient\r\n".to_owned();
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).unwrap() == 0 {
            return;
        }
        replies += answer(line.trim_end());
        if line.starts_with("MLST") {
            break;
        }
    }
    (&stream).write_all(replies.as_bytes()).unwrap();
    // Stay until the client goes.
    let _ = reader.read_line(&mut String::new());
}

fn unfriendly(mut stream: TcpStream) {
    stream.write_all(b"220 Hm\r\n").unwrap();
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let mut line = String::new();
    while reader.read_line(&mut line).unwrap_or(0) > 0 {
        let reply = if line.starts_with("PASS") { "530 Go away.\r\n" } else { "331 Password.\r\n" };
        if stream.write_all(reply.as_bytes()).is_err() {
            return;
        }
        line.clear();
    }
}

/// Sends a listing line by line, refuses the next one at length, and answers at last.
fn talkative(mut stream: TcpStream) {
    stream.write_all(b"220 Hello\r\n").unwrap();
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let mut line = String::new();
    while reader.read_line(&mut line).unwrap_or(0) > 0 {
        let parts: &[&str] = match line.trim_end() {
            "MLSC /d" => &["250-Listing\r\n Type=file; a\r\n Type=fi", "le; b\r\n", "250 End\r\n"],
            "MLSC /no" => &["550-GlobusError: v=1 c=PERMISSION_DENIED\r\n", "550-why\r\n550 End.\r\n"],
            other => &[answer(other)],
        };
        for part in parts {
            stream.write_all(part.as_bytes()).unwrap();
        }
        line.clear();
    }
}

/// Answers line by line; goes away when it gets one that it should not.
fn storing(mut stream: TcpStream, features: &str, attributes: &[(&str, &str)]) {
    stream.write_all(b"220 Hello\r\n").unwrap();
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let mut line = String::new();
    while reader.read_line(&mut line).unwrap_or(0) > 0 {
        let told = line.trim_end();
        let reply = match told.strip_prefix("SITE STORATTR ") {
            Some(told) => match attributes.iter().find(|(wanted, _)| *wanted == told) {
                Some((_, reply)) => (*reply).to_owned(),
                None => return,
            },
            None if told == "FEAT" => format!("211-Extensions\r\n{features}211 End\r\n"),
            None if told.starts_with("SITE CHUNK COMMIT") => "250 OK.\r\n".to_owned(),
            None => answer(told).to_owned(),
        };
        stream.write_all(reply.as_bytes()).unwrap();
        line.clear();
    }
}

const WITH_MODE: &str = "modify=20010203040506;UNIX.mode=0640;";

fn takes_modes(stream: TcpStream) {
    storing(stream, " STORATTR\r\n STORMODE\r\n", &[(WITH_MODE, "250 OK.\r\n")]);
}

fn refuses_modes(stream: TcpStream) {
    storing(stream, " STORATTR\r\n STORMODE\r\n", &[(WITH_MODE, "501 No.\r\n")]);
}

fn takes_times(stream: TcpStream) {
    storing(stream, " STORATTR\r\n", &[("modify=20010203040506;", "250 OK.\r\n")]);
}

fn described(target: &Target) -> Outcome {
    block_on(async {
        let (mut remote, ops) = Remote::dial(target, &SessionOptions::default(), &[facts()]).await.expect("a session");
        assert!(remote.features.has("MLSC"));
        remote.finish(ops[0]).await.expect("facts")
    })
}

const LINE: &[u8] = b"Type=file;Size=3; /x";

#[test]
fn login_and_first_questions_leave_without_awaiting_even_the_greeting() {
    assert_eq!(described(&serve(vec![patient])), Outcome::Line(LINE.to_vec()));
}

#[test]
fn a_server_that_closes_on_commands_sent_ahead_is_asked_one_by_one() {
    let target = serve(vec![strict, strict]);
    block_on(async {
        let (mut remote, _) = Remote::dial(&target, &SessionOptions::default(), &[]).await.expect("a session");
        assert_eq!(remote.run(facts()).await.expect("facts"), Outcome::Line(LINE.to_vec()));
    });
}

#[test]
fn modes_are_told_where_they_are_taken_and_a_refusal_is_a_failure() {
    let commit = || Op::CommitChunked {
        path: b"/f".to_vec(),
        session: vec![7],
        modified: Some((981_173_106, 0)),
        mode: Some(0o640),
        expected: None,
    };
    let scripts: [(fn(TcpStream), bool); 3] = [(takes_modes, true), (takes_times, true), (refuses_modes, false)];
    for (script, done) in scripts {
        let target = serve(vec![script]);
        let ended = block_on(async {
            let (mut remote, _) = Remote::dial(&target, &SessionOptions::default(), &[]).await.expect("a session");
            remote.run(commit()).await
        });
        assert_eq!(ended.is_ok(), done, "{ended:?}");
    }
}

/// Stores only what it was told to make durable; whether it takes that.
fn durable(mut stream: TcpStream, takes: bool) {
    stream.write_all(b"220 Hello\r\n").unwrap();
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let (mut line, mut told) = (String::new(), false);
    while reader.read_line(&mut line).unwrap_or(0) > 0 {
        let reply = match line.trim_end() {
            "FEAT" => "211-Extensions\r\n DURABLE\r\n211 End\r\n",
            "SITE DURABLE 1" if takes => {
                told = true;
                "200 OK.\r\n"
            }
            "SITE DURABLE 1" => "501 No.\r\n",
            "STOR /f" if told => "150 Go.\r\n226 Done.\r\n",
            "STOR /f" => "150 Go.\r\n226 Perhaps.\r\n",
            other => answer(other),
        };
        stream.write_all(reply.as_bytes()).unwrap();
        line.clear();
    }
}

#[test]
fn a_copy_that_must_be_durable_is_none_where_the_server_refuses_that() {
    let scripts: [(fn(TcpStream), bool); 2] =
        [(|stream| durable(stream, true), true), (|stream| durable(stream, false), false)];
    for (script, done) in scripts {
        let target = serve(vec![script]);
        let ended = block_on(async {
            let (mut remote, _) = Remote::dial(&target, &SessionOptions::default(), &[]).await.expect("a session");
            remote.run(Op::Receive(ReceiveSpec { durable: true, ..ReceiveSpec::of("/f") })).await
        });
        assert_eq!(ended.is_ok(), done, "{ended:?}");
    }
}

#[test]
fn listings_over_the_control_connection_come_whole_and_refusals_keep_their_cause() {
    let target = serve(vec![talkative]);
    block_on(async {
        let mut end = End::open(Some(&target), &SessionOptions::default(), &LocalOptions::default()).await.unwrap();
        let mut names = Vec::new();
        let list = end.list(b"/d", false, async |batch| {
            names.extend(batch.into_iter().map(|(object, _)| object.path));
            Ok(())
        });
        list.await.unwrap();
        assert_eq!(names, [b"a".to_vec(), b"b".to_vec()]);
        let refused = end.list(b"/no", false, async |_| Ok(())).await.expect_err("refused");
        assert_eq!(refused.code, FaultCode::PermissionDenied);
        assert!(end.stat(b"/x", false).await.unwrap().is_some(), "the session goes on");
    });
}

/// Hands out the client's end of a connection to a script.
#[derive(Debug)]
struct Met(Mutex<Option<UnixStream>>);

impl MeetingPlace for Met {
    fn meet(&self, _: Uuid) -> Pin<Box<dyn Future<Output = Result<UnixStream, Fault>> + Send + '_>> {
        Box::pin(std::future::ready(Ok(self.0.lock().unwrap().take().expect("asked once"))))
    }
}

#[test]
fn who_made_the_connection_itself_cannot_have_us_dial_an_address_of_its_choice() {
    let inside = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = inside.local_addr().unwrap().port();
    let (ours, theirs) = UnixStream::pair().unwrap();
    ours.set_nonblocking(true).unwrap();
    let script = thread::spawn(move || {
        (&theirs).write_all(b"220 Hello\r\n").unwrap();
        let mut asked = Vec::new();
        for line in BufReader::new(&theirs).lines().map_while(Result::ok) {
            // It does not say that it takes no data connections, and lists only over one.
            let reply = match line.split(' ').next().unwrap() {
                "FEAT" => "211-Extensions\r\n MLST Type*;\r\n EPSV\r\n211 End\r\n".to_owned(),
                "EPSV" => format!("229 Listening (|||{port}|)\r\n"),
                "PASV" => format!("227 Listening (127,0,0,1,{},{})\r\n", port >> 8, port & 255),
                _ => answer(&line).to_owned(),
            };
            asked.push(line);
            if (&theirs).write_all(reply.as_bytes()).is_err() {
                break;
            }
        }
        asked
    });
    let target = Target::anonymous("laptop-1", 0);
    let place = Arc::new(Met(Mutex::new(Some(ours))));
    let meeting = Meeting::new(BTreeMap::from([(target.address(), Uuid::nil())]), place);
    let target = Target { meeting: Some(meeting), ..target };
    let fault = block_on(async {
        let mut end = End::open(Some(&target), &SessionOptions::default(), &LocalOptions::default()).await.unwrap();
        assert!(end.is_outbound());
        end.list(b"/d", false, async |_| Ok(())).await.expect_err("it has no other way")
    });
    assert_eq!(fault.code, FaultCode::PeerIncompatible, "{fault}");
    inside.set_nonblocking(true).unwrap();
    assert!(inside.accept().is_err(), "nobody has connected");
    let asked = script.join().unwrap();
    assert!(asked.iter().all(|line| !line.contains("PSV") && !line.contains("PASV")), "{asked:?}");
}

/// A server without machine listings whose logins begin in `/home/u`, of which only descriptions as by `ls` can be had. Its
/// directories: `data` is read, `shut` is not, as is `closed` in another way, and `plain` is listed without flags only.
fn old(mut stream: TcpStream, mut tells_home: bool) -> std::io::Result<()> {
    stream.write_all(b"220 Hello\r\n")?;
    let (mut cwd, mut passive) = ("/home/u".to_owned(), None);
    for line in BufReader::new(stream.try_clone()?).lines() {
        let line = line?;
        let (word, rest) = line.split_once(' ').unwrap_or((&line, ""));
        let (flag, path) = rest.strip_prefix("-a ").map_or(("", rest), |path| ("-a", path));
        let path = if path.starts_with('/') { path.to_owned() } else { format!("{cwd}/{path}") };
        let reply = match word {
            "FEAT" => "211-Extensions\r\n SIZE\r\n211 End\r\n".to_owned(),
            "PWD" if tells_home => {
                // It is asked once.
                tells_home = false;
                format!("257 \"{cwd}\" is the current directory\r\n")
            }
            "CWD" if DIRECTORIES.iter().any(|name| path == format!("/home/u{name}")) => {
                cwd = path;
                "250 Fine.\r\n".to_owned()
            }
            "SIZE" if path == "/home/u/data/a" => "213 4\r\n".to_owned(),
            "MLST" => "500 What?\r\n".to_owned(),
            "CWD" | "SIZE" => "550 No.\r\n".to_owned(),
            "PASV" => {
                let listener = TcpListener::bind("127.0.0.1:0")?;
                let [high, low] = listener.local_addr()?.port().to_be_bytes();
                passive = Some(listener);
                format!("227 Passive (127,0,0,1,{high},{low})\r\n")
            }
            "LIST" => {
                stream.write_all(b"150 Here it comes.\r\n")?;
                let (mut data, _) = passive.take().expect("PASV comes first").accept()?;
                data.write_all(ls(flag, &path).as_bytes())?;
                "226 Transfer done (but failed to open directory, or not).\r\n".to_owned()
            }
            _ => answer(&line).to_owned(),
        };
        stream.write_all(reply.as_bytes())?;
    }
    Ok(())
}

fn tells_home(stream: TcpStream) {
    // A client that goes is what ends it.
    drop(old(stream, true));
}

fn hides_home(stream: TcpStream) {
    drop(old(stream, false));
}

const DIRECTORIES: [&str; 6] = ["", "/data", "/shut", "/closed", "/plain", "/plain/plain"];

fn ls(flag: &str, path: &str) -> String {
    let line = |kind: char, name: &str| format!("{kind}rwxr-xr-x 2 u g 4 Nov 21 01:59 {name}\r\n");
    match (path, flag) {
        ("/home/u/data", "-a") => [line('d', "."), line('d', ".."), line('-', ".hidden"), line('-', "a")].concat(),
        ("/home/u/data", _) => line('-', "a"),
        ("/home/u/plain", "") => line('d', "plain"),
        ("/home/u/closed", _) => line('d', "closed"),
        _ => String::new(),
    }
}

async fn listed(end: &mut End, path: &str) -> Result<Vec<String>, FaultCode> {
    let mut names = Vec::new();
    let each = async |batch: Vec<(whimbrel_engine::listing::Object, _)>| {
        names.extend(batch.into_iter().map(|(object, _)| String::from_utf8(object.path).unwrap()));
        Ok(())
    };
    end.list(path.as_bytes(), false, each).await.map_err(|fault| fault.code)?;
    Ok(names)
}

#[test]
fn where_relative_paths_count_from_stays_when_a_server_is_asked_for_directories() {
    let target = serve(vec![tells_home]);
    block_on(async {
        let mut end = End::open(Some(&target), &SessionOptions::default(), &LocalOptions::default()).await.unwrap();
        for _ in 0..2 {
            let found = end.stat(b"data", false).await.unwrap().expect("it is there");
            assert_eq!(found.kind, ObjectKind::Directory);
            assert_eq!(end.stat(b"data/a", false).await.unwrap().and_then(|found| found.size), Some(4));
            assert_eq!(end.stat(b"none", false).await.unwrap(), None);
        }
        assert_eq!(listed(&mut end, "data").await.unwrap(), [".hidden", "a"]);
    });
}

#[test]
fn where_a_server_does_not_tell_what_relative_paths_count_from_only_absolute_ones_are_asked_for() {
    let target = serve(vec![hides_home]);
    block_on(async {
        let mut end = End::open(Some(&target), &SessionOptions::default(), &LocalOptions::default()).await.unwrap();
        assert!(end.stat(b"data", false).await.is_err(), "it may be a directory");
        assert_eq!(end.stat(b"data/a", false).await.unwrap().and_then(|found| found.size), Some(4));
        assert_eq!(listed(&mut end, "data").await.unwrap(), [".hidden", "a"], "the session is where it was");
    });
}

#[test]
fn a_directory_that_is_listed_as_if_nothing_was_in_it_is_unclear_unless_it_shows_itself() {
    let target = serve(vec![tells_home]);
    block_on(async {
        let mut end = End::open(Some(&target), &SessionOptions::default(), &LocalOptions::default()).await.unwrap();
        assert_eq!(listed(&mut end, "/home/u/data").await.unwrap(), [".hidden", "a"], "without dots");
        // Of one the server shows nothing, of the other its own line.
        for unread in ["/home/u/shut", "/home/u/closed"] {
            assert_eq!(listed(&mut end, unread).await, Err(FaultCode::ListingUnclear), "{unread}");
        }
        assert_eq!(listed(&mut end, "/home/u/plain").await.unwrap(), ["plain"], "one that knows no flags");
    });
}

#[test]
fn a_refused_password_is_a_failed_login_and_names_the_server() {
    let target = serve(vec![unfriendly]);
    let fault = block_on(Remote::dial(&target, &SessionOptions::default(), &[])).expect_err("refused");
    assert_eq!(fault.code, FaultCode::LoginFailed);
    assert!(fault.to_string().contains("530 Go away."), "{fault}");
}

#[test]
fn a_name_with_a_line_break_is_refused_before_anything_is_sent() {
    let target = serve(vec![patient]);
    let bad = Op::Facts { path: b"/a\r\nDELE /b".to_vec(), facts: None };
    let fault = block_on(Remote::dial(&target, &SessionOptions::default(), &[bad])).expect_err("refused");
    assert_eq!(fault.code, FaultCode::InvalidPath);
}

#[test]
fn a_place_keeps_its_server_when_its_path_changes() {
    let place = Place { target: Some(Target::anonymous("h", 1)), path: b"/a".to_vec() };
    assert_eq!(place.with_path(&b"/b"[..]).target, place.target);
}
