//! What is submitted: transfers and deletions as the Transfer API has them.

use std::time::Duration;

use serde_json::{Map, Value, json};

use super::names::{Kind, Spot};
use super::refusal::Trouble;
use super::{Session, need, odd};

/// Attempts to submit where the service does not answer; the same submission makes one task however often it arrives.
const ATTEMPTS: u32 = 6;
/// Time before the second attempt; it doubles from one to the next.
const FIRST_PAUSE: Duration = Duration::from_millis(500);

/// One thing to copy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pair {
    /// From where.
    pub source: Spot,
    /// The copy's own name.
    pub destination: Spot,
}

/// Sources and where each goes.
///
/// Behind a slash at the end of the destination, or with `into`, comes the name of the source; with several sources always.
pub fn pairs(sources: Vec<Spot>, destination: &Spot, into: bool) -> Vec<Pair> {
    let into = into || sources.len() > 1 || destination.path.ends_with('/');
    let place = |source: Spot| {
        let destination = if into { destination.join(source.base_name()) } else { destination.clone() };
        Pair { source, destination }
    };
    sources.into_iter().map(place).collect()
}

/// A transfer that is to be.
#[derive(Debug, Clone, Default)]
pub struct Transfer {
    /// What is copied, all between the same two collections.
    pub pairs: Vec<Pair>,
    /// Directories are copied, with all that is in them.
    pub recursive: bool,
    /// Checksum of the one file.
    pub checksum: Option<(String, String)>,
    /// Fields of the document besides: options, label, deadline.
    pub options: Map<String, Value>,
}

impl Transfer {
    /// Its document, complete but for the submission's id.
    ///
    /// # Errors
    /// Items of several collections, or a collection that is not found.
    pub async fn document(&self, session: &mut Session) -> Result<Value, Trouble> {
        let (source, destination) = self.ends()?;
        let (source, destination) =
            (session.id_of(source, Kind::Collection).await?, session.id_of(destination, Kind::Collection).await?);
        let mut document = json!({
            "DATA_TYPE": "transfer", "source_endpoint": source, "destination_endpoint": destination,
            "DATA": self.pairs.iter().map(|pair| self.item(pair)).collect::<Vec<_>>(),
        });
        let fields = document.as_object_mut().ok_or_else(|| odd("a transfer that is none"))?;
        fields.extend(self.options.clone());
        Ok(document)
    }

    /// The collections; one task has one on each side.
    fn ends(&self) -> Result<(&str, &str), Trouble> {
        let mut ends =
            self.pairs.iter().map(|pair| (pair.source.collection.as_str(), pair.destination.collection.as_str()));
        let first = ends.next().ok_or_else(|| Trouble::Usage("there is nothing to copy".to_owned()))?;
        match ends.find(|other| *other != first) {
            None => Ok(first),
            Some((from, to)) => Err(Trouble::Usage(format!(
                "a task goes from one collection to one other: {} -> {} and {from} -> {to} are two tasks",
                first.0, first.1
            ))),
        }
    }

    fn item(&self, pair: &Pair) -> Value {
        let mut item = json!({
            "DATA_TYPE": "transfer_item", "source_path": pair.source.path, "destination_path": pair.destination.path,
        });
        // What is absent is found out by the service: a file and a directory may stand side by side in one command.
        if !self.recursive {
            item["recursive"] = json!(false);
        }
        if let Some((algorithm, digest)) = &self.checksum {
            item["checksum_algorithm"] = json!(algorithm);
            item["external_checksum"] = json!(digest);
        }
        item
    }
}

/// A deletion that is to be.
#[derive(Debug, Clone, Default)]
pub struct Deletion {
    /// What is deleted, all in one collection.
    pub spots: Vec<Spot>,
    /// Directories, too, with all that is in them.
    pub recursive: bool,
    /// What is not there is no failure.
    pub ignore_missing: bool,
    /// Fields of the document besides.
    pub options: Map<String, Value>,
}

