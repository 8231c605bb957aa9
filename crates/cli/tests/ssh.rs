//! `sshftp://` both ways over a real sshd: our client and theirs, our server and theirs.

mod support;

use std::fs;
use std::os::unix::fs::{MetadataExt as _, symlink};
use std::path::PathBuf;

use support::{WHIMBREL, pattern, whimbrel};
use whimbrel_testkit::peers::{self, Run, Sshd, Tool, file_url, public_dir};

/// A payload of several blocks.
const SIZE: usize = 3_000_001;

/// Somebody's account on an sshd, and files of this host.
struct Site {
    sshd: Sshd,
    directory: tempfile::TempDir,
}

impl Site {
    fn start() -> Option<Self> {
        let site = Self { sshd: Sshd::start()?, directory: public_dir().expect("a directory") };
        fs::write(site.here("from"), pattern(SIZE)).expect("written");
        Some(site)
    }

    /// Where sshd's users find our program, and nothing is set up.
    fn with_our_program(self) -> Self {
        let bin = self.sshd.home().join(".local/bin");
        fs::create_dir_all(&bin).expect("made");
        symlink(WHIMBREL, bin.join("whimbrel")).expect("linked");
        self
    }

    /// Where an administrator has set our server up for every sshftp client.
    fn with_our_server(self, more: &[&str]) -> Self {
        let file = format!("--install-sshftp={}", self.sshd.home().join(".globus/sshftp").display());
        fs::create_dir_all(self.sshd.home().join(".globus")).expect("made");
        whimbrel(["dtn", &file]).args(more).run_ok();
        self
    }

    /// Where the real server is set up as its own program does it; `None` where it is missing.
    fn with_real_server(self) -> Option<Self> {
        let program = peers::require("globus-gridftp-server-enable-sshftp")?;
        fs::create_dir_all(self.sshd.home().join(".globus")).expect("made");
        Tool::new(program).arg("-out").arg(self.sshd.home().join(".globus/sshftp")).run_ok();
        Some(self)
    }

