//! Tells owners what became of their tasks while they were away: by mail, and by requests to places that they name (webhooks).
//!
//! What is to be told is noted in the transaction that ends the task, so nothing is forgotten; it may be told twice when the service
//! is killed just then, under the same id.

mod deliver;
mod mail;
pub mod records;
mod routes;
mod smtp;
mod webhook;

use std::sync::OnceLock;

use whimbrel_engine::{Fault, Side};
use whimbrel_trust::roots::SystemRoots;

pub use mail::{MailServer, Protection};
pub use routes::routes;

/// How owners are told.
#[derive(Default)]
pub struct Notifier(OnceLock<Settings>);

/// What an administrator lets the service do to tell owners.
#[derive(Clone)]
pub struct Settings {
    /// Who takes mail; `None`: none is sent.
    pub mail: Option<MailServer>,
    /// Hosts within the site's own networks that webhooks may lead to; others have to be public, and speak HTTPS.
    pub inside: Vec<String>,
    /// Who vouches for these hosts.
    pub roots: SystemRoots,
}

impl Settings {
    /// No mail, public webhooks only, hosts that these authorities (PEM) vouch for; without them those of the system.
    ///
    /// # Errors
    /// The authorities cannot be read.
    pub fn trusting(authorities: Option<&[u8]>) -> Result<Self, Fault> {
        let roots =
            SystemRoots::of_pem_or_system(authorities).map_err(|fault| fault.into_fault("tell owners", Side::Us))?;
        Ok(Self { mail: None, inside: Vec::new(), roots })
    }
}

impl Notifier {
    /// Lets owners be told from now on. The first settings stay.
    pub fn begin(&self, settings: Settings) {
        // Once begun, everything that was decided by the first settings stays true.
        let _first = self.0.set(settings);
    }

    /// How owners are told; `None`: not at all.
    pub fn settings(&self) -> Option<&Settings> {
        self.0.get()
    }
}
