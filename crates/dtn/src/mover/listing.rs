//! Listings: LIST, NLST, MLSD, MLSR, MLSC, STAT and MLST.
//!
//! Directories of up to [`SORTED`] entries are sorted by name, after `.` and `..`; larger ones are
//! streamed in the storage's order, without `X.count`, in bounded memory. A recursive listing keeps
//! the directories it has yet to enter. Machine listings follow links (the link itself is told in
//! `UNIX.slink`) and show one that points nowhere as `slink`, which stock clients skip. Names that
//! would break a line cannot be told to a client: in their place machine listings have a line by which ours know that something
//! is missing and which stock clients skip, and `ls -l` and NLST have nothing.

mod tree;

use std::iter;
use std::sync::{Arc, Mutex, PoisonError};

use whimbrel_connector::{Connector, Entry, Follow, Kind, Meta, StoragePath, sorted};
use whimbrel_engine::{Fault, FaultCode, Side};
use whimbrel_proto::mlsx::{EntryKind, Fact, FactSet};
use whimbrel_proto::op::{ListForm, ListSpec, Notice, Outcome};
use whimbrel_transport::BlockSource;

use super::command::resolve;
use super::facts::{self, Subject};
use super::glob;
use super::report;
use super::worker::Task;
use tree::Tree;

/// Most entries of one directory that are kept to be sorted.
pub const SORTED: usize = 50_000;

/// Bytes of one [`Notice::Lines`].
const NOTICE_BYTES: usize = 64 << 10;

type Line = Result<Vec<u8>, Fault>;

/// A listing that is produced as it is sent.
pub struct Lines(Mutex<State>);

struct State {
    lines: Box<dyn Iterator<Item = Line> + Send>,
    /// Offset of the first pending byte.
    at: u64,
    pending: Vec<u8>,
}

impl Lines {
    /// Prepares a listing; a missing or unreadable directory fails here.
    pub fn open(connector: Arc<dyn Connector>, spec: &ListSpec) -> Result<Self, Fault> {
        Ok(Self(Mutex::new(State { lines: lines(connector, spec)?, at: 0, pending: Vec::new() })))
    }
}

impl BlockSource for Lines {
    /// Only in order: what was read is gone.
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<usize, Fault> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if offset != state.at {
            let fault = Fault::new(FaultCode::Internal, "list").side(Side::Us);
            return Err(fault.detail("a listing was read out of order"));
        }
        while state.pending.len() < buffer.len() {
            match state.lines.next() {
                Some(line) => state.pending.extend_from_slice(&line?),
                None => break,
            }
        }
        let count = buffer.len().min(state.pending.len());
        buffer[..count].copy_from_slice(&state.pending[..count]);
        // What remains is less than a line.
        state.pending.drain(..count);
        state.at += count as u64;
        Ok(count)
    }
}

/// MLSC and STAT: the lines go to the control connection.
pub fn on_control(task: &mut Task<'_>, spec: &ListSpec) -> Result<Outcome, Fault> {
    let mut collected = Vec::new();
    for line in lines(task.node.connector.clone(), spec)? {
        task.cancel.check("list")?;
        collected.extend(line?);
        if collected.len() >= NOTICE_BYTES {
            task.control.tell(collected.len(), task.cancel)?;
            task.reporter.notice(Notice::Lines(std::mem::take(&mut collected)));
            task.reporter.flush();
        }
    }
    if !collected.is_empty() {
        task.control.tell(collected.len(), task.cancel)?;
        task.reporter.notice(Notice::Lines(collected));
    }
    Ok(Outcome::Done)
}

/// MLST: one object; the number of entries of a directory only when asked for by name.
pub fn facts(connector: &dyn Connector, path: &[u8], names: Option<&[String]>) -> Result<Outcome, Fault> {
    let path = resolve(path)?;
    let wanted = facts::wanted(names);
    let object = Object::of(connector, &path, connector.stat(&path, Follow::No)?, true);
    let mut count = None;
    if names.is_some() && wanted.contains(Fact::Count) && object.meta.kind == Kind::Directory {
        count = Some(connector.list(&path)?.count() as u64 + 2);
    }
    let mut line = Vec::new();
    object.facts(connector, &mut line, &Style { count, ..Style::of(wanted) }, path.as_bytes());
    if object.meta.kind == Kind::Symlink {
        // Links are followed, and this one leads nowhere.
        return Err(Fault::new(FaultCode::NotFound, "describe").on_path(path.as_bytes()));
    }
    Ok(Outcome::Line(line))
}

