use std::thread;

use openssl::ec::{EcGroup, EcKey};
use openssl::nid::Nid;
use openssl::pkey::{PKey, Private};
use openssl::sha::sha256;
use openssl::x509::X509;
use tempfile::TempDir;

use super::*;

fn host(name: &str) -> HostName {
    HostName::new(name, 2811).unwrap()
}

fn key(byte: u8) -> Fingerprint {
    Fingerprint([byte; 32])
}

fn pins() -> (TempDir, Pins) {
    let folder = tempfile::tempdir().unwrap();
    let pins = Pins::new(folder.path().join("config/known_hosts"));
    (folder, pins)
}

fn written(pins: &Pins) -> String {
    fs::read_to_string(pins.path()).unwrap()
}

fn holding(text: &str) -> (TempDir, Pins) {
    let (folder, pins) = pins();
    fs::create_dir(pins.path().parent().unwrap()).unwrap();
    fs::write(pins.path(), text).unwrap();
    fs::set_permissions(pins.path(), Permissions::from_mode(0o644)).unwrap();
    (folder, pins)
}

#[test]
fn a_host_is_remembered_at_the_first_visit_and_compared_at_later_ones() {
    let (_folder, pins) = pins();
    let dtn = host("dtn.example.org");
    assert_eq!(pins.check(&dtn, &key(1)), Ok(PinVerdict::First));
    assert!(!pins.path().exists(), "looking leaves nothing behind");
    assert_eq!(pins.remember(&dtn, &key(1)), Ok(PinVerdict::First));
    assert_eq!(pins.check(&dtn, &key(1)), Ok(PinVerdict::Same));
    let changed = PinVerdict::Changed { known: key(1), line: 1 };
    assert_eq!(pins.check(&dtn, &key(2)), Ok(changed.clone()));
    assert_eq!(pins.remember(&dtn, &key(2)), Ok(changed), "and nothing is written");
    assert_eq!(written(&pins), format!("dtn.example.org:2811 sha256:{}\n", "01".repeat(32)));
    let other_port = HostName::new("dtn.example.org", 21).unwrap();
    assert_eq!(pins.check(&other_port, &key(2)), Ok(PinVerdict::First));
    let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o777;
    assert_eq!((mode(pins.path()), mode(pins.path().parent().unwrap())), (0o600, 0o700));
}

#[test]
fn hosts_are_named_in_one_way() {
    let name = |host: &str| HostName::new(host, 2811).map(|name| name.to_string());
    assert_eq!(name("DTN.Example.org.").as_deref(), Some("dtn.example.org:2811"));
    assert_eq!(name("2001:DB8::1").as_deref(), Some("[2001:db8::1]:2811"));
    assert_eq!(name("[2001:db8::1]").as_deref(), Some("[2001:db8::1]:2811"));
    for bad in ["", "a b", "a\nb", "#a", "[a", "u@h", "h/x", "[]", &"x".repeat(256)] {
        assert_eq!(name(bad), None, "{bad:?}");
    }
}

#[test]
fn fingerprints_are_those_of_the_key() {
    let text = key(0xab).to_string();
    assert_eq!(text, format!("sha256:{}", "ab".repeat(32)));
    assert_eq!(Fingerprint::parse(&text), Some(key(0xab)));
    assert_eq!(Fingerprint::parse(&text.to_uppercase().replace("SHA256", "sha256")), Some(key(0xab)));
    for bad in [
        "",
        "sha256:",
        &text[..text.len() - 1],
        &format!("{text}0"),
        &text.replace("sha256", "sha1"),
        &text.replace('a', "+"),
    ] {
        assert_eq!(Fingerprint::parse(bad), None, "{bad}");
    }
    let (pair, certificate) = self_made();
    let found = Fingerprint::of(&certificate).unwrap();
    assert_eq!(found, Fingerprint(sha256(&pair.public_key_to_der().unwrap())));
}

/// A key with a certificate that nobody vouches for, good until 2001-09-09 01:46:40.
fn self_made() -> (PKey<Private>, X509) {
    let group = EcGroup::from_curve_name(Nid::X9_62_PRIME256V1).unwrap();
    let pair = PKey::from_ec_key(EcKey::generate(&group).unwrap()).unwrap();
    let mut builder = X509::builder().unwrap();
    builder.set_pubkey(&pair).unwrap();
    builder.set_not_before(&Asn1Time::from_unix(0).unwrap()).unwrap();
    builder.set_not_after(&Asn1Time::from_unix(1_000_000_000).unwrap()).unwrap();
    builder.sign(&pair, openssl::hash::MessageDigest::sha256()).unwrap();
    (pair, builder.build())
}

