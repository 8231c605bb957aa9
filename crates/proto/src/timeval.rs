//! The protocol's 14-digit UTC times and their conversion to seconds since the epoch.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A point in time with nanoseconds; seconds may be negative for years before 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Timestamp {
    /// Whole seconds since 1970-01-01T00:00:00 UTC.
    pub secs: i64,
    /// Nanoseconds after `secs`, below 1 000 000 000.
    pub nanos: u32,
}

/// A date and time of day in UTC, validated on construction from the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Civil {
    /// Year, `0..=9999`.
    pub year: i64,
    /// Month, `1..=12`.
    pub month: u32,
    /// Day of the month, `1..=31`.
    pub day: u32,
    /// Hour, `0..=23`.
    pub hour: u32,
    /// Minute, `0..=59`.
    pub minute: u32,
    /// Second, `0..=60` (60 is a leap second and counts as the next minute's first second).
    pub second: u32,
}

/// Why a wire time was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TimeError {
    /// Not 14 digits with an optional `.` and fraction.
    #[error("a time is 14 digits YYYYMMDDHHMMSS with an optional fraction")]
    Form,
    /// A field outside its range, or a day the month does not have.
    #[error("the time names a date or time of day that does not exist")]
    Range,
}

const SECONDS_PER_DAY: i64 = 86_400;
/// First second that no longer fits four digits of year.
const YEAR_10000: i64 = 253_402_300_800;
/// First second of the year 0.
const YEAR_0: i64 = -62_167_219_200;

/// Days since 1970-01-01 of a proleptic Gregorian date (March-based era arithmetic).
fn days_from_civil(year: i64, month: u32, day: u32) -> i64 {
    let y = if month <= 2 { year - 1 } else { year };
    let era = y.div_euclid(400);
    let year_of_era = y.rem_euclid(400);
    let shifted = i64::from((month + 9) % 12);
    let day_of_year = (153 * shifted + 2) / 5 + i64::from(day) - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * 146_097 + day_of_era - 719_468
}

/// The inverse of [`days_from_civil`].
fn civil_from_days(days: i64) -> (i64, u32, u32) {
    let z = days + 719_468;
    let era = z.div_euclid(146_097);
    let doe = z.rem_euclid(146_097);
    let yoe = (doe - doe / 1460 + doe / 36_524 - doe / 146_096) / 365;
    let doy = doe - (365 * yoe + yoe / 4 - yoe / 100);
    let mp = (5 * doy + 2) / 153;
    let day = (doy - (153 * mp + 2) / 5 + 1) as u32;
    let month = if mp < 10 { mp + 3 } else { mp - 9 } as u32;
    let year = yoe + era * 400 + i64::from(month <= 2);
    (year, month, day)
}

