//! Questions on a terminal.
#![allow(clippy::unwrap_used, reason = "a test helper that fails ends its test")]

mod support;

use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Child, Command, ExitStatus};

use rustix::fs::{Mode, OFlags};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, tcgetattr};
use support::dtn::Dtn;
use support::{WHIMBREL, account};
use whimbrel_testkit::peers::{Tool, public_dir, require};

/// A terminal with the program on it.
struct Terminal {
    keyboard: File,
    screen: File,
    child: Child,
}

impl Terminal {
    /// Starts the program, which asks something; `None` where nothing gives programs a terminal.
    fn asking(arguments: &[&str]) -> Option<Self> {
        let setsid = require("setsid")?;
        let keyboard = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&keyboard).unwrap();
        unlockpt(&keyboard).unwrap();
        let name = ptsname(&keyboard, Vec::new()).unwrap();
        let name = std::ffi::OsStr::from_bytes(name.as_bytes());
        let screen = File::from(rustix::fs::open(name, OFlags::RDWR | OFlags::NOCTTY, Mode::empty()).unwrap());
        let end = || screen.try_clone().unwrap();
        let mut command = Command::new(setsid);
        command.args(["--ctty", WHIMBREL]).args(arguments).env("NETRC", "/dev/null");
        let child = command.stdin(end()).stdout(end()).stderr(end()).spawn().unwrap();
        let mut terminal = Self { keyboard: keyboard.into(), screen, child };
        terminal.wait_for("Password of anna");
        Some(terminal)
    }

    /// Reads what is shown until this is there.
    fn wait_for(&mut self, text: &str) {
        let (mut shown, mut byte) = (Vec::new(), [0]);
        while !String::from_utf8_lossy(&shown).contains(text) {
            self.keyboard.read_exact(&mut byte).unwrap();
            shown.push(byte[0]);
        }
    }

    fn echoes(&self) -> bool {
        let modes = tcgetattr(&self.screen).unwrap().local_modes;
        modes.contains(LocalModes::ECHO | LocalModes::ICANON | LocalModes::ISIG)
    }

    /// Its end, after which the terminal has to be as it was.
    fn end(mut self) -> ExitStatus {
        let status = self.child.wait().unwrap();
        assert!(self.echoes(), "the terminal is not as it was");
        status
    }
}

#[test]
fn a_question_that_is_interrupted_leaves_the_terminal_as_it_was() {
    let place = "ftp://anna@127.0.0.1:1/";
    let Some(mut terminal) = Terminal::asking(&["ls", place]) else { return };
    assert!(!terminal.echoes(), "the password would be seen");
    terminal.keyboard.write_all(b"half\x03").unwrap();
    assert_eq!(terminal.end().code(), Some(130));

    let terminal = Terminal::asking(&["ls", place]).unwrap();
    let id = terminal.child.id().to_string();
    Tool::new("kill").args(["-TERM", &id]).run_ok();
    assert_eq!(terminal.end().signal(), Some(15));
}

#[test]
fn a_password_is_typed_unseen_and_can_be_corrected() {
    let files = public_dir().unwrap();
    let users = files.path().join("users");
    let hash = Tool::new(WHIMBREL).args(["dtn", "--hash-password"]).input("secret").run_ok().stdout_text();
    fs::write(&users, format!("anna:{}:{}\n", hash.trim_end(), account())).unwrap();
    let server = Dtn::builder().root(files.path()).arg("--users").arg(&users).arg("--clear-text-passwords").start();
    let place = format!("ftp://anna@{}/", server.addr());
    let Some(mut terminal) = Terminal::asking(&["stat", &place]) else { return };
    terminal.keyboard.write_all(b"wrong\x15secreX\x7ft\n").unwrap();
    terminal.wait_for("directory");
    assert_eq!(terminal.end().code(), Some(0));
}
