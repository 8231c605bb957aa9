//! The wide-area laboratory: hosts in network namespaces, joined by links in user space.
//!
//! A link is a TUN device at each end and one thread per direction, because kernels without `netem` cannot delay or
//! lose packets. Each host has addresses of its own, so client, source and destination never share one.
//!
//! ```no_run
//! use std::time::Duration;
//! use whimbrel_testkit::lab::{Lab, Link};
//!
//! let path = Link::new().rtt(Duration::from_millis(75)).rate_mbit(1000);
//! let lab = Lab::builder().host("client").host("src").host("dst").mesh(path).build()?;
//! let mut server = lab.host("src").command("iperf3").args(["-s", "-1"]).spawn().expect("iperf3");
//! println!("{}", lab.host("src").addr());
//! # server.wait().expect("ends");
//! # Ok::<(), whimbrel_testkit::Error>(())
//! ```
//!
//! Namespaces have no names: they end with the value and with the processes in them, however the test ends. The links'
//! threads run ahead of ordinary ones (`SCHED_FIFO`), so that a busy machine does not stretch the delay;
//! [`Counters::worst_lateness`] tells whether that held.

mod build;
mod handle;
mod host;
mod link;
mod lockstep;
mod packet;
mod pump;
mod ring;
mod rungs;
mod trace;
mod trips;

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

pub use build::LabBuilder;
pub use handle::LinkHandle;
pub use host::Host;
pub use link::{DEFAULT_MTU_BYTES, Link};
pub use packet::{Packet, Tcp};
pub use pump::Counters;
pub use rungs::{LADDER, Rung};
pub use trace::{Fate, Record, Trace};

use crate::error::Result;
use lockstep::Lockstep;
use pump::Direction;
use trace::Recorder;

/// A running laboratory; dropping it ends the links and, once nothing runs in them, the hosts.
pub struct Lab {
    /// First, so that the threads end before what they work on.
    _threads: Threads,
    hosts: Vec<Host>,
    directions: Vec<Arc<Direction>>,
    recorder: Arc<Recorder>,
    lockstep: Option<Arc<Lockstep>>,
    epoch: Instant,
}

impl Lab {
    /// An empty description.
    pub fn builder() -> LabBuilder {
        LabBuilder::default()
    }

    /// `client`, `src` and `dst`, each pair joined by such a link.
    pub fn triangle(link: Link) -> Result<Lab> {
        Lab::builder().host("client").host("src").host("dst").mesh(link).build()
    }

    /// The host of that name; panics when there is none.
    pub fn host(&self, name: &str) -> &Host {
        let found = self.hosts.iter().find(|host| host.name() == name);
        found.unwrap_or_else(|| panic!("the laboratory has no host {name}"))
    }

    /// All hosts, in the order of the description.
    pub fn hosts(&self) -> &[Host] {
        &self.hosts
    }

    /// Both directions of the link between two hosts; panics when they are not directly linked.
    pub fn link(&self, a: &str, b: &str) -> LinkHandle {
        self.handle(|from, to| (from == a && to == b) || (from == b && to == a))
    }

    /// The direction of a link that carries packets `from` one host `to` another; panics when there is none.
    pub fn direction(&self, from: &str, to: &str) -> LinkHandle {
        self.handle(|start, end| start == from && end == to)
    }

    /// All links.
    pub fn links(&self) -> LinkHandle {
        LinkHandle::new(self.directions.clone())
    }

    /// Chooses the congestion control, `cubic`, `bbr` or `reno`, of connections that the host opens or accepts from
    /// here on. Adds it to the machine's `tcp_allowed_congestion_control`, without which a namespace may not have it.
    pub fn set_congestion_control(&self, host: &str, name: &str) -> Result<()> {
        build::allow_congestion_control(name)?;
        self.host(host).set_sysctl("net.ipv4.tcp_congestion_control", name)
    }

    /// [`Lab::set_congestion_control`] on every host.
    pub fn set_congestion_control_everywhere(&self, name: &str) -> Result<()> {
        self.hosts.iter().try_for_each(|host| self.set_congestion_control(host.name(), name))
    }

    /// Time on the laboratory's clock, which the records of a trace bear.
    pub fn now(&self) -> Duration {
        self.at(Instant::now())
    }

    /// An instant on the laboratory's clock; zero for one before the laboratory.
    pub fn at(&self, instant: Instant) -> Duration {
        instant.saturating_duration_since(self.epoch)
    }

    /// Starts recording packets, from nothing; in lockstep, once all hosts are idle. Costs memory for each packet: for exchanges, not for bulk.
    pub fn start_trace(&self) {
        // What servers still prepare would hold up the first packet until somebody gives up.
        self.lockstep.iter().for_each(|lockstep| lockstep.settle());
        self.recorder.start();
    }

    /// What was recorded since [`Lab::start_trace`].
    pub fn trace(&self) -> Trace {
        self.recorder.snapshot()
    }

    /// Processor time that the links' threads have used so far.
    pub fn link_cpu(&self) -> Duration {
        self.directions.iter().map(|direction| crate::cpu::of_thread(direction.thread_id())).sum()
    }

    fn handle(&self, wanted: impl Fn(&str, &str) -> bool) -> LinkHandle {
        let chosen = self.directions.iter().filter(|direction| wanted(&direction.from, &direction.to));
        let chosen: Vec<_> = chosen.cloned().collect();
        assert!(!chosen.is_empty(), "these hosts are not linked");
        LinkHandle::new(chosen)
    }
}

/// The threads of the links; dropping stops and joins them.
struct Threads {
    /// Closing this end of a pipe wakes and stops them all.
    stopper: Option<OwnedFd>,
    running: Vec<JoinHandle<()>>,
}

impl Drop for Threads {
    fn drop(&mut self) {
        self.stopper = None;
        for thread in self.running.drain(..) {
            // A thread that panicked has said so on standard error.
            let _ = thread.join();
        }
    }
}
