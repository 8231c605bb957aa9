//! What a host is like, as far as it bears on moving data: facts of SITE PROBE HOST.

use std::path::Path;

use whimbrel_proto::op::Fact;

use super::node::Node;

/// Kernel settings that decide how fast TCP can be, and those that people get wrong.
const SETTINGS: [&str; 16] = [
    "net.core.rmem_max",
    "net.core.wmem_max",
    "net.core.default_qdisc",
    "net.ipv4.tcp_rmem",
    "net.ipv4.tcp_wmem",
    "net.ipv4.tcp_congestion_control",
    "net.ipv4.tcp_available_congestion_control",
    "net.ipv4.tcp_allowed_congestion_control",
    "net.ipv4.tcp_mtu_probing",
    "net.ipv4.tcp_window_scaling",
    "net.ipv4.tcp_sack",
    "net.ipv4.tcp_timestamps",
    "net.ipv4.tcp_moderate_rcvbuf",
    "net.ipv4.tcp_slow_start_after_idle",
    "net.ipv4.tcp_no_metrics_save",
    "vm.dirty_ratio",
];

/// Most network interfaces that are told.
const INTERFACES: usize = 16;

/// Everything that can be found out; what cannot is left out.
pub fn facts(node: &Node) -> Vec<Fact> {
    let mut facts = vec![Fact::new("host.cores", node.processors), Fact::new("host.software", software())];
    let mut add = |name: &str, value: Option<String>| {
        if let Some(value) = value.filter(|value| !value.is_empty()) {
            facts.push(Fact::new(name, value));
        }
    };
    add("host.name", setting("kernel.hostname"));
    add("host.kernel", setting("kernel.osrelease"));
    add("host.memory", memory());
    add("host.load", read("/proc/loadavg").and_then(|text| text.split(' ').next().map(str::to_owned)));
    let (soft, hard) = open_files();
    add("limit.open_files", soft);
    add("limit.open_files_hard", hard);
    for name in SETTINGS {
        add(&format!("sysctl.{name}"), setting(name));
    }
    add("interfaces", Some(interfaces()));
    facts
}

fn software() -> &'static str {
    concat!("Whimbrel ", env!("CARGO_PKG_VERSION"))
}

fn read(path: impl AsRef<Path>) -> Option<String> {
    std::fs::read_to_string(path).ok()
}

/// The value of a kernel setting; white space between parts is one space.
fn setting(name: &str) -> Option<String> {
    let text = read(format!("/proc/sys/{}", name.replace('.', "/")))?;
    Some(text.split_whitespace().collect::<Vec<_>>().join(" "))
}

/// Bytes.
fn memory() -> Option<String> {
    let text = read("/proc/meminfo")?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some((kib << 10).to_string())
}

/// How many files this process may have open, now and at most.
fn open_files() -> (Option<String>, Option<String>) {
    let text = read("/proc/self/limits").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("Max open files"));
    let mut words = line.unwrap_or_default().split_whitespace().map(str::to_owned);
    (words.next(), words.next())
}

/// Names of the network interfaces with what the system says of them, except those that lead nowhere.
fn interfaces() -> String {
    let text = read("/proc/self/net/dev").unwrap_or_default();
    let names = text.lines().filter_map(|line| line.split_once(':')).map(|(name, _)| name.trim());
    let known = names.filter(|name| *name != "lo").take(INTERFACES).map(|name| {
        let about = |what: &str| read(format!("/sys/class/net/{name}/{what}")).map(|value| value.trim().to_owned());
        let speed = about("speed").filter(|speed| speed.parse::<u64>().is_ok_and(|speed| speed > 0));
        let mtu = about("mtu").map(|mtu| format!(" mtu {mtu}")).unwrap_or_default();
        format!("{name}{mtu}{}", speed.map(|speed| format!(" speed {speed}")).unwrap_or_default())
    });
    known.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_have_one_space_between_their_parts() {
        let buffers = setting("net.ipv4.tcp_rmem").expect("every Linux has it");
        assert_eq!(buffers.split(' ').filter_map(|part| part.parse::<u64>().ok()).count(), 3, "{buffers}");
        assert_eq!(setting("no.such.setting"), None);
    }

    #[test]
    fn memory_and_open_files_are_numbers() {
        assert!(memory().unwrap().parse::<u64>().unwrap() > 1 << 20);
        assert!(open_files().0.unwrap().parse::<u64>().unwrap() > 0);
    }
}
