//! Mapping rules with the matcher that evaluates them: the crate `regex`, whose time is linear in the text.

use regex::{Regex, RegexBuilder};
use whimbrel_engine::fault::FaultCode;
use whimbrel_proto::mapping::{Expression, Mapper, Matcher, RawRule};

use crate::TrustFault;

/// Most memory that one expression may take once it is compiled, bytes.
const MOST_COMPILED: usize = 1 << 20;

/// A compiled expression.
#[derive(Debug, Clone)]
pub struct RegexMatcher(Regex);

impl RegexMatcher {
    /// Compiles an expression; the reason if it takes too much memory.
    fn new(expression: &Expression) -> Result<Self, String> {
        let mut builder = RegexBuilder::new(expression.regex());
        builder.case_insensitive(expression.ignores_case()).size_limit(MOST_COMPILED).dfa_size_limit(MOST_COMPILED);
        builder.build().map(Self).map_err(|_| "it takes too much memory".to_owned())
    }
}

impl Matcher for RegexMatcher {
    fn groups(&self, text: &str) -> Option<Vec<Option<String>>> {
        let found = self.0.captures(text)?;
        Some(found.iter().skip(1).map(|group| group.map(|text| text.as_str().to_owned())).collect())
    }
}

/// Rules that can be asked.
pub type RegexMapper = Mapper<RegexMatcher>;

/// Checks and compiles rules.
///
/// # Errors
/// `InvalidArgument`, naming the rule.
pub fn mapper(rules: &[RawRule]) -> Result<RegexMapper, TrustFault> {
    Mapper::new(rules, RegexMatcher::new)
        .map_err(|error| TrustFault::new(FaultCode::InvalidArgument, error.to_string()))
}

#[cfg(test)]
#[path = "mapping_tests.rs"]
mod tests;
