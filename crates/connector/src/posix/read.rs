//! An open file to read from.

use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{OFlags, SeekFrom, fcntl_getfl, fcntl_setfl, seek};
use rustix::io::{Errno, pread, read};
use whimbrel_engine::{Fault, FaultCode, RangeSet};

use super::direct::{self, Aligned, Direct};
use super::error::OrFault;
use super::inorder::InOrder;
use super::meta::{Caller, kind_of, size_of, statx_fd, statx_now};
use super::resolve::{Root, retry};
use super::scratch::forget;
use crate::meta::{Kind, Meta, Version};
use crate::path::StoragePath;
use crate::rules::expect_version;
use crate::{Extent, ReadAt, ReadsFrom};

/// A file, device or pipe being read.
pub(super) struct Reader {
    fd: OwnedFd,
    path: StoragePath,
    kind: Kind,
    /// Size when it was opened: a short read that reaches it needs no second call.
    size: u64,
    /// As it was when it was opened.
    opened: Meta,
    caller: Caller,
    in_order: InOrder,
    /// The same file past the page cache, where large files are read so.
    direct: Option<Aligned>,
    /// It had fewer blocks than its size needs when it was opened.
    sparse: bool,
}

/// Who writes to a pipe.
enum Writers {
    NoneYet,
    There,
    Gone,
}

/// How anything is opened to be read: a pipe without a writer or a dead line must not block.
const READ: OFlags = OFlags::RDONLY.union(OFlags::NONBLOCK).union(OFlags::NOCTTY);

/// Opens `path`, following links inside the root.
pub(super) fn open(
    root: &Root,
    caller: &Caller,
    path: &StoragePath,
    expect: Option<&Version>,
) -> Result<Reader, Fault> {
    let op = "open for reading";
    let fd = root.open_at(path, READ).or_fault(op, path)?;
    let stat = statx_fd(&fd).or_fault(op, path)?;
    let kind = kind_of(&stat);
    match kind {
        Kind::Directory => {
            return Err(Fault::new(FaultCode::IsADirectory, op).on_path(path.as_bytes()));
        }
        Kind::File => {}
        _ => clear_nonblock(&fd).or_fault(op, path)?,
    }
    let mut opened = caller.meta(&stat, None);
    opened.size = size_of(&stat, &fd);
    if let Some(expected) = expect {
        expect_version(expected, &opened.version(), path)?;
    }
    Ok(Reader {
        size: stat.stx_size,
        sparse: kind == Kind::File && stat.stx_blocks.saturating_mul(512) < stat.stx_size,
        opened,
        caller: caller.clone(),
        path: path.clone(),
        in_order: InOrder::new(kind == Kind::Pipe),
        direct: None,
        kind,
        fd,
    })
}

/// Makes reads and writes wait again after an opening that did not.
pub(super) fn clear_nonblock(fd: impl AsFd) -> Result<(), Errno> {
    let flags = fcntl_getfl(&fd)?;
    fcntl_setfl(&fd, flags.difference(OFlags::NONBLOCK))
}

/// Reads until `buffer` is full or the end; `known_end` spares the call that would return 0.
pub(super) fn read_fully(fd: BorrowedFd<'_>, offset: u64, buffer: &mut [u8], known_end: u64) -> Result<usize, Errno> {
    let mut done = 0;
    while done < buffer.len() {
        let at = offset + done as u64;
        match retry(|| pread(fd, &mut buffer[done..], at))? {
            0 => break,
            n => done += n,
        }
        if offset + done as u64 == known_end {
            break;
        }
    }
    Ok(done)
}

impl Reader {
    /// Reads past the page cache what is large enough and whole blocks. What the kernel sends by itself still is cached.
    pub(super) fn past_cache(self, direct: Option<&Direct>) -> Self {
        let reader = direct.filter(|_| self.kind == Kind::File).and_then(|direct| direct.reader(&self.fd, self.size));
        Self { direct: reader, ..self }
    }

    /// Who has written to a pipe whose first read found no writer: the end of nothing is not the end of any data.
    fn writers(&self) -> Result<Writers, Errno> {
        let mut polled = [PollFd::new(&self.fd, PollFlags::IN)];
        retry(|| poll(&mut polled, Some(&Timespec::default())))?;
        let seen = polled[0].revents();
        // A writer that came and went since the opening here hangs up (poll(2)).
        Ok(match (seen.contains(PollFlags::IN), seen.contains(PollFlags::HUP)) {
            (true, _) => Writers::There,
            (false, true) => Writers::Gone,
            (false, false) => Writers::NoneYet,
        })
    }

