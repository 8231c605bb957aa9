//! Rules that map identities to local accounts, in the documents of Globus Connect Server.
//!
//! A document holds rules of three texts: from the fields of an identity `source` is put together (`{username}`), `match` has to fit
//! all of it, and `output` names the account, from fields and from the groups of the match (`{0}`). The first rule that fits
//! counts; all of them together give every account that somebody may use. TOML files hold the same names and values.
//!
//! What differs from Globus' own reader is said where it does; each time ours is the stricter. Matching itself is somebody
//! else's: a [`Matcher`] made from the regular expression that [`Expression`] translates to.

pub mod command;
mod expression;
mod template;
#[cfg(test)]
mod tests;

use serde::{Deserialize, Serialize};

pub use self::expression::{Expression, ExpressionError};
pub use self::template::{Template, TemplateError};

/// Longest document, bytes.
pub const MAX_DOCUMENT: usize = 1 << 20;
/// Most rules of a document.
pub const MAX_RULES: usize = 4096;
/// Longest text of a rule, bytes.
pub const MAX_TEXT: usize = 1024;
/// Longest source once put together, bytes.
pub const MAX_SOURCE: usize = 8 << 10;
/// Longest name of an account, bytes.
pub const MAX_ACCOUNT: usize = 256;
/// Most words of a command.
const MAX_WORDS: usize = 64;

/// A document as it is written, not checked yet.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "DATA_TYPE", deny_unknown_fields)]
pub enum Document {
    /// Rules.
    #[serde(rename = "expression_identity_mapping#1.0.0")]
    Expressions {
        /// In the order in which they are tried.
        mappings: Vec<RawRule>,
    },
    /// A program that maps: [`command`].
    #[serde(rename = "external_identity_mapping#1.0.0")]
    Command {
        /// Its path and arguments.
        command: Vec<Word>,
    },
}

/// A word of a command line: numbers may stand without quotes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Word {
    /// As it is.
    Text(String),
    /// A whole number.
    Whole(i64),
    /// A broken one.
    Broken(f64),
}

impl Word {
    /// As an argument.
    pub fn argument(&self) -> String {
        match self {
            Self::Text(text) => text.clone(),
            Self::Whole(number) => number.to_string(),
            Self::Broken(number) => format!("{number:?}"),
        }
    }
}

/// A rule as it is written.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawRule {
    /// What is matched: text with fields of the identity in braces.
    pub source: String,
    /// What has to fit all of it.
    #[serde(rename = "match")]
    pub pattern: String,
    /// The account: text with fields and groups in braces.
    pub output: String,
    /// Whether capitals and small letters are the same.
    #[serde(default, skip_serializing_if = "is_false")]
    pub ignore_case: bool,
    /// Whether `match` is no expression but the text itself.
    #[serde(default, skip_serializing_if = "is_false")]
    pub literal: bool,
}

fn is_false(flag: &bool) -> bool {
    !flag
}

/// What is wrong with a document, and with which rule.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MappingError {
    /// Not a document of a known kind, or too large a one.
    #[error("the mapping document cannot be read: {0}")]
    Document(String),
    /// A rule that cannot be used.
    #[error("mapping rule {rule} ({shown}): {reason}")]
    Rule {
        /// Its number, from 1.
        rule: usize,
        /// What it matches.
        shown: String,
        /// What is wrong with it.
        reason: String,
    },
}

/// Why an identity could not be mapped; that no rule fits is no fault.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("mapping rule {rule}: {reason}")]
pub struct MapFault {
    /// The rule at fault, from 1.
    pub rule: usize,
    /// What is wrong with it for this identity.
    pub reason: MapReason,
}

/// What is wrong with a rule for an identity.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MapReason {
    /// A field that the identity does not have: a fault, not a rule that does not fit, since a denial may hang on it.
    #[error("the identity has no field {0}")]
    Field(String),
    /// A group in a branch that was not taken.
    #[error("group {{{0}}} matched nothing")]
    Group(usize),
    /// Fields that are too long together.
    #[error("its source is longer than 8192 bytes for this identity")]
    Source,
    /// An output that cannot name an account: empty, too long, or with control characters, `/` or `:`.
    #[error("its output is no name of an account")]
    Account,
}

/// Matches one expression against whole texts.
pub trait Matcher {
    /// The groups if the expression fits all of `text`, in their order; a group in a branch that was not taken is `None`.
    fn groups(&self, text: &str) -> Option<Vec<Option<String>>>;
}

/// Fields of somebody's identity, by name.
#[derive(Debug, Clone, Copy)]
pub struct Identity<'a>(pub &'a [(String, String)]);

impl<'a> Identity<'a> {
    /// The first field of this name.
    pub fn field(self, name: &str) -> Option<&'a str> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, text)| text.as_str())
    }

    /// Whether Globus says that the identity is in use; others say nothing of the kind.
    fn is_used(self) -> bool {
        self.field("status").is_none_or(|status| matches!(status, "used" | "private"))
    }
}

/// An account that a rule gave.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mapped {
    /// The rule, from 1.
    pub rule: usize,
    /// The identity's place among those that were given.
    pub identity: usize,
    /// The account.
    pub account: String,
}

/// Checked rules with their matchers.
#[derive(Debug, Clone)]
pub struct Mapper<M> {
    rules: Vec<Rule<M>>,
}

#[derive(Debug, Clone)]
struct Rule<M> {
    source: Template,
    matcher: M,
    output: Template,
}

