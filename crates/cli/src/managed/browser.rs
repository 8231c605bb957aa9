//! A person logs in in a browser (RFC 8252): with a program that listens on this host, or by copying a code.

use std::io::{BufRead as _, Write as _};
use std::process::{Command, Stdio};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;
use whimbrel_engine::{Fault, FaultCode, Side};
use whimbrel_service::auth::secrets::{alike, challenge_of, random};

use super::refusal::{Refusal, Trouble};
use super::with_query;

const OP: &str = "log in in a browser";

/// Time for a person to log in.
const PATIENCE: Duration = Duration::from_secs(600);
/// Time for one request of the browser.
const REQUEST: Duration = Duration::from_secs(10);
/// Longest head of a request that is read, bytes.
const LONGEST: usize = 16 << 10;

/// What a browser brought.
pub struct Brought {
    /// The code.
    pub code: String,
    /// Where it was sent.
    pub redirect: String,
    /// What proves that the code is ours (RFC 7636).
    pub verifier: String,
}

/// What is asked for.
pub struct Wanted<'a> {
    /// The service.
    pub service: &'a str,
    /// Our client's id.
    pub client: &'a str,
    /// The scopes.
    pub scopes: &'a str,
}

impl Wanted<'_> {
    /// Where the browser goes.
    fn address(&self, redirect: &str, state: &str, verifier: &str) -> String {
        let fields = [
            ("client_id", self.client),
            ("redirect_uri", redirect),
            ("response_type", "code"),
            ("scope", self.scopes),
            ("state", state),
            ("access_type", "offline"),
            ("prompt", "login"),
            ("code_challenge", &challenge_of(verifier)),
            ("code_challenge_method", "S256"),
        ];
        with_query(&format!("{}/v2/oauth2/authorize", self.service), &fields)
    }

    /// Opens a browser here and waits for what it brings.
    ///
    /// # Errors
    /// Nobody logs in in time, or the service refuses.
    pub async fn by_browser(&self) -> Result<Brought, Trouble> {
        let here = |error| Trouble::here(error, OP, "localhost");
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.map_err(here)?;
        let port = listener.local_addr().map_err(here)?.port();
        let (state, verifier) = (secret()?, secret()?);
        let redirect = format!("http://localhost:{port}");
        let address = self.address(&redirect, &state, &verifier);
        eprintln!("Log in in the browser on this computer; if none opens, open this address there:\n\n  {address}\n");
        open(&address);
        let waited = timeout(PATIENCE, wait(&listener, &state)).await;
        let code = waited.unwrap_or_else(|_| {
            let fault = Fault::new(FaultCode::TimedOut, OP).side(Side::Us);
            Err(fault.detail("nobody logged in within ten minutes").into())
        })?;
        Ok(Brought { code, redirect, verifier })
    }

    /// Has somebody log in in a browser elsewhere and copy the code that is shown there.
    ///
    /// # Errors
    /// There is nobody to ask.
    pub fn by_hand(&self) -> Result<Brought, Trouble> {
        let (state, verifier) = (secret()?, secret()?);
        let redirect = format!("{}/v2/web/auth-code", self.service);
        let address = self.address(&redirect, &state, &verifier);
        eprint!(
            "Open this address in a browser, log in, and copy the code that is shown then:\n\n  {address}\n\nCode: "
        );
        let mut line = String::new();
        let read = std::io::stderr().flush().and_then(|()| std::io::stdin().lock().read_line(&mut line));
        read.map_err(|error| Trouble::here(error, OP, "standard input"))?;
        let code = line.trim().to_owned();
        if code.is_empty() {
            return Err(Trouble::Usage("there was no code".to_owned()));
        }
        Ok(Brought { code, redirect, verifier })
    }
}

/// Whether a browser that opens on this host is one that its user sees.
pub fn is_here() -> bool {
    let set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    set("BROWSER")
        || (!set("SSH_CONNECTION") && (cfg!(target_os = "macos") || set("DISPLAY") || set("WAYLAND_DISPLAY")))
}

fn secret() -> Result<String, Trouble> {
    random("").map_err(|error| Fault::new(FaultCode::Internal, OP).side(Side::Us).detail(error.to_string()).into())
}

/// Starts the browser; where there is none, people have the address.
fn open(address: &str) {
    let program = std::env::var("BROWSER").ok().and_then(|list| list.split(':').next().map(str::to_owned));
    let usual = if cfg!(target_os = "macos") { "open" } else { "xdg-open" };
    let program = program.filter(|name| !name.is_empty()).unwrap_or_else(|| usual.to_owned());
    let mut command = Command::new(&program);
    let started = command.arg(address).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
    match started {
        // It ends when it likes; a thread takes note of that.
        Ok(mut child) => drop(std::thread::spawn(move || child.wait())),
        Err(error) => tracing::debug!(%program, %error, "no browser opens"),
    }
}

