//! Times as they stand in the database: microseconds since the epoch.

use whimbrel_engine::listing::Timestamp;

const MICROS: i64 = 1_000_000;

/// Rounded down; times that no calendar has become the first or the last.
pub(super) fn micros(time: Timestamp) -> i64 {
    time.secs.saturating_mul(MICROS).saturating_add(i64::from(time.nanos / 1000))
}

pub(super) fn from_micros(micros: i64) -> Timestamp {
    let nanos = u32::try_from(micros.rem_euclid(MICROS)).unwrap_or(0) * 1000;
    Timestamp { secs: micros.div_euclid(MICROS), nanos }
}

/// So much later.
pub(super) fn later(time: Timestamp, seconds: f64) -> Timestamp {
    // Casts of floats stop at the type's bounds.
    from_micros(micros(time).saturating_add((seconds.max(0.0) * MICROS as f64) as i64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_come_back_to_the_microsecond() {
        for (secs, nanos) in [(0, 0), (-1, 999_999_000), (1_800_000_000, 123_456_000)] {
            let time = Timestamp { secs, nanos };
            assert_eq!(from_micros(micros(time)), time);
        }
        assert_eq!(later(Timestamp::from_secs(10), 1.5), Timestamp { secs: 11, nanos: 500_000_000 });
        assert_eq!(later(Timestamp::from_secs(10), -1.0), Timestamp::from_secs(10));
        assert!(later(Timestamp::from_secs(10), f64::INFINITY) > Timestamp::from_secs(1 << 40));
        assert_eq!(later(Timestamp::from_secs(10), f64::NAN), Timestamp::from_secs(10));
        assert!(micros(Timestamp::from_secs(i64::MAX)) > micros(Timestamp::from_secs(i64::MAX / MICROS - 1)));
    }
}