/// Reads a JSON file: one document, or a list of them.
///
/// # Errors
/// [`MappingError::Document`]
pub fn documents(json: &[u8]) -> Result<Vec<Document>, MappingError> {
    if json.len() > MAX_DOCUMENT {
        return Err(MappingError::Document("it is longer than a mebibyte".into()));
    }
    let several = json.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'[');
    let read = if several { serde_json::from_slice(json) } else { serde_json::from_slice(json).map(|one| vec![one]) };
    read.map_err(|error| MappingError::Document(complaint(&error)))
}

/// What the reader of JSON complains of, short and on one line: it may cite what it reads.
fn complaint(error: &serde_json::Error) -> String {
    error.to_string().chars().filter(|character| !character.is_control()).take(200).collect()
}

/// The path and arguments of a mapping program.
///
/// # Errors
/// [`MappingError::Document`]: no words, too many or too long ones, a path that is not absolute, or a NUL.
pub fn words(command: &[Word]) -> Result<Vec<String>, MappingError> {
    let words: Vec<String> = command.iter().map(Word::argument).collect();
    let fits = |word: &String| word.len() <= MAX_TEXT && !word.contains('\0');
    if words.len() <= MAX_WORDS && words.iter().all(fits) && words.first().is_some_and(|path| path.starts_with('/')) {
        return Ok(words);
    }
    Err(MappingError::Document("a mapping command is an absolute path and at most 63 arguments".into()))
}

/// The account of a name without rules: the part before `@`, where the rest is the one domain that is allowed.
pub fn in_domain<'a>(name: &'a str, domain: &str) -> Option<&'a str> {
    let (account, theirs) = name.rsplit_once('@')?;
    (theirs.eq_ignore_ascii_case(domain) && is_account(account) && !account.contains('@')).then_some(account)
}

impl<M: Matcher> Mapper<M> {
    /// Checks rules; `compile` makes a matcher of an expression or says why it cannot.
    ///
    /// # Errors
    /// [`MappingError`], which names the rule.
    pub fn new(
        rules: &[RawRule],
        mut compile: impl FnMut(&Expression) -> Result<M, String>,
    ) -> Result<Self, MappingError> {
        if rules.len() > MAX_RULES {
            return Err(MappingError::Document(format!("more than {MAX_RULES} rules")));
        }
        let checked = rules.iter().enumerate().map(|(place, raw)| {
            let shown = raw.pattern.chars().filter(|c| !c.is_control()).take(80).collect();
            Rule::new(raw, &mut compile).map_err(|reason| MappingError::Rule { rule: place + 1, shown, reason })
        });
        Ok(Self { rules: checked.collect::<Result<_, _>>()? })
    }

    /// The account by the first rule that fits.
    ///
    /// # Errors
    /// [`MapFault`]: a rule before that asks for a field that the identity lacks.
    pub fn first(&self, identity: Identity<'_>) -> Result<Option<String>, MapFault> {
        for (place, rule) in self.rules.iter().enumerate() {
            if let Some(account) = rule.apply(identity).map_err(|reason| MapFault { rule: place + 1, reason })? {
                return Ok(Some(account));
            }
        }
        Ok(None)
    }

    /// Every account that any rule gives to any of the identities: rule by rule, and in each in the order of the identities.
    ///
    /// # Errors
    /// [`MapFault`]
    pub fn all(&self, identities: &[Identity<'_>]) -> Result<Vec<Mapped>, MapFault> {
        let mut found = Vec::new();
        for (place, rule) in self.rules.iter().enumerate() {
            for (at, identity) in identities.iter().enumerate().filter(|(_, identity)| identity.is_used()) {
                let account = rule.apply(*identity).map_err(|reason| MapFault { rule: place + 1, reason })?;
                found.extend(account.map(|account| Mapped { rule: place + 1, identity: at, account }));
            }
        }
        Ok(found)
    }
}

impl<M: Matcher> Rule<M> {
    fn new(raw: &RawRule, compile: &mut impl FnMut(&Expression) -> Result<M, String>) -> Result<Self, String> {
        let texts = [("source", &raw.source), ("match", &raw.pattern), ("output", &raw.output)];
        if let Some((name, _)) = texts.iter().find(|(_, text)| text.len() > MAX_TEXT) {
            return Err(format!("{name} is longer than {MAX_TEXT} bytes"));
        }
        let made = if raw.literal { Ok(Expression::literal(&raw.pattern)) } else { Expression::parse(&raw.pattern) };
        let expression = made.map_err(|error| format!("match: {error}"))?.ignoring_case(raw.ignore_case);
        let source = Template::parse(&raw.source, 0).map_err(|error| format!("source: {error}"))?;
        let output = Template::parse(&raw.output, expression.groups()).map_err(|error| format!("output: {error}"))?;
        let matcher = compile(&expression).map_err(|error| format!("match: {error}"))?;
        Ok(Self { source, matcher, output })
    }

    fn apply(&self, identity: Identity<'_>) -> Result<Option<String>, MapReason> {
        let source = self.source.fill(identity, &[])?;
        if source.len() > MAX_SOURCE {
            return Err(MapReason::Source);
        }
        let Some(groups) = self.matcher.groups(&source) else { return Ok(None) };
        let account = self.output.fill(identity, &groups)?;
        if is_account(&account) { Ok(Some(account)) } else { Err(MapReason::Account) }
    }
}

/// Whether a text can be the name of an account: what would end a field or line of a file of accounts cannot.
fn is_account(name: &str) -> bool {
    let wrong = |character: char| character.is_control() || matches!(character, '/' | ':');
    (1..=MAX_ACCOUNT).contains(&name.len()) && !name.chars().any(wrong)
}
