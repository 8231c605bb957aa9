//! Checks of who may do what: each is taken out, and a test must notice.

use super::mutations::{Mutation, Suite, mutation, suite};

const TOKEN: Suite = suite(&["test", "-p", "whimbrel-proto", "--lib"], &["token::"]);
const RULES: Suite = suite(&["test", "-p", "whimbrel-proto", "--lib"], &["rules::"]);
const MAPPING: Suite = suite(&["test", "-p", "whimbrel-proto", "--lib"], &["mapping::"]);
const TRUST: Suite = suite(&["test", "-p", "whimbrel-trust"], &[]);
const GUARD: Suite = suite(&["test", "-p", "whimbrel-engine", "--lib"], &["guard::"]);

const JWT_RS: &str = "crates/proto/src/token/jwt.rs";
const JSON_RS: &str = "crates/proto/src/token/json.rs";
const JWKS_RS: &str = "crates/proto/src/token/jwks.rs";
const SCOPE_RS: &str = "crates/proto/src/token/scope.rs";
const TOKEN_JUDGE_RS: &str = "crates/proto/src/token/judge.rs";
const DISCOVERY_RS: &str = "crates/proto/src/token/discovery.rs";
const HTTP_RS: &str = "crates/proto/src/token/http.rs";
const SIGNATURE_RS: &str = "crates/trust/src/signature.rs";
const TRUST_TOKEN_RS: &str = "crates/trust/src/token.rs";
const PATHS_RS: &str = "crates/proto/src/rules/paths.rs";
const EXPRESSION_RS: &str = "crates/proto/src/mapping/expression.rs";
const COMMAND_RS: &str = "crates/proto/src/mapping/command.rs";
const MAPPING_RS: &str = "crates/proto/src/mapping.rs";
const PINS_RS: &str = "crates/trust/src/pins/text.rs";
const THROTTLE_RS: &str = "crates/engine/src/guard/throttle.rs";
const DOORS_RS: &str = "crates/engine/src/guard/doors.rs";
const SLOW_RS: &str = "crates/engine/src/guard/slow.rs";

