//! Why something was not done: no answer, or a refusal of the service.

use serde_json::{Value, json};
use whimbrel_engine::summary::exit;
use whimbrel_engine::{Fault, FaultCode, Side};

/// Why a command of the managed service could not do what it was to do.
#[derive(Debug)]
pub enum Trouble {
    /// Something is wrong on the way to the service, or here.
    Fault(Fault),
    /// The service said no.
    Refused(Box<Refusal>),
    /// The command line cannot be meant.
    Usage(String),
}

impl From<Fault> for Trouble {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}

impl From<Refusal> for Trouble {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(Box::new(refusal))
    }
}

impl Trouble {
    /// Something of this host that does not work.
    pub fn here(error: std::io::Error, op: &str, subject: impl std::fmt::Display) -> Self {
        let interrupted = error.kind() == std::io::ErrorKind::Interrupted;
        let fault = Fault::from_io(error, op).side(Side::Us).subject(subject.to_string());
        // A question that the user has ended with Ctrl-C.
        Self::Fault(if interrupted { Fault { code: FaultCode::Cancelled, ..fault } } else { fault })
    }

    /// Whether the same may well succeed a little later.
    pub fn is_temporary(&self) -> bool {
        match self {
            Self::Fault(fault) => {
                fault.is_temporary() || (fault.side == Some(Side::Service) && fault.code == FaultCode::ConnectionLost)
            }
            Self::Refused(refusal) => matches!(refusal.status, 429 | 503),
            Self::Usage(_) => false,
        }
    }
}

/// What the service refused.
#[derive(Debug, Clone, PartialEq)]
pub struct Refusal {
    /// HTTP status.
    pub status: u16,
    /// What programs go by (`EndpointNotFound`).
    pub code: String,
    /// For people.
    pub message: String,
    /// The request's number in the service's log; empty: it has none.
    pub request: String,
    /// Scopes to which somebody has to consent first.
    pub scopes: Vec<String>,
    /// The task that is in the way.
    pub task: Option<String>,
}

impl Refusal {
    /// A refusal.
    pub fn new(status: u16, code: &str, message: impl Into<String>) -> Self {
        let (code, message) = (code.to_owned(), message.into());
        Self { status, code, message, request: String::new(), scopes: Vec::new(), task: None }
    }

    /// What an answer says, in the form of the Transfer API or in that of OAuth2.
    pub fn read(status: u16, body: &[u8]) -> Self {
        let document: Value = serde_json::from_slice(body).unwrap_or_default();
        let field = |names: [&str; 2]| names.iter().find_map(|name| document[*name].as_str()).unwrap_or_default();
        let message = match field(["message", "error_description"]) {
            "" => format!("the service answered {status}"),
            said => said.to_owned(),
        };
        let scopes = document["required_scopes"].as_array().into_iter().flatten();
        Self {
            status,
            code: field(["code", "error"]).to_owned(),
            message,
            request: field(["request_id", "request_id"]).to_owned(),
            scopes: scopes.filter_map(|scope| scope.as_str().map(str::to_owned)).collect(),
            task: document["task_id"].as_str().map(str::to_owned),
        }
    }

    /// The exit code of a command that ends with it.
    pub fn exit_code(&self) -> u8 {
        match self.status {
            400 | 413 | 422 => exit::USAGE,
            401 | 403 => exit::CREDENTIALS,
            429 => exit::LIMIT,
            500.. if self.code.starts_with("ExternalError") => exit::NETWORK_OR_PEER,
            500.. => exit::SERVICE,
            _ => exit::SOME_FAILED,
        }
    }

    /// What to do.
    pub fn cure(&self) -> String {
        match (self.status, self.code.as_str()) {
            (_, "ConsentRequired") => {
                format!("allow it in a browser: whimbrel login --scope '{}'", self.scopes.join(" "))
            }
            (401, _) => "log in again: whimbrel login URL".to_owned(),
            (_, "EndpointNotFound") => "look what there is: whimbrel endpoint list".to_owned(),
            (_, "TaskNotFound") => "look at your tasks: whimbrel task list".to_owned(),
            (_, "UserNotFound") => {
                "correct the name; an administrator makes people known: whimbrel user create".to_owned()
            }
            (_, "ClientError.NotFound" | "NotFound") => {
                "look what is there: whimbrel endpoint ls COLLECTION:DIRECTORY".to_owned()
            }
            (403, "access_denied") => {
                "log in as somebody whom the service lets in, or ask its administrator".to_owned()
            }
            (403, _) => "ask whoever owns it: whimbrel endpoint show tells who that is".to_owned(),
            (409, _) if self.task.is_some() => "wait for that task, or end it: whimbrel task cancel".to_owned(),
            (429, _) => "wait, and try again".to_owned(),
            (503, _) => "try again a little later".to_owned(),
            (500.., _) if !self.request.is_empty() => {
                format!("tell the service's administrator, whose log has the reason at {}", self.request)
            }
            _ => "correct what the message names".to_owned(),
        }
    }

    /// For programs.
    pub fn json(&self) -> Value {
        json!({
            "event": "failed", "refused": {"status": self.status, "code": self.code, "message": self.message,
            "request_id": self.request, "required_scopes": self.scopes, "task_id": self.task},
            "cure": self.cure(), "exit_code": self.exit_code(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_of_both_forms_are_read() {
        let refusal = Refusal::read(404, br#"{"code":"EndpointNotFound","message":"No such x","request_id":"r1"}"#);
        assert_eq!((refusal.code.as_str(), refusal.message.as_str()), ("EndpointNotFound", "No such x"));
        assert_eq!(refusal.request, "r1");
        let oauth = Refusal::read(401, br#"{"error":"invalid_client","error_description":"wrong"}"#);
        assert_eq!((oauth.code.as_str(), oauth.message.as_str(), oauth.exit_code()), ("invalid_client", "wrong", 6));
        let page = Refusal::read(502, b"<html>");
        assert_eq!((page.exit_code(), page.message.as_str()), (7, "the service answered 502"));
    }

    #[test]
    fn exit_codes_tell_whom_to_ask() {
        for (status, code, exit) in [
            (400, "ClientError.BadRequest", 2),
            (403, "PermissionDenied", 6),
            (404, "TaskNotFound", 1),
            (409, "Conflict", 1),
            (429, "x", 8),
            (502, "ExternalError.MkdirFailed.Exists", 5),
            (503, "ServiceUnavailable", 7),
        ] {
            assert_eq!(Refusal::new(status, code, "").exit_code(), exit, "{status} {code}");
        }
    }
}
