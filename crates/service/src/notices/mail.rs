//! Letters about tasks, for a mail server nearby (RFC 5322).

use base64ct::{Base64, Encoding};
use jiff::tz::Offset;
use whimbrel_engine::Fault;
use whimbrel_engine::listing::Timestamp;
use whimbrel_engine::task::Status;
use whimbrel_trust::roots::SystemRoots;
use zeroize::Zeroizing;

use super::records::Notice;
use super::smtp::Session;
use crate::clock::iso;
use crate::task::{Task, TaskWork};

/// Who takes mail.
#[derive(Clone)]
pub struct MailServer {
    /// Its name or address.
    pub host: String,
    /// Its port.
    pub port: u16,
    /// How what is said to it is protected.
    pub protection: Protection,
    /// Whom letters are from: `transfers@example.org`.
    pub from: String,
    /// Name and password, if it wants one; only ever said over TLS.
    pub login: Option<(String, Zeroizing<String>)>,
}

impl std::fmt::Debug for MailServer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "MailServer({}:{}, from {})", self.host, self.port, self.from)
    }
}

/// How what is said to a mail server is protected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protection {
    /// By TLS from the beginning (port 465, RFC 8314).
    Tls,
    /// By TLS after STARTTLS (RFC 3207), which it has to offer.
    StartTls,
    /// By STARTTLS if it offers that: a relay on this host or network.
    IfOffered,
}

impl MailServer {
    /// Reads `smtp://HOST[:PORT]` (STARTTLS where it is offered), `smtp+starttls://...` (STARTTLS or nothing), `smtps://...`.
    ///
    /// # Errors
    /// Words for what it is not.
    pub fn parse(url: &str, from: &str) -> Result<Self, String> {
        let (protection, usual, rest) = match url.split_once("://") {
            Some(("smtp", rest)) => (Protection::IfOffered, 25, rest),
            Some(("smtp+starttls", rest)) => (Protection::StartTls, 587, rest),
            Some(("smtps", rest)) => (Protection::Tls, 465, rest),
            _ => return Err(format!("{url:?} is no mail server as in smtp://mail.example.org")),
        };
        let rest = rest.trim_end_matches('/');
        let (host, port) = match rest.rsplit_once(':') {
            Some((host, port)) if !port.ends_with(']') => {
                (host, port.parse().map_err(|_| format!("{port:?} is no port"))?)
            }
            _ => (rest, usual),
        };
        let host = host.trim_start_matches('[').trim_end_matches(']');
        if host.is_empty() || host.contains(['/', '@', '?']) {
            return Err(format!("{url:?} names no host alone"));
        }
        if !is_address(from) {
            return Err(format!("{from:?} is no mail address as in transfers@example.org"));
        }
        Ok(Self { host: host.to_owned(), port, protection, from: from.to_owned(), login: None })
    }

    /// The same, that wants a login: `NAME:PASSWORD`.
    ///
    /// # Errors
    /// Words for what it is not.
    pub fn with_login(self, text: &str) -> Result<Self, String> {
        let line = text.trim_end_matches(['\r', '\n']);
        let (name, password) = line.split_once(':').ok_or("the login for the mail server is no NAME:PASSWORD")?;
        Ok(Self { login: Some((name.to_owned(), Zeroizing::new(password.to_owned()))), ..self })
    }
}

/// Whether a text can stand for a mailbox in SMTP and in a letter's head; what mail servers take is narrower still.
pub fn is_address(text: &str) -> bool {
    let plain = text.bytes().all(|byte| byte.is_ascii_graphic() && !b"<>()[]\\,;:\"".contains(&byte));
    let parts = text.split_once('@');
    plain
        && text.len() <= 254
        && parts.is_some_and(|(who, host)| !who.is_empty() && !host.is_empty() && !host.contains('@'))
}

/// Sends a letter.
///
/// # Errors
/// The server was not reached, or did not take it.
pub async fn send(server: &MailServer, roots: &SystemRoots, to: &str, letter: &str) -> Result<(), Fault> {
    Session::open(server, roots).await?.send(server, to, letter).await
}

/// The letter about what became of a task.
pub fn letter(server: &MailServer, to: &str, notice: &Notice, task: &Task, url: &str) -> String {
    let subject = subject(task, notice.status);
    let host = server.from.split_once('@').map_or("", |(_, host)| host);
    let body = Base64::encode_string(body(task, notice.status, url).as_bytes());
    // RFC 2045 §6.8: lines of 76 characters.
    let lines: Vec<_> = body.as_bytes().chunks(76).map(String::from_utf8_lossy).collect();
    format!(
        "From: {}\r\nTo: {to}\r\nSubject: {}\r\nDate: {}\r\nMessage-ID: <{}@{host}>\r\nAuto-Submitted: auto-generated\r\n\
         MIME-Version: 1.0\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Transfer-Encoding: base64\r\n\r\n{}\r\n",
        server.from,
        encoded(&subject),
        date(notice.time),
        notice.id,
        lines.join("\r\n"),
    )
}

