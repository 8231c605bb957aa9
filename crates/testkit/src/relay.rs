//! Relays before FTP servers through which the data pass, too: what happens on the way is decided by bytes moved and
//! commands seen, not by time.
//!
//! A [`Relay`] stands before one server and rewrites the addresses in its replies, so that whoever connects for data
//! goes through it. All relays of a test share one [`Way`], which counts, waits for moments and does what is planned
//! for them.

use std::any::Any;
use std::collections::VecDeque;
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::mpsc::channel;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::error::{Attempt, Result};
use crate::faults::reset;

/// Most bytes that pass at a time.
const PIECE: usize = 64 << 10;

/// Time for connections to end on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// When something happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// So many bytes of data, framing included, have passed in all.
    Bytes(u64),
    /// A client's line that begins so is about to pass, for the n-th time (from 1).
    Command(&'static str, u32),
    /// The next final reply on a connection behind such a line is about to pass, for the n-th time.
    Answer(&'static str, u32),
}

/// What happens then; it runs on the relay's thread, so what follows on that connection waits for it.
pub type Act = Box<dyn FnOnce(&Way) + Send>;

/// What the relays of one test have in common; clones are the same.
#[derive(Clone, Default)]
pub struct Way {
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// Nothing passes, and nobody is told.
    closed: bool,
    /// The test is over.
    ended: bool,
    bytes: u64,
    acts: Vec<(Moment, Act)>,
    /// How many are being done now.
    acting: u32,
    /// What the first of them said that failed.
    failed: Option<Box<dyn Any + Send>>,
    flips: Vec<(u64, u8)>,
    /// Bytes at a time, the pause after each, and the count of bytes at which it ends.
    trickle: Option<(usize, Duration, u64)>,
    /// Behind this in clients' lines no case is told.
    folds_behind: Option<&'static str>,
    seen: Vec<(Moment, u32)>,
    listeners: Vec<Arc<TcpListener>>,
    sockets: Vec<TcpStream>,
    happened: Vec<String>,
    /// Clients' lines, in order.
    said: Vec<Said>,
    /// Time from a command to its reply, at least.
    round_trip: Duration,
    /// Round trips that the replies which clients have heard took one after the other.
    heard: u64,
    /// Control connections so far.
    connections: u64,
    /// Directions of data connections that have not ended.
    passing: u32,
}

/// A line that a client said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Said {
    /// Number of the control connection, from 1.
    pub connection: u64,
    /// The round trip that it belongs to, from 1: one more than that of the latest reply heard before on any connection.
    pub round: u64,
    /// Without its line end.
    pub line: String,
}

impl Way {
    /// Nothing is planned.
    pub fn new() -> Way {
        Way::default()
    }

    /// Plans something, once.
    pub fn at(&self, moment: Moment, act: impl FnOnce(&Way) + Send + 'static) {
        self.state().acts.push((moment, Box::new(act)));
    }

    /// Inverts one bit (0 to 7) of the data byte with this number, counted over all data connections.
    pub fn flip(&self, byte: u64, bit: u8) {
        self.state().flips.push((byte, 1 << (bit & 7)));
    }

    /// Has servers see in small letters what clients' lines say behind the last `marker`: like storage that does not tell case.
    pub fn fold_behind(&self, marker: &'static str) {
        self.state().folds_behind = Some(marker);
    }

    /// A client's line as it is passed on.
    fn folded(&self, line: &[u8]) -> Vec<u8> {
        let mut new = line.to_vec();
        let marker = self.state().folds_behind.map(str::as_bytes);
        let place =
            marker.and_then(|marker| Some((line.windows(marker.len()).rposition(|part| part == marker)?, marker)));
        if let Some((at, marker)) = place {
            new[at + marker.len()..].make_ascii_lowercase();
        }
        new
    }

    /// From now on `piece` bytes at a time pass on each connection, one in each interval, for `bytes` bytes in all.
    pub fn trickle(&self, piece: usize, every: Duration, bytes: u64) {
        let mut state = self.state();
        state.trickle = Some((piece.max(1), every, state.bytes + bytes));
    }

