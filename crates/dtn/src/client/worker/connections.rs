//! The data connections of a session: when they are made, made anew, or done without.

use whimbrel_engine::transfer::{Job, Work};
use whimbrel_engine::{Fault, FaultCode, Side};
use whimbrel_proto::op::{Mode, OpId};

use super::Worker;
use crate::client::end::End;
use crate::client::flight::Flight;
use crate::client::pair::{DataWish, Pair, Role};

impl Worker {
    /// Has new data connections made when another congestion control is wanted: it is frozen in those that stand.
    pub(super) fn steer(&mut self) {
        let Some((_, pair)) = &mut self.pair else { return };
        let wanted = self.shared.wish_of(self.slot.0, || pair.congestions()).congestion;
        if let Some(wire) = &mut pair.wire
            && wire.reusable
            && wanted != pair.congestion
        {
            wire.reusable = false;
        }
    }

    /// Agrees on data connections, if the job needs some and none stand that can be used again.
    pub(super) async fn connect_for(&mut self, job: &Job) -> Result<Option<(Role, OpId)>, Fault> {
        let Some((_, pair)) = &mut self.pair else { return Ok(None) };
        if !needs_wire(job, pair) || pair.wire.is_some_and(|wire| wire.reusable) {
            return Ok(None);
        }
        let wish = self.shared.wish_of(self.slot.0, || pair.congestions());
        let connecting = connect(pair, &wish).await;
        connecting.map(Some).map_err(|(role, fault)| fault.side_if_unknown(role.side()))
    }

    /// Servers may take logins and no data connections: where nothing has moved, others of their endpoints are tried next, if
    /// there are any. Whether there are.
    pub(super) fn avoid(&self, flight: &Flight, fault: &Fault) -> bool {
        let unreachable = fault.side == Some(Side::Network) && flight.transfer.moved == 0;
        self.pair.as_ref().is_some_and(|(route, pair)| unreachable && self.shared.avoid(route, pair))
    }

    /// A server that cannot connect to us may still let us connect to it, which takes stream mode.
    pub(super) fn try_streams(&mut self, flight: &Flight, fault: &Fault) -> bool {
        let Some((route, pair)) = &mut self.pair else { return false };
        let here = matches!(pair.destination, End::Local(_)) && matches!(pair.source, End::Remote(_));
        let unreachable = fault.side == Some(Side::Network) || fault.code == FaultCode::NotSupported;
        let worth =
            here && unreachable && flight.transfer.moved == 0 && !pair.stream_only && pair.mode() == Mode::Extended;
        if worth {
            tracing::warn!(%fault, "the server cannot connect to this host; using passive stream mode");
            pair.stream_only = true;
            self.shared.use_streams(route);
        }
        worth
    }
}

/// Whether the job needs data connections.
pub(super) fn moves_data(job: &Job) -> bool {
    matches!(job.work, Work::Copy | Work::Chunk { .. })
}

/// Whether data connections are to be agreed on now: for a file in chunks already while it is opened, where that takes no
/// round trip, so that they stand when its first part is asked for.
fn needs_wire(job: &Job, pair: &Pair) -> bool {
    moves_data(job) || (matches!(job.work, Work::Open { .. }) && pair.early.is_some())
}

/// Agrees on data connections, plain streams where the ends have nothing better.
async fn connect(pair: &mut Pair, wish: &DataWish) -> Result<(Role, OpId), (Role, Fault)> {
    match pair.connect(wish).await {
        Err((_, fault)) if pair.mode() == Mode::Extended && fault.code == FaultCode::NotSupported => {
            tracing::info!(%fault, "no extended block mode; using stream mode");
            pair.stream_only = true;
            pair.connect(wish).await
        }
        result => result,
    }
}

/// Whether there is no session any more with the end that says so.
pub(super) fn ends_session(fault: &Fault) -> bool {
    matches!(fault.code, FaultCode::ConnectionLost | FaultCode::TimedOut | FaultCode::ServerBusy)
}
