//! A relay before an FTP server that cuts one transfer: it rewrites the addresses of data connections, so that these
//! pass through it too.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use whimbrel_testkit::faults::{Fault, Proxy};
use whimbrel_testkit::relay::rewrite_address;

/// Bytes of each data connection that pass before it is cut.
const CUT_AFTER: u64 = 2_000_000;
/// Time in which a transfer must get as far as its cut.
const CUT_LIMIT: Duration = Duration::from_secs(60);

/// What is cut, once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// The data connections are reset in mid-file.
    Data,
    /// The data connections are closed in mid-file, as if the file ended there.
    DataClosed,
    /// The control connection is closed in mid-file, and the data connections with it.
    Control,
    /// Both are, once the client has read the first restart marker; until then the data trickle.
    AfterMarker,
}

/// The relay; dropping it ends its connections.
pub struct Cutter {
    addresses: Vec<SocketAddr>,
    shared: Arc<Shared>,
}

/// What a relay does with the control connections that it carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    /// Rewrites addresses of data; its connections are the ones cut unless another relay has that role alone.
    Both,
    /// Only its control connections are cut.
    Control,
}

struct Shared {
    cut: Cut,
    state: Mutex<State>,
    closing: AtomicBool,
}

#[derive(Default)]
struct State {
    /// What clients have said, on all connections.
    commands: Vec<String>,
    /// Both sockets of each control connection, and what its relay does.
    sockets: Vec<(TcpStream, Role)>,
    /// The proxy whose connections suffer.
    victim: Option<Arc<Proxy>>,
    others: Vec<Proxy>,
    was_cut: bool,
}

impl Cutter {
    /// Starts before a server on this host.
    pub fn to(server: SocketAddr, cut: Cut) -> Self {
        let shared = Arc::new(Shared { cut, state: Mutex::default(), closing: AtomicBool::new(false) });
        Self { addresses: vec![listen(server, Role::Both, &shared)], shared }
    }

    /// Also stands before another server, whose control connections are the ones that are then cut, while the data
    /// pass by the first one; returns where clients connect.
    pub fn also_before(&mut self, server: SocketAddr) -> SocketAddr {
        self.addresses.push(listen(server, Role::Control, &self.shared));
        self.addresses[1]
    }

    /// Where clients connect.
    pub fn address(&self) -> SocketAddr {
        self.addresses[0]
    }

    /// Everything that clients have said to the server.
    pub fn commands(&self) -> Vec<String> {
        self.shared.state().commands.clone()
    }

    /// Whether the cut has happened.
    pub fn was_cut(&self) -> bool {
        let state = self.shared.state();
        let victim = state.victim.as_ref().map_or((0, 0), |victim| victim.bytes());
        state.was_cut || matches!(self.shared.cut, Cut::Data | Cut::DataClosed) && victim.0.max(victim.1) >= CUT_AFTER
    }
}

