//! From a description to running hosts and links.

use std::collections::{BTreeSet, VecDeque};
use std::fmt::Write as _;
use std::fs;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::thread;
use std::time::Instant;

use rustix::pipe::{PipeFlags, pipe_with};
use whimbrel_sys::tun::Tun;

use super::host::{Host, networks};
use super::link::Link;
use super::lockstep::Lockstep;
use super::pump::{Direction, Pump, offload_of};
use super::trace::Recorder;
use super::{Lab, Threads};
use crate::error::{Attempt, Error, Result};
use crate::leftovers;

/// Packets that wait for a link's thread; large, because only the link itself may drop.
const DEVICE_QUEUE_PACKETS: u32 = 20_000;
/// Addresses are `10.77.host.number`.
const MAX_HOSTS: usize = 250;
/// Window limits wide enough that the path, not the default, bounds a connection: 1 Gbit/s over 600 ms is 75 MB.
const RECEIVE_MEMORY: &str = "4096 131072 268435456";
const SEND_MEMORY: &str = "4096 16384 268435456";

/// The description of a laboratory; see [`Lab::builder`].
#[derive(Clone, Debug, Default)]
pub struct LabBuilder {
    hosts: Vec<(String, u8)>,
    links: Vec<Wiring>,
    lockstep: bool,
}

#[derive(Clone, Debug)]
struct Wiring {
    ends: [String; 2],
    directions: [Link; 2],
}

/// A wiring whose hosts are known by number.
struct Edge<'a> {
    ends: [usize; 2],
    directions: &'a [Link; 2],
}

impl LabBuilder {
    /// Adds a host with one address.
    pub fn host(self, name: &str) -> LabBuilder {
        self.host_with_addrs(name, 1)
    }

    /// Adds a host with `count` addresses of each family, 1 to 250, for instance for the data nodes of a striped server.
    pub fn host_with_addrs(mut self, name: &str, count: u8) -> LabBuilder {
        self.hosts.push((name.into(), count));
        self
    }

    /// Joins two hosts by a link that is alike in both directions.
    pub fn link(self, a: &str, b: &str, link: Link) -> LabBuilder {
        self.link_asymmetric(a, b, link.clone(), link)
    }

    /// Joins two hosts; `there` carries packets from `a` to `b`, `back` the others. The smaller MTU holds for both.
    pub fn link_asymmetric(mut self, a: &str, b: &str, there: Link, back: Link) -> LabBuilder {
        self.links.push(Wiring { ends: [a.into(), b.into()], directions: [there, back] });
        self
    }

    /// Joins every pair of hosts added so far, and not yet joined, by such a link of its own.
    pub fn mesh(mut self, link: Link) -> LabBuilder {
        let names: Vec<String> = self.hosts.iter().map(|(name, _)| name.clone()).collect();
        for (number, a) in names.iter().enumerate() {
            for b in &names[number + 1..] {
                let joined = |wiring: &Wiring| wiring.ends.contains(a) && wiring.ends.contains(b);
                if !self.links.iter().any(joined) {
                    self = self.link(a, b, link.clone());
                }
            }
        }
        self
    }

    /// Has packets cross in rounds: none arrives while a process of the laboratory computes that has what was sent before. Times are no longer those of
    /// the links, but [`Trace::one_way_trips`](super::Trace::one_way_trips) is exact however slow the machine is. For dialogues, not for bulk.
    pub fn lockstep(mut self) -> LabBuilder {
        self.lockstep = true;
        self
    }

    /// Starts it. Hosts without a link of their own reach each other through others, by the fewest links.
    ///
    /// Needs root, `ip` and `/dev/net/tun`. Errors: one of those missing, a host named twice, a link to an unknown host
    /// or to the same host, a pair linked twice.
    pub fn build(self) -> Result<Lab> {
        leftovers::sweep();
        let edges = self.edges()?;
        let hosts = self.create_hosts()?;
        let recorder = Arc::new(Recorder::default());
        let lockstep = self.lockstep.then(|| Lockstep::new(&hosts).map(Arc::new)).transpose()?;
        let epoch = Instant::now();
        let mut directions = Vec::new();
        for (number, edge) in edges.iter().enumerate() {
            directions.extend(connect(&hosts, edge, number, epoch, &recorder)?);
        }
        for (index, host) in hosts.iter().enumerate() {
            host.configure(&self.script(index, host, &edges))?;
        }
        let threads = start(&directions, lockstep.as_ref())?;
        Ok(Lab { _threads: threads, hosts, directions, recorder, lockstep, epoch })
    }

