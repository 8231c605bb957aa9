//! Storage as one login may use it: every path is resolved, checked against the login's rules, and then used as it is.
//!
//! The way of every operation to storage, and the only place where rules are enforced. Rules hold for resolved paths: links are
//! followed first, then the storage is asked for exactly the path that was checked, where a link is a fault
//! ([`Connector::without_links`]). So whoever swaps a directory for a link between the two gets a fault or what he may have.
//! What lies under a hidden name because it is unfinished has the rules of the name that it stands for ([`hidden`]). Nobody under rules
//! makes a program that runs as the account's owner or group ([`Attributes::without_set_id`], [`Connector::set_plain_attributes`]).

mod hidden;
mod metered;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use whimbrel_connector::{
    Attributes, Capabilities, Connector, Entry, FileSystem, Follow, Journal, Kind, Listing, Meta, ReadAt, ReadBack,
    Receipt, SET_ID, StoragePath, Version, WriteAt, WriteIntent, WriteSession,
};
use whimbrel_engine::{Fault, FaultCode};
use whimbrel_proto::rules::{Operation, PathRules};

use self::hidden::{Spoken, meant};
use self::metered::Metered;
use super::ledger::Quota;

/// How often a path is resolved again that leads elsewhere when it is used.
const ATTEMPTS: usize = 8;

/// A storage under rules.
pub struct Ruled {
    /// Resolves.
    storage: Arc<dyn Connector>,
    /// Acts.
    plain: Arc<dyn Connector>,
    /// Acts for those who may create and not replace.
    fresh: Arc<dyn Connector>,
    rules: PathRules,
    quota: Option<Quota>,
}

impl Drop for Ruled {
    fn drop(&mut self) {
        if let Some(quota) = &self.quota {
            quota.settle();
        }
    }
}

impl Ruled {
    /// The storage as these rules, and what may still be stored, leave it.
    pub fn new(storage: Arc<dyn Connector>, rules: PathRules, quota: Option<Quota>) -> Self {
        let plain = storage.without_links().unwrap_or_else(|| storage.clone());
        let fresh = plain.without_replacing().unwrap_or_else(|| plain.clone());
        Self { storage, plain, fresh, rules, quota }
    }

    /// Does something at the place that `path` means, if `check` allows it there.
    fn at<T>(
        &self,
        path: &StoragePath,
        follow: Follow,
        check: impl Fn(&Self, &StoragePath) -> Result<(), Fault>,
        mut act: impl FnMut(&dyn Connector, &StoragePath) -> Result<T, Fault>,
    ) -> Result<T, Fault> {
        let mut attempt = 1;
        loop {
            let real = self.real(path, follow)?;
            check(self, &real)?;
            match act(self.plain.as_ref(), &real) {
                // A link is there now that was none: it means something else.
                Err(fault) if fault.code == FaultCode::InvalidPath && attempt < ATTEMPTS => attempt += 1,
                result => return result,
            }
        }
    }

    /// What cannot be resolved is told only to those who may know what is there.
    fn real(&self, path: &StoragePath, follow: Follow) -> Result<StoragePath, Fault> {
        self.storage.resolve(path, follow).map_err(|fault| match self.rules.allows_stat(&meant(&self.rules, path)) {
            true => fault,
            false => self.denied("look at", path),
        })
    }

    fn may(&self, operation: Operation, path: &StoragePath) -> Result<(), Fault> {
        match self.rules.allows(&meant(&self.rules, path), operation) {
            true => Ok(()),
            false => Err(self.denied(operation.word(), path)),
        }
    }

    fn may_stat(&self, path: &StoragePath) -> Result<(), Fault> {
        if self.rules.allows_stat(&meant(&self.rules, path)) { Ok(()) } else { Err(self.denied("look at", path)) }
    }

    /// Something new where nothing is, and a change where something is.
    fn may_write(&self, path: &StoragePath) -> Result<(), Fault> {
        let allowed = self.rules.at(&meant(&self.rules, path));
        let (creates, modifies) = (allowed.has(Operation::Create), allowed.has(Operation::Modify));
        let needed = match creates == modifies {
            true => Operation::Create,
            false if self.exists(path)? => Operation::Modify,
            false => Operation::Create,
        };
        self.may(needed, path)
    }

    /// What writes at a path: where nothing may be changed, what others put there meanwhile is not, either.
    fn writer(&self, path: &StoragePath) -> &dyn Connector {
        let allowed = self.rules.at(&meant(&self.rules, path));
        match allowed.has(Operation::Create) && !allowed.has(Operation::Modify) {
            true => self.fresh.as_ref(),
            false => self.plain.as_ref(),
        }
    }

    fn exists(&self, path: &StoragePath) -> Result<bool, Fault> {
        match self.plain.stat(path, Follow::No) {
            Ok(_) => Ok(true),
            Err(fault) if fault.code == FaultCode::NotFound => Ok(false),
            Err(fault) => Err(fault),
        }
    }

