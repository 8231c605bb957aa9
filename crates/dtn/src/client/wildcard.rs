//! Wildcards in remote paths, resolved by listing directories.

use whimbrel_engine::listing::{Object, ObjectKind, join};
use whimbrel_engine::{Fault, FaultCode, Side};
use whimbrel_proto::op::Op;

use super::end::{End, described, ends_session};
use crate::mover::glob;

/// Questions in the air.
const AHEAD: usize = 100;

/// Whether any component of `path` is a pattern.
pub fn has_wildcards(path: &[u8]) -> bool {
    glob::is_pattern(path)
}

/// What a path with patterns stands for.
#[derive(Debug, Default)]
pub struct Matches {
    /// The paths that match and exist, sorted.
    pub paths: Vec<Vec<u8>>,
    /// Directories that could not be read, and what could not be asked for: more may match there.
    pub failed: Vec<(Vec<u8>, Fault)>,
}

/// What `path` stands for.
///
/// # Errors
/// `NotFound` when nothing matches and everything could be read; the session has ended.
pub async fn expand(end: &mut End, path: &[u8]) -> Result<Matches, Fault> {
    let absolute = path.starts_with(b"/");
    let root = if absolute { b"/".to_vec() } else { Vec::new() };
    let mut matches = Matches { paths: vec![root], failed: Vec::new() };
    let parts: Vec<&[u8]> = path.split(|&byte| byte == b'/').filter(|part| !part.is_empty()).collect();
    let mut is_matched = false;
    for (index, part) in parts.iter().enumerate() {
        let last = index + 1 == parts.len();
        if glob::is_pattern(part) {
            matches.list(end, part, !last, is_matched).await?;
            is_matched = true;
        } else {
            matches.paths.iter_mut().for_each(|path| *path = join(path, part));
            if last && is_matched {
                matches.keep_existing(end).await?;
            }
        }
    }
    if matches.paths.is_empty() && matches.failed.is_empty() {
        return Err(Fault::new(FaultCode::NotFound, "match")
            .on_path(path)
            .side(Side::Source)
            .detail("nothing matches the pattern"));
    }
    matches.paths.sort();
    Ok(matches)
}

impl Matches {
    /// The paths, if everything could be read.
    ///
    /// # Errors
    /// The first failure.
    pub fn all(self) -> Result<Vec<Vec<u8>>, Fault> {
        match self.failed.into_iter().next() {
            Some((_, fault)) => Err(fault),
            None => Ok(self.paths),
        }
    }

    /// Replaces each directory by what of it matches; `enter`: only directories do. One that is `matched` need not be there.
    async fn list(&mut self, end: &mut End, pattern: &[u8], enter: bool, matched: bool) -> Result<(), Fault> {
        for directory in std::mem::take(&mut self.paths) {
            let listed: &[u8] = if directory.is_empty() { b"." } else { &directory };
            let paths = &mut self.paths;
            let each = async |objects: Vec<(Object, _)>| {
                let fitting = objects.iter().map(|(object, _)| object).filter(|object| {
                    glob::matches(pattern, &object.path) && (!enter || object.kind == ObjectKind::Directory)
                });
                paths.extend(fitting.map(|object| join(&directory, &object.path)));
                Ok(())
            };
            match end.list(listed, false, each).await {
                Err(fault) if matched && is_absent(&fault) => {}
                result => self.judge(listed, result)?,
            }
        }
        Ok(())
    }

    /// Leaves out what is not there.
    async fn keep_existing(&mut self, end: &mut End) -> Result<(), Fault> {
        let paths = std::mem::take(&mut self.paths);
        for batch in paths.chunks(AHEAD) {
            let ask = |path: &Vec<u8>| end.submit(Op::Facts { path: path.clone(), facts: None });
            let asked = batch.iter().map(ask).collect::<Result<Vec<_>, _>>()?;
            let mut answers = Vec::with_capacity(batch.len());
            for (path, id) in batch.iter().zip(asked) {
                answers.push(described(end.finish(id).await, path, true));
            }
            for (path, answer) in batch.iter().zip(answers) {
                let answer = match answer {
                    Err(fault) if fault.code == FaultCode::NotSupported => end.stat(path, true).await,
                    answer => answer,
                };
                match answer {
                    Ok(Some(_)) => self.paths.push(path.clone()),
                    Err(fault) if !is_absent(&fault) => self.judge(path, Err(fault))?,
                    _ => {}
                }
            }
        }
        Ok(())
    }

    /// What fails without ending the session fails alone.
    fn judge(&mut self, path: &[u8], result: Result<(), Fault>) -> Result<(), Fault> {
        match result.map_err(|fault| fault.side_if_unknown(Side::Source)) {
            Err(fault) if ends_session(&fault) || is_absent(&fault) => Err(fault),
            Err(fault) => {
                self.failed.push((path.to_vec(), fault));
                Ok(())
            }
            Ok(()) => Ok(()),
        }
    }
}

/// Whether it says that there is nothing of that name.
fn is_absent(fault: &Fault) -> bool {
    matches!(fault.code, FaultCode::NotFound | FaultCode::NotADirectory)
}
