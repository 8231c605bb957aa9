//! A TCP proxy that misbehaves on purpose: between any client and any server, without either knowing.
//!
//! ```no_run
//! use whimbrel_testkit::faults::{Fault, Proxy};
//!
//! # let server = std::net::SocketAddr::from(([127, 0, 0, 1], 2811));
//! // Loses the first connection after a megabyte from the server; the second one works.
//! let proxy = Proxy::to(server).from_server(Fault::ResetAfter(1 << 20)).only_connection(0).start()?;
//! println!("connect to {}", proxy.addr());
//! # Ok::<(), whimbrel_testkit::Error>(())
//! ```

use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rustix::net::sockopt::set_socket_linger;

use crate::error::{Attempt, Result};

/// What goes wrong in one direction of a connection. Offsets count the bytes of that direction from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Nothing: bytes pass.
    None,
    /// After this many bytes both sides see their connection closed in order.
    CloseAfter(u64),
    /// After this many bytes both sides see their connection reset.
    ResetAfter(u64),
    /// After this many bytes nothing moves, and nobody is told, until [`Proxy::release`].
    StallAfter(u64),
    /// So many bytes pass at a time, one time in each interval.
    Trickle {
        /// Bytes at a time, at least 1.
        bytes: usize,
        /// From one time to the next.
        every: Duration,
    },
    /// All bits of the byte at this offset are inverted.
    FlipByteAt(u64),
}

/// A description of a [`Proxy`].
#[derive(Clone, Debug)]
pub struct ProxyBuilder {
    target: SocketAddr,
    listen: IpAddr,
    from_client: Fault,
    from_server: Fault,
    only: Option<usize>,
}

impl ProxyBuilder {
    /// What happens to bytes that the client sends.
    pub fn from_client(mut self, fault: Fault) -> ProxyBuilder {
        self.from_client = fault;
        self
    }

    /// What happens to bytes that the server sends.
    pub fn from_server(mut self, fault: Fault) -> ProxyBuilder {
        self.from_server = fault;
        self
    }

    /// Only the connection of this number, counted from 0, suffers; the others pass.
    pub fn only_connection(mut self, number: usize) -> ProxyBuilder {
        self.only = Some(number);
        self
    }

    /// Listens on this address instead of 127.0.0.1.
    pub fn listen_on(mut self, address: IpAddr) -> ProxyBuilder {
        self.listen = address;
        self
    }

    /// Starts listening on a port that the system chooses, in the network namespace of the calling thread.
    pub fn start(self) -> Result<Proxy> {
        let what = || format!("starting a proxy to {}", self.target);
        let listener = Arc::new(TcpListener::bind((self.listen, 0)).attempt(what)?);
        let address = listener.local_addr().attempt(what)?;
        let shared = Arc::new(Shared::new(self));
        let acceptor = thread::spawn({
            let (listener, shared) = (listener.clone(), shared.clone());
            move || accept_all(&listener, &shared)
        });
        Ok(Proxy { address, listener, shared, acceptor: Some(acceptor) })
    }
}

/// A running proxy; dropping it resets its connections and stops listening.
#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    listener: Arc<TcpListener>,
    shared: Arc<Shared>,
    acceptor: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    plan: ProxyBuilder,
    accepted: AtomicUsize,
    from_client: AtomicU64,
    from_server: AtomicU64,
    closing: AtomicBool,
    /// Both sockets of each connection, to end them on drop.
    sockets: Mutex<Vec<TcpStream>>,
    /// Whether stalled directions may go on, and how many are stalled.
    gate: Mutex<Gate>,
    gate_changed: Condvar,
}

#[derive(Debug, Default)]
struct Gate {
    open: bool,
    waiting: usize,
}

impl Proxy {
    /// Describes a proxy to a server.
    pub fn to(target: SocketAddr) -> ProxyBuilder {
        let listen = IpAddr::V4(Ipv4Addr::LOCALHOST);
        ProxyBuilder { target, listen, from_client: Fault::None, from_server: Fault::None, only: None }
    }

    /// Where clients connect.
    pub fn addr(&self) -> SocketAddr {
        self.address
    }

    /// Connections accepted so far.
    pub fn connections(&self) -> usize {
        self.shared.accepted.load(Ordering::Relaxed)
    }

