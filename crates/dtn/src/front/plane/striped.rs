//! One operation on one or several nodes, as a machine: their messages in, one story out.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use whimbrel_connector::{Receipt, WriteSession};
use whimbrel_engine::RangeSet;
use whimbrel_proto::op::{Failure, FailureKind, Notice, Op, OpId, Outcome, ReceiveSpec};

use crate::mover::message::{FromMover, Stripe};

/// What the plane has to do next.
#[derive(Debug)]
pub(super) enum Progress {
    /// Tell the control machine.
    Notice(Notice),
    /// Tell the control machine; the operation is over.
    Outcome(Outcome),
    /// Run `op` on further nodes, joining `session`.
    Join {
        /// Where.
        nodes: Vec<usize>,
        /// What.
        op: Op,
        /// From the node that began.
        session: Box<WriteSession>,
    },
    /// Have one node complete a striped receive.
    Commit {
        /// Where.
        node: usize,
        /// The receive.
        spec: Box<ReceiveSpec>,
        /// From the node that began.
        session: Box<WriteSession>,
        /// Of all nodes.
        receipts: Vec<Receipt>,
        /// Stored by all nodes.
        bytes: u64,
    },
    /// Abort it on the nodes that still work on it.
    AbortOthers,
}

/// The operation that runs now.
pub(super) struct Running {
    pub(super) id: OpId,
    /// All engaged nodes in stripe order.
    nodes: Vec<usize>,
    /// Nodes whose end of the operation is still to come.
    waiting: BTreeSet<usize>,
    /// A striped receive, until it is committed.
    receive: Option<Receive>,
    /// Bytes of a file are yet to pass the data handle.
    moves_data: bool,
    opened: bool,
    addresses: BTreeMap<usize, Vec<SocketAddr>>,
    bytes: u64,
    done: Option<Outcome>,
    failed: Option<Failure>,
}

struct Receive {
    spec: Box<ReceiveSpec>,
    session: Option<Box<WriteSession>>,
    receipts: Vec<Receipt>,
}

impl Running {
    pub(super) fn new(id: OpId, op: &Op, nodes: &[usize]) -> Self {
        let receive = match op {
            Op::Receive(spec) if nodes.len() > 1 => {
                Some(Receive { spec: Box::new(spec.clone()), session: None, receipts: Vec::new() })
            }
            _ => None,
        };
        // A striped receive begins on one node; the others join what it began.
        let first = if receive.is_some() { 1 } else { nodes.len() };
        Self {
            id,
            nodes: nodes.to_vec(),
            waiting: nodes[..first].iter().copied().collect(),
            receive,
            moves_data: op.moves_data(),
            opened: false,
            addresses: BTreeMap::new(),
            bytes: 0,
            done: None,
            failed: None,
        }
    }

    /// Where the operation starts.
    pub(super) fn first_nodes(&self) -> Vec<usize> {
        self.waiting()
    }

    /// Whether only one node ever works on it.
    pub(super) fn is_on_one_node(&self) -> bool {
        self.nodes.len() == 1
    }

    /// Whether its failure leaves several nodes' data connections in states that nobody knows.
    pub(super) fn tears_handle(&self) -> bool {
        self.moves_data && self.nodes.len() > 1
    }

    /// Nodes that still work on it.
    pub(super) fn waiting(&self) -> Vec<usize> {
        self.waiting.iter().copied().collect()
    }

    /// Whether a node has, or may still get, a part in it.
    pub(super) fn needs(&self, tag: usize) -> bool {
        self.waiting.contains(&tag) || (self.receive.is_some() && self.nodes.contains(&tag))
    }

    /// A node's share.
    pub(super) fn stripe_of(&self, tag: usize) -> Stripe {
        let index = self.nodes.iter().position(|&node| node == tag).unwrap_or(0);
        // At most a few hundred nodes: a striped reply must fit one line per node.
        Stripe { index: index as u16, count: self.nodes.len() as u16 }
    }

