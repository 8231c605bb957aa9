//! Times as heads of answers have them (RFC 9110 §5.6.7).

use whimbrel_proto::timeval::Timestamp;

const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

/// Seconds since 1970 as `Sun, 06 Nov 1994 08:49:37 GMT`.
pub(super) fn http(seconds: i64) -> String {
    let time = Timestamp::from_secs(seconds).to_civil();
    let weekday = usize::try_from(seconds.div_euclid(24 * 3600).rem_euclid(7)).map_or("Thu", |day| DAYS[day]);
    let month = MONTHS.get(time.month as usize - 1).unwrap_or(&"Jan");
    let (day, year) = (time.day, time.year);
    format!("{weekday}, {day:02} {month} {year:04} {:02}:{:02}:{:02} GMT", time.hour, time.minute, time.second)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_those_of_the_standard() {
        assert_eq!(http(784_111_777), "Sun, 06 Nov 1994 08:49:37 GMT");
        assert_eq!(http(0), "Thu, 01 Jan 1970 00:00:00 GMT");
        assert_eq!(http(951_827_696), "Tue, 29 Feb 2000 12:34:56 GMT");
        assert_eq!(http(-1), "Wed, 31 Dec 1969 23:59:59 GMT");
    }
}