#[test]
fn a_judge_believes_the_pinned_key_and_writes_nothing() {
    let (_folder, pins) = pins();
    let dtn = host("dtn");
    let ((_, mine), (_, theirs)) = (self_made(), self_made());
    let (key, other) = (Fingerprint::of(&mine).unwrap(), Fingerprint::of(&theirs).unwrap());
    let strict = PinJudge::new(pins.clone(), dtn.clone(), false);
    assert_eq!(strict.found(), None);
    let unknown = strict.judge(&mine, &[]).unwrap_err();
    assert_eq!((unknown.code, unknown.subject.as_str()), (FaultCode::PeerIdentity, "dtn:2811"));
    assert!(unknown.detail.contains(&key.to_string()));
    let lenient = PinJudge::new(pins.clone(), dtn.clone(), true);
    let peer = lenient.judge(&mine, &[&theirs]).unwrap();
    assert_eq!((peer.subject.as_str(), peer.chain.len(), peer.until.secs), ("pinned dtn:2811", 1, 1_000_000_000));
    assert_eq!(lenient.found(), Some((key, PinVerdict::First)));
    assert!(!pins.path().exists(), "the key is not proven before the handshake is over");
    pins.remember(&dtn, &key).unwrap();
    assert!(strict.judge(&mine, &[]).is_ok());
    let changed = lenient.judge(&theirs, &[]).unwrap_err();
    assert_eq!(changed.code, FaultCode::PeerIdentity);
    assert!(changed.detail.contains(&key.to_string()) && changed.detail.contains(&other.to_string()));
    assert_eq!(lenient.found(), Some((other, PinVerdict::Changed { known: key, line: 1 })));
}

#[test]
fn what_is_not_understood_is_kept() {
    let lines =
        "# by hand\n\nother.example.org:22 ssh-ed25519 AAAA\n  DTN.example.org:2811\tsha256:KEY  old host\nlast:1 x";
    let (_folder, pins) = holding(&lines.replace("KEY", &"01".repeat(32)));
    let dtn = host("dtn.example.org");
    assert_eq!(pins.check(&dtn, &key(1)), Ok(PinVerdict::Same));
    assert_eq!(pins.check(&dtn, &key(2)), Ok(PinVerdict::Changed { known: key(1), line: 4 }));
    let before = written(&pins);
    assert_eq!(pins.remember(&host("new"), &key(3)), Ok(PinVerdict::First));
    assert_eq!(written(&pins), format!("{before}\nnew:2811 {}\n", key(3)));
    pins.replace(&dtn, &key(2)).unwrap();
    assert_eq!(pins.check(&dtn, &key(2)), Ok(PinVerdict::Same));
    let kept = format!(
        "# by hand\n\nother.example.org:22 ssh-ed25519 AAAA\nlast:1 x\nnew:2811 {}\n{dtn} {}\n",
        key(3),
        key(2)
    );
    assert_eq!(written(&pins), kept);
    assert_eq!(fs::read_dir(pins.path().parent().unwrap()).unwrap().count(), 1, "nothing else is left");
    assert_eq!(fs::metadata(pins.path()).unwrap().mode() & 0o777, 0o644);
}

#[test]
fn a_host_may_have_several_keys() {
    let dtn = host("dtn");
    let (_folder, pins) = holding(&format!("{dtn} {}\n{dtn} {}\n", key(1), key(2)));
    assert_eq!(pins.check(&dtn, &key(1)), Ok(PinVerdict::Same));
    assert_eq!(pins.check(&dtn, &key(2)), Ok(PinVerdict::Same));
    assert_eq!(pins.check(&dtn, &key(3)), Ok(PinVerdict::Changed { known: key(2), line: 2 }));
    pins.replace(&dtn, &key(3)).unwrap();
    assert_eq!(written(&pins), format!("{dtn} {}\n", key(3)));
}

