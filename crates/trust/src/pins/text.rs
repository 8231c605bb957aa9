//! What lines of a file of known hosts say.

use std::{fmt, str};

use openssl::error::ErrorStack;
use openssl::sha::sha256;
use openssl::x509::X509Ref;

const HASH: &str = "sha256:";

/// In the place of a key: authorities vouch for the host, whatever its key.
pub(super) const VOUCHED: &str = "vouched";

/// The SHA-256 of a host's key.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Fingerprint(pub [u8; 32]);

impl Fingerprint {
    /// That of a certificate's key.
    ///
    /// # Errors
    /// OpenSSL's, if the key cannot be read.
    pub fn of(certificate: &X509Ref) -> Result<Self, ErrorStack> {
        Ok(Self(sha256(&certificate.public_key()?.public_key_to_der()?)))
    }

    /// `sha256:` and 64 hexadecimal digits.
    pub fn parse(text: &str) -> Option<Self> {
        let digits = text.strip_prefix(HASH)?.as_bytes();
        let mut bytes = [0; 32];
        if digits.len() != 64 {
            return None;
        }
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
            let digit = |at: usize| char::from(pair[at]).to_digit(16);
            *byte = u8::try_from(digit(0)? << 4 | digit(1)?).ok()?;
        }
        Some(Self(bytes))
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(HASH)?;
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A host as the file names it: in small letters, an IPv6 address in brackets, and always with a port.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct HostName(String);

impl HostName {
    /// A host and port; `None` for what cannot stand in a line.
    pub fn new(host: &str, port: u16) -> Option<Self> {
        let bare = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(host);
        let odd = |c: char| c.is_whitespace() || c.is_control() || matches!(c, '#' | '[' | ']' | '/' | '@');
        if bare.is_empty() || bare.len() > 255 || bare.contains(odd) {
            return None;
        }
        let name = bare.strip_suffix('.').unwrap_or(bare).to_ascii_lowercase();
        Some(Self(if name.contains(':') { format!("[{name}]:{port}") } else { format!("{name}:{port}") }))
    }
}

impl fmt::Display for HostName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What the file says about a host's key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PinVerdict {
    /// It does not know the host.
    First,
    /// It knows no key of the host, and that an authority has vouched for it.
    Vouched {
        /// The line that says so, from 1.
        line: usize,
    },
    /// This is the key, or one of the keys, that it knows.
    Same,
    /// It knows another.
    Changed {
        /// That one, the last if there are several.
        known: Fingerprint,
        /// Its line, from 1.
        line: usize,
    },
}

/// What the text of a file says about a host's key.
///
/// # Errors
/// The number of a line about the host, from 1, that cannot be understood.
pub fn verdict(text: &[u8], host: &HostName, key: &Fingerprint) -> Result<PinVerdict, usize> {
    let mut verdict = PinVerdict::First;
    let lines = (1..).zip(text.split(|&byte| byte == b'\n'));
    for (number, line) in lines.filter(|(_, line)| is_about(line, host)) {
        match said(line).ok_or(number)? {
            Said::Key(known) if known == *key => return Ok(PinVerdict::Same),
            Said::Key(known) => verdict = PinVerdict::Changed { known, line: number },
            Said::Vouched if verdict == PinVerdict::First => verdict = PinVerdict::Vouched { line: number },
            Said::Vouched => {}
        }
    }
    Ok(verdict)
}

/// What a line says of its host.
enum Said {
    Key(Fingerprint),
    Vouched,
}

fn said(line: &[u8]) -> Option<Said> {
    match str::from_utf8(words(line).nth(1)?).ok()? {
        VOUCHED => Some(Said::Vouched),
        word => Fingerprint::parse(word).map(Said::Key),
    }
}

fn words(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty())
}

/// Whether a line's first word is this host, in whatever case.
pub(super) fn is_about(line: &[u8], host: &HostName) -> bool {
    words(line).next().is_some_and(|word| word.eq_ignore_ascii_case(host.0.as_bytes()))
}
