//! Another provider whose people may log in.

use std::fs;
use std::path::PathBuf;

use clap::Args;
use whimbrel_engine::{Fault, FaultCode, Side};
use whimbrel_service::auth::provider::Settings;
use whimbrel_trust::roots::SystemRoots;

use super::notify::{of_file, secret};
use super::{OP, failed};

/// A provider of identities, such as a university's login.
#[derive(Debug, Args)]
pub struct ProviderArgs {
    /// OpenID provider whose people may log in, by the URL that names it: https://login.example.edu/realms/main [default: none]
    #[arg(long, value_name = "URL", requires = "oidc_client", requires = "oidc_secret")]
    oidc_issuer: Option<String>,
    /// This service's id there; register it with the redirect URI URL/v2/oauth2/provider
    #[arg(long, value_name = "ID", requires = "oidc_issuer")]
    oidc_client: Option<String>,
    /// File with this service's secret there; nobody else may read it
    #[arg(long, value_name = "FILE", requires = "oidc_issuer")]
    oidc_secret: Option<PathBuf>,
    /// What follows the @ in the names of its people here [default: the issuer's host]
    #[arg(long, value_name = "NAME", requires = "oidc_issuer")]
    oidc_domain: Option<String>,
    /// Claim that names its people: one that is unique there, and that they cannot choose, such as preferred_username, eppn or email
    #[arg(long, value_name = "CLAIM", default_value = "sub")]
    oidc_claim: String,
    /// What people call it, on the login page [default: the issuer's host]
    #[arg(long, value_name = "TEXT", requires = "oidc_issuer")]
    oidc_label: Option<String>,
    /// PEM file of who vouches for its hosts [default: the system's]
    #[arg(long, value_name = "FILE", requires = "oidc_issuer")]
    oidc_authorities: Option<PathBuf>,
    /// Nobody logs in with a password of this service
    #[arg(long, requires = "oidc_issuer")]
    oidc_only: bool,
}

impl ProviderArgs {
    /// What they mean, for a service whose own people are of the domain `own`.
    pub fn settings(&self, own: &str) -> Result<Option<Settings>, Fault> {
        let (Some(issuer), Some(client), Some(file)) = (&self.oidc_issuer, &self.oidc_client, &self.oidc_secret) else {
            return Ok(None);
        };
        let rest = issuer.strip_prefix("https://").filter(|rest| !rest.contains(['?', '#', '@']));
        let authority = rest.and_then(|rest| rest.split('/').next()).unwrap_or_default();
        let host = authority.rsplit_once(':').map_or(authority, |(host, _)| host);
        if host.is_empty() {
            return Err(failed("--oidc-issuer is no URL that begins with https://").subject(issuer));
        }
        let domain = self.oidc_domain.as_deref().unwrap_or(host).to_lowercase();
        let own = own.to_lowercase();
        if domain == own || domain == format!("clients.{own}") || domain.contains('@') {
            return Err(failed("--oidc-domain has to be another than the domain of the people of this service"));
        }
        let pem = self.oidc_authorities.as_deref().map(|file| fs::read(file).map_err(|error| of_file(error, file)));
        let roots = SystemRoots::of_pem_or_system(pem.transpose()?.as_deref());
        let secret = secret(file)?.trim_end_matches(['\r', '\n']).to_owned();
        if secret.is_empty() {
            return Err(Fault::new(FaultCode::CredentialMissing, OP)
                .side(Side::Us)
                .subject(file.display().to_string()));
        }
        Ok(Some(Settings {
            issuer: issuer.clone(),
            label: self.oidc_label.clone().unwrap_or_else(|| host.to_owned()),
            client: client.clone(),
            secret: secret.into(),
            domain,
            claim: self.oidc_claim.clone(),
            only: self.oidc_only,
            roots: roots.map_err(|fault| fault.into_fault(OP, Side::Us))?,
        }))
    }
}
