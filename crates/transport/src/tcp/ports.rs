//! Port ranges that firewalls are opened for.

use std::fmt;
use std::str::FromStr;
use std::sync::atomic::{AtomicUsize, Ordering};

use whimbrel_engine::{Fault, FaultCode, Side};

/// A range of ports, both ends included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PortRange {
    min: u16,
    max: u16,
}

/// Spreads the first attempts of one process over the range.
static NEXT: AtomicUsize = AtomicUsize::new(0);

impl PortRange {
    /// `min..=max`; fails with `InvalidArgument` when empty or starting at 0.
    pub fn new(min: u16, max: u16) -> Result<Self, Fault> {
        if min == 0 || min > max {
            let detail = "a port range is MIN,MAX with 1 <= MIN <= MAX <= 65535";
            return Err(Fault::new(FaultCode::InvalidArgument, "read port range")
                .side(Side::Us)
                .subject(format!("{min},{max}"))
                .detail(detail));
        }
        Ok(Self { min, max })
    }

    /// Ports to listen on, from `GLOBUS_TCP_PORT_RANGE`; `None` when unset or empty.
    pub fn listen_from_env() -> Result<Option<Self>, Fault> {
        Self::from_env("GLOBUS_TCP_PORT_RANGE")
    }

    /// Ports to connect from, from `GLOBUS_TCP_SOURCE_RANGE`; `None` when unset or empty.
    pub fn source_from_env() -> Result<Option<Self>, Fault> {
        Self::from_env("GLOBUS_TCP_SOURCE_RANGE")
    }

    fn from_env(name: &str) -> Result<Option<Self>, Fault> {
        match std::env::var(name) {
            Ok(text) if !text.trim().is_empty() => {
                text.parse().map(Some).map_err(|fault: Fault| fault.subject(format!("{name}={text}")))
            }
            _ => Ok(None),
        }
    }

    /// The lowest port.
    pub fn min(self) -> u16 {
        self.min
    }

    /// The highest port.
    pub fn max(self) -> u16 {
        self.max
    }

    /// Every port once, starting anywhere, so that processes sharing a range rarely collide.
    pub(super) fn shuffled(self) -> impl Iterator<Item = u16> {
        let len = usize::from(self.max - self.min) + 1;
        let own = (std::process::id() as usize).wrapping_mul(7919);
        let start = own.wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed)) % len;
        (0..len).map(move |i| self.min + ((start + i) % len) as u16)
    }

    pub(super) fn exhausted(self, op: &str) -> Fault {
        Fault::new(FaultCode::PortRangeExhausted, op).side(Side::Us).subject(self.to_string())
    }
}

impl FromStr for PortRange {
    type Err = Fault;

    /// `min,max`, `min-max` or `min max`.
    fn from_str(text: &str) -> Result<Self, Fault> {
        let mut numbers = text
            .split(|c: char| c == ',' || c == '-' || c.is_whitespace())
            .filter(|word| !word.is_empty())
            .map(str::parse::<u16>);
        match (numbers.next(), numbers.next(), numbers.next()) {
            (Some(Ok(min)), Some(Ok(max)), None) => Self::new(min, max),
            _ => Self::new(0, 0).map_err(|fault| fault.subject(text)),
        }
    }
}

impl fmt::Display for PortRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{},{}", self.min, self.max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_spelling_means_the_same_range() {
        for text in ["50000,51000", "50000-51000", "50000 51000", " 50000, 51000 "] {
            let range: PortRange = text.parse().expect(text);
            assert_eq!((range.min(), range.max()), (50_000, 51_000), "{text}");
        }
        let one: PortRange = "7000,7000".parse().expect("a range of one port");
        assert_eq!(one.shuffled().collect::<Vec<_>>(), [7000]);
    }

    #[test]
    fn nonsense_is_refused_with_its_text() {
        for text in ["", "50000", "2,1", "0,5", "1,70000", "a,b", "1,2,3"] {
            let fault = text.parse::<PortRange>().expect_err(text);
            assert_eq!(fault.code, FaultCode::InvalidArgument, "{text}");
        }
    }

    #[test]
    fn each_port_is_tried_exactly_once() {
        let range = PortRange::new(100, 109).expect("range");
        let mut ports: Vec<u16> = range.shuffled().collect();
        ports.sort_unstable();
        assert_eq!(ports, (100..=109).collect::<Vec<_>>());
    }
}
