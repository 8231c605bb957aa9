//! Bytes of any length at any place become whole pieces.

use std::collections::HashMap;
use std::num::NonZeroU64;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::fs::{Advice, fadvise};
use rustix::io::Errno;
use whimbrel_engine::RangeSet;
use whimbrel_sys::pages::Pages;
use whimbrel_sys::resident::page_size;

use super::Aligned;
use super::behind::Behind;
use crate::posix::handles::Handle;
use crate::posix::write::write_fully;

/// Empty buffers that are kept for the next piece.
const IDLE: usize = 8;

/// Most places remembered that went through the page cache: those of one file are few, or direct writing is no use.
const MOST_EDGES: usize = 4096;

/// The memory of all pieces of one storage.
pub(super) struct Buffers {
    piece: usize,
    most: usize,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    idle: Vec<Pages>,
    in_use: usize,
}

impl Buffers {
    pub fn new(piece: usize, most: usize) -> Self {
        Self { piece, most, state: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Memory for a piece, if there is any: nobody waits for it, because there is another way.
    fn take(self: &Arc<Self>) -> Option<Buffer> {
        let mut state = self.lock();
        if state.in_use >= self.most {
            return None;
        }
        let idle = state.idle.pop();
        state.in_use += 1;
        drop(state);
        let pages = idle.or_else(|| Pages::new(self.piece).ok());
        let buffer = pages.map(|pages| Buffer { pages: Some(pages), home: self.clone() });
        if buffer.is_none() {
            self.lock().in_use -= 1;
        }
        buffer
    }

    #[cfg(test)]
    pub fn in_use(&self) -> usize {
        self.lock().in_use
    }
}

/// Memory of a piece; its old content is arbitrary.
struct Buffer {
    /// `None` only inside `drop`.
    pages: Option<Pages>,
    home: Arc<Buffers>,
}

impl Buffer {
    fn bytes(&mut self) -> &mut [u8] {
        self.pages.as_mut().expect("present until dropped")
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let mut state = self.home.lock();
        state.in_use -= 1;
        let mut surplus = self.pages.take();
        if state.idle.len() < IDLE {
            state.idle.extend(surplus.take());
        }
        drop(state);
        // Unmapped here, outside the lock.
        drop(surplus);
    }
}

/// A file that is being written past the page cache.
pub(in crate::posix) struct Gathering {
    file: Aligned,
    piece: usize,
    /// As announced: where the last piece is complete.
    size: u64,
    buffers: Arc<Buffers>,
    behind: Arc<Behind>,
    /// By number; those of which something is here, or is being written.
    pieces: Mutex<HashMap<u64, Arc<Mutex<Piece>>>>,
    /// What went through the page cache since the last sync.
    edges: Mutex<RangeSet>,
}

/// What has come of a piece and is not written.
#[derive(Default)]
struct Piece {
    buffer: Option<Buffer>,
    /// From the piece's beginning.
    here: RangeSet,
}

impl Gathering {
    pub(super) fn new(file: Aligned, size: u64, buffers: Arc<Buffers>, behind: Arc<Behind>) -> Self {
        let (pieces, edges) = (Mutex::default(), Mutex::default());
        Self { file, piece: buffers.piece, size, buffers, behind, pieces, edges }
    }

    pub fn file(&self) -> &Aligned {
        &self.file
    }

    /// Writes `data`, or keeps what is no whole piece yet.
    pub fn write(&self, handle: &Arc<Handle>, offset: u64, mut data: &[u8]) -> Result<(), Errno> {
        let length = self.piece as u64;
        let mut at = offset;
        while !data.is_empty() {
            let inside = usize::try_from(at % length).expect("less than the length of a piece");
            let (part, rest) = data.split_at(data.len().min(self.piece - inside));
            let number = at / length;
            let is_complete = self.with_piece(number, |piece| self.put(&handle.file, piece, at, part))?;
            // A queue without room is slower storage: who brings more waits for it.
            if is_complete && !self.behind.accepts(handle, number) {
                self.with_piece(number, |piece| self.pass_on(&handle.file, piece, self.start(number)))?;
            }
            at += part.len() as u64;
            data = rest;
        }
        Ok(())
    }

    /// Whether anything of `range` is kept here, or is on its way.
    pub fn keeps(&self, range: &Range<u64>) -> bool {
        self.pieces().keys().any(|&number| self.meets(number, range))
    }

    /// Writes what is kept of the pieces that `range` meets.
    pub fn settle(&self, ordinary: &OwnedFd, range: &Range<u64>) -> Result<(), Errno> {
        let mut met: Vec<u64> = self.pieces().keys().copied().filter(|&number| self.meets(number, range)).collect();
        // So that the file grows from its beginning.
        met.sort_unstable();
        met.into_iter()
            .try_for_each(|number| self.with_piece(number, |piece| self.pass_on(ordinary, piece, self.start(number))))
    }

    /// What went through the page cache and was not asked for before.
    pub fn take_edges(&self) -> RangeSet {
        std::mem::take(&mut *self.edges())
    }

    /// Writes a piece that is complete, unless somebody else has.
    pub(super) fn write_complete(&self, ordinary: &OwnedFd, number: u64) {
        let start = self.start(number);
        // Kept when it fails, and then tried again by who settles it, who is told.
        let _ = self.with_piece(number, |piece| {
            if self.is_complete(piece, start) { self.pass_on(ordinary, piece, start) } else { Ok(()) }
        });
    }

    /// Adds what begins at `at` to its piece; whether that is complete now.
    fn put(&self, ordinary: &OwnedFd, piece: &mut Piece, at: u64, part: &[u8]) -> Result<bool, Errno> {
        if piece.buffer.is_none() && !self.file.is_refused() {
            piece.buffer = self.buffers.take();
        }
        let Some(buffer) = &mut piece.buffer else {
            return self.through_cache(ordinary, at, part).map(|()| false);
        };
        let inside = usize::try_from(at % self.piece as u64).expect("less than the length of a piece");
        buffer.bytes()[inside..][..part.len()].copy_from_slice(part);
        piece.here.insert(inside as u64..(inside + part.len()) as u64);
        Ok(self.is_complete(piece, at - inside as u64))
    }

    /// Of the last piece no more can come than the file has.
    fn is_complete(&self, piece: &Piece, start: u64) -> bool {
        let length = self.piece as u64;
        let whole = if start < self.size { length.min(self.size - start) } else { length };
        piece.here.covers(0..whole)
    }

    /// Gives a piece to the file system; keeps it when that fails.
    fn pass_on(&self, ordinary: &OwnedFd, piece: &mut Piece, start: u64) -> Result<(), Errno> {
        let Some(buffer) = &mut piece.buffer else { return Ok(()) };
        for run in piece.here.as_slice() {
            let within = |at: u64| usize::try_from(at).expect("inside of a piece");
            self.store(ordinary, start, buffer.bytes(), within(run.start)..within(run.end))?;
        }
        *piece = Piece::default();
        Ok(())
    }

    /// Whole blocks past the page cache, what lies before and behind them through it.
    fn store(&self, ordinary: &OwnedFd, start: u64, bytes: &[u8], run: Range<usize>) -> Result<(), Errno> {
        let align = self.file.align();
        let (first, last) = (run.start.next_multiple_of(align), run.end / align * align);
        if first >= last {
            return self.through_cache(ordinary, start + run.start as u64, &bytes[run]);
        }
        self.through_cache(ordinary, start + run.start as u64, &bytes[run.start..first])?;
        let done = first + self.file.write(start + first as u64, &bytes[first..last])?;
        self.through_cache(ordinary, start + done as u64, &bytes[done..run.end])
    }

    fn through_cache(&self, ordinary: &OwnedFd, offset: u64, data: &[u8]) -> Result<(), Errno> {
        if data.is_empty() {
            return Ok(());
        }
        write_fully(ordinary, offset, data)?;
        let mut edges = self.edges();
        if edges.as_slice().len() < MOST_EDGES {
            edges.insert(offset..offset + data.len() as u64);
        }
        Ok(())
    }

    /// Works on a piece with its lock, and lets go of it when nothing is kept of it.
    fn with_piece<T>(&self, number: u64, work: impl FnOnce(&mut Piece) -> T) -> T {
        let piece = self.pieces().entry(number).or_default().clone();
        let result = work(&mut lock(&piece));
        let mut pieces = self.pieces();
        // The table's and this one: nobody else is at it, nor can be before the table is free.
        if Arc::strong_count(&piece) == 2 && lock(&piece).buffer.is_none() {
            pieces.remove(&number);
        }
        result
    }

    fn meets(&self, number: u64, range: &Range<u64>) -> bool {
        let start = self.start(number);
        start < range.end && start.saturating_add(self.piece as u64) > range.start
    }

    fn start(&self, number: u64) -> u64 {
        number * self.piece as u64
    }

    fn pieces(&self) -> MutexGuard<'_, HashMap<u64, Arc<Mutex<Piece>>>> {
        self.pieces.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn edges(&self) -> MutexGuard<'_, RangeSet> {
        self.edges.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Asks the kernel to forget the pages of what a sync has stored.
pub(super) fn forget(file: &OwnedFd, edges: &RangeSet) {
    let page = page_size();
    for edge in edges.as_slice() {
        let (start, end) = (edge.start / page * page, edge.end.next_multiple_of(page));
        // Advice: what is not taken costs memory, nothing else.
        let _ = fadvise(file, start, NonZeroU64::new(end - start), Advice::DontNeed);
    }
}

/// A panic in between leaves a piece whose ranges are what was copied.
fn lock(piece: &Mutex<Piece>) -> MutexGuard<'_, Piece> {
    piece.lock().unwrap_or_else(PoisonError::into_inner)
}
