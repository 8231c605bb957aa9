//! The results as a table for people.

use std::fmt::Write as _;

use crate::record::Record;
use crate::trial::{OF_BEST, OF_CHUNKS, OF_CHUNKS_BY_A_PROCESSOR, Trial};

const HEAD: &str = "\
# No options against the best options

Written by `cargo xtask paths --write`. Paths, ends and data are drawn by seed and built in the wide-area laboratory; one
thing of each is made the slowest on purpose: the path (its rate or losses), a disk, or a processor. On each path a net of
fixed settings is tried (sessions x channels, congestion control, chunks on or off), then the neighbours of the best. The
best two, a run without options, and runs with nothing fixed but chunks off or on take turns, five times at least where a
processor limits, since what it has to do for the same copy differs by a fifth, and as often again with servers started anew,
twice, if another is faster (by more than 3 % where no processor limits); medians are compared.
Where a processor limits, the data are read over and over meanwhile whenever a processor has nothing else to do: memory of a machine that is idle for
most of the time is slow, by how much changes from run to run, and a host of which somebody has a hundredth is busy with others.
Data are what the path, the disk or the processor moves in some seconds; times are those of the whole command, copies proven.
Every sample is in [paths.json](paths.json); with `--json FILE --continue` a copy of it goes on in another sitting.

Three promises: without options a copy reaches ";

/// The table of all paths.
pub fn table(trials: &[Trial]) -> String {
    let mut text = String::from(
        "| path | drawn | best fixed | s | no options, s | of best | of chunks on/off | bottleneck named | promises |\n\
         | --- | --- | --- | --- | --- | --- | --- | --- | --- |\n",
    );
    for trial in trials {
        let (best, ours) = (trial.best(), trial.ours.median());
        writeln!(
            text,
            "| {} | {} | {} | {:.2} | {ours:.2} | {:.2} | {:.2} | {} | {} |",
            trial.draw.number,
            trial.draw,
            best.name,
            best.median(),
            trial.of_best(),
            trial.of_chunks(),
            trial.named,
            trial.complaints(),
        )
        .expect("strings grow");
    }
    text
}

/// The page.
pub fn page(record: &Record, trials: &[Trial]) -> String {
    let mut text = HEAD.to_owned();
    let kept = trials.iter().filter(|trial| trial.passes()).count();
    write!(
        text,
        "{OF_BEST} of the best fixed setting; it is not slower than the better of chunks on and off (by more than {:.0} %, \
         or {:.0} % where a processor limits, which equal runs differ by); and `--explain` names what was made slow.\n\n{}, seed {}, {} rounds, {} s of \
         data, at most {} Mbit/s (with more, the processors of this machine, which stand for all hosts and links, would be the \
         bottleneck); all three promises kept on {kept} of {}. One path again: `cargo xtask paths --seed {} --only PATH`.\n\n{}",
        (1.0 - OF_CHUNKS) * 100.0,
        (1.0 - OF_CHUNKS_BY_A_PROCESSOR) * 100.0,
        record.sittings.join("; continued "),
        record.seed,
        record.rounds,
        record.seconds,
        record.most_mbit,
        trials.len() + record.failures.len(),
        record.seed,
        table(trials),
    )
    .expect("strings grow");
    for failure in &record.failures {
        writeln!(text, "\nNot measured: {failure}").expect("strings grow");
    }
    text
}
