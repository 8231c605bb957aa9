//! Sizes, rates and durations for people.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// A number of bytes; shown in decimal units (`1.5 GB`), read as decimal or binary ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ByteCount(pub u64);

/// Bytes per second; shown in decimal units (`118 MB/s`).
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ByteRate(pub f64);

/// A time span for people: `0.35 s`, `12 s`, `3 min 05 s`, `2 h 10 min`, `3 d 4 h`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HumanDuration(pub Duration);

/// Why a size cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum SizeError {
    /// No number at the start.
    #[error("a size starts with a number, as in 256M or 1GiB")]
    NoNumber,
    /// The letters after the number are no unit.
    #[error("units are K, M, G, T, P, E (KB, MB, ... mean 1000; KiB, MiB, ... mean 1024)")]
    UnknownUnit,
    /// More than 2^64 - 1 bytes, or not a whole number of bytes.
    #[error("the size is too large")]
    TooLarge,
}

const UNITS: [&str; 7] = ["B", "KB", "MB", "GB", "TB", "PB", "EB"];

impl fmt::Display for ByteCount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 < 1000 {
            return write!(f, "{} B", self.0);
        }
        f.write_str(&scaled(self.0 as f64))
    }
}

impl fmt::Display for ByteRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A rate that is not a finite positive number is shown as nothing, never as `NaN`.
        let rate = if self.0.is_finite() { self.0.max(0.0) } else { 0.0 };
        if rate < 999.5 {
            return write!(f, "{rate:.0} B/s");
        }
        write!(f, "{}/s", scaled(rate))
    }
}

/// Three significant digits: `1.23 GB`, `12.3 GB`, `123 GB`.
fn scaled(mut value: f64) -> String {
    let mut unit = 0;
    // 999.5 would be rounded to 1000.
    while value >= 999.5 && unit + 1 < UNITS.len() {
        value /= 1000.0;
        unit += 1;
    }
    let digits = if value < 9.995 {
        2
    } else if value < 99.95 {
        1
    } else {
        0
    };
    format!("{value:.digits$} {}", UNITS[unit])
}

impl FromStr for ByteCount {
    type Err = SizeError;

    /// Reads `4096`, `64K`, `1.5G`, `256M`, `10 MB`, `1GiB`; a bare letter is binary (`256M` is
    /// 256 MiB, as socket buffers and block sizes are meant), `KB` is 1000 and `KiB` 1024 bytes.
    fn from_str(text: &str) -> Result<Self, SizeError> {
        let text = text.trim();
        let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
        let (number, unit) = text.split_at(end);
        if number.is_empty() {
            return Err(SizeError::NoNumber);
        }
        let factor = unit_factor(unit.trim_start())?;
        if let Ok(whole) = number.parse::<u64>() {
            return whole.checked_mul(factor).map(Self).ok_or(SizeError::TooLarge);
        }
        let number = number.parse::<f64>().map_err(|_| SizeError::NoNumber)?;
        let bytes = number * factor as f64;
        if bytes < u64::MAX as f64 { Ok(Self(bytes.round() as u64)) } else { Err(SizeError::TooLarge) }
    }
}

fn unit_factor(unit: &str) -> Result<u64, SizeError> {
    let lower = unit.to_ascii_lowercase();
    if matches!(lower.as_str(), "" | "b") {
        return Ok(1);
    }
    let (letter, rest) = lower.split_at(lower.chars().next().map_or(0, char::len_utf8));
    let power = "kmgtpe".find(letter).ok_or(SizeError::UnknownUnit)? as u32 + 1;
    match rest {
        "b" => Ok(1000u64.pow(power)),
        "" | "ib" | "i" => Ok(1024u64.pow(power)),
        _ => Err(SizeError::UnknownUnit),
    }
}

impl fmt::Display for HumanDuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let span = self.0;
        if span < Duration::from_millis(9_995) {
            return write!(f, "{:.2} s", span.as_secs_f64());
        }
        let secs = span.as_secs_f64().round() as u64;
        let (minutes, hours, days) = (secs / 60, secs / 3600, secs / 86_400);
        if minutes == 0 {
            write!(f, "{secs} s")
        } else if hours == 0 {
            write!(f, "{minutes} min {:02} s", secs % 60)
        } else if days == 0 {
            write!(f, "{hours} h {:02} min", minutes % 60)
        } else {
            write!(f, "{days} d {} h", hours % 24)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn sizes_are_shown_with_three_digits_in_decimal_units() {
        let cases = [
            (0, "0 B"),
            (999, "999 B"),
            (1000, "1.00 KB"),
            (9_994, "9.99 KB"),
            (9_995, "10.0 KB"),
            (999_499, "999 KB"),
            (999_500, "1.00 MB"),
            (1_500_000_000, "1.50 GB"),
            (u64::MAX, "18.4 EB"),
        ];
        for (bytes, text) in cases {
            assert_eq!(ByteCount(bytes).to_string(), text);
        }
    }

    #[test]
    fn sizes_are_read_with_decimal_and_binary_units() {
        let cases = [
            ("4096", 4096),
            ("256M", 256 << 20),
            ("1GiB", 1 << 30),
            ("1gib", 1 << 30),
            ("10 MB", 10_000_000),
            ("1.5KiB", 1536),
            ("16E", u64::MAX),
        ];
        for (text, bytes) in &cases[..6] {
            assert_eq!(text.parse(), Ok(ByteCount(*bytes)), "{text}");
        }
        assert_eq!(cases[6].0.parse::<ByteCount>(), Err(SizeError::TooLarge));
        for text in ["", "M", "-1", "1.2.3"] {
            assert_eq!(text.parse::<ByteCount>(), Err(SizeError::NoNumber), "{text}");
        }
        for text in ["1Q", "1MBB", "1 é", "1kk"] {
            assert_eq!(text.parse::<ByteCount>(), Err(SizeError::UnknownUnit), "{text}");
        }
    }

    #[test]
    fn rates_that_are_no_number_are_shown_as_nothing() {
        assert_eq!(ByteRate(f64::NAN).to_string(), "0 B/s");
        assert_eq!(ByteRate(-3.0).to_string(), "0 B/s");
        assert_eq!(ByteRate(999.7).to_string(), "1.00 KB/s");
        assert_eq!(ByteRate(118e6).to_string(), "118 MB/s");
    }

    #[test]
    fn durations_are_shown_in_their_two_leading_units() {
        let cases = [
            (0.0, "0.00 s"),
            (9.994, "9.99 s"),
            (59.4, "59 s"),
            (59.6, "1 min 00 s"),
            (3_599.4, "59 min 59 s"),
            (7_800.0, "2 h 10 min"),
            (273_600.0, "3 d 4 h"),
        ];
        for (secs, text) in cases {
            assert_eq!(HumanDuration(Duration::from_secs_f64(secs)).to_string(), text);
        }
    }

    proptest! {
        #[test]
        fn reading_any_text_never_panics(text in ".{0,12}") {
            let _ = text.parse::<ByteCount>();
        }

        #[test]
        fn plain_numbers_are_read_as_they_are(bytes: u64) {
            prop_assert_eq!(bytes.to_string().parse(), Ok(ByteCount(bytes)));
        }
    }
}
