//! What time it is, and times as the API's documents have them (ISO 8601).

use std::sync::atomic::{AtomicI64, Ordering};

use jiff::civil::{Date, DateTime};
use jiff::tz::Offset;
use whimbrel_engine::listing::Timestamp;

/// Now.
pub fn now() -> Timestamp {
    from_jiff(jiff::Timestamp::now())
}

/// Tells the time; tests set it.
pub trait Clock: Send + Sync + 'static {
    /// Now.
    fn now(&self) -> Timestamp;
}

/// The clock of the day.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        now()
    }
}

/// A clock that stands still until somebody moves it.
#[derive(Debug)]
pub struct SetClock(AtomicI64);

impl SetClock {
    /// It shows so many seconds since 1970.
    pub fn at(secs: i64) -> Self {
        Self(AtomicI64::new(secs))
    }

    /// Moves it on.
    pub fn advance(&self, seconds: i64) {
        self.0.fetch_add(seconds, Ordering::SeqCst);
    }
}

impl Clock for SetClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_secs(self.0.load(Ordering::SeqCst))
    }
}

/// `2026-01-02T03:04:05+00:00`.
pub fn iso(time: Timestamp) -> String {
    civil(time).strftime("%Y-%m-%dT%H:%M:%S+00:00").to_string()
}

/// `2026-01-02 03:04:05+00:00`, as files have it.
pub fn iso_of_file(time: Timestamp) -> String {
    civil(time).strftime("%Y-%m-%d %H:%M:%S+00:00").to_string()
}

/// Reads a date, a date with a time (`T` or a blank between), or one with an offset; without an offset it is UTC.
pub fn parse(text: &str) -> Option<Timestamp> {
    let text = text.trim();
    if let Ok(time) = text.parse::<jiff::Timestamp>() {
        return Some(from_jiff(time));
    }
    let time = text.parse::<DateTime>().or_else(|_| text.parse::<Date>().map(DateTime::from)).ok()?;
    Offset::UTC.to_timestamp(time).ok().map(from_jiff)
}

fn from_jiff(time: jiff::Timestamp) -> Timestamp {
    let (secs, nanos) = (time.as_second(), time.subsec_nanosecond());
    // Before 1970 both parts are negative there.
    match u32::try_from(nanos) {
        Ok(nanos) => Timestamp { secs, nanos },
        Err(_) => Timestamp { secs: secs - 1, nanos: (1_000_000_000 + nanos).unsigned_abs() },
    }
}

fn civil(time: Timestamp) -> DateTime {
    let bounded = time.secs.clamp(jiff::Timestamp::MIN.as_second(), jiff::Timestamp::MAX.as_second());
    let time = jiff::Timestamp::from_second(bounded).expect("it was clamped to what can be");
    Offset::UTC.to_datetime(time)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_and_read_as_the_clients_do() {
        let time = Timestamp::from_secs(1_767_323_045);
        assert_eq!(iso(time), "2026-01-02T03:04:05+00:00");
        assert_eq!(iso_of_file(time), "2026-01-02 03:04:05+00:00");
        for text in
            ["2026-01-02T03:04:05+00:00", "2026-01-02 03:04:05", "2026-01-02T03:04:05Z", "2026-01-02 04:04:05+01:00"]
        {
            assert_eq!(parse(text), Some(time), "{text}");
        }
        assert_eq!(parse("2026-01-02"), Some(Timestamp::from_secs(1_767_312_000)));
        assert_eq!(parse("1969-12-31T23:59:59.5Z"), Some(Timestamp { secs: -1, nanos: 500_000_000 }));
        for text in ["", "tomorrow", "2026-13-01", "2026-01-02T25:00:00"] {
            assert_eq!(parse(text), None, "{text}");
        }
        assert_eq!(iso(Timestamp::from_secs(i64::MAX)).len(), "9999-12-30T22:00:00+00:00".len());
    }
}
