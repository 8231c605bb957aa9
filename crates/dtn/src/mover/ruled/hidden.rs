//! Which name a hidden one stands for.
//!
//! Unfinished files, and what is known of them, lie under hidden names beside the final one: those of storage (`.NAME.whimbrel-part`,
//! `.NAME.whimbrel-journal-IDENTITY`) and those of clients that bring their own (`.NAME.whimbrel-RUN...`). Their bytes are those of NAME.

use std::borrow::Cow;
use std::collections::BTreeSet;

use whimbrel_connector::{HIDDEN_WORD, StoragePath, shortened};
use whimbrel_proto::rules::PathRules;
use whimbrel_transport::digest::Algorithm;

/// The path whose rules hold for `path`: another one for what is unfinished.
pub(super) fn meant<'a>(rules: &PathRules, path: &'a StoragePath) -> Cow<'a, [u8]> {
    let whole = Cow::Borrowed(path.as_bytes());
    let (Some(name), Some(directory)) = (path.name(), path.parent()) else { return whole };
    if stem(name).is_none() {
        return whole;
    }
    match directory.join(Spoken::of(rules, &directory).meant(name)) {
        Ok(meant) => Cow::Owned(meant.as_bytes().to_vec()),
        // No name is longer than the hidden one, but for one of a rule for which nothing can be stored.
        Err(_) => whole,
    }
}

/// Names in a directory that rules are about. For all others the rules of the directory hold, hidden or not.
pub(super) struct Spoken(BTreeSet<Vec<u8>>);

impl Spoken {
    pub(super) fn of(rules: &PathRules, directory: &StoragePath) -> Self {
        Self(rules.names_in(directory.as_bytes()).into_iter().map(<[u8]>::to_vec).collect())
    }

    /// The name whose rules hold for a name: of the names that it stands for, as an unfinished file may be that of another, the first
    /// that rules are about.
    pub(super) fn meant<'a>(&'a self, name: &'a [u8]) -> &'a [u8] {
        let mut inner = name;
        while !self.0.contains(inner) {
            let Some(stem) = stem(inner) else { return name };
            if let Some(long) = self.0.iter().find(|long| is_short_for(stem, long)) {
                return long;
            }
            inner = stem;
        }
        inner
    }
}

/// What a hidden name begins with: the name that it stands for, or what is short for that; `None`: it is no hidden name.
fn stem(name: &[u8]) -> Option<&[u8]> {
    let at = name.windows(HIDDEN_WORD.len()).rposition(|window| window == HIDDEN_WORD)?;
    name[..at].strip_prefix(b".").filter(|stem| !stem.is_empty())
}

/// Whether a name that is too long for what is added to it is told by a beginning and a digest of it, in either way.
fn is_short_for(stem: &[u8], name: &[u8]) -> bool {
    let Some((kept, digest)) = stem.iter().rposition(|byte| b".-".contains(byte)).map(|at| stem.split_at(at)) else {
        return false;
    };
    if kept.len() >= name.len() || !name.starts_with(kept) {
        return false;
    }
    match digest {
        [b'.', digest @ ..] => digest == Algorithm::Xxh3_128.digest(name).to_string().as_bytes(),
        _ => shortened(name).as_deref() == Some(stem),
    }
}
