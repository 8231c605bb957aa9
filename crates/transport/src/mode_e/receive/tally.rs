//! When a MODE E transfer is complete, and when it can no longer become so.

use whimbrel_engine::{Fault, FaultCode, Side};

const OP: &str = "receive data";

/// Counts the ends of one transfer (GFD.20 §3.4): it is complete when an EOF has announced how many
/// EODs there are, and that many have come.
#[derive(Debug, Default)]
pub(super) struct Tally {
    pub(super) eods: u64,
    eodc: Option<u64>,
    /// Connections that may still carry blocks.
    pub(super) active: u64,
    /// Connections that carried blocks and closed without EOD.
    lost: u64,
}

impl Tally {
    pub(super) fn is_complete(&self) -> bool {
        self.eodc == Some(self.eods)
    }

    /// A connection carried an EOF with this EODC.
    pub(super) fn eof(&mut self, eodc: u64) -> Result<(), Fault> {
        if self.eodc.is_some() {
            return Err(misbehaved("a second EOF"));
        }
        if eodc == 0 || eodc < self.eods {
            let detail = format!("an EOF announces {eodc} EODs after {} came", self.eods);
            return Err(misbehaved(detail));
        }
        self.eodc = Some(eodc);
        Ok(())
    }

    /// A connection carried its EOD.
    pub(super) fn eod(&mut self) -> Result<(), Fault> {
        self.eods += 1;
        self.active -= 1;
        match self.eodc {
            Some(eodc) if self.eods > eodc => Err(misbehaved(format!("more than the {eodc} EODs announced"))),
            _ => Ok(()),
        }
    }

    /// A connection closed between blocks; `spoke`: it had carried some.
    pub(super) fn closed(&mut self, spoke: bool) {
        self.active -= 1;
        self.lost += u64::from(spoke);
    }

    /// Whether no open connection can complete the transfer.
    pub(super) fn is_deserted(&self) -> bool {
        self.active == 0 && !self.is_complete()
    }

    /// The fault of a deserted transfer that nobody can join any more.
    pub(super) fn deserted(&self, can_join: bool) -> Result<(), Fault> {
        if !self.is_deserted() || (can_join && self.lost == 0) {
            return Ok(());
        }
        let detail = match self.eodc {
            None => "all data connections ended without EOF".to_owned(),
            Some(eodc) => format!("data connections ended after {} of {eodc} EODs", self.eods),
        };
        Err(Fault::new(FaultCode::ConnectionLost, OP).side(Side::Network).detail(detail))
    }
}

/// A breach of the protocol by the sender.
pub(super) fn misbehaved(detail: impl Into<String>) -> Fault {
    Fault::new(FaultCode::PeerMisbehaved, OP).side(Side::Peer).detail(detail)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tally(active: u64) -> Tally {
        Tally { active, ..Tally::default() }
    }

    #[test]
    fn complete_when_as_many_eods_as_announced_have_come_in_any_order() {
        let mut tally = tally(2);
        tally.eod().expect("first");
        assert!(!tally.is_complete());
        tally.eof(2).expect("eof");
        assert!(!tally.is_complete());
        tally.eod().expect("second");
        assert!(tally.is_complete());
        assert!(tally.deserted(false).is_ok());
    }

    #[test]
    fn contradictions_are_the_peers_fault() {
        let mut twice = tally(2);
        twice.eof(2).expect("eof");
        assert_eq!(twice.eof(2).expect_err("twice").code, FaultCode::PeerMisbehaved);
        let mut few = tally(3);
        few.eod().expect("first");
        few.eod().expect("second");
        assert_eq!(few.eof(1).expect_err("too few").code, FaultCode::PeerMisbehaved);
        let mut many = tally(2);
        many.eof(1).expect("eof");
        many.eod().expect("first");
        assert_eq!(many.eod().expect_err("too many").code, FaultCode::PeerMisbehaved);
        assert!(tally(1).eof(0).is_err());
    }

    #[test]
    fn desertion_is_final_once_data_may_be_missing() {
        let mut stranger = tally(1);
        stranger.closed(false);
        assert!(stranger.deserted(true).is_ok(), "the sender may still come");
        assert!(stranger.deserted(false).is_err());
        let mut sender = tally(1);
        sender.closed(true);
        let fault = sender.deserted(true).expect_err("it came and went");
        assert_eq!(fault.code, FaultCode::ConnectionLost);
    }
}
