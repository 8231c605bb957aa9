use super::*;

fn token(header: &str, claims: &str) -> String {
    let part = |text: &str| Base64UrlUnpadded::encode_string(text.as_bytes());
    format!("{}.{}.{}", part(header), part(claims), part("signature"))
}

const HEADER: &str = r#"{"alg":"RS256","kid":"k1","typ":"JWT"}"#;

fn parsed(header: &str, claims: &str) -> Result<Claims, JwtError> {
    let token = token(header, claims);
    Jwt::parse(token.as_bytes()).map(|jwt| jwt.claims(|_, _| Ok::<_, ()>(())).unwrap())
}

fn read(claims: &str) -> Result<Claims, JwtError> {
    parsed(HEADER, claims)
}

fn strings(list: &[&str]) -> Vec<String> {
    list.iter().map(|&text| text.to_owned()).collect()
}

#[test]
fn a_token_is_taken_apart() {
    let claims = r#"{"iss":"https://i","sub":"alice","aud":["a","b"],"exp":20,"nbf":10,"iat":9.7,"jti":"x",
        "scope":"openid  storage.read:/","wlcg.ver":"1.0","wlcg.groups":["/vo"],"groups":["no"],"email":"a@b","cnf":{"x":1}}"#;
    let token = token(HEADER, claims);
    let jwt = Jwt::parse(token.as_bytes()).unwrap();
    assert_eq!((jwt.algorithm(), jwt.key(), jwt.claimed_issuer()), (Algorithm::Rs256, Some("k1"), Some("https://i")));
    let claims = jwt.claims(|signed, signature| {
        assert_eq!(signed, &token.as_bytes()[..token.rfind('.').unwrap()]);
        assert_eq!(signature, b"signature");
        Ok::<_, ()>(())
    });
    let other = |name: &str, text: &str| (name.to_owned(), text.to_owned());
    let expected = Claims {
        issuer: Some("https://i".into()),
        subject: Some("alice".into()),
        audience: strings(&["a", "b"]),
        expires: Some(20),
        not_before: Some(10),
        issued: Some(9),
        scopes: strings(&["openid", "storage.read:/"]),
        wlcg: Some("1.0".into()),
        scitokens: None,
        groups: strings(&["/vo"]),
        others: [other("email", "a@b"), other("jti", "x")].into(),
    };
    assert_eq!(claims, Ok(expected));
}

#[test]
fn a_token_says_nothing_to_who_does_not_verify_it() {
    let token = token(HEADER, "{}");
    assert_eq!(Jwt::parse(token.as_bytes()).unwrap().claims(|_, _| Err("forged")), Err("forged"));
}

#[test]
fn only_two_algorithms_are_accepted() {
    let of = |algorithm: &str| parsed(&format!("{{\"alg\":\"{algorithm}\"}}"), "{}");
    assert!(of("RS256").is_ok() && of("ES256").is_ok());
    for bad in
        ["none", "None", "NONE", "", "HS256", "HS384", "RS384", "PS256", "ES384", "ES256K", "EdDSA", "rs256", " RS256"]
    {
        assert_eq!(of(bad), Err(JwtError::Algorithm(bad.into())));
    }
    for header in ["{}", "{\"alg\":null}", "{\"alg\":[\"RS256\"]}", "{\"ALG\":\"RS256\"}"] {
        assert_eq!(parsed(header, "{}"), Err(JwtError::Algorithm(String::new())), "{header}");
    }
    let long = of(&"x".repeat(1000)).unwrap_err();
    assert_eq!(long, JwtError::Algorithm("x".repeat(40)));
}

