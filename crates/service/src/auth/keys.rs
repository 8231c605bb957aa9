//! The issuer's keys: made here, kept sealed, shown in public, replaced in time; and the tokens that they sign.

use std::sync::{Arc, RwLock};

use base64ct::{Base64UrlUnpadded, Encoding};
use openssl::bn::{BigNum, BigNumContext};
use openssl::ec::{EcGroup, EcKey};
use openssl::ecdsa::EcdsaSig;
use openssl::error::ErrorStack;
use openssl::hash::MessageDigest;
use openssl::nid::Nid;
use openssl::pkey::{PKey, Private};
use openssl::rsa::Rsa;
use openssl::sign::Signer;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use uuid::Uuid;
use whimbrel_engine::listing::Timestamp;

use super::secrets::random_id;
use crate::Service;
use crate::http::ApiError;
use crate::store::{Batch, Record, StoreError};

/// After so many seconds a key signs no more and another takes its place: 90 days.
const SIGNS: i64 = 90 * 24 * 3600;
/// After so many more seconds it is not shown any more: longer than what it signed is good, and than who knows the keys keeps them.
const SHOWN: i64 = 3 * 24 * 3600;
/// Life of an id token, seconds.
const ID_TOKEN: i64 = 3600;

/// What a key signs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Algorithm {
    /// RSA with SHA-512: id tokens, as the public clients verify them.
    RS512,
    /// P-256 with SHA-256: tokens for DTNs, small and quick.
    ES256,
}

/// A key that signs, or did.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SigningKey {
    /// Its name in tokens.
    pub kid: String,
    /// What it signs.
    pub algorithm: Algorithm,
    /// PEM of the private key, sealed by the store.
    pub sealed: Vec<u8>,
    /// The public key as a JWK (RFC 7517).
    pub public: Value,
    /// When it was made.
    pub made: Timestamp,
}

impl Record for SigningKey {
    const KIND: &'static str = "signing_key";

    fn id(&self) -> String {
        self.kid.clone()
    }

    /// Replicas that miss a key at the same time make one between them: a key that others do not show yet signs nothing.
    fn unique_keys(&self) -> Vec<(&'static str, String)> {
        vec![("term", format!("{:?} {}", self.algorithm, self.made.secs.div_euclid(SIGNS)))]
    }
}

/// Keys as they are used.
#[derive(Debug, Default)]
pub struct Keys {
    known: RwLock<Vec<Arc<Known>>>,
    /// Who reads or makes keys holds it: what was read earlier never takes the place of what was read later.
    changing: tokio::sync::Mutex<()>,
}

#[derive(Debug)]
struct Known {
    record: SigningKey,
    key: PKey<Private>,
}

impl Service {
    /// The issuer's name in tokens, by which DTNs know it: its URL.
    pub fn issuer(&self) -> &str {
        &self.config.url
    }

    /// The public keys (RFC 7517 §5).
    ///
    /// # Errors
    /// 503 without the store.
    pub async fn jwks(&self) -> Result<Value, ApiError> {
        let now = self.clock.now();
        // Those of other replicas, too.
        let changing = self.auth.keys.changing.lock().await;
        self.load_keys().await?;
        drop(changing);
        for algorithm in [Algorithm::ES256, Algorithm::RS512] {
            self.signing_key(algorithm).await?;
        }
        let mut shown = self.auth.keys.known.read().expect("nothing panics with it").clone();
        shown.retain(|known| now.secs < known.record.made.secs.saturating_add(SIGNS + SHOWN));
        // The public clients verify id tokens with the first key, whatever it is called: it has to be the one that signs them now.
        shown.sort_by_key(|known| (known.record.algorithm != Algorithm::RS512, std::cmp::Reverse(known.record.made)));
        Ok(json!({"keys": shown.iter().map(|known| known.record.public.clone()).collect::<Vec<_>>()}))
    }

