//! How long many files take with checksums that overlap transfers, and how many files would take the least
//! (*Transferring a Petabyte in a Day*, Kettimuthu et al. 2018).
//!
//! One file of `x` bytes takes `a_trs x + b_trs` to move and `a_ck x + b_ck` to check. Of `S` bytes in `N` files, `cc` at a
//! time, each process moves `N / cc` files of `S / N` bytes, and checks each while it moves the next. Where moving is the
//! slower, only the last check is not hidden:
//!
//! `T(N) = S/cc a_trs + N/cc b_trs + S/N a_ck + b_ck + b_trs`
//!
//! and where checking is the slower, only the first move is not:
//!
//! `T(N) = S/cc a_ck + N/cc b_ck + S/N a_trs + b_trs + b_trs`
//!
//! The same holds for the parts of one file, where each is checked when all of it is stored: that is how the automatic plan
//! divides files for servers that prove nothing while data move. Between our own ends it holds for leaves, whose size is fixed.

use serde::{Deserialize, Serialize};

/// Seconds as a line over bytes.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Line {
    /// Seconds for each byte.
    pub per_byte: f64,
    /// Seconds that each file costs whatever its size.
    pub start: f64,
}

impl Line {
    /// The line with the least squared errors through `(bytes, seconds)`; `None` without two different sizes.
    ///
    /// Neither part is negative: where the best line would begin below zero, the best one through zero is taken, and
    /// where it would fall, the mean.
    pub fn fit(samples: &[(u64, f64)]) -> Option<Self> {
        let count = samples.len() as f64;
        let mean_x = samples.iter().map(|(x, _)| *x as f64).sum::<f64>() / count;
        let mean_y = samples.iter().map(|(_, y)| y).sum::<f64>() / count;
        let spread: f64 = samples.iter().map(|(x, _)| (*x as f64 - mean_x).powi(2)).sum();
        if samples.len() < 2 || spread <= 0.0 {
            return None;
        }
        let product: f64 = samples.iter().map(|(x, y)| (*x as f64 - mean_x) * (y - mean_y)).sum();
        let per_byte = product / spread;
        let start = mean_y - per_byte * mean_x;
        Some(match (per_byte < 0.0, start < 0.0) {
            (true, _) => Self { per_byte: 0.0, start: mean_y.max(0.0) },
            (_, true) => {
                let squares: f64 = samples.iter().map(|(x, _)| (*x as f64).powi(2)).sum();
                let products: f64 = samples.iter().map(|(x, y)| *x as f64 * y).sum();
                Self { per_byte: (products / squares).max(0.0), start: 0.0 }
            }
            _ => Self { per_byte, start },
        })
    }

    /// Seconds for a file of so many bytes.
    pub fn seconds(&self, bytes: f64) -> f64 {
        self.per_byte * bytes + self.start
    }
}

/// What moving and checking cost, and how many processes do it at once.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Model {
    /// Moving one file, with one process.
    pub transfer: Line,
    /// Checking one file, with one process.
    pub checksum: Line,
    /// Files at once; at least 1.
    pub concurrency: u32,
}

impl Model {
    /// Seconds for `bytes` in `files` files of equal size (at least 1), `T(N)` above; which branch holds is told by the
    /// time that one file takes to move and to check.
    pub fn seconds(&self, bytes: u64, files: u64) -> f64 {
        let files = files.max(1) as f64;
        let each = bytes as f64 / files;
        let (moving, checking) = (self.transfer.seconds(each), self.checksum.seconds(each));
        let turns = files / f64::from(self.concurrency.max(1));
        turns * moving.max(checking) + moving.min(checking) + self.transfer.start
    }

