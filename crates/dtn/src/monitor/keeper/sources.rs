//! Where the administrator says which identity has which accounts: the grid-mapfile, then the mapping documents in their order.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use whimbrel_engine::{Fault, FaultCode, Side};
use whimbrel_proto::mapping::{self, Document, MAX_DOCUMENT};
use whimbrel_proto::x509::gridmap::GridMap;
use whimbrel_trust::mapping::{RegexMapper, mapper};

use super::accounts::can_be_run;
use super::watched::Watched;
use crate::front::config::{MappingConfig, ProofKind};

/// Longest grid-mapfile, bytes: half a million people.
const MOST_GRIDMAP: u64 = 64 << 20;

const GRIDMAP: &str = "read grid-mapfile";
const DOCUMENTS: &str = "read mapping";

/// A document, checked.
#[derive(Debug)]
pub enum Mapping {
    /// Its rules.
    Rules(RegexMapper),
    /// Its program with arguments.
    Program(Vec<String>),
}

/// One thing to look an identity up in, as it is now.
#[derive(Debug, Clone)]
pub enum Lookup {
    /// The grid-mapfile.
    GridMap(Arc<GridMap>),
    /// One document of a file.
    Mapping {
        /// The file, for messages.
        file: String,
        /// Its documents.
        documents: Arc<Vec<Mapping>>,
        /// Which of them.
        place: usize,
    },
    /// Accounts without a question.
    Accounts(Vec<String>),
}

/// The files, read again when they change.
#[derive(Debug)]
pub struct Sources {
    gridmap: Option<GridMapFile>,
    documents: Vec<(MappingConfig, Watched<Vec<Mapping>>)>,
}

#[derive(Debug)]
struct GridMapFile {
    file: Watched<GridMap>,
    /// Somebody may be mapped without it.
    may_miss: bool,
}

impl Sources {
    /// Reads all of them.
    ///
    /// # Errors
    /// The first file that cannot be used, with the line or rule.
    pub fn open(gridmap: Option<PathBuf>, mapping: &[MappingConfig]) -> Result<Self, Fault> {
        let gridmap = gridmap
            .map(|path| GridMapFile { file: Watched::new(path, GRIDMAP, MOST_GRIDMAP), may_miss: !mapping.is_empty() });
        let watched = |one: &MappingConfig| Watched::new(one.file.clone(), DOCUMENTS, MAX_DOCUMENT as u64);
        let documents = mapping.iter().map(|one| (one.clone(), watched(one))).collect();
        let mut sources = Self { gridmap, documents };
        sources.lookups(None).into_iter().try_for_each(|lookup| lookup.map(|_| ()))?;
        Ok(sources)
    }

    /// True if there are none.
    pub fn is_empty(&self) -> bool {
        self.gridmap.is_none() && self.documents.is_empty()
    }

    /// What an identity of this kind is looked up in, in order; `None`: everything. A file that cannot be used now is a fault in its place.
    pub fn lookups(&mut self, kind: Option<ProofKind>) -> Vec<Result<Lookup, Fault>> {
        let mut all = Vec::new();
        // Tokens have no names of the kind that is written there.
        if let Some(gridmap) = self.gridmap.as_mut().filter(|_| kind != Some(ProofKind::Token)) {
            all.extend(gridmap.lookup().transpose());
        }
        for (config, watched) in &mut self.documents {
            if !kind.is_none_or(|kind| config.is_for(kind)) {
                continue;
            }
            let (path, file) = (watched.path().to_owned(), watched.path().display().to_string());
            match watched.read(|bytes| documents(&path, bytes)) {
                Ok(documents) => all.extend(
                    (0..documents.len())
                        .map(|place| Ok(Lookup::Mapping { file: file.clone(), documents: documents.clone(), place })),
                ),
                Err(fault) => all.push(Err(fault)),
            }
        }
        all
    }
}

impl GridMapFile {
    fn lookup(&mut self) -> Result<Option<Lookup>, Fault> {
        let name = self.file.path().display().to_string();
        let read = self.file.read(|bytes| {
            let map = GridMap::parse(bytes);
            for (line, fault) in map.faults() {
                tracing::warn!(file = name, line, %fault, "a line of the grid-mapfile maps nobody");
            }
            Ok(map)
        });
        match read {
            Ok(map) => Ok(Some(Lookup::GridMap(map))),
            Err(fault) if fault.code == FaultCode::NotFound && self.may_miss => Ok(None),
            Err(fault) if fault.code == FaultCode::NotFound => {
                Err(fault
                    .detail("it is not there: make it, name another with [gsi] gridmap, or give mapping = [\"FILE\"]"))
            }
            Err(fault) => Err(fault),
        }
    }
}