    /// Bytes of data that have passed, framing included.
    pub fn bytes(&self) -> u64 {
        self.state().bytes
    }

    /// Waits until no data connection is open: what a killed program had written passes after its end.
    ///
    /// # Panics
    /// If one is open after a minute.
    pub fn wait_until_quiet(&self) {
        let passing = |state: &mut State| state.passing > 0;
        let waited = self.shared.changed.wait_timeout_while(self.state(), PATIENCE, passing);
        let (state, time) = waited.unwrap_or_else(PoisonError::into_inner);
        assert!(!time.timed_out(), "{} directions of data connections are open", state.passing);
    }

    /// Lets nothing pass until [`Way::open`]; nobody is told.
    pub fn close(&self) {
        self.state().closed = true;
    }

    /// Lets everything pass again.
    pub fn open(&self) {
        self.state().closed = false;
        self.shared.changed.notify_all();
    }

    /// Both sides of every connection see a reset.
    pub fn reset_all(&self) {
        self.state().sockets.drain(..).for_each(|socket| reset(&socket));
    }

    /// Forgets what is planned, waits for what is being done, and lets everything pass. An act that panicked does so
    /// again here, on the thread of the test.
    pub fn heal(&self) {
        let mut state = self.state();
        state.acts.clear();
        let acting = |state: &mut State| state.acting > 0;
        let mut state = self.shared.changed.wait_while(state, acting).unwrap_or_else(PoisonError::into_inner);
        (state.acts, state.flips, state.trickle, state.closed) = (Vec::new(), Vec::new(), None, false);
        drop(state);
        self.shared.changed.notify_all();
        self.tell_failed();
    }

    /// Panics with what the first act said that failed, unless this thread does so already.
    fn tell_failed(&self) {
        let failed = self.state().failed.take();
        if let Some(panic) = failed.filter(|_| !thread::panicking()) {
            resume_unwind(panic);
        }
    }

    /// Notes something for those who read how a test went.
    pub fn note(&self, what: impl Into<String>) {
        let mut state = self.state();
        let line = format!("at {} bytes: {}", state.bytes, what.into());
        state.happened.push(line);
    }

    /// What was noted, in order.
    pub fn happened(&self) -> Vec<String> {
        self.state().happened.clone()
    }

    /// What clients have said so far, in order, each line with the number of its control connection.
    pub fn said(&self) -> Vec<(u64, String)> {
        self.state().said.iter().map(|said| (said.connection, said.line.clone())).collect()
    }

    /// Has replies to control connections opened from now on arrive this long after they came, as over a long path.
    ///
    /// With much more than clients think, [`Said::round`] counts what would be round trips over any long path, however
    /// slow the machine is: what was asked before a reply was heard did not wait for it.
    pub fn set_round_trip(&self, time: Duration) {
        self.state().round_trip = time;
    }

    /// What clients have said so far, in order, each with its round trip.
    pub fn rounds(&self) -> Vec<Said> {
        self.state().said.clone()
    }

