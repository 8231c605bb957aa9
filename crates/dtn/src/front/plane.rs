//! One control connection's data side: which nodes carry out an operation, and their answers as one.
//!
//! Without striping there is one node and messages pass through. With data nodes, a striped PASV
//! opens a listener on each, and transfers run on every node whose address the peers know.

mod striped;
#[cfg(test)]
mod tests;

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::Arc;

use whimbrel_engine::{Fault, FaultCode};
use whimbrel_proto::command::Secret;
use whimbrel_proto::op::{DataParams, Failure, FailureKind, Mode, Notice, Op, OpId, Outcome, Shield};

use self::striped::{Progress, Running};
use super::dataside::DataSide;
use super::link::{EventSender, MOST_NEWS, MoverEvent, MoverHandle};
use super::listening::Announced;
use super::queue;
use crate::monitor::message::MappedAccount;
use crate::mover::message::{FromMover, Identity, Stripe, ToMover};

/// What the data side tells the control machine.
#[derive(Debug, PartialEq)]
pub enum PlaneEvent {
    /// News of the running operation.
    Notice(OpId, Notice),
    /// Its end.
    Outcome(OpId, Outcome),
    /// So much waits for the client, who does not read, that news were dropped: the connection is over.
    Overrun,
}

/// The data side of one login.
pub struct Plane {
    data_side: Arc<DataSide>,
    account: MappedAccount,
    identity: Identity,
    labels: (Option<String>, Option<String>),
    /// Nodes that are to be told the labels with their next operation: what a client only says costs nobody anything.
    unlabelled: BTreeSet<usize>,
    /// The credential that the client brought for its data connections, and the operation that did (DCSC).
    brought: Option<(OpId, Secret)>,
    nodes: HashMap<usize, MoverHandle>,
    /// Of these, those that finish what runs and then leave.
    leaving: BTreeSet<usize>,
    next_tag: usize,
    /// A node was lost since somebody last asked for what was stored to be made durable.
    lost: bool,
    events: queue::Receiver<(usize, MoverEvent)>,
    sender: EventSender,
    /// Nodes that hold the data handle, in stripe order.
    engaged: Vec<usize>,
    /// They listen, and their peers know how many they are.
    listens: bool,
    /// Operations that nodes work on, in order: one, or several on the same single node.
    running: VecDeque<Running>,
    /// Operations whose turn comes when nothing runs.
    waiting: VecDeque<(OpId, Op)>,
    ready: VecDeque<PlaneEvent>,
    home: Vec<u8>,
    /// Where connections that prove themselves by a nonce are waited for.
    announced: Option<Announced>,
    /// The operation that makes such a handle.
    announces: Option<OpId>,
}

/// The one operation that no control machine has asked for: they count from 1.
const ENTER_HOME: OpId = OpId(0);

impl Plane {
    /// Attaches a login to the data side.
    pub async fn attach(data_side: Arc<DataSide>, account: MappedAccount, identity: Identity) -> Result<Self, Fault> {
        let (sender, events) = queue::bounded(MOST_NEWS);
        let sender = EventSender::from(sender);
        let mut plane = Self {
            data_side,
            account,
            identity,
            labels: (None, None),
            unlabelled: BTreeSet::new(),
            brought: None,
            nodes: HashMap::new(),
            leaving: BTreeSet::new(),
            next_tag: 0,
            lost: false,
            events,
            sender,
            engaged: Vec::new(),
            listens: false,
            running: VecDeque::new(),
            waiting: VecDeque::new(),
            ready: VecDeque::new(),
            home: b"/".to_vec(),
            announced: None,
            announces: None,
        };
        plane.refresh().await?;
        plane.enter_home().await;
        Ok(plane)
    }

    /// Who is logged in.
    pub fn user(&self) -> &str {
        &self.identity.user
    }

    /// Where the login begins: the account's home directory, or `/` where that cannot be entered.
    pub fn home(&self) -> &[u8] {
        &self.home
    }

