//! Who may do what: pure decisions from records, without any look-up.

use uuid::Uuid;
use whimbrel_engine::listing::Timestamp;

use super::records::{AccessRule, Collection, EntityType, Permissions, Principal, RoleGiven, RoleName};

/// What somebody wants of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Want {
    /// To list and to read.
    Read,
    /// To make, to change, to delete.
    Write,
}

/// Somebody, with the groups they are in; without an identity it is anybody who does not log in.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Who {
    /// Who.
    pub identity: Option<Uuid>,
    /// Their groups.
    pub groups: Vec<Uuid>,
}

impl Who {
    /// Whether something given to a principal is theirs.
    pub fn is(&self, principal: Principal) -> bool {
        match principal {
            Principal::Identity(id) => self.identity == Some(id),
            Principal::Group(id) => self.identity.is_some() && self.groups.contains(&id),
            Principal::AllAuthenticatedUsers => self.identity.is_some(),
            Principal::Anonymous => true,
        }
    }
}

impl AccessRule {
    /// Whether it gives somebody something now.
    pub fn is_for(&self, who: &Who, now: Timestamp) -> bool {
        self.expires.is_none_or(|end| now < end) && who.is(self.principal)
    }
}

/// The roles that somebody has at a collection, strongest first: its owner's, those given there and at its deployment or host.
///
/// `given` are the roles of the collection and of those that it belongs to.
pub fn roles_of(who: &Who, collection: &Collection, given: &[RoleGiven]) -> Vec<RoleName> {
    let mut roles: Vec<_> = given.iter().filter(|role| who.is(role.principal)).map(|role| role.role).collect();
    if who.identity == Some(collection.owner) {
        roles.push(RoleName::Administrator);
    }
    roles.sort_unstable();
    roles.dedup();
    roles
}

/// Whether somebody with these roles may do what a role allows.
pub fn may_as(roles: &[RoleName], needed: RoleName) -> bool {
    roles.iter().any(|role| match role {
        RoleName::Administrator => true,
        // Whoever may cancel tasks may see them.
        RoleName::ActivityManager => matches!(needed, RoleName::ActivityManager | RoleName::ActivityMonitor),
        other => *other == needed,
    })
}

/// Whether somebody may read or write a path of a collection.
///
/// A mapped collection is open to everybody who logs in: its servers map them to accounts, or refuse them. A guest
/// collection is open to its owner and administrators, and to others by its rules: of those that hold for them and for the path, the
/// ones with the longest path decide, and of these the one that gives most. Deployments have no files.
///
/// `path` is normal (no `.`, no `..`, no double slashes); `roles` are those given at the collection itself, `rules` its own.
pub fn may(
    who: &Who,
    collection: &Collection,
    roles: &[RoleName],
    rules: &[AccessRule],
    path: &str,
    want: Want,
    now: Timestamp,
) -> bool {
    if collection.deleted || collection.kind == EntityType::Endpoint {
        return false;
    }
    if who.identity.is_some() && may_as(roles, RoleName::Administrator) {
        return true;
    }
    match collection.kind {
        EntityType::Mapped => who.identity.is_some(),
        // Somebody's own machine.
        EntityType::Personal => false,
        _ => permitted(who, collection, rules, path, now).is_some_and(|given| match want {
            Want::Read => true,
            Want::Write => given == Permissions::ReadWrite,
        }),
    }
}

/// What the rules give somebody at a path.
fn permitted(
    who: &Who,
    collection: &Collection,
    rules: &[AccessRule],
    path: &str,
    now: Timestamp,
) -> Option<Permissions> {
    let holds = |rule: &&AccessRule| rule.is_for(who, now) && covers(&rule.path, path);
    let holding = rules.iter().filter(|rule| rule.collection == collection.id).filter(holds);
    let (_, given) = holding.map(|rule| (rule.path.len(), rule.permissions)).max()?;
    // Nobody without a login writes where that is not allowed, whatever the rule said when it was made.
    let anonymous = who.identity.is_none() && collection.policy.disable_anonymous_writes;
    Some(if anonymous { Permissions::Read } else { given })
}

/// Whether a path is the directory of a rule or below it; a rule's path ends with a slash.
fn covers(rule: &str, path: &str) -> bool {
    path.starts_with(rule) || rule.strip_suffix('/') == Some(path)
}

#[cfg(test)]
pub(super) mod testing {
    use proptest::prelude::*;

    use super::*;
    use crate::endpoints::records::{About, Policy};

