//! What sshd tells the programs that it starts.

use std::net::{IpAddr, SocketAddr};

/// Client and server of `SSH_CONNECTION`: "client-address client-port server-address server-port" (ssh(1)).
///
/// `None` for anything else, such as a connection that came over no network.
pub fn connection(text: &str) -> Option<(SocketAddr, SocketAddr)> {
    let fields: Vec<&str> = text.split(' ').collect();
    let [client, client_port, server, server_port] = fields[..] else { return None };
    Some((address(client, client_port)?, address(server, server_port)?))
}

fn address(ip: &str, port: &str) -> Option<SocketAddr> {
    // Interfaces of one host mean nothing to the other: `fe80::1%eth0`.
    let ip: IpAddr = ip.split('%').next()?.parse().ok()?;
    let port: u16 = port.parse().ok()?;
    (!ip.is_unspecified() && !ip.is_multicast()).then(|| SocketAddr::new(ip.to_canonical(), port))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_addresses_are_read() {
        let (client, server) = connection("2001:db8::1 5000 192.0.2.7 22").unwrap();
        assert_eq!(client, "[2001:db8::1]:5000".parse().unwrap());
        assert_eq!(server, "192.0.2.7:22".parse().unwrap());
        let (client, _) = connection("fe80::1%eth0 1 ::ffff:192.0.2.7 2").unwrap();
        assert_eq!(client, "[fe80::1]:1".parse().unwrap());
    }

    #[test]
    fn anything_else_is_no_connection() {
        for text in [
            "",
            "UNKNOWN 65535 UNKNOWN 65535",
            "192.0.2.1 1 192.0.2.2",
            "192.0.2.1 1 192.0.2.2 2 3",
            "192.0.2.1  1 192.0.2.2 2",
            "192.0.2.1 1 192.0.2.2 65536",
            "0.0.0.0 1 192.0.2.2 22",
            "host 1 192.0.2.2 22",
        ] {
            assert_eq!(connection(text), None, "{text}");
        }
    }
}
