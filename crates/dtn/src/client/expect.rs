//! Checksums that a user expects files to have: one for one file, or a list as `md5sum` and its like write it.

use std::collections::HashMap;

pub use whimbrel_transport::digest::Algorithm;
use whimbrel_transport::digest::Digest;

/// What a file must be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Expected {
    /// The algorithm.
    pub algorithm: Algorithm,
    /// Lower-case hexadecimal digits, as many as the algorithm has.
    pub digest: String,
}

/// What files must be.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Expect {
    /// Nothing is known of them.
    #[default]
    Nothing,
    /// The one file that is copied.
    One(Expected),
    /// The files of a list.
    Listed(List),
}

/// A list of names with checksums.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct List {
    /// By name relative to the source directory, without `./` in front.
    files: HashMap<Vec<u8>, Expected>,
}

/// What is wrong with text that should be a checksum or a list of them; line numbers count from 1.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ExpectError {
    /// No `:` between algorithm and digits.
    #[error("an expected checksum is ALG:HEX, as in sha256:e3b0...")]
    Form,
    /// An algorithm that nobody here knows.
    #[error("{0} is no algorithm known here; {known} are", known = known())]
    Algorithm(String),
    /// Digits that are none, or too few or too many.
    #[error("a {algorithm} checksum has {wanted} hexadecimal digits; this has {found}")]
    Digest {
        /// Which.
        algorithm: Algorithm,
        /// How many it has.
        wanted: usize,
        /// What there is, for people.
        found: String,
    },
    /// A number of digits that no algorithm of the `...sum` programs has.
    #[error("the algorithm cannot be told from {0} digits: name it, as in --expect-from ALG:FILE")]
    Length(usize),
    /// A line that is neither `HEX  NAME` nor `ALG (NAME) = HEX`.
    #[error("a line is a checksum, two spaces and a name, or ALG (NAME) = checksum")]
    Line,
    /// A name with two different checksums.
    #[error("{0} is there already with another checksum")]
    Twice(String),
    /// Something wrong in a line of a list.
    #[error("line {0}: {1}")]
    In(usize, Box<ExpectError>),
}

fn known() -> String {
    Algorithm::ALL.map(|algorithm| algorithm.name().to_ascii_lowercase()).join(", ")
}

/// An algorithm by its name in any spelling.
///
/// # Errors
/// [`ExpectError::Algorithm`].
pub fn algorithm(name: &str) -> Result<Algorithm, ExpectError> {
    let known: Result<Algorithm, _> = name.parse();
    known.ok().filter(|known| Algorithm::ALL.contains(known)).ok_or_else(|| ExpectError::Algorithm(name.to_owned()))
}

impl Expected {
    /// `digits` in either case.
    ///
    /// # Errors
    /// [`ExpectError::Digest`].
    pub fn new(algorithm: Algorithm, digits: &str) -> Result<Self, ExpectError> {
        match Digest::from_hex(algorithm, digits.as_bytes()) {
            Some(digest) => Ok(Self { algorithm, digest: digest.to_string() }),
            None => {
                let other = digits.chars().find(|c| !c.is_ascii_hexdigit());
                let found = match other {
                    Some(c) => format!("{c:?} among them"),
                    None => digits.len().to_string(),
                };
                Err(ExpectError::Digest { algorithm, wanted: algorithm.hex_len(), found })
            }
        }
    }
}

impl std::str::FromStr for Expected {
    type Err = ExpectError;

    /// `ALG:HEX`.
    fn from_str(text: &str) -> Result<Self, ExpectError> {
        let (name, digits) = text.split_once(':').ok_or(ExpectError::Form)?;
        Self::new(algorithm(name)?, digits.trim())
    }
}