    fn edges(&self) -> Result<Vec<Edge<'_>>> {
        let mut edges: Vec<Edge<'_>> = Vec::new();
        for Wiring { ends: [a, b], directions } in &self.links {
            let what = || format!("linking {a} and {b}");
            let find = |name: &String| {
                let found = self.hosts.iter().position(|(host, _)| host == name);
                found.ok_or_else(|| Error::new(what(), format!("there is no host {name}")))
            };
            let ends = [find(a)?, find(b)?];
            let joined = |edge: &Edge<'_>| edge.ends == ends || edge.ends == [ends[1], ends[0]];
            if ends[0] == ends[1] || edges.iter().any(joined) {
                return Err(Error::new(what(), "they are the same host or already linked"));
            }
            edges.push(Edge { ends, directions });
        }
        Ok(edges)
    }

    fn create_hosts(&self) -> Result<Vec<Host>> {
        if self.hosts.len() > MAX_HOSTS {
            return Err(Error::new("building a laboratory", "it has more than 250 hosts"));
        }
        let mut hosts: Vec<Host> = Vec::new();
        for (index, (name, addresses)) in self.hosts.iter().enumerate() {
            if hosts.iter().any(|host| host.name() == name) || !(1..=250).contains(addresses) {
                return Err(Error::new(
                    format!("adding host {name}"),
                    "its name is taken or its addresses not 1 to 250",
                ));
            }
            let host = Host::create(name, index as u8 + 1, *addresses)?;
            tune(&host)?;
            hosts.push(host);
        }
        Ok(hosts)
    }

    /// What `ip` must do on one host, once its devices exist.
    fn script(&self, index: usize, host: &Host, edges: &[Edge<'_>]) -> String {
        let mut script = String::from("link set lo up\n");
        for address in host.addrs().iter().chain(host.addrs_v6()) {
            // An address that is still looking for its duplicates is no source for a route.
            let suffix = if address.is_ipv4() { "/32 dev lo" } else { "/128 dev lo nodad" };
            writeln!(script, "addr add {address}{suffix}").expect("strings grow");
        }
        for (number, edge) in edges.iter().enumerate().filter(|(_, edge)| edge.ends.contains(&index)) {
            let mtu = edge.directions[0].mtu.min(edge.directions[1].mtu);
            writeln!(script, "link set {} addrgenmode none", device(number)).expect("strings grow");
            writeln!(script, "link set {} mtu {mtu} txqueuelen {DEVICE_QUEUE_PACKETS} up", device(number))
                .expect("strings grow");
        }
        for (target, edge) in first_links(index, self.hosts.len(), edges) {
            let sources = [host.addrs()[0], host.addrs_v6()[0]];
            for (network, source) in networks(target as u8 + 1).iter().zip(sources) {
                writeln!(script, "route add {network} dev {} src {source}", device(edge)).expect("strings grow");
            }
        }
        script
    }
}

