//! What a protected login costs where data stay in clear.

use std::fs;
use std::path::Path;

use whimbrel_testkit::dataset;
use whimbrel_testkit::peers::Tool;
use whimbrel_testkit::pki::{Member, Pki};

use crate::case::{Case, Contender};
use crate::options::Options;
use crate::room::Room;
use crate::servers::{Pair, Programs};
use crate::versus::Versus;
use crate::{Measured, Outcome};

const GIB: u64 = 1 << 30;
const MIB: u64 = 1 << 20;
/// Size of each of the small files.
const SMALL_BYTES: usize = 10 << 10;

/// Our servers with and without protected logins.
pub struct Logins<'a> {
    pub programs: &'a Programs,
    /// Logins over TLS and with certificates.
    pub safe: &'a Pair,
    /// The authority, and whose proxy is mapped to an account.
    pub person: (&'a Pki, &'a Member),
    /// Logins in clear.
    pub open: &'a Pair,
    /// Where our client keeps what it knows of hosts.
    pub settings: &'a Path,
}

/// How a client logs in.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Login {
    /// With a proxy, handing on rights, as a mapped user.
    Certificate,
    Tls,
    Clear,
}

/// One piece of work for all kinds of login.
struct Work<'a> {
    what: &'static str,
    bytes: u64,
    files: u64,
    flags: Vec<String>,
    from: &'a Path,
    to: &'a Path,
    prepare: &'a dyn Fn() -> Outcome<()>,
}

impl Logins<'_> {
    /// Devices, one file and many, each with every kind of login.
    pub fn measure(&self, options: &Options, done: &mut Measured) -> Outcome<()> {
        done.add(self.case(&memory(options)), options.rounds);
        self.file(options, done)?;
        self.small(options, done)
    }

    fn file(&self, options: &Options, done: &mut Measured) -> Outcome<()> {
        let bytes = options.size(4 * GIB, 512 * MIB);
        let room = Room::for_file(bytes)?;
        let (from, to) = (&room.file("from"), &room.file("to"));
        dataset::random_file(from, bytes, 2)?;
        let flags = vec!["--verify=require".to_owned()];
        let work = Work { what: "a verified file", bytes, files: 1, flags, from, to, prepare: &|| room.without(to) };
        done.add(self.case(&work), options.rounds);
        Ok(())
    }

    fn small(&self, options: &Options, done: &mut Measured) -> Outcome<()> {
        let room = Room::for_small_files()?;
        let files = options.size(10_000, 1000);
        let (from, to) = (room.file("from"), room.file("to"));
        fs::create_dir(&from)?;
        dataset::many_files(&from, files, SMALL_BYTES, 3)?;
        // With a slash at its end, it is the content of a directory.
        let (from, to) = (&from.join(""), &to.join(""));
        let flags = ["-r", "--verify=require"].map(str::to_owned).to_vec();
        let (bytes, files) = (u64::from(files) * SMALL_BYTES as u64, u64::from(files));
        let work = Work { what: "verified small files", bytes, files, flags, from, to, prepare: &|| room.emptied(to) };
        done.add(self.case(&work), options.rounds);
        Ok(())
    }

    fn case<'b>(&'b self, work: &'b Work<'b>) -> Case<'b> {
        let contenders = vec![
            self.cp("login over TLS", Login::Tls, work),
            self.cp("login by certificate", Login::Certificate, work),
            self.cp("login in clear", Login::Clear, work),
        ];
        let safe = ["login over TLS", "login by certificate"];
        let comparisons = safe.map(|login| Versus::new(login, "login in clear").as_fast(0.95)).to_vec();
        let name = format!("{} in clear, login protected or not", work.what);
        Case { name, bytes: work.bytes, files: work.files, contenders, comparisons }
    }

    fn cp<'b>(&'b self, name: &'static str, login: Login, work: &'b Work<'b>) -> Contender<'b> {
        let pair = if login == Login::Clear { self.open } else { self.safe };
        let run = move || {
            (work.prepare)()?;
            let client = self.client(login).args(&work.flags);
            let urls = [pair.source.url(work.from), pair.destination.url(work.to)];
            pair.time(client.args(urls.map(|url| match login {
                // As the certificate calls the host.
                Login::Certificate => url.replacen("ftp://127.0.0.1", "gsiftp://localhost", 1),
                Login::Tls => url.replacen("ftp", "whimbrel", 1),
                Login::Clear => url,
            })))
        };
        let command = format!("whimbrel cp {}", work.flags.join(" "));
        Contender { name, command, servers: pair.ids(), run: Box::new(run) }
    }

    fn client(&self, login: Login) -> Tool {
        let client = self.programs.cp().env("XDG_CONFIG_HOME", self.settings);
        let (pki, person) = self.person;
        if login == Login::Certificate { client.as_member(pki, person) } else { client }
    }
}

fn memory(options: &Options) -> Work<'static> {
    let bytes = options.size(8 * GIB, GIB);
    let flags = vec!["--no-verify".to_owned(), format!("--length={bytes}")];
    let (from, to) = (Path::new("/dev/zero"), Path::new("/dev/null"));
    Work { what: "memory to memory", bytes, files: 1, flags, from, to, prepare: &|| Ok(()) }
}
