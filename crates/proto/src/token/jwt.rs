//! Signed JSON web tokens in compact form (RFC 7515 §3.1, RFC 7519), for two algorithms only.

use std::collections::BTreeMap;

use base64ct::{Base64UrlUnpadded, Encoding};

use super::json::{Object, Value};

/// Longest token, bytes: what fits a password line before login.
pub const MAX_TOKEN: usize = 16 << 10;
/// Longest header once decoded, bytes.
const MAX_HEADER: usize = 4 << 10;
/// Longest name of a key, issuer or subject, bytes (the WLCG profile's subject has at most 255).
pub const MAX_NAME: usize = 1024;

/// How a token is signed; nothing else is accepted, least of all `none` and keyed hashes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Algorithm {
    /// RSA PKCS #1 1.5 with SHA-256 (RFC 7518 §3.3).
    Rs256,
    /// ECDSA on P-256 with SHA-256 (RFC 7518 §3.4).
    Es256,
}

impl Algorithm {
    /// The word in headers and key sets.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Rs256 => "RS256",
            Self::Es256 => "ES256",
        }
    }

    /// The algorithm of a word; case counts.
    pub fn of(word: &str) -> Option<Self> {
        [Self::Rs256, Self::Es256].into_iter().find(|algorithm| algorithm.word() == word)
    }
}

/// Why something is no token that could be judged.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum JwtError {
    /// Longer than [`MAX_TOKEN`], or a part of it too long.
    #[error("the token is too long")]
    TooLong,
    /// Not three parts of base64url without padding.
    #[error("a token is three parts in base64url with dots between them")]
    Form,
    /// A header or claims that are no JSON object, have a name twice, or are too large.
    #[error("the token's {0} cannot be read")]
    Json(&'static str),
    /// An algorithm other than RS256 and ES256.
    #[error("the token is signed by {0:?}; RS256 and ES256 are accepted")]
    Algorithm(String),
    /// A header that demands something of its reader (RFC 7515 §4.1.11).
    #[error("the token's header demands extensions (crit)")]
    Critical,
    /// A token of another purpose (RFC 8725 §3.11).
    #[error("{0:?} is no access token")]
    Type(String),
    /// A claim of another kind than the RFC says.
    #[error("the token's claim {0} cannot be read")]
    Claim(&'static str),
}

/// A token that nobody has verified yet.
#[derive(Debug, Clone)]
pub struct Jwt<'a> {
    algorithm: Algorithm,
    kid: Option<String>,
    signed: &'a [u8],
    signature: Vec<u8>,
    claims: Claims,
}

/// What a token says. Lists and texts are bounded by the token's own length.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Claims {
    /// Who made it.
    pub issuer: Option<String>,
    /// Whom it is about.
    pub subject: Option<String>,
    /// Whom it is for.
    pub audience: Vec<String>,
    /// First second at which it is over, since 1970.
    pub expires: Option<i64>,
    /// First second at which it is good, since 1970.
    pub not_before: Option<i64>,
    /// When it was made, seconds since 1970.
    pub issued: Option<i64>,
    /// Scopes, from `scope` (words with spaces between them, RFC 8693 §4.2; a list as some issuers write) or `scp`.
    pub scopes: Vec<String>,
    /// Version of the WLCG profile.
    pub wlcg: Option<String>,
    /// Version of the SciTokens profile.
    pub scitokens: Option<String>,
    /// `wlcg.groups`, or else `groups`.
    pub groups: Vec<String>,
    /// Every other claim that is a text.
    pub others: BTreeMap<String, String>,
}