    /// The key that signs now; made if there is none, or the last one is old.
    async fn signing_key(&self, algorithm: Algorithm) -> Result<Arc<Known>, ApiError> {
        if let Some(known) = self.present_key(algorithm) {
            return Ok(known);
        }
        let _changing = self.auth.keys.changing.lock().await;
        self.load_keys().await?;
        if let Some(known) = self.present_key(algorithm) {
            return Ok(known);
        }
        let made = tokio::task::spawn_blocking(move || make(algorithm))
            .await
            .map_err(ApiError::internal)?
            .map_err(ApiError::internal)?;
        let (key, public) = made;
        let kid = public["kid"].as_str().unwrap_or_default().to_owned();
        let pem = zeroize::Zeroizing::new(key.private_key_to_pem_pkcs8().map_err(ApiError::internal)?);
        let sealed = self.store.seal(SigningKey::KIND, &kid, &pem)?;
        let record = SigningKey { kid, algorithm, sealed, public, made: self.clock.now() };
        match self.store.apply(Batch::new().insert(&record)).await {
            // Another replica was faster: its key is the one.
            Ok(()) | Err(StoreError::Conflict(_)) => {}
            Err(error) => return Err(error.into()),
        }
        self.load_keys().await?;
        self.present_key(algorithm).ok_or_else(|| ApiError::unavailable("The issuer has no key that signs now"))
    }

    /// The newest key that may still sign: the same for all replicas once they have seen it.
    fn present_key(&self, algorithm: Algorithm) -> Option<Arc<Known>> {
        let now = self.clock.now();
        let keys = self.auth.keys.known.read().expect("nothing panics with it");
        let fits = |known: &&Arc<Known>| {
            known.record.algorithm == algorithm && now.secs < known.record.made.secs.saturating_add(SIGNS)
        };
        keys.iter().filter(fits).max_by_key(|known| known.record.made).cloned()
    }

    async fn load_keys(&self) -> Result<(), ApiError> {
        let mut keys = Vec::new();
        for found in self.all::<SigningKey>().await? {
            let record = found.record;
            let pem = self.store.unseal(SigningKey::KIND, &record.kid, &record.sealed)?;
            let key = PKey::private_key_from_pem(&pem).map_err(ApiError::internal)?;
            keys.push(Arc::new(Known { record, key }));
        }
        *self.auth.keys.known.write().expect("nothing panics with it") = keys;
        Ok(())
    }

    /// Who logged in, for a client (OpenID Connect Core §2).
    pub(super) async fn id_token(&self, client: Uuid, identity: Uuid, nonce: Option<&str>) -> Result<String, ApiError> {
        let now = self.clock.now().secs;
        let identity = self.identity(identity).await?.ok_or_else(|| ApiError::denied("The identity is gone"))?;
        let mut claims = json!({
            "iss": self.issuer(), "sub": identity.id, "aud": client, "iat": now, "exp": now + ID_TOKEN,
            "preferred_username": identity.username, "name": identity.name, "email": identity.email,
            "organization": identity.organization, "identity_provider_display_name": "Whimbrel",
        });
        if let Some(nonce) = nonce {
            claims["nonce"] = json!(nonce);
        }
        self.sign(Algorithm::RS512, &claims).await
    }

    /// An access token for the servers of one endpoint (WLCG Common JWT Profiles 1.0), for `seconds` from now on.
    ///
    /// `identity` is in whose name; `scope` is what for, as [`dtn_scope`] writes it; `rate` is how
    /// fast, bytes a second. Servers find the account by `sub` or by the name,
    /// which is there twice: as OpenID Connect has it, and as mapping documents of Globus ask for it.
    ///
    /// # Errors
    /// 403 for an identity that is gone or closed, 503 without the store.
    pub async fn dtn_token(
        &self,
        endpoint: Uuid,
        identity: Uuid,
        scope: &str,
        rate: Option<u64>,
        seconds: i64,
    ) -> Result<String, ApiError> {
        let now = self.clock.now().secs;
        let known = self.identity(identity).await?.filter(|identity| !identity.disabled);
        let username = known.ok_or_else(|| ApiError::denied("The account is closed"))?.username;
        let mut claims = json!({
            "iss": self.issuer(), "sub": identity.to_string(), "aud": endpoint.to_string(), "iat": now, "nbf": now,
            "exp": now.saturating_add(seconds), "jti": random_id()?, "wlcg.ver": "1.0", "scope": scope,
            "preferred_username": username, "username": username,
        });
        if let Some(rate) = rate {
            claims["whimbrel.rate"] = json!(rate.to_string());
        }
        self.sign(Algorithm::ES256, &claims).await
    }

