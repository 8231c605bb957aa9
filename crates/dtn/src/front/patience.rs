//! How long lines and handshakes of one control connection may take.

use std::time::Instant;

use whimbrel_engine::guard::{LineLimits, SlowLine};

/// Most bytes of a client before its handshake is over: a chain of twenty certificates is shorter.
const HANDSHAKE_BYTES: usize = 512 << 10;

/// Most bytes inside TLS without one of them for us: keys changed over and over.
const BARREN_BYTES: usize = 64 << 10;

/// What was too much.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TooMuch {
    /// A line did not end in time.
    SlowLine,
    /// A handshake did not.
    SlowHandshake,
    /// A handshake has no end.
    LongHandshake,
    /// TLS has much to say and the client nothing.
    Barren,
}

impl TooMuch {
    /// For logs.
    pub(super) fn reason(self) -> &'static str {
        match self {
            Self::SlowLine => "a command line did not end in time",
            Self::SlowHandshake => "the handshake did not end in time",
            Self::LongHandshake => "the handshake is longer than any honest one",
            Self::Barren => "TLS messages without end and no command",
        }
    }
}

/// Watches what comes.
#[derive(Debug, Default)]
pub(super) struct Patience {
    limits: LineLimits,
    line: SlowLine,
    /// Bytes of the line that has no end yet.
    pending: usize,
    /// Whether nothing is read because others must be served first: no fault of the client's.
    paused: bool,
    handshake: Option<Handshake>,
    barren: usize,
}

#[derive(Debug)]
struct Handshake {
    until: Instant,
    bytes: usize,
}

impl Patience {
    /// Nothing has come yet.
    pub(super) fn new(limits: LineLimits) -> Self {
        Self { limits, ..Self::default() }
    }

    /// A handshake begins: the client's is the next word.
    pub(super) fn handshake_begins(&mut self, now: Instant) {
        self.handshake = Some(Handshake { until: now + self.limits.handshake, bytes: 0 });
    }

    /// It is over.
    pub(super) fn handshake_over(&mut self) {
        self.handshake = None;
    }

    /// So many bytes came over the wire and brought this text.
    pub(super) fn fed(&mut self, wire: usize, text: &[u8], now: Instant) -> Result<(), TooMuch> {
        if let Some(handshake) = &mut self.handshake {
            handshake.bytes += wire;
            return if handshake.bytes > HANDSHAKE_BYTES { Err(TooMuch::LongHandshake) } else { Ok(()) };
        }
        if text.is_empty() {
            self.barren += wire;
            return if self.barren > BARREN_BYTES { Err(TooMuch::Barren) } else { Ok(()) };
        }
        self.barren = 0;
        let end = text.iter().rposition(|&byte| byte == b'\n');
        self.pending = end.map_or(self.pending + text.len(), |end| text.len() - end - 1);
        self.line.fed(self.pending, end.is_some(), now);
        Ok(())
    }

    /// Whether this side reads at all now; the time of a line begins anew when it reads again.
    pub(super) fn reads(&mut self, reads: bool, now: Instant) {
        if reads && self.paused {
            self.line.fed(self.pending, true, now);
        }
        self.paused = !reads;
    }

    /// When what is coming has to be there.
    pub(super) fn deadline(&self) -> Option<Instant> {
        match &self.handshake {
            Some(handshake) => Some(handshake.until),
            None if self.paused => None,
            None => self.line.deadline(&self.limits),
        }
    }

    /// What is overdue.
    pub(super) fn overdue(&self) -> TooMuch {
        if self.handshake.is_some() { TooMuch::SlowHandshake } else { TooMuch::SlowLine }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn seconds(count: u64) -> Duration {
        Duration::from_secs(count)
    }

    #[test]
    fn a_line_has_its_time_from_its_first_byte_and_the_rest_of_another_begins_its_own() {
        let (start, mut patience) = (Instant::now(), Patience::default());
        assert_eq!(patience.deadline(), None);
        patience.fed(3, b"USE", start).unwrap();
        patience.fed(1, b"R", start + seconds(19)).unwrap();
        let first = patience.deadline().unwrap() - start;
        assert!(first >= seconds(20) && first < seconds(21), "a byte more buys next to nothing: {first:?}");
        patience.fed(9, b" ada\r\nPAS", start + seconds(19)).unwrap();
        assert!(patience.deadline().unwrap() >= start + seconds(39));
        patience.fed(4, b"S x\n", start + seconds(20)).unwrap();
        assert_eq!(patience.deadline(), None, "nothing is begun");
    }

    #[test]
    fn who_is_not_read_is_not_late() {
        let (start, mut patience) = (Instant::now(), Patience::default());
        patience.fed(3, b"RET", start).unwrap();
        patience.reads(false, start);
        assert_eq!(patience.deadline(), None);
        patience.reads(true, start + seconds(3600));
        assert!(patience.deadline().unwrap() >= start + seconds(3620));
    }

    #[test]
    fn a_handshake_has_an_end_in_time_and_bytes() {
        let (start, mut patience) = (Instant::now(), Patience::default());
        patience.handshake_begins(start);
        assert_eq!(patience.deadline(), Some(start + LineLimits::default().handshake));
        patience.fed(HANDSHAKE_BYTES, b"", start).unwrap();
        assert_eq!(patience.overdue(), TooMuch::SlowHandshake);
        assert_eq!(patience.fed(1, b"", start), Err(TooMuch::LongHandshake));
        patience.handshake_over();
        assert_eq!(patience.deadline(), None);
    }

    #[test]
    fn keys_may_change_but_not_for_ever() {
        let (start, mut patience) = (Instant::now(), Patience::default());
        for _ in 0..10 {
            patience.fed(BARREN_BYTES, b"", start).unwrap();
            patience.fed(30, b"NOOP\r\n", start).unwrap();
        }
        assert_eq!(patience.deadline(), None, "no line is begun by them");
        patience.fed(BARREN_BYTES, b"", start).unwrap();
        assert_eq!(patience.fed(1, b"", start), Err(TooMuch::Barren));
    }
}
