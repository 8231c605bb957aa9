//! Files that a user keeps or hands to the client: endpoints, lists of pairs, checksums, passwords, known hosts.

use whimbrel_dtn::client::endpoints::Endpoints;
use whimbrel_dtn::client::expect::{Algorithm, ExpectError, Expected, List};
use whimbrel_dtn::client::{lines, netrc};
use whimbrel_proto::url::{self, Location, Remote};
use whimbrel_trust::pins::{Fingerprint, HostName, PinVerdict, verdict};

/// Any bytes as each of the files: what is read means what it says, and what cannot be meant is refused with its place.
pub fn user_files(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    check_endpoints(&text);
    check_lines(data);
    check_sums(data);
    check_netrc(&text);
    check_pins(data, &text);
}

fn check_endpoints(text: &str) {
    let endpoints = match Endpoints::parse(text) {
        Ok(endpoints) => endpoints,
        Err(why) => return assert!(!why.is_empty()),
    };
    let again = Endpoints::parse(&format!("{text}\n# a comment\n")).expect("a comment changes nothing");
    for name in text.split(['=', '\n', '"', '\'', ' ']) {
        for place in [format!("{name}:run"), format!("ben@{name}:/a"), format!("{name}:"), format!("ftp://{name}/a")] {
            let Ok(Location::Remote(remote)) = url::parse(place.as_bytes()) else { continue };
            let meant = endpoints.resolved(remote.clone());
            assert_eq!(again.resolved(remote.clone()), meant);
            assert_eq!(endpoints.resolved(meant.clone()), meant, "what is meant means itself");
            if meant != remote {
                check_meant(&remote, &meant);
            }
        }
    }
}

/// Only a name can be an endpoint's; who is named with it and a path from the root stay.
fn check_meant(written: &Remote, meant: &Remote) {
    assert!(written.scheme.is_none() && meant.scheme.is_some() && meant.password.is_none());
    assert!(written.hosts.len() == 1 && written.hosts[0].port.is_none());
    assert!(written.user.is_none() || meant.user == written.user);
    assert!(!written.path.starts_with(b"/") || meant.path == written.path);
    assert!(meant.path.ends_with(&written.path));
}

/// Words are read again as they were once they are quoted.
fn check_lines(data: &[u8]) {
    for line in data.split(|&byte| byte == b'\n') {
        let Ok(words) = lines::words(line) else {
            assert!(line.contains(&b'"') && (lines::pair(line).is_err() || line.trim_ascii().starts_with(b"#")));
            continue;
        };
        let quoted: Vec<Vec<u8>> = words.iter().map(|word| quote(word)).collect();
        assert_eq!(lines::words(&quoted.join(&b' ')).as_ref(), Ok(&words));
        match lines::pair(line) {
            Ok(Some(pair)) => assert_eq!(words, pair),
            Ok(None) => assert!(words.first().is_none_or(|first| first.starts_with(b"#"))),
            Err(why) => assert!(words.len() != 2 && why.contains(&words.len().to_string())),
        }
    }
}

fn quote(word: &[u8]) -> Vec<u8> {
    let escaped = word.iter().flat_map(|&byte| match byte {
        b'"' | b'\\' => vec![b'\\', byte],
        _ => vec![byte],
    });
    [b'"'].into_iter().chain(escaped).chain([b'"']).collect()
}

/// Lists of checksums: every name has one, which is written and read as the same.
fn check_sums(data: &[u8]) {
    for of in [None, Some(Algorithm::Md5), Some(Algorithm::Crc32c)] {
        let list = match List::parse(data, of) {
            Ok(list) => list,
            Err(ExpectError::In(line, why)) => {
                let mut before = data.split(|&byte| byte == b'\n').take(line - 1).collect::<Vec<_>>().join(&b'\n');
                before.push(b'\n');
                assert!(!why.to_string().is_empty() && List::parse(&before, of).is_ok(), "the first wrong line");
                continue;
            }
            Err(error) => panic!("{error} has no line"),
        };
        let mut written = Vec::new();
        for name in list.names() {
            let expected = list.get(name).expect("it was named");
            let again = format!("{}:{}", expected.algorithm.name(), expected.digest);
            assert_eq!(again.parse().as_ref(), Ok(expected));
            written.extend_from_slice(&tagged(name, expected));
        }
        let again = List::parse(&written, None).expect("it was written from a list");
        assert_eq!(again.names().count(), list.names().count());
        assert!(list.names().all(|name| again.get(name) == list.get(name)));
    }
}

/// `ALG (NAME) = HEX`, escaped as GNU coreutils do.
fn tagged(name: &[u8], expected: &Expected) -> Vec<u8> {
    let escaped = name.iter().flat_map(|byte| match byte {
        b'\n' => b"\\n".to_vec(),
        b'\r' => b"\\r".to_vec(),
        b'\\' => b"\\\\".to_vec(),
        _ => vec![*byte],
    });
    let escaped: Vec<u8> = escaped.collect();
    let front = format!("\\{} (", expected.algorithm.name());
    [front.as_bytes(), b"./", &escaped, format!(") = {}\n", expected.digest).as_bytes()].concat()
}

/// Who is named gets no other's password, and comments have none.
fn check_netrc(text: &str) {
    let words: Vec<&str> = text.split_whitespace().collect();
    for host in words.iter().copied().chain(["a"]) {
        let any = netrc::entry(text, host, None);
        assert_eq!(netrc::entry(&format!("# machine {host} login x password y\n{text}"), host, None), any);
        let Some((login, password)) = any else { continue };
        assert!(words.contains(&login.as_str()) && words.contains(&password.0.as_str()));
        assert_eq!(netrc::entry(text, host, Some(&login)), Some((login, password)));
        assert!(netrc::entry(text, host, Some("nobody has blanks")).is_none());
    }
}

/// A file of known hosts: a line that is appended is found, and another host is none of its affair.
fn check_pins(data: &[u8], text: &str) {
    let key = Fingerprint([7; 32]);
    for word in text.split_whitespace() {
        if let Some(known) = Fingerprint::parse(word) {
            assert_eq!(Fingerprint::parse(&known.to_string()), Some(known));
            assert_eq!(format!("{known:?}"), known.to_string());
        }
        let (host, port) = word.rsplit_once(':').unwrap_or((word, "2811"));
        let Some(host) = port.parse().ok().and_then(|port| HostName::new(host, port)) else { continue };
        assert!(!host.to_string().contains(char::is_whitespace));
        let remembered = [data, format!("\n{host} {key}\n").as_bytes()].concat();
        match verdict(data, &host, &key) {
            Ok(PinVerdict::First | PinVerdict::Same | PinVerdict::Vouched { .. }) => {
                assert_eq!(verdict(&remembered, &host, &key), Ok(PinVerdict::Same))
            }
            Ok(PinVerdict::Changed { known, line }) => {
                assert!(known != key && line <= data.split(|&byte| byte == b'\n').count());
                assert_eq!(verdict(data, &host, &known), Ok(PinVerdict::Same));
            }
            Err(line) => {
                assert_eq!(verdict(&remembered, &host, &key), Err(line), "it must not look like a first visit")
            }
        }
    }
}
