//! What somebody may do with a collection's files, as places at its servers: what tokens for servers are made of.

use std::collections::BTreeMap;

use whimbrel_engine::listing::Timestamp;

use super::decision::{Want, Who, may_as};
use super::records::{AccessRule, Collection, EntityType, Permissions, RoleName};

/// What somebody may do at the servers: of the places that hold for a path the longest decides.
///
/// The same as [`super::may`] says of each path, for all of them at once.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rights {
    /// By path at the servers, without a slash at its end (empty: their root). None says what the one above it says already.
    places: BTreeMap<String, Permissions>,
}

impl Rights {
    /// What somebody with these roles and rules may do with a collection that begins at `base` at its servers.
    pub fn of(
        who: &Who,
        collection: &Collection,
        roles: &[RoleName],
        rules: &[AccessRule],
        base: &str,
        now: Timestamp,
    ) -> Self {
        if collection.deleted || collection.kind == EntityType::Endpoint {
            return Self::default();
        }
        if who.identity.is_some() && may_as(roles, RoleName::Administrator) {
            return Self::whole(base);
        }
        match collection.kind {
            EntityType::Mapped if who.identity.is_some() => Self::whole(base),
            EntityType::Guest | EntityType::PersonalGuest => Self::given(who, collection, rules, base, now),
            _ => Self::default(),
        }
    }

    /// Everything below a path at the servers.
    fn whole(base: &str) -> Self {
        Self { places: BTreeMap::from([(trimmed(base), Permissions::ReadWrite)]) }
    }

    fn given(who: &Who, collection: &Collection, rules: &[AccessRule], base: &str, now: Timestamp) -> Self {
        let anonymous = who.identity.is_none() && collection.policy.disable_anonymous_writes;
        let mut places = BTreeMap::<String, Permissions>::new();
        for rule in rules.iter().filter(|rule| rule.collection == collection.id && rule.is_for(who, now)) {
            let given = if anonymous { Permissions::Read } else { rule.permissions };
            let place = places.entry(trimmed(base) + &trimmed(&rule.path)).or_insert(given);
            *place = given.max(*place);
        }
        let all = Self { places };
        let says_more = |path: &String, given: Permissions| all.above(path) != Some(given);
        Self { places: all.places.clone().into_iter().filter(|(path, given)| says_more(path, *given)).collect() }
    }

    /// Whether nothing is allowed anywhere.
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// Whether something may be done with a path at the servers.
    pub fn allow(&self, path: &str, want: Want) -> bool {
        let path = path.trim_end_matches('/');
        let given = self.places.get(path).copied().or_else(|| self.above(path));
        given.is_some_and(|given| want == Want::Read || given == Permissions::ReadWrite)
    }

    /// Whether a place that begins at `base` is allowed whole.
    pub fn is_whole(&self, base: &str) -> bool {
        *self == Self::whole(base)
    }

    /// What the longest place strictly above a path says.
    fn above(&self, path: &str) -> Option<Permissions> {
        let mut rest = path;
        while let Some((above, _)) = rest.rsplit_once('/') {
            if let Some(given) = self.places.get(above) {
                return Some(*given);
            }
            rest = above;
        }
        None
    }

    /// Names of scopes with the path that each is about, for a token with which this is done and no more than is allowed: those of
    /// the WLCG profile, and `whimbrel.read_only`, which takes back further down what another gives.
    pub fn scopes(&self, want: Want) -> Vec<(&'static str, &str)> {
        let mut scopes = Vec::new();
        for (path, given) in &self.places {
            let above = self.above(path);
            if above.is_none() {
                scopes.push(("storage.read", path.as_str()));
            }
            match (want, given, above) {
                (Want::Write, Permissions::ReadWrite, _) => scopes.push(("storage.modify", path)),
                (Want::Write, Permissions::Read, Some(_)) => scopes.push(("whimbrel.read_only", path)),
                _ => {}
            }
        }
        scopes
    }
}

