//! What a copy is done with, and which settings the figures need.

use std::fmt;

/// A facility of the paper: ALCF, NERSC, OLCF.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Facility {
    A,
    N,
    O,
}

impl Facility {
    /// All of them.
    pub const ALL: [Facility; 3] = [Facility::A, Facility::N, Facility::O];

    /// Its host in the laboratory.
    pub fn name(self) -> &'static str {
        match self {
            Facility::A => "A",
            Facility::N => "N",
            Facility::O => "O",
        }
    }

    /// Bytes per second that each of its nodes stores: unequal, as those of the paper are.
    pub fn write_rate(self) -> u64 {
        match self {
            Facility::A => 12_000_000,
            Facility::N => 10_000_000,
            Facility::O => 14_000_000,
        }
    }
}

/// From one facility to another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Route(pub Facility, pub Facility);

impl Route {
    pub const A2N: Route = Route(Facility::A, Facility::N);
    pub const N2A: Route = Route(Facility::N, Facility::A);
    pub const A2O: Route = Route(Facility::A, Facility::O);
    pub const O2A: Route = Route(Facility::O, Facility::A);
    pub const N2O: Route = Route(Facility::N, Facility::O);
    pub const O2N: Route = Route(Facility::O, Facility::N);
    /// The two that most of the paper's figures tell of.
    pub const MAIN: [Route; 2] = [Route::A2N, Route::N2A];
    /// All of them.
    pub const ALL: [Route; 6] = [Route::A2N, Route::N2A, Route::A2O, Route::O2A, Route::N2O, Route::O2N];
}

impl fmt::Display for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}2{}", self.0.name(), self.1.name())
    }
}

/// Numbers of files among which the bytes are divided.
pub const FILES: [u32; 5] = [1, 5, 20, 100, 500];
/// Those of most figures.
pub const FEW: [u32; 3] = [1, 5, 20];
/// Chunk sizes of Figure 6, MB of the paper.
pub const CHUNKS: [u64; 7] = [50, 100, 200, 500, 1000, 2000, 5000];
/// The chunk size of all other figures, MB of the paper.
pub const USUAL_CHUNK: u64 = 500;

/// How one copy is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Setting {
    pub route: Route,
    pub files: u32,
    /// MB of the paper; `None`: files stay whole.
    pub chunk: Option<u64>,
    /// Whether the proof is part of the time.
    pub proof: bool,
}

impl Setting {
    /// Whole files.
    pub fn whole(route: Route, files: u32) -> Setting {
        Setting { route, files, chunk: None, proof: true }
    }

    /// In chunks of the usual size.
    pub fn chunked(route: Route, files: u32) -> Setting {
        Setting { chunk: Some(USUAL_CHUNK), ..Setting::whole(route, files) }
    }

    /// The same without the proof's time.
    pub fn unproven(self) -> Setting {
        Setting { proof: false, ..self }
    }

    /// Everything that Figures 6 to 10 show of these routes, each once; Figure 6 only of the main ones.
    pub fn all(routes: &[Route], chunks: &[u64]) -> Vec<Setting> {
        let mut settings = Vec::new();
        for &route in routes {
            for files in FILES {
                let both = [Setting::whole(route, files), Setting::chunked(route, files)];
                settings.extend(both);
                if FEW.contains(&files) {
                    settings.extend(both.map(Setting::unproven));
                }
                if FEW.contains(&files) && Route::MAIN.contains(&route) {
                    let others = chunks.iter().filter(|&&chunk| chunk != USUAL_CHUNK);
                    settings.extend(others.map(|&chunk| Setting { chunk: Some(chunk), ..both[0] }));
                }
            }
        }
        settings
    }
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {} files, ", self.route, self.files)?;
        match self.chunk {
            Some(chunk) => write!(f, "chunks of {chunk} MB")?,
            None => f.write_str("whole")?,
        }
        f.write_str(if self.proof { ", proven" } else { ", without the proof's time" })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn nothing_is_measured_twice() {
        let all = Setting::all(&Route::ALL, &CHUNKS);
        assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), all.len());
        // Five numbers of files with and without chunks, three of them also unproven; six more chunk sizes.
        assert_eq!(all.len(), 6 * (10 + 6) + 2 * 3 * 6);
    }

    #[test]
    fn settings_read_like_the_paper() {
        let setting = Setting::chunked(Route::O2N, 20);
        assert_eq!(setting.to_string(), "O2N, 20 files, chunks of 500 MB, proven");
    }
}
