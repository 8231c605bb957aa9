//! Servers without machine listings (RFC 3659 §7): what is there is told by CWD, SIZE and MDTM, what is in it by LIST.

use std::collections::HashSet;

use whimbrel_engine::listing::{Object, Timestamp, join};
use whimbrel_engine::{Fault, FaultCode, Side};
use whimbrel_proto::op::{ListForm, ListSpec, Op, Outcome};

use super::{End, Entries, ends_session, lines, spec};
use crate::client::data;
use crate::client::facts::{self, Owner};
use crate::client::plan::base_name;

impl End {
    /// For servers without MLST: SIZE and MDTM for files, CWD for directories. Nothing else may be in the air.
    pub async fn stat_without_facts(&mut self, path: &[u8]) -> Result<Option<Object>, Fault> {
        let home = match self {
            Self::Remote(remote) => remote.home().await?,
            Self::Local(_) => None,
        };
        let can_return = home.is_some() || path.starts_with(b"/");
        if can_return && self.is_entered(path, home.as_deref().unwrap_or(b"/")).await? {
            return Ok(Some(Object::directory(Vec::new())));
        }
        let size = match self.run(Op::Size(path.to_vec())).await {
            Ok(Outcome::Size(size)) => size,
            Ok(_) => return Ok(None),
            // FTP has one code for everything that is wrong with a file.
            Err(fault) if matches!(fault.code, FaultCode::NotFound | FaultCode::PeerRefused) && can_return => {
                return Ok(None);
            }
            Err(fault) => return Err(fault),
        };
        let mut object = Object::file(Vec::new(), size);
        if let Ok(Outcome::Modified(secs, nanos)) = self.run(Op::Modified(path.to_vec())).await {
            object.modified = Some(Timestamp { secs, nanos });
        }
        Ok(Some(object))
    }

    /// Whether it is a directory that one may enter; the session is in `home` afterwards, where relative paths count from.
    ///
    /// # Errors
    /// The session is of no more use.
    async fn is_entered(&mut self, path: &[u8], home: &[u8]) -> Result<bool, Fault> {
        match self.run(Op::EnterDirectory(path.to_vec())).await {
            Ok(_) => {}
            Err(fault) if ends_session(&fault) => return Err(fault),
            Err(_) => return Ok(false),
        }
        match self.run(Op::EnterDirectory(home.to_vec())).await {
            Ok(_) => Ok(true),
            Err(fault) if ends_session(&fault) => Err(fault),
            // Nobody knows any more what a relative path means.
            Err(fault) => Err(Fault { code: FaultCode::PeerMisbehaved, ..fault }.side(Side::Peer)),
        }
    }

    /// What LIST tells of a directory. Nothing else may be in the air.
    ///
    /// Asked with `-a` most servers show the directory itself and its hidden entries. One that cannot open the directory may
    /// end the transfer as if nothing was in it, or show the line of the directory in that above it.
    ///
    /// # Errors
    /// `ListingUnclear` also when nothing tells that the directory was read.
    pub(super) async fn list_long(&mut self, path: &[u8]) -> Result<Entries, Fault> {
        let all = match self.fetch_long(path, b"a").await {
            Ok(text) if shows_itself(&text) => return Ok(long_entries(&text)),
            Ok(text) => long_entries(&text),
            Err(fault) if ends_session(&fault) => return Err(fault),
            // It may take the flag for a name.
            Err(_) => Entries::default(),
        };
        let text = self.fetch_long(path, b"").await?;
        if text.trim_ascii().is_empty() {
            return Err(unread(path));
        }
        let read = long_entries(&text);
        if let [(only, _)] = &read.entries[..]
            && only.path == base_name(path)
            && self.stat_without_facts(&join(path, &only.path)).await?.is_none()
        {
            return Err(unread(path));
        }
        Ok(if has_all(&all, &read) { all } else { read })
    }

    async fn fetch_long(&mut self, path: &[u8], flags: &[u8]) -> Result<Vec<u8>, Fault> {
        let Self::Remote(remote) = self else {
            return Err(Fault::new(FaultCode::Internal, "list").on_path(path).side(Side::Us));
        };
        data::fetch_listing(remote, ListSpec { flags: flags.to_vec(), ..spec(path, ListForm::Long) }).await
    }
}

/// The fault of a directory of which nothing tells that it was read.
fn unread(path: &[u8]) -> Fault {
    let fault = Fault::new(FaultCode::ListingUnclear, "list").on_path(path);
    fault.detail("the server shows nothing of it, not even the directory itself: perhaps it cannot be read")
}

fn shows_itself(text: &[u8]) -> bool {
    lines(text).any(|line| facts::parse_long(line).is_some_and(|object| object.path == b"."))
}

/// Whether a listing tells of all that another one does, and nothing in them is unclear.
fn has_all(listing: &Entries, other: &Entries) -> bool {
    let names: HashSet<_> = listing.entries.iter().map(|(object, _)| &object.path).collect();
    listing.unclear.is_none()
        && other.unclear.is_none()
        && other.entries.iter().all(|(object, _)| names.contains(&object.path))
}

fn long_entries(text: &[u8]) -> Entries {
    let mut read = Entries::default();
    for line in lines(text).filter(|line| !facts::is_total(line)) {
        read.take(line, facts::parse_long(line).map(|object| Some((object, Owner::default()))));
    }
    read
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLEAR: &[u8] =
        b"total 8\r\ndrwxr-xr-x 2 u g 40 Nov 21 01:59 .\r\n\r\n-rw-r--r-- 1 u g 4 Nov 21 01:59 a b\r\n";

    fn names(read: &Entries) -> Vec<&[u8]> {
        read.entries.iter().map(|(object, _)| object.path.as_slice()).collect()
    }

    #[test]
    fn sums_and_dots_are_no_entries_and_what_makes_no_sense_is_unclear() {
        let read = long_entries(CLEAR);
        assert_eq!((names(&read), &read.unclear), (vec![&b"a b"[..]], &None));
        let read = long_entries(&[CLEAR, b"d????????? ? ? ? ? ? x\r\n"].concat());
        assert_eq!((names(&read).len(), read.unclear.as_deref()), (1, Some(&b"d????????? ? ? ? ? ? x\r"[..])));
    }

    #[test]
    fn a_listing_shows_the_directory_itself_by_a_dot() {
        assert!(shows_itself(CLEAR));
        for other in [&b""[..], b"total 0\r\n", b"drwxr-xr-x 2 u g 40 Nov 21 01:59 ..\r\n", b". is shut\r\n"] {
            assert!(!shows_itself(other), "{}", String::from_utf8_lossy(other));
        }
    }

    #[test]
    fn of_two_listings_the_one_that_has_all_of_the_other_counts() {
        let (all, some) = (long_entries(CLEAR), Entries::default());
        assert!(has_all(&all, &some) && has_all(&some, &some) && !has_all(&some, &all));
        let unclear = Entries { unclear: Some(b"ls: -a: no such file".to_vec()), ..long_entries(CLEAR) };
        assert!(
            !has_all(&unclear, &all)
                && !has_all(&some, &Entries { unclear: unclear.unclear.clone(), ..Entries::default() })
        );
    }
}
