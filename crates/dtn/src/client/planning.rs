//! What is known of a copy before its first byte moves, for the automatic plan.

use std::os::unix::ffi::OsStrExt as _;
use std::time::Duration;

use whimbrel_engine::auto::{EndFacts, Facts, Imposed, Sizes};
use whimbrel_engine::listing::ObjectKind;
use whimbrel_engine::tune::{Fixed, Setting};

use super::copy::Preparation;
use super::options::{Chunks, CopyOptions, Jobs, Place, Verify};
use super::plan::Known;
use super::remote::Remote;
use super::shared::Route;
use super::target::Target;
use crate::{congestion, processors};

/// Below this it makes no difference how far apart two servers are: they are near, or the path is short.
const SHORT: Duration = Duration::from_millis(20);
/// A server is beside this host where its round trip is no more than this part of the other's: how far they are from each other
/// is then known within a fifth.
const BESIDE: u32 = 5;

/// The facts that the plan is made from.
pub fn facts(jobs: &Jobs, options: &CopyOptions, preparation: &Preparation) -> Facts {
    let (size, ends) = match jobs {
        Jobs::Into { sources, destination } => {
            let size = match &sources[..] {
                [one] => file_size(one, &preparation.known),
                _ => None,
            };
            (size, [sources.first().and_then(|source| source.target.as_ref()), destination.target.as_ref()])
        }
        Jobs::Files(_) => {
            let ends = options.between.as_ref().map(|route| [route.source.as_ref(), route.destination.as_ref()]);
            (None, ends.unwrap_or_default())
        }
        Jobs::Pairs(_) => (None, [None, None]),
    };
    let remotes = || preparation.remotes();
    let ways: Vec<_> = remotes().map(Remote::round_trip).collect();
    let [mut source, mut destination] = ends.map(end_facts);
    for (end, remote) in [(&mut source, preparation.source()), (&mut destination, preparation.destination())] {
        // The other nodes of its endpoint are taken to be like the first.
        end.processors = remote.and_then(Remote::processors).or(end.processors);
    }
    source.sessions = options.most_sessions;
    let may_chunk = options.range.is_none() && !options.stripe;
    Facts {
        sizes: size.into_iter().collect::<Sizes>(),
        more_to_come: size.is_none(),
        source,
        destination,
        max_rate: options.rate.now(),
        rtt: data_rtt(&ways),
        control_rtt: ways.iter().copied().flatten().max(),
        can_pipeline: options.session.pipelined && remotes().all(Remote::is_pipelined),
        can_chunk: may_chunk && remotes().all(|remote| !remote.lacks("PARALLEL")),
        verify: options.verify != Verify::Never,
        checks_follow: remotes().any(|remote| remote.lacks("LEAVES")),
        congestions: preparation.source().map_or_else(|| congestion::own_first(None), Remote::congestions),
        congestion: options.congestion.clone(),
        fixed: Fixed {
            concurrency: options.concurrency,
            parallelism: options.parallelism,
            pipeline: options.pipeline,
            buffer: match options.buffer {
                Setting::Auto => Setting::Auto,
                Setting::Fixed(bytes) => Setting::Fixed(bytes.into()),
            },
        },
        chunk: match options.chunks {
            Chunks::Auto => Setting::Auto,
            Chunks::Off => Setting::Fixed(None),
            Chunks::Size(bytes) => Setting::Fixed(Some(bytes)),
        },
        imposed: imposed(jobs, preparation),
        ..Facts::default()
    }
}

/// What the administrators of the ends decide about all that is copied.
fn imposed(jobs: &Jobs, preparation: &Preparation) -> Option<Imposed> {
    let Jobs::Into { sources, destination } = jobs else { return None };
    let [source] = &sources[..] else { return None };
    let route = Route { source: source.target.clone(), destination: destination.target.clone() };
    let decision = preparation.dtns.rules.decide(&route, &source.path, &destination.path);
    decision.map(|decision| decision.imposed)
}

fn end_facts(target: Option<&Target>) -> EndFacts {
    match target {
        Some(target) => EndFacts { nodes: target.addresses().count() as u32, ..EndFacts::default() },
        None => EndFacts { processors: Some(processors::share()), ..EndFacts::default() },
    }
}

