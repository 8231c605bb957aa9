//! Where the data side of a login comes from: a local data process, or data nodes that joined.

use std::collections::HashMap;
use std::sync::{Arc, MutexGuard};

use tokio::sync::Mutex;
use whimbrel_engine::{Fault, FaultCode, Side};

use super::gate::Gate;
use super::link::{MoverLink, add_load};
use super::nodes::NodeRegistry;
use crate::monitor::message::{AccountId, MappedAccount};
use crate::mover::message::{DataSettings, Load};

/// Starts data processes and knows the nodes.
pub struct DataSide {
    gate: Arc<Gate>,
    settings: DataSettings,
    /// One data process for each account.
    processes: Mutex<HashMap<AccountId, Arc<MoverLink>>>,
    /// Data nodes of a striped server.
    pub nodes: NodeRegistry,
    /// What data processes counted that are gone: a count never falls.
    retired: std::sync::Mutex<Load>,
}

impl DataSide {
    /// A data side that asks `gate` for a data process when a login needs it.
    pub fn new(gate: Arc<Gate>, settings: DataSettings) -> Self {
        Self {
            gate,
            settings,
            processes: Mutex::default(),
            nodes: NodeRegistry::default(),
            retired: Default::default(),
        }
    }

    /// The links a login of `account` uses now: the data nodes that take work and have this account, or, where there are no nodes, the local
    /// data process.
    ///
    /// # Errors
    /// `NotAuthorized` where all nodes have other accounts: they would read and write as somebody else.
    pub async fn links(&self, account: &MappedAccount) -> Result<Vec<Arc<MoverLink>>, Fault> {
        let mut nodes = self.nodes.ready();
        if nodes.is_empty() {
            return Ok(vec![self.local(account).await?]);
        }
        nodes.retain(|node| node.uid == account.uid);
        if nodes.is_empty() { Err(no_node_of(account)) } else { Ok(nodes) }
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

    async fn local(&self, account: &MappedAccount) -> Result<Arc<MoverLink>, Fault> {
        let mut processes = self.processes.lock().await;
        if let Some(link) = processes.get(&account.id).filter(|link| link.takes_work()) {
            return Ok(link.clone());
        }
        let link = self.start(account).await?;
        if let Some(lost) = processes.insert(account.id, link.clone()) {
            self.keep_counts(&lost);
        }
        Ok(link)
    }

    async fn start(&self, account: &MappedAccount) -> Result<Arc<MoverLink>, Fault> {
        let failed = |error| Fault::from_io(error, "start data process").side(Side::Us);
        let stream = self.gate.open(account.id).await?;
        stream.set_nonblocking(true).map_err(failed)?;
        let stream = tokio::net::UnixStream::from_std(stream).map_err(failed)?;
        MoverLink::open(stream, self.settings.clone()).await
    }
}

/// Told to whoever logged in: the administrator is the one who can do something.
fn no_node_of(account: &MappedAccount) -> Fault {
    let MappedAccount { name, uid, .. } = account;
    let detail = format!(
        "no data node of this server has the account of this login, number {uid}: its administrator has to start one that has (--anonymous-user)"
    );
    Fault::new(FaultCode::NotAuthorized, "choose data nodes").side(Side::Peer).subject(name).detail(detail)
}
