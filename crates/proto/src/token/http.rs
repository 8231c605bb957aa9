//! As much of HTTP/1.1 as it takes to fetch or to hand in a small document: one request, one bounded answer (RFC 9110, RFC 9112).

/// Longest head of an answer, bytes.
const MAX_HEAD: usize = 32 << 10;
/// Most interim answers (1xx) before the final one.
const MAX_INTERIM: u8 = 4;
/// Longest URL, bytes.
const MAX_URL: usize = 2048;

/// A place on the web that is reached over TLS.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpsUrl {
    host: String,
    port: u16,
    path: String,
}

impl HttpsUrl {
    /// Reads `https://HOST[:PORT][/PATH][?QUERY]`; `None` for anything else, with a user, a fragment, or characters that a request line
    /// cannot carry.
    pub fn parse(text: &str) -> Option<Self> {
        let rest = text.strip_prefix("https://").filter(|_| text.len() <= MAX_URL)?;
        if !rest.bytes().all(|byte| byte.is_ascii_graphic()) || rest.contains(['#', '@', '\\', '"', '<', '>']) {
            return None;
        }
        let end = rest.find(['/', '?']).unwrap_or(rest.len());
        let (authority, path) = rest.split_at(end);
        let (host, port) = match authority.strip_prefix('[').map(|rest| rest.split_once(']')) {
            Some(inside) => inside?,
            None => authority.split_at(authority.find(':').unwrap_or(authority.len())),
        };
        let port = match port.strip_prefix(':') {
            Some(digits) if digits.bytes().all(|byte| byte.is_ascii_digit()) => {
                digits.parse().ok().filter(|&port| port > 0)?
            }
            None if port.is_empty() => 443,
            _ => return None,
        };
        let bracketed = authority.starts_with('[');
        let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte) || (bracketed && byte == b':');
        if host.is_empty() || !host.bytes().all(fits) {
            return None;
        }
        let path = if path.starts_with('/') { path.to_owned() } else { format!("/{path}") };
        Some(Self { host: host.to_ascii_lowercase(), port, path })
    }

    /// The host, an IPv6 address without brackets.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Path and query.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// The bytes that ask for it.
    pub fn request(&self) -> Vec<u8> {
        self.ask("GET", "")
    }

    /// The bytes that post a JSON document to it, with a token; `None` for a token that no header takes.
    pub fn post(&self, bearer: &str, document: &[u8]) -> Option<Vec<u8>> {
        if bearer.is_empty() || !bearer.bytes().all(|byte| byte.is_ascii_graphic()) {
            return None;
        }
        let length = document.len();
        let more =
            format!("Authorization: Bearer {bearer}\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n");
        let mut bytes = self.ask("POST", &more);
        bytes.extend_from_slice(document);
        Some(bytes)
    }

    fn ask(&self, method: &str, more: &str) -> Vec<u8> {
        let host = if self.host.contains(':') { format!("[{}]", self.host) } else { self.host.clone() };
        let port = if self.port == 443 { String::new() } else { format!(":{}", self.port) };
        let path = &self.path;
        format!(
            "{method} {path} HTTP/1.1\r\nHost: {host}{port}\r\nUser-Agent: whimbrel\r\nAccept: application/json\r\nAccept-Encoding: identity\r\n{more}Connection: close\r\n\r\n"
        )
        .into_bytes()
    }

    /// The place `path` of the same host.
    pub fn at(&self, path: &str) -> Option<Self> {
        let there = Self::parse(&format!("https://x{path}")).filter(|_| path.starts_with('/'))?;
        Some(Self { path: there.path, ..self.clone() })
    }

    /// Where an answer redirects to, if that is on the same host and port: another host is another trust.
    pub fn redirected(&self, location: &str) -> Option<Self> {
        let there = match location.strip_prefix('/') {
            Some(rest) if !rest.starts_with('/') => {
                Self { path: location.to_owned(), ..Self::parse(&format!("https://x{location}"))? }
            }
            _ => return Self::parse(location).filter(|there| (&there.host, there.port) == (&self.host, self.port)),
        };
        Some(Self { path: there.path, ..self.clone() })
    }
}

/// What a server answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// The document (status 200 or 201).
    Document(Vec<u8>),
    /// It is elsewhere (301, 302, 303, 307, 308).
    Moved(String),
    /// Any other status.
    Status(u16),
}