    pub(super) fn absorb(&mut self, tag: usize, message: FromMover) -> Vec<Progress> {
        match message {
            FromMover::Notice { notice, .. } => self.notice(notice),
            FromMover::Session { session, .. } => self.began(session),
            FromMover::Received { bytes, receipt, .. } => {
                self.bytes += bytes;
                if let Some(receive) = &mut self.receive {
                    receive.receipts.push(extent(*receipt));
                }
                self.node_done(tag)
            }
            FromMover::Outcome { outcome, .. } => self.outcome(tag, outcome),
            FromMover::Hello { .. } | FromMover::Load(_) | FromMover::Transfers(_) | FromMover::Leaving => Vec::new(),
        }
    }

    /// A node died; whatever it had not made durable is lost, and the client restarts what is missing.
    pub(super) fn node_lost(&mut self, tag: usize) -> Vec<Progress> {
        if !self.waiting.contains(&tag) {
            return Vec::new();
        }
        let text = "A data node was lost; restart the transfer to send what is missing.".to_owned();
        self.outcome(tag, Outcome::Failed(Failure { kind: FailureKind::ConnectionBroken, text, checksums: None }))
    }

    fn notice(&mut self, notice: Notice) -> Vec<Progress> {
        // Data may flow as soon as one node is ready: the others listen already.
        if matches!(notice, Notice::Opened { .. }) && std::mem::replace(&mut self.opened, true) {
            return Vec::new();
        }
        vec![Progress::Notice(notice)]
    }

    fn began(&mut self, session: Box<WriteSession>) -> Vec<Progress> {
        let Some(receive) = &mut self.receive else {
            return Vec::new();
        };
        receive.session = Some(session.clone());
        let others = self.nodes[1..].to_vec();
        self.waiting.extend(&others);
        let op = Op::Receive((*receive.spec).clone());
        vec![Progress::Join { nodes: others, op, session }]
    }

    fn outcome(&mut self, tag: usize, outcome: Outcome) -> Vec<Progress> {
        let mut steps = Vec::new();
        match outcome {
            Outcome::Failed(failure) => {
                if self.failed.is_none() && self.waiting.len() > 1 {
                    steps.push(Progress::AbortOthers);
                }
                self.failed.get_or_insert(failure);
            }
            Outcome::Listening(addresses) => drop(self.addresses.insert(tag, addresses)),
            Outcome::Transferred { bytes, leaves, read_from } => {
                // A node of several knows only its own blocks of a leaf.
                let leaves = if self.done.is_none() { leaves } else { Vec::new() };
                self.bytes += bytes;
                let read_from = read_from.filter(|_| !leaves.is_empty());
                self.done = Some(Outcome::Transferred { bytes: self.bytes, leaves, read_from });
            }
            other => self.done = Some(other),
        }
        steps.extend(self.node_done(tag));
        steps
    }

    fn node_done(&mut self, tag: usize) -> Vec<Progress> {
        self.waiting.remove(&tag);
        if !self.waiting.is_empty() {
            return Vec::new();
        }
        if let Some(failure) = self.failed.take() {
            return vec![Progress::Outcome(Outcome::Failed(failure))];
        }
        match self.receive.take() {
            Some(Receive { spec, session: Some(session), receipts }) => {
                // The node that ended last is surely alive. Its outcome carries the bytes of all.
                self.waiting.insert(tag);
                self.moves_data = false;
                vec![Progress::Commit { node: tag, spec, session, receipts, bytes: std::mem::take(&mut self.bytes) }]
            }
            _ => vec![Progress::Outcome(self.combined())],
        }
    }

    fn combined(&mut self) -> Outcome {
        if self.addresses.is_empty() {
            return self.done.take().unwrap_or(Outcome::Done);
        }
        let in_order = self.nodes.iter().filter_map(|tag| self.addresses.get(tag));
        Outcome::Listening(in_order.flatten().copied().collect())
    }
}

/// What fits one message with those of all other nodes, however many ranges each tells: where a share begins and ends, which
/// is what a commit asks.
fn extent(receipt: Receipt) -> Receipt {
    match receipt.written.as_slice() {
        [first, .., last] => Receipt { written: RangeSet::from(first.start..last.end), ..receipt },
        _ => receipt,
    }
}

#[cfg(test)]
mod tests {
    use whimbrel_connector::StoragePath;
    use whimbrel_proto::op::DataParams;

    use super::*;
    use crate::mover::codec;
    use crate::mover::message::{MoverId, ToMover};

    const ID: OpId = OpId(5);