/// Answers the browser until it brings a code; what else knocks is told that nothing is here.
async fn wait(listener: &TcpListener, state: &str) -> Result<String, Trouble> {
    loop {
        let (mut stream, _) = listener.accept().await.map_err(|error| Trouble::here(error, OP, "localhost"))?;
        let Ok(Ok(target)) = timeout(REQUEST, target_of(&mut stream)).await else { continue };
        let brought = target.and_then(|target| read(&target, state));
        let (status, text) = match &brought {
            Some(Ok(_)) => ("200 OK", "You are logged in. This window can be closed."),
            Some(Err(_)) => ("200 OK", "You are not logged in; the terminal says why. This window can be closed."),
            None => ("404 Not Found", "There is nothing here."),
        };
        // Who does not want to hear it has brought the code all the same.
        let _told = timeout(REQUEST, tell(&mut stream, status, text)).await;
        if let Some(brought) = brought {
            return brought;
        }
    }
}

/// The path of a GET request with its query.
async fn target_of(stream: &mut TcpStream) -> std::io::Result<Option<String>> {
    let mut head = Vec::new();
    while !head.windows(4).any(|end| end == b"\r\n\r\n") {
        let mut piece = [0; 1024];
        let count = stream.read(&mut piece).await?;
        head.extend_from_slice(&piece[..count]);
        if count == 0 || head.len() > LONGEST {
            return Ok(None);
        }
    }
    let head = String::from_utf8_lossy(&head);
    let mut words = head.lines().next().unwrap_or_default().split(' ');
    Ok((words.next() == Some("GET")).then(|| words.next().map(str::to_owned)).flatten())
}

/// What the service sent us by the browser; `None`: it is not from there.
fn read(target: &str, state: &str) -> Option<Result<String, Trouble>> {
    let (_, query) = target.split_once('?')?;
    let fields: Vec<_> = form_urlencoded::parse(query.as_bytes()).into_owned().collect();
    let field = |name: &str| fields.iter().find(|(given, _)| given == name).map(|(_, value)| value.as_str());
    if !alike(field("state")?, state) {
        return None;
    }
    match (field("code"), field("error")) {
        (Some(code), _) => Some(Ok(code.to_owned())),
        (None, Some(error)) => {
            let said = field("error_description").unwrap_or(error);
            Some(Err(Refusal::new(403, error, said).into()))
        }
        (None, None) => None,
    }
}

async fn tell(stream: &mut TcpStream, status: &str, text: &str) -> std::io::Result<()> {
    let page = format!("<!doctype html><meta charset=\"utf-8\"><title>whimbrel</title><p>{text}</p>\n");
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/html; charset=utf-8\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        page.len()
    );
    stream.write_all((head + &page).as_bytes()).await?;
    stream.shutdown().await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_the_service_sent_is_taken() {
        let code = |target: &str| read(target, "s1").map(|brought| brought.ok());
        assert_eq!(code("/?code=wc_1&state=s1"), Some(Some("wc_1".to_owned())));
        assert_eq!(code("/?code=wc_1&state=s2"), None);
        assert_eq!(code("/?code=wc_1"), None);
        assert_eq!(code("/favicon.ico"), None);
        assert_eq!(code("/?state=s1&error=access_denied"), Some(None));
    }

    #[tokio::test]
    async fn the_browser_brings_the_code_whatever_else_knocks() {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a port");
        let address = listener.local_addr().expect("it has one");
        let knock = |text: &'static str| async move {
            let mut stream = TcpStream::connect(address).await.expect("it listens");
            stream.write_all(text.as_bytes()).await.expect("it is taken");
            let mut answer = String::new();
            stream.read_to_string(&mut answer).await.expect("it is answered");
            answer
        };
        let knocks = async {
            let nothing = knock("GET /favicon.ico HTTP/1.1\r\n\r\n").await;
            let forged = knock("GET /?code=evil&state=guess HTTP/1.1\r\n\r\n").await;
            let good = knock("GET /?code=good&state=s1 HTTP/1.1\r\nHost: localhost\r\n\r\n").await;
            (nothing, forged, good)
        };
        let (code, (nothing, forged, good)) = tokio::join!(wait(&listener, "s1"), knocks);
        assert_eq!(code.ok(), Some("good".to_owned()));
        assert!(
            nothing.starts_with("HTTP/1.1 404") && forged.starts_with("HTTP/1.1 404") && good.contains("logged in")
        );
    }
}
