//! `[[rules]]`: what may be done where, and by whom.

use serde::Deserialize;
use serde::de::{Deserializer, Error};
use whimbrel_proto::rules::{Networks, Operation, Operations, PathRule, PathRules};

use super::super::access::Who;

/// Most rules: the front is told all of them in one message.
const MOST_RULES: usize = 256;

/// Most bytes of all their paths and names, for the same reason.
const MOST_TEXT: usize = 32 << 10;

/// One rule: at a path and below it, some operations are allowed or denied, to everybody or to some. Of all rules for somebody that
/// cover a path and speak of an operation the longest decides; where none does, it is allowed.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "Entry")]
pub struct AccessRule {
    /// For whom.
    pub who: Who,
    /// What it says: one for what is allowed, one for what is denied.
    pub rules: Vec<PathRule>,
}

/// As it is written.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Entry {
    /// As clients see it. Default: `/`.
    path: Option<String>,
    /// `"all"`, or some of read, list, create, modify, delete.
    #[serde(deserialize_with = "operations")]
    allow: Operations,
    #[serde(deserialize_with = "operations")]
    deny: Operations,
    users: Vec<String>,
    groups: Vec<String>,
    addresses: Networks,
    /// About what others are let into by the account's owner: who may share what.
    shared: bool,
}

impl TryFrom<Entry> for AccessRule {
    type Error = String;

    fn try_from(entry: Entry) -> Result<Self, String> {
        let Entry { path, allow, deny, users, groups, addresses, shared } = entry;
        let path = path.unwrap_or_else(|| "/".to_owned());
        if allow.is_empty() && deny.is_empty() {
            return Err(format!("the rule for {path} says nothing: allow = [\"read\", \"list\"] or deny = \"all\""));
        }
        let rules = [PathRule::allow(path.clone(), allow), PathRule::deny(path, deny)];
        let rules: Vec<_> = rules.into_iter().filter(|rule| !rule.operations.is_empty()).collect();
        PathRules::new(Operations::ALL, &rules).map_err(|error| error.to_string())?;
        Ok(Self { who: Who { users, groups, addresses, shared }, rules })
    }
}

impl AccessRule {
    fn text(&self) -> usize {
        let names = self.who.users.iter().chain(&self.who.groups).map(String::len);
        // A network takes up to 43 characters.
        names.sum::<usize>()
            + 43 * self.who.addresses.0.len()
            + self.rules.iter().map(|rule| rule.path.len()).sum::<usize>()
    }
}

/// All rules.
pub(super) fn bounded<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<AccessRule>, D::Error> {
    let rules = Vec::<AccessRule>::deserialize(deserializer)?;
    if rules.len() > MOST_RULES || rules.iter().map(AccessRule::text).sum::<usize>() > MOST_TEXT {
        return Err(D::Error::custom(
            "there are more than 256 [[rules]], or more than 32 KiB of paths and names in them",
        ));
    }
    Ok(rules)
}

