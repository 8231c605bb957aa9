//! The metrics page of a server while it moves data.

mod support;

use std::collections::BTreeMap;
use std::io::Read as _;
use std::net::{SocketAddr, TcpListener, TcpStream};

use support::control::Control;
use support::dtn::{Dtn, until};
use whimbrel_testkit::peers::public_dir;

/// Far more than sockets take when nobody reads.
const SIZE: u64 = 400_000_000;

const CHANNELS: usize = 3;

/// The series of a page that belong to transfers under way, with their values.
fn series(page: &str) -> BTreeMap<String, f64> {
    let lines = page.lines().filter(|line| line.starts_with("whimbrel_transfer_"));
    lines
        .map(|line| line.rsplit_once(' ').expect("a value"))
        .map(|(k, v)| (k.to_owned(), v.parse().expect("a number")))
        .collect()
}

/// The values of one name, by its labels.
fn values(page: &str, name: &str) -> Vec<(String, f64)> {
    let prefix = format!("whimbrel_{name}{{");
    let all = series(page).into_iter();
    all.filter_map(|(series, value)| Some((series.strip_prefix(&prefix)?.to_owned(), value))).collect()
}

fn port(address: SocketAddr) -> String {
    let SocketAddr::V4(address) = address else { panic!("{address}") };
    let [a, b, c, d] = address.ip().octets();
    let [high, low] = address.port().to_be_bytes();
    format!("PORT {a},{b},{c},{d},{high},{low}")
}

/// A transfer over several channels whose receiver does not read yet.
fn blocked(server: &Dtn) -> (Control, Vec<TcpStream>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("bound");
    let mut control = Control::login(server.addr());
    for (code, line) in [
        (200, "TYPE I"),
        (200, "MODE E"),
        (200, &format!("OPTS RETR Parallelism={CHANNELS},{CHANNELS},{CHANNELS};")),
        (200, &port(listener.local_addr().expect("an address"))),
    ] {
        control.ask_for(code, line);
    }
    control.say("RETR /a name that is nobody's business");
    let peers = (0..CHANNELS).map(|_| listener.accept().expect("connected").0).collect();
    (control, peers)
}

#[test]
fn a_running_transfer_and_its_channels_are_on_the_page_until_it_ends() {
    let directory = public_dir().expect("directory");
    let file = std::fs::File::create(directory.path().join("a name that is nobody's business")).expect("made");
    file.set_len(SIZE).expect("grown");
    let server = Dtn::builder().anonymous().root(directory.path()).start();
    assert!(series(&server.metrics()).keys().all(|key| !key.contains('{')), "nothing runs yet");

    let (mut control, peers) = blocked(&server);
    until("all channels on the page", || values(&server.metrics(), "transfer_channel_bytes").len() == CHANNELS);
    let page = server.metrics();
    let [(labels, moved)] = &values(&page, "transfer_bytes")[..] else { panic!("{page}") };
    assert!(*moved > 0.0 && *moved < SIZE as f64, "{moved}");
    assert!(labels.starts_with("transfer=\"") && labels.ends_with("\",direction=\"out\"}"), "{labels}");
    assert_eq!(values(&page, "transfer_expected_bytes"), [(labels.clone(), SIZE as f64)]);
    assert_eq!(values(&page, "transfer_channels"), [(labels.clone(), CHANNELS as f64)]);
    assert_eq!(values(&page, "transfer_bytes_per_second").len(), 1);
    assert!(values(&page, "transfer_info")[0].0.contains("command=\"RETR\""));
    for name in ["transfer_channel_rtt_seconds", "transfer_channel_congestion_window_bytes"] {
        let values = values(&page, name);
        assert!(values.len() == CHANNELS && values.iter().all(|(_, value)| *value > 0.0), "{name}: {values:?}");
    }
    assert_eq!(values(&page, "transfer_channel_retransmitted_segments").len(), CHANNELS);
    let info = values(&page, "transfer_channel_info");
    for (channel, peer) in peers.iter().enumerate() {
        let peer = peer.local_addr().expect("an address");
        let is_it = |labels: &str| labels.contains(&format!("channel=\"{channel}\",peer=\"{peer}\""));
        assert!(info.iter().any(|(labels, _)| is_it(labels)), "{info:?}");
    }
    assert!(!page.contains("nobody"), "names of files are not for those who read metrics");
    until("the channels among those open", || server.metric("data_channels") == CHANNELS as u64);
    assert_eq!(server.metric("transfers_running"), 1);

    let readers = peers.into_iter().map(|mut peer| {
        std::thread::spawn(move || {
            let (mut buffer, mut total) = (vec![0; 1 << 18], 0u64);
            while let Ok(count) = peer.read(&mut buffer)
                && count > 0
            {
                total += count as u64;
            }
            total
        })
    });
    let readers: Vec<_> = readers.collect();
    assert_eq!(control.last_reply().code, 226);
    until("the end of the series", || series(&server.metrics()).keys().all(|key| !key.contains('{')));
    until("the count", || server.metric("sent_bytes_total") == SIZE);
    drop(control);
    let total: u64 = readers.into_iter().map(|reader| reader.join().expect("read")).sum();
    assert!(total > SIZE, "headers came with {total}");
}