#[test]
fn a_host_that_authorities_vouch_for_is_remembered_without_a_key() {
    let (_folder, pins) = pins();
    let dtn = host("dtn");
    assert_eq!(pins.knows(&dtn), Ok(false));
    assert_eq!(pins.remember_vouched(&dtn), Ok(PinVerdict::First));
    assert_eq!(written(&pins), "dtn:2811 vouched\n");
    let vouched = PinVerdict::Vouched { line: 1 };
    assert_eq!(pins.remember_vouched(&dtn), Ok(vouched.clone()), "once is enough");
    assert_eq!(pins.remember(&dtn, &key(1)), Ok(vouched.clone()), "no key is taken for that of a first visit");
    assert_eq!((written(&pins).lines().count(), pins.knows(&dtn)), (1, Ok(true)));
    let (_, stranger) = self_made();
    let refused = PinJudge::new(pins.clone(), dtn.clone(), true).judge(&stranger, &[]).unwrap_err();
    assert_eq!(refused.code, FaultCode::PeerIdentity);
    assert!(refused.detail.contains("remove") && refused.detail.contains("line 1"), "{}", refused.detail);
    fs::write(pins.path(), "").unwrap();
    assert_eq!(pins.knows(&dtn), Ok(false), "a line that was removed counts no more");
    pins.replace(&dtn, &key(1)).unwrap();
    let known = PinVerdict::Changed { known: key(1), line: 1 };
    assert_eq!(pins.remember_vouched(&dtn), Ok(PinVerdict::Changed { known: key(1), line: 1 }), "nothing is added");
    fs::write(pins.path(), format!("{dtn} {}\n{dtn} vouched  by hand\n", key(1))).unwrap();
    assert_eq!(pins.check(&dtn, &key(1)), Ok(PinVerdict::Same));
    assert_eq!(pins.check(&dtn, &key(2)), Ok(known), "a key says more");
}

#[test]
fn a_damaged_line_is_no_first_visit() {
    for damaged in ["dtn:2811", "dtn:2811 vouched-for", "dtn:2811 sha256:12", "dtn:2811 md5:1", "dtn:2811 \u{fffd}"] {
        let (_folder, pins) = holding(&format!("# one\n{damaged}\n"));
        let fault = pins.remember(&host("dtn"), &key(1)).unwrap_err();
        assert_eq!(fault.code, FaultCode::InvalidArgument);
        assert!(fault.detail.starts_with("line 2 about dtn:2811"), "{fault}");
        assert!(fault.subject.ends_with("known_hosts"));
        assert_eq!(pins.check(&host("other"), &key(1)), Ok(PinVerdict::First));
    }
}

#[test]
fn a_file_that_everybody_may_write_is_not_believed() {
    let dtn = host("dtn");
    let (_folder, pins) = holding(&format!("{dtn} {}\n", key(1)));
    fs::set_permissions(pins.path(), Permissions::from_mode(0o666)).unwrap();
    assert!(pins.check(&dtn, &key(1)).unwrap_err().detail.contains("everybody may write it"));
    let (_folder, pins) = holding("");
    fs::remove_file(pins.path()).unwrap();
    fs::create_dir(pins.path()).unwrap();
    assert!(pins.check(&dtn, &key(1)).is_err() && pins.remember(&dtn, &key(1)).is_err());
    let (_folder, pins) = holding("");
    File::options().write(true).open(pins.path()).unwrap().set_len(MAX_FILE + 1).unwrap();
    assert!(pins.check(&dtn, &key(1)).unwrap_err().detail.contains("16 MiB"));
}

#[test]
fn writers_at_the_same_time_lose_nothing_and_agree_on_one_key() {
    let (_folder, pins) = pins();
    thread::scope(|scope| {
        for writer in 0..8_u8 {
            let pins = &pins;
            scope.spawn(move || {
                for round in 0..10 {
                    let own = host(&format!("w{writer}-{round}"));
                    assert_eq!(pins.remember(&own, &key(writer)), Ok(PinVerdict::First));
                    let shared = host(&format!("shared-{round}"));
                    pins.remember(&shared, &key(writer)).unwrap();
                    if round % 3 == 0 {
                        pins.replace(&own, &key(writer + 100)).unwrap();
                    }
                }
            });
        }
    });
    let text = written(&pins);
    assert_eq!(text.lines().count(), 8 * 10 + 10);
    for writer in 0..8 {
        for round in 0..10 {
            let expected = if round % 3 == 0 { key(writer + 100) } else { key(writer) };
            assert_eq!(pins.check(&host(&format!("w{writer}-{round}")), &expected), Ok(PinVerdict::Same));
        }
    }
    assert_eq!(text.lines().filter(|line| line.starts_with("shared-")).count(), 10);
}
