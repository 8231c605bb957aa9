//! Opening data connections in either direction.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Mutex, PoisonError};
use std::thread;

use socket2::SockRef;
use whimbrel_engine::{Fault, FaultCode, Side};
use whimbrel_proto::op::DataParams;
use whimbrel_proto::relay::HELLO_BYTES;
use whimbrel_transport::mode_e::{self, Connection, Gathering};
use whimbrel_transport::tcp::{self, ConnectOptions, Dialling, TcpChannel};
use whimbrel_transport::{DataChannel, secure};

use super::node::Node;
use super::process::STACK;
use super::session::{Handle, Lane, Rendezvous, connect_options, parallelism};
use super::worker::Task;

/// Connections opened at the same time; more come after them.
const AT_ONCE: usize = 32;

/// Opens the connections of the given lanes that have none yet, all at once.
///
/// With `present`, each proves itself with the handle's nonce: a listening sender has no other
/// proof of who connects. At a relay the handshake with the other end proves it.
pub fn connect_lanes(task: &Task<'_>, handle: &mut Handle, lanes: &[usize], present: bool) -> Result<(), Fault> {
    let options = connect_options(task.node, &handle.params);
    let each = parallelism(&handle.params);
    let mut wanted: Vec<(usize, Dial)> = Vec::new();
    for &lane in lanes {
        let Lane { target, connections, dialled } = &mut handle.lanes[lane];
        if let (Some(target), true) = (*target, connections.is_empty()) {
            let ahead = std::mem::take(dialled).into_iter().map(Dial::Made);
            wanted.extend(ahead.chain(std::iter::repeat_with(|| Dial::To(target))).take(each).map(|dial| (lane, dial)));
        }
    }
    let mut wanted = wanted.into_iter();
    loop {
        let dial = |(lane, dial)| Ok((lane, Dial::make(dial, &options)?));
        let group = wanted.by_ref().take(AT_ONCE).map(dial).collect::<Result<Vec<_>, Fault>>()?;
        if group.is_empty() {
            return Ok(());
        }
        let (group, dialled): (Vec<usize>, Vec<Dialling>) = group.into_iter().unzip();
        let hello = handle.hello();
        let greeting = handle.params.nonce.filter(|_| present && hello.is_none());
        let shielded = |dialling: Dialling| {
            let channel = dialling.finish(task.cancel)?;
            if let Some(hello) = &hello {
                greet_relay(&channel, hello)?;
            }
            handle.guard.shield(channel)
        };
        let mut channels = dialled.into_iter().map(shielded).collect::<Result<Vec<_>, Fault>>()?;
        // At a relay nothing is known of the other end until it has proven itself. A sender that listens waits for the
        // proofs of all: one after the other they would take a round trip each.
        if hello.is_some() || handle.guard.proves_first() || greeting.is_some() {
            let mut all: Vec<_> = channels.iter_mut().map(|channel| channel.as_mut() as &mut dyn DataChannel).collect();
            secure::prove_all(&mut all, options.timeout, task.cancel)?;
        }
        for (lane, channel) in group.into_iter().zip(channels) {
            let mut connection = Connection::new(channel);
            if let Some(nonce) = &greeting {
                connection.greet(nonce, options.timeout, task.cancel)?;
            }
            handle.lanes[lane].connections.push(connection);
        }
    }
}

/// Tells a relay which transfer a new connection belongs to.
fn greet_relay(channel: &TcpChannel, hello: &[u8; HELLO_BYTES]) -> Result<(), Fault> {
    // Nothing was sent before: there is room for it.
    let sent = SockRef::from(&channel.as_fd()).send(hello);
    let failed = |error| Fault::from_io(error, "connect by a relay").side(Side::Network);
    match sent.map_err(failed)? {
        HELLO_BYTES => Ok(()),
        _ => Err(failed(std::io::ErrorKind::WriteZero.into())),
    }
}

/// A connection that is wanted.
enum Dial {
    /// Asked for when the handle was made.
    Made(Dialling),
    /// Still to be asked for.
    To(SocketAddr),
}

impl Dial {
    fn make(self, options: &ConnectOptions) -> Result<Dialling, Fault> {
        match self {
            Self::Made(dialling) => Ok(dialling),
            Self::To(target) => tcp::dial(target, options),
        }
    }
}

/// The connections of a handle to one address, asked for before any transfer, so that they stand when it begins.
///
/// What cannot be dialled now is dialled again by the transfer, which tells why it failed.
pub fn dial_ahead(node: &Node, params: &DataParams, target: SocketAddr) -> Vec<Dialling> {
    let options = connect_options(node, params);
    let count = parallelism(params).min(AT_ONCE);
    std::iter::repeat_with(|| tcp::dial(target, &options)).take(count).map_while(Result::ok).collect()
}

