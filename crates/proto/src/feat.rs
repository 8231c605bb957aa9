//! FEAT and SITE HELP: what a server can do (RFC 2389 §3).

use crate::reply::Reply;

/// One checksum of the CKSM line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChecksumFeature {
    /// Name as sent.
    pub name: String,
    /// Lower is preferred; 255 if the server does not say.
    pub preference: u32,
}

/// One fact of the MLST line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FactFeature {
    /// Name as sent.
    pub name: String,
    /// Sent without being asked for (marked `*`).
    pub default: bool,
}

/// What a server says it can do.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Features {
    lines: Vec<String>,
    known: bool,
}

impl Features {
    /// Feature lines to send, in this order, without leading spaces.
    pub fn from_lines<T: Into<String>>(lines: impl IntoIterator<Item = T>) -> Self {
        Self { lines: lines.into_iter().map(Into::into).collect(), known: true }
    }

    /// Reads a FEAT reply; 500 and 502 tell that there are no extensions (RFC 2389 §3), any other refusal leaves everything
    /// unknown ([`Self::is_known`]).
    pub fn parse(reply: &Reply) -> Self {
        if !reply.is_success() {
            return Self { known: matches!(reply.code, 500 | 502), ..Self::default() };
        }
        let line = |l: &Vec<u8>| String::from_utf8_lossy(l).trim().to_owned();
        let lines = reply.middle_lines().iter().map(line).filter(|l| !l.is_empty()).collect();
        Self { lines, known: true }
    }

    /// False if FEAT failed for another reason than that there is none: then a missing label means "try it", not "no".
    pub fn is_known(&self) -> bool {
        self.known
    }

    /// All lines.
    pub fn lines(&self) -> &[String] {
        &self.lines
    }

    /// True if a line starts with these words, letter case ignored: `MLST`, `REST STREAM`, `PASV AllowDelayed`.
    pub fn has(&self, label: &str) -> bool {
        self.params(label).is_some()
    }

    /// The rest of the first line that starts with these words.
    pub fn params(&self, label: &str) -> Option<&str> {
        self.lines.iter().find_map(|line| {
            let (head, rest) = line.split_at_checked(label.len())?;
            let ends = rest.is_empty() || rest.starts_with([' ', ';', '=']);
            (ends && head.eq_ignore_ascii_case(label)).then(|| rest.trim_start_matches([' ', ';', '=']))
        })
    }

    /// Checksums of the `CKSM NAME:n;…` line, most preferred first; the order of the line breaks ties. Commas and bare names, as some
    /// servers write them, are tolerated.
    pub fn checksums(&self) -> Vec<ChecksumFeature> {
        let mut list: Vec<_> = items(self.params("CKSM").unwrap_or(""))
            .flat_map(|i| i.split(','))
            .filter(|i| !i.is_empty())
            .map(checksum)
            .collect();
        list.sort_by_key(|c| c.preference);
        list
    }

    /// Algorithms of the `LEAVES NAME,...` line in its order (our own); none if digests do not come with replies.
    pub fn leaf_algorithms(&self) -> impl Iterator<Item = &str> {
        self.params("LEAVES").unwrap_or("").split(',').map(str::trim).filter(|name| !name.is_empty())
    }

    /// Facts of the MLST line (RFC 3659 §7.8).
    pub fn facts(&self) -> Vec<FactFeature> {
        let fact =
            |item: &str| FactFeature { name: item.trim_end_matches('*').to_owned(), default: item.ends_with('*') };
        items(self.params("MLST").unwrap_or("")).map(fact).collect()
    }

    /// The reply to FEAT.
    pub fn to_reply(&self) -> Reply {
        Reply::multi(211, "Extensions supported", self.lines.iter().map(|l| l.clone().into_bytes()), "End.")
    }
}

fn items(text: &str) -> impl Iterator<Item = &str> {
    text.split(';').map(str::trim).filter(|item| !item.is_empty())
}

fn checksum(item: &str) -> ChecksumFeature {
    let (name, preference) = item.split_once(':').unwrap_or((item, ""));
    ChecksumFeature { name: name.trim().to_owned(), preference: preference.trim().parse().unwrap_or(255) }
}

/// The `CKSM` line for these names and preferences.
pub fn cksm_line<'a>(list: impl IntoIterator<Item = (&'a str, u32)>) -> String {
    list.into_iter().fold("CKSM ".to_owned(), |line, (name, preference)| line + &format!("{name}:{preference};"))
}

/// The `MLST` line for these facts and whether they are in the present set.
pub fn mlst_line<'a>(list: impl IntoIterator<Item = (&'a str, bool)>) -> String {
    list.into_iter().fold("MLST ".to_owned(), |line, (name, set)| line + name + if set { "*;" } else { ";" })
}

