//! Front ends with data nodes, of either kind, in a laboratory where every node has a link of its own.

use std::path::PathBuf;

use whimbrel_testkit::dataset;
use whimbrel_testkit::lab::{Host, Lab, Link};
use whimbrel_testkit::peers::{Daemon, GridftpServer, public_dir};
use whimbrel_testkit::require_root;

use super::dtn::{Dtn, data_node};

/// Whose program.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    /// The real one.
    Real,
    /// Ours.
    Own,
}

/// A front end with data nodes on hosts of their own.
pub enum Cluster {
    /// With the directory that the tests work in.
    Real(GridftpServer, PathBuf),
    Own {
        /// What clients connect to.
        front: Dtn,
        /// In the order in which they joined.
        nodes: Vec<Daemon>,
    },
}

impl Cluster {
    /// Starts it, ready; `None` when it is not installed.
    pub fn start(field: &Ground, kind: Kind, front: &str, nodes: &[&str]) -> Option<Cluster> {
        let host = |name: &&str| field.lab.host(name).clone();
        let nodes: Vec<Host> = nodes.iter().map(host).collect();
        let front = field.lab.host(front);
        if kind == Kind::Real {
            let builder = GridftpServer::builder()?.on(front);
            let builder = nodes.iter().fold(builder, |builder, node| builder.data_node_on(node, node.addr()));
            let server = builder.start().expect("the real server starts");
            return Some(Self::Real(server, field.directory.path().to_path_buf()));
        }
        let secret = field.path("secret");
        let server = Dtn::on(front).anonymous().root(field.directory.path());
        let server = if nodes.is_empty() { server } else { server.front(&secret) }.start();
        let join = |node: &Host| data_node(Some(node), node.addr(), server.node_addr(), &secret);
        let nodes: Vec<Daemon> = nodes.iter().map(join).collect();
        server.wait_for_nodes(nodes.len());
        Some(Self::Own { front: server, nodes })
    }

    /// The URL of something in the field; ours serves only that.
    pub fn url(&self, name: &str) -> String {
        match self {
            Self::Real(server, field) => server.url(field.join(name)),
            Self::Own { front, .. } => front.url(format!("/{name}")),
        }
    }

    /// Whether it is the real one.
    pub fn is_real(&self) -> bool {
        matches!(self, Self::Real(..))
    }
}

/// A laboratory around one router, and a file to move in it.
pub struct Ground {
    /// The hosts.
    pub lab: Lab,
    directory: tempfile::TempDir,
}

impl Ground {
    /// `client`, fronts `src` and `dst`, and data nodes `s1`.. and `d1`.. on addresses of their own, with a file `from`
    /// of so many bytes; `None` where there can be no laboratory.
    pub fn new(wire: Link, nodes: usize, bytes: u64) -> Option<Ground> {
        if !require_root() {
            return None;
        }
        let mut hosts: Vec<String> = ["client", "src", "dst"].map(String::from).into();
        hosts.extend((1..=nodes).flat_map(|number| [format!("s{number}"), format!("d{number}")]));
        let builder = hosts.iter().fold(Lab::builder().host("router"), |lab, host| lab.host(host));
        let builder = hosts.iter().fold(builder, |lab, host| lab.link("router", host, wire.clone()));
        let lab = builder.build().expect("laboratory");
        let ground = Ground { lab, directory: public_dir().expect("directory") };
        dataset::random_file(&ground.path("from"), bytes, 7).expect("made");
        std::fs::write(ground.path("secret"), "sixteen bytes or more").expect("written");
        Some(ground)
    }

    /// Something in its directory.
    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }
}
