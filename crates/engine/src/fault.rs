//! `Fault`: the one error type that crosses every seam.
//!
//! A fault says what went wrong (a closed, documented [`FaultCode`]), on which [`Side`], whether a
//! retry can help ([`Retry`]), during which operation and to which subject. Its `Display` never
//! includes its source; printers walk the chain.

mod catalogue;
mod code;

pub use catalogue::catalogue_markdown;
pub use code::{Explanation, FaultCode};

use std::error::Error;
use std::fmt;
use std::io;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Who has to act for the fault to go away.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Side {
    /// The storage or server the data comes from.
    Source,
    /// The storage or server the data goes to.
    Destination,
    /// The path between two hosts.
    Network,
    /// The program at the other end of a protocol.
    Peer,
    /// The transfer service.
    Service,
    /// This program: a bug worth reporting.
    Us,
}

/// Whether trying again can help.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Retry {
    /// The same attempt will fail the same way.
    Permanent,
    /// May pass by itself; not worth trying earlier than `after` (zero: at once).
    Temporary {
        /// Shortest useful wait.
        after: Duration,
    },
    /// Was temporary and outlived its retries.
    Exhausted,
}

/// One recorded error event.
#[derive(Debug, Serialize, Deserialize)]
pub struct Fault {
    /// What went wrong.
    pub code: FaultCode,
    /// Who has to act; `None` until the layer that knows has said so.
    pub side: Option<Side>,
    /// Whether trying again can help.
    pub retry: Retry,
    /// Operation in progress, as a short verb phrase: `open`, `connect data channel`.
    pub op: String,
    /// What it was done to: a path, a URL, an address. May be empty.
    pub subject: String,
    /// What the lower layer said, for people. May be empty.
    pub detail: String,
    /// Lower-level error, lost when the fault crosses a process boundary (its text is in `detail`).
    #[serde(skip)]
    pub source: Option<Box<dyn Error + Send + Sync>>,
}

impl Fault {
    /// A fault with its code's default retry class and no side yet.
    pub fn new(code: FaultCode, op: impl Into<String>) -> Self {
        Self {
            code,
            side: None,
            retry: code.default_retry(),
            op: op.into(),
            subject: String::new(),
            detail: String::new(),
            source: None,
        }
    }

    /// Classifies an operating-system error; a fault that travelled inside of one comes out as it went in.
    pub fn from_io(error: io::Error, op: impl Into<String>) -> Self {
        let error = match error.downcast::<Self>() {
            Ok(fault) => return fault,
            Err(error) => error,
        };
        let mut fault = Self::new(FaultCode::from_io(&error), op).detail(error.to_string());
        fault.source = Some(Box::new(error));
        fault
    }

    /// Sets what the operation was done to.
    pub fn subject(mut self, subject: impl Into<String>) -> Self {
        self.subject = subject.into();
        self
    }

    /// Sets what the operation was done to, from raw path bytes (shown lossily).
    pub fn on_path(self, path: &[u8]) -> Self {
        self.subject(String::from_utf8_lossy(path))
    }

    /// Sets the text for people.
    pub fn detail(mut self, detail: impl Into<String>) -> Self {
        self.detail = detail.into();
        self
    }

    /// Sets the side, unless a lower layer already knew better.
    pub fn side_if_unknown(mut self, side: Side) -> Self {
        self.side.get_or_insert(side);
        self
    }

    /// Sets the side.
    pub fn side(mut self, side: Side) -> Self {
        self.side = Some(side);
        self
    }

    /// Sets the retry class.
    pub fn retry(mut self, retry: Retry) -> Self {
        self.retry = retry;
        self
    }

    /// Whether another attempt may help.
    pub fn is_temporary(&self) -> bool {
        matches!(self.retry, Retry::Temporary { .. })
    }
}

/// A copy for reports and plans; the lower-level error stays behind (its text is in `detail`).
impl Clone for Fault {
    fn clone(&self) -> Self {
        Self {
            code: self.code,
            side: self.side,
            retry: self.retry,
            op: self.op.clone(),
            subject: self.subject.clone(),
            detail: self.detail.clone(),
            source: None,
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.op)?;
        if !self.subject.is_empty() {
            write!(f, " {}", self.subject)?;
        }
        write!(f, ": {}", self.code)?;
        if !self.detail.is_empty() {
            write!(f, " ({})", self.detail)?;
        }
        Ok(())
    }
}

impl Error for Fault {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_deref().map(|source| source as _)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn display_names_operation_subject_and_code_but_not_the_source_twice() {
        let fault = Fault::from_io(io::Error::from_raw_os_error(2), "open").on_path(b"/a\xffb");
        let text = fault.to_string();
        assert!(text.starts_with("open /a\u{fffd}b: "), "{text}");
        assert!(Error::source(&fault).is_some());
    }

    #[test]
    fn a_side_known_below_is_not_overwritten_above() {
        let fault = Fault::new(FaultCode::Stalled, "receive").side(Side::Network);
        assert_eq!(fault.side_if_unknown(Side::Us).side, Some(Side::Network));
    }
}
