//! Which run an unfinished file belongs to, and whether that run is still at work.

use std::fmt;
use std::fs;
use std::hash::{BuildHasher as _, RandomState};
use std::os::unix::fs::MetadataExt as _;
use std::sync::OnceLock;
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
    /// Its process lives, on this host.
    Here,
    /// It was on this host, and is no more.
    Gone,
    /// It is, or was, elsewhere.
    Elsewhere,
}

impl RunId {
    /// A run of this process.
    pub fn fresh() -> Self {
        let process = std::process::id();
        let drawn = RandomState::new().hash_one((SystemTime::now(), process));
        let began = began(process);
        // A process that cannot be recognised later is nobody's to judge.
        let place = began.and_then(|_| place()).unwrap_or(0);
        Self { nonce: drawn as u32, place, process, began: began.unwrap_or((drawn >> 32) as u32) }
    }

    /// The same run with a name of its own for one of its files: a list may name a destination twice.
    pub fn of_file(self, number: u64) -> Self {
        Self { nonce: self.nonce.wrapping_add(number as u32), ..self }
    }

    /// Whether both are of one process.
    pub fn is_of_process_of(self, other: Self) -> bool {
        (self.place, self.process, self.began) == (other.place, other.process, other.began)
    }

    /// Reads its digits.
    pub fn parse(digits: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(digits).ok().filter(|text| text.len() == RUN_DIGITS)?;
        let part = |at: usize| u32::from_str_radix(&text[at * 8..][..8], 16).ok();
        is_lower_hex(digits).then_some(())?;
        Some(Self { nonce: part(0)?, place: part(1)?, process: part(2)?, began: part(3)? })
    }

    /// Whether its process is one of this host, and lives.
    pub fn owner(self) -> Owner {
        match place() {
            Some(place) if place == self.place && place != 0 => match began(self.process) {
                Some(began) if began == self.began => Owner::Here,
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
        let (one, other) = (RunId::fresh(), RunId::fresh());
        assert_ne!(one, other);
        assert_ne!(one.of_file(1), one.of_file(2));
        assert!(one.of_file(1).is_of_process_of(other));
        assert!(!one.is_of_process_of(RunId { process: one.process + 1, ..other }));
        assert_eq!(one.to_string().len(), RUN_DIGITS);
        assert_eq!(RunId::parse(one.to_string().as_bytes()), Some(one));
        assert_eq!(RunId::parse(&one.to_string().as_bytes()[1..]), None);
        assert_eq!(RunId::parse(&[b'F'; RUN_DIGITS]), None);
        assert_eq!(RunId::parse(&[b'+'; RUN_DIGITS]), None);
    }

    #[test]
    fn a_run_lives_with_its_process_and_nothing_is_known_of_other_hosts() {
        let run = RunId::fresh();
        assert_eq!(run.owner(), Owner::Here);
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