    /// Only the account itself can tell whether its home directory is there.
    async fn enter_home(&mut self) {
        let home = self.account.home.clone();
        if home == b"/" {
            return;
        }
        self.run(ENTER_HOME, Op::EnterDirectory(home.clone())).await;
        loop {
            match self.next(true).await {
                PlaneEvent::Outcome(ENTER_HOME, Outcome::Failed(_)) | PlaneEvent::Overrun => return,
                PlaneEvent::Outcome(ENTER_HOME, _) => return self.home = home,
                _ => {}
            }
        }
    }

    /// Attaches to nodes that joined since, and to a fresh data process if the last one died.
    async fn refresh(&mut self) -> Result<(), Fault> {
        let links = match self.data_side.links(&self.account).await {
            // Nodes of others have joined since: this login keeps what it has.
            Err(fault) if fault.code == FaultCode::NotAuthorized && !self.nodes.is_empty() => Vec::new(),
            links => links?,
        };
        for link in links {
            if self.nodes.values().any(|node| Arc::ptr_eq(node.link(), &link)) {
                continue;
            }
            let tag = self.next_tag;
            self.next_tag += 1;
            let handle = link.attach(self.identity.clone(), tag, self.sender.clone())?;
            self.unlabelled.insert(tag);
            self.nodes.insert(tag, handle);
            if let Some((id, credential)) = self.brought.clone() {
                // Should it refuse what others took, the data handle that is made next tells why.
                self.send_op(tag, id, Op::DataCredential(Some(credential)), Stripe::WHOLE, None);
            }
        }
        Ok(())
    }

    /// End of the login, in seconds since 1970; `None`: it has none.
    pub fn until(&self) -> Option<i64> {
        self.identity.rules.until
    }

    /// Labels the movers' log lines.
    pub fn label(&mut self, task: Option<String>, client: Option<String>) {
        self.labels = (task.or(self.labels.0.take()), client.or(self.labels.1.take()));
        self.unlabelled = self.nodes.keys().copied().collect();
    }

    fn send_labels(&mut self, tag: usize) {
        let (task, client) = self.labels.clone();
        if self.unlabelled.remove(&tag)
            && (task.is_some() || client.is_some())
            && let Some(node) = self.nodes.get(&tag)
        {
            // A node that is gone says so by its own event.
            let _gone = node.send(ToMover::Label { mover: node.id, task, client });
        }
    }

    /// Starts an operation, or queues it behind those that run; exactly one outcome will follow.
    pub async fn run(&mut self, id: OpId, op: Op) {
        self.waiting.push_back((id, op));
        self.start_waiting().await;
    }

    /// Starts what may start now: anything when nothing runs; behind what runs only what goes to the same single node,
    /// which keeps the order by itself.
    async fn start_waiting(&mut self) {
        while let Some((_, op)) = self.waiting.front() {
            if !self.running.is_empty() && !self.may_follow(op) {
                return;
            }
            let (id, op) = self.waiting.pop_front().expect("looked at above");
            self.start(id, op).await;
        }
    }

    /// Whether `op` can be sent behind what runs.
    fn may_follow(&self, op: &Op) -> bool {
        let alone =
            self.nodes.len() == 1 && self.leaving.is_empty() && self.running.iter().all(Running::is_on_one_node);
        alone && !matches!(op, Op::Passive { .. } | Op::Active { .. })
    }

    async fn start(&mut self, id: OpId, op: Op) {
        if self.needs_fresh_nodes(&op)
            && let Err(fault) = self.refresh().await
        {
            return self.fail(id, FailureKind::Busy, &fault.to_string());
        }
        if matches!(op, Op::Sync(_)) && std::mem::take(&mut self.lost) {
            let text = "A data node was lost meanwhile; nobody can make durable what it had stored.";
            return self.fail(id, FailureKind::Busy, text);
        }
        let broken = self.is_broken_for(&op);
        if broken {
            self.close_handle(id);
        }
        let held = self.engaged.clone();
        let nodes = self.nodes_for(&op);
        if matches!(op, Op::Passive { .. } | Op::Active { .. }) {
            self.close_on(held.into_iter().filter(|tag| !nodes.contains(tag)), id);
        }
        if broken || nodes.is_empty() {
            let text = "No data node holds this data connection any more; set it up again.";
            return self.fail(id, FailureKind::NoDataHandle, text);
        }
        if let Op::DataCredential(credential) = &op {
            self.brought = credential.clone().map(|credential| (id, credential));
        }
        let running = Running::new(id, &op, &nodes);
        self.handle_changes(id, &op, &nodes);
        for tag in running.first_nodes() {
            self.send_op(tag, id, op.clone(), running.stripe_of(tag), None);
        }
        self.running.push_back(running);
    }