/// For each host that `start` can reach, the link to take first on a path of the fewest links.
fn first_links(start: usize, hosts: usize, edges: &[Edge<'_>]) -> Vec<(usize, usize)> {
    let mut first: Vec<Option<usize>> = vec![None; hosts];
    let mut waiting = VecDeque::from([start]);
    while let Some(at) = waiting.pop_front() {
        for (number, edge) in edges.iter().enumerate().filter(|(_, edge)| edge.ends.contains(&at)) {
            let next = if edge.ends[0] == at { edge.ends[1] } else { edge.ends[0] };
            if next != start && first[next].is_none() {
                first[next] = Some(first[at].unwrap_or(number));
                waiting.push_back(next);
            }
        }
    }
    first.into_iter().enumerate().filter_map(|(host, link)| Some((host, link?))).collect()
}

fn device(number: usize) -> String {
    format!("link{number}")
}

/// Makes a host a quiet router with wide windows, before it has devices, so that they inherit it.
fn tune(host: &Host) -> Result<()> {
    let v4 = [
        ("net.ipv4.ip_forward", "1"),
        ("net.ipv4.conf.all.rp_filter", "0"),
        ("net.ipv4.conf.default.rp_filter", "0"),
        ("net.ipv4.tcp_rmem", RECEIVE_MEMORY),
        ("net.ipv4.tcp_wmem", SEND_MEMORY),
        // What one connection learned must not help the next one: tests would depend on their order.
        ("net.ipv4.tcp_no_metrics_save", "1"),
    ];
    let v6 = [
        ("net.ipv6.conf.all.forwarding", "1"),
        ("net.ipv6.conf.default.accept_dad", "0"),
        ("net.ipv6.conf.default.router_solicitations", "0"),
    ];
    v4.iter().chain(&v6).try_for_each(|(name, value)| host.set_sysctl(name, value))
}

/// Creates a link's two devices and the shared state of its two directions.
fn connect(
    hosts: &[Host],
    edge: &Edge<'_>,
    number: usize,
    epoch: Instant,
    recorder: &Arc<Recorder>,
) -> Result<[Arc<Direction>; 2]> {
    let end = |side: usize| -> Result<Arc<Tun>> {
        let host = &hosts[edge.ends[side]];
        let offload = offload_of(&edge.directions[side]);
        let tun = host.run(|| Tun::create(&device(number), offload));
        tun.map(Arc::new).attempt(|| format!("creating a TUN device on {}", host.name()))
    };
    let tuns = [end(0)?, end(1)?];
    let direction = |from: usize, to: usize| {
        let names = (hosts[edge.ends[from]].name(), hosts[edge.ends[to]].name());
        let devices = (tuns[from].clone(), tuns[to].clone());
        Arc::new(Direction::new(names, devices, edge.directions[from].clone(), epoch, recorder.clone()))
    };
    Ok([direction(0, 1), direction(1, 0)])
}

fn start(directions: &[Arc<Direction>], lockstep: Option<&Arc<Lockstep>>) -> Result<Threads> {
    let (stop, stopper) = pipe_with(PipeFlags::CLOEXEC).attempt(|| "creating a pipe".into())?;
    let stop: Arc<OwnedFd> = Arc::new(stop);
    let mut threads = Threads { stopper: Some(stopper), running: Vec::new() };
    for (number, direction) in directions.iter().enumerate() {
        let pump = Pump::new(direction.clone(), number as u64 % 2, lockstep.cloned());
        let stop = stop.clone();
        let thread = thread::Builder::new().name(format!("link {}", number / 2)).spawn(move || pump.run(&stop));
        threads.running.push(thread.attempt(|| "starting a link's thread".into())?);
    }
    Ok(threads)
}

/// Admits a congestion control for unprivileged use and in namespaces; the setting is the machine's and is kept.
///
/// Admits all others that the kernel has loaded as well, so that two laboratories that do this at once write the same.
pub(crate) fn allow_congestion_control(name: &str) -> Result<()> {
    const DIRECTORY: &str = "/proc/sys/net/ipv4";
    let read = |file: &str| {
        let path = format!("{DIRECTORY}/{file}");
        fs::read_to_string(&path).attempt(|| format!("reading {path}"))
    };
    let allowed = read("tcp_allowed_congestion_control")?;
    if allowed.split_whitespace().any(|word| word == name) {
        return Ok(());
    }
    let names = format!("{allowed} {} {name}", read("tcp_available_congestion_control")?);
    let names: BTreeSet<&str> = names.split_whitespace().collect();
    let names: Vec<&str> = names.into_iter().collect();
    let path = format!("{DIRECTORY}/tcp_allowed_congestion_control");
    fs::write(&path, names.join(" ")).attempt(|| format!("adding {name} to {path}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn edges<'a>(pairs: &[[usize; 2]], links: &'a [Link; 2]) -> Vec<Edge<'a>> {
        pairs.iter().map(|ends| Edge { ends: *ends, directions: links }).collect()
    }

    #[test]
    fn routes_take_the_fewest_links() {
        let links = [Link::new(), Link::new()];
        // 0 - 1 - 2 - 3, and 3 - 0.
        let edges = edges(&[[0, 1], [1, 2], [2, 3], [3, 0]], &links);
        assert_eq!(first_links(0, 4, &edges), [(1, 0), (2, 0), (3, 3)]);
        assert_eq!(first_links(2, 5, &edges), [(0, 1), (1, 1), (3, 2)], "an unlinked host is not reached");
    }

    #[test]
    fn a_mesh_joins_each_pair_once() {
        let builder = Lab::builder().host("a").host("b").host("c").link("b", "a", Link::new()).mesh(Link::new());
        assert_eq!(builder.edges().expect("valid").len(), 3);
    }

    #[test]
    fn impossible_wirings_are_refused_with_their_reason() {
        let pair = || Lab::builder().host("a").host("b");
        let refused = |builder: LabBuilder| builder.edges().err().expect("must be refused").to_string();
        assert_eq!(refused(pair().link("a", "z", Link::new())), "linking a and z: there is no host z");
        assert!(refused(pair().link("a", "a", Link::new())).contains("same host"));
        assert!(refused(pair().mesh(Link::new()).link("b", "a", Link::new())).contains("already linked"));
    }
}
