//! A real sshd on loopback for one account, with keys of its own and nothing of this host's.

use std::fs::{self, Permissions};
use std::io::Read;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

use tempfile::TempDir;

use super::{Tool, find, public_dir, require};
use crate::error::{Attempt, Result};
use crate::{leftovers, require_root};

/// The account that logs in; it exists in the sight of this sshd only.
const NAME: &str = "ada";
/// Its user and group number.
const NUMBER: u32 = 54_321;

/// An sshd; dropping it ends it and its sessions.
///
/// Each connection is served by a process of its own that was handed the socket, so that a free port can be had for certain.
#[derive(Debug)]
pub struct Sshd {
    directory: TempDir,
    address: SocketAddr,
    door: Arc<Door>,
    porter: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Door {
    closed: AtomicBool,
    log: Mutex<String>,
}

impl Sshd {
    /// An sshd on 127.0.0.1, or `None` where a program or the privilege is missing and the test may be skipped.
    #[track_caller]
    pub fn start() -> Option<Sshd> {
        let programs = ["sshd", "ssh", "ssh-keygen", "unshare", "mount"].map(require);
        if programs.iter().any(Option::is_none) || !require_root() {
            return None;
        }
        Some(Self::make().unwrap_or_else(|error| panic!("{error}")))
    }

    fn make() -> Result<Sshd> {
        let directory = public_dir()?;
        let at = |name: &str| directory.path().join(name);
        let home = at("home");
        fs::create_dir(&home).attempt(|| "making a home".to_owned())?;
        chown(&home, Some(NUMBER), Some(NUMBER)).attempt(|| "giving a home away".to_owned())?;
        for key in ["host", "user", "stranger"] {
            Tool::new("ssh-keygen").args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(at(key)).run_ok();
        }
        let listener = TcpListener::bind("127.0.0.1:0").attempt(|| "listening for ssh".to_owned())?;
        let address = listener.local_addr().attempt(|| "listening for ssh".to_owned())?;
        let mut sshd = Sshd { directory, address, door: Arc::default(), porter: None };
        sshd.write_files()?;
        let (command, door) = (sshd.session()?, sshd.door.clone());
        let porter = thread::spawn(move || door.serve(&listener, &command));
        sshd.porter = Some(porter);
        Ok(sshd)
    }

    fn write_files(&self) -> Result<()> {
        let key = |name: &str| fs::read_to_string(self.path(name)).attempt(|| format!("reading {name}"));
        self.put("authorized_keys", &key("user.pub")?, 0o644)?;
        let known = format!("[127.0.0.1]:{} {}", self.address.port(), key("host.pub")?);
        self.put("known_hosts", &known, 0o644)?;
        let here = self.directory.path().display();
        let settings = format!(
            "HostKey {here}/host\nAuthorizedKeysFile {here}/authorized_keys\nPidFile none\nUsePAM no\nStrictModes no\n\
             PasswordAuthentication no\nKbdInteractiveAuthentication no\nLogLevel VERBOSE\n"
        );
        self.put("sshd_config", &settings, 0o644)?;
        let settings = format!(
            "Host *\n IdentityFile {here}/user\n IdentitiesOnly yes\n IdentityAgent none\n UserKnownHostsFile {here}/known_hosts\n \
             GlobalKnownHostsFile /dev/null\n StrictHostKeyChecking yes\n"
        );
        self.put("ssh_config", &settings, 0o644)?;
        for (file, line) in [
            ("passwd", format!("{NAME}:*:{NUMBER}:{NUMBER}::{here}/home:/bin/sh\n")),
            ("group", format!("{NAME}:*:{NUMBER}:\n")),
        ] {
            let etc = fs::read_to_string(format!("/etc/{file}")).attempt(|| format!("reading {file}"))?;
            self.put(file, &format!("{etc}{line}"), 0o644)?;
        }
        Ok(())
    }

    /// The program that serves one connection: in its sight the account exists, and /run is its own.
    fn session(&self) -> Result<PathBuf> {
        let here = self.directory.path().display();
        let sshd = find("sshd").unwrap_or_default();
        let script = format!(
            "#!/bin/sh\nset -e\nmount --bind {here}/passwd /etc/passwd\nmount --bind {here}/group /etc/group\n\
             mount -t tmpfs tmpfs /run\nmkdir -m 755 /run/sshd\nexec {} -i -e -f {here}/sshd_config\n",
            sshd.display()
        );
        self.put("session", &script, 0o755)
    }

