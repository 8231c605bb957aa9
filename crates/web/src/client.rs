//! Asks an HTTPS server: what orchestrators, DTNs and notices do.

use std::fmt;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Mutex;
use std::time::Duration;

use base64ct::{Base64, Encoding as _};
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper::header::{AUTHORIZATION, CONNECTION, CONTENT_TYPE, HOST, HeaderValue, UPGRADE};
pub use hyper::{Method, StatusCode};
use hyper::{Request, Response, Uri};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, lookup_host};
use tokio::time::timeout;
use tokio_openssl::SslStream;
use whimbrel_engine::{Fault, FaultCode, Side};
use whimbrel_trust::tls::{ClientTls, verdict};

use crate::upgrade::Line;

const OP: &str = "ask the service";

/// Connections that wait for the next request.
const MOST_IDLE: usize = 4;

/// Time for a connection and its handshake.
const CONNECT: Duration = Duration::from_secs(20);

/// Kinds of bodies.
const JSON: &str = "application/json";
const FORM: &str = "application/x-www-form-urlencoded";

/// An answer.
#[derive(Debug)]
pub struct Answer {
    /// Its status.
    pub status: StatusCode,
    /// Its body.
    pub body: Bytes,
}

/// A server that is asked, again and again; connections are kept.
pub struct Client {
    host: String,
    port: u16,
    /// Where its paths begin, without a slash at the end.
    base: String,
    tls: Option<ClientTls>,
    /// Longest body of an answer, bytes.
    most: usize,
    idle: Mutex<Vec<SendRequest<Full<Bytes>>>>,
    /// Only hosts that everybody can reach are asked.
    public: bool,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Client({}:{})", self.host, self.port)
    }
}

/// How it is asked.
#[derive(Clone, Copy)]
struct Manner<'a> {
    /// Of what kind the body is.
    kind: &'static str,
    /// An OAuth2 client's id and secret.
    basic: Option<(&'a str, &'a str)>,
}

/// What is asked.
#[derive(Debug, Clone)]
pub struct Question<'a> {
    /// The method.
    pub method: Method,
    /// Path and query, below the server's base.
    pub path: &'a str,
    /// The token that is shown.
    pub bearer: Option<&'a str>,
    /// A JSON document, or a form.
    pub body: Option<Vec<u8>>,
    /// Time for the whole answer.
    pub limit: Duration,
}

impl Client {
    /// A client of the server at `url`: `https://HOST[:PORT][/PATH]` with `tls`, or `http://` to this host itself.
    ///
    /// # Errors
    /// `InvalidArgument`: it is no such URL.
    pub fn new(url: &str, tls: ClientTls, most: usize) -> Result<Self, Fault> {
        let bad = |detail: &str| Fault::new(FaultCode::InvalidArgument, OP).subject(url).detail(detail);
        let uri: Uri = url.parse().map_err(|_| bad("it is no URL"))?;
        let host = uri.host().filter(|host| !host.is_empty()).ok_or_else(|| bad("it names no host"))?;
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        let (tls, port) = match uri.scheme_str() {
            Some("https") => (Some(tls), 443),
            Some("http") if is_this_host(&host) => (None, 80),
            Some("http") => return Err(bad("without TLS only this host itself is asked; use https")),
            _ => return Err(bad("it begins with https://")),
        };
        if uri.query().is_some() || uri.authority().is_some_and(|authority| authority.as_str().contains('@')) {
            return Err(bad("it holds more than host, port and path"));
        }
        let port = uri.port_u16().unwrap_or(port);
        let base = uri.path().trim_end_matches('/').to_owned();
        Ok(Self { host, port, base, tls, most, idle: Mutex::default(), public: false })
    }

    /// The host that it asks, without brackets.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The same, that asks hosts with public addresses only: for places that strangers name, who might mean one in our own networks.
    pub fn to_public_hosts(self) -> Self {
        Self { public: true, ..self }
    }

    /// Asks. A kept connection that breaks before an answer begins is replaced once, since servers close idle ones.
    ///
    /// # Errors
    /// No connection, no answer in time, an answer that is too long; what the server answered is no error here.
    pub async fn ask(&self, question: Question<'_>) -> Result<Answer, Fault> {
        self.ask_in_time(&question, Manner { kind: JSON, basic: None }).await
    }

    /// Asks as [`Self::ask`] does, with a body that is a form, as OAuth2 has it (RFC 6749 §4.1.3).
    ///
    /// # Errors
    /// As [`Self::ask`].
    pub async fn ask_form(&self, question: Question<'_>) -> Result<Answer, Fault> {
        self.ask_in_time(&question, Manner { kind: FORM, basic: None }).await
    }

    /// The same in the name of an OAuth2 client, by its id and secret (RFC 6749 §2.3.1).
    ///
    /// # Errors
    /// As [`Self::ask`].
    pub async fn ask_form_as(&self, client: (&str, &str), question: Question<'_>) -> Result<Answer, Fault> {
        self.ask_in_time(&question, Manner { kind: FORM, basic: Some(client) }).await
    }

