//! One host: a network namespace with its own addresses.

use std::ffi::OsStr;
use std::io::{self, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::{fs, path::Path};

use whimbrel_sys::netns::NetNs;

use crate::error::{Attempt, Error, Result};
use crate::leftovers;

/// A host of the laboratory; cheap to clone.
///
/// Its addresses are its own, whichever link it is reached by, and no two hosts of a laboratory share one.
#[derive(Clone, Debug)]
pub struct Host {
    name: String,
    space: Arc<NetNs>,
    addresses: Vec<IpAddr>,
    addresses_v6: Vec<IpAddr>,
}

impl Host {
    /// `index` counts the hosts of a laboratory from 1.
    pub(crate) fn create(name: &str, index: u8, addresses: u8) -> Result<Host> {
        let space = NetNs::create().attempt(|| format!("creating the network namespace of {name}"))?;
        Ok(Host {
            name: name.into(),
            space: Arc::new(space),
            addresses: (1..=addresses).map(|number| IpAddr::from(Ipv4Addr::new(10, 77, index, number))).collect(),
            addresses_v6: (1..=addresses).map(|number| IpAddr::from(address_v6(index, number))).collect(),
        })
    }

    /// The name given to the builder.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The first IPv4 address; connections that do not choose come from it.
    pub fn addr(&self) -> IpAddr {
        self.addresses[0]
    }

    /// All IPv4 addresses.
    pub fn addrs(&self) -> &[IpAddr] {
        &self.addresses
    }

    /// All IPv6 addresses.
    pub fn addrs_v6(&self) -> &[IpAddr] {
        &self.addresses_v6
    }

    /// A command that will run `program` on this host.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        self.adopt(&mut command);
        command
    }

    /// Makes `command` run on this host.
    pub fn adopt(&self, command: &mut Command) {
        self.space.enter_on_exec(command).expect("a descriptor can be duplicated");
        leftovers::mark(command);
    }

    /// Runs `work` on a thread of its own on this host; its sockets and threads stay there, so a server or an async
    /// runtime may be built in it and used from outside.
    pub fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        self.space.run(work).expect("a namespace that exists can be entered")
    }

    /// Sets a kernel variable of this host's network, named like `net.ipv4.tcp_ecn`.
    pub fn set_sysctl(&self, name: &str, value: &str) -> Result<()> {
        let path = Path::new("/proc/sys").join(name.replace('.', "/"));
        self.run(|| fs::write(&path, value)).attempt(|| format!("setting {name} to {value:?} on {}", self.name))
    }

    /// Reads a kernel variable of this host's network.
    pub fn sysctl(&self, name: &str) -> Result<String> {
        let path = Path::new("/proc/sys").join(name.replace('.', "/"));
        let value = self.run(|| fs::read_to_string(&path)).attempt(|| format!("reading {name} on {}", self.name))?;
        Ok(value.trim().into())
    }

    /// A counter of this host's network, named like `TcpExt` and `TCPTimeouts` or `Tcp` and `RetransSegs` in
    /// `/proc/net/netstat` and `/proc/net/snmp`.
    pub fn counter(&self, protocol: &str, name: &str) -> Option<u64> {
        let read = |file: &str| fs::read_to_string(Path::new("/proc/thread-self/net").join(file));
        let text = self.run(|| Ok::<_, io::Error>(read("snmp")? + &read("netstat")?)).ok()?;
        let mut lines = text.lines().filter_map(|line| line.split_once(": ")).filter(|(key, _)| *key == protocol);
        let (names, values) = (lines.next()?.1, lines.next()?.1);
        let (_, value) = names.split(' ').zip(values.split(' ')).find(|(candidate, _)| *candidate == name)?;
        value.parse().ok()
    }

    /// Runs the lines of `script` through `ip -batch` on this host.
    pub(crate) fn configure(&self, script: &str) -> Result<()> {
        let what = || format!("configuring the network of {} with `ip`", self.name);
        let mut command = self.command("ip");
        command.args(["-batch", "-"]).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().attempt(what)?;
        let mut input = child.stdin.take().expect("standard input is piped");
        let written = input.write_all(script.as_bytes());
        drop(input);
        let output = child.wait_with_output().attempt(what)?;
        if !output.status.success() {
            return Err(Error::new(what(), String::from_utf8_lossy(&output.stderr)));
        }
        written.attempt(what)
    }
}

/// The addresses of host `index`, IPv4 and IPv6, as `ip route` names them.
pub(crate) fn networks(index: u8) -> [String; 2] {
    [format!("10.77.{index}.0/24"), format!("{}/112", address_v6(index, 0))]
}

fn address_v6(index: u8, number: u8) -> Ipv6Addr {
    Ipv6Addr::new(0xfd77, 0, 0, 0, 0, 0, index.into(), number.into())
}
