//! The copies of Figures 6 to 10, each setting once in every round.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::Outcome;
use crate::field::{Copy, Field, Site, Storage};
use crate::options::Options;
use crate::results::Results;
use crate::scale::MOVERS;
use crate::setting::{CHUNKS, FILES, Facility, Route, Setting};

/// Chunk sizes of a quick run, MB of the paper.
const QUICK_CHUNKS: [u64; 3] = [200, 500, 5000];

/// Copies of a setting may differ so much, the slowest by the fastest; else there are more of them.
const STEADY: f64 = 1.1;
/// Rounds for those that differ, at most.
const MORE_ROUNDS: u32 = 6;
/// Time for them, at most.
const MORE_TIME: Duration = Duration::from_secs(300);

/// The facilities' nodes, as sources and proven destinations (true), and as destinations whose proof takes no time.
type Sites = BTreeMap<(Facility, bool), Site>;

/// Measures all of them; what fails is noted, and the next goes on.
pub fn measure(options: &Options, results: &mut Results) -> Outcome<()> {
    let scale = results.scale;
    let mut field = Field::new(scale.bytes * (FILES.len() as u64 + 1))?;
    for files in FILES {
        field.add_files(files, scale.file(files))?;
    }
    let sites = start(&field)?;
    let (routes, chunks) =
        if options.quick { (&Route::MAIN[..], &QUICK_CHUNKS[..]) } else { (&Route::ALL[..], &CHUNKS[..]) };
    let settings = Setting::all(routes, chunks);
    for &route in routes {
        // Not measured: data processes begin with the first login.
        for setting in [Setting::chunked(route, 20), Setting::chunked(route, 20).unproven()] {
            field.copy(&copy_of(setting, &sites, results), false)?;
        }
    }
    let once = |round, setting, results: &mut Results| match field.copy(&copy_of(setting, &sites, results), round == 1)
    {
        Ok(seconds) => {
            eprintln!("round {round}: {setting}: {seconds:.2} s");
            results.seconds.entry(setting).or_default().push(seconds);
        }
        Err(error) => results.failures.push(format!("{setting}: {error}")),
    };
    let rounds = if options.from.is_some() { 0 } else { options.rounds };
    for round in 1..=rounds {
        settings.iter().for_each(|&setting| once(round, setting, results));
    }
    // The machine may be busy with other work, which only ever makes a copy slower.
    let began = Instant::now();
    for round in 1..=MORE_ROUNDS {
        let unsteady = settings.iter().filter(|&&setting| results.differs(setting, STEADY));
        for setting in unsteady.copied().collect::<Vec<_>>() {
            if began.elapsed() < MORE_TIME {
                once(rounds + 1 + round, setting, results);
            }
        }
    }
    Ok(())
}

fn start(field: &Field) -> Outcome<Sites> {
    let mut sites = Sites::new();
    for facility in Facility::ALL {
        for proof in [true, false] {
            let storage = Storage { write: facility.write_rate(), proof };
            let host = field.lab.host(facility.name());
            sites.insert((facility, proof), Site::start(&field.programs, host, MOVERS, storage)?);
        }
    }
    Ok(sites)
}

/// The copy that a setting means.
fn copy_of<'a>(setting: Setting, sites: &'a Sites, results: &Results) -> Copy<'a> {
    let chunk = setting.chunk.map_or("off".into(), |chunk| results.scale.chunk(chunk).to_string());
    // Parts of files are always proven: what their proof costs is seen at a destination where it takes no time.
    let proof: &[&str] = match setting.proof || setting.chunk.is_some() {
        true => &["--checksum", "md5", "--verify", "require"],
        false => &["--no-verify"],
    };
    let flags = ["--chunk", &chunk].iter().chain(proof).map(|&flag| flag.to_owned()).collect();
    let site = |facility, proof| &sites[&(facility, proof)];
    Copy {
        from: site(setting.route.0, true),
        to: site(setting.route.1, setting.proof),
        nodes: MOVERS,
        files: setting.files,
        flags,
    }
}
