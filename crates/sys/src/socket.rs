//! Socket options and the calls that move bytes through sockets.

use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd};
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvFlags, SendAncillaryBuffer, SendFlags, Shutdown, recv, recvmsg, send, sendmsg, sockopt,
};

/// Number of the option in `linux/tcp.h`, which the bindings do not have yet.
const TCP_RTO_MAX_MS: libc::c_int = 44;

/// Sends small segments at once instead of waiting for acknowledgements (`TCP_NODELAY`).
pub fn set_nodelay(fd: impl AsFd, on: bool) -> io::Result<()> {
    Ok(sockopt::set_tcp_nodelay(fd, on)?)
}

/// Asks for a send buffer of `bytes`, which turns the kernel's auto-tuning off.
///
/// The kernel doubles the value for its own overhead and caps it at `net.core.wmem_max`.
pub fn set_send_buffer(fd: impl AsFd, bytes: usize) -> io::Result<()> {
    Ok(sockopt::set_socket_send_buffer_size(fd, bytes)?)
}

/// Asks for a receive buffer of `bytes`; see [`set_send_buffer`]. Set it before connect or listen,
/// because the window scale is fixed by the handshake.
pub fn set_recv_buffer(fd: impl AsFd, bytes: usize) -> io::Result<()> {
    Ok(sockopt::set_socket_recv_buffer_size(fd, bytes)?)
}

/// The send buffer in force, in bytes, as the kernel counts it.
pub fn send_buffer(fd: impl AsFd) -> io::Result<usize> {
    Ok(sockopt::socket_send_buffer_size(fd)?)
}

/// The receive buffer in force, in bytes, as the kernel counts it.
pub fn recv_buffer(fd: impl AsFd) -> io::Result<usize> {
    Ok(sockopt::socket_recv_buffer_size(fd)?)
}

/// Selects a congestion control by name (`cubic`, `bbr`); fails when the kernel does not allow it.
pub fn set_congestion(fd: impl AsFd, name: &str) -> io::Result<()> {
    Ok(sockopt::set_tcp_congestion(fd, name)?)
}

/// The name of the congestion control in force.
pub fn congestion(fd: impl AsFd) -> io::Result<String> {
    Ok(sockopt::tcp_congestion(fd)?)
}

/// Probes an idle connection after `idle`, then every tenth of it, and gives up after 5 probes.
pub fn set_keepalive(fd: impl AsFd, idle: Duration) -> io::Result<()> {
    let fd = fd.as_fd();
    sockopt::set_socket_keepalive(fd, true)?;
    sockopt::set_tcp_keepidle(fd, idle.max(Duration::from_secs(1)))?;
    sockopt::set_tcp_keepintvl(fd, (idle / 10).max(Duration::from_secs(1)))?;
    Ok(sockopt::set_tcp_keepcnt(fd, 5)?)
}

/// Waits no longer than `longest`, 1 s to 120 s, before lost bytes are sent again (`TCP_RTO_MAX_MS`); false where the kernel,
/// older than Linux 6.15, always lets these waits double up to two minutes (RFC 6298 section 5.5).
///
/// The kernel fails a connection after a number of such waits (`net.ipv4.tcp_retries2`), and so sooner the shorter they are.
pub fn set_rto_max(fd: impl AsFd, longest: Duration) -> io::Result<bool> {
    let millis = libc::c_int::try_from(longest.as_millis()).unwrap_or(libc::c_int::MAX);
    // SAFETY: the descriptor is borrowed for the call, and the pointer is to a value of the length named, which is only read.
    let set = unsafe {
        libc::setsockopt(
            fd.as_fd().as_raw_fd(),
            libc::IPPROTO_TCP,
            TCP_RTO_MAX_MS,
            (&raw const millis).cast(),
            size_of_val(&millis) as libc::socklen_t,
        )
    };
    is_known(set)
}

/// The longest wait before lost bytes are sent again; `None` where the kernel cannot be told any ([`set_rto_max`]).
pub fn rto_max(fd: impl AsFd) -> io::Result<Option<Duration>> {
    let (mut millis, mut length) = (0, size_of::<libc::c_int>() as libc::socklen_t);
    // SAFETY: the descriptor is borrowed for the call, and both pointers are to values of the lengths named, which live longer.
    let asked = unsafe {
        libc::getsockopt(
            fd.as_fd().as_raw_fd(),
            libc::IPPROTO_TCP,
            TCP_RTO_MAX_MS,
            (&raw mut millis).cast(),
            &raw mut length,
        )
    };
    Ok(is_known(asked)?.then(|| Duration::from_millis(u64::from(libc::c_int::unsigned_abs(millis)))))
}

/// Whether the kernel has an option, from what the call about it returned.
fn is_known(returned: libc::c_int) -> io::Result<bool> {
    if returned == 0 {
        return Ok(true);
    }
    let error = io::Error::last_os_error();
    if error.raw_os_error() == Some(libc::ENOPROTOOPT) { Ok(false) } else { Err(error) }
}

/// Acknowledges at once until the kernel decides otherwise (`TCP_QUICKACK`); not permanent.
pub fn set_quickack(fd: impl AsFd, on: bool) -> io::Result<()> {
    Ok(sockopt::set_tcp_quickack(fd, on)?)
}

