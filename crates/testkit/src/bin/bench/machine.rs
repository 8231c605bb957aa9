//! What the figures were taken on.

use std::fmt;
use std::fs;

use whimbrel_testkit::measure::{self, told_by};
use whimbrel_testkit::peers::Tool;

use crate::Outcome;
use crate::servers::Programs;

/// The machine, the moment and the versions.
#[derive(Debug)]
pub struct Machine {
    pub here: measure::Machine,
    pub memory_gib: f64,
    pub congestion_control: String,
    pub url_copy: String,
}

impl Machine {
    /// Looks around.
    pub fn read(programs: &Programs) -> Outcome<Machine> {
        let memory = told_by("/proc/meminfo", "MemTotal")?;
        let kilobytes = memory.and_then(|text| text.trim_end_matches(" kB").parse::<f64>().ok());
        Ok(Machine {
            here: measure::Machine::read()?,
            memory_gib: kilobytes.unwrap_or(f64::NAN) / f64::from(1 << 20),
            congestion_control: fs::read_to_string("/proc/sys/net/ipv4/tcp_congestion_control")?.trim().into(),
            url_copy: Tool::new(&programs.url_copy).arg("-version").run()?.stderr_text().trim().into(),
        })
    }
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Machine { here, memory_gib, congestion_control, url_copy } = self;
        let measure::Machine { cores, processor, kernel, date, commit } = here;
        writeln!(f, "{date}, commit {commit}; {cores} cores ({processor}), {memory_gib:.0} GiB, Linux {kernel}.")?;
        write!(f, "Congestion control {congestion_control} unless a path says otherwise; peer {url_copy}.")
    }
}
