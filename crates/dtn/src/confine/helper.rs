//! Somebody who may still start a program when this process no longer may.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};

use serde::{Deserialize, Serialize};
use whimbrel_connector::posix::{LayoutTool, Lfs};
use whimbrel_engine::{Fault, Side};
use whimbrel_sys::poll::{self, PollFd, PollFlags};

use crate::packets::Channel;
use crate::parent;

/// What is run with the words given, in the directory beside it.
#[derive(Debug, Serialize, Deserialize)]
struct Request(Vec<Vec<u8>>);

/// What it printed, or why it failed.
#[derive(Debug, Serialize, Deserialize)]
struct Reply(Result<String, String>);

/// Subcommands of `lfs` that are run; no other.
const VERBS: [&[u8]; 2] = [b"getstripe", b"setstripe"];

/// Most of what a program prints that is passed on, bytes.
const MOST_TEXT: usize = 16 << 10;

/// A process that runs `lfs` for this one.
#[derive(Debug)]
pub struct Helper(Mutex<Channel>);

impl Helper {
    /// Starts it; it ends with this process. Call it before the process is confined.
    pub fn start(lfs: &Path) -> Result<Self, Fault> {
        let failed = |error| Fault::from_io(error, "start lfs helper").side(Side::Us);
        let (ours, theirs) = Channel::pair().map_err(failed)?;
        let program = std::env::current_exe().map_err(failed)?;
        let mut command = Command::new(program);
        command.arg("lfs-helper").arg(lfs).stdin(Stdio::from(theirs.into_fd())).stdout(Stdio::null());
        command.spawn().map_err(failed)?;
        Ok(Self(Mutex::new(ours)))
    }
}

impl LayoutTool for Helper {
    fn run(&self, dir: BorrowedFd<'_>, arguments: &[OsString]) -> Result<String, String> {
        let channel = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let words = arguments.iter().map(|word| word.as_bytes().to_vec()).collect();
        let answer = channel.send(&Request(words), &[dir]).and_then(|()| wait_for::<Reply>(&channel));
        match answer {
            Ok(Some((Reply(told), _))) => told,
            Ok(None) => Err("the helper that runs it is gone".to_owned()),
            Err(error) => Err(error.to_string()),
        }
    }
}

/// The next message, however long that takes; `None` at the end.
fn wait_for<M: serde::de::DeserializeOwned>(channel: &Channel) -> io::Result<Option<(M, Vec<OwnedFd>)>> {
    loop {
        match channel.receive() {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            other => return other,
        }
        poll::wait(&mut [PollFd::from_borrowed_fd(channel.as_fd(), PollFlags::IN)], None)?;
    }
}

/// Runs `lfs` for the process at the other end of standard input, to its end.
pub fn serve_standard_input(lfs: &OsStr) -> Result<(), Fault> {
    let failed = |error| Fault::from_io(error, "help with lfs").side(Side::Us);
    parent::end_with_parent()?;
    let channel = Channel::from(io::stdin().as_fd().try_clone_to_owned().map_err(failed)?);
    let tool = Lfs(lfs.into());
    while let Some((Request(words), descriptors)) = wait_for(&channel).map_err(failed)? {
        channel.send(&Reply(answer(&tool, words, &descriptors)), &[]).map_err(failed)?;
    }
    Ok(())
}

fn answer(tool: &Lfs, words: Vec<Vec<u8>>, descriptors: &[OwnedFd]) -> Result<String, String> {
    let [dir] = descriptors else { return Err("one directory is needed".to_owned()) };
    if !words.first().is_some_and(|verb| VERBS.contains(&verb.as_slice())) {
        return Err("no such request".to_owned());
    }
    let words: Vec<OsString> = words.into_iter().map(OsString::from_vec).collect();
    let short = |mut text: String| {
        let end = (0..=MOST_TEXT.min(text.len())).rev().find(|at| text.is_char_boundary(*at));
        text.truncate(end.unwrap_or(0));
        text
    };
    tool.run(dir.as_fd(), &words).map(short).map_err(short)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_layouts_are_asked_for_and_long_answers_are_cut() {
        let dir = OwnedFd::from(std::fs::File::open("/").unwrap());
        let echo = Lfs("/bin/echo".into());
        let ask = |words: &[&str]| {
            answer(&echo, words.iter().map(|word| word.as_bytes().to_vec()).collect(), &[dir.try_clone().unwrap()])
        };
        assert_eq!(ask(&["getstripe", "-d", "."]).unwrap(), "getstripe -d .\n");
        assert!(ask(&["mirror", "x"]).is_err());
        assert!(ask(&[]).is_err());
        let long = "é".repeat(MOST_TEXT);
        assert!(ask(&["setstripe", &long]).unwrap().len() <= MOST_TEXT);
        assert!(answer(&echo, vec![b"getstripe".to_vec()], &[]).is_err());
    }
}
