//! The way to a service, and why its host is believed.

use std::sync::Arc;

use serde_json::Value;
use whimbrel_dtn::client::security::known_hosts;
use whimbrel_engine::{Fault, FaultCode, Side};
use whimbrel_trust::TrustFault;
use whimbrel_trust::peer::PeerJudge;
use whimbrel_trust::pins::{HostName, PinJudge, PinVerdict, Pins};
use whimbrel_trust::roots::{HostJudge, HostOfAuthorities, SystemRoots};
use whimbrel_trust::tls::ClientTls;
use whimbrel_web::Line;
use whimbrel_web::client::{Answer, Client, Question};

use super::odd;
use super::refusal::{Refusal, Trouble};

const OP: &str = "reach the service";

/// Longest answer, bytes: a listing of 100,000 files.
const LONGEST: usize = 128 << 20;

/// A service that can be asked.
pub struct Reach {
    client: Client,
    known: Option<Known>,
}

/// What is known of a host that no authority vouches for.
struct Known {
    judge: Arc<HostJudge>,
    pins: Pins,
    name: HostName,
}

impl Reach {
    /// The service at a URL; `authorities` (PEM) vouch for its host, else the system's, or the key it showed at the first visit.
    /// `newcomers`: this may be that visit.
    ///
    /// # Errors
    /// It is no URL, or the authorities are none.
    pub fn new(url: &str, authorities: Option<&str>, newcomers: bool) -> Result<Self, Trouble> {
        let (host, port) =
            address(url).ok_or_else(|| Trouble::Usage(format!("{url} is no service as in https://HOST:8443")))?;
        let refused = |fault: TrustFault| Trouble::Fault(fault.into_fault(OP, Side::Us));
        let (judge, known): (Arc<dyn PeerJudge>, _) = match authorities {
            Some(pem) => {
                let roots = SystemRoots::of_pem(pem.as_bytes()).map_err(refused)?;
                (Arc::new(HostOfAuthorities::new(roots, &host)), None)
            }
            None => {
                let known = Known::of(&host, port, newcomers)?;
                (known.judge.clone(), Some(known))
            }
        };
        let tls = ClientTls::new(judge, None).map_err(refused)?;
        Ok(Self { client: Client::new(url, tls, LONGEST)?, known })
    }

    /// Remembers the key of a host that was visited for the first time; the key, if it was that.
    ///
    /// # Errors
    /// The file of known hosts cannot be written.
    pub fn remember(&self) -> Result<Option<String>, Trouble> {
        let Some(known) = &self.known else { return Ok(None) };
        let Some((key, PinVerdict::First)) = known.judge.pins.found() else { return Ok(None) };
        let refused = |fault: TrustFault| Trouble::Fault(fault.into_fault(OP, Side::Us));
        known.pins.remember(&known.name, &key).map_err(refused)?;
        Ok(Some(key.to_string()))
    }

    /// The document that a question is answered with.
    ///
    /// # Errors
    /// No answer, or a refusal.
    pub async fn ask(&self, question: Question<'_>) -> Result<Value, Trouble> {
        document(self.client.ask(question).await)
    }

    /// A connection to the service that goes on as something else; the inner error: the status of its refusal.
    ///
    /// # Errors
    /// No connection, or no answer.
    pub async fn upgrade(&self, path: &str, bearer: &str, protocol: &'static str) -> Result<Result<Line, u16>, Fault> {
        let asked = self.client.upgrade(path, Some(bearer), protocol).await?;
        Ok(asked.map_err(|answer| answer.status.as_u16()))
    }

    /// The lines of JSON that a question is answered with, as the elements of a list.
    ///
    /// # Errors
    /// As [`Self::ask`].
    pub async fn ask_lines(&self, question: Question<'_>) -> Result<Value, Trouble> {
        let body = good(self.client.ask(question).await)?;
        body.split(|&byte| byte == b'\n').filter(|line| !line.is_empty()).map(json).collect()
    }

    /// The same for a form.
    ///
    /// # Errors
    /// As [`Self::ask`].
    pub async fn ask_form(&self, question: Question<'_>) -> Result<Value, Trouble> {
        document(self.client.ask_form(question).await)
    }
}

impl Known {
    fn of(host: &str, port: u16, newcomers: bool) -> Result<Self, Trouble> {
        let (Some(name), Some(pins)) = (HostName::new(host, port), known_hosts().map(Pins::new)) else {
            let fault = Fault::new(FaultCode::CredentialMissing, OP).side(Side::Us).subject(host);
            return Err(fault.detail("there is no place for known hosts: set HOME or XDG_CONFIG_HOME").into());
        };
        let pinned = PinJudge::new(pins.clone(), name.clone(), newcomers);
        Ok(Self { judge: Arc::new(HostJudge::new(SystemRoots::shared, host, pinned)), pins, name })
    }
}

fn document(answer: Result<Answer, Fault>) -> Result<Value, Trouble> {
    json(&good(answer)?)
}

/// The body of a good answer.
fn good(answer: Result<Answer, Fault>) -> Result<Vec<u8>, Trouble> {
    let answer = answer.map_err(|fault| fault.side_if_unknown(Side::Service))?;
    if !answer.status.is_success() {
        return Err(Refusal::read(answer.status.as_u16(), &answer.body).into());
    }
    Ok(answer.body.to_vec())
}

fn json(text: &[u8]) -> Result<Value, Trouble> {
    serde_json::from_slice(text).map_err(|error| odd(&format!("it is no JSON: {error}")))
}

/// The URL of a service as people write it: `https://` may be left out.
pub fn url(text: &str) -> String {
    let whole = if text.contains("://") { text.to_owned() } else { format!("https://{text}") };
    whole.trim_end_matches('/').to_owned()
}

/// Host and port of a URL.
fn address(url: &str) -> Option<(String, u16)> {
    let (scheme, rest) = url.split_once("://")?;
    let authority = rest.split('/').next()?;
    let usual = if scheme == "http" { 80 } else { 443 };
    let (host, port) = match authority.strip_prefix('[') {
        Some(rest) => {
            let (host, port) = rest.split_once(']')?;
            (host, port.strip_prefix(':'))
        }
        None => authority.split_once(':').map_or((authority, None), |(host, port)| (host, Some(port))),
    };
    let port = port.map_or(Some(usual), |port| port.parse().ok())?;
    (!host.is_empty()).then(|| (host.to_owned(), port))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn services_are_named_as_people_write_them() {
        assert_eq!(url("dtn.example.org:8443"), "https://dtn.example.org:8443");
        assert_eq!(url("https://x.org/"), "https://x.org");
        for (text, host, port) in [
            ("https://x.org", "x.org", 443),
            ("https://[::1]:8443/a", "::1", 8443),
            ("http://localhost:1", "localhost", 1),
        ] {
            assert_eq!(address(text), Some((host.to_owned(), port)), "{text}");
        }
        for text in ["x.org", "https://", "https://x:y", "https://[::1"] {
            assert_eq!(address(text), None, "{text}");
        }
    }
}