impl<'a> Jwt<'a> {
    /// Takes a token apart.
    ///
    /// # Errors
    /// [`JwtError`]
    pub fn parse(token: &'a [u8]) -> Result<Self, JwtError> {
        if token.len() > MAX_TOKEN {
            return Err(JwtError::TooLong);
        }
        let mut dots = token.iter().enumerate().filter(|&(_, &byte)| byte == b'.').map(|(at, _)| at);
        let (Some(first), Some(second), None) = (dots.next(), dots.next(), dots.next()) else {
            return Err(JwtError::Form);
        };
        let header = decode(&token[..first])?;
        if header.len() > MAX_HEADER {
            return Err(JwtError::TooLong);
        }
        let (algorithm, kid) = header_of(&header)?;
        let payload = decode(&token[first + 1..second])?;
        let claims = Claims::of(Object::parse(&payload).ok_or(JwtError::Json("claims"))?)?;
        let signature = decode(&token[second + 1..])?;
        Ok(Self { algorithm, kid, signed: &token[..second], signature, claims })
    }

    /// Whether a text is made like a token, whoever made it and whatever is wrong with it: three parts, the first of which names an
    /// algorithm. No password is.
    pub fn is_made_like_one(text: &[u8]) -> bool {
        let mut parts = text.split(|&byte| byte == b'.');
        let (Some(header), Some(_), Some(_), None) = (parts.next(), parts.next(), parts.next(), parts.next()) else {
            return false;
        };
        // Base64 makes four characters of three bytes.
        let header =
            Some(header).filter(|header| header.len() <= MAX_HEADER * 2).and_then(|header| decode(header).ok());
        header.and_then(|header| Object::parse(&header)).is_some_and(|header| header.has("alg"))
    }

    /// How it is said to be signed.
    pub fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// Which of its issuer's keys is said to have signed it.
    pub fn key(&self) -> Option<&str> {
        self.kid.as_deref()
    }

    /// Who is said to have made it: only good for finding the keys to verify it with.
    pub fn claimed_issuer(&self) -> Option<&str> {
        self.claims.issuer.as_deref()
    }

    /// What it says, if `verify` says of the signed bytes and the signature that they belong together.
    ///
    /// # Errors
    /// Those of `verify`.
    pub fn claims<E>(self, verify: impl FnOnce(&[u8], &[u8]) -> Result<(), E>) -> Result<Claims, E> {
        verify(self.signed, &self.signature)?;
        Ok(self.claims)
    }
}

/// The last bits must be zero and padding is not allowed, so that a token has one spelling only.
fn decode(part: &[u8]) -> Result<Vec<u8>, JwtError> {
    let text = std::str::from_utf8(part).map_err(|_| JwtError::Form)?;
    Base64UrlUnpadded::decode_vec(text).map_err(|_| JwtError::Form)
}

fn header_of(json: &[u8]) -> Result<(Algorithm, Option<String>), JwtError> {
    let header = Object::parse(json).ok_or(JwtError::Json("header"))?;
    let word = header.text("alg").unwrap_or_default();
    let algorithm = Algorithm::of(word).ok_or_else(|| JwtError::Algorithm(shown(word)))?;
    if header.has("crit") {
        return Err(JwtError::Critical);
    }
    // Keys that a token brings itself (jwk, jku, x5c, x5u) prove nothing and are not looked at.
    let kid = match header.0.get("kid") {
        None => None,
        Some(Value::Text(kid)) if kid.len() <= MAX_NAME => Some(kid.clone()),
        Some(_) => return Err(JwtError::Json("header")),
    };
    match header.0.get("typ") {
        None => {}
        Some(Value::Text(kind)) if is_access_token(kind) => {}
        Some(Value::Text(kind)) => return Err(JwtError::Type(shown(kind))),
        Some(_) => return Err(JwtError::Json("header")),
    }
    Ok((algorithm, kid))
}

/// `JWT`, or `at+jwt` of RFC 9068 §2.1, as media types in any case.
fn is_access_token(kind: &str) -> bool {
    let kind = kind.to_ascii_lowercase();
    matches!(kind.strip_prefix("application/").unwrap_or(&kind), "jwt" | "at+jwt")
}

/// A stranger's word, short enough for a message.
fn shown(word: &str) -> String {
    word.chars().take(40).collect()
}

