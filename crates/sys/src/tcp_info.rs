//! What the kernel knows about a TCP connection (`TCP_INFO`).

use std::io;
use std::mem::{size_of, zeroed};
use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;

/// State of one TCP connection, as of the call; zero where the kernel is too old to tell.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TcpInfo {
    /// Smoothed round-trip time.
    pub rtt: Duration,
    /// Mean deviation of the round-trip time.
    pub rtt_var: Duration,
    /// Smallest round-trip time seen.
    pub min_rtt: Duration,
    /// Segments sent again since the connection began.
    pub retransmits: u32,
    /// Segments believed lost and not yet recovered.
    pub lost: u32,
    /// Congestion window, in segments.
    pub cwnd: u32,
    /// Sender's maximum segment size, in bytes.
    pub send_mss: u32,
    /// Largest packet that the path takes, in bytes.
    pub path_mtu: u32,
    /// Receive window auto-tuning target, in bytes.
    pub recv_space: u32,
    /// Most recent goodput estimate, in bytes per second.
    pub delivery_rate: u64,
    /// Rate the sender is paced at, in bytes per second; `u64::MAX` is unlimited.
    pub pacing_rate: u64,
    /// Bytes the peer has acknowledged.
    pub bytes_acked: u64,
    /// Bytes received from the peer.
    pub bytes_received: u64,
    /// Bytes sent, retransmissions included.
    pub bytes_sent: u64,
    /// Bytes sent again.
    pub bytes_retransmitted: u64,
    /// Bytes in the send buffer that were never sent.
    pub not_sent: u32,
    /// Time spent with data to send.
    pub busy: Duration,
    /// Of that, time limited by the peer's receive window.
    pub window_limited: Duration,
    /// Of that, time limited by our send buffer.
    pub buffer_limited: Duration,
}

/// The kernel's `struct tcp_info` up to `tcpi_snd_wnd` (linux/tcp.h); newer fields are cut off,
/// missing ones stay zero. `libc`'s own definition ends before the delivery rate.
#[repr(C)]
#[derive(Clone, Copy)]
struct Raw {
    states: [u8; 8],
    rto: u32,
    ato: u32,
    snd_mss: u32,
    rcv_mss: u32,
    unacked: u32,
    sacked: u32,
    lost: u32,
    retrans: u32,
    fackets: u32,
    last_data_sent: u32,
    last_ack_sent: u32,
    last_data_recv: u32,
    last_ack_recv: u32,
    pmtu: u32,
    rcv_ssthresh: u32,
    rtt: u32,
    rttvar: u32,
    snd_ssthresh: u32,
    snd_cwnd: u32,
    advmss: u32,
    reordering: u32,
    rcv_rtt: u32,
    rcv_space: u32,
    total_retrans: u32,
    pacing_rate: u64,
    max_pacing_rate: u64,
    bytes_acked: u64,
    bytes_received: u64,
    segs_out: u32,
    segs_in: u32,
    notsent_bytes: u32,
    min_rtt: u32,
    data_segs_in: u32,
    data_segs_out: u32,
    delivery_rate: u64,
    busy_time: u64,
    rwnd_limited: u64,
    sndbuf_limited: u64,
    delivered: u32,
    delivered_ce: u32,
    bytes_sent: u64,
    bytes_retrans: u64,
    dsack_dups: u32,
    reord_seen: u32,
    rcv_ooopack: u32,
    snd_wnd: u32,
}

/// Reads the state of a connected TCP socket; fails with `EOPNOTSUPP` on other sockets.
pub fn tcp_info(fd: impl AsFd) -> io::Result<TcpInfo> {
    // SAFETY: `Raw` holds only integers, for which all-zero is valid.
    let mut raw: Raw = unsafe { zeroed() };
    let mut len = size_of::<Raw>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `len` bytes, the size of `raw`, and updates `len`.
    let result = unsafe {
        libc::getsockopt(fd.as_fd().as_raw_fd(), libc::IPPROTO_TCP, libc::TCP_INFO, (&raw mut raw).cast(), &raw mut len)
    };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(TcpInfo::from(&raw))
}

impl From<&Raw> for TcpInfo {
    fn from(raw: &Raw) -> Self {
        let micros = |value: u32| Duration::from_micros(u64::from(value));
        Self {
            rtt: micros(raw.rtt),
            rtt_var: micros(raw.rttvar),
            // The kernel says `u32::MAX` before the first sample.
            min_rtt: micros(if raw.min_rtt == u32::MAX { 0 } else { raw.min_rtt }),
            retransmits: raw.total_retrans,
            lost: raw.lost,
            cwnd: raw.snd_cwnd,
            send_mss: raw.snd_mss,
            path_mtu: raw.pmtu,
            recv_space: raw.rcv_space,
            delivery_rate: raw.delivery_rate,
            pacing_rate: raw.pacing_rate,
            bytes_acked: raw.bytes_acked,
            bytes_received: raw.bytes_received,
            bytes_sent: raw.bytes_sent,
            bytes_retransmitted: raw.bytes_retrans,
            not_sent: raw.notsent_bytes,
            busy: Duration::from_micros(raw.busy_time),
            window_limited: Duration::from_micros(raw.rwnd_limited),
            buffer_limited: Duration::from_micros(raw.sndbuf_limited),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::mem::offset_of;
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn the_layout_is_the_kernels() {
        // Offsets from linux/tcp.h, an ABI that only ever grows at its end.
        assert_eq!(offset_of!(Raw, rtt), 68);
        assert_eq!(offset_of!(Raw, total_retrans), 100);
        assert_eq!(offset_of!(Raw, pacing_rate), 104);
        assert_eq!(offset_of!(Raw, delivery_rate), 160);
        assert_eq!(offset_of!(Raw, bytes_sent), 200);
        assert_eq!(size_of::<Raw>(), 232);
    }

    #[test]
    fn counts_the_bytes_of_a_live_connection() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("listen");
        let mut client = TcpStream::connect(listener.local_addr().expect("address")).expect("connect");
        let mut server = listener.accept().expect("accept").0;
        client.write_all(&[1; 1000]).expect("write");
        server.read_exact(&mut [0; 1000]).expect("read");
        server.write_all(&[2; 10]).expect("write");
        client.read_exact(&mut [0; 10]).expect("read");
        let info = tcp_info(&client).expect("tcp_info");
        assert_eq!((info.bytes_sent, info.bytes_received), (1000, 10));
        // The answer carried the acknowledgement; the handshake's SYN counts as one byte.
        assert!((1000..=1001).contains(&info.bytes_acked), "{info:?}");
        assert!(info.cwnd > 0 && info.rtt > Duration::ZERO, "{info:?}");
        assert_eq!(info.retransmits, 0);
    }

    #[test]
    fn a_socket_that_is_not_tcp_is_an_error() {
        let (one, _other) = std::os::unix::net::UnixStream::pair().expect("pair");
        assert!(tcp_info(&one).is_err());
    }
}
