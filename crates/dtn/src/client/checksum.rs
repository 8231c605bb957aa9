//! Which checksum proves a copy.

use super::expect::{self, ExpectError};

/// Algorithms that prove a copy, fastest first; the last ones are for peers that have nothing better.
const PREFERRED: &[&str] =
    &["XXH3", "XXH3128", "CRC32C", "BLAKE3", "MD5", "SHA1", "SHA256", "SHA512", "ADLER32", "CRC32"];

/// One algorithm in the spellings of both ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SharedChecksum {
    /// The source's spelling.
    pub source: String,
    /// The destination's spelling.
    pub destination: String,
}

impl SharedChecksum {
    /// The name for people and events: lower case without dashes.
    pub fn display(&self) -> String {
        plain(&self.source).to_ascii_lowercase()
    }
}

fn plain(name: &str) -> String {
    name.replace(['-', '_'], "").to_ascii_uppercase()
}

/// Takes the name of an algorithm, in any spelling, that an end may have: one of ours, or one that servers of other kinds have besides.
///
/// # Errors
/// No end has it; those that there are.
pub fn known(name: &str) -> Result<String, ExpectError> {
    let elsewhere = PREFERRED.iter().any(|known| plain(known) == plain(name));
    let found = if elsewhere { Ok(()) } else { expect::algorithm(name).map(drop) };
    found.map(|()| name.to_owned())
}

/// The algorithm both ends offer: the wanted one, or the one that costs least; `None` when they share none.
pub fn common_checksum(source: &[String], destination: &[String], wanted: Option<&str>) -> Option<SharedChecksum> {
    let spelled = |list: &[String], name: &str| list.iter().find(|item| plain(item) == plain(name)).cloned();
    let both =
        |name: &str| Some(SharedChecksum { source: spelled(source, name)?, destination: spelled(destination, name)? });
    match wanted {
        // People say xxh3; servers name its length, too.
        Some(name) => both(name).or_else(|| if plain(name) == "XXH3" { both("XXH3128") } else { None }),
        None => PREFERRED.iter().find_map(|name| both(name)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn names_that_no_end_has_are_told_with_those_that_there_are() {
        for name in ["md5", "SHA-256", "sha_512", "crc32", "xxh3", "xxh3-128", "adler32"] {
            assert_eq!(known(name).as_deref(), Ok(name));
        }
        let refused = known("sha265").unwrap_err().to_string();
        assert!(refused.contains("sha265") && refused.contains("sha256, "), "{refused}");
    }

    #[test]
    fn the_fastest_shared_checksum_is_chosen() {
        let stock = names(&["MD5", "ADLER32", "SHA1", "SHA256", "SHA512"]);
        let own = names(&["XXH3_128", "MD5"]);
        let local = names(&["XXH3-128", "MD5"]);
        let name = |a: &[String], b: &[String], wanted| common_checksum(a, b, wanted).map(|shared| shared.display());
        assert_eq!(name(&stock, &own, None).as_deref(), Some("md5"));
        assert_eq!(name(&local, &own, None).as_deref(), Some("xxh3128"));
        assert_eq!(common_checksum(&local, &own, None).unwrap().destination, "XXH3_128");
        assert_eq!(name(&stock, &stock, Some("sha-256")).as_deref(), Some("sha256"));
        assert_eq!(name(&own, &[], None), None);
        assert_eq!(name(&local, &own, Some("xxh3")).as_deref(), Some("xxh3128"));
        assert_eq!(name(&stock, &own, Some("xxh3")), None);
    }
}