    /// Asks on a connection of its own to go on as `protocol`; an answer that declines is the inner error.
    ///
    /// # Errors
    /// No connection, or no answer; who calls it bounds the time.
    pub async fn upgrade(
        &self,
        path: &str,
        bearer: Option<&str>,
        protocol: &'static str,
    ) -> Result<Result<Line, Answer>, Fault> {
        let question = Question { method: Method::GET, path, bearer, body: None, limit: CONNECT };
        let mut request = self.request(&question, Manner { kind: JSON, basic: None })?;
        request.headers_mut().insert(CONNECTION, HeaderValue::from_static("upgrade"));
        request.headers_mut().insert(UPGRADE, HeaderValue::from_static(protocol));
        let broken = |error: hyper::Error| self.fault(FaultCode::ConnectionLost, error.to_string());
        let response = self.connect().await?.send_request(request).await.map_err(broken)?;
        if response.status() == StatusCode::SWITCHING_PROTOCOLS {
            return Ok(Ok(hyper::upgrade::on(response).await.map_err(broken)?.into()));
        }
        self.answer(response).await.map(Err)
    }

    async fn ask_in_time(&self, question: &Question<'_>, manner: Manner<'_>) -> Result<Answer, Fault> {
        let limit = question.limit;
        timeout(limit, self.ask_at_leisure(question, manner))
            .await
            .unwrap_or_else(|_| Err(self.fault(FaultCode::TimedOut, format!("no answer within {} s", limit.as_secs()))))
    }

    async fn ask_at_leisure(&self, question: &Question<'_>, manner: Manner<'_>) -> Result<Answer, Fault> {
        let kept = self.idle.lock().expect("nothing panics with it").pop();
        if let Some(connection) = kept.filter(|connection| !connection.is_closed())
            && let Ok(answer) = self.ask_on(connection, question, manner).await?
        {
            return Ok(answer);
        }
        let connection = self.connect().await?;
        self.ask_on(connection, question, manner).await?
    }

    /// The inner fault: the connection broke, and whether the server acted is unknown.
    async fn ask_on(
        &self,
        mut connection: SendRequest<Full<Bytes>>,
        question: &Question<'_>,
        manner: Manner<'_>,
    ) -> Result<Result<Answer, Fault>, Fault> {
        let request = self.request(question, manner)?;
        let broken = |error: hyper::Error| self.fault(FaultCode::ConnectionLost, error.to_string());
        let response = match connection.send_request(request).await {
            Ok(response) => response,
            Err(error) => return Ok(Err(broken(error))),
        };
        let answer = self.answer(response).await?;
        if connection.ready().await.is_ok() {
            let mut idle = self.idle.lock().expect("nothing panics with it");
            if idle.len() < MOST_IDLE {
                idle.push(connection);
            }
        }
        Ok(Ok(answer))
    }

    async fn answer(&self, response: Response<Incoming>) -> Result<Answer, Fault> {
        let status = response.status();
        let body = Limited::new(response.into_body(), self.most).collect().await;
        let body = body.map_err(|error| self.fault(FaultCode::ConnectionLost, error.to_string()))?.to_bytes();
        Ok(Answer { status, body })
    }

    fn request(&self, question: &Question<'_>, manner: Manner<'_>) -> Result<Request<Full<Bytes>>, Fault> {
        let bad = |detail: String| self.fault(FaultCode::InvalidArgument, detail);
        let mut request = Request::builder()
            .method(question.method.clone())
            .uri(format!("{}{}", self.base, question.path))
            .header(HOST, self.authority());
        let basic = manner.basic.map(|(id, secret)| {
            let encoded = |text: &str| form_urlencoded::byte_serialize(text.as_bytes()).collect::<String>();
            let pair = format!("{}:{}", encoded(id), encoded(secret));
            format!("Basic {}", Base64::encode_string(pair.as_bytes()))
        });
        if let Some(shown) = question.bearer.map(|token| format!("Bearer {token}")).or(basic) {
            let mut value = HeaderValue::try_from(shown)
                .map_err(|_| bad("the token holds characters that no header takes".into()))?;
            value.set_sensitive(true);
            request = request.header(AUTHORIZATION, value);
        }
        if question.body.is_some() {
            request = request.header(CONTENT_TYPE, manner.kind);
        }
        let body = Full::new(Bytes::from(question.body.clone().unwrap_or_default()));
        request.body(body).map_err(|error| bad(error.to_string()))
    }

    fn authority(&self) -> String {
        let (open, close) = if self.host.contains(':') { ("[", "]") } else { ("", "") };
        format!("{open}{}{close}:{}", self.host, self.port)
    }

