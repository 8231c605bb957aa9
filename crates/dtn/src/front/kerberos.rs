//! AUTH GSSAPI with Kerberos: the keys of this host, in a process that reads no files.

use std::fs::File;
use std::io::Write as _;
use std::os::fd::AsRawFd as _;
use std::path::Path;

use rustix::fs::{MemfdFlags, memfd_create};
use serde::{Deserialize, Serialize};
use whimbrel_engine::{Fault, FaultCode, Side};
use whimbrel_proto::server::Secret;
use whimbrel_trust::krb5::ServerKeys;

use crate::small;

const OP: &str = "read keytab";

/// Largest keytab, bytes: the front is told of it in one message.
const LARGEST: u64 = 16 << 10;

/// What the front needs for logins with Kerberos.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct KerberosSettings {
    /// Where the keytab is, for people.
    place: String,
    keytab: Secret,
}

impl KerberosSettings {
    /// Reads the keytab as it is: the process that may read it does not look into it.
    ///
    /// # Errors
    /// Those of reading; `InvalidArgument` for one that is too long.
    pub fn read(keytab: &Path) -> Result<Self, Fault> {
        let place = keytab.display().to_string();
        let bytes = small::read(keytab, OP, LARGEST).map_err(|fault| match fault.code {
            FaultCode::InvalidArgument => {
                let detail = format!("{}: make one with this host's keys alone", fault.detail);
                fault.detail(detail)
            }
            _ => fault,
        });
        Ok(Self { place, keytab: Secret(bytes.map_err(|fault| fault.side(Side::Us))?) })
    }
}

/// The keys, where the library finds them: a file in memory that has no name.
#[derive(Debug)]
pub struct Keys {
    keys: ServerKeys,
    _file: File,
}

impl Keys {
    /// Loads the library, too, so it is done before a process confines itself.
    ///
    /// # Errors
    /// `NotSupported` without the library, `CredentialMissing` for keys that cannot be used.
    pub fn new(settings: &KerberosSettings) -> Result<Self, Fault> {
        let failed = |error| Fault::from_io(error, OP).subject(&settings.place).side(Side::Us);
        let memory = memfd_create("keytab", MemfdFlags::CLOEXEC).map_err(|errno| failed(errno.into()))?;
        let mut file = File::from(memory);
        file.write_all(&settings.keytab.0).map_err(failed)?;
        let keys = ServerKeys::read(&format!("FILE:/proc/self/fd/{}", file.as_raw_fd()));
        let keys = keys.map_err(|fault| fault.about(settings.place.clone()).into_fault("configure", Side::Us))?;
        Ok(Self { keys, _file: file })
    }

    /// What logins are accepted with.
    pub fn server(&self) -> &ServerKeys {
        &self.keys
    }
}
