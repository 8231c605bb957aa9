//! The managed service as commands ask it: who is logged in, what is asked, what a refusal means.

pub mod browser;
pub mod grants;
pub mod logins;
pub mod names;
pub mod reach;
pub mod refusal;
pub mod show;
pub mod submission;
pub mod watch;

use std::collections::HashMap;
use std::time::Duration;

use clap::Args;
use serde_json::Value;
use whimbrel_engine::{Fault, FaultCode, Side};
use whimbrel_web::client::{Method, Question};

use self::grants::TRANSFER;
use self::logins::{Login, LoginFile};
use self::reach::Reach;
use self::refusal::{Refusal, Trouble};

/// Time for one answer: a listing of a large directory takes as long as its server.
const PATIENCE: Duration = Duration::from_secs(120);

/// Where an access token's scope is told by a refusal.
const CONSENT: &str = "ConsentRequired";

/// Exit codes below the help of commands of the managed service.
pub const EXIT_CODES: &str = "\
EXIT CODES
  0    everything asked for is done
  1    the task failed, or the service refused (what is named is not there, or in the way); or standard output was lost
  2    the command line is wrong
  5    a server of the collection is to blame
  6    you are not logged in, or may not do this
  7    the service cannot be reached, or cannot answer now
  8    a deadline or a limit
  130  cancelled";

/// Which service is meant.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "The service")]
pub struct ServiceArgs {
    /// Which service, where you are logged in at several [default: WHIMBREL_SERVICE, or where you logged in last]
    #[arg(long, global = true, value_name = "URL")]
    pub service: Option<String>,
}

/// A service that somebody is logged in at.
pub struct Session {
    login: Login,
    file: LoginFile,
    reach: Reach,
    /// Ids of names that were looked up.
    ids: HashMap<String, String>,
}

impl Session {
    /// The service that is meant, as the user logged in there.
    ///
    /// # Errors
    /// Nobody is logged in there; the file of logins cannot be read, or others may read it.
    pub fn open(args: &ServiceArgs) -> Result<Self, Trouble> {
        let file = LoginFile::usual()?;
        let named =
            args.service.clone().or_else(|| std::env::var("WHIMBREL_SERVICE").ok().filter(|url| !url.is_empty()));
        let login = file.find(named.as_deref())?;
        let reach = Reach::new(&login.service, login.authorities.as_deref(), false)?;
        Ok(Self { login, file, reach, ids: HashMap::new() })
    }

    /// The login.
    pub fn login(&self) -> &Login {
        &self.login
    }

    /// A document.
    ///
    /// # Errors
    /// As all questions: no answer, or a refusal.
    pub async fn get(&mut self, path: &str) -> Result<Value, Trouble> {
        self.ask(TRANSFER, Method::GET, path, None).await
    }

    /// Sends a document.
    ///
    /// # Errors
    /// As [`Self::get`].
    pub async fn post(&mut self, path: &str, document: &Value) -> Result<Value, Trouble> {
        self.ask(TRANSFER, Method::POST, path, Some(document)).await
    }

    /// Changes what is there.
    ///
    /// # Errors
    /// As [`Self::get`].
    pub async fn put(&mut self, path: &str, document: &Value) -> Result<Value, Trouble> {
        self.ask(TRANSFER, Method::PUT, path, Some(document)).await
    }

    /// Takes something away.
    ///
    /// # Errors
    /// As [`Self::get`].
    pub async fn delete(&mut self, path: &str) -> Result<Value, Trouble> {
        self.ask(TRANSFER, Method::DELETE, path, None).await
    }

    /// Asks with the token for a resource server. A token that is not taken any more is renewed once, and a consent that is missing given
    /// once, where nobody has to be asked for it.
    ///
    /// # Errors
    /// No answer, or a refusal.
    pub async fn ask(
        &mut self,
        server: &str,
        method: Method,
        path: &str,
        document: Option<&Value>,
    ) -> Result<Value, Trouble> {
        let body = document.map(|document| document.to_string().into_bytes());
        let question = Question { method, path, bearer: None, body, limit: PATIENCE };
        self.ask_shown(server, question, async |reach, question| reach.ask(question).await).await
    }

