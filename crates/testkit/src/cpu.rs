//! Processor time and memory of process trees, from `/proc`.
//!
//! A tree is a process and its descendants. Children that ended count through their parent, once it has waited for
//! them; a process whose parent ended before it has left the tree.

use std::collections::HashSet;
use std::fs;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// Length of the kernel's tick as user space sees it: `USER_HZ` is 100 on every architecture that this runs on.
const TICK: Duration = Duration::from_millis(10);

/// What `/proc/PID/stat` says about a process (proc_pid_stat(5)).
#[derive(Clone, Copy, Debug)]
struct Stat {
    parent: u32,
    group: u32,
    /// User and system time of the process and of the children it has waited for, in ticks.
    ticks: u64,
    start_time: u64,
}

impl Stat {
    fn of(id: u32) -> Option<Stat> {
        Stat::parse(&fs::read_to_string(format!("/proc/{id}/stat")).ok()?)
    }

    fn parse(text: &str) -> Option<Stat> {
        // The second field is a name in parentheses that may itself hold spaces and parentheses.
        let fields: Vec<&str> = text.rsplit_once(") ")?.1.split(' ').collect();
        let number = |field: usize| fields.get(field - 3)?.trim().parse::<i64>().ok().map(|value| value.max(0) as u64);
        let ticks = (14..=17).map(number).sum::<Option<u64>>()?;
        Some(Stat { parent: number(4)? as u32, group: number(5)? as u32, ticks, start_time: number(22)? })
    }
}

/// When a process started, in ticks since the machine did; `None` when it does not exist.
pub(crate) fn start_time(id: u32) -> Option<u64> {
    Stat::of(id).map(|stat| stat.start_time)
}

/// The ids of all processes.
pub(crate) fn all_processes() -> Vec<u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

/// Processor time of one thread of this process; zero when it has ended.
pub(crate) fn of_thread(thread_id: i32) -> Duration {
    let text = fs::read_to_string(format!("/proc/self/task/{thread_id}/schedstat")).unwrap_or_default();
    let nanoseconds = text.split(' ').next().and_then(|field| field.parse().ok());
    Duration::from_nanos(nanoseconds.unwrap_or(0))
}

/// The threads of a process, by id, with their times on and off a processor (`/proc/PID/task/TID/schedstat`), if all of them sleep; `None` also when
/// one ends meanwhile.
pub(crate) fn sleeping_threads(id: u32) -> Option<Vec<(u32, String)>> {
    let threads = fs::read_dir(format!("/proc/{id}/task")).ok()?;
    let sleeping = |thread: u32| {
        let times = fs::read_to_string(format!("/proc/{id}/task/{thread}/schedstat")).ok()?;
        // Running, and waiting for a disk, are not sleeping.
        (!matches!(thread_state(id, thread)?, 'R' | 'D')).then_some((thread, times))
    };
    threads.map(|entry| sleeping(entry.ok()?.file_name().to_str()?.parse().ok()?)).collect()
}

/// The state of each thread of a process, as in proc_pid_stat(5); none when it is gone.
pub fn thread_states(id: u32) -> String {
    let threads = fs::read_dir(format!("/proc/{id}/task")).into_iter().flatten().flatten();
    threads.filter_map(|entry| thread_state(id, entry.file_name().to_str()?.parse().ok()?)).collect()
}

fn thread_state(id: u32, thread: u32) -> Option<char> {
    let stat = fs::read_to_string(format!("/proc/{id}/task/{thread}/stat")).ok()?;
    stat.rsplit_once(") ")?.1.chars().next()
}

/// The living processes of the trees below `roots`, the roots included, each once.
pub fn tree(roots: &[u32]) -> Vec<u32> {
    let all: Vec<(u32, u32)> = all_processes().into_iter().filter_map(|id| Some((id, Stat::of(id)?.parent))).collect();
    let mut found: Vec<u32> = all.iter().map(|(id, _)| *id).filter(|id| roots.contains(id)).collect();
    let mut known: HashSet<u32> = found.iter().copied().collect();
    let mut next = 0;
    while let Some(parent) = found.get(next).copied() {
        found.extend(all.iter().filter(|(id, of)| *of == parent && known.insert(*id)).map(|(id, _)| *id));
        next += 1;
    }
    found
}

/// The processes of a process group, those included whose parents have ended.
pub(crate) fn group(leader: u32) -> Vec<u32> {
    all_processes().into_iter().filter(|id| Stat::of(*id).is_some_and(|stat| stat.group == leader)).collect()
}

/// Processor time, user and system, of the trees below `roots` so far; resolution 10 ms for each process.
pub fn of_trees(roots: &[u32]) -> Duration {
    let ticks: u64 = tree(roots).into_iter().filter_map(Stat::of).map(|stat| stat.ticks).sum();
    TICK * u32::try_from(ticks).unwrap_or(u32::MAX)
}

