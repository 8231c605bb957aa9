//! How many descriptors a process may have: files, sockets and what else it has open.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// More than this no process of ours needs; programs that close all there might be take long with more.
pub const MOST: u64 = 1 << 20;

/// Allows this process so many, or as many as the host does without being asked; how many it may have now.
pub fn allow(wanted: u64) -> u64 {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let wanted = maximum.map_or(wanted, |most| most.min(wanted));
    match current {
        Some(current) if current < wanted => {
            let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), maximum }) else {
                return wanted;
            };
            tracing::warn!(%error, "no more descriptors to be had");
            current
        }
        current => current.unwrap_or(u64::MAX),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_gets_what_it_wants_as_far_as_the_host_allows_it_and_loses_nothing() {
        let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
        let lower = current.map_or(1024, |current| current.min(1024));
        setrlimit(Resource::Nofile, Rlimit { current: Some(lower), maximum }).expect("a lower limit");
        assert_eq!(allow(lower - 1), lower);
        let wanted = maximum.map_or(4096, |most| most.min(4096)).max(lower);
        assert_eq!((allow(wanted), getrlimit(Resource::Nofile).current), (wanted, Some(wanted)));
        setrlimit(Resource::Nofile, Rlimit { current, maximum }).expect("as it was");
    }
}