    async fn connect(&self) -> Result<SendRequest<Full<Bytes>>, Fault> {
        let connected = timeout(CONNECT, async {
            let failed = |error| Fault::from_io(error, OP).subject(self.authority());
            // Looked up once: what was judged is what is connected to.
            let addresses: Vec<_> = lookup_host((self.host.as_str(), self.port)).await.map_err(failed)?.collect();
            if self.public && !addresses.iter().all(|address| is_public(address.ip())) {
                return Err(self.fault(FaultCode::NotAuthorized, "its address is not one of the public network"));
            }
            let stream = TcpStream::connect(&addresses[..]).await.map_err(failed)?;
            // Small requests are not to wait for acknowledgements; where that cannot be set they do.
            let _set = stream.set_nodelay(true);
            match &self.tls {
                Some(tls) => self.speak(self.handshake(tls, stream).await?).await,
                None => self.speak(stream).await,
            }
        });
        connected.await.unwrap_or_else(|_| Err(self.fault(FaultCode::TimedOut, "no connection in time")))
    }

    async fn handshake(&self, tls: &ClientTls, stream: TcpStream) -> Result<SslStream<TcpStream>, Fault> {
        let ssl = tls.connection(&self.host).map_err(|fault| fault.into_fault(OP, Side::Service))?;
        let broken = |detail: String| self.fault(FaultCode::ConnectionLost, detail);
        let mut stream = SslStream::new(ssl, stream).map_err(|error| broken(error.to_string()))?;
        match Pin::new(&mut stream).connect().await {
            Ok(()) => Ok(stream),
            // Why the host is not believed says more than that the handshake failed.
            Err(error) => Err(match verdict(stream.ssl()) {
                Some(Err(fault)) => fault.into_fault(OP, Side::Service),
                _ => broken(error.to_string()),
            }),
        }
    }

    async fn speak<S>(&self, stream: S) -> Result<SendRequest<Full<Bytes>>, Fault>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let spoken = http1::handshake(TokioIo::new(stream)).await;
        let (sender, connection) = spoken.map_err(|error| self.fault(FaultCode::ConnectionLost, error.to_string()))?;
        // It ends when the sender is dropped; how a connection breaks is told to whoever asks on it.
        drop(tokio::spawn(connection.with_upgrades()));
        Ok(sender)
    }

    fn fault(&self, code: FaultCode, detail: impl Into<String>) -> Fault {
        Fault::new(code, OP).side(Side::Service).subject(self.authority()).detail(detail)
    }
}

/// Whether an address belongs to the public network (the registries of RFC 6890); one that carries another is that one.
fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => {
            let [a, b, c, _] = v4.octets();
            let special = v4.is_private() || v4.is_loopback() || v4.is_link_local() || v4.is_multicast();
            let shared = a == 100 && b & 0xc0 == 64;
            let tests = v4.is_documentation() || (a == 198 && b & 0xfe == 18) || (a, b, c) == (192, 0, 0);
            !(special || shared || tests || a == 0 || a >= 240)
        }
        IpAddr::V6(v6) => {
            let parts = v6.segments();
            // Global unicast is 2000::/3; of that, addresses that carry IPv4 ones (6to4, Teredo) and those of documents are not meant.
            let carries = parts[0] == 0x2002 || (parts[0] == 0x2001 && (parts[1] == 0 || parts[1] == 0xdb8));
            match v6.to_ipv4_mapped() {
                Some(v4) => is_public(IpAddr::V4(v4)),
                None => parts[0] & 0xe000 == 0x2000 && !carries,
            }
        }
    }
}

/// Whether nobody else hears what is said there.
fn is_this_host(host: &str) -> bool {
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
pub(crate) mod tests {
    use std::sync::Arc;

    use whimbrel_trust::roots::{HostOfAuthorities, SystemRoots};

    use super::*;

    /// A client of a server on this host.
    pub(crate) fn client(url: &str) -> Client {
        let nobody = HostOfAuthorities::new(SystemRoots::of(Vec::new()).unwrap(), "localhost");
        Client::new(url, ClientTls::new(Arc::new(nobody), None).unwrap(), 1 << 10).unwrap()
    }

    #[test]
    fn only_addresses_of_the_public_network_are_public() {
        for public in ["1.1.1.1", "100.128.0.1", "172.32.0.1", "192.0.1.1", "2606:4700::1", "::ffff:8.8.8.8"] {
            assert!(is_public(public.parse().unwrap()), "{public}");
        }
        for private in [
            "0.0.0.0",
            "10.1.2.3",
            "100.64.0.1",
            "127.0.0.1",
            "169.254.169.254",
            "172.16.0.1",
            "192.168.1.1",
            "192.0.0.8",
            "198.18.0.1",
            "203.0.113.1",
            "224.0.0.1",
            "240.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "fe80::1",
            "fc00::1",
            "ff02::1",
            "2001:db8::1",
            "2002:7f00:1::",
            "::ffff:127.0.0.1",
            "64:ff9b::7f00:1",
        ] {
            assert!(!is_public(private.parse().unwrap()), "{private}");
        }
    }
}