/// Processor time of a process that has ended but has not been waited for, its waited-for children included.
pub(crate) fn of_ended(id: u32) -> Duration {
    Stat::of(id).map_or(Duration::ZERO, |stat| TICK * stat.ticks as u32)
}

/// Processor time from one moment to another, for trees that live all the while.
#[derive(Debug)]
pub struct Meter {
    roots: Vec<u32>,
    before: Duration,
}

impl Meter {
    /// Starts counting.
    pub fn start(roots: &[u32]) -> Meter {
        Meter { roots: roots.to_vec(), before: of_trees(roots) }
    }

    /// Processor time since the start.
    pub fn spent(&self) -> Duration {
        of_trees(&self.roots).saturating_sub(self.before)
    }
}

/// Proportional set size in bytes of the trees below `roots`: shared pages are divided among those that share them.
pub fn pss_bytes(roots: &[u32]) -> u64 {
    tree(roots).into_iter().filter_map(pss_of).sum()
}

fn pss_of(id: u32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{id}/smaps_rollup")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("Pss:"))?;
    line.trim().strip_suffix(" kB")?.parse::<u64>().ok().map(|kilobytes| kilobytes * 1024)
}

/// Follows the highest [`pss_bytes`] of some trees on a thread of its own, by samples.
#[derive(Debug)]
pub struct PeakPss {
    stop: Sender<()>,
    sampler: JoinHandle<u64>,
}

impl PeakPss {
    /// Starts sampling `every` so often; a peak shorter than that may be missed.
    pub fn start(roots: &[u32], every: Duration) -> PeakPss {
        let roots = roots.to_vec();
        let (stop, stopped) = channel();
        let sampler = thread::spawn(move || {
            let mut peak = pss_bytes(&roots);
            while stopped.recv_timeout(every) == Err(RecvTimeoutError::Timeout) {
                peak = peak.max(pss_bytes(&roots));
            }
            peak
        });
        PeakPss { stop, sampler }
    }

    /// Stops and returns the highest value seen, in bytes.
    pub fn stop(self) -> u64 {
        drop(self.stop);
        self.sampler.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead, BufReader, Write};
    use std::process::{Child, Command, Stdio};

    /// A shell that reports on a line when it has done the work of a line it was given.
    struct Shell(Child, BufReader<std::process::ChildStdout>);

    impl Shell {
        fn start() -> Shell {
            let mut child = Command::new("sh").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("sh");
            let output = BufReader::new(child.stdout.take().expect("piped"));
            Shell(child, output)
        }

        fn run(&mut self, line: &str) -> String {
            let input = self.0.stdin.as_mut().expect("piped");
            writeln!(input, "{line}; echo $!").expect("the shell reads");
            let mut answer = String::new();
            self.1.read_line(&mut answer).expect("the shell answers");
            answer.trim().into()
        }
    }

    impl Drop for Shell {
        fn drop(&mut self) {
            drop(self.0.stdin.take());
            self.0.wait().expect("the shell ends");
        }
    }

    #[test]
    fn time_of_children_counts_once_they_are_waited_for() {
        let mut shell = Shell::start();
        let meter = Meter::start(&[shell.0.id()]);
        shell.run("sh -c 'i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done'");
        assert!(meter.spent() >= Duration::from_millis(30), "{:?}", meter.spent());
        assert!(meter.spent() < Duration::from_secs(30));
    }

    #[test]
    fn a_tree_has_its_background_children_and_their_memory() {
        let mut shell = Shell::start();
        let alone = pss_bytes(&[shell.0.id()]);
        let child: u32 = shell.run("cat < /dev/zero > /dev/null & :").parse().expect("a process id");
        let mut tree = tree(&[shell.0.id()]);
        tree.sort_unstable();
        let mut expected = [shell.0.id(), child];
        expected.sort_unstable();
        assert_eq!(tree, expected);
        assert!(alone > 0);
        shell.run(&format!("kill {child}; wait"));
    }

    #[test]
    fn a_name_with_spaces_and_parentheses_does_not_shift_the_fields() {
        let text = "7 (a) b (c) S 3 7 7 0 -1 4 1 2 3 4 10 20 30 40 20 0 1 0 555 1 2 3";
        let stat = Stat::parse(text).expect("parses");
        assert_eq!((stat.parent, stat.group, stat.ticks, stat.start_time), (3, 7, 100, 555));
    }

    #[test]
    fn the_peak_includes_memory_touched_after_the_start() {
        let peak = PeakPss::start(&[std::process::id()], Duration::from_millis(1));
        let before = pss_bytes(&[std::process::id()]);
        let memory = vec![1u8; 64 << 20];
        let during = pss_bytes(&[std::process::id()]);
        std::hint::black_box(&memory);
        assert!(during >= before + (48 << 20), "{before} then {during}");
        assert!(peak.stop() > 0);
    }
}