    pub(in crate::endpoints) const NOW: i64 = 1_000;

    pub(in crate::endpoints) fn collection(kind: EntityType) -> Collection {
        Collection {
            id: Uuid::from_u128(1),
            kind,
            owner: Uuid::from_u128(10),
            endpoint: Uuid::from_u128(2),
            host: None,
            base: "/".to_owned(),
            servers: Vec::new(),
            about: About::default(),
            policy: Policy::default(),
            public: true,
            subscription: None,
            admin_verified: None,
            manager_url: None,
            https_url: None,
            setup_key: None,
            created: Timestamp::from_secs(0),
            last_accessed: None,
            deleted: false,
        }
    }

    pub(in crate::endpoints) fn rule(
        principal: Principal,
        path: &str,
        permissions: Permissions,
        expires: Option<i64>,
    ) -> AccessRule {
        AccessRule {
            id: Uuid::from_u128(5),
            collection: Uuid::from_u128(1),
            principal,
            path: path.to_owned(),
            permissions,
            created: Timestamp::from_secs(0),
            expires: expires.map(Timestamp::from_secs),
        }
    }

    pub(in crate::endpoints) fn user(id: u128, groups: &[u128]) -> Who {
        Who { identity: Some(Uuid::from_u128(id)), groups: groups.iter().copied().map(Uuid::from_u128).collect() }
    }

    fn principals() -> impl Strategy<Value = Principal> {
        prop_oneof![
            (11_u128..14).prop_map(|id| Principal::Identity(Uuid::from_u128(id))),
            (20_u128..23).prop_map(|id| Principal::Group(Uuid::from_u128(id))),
            Just(Principal::AllAuthenticatedUsers),
            Just(Principal::Anonymous),
        ]
    }