impl Drop for Cutter {
    fn drop(&mut self) {
        self.shared.closing.store(true, Ordering::SeqCst);
        self.shared.state().sockets.drain(..).for_each(|(socket, _)| drop(socket.shutdown(Shutdown::Both)));
        // Wakes the acceptors, which then end.
        self.addresses.iter().for_each(|address| drop(TcpStream::connect(address)));
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Cuts what there is now, once.
    fn cut_now(&self) {
        let victim = {
            let mut state = self.state();
            if std::mem::replace(&mut state.was_cut, true) {
                return;
            }
            let apart = state.sockets.iter().any(|(_, role)| *role == Role::Control);
            let role = if apart { Role::Control } else { Role::Both };
            let cut = state.sockets.iter().filter(|(_, its)| *its == role);
            cut.for_each(|(socket, _)| drop(socket.shutdown(Shutdown::Both)));
            state.victim.take()
        };
        // Dropping the proxy ends its connections, and nobody else must wait for that.
        drop(victim);
    }

    /// A proxy for the data connections to `target`; the first one that carries something is the one that suffers.
    fn data_proxy(self: &Arc<Self>, target: SocketAddr) -> SocketAddr {
        let first = {
            let state = self.state();
            !state.was_cut && state.victim.as_ref().is_none_or(|victim| victim.bytes() == (0, 0))
        };
        let fault = match (first, self.cut) {
            (false, _) => Fault::None,
            (true, Cut::Data) => Fault::ResetAfter(CUT_AFTER),
            (true, Cut::DataClosed) => Fault::CloseAfter(CUT_AFTER),
            (true, Cut::Control) => Fault::StallAfter(CUT_AFTER),
            // 10 MB last 8 s; servers send the first marker after 5.
            (true, Cut::AfterMarker) => Fault::Trickle { bytes: 24 << 10, every: Duration::from_millis(20) },
        };
        let proxy = Proxy::to(target).from_client(fault).from_server(fault).start().expect("a proxy");
        let address = proxy.addr();
        if !first {
            self.state().others.push(proxy);
            return address;
        }
        let proxy = Arc::new(proxy);
        self.state().victim = Some(proxy.clone());
        if self.cut == Cut::Control {
            let shared = self.clone();
            thread::spawn(move || {
                let stalled = proxy.wait_for_stall(CUT_LIMIT);
                drop(proxy);
                if stalled {
                    shared.cut_now();
                }
            });
        }
        address
    }

    fn rewrite(self: &Arc<Self>, line: &[u8], server: SocketAddr) -> Vec<u8> {
        let text = String::from_utf8_lossy(line);
        let names_address =
            ["PORT ", "EPRT ", "227", "127", "229 ", "129 "].iter().any(|start| text.starts_with(start));
        match names_address.then(|| rewrite_address(&text, server, |target| Some(self.data_proxy(target)))).flatten() {
            Some(new) => new.into_bytes(),
            None => line.to_vec(),
        }
    }
}

fn listen(server: SocketAddr, role: Role, shared: &Arc<Shared>) -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let address = listener.local_addr().expect("it is bound");
    let shared = shared.clone();
    thread::spawn(move || {
        while let Ok((client, _)) = listener.accept() {
            if shared.closing.load(Ordering::SeqCst) {
                break;
            }
            relay(&client, server, role, &shared);
        }
    });
    address
}

fn relay(client: &TcpStream, address: SocketAddr, role: Role, shared: &Arc<Shared>) {
    let Ok(server) = TcpStream::connect(address) else { return };
    let clone = |socket: &TcpStream| socket.try_clone().expect("a descriptor");
    shared.state().sockets.extend([(clone(client), role), (clone(&server), role)]);
    for (from, mut to, from_client) in [(clone(client), clone(&server), true), (server, clone(client), false)] {
        let shared = shared.clone();
        thread::spawn(move || {
            let mut lines = BufReader::new(from);
            let mut line = Vec::new();
            while lines.read_until(b'\n', &mut line).is_ok_and(|count| count > 0) {
                if from_client {
                    shared.state().commands.push(String::from_utf8_lossy(&line).trim_end().to_owned());
                }
                let new = if role == Role::Both { shared.rewrite(&line, address) } else { line.clone() };
                if to.write_all(&new).is_err() {
                    break;
                }
                if !from_client && shared.cut == Cut::AfterMarker && line.starts_with(b"111") {
                    // Passed on is not taken in: the source's failure would reach a client that has not read it yet first.
                    wait_until_read(&to);
                    shared.cut_now();
                }
                line.clear();
            }
            // The end of one direction ends both, as FTP programs do.
            let _ = to.shutdown(Shutdown::Both);
            let _ = lines.into_inner().shutdown(Shutdown::Both);
        });
    }
}

/// Waits until the program at the other end of a connection on this host has read everything that was sent to it.
fn wait_until_read(socket: &TcpStream) {
    let (Ok(here), Ok(there)) = (socket.local_addr(), socket.peer_addr()) else { return };
    let start = Instant::now();
    while start.elapsed() < CUT_LIMIT && unread(there, here) != Some(0) {
        thread::yield_now();
    }
}

/// Bytes that wait for the program that owns the end `local` of an IPv4 connection (`rx_queue` of proc_net_tcp), in this
/// thread's network.
fn unread(local: SocketAddr, remote: SocketAddr) -> Option<u64> {
    let table = fs::read_to_string("/proc/thread-self/net/tcp").ok()?;
    let row = format!(" {} {} ", in_table(local)?, in_table(remote)?);
    let line = table.lines().find(|line| line.contains(&row))?;
    let queues = line.split_whitespace().nth(4)?;
    u64::from_str_radix(queues.split_once(':')?.1, 16).ok()
}

/// An address as `/proc/net/tcp` shows it: the address as one number of this machine, both in hexadecimal.
fn in_table(address: SocketAddr) -> Option<String> {
    let SocketAddr::V4(address) = address else { return None };
    Some(format!("{:08X}:{:04X}", u32::from_ne_bytes(address.ip().octets()), address.port()))
}
