//! Access tokens and the keys of their issuers.

use whimbrel_proto::rules::{Operation, PathRules};
use whimbrel_proto::token::discovery;
use whimbrel_proto::token::http::{Answer, AnswerReader, HttpsUrl};
use whimbrel_proto::token::judge::{Grant, Issuer, LEEWAY, Refusal, judge};
use whimbrel_proto::token::jwks::{KeySet, Material};
use whimbrel_proto::token::jwt::{Algorithm, Claims, Jwt};
use whimbrel_proto::token::scope::ScopeError;

use super::input::pieces;

const NOW: i64 = 1_800_000_000;

/// Five parts with NUL between them: header and claims, of which a token is made, a key set, a web server's answer, and a URL. The whole is
/// read as a token, too.
pub fn jwt(data: &[u8]) {
    read(data);
    let mut parts = data.split(|&byte| byte == 0);
    let mut next = || parts.next().unwrap_or_default();
    let (header, claims) = (next(), next());
    let token = [&base64url(header), &b"."[..], &base64url(claims), b".AAAA"].concat();
    read(&token);
    check_keys(next());
    check_answer(next());
    check_url(&String::from_utf8_lossy(next()));
}

fn read(token: &[u8]) {
    let jwt = match Jwt::parse(token) {
        Ok(jwt) => jwt,
        Err(error) => return assert!(!error.to_string().chars().any(char::is_control)),
    };
    assert!(Jwt::is_made_like_one(token), "no token is taken for a password");
    assert!([Algorithm::Rs256, Algorithm::Es256].contains(&jwt.algorithm()));
    let last = token.iter().rposition(|&byte| byte == b'.').expect("a token has dots");
    assert_eq!(jwt.clone().claims(|_, _| Err(())), Err(()), "who does not verify learns nothing");
    let claims = jwt.claims(|signed, signature| {
        assert_eq!(signed, &token[..last]);
        assert_eq!(base64url(signature), &token[last + 1..], "a token has one spelling");
        Ok::<_, ()>(())
    });
    let claims = claims.expect("it was verified");
    let jwt = Jwt::parse(token).expect("it was read before");
    assert_eq!(jwt.claimed_issuer(), claims.issuer.as_deref());
    assert!(jwt.key().is_none_or(|key| key.len() <= 1024));
    check_claims(&claims);
}

fn check_claims(claims: &Claims) {
    let texts = claims.others.iter().flat_map(|(name, text)| [name, text]);
    for text in texts.chain(&claims.issuer).chain(&claims.subject).chain(&claims.groups) {
        assert!(!text.chars().any(char::is_control), "nothing of it can forge a line of a log");
    }
    let issuer = Issuer {
        name: claims.issuer.clone().unwrap_or_default(),
        audiences: claims.audience.first().cloned().into_iter().collect(),
        any_audience: false,
        base: b"/vo".to_vec(),
        without_scopes: true,
    };
    for now in [claims.expires.map_or(NOW, |end| end.saturating_sub(1)), NOW] {
        match judge(claims, &issuer, now, LEEWAY) {
            Ok(grant) => check_grant(claims, &grant, now),
            Err(Refusal::Scope(ScopeError::NoPath(scope))) => assert!(!scope.contains(':')),
            Err(refusal) => assert!(!refusal.to_string().is_empty()),
        }
    }
    let stricter = [
        Issuer { without_scopes: false, ..issuer.clone() },
        Issuer { audiences: Vec::new(), ..issuer.clone() },
        Issuer { audiences: vec!["nobody".into()], any_audience: true, ..issuer.clone() },
    ];
    for strict in &stricter {
        match judge(claims, strict, NOW, LEEWAY) {
            Ok(grant) => check_grant(claims, &grant, NOW),
            Err(refusal) => assert!(!refusal.to_string().chars().any(|c| c.is_control())),
        }
    }
    let free = judge(claims, &issuer, NOW, LEEWAY).is_ok();
    assert!(free || stricter[..2].iter().all(|strict| judge(claims, strict, NOW, LEEWAY).is_err()));
    for place in discovery::places(&issuer.name) {
        let host = issuer.name.trim_start_matches("https://").to_ascii_lowercase();
        assert!(host.trim_start_matches('[').starts_with(place.host()) && place.path().contains("/.well-known/"));
    }
    let stranger = Issuer { name: format!("{}x", issuer.name), ..issuer };
    assert_eq!(judge(claims, &stranger, NOW, LEEWAY), Err(Refusal::Issuer));
}