impl Deletion {
    /// Its document, complete but for the submission's id.
    ///
    /// # Errors
    /// As [`Transfer::document`].
    pub async fn document(&self, session: &mut Session) -> Result<Value, Trouble> {
        let first = self.spots.first().ok_or_else(|| Trouble::Usage("there is nothing to delete".to_owned()))?;
        if let Some(other) = self.spots.iter().find(|spot| spot.collection != first.collection) {
            let text =
                format!("a task deletes in one collection: {} and {} are two", first.collection, other.collection);
            return Err(Trouble::Usage(text));
        }
        let item = |spot: &Spot| json!({"DATA_TYPE": "delete_item", "path": spot.path});
        let mut document = json!({
            "DATA_TYPE": "delete", "endpoint": session.id_of(&first.collection, Kind::Collection).await?,
            "recursive": self.recursive, "ignore_missing": self.ignore_missing, "interpret_globs": true,
            "DATA": self.spots.iter().map(item).collect::<Vec<_>>(),
        });
        document.as_object_mut().ok_or_else(|| odd("a deletion that is none"))?.extend(self.options.clone());
        Ok(document)
    }
}

impl Session {
    /// What the task of a `transfer` or `delete` document would do; nothing is done.
    ///
    /// # Errors
    /// A refusal, as for the submission; no answer.
    pub async fn plan(&mut self, document: &mut Value) -> Result<Value, Trouble> {
        self.complete(document).await?;
        let path = format!("/v2/whimbrel/plan/{}", need(document, "DATA_TYPE")?);
        self.post(&path, document).await
    }

    /// A document has an id, which makes it the same one when it comes again.
    async fn complete(&mut self, document: &mut Value) -> Result<(), Trouble> {
        if document["submission_id"].is_null() {
            let given = self.get("/v0.10/submission_id").await?;
            document["submission_id"] = json!(need(&given, "value")?);
        }
        Ok(())
    }

    /// Submits a `transfer` or `delete` document, again and again while the service does not answer; the task's id.
    ///
    /// # Errors
    /// A refusal, or no answer for half a minute.
    pub async fn submit(&mut self, mut document: Value) -> Result<String, Trouble> {
        let path = format!("/v0.10/{}", need(&document, "DATA_TYPE")?);
        self.complete(&mut document).await?;
        let mut pause = FIRST_PAUSE;
        for attempt in 1.. {
            match self.post(&path, &document).await {
                Err(trouble) if trouble.is_temporary() && attempt < ATTEMPTS => tokio::time::sleep(pause).await,
                answered => return Ok(need(&answered?, "task_id")?.to_owned()),
            }
            pause *= 2;
        }
        Err(odd("it was never asked"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spot(text: &str) -> Spot {
        text.parse().expect("it is a place")
    }

    fn placed(sources: &[&str], destination: &str, into: bool) -> Vec<String> {
        let sources = sources.iter().map(|text| spot(text)).collect();
        pairs(sources, &spot(destination), into).into_iter().map(|pair| pair.destination.path).collect()
    }

    #[test]
    fn a_destination_is_the_copys_name_or_the_directory_it_goes_into() {
        assert_eq!(placed(&["a:/x/f"], "b:/y", false), ["/y"]);
        assert_eq!(placed(&["a:/x/f"], "b:/y", true), ["/y/f"]);
        assert_eq!(placed(&["a:/x/f"], "b:/y/", false), ["/y/f"]);
        assert_eq!(placed(&["a:/x/f", "a:/g/"], "b:/y", false), ["/y/f", "/y/g"]);
        assert_eq!(placed(&["a:/"], "b:/y/", false), ["/y/"]);
    }

    #[test]
    fn one_task_has_one_collection_on_each_side() {
        let transfer = |texts: &[(&str, &str)]| Transfer {
            pairs: texts.iter().map(|(a, b)| Pair { source: spot(a), destination: spot(b) }).collect(),
            ..Transfer::default()
        };
        assert!(transfer(&[("a:/1", "b:/1"), ("a:/2", "b:/2")]).ends().is_ok());
        assert!(transfer(&[("a:/1", "b:/1"), ("c:/2", "b:/2")]).ends().is_err());
        assert!(transfer(&[]).ends().is_err());
    }

    #[test]
    fn items_say_whether_directories_are_meant_and_which_checksum_is_expected() {
        let pair = Pair { source: spot("a:/1"), destination: spot("b:/2") };
        let transfer = Transfer { checksum: Some(("md5".into(), "00".into())), ..Transfer::default() };
        let item = transfer.item(&pair);
        assert_eq!((&item["recursive"], &item["external_checksum"]), (&json!(false), &json!("00")));
        assert!(Transfer { recursive: true, ..Transfer::default() }.item(&pair)["recursive"].is_null());
    }
}
