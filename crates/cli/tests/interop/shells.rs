//! Over ssh: a real sshd for each kind of server, which is started for every login as its own program has set it up.

use std::fs;
use std::net::SocketAddr;

use whimbrel_testkit::peers::{self, Sshd, Tool};

use crate::support::{Kind, WHIMBREL};

/// Where the real client's way through ssh is.
const SCRIPT: &str = "/usr/share/globus/gridftp-ssh";

/// Two hosts, one of each kind, which let the same keys in.
pub struct Shells {
    ours: Sshd,
    theirs: Sshd,
    /// The real client's script, with this ssh configuration.
    script: std::path::PathBuf,
}

impl Shells {
    /// What it takes beside the cases' own programs.
    pub const PROGRAMS: [&str; 7] =
        ["sshd", "ssh", "ssh-keygen", "unshare", "mount", "globus-url-copy", "globus-gridftp-server-enable-sshftp"];
    /// Whose account it is.
    pub const NAME: &str = "ada";

    /// Both, with their servers set up for `sshftp://`.
    pub fn new() -> Self {
        let start = || Sshd::start().expect("sshd, ssh and root are there");
        let (ours, theirs) = (start(), start());
        let place = |sshd: &Sshd| {
            fs::create_dir_all(sshd.home().join(".globus")).unwrap();
            sshd.home().join(".globus/sshftp")
        };
        Tool::new(WHIMBREL).arg("dtn").arg(format!("--install-sshftp={}", place(&ours).display())).run_ok();
        let enable = peers::find("globus-gridftp-server-enable-sshftp").expect("comes with the real server");
        Tool::new(enable).arg("-out").arg(place(&theirs)).run_ok();
        let join = |name: &str| [&ours, &theirs].map(|sshd| fs::read_to_string(sshd.path(name)).unwrap()).concat();
        let (known, keys) = (join("known_hosts"), join("authorized_keys"));
        ours.put("known_hosts", &known, 0o644).unwrap();
        for sshd in [&ours, &theirs] {
            sshd.put("authorized_keys", &keys, 0o644).unwrap();
        }
        let script = fs::read_to_string(SCRIPT).expect("comes with the real client");
        assert!(script.contains("exec /usr/bin/ssh "), "{script}");
        let script = script.replace("exec /usr/bin/ssh ", &format!("exec {} ", ours.client()));
        let script = ours.put("gridftp-ssh", &script, 0o755).unwrap();
        Self { ours, theirs, script }
    }

    /// Where the server of a kind is.
    pub fn address(&self, kind: Kind) -> SocketAddr {
        match kind {
            Kind::Ours => self.ours.addr(),
            Kind::Theirs => self.theirs.addr(),
        }
    }

    /// `globus-url-copy` with its own script for ssh, which is told of these keys: no variable leads to another one.
    pub fn url_copy(&self) -> Tool {
        let program = peers::find("globus-url-copy").expect("its presence was checked");
        let run = format!("mount --bind {} {SCRIPT} && exec {} \"$@\"", self.script.display(), program.display());
        Tool::new("unshare").args(["--mount", "sh", "-c", &run, "sh"])
    }

    /// Our client, with these keys.
    pub fn whimbrel(&self, tool: Tool) -> Tool {
        tool.env("WHIMBREL_SSH", self.ours.client())
    }
}
