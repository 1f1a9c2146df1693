//! A mailbox: how one core leaves work for another, without a lock and with one wake-up per batch.
//!
//! Any thread posts; one thread takes. The flag `signalled` says that the taker has been woken and
//! has not begun to take yet, so only the first message of a batch costs a wake-up. The taker
//! lowers the flag *before* it takes: whatever was posted earlier it finds, and a later poster sees
//! the flag down and wakes it again. A taker that is awake anyway raises the flag itself and looks
//! into the box as often as it likes; for going to sleep the same rule holds.
//!
//! Two kinds of post. `post` always succeeds: it is for messages that are bounded elsewhere (a
//! grant: there are never more than waiters). `try_post` refuses when the box holds `message_max`:
//! it is for messages that may be dropped.

use crate::sync::{AtomicU32, Ordering, Queue};

/// See the module.
pub struct Mailbox<T> {
    queue: Queue<T>,
    length: AtomicU32,
    signalled: AtomicU32,
    message_max: u32,
}

/// A message that found no room.
#[derive(Debug, PartialEq, Eq)]
pub struct MailboxFull<T>(pub T);

/// Whether the taker has to be woken.
#[must_use = "a taker that is not woken sleeps on its mail"]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Posted {
    /// Wake it: this is the first message since it last began to take.
    Wake,
    /// Another poster has woken it already.
    AlreadySignalled,
}

impl<T> Mailbox<T> {
    /// A mailbox that refuses droppable messages beyond `message_max`.
    pub fn new(message_max: u32) -> Self {
        Mailbox {
            queue: Queue::new(),
            length: AtomicU32::new(0),
            signalled: AtomicU32::new(0),
            message_max,
        }
    }

    /// Leaves a message that is bounded elsewhere.
    pub fn post(&self, message: T) -> Posted {
        self.length.fetch_add(1, Ordering::Relaxed);
        self.queue.push(message);
        // Release, paired with the swap in `begin`: a taker that lowers the flag we raised finds
        // our message. Acquire, so that a taker we do not wake is one that has not begun yet.
        if self.signalled.swap(1, Ordering::AcqRel) == 0 {
            Posted::Wake
        } else {
            Posted::AlreadySignalled
        }
    }

    /// Leaves a message if there is room for it.
    pub fn try_post(&self, message: T) -> Result<Posted, MailboxFull<T>> {
        if self.length.load(Ordering::Relaxed) >= self.message_max {
            return Err(MailboxFull(message));
        }
        Ok(self.post(message))
    }

    /// Raises the flag for a taker that looks by itself for a while: meanwhile no poster need wake
    /// it. Before it goes to sleep it begins to take, as ever. Called by the one taker.
    pub fn attend(&self) {
        // A read-modify-write, so that it does not come between what others posted and the `begin`
        // that finds it.
        self.signalled.swap(1, Ordering::AcqRel);
    }

    /// Begins to take: from here on a new message wakes the taker again. Called by the one taker,
    /// before `take`.
    pub fn begin(&self) {
        let flag = u32::from(fault!(MailboxLowersFlagLast));
        self.signalled.swap(flag, Ordering::AcqRel);
    }

    /// The next message. Called by the one taker, after `begin`, until there is none.
    pub fn take(&self) -> Option<T> {
        let message = self.queue.pop();
        if message.is_some() {
            self.length.fetch_sub(1, Ordering::Relaxed);
        } else if fault!(MailboxLowersFlagLast) {
            self.signalled.swap(0, Ordering::AcqRel);
        }
        message
    }

    /// How many messages lie here.
    pub fn len(&self) -> usize {
        self.length.load(Ordering::Relaxed) as usize
    }

    /// Whether none does.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