    /// The number of files, 1 to `most`, in which `bytes` take the least time.
    ///
    /// In each branch `T` falls and then rises, with its least at `sqrt(S cc a_ck / b_trs)`, or `sqrt(S cc a_trs / b_ck)`;
    /// the least of all is at one of them, where the branches meet, or at an end.
    pub fn best_files(&self, bytes: u64, most: u64) -> u64 {
        let most = most.max(1);
        let work = bytes as f64 * f64::from(self.concurrency.max(1));
        let meeting = (self.checksum.start - self.transfer.start) / (self.transfer.per_byte - self.checksum.per_byte);
        let turning = [
            (work * self.checksum.per_byte / self.transfer.start).sqrt(),
            (work * self.transfer.per_byte / self.checksum.start).sqrt(),
            bytes as f64 / meeting,
        ];
        let near = |at: f64| [at.floor(), at.ceil()];
        let inside = turning.into_iter().filter(|at| at.is_finite() && *at >= 1.0).flat_map(near);
        // With nothing to pay for each file, more of them only get better.
        let candidates = inside.map(|at| (at as u64).clamp(1, most)).chain([1, most]);
        let best = |a: &u64, b: &u64| self.seconds(bytes, *a).total_cmp(&self.seconds(bytes, *b)).then(a.cmp(b));
        candidates.min_by(best).unwrap_or(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn model() -> Model {
        Model {
            transfer: Line { per_byte: 0.01, start: 2.0 },
            checksum: Line { per_byte: 0.004, start: 1.0 },
            concurrency: 4,
        }
    }

    #[test]
    fn the_papers_formula_by_hand_where_moving_is_slower() {
        // S = 10000, N = 20, cc = 4: 2500 * 0.01 + 5 * 2 + 500 * 0.004 + 1 + 2
        assert!((model().seconds(10_000, 20) - 40.0).abs() < 1e-9);
        // N = 10: 25 + 2.5 * 2 + 1000 * 0.004 + 1 + 2
        assert!((model().seconds(10_000, 10) - 37.0).abs() < 1e-9);
    }

    #[test]
    fn the_other_branch_by_hand_where_checking_is_slower() {
        let Model { transfer, checksum, concurrency } = model();
        let slow = Model {
            transfer: Line { per_byte: checksum.per_byte, start: checksum.start },
            checksum: transfer,
            concurrency,
        };
        // S = 10000, N = 20, cc = 4: 2500 * 0.01 + 5 * 2 + 500 * 0.004 + 1 + 1
        assert!((slow.seconds(10_000, 20) - 39.0).abs() < 1e-9);
    }

    #[test]
    fn the_best_number_is_the_root_of_the_paper() {
        // sqrt(10000 * 4 * 0.004 / 2) = 8.94
        assert_eq!(model().best_files(10_000, 1000), 9);
        assert_eq!(model().best_files(10_000, 5), 5);
        let free = Model { transfer: Line { start: 0.0, ..model().transfer }, ..model() };
        assert_eq!(Model { checksum: Line { start: 0.0, ..free.checksum }, ..free }.best_files(10_000, 77), 77);
    }

    #[test]
    fn a_line_is_found_again_and_never_costs_less_than_nothing() {
        let exact: Vec<_> = [1u64, 10, 300].iter().map(|x| (*x, 0.5 + 0.25 * *x as f64)).collect();
        let line = Line::fit(&exact).expect("there are several sizes");
        assert!((line.per_byte - 0.25).abs() < 1e-12 && (line.start - 0.5).abs() < 1e-9, "{line:?}");
        // By hand: (1, 1), (2, 3), (3, 4): slope 1.5, start -1/3: through zero, 19 / 14.
        let steep = Line::fit(&[(1, 1.0), (2, 3.0), (3, 4.0)]).expect("there are several sizes");
        assert_eq!(steep.start, 0.0);
        assert!((steep.per_byte - 19.0 / 14.0).abs() < 1e-12);
        let falling = Line::fit(&[(1, 3.0), (2, 1.0)]).expect("there are two sizes");
        assert_eq!(falling, Line { per_byte: 0.0, start: 2.0 });
        assert_eq!(Line::fit(&[(5, 1.0), (5, 2.0)]), None);
        assert_eq!(Line::fit(&[]), None);
    }

    proptest! {
        #[test]
        fn no_other_number_of_files_is_faster(
            bytes in 1u64..100_000,
            costs in prop::array::uniform4(0.0f64..1.0),
            concurrency in 1u32..20,
        ) {
            let [a, b, c, d] = costs;
            let model = Model {
                transfer: Line { per_byte: a / 1000.0, start: b },
                checksum: Line { per_byte: c / 1000.0, start: d },
                concurrency,
            };
            let best = model.seconds(bytes, model.best_files(bytes, 500));
            let swept = (1..=500).map(|files| model.seconds(bytes, files)).fold(f64::INFINITY, f64::min);
            prop_assert!(best <= swept * (1.0 + 1e-9), "{best} instead of {swept}");
        }
    }
}
