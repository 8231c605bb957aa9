//! Certificates and the files around them.

use whimbrel_proto::x509::der::{DerError, Reader, encode, encode_count};
use whimbrel_proto::x509::gridmap::GridMap;
use whimbrel_proto::x509::name::normal_form;
use whimbrel_proto::x509::policy::SigningPolicy;
use whimbrel_proto::x509::{Certificate, Kind, Name, voms as attributes};

/// How deep values in values are looked at.
const DEEPEST: usize = 32;

/// Certificates: what is read is all that is there, and names keep to their rules.
pub fn certificate(data: &[u8]) {
    let Ok(certificate) = Certificate::parse(data) else { return };
    assert_eq!(certificate.der, data);
    assert_eq!(Certificate::parse(&[data, &[0]].concat()).err(), Some(DerError::Trailing));
    assert!(Certificate::parse(&data[..data.len() - 1]).is_err(), "a certificate without its end");
    assert!((1..=3).contains(&certificate.version) && !certificate.serial.is_empty());
    assert_eq!(written(data, 0), data, "a value has one form");
    check_name(&certificate.subject);
    check_name(&certificate.issuer);
    let (subject, issuer) = (&certificate.subject, &certificate.issuer);
    assert_eq!(subject.matches(issuer), issuer.matches(subject));
    assert_eq!(subject.matches(issuer), subject.canonical() == issuer.canonical());
    assert_eq!(certificate.is_self_issued(), subject.matches(issuer));
    if subject.below(issuer).is_some() {
        assert_eq!(subject.attributes().len(), issuer.attributes().len() + 1);
        assert!(!subject.matches(issuer) && issuer.below(subject).is_none());
    }
    match certificate.kind() {
        Ok(Kind::Proxy { .. }) => assert!(!certificate.extensions.basic.is_some_and(|basic| basic.ca)),
        Ok(Kind::Ca) => assert!(certificate.extensions.proxy.is_none()),
        Ok(Kind::EndEntity) => assert!(certificate.extensions.proxy.is_none()),
        Err(reason) => assert!(certificate.extensions.proxy.is_some(), "{reason}"),
    }
    check_extensions(&certificate);
}

fn check_extensions(certificate: &Certificate<'_>) {
    let extensions = &certificate.extensions;
    if let Some(names) = &extensions.alt_names {
        assert!(names.dns.iter().chain(&names.mail).all(|name| !name.is_empty() && !name.contains('\0')));
    }
    if let Some(length) = certificate.path_length() {
        let written = encode_count(length);
        assert_eq!(Reader::new(&written).item().and_then(|item| item.count()), Ok(length));
        assert!(extensions.proxy.is_some() || extensions.basic.is_some());
    }
    if let Some(usage) = extensions.key_usage {
        let below = usage.of_proxies();
        // RFC 3820 §3.7: a proxy signs no certificates.
        assert!(!below.signs_certificates() && below.bits() & usage.bits() == below.bits());
        assert_eq!(below.digital_signature(), usage.digital_signature());
        assert_eq!((below.key_encipherment(), below.signs_crls()), (usage.key_encipherment(), usage.signs_crls()));
    }
    let purposes = extensions.purposes.iter().flatten();
    for oid in purposes.chain(&extensions.unknown_critical).chain([&certificate.algorithm]) {
        let shown = oid.to_string();
        assert!(
            shown == format!("{oid:?}") && shown.bytes().all(|byte| byte.is_ascii_digit() || b".?".contains(&byte))
        );
    }
}

/// Values written again from their parts, as deep as they are understood.
fn written(bytes: &[u8], depth: usize) -> Vec<u8> {
    let (mut reader, mut out) = (Reader::new(bytes), Vec::new());
    while !reader.is_empty() {
        let Ok(item) = reader.item() else {
            out.extend_from_slice(reader.rest());
            break;
        };
        let constructed = item.tag & 0x20 != 0 && depth < DEEPEST;
        let inside = if constructed { written(item.value, depth + 1) } else { item.value.to_vec() };
        out.extend_from_slice(&encode(item.tag, &[&inside]));
    }
    out
}

fn check_name(name: &Name<'_>) {
    assert!(name.matches(name) && name.below(name).is_none());
    let line = name.one_line();
    assert!(line.bytes().all(|byte| matches!(byte, b' '..=b'~')) && line.is_empty() == name.is_empty());
    let normal = normal_form(&line);
    assert_eq!(normal_form(&normal), normal);
    assert_eq!(normal_form(&line.to_ascii_uppercase()), normal);
    let again = Name::parse(&mut Reader::new(name.der())).expect("a name is one by itself");
    assert!(again.matches(name) && again.canonical() == name.canonical());
    let common: Vec<&[u8]> = name.common_names().collect();
    assert!(common.len() <= name.attributes().len());
    assert!(name.last_common_name().is_none_or(|last| common.last() == Some(&last)));
}

/// Signing policies and grid-mapfiles: no text is half understood, and a comment changes nothing.
pub fn gsi_files(data: &[u8]) {
    check_policy(data);
    check_gridmap(data);
}

fn check_policy(data: &[u8]) {
    let policy = match SigningPolicy::parse(data) {
        Ok(policy) => policy,
        Err(fault) => return assert!(fault.to_string().len() < 1000),
    };
    assert_eq!(SigningPolicy::parse(&[data, b"\n# a comment"].concat()), Ok(policy.clone()));
    let denying = [data, b"\naccess_id_ANYBODY neg_rights globus CA:sign"].concat();
    let denying = SigningPolicy::parse(&denying).expect("another entry");
    let text = String::from_utf8_lossy(data);
    for subject in text.split(['\'', '"', '\n']).chain(["", "/O=Grid/CN=x"]) {
        for authority in ["/O=Grid/CN=Test CA", subject] {
            let allowed = policy.allows(authority, subject);
            assert_eq!(policy.allows(&authority.to_ascii_uppercase(), &subject.to_ascii_lowercase()), allowed);
            assert!(!denying.allows(authority, subject), "denials win");
        }
    }
}

fn check_gridmap(data: &[u8]) {
    let map = GridMap::parse(data);
    let lines = data.split(|&byte| byte == b'\n').count();
    assert!(map.len() + map.faults().len() <= lines);
    assert!(map.faults().iter().all(|(line, _)| (1..=lines).contains(line)));
    assert_eq!(GridMap::parse(&[data, b"\n# a comment\n"].concat()), map);
    let text = String::from_utf8_lossy(data);
    for subject in text.split(['"', '\n', ' ', '\t']) {
        let accounts = map.accounts(subject);
        assert!(accounts.iter().all(|name| !name.is_empty() && !name.contains([',', ' ', '\n', '\0'])));
        assert_eq!(map.accounts(&subject.to_ascii_uppercase()), accounts);
    }
}

/// Attribute certificates: a server speaks for its own organization, in text that logs can show.
pub fn voms(data: &[u8]) {
    let Ok(list) = attributes::parse(data) else { return };
    assert!(attributes::parse(&[data, &[0]].concat()).is_err() && attributes::parse(&data[..data.len() - 1]).is_err());
    for one in list {
        check_name(&one.holder);
        check_name(&one.issuer);
        for fqan in &one.fqans {
            let below = fqan.strip_prefix('/').and_then(|rest| rest.strip_prefix(one.vo));
            assert!(below.is_some_and(|rest| rest.is_empty() || rest.starts_with('/')), "{fqan} of {}", one.vo);
            assert!(fqan.bytes().all(|byte| matches!(byte, b' '..=b'~')));
        }
        one.certificates.iter().for_each(|der| certificate(der));
    }
}
