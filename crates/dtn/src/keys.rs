//! Fetches the keys of one issuer of tokens: a process of its own, which may make connections and has nothing else.
//!
//! The front, which needs the keys, can make none; the monitor, which starts this, does not look at what comes.

use std::io::{self, Read, Write};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use whimbrel_engine::{Fault, FaultCode, Side};
use whimbrel_proto::token::discovery::{self, MAX_DOCUMENT};
use whimbrel_proto::token::http::HttpsUrl;

use crate::confine::{self, Needs, Sandbox};
use crate::https::Https;
use crate::parent;

const OP: &str = "fetch keys";

/// Time for all of it; the monitor waits a little longer.
pub const LIMIT: Duration = Duration::from_secs(15);

/// Largest set of keys, bytes: it has to fit a packet to the front.
const MOST_KEYS: usize = 96 << 10;

/// Longest answer of this process, bytes.
pub const MOST_ANSWER: usize = 112 << 10;

/// What this process is told.
#[derive(Debug, Serialize, Deserialize)]
pub struct Question {
    /// The issuer, a URL.
    pub issuer: String,
    /// PEM text of those who vouch for its host; `None`: those of the system.
    pub authorities: Option<Vec<u8>>,
    /// How far it is confined.
    pub sandbox: Sandbox,
}

impl Question {
    /// For the standard input of the process.
    pub fn to_bytes(&self) -> Vec<u8> {
        postcard::to_stdvec(self).expect("texts can always be written")
    }
}

/// The keys in what the process said.
///
/// # Errors
/// Its own fault; `Internal` for something else.
pub fn read(answer: &[u8]) -> Result<Vec<u8>, Fault> {
    postcard::from_bytes(answer)
        .unwrap_or_else(|error| Err(Fault::new(FaultCode::Internal, OP).side(Side::Us).detail(error.to_string())))
}

/// Reads the question from standard input, and writes the keys or the fault to standard output.
pub fn serve_standard_input() -> Result<(), Fault> {
    let failed = |error| Fault::from_io(error, OP).side(Side::Us);
    parent::end_with_parent()?;
    let mut question = Vec::new();
    io::stdin().lock().read_to_end(&mut question).map_err(failed)?;
    let question: Question = postcard::from_bytes(&question)
        .map_err(|_| Fault::new(FaultCode::InvalidArgument, OP).detail("only `whimbrel dtn` starts it"))?;
    confine::enter(&Needs::fetch(), question.sandbox)?;
    let answer = keys(&question);
    let bytes = postcard::to_stdvec(&answer).expect("texts can always be written");
    io::stdout().lock().write_all(&bytes).map_err(failed)
}

fn keys(question: &Question) -> Result<Vec<u8>, Fault> {
    let web = Https::new(OP, question.authorities.as_deref(), Instant::now() + LIMIT)?;
    let mut first = None;
    for place in discovery::places(&question.issuer) {
        match keys_by(&web, &place, &question.issuer) {
            Ok(keys) => return Ok(keys),
            // The second place is for issuers of another make: what the first one said tells more.
            Err(fault) => first = first.or(Some(fault)),
        }
    }
    Err(first.unwrap_or_else(|| fault(&question.issuer, "it is no https URL")))
}

fn fault(subject: &str, detail: impl Into<String>) -> Fault {
    Fault::new(FaultCode::ServerBusy, OP).side(Side::Peer).subject(subject).detail(detail)
}

fn keys_by(web: &Https, place: &HttpsUrl, issuer: &str) -> Result<Vec<u8>, Fault> {
    let description = web.get(place, MAX_DOCUMENT)?;
    let keys = discovery::keys(&description, issuer).map_err(|error| web.fault(place, error.to_string()))?;
    web.get(&keys, MOST_KEYS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_keys_or_the_fault() {
        let said = |answer: Result<Vec<u8>, Fault>| read(&postcard::to_stdvec(&answer).unwrap());
        assert_eq!(said(Ok(b"{}".to_vec())).unwrap(), b"{}");
        assert_eq!(said(Err(fault("https://i", "no"))).unwrap_err().subject, "https://i");
        assert_eq!(read(b"\xff\xff\xff").unwrap_err().code, FaultCode::Internal);
    }

    #[test]
    fn an_issuer_that_is_not_there_or_no_url_is_named() {
        let ask = |issuer: &str| {
            keys(&Question { issuer: issuer.into(), authorities: Some(Vec::new()), sandbox: Sandbox::Off })
        };
        assert_eq!(ask("http://i").unwrap_err().subject, "http://i");
        // A port that was free a moment ago.
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let fault = ask(&format!("https://127.0.0.1:{port}")).unwrap_err();
        assert!(fault.subject.starts_with(&format!("https://127.0.0.1:{port}/")), "{fault}");
    }
}