/// An answer that cannot be believed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum HttpError {
    /// Not HTTP/1.1, or two statements of its length that may differ.
    #[error("the server's answer is no proper HTTP")]
    Form,
    /// Encoded in a way that was not asked for.
    #[error("the server's answer is encoded in a way that was not asked for")]
    Encoding,
    /// Longer than it may be.
    #[error("the server's answer is too long")]
    TooLong,
    /// The connection ended before the answer did.
    #[error("the server's answer was cut short")]
    Cut,
}

/// Reads one answer from pieces of any size.
#[derive(Debug, Clone)]
pub struct AnswerReader {
    state: State,
    line: Vec<u8>,
    head: Head,
    seen: usize,
    interim: u8,
    body: Vec<u8>,
    most: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Status,
    Fields,
    /// So many bytes are to come.
    Length(usize),
    /// Everything up to the end of the connection.
    ToEnd,
    ChunkSize,
    Chunk(usize),
    ChunkEnd,
    Trailer,
    Done,
}

#[derive(Debug, Clone, Default)]
struct Head {
    status: u16,
    length: Option<usize>,
    chunked: bool,
    location: Option<String>,
}

impl AnswerReader {
    /// For a document of at most `most` bytes.
    pub fn new(most: usize) -> Self {
        let (line, head, body) = (Vec::new(), Head::default(), Vec::new());
        Self { state: State::Status, line, head, seen: 0, interim: 0, body, most }
    }

    /// Takes bytes from the connection; whether the answer is complete. Bytes behind its end are not looked at.
    ///
    /// # Errors
    /// [`HttpError`]
    pub fn feed(&mut self, mut bytes: &[u8]) -> Result<bool, HttpError> {
        while !bytes.is_empty() && self.state != State::Done {
            bytes = match self.state {
                State::Length(left) | State::Chunk(left) => self.take(bytes, left)?,
                State::ToEnd => self.take(bytes, usize::MAX)?,
                _ => self.take_line(bytes)?,
            };
        }
        Ok(self.state == State::Done)
    }

    /// The answer, once it is complete or the connection has ended; TLS has to say that it ended (close_notify), since a document without a
    /// length ends with it.
    ///
    /// # Errors
    /// [`HttpError::Cut`]
    pub fn finish(self) -> Result<Answer, HttpError> {
        let Head { status, location, .. } = self.head;
        let moved = location.filter(|_| matches!(status, 301 | 302 | 303 | 307 | 308));
        match (self.state, moved) {
            (State::Status | State::Fields, _) => Err(HttpError::Cut),
            // What else was said does not matter.
            (_, Some(location)) => Ok(Answer::Moved(location)),
            _ if !matches!(status, 200 | 201) => Ok(Answer::Status(status)),
            (State::Done | State::ToEnd, _) => Ok(Answer::Document(self.body)),
            _ => Err(HttpError::Cut),
        }
    }

