//! Files by Landlock.

use landlock::{
    ABI, Access, AccessFs, Ruleset, RulesetAttr, RulesetCreatedAttr, RulesetError, RulesetStatus, Scope,
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
    let rules = Ruleset::default()
        .handle_access(all)?
        // Signals to, and abstract sockets of, processes outside.
        .scope(Scope::from_all(NEWEST))?
        .create()?
        .add_rules(path_beneath_rules(&needs.read, AccessFs::ReadFile | AccessFs::ReadDir))?
        .add_rules(path_beneath_rules(&needs.write, all & !AccessFs::Execute))?;
    Ok(rules.restrict_self()?.ruleset)
}
