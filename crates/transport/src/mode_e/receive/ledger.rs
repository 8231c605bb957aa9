//! When a MODE E transfer is complete, and when it can no longer become so.

use std::collections::BTreeSet;

use whimbrel_engine::{Fault, FaultCode, Side};
use whimbrel_proto::eblock::{ChannelId, Header, ReceiveConfig, ReceiveError, ReceiveMachine, ReceiveStep};

use super::ReceiveJob;

const OP: &str = "receive data";

/// The protocol's accounting, and how many connections may still add to it.
#[derive(Debug)]
pub(super) struct Ledger {
    machine: ReceiveMachine,
    /// Connections that may still carry blocks.
    active: u64,
    /// Of these, those that have yet to show the nonce, or to end their handshake.
    strangers: u64,
    /// Those with a handshake under way: anybody can begin one, and say nothing more.
    unproven: BTreeSet<ChannelId>,
}

impl Ledger {
    pub(super) fn new(job: &ReceiveJob<'_>) -> Self {
        let config = ReceiveConfig {
            promised: Some(job.bound.clone()),
            shift: job.origin,
            nonce: job.admission.nonce,
            // Admission limits open connections; over a transfer there may be more.
            max_channels: 0,
        };
        Self { machine: ReceiveMachine::new(config), active: 0, strangers: 0, unproven: BTreeSet::new() }
    }

    /// A connection takes part; `fresh` ones must show the nonce, those that are not `proven` end their handshake first.
    pub(super) fn join(&mut self, fresh: bool, proven: bool) -> Result<ChannelId, Fault> {
        let id = self.machine.add_channel(fresh).map_err(fault)?;
        self.active += 1;
        if !proven {
            self.unproven.insert(id);
        }
        self.strangers += u64::from(self.is_stranger(id));
        Ok(id)
    }

    /// Its handshake is over.
    pub(super) fn proven(&mut self, id: ChannelId) {
        let before = self.is_stranger(id);
        self.unproven.remove(&id);
        self.strangers -= u64::from(before && !self.is_stranger(id));
    }

    /// Whether a connection has yet to show the nonce, or to end its handshake.
    pub(super) fn is_stranger(&self, id: ChannelId) -> bool {
        self.machine.is_stranger(id) || self.unproven.contains(&id)
    }

    /// Connections that take part, and those that have yet to show who they are.
    pub(super) fn open(&self) -> (u64, u64) {
        (self.active - self.strangers, self.strangers)
    }

    /// A header came; `None` when the connection does not belong here.
    pub(super) fn header(&mut self, id: ChannelId, header: Header) -> Result<Option<ReceiveStep>, Fault> {
        let before = self.is_stranger(id);
        let step = self.machine.header(id, header);
        self.strangers -= u64::from(before && !self.is_stranger(id));
        match step {
            Err(error) if error.is_channel_only() => Ok(None),
            step => self.ended(step.map_err(fault)?).map(Some),
        }
    }

    /// All of a block's payload came.
    pub(super) fn block_end(&mut self, id: ChannelId) -> Result<ReceiveStep, Fault> {
        let len = self.machine.payload_left(id);
        let step = self.machine.payload(id, len).map_err(fault)?;
        self.ended(step.unwrap_or(ReceiveStep::Header))
    }

    fn ended(&mut self, step: ReceiveStep) -> Result<ReceiveStep, Fault> {
        self.active -= u64::from(matches!(step, ReceiveStep::EndOfData { .. }));
        Ok(step)
    }

    /// A connection closed; harmless only before it spoke.
    pub(super) fn closed(&mut self, id: ChannelId) -> Result<(), Fault> {
        self.active -= 1;
        self.strangers -= u64::from(self.is_stranger(id));
        self.unproven.remove(&id);
        self.machine.closed(id).map_err(fault)
    }

    pub(super) fn is_complete(&self) -> bool {
        self.machine.is_complete()
    }

    pub(super) fn eods(&self) -> u64 {
        self.machine.ends().0
    }

    /// Whether no open connection can complete the transfer.
    pub(super) fn is_deserted(&self) -> bool {
        self.active == 0 && !self.is_complete()
    }

    /// The fault of a deserted transfer that nobody can join any more.
    pub(super) fn deserted(&self, can_join: bool) -> Result<(), Fault> {
        if !self.is_deserted() || can_join {
            return Ok(());
        }
        let detail = match self.machine.ends() {
            (_, None) => "all data connections ended without EOF".to_owned(),
            (eods, Some(eodc)) => format!("data connections ended after {eods} of {eodc} EODs"),
        };
        Err(Fault::new(FaultCode::ConnectionLost, OP).side(Side::Network).detail(detail))
    }
}

/// A close is the network's fault, everything else a breach of the protocol by the sender.
fn fault(error: ReceiveError) -> Fault {
    let (code, side) = match error {
        ReceiveError::ClosedMidBlock | ReceiveError::ClosedBeforeEod | ReceiveError::NoEof => {
            (FaultCode::ConnectionLost, Side::Network)
        }
        ReceiveError::NotExpected => (FaultCode::Internal, Side::Us),
        _ => (FaultCode::PeerMisbehaved, Side::Peer),
    };
    Fault::new(code, OP).side(side).detail(error.to_string())
}
