//! A control connection whose lines are wrapped one by one, behind AUTH GSSAPI (RFC 2228 §3).

use bytes::BytesMut;
use whimbrel_engine::FaultCode;
use whimbrel_proto::protect::{CommandOpener, ProtectError, ReplySealer};
use whimbrel_proto::server::{Secret, ServerConfig};
use whimbrel_trust::TrustFault;
use whimbrel_trust::wrap::Wrap;

/// Wrapped lines of one connection.
pub(in crate::front) struct Lines {
    machine: Wrap,
    opener: CommandOpener,
    sealer: ReplySealer,
    /// What the client handed on, PEM.
    pub(super) delegated: Option<Secret>,
}

impl Lines {
    /// Lines that a context protects which has just been established.
    pub(in crate::front) fn new(machine: Wrap, delegated: Option<Secret>) -> Self {
        let opener = CommandOpener::new(ServerConfig::default().max_line);
        Self { machine, opener, sealer: ReplySealer::default(), delegated }
    }

    pub(super) fn open(&mut self, wire: &[u8], plain: &mut BytesMut) -> Result<(), TrustFault> {
        let mut lines = Vec::new();
        let opened = self.opener.feed(&mut self.machine, wire, &mut lines);
        plain.extend_from_slice(&lines);
        opened.map_err(|error| match error {
            ProtectError::Fault(fault) => fault,
            other => TrustFault::new(FaultCode::EncryptionFailed, other.to_string()),
        })
    }

    pub(super) fn seal(&mut self, plain: &[u8], out: &mut BytesMut) -> Result<(), TrustFault> {
        let mut wire = Vec::new();
        let sealed = self.sealer.feed(&mut self.machine, plain, &mut wire);
        out.extend_from_slice(&wire);
        sealed
    }
}
