//! Port ranges that firewalls are opened for.

use std::fmt;
use std::str::FromStr;

use whimbrel_engine::{Fault, FaultCode, Side};

/// A range of ports, both ends included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PortRange {
    min: u16,
    max: u16,
}

impl PortRange {
    /// `min..=max`; fails with `InvalidArgument` when empty or starting at 0.
    pub fn new(min: u16, max: u16) -> Result<Self, Fault> {
        if min == 0 || min > max {
            let detail = "a port range is MIN-MAX or MIN,MAX with 1 <= MIN <= MAX <= 65535";
            return Err(Fault::new(FaultCode::InvalidArgument, "read port range")
                .side(Side::Us)
                .subject(format!("{min}-{max}"))
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

    /// Every port once, in an order that nobody can foresee: a stranger would be there before the right peer (RFC 6056 §3.3.1).
    pub(super) fn shuffled(self) -> impl Iterator<Item = u16> {
        let mut ports: Vec<u16> = (self.min..=self.max).collect();
        // Drawn one by one (Fisher and Yates): the first is nearly always free.
        (0..ports.len()).map(move |drawn| {
            let left = ports.len() - drawn;
            ports.swap(drawn, drawn + dice() as usize % left);
            ports[drawn]
        })
    }

    pub(super) fn exhausted(self, op: &str) -> Fault {
        Fault::new(FaultCode::PortRangeExhausted, op).side(Side::Us).subject(self.to_string())
    }
}

/// A number that nobody can foresee.
fn dice() -> u32 {
    let mut bytes = [0; 4];
    // Without a source of chance there are no keys either; the system's choice among the hash keys of this process is left.
    if openssl::rand::rand_bytes(&mut bytes).is_err() {
        return std::hash::BuildHasher::hash_one(&std::hash::RandomState::new(), ()) as u32;
    }
    u32::from_ne_bytes(bytes)
}

impl FromStr for PortRange {
    type Err = Fault;

    /// `min,max`, `min-max` or `min max`; a single port is a range of one.
    fn from_str(text: &str) -> Result<Self, Fault> {
        let mut numbers = text
            .split(|c: char| c == ',' || c == '-' || c.is_whitespace())
            .filter(|word| !word.is_empty())
            .map(str::parse::<u16>);
        match (numbers.next(), numbers.next(), numbers.next()) {
            (Some(Ok(min)), Some(Ok(max)), None) => Self::new(min, max),
            (Some(Ok(port)), None, None) => Self::new(port, port),
            _ => Self::new(0, 0),
        }
        .map_err(|fault| fault.subject(text))
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
        for text in ["7000,7000", "7000"] {
            let one: PortRange = text.parse().expect("a range of one port");
            assert_eq!(one.shuffled().collect::<Vec<_>>(), [7000], "{text}");
        }
    }

    #[test]
    fn nonsense_is_refused_with_its_text() {
        for text in ["", "0", "2,1", "0,5", "1,70000", "a,b", "1,2,3"] {
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
    #[test]
    fn nobody_can_foresee_the_next_port() {
        let range = PortRange::new(20_000, 29_999).expect("range");
        let firsts: Vec<u16> = (0..64).map(|_| range.shuffled().next().expect("a port")).collect();
        let steps: std::collections::BTreeSet<i32> =
            firsts.windows(2).map(|pair| i32::from(pair[1]) - i32::from(pair[0])).collect();
        // Of 63 steps between ports by chance some may be equal, but by no means many.
        assert!(steps.len() > 50, "{firsts:?}");
        let low = firsts.iter().filter(|port| **port < 25_000).count();
        assert!((8..=56).contains(&low), "{low} of 64 in the lower half");
    }
}
