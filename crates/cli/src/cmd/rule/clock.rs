//! Hours of the week, as people write them.

use std::str::FromStr;

use serde_json::{Value, json};

use crate::managed::text;

const DAYS: [&str; 7] = ["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"];

/// Days of the week, in the order of the week.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Days(Vec<&'static str>);

impl FromStr for Days {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text:?} names no days of the week, as mon-fri or sat,sun do");
        let day = |name: &str| {
            let name = name.trim().to_lowercase();
            (name.len() >= 3).then(|| DAYS.iter().position(|day| day.starts_with(&name))).flatten().ok_or_else(wrong)
        };
        let mut meant = [false; 7];
        for part in text.split(',') {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let (first, last) = (day(first)?, day(last)?);
            // From Friday to Monday goes over the weekend.
            let length = (last + 7 - first) % 7;
            (first..=first + length).for_each(|at| meant[at % 7] = true);
        }
        Ok(Self(DAYS.into_iter().zip(meant).filter(|(_, meant)| *meant).map(|(day, _)| day).collect()))
    }
}

/// Minutes by which a clock is ahead of UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Offset(i32);

impl FromStr for Offset {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text:?} is no offset from UTC, as +01:00 or -08:00 are");
        let (sign, rest) = match text.split_at_checked(1) {
            Some(("+", rest)) => (1, rest),
            Some(("-", rest)) => (-1, rest),
            _ => return Err(wrong()),
        };
        let (hours, minutes) = rest.split_once(':').unwrap_or((rest, "00"));
        let two = |text: &str, most: i32| -> Result<i32, String> {
            let is_number = !text.is_empty() && text.len() <= 2 && text.bytes().all(|byte| byte.is_ascii_digit());
            text.parse().ok().filter(|number| is_number && *number <= most).ok_or_else(wrong)
        };
        Ok(Self(sign * (two(hours, 14)? * 60 + two(minutes, 59)?)))
    }
}

/// The `hours` of a rate rule.
pub fn hours(days: Option<&Days>, from: &str, to: &str, offset: Offset) -> Value {
    let days = days.map(|days| days.0.clone()).unwrap_or_default();
    json!({"days": days, "from": from, "to": to, "utc_offset_minutes": offset.0})
}

/// The same for people.
pub fn hours_shown(hours: &Value) -> String {
    let days: Vec<_> = hours["days"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let days = match days[..] {
        [] => "daily".to_owned(),
        _ => days.iter().map(|day| day.get(..3).unwrap_or(day)).collect::<Vec<_>>().join(","),
    };
    let offset = hours["utc_offset_minutes"].as_i64().unwrap_or(0);
    let (sign, ahead) = if offset < 0 { ('-', -offset) } else { ('+', offset) };
    let zone = match offset {
        0 => "UTC".to_owned(),
        _ => format!("UTC{sign}{:02}:{:02}", ahead / 60, ahead % 60),
    };
    format!("{days} {}-{} {zone}", text(hours, "from"), text(hours, "to"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_are_named_one_by_one_and_in_rows() {
        let days = |text: &str| text.parse::<Days>().map(|days| days.0);
        assert_eq!(days("mon-fri"), Ok(DAYS[..5].to_vec()));
        assert_eq!(days("sat,Sunday"), Ok(DAYS[5..].to_vec()));
        assert_eq!(days("sun-mon, wed"), Ok(vec!["monday", "wednesday", "sunday"]));
        for bad in ["", "mo", "mon-", "noday", "mon,,tue", "mon-tue-wed", "mondays"] {
            assert!(days(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn offsets_have_a_sign() {
        let offset = |text: &str| text.parse::<Offset>().map(|offset| offset.0);
        assert_eq!([offset("+01:00"), offset("-08"), offset("+05:45")], [Ok(60), Ok(-480), Ok(345)]);
        for bad in ["", "1", "+", "+15:00", "+01:60", "+1:+2", "é1:00"] {
            assert!(offset(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn hours_are_shown_as_they_were_asked_for() {
        let days = "mon-tue".parse::<Days>().ok();
        assert_eq!(hours_shown(&hours(days.as_ref(), "08:00", "18:00", Offset(-90))), "mon,tue 08:00-18:00 UTC-01:30");
        assert_eq!(hours_shown(&hours(None, "22:00", "06:00", Offset(0))), "daily 22:00-06:00 UTC");
    }
}
