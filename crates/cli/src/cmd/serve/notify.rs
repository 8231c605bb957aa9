//! How the service tells users of their tasks: mail, and webhooks.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use clap::Args;
use whimbrel_engine::{Fault, Side};
use whimbrel_service::notices::{MailServer, Settings};

use super::{OP, failed};

/// How users are told.
#[derive(Debug, Args)]
pub struct NotifyArgs {
    /// Mail server by which users are told of their tasks: smtp://HOST[:PORT], smtp+starttls://... or smtps://... [default: no mail]
    #[arg(long, value_name = "URL", requires = "mail_from")]
    mail: Option<String>,
    /// Whom these mails are from
    #[arg(long, value_name = "ADDRESS", requires = "mail")]
    mail_from: Option<String>,
    /// File with NAME:PASSWORD for the mail server; nobody else may read it
    #[arg(long, value_name = "FILE", requires = "mail")]
    mail_login: Option<PathBuf>,
    /// Host in your own networks that users' webhooks may lead to; may be given more than once [default: public hosts only]
    #[arg(long = "webhook-host", value_name = "HOST")]
    webhook_hosts: Vec<String>,
    /// PEM file of who vouches for the mail server and for hosts of webhooks [default: the system's]
    #[arg(long, value_name = "FILE")]
    notify_authorities: Option<PathBuf>,
}

impl NotifyArgs {
    /// What they mean.
    pub fn settings(&self) -> Result<Settings, Fault> {
        let pem = self.notify_authorities.as_deref().map(|file| fs::read(file).map_err(|error| of_file(error, file)));
        let mut settings = Settings::trusting(pem.transpose()?.as_deref())?;
        settings.inside.clone_from(&self.webhook_hosts);
        if let (Some(url), Some(from)) = (&self.mail, &self.mail_from) {
            let server = MailServer::parse(url, from).map_err(failed)?;
            settings.mail = Some(match &self.mail_login {
                Some(file) => server.with_login(&secret(file)?).map_err(failed)?,
                None => server,
            });
        }
        Ok(settings)
    }
}

/// What stands in a file that nobody else may read.
pub(super) fn secret(file: &Path) -> Result<String, Fault> {
    let mode = fs::metadata(file).map_err(|error| of_file(error, file))?.permissions().mode();
    if mode & 0o077 != 0 {
        return Err(failed(format!("{} may be read by others: chmod 600 it", file.display())));
    }
    fs::read_to_string(file).map_err(|error| of_file(error, file))
}

pub(super) fn of_file(error: std::io::Error, path: &Path) -> Fault {
    Fault::from_io(error, OP).side(Side::Us).subject(path.display().to_string())
}