    /// Bytes passed on so far: from clients to the server, and from the server to clients.
    pub fn bytes(&self) -> (u64, u64) {
        (self.shared.from_client.load(Ordering::Relaxed), self.shared.from_server.load(Ordering::Relaxed))
    }

    /// Waits until a direction has stalled; false when none does in `limit`.
    pub fn wait_for_stall(&self, limit: Duration) -> bool {
        let gate = self.shared.gate();
        let waited = self.shared.gate_changed.wait_timeout_while(gate, limit, |gate| gate.waiting == 0);
        waited.unwrap_or_else(PoisonError::into_inner).0.waiting > 0
    }

    /// Lets stalled directions go on, those that stall later too.
    pub fn release(&self) {
        self.shared.gate().open = true;
        self.shared.gate_changed.notify_all();
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.shared.closing.store(true, Ordering::SeqCst);
        self.release();
        // Ends the acceptor's wait with an error (Linux wakes accept(2) for this), from any network namespace.
        let _ = rustix::net::shutdown(&self.listener, rustix::net::Shutdown::Both);
        if let Some(acceptor) = self.acceptor.take() {
            // A panic of the acceptor has been printed, and a drop must not panic again.
            let _ = acceptor.join();
        }
    }
}

impl Shared {
    fn new(plan: ProxyBuilder) -> Shared {
        Shared {
            plan,
            accepted: AtomicUsize::new(0),
            from_client: AtomicU64::new(0),
            from_server: AtomicU64::new(0),
            closing: AtomicBool::new(false),
            sockets: Mutex::default(),
            gate: Mutex::default(),
            gate_changed: Condvar::new(),
        }
    }

    fn gate(&self) -> MutexGuard<'_, Gate> {
        self.gate.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn sockets(&self) -> MutexGuard<'_, Vec<TcpStream>> {
        self.sockets.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for the release; true when it comes because the proxy closes.
    fn stall(&self) -> bool {
        let mut gate = self.gate();
        gate.waiting += 1;
        self.gate_changed.notify_all();
        let mut gate = self.gate_changed.wait_while(gate, |gate| !gate.open).unwrap_or_else(PoisonError::into_inner);
        gate.waiting -= 1;
        self.closing.load(Ordering::SeqCst)
    }

    /// Waits for an interval; true when the proxy closes meanwhile.
    fn pause(&self, interval: Duration) -> bool {
        let closing = |_: &mut Gate| !self.closing.load(Ordering::SeqCst);
        let waited = self.gate_changed.wait_timeout_while(self.gate(), interval, closing);
        drop(waited);
        self.closing.load(Ordering::SeqCst)
    }
}

fn accept_all(listener: &TcpListener, shared: &Arc<Shared>) {
    let mut running = Vec::new();
    while let Ok((client, _)) = listener.accept() {
        if shared.closing.load(Ordering::SeqCst) {
            break;
        }
        let number = shared.accepted.fetch_add(1, Ordering::Relaxed);
        let suffers = shared.plan.only.is_none_or(|only| only == number);
        // A server that refuses is seen by the client as a connection that closes at once.
        if let Ok(server) = TcpStream::connect(shared.plan.target) {
            running.extend(relay(&client, &server, shared, suffers).into_iter().flatten());
        }
    }
    for socket in shared.sockets().drain(..) {
        // A socket that is closed already is what is wanted.
        let _ = socket.shutdown(Shutdown::Both);
    }
    for thread in running {
        // A panic of a relay has been printed where it happened.
        let _ = thread.join();
    }
}

fn relay(
    client: &TcpStream,
    server: &TcpStream,
    shared: &Arc<Shared>,
    suffers: bool,
) -> io::Result<[JoinHandle<()>; 2]> {
    shared.sockets().extend([client.try_clone()?, server.try_clone()?]);
    let start = |from: &TcpStream, to: &TcpStream, fault: Fault, from_client: bool| -> io::Result<JoinHandle<()>> {
        let fault = if suffers { fault } else { Fault::None };
        let direction = Direction { from: from.try_clone()?, to: to.try_clone()?, fault, from_client, passed: 0 };
        let shared = shared.clone();
        Ok(thread::spawn(move || direction.run(&shared)))
    };
    let plan = &shared.plan;
    Ok([start(client, server, plan.from_client, true)?, start(server, client, plan.from_server, false)?])
}

