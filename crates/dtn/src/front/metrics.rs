//! Prometheus metrics of a DTN.

mod running;

use std::fmt::Write as _;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::guard::Guard;
use super::server::Server;
use crate::mover::message::Load;
use crate::relay::Passed;

/// Longest scrape request read, bytes.
const MAX_REQUEST: usize = 8 << 10;

/// Counters of the control side.
#[derive(Debug, Default)]
pub struct Metrics {
    connections_total: AtomicU64,
    connections_open: AtomicU64,
    logins_ok: AtomicU64,
    logins_failed: AtomicU64,
    handshakes_full: AtomicU64,
    handshakes_resumed: AtomicU64,
    replies_ok: AtomicU64,
    replies_failed: AtomicU64,
    relay_bytes: AtomicU64,
    relay_joined: AtomicU64,
    relay_refused: AtomicU64,
    relay_open: AtomicU64,
}

impl Metrics {
    /// A control connection began.
    pub fn connection_opened(&self) {
        self.connections_total.fetch_add(1, Ordering::Relaxed);
        self.connections_open.fetch_add(1, Ordering::Relaxed);
    }

    /// A control connection ended.
    pub fn connection_closed(&self) {
        self.connections_open.fetch_sub(1, Ordering::Relaxed);
    }

    /// A login was decided.
    pub fn count_login(&self, accepted: bool) {
        let counter = if accepted { &self.logins_ok } else { &self.logins_failed };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    /// A control connection is inside TLS, by a full handshake or as another's session resumed.
    pub fn count_handshake(&self, resumed: bool) {
        let counter = if resumed { &self.handshakes_resumed } else { &self.handshakes_full };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    /// A command got its final reply.
    pub fn count_reply(&self, code: u16) {
        let counter = if code < 400 { &self.replies_ok } else { &self.replies_failed };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    /// Where data connections of others are joined, what has passed.
    pub(crate) fn relay_passed(&self, passed: &Passed) {
        let keep = |counter: &AtomicU64, value| counter.store(value, Ordering::Relaxed);
        keep(&self.relay_bytes, passed.bytes);
        keep(&self.relay_joined, passed.joined);
        keep(&self.relay_refused, passed.refused);
        keep(&self.relay_open, passed.open.into());
    }

    /// The text exposition format, from these counters and the summed load of all data processes.
    fn render(&self, guard: &Guard, load: &Load, data_processes: usize) -> String {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let rows: [(&str, &str, &str, u64); 22] = [
            ("control_connections_total", "counter", "Control connections accepted.", read(&self.connections_total)),
            ("control_connections", "gauge", "Control connections open.", read(&self.connections_open)),
            ("logins_total", "counter", "Logins accepted.", read(&self.logins_ok)),
            ("logins_refused_total", "counter", "Logins refused.", read(&self.logins_failed)),
            (
                "tls_handshakes_total",
                "counter",
                "Full TLS handshakes on control connections.",
                read(&self.handshakes_full),
            ),
            (
                "tls_resumed_total",
                "counter",
                "Control connections that resumed a session.",
                read(&self.handshakes_resumed),
            ),
            ("commands_total", "counter", "Commands answered with success.", read(&self.replies_ok)),
            ("commands_failed_total", "counter", "Commands answered with failure.", read(&self.replies_failed)),
            ("received_bytes_total", "counter", "Bytes received and stored.", load.bytes_received),
            ("sent_bytes_total", "counter", "Bytes read and sent.", load.bytes_sent),
            ("transfers_total", "counter", "Transfers completed.", load.transfers_done),
            ("transfers_failed_total", "counter", "Transfers failed.", load.transfers_failed),
            ("retransmitted_segments_total", "counter", "TCP segments sent again by data channels.", load.retransmits),
            ("receive_bytes_per_second", "gauge", "Bytes received a second of late.", load.receive_rate),
            ("send_bytes_per_second", "gauge", "Bytes sent a second of late.", load.send_rate),
            ("transfers_running", "gauge", "Transfers running.", u64::from(load.transfers_running)),
            ("data_channels", "gauge", "Data channels open.", u64::from(load.channels_open)),
            ("relay_bytes_total", "counter", "Bytes passed on between two other servers.", read(&self.relay_bytes)),
            ("relay_pairs_total", "counter", "Data connections of other servers joined.", read(&self.relay_joined)),
            (
                "relay_refused_total",
                "counter",
                "Connections and tokens refused where data connections are joined.",
                read(&self.relay_refused),
            ),
            ("relay_pairs", "gauge", "Data connections of other servers open.", read(&self.relay_open)),
            ("data_processes", "gauge", "Data processes and nodes attached.", data_processes as u64),
        ];
        let refused = guard.counts().map(|(name, help, count)| (name, "counter", help, count));
        let waiting = ("control_connections_waiting", "gauge", "Control connections not logged in.", guard.waiting());
        let mut text = String::new();
        for (name, kind, help, value) in rows.into_iter().chain(refused).chain([waiting]) {
            // Writing to a String cannot fail.
            let _ =
                write!(text, "# HELP whimbrel_{name} {help}\n# TYPE whimbrel_{name} {kind}\nwhimbrel_{name} {value}\n");
        }
        let rtt = f64::from(load.rtt_us) / 1e6;
        let _ = write!(
            text,
            "# HELP whimbrel_data_channel_rtt_seconds Smoothed round-trip time of the channel that reported last.\n\
             # TYPE whimbrel_data_channel_rtt_seconds gauge\nwhimbrel_data_channel_rtt_seconds {rtt}\n\
             # HELP whimbrel_pool_bytes Buffer memory in use.\n# TYPE whimbrel_pool_bytes gauge\nwhimbrel_pool_bytes {}\n",
            load.pool_bytes
        );
        text
    }
}

/// Answers scrapes for ever.
pub async fn serve(listener: TcpListener, server: Arc<Server>) {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                let server = server.clone();
                tokio::spawn(
                    async move { tokio::time::timeout(Duration::from_secs(10), answer(stream, &server)).await },
                );
            }
            Err(error) => super::accept::pause_after_error(&error).await,
        }
    }
}

