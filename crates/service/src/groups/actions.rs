//! What is done with memberships: pure decisions.

use serde::Deserialize;
use uuid::Uuid;

use super::records::{Group, GroupRole, Membership, Status};

/// Members of a group at the most, with those who are invited or ask.
const MOST: usize = 10_000;

/// The words of the Groups API.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum Action {
    Accept,
    Add,
    Approve,
    ChangeRole,
    Decline,
    Invite,
    Join,
    Leave,
    Reject,
    Remove,
    RequestJoin,
}

impl Action {
    /// All, in the order in which those of one request are carried out.
    pub(super) const ALL: [Self; 11] = [
        Self::Accept,
        Self::Add,
        Self::Approve,
        Self::ChangeRole,
        Self::Decline,
        Self::Invite,
        Self::Join,
        Self::Leave,
        Self::Reject,
        Self::Remove,
        Self::RequestJoin,
    ];

    /// The API's word.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Accept => "accept",
            Self::Add => "add",
            Self::Approve => "approve",
            Self::ChangeRole => "change_role",
            Self::Decline => "decline",
            Self::Invite => "invite",
            Self::Join => "join",
            Self::Leave => "leave",
            Self::Reject => "reject",
            Self::Remove => "remove",
            Self::RequestJoin => "request_join",
        }
    }

    /// Whether one does it for oneself only; else managers do it for others.
    fn is_own(self) -> bool {
        matches!(self, Self::Accept | Self::Decline | Self::Join | Self::Leave | Self::RequestJoin)
    }
}

/// Why something is not done: a code of the Groups API, and words.
pub(super) type Refusal = (&'static str, &'static str);

impl Group {
    /// Does something with the membership of `target` in the name of `by`; gives the membership as it is now, or was last.
    pub(super) fn act(
        &mut self,
        by: Uuid,
        action: Action,
        target: Uuid,
        role: Option<GroupRole>,
    ) -> Result<Membership, Refusal> {
        self.may(by, action, target, role)?;
        let known = self.of(target).copied();
        let status = known.map(|known| known.status);
        // What one is, others say.
        let role = role.filter(|_| !action.is_own());
        let role = role.or(known.map(|known| known.role)).unwrap_or(GroupRole::Member);
        let is = |status| Membership { identity: target, role, status };
        match (action, status) {
            (Action::Accept, Some(Status::Invited)) | (Action::Approve, Some(Status::Pending)) => {
                self.set(is(Status::Active))
            }
            // Who is invited need not be asked for again.
            (Action::Join | Action::RequestJoin, Some(Status::Invited)) => self.set(is(Status::Active)),
            (Action::Join, None | Some(Status::Pending)) => {
                Err(("FORBIDDEN", "The group takes people by invitation, or on request"))
            }
            (Action::RequestJoin, None) if self.policies.join_requests => self.set(is(Status::Pending)),
            (Action::RequestJoin, None) => Err(("FORBIDDEN", "The group takes no requests")),
            (Action::RequestJoin, Some(Status::Pending)) => Ok(is(Status::Pending)),
            (Action::Add, None | Some(Status::Invited | Status::Pending)) => self.set(is(Status::Active)),
            (Action::Invite, None | Some(Status::Invited | Status::Pending)) => self.set(is(Status::Invited)),
            (Action::ChangeRole, Some(Status::Active)) => {
                if role < GroupRole::Admin {
                    self.keep_an_admin(target)?;
                }
                self.set(is(Status::Active))
            }
            (Action::Decline, Some(Status::Invited))
            | (Action::Reject, Some(Status::Pending))
            | (Action::Remove, Some(Status::Invited | Status::Pending)) => self.take_out(target),
            (Action::Leave | Action::Remove, Some(Status::Active)) => {
                self.keep_an_admin(target)?;
                self.take_out(target)
            }
            (Action::Add | Action::Invite | Action::Join | Action::RequestJoin, Some(Status::Active)) => {
                Err(("ALREADY_MEMBER", "They belong to the group already"))
            }
            _ => Err(("NOT_FOUND", "Their membership is not in a state for that")),
        }
    }

    fn may(&self, by: Uuid, action: Action, target: Uuid, role: Option<GroupRole>) -> Result<(), Refusal> {
        if action.is_own() {
            return if by == target { Ok(()) } else { Err(("FORBIDDEN", "That is done for oneself only")) };
        }
        let needed = if action == Action::ChangeRole { GroupRole::Admin } else { GroupRole::Manager };
        let own = self.role_of(by).filter(|own| *own >= needed);
        let own = own.ok_or(("FORBIDDEN", "Only managers and admins of the group do that, and admins change roles"))?;
        let theirs = self.of(target).map_or(GroupRole::Member, |member| member.role);
        if own < role.unwrap_or(GroupRole::Member).max(theirs) {
            return Err(("FORBIDDEN", "Nobody gives or takes more than they have"));
        }
        Ok(())
    }

    fn keep_an_admin(&self, without: Uuid) -> Result<(), Refusal> {
        let other = |member: &Membership| {
            member.identity != without && member.status == Status::Active && member.role == GroupRole::Admin
        };
        let only = self.role_of(without) == Some(GroupRole::Admin) && !self.members.iter().any(other);
        if only { Err(("LAST_ADMIN", "The group needs an admin: make another one first")) } else { Ok(()) }
    }

