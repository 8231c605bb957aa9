use proptest::prelude::*;

use super::*;

fn read(wire: &str) -> Result<Answer, HttpError> {
    let mut reader = AnswerReader::new(100);
    reader.feed(wire.as_bytes())?;
    reader.finish()
}

fn document(text: &str) -> Result<Answer, HttpError> {
    Ok(Answer::Document(text.as_bytes().to_vec()))
}

#[test]
fn places_are_read_and_asked_for() {
    for (text, host, port, path) in [
        ("https://iam.example.org", "iam.example.org", 443, "/"),
        ("https://IAM.example.org/a/b?c=d", "iam.example.org", 443, "/a/b?c=d"),
        ("https://h:8443?x", "h", 8443, "/?x"),
        ("https://[2001:db8::1]:1/k", "2001:db8::1", 1, "/k"),
        ("https://[::1]", "::1", 443, "/"),
    ] {
        let url = HttpsUrl::parse(text).unwrap();
        assert_eq!((url.host(), url.port(), url.path()), (host, port, path), "{text}");
    }
    let request = HttpsUrl::parse("https://[::1]:81/k").unwrap().request();
    assert!(request.starts_with(b"GET /k HTTP/1.1\r\nHost: [::1]:81\r\n") && request.ends_with(b"close\r\n\r\n"));
    let request = HttpsUrl::parse("https://h/").unwrap().request();
    assert!(request.starts_with(b"GET / HTTP/1.1\r\nHost: h\r\n"));
    for bad in [
        "http://h/",
        "https://",
        "https:///x",
        "https://u@h/",
        "https://h:0/",
        "https://h:x/",
        "https://h:99999/",
        "https://h:/",
        "https://h:+1/",
        "https://h/a b",
        "https://h/a\r\nX: y",
        "https://h/#f",
        "https://[::1/",
        "https://[::1]x/",
        "https://h\u{e9}/",
        "https://a:b:1/",
        "https://h*/",
    ] {
        assert_eq!(HttpsUrl::parse(bad), None, "{bad}");
    }
    assert_eq!(HttpsUrl::parse(&format!("https://h/{}", "x".repeat(MAX_URL))), None);
}

#[test]
fn redirections_stay_on_their_host() {
    let here = HttpsUrl::parse("https://h:81/a").unwrap();
    let there = |location: &str| here.redirected(location).map(|url| (url.port(), url.path().to_owned()));
    assert_eq!(there("https://H:81/b"), Some((81, "/b".into())));
    assert_eq!(there("/c?d"), Some((81, "/c?d".into())));
    for elsewhere in ["https://h/b", "https://evil:81/", "//evil/x", "http://h:81/", "c", "", "/a b", "/x\r\ny"] {
        assert_eq!(there(elsewhere), None, "{elsewhere:?}");
    }
}