/// One direction of one connection.
struct Direction {
    from: TcpStream,
    to: TcpStream,
    fault: Fault,
    from_client: bool,
    passed: u64,
}

/// Whether a direction goes on.
enum Next {
    Continue,
    End,
}

impl Direction {
    fn run(mut self, shared: &Shared) {
        let mut buffer = vec![0; 64 * 1024];
        loop {
            let limit = self.read_limit(buffer.len());
            if limit == 0 {
                match self.trip(shared) {
                    Next::Continue => continue,
                    Next::End => return,
                }
            }
            let Ok(count @ 1..) = self.from.read(&mut buffer[..limit]) else { break };
            self.flip(&mut buffer[..count]);
            if self.to.write_all(&buffer[..count]).is_err() {
                break;
            }
            self.count(count as u64, shared);
            if matches!(self.fault, Fault::Trickle { every, .. } if shared.pause(every)) {
                break;
            }
        }
        // The end of this direction is passed on; the other one goes on by itself.
        let _ = self.to.shutdown(Shutdown::Write);
        let _ = self.from.shutdown(Shutdown::Read);
    }

    /// Bytes that may pass before something must happen; 0 when it must happen now.
    fn read_limit(&self, room: usize) -> usize {
        match self.fault {
            Fault::CloseAfter(limit) | Fault::ResetAfter(limit) | Fault::StallAfter(limit) => {
                room.min(usize::try_from(limit - self.passed).unwrap_or(room))
            }
            Fault::Trickle { bytes, .. } => room.min(bytes.max(1)),
            Fault::None | Fault::FlipByteAt(_) => room,
        }
    }

    /// The fault happens.
    fn trip(&mut self, shared: &Shared) -> Next {
        if let Fault::StallAfter(_) = self.fault {
            self.fault = Fault::None;
            return if shared.stall() { Next::End } else { Next::Continue };
        }
        for socket in [&self.from, &self.to] {
            if let Fault::ResetAfter(_) = self.fault {
                reset(socket);
            } else {
                // Closed by its owner already: the fault has come too late to matter.
                let _ = socket.shutdown(Shutdown::Both);
            }
        }
        Next::End
    }

    fn flip(&self, bytes: &mut [u8]) {
        let Fault::FlipByteAt(offset) = self.fault else { return };
        let index = offset.checked_sub(self.passed).and_then(|index| usize::try_from(index).ok());
        if let Some(byte) = index.and_then(|index| bytes.get_mut(index)) {
            *byte = !*byte;
        }
    }

    fn count(&mut self, bytes: u64, shared: &Shared) {
        self.passed += bytes;
        let total = if self.from_client { &shared.from_client } else { &shared.from_server };
        total.fetch_add(bytes, Ordering::Relaxed);
    }
}

