//! Where the data side of a login comes from: a local data process, or data nodes that joined.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::{Arc, MutexGuard};

use tokio::sync::Mutex;
use whimbrel_engine::{Fault, FaultCode, Side};

use super::link::{MoverLink, add_load};
use super::nodes::NodeRegistry;
use crate::mover::message::{DataSettings, Load};

/// A local account that handles data.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Account {
    /// Login name.
    pub name: String,
    /// User number.
    pub uid: u32,
    /// Primary group.
    pub gid: u32,
}

/// Starts data processes and knows the nodes.
pub struct DataSide {
    /// This program, started again as `data-process`.
    program: PathBuf,
    settings: DataSettings,
    /// One data process for each account; the key `None` is the server's own.
    processes: Mutex<HashMap<Option<Account>, Arc<MoverLink>>>,
    /// Data nodes of a striped server.
    pub nodes: NodeRegistry,
    /// What data processes counted that are gone: a count never falls.
    retired: std::sync::Mutex<Load>,
}

impl DataSide {
    /// A data side that starts `program data-process` when a login needs it.
    pub fn new(program: PathBuf, settings: DataSettings) -> Self {
        Self {
            program,
            settings,
            processes: Mutex::default(),
            nodes: NodeRegistry::default(),
            retired: Default::default(),
        }
    }

    /// The links a login of `account` uses now: the data nodes that take work, or else the local data process.
    pub async fn links(&self, account: Option<&Account>) -> Result<Vec<Arc<MoverLink>>, Fault> {
        let nodes = self.nodes.ready();
        if nodes.is_empty() { Ok(vec![self.local(account).await?]) } else { Ok(nodes) }
    }

    /// Every link there is, for metrics and draining.
    pub async fn all(&self) -> Vec<Arc<MoverLink>> {
        let mut links: Vec<_> = self.processes.lock().await.values().cloned().collect();
        links.extend(self.nodes.all());
        links
    }

    /// Takes a lost node out of the list, and keeps what it had counted.
    pub fn retire(&self, link: &Arc<MoverLink>) {
        self.nodes.remove(link);
        self.keep_counts(link);
    }

    fn keep_counts(&self, link: &MoverLink) {
        add_load(&mut self.retired(), link.load());
    }

    /// What data processes counted that are no longer among [`DataSide::all`].
    pub fn retired(&self) -> MutexGuard<'_, Load> {
        self.retired.lock().expect("no code panics while it holds the counts")
    }

    async fn local(&self, account: Option<&Account>) -> Result<Arc<MoverLink>, Fault> {
        let mut processes = self.processes.lock().await;
        let key = account.cloned();
        if let Some(link) = processes.get(&key).filter(|link| link.takes_work()) {
            return Ok(link.clone());
        }
        let link = self.start(account).await?;
        if let Some(lost) = processes.insert(key, link.clone()) {
            self.keep_counts(&lost);
        }
        Ok(link)
    }

    async fn start(&self, account: Option<&Account>) -> Result<Arc<MoverLink>, Fault> {
        let failed = |error| Fault::from_io(error, "start data process").side(Side::Us);
        let (ours, theirs) = UnixStream::pair().map_err(failed)?;
        let mut command = Command::new(&self.program);
        command.arg("data-process").stdin(Stdio::from(OwnedFd::from(theirs))).stdout(Stdio::null()).process_group(0);
        if let Some(account) = account {
            // As root this also drops the supplementary groups.
            command.uid(account.uid).gid(account.gid);
        }
        let mut child = command.spawn().map_err(failed)?;
        let pid = child.id();
        drop(command); // holds the child's end of the stream
        std::thread::spawn(move || match child.wait() {
            Ok(status) => tracing::info!(pid, %status, "data process ended"),
            Err(error) => tracing::error!(pid, %error, "data process cannot be waited for"),
        });
        ours.set_nonblocking(true).map_err(failed)?;
        let stream = tokio::net::UnixStream::from_std(ours).map_err(failed)?;
        tracing::info!(pid, account = account.map_or("own", |account| &account.name), "data process started");
        MoverLink::open(stream, self.settings.clone()).await
    }
}

/// Looks an account up by name.
pub fn account(name: &str) -> Result<Account, Fault> {
    let (uid, gid) = whimbrel_sys::accounts::user_ids(name)
        .map_err(|error| Fault::from_io(error, "look up account").subject(name))?
        .ok_or_else(|| {
            Fault::new(FaultCode::InvalidArgument, "look up account").subject(name).detail("no such account")
        })?;
    if uid == 0 {
        return Err(Fault::new(FaultCode::InvalidArgument, "look up account")
            .subject(name)
            .detail("data is never handled as root"));
    }
    Ok(Account { name: name.to_owned(), uid, gid })
}
