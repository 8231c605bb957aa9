use super::*;

fn numbers(bytes: &[u8]) -> String {
    Base64UrlUnpadded::encode_string(bytes)
}

/// A modulus of so many bits, odd.
fn modulus(bits: usize) -> String {
    let mut bytes = vec![0xff; bits.div_ceil(8)];
    bytes[0] >>= bytes.len() * 8 - bits;
    numbers(&bytes)
}

fn rsa_key(more: &str) -> String {
    format!("{{\"kty\":\"RSA\",\"n\":\"{}\",\"e\":\"AQAB\"{more}}}", modulus(2048))
}

fn ec_key(more: &str) -> String {
    format!(
        "{{\"kty\":\"EC\",\"crv\":\"P-256\",\"x\":\"{}\",\"y\":\"{}\"{more}}}",
        numbers(&[1; 32]),
        numbers(&[2; 32])
    )
}

fn set(keys: &[String]) -> KeySet {
    KeySet::parse(format!("{{\"keys\":[{}]}}", keys.join(",")).as_bytes()).unwrap()
}

fn used(key: &str) -> bool {
    let set = set(&[key.to_owned()]);
    assert_eq!(set.keys.len() + set.passed_over, 1);
    set.passed_over == 0
}

#[test]
fn keys_are_found_by_algorithm_and_name() {
    let set = set(&[
        rsa_key(r#","kid":"a","use":"sig","alg":"RS256""#),
        ec_key(r#","kid":"a","key_ops":["sign","verify"]"#),
        "{\"kty\":\"oct\",\"k\":\"AAAA\"}".into(),
        rsa_key(r#","kid":"b","x5c":["MIIC"],"x5t":"y","other":{"z":[]}"#),
        ec_key(""),
    ]);
    assert_eq!(set.passed_over, 1);
    let found = |algorithm, kid| set.candidates(algorithm, kid).collect::<Vec<_>>();
    assert_eq!(found(Algorithm::Rs256, Some("a")), [0]);
    assert_eq!(found(Algorithm::Es256, Some("a")), [1]);
    assert_eq!(found(Algorithm::Rs256, None), [0, 2]);
    assert_eq!(found(Algorithm::Es256, None), [1, 3]);
    assert_eq!(found(Algorithm::Es256, Some("b")), [0; 0]);
    assert_eq!(found(Algorithm::Rs256, Some("")), [0; 0]);
    assert_eq!(set.keys[0].material, Material::Rsa { n: vec![0xff; 256], e: vec![1, 0, 1] });
    assert_eq!(set.keys[1].material, Material::P256 { x: [1; 32], y: [2; 32] });
}

#[test]
fn keys_for_something_else_are_passed_over() {
    for other in [
        rsa_key(r#","use":"enc""#),
        rsa_key(r#","use":1"#),
        rsa_key(r#","alg":"PS256""#),
        rsa_key(r#","alg":"ES256""#),
        rsa_key(r#","alg":"HS256""#),
        rsa_key(r#","alg":1"#),
        rsa_key(r#","key_ops":["encrypt"]"#),
        rsa_key(r#","key_ops":"verify""#),
        rsa_key(r#","kid":1"#),
        ec_key(r#","alg":"RS256""#),
        r#"{"kty":"OKP","crv":"Ed25519","x":"AAAA"}"#.into(),
        ec_key("").replace("P-256", "P-384"),
        ec_key("").replace("EC", "RSA"),
        r#"{"n":"AAAA"}"#.into(),
        r#"{}"#.into(),
    ] {
        assert!(!used(&other), "{other}");
    }
}

#[test]
fn weak_and_damaged_numbers_are_passed_over() {
    let rsa = |n: &str, e: &str| used(&format!("{{\"kty\":\"RSA\",\"n\":\"{n}\",\"e\":\"{e}\"}}"));
    let e = numbers(&[1, 0, 1]);
    assert!(rsa(&modulus(2048), &e) && rsa(&modulus(8192), &e) && rsa(&modulus(2049), &numbers(&[3])));
    let padded = numbers(&[&[0][..], &[0xff; 256]].concat());
    assert!(rsa(&padded, &e), "a leading zero is forgiven");
    for bits in [512, 1024, 2047, 8193] {
        assert!(!rsa(&modulus(bits), &e), "{bits}");
    }
    let even = numbers(&[0xfe; 256]);
    assert!(!rsa(&even, &e) && !rsa("", &e) && !rsa("AAAA", &e) && !rsa("====", &e));
    for e in [&[][..], &[0], &[1], &[2], &[0, 1], &[3; 9]] {
        assert!(!rsa(&modulus(2048), &numbers(e)), "{e:?}");
    }
    let short = ec_key("").replace(&numbers(&[1; 32]), &numbers(&[1; 31]));
    assert!(!used(&short));
}

#[test]
fn what_is_no_key_set_is_refused() {
    for bad in [
        "",
        "[]",
        "{}",
        "{\"keys\":{}}",
        "{\"keys\":[1]}",
        "{\"keys\":[],\"keys\":[]}",
        "{\"keys\":[{\"a\":1,\"a\":1}]}",
    ] {
        assert_eq!(KeySet::parse(bad.as_bytes()), Err(JwksError::Form), "{bad}");
    }
    assert_eq!(KeySet::parse(&vec![b' '; MAX_SET + 1]), Err(JwksError::TooLarge));
    let many = vec!["{}"; MAX_KEYS + 1].join(",");
    assert_eq!(KeySet::parse(format!("{{\"keys\":[{many}]}}").as_bytes()), Err(JwksError::TooLarge));
    assert_eq!(KeySet::parse(b"{\"keys\":[],\"more\":[[[]]]}"), Ok(KeySet::default()));
}