fn subject(task: &Task, status: Status) -> String {
    let name = task.wanted.label.clone().unwrap_or_else(|| task.id.to_string());
    let what = if matches!(task.wanted.work, TaskWork::Delete(_)) { "deletion" } else { "transfer" };
    match status {
        Status::Succeeded => format!("Your {what} succeeded: {name}"),
        Status::Failed => format!("Your {what} failed: {name}"),
        Status::Active | Status::Inactive => format!("Your {what} waits for you: {name}"),
    }
}

fn body(task: &Task, status: Status, url: &str) -> String {
    let wanted = &task.wanted;
    let to = wanted.destination.as_ref().map(|end| format!("\nTo:           {}", end.display_name)).unwrap_or_default();
    let label = wanted.label.as_ref().map(|label| format!("Label:        {label}\n")).unwrap_or_default();
    let counters = &task.counters;
    let over = task.completed.map(|time| format!("\nCompleted:    {}", iso(time))).unwrap_or_default();
    let why = match (&task.fatal, status) {
        (Some(fatal), Status::Failed) => format!("\n\nWhy it failed: {} ({})", fatal.description, fatal.code),
        (_, Status::Inactive) => "\n\nIt needs a credential of yours to go on.".to_owned(),
        _ => String::new(),
    };
    format!(
        "{label}Task:         {}\nStatus:       {}\nFrom:         {}{to}\nRequested:    {}{over}\n\
         Files:        {} transferred, {} left as they were, {} left out for errors, {} failed\n\
         Bytes:        {}{why}\n\nDetails: globus task show {}\nService: {url}\n\n\
         You get this because the task was submitted so (--notify).\n",
        task.id,
        status.name(),
        wanted.source.display_name,
        iso(task.requested),
        counters.files_transferred,
        counters.files_skipped,
        counters.skipped_errors,
        counters.failed,
        counters.bytes_transferred,
        task.id,
    )
}

/// A text of a letter's head; what is not ASCII as encoded words of at most 75 characters (RFC 2047 §2).
fn encoded(text: &str) -> String {
    let clean: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    if clean.is_ascii() && clean.len() < 200 {
        return clean;
    }
    let mut words = vec![String::new()];
    for c in clean.chars() {
        let last = words.last_mut().expect("it begins with one");
        if last.len() + c.len_utf8() > 42 {
            words.push(c.to_string());
        } else {
            last.push(c);
        }
    }
    let word = |word: &String| format!("=?utf-8?B?{}?=", Base64::encode_string(word.as_bytes()));
    words.iter().map(word).collect::<Vec<_>>().join("\r\n ")
}

/// A date as letters have it (RFC 5322 §3.3).
fn date(time: Timestamp) -> String {
    let time = jiff::Timestamp::from_second(time.secs).unwrap_or_default();
    Offset::UTC.to_datetime(time).strftime("%a, %d %b %Y %H:%M:%S +0000").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mail_servers_are_read() {
        let read =
            |url: &str| MailServer::parse(url, "a@b").map(|server| (server.host, server.port, server.protection));
        assert_eq!(read("smtp://mail.example.org"), Ok(("mail.example.org".into(), 25, Protection::IfOffered)));
        assert_eq!(read("smtps://mail:4650/"), Ok(("mail".into(), 4650, Protection::Tls)));
        assert_eq!(read("smtp+starttls://[::1]"), Ok(("::1".into(), 587, Protection::StartTls)));
        assert_eq!(read("smtp://[::1]:26"), Ok(("::1".into(), 26, Protection::IfOffered)));
        for url in ["mail", "http://mail", "smtp://", "smtp://mail:x", "smtp://user@mail", "smtp://mail/x"] {
            assert!(read(url).is_err(), "{url}");
        }
        for from in ["", "a", "a@", "@b", "a@b\r\nBcc: c@d", "a b@c", "a@b@c", "<a@b>"] {
            assert!(MailServer::parse("smtp://m", from).is_err(), "{from:?}");
        }
    }

    #[test]
    fn heads_hold_no_lines_of_others_and_any_letters() {
        assert_eq!(encoded("plain"), "plain");
        assert_eq!(encoded("a\r\nBcc: b"), "a  Bcc: b");
        let long = encoded(&"Gr\u{fc}\u{df}e ".repeat(30));
        assert!(long.split("\r\n ").all(|word| word.len() <= 75 && word.starts_with("=?utf-8?B?")), "{long}");
        assert_eq!(date(Timestamp::from_secs(1_795_370_400)), "Sun, 22 Nov 2026 18:00:00 +0000");
    }
}