/// Reads and checks a file of documents.
fn documents(path: &Path, bytes: &[u8]) -> Result<Vec<Mapping>, Fault> {
    let bad = |detail: String| Fault::new(FaultCode::InvalidArgument, DOCUMENTS).side(Side::Us).detail(detail);
    let read = if path.extension().is_some_and(|name| name == "toml") {
        let text = std::str::from_utf8(bytes).map_err(|error| bad(error.to_string()))?;
        vec![toml::from_str::<Document>(text).map_err(|error| bad(error.to_string()))?]
    } else {
        mapping::documents(bytes).map_err(|error| bad(error.to_string()))?
    };
    read.into_iter()
        .map(|document| match document {
            Document::Expressions { mappings } => {
                mapper(&mappings).map(Mapping::Rules).map_err(|fault| bad(fault.detail))
            }
            Document::Command { command } => {
                let words = mapping::words(&command).map_err(|error| bad(error.to_string()))?;
                runnable(&words).map_err(bad)?;
                Ok(Mapping::Program(words))
            }
        })
        .collect()
}

/// A program that could not be started would be found out by the first login.
fn runnable(words: &[String]) -> Result<(), String> {
    let program = words.first().map_or("", String::as_str);
    let facts = std::fs::metadata(program).map_err(|error| format!("the mapping program {program}: {error}"))?;
    match can_be_run(&facts) {
        true => Ok(()),
        false => Err(format!("{program} is no program: chmod +x")),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn with(dir: &Path, files: &[(&str, &str)]) -> Result<Sources, Fault> {
        let mapping = files.iter().map(|(name, text)| {
            fs::write(dir.join(name), text).unwrap();
            MappingConfig { file: dir.join(name), of: Vec::new() }
        });
        Sources::open(None, &mapping.collect::<Vec<_>>())
    }

    #[test]
    fn a_document_that_cannot_be_used_is_named_with_its_fault() {
        let dir = tempfile::tempdir().unwrap();
        for (name, text, word) in [
            ("a.json", "{\"DATA_TYPE\": \"x\",\n \"mappings\": []}", "line 1"),
            ("b.json", "{\"DATA_TYPE\": \"expression_identity_mapping#1.0.0\",\n \"mappings\": [}", "line 2"),
            (
                "c.json",
                r#"{"DATA_TYPE": "expression_identity_mapping#1.0.0", "mappings": [{"source": "{sub}", "match": "(", "output": "x"}]}"#,
                "mapping rule 1 (()",
            ),
            ("d.toml", "DATA_TYPE = \"external_identity_mapping#1.0.0\"\ncommand = [\"bin/map\"]", "absolute path"),
            (
                "e.toml",
                "DATA_TYPE = \"external_identity_mapping#1.0.0\"\ncommand = [\"/no/such\"]",
                "/no/such: No such file",
            ),
            ("f.toml", "DATA_TYPE = \"external_identity_mapping#1.0.0\"\ncommand = [\"/etc/passwd\"]", "chmod +x"),
            ("g.toml", "nothing = 1", "DATA_TYPE"),
        ] {
            let fault = with(dir.path(), &[(name, text)]).unwrap_err();
            assert!(fault.subject.ends_with(name) && fault.detail.contains(word), "{name}: {fault}");
        }
    }

    #[test]
    fn a_grid_mapfile_may_miss_where_documents_map() {
        let dir = tempfile::tempdir().unwrap();
        let gridmap = Some(dir.path().join("grid-mapfile"));
        let fault = Sources::open(gridmap.clone(), &[]).unwrap_err();
        assert!(fault.code == FaultCode::NotFound && fault.detail.contains("[gsi] gridmap"), "{fault}");
        let rules = dir.path().join("rules.toml");
        fs::write(&rules, "DATA_TYPE = \"expression_identity_mapping#1.0.0\"\nmappings = []\n").unwrap();
        let mapping = vec![MappingConfig { file: rules, of: vec![ProofKind::Token] }];
        let mut sources = Sources::open(gridmap, &mapping).unwrap();
        assert_eq!(sources.lookups(Some(ProofKind::Certificate)).len(), 0);
        fs::write(dir.path().join("grid-mapfile"), "/CN=a a\n").unwrap();
        assert_eq!(sources.lookups(Some(ProofKind::Certificate)).len(), 1);
        assert_eq!(sources.lookups(Some(ProofKind::Token)).len(), 1, "the document");
    }
}