fn check_grant(claims: &Claims, grant: &Grant, now: i64) {
    assert!(grant.until > now || grant.until == i64::MAX);
    assert_eq!(Some(&grant.subject), claims.subject.as_ref());
    let stated = claims.scopes.iter().filter(|scope| scope.starts_with("storage."));
    let pathless = stated.clone().find(|scope| !scope.contains(":/"));
    assert_eq!(pathless, None, "every scope of storage names a path");
    assert!(grant.paths.is_some() || stated.count() == 0);
    let Some(paths) = &grant.paths else { return };
    assert!(grant.groups.is_empty());
    for outside in ["/", "/v", "/vox", "/etc", "/vo/../etc", "vo/x"] {
        assert!(paths.at(outside.as_bytes()).is_empty(), "only the issuer's part: {outside}");
    }
    let wire = serde_json::to_string(paths).expect("rules can be written");
    assert_eq!(&serde_json::from_str::<PathRules>(&wire).expect("and read"), paths);
    assert!(!paths.clone().read_only().allows_tree(b"/vo", Operation::Delete));
}

fn check_keys(json: &[u8]) {
    let Ok(set) = KeySet::parse(json) else { return };
    for key in &set.keys {
        match &key.material {
            Material::Rsa { n, e } => {
                assert!((256..=1024).contains(&n.len()) && n[0] != 0 && e.len() <= 8);
                assert_eq!(key.algorithm(), Algorithm::Rs256);
            }
            Material::P256 { .. } => assert_eq!(key.algorithm(), Algorithm::Es256),
        }
        let found = set.candidates(key.algorithm(), key.kid.as_deref());
        assert!(found.map(|place| &set.keys[place]).any(|found| found == key));
    }
}

/// What a web server says: pieces read as the whole does, and no document is longer than it may be.
fn check_answer(wire: &[u8]) {
    const MOST: usize = 1 << 10;
    let mut whole = AnswerReader::new(MOST);
    let whole = whole.feed(wire).and_then(|_| whole.finish());
    let mut pieced = AnswerReader::new(MOST);
    let fed = pieces(wire).try_fold(false, |_, piece| pieced.feed(piece));
    assert_eq!(fed.and_then(|_| pieced.finish()), whole);
    match whole {
        Ok(Answer::Document(document)) => {
            assert!(document.len() <= MOST);
            if let Ok(place) = discovery::keys(&document, "https://iam.example.org") {
                assert_eq!(
                    HttpsUrl::parse(&format!("https://[::1]:{}{}", place.port(), place.path()))
                        .as_ref()
                        .map(HttpsUrl::path),
                    Some(place.path())
                );
            }
        }
        Ok(Answer::Moved(location)) => {
            let here = HttpsUrl::parse("https://iam.example.org/keys").expect("a place");
            if let Some(there) = here.redirected(&location) {
                assert_eq!((there.host(), there.port()), (here.host(), here.port()), "another host is another trust");
                let request = there.request();
                assert_eq!(request.split(|&byte| byte == b'\n').count(), 8, "no line is added to a request");
            }
        }
        Ok(Answer::Status(status)) => assert!((200..=599).contains(&status)),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

/// Requests have the lines that are ours, whatever they name.
fn check_url(text: &str) {
    let here = HttpsUrl::parse("https://[2001:db8::1]:8443").expect("a place");
    let lines = |request: &[u8]| request.iter().filter(|&&byte| byte == b'\n').count();
    if let Some(there) = here.at(text) {
        assert!(there.host() == here.host() && there.port() == here.port() && text.starts_with('/'));
        assert_eq!(lines(&there.request()), 7);
    }
    match here.post(text, b"{}") {
        Some(request) => {
            assert!(lines(&request) == 10 && request.ends_with(b"\r\n\r\n{}"));
        }
        None => assert!(text.is_empty() || text.contains(|c: char| !c.is_ascii_graphic())),
    }
    let Some(place) = HttpsUrl::parse(text) else { return };
    assert!(!place.host().is_empty() && place.port() > 0 && place.path().starts_with('/'));
    assert_eq!(lines(&place.request()), 7);
    // One at the limit of length has no room for the slash that it lacks.
    assert!(place.at(place.path()).is_none_or(|again| again == place));
    assert_eq!(place.redirected(text), Some(place.clone()).filter(|_| !text.starts_with('/')));
}

fn base64url(bytes: &[u8]) -> Vec<u8> {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let mut text = Vec::with_capacity(bytes.len() / 3 * 4 + 4);
    for group in bytes.chunks(3) {
        let bits = group.iter().chain([&0, &0]).take(3).fold(0, |bits, &byte| bits << 8 | u32::from(byte));
        let digits = [18, 12, 6, 0].map(|shift| DIGITS[(bits >> shift) as usize & 63]);
        text.extend_from_slice(&digits[..=group.len()]);
    }
    text
}
