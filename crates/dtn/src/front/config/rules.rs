//! `[[chunking]]`: the administrator's rules for files in chunks.

use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, Error, Visitor};
use whimbrel_engine::units::ByteCount;
use whimbrel_proto::leaf;
use whimbrel_proto::policy::{LEAST_CHUNK, MAX_RULES, Policy, Rule};
use whimbrel_proto::server::PolicyRule;

/// One rule: for whom and where, and what; what is left out is the client's choice.
///
/// It binds the clients that ask for it (`whimbrel`), unless their users fix the same by hand.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ChunkingRule {
    /// Directory, or file, as clients see it; the rule is for all that is below. Default: `/`.
    #[serde(deserialize_with = "path")]
    pub path: Option<String>,
    /// Login name. Default: everybody.
    pub user: Option<String>,
    /// What the client calls its task (`whimbrel cp --label`). Default: whatever it is.
    pub label: Option<String>,
    /// Size of a chunk as in `"256M"`, or `"off"`: files are moved whole.
    #[serde(deserialize_with = "chunk")]
    pub chunk: Option<u64>,
    /// Size of a leaf at the most, a power of two from `"4KiB"` to `"1GiB"`.
    #[serde(deserialize_with = "leaf_size")]
    pub leaf: Option<u64>,
    /// Movers of a copy at the most.
    #[serde(deserialize_with = "movers")]
    pub movers: Option<u64>,
}

impl ChunkingRule {
    /// The same for the control connection.
    pub fn policy(&self) -> PolicyRule {
        PolicyRule {
            user: self.user.clone(),
            label: self.label.clone().map(String::into_bytes),
            rule: Rule {
                path: self.path.clone().unwrap_or_else(|| "/".to_owned()).into_bytes(),
                policy: Policy { chunk: self.chunk, leaf: self.leaf, movers: self.movers },
            },
        }
    }
}

/// All rules.
pub(super) fn bounded<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<ChunkingRule>, D::Error> {
    let rules = Vec::<ChunkingRule>::deserialize(deserializer)?;
    match rules.len() {
        0..=MAX_RULES => Ok(rules),
        many => Err(D::Error::custom(format!("there are {many} [[chunking]] rules: keep the first {MAX_RULES}"))),
    }
}

fn path<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    let path = String::deserialize(deserializer)?;
    let rule = Rule { path: path.clone().into_bytes(), policy: Policy::default() };
    let cure = "write the path as clients see it, from /, without line breaks: path = \"/archive\"";
    if rule.is_valid() { Ok(Some(path)) } else { Err(D::Error::custom(cure)) }
}

fn chunk<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    let cure = "write a size of at least 64 KiB, or off: chunk = \"256M\" or chunk = \"off\"";
    match Size::deserialize(deserializer)? {
        Size::Off => Ok(Some(0)),
        Size::Bytes(bytes) if bytes >= LEAST_CHUNK => Ok(Some(bytes)),
        Size::Bytes(_) | Size::Unreadable => Err(D::Error::custom(cure)),
    }
}

fn leaf_size<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    let cure = "write a power of two from 4 KiB to 1 GiB: leaf = \"16MiB\"";
    match Size::deserialize(deserializer)? {
        Size::Bytes(bytes) if leaf::is_size(bytes) => Ok(Some(bytes)),
        _ => Err(D::Error::custom(cure)),
    }
}

fn movers<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    match i64::deserialize(deserializer)? {
        movers @ 1.. => Ok(Some(movers as u64)),
        _ => Err(D::Error::custom("write a number from 1: movers = 4")),
    }
}

/// A number of bytes, or a text that means one.
pub(super) enum Size {
    /// So many.
    Bytes(u64),
    /// The word `off`.
    Off,
    /// Something else.
    Unreadable,
}

impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Read;
        impl Visitor<'_> for Read {
            type Value = Size;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a size, as in \"256M\" or 268435456")
            }

            fn visit_i64<E>(self, bytes: i64) -> Result<Size, E> {
                Ok(u64::try_from(bytes).map_or(Size::Unreadable, Size::Bytes))
            }

            fn visit_str<E>(self, text: &str) -> Result<Size, E> {
                Ok(match text {
                    "off" => Size::Off,
                    size => size.parse().map_or(Size::Unreadable, |ByteCount(bytes)| Size::Bytes(bytes)),
                })
            }
        }
        deserializer.deserialize_any(Read)
    }
}

#[cfg(test)]
mod tests {
    use super::super::DtnConfig;
    use super::*;

    #[test]
    fn rules_are_read_in_their_order() {
        let text = r#"
            [[chunking]]
            path = "/archive"
            chunk = "off"
            [[chunking]]
            user = "alice"
            label = "night run"
            chunk = "256MiB"
            leaf = 4194304
            movers = 4
            [[chunking]]
        "#;
        let rules: Vec<_> = DtnConfig::parse(text).unwrap().chunking.iter().map(ChunkingRule::policy).collect();
        let policy = |chunk, leaf, movers| Policy { chunk, leaf, movers };
        let told: Vec<_> = rules.iter().map(|rule| (&rule.rule.path[..], rule.rule.policy)).collect();
        assert_eq!(
            told,
            [
                (&b"/archive"[..], policy(Some(0), None, None)),
                (b"/", policy(Some(256 << 20), Some(4 << 20), Some(4))),
                (b"/", Policy::default()),
            ]
        );
        assert!(rules[1].is_for(Some("alice"), Some(b"night run")) && !rules[1].is_for(Some("alice"), None));
        assert!(rules.iter().all(|rule| rule.rule.is_valid()));
    }

    #[test]
    fn what_is_wrong_is_told_with_file_line_and_cure() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("dtn.toml");
        for (key, cure) in [
            ("path = \"archive\"", "from /"),
            ("path = \"/a\\nb\"", "without line breaks"),
            ("chunk = \"large\"", "chunk = \"256M\" or chunk = \"off\""),
            ("chunk = 1", "at least 64 KiB"),
            ("chunk = -1", "at least 64 KiB"),
            ("chunk = true", "a size"),
            ("leaf = \"5M\"", "a power of two"),
            ("leaf = \"off\"", "a power of two"),
            ("movers = 0", "movers = 4"),
            ("mover = 4", "unknown field"),
        ] {
            std::fs::write(&file, format!("read_only = true\n\n[[chunking]]\n{key}\n")).unwrap();
            let fault = DtnConfig::read(&file).unwrap_err();
            let text = fault.to_string();
            for part in [file.to_str().unwrap(), "line 4", cure] {
                assert!(text.contains(part), "{key}: no {part} in {text}");
            }
        }
        let many = "[[chunking]]\n".repeat(MAX_RULES + 1);
        assert!(DtnConfig::parse(&many).unwrap_err().to_string().contains("keep the first 1024"));
    }
}
