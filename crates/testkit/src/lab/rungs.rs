//! The ladder: named paths, each with the reason for its numbers.

use std::time::Duration;

use super::link::Link;

/// A named path between two hosts.
#[derive(Clone, Debug, PartialEq)]
pub struct Rung {
    /// Its name, stable for results that are compared over years.
    pub name: &'static str,
    /// Why it is on the ladder.
    pub reason: &'static str,
    /// Round-trip time in milliseconds.
    pub rtt_ms: u64,
    /// Megabits (10^6) per second.
    pub rate_mbit: u64,
    /// Probability of loss per packet and direction.
    pub loss: f64,
    /// Bound of the jitter per direction in milliseconds.
    pub jitter_ms: u64,
}

const fn rung(name: &'static str, reason: &'static str, rtt_ms: u64, rate_mbit: u64, loss: f64) -> Rung {
    Rung { name, reason, rtt_ms, rate_mbit, loss, jitter_ms: 0 }
}

/// From the nearest to the farthest. Rates are what a two-core machine can emulate; the ratios are what counts.
pub const LADDER: [Rung; 11] = [
    rung("campus", "two buildings: round trips are free, so processor time decides", 1, 1000, 0.0),
    rung("chicago-ncsa", "GridCopy paper: University of Chicago/Argonne to NCSA, 4 ms", 4, 1000, 0.0),
    rung("ncsa-psc", "GridCopy paper: NCSA to Pittsburgh, 15 ms", 15, 1000, 0.0),
    rung("national", "across one country: the default window begins to matter", 20, 1000, 0.0),
    rung("argonne-la", "UDT paper: Argonne to Los Angeles, 60 ms", 60, 1000, 0.0),
    rung("psc-sdsc", "GridCopy paper: Pittsburgh to San Diego, 75 ms, the longest of its paths", 75, 1000, 0.0),
    rung("transatlantic", "a good research path with rare loss, which cubic already pays for", 90, 1000, 0.0001),
    Rung {
        jitter_ms: 2,
        ..rung("dirty", "a commodity path with one packet in a hundred lost: pacing against backing off", 90, 200, 0.01)
    },
    rung(
        "argonne-auckland",
        "UDT paper: Argonne to New Zealand, 204 ms; start-up round trips dominate",
        204,
        1000,
        0.0,
    ),
    rung("antipodal", "the far side of the globe: the longest path on the ground", 280, 500, 0.00001),
    Rung { jitter_ms: 5, ..rung("satellite", "a geostationary hop: every serial round trip is felt", 600, 50, 0.001) },
];

impl Rung {
    /// The rung of that name.
    pub fn named(name: &str) -> Option<Rung> {
        LADDER.into_iter().find(|rung| rung.name == name)
    }

    /// The round-trip time without queue and jitter.
    pub fn rtt(&self) -> Duration {
        Duration::from_millis(self.rtt_ms)
    }

    /// A link like this in both directions.
    pub fn link(&self) -> Link {
        let jitter = Duration::from_millis(self.jitter_ms);
        Link::new().rtt(self.rtt()).rate_mbit(self.rate_mbit).loss(self.loss).jitter(jitter)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ladder_rises_and_has_the_papers_paths() {
        assert!(LADDER.windows(2).all(|pair| pair[0].rtt_ms <= pair[1].rtt_ms));
        for rtt in [4, 15, 60, 75, 204] {
            assert!(LADDER.iter().any(|rung| rung.rtt_ms == rtt && rung.reason.contains("paper")), "{rtt} ms");
        }
    }

    #[test]
    fn every_rung_is_found_by_its_own_name() {
        for rung in LADDER {
            assert_eq!(Rung::named(rung.name), Some(rung));
        }
        assert_eq!(Rung::named("moon"), None);
    }
}
