//! Logins with grid certificates: where what they need lies.

use std::path::PathBuf;

use serde::Deserialize;

/// AUTH GSSAPI with GSI; every place has the default that grid programs have.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct GsiConfig {
    /// PEM file of the host's certificate. Default: `/etc/grid-security/hostcert.pem`.
    pub certificate: PathBuf,
    /// PEM file of its private key. Default: `/etc/grid-security/hostkey.pem`.
    pub key: PathBuf,
    /// Directory of trusted authorities, with their signing policies and revocation lists.
    /// Default: `/etc/grid-security/certificates`.
    pub authorities: PathBuf,
    /// File of subjects and the accounts they may use. Default: `/etc/grid-security/grid-mapfile`.
    pub gridmap: PathBuf,
    /// Directory of virtual organizations whose attributes count. Default: `/etc/grid-security/vomsdir`.
    pub vomsdir: PathBuf,
}

impl Default for GsiConfig {
    fn default() -> Self {
        let usual = |name: &str| PathBuf::from("/etc/grid-security").join(name);
        Self {
            certificate: usual("hostcert.pem"),
            key: usual("hostkey.pem"),
            authorities: usual("certificates"),
            gridmap: usual("grid-mapfile"),
            vomsdir: usual("vomsdir"),
        }
    }
}
