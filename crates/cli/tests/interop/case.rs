//! One line of the table: who does what to whom, and how that is tried.

use crate::support::Context;

/// The client program of a case.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Program {
    /// `globus-url-copy`.
    UrlCopy,
    /// `whimbrel cp` and its sister commands.
    Whimbrel,
    /// `curl`.
    Curl,
    /// `lftp`.
    Lftp,
    /// Python's ftplib.
    Ftplib,
    /// gfal2 through its Python bindings.
    Gfal2,
}

impl Program {
    /// Its name in the table.
    pub fn name(self) -> &'static str {
        match self {
            Self::UrlCopy => "globus-url-copy",
            Self::Whimbrel => "whimbrel",
            Self::Curl => "curl",
            Self::Lftp => "lftp",
            Self::Ftplib => "Python ftplib",
            Self::Gfal2 => "gfal2",
        }
    }
}

/// Something that must work.
pub struct Case {
    /// The client.
    pub program: Program,
    /// Between whom the data go, for the table.
    pub direction: &'static str,
    /// The option or operation tried.
    pub option: String,
    /// What a pass proves, for the table.
    pub proves: &'static str,
    /// Whether the real server takes part.
    pub needs_server: bool,
    /// Whether it runs only when ignored cases are asked for.
    pub nightly: bool,
    /// Whether it moves so much that nothing else of its kind should run beside it.
    pub large: bool,
    /// Whether it reads or changes what connections carry, and so tells nothing where they are protected.
    pub clear: bool,
    /// Whether its server listens at an address that it chose.
    pub own_address: bool,
    /// Whether its program itself cannot do it over TLS.
    pub not_over_tls: bool,
    /// Tries it, and panics when it does not work.
    pub run: Box<dyn Fn(&Context) + Send + Sync>,
}

impl Case {
    /// A case without the real server that proves the bytes equal.
    pub fn new(
        program: Program,
        direction: &'static str,
        option: impl Into<String>,
        run: impl Fn(&Context) + Send + Sync + 'static,
    ) -> Self {
        let run = Box::new(run);
        let option = option.into();
        let (needs_server, nightly, large, clear) = (direction.contains("theirs"), false, false, false);
        let (proves, own_address, not_over_tls) = ("same bytes", false, false);
        Self { program, direction, option, proves, needs_server, nightly, large, clear, own_address, not_over_tls, run }
    }

    /// Names what it proves, where that is not only equal bytes.
    pub fn proves(mut self, what: &'static str) -> Self {
        self.proves = what;
        self
    }

    /// Leaves it to nightly runs when `when` holds.
    pub fn nightly(mut self, when: bool) -> Self {
        self.nightly = when;
        self
    }

    /// Marks it as moving a lot.
    pub fn large(mut self, when: bool) -> Self {
        self.large = when;
        self
    }

    /// Leaves it out where connections are protected.
    pub fn in_clear(mut self) -> Self {
        self.clear = true;
        self
    }

    /// Leaves it out where servers are not told where to listen.
    pub fn at_own_address(mut self) -> Self {
        self.own_address = true;
        self
    }

    /// Leaves it out over TLS, which its program cannot do there, when `when` holds.
    pub fn not_over_tls(mut self, when: bool) -> Self {
        self.not_over_tls = when;
        self
    }

    /// Whether it is one of the few that every run tries over every protection: one file and one tree each way for each program.
    pub fn is_sample(&self) -> bool {
        let options: &[&str] = match self.program {
            Program::UrlCopy => &["-fast -p 4, 10 MB", "-r -cd -fast -pp -cc 4"],
            Program::Whimbrel => &["cp -p 4, 10 MB", "cp -r --concurrency 4"],
            Program::Curl => &["no option, 10 MB", "directory"],
            Program::Lftp => &["mirror --parallel=4", "mirror -R --parallel=4"],
            Program::Ftplib => &["RETR; PASV", "STOR; PORT", "LIST and NLST; PASV"],
            Program::Gfal2 => &["filecopy, 4 streams, 10 MB", "listdir"],
        };
        options.contains(&self.option.as_str())
    }

    /// Its name for selection.
    pub fn name(&self) -> String {
        format!("{}::{}::{}", self.program.name(), self.direction, self.option).replace(' ', "_")
    }
}