    /// Ends every connection and listener of its relays. An act that panicked does so again here, on the thread of the
    /// test.
    pub fn end(&self) {
        let mut state = self.state();
        state.ended = true;
        state.acts.clear();
        for listener in state.listeners.drain(..) {
            // Wakes the acceptor with an error, which ends it.
            let _ = rustix::net::shutdown(&listener, rustix::net::Shutdown::Both);
        }
        for socket in state.sockets.drain(..) {
            // Closed already is what is wanted.
            let _ = socket.shutdown(Shutdown::Both);
        }
        drop(state);
        self.shared.changed.notify_all();
        self.tell_failed();
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits while nothing may pass; false at the end of the test.
    fn pass(&self) -> bool {
        let state = self.state();
        let wait = |state: &mut State| state.closed && !state.ended;
        !self.shared.changed.wait_while(state, wait).unwrap_or_else(PoisonError::into_inner).ended
    }

    fn register(&self, socket: &TcpStream) -> io::Result<()> {
        socket.set_nodelay(true)?;
        self.state().sockets.push(socket.try_clone()?);
        Ok(())
    }

    /// Most bytes that may pass in the next step, and the pause after them.
    fn step(&self) -> (usize, Duration) {
        let mut state = self.state();
        if state.trickle.is_some_and(|(.., end)| state.bytes >= end) {
            state.trickle = None;
        }
        state.trickle.map_or((PIECE, Duration::ZERO), |(piece, every, _)| (piece.min(PIECE), every))
    }

    /// Counts data that are about to pass and damages them as planned.
    fn count(&self, bytes: &mut [u8]) {
        let mut state = self.state();
        let start = state.bytes;
        state.bytes += bytes.len() as u64;
        let mut flipped = Vec::new();
        state.flips.retain(|&(at, mask)| {
            let byte = at.checked_sub(start).and_then(|index| bytes.get_mut(usize::try_from(index).ok()?));
            let here = byte.is_some();
            if let Some(byte) = byte {
                *byte ^= mask;
                flipped.push(at);
            }
            !here
        });
        let lines = flipped.into_iter().map(|at| format!("data byte {at} was damaged on the way"));
        state.happened.extend(lines);
    }

    fn bytes_passed(&self) {
        self.act(|state| {
            let bytes = state.bytes;
            state.acts.iter().position(|(moment, _)| matches!(moment, Moment::Bytes(at) if *at <= bytes))
        });
    }

    /// A line passes that is counted under `make(prefix, n)` for every planned prefix it begins with.
    fn line_passes(&self, line: &[u8], make: fn(&'static str, u32) -> Moment) {
        let due = {
            let mut state = self.state();
            let prefixes: Vec<&'static str> = state.acts.iter().filter_map(|(moment, _)| prefix(moment)).collect();
            let mut due = Vec::new();
            for word in unique(prefixes).into_iter().filter(|word| line.starts_with(word.as_bytes())) {
                let key = make(word, 0);
                let at = state.seen.iter().position(|(seen, _)| *seen == key).unwrap_or_else(|| {
                    state.seen.push((key, 0));
                    state.seen.len() - 1
                });
                state.seen[at].1 += 1;
                due.push(make(word, state.seen[at].1));
            }
            due
        };
        for moment in due {
            self.act(|state| state.acts.iter().position(|(planned, _)| *planned == moment));
        }
    }

    /// Does what is due, with nothing locked.
    fn act(&self, due: impl Fn(&State) -> Option<usize>) {
        loop {
            let act = {
                let mut state = self.state();
                let act = due(&state).map(|at| state.acts.swap_remove(at).1);
                state.acting += u32::from(act.is_some());
                act
            };
            let Some(act) = act else { return };
            let failed = catch_unwind(AssertUnwindSafe(|| act(self))).err();
            let mut state = self.state();
            state.acting -= 1;
            state.failed = state.failed.take().or(failed);
            drop(state);
            self.shared.changed.notify_all();
        }
    }
}

fn prefix(moment: &Moment) -> Option<&'static str> {
    match moment {
        Moment::Bytes(_) => None,
        Moment::Command(prefix, _) | Moment::Answer(prefix, _) => Some(prefix),
    }
}

fn unique(mut words: Vec<&'static str>) -> Vec<&'static str> {
    words.sort_unstable();
    words.dedup();
    words
}

/// A relay before one server on this host; it lives as long as its [`Way`].
#[derive(Clone, Debug)]
pub struct Relay {
    address: SocketAddr,
    server: Arc<Mutex<SocketAddr>>,
}

impl Relay {
    /// Starts before a server, which need not run yet.
    pub fn before(server: SocketAddr, way: &Way) -> Result<Relay> {
        let what = format!("starting a relay to {server}");
        let server = Arc::new(Mutex::new(server));
        let target = server.clone();
        let address = listen(way, move |client, way| relay_control(client, *lock(&target), way)).attempt(|| what)?;
        Ok(Relay { address, server })
    }

    /// Sends those who connect from now on to another server: one that came back on another port.
    pub fn retarget(&self, server: SocketAddr) {
        *lock(&self.server) = server;
    }

    /// Where clients connect.
    pub fn addr(&self) -> SocketAddr {
        self.address
    }
}

fn lock(address: &Mutex<SocketAddr>) -> MutexGuard<'_, SocketAddr> {
    address.lock().unwrap_or_else(PoisonError::into_inner)
}

fn listen(way: &Way, serve: impl Fn(TcpStream, &Way) + Send + 'static) -> io::Result<SocketAddr> {
    let listener = Arc::new(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?);
    let address = listener.local_addr()?;
    way.state().listeners.push(listener.clone());
    let way = way.clone();
    thread::spawn(move || {
        while let Ok((client, _)) = listener.accept() {
            // Whoever comes while nothing passes is kept waiting.
            if !way.pass() {
                break;
            }
            serve(client, &way);
        }
    });
    Ok(address)
}

fn relay_control(client: TcpStream, address: SocketAddr, way: &Way) {
    // A server that is not there is seen as a connection that closes at once.
    let Ok(server) = TcpStream::connect(address) else { return };
    let asked = Arc::new(Mutex::new(Vec::new()));
    let (number, greeting) = {
        let mut state = way.state();
        state.connections += 1;
        (state.connections, state.heard + 1)
    };
    let rounds = Arc::new(Mutex::new(VecDeque::from([greeting])));
    for (from, to, from_client) in [(&client, &server, true), (&server, &client, false)] {
        let (Ok(from), Ok(to)) = (from.try_clone(), to.try_clone()) else { return };
        if way.register(&from).is_err() {
            return;
        }
        let rounds = rounds.clone();
        let control = Control { way: way.clone(), server: address, asked: asked.clone(), rounds, from_client, number };
        thread::spawn(move || control.run(from, to));
    }
}

/// One direction of a control connection.
struct Control {
    way: Way,
    server: SocketAddr,
    /// Lines whose answer is waited for.
    asked: Arc<Mutex<Vec<Vec<u8>>>>,
    /// Round trips of the greeting and of the commands that no final reply has come to.
    rounds: Arc<Mutex<VecDeque<u64>>>,
    from_client: bool,
    number: u64,
}

impl Control {
    fn run(&self, from: TcpStream, mut to: TcpStream) {
        let round_trip = self.way.state().round_trip;
        let mut lines = BufReader::new(from);
        if self.from_client || round_trip.is_zero() {
            let mut line = Vec::new();
            while lines.read_until(b'\n', &mut line).is_ok_and(|count| count > 0) {
                let (new, round) = if self.from_client { (self.command(&line), None) } else { self.reply(&line) };
                if !self.deliver(&new, round, &mut to) {
                    break;
                }
                line.clear();
            }
        } else {
            self.run_late(&mut lines, &mut to, round_trip);
        }
        // The end of one direction ends both, as FTP programs do.
        let _ = to.shutdown(Shutdown::Both);
        let _ = lines.into_inner().shutdown(Shutdown::Both);
    }

