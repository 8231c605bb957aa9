//! Signing policies: which names an authority may sign (`<hash>.signing_policy` beside its certificate).
//!
//! ```text
//! access_id_CA   X509    '/O=Grid/CN=My CA'
//! pos_rights     globus  CA:sign
//! cond_subjects  globus  '"/O=Grid/*" "/DC=org/DC=grid/*"'
//! ```
//!
//! The grammar is that of the Globus Toolkit's EACL files as far as certificates need it; what is not understood makes the whole
//! file void, so that nothing is allowed by mistake.

use super::name::{normal_form, print};

/// Most words of a file.
const MOST_WORDS: usize = 100_000;

/// Why a file is no signing policy.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PolicyFault {
    /// A quote is opened and not closed.
    #[error("the quote that begins in line {0} has no end")]
    Quote(usize),
    /// A word that does not belong there.
    #[error("line {line}: `{word}` stands where {wanted} belongs")]
    Word {
        /// Line, from 1.
        line: usize,
        /// What is there.
        word: String,
        /// What belongs there.
        wanted: &'static str,
    },
    /// The file ends within an entry.
    #[error("the file ends where {0} belongs")]
    End(&'static str),
    /// A file of an attacker.
    #[error("the file is too long")]
    TooLong,
}

/// The entries of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SigningPolicy {
    entries: Vec<Entry>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Entry {
    /// Authorities in normal form; `None`: anybody.
    authorities: Vec<Option<String>>,
    rights: Vec<Right>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Right {
    /// `pos_rights globus CA:sign` and `neg_rights globus CA:sign`; other rights are of no account.
    signs: Option<bool>,
    conditions: Vec<Condition>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Condition {
    /// The subject matches one of these.
    Subjects(Vec<Pattern>),
    /// Something that is not understood: never true.
    Unknown,
}

/// A name with at most one star that stands for one or more characters.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Pattern {
    before: String,
    /// What follows the star.
    behind: Option<String>,
}

struct Word {
    line: usize,
    text: Vec<u8>,
}

impl SigningPolicy {
    /// Reads a file.
    pub fn parse(file: &[u8]) -> Result<Self, PolicyFault> {
        let mut words = words(file)?.into_iter().peekable();
        let mut entries = Vec::new();
        while words.peek().is_some() {
            entries.push(entry(&mut words)?);
        }
        if entries.is_empty() { Err(PolicyFault::End("an authority")) } else { Ok(Self { entries }) }
    }

    /// True if the authority may sign a certificate for this subject; both in one-line form.
    ///
    /// A right that is denied (`neg_rights`) wins over one that is given.
    pub fn allows(&self, authority: &str, subject: &str) -> bool {
        let (authority, subject) = (normal_form(authority), normal_form(subject));
        let concerned =
            |entry: &&Entry| entry.authorities.iter().any(|name| name.as_ref().is_none_or(|name| *name == authority));
        let rights = self.entries.iter().filter(concerned).flat_map(|entry| &entry.rights);
        let mut given = false;
        for right in rights {
            match right.signs {
                Some(true) => given |= right.conditions.iter().all(|condition| condition.holds(&subject)),
                // A denial that is not understood denies.
                Some(false) if right.conditions.iter().all(|condition| condition.may_hold(&subject)) => return false,
                _ => {}
            }
        }
        given
    }
}

impl Condition {
    fn holds(&self, subject: &str) -> bool {
        match self {
            Self::Subjects(patterns) => patterns.iter().any(|pattern| pattern.matches(subject)),
            Self::Unknown => false,
        }
    }

    fn may_hold(&self, subject: &str) -> bool {
        *self == Self::Unknown || self.holds(subject)
    }
}

impl Pattern {
    fn new(text: &[u8]) -> Self {
        let mut line = String::new();
        print(text, &mut line);
        // The last star is one; those before it are letters.
        match line.rsplit_once('*') {
            Some((before, behind)) => {
                // Normal form of the two parts is that of the whole: a star is no slash.
                let behind = normal_form(&format!("*{behind}")).split_off(1);
                Self { before: normal_form(before), behind: Some(behind) }
            }
            None => Self { before: normal_form(&line), behind: None },
        }
    }

    fn matches(&self, subject: &str) -> bool {
        match &self.behind {
            None => subject == self.before,
            Some(behind) => {
                let rest =
                    subject.strip_prefix(self.before.as_str()).and_then(|rest| rest.strip_suffix(behind.as_str()));
                rest.is_some_and(|star| !star.is_empty())
            }
        }
    }
}

/// Words apart by white space, or in single quotes with `\` before what is meant as it is; `#` begins a comment.
fn words(file: &[u8]) -> Result<Vec<Word>, PolicyFault> {
    let mut words = Vec::new();
    let (mut at, mut line) = (0, 1);
    while let Some(&byte) = file.get(at) {
        at += 1;
        match byte {
            b'\n' => line += 1,
            b if b.is_ascii_whitespace() => {}
            b'#' => at = file[at..].iter().position(|&b| b == b'\n').map_or(file.len(), |end| at + end),
            b'\'' => {
                let (text, end) = quoted(file, at).ok_or(PolicyFault::Quote(line))?;
                words.push(Word { line, text });
                line += file[at..end].iter().filter(|&&b| b == b'\n').count();
                at = end;
            }
            _ => {
                let end = file[at..].iter().position(u8::is_ascii_whitespace).map_or(file.len(), |end| at + end);
                words.push(Word { line, text: file[at - 1..end].to_vec() });
                at = end;
            }
        }
        if words.len() > MOST_WORDS {
            return Err(PolicyFault::TooLong);
        }
    }
    Ok(words)
}

/// The text up to the closing quote, and where the file goes on behind it.
fn quoted(file: &[u8], start: usize) -> Option<(Vec<u8>, usize)> {
    let mut text = Vec::new();
    let mut bytes = file.iter().enumerate().skip(start);
    loop {
        match bytes.next()? {
            (at, b'\'') => return Some((text, at + 1)),
            (_, b'\\') => text.push(*bytes.next()?.1),
            (_, byte) => text.push(*byte),
        }
    }
}

type Words = std::iter::Peekable<std::vec::IntoIter<Word>>;

const PRINCIPALS: [&str; 6] = [
    "access_id_ANYBODY",
    "access_id_CA",
    "access_id_USER",
    "access_id_GROUP",
    "access_id_HOST",
    "access_id_APPLICATION",
];

fn entry(words: &mut Words) -> Result<Entry, PolicyFault> {
    let mut authorities = Vec::new();
    let mut principals = 0;
    while let Some(kind) = next_if(words, |text| PRINCIPALS.contains(&text)) {
        principals += 1;
        if kind == PRINCIPALS[0] {
            authorities.push(None);
            continue;
        }
        let (authority, value) = (word(words, "who names it")?, word(words, "a name")?);
        if kind == PRINCIPALS[1] && authority.text == b"X509" {
            let mut line = String::new();
            print(&value.text, &mut line);
            authorities.push(Some(normal_form(&line)));
        }
    }
    if principals == 0 {
        return Err(wrong(words.next(), "an authority"));
    }
    let mut rights = Vec::new();
    while let Some(kind) = next_if(words, |text| matches!(text, "pos_rights" | "neg_rights")) {
        let (authority, value) = (word(words, "who names it")?, word(words, "a right")?);
        let signs = authority.text == b"globus" && value.text == b"CA:sign";
        rights.push(Right { signs: signs.then_some(kind == "pos_rights"), conditions: Vec::new() });
        // What is wrong behind a right is seen where the next entry should begin.
    }
    if rights.is_empty() {
        return Err(wrong(words.next(), "a right"));
    }
    let mut conditions = Vec::new();
    while let Some(kind) = next_if(words, |text| text.starts_with("cond_")) {
        let (authority, value) = (word(words, "who names it")?, word(words, "a condition")?);
        let known = kind == "cond_subjects" && authority.text == b"globus";
        conditions.push(if known { Condition::Subjects(patterns(&value.text)) } else { Condition::Unknown });
    }
    // Conditions belong to all rights before them.
    rights.iter_mut().for_each(|right| right.conditions.clone_from(&conditions));
    Ok(Entry { authorities, rights })
}

/// Patterns in double quotes, or one without.
fn patterns(list: &[u8]) -> Vec<Pattern> {
    let parts = list.split(|&byte| byte == b'"').map(<[u8]>::trim_ascii);
    parts.filter(|part| !part.is_empty()).map(Pattern::new).collect()
}

fn next_if(words: &mut Words, wanted: impl Fn(&str) -> bool) -> Option<String> {
    let word = words.next_if(|word| std::str::from_utf8(&word.text).is_ok_and(&wanted))?;
    String::from_utf8(word.text).ok()
}

fn word(words: &mut Words, wanted: &'static str) -> Result<Word, PolicyFault> {
    words.next().ok_or(PolicyFault::End(wanted))
}

fn wrong(found: Option<Word>, wanted: &'static str) -> PolicyFault {
    match found {
        Some(word) => {
            let mut text = String::new();
            print(&word.text[..word.text.len().min(80)], &mut text);
            PolicyFault::Word { line: word.line, word: text, wanted }
        }
        None => PolicyFault::End(wanted),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: &str = "# a policy\naccess_id_CA X509 '/O=Grid/CN=CA'\npos_rights globus CA:sign\ncond_subjects globus '\"/O=Grid/*\"'\n";

    fn policy(text: &str) -> SigningPolicy {
        SigningPolicy::parse(text.as_bytes()).unwrap()
    }

    fn subjects(list: &str) -> SigningPolicy {
        policy(&format!("access_id_CA X509 '/CN=CA'\npos_rights globus CA:sign\ncond_subjects globus '{list}'"))
    }

    #[test]
    fn an_authority_signs_what_its_policy_names() {
        let policy = policy(PLAIN);
        assert!(policy.allows("/O=Grid/CN=CA", "/O=Grid/CN=alice"));
        assert!(policy.allows("/o=grid/cn=ca", "/O=GRID/cn=Alice"));
        assert!(!policy.allows("/O=Grid/CN=CA", "/O=Grid/"), "a star stands for something");
        assert!(!policy.allows("/O=Grid/CN=CA", "/O=Other/CN=alice"));
        assert!(!policy.allows("/O=Grid/CN=Other", "/O=Grid/CN=alice"));
    }

    #[test]
    fn patterns_are_lists_with_one_star_each() {
        let list = subjects("\"/O=A/*\"  \"/O=B/CN=x\" \"/O=C/*/CN=host\"\t\"/U*=z*\"");
        for (subject, allowed) in [
            ("/O=A/CN=x", true),
            ("/O=B/CN=x", true),
            ("/O=B/CN=xy", false),
            ("/O=C/OU=u/CN=host", true),
            ("/O=C/CN=host", false),
            ("/O=C//CN=host", false),
            ("/U*=zx", true),
            ("/Ux=zx", false),
        ] {
            assert_eq!(list.allows("/CN=CA", subject), allowed, "{subject}");
        }
        assert!(
            subjects("/O=My Grid/*").allows("/CN=CA", "/O=My Grid/CN=x"),
            "without double quotes it is one pattern"
        );
        assert!(subjects("*").allows("/CN=CA", "/CN=x"));
        assert!(!subjects("").allows("/CN=CA", "/CN=x") && !subjects("\"\"").allows("/CN=CA", ""));
        assert!(subjects("\"/UID=*\"").allows("/CN=CA", "/USERID=x"));
        assert!(subjects("\"/O=A/Email=*/E=b\"").allows("/CN=CA", "/O=A/emailAddress=a/emailAddress=b"));
        assert!(subjects("/O=caf\u{e9}/*").allows("/CN=CA", r"/O=caf\xC3\xA9/CN=x"));
    }

    #[test]
    fn entries_and_rights_add_up_and_denials_win() {
        let two = policy(
            "access_id_CA X509 '/CN=A' access_id_CA X509 '/CN=B'\npos_rights globus CA:sign\ncond_subjects globus '\"/O=1/*\"'\n\
             access_id_ANYBODY\nneg_rights globus CA:sign\ncond_subjects globus '\"/O=1/CN=evil*\"'\n\
             access_id_CA X509 '/CN=B'\npos_rights globus CA:sign",
        );
        for (authority, subject, allowed) in [
            ("/CN=A", "/O=1/CN=x", true),
            ("/CN=B", "/O=1/CN=x", true),
            ("/CN=B", "/O=2/CN=x", true),
            ("/CN=A", "/O=2/CN=x", false),
            ("/CN=A", "/O=1/CN=evil1", false),
            ("/CN=B", "/O=1/CN=evil1", false),
            ("/CN=C", "/O=1/CN=x", false),
        ] {
            assert_eq!(two.allows(authority, subject), allowed, "{authority} {subject}");
        }
    }

    #[test]
    fn what_is_not_understood_allows_nothing() {
        let right = |rights: &str| policy(&format!("access_id_CA X509 '/CN=A'\n{rights}"));
        assert!(right("pos_rights globus CA:sign").allows("/CN=A", "/O=x"));
        assert!(!right("pos_rights globus CA:sign cond_day globus Monday").allows("/CN=A", "/O=x"));
        assert!(!right("pos_rights globus CA:sign cond_subjects other '*'").allows("/CN=A", "/O=x"));
        assert!(!right("pos_rights other CA:sign").allows("/CN=A", "/O=x"));
        assert!(
            !right("pos_rights globus CA:sign neg_rights globus CA:sign cond_day globus Monday")
                .allows("/CN=A", "/O=x")
        );
        assert!(!policy("access_id_CA PGP '/CN=A' pos_rights globus CA:sign").allows("/CN=A", "/O=x"));
        assert!(!policy("access_id_USER X509 '/CN=A' pos_rights globus CA:sign").allows("/CN=A", "/O=x"));
    }

    #[test]
    fn quotes_escapes_and_comments_are_those_of_the_toolkit() {
        let odd = policy(
            "access_id_CA X509 '/CN=O\\'Neil \\\\x'# no comment here: the word before ends it\npos_rights globus CA:sign",
        );
        assert!(odd.allows("/CN=O'Neil \\x", "/O=x"));
        let hash = policy("access_id_CA X509 /CN=a#b pos_rights globus CA:sign # end");
        assert!(hash.allows("/CN=a#b", "/O=x"));
    }

    #[test]
    fn faults_name_their_line() {
        let fault = |text: &str| SigningPolicy::parse(text.as_bytes()).unwrap_err().to_string();
        assert_eq!(fault(""), "the file ends where an authority belongs");
        assert_eq!(fault("# only\n"), "the file ends where an authority belongs");
        assert_eq!(fault("access_id_CA X509\n'/CN=x"), "the quote that begins in line 2 has no end");
        assert_eq!(fault("access_id_CA X509 '/CN=x\\'"), "the quote that begins in line 1 has no end");
        assert_eq!(
            fault("access_id_CA X509 'a\nb'\nrights\u{7}"),
            r"line 3: `rights\x07` stands where a right belongs"
        );
        assert_eq!(fault("hello"), "line 1: `hello` stands where an authority belongs");
        assert_eq!(fault(&format!("{PLAIN}more")), "line 5: `more` stands where an authority belongs");
        assert_eq!(fault("access_id_CA X509"), "the file ends where a name belongs");
        assert_eq!(fault("access_id_ANYBODY pos_rights globus"), "the file ends where a right belongs");
        assert_eq!(fault("access_id_ANYBODY"), "the file ends where a right belongs");
        assert_eq!(
            fault("access_id_ANYBODY pos_rights globus CA:sign cond_subjects"),
            "the file ends where who names it belongs"
        );
        assert_eq!(fault(&"x ".repeat(MOST_WORDS + 1)), "the file is too long");
    }
}
