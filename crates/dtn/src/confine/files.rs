//! Files by Landlock.

use std::path::{Path, PathBuf};

use landlock::{
    ABI, Access, AccessFs, BitFlags, Ruleset, RulesetAttr, RulesetCreatedAttr, RulesetError, RulesetStatus, Scope,
    path_beneath_rules,
};
use whimbrel_engine::{Fault, FaultCode, Side};

use super::{Held, Needs, OP};

/// The newest rules that are asked for (Linux 6.15); an older kernel enforces those it knows.
const NEWEST: ABI = ABI::V6;

pub(super) fn restrict(needs: &Needs) -> Result<Held, Fault> {
    let status = enforced(needs)
        .map_err(|error| Fault::new(FaultCode::Internal, OP).side(Side::Us).detail(format!("Landlock: {error}")))?;
    Ok(match status {
        RulesetStatus::FullyEnforced => Held::Full,
        RulesetStatus::PartiallyEnforced => Held::Partly,
        RulesetStatus::NotEnforced => Held::Unknown,
    })
}

fn enforced(needs: &Needs) -> Result<RulesetStatus, RulesetError> {
    let all = AccessFs::from_all(NEWEST);
    let grants = [(&needs.read, AccessFs::ReadFile | AccessFs::ReadDir), (&needs.write, all & !AccessFs::Execute)];
    let grants = grants.map(|(paths, rights)| (paths, reach_everything(paths), rights));
    // A right to everything is not asked about: else each opening of a file walks up to the root to be told so.
    let free = grants.iter().filter(|(_, everything, _)| *everything);
    let free = free.fold(BitFlags::empty(), |free, (_, _, rights)| free | *rights);
    // All but this one are granted by not asking.
    let asked = all & !free | AccessFs::Refer;
    let mut rules = Ruleset::default()
        .handle_access(asked)?
        // Signals to, and abstract sockets of, processes outside.
        .scope(Scope::from_all(NEWEST))?
        .create()?;
    for (paths, everything, rights) in grants {
        rules = match (everything, rights & asked) {
            (_, none) if none.is_empty() => rules,
            (true, rights) => rules.add_rules(path_beneath_rules([EVERYTHING], rights))?,
            (false, rights) => rules.add_rules(path_beneath_rules(paths, rights))?,
        };
    }
    Ok(rules.restrict_self()?.ruleset)
}

/// What everything is beneath.
const EVERYTHING: &str = "/";

fn reach_everything(paths: &[PathBuf]) -> bool {
    paths.iter().any(|path| path.canonicalize().is_ok_and(|path| path == Path::new(EVERYTHING)))
}
