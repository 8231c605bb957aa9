//! What `whimbrel cp` is told of one end only.

use std::path::{Path, PathBuf};

use clap::Args;
use whimbrel_dtn::client::options::{DataCredential, Place};
use whimbrel_dtn::client::target::CredentialFiles;

use crate::args::parse_subject;

/// Logins that differ between the ends.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Logins that differ between source and destination")]
pub struct EndArgs {
    /// Subject of the source's host certificate, as --subject
    #[arg(long, value_name = "SUBJECT", value_parser = parse_subject)]
    source_subject: Option<String>,
    /// Subject of the destination's host certificate, as --subject
    #[arg(long, visible_alias = "dest-subject", value_name = "SUBJECT", value_parser = parse_subject)]
    destination_subject: Option<String>,
    /// Certificate or proxy for the source, with its key, as --certificate
    #[arg(long, value_name = "FILE")]
    source_credential: Option<PathBuf>,
    /// Certificate or proxy for the destination, with its key, as --certificate
    #[arg(long, visible_alias = "dest-credential", value_name = "FILE")]
    destination_credential: Option<PathBuf>,
    /// Log in at the source with your Kerberos ticket, as --kerberos
    #[arg(long, conflicts_with = "source_credential")]
    source_kerberos: bool,
    /// Log in at the destination with your Kerberos ticket, as --kerberos
    #[arg(long, visible_alias = "dest-kerberos", conflicts_with = "destination_credential")]
    destination_kerberos: bool,
    /// Data connections show no certificates, as -nodcau of globus-url-copy: whoever reaches a port in time can take the data, or give
    /// others in their place. For servers that cannot check each other's certificates, in networks that you trust; nothing is encrypted.
    /// Between Whimbrel servers the one-time secret stays
    #[arg(long, visible_alias = "nodcau", conflicts_with_all = ["data_credential", "encrypt", "safe"])]
    no_data_auth: bool,
    /// What data connections show in place of what was handed on at login: FILE (with its key), or auto: a certificate that is made for this
    /// copy and good for nothing else. For servers that trust different authorities (DCSC)
    #[arg(long, visible_alias = "data-cred", value_name = "auto|FILE")]
    data_credential: Option<PathBuf>,
}

impl EndArgs {
    /// What data connections show.
    pub fn data_credential(&self) -> DataCredential {
        match self.data_credential.as_deref() {
            None if self.no_data_auth => DataCredential::Nothing,
            None => DataCredential::Usual,
            Some(auto) if auto == Path::new("auto") => DataCredential::Made,
            Some(file) => DataCredential::Named(*both(file)),
        }
    }

    /// Names what each end has of its own.
    pub fn name(&self, sources: &mut [Place], destination: &mut Place) {
        for target in sources.iter_mut().filter_map(|place| place.target.as_mut()) {
            target.subject.clone_from(&self.source_subject);
            target.credential = self.source_credential.as_deref().map(both);
            target.kerberos = self.source_kerberos;
        }
        if let Some(target) = &mut destination.target {
            target.subject.clone_from(&self.destination_subject);
            target.credential = self.destination_credential.as_deref().map(both);
            target.kerberos = self.destination_kerberos;
        }
    }
}

/// One file holds both.
fn both(file: &Path) -> Box<CredentialFiles> {
    Box::new(CredentialFiles { certificate: file.to_owned(), key: file.to_owned() })
}