    /// Whether a session that was begun may go on.
    fn may_go_on(&self, session: &WriteSession) -> Result<(), Fault> {
        let path = &session.path;
        self.may(Operation::Create, path).or_else(|_| self.may(Operation::Modify, path))
    }

    fn denied(&self, what: &str, path: &StoragePath) -> Fault {
        let rule = self.rules.deciding(&meant(&self.rules, path));
        Fault::new(FaultCode::NotAuthorized, what)
            .on_path(path.as_bytes())
            .detail(format!("you have no right to {what} there (rule for {})", String::from_utf8_lossy(&rule)))
    }

    fn metered(&self, writer: Arc<dyn WriteAt>) -> Arc<dyn WriteAt> {
        match &self.quota {
            Some(quota) => Arc::new(Metered::new(writer, quota.clone())),
            None => writer,
        }
    }
}

/// Entries that may be looked at.
struct Visible {
    entries: Listing,
    directory: StoragePath,
    rules: PathRules,
    spoken: Spoken,
}

impl Iterator for Visible {
    type Item = Result<Entry, Fault>;

    fn next(&mut self) -> Option<Self::Item> {
        let Self { entries, directory, rules, spoken } = self;
        let is_visible = |name: &[u8]| directory.join(name).is_ok_and(|path| rules.allows_stat(path.as_bytes()));
        entries.find(|entry| match entry {
            Ok(entry) => is_visible(spoken.meant(&entry.name)),
            Err(_) => true,
        })
    }
}

impl Connector for Ruled {
    fn capabilities(&self) -> Capabilities {
        self.plain.capabilities()
    }

    fn stat(&self, path: &StoragePath, follow: Follow) -> Result<Meta, Fault> {
        self.at(path, follow, Self::may_stat, |storage, path| storage.stat(path, follow))
    }

    fn list(&self, path: &StoragePath) -> Result<Listing, Fault> {
        let check = |ruled: &Self, path: &StoragePath| ruled.may(Operation::List, path);
        self.at(path, Follow::Yes, check, |storage, path| {
            let (entries, directory, rules) = (storage.list(path)?, path.clone(), self.rules.clone());
            let spoken = Spoken::of(&rules, path);
            Ok(Box::new(Visible { entries, directory, rules, spoken }) as Listing)
        })
    }

    fn open_read(&self, path: &StoragePath, expect: Option<&Version>) -> Result<Arc<dyn ReadAt>, Fault> {
        let check = |ruled: &Self, path: &StoragePath| ruled.may(Operation::Read, path);
        self.at(path, Follow::Yes, check, |storage, path| storage.open_read(path, expect))
    }

    fn begin(&self, path: &StoragePath, intent: &WriteIntent) -> Result<WriteSession, Fault> {
        if let (Some(quota), Some(size)) = (&self.quota, intent.size) {
            quota.has_room(size)?;
        }
        let intent = WriteIntent { mode: intent.mode.map(|mode| mode & !SET_ID), ..intent.clone() };
        self.at(path, Follow::Yes, Self::may_write, |_, path| self.writer(path).begin(path, &intent))
    }

    fn resolve(&self, path: &StoragePath, follow: Follow) -> Result<StoragePath, Fault> {
        self.at(path, follow, Self::may_stat, |_, path| Ok(path.clone()))
    }

    fn target(&self, path: &StoragePath) -> Result<StoragePath, Fault> {
        self.at(path, Follow::Yes, Self::may_stat, |storage, path| storage.target(path))
    }

    fn without_replacing(&self) -> Option<Arc<dyn Connector>> {
        let fresh = self.plain.without_replacing()?;
        let (storage, rules, quota) = (self.storage.clone(), self.rules.clone(), self.quota.clone());
        Some(Arc::new(Self { storage, plain: fresh.clone(), fresh, rules, quota }))
    }

    fn journal(&self, session: &WriteSession) -> Result<Arc<dyn Journal>, Fault> {
        self.may_go_on(session)?;
        self.plain.journal(session)
    }

    fn join(&self, session: &WriteSession) -> Result<Arc<dyn WriteAt>, Fault> {
        self.may_go_on(session)?;
        self.plain.join(session).map(|writer| self.metered(writer))
    }

    fn commit(&self, session: &WriteSession, receipts: &[Receipt], attributes: &Attributes) -> Result<(), Fault> {
        match session.rename {
            // Somebody may have taken the name since the session was begun; what it took itself is asked for again.
            true if !self.plain.has_committed(session) => self.may_write(&session.path)?,
            _ => self.may_go_on(session)?,
        }
        self.writer(&session.path).commit(session, receipts, &attributes.without_set_id())
    }

    fn has_committed(&self, session: &WriteSession) -> bool {
        self.may_stat(&session.path).is_ok() && self.plain.has_committed(session)
    }

    fn abandon(&self, session: &WriteSession) -> Result<(), Fault> {
        self.may_go_on(session)?;
        self.plain.abandon(session)
    }