    fn here(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// A file in the home of the account, as a URL.
    fn there(&self, name: &str) -> String {
        self.sshd.url(self.sshd.home().join(name))
    }

    fn stored(&self, name: &str) -> Vec<u8> {
        fs::read(self.sshd.home().join(name)).unwrap_or_else(|error| panic!("{name}: {error}\n{}", self.sshd.log()))
    }

    fn client(&self, arguments: &[&str]) -> Tool {
        whimbrel(arguments).env("WHIMBREL_SSH", self.sshd.client())
    }

    /// Our client to and from the account, with one stream and several.
    fn copies_with_our_client(&self) {
        let from = self.here("from").display().to_string();
        self.client(&["cp", &from, &self.there("put")]).run_ok();
        assert!(self.stored("put") == pattern(SIZE));
        assert_eq!(fs::metadata(self.sshd.home().join("put")).expect("there").uid(), 54_321);
        for (parallel, name) in [("1", "one"), ("4", "four")] {
            let to = self.here(name).display().to_string();
            self.client(&["cp", "-p", parallel, &self.there("put"), &to]).run_ok();
            assert!(fs::read(&to).expect("copied") == pattern(SIZE), "{parallel} streams");
        }
        let listed = self.client(&["ls", &self.there("")]).run_ok();
        assert!(listed.stdout_text().contains("put"), "{}", listed.stdout_text());
    }

    /// `globus-url-copy` with its own script for ssh, which is told of this sshd's keys; ssh and Globus look for homes where no
    /// variable leads them.
    fn url_copy(&self) -> Option<Tool> {
        const SCRIPT: &str = "/usr/share/globus/gridftp-ssh";
        let copy = peers::require("globus-url-copy")?;
        let script = fs::read_to_string(SCRIPT).expect("comes with the program");
        assert!(script.contains("exec /usr/bin/ssh "), "{script}");
        let told = format!("exec {} ", self.sshd.client());
        let script =
            self.sshd.put("gridftp-ssh", &script.replace("exec /usr/bin/ssh ", &told), 0o755).expect("written");
        let run = format!("mount --bind {} {SCRIPT} && exec {} \"$@\"", script.display(), copy.display());
        Some(Tool::new("unshare").args(["--mount", "sh", "-c", &run, "sh"]))
    }
}

#[test]
fn our_client_starts_our_server_where_nothing_is_set_up() {
    let Some(site) = Site::start().map(Site::with_our_program) else { return };
    site.copies_with_our_client();
    let home = format!("sshftp://ada@{}/~/", site.sshd.addr());
    let found = site.client(&["stat", "--json", &format!("{home}put")]).run_ok();
    assert!(found.stdout_text().contains(&SIZE.to_string()), "the home is where logins start: {found}");
    let checked = site.client(&["check", &home]).run_ok();
    assert!(checked.stdout_text().contains("ssh to 127.0.0.1"), "{checked}");
    let to = site.here("private").display().to_string();
    site.client(&["cp", "--encrypt", "-p", "2", &site.there("put"), &to]).run_ok();
    assert!(fs::read(&to).expect("copied") == pattern(SIZE), "encrypted");
}

#[test]
fn our_client_uses_the_real_server() {
    let Some(site) = Site::start().and_then(Site::with_real_server) else { return };
    site.copies_with_our_client();
}

#[test]
fn the_real_client_uses_our_server() {
    let Some(site) = Site::start().map(|site| site.with_our_server(&[])) else { return };
    for (options, name) in [(&[][..], "plain"), (&["-fast", "-p", "4"][..], "fast")] {
        let Some(put) = site.url_copy() else { return };
        put.args(options).arg(file_url(site.here("from"))).arg(site.there(name)).run_ok();
        assert!(site.stored(name) == pattern(SIZE), "{name}");
        let back = site.here(name);
        let get = site.url_copy().expect("as before");
        get.args(options).arg(site.there(name)).arg(file_url(&back)).run_ok();
        assert!(fs::read(&back).expect("copied") == pattern(SIZE), "{name}");
    }
}

#[test]
fn servers_of_both_kinds_copy_to_each_other() {
    let Some(ours) = Site::start().map(|site| site.with_our_server(&[])) else { return };
    let Some(theirs) = Site::start().and_then(Site::with_real_server) else { return };
    fs::copy(ours.here("from"), ours.sshd.home().join("a")).expect("put");
    // One configuration for both hosts.
    let join = |name: &str| {
        let of = |site: &Site| fs::read_to_string(site.sshd.path(name)).expect("there");
        of(&ours) + &of(&theirs)
    };
    ours.sshd.put("known_hosts", &join("known_hosts"), 0o644).expect("written");
    theirs.sshd.put("authorized_keys", &join("authorized_keys"), 0o644).expect("written");
    ours.sshd.put("authorized_keys", &join("authorized_keys"), 0o644).expect("written");
    for (from, to) in [((&ours, "a"), (&theirs, "b")), ((&theirs, "b"), (&ours, "c")), ((&ours, "c"), (&ours, "d"))] {
        ours.client(&["cp", "-p", "2", &from.0.there(from.1), &to.0.there(to.1)]).run_ok();
        assert!(to.0.stored(to.1) == pattern(SIZE), "{}", to.1);
    }
    let Some(copy) = ours.url_copy() else { return };
    copy.args(["-p", "2"]).arg(theirs.there("b")).arg(ours.there("e")).run_ok();
    assert!(ours.stored("e") == pattern(SIZE), "the real client");
}

#[test]
fn settings_of_the_installed_script_hold_and_nothing_is_overwritten() {
    let Some(site) = Site::start().map(|site| site.with_our_server(&["--read-only"])) else { return };
    let script = site.stored(".globus/sshftp");
    let from = site.here("from").display().to_string();
    let refused = site.client(&["cp", &from, &site.there("put")]).run_failing();
    assert!(refused.stderr_text().contains("read-only"), "{refused}");
    let file = format!("--install-sshftp={}", site.sshd.home().join(".globus/sshftp").display());
    let again = whimbrel(["dtn", &file]).run_failing();
    assert!(again.stderr_text().contains("already exists"), "{again}");
    assert_eq!(site.stored(".globus/sshftp"), script);
}

#[track_caller]
fn refused(site: &Site, code: i32, parts: &[&str]) -> Run {
    let run = site.client(&["ls", &site.there("")]).run().expect("it runs");
    assert_eq!(run.code(), Some(code), "{run}");
    let said = run.stderr_text();
    assert!(parts.iter().all(|part| said.contains(part)), "{parts:?} in:\n{said}");
    run
}

#[test]
fn a_host_key_that_is_not_the_known_one_ends_it() {
    let Some(site) = Site::start().map(Site::with_our_program) else { return };
    let stranger = fs::read_to_string(site.sshd.path("stranger.pub")).expect("a key");
    let known = format!("[127.0.0.1]:{} {stranger}", site.sshd.addr().port());
    site.sshd.put("known_hosts", &known, 0o644).expect("written");
    refused(&site, 6, &["not who it should be", "Host key verification failed"]);
}

#[test]
fn a_key_that_opens_nothing_is_told() {
    let Some(site) = Site::start().map(Site::with_our_program) else { return };
    site.sshd.put("authorized_keys", "", 0o644).expect("written");
    refused(&site, 6, &["login failed", "Permission denied (publickey)"]);
}

#[test]
fn a_host_without_a_server_is_told_with_the_cure() {
    let Some(site) = Site::start() else { return };
    refused(&site, 5, &["the login works", "--install-sshftp"]);
}

#[test]
fn a_server_that_ends_at_once_is_shown_with_what_it_said() {
    let Some(site) = Site::start() else { return };
    site.sshd.program(".globus/sshftp", "#!/bin/sh\necho the disk is on fire >&2\nexit 3\n").expect("written");
    refused(&site, 5, &["the disk is on fire"]);
}

#[test]
fn nobody_gets_in_without_ssh_and_never_as_root() {
    let Some(_site) = Site::start() else { return };
    let input = "USER ada\r\nPASS x\r\nQUIT\r\n";
    let plain = whimbrel(["dtn", "--stdio"]).input(input).run_failing();
    assert!(plain.stderr_text().contains("never read as root"), "{plain}");
    let session = "127.0.0.1 1 127.0.0.1 22";
    // Where there may be a terminal, it is left behind.
    let alone = || Tool::new("setsid").args(["--wait", WHIMBREL, "dtn", "--stdio"]);
    let root = alone().env("SSH_CONNECTION", session).input(input).run_failing();
    assert!(root.stderr_text().contains("never handled as root"), "{root}");
}

#[test]
fn a_variable_of_ssh_lets_nobody_in_over_a_socket() {
    use std::io::Read as _;
    use std::net::{TcpListener, TcpStream};
    use std::process::{Command, Stdio};
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let mut client = TcpStream::connect(listener.local_addr().expect("bound")).expect("connected");
    let (server, _) = listener.accept().expect("accepted");
    let socket = || Stdio::from(std::os::fd::OwnedFd::from(server.try_clone().expect("a socket")));
    let mut command = Command::new(WHIMBREL);
    command.args(["dtn", "--stdio"]).env("SSH_CONNECTION", "127.0.0.1 1 127.0.0.1 22");
    let output = command.stdin(socket()).stdout(socket()).stderr(Stdio::piped()).output().expect("it runs");
    drop((command, server));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains("nobody could log in"), "{said}");
    let mut greeting = String::new();
    client.read_to_string(&mut greeting).expect("it is closed");
    assert_eq!(greeting, "");
}
