//! Where certificates, keys and the files around them are looked for, as every grid program does.
//!
//! A variable that is set is the only place; the usual places count without it.

use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};

/// The environment and account that decide where things are.
#[derive(Clone, Copy)]
pub struct Places<'a> {
    environment: &'a dyn Fn(&str) -> Option<OsString>,
    uid: u32,
}

/// Somewhere to look, and why there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// The file or directory.
    pub path: PathBuf,
    /// The variable that names it; `None`: it is a usual place.
    pub variable: Option<&'static str>,
}

/// A certificate with its key, in one or two files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// A proxy with its key and the certificates above it.
    Proxy(Place),
    /// A certificate, perhaps with those above it, and its key.
    Pair(Place, Place),
    /// A PKCS#12 file.
    Bundle(Place),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.path.display())?;
        self.variable.map_or(Ok(()), |variable| write!(f, " ({variable})"))
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Proxy(place) | Self::Bundle(place) => place.fmt(f),
            Self::Pair(certificate, key) => write!(f, "{certificate} and {key}"),
        }
    }
}

impl Source {
    /// The file that holds the certificate.
    pub fn certificate(&self) -> &Path {
        match self {
            Self::Proxy(place) | Self::Pair(place, _) | Self::Bundle(place) => &place.path,
        }
    }
}

impl<'a> Places<'a> {
    /// Those of an account: `environment` looks variables up, `uid` is in the name of its proxy.
    pub fn new(environment: &'a dyn Fn(&str) -> Option<OsString>, uid: u32) -> Self {
        Self { environment, uid }
    }

    /// The account whose files these are.
    pub fn uid(&self) -> u32 {
        self.uid
    }

    /// Directories of trusted authorities; the first that exists counts.
    pub fn anchors(&self) -> Vec<Place> {
        self.named("X509_CERT_DIR").map(|place| vec![place]).unwrap_or_else(|| {
            let home = self.at_home(".globus/certificates");
            let system = usual("/etc/grid-security/certificates");
            home.into_iter().chain([system]).chain(self.at_globus("share/certificates")).collect()
        })
    }

    /// The directory of trusted authorities that counts; `None` if none of [`Self::anchors`] is there.
    pub fn anchor_directory(&self) -> Option<PathBuf> {
        self.anchors().into_iter().map(|place| place.path).find(|path| path.is_dir())
    }

    /// The file of the account's proxy.
    pub fn proxy(&self) -> Place {
        self.named("X509_USER_PROXY").unwrap_or_else(|| usual(format!("/tmp/x509up_u{}", self.uid)))
    }

    /// The credentials of a person: his proxy, then his certificate.
    pub fn person(&self) -> Vec<Source> {
        let mut sources = vec![Source::Proxy(self.proxy())];
        if let Some(pair) = self.named_pair() {
            sources.push(pair);
        } else if let (Some(certificate), Some(key)) =
            (self.at_home(".globus/usercert.pem"), self.at_home(".globus/userkey.pem"))
        {
            sources.push(Source::Pair(certificate, key));
            sources.extend(self.at_home(".globus/usercred.p12").map(Source::Bundle));
        }
        sources
    }

    /// The credentials of a host.
    pub fn host(&self) -> Vec<Source> {
        if let Some(pair) = self.named_pair() {
            return vec![pair];
        }
        let system = (usual("/etc/grid-security/hostcert.pem"), usual("/etc/grid-security/hostkey.pem"));
        let others = [
            (self.at_globus("etc/hostcert.pem"), self.at_globus("etc/hostkey.pem")),
            (self.at_home(".globus/hostcert.pem"), self.at_home(".globus/hostkey.pem")),
        ];
        let others = others.into_iter().filter_map(|(certificate, key)| certificate.zip(key));
        std::iter::once(system).chain(others).map(|(certificate, key)| Source::Pair(certificate, key)).collect()
    }

    /// The file that maps subjects to accounts.
    pub fn gridmap(&self) -> Option<Place> {
        self.named("GRIDMAP").or_else(|| match self.uid {
            0 => Some(usual("/etc/grid-security/grid-mapfile")),
            _ => self.at_home(".gridmap"),
        })
    }

    /// The directory that tells whose signature counts for a virtual organization.
    pub fn vomsdir(&self) -> Place {
        self.named("X509_VOMS_DIR").unwrap_or_else(|| usual("/etc/grid-security/vomsdir"))
    }