    fn put(
        &self,
        path: &StoragePath,
        data: &[u8],
        attributes: &Attributes,
        mut read_back: Option<ReadBack<'_>>,
    ) -> Result<(), Fault> {
        if let Some(quota) = &self.quota {
            quota.charge(data.len() as u64)?;
        }
        let attributes = &attributes.without_set_id();
        self.at(path, Follow::Yes, Self::may_write, |_, path| match &mut read_back {
            Some(show) => self.writer(path).put(path, data, attributes, Some(&mut **show)),
            None => self.writer(path).put(path, data, attributes, None),
        })
    }

    fn unfinished(&self, path: &StoragePath) -> Result<Option<Meta>, Fault> {
        self.at(path, Follow::Yes, Self::may_stat, |storage, path| storage.unfinished(path))
    }

    fn has_unfinished(&self, path: &StoragePath) -> Result<bool, Fault> {
        self.at(path, Follow::Yes, Self::may_stat, |storage, path| storage.has_unfinished(path))
    }

    fn scratch(&self, directory: &StoragePath) -> Result<Arc<dyn WriteAt>, Fault> {
        let check = |ruled: &Self, path: &StoragePath| ruled.may(Operation::Create, path);
        self.at(directory, Follow::Yes, check, |storage, path| storage.scratch(path)).map(|writer| self.metered(writer))
    }

    fn sync(&self, path: &StoragePath) -> Result<(), Fault> {
        self.at(path, Follow::Yes, Self::may_stat, |storage, path| storage.sync(path))
    }

    fn file_system(&self, path: &StoragePath) -> Result<FileSystem, Fault> {
        self.at(path, Follow::Yes, Self::may_stat, |storage, path| storage.file_system(path))
    }

    fn make_dir(&self, path: &StoragePath) -> Result<(), Fault> {
        let check = |ruled: &Self, path: &StoragePath| match ruled.rules.allows_mkdir(&meant(&ruled.rules, path)) {
            true => Ok(()),
            false => Err(ruled.denied(Operation::Create.word(), path)),
        };
        self.at(path, Follow::No, check, |storage, path| storage.make_dir(path))
    }

    fn remove_dir(&self, path: &StoragePath) -> Result<(), Fault> {
        let check = |ruled: &Self, path: &StoragePath| ruled.may(Operation::Delete, path);
        self.at(path, Follow::No, check, |storage, path| storage.remove_dir(path))
    }

    fn remove_file(&self, path: &StoragePath) -> Result<(), Fault> {
        let check = |ruled: &Self, path: &StoragePath| ruled.may(Operation::Delete, path);
        self.at(path, Follow::No, check, |storage, path| storage.remove_file(path))
    }

    fn remove_tree(&self, path: &StoragePath) -> Result<(), Fault> {
        let check = |ruled: &Self, path: &StoragePath| match ruled
            .rules
            .allows_tree(&meant(&ruled.rules, path), Operation::Delete)
        {
            true => Ok(()),
            false => Err(ruled.denied("delete all that is", path)),
        };
        self.at(path, Follow::No, check, |storage, path| storage.remove_tree(path))
    }

    fn rename(&self, from: &StoragePath, to: &StoragePath, durable: bool) -> Result<(), Fault> {
        let check = |_: &Self, _: &StoragePath| Ok(());
        self.at(from, Follow::No, check, |storage, from| {
            let to = self.real(to, Follow::No)?;
            let tree = match storage.stat(from, Follow::No) {
                Ok(meta) => meta.kind == Kind::Directory,
                // Who may not look there is not told what is missing.
                Err(fault) => return Err(self.may_stat(from).err().unwrap_or(fault)),
            };
            let (old, new) = (meant(&self.rules, from), meant(&self.rules, &to));
            match self.rules.allows_rename(&old, &new, tree, self.exists(&to)?) {
                true => self.writer(&to).rename(from, &to, durable),
                false => Err(self.denied("give another name to what is", from)),
            }
        })
    }

    fn symlink(&self, target: &[u8], link: &StoragePath) -> Result<(), Fault> {
        let check = |ruled: &Self, path: &StoragePath| ruled.may(Operation::Create, path);
        self.at(link, Follow::No, check, |storage, path| storage.symlink(target, path))
    }

    fn set_attributes(&self, path: &StoragePath, attributes: &Attributes, follow: Follow) -> Result<(), Fault> {
        let check = |ruled: &Self, path: &StoragePath| ruled.may(Operation::Modify, path);
        self.at(path, follow, check, |storage, path| storage.set_plain_attributes(path, attributes, follow))
    }

    fn truncate(&self, path: &StoragePath, size: u64) -> Result<(), Fault> {
        let check = |ruled: &Self, path: &StoragePath| ruled.may(Operation::Modify, path);
        self.at(path, Follow::Yes, check, |storage, path| storage.truncate(path, size))
    }

    fn owner_names(&self, uid: u32, gid: u32) -> (String, String) {
        self.plain.owner_names(uid, gid)
    }
}