pub const SECURITY: &[Mutation] = &[
    mutation(
        "token: demands of a header",
        "a token whose demands nobody understood",
        JWT_RS,
        "    if header.has(\"crit\") {\n",
        "    if header.has(\"crit\") && false {\n",
        TOKEN,
    ),
    mutation(
        "token: no name twice",
        "two readers who believe different claims",
        JSON_RS,
        "                    if names.insert(name, value).is_some() {\n",
        "                    if names.insert(name, value).is_some() && false {\n",
        TOKEN,
    ),
    mutation(
        "token: keys are strong",
        "a forged signature by a key of 512 bits",
        JWKS_RS,
        "= 2048..=8192;\n",
        "= 512..=8192;\n",
        TOKEN,
    ),
    mutation(
        "token: a scope of storage names a path",
        "everything for a token that names nothing",
        SCOPE_RS,
        "        let path = path.ok_or_else(|| ScopeError::NoPath(shown(scope)))?;\n",
        "        let path = path.unwrap_or(\"/\");\n",
        TOKEN,
    ),
    mutation(
        "token: no way up in scopes",
        "files outside of the issuer's part",
        SCOPE_RS,
        "            b\"..\" => return None,\n",
        "            b\"..\" => {}\n",
        TOKEN,
    ),
    mutation(
        "token: the audience",
        "a token that was given to another server",
        TOKEN_JUDGE_RS,
        "    if claims.audience.iter().any(fits) {\n",
        "    if claims.audience.iter().any(fits) || true {\n",
        TOKEN,
    ),
    mutation(
        "token: the end",
        "a token that is over",
        TOKEN_JUDGE_RS,
        "    if now >= over {\n",
        "    if now >= over && false {\n",
        TOKEN,
    ),
    mutation(
        "token: an issuer describes itself",
        "keys of somebody else",
        DISCOVERY_RS,
        "    if named != issuer {\n",
        "    if named != issuer && false {\n",
        TOKEN,
    ),
    mutation(
        "token: one statement of a length",
        "an answer of which a proxy sees another end",
        HTTP_RS,
        "(100..=199, ..) | (_, Some(_), true) =>",
        "(100..=199, ..) =>",
        TOKEN,
    ),
    mutation(
        "token: a key is for one algorithm",
        "a signature of the wrong kind",
        SIGNATURE_RS,
        "        algorithm == self.algorithm() && self",
        "        self",
        TRUST,
    ),
    mutation(
        "token: keys go stale",
        "a key that its issuer took back",
        TRUST_TOKEN_RS,
        "now.saturating_sub(at) < STALE)\n",
        "now.saturating_sub(at) < i64::MAX)\n",
        TRUST,
    ),
    mutation(
        "rules: no way up",
        "a denied subtree by another spelling",
        PATHS_RS,
        "            b\"..\" => return None,\n",
        "            b\"..\" => {}\n",
        RULES,
    ),
    mutation(
        "rules: denials",
        "a subtree that is denied",
        PATHS_RS,
        "                entry.below = entry.below & !rule.operations;\n",
        "",
        RULES,
    ),
    mutation(
        "rules: a rename brings no rights",
        "a file that becomes readable by its new name",
        PATHS_RS,
        "            && old.here.covers(new.here)\n",
        "",
        RULES,
    ),
    mutation(
        "rules: a rename leaves no rule behind",
        "a denied part of a tree that moves away",
        PATHS_RS,
        " && plain(&from) && plain(&to)))\n",
        "))\n",
        RULES,
    ),
    mutation(
        "mapping: branches are grouped",
        "the account of somebody whose name only ends so",
        EXPRESSION_RS,
        "r\"\\A(?:{regex})\\z\"",
        "r\"\\A{regex}\\z\"",
        TRUST,
    ),
    mutation(
        "mapping: answers are for who was asked about",
        "an account for an identity that a program makes up",
        COMMAND_RS,
        "        let identity = identity.ok_or(CommandError::Stranger)?;\n",
        "        let identity = identity.unwrap_or(0);\n",
        MAPPING,
    ),
    mutation(
        "mapping: accounts have sane names",
        "lines in files of accounts and logs",
        MAPPING_RS,
        "        if is_account(&account) { Ok(Some(account)) } else { Err(MapReason::Account) }\n",
        "        Ok(Some(account))\n",
        MAPPING,
    ),
    mutation(
        "pins: a changed key",
        "somebody in between",
        PINS_RS,
        "            Said::Key(known) => verdict = PinVerdict::Changed { known, line: number },\n",
        "            Said::Key(_) => verdict = PinVerdict::Same,\n",
        TRUST,
    ),
    mutation(
        "pins: a damaged line is no first visit",
        "somebody in between, after a crash",
        PINS_RS,
        "        match said(line).ok_or(number)? {\n",
        "        let Some(said) = said(line) else { continue };\n        match said {\n",
        TRUST,
    ),
    mutation(
        "guard: bad logins of a network",
        "guessing at full speed",
        THROTTLE_RS,
        "                self.networks.count(network, now, until);\n",
        "",
        GUARD,
    ),
    mutation(
        "guard: bad logins at an account",
        "guessing from everywhere",
        THROTTLE_RS,
        "                    self.users.count(user, now, until);\n",
        "",
        GUARD,
    ),
    mutation(
        "guard: connections before login",
        "one address that takes all connections",
        DOORS_RS,
        "        if waiting >= limits.waiting_per_network {\n",
        "        if waiting >= limits.waiting_per_network && false {\n",
        GUARD,
    ),
    mutation(
        "guard: lines have to end",
        "a byte every twenty seconds",
        SLOW_RS,
        "            Some(before) if !ended => Some(before),\n",
        "",
        GUARD,
    ),
];
