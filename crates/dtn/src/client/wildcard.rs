//! Wildcards in remote paths, resolved by listing directories.

use whimbrel_engine::listing::{ObjectKind, join};
use whimbrel_engine::{Fault, FaultCode, Side};

use super::end::End;
use crate::mover::glob;

/// Whether any component of `path` is a pattern.
pub fn has_wildcards(path: &[u8]) -> bool {
    glob::is_pattern(path)
}

/// The paths that match, sorted.
///
/// # Errors
/// `NotFound` when nothing matches.
pub async fn expand(end: &mut End, path: &[u8]) -> Result<Vec<Vec<u8>>, Fault> {
    let absolute = path.starts_with(b"/");
    let mut found: Vec<Vec<u8>> = vec![if absolute { b"/".to_vec() } else { Vec::new() }];
    let parts: Vec<&[u8]> = path.split(|&byte| byte == b'/').filter(|part| !part.is_empty()).collect();
    for (index, part) in parts.iter().enumerate() {
        let last = index + 1 == parts.len();
        found = if glob::is_pattern(part) {
            matching(end, &found, part, !last).await?
        } else {
            found.iter().map(|directory| join(directory, part)).collect()
        };
    }
    if found.is_empty() {
        return Err(Fault::new(FaultCode::NotFound, "match")
            .on_path(path)
            .side(Side::Source)
            .detail("nothing matches the pattern"));
    }
    found.sort();
    Ok(found)
}

async fn matching(end: &mut End, directories: &[Vec<u8>], pattern: &[u8], enter: bool) -> Result<Vec<Vec<u8>>, Fault> {
    let mut found = Vec::new();
    for directory in directories {
        let listed: &[u8] = if directory.is_empty() { b"." } else { directory };
        let each = async |objects: Vec<(whimbrel_engine::listing::Object, _)>| {
            let fitting = objects.iter().map(|(object, _)| object).filter(|object| {
                glob::matches(pattern, &object.path) && (!enter || object.kind == ObjectKind::Directory)
            });
            found.extend(fitting.map(|object| join(directory, &object.path)));
            Ok(())
        };
        end.list(listed, false, each).await.map_err(|fault| fault.side_if_unknown(Side::Source))?;
    }
    Ok(found)
}
