//! Logins with grid certificates: where what they need lies.

use std::ffi::OsString;
use std::path::PathBuf;

use serde::Deserialize;
use whimbrel_engine::{Fault, FaultCode};
use whimbrel_trust::places::{Place, Places, Source};

/// AUTH GSSAPI with GSI; what is not named lies where grid programs have it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct GsiConfig {
    /// PEM file of the host's certificate. Default: X509_USER_CERT, `/etc/grid-security/hostcert.pem`.
    pub certificate: Option<PathBuf>,
    /// PEM file of its private key. Default: X509_USER_KEY, `/etc/grid-security/hostkey.pem`; with a certificate of its own, the same file.
    pub key: Option<PathBuf>,
    /// Directory of trusted authorities, with their signing policies and revocation lists.
    /// Default: X509_CERT_DIR, `/etc/grid-security/certificates`.
    pub authorities: Option<PathBuf>,
    /// File of subjects and the accounts they may use. Default: GRIDMAP, `/etc/grid-security/grid-mapfile`.
    pub gridmap: Option<PathBuf>,
    /// Directory of virtual organizations whose attributes count. Default: X509_VOMS_DIR, `/etc/grid-security/vomsdir`.
    pub vomsdir: Option<PathBuf>,
}

/// Where it all lies on this host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GsiPlaces {
    /// PEM file of the host's certificate.
    pub certificate: PathBuf,
    /// PEM file of its private key.
    pub key: PathBuf,
    /// Directory of trusted authorities.
    pub authorities: PathBuf,
    /// File of subjects and their accounts.
    pub gridmap: PathBuf,
    /// Directory of virtual organizations; may be missing.
    pub vomsdir: PathBuf,
}

impl GsiConfig {
    /// The places for an account; of several usual ones the first that is there.
    ///
    /// # Errors
    /// `CredentialMissing`, naming all places, where there is none.
    pub fn places(&self, environment: &dyn Fn(&str) -> Option<OsString>, uid: u32) -> Result<GsiPlaces, Fault> {
        let usual = Places::new(environment, uid);
        let (certificate, key) = match (&self.certificate, &self.key) {
            (Some(certificate), key) => (certificate.clone(), key.as_ref().unwrap_or(certificate).clone()),
            (None, key) => {
                let (certificate, usual_key) = host(&usual)?;
                (certificate, key.clone().unwrap_or(usual_key))
            }
        };
        Ok(GsiPlaces {
            certificate,
            key,
            authorities: self.authorities.clone().map_or_else(|| authorities(&usual), Ok)?,
            gridmap: self.gridmap.clone().map_or_else(|| gridmap(&usual), Ok)?,
            vomsdir: self.vomsdir.clone().unwrap_or_else(|| usual.vomsdir().path),
        })
    }
}

fn host(usual: &Places<'_>) -> Result<(PathBuf, PathBuf), Fault> {
    let sources = usual.host();
    let found = sources.iter().find_map(|source| match source {
        Source::Pair(certificate, key) if certificate.path.exists() => {
            Some((certificate.path.clone(), key.path.clone()))
        }
        _ => None,
    });
    found.ok_or_else(|| missing("certificate of this host", &sources))
}

fn authorities(usual: &Places<'_>) -> Result<PathBuf, Fault> {
    usual.anchor_directory().ok_or_else(|| missing("directory of trusted authorities", &usual.anchors()))
}

fn gridmap(usual: &Places<'_>) -> Result<PathBuf, Fault> {
    usual.gridmap().map(|place| place.path).ok_or_else(|| missing("grid-mapfile", &[] as &[Place]))
}

fn missing(what: &str, places: &[impl ToString]) -> Fault {
    let looked: Vec<String> = places.iter().map(ToString::to_string).collect();
    let detail = format!("there is no {what}; looked for: {}", looked.join(", "));
    Fault::new(FaultCode::CredentialMissing, "configure").detail(detail)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_named_counts_and_the_rest_is_where_grid_programs_have_it() {
        let directory = tempfile::tempdir().unwrap();
        let here = directory.path().to_owned();
        let environment = |name: &str| match name {
            "X509_CERT_DIR" => Some(here.clone().into_os_string()),
            "GRIDMAP" => Some("/map".into()),
            _ => None,
        };
        let config = GsiConfig { certificate: Some("/host.pem".into()), ..GsiConfig::default() };
        let places = config.places(&environment, 0).unwrap();
        assert_eq!((places.certificate, places.key), ("/host.pem".into(), "/host.pem".into()));
        assert_eq!((places.authorities, places.gridmap), (here.clone(), "/map".into()));
        assert_eq!(places.vomsdir, PathBuf::from("/etc/grid-security/vomsdir"));
        let config = GsiConfig { authorities: Some("/ca".into()), key: Some("/k".into()), ..config };
        let places = config.places(&environment, 0).unwrap();
        assert_eq!((places.authorities, places.key), ("/ca".into(), "/k".into()));
    }

    #[test]
    fn what_is_nowhere_is_said_with_all_places() {
        let environment = |name: &str| (name == "X509_USER_CERT").then(|| "/nowhere/cert.pem".into());
        let fault = GsiConfig::default().places(&environment, 0).unwrap_err();
        assert_eq!(fault.code, FaultCode::CredentialMissing);
        assert!(fault.to_string().contains("/nowhere/cert.pem (X509_USER_CERT)"), "{fault}");
    }
}