/// Sends a reset although other descriptors of the socket are open: connecting to "nowhere" aborts it (connect(2)).
pub(crate) fn reset(socket: &TcpStream) {
    // Without lingering, what is still in the send buffer is dropped as well.
    let _ = set_socket_linger(socket, Some(Duration::ZERO));
    let _ = rustix::net::connect_unspec(socket);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::ErrorKind;

    /// A server that sends back what it receives, for so many connections.
    fn echo(connections: usize) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").expect("bind");
        let address = listener.local_addr().expect("bound");
        thread::spawn(move || {
            for _ in 0..connections {
                let (mut stream, _) = listener.accept().expect("accept");
                // A client that goes away ends the copy with an error that is the test's purpose.
                thread::spawn(move || io::copy(&mut stream.try_clone().expect("clone"), &mut stream));
            }
        });
        address
    }

    fn connect(proxy: &Proxy) -> TcpStream {
        let stream = TcpStream::connect(proxy.addr()).expect("connect");
        stream.set_read_timeout(Some(Duration::from_secs(10))).expect("limit");
        stream
    }

    fn start(builder: ProxyBuilder) -> Proxy {
        builder.start().expect("started")
    }

    #[test]
    fn without_a_fault_bytes_and_the_end_pass_unchanged() {
        let proxy = start(Proxy::to(echo(1)));
        let mut stream = connect(&proxy);
        stream.write_all(b"whimbrel").expect("write");
        stream.shutdown(Shutdown::Write).expect("end");
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).expect("read");
        assert_eq!((answer.as_slice(), proxy.bytes(), proxy.connections()), (&b"whimbrel"[..], (8, 8), 1));
    }

    #[test]
    fn a_close_comes_after_exactly_so_many_bytes() {
        let proxy = start(Proxy::to(echo(1)).from_server(Fault::CloseAfter(5)));
        let mut stream = connect(&proxy);
        stream.write_all(b"whimbrel").expect("write");
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).expect("an orderly end");
        assert_eq!(answer, b"whimb");
    }

    #[test]
    fn a_reset_is_an_error_and_not_an_end() {
        let proxy = start(Proxy::to(echo(1)).from_client(Fault::ResetAfter(4)));
        let mut stream = connect(&proxy);
        stream.write_all(b"whimbrel").expect("write");
        let error = stream.read_to_end(&mut Vec::new()).expect_err("reset");
        assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    }

    #[test]
    fn a_stalled_direction_goes_on_when_released() {
        let proxy = start(Proxy::to(echo(1)).from_server(Fault::StallAfter(3)));
        let mut stream = connect(&proxy);
        stream.write_all(b"whimbrel").expect("write");
        let mut answer = [0; 8];
        stream.read_exact(&mut answer[..3]).expect("the first bytes pass");
        assert!(proxy.wait_for_stall(Duration::from_secs(10)));
        assert_eq!(proxy.bytes().1, 3);
        proxy.release();
        stream.read_exact(&mut answer[3..]).expect("the rest follows");
        assert_eq!(&answer, b"whimbrel");
    }

    #[test]
    fn a_trickle_takes_its_time_and_loses_nothing() {
        let every = Duration::from_millis(5);
        let proxy = start(Proxy::to(echo(1)).from_client(Fault::Trickle { bytes: 1, every }));
        let mut stream = connect(&proxy);
        let before = std::time::Instant::now();
        stream.write_all(b"whimbrel").expect("write");
        let mut answer = [0; 8];
        stream.read_exact(&mut answer).expect("read");
        assert_eq!(&answer, b"whimbrel");
        assert!(before.elapsed() >= every * 7, "{:?}", before.elapsed());
    }

    #[test]
    fn one_byte_is_flipped_wherever_the_pieces_fall() {
        let proxy = start(Proxy::to(echo(1)).from_client(Fault::FlipByteAt(5)));
        let mut stream = connect(&proxy);
        let mut answer = [0; 8];
        for (index, byte) in b"whimbrel".iter().enumerate() {
            stream.write_all(&[*byte]).expect("write");
            stream.read_exact(&mut answer[index..=index]).expect("read");
        }
        assert_eq!(&answer, &[b'w', b'h', b'i', b'm', b'b', !b'r', b'e', b'l']);
    }

    #[test]
    fn only_the_chosen_connection_suffers() {
        let proxy = start(Proxy::to(echo(2)).from_server(Fault::CloseAfter(1)).only_connection(0));
        let answer = |mut stream: TcpStream| {
            stream.write_all(b"wh").expect("write");
            stream.shutdown(Shutdown::Write).expect("end");
            let mut answer = Vec::new();
            stream.read_to_end(&mut answer).expect("read");
            answer
        };
        assert_eq!(answer(connect(&proxy)), b"w");
        assert_eq!(answer(connect(&proxy)), b"wh");
    }

    #[test]
    fn a_dropped_proxy_ends_its_connections_stalled_ones_too() {
        let proxy = start(Proxy::to(echo(1)).from_server(Fault::StallAfter(0)));
        let mut stream = connect(&proxy);
        stream.write_all(b"x").expect("write");
        assert!(proxy.wait_for_stall(Duration::from_secs(10)));
        let address = proxy.addr();
        drop(proxy);
        assert!(matches!(stream.read(&mut [0; 1]), Ok(0) | Err(_)));
        assert!(TcpStream::connect(address).is_err(), "nobody listens any more");
    }
}
