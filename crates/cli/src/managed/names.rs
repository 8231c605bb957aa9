//! Collections and endpoints by id or by name, and places in collections.

use std::collections::HashMap;
use std::str::FromStr;

use serde_json::Value;
use uuid::Uuid;

use super::refusal::{Refusal, Trouble};
use super::{Session, entries, list, text, with_query};

/// Pages of a search that are looked through for one name.
const MOST_PAGES: usize = 20;

/// People whose names are asked for at once.
const MOST_NAMES: usize = 100;

/// What a name may stand for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A set of servers.
    Endpoint,
    /// A root with files.
    Collection,
    /// Either.
    Any,
}

impl Kind {
    fn fits(self, entity: &str) -> bool {
        match self {
            Self::Any => true,
            Self::Endpoint => entity == "GCSv5_endpoint",
            Self::Collection => entity != "GCSv5_endpoint",
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Endpoint => "endpoint",
            Self::Collection => "collection",
            Self::Any => "endpoint or collection",
        }
    }
}

/// `COLLECTION:PATH`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Spot {
    /// Id or name of a collection.
    pub collection: String,
    /// A path there; `~` stands for the collection's default directory.
    pub path: String,
}

impl FromStr for Spot {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "{text:?} is no place of the managed service: that is COLLECTION:PATH, with the name or id of a collection \
                 (whimbrel endpoint list); this computer is none"
            )
        };
        let (collection, path) = text.split_once(':').ok_or_else(wrong)?;
        if collection.is_empty() || collection.contains('/') || path.starts_with("//") {
            return Err(wrong());
        }
        let path = if path.is_empty() { "~" } else { path };
        Ok(Self { collection: collection.to_owned(), path: path.to_owned() })
    }
}

impl Spot {
    /// The last name of its path; empty for a root.
    pub fn base_name(&self) -> &str {
        let name = self.path.split('/').rfind(|part| !part.is_empty()).unwrap_or("");
        if matches!(name, "." | ".." | "~") { "" } else { name }
    }

    /// A place below this one; the same for an empty name.
    #[must_use]
    pub fn join(&self, name: &str) -> Self {
        let slash = if self.path.ends_with('/') || name.is_empty() { "" } else { "/" };
        Self { collection: self.collection.clone(), path: format!("{}{slash}{name}", self.path) }
    }
}

impl Session {
    /// The id of a collection or an endpoint that is named by it or by its name.
    ///
    /// # Errors
    /// There is none of that name, or there are several.
    pub async fn id_of(&mut self, name: &str, kind: Kind) -> Result<String, Trouble> {
        if let Ok(id) = Uuid::try_parse(name) {
            return Ok(id.to_string());
        }
        if let Some(id) = self.ids.get(name) {
            return Ok(id.clone());
        }
        let found = self.named(name, kind).await?;
        let id = match &found[..] {
            [] => {
                let message = format!("there is no {} called {name:?} that you may see", kind.name());
                return Err(Refusal::new(404, "EndpointNotFound", message).into());
            }
            [one] => text(one, "id").to_owned(),
            several => return Err(ambiguous(name, kind, several)),
        };
        self.ids.insert(name.to_owned(), id.clone());
        Ok(id)
    }

    /// All that have exactly this name.
    async fn named(&mut self, name: &str, kind: Kind) -> Result<Vec<Value>, Trouble> {
        let (mut found, mut offset) = (Vec::new(), 0);
        for _ in 0..MOST_PAGES {
            let from = offset.to_string();
            let fields = [("filter_scope", "all"), ("filter_fulltext", name), ("limit", "100"), ("offset", &from)];
            let page = self.get(&with_query("/v0.10/endpoint_search", &fields)).await?;
            let fits = |one: &&Value| text(one, "display_name") == name && kind.fits(text(one, "entity_type"));
            found.extend(entries(&page).iter().filter(fits).cloned());
            offset += entries(&page).len();
            if page["has_next_page"] != true {
                break;
            }
        }
        Ok(found)
    }

    /// The names of people by their ids, as far as there are some.
    ///
    /// # Errors
    /// As all questions.
    pub async fn names_of(&mut self, ids: &[&str]) -> Result<HashMap<String, String>, Trouble> {
        let mut names = HashMap::new();
        for some in ids.chunks(MOST_NAMES) {
            let path = with_query("/v2/api/identities", &[("ids", &some.join(","))]);
            let found = self.ask(super::grants::AUTH, whimbrel_web::client::Method::GET, &path, None).await?;
            let known = list(&found, "identities").iter();
            names.extend(known.map(|one| (text(one, "id").to_owned(), text(one, "username").to_owned())));
        }
        Ok(names)
    }

    /// An identity's id by its name, or by its id.
    ///
    /// # Errors
    /// Nobody has that name.
    pub async fn identity_of(&mut self, name: &str) -> Result<String, Trouble> {
        if let Ok(id) = Uuid::try_parse(name) {
            return Ok(id.to_string());
        }
        let fields = [("usernames", name), ("provision", "false")];
        let path = with_query("/v2/api/identities", &fields);
        let found = self.ask(super::grants::AUTH, whimbrel_web::client::Method::GET, &path, None).await?;
        let id = found["identities"][0]["id"].as_str().map(str::to_owned);
        let nobody = || Refusal::new(404, "UserNotFound", format!("nobody is called {name:?} here"));
        id.ok_or_else(|| nobody().into())
    }
}

fn ambiguous(name: &str, kind: Kind, found: &[Value]) -> Trouble {
    let line = |one: &Value| format!("\n  {}  of {}", text(one, "id"), text(one, "owner_string"));
    let lines: String = found.iter().map(line).collect();
    Trouble::Usage(format!("several are called {name:?}; name the {} by its id:{lines}", kind.name()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_name_a_collection_and_a_path() {
        let spot = |text: &str| text.parse::<Spot>().map(|spot| (spot.collection, spot.path));
        let pair = |a: &str, b: &str| Ok((a.to_owned(), b.to_owned()));
        assert_eq!(spot("Cluster data:/run 7/a:b"), pair("Cluster data", "/run 7/a:b"));
        assert_eq!(spot("x:"), pair("x", "~"));
        assert_eq!(spot("x:~/a"), pair("x", "~/a"));
        for text in ["/data/run7", "./a:b", "data", ":/x", "ftp://host/x", ""] {
            assert!(spot(text).is_err(), "{text}");
        }
    }

    #[test]
    fn copies_go_into_directories_under_their_own_names() {
        let spot = |text: &str| text.parse::<Spot>().expect("it is a place");
        assert_eq!(spot("a:/b").join("c").path, "/b/c");
        assert_eq!(spot("a:/b/").join("c").path, "/b/c");
        assert_eq!(spot("a:/b").join("").path, "/b");
        assert_eq!((spot("a:/x/y/").base_name(), spot("a:").base_name(), spot("a:/").base_name()), ("y", "", ""));
    }
}