async fn answer(mut stream: TcpStream, server: &Server) -> io::Result<()> {
    let mut request = Vec::new();
    while !request.windows(4).any(|window| window == b"\r\n\r\n") {
        if stream.read_buf(&mut request).await? == 0 || request.len() > MAX_REQUEST {
            return Ok(());
        }
    }
    let (status, body) = if request.starts_with(b"GET /metrics ") {
        ("200 OK", page(server).await)
    } else {
        ("404 Not Found", "Metrics are at /metrics.\n".to_owned())
    };
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).await?;
    stream.write_all(body.as_bytes()).await?;
    stream.shutdown().await
}

async fn page(server: &Server) -> String {
    let links = server.data_side.all();
    let retired = server.data_side.retired().clone();
    let load = total_load(links.iter().map(|link| link.load()).chain([retired]));
    let alive = links.iter().filter(|link| link.is_alive());
    let mut text = server.metrics.render(&server.guard, &load, alive.clone().count());
    let transfers: Vec<_> = alive.map(|link| (link.number, link.transfers())).collect();
    running::render(&transfers, &mut text);
    text
}

fn total_load(loads: impl Iterator<Item = Load>) -> Load {
    loads.fold(Load::default(), |sum, load| Load {
        bytes_received: sum.bytes_received + load.bytes_received,
        bytes_sent: sum.bytes_sent + load.bytes_sent,
        transfers_done: sum.transfers_done + load.transfers_done,
        transfers_failed: sum.transfers_failed + load.transfers_failed,
        retransmits: sum.retransmits + load.retransmits,
        transfers_running: sum.transfers_running + load.transfers_running,
        channels_open: sum.channels_open + load.channels_open,
        receive_rate: sum.receive_rate + load.receive_rate,
        send_rate: sum.send_rate + load.send_rate,
        rtt_us: sum.rtt_us.max(load.rtt_us),
        pool_bytes: sum.pool_bytes + load.pool_bytes,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_metric_has_help_type_and_value() {
        let metrics = Metrics::default();
        metrics.connection_opened();
        metrics.count_reply(226);
        metrics.count_reply(550);
        let guard = Guard::new(Default::default());
        guard.refused(super::super::guard::Refused::SlowLine);
        let text = metrics.render(&guard, &Load { bytes_sent: 7, ..Load::default() }, 1);
        assert!(text.contains("\nwhimbrel_slow_lines_total 1\n"));
        assert!(text.contains("\nwhimbrel_sent_bytes_total 7\n"));
        assert!(text.contains("\nwhimbrel_commands_failed_total 1\n"));
        assert_eq!(text.matches("# HELP").count(), text.matches("# TYPE").count());
        assert_eq!(text.lines().count(), 3 * text.matches("# HELP").count());
    }
}
