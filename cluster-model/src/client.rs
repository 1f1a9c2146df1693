//! A client: asks for a lock, believes for a while that it holds it, gives it back.
//!
//! Requests are not kept as messages. While a client waits for an answer, any node may take its
//! request in, any number of times and at any moment: that covers requests that are lost, late and
//! repeated. A lease counts from the moment the answered copy was sent, which is taken to be the
//! moment it was decided: every real client believes for a shorter time.

use crate::record::Lease;
use crate::{Fence, Index, RequestId, Time};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Request {
    /// A key, for the first time or again: the id is the same.
    Acquire(usize, RequestId),
    Renew(usize, Fence),
    Release(usize, Fence),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Answer {
    Granted(Fence),
    /// With the holder.
    Refused(Lease),
    Renewed,
    /// Also if there was nothing to release any more.
    Released,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Reply {
    pub client: usize,
    pub request: Request,
    pub answer: Answer,
    /// By the client's clock: what is granted or renewed is certainly its own until then.
    pub until: Time,
    /// Of the node that decided it.
    pub reign: Index,
    /// No later reign had been chosen when it was decided. Only properties look at this and the
    /// next.
    pub is_fresh: bool,
    /// It shows a grant of another core that is not in a batch yet.
    pub is_ahead: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Doing {
    #[default]
    Nothing,
    /// Also: the highest fence of the key that any client knew when this one began to ask.
    Asking(usize, RequestId, Fence),
    Holding(Hold),
    Releasing(usize, Fence),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Hold {
    pub key: usize,
    pub fence: Fence,
    /// By the client's own clock.
    pub until: Time,
    /// The reign that answered.
    pub told_by: Index,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Client {
    pub doing: Doing,
    /// How many ticks its clock has lost.
    pub lost: Time,
    /// Its last acquire that was granted: a copy of it may still be under way.
    pub late: Option<Request>,
}

impl Client {
    pub fn clock(&self, now: Time) -> Time {
        now - self.lost
    }

    /// What it sends, and repeats until it is answered. A holder renews.
    pub fn request(&self) -> Option<Request> {
        match self.doing {
            Doing::Nothing => None,
            Doing::Asking(key, id, _) => Some(Request::Acquire(key, id)),
            Doing::Holding(hold) => Some(Request::Renew(hold.key, hold.fence)),
            Doing::Releasing(key, fence) => Some(Request::Release(key, fence)),
        }
    }

    /// What it believes to hold.
    pub fn hold(&self) -> Option<Hold> {
        match self.doing {
            Doing::Holding(hold) => Some(hold),
            _ => None,
        }
    }

    /// Hears the answer to its request.
    pub fn hear(&mut self, reply: &Reply) {
        let (until, told_by) = (reply.until, reply.reign);
        self.doing = match (reply.request, reply.answer, self.hold()) {
            (Request::Acquire(key, _), Answer::Granted(fence), _) => {
                self.late = Some(reply.request);
                Doing::Holding(Hold {
                    key,
                    fence,
                    until,
                    told_by,
                })
            }
            (_, Answer::Renewed, Some(hold)) => Doing::Holding(Hold { until, ..hold }),
            _ => Doing::Nothing,
        };
    }

    /// Gives up what its own clock says is over.
    pub fn look(&mut self, now: Time) {
        if self
            .hold()
            .is_some_and(|hold| hold.until <= self.clock(now))
        {
            self.doing = Doing::Nothing;
        }
    }
}
