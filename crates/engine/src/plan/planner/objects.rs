//! What becomes of one object.

use std::ops::Range;

use super::{Pending, Place, Planner};
use crate::fault::{Fault, FaultCode, Side};
use crate::listing::{Object, ObjectKind};
use crate::plan::compare::{self, Verdict};
use crate::plan::{Action, Attributes, Finished, Item, ItemId, Links, SkipReason, SyncLevel};

const LEADS_ELSEWHERE: &str = "a symbolic link is there, which leads elsewhere: remove it first";

impl Planner {
    /// Plans one object; returns what has to be visited before more can be said.
    pub(super) fn plan_object(&mut self, place: Place, object: Object, existing: Option<Object>) -> Option<Pending> {
        match &object.kind {
            ObjectKind::File => self.plan_file(place, &object, existing.as_ref()),
            ObjectKind::Directory => return self.plan_directory(place, object, existing.as_ref()),
            ObjectKind::Symlink { target } => {
                self.plan_link(&place, &object, target, existing.as_ref());
            }
            // What the user names is copied, whatever it is; what merely lies in a directory is not.
            ObjectKind::Other if place.parent.is_none() => {
                self.plan_file(place, &object, existing.as_ref());
            }
            ObjectKind::Other if self.options.skip_unsupported => {
                self.skip(&place, SkipReason::Unsupported);
            }
            ObjectKind::Other => {
                let fault =
                    Fault::new(FaultCode::NotSupported, "copy").detail("a device, pipe or socket").side(Side::Source);
                self.refuse(&place, fault);
            }
        }
        None
    }

    pub(super) fn plan_file(&mut self, place: Place, object: &Object, existing: Option<&Object>) {
        // The size of a device is not the number of bytes it gives.
        let size = object.size.filter(|_| object.kind == ObjectKind::File);
        let (range, size) = match effective_range(place.range.clone(), size) {
            Ok(found) => found,
            Err(fault) => return self.refuse(&place, fault),
        };
        let verdict = if range.is_some() { Verdict::Copy } else { compare::file(object, existing, &self.options) };
        let mut item = self.item(&place);
        item.size = size;
        item.range = range;
        item.modified = object.modified;
        item.attributes = self.attributes(object);
        let verdict = match self.unless_finished(verdict, &item, existing) {
            // What is seen may be the copy of another.
            Verdict::Skip(_) if !item.twins.is_empty() => Verdict::Copy,
            verdict => verdict,
        };
        if !matches!(verdict, Verdict::Skip(_)) && self.would_go_through(existing) {
            let fault = Fault::new(FaultCode::AlreadyExists, "copy").on_path(&item.destination);
            let fault = fault.side(Side::Destination).detail(LEADS_ELSEWHERE);
            return self.actions.push_back(Action::Refuse { fault, item });
        }
        self.actions.push_back(match verdict {
            Verdict::Copy => Action::Copy { item },
            Verdict::CompareChecksum => Action::CompareChecksum { item },
            Verdict::Skip(reason) => Action::Skip { item, reason },
            Verdict::Refuse(code) => Action::Refuse { fault: destination_fault(code, &item), item },
        });
    }

    /// Whether what comes would go through a link.
    fn would_go_through(&self, existing: Option<&Object>) -> bool {
        self.options.avoids_links && existing.is_some_and(|object| matches!(object.kind, ObjectKind::Symlink { .. }))
    }

    /// What an earlier run has finished is not copied again; what it may have finished is compared.
    fn unless_finished(&self, verdict: Verdict, item: &Item, existing: Option<&Object>) -> Verdict {
        let compares = self.options.sync != SyncLevel::None;
        let (Some(earlier), Some(existing)) = (&self.earlier, existing) else { return verdict };
        if compares || verdict != Verdict::Copy || item.range.is_some() || existing.kind != ObjectKind::File {
            return verdict;
        }
        match earlier.finished(item, existing) {
            Finished::No => verdict,
            Finished::Perhaps => Verdict::CompareChecksum,
            Finished::Yes => Verdict::Skip(SkipReason::MovedEarlier),
        }
    }