#[test]
fn headers_are_read_strictly() {
    let with = |more: &str| parsed(&format!("{{\"alg\":\"ES256\",{more}}}"), "{}");
    for fine in [
        r#""typ":"jwt""#,
        r#""typ":"at+jwt""#,
        r#""typ":"application/AT+JWT""#,
        r#""kid":"../../etc/passwd""#,
        r#""jku":"https://evil","jwk":{"kty":"oct"},"x5c":["MII"]"#,
    ] {
        assert!(with(fine).is_ok(), "{fine}");
    }
    assert_eq!(with(r#""crit":["b64"],"b64":false"#), Err(JwtError::Critical));
    assert_eq!(with(r#""crit":null"#), Err(JwtError::Critical));
    assert_eq!(with(r#""typ":"logout+jwt""#), Err(JwtError::Type("logout+jwt".into())));
    let long = format!("\"kid\":\"{}\"", "k".repeat(MAX_NAME + 1));
    for bad in [r#""alg":"ES256""#, r#""kid":1"#, r#""kid":"a","kid":"a""#, r#""typ":1"#, long.as_str()] {
        assert_eq!(with(bad), Err(JwtError::Json("header")), "{bad}");
    }
    assert_eq!(with(&format!("\"a\":\"{}\"", "k".repeat(MAX_HEADER))), Err(JwtError::TooLong));
}

#[test]
fn a_token_has_one_spelling() {
    let good = token(HEADER, "{}");
    assert!(Jwt::parse(good.as_bytes()).is_ok());
    let parts: Vec<&str> = good.split('.').collect();
    let joined = |a: &str, b: &str, c: &str| format!("{a}.{b}.{c}");
    for bad in [
        String::new(),
        "..".into(),
        format!("{good}."),
        format!("{good}.x"),
        parts[..2].join("."),
        format!(" {good}"),
        format!("{good}\n"),
        joined(parts[0], parts[1], &format!("{}=", parts[2])),
        joined(parts[0], "e30=", parts[2]),
        joined(parts[0], "e31", parts[2]),
        joined(parts[0], "e3+", parts[2]),
        joined(parts[0], "e3\u{e9}", parts[2]),
    ] {
        assert!(matches!(Jwt::parse(bad.as_bytes()), Err(JwtError::Form | JwtError::Json(_))), "{bad}");
    }
    assert_eq!(Jwt::parse(b"e30.\xff.").map(|_| ()), Err(JwtError::Algorithm(String::new())));
    assert_eq!(Jwt::parse(&vec![b'a'; MAX_TOKEN + 1]).map(|_| ()), Err(JwtError::TooLong));
    let dots = vec![b'.'; MAX_TOKEN];
    assert_eq!(Jwt::parse(&dots).map(|_| ()), Err(JwtError::Form));
}

#[test]
fn claims_of_a_wrong_kind_are_refused() {
    for (claims, claim) in [
        (r#"{"iss":1}"#, "iss"),
        (r#"{"iss":""}"#, "iss"),
        (r#"{"iss":"a\nb"}"#, "iss"),
        (r#"{"sub":["a"]}"#, "sub"),
        (r#"{"sub":"a\u0000"}"#, "sub"),
        (r#"{"aud":1}"#, "aud"),
        (r#"{"aud":["a",1]}"#, "aud"),
        (r#"{"exp":"20"}"#, "exp"),
        (r#"{"nbf":null}"#, "nbf"),
        (r#"{"iat":[]}"#, "iat"),
        (r#"{"scope":1}"#, "scope"),
        (r#"{"scope":["a b"]}"#, "scope"),
        (r#"{"scp":{}}"#, "scp"),
        (r#"{"wlcg.ver":1.0}"#, "wlcg.ver"),
        (r#"{"wlcg.groups":"/a"}"#, "wlcg.groups"),
        (r#"{"wlcg.groups":["/a\u001b"]}"#, "wlcg.groups"),
    ] {
        assert_eq!(read(claims), Err(JwtError::Claim(claim)), "{claims}");
    }
    for bad in [r#"{"sub":"a","sub":"b"}"#, r#"{"exp":1,"e\u0078p":9}"#, "[]", "", "{\"exp\":1e999}"] {
        assert_eq!(read(bad), Err(JwtError::Json("claims")), "{bad}");
    }
}

#[test]
fn scopes_groups_and_audiences_come_in_two_spellings() {
    assert_eq!(read(r#"{"scope":["a","b"]}"#).unwrap().scopes, strings(&["a", "b"]));
    assert_eq!(read(r#"{"scp":["a","b"]}"#).unwrap().scopes, strings(&["a", "b"]));
    assert_eq!(read(r#"{"scp":"a b"}"#).unwrap().scopes, strings(&["a", "b"]));
    let both = read(r#"{"scope":"a","scp":"b"}"#).unwrap();
    assert_eq!((both.scopes, both.others.len()), (strings(&["a"]), 0));
    assert_eq!(read(r#"{"groups":["/a"]}"#).unwrap().groups, strings(&["/a"]));
    assert!(read(r#"{"groups":"admins"}"#).unwrap().groups.is_empty());
    assert_eq!(read(r#"{"aud":"one two"}"#).unwrap().audience, strings(&["one two"]));
    let scitoken = read(r#"{"ver":"scitoken:2.0"}"#).unwrap();
    assert_eq!((scitoken.scitokens.as_deref(), scitoken.others.len()), (Some("scitoken:2.0"), 0));
    let other = read(r#"{"ver":"1.0","bad\n":"x","long":"y\t"}"#).unwrap();
    assert_eq!((other.scitokens, other.others.len()), (None, 1));
}

#[test]
fn tokens_are_told_from_passwords_whatever_is_wrong_with_them() {
    for header in [HEADER, r#"{"alg":"none"}"#, r#"{"alg":1,"crit":[]}"#] {
        assert!(Jwt::is_made_like_one(token(header, "nonsense").as_bytes()), "{header}");
    }
    let part = Base64UrlUnpadded::encode_string(HEADER.as_bytes());
    assert!(Jwt::is_made_like_one(format!("{part}..").as_bytes()));
    let bare = token("{}", "{}");
    for password in ["", "secret", "a.b.c", "..", &part, &format!("{part}."), &format!("{part}.a.b.c"), &bare] {
        assert!(!Jwt::is_made_like_one(password.as_bytes()), "{password}");
    }
}