/// Without slashes at the end.
fn trimmed(path: &str) -> String {
    path.trim_end_matches('/').to_owned()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use uuid::Uuid;

    use super::*;
    use crate::endpoints::decision::{may, testing};
    use crate::endpoints::records::Principal;

    fn guest(rules: &[(&str, Permissions)]) -> Rights {
        let everybody = |(path, permissions): &(&str, Permissions)| {
            testing::rule(Principal::AllAuthenticatedUsers, path, *permissions, None)
        };
        let rules: Vec<_> = rules.iter().map(everybody).collect();
        let collection = testing::collection(EntityType::Guest);
        Rights::of(&testing::user(11, &[]), &collection, &[], &rules, "/srv", Timestamp::from_secs(testing::NOW))
    }

    #[test]
    fn a_token_gives_what_rules_give_and_nothing_beside_it() {
        let rights = guest(&[("/a/", Permissions::Read), ("/b/", Permissions::ReadWrite)]);
        assert_eq!(rights.scopes(Want::Read), [("storage.read", "/srv/a"), ("storage.read", "/srv/b")]);
        let both = [("storage.read", "/srv/a"), ("storage.read", "/srv/b"), ("storage.modify", "/srv/b")];
        assert_eq!(rights.scopes(Want::Write), both);
        assert!(!rights.is_whole("/srv") && guest(&[("/", Permissions::ReadWrite)]).is_whole("/srv/"));
    }

    #[test]
    fn what_is_taken_back_further_down_stays_taken_back() {
        let rights = guest(&[
            ("/", Permissions::ReadWrite),
            ("/old/", Permissions::Read),
            ("/old/x/", Permissions::Read),
            ("/old/new/", Permissions::ReadWrite),
        ]);
        let scopes = [
            ("storage.read", "/srv"),
            ("storage.modify", "/srv"),
            ("whimbrel.read_only", "/srv/old"),
            ("storage.modify", "/srv/old/new"),
        ];
        assert_eq!(rights.scopes(Want::Write), scopes);
        assert_eq!(rights.scopes(Want::Read), [("storage.read", "/srv")]);
        assert!(guest(&[]).is_empty());
    }

    proptest! {
        #[test]
        fn places_mean_what_rules_mean(
            rules in prop::collection::vec(testing::rules(), 0..8),
            kind in prop_oneof![Just(EntityType::Guest), Just(EntityType::Mapped), Just(EntityType::Endpoint)],
            administers in any::<bool>(),
            who in prop::option::of((11_u128..14, prop::collection::vec(20_u128..23, 0..3))),
            parts in prop::collection::vec("[ab]{1,2}", 0..4),
            base in prop_oneof![Just(""), Just("/"), Just("/srv/data")],
            quiet in any::<bool>(),
        ) {
            let who = who.map_or_else(Who::default, |(id, groups)| testing::user(id, &groups));
            let mut collection = testing::collection(kind);
            collection.policy.disable_anonymous_writes = quiet;
            let roles = if administers { vec![RoleName::Administrator] } else { Vec::new() };
            let now = Timestamp::from_secs(testing::NOW);
            let rights = Rights::of(&who, &collection, &roles, &rules, base, now);
            let path = format!("/{}", parts.join("/"));
            let there = format!("{}{path}", base.trim_end_matches('/'));
            for want in [Want::Read, Want::Write] {
                prop_assert_eq!(rights.allow(&there, want), may(&who, &collection, &roles, &rules, &path, want, now));
            }
        }

        /// What DTNs make of the scopes: read where one covers the path, and changes as the longest that speaks of them says.
        #[test]
        fn scopes_mean_what_places_mean(
            rules in prop::collection::vec(testing::rules(), 0..8),
            parts in prop::collection::vec("[ab]{1,2}", 0..4),
        ) {
            let (who, now) = (testing::user(11, &[20]), Timestamp::from_secs(testing::NOW));
            let rights = Rights::of(&who, &testing::collection(EntityType::Guest), &[], &rules, "/srv", now);
            let path = format!("/srv/{}", parts.join("/"));
            let path = path.trim_end_matches('/');
            let covers = |scope: &str| path == scope || path.starts_with(&format!("{scope}/"));
            let scopes = rights.scopes(Want::Write);
            let longest = |names: &[&str]| {
                let speaking = scopes.iter().filter(|(name, scope)| names.contains(name) && covers(scope));
                speaking.max_by_key(|(_, scope)| scope.len()).map(|(name, _)| *name)
            };
            prop_assert_eq!(rights.allow(path, Want::Read), longest(&["storage.read"]).is_some());
            let changes = longest(&["storage.modify", "whimbrel.read_only"]) == Some("storage.modify");
            prop_assert_eq!(rights.allow(path, Want::Write), changes);
        }
    }

    #[test]
    fn roles_and_kinds_open_all_or_nothing() {
        let (ada, now) = (testing::user(11, &[]), Timestamp::from_secs(testing::NOW));
        let of = |kind, roles: &[RoleName]| Rights::of(&ada, &testing::collection(kind), roles, &[], "/srv", now);
        assert!(of(EntityType::Mapped, &[]).is_whole("/srv") && of(EntityType::Personal, &[]).is_empty());
        assert!(of(EntityType::Guest, &[RoleName::Administrator]).is_whole("/srv"));
        assert!(of(EntityType::Guest, &[RoleName::AccessManager]).is_empty());
        let deleted = Collection { deleted: true, id: Uuid::from_u128(1), ..testing::collection(EntityType::Mapped) };
        assert!(Rights::of(&ada, &deleted, &[], &[], "/srv", now).is_empty());
    }
}