/// Words of a SITE HELP reply.
///
/// The reference client looks for subcommands as substrings of the whole text; whole words are safer (`SYMLINK` is in `SYMLINKTO`).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SiteHelp {
    words: Vec<String>,
}

impl SiteHelp {
    /// Reads the reply to SITE HELP or HELP SITE.
    pub fn parse(reply: &Reply) -> Self {
        let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let text = reply.display_text().to_ascii_uppercase();
        let words = text.split(|c| !is_word(c)).filter(|w| !w.is_empty()).map(str::to_owned).collect();
        Self { words }
    }

    /// True if the word stands in the text, letter case ignored.
    pub fn has(&self, word: &str) -> bool {
        self.words.iter().any(|w| w.eq_ignore_ascii_case(word))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reply::ReplyParser;

    const REAL: &[u8] = b"211-Extensions supported\r\n CKSM MD5:10;ADLER32:10;SHA1:10;SHA256:11;SHA512:12;\r\n DSI file-13.24\r\n PARALLEL\r\n\
        \x20MLST Type*;Size*;Charset;UNIX.mode*;X.count;\r\n REST STREAM\r\n PASV AllowDelayed;\r\n211 End.\r\n";

    fn reply(bytes: &[u8]) -> Reply {
        let mut parser = ReplyParser::default();
        parser.feed(bytes);
        parser.next_reply().unwrap().unwrap()
    }

    // RFC 2389 §3.2: "feature-label = 1*VCHAR ... case insensitive".
    #[test]
    fn labels_are_whole_words_in_any_case() {
        let features = Features::parse(&reply(REAL));
        assert!(features.is_known());
        for label in ["parallel", "REST STREAM", "REST", "PASV AllowDelayed", "mlst", "DSI"] {
            assert!(features.has(label), "{label}");
        }
        for label in ["PARA", "MLS", "STREAM", "GETPUT", ""] {
            assert!(!features.has(label), "{label}");
        }
        assert_eq!(features.params("DSI"), Some("file-13.24"));
    }

    #[test]
    fn checksums_come_most_preferred_first() {
        let features = Features::parse(&reply(b"211-x\r\n CKSM SHA512:12;MD5:10;CRC32C;ADLER32:10;\r\n211 End\r\n"));
        let names: Vec<_> = features.checksums().into_iter().map(|c| c.name).collect();
        assert_eq!(names, ["MD5", "ADLER32", "SHA512", "CRC32C"]);
        let bare = Features::parse(&reply(b"211-x\r\n CKSM MD5,SHA1\r\n211 End\r\n")).checksums();
        assert_eq!(bare.iter().map(|c| c.name.as_str()).collect::<Vec<_>>(), ["MD5", "SHA1"]);
        assert!(Features::default().checksums().is_empty());
    }

    #[test]
    fn facts_tell_which_are_sent_unasked() {
        let facts = Features::parse(&reply(REAL)).facts();
        assert_eq!(facts.len(), 5);
        assert_eq!(facts[2], FactFeature { name: "Charset".into(), default: false });
        assert!(facts[3].default && facts[3].name == "UNIX.mode");
    }

    #[test]
    fn a_server_without_feat_has_no_extensions_and_a_feat_that_failed_says_nothing() {
        for none in [&b"211 No features.\r\n"[..], b"500 Command not understood.\r\n", b"502 Not implemented.\r\n"] {
            let features = Features::parse(&reply(none));
            assert!(features.is_known() && !features.has("SIZE"));
        }
        for failed in [&b"530 Please log in.\r\n"[..], b"421 Too many.\r\n", b"550 No.\r\n"] {
            assert!(!Features::parse(&reply(failed)).is_known());
        }
    }

    #[test]
    fn the_reply_is_written_in_the_real_servers_shape() {
        let lines = [
            cksm_line([("MD5", 10), ("SHA256", 11)]),
            mlst_line([("Type", true), ("Charset", false)]),
            "DCNONCE".to_owned(),
            "REVERSE".to_owned(),
        ];
        let features = Features::from_lines(lines);
        let text = b"211-Extensions supported\r\n CKSM MD5:10;SHA256:11;\r\n MLST Type*;Charset;\r\n DCNONCE\r\n REVERSE\r\n211 End.\r\n";
        assert_eq!(features.to_reply().to_bytes(), text);
        assert_eq!(Features::parse(&reply(text)), features);
    }

    #[test]
    fn site_words_are_whole() {
        let help = SiteHelp::parse(&reply(b"214-Help for SITE:\r\n SITE SYMLINKTO <sp> path\r\n SITE RETRBUFSIZE n\r\n SITE AUTHZ_ASSERT x\r\n214 End.\r\n"));
        assert!(help.has("retrbufsize") && help.has("AUTHZ_ASSERT") && !help.has("SYMLINK") && !help.has("AUTHZ"));
    }
}
