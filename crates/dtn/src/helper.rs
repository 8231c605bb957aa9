//! Confined processes beside the front: each is told its settings on standard input, and has one socket, which is its standard output.

use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use serde::Serialize;
use serde::de::DeserializeOwned;
use whimbrel_engine::{Fault, FaultCode, Side};
use whimbrel_proto::token::http::HttpsUrl;
use whimbrel_trust::TrustFault;
use whimbrel_trust::roots::{HostOfAuthorities, SystemRoots};
use whimbrel_trust::tls::ClientTls;
use whimbrel_web::client::Client;

use crate::confine;
use crate::monitor::keeper::Account;
use crate::parent;

/// What a helper is, for faults.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Helper {
    /// The hidden command of this program that it is.
    pub(crate) command: &'static str,
    /// What it does.
    pub(crate) op: &'static str,
}

impl Helper {
    /// Starts it with its socket, as `account` if there is one.
    pub(crate) fn start(
        self,
        program: &Path,
        socket: impl AsFd,
        account: Option<Account>,
        settings: &impl Serialize,
    ) -> Result<Child, Fault> {
        let socket = socket.as_fd().try_clone_to_owned().map_err(|error| self.failed(error))?;
        self.start_with(program, Stdio::from(socket), account, settings)
    }

    /// Starts it with this standard output. It ends with this process, or rather with the thread that calls this.
    pub(crate) fn start_with(
        self,
        program: &Path,
        output: Stdio,
        account: Option<Account>,
        settings: &impl Serialize,
    ) -> Result<Child, Fault> {
        let mut command = Command::new(program);
        command.arg(self.command).stdin(Stdio::piped()).stdout(output);
        command.env_clear().env("PATH", "/usr/bin:/bin").current_dir("/");
        whimbrel_sys::lifetime::own_session(&mut command);
        if let Some(account) = account {
            command.uid(account.uid).gid(account.gid);
        }
        // It asks for that, too; but one whose starter has ended by then cannot tell.
        whimbrel_sys::lifetime::die_with_starter(&mut command);
        let mut child = command.spawn().map_err(|error| self.failed(error))?;
        let mut stdin = child.stdin.take().expect("it was asked for");
        let settings = postcard::to_stdvec(settings).expect("texts can always be written");
        stdin.write_all(&settings).map_err(|error| self.failed(error))?;
        Ok(child)
    }

    /// In the process itself: its settings and its socket. From now on it ends with who started it, and its memory is nobody's to read.
    ///
    /// # Errors
    /// Nobody started it so.
    pub(crate) fn told<S: DeserializeOwned>(self) -> Result<(S, OwnedFd), Fault> {
        parent::end_with_parent()?;
        confine::keep_secrets()?;
        let socket = io::stdout().as_fd().try_clone_to_owned().map_err(|error| self.failed(error))?;
        let mut settings = Vec::new();
        io::stdin().lock().read_to_end(&mut settings).map_err(|error| self.failed(error))?;
        let settings = postcard::from_bytes(&settings)
            .map_err(|_| Fault::new(FaultCode::InvalidArgument, self.op).detail("only `whimbrel dtn` starts it"))?;
        Ok((settings, socket))
    }

    /// A client of the service at a URL, which these authorities (PEM) or those of the system vouch for; answers have at most so many bytes.
    ///
    /// # Errors
    /// It is no URL; the authorities are none.
    pub(crate) fn client(self, service: &str, authorities: Option<&[u8]>, most: usize) -> Result<Client, Fault> {
        let refused = |fault: TrustFault| fault.into_fault(self.op, Side::Us);
        let roots = SystemRoots::of_pem_or_system(authorities).map_err(refused)?;
        let service = service.trim_end_matches('/');
        let host = HttpsUrl::parse(service).map(|place| place.host().to_owned()).unwrap_or_default();
        let tls = ClientTls::new(Arc::new(HostOfAuthorities::new(roots, &host)), None).map_err(refused)?;
        Client::new(service, tls, most)
    }

    /// Something of this host did not work.
    pub(crate) fn failed(self, error: io::Error) -> Fault {
        Fault::from_io(error, self.op).side(Side::Us)
    }
}
