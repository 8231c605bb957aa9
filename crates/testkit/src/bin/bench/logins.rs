//! What a protected login costs where data stay in clear, and whether the figures hold with it.

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
use crate::{Measured, Outcome, checksums};

const GIB: u64 = 1 << 30;
const MIB: u64 = 1 << 20;
/// Size of each of the small files.
const SMALL_BYTES: usize = 10 << 10;
/// What a protected login may cost.
pub const WITHIN: f64 = 0.95;

/// Our servers with and without protected logins.
pub struct Logins<'a> {
    pub programs: &'a Programs,
    /// Logins over TLS and with certificates.
    pub safe: &'a Pair,
    /// The authority, and whose proxy is mapped to an account.
    pub person: (&'a Pki, &'a Member),
    /// Logins in clear.
    pub open: &'a Pair,
    /// The peers' servers, with logins in clear.
    pub peers: &'a Pair,
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
    peer: Peer,
}

/// The peers' client at the same work, logged in in clear.
#[derive(Clone, Copy)]
struct Peer {
    name: &'static str,
    flags: &'static [&'static str],
    /// It has no verification: checksums at both ends follow.
    checks: bool,
    /// How many times as fast we are to be, logged in in clear.
    times: f64,
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
        let prepare = &|| room.without(to);
        let peer = Peer { name: "guc -fast, CKSM MD5", flags: &["-fast"], checks: true, times: 3.0 };
        let work = Work { what: "a verified file", bytes, files: 1, flags, from, to, prepare, peer };
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
        let (bytes, files) = (u64::from(files) * SMALL_BYTES as u64, u64::from(files));
        for (what, flag, times) in
            [("small files", "--no-verify", 4.0), ("verified small files", "--verify=require", 3.0)]
        {
            let flags = ["-r", flag].map(str::to_owned).to_vec();
            let prepare = &|| room.emptied(to);
            let peer_flags = &["-fast", "-pp", "-cc", "8", "-r"];
            let peer = Peer { name: "guc -fast -pp -cc 8 -r", flags: peer_flags, checks: false, times };
            let work = Work { what, bytes, files, flags, from, to, prepare, peer };
            done.add(self.case(&work), options.rounds);
        }
        Ok(())
    }

    fn case<'b>(&'b self, work: &'b Work<'b>) -> Case<'b> {
        let clear = "login in clear";
        let safe = ["login over TLS", "login by certificate"];
        let contenders = vec![
            self.cp(safe[0], Login::Tls, work),
            self.cp(safe[1], Login::Certificate, work),
            self.cp(clear, Login::Clear, work),
            self.guc(work),
        ];
        // Ten logins weigh as much as some hundred of these files: what that adds to a run of a quarter of a second is
        // shown; what is asked is that the figure holds.
        let cost = |login| match work.files {
            1 => Versus::new(login, clear).as_fast(WITHIN),
            _ => Versus::new(login, clear),
        };
        let figure = |login| Versus::new(login, work.peer.name).as_fast(work.peer.times * WITHIN);
        let comparisons = safe.map(figure).into_iter().chain(safe.map(cost)).collect();
        let name = format!("{} in clear, login protected or not", work.what);
        Case { name, bytes: work.bytes, files: work.files, contenders, comparisons }
    }

    fn guc<'b>(&'b self, work: &'b Work<'b>) -> Contender<'b> {
        let (pair, peer) = (self.peers, work.peer);
        let run = move || {
            (work.prepare)()?;
            let length = work.flags.iter().find_map(|flag| flag.strip_prefix("--length="));
            let length = length.into_iter().flat_map(|bytes| ["-len".to_owned(), bytes.to_owned()]);
            let urls = [pair.source.url(work.from), pair.destination.url(work.to)];
            let client = self.programs.guc().args(peer.flags).args(length).args(urls);
            pair.time_with(client, || match peer.checks {
                true => checksums::md5_at_both_ends(pair, work.from, work.to),
                false => Ok(()),
            })
        };
        let command = format!("globus-url-copy {}", peer.flags.join(" "));
        Contender { name: peer.name, command, servers: pair.ids(), run: Box::new(run) }
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
    let peer = Peer { name: "guc -fast", flags: &["-fast"], checks: false, times: 1.2 };
    Work { what: "memory to memory", bytes, files: 1, flags, from, to, prepare: &|| Ok(()), peer }
}