    /// Before an operation that makes a data handle or ends it: what this server's logins wait for is no stranger's service.
    fn handle_changes(&mut self, id: OpId, op: &Op, nodes: &[usize]) {
        match op {
            Op::Passive { params, .. } => {
                (self.announced, self.announces) = (None, shows_nonce(params).then_some(id));
            }
            Op::Active { targets, params } => {
                (self.announced, self.announces) = (None, None);
                let addresses = self.data_side.listening.known(targets);
                if shows_nonce(params) && params.shield == Shield::None && !addresses.is_empty() {
                    for node in nodes.iter().filter_map(|tag| self.nodes.get(tag)) {
                        // A node that is gone says so by its own event.
                        let _gone = node.send(ToMover::Listening { mover: node.id, addresses: addresses.clone() });
                    }
                }
            }
            Op::CloseData | Op::DataCredential(_) => (self.announced, self.announces) = (None, None),
            _ => {}
        }
    }

    /// Aborts an operation; its outcome still comes.
    pub fn abort(&mut self, id: OpId) {
        if let Some(at) = self.waiting.iter().position(|(waiting, _)| *waiting == id) {
            self.waiting.remove(at);
            return self.fail(id, FailureKind::Aborted, "Aborted before it began.");
        }
        let Some(running) = self.running.iter().find(|running| running.id == id) else { return };
        for tag in running.waiting() {
            if let Some(node) = self.nodes.get(&tag) {
                // A node that is gone says so by its own event.
                let _ = node.send(ToMover::Abort { mover: node.id, id });
            }
        }
    }

    /// The next thing to tell the control machine; never resolves while there is nothing. Without `room` for what the client is told it is only about
    /// what cannot wait for room.
    ///
    /// Cancel safe: an operation whose start is cut off stays at the head of the queue or runs.
    pub async fn next(&mut self, room: bool) -> PlaneEvent {
        loop {
            if room && let Some(event) = self.ready.pop_front() {
                return event;
            }
            if self.events.is_overrun() {
                return PlaneEvent::Overrun;
            }
            if !room {
                self.events.overrun().await;
                continue;
            }
            // The queue's room is for what comes in, so what is dropped is seen at the next event at the latest.
            let (tag, event) = self.events.recv().await.expect("the plane holds a sender itself");
            self.absorb(tag, event);
        }
    }

