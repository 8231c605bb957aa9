//! Whether a certificate is that of the host we wanted (RFC 2818 §3.1, RFC 6125 §6.4, and what grids add).

use std::net::IpAddr;

use whimbrel_proto::x509::Certificate;

/// Which names of a certificate count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Names {
    /// Alternative names only, as on the web.
    Alternative,
    /// Without alternative names also the common name, `host.example.org` or `host/host.example.org`, as in grids.
    Common,
}

/// Says why the certificate is not that of `host`, a DNS name or an address.
pub fn check(certificate: &Certificate<'_>, host: &str, names: Names) -> Result<(), String> {
    let host = host.strip_suffix('.').unwrap_or(host).trim_start_matches('[').trim_end_matches(']');
    let alternative = certificate.extensions.alt_names.as_ref();
    let named = alternative.is_some_and(|names| !names.dns.is_empty() || !names.addresses.is_empty());
    let mut others: Vec<String> = Vec::new();
    if let Some(names) = alternative {
        let matches = match host.parse::<IpAddr>() {
            Ok(address) => names.addresses.contains(&address.to_canonical()) || names.addresses.contains(&address),
            Err(_) => names.dns.iter().any(|pattern| dns_matches(pattern, host)),
        };
        if matches {
            return Ok(());
        }
        others.extend(names.dns.iter().map(|name| (*name).to_owned()));
        others.extend(names.addresses.iter().map(ToString::to_string));
    }
    // RFC 6125 §6.4.4: common names count only where nothing better is there.
    if names == Names::Common && !named {
        let common = certificate.subject.common_names().last().and_then(|name| std::str::from_utf8(name).ok());
        if let Some(common) = common {
            // `host/name` and other services of old grid certificates.
            let name =
                common.rsplit_once('/').filter(|(service, _)| is_service(service)).map_or(common, |(_, name)| name);
            if dns_matches(name, host) {
                return Ok(());
            }
            others.push(common.to_owned());
        }
    }
    others.truncate(5);
    Err(match others.as_slice() {
        [] => format!("its certificate names no host, not {host} either"),
        names => format!("its certificate is for {}, not for {host}", names.join(", ")),
    })
}

fn is_service(word: &str) -> bool {
    ["host", "ftp", "gsiftp", "gridftp"].contains(&word.to_ascii_lowercase().as_str())
}

/// A star may be the whole first label, and stands for one label (RFC 6125 §6.4.3); at least two labels must follow.
fn dns_matches(pattern: &str, host: &str) -> bool {
    let pattern = pattern.strip_suffix('.').unwrap_or(pattern);
    if host.is_empty() || host.parse::<IpAddr>().is_ok() {
        return false;
    }
    match pattern.strip_prefix("*.") {
        Some(parent) => {
            let wide = !parent.contains('.') || parent.contains('*');
            let below = host.split_once('.').filter(|(label, _)| !label.is_empty());
            !wide && below.is_some_and(|(_, rest)| rest.eq_ignore_ascii_case(parent))
        }
        None => !pattern.contains('*') && pattern.eq_ignore_ascii_case(host),
    }
}

#[cfg(test)]
mod tests {
    use whimbrel_proto::timeval::Timestamp;

    use super::*;
    use crate::make::{HostName, KeyKind, Life, Purpose, key, self_signed};

    fn matches(subject: &str, alternative: &[HostName], host: &str, names: Names) -> Result<(), String> {
        let purpose = Purpose::Host(alternative.to_vec());
        let made =
            self_signed(subject, &key(KeyKind::P256).unwrap(), &purpose, Life::of(Timestamp::from_secs(0), 9)).unwrap();
        check(&Certificate::parse(&made.to_der().unwrap()).unwrap(), host, names)
    }

    #[test]
    fn alternative_names_count_where_they_are() {
        let names = [
            HostName::Dns("A.example.org".into()),
            HostName::Dns("*.b.example.org".into()),
            HostName::Address([10, 0, 0, 1].into()),
        ];
        let check = |host: &str| matches("/CN=c.example.org", &names, host, Names::Common).is_ok();
        for good in ["a.example.org", "a.EXAMPLE.org.", "x.b.example.org", "10.0.0.1", "::ffff:10.0.0.1"] {
            assert!(check(good), "{good}");
        }
        for bad in ["b.example.org", "x.y.b.example.org", ".b.example.org", "c.example.org", "10.0.0.2", "", "::1"] {
            assert!(!check(bad), "{bad}");
        }
        let reason = matches("/CN=x", &names, "c", Names::Common).unwrap_err();
        assert_eq!(reason, "its certificate is for A.example.org, *.b.example.org, 10.0.0.1, not for c");
    }

    #[test]
    fn common_names_count_in_grids_without_better_ones() {
        for subject in ["/O=Grid/CN=h.example.org", "/O=Grid/CN=host/h.example.org", "/O=Grid/CN=FTP/h.example.org"] {
            assert_eq!(matches(subject, &[], "h.example.org", Names::Common), Ok(()), "{subject}");
            let reason = matches(subject, &[], "h.example.org", Names::Alternative).unwrap_err();
            assert_eq!(reason, "its certificate names no host, not h.example.org either");
        }
        for subject in ["/O=Grid/CN=other/h.example.org", "/CN=h.example.org/O=Grid/CN=x", "/O=h.example.org"] {
            assert!(matches(subject, &[], "h.example.org", Names::Common).is_err(), "{subject}");
        }
        assert!(matches("/CN=10.0.0.1", &[], "10.0.0.1", Names::Common).is_err(), "an address is no name");
        assert_eq!(
            matches("/CN=h", &[HostName::Address([0u16, 0, 0, 0, 0, 0, 0, 1].into())], "[::1]", Names::Alternative),
            Ok(())
        );
    }

    #[test]
    fn stars_stand_for_one_whole_label() {
        for (pattern, host) in [
            ("*", "a"),
            ("*.org", "example.org"),
            ("*.*.org", "a.b.org"),
            ("a*.example.org", "ab.example.org"),
            ("a.*.org", "a.b.org"),
            ("*.example.org", "example.org"),
        ] {
            assert!(!dns_matches(pattern, host), "{pattern} {host}");
        }
        assert!(dns_matches("*.example.org.", "a.example.org"));
    }
}