/// The lines of a listing, each with CRLF.
fn lines(connector: Arc<dyn Connector>, spec: &ListSpec) -> Result<Box<dyn Iterator<Item = Line> + Send>, Fault> {
    let path = resolve(&spec.path)?;
    let human = matches!(spec.form, ListForm::Long | ListForm::Names);
    let named = connector.stat(&path, Follow::Yes);
    if human && glob::is_pattern(path.name().unwrap_or_default()) && named.is_err() {
        return matching(connector, spec, &path);
    }
    let meta = named?;
    match (spec.form, meta.kind) {
        (ListForm::FactsRecursive, Kind::Directory) => Ok(Box::new(Tree::open(connector, spec, path, meta)?)),
        (_, Kind::Directory) => directory(connector, spec, path, meta),
        (ListForm::Facts | ListForm::FactsRecursive, _) => {
            Err(Fault::new(FaultCode::NotADirectory, "list").on_path(path.as_bytes()))
        }
        _ => {
            let name = path.name().unwrap_or_default().to_vec();
            let entry = Entry { name, meta: connector.stat(&path, Follow::No)? };
            let parent = path.parent().unwrap_or_else(StoragePath::root);
            let writer = Writer::new(connector, spec, parent);
            Ok(Box::new(iter::once(Ok(entry)).filter_map(move |entry| writer.entry(entry))))
        }
    }
}

/// One directory: `.` and `..` where they belong, then the entries.
fn directory(
    connector: Arc<dyn Connector>,
    spec: &ListSpec,
    path: StoragePath,
    meta: Meta,
) -> Result<Box<dyn Iterator<Item = Line> + Send>, Fault> {
    let (entries, count) = connector.list_sorted(&path, SORTED)?;
    let writer = Writer::new(connector, spec, path);
    let mut dots = Vec::new();
    if spec.form != ListForm::Names || spec.flags.contains(&b'a') {
        dots.push(writer.dot(&meta, count.map(|count| count + 2)));
        dots.push(writer.dot_dot());
    }
    let dots = dots.into_iter().map(Ok);
    Ok(Box::new(dots.chain(entries.filter_map(move |entry| writer.entry(entry)))))
}

/// Entries whose name matches the last component; none is an error, as in a shell.
fn matching(
    connector: Arc<dyn Connector>,
    spec: &ListSpec,
    path: &StoragePath,
) -> Result<Box<dyn Iterator<Item = Line> + Send>, Fault> {
    let missing = || Fault::new(FaultCode::NotFound, "list").on_path(path.as_bytes());
    let (parent, pattern) = path.parent().zip(path.name()).ok_or_else(missing)?;
    let pattern = pattern.to_vec();
    let found = connector.list(&parent)?;
    let matching = found.filter(move |entry| match entry {
        Ok(entry) => glob::matches(&pattern, &entry.name),
        Err(_) => true,
    });
    let (entries, count) = sorted(Box::new(matching), SORTED)?;
    if count == Some(0) {
        return Err(missing());
    }
    let writer = Writer { prefix: spec.written.clone(), ..Writer::new(connector, spec, parent) };
    Ok(Box::new(entries.filter_map(move |entry| writer.entry(entry))))
}

/// How facts are written.
#[derive(Clone)]
struct Style {
    wanted: FactSet,
    role: Option<EntryKind>,
    count: Option<u64>,
    error: Option<&'static str>,
}

impl Style {
    fn of(wanted: FactSet) -> Self {
        Self { wanted, role: None, count: None, error: None }
    }
}

/// An object as machine listings tell it.
struct Object {
    meta: Meta,
    link: Option<StoragePath>,
    /// The link's own words, if they are relative.
    text: Option<Vec<u8>>,
}

impl Object {
    /// One that is told as it is.
    fn plain(meta: Meta) -> Self {
        Self { meta, link: None, text: None }
    }

