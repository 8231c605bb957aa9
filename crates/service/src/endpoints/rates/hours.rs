//! The hours of the week in which a rule holds.

use jiff::civil::Weekday;
use jiff::tz::Offset;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use whimbrel_engine::listing::Timestamp;

const DAY: i32 = 24 * 60;

/// The hours of the week in which a rule holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Hours {
    /// The days on which it begins to hold; empty: all.
    #[serde(default)]
    days: Vec<Day>,
    /// When it begins, `HH:MM`.
    from: String,
    /// When it ends, `HH:MM`; no later than `from`: on the next day.
    to: String,
    /// Minutes by which its clock is ahead of UTC; default 0.
    #[serde(default)]
    utc_offset_minutes: i32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Day {
    Monday,
    Tuesday,
    Wednesday,
    Thursday,
    Friday,
    Saturday,
    Sunday,
}

impl Day {
    fn of(weekday: Weekday) -> Self {
        match weekday {
            Weekday::Monday => Self::Monday,
            Weekday::Tuesday => Self::Tuesday,
            Weekday::Wednesday => Self::Wednesday,
            Weekday::Thursday => Self::Thursday,
            Weekday::Friday => Self::Friday,
            Weekday::Saturday => Self::Saturday,
            Weekday::Sunday => Self::Sunday,
        }
    }
}

impl Hours {
    /// What is wrong with them.
    pub fn fault(&self) -> Option<&'static str> {
        if minutes(&self.from).is_none() || minutes(&self.to).is_none() {
            return Some("`from` and `to` are times of the day, as in 08:00");
        }
        // As far as clocks are set anywhere.
        (!(-14 * 60..=14 * 60).contains(&self.utc_offset_minutes)).then_some("`utc_offset_minutes` is -840 to 840")
    }

    /// Whether it is one of them.
    pub fn hold(&self, now: Timestamp) -> bool {
        let (Some(from), Some(to)) = (minutes(&self.from), minutes(&self.to)) else { return false };
        let offset = Offset::from_seconds(self.utc_offset_minutes * 60).unwrap_or(Offset::UTC);
        let Ok(now) = jiff::Timestamp::from_second(now.secs) else { return false };
        let now = offset.to_datetime(now);
        let minute = i32::from(now.hour()) * 60 + i32::from(now.minute());
        let length = (to - from).rem_euclid(DAY);
        let length = if length == 0 { DAY } else { length };
        let begins = |weekday| self.days.is_empty() || self.days.contains(&Day::of(weekday));
        let today = begins(now.weekday()) && (from..from + length).contains(&minute);
        let since_yesterday = begins(now.weekday().previous()) && (from..from + length).contains(&(minute + DAY));
        today || since_yesterday
    }
}

/// Minutes since midnight.
fn minutes(text: &str) -> Option<i32> {
    let (hours, minutes) = text.split_once(':')?;
    let two = |text: &str, most: i32| -> Option<i32> {
        let digits = text.len() == 2 && text.bytes().all(|byte| byte.is_ascii_digit());
        text.parse().ok().filter(|number| digits && *number <= most)
    };
    Some(two(hours, 23)? * 60 + two(minutes, 59)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hours(days: &[Day], from: &str, to: &str, utc_offset_minutes: i32) -> Hours {
        Hours { days: days.to_vec(), from: from.into(), to: to.into(), utc_offset_minutes }
    }

    /// 5 January 1970 was a Monday.
    fn at(day: i64, hour: i64, minute: i64) -> Timestamp {
        Timestamp::from_secs((4 + day) * 86_400 + hour * 3600 + minute * 60)
    }

    #[test]
    fn working_hours_hold_on_working_days() {
        let work = hours(&[Day::Monday, Day::Friday], "08:00", "18:30", 0);
        assert!(work.hold(at(0, 8, 0)) && work.hold(at(4, 18, 29)));
        assert!(!work.hold(at(0, 7, 59)) && !work.hold(at(0, 18, 30)) && !work.hold(at(1, 12, 0)));
    }

    #[test]
    fn nights_belong_to_the_day_on_which_they_begin() {
        let night = hours(&[Day::Sunday], "22:00", "06:00", 0);
        assert!(night.hold(at(6, 23, 0)) && night.hold(at(7, 5, 59)));
        assert!(!night.hold(at(6, 5, 0)) && !night.hold(at(7, 6, 0)) && !night.hold(at(7, 23, 0)));
    }

    #[test]
    fn clocks_elsewhere_are_heeded_and_equal_times_are_whole_days() {
        let there = hours(&[Day::Monday], "00:00", "00:00", 120);
        assert!(there.hold(at(6, 22, 0)) && there.hold(at(0, 21, 59)) && !there.hold(at(0, 22, 0)));
    }

    #[test]
    fn what_is_no_time_is_told() {
        for (from, to, offset) in
            [("8:00", "18:00", 0), ("08:00", "24:00", 0), ("0a:00", "18:00", 0), ("08:00", "18:00", 841)]
        {
            assert!(hours(&[], from, to, offset).fault().is_some(), "{from} {to} {offset}");
        }
        assert_eq!(hours(&[], "08:00", "18:00", -840).fault(), None);
    }
}