fn days_in_month(year: i64, month: u32) -> u32 {
    match month {
        2 if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

impl Civil {
    /// True if every field is in range and the month has that day.
    pub fn is_valid(&self) -> bool {
        (0..=9999).contains(&self.year)
            && (1..=12).contains(&self.month)
            && (1..=days_in_month(self.year, self.month)).contains(&self.day)
            && self.hour < 24
            && self.minute < 60
            && self.second <= 60
    }

    /// Seconds since the epoch.
    pub fn to_unix(&self) -> i64 {
        days_from_civil(self.year, self.month, self.day) * SECONDS_PER_DAY
            + i64::from(self.hour) * 3600
            + i64::from(self.minute) * 60
            + i64::from(self.second)
    }
}

impl Timestamp {
    /// A time of whole seconds since the epoch.
    pub const fn from_secs(secs: i64) -> Self {
        Self { secs, nanos: 0 }
    }

    /// Parses `YYYYMMDDHHMMSS[.fraction]`; digits beyond nanoseconds are dropped (RFC 3659 §2.3).
    pub fn parse(text: &[u8]) -> Result<Self, TimeError> {
        let (whole, fraction) = match text.iter().position(|&b| b == b'.') {
            Some(dot) => (&text[..dot], Some(&text[dot + 1..])),
            None => (text, None),
        };
        if whole.len() != 14 || !whole.iter().all(u8::is_ascii_digit) {
            return Err(TimeError::Form);
        }
        let number =
            |range: std::ops::Range<usize>| whole[range].iter().fold(0u32, |n, &b| n * 10 + u32::from(b - b'0'));
        let civil = Civil {
            year: i64::from(number(0..4)),
            month: number(4..6),
            day: number(6..8),
            hour: number(8..10),
            minute: number(10..12),
            second: number(12..14),
        };
        if !civil.is_valid() {
            return Err(TimeError::Range);
        }
        let nanos = fraction.map_or(Ok(0), parse_fraction)?;
        // A leap second after the last day would need a fifth digit of year.
        Ok(Self { secs: civil.to_unix().min(YEAR_10000 - 1), nanos })
    }

    /// The UTC date and time of day; seconds outside the years 0 to 9999 are clamped to that span.
    pub fn to_civil(&self) -> Civil {
        let secs = self.secs.clamp(YEAR_0, YEAR_10000 - 1);
        let (year, month, day) = civil_from_days(secs.div_euclid(SECONDS_PER_DAY));
        let in_day = secs.rem_euclid(SECONDS_PER_DAY) as u32;
        Civil { year, month, day, hour: in_day / 3600, minute: in_day / 60 % 60, second: in_day % 60 }
    }

    /// The 14-digit form without a fraction, which every peer reads.
    pub fn to_wire(&self) -> String {
        let c = self.to_civil();
        format!("{:04}{:02}{:02}{:02}{:02}{:02}", c.year, c.month, c.day, c.hour, c.minute, c.second)
    }
}

/// Nanoseconds of a decimal fraction (RFC 3659 §2.3: `"." 1*DIGIT`).
fn parse_fraction(digits: &[u8]) -> Result<u32, TimeError> {
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return Err(TimeError::Form);
    }
    let padded = digits.iter().copied().chain(std::iter::repeat(b'0')).take(9);
    Ok(padded.fold(0u32, |n, b| n * 10 + u32::from(b - b'0')))
}

impl fmt::Display for Timestamp {
    /// 14 digits, and a fraction without trailing zeros if there is one.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.to_wire())?;
        if self.nanos == 0 {
            return Ok(());
        }
        let fraction = format!("{:09}", self.nanos);
        write!(f, ".{}", fraction.trim_end_matches('0'))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    // RFC 3659 §2.3: "time-val = 14DIGIT [ "." 1*DIGIT ]" ... "Time values are always represented in UTC (GMT)".
    #[test]
    fn known_times_convert_both_ways() {
        for (text, secs) in [
            ("19700101000000", 0),
            ("20261121020154", 1_795_226_514),
            ("20000229235959", 951_868_799),
            ("19691231235959", -1),
            ("00000101000000", YEAR_0),
            ("99991231235959", YEAR_10000 - 1),
        ] {
            assert_eq!(Timestamp::parse(text.as_bytes()), Ok(Timestamp::from_secs(secs)), "{text}");
            assert_eq!(Timestamp::from_secs(secs).to_wire(), text);
        }
    }

    #[test]
    fn fractions_keep_nanoseconds_and_drop_the_rest() {
        let t = Timestamp::parse(b"19980615100045.014").unwrap();
        assert_eq!(t.nanos, 14_000_000);
        assert_eq!(t.to_string(), "19980615100045.014");
        assert_eq!(Timestamp::parse(b"19980615100045.1234567899").unwrap().nanos, 123_456_789);
    }

    // RFC 3659 §2.3: "seconds 00 to 60 (60 is used only for leap seconds)".
    #[test]
    fn a_leap_second_is_accepted() {
        assert_eq!(Timestamp::parse(b"20161231235960"), Timestamp::parse(b"20170101000000"));
    }

    #[test]
    fn the_last_leap_second_still_has_four_digits_of_year() {
        let time = Timestamp::parse(b"99991231235960").unwrap();
        assert_eq!(Timestamp::parse(time.to_wire().as_bytes()), Ok(time));
    }

    #[test]
    fn impossible_dates_are_refused() {
        for bad in
            ["20261301000000", "20260230000000", "19000229000000", "20260101240000", "20260101006000", "20260100000000"]
        {
            assert_eq!(Timestamp::parse(bad.as_bytes()), Err(TimeError::Range), "{bad}");
        }
        for bad in
            ["", "2026", "20260101000000.", "20260101000000.x", "2026010100000", "202601010000000", "+0260101000000"]
        {
            assert_eq!(Timestamp::parse(bad.as_bytes()), Err(TimeError::Form), "{bad}");
        }
    }

    #[test]
    fn times_beyond_the_wire_are_clamped() {
        assert_eq!(Timestamp::from_secs(i64::MAX).to_wire(), "99991231235959");
        assert_eq!(Timestamp::from_secs(i64::MIN).to_wire(), "00000101000000");
    }

    proptest! {
        #[test]
        fn every_second_of_ten_thousand_years_survives_the_wire(secs in YEAR_0..YEAR_10000, nanos in 0u32..1_000_000_000) {
            let t = Timestamp { secs, nanos };
            prop_assert_eq!(Timestamp::parse(t.to_string().as_bytes()), Ok(t));
            prop_assert_eq!(Timestamp::parse(t.to_wire().as_bytes()), Ok(Timestamp::from_secs(secs)));
        }

        #[test]
        fn parsing_any_bytes_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..40)) {
            let _ = Timestamp::parse(&bytes);
        }
    }
}
