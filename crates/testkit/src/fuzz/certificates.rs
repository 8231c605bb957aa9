//! Certificates and the files around them.

use whimbrel_proto::x509::der::DerError;
use whimbrel_proto::x509::gridmap::GridMap;
use whimbrel_proto::x509::name::normal_form;
use whimbrel_proto::x509::policy::SigningPolicy;
use whimbrel_proto::x509::{Certificate, Kind, Name, voms as attributes};

/// Certificates: what is read is all that is there, and names keep to their rules.
pub fn certificate(data: &[u8]) {
    let Ok(certificate) = Certificate::parse(data) else { return };
    assert_eq!(certificate.der, data);
    assert_eq!(Certificate::parse(&[data, &[0]].concat()).err(), Some(DerError::Trailing));
    assert!(Certificate::parse(&data[..data.len() - 1]).is_err(), "a certificate without its end");
    assert!((1..=3).contains(&certificate.version) && !certificate.serial.is_empty());
    check_name(&certificate.subject);
    check_name(&certificate.issuer);
    let (subject, issuer) = (&certificate.subject, &certificate.issuer);
    assert_eq!(subject.matches(issuer), issuer.matches(subject));
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
    if let Some(names) = &certificate.extensions.alt_names {
        assert!(names.dns.iter().chain(&names.mail).all(|name| !name.is_empty() && !name.contains('\0')));
    }
}

fn check_name(name: &Name<'_>) {
    assert!(name.matches(name) && name.below(name).is_none());
    let line = name.one_line();
    assert!(line.bytes().all(|byte| matches!(byte, b' '..=b'~')) && line.is_empty() == name.is_empty());
    let normal = normal_form(&line);
    assert_eq!(normal_form(&normal), normal);
    assert_eq!(normal_form(&line.to_ascii_uppercase()), normal);
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
