//! Which congestion controls data connections of this host may use.

use whimbrel_proto::spent::is_congestion;

/// Names that the kernel lets any process choose (`net.ipv4.tcp_allowed_congestion_control`), in its order; none where it
/// does not say.
pub fn allowed() -> Vec<String> {
    names("/proc/sys/net/ipv4/tcp_allowed_congestion_control")
}

/// The same with the one first that connections have where nobody chooses: `own`, or else the kernel's default.
pub fn own_first(own: Option<&str>) -> Vec<String> {
    let mut names = allowed();
    let own = own.map(str::to_owned).or_else(default);
    if let Some(at) = own.and_then(|own| names.iter().position(|name| *name == own)) {
        names[..=at].rotate_right(1);
    }
    names
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

    #[test]
    fn what_connections_have_by_themselves_comes_first_and_nothing_is_lost() {
        let last = allowed().pop().expect("Linux has one");
        for (own, first) in [(None, default()), (Some(last.as_str()), Some(last.clone()))] {
            let mut names = own_first(own);
            assert_eq!(names.first(), first.as_ref());
            let mut all = allowed();
            names.sort();
            all.sort();
            assert_eq!(names, all);
        }
        assert_eq!(own_first(Some("unheard-of")), allowed());
    }
}