    fn take<'a>(&mut self, bytes: &'a [u8], left: usize) -> Result<&'a [u8], HttpError> {
        let (taken, rest) = bytes.split_at(bytes.len().min(left));
        if taken.len() > self.most - self.body.len() {
            return Err(HttpError::TooLong);
        }
        self.body.extend_from_slice(taken);
        let left = left - taken.len();
        self.state = match self.state {
            State::Length(_) if left > 0 => State::Length(left),
            State::Length(_) => State::Done,
            State::Chunk(_) if left > 0 => State::Chunk(left),
            State::Chunk(_) => State::ChunkEnd,
            other => other,
        };
        Ok(rest)
    }

    fn take_line<'a>(&mut self, bytes: &'a [u8]) -> Result<&'a [u8], HttpError> {
        let end = bytes.iter().position(|&byte| byte == b'\n').map(|at| at + 1);
        let (taken, rest) = bytes.split_at(end.unwrap_or(bytes.len()));
        self.seen += taken.len();
        // Sizes of chunks count as well: a document in chunks of one byte is no sensible one.
        if self.seen > MAX_HEAD {
            return Err(HttpError::TooLong);
        }
        self.line.extend_from_slice(taken);
        if end.is_some() {
            let line = std::mem::take(&mut self.line);
            let text = line.strip_suffix(b"\r\n").ok_or(HttpError::Form)?;
            self.line(text)?;
        }
        Ok(rest)
    }

    fn line(&mut self, text: &[u8]) -> Result<(), HttpError> {
        self.state = match self.state {
            State::Status => {
                self.head = Head { status: status(text).ok_or(HttpError::Form)?, ..Head::default() };
                State::Fields
            }
            State::Fields if text.is_empty() => return self.begin(),
            State::Fields => {
                self.head.field(text)?;
                State::Fields
            }
            State::ChunkSize => match chunk_size(text).ok_or(HttpError::Form)? {
                0 => State::Trailer,
                size => State::Chunk(size),
            },
            State::ChunkEnd if text.is_empty() => State::ChunkSize,
            State::Trailer if text.is_empty() => State::Done,
            State::Trailer => State::Trailer,
            _ => return Err(HttpError::Form),
        };
        Ok(())
    }

    /// The head is complete.
    fn begin(&mut self) -> Result<(), HttpError> {
        let Head { status, length, chunked, .. } = self.head;
        self.state = match (status, length, chunked) {
            // 101 would be another protocol.
            (101, ..) => return Err(HttpError::Form),
            (100..=199, ..) if self.interim < MAX_INTERIM => {
                self.interim += 1;
                State::Status
            }
            (100..=199, ..) | (_, Some(_), true) => return Err(HttpError::Form),
            (204 | 304, ..) => State::Done,
            (_, None, true) => State::ChunkSize,
            (_, Some(0), _) => State::Done,
            (_, Some(length), _) if length <= self.most => State::Length(length),
            (200 | 201, Some(_), _) => return Err(HttpError::TooLong),
            // Of a page about an error only its status is wanted.
            (_, Some(_), _) => State::Done,
            (_, None, _) => State::ToEnd,
        };
        Ok(())
    }
}

impl Head {
    fn field(&mut self, text: &[u8]) -> Result<(), HttpError> {
        let colon = text.iter().position(|&byte| byte == b':').ok_or(HttpError::Form)?;
        let (name, value) = (text[..colon].to_ascii_lowercase(), text[colon + 1..].trim_ascii());
        // A line that goes on with a space is of another age, and a space before the colon is a trick (RFC 9112 §5).
        if name.is_empty() || !name.iter().all(u8::is_ascii_graphic) {
            return Err(HttpError::Form);
        }
        match &name[..] {
            b"content-length" => {
                let length = decimal(value).ok_or(HttpError::Form)?;
                if self.length.replace(length).is_some_and(|before| before != length) {
                    return Err(HttpError::Form);
                }
            }
            b"transfer-encoding" if value.eq_ignore_ascii_case(b"chunked") && !self.chunked => self.chunked = true,
            b"transfer-encoding" => return Err(HttpError::Encoding),
            b"content-encoding" if !value.eq_ignore_ascii_case(b"identity") => return Err(HttpError::Encoding),
            b"location" => self.location = String::from_utf8(value.to_vec()).ok(),
            _ => {}
        }
        Ok(())
    }
}

/// `HTTP/1.x NNN ...`
fn status(line: &[u8]) -> Option<u16> {
    let rest = line.strip_prefix(b"HTTP/1.1 ").or_else(|| line.strip_prefix(b"HTTP/1.0 "))?;
    let (digits, phrase) = rest.split_at_checked(3)?;
    let number = decimal(digits).filter(|number| (100..=599).contains(number))?;
    if phrase.is_empty() || phrase.starts_with(b" ") { u16::try_from(number).ok() } else { None }
}

fn decimal(digits: &[u8]) -> Option<usize> {
    let fits = (1..=12).contains(&digits.len()) && digits.iter().all(u8::is_ascii_digit);
    str::from_utf8(digits).ok().filter(|_| fits)?.parse().ok()
}

/// Hexadecimal digits; what is behind `;` means nothing.
fn chunk_size(line: &[u8]) -> Option<usize> {
    let digits = line.split(|&byte| byte == b';').next()?.trim_ascii_end();
    let fits = (1..=8).contains(&digits.len()) && digits.iter().all(u8::is_ascii_hexdigit);
    usize::from_str_radix(str::from_utf8(digits).ok().filter(|_| fits)?, 16).ok()
}

#[cfg(test)]
#[path = "http_tests.rs"]
mod tests;