impl List {
    /// Reads lines as `md5sum`, `sha256sum` and their like write them: `HEX  NAME`, `HEX *NAME`, with a `\` in front when
    /// the name is escaped, or `ALG (NAME) = HEX`. Empty lines and lines that begin with `#` count for nothing.
    ///
    /// Without `of` the algorithm follows from the number of digits, as those programs have it: MD5, SHA1, SHA256, SHA512.
    ///
    /// # Errors
    /// The first line that cannot be meant, with its number.
    pub fn parse(text: &[u8], of: Option<Algorithm>) -> Result<Self, ExpectError> {
        let mut list = Self::default();
        for (index, line) in text.split(|&byte| byte == b'\n').enumerate() {
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            if line.is_empty() || line.starts_with(b"#") {
                continue;
            }
            list.add(line, of).map_err(|error| ExpectError::In(index + 1, Box::new(error)))?;
        }
        Ok(list)
    }

    fn add(&mut self, line: &[u8], of: Option<Algorithm>) -> Result<(), ExpectError> {
        let (name, expected) = tagged(line).unwrap_or_else(|| plain(line, of))?;
        let mut name = name.as_slice();
        while let Some(rest) = name.strip_prefix(b"./") {
            name = rest;
        }
        match self.files.insert(name.to_vec(), expected.clone()) {
            Some(other) if other != expected => Err(ExpectError::Twice(String::from_utf8_lossy(name).into_owned())),
            _ => Ok(()),
        }
    }

    /// What the file of this relative name must be; `None`: the list does not name it.
    pub fn get(&self, name: &[u8]) -> Option<&Expected> {
        self.files.get(name)
    }

    /// All names, in no order.
    pub fn names(&self) -> impl Iterator<Item = &[u8]> {
        self.files.keys().map(Vec::as_slice)
    }
}

type Item = Result<(Vec<u8>, Expected), ExpectError>;

/// `ALG (NAME) = HEX`; `None` if the line has not that shape.
fn tagged(line: &[u8]) -> Option<Item> {
    let (escaped, line) = escape_mark(line);
    let open = line.windows(2).position(|two| two == b" (")?;
    let close = line.windows(4).rposition(|four| four == b") = ")?;
    let word = std::str::from_utf8(&line[..open]).ok()?;
    let name = line.get(open + 2..close)?;
    // What is in front of a plain line's name is digits, and its name may look like the rest of a tagged one.
    let algorithm = match algorithm(word) {
        Ok(algorithm) => algorithm,
        Err(_) if word.contains(' ') || word.bytes().all(|byte| byte.is_ascii_hexdigit()) => return None,
        Err(error) => return Some(Err(error)),
    };
    let digits = String::from_utf8_lossy(&line[close + 4..]).trim_ascii().to_owned();
    Some(Expected::new(algorithm, &digits).map(|expected| (unescaped(name, escaped), expected)))
}

/// `HEX  NAME`.
fn plain(line: &[u8], of: Option<Algorithm>) -> Item {
    let (escaped, line) = escape_mark(line);
    let space = line.iter().position(|&byte| byte == b' ').ok_or(ExpectError::Line)?;
    let (digits, rest) = line.split_at(space);
    let name = rest.strip_prefix(b"  ").or_else(|| rest.strip_prefix(b" *")).ok_or(ExpectError::Line)?;
    if name.is_empty() || digits.is_empty() {
        return Err(ExpectError::Line);
    }
    let algorithm = match (of, digits.len()) {
        (Some(algorithm), _) => algorithm,
        (None, 32) => Algorithm::Md5,
        (None, 40) => Algorithm::Sha1,
        (None, 64) => Algorithm::Sha256,
        (None, 128) => Algorithm::Sha512,
        (None, other) => return Err(ExpectError::Length(other)),
    };
    let expected = Expected::new(algorithm, &String::from_utf8_lossy(digits))?;
    Ok((unescaped(name, escaped), expected))
}

fn escape_mark(line: &[u8]) -> (bool, &[u8]) {
    line.strip_prefix(b"\\").map_or((false, line), |rest| (true, rest))
}

