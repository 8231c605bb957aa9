//! Where an issuer keeps its keys: OpenID Connect Discovery 1.0 §4, and RFC 8414 §3.

use super::http::HttpsUrl;
use super::json::Object;

/// Longest document, bytes.
pub const MAX_DOCUMENT: usize = 256 << 10;

/// Why an issuer's own description is not believed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DiscoveryError {
    /// Longer than [`MAX_DOCUMENT`], or no JSON object.
    #[error("the issuer's description cannot be read")]
    Form,
    /// It describes somebody else (RFC 8414 §3.3).
    #[error("the description found at the issuer's place is that of {0:?}")]
    Issuer(String),
    /// It names no place of keys that is reached over TLS.
    #[error("the issuer's description names no https place of its keys")]
    Keys,
}

/// Places where an issuer's description may be, in the order in which they are tried: none if the issuer is no `https` URL.
pub fn places(issuer: &str) -> Vec<HttpsUrl> {
    let bare = issuer.strip_suffix('/').unwrap_or(issuer);
    let Some(rest) = bare.strip_prefix("https://").filter(|rest| !rest.contains('?')) else { return Vec::new() };
    let (host, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let places = [
        format!("{bare}/.well-known/openid-configuration"),
        format!("https://{host}/.well-known/oauth-authorization-server{path}"),
    ];
    places.iter().filter_map(|place| HttpsUrl::parse(place)).collect()
}

/// Where the keys are, by the description that was found for `issuer`. They may be at another host: the issuer says so over TLS.
///
/// # Errors
/// [`DiscoveryError`]
pub fn keys(description: &[u8], issuer: &str) -> Result<HttpsUrl, DiscoveryError> {
    let short = description.len() <= MAX_DOCUMENT;
    let object = Some(description).filter(|_| short).and_then(Object::parse).ok_or(DiscoveryError::Form)?;
    let named = object.text("issuer").unwrap_or_default();
    if named != issuer {
        return Err(DiscoveryError::Issuer(named.chars().filter(|c| !c.is_control()).take(200).collect()));
    }
    object.text("jwks_uri").and_then(HttpsUrl::parse).ok_or(DiscoveryError::Keys)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptions_are_looked_for_in_two_places() {
        let found = |issuer: &str| -> Vec<String> { places(issuer).iter().map(|url| url.path().to_owned()).collect() };
        let oidc = "/.well-known/openid-configuration";
        let oauth = "/.well-known/oauth-authorization-server";
        assert_eq!(found("https://i"), [oidc, oauth]);
        assert_eq!(found("https://i/"), [oidc, oauth]);
        assert_eq!(found("https://i/realms/x/"), [format!("/realms/x{oidc}"), format!("{oauth}/realms/x")]);
        for bad in ["http://i", "i", "", "https://", "https://i?x", "https://u@i"] {
            assert_eq!(found(bad), [""; 0], "{bad}");
        }
    }

    #[test]
    fn an_issuer_describes_itself_and_nobody_else() {
        let read = |json: &str| keys(json.as_bytes(), "https://i/").map(|url| url.path().to_owned());
        let good =
            r#"{"issuer":"https://i/","jwks_uri":"https://keys.i/jwk","scopes_supported":["openid"],"x":{"y":1}}"#;
        assert_eq!(read(good).as_deref(), Ok("/jwk"));
        assert_eq!(read(&good.replace("//i/", "//i")), Err(DiscoveryError::Issuer("https://i".into())));
        assert_eq!(read("{}"), Err(DiscoveryError::Issuer(String::new())));
        for bad in [
            r#"{"issuer":"https://i/"}"#,
            &good.replace("https://keys", "http://keys"),
            &good.replace("https://keys.i/jwk", "file:///x"),
        ] {
            assert_eq!(read(bad), Err(DiscoveryError::Keys), "{bad}");
        }
        for bad in ["", "[]", &good.replace("\"x\"", "\"issuer\"")] {
            assert_eq!(read(bad), Err(DiscoveryError::Form), "{bad}");
        }
        assert_eq!(keys(&vec![b' '; MAX_DOCUMENT + 1], "x"), Err(DiscoveryError::Form));
    }
}
