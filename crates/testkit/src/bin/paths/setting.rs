//! Fixed settings: what a user could have written instead of nothing, and how the best is looked for.

use std::fmt;

use crate::draw::Draw;

/// Congestion controls that a user can choose.
pub const CONTROLS: [&str; 2] = ["cubic", "bbr"];
/// Most sessions and most channels that are tried.
const MOST: u32 = 32;
/// Smallest part that is tried, bytes.
const LEAST_CHUNK: u64 = 1 << 20;

/// A fixed setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Setting {
    pub concurrency: u32,
    pub parallelism: u32,
    pub chunks: bool,
    pub congestion: &'static str,
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Setting { concurrency, parallelism, chunks, congestion } = self;
        write!(f, "{concurrency}x{parallelism} {congestion}{}", if *chunks { " parts" } else { "" })
    }
}

impl Setting {
    /// The options that make it.
    pub fn flags(&self, draw: &Draw) -> Vec<String> {
        let mut flags = vec![
            format!("--concurrency={}", self.concurrency),
            format!("--parallelism={}", self.parallelism),
            format!("--congestion={}", self.congestion),
        ];
        flags.push(chunk_flag(draw, self.chunks));
        flags
    }
}

/// The option that divides files, or forbids to.
pub fn chunk_flag(draw: &Draw, chunks: bool) -> String {
    if chunks { format!("--chunk={}", chunk(draw)) } else { "--chunk=off".into() }
}

/// Bytes of a part: a sixteenth of the largest file.
fn chunk(draw: &Draw) -> u64 {
    (draw.largest() / 16).max(1).next_power_of_two().clamp(LEAST_CHUNK, 64 << 20)
}

/// Whether any file has two parts.
pub fn divides(draw: &Draw) -> bool {
    draw.largest() >= 2 * chunk(draw)
}

/// A coarse net over all settings.
pub fn net(draw: &Draw) -> Vec<Setting> {
    let points = [(1, 4, 0, 1), (4, 4, 1, 1), (4, 4, 1, 0), (8, 2, 0, 1), (4, 16, 0, 0), (16, 4, 1, 1), (8, 8, 1, 0)];
    let mut net: Vec<Setting> = Vec::new();
    for (concurrency, parallelism, chunks, control) in points {
        let chunks = chunks == 1 && divides(draw);
        let setting = Setting { concurrency, parallelism, chunks, congestion: CONTROLS[control] };
        if !net.contains(&setting) {
            net.push(setting);
        }
    }
    net
}

/// Settings one step away, the most telling first.
pub fn neighbours(best: Setting, draw: &Draw) -> Vec<Setting> {
    let other = if best.congestion == CONTROLS[0] { CONTROLS[1] } else { CONTROLS[0] };
    let mut all = vec![Setting { congestion: other, ..best }];
    if divides(draw) {
        all.push(Setting { chunks: !best.chunks, ..best });
    }
    all.extend([
        Setting { concurrency: (best.concurrency * 2).min(MOST), ..best },
        Setting { concurrency: (best.concurrency / 2).max(1), ..best },
        Setting { parallelism: (best.parallelism * 2).min(MOST), ..best },
        Setting { parallelism: (best.parallelism / 2).max(1), ..best },
    ]);
    all.retain(|setting| *setting != best);
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::draw::{Files, draw};

    #[test]
    fn nothing_is_tried_twice_and_parts_only_where_files_have_them() {
        let mut path = draw(3, 0, 8.0, 2000.0);
        for files in [Files::One, Files::Tree] {
            path.files = files;
            path.bytes = 32_000_000;
            let net = net(&path);
            assert!(net.iter().enumerate().all(|(at, one)| !net[..at].contains(one)), "{net:?}");
            assert_eq!(net.iter().any(|one| one.chunks), divides(&path));
            let near = neighbours(net[0], &path);
            assert!(!near.contains(&net[0]) && near.len() >= 4, "{near:?}");
        }
        assert!(!divides(&path), "the tree's largest file is too small for parts");
    }

    #[test]
    fn a_setting_is_what_a_user_would_write() {
        let path = draw(3, 0, 8.0, 2000.0);
        let setting = Setting { concurrency: 4, parallelism: 2, chunks: false, congestion: "bbr" };
        assert_eq!(setting.to_string(), "4x2 bbr");
        assert_eq!(setting.flags(&path), ["--concurrency=4", "--parallelism=2", "--congestion=bbr", "--chunk=off"]);
    }
}
