//! Scopes: what a token is for, and on whose behalf its holder may go on.
//!
//! The strings are compiled into the public clients, so they name hosts of Globus although none of them is ever asked.
//! `root[*dep other[dep2]]`: a scope may depend on others, for services that call services; `*` marks what needs no consent yet.

use std::fmt;

/// Resource server of identities.
pub const AUTH: &str = "auth.globus.org";
/// Resource server of transfers.
pub const TRANSFER: &str = "transfer.api.globus.org";
/// Resource server of groups.
pub const GROUPS: &str = "groups.api.globus.org";
/// Resource server of timers.
pub const TIMERS: &str = "524230d7-ea86-4a52-8312-86065a9e0417";
/// Client id of flows, in their scopes; their resource server has a name.
const FLOWS: &str = "eec9b274-0c81-4334-bdc2-54e90e689b9a";
/// Resource server of what is our own.
pub const OURS: &str = "whimbrel";

/// A scope that routes ask for.
pub trait Scope: Send + Sync + 'static {
    /// Its name.
    const NAME: &'static str;
    /// Others that do as well.
    const ALSO: &'static [&'static str] = &[];
}

/// Which groups one is in.
#[derive(Debug)]
pub struct ViewGroups;

impl Scope for ViewGroups {
    const NAME: &'static str = "urn:globus:auth:scope:groups.api.globus.org:view_my_groups_and_memberships";
    const ALSO: &'static [&'static str] = &["urn:globus:auth:scope:groups.api.globus.org:all"];
}

/// Who others are, and which other identities one has.
#[derive(Debug)]
pub struct ViewIdentitySet;

impl Scope for ViewIdentitySet {
    const NAME: &'static str = "urn:globus:auth:scope:auth.globus.org:view_identity_set";
    const ALSO: &'static [&'static str] = &["urn:globus:auth:scope:auth.globus.org:view_identities"];
}

/// What one has allowed to whom.
#[derive(Debug)]
pub struct ViewConsents;

impl Scope for ViewConsents {
    const NAME: &'static str = ViewIdentitySet::NAME;
    const ALSO: &'static [&'static str] = &["urn:globus:auth:scope:auth.globus.org:view_consents"];
}

macro_rules! scopes {
    ($($(#[$doc:meta])* $name:ident = $text:literal;)*) => {
        $($(#[$doc])* #[derive(Debug)] pub struct $name;
        impl Scope for $name { const NAME: &'static str = $text; })*
    };
}

scopes! {
    /// Everything of the Transfer API.
    TransferAll = "urn:globus:auth:scope:transfer.api.globus.org:all";
    /// Who one is.
    OpenId = "openid";
    /// Everything about groups.
    GroupsAll = "urn:globus:auth:scope:groups.api.globus.org:all";
    /// Everything about timers.
    TimersAll = "https://auth.globus.org/scopes/524230d7-ea86-4a52-8312-86065a9e0417/timer";
    /// To carry out tasks; given to orchestrators' clients only.
    Orchestrate = "urn:whimbrel:scope:orchestrate";
    /// To read metrics; given to monitors' clients only.
    Monitor = "urn:whimbrel:scope:monitor";
}

/// Longest text of scopes, bytes.
const LONGEST: usize = 16 << 10;
/// Deepest dependencies; clients ask for three.
const DEEPEST: usize = 8;

/// A scope that was asked for, with those it depends on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    /// Its name.
    pub name: String,
    /// It may be missing.
    pub optional: bool,
    /// Those it depends on.
    pub dependencies: Vec<Wanted>,
}

/// Why a text is none of scopes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadScope {
    /// It is too long.
    #[error("there are too many scopes")]
    TooLong,
    /// Brackets are nested too deeply.
    #[error("dependent scopes are nested too deeply")]
    TooDeep,
    /// Brackets do not match, or something is not where it belongs.
    #[error("scopes are names with blanks between them; dependent ones stand in brackets directly behind")]
    Malformed,
}

/// Reads scopes with blanks between them.
///
/// # Errors
/// [`BadScope`].
pub fn parse(text: &str) -> Result<Vec<Wanted>, BadScope> {
    if text.len() > LONGEST {
        return Err(BadScope::TooLong);
    }
    let mut rest = text;
    let wanted = list(&mut rest, 0)?;
    if rest.is_empty() { Ok(wanted) } else { Err(BadScope::Malformed) }
}

fn list(rest: &mut &str, depth: usize) -> Result<Vec<Wanted>, BadScope> {
    if depth > DEEPEST {
        return Err(BadScope::TooDeep);
    }
    let mut wanted = Vec::new();
    loop {
        *rest = rest.trim_start_matches(' ');
        if rest.is_empty() || rest.starts_with(']') {
            return Ok(wanted);
        }
        wanted.push(one(rest, depth)?);
    }
}

fn one(rest: &mut &str, depth: usize) -> Result<Wanted, BadScope> {
    let optional = rest.starts_with('*');
    *rest = rest.strip_prefix('*').unwrap_or(rest);
    let end = rest.find([' ', '[', ']']).unwrap_or(rest.len());
    let (name, behind) = rest.split_at(end);
    // RFC 6749 §3.3: printable, without quotes and backslashes.
    if name.is_empty() || name.bytes().any(|byte| !(0x21..=0x7e).contains(&byte) || b"\"\\*".contains(&byte)) {
        return Err(BadScope::Malformed);
    }
    *rest = behind;
    let mut dependencies = Vec::new();
    if let Some(inside) = rest.strip_prefix('[') {
        *rest = inside;
        dependencies = list(rest, depth + 1)?;
        *rest = rest.strip_prefix(']').ok_or(BadScope::Malformed)?;
        if !(rest.is_empty() || rest.starts_with([' ', ']'])) {
            return Err(BadScope::Malformed);
        }
    }
    Ok(Wanted { name: name.to_owned(), optional, dependencies })
}

impl fmt::Display for Wanted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", if self.optional { "*" } else { "" }, self.name)?;
        if self.dependencies.is_empty() {
            return Ok(());
        }
        let inside: Vec<_> = self.dependencies.iter().map(ToString::to_string).collect();
        write!(f, "[{}]", inside.join(" "))
    }
}

impl Wanted {
    /// Every path from this scope down: itself, then those it depends on, each with all above it.
    pub fn paths(&self) -> Vec<Vec<String>> {
        let mut paths = vec![vec![self.name.clone()]];
        for path in self.dependencies.iter().flat_map(Self::paths) {
            paths.push([vec![self.name.clone()], path].concat());
        }
        paths
    }
}

/// The resource server that a scope's tokens are for; `None`: there is no such scope.
pub fn resource_server(scope: &str) -> Option<&str> {
    if matches!(scope, "openid" | "profile" | "email" | "offline_access") {
        return Some(AUTH);
    }
    if [Orchestrate::NAME, Monitor::NAME].contains(&scope) {
        return Some(OURS);
    }
    if let Some(rest) = scope.strip_prefix("urn:globus:auth:scope:") {
        let (server, name) = rest.split_once(':')?;
        return (is_word(server) && is_word(name)).then_some(server);
    }
    let (server, name) = scope.strip_prefix("https://auth.globus.org/scopes/")?.split_once('/')?;
    let server = if server == FLOWS { "flows.globus.org" } else { server };
    (is_word(server) && is_word(name)).then_some(server)
}

fn is_word(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte))
}