fn operations<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Operations, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Written {
        Word(String),
        List(Vec<Operation>),
    }
    match Written::deserialize(deserializer) {
        Ok(Written::Word(word)) if word == "all" => Ok(Operations::ALL),
        Ok(Written::List(list)) => Ok(list.into_iter().collect()),
        _ => Err(D::Error::custom("write \"all\", or a list of read, list, create, modify, delete")),
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::access::Guest;
    use super::super::DtnConfig;
    use super::*;

    #[test]
    fn rules_are_for_whom_they_name_and_the_longest_decides() {
        let text = r#"
            [[rules]]
            path = "/projects"
            deny = "all"
            [[rules]]
            path = "/projects/climate"
            allow = ["read", "list"]
            groups = ["climate"]
            [[rules]]
            path = "/projects/climate/inbox"
            allow = ["create"]
            deny = ["read"]
            users = ["ada"]
            addresses = ["192.0.2.0/24"]
        "#;
        let access = DtnConfig::parse(text).unwrap().access();
        assert!(access.asks_for_groups());
        let allowed = |user, groups: &[&str], from: &str, path: &str| {
            let groups: Vec<_> = groups.iter().map(|&group| group.to_owned()).collect();
            let rules = access.of(Guest { user, groups: &groups, address: from.parse().ok(), shared: false });
            Vec::<Operation>::from(rules.paths.at(path.as_bytes()))
        };
        use Operation::{Create, List, Read};
        assert_eq!(allowed("eve", &[], "192.0.2.1", "/projects/climate/x"), []);
        assert_eq!(allowed("eve", &[], "192.0.2.1", "/home/eve"), Operation::ALL);
        assert_eq!(allowed("eve", &["climate"], "192.0.2.1", "/projects/climate/x"), [Read, List]);
        assert_eq!(allowed("ada", &["climate"], "192.0.2.1", "/projects/climate/inbox/x"), [List, Create]);
        assert_eq!(allowed("ada", &["climate"], "192.0.3.1", "/projects/climate/inbox/x"), [Read, List]);
        assert_eq!(allowed("ada", &["climate"], "standard input", "/projects/climate/inbox/x"), [Read, List]);
    }

    #[test]
    fn what_may_be_shared_is_for_guests_alone_and_never_more_than_the_owners_own() {
        let text = r#"
            [[rules]]
            path = "/private"
            deny = "all"
            [[rules]]
            path = "/projects/climate/raw"
            allow = "all"
            [[rules]]
            path = "/"
            deny = "all"
            shared = true
            [[rules]]
            path = "/projects"
            allow = ["read", "list"]
            groups = ["staff"]
            shared = true
            [[rules]]
            path = "/private/too"
            allow = "all"
            shared = true
        "#;
        let access = DtnConfig::parse(text).unwrap().access();
        let allowed = |shared, groups: &[&str], path: &str| {
            let groups: Vec<_> = groups.iter().map(|&group| group.to_owned()).collect();
            let rules = access.of(Guest { user: "ada", groups: &groups, address: None, shared });
            Vec::<Operation>::from(rules.paths.at(path.as_bytes()))
        };
        use Operation::{List, Read};
        assert_eq!(allowed(false, &["staff"], "/home/ada/x"), Operation::ALL, "the owner");
        assert_eq!(allowed(true, &["staff"], "/home/ada/x"), []);
        assert_eq!(allowed(true, &["staff"], "/projects/x"), [Read, List]);
        assert_eq!(allowed(true, &[], "/projects/x"), [], "who may not share it");
        // A longer rule about something else opens nothing.
        assert_eq!(allowed(true, &["staff"], "/projects/climate/raw/x"), [Read, List]);
        assert_eq!(allowed(true, &["staff"], "/private/too/x"), []);
    }

    #[test]
    fn what_is_wrong_is_told_with_its_cure() {
        for (text, cure) in [
            ("path = \"/a\"", "says nothing"),
            ("path = \"a\"\ndeny = \"all\"", "absolute"),
            ("path = \"/a/../b\"\ndeny = \"all\"", "without `..`"),
            ("allow = \"everything\"", "write \"all\""),
            ("allow = [\"write\"]", "write \"all\""),
            ("pfad = \"/a\"\nallow = \"all\"", "unknown field"),
        ] {
            let told = DtnConfig::parse(&format!("[[rules]]\n{text}\n")).unwrap_err().to_string();
            assert!(told.contains(cure), "{text}: no {cure} in {told}");
        }
        let many = "[[rules]]\ndeny = \"all\"\n".repeat(MOST_RULES + 1);
        assert!(DtnConfig::parse(&many).unwrap_err().to_string().contains("more than 256"));
        let long = format!("[[rules]]\ndeny = \"all\"\npath = \"/{}\"\n", "x/".repeat(2000)).repeat(9);
        assert!(DtnConfig::parse(&long).unwrap_err().to_string().contains("32 KiB"));
    }
}