#[test]
fn documents_come_with_a_length_in_chunks_or_to_the_end() {
    assert_eq!(read("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"), document("{}"));
    assert_eq!(read("HTTP/1.0 200\r\n\r\n{}"), document("{}"));
    assert_eq!(read("HTTP/1.1 200 OK\r\ncontent-length:0\r\n\r\n"), document(""));
    let chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked\r\n\r\n1\r\n{\r\n00A;x=y\r\n\"a\":12345,\r\n1\r\n}\r\n0\r\nX: y\r\n\r\n";
    assert_eq!(read(chunked), document("{\"a\":12345,}"));
    let interim = "HTTP/1.1 103 Early\r\nLink: x\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nxmore";
    assert_eq!(read(interim), document("x"));
}

#[test]
fn other_answers_are_told_by_their_status() {
    assert_eq!(read("HTTP/1.1 404 Not Found\r\nContent-Length: 9999\r\n\r\n<html>"), Ok(Answer::Status(404)));
    assert_eq!(read("HTTP/1.1 500 x\r\nContent-Length: 9\r\n\r\n<ht"), Ok(Answer::Status(500)));
    assert_eq!(read("HTTP/1.1 503 x\r\n\r\nbusy"), Ok(Answer::Status(503)));
    assert_eq!(read("HTTP/1.1 204 x\r\n\r\n"), Ok(Answer::Status(204)));
    let moved = "HTTP/1.1 308 x\r\nLocation:  https://h/b \r\nContent-Length: 0\r\n\r\n";
    assert_eq!(read(moved), Ok(Answer::Moved("https://h/b".into())));
    assert_eq!(read("HTTP/1.1 302 x\r\nContent-Length: 0\r\n\r\n"), Ok(Answer::Status(302)));
}

#[test]
fn an_answer_that_is_cut_is_no_document() {
    let whole = "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nabcd";
    for end in 0..whole.len() {
        assert_eq!(read(&whole[..end]), Err(HttpError::Cut), "{end}");
    }
    let whole = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n0\r\n\r\n";
    for end in 0..whole.len() {
        assert_eq!(read(&whole[..end]), Err(HttpError::Cut), "{end}");
    }
    assert_eq!(read(whole), document("ab"));
}

#[test]
fn tricks_with_lengths_and_lines_are_refused() {
    let with = |fields: &str| read(&format!("HTTP/1.1 200 OK\r\n{fields}\r\n\r\nab"));
    for bad in [
        "Content-Length: 1\r\nContent-Length: 2",
        "Content-Length: 1\r\nTransfer-Encoding: chunked",
        "Content-Length: +2",
        "Content-Length: 2, 2",
        "Content-Length:",
        "Content-Length: 99999999999999",
        "Content-Length : 2",
        " folded: 2",
        "nocolon",
        ": x",
        "a\tb: c",
    ] {
        assert_eq!(with(bad), Err(HttpError::Form), "{bad}");
    }
    assert_eq!(with("Content-Length: 2\r\nContent-Length: 2"), document("ab"));
    for encoded in [
        "Transfer-Encoding: gzip, chunked",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
        "Content-Encoding: gzip",
    ] {
        assert_eq!(with(encoded), Err(HttpError::Encoding), "{encoded}");
    }
    for bad in [
        "HTTP/2 200 OK\r\n",
        "HTTP/1.1 20\r\n",
        "HTTP/1.1 2000\r\n",
        "HTTP/1.1 099 x\r\n",
        "HTTP/1.1 600 x\r\n",
        "\r\n",
        "HTTP/1.1 200 OK\n",
        "ICY 200 OK\r\n",
        "HTTP/1.1 101 x\r\n\r\n",
    ] {
        assert_eq!(read(bad), Err(HttpError::Form), "{bad:?}");
    }
    let chunked = |chunks: &str| read(&format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{chunks}"));
    for bad in ["x\r\n", "\r\n", "-1\r\n", "1\r\nab\r\n", "fffffffff\r\n", "0x1\r\n", "1\r\na0\r\n\r\n"] {
        assert_eq!(chunked(bad), Err(HttpError::Form), "{bad:?}");
    }
    let interim = "HTTP/1.1 100 x\r\n\r\n".repeat(5);
    assert_eq!(read(&interim), Err(HttpError::Form));
}

#[test]
fn nothing_is_longer_than_it_may_be() {
    let long = "x".repeat(101);
    assert_eq!(read("HTTP/1.1 200 OK\r\nContent-Length: 101\r\n\r\n"), Err(HttpError::TooLong));
    assert_eq!(read(&format!("HTTP/1.1 200 OK\r\n\r\n{long}")), Err(HttpError::TooLong));
    assert_eq!(
        read(&format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n65\r\n{long}")),
        Err(HttpError::TooLong)
    );
    assert_eq!(read(&format!("HTTP/1.1 200 OK\r\nX: {}", "x".repeat(MAX_HEAD))), Err(HttpError::TooLong));
    assert_eq!(read(&format!("HTTP/1.1 200 OK\r\n{}", "X: y\r\n".repeat(MAX_HEAD / 6))), Err(HttpError::TooLong));
}

proptest! {
    #[test]
    fn pieces_read_as_the_whole_does(which in 0usize..4, cuts in proptest::collection::vec(1usize..12, 0..20)) {
        let wires = [
            "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nabcd",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n3\r\ncde\r\n0\r\n\r\n",
            "HTTP/1.1 301 x\r\nLocation: /y\r\n\r\nbody",
            "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
        ];
        let mut rest = wires[which].as_bytes();
        let mut reader = AnswerReader::new(100);
        let mut found = Ok(false);
        let mut cuts = cuts.into_iter().cycle().chain(std::iter::repeat(1));
        while !rest.is_empty() && found == Ok(false) {
            let (piece, behind) = rest.split_at(cuts.next().unwrap().min(rest.len()));
            found = reader.feed(piece);
            rest = behind;
        }
        let found = found.and_then(|_| reader.finish());
        prop_assert_eq!(found, read(wires[which]));
    }
}

#[test]
fn a_document_is_handed_in_with_its_token() {
    let place = HttpsUrl::parse("https://[::1]:8443/base").unwrap().at("/v1/servers?x=1").unwrap();
    let sent = String::from_utf8(place.post("abc.def", b"{}").unwrap()).unwrap();
    assert!(sent.starts_with("POST /v1/servers?x=1 HTTP/1.1\r\nHost: [::1]:8443\r\n"), "{sent}");
    assert!(sent.contains("\r\nAuthorization: Bearer abc.def\r\n") && sent.contains("\r\nContent-Length: 2\r\n"));
    assert!(sent.ends_with("\r\n\r\n{}"));
    for bad in ["", "a b", "a\r\nX: y", "\u{fc}"] {
        assert_eq!(place.post(bad, b"{}"), None, "{bad:?}");
    }
    for bad in ["x", "/a b", "/a#b", ""] {
        assert_eq!(place.at(bad), None, "{bad:?}");
    }
}
