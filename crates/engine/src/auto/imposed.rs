//! What administrators decide about files, where the user decides nothing.

use super::{Facts, Plan, chunking};
use crate::transfer::Chunking;
use crate::tune::{Choice, Setting};

/// Decisions of the administrators of both ends.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Imposed {
    /// Bytes of a chunk; `Some(None)`: files are moved whole.
    pub chunk: Option<Option<u64>>,
    /// Bytes of a leaf at the most.
    pub leaf: Option<u64>,
    /// Sessions at the most.
    pub sessions: Option<u32>,
    /// Who: `the administrator of HOST`.
    pub by: String,
}

impl Facts {
    /// How files are moved for which others are decisive than for the plan.
    pub fn chunking_under(&self, plan: &Plan, imposed: &Imposed) -> Choice<Option<Chunking>> {
        chunking(self, plan.tuning.concurrency.value, Some(imposed))
    }
}

/// The size of chunks that somebody has fixed, and who.
pub(super) fn chunk(facts: &Facts, imposed: Option<&Imposed>) -> (Setting<Option<u64>>, String) {
    match (facts.chunk, imposed.and_then(|imposed| Some((imposed.chunk?, imposed)))) {
        (Setting::Auto, Some((chunk, imposed))) => (Setting::Fixed(chunk), imposed.reason()),
        (wanted, _) => (wanted, "set by the user".to_owned()),
    }
}

/// The longest leaf that is allowed, and who says so; nobody, where the user has fixed the chunks.
pub(super) fn leaf(facts: &Facts, imposed: Option<&Imposed>) -> Option<(u64, String)> {
    let imposed = imposed.filter(|_| facts.chunk == Setting::Auto)?;
    Some((imposed.leaf?, imposed.reason()))
}

impl Imposed {
    fn reason(&self) -> String {
        format!("set by {}", self.by)
    }
}

#[cfg(test)]
mod tests {
    use super::super::plan;
    use super::*;

    const MIB: u64 = 1 << 20;

    fn facts() -> Facts {
        Facts { can_chunk: true, verify: true, sizes: [4096 * MIB].into_iter().collect(), ..Facts::default() }
    }

    fn imposed(chunk: Option<Option<u64>>) -> Imposed {
        Imposed { chunk, by: "the administrator of dtn".into(), ..Imposed::default() }
    }

    #[test]
    fn administrators_decide_where_the_user_does_not() {
        let decided = |chunk| Facts { imposed: Some(imposed(chunk)), ..facts() };
        let off = plan(&decided(Some(None)));
        assert_eq!((off.chunking.value, &off.chunking.reason[..]), (None, "set by the administrator of dtn"));
        let sized = plan(&decided(Some(Some(512 * MIB))));
        assert_eq!(sized.chunking.value.map(|chunking| chunking.chunk), Some(512 * MIB));
        assert!(sized.chunking.reason.ends_with("set by the administrator of dtn"), "{}", sized.chunking.reason);
        let user = plan(&Facts { chunk: Setting::Fixed(Some(256 * MIB)), ..decided(Some(None)) });
        assert_eq!(user.chunking.value.map(|chunking| chunking.chunk), Some(256 * MIB));
        assert!(user.chunking.reason.ends_with("set by the user"));
        assert_eq!(plan(&decided(None)), plan(&facts()));
    }

    #[test]
    fn leaves_and_sessions_are_bounded() {
        let most = Imposed { leaf: Some(4 * MIB), sessions: Some(1), ..imposed(None) };
        let bounded = plan(&Facts { imposed: Some(most.clone()), ..facts() });
        assert_eq!(bounded.chunking.value.map(|chunking| chunking.leaf), Some(4 * MIB));
        assert!(bounded.chunking.reason.contains("leaves of 4.19 MB set by the administrator of dtn"));
        let sessions = &bounded.tuning.concurrency;
        assert_eq!((sessions.value, &sessions.reason[..]), (1, "set by the administrator of dtn"));
        let mut user = Facts { imposed: Some(most), chunk: Setting::Fixed(Some(256 * MIB)), ..facts() };
        user.fixed.concurrency = Setting::Fixed(3);
        let user = plan(&user);
        assert_eq!((user.tuning.concurrency.value, user.chunking.value.unwrap().leaf), (3, super::super::LEAF));
    }

    #[test]
    fn files_under_other_rules_are_moved_by_those() {
        let plan = plan(&facts());
        assert_eq!(facts().chunking_under(&plan, &imposed(Some(None))).value, None);
        assert_eq!(facts().chunking_under(&plan, &imposed(None)), plan.chunking);
    }
}