/// Does `work` for every part at the same time, one of them on the calling thread, and one after the other what the
/// system has no thread for; the first fault in the order of the parts is the result.
pub fn in_parallel<P: Send>(parts: &mut [P], work: impl Fn(&mut P) -> Result<(), Fault> + Sync) -> Result<(), Fault> {
    if let [part] = parts {
        return work(part);
    }
    share_out(parts, work, |builder| builder)
}

/// `adjust` has the last word on each thread.
fn share_out<P: Send>(
    parts: &mut [P],
    work: impl Fn(&mut P) -> Result<(), Fault> + Sync,
    adjust: impl Fn(thread::Builder) -> thread::Builder,
) -> Result<(), Fault> {
    const OP: &str = "serve a stripe";
    let others = parts.len().saturating_sub(1);
    let faults = Mutex::new(BTreeMap::new());
    let waiting = Mutex::new(parts.iter_mut().enumerate());
    let serve = || {
        let next = || waiting.lock().unwrap_or_else(PoisonError::into_inner).next();
        while let Some((index, part)) = next() {
            if let Err(fault) = work(part) {
                faults.lock().unwrap_or_else(PoisonError::into_inner).insert(index, fault);
            }
        }
    };
    let died = thread::scope(|scope| {
        let mut threads = Vec::with_capacity(others);
        for _ in 0..others {
            match adjust(thread::Builder::new().stack_size(STACK)).spawn_scoped(scope, serve) {
                Ok(thread) => threads.push(thread),
                Err(error) => {
                    tracing::warn!(%error, "no thread to be had: addresses are served one after the other");
                    break;
                }
            }
        }
        serve();
        threads.into_iter().map(|thread| thread.join().is_err()).fold(false, |any, died| any | died)
    });
    let faults = faults.into_inner().unwrap_or_else(PoisonError::into_inner);
    match faults.into_values().next() {
        Some(fault) => Err(fault),
        None if died => Err(Fault::new(FaultCode::Internal, OP).side(Side::Us)),
        None => Ok(()),
    }
}

/// One stream connection, whoever connects; who cannot prove what the handle asks for is dropped, and the next one heard.
pub fn stream(task: &Task<'_>, handle: &Handle) -> Result<Box<dyn DataChannel>, Fault> {
    match &handle.rendezvous {
        Rendezvous::Listen(listener) => {
            let gathering = Gathering { listener, nonce: None, wanted: 1, timeout: task.node.settings.connect_timeout };
            let mut connections = Vec::new();
            mode_e::gather(&gathering, &mut connections, task.cancel)?;
            Ok(connections.pop().expect("one was wanted").into_channel())
        }
        Rendezvous::Connect => {
            let target = handle.lanes.first().and_then(|lane| lane.target);
            let target = target.ok_or_else(|| Fault::new(FaultCode::InvalidArgument, "connect data channel"))?;
            let options = connect_options(task.node, &handle.params);
            let mut channel = handle.guard.shield(tcp::connect(target, &options, task.cancel)?)?;
            if handle.guard.proves_first() {
                secure::prove(channel.as_mut(), options.timeout, task.cancel)?;
            }
            Ok(channel)
        }
    }
}

/// A sender that listens: takes the peer's connections when none is open yet, and such as came late for the transfer before.
pub fn accept_as_sender(task: &Task<'_>, handle: &mut Handle) -> Result<(), Fault> {
    let Handle { params, rendezvous: Rendezvous::Listen(listener), lanes, .. } = handle else {
        return Ok(());
    };
    let (nonce, timeout) = (params.nonce.as_ref(), task.node.settings.connect_timeout);
    let gathering = Gathering { listener, nonce, wanted: parallelism(params), timeout };
    mode_e::gather(&gathering, &mut lanes[0].connections, task.cancel)
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;

    use super::*;

    #[test]
    fn every_part_has_a_thread_of_its_own() {
        let all_here = Barrier::new(4);
        let mut parts = [1, 2, 3, 4];
        let work = |part: &mut i32| {
            // Waits for ever when two parts share a thread.
            all_here.wait();
            *part *= 10;
            Ok(())
        };
        in_parallel(&mut parts, work).expect("served");
        assert_eq!(parts, [10, 20, 30, 40]);
    }

    #[test]
    fn without_threads_the_parts_are_served_one_after_the_other() {
        let mut parts = [1, 2, 3, 4];
        let work = |part: &mut i32| {
            *part *= 10;
            Ok(())
        };
        // No address space holds such a stack.
        share_out(&mut parts, work, |builder| builder.stack_size(1 << 60)).expect("served");
        assert_eq!(parts, [10, 20, 30, 40]);
    }

    #[test]
    fn the_first_fault_in_the_order_of_the_parts_is_told() {
        let mut parts = [0, 1, 2, 3];
        let work = |part: &mut i32| match *part {
            0 => Ok(()),
            part => Err(Fault::new(FaultCode::ConnectionLost, "test").detail(part.to_string())),
        };
        let fault = in_parallel(&mut parts, work).expect_err("three failed");
        assert!(fault.to_string().contains('1'), "{fault}");
        assert!(in_parallel(&mut parts[..0], work).is_ok());
    }
}