    prop_compose! {
        pub(in crate::endpoints) fn rules()(
            principal in principals(),
            parts in prop::collection::vec("[ab]{1,2}", 0..3),
            write in any::<bool>(),
            expires in prop::option::of(NOW - 1..NOW + 2),
        ) -> AccessRule {
            let path = if parts.is_empty() { "/".to_owned() } else { format!("/{}/", parts.join("/")) };
            rule(principal, &path, if write { Permissions::ReadWrite } else { Permissions::Read }, expires)
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::testing::*;
    use super::*;

    fn asks(who: &Who, collection: &Collection, rules: &[AccessRule], path: &str, want: Want) -> bool {
        let roles = roles_of(who, collection, &[]);
        may(who, collection, &roles, rules, path, want, Timestamp::from_secs(NOW))
    }

    #[test]
    fn a_rule_gives_its_directory_and_nothing_beside_it() {
        let guest = collection(EntityType::Guest);
        let rules = [rule(Principal::Identity(Uuid::from_u128(11)), "/data/", Permissions::Read, None)];
        let ada = user(11, &[]);
        for (path, may) in
            [("/data/", true), ("/data", true), ("/data/x", true), ("/database", false), ("/", false), ("", false)]
        {
            assert_eq!(asks(&ada, &guest, &rules, path, Want::Read), may, "{path}");
            assert!(!asks(&ada, &guest, &rules, path, Want::Write), "{path}");
            assert!(!asks(&user(12, &[]), &guest, &rules, path, Want::Read), "{path}");
        }
        assert!(asks(&user(10, &[]), &guest, &rules, "/", Want::Write), "its owner");
    }

    #[test]
    fn the_longest_path_decides_even_if_it_gives_less() {
        let guest = collection(EntityType::Guest);
        let ada = Principal::Identity(Uuid::from_u128(11));
        let rules = [
            rule(ada, "/", Permissions::ReadWrite, None),
            rule(Principal::Group(Uuid::from_u128(20)), "/old/", Permissions::Read, None),
        ];
        assert!(asks(&user(11, &[]), &guest, &rules, "/old/x", Want::Write), "not in the group");
        assert!(!asks(&user(11, &[20]), &guest, &rules, "/old/x", Want::Write));
        assert!(asks(&user(11, &[20]), &guest, &rules, "/new/x", Want::Write));
    }

    #[test]
    fn expired_rules_and_deleted_collections_give_nothing() {
        let mut guest = collection(EntityType::Guest);
        let at = |end| [rule(Principal::AllAuthenticatedUsers, "/", Permissions::Read, Some(end))];
        let ada = user(11, &[]);
        assert!(asks(&ada, &guest, &at(NOW + 1), "/x", Want::Read) && !asks(&ada, &guest, &at(NOW), "/x", Want::Read));
        guest.deleted = true;
        assert!(!asks(&user(10, &[]), &guest, &[], "/x", Want::Read), "not even its owner");
    }

    #[test]
    fn who_does_not_log_in_gets_what_is_for_everybody() {
        let mut guest = collection(EntityType::Guest);
        let rules = [rule(Principal::Anonymous, "/pub/", Permissions::ReadWrite, None)];
        let nobody = Who::default();
        assert!(asks(&nobody, &guest, &rules, "/pub/x", Want::Write));
        guest.policy.disable_anonymous_writes = true;
        assert!(
            !asks(&nobody, &guest, &rules, "/pub/x", Want::Write)
                && asks(&nobody, &guest, &rules, "/pub/x", Want::Read)
        );
        assert!(asks(&user(11, &[]), &guest, &rules, "/pub/x", Want::Write));
        assert!(!asks(&nobody, &collection(EntityType::Mapped), &rules, "/pub/x", Want::Read));
    }

    #[test]
    fn kinds_of_collections_differ() {
        let ada = user(11, &[]);
        for (kind, may) in [
            (EntityType::Mapped, true),
            (EntityType::Endpoint, false),
            (EntityType::Personal, false),
            (EntityType::Guest, false),
            (EntityType::PersonalGuest, false),
        ] {
            assert_eq!(asks(&ada, &collection(kind), &[], "/x", Want::Read), may, "{kind:?}");
        }
    }

    #[test]
    fn roles_allow_what_they_are_for() {
        use RoleName::{AccessManager, ActivityManager, ActivityMonitor, Administrator};
        let given = |principal, role| RoleGiven { id: Uuid::nil(), collection: Uuid::from_u128(1), principal, role };
        let roles = [
            given(Principal::Group(Uuid::from_u128(20)), ActivityManager),
            given(Principal::Identity(Uuid::from_u128(11)), AccessManager),
        ];
        let guest = collection(EntityType::Guest);
        assert_eq!(roles_of(&user(11, &[20]), &guest, &roles), [AccessManager, ActivityManager]);
        assert_eq!(roles_of(&user(10, &[]), &guest, &roles), [Administrator]);
        assert!(may_as(&[ActivityManager], ActivityMonitor) && !may_as(&[ActivityMonitor], ActivityManager));
        assert!(may_as(&[Administrator], AccessManager) && !may_as(&[AccessManager], Administrator));
    }

    /// The rules in words: look at every rule, remember the best one of the longest path.
    fn naive(who: &Who, rules: &[AccessRule], path: &str, want: Want) -> bool {
        let mut best: Option<&AccessRule> = None;
        for rule in rules {
            let theirs = match rule.principal {
                Principal::Identity(id) => who.identity == Some(id),
                Principal::Group(id) => who.identity.is_some() && who.groups.contains(&id),
                Principal::AllAuthenticatedUsers => who.identity.is_some(),
                Principal::Anonymous => true,
            };
            let over = rule.expires.is_some_and(|end| end.secs <= NOW);
            let parts = |path: &str| -> Vec<String> {
                path.split('/').filter(|part| !part.is_empty()).map(str::to_owned).collect()
            };
            let (below, above) = (parts(path), parts(&rule.path));
            if !theirs || over || !below.starts_with(&above) {
                continue;
            }
            let depth = |rule: &AccessRule| rule.path.len();
            let better = best.is_none_or(|best| {
                depth(rule) > depth(best) || depth(rule) == depth(best) && rule.permissions == Permissions::ReadWrite
            });
            if better {
                best = Some(rule);
            }
        }
        best.is_some_and(|rule| want == Want::Read || rule.permissions == Permissions::ReadWrite)
    }

    proptest! {
        #[test]
        fn rules_mean_what_the_naive_reading_means(
            rules in prop::collection::vec(rules(), 0..8),
            who in prop::option::of((11_u128..14, prop::collection::vec(20_u128..23, 0..3))),
            parts in prop::collection::vec("[ab]{1,2}", 0..4),
            slash in any::<bool>(),
            write in any::<bool>(),
        ) {
            let who = who.map_or_else(Who::default, |(id, groups)| user(id, &groups));
            let path = format!("/{}{}", parts.join("/"), if slash && !parts.is_empty() { "/" } else { "" });
            let want = if write { Want::Write } else { Want::Read };
            let decided = asks(&who, &collection(EntityType::Guest), &rules, &path, want);
            prop_assert_eq!(decided, naive(&who, &rules, &path, want));
        }
    }
}
