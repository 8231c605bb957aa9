//! What users are told of their tasks, over the real server.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc;
use std::time::Duration;

use serde_json::{Value, json};

use super::field::Field;

/// Time for news to come.
const PATIENCE: Duration = Duration::from_secs(60);

/// Reads a request, answers 200, and gives its headers and its document.
fn hear(stream: TcpStream) -> (String, Value) {
    let mut reader = BufReader::new(stream);
    let (mut head, mut length) = (String::new(), 0);
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        if line.trim().is_empty() {
            break;
        }
        if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().unwrap();
        }
        head += &line;
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).unwrap();
    reader.get_mut().write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").unwrap();
    (head, serde_json::from_slice(&body).unwrap())
}

#[test]
fn a_task_is_followed_logged_and_told_of() {
    let Some(field) = Field::new() else { return };
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let place = format!("http://{}/told", listener.local_addr().unwrap());
    let (sender, heard) = mpsc::channel();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            if sender.send(hear(stream.unwrap())).is_err() {
                return;
            }
        }
    });
    let made = field.ask("/v2/whimbrel/webhooks", &json!({"url": place}));
    let secret = made["secret"].as_str().unwrap_or_else(|| panic!("{made}"));

    field.alpha().write("tree/a", "12345");
    field.alpha().write("tree/b", "1");
    let (from, to) = (field.alpha().at("/tree"), field.beta().at("/tree"));
    let quiet = field.submit(&["transfer", "-r", "--notify", "off", &from, &to]);
    // It ends with the task.
    let events = field.fetch(&format!("/v2/whimbrel/tasks/{quiet}/progress"));
    let last = events.trim_end().rsplit("\n\n").next().unwrap();
    assert!(last.starts_with("event: end\n") && last.contains("\"SUCCEEDED\""), "{events}");
    let log = field.fetch(&format!("/v2/whimbrel/tasks/{quiet}/log"));
    let lines: Vec<Value> = log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let copied = |path: &str| lines.iter().any(|line| line["destination_path"] == path && line["state"] == "succeeded");
    assert!(lines.len() == 3 && copied("/tree/a") && copied("/tree/b"), "{log}");

    let loud =
        field.submit(&["transfer", "--notify", "succeeded", &field.alpha().at("/tree/a"), &field.beta().at("/c")]);
    let (head, told) = heard.recv_timeout(PATIENCE).unwrap();
    assert!(head.starts_with("POST /told ") && head.contains(&format!("Bearer {secret}")), "{head}");
    assert_eq!((&told["event"], &told["task"]["task_id"]), (&json!("task.succeeded"), &json!(loud)), "{told}");

    let page = field.fetch("/metrics");
    assert!(page.contains("whimbrel_servers{state=\"ready\"} 2"), "{page}");
}
