//! From what somebody proved to be to the name of a local account.

use std::collections::VecDeque;

use whimbrel_engine::{Fault, FaultCode, Side};
use whimbrel_proto::mapping::{Identity, Mapped, command};
use whimbrel_proto::x509::gridmap::GridMap;

use super::accounts::Origin;
use super::sources::{Lookup, Mapping};
use crate::front::config::ProofKind;
use crate::monitor::message::Claim;

const OP: &str = "map identity";

/// Most identities that one claim is looked up as: attributes of organizations, or groups.
const MOST_IDENTITIES: usize = 64;

/// What mapping programs are told of the storage they map for: Globus' number of its POSIX connector.
const CONNECTOR: &str = "145812c8-decc-41f1-83cf-bb2a85a2a70b";
const GATEWAY: &str = "whimbrel";

/// Fields of an identity by name, in their order.
type Fields = Vec<(String, String)>;

/// What comes next in a search.
#[derive(Debug)]
pub enum Progress {
    /// The account.
    Found(String, Origin),
    /// Nobody is mapped so, or not to the account that is wanted.
    Nobody,
    /// A program has to be asked: start it with these words and this question, and give the answer to [`Search::answered`].
    Ask {
        /// Its path and arguments.
        words: Vec<String>,
        /// Its standard input.
        question: Vec<u8>,
    },
}

/// The search for the account of one claim.
#[derive(Debug)]
pub struct Search {
    /// Names as the grid-mapfile has them.
    names: Vec<String>,
    identities: Vec<Fields>,
    /// The account that is wanted; `None`: the first that is found.
    wanted: Option<String>,
    left: VecDeque<Result<Lookup, Fault>>,
}

impl ProofKind {
    /// The kind of a claim.
    pub fn of(claim: &Claim) -> Self {
        match claim {
            Claim::Certificate { .. } => Self::Certificate,
            Claim::Token { .. } => Self::Token,
            Claim::Principal(_) => Self::Principal,
        }
    }
}

impl Search {
    /// A search through these places, in their order.
    pub fn new(claim: &Claim, wanted: Option<String>, places: Vec<Result<Lookup, Fault>>) -> Self {
        Self { names: names(claim), identities: identities(claim), wanted, left: places.into() }
    }

    /// Goes on to the next thing that somebody else has to do, or to the end.
    ///
    /// # Errors
    /// A file that cannot be used now: nobody knows what it would have said.
    pub fn advance(&mut self) -> Result<Progress, Fault> {
        while let Some(place) = self.left.pop_front() {
            let (found, origin) = match place? {
                Lookup::Accounts(accounts) => (accounts, Origin::Written),
                Lookup::GridMap(map) => (self.in_gridmap(&map), Origin::Written),
                Lookup::Mapping { file, documents, place } => match documents.get(place) {
                    Some(Mapping::Rules(rules)) => match self.by_rules(rules) {
                        Ok(found) => (found, Origin::Computed),
                        Err(reason) => {
                            // A denial may have hung on it, so that later places do not count.
                            tracing::warn!(file, %reason, identity = self.names.first(), "an identity cannot be mapped");
                            return Ok(Progress::Nobody);
                        }
                    },
                    Some(Mapping::Program(words)) => return self.question(words),
                    None => continue,
                },
            };
            if let Some(account) = self.choose(found) {
                return Ok(Progress::Found(account, origin));
            }
        }
        Ok(Progress::Nobody)
    }

    /// Takes in what a program said; as [`Self::advance`].
    pub fn answered(&mut self, answer: &[u8]) -> Result<Progress, Fault> {
        let asked: Vec<Identity<'_>> = self.identities.iter().map(|fields| Identity(fields)).collect();
        let found = command::output(answer, &asked)
            .map_err(|error| Fault::new(FaultCode::ServerBusy, OP).side(Side::Us).detail(error.to_string()))?;
        match self.choose(accounts(found)) {
            Some(account) => Ok(Progress::Found(account, Origin::Computed)),
            None => self.advance(),
        }
    }

    fn choose(&self, found: Vec<String>) -> Option<String> {
        match &self.wanted {
            Some(name) => found.into_iter().find(|account| account == name),
            None => found.into_iter().next(),
        }
    }

    fn in_gridmap(&self, map: &GridMap) -> Vec<String> {
        self.names.iter().flat_map(|name| map.accounts(name)).cloned().collect()
    }