    fn set(&mut self, membership: Membership) -> Result<Membership, Refusal> {
        match self.members.iter().position(|member| member.identity == membership.identity) {
            Some(at) => self.members[at] = membership,
            None if self.members.len() >= MOST => return Err(("LIMIT", "The group has 10,000 members already")),
            None => self.members.push(membership),
        }
        Ok(membership)
    }

    fn take_out(&mut self, identity: Uuid) -> Result<Membership, Refusal> {
        let at = self.members.iter().position(|member| member.identity == identity);
        let at = at.ok_or(("NOT_FOUND", "They do not belong to the group"))?;
        Ok(self.members.remove(at))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use whimbrel_engine::listing::Timestamp;

    use super::super::records::Policies;
    use super::*;

    const ADA: Uuid = Uuid::from_u128(1);
    const BOB: Uuid = Uuid::from_u128(2);
    const CAROL: Uuid = Uuid::from_u128(3);

    fn group() -> Group {
        let founder = Membership { identity: ADA, role: GroupRole::Admin, status: Status::Active };
        Group {
            id: Uuid::from_u128(9),
            name: "g".into(),
            description: None,
            terms: None,
            policies: Policies::default(),
            members: vec![founder],
            created: Timestamp::from_secs(0),
        }
    }

    #[test]
    fn nobody_belongs_to_a_group_against_its_managers_will() {
        let mut group = group();
        for action in Action::ALL {
            assert!(group.act(BOB, action, BOB, Some(GroupRole::Admin)).is_err(), "{action:?}");
            assert!(group.act(BOB, action, CAROL, None).is_err(), "{action:?}");
        }
        assert_eq!(group, self::group());
        group.policies.join_requests = true;
        let asked = group.act(BOB, Action::RequestJoin, BOB, None).unwrap();
        assert_eq!((asked.status, group.role_of(BOB)), (Status::Pending, None));
        assert!(group.act(BOB, Action::Approve, BOB, None).is_err());
        group.act(ADA, Action::Approve, BOB, None).unwrap();
        assert_eq!(group.role_of(BOB), Some(GroupRole::Member));
    }

    #[test]
    fn an_invitation_is_taken_or_left() {
        let mut group = group();
        group.act(ADA, Action::Invite, BOB, Some(GroupRole::Manager)).unwrap();
        assert_eq!(group.role_of(BOB), None);
        group.act(BOB, Action::Decline, BOB, None).unwrap();
        assert!(group.act(BOB, Action::Accept, BOB, None).is_err());
        group.act(ADA, Action::Invite, BOB, Some(GroupRole::Manager)).unwrap();
        group.act(BOB, Action::Accept, BOB, None).unwrap();
        assert_eq!(group.role_of(BOB), Some(GroupRole::Manager));
        assert!(group.act(BOB, Action::Add, CAROL, Some(GroupRole::Admin)).is_err(), "more than he is");
        assert!(
            group.act(BOB, Action::Remove, ADA, None).is_err()
                && group.act(BOB, Action::ChangeRole, BOB, Some(GroupRole::Admin)).is_err()
        );
        group.act(BOB, Action::Add, CAROL, None).unwrap();
        group.act(CAROL, Action::Leave, CAROL, None).unwrap();
        assert_eq!(group.of(CAROL), None);
    }

    /// Who asks with a role would choose it.
    #[test]
    fn one_does_not_choose_ones_own_role() {
        let mut group = group();
        group.policies.join_requests = true;
        group.act(ADA, Action::Invite, BOB, None).unwrap();
        group.act(BOB, Action::Accept, BOB, Some(GroupRole::Admin)).unwrap();
        group.act(CAROL, Action::RequestJoin, CAROL, Some(GroupRole::Admin)).unwrap();
        group.act(ADA, Action::Approve, CAROL, None).unwrap();
        assert_eq!((group.role_of(BOB), group.role_of(CAROL)), (Some(GroupRole::Member), Some(GroupRole::Member)));
    }

    proptest! {
        /// Whatever is done, an admin stays, each is there once, and only who was a manager before has brought in anybody.
        #[test]
        fn a_group_is_never_without_an_admin(
            steps in prop::collection::vec((0u128..4, 0..Action::ALL.len(), 0u128..4, prop::option::of(0..3usize)), 0..40),
        ) {
            let mut group = group();
            for (by, action, target, role) in steps {
                let role = role.map(|at| [GroupRole::Member, GroupRole::Manager, GroupRole::Admin][at]);
                let (by, target, before) = (Uuid::from_u128(by), Uuid::from_u128(target), group.clone());
                if group.act(by, Action::ALL[action], target, role).is_err() {
                    prop_assert_eq!(&group, &before);
                }
                prop_assert!(group.members.iter().any(|member| group.role_of(member.identity) == Some(GroupRole::Admin)));
                let mut known: Vec<_> = group.members.iter().map(|member| member.identity).collect();
                known.sort_unstable();
                known.dedup();
                prop_assert_eq!(known.len(), group.members.len());
                let came = group.role_of(target) > before.role_of(target);
                let let_in = before.role_of(by) >= Some(GroupRole::Manager)
                    || before.of(target).is_some_and(|known| known.status == Status::Invited);
                prop_assert!(!came || let_in);
            }
        }
    }
}