    /// Describes the link's target instead of a link where there is one, if links are followed.
    fn of(connector: &dyn Connector, path: &StoragePath, own: Meta, follow: bool) -> Self {
        if own.kind != Kind::Symlink {
            return Self::plain(own);
        }
        let parent = path.parent().unwrap_or_else(StoragePath::root);
        let text = own.link_target.as_deref().unwrap_or_default();
        let link = StoragePath::resolve(&parent, text).ok();
        let target = if follow { connector.stat(path, Follow::Yes).ok() } else { None };
        let text = own.link_target.clone().filter(|text| !text.is_empty() && !text.starts_with(b"/"));
        Self { meta: target.unwrap_or(own), link, text }
    }

    fn facts(&self, connector: &dyn Connector, out: &mut Vec<u8>, style: &Style, name: &[u8]) {
        let owner = connector.owner_names(self.meta.uid, self.meta.gid);
        let subject = Subject {
            meta: &self.meta,
            role: style.role.clone(),
            link: self.link.as_ref(),
            link_text: self.text.as_deref(),
            count: style.count,
            owner: &owner,
            error: style.error,
        };
        facts::line(out, style.wanted, &subject, name);
    }
}

/// Writes lines about the entries of one directory.
struct Writer {
    connector: Arc<dyn Connector>,
    form: ListForm,
    style: Style,
    directory: StoragePath,
    /// Before names that stand alone.
    prefix: Vec<u8>,
    now: i64,
}

impl Writer {
    fn new(connector: Arc<dyn Connector>, spec: &ListSpec, directory: StoragePath) -> Self {
        Self {
            connector,
            form: spec.form,
            style: Style::of(facts::wanted(spec.facts.as_deref())),
            directory,
            prefix: Vec::new(),
            now: (report::now_ms() / 1000) as i64,
        }
    }

    fn entry(&self, entry: Result<Entry, Fault>) -> Option<Line> {
        let entry = match entry {
            Ok(entry) => entry,
            Err(fault) => return Some(Err(fault)),
        };
        if facts::breaks_line(&entry.name) {
            return self.untold(&self.directory, &entry.name).map(Ok);
        }
        let follow = matches!(self.form, ListForm::Facts);
        let object = match self.directory.join(&entry.name) {
            Ok(path) if follow => Object::of(self.connector.as_ref(), &path, entry.meta, true),
            _ => Object::plain(entry.meta),
        };
        Some(Ok(self.line(&object, &self.style, &entry.name)))
    }

    /// The line in place of one that its name would break, in listings that have such.
    fn untold(&self, directory: &StoragePath, name: &[u8]) -> Option<Vec<u8>> {
        tracing::warn!(%directory, name = ?String::from_utf8_lossy(name), "this name would break the listing");
        if matches!(self.form, ListForm::Long | ListForm::Names) {
            return None;
        }
        let mut out = Vec::new();
        facts::untold(&mut out, name).ok()?;
        out.extend_from_slice(b"\r\n");
        Some(out)
    }

    fn line(&self, object: &Object, style: &Style, name: &[u8]) -> Vec<u8> {
        let mut out = Vec::with_capacity(128 + name.len());
        match self.form {
            ListForm::Names => {
                out.extend_from_slice(&self.prefix);
                out.extend_from_slice(name);
            }
            ListForm::Facts | ListForm::FactsRecursive => {
                object.facts(self.connector.as_ref(), &mut out, style, name);
            }
            ListForm::Long => {
                let owner = self.connector.owner_names(object.meta.uid, object.meta.gid);
                facts::long(&mut out, &object.meta, &owner, name, self.now);
            }
        }
        out.extend_from_slice(b"\r\n");
        out
    }

    fn dot(&self, meta: &Meta, count: Option<u64>) -> Vec<u8> {
        let object = Object::plain(meta.clone());
        self.line(&object, &Style { role: Some(EntryKind::Current), count, ..self.style.clone() }, b".")
    }

    /// The parent, or the root itself; an unreadable one is shown as the root's stand-in would be.
    fn dot_dot(&self) -> Vec<u8> {
        let parent = self.directory.parent().unwrap_or_else(StoragePath::root);
        let own = || self.connector.stat(&self.directory, Follow::Yes);
        match self.connector.stat(&parent, Follow::Yes).or_else(|_| own()) {
            Ok(meta) => {
                let object = Object::plain(meta);
                self.line(&object, &Style { role: Some(EntryKind::Parent), ..self.style.clone() }, b"..")
            }
            // Gone since it was opened: the listing itself will tell.
            Err(_) => Vec::new(),
        }
    }
}
