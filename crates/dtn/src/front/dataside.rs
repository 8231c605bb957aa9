//! Where the data side of a login comes from: a local data process, or data nodes that joined.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use whimbrel_engine::{Fault, FaultCode, Side};

use super::gate::Gate;
use super::link::{MoverLink, add_load};
use super::listening::Listening;
use super::nodes::NodeRegistry;
use super::turns::Turns;
use crate::monitor::message::{AccountId, MappedAccount};
use crate::mover::message::{DataSettings, Load};

/// Starts data processes and knows the nodes.
pub struct DataSide {
    gate: Arc<Gate>,
    settings: DataSettings,
    /// One data process for each account.
    processes: Mutex<HashMap<AccountId, Arc<MoverLink>>>,
    /// Numbers of those that nobody used when it was last looked.
    idle: Mutex<HashSet<u64>>,
    /// Who starts one.
    turns: Turns,
    /// Data nodes of a striped server.
    pub nodes: NodeRegistry,
    /// Where logins wait for data.
    pub listening: Arc<Listening>,
    /// What data processes counted that are gone: a count never falls.
    retired: Mutex<Load>,
}

impl DataSide {
    /// A data side that asks `gate` for a data process when a login needs it.
    pub fn new(gate: Arc<Gate>, settings: DataSettings) -> Self {
        Self {
            gate,
            settings,
            processes: Mutex::default(),
            idle: Mutex::default(),
            turns: Turns::default(),
            nodes: NodeRegistry::default(),
            listening: Arc::default(),
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
    pub fn all(&self) -> Vec<Arc<MoverLink>> {
        let mut links: Vec<_> = self.processes().values().cloned().collect();
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

    /// The data process of an account; one that has to be started keeps only those waiting who want it, too, and they share what comes of it.
    async fn local(&self, account: &MappedAccount) -> Result<Arc<MoverLink>, Fault> {
        if let Some(link) = self.running(account.id) {
            return Ok(link);
        }
        let place = self.turns.place(account.id);
        let mut turn = place.turn().await;
        if let Some(link) = self.running(account.id) {
            return Ok(link);
        }
        if let Some(fault) = &*turn {
            return Err(fault.clone());
        }
        match self.start(account).await {
            Ok(link) => {
                let lost = self.processes().insert(account.id, link.clone());
                lost.iter().for_each(|lost| self.keep_counts(lost));
                Ok(link)
            }
            Err(fault) => {
                *turn = Some(fault.clone());
                Err(fault)
            }
        }
    }

    /// Ends data processes that nobody has used since the last call, so that a server does not keep one for each account it has ever
    /// seen, and forgets those that have ended. No login comes between: the front has one thread, and attaches where it has asked for
    /// the link.
    pub fn tidy(&self) {
        let mut ended = Vec::new();
        self.processes().retain(|_, link| {
            let stays = link.is_alive();
            ended.extend((!stays).then(|| link.clone()));
            stays
        });
        ended.iter().for_each(|link| self.keep_counts(link));
        let idle: Vec<_> = self.processes().values().filter(|link| link.movers() == 0).cloned().collect();
        let numbers = idle.iter().map(|link| link.number).collect();
        let before = std::mem::replace(&mut *self.idle.lock().unwrap_or_else(PoisonError::into_inner), numbers);
        idle.iter().filter(|link| before.contains(&link.number)).for_each(|link| link.drain());
    }

    fn running(&self, account: AccountId) -> Option<Arc<MoverLink>> {
        self.processes().get(&account).filter(|link| link.takes_work()).cloned()
    }

    fn processes(&self) -> MutexGuard<'_, HashMap<AccountId, Arc<MoverLink>>> {
        self.processes.lock().expect("no code panics while it holds the processes")
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

#[cfg(test)]
pub(super) mod tests {
    use std::path::Path;

    use tokio::net::UnixStream;
    use tokio::sync::watch;

    use super::super::gate::MonitorLink;
    use super::super::link::tests::{greet, identity, settings, told};
    use super::*;
    use crate::monitor::message::{FromMonitor, ToMonitor};
    use crate::mover::message::ToMover;
    use crate::packets::Channel;

    pub fn account(number: u32) -> MappedAccount {
        let (name, home, groups) = (format!("user{number}"), b"/".to_vec(), Some(Vec::new()));
        MappedAccount { id: AccountId(number), name, uid: 1000 + number, home, groups }
    }

    /// A data side and the monitor's end of its channel.
    pub fn data_side() -> (Arc<DataSide>, Channel) {
        let (ours, theirs) = Channel::pair().expect("pair");
        let gate = Gate::Monitor(Arc::new(MonitorLink::new(ours, watch::Sender::new(false)).expect("link")));
        (Arc::new(DataSide::new(Arc::new(gate), settings(Path::new("/")))), theirs)
    }

    /// Waits for the next question, which is for a data process, and hands out its stream; the process' end of it, with the account.
    pub async fn asked(monitor: &Channel) -> (AccountId, UnixStream) {
        let (message, _) = loop {
            match monitor.receive::<ToMonitor>() {
                Ok(Some(message)) => break message,
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => tokio::task::yield_now().await,
                other => panic!("{other:?}"),
            }
        };
        let ToMonitor::Open { ticket, account } = message else { panic!("{message:?}") };
        let (near, far) = std::os::unix::net::UnixStream::pair().expect("pair");
        let opened = FromMonitor::Opened { ticket, result: Ok(()) };
        monitor.send(&opened, &[std::os::fd::AsFd::as_fd(&near)]).expect("told");
        far.set_nonblocking(true).expect("set");
        (account, UnixStream::from_std(far).expect("stream"))
    }

    fn log_in(side: &Arc<DataSide>, number: u32) -> tokio::task::JoinHandle<Result<Vec<Arc<MoverLink>>, Fault>> {
        let side = side.clone();
        tokio::spawn(async move { side.links(&account(number)).await })
    }

    #[tokio::test]
    async fn an_account_whose_process_is_slow_to_start_stops_no_other() {
        let (side, monitor) = data_side();
        let slow = log_in(&side, 1);
        let (first, mut silent) = asked(&monitor).await;
        assert_eq!(first, AccountId(1));
        // It has been asked for, and says nothing yet.
        let quick = log_in(&side, 2);
        let (second, mut process) = asked(&monitor).await;
        assert_eq!(second, AccountId(2));
        greet(&mut process).await;
        let link = quick.await.expect("no panic").expect("served").remove(0);
        assert!(!slow.is_finished() && side.turns.accounts() == 1 && side.all().len() == 1);
        // The same account's logins share one process.
        let also = log_in(&side, 1);
        greet(&mut silent).await;
        let links = [slow.await.expect("no panic").expect("served"), also.await.expect("no panic").expect("served")];
        assert!(Arc::ptr_eq(&links[0][0], &links[1][0]) && !Arc::ptr_eq(&links[0][0], &link));
        assert_eq!((side.turns.accounts(), side.all().len()), (0, 2));
        assert!(monitor.receive::<ToMonitor>().is_err(), "nothing more was asked");
    }

    #[tokio::test]
    async fn a_process_that_nobody_uses_is_let_go_and_one_that_is_used_stays() {
        let (side, monitor) = data_side();
        let mut links = Vec::new();
        let mut processes = Vec::new();
        for number in [1, 2] {
            let login = log_in(&side, number);
            let (_, mut process) = asked(&monitor).await;
            greet(&mut process).await;
            links.push(login.await.expect("no panic").expect("served").remove(0));
            processes.push(process);
        }
        let (events, _heard) = tokio::sync::mpsc::unbounded_channel();
        let _used = links[1].attach(identity(), 0, events).expect("attached");
        assert!(matches!(told(&mut processes[1]).await, ToMover::Attach { .. }));
        side.tidy();
        assert_eq!(side.all().len(), 2, "it may have been used a moment ago");
        side.tidy();
        assert_eq!(told(&mut processes[0]).await, ToMover::Drain);
        drop(processes.remove(0));
        links[0].lost().await;
        side.tidy();
        assert!(side.all().len() == 1 && Arc::ptr_eq(&side.all()[0], &links[1]));
        assert!(processes[0].try_read(&mut [0; 8]).is_err(), "nothing is said to the other");
    }

    #[tokio::test]
    async fn those_who_wait_for_a_start_share_its_failure_and_the_next_tries_anew() {
        let (side, monitor) = data_side();
        let place = side.turns.place(AccountId(1));
        let turn = place.turn().await;
        let logins: Vec<_> = (0..3).map(|_| log_in(&side, 1)).collect();
        while place.waiters() < 5 {
            tokio::task::yield_now().await;
        }
        drop(turn);
        drop(asked(&monitor).await); // the process is gone at once
        drop(place);
        for login in logins {
            assert_eq!(login.await.expect("no panic").err().map(|fault| fault.code), Some(FaultCode::NodeLost));
        }
        assert!(monitor.receive::<ToMonitor>().is_err(), "only one process was asked for");
        assert_eq!(side.turns.accounts(), 0);
        let next = log_in(&side, 1);
        let (_, mut process) = asked(&monitor).await;
        greet(&mut process).await;
        assert!(next.await.expect("no panic").is_ok());
    }
}
