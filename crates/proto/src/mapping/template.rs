//! Texts with names in braces.

use super::{Identity, MapReason};

/// A checked text with places for fields and groups.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Template {
    parts: Vec<Part>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    Text(String),
    Field(String),
    Group(usize),
}

/// What is wrong with a text with names in braces.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TemplateError {
    /// `{` without `}`.
    #[error("a brace is not closed")]
    Open,
    /// Not the name of a field, nor a number.
    #[error("{{{0}}} names neither a field nor a group")]
    Name(String),
    /// A group that the expression does not have.
    #[error("{{{0}}} is a group that `match` does not have")]
    Group(String),
}

impl Template {
    /// Reads a text; its numbers have to be below `groups`.
    ///
    /// A brace behind an odd number of backslashes stands for itself, and the backslashes stay, as with Globus' reader.
    ///
    /// # Errors
    /// [`TemplateError`]; Globus' reader notices some of these only once somebody is mapped.
    pub fn parse(text: &str, groups: usize) -> Result<Self, TemplateError> {
        let mut parts = Vec::new();
        let mut plain = String::new();
        let mut rest = text;
        let mut escaped = false;
        while let Some(character) = rest.chars().next() {
            rest = &rest[character.len_utf8()..];
            if character != '{' || escaped {
                escaped = character == '\\' && !escaped;
                plain.push(character);
                continue;
            }
            let (name, behind) = rest.split_once('}').ok_or(TemplateError::Open)?;
            if !plain.is_empty() {
                parts.push(Part::Text(std::mem::take(&mut plain)));
            }
            parts.push(part(name, groups)?);
            rest = behind;
        }
        if !plain.is_empty() {
            parts.push(Part::Text(plain));
        }
        Ok(Self { parts })
    }

    /// The text with everything in its place; what is put in is not looked at again.
    ///
    /// # Errors
    /// [`MapReason::Field`], [`MapReason::Group`]
    pub fn fill(&self, identity: Identity<'_>, groups: &[Option<String>]) -> Result<String, MapReason> {
        let mut text = String::new();
        for part in &self.parts {
            text.push_str(match part {
                Part::Text(plain) => plain,
                Part::Field(name) => identity.field(name).ok_or_else(|| MapReason::Field(name.clone()))?,
                Part::Group(number) => {
                    groups.get(*number).and_then(Option::as_deref).ok_or(MapReason::Group(*number))?
                }
            });
        }
        Ok(text)
    }
}

/// Names of fields begin with a letter or `_`; claims of tokens have dots, colons and slashes in theirs.
fn part(name: &str, groups: usize) -> Result<Part, TemplateError> {
    let begins = |name: &str| name.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_');
    let is_name = |c: char| c.is_ascii_alphanumeric() || "_.:/-".contains(c);
    if begins(name) && name.chars().all(is_name) {
        return Ok(Part::Field(name.to_owned()));
    }
    let shown = || name.chars().filter(|c| !c.is_control()).take(40).collect();
    if name.is_empty() || !name.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(TemplateError::Name(shown()));
    }
    let number = name.parse().ok().filter(|&number| number < groups);
    number.map(Part::Group).ok_or_else(|| TemplateError::Group(shown()))
}
