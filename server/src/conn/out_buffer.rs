//! Bytes on their way to a peer: those that may be written now, and behind them those that wait for
//! the disk (`core/durable_replies.rs`). Replies leave in the order in which they were decided, so
//! once something waits, everything behind it waits too.

use super::socket::WriteHalf;
use crate::observe::metrics::CoreMetrics;
use bytes::{Buf, BytesMut};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::io;
use std::time::Instant;
use wal::Ticket;

/// A buffer that has grown beyond this is given back once it is empty.
const BYTES_KEPT: usize = 64 * 1024;

#[derive(Default)]
pub(crate) struct OutBuffer {
    ready: RefCell<BytesMut>,
    held: RefCell<VecDeque<Held>>,
    held_bytes: Cell<usize>,
    /// The batch that is timed, if one is.
    timed: Cell<Option<Timed>>,
}

/// A batch of requests whose replies have not all left.
#[derive(Clone, Copy)]
struct Timed {
    since: Instant,
    /// How many bytes up to the last one of its replies.
    left_bytes: usize,
}

/// Bytes that wait for one turn's records.
struct Held {
    /// `None` in the turn that wrote them.
    ticket: Option<Ticket>,
    bytes: BytesMut,
}

impl OutBuffer {
    /// Appends to the bytes that may be written now, for a caller that holds them back itself if
    /// they must wait.
    pub(crate) fn with_ready<T>(&self, write: impl FnOnce(&mut BytesMut) -> T) -> T {
        write(&mut self.ready.borrow_mut())
    }

    /// Appends behind everything else.
    pub(crate) fn append(&self, write: impl FnOnce(&mut BytesMut)) {
        match self.held.borrow_mut().back_mut() {
            Some(last) => {
                let before = last.bytes.len();
                write(&mut last.bytes);
                let more = last.bytes.len() - before;
                self.held_bytes.update(|bytes| bytes + more);
            }
            None => write(&mut self.ready.borrow_mut()),
        }
    }

    /// How many bytes may be written now.
    pub(crate) fn ready_bytes(&self) -> usize {
        self.ready.borrow().len()
    }

    /// How many bytes wait for the disk.
    pub(crate) fn held_bytes(&self) -> usize {
        self.held_bytes.get()
    }

    /// Whether anything waits for the disk.
    pub(crate) fn is_held_back(&self) -> bool {
        !self.held.borrow().is_empty()
    }

    /// Puts bytes behind everything that waits for the disk. If this turn has records, they wait
    /// for those: see [`Self::seal`].
    pub(crate) fn hold(&self, bytes: BytesMut) {
        self.held_bytes.update(|held| held + bytes.len());
        self.held.borrow_mut().push_back(Held {
            ticket: None,
            bytes,
        });
    }

    /// The turn is over, and its records have this ticket.
    pub(crate) fn seal(&self, ticket: Ticket) {
        let mut held = self.held.borrow_mut();
        let unsealed = held
            .iter_mut()
            .rev()
            .take_while(|held| held.ticket.is_none());
        unsealed.for_each(|held| held.ticket = Some(ticket));
    }

    /// Drops what waits: it will never be settled.
    pub(crate) fn drop_held(&self) {
        self.held.borrow_mut().clear();
        self.held_bytes.set(0);
        self.timed.set(None);
    }

    /// Has the time counted that passes from `since` until all that is in here now has left. One
    /// batch at a time: while another is timed, this one is not.
    pub(crate) fn time(&self, since: Instant) {
        let left_bytes = self.ready_bytes() + self.held_bytes();
        if left_bytes > 0 && self.timed.get().is_none() {
            self.timed.set(Some(Timed { since, left_bytes }));
        }
    }

    /// So many bytes have left.
    fn count_down(&self, written: usize, metrics: &CoreMetrics) {
        let Some(mut timed) = self.timed.get() else {
            return;
        };
        timed.left_bytes = timed.left_bytes.saturating_sub(written);
        if timed.left_bytes == 0 {
            let us = timed.since.elapsed().as_micros() as u64;
            metrics.request_time.record_alone(us);
        }
        self.timed.set((timed.left_bytes > 0).then_some(timed));
    }

    /// Makes ready what waited for a ticket up to `synced`.
    pub(crate) fn let_go(&self, synced: Ticket) {
        let mut held = self.held.borrow_mut();
        while let Some(first) = held.front()
            // What was told without a record of its own follows what it stands behind.
            && first.ticket.is_none_or(|ticket| ticket <= synced)
        {
            let first = held.pop_front().expect("it is the front");
            self.held_bytes.update(|bytes| bytes - first.bytes.len());
            self.ready.borrow_mut().unsplit(first.bytes);
        }
    }

    /// Writes as much as the socket takes. `true`: it took something.
    pub(crate) fn write_some(&self, writer: &WriteHalf, metrics: &CoreMetrics) -> io::Result<bool> {
        let mut ready = self.ready.borrow_mut();
        let mut progress = writer.try_flush()?;
        while !ready.is_empty() {
            match writer.try_write(&ready) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => {
                    ready.advance(written);
                    metrics.bytes_out.add(written as u64);
                    self.count_down(written, metrics);
                    progress = true;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        if ready.is_empty() && ready.capacity() > BYTES_KEPT {
            *ready = BytesMut::new();
        }
        Ok(progress)
    }
}
