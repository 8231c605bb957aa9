//! Logins with Kerberos: where what they need lies.

use std::path::PathBuf;

use serde::Deserialize;

/// AUTH GSSAPI with Kerberos, for the service `host/NAME`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct KerberosConfig {
    /// Keytab with the keys of this host. Default: `/etc/krb5.keytab`.
    pub keytab: PathBuf,
    /// File of principals and the accounts they may use, in the form of a grid-mapfile: `"ada@GRID.ORG" ada`. Default: the grid-mapfile of
    /// `[gsi]`, if there is one; mapping documents know principals, too.
    pub accounts: Option<PathBuf>,
}

impl Default for KerberosConfig {
    fn default() -> Self {
        Self { keytab: "/etc/krb5.keytab".into(), accounts: None }
    }
}
