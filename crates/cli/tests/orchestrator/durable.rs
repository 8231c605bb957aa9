//! What counts as done survives a crash of the destination's host.

use std::fs;
use std::io::{BufRead as _, BufReader, Read, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::fs::symlink;
use std::sync::{Arc, Mutex};
use std::thread;

use whimbrel_engine::FaultCode;
use whimbrel_engine::dispatch::{Assignment, End, Server as SiteServer, Work};
use whimbrel_engine::task::{ItemKind, ItemState, Symlinks, TransferOptions};

use crate::bench::{Bench, Ends, item};
use crate::support::Field;
use crate::{open_up, verified};

/// What happens when a client has something made durable.
type OnSync = Box<dyn FnMut(&mut Told) + Send>;

/// What a server says of its host.
struct Told {
    /// The start in FEAT; `None`: the line is left out.
    start: Option<String>,
    /// The host crashes instead of answering.
    crashes: bool,
}

/// The control connections of a server, as they pass by.
struct Passage {
    url: String,
}

impl Passage {
    fn to(url: &str, start: Option<&str>, on_sync: impl FnMut(&mut Told) + Send + 'static) -> Self {
        let server = url.rsplit('/').next().unwrap().to_owned();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("ftp://{}", listener.local_addr().unwrap());
        let told = Told { start: start.map(str::to_owned), crashes: false };
        let state = Arc::new(Mutex::new((told, Box::new(on_sync) as OnSync)));
        thread::spawn(move || {
            for client in listener.incoming() {
                let (client, server) = (client.unwrap(), TcpStream::connect(&server).unwrap());
                let (there, back) = (client.try_clone().unwrap(), server.try_clone().unwrap());
                let (state, other) = (state.clone(), state.clone());
                thread::spawn(move || commands(&there, &server, &state));
                thread::spawn(move || replies(&back, &client, &other));
            }
        });
        Self { url }
    }
}

fn lines(from: impl Read, mut take: impl FnMut(Vec<u8>) -> bool) {
    let mut from = BufReader::new(from);
    let mut line = Vec::new();
    // A connection that breaks has ended.
    while from.read_until(b'\n', &mut line).is_ok_and(|count| count > 0) && take(std::mem::take(&mut line)) {}
}

fn commands(client: &TcpStream, mut server: &TcpStream, state: &Mutex<(Told, OnSync)>) {
    lines(client, |line| {
        if line.starts_with(b"SITE SYNC") {
            let (told, on_sync) = &mut *state.lock().unwrap();
            on_sync(told);
            if std::mem::take(&mut told.crashes) {
                return false;
            }
        }
        server.write_all(&line).is_ok()
    });
    let _ = (client.shutdown(Shutdown::Both), server.shutdown(Shutdown::Both));
}

fn replies(server: &TcpStream, mut client: &TcpStream, state: &Mutex<(Told, OnSync)>) {
    lines(server, |line| {
        let line = match (line.starts_with(b" SYNC "), &state.lock().unwrap().0.start) {
            (false, _) => line,
            (true, Some(start)) => format!(" SYNC 0123abcd-{start}\r\n").into_bytes(),
            (true, None) => return true,
        };
        client.write_all(&line).is_ok()
    });
    let _ = (client.shutdown(Shutdown::Both), server.shutdown(Shutdown::Both));
}

/// A transfer to the second server, by way of a passage.
fn by_way_of(passage: &Passage, ends: &Ends, options: TransferOptions) -> Assignment {
    let mut assignment = ends.assignment(Work::Transfer(Box::new(options)));
    assignment.destination.as_mut().unwrap().servers = vec![SiteServer::at(&*passage.url, None)];
    assignment
}

#[test]
fn what_a_crash_of_the_destination_may_have_taken_back_is_copied_again() {
    let field = Field::new();
    let ends = Ends::own(&field.path(""));
    let bench = Bench::new();
    let (from, to) = (field.path("from/deep"), field.path("to/deep"));
    let (lost, mut crashed) = (to.join("f00"), false);
    let passage = Passage::to(&ends.site(1).servers[0].url, Some("00000000000000a1"), move |told| {
        if !std::mem::replace(&mut crashed, true) {
            fs::write(&lost, "").unwrap();
            (told.crashes, told.start) = (true, Some("00000000000000a2".to_owned()));
        }
    });
    open_up(&field.path(""));
    let assignment = by_way_of(&passage, &ends, verified());
    let task = assignment.lease.task;
    bench.service.submit(assignment, vec![item(1, &from, &to)]);
    let end = bench.wait(task);
    let End::Again { fault, .. } = end else { panic!("{end:?}") };
    assert_eq!(fault.code, FaultCode::HostRestarted);
    bench.service.see(task, |task| {
        assert_eq!(task.count(ItemKind::File, ItemState::Succeeded), 0);
        assert!(task.count(ItemKind::File, ItemState::Retrying) > 0);
    });

    bench.service.again(task);
    let end = bench.wait(task);
    assert!(matches!(end, End::Finished), "{end:?}");
    crate::assert_same(&from, &to);
    bench.service.see(task, |task| assert_eq!(task.open(), 0));
    bench.finish();
}

#[test]
fn a_server_that_makes_nothing_durable_at_a_wish_is_not_waited_for() {
    let field = Field::new();
    let ends = Ends::own(&field.path(""));
    let bench = Bench::new();
    let passage = Passage::to(&ends.site(1).servers[0].url, None, |_| panic!("nobody told it of that command"));
    open_up(&field.path(""));
    let assignment = by_way_of(&passage, &ends, verified());
    let task = assignment.lease.task;
    bench.service.submit(assignment, vec![item(1, &field.path("from/deep"), &field.path("to/deep"))]);
    let end = bench.wait(task);
    assert!(matches!(end, End::Finished), "{end:?}");
    bench.service.see(task, |task| assert_eq!((task.open(), task.paths(ItemState::Failed)), (0, Vec::new())));
    bench.finish();
}

#[test]
fn a_move_deletes_a_link_once_its_copy_is_durable() {
    let field = Field::new();
    let ends = Ends::own(&field.path(""));
    let bench = Bench::new();
    let (from, to) = (field.path("from/linked"), field.path("to/linked"));
    fs::create_dir(&from).unwrap();
    symlink("elsewhere", from.join("link")).unwrap();
    open_up(&field.path(""));
    let (source, copy) = (from.join("link"), to.join("link"));
    let seen = Arc::new(Mutex::new(Vec::new()));
    let told = seen.clone();
    let passage = Passage::to(&ends.site(1).servers[0].url, Some("00000000000000a1"), move |_| {
        told.lock().unwrap().push([&source, &copy].map(|path| fs::symlink_metadata(path).is_ok()));
    });
    let options = TransferOptions { move_source: true, symlinks: Symlinks::Keep, ..verified() };
    let assignment = by_way_of(&passage, &ends, options);
    let task = assignment.lease.task;
    bench.service.submit(assignment, vec![item(1, &from, &to)]);
    let end = bench.wait(task);
    assert!(matches!(end, End::Finished), "{end:?}");
    assert!(!from.exists() && fs::read_link(to.join("link")).unwrap().as_os_str() == "elsewhere");
    assert!(seen.lock().unwrap().contains(&[true, true]), "{seen:?}");
    bench.finish();
}
