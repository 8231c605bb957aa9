//! Access tokens: what a signed JSON web token says (RFC 7519), the keys of its issuer (RFC 7517), and what its scopes allow.
//!
//! Nothing here verifies a signature: [`jwt::Jwt::claims`] gives what a token says only to who brings a verifier.

pub mod discovery;
pub mod http;
pub mod judge;
pub mod jwks;
pub mod jwt;
pub mod scope;

mod json;
