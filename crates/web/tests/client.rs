//! The client against the server: TLS, trust, kept connections, limits.
#![allow(clippy::unwrap_used, reason = "a test helper that fails ends its test")]

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::http::HeaderMap;
use axum::routing::{get, post};
use tokio::net::TcpListener;
use tokio::sync::watch;
use whimbrel_engine::FaultCode;
use whimbrel_trust::make::{self, HostName, KeyKind, Life, Purpose};
use whimbrel_trust::peer::OwnChain;
use whimbrel_trust::roots::{HostOfAuthorities, SystemRoots};
use whimbrel_trust::tls::{ClientTls, Clients, ServerTls};
use whimbrel_web::client::{Client, Question};
use whimbrel_web::{Limits, Listen, Security, Server};

/// A server that shows a certificate for a name, and whom to believe to believe it.
async fn start(router: Router, name: &str) -> (SocketAddr, ClientTls, watch::Sender<bool>) {
    let key = make::key(KeyKind::P256).unwrap();
    let names = Purpose::Host(vec![HostName::Dns(name.to_owned())]);
    let life = Life::of(whimbrel_trust::clock::now(), 3600);
    let certificate = make::self_signed("/CN=test", &key, &names, life).unwrap();
    let own = OwnChain { certificate: certificate.clone(), key, chain: Vec::new() };
    let security = Security::Tls(ServerTls::new(&own, &Clients::Unasked, None).unwrap());
    let listen = Listen { address: "127.0.0.1:0".parse().unwrap(), security, limits: Limits::default() };
    let server = Server::bind(listen).await.unwrap();
    let address = server.address();
    let (stop, stopped) = watch::channel(false);
    tokio::spawn(server.serve(router, stopped));
    let judge = HostOfAuthorities::new(SystemRoots::of(vec![certificate]).unwrap(), "localhost");
    (address, ClientTls::new(Arc::new(judge), None).unwrap(), stop)
}

fn echo() -> Router {
    let echo = |headers: HeaderMap, body: Bytes| async move {
        let token = headers.get("authorization").map(|value| value.to_str().unwrap().to_owned()).unwrap_or_default();
        let kind = headers.get("content-type").map(|value| value.to_str().unwrap().to_owned()).unwrap_or_default();
        format!("{token}|{kind}|{}", String::from_utf8_lossy(&body))
    };
    Router::new().route("/base/echo", post(echo)).route("/base/long", get(|| async { "x".repeat(5000) }))
}

fn question<'a>(method: &str, path: &'a str) -> Question<'a> {
    let (method, limit) = (method.parse().unwrap(), Duration::from_secs(60));
    Question { method, path, bearer: None, body: None, limit }
}

#[tokio::test]
async fn a_document_goes_there_with_its_token_and_the_connection_is_kept() {
    let (address, tls, _stop) = start(echo(), "localhost").await;
    let client = Client::new(&format!("https://localhost:{}/base/", address.port()), tls, 1000).unwrap();
    for _ in 0..3 {
        let asked = Question { bearer: Some("abc"), body: Some(b"{}".to_vec()), ..question("POST", "/echo") };
        let answer = client.ask(asked).await.unwrap();
        assert_eq!((answer.status.as_u16(), &answer.body[..]), (200, &b"Bearer abc|application/json|{}"[..]));
    }
    let form = client.ask_form(Question { body: Some(b"a=b".to_vec()), ..question("POST", "/echo") }).await.unwrap();
    assert_eq!(&form.body[..], b"|application/x-www-form-urlencoded|a=b");
    assert_eq!(client.ask(question("GET", "/nothing")).await.unwrap().status.as_u16(), 404);
    let long = client.ask(question("GET", "/long")).await.unwrap_err();
    assert_eq!(long.code, FaultCode::ConnectionLost, "{long}");
    let bad = Question { bearer: Some("a\r\nX: y"), ..question("POST", "/echo") };
    assert_eq!(client.ask(bad).await.unwrap_err().code, FaultCode::InvalidArgument);
}

#[tokio::test]
async fn a_host_with_another_name_is_not_believed() {
    let (address, tls, _stop) = start(echo(), "elsewhere").await;
    let client = Client::new(&format!("https://localhost:{}", address.port()), tls, 1000).unwrap();
    let fault = client.ask(question("GET", "/")).await.unwrap_err();
    assert_eq!(fault.code, FaultCode::PeerIdentity, "{fault}");
}

#[tokio::test]
async fn a_kept_connection_that_the_server_has_closed_is_replaced() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let accepted = Arc::new(AtomicUsize::new(0));
    let count = accepted.clone();
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            count.fetch_add(1, Ordering::SeqCst);
            // It promises to keep the connection, and does not.
            tokio::io::AsyncReadExt::read(&mut stream, &mut [0; 4096]).await.unwrap();
            let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
            tokio::io::AsyncWriteExt::write_all(&mut stream, answer).await.unwrap();
        }
    });
    let (_, tls, _stop) = start(echo(), "localhost").await;
    let client = Client::new(&url, tls, 1000).unwrap();
    for _ in 0..3 {
        assert_eq!(&client.ask(question("GET", "/")).await.unwrap().body[..], b"ok");
    }
    assert_eq!(accepted.load(Ordering::SeqCst), 3);
}

#[tokio::test]
async fn an_answer_that_does_not_come_is_a_fault_in_time() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let (_, tls, _stop) = start(echo(), "localhost").await;
    let client = Client::new(&url, tls, 1000).unwrap();
    let fault = client.ask(Question { limit: Duration::from_millis(20), ..question("GET", "/") });
    let fault = fault.await.unwrap_err();
    assert_eq!(fault.code, FaultCode::TimedOut, "{fault}");
}

#[tokio::test]
async fn places_that_cannot_be_asked_safely_are_refused() {
    let (_, tls, _stop) = start(echo(), "localhost").await;
    for url in ["http://example.org", "ftp://h", "https://", "https://u@h", "https://h?x", "nonsense"] {
        assert_eq!(Client::new(url, tls.clone(), 10).unwrap_err().code, FaultCode::InvalidArgument, "{url}");
    }
}