/// GNU coreutils write `\n`, `\r` and `\\` in names of lines that begin with `\`.
fn unescaped(name: &[u8], escaped: bool) -> Vec<u8> {
    if !escaped {
        return name.to_vec();
    }
    let mut out = Vec::with_capacity(name.len());
    let mut bytes = name.iter().copied();
    while let Some(byte) = bytes.next() {
        out.push(match byte {
            b'\\' => match bytes.next() {
                Some(b'n') => b'\n',
                Some(b'r') => b'\r',
                Some(other) => other,
                None => b'\\',
            },
            other => other,
        });
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    const MD5: &str = "900150983cd24fb0d6963f7d28e17f72";
    const SHA256: &str = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

    fn of(text: &str) -> Result<List, ExpectError> {
        List::parse(text.as_bytes(), None)
    }

    fn why(text: &str) -> String {
        of(text).unwrap_err().to_string()
    }

    #[test]
    fn one_checksum_is_algorithm_and_digits_in_any_case() {
        let expected: Expected = format!("SHA-256:{}", SHA256.to_ascii_uppercase()).parse().unwrap();
        assert_eq!(expected, Expected { algorithm: Algorithm::Sha256, digest: SHA256.to_owned() });
        assert_eq!("crc32c:00c0ffee".parse::<Expected>().unwrap().algorithm, Algorithm::Crc32c);
    }

    #[test]
    fn what_is_no_checksum_is_said_precisely() {
        let why = |text: &str| text.parse::<Expected>().unwrap_err().to_string();
        assert!(why(MD5).contains("ALG:HEX"));
        assert!(why("crc7:00").starts_with("crc7 is no algorithm known here; md5, adler32"));
        assert_eq!(why("md5:00"), "a MD5 checksum has 32 hexadecimal digits; this has 2");
        assert!(why(&format!("md5:g{}", &MD5[1..])).contains("'g' among them"));
    }

    #[test]
    fn lists_of_the_sum_programs_are_read() {
        let text = format!(
            "# made yesterday\n{MD5}  ./a b\n{SHA256} *dir/c\r\n\nSHA256 (d (2)) = {SHA256}\n\\{MD5}  x\\ny\\\\z\n{MD5}  a b\n"
        );
        let list = of(&text).unwrap();
        assert_eq!(list.get(b"a b").unwrap().algorithm, Algorithm::Md5);
        assert_eq!(list.get(b"dir/c").unwrap().digest, SHA256);
        assert_eq!(list.get(b"d (2)").unwrap().algorithm, Algorithm::Sha256);
        assert!(list.get(b"x\ny\\z").is_some() && list.get(b"c").is_none());
        assert_eq!(list.names().count(), 4);
        let blake = List::parse(format!("{SHA256}  a (b) = c\n").as_bytes(), Some(Algorithm::Blake3)).unwrap();
        assert_eq!(blake.get(b"a (b) = c").unwrap().algorithm, Algorithm::Blake3);
    }

    #[test]
    fn the_first_wrong_line_is_named() {
        assert!(why(&format!("{MD5}  a\nhello\n")).starts_with("line 2: a line is a checksum"));
        assert!(why(&format!("{MD5} a\n")).starts_with("line 1: a line is"), "one space");
        assert!(why("00c0ffee  a\n").contains("--expect-from ALG:FILE"));
        assert!(why(&format!("MD6 (a) = {MD5}\n")).contains("MD6 is no algorithm"));
        assert!(why(&format!("MD5 (a) = {}\n", &MD5[1..])).contains("this has 31"));
        let twice = format!("{MD5}  a\n{}  ./a\n", MD5.replace('9', "8"));
        assert_eq!(why(&twice), "line 2: a is there already with another checksum");
        assert!(why(&format!("{}  a\n", MD5.replace('9', "x"))).contains("'x' among them"));
    }
}