    fn outcome(outcome: Outcome) -> FromMover {
        FromMover::Outcome { mover: MoverId(1), id: ID, outcome }
    }

    fn receive() -> ReceiveSpec {
        ReceiveSpec::of(b"/f")
    }

    fn session() -> Box<WriteSession> {
        let path = StoragePath::root();
        Box::new(WriteSession { path: path.clone(), staging: path, rename: true, token: vec![], size: None })
    }

    #[test]
    fn a_striped_passive_lists_addresses_in_stripe_order() {
        let op = Op::Passive { striped: true, family: None, params: DataParams::default() };
        let mut running = Running::new(ID, &op, &[3, 7]);
        let address = |port| SocketAddr::from(([127, 0, 0, 1], port));
        assert!(running.absorb(7, outcome(Outcome::Listening(vec![address(70)]))).is_empty());
        let steps = running.absorb(3, outcome(Outcome::Listening(vec![address(30)])));
        let [Progress::Outcome(Outcome::Listening(addresses))] = &steps[..] else { panic!("{steps:?}") };
        assert_eq!(addresses[..], [address(30), address(70)]);
    }

    #[test]
    fn a_striped_receive_is_committed_once_when_every_node_has_its_share() {
        let mut running = Running::new(ID, &Op::Receive(receive()), &[0, 1]);
        assert_eq!(running.first_nodes(), [0]);
        let begun = running.absorb(0, FromMover::Session { mover: MoverId(1), id: ID, session: session() });
        assert!(matches!(&begun[..], [Progress::Join { nodes, .. }] if nodes[..] == [1]));
        let received = |bytes| FromMover::Received {
            mover: MoverId(1),
            id: ID,
            bytes,
            receipt: Box::new(Receipt { written: Default::default(), token: vec![] }),
        };
        assert!(running.absorb(1, received(10)).is_empty());
        let steps = running.absorb(0, received(5));
        assert!(matches!(&steps[..], [Progress::Commit { node: 0, receipts, bytes: 15, .. }] if receipts.len() == 2));
        let steps = running.absorb(0, outcome(Outcome::moved(15)));
        assert!(matches!(&steps[..], [Progress::Outcome(Outcome::Transferred { bytes: 15, .. })]));
    }

    #[test]
    fn the_commit_of_a_large_file_over_many_nodes_fits_a_message() {
        const NODES: usize = 100;
        // The most that one node tells, of a file of 100 GiB or more.
        let share = |node: u64| (0..10_000).map(move |block| (block * 100 + node) << 20).map(|at| at..at + (1 << 20));
        let nodes: Vec<usize> = (0..NODES).collect();
        let mut running = Running::new(ID, &Op::Receive(receive()), &nodes);
        running.absorb(0, FromMover::Session { mover: MoverId(1), id: ID, session: session() });
        let mut steps = Vec::new();
        for node in nodes {
            let receipt = Box::new(Receipt { written: share(node as u64).collect(), token: vec![] });
            steps = running.absorb(node, FromMover::Received { mover: MoverId(1), id: ID, bytes: 1, receipt });
        }
        let Some(Progress::Commit { spec, session, receipts, bytes, .. }) = steps.pop() else { panic!("{steps:?}") };
        let end = receipts.iter().map(|receipt| receipt.written.end()).max();
        assert_eq!(end, Some(share(NODES as u64 - 1).next_back().unwrap().end));
        let message = ToMover::Commit { mover: MoverId(1), id: ID, spec, session, receipts, bytes };
        assert!(codec::encode(&message, &mut Vec::new()).is_ok());
    }

    #[test]
    fn a_lost_node_fails_the_receive_after_the_others_have_stopped_and_nothing_is_committed() {
        let mut running = Running::new(ID, &Op::Receive(receive()), &[0, 1]);
        running.absorb(0, FromMover::Session { mover: MoverId(1), id: ID, session: session() });
        assert!(matches!(&running.node_lost(1)[..], [Progress::AbortOthers]));
        let aborted = Failure { kind: FailureKind::Aborted, text: String::new(), checksums: None };
        let steps = running.absorb(0, outcome(Outcome::Failed(aborted)));
        let [Progress::Outcome(Outcome::Failed(failure))] = &steps[..] else { panic!("{steps:?}") };
        assert_eq!(failure.kind, FailureKind::ConnectionBroken);
    }
}
