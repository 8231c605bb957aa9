//! What a mapping program reads and writes: two JSON documents.
//!
//! The program is started with `-c CONNECTOR -s GATEWAY`, and `-a` if all accounts are wanted; it reads the first document from
//! its standard input and writes the second.

use serde::{Deserialize, Serialize};

use super::{Identity, Mapped, complaint, is_account};

const INPUT: &str = "identity_mapping_input#1.0.0";
const OUTPUT: &str = "identity_mapping_output#1.0.0";
/// Longest answer of a mapping program, bytes.
pub const MAX_OUTPUT: usize = 256 << 10;
/// Most accounts in an answer.
pub const MAX_RESULTS: usize = 1024;

/// Why an answer is not believed; it maps nobody then.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CommandError {
    /// An identity without an `id` could not be told apart in the answer, nor two with the same.
    #[error("every identity needs an id of its own")]
    Id,
    /// Longer than [`MAX_OUTPUT`], or more than [`MAX_RESULTS`] accounts.
    #[error("the mapping program says too much")]
    TooLong,
    /// Not the document that is expected.
    #[error("the mapping program's answer cannot be read: {0}")]
    Form(String),
    /// An answer about somebody else.
    #[error("the mapping program answers for an identity that was not asked about")]
    Stranger,
    /// Empty, too long, or with characters that no account has.
    #[error("the mapping program names an account that cannot be one")]
    Account,
}

/// Fields of one identity, in their order.
struct Fields<'a>(Identity<'a>);

impl Serialize for Fields<'_> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.0.iter().map(|(name, text)| (name, text)))
    }
}

#[derive(Serialize)]
struct Input<'a> {
    #[serde(rename = "DATA_TYPE")]
    kind: &'static str,
    identities: Vec<Fields<'a>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Output {
    /// Globus' reader does without.
    #[serde(rename = "DATA_TYPE")]
    kind: Option<String>,
    result: Vec<One>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct One {
    id: String,
    output: String,
}

/// The document for the program's standard input; each identity has a field `id`.
///
/// # Errors
/// [`CommandError::Id`]
pub fn input(identities: &[Identity<'_>]) -> Result<Vec<u8>, CommandError> {
    let mut ids: Vec<&str> = identities.iter().filter_map(|identity| identity.field("id")).collect();
    ids.sort_unstable();
    ids.dedup();
    if ids.len() != identities.len() {
        return Err(CommandError::Id);
    }
    let input = Input { kind: INPUT, identities: identities.iter().copied().map(Fields).collect() };
    Ok(serde_json::to_vec(&input).expect("texts can always be written"))
}

/// Reads an answer to [`input`]; nothing at all means that nobody is mapped. [`Mapped::rule`] counts the answer's results.
///
/// Of an answer to a question for one account only the first result counts.
///
/// # Errors
/// [`CommandError`]: one wrong result spoils the answer.
pub fn output(answer: &[u8], asked: &[Identity<'_>]) -> Result<Vec<Mapped>, CommandError> {
    if answer.len() > MAX_OUTPUT {
        return Err(CommandError::TooLong);
    }
    if answer.trim_ascii().is_empty() {
        return Ok(Vec::new());
    }
    let read: Output = serde_json::from_slice(answer).map_err(|error| CommandError::Form(complaint(&error)))?;
    if read.kind.is_some_and(|kind| kind != OUTPUT) {
        return Err(CommandError::Form(format!("its DATA_TYPE is not {OUTPUT}")));
    }
    if read.result.len() > MAX_RESULTS {
        return Err(CommandError::TooLong);
    }
    let mapped = read.result.into_iter().enumerate().map(|(place, one)| {
        let identity = asked.iter().position(|identity| identity.field("id") == Some(&one.id));
        let identity = identity.ok_or(CommandError::Stranger)?;
        if !is_account(&one.output) {
            return Err(CommandError::Account);
        }
        Ok(Mapped { rule: place + 1, identity, account: one.output })
    });
    mapped.collect()
}