/// Sends from several pieces in one call, never raising `SIGPIPE`.
///
/// `more` tells the kernel that the next bytes follow at once (`MSG_MORE`): it then fills segments.
/// Returns how many bytes were taken, possibly fewer than offered.
pub fn send_vectored(fd: impl AsFd, pieces: &[IoSlice<'_>], more: bool) -> io::Result<usize> {
    let fd = fd.as_fd();
    let flags = send_flags(more);
    loop {
        let sent = match pieces {
            [piece] => send(fd, piece, flags),
            _ => sendmsg(fd, pieces, &mut SendAncillaryBuffer::default(), flags),
        };
        match sent {
            Err(Errno::INTR) => {}
            sent => return Ok(sent?),
        }
    }
}

fn send_flags(more: bool) -> SendFlags {
    if more { SendFlags::NOSIGNAL | SendFlags::MORE } else { SendFlags::NOSIGNAL }
}

/// Receives into several pieces in order; 0 means that the peer has closed its side.
pub fn recv_vectored(fd: impl AsFd, pieces: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
    let fd = fd.as_fd();
    loop {
        let received = match pieces {
            [piece] => recv(fd, &mut **piece, RecvFlags::empty()).map(|(read, _)| read),
            _ => recvmsg(fd, pieces, &mut RecvAncillaryBuffer::default(), RecvFlags::empty())
                .map(|message| message.bytes),
        };
        match received {
            Err(Errno::INTR) => {}
            received => return Ok(received?),
        }
    }
}

/// Lets the kernel send `len` bytes of `file` from `offset`; 0 means that the file ends there.
///
/// `SIGPIPE` must be ignored by the process (as every Rust program does).
pub fn sendfile(socket: impl AsFd, file: BorrowedFd<'_>, offset: u64, len: usize) -> io::Result<usize> {
    let socket = socket.as_fd();
    let mut at = offset;
    loop {
        match rustix::fs::sendfile(socket, file, Some(&mut at), len) {
            Err(Errno::INTR) => {}
            sent => return Ok(sent?),
        }
    }
}

/// Ends the sending side: the peer reads end of file after what is under way.
pub fn shutdown_write(fd: impl AsFd) -> io::Result<()> {
    Ok(rustix::net::shutdown(fd, Shutdown::Write)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};

    fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("listen");
        let client = TcpStream::connect(listener.local_addr().expect("address")).expect("connect");
        (client, listener.accept().expect("accept").0)
    }

    #[test]
    fn options_take_effect() {
        let (client, _server) = pair();
        set_nodelay(&client, true).expect("nodelay");
        assert!(client.nodelay().expect("nodelay"));
        set_send_buffer(&client, 100_000).expect("sndbuf");
        assert!(send_buffer(&client).expect("sndbuf") >= 100_000);
        set_recv_buffer(&client, 100_000).expect("rcvbuf");
        assert!(recv_buffer(&client).expect("rcvbuf") >= 100_000);
        let name = congestion(&client).expect("congestion");
        set_congestion(&client, &name).expect("the one in force is allowed");
        assert!(set_congestion(&client, "no-such-control").is_err());
        set_keepalive(&client, Duration::from_secs(30)).expect("keepalive");
        assert!(sockopt::socket_keepalive(&client).expect("keepalive"));
        set_quickack(&client, true).expect("quickack");
    }

    #[test]
    fn waits_for_what_was_lost_are_bounded_and_accepted_connections_inherit_that() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("listen");
        if !set_rto_max(&listener, Duration::from_secs(10)).expect("a value in its bounds") {
            eprintln!("skipped: this kernel is older than Linux 6.15");
            return;
        }
        let client = TcpStream::connect(listener.local_addr().expect("address")).expect("connect");
        let (server, _) = listener.accept().expect("accept");
        let seconds = |socket| rto_max(socket).expect("asked").map(|longest| longest.as_secs());
        assert_eq!((seconds(&client), seconds(&server)), (Some(120), Some(10)));
        assert!(set_rto_max(&client, Duration::from_millis(10)).is_err(), "shorter than the kernel allows");
    }

    #[test]
    fn pieces_arrive_in_order_and_scatter_in_order() {
        let (client, server) = pair();
        let pieces = [IoSlice::new(b"head"), IoSlice::new(b"payload")];
        assert_eq!(send_vectored(&client, &pieces, true).expect("send"), 11);
        shutdown_write(&client).expect("shutdown");
        let (mut first, mut second) = ([0u8; 6], [0u8; 16]);
        let mut into = [IoSliceMut::new(&mut first), IoSliceMut::new(&mut second)];
        assert_eq!(recv_vectored(&server, &mut into).expect("recv"), 11);
        assert_eq!((&first[..], &second[..5]), (&b"headpa"[..], &b"yload"[..]));
        assert_eq!(recv_vectored(&server, &mut [IoSliceMut::new(&mut first)]).expect("recv"), 0);
    }

    #[test]
    fn sendfile_sends_from_an_offset_and_says_where_the_file_ends() {
        let (client, server) = pair();
        let path = std::env::temp_dir().join(format!("whimbrel-sendfile-{}", std::process::id()));
        std::fs::write(&path, b"0123456789").expect("write");
        let file = std::fs::File::open(&path).expect("open");
        std::fs::remove_file(&path).expect("remove");
        assert_eq!(sendfile(&client, file.as_fd(), 4, 100).expect("send"), 6);
        assert_eq!(sendfile(&client, file.as_fd(), 10, 100).expect("send"), 0);
        let mut got = [0u8; 16];
        let read = recv_vectored(&server, &mut [IoSliceMut::new(&mut got)]).expect("recv");
        assert_eq!(&got[..read], b"456789");
    }

    #[test]
    fn sending_to_a_closed_peer_is_an_error_not_a_signal() {
        let (client, server) = pair();
        drop(server);
        let piece = [IoSlice::new(&[0u8; 65536])];
        let failed = (0..1000).find_map(|_| send_vectored(&client, &piece, false).err());
        assert!(failed.is_some());
    }
}