    /// What has already arrived, without waiting; starts what waited for it.
    pub async fn try_next(&mut self) -> Option<PlaneEvent> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Some(event);
            }
            if self.running.is_empty() && !self.waiting.is_empty() {
                self.start_waiting().await;
                continue;
            }
            let (tag, event) = self.events.try_recv()?;
            self.absorb(tag, event);
        }
    }

    fn needs_fresh_nodes(&self, op: &Op) -> bool {
        self.nodes.is_empty() || matches!(op, Op::Passive { .. } | Op::Active { .. } | Op::Sync(_))
    }

    /// Whether `op` needs a data handle that a node has left whose address peers still have: what they send there, or to
    /// the others with an end of its own, would be missed by nobody.
    fn is_broken_for(&self, op: &Op) -> bool {
        let needs = op.moves_data() || matches!(op, Op::SendListing(_));
        needs && self.listens && self.engaged.iter().any(|tag| !self.nodes.contains_key(tag))
    }

    /// Closes the data handle on all nodes that hold it; nobody is told how that went.
    fn close_handle(&mut self, id: OpId) {
        (self.announced, self.announces) = (None, None);
        let held = std::mem::take(&mut self.engaged);
        self.close_on(held.into_iter(), id);
    }

    /// Closes what data handles these nodes have; nobody is told how that went.
    fn close_on(&mut self, tags: impl Iterator<Item = usize>, id: OpId) {
        for tag in tags {
            if self.nodes.contains_key(&tag) {
                self.send_op(tag, id, Op::CloseData, Stripe::WHOLE, None);
            }
        }
    }

    /// Which nodes carry out `op`, in stripe order.
    fn nodes_for(&mut self, op: &Op) -> Vec<usize> {
        let mut all: Vec<usize> = self.nodes.keys().copied().collect();
        all.sort_unstable();
        match op {
            Op::Passive { .. } => self.listens = true,
            Op::Active { .. } => self.listens = false,
            _ => {}
        }
        match op {
            Op::Passive { striped: true, .. } => self.engaged = all,
            Op::Passive { striped: false, .. } => self.engaged = self.least_loaded(all),
            Op::Active { targets, .. } if targets.len() == 1 => self.engaged = self.least_loaded(all),
            // More nodes than addresses share them when they send.
            Op::Active { .. } => self.engaged = all,
            // Whichever of them has a data handle next; those of before are closed.
            Op::DataCredential(_) => {
                self.engaged.clear();
                return all;
            }
            // Each may have stored some of it, over whatever login.
            Op::Sync(_) => return all,
            _ if uses_handle(op) => {
                self.engaged.retain(|tag| self.nodes.contains_key(tag));
            }
            Op::SendListing(_) => {
                self.engaged.retain(|tag| self.nodes.contains_key(tag));
                return self.engaged.first().copied().into_iter().collect();
            }
            _ => return all.into_iter().take(1).collect(),
        }
        if self.engaged.is_empty() && uses_handle(op) {
            // Without a data handle any node can say so in the right words.
            return self.nodes.keys().copied().take(1).collect();
        }
        self.engaged.clone()
    }

    fn least_loaded(&self, tags: Vec<usize>) -> Vec<usize> {
        let load = |tag: &usize| self.nodes.get(tag).map_or(usize::MAX, |node| node.link().movers());
        tags.into_iter().min_by_key(load).into_iter().collect()
    }

    fn send_op(
        &mut self,
        tag: usize,
        id: OpId,
        op: Op,
        stripe: Stripe,
        session: Option<Box<whimbrel_connector::WriteSession>>,
    ) {
        self.send_labels(tag);
        let sent = self.nodes.get(&tag).is_some_and(|node| {
            node.send(ToMover::Run { mover: node.id, id, op: Box::new(op), stripe, session }).is_ok()
        });
        if !sent {
            // Its loss is news of its own; a repeated one is ignored.
            self.sender.tell(tag, MoverEvent::Lost);
        }
    }

    fn absorb(&mut self, tag: usize, event: MoverEvent) {
        match event {
            MoverEvent::Leaving => {
                self.leaving.insert(tag);
            }
            MoverEvent::Lost => {
                self.lost = true;
                self.nodes.remove(&tag);
                self.leaving.remove(&tag);
                self.unlabelled.remove(&tag);
                let ids: Vec<OpId> = self.running.iter().map(|running| running.id).collect();
                for id in ids {
                    self.step(id, |running| running.node_lost(tag));
                }
            }
            MoverEvent::Message(message) => self.take_in(tag, message),
        }
        self.let_go();
    }

    fn take_in(&mut self, tag: usize, message: FromMover) {
        if let (FromMover::Notice { notice: Notice::Lines(lines), .. }, Some(node)) = (&message, self.nodes.get(&tag)) {
            // The mover waits for this before it sends much more. One that does not read it is no use any more: it would wait for ever.
            if node.send(ToMover::Heard { mover: node.id, bytes: lines.len() as u64 }).is_err() {
                self.sender.tell(tag, MoverEvent::Lost);
            }
        }
        match id_of(&message) {
            Some(id) if self.running.iter().any(|running| running.id == id) => {
                self.step(id, |running| running.absorb(tag, message));
            }
            _ => tracing::debug!(?message, "news of an operation that is over"),
        }
    }

    /// Detaches from leaving nodes that have nothing more to do here; a data handle they hold is gone then.
    fn let_go(&mut self) {
        let running = &self.running;
        let idle = |tag: &usize| !running.iter().any(|running| running.needs(*tag));
        for tag in self.leaving.iter().copied().filter(idle).collect::<Vec<_>>() {
            self.leaving.remove(&tag);
            self.unlabelled.remove(&tag);
            self.nodes.remove(&tag);
        }
    }

    /// Lets one running operation take something in, and does what follows from it.
    fn step(&mut self, id: OpId, take_in: impl FnOnce(&mut Running) -> Vec<Progress>) {
        let Some(running) = self.running.iter_mut().find(|running| running.id == id) else { return };
        for step in take_in(running) {
            self.act(id, step);
        }
    }

    fn act(&mut self, id: OpId, step: Progress) {
        match step {
            Progress::Notice(notice) => self.ready.push_back(PlaneEvent::Notice(id, notice)),
            Progress::Outcome(outcome) => {
                // The others may hold bytes that the next file would get.
                let torn = matches!(outcome, Outcome::Failed(_))
                    && self.running.iter().any(|running| running.id == id && running.tears_handle());
                self.running.retain(|running| running.id != id);
                if torn {
                    self.close_handle(id);
                }
                let announces = self.announces.take_if(|by| *by == id).is_some();
                if let (true, Outcome::Listening(addresses)) = (announces, &outcome) {
                    self.announced = Some(self.data_side.listening.announce(addresses));
                }
                if matches!(outcome, Outcome::Failed(_)) && self.brought.take_if(|(by, _)| *by == id).is_some() {
                    // Nodes that took it must not use what the client was told to be refused.
                    self.nodes.keys().copied().collect::<Vec<_>>().into_iter().for_each(|tag| {
                        self.send_op(tag, id, Op::DataCredential(None), Stripe::WHOLE, None);
                    });
                }
                self.ready.push_back(PlaneEvent::Outcome(id, outcome));
            }
            Progress::Join { nodes, op, session } => {
                let Some(running) = self.running.iter().find(|running| running.id == id) else { return };
                let stripes: Vec<_> = nodes.iter().map(|&tag| (tag, running.stripe_of(tag))).collect();
                for (tag, stripe) in stripes {
                    self.send_op(tag, id, op.clone(), stripe, Some(session.clone()));
                }
            }
            Progress::Commit { node, spec, session, receipts, bytes } => {
                let sent = self.nodes.get(&node).is_some_and(|node| {
                    let mover = node.id;
                    node.send(ToMover::Commit { mover, id, spec, session, receipts, bytes }).is_ok()
                });
                if !sent {
                    self.sender.tell(node, MoverEvent::Lost);
                }
            }
            Progress::AbortOthers => self.abort(id),
        }
    }

    fn fail(&mut self, id: OpId, kind: FailureKind, text: &str) {
        let failure = Failure { kind, text: text.to_owned(), checksums: None };
        self.ready.push_back(PlaneEvent::Outcome(id, Outcome::Failed(failure)));
    }
}

fn id_of(message: &FromMover) -> Option<OpId> {
    match message {
        FromMover::Notice { id, .. }
        | FromMover::Outcome { id, .. }
        | FromMover::Session { id, .. }
        | FromMover::Received { id, .. } => Some(*id),
        FromMover::Hello { .. } | FromMover::Load(_) | FromMover::Transfers(_) | FromMover::Leaving => None,
    }
}

/// Whether connections of a handle show a nonce.
fn shows_nonce(params: &DataParams) -> bool {
    params.nonce.is_some() && params.mode == Mode::Extended
}

/// Whether an operation is for the nodes of the data handle.
fn uses_handle(op: &Op) -> bool {
    op.moves_data() || matches!(op, Op::CloseData)
}