/// The size of a source that is one file, as far as it is known without asking anybody.
fn file_size(source: &Place, known: &Known) -> Option<u64> {
    if source.target.is_some() {
        return known
            .source
            .as_ref()
            .filter(|object| object.kind == ObjectKind::File)
            .map(|object| object.size.unwrap_or(0));
    }
    let path = std::path::Path::new(std::ffi::OsStr::from_bytes(&source.path));
    std::fs::metadata(path).ok().filter(std::fs::Metadata::is_file).map(|metadata| metadata.len())
}

/// Round-trip time of the data path, from those of the control connections; `None` in their place: not known.
///
/// With this host at one end the data take the path of the commands. Two servers are at most as far from each other as both
/// ways from here together, and at least as their difference (detours of routing aside): that tells how far where one of them
/// is beside this host, or both ways are short, and says little elsewhere.
fn data_rtt(ways: &[Option<Duration>]) -> Option<Duration> {
    match *ways {
        [way] => way,
        [Some(one), Some(other)] => {
            let (most, far) = (one + other, one.max(other));
            match () {
                () if most < SHORT => Some(most),
                () if one.min(other) <= far / BESIDE => Some(far),
                () => None,
            }
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use whimbrel_engine::transfer::Chunking;
    use whimbrel_proto::leaf;

    use whimbrel_connector::posix::lustre::{Layout, layout_for};

    use super::*;

    #[test]
    fn the_distance_of_two_servers_is_known_where_one_is_here_or_both_ways_are_short() {
        let ms = |ms| Some(Duration::from_millis(ms));
        let micros = |micros| Some(Duration::from_micros(micros));
        assert_eq!((data_rtt(&[ms(75)]), data_rtt(&[None]), data_rtt(&[])), (ms(75), None, None));
        assert_eq!(data_rtt(&[ms(75), ms(75)]), None, "side by side, or on opposite sides");
        assert_eq!((data_rtt(&[ms(75), ms(16)]), data_rtt(&[ms(75), None])), (None, None));
        assert_eq!((data_rtt(&[ms(75), ms(15)]), data_rtt(&[micros(80), ms(200)])), (ms(75), ms(200)));
        assert_eq!(data_rtt(&[micros(300), micros(200)]), micros(500));
        assert_eq!((data_rtt(&[ms(9), ms(9)]), data_rtt(&[ms(10), ms(10)])), (ms(18), None));
    }

    #[test]
    fn the_machine_and_the_wire_cut_files_into_the_same_leaves() {
        let chunking = Chunking::default();
        let tib = 1u64 << 40;
        let few = Chunking::PARTS * chunking.leaf;
        for size in [few, tib - 1, tib, tib + 1, 2 * tib, 3 * tib, 63 * tib + 5, 64 * tib, 64 * tib + 1, u64::MAX] {
            assert_eq!(chunking.leaf_of(size), leaf::size_for(size, chunking.leaf), "{size}");
            if let Some(leaf) = chunking.leaf_of(size) {
                assert!(size.div_ceil(leaf) <= leaf::MAX_LEAVES as u64 && leaf::is_size(leaf), "{size}: {leaf}");
                assert!(leaf.is_multiple_of(chunking.leaf), "{size}: {leaf}");
            }
        }
        for size in [0, 1, 256 << 20, 1 << 30, few - 1] {
            let leaf = chunking.leaf_of(size).expect("short files have leaves");
            assert!(leaf::is_size(leaf) && leaf <= chunking.leaf, "{size}: {leaf}");
        }
        // And stripes are laid for them.
        let default = Layout { count: 1, size: 1 << 20 };
        for size in [1 << 30, (1 << 30) + 256, 3 << 30, few - 1, few, tib] {
            let stripe = layout_for(size, default).map(|layout| layout.size);
            assert_eq!(stripe, chunking.leaf_of(size), "{size}");
        }
        assert_eq!((Chunking::MOST_LEAVES, Chunking::LONGEST_LEAF), (leaf::MAX_LEAVES as u64, leaf::MAX_SIZE));
    }
}
