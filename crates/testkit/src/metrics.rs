//! What a running server counts: its page of Prometheus metrics.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};

/// Where metrics are served, from the line in which a server says so.
pub fn announced(line: &str) -> Option<SocketAddr> {
    line.strip_prefix("metrics at http://")?.strip_suffix("/metrics")?.parse().ok()
}

/// The page, with its HTTP header.
#[track_caller]
pub fn page(address: SocketAddr) -> String {
    let mut stream = TcpStream::connect(address).expect("metrics are served");
    stream.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").expect("the request is taken");
    let mut page = String::new();
    stream.read_to_string(&mut page).expect("the page is text");
    page
}

/// One value of a page, by its name without `whimbrel_`.
#[track_caller]
pub fn value(page: &str, name: &str) -> u64 {
    let line = page.lines().find_map(|line| line.strip_prefix(&format!("whimbrel_{name} ")));
    line.and_then(|value| value.parse().ok()).unwrap_or_else(|| panic!("no metric {name} in\n{page}"))
}
