//! How identities become local accounts.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use serde::de::value::MapAccessDeserializer;
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

/// A kind of proof that somebody brings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ProofKind {
    /// A certificate, of a grid or over TLS.
    Certificate,
    /// A bearer token.
    Token,
    /// A ticket of Kerberos.
    Principal,
}

/// A file of mapping documents: `"FILE"`, or a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MappingConfig {
    /// Documents as Globus Connect Server has them, in JSON, or one in TOML (`.toml`).
    pub file: PathBuf,
    /// Whom it is asked about. Default: everybody.
    pub of: Vec<ProofKind>,
}

impl MappingConfig {
    /// Whether it is asked about this kind of proof.
    pub fn is_for(&self, kind: ProofKind) -> bool {
        self.of.is_empty() || self.of.contains(&kind)
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    file: PathBuf,
    #[serde(default)]
    of: Vec<ProofKind>,
}

impl<'de> Deserialize<'de> for MappingConfig {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(FileOrTable)
    }
}

struct FileOrTable;

impl<'de> Visitor<'de> for FileOrTable {
    type Value = MappingConfig;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a file, or a table with file = \"...\"")
    }

    fn visit_str<E>(self, file: &str) -> Result<MappingConfig, E> {
        Ok(MappingConfig { file: file.into(), of: Vec::new() })
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<MappingConfig, A::Error> {
        let Table { file, of } = Table::deserialize(MapAccessDeserializer::new(map))?;
        Ok(MappingConfig { file, of })
    }
}

/// Which accounts logins by certificate, token or Kerberos may lead to.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AccountsConfig {
    /// Least user number. Default: 1000 for accounts that mapping rules and programs name, 1 for those that the administrator wrote down.
    pub least_uid: Option<u32>,
    /// Let logins lead to accounts that have expired or whose shell is no program, too. Default: no.
    pub allow_disabled: bool,
    /// The account of mapping programs when the server is started by root. Default: `nobody`.
    pub program_account: Option<String>,
    /// Seconds that a mapping program has for its answer, 1 to 60. Default: 10.
    pub program_timeout: Option<u64>,
}

impl AccountsConfig {
    /// How long a mapping program may take.
    pub fn program_timeout(&self) -> Duration {
        Duration::from_secs(self.program_timeout.unwrap_or(10).clamp(1, 60))
    }
}

#[cfg(test)]
mod tests {
    use super::super::DtnConfig;
    use super::*;

    #[test]
    fn mappings_are_files_or_tables_in_their_order() {
        let read = |text| DtnConfig::parse(text).map(|config| config.mapping);
        let plain = read("mapping = [\"a.json\", \"b.toml\"]").unwrap();
        assert_eq!(plain.iter().map(|one| one.file.to_str().unwrap()).collect::<Vec<_>>(), ["a.json", "b.toml"]);
        assert!(plain[0].is_for(ProofKind::Token) && plain[0].is_for(ProofKind::Principal));
        let tables = read("[[mapping]]\nfile = \"a\"\nof = [\"token\"]\n[[mapping]]\nfile = \"b\"").unwrap();
        assert!(tables[0].is_for(ProofKind::Token) && !tables[0].is_for(ProofKind::Certificate));
        for (wrong, word) in [
            ("mapping = [1]", "a file, or a table"),
            ("[[mapping]]\nfiel = \"a\"", "fiel"),
            ("[[mapping]]\nfile = \"a\"\nof = [\"tokens\"]", "tokens"),
            ("[accounts]\nleast = 5", "least"),
        ] {
            let fault = read(wrong).unwrap_err();
            assert!(fault.detail.contains(word), "{wrong}: {fault}");
        }
    }

    #[test]
    fn time_for_programs_is_bounded() {
        let limit = |program_timeout| AccountsConfig { program_timeout, ..AccountsConfig::default() }.program_timeout();
        assert_eq!([None, Some(0), Some(u64::MAX)].map(limit), [10, 1, 60].map(Duration::from_secs));
    }
}
