//! Which run an unfinished file belongs to, and whether that run is still at work.

use std::fmt;
use std::fs;
use std::hash::{BuildHasher as _, RandomState};
use std::os::unix::fs::MetadataExt as _;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::SystemTime;

use whimbrel_transport::digest::Algorithm;

/// Hexadecimal digits of a run's name.
pub const RUN_DIGITS: usize = 32;

/// One run of a copy: no two are called alike, on whatever hosts they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RunId {
    /// Drawn at random.
    nonce: u32,
    /// Where it runs: this boot of the host, the processes seen from there, and the user. 0 where nobody can say.
    place: u32,
    process: u32,
    /// When its process began, so that another one of the same number is not taken for it.
    began: u32,
}

/// What is known of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Owner {
    /// It is at work in this process, or its process is another one of this host that lives.
    Here,
    /// It was on this host, and is no more.
    Gone,
    /// It is, or was, elsewhere.
    Elsewhere,
}

impl RunId {
    /// One of this process that nobody has had. It is not at work: that is a [`Run`].
    pub fn fresh() -> Self {
        let process = std::process::id();
        let drawn = RandomState::new().hash_one((SystemTime::now(), process));
        let began = began(process);
        // A process that cannot be recognised later is nobody's to judge.
        let place = began.and_then(|_| place()).unwrap_or(0);
        Self { nonce: drawn as u32, place, process, began: began.unwrap_or((drawn >> 32) as u32) }
    }

    /// Whether both are names of one run of this process that is at work.
    pub fn is_of_run_of(self, other: Self) -> bool {
        is_at_work(|names| names.has(self) && names.has(other))
    }

    /// Reads its digits.
    pub fn parse(digits: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(digits).ok().filter(|text| text.len() == RUN_DIGITS)?;
        let part = |at: usize| u32::from_str_radix(&text[at * 8..][..8], 16).ok();
        is_lower_hex(digits).then_some(())?;
        Some(Self { nonce: part(0)?, place: part(1)?, process: part(2)?, began: part(3)? })
    }

    /// Whether it is at work, as far as that is known.
    pub fn owner(self) -> Owner {
        if is_at_work(|names| names.has(self)) {
            return Owner::Here;
        }
        match place() {
            Some(place) if place == self.place && place != 0 => match began(self.process) {
                // Of this process, those at work are known.
                Some(began) if began == self.began && self.process != std::process::id() => Owner::Here,
                _ => Owner::Gone,
            },
            _ => Owner::Elsewhere,
        }
    }
}

impl fmt::Display for RunId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:08x}{:08x}{:08x}{:08x}", self.nonce, self.place, self.process, self.began)
    }
}

/// A run of this process, at work as long as this lives: until then nobody takes over what it has not finished.
///
/// A process may have many, one after the other and at once, as the managed service has: that it lives tells nothing.
#[derive(Debug)]
pub struct Run(Arc<Names>);

impl Run {
    /// Begins.
    pub fn begin() -> Self {
        let names = Arc::new(Names { first: RunId::fresh(), files: AtomicU32::new(0) });
        let mut known = runs();
        known.retain(|run| run.strong_count() > 0);
        known.push(Arc::downgrade(&names));
        Self(names)
    }

    /// Its name.
    pub fn id(&self) -> RunId {
        self.0.first
    }

    /// The same with a name of its own for one of its files: a list may name a destination twice.
    pub fn of_file(&self, number: u64) -> RunId {
        // Of more files than that, names come again: all of them are this run's.
        let highest = u32::try_from(number).unwrap_or(u32::MAX);
        self.0.files.fetch_max(highest, Ordering::Release);
        RunId { nonce: self.0.first.nonce.wrapping_add(number as u32), ..self.0.first }
    }
}

/// What a run is called, and its files, counted from there.
#[derive(Debug)]
struct Names {
    first: RunId,
    /// The highest number that a file has.
    files: AtomicU32,
}

impl Names {
    fn has(&self, name: RunId) -> bool {
        let number = name.nonce.wrapping_sub(self.first.nonce);
        RunId { nonce: self.first.nonce, ..name } == self.first && number <= self.files.load(Ordering::Acquire)
    }
}

