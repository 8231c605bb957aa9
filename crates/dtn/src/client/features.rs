//! What a server says it can do (FEAT, RFC 2389 §3).

/// The features that decide how the client talks.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Features {
    /// Whether FEAT was answered at all; if not, everything is tried.
    pub known: bool,
    lines: Vec<String>,
}

impl Features {
    /// Reads the middle lines of a FEAT reply.
    pub fn parse(lines: &[Vec<u8>]) -> Self {
        let lines = lines.iter().map(|line| String::from_utf8_lossy(line).trim().to_owned()).collect();
        Self { known: true, lines }
    }

    /// Whether a line starts with `label`, as a whole word; letter case does not matter.
    pub fn has(&self, label: &str) -> bool {
        self.argument(label).is_some()
    }

    /// The rest of the line that starts with `label`.
    pub fn argument(&self, label: &str) -> Option<&str> {
        self.lines.iter().find_map(|line| {
            let (head, rest) = line.split_at_checked(label.len())?;
            let whole_word = rest.is_empty() || rest.starts_with(' ');
            (whole_word && head.eq_ignore_ascii_case(label)).then(|| rest.trim_start())
        })
    }

    /// Every line, for people.
    pub fn lines(&self) -> &[String] {
        &self.lines
    }

    /// Whether MODE E may work: stated by PARALLEL, or unknown.
    pub fn extended_mode(&self) -> bool {
        !self.known || self.has("PARALLEL")
    }

    /// Checksum algorithms in upper case (`CKSM MD5:10;ADLER32:10;`, or bare names).
    pub fn checksums(&self) -> Vec<String> {
        let list = self.argument("CKSM").unwrap_or("");
        let names = list.split([';', ',']).map(|item| item.split(':').next().unwrap_or("").trim());
        names.filter(|name| !name.is_empty()).map(str::to_ascii_uppercase).collect()
    }
}

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

/// The algorithm both ends offer: the wanted one, or the one that costs least; `None` when they share none.
pub fn common_checksum(source: &[String], destination: &[String], wanted: Option<&str>) -> Option<SharedChecksum> {
    let spelled = |list: &[String], name: &str| list.iter().find(|item| plain(item) == plain(name)).cloned();
    let both =
        |name: &str| Some(SharedChecksum { source: spelled(source, name)?, destination: spelled(destination, name)? });
    match wanted {
        Some(name) => both(name),
        None => PREFERRED.iter().find_map(|name| both(name)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn features(lines: &[&str]) -> Features {
        Features::parse(&lines.iter().map(|line| line.as_bytes().to_vec()).collect::<Vec<_>>())
    }

    #[test]
    fn labels_match_as_whole_words_in_any_case() {
        let features = features(&[" mlst type*;", " MLSTX", " PARALLEL"]);
        assert_eq!(features.argument("MLST"), Some("type*;"));
        assert!(features.has("parallel") && !features.has("MLS"));
    }

    #[test]
    fn the_fastest_shared_checksum_is_chosen() {
        let stock = features(&[" CKSM MD5:10;ADLER32:10;SHA1:10;SHA256:11;SHA512:12;"]).checksums();
        let own = features(&[" CKSM XXH3_128:5;MD5:10;"]).checksums();
        let local = vec!["XXH3-128".to_owned(), "MD5".to_owned()];
        let name = |a: &[String], b: &[String], wanted| common_checksum(a, b, wanted).map(|shared| shared.display());
        assert_eq!(name(&stock, &own, None).as_deref(), Some("md5"));
        assert_eq!(name(&local, &own, None).as_deref(), Some("xxh3128"));
        assert_eq!(common_checksum(&local, &own, None).unwrap().destination, "XXH3_128");
        assert_eq!(name(&stock, &stock, Some("sha-256")).as_deref(), Some("sha256"));
        assert_eq!(name(&own, &[], None), None);
    }
}