impl Claims {
    fn of(mut object: Object) -> Result<Self, JwtError> {
        let mut scopes = texts(&mut object, "scope")?;
        if scopes.is_empty() {
            scopes = texts(&mut object, "scp")?;
        } else {
            object.0.remove("scp");
        }
        let mut groups = list(&mut object, "wlcg.groups")?;
        if groups.is_empty() {
            groups = list(&mut object, "groups")?;
        }
        object.0.remove("groups");
        Ok(Self {
            issuer: name(&mut object, "iss")?,
            subject: name(&mut object, "sub")?,
            audience: texts_or_one(&mut object)?,
            expires: time(&mut object, "exp")?,
            not_before: time(&mut object, "nbf")?,
            issued: time(&mut object, "iat")?,
            wlcg: name(&mut object, "wlcg.ver")?,
            scitokens: scitokens(&mut object),
            scopes,
            groups,
            others: object.0.into_iter().filter_map(|(name, value)| plain(name, value)).collect(),
        })
    }
}

/// Other claims that are texts without control characters.
fn plain(name: String, value: Value) -> Option<(String, String)> {
    match value {
        Value::Text(text) if text.len() <= MAX_NAME && is_plain(&text) && is_plain(&name) => Some((name, text)),
        _ => None,
    }
}

/// Names and texts go to logs and mappings: no control characters.
fn is_plain(text: &str) -> bool {
    !text.chars().any(char::is_control)
}

fn name(object: &mut Object, claim: &'static str) -> Result<Option<String>, JwtError> {
    match object.0.remove(claim) {
        None => Ok(None),
        Some(Value::Text(text)) if !text.is_empty() && text.len() <= MAX_NAME && is_plain(&text) => Ok(Some(text)),
        Some(_) => Err(JwtError::Claim(claim)),
    }
}

fn time(object: &mut Object, claim: &'static str) -> Result<Option<i64>, JwtError> {
    match object.0.remove(claim) {
        None => Ok(None),
        Some(Value::Number(seconds)) => Ok(Some(seconds)),
        Some(_) => Err(JwtError::Claim(claim)),
    }
}

/// One audience may stand without a list (RFC 7519 §4.1.3).
fn texts_or_one(object: &mut Object) -> Result<Vec<String>, JwtError> {
    match object.0.remove("aud") {
        None => Ok(Vec::new()),
        Some(Value::Text(one)) => Ok(vec![one]),
        Some(Value::Texts(several)) => Ok(several),
        Some(_) => Err(JwtError::Claim("aud")),
    }
}

/// Words of a text, or a list.
fn texts(object: &mut Object, claim: &'static str) -> Result<Vec<String>, JwtError> {
    match object.0.remove(claim) {
        None => Ok(Vec::new()),
        Some(Value::Text(words)) => Ok(words.split(' ').filter(|word| !word.is_empty()).map(str::to_owned).collect()),
        Some(Value::Texts(list)) if list.iter().all(|word| !word.contains(' ')) => Ok(list),
        Some(_) => Err(JwtError::Claim(claim)),
    }
}

fn list(object: &mut Object, claim: &'static str) -> Result<Vec<String>, JwtError> {
    match object.0.remove(claim) {
        None => Ok(Vec::new()),
        Some(Value::Texts(list)) if list.iter().all(|text| is_plain(text)) => Ok(list),
        // Other issuers use `groups` as they like.
        Some(_) if claim == "groups" => Ok(Vec::new()),
        Some(_) => Err(JwtError::Claim(claim)),
    }
}

/// `ver` is everybody's name; of SciTokens it says so (`scitoken:2.0`, or `scitokens:2.0` of some issuers).
fn scitokens(object: &mut Object) -> Option<String> {
    let version = object.text("ver").filter(|version| version.starts_with("scitoken"))?.to_owned();
    object.0.remove("ver");
    Some(version)
}

#[cfg(test)]
#[path = "jwt_tests.rs"]
mod tests;