    /// Passes replies on after some time, while the next ones come.
    fn run_late(&self, lines: &mut impl io::BufRead, to: &mut TcpStream, round_trip: Duration) {
        let (sender, late) = channel::<(Instant, Vec<u8>, Option<u64>)>();
        thread::scope(|scope| {
            scope.spawn(move || {
                for (due, line, round) in late {
                    thread::sleep(due.saturating_duration_since(Instant::now()));
                    if !self.deliver(&line, round, to) {
                        return;
                    }
                }
            });
            let mut line = Vec::new();
            while lines.read_until(b'\n', &mut line).is_ok_and(|count| count > 0) {
                let (new, round) = self.reply(&line);
                if sender.send((Instant::now() + round_trip, new, round)).is_err() {
                    break;
                }
                line.clear();
            }
            drop(sender);
        });
    }

    /// Passes a line on; false when it cannot be. A final reply is heard by all who ask from now on.
    fn deliver(&self, line: &[u8], round: Option<u64>, to: &mut TcpStream) -> bool {
        if !self.way.pass() {
            return false;
        }
        if let Some(round) = round {
            let mut state = self.way.state();
            state.heard = state.heard.max(round);
        }
        to.write_all(line).is_ok()
    }

    fn command(&self, line: &[u8]) -> Vec<u8> {
        self.way.line_passes(line, Moment::Command);
        {
            let mut state = self.way.state();
            let round = state.heard + 1;
            let line = String::from_utf8_lossy(line).trim_end().to_owned();
            state.said.push(Said { connection: self.number, round, line });
            self.rounds.lock().unwrap_or_else(PoisonError::into_inner).push_back(round);
        }
        self.asked.lock().unwrap_or_else(PoisonError::into_inner).push(line.to_vec());
        self.way.folded(line)
    }

