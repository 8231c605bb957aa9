//! Standard output, and what becomes of a command when it takes no more.
//!
//! A command that only prints ends then: quietly, as `ls | head` does, if whoever read it has gone. One that does work does all of it, prints
//! no more, and its exit code tells of the loss.

use std::io::{self, ErrorKind, Write as _};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};

use whimbrel_engine::summary::exit;

/// Whether printing is all that the command does.
static ONLY_PRINTS: AtomicBool = AtomicBool::new(false);

/// Whether something could not be printed.
static LOST: AtomicBool = AtomicBool::new(false);

/// Says that the command does nothing but print, so that there is nothing to finish.
pub fn only_printing() {
    ONLY_PRINTS.store(true, Ordering::Relaxed);
}

/// Prints a line.
pub fn line(text: &str) {
    print(format!("{text}\n").as_bytes());
}

/// Prints bytes as they are.
pub fn print(bytes: &[u8]) {
    if LOST.load(Ordering::Relaxed) {
        return;
    }
    let mut out = io::stdout().lock();
    if let Err(error) = out.write_all(bytes).and_then(|()| out.flush()) {
        lost(&error);
    }
}

/// The exit code of a command that has ended with `code`: what was not printed is a failure, too.
pub fn settled(code: ExitCode) -> ExitCode {
    let lost = LOST.load(Ordering::Relaxed);
    if lost && code == ExitCode::SUCCESS { ExitCode::from(exit::SOME_FAILED) } else { code }
}

fn lost(error: &io::Error) {
    LOST.store(true, Ordering::Relaxed);
    let ends = ONLY_PRINTS.load(Ordering::Relaxed);
    if ends && error.kind() == ErrorKind::BrokenPipe {
        std::process::exit(exit::OK.into());
    }
    let rest = if ends { "" } else { "; the work goes on, and no more is printed" };
    // Where nothing can be said either, the exit code tells.
    let _ = writeln!(io::stderr().lock(), "whimbrel: standard output cannot be written: {error}{rest}");
    if ends {
        std::process::exit(exit::SOME_FAILED.into());
    }
}