/// The runs of this process; those that nobody holds any more have ended.
fn runs() -> MutexGuard<'static, Vec<Weak<Names>>> {
    static RUNS: Mutex<Vec<Weak<Names>>> = Mutex::new(Vec::new());
    RUNS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether a run of this process is at work that is as asked.
fn is_at_work(asked: impl Fn(&Names) -> bool) -> bool {
    runs().iter().filter_map(Weak::upgrade).any(|names| asked(&names))
}

/// Whether names written by [`RunId`] and its like may have these digits.
pub fn is_lower_hex(digits: &[u8]) -> bool {
    digits.iter().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

/// The boot of the host and the processes and user that are seen: what one of them says of a process holds for all of it.
///
/// The identity of the machine would not do: nodes started from one image have the same.
fn place() -> Option<u32> {
    // As long as this process lives it stays where it is; a directory may hold what many runs left.
    static HERE: OnceLock<Option<u32>> = OnceLock::new();
    *HERE.get_or_init(find_place)
}

fn find_place() -> Option<u32> {
    let boot = crate::start::boot()?;
    let processes = fs::read_link("/proc/self/ns/pid").ok()?;
    // Others' processes may be hidden.
    let user = fs::metadata("/proc/self").ok()?.uid();
    let all = [&boot[..], processes.as_os_str().as_encoded_bytes(), &user.to_be_bytes()].concat();
    let digest = Algorithm::Xxh3_128.digest(&all).to_string();
    u32::from_str_radix(&digest[..8], 16).ok()
}

/// When a process began, in ticks of the kernel's clock; `None`: there is none.
fn began(process: u32) -> Option<u32> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The second field is its name in parentheses, whatever that holds.
    let (_, fields) = stat.rsplit_once(')')?;
    let ticks: u64 = fields.split_ascii_whitespace().nth(19)?.parse().ok()?;
    Some(ticks as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_told_apart_and_their_names_read_back() {
        let (run, one, other) = (Run::begin(), RunId::fresh(), RunId::fresh());
        assert_ne!(one, other);
        assert_ne!(run.of_file(1), run.of_file(2));
        assert_eq!(one.to_string().len(), RUN_DIGITS);
        assert_eq!(RunId::parse(one.to_string().as_bytes()), Some(one));
        assert_eq!(RunId::parse(&one.to_string().as_bytes()[1..]), None);
        assert_eq!(RunId::parse(&[b'F'; RUN_DIGITS]), None);
        assert_eq!(RunId::parse(&[b'+'; RUN_DIGITS]), None);
    }

    #[test]
    fn a_run_of_this_process_is_at_work_until_it_is_dropped_whatever_others_there_are() {
        let (run, other) = (Run::begin(), Run::begin());
        let names = [run.id(), run.of_file(0), run.of_file(7), run.of_file(3)];
        assert!(names.iter().all(|name| name.owner() == Owner::Here && name.is_of_run_of(run.id())));
        assert!(names.iter().all(|name| !name.is_of_run_of(other.id())));
        let unused = RunId { nonce: run.id().nonce.wrapping_add(8), ..run.id() };
        assert_eq!(unused.owner(), Owner::Gone);
        drop(run);
        assert!(names.iter().all(|name| name.owner() == Owner::Gone && !name.is_of_run_of(names[0])));
        assert_eq!(other.of_file(7).owner(), Owner::Here);
    }

    #[test]
    fn other_runs_live_with_their_process_and_nothing_is_known_of_other_hosts() {
        let run = RunId::fresh();
        assert_eq!(run.owner(), Owner::Gone, "it is none of those at work");
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let of = RunId { process: child.id(), began: began(child.id()).unwrap(), ..run };
        assert_eq!(of.owner(), Owner::Here);
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(of.owner(), Owner::Gone);
        assert_eq!(RunId { began: run.began.wrapping_add(1), ..run }.owner(), Owner::Gone, "another of its number");
        assert_eq!(RunId { place: run.place.wrapping_add(1), ..run }.owner(), Owner::Elsewhere);
        assert_eq!(RunId { place: 0, ..run }.owner(), Owner::Elsewhere);
    }
}