    /// The line as it is passed on, and the round trip that ends with it if it is a final reply.
    fn reply(&self, line: &[u8]) -> (Vec<u8>, Option<u64>) {
        let is_final = line.first().is_some_and(|first| (b'2'..=b'6').contains(first)) && line.get(3) == Some(&b' ');
        if is_final {
            let asked = std::mem::take(&mut *self.asked.lock().unwrap_or_else(PoisonError::into_inner));
            asked.iter().for_each(|line| self.way.line_passes(line, Moment::Answer));
        }
        let waiting = || self.rounds.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
        let round = if is_final { waiting() } else { None };
        let text = String::from_utf8_lossy(line);
        let names_address = ["227", "127", "229 ", "129 "].iter().any(|start| text.starts_with(start));
        let listener = |target| listen(&self.way, move |client, way| relay_data(&client, target, way)).ok();
        let new = names_address.then(|| rewrite_address(&text, self.server, listener)).flatten();
        (new.map_or_else(|| line.to_vec(), String::into_bytes), round)
    }
}

/// One direction of a data connection; it has ended when this is dropped.
struct Passing(Way);

impl Passing {
    fn begin(way: &Way) -> Self {
        way.state().passing += 1;
        Self(way.clone())
    }
}

impl Drop for Passing {
    fn drop(&mut self) {
        self.0.state().passing -= 1;
        self.0.shared.changed.notify_all();
    }
}

fn relay_data(client: &TcpStream, target: SocketAddr, way: &Way) {
    let Ok(server) = TcpStream::connect(target) else { return reset(client) };
    for (from, to) in [(client, &server), (&server, client)] {
        let (Ok(from), Ok(to)) = (from.try_clone(), to.try_clone()) else { return };
        if way.register(&from).is_err() {
            return;
        }
        let passing = Passing::begin(way);
        thread::spawn(move || pass_data(from, to, &passing.0));
    }
}

fn pass_data(mut from: TcpStream, mut to: TcpStream, way: &Way) {
    let mut buffer = vec![0; PIECE];
    loop {
        let (limit, pause) = way.step();
        let count = match from.read(&mut buffer[..limit]) {
            Ok(0) => break,
            Ok(count) => count,
            Err(_) => return reset(&to),
        };
        way.count(&mut buffer[..count]);
        if !way.pass() || to.write_all(&buffer[..count]).is_err() {
            return reset(&from);
        }
        way.bytes_passed();
        if !pause.is_zero() {
            thread::sleep(pause);
        }
    }
    // The end of this direction is passed on; the other one goes on by itself.
    let _ = to.shutdown(Shutdown::Write);
}

/// A line of FTP with its data address replaced; `None` when it has none, or `with` gives none.
pub fn rewrite_address(
    line: &str,
    peer: SocketAddr,
    with: impl FnOnce(SocketAddr) -> Option<SocketAddr>,
) -> Option<String> {
    if let Some(start) = line.find('|') {
        let end = line.rfind('|')?;
        let fields: Vec<&str> = line[start + 1..end].split('|').collect();
        let [_, host, port] = fields[..] else { return None };
        let host: IpAddr = if host.is_empty() { peer.ip() } else { host.parse().ok()? };
        let new = with(SocketAddr::new(host, port.parse().ok()?))?;
        let middle = if fields[1].is_empty() {
            format!("|||{}|", new.port())
        } else {
            format!("|1|{}|{}|", new.ip(), new.port())
        };
        return Some(format!("{}{middle}{}", &line[..start], &line[end + 1..]));
    }
    let after = line.find([' ', '-'])?;
    let start = after + line[after..].find(|character: char| character.is_ascii_digit())?;
    let length = line[start..].find(|character: char| !character.is_ascii_digit() && character != ',')?;
    let numbers: Vec<u8> =
        line[start..start + length].split(',').map(str::parse).collect::<std::result::Result<_, _>>().ok()?;
    let [a, b, c, d, high, low] = numbers[..] else { return None };
    let new = with(SocketAddr::from(([a, b, c, d], u16::from_be_bytes([high, low]))))?;
    let [high, low] = new.port().to_be_bytes();
    let host = new.ip().to_string().replace('.', ",");
    Some(format!("{}{host},{high},{low}{}", &line[..start], &line[start + length..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server that announces a data port, sends `data` to whoever connects there, and says 226.
    fn server(data: Vec<u8>) -> SocketAddr {
        let control = TcpListener::bind("127.0.0.1:0").expect("bind");
        let address = control.local_addr().expect("bound");
        thread::spawn(move || {
            let (mut client, _) = control.accept().expect("accept");
            let passive = TcpListener::bind("127.0.0.1:0").expect("bind");
            let [high, low] = passive.local_addr().expect("bound").port().to_be_bytes();
            let mut lines = BufReader::new(client.try_clone().expect("clone")).lines();
            lines.next();
            write!(client, "227 Entering Passive Mode (127,0,0,1,{high},{low})\r\n").expect("write");
            let (mut peer, _) = passive.accept().expect("accept");
            // A peer that is cut off is what some tests want.
            let _ = peer.write_all(&data);
            drop(peer);
            lines.next();
            let _ = write!(client, "226 Done.\r\n");
        });
        address
    }

    /// Fetches through a relay; the data, or how they broke off, and the last reply.
    fn fetch(way: &Way, size: usize) -> (io::Result<Vec<u8>>, String) {
        let relay = Relay::before(server(vec![0; size]), way).expect("starts");
        let mut control = TcpStream::connect(relay.addr()).expect("connect");
        let mut replies = BufReader::new(control.try_clone().expect("clone"));
        control.write_all(b"PASV\r\n").expect("write");
        let mut line = String::new();
        replies.read_line(&mut line).expect("a reply");
        let mut target = None;
        rewrite_address(&line, relay.addr(), |address| {
            target = Some(address);
            None
        });
        let mut data = TcpStream::connect(target.expect("an address")).expect("connect");
        let mut bytes = Vec::new();
        let read = data.read_to_end(&mut bytes).map(|_| bytes);
        line.clear();
        if control.write_all(b"RETR x\r\n").is_ok() {
            let _ = replies.read_line(&mut line);
        }
        way.end();
        (read, line)
    }

    #[test]
    fn data_pass_the_relay_and_are_damaged_exactly_where_planned() {
        let way = Way::new();
        way.flip(100_000, 3);
        let (data, reply) = fetch(&way, 300_000);
        way.wait_until_quiet();
        let mut expected = vec![0; 300_000];
        expected[100_000] = 8;
        assert!(data.expect("arrives") == expected);
        assert_eq!((way.bytes(), reply.as_str()), (300_000, "226 Done.\r\n"));
    }

    #[test]
    fn what_was_written_before_a_connection_ended_has_passed_when_it_is_quiet() {
        const SIZE: usize = 64 << 20;
        let listener = TcpListener::bind("127.0.0.1:0").expect("bind");
        let target = listener.local_addr().expect("bound");
        let reader = thread::spawn(move || io::copy(&mut listener.accept()?.0, &mut io::sink()));
        let way = Way::new();
        let address = listen(&way, move |client, way| relay_data(&client, target, way)).expect("listens");
        let mut data = TcpStream::connect(address).expect("connect");
        data.write_all(&vec![0; SIZE]).expect("write");
        drop(data);
        way.wait_until_quiet();
        assert_eq!(way.bytes(), SIZE as u64);
        assert_eq!(reader.join().expect("ends").expect("reads"), SIZE as u64);
        way.end();
    }

    #[test]
    fn what_is_planned_for_a_number_of_bytes_happens_then_and_once() {
        let way = Way::new();
        way.at(Moment::Bytes(1_000_000), |way| {
            way.note("cut");
            way.reset_all();
        });
        let (data, _) = fetch(&way, 8_000_000);
        assert_eq!(data.expect_err("cut").kind(), io::ErrorKind::ConnectionReset);
        assert_eq!(way.happened().len(), 1, "{:?}", way.happened());
        assert!(way.bytes() >= 1_000_000);
    }

    #[test]
    fn an_act_that_fails_is_told_to_the_test_and_nothing_waits_for_it() {
        let way = Way::new();
        way.at(Moment::Command("RETR", 1), |_| panic!("no such disk"));
        let told = catch_unwind(AssertUnwindSafe(|| fetch(&way, 1_000))).expect_err("it fails at the end, too");
        assert_eq!(told.downcast_ref(), Some(&"no such disk"));
        assert_eq!(way.said().len(), 2, "the line has passed");
        // It is told once, and nothing waits for what has failed.
        way.heal();
    }

    #[test]
    fn commands_and_their_answers_are_moments_too() {
        let way = Way::new();
        way.at(Moment::Command("RETR", 1), |way| way.note("asked"));
        way.at(Moment::Answer("RETR", 1), |way| way.note("answered"));
        way.at(Moment::Command("RETR", 2), |way| way.note("never"));
        let (_, reply) = fetch(&way, 10);
        assert_eq!(reply, "226 Done.\r\n");
        assert_eq!(way.happened(), ["at 10 bytes: asked", "at 10 bytes: answered"]);
        assert_eq!(way.said(), [(1, "PASV".to_owned()), (1, "RETR x".to_owned())]);
    }

    #[test]
    fn what_waits_for_a_reply_is_a_round_trip_further_and_what_does_not_is_none() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("bind");
        let server = listener.local_addr().expect("bound");
        thread::spawn(move || {
            let (mut client, _) = listener.accept().expect("accept");
            write!(client, "220 Hello.\r\n").expect("write");
            for line in BufReader::new(client.try_clone().expect("clone")).lines() {
                write!(client, " 250 in between\r\n250 {}\r\n", line.expect("a line")).expect("write");
            }
        });
        let way = Way::new();
        way.set_round_trip(Duration::from_millis(50));
        let relay = Relay::before(server, &way).expect("starts");
        let began = Instant::now();
        let mut control = TcpStream::connect(relay.addr()).expect("connect");
        let mut replies = BufReader::new(control.try_clone().expect("clone")).lines();
        let mut end = || while !replies.next().expect("a reply").expect("read").starts_with("2") {};
        control.write_all(b"A\r\n").expect("write");
        end();
        control.write_all(b"B\r\nC\r\n").expect("write");
        end();
        end();
        end();
        control.write_all(b"D\r\n").expect("write");
        end();
        let rounds: Vec<(u64, String)> = way.rounds().into_iter().map(|said| (said.round, said.line)).collect();
        let expected = [(1, "A"), (2, "B"), (2, "C"), (3, "D")].map(|(round, line)| (round, line.to_owned()));
        assert_eq!(rounds, expected);
        assert!(began.elapsed() >= Duration::from_millis(150), "{:?}", began.elapsed());
    }

    #[test]
    fn addresses_of_every_form_are_replaced() {
        let new = |_| Some(SocketAddr::from(([127, 0, 0, 2], 258)));
        let peer = SocketAddr::from(([10, 0, 0, 1], 21));
        let rewrite = |line: &str| rewrite_address(line, peer, new);
        assert_eq!(rewrite("227 Yes (10,0,0,1,4,5)\r\n").as_deref(), Some("227 Yes (127,0,0,2,1,2)\r\n"));
        assert_eq!(rewrite("229 Yes (|||1029|)\r\n").as_deref(), Some("229 Yes (|||258|)\r\n"));
        assert_eq!(rewrite("229 Yes (|1|10.0.0.1|1029|)\r\n").as_deref(), Some("229 Yes (|1|127.0.0.2|258|)\r\n"));
        assert_eq!(rewrite("229 Entering\r\n"), None);
    }
}