/// The scope with which a user lets the Transfer API use a mapped collection in their name, where the collection asks for that.
pub fn data_access(collection: uuid::Uuid) -> String {
    format!("https://auth.globus.org/scopes/{collection}/data_access")
}

/// The scope with which a user reads and writes a collection's files over HTTPS.
pub fn https(collection: uuid::Uuid) -> String {
    format!("https://auth.globus.org/scopes/{collection}/https")
}

/// The scope with which a user manages collections of an endpoint at its own manager.
pub fn manage_collections(endpoint: uuid::Uuid) -> String {
    format!("urn:globus:auth:scope:{endpoint}:manage_collections")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn scopes_with_dependencies_are_read_as_the_clients_write_them() {
        let wanted = parse("openid root[*dep other[dep2]] x").unwrap();
        assert_eq!(wanted.len(), 3);
        assert_eq!(wanted[1].to_string(), "root[*dep other[dep2]]");
        assert!(wanted[1].dependencies[0].optional && !wanted[1].dependencies[1].optional);
        let paths: Vec<_> = wanted[1].paths().iter().map(|path| path.join(">")).collect();
        assert_eq!(paths, ["root", "root>dep", "root>other", "root>other>dep2"]);
        assert_eq!(parse(""), Ok(Vec::new()));
    }

    #[test]
    fn what_is_no_scope_is_refused() {
        for text in ["a[b", "a]", "a[b]c", "[b]", "a\"", "a\u{e9}", "**a", "a *", "a\tb", "a[b]]"] {
            assert_eq!(parse(text), Err(BadScope::Malformed), "{text}");
        }
        assert_eq!(parse(&"a[".repeat(20)), Err(BadScope::TooDeep));
        assert_eq!(parse(&"a ".repeat(20_000)), Err(BadScope::TooLong));
    }

    #[test]
    fn resource_servers_follow_from_scopes() {
        for (scope, server) in [
            ("openid", Some(AUTH)),
            (ViewIdentitySet::NAME, Some(AUTH)),
            (TransferAll::NAME, Some(TRANSFER)),
            (TimersAll::NAME, Some(TIMERS)),
            ("https://auth.globus.org/scopes/eec9b274-0c81-4334-bdc2-54e90e689b9a/all", Some("flows.globus.org")),
            (
                "https://auth.globus.org/scopes/aaaaaaaa-0000-4000-8000-00000000000a/https",
                Some("aaaaaaaa-0000-4000-8000-00000000000a"),
            ),
            (Orchestrate::NAME, Some(OURS)),
            (Monitor::NAME, Some(OURS)),
            ("urn:whimbrel:scope:anything", None),
            ("urn:globus:auth:scope:x", None),
            ("all", None),
            ("", None),
        ] {
            assert_eq!(resource_server(scope), server, "{scope}");
        }
    }

    fn wanted() -> impl Strategy<Value = Wanted> {
        let leaf = ("[a-z:/.]{1,8}", any::<bool>()).prop_map(|(name, optional)| Wanted {
            name,
            optional,
            dependencies: Vec::new(),
        });
        leaf.prop_recursive(4, 20, 3, |inner| {
            ("[a-z:/.]{1,8}", any::<bool>(), prop::collection::vec(inner, 0..3))
                .prop_map(|(name, optional, dependencies)| Wanted { name, optional, dependencies })
        })
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_again(wanted in prop::collection::vec(wanted(), 0..4)) {
            let text: Vec<_> = wanted.iter().map(ToString::to_string).collect();
            prop_assert_eq!(parse(&text.join(" ")), Ok(wanted));
        }

        #[test]
        fn no_text_breaks_the_reader(text in "[a-b\\[\\]* é]{0,60}") {
            let _read = parse(&text);
            let _server = resource_server(&text);
        }
    }
}
