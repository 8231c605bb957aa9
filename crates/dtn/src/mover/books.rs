//! What a data process writes down: what users store, and finished transfers. It goes to files that its account may have no right to open, so
//! whoever starts the process opens them and hands them on.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileTypeExt;
use std::path::PathBuf;
use std::process::Stdio;

use serde::{Deserialize, Serialize};
use whimbrel_engine::{Fault, Side};

use super::ledger::Ledger;
use super::log::{self, TransferLog};
use crate::packets::Channel;

/// Where the transfer log goes.
#[derive(Debug, Clone, Default)]
pub struct LogPaths {
    /// Lines in the classic form.
    pub classic: Option<PathBuf>,
    /// Lines as JSON.
    pub json: Option<PathBuf>,
}

/// Open files for one data process.
#[derive(Debug, Default)]
pub struct Files {
    /// What users have stored before, for reading and appending.
    pub ledger: Option<File>,
    /// As [`LogPaths::classic`].
    pub classic: Option<File>,
    /// As [`LogPaths::json`].
    pub json: Option<File>,
}

/// What a data process does with them.
#[derive(Debug, Default)]
pub struct Books {
    /// What users have stored.
    pub ledger: Ledger,
    /// Finished transfers.
    pub log: TransferLog,
}

/// Which files come, in this order.
#[derive(Serialize, Deserialize)]
struct Contents {
    ledger: bool,
    classic: bool,
    json: bool,
}

impl LogPaths {
    /// Opens those that are named; makes them if need be.
    ///
    /// # Errors
    /// The first that cannot be opened.
    pub fn open(&self) -> Result<Files, Fault> {
        let open = |path: &Option<PathBuf>| path.as_deref().map(log::append_to).transpose();
        Ok(Files { ledger: None, classic: open(&self.classic)?, json: open(&self.json)? })
    }

    /// The same while serving: a log that cannot be opened any more fails nobody, and is said.
    pub fn open_or_say(&self) -> Files {
        let open = |path: &Option<PathBuf>| {
            let file = path.as_deref().map(log::append_to).transpose();
            file.inspect_err(|fault| tracing::error!(%fault, "transfers are not written down")).unwrap_or_default()
        };
        Files { ledger: None, classic: open(&self.classic), json: open(&self.json) }
    }
}

impl Files {
    /// The standard output of the process that is to have them.
    pub fn into_stdio(self) -> io::Result<Stdio> {
        let (ours, theirs) = Channel::pair()?;
        let contents =
            Contents { ledger: self.ledger.is_some(), classic: self.classic.is_some(), json: self.json.is_some() };
        let files: Vec<File> = [self.ledger, self.classic, self.json].into_iter().flatten().collect();
        let files: Vec<BorrowedFd<'_>> = files.iter().map(AsFd::as_fd).collect();
        ours.send(&contents, &files)?;
        Ok(Stdio::from(theirs.into_fd()))
    }

    /// Those that this process was started with; none where its standard output is something else.
    fn of_this_process() -> io::Result<Self> {
        let output = File::from(io::stdout().as_fd().try_clone_to_owned()?);
        if !output.metadata()?.file_type().is_socket() {
            return Ok(Self::default());
        }
        let Some((contents, files)) = Channel::from(OwnedFd::from(output)).receive::<Contents>()? else {
            return Ok(Self::default());
        };
        let mut files = files.into_iter().map(File::from);
        let mut next = |comes: bool| match comes {
            true => files.next().map(Some).ok_or_else(|| io::Error::from(io::ErrorKind::InvalidData)),
            false => Ok(None),
        };
        Ok(Self { ledger: next(contents.ledger)?, classic: next(contents.classic)?, json: next(contents.json)? })
    }
}

impl Books {
    /// What this process was started with.
    ///
    /// # Errors
    /// `Internal` and those of reading: of what users have stored before must not be lost.
    pub fn of_this_process() -> Result<Self, Fault> {
        let failed = |error| Fault::from_io(error, "open what is written down").side(Side::Us);
        Self::of(Files::of_this_process().map_err(failed)?).map_err(failed)
    }

    /// Goes on with what the files say.
    ///
    /// # Errors
    /// Those of reading what users have stored.
    pub fn of(files: Files) -> io::Result<Self> {
        let ledger = files.ledger.map(Ledger::kept).transpose()?.unwrap_or_default();
        Ok(Self { ledger, log: TransferLog::to(files.classic, files.json) })
    }
}