    fn by_rules(&self, rules: &whimbrel_trust::mapping::RegexMapper) -> Result<Vec<String>, String> {
        let identities: Vec<Identity<'_>> = self.identities.iter().map(|fields| Identity(fields)).collect();
        if self.wanted.is_some() {
            return rules.all(&identities).map(accounts).map_err(|fault| fault.to_string());
        }
        for identity in identities {
            if let Some(account) = rules.first(identity).map_err(|fault| fault.to_string())? {
                return Ok(vec![account]);
            }
        }
        Ok(Vec::new())
    }

    fn question(&self, words: &[String]) -> Result<Progress, Fault> {
        let identities: Vec<Identity<'_>> = self.identities.iter().map(|fields| Identity(fields)).collect();
        let question = command::input(&identities)
            .map_err(|error| Fault::new(FaultCode::Internal, OP).side(Side::Us).detail(error.to_string()))?;
        let all = self.wanted.as_ref().map(|_| "-a");
        let more = ["-c", CONNECTOR, "-s", GATEWAY].into_iter().chain(all).map(str::to_owned);
        Ok(Progress::Ask { words: words.iter().cloned().chain(more).collect(), question })
    }
}

fn accounts(mapped: Vec<Mapped>) -> Vec<String> {
    mapped.into_iter().map(|one| one.account).collect()
}

/// What a grid-mapfile may say of a claim: the subject, then the attributes of organizations, which it knows by `/vo/...`; a principal.
fn names(claim: &Claim) -> Vec<String> {
    match claim {
        // An attribute that reads like a subject would be one to the grid-mapfile.
        Claim::Certificate { subject, vo } => {
            let attributes = vo.iter().filter(|attribute| is_attribute(attribute));
            std::iter::once(subject).chain(attributes).take(MOST_IDENTITIES).cloned().collect()
        }
        Claim::Token { subject, .. } => vec![subject.clone()],
        Claim::Principal(principal) => vec![principal.clone()],
    }
}

/// `/vo/group/Role=...`: its first part is the organization's name and no `TYPE=VALUE`.
fn is_attribute(name: &str) -> bool {
    name.strip_prefix('/').and_then(|rest| rest.split('/').next()).is_some_and(|vo| !vo.is_empty() && !vo.contains('='))
}

/// The identities that rules and programs see: one for each attribute or group, and every field that rules may ask for, if need be empty,
/// since a field that is missing is a fault.
fn identities(claim: &Claim) -> Vec<Fields> {
    let one = |fields: &[(&str, &str)]| -> Fields {
        fields.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect()
    };
    match claim {
        Claim::Certificate { subject, vo } => each(vo, |vo| {
            let id = [subject.as_str(), vo].join(" ");
            let (id, kind) = (id.trim_end(), "certificate");
            one(&[("id", id), ("type", kind), ("username", subject), ("subject", subject), ("vo", vo)])
        }),
        Claim::Principal(principal) => {
            let (name, realm) = principal.rsplit_once('@').unwrap_or((principal, ""));
            let (id, kind) = (principal.as_str(), "principal");
            vec![one(&[("id", id), ("type", kind), ("username", id), ("name", name), ("realm", realm)])]
        }
        Claim::Token { issuer, subject, groups, claims } => each(groups, |group| {
            let id = [issuer.as_str(), subject, group].join(" ");
            let mut fields =
                one(&[("id", id.trim_end()), ("type", "token"), ("iss", issuer), ("sub", subject), ("group", group)]);
            // What an issuer writes must not pass for a field of ours; `status` would hide the identity (it is Globus').
            let ours = |name: &str| ["id", "type", "iss", "sub", "group", "vo", "subject", "status"].contains(&name);
            fields.extend(claims.iter().filter(|(name, _)| !ours(name)).cloned());
            fields
        }),
    }
}

/// One for each different text, or one for the empty text.
fn each(texts: &[String], make: impl Fn(&str) -> Fields) -> Vec<Fields> {
    let mut seen: Vec<&str> = Vec::new();
    for text in texts {
        if !seen.contains(&text.as_str()) && seen.len() < MOST_IDENTITIES {
            seen.push(text);
        }
    }
    if seen.is_empty() {
        seen.push("");
    }
    seen.into_iter().map(make).collect()
}

#[cfg(test)]
#[path = "claims_tests.rs"]
mod tests;