    /// Where it listens.
    pub fn addr(&self) -> SocketAddr {
        self.address
    }

    /// The account's home directory.
    pub fn home(&self) -> PathBuf {
        self.path("home")
    }

    /// A file of the directory with everything of this sshd.
    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Writes a program of the account, at a path below its home.
    pub fn program(&self, name: &str, text: &str) -> Result<PathBuf> {
        self.put(&format!("home/{name}"), text, 0o755)
    }

    /// The ssh client that knows this sshd and has the account's key.
    pub fn client(&self) -> String {
        format!("ssh -F {}", self.path("ssh_config").display())
    }

    /// An `sshftp://` URL of an absolute path.
    pub fn url(&self, path: impl AsRef<Path>) -> String {
        format!("sshftp://{NAME}@{}{}", self.address, super::url_path(path.as_ref()))
    }

    /// What its sessions have said so far.
    pub fn log(&self) -> String {
        self.door.log.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Writes a file of this sshd.
    pub fn put(&self, name: &str, text: &str, mode: u32) -> Result<PathBuf> {
        let path = self.path(name);
        let what = || format!("writing {}", path.display());
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent).attempt(what)?;
        }
        fs::write(&path, text).attempt(what)?;
        fs::set_permissions(&path, Permissions::from_mode(mode)).attempt(what)?;
        Ok(path)
    }
}

impl Drop for Sshd {
    fn drop(&mut self) {
        self.door.closed.store(true, Ordering::Relaxed);
        // Wakes who waits for connections.
        drop(TcpStream::connect(self.address));
        if let Some(porter) = self.porter.take() {
            // It has told its fault.
            let _ = porter.join();
        }
    }
}

impl Door {
    fn serve(self: Arc<Self>, listener: &TcpListener, session: &Path) {
        let mut sessions: Vec<Child> = Vec::new();
        while let Ok((stream, _)) = listener.accept() {
            sessions.retain_mut(|child| matches!(child.try_wait(), Ok(None)));
            if self.closed.load(Ordering::Relaxed) {
                break;
            }
            match self.clone().open(stream, session) {
                Ok(child) => sessions.push(child),
                Err(error) => eprintln!("no sshd: {error}"),
            }
        }
        for mut child in sessions {
            // One that has ended by itself is as good.
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    fn open(self: Arc<Self>, stream: TcpStream, session: &Path) -> std::io::Result<Child> {
        let mut command = Command::new("unshare");
        leftovers::mark(&mut command);
        command.args(["--mount"]).arg(session).env_remove("SSH_CONNECTION");
        let output = stream.try_clone()?;
        command.stdin(Stdio::from(OwnedFd::from(stream))).stdout(Stdio::from(OwnedFd::from(output)));
        let mut child = command.stderr(Stdio::piped()).spawn()?;
        if let Some(mut stderr) = child.stderr.take() {
            thread::spawn(move || {
                let mut part = [0; 4096];
                while let Ok(count @ 1..) = stderr.read(&mut part) {
                    let text = String::from_utf8_lossy(&part[..count]).into_owned();
                    self.log.lock().unwrap_or_else(PoisonError::into_inner).push_str(&text);
                }
            });
        }
        Ok(child)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_account_logs_in_with_its_key_and_a_stranger_does_not() {
        let Some(sshd) = Sshd::start() else { return };
        let port = sshd.addr().port().to_string();
        let ssh = |more: &[&str]| {
            let config = sshd.path("ssh_config");
            let tool = Tool::new("ssh").arg("-F").arg(config).args(["-p", &port]).args(more);
            tool.args(["ada@127.0.0.1", "id -un; pwd"])
        };
        let run = ssh(&[]).run_ok();
        assert_eq!(run.stdout_text(), format!("ada\n{}\n", sshd.home().display()), "{}", sshd.log());
        let stranger = format!("-oIdentityFile={}", sshd.path("stranger").display());
        ssh(&["-F", "/dev/null", "-oStrictHostKeyChecking=no", "-oUserKnownHostsFile=/dev/null", &stranger])
            .run_failing();
    }
}
