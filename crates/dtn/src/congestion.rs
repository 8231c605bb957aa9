//! Which congestion controls data connections of this host may use.

use whimbrel_proto::spent::is_congestion;

/// Names that the kernel lets any process choose (`net.ipv4.tcp_allowed_congestion_control`), in its order; none where it
/// does not say.
pub fn allowed() -> Vec<String> {
    names("/proc/sys/net/ipv4/tcp_allowed_congestion_control")
}

/// All names that the kernel has now, whoever may choose them; none where it does not say.
pub fn available() -> Vec<String> {
    names("/proc/sys/net/ipv4/tcp_available_congestion_control")
}

/// The name that connections have by themselves; `None` where the kernel does not say.
pub fn default() -> Option<String> {
    names("/proc/sys/net/ipv4/tcp_congestion_control").into_iter().next()
}

fn names(path: &str) -> Vec<String> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.split_whitespace().filter(|name| is_congestion(name)).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_is_one_that_anybody_may_choose() {
        let default = default().expect("Linux has one");
        assert!(allowed().contains(&default), "{default} of {:?}", allowed());
    }
}
