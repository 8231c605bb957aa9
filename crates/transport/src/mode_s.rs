//! MODE S: one connection, payload only, end of file is its close (RFC 959 §3.4.1).

use whimbrel_engine::Fault;

use crate::block::{BlockSink, BlockSource};
use crate::channel::DataChannel;
use crate::flow::Flow;

/// How lines travel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Representation {
    /// Bytes as they are (TYPE I).
    Image,
    /// Lines end in CR LF on the wire and in LF on disk (TYPE A, RFC 959 §3.1.1.1).
    Ascii,
}

/// One file (or part) to send as a stream.
#[derive(Clone, Copy)]
pub struct StreamSend<'a> {
    /// Where the bytes come from.
    pub source: &'a dyn BlockSource,
    /// First byte to send.
    pub offset: u64,
    /// Bytes to send; `None`: to the source's end. A shorter source has changed.
    pub length: Option<u64>,
    /// How lines travel.
    pub representation: Representation,
    /// Whether the kernel may send from the source's descriptor.
    pub sendfile: bool,
    /// Surroundings.
    pub flow: Flow<'a>,
}

/// Where a stream goes.
#[derive(Clone, Copy)]
pub struct StreamReceive<'a> {
    /// Where the bytes go.
    pub sink: &'a dyn BlockSink,
    /// Offset of the first byte.
    pub offset: u64,
    /// Most bytes to accept; `None`: no limit. More is the peer's fault.
    pub limit: Option<u64>,
    /// How lines travel.
    pub representation: Representation,
    /// Surroundings.
    pub flow: Flow<'a>,
}

/// Sends and ends the sending side; returns the bytes read from the source.
///
/// The caller closes the channel afterwards. A stream has no other end mark: when this fails, the
/// channel must be closed without looking complete, which only the control connection can say.
pub fn send(job: &StreamSend<'_>, channel: &mut dyn DataChannel) -> Result<u64, Fault> {
    let _ = (job, channel);
    unimplemented!()
}

/// Receives until the peer closes; returns the bytes written to the sink.
pub fn receive(job: &StreamReceive<'_>, channel: &mut dyn DataChannel) -> Result<u64, Fault> {
    let _ = (job, channel);
    unimplemented!()
}
