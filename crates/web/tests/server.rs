//! The server over real connections: TLS, limits, stop.
#![allow(clippy::unwrap_used, reason = "a test helper that fails ends its test")]

use std::net::SocketAddr;
use std::pin::Pin;
use std::time::Duration;

use axum::Router;
use axum::routing::get;
use openssl::ssl::{SslConnector, SslMethod};
use openssl::x509::store::X509StoreBuilder;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_openssl::SslStream;
use whimbrel_trust::make::{self, HostName, KeyKind, Life, Purpose};
use whimbrel_trust::peer::OwnChain;
use whimbrel_trust::tls::{Clients, ServerTls};
use whimbrel_web::{BodyLimits, Limits, Listen, Security, Server, WebError, body};

struct Running {
    address: SocketAddr,
    stop: watch::Sender<bool>,
    task: JoinHandle<()>,
}

async fn start(security: Security, limits: Limits, router: Router) -> Running {
    let listen = Listen { address: "127.0.0.1:0".parse().unwrap(), security, limits };
    let server = Server::bind(listen).await.unwrap();
    let (stop, stopped) = watch::channel(false);
    Running { address: server.address(), stop, task: tokio::spawn(server.serve(router, stopped)) }
}

fn hello() -> Router {
    Router::new().route("/", get(|| async { "hello" }))
}

async fn ask(mut stream: impl AsyncRead + AsyncWrite + Unpin, request: &str) -> String {
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer
}

const CLOSE: &str = "GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";

#[tokio::test]
async fn a_request_over_tls_is_answered_with_its_id() {
    let key = make::key(KeyKind::P256).unwrap();
    let names = Purpose::Host(vec![HostName::Dns("localhost".to_owned())]);
    let life = Life::of(whimbrel_trust::clock::now(), 3600);
    let certificate = make::self_signed("/CN=localhost", &key, &names, life).unwrap();
    let own = OwnChain { certificate: certificate.clone(), key, chain: Vec::new() };
    let tls = ServerTls::new(&own, &Clients::Unasked, None).unwrap();
    let running = start(Security::Tls(tls), Limits::default(), hello()).await;

    let mut connector = SslConnector::builder(SslMethod::tls_client()).unwrap();
    let mut believed = X509StoreBuilder::new().unwrap();
    believed.add_cert(certificate).unwrap();
    connector.set_cert_store(believed.build());
    let ssl = connector.build().configure().unwrap().into_ssl("localhost").unwrap();
    let mut stream = SslStream::new(ssl, TcpStream::connect(running.address).await.unwrap()).unwrap();
    Pin::new(&mut stream).connect().await.unwrap();
    let answer = ask(stream, CLOSE).await;
    assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("hello"), "{answer}");
    let id = answer.lines().find_map(|line| line.strip_prefix("x-request-id: ")).unwrap();
    assert_eq!(id.len(), 9, "{answer}");

    // Somebody without TLS learns nothing, and harms nobody.
    let mut clear = TcpStream::connect(running.address).await.unwrap();
    clear.write_all(CLOSE.as_bytes()).await.unwrap();
    let mut bytes = Vec::new();
    let _reset = clear.read_to_end(&mut bytes).await;
    assert!(!bytes.starts_with(b"HTTP"), "{bytes:?}");
}

#[tokio::test]
async fn without_tls_only_this_host_is_served() {
    let address = "0.0.0.0:0".parse().unwrap();
    let listen = Listen { address, security: Security::Loopback, limits: Limits::default() };
    assert!(matches!(Server::bind(listen).await, Err(WebError::Clear { .. })));
}

#[tokio::test]
async fn a_head_that_does_not_end_is_given_up() {
    let limits = Limits { head: Duration::from_millis(50), ..Limits::default() };
    let running = start(Security::Loopback, limits, hello()).await;
    let stream = TcpStream::connect(running.address).await.unwrap();
    let answer = ask(stream, "GET / HTTP/1.1\r\nHost: loc").await;
    assert!(!answer.contains("hello"), "{answer}");
}

#[tokio::test]
async fn heads_that_are_too_large_are_refused() {
    let running = start(Security::Loopback, Limits::default(), hello()).await;
    let many = "X-A: b\r\n".repeat(100);
    let large = format!("X-A: {}\r\n", "b".repeat(40 << 10));
    for fields in [many, large] {
        let stream = TcpStream::connect(running.address).await.unwrap();
        let answer = ask(stream, &format!("GET / HTTP/1.1\r\nHost: h\r\n{fields}\r\n")).await;
        assert!(answer.starts_with("HTTP/1.1 431"), "{answer}");
    }
}

#[tokio::test]
async fn connections_of_one_network_have_a_limit_and_their_places_come_back() {
    let mut limits = Limits::default();
    limits.doors.per_network = 1;
    let running = start(Security::Loopback, limits, hello()).await;
    let mut first = TcpStream::connect(running.address).await.unwrap();
    first.write_all(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n").await.unwrap();
    let mut begin = [0; 12];
    first.read_exact(&mut begin).await.unwrap();
    assert_eq!(&begin, b"HTTP/1.1 200");
    let mut second = TcpStream::connect(running.address).await.unwrap();
    assert!(second.read(&mut [0; 1]).await.map_or(true, |count| count == 0));
    drop(first);
    // The place is free once the server has seen the end.
    loop {
        let mut next = TcpStream::connect(running.address).await.unwrap();
        let sent = next.write_all(CLOSE.as_bytes()).await;
        let mut answer = String::new();
        if sent.is_ok() && next.read_to_string(&mut answer).await.is_ok() && answer.ends_with("hello") {
            return;
        }
    }
}

#[tokio::test]
async fn a_slow_body_is_given_up() {
    let limits = BodyLimits { most: 1 << 20, grace: Duration::from_millis(50), bytes_per_second: 1 << 20 };
    let router = Router::new().route(
        "/",
        axum::routing::post(move |request: axum::extract::Request| async move {
            body::read(request.into_body(), limits).await.map_or_else(|error| error.to_string(), |_| "whole".to_owned())
        }),
    );
    let running = start(Security::Loopback, Limits::default(), router).await;
    let mut stream = TcpStream::connect(running.address).await.unwrap();
    stream.write_all(b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 10\r\n\r\nabc").await.unwrap();
    let mut answer = vec![0; 4096];
    let mut length = 0;
    while !String::from_utf8_lossy(&answer[..length]).contains("too slowly") {
        let count = stream.read(&mut answer[length..]).await.unwrap();
        assert!(count > 0, "{:?}", String::from_utf8_lossy(&answer[..length]));
        length += count;
    }
}

#[tokio::test]
async fn a_stop_lets_a_running_request_end_and_takes_no_more() {
    let (begun, mut begins) = watch::channel(false);
    let (release, released) = watch::channel(false);
    let router = Router::new().route(
        "/",
        get(move || {
            let (begun, mut released) = (begun.clone(), released.clone());
            async move {
                begun.send_replace(true);
                let _released = released.wait_for(|now| *now).await;
                "late"
            }
        }),
    );
    let running = start(Security::Loopback, Limits::default(), router).await;
    let address = running.address;
    let asked = tokio::spawn(async move { ask(TcpStream::connect(address).await.unwrap(), CLOSE).await });
    begins.wait_for(|now| *now).await.unwrap();
    running.stop.send(true).unwrap();
    while TcpStream::connect(address).await.is_ok() {}
    release.send_replace(true);
    assert!(asked.await.unwrap().ends_with("late"));
    running.task.await.unwrap();
}
