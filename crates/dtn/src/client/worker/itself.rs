//! Whether what is written in place is the source itself: a server that empties it would leave nothing to read.

use whimbrel_engine::listing::ObjectKind;
use whimbrel_engine::transfer::Job;
use whimbrel_engine::{Fault, FaultCode, Side};
use whimbrel_proto::op::{Op, Outcome};

use super::Worker;
use super::manner::writes_in_place;
use crate::client::facts;
use crate::client::pair::{Pair, Role};
use crate::client::shared::Shared;
use crate::client::target::Target;

impl Worker {
    /// Why a file must not be written where it is to go: the source would be lost. Asked before anything is written in place
    /// on the source's own server.
    pub(super) async fn loses_source(&mut self, job: &Job) -> Option<Fault> {
        let Some((_, pair)) = &mut self.pair else { return None };
        if !may_be_itself(pair, &self.shared, job) {
            return None;
        }
        let source = look(pair, Role::Source, &job.item.source).await?;
        let destination = look(pair, Role::Destination, &job.item.destination).await?;
        let why = refusal(&source, &destination)?;
        let fault = Fault::new(FaultCode::InvalidArgument, "write in place").on_path(&job.item.destination);
        Some(fault.side(Side::Destination).detail(why))
    }
}

/// Whether a job writes in place on the server that its source is on.
pub(super) fn may_be_itself(pair: &Pair, shared: &Shared, job: &Job) -> bool {
    // Most files end here.
    if pair.destination.has("CHUNK") || pair.source.remote().is_none() {
        return false;
    }
    let hosts = |target: Option<&Target>| -> Vec<String> {
        target.into_iter().flat_map(Target::addresses).map(|(host, _)| host).collect()
    };
    let route = shared.route(job.item.root);
    let (from, to) = (hosts(route.source.as_ref()), hosts(route.destination.as_ref()));
    from.iter().any(|host| to.contains(host)) && writes_in_place(pair, shared, job)
}

/// What a server tells of a path.
#[derive(Debug, Default, PartialEq, Eq)]
struct Seen {
    /// Which file it is, or its link leads to.
    unique: Option<String>,
    is_link: bool,
}

impl Seen {
    /// From the line of an MLST reply; `None`: no file.
    fn described(line: &[u8]) -> Option<Self> {
        let is_link = matches!(facts::described(line, true)?.kind, ObjectKind::Symlink { .. });
        let followed = facts::described(line, false)?;
        match followed.kind {
            ObjectKind::File => Some(Self { unique: followed.unique, is_link }),
            // It tells of the link, and nothing of what that leads to.
            ObjectKind::Symlink { .. } => Some(Self { unique: None, is_link }),
            ObjectKind::Directory | ObjectKind::Other => None,
        }
    }
}

/// What is there; `None`: no file.
async fn look(pair: &mut Pair, role: Role, path: &[u8]) -> Option<Seen> {
    match pair.end(role).run(Op::Facts { path: path.to_vec(), facts: None }).await {
        Ok(Outcome::Line(line)) => Seen::described(&line),
        Err(fault) if fault.code == FaultCode::NotFound => None,
        _ => Some(Seen::default()),
    }
}

/// Why the destination must not be written to, as far as it is known what it is.
fn refusal(source: &Seen, destination: &Seen) -> Option<&'static str> {
    match (&source.unique, &destination.unique) {
        (Some(source), Some(destination)) if source == destination => Some("it is the source, by another name"),
        (Some(_), Some(_)) => None,
        _ => destination.is_link.then_some(
            "it is a link, and the server does not tell whether it leads to the source: name the file that it leads to, or remove the link",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(line: &str) -> Seen {
        Seen::described(line.as_bytes()).expect("a file")
    }

    #[test]
    fn a_link_that_leads_to_the_source_or_perhaps_does_is_not_written_through() {
        let source = seen("type=file;size=3;unique=fd00-7; /d/f");
        let refused = |line: &str| refusal(&source, &seen(line)).is_some();
        assert!(refused("type=file;unique=fd00-7;UNIX.slink=/d/f; /d/l"));
        assert!(refused("type=file;unique=fd00-7; /d/hard"));
        assert!(!refused("type=file;unique=fd00-8;UNIX.slink=/d/g; /d/l"));
        // The link's own number, and none at all.
        assert!(refused("type=OS.unix=slink:/d/f;unique=fd00-9; /d/l"));
        assert!(refused("type=file;UNIX.slink=/d/g; /d/l"));
        assert!(!refused("type=file; /d/g"));
        assert_eq!(Seen::described(b"type=OS.unix=chr; /dev/x"), None);
    }
}
