//! How much of the host's processors this process may use.

use std::fs;
use std::path::{Path, PathBuf};
use std::thread;

/// Processors: as many as it may run on, or the share that its control group and those above it leave it, if that is less (`CPUQuota` of
/// systemd, the CPU limit of a container).
///
/// Units: processors, in hundredths; 0.01 at least. What others use of them meanwhile is not known.
pub fn share() -> f64 {
    let all = thread::available_parallelism().map_or(1.0, |all| all.get() as f64);
    let quota = quota(&read("/proc/self/cgroup"), &read("/proc/self/mountinfo"), |file| fs::read_to_string(file).ok());
    quota.map_or(all, |quota| (quota * 100.0).round() / 100.0).clamp(0.01, all)
}

fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

/// The least quota of a process's control groups, in processors; `None`: there is none, or none that can be seen from here.
///
/// `groups` and `mounts` as in cgroups(7) and proc_pid_mountinfo(5).
fn quota(groups: &str, mounts: &str, open: impl Fn(&Path) -> Option<String>) -> Option<f64> {
    let places = mounts.lines().filter_map(|mount| place(groups, mount));
    let quotas = places.flat_map(|(top, group, is_second)| {
        let open = &open;
        let above = group.ancestors().map(Path::to_owned).collect::<Vec<PathBuf>>();
        above.into_iter().filter_map(move |group| {
            let file = |name: &str| open(&top.join(&group).join(name));
            match is_second {
                true => second(&file("cpu.max")?),
                false => first(&file("cpu.cfs_quota_us")?, &file("cpu.cfs_period_us")?),
            }
        })
    });
    quotas.min_by(f64::total_cmp)
}

/// Where the tree of groups is mounted that limits processor time, the group of the process below that, and whether it is of version 2.
fn place(groups: &str, mount: &str) -> Option<(PathBuf, PathBuf, bool)> {
    let (about, kind) = mount.split_once(" - ")?;
    let (mut about, mut kind) = (about.split(' ').skip(3), kind.split(' '));
    let (root, top) = (about.next()?, about.next()?);
    let (kind, options) = (kind.next()?, kind.nth(1)?);
    let is_second = match kind {
        "cgroup2" => true,
        "cgroup" if options.split(',').any(|option| option == "cpu") => false,
        _ => return None,
    };
    let group = groups.lines().find_map(|line| {
        let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
        let fits = if is_second { controllers.is_empty() } else { controllers.split(',').any(|name| name == "cpu") };
        fits.then_some(path)
    })?;
    // A container sees a part of the tree; one that is not told of its part is at the top of it.
    let below = Path::new(group).strip_prefix(root).or_else(|_| Path::new(group).strip_prefix("/")).ok()?;
    Some((top.into(), below.into(), is_second))
}

/// `MAX PERIOD`, microseconds; `max` is no limit.
fn second(text: &str) -> Option<f64> {
    let (most, period) = text.trim().split_once(' ')?;
    first(most, period)
}

/// Microseconds in each period; no limit is -1.
fn first(most: &str, period: &str) -> Option<f64> {
    let (most, period) = (most.trim().parse::<f64>().ok()?, period.trim().parse::<f64>().ok()?);
    (most > 0.0 && period > 0.0).then_some(most / period)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: &str = "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw\n\
        32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw,relatime shared:9 - cgroup cgroup rw,cpu,cpuacct\n\
        33 31 0:30 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n";
    const SECOND: &str = "30 23 0:26 / /sys/fs/cgroup rw shared:9 - cgroup2 cgroup2 rw,nsdelegate\n";

    fn files<'a>(files: &'a [(&'a str, &'a str)]) -> impl Fn(&Path) -> Option<String> + 'a {
        |wanted| files.iter().find(|(path, _)| Path::new(path) == wanted).map(|(_, text)| (*text).to_owned())
    }

    #[test]
    fn the_tightest_of_all_groups_counts() {
        let unified = [
            ("/sys/fs/cgroup/a/cpu.max", "150000 100000\n"),
            ("/sys/fs/cgroup/a/b/cpu.max", "max 100000\n"),
            ("/sys/fs/cgroup/other/cpu.max", "1000 100000\n"),
        ];
        assert_eq!(quota("0::/a/b\n", SECOND, files(&unified)), Some(1.5));
        assert_eq!(quota("0::/a/b/c\n", SECOND, files(&unified)), Some(1.5));
        assert_eq!(quota("0::/\n", SECOND, files(&unified)), None);
        let split = [
            ("/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "-1\n"),
            ("/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n"),
            ("/sys/fs/cgroup/cpu,cpuacct/x/cpu.cfs_quota_us", "1000\n"),
            ("/sys/fs/cgroup/cpu,cpuacct/x/cpu.cfs_period_us", "50000\n"),
        ];
        assert_eq!(quota("4:memory:/y\n1:cpu,cpuacct:/x\n0::/\n", FIRST, files(&split)), Some(0.02));
        assert_eq!(quota("1:cpu,cpuacct:/y\n", FIRST, files(&split)), None);
    }

    #[test]
    fn a_container_finds_its_own_group_at_the_top_of_what_it_sees() {
        let at_the_top = [("/sys/fs/cgroup/cpu.max", "50000 100000")];
        let part = SECOND.replace("0:26 / ", "0:26 /docker/7f ");
        for (groups, mounts) in [("0::/docker/7f", &part[..]), ("0::/", SECOND), ("0::/../7f", SECOND)] {
            assert_eq!(quota(groups, mounts, files(&at_the_top)), Some(0.5), "{groups}");
        }
    }

    #[test]
    fn what_cannot_be_read_is_no_limit() {
        for mounts in ["", "x", "1 2 3 - cgroup2", "1 2 3 / /sys/fs/cgroup rw - ext4 x rw"] {
            assert_eq!(quota("0::/a", mounts, |_| Some("1000 100000".into())), None, "{mounts}");
        }
        for text in ["", "max 100000", "-5 100000", "5 0", "nan nan", "100000"] {
            assert_eq!(quota("0::/", SECOND, |_| Some(text.into())), None, "{text}");
        }
        let share = share();
        assert!(share > 0.0 && share <= thread::available_parallelism().unwrap().get() as f64, "{share}");
    }
}
