//! The options of `whimbrel cp --follow`.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::time::Duration;

use clap::Args;
use serde_json::{Map, Value, json};
use whimbrel_dtn::client::follow::{FollowOptions, swallows_itself};
use whimbrel_dtn::client::options::Place;

use crate::managed::refusal::Trouble;

/// Copying while files are written.
#[derive(Debug, Args)]
#[command(next_help_heading = "While files are written")]
pub struct FollowArgs {
    /// Copy what is in directory SRC into directory DST while a program writes it, each file as it is complete
    #[arg(long, conflicts_with_all = ["list", "dry_run", "offset", "length", "links"])]
    pub follow: bool,
    /// End when a file of this name appears in SRC and everything else is copied; it is copied last
    #[arg(long, value_name = "NAME", requires = "follow")]
    until: Option<OsString>,
    /// Look at the whole directory this often, as in 30s or 2m [default: 5s here, 10s on a server]
    #[arg(long, value_name = "TIME", requires = "follow", value_parser = parse_time)]
    scan_interval: Option<Duration>,
    /// A file unchanged for this long is complete, unless its writer is on this host and still has it open [default: 10s]
    #[arg(long, value_name = "TIME", requires = "follow", value_parser = parse_time)]
    quiet_time: Option<Duration>,
    /// Copy hidden names (.x) and temporary ones (x~ x.part x.tmp) too
    #[arg(long, requires = "follow")]
    include_hidden: bool,
}

/// Time without change that makes a file complete.
const QUIET_TIME: Duration = Duration::from_secs(10);

/// Shortest time that is taken: below, looking would be all that is done.
const LEAST_TIME: Duration = Duration::from_millis(10);

impl FollowArgs {
    /// What the parser cannot see: `places` must be one directory and where it goes.
    pub fn check(&self, places: &[Place]) -> Result<(), &'static str> {
        if !self.follow {
            return Ok(());
        }
        let [source, destination] = places else { return Err("--follow takes one directory and a destination") };
        if swallows_itself(source, destination) {
            return Err("the destination lies in the directory that is followed");
        }
        match &self.until {
            Some(name) if name.is_empty() || name.as_bytes().contains(&b'/') => {
                Err("--until takes the name of a file in the directory, not a path")
            }
            _ => Ok(()),
        }
    }

    /// What a task of the managed service is told of it.
    ///
    /// # Errors
    /// The name of the marker is none.
    pub fn document(&self) -> Result<Map<String, Value>, Trouble> {
        let mut fields = Map::new();
        if !self.follow {
            return Ok(fields);
        }
        let until = self.until.as_ref().map(|name| {
            let name = name.to_str().filter(|name| !name.is_empty() && !name.contains('/'));
            name.ok_or_else(|| {
                Trouble::Usage("--until takes the name of a file in the directory, not a path".to_owned())
            })
        });
        let quiet = self.quiet_time.unwrap_or(QUIET_TIME);
        let seconds = quiet.as_secs() + u64::from(quiet.subsec_nanos() > 0);
        let follow = json!({"until": until.transpose()?, "settled_after_seconds": seconds, "include_hidden": self.include_hidden});
        fields.insert("whimbrel_follow".to_owned(), follow);
        Ok(fields)
    }

    /// The options, for two places.
    pub fn options(self, mut places: Vec<Place>) -> FollowOptions {
        let destination = places.pop().expect("the number of places was checked");
        let source = places.pop().expect("the number of places was checked");
        FollowOptions {
            source,
            destination,
            until: self.until.map(OsString::into_vec),
            scan_interval: self.scan_interval,
            quiet_time: self.quiet_time.unwrap_or(QUIET_TIME),
            include_hidden: self.include_hidden,
        }
    }
}

/// `30`, `30s`, `1.5s`, `500ms`, `2m`.
fn parse_time(text: &str) -> Result<Duration, String> {
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let scale = match unit {
        "" | "s" => 1.0,
        "ms" => 0.001,
        "m" => 60.0,
        "h" => 3600.0,
        _ => return Err("a time is a number with ms, s, m or h behind it".to_owned()),
    };
    let number: f64 = number.parse().map_err(|_| "a time begins with a number".to_owned())?;
    match Duration::try_from_secs_f64(number * scale) {
        Ok(time) if (LEAST_TIME..=Duration::from_secs(86_400)).contains(&time) => Ok(time),
        _ => Err("a time is between 10ms and 24h".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_in_every_unit_and_bad_ones_refused() {
        for (text, millis) in [("30", 30_000), ("1.5s", 1500), ("500ms", 500), ("2m", 120_000), ("1h", 3_600_000)] {
            assert_eq!(parse_time(text), Ok(Duration::from_millis(millis)), "{text}");
        }
        for text in ["", "s", "1d", "-1", "0", "5ms", "25h", "1e3", "1..2"] {
            assert!(parse_time(text).is_err(), "{text}");
        }
    }
}