    async fn sign(&self, algorithm: Algorithm, claims: &Value) -> Result<String, ApiError> {
        let known = self.signing_key(algorithm).await?;
        let header = json!({"alg": format!("{algorithm:?}"), "typ": "JWT", "kid": known.record.kid});
        let encode = |value: &Value| Base64UrlUnpadded::encode_string(value.to_string().as_bytes());
        let signed = format!("{}.{}", encode(&header), encode(claims));
        let signature = signature(algorithm, &known.key, signed.as_bytes()).map_err(ApiError::internal)?;
        Ok(format!("{signed}.{}", Base64UrlUnpadded::encode_string(&signature)))
    }
}

/// The scope of tokens with which data connections of others are joined, and nothing else is done.
pub const RELAY_SCOPE: &str = "whimbrel.relay";

/// The text of scopes with the path at the servers that each is about, and what lies below it.
pub fn dtn_scope(scopes: &[(&str, &str)]) -> String {
    let scopes: Vec<_> = scopes.iter().map(|(name, path)| format!("{name}:{}", scope_path(path))).collect();
    scopes.join(" ")
}

/// A path as scopes have it: absolute, percent-encoded but for what stands in URLs as it is (RFC 3986 §3.3).
fn scope_path(path: &str) -> String {
    let trimmed = path.trim_end_matches('/');
    if trimmed.is_empty() {
        return "/".to_owned();
    }
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/-._~!$&'()*+,;=:@".contains(&byte);
    let encoded =
        trimmed.bytes().map(|byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") });
    encoded.collect()
}

fn make(algorithm: Algorithm) -> Result<(PKey<Private>, Value), ErrorStack> {
    let encode = |bytes: &[u8]| Base64UrlUnpadded::encode_string(bytes);
    let (key, mut public) = match algorithm {
        Algorithm::RS512 => {
            let rsa = Rsa::generate(3072)?;
            let public = json!({"kty": "RSA", "n": encode(&rsa.n().to_vec()), "e": encode(&rsa.e().to_vec())});
            (PKey::from_rsa(rsa)?, public)
        }
        Algorithm::ES256 => {
            let group = EcGroup::from_curve_name(Nid::X9_62_PRIME256V1)?;
            let key = EcKey::generate(&group)?;
            let (mut x, mut y) = (BigNum::new()?, BigNum::new()?);
            key.public_key().affine_coordinates(&group, &mut x, &mut y, &mut *BigNumContext::new()?)?;
            let (x, y) = (encode(&x.to_vec_padded(32)?), encode(&y.to_vec_padded(32)?));
            (PKey::from_ec_key(key)?, json!({"kty": "EC", "crv": "P-256", "x": x, "y": y}))
        }
    };
    let kid = encode(&Sha256::digest(public.to_string().as_bytes())[..12]);
    public["kid"] = json!(kid);
    public["use"] = json!("sig");
    public["alg"] = json!(format!("{algorithm:?}"));
    Ok((key, public))
}

/// A signature in JOSE's form (RFC 7518 §3.3, §3.4: of a curve, both numbers with 32 bytes each).
fn signature(algorithm: Algorithm, key: &PKey<Private>, signed: &[u8]) -> Result<Vec<u8>, ErrorStack> {
    match algorithm {
        Algorithm::RS512 => Signer::new(MessageDigest::sha512(), key)?.sign_oneshot_to_vec(signed),
        Algorithm::ES256 => {
            let key = key.ec_key()?;
            let signature = EcdsaSig::sign(&Sha256::digest(signed), &key)?;
            Ok([signature.r().to_vec_padded(32)?, signature.s().to_vec_padded(32)?].concat())
        }
    }
}