    /// The elements of a document that is lines of JSON.
    ///
    /// # Errors
    /// As [`Self::get`].
    pub async fn lines(&mut self, path: &str) -> Result<Vec<Value>, Trouble> {
        let question = Question { method: Method::GET, path, bearer: None, body: None, limit: PATIENCE };
        match self.ask_shown(TRANSFER, question, async |reach, question| reach.ask_lines(question).await).await? {
            Value::Array(lines) => Ok(lines),
            _ => Err(odd("it is no list")),
        }
    }

    async fn ask_shown(
        &mut self,
        server: &str,
        question: Question<'_>,
        ask: impl AsyncFn(&Reach, Question<'_>) -> Result<Value, Trouble>,
    ) -> Result<Value, Trouble> {
        let token = self.token(server, false).await?;
        match ask(&self.reach, Question { bearer: Some(&token), ..question.clone() }).await {
            Err(Trouble::Refused(refusal)) if refusal.status == 401 => {
                let token = self.token(server, true).await?;
                ask(&self.reach, Question { bearer: Some(&token), ..question }).await
            }
            Err(Trouble::Refused(refusal)) if refusal.code == CONSENT && self.login.acts_alone => {
                grants::by_client(&self.reach, &self.login.client, &refusal.scopes.join(" ")).await?;
                ask(&self.reach, Question { bearer: Some(&token), ..question }).await
            }
            answered => answered,
        }
    }

    /// An access token for a resource server: the kept one, or a new one that is kept.
    async fn token(&mut self, server: &str, renew: bool) -> Result<String, Trouble> {
        let now = logins::now();
        let kept = self.login.tokens.get(server).cloned();
        if let Some(token) = kept.as_ref().filter(|token| !renew && token.is_good(now)) {
            return Ok(token.access.clone());
        }
        let fresh = match kept.and_then(|token| token.refresh) {
            _ if self.login.acts_alone => grants::by_client(&self.reach, &self.login.client, grants::SCOPES).await,
            Some(refresh) => grants::by_refresh_token(&self.reach, &self.login.client, &refresh).await,
            None => return Err(self.logged_out("there is no token that could be renewed")),
        };
        let fresh = fresh.map_err(|trouble| match trouble {
            Trouble::Refused(refusal) if refusal.status < 500 => self.logged_out(&refusal.message),
            other => other,
        })?;
        self.login.tokens.extend(fresh);
        self.file.keep(&self.login)?;
        let token = self.login.tokens.get(server);
        token.map(|token| token.access.clone()).ok_or_else(|| self.logged_out("the service gave no token for this"))
    }

    fn logged_out(&self, why: &str) -> Trouble {
        let message = format!("your login at {} is not good any more: {why}", self.login.service);
        Refusal::new(401, "AuthenticationFailed", message).into()
    }
}

/// What the service answered makes no sense to us.
pub fn odd(what: &str) -> Trouble {
    let fault = Fault::new(FaultCode::PeerMisbehaved, "read the service's answer").side(Side::Service);
    Trouble::Fault(fault.detail(what))
}

/// A text of a document; empty where it is missing.
pub fn text<'a>(document: &'a Value, name: &str) -> &'a str {
    document[name].as_str().unwrap_or_default()
}

/// A text that must be there.
///
/// # Errors
/// It is not.
pub fn need<'a>(document: &'a Value, name: &str) -> Result<&'a str, Trouble> {
    document[name].as_str().ok_or_else(|| odd(&format!("it has no `{name}`")))
}

/// The entries of a list.
pub fn entries(document: &Value) -> &[Value] {
    list(document, "DATA")
}

/// A list in a document; empty where it is missing.
pub fn list<'a>(document: &'a Value, name: &str) -> &'a [Value] {
    document[name].as_array().map(Vec::as_slice).unwrap_or_default()
}

/// A path with a query.
pub fn with_query(path: &str, fields: &[(&str, &str)]) -> String {
    let query = form_urlencoded::Serializer::new(String::new()).extend_pairs(fields).finish();
    if query.is_empty() { path.to_owned() } else { format!("{path}?{query}") }
}
