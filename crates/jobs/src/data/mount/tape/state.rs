//! The state of a tape: pieces that are there or on their way, and the streams of reads.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::Range;
use std::sync::{Arc, Condvar, OnceLock};

use bytes::Bytes;
use stokehold_objects::{Begun, ObjectError};

/// At most this many bytes are held for later.
pub(super) const BUDGET: u64 = 256 << 20;

/// At most this many streams are followed; a new one replaces the one that was idle for longest.
pub(super) const STREAMS: usize = 32;

/// The least and the largest read-ahead of a stream. Reads of several threads are out of order by less than
/// this.
pub(super) const WINDOW: Range<u64> = 1 << 20..32 << 20;

#[derive(Default)]
pub struct State {
    pub slots: HashMap<Span, Slot>,
    /// The slots by age.
    pub ages: BTreeMap<u64, Span>,
    pub next_age: u64,
    /// Bytes of all slots, including those on their way.
    pub bytes: u64,
    /// Requests in flight for read-ahead.
    pub ahead: usize,
    /// Sorted by the last read, latest last.
    pub streams: Vec<Stream>,
    /// The starts of the pieces that were handed out completely.
    pub done: HashSet<u64>,
    pub closed: bool,
}

/// Bytes of the tape, all of one object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Span {
    pub start: u64,
    pub end: u64,
}

/// Holds the answer for a span, and wakes its readers.
#[derive(Default)]
pub struct Cell {
    pub answer: OnceLock<Result<Bytes, ObjectError>>,
    pub came: Condvar,
}

impl Cell {
    /// Gives the answer to the readers that wait. A cell is set once.
    pub fn tell(&self, answer: Result<Bytes, ObjectError>) {
        let _ = self.answer.set(answer);
        self.came.notify_all();
    }
}

/// A span that is on its way or there.
pub struct Slot {
    pub cell: Arc<Cell>,
    pub age: u64,
    /// Bytes that were not handed out yet.
    pub left: u64,
    /// Whether it came from the bucket and was never read.
    pub is_fresh: bool,
    /// Dropped, and so cancelled, with the slot; `None` for a piece from the disk.
    pub _request: Option<Begun>,
}

/// Consecutive reads.
pub struct Stream {
    /// Where the first read began.
    pub from: u64,
    /// The end of the furthest read.
    pub at: u64,
    /// The end of what was requested.
    pub begun: u64,
    /// Whether a second read followed the first.
    pub goes_on: bool,
    /// Whether it went from one object to another.
    pub crossed: bool,
}

impl State {
    /// Finds the stream that a read continues, or begins one. Returns whether it began one. `object` is the
    /// start of the read's object.
    pub fn follow(&mut self, read: Span, object: u64) -> bool {
        let of = |stream: &Stream| {
            let from = stream.at.saturating_sub(WINDOW.end);
            let to = stream.begun.max(stream.at + WINDOW.start);
            (from..=to).contains(&read.start)
        };
        let Some(i) = self.streams.iter().rposition(of) else {
            if self.streams.len() >= STREAMS {
                self.streams.remove(0);
            }
            self.streams.push(Stream {
                from: read.start,
                at: read.end,
                begun: read.end,
                goes_on: false,
                crossed: false,
            });
            return true;
        };
        let mut stream = self.streams.remove(i);
        if read.end > stream.at {
            stream.crossed |= stream.at <= object;
            stream.at = read.end;
            stream.begun = stream.begun.max(read.end);
            stream.goes_on = true;
        }
        self.streams.push(stream);
        false
    }

    /// Adds a slot for a request. Read-ahead makes room for it, as far as there is any.
    pub fn add(&mut self, span: Span) -> Arc<Cell> {
        let (age, left) = (self.next_age, span.end - span.start);
        self.make_room(left);
        self.next_age += 1;
        self.bytes += left;
        self.ages.insert(age, span);
        let cell = Arc::new(Cell::default());
        let slot = Slot {
            cell: Arc::clone(&cell),
            age,
            left,
            is_fresh: false,
            _request: None,
        };
        self.slots.insert(span, slot);
        cell
    }

    /// The slot of a cell. Its span may have another cell by now, if all of it was read and then requested
    /// again.
    pub fn slot(&mut self, span: Span, cell: &Arc<Cell>) -> Option<&mut Slot> {
        let slot = self.slots.get_mut(&span);
        slot.filter(|slot| Arc::ptr_eq(&slot.cell, cell))
    }

    pub fn remove(&mut self, span: Span) {
        if let Some(slot) = self.slots.remove(&span) {
            self.ages.remove(&slot.age);
            self.bytes -= span.end - span.start;
        }
    }

    /// Counts bytes that are handed out of a span. Returns whether it had never been read.
    pub fn hand_out(&mut self, span: Span, cell: &Arc<Cell>, bytes: u64) -> bool {
        let Some(slot) = self.slot(span, cell) else {
            return false;
        };
        let is_fresh = std::mem::take(&mut slot.is_fresh);
        slot.left = slot.left.saturating_sub(bytes);
        if slot.left == 0 {
            self.remove(span);
            self.done.insert(span.start);
        }
        is_fresh
    }

    /// Drops the oldest pieces that are there until `bytes` bytes fit. Returns `false` if requests in flight
    /// leave no room.
    pub fn make_room(&mut self, bytes: u64) -> bool {
        while self.bytes + bytes > BUDGET {
            let there = |span: &&Span| {
                self.slots
                    .get(span)
                    .is_some_and(|slot| slot.cell.answer.get().is_some())
            };
            let Some(&oldest) = self.ages.values().find(there) else {
                return false;
            };
            self.remove(oldest);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_makes_room_and_what_is_on_its_way_stays() {
        let mut state = State::default();
        let span = |i: u64| Span {
            start: i * (BUDGET / 4),
            end: (i + 1) * (BUDGET / 4),
        };
        for i in 0..4 {
            let cell = state.add(span(i));
            if i > 0 {
                cell.tell(Ok(Bytes::new()));
            }
        }
        assert!(state.make_room(BUDGET / 2));
        let mut left: Vec<u64> = state.slots.keys().map(|span| span.start).collect();
        left.sort_unstable();
        assert_eq!(left, [span(0).start, span(3).start]);
        assert!(!state.make_room(BUDGET), "the first is on its way");
        assert_eq!((state.bytes, state.ages.len()), (BUDGET / 4, 1));
    }
}