    fn named_pair(&self) -> Option<Source> {
        let certificate = self.named("X509_USER_CERT")?;
        // A file may hold both.
        let key = self.named("X509_USER_KEY").unwrap_or_else(|| certificate.clone());
        Some(Source::Pair(certificate, key))
    }

    fn named(&self, variable: &'static str) -> Option<Place> {
        let value = (self.environment)(variable).filter(|value| !value.is_empty())?;
        Some(Place { path: value.into(), variable: Some(variable) })
    }

    fn at_home(&self, file: &str) -> Option<Place> {
        self.named("HOME").map(|home| usual(home.path.join(file)))
    }

    fn at_globus(&self, file: &str) -> Option<Place> {
        self.named("GLOBUS_LOCATION").map(|location| usual(location.path.join(file)))
    }
}

fn usual(path: impl Into<PathBuf>) -> Place {
    Place { path: path.into(), variable: None }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with<R>(variables: &[(&str, &str)], uid: u32, see: impl FnOnce(&Places<'_>) -> R) -> R {
        let look = |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| value.into());
        see(&Places::new(&look, uid))
    }

    fn shown<T: fmt::Display>(list: &[T]) -> Vec<String> {
        list.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn without_variables_the_usual_places_count() {
        with(&[("HOME", "/home/a"), ("X509_USER_PROXY", "")], 1000, |places| {
            assert_eq!(shown(&places.anchors()), ["/home/a/.globus/certificates", "/etc/grid-security/certificates"]);
            assert_eq!(
                shown(&places.person()),
                [
                    "/tmp/x509up_u1000",
                    "/home/a/.globus/usercert.pem and /home/a/.globus/userkey.pem",
                    "/home/a/.globus/usercred.p12"
                ]
            );
            assert_eq!(
                shown(&places.host()),
                [
                    "/etc/grid-security/hostcert.pem and /etc/grid-security/hostkey.pem",
                    "/home/a/.globus/hostcert.pem and /home/a/.globus/hostkey.pem"
                ]
            );
            assert_eq!(places.gridmap().unwrap().to_string(), "/home/a/.gridmap");
            assert_eq!((places.vomsdir().to_string(), places.uid()), ("/etc/grid-security/vomsdir".into(), 1000));
        });
        with(&[], 0, |places| {
            assert_eq!(shown(&places.person()), ["/tmp/x509up_u0"]);
            assert_eq!(places.gridmap().unwrap().to_string(), "/etc/grid-security/grid-mapfile");
            assert_eq!(shown(&places.anchors()), ["/etc/grid-security/certificates"]);
        });
        with(&[], 7, |places| assert_eq!(places.gridmap(), None));
    }

    #[test]
    fn a_variable_that_is_set_is_the_only_place() {
        let variables = [
            ("HOME", "/home/a"),
            ("GLOBUS_LOCATION", "/opt/globus"),
            ("X509_CERT_DIR", "/ca"),
            ("X509_USER_PROXY", "/p"),
            ("X509_USER_CERT", "/c"),
            ("X509_USER_KEY", "/k"),
            ("GRIDMAP", "/map"),
            ("X509_VOMS_DIR", "/voms"),
        ];
        with(&variables, 1, |places| {
            assert_eq!(shown(&places.anchors()), ["/ca (X509_CERT_DIR)"]);
            let pair = "/c (X509_USER_CERT) and /k (X509_USER_KEY)";
            assert_eq!(shown(&places.person()), ["/p (X509_USER_PROXY)", pair]);
            assert_eq!(shown(&places.host()), [pair]);
            assert_eq!(places.gridmap().unwrap().to_string(), "/map (GRIDMAP)");
            assert_eq!(places.vomsdir().to_string(), "/voms (X509_VOMS_DIR)");
            assert_eq!(places.host()[0].certificate(), Path::new("/c"));
        });
        with(&variables[1..2], 1, |places| {
            assert_eq!(shown(&places.anchors()).last().unwrap(), "/opt/globus/share/certificates");
            assert_eq!(
                shown(&places.host()).last().unwrap(),
                "/opt/globus/etc/hostcert.pem and /opt/globus/etc/hostkey.pem"
            );
        });
        with(&[("X509_USER_CERT", "/both")], 1, |places| {
            assert_eq!(shown(&places.host()), ["/both (X509_USER_CERT) and /both (X509_USER_CERT)"]);
        });
    }
}