    pub(super) fn plan_link(&mut self, place: &Place, object: &Object, target: &[u8], existing: Option<&Object>) {
        match place.links {
            Links::Skip => self.skip(place, SkipReason::Link),
            // Asked to resolve it, the source still says it is a link.
            Links::Follow => {
                let fault = Fault::new(FaultCode::NotFound, "follow link").side(Side::Source);
                self.refuse(place, fault);
            }
            Links::Copy => {
                let mut item = self.item(place);
                item.attributes.modified = self.attributes(object).modified;
                self.actions.push_back(match compare::link(target, existing, &self.options) {
                    Verdict::Skip(reason) => Action::Skip { item, reason },
                    Verdict::Refuse(code) => Action::Refuse { fault: destination_fault(code, &item), item },
                    Verdict::Copy | Verdict::CompareChecksum => Action::Symlink { item, target: target.to_vec() },
                });
            }
        }
    }

    pub(super) fn plan_directory(
        &mut self,
        place: Place,
        object: Object,
        existing: Option<&Object>,
    ) -> Option<Pending> {
        let exists = matches!(existing, Some(o) if o.kind == ObjectKind::Directory);
        let refused = if !self.options.recursive {
            Some(Fault::new(FaultCode::IsADirectory, "copy").side(Side::Source))
        } else if place.range.is_some() {
            Some(Fault::new(FaultCode::IsADirectory, "copy a range of").side(Side::Source))
        } else if place.depth > self.options.max_depth || self.is_loop(&place, &object) {
            let fault = Fault::new(FaultCode::InvalidPath, "enter").side(Side::Source);
            Some(fault.detail("a loop of links, or too deep"))
        } else if self.would_go_through(existing) {
            let fault = Fault::new(FaultCode::NotADirectory, "make directory").side(Side::Destination);
            Some(fault.detail(LEADS_ELSEWHERE))
        } else if matches!(existing, Some(o) if matches!(o.kind, ObjectKind::File | ObjectKind::Other)) {
            Some(Fault::new(FaultCode::NotADirectory, "make directory").side(Side::Destination))
        } else {
            None
        };
        if let Some(fault) = refused {
            self.refuse(&place, fault);
            return None;
        }
        Some(Pending::Directory { place, object, exists })
    }

    pub(super) fn is_loop(&self, place: &Place, object: &Object) -> bool {
        let Some(unique) = &object.unique else {
            return false;
        };
        let mut at = place.parent;
        while let Some(directory) = at.and_then(|id| self.directories.get(&id)) {
            if directory.unique.as_ref() == Some(unique) {
                return true;
            }
            at = directory.place.parent;
        }
        false
    }

    pub(super) fn item(&mut self, place: &Place) -> Item {
        let id = ItemId(self.next_item);
        self.next_item += 1;
        Item {
            id,
            root: place.root,
            parent: place.parent,
            source: place.source.clone(),
            destination: place.destination.clone(),
            size: Some(0),
            modified: None,
            range: None,
            attributes: Attributes::default(),
            twins: place.twins.clone(),
        }
    }

    pub(super) fn attributes(&self, object: &Object) -> Attributes {
        let preserve = self.options.preserve;
        Attributes {
            modified: object.modified.filter(|_| preserve.times),
            mode: object.mode.filter(|_| preserve.modes).map(|mode| mode & 0o7777),
        }
    }

    pub(super) fn skip(&mut self, place: &Place, reason: SkipReason) {
        let item = self.item(place);
        self.actions.push_back(Action::Skip { item, reason });
    }

    pub(super) fn refuse(&mut self, place: &Place, mut fault: Fault) {
        let item = self.item(place);
        if fault.subject.is_empty() {
            fault = fault.on_path(&item.source);
        }
        self.actions.push_back(Action::Refuse { item, fault });
    }
}

fn destination_fault(code: FaultCode, item: &Item) -> Fault {
    Fault::new(code, "write").on_path(&item.destination).side(Side::Destination)
}

/// The bytes to move and their number, when the file's size allows to say.
type Extent = (Option<Range<u64>>, Option<u64>);

fn effective_range(range: Option<Range<u64>>, size: Option<u64>) -> Result<Extent, Fault> {
    let Some(range) = range else {
        return Ok((None, size));
    };
    let end = size.map_or(range.end, |size| range.end.min(size));
    if range.start > end {
        let fault = Fault::new(FaultCode::InvalidArgument, "copy a range of");
        return Err(fault.side(Side::Source).detail("the range starts behind the end"));
    }
    let length = (end != u64::MAX).then(|| end - range.start);
    Ok((Some(range.start..end), length))
}