    fn read_in_order(&self, offset: u64, buffer: &mut [u8]) -> Result<usize, Fault> {
        let op = "read";
        let mut turn = self.in_order.turn(offset, op, &self.path)?;
        let mut done = 0;
        while done < buffer.len() {
            match retry(|| read(&self.fd, &mut buffer[done..])).or_fault(op, &self.path)? {
                0 if *turn == 0 && self.kind == Kind::Pipe => match self.writers().or_fault(op, &self.path)? {
                    Writers::Gone => break,
                    Writers::There => {}
                    Writers::NoneYet => {
                        let fault = Fault::new(FaultCode::StorageBusy, op).on_path(self.path.as_bytes());
                        return Err(fault.detail("nobody has opened this pipe to write yet"));
                    }
                },
                0 => break,
                n => done += n,
            }
            *turn = offset + done as u64;
        }
        Ok(done)
    }
}

impl ReadAt for Reader {
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<usize, Fault> {
        if self.in_order.needed() {
            return self.read_in_order(offset, buffer);
        }
        // Past what the kernel can address there is nothing to read.
        if offset > i64::MAX as u64 - buffer.len() as u64 {
            return Ok(0);
        }
        match direct::read(self.direct.as_ref(), &self.fd, offset, buffer, self.size) {
            Err(Errno::SPIPE) => {
                self.in_order.need();
                self.read_in_order(offset, buffer)
            }
            other => other.or_fault("read", &self.path),
        }
    }

    fn drop_cached(&self, range: Range<u64>) -> ReadsFrom {
        if self.kind == Kind::File { forget(&self.fd, range) } else { ReadsFrom::Memory }
    }

    fn opened(&self) -> Result<Meta, Fault> {
        Ok(self.opened.clone())
    }

    fn meta(&self) -> Result<Meta, Fault> {
        // Whether it is what was opened is asked of the file system.
        let stat = statx_now(&self.fd).or_fault("describe", &self.path)?;
        let mut meta = self.caller.meta(&stat, None);
        meta.size = size_of(&stat, &self.fd);
        Ok(meta)
    }

    fn data_ranges(&self) -> Result<RangeSet, Fault> {
        let size = self.meta()?.size;
        if self.kind != Kind::File {
            return Ok(std::iter::once(0..size).collect());
        }
        data_ranges(self.fd.as_fd(), size).or_fault("find holes", &self.path)
    }

    fn extent_at(&self, at: u64) -> Result<Extent, Fault> {
        if self.kind != Kind::File {
            return Ok(Extent { is_data: true, end: u64::MAX });
        }
        extent_at(self.fd.as_fd(), at).or_fault("find holes", &self.path)
    }

    fn may_have_holes(&self) -> bool {
        self.sparse
    }

    fn is_past_cache(&self) -> bool {
        self.direct.as_ref().is_some_and(|direct| !direct.is_refused())
    }

    fn sendfile_source(&self) -> Option<BorrowedFd<'_>> {
        (self.kind == Kind::File).then(|| self.fd.as_fd())
    }
}

/// Walks data and holes.
fn data_ranges(fd: BorrowedFd<'_>, size: u64) -> Result<RangeSet, Errno> {
    let mut found = RangeSet::new();
    let mut at = 0;
    while at < size {
        let extent = extent_at(fd, at)?;
        let end = extent.end.min(size);
        if extent.is_data {
            found.insert(at..end);
        }
        at = end;
    }
    Ok(found)
}

/// What byte `at` lies in; moves the descriptor's offset, which nothing here relies on.
pub(super) fn extent_at(fd: BorrowedFd<'_>, at: u64) -> Result<Extent, Errno> {
    let hole = |end| Ok(Extent { is_data: false, end });
    if at > i64::MAX as u64 {
        return hole(u64::MAX);
    }
    match retry(|| seek(fd, SeekFrom::Data(at))) {
        Ok(start) if start > at => return hole(start),
        Ok(_) => {}
        // Nothing but a hole is left, or nothing at all.
        Err(Errno::NXIO) => return hole(u64::MAX),
        // The file system cannot tell: all of it may be data.
        Err(Errno::INVAL | Errno::OPNOTSUPP) => return Ok(Extent { is_data: true, end: u64::MAX }),
        Err(errno) => return Err(errno),
    }
    match retry(|| seek(fd, SeekFrom::Hole(at))) {
        // Others may have made a hole of it meanwhile: at least this byte was data.
        Ok(end) => Ok(Extent { is_data: true, end: end.max(at + 1) }),
        // It was cut short meanwhile.
        Err(Errno::NXIO) => hole(u64::MAX),
        Err(errno) => Err(errno),
    }
}
